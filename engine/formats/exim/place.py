"""Open a place of Exim: its program, its log, our record of its trash queue, and its facts."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from engine.config import validators
from engine.config.validators import ConfigLocation
from engine.doctor.finding import Finding, bad
from engine.formats.base.format import Setup
from engine.formats.exim import lines
from engine.formats.exim.doctor import check_exim
from engine.formats.exim.facts import SERVER, LastListing, watch_exim
from engine.formats.exim.log_lines import mail_log, main_log_path
from engine.formats.exim.parts import ask_retries, describe_retry, domains_of, zone_there
from engine.formats.exim.programs import Exim, find_program, open_exim
from engine.formats.exim.server import EximServer
from engine.formats.exim.trash_record import TrashRecord
from engine.model import State, Task
from engine.places.place import CopiedLog, Place
from engine.programs.log_copy import LogCopy
from engine.programs.mail_log import MailFacts, MailLog, local_paths
from engine.programs.mail_store import MailStore
from engine.programs.prefix import path_of, prefix_of
from engine.programs.prefix_checks import check_prefix
from engine.store import Unavailable
from engine.values import NamedTuple

MAX_RETRY_DOMAINS = 20
"""Domains for which the retry database is asked; each takes a process."""


class EximPlaceSettings(NamedTuple):
    """The section of the configuration, and what this process shares of a place."""

    config: str
    """The configuration file of a private instance (`exim -C`); "" for that of the system."""
    listing: LastListing


def parse_settings(section: Any, at: ConfigLocation) -> EximPlaceSettings:
    """Parse `stores.exim`.

    Raises:
        ConfigError: a value is invalid.
    """
    values = validators.check_mapping(section, at, _SETTINGS)
    return EximPlaceSettings(values.get("config") or "", LastListing())


_SETTINGS = {"config": validators.check_optional_path}


def find_exim(setup: Setup) -> Exim:
    """The Exim of a place.

    Raises:
        Unavailable: see `programs.open_exim`.
    """
    prefix = prefix_of(setup.config, setup.address)
    sudo = "" if prefix.words or os.geteuid() == 0 else setup.sudo_command("root")
    return open_exim(prefix, path_of(setup.address), setup.settings.config, sudo)


def _log_of(exim: Exim) -> MailLog:
    path, is_syslog = main_log_path(exim.settings.get("log_file_path", ""))
    if not exim.settings.get("log_file_path"):
        path = f"{exim.spool}/log/mainlog"
    return mail_log(path, exim.helpers, is_syslog=is_syslog)


def find_log(setup: Setup) -> MailLog:
    """The main log of a place.

    Raises:
        Unavailable: its Exim cannot be found.
    """
    return _log_of(_find_program(setup))


def _find_program(setup: Setup) -> Exim:
    prefix = prefix_of(setup.config, setup.address)
    return find_program(prefix, path_of(setup.address), setup.settings.config)


def describe_next_tries(setup: Setup, tasks: Sequence[Task]) -> Mapping[str, str]:
    """The next try of each waiting task, as the retry database has it for its first domains; "" if
    it was not asked for all of them, or did not answer.

    Raises:
        Unavailable: its Exim cannot be found.
    """
    exim, texts = _find_program(setup), dict[str, str]()
    answers: dict[str, str] = {}
    for task in tasks:
        if task.state is not State.PENDING:
            continue
        domains = domains_of(task)
        for domain in domains:
            if domain not in answers and len(answers) < MAX_RETRY_DOMAINS:
                answers[domain] = ask_retries(exim, domain)
        tries = {domain: _next_try(exim, answers.get(domain, ""), task) for domain in domains}
        found = [text for text in tries.values() if text]
        without = {domain for domain, text in tries.items() if text == ""}
        is_asked = without >= {one.rpartition("@")[2].lower() for one in task.recipients}
        texts[task.id] = found[0] if found else (_NO_RETRY if is_asked else "")
    return texts


_NO_RETRY = "at the next queue run: no retry time is known"


def _next_try(exim: Exim, answer: str, task: Task) -> str | None:
    """The first next try of a message in an answer of exinext; "" if it says that there is none;
    None if it is no answer, or has only records of others: one may be of what an alias leads to."""
    for record in lines.parse_retries(answer):
        if record.is_for(task):
            return describe_retry(record, zone_there(exim))
    return "" if "No retry data found" in answer else None


def open_store(
    setup: Setup,
    clock: Callable[[], float] = time.time,
    steady: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
) -> MailStore:
    """Open the queue of a place; for the clocks see `MailStore`.

    Raises:
        Unavailable: its Exim cannot be found, or this user may not list.
    """
    exim, settings = find_exim(setup), setup.settings
    if exim.list_refusal:
        raise Unavailable(exim.list_refusal)
    hours, limits = setup.config.trash.hours, exim.limits
    server = EximServer(
        exim,
        TrashRecord(setup.state_folder),
        MailFacts(_log_of(exim)),
        trash_hours=hours,
        clock=clock,
        listed=lambda records: settings.listing.count(records, limits, hours, clock()),
    )
    listing = settings.listing
    # A look is a call of Exim, which may write a line itself.
    log = None if exim.has_argument_log else _log_of(exim)
    return MailStore(
        server, clock, steady, pause, listed=listing.note, log=log, logged=listing.logged
    )


def complete_place(setup: Setup, place: Place) -> Place:
    """The place with the facts of its Exim, which decides when a message is tried."""
    watch = watch_exim(lambda: find_exim(setup), setup.settings.listing)
    log = None
    with suppress(Unavailable):  # opening the store reports it
        log = None if setup.address.is_url else find_log(setup)
    copy = LogCopy(lambda: find_log(setup), setup.state_folder)
    return place._replace(
        queue_figures=watch.figures,
        server=SERVER,
        listed_at=lambda: setup.settings.listing.at,
        moved_in_listing=lambda: setup.settings.listing.moved,
        claim_obstacle=lambda kind: "",
        server_logs=local_paths(log),
        log_copy=CopiedLog(copy.path, copy.fetch) if setup.address.is_url else None,
    )


def check_place(setup: Setup) -> Generator[tuple[str, Finding], None, bool]:
    """Check the Exim of a place; return True if its queue can be checked too."""
    try:
        exim = find_exim(setup)
    except Unavailable as error:
        yield "program", bad(str(error))
        with suppress(Unavailable):  # it is said already that `via` has no such name
            yield from check_prefix(prefix_of(setup.config, setup.address))
        return False
    yield from check_prefix(exim.prefix, exim.words[:1])
    mail_facts = MailFacts(_log_of(exim))
    try:
        yield from check_exim(exim, mail_facts)
    finally:
        mail_facts.close()
    return not exim.list_refusal
