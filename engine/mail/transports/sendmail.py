"""Mail handed to the sendmail program, whosesoever it is."""

from __future__ import annotations

from collections.abc import Callable

from engine.mail.model import Cause, Mail, Unused, absent
from engine.mail.transports.handover import submit
from engine.mail.transports.postfix import is_stopped
from engine.mail.transports.system import System
from engine.mailconf import MailSettings

PROCESSES = frozenset({"sendmail", "sendmail-mta"})
"""How the daemon is named, and how Debian names it."""

PID_FILE = "/var/run/sendmail.pid"


class Sendmail:
    """The sendmail program: while its daemon runs, or when it is forced."""

    name = "sendmail"

    def __init__(self, settings: MailSettings, system: System | None = None) -> None:
        self._settings, self._system = settings, system or System()
        self._sendmail = self._system.program(settings.programs, "sendmail")

    def absence(self) -> Unused | None:
        """Why it cannot be used here. `sendmail -bv` is never asked: Postfix answers by mail."""
        if self._sendmail.absence:
            return absent(self._sendmail.absence)
        if is_stopped(self._sendmail.path, self._system):
            return Unused(Cause.STOPPED, "it is Postfix's, and Postfix does not run")
        if self._settings.method == self.name or self._system.runs(PROCESSES, PID_FILE):
            return None
        why = f"its daemon does not run: no process named sendmail, none by {PID_FILE}"
        return Unused(Cause.STOPPED, why)

    def send(self, mail: Mail, cancelled: Callable[[], bool]) -> None:
        """Hand a mail to it.

        Raises:
            NotSent: it was not accepted, or nobody knows.
        """
        program, timeout = self._sendmail.path, self._settings.max_time
        submit(self.name, program, mail, timeout, cancelled, self._system)
