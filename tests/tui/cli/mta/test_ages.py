"""`mta ages` beside recorded tables of qshape; test_mta.py has those of a real server."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from engine.formats.postfix.lines import NO_ACCOUNTS, parse_line, parse_task
from engine.index.age_table import AgeRow, Ages, query_ages
from engine.index.reader import Reader
from engine.index.schema import Query
from engine.index.writer import Writer
from engine.model import State, Task, attempts_allowed
from engine.programs.mail_server import ListedMail
from tests.tables import each
from tui.cli.mta.ages import table_lines

GOLDEN = Path(__file__).parents[3] / "golden" / "postfix"
NOW = 1_795_825_113.0
"""When the tables and the listing were made."""


def listed_tasks() -> list[Task]:
    """The tasks of the listing."""
    tasks = []
    for line in (GOLDEN / "postqueue-j.74.jsonl").read_bytes().splitlines():
        mail = parse_line(1, line)
        assert isinstance(mail, ListedMail)
        task = parse_task(
            mail.id, mail.record, lambda *_: False, None, NO_ACCOUNTS, has_times=False
        )
        assert isinstance(task, Task)
        tasks.append(task)
    return tasks


def ages_of(tasks: list[Task], by: str, tmp_path: Path) -> Ages:
    """The ages of pending tasks."""
    path = str(tmp_path / "index")
    with closing(Writer(path, attempts_allowed)) as writer, closing(Reader(path)) as reader:
        writer.add_scanned(tasks)
        return query_ages(reader, Query(State.PENDING), by, NOW, most=-1)


def rows_of(text: str) -> list[list[str]]:
    """The words of each row below the titles; rows of one count are in no order."""
    return sorted(line.split() for line in text.splitlines()[1:])


@each(
    ("by", "file"),
    [("destination", "qshape.deferred.txt"), ("sender-domain", "qshape-s.deferred.txt")],
)
def test_a_table_has_the_rows_of_qshape(by: str, file: str, tmp_path: Path) -> None:
    """A recorded listing gives the recorded tables, in their width and order."""
    theirs = (GOLDEN / file).read_text()
    ours = list(table_lines("deferred", ages_of(listed_tasks(), by, tmp_path)))
    assert rows_of("\n".join(ours)) == rows_of(theirs)
    unit = "recipients" if by == "destination" else "tasks"
    assert ours[0].split() == ["deferred,", unit, *theirs.splitlines()[0].split()]
    assert [len(line) for line in ours] == [len(theirs.splitlines()[0])] * len(ours)
    counts = [int(line.split()[1]) for line in ours[1:]]
    assert counts == sorted(counts, reverse=True)


def test_a_long_name_keeps_its_end(tmp_path: Path) -> None:
    """As in qshape: a name that is too long begins with a plus sign."""
    name = f"{'x' * 90}.example.test"
    task = Task("a", "mail", State.PENDING, NOW, sender="a@b", recipients=(f"u@{name}",))
    (_, _, row) = table_lines("deferred", ages_of([task], "destination", tmp_path))
    assert len(row) == 80
    shown = row.split()[0]
    assert shown[0] == "+"
    assert name.endswith(shown[1:])


@pytest.mark.parametrize("total", [7, 1_234_567])
def test_columns_have_room_for_their_numbers(total: int) -> None:
    """Columns are one cell wider than the largest number, at least three cells."""
    row = AgeRow("TOTAL", (total,) + (0,) * 9)
    lines = list(table_lines("deferred", Ages("sender", (row,), row, 0)))
    assert {len(line) for line in lines} == {80}
    assert f" {total} " in lines[1]
