"""Breaking a stuck lock: its holder ends, and nobody else ever gets a signal."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest

from engine import breaker, lockfile, locks
from engine.breaker import Doubt, free, ladder
from engine.holder import has_ended
from engine.locks import Busy, PidLock, examine
from engine.model import LockEvidence, Verdict
from tests.engine.lockers import (
    AN_HOUR_ON,
    DEAF,
    HOLDER,
    INNOCENT,
    PARENT,
    PLAIN,
    POLITE,
    THRESHOLD,
    Impatient,
    is_unharmed,
    later,
    marked,
    said,
    tell,
    true_claim,
    written,
)
from tests.tables import each

Start: TypeAlias = Callable[..., subprocess.Popen[str]]

BECOME_NOBODY = "os.setgroups([]); os.setgid(65534); os.setuid(65534)"

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the lock file is, or will be."""
    return tmp_path / "queue.lock"


@pytest.fixture
def innocent(start: Start) -> Iterator[subprocess.Popen[str]]:
    """A process that has nothing to do with any lock; it must outlive the test unharmed."""
    child = start(INNOCENT)
    assert said(child) == "ready"
    yield child
    assert is_unharmed(child)


def holding(start: Start, path: Path, manner: str) -> subprocess.Popen[str]:
    """A worker that has the lock."""
    child = start(HOLDER.format(manner=manner), str(path))
    assert manner == PARENT or said(child) == "held"
    return child


def patient(pidfd: int, seconds: float) -> bool:
    """As long as it takes: the machine may be slow."""
    return has_ended(pidfd, 60.0)


def freed(path: Path, told: list[str], wait: breaker.Wait = patient, seen: str = "") -> PidLock:
    """The lock, an hour from now."""
    return free(str(path), THRESHOLD, seen, say=told.append, wait=wait, **AN_HOUR_ON)


def left_alone(path: Path, why: str) -> None:
    """An hour from now, the lock is stuck, and so it stays, for this reason."""
    before = path.read_bytes()
    told: list[str] = []
    evidence = examine(str(path), THRESHOLD, **AN_HOUR_ON)
    with pytest.raises(Doubt, match=why):
        freed(path, told)
    assert evidence.verdict is Verdict.STUCK
    assert ladder(evidence) == ()
    assert (told, path.read_bytes()) == ([], before)


def test_a_stuck_holder_ends_at_sigterm(
    path: Path, start: Start, innocent: subprocess.Popen[str]
) -> None:
    """A stuck worker of ours is told to end; its lock is taken over in place, and said to be."""
    worker = holding(start, path, PLAIN)
    inode = path.stat().st_ino
    evidence = examine(str(path), THRESHOLD, **AN_HOUR_ON)
    told: list[str] = []

    with freed(path, told, seen=evidence.seen) as lock:
        assert lock.taken_over == f"PID {worker.pid} is gone"
        assert path.stat().st_ino == inode
        assert path.read_bytes().startswith(b"%d\n" % os.getpid())

    assert (evidence.verdict, evidence.doubt) == (Verdict.STUCK, "")
    assert evidence.holders == (worker.pid,)
    assert ladder(evidence)[0] == f"send SIGTERM to PID {worker.pid}, and wait 5 s for its end"
    assert told == [f"SIGTERM to PID {worker.pid}", f"PID {worker.pid} has ended"]
    assert worker.wait() == -signal.SIGTERM
    assert not path.exists()


@pytest.mark.parametrize(("manner", "stopped"), [(DEAF, False), (PLAIN, True)])
def test_a_holder_that_does_not_end_at_sigterm_is_killed(
    path: Path, start: Start, manner: str, stopped: bool
) -> None:
    """A worker that ignores SIGTERM, or was stopped (SIGSTOP, Ctrl-Z) and cannot heed it, gets
    SIGKILL after the grace."""
    worker = holding(start, path, manner)
    if stopped:
        worker.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, worker.pid, os.WSTOPPED)
    told: list[str] = []
    freed(path, told, Impatient()).release()
    who = f"PID {worker.pid}"
    assert told == [f"SIGTERM to {who}", f"SIGKILL to {who}", f"{who} has ended"]
    assert worker.wait() == -signal.SIGKILL


def test_a_holder_may_release_its_lock_at_sigterm(path: Path, start: Start) -> None:
    """A worker that ends in good order leaves nothing to take over."""
    worker = holding(start, path, POLITE)
    with freed(path, []) as lock:
        assert lock.taken_over == ""
    assert worker.wait() == 0


def test_who_does_not_end_keeps_its_lock(path: Path, start: Start) -> None:
    """Where not even SIGKILL is seen to help (a dead disk), nothing is taken over."""
    worker = holding(start, path, PLAIN)
    worker.send_signal(signal.SIGSTOP)
    text, told = path.read_bytes(), list[str]()
    with pytest.raises(Doubt, match="does not end, not even by SIGKILL"):
        freed(path, told, lambda pidfd, seconds: False)
    assert path.read_bytes() == text
    assert len(told) == 2


def test_nobody_is_waited_for_in_the_ordinary_case(path: Path) -> None:
    """A lock that nobody holds is simply taken."""
    told: list[str] = []
    freed(path, told).release()
    written(path, "4194304\n0\n", age=60)
    with freed(path, told) as lock:
        assert lock.taken_over == "PID 4194304 is gone"
    assert told == []


def test_a_holder_at_work_is_left_alone(path: Path, start: Start) -> None:
    """Below the threshold nobody is signalled."""
    worker = holding(start, path, PLAIN)
    with pytest.raises(Busy, match="is at work"):
        free(str(path), THRESHOLD, say=pytest.fail, **later(THRESHOLD - 100))
    tell(worker)
    assert said(worker) == "released"


def test_another_lock_than_the_one_seen_is_left_alone(path: Path, start: Start) -> None:
    """Whoever holds the lock now is not the one that was to be ended: a token tells."""
    first = holding(start, path, PLAIN)
    seen = examine(str(path), THRESHOLD).seen
    tell(first)
    assert said(first) == "released"
    second = holding(start, path, PLAIN)

    with pytest.raises(Doubt, match="changed hands"):
        freed(path, [], seen=seen)
    with pytest.raises(Doubt, match="changed hands"):
        freed(path, [], seen=locks.NO_LOCK)

    tell(second)
    assert said(second) == "released"


def test_a_holder_that_ends_as_we_are_about_to_signal_it(path: Path, start: Start) -> None:
    """Between proof and signal a holder ends and its number is free: nobody gets the signal."""
    worker = holding(start, path, PLAIN)

    def end_it(step: str) -> None:
        worker.kill()
        worker.wait()

    lock = free(str(path), THRESHOLD, say=end_it, **AN_HOUR_ON)
    assert lock.taken_over == f"PID {worker.pid} is gone"
    lock.release()


@pytest.mark.parametrize("news", ["renewed", "replaced", "removed", "forged"])
def test_what_changes_after_sigterm_stays_sigkill(
    path: Path, start: Start, innocent: subprocess.Popen[str], news: str
) -> None:
    """Before the second signal all is proven again: a sign of life, another lock, a lock that is
    gone or names another process, and the holder is not killed."""
    worker = holding(start, path, DEAF)
    claim = lockfile.parse(path.read_bytes())
    assert claim is not None
    fresh = {
        "renewed": marked(claim, alive_at=int(lockfile.uptime() + 3600)),
        "forged": true_claim(innocent.pid),
    }

    def meanwhile(pidfd: int, seconds: float) -> bool:
        if news in fresh:
            with path.open("r+b") as file:
                file.write(lockfile.compose(fresh[news]))
        else:
            path.unlink()
        if news == "replaced":
            written(path, f"{innocent.pid}\n{int(time.time()) + 3600}\n", age=-3600)
        return False

    told: list[str] = []
    if news == "removed":
        freed(path, told, meanwhile).release()
    else:
        with pytest.raises((Busy, Doubt)):
            freed(path, told, meanwhile)

    assert told == [f"SIGTERM to PID {worker.pid}"]
    tell(worker)
    assert said(worker) == "released"


def test_what_a_holder_leaves_behind_ends_too(
    path: Path, start: Start, innocent: subprocess.Popen[str]
) -> None:
    """A handler that outlives its worker still holds the flock: it is ended as its worker was,
    once, and the lock is had."""
    worker = holding(start, path, PARENT)
    child = int(said(worker))
    assert said(worker) == "held"
    told: list[str] = []
    freed(path, told).release()
    assert told == [
        *(f"SIGTERM to PID {worker.pid}", f"PID {worker.pid} has ended"),
        *(f"SIGTERM to PID {child}", f"PID {child} has ended"),
    ]


def test_only_who_has_the_flock_is_the_holders(path: Path, start: Start) -> None:
    """Others of the dead worker's process group, who have done nothing, are not signalled."""
    worker = holding(start, path, PARENT)
    child = int(said(worker))
    assert said(worker) == "held"
    neighbour = start(INNOCENT)
    assert said(neighbour) == "ready"
    assert os.getpgid(neighbour.pid) == os.getpgid(worker.pid)
    worker.kill()
    worker.wait()
    evidence = examine(str(path), THRESHOLD, **AN_HOUR_ON)

    freed(path, []).release()

    assert evidence.holders == (child,)
    assert "a child of" in evidence.reason
    assert is_unharmed(neighbour)


def test_who_took_the_flock_since_is_not_a_child(path: Path, start: Start) -> None:
    """A process that took the flock itself, as another breaker does the moment the holder is dead,
    is none of the dead holder's: it is left alone although the file names the dead one."""
    worker = holding(start, path, PLAIN)
    worker.kill()
    worker.wait()
    other = start(INNOCENT, str(path))
    assert said(other) == "ready"
    left_alone(path, f"PID {other.pid} has the flock, but not from PID {worker.pid}")
    assert is_unharmed(other)


def test_a_forged_lock_harms_no_process(
    path: Path, start: Start, innocent: subprocess.Popen[str]
) -> None:
    """A file that names an innocent process with all its true numbers proves nothing, whether its
    flock is free or the forger keeps it busy."""
    written(path, lockfile.compose(true_claim(innocent.pid)))
    freed(path, []).release()
    written(path, lockfile.compose(true_claim(innocent.pid)))
    forger = start(INNOCENT, str(path))
    assert said(forger) == "ready"
    left_alone(path, f"PID {innocent.pid} does not hold the flock")
    assert is_unharmed(forger)


def test_we_do_not_end_ourselves(path: Path) -> None:
    """Our own stuck lock is no reason to signal ourselves."""
    with locks.acquire(str(path), THRESHOLD):
        left_alone(path, f"PID {os.getpid()} is this process")


def test_we_do_not_end_who_started_us(path: Path, start: Start) -> None:
    """The process that runs the breaker, or runs what runs it, is not signalled."""
    code = (
        "import subprocess, sys\n"
        "from engine import locks\n"
        "lock = locks.acquire(sys.argv[1], 1200.0)\n"
        "code = '''\n"
        "import sys\n"
        "from engine.breaker import Doubt, free\n"
        "from tests.engine.lockers import AN_HOUR_ON\n"
        "try:\n"
        "    free(sys.argv[1], 1200.0, say=print, **AN_HOUR_ON)\n"
        "except Doubt as doubt:\n"
        "    print(doubt)\n"
        "'''\n"
        "shell = ['sh', '-c', '\"$@\"; :', 'sh', sys.executable, '-c', code, sys.argv[1]]\n"
        "print(subprocess.run(shell, stdout=subprocess.PIPE, text=True).stdout, flush=True)\n"
    )
    grandparent = start(code, str(path))

    assert said(grandparent) == f"PID {grandparent.pid} started this process, directly or not"


@needs_root
def test_who_may_not_signal_says_who_may(start: Start) -> None:
    """Without the rights to end root's worker nothing is tried, and the command is named."""
    code = (
        "import os, sys\n"
        "from engine import holder\n"
        "from engine.locks import examine\n"
        "from tests.engine.lockers import AN_HOUR_ON\n"
        f"{BECOME_NOBODY}\n"
        "evidence = examine(sys.argv[1], 1200.0, **AN_HOUR_ON)\n"
        "print(evidence.verdict, '|', evidence.doubt, '|', dict(evidence.facts)['flock'])\n"
    )
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        worker = holding(start, Path(folder, "queue.lock"), PLAIN)

        other = start(code, f"{folder}/queue.lock")

        verdict, doubt, flock = other.communicate(timeout=60)[0].split(" | ")
        assert verdict == "stuck"
        assert doubt == f"PID {worker.pid} runs as root, and we may not signal it (root may)"
        assert flock == "? held, but by whom is hidden from us\n"
        tell(worker)
        assert said(worker) == "released"


SCRIPT = (
    'trap "echo signalled" HUP INT QUIT USR1 USR2; echo $$ > "$1"; date +%s >> "$1"; echo ready; '
)


def real_program(tmp_path: Path, path: Path, name: str, then: str) -> subprocess.Popen[str]:
    """A bash process that wrote its lock the way the real program does."""
    script = tmp_path / name
    script.write_text(SCRIPT + then)
    child = subprocess.Popen(
        ["bash", str(script), str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert said(child) == "ready"
    return child


@pytest.fixture
def bash(tmp_path: Path, path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts such processes; each is killed when the test is over."""
    children: list[subprocess.Popen[str]] = []

    def starter(name: str, then: str = "read -r; echo unharmed") -> subprocess.Popen[str]:
        children.append(real_program(tmp_path, path, name, then))
        return children[-1]

    yield starter
    for child in children:
        child.kill()
        child.communicate()


Bash: TypeAlias = Callable[..., subprocess.Popen[str]]


def test_the_real_program_is_ended_when_all_fits(path: Path, bash: Bash) -> None:
    """A bash that names nftban, was there before its lock, and wrote it once, is ended."""
    real = bash("nftban_queue_processor.sh")
    evidence = examine(str(path), THRESHOLD, **AN_HOUR_ON)
    with freed(path, []) as lock:
        assert lock.taken_over == f"PID {real.pid} is gone"
    assert (evidence.verdict, evidence.doubt) == (Verdict.STUCK, "")
    assert real.wait() == -signal.SIGTERM


def test_a_foreign_lock_that_does_not_fit_is_left_alone(path: Path, bash: Bash) -> None:
    """A script that does not name the real program may be anything; a lock of the real program is
    written once, and one with a later time on its file is not believed."""
    script = bash("backup.sh")
    left_alone(path, "is no worker by its command line")
    real = bash("nftban_queue_processor.sh")
    os.utime(path, (time.time() - 60, time.time() - 60))
    left_alone(path, "was touched after it was written")
    assert is_unharmed(script)
    assert is_unharmed(real)


def test_a_lock_older_than_its_process_is_stale(path: Path, bash: Bash) -> None:
    """A process of the right name that started after the lock was written got a used number: the
    lock is taken over, and the process not signalled."""
    real = bash("nftban_queue_processor.sh")
    long_ago = int(time.time()) - 3000
    written(path, f"{real.pid}\n{long_ago}\n", age=3000)
    freed(path, []).release()
    assert is_unharmed(real)


@pytest.mark.parametrize("jump", [3.2e8, -3.2e8])
def test_a_clock_that_jumps_harms_no_other_program(path: Path, bash: Bash, jump: float) -> None:
    """Whatever the date says about the real program's lock, it is not signalled."""
    real = bash("nftban_queue_processor.sh")
    with contextlib.suppress(Busy, Doubt):
        free(str(path), THRESHOLD, say=pytest.fail, clock=lambda: time.time() + jump).release()
    assert is_unharmed(real)


@each(
    ("heartbeat", "claimed", "doubted"),
    [
        (3600, None, False),  # nothing is claimed
        (3600, 3600, False),  # with the lock
        (3600, 3570, False),  # before the next heartbeat was due
        (3600, 40, True),  # it was alive 40 s ago
        (3600, 1199, True),
        (3600, 1300, False),  # so long ago that it is stuck by that, too
        (3600, -3600, False),  # in the future: the date was set
    ],
)
def test_a_claim_after_the_last_heartbeat_is_a_doubt(
    heartbeat: float, claimed: float | None, doubted: bool
) -> None:
    """A lock whose queue claimed a task lately, long after the last heartbeat: both are named."""
    now = 1_795_167_728.0
    stuck = LockEvidence(Verdict.STUCK, 4711, now - heartbeat, heartbeat, facts=(("follows", "x"),))
    begun = None if claimed is None else now - claimed

    found = locks.with_claims(stuck, begun, THRESHOLD, now)

    assert found.verdict is Verdict.STUCK
    assert bool(found.doubt) is doubted
    assert (found == stuck) is not doubted
    if claimed == 40:
        assert "claimed 2026-11-20 09:41:28Z, after the last heartbeat 2026-11-20 08:42:08Z" in (
            found.doubt
        )
        assert dict(found.facts)["follows"] == "left alone: nobody is signalled in doubt"


def test_a_holder_that_claimed_a_task_lately_is_left_alone(path: Path, start: Start) -> None:
    """The claim is looked at again before each signal: none is sent."""
    worker = holding(start, path, PLAIN)
    now = AN_HOUR_ON["clock"]
    with pytest.raises(Doubt, match="a task was claimed"):
        free(str(path), THRESHOLD, say=pytest.fail, begun=lambda: now() - 40, **AN_HOUR_ON)
    assert worker.poll() is None


IN_NAMESPACE = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child", sys.executable, "-c")
needs_namespace = pytest.mark.skipif(
    os.geteuid() != 0
    or shutil.which("unshare") is None
    or subprocess.run([*IN_NAMESPACE, ""], capture_output=True, check=False).returncode != 0,
    reason="PID namespaces cannot be made here",
)
