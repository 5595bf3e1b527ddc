"""The parts of the queue screen and its keys, without an app: tabs, marks, scope, refusals."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from math import inf

import pytest

from engine.index.filter_language import parse_filter
from engine.live.inspector import Inspector
from engine.model import Problem, State, Task
from engine.store import Control
from engine.text.error_pattern import fold_error, pattern_name
from tests.console_places import NOW, Clock, a_memory, a_place, some_tasks
from tests.tui.asked_screen import AskedScreen
from tui.key_tables import keys_on
from tui.plan.planning import VerbRequest
from tui.queue import painters
from tui.queue.filter_text import FilterText
from tui.queue.keys import ROWS
from tui.queue.painters import next_step
from tui.queue.parts import CURSOR_JUST_MOVED, Change, Marks, QueueParts
from tui.queue.tabs import Tabs
from tui.screens.console_context import Arming, ConsoleContext
from tui.screens.key_rows import absent_actions, hints_of, press, refusals_of
from tui.screens.message import MESSAGE_SECONDS, Message
from tui.screens.target import Target
from tui.session.place_session import PlaceSession
from tui.text import keys
from tui.widgets.list_view import CursorPosition

STATES = {State.PENDING: "pending", State.DEAD: "dead"}


class Asked(AskedScreen[Change]):
    """What only the queue screen can do."""

    def __init__(self) -> None:
        super().__init__()
        self.plans: list[tuple[VerbRequest, Task | None]] = []

    def plan(self, asked: VerbRequest, task: Task | None) -> None:
        """Note it."""
        self.plans.append((asked, task))

    def move(self, how: str) -> Change:
        """Nothing is scrolled."""
        return Change.NOTHING

    def switch_pane(self) -> Change:
        """There is none."""
        return Change.NOTHING

    next_graph_range = switch_pane


class Queue:
    """The parts of a queue, and who presses its keys."""

    def __init__(self, parts: QueueParts, screen: Asked) -> None:
        self.parts, self.screen = parts, screen

    async def settle(self) -> None:
        """Answer all questions, and read the rows."""
        await self.screen.answer()
        await self.parts.rows.read()

    async def press(self, *pressed: str) -> Change:
        """Press keys; what the last one changed."""
        change = Change.NOTHING
        for key in pressed:
            change = press(ROWS, key, self.parts, self.parts.say)
        return change

    async def opens(self, state: State) -> None:
        """Open a tab and read its rows."""
        self.parts.to_tab(self.parts.tabs.all.index(state))
        await self.settle()

    @property
    def hints(self) -> dict[str, bool]:
        """The keys with hints, and whether they are grey."""
        return {hint.shown: hint.is_refused for hint in hints_of(ROWS, self.parts)}


@asynccontextmanager
async def a_queue(
    state: State = State.PENDING, *, read_only: bool = False, places: int = 1
) -> AsyncIterator[Queue]:
    """The parts of a queue in memory with forty pending and twelve dead tasks, on a tab."""
    clock, screen = Clock(), Asked()
    session = PlaceSession(a_place(a_memory(some_tasks())), clock)
    context = ConsoleContext("mx1", Arming(clock, read_only), clock, places=places)
    await session.inspector.start()
    try:
        await session.inspector.scan_now()
        parts = QueueParts(session, context, screen)
        parts.rows.resize(10)
        queue = Queue(parts, screen)
        parts.store_changed(session.inspector.latest)
        await queue.settle()
        if state is not parts.state:
            await queue.opens(state)
        yield queue
    finally:
        await session.inspector.close()


def test_each_tab_keeps_its_cursor_and_order() -> None:
    """The tabs are the states and the problems, in a circle; back on a tab, its cursor and its
    order are those that it had; the same order again is reversed."""
    tabs = Tabs(lambda: STATES)
    assert tabs.all == [State.PENDING, State.DEAD, None]
    tabs.sort("attempts", reverses=True)
    tabs.sort("attempts", reverses=True)
    cursor_position = CursorPosition(3, "x")
    assert tabs.open(tabs.neighbour(1), cursor_position) == CursorPosition()
    assert (tabs.state, tabs.order, tabs.on_problems) == (State.DEAD, ("id", False), False)
    assert tabs.open(tabs.neighbour(-1), CursorPosition()) == cursor_position
    assert tabs.order == ("attempts", True)
    tabs.open(tabs.neighbour(-1), cursor_position)
    assert tabs.on_problems
    assert not Tabs(dict).on_problems


def test_marks_belong_to_a_state() -> None:
    """A mark is of one state; what the filter hides is not acted on; clearing takes all away."""
    marks = Marks()
    marks.add(State.DEAD, {"a", "b"})
    marks.toggle(State.DEAD, "b")
    marks.toggle(State.DEAD, "c")
    assert marks.of(State.DEAD) == {"a", "c"}
    assert marks.of(State.PENDING) == marks.of(None) == frozenset()
    marks.hidden = frozenset({"a"})
    assert marks.visible(State.DEAD) == {"c"}
    marks.has_all = True
    marks.clear(State.DEAD)
    assert (marks.of(State.DEAD), marks.hidden, marks.has_all) == (frozenset(), frozenset(), False)


def test_a_message_ends() -> None:
    """After its seconds, or when the clock is set back; control characters are replaced."""
    clock = Clock()
    message = Message(clock)
    for later in (MESSAGE_SECONDS, -1.0):
        message.say("done\x1b[2J")
        assert (message.text, message.ends()) == ("done\ufffd[2J", False)
        clock.now += later
        assert (message.ends(), message.text) == (True, "")
    assert not message.ends()


def test_an_incomplete_clause_leaves_those_before_it() -> None:
    """The error says what was expected; an error further left leaves the filter as it was."""
    text = FilterText(lambda words: parse_filter(words, STATES, NOW))
    assert text.take("code=550")
    assert text.take("code=550 tries>")
    assert (text.filter.text, text.words) == ("code=550", "code=550 tries>")
    assert text.error.startswith("expected a value")
    assert text.take("cod=550 tries>1")
    assert (text.filter.text, text.error.partition(" at ")[0]) == ("code=550", 'no field "cod"')
    assert text.take("code=550")
    assert not text.error
    assert not text.take("code=550 ")


async def test_a_key_is_refused_with_its_reason() -> None:
    """A refused key is grey, says why and what can be done instead, asks for no plan and changes
    the scope line alone; another state allows it, but not when another task has just come under
    the cursor, or its task has left."""
    async with a_queue() as queue:
        assert queue.parts.state is State.PENDING
        assert "R" not in queue.hints
        assert await queue.press("R") == Change.SCOPE
        text = "retry: not from pending; next: X purge, H hold, O promote"
        assert (queue.parts.message.text, queue.screen.plans) == (text, [])
        await queue.opens(State.DEAD)
        assert queue.hints["R"] is False
        await queue.press("home", "R")
        ((asked, task),) = queue.screen.plans
        assert task is not None
        assert (asked.verb, asked.ids) == ("retry", {task.id})
        assert asked.describe_scope(1) == f"row {task.id}"
        view = queue.parts.rows.view
        for changed, text in (
            (view._replace(cursor_moved_at=inf), CURSOR_JUST_MOVED),
            (view._replace(departed={task.id: ""}), "the task under the cursor is gone"),
        ):
            queue.parts.rows.view = changed
            await queue.press("R")
            assert text in queue.parts.message.text
        assert len(queue.screen.plans) == 1


async def test_a_list_is_only_empty_once_all_is_read() -> None:
    """Where a scan was stopped, no action is refused for lack of tasks: some may be unread."""
    async with a_queue(State.HELD) as queue:
        latest = queue.parts.change
        for is_complete in (True, False):
            queue.parts.store_changed(latest._replace(is_complete=is_complete, is_stopped=True))
            await queue.settle()
            await queue.press("X")
            assert (queue.parts.message.text == "no task to act on") == is_complete
            queue.parts.message.clear()


async def test_a_filter_in_error_refuses_all_that_acts() -> None:
    """Verbs, all and ranges say what is wrong with the filter; help and hints say the same."""
    async with a_queue(State.DEAD) as queue:
        queue.parts.filter.take("tris>5")
        wrong = queue.parts.filter.error
        assert wrong.startswith('no field "tris"')
        for key in ("*", "v", "X"):
            queue.parts.message.clear()
            await queue.press(key)
            assert queue.parts.message.text == wrong
        assert (queue.parts.marks.has_all, queue.parts.rows.view.anchor) == (False, None)
        line = painters.scope_line(queue.parts, 240, lock_alarms=False, is_typing=False)
        assert "".join(text for text, _ in line).startswith(f" {wrong} ")
        line = painters.scope_line(queue.parts, 80, lock_alarms=False, is_typing=True)
        assert wrong[:60] in "".join(text for text, _ in line)  # at 80 columns nothing beside it
        assert "".join(text for text, _ in painters.filter_count(queue.parts)) == "invalid "
        assert set(refusals_of(ROWS, queue.parts).values()) == {wrong}
        assert queue.hints["X"] is True
        queue.parts.filter.take("")
        await queue.press("*")
        assert queue.parts.scope.acts_on_all


async def test_marks_that_a_filter_hides_are_in_no_plan() -> None:
    """They are counted as hidden, and a verb gets only the others; without a filter all are."""
    async with a_queue(State.DEAD) as queue:
        for _ in range(3):
            assert Change.ROWS in await queue.press("space")
        marked = queue.parts.marks.of(State.DEAD)
        assert (len(marked), queue.parts.scope.marked) == (3, 3)
        queue.parts.filter.take("unknown")
        queue.parts.filter_changed()
        await queue.settle()
        scope = queue.parts.scope
        assert (scope.marked, scope.hidden) == (1, 2)
        await queue.press("R")
        ((asked, task),) = queue.screen.plans
        ids = set(asked.ids or ())
        assert (len(ids), task) == (1, None)
        assert ids < marked
        assert asked.describe_scope(1) == "1 marked, 2 excluded: hidden or gone"
        await queue.press("\\")
        assert queue.parts.scope.marked == queue.parts.scope.hidden == 0
        await queue.press("space")
        queue.parts.rows.move("up")
        await queue.press("space")  # takes the mark away again
        assert queue.parts.scope.marked == 0


async def test_a_range_is_marked_by_its_second_key() -> None:
    """Until then nothing is marked and verbs are refused; Esc drops it."""
    async with a_queue(State.DEAD) as queue:
        await queue.press("v")
        queue.parts.rows.move("down")
        queue.parts.rows.move("down")
        assert queue.parts.scope.ranged == 3
        await queue.press("R")
        assert queue.parts.message.text == "range open: v marks it, Esc cancels"
        await queue.press("v")
        assert queue.parts.scope.marked == 3
        await queue.press("v", "escape")
        assert queue.parts.rows.view.anchor is None
        assert (queue.parts.scope.marked, queue.screen.requests) == (3, [])


async def test_all_that_match_have_no_ids() -> None:
    """`*` asks for a plan of the query, again of the row; a mark ends it."""
    async with a_queue(State.DEAD) as queue:
        await queue.press("*", "R", "*", "R", "*", "space")
        (everything, _), (one, _) = queue.screen.plans
        assert (everything.ids, everything.describe_scope(12)) == (None, "all 12 that match")
        assert len(one.ids or ()) == 1
        assert not queue.parts.marks.has_all


@pytest.mark.parametrize("read_only", [False, True])
async def test_what_writes_is_not_offered_to_read_only(read_only: bool) -> None:
    """Help and hints leave out what the console or the place has no use for."""
    async with a_queue(read_only=read_only, places=2) as queue:
        absent = absent_actions(ROWS, queue.parts)
        writing = {"plan('hold')", "arm", "mark", "note"}
        assert absent & writing == (writing if read_only else set())
        hints = {key.hint for key in keys_on(keys.LIST, absent)}
        writing = {"retry", "purge", "arm", "unlock", "mark", "all"}
        assert hints & writing == (set() if read_only else writing)
        assert "worker" not in hints
        assert "worker" in absent  # the place has no command for one
        assert "next_place" not in absent
        await queue.press("]")
        assert queue.screen.targets == [Target(keys.LIST, place=2, state=State.PENDING)]


async def test_another_tab_is_opened_for_a_target() -> None:
    """A target opens its state, filter and task; its action is due once, and not much later."""
    async with a_queue() as queue:
        clock, parts = queue.parts.clock, queue.parts
        target = Target(keys.LIST, state=State.DEAD, filter="code=550", action="x")
        parts.pending.set(target, clock())
        assert Change.ALL | Change.FOCUS | Change.FILTER in parts.show_target()
        await queue.settle()
        assert (parts.state, parts.filter.filter.text) == (State.DEAD, "code=550")
        assert parts.rows.view.matching == 4
        assert [parts.pending.take_action(clock()) for _ in range(2)] == ["x", ""]
        parts.pending.set(Target(keys.LIST, action="x"), clock())
        assert parts.pending.take_action(clock() + 60) == ""
        assert parts.show_target() is Change.NOTHING


async def test_a_list_of_one_cluster_leads_to_a_retry_of_all() -> None:
    """Its tasks are grouped already: the next step selects all of them, then retries them."""
    mark = pattern_name(fold_error(some_tasks(0, 0, 1)[0].error))
    async with a_queue(State.DEAD) as queue, a_queue(State.DEAD, read_only=True) as reader:
        for each in (queue, reader):
            assert next_step(each.parts, lock_alarms=False)[0] == "c"
            each.parts.filter.replace(f"cluster={mark}")
            each.parts.filter_changed()
            await each.settle()
        step = ("*", "selects all of this cluster; then R replays them")
        assert next_step(queue.parts, lock_alarms=False) == step
        assert next_step(reader.parts, lock_alarms=False)[0] == "t"
        await queue.press("*")
        assert next_step(queue.parts, lock_alarms=False)[0] == "R"
    for text, is_one in (("cluster=F-1", True), ("!cluster=F-1", False), ("cluster=F-1 x", False)):
        assert parse_filter(text).is_only("cluster") is is_one


@pytest.mark.parametrize(("what", "step", "refusal"), [
    ("cut; discard it, or put it back", "shows the controls for it: discard, put-back", "C"),
    ("cut", "shows the first bytes of the file", "Enter"),
])  # fmt: skip
async def test_a_problem_has_the_key_of_what_corrects_it(
    what: str, step: str, refusal: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The controls that its text names are the next step, and in the refusal of a verb; in a
    console that only reads they are not."""
    known = dict.fromkeys(("discard", "put-back", "repair"), Control("mend"))
    monkeypatch.setattr(Inspector, "controls", known)
    async with a_queue() as queue, a_queue(read_only=True) as reader:
        for one in (queue, reader):
            parts = one.parts
            parts.to_tab(parts.tabs.all.index(None))
            parts.problems = (Problem("a.task", what),)
            parts.problem_key = "a.task"
        assert next_step(queue.parts, lock_alarms=False) == (refusal, step)
        assert f" {refusal} " in queue.parts.verb_refusal("purge")
        assert next_step(reader.parts, lock_alarms=False)[0] == "Enter"


async def test_a_problem_says_when_its_file_is_quarantined() -> None:
    """The seconds that are left are on the line of the next step; other files are only shown."""
    async with a_queue() as queue:
        parts = queue.parts
        parts.to_tab(parts.tabs.all.index(None))
        for at, step in (
            (NOW + 40, ("", "worker moves it to quarantine in 40s")),
            (NOW - 1, ("", "the next worker run moves it to quarantine")),
            (None, ("Enter", "shows the first bytes of the file")),
        ):
            parts.problems = (Problem("a.task", "cut", quarantined_at=at),)
            parts.problem_key = "a.task"
            assert next_step(parts, lock_alarms=False) == step
