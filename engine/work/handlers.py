"""Handler protocol: one handler per kind of task, the exceptions by which it reports failure, and
the guard of payloads."""

from collections.abc import Callable
from typing import Protocol

from engine.model import Task
from engine.system import files
from engine.system.files import Refused
from engine.text.error_text import error_text
from engine.values import NamedTuple

CONTRACT_KINDS = frozenset({"feeds_sync", "geoban_apply", "mail_send"})
"""Kinds defined by the contract: without a handler they are never claimed, and two tasks of one of
these kinds never run at the same time."""

WORKER_ENDED = "worker ended while it ran"
"""Start of the error text of an attempt whose worker ended before its outcome was stored."""


class Failed(Exception):
    """The attempt failed; the text is stored with the task, and the retry policy decides."""

    def __init__(self, text: str, details: str = "") -> None:
        super().__init__(text)
        self.details = details
        """More about it, such as the end of a program's output, for stores that keep a trace."""


class Fatal(Failed):
    """No further attempt can succeed: move to the dead-letter queue immediately."""

    def __init__(self, text: str, details: str = "", row: str = "") -> None:
        """`row`: as `HandlerResult.row`."""
        super().__init__(text, details)
        self.row = row


class Retry(Failed):
    """The attempt failed, and the handler sets the time of the next one."""

    def __init__(self, after: float, text: str) -> None:
        super().__init__(text)
        self.after = after
        """Seconds from now."""


class Lacking(Exception):
    """The worker itself lacks something that the handler needs (a process, a thread, a program), so
    nothing was attempted: the task is given back, and its kind rests."""


class Postponed(Exception):
    """Nothing was attempted: the task is given back and claimed again later."""

    def __init__(self, due: float, text: str) -> None:
        """`due` is the time of the next try, epoch seconds UTC; `text` is the reason."""
        super().__init__(text)
        self.due = due


class HandlerResult(NamedTuple):
    """The result of a task that was made from a database row."""

    result: object
    row: str
    """Key of the row to remove after the outcome (`WorkerServices.after_outcome`); "": none."""


class Context(NamedTuple):
    """What a handler gets besides its task."""

    kept_fds: tuple[int, ...] = ()
    """Descriptors that the supervisor of a program keeps open: the flock of the queue's lock."""
    is_cancelled: Callable[[], bool] = lambda: False
    """True if the worker has to cancel running tasks, or has lost the lease of this one."""
    current_claim: Callable[[Task], Task] = lambda task: task
    """Returns the task with the lease and revision of its last renewal; waits for a running one."""
    data: bytes | None = None
    """The task's data, if the worker reads it for this kind (`WorkerServices.data_kinds`)."""
    data_fd: int = -1
    """An open file with the task's data, which may be large; -1: none. The caller closes it."""


class Handler(Protocol):
    """Runs a task; returns when it is done."""

    def __call__(self, task: Task, context: Context, /) -> object:
        """Run the task; return its result, kept as JSON if the store does, or a `HandlerResult`.

        Raises:
            Failed: it failed; Fatal and Retry decide what follows.
            Postponed: it was not attempted.
            Lacking: it was not attempted, for want of something that any task of its kind needs."""


def fail_unknown_kind(task: Task, context: Context) -> None:
    """Handler for kinds without one: fails with the contract's text."""
    raise Failed(f"Unknown task type: {task.kind}")


def guard_payload(handler: Handler, mail_spool: str, root: str = "") -> Handler:
    """Wrap a handler so that it never runs for a payload outside `check_mail_spool`, which itself
    is found below the data folder `root` without following a symbolic link.

    A task file may name any file of the system, and handlers read, send and delete the named file.
    A missing payload is left to the handler. The check runs right before the handler: a user with
    write access to the mail spool can still change the file afterwards."""

    def run(task: Task, context: Context) -> object:
        try:
            if task.payload:
                files.is_file_below(mail_spool, task.payload, root)
        except Refused as refusal:
            raise Fatal(f"payload not touched: it {refusal}") from refusal
        except FileNotFoundError:
            pass
        except OSError as error:
            why = error_text(error)
            raise Failed(f"payload not touched: it cannot be checked: {why}") from error
        return handler(task, context)

    return run
