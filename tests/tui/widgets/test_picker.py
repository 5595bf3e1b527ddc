"""A row that leaves stays under the cursor as a ghost row, and no key acts on it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from textual.app import App, ComposeResult
from textual.pilot import Pilot

from engine.index.error_clusters import Cluster
from engine.index.schema import Query
from engine.live import queries
from engine.model import State
from engine.text.error_pattern import fold_error, pattern_name
from tests.console_places import a_console, a_memory, a_place, a_task, loaded, until
from tui.groups.screen import ClustersScreen
from tui.plan.screen import PlanScreen
from tui.screens.rows_parts import ROW_HAS_LEFT
from tui.terminal.clipboard import screen_text
from tui.text.table import Choice
from tui.widgets.picker import ROW_LEFT_SUFFIX, Picker


class Bench(App[None]):
    """One picker that fills the screen."""

    def compose(self) -> ComposeResult:
        """The picker."""
        yield Picker()


def offered(names: str) -> list[Choice]:
    """A row for each letter."""
    return [Choice(name, ((f"   row {name}", ""),)) for name in names]


def keys_of(picker: Picker) -> str:
    """The rows in their order."""
    return "".join(row.key for row in picker.rows)


async def test_a_row_that_left_goes_after_some_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cursor is then on the row that took its place."""
    app = Bench()
    async with app.run_test(size=(40, 8)):
        picker = app.query_one(Picker)
        picker.show_rows(offered("abc"))
        picker.show_rows(offered("bc"))
        assert (keys_of(picker), picker.key) == ("abc", "")
        monkeypatch.setattr("tui.widgets.picker.GHOST_SECONDS", 0.0)
        picker.show_rows(offered("bc"))
        assert (keys_of(picker), picker.key) == ("bc", "b")


@pytest.mark.parametrize(
    ("moves", "after", "rows", "key"),
    [
        ((), "dabc", "dabc", "b"),  # it stays on its row wherever that goes
        ((), "ac", "abc", ""),  # a row that leaves is a ghost in its place
        ((), "ca", "cba", ""),
        ((), "", "b", ""),
        (("down",), "ac", "ac", "c"),  # the ghost goes when the cursor moves
        (("up",), "ac", "ac", "a"),
        (("last",), "ac", "ac", "c"),
    ],
)
async def test_a_row_that_leaves_stays_until_the_cursor_moves(
    moves: Sequence[str], after: str, rows: str, key: str
) -> None:
    """No other row gets under the cursor by itself; the next motion starts from the ghost row."""
    app = Bench()
    async with app.run_test(size=(40, 8)):
        picker = app.query_one(Picker)
        picker.show_rows(offered("abc"))
        picker.move("down")
        picker.show_rows(offered(after))
        for move in moves:
            picker.move(move)
        assert (keys_of(picker), picker.key, picker.is_gone) == (rows, key, key == "")


async def test_a_ghost_row_that_comes_back_is_a_row_again() -> None:
    """A row that returns takes the cursor from its ghost, and there is only one of it."""
    app = Bench()
    async with app.run_test(size=(40, 8)):
        picker = app.query_one(Picker)
        for names in ("ab", "b", "ba"):
            picker.show_rows(offered(names))
        assert (keys_of(picker), picker.key, picker.is_gone) == ("ba", "a", False)


async def test_no_plan_is_made_for_a_cluster_that_left() -> None:
    """The cursor stays on an error cluster without tasks, and verbs say that it is gone."""
    errors = ["421 4.7.0 try again later"] * 3 + ["550 5.1.1 user unknown"] * 2
    tasks = [a_task(n, State.DEAD, error=error) for n, error in enumerate(errors)]
    memory = a_memory(tasks)
    console = a_console(a_place(memory), start_armed=True)
    async with console.run_test(size=(100, 30)) as pilot:
        await loaded(pilot)
        await pilot.press("4", "c")
        await until(pilot, lambda: isinstance(console.screen, ClustersScreen))
        # In the middle of the first scan the smaller cluster can be the first, with the cursor.
        mark = pattern_name(fold_error(errors[0]))
        await until(pilot, lambda: [row.key for row in picker_of(pilot).rows][:1] == [mark])
        await pilot.press("g")
        assert picker_of(pilot).key == mark

        with memory.condition:
            for task in tasks[:3]:
                memory.put((task.queue, task.id), None)
        await until(pilot, lambda: picker_of(pilot).is_gone)
        (line,) = (line for line in screen_text(console.screen).splitlines() if mark in line)
        row = line.strip("| ")  # inside its frame
        assert row.startswith(">") and row.endswith(ROW_LEFT_SUFFIX.strip())

        await pilot.press("R")
        await until(pilot, lambda: ROW_HAS_LEFT in screen_text(console.screen))

        await pilot.press("j", "R")
        await until(pilot, lambda: isinstance(console.screen, PlanScreen))
        await until(pilot, lambda: "user unknown" in screen_text(console.screen))


async def test_the_cursor_stays_on_its_cluster_when_another_grows_past_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The largest cluster becomes the second: the cursor and the plan of a key stay with it; also
    if the cached answer of the query before still serves when the index has changed."""
    monkeypatch.setattr(queries, "ANSWER_COST_FACTOR", 1e9)
    errors = ["421 4.7.0 try again later"] * 3 + ["550 5.1.1 user unknown"] * 2
    memory = a_memory([a_task(n, State.DEAD, error=error) for n, error in enumerate(errors)])
    console = a_console(a_place(memory), start_armed=True)
    async with console.run_test(size=(100, 30)) as pilot:
        await loaded(pilot)
        await pilot.press("4", "c")
        await until(pilot, lambda: isinstance(console.screen, ClustersScreen))
        mark = pattern_name(fold_error(errors[0]))
        await until(pilot, lambda: [row.key for row in picker_of(pilot).rows][:1] == [mark])
        await pilot.press("g")
        session, seen = console.sessions[0], list[int]()
        read = session.inspector.tallies.clusters

        async def noted(query: Query) -> tuple[Cluster, ...]:
            count = session.inspector.latest.counts[State.DEAD]
            clusters = await read(query)
            seen.append(count)
            return clusters

        monkeypatch.setattr(session.inspector.tallies, "clusters", noted)
        with memory.condition:
            for number in range(5, 9):
                task = a_task(number, State.DEAD, error=errors[-1])
                memory.put((task.queue, task.id), task)
        await until(pilot, lambda: seen.count(9) > 1)
        session.inspector.tallies._answers.clear()  # as if they had expired
        await until(pilot, lambda: picker_of(pilot).rows[0].key != mark)
        await pilot.press("R")
        await until(pilot, lambda: isinstance(console.screen, PlanScreen))
        await until(pilot, lambda: "type 3 to replay 3" in screen_text(console.screen))


def picker_of(pilot: Pilot[None]) -> Picker:
    """The rows of the board on top."""
    return pilot.app.screen.query_one(Picker)
