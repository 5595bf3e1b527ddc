"""`queue recover`, and the worker that meets a stuck lock: shown, confirmed, done, recorded."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest

from engine import lockfile, locks, metrics
from engine.gauges import LAST_RUN
from engine.model import State
from tests.command import SECONDS_AHEAD
from tests.engine.lockers import INNOCENT, cli_later, is_unharmed, marked, said, true_claim, written
from tests.tui.queues import Run, add_task, tasks_at

Child: TypeAlias = subprocess.Popen[str]
Start: TypeAlias = Callable[..., Child]
Attempts: TypeAlias = tuple[list[int | None], ...]

SILENT = """
import os, sys, time
from engine import locks
from engine.stores import open_store
root = sys.argv[1]
lock = locks.acquire(root + "/run/queue.lock", 1200.0)
list(open_store(root).take(time.time(), str(os.getpid()), 1))
print("held", flush=True)
sys.stdin.read()
"""
"""A worker that claimed a task and does nothing more: in half an hour it is stuck."""

SILENCE = 1300
"""Seconds, more than the 1200 after which a holder counts as stuck."""
LATER = {SECONDS_AHEAD: str(SILENCE)}

CLAIMED: Attempts = ([0], [0])
GIVEN_BACK: Attempts = ([0, 1], [])
WAITING: Attempts = ([0, 0], [])
"""The attempts of the tasks that are pending, and of those in work."""


@pytest.fixture
def root(root: str) -> Path:
    """A queue with two tasks."""
    for _ in range(2):
        add_task(root, created=time.time() - 60)
    return Path(root)


@pytest.fixture
def start() -> Iterator[Start]:
    """Start a Python program with pipes to it; it is killed when the test is over."""
    children: list[Child] = []

    def starter(code: str, *args: str) -> Child:
        pipe = subprocess.PIPE
        argv = [sys.executable, "-c", code, *args]
        children.append(subprocess.Popen(argv, stdin=pipe, stdout=pipe, text=True))
        return children[-1]

    yield starter
    for child in children:
        child.kill()
        child.communicate()


def silent_worker(start: Start, root: Path) -> Child:
    """A worker with the lock and a claimed task that gives no more heartbeats."""
    worker = start(SILENT, str(root))
    assert said(worker) == "held"
    return worker


def seen(root: Path) -> str:
    """Which lock there is now."""
    return locks.examine(str(root / "run" / "queue.lock"), 1200.0).seen


def attempts(root: Path) -> Attempts:
    """The attempts of each task that is pending, and of each in work."""
    found = [[task.attempts for task in tasks_at(root, word)] for word in ("pending", "work")]
    return tuple(sorted(counts, key=str) for counts in found)


def log_of(root: Path) -> list[str]:
    """The lines of the queue's log, without the times."""
    lines = (root / "log" / "queue.log").read_text().splitlines()
    return [line.partition("] ")[2] for line in lines]


@pytest.fixture
def recover(root: Path, spooldeck: Run) -> Run:
    """Run `queue recover` on that queue, now or `LATER`."""
    here = ("--root", root, "queue", "recover")
    return lambda *words, **more: spooldeck(*here, *words, **more)


def test_a_free_lock_is_left_as_it_is(root: Path, recover: Run) -> None:
    """Nothing to recover is a success, and no file is made."""
    run = recover()

    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout.splitlines() == [
        "the lock is free: no lock file",
        "nothing was left half done",
        "the lock is free",
    ]
    assert list((root / "run").iterdir()) == []


def test_a_dead_workers_task_comes_back(root: Path, recover: Run, start: Start) -> None:
    """After a kill -9 the lock is taken over and the claimed task counts one failed attempt; the
    mark of an alert goes with its lock.
    """
    worker = silent_worker(start, root)
    written(root / "run" / "queue.lock.alerted", seen(root))
    worker.kill()
    worker.wait()

    plan, unchanged = recover("--dry-run"), attempts(root)
    run = recover()

    assert (plan.returncode, unchanged, run.returncode) == (0, CLAIMED, 0)
    assert f"take over the lock file in place: PID {worker.pid} is gone" in plan.stdout
    assert "count a failed attempt of" in plan.stdout
    assert plan.stdout.splitlines()[-1] == "nothing was changed"
    assert "Moving orphaned work task back to pending: " in run.stdout
    assert attempts(root) == GIVEN_BACK
    assert list((root / "run").iterdir()) == []


def test_a_worker_at_work_is_left_alone(root: Path, recover: Run, start: Start) -> None:
    """A held lock is exit 2, with its holder and since when; so is a stuck one that changed hands,
    or that was confirmed neither on a terminal nor by --yes.
    """
    worker = silent_worker(start, root)

    busy = recover("--yes")
    plan = recover("--dry-run", **LATER)
    pipe = recover(**LATER)
    other = [recover("--yes", "--seen", lock, **LATER) for lock in ("1.abc", locks.NO_LOCK)]

    assert busy.returncode == 2
    assert "is at work, last sign of life 20" in busy.stderr
    assert (plan.returncode, pipe.returncode) == (0, 2)
    for out in (plan.stdout, pipe.stdout):
        assert f"held by PID {worker.pid}" in out
        assert f"send SIGTERM to PID {worker.pid}" in out
    assert "--yes" in pipe.stderr
    for run in other:
        assert (run.returncode, "changed hands" in run.stderr) == (2, True)
    assert worker.poll() is None


@pytest.mark.parametrize("kind", ["folder", "symlink"])
def test_what_is_no_lock_file_is_one_line(root: Path, spooldeck: Run, kind: str) -> None:
    """Where something else is in the lock's place, every command that needs the lock says the same
    and changes nothing: exit 2.
    """
    path = root / "run" / "queue.lock"
    path.mkdir() if kind == "folder" else path.symlink_to("nowhere")

    for words in ("process-next", "work --until-idle", "recover --yes", "recover --dry-run"):
        run = spooldeck("--root", root, "queue", *words.split())
        assert (run.returncode, run.stdout) == (2, "")
        assert run.stderr == (
            f"spooldeck: lock unknown: {path}: expected a regular file; "
            f"look at it and remove it: ls -ld {path}\n"
        )

    assert path.is_symlink() or path.is_dir()
    assert attempts(root) == WAITING


def test_a_stuck_worker_is_ended(root: Path, recover: Run, start: Start) -> None:
    """With --yes, and the lock that was seen: the holder is ended, its task back with one attempt
    counted, the lock released, the recovery counted and logged.
    """
    worker = silent_worker(start, root)

    run = recover("--yes", "--seen", seen(root), **LATER)

    assert run.returncode == 0, run.stderr
    assert worker.wait() == -signal.SIGTERM
    assert run.stdout.splitlines()[-6:-2] == [
        f"SIGTERM to PID {worker.pid}",
        f"PID {worker.pid} has ended",
        "the lock is taken over",
        f"Removing stale lock (PID {worker.pid} is gone)",
    ]
    assert run.stdout.splitlines()[-1] == "the lock is free"
    assert attempts(root) == GIVEN_BACK
    assert not (root / "run" / "queue.lock").exists()
    assert (root / "metrics" / "counters" / "lock_recoveries_total").read_text() == "1\n"
    # A recovery is no run: nothing was worked.
    assert metrics.read(str(root / "metrics" / "queue.prom")).get(LAST_RUN) == 0
    log = log_of(root)
    assert log[0].startswith("[ALERT] Queue processor stuck for 13")
    assert log[0].endswith(f"(PID: {worker.pid}) - initiating auto-recovery")
    assert "[INFO] Lock auto-recovery completed" in log


def test_in_doubt_no_process_is_signalled(root: Path, recover: Run, start: Start) -> None:
    """A stuck lock whose holder cannot be proven is exit 2 and why, dry or not; the process that it
    names is unharmed.
    """
    lock = root / "run" / "queue.lock"
    written(lock, "")
    innocent, forger = start(INNOCENT), start(INNOCENT, str(lock))
    assert said(innocent) == said(forger) == "ready"
    written(lock, lockfile.compose(true_claim(innocent.pid)))

    for words in ("--dry-run", "--yes"):
        run = recover(words, **LATER)
        assert run.returncode == 2
        assert f"PID {innocent.pid} does not hold the flock" in run.stderr
    assert is_unharmed(innocent)
    assert is_unharmed(forger)


def test_evidence_that_contradicts_itself_is_a_doubt(
    root: Path, recover: Run, start: Start
) -> None:
    """A heartbeat before the holder's start: both facts are named, and no process is signalled."""
    worker = silent_worker(start, root)
    with (root / "run" / "queue.lock").open("r+b") as lock:
        claim = lockfile.parse(lock.read())
        assert claim is not None
        lock.seek(0)
        lock.write(lockfile.compose(marked(claim, alive_at=int(lockfile.uptime() - SILENCE))))

    for words in ("--dry-run", "--yes"):
        run = recover(words)
        assert run.returncode == 2
        assert re.search(
            rf"PID {worker.pid} started \S+ \S+Z, after its last heartbeat \S+ \S+Z", run.stderr
        )
    assert worker.poll() is None


@pytest.mark.parametrize(
    "typed", ["the PID", "another", pytest.param("nothing", marks=pytest.mark.deep)]
)
def test_on_a_terminal_the_pid_is_typed(root: Path, start: Start, typed: str) -> None:
    """Only who types the PID of the worker has it ended."""
    worker = silent_worker(start, root)
    answers = {"the PID": f"{worker.pid}\n", "another": f"{worker.pid + 1}\n", "nothing": "\x04"}
    pid, terminal = pty.fork()
    if pid == 0:
        argv = [*cli_later(SILENCE), "--root", str(root), "queue", "recover"]
        os.execve(argv[0], argv, {"HOME": "/", "PYTHONPATH": str(Path.cwd()), "LC_ALL": "C.UTF-8"})
    shown = b""
    while b"to end it and free the lock:" not in shown:
        shown += os.read(terminal, 4096)
    assert f"type the PID, {worker.pid},".encode() in shown

    os.write(terminal, answers[typed].encode())
    while True:
        try:
            shown += os.read(terminal, 4096)
        except OSError:
            break
    os.close(terminal)

    _, status = os.waitpid(pid, 0)
    if typed == "the PID":
        assert os.waitstatus_to_exitcode(status) == 0, shown
        assert worker.wait() == -signal.SIGTERM
        assert attempts(root) == GIVEN_BACK
    else:
        assert os.waitstatus_to_exitcode(status) == 2, shown
        assert b"nothing was done" in shown
        assert worker.poll() is None
        assert attempts(root) == CLAIMED


def test_a_task_in_work_is_held_where_asked(root: Path, recover: Run, start: Start) -> None:
    """With --hold a task in work is parked, its attempt counted, and does not run again."""
    worker = silent_worker(start, root)
    (task,) = tasks_at(root, "work")

    planned = recover("--dry-run", "--hold", task.id, **LATER)
    done = recover("--yes", "--hold", task.id, **LATER)

    assert f"hold {task.id}, which nobody works on" in planned.stdout
    assert (done.returncode, worker.wait()) == (0, -signal.SIGTERM)
    assert f"Held: {task.id}, which was in work" in done.stdout
    assert attempts(root) == ([0], [])
    (held,) = tasks_at(root, "held")
    assert (held.id, held.state, held.attempts) == (task.id, State.HELD, 1)


def test_what_cannot_be_given_back_is_named(root: Path, recover: Run) -> None:
    """A torn file in work/, too young to be quarantined, makes the exit code 74; the lock is
    free.
    """
    (root / "queue/work/20261120T090000Z-report-0000000c.task").write_text("TASK_ID=torn")

    run = recover()

    assert run.returncode == 74
    assert "the lock is free" in run.stdout
    assert "work/20261120T090000Z-report-0000000c.task" in run.stderr
    assert "neither given back nor set aside yet" in run.stderr
    assert not (root / "run/queue.lock").exists()


# ---- the worker itself


@pytest.mark.parametrize("words", ["process-next", "work --until-idle"])
def test_a_worker_recovers_a_stuck_lock(
    root: Path, spooldeck: Run, start: Start, words: str
) -> None:
    """The next worker ends the stuck one, gives its task back and works on in the same call."""
    worker = silent_worker(start, root)

    run = spooldeck("--root", root, "queue", *words.split(), **LATER)

    assert run.returncode in (0, 1, 3), run.stderr
    assert worker.wait() == -signal.SIGTERM
    assert f"SIGTERM to PID {worker.pid}" in run.stderr
    assert tasks_at(root, "work") == []
    assert sum("Moving orphaned work task" in line for line in log_of(root)) == 1
    assert (root / "metrics" / "counters" / "lock_recoveries_total").read_text() == "1\n"


def test_a_timer_alerts_once_of_each_lock(root: Path, spooldeck: Run, start: Start) -> None:
    """Of a stuck lock that must be left alone the log has one alert, however often a worker comes
    by; the next lock has another one.
    """
    lock = root / "run" / "queue.lock"
    for times in (3, 2):
        written(lock, "")
        forger = start(INNOCENT, str(lock))
        assert said(forger) == "ready"
        written(lock, lockfile.compose(marked(true_claim(os.getpid()), token=f"{times:016x}")))

        words = ("--root", root, "queue", "process-next")
        runs = [spooldeck(*words, **LATER) for _ in range(times)]

        assert [run.returncode for run in runs] == [2] * times
        assert is_unharmed(forger)

    alerts = [line for line in log_of(root) if line.startswith("[ALERT]")]
    assert len(alerts) == 2
    assert all("left alone: " in line for line in alerts)
    assert lock.with_name("queue.lock.alerted").exists()
    assert attempts(root) == WAITING


@pytest.mark.parametrize("plant", [Path.mkdir, os.mkfifo], ids=["folder", "fifo"])
def test_a_strange_mark_of_an_alert_stops_no_worker(
    root: Path, spooldeck: Run, start: Start, plant: Callable[[Path], None]
) -> None:
    """Any file where alerts are remembered neither holds up a worker nor a recovery."""
    plant(root / "run/queue.lock.alerted")
    innocent = start(INNOCENT)
    assert said(innocent) == "ready"
    written(root / "run/queue.lock", f"{innocent.pid}\n{int(time.time())}\n", age=7200)

    left_alone = spooldeck("--root", root, "queue", "process-next")
    assert is_unharmed(innocent)
    (root / "run/queue.lock").unlink()
    freed = spooldeck("--root", root, "queue", "recover")

    assert (left_alone.returncode, freed.returncode) == (2, 0)
