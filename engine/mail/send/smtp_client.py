"""A mail that lies in wire form, handed to one server by SMTP: its bytes go as they are.

What was accepted and what was not is told apart: until the line that ends the mail has left us,
nobody has accepted it; from then on only the server's answer says.
"""

from __future__ import annotations

import base64
import errno
import ipaddress
import re
import smtplib
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import BinaryIO, NamedTuple

from engine.mail import failure_reasons, wire_format
from engine.mail.model import BadMail, NotSent, Reason
from engine.mail.transports.curl import read_secret, why_not_secret
from engine.text.safe import ascii_name, shown

REQUIRED, WRAPPED, OPPORTUNISTIC, NONE = "required", "wrapped", "opportunistic", "none"
TLS = (REQUIRED, WRAPPED, OPPORTUNISTIC, NONE)
"""STARTTLS and a certificate that is believed; the same from the first byte on (port 465); STARTTLS
where it is offered, whoever the certificate is of; no encryption."""

_TICK = 0.5
"""Seconds after which an attempt is looked at again for being cancelled, or too late."""

_PARTING = 1.0
"""Seconds that a server has to say goodbye, once it has accepted a mail."""


IN_DOUBT = "in doubt: "
"""Begins the text of `InDoubt`."""


class Destination(NamedTuple):
    """The server that mail is handed to, and how."""

    host: str
    port: int = 25
    tls: str = ""
    """One of `TLS`; "" is none towards this host itself, and required towards any other."""
    user: str = ""
    password_file: str = ""
    """A file that holds the password alone, which nobody else may read."""
    ca_file: str = ""
    """Certificates that the server's is checked against; "" for those of the system."""
    helo: str = "localhost"
    """What we call ourselves."""
    connect_timeout: float = 30.0
    """Seconds to reach it."""
    timeout: float = 300.0
    """Seconds that each answer, and each piece of a mail, may take (RFC 5321, 4.5.3.2)."""
    max_time: float = 1800.0
    """Seconds that one attempt may take in all."""

    @property
    def encryption(self) -> str:
        """The one of `TLS` that counts."""
        return self.tls or (NONE if is_loopback(self.host) else REQUIRED)

    @property
    def fault(self) -> str:
        """Why nothing can be sent there, whatever it is; "" when it can."""
        if not self.host:
            return "no host to send to"
        if self.user and not self.password_file:
            return "a user and no password_file"
        plain = self.encryption in (NONE, OPPORTUNISTIC) and not is_loopback(self.host)
        if self.user and plain:
            return f"a password would be told without TLS, or to anybody (tls: {self.encryption})"
        return ""


def is_loopback(host: str) -> bool:
    """Whether a host is this one by its name or address alone."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def unusable(to: Destination) -> str:
    """Why nothing can be sent there, as far as can be known without calling; "" when it may be."""
    if to.fault:
        return to.fault
    if to.user and (why := why_not_secret(to.password_file)):
        return why
    if to.ca_file:
        try:
            _context(to)
        except NotSent as error:
            return str(error)
    return ""


class WireMessage(NamedTuple):
    """One mail to one recipient."""

    sender: str
    """"" or "<>" is the null sender."""
    recipient: str
    contents: BinaryIO
    """In wire form, open to be read from its beginning; whoever is given it closes it."""


class InDoubt(NotSent):
    """The mail was handed over whole, and no answer came that is a yes or a no: it may have been
    accepted."""


class UnreadableMessage(NotSent):
    """The mail cannot be read here and now, whatever any server makes of it."""

    def __init__(self, text: str) -> None:
        super().__init__(Reason.UNAVAILABLE, "unavailable_no_input", text)


_ADDRESS = re.compile(
    r"""(?:[^\s"(),:;<>@\[\]\\]+|"(?:[^"\\]|\\.)*")"""  # as it is, or in quotes
    r"""(?:@(?:[^\s"(),:;<>@\[\]\\]+|\[[A-Za-z0-9.:-]+\]))?"""  # a name, or an address of a host
).fullmatch


def path_of(address: str) -> str:
    """An address between the brackets that SMTP has around it; a host's name in ASCII.

    Raises:
        BadMail: it is none, could be taken for more than one, or for another than is shown.
    """
    if address in ("", "<>"):
        return "<>"
    if not address.isprintable() or not _ADDRESS(address):
        raise BadMail(f"'{shown(address[:40])}' is no address that a server could be told")
    local, at, host = address.rpartition("@")
    if at and not host.isascii() and not host.endswith('"'):
        try:
            address = f"{local}@{ascii_name(host)}"
        except ValueError as error:
            raise BadMail(f"no address that a server could be told: {error}") from error
    return f"<{address}>"


def send(
    letter: WireMessage, to: Destination, cancelled: Callable[[], bool] = lambda: False
) -> None:
    """Hand a letter over; when it returns the server has accepted it. Closes its contents.

    `cancelled` is asked now and then: True ends the attempt.

    Raises:
        BadMail: nobody may send it, or this server can never be sent it.
        InDoubt: it may have been accepted.
        Unreadable: its contents cannot be read now; nobody has accepted it.
        NotSent: it was not accepted; another attempt may be made.
    """
    with letter.contents as contents:
        paths = path_of(letter.sender), path_of(letter.recipient)
        if paths[1] == "<>":
            raise BadMail("a mail to nobody")
        try:
            facts = wire_format.examined(contents)
            contents.seek(0)
        except OSError as error:
            raise _unreadable(error) from error
        if why := to.fault:
            raise NotSent(Reason.UNAVAILABLE, "unavailable_configuration", why)
        watch = _AttemptDeadline(time.monotonic() + to.max_time, cancelled)
        with watch:
            _SmtpSession(to, watch).hand_over(paths, contents, facts)


def _unreadable(error: OSError) -> UnreadableMessage:
    return UnreadableMessage(f"the contents cannot be read: {error.strerror}")


class _AttemptDeadline:
    """Breaks off whatever an attempt waits for once its time is over, or nobody wants it."""

    def __init__(self, deadline: float, cancelled: Callable[[], bool]) -> None:
        self._deadline, self._cancelled = deadline, cancelled
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self.why = ""
        """The word for why it was broken off; "" while it was not."""

    def __enter__(self) -> None:
        self._thread = threading.Thread(target=self._look, name="smtp watch", daemon=True)
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._let_go()

    @property
    def left(self) -> float:
        """Seconds that the attempt still has; never 0, which sockets take for something else."""
        return max(0.001, self._deadline - time.monotonic())

    def guard(self, connection: socket.socket) -> None:
        """From now on this is the connection to be broken off, by a descriptor of our own: TLS
        takes the socket itself to pieces."""
        with self._lock:
            self._let_go()
            self._socket = connection.dup()
            self._break_off()

    def _let_go(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _look(self) -> None:
        while not self._over.wait(min(_TICK, self.left)):
            late = time.monotonic() >= self._deadline
            if late or self._cancelled():
                with self._lock:
                    self.why = "timeout" if late else "unavailable_stopped"
                    self._break_off()
                return

    def _break_off(self) -> None:
        if self.why and self._socket is not None:
            with suppress(OSError):  # it is not connected any more
                self._socket.shutdown(socket.SHUT_RDWR)


class _Client(smtplib.SMTP):
    """The library's client on a connection that is there already."""

    def __init__(self, connection: socket.socket, host: str, helo: str) -> None:
        super().__init__(local_hostname=helo)
        self.sock = connection
        self._host = host  # whom the certificate must be of, at STARTTLS


class _SmtpSession:
    """One attempt."""

    def __init__(self, to: Destination, watch: _AttemptDeadline) -> None:
        self._to, self._watch = to, watch
        self._doing = "connecting"
        self._ended = False
        """Whether the line that ends the mail may have left us."""
        self._secret = ""

    def hand_over(
        self, paths: tuple[str, str], contents: BinaryIO, facts: wire_format.WireFacts
    ) -> None:
        """All of it.

        Raises:
            BadMail, NotSent: as `send` says.
        """
        try:
            with self._client() as client:
                self._begin(client)
                options = _options(client, paths, facts)
                self._command(client, "MAIL", f"FROM:{paths[0]}{options}")
                self._command(client, "RCPT", f"TO:{paths[1]}")
                self._data(client, contents, facts.size)
                return
        except NotSent as error:
            failure = error
        except (OSError, smtplib.SMTPException, ValueError) as error:
            failure = self._told(error)
        raise self._judged(failure)

    @contextmanager
    def _client(self) -> Iterator[_Client]:
        to = self._to
        connection = self._connected()
        try:
            if to.encryption == WRAPPED:
                self._doing = "TLS handshake"
                connection = _context(to).wrap_socket(connection, server_hostname=to.host)
            client = _Client(connection, to.host, to.helo)
            try:
                yield client
            finally:
                client.close()  # with STARTTLS it has another socket by then
        finally:
            connection.close()

    def _connected(self) -> socket.socket:
        to = self._to
        self._doing = f"looking up {to.host}"
        found = socket.getaddrinfo(to.host, to.port, type=socket.SOCK_STREAM)
        self._doing = f"connecting to {to.host}:{to.port}"
        failure: OSError = ConnectionError("no address")
        until = time.monotonic() + min(to.connect_timeout, self._watch.left)
        for family, kind, protocol, _, address in found:
            connection = socket.socket(family, kind, protocol)
            try:
                self._watch.guard(connection)
                # Else Nagle's algorithm keeps each second small segment until the first is
                # acknowledged, which a server delays by 40 ms.
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connection.settimeout(max(0.001, until - time.monotonic()))
                connection.connect(address)
                connection.settimeout(min(to.timeout, self._watch.left))
            except OSError as error:
                connection.close()
                failure = error
                continue
            return connection
        raise _Unreached(failure)

    def _begin(self, client: _Client) -> None:
        """Greetings, encryption, and who we are."""
        to = self._to
        self._doing = "greeting"
        self._require(*client.getreply(), "unavailable")
        self._greet(client)
        if to.encryption in (REQUIRED, OPPORTUNISTIC):
            if client.has_extn("starttls"):
                self._doing = "STARTTLS"
                code, said = client.starttls(context=_context(to))
                self._require(code, said, "tls_missing")
                self._greet(client)
            elif to.encryption == REQUIRED:
                raise failure_reasons.not_sent(
                    "tls_missing", f"{shown(to.host)} does not offer STARTTLS"
                )
        if to.user:
            self._log_in(client)

    def _greet(self, client: _Client) -> None:
        self._doing = "EHLO"
        code, said = client.ehlo()
        if not 200 <= code < 300:
            self._doing = "HELO"
            code, said = client.helo()
        self._require(code, said, "unavailable")

    def _log_in(self, client: _Client) -> None:
        to = self._to
        self._doing = "AUTH"
        try:
            self._secret = read_secret(to.password_file)
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            text = shown(f"cannot use the password in {to.password_file}: {why}")
            raise failure_reasons.not_sent("auth_password_file", text) from None
        if (to.user + self._secret).isascii():
            client.login(to.user, self._secret)
            return
        # The library knows but ASCII; this one way is for any text (RFC 4616).
        said = base64.b64encode(f"\0{to.user}\0{self._secret}".encode("utf-8", "surrogateescape"))
        self._require(*client.docmd("AUTH", f"PLAIN {said.decode('ascii')}"), "auth")

    def _command(self, client: _Client, verb: str, rest: str = "") -> None:
        self._doing = verb
        self._require(*client.docmd(verb, rest), "")

    def _data(self, client: _Client, contents: BinaryIO, size: int) -> None:
        self._doing = "DATA"
        code, said = client.docmd("DATA")
        if code != 354:
            self._require(code, said, "")
            raise failure_reasons.not_sent("connect_protocol", f"DATA was answered with {code}")
        assert client.sock is not None
        # The kernel keeps the last piece until the end line follows, and sends both in one segment.
        # Two calls tell a body that did not leave from an end line that may have left.
        more = 0 if isinstance(client.sock, ssl.SSLSocket) else socket.MSG_MORE
        left = size - len(wire_format.END)
        while left:
            try:
                chunk = contents.read(min(left, wire_format.CHUNK))
            except OSError as error:
                raise _unreadable(error) from error
            if not chunk:
                text = "the contents became shorter while they were sent"
                raise failure_reasons.not_sent("unavailable_no_input", text)
            left -= len(chunk)
            client.sock.sendall(chunk, 0 if left else more)
        # From here on the server may have all of it.
        self._ended, self._doing = True, "after the whole mail"
        client.sock.sendall(wire_format.END)
        code, said = client.getreply()
        # Any other answer makes no sense here, and says neither yes nor no.
        self._ended = not (200 <= code < 300 or 400 <= code < 600)
        self._require(code, said, "")
        with suppress(OSError, smtplib.SMTPException):  # it has accepted: nothing else matters
            client.sock.settimeout(_PARTING)
            client.quit()

    def _require(self, code: int, said: bytes | str, word: str) -> None:
        """Go on only after a good answer.

        Raises:
            NotSent: it was none; `word` is what a no means here, "" where it is about the mail.
        """
        if 200 <= code < 300:
            return
        text = said.decode("utf-8", "replace") if isinstance(said, bytes) else said
        text = f"{code} {' '.join(text.split())} - {self._doing}"
        raise failure_reasons.not_sent(_word(code, word), failure_reasons.told(text, self._secrets))

    @property
    def _secrets(self) -> tuple[str, ...]:
        if not self._secret:
            return ()
        said = f"\0{self._to.user}\0{self._secret}".encode("utf-8", "surrogateescape")
        alone = self._secret.encode("utf-8", "surrogateescape")
        return self._secret, *(base64.b64encode(each).decode("ascii") for each in (said, alone))

    def _told(self, error: Exception) -> NotSent:
        """Why it was not sent, from what the library raised."""
        if isinstance(error, smtplib.SMTPResponseException):
            said = error.smtp_error
            try:
                self._require(error.smtp_code, said, _MEANS.get(self._doing, "unavailable"))
            except NotSent as failure:
                return failure
        lost = isinstance(error, smtplib.SMTPServerDisconnected)
        if self._doing == "AUTH" and isinstance(error, smtplib.SMTPException) and not lost:
            return failure_reasons.not_sent(
                "auth_missing", failure_reasons.told(str(error), self._secrets)
            )
        if lost and isinstance(error.__context__, OSError):
            error = error.__context__  # the library says of any error that the connection closed
        word = _word_of(error)
        what = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        if isinstance(error, _Unreached) and isinstance(error.__cause__, OSError):
            what = error.__cause__.strerror or str(error.__cause__)
        text = f"{what or type(error).__name__} - {self._doing}"
        return failure_reasons.not_sent(word, failure_reasons.told(text, self._secrets))

    def _judged(self, failure: NotSent) -> NotSent:
        """The failure as it counts: who broke it off, and whether it may have been accepted."""
        if self._watch.why:
            late = self._watch.why == "timeout"
            why = f"not done within {self._to.max_time:g} s" if late else "it was stopped"
            failure = failure_reasons.not_sent(self._watch.why, f"{why} - {self._doing}")
        if not self._ended:
            return failure
        text = f"{IN_DOUBT}it may have been accepted: {failure}"
        return InDoubt(failure.reason, failure.word, text)


_MEANS = {"STARTTLS": "tls_missing", "AUTH": "auth"}
"""What a no means at these stages, where the library raises it."""


class _Unreached(ConnectionError):
    """No address of a host took the connection; its cause is what the last one failed with."""

    def __init__(self, cause: OSError) -> None:
        super().__init__(str(cause))
        self.__cause__ = cause


_UNREACHED: Mapping[int | None, str] = {
    errno.ECONNREFUSED: "connect_refused",
    errno.ENETUNREACH: "connect_unreachable",
    errno.EHOSTUNREACH: "connect_unreachable",
    errno.ENETDOWN: "connect_unreachable",
    errno.EHOSTDOWN: "connect_unreachable",
    errno.ETIMEDOUT: "connect_timeout",
}

_RAISED: tuple[tuple[type[Exception], str], ...] = (
    (socket.gaierror, "dns_not_found"),
    (ssl.SSLCertVerificationError, "tls_certificate"),
    (ssl.SSLError, "tls_failed"),
    (TimeoutError, "timeout"),
    (smtplib.SMTPNotSupportedError, "unavailable_service"),
    (smtplib.SMTPServerDisconnected, "connect_lost"),
    (ConnectionError, "connect_lost"),
    (OSError, "connect_lost"),
)
"""What is raised on the way, and the word for it; the first that fits."""


def _word_of(error: Exception) -> str:
    if isinstance(error, _Unreached):
        cause = error.__cause__
        if isinstance(cause, TimeoutError):
            return "connect_timeout"
        number = cause.errno if isinstance(cause, OSError) else None
        return _UNREACHED.get(number, "connect_failed")
    return next((word for kind, word in _RAISED if isinstance(error, kind)), "connect_protocol")


def _word(code: int, word: str) -> str:
    """The word for an answer that was a no."""
    if not 400 <= code < 600:
        return "connect_protocol"
    if word == "tls_missing":
        return word
    if word == "auth" or code in failure_reasons.AUTH_CODES:
        return f"auth_{code}"
    if word:
        return f"{word}_{code}"
    return f"unavailable_{code}" if code < 500 else f"rejected_{code}"


def _context(to: Destination) -> ssl.SSLContext:
    """What is believed of a server.

    Raises:
        NotSent: the certificates that it is to be checked against cannot be read.
    """
    try:
        context = ssl.create_default_context(cafile=to.ca_file or None)
    except OSError as error:  # ssl.SSLError among them
        text = shown(f"cannot use the certificates in {to.ca_file}: {error.strerror or error}")
        raise failure_reasons.not_sent("tls_certificate", text) from None
    if to.encryption == OPPORTUNISTIC:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _options(client: _Client, paths: tuple[str, str], facts: wire_format.WireFacts) -> str:
    """What MAIL says besides the sender.

    Raises:
        BadMail: this server can never be sent such a mail.
    """
    said = ""
    if client.has_extn("size"):
        said += f" SIZE={facts.size}"
    if facts.eight_bit:
        if not client.has_extn("8bitmime"):
            raise BadMail("it holds bytes beyond ASCII, and the server does not offer 8BITMIME")
        said += " BODY=8BITMIME"
    if not all(map(str.isascii, paths)):
        if not client.has_extn("smtputf8"):
            raise BadMail("an address is not ASCII, and the server does not offer SMTPUTF8")
        client.command_encoding = "utf-8"
        said += " SMTPUTF8"
    return said
