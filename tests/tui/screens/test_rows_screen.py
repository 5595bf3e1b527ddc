"""Keys between the rows of a list, its details, and what its rows open."""

from __future__ import annotations

from pathlib import Path

from textual.app import App
from textual.geometry import Size

from engine.model import State
from engine.replay.progress import Phase, ReplayProgress
from engine.replay.scheduler import ReplayState, check_stop_rules
from engine.replay.settings import ReplayPace, StopRules
from tests.console_operator import ConsoleOperator, an_operator, words
from tests.console_places import (
    a_memory,
    a_place,
    a_stuck_lock,
    a_task,
    disk_place,
    make_spool,
    some_tasks,
    until,
)
from tui.groups.screen import ClustersScreen
from tui.locks.list_screen import LocksScreen
from tui.locks.screen import LockScreen
from tui.log.screen import LogScreen
from tui.operations.replay_lines import step_lines
from tui.overview.screen import OverviewScreen
from tui.plan.screen import PlanScreen
from tui.queue.screen import QueueScreen
from tui.screens.target import Target
from tui.task.screen import TaskScreen
from tui.text import keys
from tui.widgets.line_widgets import Lines, LongText

PLACES = [
    a_place(a_memory(some_tasks()), name=name, lock=a_stuck_lock, recovery_command=("true",))
    for name in ("one", "two")
]


async def test_tab_goes_to_the_details_and_back() -> None:
    """After Tab, j scrolls the details, whose title is the focused one; Tab returns to the rows.
    On a lock `]` opens the next one of the list of locks."""
    async with an_operator(*PLACES, first=keys.OVERVIEW, size=(80, 16)) as operator:
        board = await operator.opens(LocksScreen, "5")
        await operator.until(lambda: board.query_one(LongText).below)
        await operator.press("g")
        at, details = operator.picker.key, board.query_one(LongText)
        for scrolls, focused in ((True, details), (False, operator.picker)):
            await operator.press("tab", "j")
            assert focused.has_class("-focused")
            assert (details.top == 1, operator.picker.key == at) == (scrolls, scrolls)
        # The cursor was on the lock that was examined first, which may be either.
        await operator.until(lambda: operator.rows.count("STUCK") == len(PLACES))
        operator.picker.select_key("1")
        await operator.step("enter", LockScreen, "one > lock STUCK row 1 of 2")
        await operator.step("]", "two > lock STUCK row 2 of 2")


async def open_dead(operator: ConsoleOperator) -> QueueScreen:
    """Open the list of dead tasks, with the cursor on one."""
    queue = await operator.opens(QueueScreen, "4")
    parts = queue.parts
    await operator.until(lambda: parts.state is State.DEAD and parts.rows.view.task_here)
    return queue


async def test_the_next_task_is_opened_from_a_task() -> None:
    """In a queue Tab leads to the details of the task, and back to the list. `i` shows whole ids,
    `w` gives the error the room of the other columns; again: as before. On a task `]` opens the
    next row of its list and `[` the previous one; the header has its position; Esc leads back to
    the row that was shown last."""
    first, *others = (a_task(number, State.DEAD) for number in range(3))
    error = "550 5.1.1 " + "no such user " * 3 + "END"
    first = first._replace(description="a long story " * 40, error=error)

    def listed() -> str:
        lines = (line for line in operator.text.splitlines() if line.startswith(">"))
        return next(lines, "")

    async with an_operator(a_place(a_memory([first, *others]))) as operator:
        queue = await open_dead(operator)
        details, parts = queue.query_one("#details", LongText), queue.parts
        await operator.press("g")
        await operator.until(lambda: details.lines and parts.rows.view.cursor.id == first.id)
        await operator.press("tab", "j")
        assert (details.has_focus, parts.rows.view.cursor.id) == (True, first.id)
        await operator.press("tab", "j")
        assert (details.has_focus, parts.rows.view.cursor.id) == (False, others[0].id)

        await operator.press("k")
        await operator.until(lambda: first.id[-8:] in listed())
        before = listed()
        assert first.id not in before
        await operator.press("i")
        await operator.until(lambda: first.id in listed())
        await operator.press("i", "w")
        await operator.until(lambda: listed().rstrip().endswith("END"))
        await operator.press("w")
        await operator.until(lambda: listed() == before)

        await operator.step("enter", TaskScreen, "00000000 row 1 of 3")
        for pressed, *texts in (
            ("]", "00000001 row 2 of 3"),
            ("]]", "00000002 row 3 of 3", "no next row in the list"),
            ("[", "00000001 row 2 of 3"),
        ):
            await operator.step(pressed, *texts)
        assert await operator.opens(QueueScreen, "escape") is queue
        assert queue.widgets.list.row_words == "row 2 of 3"


async def test_a_long_command_is_folded_in_a_plan() -> None:
    """A replay plan shows its whole command; plain text has it in one line."""
    dead = [a_task(number, State.DEAD) for number in range(12)]
    place = a_place(a_memory(dead), command=("spooldeck", "--root", "/a/rather/long/path" * 3))
    async with an_operator(place) as operator:
        await open_dead(operator)
        plan = await operator.opens(PlanScreen, "asterisk", "R")
        await operator.sees("stop at 2 x one error (p)", "next type 12 applies it")
        await operator.sees("/a/rather/long/path replay --state dead --apply 12")
        (copy,) = plan.copies()
        assert copy.text.endswith("--apply 12")


async def test_t_on_a_transport_and_c_in_the_log(tmp_path: Path) -> None:
    """`t` on a transport opens the log lines with its name; `c` there the clusters of its place."""
    make_spool(tmp_path, some_tasks())
    async with an_operator(disk_place(tmp_path), first=keys.TRANSPORTS) as operator:
        await operator.until(lambda: operator.picker.key)
        name = operator.picker.key
        await operator.opens(LogScreen, "t")
        await operator.sees(f'"{name}"')
        await operator.opens(ClustersScreen, "c")
        await operator.sees("failed 12")


async def test_the_palette_acts_on_tasks_from_the_overview() -> None:
    """`:sort age` on the overview opens the list in that order, `:purge` the plan for the row
    under its cursor. A target with the name of a cluster puts the cursor on it once the clusters
    are read."""
    place = a_place(a_memory(some_tasks()))
    async with an_operator(place, first=keys.OVERVIEW) as operator:
        await operator.opens(ClustersScreen, "c")
        await operator.until(lambda: len(operator.picker.rows) == 3)
        last = operator.picker.rows[-1].key
        await operator.press("escape")
        operator.console.navigator.goto(Target(keys.CLUSTERS, state=State.DEAD, id=last))
        await operator.opens(ClustersScreen)
        await operator.until(lambda: operator.picker.key == last)
        for typed, kind, expected in (
            ("sort age", QueueScreen, "order: age"),
            ("purge", PlanScreen, "PURGE 1 TASK"),
        ):
            await operator.opens(OverviewScreen, "1")
            await operator.press(":")
            await operator.types(typed)
            await operator.step("enter", kind, expected)


def test_skipped_tasks_have_a_column_of_their_own() -> None:
    """The steps of a replay count the tasks that were skipped beside those done and failed."""
    now = ReplayProgress(Phase.OVER, planned=12, skipped=3)
    head, *_, last = step_lines(now, 80)
    at = words([head]).index("SKIPPED") + len("SKIPPED")
    assert words([last])[:at].split()[-1] == "3"


def test_the_first_stop_rule_is_whole_at_80_columns() -> None:
    """The last column of the steps has room for its words."""
    (rule,) = check_stop_rules(ReplayState(ReplayPace(stops=StopRules(share=None)), 12, 0.0))
    _, line, *_ = step_lines(ReplayProgress(Phase.SENDING, planned=12, rules=(rule,)), 80)
    assert words([line]).rstrip().endswith(" same error 0 of 2")


async def test_an_empty_log_and_a_task_that_is_gone_name_the_next_step(tmp_path: Path) -> None:
    """Also where there is nothing to act on, the line above the keys has a next step."""
    make_spool(tmp_path, some_tasks(dead=2))
    (tmp_path / "log" / "queue.log").write_text("")
    async with an_operator(disk_place(tmp_path)) as operator:
        await open_dead(operator)
        await operator.step("enter", TaskScreen, "max_retries_exceeded")
        for path in (tmp_path / "queue" / "dlq").iterdir():
            path.unlink()
        await operator.sees("task is gone", "next t shows its log lines")
        await operator.opens(LogScreen, "7")
        await operator.sees("nothing logged yet", "next Esc goes back; new lines appear here")


# Sizes


class NotingPane(Lines):
    """Notes the sizes that `on_resize` is called for."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[Size] = []

    def on_resize(self) -> None:
        """Note it."""
        self.sizes.append(self.size)


async def test_a_size_that_was_read_before_the_layout_reaches_the_pane() -> None:
    """Textual compares the sizes of a layout with those of its last look at the regions: a look
    between the change of a style and the layout leaves no difference."""
    app, pane = App[None](), NotingPane()
    async with app.run_test(size=(80, 24)) as pilot:
        await app.mount(pane)
        await until(pilot, lambda: pane.sizes)
        compositor = pane.screen._compositor
        pane.styles.height = 5
        pane.screen._clear_arrangement_cache()
        compositor._full_map_invalidated = True
        assert compositor.full_map[pane].region.height == 5

        await until(pilot, lambda: pane.sizes[-1] == Size(80, 5))
