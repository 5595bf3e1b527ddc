"""Mail handed to a relay by curl: SMTP with TLS, and nothing secret where others could see it."""

from __future__ import annotations

import base64
import os
import re
import stat
from collections.abc import Callable, Iterable

from engine.config.mail_config import MailSettings
from engine.mail import failure_reasons, run_program
from engine.mail.host import full_name
from engine.mail.model import Mail, NotSent, Reason, Unused, absent
from engine.mail.transports.base import guarded
from engine.system import files
from engine.system.users import Account
from engine.text.safe import shown

SMTPS = 465
"""The port where TLS comes before the first word (RFC 8314)."""

PASSWORD_SIZE = 4096
"""Bytes of a password file; a longer one is some other file."""

_LEEWAY = 1.0
"""Seconds that curl is given to keep its own limits, and to say what happened, before it is ended
by force: curl 7.88 forgets --max-time while it waits for the answer to the mail itself."""


class Curl:
    """Sends through the relay of the settings."""

    name = "curl"

    def __init__(
        self, settings: MailSettings, helo: str = "", account: Account | None = None
    ) -> None:
        """`helo` is the name that the relay is told; "" is this host's. `account` is whom curl is
        run as; None: as we are.
        """
        self._settings, self._account = settings, account
        self._helo = helo or full_name(os.uname().nodename)
        self._program = settings.programs.get("curl") or run_program.found("curl")

    def absence(self) -> Unused | None:
        """Why it cannot be used here: no program, no relay, a password that others could read."""
        return absent(self._lacks())

    def _lacks(self) -> str:
        settings = self._settings
        if not os.access(self._program, os.X_OK):
            return f"curl is not installed{self._program and f': {self._program}'}"
        if not settings.host:
            return "no relay: mail.relay.host (NFTBAN_SMTP_HOST) is not set"
        if not settings.user:
            return ""
        if ":" in settings.user:
            return "the relay's user has a colon in it, where curl believes the password to begin"
        if settings.password_file:
            return why_not_secret(settings.password_file)
        return "" if settings.password else "the relay has a user and no password"

    def send(self, mail: Mail, cancelled: Callable[[], bool]) -> None:
        """Hand a mail to the relay.

        Raises:
            NotSent: the relay did not accept it, or nobody knows.
        """
        guarded(mail)
        password = self._password()
        # In memory: no disk can be full, and nothing is left behind whatever happens.
        message = os.memfd_create("mail")
        try:
            files.write_all(message, wire(mail.data))
            ran = run_program.run(
                [self._program, "-q", "--silent", "--show-error", "--config", "-"],
                configuration(self._settings, self._helo, mail, password, f"/dev/fd/{message}"),
                self._settings.max_time + _LEEWAY,
                cancelled,
                pass_fds=(message,),
                account=self._account,
            )
        finally:
            os.close(message)
        if ran.status and not ran.ended:
            raise failure_reasons.of_curl(ran.status, ran.output, self._secrets(password))
        failure = failure_reasons.of_program(self.name, ran._replace(output=b""))
        if failure:
            raise failure

    def _password(self) -> str:
        settings = self._settings
        if not settings.user or not settings.password_file:
            return settings.password
        try:
            return read_secret(settings.password_file)
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            text = f"cannot use the password in {settings.password_file}: {why}"
            raise NotSent(Reason.AUTH, "auth_password_file", shown(text)) from None

    def _secrets(self, password: str) -> tuple[str, ...]:
        """The password in every form that a server comes to see, should one repeat it."""
        if not password:
            return ()
        user = self._settings.user
        seen = [
            said.encode("utf-8", "surrogateescape") for said in (password, f"\0{user}\0{password}")
        ]
        return password, *(base64.b64encode(said).decode("ascii") for said in seen)


def configuration(
    settings: MailSettings, helo: str, mail: Mail, password: str, message: str
) -> bytes:
    """All that curl is told, for its standard input: to send the file `message` to the relay.

    Raises:
        NotSent: a setting that cannot be said to curl.
    """
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    scheme = "smtps" if settings.port == SMTPS else "smtp"
    said = [
        # The path of the URL is the name that curl says EHLO with.
        ("url", f"{scheme}://{host}:{settings.port}/{helo}"),
        ("mail-from", mail.sender),
        ("mail-rcpt", mail.recipient),
        ("upload-file", message),
        ("connect-timeout", f"{settings.connect_timeout:.3f}"),
        ("max-time", f"{settings.max_time:.3f}"),
        ("noproxy", "*"),
        # What the server answers comes on standard output; by itself curl tells but the code.
        ("dump-header", "-"),
        # And whether the mail had begun to leave: a server that never let it cannot have it.
        ("write-out", rf"\n{failure_reasons.UPLOADED} %{{size_upload}}\n"),
    ]
    if settings.ca_file:
        said.append(("cacert", settings.ca_file))
    if settings.user:
        said.append(("user", f"{settings.user}:{password}"))
    # Where plain is allowed any encryption is better, whoever the certificate is of.
    plain = settings.host in settings.plain_hosts
    return _lines(said, ["globoff", *(("ssl", "insecure") if plain else ("ssl-reqd",))])


def wire(data: bytes) -> bytes:
    """A mail as SMTP has it, CRLF at every line's end; the dots are curl's to double."""
    return b"".join(line + b"\r\n" for line in data.splitlines())


def quoted(value: str) -> str:
    """A value as curl(1) reads it between quotes."""
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _lines(said: Iterable[tuple[str, str]], switches: Iterable[str]) -> bytes:
    lines = [f"{name}\n" for name in switches]
    for name, value in said:
        if any(c < " " or c == "\x7f" for c in value):  # it could end the line, and begin another
            text = f"a control character in what curl is told as {name}, expected none"
            raise NotSent(Reason.UNAVAILABLE, "unavailable_configuration", text)
        lines.append(f"{name} = {quoted(value)}\n")
    return "".join(lines).encode("utf-8", "surrogateescape")


def why_not_secret(path: str) -> str:
    """Why a password file is not used; "" when it is a plain file that only its owner reads."""
    try:
        seen = os.stat(path, follow_symlinks=False)
    except OSError as error:
        return f"cannot use the password in {path}: {error.strerror}"
    return _leak(path, seen)


def read_secret(path: str) -> str:
    """The password that a file holds: its text without the line end after it.

    Raises:
        OSError: it cannot be read.
        ValueError: it is not what a password file must be; the text says why.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        leak = _leak(path, os.fstat(fd))
        if leak:
            raise ValueError(leak)
        held = os.read(fd, PASSWORD_SIZE + 1)
    finally:
        os.close(fd)
    password = re.sub(r"\r?\n\Z", "", held.decode("utf-8", "surrogateescape"))
    if len(held) > PASSWORD_SIZE or not password or not password.isprintable():
        raise ValueError("expected one line of text and nothing else")
    return password


def _leak(path: str, seen: os.stat_result) -> str:
    if not stat.S_ISREG(seen.st_mode):
        return f"{path} is no plain file, expected one that holds the password"
    if seen.st_mode & 0o077:
        return f"others may read {path} (mode {seen.st_mode & 0o777:04o}), expected mode 0600"
    return ""
