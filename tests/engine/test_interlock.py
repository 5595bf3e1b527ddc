"""The lock's rarer cases, each with real processes, of which the innocent ones tell any signal."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from engine import lockfile
from engine.breaker import free
from engine.locks import Busy, acquire, examine
from engine.model import Verdict
from tests.engine.lockers import (
    INNOCENT,
    PLAIN,
    THRESHOLD,
    is_unharmed,
    later,
    said,
    tell,
    true_claim,
    written,
)
from tests.engine.test_breaker import (
    BECOME_NOBODY,
    IN_NAMESPACE,
    Start,
    freed,
    holding,
    left_alone,
    needs_namespace,
    needs_root,
)
from tests.examples import deep_but

only_without_namespaces = pytest.mark.skipif(
    not needs_namespace.args[0], reason="it is played with more turns where namespaces can be made"
)

FORMS = ("the contract's form", "our form")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the lock file is, or will be."""
    return tmp_path / "queue.lock"


def naming(pid: int, form: str) -> bytes:
    """A lock file that this process might have written just now."""
    if form == "our form":
        return lockfile.compose(true_claim(pid))
    return f"{pid}\n{int(time.time())}\n".encode()


def duel(alone: bool, *arguments: str) -> str:
    """What a game of `tests.engine.duel` ends with; in a PID namespace of its own, or in ours."""
    prefix = IN_NAMESPACE[:-1] if alone else (sys.executable,)
    run = subprocess.run(
        [*prefix, "-m", "tests.engine.duel", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout.strip()


@pytest.mark.parametrize("form", FORMS)
def test_a_lock_that_names_pid_1_is_shown_and_left_alone(
    path: Path, start: Start, form: str
) -> None:
    """A lock file that names PID 1, whose flock somebody has: shown with what PID 1 runs, held
    today, stuck an hour on, not to be had, and nobody is signalled."""
    path.touch()
    keeper = start(INNOCENT, str(path))
    assert said(keeper) == "ready"
    written(path, naming(1, form))

    evidence = examine(str(path), THRESHOLD)
    with pytest.raises(Busy, match=f"PID {keeper.pid}, which has just taken the flock, is at work"):
        acquire(str(path), THRESHOLD)
    left_alone(path, "PID 1 is never signalled")

    command = Path("/proc/1/cmdline").read_bytes().split(b"\0")[0].decode()
    assert (evidence.verdict, evidence.pid) == (Verdict.HELD, 1)
    assert dict(evidence.facts)["holder"].startswith(f"PID 1: {command}")
    assert is_unharmed(keeper)


def test_a_lock_without_flock_that_names_pid_1(path: Path) -> None:
    """In the contract's form it is respected, for that program has no flock, and left alone when
    stuck; in ours a free flock says that PID 1 is not in its way, and it is taken over."""
    written(path, naming(1, FORMS[0]))
    with pytest.raises(Busy, match="PID 1 is at work"):
        acquire(str(path), THRESHOLD)
    left_alone(path, "PID 1 is never signalled")
    told: list[str] = []
    written(path, naming(1, FORMS[1]))
    with freed(path, told) as lock:
        assert lock.taken_over == "PID 1 let go of it"
    assert told == []


@needs_namespace
def test_pid_1_itself_saw_no_signal(path: Path) -> None:
    """In a container, where PID 1 can tell: whatever form of lock names it, its flock held or free,
    or left there by the PID 1 of an earlier run, it is never signalled."""
    assert duel(True, "numbered one", str(path)) == "5 rounds"


@pytest.mark.parametrize("rounds", deep_but(["3"], ["3", "300"]))
def test_of_two_breakers_at_once_one_wins_every_time(path: Path, rounds: str) -> None:
    """Two breakers at once, against holders that end at SIGTERM, ignore it or release their lock
    then: in each round one gets the lock, the other says why not, and neither they nor a bystander
    are ever signalled.

    More rounds: `.venv/bin/python -m tests.engine.duel rivals /tmp/some.lock 1000`
    """
    assert duel(False, "rivals", str(path), rounds) == f"{rounds} rounds"


ANYWHERE = "ends,releases,zombie,replaced,another breaker"
"""What can become of a holder where no number can be given away."""

NUMBERS = "number given to a thread,number and lock given away"


@pytest.mark.deep
@pytest.mark.parametrize(
    "twist",
    [
        pytest.param("number given away", marks=needs_namespace),
        pytest.param(f"{ANYWHERE},{NUMBERS}", marks=needs_namespace),
        pytest.param(ANYWHERE, marks=only_without_namespaces),
    ],
)
def test_whatever_happens_at_any_system_call_of_the_breaker(path: Path, twist: str) -> None:
    """The breaker is stopped before each system call that it makes, and exactly there its holder
    ends, releases its lock, stays a zombie, is followed by another holder, is ended by another
    breaker, or its number is given to an innocent process, the next holder or a thread: one of
    those there has the lock in the end, the others know why not, and none but the first holder is
    signalled.

    Each of these at each call: without a twist's name, as the head of `tests.engine.duel` says.
    """
    assert int(duel("number" in twist, "twists", str(path), twist).split()[0]) > 100


@pytest.mark.parametrize("form", FORMS)
def test_a_zombies_lock_is_taken_over(path: Path, start: Start, form: str) -> None:
    """A holder that was killed and whose parent does not wait for it has let go: its lock is taken
    over in place by who frees it, and nobody is signalled."""
    worker = holding(start, path, PLAIN)
    if form != "our form":
        written(path, naming(worker.pid, form))
    worker.kill()
    os.waitid(os.P_PID, worker.pid, os.WEXITED | os.WNOWAIT)
    inode, told = path.stat().st_ino, list[str]()

    evidence = examine(str(path), THRESHOLD)
    with freed(path, told) as lock:
        assert lock.taken_over == f"PID {worker.pid} is gone"
        assert path.stat().st_ino == inode

    assert evidence.verdict is Verdict.STALE
    assert lockfile.stat_of(worker.pid)[0] == "Z"
    assert told == []


WATCHED = """
import signal, sys
from engine import locks
signal.pthread_sigmask(signal.SIG_SETMASK, signal.valid_signals())
lock = locks.acquire(sys.argv[1], 1200.0)
print("held", flush=True)
sys.stdin.readline()
print(signal.sigpending() or "unharmed", flush=True)
sys.stdin.readline()
"""
"""A worker that tells any signal, and ends without releasing its lock."""


@needs_namespace
def test_a_worker_in_a_container_is_judged_by_its_flock_from_outside(path: Path) -> None:
    """Held by a worker in another PID namespace, a lock is respected, and left alone when stuck;
    once that worker has ended its flock is free, and the lock taken over: nobody is signalled."""
    command = [*IN_NAMESPACE, WATCHED, str(path)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as worker:
        assert said(worker) == "held"
        evidence = examine(str(path), THRESHOLD)

        with pytest.raises(Busy, match="which has taken the flock, is at work"):
            acquire(str(path), THRESHOLD)
        left_alone(path, "another PID namespace")

        assert is_unharmed(worker)
        tell(worker)
        worker.wait()
    told: list[str] = []
    with freed(path, told) as lock:
        assert lock.taken_over == "PID 1 is gone"
    assert dict(evidence.facts)["PID namespace"].startswith("another one")
    assert told == []


INSIDE = """
import os, subprocess, sys
from engine.breaker import Doubt, free
from engine.locks import Busy, acquire, examine
from tests.engine.lockers import *

with open("/proc/sys/kernel/ns_last_pid", "w") as last:
    last.write(str(int(sys.argv[2]) - 1))
innocent = subprocess.Popen([sys.executable, "-c", INNOCENT], stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE, text=True)
assert innocent.pid == int(sys.argv[2]), "the number was not given away"
assert said(innocent) == "ready"
told = []
for clocks in ({}, AN_HOUR_ON):
    print(examine(sys.argv[1], 1200.0, **clocks).verdict, flush=True)
    try:
        free(sys.argv[1], 1200.0, say=told.append, **clocks)
    except (Busy, Doubt) as why:
        print(type(why).__name__, why, flush=True)
sys.stdin.readline()
with free(sys.argv[1], 1200.0, say=told.append) as lock:
    print(lock.taken_over, told, is_unharmed(innocent), flush=True)
innocent.communicate()
"""


@needs_namespace
def test_a_worker_outside_is_judged_by_its_flock_from_a_container(path: Path, start: Start) -> None:
    """From inside it is the same, although there an innocent process has the worker's number."""
    worker = start(WATCHED, str(path))
    assert said(worker) == "held"

    with subprocess.Popen(
        [*IN_NAMESPACE, INSIDE, str(path), str(worker.pid)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as container:
        who, why = f"PID {worker.pid} of another container or machine", "another PID namespace"
        assert said(container) == "held"
        assert said(container) == f"Busy {who} is at work"
        assert said(container) == "stuck"
        assert why in said(container)
        assert is_unharmed(worker)
        worker.kill()
        worker.wait()
        tell(container)
        assert said(container) == f"PID {worker.pid} is gone [] True"


@needs_root
@pytest.mark.skipif(shutil.which("setpriv") is None, reason="no setpriv to give up a right with")
def test_root_without_the_right_to_signal_says_so(start: Start) -> None:
    """Root that lacks CAP_KILL, as in many a container, and another user's stuck worker, proven to
    be the holder: the signal is refused by the kernel, the lock stays, and it is said why."""
    code = (
        "import sys\n"
        "from engine.breaker import Doubt, free\n"
        "from tests.engine.lockers import AN_HOUR_ON\n"
        "try:\n"
        "    free(sys.argv[1], 1200.0, say=print, **AN_HOUR_ON)\n"
        "except Doubt as doubt:\n"
        "    print(doubt)\n"
    )
    with tempfile.TemporaryDirectory() as folder:  # which, unlike pytest's, others may enter
        os.chown(folder, 65534, 65534)
        path = Path(folder, "queue.lock")
        path.touch()
        os.chown(path, 65534, 65534)
        worker = start(f"import fcntl, os, signal\n{BECOME_NOBODY}\n{INNOCENT}", str(path))
        assert said(worker) == "ready"
        written(path, lockfile.compose(true_claim(worker.pid)))
        text = path.read_bytes()

        run = subprocess.run(
            ["setpriv", "--bounding-set=-kill", sys.executable, "-c", code, str(path)],
            capture_output=True,
            text=True,
            check=False,
        )

        who = f"PID {worker.pid}"
        assert run.stdout.startswith(f"SIGTERM to {who}\n{who} may not be signalled by us"), run
        assert "CAP_KILL" in run.stdout
        assert path.read_bytes() == text
        assert is_unharmed(worker)


@pytest.mark.parametrize(("silent", "verdict"), [(60, Verdict.HELD), (1300, Verdict.STUCK)])
def test_no_change_of_the_date_moves_the_age_of_our_lock(
    path: Path, start: Start, silent: int, verdict: Verdict
) -> None:
    """One hour or ten years, ahead or back: a worker of ours has been silent for as long as it was;
    who works is not stuck by it, and who is stuck does not look alive again."""
    worker = holding(start, path, PLAIN)
    up = lockfile.uptime() + silent

    still = examine(str(path), THRESHOLD, time.time, lambda: up)
    for jump in (3600.0, -3600.0, 3.2e8, -3.2e8):
        moved = examine(str(path), THRESHOLD, lambda: time.time() + jump, lambda: up)  # noqa: B023
        assert moved.verdict is still.verdict is verdict
        assert moved.doubt == still.doubt == ""
        assert moved.age == pytest.approx(still.age, abs=0.1)
    assert still.age == pytest.approx(silent, abs=60)
    tell(worker)
    assert said(worker) == "released"


def test_a_lock_of_ours_from_the_future_is_as_fresh_as_can_be(path: Path, start: Start) -> None:
    """A sign of life that lies ahead, of the date and of the time since the machine's start, is one
    of this moment: its holder is at work and left alone; once it is gone the lock is stale."""
    worker = holding(start, path, PLAIN)
    behind = later(-3600)
    evidence = examine(str(path), THRESHOLD, **behind)
    with pytest.raises(Busy, match="is at work"):
        free(str(path), THRESHOLD, say=pytest.fail, **behind)
    worker.send_signal(signal.SIGKILL)
    worker.wait()
    assert (evidence.verdict, evidence.age) == (Verdict.HELD, 0.0)
    with free(str(path), THRESHOLD, say=pytest.fail, **behind) as lock:
        assert lock.taken_over == f"PID {worker.pid} is gone"
