"""Back through recorded time: what was so at a moment, and where there is nothing to say."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import NamedTuple

from engine.monitor.recorder import PERIOD, RecordedMoment
from engine.monitor.sample_codec import BadSample, RecordedSample, unpack
from engine.monitor.throughput import SPAN, Flow
from engine.monitor.transport_health import CountWindow, DeliveryCounts, Source, TransportHealth

GAP = 2.5 * PERIOD
"""Seconds after which a moment says nothing of what comes after it: one may be late, or lost."""

FINE, COARSE = PERIOD, 60.0
"""Seconds of a step, and of one of many that come one after the other: the key is held."""

HELD = 20
"""Steps in one direction after which they become longer."""

_KEPT = 256
"""Moments that are kept unpacked: more than one screen asks for."""


class MissingSpan(NamedTuple):
    """A stretch of time of which nothing is recorded; None: it has no end that is known."""

    after: float | None
    before: float | None


class RecordedHistory:
    """The moments of one place, the earliest first."""

    def __init__(
        self, moments: Iterable[RecordedMoment], place: str, last: RecordedSample | None = None
    ) -> None:
        """`last` is what is known of now, when nobody wrote it down."""
        self._moments = sorted(moments, key=attrgetter("at"))
        self._place = place
        self._samples: dict[float, RecordedSample | None] = {}
        if last is not None:
            del self._moments[bisect_left(self._moments, last.when, key=attrgetter("at")) :]
            self._moments.append(RecordedMoment(last.when, b""))
        self._last = last

    def __len__(self) -> int:
        return len(self._moments)

    @property
    def times(self) -> Sequence[float]:
        """When something was written down, epoch seconds UTC."""
        return [moment.at for moment in self._moments]

    def at(self, when: float) -> RecordedSample | MissingSpan:
        """What was so at a moment: the last that was written down until then, if that is recent."""
        after = self._upto(when)
        before = self._moments[after + 1].at if after + 1 < len(self._moments) else None
        if after < 0:
            return MissingSpan(None, before)
        moment = self._moments[after]
        found = self._sample(moment) if when - moment.at <= GAP else None
        return MissingSpan(moment.at, before) if found is None else found

    def lately(self, when: float, over: float = SPAN) -> Flow:
        """How it went until a moment, as far as it was written down."""
        flow = Flow()
        first = max(0, self._upto(when - over))
        for moment in self._moments[first : self._upto(when) + 1]:
            found = self._sample(moment)
            if found is not None and found.complete and not found.unavailable:
                flow.add(found.when, 0, 0, found.counts)
        return flow

    def transports(self, found: RecordedSample) -> tuple[TransportHealth, ...]:
        """How mail was sent then: where only totals were written down, told from those before."""
        return tuple(
            way._replace(windows=tuple(self._window(way, w, found.when) for w in way.windows))
            for way in found.transports
        )

    def _window(self, way: TransportHealth, window: CountWindow, when: float) -> CountWindow:
        if window.tally is not None or way.totals is None:
            return window
        before = self.at(when - window.seconds)
        others = before.transports if isinstance(before, RecordedSample) else ()
        first = next((other.totals for other in others if other.name == way.name), None)
        if first is None:
            return window
        tally = DeliveryCounts(
            *(max(0, now - then) for now, then in zip(way.totals, first, strict=True))
        )
        return window._replace(tally=tally, source=Source.METRICS, reason="")

    def _upto(self, when: float) -> int:
        """Which moment is the last one at or before another; -1 where none is."""
        return bisect_right(self._moments, when, key=attrgetter("at")) - 1

    def _sample(self, moment: RecordedMoment) -> RecordedSample | None:
        """None for one that cannot be read: nothing is known of it."""
        if self._last is not None and moment.at == self._last.when:
            return self._last
        if moment.at not in self._samples:
            if len(self._samples) >= _KEPT:
                self._samples.clear()
            try:
                found = unpack(moment.data, self._place)
                self._samples[moment.at] = found._replace(when=moment.at)
            except BadSample:
                self._samples[moment.at] = None
        return self._samples[moment.at]


def stride(run: int) -> float:
    """Seconds of the next step, after so many in the same direction without a pause."""
    return FINE if run < HELD else COARSE


def step(tapes: Sequence[RecordedHistory], when: float, by: float) -> float | None:
    """Where a step of so many seconds leads to, back or ahead; None where nothing comes any more.

    A stretch of which no place has anything is passed in two steps: into it, and out of it.
    """
    goal = when + by
    there = [tape.at(goal) for tape in tapes]
    if any(isinstance(found, RecordedSample) for found in there):
        return goal
    gaps = [found for found in there if isinstance(found, MissingSpan)]
    if by < 0:
        ends = [gap.after for gap in gaps if gap.after is not None]
    else:
        ends = [gap.before for gap in gaps if gap.before is not None]
    if not ends:
        return None
    was_known = any(isinstance(tape.at(when), RecordedSample) for tape in tapes)
    return goal if was_known else max(ends) if by < 0 else min(ends)
