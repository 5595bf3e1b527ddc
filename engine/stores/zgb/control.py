"""What can be done to the queue as a whole: their three settings, and their one button."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from engine import policy
from engine.policy import at
from engine.store import Control, Outlook, Unavailable, Unsupported
from engine.stores.zgb import claims, connections_config, token_bucket
from engine.stores.zgb.connection import Connection
from engine.stores.zgb.connections_config import QueueConfig
from engine.stores.zgb.schema import Database

RETRY = "retryFailed"
ORPHANS = "deleteOrphans"


def controls(settings: QueueConfig, book: Database, now: float) -> Mapping[str, Control]:
    """Those that there are, greyed where they are refused now."""
    pace = book.place.pace
    found = {
        connections_config.ENABLED: Control(
            "let the worker send",
            value="1 to send, 0 to pause",
            now=_switched(settings.enabled),
            choices=(("1", "send"), ("0", "pause: jobs wait")),
            pauses=True,
        ),
        connections_config.RATE: Control(
            "how fast it sends",
            value=f"mails an hour, 1 to {pace.most}",
            now=str(token_bucket.rate(settings.rate, pace).per_hour),
            bounds=(1, pace.most),
        ),
        connections_config.REDIRECT: _test_mode(settings, book, now),
        RETRY: Control("make every failed and parked job due now, attempts reset", foretells=True),
        ORPHANS: Control(
            "delete every job whose registration is gone or newer than the job", foretells=True
        ),
    }
    if book.refused:
        return {name: control._replace(refused=book.refused) for name, control in found.items()}
    return found


def _switched(on: bool) -> str:
    return "1" if on else "0"


def _test_mode(settings: QueueConfig, book: Database, now: float) -> Control:
    """The switch of the test mode. Within the registration period it has no effect, but its stored
    value counts again once the period has ended: so it can be switched off there, and not on.
    """
    to = book.place.redirect_to
    switch = Control(
        f"send users' mails to {to}, as a test",
        value="1 to redirect, 0 to send as meant",
        now=_switched(settings.redirected),
        choices=(("1", "redirect"), ("0", "send as meant")),
    )
    during = settings.period(book.shape)
    if during is None or not during.holds(now):
        return switch
    period = f"registration period {settings.start} to {settings.end}"
    if not settings.redirected:
        return switch._replace(refused=f"{period}: no test mode until {at(during.end)}")
    return switch._replace(
        summary=f"test mode is on, without effect in the {period}: from {at(during.end)} on "
        f"users' mails go to {to} again, unless it is switched off",
        value="0 to switch it off, also for the time after the period",
        choices=(("0", "send as meant, also after the period"),),
    )


def act(book: Database, name: str, value: str, now: float) -> str:
    """Do one of them; answers with what happened, in words.

    Raises:
        Unsupported: there is none of that name, it is refused now, or not with this value.
        Unavailable: the database cannot be written.
    """
    if name not in _ACTS:
        raise Unsupported(f"no control {name!r} here")
    if book.refused:
        raise Unsupported(book.refused)
    with book.writing() as wire:
        found = controls(connections_config.load(wire), book, now)[name]
        if found.refused:
            raise Unsupported(found.refused)
        if found.choices and value not in dict(found.choices):
            expected = " or ".join(dict(found.choices))
            raise Unsupported(f"{name} is {value!r:.40}, expected {expected}: {found.summary}")
        return _ACTS[name](wire, book, value, now)


def forecast(book: Database, name: str, now: float) -> Outlook:
    """What a control that `foretells` would do now.

    Raises:
        Unsupported: there is none of that name, it does not foretell, or it is refused now.
        Unavailable: the database cannot be read.
    """
    wire = book.wire
    found = controls(connections_config.load(wire), book, now).get(name)
    if found is None or not found.foretells:
        raise Unsupported(f"no control {name!r} here that counts what it would change")
    if found.refused:
        raise Unsupported(found.refused)
    count, what = _COUNTS[name](wire, book)
    return Outlook(f"{_jobs(count)} {what}", count)


def _failed(wire: Connection, book: Database) -> tuple[int, str]:
    ((count,),) = wire.run("SELECT count(*) FROM mail_queue WHERE status = 'failed'")
    assert isinstance(count, int)
    return count, "failed or parked: due now, attempts reset"


def _orphaned(wire: Connection, book: Database) -> tuple[int, str]:
    if not book.place.registrations:
        return 0, "without a registration: the configuration names no table of them"
    found = claims.count_orphans(wire, book)
    if found is None:
        raise Unavailable(f"{wire.path}: {claims.no_registrations(book)}")
    return found.orphans + found.strangers, "would be deleted: registration gone or newer"


_COUNTS: Mapping[str, Callable[[Connection, Database], tuple[int, str]]] = {
    RETRY: _failed,
    ORPHANS: _orphaned,
}


def _jobs(count: int) -> str:
    return "1 job" if count == 1 else f"{count:,} jobs"


def _switch(key: str, on: str, off: str) -> Callable[[Connection, Database, str, float], str]:
    def switch(wire: Connection, book: Database, value: str, now: float) -> str:
        connections_config.put(wire, key, value)
        return on if value == "1" else off

    return switch


def _set_rate(wire: Connection, book: Database, value: str, now: float) -> str:
    pace, settings = book.place.pace, connections_config.load(wire)
    if not value.isascii() or not value.isdecimal() or not 1 <= int(value[:20]) <= pace.most:
        raise Unsupported(
            f"{connections_config.RATE} is {value!r:.40}, "
            f"expected mails an hour from 1 to {pace.most}"
        )
    # The time until now went by at the old rate.
    found, _ = token_bucket.read(settings.tokens, settings.refilled, now)
    settled = policy.refill(found, token_bucket.rate(settings.rate, pace), now)
    if settings.enabled:
        tokens, refilled = token_bucket.written(settled)
        connections_config.put(wire, connections_config.TOKENS, tokens)
        connections_config.put(wire, connections_config.REFILLED, refilled)
    connections_config.put(wire, connections_config.RATE, str(int(value)))
    return (
        f"sends {int(value)} mails an hour, {token_bucket.rate(value, pace).burst} at once at most"
    )


def _retry(wire: Connection, book: Database, value: str, now: float) -> str:
    """The button of their page. Attempts are reset: else a parked job would be parked again after
    one more failure. The last error is kept."""
    names = book.shape.forms
    values = {
        "status": "pending",
        "attempts": 0,
        "next_attempt_at": names["next_attempt_at"].write(int(now)),
        "locked_until": None,
        **claims.stamp(book, now),
    }
    sets = ", ".join(f"{name} = ?" for name in values)
    count = wire.change(
        f"UPDATE mail_queue SET {sets} WHERE status = 'failed'", tuple(values.values())
    )
    return f"{_jobs(count)} failed or parked: due now"


def _delete_orphans(wire: Connection, book: Database, value: str, now: float) -> str:
    return f"{_jobs(len(claims.delete_orphans(wire, book, asked=True)))} deleted"


_ACTS: Mapping[str, Callable[[Connection, Database, str, float], str]] = {
    connections_config.ENABLED: _switch(
        connections_config.ENABLED, "the worker sends", "paused: jobs wait"
    ),
    connections_config.RATE: _set_rate,
    connections_config.REDIRECT: _switch(
        connections_config.REDIRECT,
        "users' mails are redirected",
        "mails go where they are meant to",
    ),
    RETRY: _retry,
    ORPHANS: _delete_orphans,
}
