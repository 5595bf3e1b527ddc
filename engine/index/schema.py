"""The schema of the index: a SQLite copy of one store, in a temporary folder, so that a view is a
query.

This module has the tables, the rows and the queries. `engine.index.writer` writes the results of
store scans, `engine.index.reader` answers queries; they share only the file, each on its own
thread. The store is the authority: an index is never repaired, but deleted and filled again."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from typing import Any, TypeAlias

from engine.index.filter_language import NO_FILTER, SEPARATOR, Filter, Value, fold_searched
from engine.index.mail_columns import MAIL_COLUMNS, NO_MAIL, mail_values, split_recipients
from engine.model import (
    ALL_RECIPIENTS_KEY,
    EMPTY,
    AttemptLimit,
    Lease,
    State,
    Task,
    counted_attempts,
)
from engine.policy import count_runs, died_at
from engine.text import error_pattern
from engine.text.safe import ERROR_LIMIT
from engine.text.time_expressions import RelativeTime
from engine.values import NamedTuple

STATES = tuple(State)
"""The number of a state in the index is its position here."""
ALL_STATES = -1
"""In the `block` table: all states together."""

MAX_DEPARTED = 10_000
"""Tasks that left the store or a state and whose destination is remembered: a task that was sent is
gone when the log reports it."""

CREATE_TABLE = """
CREATE TABLE task(
    n INTEGER PRIMARY KEY, folded TEXT, id TEXT NOT NULL, state INT NOT NULL, kind TEXT, created
    REAL, due REAL, attempts INT, description TEXT, payload TEXT, error TEXT, rev TEXT, cluster
    TEXT, mark TEXT, code INT, queue TEXT NOT NULL DEFAULT '', grp TEXT DEFAULT '', word TEXT
    DEFAULT '', priority INT DEFAULT 0, destination TEXT DEFAULT '', domain TEXT DEFAULT '', owner
    TEXT, since REAL, until REAL, token TEXT, extra TEXT DEFAULT '', died REAL, runs INT, sender
    TEXT DEFAULT '', recipients TEXT DEFAULT '', account TEXT DEFAULT '', bytes INT, all_recipients
    INT, sender_domain TEXT DEFAULT '', domains TEXT);
"""
CREATE_SCHEMA = f"""
{CREATE_TABLE}
CREATE UNIQUE INDEX by_id ON task(state, id, queue);
CREATE TABLE block(state INT, first TEXT, size INT, PRIMARY KEY(state, first)) WITHOUT ROWID;
CREATE TABLE problem(
    place TEXT PRIMARY KEY, what TEXT, state INT, since REAL, quarantined REAL, name TEXT,
    look INT);
CREATE INDEX problem_by_name ON problem(name);
CREATE TABLE departed(n INTEGER PRIMARY KEY, id TEXT, domain TEXT);
CREATE INDEX departed_by_id ON departed(id);
CREATE TABLE worded(state INT, word TEXT, tasks INT, PRIMARY KEY(state, word)) WITHOUT ROWID;
"""
# The unique index begins with state and id, so it alone sorts a state's rows over all queues.

DEPARTURE_TRIGGER = f"""
CREATE TRIGGER departs AFTER DELETE ON task WHEN OLD.domain <> '' BEGIN
    INSERT INTO departed(id, domain) VALUES (OLD.id, OLD.domain);
    DELETE FROM departed WHERE n <= (SELECT max(n) FROM departed) - {MAX_DEPARTED};
END"""

WORD_TRIGGERS = """
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
"""Triggers that count tasks by words finer than a state, for stores that have some; they make
writing a row 5 % slower."""

DEFERRED_INDEXES = (
    "CREATE INDEX by_name ON task(id, queue)",
    "CREATE INDEX by_due ON task(state, due, created)",
    "CREATE INDEX by_cluster ON task(state, cluster, kind, created, died, domain)",
    "CREATE INDEX by_domain ON task(state, domain, created)",
)
"""Indexes that are created after the first full scan: before it, they would double its time.

The last three are covering indexes for the tallies, which so read no rows."""

MAIL_INDEX = """
CREATE INDEX IF NOT EXISTS by_sender ON task(state, sender, account) WHERE domains IS NOT NULL"""
"""Created with the first mail: without it, there is none."""

CHUNK_ROWS = 500
"""Rows in one transaction: larger ones gain nothing, and would delay the readers."""
MAX_TEXT_CHARS = 2000
"""Characters of an error or a description in the index; the task's file has all of it."""
MAX_PROBLEMS = 10_000
"""Maximum problems to show; all are counted."""

_MAY_LACK = ("created", "due", "attempts", "died", "since")
"""Orders whose value may be missing; those tasks come last in both directions."""
ORDER_COLUMNS = frozenset(
    ("id", "kind", "destination", "sender", "error", "description", *_MAY_LACK)
)
"""The columns by which a result can be sorted; `since` is the start of the lease."""


class Query(NamedTuple):
    """The tasks to return, and their order."""

    state: State | None = None
    """None: all states."""
    filter: Filter = NO_FILTER
    order: str = "id"
    """One of `ORDER_COLUMNS`; tasks with equal values are sorted by id."""
    descending: bool = False


class Window(NamedTuple):
    """Consecutive rows of a result: `start` to `start + len(tasks)`, of `total`."""

    tasks: tuple[Task, ...]
    start: int
    total: int
    generation: int
    """The generation of the index when it was queried; the rows are at least as new."""
    is_counted: bool = True
    """False: more rows may follow, and `total` is the number of those found so far."""


Values: TypeAlias = tuple[str | int | float | None, ...]
TASK_COLUMNS = (
    "id, kind, state, created, queue, grp, word, due, attempts, priority, description, destination,"
    " payload, error, owner, since, until, token, rev, extra, sender, recipients, account, bytes,"
    " all_recipients"
)
"""The columns that `task_of` needs, as SQL: the fields of a task in its own order."""
PLAIN_COLUMNS = (
    "id, kind, state, created, due, attempts, description, payload, error, rev, cluster, mark, code"
)
"""The columns that most tasks have, as SQL."""
RARE_COLUMNS = (
    "queue, grp, word, priority, destination, domain, owner, since, until, token, extra, died, "
    "runs, folded"
)
NO_RARE_VALUES: Values = ("", "", "", 0, "", "", None, None, None, None, "", None, None, None)
"""The values of the rare columns in a row without them, as the table has them by default."""
ROW_COLUMNS = tuple(f"{PLAIN_COLUMNS}, {RARE_COLUMNS}, {MAIL_COLUMNS}".split(", "))


def _insert(columns: str) -> str:
    return f"INSERT INTO task({columns}, n) VALUES (?{', ?' * (columns.count(',') + 1)})"


INSERT_TASK, INSERT_PLAIN_TASK = _insert(", ".join(ROW_COLUMNS)), _insert(PLAIN_COLUMNS)
INSERT_NO_MAIL = _insert(f"{PLAIN_COLUMNS}, {RARE_COLUMNS}")
"""Insert a row with its number; a plain one a quarter faster without the rare columns, one that is
no mail a tenth faster without those of mails."""
STATE_NUMBERS: Mapping[State, int] = {state: at for at, state in enumerate(STATES)}
ALL_STATE_NUMBERS = ", ".join(str(at) for at in range(len(STATES)))
"""The numbers of all states, as SQL: with them the unique index finds an id."""
_LARGEST = (1 << 63) - 1

SORTED_ROWS = (
    "FROM task INDEXED BY by_id WHERE state=:state AND id>=:first",
    "FROM task INDEXED BY by_name WHERE id>=:first",
)
"""The rows of one state, and of all states, from an id on, from a covering index sorted by id."""

_NO_ERROR = ("", "", None)
_mark = lru_cache(4096)(error_pattern.pattern_name)


@lru_cache(4096)
def _known_error(error: str) -> tuple[str, str, int | None]:
    """The cluster, mark and code of an error, given its first `ERROR_LIMIT` characters; cached,
    because errors repeat."""
    folded, code = error_pattern.fold_error(error), error_pattern.reply_code(error)
    return folded, _mark(folded), int(code) if code else None


def _shorten(text: str) -> str:
    """Cut a text of another program: a million tasks may each have 64 KiB."""
    return f"{text[:MAX_TEXT_CHARS]}... ({len(text):,} characters)"


def domain_of(destination: str) -> str:
    """The domain of an address, or the whole destination if it is no address."""
    return destination.rpartition("@")[2]


def row_of(task: Task, limit: AttemptLimit) -> Values:
    """Convert a task to a row of `ROW_COLUMNS`; `limit` is the maximum attempts of each."""
    # fmt: off
    (ident, kind, state, created, queue, group, word, due, attempts, priority, description,
     destination, payload, sender, recipients, account, size, error, lease, rev, extra, _) = task
    # fmt: on
    extra_json, died, runs = "", None, None
    if extra:
        extra_json, died, attempts = json.dumps(dict(extra)), died_at(task), counted_attempts(task)
        runs = count_runs(task, limit(task)) if "dead_reason" in extra else None
    if len(error) > MAX_TEXT_CHARS:
        error = _shorten(error)
    if len(description) > MAX_TEXT_CHARS:
        description = _shorten(description)
    mail = NO_MAIL
    if sender or recipients or account != "" or size is not None:
        mail = mail_values(sender, recipients, account, size)
    texts = f"{ident}{kind}{queue}{destination}{description}{error}{payload}{group}{word}"
    if lease is not None or mail is not NO_MAIL:
        texts = f"{texts}{lease and lease.owner}{mail}"
    folded = None
    if not texts.isascii():
        addresses = mail[:3] if mail[-1] is not None else ()
        searched = ident, kind, queue, destination, description, error, *addresses
        # Only if a text is not ASCII: the letters of ASCII are the same for SQLite's LIKE.
        folded = SEPARATOR.join(map(fold_searched, filter(None, searched)))
    return (
        ident,
        kind,
        STATE_NUMBERS[state],
        created or None,  # an unknown time (NULL) is neither older nor younger
        due,
        attempts,
        description,
        payload,
        error,
        rev,
        *(_known_error(error[:ERROR_LIMIT]) if error else _NO_ERROR),
        queue,
        group,
        word,
        priority,
        destination,
        domain_of(destination) if destination else "",
        *(lease or _NO_LEASE),
        extra_json,
        died,
        runs,
        folded,
        *mail,
    )


_NO_LEASE = (None, None, None, None)


def task_of(row: tuple[Any, ...]) -> Task:
    """Convert a row of `SHOWN` to a task."""
    owner, since, until, token, rev, extra, sender, recipients, account, size, number = row[14:]
    lease = None if owner is None else Lease(owner, since, until, token)
    extras = json.loads(extra) if extra else EMPTY
    state, created = STATES[row[2]], row[3] or 0.0
    data = None  # a store reads the bytes of a task, not the index
    mail = (sender, split_recipients(recipients), account, size)
    if number is not None:
        extras = {**extras, ALL_RECIPIENTS_KEY: str(number)}
    return Task._make(
        (row[0], row[1], state, created, *row[4:13], *mail, row[13], lease, rev, extras, data)
    )


def clean_row(row: Values) -> Values:
    """Make the values of a task valid for SQLite: valid UTF-8, numbers in range."""
    return tuple(
        clean_text(value)
        if isinstance(value, str)
        else max(-_LARGEST, min(_LARGEST, value))
        if isinstance(value, int)
        else value
        for value in row
    )


def clean_text(text: str) -> str:
    """Replace lone surrogates in a text by question marks."""
    return text.encode("utf-8", "replace").decode()


Condition: TypeAlias = tuple[str, tuple[str | int | float | None, ...]]
"""A WHERE condition, and its parameters."""


def query_condition(query: Query, now: float) -> Condition:
    """The condition of a query at `now` (epoch seconds UTC). Typed text is passed as parameters,
    never as SQL."""
    sql, values = filter_condition(query.filter, now)
    if query.state is None:
        return sql, values
    return f"state=? AND {sql}", (STATE_NUMBERS[query.state], *values)


def filter_condition(filter: Filter, now: float) -> Condition:
    """The condition of a filter at `now`."""
    sql = " AND ".join(clause.condition for clause in filter.clauses) or "1"
    return sql, bind_values((v for clause in filter.clauses for v in clause.values), now)


def bind_values(values: Iterable[Value], now: float) -> tuple[str | int | float | None, ...]:
    """The parameters of a filter, as SQLite takes them."""
    return tuple(
        now - value.seconds
        if isinstance(value, RelativeTime)
        else STATE_NUMBERS[value]
        if isinstance(value, State)
        else value
        for value in values
    )


def task_source(query: Query, ids: Collection[str] | None, now: float) -> Condition:
    """The table and the WHERE condition of the tasks of a plan: all that match a query, or those of
    them with these ids."""
    met, values = query_condition(query, now)
    if ids is None:
        # Sorted already: reading by the index is faster than sorting.
        is_sorted = query.state is not None and query.order == "id" and not query.filter
        return f"main.task {'INDEXED BY by_id' if is_sorted else 'NOT INDEXED'} WHERE {met}", values
    return (
        f"main.task INDEXED BY by_id WHERE state IN ({ALL_STATE_NUMBERS}) AND {met} "
        "AND id IN (SELECT value FROM json_each(?))",
        (*values, json.dumps([clean_text(ident) for ident in ids])),
    )


def order_clause(query: Query) -> str:
    """The ORDER BY clause; equal rows are sorted by id."""
    direction = "DESC" if query.descending else "ASC"
    if query.order not in ORDER_COLUMNS:
        raise KeyError(query.order)
    order = "coalesce(runs, attempts)" if query.order == "attempts" else query.order
    columns = dict.fromkeys((order, "id", "queue", "state"))
    last = f"{order} IS NULL, " if query.order in _MAY_LACK else ""
    return f"ORDER BY {last}" + ", ".join(f"{column} {direction}" for column in columns)
