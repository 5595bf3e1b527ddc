"""Same now? Whether an error that once was still happens to fresh work, and how one can tell.

Only what ended can tell: a task that succeeded, or failed, since the error was last seen. One
success says little about an error that one task in ten gets; so it takes as many as make it
unlikely that the error only was lucky to stay away.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from enum import StrEnum
from operator import itemgetter
from typing import NamedTuple, Protocol

from engine.events import Event, What
from engine.policy import lasting
from engine.text import shown

RECENT = 600.0
"""Seconds for which an error that was seen counts as still happening, unless others ended well."""

SURE = 3.0
"""Of something that happens once in n, 3 n trials without it say, by 95 in 100, that it ended."""

ASSUMED = 0.3
"""The share of tasks that get an error, where no log tells: then 10 successes make a no."""

AHEAD = 60.0
"""Seconds by which a log's clock may be ahead of ours."""


class Answer(StrEnum):
    """Whether it is the same now."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "?"


class Now(NamedTuple):
    """The answer, and what it rests on."""

    answer: Answer
    words: str
    """For a column: `yes`, `no (12m)` (last seen so long ago), `?`."""
    evidence: tuple[str, ...]
    """Plain sentences, safe to show, the telling one first."""


class Kin(Protocol):
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


class _Tally(NamedTuple):
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
        share = self.failed / self.ended if self.failed and self.ended else ASSUMED
        return math.ceil(SURE / min(1.0, share))


def same_now(
    cluster: Kin, events: Sequence[Event], now: float, counted: Iterable[Counted] = ()
) -> Now:
    """Whether what `cluster` is about still happens at `now`, epoch seconds UTC.

    `events` are all that the logs tell, in any order: their cost is one look at each.
    """
    tally = _with_counters(_weighed(cluster, events, now), cluster, counted)
    answer = _judged(tally, now)
    words = str(answer)
    if answer is Answer.NO and tally.last is not None:
        words = f"no ({_brief(now - tally.last)})"
    return Now(answer, words, tuple(_evidence(tally, answer, cluster, now)))


def _judged(tally: _Tally, now: float) -> Answer:
    if not tally.told or tally.last is None:
        return Answer.UNKNOWN
    if tally.succeeded >= tally.needed:
        return Answer.NO
    return Answer.YES if now - tally.last <= RECENT else Answer.UNKNOWN


_BEGINNINGS = (What.QUEUED, What.STARTED)


def _weighed(cluster: Kin, events: Sequence[Event], now: float) -> _Tally:
    """What the logs and the spool say of this error."""
    dated = [(e.when, e) for e in events if e.when is not None and e.when <= now + AHEAD]
    ahead = sum(e.when is not None and e.when > now + AHEAD for e in events)
    had = [(when, e) for when, e in dated if e.mark == cluster.mark]
    seen = [when for when, _ in had]
    if cluster.last is not None and cluster.last <= now + AHEAD:
        seen.append(cluster.last)
    ahead += cluster.last is not None and cluster.last > now + AHEAD
    last = max(seen, default=None)
    if last is None:
        return _Tally(None, ahead=ahead, told=bool(dated))
    # An attempt at a mail that is no task is not its end.
    ours = {_who(e) for _, e in had if e.id or e.what is What.BURIED}
    lately = {_who(e) for when, e in had if when > now - RECENT} & ours
    first = min((when for when, _ in had), default=last)
    had_it = {_who(e): when for when, e in sorted(had, key=itemgetter(0))}
    transports = {e.transport for _, e in had if e.transport}
    alike = [(when, _who(e), e) for when, e in dated if _is_alike(e, cluster, transports)]
    well = [(when, who) for when, who, e in alike if e.what is What.SUCCEEDED]
    badly = [(when, who) for when, who, e in alike if e.error and e.mark != cluster.mark]
    old = {who for when, who, e in alike if e.what in _BEGINNINGS and when <= now - RECENT}
    since = {who for when, who in well if when > last}
    return _Tally(
        last,
        failed=len(ours),
        ended=len(ours | {who for when, who in well + badly if first <= when <= last}),
        lately=len(lately),
        lately_fresh=len(lately - old),
        succeeded=len(since),
        fresh=len(since - ours),
        healed=len({who for when, who in well if when >= had_it.get(who, math.inf)}),
        otherwise=len({who for when, who in badly if when > last} - since),
        ahead=ahead,
        told=bool(dated),
    )


def _who(event: Event) -> str:
    """The task; a mail that is none is told apart by its line."""
    return event.id or f"\n{event.when}{event.line.text}"


def _is_alike(event: Event, cluster: Kin, transports: set[str]) -> bool:
    """Whether an event is of work that could have had this error."""
    if cluster.kinds and event.kind not in cluster.kinds:
        return False
    # What was sent another way says nothing of the way that fails.
    return not transports or not event.transport or event.transport in transports


def _with_counters(tally: _Tally, cluster: Kin, counted: Iterable[Counted]) -> _Tally:
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


def _evidence(tally: _Tally, answer: Answer, cluster: Kin, now: float) -> Iterable[str]:
    if not tally.told:
        yield "no log says what became of such work"
    kinds = shown(" or ".join(cluster.kinds))
    if tally.last is None:
        yield "neither a log nor the spool says when it was seen"
    else:
        yield f"last seen {_ago(now - tally.last)}"
    if tally.lately and answer is Answer.YES:
        fresh = f"{tally.lately_fresh:,} of them new"
        yield f"{_some(tally.lately, 'task')} failed so in the last {lasting(RECENT)}, {fresh}"
    if tally.succeeded:
        yield f"{tally.fresh:,} fresh {kinds or 'tasks'} succeeded since"
    if tally.healed:
        yield f"{_some(tally.healed, 'task')} that failed so succeeded later"
    if tally.otherwise:
        yield f"{tally.otherwise:,} failed otherwise since"
    if tally.told and tally.last is not None and not tally.succeeded and not tally.otherwise:
        yield f"no {kinds or 'task'} has ended since"
    if tally.failed and tally.ended:
        yield f"while it lasted, {tally.failed:,} of {tally.ended:,} failed so"
    if answer is not Answer.NO and tally.succeeded:
        yield f"too few to tell: it takes {tally.needed:,} successes"
    if tally.ahead:
        yield f"left out for being dated in the future: {_some(tally.ahead, 'time')}"


def _some(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _ago(seconds: float) -> str:
    return "just now" if seconds < 1 else f"{lasting(seconds)} ago"


def _brief(seconds: float) -> str:
    """For a column: `12m`, `2h13m`."""
    return lasting(seconds).replace("min", "m").replace(" ", "")
