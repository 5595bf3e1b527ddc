"""Looking at everything: in pages, so that no reader stands in a writer's way, and in order."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from typing import TypeAlias

from engine.model import Problem, State, Task
from engine.store import Unsupported
from engine.stores.zgb import claims, connections_config, redirect, row_moves, token_bucket
from engine.stores.zgb.row import STATES, STATUSES, JobRow, from_image, is_far, task_aside, task_of
from engine.stores.zgb.schema import Database
from engine.stores.zgb.sidecar_database import KeptRow, SidecarDatabase
from engine.stores.zgb.times import Cell

PEEK = 100
"""Jobs that a whole look shows at once, before it knows their order."""

PAGE = 100
"""Rows that are read at once: each value may be as large as `wire.LONGEST`."""

LISTED = 5000
"""Keys that are read at once."""

FAULT = 10
"""So many leases ahead, no claim can end: a clock was wrong when it was made."""

Seen: TypeAlias = Task | Problem

PLACES = ("registrations", "orphans", connections_config.RATE, "redirect")
"""Where something can be wrong with the queue as a whole."""

ROW = "mail_queue/row "
"""Begins the name of a row that is a problem; behind it, its key."""

_ROWS: Mapping[State, str] = {
    State.PENDING: "status IS NULL OR status <> 'sending'",
    State.ACTIVE: "status = 'sending'",
    State.DEAD: "status = 'failed'",
}
"""SQL for the rows among which those of a state are; rows of an unknown status are listed among the
pending ones."""


class Walk:
    """One look at what the two databases hold."""

    def __init__(self, book: Database, aside: SidecarDatabase, now: float) -> None:
        self._book, self._aside, self._now = book, aside, now
        self._token = connections_config.load(book.wire).moved
        self._problems: tuple[Problem, ...] | None = None
        self.expected = 0
        """How many jobs there are, about, once everything is being looked at."""

    # ---- some of it

    def peek(self) -> Iterator[Seen]:
        """Some of each database, in any order."""
        columns = self._book.shape.columns
        for values in self._book.wire.run(f"SELECT {columns} FROM mail_queue LIMIT {PEEK}"):
            yield from self.told(values)

    def named(self, number: int, kind: str) -> list[Seen]:
        """The jobs of a number and a kind, wherever they stand."""
        rows = row_moves.values_of(self._book.wire, self._book, number, kind)
        found = [item for values in rows for item in self.told(values)]
        kept = self._aside.find(f"{number}-{kind}", self._token)
        if kept is not None:
            found += self._kept(kept)
        tasks = [item for item in found if isinstance(item, Task)]
        if len(tasks) > 1:
            found.append(_double(tasks))
        return found

    def row(self, key: int) -> list[Seen]:
        """The row of this key, whatever is in it."""
        shape = self._book.shape
        found = self._book.wire.run(
            f"SELECT {shape.columns} FROM mail_queue WHERE {shape.key} = ?", (key,)
        )
        return [item for values in found for item in self.told(values)]

    def standing(self, state: State) -> Iterator[Seen]:
        """All in one state, in the order of ids."""
        if state in row_moves.OURS:
            for kept in self._aside.all(state, self._token):
                yield from self._kept(kept)
            return
        with _Listing(self, self._book, _ROWS[state]) as listing:
            for keys in listing.keys(state):
                yield from self._fetched(keys)

    # ---- all of it

    def everything(self) -> Iterator[Seen]:
        """Each state in the order of ids, and then what is wrong."""
        with _Listing(self, self._book) as listing:
            self.expected = listing.count + self._aside.count(self._token)
            for state in STATES:
                if state in row_moves.OURS:
                    yield from self._ours(state)
                    continue
                for keys in listing.keys(state):
                    yield from self._fetched(keys)
            for ident, count in listing.twice():
                yield Problem(ident, f"stands {count} times among theirs: an index is missing")
        yield from self.problems()

    def state_at_listing(self, status: Cell, next_at: Cell) -> State:
        """Where a row of this status stands, for the order in which it is shown."""
        if status == "sending":
            return State.ACTIVE
        if status != "failed":
            return State.PENDING
        if not self._book.place.auto_retry:
            return State.DEAD
        moments = claims.moments("next_attempt_at", next_at, self._book)
        return State.DEAD if any(is_far(m, self._now) for m in moments) else State.PENDING

    def problems(self) -> tuple[Problem, ...]:
        """What is wrong with the queue as a whole, each in one of `PLACES`; found out once."""
        if self._problems is None:
            self._problems = tuple(self._wrong())
        return self._problems

    def _wrong(self) -> Iterator[Problem]:
        book, place = self._book, self._book.place
        settings = connections_config.load(book.wire)
        counted = claims.count_orphans(book.wire, book)
        if counted is None and place.registrations:
            yield Problem("registrations", claims.no_registrations(book))
        elif counted is not None and counted.told:
            yield Problem("orphans", counted.told)
        if odd := token_bucket.odd_rate(settings.rate, place.pace):
            yield Problem(connections_config.RATE, odd)
        where = claims.way_of_all(book, settings, self._now)
        if where is redirect.RedirectDecision.UNDECIDABLE:
            yield Problem("redirect", f"{redirect.UNDECIDABLE}: {claims.unsaid(book, settings)}")

    def _ours(self, state: State) -> Iterator[Seen]:
        for kept in self._aside.all(state, self._token):
            seen = self._kept(kept)
            yield from seen
            tasks = [item for item in seen if isinstance(item, Task)]
            number, _, kind = kept.id.partition("-")
            theirs = row_moves.rows_of(self._book.wire, self._book, int(number), kind)
            tasks += (
                task_of(row, self._now, self._book.place)
                for row in theirs
                if isinstance(row, JobRow)
            )
            if len(tasks) > 1:
                yield _double(tasks)

    def _fetched(self, keys: list[int]) -> Iterator[Seen]:
        """The rows of these keys as they stand now, in this order."""
        shape = self._book.shape
        listed = ", ".join(map(str, keys))
        found = self._book.wire.run(
            f"SELECT {shape.columns} FROM mail_queue WHERE {shape.key} IN ({listed})"
        )
        rows = {values[0]: values for values in found}
        for key in keys:
            if key in rows:  # else it has left since it was listed
                yield from self.told(rows[key])

    # ---- one of it

    def told(self, values: tuple[Cell, ...]) -> list[Seen]:
        """What a row is: a task, or a problem."""
        row = row_moves.parsed(values, self._book)
        if isinstance(row, JobRow):
            return self._row(row)
        status = dict(zip(self._book.shape.names, values[1:], strict=True))["status"]
        state = self.state_at_listing(status, None) if status in STATUSES else None
        return [Problem(f"{ROW}{values[0]!r}", str(row), state)]

    def _row(self, row: JobRow) -> list[Seen]:
        place = self._book.place
        found: list[Seen] = [task_of(row, self._now, place)]
        if row.status == "sending" and (row.locked or 0) > self._now + FAULT * place.lease:
            what = f"its lease ends in {(row.locked or 0) - self._now:.0f} s: a clock was wrong"
            found.append(Problem(f"{ROW}{row.key}", what, State.ACTIVE))
        return found

    def _kept(self, kept: KeptRow) -> list[Seen]:
        place, shape = self._book.place, self._book.shape
        try:
            row = from_image(kept.image, shape)
        except Unsupported as error:
            return [Problem(f"{STATES[kept.state]}/{kept.id}", str(error), kept.state)]
        return [task_aside(row, kept.state, kept.since, kept.rev, self._now, place)]


def _double(tasks: list[Task]) -> Problem:
    words = " and ".join(STATES[task.state] for task in tasks)
    return Problem(tasks[0].id, f"stands in {words} at once: its number was given out again")


class _Listing:
    """The keys of all rows, sorted by states and ids in a file of SQLite's own that goes with it.

    Rows are listed page by page: a reader that took its time would keep every writer out.
    """

    def __init__(self, walk: Walk, book: Database, among: str = "1") -> None:
        """Of the rows that meet a condition in SQL, or of all."""
        self.count = 0
        self._db = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        self._db.execute("CREATE TABLE listed (state TEXT, id BLOB, key INTEGER)")
        key = book.shape.key
        last = -1 << 63
        while rows := book.wire.run(
            f"SELECT {key}, CAST(coalesce(registration_number, '') || '-'"
            f" || coalesce(mail_type, '') AS BLOB), status, next_attempt_at"
            f" FROM mail_queue WHERE {key} > ? AND ({among}) ORDER BY {key} LIMIT {LISTED}",
            (last,),
        ):
            self._db.execute("BEGIN")
            self._db.executemany(
                "INSERT INTO listed VALUES (?, ?, ?)",
                ((str(walk.state_at_listing(row[2], row[3])), row[1], row[0]) for row in rows),
            )
            self._db.execute("COMMIT")
            self.count += len(rows)
            assert isinstance(rows[-1][0], int)
            last = rows[-1][0]
        self._db.execute("CREATE INDEX sorted ON listed (state, id, key)")

    def __enter__(self) -> _Listing:
        return self

    def __exit__(self, *_: object) -> None:
        self._db.close()

    def keys(self, state: State) -> Iterator[list[int]]:
        """The keys of a state's rows in the order of ids, page by page."""
        rows = self._db.execute("SELECT key FROM listed WHERE state = ? ORDER BY id, key", (state,))
        while page := rows.fetchmany(PAGE):
            yield [key for (key,) in page]

    def twice(self) -> list[tuple[str, int]]:
        """Ids that more than one row has, and how many."""
        rows = self._db.execute("SELECT id, count(*) FROM listed GROUP BY id HAVING count(*) > 1")
        return [(bytes(ident).decode("utf-8", "replace"), count) for ident, count in rows]
