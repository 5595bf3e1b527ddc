"""What is done for a task: a handler for each kind, and how it says that it could not."""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from engine.model import Task

CONTRACT_KINDS = frozenset({"feeds_sync", "geoban_apply", "mail_send"})
"""Kinds whose meaning the contract fixes: without a handler of their own they are never claimed,
and no two tasks of one of them ever run side by side.
"""


WORKER_ENDED = "worker ended while it ran"
"""Begins the error of an attempt whose worker ended before its outcome was stored."""


class Failed(Exception):
    """The attempt failed; the text is stored with the task, and it is tried again by the table."""


class Fatal(Failed):
    """No further attempt can succeed: to the dead-letter queue at once."""


class Retry(Failed):
    """The attempt failed, and says itself when the next one makes sense."""

    def __init__(self, after: float, text: str) -> None:
        super().__init__(text)
        self.after = after
        """Seconds from now."""


class Later(Exception):
    """Nothing was attempted, and nothing failed: the task is given back, to be taken up again."""

    def __init__(self, due: float, text: str) -> None:
        """`due` is when that makes sense, epoch seconds UTC; `text` is what keeps it until then."""
        super().__init__(text)
        self.due = due


class Context(NamedTuple):
    """What a handler is told besides its task."""

    inherit: tuple[int, ...] = ()
    """Descriptors that a process it starts shall keep open: the flock of the queue's lock."""
    cancelled: Callable[[], bool] = lambda: False
    """Whether the worker was told to end at once."""


class Handler(Protocol):
    """Does a task; returns when it is done."""

    def __call__(self, task: Task, context: Context, /) -> None:
        """Do it.

        Raises:
            Failed: it could not be done; Fatal and Retry say more.
            Later: it was not begun.
        """
        ...


def unknown(task: Task, context: Context) -> None:
    """The handler of a kind that has none: fails with the contract's text."""
    raise Failed(f"Unknown task type: {task.kind}")
