"""The scheduler as a process: agents that misbehave, signals, MAILQ, a restart."""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

from engine.formats.zmailer import notify
from engine.formats.zmailer.environment import NOTIFY_SOCKET
from engine.formats.zmailer.mailq.acl import digest
from engine.formats.zmailer.reports import ReportSettings
from engine.formats.zmailer.scheduler.process import SignalReader, SignalRequest
from engine.formats.zmailer.scheduler.running_agents import MAX_ERRORS_PER_MINUTE
from engine.formats.zmailer.scheduler.spool_controls import FOLDER, RUNNING_CONF
from engine.formats.zmailer.spool import names
from engine.formats.zmailer.spool.folders import PostofficeFolders
from engine.formats.zmailer.spool.store import ZmailerStore
from engine.formats.zmailer.spool_mail import SpoolMail
from engine.model import State, Task
from tests import command
from tests.zmailer_spool import Spool, recipient

GOOD = r"""printf '#hungry\n'; while read -r file host && [ -n "$file" ]; do
case $file in '#idle') ;; *) id=${file##*/}
for at in $(grep -abo '^r ' $file | cut -d: -f1); do printf '%s/%s\t\tok3 sent\n' $id $at; done
esac; printf '#hungry\n'; done"""
"""An agent that delivers all recipients, and writes no tags."""


FAIL = r"""printf '#hungry\n'; while read -r file host && [ -n "$file" ]; do
case $file in '#idle') ;; *) touch ../given; until [ -e ../go ]; do sleep 0.02; done
at=$(grep -abo '^r ' $file | cut -d: -f1)
printf '-' | dd of=$file bs=1 seek=$((at + 1)) conv=notrunc status=none
%s
printf '%%s/%%s\t\terror no such user\n' ${file##*/} $at
esac; printf '#hungry\n'; done"""
"""An agent that fails the recipient of a job when `go` is there: the tag first, then the answer."""

PATIENCE = 20.0


def until(condition: Callable[[], object]) -> None:
    """Wait for a condition."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


class Place:
    """A spool with a configuration: the channel `good` has an agent that delivers."""

    def __init__(self, root: Path) -> None:
        self.root, self.spool = root, Spool(root).make()
        for name in ("freezer", "postman"):
            (root / name).mkdir()
        self.conf = root / "scheduler.conf"
        self.start = ["zmailer", "scheduler", "-P", str(root), "-f", str(self.conf)]
        self.write_agent("good", GOOD)
        self.configure()

    def write_agent(self, name: str, script: str) -> None:
        """Write a program for a channel of its name."""
        path = self.root / f"{name}.sh"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def configure(self, more: str = "") -> None:
        """Write the configuration."""
        who = f"user={os.getuid()} group={os.getgid()}"
        clauses = [f"{name}/*\n command={self.root}/{name}.sh {more}" for name in ("good", "bad")]
        text = f'PARAMmailqsock="UNIX:{self.root}/mailq"\n*/*\n interval=1m {who}\n'
        self.conf.write_text(text + "\n".join(clauses) + "\n")

    def put(self, number: int, channel: str, host: str = "x", *others: str) -> Path:
        """A new message for a channel, and other recipients; a running scheduler gets a notice."""
        path = self.spool.put(number, recipient(channel, host), *others)
        os.utime(self.root / "queue" / str(number))
        notify.send(f"{self.root}/{NOTIFY_SOCKET}", str(number))
        return path

    def deliver(self, number: int, channel: str = "good") -> None:
        """A message for a channel, and wait until it is delivered."""
        path = self.put(number, channel)
        until(lambda: not path.exists())

    @contextmanager
    def running(self, *words: str) -> Iterator[command.Popen[str]]:
        """A running scheduler, which is killed in the end."""
        argv = [*self.start, "-i", "-L", f"{self.root}/log", "-q", f"{self.root}/dump", *words]
        process = command.Popen(argv, stdin=subprocess.DEVNULL, text=True)
        try:
            yield process
        finally:
            process.kill()
            process.wait()

    def ask(self) -> str:
        """What MAILQ version 1 shows; "" before there is a server."""
        with socket.socket(socket.AF_UNIX) as client, suppress(OSError):
            client.connect(f"{self.root}/mailq")
            with client.makefile() as file:
                return file.read()
        return ""

    def log(self) -> str:
        """The log so far."""
        with suppress(FileNotFoundError):
            return (self.root / "log").read_text()
        return ""


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A spool."""
    return Place(tmp_path)


@pytest.mark.parametrize(
    ("script", "text"),
    [
        ("exit 3", "exit 3, 0 jobs open"),
        ("exec cat /dev/zero", ""),
        ("while :; do echo '#hungry'; done", ""),
        ("exec sleep 9", ""),
        ("exec 0<&- 1>&-; exec sleep 9", ""),
        (r"printf '#hungry\n'; read -r a; printf '70/9\t\tok3 x\n71/9\t\tok3 x\n'", "not to do"),
        (r"printf '#hungry\n'; read -r a; printf '70/89\t\tok3'", "1 jobs open"),
        (
            r"printf '#hungry\n'; while read -r a b; do printf '#resync %s\n#hungry\n' $a; done",
            "often",
        ),
        ("sleep 9 & exit 0", ""),
    ],
)
def test_a_bad_agent_harms_no_other_mail(place: Place, script: str, text: str) -> None:
    """An agent that ends, floods, hangs, lies or forks delays its own mail, and nothing is lost."""
    place.write_agent("bad", script)
    broken = place.put(70, "bad")
    with place.running() as scheduler:
        until(lambda: "A=" in place.ask() and text in place.log())
        place.deliver(80)
        assert scheduler.poll() is None
    assert broken.read_bytes().count(b"\nr ") == 1
    assert (place.root / "queue/70").exists()


def test_what_an_agent_writes_fills_no_log(place: Place) -> None:
    """Of lines that are no answers only some are logged, as text, and that there are more. What it
    writes to standard error is in the log as lines with time and PID, the last without an end too;
    of one that writes without end a few hundred a minute. Other mail is delivered."""
    place.write_agent("bad", r"printf '#hungry\n#one \351\n'; while :; do echo '#more'; done")
    place.put(70, "bad")
    with place.running():
        until(lambda: "are not logged" in place.log())
        first = place.log().index("DBGdiag: #one \ufffd\n")
        place.deliver(80)
    assert "b'" not in place.log()[first:]
    assert place.log().count("#more") <= 40  # the minute may end meanwhile
    place.write_agent("bad", "echo 'no such host' >&2; printf 'last words' >&2; exit 3")
    with place.running():
        until(lambda: "last words" in place.log())
    assert "standard error: no such host\n" in place.log()
    place.write_agent("bad", "exec yes oops >&2")
    with place.running():
        until(lambda: "standard error: more such lines of this minute" in place.log())
        place.deliver(80)
    assert place.log().count(": oops\n") <= 2 * MAX_ERRORS_PER_MINUTE  # the minute may end


def test_signals(place: Place) -> None:
    """USR2 writes the dump, USR1 reads the configuration again and logs what differs, HUP opens the
    log again, ALRM looks for new files, QUIT ends after the agents."""
    place.write_agent("bad", "exit 1")
    waiting = place.put(70, "bad")
    in_use = place.root / FOLDER / RUNNING_CONF  # to which a reread shows the difference
    with place.running("-F") as scheduler:
        until(lambda: "bad/x/0" in place.ask())
        assert "Plim:" in place.ask() and "Plim:   0" not in place.ask()
        scheduler.send_signal(signal.SIGUSR2)
        until((place.root / "dump").exists)
        assert (place.root / "dump").read_text().startswith("version zmailer 1.0\nVertices:\n1:\t")
        place.configure("maxring=3")
        scheduler.send_signal(signal.SIGUSR1)
        until(lambda: "clause bad/*: maxring: not set -> 3" in place.log())
        until(lambda: in_use.read_text() == place.conf.read_text())
        place.conf.write_text("bad/*\n nonsense=1\n")
        scheduler.send_signal(signal.SIGUSR1)
        until(lambda: "unknown keyword nonsense" in place.log())
        assert "Plim:   3" in place.ask()
        (place.root / "log").rename(place.root / "log.1")
        scheduler.send_signal(signal.SIGHUP)
        until((place.root / "log").exists)
        place.spool.put(71, recipient("good", "y"))
        scheduler.send_signal(signal.SIGALRM)
        until(lambda: "good/y/0" in place.ask())
        scheduler.send_signal(signal.SIGQUIT)
        assert scheduler.wait(PATIENCE) == 0
    assert waiting.exists()
    assert not (place.root / ".pid.scheduler").exists()


def test_a_changed_command_is_used_from_the_next_job_on(place: Place) -> None:
    """After USR1 the idle agent ends, one at work finishes its job; the rest is for a new one."""
    script_line = "echo $$ >> ../used\n"
    place.write_agent("good", script_line + GOOD)
    place.write_agent("new", script_line + GOOD.replace("sent", "by the new one"))
    place.write_agent("bad", GOOD.replace("*) id", "*) touch ../given; read -r x < ../go; id"))
    os.mkfifo(place.root / "go")
    place.configure("overfeed=0")
    with place.running("-v") as scheduler:
        place.deliver(70)
        old = int((place.root / "used").read_text())
        busy, waiting = place.put(71, "bad"), place.put(72, "bad")
        until((place.root / "given").exists)
        text = place.conf.read_text()
        place.conf.write_text(text.replace("good.sh", "new.sh").replace("bad.sh", "new.sh"))
        scheduler.send_signal(signal.SIGUSR1)
        until(lambda: not Path(f"/proc/{old}").exists())
        with (place.root / "go").open("w") as go:
            go.write("x\n")
        until(lambda: not (busy.exists() or waiting.exists()))
        place.deliver(73)
        assert len((place.root / "used").read_text().split()) == 3
    assert place.log().count("by the new one") == 2
    assert "exit" not in place.log()


@pytest.mark.parametrize("dies", [False, True])
def test_the_end_waits_for_what_agents_answer(place: Place, dies: bool) -> None:
    """After SIGTERM a failure that an agent writes is still reported; of an agent that dies after
    the tag it has a diagnostic, as another scheduler would complete the file without a word."""
    place.write_agent("bad", FAIL % ("exit 1" if dies else ""))
    with place.running() as scheduler:
        path = place.put(70, "bad")
        until((place.root / "given").exists)
        scheduler.send_signal(signal.SIGTERM)
        until(lambda: "ending: 1 messages in delivery" in place.log())
        (place.root / "go").touch()
        assert scheduler.wait(PATIENCE) == 0
    reports = [one.read_text() for one in (place.root / "router").iterdir()]
    assert (path.exists(), ["no such user" in one for one in reports]) == (
        dies,
        [True] * (not dies),
    )
    if dies:
        _, diagnostic = path.read_text().split("\nd ")
        assert "failed; the reason was lost with the scheduler" in diagnostic


def test_a_thread_shows_why_it_does_not_start(place: Place) -> None:
    """It is queueonly, the console has frozen the spool, or -p names another thread."""
    trigger, marker = place.root / "transport/99-etrn", place.root / ".spooldeck/frozen"
    marker.parent.mkdir()
    for more, words, reasons, start in (
        ("queueonly", (), ("pend=QueueOnly", "W="), lambda: trigger.write_text("T X\n")),
        ("", (), ("pend=Frozen",), marker.unlink),
        ("", ("-p", "good/y"), ("pend=procsel-mismatch",), None),
    ):
        place.configure(more)
        if start == marker.unlink:
            marker.touch()
        path = place.put(70, "good", "x", *[recipient("good", "y")] * bool(words))
        with place.running(*words) as scheduler:
            until(lambda: any(reason in place.ask() for reason in reasons))  # noqa: B023
            if start:
                start()
                scheduler.send_signal(signal.SIGALRM)
                until(lambda: not (path.exists() or trigger.exists()))  # noqa: B023
            else:
                until(lambda: "good/y" not in place.ask())
                assert "good/x" in place.ask() and path.exists()


def test_starts_are_limited_to_a_rate(place: Place) -> None:
    """With -R 1 the second agent starts a second later; meanwhile its thread shows why. The first
    one ends nothing before: an agent that is free would take over the thread that waits."""
    place.write_agent("good", "exec sleep 9")
    place.put(70, "good", "x", recipient("good", "y"))
    with place.running("-R", "1"):
        until(lambda: "pend=ForkRateLimit" in place.ask())
        until(lambda: place.ask().count("S={LARVA}") == 2)


def test_a_released_recipient_is_delivered_after_a_notice(place: Place) -> None:
    """A recipient that was held when the file was read joins its message after a notice."""
    place.configure("queueonly")
    path = place.put(70, "good", "x", recipient("good", "y").replace("r       ", "r+held  ", 1))
    with place.running():
        until(lambda: "good/x/0" in place.ask())
        assert "good/y/0" not in place.ask()
        path.write_bytes(path.read_bytes().replace(b"r+held  ", b"r       "))
        notify.send(f"{place.root}/{NOTIFY_SOCKET}", "70")
        until(lambda: "good/y/0" in place.ask())
        assert "good/x/0" in place.ask()


@pytest.mark.parametrize("state", [State.HELD, State.TRASH])
@pytest.mark.parametrize("is_lost", [False, True])
@pytest.mark.parametrize("is_last", [False, True])
def test_what_an_operator_releases_is_delivered(
    place: Place, state: State, is_lost: bool, is_last: bool
) -> None:
    """By a notice, or after a scan; also if it was the last recipient of its message."""
    script = GOOD.replace("for at", "at=; for at").replace("'^r '", "'^r  *good'")
    script = script.replace("do printf", "do touch ../sent; printf")
    resync = "[ -n \"$at\" ] || printf '#resync %s\\n' $file\nesac"
    place.write_agent("good", script.replace("esac", resync))
    place.write_agent("bad", "exit 1")
    path = place.put(70, "good", "x", *[recipient("bad", "y")] * (not is_last))
    (place.root / ".spooldeck").mkdir()
    frozen = place.root / ".spooldeck/frozen"
    frozen.touch()

    def mail(folders: PostofficeFolders) -> SpoolMail:
        settings, name = ReportSettings("mta.example"), "none" if is_lost else NOTIFY_SOCKET
        return SpoolMail(folders, time.time, settings, notify_socket=lambda: f"{place.root}/{name}")

    with place.running() as scheduler:
        until(lambda: "good/x/0" in place.ask())
        with closing(ZmailerStore(str(place.root), mail=mail)) as store:
            task = next(one for one in store.scan() if isinstance(one, Task) and one.group == "x")
            assert "at its next start" not in store.edges[state, State.PENDING].warning
            rev = store.swap(task, task._replace(state=state))
            frozen.unlink()
            scheduler.send_signal(signal.SIGALRM)
            until(lambda: "good/x/0" not in place.ask() and path.exists() is not is_last)
            assert not (place.root / "sent").exists()
            held = task._replace(state=state, rev=rev)
            store.swap(held, held._replace(state=State.PENDING))
        if is_lost:
            scheduler.send_signal(signal.SIGALRM)
        until((place.root / "sent").exists)


def test_v_logs_each_step(place: Place) -> None:
    """-v logs what is read, started, answered and done; with -W not the reading at the start."""
    for number, late in ((70, False), (71, True)):
        path = place.put(number, "good")
        with place.running("-v", *(["-W"] * late)):
            until(lambda: not path.exists() and f"{number}: complete" in place.log())  # noqa: B023
        assert (f"{number}: 1 recipients in 1 threads" in place.log()) == (not late)
        assert f"{number}: 89 ok3 sent" in place.log()
    assert place.log().count("started for good/x") == 2


def test_a_wrong_start_has_one_line(place: Place) -> None:
    """What cannot be used is named, also before detaching; nothing is started."""
    for words, text in (
        (["-f", "/nonexistent/conf"], "/nonexistent/conf: No such file"),
        (["-x"], "option -x not recognized"),
        (["-i"], "is world-writable: run chmod o-w"),
    ):
        if words == ["-i"]:
            (place.root / "transport").chmod(0o777)
        done = command.run([*place.start, *words], capture_output=True, text=True)
        assert done.returncode not in (0, 1) and text in done.stderr
        assert words == ["-i"] or done.stderr.count("\n") == 1
        assert not (place.root / ".pid.scheduler").exists()


def test_a_detached_scheduler_runs_on(place: Place) -> None:
    """Without an option the command ends when the scheduler has started, which goes on."""
    path = place.put(70, "good")
    argv = [*place.start, "-L", f"{place.root}/log"]
    assert command.run(argv, capture_output=True).returncode == 0
    pid = int((place.root / ".pid.scheduler").read_text())
    try:
        until(lambda: not path.exists())
    finally:
        os.kill(pid, signal.SIGTERM)
    until(lambda: not (place.root / ".pid.scheduler").exists())


def test_an_operator_kills_a_message_and_a_thread(place: Place) -> None:
    """KILL MSG by spool id and KILL THREAD remove what they name, and answer the truth."""
    users = place.root / "users"
    users.write_text("op:secret:ALL:\n")
    users.chmod(0o600)
    place.configure("queueonly")
    place.conf.write_text(f'PARAMauthfile="{users}"\n{place.conf.read_text()}')
    paths = [place.put(70 + n, channel) for n, channel in enumerate(("good", "good", "bad"))]
    spool_id = names.spool_id(70, (place.root / "queue/70").stat().st_mtime_ns)
    with place.running(), closing(socket.socket(socket.AF_UNIX)) as client:
        until((place.root / "mailq").exists)
        until(lambda: "started" in place.log())
        client.connect(f"{place.root}/mailq")
        lines = client.makefile("rw")
        lines.readline()
        challenge = lines.readline().rstrip("\n")
        for words, answer in (
            (f"AUTH op {digest(challenge, 'secret')}", "+OK"),
            (f"KILL MSG {spool_id}", "+OK; KILLed something."),
            ("KILL MSG 70", "-ERR no such message"),
            ("KILL THREAD good x", "+OK; KILLed something."),
            ("KILL THREAD good x", "-ERR no such thread"),
        ):
            lines.write(f"{words}\n")
            lines.flush()
            assert lines.readline() == f"{answer}\n"
    assert [path.exists() for path in paths] == [False, False, True]
    for number in (70, 71):
        assert f"{number}: removed without a report, 1 recipients\n" in place.log()


def test_a_report_that_fails_is_in_the_log(place: Place) -> None:
    """A failure of a report has no sender to inform: it is dropped, which the log shows."""
    place.write_agent("bad", GOOD.replace("ok3 sent", "error no such user"))
    path = place.put(70, "bad")
    path.write_text(path.read_text().replace("s local", "s error"))
    with place.running():
        until(lambda: "70: a report could not be delivered, and is dropped\n" in place.log())
        until(lambda: not path.exists())


# ---- signals to a scheduler


def test_each_signal_is_a_request() -> None:
    """Several of one kind are one request; their handlers are restored at the end."""
    before = signal.getsignal(signal.SIGUSR1)
    reader = SignalReader()
    try:
        for number in (signal.SIGUSR1, signal.SIGHUP, signal.SIGUSR1, signal.SIGQUIT):
            signal.raise_signal(number)
        assert list(reader.read()) == [
            SignalRequest.REREAD,
            SignalRequest.REOPEN_LOGS,
            SignalRequest.SLOW_STOP,
        ]
        assert list(reader.read()) == []
    finally:
        reader.close()
    assert signal.getsignal(signal.SIGUSR1) is before
