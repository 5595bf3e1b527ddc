"""`doctor`: everything that is wrong with a place, each with the command that mends it."""

from __future__ import annotations

import os
import shlex
import stat
import time
from argparse import Namespace
from collections.abc import Iterator

from engine.config.mail_config import FILES, MEMORY, NOWHERE, MailSettings, source
from engine.config.nftban_variables import CONFIG_DIR, SECRET
from engine.config.validators import ConfigError
from engine.doctor import place_facts
from engine.doctor.finding import line, needs_act
from engine.doctor.run import examine
from engine.mail.address import checked
from engine.mail.model import BadMail
from engine.mail.send.mail_spool import Broken
from engine.store import Unavailable
from engine.system import files
from tui.cli.plans import plan_command
from tui.cli.setup.format import part
from tui.cli.setup.mail_controls import mail_desk
from tui.cli.setup.mail_parts import ON_ITS_WAY
from tui.cli.setup.setup import Fail, Setup

WELL, ATTENTION = 0, 1


def doctor(setup: Setup, arguments: Namespace) -> int:
    """Look, and say what was found; exit 0 when nobody has to act, else 1. Changes nothing."""
    if setup.site is not None:
        code: int = part(setup.site.format.doctor)(setup, arguments)
        return code
    findings = []
    for name, finding in examine(_patient(setup)):
        print("\n".join(line(name, finding)))
        findings.append(finding)
    return ATTENTION if needs_act(findings) else WELL


def _patient(setup: Setup) -> place_facts.PlaceFacts:
    now = time.time()
    queue = setup.queue
    mail = _mail(setup, now)  # before the tasks: a mail is there before its task is
    return place_facts.PlaceFacts(
        queue=queue,
        handlers={kind: _program(setup, kind) for kind in setup.programs},
        claimed=setup.handled,
        spooldeck=plan_command.typed(plan_command.base(setup)),
        config=setup.config.path,
        lock=setup.examine_lock(),
        now=now,
        sight=place_facts.walk(setup.open, now),
        seen=place_facts.found_at(place_facts.paths_of(queue)),
        mail=mail,
    )


def _mail(setup: Setup, now: float) -> place_facts.MailFacts:
    """How mail is sent from here, and what lies in the mail spool."""
    found = place_facts.MailFacts(
        secrets=[path for path in _with_passwords() if _may_be_read(path)]
    )
    try:
        settings = setup.mail_settings()
    except ConfigError as error:
        return found._replace(problem=str(error))
    kept, broken = [], []
    try:
        for mail in setup.mail_spool().letters():
            if isinstance(mail, Broken):
                broken.append((f"{setup.queue.mail_spool}/{mail.id}", mail.why))
            elif mail.sent is None and not 0 <= now - mail.created < ON_ITS_WAY:
                kept.append(mail.meta)
    except OSError as error:
        found = found._replace(hidden=f"{setup.queue.mail_spool}: {error.strerror}")
    found = found._replace(settings=list(_wrong(setup, settings)), kept=kept, broken=broken)
    return _shut(setup, settings, found)


def _with_passwords() -> Iterator[str]:
    """The files of mail settings that set the relay's password."""
    folder = os.environ.get("NFTBAN_CONFIG_DIR") or CONFIG_DIR
    for name in FILES:
        try:
            with open(files.open_file(f"{folder}/{name}"), "rb") as file:
                if SECRET.encode() in file.read():
                    yield f"{folder}/{name}"
        except OSError:
            continue  # it need not be there; what cannot be read is said by whoever needs it


def _may_be_read(path: str) -> bool:
    """Whether everybody may read a file."""
    try:
        return bool(os.stat(path).st_mode & stat.S_IROTH)
    except OSError:
        return False


def _shut(
    setup: Setup, settings: MailSettings, found: place_facts.MailFacts
) -> place_facts.MailFacts:
    """The same, with why no mail can be sent now, where that is so."""
    found = found._replace(wanted=_is_wanted(settings))
    if not setup.sends_mail:
        return found
    desk = mail_desk(setup, [])
    try:
        routes = desk.routes(desk.stopped())
        token_at = _token_at(setup, settings, routes.selected)
    except (Unavailable, OSError) as error:
        if isinstance(error.__cause__ or error, PermissionError):
            return found._replace(hidden=found.hidden or "which transports are suspended")
        if isinstance(error.__cause__, ValueError):
            path = f"{setup.desk}/suspended"
            again = "spooldeck mail suspend NAME for each that must stay off"
            mend = f"rm {shlex.quote(path)}  # then {again}"
            return found._replace(settings=[*found.settings, (str(error), mend)])
        return found._replace(problem=str(error))
    if token_at is not None:
        return found._replace(shut=f"no token for transport {routes.selected}", token_at=token_at)
    if routes.selected:
        return found
    # To resume what could not be used all the same would help nobody.
    usable = {name for name in routes.order if name not in routes.why_not}
    usable &= {routes.forced} if routes.forced else usable
    stopped = [each for name, each in routes.stopped.items() if name in usable]
    return found._replace(shut=setup.mailing().shut(), stopped=stopped)


def _is_wanted(settings: MailSettings) -> bool:
    """Whether anybody has set up how mail is to be sent, or whom to."""
    named = (settings.recipient, settings.method, settings.host, settings.programs)
    return settings.method != NOWHERE and any(named)


def _token_at(setup: Setup, settings: MailSettings, name: str) -> float | None:
    """When a transport may send again; None where it may now."""
    from engine.locks.token_buckets import Buckets

    rate, bucket = settings.rates.get(name), f"transport:{name}"
    if rate is None:
        return None
    path = f"{setup.queue.run_dir}/queue.buckets"
    buckets = Buckets(path, {bucket: rate}, time.time, setup.queue.root)
    now = time.time()
    when = buckets.token_at(bucket)
    return when if when > now else None


def _wrong(setup: Setup, settings: MailSettings) -> Iterator[tuple[str, str]]:
    """What is wrong with single settings, by the rules of those who use them."""
    for name, text, strict in (
        ("recipient", settings.recipient, settings.strict),
        ("sender", settings.sender, False),
    ):
        try:
            if text:
                checked(text, strict)
        except BadMail as error:
            at = source(name, setup.config.mail, setup.queue.root, os.environ)
            where = f"{at.file}: {at.key}" if at else f"mail.{name}"
            yield f"{where}: {error}", "correct it there" if at else f"correct {where}"
    if settings.method == MEMORY:
        yield "mail.method memory: each mail is lost with the process that sends it", "name another"
    for name, path in settings.programs.items():
        if not (os.path.isfile(path) and os.access(path, os.X_OK)):
            yield f"mail.programs.{name}: {path}: no such program", "correct it, or install it"
    relay = list(_wrong_secret(settings.password_file)) if settings.password_file else []
    yield from relay
    if settings.host and not relay and (why := setup.ways(settings).absence("curl")):
        yield f"mail.relay.host is {settings.host}, and not used: {why}", "spooldeck mail status"


def _wrong_secret(path: str) -> Iterator[tuple[str, str]]:
    """Why the relay's password file is of no use, by the judgement of whoever reads it."""
    from engine.mail.transports.curl import read_secret

    mend = f"write the password into {path}, on one line and nothing else"
    try:
        read_secret(path)
    except PermissionError:
        return  # who may read it is the worker; whether we may says nothing
    except OSError as error:
        yield f"mail.relay.password_file: {path}: {error.strerror}", "name the file itself"
    except ValueError as error:
        if os.stat(path).st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            mend = f"chmod 600 {shlex.quote(path)}"
        yield f"mail.relay.password_file: {path}: {error}", mend


def _program(setup: Setup, kind: str) -> place_facts.InstalledProgram:
    from engine.mail import run_program  # what starts processes is for the few commands that do

    handler = setup.config.handlers[kind]
    own = handler.environment
    path = (own["PATH"] or os.environ.get("PATH") if "PATH" in own else "") or run_program.PATH
    program = place_facts.InstalledProgram(handler.command, None, path=path)
    try:
        return program._replace(account=setup.account(kind))
    except Fail as failure:
        return program._replace(refused=str(failure))
    except OSError:
        return program  # whose queue it is cannot be seen; other checks say so
