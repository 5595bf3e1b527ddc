"""The outbox: a table of another program, with one row for each task that is to be done.

A row is removed after the store has the outcome of its task. If the worker is killed between the
two, the row stays without a task: see `find_orphans`. All that reads or changes the outbox or a
store raises Unavailable if that cannot be done."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from queue import SimpleQueue

from engine.config.queue_config import OutboxConfig
from engine.destinations.database import BadValue, SqlAnswer, SqlDatabase, Value
from engine.model import State, Task
from engine.schedules import Schedule, exponential
from engine.store import Gone, ReadableStore, Unavailable, Unsupported
from engine.values import NamedTuple

MAX_KEYS = 500
"""Keys in one statement."""

PAUSES = exponential(1.0, 60.0)
"""Between two tries to remove rows while the database is unavailable."""


class Outbox:
    """The rows of one table; any thread may call it."""

    def __init__(self, settings: OutboxConfig) -> None:
        """The names were checked by `validators.check_identifier`."""
        if settings.database is None:
            raise Unavailable("outbox: no database is set")
        self._database = SqlDatabase(settings.database)
        self.table = settings.table
        self._table = ".".join(f'"{name}"' for name in settings.table.split("."))
        self._key = f'"{settings.key}"'
        columns = [f'"{one}" = COALESCE("{one}", 0) + 1' for one in (settings.attempts,) if one]
        self._attempts = f'"{settings.attempts}"' if settings.attempts else "0"
        self._has_time = bool(settings.last_attempt)
        if self._has_time:
            columns.append(f'"{settings.last_attempt}" = {self._database.dialect.time}')
        self._counting = ", ".join(columns)

    def keys(self, among: Collection[str] | None = None) -> set[str]:
        """The keys of all rows, or of those of the given keys that have one."""
        select = f"SELECT {self._key} FROM {self._table}"
        if among is None:
            return {str(key) for (key,) in self._database.run(select).rows}
        rows = self._run_all(f"{select} WHERE {self._key} IN", sorted(among))
        return {str(key) for answer in rows for (key,) in answer.rows}

    def remove(self, *keys: str) -> int:
        """Delete rows; return how many there were."""
        answers = self._run_all(f"DELETE FROM {self._table} WHERE {self._key} IN", keys)
        return sum(answer.changed for answer in answers)

    def count_attempt(self, key: str, now: float) -> int:
        """Add 1 to the attempts of a row and set the time of its last attempt, as far as there are
        columns for them; `now` in epoch seconds UTC. Return the new number, 0 if it is unknown."""
        if not self._counting:
            return 0
        update = f"UPDATE {self._table} SET {self._counting} WHERE {self._key} IN"
        values: list[Value] = [now] if self._has_time else []
        answers = self._run_all(update, [key], values, after=f" RETURNING {self._attempts}")
        return sum(int(row[0]) for answer in answers for row in answer.rows)

    def close(self) -> None:
        """Close the connections."""
        self._database.close()

    def _run_all(
        self,
        sql: str,
        keys: Sequence[str],
        values: Sequence[Value] = (),
        after: str = "",
        lot: int = MAX_KEYS,
    ) -> Iterator[SqlAnswer]:
        """Run a statement for some keys at a time: they follow the IN at the end of `sql` and its
        other values, and `after` follows them."""
        for start in range(0, len(keys), lot):
            some = keys[start : start + lot]
            try:
                whole = f"{sql} ({', '.join('?' * len(some))}){after}"
                yield self._database.run(whole, [*values, *some])
            except BadValue:
                if len(some) > 1:
                    yield from self._run_all(sql, some, values, after, lot=1)
                # else: no row can have this key


class RowRemover:
    """Removes rows on a thread of its own, many at a time: no lease waits for a database."""

    def __init__(
        self, outbox: Outbox, log: Callable[[str, str], None], pauses: Schedule = PAUSES
    ) -> None:
        """`log` gets a level and a line, on that thread."""
        self._outbox, self._log, self._pauses = outbox, log, pauses
        self._rows: SimpleQueue[str] = SimpleQueue()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="outbox", daemon=True)
        self._thread.start()

    def add(self, row: str) -> None:
        """Remove a row soon; does not wait."""
        self._rows.put(row)

    def close(self) -> None:
        """Try once more to remove what was added, and end. Rows that stay are logged."""
        self._ending.set()
        self._rows.put("")
        self._thread.join()

    def _run(self) -> None:
        failures, rows = 0, list[str]()
        while not self._ending.is_set() or rows or not self._rows.empty():
            if not rows:
                rows.append(self._rows.get())
            while not self._rows.empty():  # no other thread takes them
                rows.append(self._rows.get_nowait())
            rows = [row for row in rows if row]
            is_last = self._ending.is_set()  # not one that began before the end
            try:
                self._outbox.remove(*rows)
            except Unavailable as error:
                if is_last:
                    what = f"{len(rows):,} rows stay without a task, doctor lists them"
                    self._log("ERROR", f"Outbox: {error}; {what}")
                    return
                if not failures:
                    self._log("WARN", f"Outbox: {error}; {len(rows):,} rows wait to be removed")
                self._ending.wait(self._pauses.seconds(failures))
                failures += 1
            else:
                failures, rows = 0, []


DATA_PARTS = ("data", "payload")
"""Names of the part of a task that has its data, in the formats."""

PASSES = 3
"""How often the tasks are read before a row counts as one without a task."""

UNFINISHED = frozenset({State.PENDING, State.ACTIVE, State.HELD})


class Orphans(NamedTuple):
    """Keys and ids in order."""

    rows: tuple[str, ...]
    """Keys of rows that no unfinished or dead task names."""
    tasks: tuple[str, ...]
    """Ids of unfinished tasks whose row is missing."""


def find_orphans(outbox: Outbox, store: ReadableStore, field: str) -> Orphans:
    """Compare the rows with the tasks whose JSON data has a key in `field`; reads every task.

    Both change meanwhile. A task that moves while the tasks are read may be missed, so a row is
    without a task only if each of `PASSES` passes found none, and the row is still there."""
    before = unmatched = outbox.keys()
    without: dict[str, str] = {}
    for _ in range(PASSES):
        keyed = [*_keyed_tasks(store, field)]
        unmatched = unmatched - {key for task, key in keyed if task.state is not State.DONE}
        without = without or {
            task.id: key for task, key in keyed if task.state in UNFINISHED and key not in before
        }
        if not unmatched:
            break
    rows = outbox.keys(unmatched)
    added = outbox.keys(set(without.values()))
    missing = {ident for ident, key in without.items() if key not in added}
    still = {task.id for task in _tasks(store, missing) if task.state in UNFINISHED}
    return Orphans(tuple(sorted(rows)), tuple(sorted(still & missing)))


def _tasks(store: ReadableStore, names: Collection[str]) -> Iterator[Task]:
    scanned = store.scan(names) if names else ()
    return (one for one in scanned if isinstance(one, Task))


def _keyed_tasks(store: ReadableStore, field: str) -> Iterator[tuple[Task, str]]:
    for task in _tasks(store, store.states.values()):
        data = read_data(store, task)
        if data is not None and (key := row_key(data, field)):
            yield task, key


def read_data(store: ReadableStore, task: Task) -> bytes | None:
    """The data of a task; None if it has none, or has changed since it was scanned."""
    for part in DATA_PARTS:
        with suppress(Gone, Unsupported):
            return store.read(task, part)
    return None


def row_key(data: bytes, field: str) -> str:
    """The key of a task's row, from a field of its JSON data; "" if it has none."""
    try:
        fields = json.loads(data)
    except (ValueError, RecursionError):
        return ""
    key = fields.get(field) if isinstance(fields, dict) else None
    return str(key) if isinstance(key, str | int) else ""
