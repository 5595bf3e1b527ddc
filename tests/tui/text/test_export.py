"""Exports to files, whole or not at all."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from engine.model import Lease, State, Task
from tests.console_places import NOW, a_task
from tests.tables import each
from tui.text import task_row
from tui.text.export import Export, ExportRefused, ExportTable, default_path, path_error

ROWS = [task_row.task_row(a_task(number, State.DEAD), "dlq") for number in range(3)]


def exported(path: Path) -> None:
    """Export all rows into a file."""
    file = Export(str(path), task_row.ROW_FIELDS)
    assert file.write_rows(ROWS[:2], 2, 3) and file.write_rows(ROWS[2:], 3, 3)
    file.finish()


def test_a_file_holds_every_row_in_full(tmp_path: Path) -> None:
    """CSV has a head and a line a row, JSON lines an object a row, with the same columns; only its
    owner may read it."""
    files = csv_file, jsonl = tmp_path / "out.csv", tmp_path / "out.jsonl"
    for path in files:
        exported(path)
    with csv_file.open(newline="") as text:
        read = [(row["id"], row["error"]) for row in csv.DictReader(text)]
    assert read == [(row["id"], row["error"]) for row in ROWS]
    assert [json.loads(line) for line in jsonl.read_text().splitlines()] == [
        {name: row[name] for name in task_row.ROW_FIELDS} for row in ROWS
    ]
    modes = {path: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    assert modes == dict.fromkeys(files, 0o600)


def test_no_cell_is_a_formula() -> None:
    """What a spreadsheet would run arrives as text; control characters do not arrive at all."""
    for begin in ("=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1"):
        text = task_row.csv_lines([{"error": f"{begin}\x1b[31m"}], ["error"])
        cell = next(csv.reader([text.strip("\n")]))[0]
        assert not cell.startswith(("=", "+", "-", "@", "\t", "\r"))
        assert "\x1b" not in cell


def test_a_stopped_export_leaves_nothing(tmp_path: Path) -> None:
    """Esc in the middle: the next rows are refused, and there is no file."""
    file = Export(str(tmp_path / "out.csv"), task_row.ROW_FIELDS)
    assert file.write_rows(ROWS[:1], 1, 3)
    file.is_stopped = True
    assert not file.write_rows(ROWS[1:2], 2, 3)
    assert not list(tmp_path.iterdir())


def test_no_file_is_written_over(tmp_path: Path) -> None:
    """A file that is there stays as it is, whether it was there before or came meanwhile."""
    path = tmp_path / "out.csv"
    path.write_text("mine")
    with pytest.raises(ExportRefused, match="exists already"):
        Export(str(path), task_row.ROW_FIELDS).write_rows(ROWS, 3, 3)
    path.unlink()
    file = Export(str(path), task_row.ROW_FIELDS)
    file.write_rows(ROWS, 3, 3)
    path.write_text("mine, later")
    with pytest.raises(ExportRefused):
        file.finish()
    assert (path.read_text(), list(tmp_path.iterdir())) == ("mine, later", [path])


def test_paths(tmp_path: Path) -> None:
    """A wrong path is refused while it is typed, a missing folder or home when it is opened."""
    sheet = ExportTable("dlq /x", task_row.ROW_FIELDS, lambda take: NotImplemented)
    assert default_path(sheet, NOW) == "spooldeck-dlq--x-20261120T094208Z.csv"
    assert path_error(default_path(sheet, NOW)) == ""
    assert all("expected" in path_error(path) for path in (" ", "tasks.xlsx", "a\0.csv"))
    missing = (f"{tmp_path}/nowhere/out.csv", "No such file or directory")
    for path, why in (missing, ("~nosuchuser/out.csv", "~nosuchuser")):
        with pytest.raises(ExportRefused, match=why):
            Export(path, task_row.ROW_FIELDS).write_rows(ROWS, 3, 3)
    exported(tmp_path / ".csv")
    assert (tmp_path / ".csv").read_text().startswith("id,")


def test_a_cell_is_read_like_its_json() -> None:
    """Lists, objects and flags in a CSV file are written as JSON; an empty list is empty."""
    line = task_row.csv_lines([{"a": ["x", 1], "b": True, "c": [], "d": {"k": None}}], "abcd")
    assert next(csv.reader([line.strip()])) == ['["x", 1]', "true", "", '{"k": null}']


DIED = str(int(NOW))


@each(
    ("task", "times"),
    [
        (
            a_task(1, State.DEAD, created=NOW - 60, extra={"dead_since": DIED}),
            {"created": NOW - 60, "created_at": "2026-11-20T09:41:08Z"}
            | {"since": NOW, "since_at": "2026-11-20T09:42:08Z"},
        ),
        (a_task(1, created=0.0), {"created_at": None, "created": None}),
        # A claim whose begin its store does not know.
        (a_task(1, State.ACTIVE, lease=Lease("PID 8", 0.0)), {"since": None, "since_at": None}),
    ],
)
def test_times_are_readable_and_in_seconds(task: Task, times: dict[str, object]) -> None:
    """An exported task has its times in epoch seconds and in RFC 3339, also of its death; one that
    is not known is null, or empty, and not that of 1970."""
    row = task_row.task_row(task, "any state")
    assert {name: row[name] for name in times} == times
    *_, last = times
    assert task_row.csv_lines([row], ("id", last)).strip() == f"{task.id},{times[last] or ''}"
