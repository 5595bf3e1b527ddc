"""`queue recover`, and workers that meet a stuck lock."""

import os
import pty
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import TypeAlias

import pytest

from engine.locks import lock_file, queue_lock
from engine.model import State
from engine.monitor import prometheus
from engine.monitor.metrics_check import LAST_RUN
from engine.operations import controls
from tests.command import SECONDS_AHEAD
from tests.lock_processes import INNOCENT, cli_later, is_unharmed, marked, true_claim, written
from tests.nftban_queues import Run, add_task, journal_at, tasks_at
from tests.rival_processes import running
from tui.operations.operation_lines import describe_operation

Child: TypeAlias = subprocess.Popen[str]
Start: TypeAlias = Callable[..., Child]
Attempts: TypeAlias = tuple[list[int | None], ...]

SILENT = """
import os, sys, time
from engine.locks import queue_lock as locks
from tests.open_store import open_store
root = sys.argv[1]
lock = locks.acquire_lock(root + "/run/queue.lock", 1200.0)
list(open_store(root).take(time.time(), str(os.getpid()), 1))
print("ready", flush=True)
sys.stdin.read()
"""
"""A worker that claimed a task and sends no more heartbeats: in half an hour it is stuck."""

SILENCE = 1300
"""Seconds, more than the 1200 after which a holder counts as stuck."""
LATER = {SECONDS_AHEAD: str(SILENCE)}

CLAIMED: Attempts = ([0], [0])
GIVEN_BACK: Attempts = ([0, 1], [])
WAITING: Attempts = ([0, 0], [])
"""The attempts of the pending tasks, and of those in work."""


@pytest.fixture
def root(root: str) -> Path:
    """A queue with two tasks."""
    for _ in range(2):
        add_task(root, created=time.time() - 60)
    return Path(root)


@pytest.fixture
def lock(root: Path) -> Path:
    """The lock file of the queue."""
    return root / "run" / "queue.lock"


@pytest.fixture
def start() -> Iterator[Start]:
    """Start a Python program that says that it is ready, and ends with its input at the latest."""
    with ExitStack() as started:
        yield lambda code, *args: started.enter_context(running(code, *args))


@pytest.fixture
def worker(start: Start, root: Path) -> Child:
    """A worker with the lock and a claimed task that sends no more heartbeats."""
    return start(SILENT, str(root))


@pytest.fixture
def recover(root: Path, spooldeck: Run) -> Run:
    """Run `queue recover` on the queue, now or `LATER`."""
    return partial(spooldeck, "--root", root, "queue", "recover")


def attempts(root: Path) -> Attempts:
    """The attempts of each pending task, and of each in work."""
    words = ("pending", "work")
    return tuple(sorted((t.attempts for t in tasks_at(root, word)), key=str) for word in words)


def log_of(root: Path) -> list[str]:
    """The lines of the queue's log, without the times."""
    lines = (root / "log" / "queue.log").read_text().splitlines()
    return [line.partition("] ")[2] for line in lines]


def test_a_free_lock_needs_no_recovery(root: Path, lock: Path, recover: Run) -> None:
    """Nothing to recover is code 0, and no file is made; a torn file in work, too young to be
    quarantined, is named and code 74."""
    run = recover()
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout == (
        "the lock is free: no lock file\nno interrupted moves or claimed tasks\nthe lock is free\n"
    )
    assert [path.name for path in (root / "run").iterdir()] == ["queue.lock.spare"]
    torn = "work/20261120T090000Z-report-0000000c.task"
    (root / "queue" / torn).write_text("TASK_ID=torn")
    run = recover()
    assert (run.returncode, "the lock is free" in run.stdout, lock.exists()) == (74, True, False)
    assert torn in run.stderr and "not recovered and not quarantined" in run.stderr


def test_a_killed_workers_task_returns(root: Path, lock: Path, recover: Run, worker: Child) -> None:
    """The lock is taken over, the task counts one failed attempt, and the alert's mark goes."""
    identity = queue_lock.examine_lock(str(lock), 1200.0).identity
    written(lock.with_name("queue.lock.alerted"), identity)
    worker.kill()
    worker.wait()
    plan, unchanged, run = recover("--dry-run"), attempts(root), recover()
    assert (plan.returncode, unchanged, run.returncode) == (0, CLAIMED, 0)
    assert f"take over the lock, release it: PID {worker.pid} is gone" in plan.stdout
    assert "count a failed attempt of" in plan.stdout
    assert plan.stdout.splitlines()[-1] == "nothing was changed"
    assert "Moving orphaned work task back to pending: " in run.stdout
    assert attempts(root) == GIVEN_BACK
    assert [path.name for path in (root / "run").iterdir()] == ["queue.lock.spare"]


def test_a_held_lock_is_code_2(recover: Run, worker: Child) -> None:
    """Its holder and heartbeat are named; so it is for a changed or an unconfirmed lock."""
    busy, plan, pipe = recover("--yes"), recover("--dry-run", **LATER), recover(**LATER)
    assert busy.returncode == 2
    assert "is running, last heartbeat 20" in busy.stderr
    assert (plan.returncode, pipe.returncode) == (0, 2)
    for out in (plan.stdout, pipe.stdout):
        assert f"held by PID {worker.pid}" in out and f"SIGTERM PID {worker.pid}" in out
    assert "--yes" in pipe.stderr
    for identity in ("1.abc", queue_lock.NO_LOCK):
        run = recover("--yes", "--seen", identity, **LATER)
        assert (run.returncode, "another process took the lock" in run.stderr) == (2, True)
    assert worker.poll() is None


@pytest.mark.parametrize("kind", ["folder", "symlink"])
def test_a_lock_that_is_no_regular_file_is_code_2(
    root: Path, lock: Path, spooldeck: Run, kind: str
) -> None:
    """Every command that needs the lock prints the same line and changes nothing."""
    lock.mkdir() if kind == "folder" else lock.symlink_to("nowhere")
    remedy = f"check and remove it: ls -ld {lock}"
    line = f"spooldeck: lock unknown: {lock}: expected a regular file; {remedy}\n"
    for words in ("process-next", "work --until-idle", "recover --yes", "recover --dry-run"):
        run = spooldeck("--root", root, "queue", *words.split())
        assert (run.returncode, run.stdout, run.stderr) == (2, "", line)
    assert lock.is_symlink() or lock.is_dir()
    assert attempts(root) == WAITING


def test_a_stuck_worker_is_ended(
    root: Path, lock: Path, recover: Run, spooldeck: Run, worker: Child
) -> None:
    """The holder is ended, its task back, the lock released, the recovery counted and logged."""
    run = recover("--yes", "--seen", queue_lock.examine_lock(str(lock), 1200.0).identity, **LATER)
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
    assert not lock.exists()
    assert (root / "metrics" / "counters" / "lock_recoveries_total").read_text() == "1\n"
    # A recovery is no run: no task was processed.
    assert prometheus.read_metrics(str(root / "metrics" / "queue.prom")).get(LAST_RUN) == 0
    assert "no worker has run yet" in spooldeck("doctor", root).stdout
    log = log_of(root)
    assert log[0].startswith("[ALERT] Queue processor stuck for 13")
    (operation,) = journal_at(root).operations()
    who = operation.intent.who.name
    assert log[0].endswith(f"(PID: {worker.pid}) - recovery by {who}")
    assert "[INFO] Lock recovery completed" in log
    assert describe_operation(operation) == f"unlock PID {worker.pid}"
    steps = f"SIGTERM to PID {worker.pid}; PID {worker.pid} has ended; the lock is taken over"
    assert controls.control_outcome(operation) == steps
    assert f"| unlock PID {worker.pid} | done" in spooldeck("--root", root, "journal").stdout


def test_a_lock_is_freed_without_a_journal(root: Path, recover: Run, worker: Child) -> None:
    """A journal that cannot be written is reported, and the stuck worker is ended all the same."""
    folder = Path(journal_at(root).folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.write_text("")
    run = recover("--yes", **LATER)
    assert run.returncode == 0 and worker.wait() == -signal.SIGTERM
    assert "spooldeck: not recorded: the journal in" in run.stderr
    assert attempts(root) == GIVEN_BACK


@pytest.mark.parametrize(
    "typed", ["the PID", "another", pytest.param("nothing", marks=pytest.mark.deep)]
)
def test_the_pid_is_typed_on_a_terminal(root: Path, worker: Child, typed: str) -> None:
    """Only if its PID is typed the worker is ended."""
    answers = {"the PID": f"{worker.pid}\n", "another": f"{worker.pid + 1}\n", "nothing": "\x04"}
    pid, terminal = pty.fork()
    if pid == 0:
        argv = [*cli_later(SILENCE), "--root", str(root), "queue", "recover"]
        os.execve(argv[0], argv, {"HOME": "/", "PYTHONPATH": str(Path.cwd()), "LC_ALL": "C.UTF-8"})
    output = b""
    while b"to end it and free the lock:" not in output:
        output += os.read(terminal, 4096)
    assert f"type the PID, {worker.pid},".encode() in output
    os.write(terminal, answers[typed].encode())
    with suppress(OSError):
        while True:
            output += os.read(terminal, 4096)
    os.close(terminal)
    _, status = os.waitpid(pid, 0)
    is_right = typed == "the PID"
    assert os.waitstatus_to_exitcode(status) == (0 if is_right else 2), output
    assert (b"nothing was changed" in output) == (not is_right)
    assert (worker.wait() if is_right else worker.poll()) == (-signal.SIGTERM if is_right else None)
    assert attempts(root) == (GIVEN_BACK if is_right else CLAIMED)


def test_a_task_in_work_is_held_on_request(root: Path, recover: Run, worker: Child) -> None:
    """With --hold a task in work is HELD, its attempt counted, and does not run again."""
    (task,) = tasks_at(root, "work")
    planned, done = (recover(word, "--hold", task.id, **LATER) for word in ("--dry-run", "--yes"))
    assert f"hold {task.id}, which no worker runs" in planned.stdout
    assert (done.returncode, worker.wait()) == (0, -signal.SIGTERM)
    assert f"Held: {task.id}, which was active" in done.stdout
    assert attempts(root) == ([0], [])
    (held,) = tasks_at(root, "held")
    assert (held.id, held.state, held.attempts) == (task.id, State.HELD, 1)


@pytest.mark.parametrize("words", ["process-next", "work --until-idle"])
def test_workers_free_a_stuck_lock(root: Path, spooldeck: Run, worker: Child, words: str) -> None:
    """The next worker ends the stuck one, gives its task back and works on in the same call."""
    run = spooldeck("--root", root, "queue", *words.split(), **LATER)
    assert run.returncode in (0, 1, 3), run.stderr
    assert worker.wait() == -signal.SIGTERM
    assert f"SIGTERM to PID {worker.pid}" in run.stderr
    assert tasks_at(root, "work") == []
    assert sum("Moving orphaned work task" in line for line in log_of(root)) == 1
    assert (root / "metrics" / "counters" / "lock_recoveries_total").read_text() == "1\n"


def test_a_stuck_lock_has_one_alert(root: Path, lock: Path, spooldeck: Run, start: Start) -> None:
    """However often workers meet a stuck lock that must stay, the log has one alert of it."""
    words = ("--root", root, "queue", "process-next")
    for times in (3, 2):
        written(lock, "")
        forger, claim = start(INNOCENT, str(lock)), true_claim(os.getpid())
        written(lock, lock_file.format_claim(marked(claim, token=f"{times:016x}")))
        assert [spooldeck(*words, **LATER).returncode for _ in range(times)] == [2] * times
        assert is_unharmed(forger)
    alerts = [line for line in log_of(root) if line.startswith("[ALERT]")]
    assert len(alerts) == 2
    assert all("not taken: " in line for line in alerts)
    assert lock.with_name("queue.lock.alerted").exists()
    assert attempts(root) == WAITING


@pytest.mark.parametrize("plant", [Path.mkdir, os.mkfifo], ids=["folder", "fifo"])
def test_another_file_in_place_of_the_alert_mark_stops_no_worker(
    root: Path, lock: Path, spooldeck: Run, start: Start, plant: Callable[[Path], None]
) -> None:
    """Neither a worker nor a recovery waits for it or fails."""
    plant(root / "run/queue.lock.alerted")
    innocent = start(INNOCENT)
    written(lock, f"{innocent.pid}\n{int(time.time())}\n", age=7200)
    busy = spooldeck("--root", root, "queue", "process-next")
    assert is_unharmed(innocent)
    lock.unlink()
    freed = spooldeck("--root", root, "queue", "recover")
    assert (busy.returncode, freed.returncode) == (2, 0)
