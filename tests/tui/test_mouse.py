"""The mouse, as with --mouse: what a click on a part of the screen does."""

from __future__ import annotations

from pathlib import Path

from engine.model import State
from tests.console_operator import Desk, a_desk
from tests.console_places import (
    a_memory,
    a_place,
    disk_place,
    make_spool,
    queue_of,
    some_tasks,
    task_list,
)
from tui.format import keys
from tui.overview.screen import OverviewScreen
from tui.plan.screen import PlanScreen
from tui.queue.screen import QueueScreen
from tui.screens.menu import MenuScreen
from tui.task.screen import TaskScreen


async def click_on(desk: Desk, text: str) -> None:
    """Click on the first place below the header where the screen shows a text."""
    lines = desk.text.splitlines()
    y = next(at for at, line in enumerate(lines) if at and text in line)
    await desk.pilot.click(offset=(lines[y].index(text), y))


async def test_a_click_selects_a_row_and_a_second_one_opens_it() -> None:
    """On the list and on the overview; a click on the titles or below the rows does nothing."""
    async with a_desk(a_place(a_memory(some_tasks()))) as desk:
        rows = task_list(desk.console).rows
        await desk.until(lambda: rows.view.cursor.id)
        before = rows.view.cursor.id
        await click_on(desk, "AGE")
        assert rows.view.cursor.id == before
        await click_on(desk, "feeds_sync")
        assert rows.view.cursor.at > 0
        assert rows.view.cursor.id != before
        assert isinstance(desk.console.screen, QueueScreen)
        await click_on(desk, rows.view.cursor.id[-8:])
        await desk.opens(TaskScreen)


async def test_a_click_leads_from_the_overview() -> None:
    """The first click goes to the clicked pane and row, the second one opens it."""
    places = (a_place(a_memory(some_tasks())), a_place(a_memory([]), name="/srv/other"))
    async with a_desk(*places, first=keys.OVERVIEW) as desk:
        await desk.sees("other ", "Alerts 3 of 4", "12 dead in 3 clusters")
        await click_on(desk, "other ")
        assert isinstance(desk.console.screen, OverviewScreen)
        await click_on(desk, "other ")
        await desk.opens(QueueScreen)
        assert desk.console.navigator.session.place.name == "/srv/other"


async def test_a_click_on_a_pane_without_rows_leaves_the_focus(tmp_path: Path) -> None:
    """The pane with the cursor keeps it."""
    make_spool(tmp_path, some_tasks())
    async with a_desk(disk_place(tmp_path), first=keys.OVERVIEW, size=(200, 60)) as desk:
        screen = desk.console.screen
        assert isinstance(screen, OverviewScreen)
        await desk.sees("12 dead in 3 clusters", "none in the last 24 hours")
        await desk.press("tab")
        before = screen._pane
        await click_on(desk, "none in the last 24 hours")
        assert screen._pane == before


async def test_a_click_switches_tabs_and_parts() -> None:
    """A click on the name of a tab or of a part shows it."""
    async with a_desk(a_place(a_memory(some_tasks()))) as desk:
        for name, state in (("dead", State.DEAD), ("problems", None), ("pending", State.PENDING)):
            await click_on(desk, f"{name} ")
            assert queue_of(desk.console).state is state
        await desk.opens(TaskScreen, "enter")
        await desk.sees("files 1")
        for title in ("files", "summary"):
            await click_on(desk, title)
            await desk.on_part(title)


async def test_a_click_on_a_hint_presses_its_key() -> None:
    """Also in a menu; a hint for several keys, or one that is refused, does nothing. A narrow
    screen leaves some out.
    """
    async with a_desk(a_place(a_memory(some_tasks())), size=(300, 24)) as desk:
        await click_on(desk, "o order")
        await desk.opens(MenuScreen)
        await click_on(desk, "k kind")
        await desk.opens(QueueScreen)
        await desk.until(lambda: queue_of(desk.console).tab_query.order == "kind")
        await click_on(desk, "U unlock")  # this place has no lock
        assert isinstance(desk.console.screen, QueueScreen)
        await click_on(desk, "! disarm")
        await desk.sees("OBSERVE: plans can be viewed")
        queue_of(desk.console).say("")  # the message is in place of the hints
        await desk.sees("! arm")
        await click_on(desk, "O promote")
        await desk.opens(PlanScreen)
        await click_on(desk, "discard")
        await desk.opens(QueueScreen)
