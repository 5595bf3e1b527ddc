"""The line of facts above the task list: lock, rates, waiting and run times, rate limits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from engine.locks.token_buckets import BucketState
from engine.model import LockEvidence
from engine.monitor.latency import KindFigures
from engine.monitor.throughput import Rates
from engine.places.place import Place
from engine.text.figure import UNKNOWN
from engine.text.figures import format_rate
from engine.text.safe import safe_line
from tui.text.lines import Line, fact_line
from tui.text.lock import ALARMING_VERDICTS, lock_line
from tui.text.times import format_minutes
from tui.widgets.line_widgets import Lines


class Latency(NamedTuple):
    """95th percentiles, in seconds."""

    wait: float
    """From the due time to the claim."""
    run: float


def slowest_latency(kinds: Iterable[KindFigures]) -> Latency | None:
    """The largest waiting and running times of all kinds; None if one of them is not known."""
    waits = [kind.wait_p95 for kind in kinds if kind.wait_p95 is not None]
    runs = [kind.run_p95 for kind in kinds if kind.run_p95 is not None]
    return Latency(max(waits), max(runs)) if waits and runs else None


class LockLineFacts(NamedTuple):
    """What the line of facts shows besides the lock."""

    rates: Rates | None = None
    tokens: Sequence[BucketState] | str = ()
    latency: Latency | None = None
    """None if it is not known."""
    worker: int | None = None
    """PID of the worker started here, for a place without a lock."""


class LockLine(Lines):
    """Lock and facts of a place; the screen must keep the line visible while `alarms` is set."""

    def __init__(self, place: Place, read_only: bool) -> None:
        super().__init__(id="lock")
        self._place, self._read_only = place, read_only
        self.alarms = False

    @property
    def refusal(self) -> str:
        """Why the lock screen cannot be opened; "" if it can."""
        return self._place.why_no_unlock(self._read_only)

    def show_facts(
        self, evidence: LockEvidence | None, facts: LockLineFacts, now: float, width: int
    ) -> None:
        """Show the last evidence and the facts; `now` in epoch seconds UTC."""
        self.alarms = evidence is not None and evidence.verdict in ALARMING_VERDICTS
        parts = fact_parts(facts)
        if self._place.lock is not None:
            key = "" if self.refusal else "U"
            line = lock_line(evidence, now, width, key, parts)
        else:
            lead: Line = ((" ", ""),)
            if self._place.has_leases:
                lead = ((f" {self._place.no_lock}", "muted"),)
            if facts.worker is not None:
                lead += ((f"  worker PID {facts.worker}", ""), (", W", "key"), (" stops it", ""))
            line = fact_line([lead, *parts], width)
        self.show([line])


def fact_parts(facts: LockLineFacts) -> list[Line]:
    """Rates, latency and rate limits; one that the place does not have is omitted."""
    rates = facts.rates
    inward, outward = (UNKNOWN, UNKNOWN) if rates is None else map(format_rate, rates[:2])
    style = "unknown" if rates is None else ""
    in_runs: Line = (("in ", "muted"), (inward, style))
    parts: list[Line] = [(*in_runs, ("  out ", "muted"), (outward, style))]
    if facts.latency is not None:
        wait, run = (
            f"{seconds:.1f}s" if seconds < 10 else format_minutes(seconds)
            for seconds in facts.latency
        )
        parts.append((("wait p95 ", "muted"), (wait, ""), ("  run p95 ", "muted"), (run, "")))
    if isinstance(facts.tokens, str):
        return [*parts, (("rate limit ", "muted"), (f"? {safe_line(facts.tokens)}", "unknown"))]
    for at, bucket in enumerate(facts.tokens):
        lead = "" if at else "rate limit "
        left = "PAUSED" if bucket.paused else f"{bucket.tokens} of {bucket.burst} tokens"
        amount = f"{safe_line(bucket.name)} {left}"
        parts.append(((lead, "muted"), (amount, "" if bucket.tokens else "warn")))
    return parts
