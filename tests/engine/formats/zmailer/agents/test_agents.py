"""Our agents on real control files, with real servers: locks, deliveries, outcomes, answers."""

import os
import re
import select
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from email import message_from_bytes
from pathlib import Path

import pytest

from engine.formats.zmailer.agents import jobs
from engine.formats.zmailer.agents.jobs import AgentJobs, AgentMessage, Deliver, run_agent
from engine.formats.zmailer.agents.router_agents import ErrormailAgent, HoldAgent, WrongHold, is_due
from engine.formats.zmailer.agents.smtp import SmtpAgent, host_list
from engine.formats.zmailer.reports import ReportForm, ReportSettings
from engine.formats.zmailer.scheduling import agent_lines
from engine.formats.zmailer.scheduling.agent_lines import (
    AgentAnswer,
    AgentLine,
    JobLine,
    format_resync,
)
from engine.formats.zmailer.scheduling.agent_process import Agent, agent_program, start_agent
from engine.formats.zmailer.scheduling.agent_talk import Answered, Ready
from engine.formats.zmailer.spool.folders import PostofficeFolders
from engine.formats.zmailer.submit import Router
from engine.mail.send.smtp_client import SmtpDestination
from tests import command
from tests.engine.formats.zmailer.spool.test_control_file import sample_files
from tests.smtp_server import DROP, HOST, Server, refusing
from tests.store_contents import naming
from tests.zmailer_spool import Spool, recipient, write_lock

NOW = 1_795_170_000.0
BODY = b"the body\n.dot\nno end"
LOOPBACK = f"[{HOST}]"


class AgentSpool:
    """A spool, and an agent that works in it."""

    def __init__(self, root: Path) -> None:
        spool = Spool(root).make()
        self.root, self.lines, self._put = root, spool.lines, spool.put
        self.folders = PostofficeFolders(str(root))

    def put(self, *recipients: str, number: int = 1001, more: str = "") -> Path:
        """A message to these recipients."""
        path = self._put(number, *recipients, more=more)
        (self.root / "queue" / str(number)).write_bytes(b"external\n\n" + BODY)
        return path

    def serve(
        self, deliver: Deliver, host: str = LOOPBACK, channel: str = "smtp", path: str = "1001"
    ) -> list[AgentLine]:
        """The lines of an agent about a job."""
        agent = AgentJobs(self.folders, channel, "", deliver, lambda: NOW)
        lines = agent.serve(agent_lines.JobLine(path, host.encode()))
        return [agent_lines.parse_agent_line(line.removesuffix(b"\n")) for line in lines]

    def answers(self, deliver: Deliver, *job: str) -> list[tuple[str, bytes]]:
        """Status and text of each line about a job; it must be an answer."""
        lines = self.serve(deliver, *job)
        assert all(isinstance(line, AgentAnswer) for line in lines), lines
        return [(one.status.decode(), one.text) for one in lines if isinstance(one, AgentAnswer)]

    def hold_agent(self, resolve: Callable[[str], bool] = lambda name: True) -> Deliver:
        """The agent of the channel hold, for which every name is known."""
        return HoldAgent(Router(self.folders.fd), "here.example", resolve).deliver

    def routed(self) -> list[bytes]:
        """The mails for the router."""
        return [path.read_bytes() for path in (self.root / "router").iterdir()]


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[AgentSpool]:
    """A spool."""
    spool = AgentSpool(tmp_path / "post")
    yield spool
    spool.folders.close()


def smtp(port: int, log: Callable[[str], None] = lambda text: None) -> Deliver:
    """The agent that sends to a server on this host."""
    settings = SmtpDestination(HOST, port, helo="here.example", connect_timeout=5)

    def deliver(*job: object) -> object:
        agent = SmtpAgent(settings, "smtp[9]", log)
        try:
            return agent.deliver(*job)  # type: ignore[arg-type]
        finally:
            agent.close()

    return deliver  # type: ignore[return-value]


def test_each_recipient_has_its_outcome(spool: AgentSpool) -> None:
    """In one transaction: accepted, deferred, refused; tags and diagnostics are in the file, with
    the server's own words, as the sender gets them in the report."""
    users = [recipient(host=LOOPBACK, user=f"{name}@d.example") for name in ("ok", "later", "no")]
    users.append("N NOTIFY=SUCCESS,FAILURE ORCPT=rfc822;no@d.example\n")
    path = spool.put(*users, recipient(host="other.example"))
    log: list[str] = []
    with Server(rcpt=["", "450 4.2.1 later", "550 5.1.1 no@d.example (unknown)"]) as server:
        lines = spool.serve(smtp(server.port, log.append))

    accepted, deferred, refused = (line for line in lines if isinstance(line, AgentAnswer))
    assert (accepted.status, accepted.text) == (b"ok3", b"250 2.0.0 accepted")
    assert (deferred.status, deferred.text) == (b"deferred", b"450 4.2.1 later")
    assert (refused.status, refused.text) == (b"error2", b"550 5.1.1 no@d.example (unknown)")
    notary = (b"later@d.example", b"delayed", b"4.2.1", b"smtp; 450 4.2.1 later")
    assert deferred.notary == (*notary, b"dns; 127.0.0.1", b"smtp[9]")
    (mail,) = server.mails
    envelope = ("a@b.example", ("ok@d.example",), "here.example")
    assert (mail.sender, mail.recipients, mail.helo) == envelope
    content = b"From: a@b.example\r\nSubject: a report\r\n\r\nthe body\r\n.dot\r\nno end\r\n"
    assert mail.data == content
    assert [line[:4] for line in spool.lines(path)] == ["r+  ", "r   ", "r-  ", "r   "]
    (diagnostic,) = spool.lines(path, "d")
    assert diagnostic.startswith(f"d {path.read_bytes().index(b'r-')}:")
    assert "\x01failed\x015.1.1\x01smtp; 550 5.1.1 no@d.example (unknown)\x01" in diagnostic
    assert len(log) == 3


def test_other_outcomes_of_a_delivery(spool: AgentSpool) -> None:
    """Relayed without DSN, sent again after a doubt, and an error for an address that is none. If
    the host is not reached, all are deferred, the last one with deferall; only blanks are
    written."""
    path = spool.put(recipient(host=LOOPBACK), "N NOTIFY=SUCCESS\n")
    with Server() as server:
        assert spool.answers(smtp(server.port)) == [("ok2", b"250 2.0.0 accepted")]
    assert "\x01relayed\x012.0.0\x01smtp; 250 2.0.0 accepted" in spool.lines(path, "d")[0]

    spool.put(recipient(host=LOOPBACK), recipient(host=LOOPBACK, user="no address"))
    with Server(body=DROP) as server:
        (first, text), (second, _) = spool.answers(smtp(server.port))
    assert (first, second, text[:10]) == ("deferred", "deferred", b"in doubt: ")
    with Server() as server:
        assert [one for one, _ in spool.answers(smtp(server.port))] == ["ok3", "error2"]

    path = spool.put(recipient(host=LOOPBACK), recipient(host=LOOPBACK, user="e@d.example"))
    before = path.read_bytes()
    with refusing() as port:
        (first, text), (last, _) = spool.answers(smtp(port))
    assert (first, last, path.read_bytes()) == ("deferred", "deferall", before)
    assert text.startswith(b"Connection refused - connecting to 127.0.0.1:")


def test_the_hosts_of_a_list_are_tried_in_order(spool: AgentSpool) -> None:
    """A list has parentheses, addresses brackets; only a refused connection leads to the next."""
    for text, hosts in (
        ("((mx1.example)(mx2.example [192.0.2.1]))", ["mx1.example", "mx2.example", "192.0.2.1"]),
        ("[IPv6:2001:db8::1]", ["2001:db8::1"]),
        ("mx.example", ["mx.example"]),
    ):
        assert host_list(text) == hosts
    spool.put(recipient(host="(([127.0.0.2])([127.0.0.1]))"))
    with Server() as server:
        lines = spool.answers(smtp(server.port), "(([127.0.0.2])([127.0.0.1]))")
    assert lines == [("ok3", b"250 2.0.0 accepted")]


def test_many_recipients_are_split(spool: AgentSpool, monkeypatch: pytest.MonkeyPatch) -> None:
    """At most so many at a time; recipients with other headers are another mail."""
    monkeypatch.setattr(jobs, "MAX_RECIPIENTS", 2)
    users = [recipient(host=LOOPBACK, user=f"u{n}@d.example") for n in range(3)]
    other = "s local x@b.example x@b.example 1\n" + recipient(host=LOOPBACK)
    spool.put(*users, more=other + "m\nSubject: other\n\n")
    with Server() as server:
        assert len(spool.answers(smtp(server.port))) == 4
    sent = [(mail.sender, len(mail.recipients)) for mail in server.mails]
    assert sent == [("a@b.example", 2), ("a@b.example", 1), ("x@b.example", 1)]
    assert server.mails[2].data.startswith(b"Subject: other\r\n\r\nthe body")


def test_a_job_with_nothing_to_do_is_a_resync(spool: AgentSpool) -> None:
    """Another host, another channel, a torn file, a file that is gone."""
    spool.put(recipient(host=LOOPBACK))
    torn = spool.put(recipient(host=LOOPBACK), number=1002)
    torn.write_bytes(torn.read_bytes()[:-1])
    before = torn.read_bytes()

    def deliver(*job: object) -> Iterator[object]:
        raise AssertionError

    for job in (
        ("other.example", "smtp", "1001"),
        (LOOPBACK, "local", "1001"),
        (LOOPBACK, "smtp", "1002"),
        (LOOPBACK, "smtp", "77"),
    ):
        lines = spool.serve(deliver, *job)  # type: ignore[arg-type]
        assert [type(line).__name__ for line in lines] == ["Resync"]
        assert torn.read_bytes() == before


def test_what_another_agent_locks_first_is_not_taken(spool: AgentSpool) -> None:
    """A lock of any other process, also of a dead one, and all other tags are left as they are; a
    line that is not as it was read is not locked, nor one of a message that was killed."""
    path = spool.put(*[recipient(host=LOOPBACK)] * 3)
    first, second, third = (match.start() for match in re.finditer(b"r  ", path.read_bytes()))
    write_lock(path, first, os.getpid() + 1)
    with path.open("r+b") as file:
        file.seek(second + 1)
        file.write(b"+held  ")
    before = path.read_bytes()
    with Server() as server:
        lines = spool.serve(smtp(server.port))
    assert [line.offset for line in lines if isinstance(line, AgentAnswer)] == [third]
    assert path.read_bytes() == before.replace(b"r           ", b"r+          ")

    path = spool.put(recipient(host=LOOPBACK), recipient(host=LOOPBACK))
    with spool.folders.open_control("1001", os.O_RDWR) as opened:
        message = AgentMessage(spool.folders, "1001", opened.fd, lambda: NOW)
        one, other = message.waiting(b"smtp", LOOPBACK.encode())
        write_lock(path, one.offset, 7)
        assert message.lock([one, other]) == [other]
        message.unlock()
        path.unlink()
        assert message.lock([other]) == []


def test_a_lock_that_was_taken_away_is_not_overwritten(spool: AgentSpool) -> None:
    """While it is delivered a recipient has a lock, `~` and the PID in six columns; a deferral
    removes it; if it was taken away, the agent logs that, and no mail for the router is sent."""
    path = spool.put(recipient("hold", "ns:x.example"))
    at = path.read_bytes().index(b"r  ")
    lock = f"r~{os.getpid():6}".ljust(12)  # a PID of 7 digits reaches into the blanks behind it

    def defer(name: str) -> bool:
        assert spool.lines(path)[0].startswith(f"{lock}hold ns:x.example ")
        return False

    def take_away(name: str) -> bool:
        write_lock(path, at, 7_654_321)
        return True

    ((status, _),) = spool.answers(spool.hold_agent(defer), "ns:x.example", "hold")
    assert (status, spool.lines(path)) == ("deferred", [recipient("hold", "ns:x.example")[:-1]])
    lines = spool.serve(spool.hold_agent(take_away), "ns:x.example", "hold")
    assert spool.lines(path)[0].startswith("r~7654321   ")
    assert spool.routed() == []
    assert any(b"is not ours any more" in getattr(line, "text", b"") for line in lines)


# ---- hold


def test_a_condition_is_met_or_not(spool: AgentSpool) -> None:
    """By name service, epoch time, age of the message, or home directory. What is no condition
    keeps the message in the queue with the reason; no script is run for a mail."""
    for host, due in (
        ("ns:known.example/any", True),
        ("ns:unknown.example", False),
        ("timeout:1795170000", True),
        ("timeout:1795170001", False),
        ("age:1h", True),
        ("age:1h1s", False),
        ("io:x", True),
        ("home:root", True),
        ("home:no-such-user", True),
    ):
        assert is_due(host, NOW, NOW - 3600, lambda name: name == "known.example") is due

    for host in ("bogus:1", "script:x", "timeout:soon", "age:x", "x"):
        with naming(host), pytest.raises(WrongHold, match="hold: "):
            is_due(host, NOW, NOW, lambda name: True)
        path = spool.put(recipient("hold", host))
        ((status, text),) = spool.answers(spool.hold_agent(), host, "hold")
        assert (status, text[:6]) == ("deferred", b"hold: ")
        assert spool.lines(path)[0].startswith("r           ")


def test_a_held_message_that_is_due_goes_to_the_router_again(spool: AgentSpool) -> None:
    """With the envelope of a suspended message, its headers and its body; once."""
    path, job = spool.put(recipient("hold", "timeout:1", "x@y.example")), ("timeout:1", "hold")
    assert spool.answers(spool.hold_agent(), *job) == [("ok3", b"resubmitted")]
    (mail,) = spool.routed()
    envelope, _, rest = mail.partition(b"env-end\n")
    assert b"via suspension\nfrom <a@b.example>\nto <x@y.example>\n" in envelope
    assert rest == b"From: a@b.example\nSubject: a report\n\n" + BODY
    assert spool.lines(path)[0].startswith("r+          hold")
    assert [type(one).__name__ for one in spool.serve(spool.hold_agent(), *job)] == ["Resync"]


# ---- errormail


def errormail(spool: AgentSpool) -> Deliver:
    """The agent, without forms."""
    router, settings = Router(spool.folders.fd), ReportSettings("here.example")
    return ErrormailAgent(router, settings, lambda name: ReportForm(), "errormail[9]").deliver


def test_a_message_that_cannot_be_routed_returns_to_its_sender(spool: AgentSpool) -> None:
    """A report with it is in router/, and it is done; one of channel error is dropped."""
    path = spool.put(recipient("error", "nosuchhost", "x@nowhere.example"))
    lines = spool.answers(errormail(spool), "nosuchhost", "error")
    assert lines == [("ok3", b"returned to its sender")]
    (mail,) = spool.routed()
    envelope, _, rest = mail.partition(b"env-end\n")
    assert b"to <a@b.example>" in envelope
    status = message_from_bytes(rest).get_payload()[1].as_string()  # type: ignore[union-attr,index]
    assert "Final-Recipient: rfc822; x@nowhere.example" in status
    assert "Action: failed\nStatus: 5.1.0\nDiagnostic-Code: x-local; 550 (nosuchhost)" in status
    assert BODY in rest
    assert spool.lines(path)[0].startswith("r+          error")

    (spool.root / "transport" / "3268949").write_bytes(sample_files()["snap2/S/V/3268949"])
    (spool.root / "queue" / "3268949").write_bytes(b"x" * 108)
    lines = spool.answers(errormail(spool), "-", "error", "S/V/3268949")
    assert (lines, spool.routed()) == ([("ok3", b"error bounce dropped")], [mail])


# ---- the command


def test_the_command_serves_a_scheduler(spool: AgentSpool, tmp_path: Path) -> None:
    """Started on a socket pair it answers its jobs, logs each, and ends at the empty line."""
    path = spool.put(recipient(host=LOOPBACK), recipient("hold", "timeout:1"))
    with Server() as server, (tmp_path / "log").open("ab") as log:
        words = f"{sys.executable} -P -m tui.cli zmailer agent smtp -srl {tmp_path}/smtp"
        program = agent_program(f"{words} -p {server.port}", "smtp", "", {}, None)
        env = {**program.env, "PYTHONPATH": str(Path(__file__).parents[5])}
        program = program._replace(cwd=str(path.parent), env=env)
        agent: Agent[str] = start_agent(program, log.fileno(), 0.0)
        events: list[object] = []
        for event in _events(agent):
            events.append(event)
            if isinstance(event, Ready) and len(events) == 1:
                assert agent.talk.room(0) == 1
                agent.talk.give(agent_lines.JobLine("1001", LOOPBACK.encode()), "job", 0.0)
                agent.write(0.0)
            elif isinstance(event, Ready):
                agent.end(0.0)
        agent.close()

    assert (tmp_path / "log").read_text() == ""
    assert [type(event) for event in events] == [Ready, Answered, Ready]
    assert (agent.status, len(server.mails)) == (0, 1)
    assert spool.lines(path)[0].startswith("r+          smtp")
    assert (tmp_path / "smtp").read_text().endswith(" c@d.example ok3 250 2.0.0 accepted\n")


def _events(agent: Agent[str]) -> Iterator[object]:
    while not agent.is_over:
        fds = [agent.pidfd] if agent.is_closed else [agent.pidfd, agent.sock.fileno()]
        if agent.pidfd in select.select(fds, [], [], 30)[0]:
            agent.reap()
        yield from agent.read(0.0)


@pytest.mark.deep
def test_the_scheduler_works_with_our_agents(spool: AgentSpool) -> None:
    """One for each agent: delivered, failed, given to the router, returned to its sender."""
    users = [recipient(host=LOOPBACK, user=f"{name}@d.example") for name in ("ok", "no")]
    users += [recipient("hold", "timeout:1"), recipient("error", "nosuchhost")]
    path, root = spool.put(*users), spool.root
    for name in ("freezer", "postman"):
        (root / name).mkdir()
    os.utime(root / "queue" / path.name)
    own = f"/usr/bin/env PYTHONPATH={Path(__file__).parents[5]} {sys.executable} -P -m tui.cli"
    with Server(rcpt=["", "550 5.1.1 unknown"]) as server:
        conf = f'PARAMmailqsock="UNIX:{root}/mailq"\n*/*\n user={os.getuid()} group={os.getgid()}\n'
        for clause, words in (
            ("smtp", f"smtp -p {server.port}"),
            ("hold", "hold"),
            ("error", "errormail"),
        ):
            conf += f'{clause}/*\n command="{own} zmailer agent {words}"\n'
        (root / "scheduler.conf").write_text(conf)
        start = ["zmailer", "scheduler", "-i", "-P", str(root), "-f", f"{root}/scheduler.conf"]
        pipe = subprocess.PIPE
        with command.Popen(start, stdin=subprocess.DEVNULL, stderr=pipe, text=True) as process:
            seconds = 0.0
            while path.exists():
                select.select([], [], [], 0.02)
                seconds += 0.02
                assert seconds < 30
            process.terminate()
            assert process.stderr is not None
            log = process.stderr.read()

    assert [mail.recipients for mail in server.mails] == [("ok@d.example",)]
    kinds = sorted(one.split(b"env-end")[0].split(b"\n")[1] for one in spool.routed())
    assert kinds == [b"errormsg", b"errormsg", b"via suspension"]
    assert not list((root / "queue").iterdir())
    assert "agent" not in log


def test_a_wrong_start_is_one_line(spool: AgentSpool) -> None:
    """A wrong option, or another working directory."""
    for words, where, why in (
        ("hold -x", "transport", "option -x not recognized"),
        ("smtp -p 0", "transport", "-p 0: expected a number from 1 to 65535"),
        ("smtp -p 25 a b", "transport", "b: expected at most one host"),
        ("hold", "queue", "expected the folder transport/ of a spool"),
    ):
        argv, cwd = ["zmailer", "agent", *words.split()], spool.root / where
        run = command.run(argv, cwd=cwd, capture_output=True, stdin=subprocess.DEVNULL, text=True)
        assert (run.returncode, run.stdout, run.stderr.count("\n")) == (64, "", 1)
        assert run.stderr.startswith("spooldeck: ") and why in run.stderr


# ---- the agent's side of a conversation


def serve(job: JobLine) -> Iterator[bytes]:
    """AgentAnswer two recipients of a job; nothing to do in file 3."""
    if job.path == "3":
        yield format_resync(job.path)
        return
    for offset in (10, 20):
        yield b"%d/%d\t\tok3 %b\n" % (job.ident, offset, job.host or b"-")


def test_an_agent_answers_each_job_and_is_hungry_again() -> None:
    """Until an empty line or the end of its input; a partial last line is no job."""
    for lines, answers in (
        (b"", b"#hungry\n"),
        (b"\n", b"#hungry\n"),
        (b"#idle\n\n7\th\n", b"#hungry\n#hungry\n"),
        (b"A/7\tmx\n", b"#hungry\n7/10\t\tok3 mx\n7/20\t\tok3 mx\n#hungry\n"),
        (b"3\tmx\n8\n", b"#hungry\n#resync 3\n#hungry\n8/10\t\tok3 -\n8/20\t\tok3 -\n#hungry\n"),
        (b"A/7\tm", b"#hungry\n"),
        (b"../x\n", b"#hungry\n#no job: ../x\n#hungry\n"),
    ):
        scheduler, agent = socket.socketpair()
        with scheduler, agent:
            scheduler.sendall(lines)
            scheduler.shutdown(socket.SHUT_WR)
            run_agent(serve, agent.fileno(), agent.fileno())
            assert scheduler.recv(4096) == answers


def test_an_agent_ends_if_the_scheduler_is_gone() -> None:
    """The job whose answer could not be written is the last one."""
    scheduler, agent = socket.socketpair()
    done = []

    def close_and_serve(job: JobLine) -> Iterator[bytes]:
        done.append(job.path)
        scheduler.close()
        yield b"7/10\t\tok3 done\n"

    with agent:
        scheduler.sendall(b"7\th\n8\th\n")
        run_agent(close_and_serve, agent.fileno(), agent.fileno())
    assert done == ["7"]
