"""The process of a scheduler: pid file, notify socket, signals, log, options, changed settings."""

from __future__ import annotations

import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.formats.zmailer import notify
from engine.formats.zmailer.conf_changes import conf_changes
from engine.formats.zmailer.environment import SchedulerFiles
from engine.formats.zmailer.log_file import SchedulerLog
from engine.formats.zmailer.notify import NotifySocket
from engine.formats.zmailer.options import SchedulerOptions, WrongOption, parse_options
from engine.formats.zmailer.pid_file import PidFile, signal_scheduler
from engine.formats.zmailer.scheduler.clauses import scheduler_niceness
from engine.formats.zmailer.signals import SignalReader, SignalWish
from engine.formats.zmailer.spool import lock_process
from engine.formats.zmailer.spool.scheduler_conf import parse_conf
from engine.store import Unavailable


class Root:
    """A spool with its open folder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        (path / "transport").mkdir()
        self.fd = os.open(path, os.O_RDONLY)
        self.transport = (path / "transport").stat()
        self.pid_file = path / ".pid.scheduler"

    def write_pid(self, pid: int, age: float = 0.0) -> None:
        """A pid file that was written so many seconds ago."""
        self.pid_file.write_text(f"{pid}\n")
        now = self.pid_file.stat().st_mtime
        os.utime(self.pid_file, (now - age, now - age))


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Root]:
    """A spool."""
    root = Root(tmp_path)
    yield root
    os.close(root.fd)


@pytest.fixture
def sleeper(root: Root) -> Iterator[subprocess.Popen[bytes]]:
    """A process that works in transport/, as the scheduler and agents do."""
    with original(root) as process:
        yield process
        process.kill()


def original(root: Root, **options: Any) -> subprocess.Popen[bytes]:
    """A process with the program's name of the original scheduler."""
    words = ["/usr/lib/zmailer/scheduler", "60"]
    where = root.path / "transport"
    return subprocess.Popen(words, executable="/bin/sleep", cwd=where, **options)


def test_a_proven_scheduler_is_signalled(root: Root, sleeper: subprocess.Popen[bytes]) -> None:
    """The pid file names it, it is older than the file, and works in transport/."""
    root.write_pid(sleeper.pid)

    assert signal_scheduler(root.fd, root.transport, signal.SIGTERM) == sleeper.pid
    assert sleeper.wait(20) == -signal.SIGTERM
    assert signal_scheduler(root.fd, root.transport, signal.SIGTERM) is None


@pytest.mark.parametrize("case", ["recycled", "elsewhere", "no file", "no number", "folder"])
def test_a_process_that_is_not_proven_is_never_signalled(
    root: Root, sleeper: subprocess.Popen[bytes], case: str
) -> None:
    """A recycled PID, also of an agent of the same spool, one that works elsewhere, no pid file."""
    elsewhere = subprocess.Popen(["/bin/sleep", "60"], cwd="/")
    root.write_pid(elsewhere.pid if case == "elsewhere" else sleeper.pid)
    if case == "recycled":
        root.write_pid(sleeper.pid, age=60)
    elif case == "no file":
        root.pid_file.unlink()
    elif case == "no number":
        root.pid_file.write_text("1 2 3\n")
    elif case == "folder":
        root.pid_file.unlink()
        root.pid_file.mkdir()
    try:
        assert signal_scheduler(root.fd, root.transport, signal.SIGKILL) is None
        assert (sleeper.poll(), elsewhere.poll()) == (None, None)
    finally:
        elsewhere.kill()
        elsewhere.wait()


def test_the_pid_file_is_ours_until_it_is_released(
    root: Root, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has our PID; another start waits for its lock; it is removed at an orderly end only."""
    monkeypatch.chdir(root.path / "transport")
    ours = PidFile.claim(root.fd, root.transport)
    assert root.pid_file.read_text() == f"{os.getpid()}\n"
    assert lock_process.is_scheduler(os.getpid(), root.fd, root.transport)
    root.write_pid(1)  # not ours, so that the second one does not signal us
    times = iter([0.0, 10.0, 20.0, 31.0])
    with pytest.raises(Unavailable, match="another scheduler"):
        PidFile.claim(root.fd, root.transport, lambda: next(times), lambda seconds: None)
    ours.release()
    assert not root.pid_file.exists()


def test_a_pid_file_of_another_start_is_not_removed(root: Root) -> None:
    """A file that was put there instead of ours stays."""
    ours = PidFile.claim(root.fd, root.transport)
    root.pid_file.unlink()
    root.write_pid(1)
    ours.release()

    assert root.pid_file.read_text() == "1\n"


def test_a_start_ends_the_scheduler_that_runs(root: Root) -> None:
    """It gets SIGTERM, and the start waits for its end; a stale file is taken over silently."""
    with original(root) as old:
        root.write_pid(old.pid)
        ours = PidFile.claim(root.fd, root.transport)
        assert old.wait(20) == -signal.SIGTERM
    assert root.pid_file.read_text() == f"{os.getpid()}\n"
    ours.release()


def test_a_scheduler_that_does_not_end_keeps_its_spool(root: Root) -> None:
    """The start fails after half a minute, and the pid file stays."""
    script = "import signal, time; signal.signal(15, signal.SIG_IGN); print(1, flush=True)"
    argv = ["scheduler", "-c", f"{script}; time.sleep(60)"]
    where, pipe = root.path / "transport", subprocess.PIPE
    with subprocess.Popen(argv, executable=sys.executable, cwd=where, stdout=pipe) as old:
        assert old.stdout is not None
        old.stdout.readline()
        root.write_pid(old.pid)
        times = iter([0.0, 1.0, 31.0])
        with pytest.raises(Unavailable, match=f"PID {old.pid}, does not end"):
            PidFile.claim(root.fd, root.transport, lambda: next(times), lambda seconds: None)
        assert root.pid_file.read_text() == f"{old.pid}\n"
        old.kill()


def test_a_program_that_only_works_there_is_not_ended(root: Root) -> None:
    """The owner of the spool can write any PID into the file: a shell in transport/ is none, and
    the start says so instead of running beside what it may be."""
    with subprocess.Popen(["/bin/sleep", "60"], cwd=root.path / "transport") as shell:
        root.write_pid(shell.pid)
        with pytest.raises(Unavailable, match=f"PID {shell.pid} works in transport/, but is not"):
            PidFile.claim(root.fd, root.transport)
        assert shell.poll() is None
        shell.kill()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_a_scheduler_of_a_third_user_is_not_signalled(root: Root) -> None:
    """It runs as us, or as the owner of the spool."""
    root.path.chmod(0o755)
    with original(root, user=65534) as other:
        root.write_pid(other.pid)
        assert signal_scheduler(root.fd, root.transport, signal.SIGTERM) is None
        os.chown(root.path, 65534, 65534)
        assert signal_scheduler(root.fd, root.transport, signal.SIGTERM) == other.pid


# ---- notify socket


def test_a_notice_names_a_new_file(tmp_path: Path) -> None:
    """A datagram `NEW path`; the socket has mode 0200 and is removed at the end."""
    path = str(tmp_path / ".scheduler.notify")
    assert not notify.send(path, "I/F/3276785")
    there = NotifySocket(path)
    assert stat.S_IMODE(os.lstat(path).st_mode) == 0o200
    assert [notify.send(path, one) for one in ("I/F/3276785", "77", "A/9-x")] == [True] * 3

    assert list(there.receive()) == ["I/F/3276785", "77", "A/9-x"]
    assert list(there.receive()) == []
    there.close()
    assert not os.path.lexists(path)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"NEW ",
        b"new 7",
        b"NEW 7\n",
        b"NEW 0",
        b"NEW ../7",
        b"NEW A/B/C/7",
        b"NEW 7\0",
        b"OLD 7",
    ],
)
def test_any_other_datagram_is_ignored(tmp_path: Path, data: bytes) -> None:
    """Only exactly `NEW` and the path of a control file counts; at most ten are read at a time."""
    path = str(tmp_path / "socket")
    there = NotifySocket(path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.setblocking(False)
        for one in (data, b"x" * 5000, *[b"NEW 8"] * 9):
            try:
                sock.sendto(one, path)
            except BlockingIOError:
                break
    found = list(there.receive())
    assert set(found) == {"8"}
    assert len(found) <= 8
    there.close()


def test_a_socket_of_an_ended_scheduler_is_replaced(tmp_path: Path) -> None:
    """A sender that finds only that is not disturbed; another kind of file stays."""
    path = tmp_path / "socket"
    first = NotifySocket(str(path))
    first._socket.close()
    assert not notify.send(str(path), "7")
    second = NotifySocket(str(path))
    assert notify.send(str(path), "7")
    first.close()
    assert path.exists()
    second.close()
    path.write_text("a file")
    with pytest.raises(FileExistsError, match="expected a socket"):
        NotifySocket(str(path))
    assert path.read_text() == "a file"
    assert [one.name for one in tmp_path.iterdir()] == ["socket"]


@pytest.mark.parametrize(
    ("conf", "environ", "path"),
    [
        ("", {}, "/post/.scheduler.notify"),
        ('PARAMnotifysock="UNIX:/run/x"', {}, "/run/x"),
        ("PARAMnotifysock=/run/y", {"SCHEDULERNOTIFY": "/run/z"}, "/run/y"),
        ("", {"SCHEDULERNOTIFY": "/run/z"}, "/run/z"),
    ],
)
def test_the_configuration_may_name_another_socket(
    conf: str, environ: dict[str, str], path: str
) -> None:
    """PARAMnotifysock names a path, with UNIX: or without, else SCHEDULERNOTIFY of zmailer.conf."""
    found = SchedulerFiles(environ, "", parse_conf(f"{conf}\n", environ))
    assert found.notify_socket("/post") == path


# ---- signals, log


def test_each_signal_is_a_wish() -> None:
    """Several of one kind are one wish; their handlers are restored at the end."""
    before = signal.getsignal(signal.SIGUSR1)
    reader = SignalReader()
    try:
        for number in (signal.SIGUSR1, signal.SIGHUP, signal.SIGUSR1, signal.SIGQUIT):
            signal.raise_signal(number)
        assert list(reader.read()) == [
            SignalWish.REREAD,
            SignalWish.REOPEN_LOGS,
            SignalWish.SLOW_STOP,
        ]
        assert list(reader.read()) == []
    finally:
        reader.close()
    assert signal.getsignal(signal.SIGUSR1) is before


def test_the_log_has_times_and_can_be_rotated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each line has its time; after 25 s, or a signal, the file is opened by its name again."""
    now = [1_795_170_000.0]
    path = tmp_path / "scheduler"
    log = SchedulerLog(str(path), lambda: now[0])
    fd = log.fd
    log.write("a\x1bb")
    path.rename(tmp_path / "old")
    log.write("to the old file")
    now[0] += 25
    log.write("to the new file")
    log.reopen()

    assert log.fd == fd
    log.close()
    stamps = [line.partition(" ")[0] for line in (tmp_path / "old").read_text().splitlines()]
    assert len(stamps) == 2
    assert all(len(one) == 14 and one.isdigit() for one in stamps)
    assert "\x1b" not in (tmp_path / "old").read_text()
    assert path.read_text().endswith(" to the new file\n")


# ---- options, configuration


@pytest.mark.parametrize(
    ("words", "options", "detaches"),
    [
        ("", SchedulerOptions(), True),
        ("-i", SchedulerOptions(is_interactive=True), False),
        ("--exact -i", SchedulerOptions(is_exact=True, is_interactive=True), False),
        ("-vd", SchedulerOptions(is_verbose=True, is_daemon=True), True),
        ("-HH -E 10,15", SchedulerOptions(hash_levels=2, scan_files=10, scan_seconds=15), True),
        ("-E 500", SchedulerOptions(scan_files=500), True),
        (
            "-p smtp/mx -vF",
            SchedulerOptions(only="smtp/mx", is_verbose=True, is_frozen=True),
            False,
        ),
        ("-f/c -l /s -N64", SchedulerOptions(conf="/c", statistics="/s", open_files=64), True),
    ],
)
def test_options_are_those_of_the_man_page(
    words: str, options: SchedulerOptions, detaches: bool
) -> None:
    """Letters may be joined; -i, -v and -V keep the process at its terminal, -d does not."""
    assert parse_options(words.split()) == options
    assert options.detaches is detaches


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["-x"], "option -x not recognized"),
        (["-E", "5"], "-E 5: expected a number from 10"),
        (["-E", "10,1"], "-E 1: expected a number from 2 to 15"),
        (["-M", "3"], "-M 3: expected a number from 1 to 2"),
        (["-p", "smtp"], "-p smtp: expected CHANNEL/HOST"),
        (["-f", ""], "-f: expected a path"),
        (["word"], "word: expected only options"),
        (["-f"], "option -f requires argument"),
    ],
)
def test_an_option_that_cannot_be_used_is_named(words: list[str], why: str) -> None:
    """The message has the option, its value and what was expected."""
    with pytest.raises(WrongOption, match=why):
        parse_options(words)


@pytest.mark.parametrize(
    ("words", "niceness"),
    [("", 3), ("sysnice=5", 8), ("sysnice=-40", -20), ("syspriority=-2", -2), ("nice=9", 3)],
)
def test_the_niceness_of_the_scheduler_itself(words: str, niceness: int) -> None:
    """sysnice is added to its own one, here 3; syspriority replaces it; nice is for agents."""
    conf = parse_conf(f"*/* {words} interval=1m\n", {})
    assert not conf.errors
    assert scheduler_niceness(conf, 3) == niceness


def test_the_changes_of_a_configuration_are_listed() -> None:
    """Added, removed and changed clauses, their order, and PARAM lines."""
    old = parse_conf("*/*\n interval=1m\nsmtp/*\n maxring=5\nuucp/*\n command=sm\n", {})
    new = parse_conf(
        "PARAMmailqsock=TCP:1740\nsmtp/*\n maxring=10 queueonly\n*/*\n interval=60\n"
        "hold/*\n nice=3\n",
        {},
    )

    assert list(conf_changes(old, old)) == []
    assert list(conf_changes(old, new)) == [
        "clause uucp/*: removed",
        "clause smtp/*: maxring: 5 -> 10",
        "clause smtp/*: queueonly: not set -> on",
        "clause hold/*: added",
        "clause hold/*: nice: not set -> 3",
        "order of the clauses: smtp/*, */*, hold/*",
        "PARAM mailqsock: not set -> TCP:1740 (from the next start)",
    ]
