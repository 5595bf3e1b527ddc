"""Mail handed to Exim, under whichever of its two names it is installed."""

from __future__ import annotations

from collections.abc import Callable

from engine.config.mail_config import MailSettings
from engine.mail.model import Cause, Mail, Unused, absent
from engine.mail.transports.base import submit
from engine.mail.transports.installed import System

NAMES = ("exim", "exim4")
"""Its program and its process; Debian's are exim4."""


class Exim:
    """Exim: while it runs, or when it is forced."""

    name = "exim"

    def __init__(self, settings: MailSettings, system: System | None = None) -> None:
        self._settings, self._system = settings, system or System()
        self._exim = self._system.program(settings.programs, *NAMES)

    def absence(self) -> Unused | None:
        """Why it cannot be used here."""
        if self._exim.absence or self._settings.method == self.name:
            return absent(self._exim.absence)
        if self._system.runs(NAMES):
            return None
        return Unused(Cause.STOPPED, "Exim does not run: no process named exim, exim4")

    def send(self, mail: Mail, cancelled: Callable[[], bool]) -> None:
        """Put a mail into its queue. It delivers in a process that leaves our group by setsid(2).

        Raises:
            NotSent: it was not accepted, or nobody knows.
        """
        program, timeout = self._exim.path, self._settings.max_time
        submit(self.name, program, mail, timeout, cancelled, self._system)
