"""Breaking a stuck lock: its holder ends, and no other process ever gets a signal."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import TypeAlias

import pytest

from engine.locks import lock_breaker, lock_file, queue_lock
from engine.locks.lock_breaker import UnsafeToSignal, free_lock, planned_steps
from engine.locks.lock_holder import has_ended
from engine.locks.queue_lock import LockBusy, PidLock, acquire_lock, examine_lock
from engine.model import LockEvidence, Verdict
from tests import lock_processes
from tests.examples import few_of
from tests.lock_processes import AN_HOUR_ON, PLAIN, THRESHOLD, Child, is_unharmed, said, written
from tests.tables import each

Start: TypeAlias = Callable[..., Child]
BECOME_OTHER_USER = "os.setgroups([]); os.setgid(65534); os.setuid(65534)"
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")


@pytest.fixture
def innocent(start: Start) -> Iterator[Child]:
    """A process that has nothing to do with any lock; it must outlive the test unharmed."""
    child = flocking(start)
    yield child
    assert is_unharmed(child)


def flocking(start: Start, *lock: Path) -> Child:
    """A process that reports any signal; it has the flock of a file, if one is named."""
    child = start(lock_processes.INNOCENT, *map(str, lock))
    assert said(child) == "ready"
    return child


def release(worker: Child) -> None:
    """Let an unharmed worker release its lock."""
    lock_processes.tell(worker)
    assert said(worker) == "released"


def holding(start: Start, path: Path, manner: str) -> Child:
    """A worker that has the lock."""
    child = start(lock_processes.HOLDER.format(manner=manner), str(path))
    assert manner == lock_processes.PARENT or said(child) == "held"
    return child


def freed(
    path: Path, wait: lock_breaker.ExitWait | None = None, observed: str = ""
) -> tuple[PidLock, list[str]]:
    """The lock, an hour from now, and what was reported; an end is waited for, however slow."""
    lines: list[str] = []
    patient = wait or (lambda pidfd, seconds: has_ended(pidfd, 60.0))
    settings = {"say": lines.append, "wait": patient, **AN_HOUR_ON}
    return free_lock(str(path), THRESHOLD, observed, **settings), lines  # type: ignore[arg-type]


def taken_over(path: Path) -> str:
    """Why the lock is free, an hour from now; no process is signalled."""
    lock, lines = freed(path)
    lock.release()
    assert lines == []
    return lock.taken_over


def stuck_evidence(path: Path) -> LockEvidence:
    """The evidence that the lock is stuck, an hour from now."""
    evidence = examine_lock(str(path), THRESHOLD, **AN_HOUR_ON)
    assert evidence.verdict is Verdict.STUCK
    return evidence


def left_alone(path: Path, why: str) -> None:
    """An hour from now, the lock is stuck, and so it stays, for this reason."""
    before, evidence = path.read_bytes(), stuck_evidence(path)
    with pytest.raises(UnsafeToSignal, match=why):
        free_lock(str(path), THRESHOLD, say=pytest.fail, **AN_HOUR_ON)
    assert (planned_steps(evidence), path.read_bytes()) == ((), before)


def kill(worker: Child) -> None:
    """End a worker, and wait for it."""
    worker.kill()
    worker.wait()


@pytest.mark.usefixtures("innocent")
def test_a_stuck_holder_ends_at_sigterm(path: Path, start: Start) -> None:
    """A stuck worker of ours is told to end; its lock is taken over in place, and said to be."""
    worker = holding(start, path, PLAIN)
    inode, evidence = path.stat().st_ino, stuck_evidence(path)
    lock, lines = freed(path, observed=evidence.identity)
    with lock:
        assert (lock.taken_over, path.stat().st_ino) == (f"PID {worker.pid} is gone", inode)
        assert path.read_bytes().startswith(b"%d\n" % os.getpid())
    assert (evidence.holders, evidence.signal_refusal) == ((worker.pid,), "")
    assert planned_steps(evidence)[0] == f"SIGTERM PID {worker.pid}, wait 5s"
    assert lines == [f"SIGTERM to PID {worker.pid}", f"PID {worker.pid} has ended"]
    assert worker.wait() == -signal.SIGTERM
    assert not path.exists()


@pytest.mark.parametrize(("manner", "stopped"), [(lock_processes.DEAF, False), (PLAIN, True)])
def test_a_deaf_holder_is_killed(path: Path, start: Start, manner: str, stopped: bool) -> None:
    """A worker that ignores SIGTERM, or was stopped, gets SIGKILL after the grace."""
    worker = holding(start, path, manner)
    if stopped:
        worker.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, worker.pid, os.WSTOPPED)
    lock, lines = freed(path, lock_processes.Impatient())
    lock.release()
    who = f"PID {worker.pid}"
    assert lines == [f"SIGTERM to {who}", f"SIGKILL to {who}", f"{who} has ended"]
    assert worker.wait() == -signal.SIGKILL


def test_a_holder_may_release_its_lock_at_sigterm(path: Path, start: Start) -> None:
    """A worker that ends in good order leaves nothing to take over."""
    worker = holding(start, path, lock_processes.POLITE)
    assert (freed(path)[0].taken_over, worker.wait()) == ("", 0)


def test_a_holder_that_survives_sigkill_keeps_its_lock(path: Path, start: Start) -> None:
    """Where not even SIGKILL is seen to help (a dead disk), nothing is taken over."""
    holding(start, path, PLAIN).send_signal(signal.SIGSTOP)
    text, lines = path.read_bytes(), list[str]()
    how = {"say": lines.append, "wait": lambda pidfd, seconds: False, **AN_HOUR_ON}
    with pytest.raises(UnsafeToSignal, match="does not exit, not even after SIGKILL"):
        free_lock(str(path), THRESHOLD, **how)  # type: ignore[arg-type]
    assert (path.read_bytes(), len(lines)) == (text, 2)


def test_a_free_lock_is_taken_and_a_busy_holder_not_signalled(path: Path, start: Start) -> None:
    """Below the threshold, or after a claim lately, no signal is sent."""
    assert taken_over(path) == ""
    written(path, "4194304\n0\n", age=60)
    assert taken_over(path) == "PID 4194304 is gone"
    worker, now = holding(start, path, PLAIN), AN_HOUR_ON["clock"]
    with pytest.raises(LockBusy, match="is running"):
        free_lock(str(path), THRESHOLD, say=pytest.fail, **lock_processes.later(THRESHOLD - 100))
    with pytest.raises(UnsafeToSignal, match="a task was claimed"):
        free_lock(str(path), THRESHOLD, say=pytest.fail, begun=lambda: now() - 40, **AN_HOUR_ON)
    release(worker)


def test_another_lock_than_the_one_seen_is_left_alone(path: Path, start: Start) -> None:
    """The token of the lock file tells the present holder from the one that was to be ended."""
    first = holding(start, path, PLAIN)
    identity = examine_lock(str(path), THRESHOLD).identity
    release(first)
    second = holding(start, path, PLAIN)
    for token in (identity, queue_lock.NO_LOCK):
        with pytest.raises(UnsafeToSignal, match="changed hands"):
            freed(path, observed=token)
    release(second)


def test_a_holder_that_ends_as_we_are_about_to_signal_it(path: Path, start: Start) -> None:
    """If the holder exits before the signal and its PID is free, no process is signalled."""
    worker = holding(start, path, PLAIN)
    with free_lock(str(path), THRESHOLD, say=lambda step: kill(worker), **AN_HOUR_ON) as lock:
        assert lock.taken_over == f"PID {worker.pid} is gone"


@pytest.mark.parametrize("news", ["renewed", "replaced", "removed", "forged"])
def test_what_changes_stays_sigkill(path: Path, start: Start, innocent: Child, news: str) -> None:
    """Before the second signal all is proven again, and the holder is not killed."""
    worker = holding(start, path, lock_processes.DEAF)
    claim, lines = lock_file.parse_claim(path.read_bytes()), list[str]()
    assert claim is not None
    later_beat = lock_processes.marked(claim, alive_at=int(lock_file.boot_seconds() + 3600))
    fresh = {"renewed": later_beat, "forged": lock_processes.true_claim(innocent.pid)}

    def meanwhile(pidfd: int, seconds: float) -> bool:
        if news in fresh:
            with path.open("r+b") as file:
                file.write(lock_file.format_claim(fresh[news]))
        else:
            path.unlink()
        if news == "replaced":
            written(path, f"{innocent.pid}\n{int(time.time()) + 3600}\n", age=-3600)
        return False

    with nullcontext() if news == "removed" else pytest.raises((LockBusy, UnsafeToSignal)):
        free_lock(str(path), THRESHOLD, say=lines.append, wait=meanwhile, **AN_HOUR_ON).release()
    assert lines == [f"SIGTERM to PID {worker.pid}"]
    release(worker)


@pytest.mark.parametrize("killed", [False, True])
def test_a_child_that_keeps_the_flock_is_ended_and_no_neighbour(
    path: Path, start: Start, innocent: Child, killed: bool
) -> None:
    """A handler that outlives its worker is ended after it; others of its group are not."""
    worker = holding(start, path, lock_processes.PARENT)
    child = int(said(worker))
    assert said(worker) == "held"
    assert os.getpgid(innocent.pid) == os.getpgid(worker.pid)
    if killed:
        kill(worker)
        evidence = stuck_evidence(path)
        assert evidence.holders == (child,)
        assert "a child of" in evidence.reason
    lock, lines = freed(path)
    lock.release()
    ended = [child] if killed else [worker.pid, child]
    steps = [(f"SIGTERM to PID {pid}", f"PID {pid} has ended") for pid in ended]
    assert lines == [step for pair in steps for step in pair]


def test_a_forged_lock_or_later_flock_harms_none(path: Path, start: Start, innocent: Child) -> None:
    """True numbers of a process, or a flock taken after the holder's death, prove nothing."""
    for flocked in (False, True):
        written(path, lock_file.format_claim(lock_processes.true_claim(innocent.pid)))
        if not flocked:
            taken_over(path)
    forger = flocking(start, path)
    left_alone(path, f"PID {innocent.pid} does not hold the flock")
    assert is_unharmed(forger)
    path.unlink()
    worker = holding(start, path, PLAIN)
    kill(worker)
    other = flocking(start, path)
    left_alone(path, f"PID {other.pid} has the flock, but did not inherit it from PID {worker.pid}")
    assert is_unharmed(other)


FREE_LATER = """
import sys
from engine.locks.lock_breaker import UnsafeToSignal, free_lock
from tests.lock_processes import AN_HOUR_ON
try:
    free_lock(sys.argv[1], 1200.0, say=print, **AN_HOUR_ON)
except UnsafeToSignal as doubt:
    print(doubt)
"""
"""Free a lock, an hour from now; print the signals, and the doubt."""

STARTER = """
import subprocess, sys
from engine.locks import queue_lock as locks
lock = locks.acquire_lock(sys.argv[1], 1200.0)
shell = ["sh", "-c", '"$@"; :', "sh", sys.executable, "-c", sys.argv[2], sys.argv[1]]
print(subprocess.run(shell, stdout=subprocess.PIPE, text=True).stdout, flush=True)
"""


def test_we_do_not_end_ourselves_or_who_started_us(path: Path, start: Start) -> None:
    """Our own lock, or that of a process above us, is no reason for a signal."""
    with queue_lock.acquire_lock(str(path), THRESHOLD):
        left_alone(path, f"PID {os.getpid()} is this process")
    above = start(STARTER, str(path), FREE_LATER)
    assert said(above) == f"PID {above.pid} is an ancestor of this process"


@needs_root
def test_a_missing_right_to_signal_names_who_has_it(start: Start) -> None:
    """Without the rights to end root's worker nothing is tried, and the user who may is named."""
    code = f"""
import os, sys
from engine.locks.queue_lock import examine_lock
from tests.lock_processes import AN_HOUR_ON
{BECOME_OTHER_USER}
evidence = examine_lock(sys.argv[1], 1200.0, **AN_HOUR_ON)
print(evidence.verdict, '|', evidence.signal_refusal, '|', dict(evidence.facts)['flock'])
"""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        worker = holding(start, Path(folder, "queue.lock"), PLAIN)
        other = start(code, f"{folder}/queue.lock")
        refusal = f"PID {worker.pid} runs as root: permission denied to signal it (use root)"
        flock = "? held; the process is not visible from here"
        assert other.communicate(timeout=60)[0] == f"stuck | {refusal} | {flock}\n"
        release(worker)


SCRIPT = (
    'trap "echo signalled" HUP INT QUIT USR1 USR2; echo $$ > "$1"; date +%s >> "$1"; echo ready; '
    "read -r; echo unharmed"
)
RUN_BASH = "import os, sys; os.execvp('bash', ['bash', *sys.argv[1:]])"
Bash: TypeAlias = Callable[[str], Child]


@pytest.fixture
def bash(path: Path, start: Start) -> Bash:
    """Starts a bash process that writes its lock as the real program does."""

    def starter(name: str) -> Child:
        path.with_name(name).write_text(SCRIPT)
        child = start(RUN_BASH, str(path.with_name(name)), str(path))
        assert said(child) == "ready"
        return child

    return starter


def test_the_real_program_is_ended_when_all_fits(path: Path, bash: Bash) -> None:
    """A bash that names nftban, was there before its lock, and wrote it once, is ended."""
    real = bash("nftban_queue_processor.sh")
    assert stuck_evidence(path).signal_refusal == ""
    assert freed(path)[0].taken_over == f"PID {real.pid} is gone"
    assert real.wait() == -signal.SIGTERM


def test_a_foreign_lock_that_does_not_fit_is_left_alone(path: Path, bash: Bash) -> None:
    """Of another script, written later, older than its process, or by a date ten years off."""
    script = bash("backup.sh")
    left_alone(path, "does not look like a worker")
    real = bash("nftban_queue_processor.sh")
    os.utime(path, (time.time() - 60, time.time() - 60))
    left_alone(path, "was modified after it was written")
    assert is_unharmed(script) and is_unharmed(real)

    for jump in (3.2e8, -3.2e8):
        real, clock = bash("nftban_queue_processor.sh"), time.time() + jump
        with contextlib.suppress(LockBusy, UnsafeToSignal):
            free_lock(str(path), THRESHOLD, say=pytest.fail, clock=lambda: clock).release()  # noqa: B023
        assert is_unharmed(real)
    real = bash("nftban_queue_processor.sh")
    written(path, f"{real.pid}\n{int(time.time()) - 3000}\n", age=3000)
    freed(path)[0].release()
    assert is_unharmed(real)


@each(("heartbeat", "claimed", "doubted"), [
    (3600, None, False),  # nothing is claimed
    (3600, 3600, False),  # with the lock
    (3600, 3570, False),  # before the next heartbeat was due
    (3600, 40, True),  # it was alive 40s ago
    (3600, 1199, True),
    (3600, 1300, False),  # so long ago that it is stuck by that, too
    (3600, -3600, False),  # in the future: the date was set
])  # fmt: skip
def test_a_later_claim_is_a_doubt(heartbeat: float, claimed: float | None, doubted: bool) -> None:
    """A lock whose queue claimed a task lately, long after the last heartbeat: both are named."""
    now = 1_795_167_728.0
    stuck = LockEvidence(Verdict.STUCK, 4711, now - heartbeat, heartbeat, facts=(("follows", "x"),))
    begun = None if claimed is None else now - claimed
    lock_evidence = queue_lock.check_claims(stuck, begun, THRESHOLD, now)
    assert lock_evidence.verdict is Verdict.STUCK
    assert bool(lock_evidence.signal_refusal) is doubted
    assert (lock_evidence == stuck) is not doubted
    if claimed == 40:
        times = "claimed 2026-11-20 09:41:28Z, after the last heartbeat 2026-11-20 08:42:08Z"
        assert times in lock_evidence.signal_refusal
        assert dict(lock_evidence.facts)["follows"] == "no signal is sent: not safe"


IN_NAMESPACE = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child", sys.executable, "-c")
HAS_NAMESPACES = (
    os.geteuid() == 0
    and shutil.which("unshare") is not None
    and subprocess.run([*IN_NAMESPACE, ""], capture_output=True, check=False).returncode == 0
)
needs_namespace = pytest.mark.skipif(not HAS_NAMESPACES, reason="no PID namespace can be made here")
only_without_namespaces = pytest.mark.skipif(HAS_NAMESPACES, reason="played with more turns here")
FORMS = ("the contract's form", "our form")


def naming(pid: int, form: str) -> bytes:
    """A lock file that this process might have written just now."""
    if form == "our form":
        return lock_file.format_claim(lock_processes.true_claim(pid))
    return f"{pid}\n{int(time.time())}\n".encode()


def duel(alone: bool, *arguments: str) -> str:
    """Play a game of `lock_rivals`, perhaps in a PID namespace of its own; its last line."""
    prefix = IN_NAMESPACE[:-1] if alone else (sys.executable,)
    argv = [*prefix, "-m", "tests.engine.locks.lock_rivals", *arguments]
    run = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout.strip()


@pytest.mark.parametrize("form", FORMS)
def test_a_lock_of_pid_1_is_shown_and_left_alone(path: Path, start: Start, form: str) -> None:
    """With its flock held by another process, it is shown as that of PID 1, and stays."""
    path.touch()
    keeper = flocking(start, path)
    written(path, naming(1, form))
    evidence = examine_lock(str(path), THRESHOLD)
    refusal = f"PID {keeper.pid}, which has just taken the flock, is running"
    with pytest.raises(LockBusy, match=refusal):
        acquire_lock(str(path), THRESHOLD)
    left_alone(path, "PID 1 is never signalled")
    command = Path("/proc/1/cmdline").read_bytes().split(b"\0")[0].decode()
    assert (evidence.verdict, evidence.pid) == (Verdict.HELD, 1)
    assert dict(evidence.facts)["holder"].startswith(f"PID 1: {command}")
    assert is_unharmed(keeper)


@needs_namespace
def test_pid_1_itself_saw_no_signal(path: Path) -> None:
    """In a container any form of lock may name it, flock or not: it is never signalled."""
    assert duel(True, "numbered one", str(path)) == "5 rounds"


@pytest.mark.parametrize("rounds", few_of(["3"], ["3", "300"]))
def test_of_two_breakers_at_once_one_wins_every_time(path: Path, rounds: str) -> None:
    """The other one reports why not, and no bystander is signalled."""
    assert duel(False, "rivals", str(path), rounds) == f"{rounds} rounds"


ANYWHERE = "ends,releases,zombie,replaced,another breaker"
"""Fates of a holder where no number can be given away."""

NUMBERS = "number given to a thread,number and lock given away"


@pytest.mark.deep
@pytest.mark.parametrize("twist", [
    pytest.param("number given away", marks=needs_namespace),
    pytest.param(f"{ANYWHERE},{NUMBERS}", marks=needs_namespace),
    pytest.param(ANYWHERE, marks=only_without_namespaces),
])  # fmt: skip
def test_any_change_at_any_system_call_of_the_breaker(path: Path, twist: str) -> None:
    """Stopped before any system call, while the holder meets one of the fates of `lock_rivals`, a
    breaker signals none but the first holder; in the end one process has the lock."""
    assert int(duel("number" in twist, "twists", str(path), twist).split()[0]) > 100


WATCHED = """
import signal, sys
from engine.locks import queue_lock as locks
signal.pthread_sigmask(signal.SIG_SETMASK, signal.valid_signals())
lock = locks.acquire_lock(sys.argv[1], 1200.0)
print("held", flush=True)
sys.stdin.readline()
print(signal.sigpending() or "unharmed", flush=True)
sys.stdin.readline()
"""
"""A worker that reports any signal, and ends without releasing its lock."""

REUSE = """
import subprocess, sys
from engine.locks.lock_breaker import free_lock
from tests.lock_processes import *

def start(code, *args):
    return subprocess.Popen([sys.executable, "-c", code, *args], stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE, text=True)

worker = start(HOLDER.format(manner=PLAIN), sys.argv[1])
assert said(worker) == "held"
given = []

def give_away(step):
    if not given:
        worker.kill()
        worker.wait()
        with open("/proc/sys/kernel/ns_last_pid", "w") as last:
            last.write(str(worker.pid - 1))
        given.append(start(INNOCENT))
        assert given[0].pid == worker.pid, "the number was not given away"
        assert said(given[0]) == "ready"

free_lock(sys.argv[1], 1200.0, say=give_away, **AN_HOUR_ON).release()
assert given, "no process was about to be signalled"
assert is_unharmed(given[0]), "an innocent process got the signal"
given[0].communicate()
print("done")
"""


def in_container(*arguments: str) -> Child:
    """Run Python in a PID namespace of its own, with pipes to it."""
    pipe = subprocess.PIPE
    return subprocess.Popen([*IN_NAMESPACE, *arguments], stdin=pipe, stdout=pipe, text=True)


@needs_namespace
def test_a_number_given_away_before_the_signal_is_spared(path: Path) -> None:
    """Even at the very last moment: the signal goes to the process that was proven, or to none."""
    with in_container(REUSE, str(path)) as container:
        assert container.communicate()[0] == "done\n"


@needs_namespace
def test_a_worker_in_a_container_is_judged_by_its_flock_from_outside(path: Path) -> None:
    """Its lock is respected, left alone when stuck, and taken over once it has ended."""
    with in_container(WATCHED, str(path)) as worker:
        assert said(worker) == "held"
        evidence = examine_lock(str(path), THRESHOLD)
        with pytest.raises(LockBusy, match="which has taken the flock, is running"):
            acquire_lock(str(path), THRESHOLD)
        left_alone(path, "another PID namespace")
        assert is_unharmed(worker)
        lock_processes.tell(worker)
        worker.wait()
    assert taken_over(path) == "PID 1 is gone"
    assert dict(evidence.facts)["PID namespace"].startswith("another one")


INSIDE = """
import os, subprocess, sys
from engine.locks.lock_breaker import UnsafeToSignal, free_lock
from engine.locks.queue_lock import LockBusy, acquire_lock, examine_lock
from tests.lock_processes import *

with open("/proc/sys/kernel/ns_last_pid", "w") as last:
    last.write(str(int(sys.argv[2]) - 1))
innocent = subprocess.Popen([sys.executable, "-c", INNOCENT], stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE, text=True)
assert innocent.pid == int(sys.argv[2]), "the number was not given away"
assert said(innocent) == "ready"
told = []
for clocks in ({}, AN_HOUR_ON):
    print(examine_lock(sys.argv[1], 1200.0, **clocks).verdict, flush=True)
    try:
        free_lock(sys.argv[1], 1200.0, say=told.append, **clocks)
    except (LockBusy, UnsafeToSignal) as why:
        print(type(why).__name__, why, flush=True)
sys.stdin.readline()
with free_lock(sys.argv[1], 1200.0, say=told.append) as lock:
    print(lock.taken_over, told, is_unharmed(innocent), flush=True)
innocent.communicate()
"""


@needs_namespace
def test_a_worker_outside_is_judged_by_its_flock_from_a_container(path: Path, start: Start) -> None:
    """From inside it is the same, although there an innocent process has the worker's number."""
    worker = start(WATCHED, str(path))
    assert said(worker) == "held"
    with in_container(INSIDE, str(path), str(worker.pid)) as container:
        assert said(container) == "held"
        busy = f"LockBusy PID {worker.pid} of another container or machine is running"
        assert said(container) == busy
        assert said(container) == "stuck"
        assert "another PID namespace" in said(container)
        assert is_unharmed(worker)
        kill(worker)
        lock_processes.tell(container)
        assert said(container) == f"PID {worker.pid} is gone [] True"


@needs_root
@pytest.mark.skipif(shutil.which("setpriv") is None, reason="no setpriv to give up a right with")
def test_root_without_the_right_to_signal_says_so(start: Start) -> None:
    """Without CAP_KILL the kernel refuses; the lock stays, and the reason is reported."""
    with tempfile.TemporaryDirectory() as folder:  # which, unlike pytest's, others may enter
        path = Path(folder, "queue.lock")
        path.touch()
        for owned in (folder, path):
            os.chown(owned, 65534, 65534)
        code = f"import fcntl, os, signal\n{BECOME_OTHER_USER}\n{lock_processes.INNOCENT}"
        worker = start(code, str(path))
        assert said(worker) == "ready"
        written(path, lock_file.format_claim(lock_processes.true_claim(worker.pid)))
        text, who = path.read_bytes(), f"PID {worker.pid}"
        argv = ["setpriv", "--bounding-set=-kill", sys.executable, "-c", FREE_LATER, str(path)]
        out = subprocess.run(argv, capture_output=True, text=True, check=False).stdout
        assert out.startswith(f"SIGTERM to {who}\npermission denied to signal {who} as uid"), out
        assert "CAP_KILL" in out
        assert path.read_bytes() == text
        assert is_unharmed(worker)


@pytest.mark.parametrize(("silent", "verdict"), [(60, Verdict.HELD), (1300, Verdict.STUCK)])
def test_no_new_date_moves_the_age(path: Path, start: Start, silent: int, verdict: Verdict) -> None:
    """If the date jumps, a working holder is not stuck by it, nor a stuck one alive."""
    worker, up = holding(start, path, PLAIN), lock_file.boot_seconds() + silent
    still = examine_lock(str(path), THRESHOLD, time.time, lambda: up)
    for jump in (3600.0, -3600.0, 3.2e8, -3.2e8):
        moved = examine_lock(str(path), THRESHOLD, lambda: time.time() + jump, lambda: up)  # noqa: B023
        assert moved.verdict is still.verdict is verdict
        assert moved.signal_refusal == still.signal_refusal == ""
        assert moved.age == pytest.approx(still.age, abs=0.1)
    assert still.age == pytest.approx(silent, abs=60)
    release(worker)
