"""Copy the tasks of a plan from the index to a table of its own, and compare them later."""

from __future__ import annotations

import json
import os
import sqlite3
import tempfile
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from typing import Any

from engine.index.reader import Reader
from engine.index.schema import (
    STATE_NUMBERS,
    TASK_COLUMNS,
    Query,
    clean_text,
    order_clause,
    task_of,
    task_source,
)
from engine.model import Task
from engine.operations.plan_rows import BY_AGE, CREATE_ROWS, Row, RowTable
from engine.operations.temp_table import TempTable


def freeze_rows(
    reader: Reader,
    query: Query,
    ids: Collection[str] | None,
    now: float,
    recent: float,
    ids_with_note: Collection[str],
    *,
    by_age: bool = False,
) -> RowTable:
    """Copy the tasks of a plan to a temporary table beside the index, within SQLite: in the order
    of the query, or the oldest first.

    Those with a note (`ids_with_note`), or created after `recent`, are suspicious. An id has one
    row.

    Raises:
        sqlite3.Error: the disk is full, or the index is gone."""
    source, values = task_source(query, ids, now)
    file, path = tempfile.mkstemp(prefix="plan-", dir=os.path.dirname(reader.path))
    os.close(file)
    _detach(reader)  # left attached if the disk was full
    try:
        reader.fetch("ATTACH ? AS plan", (path,))
        for pragma in ("page_size=8192", "journal_mode=OFF", "synchronous=OFF"):
            reader.fetch(f"PRAGMA plan.{pragma}")
        reader.fetch(CREATE_ROWS.format(schema="plan"))
        reader.fetch(
            "INSERT INTO plan.planned(id, state, rev, suspicious, created) "
            "SELECT id, state, rev, coalesce(created, 0) > ?, created "
            f"FROM {source} {BY_AGE if by_age else order_clause(query)}",
            (recent, *values),
        )
        if ids_with_note:
            reader.fetch(
                f"UPDATE plan.planned SET suspicious=2 WHERE {_AMONG}",
                (json.dumps([*ids_with_note]),),
            )
        if twice := _repeated_ids(reader, query, is_few=ids is not None):
            reader.fetch(
                f"DELETE FROM plan.planned WHERE {_AMONG} AND place NOT IN "
                f"(SELECT min(place) FROM plan.planned WHERE {_AMONG} GROUP BY id)",
                (json.dumps(twice), json.dumps(twice)),
            )
    except BaseException:
        os.unlink(path)
        raise
    finally:
        _detach(reader)
    return RowTable(TempTable(path))


def read_sharing(
    reader: Reader, query: Query, ids: Collection[str] | None, field: str, now: float
) -> Iterator[Task]:
    """All tasks that have the same value in a field (`Edge.shared_field`) as the tasks of a
    plan."""
    source, values = task_source(query, ids, now)
    column = _SHARED_COLUMNS[field]
    rows = reader.fetch(
        f"SELECT {TASK_COLUMNS} FROM main.task WHERE {column} IN "
        f"(SELECT {column} FROM {source}) ORDER BY {column}, id",
        values,
    )
    return map(task_of, rows)


_SHARED_COLUMNS = {"payload": "payload", "group": "grp"}
"""Columns of the fields that an edge can name."""


def _repeated_ids(reader: Reader, query: Query, *, is_few: bool) -> list[str]:
    """The ids that several tasks have; within a state, only tasks of different queues can. A GROUP
    BY is fast on the index of all ids, or for a few rows."""
    if query.state is not None:
        queued = "SELECT 1 FROM main.task INDEXED BY by_id WHERE state=? AND queue<>'' LIMIT 1"
        if not reader.fetch(queued, (STATE_NUMBERS[query.state],)):
            return []
    table = "plan.planned" if is_few else "main.task"
    rows = reader.fetch(f"SELECT id FROM {table} GROUP BY id HAVING count(*) > 1")
    return [ident for (ident,) in rows]


def _detach(reader: Reader) -> None:
    with suppress(sqlite3.Error):  # not attached
        reader.fetch("DETACH plan")


_AMONG = "id IN (SELECT value FROM json_each(?))"


def differing_rows(reader: Reader, rows: Sequence[Row]) -> list[Row]:
    """Those of some rows whose task is not in the index with the same state and revision."""
    present: set[tuple[Any, ...]] = set()
    for state in {row.state for row in rows}:
        ids = [clean_text(row.id) for row in rows if row.state is state]
        marks = ", ".join("?" * len(ids))
        sql = f"SELECT id, rev FROM task INDEXED BY by_id WHERE state=? AND id IN ({marks})"
        versions = reader.fetch(sql, (STATE_NUMBERS[state], *ids))
        present.update((ident, state, rev) for ident, rev in versions)
    return [row for row in rows if (clean_text(row.id), row.state, row.rev) not in present]
