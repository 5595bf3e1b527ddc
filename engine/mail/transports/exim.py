"""Send mail with Exim; its program is named exim or exim4."""

from __future__ import annotations

from collections.abc import Callable

from engine.config.mail_config import MailSettings
from engine.mail.model import Cause, Mail, Unused, absent_because
from engine.mail.transports.base import send_by_sendmail
from engine.mail.transports.installed import EXIM_NAMES, System


class Exim:
    """Exim, used if it is running or forced by the configuration."""

    name = "exim"

    def __init__(self, settings: MailSettings, system: System | None = None) -> None:
        self._settings, self._system = settings, system or System()
        self._exim = self._system.find_program(settings.programs, *EXIM_NAMES)

    def absence(self) -> Unused | None:
        """Why it cannot be used here."""
        if self._exim.absence or self._settings.method == self.name:
            return absent_because(self._exim.absence)
        if self._system.has_process(EXIM_NAMES):
            return None
        return Unused(Cause.STOPPED, "Exim is not running: no process named exim, exim4")

    def send(self, mail: Mail, cancelled: Callable[[], bool]) -> None:
        """Put a mail into Exim's queue. Exim delivers it in a process outside our group
        (setsid(2)).

        Raises:
            NotSent: it was not accepted, or that is unknown.
        """
        program, timeout = self._exim.path, self._settings.max_time
        send_by_sendmail(
            self.name, program, mail, timeout=timeout, cancelled=cancelled, system=self._system
        )
