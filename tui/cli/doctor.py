"""`doctor`: everything that is wrong with a place, each with the command that mends it."""

from __future__ import annotations

import os
import shlex
import stat
import time
from argparse import Namespace
from collections.abc import Iterator

from engine import doctor as checks
from engine import patient
from engine.checks import ConfigError
from engine.foreign import CONFIG_DIR, SECRET
from engine.mail.spool import Broken
from engine.mailconf import FILES
from tui.cli.mailing import ON_ITS_WAY
from tui.cli.wiring import Fail, Setup

WELL, ATTENTION = 0, 1


def doctor(setup: Setup, arguments: Namespace) -> int:
    """Look, and say what was found; exit 0 when nobody has to act, else 1. Changes nothing."""
    findings = []
    for name, finding in checks.examine(_patient(setup)):
        print("\n".join(checks.line(name, finding)))
        findings.append(finding)
    return ATTENTION if checks.needs_act(findings) else WELL


def _patient(setup: Setup) -> patient.Patient:
    now = time.time()
    queue = setup.queue
    mail = _mail(setup, now)  # before the tasks: a mail is there before its task is
    return patient.Patient(
        queue=queue,
        handlers={kind: _program(setup, kind) for kind in setup.programs},
        claimed=setup.handled,
        spooldeck=_spooldeck(setup),
        config=setup.config.path,
        lock=setup.examine_lock(),
        now=now,
        sight=patient.walk(setup.open, now),
        seen=patient.found_at(patient.paths_of(queue)),
        mail=mail,
    )


def _mail(setup: Setup, now: float) -> patient.Mail:
    """How mail is sent from here, and what lies in the mail spool."""
    found = patient.Mail(secrets=[path for path in _with_passwords() if _may_be_read(path)])
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
    return found._replace(
        shut=setup.mailing().shut(),
        relay_trouble=_relay_trouble(settings.password_file),
        kept=kept,
        broken=broken,
    )


def _with_passwords() -> Iterator[str]:
    """The files of mail settings that set the relay's password."""
    folder = os.environ.get("NFTBAN_CONFIG_DIR") or CONFIG_DIR
    for name in FILES:
        try:
            with open(f"{folder}/{name}", "rb") as file:
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


def _relay_trouble(path: str) -> str:
    """Why a password file is of no use; "" when it is, or when none is named."""
    if not path:
        return ""
    try:
        seen = os.stat(path)
    except PermissionError:
        return ""  # who may read it is the worker; whether we may says nothing
    except OSError as error:
        return f"mail.relay.password_file: {path}: {error.strerror}"
    if not stat.S_ISREG(seen.st_mode):
        return f"mail.relay.password_file: {path}: expected a plain file"
    if seen.st_mode & (stat.S_IRGRP | stat.S_IROTH):
        mode = stat.S_IMODE(seen.st_mode)
        return f"mail.relay.password_file: {path}: mode {mode:o}, others may read it: chmod 600"
    return ""


def _program(setup: Setup, kind: str) -> patient.Program:
    argv = setup.config.handlers[kind].command
    try:
        return patient.Program(argv, setup.account(kind))
    except Fail as failure:
        return patient.Program(argv, None, str(failure))
    except OSError:
        return patient.Program(argv, None)  # whose queue it is cannot be seen; other checks say so


def _spooldeck(setup: Setup) -> str:
    words = ["spooldeck", "--root", setup.queue.root]
    if setup.config.path:
        words += ["--config", os.path.abspath(setup.config.path)]
    return shlex.join(words)
