"""Tasks, spools, stores and clocks that several tests of the engine build."""

from pathlib import Path

from engine import verbs
from engine.formats.nftban.store import SpoolFolders, make_spool
from engine.logs.log_line import LogLine
from engine.model import State, Task
from engine.store import Store

NOW = 1_795_170_000.0
ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden" / "nftban"
"""Files as the contract's own program wrote them."""


def clock() -> float:
    """The time in tests that do not wait: NOW."""
    return NOW


class Clock:
    """A clock that a test sets."""

    def __init__(self, now: float = NOW) -> None:
        self.now = now

    def __call__(self) -> float:
        """The time that was set."""
        return self.now


def a_task(number: int = 1, **changes: object) -> Task:
    """A pending task, an hour old; numbers go by the order of ids."""
    task = Task(f"20261120T094115Z-job-{number:08x}", "job", State.PENDING, NOW - 3600)
    return task._replace(**{"description": f"job {number}", **changes})  # type: ignore[arg-type]


def a_row(number: int = 1, **changes: object) -> Task:
    """A pending task with a short id and a revision, as an index gets it from a store."""
    task = Task(f"task-{number:06}", "job", State.PENDING, NOW, rev=f"r{number}")
    return task._replace(**changes)  # type: ignore[arg-type]


def new_spool(root: Path | str, mail_spool: str = "") -> SpoolFolders:
    """A spool with nothing in it, in the folder `queue`."""
    pending, work, dlq = (f"{root}/queue/{word}" for word in ("pending", "work", "dlq"))
    spool = SpoolFolders(pending, work, dlq, mail_spool=mail_spool, durable=False)
    make_spool(spool)
    return spool


def tasks_in(store: Store, *states: State) -> list[Task]:
    """Everything in a store, or in some of its states, in the order of ids."""
    tasks = {task.id: task for task in store.scan() if isinstance(task, Task)}
    return [task for _, task in sorted(tasks.items()) if not states or task.state in states]


def dead_tasks(store: Store, count: int, error: str = "it broke") -> list[Task]:
    """Put so many tasks into a store's dead-letter queue; they are returned as they are seen."""
    for number in range(count):
        store.swap(None, a_task(number))
    for task in list(store.take(NOW, "a worker", count)):
        store.swap(task, verbs.give_up_task(task, error, 3))
    return tasks_in(store, State.DEAD)


def log_line(text: str, when: float | None = NOW, source: str = "queue.log") -> LogLine:
    """A line of a log."""
    return LogLine(when, "INFO", text, source)
