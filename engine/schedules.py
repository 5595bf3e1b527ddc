"""Schedules: named waits in seconds between retries, probes or tries, with a text form.

Four kinds: `exponential` (each wait twice the one before), `linear` (longer by a step each time),
`stepped` (a list, of which the last repeats), `fixed`. As text: `exponential 1m max 15m limit 3`,
`linear 5m +10m limit 5`, `stepped 1m 5m 15m limit 8`, `fixed 30s`, each with an optional
`jitter 0.5`. Nothing here reads a clock or draws a random number."""

# Without `from __future__ import annotations`: named tuples compile each annotation that is text.
from collections.abc import Callable, Mapping, Sequence
from math import inf

from engine.text.durations import UNITS, parse_duration
from engine.values import NamedTuple


class Schedule(NamedTuple):
    """How long to wait before each try after the first one."""

    kind: str
    """A key of `KINDS`."""
    waits: tuple[float, ...]
    """Seconds: the waits of `stepped`, the first wait of the other kinds."""
    step: float = 0.0
    """Seconds by which each wait of `linear` is longer than the one before."""
    ceiling: float = inf
    """No wait is longer, in seconds."""
    limit: int | None = None
    """Number of waits; None: without end."""
    jitter: float = 0.0
    """The share of a wait, from 0 to 1, that a random number may take off."""

    def wait(self, earlier: int, random: float = 0.0) -> float | None:
        """Seconds to wait after so many waits, or None; `random`: 0 to 1, for the jitter."""
        if self.limit is not None and earlier >= self.limit:
            return None
        return self.seconds(earlier, random)

    def seconds(self, earlier: int, random: float = 0.0) -> float:
        """As `wait`, but without a limit on the number of waits."""
        wait = min(self.ceiling, KINDS[self.kind](self, max(earlier, 0)))
        return max(0.0, wait - wait * self.jitter * random)

    def __str__(self) -> str:
        """The text that `parse_schedule` reads."""
        words = [self.kind, *map(format_seconds, self.waits)]
        words += [f"+{format_seconds(self.step)}"] if self.kind == "linear" else []
        words += ["max", format_seconds(self.ceiling)] if self.ceiling < inf else []
        words += ["limit", str(self.limit)] if self.limit is not None else []
        words += ["jitter", f"{self.jitter:g}"] if self.jitter else []
        return " ".join(words)


KINDS: Mapping[str, Callable[[Schedule, int], float]] = {
    # 2**64 exceeds any ceiling, and 2**5000 would overflow a float.
    "exponential": lambda schedule, earlier: schedule.waits[0] * 2.0 ** min(earlier, 64),
    "linear": lambda schedule, earlier: schedule.waits[0] + schedule.step * earlier,
    "stepped": lambda schedule, earlier: schedule.waits[min(earlier, len(schedule.waits) - 1)],
    "fixed": lambda schedule, earlier: schedule.waits[0],
}
"""Kind -> seconds of the wait after so many earlier ones, before ceiling and jitter."""


def exponential(base: float, ceiling: float = inf, limit: int | None = None) -> Schedule:
    """`base`, 2 * `base`, 4 * `base`, ... seconds, at most `ceiling`."""
    return Schedule("exponential", (base,), ceiling=ceiling, limit=limit)


def linear(first: float, step: float, limit: int | None = None) -> Schedule:
    """`first`, `first` + `step`, `first` + 2 * `step`, ... seconds."""
    return Schedule("linear", (first,), step, limit=limit)


def stepped(waits: Sequence[float], limit: int | None = None) -> Schedule:
    """The given seconds in order; the last repeats."""
    return Schedule("stepped", tuple(waits), limit=limit)


def fixed(seconds: float, limit: int | None = None) -> Schedule:
    """The same wait each time."""
    return Schedule("fixed", (seconds,), limit=limit)


NO_RETRY = fixed(0.0, limit=0)
"""No wait, so no further try."""


def parse_schedule(text: str) -> Schedule:
    """Parse the text form of a schedule. Raises `ValueError`, which names the wrong word."""
    kind, *words = text.split() or [""]
    if kind not in KINDS:
        raise ValueError(f"expected one of {', '.join(KINDS)}, not {kind[:20]!r}")
    clauses: dict[str, str] = {}
    while len(words) > 1 and words[-2] in ("max", "limit", "jitter"):
        *words, name, value = words
        if name in clauses:
            raise ValueError(f"{name} is there twice")
        clauses[name] = value
    step = 0.0
    if kind == "linear":
        *words, last = words or [""]
        if not last.startswith("+"):
            raise ValueError(f"expected linear FIRST +STEP, not {last[:20]!r}")
        step = _parse_wait(last[1:])
    if not words or (kind != "stepped" and len(words) > 1):
        raise ValueError(f"expected {'waits' if kind == 'stepped' else 'one wait'} after {kind}")
    return Schedule(
        kind,
        tuple(_parse_wait(word) for word in words),
        step,
        ceiling=_parse_wait(clauses["max"]) if "max" in clauses else inf,
        limit=_parse_limit(clauses["limit"]) if "limit" in clauses else None,
        jitter=_parse_jitter(clauses.get("jitter", "0")),
    )


def format_seconds(seconds: float) -> str:
    """A time like 15m, 1.5s or 20ms, in the largest unit that needs no fraction."""
    for unit in "dhms":
        if seconds and seconds % (size := UNITS[unit]) == 0:
            return f"{seconds / size:.0f}{unit}"
    milliseconds = round(seconds * 1000)
    if seconds < 1 and seconds and milliseconds / 1000 == seconds:
        return f"{milliseconds}ms"
    return f"{seconds:.9f}".rstrip("0").rstrip(".") + "s"


def _parse_wait(word: str) -> float:
    try:
        return parse_duration(word, "s")
    except ValueError as error:
        raise ValueError(f"{error}, not {word[:20]!r}") from None


def _parse_limit(word: str) -> int:
    if not word.isascii() or not word.isdigit() or len(word) > 9:
        raise ValueError(f"expected a number of waits after limit, not {word[:20]!r}")
    return int(word)


def _parse_jitter(word: str) -> float:
    plain = word.isascii() and word.replace(".", "", 1).isdigit() and len(word) <= 20
    if not plain or float(word) > 1:
        raise ValueError(f"expected a share from 0 to 1 after jitter, not {word[:20]!r}")
    return float(word)


def refusal_delay_seconds(refusals: int, first: float = 60.0) -> float:
    """Return the seconds until a refused store operation is tried again: 60, 120, 240, ... up to
    15 times the first, without a limit on the number of retries."""
    return exponential(first, 15 * first).seconds(refusals)


class RetryDelay(NamedTuple):
    """Pause before a refused store operation is tried again."""

    refusals: int = 0
    """Consecutive refusals."""
    since: float = 0.0
    seconds: float = 0.0

    @property
    def until(self) -> float:
        """Time of the next try."""
        return self.since + self.seconds

    def is_over(self, now: float) -> bool:
        """True if it may be tried again, also if the clock was set back."""
        return not 0 <= now - self.since < self.seconds

    def longer(self, now: float, first: float) -> "RetryDelay":
        """Return the next pause, after one more refusal; the first one is `first` seconds long."""
        return RetryDelay(self.refusals + 1, now, refusal_delay_seconds(self.refusals, first))
