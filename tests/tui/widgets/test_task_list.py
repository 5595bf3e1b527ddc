"""The task list: its cursor, its view, and what it does while tasks come and go."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager

import pytest
from textual.app import App, ComposeResult
from textual.pilot import Pilot

from engine.index.filter_language import parse_filter
from engine.index.schema import Query, Window
from engine.model import State, Task
from tests.console_places import NOW, Clock, a_task
from tui.widgets.list_view import CursorPosition, ListView
from tui.widgets.task_list import TaskList
from tui.widgets.task_rows import HOLD_SECONDS, TaskRows

HEIGHT = 10
"""Rows on screen, besides the titles."""


@pytest.fixture(autouse=True)
def no_ghosts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that leave are gone as soon as the order is not held."""
    monkeypatch.setattr("tui.widgets.task_rows.GHOST_SECONDS", 0.0)


class Numbers:
    """A result of tasks that are made when they are asked for."""

    def __init__(self, numbers: Sequence[int]) -> None:
        self.numbers = numbers
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
            return Window(tuple(map(a_task, stored_tasks[:size])), 0, size, 0, is_counted=False)
        start = max(0, min(start, len(stored_tasks) - size))
        tasks = tuple(map(a_task, stored_tasks[start : start + size]))
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


class Listed(App[None]):
    """Nothing but a list, with its rows and its clock."""

    CSS = f"TaskList {{ height: {HEIGHT + 1}; }}"
    pilot: Pilot[None]

    def __init__(self, numbers: Sequence[int]) -> None:
        super().__init__()
        self.source, self.clock = Numbers(numbers), Clock()
        self.list = TaskList(TaskRows(self.source, self.clock), self.clock)
        self.vanished: list[int] = []
        """The tasks that were reported to have left."""

    def compose(self) -> ComposeResult:
        """The list."""
        yield self.list

    def get_theme_variable_defaults(self) -> dict[str, str]:
        """No look but the terminal's."""
        return {}

    def on_task_list_vanished(self, event: TaskList.Vanished) -> None:
        """Remember it."""
        self.vanished.append(int(event.id[-8:], 16))

    async def rest(self) -> None:
        """Until nothing is being fetched."""
        for _ in range(5):
            await self.pilot.pause()

    async def show(self, words: str = "", cursor: CursorPosition | None = None) -> None:
        """Show what matches these words."""
        self.list.rows.show_query(Query(State.PENDING, parse_filter(words)), cursor)
        await self.rest()

    async def moves(self, *moves: str) -> None:
        """Move the cursor, without a rest between two motions."""
        for move in moves:
            self.list.move(move)
        await self.rest()

    async def changes_to(self, numbers: Sequence[int]) -> None:
        """Another process adds or removes tasks."""
        self.source.numbers = numbers
        self.list.rows.store_changed()
        await self.rest()

    async def hands_rest(self) -> None:
        """Until the order is no longer held."""
        self.clock.now += HOLD_SECONDS + 1
        self.list.tick(self.clock.now)
        await self.rest()

    @property
    def view(self) -> ListView:
        """What the list shows."""
        return self.list.rows.view

    @property
    def cursor(self) -> tuple[int, int, int]:
        """The task under the cursor, its place in the result, and its row on the screen."""
        cursor = self.view.cursor
        return int(cursor.id[-8:], 16), cursor.at, cursor.at - cursor.top

    def row(self, y: int) -> str:
        """The text of a row of the screen."""
        return self.list.render_line(y + 1).text


@asynccontextmanager
async def listed(
    numbers: Sequence[int] = range(100), *, scans: bool = False
) -> AsyncIterator[Listed]:
    """A list of these tasks once it shows them, during the first scan or after it."""
    app = Listed(numbers)
    async with app.run_test() as app.pilot:
        app.list.rows.is_first_scan = scans
        await app.show(cursor=CursorPosition())
        yield app


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
    about three pages of them are asked for."""
    async with listed(range(1_000_000)) as app:
        for moves, at in MOVES:
            for move in ("first", *moves):
                await app.moves(move)
            assert app.cursor[:2] == (at, at), moves
            assert f"{at:08x}" in app.row(app.cursor[2])
        assert max(size for _, size in app.source.asked) == 3 * HEIGHT


async def test_a_list_that_is_opened_on_a_task_that_has_left_says_so() -> None:
    """The cursor is on another row then, and the id of the task is reported, once."""
    async with listed(range(3)) as app:
        for number, cursor in ((7, 0), (2, 2)):
            await app.show(cursor=CursorPosition(id=a_task(number).id))
            assert (app.vanished, app.cursor[0]) == ([7], cursor)


async def test_an_empty_list_shows_a_new_task_without_a_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Neither a motion nor rows that left just before hold it: no key could hit another row."""
    monkeypatch.setattr("tui.widgets.task_rows.GHOST_SECONDS", 60.0)
    async with listed(range(9)) as app:
        await app.moves("down")
        await app.changes_to(range(2, 9))  # these two rows stay for their time
        await app.hands_rest()
        await app.changes_to(())
        await app.hands_rest()
        assert not app.view.total
        await app.changes_to([3])
        assert (app.view.total, app.view.fresh, app.cursor[0]) == (1, 0, 3)


async def test_before_the_first_motion_the_cursor_passes_rows_that_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They stay on screen for their time, but a busy list has a cursor on a task that is there."""
    monkeypatch.setattr("tui.widgets.task_rows.GHOST_SECONDS", 60.0)
    async with listed(range(9)) as app:
        await app.changes_to(range(2, 9))
        assert app.cursor == (2, 2, 2)
        assert "left" in app.row(0) and "left" in app.row(1)


async def test_the_view_jumps_at_its_edge() -> None:
    """At the last row the view goes on by a third of a page, so that the next steps need none."""
    async with listed() as app:
        await app.moves(*["down"] * HEIGHT)
        assert (app.view.cursor.at, app.view.cursor.top) == (HEIGHT, HEIGHT // 3)


@pytest.mark.parametrize(
    ("before", "downs", "changes", "cursor", "vanished"),
    [
        # Tasks that come before it move its place, neither its task nor its row on screen.
        (range(20, 100), 5, [range(100)], (25, 25, 5), []),
        # It leaves: the cursor is on its neighbour, and that is said.
        (range(100), 1, [[0, *range(2, 100)]], (2, 1, 1), [1]),
        # On a queue that flows, tasks leave under a cursor that was not put there: no word of it.
        (range(100), 0, [range(first, 100) for first in (1, 2, 3)], (3, 0, 0), []),
    ],
)
async def test_the_cursor_is_a_task(
    before: Sequence[int],
    downs: int,
    changes: list[Sequence[int]],
    cursor: tuple[int, int, int],
    vanished: list[int],
) -> None:
    """Where tasks come and go, the cursor stays on its task, or is handed on aloud."""
    async with listed(before) as app:
        if downs:
            await app.moves(*["down"] * downs)
            await app.hands_rest()
        for numbers in changes:
            await app.changes_to(numbers)
        assert (app.cursor, app.vanished) == (cursor, vanished)


async def test_the_cursor_stays_on_its_task_after_any_change_between_two_queries() -> None:
    """Tasks that come while its place is looked for do not push the cursor to a neighbour."""
    async with listed(range(100, 200)) as app:
        await app.moves(*["down"] * 5)
        app.source.flow = (range(first, 200) for first in range(39, 29, -1))
        await app.changes_to(range(40, 200))
        await app.hands_rest()
        assert (app.cursor[0], app.vanished) == (105, [])


async def test_a_cursor_whose_task_cannot_be_found_again_is_handed_on_aloud(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where the result changes too fast to find the task in it, no key is for another one."""
    monkeypatch.setattr("tui.widgets.task_rows.UNSEEN_SECONDS", 60.0)
    async with listed() as app:
        await app.moves("down")
        # Wherever it is said to stand, it is never in the window that is fetched then.
        ranges = [range(200, 300), range(-400, 100)]
        app.source.flow = (ranges[n % 2] for n in range(6))
        await app.changes_to(ranges[0])
        await app.hands_rest()
        assert app.cursor[0] != 1
        assert (app.vanished, app.list.rows.is_unseen) == ([1], True)


async def test_rows_are_not_made_again_when_only_more_of_them_arrive() -> None:
    """Their columns are the same as long as nothing has another width."""
    async with listed(range(200)) as app:
        width = app.list.size.width
        columns, line = app.list._shape(width), app.list._line(1, width)
        await app.changes_to(range(200))
        assert app.list._shape(width) is columns
        assert app.list._line(1, width) is line


async def test_during_the_scan_the_cursor_is_the_first_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is found first is at the top by chance: an unmoved cursor is no such task.

    A key pressed at the moment when another row comes under it means the one before. Once
    everything is known the cursor is its task, with any rows above it."""
    monkeypatch.setattr("tui.widgets.task_rows.UNSEEN_SECONDS", 60.0)
    async with listed([199], scans=True) as app:
        assert (app.cursor[0], app.list.rows.is_unseen) == (199, False)
        for first in (150, 30):
            await app.changes_to(range(first, 200))
            assert (app.cursor, app.list.rows.is_unseen) == ((first, 0, 0), True)
            assert app.view.saved_position == CursorPosition()

        app.list.rows.is_first_scan = False
        await app.changes_to(range(20, 200))
        assert app.cursor[:2] == (20, 0)
        await app.changes_to(range(200))
        assert (app.cursor[:2], app.vanished) == ((20, 20), [])
        assert app.view.saved_position == app.view.cursor


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
    async with listed(range(100, 200), scans=True) as app:
        put(app.list)
        await app.hands_rest()
        meant = app.cursor[0]
        await app.changes_to(range(20, 200))
        await app.hands_rest()
        assert app.cursor[:2] == (meant, meant - 20)
        assert (app.vanished, app.list.rows.is_unseen) == ([], False)
        assert app.view.saved_position == app.view.cursor


async def test_the_order_is_held_while_hands_move() -> None:
    """For a moment after a motion no row moves; what came is counted, and what left is a ghost."""
    async with listed(range(20, 100)) as app:
        await app.moves("down")
        before = [app.row(y)[3:13] for y in range(HEIGHT)]
        await app.changes_to([*range(10), 20, *range(22, 100)])
        assert [app.row(y)[3:13] for y in range(HEIGHT)] == before
        assert "left: " in app.row(1)
        assert app.list.row_words.endswith("(1 gone)")
        assert (app.view.is_gone, app.view.task_here, app.view.fresh) == (True, None, 10)

        await app.hands_rest()
        assert (app.cursor[0], app.view.is_gone) == (22, False)


async def test_a_change_is_read_once_while_the_order_is_held() -> None:
    """Keys after it ask for no rows, also near the edge of those that were read."""
    async with listed() as app:
        await app.moves("down")
        await app.changes_to(range(100))
        asked = len(app.source.asked)
        for _ in range(25):
            await app.moves("down")
        assert app.view.is_near_edge(HEIGHT)
        assert len(app.source.asked) == asked


async def test_a_clock_that_is_set_back_holds_nothing_for_long() -> None:
    """The order is held for seconds by the clock, and not at all by one that jumped back."""
    async with listed() as app:
        await app.moves("down")
        app.clock.now -= 86400
        await app.changes_to(range(2, 100))
        assert app.cursor[0] in (2, 3)


async def test_a_filter_keeps_the_cursor_if_it_can() -> None:
    """With other words the cursor stays on its task if that still matches, else goes to the top."""
    async with listed() as app:
        await app.moves(*["down"] * 0x15)
        for words, number, total in (("00000015", 0x15, 1), ("-0000002", 0x20, 16)):
            await app.show(words)
            assert (app.cursor[0], app.view.total) == (number, total)
        assert app.vanished == []


async def test_columns_are_measured_by_the_rows_of_the_filter() -> None:
    """A list that is painted before a new filter is answered shows the former rows; when it has its
    own, a kind that all of them have gives its column to what would be cut."""
    async with listed() as app:
        assert "KIND" in app.row(-1)
        app.list.rows.show_query(Query(State.PENDING, parse_filter("mail_send")))
        app.list.paint()
        await app.rest()
        assert app.view.loaded
        assert "KIND" not in app.row(-1)


async def test_a_search_shows_its_first_rows_before_they_are_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first rows of a search are shown with `?` for their number; a motion to the last row
    waits for it. Another filter ends the count of the one before."""
    monkeypatch.setattr("tui.widgets.task_rows.COUNT_REST_SECONDS", 0.0)
    async with listed() as app:
        app.source.may_count.clear()
        for words, first, total in (
            ("-000", 0, "?"),
            ("-0000001", 0x10, "16"),
            ("-000000", 0, "?"),
        ):
            await app.show(words, CursorPosition())
            assert (app.cursor[0], app.view.loaded) == (first, True), words
            assert app.view.window.is_counted is (total != "?"), words
            assert app.list.row_words == f"row 1 of {total}"
            assert app.view.matching_words == total
        app.list.move("last")
        app.source.may_count.set()
        await app.rest()
        assert (app.cursor[0], app.list.row_words) == (99, "row 100 of 100")


async def test_only_rows_that_change_are_painted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step within the view paints the row it leaves and the row it enters, and no other; a change
    elsewhere in the store paints none."""
    async with listed() as app:
        painted: list[int] = []
        monkeypatch.setattr(app.list, "repaint_lines", painted.extend)
        await app.changes_to(range(100))
        app.list.tick(NOW + 1)
        assert painted == []
        app.list.move("down")
        assert sorted(painted) in ([1, 2], [0, 1, 2])


async def test_an_empty_result() -> None:
    """Where nothing matches there is no cursor, and no key does harm."""
    async with listed([]) as app:
        await app.moves("down", "up", "page_down", "first", "last")
        assert (app.view.task_here, app.view.cursor) == (None, CursorPosition())


async def test_a_row_that_leaves_stays_as_a_ghost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without any key too, a row on screen whose task leaves stays where it was, and the next one
    comes under the cursor only when it goes; then no row is a ghost any more."""
    monkeypatch.setattr("tui.widgets.task_rows.GHOST_SECONDS", 0.5)
    async with listed() as app:
        await app.changes_to([*range(2), *range(3, 100)])
        assert "left: " in app.row(2)
        assert app.view.departed.keys() == {a_task(2).id}

        await asyncio.sleep(0.5)
        app.list.tick(app.clock.now)
        await app.rest()
        assert app.view.departed == {}
        assert app.row(2)[3:11] == a_task(3).id[-8:]


async def test_a_higher_list_has_room_for_what_its_new_rows_say() -> None:
    """Its columns are those of all rows that it has read by now, at once."""
    young, old = range(1385, 1440), range(20, 80)
    async with listed([*young, *old]) as app:
        app.list.styles.height = len(young) + HEIGHT
        await app.pilot.resize_terminal(80, len(young) + HEIGHT)
        await app.rest()
        assert " 55m" in app.row(0) and " 23h40m" in app.row(len(young))
