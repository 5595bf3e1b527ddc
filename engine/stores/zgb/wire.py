"""A SQLite connection as the stores need it: plain transactions, and errors in the seam's words."""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from engine.store import Unavailable, Unsupported
from engine.stores.zgb.deadline import Deadline
from engine.stores.zgb.times import Cell


class Wire:
    """One connection to one database file."""

    def __init__(self, path: str, *, read_only: bool, patience: float, durable: bool) -> None:
        """`patience` is for how many seconds somebody else's lock is waited for.

        Raises:
            Unavailable: there is no such file, or it cannot be opened.
        """
        self.path = path
        self.patience = patience
        try:
            before = os.stat(path)
        except OSError as error:
            raise Unavailable(f"{path}: {(error.strerror or 'gone').lower()}") from error
        if not stat.S_ISREG(before.st_mode):  # opening a FIFO may take for ever
            raise Unavailable(f"{path}: no plain file, expected a SQLite database")
        self.file = before.st_dev, before.st_ino
        # Every name in it is escaped: a question mark in a path would begin the parameters.
        uri = f"file:{_escaped(os.path.abspath(path))}?mode={'ro' if read_only else 'rw'}"
        with said(path, patience):
            self._db = sqlite3.connect(
                uri, uri=True, timeout=patience, isolation_level=None, check_same_thread=False
            )
        # Foreign text may be in any encoding, and must go back as it came.
        self._db.text_factory = _text
        self._deadline = Deadline(self._db, path)
        if not durable:
            self.run("PRAGMA synchronous = OFF")

    def close(self) -> None:
        """Let go of the file."""
        self._db.close()

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
        with said(self.path, self.patience), self._deadline.statement():
            return self._db.execute(sql, values).fetchall()

    def raw(self, sql: str, values: Sequence[Cell] = ()) -> list[tuple[Cell, ...]]:
        """The same with each text as its bytes: making text of it would be most of the time."""
        self._db.text_factory = bytes
        try:
            return self.run(sql, values)
        finally:
            self._db.text_factory = _text

    def change(self, sql: str, values: Sequence[Cell] = ()) -> int:
        """One statement; how many rows it changed. Raises as `run`."""
        with said(self.path, self.patience), self._deadline.statement(changes=True):
            return self._db.execute(sql, values).rowcount

    @contextmanager
    def writing(self) -> Iterator[None]:
        """A transaction that has the write lock from its beginning; all of it holds, or nothing."""
        self.run("BEGIN IMMEDIATE")
        try:
            yield
            self.run("COMMIT")
        except BaseException:
            self.abandon()
            raise

    def abandon(self) -> None:
        """Undo the transaction that is open, if one is."""
        if self._db.in_transaction:
            with suppress(sqlite3.Error):  # SQLite has undone it by itself, and what was is said
                self._db.execute("ROLLBACK")

    @property
    def is_writing(self) -> bool:
        """Whether the transaction that was begun is still open: a trigger may undo all of it."""
        return self._db.in_transaction

    @property
    def version(self) -> Cell:
        """Changes whenever another connection has changed the database."""
        return self.run("PRAGMA data_version")[0][0]


@contextmanager
def said(path: str, patience: float) -> Iterator[None]:
    """Turn what SQLite raises into what the caller can do about it."""
    try:
        yield
    except sqlite3.IntegrityError as error:
        raise Unsupported(f"{path}: the database refuses it: {error}") from error
    except (sqlite3.ProgrammingError, sqlite3.InternalError):
        raise  # ours to mend
    except sqlite3.DatabaseError as error:
        raise Unavailable(f"{path}: {_words(error, patience)}") from error


def _words(error: sqlite3.DatabaseError, patience: float) -> str:
    # The lower byte says what it is; what is above says how it came to that.
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return f"locked by another process for {patience:g} s"
    if code == sqlite3.SQLITE_NOTADB:
        return "not a SQLite database"
    if code == sqlite3.SQLITE_CORRUPT:
        return f"damaged: {error}; PRAGMA integrity_check says more"
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
