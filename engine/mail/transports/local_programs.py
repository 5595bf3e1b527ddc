"""Send mail with a program of this machine: postfix, sendmail, exim, msmtp or mailx.

All but mailx get the mail by the command line of sendmail. mailx is the last fallback: it makes its
own headers and runs sendmail. Several programs are named mailx, and all get the same arguments:
bsd-mailx, s-nail, the older Heirloom mailx, and GNU Mailutils.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Callable, Iterator, Mapping

from engine.config.mail_config import MailSettings
from engine.mail import address, failure_reasons, run_program
from engine.mail.model import BadMail, Cause, Mail, NotSent, Reason, Unused, absent_because
from engine.mail.transports.installed import EXIM_NAMES, System
from engine.text.safe import safe_line
from engine.values import NamedTuple

MASTER_PROCESS = frozenset({"master"})
"""The master process of Postfix. Source: Postfix master(8)."""

MAIN_CF = "/etc/postfix/main.cf"

DEFAULT_QUEUE_FOLDER = "/var/spool/postfix"
"""The default queue folder, if main.cf has none. Source: Postfix postconf(5)."""

MASTER_LOCK = "pid/master.pid"
"""In the queue folder: a file that the running master keeps locked (flock, on Linux)."""

MAILX_ENVIRONMENT = {"MAILRC": "/dev/null", "DEAD": "/dev/null", "sendwait": "1"}
"""Environment for mailx: no ~/.mailrc; no ~/dead.letter for unsent mail, as we keep it ourselves;
and wait for the result of sendmail, which some do not by default (POSIX, mailx, "sendwait")."""

FILE_PREFIXES = ("+", "%", "#", "&", "~")
"""First characters that make some versions of mailx read an address as a file. Source: POSIX,
mailx, "folder"."""

_queue_directories = re.compile(r"(?m)^queue_directory[ \t]*=[ \t]*(/[^\s$]*)[ \t]*$").findall
_tildes = re.compile("(?m)^~").sub


class MailCommand(NamedTuple):
    """How a program gets a mail."""

    arguments: tuple[str, ...]
    stdin: bytes
    variables: Mapping[str, str] = {}
    """Additional environment variables."""


class LocalTransport:
    """One of the transports that run a program, by the rows of `_KINDS`."""

    def __init__(self, name: str, settings: MailSettings, system: System | None = None) -> None:
        """`name` is one of `_KINDS`."""
        self.name, self._settings, self._system = name, settings, system or System()
        self._kind = _KINDS[name]
        self._programs = [
            self._system.find_program(settings.programs, *names) for names in self._kind.programs
        ]

    def absence(self) -> Unused | None:
        """Return why it cannot be used here."""
        if lacking := next((each.absence for each in self._programs if each.absence), ""):
            return absent_because(lacking)
        is_forced = self._settings.method == self.name
        return self._kind.describe_absence(self._programs[-1].path, self._system, is_forced)

    def send(self, mail: Mail, cancelled: Callable[[], bool]) -> None:
        """Give a mail to the program; it was accepted when this returns. Exim delivers it in a
        process outside our group (setsid(2)). Raises NotSent: it was not accepted, or that is
        unknown."""
        require_single_addresses(mail)
        program = self._programs[-1].path
        arguments, data, variables = self._kind.make_command(program, mail)
        ran = run_program.run(
            [program, *arguments],
            data,
            self._settings.max_time,
            cancelled,
            {**self._system.environment(), **variables},
            account=self._system.account,
        )
        failure = failure_reasons.classify_program_failure(self.name, ran)
        if failure is not None:
            raise failure


def require_single_addresses(mail: Mail) -> None:
    """Validate sender and recipient again, for a command line. Raises NotSent: one could be read as
    an option, a command or several addresses."""
    for what, each in (("sender", mail.sender), ("recipient", mail.recipient)):
        try:
            address.require_address(each, strict=False)
        except BadMail as bad:
            raise _address_refusal(f"{what} {bad}") from bad


def _address_refusal(text: str) -> NotSent:
    return NotSent(Reason.REJECTED, "rejected_address", safe_line(text), permanent=True)


# The command lines.


def _sendmail_command(program: str, mail: Mail) -> MailCommand:
    """The command line of sendmail.

    Sender and recipient are arguments, which no shell reads, and `--` ends the options, so no
    header decides who gets the mail. With `-i` a line with a single dot does not end it. Source:
    Postfix sendmail(1), exim(8), msmtp(1). Exim gets `-oep`: without it, it mails the reason for a
    refusal, such as a mail that is too big, to the sender, and prints none.
    """
    is_exim = os.path.basename(os.path.realpath(program)) in EXIM_NAMES
    options = ("-oep",) if is_exim else ()
    return MailCommand(("-i", *options, "-f", mail.sender, "--", mail.recipient), mail.data)


def _mailx_command(program: str, mail: Mail) -> MailCommand:
    """The command line of mailx, with the plain text of a mail."""
    sender, recipient = mail.sender, mail.recipient
    if recipient.startswith(FILE_PREFIXES):
        raise _address_refusal(
            f"recipient that begins with {recipient[0]}: mailx would read it as a file"
        )
    # No `--`: in s-nail it begins options for sendmail. Options are excluded anyway.
    arguments = ("-n", "-s", mail.subject, "-r", sender, recipient)
    return MailCommand(arguments, escape_tildes(mail.text), MAILX_ENVIRONMENT)


def escape_tildes(text: str) -> bytes:
    """Return the text with a space before each line that begins with `~`. `~!` runs a command. Most
    versions ignore it without a terminal, but GNU Mailutils before 3.13 ran it."""
    return _tildes(" ~", text).encode("utf-8", "replace")


# Whether they can be used.


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
    """True if the sendmail program is Postfix's. Checked by the target of the symbolic link, else
    by a `postfix` program in the same folder and its configuration."""
    real = os.path.realpath(sendmail)
    if os.path.basename(real) != "sendmail":
        return "postfix" in os.path.basename(real)
    program = os.path.join(os.path.dirname(real), "postfix")
    return os.access(program, os.X_OK) and bool(system.read_text(MAIN_CF))


def _postfix_absence(sendmail: str, system: System, is_forced: bool) -> Unused | None:
    """A stopped Postfix would keep mail until it starts."""
    running = is_running(system)
    if running is None and not is_forced:
        hidden = "the Postfix process is hidden from us; if it is running, force the method postfix"
        return absent_because(hidden)
    return Unused(Cause.STOPPED, "Postfix is not running") if running is False else None


def _sendmail_absence(sendmail: str, system: System, is_forced: bool) -> Unused | None:
    """Only the mail system of the program knows whether it needs a daemon. `sendmail -bv` is never
    run: Postfix answers it by mail. A stopped Postfix is not used: it would keep the mail where no
    operator sees it; the mail spool keeps it instead."""
    if is_stopped(sendmail, system):
        return Unused(Cause.STOPPED, "belongs to Postfix, which is not running")
    if is_forced:
        return None
    if is_postfix_program(sendmail, system):
        # An operator who suspends postfix does not want mail to reach it by another name.
        return absent_because("belongs to Postfix: use the transport postfix")
    if os.path.basename(os.path.realpath(sendmail)) == "busybox":
        return absent_because("it is BusyBox's, which has no queue and needs a server on port 25")
    return None


def _exim_absence(exim: str, system: System, is_forced: bool) -> Unused | None:
    if is_forced or system.has_process(EXIM_NAMES):
        return None
    return Unused(Cause.STOPPED, "Exim is not running: no process named exim, exim4")


def _msmtp_absence(msmtp: str, system: System, is_forced: bool) -> Unused | None:
    paths = list(_msmtp_configurations(system.environ))
    if any(map(system.is_readable, paths)):
        return None
    return absent_because(f"not configured: cannot read {' or '.join(paths)}")


def _msmtp_configurations(environ: Mapping[str, str]) -> Iterator[str]:
    """Return the paths of its configuration. Source: msmtp(1), "FILES"."""
    yield "/etc/msmtprc"
    home = environ.get("HOME", "")
    if home:
        yield f"{home}/.msmtprc"
    config = environ.get("XDG_CONFIG_HOME", "") or (home and f"{home}/.config")
    if config:
        yield f"{config}/msmtp/config"


def _mailx_absence(mailx: str, system: System, is_forced: bool) -> Unused | None:
    # Without sendmail mailx puts all mail into ~/dead.letter. It looks at this path, which no
    # setting of this project changes.
    sendmail = system.find_program({}, "sendmail")
    if sendmail.absence:
        return absent_because(f"needs sendmail, which is {sendmail.absence}")
    if is_stopped(sendmail.path, system):
        return Unused(Cause.STOPPED, "needs sendmail of Postfix, which is not running")
    return None


class _Kind(NamedTuple):
    """What differs between the transports."""

    programs: tuple[tuple[str, ...], ...]
    """The programs that it needs, each by its names; the last one gets the mail."""
    describe_absence: Callable[[str, System, bool], Unused | None]
    """Why its installed program is not used; True: the configuration forces this transport."""
    make_command: Callable[[str, Mail], MailCommand] = _sendmail_command


_KINDS: Mapping[str, _Kind] = {
    "postfix": _Kind((("postfix",), ("sendmail",)), _postfix_absence),
    "sendmail": _Kind((("sendmail",),), _sendmail_absence),
    "exim": _Kind((EXIM_NAMES,), _exim_absence),
    "msmtp": _Kind((("msmtp",),), _msmtp_absence),
    "mailx": _Kind((("mailx",),), _mailx_absence, _mailx_command),
}
