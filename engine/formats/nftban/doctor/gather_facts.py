"""`doctor` for an NFTBan queue: gather its facts for the checks of the engine."""

from __future__ import annotations

import os
import shlex
import stat
import time
from collections.abc import Iterator
from functools import partial

from engine.config.mail_config import FILES, MEMORY, NOWHERE, MailSettings, field_source
from engine.config.nftban_variables import PASSWORD_VARIABLE, config_dir
from engine.config.validators import ConfigError
from engine.doctor.finding import Finding
from engine.formats.base.format import Setup
from engine.formats.base.mail_controls import make_place_mail
from engine.formats.nftban.doctor import place_facts
from engine.formats.nftban.doctor.run import run_checks
from engine.formats.nftban.queue_folders import examine_lock, handles_kind, open_spool
from engine.mail.address import require_address, require_addresses
from engine.mail.model import BadMail
from engine.mail.send.mail_spool import Broken
from engine.places.mail_setup import QUEUING_GRACE_SECONDS
from engine.store import Unavailable
from engine.system import files
from engine.system.command_errors import CommandError
from engine.text.error_text import error_text


def check_queue(setup: Setup) -> Iterator[tuple[str, Finding]]:
    """Check an NFTBan queue; yields the name of each check and a finding. Changes nothing."""
    return run_checks(_place_facts(setup))


def _place_facts(setup: Setup) -> place_facts.PlaceFacts:
    now = time.time()
    queue = setup.queue
    mail = _mail(setup, now)  # before the tasks: a mail is spooled before its task is queued
    return place_facts.PlaceFacts(
        queue=queue,
        handlers={kind: _program(setup, kind) for kind in setup.programs},
        delivered=setup.delivered,
        is_claimed=partial(handles_kind, setup),
        spooldeck=shlex.join(setup.command_words),
        config=setup.config.path,
        lock=examine_lock(setup),
        now=now,
        view=place_facts.scan_tasks(partial(open_spool, setup), now),
        folder_stats=place_facts.stat_paths(place_facts.folder_paths(queue)),
        mail=mail,
    )


def _mail(setup: Setup, now: float) -> place_facts.MailFacts:
    """Check the mail settings and the mail spool."""
    mail_facts = place_facts.MailFacts(
        secrets=[path for path in _with_passwords() if _may_be_read(path)]
    )
    try:
        settings = setup.mail.settings()
    except ConfigError as error:
        return mail_facts._replace(problem=str(error))
    unsent, broken = [], []
    try:
        for mail in setup.mail.spool().read_all():
            if isinstance(mail, Broken):
                broken.append((f"{setup.queue.mail_spool}/{mail.id}", mail.why))
            elif mail.sent is None and not 0 <= now - mail.created < QUEUING_GRACE_SECONDS:
                unsent.append(mail.meta)
    except OSError as error:
        mail_facts = mail_facts._replace(hidden=f"{setup.queue.mail_spool}: {error_text(error)}")
    mail_facts = mail_facts._replace(
        settings=list(_invalid_settings(setup, settings)), unsent=unsent, broken=broken
    )
    return _with_blocker(setup, settings, mail_facts)


def _with_passwords() -> Iterator[str]:
    """The files of mail settings that set the relay's password."""
    folder = config_dir(os.environ)
    for name in FILES:
        try:
            with open(files.open_file(f"{folder}/{name}"), "rb") as file:
                if PASSWORD_VARIABLE.encode() in file.read():
                    yield f"{folder}/{name}"
        except OSError:
            continue  # optional; the code that needs it reports that it is unreadable


def _may_be_read(path: str) -> bool:
    """True if a file is readable for all users."""
    try:
        return bool(os.stat(path).st_mode & stat.S_IROTH)
    except OSError:
        return False


def _with_blocker(
    setup: Setup, settings: MailSettings, mail_facts: place_facts.MailFacts
) -> place_facts.MailFacts:
    """The same, with why no mail can be sent now, where that is so."""
    mail_facts = mail_facts._replace(is_wanted=_is_wanted(settings))
    if not setup.mail.is_ours:
        return mail_facts
    place_mail = make_place_mail(setup, [])
    try:
        routes = place_mail.routes(place_mail.suspended())
        token_at = _token_at(setup, settings, routes.selected)
    except (Unavailable, OSError) as error:
        if isinstance(error.__cause__ or error, PermissionError):
            return mail_facts._replace(hidden=mail_facts.hidden or "which transports are suspended")
        if isinstance(error.__cause__, ValueError):
            path = f"{setup.state_folder}/suspended"
            again = "spooldeck mail suspend NAME for each transport that must stay off"
            fix = f"rm {shlex.quote(path)}  # then {again}"
            return mail_facts._replace(settings=[*mail_facts.settings, (str(error), fix)])
        return mail_facts._replace(problem=str(error))
    if token_at is not None:
        return mail_facts._replace(
            unavailable=f"no token for transport {routes.selected}", token_at=token_at
        )
    if routes.selected:
        return mail_facts
    # Resuming a transport that has another problem too would not help.
    usable = {name for name in routes.order if name not in routes.why_not}
    usable &= {routes.forced} if routes.forced else usable
    stopped = [each for name, each in routes.stopped.items() if name in usable]
    return mail_facts._replace(unavailable=setup.mail.handler().why_closed(), suspended=stopped)


def _is_wanted(settings: MailSettings) -> bool:
    """True if a recipient, a method, a host or a program for mail is configured."""
    named = (settings.recipient, settings.method, settings.host, settings.programs)
    return settings.method != NOWHERE and any(named)


def _token_at(setup: Setup, settings: MailSettings, name: str) -> float | None:
    """When a transport may send again, epoch seconds UTC; None if it may now."""
    from engine.locks.token_buckets import TokenBuckets

    rate, bucket = settings.rates.get(name), f"transport:{name}"
    if rate is None:
        return None
    path = f"{setup.queue.run_dir}/queue.buckets"
    buckets = TokenBuckets(path, {bucket: rate}, time.time, setup.queue.root)
    now = time.time()
    when = buckets.token_at(bucket)
    return when if when > now else None


def _invalid_settings(setup: Setup, settings: MailSettings) -> Iterator[tuple[str, str]]:
    """Yield each invalid mail setting with its fix, by the rules of the code that uses it."""
    for name, text, check, strict in (
        ("recipient", settings.recipient, require_addresses, settings.strict),
        ("sender", settings.sender, require_address, False),
    ):
        try:
            if text:
                check(text, strict)
        except BadMail as error:
            at = field_source(name, setup.config.mail, setup.queue.root, os.environ)
            where = f"{at.file}: {at.key}" if at else f"mail.{name}"
            yield f"{where}: {error}", "correct it there" if at else f"correct {where}"
    if settings.method == MEMORY:
        yield (
            "mail.method memory: each mail is lost when the sending process ends",
            "set another method",
        )
    for name, path in settings.programs.items():
        if not (os.path.isfile(path) and os.access(path, os.X_OK)):
            yield f"mail.programs.{name}: {path}: no such program", "correct it, or install it"
    relay = list(_wrong_secret(settings.password_file)) if settings.password_file else []
    yield from relay
    if settings.host and not relay and (why := setup.mail.registry(settings).absence("curl")):
        yield f"mail.relay.host is {settings.host}, and not used: {why}", "spooldeck mail status"


def _wrong_secret(path: str) -> Iterator[tuple[str, str]]:
    """Why the relay's password file is unusable, by the rules of the code that reads it."""
    from engine.mail.transports.curl import read_secret

    fix = f"write the password into {path}, on one line and nothing else"
    try:
        read_secret(path)
    except PermissionError:
        return  # the worker must be able to read it, not this user
    except OSError as error:
        yield f"mail.relay.password_file: {path}: {error_text(error)}", "correct the path"
    except ValueError as error:
        if os.stat(path).st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            fix = f"chmod 600 {shlex.quote(path)}"
        yield f"mail.relay.password_file: {path}: {error}", fix


def _program(setup: Setup, kind: str) -> place_facts.InstalledProgram:
    from engine.mail import run_program  # process code is loaded by few commands

    handler = setup.config.handlers[kind]
    environment = handler.environment
    path = (
        environment["PATH"] or os.environ.get("PATH") if "PATH" in environment else ""
    ) or run_program.PATH
    program = place_facts.InstalledProgram(handler.command, None, path=path)
    try:
        return program._replace(account=setup.handler_account(kind))
    except CommandError as failure:
        return program._replace(refused=str(failure))
    except OSError:
        return program  # the owner of the queue is unknown; other checks report that
