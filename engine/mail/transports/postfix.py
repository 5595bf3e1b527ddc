"""Send mail with a running local Postfix, by its sendmail program."""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Callable

from engine.config.mail_config import MailSettings
from engine.mail.model import Cause, Mail, Unused, absent_because
from engine.mail.transports.base import send_by_sendmail
from engine.mail.transports.installed import System

MASTER_PROCESS = frozenset({"master"})
"""The master process of Postfix. Source: Postfix master(8)."""

MAIN_CF = "/etc/postfix/main.cf"

DEFAULT_QUEUE_FOLDER = "/var/spool/postfix"
"""The default queue folder, if main.cf has none. Source: Postfix postconf(5)."""

MASTER_LOCK = "pid/master.pid"
"""In the queue folder: a file that the running master keeps locked (flock, on Linux)."""

_queue_directories = re.compile(r"(?m)^queue_directory[ \t]*=[ \t]*(/[^\s$]*)[ \t]*$").findall


def is_running(system: System) -> bool | None:
    """Return whether the Postfix of this machine is running; None if that is hidden from us."""
    *_, queue = DEFAULT_QUEUE_FOLDER, *_queue_directories(system.read_text(MAIN_CF))
    try:
        lock = system.open_file(f"{queue}/{MASTER_LOCK}", os.O_NOFOLLOW)
    except FileNotFoundError:
        return False
    except OSError:
        # The lock file belongs to root. Other users only see a process, and any program can use its
        # name.
        return None if system.hides_processes else system.has_process(MASTER_PROCESS, uid=0)
    try:
        # A shared lock, released immediately: `postfix status` needs an exclusive one.
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return None  # the file system has no locks
    finally:
        os.close(lock)
    return False


def is_stopped(sendmail: str, system: System) -> bool:
    """True if the sendmail program belongs to a stopped Postfix, which would queue mail until it is
    started."""
    return is_postfix_program(sendmail, system) and is_running(system) is False


def is_postfix_program(sendmail: str, system: System) -> bool:
    """True if the sendmail program is Postfix's.

    Checked by the target of the symbolic link, else by a `postfix` program in the same folder and
    its configuration.
    """
    real = os.path.realpath(sendmail)
    if os.path.basename(real) != "sendmail":
        return "postfix" in os.path.basename(real)
    program = os.path.join(os.path.dirname(real), "postfix")
    return os.access(program, os.X_OK) and bool(system.read_text(MAIN_CF))


class Postfix:
    """Postfix, used if it is running."""

    name = "postfix"

    def __init__(self, settings: MailSettings, system: System | None = None) -> None:
        self._settings, self._system = settings, system or System()
        self._postfix = self._system.find_program(settings.programs, "postfix")
        self._sendmail = self._system.find_program(settings.programs, "sendmail")

    def absence(self) -> Unused | None:
        """Return why it cannot be used here; a stopped Postfix would keep mail until it starts."""
        if why := self._postfix.absence or self._sendmail.absence:
            return absent_because(why)
        running = is_running(self._system)
        if running is None and self._settings.method != self.name:
            hidden = (
                "the Postfix process is hidden from us; if it is running, force the method postfix"
            )
            return absent_because(hidden)
        return Unused(Cause.STOPPED, "Postfix is not running") if running is False else None

    def send(self, mail: Mail, cancelled: Callable[[], bool]) -> None:
        """Put a mail into its queue.

        Raises:
            NotSent: it was not accepted, or that is unknown.
        """
        program, timeout = self._sendmail.path, self._settings.max_time
        send_by_sendmail(
            self.name, program, mail, timeout=timeout, cancelled=cancelled, system=self._system
        )
