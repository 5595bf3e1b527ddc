"""Check that a SQLite database is a mail queue and read its table shape; create a new database."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import tzinfo

from engine.formats.zgb.connection import OwnerConnection, ValueTooLarge, owner_of, quote_name
from engine.formats.zgb.place import (
    FIRST_CREATION_SECONDS,
    LAST_CREATION_SECONDS,
    Cell,
    TimeFormat,
    ZgbDatabase,
    load_zone,
)
from engine.store import Unavailable
from engine.system import files, users
from engine.values import NamedTuple

REQUIRED_COLUMNS = (
    "registration_number",
    "mail_type",
    "status",
    "attempts",
    "next_attempt_at",
    "locked_until",
    "last_error",
)
"""The columns that a mail queue must have."""

REUSE_MARGIN_SECONDS = 26 * 3600
"""Seconds by which a registration must be newer than a job for the number to count as reused: more
than any two time zones differ, in which the two may have been written."""

_TIMESTAMP_GLOB = "[0-9]" * 4 + "-[01][0-9]-[0-3][0-9] [0-2][0-9]:[0-5][0-9]:[0-5][0-9]"

_IS_REUSED = f"""coalesce(CASE
  WHEN typeof(r.created_at) = 'integer' AND typeof(mail_queue.created_at) = 'integer'
    AND min(r.created_at, mail_queue.created_at) >= {FIRST_CREATION_SECONDS}
    AND max(r.created_at, mail_queue.created_at) <= {LAST_CREATION_SECONDS}
  THEN r.created_at - mail_queue.created_at > {REUSE_MARGIN_SECONDS}
  WHEN typeof(r.created_at) = 'text' AND typeof(mail_queue.created_at) = 'text'
    AND r.created_at GLOB '{_TIMESTAMP_GLOB}' AND mail_queue.created_at GLOB '{_TIMESTAMP_GLOB}'
  THEN strftime('%s', r.created_at) - strftime('%s', mail_queue.created_at) > {REUSE_MARGIN_SECONDS}
END, 0)"""
"""SQL condition: a registration `r` was created long after a job. Two programs wrote these times:
with different forms (milliseconds, another separator, a zone or a fraction) they cannot be
compared."""

TIME_COLUMNS = ("next_attempt_at", "locked_until", "created_at", "updated_at")
"""The columns that hold times, if the table has them."""

FORM_SAMPLE_ROWS = 10_000
"""Rows that are read to find out the form of a time column: a single row may be an exception, and
reading all would slow down each opening of a large queue."""

SCHEMA = (
    "CREATE TABLE config (key TEXT PRIMARY KEY, value TEXT)",
    "CREATE TABLE registrations (number INTEGER PRIMARY KEY, created_at INTEGER NOT NULL"
    " DEFAULT (CAST(strftime('%s','now') AS INTEGER)))",
    # No foreign key: a job may outlive its registration, and is then an orphan.
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
"""The tables of a new database; times are whole epoch seconds UTC."""


def create(path: str) -> None:
    """Create a new, empty mail queue, or fill an empty file that a killed process left. It sends
    nothing until `mailQueueEnabled` is set. Raises FileExistsError: something of that name exists;
    OSError: it cannot be created."""
    with users.files_as(owner_of(path)):
        _create(path)
    db = OwnerConnection(path, read_only=False, patience=ZgbDatabase(path).patience, durable=True)
    try:
        with db.writing():
            if not _is_empty(db):
                raise FileExistsError(f"{path}: another process has just created it")
            for statement in SCHEMA:
                db.run(statement)
    finally:
        db.close()


def _create(path: str) -> None:
    name = os.path.basename(path)
    folder = files.open_folder(os.path.dirname(path) or ".")
    try:
        os.close(files.create_file(name, folder, None))
    except FileExistsError:
        file_stat = os.stat(name, dir_fd=folder, follow_symlinks=False)
        folder_stat = os.fstat(folder)
        why = files.file_problem(file_stat, folder_stat) or files.trust_problem(
            file_stat, folder_stat
        )
        if why or not _is_empty_database(path):
            raise
    finally:
        os.close(folder)


def _is_empty_database(path: str) -> bool:
    """True if a file is an empty database: SQLite treats a file of 0 bytes as one."""
    try:
        db = OwnerConnection(
            path, read_only=False, patience=ZgbDatabase(path).patience, durable=True
        )
    except Unavailable:
        return False
    try:
        return _is_empty(db)
    except Unavailable:
        return False
    finally:
        db.close()


def _is_empty(db: OwnerConnection) -> bool:
    return not db.run("SELECT 1 FROM sqlite_master LIMIT 1")


OWN_COLUMNS = frozenset({"id", *REQUIRED_COLUMNS, *TIME_COLUMNS})
"""The columns that a job consists of. All others are of other programs: they are kept with a job
that moves to the sidecar database and back, and are not read for anything else."""

ERROR_READ_CHARS = 10_000
"""Characters of an error that are read; the rest stays in its row."""


class TableShape(NamedTuple):
    """The columns and conventions of an opened database."""

    names: tuple[str, ...]
    """The columns of a job without the key."""
    key: str
    """The column that addresses a row: the rowid, or `id` if the table has none."""
    forms: Mapping[str, TimeFormat]
    """How each time column is written."""
    zone: tzinfo
    """Time zone of times in text form."""
    period_zone: tzinfo
    orphans: str
    """SQL condition on "mail_queue" that holds for a job whose registration is gone; "" if that is
    unknown."""
    reused: str
    """SQL condition for a job whose number was probably reused for a newer registration."""
    identity: str
    """The column that tells a registration from a later one with the same number."""
    never_reuses_keys: bool
    """True if the key of a deleted row is never reused."""

    @property
    def has_creation_times(self) -> bool:
        """True if the creation time of a job is known, from its row or its registration."""
        return "created_at" in self.forms or self.identity == "created_at"

    @property
    def columns(self) -> str:
        """The select list of a job: its key, then its columns in order."""
        error = f"substr(last_error, 1, {ERROR_READ_CHARS})"
        columns = (error if name == "last_error" else quote_name(name) for name in self.names)
        return ", ".join((self.key, *columns))


class Database:
    """The open queue database; reopened when the file is replaced."""

    def __init__(self, place: ZgbDatabase) -> None:
        """Raises Unavailable: it is not a mail queue, or cannot be read."""
        self.place = place
        self.refused = _write_refusal(place)
        """Why this user may not write to it; "" if writes are allowed."""
        self._connection, self.shape = self._open()

    def _open(self) -> tuple[OwnerConnection, TableShape]:
        place = self.place
        db = OwnerConnection(
            place.path,
            read_only=bool(self.refused),
            patience=place.patience,
            durable=place.durable,
            rolls_back=place.rolls_back,
        )
        try:
            return db, _read_shape(db, place)
        except BaseException:
            db.close()
            raise

    @property
    def connection(self) -> OwnerConnection:
        """The connection to the file that the path names now. Raises Unavailable: there is no file,
        or it is not a mail queue."""
        if not self._connection.is_current:
            old = self._connection
            self._connection, self.shape = self._open()
            old.close()
        return self._connection

    @contextmanager
    def writing(self) -> Iterator[OwnerConnection]:
        """A write transaction on the file that the path names."""
        db = self.connection
        with db.writing():
            if not db.is_current:
                # It was replaced while we waited for the lock: our changes would be lost.
                raise Unavailable(f"{db.path}: replaced by another file just now")
            yield db

    def close(self) -> None:
        """Close the file."""
        self._connection.close()


def _write_refusal(place: ZgbDatabase) -> str:
    if place.read_only:
        return f"{place.path} was opened read-only"
    if not os.path.exists(place.path):
        return ""  # opening it reports the error
    # SQLite creates its journal in that folder, so the folder must be writable, too.
    folder = os.path.dirname(os.path.realpath(place.path))
    with users.files_as(owner_of(place.path)):
        for path in (place.path, folder):
            if not os.access(path, os.W_OK, effective_ids=True):
                return f"Permission denied: cannot write to {path}"
    return ""


def _read_shape(db: OwnerConnection, place: ZgbDatabase) -> TableShape:
    try:
        zone, period_zone = load_zone(place.zone), load_zone(place.period_zone)
    except ValueError as error:
        raise Unavailable(f"{place.path}: {error}") from error
    types = _read_columns(db, "mail_queue", REQUIRED_COLUMNS)
    _read_columns(db, "config", ("key", "value"))
    forms = {
        name: TimeFormat(_is_text(db, name, types[name]), zone)
        for name in TIME_COLUMNS
        if name in types
    }
    key = _find_key(db, types)
    names = tuple(name for name in types if name != key and name in OWN_COLUMNS)
    orphans, reused, identity = _registrations(db, place.registrations, forms)
    return TableShape(
        names,
        key,
        forms,
        zone,
        period_zone,
        orphans=orphans,
        reused=reused,
        identity=identity,
        never_reuses_keys=_is_numbered(db),
    )


def _read_columns(db: OwnerConnection, table: str, needed: tuple[str, ...]) -> dict[str, str]:
    _require_table(db, table)
    types_by_name = {str(row[1]): str(row[2]) for row in db.run(f"PRAGMA table_info({table})")}
    if not types_by_name:
        raise Unavailable(f"{db.path}: no mail queue, expected a table {table}")
    missing = [name for name in needed if name not in types_by_name]
    if missing:
        raise Unavailable(f"{db.path}: the table {table} lacks {', '.join(missing)}")
    return types_by_name


def _require_table(db: OwnerConnection, table: str) -> None:
    """Check that a name is not that of a view or a virtual table, which run code when read. Raises
    Unavailable: it is one."""
    tables = db.run(
        "SELECT type, rootpage FROM sqlite_master"
        " WHERE name = ? COLLATE NOCASE AND type IN ('table', 'view')",
        (table,),
    )
    for kind, page in tables:
        if kind != "table" or not page:  # a virtual table has no root page
            what = "a view" if kind == "view" else "a virtual table"
            raise Unavailable(f"{db.path}: {table} is {what}, expected an ordinary table")


def _find_key(db: OwnerConnection, types: Mapping[str, str]) -> str:
    try:
        db.run("SELECT rowid FROM mail_queue LIMIT 1")
    except Unavailable as error:
        if "no such column" not in str(error):
            raise
        if "id" not in types:  # WITHOUT ROWID, and the primary key is unknown
            raise Unavailable(f"{db.path}: mail_queue has neither a rowid nor an id") from error
        return "id"
    return "rowid"


_QUOTED_OR_COMMENT = re.compile(
    r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|`(?:[^`]|``)*`|\[[^]]*\]|--[^\n]*|/\*.*?(?:\*/|\Z)""",
    re.DOTALL,
)
"""Quoted text and comments in an SQL statement."""


def _is_numbered(db: OwnerConnection) -> bool:
    """True if the table was created with AUTOINCREMENT: outside quotes and comments the word has no
    other meaning, and SQLite allows it only for the rowid."""
    tables = db.run("SELECT sql FROM sqlite_master WHERE type = 'table' AND name = 'mail_queue'")
    sql_text = " ".join(str(sql) for (sql,) in tables)
    return "AUTOINCREMENT" in re.findall(r"\w+", _QUOTED_OR_COMMENT.sub(" ", sql_text).upper())


def _is_text(db: OwnerConnection, name: str, declared: str) -> bool:
    """True if a time column holds text: by most of its values, else by its declared type."""
    # Unless the column is declared as a number, default values do not show the form of the others.
    written = () if "INT" in declared.upper() else (f"{name} NOT IN (0, '0', '')",)
    for telling in (*written, f"{name} IS NOT NULL"):
        counts = db.run(
            f"SELECT total(typeof({name}) = 'text'), count(*)"
            f" FROM (SELECT {name} FROM mail_queue WHERE {telling} LIMIT {FORM_SAMPLE_ROWS})"
        )
        texts, rows = (cell if isinstance(cell, int | float) else 0 for cell in counts[0])
        if texts * 2 != rows:
            return texts * 2 > rows
        if rows:
            break  # as many of either
    return any(word in declared.upper() for word in ("TEXT", "CHAR", "DATE", "TIMESTAMP"))


def _registrations(
    db: OwnerConnection, table: str, forms: Mapping[str, TimeFormat]
) -> tuple[str, str, str]:
    """Return the SQL conditions for an orphan and for a reused number, and the identifying column;
    each "" if there is no such table."""
    if not table:
        return "", "", ""
    _require_table(db, table)
    types = {str(row[1]): str(row[2]) for row in db.run(f"PRAGMA table_info({quote_name(table)})")}
    if "number" not in types:
        return "", "", ""
    registration_query = (
        f"SELECT 1 FROM {quote_name(table)} r WHERE r.number = mail_queue.registration_number"
    )
    no_registration = f"NOT EXISTS ({registration_query})"
    if "created_at" not in types:
        return no_registration, "", "rowid"
    both = "created_at" in forms
    return (
        no_registration,
        f"EXISTS ({registration_query} AND {_IS_REUSED})" if both else "",
        "created_at",
    )


def count_registrations(database: Database) -> Cell:
    """Count registrations; None if there is no table of them."""
    db = database.connection
    if not database.shape.identity:
        return None
    return db.run(f"SELECT count(*) FROM {quote_name(database.place.registrations)}")[0][0]


def registration_columns(database: Database) -> tuple[str, ...]:
    """Return the columns of the registrations; none if there is no table of them."""
    if not database.shape.identity:
        return ()
    table = quote_name(database.place.registrations)
    return tuple(str(row[1]) for row in database.connection.run(f"PRAGMA table_info({table})"))


def read_registration(database: Database, number: int) -> dict[str, Cell]:
    """Return a registration by column name, without values that are too large; empty if none with
    this number."""
    names, table = registration_columns(database), database.place.registrations
    return select_values(database.connection, table, names, "number", number) if names else {}


def select_values(
    db: OwnerConnection, table: str, names: tuple[str, ...], key: str, value: int
) -> dict[str, Cell]:
    """Return these columns of a row, without values that are too large; empty if there is none."""
    where = f"FROM {quote_name(table)} WHERE {key} = ?"
    try:
        cells = db.run(f"SELECT {', '.join(map(quote_name, names))} {where}", (value,))
        return dict(zip(names, cells[0], strict=True)) if cells else {}
    except ValueTooLarge:
        if len(names) == 1:
            return {}
    one_by_one = (select_values(db, table, (name,), key, value) for name in names)
    return {name: cell for cells in one_by_one for name, cell in cells.items()}


def foreign_columns(db: OwnerConnection) -> tuple[str, ...]:
    """Return the columns of other programs that "mail_queue" has now: one may be added at any
    time."""
    names = (str(row[1]) for row in db.run("PRAGMA table_info(mail_queue)"))
    return tuple(name for name in names if name not in OWN_COLUMNS)


def select_jobs(
    db: OwnerConnection,
    shape: TableShape,
    clauses: str,
    values: tuple[Cell, ...] = (),
    run: Callable[[str, Sequence[Cell]], list[tuple[Cell, ...]]] | None = None,
) -> list[tuple[Cell, ...]]:
    """Return rows of "mail_queue" as selected by `TableShape.columns`; `clauses` follow the name
    of the table. A row with a value that is too large has only its key: it stops no other."""
    run = run or db.run
    try:
        return run(f"SELECT {shape.columns} FROM mail_queue {clauses}", values)
    except ValueTooLarge:
        keys = [key for (key,) in db.run(f"SELECT {shape.key} FROM mail_queue {clauses}", values)]
    rows: list[tuple[Cell, ...]] = []
    for key in keys:
        try:
            rows += run(f"SELECT {shape.columns} FROM mail_queue WHERE {shape.key} = ?", (key,))
        except ValueTooLarge:
            rows.append((key,))
    return rows
