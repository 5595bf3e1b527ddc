"""Send mail to a relay with curl: SMTP with TLS, and no secret on the command line."""

from __future__ import annotations

import base64
import os
import re
import stat
from collections.abc import Callable, Iterable

from engine.config.mail_config import MailSettings
from engine.mail import failure_reasons, run_program
from engine.mail.host import full_name
from engine.mail.model import Mail, NotSent, Reason, Unused, absent_because
from engine.mail.transports.local_programs import require_single_addresses
from engine.system import files
from engine.system.run_program import find_program
from engine.system.users import Account
from engine.text.error_text import error_text
from engine.text.safe import safe_line

SMTPS_PORT = 465
"""The port for TLS from the first byte (RFC 8314)."""

MAX_PASSWORD_FILE_BYTES = 4096
"""Maximum bytes of a password file; a longer one is a wrong file."""

_KILL_DELAY_SECONDS = 1.0
"""Seconds added to curl's own time limit before it is killed, so that it can report the error: curl
7.88 ignores --max-time while it waits for the reply to the mail itself."""


class Curl:
    """Sends through the relay of the settings."""

    name = "curl"

    def __init__(
        self, settings: MailSettings, helo: str = "", account: Account | None = None
    ) -> None:
        """`helo` is the host name for EHLO; "" is this host's. `account` is the user that runs
        curl; None: our own."""
        self._settings, self._account = settings, account
        self._helo = helo or full_name(os.uname().nodename)
        self._program = settings.programs.get("curl") or find_program("curl")

    def absence(self) -> Unused | None:
        """Return why it cannot be used here: no program, no relay, or a password file that others
        can read."""
        return absent_because(self._describe_obstacle())

    def _describe_obstacle(self) -> str:
        settings = self._settings
        if not os.access(self._program, os.X_OK):
            return f"curl is not installed{self._program and f': {self._program}'}"
        if not settings.host:
            return "no relay: mail.relay.host (NFTBAN_SMTP_HOST) is not set"
        if not settings.user:
            return ""
        if ":" in settings.user:
            return (
                "the relay's user contains a colon, which curl reads as the start of the password"
            )
        if settings.password_file:
            return describe_secret_fault(settings.password_file)
        return "" if settings.password else "the relay has a user and no password"

    def send(self, mail: Mail, cancelled: Callable[[], bool]) -> None:
        """Send a mail to the relay. Raises NotSent: the relay did not accept it, or that is
        unknown."""
        require_single_addresses(mail)
        password = self._password()
        # A file in memory: needs no disk space and leaves nothing behind.
        message = os.memfd_create("mail")
        try:
            files.write_all(message, with_crlf(mail.data))
            ran = run_program.run(
                [self._program, "-q", "--silent", "--show-error", "--config", "-"],
                render_config(self._settings, self._helo, mail, password, f"/dev/fd/{message}"),
                self._settings.max_time + _KILL_DELAY_SECONDS,
                cancelled,
                pass_fds=(message,),
                account=self._account,
            )
        finally:
            os.close(message)
        if failure_reasons.has_accepted_mail(ran.output):
            return
        if ran.status and not ran.end_reason:
            raise failure_reasons.classify_curl_failure(
                ran.status, ran.output, self._secrets(password)
            )
        failure = failure_reasons.classify_program_failure(self.name, ran._replace(output=b""))
        if failure:
            raise failure

    def _password(self) -> str:
        settings = self._settings
        if not settings.user or not settings.password_file:
            return settings.password
        try:
            return read_secret(settings.password_file)
        except (OSError, ValueError) as error:
            why = error_text(error)
            text = f"cannot use the password in {settings.password_file}: {why}"
            raise NotSent(Reason.AUTH, "auth_password_file", safe_line(text)) from None

    def _secrets(self, password: str) -> tuple[str, ...]:
        """Return the password in every form in which a server could repeat it."""
        if not password:
            return ()
        user = self._settings.user
        credentials = [
            text.encode("utf-8", "surrogateescape") for text in (password, f"\0{user}\0{password}")
        ]
        return password, *(base64.b64encode(each).decode("ascii") for each in credentials)


def render_config(
    settings: MailSettings, helo: str, mail: Mail, password: str, message: str
) -> bytes:
    """Return curl's configuration for standard input: send the file `message` to the relay. Raises
    NotSent: a setting contains a control character."""
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    scheme = "smtps" if settings.port == SMTPS_PORT else "smtp"
    options = [
        # The path of the URL is the host name for EHLO.
        ("url", f"{scheme}://{host}:{settings.port}/{helo}"),
        ("mail-from", mail.sender),
        ("mail-rcpt", mail.recipient),
        ("upload-file", message),
        ("connect-timeout", f"{settings.connect_timeout or settings.max_time:.3f}"),
        ("max-time", f"{settings.max_time:.3f}"),
        ("noproxy", "*"),
        # Print the server's replies on standard output; curl's own message has only the code.
        ("dump-header", "-"),
        # Print the uploaded bytes: if none left, the server cannot have the mail.
        ("write-out", rf"\n{failure_reasons.UPLOADED_PREFIX} %{{size_upload}}\n"),
    ]
    if settings.ca_file:
        options.append(("cacert", settings.ca_file))
    if settings.user:
        options.append(("user", f"{settings.user}:{password}"))
    # If plain SMTP is allowed, TLS with any certificate is still better.
    plain = settings.host in settings.plain_hosts
    return _config_lines(options, ["globoff", *(("ssl", "insecure") if plain else ("ssl-reqd",))])


def with_crlf(data: bytes) -> bytes:
    """Return a mail with CRLF line ends; curl doubles the dots."""
    return b"".join(line + b"\r\n" for line in data.splitlines())


def quote_value(value: str) -> str:
    """Return a value in the quotes of a curl(1) configuration file."""
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _config_lines(options: Iterable[tuple[str, str]], switches: Iterable[str]) -> bytes:
    lines = [f"{name}\n" for name in switches]
    for name, value in options:
        if any(c < " " or c == "\x7f" for c in value):  # could start another line
            text = f"a control character in curl's setting {name}, expected none"
            raise NotSent(Reason.UNAVAILABLE, "unavailable_configuration", text)
        lines.append(f"{name} = {quote_value(value)}\n")
    return "".join(lines).encode("utf-8", "surrogateescape")


def describe_secret_fault(path: str) -> str:
    """Return why a password file is not used; "" if it is a plain file that only its owner can
    read."""
    try:
        file_stat = os.stat(path, follow_symlinks=False)
    except OSError as error:
        return f"cannot use the password in {path}: {error_text(error)}"
    return _describe_leak(path, file_stat)


def read_secret(path: str) -> str:
    """Read the password from its file, without the line end. Raises OSError: it cannot be read;
    ValueError: it is not a valid password file; the text contains the reason."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        leak = _describe_leak(path, os.fstat(fd))
        if leak:
            raise ValueError(leak)
        content = os.read(fd, MAX_PASSWORD_FILE_BYTES + 1)
    finally:
        os.close(fd)
    password = re.sub(r"\r?\n\Z", "", content.decode("utf-8", "surrogateescape"))
    if len(content) > MAX_PASSWORD_FILE_BYTES or not password or not password.isprintable():
        raise ValueError("expected one line of text and nothing else")
    return password


def _describe_leak(path: str, file_stat: os.stat_result) -> str:
    if not stat.S_ISREG(file_stat.st_mode):
        return f"{path} is not a plain file, expected one with the password"
    if file_stat.st_mode & 0o077:
        return f"others may read {path} (mode {file_stat.st_mode & 0o777:04o}), expected mode 0600"
    return ""
