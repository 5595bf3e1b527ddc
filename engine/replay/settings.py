"""How a replay is to go: how fast, what is tried first, what stops it. Durations are seconds."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NamedTuple

from engine.policy import HOUR, Rate

SLOWEST, FASTEST = 1 / 60, 128.0
"""Tasks a second between which `slower` and `faster` go; "at once" is beyond."""


class RemainderPolicy(StrEnum):
    """What becomes of the tasks that a replay did not send, when it stops."""

    STAY = "stay"
    """They stay in the dead-letter queue."""
    HOLD = "hold"
    """They are held, so that no retention deletes them and nobody retries them."""


class Stops(NamedTuple):
    """What stops a replay; None switches a rule off."""

    same: int | None = 2
    """So many tasks failed again with the very error that they had before."""
    share: float | None = 0.1
    """More than this share (0 to 1) of the last `last` outcomes were failures."""
    last: int = 20
    pending: int | None = None
    """More tasks than this wait in the queue."""
    rest: RemainderPolicy = RemainderPolicy.STAY


class ReplayPace(NamedTuple):
    """How a replay is to go."""

    rate: float | None = 2.0
    """Tasks a second; None: all at once, once the canaries are through."""
    canary: tuple[int, ...] = (1, 10)
    """How many are sent first, then how many next; the outcomes of each are waited for."""
    timeout: float = 120.0
    """Seconds to wait for a real outcome."""
    stops: Stops = Stops()
    attended: bool = True
    """Whether somebody is there to say whether to go on; where nobody is, a doubt stops it."""


def packed(pace: ReplayPace) -> dict[str, Any]:
    """As plain values, for a journal."""
    stops = {**pace.stops._asdict(), "rest": str(pace.stops.rest)}
    return {**pace._asdict(), "canary": list(pace.canary), "stops": stops}


def unpacked(values: Mapping[str, Any]) -> ReplayPace:
    """The pace of which these are the plain values.

    Raises:
        ValueError: they are of none.
    """
    try:
        stops = Stops(**{**values["stops"], "rest": RemainderPolicy(values["stops"]["rest"])})
        return ReplayPace(**{**values, "canary": tuple(map(int, values["canary"])), "stops": stops})
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"expected the values of a pace: {error}") from error


def bucket_rate(rate: float) -> Rate:
    """The rate of a token bucket that lets so many tasks through a second."""
    per_hour = max(1, round(rate * HOUR))
    # A bucket refills in whole seconds: it must hold what comes in one of them, and where that is
    # no whole number, what was left over as well.
    even = per_hour % HOUR == 0 or HOUR % per_hour == 0
    return Rate(per_hour, -(-per_hour // HOUR) + (not even))


def phases(pace: ReplayPace, planned: int) -> tuple[int, ...]:
    """How many tasks are sent in each phase, the canaries first; together all that are planned."""
    sizes: list[int] = []
    for size in pace.canary:
        sizes.append(min(max(0, size), planned - sum(sizes)))
    return (*sizes, planned - sum(sizes))


def faster(rate: float | None) -> float | None:
    """Twice as many a second; what is all at once already is no faster."""
    return None if rate is None else min(FASTEST, max(SLOWEST, rate * 2))


def slower(rate: float | None) -> float:
    """Half as many a second."""
    return FASTEST if rate is None else max(SLOWEST, min(FASTEST, rate / 2))
