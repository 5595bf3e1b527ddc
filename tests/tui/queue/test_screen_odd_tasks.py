"""A queue at the limits of its format, and an index whose disk is full: each answer is right."""

from __future__ import annotations

import asyncio
import json
import os
from contextvars import Context
from pathlib import Path
from typing import Any

import pytest

from engine.index.schema import MAX_TEXT_CHARS
from engine.index.writer import Writer
from engine.live import index_sync
from engine.model import State
from tests.console_operator import an_operator
from tests.console_places import Clock, disk_place, is_done, queue_of, task_list
from tests.examples import IS_DEEP
from tests.nftban_queues import Run
from tests.tui.queue.odd_tasks import CREATED, OddTasks, ident_of, write_odd_tasks
from tui.plan.screen import PlanScreen
from tui.screens.help import HelpScreen

COUNT = int(os.environ.get("SPOOLDECK_ODD_TASKS", "20000" if IS_DEEP else "5000"))
"""Files of the deep test; `SPOOLDECK_ODD_TASKS=1000000` for a million."""
HUGE = 10
"""One of so many tasks has an error of 60,000 bytes."""
LATER = float(CREATED + 3600)

AMOUNTS = [300, pytest.param(COUNT, marks=pytest.mark.deep)]


@pytest.fixture
def odd_tasks(root: str, request: pytest.FixtureRequest) -> OddTasks:
    """What was put into the queue at `root`."""
    return write_odd_tasks(Path(root, "queue", "pending"), request.param, HUGE)


@pytest.mark.parametrize("odd_tasks", AMOUNTS, indirect=True)
def test_commands_count_odd_tasks_right(root: str, odd_tasks: OddTasks, spooldeck: Run) -> None:
    """`status`, `queue list`, `clusters` and `overview` show each task once, whole, and each
    problem, however long names and errors are and how many tasks are due in one second."""

    def rows(*words: str) -> list[Any]:
        return [json.loads(line) for line in spooldeck(*words, "--json").stdout.splitlines()]

    (status,) = rows("--root", root, "status")
    assert status["tasks"]["pending"] >= odd_tasks.tasks
    listed = rows("--root", root, "queue", "list")
    assert len({task["id"] for task in listed}) == len(listed) == odd_tasks.tasks
    assert {len(task["error"]) > MAX_TEXT_CHARS for task in listed} == {True, False}
    assert sum(row["count"] for row in rows("clusters", root)) == odd_tasks.tasks
    (overview,) = rows("overview", root)
    (place,) = overview["places"]
    assert place["tasks"]["pending"] == odd_tasks.tasks
    assert f"{odd_tasks.broken + odd_tasks.misnamed:,} problems" in json.dumps(overview)


@pytest.mark.parametrize("odd_tasks", AMOUNTS, indirect=True)
async def test_a_console_of_odd_tasks_filters_and_plans(root: str, odd_tasks: OddTasks) -> None:
    """The list opens, a filter finds one task by its host, and a plan of all has each task; rows
    have the beginning of a huge error and its length."""
    clock = Clock(LATER)
    async with an_operator(disk_place(Path(root), clock=clock), clock=clock) as operator:
        list_ = task_list(operator.console)
        inspector = queue_of(operator.console).session.inspector
        latest = inspector.latest
        assert latest.counts[State.PENDING] == odd_tasks.tasks
        assert latest.problems == odd_tasks.broken + odd_tasks.misnamed
        huge = await inspector.queries.task(ident_of(HUGE))
        assert huge is not None and huge.error.endswith("... (60,000 characters)")
        assert len(huge.error) < MAX_TEXT_CHARS + 50
        plan = await inspector.queries.make_plan("hold", None, list_.rows.view.query)
        ids = await asyncio.to_thread(lambda: {row.id for row in plan.rows})
        assert len(ids) == len(plan.rows) == odd_tasks.tasks
        screen = await operator.opens(PlanScreen, "*", "H")
        await operator.sees(f"{odd_tasks.tasks:,}")
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
    write_odd_tasks(Path(root, "queue", "pending"), 3000, 3001)
    pages = [30]

    class SmallWriter(Writer):
        def __init__(self, path: str) -> None:
            super().__init__(path)
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
