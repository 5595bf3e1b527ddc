"""What a database must have to be a mail queue; opened as it is, never changed to fit; or made."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import tzinfo
from typing import NamedTuple

from engine.store import Unavailable
from engine.stores.zgb.connection import Connection, owner_of, quoted
from engine.stores.zgb.place import ZgbDatabase
from engine.stores.zgb.times import EARLIEST, LAST, Cell, TimeFormat, zone_of
from engine.system import files, users

DOCUMENTED = (
    *("registration_number", "mail_type", "status", "attempts", "next_attempt_at"),
    *("locked_until", "last_error"),
)
"""The columns without which it is no mail queue."""

APART = 26 * 3600
"""Seconds by which a registration must be younger than a job to be another's than the job was made
for: more than any two time zones differ, in which the two may have been written."""

_STAMP = "[0-9]" * 4 + "-[01][0-9]-[0-3][0-9] [0-2][0-9]:[0-5][0-9]:[0-5][0-9]"

_YOUNGER = f"""coalesce(CASE
  WHEN typeof(r.created_at) = 'integer' AND typeof(mail_queue.created_at) = 'integer'
    AND min(r.created_at, mail_queue.created_at) >= {EARLIEST}
    AND max(r.created_at, mail_queue.created_at) <= {LAST}
  THEN r.created_at - mail_queue.created_at > {APART}
  WHEN typeof(r.created_at) = 'text' AND typeof(mail_queue.created_at) = 'text'
    AND r.created_at GLOB '{_STAMP}' AND mail_queue.created_at GLOB '{_STAMP}'
  THEN strftime('%s', r.created_at) - strftime('%s', mail_queue.created_at) > {APART}
END, 0)"""
"""That a registration `r` was made long after a job. Two programs wrote these times: what is not
written alike (milliseconds, another sign between day and hour, a zone or a fraction behind them)
says nothing about which came first."""

TIMES = ("next_attempt_at", "locked_until", "created_at", "updated_at")
"""The columns that hold times, as far as they are there."""

ASKED = 10_000
"""Rows at most of which the form of such a column is told: one row alone may be the stray one, and
all of them are read each time that a large queue is opened."""

SCHEMA = (
    "CREATE TABLE config (key TEXT PRIMARY KEY, value TEXT)",
    "CREATE TABLE registrations (number INTEGER PRIMARY KEY, created_at INTEGER NOT NULL"
    " DEFAULT (CAST(strftime('%s','now') AS INTEGER)))",
    # No foreign key: a job may outlive its registration, and is then told to be an orphan.
    """CREATE TABLE mail_queue (
  id                  INTEGER PRIMARY KEY AUTOINCREMENT,
  registration_number INTEGER NOT NULL,
  mail_type           TEXT    NOT NULL CHECK (mail_type IN ('user','organizer')),
  status              TEXT    NOT NULL DEFAULT 'pending'
                      CHECK (status IN ('pending','sending','failed')),
  attempts            INTEGER NOT NULL DEFAULT 0 CHECK (attempts >= 0),
  next_attempt_at     INTEGER NOT NULL DEFAULT 0,
  locked_until        INTEGER,
  last_error          TEXT,
  created_at          INTEGER NOT NULL DEFAULT (CAST(strftime('%s','now') AS INTEGER)),
  updated_at          INTEGER NOT NULL DEFAULT (CAST(strftime('%s','now') AS INTEGER)))""",
    "CREATE UNIQUE INDEX ux_mail_queue_reg_type ON mail_queue(registration_number, mail_type)",
    "CREATE INDEX ix_mail_queue_due ON mail_queue(status, next_attempt_at)",
)
"""A new database; times are whole epoch seconds UTC."""


def create(path: str) -> None:
    """Make a new, empty mail queue; it sends nothing until `mailQueueEnabled` is set. A file with
    nothing in it, as whoever dies over this leaves one, is none yet.

    Raises:
        FileExistsError: something of that name is there.
        OSError: it cannot be made.
    """
    with users.files_as(owner_of(path)):
        _create(path)
    wire = Connection(path, read_only=False, patience=ZgbDatabase(path).patience, durable=True)
    try:
        with wire.writing():
            if not _is_empty(wire):
                raise FileExistsError(f"{path}: somebody else has just made it")
            for statement in SCHEMA:
                wire.run(statement)
    finally:
        wire.close()


def _create(path: str) -> None:
    name = os.path.basename(path)
    folder = files.open_folder(os.path.dirname(path) or ".")
    try:
        os.close(files.create(name, folder, None))
    except FileExistsError:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
        why = files.oddity(found) or files.distrust(found, os.fstat(folder))
        if why or not _holds_nothing(path):
            raise
    finally:
        os.close(folder)


def _holds_nothing(path: str) -> bool:
    """Whether a file is a database without anything in it: one of no bytes is, to SQLite."""
    try:
        wire = Connection(path, read_only=False, patience=ZgbDatabase(path).patience, durable=True)
    except Unavailable:
        return False
    try:
        return _is_empty(wire)
    except Unavailable:
        return False
    finally:
        wire.close()


def _is_empty(wire: Connection) -> bool:
    return not wire.run("SELECT 1 FROM sqlite_master LIMIT 1")


class TableShape(NamedTuple):
    """How a database that was opened is built."""

    names: tuple[str, ...]
    """The columns of the queue, its key left out."""
    key: str
    """What a row is addressed by: its rowid, or the column `id` where there is none."""
    forms: Mapping[str, TimeFormat]
    """How each column that holds times writes them."""
    zone: tzinfo
    """In which zone its texts are."""
    period_zone: tzinfo
    orphans: str
    """A condition on `mail_queue` that holds for a job whose registration is gone; "" where that
    cannot be told."""
    strangers: str
    """The same for a job whose number seems to have been given out again since."""
    identity: str
    """What tells a registration from a later one of the same number, as a column."""
    numbered: bool
    """Whether the database gives no row the key of one that is gone."""

    @property
    def dates(self) -> bool:
        """Whether anything there can say when a job was made: itself, or its registration."""
        return "created_at" in self.forms or self.identity == "created_at"

    @property
    def columns(self) -> str:
        """What is selected of a row: its key, and then every column in their order."""
        return ", ".join((self.key, *map(quoted, self.names)))


class Database:
    """Their database, opened and found to be a mail queue; opened anew when it was replaced."""

    def __init__(self, place: ZgbDatabase) -> None:
        """Raises Unavailable: it is none, or cannot be read."""
        self.place = place
        self.refused = _no_writing(place)
        """Why nothing may be changed in it by us; "" when it may."""
        self._wire, self.shape = self._open()

    def _open(self) -> tuple[Connection, TableShape]:
        place = self.place
        wire = Connection(
            place.path,
            read_only=bool(self.refused),
            patience=place.patience,
            durable=place.durable,
            rolls_back=place.rolls_back,
        )
        try:
            return wire, _shape(wire, place)
        except BaseException:
            wire.close()
            raise

    @property
    def wire(self) -> Connection:
        """The connection to the file that the path names now.

        Raises:
            Unavailable: it names none, or another one that is no mail queue.
        """
        if not self._wire.is_current:
            old = self._wire
            self._wire, self.shape = self._open()
            old.close()
        return self._wire

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """A transaction on the file that the path names, with its write lock."""
        wire = self.wire
        with wire.writing():
            if not wire.is_current:
                # While we waited for the lock; what we would write, nobody would ever read.
                raise Unavailable(f"{wire.path}: replaced by another file just now")
            yield wire

    def close(self) -> None:
        """Let go of the file."""
        self._wire.close()


def _no_writing(place: ZgbDatabase) -> str:
    if place.read_only:
        return f"{place.path} was opened to be read only"
    if not os.path.exists(place.path):
        return ""  # who opens it says so
    # SQLite puts its journal beside the database: the folder must be ours to write as well.
    beside = os.path.dirname(os.path.realpath(place.path))
    with users.files_as(owner_of(place.path)):
        for path in (place.path, beside):
            if not os.access(path, os.W_OK, effective_ids=True):
                return f"{path} is not writable for us"
    return ""


def _shape(wire: Connection, place: ZgbDatabase) -> TableShape:
    try:
        zone, period_zone = zone_of(place.zone), zone_of(place.period_zone)
    except ValueError as error:
        raise Unavailable(f"{place.path}: {error}") from error
    types = _columns(wire, "mail_queue", DOCUMENTED)
    _columns(wire, "config", ("key", "value"))
    forms = {
        name: TimeFormat(_is_text(wire, name, types[name]), zone) for name in TIMES if name in types
    }
    key = _key(wire, types)
    names = tuple(name for name in types if name != key)
    told = _registrations(wire, place.registrations, forms)
    return TableShape(names, key, forms, zone, period_zone, *told, _is_numbered(wire))


def _columns(wire: Connection, table: str, needed: tuple[str, ...]) -> dict[str, str]:
    """The declared types of a table's columns by their names."""
    _require_table(wire, table)
    found = {str(row[1]): str(row[2]) for row in wire.run(f"PRAGMA table_info({table})")}
    if not found:
        raise Unavailable(f"{wire.path}: no mail queue in it, expected a table {table}")
    missing = [name for name in needed if name not in found]
    if missing:
        raise Unavailable(f"{wire.path}: the table {table} lacks {', '.join(missing)}")
    return found


def _require_table(wire: Connection, table: str) -> None:
    """Make sure that a name is not one of a view or a virtual table, which run code to be read.

    Raises:
        Unavailable: it is.
    """
    found = wire.run(
        "SELECT type, rootpage FROM sqlite_master"
        " WHERE name = ? COLLATE NOCASE AND type IN ('table', 'view')",
        (table,),
    )
    for kind, page in found:
        if kind != "table" or not page:  # a virtual table has no page
            what = "a view" if kind == "view" else "a virtual table"
            raise Unavailable(f"{wire.path}: {table} is {what}, expected an ordinary table")


def _key(wire: Connection, types: Mapping[str, str]) -> str:
    try:
        wire.run("SELECT rowid FROM mail_queue LIMIT 1")
    except Unavailable as error:
        if "no such column" not in str(error):
            raise
        if "id" not in types:  # WITHOUT ROWID, and its primary key is anybody's guess
            raise Unavailable(f"{wire.path}: mail_queue has neither a rowid nor an id") from error
        return "id"
    return "rowid"


_NO_WORDS = re.compile(
    r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|`(?:[^`]|``)*`|\[[^]]*\]|--[^\n]*|/\*.*?(?:\*/|\Z)""",
    re.DOTALL,
)
"""What is quoted or a comment in a statement."""


def _is_numbered(wire: Connection) -> bool:
    """Whether the table was made with AUTOINCREMENT, by the statement that made it: bare, the word
    can be nothing else, and the key that it is said of is the rowid."""
    found = wire.run("SELECT sql FROM sqlite_master WHERE type = 'table' AND name = 'mail_queue'")
    said = " ".join(str(sql) for (sql,) in found)
    return "AUTOINCREMENT" in re.findall(r"\w+", _NO_WORDS.sub(" ", said).upper())


def _is_text(wire: Connection, name: str, declared: str) -> bool:
    """By how most of what stands in the column is written, else by what it was declared as."""
    # Unless it was declared as a number, what stands there by its default says nothing about how
    # the others were written.
    written = () if "INT" in declared.upper() else (f"{name} NOT IN (0, '0', '')",)
    for telling in (*written, f"{name} IS NOT NULL"):
        found = wire.run(
            f"SELECT total(typeof({name}) = 'text'), count(*)"
            f" FROM (SELECT {name} FROM mail_queue WHERE {telling} LIMIT {ASKED})"
        )
        texts, rows = (cell if isinstance(cell, int | float) else 0 for cell in found[0])
        if texts * 2 != rows:
            return texts * 2 > rows
        if rows:
            break  # as many of either
    return any(word in declared.upper() for word in ("TEXT", "CHAR", "DATE", "TIMESTAMP"))


def _registrations(
    wire: Connection, table: str, forms: Mapping[str, TimeFormat]
) -> tuple[str, str, str]:
    """The conditions of an orphan and of a job of another registration, and what tells one; "" each
    where there is no table."""
    if not table:
        return "", "", ""
    _require_table(wire, table)
    types = {str(row[1]): str(row[2]) for row in wire.run(f"PRAGMA table_info({quoted(table)})")}
    if "number" not in types:
        return "", "", ""
    there = f"SELECT 1 FROM {quoted(table)} r WHERE r.number = mail_queue.registration_number"
    gone = f"NOT EXISTS ({there})"
    if "created_at" not in types:
        return gone, "", "rowid"
    both = "created_at" in forms
    return gone, f"EXISTS ({there} AND {_YOUNGER})" if both else "", "created_at"


def count_registrations(book: Database) -> Cell:
    """How many registrations there are; None where there is no table of them."""
    wire = book.wire
    if not book.shape.identity:
        return None
    return wire.run(f"SELECT count(*) FROM {quoted(book.place.registrations)}")[0][0]


def registration_columns(book: Database) -> tuple[str, ...]:
    """The columns of the registrations; none where there is no table of them."""
    if not book.shape.identity:
        return ()
    table = quoted(book.place.registrations)
    return tuple(str(row[1]) for row in book.wire.run(f"PRAGMA table_info({table})"))


def registration(book: Database, number: int) -> dict[str, Cell]:
    """A registration by its columns; empty where there is none of this number."""
    names = registration_columns(book)
    if not names:
        return {}
    found = book.wire.run(
        f"SELECT {', '.join(map(quoted, names))} FROM {quoted(book.place.registrations)}"
        " WHERE number = ?",
        (number,),
    )
    return dict(zip(names, found[0], strict=True)) if found else {}
