"""A replay on screen: it goes on under other screens, takes orders, accounts for each task."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from engine.live.inspector import Inspector
from engine.model import State, Task
from engine.monitor.run_forecast import RunForecast
from engine.operations import plans
from engine.operations.execute import Report
from engine.operations.journal import Intent, Journal, Operation
from engine.operations.plans import Plan, Row, freeze_plan
from engine.places.place import Place
from engine.replay.progress import Phase, ReplayProgress, TaskProgress
from engine.replay.scheduler import ReplayState, StopRuleState, check_stop_rules
from engine.replay.settings import RemainderPolicy, ReplayPace, StopRules
from engine.verbs import VERBS
from tests import pseudo_terminals
from tests.console_operator import ConsoleOperator, an_operator, key_of, words
from tests.console_places import (
    NOW,
    Clock,
    a_memory,
    a_place,
    a_task,
    make_spool,
    queue_of,
    some_tasks,
)
from tests.journaled_places import a_journaled_place, kept, seen
from tests.tables import each
from tests.tui.asked_screen import AskedRowsScreen
from tests.tui.blank_rows import wasted_rows
from tui.operations import replay_lines as view
from tui.operations.replay_lines import GRAPH_ROWS
from tui.operations.running_parts import RunningParts
from tui.operations.running_screen import ROWS, ReplayScreen
from tui.operations.screen import OperationsScreen
from tui.plan.screen import PlanScreen
from tui.queue.screen import QueueScreen
from tui.screens.base import PASTED
from tui.screens.console_context import Arming, ConsoleContext
from tui.screens.dialogs import QuitScreen, describe_ending
from tui.screens.help import SCREEN_TITLES, HelpScreen
from tui.screens.key_rows import absent_actions, hints_of, press
from tui.screens.target import Target
from tui.session import place_session
from tui.session.place_session import PlaceSession
from tui.session.running_operations import (
    DirectRun,
    PullBackRun,
    ReplayRun,
    RunningOperation,
    describe_result,
)
from tui.task.screen import TaskScreen
from tui.text import keys
from tui.text.task_list import short_id

off = asyncio.to_thread
ONE, AT_ONCE = ReplayPace(None, (1,)), ReplayPace(None, ())
"""With a canary of one, whose outcome never comes, as no worker runs; and without any."""
BEGUN = time.monotonic()


def clock() -> float:
    """A time that goes on: a replay looks after its tasks by it."""
    return NOW + time.monotonic() - BEGUN


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A spool with twelve dead tasks, and a journal."""
    make_spool(tmp_path, some_tasks(pending=4, active=0))
    return a_journaled_place(tmp_path, clock, "/srv/spool")


@asynccontextmanager
async def replaying(
    place: Place, pace: ReplayPace, *, sent: int, armed: bool = True, **fields: Any
) -> AsyncIterator[tuple[ConsoleOperator, RunningOperation]]:
    """A replay of all the dead at that pace, on screen above the list, once so many are sent."""
    async with an_operator(place, clock=clock, start_armed=armed, **fields) as operator:
        work = started(operator, "retry", await off(seen, place, State.DEAD), pace)
        await operator.opens(ReplayScreen)
        await operator.until(lambda: now(work).sent == sent)
        yield operator, work


def started(
    operator: ConsoleOperator, verb: str, tasks: list[Task], pace: ReplayPace | None = None
) -> RunningOperation:
    """An operation on these tasks, on screen."""
    session = operator.console.navigator.session
    intent = Intent(verb, session.place.who)
    work = session.start_plan(plans.freeze_plan(verb, tasks, NOW), intent, pace)
    operator.console.navigator.goto(Target(keys.RUNNING_OPERATION))
    return work


def now(work: RunningOperation) -> ReplayProgress:
    """Its progress."""
    assert work.progress is not None
    return work.progress


def deliver(place: Place, amount: int) -> None:
    """Run the first pending tasks as a worker does: they leave, and the log says so."""
    log, stamp = Path(place.logs[0]), time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(clock()))
    for task in seen(place, State.PENDING)[:amount]:
        (Path(place.root) / "queue/pending" / f"{task.id}.task").unlink()
        with log.open("a") as file:
            file.write(f"[{stamp}] [SUCCESS] Task completed: {task.id} (job)\n")


async def test_a_replay_ends_when_its_last_task_has_run(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end is that of the forecast of its plan; while that is not known, all tasks are sent."""
    forecast, slow = [RunForecast(None, unknown="not measured")], ReplayPace(0.001, ())

    async def forecast_plan(session: PlaceSession, plan: Plan, settled: set[str]) -> RunForecast:
        return forecast[0]

    monkeypatch.setattr("tui.operations.running_parts.forecast_plan", forecast_plan)
    async with replaying(place, slow, sent=1) as (operator, _):
        await operator.sees("1 sent all sent in 3h")
        forecast[0] = RunForecast(86_400.0, "12 x 2h at 1/h")
        await operator.sees("1 sent ETA 1d00h")


async def test_a_replay_shows_how_far_it_is(place: Place) -> None:
    """Bar, counts and what it waits for fit every size; other screens say that it is paused. s
    sends nothing more, and the rest stays; the message with the result does not replace the next
    step on its own screen."""
    async with replaying(place, ONE, armed=False, sent=1) as (operator, work):
        for size in ((120, 40), (80, 24), (60, 15)):
            await operator.pilot.resize_terminal(*size)
            await operator.until(lambda: len(operator.text.splitlines()) <= size[1])  # noqa: B023
            waits = "canary of 1: waiting for 1 outcome"
            await operator.sees("RUNNING 0/12 0% 1 sent", "12 waiting", waits)
        assert now(work).accounted == 12
        await operator.step("?", HelpScreen, f"Keys of {SCREEN_TITLES[keys.RUNNING_OPERATION]} ")
        await operator.opens(ReplayScreen, "escape")
        await operator.step("space ctrl+c", QueueScreen, "ops 1 0% paused")

        operator.console.navigator.goto(Target(keys.RUNNING_OPERATION))
        await operator.opens(ReplayScreen, "s")
        await operator.until(lambda: now(work).stopped)
        rest = "1 not run yet + 11 not sent (still in DLQ) = 12"
        await operator.step("w", "STOPPED", "stopped by ana", rest, "next")
        await operator.until(lambda: not operator.console.navigator.session.messages)
        assert describe_result(work) not in operator.line("word")
        assert operator.line("word").startswith(" next")
        await operator.step("c", "> DLQ > clusters", "F-")
    assert len(await off(seen, place, State.DEAD)) == 11


async def test_results_show_where_their_tasks_are_now(place: Place) -> None:
    """A task that has run is not in the queue any more; a size for which no row is cut leaves no
    frame blank."""
    async with replaying(place, ONE, armed=False, sent=1, size=(120, 40)) as (operator, _):
        await off(deliver, place, 1)
        await operator.until(lambda: "not in queue" in operator.rows)
        for size in ((200, 60), (120, 40), (80, 24)):
            await operator.pilot.resize_terminal(*size)
            screen = operator.console.screen
            await operator.until(lambda: not wasted_rows(screen), lambda: wasted_rows(screen))  # noqa: B023


async def test_it_goes_on_when_its_screen_is_left(place: Place) -> None:
    """The badge is on every screen, the outcome on the list, each planned task in a count."""
    dead = await off(seen, place, State.DEAD)
    async with replaying(place, ONE, armed=False, sent=1) as (operator, work):
        (Path(place.root) / "queue/dlq" / f"{dead[5].id}.task").unlink()
        await operator.opens(QueueScreen, "escape")
        queue_of(operator.console).tick()
        await operator.sees("ops 1 0%")
        await off(deliver, place, 1)
        await operator.until(lambda: now(work).sent == 11)
        await off(deliver, place, 11)
        await operator.until(lambda: work.ended is not None)
        await operator.sees("replay done: 11 done + 1 skipped = 12; u shows it")
        operator.console.navigator.goto(Target(keys.RUNNING_OPERATION))
        await operator.opens(ReplayScreen)
        await operator.sees("DONE 12/12 100%", "11 done + 1 skipped = 12")
    assert work.result is not None and work.result.progress.accounted == 12


async def test_stopping_holds_the_rest(place: Place) -> None:
    """s sends nothing more; where the rest is to be held, it needs ARMED."""
    pace = ONE._replace(stops=StopRules(rest=RemainderPolicy.HOLD))
    async with replaying(place, pace, armed=False, sent=1) as (operator, work):
        await operator.step("s", "OBSERVE: press ! first: holding the rest changes more tasks")
        assert not now(work).stopped
        await operator.press("!", "s")
        await operator.until(lambda: now(work).stopped)
        await operator.step("w", "STOPPED", "stopped by ana", "1 not run yet + 11 held = 12")
        await operator.step("c", "> DLQ > clusters", "Clusters 0, failed 0")
    assert len(await off(seen, place, State.HELD)) == 11


async def test_waiting_tasks_are_pulled_back(place: Place) -> None:
    """An undo pauses it; its count stops it, and tasks that no worker ran are as before."""
    before = sorted(path.name for path in (Path(place.root) / "queue/dlq").iterdir())
    async with replaying(place, ONE, sent=1) as (operator, _):
        plan = ("paused; applying this plan stops it", "y to undo")
        await operator.step(key_of("plan_undo"), PlanScreen, *plan)
        await operator.step("y", "1 undone")
        rest = "1 undone + 11 not sent (still in DLQ) = 12"
        await operator.step("escape", ReplayScreen, "STOPPED", rest)
    assert sorted(path.name for path in (Path(place.root) / "queue/dlq").iterdir()) == before


async def test_an_excluded_task_is_not_pulled_back(place: Place) -> None:
    """Excluded from the plan a task stays where it was sent; who undid it, and why, is written."""
    async with replaying(place, AT_ONCE, size=(120, 40), sent=12) as (operator, work):
        await operator.step(key_of("plan_undo"), PlanScreen, "type 12 to undo 12")
        await operator.press(*["space"] * 11)
        await operator.sees("y to undo")
        await operator.step("tab mx7 enter", "reason mx7")
        await operator.step("y", "1 undone", "= 12")
        one = operator.console.navigator.session.operations[-1].report
    assert one is not None and (len(one.done), len(one.excluded)) == (1, 11)
    assert [task.id for task in await off(seen, place, State.DEAD)] == list(one.done)
    written = await off(kept(place).operation, one.op)
    assert written is not None
    intent = written.intent
    assert (intent.reason, intent.who, intent.undoes) == ("mx7", place.who, work.op)


async def test_a_result_has_all_its_tasks_before_the_graph(place: Place) -> None:
    """While an operation runs, its graph has a third of a large screen; of a result all tasks are
    on screen, and the figures of the queue below them; on a high one graph and log have as many
    lines, or the graph has one more."""
    async with replaying(place, AT_ONCE, armed=False, size=(120, 34), sent=12) as (operator, work):
        await operator.sees("while it runs", "backlog 16 max 16", "w do not wait")
        await operator.press("w")
        await operator.sees("Results 12", "since it began")
        ids = [short_id(row.id) for row in work.plan.rows]
        await operator.until(lambda: all(id in operator.text for id in ids))
        await operator.pilot.resize_terminal(200, 60)  # the graph shares the free lines
        screen = operator.console.screen
        assert isinstance(screen, ReplayScreen)
        flow, log = screen.flow, screen.panes.body.foot.log
        await operator.until(
            lambda: flow.size.height > GRAPH_ROWS and flow.size.height - log.size.height in (0, 1),
            lambda: f"{flow.size.height} lines of graph, {log.size.height} of log",
        )


async def test_a_result_ends_in_its_next_step_until_it_is_undone(place: Place) -> None:
    """A purge without a failure offers its undo and names what is left; once undone, its screen has
    who undid it and when."""
    dead = await off(seen, place, State.DEAD)
    async with an_operator(place, clock=clock, size=(100, 30)) as operator:
        session = operator.console.navigator.session
        work = started(operator, "purge", dead[:5])
        await operator.sees("DONE 5/5 100%", "next u plans the undo; 4 lists 7 dead tasks left")
        assert "5 purged =" not in operator.text
        await operator.step("u", PlanScreen, "UNDO 5 TASKS")
        await operator.step("5", "result", "5 undone")
        assert "5 undone =" not in operator.text and "Esc closes" not in operator.text
        await session.history.refresh(always=True)
        operator.console.navigator.goto(Target(keys.RUNNING_OPERATION, id=work.op))
        await operator.sees("UNDONE 5/5 100%", "undone: ", "Z by ana", "next Esc goes back")


async def test_a_replay_that_is_over_takes_nothing_back(place: Place) -> None:
    """Asked too late, the plan to undo accounts for each row as not done, and moves none."""
    async with replaying(place, AT_ONCE, armed=False, sent=12) as (operator, work):
        await operator.step("s", "w do not wait")
        await operator.press("w")
        await operator.until(lambda: work.ended is not None)
        assert isinstance(work, ReplayRun)
        row = Row("a", State.PENDING, "1")
        rows = (row._replace(target=State.DEAD), row._replace(id="b", default_exclusion="odd"))
        back = PullBackRun(work, Plan("undo", rows, NOW), Intent("undo", place.who), clock)
        assert back.report is not None
        assert back.report.failed == (("a", "the replay had already ended"),)
        assert back.report.excluded == (("b", "odd"),)
    assert len(await off(seen, place, State.DEAD)) == 0


async def test_a_replay_that_asks_says_so_on_every_screen(place: Place) -> None:
    """A canary without an outcome waits for Space, and the header says so."""
    async with an_operator(place, clock=clock) as operator:
        console, pace = operator.console, ReplayPace(None, (1,), timeout=0.0)
        session = console.navigator.session
        plan = plans.freeze_plan("retry", await off(seen, place, State.DEAD), NOW)
        console.push_screen(PlanScreen(plan, "all", session, console.context, pace=pace))
        await operator.sees("type 12 to replay 12")
        await operator.step("12", ReplayScreen, "PAUSED", "next Space continues, s stops")
        assert not session.messages
        asks = "replay asks whether to continue: u, Enter"
        await operator.step("ctrl+c", QueueScreen, "ops 1 0% asks", asks)
        console.navigator.goto(Target(keys.RUNNING_OPERATION))
        await operator.opens(ReplayScreen, "space")
        await operator.until(lambda: now(session.operations[-1]).sent == 12)


async def test_a_plain_operation_has_the_same_screen(place: Place) -> None:
    """An operation without a pace has counts and a result, which says if it only asked. A task that
    was skipped comes before those that were changed; Enter opens one of these."""
    tasks = await off(seen, place, State.PENDING)
    async with an_operator(place, clock=clock) as operator:
        (Path(place.root) / "queue/pending" / f"{tasks[2].id}.task").unlink()
        started(operator, "hold", tasks)
        await operator.sees("3 held + 1 skipped = 4", "changed since the plan")
        assert operator.picker.rows[0].key == operator.picker.key == tasks[2].id
        await operator.press("j")
        await operator.opens(TaskScreen, "enter")

        work = started(operator, "release", await off(seen, place, State.HELD))
        await operator.sees("RELEASE 3 TASKS", "DONE 3/3 100%", "3 released")
        assert work.share == 1.0
        operator.console.navigator.goto(Target(keys.OPERATIONS))
        await operator.opens(OperationsScreen)
        await operator.sees("release 3 DONE u, may have run")
    assert isinstance(work, DirectRun) and work.report is not None
    for exact in (True, False):
        work.report = work.report._replace(is_exact=exact)
        shown = words(view.head_lines(view.operation_view(work, {}, NOW), 80))
        assert ("asked for 3; the server decides" in shown) is not exact


async def test_a_journal_that_cannot_be_written_stops_it_before_it_begins(place: Place) -> None:
    """Where the intent cannot be written down nothing is sent, and it is said."""
    folder = Path(kept(place).folder)
    await off(os.makedirs, folder.parent)
    await off(folder.write_text, "")
    async with replaying(place, AT_ONCE, armed=False, sent=0) as (operator, work):
        await operator.until(lambda: work.ended is not None)
        await operator.sees("the journal in", "12 not sent (still in DLQ)")
    assert work.report is not None and work.report.accounted == 12
    assert len(await off(seen, place, State.DEAD)) == 12


def test_a_step_shows_what_stopped_it() -> None:
    """A canary that failed stops a replay although no stop rule did."""
    progress = ReplayProgress(Phase.OVER, planned=5, unsent=4, stopped="canary of 1 failed")
    progress = progress._replace(
        rules=(StopRuleState("share", "failed 1 of the last 1", "fail 1/2", ""),)
    )
    assert words(view.step_lines(progress, 120)[1:2]).rstrip().endswith("0  canary of 1 failed")


@pytest.mark.parametrize(("width", "planned", "pending", "rules"), [
    (80, 99, None, ["F-6C57 1/2, fail 1/3"]),
    (80, 99, 900, ["F-6C57 1/2", "fail 1/3", "pend 900/1,001"]),
    (80, 100_000, None, ["F-6C57 1/2", "fail 1/3"]),
    (120, 99, None, ["F-6C57 1 of 2, failed 1 of the last 2, 10% of 20 allowed"]),
    (120, 99, 900, ["F-6C57 1/2, fail 1/3, pend 900/1,001"]),
    (170, 99, 900, ["F-6C57 1 of 2, failed 1 of the last 2, 10% of 20 allowed, "
                    "pending 900, 1,000 allowed"]),
])  # fmt: skip
def test_the_stop_rules_of_a_running_replay_are_whole(
    width: int, planned: int, pending: int | None, rules: list[str]
) -> None:
    """Where they are too long for one line, each is what it counts and the number that stops the
    replay, below each other if need be."""
    stops = StopRules(same=2, share=0.1, last=20, pending=pending and 1000)
    state = ReplayState(ReplayPace(stops=stops), planned, NOW)
    state = state._replace(recent=(True, False), repeated_errors={"F-6C57": 1})
    rule_states = check_stop_rules(state, pending)
    progress = ReplayProgress(Phase.SENDING, planned=planned, rules=rule_states)
    head, *lines = words(view.step_lines(progress, width)).splitlines()
    assert [line[head.index("STOP RULE") :].rstrip() for line in lines] == rules


def test_a_result_has_its_true_duration() -> None:
    """A replay that took less than a second is shown in tenths of a second, not as 0 s."""
    progress = ReplayProgress(Phase.OVER, began=NOW + 2.9, now=NOW + 3.3)
    lines = words(view.head_lines(view.replay_view(progress, {}), 80))
    assert "took 0.4s" in lines and "09:42:10Z to 09:42:11Z" in lines


def test_the_rest_stays_in_the_state_of_its_plan() -> None:
    """Leaving names where the unsent tasks are: of a rerun, not the state of dead tasks."""

    class Running:
        """A rerun of which two tasks are not sent."""

        words, share = VERBS["rerun"].words(is_paced=True), 0.25
        plan = plans.freeze_plan("rerun", [a_task(n, State.DONE) for n in range(4)], NOW)
        progress = ReplayProgress(planned=4, unsent=2, pace=ReplayPace())

    states = {State.DEAD: "failed", State.DONE: "completed"}
    assert "2 tasks stay in completed;" in describe_ending(Running(), states)  # type: ignore[arg-type]


async def test_leaving_asks_and_the_rest_is_offered_again(place: Place) -> None:
    """q says what becomes of it, and s ends it; the next console offers the rest."""
    async with replaying(place, ONE, armed=False, sent=1) as (operator, work):
        await operator.opens(QueueScreen, "ctrl+c")
        await operator.step("q", QuitScreen, "replay is at 0%: stops. 11 tasks stay in")
        await operator.press("escape")
        await operator.until(lambda: not isinstance(operator.console.screen, QuitScreen))
        await operator.step("qqq", "replay is at 0%: stops.")
        assert work.ended is None
        await operator.press("s")
        await operator.until(lambda: not operator.console.is_running)
    assert len(await off(seen, place, State.DEAD)) == 11
    async with an_operator(place, early=True, clock=clock, first=keys.OVERVIEW) as operator:
        await operator.sees("interrupted, 11 of 12 not moved; u there shows it")


@pytest.mark.deep
def test_killed_in_the_middle_nothing_is_lost(tmp_path: Path) -> None:
    """After kill -9 each task that was not moved is in the DLQ; the next console goes on."""
    start = time.time()
    dead = some_tasks(0, 0, 24)
    fields = {"created": start - 7200, "extra": {"dead_since": str(int(start - 3600))}}
    make_spool(tmp_path, [task._replace(**fields) for task in dead])  # type: ignore[arg-type]
    with pseudo_terminals.console("--open", "queue", str(tmp_path)) as terminal:
        terminal.shows("acts on")
        for key, *expected in (
            ("4", "4 DLQ 24", "acts on"),
            ("*", "all 24 matching"),
            ("R", "plan"),
            ("!", "type 24 to replay 24"),
        ):
            terminal.send(key)
            terminal.shows(*expected)
        terminal.reads()
        terminal.send("2")
        terminal.shows("[2_]")
        terminal.reads()  # two digits at once would count as pasted
        terminal.send("4")
        terminal.shows("canary of 1: waiting for 1 outcome")  # for ever: no worker runs
        os.kill(terminal.process.pid, signal.SIGKILL)
        terminal.process.wait()

    folders = tmp_path / "queue/dlq", tmp_path / "queue/pending"
    left, moved = ([path.stem for path in folder.iterdir()] for folder in folders)
    assert sorted([*left, *moved]) == sorted(task.id for task in dead) and len(left) == 23
    (operation,) = Journal(f"{tmp_path}/queue/.spooldeck/journal", str(tmp_path)).operations()
    assert operation.is_interrupted
    with pseudo_terminals.console("--open", "queue", str(tmp_path)) as terminal:
        terminal.shows("interrupted, 23")
        terminal.send("u")
        terminal.shows("INTERRUPTED", "R resume")
        terminal.send("R")
        terminal.shows("the rest of replay of", "23  DLQ -> pending")


HOLDS_REST = ReplayPace(2.0, (1,), stops=StopRules(rest=RemainderPolicy.HOLD))
ORDER_KEYS = {"Space", "+", "-", "s", "w"}


class NotedOperation(RunningOperation):
    """An operation that notes its orders."""

    result = None

    def __init__(self, progress: ReplayProgress | None, ended: float | None = None) -> None:
        clock = Clock()
        plan = freeze_plan("retry", [a_task(1, State.DEAD)], clock())
        super().__init__(plan, Intent("retry", a_place(a_memory([])).who), clock)
        self.progress, self.ended, self.counts = progress, ended, {}
        self.report = None if ended is None else Report(plan, ("1",), (), ())
        self.orders: list[str] = []

    def _pass_order(self, name: str) -> None:
        self.orders.append(name)


class Operator:
    """Presses the keys of a running operation."""

    def __init__(self, work: NotedOperation, *, armed: bool) -> None:
        clock, self.work, self.screen = Clock(), work, AskedRowsScreen()
        context = ConsoleContext("mx1", Arming(clock, False), clock, places=1)
        if armed:
            context.arming.toggle()
        session = PlaceSession(a_place(a_memory([])), clock)
        self.parts = RunningParts(work, session, context, self.screen)

    def press(self, pressed: str) -> str:
        """Press a key; the message."""
        self.parts.message.clear()
        press(ROWS, pressed, self.parts, self.parts.say)
        return self.parts.message.text

    @property
    def offered(self) -> dict[str, tuple[str, bool]]:
        """The hints of the orders: their words, and whether they are refused."""
        hints = hints_of(ROWS, self.parts)
        return {h.shown: (h.text, h.is_refused) for h in hints if h.shown in ORDER_KEYS}


@pytest.mark.parametrize(("ended", "mark"), [(None, "? no answer for 7s"), (NOW, "")])
def test_results_of_a_silent_place_are_marked_while_it_runs(
    monkeypatch: pytest.MonkeyPatch, ended: float | None, mark: str
) -> None:
    """While the place does not answer, the results say so until the operation has ended."""
    work = NotedOperation(ReplayProgress(Phase.SENDING, unsent=3), ended)
    parts = Operator(work, armed=True).parts
    monkeypatch.setattr(parts.session, "_reading_since", NOW)
    monkeypatch.setattr(parts.session, "has_readings", True)
    monkeypatch.setattr(place_session, "monotonic", lambda: NOW + 7)
    assert words([parts.rows_frame().right]) == mark


@each("is_running", [True, False])
def test_a_journal_without_the_outcomes_yet_offers_the_undo(is_running: bool) -> None:
    """Just after the end the journal may have been read while it ran, with no task done."""
    parts = Operator(NotedOperation(None, NOW), armed=True).parts
    assert parts.work.report is not None
    parts.work.report = parts.work.report._replace(op="1")
    ended = None if is_running else NOW
    read = Operation("1", NOW, parts.work.intent, 1, {}, ended=ended, is_running=is_running)
    parts.session.history.operations = (read,)
    assert parts.is_undoable == is_running


@each("armed", [False, True])
def test_only_an_order_that_changes_more_needs_armed(armed: bool) -> None:
    """In OBSERVE orders that change more tasks are grey, and refused."""
    paused = NotedOperation(ReplayProgress(Phase.PAUSED, pace=HOLDS_REST, unsent=3))
    operator = Operator(paused, armed=armed)
    rows = (
        ("space", "Space", "resume", "resumed", "resuming"),
        ("+", "+", "faster", "twice as fast", "going faster"),
        ("-", "-", "slower", "half as fast", ""),
        ("s", "s", "stop", "stopped: the rest is held", "holding the rest"),
    )
    assert operator.offered == {
        shown: (text, not armed and bool(refused)) for _, shown, text, _, refused in rows
    }
    for pressed, _, _, done, refused in rows:
        refusal = f"OBSERVE: press ! first: {refused} changes more tasks"
        assert operator.press(pressed) == (done if armed or not refused else refusal)
    assert paused.orders == (["resume", "faster", "slower", "stop"] if armed else ["slower"])


def test_pasted_text_resumes_nothing() -> None:
    """A pasted key does not change more tasks, also while the console is armed."""
    asking = NotedOperation(ReplayProgress(Phase.ASKING))
    operator = Operator(asking, armed=True)
    operator.screen.is_pasted = True
    assert operator.press("space") == PASTED
    operator.screen.is_pasted = False
    assert operator.press("space") == "continues"
    assert asking.orders == ["go_on"]


@each(
    ("progress", "ended", "offered", "refusals"),
    [
        (ReplayProgress(Phase.SENDING), None, "Space + - s", {}),
        (
            ReplayProgress(Phase.SENDING, stopped="by ana"),
            None,
            "Space + -",
            {"s": "already stopped", "w": "still sending: s stops it"},
        ),
        (ReplayProgress(Phase.ENDING), None, "w", {}),
        (ReplayProgress(Phase.OVER), 1.0, "", {"-": "already ended", "w": "already ended"}),
        (
            None,
            None,
            "s",
            {
                "space": "cannot be paused: s stops it",
                "-": "cannot be slowed down: s stops it",
                "+": "no rate limit set",
                "s": "stopped: the rest is unchanged",
            },
        ),
        (None, 1.0, "", {"-": "already ended", "w": "already ended"}),
    ],
)
def test_the_orders_are_those_of_the_phase(
    progress: ReplayProgress | None, ended: float | None, offered: str, refusals: dict[str, str]
) -> None:
    """An order without a use now has no hint, and its key says why."""
    operator = Operator(NotedOperation(progress, ended), armed=True)
    assert set(operator.offered) == {*offered.split()}
    assert ("clusters" in absent_actions(ROWS, operator.parts)) == (progress is None)
    assert {key: operator.press(key) for key in refusals} == refusals


def test_the_clusters_are_opened_on_the_one_that_stopped_it() -> None:
    """The name of a cluster in the reason of a stop is the row that gets the cursor."""
    stopped = NotedOperation(ReplayProgress(Phase.ENDING, stopped="2 x F-0A1B in a row"))
    operator = Operator(stopped, armed=False)
    operator.press("c")
    (target,) = operator.screen.targets
    number = operator.parts.session.number
    assert target == Target(keys.CLUSTERS, place=number, state=State.DEAD, id="F-0A1B")


@each(
    ("result", "step"),
    [
        ("delivered", "next c groups 3 dead tasks left"),
        ("failed", "next Enter shows the failed task; c shows other clusters"),
        ("unknown", "next Enter shows the task without an outcome; c shows other clusters"),
    ],
)
def test_a_result_leads_to_what_went_wrong_or_is_left(
    monkeypatch: pytest.MonkeyPatch, result: str, step: str
) -> None:
    """After a replay without a failure the next step is the dead tasks that are left."""
    results = (TaskProgress(NOW, "1", result, ""),)
    work = NotedOperation(ReplayProgress(Phase.OVER, planned=1, results=results), NOW)
    parts = Operator(work, armed=True).parts
    latest = parts.session.inspector.latest._replace(counts={State.DEAD: 3})
    monkeypatch.setattr(Inspector, "latest", latest)
    assert " ".join(words([parts.next_step(100)]).split()) == step
