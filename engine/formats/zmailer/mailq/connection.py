"""A connection to a MAILQ server, on TCP or a UNIX socket: lines with bounds, greeting and login.

Every failure is an `Unavailable` of one line that names the server, and closes the connection: its
next bytes would mean nothing.
"""

from __future__ import annotations

import socket
import time

from engine.formats.zmailer.mailq import job_text
from engine.formats.zmailer.mailq.acl import digest
from engine.formats.zmailer.mailq.report_text import decode, encode
from engine.store import Unavailable
from engine.system.answer_limit import AnswerLimit
from engine.text.error_text import error_text
from engine.text.safe import safe_line
from engine.values import NamedTuple

MAX_LINE_BYTES = 64 << 10
MAX_ANSWER_BYTES = 64 << 20
MAX_ANSWER_LINES = 1_000_000
"""Of one answer, or of a dump of version 1."""
MAX_LOGIN_BYTES = 64 << 10
MAX_LOGIN_LINES = MAX_LOGIN_BYTES
"""Of the greeting, and of the answer to a login: a server of version 1 sends its dump with it."""
CONNECTION_SECONDS = 80.0
"""Seconds after which a connection is replaced: the server ends it after 90."""
ANSWER_SECONDS = 30.0
"""Seconds for the whole of an answer."""
_READ_BYTES = 1 << 16


ANONYMOUS = "no" + "body"
"""User and password with which the client of the original logs in if it is given none."""


class ServerAddress(NamedTuple):
    """Where a server is, and who logs in."""

    text: str
    """As a URL, without the password."""
    path: str = ""
    """Of a UNIX socket; "" for TCP."""
    host: str = ""
    port: int = 0
    user: str = ANONYMOUS
    password: str = ANONYMOUS

    def __repr__(self) -> str:
        """Without the password."""
        return f"ServerAddress({self.text!r})"


class MailqConnection:
    """One connection at a time to one server. One thread at a time uses it."""

    def __init__(self, address: ServerAddress, seconds: float) -> None:
        """`seconds` is the time to connect, and that for each whole answer."""
        self.address, self._seconds = address, seconds
        self._limit = self._login_limit()
        self._socket: socket.socket | None = None
        self._received = b""
        self._connected_at = 0.0

    @property
    def is_usable(self) -> bool:
        """True if it is connected, and young enough that the server does not end it soon."""
        is_young = time.monotonic() - self._connected_at < CONNECTION_SECONDS
        return self._socket is not None and is_young

    def close(self) -> None:
        """Close the connection."""
        if self._socket is not None:
            self._socket.close()
            self._socket, self._received = None, b""

    def log_in(self) -> int:
        """Connect, read the greeting and log in; return the version of the server. The connection
        to one of version 1 is closed: it only sends a dump. Raises Unavailable: it cannot be
        reached, or refuses the login."""
        self.open()
        first = self.read_line()
        if first == job_text.VERSION_1:
            self.close()
            return 1
        if first != job_text.VERSION_2:
            raise self.error(f"{shown_answer(first)}, expected 'version zmailer' 1.0 or 2.0")
        challenge = self.read_line()
        if not challenge.startswith("220 "):
            raise self.error(f"refuses this host: {shown_answer(challenge)}")
        user = self.address.user
        self.send(f"AUTH {user} {digest(challenge, self.address.password)}")
        self._limit = self._login_limit()
        answer = self.read_line(skips_empty=True)
        if not answer.startswith("+"):
            raise self.error(f"refuses the login of user {user}: {shown_answer(answer)}")
        return 2

    def _login_limit(self) -> AnswerLimit:
        return AnswerLimit(self._seconds, MAX_LOGIN_BYTES, MAX_LOGIN_LINES)

    def _answer_limit(self) -> AnswerLimit:
        return AnswerLimit(self._seconds, MAX_ANSWER_BYTES, MAX_ANSWER_LINES)

    def open(self) -> None:
        """Connect."""
        self.close()
        self._limit = self._login_limit()
        at = self.address
        try:
            if at.path:
                self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                self._socket.settimeout(self._seconds)
                self._socket.connect(at.path)
            else:
                self._socket = socket.create_connection((at.host, at.port), self._seconds)
        except OSError as error:
            self.close()
            raise self.error(error_text(error)) from None
        self._connected_at = time.monotonic()

    def send(self, line: str) -> None:
        """Send a line."""
        assert self._socket is not None
        self._limit = self._answer_limit()
        try:
            self._socket.settimeout(self._seconds)
            self._socket.sendall(encode(f"{line}\n"))
        except OSError as error:
            raise self.error(error_text(error)) from None

    def _receive(self) -> bytes:
        """The next bytes of an answer; none at the end of the connection."""
        assert self._socket is not None
        try:
            self._limit.arm(self._socket)
            data = self._socket.recv(_READ_BYTES)
            self._limit.count(data)
            return data
        except TimeoutError:
            raise self.error(f"no answer within {self._seconds:g} s") from None
        except OSError as error:
            raise self.error(error_text(error)) from None

    def read_to_end(self) -> bytes:
        """All that the server sends until it closes."""
        self._limit = self._answer_limit()
        return b"".join(iter(self._receive, b""))

    def read_line(self, *, skips_empty: bool = False) -> str:
        """The next line. The original sends stray empty lines behind its answers to KILL."""
        while True:
            if skips_empty:
                self._received = self._received.lstrip(b"\r\n")
            line, newline, unread = self._received.partition(b"\n")
            if newline:
                self._received = unread
                if len(line) > MAX_LINE_BYTES:
                    raise self.error("a line of more than 64 KiB")
                if line.strip() or not skips_empty:
                    return decode(line).removesuffix("\r")
                continue
            if len(self._received) > MAX_LINE_BYTES:
                raise self.error("a line of more than 64 KiB")
            data = self._receive()
            if not data:
                raise self.error("closed the connection in the middle of an answer")
            self._received += data

    def read_lines(self) -> list[str]:
        """The lines up to the one with a single dot, without doubled dots."""
        lines, unread = list[str](), self._received
        while True:
            *whole, unread = unread.split(b"\n")
            for number, line in enumerate(whole, 1):
                if line in (b".", b".\r"):
                    self._received = b"\n".join([*whole[number:], unread])
                    return lines
                if len(line) > MAX_LINE_BYTES:
                    raise self.error("a line of more than 64 KiB")
                text = decode(line).removesuffix("\r")
                lines.append(text.removeprefix(".") if text[:2] == ".." else text)
            if len(unread) > MAX_LINE_BYTES:
                raise self.error("a line of more than 64 KiB")
            data = self._receive()
            if not data:
                raise self.error("closed the connection in the middle of an answer")
            unread += data

    def error(self, what: str) -> Unavailable:
        """An error of one line; the connection is closed, as its next bytes mean nothing."""
        self.close()
        return Unavailable(f"{self.address.text}: {what}")


def shown_answer(answer: str) -> str:
    """An answer as text for a message."""
    return safe_line(answer[:100]) or "an empty line"
