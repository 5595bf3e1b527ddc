"""Send mail with the sendmail program of any mail system."""

from __future__ import annotations

import os
from collections.abc import Callable

from engine.config.mail_config import MailSettings
from engine.mail.model import Cause, Mail, Unused, absent_because
from engine.mail.transports.base import send_by_sendmail
from engine.mail.transports.installed import System
from engine.mail.transports.postfix import is_postfix_program, is_stopped


class Sendmail:
    """The sendmail program of any mail system; only that system knows whether it needs a daemon."""

    name = "sendmail"

    def __init__(self, settings: MailSettings, system: System | None = None) -> None:
        self._settings, self._system = settings, system or System()
        self._sendmail = self._system.find_program(settings.programs, "sendmail")

    def absence(self) -> Unused | None:
        """Return why it cannot be used here.

        `sendmail -bv` is never run: Postfix answers it by mail. A stopped Postfix is not used: it
        would keep the mail where no operator sees it; the mail spool keeps it instead.
        """
        if self._sendmail.absence:
            return absent_because(self._sendmail.absence)
        if is_stopped(self._sendmail.path, self._system):
            return Unused(Cause.STOPPED, "belongs to Postfix, which is not running")
        if self._settings.method == self.name:
            return None
        if is_postfix_program(self._sendmail.path, self._system):
            # An operator who suspends postfix does not want mail to reach it by another name.
            return absent_because("belongs to Postfix: use the transport postfix")
        if os.path.basename(os.path.realpath(self._sendmail.path)) == "busybox":
            return absent_because(
                "it is BusyBox's, which has no queue and needs a server on port 25"
            )
        return None

    def send(self, mail: Mail, cancelled: Callable[[], bool]) -> None:
        """Send a mail.

        Raises:
            NotSent: it was not accepted, or that is unknown.
        """
        program, timeout = self._sendmail.path, self._settings.max_time
        send_by_sendmail(
            self.name, program, mail, timeout=timeout, cancelled=cancelled, system=self._system
        )
