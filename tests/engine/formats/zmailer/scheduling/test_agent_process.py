"""Agents as processes: how they are started, what they may do wrong, and how they end."""

import os
import resource
import select
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from engine.formats.zmailer.scheduling import agent_process
from engine.formats.zmailer.scheduling.agent_lines import AgentText, JobLine
from engine.formats.zmailer.scheduling.agent_process import Agent, agent_account, agent_program
from engine.formats.zmailer.scheduling.agent_talk import Answered, NothingToDo, Ready
from engine.system.supervisor import CannotRun, Program
from engine.system.users import Account
from tests.open_files import open_files
from tests.store_contents import naming

ZENV = {"MAILBIN": "/opt/mail/bin", "LOGDIR": "/var/log/mail", "TZ": "UTC", "HOME": "/root"}
HOST = b"mx.example"
Events = list[object]


def test_a_command_becomes_arguments_and_environment() -> None:
    """Words are split at blanks, names in braces replaced; only named variables are passed on."""
    for command, argv, env in (
        ("mailbox -8", ["/opt/mail/bin/ta/mailbox", "-8"], {}),
        ("/bin/agent $LOGDIR", ["/bin/agent", "$LOGDIR"], {}),
        ("A=1 B=${LOGDIR}/x /bin/agent", ["/bin/agent"], {"A": "1", "B": "/var/log/mail/x"}),
        ("/bin/agent C=1", ["/bin/agent", "C=1"], {}),
        ("/bin/sm -c $channel $host", ["/bin/sm", "-c", "smtp", "mx.example"], {}),
        ("/bin/sm ${LOGDIR}/${host}.log", ["/bin/sm", "/var/log/mail/mx.example.log"], {}),
        ('/bin/sm "a b"', ["/bin/sm", '"a', 'b"'], {}),
    ):
        program = agent_program(command, "smtp", "mx.example", ZENV, None)
        assert program.argv == argv
        assert program.env == {"PATH": "/usr/bin:/bin", "TZ": "UTC", **env}


def test_a_command_that_cannot_be_used_is_refused() -> None:
    """The reason names the word; a host is never an option, a bare name never a program of PATH."""
    with pytest.raises(CannotRun, match="MAILBIN is not set"):
        agent_program("smtp", "smtp", "h", {}, None)
    for command, host, why in (
        ("", "h", "names no program"),
        ("A=1", "h", "names no program"),
        ("/bin/sm ${NOWHERE}", "h", "NOWHERE} is not set"),
        ("/bin/sm $host", "-oq/tmp/x", "would be read as an option"),
        ("/bin/sm ${host}", "--version", "would be read as an option"),
        ("/bin/sm $host", "a\0b", "NUL byte"),
    ):
        with naming(command, host, why), pytest.raises(CannotRun, match=why):
            agent_program(command, "smtp", host, ZENV, None)


def test_an_account_has_no_other_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """User and group may be names or numbers; without root there is nothing to change."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert agent_account("root", "daemon") == Account(0, 1, (1,), "root", "/")
    assert agent_account("12", "34") == Account(12, 34, (34,), "12", "/")
    for names in (("no-such-user", "1"), ("0", "no-such-group")):
        with pytest.raises(CannotRun, match="no-such"):
            agent_account(*names)
    monkeypatch.setattr(os, "geteuid", lambda: 7)
    assert agent_account("root", "daemon") is None


# ---- processes

StartScript = Callable[..., Agent[str]]


def start_script(script: str, errors: int, **options: Any) -> Agent[str]:
    """Start a shell script as an agent."""
    account = options.pop("account", None)
    program = Program(["/bin/sh", "-c", script], {"PATH": "/usr/bin:/bin"}, account=account)
    agent: Agent[str] = agent_process.start_agent(program, errors, 0.0, **options)
    return agent


@pytest.fixture
def start(tmp_path: Path) -> Iterator[StartScript]:
    """Start a shell script as an agent; its errors go to the file `log`."""
    agents: list[Agent[str]] = []
    log = os.open(tmp_path / "log", os.O_CREAT | os.O_WRONLY | os.O_APPEND)

    def start(script: str, **options: Any) -> Agent[str]:
        agents.append(start_script(script, log, **options))
        return agents[-1]

    yield start
    os.close(log)
    for agent in agents:
        agent.signal(signal.SIGKILL)
        while not agent.reap():
            select.select([agent.pidfd], [], [])
        agent.close()


def wait(agent: Agent[str], until: Callable[[Events], bool] = lambda _: False) -> Events:
    """Serve an agent until the events are enough, or it has ended; return all events."""
    events: Events = []
    while not until(events) and not agent.is_over:
        fds = [agent.pidfd] if agent.is_closed else [agent.pidfd, agent.sock.fileno()]
        ready = [] if agent.talk.has_lines else select.select(fds, [], [], 20)[0]
        assert ready or agent.talk.has_lines, "the agent hangs"
        if agent.pidfd in ready:
            agent.reap()
        events += agent.read(1.0)
    return events


def texts(agent: Agent[str], words: bytes = b"") -> list[bytes]:
    """Give an agent some words, and return its lines that are no answers, to its end."""
    agent.talk.output += words
    agent.write(0.0)
    return [event.text for event in wait(agent) if isinstance(event, AgentText)]


def feed(agent: Agent[str], *numbers: int) -> None:
    """Wait until an agent is ready, and give it jobs."""
    assert Ready() in wait(agent, lambda events: Ready() in events)
    assert agent.talk.room(len(numbers) - 1) > 0
    for number in numbers:
        assert agent.talk.give(JobLine(f"A/{number}", HOST), f"job {number}", 1.0)
    agent.write(1.0)


SERVE = """
echo '#hungry'
while read file host && [ -n "$file" ]; do
    case $file in '#idle') ;; *) printf '%s/9\\t\\tok3 %s\\n' "${file#A/}" "$host";; esac
    echo '#hungry'
done
"""


def test_an_agent_does_its_jobs_and_ends(start: StartScript) -> None:
    """It answers each job, waits when idle, and ends at the empty line, with its status."""
    agent = start(SERVE + "exit 3")
    feed(agent, 5)
    answered, *_ = wait(agent, lambda events: Ready() in events)
    agent.talk.finish()
    agent.talk.idle()
    agent.write(1.0)
    assert wait(agent, lambda events: bool(events)) == [Ready()]
    agent.end(2.0)
    assert wait(agent) == []
    assert isinstance(answered, Answered)
    assert (answered.job, answered.answer.text) == ("job 5", HOST)
    assert (agent.status, agent.is_closed, agent.talk.feed.state) == (3, True, "ERROR")


def test_standard_input_and_output_are_one_socket(start: StartScript, tmp_path: Path) -> None:
    """Of our descriptors an agent has only the socket, twice, and the log as standard error."""
    leak, log = os.dup(0), tmp_path / "log"
    os.set_inheritable(leak, True)
    agent = start("readlink /proc/$$/fd/0 /proc/$$/fd/1 /proc/$$/fd/2; ls /proc/$$/fd; echo x >&2")
    os.close(leak)
    lines = texts(agent)
    assert lines[0] == lines[1] and lines[0].startswith(b"socket:")
    assert lines[2:] == [str(log).encode(), b"0", b"1", b"2"]
    assert log.read_text() == "x\n"


def test_an_agent_has_its_limits_and_works_where_the_scheduler_works(start: StartScript) -> None:
    """The limit of open files and the niceness are set before it gets a job."""
    own_priority = os.getpriority(os.PRIO_PROCESS, 0)
    agent = start("read x; ulimit -n; nice; pwd; ps -o sid= $$ || :", open_files=20, nice=3)
    niceness = str(min(19, own_priority + 3)).encode()
    assert texts(agent, b"go\n")[:3] == [b"20", niceness, bytes(Path.cwd())]
    assert agent.warning == "" and resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 20


@pytest.mark.skipif(os.geteuid() != 0, reason="only root changes the user")
def test_an_agent_runs_as_its_user_without_our_groups(start: StartScript) -> None:
    """Group, user and limits are set, and no other group stays."""
    account = Account(12345, 54321, (54321,), "x", "/")
    script = "read x; id -u; id -G; ulimit -n; nice"
    agent = start(script, account=account, open_files=20, priority=7)
    # Our niceness may be higher: then only we may set it, before the agent goes on.
    assert texts(agent, b"go\n") == [b"12345", b"54321", b"20", b"7"]


def test_a_program_that_is_missing_is_reported(tmp_path: Path) -> None:
    """No process or descriptor is left; in any second there are at most so many starts."""
    before = open_files()
    with pytest.raises(CannotRun, match="/nowhere/smtp: No such file"):
        agent_process.start_agent(Program(["/nowhere/smtp"], {}), 2, 0.0)
    assert not open_files() - before

    rate, times = agent_process.StartRate(3), (0.0, 0.5, 0.9, 0.95, 1.0, 1.2, 1.5)
    assert [now for now in times if not rate.allow(now)] == [0.95, 1.2]


@pytest.mark.parametrize(
    ("script", "kinds"),
    [
        ("", []),
        ("printf '#hun'", []),
        ("echo '#hungry'", [Ready]),
        ("echo '#hungry'; read x; kill -9 $$", [Ready]),
        ("echo '#hungry'; read x; printf '5/9\\t\\tok3 d'", [Ready]),
        ("echo '#hungry'; read x; printf '5/9\\t\\tok3 done\\n'", [Ready, Answered]),
        ("echo '#hungry'; read x; printf '5/9\\t\\tok3 d\\n#hung'", [Ready, Answered]),
        ("echo '#hungry'; read x; printf '#resync A/5\\n#hungry\\n'", [Ready, NothingToDo, Ready]),
        ("echo '#hungry'; read x; printf '6/9\\t\\tok3 lie\\n'", [Ready, AgentText]),
    ],
)
def test_an_agent_may_die_anywhere(start: StartScript, script: str, kinds: Sequence[type]) -> None:
    """Whole lines count, a partial last line does not; the jobs without an answer are known."""
    agent = start(script)
    events: Events = []
    if "read x" in script:
        events += wait(agent, lambda events: Ready() in events)
        assert agent.talk.room(0) == 1
        agent.talk.give(JobLine("A/5", HOST), "job 5", 1.0)
        agent.write(1.0)
    events += wait(agent)
    assert [type(event) for event in events] == list(kinds)
    assert agent.status is not None and agent.talk.jobs == (["job 5"] if "read x" in script else [])


def test_a_job_for_an_agent_that_is_gone_is_not_lost(start: StartScript) -> None:
    """A write to an agent that has closed its end gives it nothing more; its last lines count."""
    agent = start("echo '#hungry'; exec sleep 20 </dev/null >/dev/null")
    feed(agent, 5)
    while not agent.is_closed:
        select.select([agent.sock], [], [])
        assert list(agent.read(1.0)) == []
    agent.talk.output += b"x"
    agent.write(2.0)
    assert (agent.wants_write, agent.talk.feed.state) == (False, "ERROR")
    assert (agent.talk.jobs, agent.talk.room(9)) == (["job 5"], 0)
    assert not agent.reap()


def test_children_that_keep_the_socket_do_not_keep_the_agent(start: StartScript) -> None:
    """The end of the process is the end of the agent, though its child writes on the socket."""
    agent = start("echo '#hungry'; read x; printf '5/9\\t\\tok3 done\\n'; yes & exit 0")
    feed(agent, 5)
    events = wait(agent)
    with suppress(ProcessLookupError):
        os.killpg(agent.pid, signal.SIGKILL)  # the child: it is in the session that we started
    assert agent.status == 0
    assert [type(event) for event in events if not isinstance(event, AgentText)] == [Answered]


def test_a_flooding_agent_takes_bounded_memory_and_time(start: StartScript) -> None:
    """Each read takes one piece of what an agent writes without end, in rounds of lines."""
    agent = start("exec yes '#'")
    for _ in range(10):
        select.select([agent.sock], [], [])
        assert len(list(agent.read(1.0))) <= 1000
        assert len(agent.talk._lines) <= 64 << 10


def test_errors_of_an_agent_come_as_lines() -> None:
    """A long line comes in pieces, the last one without its end when the output is closed; if an
    agent closes it, the pipe has no end: the scheduler would never wait again. An agent whose
    scheduler was killed is neither signalled nor blocked by its errors."""
    errors = agent_process.ErrorOutput()
    agent = start_script("exec 2>&-; echo '#hungry'", errors.agent_end)
    wait(agent)
    agent.close()
    assert select.select([errors.fd], [], [], 0.0) == ([], [], [])
    os.write(errors.agent_end, b"one\ntwo\nthr")
    assert errors.read_lines() == [b"one", b"two"]
    os.write(errors.agent_end, b"x" * 9000)
    assert errors.read_lines() == [b"thr" + b"x" * 9000]
    assert errors.read_lines() == []
    os.write(errors.agent_end, b"four\nend")
    assert errors.close() == [b"four", b"end"]

    errors = agent_process.ErrorOutput()
    script = "echo '#hungry'; read go; head -c 300000 /dev/zero >&2; echo more >&2; exit 7"
    agent = start_script(script, errors.agent_end)
    errors.close()
    feed(agent, 5)
    wait(agent)
    agent.close()
    assert agent.status == 7


def test_a_stop_waits_for_the_job_that_an_agent_has(start: StartScript) -> None:
    """Without a job it gets SIGQUIT, with one it ends after it; an ended one gets none."""
    idle = start("echo '#hungry'; exec sleep 20")  # it does not read: only the signal ends it
    busy = start("echo '#hungry'; read x; read y; printf '5/9\\t\\tok3 d\\n'")
    feed(busy, 5)
    assert wait(idle, lambda events: Ready() in events) == [Ready()]
    for agent in (idle, busy):
        agent.stop(1.0)
    assert wait(idle) == []
    assert [type(event) for event in wait(busy)] == [Answered]
    busy.signal(signal.SIGKILL)
    assert (idle.status, busy.status) == (-signal.SIGQUIT, 0)
