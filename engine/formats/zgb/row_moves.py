"""Make one move of a job within the open transactions of its batch."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from engine.formats.zgb import claims
from engine.formats.zgb.connection import OwnerConnection, placeholder, quote_name
from engine.formats.zgb.place import Cell
from engine.formats.zgb.row import (
    InvalidRow,
    JobRow,
    changed_row,
    complete_image,
    new_values,
    parse_id,
    parse_image,
    parse_row,
    restored_row,
    state_of,
)
from engine.formats.zgb.schema import Database, foreign_columns, select_jobs, select_values
from engine.formats.zgb.sidecar_database import SidecarDatabase, SidecarRow
from engine.model import Move, State, Task
from engine.store import Gone, Unsupported
from engine.values import NamedTuple

SIDECAR_STATES = (State.HELD, State.TRASH)
"""The states that are stored in the sidecar database."""


class TouchedDatabases(Enum):
    """Which databases a move changes."""

    QUEUE = "theirs"
    SIDECAR = "ours"
    BOTH = "both"


def touched_databases(move: Move) -> TouchedDatabases:
    """Return which databases a move changes; the moves of a batch agree in that, so that one commit
    decides for all."""
    sides = {t.state in SIDECAR_STATES for t in (move.old, move.new) if t is not None}
    if sides == {True}:
        return TouchedDatabases.SIDECAR
    return TouchedDatabases.BOTH if True in sides else TouchedDatabases.QUEUE


class MoveBatch(NamedTuple):
    """Moves that are committed together; either all or none take effect."""

    database: Database
    sidecar: SidecarDatabase
    queue_db: OwnerConnection
    sidecar_db: OwnerConnection | None
    """None if the moves change only "mail_queue"."""
    token: str
    """The token of moves between the two databases."""
    current_token: str
    """The token that `config` has when the batch begins."""
    now: float

    def apply(self, move: Move) -> str:
        """Make one move; return the new revision. Raises Gone, Unsupported: nothing was changed."""
        old, new, image = move[:3]
        if old is None:
            assert new is not None
            return self._add_job(new)
        if old.state in SIDECAR_STATES:
            return self._move_sidecar_row(old, new, image)
        return self._move_queue_row(old, new, image)

    def _add_job(self, new: Task) -> str:
        values = new_values(new, self.database.shape, self.now)
        its = parse_id(new.id)
        assert its is not None  # `new_values` has refused it
        number, kind = its
        if self.sidecar.find(new.id, self.current_token) is not None or _has_rows(
            self, number, kind
        ):
            raise Gone(f"{new.id} is there already")
        if self.database.shape.identity and self._identity(number) is None:
            raise Unsupported(f"no registration {number}: the next run would delete its job")
        self._insert(values)
        return self._read_rev(number, kind)

    def _move_queue_row(self, old: Task, new: Task | None, image: bytes) -> str:
        row = read_unchanged(self.queue_db, self.database, old, self.now)
        if new is None:
            self._delete(row)
            return ""
        after = self._row_after(row, old, new, image)
        if new.state in SIDECAR_STATES:
            assert self.sidecar_db is not None
            if self.sidecar.find(old.id, self.current_token) is not None:
                raise Unsupported(
                    f"{old.id} is already held or in the trash: its number was reused; "
                    "release or expunge that job first"
                )
            foreign_cells = (
                after.foreign_cells
                if image
                else read_foreign(self.queue_db, self.database, row.key)
            )
            sidecar_row = self._sidecar_row(after, new.state, foreign_cells)
            self._delete(row)
            self.sidecar.add_arriving(self.sidecar_db, sidecar_row, self.token)
            return sidecar_row.rev
        self._update(row, after)
        return claims.fetch_row(self.queue_db, self.database, row.key).rev

    def _move_sidecar_row(self, old: Task, new: Task | None, image: bytes) -> str:
        assert self.sidecar_db is not None
        sidecar_row, shape = self._read_sidecar_row(old), self.database.shape
        if new is None:
            self.sidecar.remove(self.sidecar_db, sidecar_row.id)
            return ""
        row = parse_image(sidecar_row.image, shape)
        after = self._row_after(row, old, new, image)
        if new.state in SIDECAR_STATES:
            moved = sidecar_row._replace(
                state=new.state, image=complete_image(after, shape, after.foreign_cells)
            )
            if new.state is not old.state:
                moved = moved._replace(since=self.now)
            self.sidecar.update(self.sidecar_db, moved)
            return moved.rev
        self._refuse_reused_number(sidecar_row, row)
        own_cells = dict(zip(shape.names, after.cells, strict=True))
        foreign_names = foreign_columns(self.queue_db)
        self._insert(
            {**own_cells, **{k: v for k, v in after.foreign_cells.items() if k in foreign_names}},
            row.key,
        )
        self.sidecar.mark_leaving(self.sidecar_db, sidecar_row.id, self.token)
        return self._read_rev(row.number, row.kind)

    def _row_after(self, row: JobRow, old: Task, new: Task, image: bytes) -> JobRow:
        """Return the row after the move: from a saved image, or with the task's values."""
        shape, place = self.database.shape, self.database.place
        if not image:
            return changed_row(row, old, new, now=self.now, shape=shape, place=place)
        was = parse_image(image, shape)
        if was.id != old.id:
            raise Unsupported(f"the image is not of {old.id}")
        return restored_row(was, new.state, self.now, shape, place)

    def _read_rev(self, number: int, kind: str) -> str:
        (row,) = read_rows(self.queue_db, self.database, number, kind)
        assert isinstance(row, JobRow)
        return row.rev

    def _read_sidecar_row(self, task: Task) -> SidecarRow:
        sidecar_row = self.sidecar.find(task.id, self.current_token)
        if sidecar_row is None or (sidecar_row.state, sidecar_row.rev) != (task.state, task.rev):
            raise Gone(task.id)
        return sidecar_row

    def _sidecar_row(
        self, after: JobRow, state: State, foreign_cells: Mapping[str, Cell]
    ) -> SidecarRow:
        image = complete_image(after, self.database.shape, foreign_cells)
        return SidecarRow(
            after.id, state, float(self.now), image, self._identity(after.number) or ""
        )

    def _identity(self, number: int) -> str | None:
        return registration_identity(self.queue_db, self.database, number)

    def _refuse_reused_number(self, sidecar_row: SidecarRow, row: JobRow) -> None:
        """Refuse to give a job back if its number has a new registration."""
        if _has_rows(self, row.number, row.kind):
            raise Unsupported(f"{sidecar_row.id} is in mail_queue already: the number was reused")
        if not self.database.shape.identity:
            return
        now = self._identity(row.number)
        if now is None:
            raise Unsupported(
                f"registration {row.number} is gone: the next run would delete its job"
            )
        if sidecar_row.registration and now != sidecar_row.registration:
            raise Unsupported(f"the number {row.number} was reused for a newer registration")

    def _insert(self, values: dict[str, Cell], key: int | None = None) -> None:
        """Insert a row, with its old key if that is free."""
        if key is not None:
            name = self.database.shape.key
            if self.queue_db.run(f"SELECT 1 FROM mail_queue WHERE {name} = ?", (key,)):
                values.pop("id", None)
            else:
                values = {name: key, **{n: v for n, v in values.items() if n != "id"}}
        marks, bound = zip(*map(placeholder, values.values()), strict=True)
        names = ", ".join(n if n == "rowid" else quote_name(n) for n in values)
        self.queue_db.change(f"INSERT INTO mail_queue ({names}) VALUES ({', '.join(marks)})", bound)

    def _update(self, row: JobRow, after: JobRow) -> None:
        names = self.database.shape.names
        values = {
            name: new
            for name, was, new in zip(names, row.cells, after.cells, strict=True)
            if (type(was), was) != (type(new), new)
        }
        if not values:
            return
        sets, bound = [], []
        for name, value in values.items():
            mark, cell = placeholder(value)
            sets.append(f"{quote_name(name)} = {mark}")
            bound.append(cell)
        self.queue_db.change(
            f"UPDATE mail_queue SET {', '.join(sets)} WHERE {self.database.shape.key} = ?",
            (*bound, row.key),
        )

    def _delete(self, row: JobRow) -> None:
        self.queue_db.change(
            f"DELETE FROM mail_queue WHERE {self.database.shape.key} = ?", (row.key,)
        )


def registration_identity(db: OwnerConnection, database: Database, number: int) -> str | None:
    """Return what tells a registration from a later one with its number; None if missing."""
    shape = database.shape
    if not shape.identity:
        return None
    rows = db.run(
        f"SELECT {shape.identity} FROM {quote_name(database.place.registrations)} WHERE number = ?",
        (number,),
    )
    return repr(rows[0][0]) if rows else None


def read_rows(
    db: OwnerConnection, database: Database, number: int, kind: str
) -> list[JobRow | InvalidRow]:
    """Return the rows of a number and a kind; at most one if the unique index exists."""
    return [
        parse_or_invalid(values, database) for values in read_values(db, database, number, kind)
    ]


def read_values(
    db: OwnerConnection, database: Database, number: int, kind: str
) -> list[tuple[Cell, ...]]:
    """Return the same rows as selected."""
    return select_jobs(
        db,
        database.shape,
        # A column without a type stores a number that was written as text as text.
        "WHERE registration_number IN (?, ?) AND mail_type = ?",
        (number, str(number), kind),
    )


def read_foreign(db: OwnerConnection, database: Database, key: int) -> dict[str, Cell]:
    """Return the columns of other programs in a row. Raises Unsupported: a value is too large."""
    names, shape = foreign_columns(db), database.shape
    foreign_cells = select_values(db, "mail_queue", names, shape.key, key) if names else {}
    if missing := [name for name in names if name not in foreign_cells]:
        raise Unsupported(f"row {key}: its {missing[0]} is too large to be kept")
    return foreign_cells


def parse_or_invalid(values: tuple[Cell, ...], database: Database) -> JobRow | InvalidRow:
    """Parse a row; return the InvalidRow if it is not a job."""
    try:
        return parse_row(values, database.shape)
    except InvalidRow as error:
        return error


def read_unchanged(db: OwnerConnection, database: Database, task: Task, now: float) -> JobRow:
    """Return the row in "mail_queue" that a task was read from. Raises Gone: the row has changed or
    is gone."""
    its = parse_id(task.id)
    for row in read_rows(db, database, *its) if its else ():
        if isinstance(row, JobRow) and row.rev == task.rev:
            if state_of(row, now, database.place) is not task.state:
                break  # time has passed, so it is in another state; or it never was in this one
            return row
    raise Gone(task.id)


def _has_rows(lot: MoveBatch, number: int, kind: str) -> bool:
    return bool(read_rows(lot.queue_db, lot.database, number, kind))
