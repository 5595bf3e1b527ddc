"""What every screen keeps on which a plan is confirmed, whatever the plan would change."""

from __future__ import annotations

import asyncio
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from engine.model import LockEvidence, State, Verdict
from tests.tui.conftest import READING
from tests.tui.desks import Desk, a_desk
from tests.tui.journals import a_journaled_place, carried_out, interrupt, kept, seen
from tests.tui.mailrooms import Mailroom
from tests.tui.spools import (
    NOW,
    Clock,
    a_memory,
    a_place,
    a_stuck_lock,
    a_task,
    disk_place,
    make_spool,
    some_tasks,
)
from tests.tui.wholes import PAUSE, RETRY, Whole
from tui import haste, keys
from tui.place import Place
from tui.screens.control import ControlScreen
from tui.screens.controls import ControlsScreen
from tui.screens.deed import Deed
from tui.screens.face import HASTY, Face, Target
from tui.screens.lock import LockScreen
from tui.screens.operations import DropScreen, OperationsScreen
from tui.screens.plan import PlanScreen
from tui.screens.suspend import SuspendScreen
from tui.screens.transports import TransportsScreen
from tui.screens.trial import TrialScreen
from tui.screens.worker import WorkerScreen

off = asyncio.to_thread


class AnyPlan:
    """A plan screen: how to open it, its confirming keys, and what tells that it was carried out.

    This one holds a task.
    """

    KIND: type[Deed] = PlanScreen
    opens = "H"
    confirm: tuple[str, ...] = ("y",)
    question = "y to hold this task"
    reason = True
    """Whether a reason can be given, and so required."""
    withdrawn = "nothing to do: all of these tasks are left out, or have changed"
    """What is said once another process has changed what it is about; "" where nothing can."""
    hint = "hold"
    """What the key that opens it is called."""

    def __init__(self, root: Path) -> None:
        self.root, self.clock = root, Clock()
        self.place = self.make()

    def make(self) -> Place:
        """The place that it is about."""
        self.memory = a_memory([a_task(1)])
        return a_place(self.memory)

    async def go(self, desk: Desk) -> None:
        """Lead to the screen from which it is opened."""

    async def change(self, desk: Desk) -> None:
        """Another process changes what it is about."""
        with self.memory.changed:
            (task,) = self.memory.tasks.values()
            self.memory.put(("", task.id), replace(task, description="another"))

    async def done(self, desk: Desk) -> bool:
        """Whether it was carried out."""
        return any(task.state is State.HELD for task in self.memory.tasks.values())

    async def opened(self, desk: Desk) -> Deed:
        """Open it."""
        await self.go(desk)
        return await desk.opens(self.KIND, self.opens)


class PlanForMany(AnyPlan):
    """A plan that asks for its count."""

    opens, confirm, hint = "X", ("4", "2"), "purge"
    question, withdrawn = "type 42 to purge 42: [ __ ]", "type 41 to purge 41"

    def make(self) -> Place:
        """Forty-two tasks."""
        self.memory = a_memory([a_task(number) for number in range(42)])
        return a_place(self.memory)

    async def go(self, desk: Desk) -> None:
        """Mark them all."""
        await desk.press("*")

    async def change(self, desk: Desk) -> None:
        """One of them is gone."""
        with self.memory.changed:
            self.memory.put(("", a_task(7).id), None)

    async def done(self, desk: Desk) -> bool:
        """They are in the trash."""
        return any(task.state is State.TRASH for task in self.memory.tasks.values())


class TakeBack(AnyPlan):
    """The plan to undo an operation."""

    opens, confirm, hint = "T", ("3",), "take back"
    question, withdrawn = "type 3 to take back 3: [ _ ]", "type 2 to take back 2"

    def make(self) -> Place:
        """A spool, whose journal has a purge."""
        make_spool(self.root, some_tasks(pending=4))
        place = a_journaled_place(self.root)
        carried_out(place, "purge", seen(place, State.DEAD)[:3])
        return place

    async def go(self, desk: Desk) -> None:
        """To the operations."""
        await desk.opens(OperationsScreen, "u")
        await desk.sees("3 done")

    async def change(self, desk: Desk) -> None:
        """The trash is emptied of one of them."""
        trash = await off(lambda: sorted((self.root / "queue/.spooldeck/trash").iterdir()))
        await off(trash[0].unlink)

    async def done(self, desk: Desk) -> bool:
        """They are dead again."""
        return len(await off(seen, self.place, State.DEAD)) > 9


class Drop(TakeBack):
    """The plan to declare an interrupted operation over."""

    KIND = DropScreen
    opens, confirm, question, hint = "D", ("y",), "y to let it be over", "drop"
    reason, withdrawn = False, ""

    def make(self) -> Place:
        """A spool with an operation whose process died."""
        make_spool(self.root, some_tasks(pending=4))
        place = a_journaled_place(self.root)
        self.op = interrupt(place, 8, 3)
        return place

    async def go(self, desk: Desk) -> None:
        """To the operations."""
        await desk.opens(OperationsScreen, "u")
        await desk.sees("3/8 interrupted")

    async def done(self, desk: Desk) -> bool:
        """The journal says that it is over."""
        operation = await off(kept(self.place).operation, self.op)
        return operation is not None and operation.ended is not None


class SetControl(AnyPlan):
    """The plan for a control that can be set back."""

    KIND = ControlScreen
    opens, question, hint = "enter", f"y to do it: {PAUSE}", "plan"
    withdrawn = "withdrawn: it has changed: 0 now"
    name = PAUSE

    def make(self) -> Place:
        """A mail queue in a database, whose jobs have failed."""
        self.whole = Whole(self.root, self.clock)
        self.whole.fail_all()
        return self.whole.place()

    async def go(self, desk: Desk) -> None:
        """To the control."""
        await desk.opens(ControlsScreen, "C")
        await desk.until(lambda: desk.picker.rows)
        desk.picker.put_on(self.name)

    async def change(self, desk: Desk) -> None:
        """Another process pauses the queue."""
        await off(lambda: self.whole.settle(**{PAUSE: "0"}))
        await desk.console.here.inspector.refresh()

    async def done(self, desk: Desk) -> bool:
        """The journal has it."""
        return bool(await off(self.whole.journal.operations))


class PressControl(SetControl):
    """The plan for a control that cannot be set back."""

    confirm, question, name = ("2",), f"type 2 to do it: {RETRY}: [ _ ]", RETRY
    withdrawn = ""


class Suspend(AnyPlan):
    """The plan to suspend a transport."""

    KIND: type[Deed] = SuspendScreen
    opens, question, hint = "S", "y to suspend postfix", "suspend"
    withdrawn = "withdrawn: the transports are not what they were"

    def make(self) -> Place:
        """A spool whose mail goes by postfix."""
        make_spool(self.root, [a_task(number, kind="mail_send") for number in range(3)])
        self.room = Mailroom(self.root, self.clock)
        return disk_place(self.root, "here", self.clock)._replace(mail=self.room.desk())

    async def go(self, desk: Desk) -> None:
        """To the transport."""
        desk.console.goto(Target(keys.TRANSPORTS))
        await desk.opens(TransportsScreen)
        await desk.until(lambda: "curl" in desk.rows)
        desk.picker.put_on("postfix")

    async def change(self, desk: Desk) -> None:
        """Another process suspends the other one."""
        await off(self.room.suspensions.suspend, "curl", NOW, "ben", "")

    async def done(self, desk: Desk) -> bool:
        """It is suspended."""
        return "postfix" in await off(self.room.suspensions.read)


class TestMail(Suspend):
    """The plan for a test mail."""

    __test__ = False
    KIND = TrialScreen
    opens, question, reason, withdrawn = "M", "y to send it", False, ""
    hint = "test mail"

    async def done(self, desk: Desk) -> bool:
        """Its command has said that it was asked."""
        return "asking --transport" in desk.page


class FreeLock(AnyPlan):
    """The plan to end a stuck worker and free its lock."""

    KIND = LockScreen
    opens, confirm, hint = "U", ("4", "7", "1", "1"), "unlock"
    question, reason = "type the PID, 4711, to free the lock: [ ____ ]", False
    withdrawn = "plan withdrawn: "

    def make(self) -> Place:
        """A queue with a stuck lock, and a command that leaves a file."""
        self.trace, self.evidence = self.root / "trace", a_stuck_lock()
        command = ("/bin/sh", "-c", f'printf %s "$0" > {shlex.quote(str(self.trace))}')
        memory = a_memory(some_tasks())
        return a_place(memory, lock=lambda: self.evidence, recover=command)

    async def change(self, desk: Desk) -> None:
        """The worker ends by itself."""
        self.evidence = LockEvidence(Verdict.FREE, reason="no lock file")

    async def done(self, desk: Desk) -> bool:
        """The command was run for the lock that was seen."""
        return await off(self.trace.exists) and await off(self.trace.read_text) != ""


class StartWorker(AnyPlan):
    """The plan to start a worker."""

    KIND = WorkerScreen
    opens, question, reason, withdrawn = "W", "y to start a worker", False, ""
    hint = "worker"

    def make(self) -> Place:
        """A queue with a program that stands for its worker, and leaves a file."""
        self.trace = self.root / "trace"
        return a_place(a_memory([a_task(1)]), work=("/usr/bin/touch", str(self.trace)))

    async def done(self, desk: Desk) -> bool:
        """It was started."""
        return await off(self.trace.exists)


PLANS = (
    *(AnyPlan, PlanForMany, TakeBack, Drop, StartWorker),
    *(SetControl, PressControl, Suspend, TestMail, FreeLock),
)
each_plan = pytest.mark.parametrize("plan", PLANS, ids=lambda kind: kind.__name__, indirect=True)


@pytest.fixture
def plan(request: pytest.FixtureRequest, tmp_path: Path) -> AnyPlan:
    """One of them, with its place."""
    made: AnyPlan = request.param(tmp_path)
    return made


@each_plan
async def test_only_its_own_keys_when_armed_and_read_carry_a_plan_out(
    plan: AnyPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plan does nothing without the reason that is required, in OBSERVE, by keys typed before it
    was read, by pasted keys and by Enter; armed, its keys carry it out.
    """
    async with a_desk(plan.place, require_reason=True, start_armed=False) as desk:
        screen = await plan.opened(desk)
        missing = plan.reason and not isinstance(screen, PlanScreen)
        await desk.sees("a reason is asked for here" if missing else "! arms, and the plan stays")
        if plan.reason:
            await desk.press(*plan.confirm)
            await desk.sees("a reason is asked for here: Tab types it")
            await desk.press("tab", *"why", "enter")
        await desk.press(*plan.confirm)
        await desk.sees("OBSERVE: press ! first")
        await desk.press("exclamation_mark")
        await desk.sees(plan.question)
        with monkeypatch.context() as early:
            early.setattr(haste, "CONFIRM_SECONDS", 2 * READING)
            await desk.press(*plan.confirm)
            await desk.sees(HASTY)
        await desk.paste(*plan.confirm)
        await desk.sees(HASTY)
        await desk.paste("!")
        await desk.press("enter")
        assert desk.console.around.arming.armed
        assert desk.console.screen is screen
        assert not await plan.done(desk)

        await desk.press(*plan.confirm)
        while not await plan.done(desk):
            await desk.pilot.pause(0.02)


@pytest.mark.parametrize(
    "plan",
    [kind for kind in PLANS if kind.withdrawn],
    ids=lambda kind: kind.__name__,
    indirect=True,
)
async def test_a_plan_is_withdrawn_when_what_it_is_about_changes(plan: AnyPlan) -> None:
    """What another process changed after a plan was made is said, and the keys that would have
    carried it out change nothing.
    """
    async with a_desk(plan.place) as desk:
        await plan.opened(desk)
        await desk.sees(plan.question)
        await plan.change(desk)
        await desk.sees(plan.withdrawn)
        await desk.press(*plan.confirm)

        assert not await plan.done(desk)


@each_plan
async def test_read_only_opens_no_plan(plan: AnyPlan) -> None:
    """With --read-only no plan opens: its key is no hint, and says why when it is pressed."""
    async with a_desk(plan.place, read_only=True) as desk:
        await plan.go(desk)
        face = desk.console.screen
        assert isinstance(face, Face)
        hints = {hint.words for hint in keys.hints(face.KIND, (), face.without())}
        await desk.press(plan.opens)

        await desk.sees("read only")
        assert desk.console.screen is face
        assert not hints & {plan.hint, "arm"}
