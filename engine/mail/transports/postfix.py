"""Mail handed to a Postfix that runs on this machine, by its sendmail program."""

from __future__ import annotations

from collections.abc import Callable

from engine.mail.model import Mail
from engine.mail.transports.handover import submit
from engine.mail.transports.system import System
from engine.mailconf import MailSettings

MASTER = frozenset({"master"})
"""The process that all of Postfix is made by. Source: Postfix master(8)."""


class Postfix:
    """Postfix, while it runs."""

    name = "postfix"

    def __init__(self, settings: MailSettings, system: System | None = None) -> None:
        self._settings, self._system = settings, system or System()
        self._postfix = self._system.program(settings.programs, "postfix")
        self._sendmail = self._system.program(settings.programs, "sendmail")

    def absence(self) -> str:
        """Why it cannot be used here; a Postfix that is stopped would keep mail until it starts."""
        if why := self._postfix.absence or self._sendmail.absence:
            return why
        if self._system.runs(MASTER):
            return ""
        if not self._system.blind:
            return "Postfix does not run: no process named master"
        if self._settings.method == self.name:
            return ""
        return "no process named master that we may see; force the method postfix if Postfix runs"

    def send(self, mail: Mail, cancelled: Callable[[], bool]) -> None:
        """Put a mail into its queue.

        Raises:
            NotSent: it was not accepted, or nobody knows.
        """
        program, timeout = self._sendmail.path, self._settings.max_time
        submit(self.name, program, mail, timeout, cancelled, self._system)
