"""Keys between the rows of a list, its details, and what its rows open."""

from __future__ import annotations

from engine.model import State
from tests.tui.desks import a_desk
from tests.tui.spools import a_memory, a_place, a_stuck_lock, a_task, some_tasks
from tui.format import keys
from tui.locks.screen import LockScreen
from tui.queue.screen import QueueScreen
from tui.screens.two_panes import TwoPanes
from tui.task.screen import TaskScreen
from tui.widgets.lines import LongText


async def test_tab_goes_to_the_details_and_back() -> None:
    """After Tab, j scrolls the details, whose title is the focused one; Tab returns to the rows."""
    places = [
        a_place(a_memory(some_tasks()), name=name, lock=a_stuck_lock) for name in ("one", "two")
    ]
    async with a_desk(*places, first=keys.OVERVIEW, size=(80, 16)) as desk:
        board = await desk.opens(TwoPanes, "5")
        await desk.until(lambda: board.query_one(LongText).below)
        at = desk.picker.key

        await desk.press("tab", "j")
        assert board.query_one(LongText).top == 1
        assert board.query_one(LongText).has_class("-focused")
        assert desk.picker.key == at

        await desk.press("tab", "j")
        assert desk.picker.key != at
        assert desk.picker.has_class("-focused")


async def test_tab_goes_to_the_details_of_a_queue() -> None:
    """In a queue Tab leads to the details of the task, and back to the list."""
    task = a_task(1, State.DEAD)._replace(description="a long story " * 40)
    place = a_place(a_memory([task, a_task(2, State.DEAD)]))
    async with a_desk(place, size=(80, 24)) as desk:
        screen = await desk.opens(QueueScreen, "4")
        await desk.until(lambda: screen._details.lines and screen.rows.view.task_here)
        here = screen.rows.view.cursor.id
        await desk.press("tab", "j")
        assert screen._details.has_focus
        assert screen.rows.view.cursor.id == here
        await desk.press("tab", "j")
        assert screen.rows.view.cursor.id != here


async def test_the_next_task_is_opened_from_a_task() -> None:
    """On a task `]` opens the next row of its list and `[` the previous one; the header has its
    position; Esc leads back to the row that was shown last.
    """
    place = a_place(a_memory([a_task(number, State.DEAD) for number in range(3)]))
    async with a_desk(place) as desk:
        queue = await desk.opens(QueueScreen, "4")
        await desk.until(lambda: queue.state is State.DEAD and queue.rows.view.task_here)
        await desk.opens(TaskScreen, "enter")
        await desk.sees("00000000 row 1 of 3")
        await desk.press("right_square_bracket")
        await desk.sees("00000001 row 2 of 3")
        await desk.press("right_square_bracket", "right_square_bracket")
        await desk.sees("00000002 row 3 of 3", "no next row in the list")
        await desk.press("left_square_bracket")
        await desk.sees("00000001 row 2 of 3")
        assert await desk.opens(QueueScreen, "escape") is queue
        assert queue.list.row_words == "row 2 of 3"


async def test_the_next_lock_is_opened_from_a_lock() -> None:
    """On a lock `]` opens the next one of the list of locks."""
    places = [
        a_place(a_memory(some_tasks()), name=name, lock=a_stuck_lock, recovery_command=("true",))
        for name in ("one", "two")
    ]
    async with a_desk(*places, first=keys.OVERVIEW) as desk:
        await desk.press("5")
        await desk.until(lambda: desk.picker.key == "1")
        await desk.opens(LockScreen, "enter")
        await desk.sees("one > lock STUCK row 1 of 2")
        await desk.press("right_square_bracket")
        await desk.sees("two > lock STUCK row 2 of 2")
