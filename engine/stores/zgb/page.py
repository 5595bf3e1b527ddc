"""What their page shows of the queue as a whole: its pace, and how much waits."""

from __future__ import annotations

from typing import NamedTuple

from engine import policy
from engine.stores.zgb import connections_config, schema, token_bucket
from engine.stores.zgb.place import FAR
from engine.stores.zgb.schema import Database


class QueueFigures(NamedTuple):
    """What their page shows, and what follows from it."""

    registrations: int | None
    """None where there is no table of them."""
    per_hour: int
    tokens: int
    """Whole tokens now, if nobody spends."""
    next_token: float
    """When there is one; epoch seconds UTC."""
    drained: float | None
    """When the last of all waiting jobs, due or not, is sent at this rate, at the earliest; None
    while it is paused."""


class Backlog(NamedTuple):
    """How many jobs wait."""

    waiting: int
    """To be sent, or to be tried again by themselves, now or later."""
    due: int
    """Of these, by now."""
    failed: int
    """Of these, after a failure."""
    parked: int
    """Given up on: until somebody has them tried again."""


def figures(book: Database, now: float) -> QueueFigures:
    """The pace, as it is at a moment.

    Raises:
        Unavailable: the database cannot be read now.
    """
    wire = book.wire
    settings = connections_config.load(wire)
    rate = token_bucket.rate(settings.rate, book.place.pace)
    found, _ = token_bucket.read(settings.tokens, settings.refilled, now)
    current = policy.refill(found, rate, now)
    count = schema.count_registrations(book)
    assert isinstance(count, int | None)
    waiting = backlog(book, now).waiting
    drained = now + policy.spending_seconds(waiting, current.tokens, rate.per_hour)
    return QueueFigures(
        count,
        rate.per_hour,
        current.tokens,
        policy.next_token(current, rate),
        drained if settings.enabled else None,
    )


def backlog(book: Database, now: float) -> Backlog:
    """How many jobs wait among theirs.

    Raises:
        Unavailable: the database cannot be read now.
    """
    form = book.shape.forms["next_attempt_at"]
    near = form.write(now + FAR)
    ((pending, failed, parked, due),) = book.wire.run(
        "SELECT count(*) FILTER (WHERE status = 'pending'),"
        " count(*) FILTER (WHERE status = 'failed' AND next_attempt_at <= ?1),"
        " count(*) FILTER (WHERE status = 'failed' AND next_attempt_at > ?1),"
        " count(*) FILTER (WHERE next_attempt_at <= ?2"
        " AND (status = 'pending' OR status = 'failed' AND ?3))"
        " FROM mail_queue",
        (near, form.write(int(now)), int(book.place.auto_retry)),
    )
    assert isinstance(pending, int) and isinstance(failed, int)
    assert isinstance(parked, int) and isinstance(due, int)
    if not book.place.auto_retry:
        return Backlog(pending, due, 0, failed + parked)
    return Backlog(pending + failed, due, failed, parked)
