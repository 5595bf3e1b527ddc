"""Send mail with mailx, which makes its own headers and runs sendmail: the last fallback.

Several programs have this name, and all get the same arguments: bsd-mailx, s-nail, the older
Heirloom mailx, and GNU Mailutils.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from engine.config.mail_config import MailSettings
from engine.mail.model import Cause, Mail, Unused, absent_because
from engine.mail.transports.base import (
    address_refusal,
    require_single_addresses,
    send_by_program,
)
from engine.mail.transports.installed import System
from engine.mail.transports.postfix import is_stopped

MAILX_ENVIRONMENT = {"MAILRC": "/dev/null", "DEAD": "/dev/null", "sendwait": "1"}
"""Environment for mailx: no ~/.mailrc; no ~/dead.letter for unsent mail, as we keep it ourselves;
and wait for the result of sendmail, which some do not by default (POSIX, mailx, "sendwait")."""

FILE_PREFIXES = ("+", "%", "#", "&", "~")
"""First characters that make some versions of mailx read an address as a file. Source: POSIX,
mailx, "folder"."""

_tildes = re.compile("(?m)^~").sub


class Mailx:
    """mailx, used if it has a sendmail program for delivery."""

    name = "mailx"

    def __init__(self, settings: MailSettings, system: System | None = None) -> None:
        self._settings, self._system = settings, system or System()
        self._mailx = self._system.find_program(settings.programs, "mailx")

    def absence(self) -> Unused | None:
        """Return why it cannot be used here; without sendmail it puts all mail into
        ~/dead.letter."""
        if self._mailx.absence:
            return absent_because(self._mailx.absence)
        # The path where mailx looks; no setting of this project changes that.
        sendmail = self._system.find_program({}, "sendmail")
        if sendmail.absence:
            return absent_because(f"needs sendmail, which is {sendmail.absence}")
        if is_stopped(sendmail.path, self._system):
            why = "needs sendmail of Postfix, which is not running"
            return Unused(Cause.STOPPED, why)
        return None

    def send(self, mail: Mail, cancelled: Callable[[], bool]) -> None:
        """Send the plain text of a mail.

        Raises:
            NotSent: it was not accepted, or that is unknown.
        """
        sender, recipient = require_single_addresses(mail)
        if recipient.startswith(FILE_PREFIXES):
            raise address_refusal(
                f"recipient that begins with {recipient[0]}: mailx would read it as a file"
            )
        # No `--`: in s-nail it begins options for sendmail. Options are excluded anyway.
        argv = [self._mailx.path, "-n", "-s", mail.subject, "-r", sender, recipient]
        timeout = self._settings.max_time
        body, system = escape_tildes(mail.text), self._system
        send_by_program(
            self.name,
            argv,
            body,
            timeout=timeout,
            cancelled=cancelled,
            system=system,
            variables=MAILX_ENVIRONMENT,
        )


def escape_tildes(text: str) -> bytes:
    """Return the text with a space before each line that begins with `~`.

    `~!` runs a command. Most versions ignore it without a terminal, but GNU Mailutils before 3.13
    ran it.
    """
    return _tildes(" ~", text).encode("utf-8", "replace")
