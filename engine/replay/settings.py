"""Replay settings: rate, canaries and stop rules. Durations are in seconds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any

from engine.model import Edges, State
from engine.policy import UNITS_PER_TOKEN, Rate
from engine.text.typed_json import from_json
from engine.values import NamedTuple

MIN_RATE, MAX_RATE = 1 / 60, 128.0
"""Range of `slower` and `faster` in tasks per second; "no limit" is above it."""


class RemainderPolicy(StrEnum):
    """What happens to unsent tasks when a replay stops."""

    STAY = "stay"
    """They stay where they are."""
    HOLD = "hold"
    """They are held, so that retention does not delete them and no operator retries them by
    mistake."""


class StopRules(NamedTuple):
    """Stop rules of a replay; None disables a rule."""

    same: int | None = 2
    """Stop after this many tasks failed again with the error they had before."""
    share: float | None = 0.1
    """Stop if more than this share (0 to 1) of the last `last` outcomes are failures."""
    last: int = 20
    pending: int | None = None
    """Stop if more tasks than this are pending."""
    rest: RemainderPolicy = RemainderPolicy.STAY


class ReplayPace(NamedTuple):
    """Settings of one replay."""

    rate: float | None = 2.0
    """Tasks per second; None: no limit once the canaries have succeeded."""
    canary: tuple[int, ...] = (1, 10)
    """Sizes of the canaries; after each one, the replay waits for its outcomes."""
    timeout: float = 120.0
    stops: StopRules = StopRules()
    attended: bool = True
    """True if an operator can be asked whether to continue; if not, an unclear canary stops the
    replay."""


def rest_problem(pace: ReplayPace | None, states: Iterable[State], edges: Edges) -> str:
    """Why unsent tasks in these states cannot be held as the pace asks; "" if they can."""
    if pace is None or pace.stops.rest is not RemainderPolicy.HOLD:
        return ""
    stuck = [str(state) for state in states if (state, State.HELD) not in edges]
    return f"unsent tasks cannot be held: {', '.join(stuck)} tasks stay" if stuck else ""


def parse_pace(values: Mapping[str, Any]) -> ReplayPace:
    """Parse the settings in the journal, where they are as `to_json` makes them.

    Raises:
        Malformed: they are invalid, or some are of a later version."""
    return from_json(ReplayPace, values, "pace", exact=True)


def bucket_rate(rate: float) -> Rate:
    """Return the token bucket rate for `rate` tasks per second."""
    per_hour = max(1, round(rate * UNITS_PER_TOKEN))
    # A bucket refills once per second: it must hold one second's tokens, and one more if that is
    # not a whole number.
    even = per_hour % UNITS_PER_TOKEN == 0 or UNITS_PER_TOKEN % per_hour == 0
    return Rate(per_hour, -(-per_hour // UNITS_PER_TOKEN) + (not even))


def phase_sizes(pace: ReplayPace, planned: int) -> tuple[int, ...]:
    """Return the number of tasks in each phase, the canaries first; the sum is `planned`."""
    sizes: list[int] = []
    for size in pace.canary:
        sizes.append(min(max(0, size), planned - sum(sizes)))
    return (*sizes, planned - sum(sizes))


def double_rate(rate: float | None) -> float | None:
    """Return twice the rate; None (no limit) stays None."""
    return None if rate is None else min(MAX_RATE, max(MIN_RATE, rate * 2))


def halve_rate(rate: float | None) -> float:
    """Return half the rate."""
    return MAX_RATE if rate is None else max(MIN_RATE, min(MAX_RATE, rate / 2))
