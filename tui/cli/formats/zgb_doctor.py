"""`zgb doctor`: why mails do not arrive, each reason with what mends it."""

from __future__ import annotations

import os
import shlex
import time
from argparse import Namespace
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from typing import TypeAlias

from engine.config.validators import ConfigError
from engine.doctor.finding import Finding, Grade, line, needs_act
from engine.model import Problem
from engine.policy import HOUR, at, lasting
from engine.store import Unavailable
from engine.stores.zgb import ZgbStore, redirect, token_bucket
from engine.stores.zgb.facts import SeenProblems, look, redirect_words
from engine.stores.zgb.place import KINDS
from tui.cli.formats.zgb import CRON, ZgbPlace, cron_line, desk_of
from tui.cli.formats.zgb_mail import mail_settings, unready, way
from tui.cli.setup.setup import Hidden, Setup

WELL, ATTENTION = 0, 1

SHOWN = 10
"""Problems of one sort that are told one by one."""


Found: TypeAlias = Iterator[Finding]


def doctor(setup: Setup, arguments: Namespace) -> int:
    """Go through the list, and say what was found; exit 0 when nobody has to act, else 1."""
    try:
        desk = desk_of(setup)
    except Hidden:
        raise  # that it cannot be told is no finding of ours
    except Unavailable as error:
        _, _, why = str(error).partition(": ")
        finding = _bad(why, _mend_database(setup.place, str(error)))
        print("\n".join(line("database", finding)))
        return ATTENTION
    found = []
    for name, findings in _checks(desk):
        for finding in findings:
            print("\n".join(line(name, finding)))
            found.append(finding)
    return ATTENTION if needs_act(found) else WELL


def _well(what: str) -> Finding:
    return Finding(Grade.OK, what)


def _warn(what: str, mend: str) -> Finding:
    return Finding(Grade.WARN, what, mend)


def _bad(what: str, mend: str) -> Finding:
    return Finding(Grade.BAD, what, mend)


def _checks(desk: ZgbPlace) -> Iterator[tuple[str, Iterable[Finding]]]:
    where = desk.spot()
    try:
        store = desk.open()
    except Unavailable as error:
        yield "database", [_bad(str(error), _mend_database(desk.path, str(error)))]
        return
    with closing(store):
        seen = look(store, where.path, time.time())
        yield "database", _database(store)
        yield "switch", _switch(desk, seen)
        yield "jobs", _jobs(desk, seen)
        yield "rows", _rows(store)
        yield "cron", _cron(desk, seen)
        yield "rate", _rate(seen)
        yield "lease", _lease(desk)
        if desk.own.unworkable and not seen.is_silent:
            yield "letters", [_well(f"somebody else's worker sends them: {desk.own.unworkable}")]
        else:
            yield "transport", _transport(desk)
            yield "letters", _letters(desk, store)
        yield "redirect", _redirect(desk, seen, store)
        yield "log", _log(desk, store)


def _set(desk: ZgbPlace, key: str, value: str) -> str:
    return _control(desk.path, key, "--value", value)


def _control(path: str, *words: str) -> str:
    return shlex.join(["spooldeck", "control", *words[:1], path, *words[1:], "--apply", "1"])


_MENDS: Mapping[str, str] = {
    "locked by": "wait, or see who has it: fuser -v {path}",
    "damaged": "stop all that write to it, then: sqlite3 {path} .recover | sqlite3 {path}.mended",
    "not a SQLite database": "name the database itself, or put a copy of it back",
    "no mail queue": "name the database itself, or make a new one: spooldeck zgb init PATH",
    "lacks": "have the program that it is of bring its tables up to date",
    "no time zone": "set stores.zgb.zone and stores.zgb.period_zone right",
    "unable to open": "see that the folder of {path} may be written to: SQLite has files beside it",
    "ended while it wrote": "run that command: it rolls the unfinished write back",
    "in a folder of": "run this as the user that it names",
    "other users can write to the folder": "chmod go-w that folder, or run this as another user",
    "disk is full": "make room on the disk of {path}",
}
"""What mends a database, by what is said of it."""


def _mend_database(path: str, why: str) -> str:
    """What mends a database that cannot be opened."""
    path = os.path.abspath(path)
    if not os.access(path, os.F_OK):
        return "name the database itself, or put a copy of it back"
    return _known_mend(path, why) or "see that it may be read and written"


def _known_mend(path: str, why: str) -> str:
    named = (mend for sign, mend in _MENDS.items() if sign in why)
    return next(named, "").format(path=shlex.quote(path))


def _database(store: ZgbStore) -> Found:
    refused = {edge.refused for edge in store.edges.values()} - {""}
    if refused:
        yield _warn(refused.pop(), "run this, and the worker, as a user who may write it")
    else:
        yield _well(f"{store.place.path}: a mail queue, and writable")


def _switch(desk: ZgbPlace, seen: SeenProblems) -> Found:
    if seen.settings.enabled:
        yield _well("the worker may send: mailQueueEnabled is 1")
    else:
        waiting = f", {seen.backlog.waiting:,} waiting" if seen.backlog.waiting else ""
        yield _warn(f"paused{waiting}", _set(desk, "mailQueueEnabled", "1"))


def _jobs(desk: ZgbPlace, seen: SeenProblems) -> Found:
    jobs = seen.backlog
    yield _well(f"{jobs.waiting:,} waiting, {jobs.due:,} of them due, {jobs.failed:,} failed")
    if jobs.parked:
        yield _warn(
            f"{jobs.parked:,} parked: they are not tried again by themselves",
            f"see why: spooldeck clusters {shlex.quote(desk.path)}; then have them tried again: "
            f"{_control(desk.path, 'retryFailed')}",
        )


def _rows(store: ZgbStore) -> Found:
    """Orphans, bad leases, values that nobody knows: whatever a look calls a problem."""
    told = {item.where: item for item in store.look() if isinstance(item, Problem)}
    # The rate and the test mode have a line of their own.
    rows = [p for where, p in told.items() if where not in ("mailMaxPerHour", "redirect")]
    if not rows:
        yield _well("no orphans, no odd leases, no unknown values")
    for problem in rows[:SHOWN]:
        yield _warn(f"{problem.where}: {problem.what}", _mend_row(problem, store))
    if len(rows) > SHOWN:
        yield _warn(f"and {len(rows) - SHOWN:,} more", "mend the first of them first")


def _mend_row(problem: Problem, store: ZgbStore) -> str:
    path = shlex.quote(store.place.path)
    if problem.where == "orphans":
        return f"if they are to go, at once: {_control(store.place.path, 'deleteOrphans')}"
    if problem.where == "registrations":
        return "name the table that has a column number: stores.zgb.registrations"
    return f"look at it with: spooldeck {path}, and set right what its columns hold"


def _cron(desk: ZgbPlace, seen: SeenProblems) -> Found:
    mend = f"crontab -e, and the line: {CRON} {cron_line(desk.path, desk.setup.config.path)}"
    sign = seen.last_sign
    if sign is None:
        yield _warn("no run is known of", mend)
    elif seen.is_silent and (seen.settings.enabled or seen.ended is not None):
        yield _warn(f"the last run was {lasting(seen.now - sign)} ago", mend)
    elif seen.failure:
        read = f"read the queue's log: spooldeck log {shlex.quote(desk.path)}"
        known = _known_mend(desk.path, seen.failure)
        yield _bad(f"the last run failed: {seen.failure}", known or read)
    else:
        yield _well(f"the last run was at {at(sign)}{f': {seen.last}' if seen.last else ''}")
    rate = seen.figures.per_hour
    most = min(rate, seen.pace.burst) * HOUR / rate
    if seen.gap > most:
        yield _warn(
            f"runs are {lasting(seen.gap)} apart, and {rate} mails an hour need one at least "
            f"every {lasting(most)}",
            mend,
        )


def _rate(seen: SeenProblems) -> Found:
    if odd := token_bucket.odd_rate(seen.settings.rate, seen.pace):
        yield _warn(odd, f"set mailMaxPerHour to a number from 1 to {seen.pace.most}")
        return
    rate = seen.figures.per_hour
    most = rate + min(rate, seen.pace.burst)
    yield _well(f"{rate} mails an hour; after a rest up to {most} within one")


def _lease(desk: ZgbPlace) -> Found:
    try:
        seconds = mail_settings(desk.setup, desk.own).max_time
    except ConfigError as error:
        yield _bad(str(error), "set right what it names")
        return
    if why := desk.own.too_short(seconds):
        yield _bad(why, "raise stores.zgb.lease, or lower mail.max_time")
    else:
        yield _well(f"{desk.own.lease} s, for mails that take {seconds:g} s at most")


def _transport(desk: ZgbPlace) -> Found:
    found = way(desk.setup, desk.own)
    if found.why:
        yield _bad(found.why, found.mend)
        return
    sender = mail_settings(desk.setup, desk.own).sender
    yield _well(f"mail goes by {found.name}, from {sender}")
    if found.stopped:
        yield _warn(", ".join(found.stopped), found.resume)
    if found.name == "mailx":
        yield _warn(
            "mailx makes the headers itself: no Message-ID of ours, nor who a redirected mail was "
            "for, and the plain text alone",
            "use any other transport, such as a relay: mail.relay.host",
        )


def _letters(desk: ZgbPlace, store: ZgbStore) -> Found:
    try:
        settings = mail_settings(desk.setup, desk.own)
    except ConfigError:
        return  # said of the lease
    columns = store.columns()
    for kind in KINDS:
        letter = desk.own.letters[kind]
        if not letter.enabled:
            yield _well(f"{kind}: switched off")
        elif why := unready(letter, desk.own, settings, columns):
            yield _bad(f"{kind}: {why}", f"set it right under stores.zgb.types.{kind}")
        else:
            to = letter.to or (f"column {letter.to_column}" if letter.to_column else "")
            yield _well(f"{kind}: {letter.template}, to {to or settings.recipient}")


def _redirect(desk: ZgbPlace, seen: SeenProblems, store: ZgbStore) -> Found:
    off = _set(desk, "mailRedirectToSchumbi", "0")
    if not seen.settings.redirected:
        yield _well("off")
    elif seen.way is redirect.RedirectDecision.UNDECIDABLE:
        mend = "set startDate and endDate to days as YYYY-MM-DD"
        if not store.dates:
            mend = f"{mend}, and add a created_at to mail_queue or {store.place.registrations}"
        yield _warn(
            f"{redirect.UNDECIDABLE}: users' mails wait", f"{mend}, or switch it off: {off}"
        )
    elif seen.way is redirect.RedirectDecision.REDIRECTED:
        yield _warn(f"ON: users' mails go to {desk.own.redirect_to}, as a test", off)
    else:
        yield Finding(Grade.OK, redirect_words(seen), off)


def _log(desk: ZgbPlace, store: ZgbStore) -> Found:
    where = desk.spot()
    if where.path:
        yield _well(f"{where.path}, {where.rule}")
    for warning in where.warnings:
        yield _warn(
            warning,
            "make the folder logs in the home of whom cron runs as, or set stores.zgb.log",
        )
    if not store.tells_jobs_apart:
        yield _warn(
            "the table has no created_at, nor a key that is AUTOINCREMENT: a mail that was sent "
            "while its worker died is not recognised, and may be sent twice",
            "ALTER TABLE mail_queue ADD COLUMN created_at INTEGER, and have it filled",
        )
