"""The MAILQ server of a scheduler: versions 1 and 2, on TCP and UNIX sockets, without threads.

All sockets are non-blocking and wait in one epoll. The scheduler waits for `fileno` beside its
other descriptors and calls `step`, so nothing is shared between threads, and a peer that does not
read its answer only keeps a prepared byte string waiting.
"""

from __future__ import annotations

import errno
import ipaddress
import os
import selectors
import socket
import stat
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from engine.formats.zmailer.mailq.acl import MailqUser
from engine.formats.zmailer.mailq.report_text import decode
from engine.formats.zmailer.mailq.session import MailqQueue, MailqSession, PreparedReports, Reply
from engine.store import Unavailable
from engine.system import files
from engine.system.cleanup import closing_fd
from engine.text.error_text import error_text

DEFAULT_PORT = 174
"""TCP port of MAILQ (RFC 1700: mailq)."""
LOOPBACK = "127.0.0.1"
MAX_CONNECTIONS = 21
"""Connections at a time, as in ZMailer 3.0.1; a further one is closed."""
CONNECTION_SECONDS = 90.0
"""Seconds after which a connection is closed, also in the middle of an answer."""
MAX_COMMAND_BYTES = 4096
"""Bytes: a longer command ends the connection."""
_TOO_LONG = b"-Command too long.\n"
_SOCKET_MODE = 0o666
"""The UNIX socket is open to all users, as that of ZMailer: users and passwords decide."""


def listen_tcp(host: str = LOOPBACK, port: int = DEFAULT_PORT) -> socket.socket:
    """Listen on a TCP port; by default only on the loopback address. Raises Unavailable: the
    address cannot be used."""
    try:
        (family, _, _, _, address), *_ = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        return socket.create_server(address[:2], family=family, backlog=MAX_CONNECTIONS)
    except OSError as error:
        raise Unavailable(f"TCP:{host}:{port}: {error_text(error)}") from None


def listen_unix(path: str) -> socket.socket:
    """Listen on a UNIX socket; one that no process listens on is replaced. Raises Unavailable:
    another process listens on it, it is no socket, or the folder cannot be used."""
    folder, name = os.path.split(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with closing_fd(files.open_folder(folder or ".")) as at:
            reached = f"/proc/self/fd/{at}/{name}"  # in the opened folder, and not too long
            _remove_dead_socket(path, name, at, reached)
            files.bind_socket(listener, name, at, _SOCKET_MODE)
        listener.listen(MAX_CONNECTIONS)
    except OSError as error:
        listener.close()
        raise Unavailable(f"{path}: {error_text(error)}") from None
    except BaseException:
        listener.close()
        raise
    return listener


def _remove_dead_socket(path: str, name: str, at: int, reached: str) -> None:
    try:
        socket_stat = os.stat(name, dir_fd=at, follow_symlinks=False)
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(socket_stat.st_mode) or socket_stat.st_uid not in (0, os.geteuid()):
        raise Unavailable(f"{path}: exists and is no socket of this user")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        error_number = probe.connect_ex(reached)
    if error_number != errno.ECONNREFUSED:
        raise Unavailable(f"{path}: another process listens on it")
    os.unlink(name, dir_fd=at)


@dataclass(slots=True, eq=False)
class _Connection:
    """One peer: its session, what it has sent and what it has not read yet."""

    socket: socket.socket
    session: MailqSession | None
    ends_at: float
    received: bytes = b""
    waiting: memoryview | bytes = b""
    is_closing: bool = False


class MailqServer:
    """The connections of one scheduler. Call `step` when `fileno` is readable, and now and then: it
    ends connections that are too old."""

    def __init__(
        self,
        listeners: Sequence[socket.socket],
        queue: MailqQueue,
        users: Sequence[MailqUser] | None = None,
        *,
        is_exact: bool = False,
        with_jobs: bool = True,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        """Serve version 2 to `users`, or version 1 to all if that is None.

        `with_jobs` False: version 1 shows only the threads. `is_exact`: see `MailqSession`."""
        self._queue, self._is_exact = queue, is_exact
        self._dump = "1" if with_jobs else "1Q"
        self.users = users
        """May be replaced after the file was read again; open connections keep theirs."""
        self._clock, self._wall_clock = clock, wall_clock
        self._reports = PreparedReports(queue)
        self._number = 0
        """Of the last challenge."""
        self._selector = selectors.EpollSelector()
        self.connections: dict[int, _Connection] = {}
        """By descriptor, oldest first."""
        self._listeners = [*listeners]
        for listener in listeners:
            listener.setblocking(False)
            self._selector.register(listener, selectors.EVENT_READ)

    def fileno(self) -> int:
        """A descriptor that is readable when there is something to do."""
        return self._selector.fileno()

    def step(self, seconds: float = 0.0) -> None:
        """Handle what is there now, after waiting for at most so many seconds; never blocks on a
        peer."""
        for key, _ in self._selector.select(seconds):
            if key.data is None:
                self._accept(key.fileobj)
            elif key.fd in self.connections:
                self._handle(key.data)
        now = self._clock()
        for connection in [*self.connections.values()]:
            if connection.ends_at > now:
                break
            self._end(connection)

    def close(self) -> None:
        """Close all connections and listeners; the file of a UNIX socket stays."""
        for connection in [*self.connections.values()]:
            self._end(connection)
        for listener in self._listeners:
            listener.close()
        self._selector.close()

    def _accept(self, listener: Any) -> None:
        try:
            peer, address = listener.accept()
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):  # else it would be asked in a loop
                for oldest in [*self.connections.values()][:1]:
                    self._end(oldest)
            return  # or the peer has gone
        if len(self.connections) >= MAX_CONNECTIONS:
            peer.close()
            return
        peer.setblocking(False)
        ends_at = self._clock() + CONNECTION_SECONDS
        session = None if self.users is None else self._new_session(self.users, address)
        connection = _Connection(peer, session, ends_at)
        self.connections[peer.fileno()] = connection
        self._selector.register(peer, selectors.EVENT_READ, connection)
        if session is None:
            self._reply(connection, Reply(self._reports.report(self._dump), is_end=True))
        else:
            self._reply(connection, session.greet())
        self._flush(connection)

    def _new_session(self, users: Sequence[MailqUser], address: Any) -> MailqSession:
        self._number += 1
        seconds, parts = divmod(int(self._wall_clock() * 1e6), 1_000_000)
        challenge = f"220 MAILQ-V2-CHALLENGE: {seconds}.{parts}.{self._number}"
        is_tcp = isinstance(address, tuple)
        peer = ipaddress.ip_address(address[0].partition("%")[0]) if is_tcp else None
        return MailqSession(self._reports, users, peer, challenge, is_exact=self._is_exact)

    def _handle(self, connection: _Connection) -> None:
        if connection.waiting or connection.is_closing:
            self._flush(connection)
            return
        try:
            data = connection.socket.recv(MAX_COMMAND_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""  # reset by the peer
        if not data:
            self._end(connection)  # what is left of an unfinished line is discarded
            return
        connection.received += data
        self._flush(connection)

    def _flush(self, connection: _Connection) -> None:
        """Write what waits; then answer further commands, one by one, as long as the peer reads."""
        while True:
            while connection.waiting:
                try:
                    sent = connection.socket.send(connection.waiting)
                except BlockingIOError:
                    self._selector.modify(connection.socket, selectors.EVENT_WRITE, connection)
                    return
                except OSError:
                    self._end(connection)
                    return
                connection.waiting = connection.waiting[sent:]
            if connection.is_closing:
                self._end(connection)
                return
            line, newline, unread = connection.received.partition(b"\n")
            if not newline:
                break
            connection.received = unread
            if connection.session is not None:
                self._reply(connection, connection.session.answer(decode(line)))
        if len(connection.received) >= MAX_COMMAND_BYTES:
            connection.received = b""
            self._reply(connection, Reply(_TOO_LONG, is_end=True))
            self._flush(connection)
            return
        self._selector.modify(connection.socket, selectors.EVENT_READ, connection)

    @staticmethod
    def _reply(connection: _Connection, reply: Reply) -> None:
        connection.waiting = memoryview(reply.data)
        connection.is_closing = reply.is_end

    def _end(self, connection: _Connection) -> None:
        self.connections.pop(connection.socket.fileno(), None)
        self._selector.unregister(connection.socket)
        connection.socket.close()
