"""Limits of time, bytes and lines for each answer that redis-py reads from a server."""

from __future__ import annotations

import re
import socket
from typing import Any

from engine.system.answer_limit import AnswerLimit, AnswerTooLong

CONNECT_TIMEOUT_SECONDS = 5.0
ANSWER_TIMEOUT_SECONDS = 30.0
"""Seconds for the answers to what was sent together; a command that blocks has its own time
besides."""
MAX_ANSWER_BYTES = 128 << 20
MAX_ANSWER_LINES = 2_000_000
"""Of the answer to a script, or to the commands of a pipeline; each text takes two lines."""
MAX_LOGIN_BYTES = 64 << 10
"""Until the login is done."""

_LISTS = (b"*", b"%", b"~", b">")
"""How the heads of lists, and of what is read like one, begin (RESP)."""

# Four expressions that begin with one sign take a quarter of the time of one with a set of signs.
_long_list_searches = [re.compile(re.escape(kind) + b"[0-9]{7}").search for kind in _LISTS]


class ListHeads:
    """Finds the heads of lists of more than `MAX_ANSWER_LINES` elements in answers (RESP) that come
    in parts; texts are passed over."""

    def __init__(self) -> None:
        self._start = b""
        """The line that has not ended yet."""
        self._skip = 0
        """Bytes of a text that are still to come."""

    @property
    def has_begun(self) -> bool:
        """True if the next part may end the head of a list."""
        return self._start[:1] in _LISTS

    def is_long(self, data: bytes) -> bool:
        """True if the next part has such a head."""
        data, self._start = self._start + data, b""
        at, self._skip = self._skip, max(0, self._skip - len(data))
        while at < len(data):
            end = data.find(b"\r\n", at)
            if end < 0:
                line = data[at:]  # of a long one the start is enough, which is no number
                self._start = line if len(line) <= 16 else line[:16] + line[-1:]
                return False
            kind, number = data[at : at + 1], data[at + 1 : end]
            count = int(number[:10]) if number.isdigit() else 0
            if kind in _LISTS and count > MAX_ANSWER_LINES:
                return True
            is_text = kind in (b"$", b"=", b"!") and number.isdigit()
            at = end + 2 + (count + 2 if is_text else 0)
        self._skip = max(self._skip, at - len(data))
        return False


class LimitedSocket:
    """The socket of a connection; what comes after each request has the limits of an answer.

    hiredis makes a list as soon as it has its head: one of 2,147,483,647 elements costs 16 GiB of
    addresses and minutes of CPU. So answers are kept until a part may have such a head, and then
    checked from their start: the same bytes in a text are right.
    """

    def __init__(self, sock: socket.socket, seconds: float) -> None:
        self._socket, self._seconds = sock, seconds
        self.max_bytes = MAX_LOGIN_BYTES
        self._limit = self._new_limit()
        self._heads, self._unchecked = ListHeads(), list[bytes]()
        self._end = b""
        """The last bytes received: a head may come in two parts."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._socket, name)

    def _new_limit(self) -> AnswerLimit:
        return AnswerLimit(self._seconds, self.max_bytes, MAX_ANSWER_LINES)

    def sendall(self, data: bytes) -> None:
        """Send a request; its answer begins."""
        self._limit, self._heads = self._new_limit(), ListHeads()
        self._unchecked, self._end = [], b""
        self._socket.settimeout(self._seconds)
        self._socket.sendall(data)

    def begin_next(self) -> None:
        """Begin the next answer of a pipeline: jobs of many MB may be claimed by one, and would
        stall if its answers were refused after the claim."""
        self._limit.begin_next()

    def recv_into(self, buffer: bytearray) -> int:
        """Receive a part of an answer."""
        self._limit.arm(self._socket)
        size = self._socket.recv_into(buffer)
        self._check(bytes(memoryview(buffer)[:size]))
        return size

    def recv(self, size: int, flags: int = 0) -> bytes:
        """Receive a part of an answer, or with MSG_PEEK see whether there is one."""
        if flags:
            return self._socket.recv(size, flags)
        self._limit.arm(self._socket)
        data = self._socket.recv(size)
        self._check(data)
        return data

    def _check(self, data: bytes) -> None:
        """Check the next part of an answer.

        Raises:
            AnswerTooLong: it is too long, or has the head of a list that is.
        """
        self._limit.count(data)
        self._unchecked.append(data)
        joined = self._end + data
        self._end = joined[-10:]
        if self._heads.has_begun or any(search(joined) for search in _long_list_searches):
            unchecked, self._unchecked = b"".join(self._unchecked), []
            if self._heads.is_long(unchecked):
                raise AnswerTooLong(f"a list of more than {MAX_ANSWER_LINES:,} elements")


def _limited(connection: Any, seconds: float) -> Any:
    """A class of connections of redis-py, with limits for each answer, and these seconds for it."""

    class LimitedConnection(connection):  # type: ignore[misc]
        def _connect(self) -> LimitedSocket:
            return LimitedSocket(super()._connect(), seconds)

        def _wrap_socket_with_ssl(self, sock: socket.socket) -> Any:
            """Make the TLS handshake within the time of a connect."""
            sock.settimeout(most := min(seconds, CONNECT_TIMEOUT_SECONDS))
            try:
                return super()._wrap_socket_with_ssl(sock)
            except TimeoutError:
                raise OSError(f"no TLS within {most:g} s: is this a port with TLS?") from None

        def connect_check_health(self, *args: Any, **options: Any) -> None:
            """Connect and log in: redis-py does both here."""
            super().connect_check_health(*args, **options)
            self._sock.max_bytes = MAX_ANSWER_BYTES

    return LimitedConnection


def limit_answers(client: Any, seconds: float) -> Any:
    """A client of redis-py whose connections have limits for each answer."""
    pool = client.connection_pool
    pool.connection_class = _limited(pool.connection_class, seconds)
    return client
