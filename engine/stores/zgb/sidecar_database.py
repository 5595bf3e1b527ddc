"""Our own database beside theirs: what an operator holds, and what is in the trash.

A job moves between two files, and no journal mode of theirs promises that two commits are one. So
theirs decides. A move writes here first, under a token of its own, that a job is arriving or
leaving; then their transaction takes the row away or puts it there, and notes the token among their
settings. Whoever looks in between, or after a crash, goes by the token that theirs notes: a job is
here when it has arrived under that token or was settled, and has not left under it. All of it
happens under their write lock, so that there is never more than one move in doubt.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from engine.model import State
from engine.store import Unavailable
from engine.stores.zgb.connection import Connection, owner_of
from engine.stores.zgb.place import ZgbDatabase
from engine.stores.zgb.row import digest
from engine.stores.zgb.times import Cell
from engine.system import files, users

VERSION = 1

SCHEMA = (
    """CREATE TABLE IF NOT EXISTS aside (
  id           TEXT PRIMARY KEY,
  state        TEXT NOT NULL,
  since        REAL NOT NULL,
  image        BLOB NOT NULL,
  registration TEXT NOT NULL,
  arriving     TEXT NOT NULL DEFAULT '',
  leaving      TEXT NOT NULL DEFAULT '')""",
    f"PRAGMA user_version = {VERSION}",
)

PAGE = 500
"""Jobs that are read at once."""

_HERE = "(arriving = '' OR arriving = :token) AND (leaving = '' OR leaving <> :token)"


class KeptRow(NamedTuple):
    """A job in our own database."""

    id: str
    state: State
    since: float
    """Epoch seconds UTC of its coming into this state."""
    image: bytes
    """Its row as it stood in theirs, or is to stand there."""
    registration: str
    """What told its registration from a later one of the same number; "" when that was not known.
    """

    @property
    def rev(self) -> str:
        """Changes with the job."""
        return digest(self)


class SidecarDatabase:
    """Our database, opened once it is there, and made when something is first put into it."""

    def __init__(self, place: ZgbDatabase, *, read_only: bool) -> None:
        self._place, self._read_only = place, read_only
        self._wire: Connection | None = None

    def close(self) -> None:
        """Let go of the file."""
        if self._wire is not None:
            self._wire.close()
            self._wire = None

    @property
    def version(self) -> tuple[int, Cell] | None:
        """Changes whenever another connection has changed something; None while nothing is here."""
        wire = self._there()
        return None if wire is None else wire.version

    # ---- looking

    def find(self, ident: str, token: str) -> KeptRow | None:
        """The job of this id, when it is here."""
        wire = self._there()
        found = [] if wire is None else self._select(wire, "id = ?", (ident,), token)
        return found[0] if found else None

    def all(self, state: State, token: str) -> Iterator[KeptRow]:
        """Everything in a state, in the order of ids; no transaction is open in between."""
        last = ""
        while (wire := self._there()) is not None:
            page = self._select(wire, "state = ? AND id > ?", (str(state), last), token)
            yield from page
            if len(page) < PAGE:
                return
            last = page[-1].id

    def count(self, token: str) -> int:
        """How many jobs are here."""
        wire = self._there()
        if wire is None:
            return 0
        here = _HERE.replace(":token", "?")
        ((count,),) = wire.run(f"SELECT count(*) FROM aside WHERE {here}", (token, token))
        assert isinstance(count, int)
        return count

    def _select(
        self, wire: Connection, where: str, values: Sequence[Cell], token: str
    ) -> list[KeptRow]:
        rows = wire.run(
            "SELECT id, state, since, image, registration FROM aside"
            f" WHERE {where} AND {_HERE.replace(':token', '?')} ORDER BY id LIMIT {PAGE}",
            (*values, token, token),
        )
        return [_kept(row, wire.path) for row in rows]

    def rows(self, after: int, token: str) -> list[tuple[Cell, ...]]:
        """Some jobs as they are stored, each with the number of its row, which is above `after`."""
        wire = self._there()
        if wire is None:
            return []
        return wire.raw(
            "SELECT rowid, id, state, since, image, registration FROM aside"
            f" WHERE rowid > ? AND {_HERE.replace(':token', '?')} ORDER BY rowid LIMIT {PAGE}",
            (after, token, token),
        )

    # ---- changing, under the write lock of theirs

    def begin(self, token: str) -> Connection:
        """Make it if need be, and open a transaction in which nothing is in doubt any more."""
        wire = self._there() or self._make()
        wire.begin()
        self.settle(wire, token)
        return wire

    def settle(self, wire: Connection, token: str) -> None:
        """What theirs decided under this token holds; what it did not, never happened."""
        wire.change("DELETE FROM aside WHERE leaving = ? AND leaving <> ''", (token,))
        wire.change("DELETE FROM aside WHERE arriving NOT IN ('', ?)", (token,))
        wire.change("UPDATE aside SET arriving = '', leaving = '' WHERE arriving || leaving <> ''")

    def finish(self, token: str) -> None:
        """Say that what moved under this token has: theirs is committed. Only that is touched, for
        somebody else may be moving by now.

        Raises:
            Unavailable: not now; the next move says so, and until then the token in theirs does.
        """
        wire = self._there()
        if wire is not None:
            with wire.writing():
                wire.change("DELETE FROM aside WHERE leaving = ?", (token,))
                wire.change("UPDATE aside SET arriving = '' WHERE arriving = ?", (token,))

    def arrive(self, wire: Connection, kept: KeptRow, token: str) -> None:
        """A job comes; with no token it is here at once."""
        wire.change(
            "INSERT INTO aside (id, state, since, image, registration, arriving)"
            " VALUES (?, ?, ?, ?, ?, ?)",
            (kept.id, str(kept.state), kept.since, kept.image, kept.registration, token),
        )

    def change(self, wire: Connection, kept: KeptRow) -> None:
        """A job that is here stands otherwise from now on."""
        wire.change(
            "UPDATE aside SET state = ?, since = ?, image = ? WHERE id = ?",
            (str(kept.state), kept.since, kept.image, kept.id),
        )

    def leave(self, wire: Connection, ident: str, token: str) -> None:
        """A job goes back to theirs."""
        wire.change("UPDATE aside SET leaving = ? WHERE id = ?", (token, ident))

    def remove(self, wire: Connection, ident: str) -> None:
        """A job goes for good."""
        wire.change("DELETE FROM aside WHERE id = ?", (ident,))

    # ---- the file

    def _there(self) -> Connection | None:
        """The connection; None while there is no file, or nothing in it yet."""
        if self._wire is not None:
            path = self._place.aside  # a link to theirs may lead to another one by now
            if self._wire.path == path and _is_there(path) and self._wire.is_current:
                return self._wire
            self.close()
        if not _is_there(self._place.aside):
            return None
        wire = self._connect()
        try:
            ((version,),) = wire.run("PRAGMA user_version")
            if isinstance(version, int) and version > VERSION:
                raise Unavailable(f"{wire.path}: made by a newer spooldeck than this one")
        except BaseException:
            wire.close()
            raise
        if not version:
            wire.close()
            return None
        self._wire = wire
        return wire

    def _connect(self) -> Connection:
        place = self._place
        return Connection(
            place.aside,
            read_only=self._read_only,
            patience=place.patience,
            durable=place.durable,
            rolls_back=place.rolls_back,
        )

    def _make(self) -> Connection:
        path = self._place.aside
        try:
            with users.files_as(owner_of(self._place.path)):
                self._create(path)
        except FileExistsError:
            pass  # empty: somebody began to make it, and died or is at it
        except OSError as error:
            raise Unavailable(f"{path}: {error.strerror}") from error
        wire = self._connect()
        try:
            with wire.writing():
                for statement in SCHEMA:
                    wire.run(statement)
        except BaseException:
            wire.close()
            raise
        self._wire = wire
        return wire

    def _create(self, path: str) -> None:
        """Make the file, empty, with the mode of theirs."""
        folder = files.open_folder(os.path.dirname(path) or ".")
        try:
            fd = files.create(os.path.basename(path), folder, None)
            try:
                files.resemble(fd, os.stat(self._place.path))
            finally:
                os.close(fd)
        finally:
            os.close(folder)


def _is_there(path: str) -> bool:
    """Whether our file is there.

    Raises:
        Unavailable: something else is, which nobody may follow or write.
    """
    try:
        seen = os.lstat(path)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise Unavailable(f"{path}: {error.strerror}") from error
    if not stat.S_ISREG(seen.st_mode):
        raise Unavailable(f"{path}: expected a plain file of ours")
    return True


def _kept(row: Sequence[Cell], path: str) -> KeptRow:
    ident, state, since, image, registration = row
    try:
        where = State(str(state))
        assert isinstance(since, float) and isinstance(image, bytes)
    except (ValueError, AssertionError) as error:
        raise Unavailable(f"{path}: not as we wrote it: {row!r:.80}") from error
    return KeptRow(str(ident), where, since, image, str(registration))
