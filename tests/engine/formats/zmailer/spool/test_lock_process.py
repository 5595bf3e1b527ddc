"""The pid file of a scheduler, and signals to the process that it names."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from engine.formats.zmailer.spool import lock_process
from engine.formats.zmailer.spool.lock_process import PidFile, signal_scheduler
from engine.store import Unavailable
from tests.store_contents import naming


class Root:
    """A spool with its open folder."""

    def __init__(self, path: Path) -> None:
        self.path, self.where = path, path / "transport"
        self.where.mkdir()
        self.fd = os.open(path, os.O_RDONLY)
        self.transport = self.where.stat()
        self.pid_file = path / ".pid.scheduler"

    def write_pid(self, pid: int, age: float = 0.0) -> None:
        """A pid file that was written so many seconds ago."""
        self.pid_file.write_text(f"{pid}\n")
        now = self.pid_file.stat().st_mtime
        os.utime(self.pid_file, (now - age, now - age))

    def signal(self, number: signal.Signals = signal.SIGTERM) -> int | None:
        """Signal its scheduler; returns the PID."""
        return signal_scheduler(self.fd, self.transport, number)

    def claim(self, *times: float) -> PidFile:
        """Claim the pid file, by a clock that shows these times."""
        if not times:
            return PidFile.claim(self.fd, self.transport)
        clock = iter(times)
        return PidFile.claim(self.fd, self.transport, lambda: next(clock), lambda seconds: None)


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
    process = subprocess.Popen(words, executable="/bin/sleep", cwd=root.where, **options)
    # Popen returns at exec, a moment before the kernel fills in the new command line.
    while not Path(f"/proc/{process.pid}/cmdline").read_bytes():
        os.sched_yield()
    return process


def test_a_proven_scheduler_is_signalled(root: Root, sleeper: subprocess.Popen[bytes]) -> None:
    """The pid file names it, it is older than the file, and works in transport/."""
    root.write_pid(sleeper.pid)
    assert root.signal() == sleeper.pid
    assert sleeper.wait(20) == -signal.SIGTERM
    assert root.signal() is None


def test_no_unproven_process_is_signalled(root: Root, sleeper: subprocess.Popen[bytes]) -> None:
    """A recycled PID, also of an agent of the same spool, one that works elsewhere, no pid file."""
    with subprocess.Popen(["/bin/sleep", "60"], cwd="/") as elsewhere, ExitStack() as ended:
        ended.callback(elsewhere.kill)
        cases: tuple[Callable[[], object], ...] = (
            lambda: root.write_pid(sleeper.pid, age=60),
            lambda: root.write_pid(elsewhere.pid),
            lambda: root.pid_file.write_text("1 2 3\n"),
            root.pid_file.unlink,
            root.pid_file.mkdir,
        )
        for number, happens in enumerate(cases):
            happens()
            with naming(number):
                assert root.signal(signal.SIGKILL) is None
                assert (sleeper.poll(), elsewhere.poll()) == (None, None)


def test_the_pid_file_is_ours_until_released(root: Root, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has our PID and a lock; it is removed at an orderly end, if it is still ours."""
    monkeypatch.chdir(root.where)
    pid_file = root.claim()
    assert root.pid_file.read_text() == f"{os.getpid()}\n"
    assert lock_process.is_scheduler(os.getpid(), root.fd, root.transport)
    root.write_pid(1)  # not ours, so that the second one does not signal us
    with pytest.raises(Unavailable, match="another scheduler"):
        root.claim(0.0, 10.0, 20.0, 31.0)
    pid_file.release()
    assert not root.pid_file.exists()
    pid_file = root.claim()
    root.pid_file.unlink()
    root.write_pid(1)
    pid_file.release()
    assert root.pid_file.read_text() == "1\n"


def test_a_start_ends_the_scheduler_that_runs(root: Root) -> None:
    """It gets SIGTERM, and the start waits for its end; a stale file is taken over silently."""
    with original(root) as old:
        root.write_pid(old.pid)
        pid_file = root.claim()
        assert old.wait(20) == -signal.SIGTERM
    assert root.pid_file.read_text() == f"{os.getpid()}\n"
    pid_file.release()


def test_a_scheduler_that_does_not_end_keeps_its_spool(root: Root) -> None:
    """The start fails after half a minute, and the pid file stays."""
    script = "import signal, time; signal.signal(15, signal.SIG_IGN); print(1, flush=True)"
    argv = ["scheduler", "-c", f"{script}; time.sleep(60)"]
    where, pipe = root.where, subprocess.PIPE
    with subprocess.Popen(argv, executable=sys.executable, cwd=where, stdout=pipe) as old:
        assert old.stdout is not None
        old.stdout.readline()
        root.write_pid(old.pid)
        with pytest.raises(Unavailable, match=f"PID {old.pid}, does not end"):
            root.claim(0.0, 1.0, 31.0)
        assert root.pid_file.read_text() == f"{old.pid}\n"
        old.kill()


def test_a_program_that_only_works_there_is_not_ended(root: Root) -> None:
    """The pid file may name any process; the start says so instead of running beside it."""
    with subprocess.Popen(["/bin/sleep", "60"], cwd=root.where) as shell:
        root.write_pid(shell.pid)
        with pytest.raises(Unavailable, match=f"PID {shell.pid} works in transport/, but is not"):
            root.claim()
        assert shell.poll() is None
        shell.kill()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_a_scheduler_of_a_third_user_is_not_signalled(root: Root) -> None:
    """It runs as us, or as the owner of the spool."""
    root.path.chmod(0o755)
    with original(root, user=65534) as other:
        root.write_pid(other.pid)
        assert root.signal() is None
        os.chown(root.path, 65534, 65534)
        assert root.signal() == other.pid
