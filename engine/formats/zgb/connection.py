"""A SQLite connection for the stores: explicit transactions, the file rights of the database's
owner, and errors of the Store protocol."""

from __future__ import annotations

import os
import shlex
import sqlite3
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from engine.formats.zgb.place import Cell
from engine.store import Unavailable, Unsupported
from engine.system import users
from engine.system.users import Account

VALUE_LIMIT_BYTES = 1 << 24
"""Size limit for one value that is read, in bytes; a longer one fails the statement. Of a page of
rows only our own columns are in memory, cut to their useful length."""

CHANGE_LIMIT_BYTES = 10**9
"""The same for a statement that changes rows: SQLite loads a whole row, also what it does not
change. Its own upper limit."""

SIDE_FILES = ("-journal", "-wal", "-shm")
"""Suffixes of the files that SQLite creates and removes next to a database."""


READ_SECONDS = 10.0
"""CPU seconds of this thread for one statement that reads."""

CHANGE_SECONDS = 60.0
"""CPU seconds of this thread for one statement that changes rows: a purge of a million takes
long."""

PAUSE_SECONDS = 60.0
"""Seconds after a stopped statement in which its connection runs no other."""

STEPS_PER_CHECK = 50_000
"""SQLite virtual machine instructions between two checks of the clock: some milliseconds."""


class Deadline:
    """A CPU time limit for each statement on one connection."""

    def __init__(self, db: sqlite3.Connection, path: str) -> None:
        self._path, self._end = path, float("inf")
        self._why, self._ended_at = "", -float("inf")
        db.set_progress_handler(self._is_over, STEPS_PER_CHECK)

    def _is_over(self) -> bool:
        return time.thread_time() > self._end

    @contextmanager
    def statement(self, *, changes: bool = False) -> Iterator[None]:
        """Run one statement with limited CPU time; `changes`: it changes rows. Raises Unavailable:
        it took too long and was stopped, or another one was, less than `PAUSE_SECONDS` ago;
        KeyboardInterrupt: SIGINT arrived."""
        if time.monotonic() < self._ended_at + PAUSE_SECONDS:
            raise Unavailable(self._why)
        seconds = CHANGE_SECONDS if changes else READ_SECONDS
        self._end = time.thread_time() + seconds
        try:
            yield
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_INTERRUPT:
                raise
            if not self._is_over():
                # An exception raised by a signal handler within the progress handler stops the
                # statement and is then lost.
                raise KeyboardInterrupt from error
            why = f"a statement took more than {seconds:g} s: an endless view or trigger?"
            self._why, self._ended_at = f"{self._path}: {why}", time.monotonic()
            raise Unavailable(self._why) from error
        finally:
            self._end = float("inf")


class OwnerConnection:
    """One connection to one database file; root acts with the rights of the file's owner.

    It is opened with `mode=ro`, in which SQLite neither writes nor rolls back an interrupted write,
    and reopened with `mode=rw` by the first write transaction. A database in WAL mode is opened
    with `mode=rw` from the beginning, if that is allowed: a mere reader would leave the -wal and
    -shm files behind.

    A hot journal, left by another program, is untrusted data: it may name any file, which SQLite
    deletes with the rights of the process that rolls it back. So every statement, and the closing
    of the connection, runs with the owner's rights."""

    def __init__(
        self,
        path: str,
        *,
        read_only: bool,
        patience: float,
        durable: bool,
        rolls_back: bool = False,
    ) -> None:
        """`patience`: seconds to wait for a lock of another process.

        `rolls_back` allows the rollback of any hot journal; otherwise only a journal of this user
        is rolled back. Raises Unavailable: there is no such file, or it cannot be opened."""
        self.path = path
        self.patience = patience
        self._durable, self._read_only = durable, read_only
        try:
            before = os.stat(path)
        except OSError as error:
            raise Unavailable(f"{path}: {(error.strerror or 'gone').lower()}") from error
        self._account, self._real = owner_of(path), os.path.realpath(path)
        if not stat.S_ISREG(before.st_mode):  # opening a FIFO could block forever
            raise Unavailable(f"{path}: not a plain file, expected a SQLite database")
        self.file = before.st_dev, before.st_ino
        self._db: sqlite3.Connection | None = None
        self._opened = 0
        self._writes = False
        self._open("ro")
        try:
            self._prepare(rolls_back)
        except BaseException:
            self.close()
            raise

    def _open(self, mode: str) -> None:
        self.close()
        # Characters with a meaning in a URI are escaped: a `?` in a path would start the
        # parameters.
        uri = f"file:{_escape_uri(os.path.abspath(self.path))}?mode={mode}"
        with self._with_owner_rights():
            db = sqlite3.connect(
                uri, uri=True, timeout=self.patience, isolation_level=None, check_same_thread=False
            )
        self._db, self._writes = db, mode == "rw"
        self._opened += 1
        # Text in another encoding must be written back unchanged.
        db.text_factory = _decode_text
        db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, VALUE_LIMIT_BYTES)
        db.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        self._deadline = Deadline(db, self.path)
        self.run("PRAGMA trusted_schema = OFF")
        self.run("PRAGMA cell_size_check = ON")
        if self._writes and not self._durable:
            self.run("PRAGMA synchronous = OFF")

    def _prepare(self, rolls_back: bool) -> None:
        """Reopen for writing if reading needs it: WAL mode, or a hot journal that may be rolled
        back."""
        try:
            ((mode,),) = self.run("PRAGMA journal_mode")
        except HotJournal:
            if self._read_only or not (rolls_back or self._is_own_file):
                raise
        else:
            if self._read_only or mode != "wal":
                return
        self._open("rw")

    @property
    def _is_own_file(self) -> bool:
        """True if the database, its journal and their folder belong to this user or root."""
        paths = (self._real, f"{self._real}-journal", os.path.dirname(self._real))
        owners = {os.lstat(path).st_uid for path in paths if os.path.lexists(path)}
        return owners <= {0, os.geteuid()}

    @contextmanager
    def _with_owner_rights(self) -> Iterator[None]:
        """Run the block with the owner's file rights; convert SQLite's errors."""
        _require_plain(self._real)
        with convert_errors(self.path, self.patience, self._account), users.files_as(self._account):
            yield

    @property
    def _connection(self) -> sqlite3.Connection:
        if self._db is None:
            raise Unavailable(f"{self.path}: closed")
        return self._db

    def close(self) -> None:
        """Close the file; may be called again."""
        db, self._db = self._db, None
        if db is not None:
            with users.files_as(self._account):
                db.close()

    def __del__(self) -> None:
        # SQLite removes the -wal and -shm files when a connection closes, with the rights at that
        # time.
        if getattr(self, "_db", None) is not None:
            self.close()

    @property
    def is_current(self) -> bool:
        """True if the path still names the file that was opened. Raises Unavailable: the file is
        gone."""
        try:
            now = os.stat(self.path)
        except OSError as error:
            raise Unavailable(f"{self.path}: {(error.strerror or 'gone').lower()}") from error
        return (now.st_dev, now.st_ino) == self.file

    def run(self, sql: str, values: Sequence[Cell] = ()) -> list[tuple[Cell, ...]]:
        """Run one statement and fetch all rows: an open cursor would lock out writers. Raises
        Unavailable: the database is locked, damaged, full, or its schema has changed; Unsupported:
        a constraint or trigger of the database rejects it."""
        with self._with_owner_rights(), self._deadline.statement():
            return self._connection.execute(sql, values).fetchall()

    def run_bytes(self, sql: str, values: Sequence[Cell] = ()) -> list[tuple[Cell, ...]]:
        """Run one statement and return text as bytes: decoding would take most of the time."""
        db = self._connection
        db.text_factory = bytes
        try:
            return self.run(sql, values)
        finally:
            db.text_factory = _decode_text

    def change(self, sql: str, values: Sequence[Cell] = ()) -> int:
        """Run one statement; return the number of changed rows. Raises as `run`."""
        db = self._connection
        db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, CHANGE_LIMIT_BYTES)
        try:
            with self._with_owner_rights(), self._deadline.statement(changes=True):
                return db.execute(sql, values).rowcount
        finally:
            db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, VALUE_LIMIT_BYTES)

    def begin(self) -> None:
        """Begin a transaction with the write lock (BEGIN IMMEDIATE). Raises Unavailable: the file
        is read-only, or the path names another file now."""
        if not self._writes and not self._read_only:
            if not self.is_current:
                raise Unavailable(f"{self.path}: replaced by another file just now")
            self._open("rw")
        self.run("BEGIN IMMEDIATE")

    @contextmanager
    def writing(self) -> Iterator[None]:
        """A write transaction: committed as a whole, or rolled back."""
        self.begin()
        try:
            yield
            self.run("COMMIT")
        except BaseException:
            self.roll_back()
            raise

    def roll_back(self) -> None:
        """Roll back the open transaction, if any."""
        if self.is_writing:
            # SQLite has already rolled back; the first error is reported
            with suppress(sqlite3.Error), users.files_as(self._account):
                self._connection.execute("ROLLBACK")

    @property
    def is_writing(self) -> bool:
        """True if the transaction is still open: a trigger may roll it back."""
        return self._db is not None and self._db.in_transaction

    @property
    def version(self) -> tuple[int, Cell]:
        """Changes when another connection changes the database, or when we reopen it."""
        return self._opened, self.run("PRAGMA data_version")[0][0]


class ValueTooLarge(Unavailable):
    """A value has more than `VALUE_LIMIT_BYTES` bytes, and so the whole statement failed."""


class HotJournal(Unavailable):
    """A write was interrupted, and its journal is not one that this user may roll back."""


def owner_of(path: str) -> Account | None:
    """Return the account to use for a database, as `users.safe_account`. Raises Unavailable: it
    does not exist, or no account is safe to open it with."""
    try:
        return users.safe_account(path)
    except users.Unsafe as error:
        raise Unavailable(f"{path}: {error}") from error
    except OSError as error:
        raise Unavailable(f"{path}: {(error.strerror or 'gone').lower()}") from error


def _require_plain(path: str) -> None:
    """Check that the side files are plain files: opening a FIFO could block forever. Raises
    Unavailable: one is not a plain file."""
    for suffix in SIDE_FILES:
        try:
            file_stat = os.lstat(f"{path}{suffix}")
        except OSError:
            continue  # no such file, or SQLite reports why it cannot be opened
        if not stat.S_ISREG(file_stat.st_mode):
            raise Unavailable(f"{path}{suffix}: not a plain file, expected one that SQLite made")


@contextmanager
def convert_errors(path: str, patience: float, account: Account | None = None) -> Iterator[None]:
    """Convert SQLite's exceptions to those of the Store protocol."""
    try:
        yield
    except sqlite3.IntegrityError as error:
        raise Unsupported(f"{path}: rejected by the database: {error}") from error
    except (sqlite3.ProgrammingError, sqlite3.InternalError):
        raise  # a bug of spooldeck
    except sqlite3.DatabaseError as error:
        code = getattr(error, "sqlite_errorcode", 0)
        if code == sqlite3.SQLITE_READONLY_ROLLBACK:
            raise HotJournal(f"{path}: {_hot_journal_message(path)}") from error
        if code & 0xFF == sqlite3.SQLITE_TOOBIG:
            why = f"a value has more than {VALUE_LIMIT_BYTES:,} bytes, the limit"
            raise ValueTooLarge(f"{path}: {why}") from error
        words = _error_text(error, patience)
        if code in _NEEDS_SIDE_FILES:
            words = f"{_NO_SIDE_FILE}: {_as_owner(path)}"
        if account is not None and code & 0xFF in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM):
            words = f"{words}, with the rights of {account.name}"
        raise Unavailable(f"{path}: {words}") from error


def _hot_journal_message(path: str) -> str:
    name = os.path.basename(os.path.realpath(path))
    return (
        f"a write was interrupted and left {name}-journal; the next write of that program rolls "
        f"it back, or run: {_as_owner(path)}"
    )


_NEEDS_SIDE_FILES = frozenset(
    {
        sqlite3.SQLITE_READONLY_DIRECTORY,
        sqlite3.SQLITE_READONLY_CANTINIT,
        sqlite3.SQLITE_READONLY_RECOVERY,
        sqlite3.SQLITE_READONLY_CANTLOCK,
    }
)
_NO_SIDE_FILE = (
    "a database in WAL mode is read with files beside it, and this user may not write there; run"
)


def _as_owner(path: str) -> str:
    path = os.path.realpath(path)
    user = users.sudo_user(os.stat(path).st_uid)
    return f"sudo -u {user} spooldeck status {shlex.quote(path)}"


def _error_text(error: sqlite3.DatabaseError, patience: float) -> str:
    # The low byte is the primary error code; the upper bytes give the detail.
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return f"locked by another process for {patience:g} s"
    if code == sqlite3.SQLITE_NOTADB:
        return "not a SQLite database"
    if code == sqlite3.SQLITE_CORRUPT:
        return f"damaged: {error}; details: PRAGMA integrity_check"
    if code == sqlite3.SQLITE_FULL:
        return "the disk is full"
    return str(error)


def _escape_uri(path: str) -> str:
    return "".join(f"%{ord(c):02x}" if c in "%?#" else c for c in path)


def _decode_text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def placeholder(value: Cell) -> tuple[str, Cell]:
    """Return the SQL placeholder and the value to bind: text that is not UTF-8 is bound as
    bytes."""
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            return "CAST(? AS TEXT)", value.encode("utf-8", "surrogateescape")
    return "?", value


def quote_name(name: str) -> str:
    """Return a name as a quoted SQL identifier."""
    return '"' + name.replace('"', '""') + '"'
