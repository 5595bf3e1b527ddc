"""`queue recover`, and the worker that meets a stuck lock: said, asked, done, put on record."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TypeAlias

import pytest

from engine import lockfile, locks, metrics, verbs
from engine.gauges import LAST_RUN
from engine.model import State, Task
from engine.stores import open_store
from engine.stores.nftban import NftbanStore
from tests import command
from tests.engine.lockers import (
    INNOCENT,
    cli_later,
    is_unharmed,
    marked,
    said,
    true_claim,
    written,
)

Child: TypeAlias = subprocess.Popen[str]
Run: TypeAlias = Callable[..., "subprocess.CompletedProcess[str]"]

SILENT = """
import os, signal, sys, time
from engine import locks
from engine.stores import open_store
root = sys.argv[1]
lock = locks.acquire(root + "/run/queue.lock", 1200.0)
list(open_store(root).take(time.time(), str(os.getpid()), 1))
{manner}
print("held", flush=True)
sys.stdin.read()
"""
"""A worker that claimed a task and does nothing more: `SILENCE` seconds from now it is stuck."""

SILENCE = 1300.0
"""Seconds, more than the 1200 after which a holder counts as stuck."""

DEAF = "signal.signal(signal.SIGTERM, signal.SIG_IGN)"


@pytest.fixture
def spooldeck(tmp_path: Path) -> Run:
    """Runs the command with no settings from outside, and no terminal."""
    kept = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "LC_ALL": "C.UTF-8", "TZ": "UTC"}

    def run(*words: str, later: float = 0.0) -> subprocess.CompletedProcess[str]:
        later_run = partial(subprocess.run, [*cli_later(later), *words])
        return (later_run if later else partial(command.run, words))(
            capture_output=True,
            text=True,
            env=kept,
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            check=False,
        )

    return run


@pytest.fixture
def root(tmp_path: Path, spooldeck: Run) -> Path:
    """A queue with two tasks."""
    root = tmp_path / "data"
    assert spooldeck("init", str(root)).returncode == 0
    store = open_store(str(root))
    for token in ("0000000a", "0000000b"):
        store.swap(None, verbs.enqueue("report", time.time() - 60, token))
    store.close()
    return root


@pytest.fixture
def start() -> Iterator[Callable[..., Child]]:
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


def silent_worker(start: Callable[..., Child], root: Path, manner: str = "") -> Child:
    """A worker with the lock and a claimed task that gives no more heartbeats."""
    worker = start(SILENT.format(manner=manner), str(root))
    assert said(worker) == "held"
    return worker


def seen(root: Path) -> str:
    """Which lock there is now."""
    return locks.examine(str(root / "run" / "queue.lock"), 1200.0).seen


def attempts(root: Path) -> dict[str, list[int | None]]:
    """The attempts of each task, by the word for its state."""
    store = open_store(str(root))
    assert isinstance(store, NftbanStore)
    found: dict[str, list[int | None]] = {"pending": [], "work": []}
    for task in store.look({"pending", "work"}):
        if isinstance(task, Task):
            found[store.states[task.state]].append(task.attempts)
    store.close()
    return {word: sorted(counts, key=str) for word, counts in found.items()}


def log_of(root: Path) -> list[str]:
    """The queue's log, line by line, without the times."""
    log = root / "log" / "queue.log"
    return (
        [line.partition("] ")[2] for line in log.read_text().splitlines()] if log.exists() else []
    )


CLAIMED = {"pending": [0], "work": [0]}
GIVEN_BACK = {"pending": [0, 1], "work": []}


def test_nothing_is_wrong(root: Path, spooldeck: Run) -> None:
    """A queue without a lock is left as it is, and that is a success."""
    run = spooldeck("--root", str(root), "queue", "recover")

    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout.splitlines() == [
        "the lock is free: no lock file",
        "nothing was left half done",
        "the lock is free",
    ]
    assert list((root / "run").iterdir()) == []


def test_a_dead_workers_task_comes_back(
    root: Path, spooldeck: Run, start: Callable[..., Child]
) -> None:
    """After a kill -9 the lock is taken over and the task in hand counts one failed attempt."""
    worker = silent_worker(start, root)
    worker.kill()
    worker.wait()

    first = spooldeck("--root", str(root), "queue", "recover", "--dry-run")
    assert attempts(root) == CLAIMED
    run = spooldeck("--root", str(root), "queue", "recover")

    assert (first.returncode, run.returncode) == (0, 0)
    assert f"take over the lock file in place: PID {worker.pid} is gone" in first.stdout
    assert "count a failed attempt of" in first.stdout
    assert first.stdout.splitlines()[-1] == "nothing was changed"
    assert "Moving orphaned work task back to pending: " in run.stdout
    assert attempts(root) == GIVEN_BACK
    assert not (root / "run" / "queue.lock").exists()


def test_a_worker_at_work_is_left_alone(
    root: Path, spooldeck: Run, start: Callable[..., Child]
) -> None:
    """A lock that is held is nobody's to recover: exit 2, with who has it and since when."""
    worker = silent_worker(start, root)

    run = spooldeck("--root", str(root), "queue", "recover", "--yes")

    assert run.returncode == 2
    assert f"lock held: PID {worker.pid} is at work, last sign of life 20" in run.stderr
    assert worker.poll() is None
    assert attempts(root) == CLAIMED


@pytest.mark.parametrize("kind", ["folder", "symlink"])
@pytest.mark.parametrize(
    "words",
    [("process-next",), ("work", "--until-idle"), ("recover", "--yes"), ("recover", "--dry-run")],
)
def test_what_is_no_lock_file_is_said_in_one_line(
    root: Path, spooldeck: Run, kind: str, words: tuple[str, ...]
) -> None:
    """Where something else is in the lock's place, every command says the same and changes
    nothing: exit 2.
    """
    path = root / "run" / "queue.lock"
    path.parent.mkdir(exist_ok=True)
    if kind == "folder":
        path.mkdir()
    else:
        path.symlink_to("nowhere")

    run = spooldeck("--root", str(root), "queue", *words)

    assert run.returncode == 2
    assert run.stdout == ""
    assert run.stderr == (
        f"spooldeck: lock unknown: {path}: expected a regular file; "
        f"look at it and remove it: ls -ld {path}\n"
    )
    assert path.is_symlink() or path.is_dir()
    assert attempts(root)["pending"] == [0, 0]


def test_without_a_terminal_it_wants_to_be_told(
    root: Path, spooldeck: Run, start: Callable[..., Child]
) -> None:
    """Nobody is ended because of a pipe: without --yes and without a terminal nothing is done."""
    worker = silent_worker(start, root)

    plan = spooldeck("--root", str(root), "queue", "recover", "--dry-run", later=SILENCE)
    run = spooldeck("--root", str(root), "queue", "recover", later=SILENCE)

    assert (plan.returncode, run.returncode) == (0, 2)
    for out in (plan.stdout, run.stdout):
        assert f"held by PID {worker.pid}" in out
        assert f"send SIGTERM to PID {worker.pid}" in out
    assert "--yes" in run.stderr
    assert worker.poll() is None


def test_a_stuck_worker_is_ended(root: Path, spooldeck: Run, start: Callable[..., Child]) -> None:
    """With --yes, and the lock that was seen, the whole of it: the holder ended, its task back
    with one attempt counted, the lock released, the recovery counted and on record.
    """
    worker = silent_worker(start, root)

    words = ("queue", "recover", "--yes", "--seen", seen(root))
    run = spooldeck("--root", str(root), *words, later=SILENCE)

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


def test_another_lock_than_the_one_seen(
    root: Path, spooldeck: Run, start: Callable[..., Child]
) -> None:
    """What was seen is what may be broken: a lock that changed hands is left alone."""
    worker = silent_worker(start, root)

    run = spooldeck("--root", str(root), "queue", "recover", "--yes", "--seen", "1.abc")
    free = spooldeck("--root", str(root), "queue", "recover", "--yes", "--seen", locks.NO_LOCK)

    assert (run.returncode, free.returncode) == (2, 2)
    assert "changed hands" in run.stderr
    assert "changed hands" in free.stderr
    assert worker.poll() is None


def test_in_doubt_nobody_is_signalled(
    root: Path, spooldeck: Run, start: Callable[..., Child]
) -> None:
    """A stuck lock whose holder cannot be proven: exit 2 and why, dry or not; and the innocent
    process that it names is unharmed.
    """
    lock = root / "run" / "queue.lock"
    written(lock, "")
    innocent = start(INNOCENT)
    forger = start(INNOCENT, str(lock))
    assert said(innocent) == said(forger) == "ready"
    written(lock, lockfile.compose(true_claim(innocent.pid)))

    plan = spooldeck("--root", str(root), "queue", "recover", "--dry-run", later=SILENCE)
    run = spooldeck("--root", str(root), "queue", "recover", "--yes", later=SILENCE)

    for one in (plan, run):
        assert one.returncode == 2
        assert f"PID {innocent.pid} does not hold the flock" in one.stderr
    assert is_unharmed(innocent)
    assert is_unharmed(forger)


def test_evidence_that_contradicts_itself_is_a_doubt(
    root: Path, spooldeck: Run, start: Callable[..., Child]
) -> None:
    """A heartbeat before the holder's start: both facts are named, and no process is signalled."""
    worker = silent_worker(start, root)
    with (root / "run" / "queue.lock").open("r+b") as lock:
        claim = lockfile.parse(lock.read())
        assert claim is not None
        lock.seek(0)
        lock.write(lockfile.compose(marked(claim, alive_at=int(lockfile.uptime() - SILENCE))))

    plan = spooldeck("--root", str(root), "queue", "recover", "--dry-run")
    run = spooldeck("--root", str(root), "queue", "recover", "--yes")

    for one in (plan, run):
        assert one.returncode == 2
        assert re.search(
            rf"PID {worker.pid} started \S+ \S+Z, after its last heartbeat \S+ \S+Z", one.stderr
        )
    assert worker.poll() is None


@pytest.mark.parametrize("typed", ["the PID", "another", "nothing"])
def test_on_a_terminal_the_pid_is_typed(
    root: Path, start: Callable[..., Child], typed: str
) -> None:
    """Only who types the PID of whom it will end has it ended."""
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


# ---- the worker itself


@pytest.mark.parametrize("words", [["process-next"], ["work", "--until-idle"]], ids=lambda w: w[0])
def test_a_worker_frees_itself_of_a_stuck_one(
    root: Path, spooldeck: Run, start: Callable[..., Child], words: list[str]
) -> None:
    """The contract's recovery: the next worker ends the stuck one, gives its task back and goes
    on with its own work in the same call.
    """
    worker = silent_worker(start, root)

    run = spooldeck("--root", str(root), "queue", *words, later=SILENCE)

    assert run.returncode in (0, 1, 3), run.stderr
    assert worker.wait() == -signal.SIGTERM
    assert f"SIGTERM to PID {worker.pid}" in run.stderr
    store = open_store(str(root))
    assert not [t for t in store.look({"work"}) if isinstance(t, Task) and t.state is State.ACTIVE]
    store.close()
    assert sum("Moving orphaned work task" in line for line in log_of(root)) == 1
    assert (root / "metrics" / "counters" / "lock_recoveries_total").read_text() == "1\n"


def test_a_timer_alerts_once(root: Path, spooldeck: Run, start: Callable[..., Child]) -> None:
    """Of a stuck lock that must be left alone the log has one alert, however often a worker
    comes by; the next lock is news again.
    """
    lock = root / "run" / "queue.lock"
    for times in (3, 2):
        written(lock, "")
        forger = start(INNOCENT, str(lock))
        assert said(forger) == "ready"
        claim = true_claim(os.getpid())
        written(lock, lockfile.compose(marked(claim, token=f"{times:016x}")))

        words = ("--root", str(root), "queue", "process-next")
        codes = [spooldeck(*words, later=SILENCE).returncode for _ in range(times)]

        assert codes == [2] * times
        assert is_unharmed(forger)

    alerts = [line for line in log_of(root) if line.startswith("[ALERT]")]
    assert len(alerts) == 2
    assert all("left alone: " in line for line in alerts)
    assert lock.with_name("queue.lock.alerted").exists()
    assert attempts(root) == {"pending": [0, 0], "work": []}


def test_the_mark_of_an_alert_goes_with_its_lock(
    root: Path, spooldeck: Run, start: Callable[..., Child]
) -> None:
    """Once the lock is free again, nothing is left beside it."""
    worker = silent_worker(start, root, DEAF)
    written(root / "run" / "queue.lock.alerted", seen(root))
    worker.kill()
    worker.wait()

    assert spooldeck("--root", str(root), "queue", "recover").returncode == 0

    assert list((root / "run").iterdir()) == []


def test_what_cannot_be_given_back_is_said(root: Path, spooldeck: Run) -> None:
    """A file in work/ that is no task, and too young to be set aside, is named; the exit code says
    that not all is well, and the lock is free.
    """
    (root / "queue/work/20261120T090000Z-report-0000000c.task").write_text("TASK_ID=torn")

    run = spooldeck("--root", str(root), "queue", "recover")

    assert run.returncode == 74
    assert "the lock is free" in run.stdout
    assert "work/20261120T090000Z-report-0000000c.task" in run.stderr
    assert "neither given back nor set aside yet" in run.stderr
    assert not (root / "run/queue.lock").exists()


@pytest.mark.parametrize("plant", ["folder", "fifo"])
def test_a_strange_mark_of_an_alert_stops_nobody(
    root: Path, spooldeck: Run, start: Callable[..., Child], plant: str
) -> None:
    """Whatever lies where alerts are remembered, a stuck lock that is left alone is left at once,
    and one that is free is taken.
    """
    mark = root / "run/queue.lock.alerted"
    if plant == "folder":
        mark.mkdir()
    else:
        os.mkfifo(mark)
    innocent = start(INNOCENT)
    assert said(innocent) == "ready"
    written(root / "run/queue.lock", f"{innocent.pid}\n{int(time.time())}\n", age=7200)

    left_alone = spooldeck("--root", str(root), "queue", "process-next")
    assert is_unharmed(innocent)
    (root / "run/queue.lock").unlink()
    freed = spooldeck("--root", str(root), "queue", "recover")

    assert (left_alone.returncode, freed.returncode) == (2, 0)


def test_what_was_accepted_is_held(root: Path, start: Callable[..., Child], spooldeck: Run) -> None:
    """With --hold a task in work is parked, its attempt counted, and does not run again."""
    worker = silent_worker(start, root)
    (id,) = (path.stem for path in (root / "queue" / "work").glob("*.task"))

    recover = ("--root", str(root), "queue", "recover", "--hold", id)
    planned = spooldeck(*recover, "--dry-run", later=SILENCE)
    done = spooldeck(*recover, "--yes", later=SILENCE)

    assert f"hold {id}, which nobody works on" in planned.stdout
    assert (done.returncode, worker.wait()) == (0, -signal.SIGTERM)
    assert f"Held: {id}, which was in work" in done.stdout
    assert attempts(root) == {"pending": [0], "work": []}
    store = open_store(str(root))
    found = {task.id: task for task in store.look() if isinstance(task, Task)}
    store.close()
    assert (found[id].state, found[id].attempts) == (State.HELD, 1)
