"""Mail handed to a Postfix that runs on this machine, by its sendmail program."""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Callable

from engine.config.mail_config import MailSettings
from engine.mail.model import Cause, Mail, Unused, absent
from engine.mail.transports.base import submit
from engine.mail.transports.installed import System

MASTER = frozenset({"master"})
"""The process that all of Postfix is made by. Source: Postfix master(8)."""

MAIN_CF = "/etc/postfix/main.cf"

QUEUE = "/var/spool/postfix"
"""Its queue, where main.cf names no other. Source: Postfix postconf(5)."""

LOCK = "pid/master.pid"
"""Below its queue: what its master holds locked for as long as it lives (flock, on Linux)."""

_queue_directories = re.compile(r"(?m)^queue_directory[ \t]*=[ \t]*(/[^\s$]*)[ \t]*$").findall


def runs(system: System) -> bool | None:
    """Whether the Postfix of this machine runs; None when nobody lets us know."""
    *_, queue = QUEUE, *_queue_directories(system.text(MAIN_CF))
    try:
        lock = system.opened(f"{queue}/{LOCK}", os.O_NOFOLLOW)
    except FileNotFoundError:
        return False
    except OSError:
        # It is root's. Others can see but the process, and anybody may call one of theirs so.
        return None if system.blind else system.runs(MASTER, uid=0)
    try:
        # Shared, and for no time: `postfix status` asks for it alone.
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return None  # where the queue lies nothing can be locked
    finally:
        os.close(lock)
    return False


def is_stopped(sendmail: str, system: System) -> bool:
    """Whether a sendmail program is that of a Postfix that does not run: mail that it took would
    lie there until somebody starts Postfix."""
    return has_made(sendmail, system) and runs(system) is False


def has_made(sendmail: str, system: System) -> bool:
    """Whether a sendmail program is Postfix's: by its name where it is a link to what it is, else
    by the `postfix` beside it and its configuration."""
    real = os.path.realpath(sendmail)
    if os.path.basename(real) != "sendmail":
        return "postfix" in os.path.basename(real)
    beside = os.path.join(os.path.dirname(real), "postfix")
    return os.access(beside, os.X_OK) and bool(system.text(MAIN_CF))


class Postfix:
    """Postfix, while it runs."""

    name = "postfix"

    def __init__(self, settings: MailSettings, system: System | None = None) -> None:
        self._settings, self._system = settings, system or System()
        self._postfix = self._system.program(settings.programs, "postfix")
        self._sendmail = self._system.program(settings.programs, "sendmail")

    def absence(self) -> Unused | None:
        """Why it cannot be used here; a Postfix that is stopped would keep mail until it starts."""
        if why := self._postfix.absence or self._sendmail.absence:
            return absent(why)
        running = runs(self._system)
        if running is None and self._settings.method != self.name:
            hidden = "whether Postfix runs is hidden from us; force the method postfix if it does"
            return absent(hidden)
        return Unused(Cause.STOPPED, "Postfix does not run") if running is False else None

    def send(self, mail: Mail, cancelled: Callable[[], bool]) -> None:
        """Put a mail into its queue.

        Raises:
            NotSent: it was not accepted, or nobody knows.
        """
        program, timeout = self._sendmail.path, self._settings.max_time
        submit(self.name, program, mail, timeout, cancelled, self._system)
