"""A pool of connections to a database, SQLite or Postgres; the differences are a table.

Each statement is a transaction of its own. A connection is used by one thread at a time and kept
for the next statement. Errors become Unavailable with one line; no text has a password."""

from __future__ import annotations

import errno
import os
import socket
import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from importlib import import_module
from typing import Any, TypeAlias

from engine.config.place_address import Address
from engine.store import Unavailable
from engine.system import users
from engine.system.cleanup import closed_on_error
from engine.system.users import Account
from engine.text.error_text import error_text
from engine.text.safe import safe_line
from engine.values import NamedTuple

PATIENCE_SECONDS = 5.0
"""Longest wait for a lock, for a statement, and for a connection."""

GRACE_SECONDS = 1.0
"""Seconds after a server's own time limit until its connection is ended."""

INSTALL_HINT = "pip install 'spooldeck[postgres]'"

Value: TypeAlias = str | float | int | None


class NoTable(Unavailable):
    """The database or the table is missing."""


class BadValue(Unavailable):
    """A value does not fit the type of its column."""


class SqlAnswer(NamedTuple):
    """What a statement gives."""

    rows: list[tuple[Any, ...]]
    changed: int
    """Number of inserted, updated or deleted rows."""


class PooledConnection(NamedTuple):
    """An open connection."""

    raw: Any
    """By the Python database API: a `sqlite3.Connection` or a `psycopg.Connection`."""
    file: tuple[int, int] | None = None
    """Device and inode of the file; None for a server."""
    account: Account | None = None
    """The user with whose file rights it is used; None: our own."""


class Dialect(NamedTuple):
    """How one database program differs from the other."""

    connect: Callable[[Address, float, bool], PooledConnection]
    """Open a connection; with True, create the database if it is missing and can be."""
    errors: Callable[[], type[Exception]]
    """The base class of its errors; loads the package."""
    explain: Callable[[Any, float], Unavailable]
    """Its error as one line; an empty text if the error is a bug of ours."""
    is_current: Callable[[Address, PooledConnection], bool]
    deadline: Callable[[PooledConnection, float], AbstractContextManager[None]]
    """Within the block, the connection is ended after so many seconds."""
    placeholder: str
    time: str
    """A bound time, epoch seconds, as the value of a column for times."""


class SqlDatabase:
    """A database by its address: `sqlite:///PATH` or `postgresql://...`."""

    def __init__(self, address: Address, patience: float = PATIENCE_SECONDS) -> None:
        """`patience`: seconds to wait for a lock, a statement and a connection. Raises
        `Unavailable`: there is no such kind of database."""
        if address.scheme not in DIALECTS:
            known = ", ".join(f"{scheme}://" for scheme in DIALECTS)
            raise Unavailable(f"{address.text}: expected an address that begins with {known}")
        self.address, self._patience = address, patience
        self.dialect = DIALECTS[address.scheme]
        self._idle: deque[PooledConnection] = deque()
        self._lock = threading.Lock()
        self._closings = 0

    def run(self, sql: str, values: Sequence[Value] = (), *, creates: bool = False) -> SqlAnswer:
        """Run one statement, with `?` for each value; it is committed on return. Raises
        `Unavailable`: it cannot be run now; NoTable if the database or the table is missing."""
        with self._convert_errors():
            closings, connection = self._closings, self._take(creates)
            is_whole = False
            try:
                with (
                    users.files_as(connection.account),
                    self.dialect.deadline(connection, self._patience + GRACE_SECONDS),
                ):
                    done = connection.raw.execute(
                        sql.replace("?", self.dialect.placeholder), tuple(values)
                    )
                    rows = done.fetchall() if done.description else []
                is_whole = True
                return SqlAnswer(rows, done.rowcount)
            finally:
                self._put_back(connection, closings)
                # After an error the server may be another one, or the file gone: open all again.
                if not is_whole:
                    self.close()

    def close(self) -> None:
        """Close the connections, those in use after their statement; the next one opens another."""
        with self._lock:
            self._closings += 1
            connections = list(self._idle)
            self._idle.clear()
        for connection in connections:
            _close(connection)

    def _put_back(self, connection: PooledConnection, closings: int) -> None:
        with self._lock:
            if closings == self._closings:
                self._idle.append(connection)
                return
        _close(connection)

    def _take(self, creates: bool) -> PooledConnection:
        while True:
            with self._lock:
                if not self._idle:
                    break
                connection = self._idle.pop()
            if self.dialect.is_current(self.address, connection):
                return connection
            _close(connection)
        return self.dialect.connect(self.address, self._patience, creates)

    @contextmanager
    def _convert_errors(self) -> Iterator[None]:
        try:
            errors = self.dialect.errors()
        except ImportError:
            why = f"needs another package: {INSTALL_HINT}"
            raise Unavailable(f"{self.address.text}: {why}") from None
        try:
            yield
        except errors as error:
            explained = self.dialect.explain(error, self._patience)
            raise type(explained)(f"{self.address.text}: {explained}") from error
        except UnicodeEncodeError as error:
            raise BadValue(f"{self.address.text}: a text with half of a character") from error
        except (OSError, users.Unsafe) as error:
            why = error_text(error)
            raise Unavailable(f"{self.address.text}: {why.lower()}") from error


def _close(connection: PooledConnection) -> None:
    with users.files_as(connection.account):  # SQLite may remove a journal as it closes
        connection.raw.close()


# ---- SQLite


def _path_of(address: Address) -> str:
    from urllib.parse import unquote

    return unquote(address.text.removeprefix("sqlite://"))


def _connect_sqlite(address: Address, patience: float, creates: bool) -> PooledConnection:
    path = _path_of(address)
    if not os.path.exists(path) and not creates:
        raise NoTable(f"{address.text}: no such file")
    if os.path.lexists(path) and not os.path.isfile(path):
        raise Unavailable(f"{address.text}: not a plain file")  # to open a FIFO could wait for ever
    account = users.safe_account(path)
    uri = f"file:{''.join(f'%{ord(c):02x}' if c in '%?#' else c for c in path)}"
    with users.files_as(account):
        raw = sqlite3.connect(
            f"{uri}?mode={'rwc' if creates else 'rw'}",
            uri=True,
            timeout=patience,
            isolation_level=None,
            check_same_thread=False,
        )
        with closed_on_error(raw):
            raw.execute("PRAGMA trusted_schema = OFF")
            file_stat = os.stat(path)
    return PooledConnection(raw, (file_stat.st_dev, file_stat.st_ino), account)


def _is_current_file(address: Address, connection: PooledConnection) -> bool:
    try:
        file_stat = os.stat(_path_of(address))
    except FileNotFoundError:
        return False
    return (file_stat.st_dev, file_stat.st_ino) == connection.file


def _explain_sqlite(error: sqlite3.Error, patience: float) -> Unavailable:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    text = str(error)
    if text.startswith("no such table"):
        return NoTable(text)
    if "no such column" in text or "has no column" in text:
        return Unavailable(f"a table of another program: {text}")
    return Unavailable(_SQLITE_TEXTS.get(code, "{error}").format(error=text, patience=patience))


_SQLITE_TEXTS: Mapping[int, str] = {
    sqlite3.SQLITE_BUSY: "locked by another process for {patience:g} s",
    sqlite3.SQLITE_LOCKED: "locked by another process for {patience:g} s",
    sqlite3.SQLITE_READONLY: "read-only for this user",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened or created: check its folder",
    sqlite3.SQLITE_NOTADB: "not a SQLite database",
    sqlite3.SQLITE_CORRUPT: "damaged: {error}; details: PRAGMA integrity_check",
    sqlite3.SQLITE_FULL: "the disk is full",
}
"""Primary result code -> text."""


# ---- Postgres


def _connect_postgres(address: Address, patience: float, creates: bool) -> PooledConnection:
    import psycopg

    milliseconds = max(1, round(patience * 1000))
    options = psycopg.conninfo.conninfo_to_dict(address.text).get("options") or ""
    raw = psycopg.connect(
        address.text,
        autocommit=True,
        password=address.password or None,
        connect_timeout=max(2, round(patience)),  # libpq: 1 counts as 2
        application_name="spooldeck",
        options=f"-c statement_timeout={milliseconds} -c lock_timeout={milliseconds}"
        f" -c timezone=UTC {options}",
    )
    return PooledConnection(raw)


@contextmanager
def _postgres_deadline(connection: PooledConnection, seconds: float) -> Iterator[None]:
    """Shut down the socket by a timer, shutdown(2): a server that hangs or answers for ever does
    not keep its own limit. Raises `OSError`: no thread can be started for the timer."""
    over = threading.Timer(seconds, partial(_shut, connection.raw.fileno()))
    over.daemon = True
    try:
        over.start()
    except RuntimeError as error:
        raise OSError(errno.EAGAIN, str(error)) from error
    try:
        yield
    finally:
        over.cancel()
        over.join()  # its descriptor may be another one's later


def _shut(fd: int) -> None:
    # The server may have closed it meanwhile.
    with suppress(OSError), socket.socket(fileno=os.dup(fd)) as same:
        same.shutdown(socket.SHUT_RDWR)


def _explain_postgres(error: Any, patience: float) -> Unavailable:
    import psycopg

    text = safe_line((str(error).splitlines() or ["unknown error"])[0])
    state = error.sqlstate
    if state == "42P01":
        return NoTable(text)
    if isinstance(error, psycopg.DataError):
        return BadValue(text)
    if state is None or (state[:2] in ("08", "57") and state != "57014"):
        return Unavailable(f"not reachable: {text}")
    return Unavailable(_POSTGRES_TEXTS.get(state, "{error}").format(error=text, patience=patience))


_POSTGRES_TEXTS: Mapping[str, str] = {
    "42703": "a table of another program: {error}",
    "55P03": "locked by another process for {patience:g} s",
    "57014": "no answer within {patience:g} s",
    "25006": "read-only: a standby server, or a user who may only read",
    "53100": "the disk is full",
}
"""SQLSTATE (Postgres manual, "Error Codes") -> text."""

DIALECTS: Mapping[str, Dialect] = {
    "sqlite": Dialect(
        _connect_sqlite,
        errors=lambda: sqlite3.Error,
        explain=_explain_sqlite,
        is_current=_is_current_file,
        deadline=lambda connection, seconds: nullcontext(),
        placeholder="?",
        time="?",
    ),
    "postgresql": Dialect(
        _connect_postgres,
        errors=lambda: import_module("psycopg").Error,
        explain=_explain_postgres,
        is_current=lambda address, connection: not connection.raw.closed,
        deadline=_postgres_deadline,
        placeholder="%s",
        time="to_timestamp(?)",
    ),
}
