"""Mail handed to the sendmail program, whosesoever it is."""

from __future__ import annotations

import os
from collections.abc import Callable

from engine.config.mail_config import MailSettings
from engine.mail.model import Cause, Mail, Unused, absent
from engine.mail.transports.base import submit
from engine.mail.transports.installed import System
from engine.mail.transports.postfix import has_made, is_stopped


class Sendmail:
    """The sendmail program of any mail system; whether that needs a daemon only it knows."""

    name = "sendmail"

    def __init__(self, settings: MailSettings, system: System | None = None) -> None:
        self._settings, self._system = settings, system or System()
        self._sendmail = self._system.program(settings.programs, "sendmail")

    def absence(self) -> Unused | None:
        """Why it cannot be used here.

        `sendmail -bv` is never run: Postfix answers it by mail. A stopped Postfix is not used: it
        would keep the mail where no operator sees it, and here it stays in the mail spool.
        """
        if self._sendmail.absence:
            return absent(self._sendmail.absence)
        if is_stopped(self._sendmail.path, self._system):
            return Unused(Cause.STOPPED, "it is Postfix's, and Postfix does not run")
        if self._settings.method == self.name:
            return None
        if has_made(self._sendmail.path, self._system):
            # Who suspends postfix does not want its mail to go there by another name.
            return absent("it is Postfix's: that is the transport postfix")
        if os.path.basename(os.path.realpath(self._sendmail.path)) == "busybox":
            return absent("it is BusyBox's, which has no queue and needs a server on port 25")
        return None

    def send(self, mail: Mail, cancelled: Callable[[], bool]) -> None:
        """Hand a mail to it.

        Raises:
            NotSent: it was not accepted, or nobody knows.
        """
        program, timeout = self._sendmail.path, self._settings.max_time
        submit(self.name, program, mail, timeout, cancelled, self._system)
