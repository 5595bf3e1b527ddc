"""`zgb doctor`: why mails do not arrive, and the command that repairs each problem."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing

from engine.config.validators import ConfigError
from engine.doctor.finding import Finding, bad, ok, run_checks, warn
from engine.doctor.store_checks import list_problems
from engine.formats.base.format import Setup
from engine.formats.zgb import queue_config
from engine.formats.zgb.mail import current_route, mail_settings, why_unready
from engine.formats.zgb.place import KINDS
from engine.formats.zgb.queue_place import (
    CRON_SCHEDULE,
    QueueState,
    ZgbPlace,
    cron_line,
    describe_redirect,
    read_state,
    zgb_place,
)
from engine.formats.zgb.store import ZgbStore
from engine.model import Problem
from engine.policy import UNITS_PER_TOKEN
from engine.store import Unavailable
from engine.system.command_errors import NotReadable
from engine.text.figures import format_count
from engine.text.times import format_rough_duration, format_time

MAX_SHOWN = 10
"""Maximum problems of one kind that are printed."""


def check_queue(setup: Setup) -> Iterator[tuple[str, Finding]]:
    """Check a queue; yields the name of each check and a finding. Changes nothing."""
    try:
        place = zgb_place(setup)
    except NotReadable:
        raise  # no permission is no finding
    except Unavailable as error:
        _, _, why = str(error).partition(": ")
        yield "database", bad(why, _describe_database_repair(setup.place, str(error)))
        return
    yield from run_checks(_checks(place))


def _checks(place: ZgbPlace) -> Iterator[tuple[str, Iterable[Finding]]]:
    where = place.log_location()
    try:
        store = place.open()
    except Unavailable as error:
        yield "database", [bad(str(error), _describe_database_repair(place.path, str(error)))]
        return
    with closing(store):
        state = read_state(store, where.path, time.time())
        yield "database", _database(store)
        yield "switch", _switch(place, state)
        yield "jobs", _jobs(place, state)
        yield "rows", _rows(store)
        yield "records", _records(place, store)
        yield "cron", _cron(place, state)
        yield "rate", _rate(state)
        yield "lease", _lease(place)
        if place.zgb_settings.work_refusal and not state.is_silent:
            why = place.zgb_settings.work_refusal
            yield "letters", [ok(f"ZGB's own worker sends them: {why}")]
        else:
            yield "transport", _transport(place)
            yield "letters", _letters(place, store)
        yield "redirect", _redirect(place, state, store)
        yield "log", _log(place, store)


def _records(place: ZgbPlace, store: ZgbStore) -> Iterator[Finding]:
    """Whether held and trashed jobs are of this database, or of one that had its path before."""
    number = store.count_other()
    if not number:
        yield ok("held and trashed jobs are of this database")
        return
    path = store.place.sidecar_path
    what = f"{format_count(number, 'job')} in {path} held or trashed in another database"
    yield warn(
        f"{what}: used for nothing", f"sqlite3 {shlex.quote(path)} .dump  # see what they are"
    )


def _control(path: str, *words: str) -> str:
    return shlex.join(["spooldeck", "control", *words[:1], path, *words[1:], "--apply", "1"])


_FIXES: Mapping[str, str] = {
    "locked by": "wait, or find the process: fuser -v {path}",
    "damaged": "stop its other programs, then: sqlite3 {path} .recover | sqlite3 {path}.mended",
    "not a SQLite database": "give the path of the database, or restore a backup of it",
    "no mail queue": "give the path of the database, or make a new one: spooldeck zgb init PATH",
    "lacks": "update its tables with the ZGB application",
    "no time zone": "correct stores.zgb.zone and stores.zgb.period_zone",
    "unable to open": "make the folder of {path} writable: SQLite writes journal files there",
    "a write was interrupted": "run that command: it rolls the unfinished write back",
    "in a folder of": "run this as the named user",
    "other users can write to the folder": "chmod go-w that folder, or run this as another user",
    "disk is full": "free space on the disk of {path}",
}
"""The fix of a database problem, by a part of its error text."""


def _describe_database_repair(path: str, why: str) -> str:
    path = os.path.abspath(path)
    if not os.access(path, os.F_OK):
        return "give the path of the database, or restore a backup of it"
    return _find_known_repair(path, why) or "make it readable and writable"


def _find_known_repair(path: str, why: str) -> str:
    named = (fix for sign, fix in _FIXES.items() if sign in why)
    return next(named, "").format(path=shlex.quote(path))


def _database(store: ZgbStore) -> Iterator[Finding]:
    refused = {edge.refusal for edge in store.edges.values()} - {""}
    if refused:
        yield warn(refused.pop(), "run this, and the worker, as a user with write permission")
    else:
        yield ok(f"{store.place.path}: a mail queue, and writable")


def _switch(place: ZgbPlace, state: QueueState) -> Iterator[Finding]:
    if state.settings.is_enabled:
        yield ok("the worker may send: mailQueueEnabled is 1")
    else:
        waiting = f", {state.backlog.waiting:,} waiting" if state.backlog.waiting else ""
        yield warn(f"paused{waiting}", _control(place.path, "mailQueueEnabled", "--value", "1"))


def _jobs(place: ZgbPlace, state: QueueState) -> Iterator[Finding]:
    jobs = state.backlog
    yield ok(f"{jobs.waiting:,} waiting, {jobs.due:,} of them due, {jobs.failed:,} failed")
    if jobs.parked:
        yield warn(
            f"{jobs.parked:,} parked: not retried automatically",
            f"find the cause: spooldeck clusters {shlex.quote(place.path)}; then retry: "
            f"{_control(place.path, 'retryFailed')}",
        )


def _rows(store: ZgbStore) -> Iterator[Finding]:
    """Orphans, invalid leases, unknown values: all problems of a scan."""
    problems = {item.where: item for item in store.scan() if isinstance(item, Problem)}
    # The rate and the test mode have their own checks.
    rows = [p for where, p in problems.items() if where not in ("mailMaxPerHour", "redirect")]
    if not rows:
        yield ok("no orphans, no invalid leases, no unknown values")
    yield from list_problems(rows, lambda problem: _describe_row_repair(problem, store), MAX_SHOWN)


def _describe_row_repair(problem: Problem, store: ZgbStore) -> str:
    path = shlex.quote(store.place.path)
    if problem.where == "orphans":
        return f"to delete them now: {_control(store.place.path, 'deleteOrphans')}"
    if problem.where == "registrations":
        return "set stores.zgb.registrations to the table with a column number"
    return f"inspect it: spooldeck {path}, then correct its columns"


def _cron(place: ZgbPlace, state: QueueState) -> Iterator[Finding]:
    command = cron_line(place.path, place.setup.config.path)
    fix = f"crontab -e, add the line: {CRON_SCHEDULE} {command}"
    sign = state.last_active
    if sign is None:
        yield warn("no run is recorded", fix)
    elif state.is_cron_silent:
        yield warn(f"the last run was {format_rough_duration(state.now - sign)} ago", fix)
    elif state.failure:
        read = f"read the queue's log: spooldeck log {shlex.quote(place.path)}"
        known = _find_known_repair(place.path, state.failure)
        yield bad(f"the last run failed: {state.failure}", known or read)
    else:
        result = f": {state.last_result}" if state.last_result else ""
        yield ok(f"the last run was at {format_time(sign)}{result}")
    rate = state.figures.per_hour
    most = min(rate, state.pace.burst) * UNITS_PER_TOKEN / rate
    if state.usual_gap > most:
        yield warn(
            f"runs are {format_rough_duration(state.usual_gap)} apart; {rate} mails per hour need "
            "one at least "
            f"every {format_rough_duration(most)}",
            fix,
        )


def _rate(state: QueueState) -> Iterator[Finding]:
    if problem := queue_config.rate_problem(state.settings.rate, state.pace):
        yield warn(problem, f"set mailMaxPerHour to a number from 1 to {state.pace.maximum}")
        return
    rate = state.figures.per_hour
    most = rate + min(rate, state.pace.burst)
    yield ok(f"{rate} mails per hour; after a pause up to {most} in one hour")


def _lease(place: ZgbPlace) -> Iterator[Finding]:
    try:
        seconds = mail_settings(place.setup, place.zgb_settings).max_time
    except ConfigError as error:
        yield bad(str(error), "correct this setting")
        return
    if why := place.zgb_settings.lease_problem(seconds):
        yield bad(why, "raise stores.zgb.lease, or lower mail.max_time")
    else:
        yield ok(f"{place.zgb_settings.lease} s; sending takes at most {seconds:g} s")


def _transport(place: ZgbPlace) -> Iterator[Finding]:
    route = current_route(place.setup, place.zgb_settings)
    if route.why:
        yield bad(route.why, route.fix)
        return
    sender = mail_settings(place.setup, place.zgb_settings).sender
    yield ok(f"mail goes by {route.name}, from {sender}")
    if route.stopped:
        yield warn(", ".join(route.stopped), route.resume)
    if route.name == "mailx":
        yield warn(
            "mailx writes the headers itself: no Message-ID of spooldeck, no original recipient of "
            "a redirected mail, plain text only",
            "use any other transport, such as a relay: mail.relay.host",
        )


def _letters(place: ZgbPlace, store: ZgbStore) -> Iterator[Finding]:
    try:
        settings = mail_settings(place.setup, place.zgb_settings)
    except ConfigError:
        return  # reported by the check of the lease
    columns = store.columns()
    for kind in KINDS:
        letter = place.zgb_settings.types[kind]
        if not letter.enabled:
            yield ok(f"{kind}: disabled")
        elif why := why_unready(letter, place.zgb_settings, settings, columns):
            yield bad(f"{kind}: {why}", f"correct stores.zgb.types.{kind}")
        else:
            to = letter.to or (f"column {letter.to_column}" if letter.to_column else "")
            yield ok(f"{kind}: {letter.template}, to {to or settings.recipient}")


def _redirect(place: ZgbPlace, state: QueueState, store: ZgbStore) -> Iterator[Finding]:
    off = _control(place.path, "mailRedirectToSchumbi", "--value", "0")
    if not state.settings.is_redirected:
        yield ok("off")
    elif state.redirection is queue_config.RedirectDecision.UNDECIDABLE:
        fix = "set startDate and endDate to days as YYYY-MM-DD"
        if not store.has_creation_times:
            fix = f"{fix}, and add a created_at to mail_queue or {store.place.registrations}"
        yield warn(
            f"{queue_config.UNDECIDABLE_ERROR}: users' mails wait", f"{fix}, or disable it: {off}"
        )
    elif state.redirection is queue_config.RedirectDecision.REDIRECTED:
        yield warn(f"ON: test mode, users' mails go to {place.zgb_settings.redirect_to}", off)
    else:
        yield ok(describe_redirect(state), off)


def _log(place: ZgbPlace, store: ZgbStore) -> Iterator[Finding]:
    where = place.log_location()
    if where.path:
        yield ok(f"{where.path}, {where.rule}")
    for warning in where.warnings:
        yield warn(
            warning, "make the folder logs in the home folder of cron's user, or set stores.zgb.log"
        )
    if not store.can_identify_jobs:
        yield warn(
            "the table has no created_at, and no AUTOINCREMENT key: a mail that was sent "
            "while its worker was killed may be sent twice",
            "ALTER TABLE mail_queue ADD COLUMN created_at INTEGER, and fill it",
        )
