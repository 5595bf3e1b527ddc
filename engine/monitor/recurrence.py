"""Same now? Whether an error that once was still happens to fresh work, and how one can tell.

Only what ended can tell: a task that succeeded, or failed, since the error was last seen. One
success says little about an error that one task in ten gets; so it takes as many as make it
unlikely that the error only was lucky to stay away.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import StrEnum
from operator import itemgetter
from typing import NamedTuple, Protocol, TypeAlias

from engine.logs.task_events import Event, EventKind
from engine.policy import lasting
from engine.text.safe import shown

RECENT = 600.0
"""Seconds for which an error that was seen counts as still happening, unless others ended well."""

SURE = 3.0
"""Of something that happens once in n, 3 n trials without it say, by 95 in 100, that it ended."""

ASSUMED, TELLING = 0.3, 10
"""The share of tasks that get an error, at most, until so many have ended while it was to be seen:
then 10 successes make a no."""

AHEAD = 60.0
"""Seconds by which a log's clock may be ahead of ours."""


class StillHappens(StrEnum):
    """Whether it is the same now."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "?"


class Recurrence(NamedTuple):
    """The answer, and what it rests on."""

    answer: StillHappens
    words: str
    """For a column: `yes`, `no (12m)` (last seen so long ago), `?`."""
    evidence: tuple[str, ...]
    """Plain sentences, safe to show, the telling one first."""
    last: float | None = None
    """When the error was seen last, in a log or the spool, epoch seconds UTC; None: none says."""


class ErrorGroup(Protocol):
    """Errors that are alike, as a spool holds them."""

    @property
    def mark(self) -> str:
        """Their fingerprint."""
        ...

    @property
    def last(self) -> float | None:
        """When the spool says that it happened last, epoch seconds UTC; None: it does not say."""
        ...

    @property
    def kinds(self) -> tuple[str, ...]:
        """Of which kinds the tasks are that failed so; empty for any."""
        ...


class Counted(NamedTuple):
    """What a metrics file counted between two looks."""

    kind: str
    """The kind of task that it counts."""
    since: float
    """Epoch seconds UTC of the first."""
    succeeded: int
    failed: int


class _ErrorCounts(NamedTuple):
    """What is known about one error; numbers are of tasks, or of mails that are no tasks."""

    last: float | None
    """When it was seen last, in a log or the spool."""
    failed: int = 0
    """How many failed so in the logs."""
    ended: int = 0
    """How many ended, so or otherwise, while it was to be seen."""
    lately: int = 0
    """How many failed so within `RECENT`."""
    lately_fresh: int = 0
    """How many of those were not there before, as far as the logs tell."""
    succeeded: int = 0
    """How many succeeded since it was seen last."""
    fresh: int = 0
    """How many of those never had it."""
    healed: int = 0
    """How many had it, and succeeded later, whenever."""
    otherwise: int = 0
    """How many failed in another way since."""
    ahead: int = 0
    """How many lines, and times in the spool, were left out for being in the future."""
    told: bool = False
    """Whether any log or metrics file says anything."""

    @property
    def needed(self) -> int:
        """How many successes since would make a no."""
        share = self.failed / self.ended if self.failed else ASSUMED
        return math.ceil(SURE / (share if self.ended >= TELLING else min(share, ASSUMED)))


def same_now(
    cluster: ErrorGroup, events: Iterable[Event], now: float, counted: Iterable[Counted] = ()
) -> Recurrence:
    """Whether what `cluster` is about still happens at `now`, epoch seconds UTC.

    `events` are all that the logs tell, in any order. For many clusters ask `answers`.
    """
    return _answer(cluster, _PastErrors(events, now), now, counted)


def answers(
    clusters: Iterable[ErrorGroup],
    events: Iterable[Event],
    now: float,
    counted: Sequence[Counted] = (),
) -> Iterator[Recurrence]:
    """The same for each cluster; the events are gone through once for all of them."""
    past = _PastErrors(events, now)
    for cluster in clusters:
        yield _answer(cluster, past, now, counted)


def _answer(
    cluster: ErrorGroup, past: _PastErrors, now: float, counted: Iterable[Counted]
) -> Recurrence:
    tally = _with_counters(_weighed(cluster, past, now), cluster, counted)
    answer = _judged(tally, now)
    words = str(answer)
    if answer is StillHappens.NO and tally.last is not None:
        words = f"no ({_brief(now - tally.last)})"
    return Recurrence(answer, words, tuple(_evidence(tally, answer, cluster, now)), tally.last)


def _judged(tally: _ErrorCounts, now: float) -> StillHappens:
    if not tally.told or tally.last is None:
        return StillHappens.UNKNOWN
    if tally.succeeded >= tally.needed:
        return StillHappens.NO
    return StillHappens.YES if now - tally.last <= RECENT else StillHappens.UNKNOWN


class _PastErrors:
    """What the logs tell, put in order: what failed by its mark, and what ended by its kind."""

    def __init__(self, events: Iterable[Event], now: float) -> None:
        self.told = False
        self.ahead = 0
        self.had: dict[str, list[tuple[float, Event]]] = defaultdict(list)
        """By mark: what failed so, in the order of time."""
        self.begun: dict[str, float] = {}
        """By task: when it was first heard of."""
        self.done: dict[str, float] = {}
        """By task: when it succeeded."""
        self._well: dict[_Way, list[float]] = defaultdict(list)
        self._badly: dict[_Way, list[tuple[float, str, str]]] = defaultdict(list)
        ways: dict[str, _Way] = {}
        for event in events:
            if event.when is None:
                continue
            if event.when > now + AHEAD:
                self.ahead += 1
                continue
            self.told = True
            who = _who(event)
            if event.what in _BEGINNINGS:
                self.begun[who] = min(event.when, self.begun.get(who, event.when))
            elif event.what is EventKind.SUCCEEDED:
                # Two logs may tell of it, and only that of the mails knows the transport.
                self.done[who] = min(event.when, self.done.get(who, event.when))
                if event.transport or who not in ways:
                    ways[who] = (event.kind, event.transport)
            elif event.error:
                self.had[event.mark].append((event.when, event))
                way = (event.kind, event.transport)
                self._badly[way].append((event.when, who, event.mark))
        for who, when in self.done.items():
            self._well[ways[who]].append(when)
        for times in self._well.values():
            times.sort()
        for had in self.had.values():
            had.sort(key=itemgetter(0))
        for badly in self._badly.values():
            badly.sort(key=itemgetter(0))

    def well(self, alike: Callable[[_Way], bool], after: float, until: float) -> int:
        """How many succeeded in a span of time, its end included, its beginning not."""
        return sum(
            bisect_right(times, until) - bisect_right(times, after)
            for way, times in self._well.items()
            if alike(way)
        )

    def badly(
        self, alike: Callable[[_Way], bool], after: float, until: float, but: str
    ) -> set[str]:
        """Who failed in that span, with any mark but one."""
        return {
            who
            for way, failures in self._badly.items()
            if alike(way)
            for when, who, mark in failures[bisect_right(failures, after, key=itemgetter(0)) :]
            if when <= until and mark != but
        }


_Way: TypeAlias = tuple[str, str]
"""The kind of a task, and its transport, "" where none is told."""

_BEGINNINGS = (EventKind.QUEUED, EventKind.STARTED)


def _weighed(cluster: ErrorGroup, past: _PastErrors, now: float) -> _ErrorCounts:
    """What the logs and the spool say of this error."""
    had = past.had.get(cluster.mark, [])
    seen, ahead = [when for when, _ in had[-1:]], past.ahead
    if cluster.last is not None and cluster.last <= now + AHEAD:
        seen.append(cluster.last)
    elif cluster.last is not None:
        ahead += 1
    last = max(seen, default=None)
    if last is None:
        return _ErrorCounts(None, ahead=ahead, told=past.told)
    # An attempt at a mail that is no task is not its end.
    ours = {_who(e): when for when, e in had if e.id or e.what is EventKind.BURIED}
    lately = [who for who, when in ours.items() if when > now - RECENT]
    transports = {e.transport for _, e in had if e.transport}

    def alike(way: _Way) -> bool:
        """Whether work could have had this error: what was sent another way could not."""
        kind, by = way
        is_kind = not cluster.kinds or kind in cluster.kinds
        return is_kind and (not transports or not by or by in transports)

    first = had[0][0] if had else last
    before = math.nextafter(first, -math.inf)
    healed = [past.done[who] for who, when in ours.items() if past.done.get(who, -1.0) >= when]
    since = past.well(alike, last, math.inf)
    otherwise = past.badly(alike, last, math.inf, cluster.mark)
    others = past.badly(alike, before, last, cluster.mark) - ours.keys()
    return _ErrorCounts(
        last,
        failed=len(ours),
        ended=len(ours)
        + past.well(alike, before, last)
        - sum(first <= past.done.get(who, -1.0) <= last for who in ours)
        + sum(not first <= past.done.get(who, -1.0) <= last for who in others),
        lately=len(lately),
        lately_fresh=sum(past.begun.get(who, now) > now - RECENT for who in lately),
        succeeded=since,
        fresh=since - sum(when > last for when in healed),
        healed=len(healed),
        otherwise=sum(who not in past.done for who in otherwise),
        ahead=ahead,
        told=past.told,
    )


def _who(event: Event) -> str:
    """The task; a mail that is none is told apart by its line."""
    return event.id or f"\n{event.when}{event.line.text}"


def _with_counters(
    tally: _ErrorCounts, cluster: ErrorGroup, counted: Iterable[Counted]
) -> _ErrorCounts:
    """What the metrics count instead of a log that says nothing.

    Only a count that began after the error was seen last, and of its own kind, says something.
    """
    for count in counted:
        if tally.last is None or count.since < tally.last or count.kind not in cluster.kinds:
            continue
        tally = tally._replace(
            succeeded=max(tally.succeeded, count.succeeded),
            fresh=max(tally.fresh, count.succeeded),
            otherwise=max(tally.otherwise, count.failed),
            told=True,
        )
    return tally


# ---- in words


def _evidence(
    tally: _ErrorCounts, answer: StillHappens, cluster: ErrorGroup, now: float
) -> Iterable[str]:
    if not tally.told:
        yield "no log says what became of such work"
    kinds = shown(" or ".join(cluster.kinds))
    if tally.last is None:
        yield "neither a log nor the spool says when it was seen"
    else:
        yield f"last seen {_ago(now - tally.last)}"
    if tally.lately and answer is StillHappens.YES:
        fresh = f"{tally.lately_fresh:,} of them new"
        yield f"{_some(tally.lately, 'task')} failed so in the last {lasting(RECENT)}, {fresh}"
    if tally.succeeded:
        yield f"{tally.fresh:,} fresh {kinds or 'tasks'} succeeded since"
    if tally.healed:
        yield f"{_some(tally.healed, 'task')} that failed so succeeded later"
    if tally.otherwise:
        yield f"{tally.otherwise:,} failed otherwise since"
    idle = tally.told and tally.last is not None and not tally.succeeded + tally.otherwise
    if idle and answer is not StillHappens.YES:
        yield f"no {kinds or 'task'} has ended since"
    if tally.failed and tally.ended:
        yield f"while it lasted, {tally.failed:,} of {tally.ended:,} failed so"
    if answer is not StillHappens.NO and tally.succeeded:
        yield f"too few for a no: it takes {tally.needed:,} successes"
    if tally.ahead:
        yield f"left out for being dated in the future: {_some(tally.ahead, 'time')}"


def _some(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _ago(seconds: float) -> str:
    return "just now" if seconds < 1 else f"{lasting(seconds)} ago"


def _brief(seconds: float) -> str:
    """For a column: `12m`, `2h13m`."""
    return lasting(seconds).replace("min", "m").replace(" ", "")
