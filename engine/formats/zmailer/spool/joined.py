"""Join recipients with what only the running scheduler knows: tries, next try, last answer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple, Protocol

from engine.model import WAITS_KEY, Missing, Problem, State, Task
from engine.text.times import format_time
from engine.verbs import WAITING_PREFIX


class RecipientFacts(NamedTuple):
    """What a scheduler knows of a recipient that is to do."""

    due: float | None = None
    """When it is tried next, epoch seconds UTC; 0: now; None: only an event starts it, or it is
    unknown."""
    attempts: int | None = None
    """Answers for its message at its host; None if unknown."""
    error: str = ""
    """The last line of the last answer; "" if there is none since the start of the scheduler."""
    why: str = ""
    """Why it is not being delivered, besides `due`."""
    expires: float | None = None
    """When it is given up, epoch seconds UTC; None: never, or unknown."""


class SchedulerFacts(Protocol):
    """Asks the running scheduler of a spool."""

    def read(self) -> object:
        """Ask it, unless what it has answered is current."""
        ...

    def find(self, name: str, task: Task) -> RecipientFacts:
        """What it has answered about a recipient of a control file."""
        ...

    def close(self) -> object:
        """Close the connection."""
        ...


def join(
    facts: SchedulerFacts, items: Iterable[Task | Missing | Problem]
) -> Iterator[Task | Missing | Problem]:
    """Yield the items; waiting and locked recipients with what the scheduler knows of them."""
    facts.read()
    for item in items:
        if isinstance(item, Task) and item.state in (State.PENDING, State.ACTIVE):
            yield _joined(item, facts.find(item.id.partition("/")[0], item))
        else:
            yield item


def _joined(task: Task, known: RecipientFacts) -> Task:
    extra, is_waiting = dict(task.extra), task.state is State.PENDING
    if known.why and is_waiting:
        extra[WAITS_KEY] = known.why
    if known.expires is not None:
        extra["expires"] = format_time(known.expires).replace(" ", "T")
    error = known.error or task.error
    if known.why and is_waiting and not error:
        error = f"{WAITING_PREFIX}{known.why}"
    due = known.due if is_waiting else task.due
    return task._replace(due=due, attempts=known.attempts, error=error, extra=extra)
