"""The mirror of a store in which every view is a query: one SQLite file in a scratch folder.

This module has the tables, the rows and the queries. `engine.index.writer` writes what scans of the
store find, `engine.index.reader` answers queries; they share only the file, each on its own thread.
The store is the truth: an index is never repaired, it is deleted and filled again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

from engine.index.filter_language import NOTHING, Filter, Value
from engine.model import EMPTY, Lease, State, Task, attempts_counted
from engine.text import error_pattern
from engine.text.time_expressions import RelativeTime

STATES = tuple(State)
"""A state's number in the index is its place here."""
ALL = -1
"""Stands for every state in the blocks of ranks."""

TABLE = """
CREATE TABLE task(
    n INTEGER PRIMARY KEY, id TEXT NOT NULL, state INT NOT NULL, queue TEXT NOT NULL,
    kind TEXT, created REAL, due REAL, attempts INT, priority INT, description TEXT,
    destination TEXT, domain TEXT, error TEXT, cluster TEXT, owner TEXT, since REAL, until REAL,
    token TEXT, rev TEXT, grp TEXT, word TEXT, payload TEXT, extra TEXT, mark TEXT, code INT,
    died REAL);
"""
SCHEMA = f"""
{TABLE}
CREATE UNIQUE INDEX by_id ON task(state, id, queue);
CREATE TABLE block(state INT, first TEXT, size INT, PRIMARY KEY(state, first)) WITHOUT ROWID;
CREATE TABLE problem(place TEXT PRIMARY KEY, what TEXT, state INT, name TEXT, look INT);
CREATE INDEX problem_by_name ON problem(name);
CREATE TABLE worded(state INT, word TEXT, tasks INT, PRIMARY KEY(state, word)) WITHOUT ROWID;
"""
# The unique index leads with state and id, so that it alone puts a state's rows in order, in
# however many queues they are.

WORDS = """
CREATE TRIGGER IF NOT EXISTS word_in AFTER INSERT ON task WHEN NEW.word <> '' BEGIN
    INSERT INTO worded VALUES (NEW.state, NEW.word, 1) ON CONFLICT DO UPDATE SET tasks = tasks + 1;
END;
CREATE TRIGGER IF NOT EXISTS word_out AFTER DELETE ON task WHEN OLD.word <> '' BEGIN
    UPDATE worded SET tasks = tasks - 1 WHERE state = OLD.state AND word = OLD.word;
END;
CREATE TRIGGER IF NOT EXISTS word_new AFTER UPDATE ON task WHEN OLD.word <> NEW.word BEGIN
    UPDATE worded SET tasks = tasks - 1 WHERE state = OLD.state AND word = OLD.word;
    INSERT INTO worded SELECT NEW.state, NEW.word, 1 WHERE NEW.word <> ''
        ON CONFLICT DO UPDATE SET tasks = tasks + 1;
END;
"""
"""Counts tasks by finer words, in a store that has some: it costs each row a twentieth."""

LATER = (
    "CREATE INDEX by_name ON task(id, queue)",
    "CREATE INDEX by_due ON task(state, due, created)",
    "CREATE INDEX by_cluster ON task(state, cluster, kind, created, died)",
    "CREATE INDEX by_domain ON task(state, domain, created)",
)
"""Made after the first whole look: kept from the start they would double its time.

The last three hold all that the tallies ask for, so that these read no rows.
"""

CHUNK = 500
"""Rows a transaction: more gains nothing, and a window waits for nobody."""
PROBLEMS = 10_000
"""Problems that are shown; all are counted."""

ORDERS: Mapping[str, str] = {
    "id": "id",
    "kind": "kind",
    "created": "created",
    "due": "due",
    "attempts": "attempts",
    "destination": "destination",
    "error": "error",
    "description": "description",
    "died": "died",
    "since": "since",
}
"""What a result can be ordered by, and the column it is; `since` is that of the lease."""

_MAY_LACK = ("created", "due", "attempts", "died", "since")
"""Orders in which tasks that do not have it come last, whichever way."""


class Query(NamedTuple):
    """Which tasks, in what order."""

    state: State | None = None
    """None: all of them."""
    filter: Filter = NOTHING
    order: str = "id"
    """A key of `ORDERS`; tasks alike in it are in the order of ids."""
    descending: bool = False


class Window(NamedTuple):
    """Some consecutive rows of a result: `start` up to `start + len(tasks)`, of `total`."""

    tasks: tuple[Task, ...]
    start: int
    total: int
    generation: int
    """Of the index when it was asked; what it shows is at least as new."""


Values: TypeAlias = tuple[str | int | float | None, ...]
Key: TypeAlias = tuple[int, str, str]
"""State, id and queue: what tells rows apart."""

_COLUMNS = (
    *("id", "kind", "state", "created", "queue", "grp", "word", "due", "attempts", "priority"),
    *("description", "destination", "payload", "error"),
    *("owner", "since", "until", "token", "rev", "extra"),
)
"""Those of a task in its own order, so that one is made of a row quickly."""
SHOWN = ", ".join(_COLUMNS)
"""What `task_of` makes a task of, as SQL."""
COLUMNS = (*_COLUMNS, "domain", "cluster", "mark", "code", "died")
"""What `row_of` makes of a task."""
_marks = ", ".join("?" * (len(COLUMNS) + 1))
INSERT = f"INSERT INTO task({', '.join(COLUMNS)}, n) VALUES ({_marks})"
"""A row with its number."""
RANK: Mapping[State, int] = {state: at for at, state in enumerate(STATES)}
"""Each state's number."""
EVERYWHERE = ", ".join(str(at) for at in range(len(STATES)))
"""The numbers of all states, as SQL: with them the unique index finds an id."""
_LARGEST = (1 << 63) - 1

LISTED = (
    "FROM task INDEXED BY by_id WHERE state=:state AND {condition}",
    "FROM task INDEXED BY by_name WHERE {condition}",
)
"""The rows of one state, and of all, in the order of ids, from an index that holds nothing else."""


class _KnownErrors(NamedTuple):
    cluster: str
    mark: str
    code: int | None


_NO_KIN = _KnownErrors("", "", None)
_mark = lru_cache(4096)(error_pattern.mark)


@lru_cache(4096)
def _kin(error: str) -> _KnownErrors:
    """What an error has in common with others; errors come again and again."""
    folded, code = error_pattern.fold(error), error_pattern.code(error)
    return _KnownErrors(folded, _mark(folded), int(code) if code else None)


def domain_of(destination: str) -> str:
    """What of a destination counts as one place: the domain of an address, or all of it."""
    return destination.rpartition("@")[2]


def died_at(task: Task) -> float | None:
    """When a task died, epoch seconds UTC; None for one that is not dead, or does not say when."""
    try:
        died = float(task.extra.get("dead_since", ""))
    except ValueError:
        return None
    return died if 0 < died < _LARGEST else None


def row_of(task: Task) -> Values:
    """A task as a row of `COLUMNS`."""
    return (
        task.id,
        task.kind,
        RANK[task.state],
        task.created or None,  # what is not known is older than nothing, and younger
        task.queue,
        task.group,
        task.word,
        task.due,
        attempts_counted(task) if task.extra else task.attempts,
        task.priority,
        task.description,
        task.destination,
        task.payload,
        task.error,
        *(task.lease or _NO_LEASE),
        task.rev,
        json.dumps(dict(task.extra)) if task.extra else "",
        domain_of(task.destination),
        *(_kin(task.error) if task.error else _NO_KIN),
        died_at(task) if task.extra else None,
    )


_NO_LEASE = (None, None, None, None)


def task_of(row: tuple[Any, ...]) -> Task:
    """The task that a row of `SHOWN` holds."""
    owner, since, until, token, rev, extra = row[14:]
    lease = None if owner is None else Lease(owner, since, until, token)
    told = json.loads(extra) if extra else EMPTY
    fields = [row[0], row[1], STATES[row[2]], row[3] or 0.0, *row[4:14], lease, rev, told]
    return Task(*fields)


def storable(row: Values) -> Values:
    """The values of a task, whatever its files held: text that is text, numbers that fit."""
    return tuple(
        text_of(value)
        if isinstance(value, str)
        else max(-_LARGEST, min(_LARGEST, value))
        if isinstance(value, int)
        else value
        for value in row
    )


def text_of(text: str) -> str:
    """The text as far as it is any: half characters become question marks."""
    return text.encode("utf-8", "replace").decode()


Condition: TypeAlias = tuple[str, tuple[str | int | float | None, ...]]
"""What follows WHERE, and its parameters."""


def where(query: Query, now: float) -> Condition:
    """The condition of a query at a moment (epoch seconds UTC).

    What the operator typed goes in as values, never as text.
    """
    sql, values = matching(query.filter, now)
    if query.state is None:
        return sql, values
    return f"state=? AND {sql}", (RANK[query.state], *values)


def matching(filter: Filter, now: float) -> Condition:
    """The condition of a filter at a moment."""
    sql = " AND ".join(clause.condition for clause in filter.clauses) or "1"
    return sql, bound((v for clause in filter.clauses for v in clause.values), now)


def bound(values: Iterable[Value], now: float) -> tuple[str | int | float | None, ...]:
    """The parameters of a filter's clauses as SQLite takes them."""
    return tuple(
        now - value.seconds
        if isinstance(value, RelativeTime)
        else RANK[value]
        if isinstance(value, State)
        else value
        for value in values
    )


def order(query: Query) -> str:
    """ORDER BY, as SQL; alike tasks in the order of ids."""
    way = "DESC" if query.descending else "ASC"
    columns = dict.fromkeys((ORDERS[query.order], "id", "queue", "state"))
    last = f"{ORDERS[query.order]} IS NULL, " if query.order in _MAY_LACK else ""
    return f"ORDER BY {last}" + ", ".join(f"{column} {way}" for column in columns)
