"""Controls and figures of the whole queue: settings, retry all, delete orphans, rate, backlog."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from engine import policy
from engine.formats.zgb import claims, queue_config, schema
from engine.formats.zgb.connection import OwnerConnection
from engine.formats.zgb.place import PARKED_AHEAD_SECONDS
from engine.formats.zgb.queue_config import REDIRECT_KEY, QueueConfig, load_config
from engine.formats.zgb.schema import Database
from engine.locks.token_buckets import ALL_KINDS, BucketState
from engine.monitor.run_forecast import Pace, token_waits
from engine.store import Control, Outlook, Unavailable, Unsupported
from engine.text.times import format_time
from engine.values import NamedTuple

RETRY_FAILED = "retryFailed"
DELETE_ORPHANS = "deleteOrphans"


def list_controls(settings: QueueConfig, database: Database, now: float) -> Mapping[str, Control]:
    """Return all controls, with a refusal for those that are not allowed now."""
    limits = database.place.rate_limit
    controls = {
        queue_config.ENABLED_KEY: Control(
            "let the worker send",
            value="1 to send, 0 to pause",
            now=_switch_value(settings.is_enabled),
            choices=(("1", "send"), ("0", "pause: jobs wait")),
            is_pause=True,
        ),
        queue_config.RATE_KEY: Control(
            "sending rate",
            value=f"mails an hour, 1 to {limits.maximum}",
            now=str(queue_config.parse_rate(settings.rate, limits).per_hour),
            bounds=(1, limits.maximum),
        ),
        REDIRECT_KEY: _test_mode_control(settings, database, now),
        RETRY_FAILED: Control(
            "make every failed and parked job due now, attempts reset", has_forecast=True
        ),
        DELETE_ORPHANS: Control(
            "delete every job whose registration is gone or newer than the job", has_forecast=True
        ),
    }
    if database.refused:
        return {
            name: control._replace(refusal=database.refused) for name, control in controls.items()
        }
    return controls


def _switch_value(on: bool) -> str:
    return "1" if on else "0"


def _test_mode_control(settings: QueueConfig, database: Database, now: float) -> Control:
    """Build the switch of the test mode.

    Within the registration period it has no effect, but its stored value takes effect again after
    the period. So there it can be switched off but not on."""
    to = database.place.redirect_to
    switch = Control(
        f"send users' mails to {to}, as a test",
        value="1 to redirect, 0 to send normally",
        now=_switch_value(settings.is_redirected),
        choices=(("1", "redirect"), ("0", "send normally")),
    )
    during = settings.period(database.shape)
    if during is None or not during.contains(now):
        return switch
    period = f"registration period {settings.start} to {settings.end}"
    if not settings.is_redirected:
        return switch._replace(refusal=f"{period}: no test mode until {format_time(during.end)}")
    return switch._replace(
        summary=f"test mode is on, without effect in the {period}: from {format_time(during.end)} "
        "on "
        f"users' mails go to {to} again, unless it is switched off",
        value="0 to switch it off, also for the time after the period",
        choices=(("0", "send normally, also after the period"),),
    )


def run_control(database: Database, name: str, value: str, now: float) -> str:
    """Run one control; return the result as text. Raises Unsupported: no such control, it is
    refused now, or the value is invalid; Unavailable: the database cannot be written."""
    if name not in _ACTS:
        raise Unsupported(f"no control {name!r} here")
    if database.refused:
        raise Unsupported(database.refused)
    with database.writing() as db:
        control_row = list_controls(load_config(db), database, now)[name]
        if control_row.refusal:
            raise Unsupported(control_row.refusal)
        if control_row.choices and value not in dict(control_row.choices):
            expected = " or ".join(dict(control_row.choices))
            raise Unsupported(
                f"{name} is {value!r:.40}, expected {expected}: {control_row.summary}"
            )
        return _ACTS[name](db, database, value, now)


def forecast(database: Database, name: str, now: float) -> Outlook:
    """Count what a control would change now, if its `has_forecast` is set. Raises Unsupported: no
    such control, it has no forecast, or it is refused now; Unavailable: the database cannot be
    read."""
    db = database.connection
    control_row = list_controls(load_config(db), database, now).get(name)
    if control_row is None or not control_row.has_forecast:
        raise Unsupported(f"no control {name!r} here that counts what it would change")
    if control_row.refusal:
        raise Unsupported(control_row.refusal)
    count, what = _COUNTS[name](db, database)
    return Outlook(f"{_format_jobs(count)} {what}", count)


def _count_failed(db: OwnerConnection, database: Database) -> tuple[int, str]:
    ((count,),) = db.run("SELECT count(*) FROM mail_queue WHERE status = 'failed'")
    assert isinstance(count, int)
    return count, "failed or parked: due now, attempts reset"


def _count_orphaned(db: OwnerConnection, database: Database) -> tuple[int, str]:
    if not database.place.registrations:
        return 0, "without a registration: the configuration names no table of them"
    orphan_count = claims.count_orphans(db, database)
    if orphan_count is None:
        raise Unavailable(f"{db.path}: {claims.no_registrations_message(database)}")
    return (
        orphan_count.orphans + orphan_count.reused,
        "would be deleted: registration gone or newer",
    )


_COUNTS: Mapping[str, Callable[[OwnerConnection, Database], tuple[int, str]]] = {
    RETRY_FAILED: _count_failed,
    DELETE_ORPHANS: _count_orphaned,
}


def _format_jobs(count: int) -> str:
    return "1 job" if count == 1 else f"{count:,} jobs"


def _switch(key: str, on: str, off: str) -> Callable[[OwnerConnection, Database, str, float], str]:
    def switch(db: OwnerConnection, database: Database, value: str, now: float) -> str:
        queue_config.write_setting(db, key, value)
        return on if value == "1" else off

    return switch


def _set_rate(db: OwnerConnection, database: Database, value: str, now: float) -> str:
    limits, settings = database.place.rate_limit, load_config(db)
    if not value.isascii() or not value.isdecimal() or not 1 <= int(value[:20]) <= limits.maximum:
        raise Unsupported(
            f"{queue_config.RATE_KEY} is {value!r:.40}, expected mails an hour from 1 to "
            f"{limits.maximum}"
        )
    # The time until now counts at the old rate.
    bucket, _ = queue_config.read_bucket(settings.tokens, settings.refilled, now)
    settled = policy.refill_bucket(bucket, queue_config.parse_rate(settings.rate, limits), now)
    if settings.is_enabled:
        tokens, refilled = queue_config.render_bucket(settled)
        queue_config.write_setting(db, queue_config.TOKENS_KEY, tokens)
        queue_config.write_setting(db, queue_config.REFILLED_KEY, refilled)
    queue_config.write_setting(db, queue_config.RATE_KEY, str(int(value)))
    return f"sends {int(value)} mails an hour, burst {queue_config.parse_rate(value, limits).burst}"


def _retry_failed(db: OwnerConnection, database: Database, value: str, now: float) -> str:
    """Make all failed and parked jobs due now, as the button of ZGB's page does. Attempts are
    reset: otherwise a parked job would be parked again after one failure. The last error stays."""
    names = database.shape.forms
    values = {
        "status": "pending",
        "attempts": 0,
        "next_attempt_at": names["next_attempt_at"].format(int(now)),
        "locked_until": None,
        **claims.updated_at(database, now),
    }
    sets = ", ".join(f"{name} = ?" for name in values)
    count = db.change(
        f"UPDATE mail_queue SET {sets} WHERE status = 'failed'", tuple(values.values())
    )
    return f"{_format_jobs(count)} failed or parked: due now"


def _delete_orphans(db: OwnerConnection, database: Database, value: str, now: float) -> str:
    return f"{_format_jobs(len(claims.delete_orphans(db, database, asked=True)))} deleted"


_ACTS: Mapping[str, Callable[[OwnerConnection, Database, str, float], str]] = {
    queue_config.ENABLED_KEY: _switch(
        queue_config.ENABLED_KEY, "the worker sends", "paused: jobs wait"
    ),
    queue_config.RATE_KEY: _set_rate,
    REDIRECT_KEY: _switch(REDIRECT_KEY, "users' mails are redirected", "mails are sent normally"),
    RETRY_FAILED: _retry_failed,
    DELETE_ORPHANS: _delete_orphans,
}


class QueueFigures(NamedTuple):
    """The figures of ZGB's page, and when the backlog is sent."""

    registrations: int | None
    """None if there is no table of registrations."""
    per_hour: int
    tokens: int
    """Whole tokens now, if no token is spent."""
    next_token: float
    """When the next token is available; epoch seconds UTC."""
    drained: float | None
    """Earliest time at which the last waiting job, due or not, is sent at this rate; None while
    paused."""
    drained_terms: str = ""
    """How that is computed, `8 x 1m at 60/h`; "" if there are tokens for all."""


class Backlog(NamedTuple):
    """Numbers of waiting and parked jobs."""

    waiting: int
    """Pending jobs and failed ones that are retried automatically, due or not."""
    due: int
    """Waiting jobs that are due."""
    failed: int
    """Waiting jobs whose last attempt failed."""
    parked: int
    """Jobs that are tried again only if an operator retries them."""


def compute_figures(database: Database, now: float) -> QueueFigures:
    """Compute the figures at a time. Raises Unavailable: the database cannot be read now."""
    db = database.connection
    settings = load_config(db)
    rate = queue_config.parse_rate(settings.rate, database.place.rate_limit)
    bucket, _ = queue_config.read_bucket(settings.tokens, settings.refilled, now)
    current = policy.refill_bucket(bucket, rate, now)
    count = schema.count_registrations(database)
    assert isinstance(count, int | None)
    waiting = count_backlog(database, now).waiting
    bucket_state = BucketState(ALL_KINDS, current.tokens, rate.burst, None, rate.per_hour)
    wait = next(token_waits({ALL_KINDS: waiting}, Pace((bucket_state,)), now, ()), None)
    seconds, terms = (0.0, "") if wait is None else (wait.seconds or 0.0, wait.terms)
    return QueueFigures(
        count,
        rate.per_hour,
        current.tokens,
        policy.next_token_time(current, rate),
        drained=now + seconds if settings.is_enabled else None,
        drained_terms=terms,
    )


def count_backlog(database: Database, now: float) -> Backlog:
    """Count waiting and parked jobs in "mail_queue". Raises Unavailable: the database cannot be
    read now."""
    form = database.shape.forms["next_attempt_at"]
    near = form.format(now + PARKED_AHEAD_SECONDS)
    ((pending, failed, parked, due),) = database.connection.run(
        "SELECT count(*) FILTER (WHERE status = 'pending'),"
        " count(*) FILTER (WHERE status = 'failed' AND next_attempt_at <= ?),"
        " count(*) FILTER (WHERE status = 'failed' AND next_attempt_at > ?),"
        " count(*) FILTER (WHERE next_attempt_at <= ?"
        " AND (status = 'pending' OR status = 'failed' AND ?))"
        " FROM mail_queue",
        (near, near, form.format(int(now)), int(database.place.auto_retry)),
    )
    assert isinstance(pending, int) and isinstance(failed, int)
    assert isinstance(parked, int) and isinstance(due, int)
    if not database.place.auto_retry:
        return Backlog(pending, due, 0, failed + parked)
    return Backlog(pending + failed, due, failed, parked)
