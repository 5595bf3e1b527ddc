"""Recurrence of an error: decide from log events whether it still happens.

Only tasks that ended after the error was last seen are evidence. One success proves little if one
task in ten gets the error, so the number of successes needed follows from its failure rate."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from operator import itemgetter
from typing import Protocol, TypeAlias

from engine.destinations.destination import Destination
from engine.logs.task_events import MAIL_KIND, EventKind, TaskEvent
from engine.model import EMPTY
from engine.text.figures import format_count
from engine.text.safe import safe_line
from engine.text.times import format_rough_duration
from engine.values import NamedTuple

RECENT_SECONDS = 600.0
"""Seconds for which an error counts as still happening after it was last seen, unless enough tasks
succeeded since."""

RULE_OF_THREE = 3.0
"""Rule of three: if something happens once in n trials, 3 n trials without it show with 95 %
confidence that it has ended."""

ASSUMED_FAILURE_RATE, MIN_ENDED_TASKS = 0.3, 10
"""Failure rate assumed, and the number of ended tasks from which on the measured rate is used. With
the assumed rate, 10 successes make a "no"."""

CLOCK_SKEW_SECONDS = 60.0
"""Clock skew in seconds: how far a log's clock may be ahead of our clock."""


class StillHappens(StrEnum):
    """Whether an error still happens."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "?"


NO_LOG = "no log records how such tasks ended"


class Recurrence(NamedTuple):
    """The answer and its evidence."""

    answer: StillHappens
    text: str
    """Column text: `yes`, `no (12m)` (last seen 12 minutes ago), `?`."""
    evidence: tuple[str, ...]
    """Sentences, safe to show, the most important first."""
    last: float | None = None
    """Last time the error was seen in a log or the spool, epoch seconds UTC; None if not recorded.
    """


class ErrorGroup(Protocol):
    """A cluster: tasks of a spool that failed with the same error."""

    @property
    def mark(self) -> str:
        """Fingerprint of the error."""

    @property
    def last(self) -> float | None:
        """Last time recorded in the spool, epoch seconds UTC; None if not recorded."""

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kinds of the tasks that failed with it; empty for any."""

    @property
    def destinations(self) -> tuple[str, ...]:
        """Where these tasks go; empty for any: then a success counts wherever it went."""


class _ErrorCounts(NamedTuple):
    """Counts for one error; the numbers are tasks, or mails without a task."""

    last: float | None
    """Last seen in a log or the spool, epoch seconds UTC."""
    failed: int = 0
    """Those that failed with this error in the logs, however often."""
    ended: int = 0
    """Those that ended between the times of `lasted`."""
    lasted: tuple[float, ...] = ()
    """When it was first seen in the logs that were read, and last seen."""
    recent: int = 0
    """Those that failed with this error within `RECENT_SECONDS` seconds."""
    succeeded: int = 0
    """Successes since it was last seen."""
    fresh: int = 0
    """Of these, tasks that never had this error."""
    healed: int = 0
    """Tasks that had the error and succeeded later, at any time."""
    otherwise: int = 0
    """Those that failed with another error since it was last seen."""
    ahead: int = 0
    """Log lines and spool times ignored because they are in the future."""
    has_data: bool = False
    """True if any log has relevant data."""
    elsewhere: int = 0
    """Successes since that are not known to have gone to a destination of the error."""
    unhealthy: tuple[Destination, ...] = ()
    """Destinations of the error that the registry has as unhealthy."""
    recovered: tuple[Destination, ...] = ()
    """All its destinations, if each has become healthy since it was last seen."""

    @property
    def needed(self) -> int:
        """Successes since it was last seen that are needed for a "no"."""
        share = self.failed / self.ended if self.failed else ASSUMED_FAILURE_RATE
        if self.ended < MIN_ENDED_TASKS:
            share = min(share, ASSUMED_FAILURE_RATE)
        return math.ceil(RULE_OF_THREE / share)


def check_recurrences(
    clusters: Iterable[ErrorGroup],
    events: Iterable[TaskEvent],
    now: float,
    *,
    sent_to: Mapping[str, str] = EMPTY,
    registry: Iterable[Destination] = (),
) -> Iterator[Recurrence]:
    """Decide for each cluster whether its error still happens at `now`, epoch seconds UTC, with one
    pass over all log events, which may be in any order.

    `sent_to` has the destinations of tasks by id, as far as known; `registry` the state of
    destinations. An unhealthy one means that the errors of its tasks still happen; if all have
    become healthy since, it has ended."""
    past = _PastErrors(events, now, sent_to)
    known = {one.origin: one for one in registry}
    for cluster in clusters:
        its = tuple(known[name] for name in cluster.destinations if name in known)
        yield _answer(cluster, past, now, its)


def _answer(
    cluster: ErrorGroup, past: _PastErrors, now: float, its: tuple[Destination, ...]
) -> Recurrence:
    tally = _weighed(cluster, past, now)
    if ill := tuple(one for one in its if not one.healthy):
        times = (tally.last, *(one.last_failure for one in ill))
        last = max((when for when in times if when is not None), default=None)
        tally = tally._replace(unhealthy=ill, last=last)
    if its and {one.origin for one in its} == {*cluster.destinations} and tally.last is not None:
        last = tally.last
        if all(one.healthy and one.since is not None and one.since > last for one in its):
            tally = tally._replace(recovered=its)
    answer = _judged(tally, now)
    is_over = answer is StillHappens.NO and tally.last is not None
    words = f"no ({format_rough_duration(now - (tally.last or now))})" if is_over else str(answer)
    return Recurrence(answer, words, tuple(_evidence(tally, answer, cluster, now)), tally.last)


def _judged(tally: _ErrorCounts, now: float) -> StillHappens:
    if tally.unhealthy:
        return StillHappens.YES
    if tally.recovered:
        return StillHappens.NO
    if not tally.has_data or tally.last is None:
        return StillHappens.UNKNOWN
    if tally.succeeded >= tally.needed:
        return StillHappens.NO
    return StillHappens.YES if now - tally.last <= RECENT_SECONDS else StillHappens.UNKNOWN


class _PastErrors:
    """Log events indexed by error fingerprint (failures) and by kind, transport and destination
    (outcomes)."""

    def __init__(self, events: Iterable[TaskEvent], now: float, sent_to: Mapping[str, str]) -> None:
        self.has_data = False
        self.ahead = 0
        self.had: dict[str, list[tuple[float, TaskEvent]]] = defaultdict(list)
        """By fingerprint: failures in order of time."""
        self.done: dict[str, float] = {}
        """By task: time of its success."""
        self._successes: dict[_Route, list[float]] = defaultdict(list)
        self._failures: dict[_Route, list[tuple[float, str, str]]] = defaultdict(list)
        routes: dict[str, _Route] = {}
        for event in events:
            if event.when is None:
                continue
            if event.when > now + CLOCK_SKEW_SECONDS:
                self.ahead += 1
                continue
            self.has_data = True
            who, route = _who(event), (event.kind, event.transport, _destination(event, sent_to))
            if event.what is EventKind.SUCCEEDED:
                # Two logs may record it, and only the mail log names the transport.
                self.done[who] = min(event.when, self.done.get(who, event.when))
                if event.transport or who not in routes:
                    routes[who] = route
            elif event.error:
                self.had[event.mark].append((event.when, event))
                if _is_end(event):
                    self._failures[route].append((event.when, who, event.mark))
        for who, when in self.done.items():
            self._successes[routes[who]].append(when)
        for times in self._successes.values():
            times.sort()
        for had in self.had.values():
            had.sort(key=itemgetter(0))
        for badly in self._failures.values():
            badly.sort(key=itemgetter(0))

    def count_successes(self, alike: Callable[[_Route], bool], after: float, until: float) -> int:
        """Count successes after `after`, up to and including `until`."""
        counted = (times for route, times in self._successes.items() if alike(route))
        return sum(bisect_right(times, until) - bisect_right(times, after) for times in counted)

    def badly(
        self, alike: Callable[[_Route], bool], after: float, until: float, but: str
    ) -> set[str]:
        """Return the tasks that failed in that span with any fingerprint except `but`."""
        return {
            who
            for route, failures in self._failures.items()
            if alike(route)
            for when, who, mark in failures[bisect_right(failures, after, key=itemgetter(0)) :]
            if when <= until and mark != but
        }


ANY = "*"
"""The destination of a mail without a task: the log hides its domain, so it counts for each."""


def _destination(event: TaskEvent, sent_to: Mapping[str, str]) -> str:
    return sent_to.get(event.id, "") if event.id else ANY


_Route: TypeAlias = tuple[str, str, str]
"""Kind of a task, its transport and its destination; "" for what is not known."""


def _weighed(cluster: ErrorGroup, past: _PastErrors, now: float) -> _ErrorCounts:
    had = past.had.get(cluster.mark, [])
    last_times, ahead = [when for when, _ in had[-1:]], past.ahead
    if cluster.last is not None and cluster.last <= now + CLOCK_SKEW_SECONDS:
        last_times.append(cluster.last)
    elif cluster.last is not None:
        ahead += 1
    last = max(last_times, default=None)
    if last is None:
        return _ErrorCounts(None, ahead=ahead, has_data=past.has_data)
    failed_at = {_who(e): when for when, e in had if _is_end(e)}
    transports = {e.transport for _, e in had if e.transport}

    def same_route(route: _Route) -> bool:
        """True if a task of such a kind, sent so, could have had this error."""
        kind, by, _ = route
        is_kind = not cluster.kinds or kind in cluster.kinds
        return is_kind and (not transports or not by or by in transports)

    its = frozenset({ANY, *cluster.destinations} if cluster.destinations else ())

    def alike(route: _Route) -> bool:
        """True if a task could have had this error: one to another server could not."""
        return same_route(route) and (not its or route[2] in its)

    first = had[0][0] if had else last
    before = math.nextafter(first, -math.inf)
    healed = [past.done[who] for who, when in failed_at.items() if past.done.get(who, -1.0) >= when]
    since = past.count_successes(alike, last, math.inf)
    otherwise = past.badly(alike, last, math.inf, cluster.mark)
    others = past.badly(alike, before, last, cluster.mark) - failed_at.keys()
    return _ErrorCounts(
        last,
        lasted=(first, last),
        failed=len(failed_at),
        ended=len(failed_at)
        + past.count_successes(alike, before, last)
        - sum(first <= past.done.get(who, -1.0) <= last for who in failed_at)
        + sum(not first <= past.done.get(who, -1.0) <= last for who in others),
        recent=sum(when > now - RECENT_SECONDS for when in failed_at.values()),
        succeeded=since,
        fresh=since - sum(when > last for when in healed),
        healed=len(healed),
        otherwise=sum(who not in past.done for who in otherwise),
        ahead=ahead,
        has_data=past.has_data,
        elsewhere=past.count_successes(same_route, last, math.inf) - since,
    )


def _is_end(event: TaskEvent) -> bool:
    """True for a failed run of a task, or the last attempt at a mail without one."""
    return bool(event.id) or event.what is EventKind.BURIED


def _who(event: TaskEvent) -> str:
    """Return the task's id; a mail without a task is identified by its log line."""
    return event.id or f"\n{event.when}{event.text}"


# ---- evidence as text


def _evidence(
    tally: _ErrorCounts, answer: StillHappens, cluster: ErrorGroup, now: float
) -> Iterable[str]:
    for one in tally.unhealthy:
        failed = "" if one.last_failure is None else f", last {_ago(now - one.last_failure)}"
        why = f"{safe_line(one.reason or 'unknown')}, {format_count(one.probes, 'probe')}"
        yield f"{safe_line(one.origin)} is unhealthy: {why}{failed}"
    for one in tally.recovered:
        yield f"{safe_line(one.origin)} became healthy {_ago(now - (one.since or now))}"
    if not tally.has_data:
        yield NO_LOG
    kinds = safe_line(" or ".join(cluster.kinds))
    unit = "mail" if cluster.kinds and {*cluster.kinds} <= {MAIL_KIND, "mail"} else "task"
    never = "neither a log nor the spool records when it was last seen"
    yield never if tally.last is None else f"last seen {_ago(now - tally.last)}"
    if tally.recent and answer is StillHappens.YES:
        failed = format_count(tally.recent, unit)
        yield f"{failed} failed with it in {format_rough_duration(RECENT_SECONDS)}"
    if tally.succeeded:
        yield f"{tally.fresh:,} new {kinds or 'tasks'} succeeded since"
    if tally.elsewhere:
        yield f"{tally.elsewhere:,} succeeded since to other or unknown destinations: not counted"
    if tally.healed:
        yield f"{format_count(tally.healed, unit)} with this error succeeded later"
    if tally.otherwise:
        yield f"{format_count(tally.otherwise, unit)} failed with another error since"
    since = tally.succeeded + tally.otherwise + tally.elsewhere
    if tally.has_data and tally.last is not None and not since and answer is not StillHappens.YES:
        yield f"no task{f' of kind {kinds}' if kinds else ''} has ended since"
    if tally.failed and tally.ended:
        ended = format_count(tally.ended, unit)
        to = " to its destinations" if cluster.destinations else ""
        lasted = " to ".join(dict.fromkeys(_ago(now - moment) for moment in tally.lasted))
        yield f"{lasted}: {tally.failed:,} of {ended}{to} failed with it"
    if answer is not StillHappens.NO and tally.succeeded:
        words = f"{tally.succeeded:,} of {tally.needed:,} successes needed"
        yield f"not sure yet: {words}" if answer is StillHappens.UNKNOWN else f"{words} for a no"
    if tally.ahead:
        yield f"ignored, dated in the future: {format_count(tally.ahead, 'time')}"


def _ago(seconds: float) -> str:
    return "just now" if seconds < 1 else f"{format_rough_duration(seconds)} ago"
