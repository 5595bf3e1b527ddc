"""The task list: its cursor, its view, and what it does while tasks come and go."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence

import pytest
from textual.app import App, ComposeResult
from textual.pilot import Pilot

from engine.index.filter_language import parse_filter
from engine.index.schema import Query, Window
from engine.model import State, Task
from tests.console_places import NOW, Clock, a_task
from tui.widgets.list_view import CursorPosition
from tui.widgets.task_list import TaskList
from tui.widgets.task_rows import HOLD_SECONDS, TaskRows

pytestmark = pytest.mark.usefixtures("no_ghosts")

HEIGHT = 10
"""Rows on screen, besides the titles."""


@pytest.fixture
def no_ghosts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that leave are gone as soon as the order is not held."""
    monkeypatch.setattr("tui.widgets.task_rows.GHOST_SECONDS", 0.0)


class Numbers:
    """A result of so many tasks that are made when they are asked for."""

    def __init__(self, amount: int) -> None:
        self.numbers: Sequence[int] = range(amount)
        self.asked: list[tuple[int, int]] = []
        self.may_count = asyncio.Event()
        self.may_count.set()
        self.flow: Iterator[Sequence[int]] = iter(())
        """What the result is after each question."""

    async def window(self, query: Query, start: int, size: int, *, counts: bool = True) -> Window:
        """Some of them; a search is counted once `may_count` is set."""
        self.asked.append((start, size))
        stored_tasks = self._of(query)
        if query.filter and counts:
            await self.may_count.wait()
        elif query.filter and len(stored_tasks) > size:
            return Window(
                tuple(a_task(n) for n in stored_tasks[:size]), 0, size, 0, is_counted=False
            )
        start = max(0, min(start, len(stored_tasks) - size))
        tasks = tuple(a_task(n) for n in stored_tasks[start : start + size])
        self._flow_on()
        return Window(tasks, start, len(stored_tasks), 0)

    async def find(self, query: Query, id: str) -> int | None:
        """Where one of them stands."""
        tasks = self._of(query)
        number = int(id[-8:], 16)
        self._flow_on()
        return tasks.index(number) if number in tasks else None

    async def task(self, id: str) -> Task | None:
        """One of them, if it is there."""
        number = int(id[-8:], 16)
        return a_task(number) if number in self.numbers else None

    def _flow_on(self) -> None:
        self.numbers = next(self.flow, self.numbers)

    def _of(self, query: Query) -> Sequence[int]:
        if not query.filter:
            return self.numbers
        return [n for n in self.numbers if query.filter.text in a_task(n).id]


class Bare(App[None]):
    """Nothing but a list."""

    CSS = f"TaskList {{ height: {HEIGHT + 1}; }}"

    def __init__(self, rows: Numbers, clock: Clock) -> None:
        super().__init__()
        self.list = TaskList(TaskRows(rows, clock), clock)
        self.said: list[str] = []

    def compose(self) -> ComposeResult:
        """The list."""
        yield self.list

    def get_theme_variable_defaults(self) -> dict[str, str]:
        """No look but the terminal's."""
        return {}

    def on_task_list_vanished(self, event: TaskList.Vanished) -> None:
        """Remember it."""
        self.said.append(event.id)


class Held:
    """A list under test, with its rows and its clock."""

    def __init__(self, amount: int) -> None:
        self.rows, self.clock = Numbers(amount), Clock()
        self.app = Bare(self.rows, self.clock)
        self.list = self.app.list

    async def ready(self, pilot: Pilot[None]) -> None:
        """Until it shows what it was asked for."""
        self.list.rows.show_query(Query(State.PENDING), CursorPosition())
        await self.rest(pilot)

    async def rest(self, pilot: Pilot[None]) -> None:
        """Until nothing is being fetched."""
        for _ in range(5):
            await pilot.pause()

    async def hands_rest(self, pilot: Pilot[None]) -> None:
        """Until the order is no longer held."""
        self.clock.now += HOLD_SECONDS + 1
        self.list.tick(self.clock.now)
        await self.rest(pilot)

    def watch_paint(self) -> list[int]:
        """The lines that are painted from now on."""
        painted: list[int] = []
        setattr(self.list, "repaint_lines", painted.extend)  # noqa: B010 - a method, watched
        return painted

    @property
    def number(self) -> int:
        """Which task the cursor is on."""
        return int(self.list.rows.view.cursor.id[-8:], 16)

    @property
    def line(self) -> int:
        """On which row of the screen the cursor is."""
        return self.list.rows.view.cursor.at - self.list.rows.view.cursor.top

    def row(self, y: int) -> str:
        """The text of a row of the screen."""
        return self.list.render_line(y + 1).text


MOVES = (
    (["down"], 1),
    (["down", "down", "up"], 1),
    (["up"], 0),
    (["last"], 999_999),
    (["last", "first"], 0),
    (["last", "page_down"], 999_999),
    (["page_down"], HEIGHT),
    (["page_down", "page_down", "page_up"], HEIGHT),
    (["last", "page_up"], 999_999 - HEIGHT),
)


async def test_moving() -> None:
    """Each motion leads where it says, also among a million tasks, and never beyond an end; only
    about three pages of them are asked for.
    """
    held = Held(1_000_000)
    async with held.app.run_test() as pilot:
        await held.ready(pilot)
        for moves, at in MOVES:
            for move in ("first", *moves):
                held.list.move(move)
                await held.rest(pilot)
            assert (held.list.rows.view.cursor.at, held.number) == (at, at), moves
            assert f"{at:08x}" in held.row(held.line)

        assert max(size for _, size in held.rows.asked) == 3 * HEIGHT


async def test_a_list_that_is_opened_on_a_task_that_has_left_says_so() -> None:
    """The cursor is on another row then, and the id of the task is reported, once."""
    held = Held(3)
    async with held.app.run_test() as pilot:
        held.list.rows.show_query(Query(State.PENDING), CursorPosition(id=a_task(7).id))
        await held.rest(pilot)
        assert (held.app.said, held.number) == ([a_task(7).id], 0)
        held.list.rows.show_query(Query(State.PENDING), CursorPosition(id=a_task(2).id))
        await held.rest(pilot)
        assert (held.app.said, held.number) == ([a_task(7).id], 2)


async def test_before_the_first_motion_the_cursor_passes_rows_that_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They stay on screen for their time, but a busy list has a cursor on a task that is there."""
    monkeypatch.setattr("tui.widgets.task_rows.GHOST_SECONDS", 60.0)
    held = Held(9)
    async with held.app.run_test() as pilot:
        await held.ready(pilot)
        held.rows.numbers = range(2, 9)
        held.list.rows.store_changed()
        await held.rest(pilot)
        assert (held.number, held.line) == (2, 2)
        assert "left" in held.row(0) and "left" in held.row(1)


async def test_the_view_jumps_at_its_edge() -> None:
    """At the last row the view goes on by a third of a page, so that the next steps need none."""
    held = Held(100)
    async with held.app.run_test() as pilot:
        await held.ready(pilot)
        for _ in range(HEIGHT):
            held.list.move("down")
        await held.rest(pilot)

        assert held.list.rows.view.cursor.at == HEIGHT
        assert held.list.rows.view.cursor.top == HEIGHT // 3


async def test_the_cursor_is_a_task() -> None:
    """Tasks that come before it move the cursor's place, neither its task nor its row on screen."""
    held = Held(100)
    async with held.app.run_test() as pilot:
        held.rows.numbers = range(20, 100)
        await held.ready(pilot)
        for _ in range(5):
            held.list.move("down")
        await held.hands_rest(pilot)

        held.rows.numbers = range(100)
        held.list.rows.store_changed()
        await held.rest(pilot)

        assert (held.number, held.list.rows.view.cursor.at, held.line) == (25, 25, 5)


async def test_a_task_that_leaves_hands_the_cursor_on() -> None:
    """When the task under the cursor leaves, the cursor is on its neighbour, and that is said."""
    held = Held(100)
    async with held.app.run_test() as pilot:
        await held.ready(pilot)
        held.list.move("down")
        await held.hands_rest(pilot)

        held.rows.numbers = [0, *range(2, 100)]
        held.list.rows.store_changed()
        await held.rest(pilot)

        assert held.number == 2
        assert held.app.said == [a_task(1).id]


async def test_the_cursor_stays_on_its_task_after_any_change_between_two_queries() -> None:
    """Tasks that come while its place is looked for do not push the cursor to a neighbour."""
    held = Held(0)
    held.rows.numbers = range(100, 200)
    async with held.app.run_test(size=(80, HEIGHT + 1)) as pilot:
        await held.ready(pilot)
        for _ in range(5):
            held.list.move("down")
        await held.rest(pilot)
        held.rows.numbers = range(40, 200)
        held.rows.flow = (range(first, 200) for first in range(39, 29, -1))
        held.list.rows.store_changed()
        await held.hands_rest(pilot)

        assert (held.number, held.app.said) == (105, [])


async def test_a_cursor_whose_task_cannot_be_found_again_is_handed_on_aloud(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where the result changes too fast to find the task in it, no key is for another one."""
    monkeypatch.setattr("tui.widgets.task_rows.UNSEEN_SECONDS", 60.0)
    held = Held(100)
    async with held.app.run_test(size=(80, HEIGHT + 1)) as pilot:
        await held.ready(pilot)
        held.list.move("down")
        await held.rest(pilot)
        # Wherever it is said to stand, it is never in the window that is fetched then.
        ranges = [range(200, 300), range(-400, 100)]
        held.rows.numbers = ranges[0]
        held.rows.flow = (ranges[n % 2] for n in range(6))
        held.list.rows.store_changed()
        await held.hands_rest(pilot)

        assert held.number != 1
        assert held.app.said == [a_task(1).id]
        assert held.list.rows.is_unseen


async def test_an_unmoved_cursor_stays_at_the_top() -> None:
    """On a queue that flows, tasks leave under a cursor that was not put there: no word of it."""
    held = Held(100)
    async with held.app.run_test() as pilot:
        await held.ready(pilot)
        for first in range(1, 4):
            held.rows.numbers = range(first, 100)
            held.list.rows.store_changed()
            await held.rest(pilot)

        assert held.number == 3
        assert held.app.said == []


async def test_rows_are_not_made_again_when_only_more_of_them_arrive() -> None:
    """Their columns are the same as long as nothing has another width."""
    held = Held(200)
    async with held.app.run_test() as pilot:
        await held.ready(pilot)
        width = held.list.size.width
        columns, line = held.list._shape(width), held.list._line(1, width)
        held.list.rows.store_changed()
        await held.rest(pilot)
        assert held.list._shape(width) is columns
        assert held.list._line(1, width) is line


async def test_during_the_scan_the_cursor_is_the_first_row(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is found first is at the top by chance: an unmoved cursor is no such task.

    A key pressed at the moment when another row comes under it means the one before. Once
    everything is known the cursor is its task, with any rows above it.
    """
    monkeypatch.setattr("tui.widgets.task_rows.UNSEEN_SECONDS", 60.0)
    held = Held(0)
    async with held.app.run_test() as pilot:
        held.list.rows.is_first_scan = True
        held.rows.numbers = [199]
        await held.ready(pilot)
        assert (held.number, held.list.rows.is_unseen) == (199, False)

        for first in (150, 30):
            held.rows.numbers = range(first, 200)
            held.list.rows.store_changed()
            await held.rest(pilot)
            assert (held.number, held.list.rows.view.cursor.at, held.line) == (first, 0, 0)
            assert held.list.rows.is_unseen
            assert held.list.rows.view.saved_position == CursorPosition()

        held.list.rows.is_first_scan = False
        held.rows.numbers = range(20, 200)
        held.list.rows.store_changed()
        await held.rest(pilot)
        assert (held.number, held.list.rows.view.cursor.at) == (20, 0)

        held.rows.numbers = range(200)
        held.list.rows.store_changed()
        await held.rest(pilot)
        assert (held.number, held.list.rows.view.cursor.at, held.app.said) == (20, 20, [])
        assert held.list.rows.view.saved_position == held.list.rows.view.cursor


@pytest.mark.parametrize(
    "put",
    [
        lambda list: list.move("down"),
        lambda list: list.rows.pin_cursor(),
        lambda list: list.rows.set_range(True),
        lambda list: list.rows.show_query(Query(State.PENDING), CursorPosition(id=a_task(150).id)),
    ],
    ids=["moved", "a key meant its task", "a range begins there", "opened on it"],
)
async def test_a_cursor_that_was_put_on_a_task_stays_there_while_more_is_found(
    put: Callable[[TaskList], None],
) -> None:
    """Once a task was meant the cursor is that task, also before everything is known."""
    held = Held(0)
    async with held.app.run_test() as pilot:
        held.list.rows.is_first_scan = True
        held.rows.numbers = range(100, 200)
        await held.ready(pilot)
        put(held.list)
        await held.hands_rest(pilot)
        meant = held.number

        held.rows.numbers = range(20, 200)
        held.list.rows.store_changed()
        await held.hands_rest(pilot)

        assert (held.number, held.list.rows.view.cursor.at) == (meant, meant - 20)
        assert (held.app.said, held.list.rows.is_unseen) == ([], False)
        assert held.list.rows.view.saved_position == held.list.rows.view.cursor


async def test_the_order_is_held_while_hands_move() -> None:
    """For a moment after a motion no row moves; what came is counted, and what left is a ghost."""
    held = Held(100)
    async with held.app.run_test() as pilot:
        held.rows.numbers = range(20, 100)
        await held.ready(pilot)
        held.list.move("down")
        before = [held.row(y)[3:13] for y in range(HEIGHT)]

        held.rows.numbers = [*range(10), 20, *range(22, 100)]
        held.list.rows.store_changed()
        await held.rest(pilot)

        assert [held.row(y)[3:13] for y in range(HEIGHT)] == before
        assert "left: " in held.row(1)
        assert held.list.rows.view.is_gone
        assert held.list.rows.view.task_here is None
        assert held.list.rows.view.fresh == 10

        await held.hands_rest(pilot)

        assert held.number == 22
        assert not held.list.rows.view.is_gone


async def test_a_change_is_read_once_while_the_order_is_held() -> None:
    """Keys after it ask for no rows, also near the edge of those that were read."""
    held = Held(100)
    async with held.app.run_test() as pilot:
        await held.ready(pilot)
        held.list.move("down")
        held.list.rows.store_changed()
        await held.rest(pilot)
        asked = len(held.rows.asked)
        for _ in range(25):
            held.list.move("down")
            await held.rest(pilot)

        assert held.list.rows.view.is_near_edge(HEIGHT)
        assert len(held.rows.asked) == asked


async def test_a_clock_that_is_set_back_holds_nothing_for_long() -> None:
    """The order is held for seconds by the clock, and not at all by one that jumped back."""
    held = Held(100)
    async with held.app.run_test() as pilot:
        await held.ready(pilot)
        held.list.move("down")
        held.clock.now -= 86400
        held.rows.numbers = range(2, 100)
        held.list.rows.store_changed()
        await held.rest(pilot)

        assert held.number == 3 or held.number == 2


async def test_a_filter_keeps_the_cursor_if_it_can() -> None:
    """With other words the cursor stays on its task if that still matches, else goes to the top."""
    held = Held(100)
    async with held.app.run_test() as pilot:
        await held.ready(pilot)
        for _ in range(0x15):
            held.list.move("down")

        held.list.rows.show_query(Query(State.PENDING, parse_filter("00000015")))
        await held.rest(pilot)
        assert (held.number, held.list.rows.view.total) == (0x15, 1)

        held.list.rows.show_query(Query(State.PENDING, parse_filter("-0000002")))
        await held.rest(pilot)
        assert (held.number, held.list.rows.view.total) == (0x20, 16)
        assert held.app.said == []


async def test_a_search_shows_its_first_rows_before_they_are_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first rows of a search are shown with `?` for their number; a motion to the last row
    waits for it. Another filter ends the count of the one before.
    """
    monkeypatch.setattr("tui.widgets.task_rows.COUNT_REST_SECONDS", 0.0)
    held = Held(100)
    async with held.app.run_test() as pilot:
        await held.ready(pilot)
        held.rows.may_count.clear()
        for words, first in (("-000", 0), ("-0000001", 0x10), ("-000000", 0)):
            held.list.rows.show_query(Query(State.PENDING, parse_filter(words)), CursorPosition())
            await held.rest(pilot)
            view = held.list.rows.view
            is_counted = words == "-0000001"
            assert (held.number, view.loaded, view.window.is_counted) == (
                first,
                True,
                is_counted,
            ), words
            total = "16" if is_counted else "?"
            assert held.list.row_words == f"row 1 of {total}"
            assert view.matching_words == total
        held.list.move("last")
        held.rows.may_count.set()
        await held.rest(pilot)
        assert (held.number, held.list.row_words) == (99, "row 100 of 100")


async def test_only_rows_that_change_are_painted() -> None:
    """A step within the view paints the row it leaves and the row it enters, and no other; a change
    elsewhere in the store paints none.
    """
    held = Held(100)
    async with held.app.run_test() as pilot:
        await held.ready(pilot)
        painted = held.watch_paint()
        held.list.rows.store_changed()
        await held.rest(pilot)
        held.list.tick(NOW + 1)
        assert painted == []

        held.list.move("down")
        assert sorted(painted) in ([1, 2], [0, 1, 2])


async def test_an_empty_result() -> None:
    """Where nothing matches there is no cursor, and no key does harm."""
    held = Held(0)
    async with held.app.run_test() as pilot:
        await held.ready(pilot)
        for move in ("down", "up", "page_down", "first", "last"):
            held.list.move(move)
        await held.rest(pilot)

        assert held.list.rows.view.task_here is None
        assert held.list.rows.view.cursor == CursorPosition()


async def test_a_row_that_leaves_stays_as_a_ghost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without any key too, a row on screen whose task leaves stays where it was, and the next one
    comes under the cursor only when it goes; then no row is a ghost any more.
    """
    monkeypatch.setattr("tui.widgets.task_rows.GHOST_SECONDS", 0.5)
    held = Held(100)
    async with held.app.run_test() as pilot:
        await held.ready(pilot)
        held.rows.numbers = [*range(2), *range(3, 100)]
        held.list.rows.store_changed()
        await held.rest(pilot)

        assert "left: " in held.row(2)
        assert held.list.rows.view.departed.keys() == {a_task(2).id}

        await asyncio.sleep(0.5)
        held.list.tick(held.clock.now)
        await held.rest(pilot)

        assert held.list.rows.view.departed == {}
        assert held.row(2)[3:11] == a_task(3).id[-8:]
