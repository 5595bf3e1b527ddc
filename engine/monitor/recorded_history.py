"""Read recorded samples back: the state of a place at a past moment, and the gaps."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter

from engine.locks.token_buckets import is_queue_stopped
from engine.model import State
from engine.monitor.alerts import Alert
from engine.monitor.recorder import SAMPLE_INTERVAL_SECONDS, EncodedSample
from engine.monitor.sample_codec import BadSample, RecordedSample, decode_alerts, decode_sample
from engine.monitor.throughput import (
    HISTORY_SECONDS,
    FlowHistory,
    FlowSeries,
    Sample,
    count_unfinished,
)
from engine.monitor.transport_health import CountWindow, DeliveryCounts, Source, TransportHealth
from engine.values import NamedTuple

MAX_SAMPLE_AGE_SECONDS = 2.5 * SAMPLE_INTERVAL_SECONDS
"""Maximum age in seconds of a sample that still describes a moment: one sample may be late or lost.
"""

FINE_STEP_SECONDS, COARSE_STEP_SECONDS = SAMPLE_INTERVAL_SECONDS, 60.0
"""Step length in seconds: normal, and after many steps in a row (key held down)."""

FINE_STEPS = 20
"""Steps in one direction after which they become coarse."""

_KEPT = 256
"""Decoded samples kept in memory: several screens read the same ones."""


class MissingSpan(NamedTuple):
    """A span without samples; None: no known end on that side."""

    after: float | None
    before: float | None


class RecordedHistory:
    """The recorded samples of one place, the earliest first."""

    def __init__(
        self, moments: Iterable[EncodedSample], place: str, last: RecordedSample | None = None
    ) -> None:
        """`last` is the present sample if no process has recorded it."""
        self._moments = sorted(moments, key=attrgetter("at"))
        self._place = place
        self._samples: dict[float, RecordedSample | None] = {}
        if last is not None:
            del self._moments[bisect_left(self._moments, last.when, key=attrgetter("at")) :]
            self._moments.append(EncodedSample(last.when, b""))
        self._last = last

    def __len__(self) -> int:
        return len(self._moments)

    @property
    def times(self) -> Sequence[float]:
        """Times of the samples, epoch seconds UTC."""
        return [moment.at for moment in self._moments]

    def alerts(self) -> Iterator[tuple[float, tuple[Alert, ...]]]:
        """Yield the time and the alerts of each sample; none is kept, so any thread may do it."""
        last = self._last
        moments = self._moments if last is None else self._moments[:-1]
        yield from zip(
            (moment.at for moment in moments),
            decode_alerts((moment.data for moment in moments), self._place),
            strict=True,
        )
        if last is not None:
            yield last.when, last.alerts

    def at(self, when: float) -> RecordedSample | MissingSpan:
        """Return the last sample at or before a moment if it is recent enough, else the gap."""
        after = self._upto(when)
        before = self._moments[after + 1].at if after + 1 < len(self._moments) else None
        if after < 0:
            return MissingSpan(None, before)
        moment = self._moments[after]
        sample = self._sample(moment) if when - moment.at <= MAX_SAMPLE_AGE_SECONDS else None
        return MissingSpan(moment.at, before) if sample is None else sample

    def series(self, now: float, seconds: float, steps: int) -> FlowSeries:
        """Return the course of the last `seconds` up to `now` in `steps` equal parts, as far as
        recorded."""
        length = seconds / steps
        first = int(now // length) - steps + 1
        parts: list[list[RecordedSample]] = [[] for _ in range(steps)]
        for sample in self._whole_samples(first * length, now):
            at = int(sample.when // length) - first
            if 0 <= at < steps:
                parts[at].append(sample)
        rows, before = [], None
        for part in parts:
            rows.append(_course(part, before))
            before = part[-1] if part else before
        waiting = (one.counts.get(State.PENDING, 0) for part in parts for one in part)
        inward, outward, dead, backlog = zip(*rows, strict=True)
        return FlowSeries(inward, outward, dead, backlog, max(waiting, default=None))

    def _whole_samples(self, since: float, until: float) -> Iterator[RecordedSample]:
        """The samples with all counts in a span, from the last one at or before it."""
        for moment in self._moments[max(0, self._upto(since)) : self._upto(until) + 1]:
            sample = self._sample(moment)
            if sample is not None and sample.complete and not sample.unavailable:
                yield sample

    def flow_until(self, when: float) -> FlowHistory:
        """Return the history of counts up to a moment, as far as recorded."""
        flow = FlowHistory(has_flow=False)
        for sample in self._whole_samples(when - HISTORY_SECONDS, when):
            flow.add(sample.when, 0, 0, sample.counts)
            is_stopped = is_queue_stopped(sample.lock, sample.tokens)
            flow.note_worker_state(sample.when, is_stopped=is_stopped)
        return flow

    def has_arrivals(self, when: float) -> bool:
        """True if a recorded rate of the ten minutes before a moment shows that tasks came."""
        since = when - HISTORY_SECONDS
        rates = (one.rates for one in self._whole_samples(since, when) if one.when > since)
        return any(rate is not None and rate.inward > 0 for rate in rates)

    def samples_until(self, when: float) -> list[Sample]:
        """Return the counts up to a moment, as far as recorded, with the tasks that came and left
        from the recorded rates."""
        samples: list[Sample] = []
        for one in self._whole_samples(when - HISTORY_SECONDS, when):
            added, removed = 0.0, 0.0
            if samples:
                last = samples[-1]
                more = count_unfinished(one.counts) - count_unfinished(last.counts)
                out = 0.0 if one.rates is None else one.rates.outward * (one.when - last.when)
                out = max(out, -more)
                added, removed = last.added + more + out, last.removed + out
            samples.append(Sample(one.when, added, removed, one.counts))
        return samples

    def transports(self, sample: RecordedSample) -> tuple[TransportHealth, ...]:
        """Return the transports of a sample; missing windows are computed from the totals of
        earlier samples."""
        return tuple(
            way._replace(windows=tuple(self._window(way, w, sample.when) for w in way.windows))
            for way in sample.transports
        )

    def _window(self, transport: TransportHealth, window: CountWindow, when: float) -> CountWindow:
        if window.tally is not None or transport.totals is None:
            return window
        before = self.at(when - window.seconds)
        others = before.transports if isinstance(before, RecordedSample) else ()
        first = next((other.totals for other in others if other.name == transport.name), None)
        if first is None:
            return window
        grown = (max(0, now - then) for now, then in zip(transport.totals, first, strict=True))
        known = window._replace(known_seconds=window.seconds, source=Source.METRICS, reason="")
        return known._replace(tally=DeliveryCounts(*grown))

    def _upto(self, when: float) -> int:
        """Index of the last sample at or before a time; -1 if none."""
        return bisect_right(self._moments, when, key=attrgetter("at")) - 1

    def _sample(self, moment: EncodedSample) -> RecordedSample | None:
        """Decode a sample; None if that is not possible."""
        if self._last is not None and moment.at == self._last.when:
            return self._last
        if moment.at not in self._samples:
            if len(self._samples) >= _KEPT:
                self._samples.clear()
            try:
                sample = decode_sample(moment.data, self._place)
                self._samples[moment.at] = sample._replace(when=moment.at)
            except BadSample:
                self._samples[moment.at] = None
        return self._samples[moment.at]


def _course(
    part: Sequence[RecordedSample], before: RecordedSample | None
) -> tuple[float | None, ...]:
    """Means of some samples: tasks in and out per second, new dead ones, and backlog."""
    if not part:
        return None, None, None, None
    rates = [sample.rates for sample in part if sample.rates is not None]
    first, last = before or part[0], part[-1]
    seconds = last.when - first.when
    more = last.counts.get(State.DEAD, 0) - first.counts.get(State.DEAD, 0)
    waiting = [sample.counts.get(State.PENDING, 0) for sample in part]
    return (
        sum(rate.inward for rate in rates) / len(rates) if rates else None,
        sum(rate.outward for rate in rates) / len(rates) if rates else None,
        max(0, more) / seconds if seconds > 0 else None,
        sum(waiting) / len(waiting),
    )


def step_seconds(run: int) -> float:
    """Length of the next step in seconds, after `run` steps in the same direction without a
    pause."""
    return FINE_STEP_SECONDS if run < FINE_STEPS else COARSE_STEP_SECONDS


def step_time(histories: Sequence[RecordedHistory], when: float, by: float) -> float | None:
    """Return the time reached by a step back (negative) or forward; None if there are no samples in
    that direction. A span without samples in any place takes two steps: into it, and out of it."""
    goal = when + by
    reached = [history.at(goal) for history in histories]
    if any(isinstance(sample, RecordedSample) for sample in reached):
        return goal
    gaps = [gap for gap in reached if isinstance(gap, MissingSpan)]
    if by < 0:
        edges = [gap.after for gap in gaps if gap.after is not None]
    else:
        edges = [gap.before for gap in gaps if gap.before is not None]
    if not edges:
        return None
    was_known = any(isinstance(history.at(when), RecordedSample) for history in histories)
    return goal if was_known else max(edges) if by < 0 else min(edges)
