"""When a thread is tried again, and when a job is too old: pure functions of numbers.

A thread waits `retries[i] * interval` seconds after its last attempt; past the end of the list it
goes on at a random place (scheduler(8zm), `retries`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from engine.formats.zmailer.scheduling.jobs import DAY_SECONDS, ClauseSettings
from engine.schedules import stepped

MIN_WAIT_SECONDS = 1.0
"""The shortest wait: that of `retries=0`, and of a `retryat` with a time that is past."""


class Wake(NamedTuple):
    """When a thread is tried next."""

    due: float
    """Epoch seconds UTC."""
    step: int
    """Place in the retries for the wait after this one."""


def next_wake(
    settings: ClauseSettings, index: int, now: float, random: Callable[[], float]
) -> Wake:
    """The next try of a thread whose attempt ends now; `random` draws a number below 1."""
    retries = settings.retries or (1,)
    if index >= len(retries):
        index = int(random() * len(retries))
    wait = settings.interval * stepped(retries).seconds(index)
    due = round_up(now + wait, settings) if settings.skew else now + wait
    return Wake(max(due, now + MIN_WAIT_SECONDS), index + 1)


def round_up(due: float, settings: ClauseSettings) -> float:
    """A time rounded up to a multiple of interval / skew seconds, so that threads wake together."""
    unit = settings.interval / settings.skew
    return due if unit <= 0 else -(-due // unit) * unit


def expires_at(settings: ClauseSettings, modified: float) -> float:
    """When a job that was tried is too old, by the time of its message; infinite: never."""
    return float("inf") if settings.expiry is None else modified + settings.expiry


def expires_untried_at(settings: ClauseSettings, expires: float) -> float:
    """When a job is too old although no agent has tried it."""
    return expires + (settings.expiry2 or DAY_SECONDS)


def is_expired(settings: ClauseSettings, expires: float, attempts: int, now: float) -> bool:
    """True if a job is too old now."""
    limit = expires if attempts else expires_untried_at(settings, expires)
    return now >= limit
