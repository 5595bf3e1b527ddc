"""Send a mail in wire form to one server by SMTP; its bytes are not changed.

Before the line that ends the mail is sent, the mail is certainly not accepted. After it, only the
server's answer decides; without an answer the result is unknown (`InDoubt`).

After an accepted mail the connection is kept for the next one, as other mail servers do: the
greeting, EHLO, TLS and login are done once for many mails.
"""

from __future__ import annotations

import base64
import errno
import ipaddress
import math
import re
import smtplib
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import BinaryIO

from engine.mail import wire_format
from engine.mail.failure_reasons import AUTH_CODES, failure_from_word, redact_text
from engine.mail.model import BadMail, NotSent, Reason
from engine.mail.run_program import NOT_STARTED
from engine.mail.transports.curl import describe_secret_fault, read_secret
from engine.system.answer_limit import AnswerLimit, AnswerTooLong
from engine.system.supervisor import descriptor_lack, own_limit
from engine.text.error_text import error_text
from engine.text.safe import ascii_name, safe_line
from engine.values import NamedTuple

REQUIRED, WRAPPED, OPPORTUNISTIC, NONE = "required", "wrapped", "opportunistic", "none"
TLS = (REQUIRED, WRAPPED, OPPORTUNISTIC, NONE)
"""STARTTLS with a verified certificate; TLS from the first byte (port 465), verified; STARTTLS if
the server offers it, without verification; no encryption."""

_CHECK_INTERVAL_SECONDS = 0.5
"""Interval in seconds at which an attempt checks for cancellation and timeout."""

_QUIT_TIMEOUT_SECONDS = 1.0
"""Seconds that a server has to answer QUIT after it accepted a mail."""

KEEP_SECONDS = 2.0
"""Seconds that a connection is kept without a mail, as by Postfix."""

MAILS_PER_CONNECTION = 100
"""Mails that are sent over one connection at most."""

MAX_ANSWER_BYTES = 64 << 10
MAX_ANSWER_LINES = 1000
"""Of one answer; smtplib allows 8 KiB for a line, and any number of lines."""


IN_DOUBT_PREFIX = "in doubt: "
"""The beginning of the text of `InDoubt`."""


class SmtpDestination(NamedTuple):
    """A mail server, and the connection settings for it."""

    host: str
    port: int = 25
    tls: str = ""
    """One of `TLS`; "" means none for this host itself and required for any other."""
    user: str = ""
    password_file: str = ""
    """A file with only the password; other users must not be able to read it."""
    ca_file: str = ""
    """Trusted certificates for the server; "" for those of the system."""
    helo: str = "localhost"
    """Our host name in EHLO."""
    connect_timeout: float = 30.0
    """Seconds to connect."""
    timeout: float = 300.0
    """Seconds for each answer and for each chunk of a mail (RFC 5321, 4.5.3.2)."""
    max_time: float = 1800.0
    """Seconds for one attempt in total."""

    @property
    def encryption(self) -> str:
        """The effective value of `TLS`."""
        return self.tls or (NONE if is_loopback(self.host) else REQUIRED)

    @property
    def fault(self) -> str:
        """Why these settings cannot be used; "" if they can."""
        if not self.host:
            return "no host to send to"
        if self.user and not self.password_file:
            return "a user and no password_file"
        plain = self.encryption in (NONE, OPPORTUNISTIC) and not is_loopback(self.host)
        if self.user and plain:
            return f"the password would be sent without TLS verification (tls: {self.encryption})"
        return ""


def is_loopback(host: str) -> bool:
    """True if the host is this machine, by its name or address alone."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def describe_obstacle(to: SmtpDestination) -> str:
    """Return why the destination cannot be used, as far as can be known without connecting; "" if
    it can."""
    if to.fault:
        return to.fault
    if to.user and (why := describe_secret_fault(to.password_file)):
        return why
    if to.ca_file:
        try:
            _tls_context(to)
        except NotSent as error:
            return str(error)
    return ""


class WireMessage(NamedTuple):
    """One mail to one recipient."""

    sender: str
    """"" or "<>" is the null sender."""
    recipient: str
    contents: BinaryIO
    """An open file in wire form, read from its start; `send` closes it."""


class WireRecipient(NamedTuple):
    """One of several recipients of a mail."""

    address: str
    notify: str = ""
    """Parameters of RCPT for a server that sends delivery notifications (RFC 3461)."""


class ServerAnswer(NamedTuple):
    """What a server answered to a mail for several recipients."""

    reply: str
    """To the mail, on one line; "" if it accepted no recipient, and got no mail."""
    refusals: tuple[BadMail | NotSent | None, ...]
    """Of each recipient; None: accepted."""
    notifies: bool
    """True if the server has taken over the delivery notifications."""


class InDoubt(NotSent):
    """The whole mail was sent and no clear answer came: it may have been accepted."""


class UnreadableMessage(NotSent):
    """The mail cannot be read now; no server is at fault."""

    def __init__(self, text: str) -> None:
        super().__init__(Reason.UNAVAILABLE, "unavailable_no_input", text)


_ADDRESS = re.compile(
    r"""(?:[^\s"(),:;<>@\[\]\\]+|"(?:[^"\\]|\\.)*")"""  # plain or quoted local part
    r"""(?:@(?:[^\s"(),:;<>@\[\]\\]+|\[[A-Za-z0-9.:-]+\]))?"""  # host name, or address literal
).fullmatch


def smtp_path(address: str) -> str:
    """Return an address in angle brackets for SMTP, with its host name in ASCII. Raises BadMail: it
    is not an address, or could be read as several or as a different one."""
    if address in ("", "<>"):
        return "<>"
    if not address.isprintable() or not _ADDRESS(address):
        raise BadMail(f"'{safe_line(address[:40])}' is not a valid SMTP address")
    local, at, host = address.rpartition("@")
    if at and not host.isascii() and not host.endswith('"'):
        try:
            address = f"{local}@{ascii_name(host)}"
        except ValueError as error:
            raise BadMail(f"not a valid SMTP address: {error}") from error
    return f"<{address}>"


def send(
    message: WireMessage,
    to: SmtpDestination,
    cancelled: Callable[[], bool],
    connections: Connections,
) -> None:
    """Send a mail; the server has accepted it when this returns. Closes its contents.

    `cancelled` is called every 0.5 seconds, on the thread of `connections`; True ends the attempt.

    Raises:
        BadMail: the mail can never be sent, or not to this server.
        InDoubt: it may have been accepted.
        UnreadableMessage: its contents cannot be read now; it was not accepted.
        NotSent: it was not accepted; another attempt may be made.
    """
    recipients = [WireRecipient(message.recipient)]
    answer = send_to_all(
        message.sender, recipients, message.contents, to, cancelled, connections=connections
    )
    if refusal := answer.refusals[0]:
        raise refusal


def send_to_all(
    sender: str,
    recipients: Sequence[WireRecipient],
    contents: BinaryIO,
    to: SmtpDestination,
    cancelled: Callable[[], bool],
    connections: Connections,
    notify: str = "",
) -> ServerAnswer:
    """Send a mail to several recipients in one transaction; the server has accepted it for all that
    it did not refuse when this returns. Otherwise as `send`. `notify` are the parameters of MAIL
    for a server that sends delivery notifications."""
    with contents:
        path = smtp_path(sender)
        paths = [_recipient_path(one.address) for one in recipients]
        good = [
            one._replace(address=to_path)
            for one, to_path in zip(recipients, paths, strict=True)
            if isinstance(to_path, str)
        ]
        answer = ServerAnswer("", (), False)
        if good:
            try:
                facts = wire_format.check_wire_format(contents)
                contents.seek(0)
            except OSError as error:
                raise _unreadable(error) from error
            if why := to.fault:
                raise NotSent(Reason.UNAVAILABLE, "unavailable_configuration", why)
            watch = _AttemptDeadline(time.monotonic() + to.max_time, cancelled)
            with connections.watching(watch):
                session = _SmtpSession(to, watch, connections)
                answer = session.send_mail(_Envelope(path, good, notify), contents, facts)
        theirs = iter(answer.refusals)
        refusals = (next(theirs) if isinstance(one, str) else one for one in paths)
        return answer._replace(refusals=tuple(refusals))


class _Envelope(NamedTuple):
    sender: str
    recipients: Sequence[WireRecipient]
    notify: str


class _NoneAccepted(Exception):
    """The server refused all recipients."""


def _recipient_path(address: str) -> str | BadMail:
    try:
        path = smtp_path(address)
    except BadMail as fault:
        return fault
    return BadMail("no recipient") if path == "<>" else path


def _unreadable(error: OSError) -> UnreadableMessage:
    return UnreadableMessage(f"the contents cannot be read: {error_text(error)}")


class _AttemptDeadline:
    """Shuts the connection of one attempt down on timeout or cancellation."""

    def __init__(self, deadline: float, cancelled: Callable[[], bool]) -> None:
        self._deadline, self._cancelled = deadline, cancelled
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self.abort_word = ""
        """The reason for the shutdown, as one word; "" before it."""

    @property
    def seconds_left(self) -> float:
        """The remaining seconds of the attempt; never 0, which means non-blocking for a socket."""
        return max(0.001, self._deadline - time.monotonic())

    def set_connection(self, connection: socket.socket | None) -> None:
        """Set the connection to shut down; None before it is closed or kept for another mail."""
        with self._lock:
            self._socket = connection
            self._shut_down()

    def check(self) -> None:
        """Shut the connection down if the time is over or the attempt was cancelled."""
        if self.abort_word:
            return
        late = time.monotonic() >= self._deadline
        if late or self._cancelled():
            with self._lock:
                self.abort_word = "timeout" if late else "unavailable_stopped"
                self._shut_down()

    def _shut_down(self) -> None:
        if self.abort_word and self._socket is not None:
            with suppress(OSError):  # already disconnected
                self._socket.shutdown(socket.SHUT_RDWR)


class Connections:
    """Connections to one server that are kept between mails, and one thread for them and for the
    running attempts: it checks the attempts every 0.5 seconds and closes connections that were kept
    for `KEEP_SECONDS`. It ends when there are neither."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._attempts: set[_AttemptDeadline] = set()
        self._idle: list[_Client] = []
        """The one used last is last."""
        self._wake_at = -math.inf
        """When the thread checks next, in seconds of the monotonic clock; -inf without a thread."""

    @contextmanager
    def watching(self, attempt: _AttemptDeadline) -> Iterator[None]:
        """Check an attempt while in the block."""
        with self._changed:
            self._attempts.add(attempt)
            if self._wake_at == -math.inf:
                try:
                    threading.Thread(target=self._watch, name="smtp watch", daemon=True).start()
                except RuntimeError as error:
                    self._attempts.discard(attempt)
                    raise NotSent(Reason.UNAVAILABLE, NOT_STARTED, str(error)) from error
                self._wake_at = time.monotonic()
            elif time.monotonic() + attempt.seconds_left < self._wake_at:
                self._changed.notify()
        try:
            yield
        finally:
            with self._changed:
                self._attempts.discard(attempt)

    def take(self) -> _Client | None:
        """Remove a kept connection and return it; None if missing."""
        with self._changed:
            return self._idle.pop() if self._idle else None

    def keep(self, client: _Client) -> None:
        """Keep a connection over which a mail was sent, unless it had `MAILS_PER_CONNECTION`."""
        client.mails, client.kept_at = client.mails + 1, time.monotonic()
        if client.mails >= MAILS_PER_CONNECTION:
            client.quit_and_close()
            return
        with self._changed:
            self._idle.append(client)

    def close(self) -> None:
        """Close all kept connections with QUIT."""
        self._close_idle(math.inf)

    def _close_idle(self, before: float) -> None:
        with self._changed:
            old = [client for client in self._idle if client.kept_at < before]
            self._idle = [client for client in self._idle if client.kept_at >= before]
        for client in old:
            client.quit_and_close()

    def _watch(self) -> None:
        while True:
            with self._changed:
                lefts = [one.seconds_left for one in self._attempts if not one.abort_word]
                wait = min([_CHECK_INTERVAL_SECONDS, *lefts])
                self._wake_at = time.monotonic() + wait
                self._changed.wait(wait)
                running = list(self._attempts)
                if not running and not self._idle:
                    self._wake_at = -math.inf
                    return
            for attempt in running:
                attempt.check()
            self._close_idle(time.monotonic() - KEEP_SECONDS)


class _AnswerReader:
    """The file that smtplib reads answers from, within the limits of the present answer."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket, self._received = connection, b""
        self.limit = AnswerLimit(0, 0, 0)

    def readline(self, size: int) -> bytes:
        """The next line, at most `size` bytes of it; what there is at the end of the connection."""
        while not (end := self._received.find(b"\n", 0, size) + 1) and len(self._received) < size:
            self.limit.arm(self._socket)
            data = self._socket.recv(wire_format.CHUNK_BYTES)
            if not data:
                break
            self.limit.count(data)
            self._received += data
        end = end or size
        line, self._received = self._received[:end], self._received[end:]
        return line

    def close(self) -> None:
        """Nothing: the connection is closed by its owner."""


class _Client(smtplib.SMTP):
    """smtplib's client on an existing connection, with limits for each answer."""

    file: _AnswerReader | None

    def __init__(
        self, connection: socket.socket, wire: socket.socket, host: str, helo: str
    ) -> None:
        """`wire`: a duplicate of the connection, as TLS detaches the original socket."""
        super().__init__(local_hostname=helo)
        self.sock, self.wire = connection, wire
        self._host = host  # the host name for the certificate check at STARTTLS
        self.mails = 0
        """The mails that were accepted over it."""
        self.kept_at = 0.0
        """Since when it is kept, in seconds of the monotonic clock."""
        self.secret = ""
        """The password that was sent over it."""

    def getreply(self) -> tuple[int, bytes]:
        """Read an answer; its deadline is the timeout of the connection."""
        connection = self.sock
        if connection is None:
            return super().getreply()
        self.file = self.file or _AnswerReader(connection)
        seconds = connection.gettimeout() or _QUIT_TIMEOUT_SECONDS
        self.file.limit = AnswerLimit(seconds, MAX_ANSWER_BYTES, MAX_ANSWER_LINES)
        try:
            return super().getreply()
        finally:
            if self.sock is connection:
                connection.settimeout(seconds)

    def close_all(self) -> None:
        self.close()
        self.wire.close()

    def quit_and_close(self) -> None:
        with suppress(OSError, smtplib.SMTPException):  # its mails are accepted: ignore any error
            if self.sock is not None:
                self.sock.settimeout(_QUIT_TIMEOUT_SECONDS)
                self.quit()
        self.close_all()


class _SmtpSession:
    def __init__(
        self, to: SmtpDestination, watch: _AttemptDeadline, connections: Connections
    ) -> None:
        self._to, self._watch, self._connections = to, watch, connections
        self._doing = "connecting"
        self._ended = False
        """True if the line that ends the mail may have been sent."""
        self._secret = ""

    def send_mail(
        self, envelope: _Envelope, contents: BinaryIO, facts: wire_format.WireFacts
    ) -> ServerAnswer:
        """Connect and log in, or use a kept connection, and send the mail."""
        refusals: list[NotSent | None] = []
        try:
            with self._begun(envelope, facts) as client:
                notifies = client.has_extn("dsn")
                for to in envelope.recipients:
                    notify = f" {to.notify}" if notifies and to.notify else ""
                    try:
                        self._command(client, "RCPT", f"TO:{to.address}{notify}")
                    except NotSent as refusal:
                        refusals.append(refusal)
                    else:
                        refusals.append(None)
                if None not in refusals:
                    raise _NoneAccepted
                reply = self._data(client, contents, facts.size)
                return ServerAnswer(reply, tuple(refusals), notifies)
        except _NoneAccepted:
            return ServerAnswer("", tuple(refusals), False)
        except NotSent as error:
            failure = error
        except (OSError, smtplib.SMTPException, ValueError) as error:
            failure = self._failure_from_error(error)
        raise self._final_failure(failure)

    @contextmanager
    def _begun(self, envelope: _Envelope, facts: wire_format.WireFacts) -> Iterator[_Client]:
        """A connection on which the server has accepted MAIL; kept after the block, unless it
        fails."""
        client = self._begin_on_kept(envelope, facts) or self._open_client()
        try:
            if client.mails == 0:
                self._begin(client)
                self._command(client, "MAIL", _mail_argument(client, envelope, facts))
            yield client
        except BaseException:
            self._watch.set_connection(None)
            client.close_all()
            raise
        self._watch.set_connection(None)
        self._connections.keep(client)

    def _begin_on_kept(self, envelope: _Envelope, facts: wire_format.WireFacts) -> _Client | None:
        """A kept connection on which the server has accepted MAIL; None if missing. If the server
        has closed it, or takes no more mails on it, it is closed here."""
        while client := self._connections.take():
            assert client.sock is not None
            self._secret = client.secret
            try:
                self._watch.set_connection(client.wire)
                client.sock.settimeout(min(self._to.timeout, self._watch.seconds_left))
                self._command(client, "MAIL", _mail_argument(client, envelope, facts))
                return client
            except (BadMail, NotSent, OSError, smtplib.SMTPException):
                self._watch.set_connection(None)
                client.close_all()
        return None

    def _open_client(self) -> _Client:
        to = self._to
        connection, wire = self._connect()
        try:
            if to.encryption == WRAPPED:
                self._doing = "TLS handshake"
                connection = _tls_context(to).wrap_socket(connection, server_hostname=to.host)
            return _Client(connection, wire, to.host, to.helo)
        except BaseException:
            self._watch.set_connection(None)
            connection.close()
            wire.close()
            raise

    def _connect(self) -> tuple[socket.socket, socket.socket]:
        to = self._to
        self._doing = f"looking up {to.host}"
        addresses = socket.getaddrinfo(to.host, to.port, type=socket.SOCK_STREAM)
        self._doing = f"connecting to {to.host}:{to.port}"
        failure: OSError = ConnectionError("no address")
        until = time.monotonic() + min(to.connect_timeout, self._watch.seconds_left)
        for family, kind, protocol, _, address in addresses:
            connection = socket.socket(family, kind, protocol)
            try:
                wire = connection.dup()
            except OSError:
                connection.close()
                raise
            try:
                self._watch.set_connection(wire)
                # Otherwise Nagle's algorithm holds each second small segment until the first is
                # acknowledged, which a server delays by 40 ms.
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connection.settimeout(max(0.001, until - time.monotonic()))
                connection.connect(address)
                connection.settimeout(min(to.timeout, self._watch.seconds_left))
            except OSError as error:
                self._watch.set_connection(None)
                connection.close()
                wire.close()
                failure = error
                continue
            return connection, wire
        raise _Unreached(failure)

    def _begin(self, client: _Client) -> None:
        """Read the greeting, send EHLO, start TLS and log in."""
        to = self._to
        self._doing = "greeting"
        self._require(*client.getreply(), "unavailable")
        self._greet(client)
        if to.encryption in (REQUIRED, OPPORTUNISTIC):
            if client.has_extn("starttls"):
                self._doing = "STARTTLS"
                code, reply = client.starttls(context=_tls_context(to))
                self._require(code, reply, "tls_missing")
                self._greet(client)
            elif to.encryption == REQUIRED:
                what = f"{safe_line(to.host)} does not offer STARTTLS"
                raise failure_from_word("tls_missing", what)
        if to.user:
            self._log_in(client)

    def _greet(self, client: _Client) -> None:
        self._doing = "EHLO"
        code, reply = client.ehlo()
        if not 200 <= code < 300:
            self._doing = "HELO"
            code, reply = client.helo()
        self._require(code, reply, "unavailable")

    def _log_in(self, client: _Client) -> None:
        to = self._to
        self._doing = "AUTH"
        try:
            self._secret = client.secret = read_secret(to.password_file)
        except (OSError, ValueError) as error:
            why = error_text(error)
            text = safe_line(f"cannot use the password in {to.password_file}: {why}")
            raise failure_from_word("auth_password_file", text) from None
        if (to.user + self._secret).isascii():
            client.login(to.user, self._secret)
            return
        # smtplib can only send ASCII here; AUTH PLAIN can carry any text (RFC 4616).
        token = base64.b64encode(f"\0{to.user}\0{self._secret}".encode("utf-8", "surrogateescape"))
        self._require(*client.docmd("AUTH", f"PLAIN {token.decode('ascii')}"), "auth")

    def _command(self, client: _Client, verb: str, argument: str = "") -> None:
        self._doing = verb
        self._require(*client.docmd(verb, argument), "")

    def _data(self, client: _Client, contents: BinaryIO, size: int) -> str:
        self._doing = "DATA"
        code, reply = client.docmd("DATA")
        if code != 354:
            self._require(code, reply, "")
            raise failure_from_word("connect_protocol", f"DATA was answered with {code}")
        assert client.sock is not None
        # MSG_MORE: the kernel holds the last chunk until the end line follows, and sends both in
        # one segment. Two calls make a body that was not sent distinct from an end line that may
        # have been sent.
        more = 0 if isinstance(client.sock, ssl.SSLSocket) else socket.MSG_MORE
        remaining = size - len(wire_format.END_OF_MAIL)
        while remaining:
            try:
                chunk = contents.read(min(remaining, wire_format.CHUNK_BYTES))
            except OSError as error:
                raise _unreadable(error) from error
            if not chunk:
                text = "the mail became shorter while it was sent"
                raise failure_from_word("unavailable_no_input", text)
            remaining -= len(chunk)
            client.sock.sendall(chunk, 0 if remaining else more)
        # From here on the server may have the whole mail.
        self._ended, self._doing = True, "after the whole mail"
        client.sock.sendall(wire_format.END_OF_MAIL)
        code, reply = client.getreply()
        # Any other code is neither a yes nor a no here.
        self._ended = not (200 <= code < 300 or 400 <= code < 600)
        self._require(code, reply, "")
        return safe_line(f"{code} {' '.join(reply.decode('utf-8', 'replace').split())}")

    def _require(self, code: int, reply: bytes | str, word: str) -> None:
        """Return if the answer is 2xx. Raises NotSent: it is not; `word` is the reason at this
        stage, "" if the answer is about the mail."""
        if 200 <= code < 300:
            return
        text = reply.decode("utf-8", "replace") if isinstance(reply, bytes) else reply
        text = f"{code} {' '.join(text.split())}"
        safe = redact_text(f"{text} - {self._doing}", self._secrets)
        failure = failure_from_word(_word_for_code(code, word), safe)
        for secret in self._secrets:
            text = text.replace(secret, "...")
        failure.reply = safe_line(text)
        raise failure

    @property
    def _secrets(self) -> tuple[str, ...]:
        if not self._secret:
            return ()
        plain = f"\0{self._to.user}\0{self._secret}".encode("utf-8", "surrogateescape")
        alone = self._secret.encode("utf-8", "surrogateescape")
        return self._secret, *(base64.b64encode(each).decode("ascii") for each in (plain, alone))

    def _failure_from_error(self, error: Exception) -> NotSent:
        if isinstance(error, smtplib.SMTPResponseException):
            reply = error.smtp_error
            try:
                self._require(error.smtp_code, reply, _STAGE_WORDS.get(self._doing, "unavailable"))
            except NotSent as failure:
                return failure
        lost = isinstance(error, smtplib.SMTPServerDisconnected)
        if self._doing == "AUTH" and isinstance(error, smtplib.SMTPException) and not lost:
            return failure_from_word("auth_missing", redact_text(str(error), self._secrets))
        if lost and isinstance(error.__context__, OSError):
            error = error.__context__  # smtplib reports any error as a closed connection
        cause = error.__cause__ if isinstance(error, _Unreached) else error
        if why := own_limit(cause):
            return NotSent(Reason.UNAVAILABLE, NOT_STARTED, f"{why} - {self._doing}")
        what = error_text(cause if isinstance(cause, OSError) else error)
        text = redact_text(f"{what} - {self._doing}", self._secrets)
        return failure_from_word(_word_for_error(error), text)

    def _final_failure(self, failure: NotSent) -> NotSent:
        """Return the final failure: replaced after a timeout or cancellation, `InDoubt` if it may
        be sent."""
        if self._watch.abort_word:
            late = self._watch.abort_word == "timeout"
            why = f"not done within {self._to.max_time:g} s" if late else "it was stopped"
            failure = failure_from_word(self._watch.abort_word, f"{why} - {self._doing}")
        if not self._ended:
            return failure
        text = f"{IN_DOUBT_PREFIX}it may have been accepted: {failure}"
        return InDoubt(failure.reason, failure.word, text)


_STAGE_WORDS = {"STARTTLS": "tls_missing", "AUTH": "auth"}
"""The reason for a refusal at these stages, where smtplib raises it."""


class _Unreached(ConnectionError):
    """No address of the host accepted the connection; the cause is the error of the last one."""

    def __init__(self, cause: OSError) -> None:
        super().__init__(str(cause))
        self.__cause__ = cause


_CONNECT_ERROR_WORDS: Mapping[int | None, str] = {
    errno.ECONNREFUSED: "connect_refused",
    errno.ENETUNREACH: "connect_unreachable",
    errno.EHOSTUNREACH: "connect_unreachable",
    errno.ENETDOWN: "connect_unreachable",
    errno.EHOSTDOWN: "connect_unreachable",
    errno.ETIMEDOUT: "connect_timeout",
}

_EXCEPTION_WORDS: tuple[tuple[type[Exception], str], ...] = (
    (AnswerTooLong, "connect_protocol"),
    (socket.gaierror, "dns_not_found"),
    (ssl.SSLCertVerificationError, "tls_certificate"),
    (ssl.SSLError, "tls_failed"),
    (TimeoutError, "timeout"),
    (smtplib.SMTPNotSupportedError, "unavailable_service"),
    (smtplib.SMTPServerDisconnected, "connect_lost"),
    (ConnectionError, "connect_lost"),
    (OSError, "connect_lost"),
)
"""The reason for each exception; the first match counts."""


def _word_for_error(error: Exception) -> str:
    if isinstance(error, _Unreached):
        cause = error.__cause__
        if isinstance(cause, TimeoutError):
            return "connect_timeout"
        number = cause.errno if isinstance(cause, OSError) else None
        return _CONNECT_ERROR_WORDS.get(number, "connect_failed")
    return next(
        (word for kind, word in _EXCEPTION_WORDS if isinstance(error, kind)), "connect_protocol"
    )


def _word_for_code(code: int, word: str) -> str:
    if not 400 <= code < 600:
        return "connect_protocol"
    if word == "tls_missing":
        return word
    if word == "auth" or code in AUTH_CODES:
        return f"auth_{code}"
    return f"{word or ('unavailable' if code < 500 else 'rejected')}_{code}"


def _tls_context(to: SmtpDestination) -> ssl.SSLContext:
    """Return a TLS context that verifies the server, except for `OPPORTUNISTIC`. Raises NotSent:
    the trusted certificates cannot be read."""
    try:
        context = ssl.create_default_context(cafile=to.ca_file or None)
        if lack := descriptor_lack():  # certificates that cannot be read now are missing
            raise NotSent(Reason.UNAVAILABLE, NOT_STARTED, f"{lack} - reading certificates")
    except OSError as error:  # includes ssl.SSLError
        text = safe_line(f"cannot use the certificates in {to.ca_file}: {error_text(error)}")
        raise failure_from_word("tls_certificate", text) from None
    if to.encryption == OPPORTUNISTIC:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _mail_argument(client: _Client, envelope: _Envelope, facts: wire_format.WireFacts) -> str:
    """Return the argument of MAIL: the sender, SIZE, BODY, SMTPUTF8 and those for notifications.
    Raises BadMail: this server lacks an extension that the mail needs."""
    parameters = f"FROM:{envelope.sender}"
    client.command_encoding = "ascii"  # an earlier mail may have changed it
    if client.has_extn("size"):
        parameters += f" SIZE={facts.size}"
    if facts.eight_bit:
        if not client.has_extn("8bitmime"):
            raise BadMail("it contains bytes beyond ASCII, and the server does not offer 8BITMIME")
        parameters += " BODY=8BITMIME"
    if envelope.notify and client.has_extn("dsn"):
        parameters += f" {envelope.notify}"
    paths = (envelope.sender, *(one.address for one in envelope.recipients))
    if not all(map(str.isascii, paths)):
        if not client.has_extn("smtputf8"):
            raise BadMail("an address is not ASCII, and the server does not offer SMTPUTF8")
        client.command_encoding = "utf-8"
        parameters += " SMTPUTF8"
    return parameters
