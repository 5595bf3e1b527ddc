"""The mouse, as with --mouse: what a click on a part of the screen does."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from textual.events import MouseDown, MouseUp

from engine.model import State
from tests.console_operator import ConsoleOperator, an_operator
from tests.console_places import (
    a_memory,
    a_place,
    disk_place,
    make_spool,
    queue_of,
    some_tasks,
    task_list,
)
from tui.app import show_result
from tui.overview.screen import OverviewScreen
from tui.plan.screen import PlanScreen
from tui.queue.screen import QueueScreen
from tui.screens.dialogs import MenuScreen
from tui.task.screen import TaskScreen
from tui.text import keys


async def click_on(operator: ConsoleOperator, text: str, *expected: Any) -> None:
    """Click on the first place below the header that has a text; wait for a screen and texts."""
    lines = operator.text.splitlines()
    y = next(at for at, line in enumerate(lines) if at and text in line)
    await operator.pilot.click(offset=(lines[y].index(text), y))
    await operator.step("", *expected)


async def test_a_click_selects_a_row_and_a_second_one_opens_it() -> None:
    """A click on a title orders, again the other way; below the rows it does nothing. A click on
    the name of a tab or of a part shows it."""
    async with an_operator(a_place(a_memory(some_tasks()))) as operator:
        rows = task_list(operator.console).rows
        await operator.until(lambda: rows.view.cursor.id)
        before = rows.view.cursor.id
        await click_on(operator, "AGE", "vAGE")
        await click_on(operator, "vAGE", "^AGE")
        await click_on(operator, "KIND", "^KIND")
        await click_on(operator, "ID ")
        await operator.until(lambda: rows.view.loaded and "^KIND" not in operator.text)
        assert rows.view.cursor.id == before
        await click_on(operator, "feeds_sync")
        assert rows.view.cursor.at > 0
        assert rows.view.cursor.id != before
        assert isinstance(operator.console.screen, QueueScreen)
        await click_on(operator, rows.view.cursor.id[-8:], TaskScreen)

        await operator.sees("files 1")
        for title in ("files", "summary"):
            await click_on(operator, title)
            await operator.on_part(title)
        await operator.opens(QueueScreen, "escape")
        for name, state in (("dead", State.DEAD), ("problems", None), ("pending", State.PENDING)):
            await click_on(operator, f"{name} ")
            assert queue_of(operator.console).parts.state is state


def _press_and_release(operator: ConsoleOperator, text: str) -> None:
    """Send the app what the terminal reports of a click on a text."""
    lines = operator.text.splitlines()
    y = next(at for at, line in enumerate(lines) if at and text in line)
    at: dict[str, Any] = {"widget": None, "x": lines[y].index(text), "y": y, "button": 1}
    at |= dict.fromkeys(("delta_x", "delta_y"), 0)
    at |= dict.fromkeys(("shift", "meta", "ctrl"), False)
    for event in (MouseDown, MouseUp):
        operator.console.post_message(event(**at))


async def test_a_click_on_a_frozen_picture_only_shows_the_present_one() -> None:
    """It selects nothing, also after a click before it; then clicks act again. The result of an
    operation that ended meanwhile is not lost."""
    async with an_operator(a_place(a_memory(some_tasks()))) as operator:
        rows, picture = task_list(operator.console).rows, operator.console.picture
        await operator.until(lambda: rows.view.cursor.id)
        _press_and_release(operator, "feeds_sync")
        await operator.until(lambda: rows.view.cursor.at > 0)
        before = rows.view.cursor.at
        await operator.press("p")
        assert picture.is_frozen
        (session,) = operator.console.sessions
        session.messages.append("3 purged")
        show_result(operator.console)
        _press_and_release(operator, "mail_send")
        await operator.sees("live: click again")
        assert (rows.view.cursor.at, len(session.messages)) == (before, 1)
        await operator.until(lambda: not picture.is_unseen(time.monotonic()))
        await operator.sees("3 purged")
        _press_and_release(operator, "mail_send")
        await operator.until(lambda: rows.view.cursor.at != before)


async def test_a_click_leads_from_the_overview() -> None:
    """The first click goes to the clicked pane and row, the second one opens it."""
    places = (a_place(a_memory(some_tasks())), a_place(a_memory([]), name="/srv/other"))
    async with an_operator(*places, first=keys.OVERVIEW) as operator:
        await operator.sees("other ", "Alerts 4", "12 dead in 3 clusters")
        await click_on(operator, "other ", OverviewScreen)
        await click_on(operator, "other ", QueueScreen)
        assert operator.console.navigator.session.place.name == "/srv/other"


async def test_a_click_on_a_pane_without_rows_leaves_the_focus(tmp_path: Path) -> None:
    """The pane with the cursor keeps it."""
    make_spool(tmp_path, some_tasks())
    async with an_operator(disk_place(tmp_path), first=keys.OVERVIEW, size=(200, 60)) as operator:
        screen = operator.console.screen
        assert isinstance(screen, OverviewScreen)
        await operator.sees("12 dead in 3 clusters", "none in the last 24 hours")
        await operator.press("tab")
        before = screen.parts.focus.pane
        await click_on(operator, "none in the last 24 hours")
        assert screen.parts.focus.pane == before


async def test_a_click_on_a_hint_presses_its_key() -> None:
    """Also in a menu; a hint for several keys, or one that is refused, does nothing."""
    async with an_operator(a_place(a_memory(some_tasks())), size=(300, 24)) as operator:
        await click_on(operator, "o order", MenuScreen)
        await click_on(operator, "k kind", QueueScreen)
        await operator.until(lambda: queue_of(operator.console).parts.query.order == "kind")
        await click_on(operator, "U unlock", QueueScreen)  # this place has no lock
        await click_on(operator, "! disarm", "OBSERVE: plans can be viewed")
        queue_of(operator.console).say("")  # the message is in place of the hints
        await operator.sees("! arm")
        await click_on(operator, "O promote", PlanScreen)
        await click_on(operator, "discard", QueueScreen)
