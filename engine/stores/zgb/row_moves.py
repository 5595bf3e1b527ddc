"""One move of one job, within the transactions that its lot has open."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from engine.model import Move, State, Task
from engine.store import Gone, Unsupported
from engine.stores.zgb import claims
from engine.stores.zgb.connection import Connection, placeholder, quoted
from engine.stores.zgb.row import (
    InvalidRow,
    JobRow,
    changes,
    from_image,
    image_of,
    new_values,
    parse,
    parsed_id,
    state_of,
    stood,
)
from engine.stores.zgb.schema import Database
from engine.stores.zgb.sidecar_database import KeptRow, SidecarDatabase
from engine.stores.zgb.times import Cell

OURS = (State.HELD, State.TRASH)
"""The states that stand in our own database."""


class TouchedDatabases(Enum):
    """Which databases a move changes."""

    THEIRS = "theirs"
    OURS = "ours"
    BOTH = "both"


def reach(move: Move) -> TouchedDatabases:
    """Which databases a move changes; lots are of one reach, so that one commit decides each."""
    ends = {t.state in OURS for t in (move.old, move.new) if t is not None}
    if ends == {True}:
        return TouchedDatabases.OURS
    return TouchedDatabases.BOTH if True in ends else TouchedDatabases.THEIRS


class MoveBatch(NamedTuple):
    """Moves that hold together, or not at all."""

    book: Database
    aside: SidecarDatabase
    theirs: Connection
    ours: Connection | None
    """None where they change only theirs."""
    token: str
    """Under which jobs move between the two."""
    known: str
    """The token that theirs notes when the lot begins."""
    now: float

    def carry_out(self, move: Move) -> str:
        """Make one move; answers with the new revision.

        Raises:
            Gone, Unsupported: nothing was changed.
        """
        old, new, image = move
        if old is None:
            assert new is not None
            return self._add(new)
        if old.state in OURS:
            return self._from_ours(old, new, image)
        return self._from_theirs(old, new, image)

    # ---- from where it stands

    def _add(self, new: Task) -> str:
        values = new_values(new, self.book.shape, self.now)
        number, kind = _named(new.id)
        if self.aside.find(new.id, self.known) is not None or _rows(self, number, kind):
            raise Gone(f"{new.id} is there already")
        if not self._is_registered(number):
            raise Unsupported(f"no registration {number}: the next run would delete its job")
        self._insert(values)
        return self._rev(number, kind)

    def _from_theirs(self, old: Task, new: Task | None, image: bytes) -> str:
        row = self._current(old)
        if new is None:
            self._delete(row)
            return ""
        after = self._after(row, old, new, image)
        if new.state in OURS:
            assert self.ours is not None
            if self.aside.find(old.id, self.known) is not None:
                raise Unsupported(
                    f"{old.id} stands in our own database already: its number was given out again; "
                    "release or expunge that one first"
                )
            kept = self._kept(after, new.state)
            self._delete(row)
            self.aside.arrive(self.ours, kept, self.token)
            return kept.rev
        self._update(row, after)
        return claims.fetch(self.theirs, self.book, row.key).rev

    def _from_ours(self, old: Task, new: Task | None, image: bytes) -> str:
        assert self.ours is not None
        kept, shape = self._kept_as(old), self.book.shape
        if new is None:
            self.aside.remove(self.ours, kept.id)
            return ""
        row = from_image(kept.image, shape)
        after = self._after(row, old, new, image)
        if new.state in OURS:
            moved = kept._replace(state=new.state, image=image_of(after, shape))
            if new.state is not old.state:
                moved = moved._replace(since=self.now)
            self.aside.change(self.ours, moved)
            return moved.rev
        self._refuse_given_out_again(kept, row)
        self._insert(dict(zip(shape.names, after.cells, strict=True)), row.key)
        self.aside.leave(self.ours, kept.id, self.token)
        return self._rev(row.number, row.kind)

    def _after(self, row: JobRow, old: Task, new: Task, image: bytes) -> JobRow:
        """The row as it is to stand: as it once was, or as the task says."""
        shape, place = self.book.shape, self.book.place
        if not image:
            return changes(row, old, new, self.now, shape, place)
        was = from_image(image, shape)
        if was.id != old.id:
            raise Unsupported(f"these bytes are not of {old.id}")
        return stood(was, new.state, self.now, shape, place)

    def _rev(self, number: int, kind: str) -> str:
        (row,) = rows_of(self.theirs, self.book, number, kind)
        assert isinstance(row, JobRow)
        return row.rev

    # ---- as it was seen

    def _current(self, task: Task) -> JobRow:
        """The row that was seen; raises Gone."""
        return current(self.theirs, self.book, task, self.now)

    def _kept_as(self, task: Task) -> KeptRow:
        kept = self.aside.find(task.id, self.known)
        if kept is None or (kept.state, kept.rev) != (task.state, task.rev):
            raise Gone(task.id)
        return kept

    def _kept(self, after: JobRow, state: State) -> KeptRow:
        image = image_of(after, self.book.shape)
        return KeptRow(after.id, state, float(self.now), image, self._identity(after.number) or "")

    # ---- registrations

    def _identity(self, number: int) -> str | None:
        return identity(self.theirs, self.book, number)

    def _is_registered(self, number: int) -> bool:
        return not self.book.shape.identity or self._identity(number) is not None

    def _refuse_given_out_again(self, kept: KeptRow, row: JobRow) -> None:
        """A job must not come back to somebody else's registration."""
        if _rows(self, row.number, row.kind):
            raise Unsupported(
                f"{kept.id} stands among theirs already: the number was given out again"
            )
        if not self.book.shape.identity:
            return
        now = self._identity(row.number)
        if now is None:
            raise Unsupported(
                f"registration {row.number} is gone: the next run would delete its job"
            )
        if kept.registration and now != kept.registration:
            raise Unsupported(f"the number {row.number} was given out again since")

    # ---- rows of theirs

    def _insert(self, values: dict[str, Cell], key: int | None = None) -> None:
        """A new row, under its old key where that is free."""
        if key is not None:
            name = self.book.shape.key
            if self.theirs.run(f"SELECT 1 FROM mail_queue WHERE {name} = ?", (key,)):
                values.pop("id", None)
            else:
                values = {name: key, **{n: v for n, v in values.items() if n != "id"}}
        marks, bound = zip(*map(placeholder, values.values()), strict=True)
        names = ", ".join(n if n == "rowid" else quoted(n) for n in values)
        self.theirs.change(f"INSERT INTO mail_queue ({names}) VALUES ({', '.join(marks)})", bound)

    def _update(self, row: JobRow, after: JobRow) -> None:
        names = self.book.shape.names
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
            sets.append(f"{quoted(name)} = {mark}")
            bound.append(cell)
        self.theirs.change(
            f"UPDATE mail_queue SET {', '.join(sets)} WHERE {self.book.shape.key} = ?",
            (*bound, row.key),
        )

    def _delete(self, row: JobRow) -> None:
        self.theirs.change(f"DELETE FROM mail_queue WHERE {self.book.shape.key} = ?", (row.key,))


def identity(wire: Connection, book: Database, number: int) -> str | None:
    """What tells a registration from a later one of its number; None when there is none."""
    shape = book.shape
    if not shape.identity:
        return None
    found = wire.run(
        f"SELECT {shape.identity} FROM {quoted(book.place.registrations)} WHERE number = ?",
        (number,),
    )
    return repr(found[0][0]) if found else None


def rows_of(wire: Connection, book: Database, number: int, kind: str) -> list[JobRow | InvalidRow]:
    """The rows of a number and a kind; one at most, where the index is as documented."""
    return [parsed(values, book) for values in values_of(wire, book, number, kind)]


def values_of(wire: Connection, book: Database, number: int, kind: str) -> list[tuple[Cell, ...]]:
    """The same rows as they were selected."""
    return wire.run(
        f"SELECT {book.shape.columns} FROM mail_queue"
        # A column without a type keeps a number that was written as text apart from itself.
        " WHERE registration_number IN (?, ?) AND mail_type = ?",
        (number, str(number), kind),
    )


def parsed(values: tuple[Cell, ...], book: Database) -> JobRow | InvalidRow:
    """A row, or why it is no job."""
    try:
        return parse(values, book.shape)
    except InvalidRow as odd:
        return odd


def current(wire: Connection, book: Database, task: Task, now: float) -> JobRow:
    """The row of theirs that a task was seen as.

    Raises:
        Gone: it is not as it was seen.
    """
    its = parsed_id(task.id)
    for row in rows_of(wire, book, *its) if its else ():
        if isinstance(row, JobRow) and row.rev == task.rev:
            if state_of(row, now, book.place) is not task.state:
                break  # only time has passed, or it never stood where it is said to have
            return row
    raise Gone(task.id)


def _rows(lot: MoveBatch, number: int, kind: str) -> bool:
    return bool(rows_of(lot.theirs, lot.book, number, kind))


def _named(ident: str) -> tuple[int, str]:
    its = parsed_id(ident)
    assert its is not None
    return its
