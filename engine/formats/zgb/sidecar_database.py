"""The sidecar database next to ZGB's: held jobs and the trash.

A job moves between two files, and SQLite does not commit to two files atomically in every journal
mode. So ZGB's database decides. A move first marks the job here as arriving or leaving, with a
random token. Then a transaction in ZGB's database deletes or inserts the row, and stores the token
in `config`. A reader, also after a crash, compares the tokens: a job is here if it is settled or
arrived under the token in `config`, and has not left under it. All of this runs under the write
lock of ZGB's database, so at most one move is undecided.
"""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator, Sequence

from engine.formats.zgb.connection import OwnerConnection, owner_of
from engine.formats.zgb.place import Cell, ZgbDatabase
from engine.formats.zgb.row import hash_values
from engine.model import State
from engine.store import Unavailable
from engine.system import files, users
from engine.system.cleanup import closing_fd
from engine.text.error_text import error_text
from engine.values import NamedTuple

SCHEMA_VERSION = 1

SCHEMA = (
    """CREATE TABLE IF NOT EXISTS aside (
  id           TEXT PRIMARY KEY,
  state        TEXT NOT NULL,
  since        REAL NOT NULL,
  image        BLOB NOT NULL,
  registration TEXT NOT NULL,
  arriving     TEXT NOT NULL DEFAULT '',
  leaving      TEXT NOT NULL DEFAULT '')""",
    f"PRAGMA user_version = {SCHEMA_VERSION}",
)

OWNER_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS made_for (database TEXT NOT NULL, file TEXT NOT NULL)",
    """CREATE TABLE IF NOT EXISTS other (
  database     TEXT NOT NULL,
  id           TEXT NOT NULL,
  state        TEXT NOT NULL,
  since        REAL NOT NULL,
  image        BLOB NOT NULL,
  registration TEXT NOT NULL,
  arriving     TEXT NOT NULL,
  leaving      TEXT NOT NULL)""",
)
"""The database whose jobs are in `aside`, and the jobs of databases that had its path before.
Earlier versions of this program ignore both, so the version of the schema stays."""

JOBS_PER_PAGE = 500
"""Jobs that are read at a time."""

_IS_HERE = "(arriving = '' OR arriving = :token) AND (leaving = '' OR leaving <> :token)"


def next_token(token: str) -> str:
    """A new token after this one of `config`: the random name of the database, and a random
    number. The first one names the database."""
    return f"{database_of(token) or secrets.token_hex(8)}-{secrets.token_hex(8)}"


def database_of(token: str) -> str:
    """The name of the database in a token; "" if an earlier version wrote it."""
    database, dash, _ = token.partition("-")
    return database if dash else ""


class SidecarRow(NamedTuple):
    """A job in the sidecar database."""

    id: str
    state: State
    since: float
    """When it came into this state, epoch seconds UTC."""
    image: bytes
    """Its former row in "mail_queue", or is to be there."""
    registration: str
    """What tells its registration from a later one with the same number; "" if unknown."""

    @property
    def rev(self) -> str:
        """A string that changes with the job."""
        return hash_values(self)


class SidecarDatabase:
    """The sidecar database: opened if it exists, created by the first job that is put into it."""

    def __init__(self, place: ZgbDatabase, *, read_only: bool) -> None:
        self._place, self._read_only = place, read_only
        self._connection: OwnerConnection | None = None

    def close(self) -> None:
        """Close the file."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    @property
    def version(self) -> tuple[int, Cell] | None:
        """Changes when another connection changes the database; None if it does not exist."""
        db = self._open_existing()
        return None if db is None else db.version

    def count_other(self, token: str) -> int:
        """Count the jobs of other databases that had this path before: they are used for
        nothing."""
        db = self._open_existing()
        if db is None:
            return 0
        tables = ["aside"] if self._is_of_another(db, token) else []
        tables += ["other"] if _has_table(db, "other") else []
        count = 0
        for table in tables:
            ((number,),) = db.run(f"SELECT count(*) FROM {table}")
            assert isinstance(number, int)
            count += number
        return count

    def _open_own(self, token: str) -> OwnerConnection | None:
        """Return the connection; None if there is none, or its jobs are of another database."""
        db = self._open_existing()
        return None if db is None or self._is_of_another(db, token) else db

    def _is_of_another(self, db: OwnerConnection, token: str) -> bool:
        """True if the jobs are of a database that was replaced.

        The token in `config` names its database. Without one it is a new database, or another
        program has restored its settings from before: then the file decides. Jobs that an earlier
        version put here are of this database."""
        made_for, file = self._made_for(db)
        if not made_for:
            return False
        if token:
            return database_of(token) not in ("", made_for)
        return file != self._file_identity()

    def _made_for(self, db: OwnerConnection) -> tuple[str, str]:
        """Name and file of the database whose jobs are here; "" if an earlier version wrote
        them."""
        rows = db.run("SELECT database, file FROM made_for") if _has_table(db, "made_for") else []
        return (str(rows[0][0]), str(rows[0][1])) if rows else ("", "")

    def _file_identity(self) -> str:
        """What tells the file of the queue database from a later one with its path: inode and time
        of birth. A number of an inode is used again at once."""
        path = self._place.path
        try:
            return f"{os.stat(path).st_ino} {files.birth_time(path)}"
        except OSError as error:
            raise Unavailable(f"{path}: {error_text(error)}") from error

    def find(self, ident: str, token: str) -> SidecarRow | None:
        """Return the job of this id, if it is here."""
        db = self._open_own(token)
        rows = [] if db is None else self._select(db, "id = ?", (ident,), token)
        return rows[0] if rows else None

    def iter_state(self, state: State, token: str) -> Iterator[SidecarRow]:
        """Yield the jobs in a state sorted by id; no transaction is open between pages."""
        last = ""
        while (db := self._open_own(token)) is not None:
            page = self._select(db, "state = ? AND id > ?", (str(state), last), token)
            yield from page
            if len(page) < JOBS_PER_PAGE:
                return
            last = page[-1].id

    def count(self, token: str) -> int:
        """Count the jobs that are here."""
        db = self._open_own(token)
        if db is None:
            return 0
        condition = _IS_HERE.replace(":token", "?")
        ((count,),) = db.run(f"SELECT count(*) FROM aside WHERE {condition}", (token, token))
        assert isinstance(count, int)
        return count

    def _select(
        self, db: OwnerConnection, where: str, values: Sequence[Cell], token: str
    ) -> list[SidecarRow]:
        rows = db.run(
            "SELECT id, state, since, image, registration FROM aside"
            f" WHERE {where} AND {_IS_HERE.replace(':token', '?')} ORDER BY id LIMIT "
            f"{JOBS_PER_PAGE}",
            (*values, token, token),
        )
        return [_parse_row(row, db.path) for row in rows]

    def read_page(self, after: int, token: str) -> list[tuple[Cell, ...]]:
        """Return a page of jobs as stored, with rowids above `after`."""
        db = self._open_own(token)
        if db is None:
            return []
        return db.run_bytes(
            "SELECT rowid, id, state, since, image, registration FROM aside"
            f" WHERE rowid > ? AND {_IS_HERE.replace(':token', '?')} ORDER BY rowid LIMIT "
            f"{JOBS_PER_PAGE}",
            (after, token, token),
        )

    # ---- changing, under the write lock of the queue database

    def begin(self, token: str, next_token: str) -> OwnerConnection:
        """Create the database if needed, and begin a transaction in which no move is undecided, and
        all jobs are of this database."""
        db = self._open_existing() or self._create_database()
        db.begin()
        for statement in OWNER_SCHEMA:
            db.change(statement, ())
        if self._is_of_another(db, token):
            columns = "id, state, since, image, registration, arriving, leaving"
            db.change(f"INSERT INTO other SELECT ?, {columns} FROM aside", self._made_for(db)[:1])
            db.change("DELETE FROM aside", ())
        self.settle(db, token)
        db.change("DELETE FROM made_for", ())
        made_for = database_of(next_token), self._file_identity()
        db.change("INSERT INTO made_for VALUES (?, ?)", made_for)
        return db

    def settle(self, db: OwnerConnection, token: str) -> None:
        """Complete the moves of this token, and undo those of any other."""
        db.change("DELETE FROM aside WHERE leaving = ? AND leaving <> ''", (token,))
        db.change("DELETE FROM aside WHERE arriving NOT IN ('', ?)", (token,))
        db.change("UPDATE aside SET arriving = '', leaving = '' WHERE arriving || leaving <> ''")

    def settle_committed(self, token: str) -> None:
        """Complete the moves of this token after its commit in ZGB's database. Other tokens are not
        touched: another process may be moving jobs. Raises Unavailable: not now; until the next
        move, the token in `config` decides."""
        db = self._open_existing()
        if db is not None:
            with db.writing():
                db.change("DELETE FROM aside WHERE leaving = ?", (token,))
                db.change("UPDATE aside SET arriving = '' WHERE arriving = ?", (token,))

    def add_arriving(self, db: OwnerConnection, sidecar_row: SidecarRow, token: str) -> None:
        """Add a job; with an empty token it is settled immediately."""
        db.change(
            "INSERT INTO aside (id, state, since, image, registration, arriving)"
            " VALUES (?, ?, ?, ?, ?, ?)",
            (
                sidecar_row.id,
                str(sidecar_row.state),
                sidecar_row.since,
                sidecar_row.image,
                sidecar_row.registration,
                token,
            ),
        )

    def update(self, db: OwnerConnection, sidecar_row: SidecarRow) -> None:
        """Update the state and image of a job."""
        db.change(
            "UPDATE aside SET state = ?, since = ?, image = ? WHERE id = ?",
            (str(sidecar_row.state), sidecar_row.since, sidecar_row.image, sidecar_row.id),
        )

    def mark_leaving(self, db: OwnerConnection, ident: str, token: str) -> None:
        """Mark a job as leaving for "mail_queue"."""
        db.change("UPDATE aside SET leaving = ? WHERE id = ?", (token, ident))

    def remove(self, db: OwnerConnection, ident: str) -> None:
        """Delete a job."""
        db.change("DELETE FROM aside WHERE id = ?", (ident,))

    def _open_existing(self) -> OwnerConnection | None:
        """Return the connection; None if there is no file, or it is empty."""
        if self._connection is not None:
            path = self._place.sidecar_path  # a link to the queue database may have a new target
            if self._connection.path == path and _file_exists(path) and self._connection.is_current:
                return self._connection
            self.close()
        if not _file_exists(self._place.sidecar_path):
            return None
        db = self._connect()
        try:
            ((version,),) = db.run("PRAGMA user_version")
            if isinstance(version, int) and version > SCHEMA_VERSION:
                raise Unavailable(f"{db.path}: made by a newer spooldeck than this one")
        except BaseException:
            db.close()
            raise
        if not version:
            db.close()
            return None
        self._connection = db
        return db

    def _connect(self) -> OwnerConnection:
        place = self._place
        return OwnerConnection(
            place.sidecar_path,
            read_only=self._read_only,
            patience=place.patience,
            durable=place.durable,
            rolls_back=place.rolls_back,
        )

    def _create_database(self) -> OwnerConnection:
        path = self._place.sidecar_path
        try:
            with users.files_as(owner_of(self._place.path)):
                self._create_file(path)
        except FileExistsError:
            pass  # an empty file: another process is creating it, or died while doing so
        except OSError as error:
            raise Unavailable(f"{path}: {error_text(error)}") from error
        db = self._connect()
        try:
            with db.writing():
                for statement in SCHEMA:
                    db.run(statement)
        except BaseException:
            db.close()
            raise
        self._connection = db
        return db

    def _create_file(self, path: str) -> None:
        """Create an empty file with the mode of the queue database."""
        with (
            closing_fd(files.open_folder(os.path.dirname(path) or ".")) as folder,
            closing_fd(files.create_file(os.path.basename(path), folder, None)) as fd,
        ):
            files.copy_mode(fd, os.stat(self._place.path))


def _file_exists(path: str) -> bool:
    """True if the file exists. Raises Unavailable: it is not a plain file."""
    try:
        file_stat = os.lstat(path)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise Unavailable(f"{path}: {error_text(error)}") from error
    if not stat.S_ISREG(file_stat.st_mode):
        raise Unavailable(f"{path}: not a plain file")
    return True


def _parse_row(row: Sequence[Cell], path: str) -> SidecarRow:
    ident, state, since, image, registration = row
    try:
        where = State(str(state))
        assert isinstance(since, float) and isinstance(image, bytes)
    except (ValueError, AssertionError) as error:
        raise Unavailable(f"{path}: a row is damaged: {row!r:.80}") from error
    return SidecarRow(str(ident), where, since, image, str(registration))


def _has_table(db: OwnerConnection, name: str) -> bool:
    return bool(db.run("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", (name,)))
