"""A queue at the limits of its format, and an index whose disk is full: each answer is right."""

from __future__ import annotations

import asyncio
import json
import os
from contextvars import Context
from pathlib import Path
from typing import Any

import pytest

from engine.formats.nftban.task_format import new_record, render_task
from engine.index.schema import MAX_TEXT_CHARS
from engine.index.writer import Writer
from engine.live import index_sync
from engine.model import AttemptLimit, State, Task
from tests.console_operator import an_operator
from tests.console_places import Clock, disk_place, is_done, queue_of, task_list
from tests.examples import IS_DEEP
from tests.nftban_queues import Run
from tui.plan.screen import PlanScreen
from tui.screens.help import HelpScreen

CREATED = 1_795_239_223
ERROR_BYTES = 60_000
"""Bytes of an error in a file that is only just read: the limit of a task file is 64 KiB."""
COUNT = int(os.environ.get("SPOOLDECK_ODD_TASKS", "20000" if IS_DEEP else "5000"))
"""Files of the deep test; `SPOOLDECK_ODD_TASKS=1000000` for a million."""
HUGE = 10
"""One of so many tasks has an error of 60,000 bytes."""
LATER = float(CREATED + 3600)

AMOUNTS = [300, pytest.param(COUNT, marks=pytest.mark.deep)]


def ident_of(number: int) -> str:
    """An id of 160 characters, the longest there is."""
    return f"20261121T053343Z-report-{number:08x}-".ljust(160, "a")


def write_odd_tasks(root: str, count: int, huge: int) -> tuple[int, int]:
    """Write `count` files, of which every so many-th (`huge`) has an error of `ERROR_BYTES`; one of
    100 ends in the middle, one has a name of 255 bytes. The number of the tasks, each with its own
    host in its error, all due in the same second, and that of the other files."""
    folder = os.open(Path(root, "queue", "pending"), os.O_RDONLY)
    for number in range(count):
        task = Task(
            ident_of(number),
            "report",
            State.PENDING,
            float(CREATED),
            due=float(CREATED),
            attempts=1,
            description=f"report {number}",
            error="to replace",
        )
        error = f"421 mx{number}.example.net said no ".ljust(ERROR_BYTES * (not number % huge), "e")
        data = render_task(new_record(task)).replace(b"to replace", error.encode())
        name = f"{task.id}.task" if number % 100 != 1 else f"{number}.".ljust(250, "b") + ".task"
        fd = os.open(name, os.O_WRONLY | os.O_CREAT, 0o640, dir_fd=folder)
        os.write(fd, data if number % 100 else data[: len(data) // 2])
        os.close(fd)
    os.close(folder)
    problems = sum(number % 100 < 2 for number in range(count))
    return count - problems, problems


@pytest.fixture
def odd_tasks(root: str, request: pytest.FixtureRequest) -> tuple[int, int]:
    """How many tasks and problems were put into the queue at `root`."""
    return write_odd_tasks(root, request.param, HUGE)


@pytest.mark.parametrize("odd_tasks", AMOUNTS, indirect=True)
def test_commands_count_odd_tasks_right(
    root: str, odd_tasks: tuple[int, int], spooldeck: Run
) -> None:
    """`status`, `queue list`, `clusters` and `overview` show each task once, whole, and each
    problem, however long names and errors are and how many tasks are due in one second."""

    tasks, problems = odd_tasks

    def rows(*words: str) -> list[Any]:
        return [json.loads(line) for line in spooldeck(*words, "--json").stdout.splitlines()]

    (status,) = rows("--root", root, "status")
    assert status["tasks"]["pending"] >= tasks
    listed = rows("--root", root, "queue", "list")
    assert len({task["id"] for task in listed}) == len(listed) == tasks
    assert {len(task["error"]) > MAX_TEXT_CHARS for task in listed} == {True, False}
    assert sum(row["count"] for row in rows("clusters", root)) == tasks
    (overview,) = rows("overview", root)
    (place,) = overview["places"]
    assert place["tasks"]["pending"] == tasks
    assert f"{problems:,} problems" in json.dumps(overview)


@pytest.mark.parametrize("odd_tasks", AMOUNTS, indirect=True)
async def test_a_console_of_odd_tasks_filters_and_plans(
    root: str, odd_tasks: tuple[int, int]
) -> None:
    """The list opens, a filter finds one task by its host, and a plan of all has each task; rows
    have the beginning of a huge error and its length."""
    clock, (tasks, problems) = Clock(LATER), odd_tasks
    async with an_operator(disk_place(Path(root), clock=clock), clock=clock) as operator:
        list_ = task_list(operator.console)
        inspector = queue_of(operator.console).session.inspector
        latest = inspector.latest
        assert (latest.counts[State.PENDING], latest.problems) == (tasks, problems)
        huge = await inspector.queries.task(ident_of(HUGE))
        assert huge is not None and huge.error.endswith("... (60,000 characters)")
        assert len(huge.error) < MAX_TEXT_CHARS + 50
        plan = await inspector.queries.make_plan("hold", None, list_.rows.view.query)
        ids = await asyncio.to_thread(lambda: {row.id for row in plan.rows})
        assert len(ids) == len(plan.rows) == tasks
        screen = await operator.opens(PlanScreen, "*", "H")
        await operator.sees(f"{tasks:,}")
        await operator.press("escape")
        await operator.until(lambda: not screen.is_attached and is_done(operator.console))
        Context().run(screen._facts_changed)  # as the thread does that measures a large plan
        await operator.press("slash")
        await operator.until(lambda: is_done(operator.console))
        await operator.types("mx77.example")
        await operator.until(lambda: list_.rows.view.total == 1)
        await operator.sees("report 77")


async def test_a_full_disk_for_the_index_is_one_line(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the index cannot grow, the list shows why in one line and keys work; once there is space,
    it is filled."""
    write_odd_tasks(root, 3000, 3001)
    pages = [30]

    class SmallWriter(Writer):
        def __init__(self, path: str, limit: AttemptLimit) -> None:
            super().__init__(path, limit)
            if pages:
                self._db.execute(f"PRAGMA max_page_count={pages[0]}").fetchall()

    monkeypatch.setattr(index_sync, "Writer", SmallWriter)
    monkeypatch.setattr(index_sync, "RETRY_SECONDS", 0.2)
    place = disk_place(Path(root), clock=Clock(LATER))
    async with an_operator(place, clock=Clock(LATER), early=True) as operator:
        await operator.sees("database or disk is full")
        assert operator.text.count("is full") == 1
        await operator.opens(HelpScreen, "question_mark")
        await operator.press("escape")
        await operator.until(lambda: operator.console.screen is queue_of(operator.console))
        pages.clear()
        await operator.until(lambda: task_list(operator.console).rows.view.total == 2940)
        await operator.until(lambda: "is full" not in operator.text)
