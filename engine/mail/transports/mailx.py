"""Mail handed to mailx, which makes the headers itself and hands it to sendmail: the last resort.

There are several programs of this name, and what is said to one is said to all: bsd-mailx, s-nail
and the older Heirloom mailx, and that of GNU Mailutils.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from engine.config.mail_config import MailSettings
from engine.mail.model import Cause, Mail, NotSent, Reason, Unused, absent
from engine.mail.transports.base import guarded, hand_over
from engine.mail.transports.installed import System
from engine.mail.transports.postfix import is_stopped

MANNERS = {"MAILRC": "/dev/null", "DEAD": "/dev/null", "sendwait": "1"}
"""No commands of the user's ~/.mailrc are run; what cannot be sent is not put into ~/dead.letter,
because we keep it ourselves; and it waits for sendmail to tell what became of the mail, which some
do not by themselves (POSIX, mailx, "sendwait")."""

FILES = ("+", "%")
"""What begins like this is a file to mailx, not an address. Source: POSIX, mailx, "folder"."""

_tildes = re.compile("(?m)^~").sub


class Mailx:
    """mailx, where there is a program that it can hand mail to."""

    name = "mailx"

    def __init__(self, settings: MailSettings, system: System | None = None) -> None:
        self._settings, self._system = settings, system or System()
        self._mailx = self._system.program(settings.programs, "mailx")

    def absence(self) -> Unused | None:
        """Why it cannot be used here; without sendmail it puts all mail into ~/dead.letter."""
        if self._mailx.absence:
            return absent(self._mailx.absence)
        # Where it looks itself: no setting of ours changes that.
        sendmail = self._system.program({}, "sendmail")
        if sendmail.absence:
            return absent(f"sendmail, which it hands mail to, is {sendmail.absence}")
        if is_stopped(sendmail.path, self._system):
            why = "sendmail, which it hands mail to, is Postfix's, and Postfix does not run"
            return Unused(Cause.STOPPED, why)
        return None

    def send(self, mail: Mail, cancelled: Callable[[], bool]) -> None:
        """Have it send the plain text of a mail.

        Raises:
            NotSent: it was not accepted, or nobody knows.
        """
        sender, recipient = guarded(mail)
        if recipient.startswith(FILES):
            text = f"recipient that begins with {recipient[0]}: mailx would take it for a file"
            raise NotSent(Reason.REJECTED, "rejected_address", text, permanent=True)
        # No `--`: to s-nail it begins the options of sendmail. `guarded` knows no option anyway.
        argv = [self._mailx.path, "-n", "-s", mail.subject, "-r", sender, recipient]
        timeout = self._settings.max_time
        body, system = inert(mail.text), self._system
        hand_over(self.name, argv, body, timeout, cancelled, system, MANNERS)


def inert(text: str) -> bytes:
    """The text as mailx is given it: a line that begins with `~` is set in by a space.

    `~!` runs a command. Most take it for text when nobody sits before them, but GNU Mailutils
    before 3.13 ran it all the same.
    """
    return _tildes(" ~", text).encode("utf-8", "replace")
