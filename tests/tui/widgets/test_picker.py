"""A row that leaves stays under the cursor as a ghost row, and no key acts on it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import pytest
from textual.app import App, ComposeResult

from engine.formats.base.memory import MemoryTasks
from engine.index.error_clusters import Cluster
from engine.index.schema import Query
from engine.live import queries
from engine.model import State
from engine.text.error_pattern import fold_error, pattern_name
from tests.console_operator import ConsoleOperator, an_operator
from tests.console_places import a_memory, a_place, a_task
from tui.groups.screen import ClustersScreen
from tui.plan.screen import PlanScreen
from tui.screens.rows_parts import ROW_HAS_LEFT
from tui.text.lines import Line
from tui.text.table import Choice
from tui.widgets.picker import ROW_LEFT_SUFFIX, Picker


class Bench(App[None]):
    """One picker that fills the screen."""

    def compose(self) -> ComposeResult:
        """The picker."""
        yield Picker()


def show(picker: Picker, names: str) -> None:
    """Show a row for each letter."""
    picker.show_rows([Choice(name, ((f"   row {name}", ""),)) for name in names])


def state_of(picker: Picker) -> tuple[str, str, bool]:
    """The rows in their order, the one under the cursor, and whether that is gone."""
    return "".join(row.key for row in picker.rows), picker.key, picker.is_gone


async def test_the_cursor_passes_the_second_line_of_a_row() -> None:
    """A motion or a click on the second line of a row is on its row, or on the next one below."""
    app = Bench()
    async with app.run_test(size=(20, 5)):
        picker = app.query_one(Picker)
        folded = [Choice(name, ((f" {name}", ""),), name == " ") for name in "a b "]
        picker.show_rows(folded)
        keys = [picker.move(how) and picker.key for how in ("down", "down", "up", "last")]
        assert (keys, picker.select_line(1), picker.key) == (["b", False, "a", "b"], False, "a")
        assert picker.select_line(1)
        picker.move("last")
        picker.show_rows(folded[:2])
        assert picker.is_gone
        picker.move("up")
        assert picker.key == "a"


async def test_the_cursor_passes_all_lines_of_a_row() -> None:
    """From a row of three lines down is the next row, up is that row again, also from its end."""
    app = Bench()
    async with app.run_test(size=(20, 8)):
        picker = app.query_one(Picker)
        picker.show_rows([Choice(name, ((f" {name}", ""),), name == " ") for name in "a  b  "])
        keys = [picker.move(how) and picker.key for how in ("down", "down", "up", "last")]
        assert (keys, picker.select_line(2), picker.key) == (["b", False, "a", "b"], False, "a")


MOVES = ("down", "up", "last")


STEPS: tuple[tuple[tuple[str, ...], str, str], ...] = (
    (("abc", "down", "dabc"), "dabc", "b"),  # it stays on its row wherever that goes
    (("abc", "down", "ac"), "abc", ""),  # a row that leaves is a ghost in its place
    (("abc", "down", "ca"), "cba", ""),
    (("abc", "down", ""), "b", ""),
    (("abc", "down", "ac", "down"), "ac", "c"),  # the ghost goes when the cursor moves
    (("abc", "down", "ac", "up"), "ac", "a"),
    (("abc", "down", "ac", "last"), "ac", "c"),
    (("ab", "b", "ba"), "ba", "a"),  # a ghost that comes back is a row again
)


async def test_a_row_that_leaves_stays_until_the_cursor_moves() -> None:
    """No other row gets under the cursor by itself; the next motion starts from the ghost row."""
    app = Bench()
    async with app.run_test(size=(40, 8)):
        for steps, rows, key in STEPS:
            await app.recompose()
            picker = app.query_one(Picker)
            for step in steps:
                act = picker.move if step in MOVES else partial(show, picker)
                act(step)
            assert state_of(picker) == (rows, key, key == ""), steps


async def test_a_row_that_has_left_has_a_line_of_its_own() -> None:
    """The text above the rows is folded into the lines that all of them leave, so none scrolls."""
    app = Bench()
    async with app.run_test(size=(20, 8)):
        picker = app.query_one(Picker)
        head: list[Line] = [
            (("  ", ""), ("a reason that would need more lines than are free" * 2, ""))
        ]
        for names in ("abcde", "abcd"):
            picker.show_rows([Choice(name, ((f" {name}", ""),)) for name in names], head=head)
            picker.move("last")
            assert (picker.top, picker.line_count) == (0, 8), names
        assert picker.is_gone


async def test_a_row_that_has_left_loses_whole_columns_for_that() -> None:
    """Its last short columns are blank, not cut; a text that is long is cut as elsewhere."""
    app = Bench()
    async with app.run_test(size=(60, 8)):
        picker = app.query_one(Picker)
        long = "a text without any gap that needs more than the room of it"
        for end in ("lock STUCK" + " " * 14 + "since 01:28:53Z  U unlock ", long):
            picker.show_rows([Choice("a", ((f"   {end}", ""),))])
            picker.show_rows([])
            shown = "".join(text for text, _ in picker._line(0))[3:].split(ROW_LEFT_SUFFIX)[0]
            assert shown.rstrip() == (f"{long[:40]}…" if end == long else end[:39])


async def test_a_row_that_left_goes_after_some_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cursor is then on the row that took its place."""
    app = Bench()
    async with app.run_test(size=(40, 8)):
        picker = app.query_one(Picker)
        for seconds, names, state in (
            (60.0, "abc", ("abc", "a", False)),
            (60.0, "bc", ("abc", "", True)),
            (0.0, "bc", ("bc", "b", False)),
        ):
            monkeypatch.setattr("tui.widgets.picker.GHOST_SECONDS", seconds)
            show(picker, names)
            assert state_of(picker) == state


@asynccontextmanager
async def on_clusters() -> AsyncIterator[tuple[ConsoleOperator, MemoryTasks, str]]:
    """An operator with the cursor on the first of two error clusters, with three tasks of five."""
    errors = ["421 4.7.0 try again later"] * 3 + ["550 5.1.1 user unknown"] * 2
    memory = a_memory([a_task(n, State.DEAD, error=error) for n, error in enumerate(errors)])
    mark = pattern_name(fold_error(errors[0]))
    async with an_operator(a_place(memory), size=(100, 30)) as operator:
        await operator.opens(ClustersScreen, "4", "c")
        # In the middle of the first scan the smaller cluster can be the first, with the cursor.
        await operator.until(lambda: [row.key for row in operator.picker.rows][:1] == [mark])
        await operator.press("g")
        assert operator.picker.key == mark
        yield operator, memory, mark


async def test_no_plan_is_made_for_a_cluster_that_left() -> None:
    """The cursor stays on an error cluster without tasks, and verbs say that it is gone."""
    async with on_clusters() as (operator, memory, mark):
        with memory.condition:
            for number in range(3):
                memory.put(("", a_task(number, State.DEAD).id), None)
        await operator.until(lambda: operator.picker.is_gone)
        (line,) = (line for line in operator.text.splitlines() if mark in line)
        row = line.strip("| ")  # inside its frame
        assert row.startswith(">") and row.endswith(ROW_LEFT_SUFFIX.strip())
        await operator.press("R")
        await operator.sees(ROW_HAS_LEFT)
        await operator.opens(PlanScreen, "j", "R")
        await operator.sees("user unknown")


async def test_the_cursor_stays_on_its_cluster_when_another_grows_past_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The largest cluster becomes the second: the cursor and the plan of a key stay with it; also
    if the cached answer of the query before still serves when the index has changed."""
    monkeypatch.setattr(queries, "ANSWER_COST_FACTOR", 1e9)
    async with on_clusters() as (operator, memory, mark):
        session, seen = operator.console.sessions[0], list[int]()
        read = session.inspector.tallies.clusters

        async def noted(query: Query) -> tuple[Cluster, ...]:
            count = session.inspector.latest.counts[State.DEAD]
            clusters = await read(query)
            seen.append(count)
            return clusters

        monkeypatch.setattr(session.inspector.tallies, "clusters", noted)
        with memory.condition:
            for number in range(5, 9):
                task = a_task(number, State.DEAD, error="550 5.1.1 user unknown")
                memory.put(("", task.id), task)
        await operator.until(lambda: seen.count(9) > 1)
        session.inspector.tallies._answers.clear()  # as if they had expired
        await operator.until(lambda: operator.picker.rows[0].key != mark)
        await operator.opens(PlanScreen, "R")
        await operator.sees("type 3 to replay 3")
