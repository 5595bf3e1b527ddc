"""What every screen keeps on which a plan is confirmed; and the plan for tasks."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

import pytest
from textual.events import Resize
from textual.geometry import Size

from engine.formats.base.memory import EDGES, MemoryStore, MemoryTasks
from engine.model import Edge, Edges, LockEvidence, State, TaskWarning, Verdict
from engine.operations.plans import Plan, Row
from engine.override import override
from engine.places.place import NO_WORKER, Place
from tests.console_operator import ConsoleOperator, an_operator, keys_in
from tests.console_places import (
    NOW,
    Clock,
    a_memory,
    a_place,
    a_stuck_lock,
    a_task,
    disk_place,
    loaded,
    make_spool,
    queue_of,
    some_tasks,
)
from tests.journaled_places import a_journaled_place, carried_out, interrupt, kept, seen
from tests.mail_transports import PlaceTransports
from tests.tui.blank_rows import wasted_rows
from tests.tui.conftest import READING
from tests.tui.transports.test_screen_destinations import FINE, Deliveries
from tests.zgb_console_place import PAUSE, RETRY, ZgbConsolePlace
from tui.app import show_result
from tui.confirm.action_screen import ActionScreen
from tui.confirm.confirm_screen import ConfirmScreen
from tui.key_tables import keys_on
from tui.locks.screen import LockScreen
from tui.operations.screen import row_key
from tui.plan import planning
from tui.plan.screen import PlanScreen
from tui.queue.screen import QueueScreen
from tui.screens.base import PASTED, TOO_EARLY, BaseScreen
from tui.screens.target import Target
from tui.terminal import key_queue
from tui.terminal.bandwidth import ANSWER_SECONDS, BandwidthBudget
from tui.terminal.key_queue import key_event
from tui.text import keys

off = asyncio.to_thread


class AnyPlan:
    """A plan screen: its keys, and how to see that it was carried out. This one holds a task."""

    KIND: type[ConfirmScreen] = PlanScreen
    opens, confirm, question = "H", "y", "y to hold this task"
    hint = "hold"  # of the key that opens it
    pane, row = "", ""  # where it is opened, if not on the list
    reason = True  # one can be given, and so required
    withdrawn = "nothing to do: all tasks are excluded or changed"  # if its subject is changed

    def __init__(self, root: Path) -> None:
        self.root, self.clock = root, Clock()
        self.place = self._make()

    def _make(self) -> Place:
        self.memory = a_memory([a_task(1)])
        return a_place(self.memory)

    async def open(self, operator: ConsoleOperator) -> ConfirmScreen:
        """The plan on screen."""
        await self.go(operator)
        return await operator.opens(self.KIND, *keys_in(self.opens))

    async def go(self, operator: ConsoleOperator, number: int = 1) -> BaseScreen:
        """Lead to the screen of a place from which it is opened, with the cursor on its row."""
        if number > 1:
            operator.console.navigator.goto(Target(keys.LIST, place=number))
            await loaded(operator.pilot)
        if self.pane:
            operator.console.navigator.goto(Target(self.pane, place=number))
            await operator.until(lambda: operator.picker.key)
            key = self.row_of(number)
            await operator.until(lambda: key in [row.key for row in operator.picker.rows])
            operator.picker.select_key(key)
        screen = operator.console.screen
        assert isinstance(screen, BaseScreen)
        return screen

    def row_of(self, number: int) -> str:
        """The key of its row, where its place is the one with that number."""
        return self.row

    async def change(self, operator: ConsoleOperator) -> None:
        """Let another process change its subject."""
        with self.memory.condition:
            (task,) = self.memory.tasks.values()
            self.memory.put(("", task.id), task._replace(description="another"))

    async def done(self, operator: ConsoleOperator) -> bool:
        """Return whether it was carried out."""
        return any(task.state is State.HELD for task in self.memory.tasks.values())

    def close(self) -> None:
        """Close what the place has open."""


class _PlanForMany(AnyPlan):
    """A plan that asks for its count."""

    opens, confirm, hint = "* X", "42", "purge"
    question, withdrawn = "type 42 to purge 42: [__]", "type 41 to purge 41"

    def _make(self) -> Place:
        self.memory = a_memory([a_task(number) for number in range(42)])
        return a_place(self.memory)

    async def change(self, operator: ConsoleOperator) -> None:
        with self.memory.condition:
            self.memory.put(("", a_task(7).id), None)

    async def done(self, operator: ConsoleOperator) -> bool:
        return any(task.state is State.TRASH for task in self.memory.tasks.values())


class _Undo(AnyPlan):
    """The plan to undo an operation."""

    opens, confirm, hint, pane = "u", "3", "undo", keys.OPERATIONS
    question, withdrawn = "type 3 to undo 3: [_]", "type 2 to undo 2"

    def _make(self) -> Place:
        make_spool(self.root, some_tasks(pending=4))
        place = a_journaled_place(self.root)
        self.op = self._begin(place)
        return place

    def row_of(self, number: int) -> str:
        return row_key(number, self.op)

    def _begin(self, place: Place) -> str:
        return carried_out(place, "purge", seen(place, State.DEAD)[:3])

    async def change(self, operator: ConsoleOperator) -> None:
        trash = await off(lambda: sorted((self.root / "queue/.spooldeck/trash").iterdir()))
        await off(trash[0].unlink)

    async def done(self, operator: ConsoleOperator) -> bool:
        return len(await off(seen, self.place, State.DEAD)) > 9


class _Drop(_Undo):
    """The plan to declare an interrupted operation over."""

    KIND = ActionScreen
    opens, confirm, question, hint = "D", "y", "y to abandon it", "abandon"
    reason, withdrawn = False, ""

    def _begin(self, place: Place) -> str:
        return interrupt(place, 8, 3)

    async def done(self, operator: ConsoleOperator) -> bool:
        operation = await off(kept(self.place).operation, self.op)
        return operation is not None and operation.ended is not None


class _SetControl(AnyPlan):
    """The plan for a control that can be set back."""

    KIND = ActionScreen
    opens, question, hint = "enter", f"y to apply {PAUSE}", "plan"
    withdrawn = "plan outdated: the control changed: 0"
    pane, row = keys.CONTROLS, PAUSE

    def _make(self) -> Place:
        self.whole = ZgbConsolePlace(self.root, self.clock)
        self.whole.fail_all()
        return self.whole.place()

    async def change(self, operator: ConsoleOperator) -> None:
        await off(lambda: self.whole.settle(**{PAUSE: "0"}))
        await operator.console.navigator.session.inspector.scan_now()

    async def done(self, operator: ConsoleOperator) -> bool:
        return bool(await off(self.whole.journal.operations))


class _PressControl(_SetControl):
    """The plan for a control that cannot be set back."""

    confirm, question, row = "2", f"type 2 to apply {RETRY}: [_]", RETRY
    withdrawn = ""


class _Suspend(AnyPlan):
    """The plan to suspend a transport."""

    KIND: type[ConfirmScreen] = ActionScreen
    opens, question, hint = "S", "y to suspend postfix", "suspend"
    withdrawn = "plan outdated: the transports changed"
    pane, row = keys.TRANSPORTS, "postfix"

    def _make(self) -> Place:
        make_spool(self.root, [a_task(number, kind="mail_send") for number in range(3)])
        self.room = PlaceTransports(self.root, self.clock)
        return disk_place(self.root, "here", self.clock)._replace(mail=self.room.place_mail())

    async def change(self, operator: ConsoleOperator) -> None:
        await off(self.room.suspensions.suspend, "curl", NOW, "ben", "")

    async def done(self, operator: ConsoleOperator) -> bool:
        return "postfix" in await off(self.room.suspensions.read)


class _Block(AnyPlan):
    """The plan to block a destination."""

    KIND = ActionScreen
    opens, question, hint = "S", f"y to block {FINE}", "block"
    withdrawn = "plan outdated: the destination changed"
    pane, row = keys.TRANSPORTS, FINE

    def _make(self) -> Place:
        self.deliveries = Deliveries(self.root)
        return self.deliveries.place()

    async def change(self, operator: ConsoleOperator) -> None:
        before = await self.deliveries.now(FINE)
        await off(self.deliveries.registry.swap, before, before._replace(blocked="by another"))

    async def done(self, operator: ConsoleOperator) -> bool:
        return (await self.deliveries.now(FINE)).blocked not in ("", "by another")

    def close(self) -> None:
        self.deliveries.close()


class _SendTestMail(_Suspend):
    """The plan for a test mail."""

    KIND = ActionScreen
    opens, question, reason, withdrawn = "M", "y to send to", False, ""
    hint = "test mail"

    async def done(self, operator: ConsoleOperator) -> bool:
        return "asking --transport" in operator.page


class _FreeLock(AnyPlan):
    """The plan to end a stuck worker and free its lock."""

    KIND = LockScreen
    opens, confirm, hint = "U", "4711", "unlock"
    question, reason = "type the PID 4711 to free the lock: [____]", False
    withdrawn = "plan withdrawn: "

    def _make(self) -> Place:
        self.trace, self.evidence = self.root / "trace", a_stuck_lock()
        command = ("/bin/sh", "-c", f'printf %s "$0" > {shlex.quote(str(self.trace))}')
        return a_place(a_memory(some_tasks()), lock=lambda: self.evidence, recovery_command=command)

    async def open(self, operator: ConsoleOperator) -> ConfirmScreen:
        """The logs are read: later they would change the plan under the keys that confirm it."""
        screen = await super().open(operator)
        await operator.sees("not finished")
        return screen

    async def change(self, operator: ConsoleOperator) -> None:
        self.evidence = LockEvidence(Verdict.FREE, reason="no lock file")

    async def done(self, operator: ConsoleOperator) -> bool:
        return await off(self.trace.exists) and await off(self.trace.read_text) != ""


class _StartWorker(AnyPlan):
    """The plan to start a worker; another program takes its place."""

    KIND = ActionScreen
    opens, question, reason, withdrawn = "W", "y to start a worker", False, ""
    hint = "worker"

    def _make(self) -> Place:
        self.trace = self.root / "trace"
        return a_place(a_memory([a_task(1)]), worker_command=("/usr/bin/touch", str(self.trace)))

    async def done(self, operator: ConsoleOperator) -> bool:
        return await off(self.trace.exists)


class _EndHolder(_StartWorker):
    """The plan to start a worker that ends a stuck holder."""

    confirm, question = "4711", "type the PID 4711"
    withdrawn = "plan outdated: the lock changed"

    def _make(self) -> Place:
        self.evidence = a_stuck_lock()
        return super()._make()._replace(lock=lambda: self.evidence)

    async def change(self, operator: ConsoleOperator) -> None:
        self.evidence = LockEvidence(Verdict.FREE, reason="no lock file")


WORK = (_StartWorker, _EndHolder, _FreeLock)
CONTROLS = (_SetControl, _PressControl, _Suspend, _Block, _SendTestMail)
PLANS = (AnyPlan, _PlanForMany, _Undo, _Drop, *WORK, *CONTROLS)


@pytest.fixture
def plan(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[AnyPlan]:
    """A plan with its place."""
    made: AnyPlan = request.param(tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize("plan", PLANS, ids=lambda kind: kind.__name__, indirect=True)
async def test_only_its_own_keys_confirm_it(plan: AnyPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan does nothing without the reason that is required, in OBSERVE, by keys typed before it
    was read, by pasted keys and by Enter. Below 60x15 the keys that confirm are refused, also those
    that arrive with the new size; keys that arrive with a size that shows the scope again come too
    early. Armed and read, its keys carry it out."""
    async with an_operator(plan.place, require_reason=True, start_armed=False) as operator:
        screen = await plan.open(operator)
        missing = plan.reason and not isinstance(screen, PlanScreen)
        await operator.sees("reason required" if missing else "! arms writes")
        if plan.reason:
            await operator.step(plan.confirm, "reason required: Tab")
            await operator.press("tab", *"why", "enter")
        await operator.step(plan.confirm, "OBSERVE: press ! first")
        await operator.step("!", plan.question)
        with monkeypatch.context() as early:
            early.setattr(key_queue, "CONFIRM_SECONDS", 2 * READING)
            await operator.step(plan.confirm, TOO_EARLY)
        await operator.paste(*plan.confirm)
        await operator.sees(PASTED)
        await operator.paste("!")
        await operator.press("enter")
        assert operator.console.context.arming.is_armed
        assert operator.console.screen is screen
        assert not await plan.done(operator)

        async def confirm_at(*size: int) -> None:
            operator.console.post_message(Resize(Size(*size), Size(*size)))
            for key in plan.confirm:
                operator.console.post_message(key_event(key))
            await operator.pilot.pause()
            await operator.pilot.pause()

        with monkeypatch.context() as patch:
            patch.setattr(ConfirmScreen, "tick", lambda screen: None)  # a timer keeps what it got
            for size in ((59, 24), (80, 14)):
                await confirm_at(*size)
                assert "needs 60x15" in operator.text
            patch.setattr(key_queue, "CONFIRM_SECONDS", 2 * READING)
            screen.guard.plan_painted(-2 * READING)
            await confirm_at(80, 24)
            assert TOO_EARLY in operator.text
            assert not await plan.done(operator)
        await operator.pilot.resize_terminal(60, 15)
        await operator.press(*plan.confirm)
        while not await plan.done(operator):
            await operator.pilot.pause(0.02)


@pytest.fixture
def plans(tmp_path: Path) -> Iterator[list[AnyPlan]]:
    """All plans, whose places are those of one console."""
    made = []
    for kind in PLANS:
        folder = tmp_path / kind.__name__
        folder.mkdir()
        made.append(kind(folder))
        made[-1].place = made[-1].place._replace(name=f"/srv/{kind.__name__}")
    yield made
    for plan in made:
        plan.close()


async def test_a_plan_is_withdrawn_when_what_it_is_about_changes(plans: list[AnyPlan]) -> None:
    """If its subject changes, it is said, and the keys that confirm do nothing."""
    async with an_operator(*(plan.place for plan in plans)) as operator:
        for number, plan in enumerate(plans, 1):
            if not plan.withdrawn:
                continue
            below = await plan.go(operator, number)
            await operator.opens(plan.KIND, *keys_in(plan.opens))
            await operator.sees(plan.question)
            await plan.change(operator)
            await operator.sees(plan.withdrawn)
            await operator.press(*plan.confirm)
            assert not await plan.done(operator), plan
            await operator.press("escape")
            await operator.until(lambda: operator.console.screen is below)  # noqa: B023


async def test_read_only_opens_no_plan(plans: list[AnyPlan]) -> None:
    """With --read-only no plan opens: its key is no hint, and says why when it is pressed."""
    async with an_operator(*(plan.place for plan in plans), read_only=True) as operator:
        for number, plan in enumerate(plans, 1):
            screen = await plan.go(operator, number)
            hints = {key.hint for key in keys_on(screen.KIND, screen.without())}
            await operator.step(plan.opens, "read only")
            assert operator.console.screen is screen, plan
            assert not hints & {plan.hint, "arm"}, plan


# ---- the plan for tasks


def states(memory: MemoryTasks) -> list[State]:
    """The state of each task."""
    return [task.state for task in memory.tasks.values()]


class LimitedStore(MemoryStore):
    """Holds two tasks in a plan, warns of those of a queue, and gives tasks other ids."""

    edges: Edges = {
        **EDGES,
        (State.PENDING, State.HELD): Edge(
            limit=2,
            instead="control pause",
            warnings=(TaskWarning(lambda task, now: task.queue == "a", "{count} in queue a"),),
            renames=True,
        ),
    }

    @override
    def find_new_ids(self, ids: Collection[str], seconds: float) -> Mapping[str, str]:
        return {ident: f"new-{ident}" for ident in sorted(ids)[1:]}


async def test_a_plan_of_too_many_tasks_has_no_confirmation() -> None:
    """It shows the limit and what to use instead; the result has the new ids."""
    tasks = [a_task(number)._replace(queue="aab"[number]) for number in range(3)]
    memory = a_memory(tasks)
    place = a_place(memory, open=lambda: LimitedStore(memory))
    async with an_operator(place, size=(100, 40)) as operator:
        refused = "at most 2 in a plan; for more: control pause"
        out = (f"3 refused, stays in pending: {refused}", f"nothing to do: {refused}")
        await operator.step("* H", PlanScreen, *out)
        assert "in queue a" not in operator.text
        await operator.step("space", "type 2 to hold 2", "! 1 in queue a")
        await operator.step("2", "2 held", f"{tasks[2].id} -> new-{tasks[2].id}")
        await operator.sees("1: new id not seen yet: the operation shows it later")


YOUNG = [a_task(number)._replace(created=NOW - 60) for number in range(1, 4)]


async def test_the_command_of_a_plan_is_whole_at_80_columns() -> None:
    """A long command is folded, so that it can be copied to its end."""
    place = a_place(a_memory(YOUNG), command=("spooldeck", "--root", "/srv/" + "long-name/" * 4))
    async with an_operator(place, size=(80, 30)) as operator:
        await operator.step("* X I", PlanScreen, "type 3 to purge 3")
        assert "--apply 3" in operator.text


async def test_sizes_are_those_of_the_tasks_that_it_acts_on() -> None:
    """Excluded tasks have no part in the size; without any other it is 0, with no ages."""
    async with an_operator(a_place(a_memory(YOUNG)), size=(100, 30)) as operator:

        def sizes() -> list[int]:
            return [int(size) for size in re.findall(r"size +(\d+) B, oldest", operator.text)]

        await operator.step("* X", PlanScreen, "3 excluded: younger", "size 0 B, read at")
        await operator.step("I", "type 3 to purge 3")
        await operator.until(sizes)  # read on a thread
        (three,) = sizes()
        await operator.step("space", "type 2 to purge 2")
        await operator.until(lambda: sizes() and sizes() != [three])
        assert 0 < sizes()[0] < three


async def test_young_tasks_are_excluded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A purge of a whole state without a filter says so, and excludes the young ones; I includes
    all of them and excludes them again, Space takes one in. The plan can be exported."""
    monkeypatch.chdir(tmp_path)
    memory = a_memory([a_task(0), *YOUNG])
    async with an_operator(a_place(memory), size=(100, 30)) as operator:
        await operator.step("* X", PlanScreen, "all of pending, no filter", "hold stops them")
        out = "excluded: younger than 15 minutes: I includes all, Space one"
        await operator.sees(f"3 {out}", "y to purge this task")
        await operator.step("I", "type 4 to purge 4")
        assert "younger than 15 minutes: I" not in operator.text
        assert "excludes new tasks" not in operator.text
        await operator.step("j space", "1 excluded: excluded by the operator", "type 3 to purge 3")
        await operator.step("I", f"2 {out}")
        await operator.step("e", "export to", ".csv", "Enter OK")
        await operator.press(*["backspace"] * 3)
        await operator.step("jsonl enter", PlanScreen, "4 rows in spooldeck-plan-purge-")
        assert set(states(memory)) == {State.PENDING}
        await operator.step("space", "1 excluded: younger than 15 minutes", "type 2 to purge 2")
        await operator.step("2", "2 purged", "2 excluded", "2 purged + 2 excluded = 4")
    assert states(memory).count(State.TRASH) == 2
    (path,) = await off(lambda: list(Path().glob("spooldeck-plan-purge-*.jsonl")))
    written = [json.loads(line) for line in (await off(path.read_text)).splitlines()]
    outcomes = [(re.split("[,:]", row["outcome"])[0], row["odd"]) for row in written]
    assert outcomes == [("purged", ""), *[("excluded", "younger than 15 minutes")] * 3]


async def test_a_large_plan_is_counted_without_comparison(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a change of the index lets a plan be compared with it."""
    monkeypatch.setattr("tui.plan.plan_facts.MAX_INLINE_COUNT_ROWS", 3)
    monkeypatch.setattr("tui.plan.plan_facts.DRIFT_CHECK_SECONDS", 3600.0)
    memory = a_memory([a_task(number) for number in range(7)])
    async with an_operator(a_place(memory), size=(100, 30)) as operator:
        inspector = operator.console.sessions[0].inspector
        compared, compare = list[Plan](), inspector.queries.changed_rows

        async def note_call(plan: Plan) -> tuple[tuple[Row, str], ...]:
            compared.append(plan)
            return await compare(plan)

        monkeypatch.setattr(inspector.queries, "changed_rows", note_call)
        screen = await operator.opens(PlanScreen, "*", "X")
        await operator.sees("type 7 to purge 7")
        await operator.step("space", "type 6 to purge 6")
        assert not compared
        with memory.condition:
            memory.put(("", a_task(5).id), None)
        await operator.until(lambda: inspector.latest.counts[State.PENDING] == 6)
        screen.facts.recount()
        await operator.sees("type 5 to purge 5")


async def test_a_young_task_that_was_picked_is_purged() -> None:
    """The screen says that it is young; the command that does the same names it, too."""
    async with an_operator(a_place(a_memory(YOUNG[:1])), size=(100, 30)) as operator:
        screen = await operator.opens(PlanScreen, "X")
        await operator.sees("though younger than 15 minutes", "y to purge this task")
        assert screen.facts.counts is not None
        command = planning.equivalent_command(screen.facts.counts, screen.session, "why not")
        await operator.step("y", "1 purged")
    ids = f"--id {YOUNG[0].id} --include {YOUNG[0].id}"
    assert command == f"spooldeck purge --state pending {ids} --reason 'why not' --apply 1"


@pytest.mark.parametrize(("tasks", "named"), [(4, "--id"), (5, "")])
async def test_a_filter_that_is_too_long_is_not_in_the_command(tasks: int, named: str) -> None:
    """Then a few tasks are named by their ids; for more there is no command."""
    async with an_operator(a_place(a_memory(some_tasks(tasks, 0, 0))), size=(100, 30)) as operator:
        screen = await operator.opens(PlanScreen, "*", "H")
        await operator.sees(f"type {tasks} to hold {tasks}")
        counts = screen.facts.counts
        assert counts is not None
        for length, words in ((1_000, "--filter"), (1_001, named)):
            long = counts._replace(plan=counts.plan._replace(filter="a" * length))
            command = planning.equivalent_command(long, screen.session, "")
            assert words in command and bool(words) == bool(command)
            assert ("--filter" in command) == (length == 1_000)


async def test_key_and_plan_have_the_same_word() -> None:
    """A few marked tasks are retried, all of a list replayed: key, title, prompt and command."""
    async with an_operator(a_place(a_memory(some_tasks(0, 0, 3))), size=(100, 30)) as operator:
        await operator.press("4")
        for pressed, amount, word in (("space space", 2, "retry"), ("*", 3, "replay")):
            await operator.step(pressed, f"R {word}")
            screen = await operator.opens(PlanScreen, "R")
            title = f"{word.upper()} {amount} TASKS"
            await operator.sees(title, f"type {amount} to {word} {amount}")
            counts = screen.facts.counts
            assert counts is not None
            command = planning.equivalent_command(counts, screen.session, "", screen.facts.pace)
            assert command.startswith(f"spooldeck {word} ") and "--rate" not in command
            await operator.opens(QueueScreen, "escape")


async def lock_is_read(operator: ConsoleOperator, verdict: Verdict) -> None:
    """Wait until the console knows that the lock has this verdict."""
    (live,) = operator.console.sessions
    await operator.until(lambda: live.readings.lock and live.readings.lock.verdict is verdict)


async def test_work_is_touched_only_when_no_worker_has_the_lock() -> None:
    """Verbs for tasks in work are refused unless their worker is gone."""
    memory = a_memory(some_tasks(0, 1, 0))
    verdicts = [Verdict.HELD, Verdict.STUCK, Verdict.UNKNOWN]
    lock = [LockEvidence(verdicts[0], 4711, reason="-")]
    async with an_operator(a_place(memory, lock=lambda: lock[-1])) as operator:
        rows = queue_of(operator.console).parts.rows
        await operator.press("l")
        await operator.until(lambda: rows.view.loaded and rows.view.task_here)
        for verdict in verdicts:
            lock.append(lock[0]._replace(verdict=verdict))
            await lock_is_read(operator, verdict)
            await operator.press("H", "L", "K")
            assert isinstance(operator.console.screen, QueueScreen), verdict
    assert states(memory) == [State.ACTIVE]


async def test_a_result_says_that_no_worker_is_running() -> None:
    """Without a worker a retry names the next step; closed, its message ends."""
    lock = [LockEvidence(Verdict.FREE, since=NOW)]
    memory = a_memory([a_task(number, State.DEAD) for number in (1, 5)])
    async with an_operator(a_place(memory, lock=lambda: lock[-1])) as operator:
        news = operator.console.sessions[0].messages
        for verdict, row in ((Verdict.FREE, "g"), (Verdict.HELD, "G")):
            lock.append(lock[0]._replace(verdict=verdict))
            await lock_is_read(operator, verdict)
            await operator.opens(PlanScreen, "4", row, "R")
            await operator.step("y", "1 retried")
            assert (NO_WORKER in operator.page) is (verdict is Verdict.FREE)
            await operator.until(lambda: news)
            await operator.opens(QueueScreen, "escape")
            assert not news


@pytest.mark.parametrize("dead", [3, 60])
async def test_a_result_has_no_blank_frame_beside_one_that_cuts(dead: int) -> None:
    """With few tasks the place is below them; many have all rows, and no frame is blank."""
    place = a_place(a_memory(some_tasks(dead=dead)))
    async with an_operator(place, size=(120, 40)) as operator:
        await operator.opens(PlanScreen, "4", "*", "X")
        await operator.sees(f"Tasks {dead}")
        await operator.step(" ".join(str(dead)), f"{dead} purged", f"{dead} tasks: now trash")
        screen = operator.console.screen
        for size in ((200, 60), (120, 40), (80, 24)):
            await operator.pilot.resize_terminal(*size)
            await operator.until(lambda: not wasted_rows(screen), lambda: wasted_rows(screen))


async def test_a_plan_shows_no_result_of_another_operation() -> None:
    """The result of an earlier operation waits until the plan that is open is closed."""
    hands, news = Clock(0.0), "1 purged, 0 gone, 0 failed; u shows it"
    async with an_operator(a_place(a_memory(some_tasks())), size=(100, 30)) as operator:
        operator.console.bandwidth = BandwidthBudget(lambda: 0, hands)
        await operator.opens(PlanScreen, "X")
        operator.console.sessions[0].messages.append(news)
        for is_plan in (True, False):
            hands.now += ANSWER_SECONDS
            show_result(operator.console)
            assert not is_plan or "1 purged" not in operator.page
            await operator.press(*(["escape"] if is_plan else []))
        await operator.sees(news)
