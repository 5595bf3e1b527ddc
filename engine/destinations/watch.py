"""What an operator sees of destinations: state, tasks of each, and what may be changed.

The tasks come from the index of a place; `join` puts them beside the registry."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from enum import StrEnum

from engine.destinations import destination as destinations
from engine.destinations.destination import Destination, Registry, update
from engine.model import State, Task
from engine.store import Gone, Unsupported
from engine.text.times import format_time
from engine.values import NamedTuple


class DestinationState(StrEnum):
    """State of a destination, as a word; first the one that needs an operator most."""

    UNHEALTHY = "unhealthy"
    BLOCKED = "blocked"
    UNKNOWN = "unknown"
    """The registry cannot be read."""
    OK = "ok"
    UNUSED = "unused"
    """Nothing was delivered to it yet: it is not registered."""


class DestinationTasks(NamedTuple):
    """The tasks of one destination, as the index has them."""

    waiting: int = 0
    failed: Mapping[str, int] = {}
    """Number of dead tasks by the code of their error; "" without one."""
    oldest: float | None = None
    """Creation of the oldest waiting one, epoch seconds UTC."""

    @property
    def all_failed(self) -> int:
        """Number of dead tasks."""
        return sum(self.failed.values())

    @property
    def repeatable(self) -> int:
        """Number of dead tasks whose error was no refusal of the request itself."""
        return sum(n for code, n in self.failed.items() if not _is_refusal(code))


NO_TASKS = DestinationTasks()


class CountedTasks(NamedTuple):
    """The tasks of the destinations of a place, by origin."""

    by_origin: Mapping[str, DestinationTasks]
    unknown_from: str = ""
    """This origin and those after it were not counted: there are too many. "": all were."""

    def of(self, origin: str) -> DestinationTasks | None:
        """The tasks of a destination; None if they were not counted."""
        if self.unknown_from and origin >= self.unknown_from:
            return None
        return self.by_origin.get(origin, NO_TASKS)


def add_task(by_origin: dict[str, DestinationTasks], task: Task) -> None:
    """Count a pending or dead task at its destination, if that is an origin, as the index does."""
    origin, state = task.destination, task.state
    if state not in (State.PENDING, State.DEAD) or not re.match(r"https?://", origin):
        return
    had = by_origin.get(origin, NO_TASKS)
    if state is State.PENDING:
        times = [when for when in (had.oldest, task.created) if when]  # 0.0: unknown
        oldest = min(times, default=None)
        by_origin[origin] = had._replace(waiting=had.waiting + 1, oldest=oldest)
    else:
        code = _code_of(task.error)
        failed = {**had.failed, code: had.failed.get(code, 0) + 1}
        by_origin[origin] = had._replace(failed=failed)


def _code_of(error: str) -> str:
    """The code at the start of an error: `[TIMEOUT] ...`; task files have `_` for the brackets."""
    match = re.match(r"\[([^\]]*)\]|_(.*?)_ ", error, re.DOTALL)
    return (match[1] or match[2] or "")[:40] if match else ""


_is_refusal = re.compile(
    r"HTTP_4(?!08|25|29)|HTTP_501$|BLOCKED_URL$|BAD_(DATA|PAYLOAD|TARGET|ACK|SIGNATURE)$"
    r"|TOO_LARGE$|NO_ORIGIN$|NO_ACK$|NO_DECISION$|OTHER_ACK$"
).match
"""Codes that another attempt would end with again."""


class SeenDestination(NamedTuple):
    """A destination with its tasks."""

    destination: Destination
    tasks: DestinationTasks | None
    """None: not known."""
    state: DestinationState

    @property
    def can_recover(self) -> bool:
        """True if it is healthy again, and tasks that failed meanwhile can be sent."""
        is_again = self.state is DestinationState.OK and self.destination.since is not None
        return is_again and self.tasks is not None and self.tasks.repeatable > 0


class DestinationsReading(NamedTuple):
    """The registry as it was read."""

    found: tuple[Destination, ...] = ()
    unknown: str = ""
    """Why it cannot be read; "" if it was."""
    is_configured: bool = False


def state_of(one: Destination) -> DestinationState:
    """The state of a destination; a block comes before its health."""
    if one.blocked:
        return DestinationState.BLOCKED
    if not one.healthy:
        return DestinationState.UNHEALTHY
    return DestinationState.OK if one.rev else DestinationState.UNUSED


_ORDER = tuple(DestinationState)


def join(reading: DestinationsReading, tasks: CountedTasks | None) -> tuple[SeenDestination, ...]:
    """All destinations that are registered or have tasks, what needs an operator first; none
    without a registry. `tasks` is None while it is not known."""
    if not reading.is_configured:
        return ()
    known = {one.origin: one for one in reading.found}
    origins = sorted({*known, *(tasks.by_origin if tasks else ())})
    joined = []
    for origin in origins:
        one = known.get(origin) or Destination(origin)
        state = DestinationState.UNKNOWN if reading.unknown else state_of(one)
        counts = None if tasks is None else tasks.of(origin)
        joined.append(SeenDestination(one, counts, state))
    return tuple(sorted(joined, key=_urgency))


def _urgency(one: SeenDestination) -> tuple[float, int]:
    failed = one.tasks.all_failed if one.tasks is not None else 0
    return 0.5 if one.can_recover else _ORDER.index(one.state), -failed


# ---- changes by an operator


class DestinationAction(NamedTuple):
    """What an operator may do with a destination."""

    verb: str
    value: str
    """Its value in the journal."""
    effect: str
    change: Callable[[Destination, str, float], Destination]
    """(destination, reason, now) -> its new value"""
    refusal: Callable[[Destination], str]
    """Why there is nothing to do; "" if there is."""
    fact: Callable[[Destination], str]
    """What it changes, in words: the plan is outdated if that is different."""
    opposite: str = ""
    """The verb that undoes it; "" if none does."""
    has_job: bool = False
    """True if the place may have a job that is to run now."""


def _block_fact(one: Destination) -> str:
    return f"blocked: {one.blocked}" if one.blocked else "not blocked"


def _probe_fact(one: Destination) -> str:
    state = "healthy" if one.healthy else f"unhealthy: {one.reason}"
    when = one.next_probe
    return f"{state}; {'no probe' if when is None else f'probe at {format_time(when)}'}"


def _why_no_probe(one: Destination) -> str:
    if one.blocked:
        return f"{one.origin} is blocked: unblock it first"
    if not one.healthy and not one.rev:
        return f"{one.origin} is only in the application's table: its worker probes it"
    return f"{one.origin} is healthy: nothing to probe" if one.healthy else ""


ACTIONS: Mapping[str, DestinationAction] = {
    "block": DestinationAction(
        "block",
        "blocked",
        "nothing is delivered to it until it is unblocked",
        change=destinations.block,
        refusal=lambda one: f"{one.origin} is blocked already" if one.blocked else "",
        fact=_block_fact,
        opposite="unblock",
    ),
    "unblock": DestinationAction(
        "unblock",
        "unblocked",
        "deliveries go to it again",
        change=lambda one, reason, now: destinations.unblock(one),
        refusal=lambda one: "" if one.blocked else f"{one.origin} is not blocked",
        fact=_block_fact,
        opposite="block",
    ),
    "probe": DestinationAction(
        "probe",
        "probed",
        "its next probe is due now: its job, or the next delivery that starts",
        change=lambda one, reason, now: one._replace(next_probe=now),
        refusal=_why_no_probe,
        fact=_probe_fact,
        has_job=True,
    ),
}


def change_destination(
    registry: Registry, verb: str, expected: Destination, reason: str, now: float
) -> Destination:
    """Make a change to a destination that still is as `expected`, by compare-and-swap; what
    else workers recorded meanwhile is kept.

    Raises:
        Gone: others have changed what the plan is about; nothing changed.
        Unsupported: there is nothing to do.
        Unavailable: see `Registry`."""
    action = ACTIONS[verb]
    if why := action.refusal(expected):
        raise Unsupported(why)

    def change(old: Destination) -> Destination:
        if action.fact(old) != action.fact(expected):
            raise Gone(f"{expected.origin} was changed by others: now {action.fact(old)}")
        return action.change(old, reason, now)

    return update(registry, expected.origin, change)
