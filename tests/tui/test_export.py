"""Exports: what lands in the file, and what is left when it does not."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import pytest

from engine.model import State
from tests.tui.spools import NOW, a_task
from tui import rows
from tui.export import Export, Refused, Sheet, bad_path, usual_path

ROWS = [rows.row(a_task(number, State.DEAD), "dlq") for number in range(3)]


def exported(path: Path) -> None:
    """Export all rows into a file."""
    file = Export(str(path), rows.FIELDS)
    assert file.take(ROWS[:2], 2, 3)
    assert file.take(ROWS[2:], 3, 3)
    file.finish()


def test_a_file_holds_every_row_in_full(tmp_path: Path) -> None:
    """CSV has a head and a line a row, JSON lines an object a row; only its owner may read it."""
    exported(tmp_path / "out.csv")
    exported(tmp_path / "out.jsonl")

    with (tmp_path / "out.csv").open(newline="") as text:
        read = list(csv.DictReader(text))
    assert [(row["id"], row["error"]) for row in read] == [
        (row["id"], row["error"]) for row in ROWS
    ]
    lines = (tmp_path / "out.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == ROWS
    assert {path.name for path in tmp_path.iterdir()} == {"out.csv", "out.jsonl"}
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o600}


def test_no_cell_is_a_formula() -> None:
    """What a spreadsheet would run arrives as text; control characters do not arrive at all."""
    for begin in ("=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1"):
        text = rows.csv_lines([{"error": f"{begin}\x1b[31m"}], ["error"])
        cell = next(csv.reader([text.strip("\n")]))[0]
        assert not cell.startswith(("=", "+", "-", "@", "\t", "\r"))
        assert "\x1b" not in cell


def test_a_stopped_export_leaves_nothing(tmp_path: Path) -> None:
    """Esc in the middle: the next rows are refused, and there is no file."""
    file = Export(str(tmp_path / "out.csv"), rows.FIELDS)
    assert file.take(ROWS[:1], 1, 3)
    file.stopped = True
    assert not file.take(ROWS[1:2], 2, 3)
    assert not list(tmp_path.iterdir())


def test_no_file_is_written_over(tmp_path: Path) -> None:
    """A file that is there stays as it is, whether it was there before or came meanwhile."""
    path = tmp_path / "out.csv"
    path.write_text("mine")
    with pytest.raises(Refused, match="is there already"):
        Export(str(path), rows.FIELDS).take(ROWS, 3, 3)
    path.unlink()

    file = Export(str(path), rows.FIELDS)
    file.take(ROWS, 3, 3)
    path.write_text("mine, later")
    with pytest.raises(Refused):
        file.finish()

    assert path.read_text() == "mine, later"
    assert [left.name for left in tmp_path.iterdir()] == ["out.csv"]


def test_paths() -> None:
    """A path that cannot be meant is refused while it is typed; the usual one never is."""
    sheet = Sheet("dlq /x", rows.FIELDS, lambda take: NotImplemented)
    assert usual_path(sheet, NOW) == "spooldeck-dlq--x-20261120T094208Z.csv"
    assert bad_path(usual_path(sheet, NOW)) == ""
    assert "expected" in bad_path(" ")
    assert "expected" in bad_path("tasks.xlsx")
    assert "expected" in bad_path("a\0.csv")


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    """A folder or a home that does not exist is refused; `.csv` is a name like any other."""
    for path, why in (
        (f"{tmp_path}/nowhere/out.csv", "No such file or directory"),
        ("~nosuchuser/out.csv", "~nosuchuser"),
    ):
        with pytest.raises(Refused, match=why):
            Export(path, rows.FIELDS).take(ROWS, 3, 3)
    exported(tmp_path / ".csv")
    assert (tmp_path / ".csv").read_text().startswith("id,")


def test_what_has_no_age_is_null() -> None:
    """Of a task of which nobody knows since when it is there, a program is told nothing."""
    told = rows.row(replace(a_task(1), created=0.0), "pending")
    assert told["created"] is None
    assert rows.csv_lines([told], ["id", "created"]).strip().endswith(",")
