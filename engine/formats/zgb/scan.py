"""Scan both databases in pages, so that no reader locks out writers, and yield jobs sorted by
id."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from typing import TypeAlias

from engine.formats.zgb import claims, queue_config, row_moves
from engine.formats.zgb.place import Cell
from engine.formats.zgb.queue_config import UNDECIDABLE_ERROR, RedirectDecision, load_config
from engine.formats.zgb.row import (
    STATES,
    STATUSES,
    JobRow,
    is_parked_time,
    parse_image,
    sidecar_task,
    task_of,
)
from engine.formats.zgb.schema import Database, select_jobs
from engine.formats.zgb.sidecar_database import SidecarDatabase, SidecarRow
from engine.model import Problem, State, Task
from engine.store import Unsupported
from engine.system.cleanup import closed_on_error

PREVIEW_COUNT = 100
"""Jobs that a full scan yields first, unsorted."""

ROWS_PER_PAGE = 100
"""Rows that are read at a time: each value may have `connection.VALUE_LIMIT_BYTES` bytes, but an
error, of which only the beginning is read."""

KEYS_PER_PAGE = 5000
"""Keys that are read at a time."""

MAX_LEASES_AHEAD = 10
"""A lease that ends more than so many lease times ahead shows that a clock was wrong."""

ScanItem: TypeAlias = Task | Problem

QUEUE_PROBLEMS = ("registrations", "orphans", queue_config.RATE_KEY, "redirect")
"""Names of the problems that concern the whole queue."""

ROW_PREFIX = "mail_queue/row "
"""Prefix of the name of an invalid row; its key follows."""

_STATE_CONDITIONS: Mapping[State, str] = {
    State.PENDING: "status IS NULL OR status <> 'sending'",
    State.ACTIVE: "status = 'sending'",
    State.DEAD: "status = 'failed'",
}
"""SQL conditions for the rows that may be in a state; rows of an unknown status are listed as
pending."""


class QueueScan:
    """One scan of the two databases."""

    def __init__(self, database: Database, sidecar: SidecarDatabase, now: float) -> None:
        self._database, self._sidecar, self._now = database, sidecar, now
        self._token = load_config(database.connection).move_token
        self._problems: tuple[Problem, ...] | None = None
        self.expected_tasks = 0
        """Approximate number of jobs, once a full scan has begun."""

    def preview(self) -> Iterator[ScanItem]:
        """Yield some jobs of "mail_queue", in any order."""
        for values in select_jobs(
            self._database.connection, self._database.shape, f"LIMIT {PREVIEW_COUNT}"
        ):
            yield from self.classify_row(values)

    def find_job(self, number: int, kind: str) -> list[ScanItem]:
        """Return the jobs of a number and a kind from both databases."""
        rows = row_moves.read_values(self._database.connection, self._database, number, kind)
        job_items = [item for values in rows for item in self.classify_row(values)]
        sidecar_row = self._sidecar.find(f"{number}-{kind}", self._token)
        if sidecar_row is not None:
            job_items += self._sidecar_items(sidecar_row)
        tasks = [item for item in job_items if isinstance(item, Task)]
        if len(tasks) > 1:
            job_items.append(_duplicate_problem(tasks))
        return job_items

    def find_row(self, key: int) -> list[ScanItem]:
        """Return the job or problem of the row with this key."""
        shape = self._database.shape
        rows = select_jobs(self._database.connection, shape, f"WHERE {shape.key} = ?", (key,))
        return [item for values in rows for item in self.classify_row(values)]

    def in_state(self, state: State) -> Iterator[ScanItem]:
        """Yield all jobs in one state, sorted by id."""
        if state in row_moves.SIDECAR_STATES:
            for sidecar_row in self._sidecar.iter_state(state, self._token):
                yield from self._sidecar_items(sidecar_row)
            return
        with _Listing(self, self._database, _STATE_CONDITIONS[state]) as listing:
            for keys in listing.keys(state):
                yield from self._fetch_rows(keys)

    def everything(self) -> Iterator[ScanItem]:
        """Yield each state sorted by id, then the problems."""
        with _Listing(self, self._database) as listing:
            self.expected_tasks = listing.count + self._sidecar.count(self._token)
            for state in STATES:
                if state in row_moves.SIDECAR_STATES:
                    yield from self._sidecar_jobs(state)
                    continue
                for keys in listing.keys(state):
                    yield from self._fetch_rows(keys)
            for ident, count in listing.duplicates():
                yield Problem(ident, f"{count} rows in mail_queue: the unique index is missing")
        yield from self.problems()

    def state_at_listing(self, status: Cell, next_at: Cell) -> State:
        """Return the state of a row, for sorting the list."""
        if status == "sending":
            return State.ACTIVE
        if status != "failed":
            return State.PENDING
        if not self._database.place.auto_retry:
            return State.DEAD
        moments = claims.parse_time_cell("next_attempt_at", next_at, self._database)
        return State.DEAD if any(is_parked_time(m, self._now) for m in moments) else State.PENDING

    def problems(self) -> tuple[Problem, ...]:
        """Return the problems of the whole queue, each named by one of `PLACES`; computed once."""
        if self._problems is None:
            self._problems = tuple(self._find_problems())
        return self._problems

    def _find_problems(self) -> Iterator[Problem]:
        database, place = self._database, self._database.place
        settings = load_config(database.connection)
        counted = claims.count_orphans(database.connection, database)
        if counted is None and place.registrations:
            yield Problem("registrations", claims.no_registrations_message(database))
        elif counted is not None and counted.description:
            yield Problem("orphans", counted.description)
        if problem := queue_config.rate_problem(settings.rate, place.rate_limit):
            yield Problem(queue_config.RATE_KEY, problem)
        where = claims.decide_redirect_now(database, settings, self._now)
        if where is RedirectDecision.UNDECIDABLE:
            yield Problem(
                "redirect", f"{UNDECIDABLE_ERROR}: {claims.undecidable_reason(database, settings)}"
            )

    def _sidecar_jobs(self, state: State) -> Iterator[ScanItem]:
        for sidecar_row in self._sidecar.iter_state(state, self._token):
            sidecar_items = self._sidecar_items(sidecar_row)
            yield from sidecar_items
            tasks = [item for item in sidecar_items if isinstance(item, Task)]
            number, _, kind = sidecar_row.id.partition("-")
            theirs = row_moves.read_rows(
                self._database.connection, self._database, int(number), kind
            )
            tasks += (
                task_of(row, self._now, self._database.place)
                for row in theirs
                if isinstance(row, JobRow)
            )
            if len(tasks) > 1:
                yield _duplicate_problem(tasks)

    def _fetch_rows(self, keys: list[int]) -> Iterator[ScanItem]:
        """Yield the jobs of these keys as stored now, in this order."""
        shape = self._database.shape
        listed = ", ".join(map(str, keys))
        selected = select_jobs(self._database.connection, shape, f"WHERE {shape.key} IN ({listed})")
        rows = {values[0]: values for values in selected}
        for key in keys:
            if key in rows:  # otherwise it is gone since it was listed
                yield from self.classify_row(rows[key])

    def classify_row(self, values: tuple[Cell, ...]) -> list[ScanItem]:
        """Return a row as a task or a problem."""
        row = row_moves.parse_or_invalid(values, self._database)
        if isinstance(row, JobRow):
            return self._row_items(row)
        status = dict(zip(self._database.shape.names, values[1:], strict=False)).get("status")
        state = self.state_at_listing(status, None) if status in STATUSES else None
        return [Problem(f"{ROW_PREFIX}{values[0]!r}", str(row), state)]

    def _row_items(self, row: JobRow) -> list[ScanItem]:
        place = self._database.place
        row_items: list[ScanItem] = [task_of(row, self._now, place)]
        if (
            row.status == "sending"
            and (row.locked or 0) > self._now + MAX_LEASES_AHEAD * place.lease
        ):
            what = f"its lease ends in {(row.locked or 0) - self._now:.0f} s: a clock was wrong"
            row_items.append(Problem(f"{ROW_PREFIX}{row.key}", what, State.ACTIVE))
        return row_items

    def _sidecar_items(self, sidecar_row: SidecarRow) -> list[ScanItem]:
        place, shape = self._database.place, self._database.shape
        try:
            row = parse_image(sidecar_row.image, shape)
        except Unsupported as error:
            return [
                Problem(
                    f"{STATES[sidecar_row.state]}/{sidecar_row.id}", str(error), sidecar_row.state
                )
            ]
        return [
            sidecar_task(
                row,
                sidecar_row.state,
                sidecar_row.since,
                rev=sidecar_row.rev,
                now=self._now,
                place=place,
            )
        ]


def _duplicate_problem(tasks: list[Task]) -> Problem:
    words = " and ".join(STATES[task.state] for task in tasks)
    return Problem(tasks[0].id, f"is in {words} at the same time: its number was reused")


class _Listing:
    """Keys of all rows, sorted by state and id in a temporary SQLite file.

    Rows are listed page by page: a long read would lock out every writer."""

    def __init__(self, walk: QueueScan, database: Database, among: str = "1") -> None:
        """List the rows that meet an SQL condition, by default all."""
        self.count = 0
        self._db = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        with closed_on_error(self._db):
            self._list(walk, database, among)

    def _list(self, walk: QueueScan, database: Database, among: str) -> None:
        self._db.execute("CREATE TABLE listed (state TEXT, id BLOB, key INTEGER)")
        key = database.shape.key
        last = -1 << 63
        while rows := database.connection.run(
            f"SELECT {key}, CAST(coalesce(registration_number, '') || '-'"
            f" || coalesce(mail_type, '') AS BLOB), status, next_attempt_at"
            f" FROM mail_queue WHERE {key} > ? AND ({among}) ORDER BY {key} LIMIT {KEYS_PER_PAGE}",
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
        """Yield pages of the keys of a state's rows, sorted by id."""
        rows = self._db.execute("SELECT key FROM listed WHERE state = ? ORDER BY id, key", (state,))
        while page := rows.fetchmany(ROWS_PER_PAGE):
            yield [key for (key,) in page]

    def duplicates(self) -> list[tuple[str, int]]:
        """Return ids that several rows have, each with their number."""
        rows = self._db.execute("SELECT id, count(*) FROM listed GROUP BY id HAVING count(*) > 1")
        return [(bytes(ident).decode("utf-8", "replace"), count) for ident, count in rows]
