"""A SQLite connection as the stores need it: plain transactions, the rights of the file's owner,
and errors in the words of the store protocol."""

from __future__ import annotations

import os
import shlex
import sqlite3
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from engine.store import Unavailable, Unsupported
from engine.stores.zgb.deadline import Deadline
from engine.stores.zgb.times import Cell
from engine.system import users
from engine.system.users import Account

LONGEST = 1 << 20
"""Bytes of a value that is read; a longer one is an error of the statement. Up to some hundred rows
are in memory at once."""

SIDE_FILES = ("-journal", "-wal", "-shm")
"""What SQLite opens, writes and removes beside a database, by its name."""


class Connection:
    """One connection to one database file, with the rights of its owner where we are root.

    It is opened with `mode=ro`, in which SQLite neither writes nor rolls an interrupted write back,
    and is opened again to write by the first transaction that does. A database in WAL mode is
    opened to write from the beginning, where that is allowed: a reader alone would leave its two
    side files behind.

    A journal that another program left (a hot journal) is data of whoever could make it: it may
    name any file, which SQLite removes with the rights of the process that rolls it back. So every
    statement, and the closing of the connection, is carried out with the owner's rights.
    """

    def __init__(
        self,
        path: str,
        *,
        read_only: bool,
        patience: float,
        durable: bool,
        rolls_back: bool = False,
    ) -> None:
        """`patience` is for how many seconds a lock of another process is waited for.

        `rolls_back` allows to roll back a write that was interrupted, whoever left its journal;
        else only one of our own is.

        Raises:
            Unavailable: there is no such file, or it cannot be opened.
        """
        self.path = path
        self.patience = patience
        self._durable, self._read_only = durable, read_only
        try:
            before = os.stat(path)
        except OSError as error:
            raise Unavailable(f"{path}: {(error.strerror or 'gone').lower()}") from error
        self._account, self._real = owner_of(path), os.path.realpath(path)
        if not stat.S_ISREG(before.st_mode):  # opening a FIFO may take for ever
            raise Unavailable(f"{path}: no plain file, expected a SQLite database")
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
        """Open the file, again if it is open."""
        self.close()
        # Every name in it is escaped: a question mark in a path would begin the parameters.
        uri = f"file:{_escaped(os.path.abspath(self.path))}?mode={mode}"
        with self._reaching():
            db = sqlite3.connect(
                uri, uri=True, timeout=self.patience, isolation_level=None, check_same_thread=False
            )
        self._db, self._writes = db, mode == "rw"
        self._opened += 1
        # Foreign text may be in any encoding, and must go back as it came.
        db.text_factory = _text
        db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST)
        db.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        self._deadline = Deadline(db, self.path)
        self.run("PRAGMA trusted_schema = OFF")
        self.run("PRAGMA cell_size_check = ON")
        if self._writes and not self._durable:
            self.run("PRAGMA synchronous = OFF")

    def _prepare(self, rolls_back: bool) -> None:
        """Open it again to write, where it cannot be read otherwise."""
        try:
            ((mode,),) = self.run("PRAGMA journal_mode")
        except HotJournal:
            if self._read_only or not (rolls_back or self._is_own):
                raise
        else:
            if self._read_only or mode != "wal":
                return
        self._open("rw")

    @property
    def _is_own(self) -> bool:
        """Whether the database, its journal and their folder belong to us, or to root."""
        beside = (self._real, f"{self._real}-journal", os.path.dirname(self._real))
        owners = {os.lstat(path).st_uid for path in beside if os.path.lexists(path)}
        return owners <= {0, os.geteuid()}

    @contextmanager
    def _reaching(self) -> Iterator[None]:
        """Reach files with the owner's rights, and say what SQLite raises in the caller's words."""
        _require_plain(self._real)
        with said(self.path, self.patience, self._account), users.files_as(self._account):
            yield

    @property
    def _connection(self) -> sqlite3.Connection:
        if self._db is None:
            raise Unavailable(f"{self.path}: closed")
        return self._db

    def close(self) -> None:
        """Close the file; can be called again."""
        db, self._db = self._db, None
        if db is not None:
            with users.files_as(self._account):
                db.close()

    def __del__(self) -> None:
        # SQLite removes side files when a connection ends, with the rights of that moment.
        if getattr(self, "_db", None) is not None:
            self.close()

    @property
    def is_current(self) -> bool:
        """Whether the path still names the file that was opened.

        Raises:
            Unavailable: it names none.
        """
        try:
            now = os.stat(self.path)
        except OSError as error:
            raise Unavailable(f"{self.path}: {(error.strerror or 'gone').lower()}") from error
        return (now.st_dev, now.st_ino) == self.file

    def run(self, sql: str, values: Sequence[Cell] = ()) -> list[tuple[Cell, ...]]:
        """One statement, carried out in full: no cursor is left open in which a writer is kept out.

        Raises:
            Unavailable: it is locked, damaged, full, or not as it was when it was opened.
            Unsupported: the database has a rule against it.
        """
        with self._reaching(), self._deadline.statement():
            return self._connection.execute(sql, values).fetchall()

    def raw(self, sql: str, values: Sequence[Cell] = ()) -> list[tuple[Cell, ...]]:
        """The same with each text as its bytes: making text of it would be most of the time."""
        db = self._connection
        db.text_factory = bytes
        try:
            return self.run(sql, values)
        finally:
            db.text_factory = _text

    def change(self, sql: str, values: Sequence[Cell] = ()) -> int:
        """One statement; how many rows it changed. Raises as `run`."""
        with self._reaching(), self._deadline.statement(changes=True):
            return self._connection.execute(sql, values).rowcount

    def begin(self) -> None:
        """Begin a transaction that has the write lock from its beginning.

        Raises:
            Unavailable: the file may only be read, or the path names another one by now.
        """
        if not self._writes and not self._read_only:
            if not self.is_current:
                raise Unavailable(f"{self.path}: replaced by another file just now")
            self._open("rw")
        self.run("BEGIN IMMEDIATE")

    @contextmanager
    def writing(self) -> Iterator[None]:
        """A transaction that has the write lock from its beginning; all of it holds, or nothing."""
        self.begin()
        try:
            yield
            self.run("COMMIT")
        except BaseException:
            self.abandon()
            raise

    def abandon(self) -> None:
        """Undo the transaction that is open, if one is."""
        if self.is_writing:
            # SQLite has undone it by itself, and what was is said
            with suppress(sqlite3.Error), users.files_as(self._account):
                self._connection.execute("ROLLBACK")

    @property
    def is_writing(self) -> bool:
        """Whether the transaction that was begun is still open: a trigger may undo all of it."""
        return self._db is not None and self._db.in_transaction

    @property
    def version(self) -> tuple[int, Cell]:
        """Changes whenever another connection has changed the database, or we opened it again."""
        return self._opened, self.run("PRAGMA data_version")[0][0]


class HotJournal(Unavailable):
    """A write was interrupted, and its journal is not ours to roll back."""


def owner_of(path: str) -> Account | None:
    """As `accounts.owner_at`, of a database.

    Raises:
        Unavailable: it is not there, or no rights to open it with are safe.
    """
    try:
        return users.owner_at(path)
    except users.Unsafe as error:
        raise Unavailable(f"{path}: {error}") from error
    except OSError as error:
        raise Unavailable(f"{path}: {(error.strerror or 'gone').lower()}") from error


def _require_plain(path: str) -> None:
    """Make sure that the side files are plain files: opening a FIFO may take for ever.

    Raises:
        Unavailable: one is something else.
    """
    for suffix in SIDE_FILES:
        try:
            seen = os.lstat(f"{path}{suffix}")
        except OSError:
            continue  # there is none, or SQLite says why it cannot be reached
        if not stat.S_ISREG(seen.st_mode):
            raise Unavailable(f"{path}{suffix}: no plain file, expected one that SQLite made")


@contextmanager
def said(path: str, patience: float, account: Account | None = None) -> Iterator[None]:
    """Turn what SQLite raises into what the caller can do about it."""
    try:
        yield
    except sqlite3.IntegrityError as error:
        raise Unsupported(f"{path}: the database refuses it: {error}") from error
    except (sqlite3.ProgrammingError, sqlite3.InternalError):
        raise  # ours to mend
    except sqlite3.DatabaseError as error:
        code = getattr(error, "sqlite_errorcode", 0)
        if code == sqlite3.SQLITE_READONLY_ROLLBACK:
            raise HotJournal(f"{path}: {_interrupted(path)}") from error
        words = _words(error, patience)
        if account is not None and code & 0xFF in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM):
            words = f"{words}, with the rights of {account.name}"
        raise Unavailable(f"{path}: {words}") from error


def _interrupted(path: str) -> str:
    """What to do about a hot journal, in words."""
    path = os.path.realpath(path)
    user = users.for_sudo(os.stat(path).st_uid)
    return (
        f"a program ended while it wrote, and left {os.path.basename(path)}-journal; the next "
        f"write of that program undoes the unfinished one, or: sudo -u {user} spooldeck status "
        f"{shlex.quote(path)}"
    )


def _words(error: sqlite3.DatabaseError, patience: float) -> str:
    # The lower byte says what it is; what is above says how it came to that.
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return f"locked by another process for {patience:g} s"
    if code == sqlite3.SQLITE_NOTADB:
        return "not a SQLite database"
    if code == sqlite3.SQLITE_CORRUPT:
        return f"damaged: {error}; PRAGMA integrity_check says more"
    if code == sqlite3.SQLITE_TOOBIG:
        return f"a value in it has more than {LONGEST:,} bytes, expected at most so many"
    if code == sqlite3.SQLITE_FULL:
        return "the disk is full"
    return str(error)


def _escaped(path: str) -> str:
    return "".join(f"%{ord(c):02x}" if c in "%?#" else c for c in path)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def placeholder(value: Cell) -> tuple[str, Cell]:
    """How a value is put into a statement, and as what: text that is no UTF-8 by its bytes."""
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            return "CAST(? AS TEXT)", value.encode("utf-8", "surrogateescape")
    return "?", value


def quoted(name: str) -> str:
    """A name as it stands in a statement, whatever it is."""
    return '"' + name.replace('"', '""') + '"'
