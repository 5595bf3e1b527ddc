"""What was done within a day, by whomever: to look at, to take back, to go on with, to drop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from textual import work

from engine.operations.journal import Operation
from engine.store import StoreError, Unavailable
from engine.text.safe import shown
from tui.format import keys, present
from tui.format.present import BLANK, Line
from tui.operations import lines as view
from tui.operations import undo_plans
from tui.operations.lines import Listed
from tui.plan.confirm_screen import ConfirmScreen
from tui.screens.base import HASTY, Copy
from tui.screens.console_context import ConsoleContext
from tui.screens.page import ListScreen
from tui.session.place_session import PlaceSession
from tui.session.running_operations import RunningOperation
from tui.widgets.lines import LongText
from tui.widgets.picker import Choice, Picker

PERIOD = 1.0
"""Seconds between two looks whether there is something new."""

Show = Callable[["OperationsScreen", PlaceSession, ConsoleContext, Operation], Awaitable[None]]


class OperationsScreen(ListScreen):
    """The operations of one place, the latest first."""

    KIND = keys.OPERATIONS
    BINDINGS = keys.bindings(keys.OPERATIONS)

    def __init__(self, live: PlaceSession, around: ConsoleContext, op: str = "") -> None:
        """The cursor is put on `op` once that is there."""
        super().__init__(live, around)
        self._op = op
        self._listed: tuple[Listed, ...] = ()

    def aim(self, op: str) -> None:
        """Put the cursor on that one, once it is there."""
        self._op = op

    def begin(self) -> None:
        """Show what is known, and keep it up to date."""
        super().begin()
        self.run_worker(self._follow(), name="operations")

    async def _follow(self) -> None:
        always = True
        while True:
            if self.is_current:
                try:
                    await self.live.history.look(always=always)
                except Unavailable:
                    return  # closed: the console is being left
                always = False
                self.paint()
            await asyncio.sleep(PERIOD)

    # What it shows

    @property
    def here(self) -> Listed | None:
        """The one under the cursor."""
        key = self.picked
        return next((one for one in self._listed if one.operation.op == key), None)

    def lay_out(self, width: int) -> None:
        """A row for each, and below what there is to say of the one under the cursor."""
        now = self.around.clock()
        history = self.live.history
        self._listed = view.listed(history.operations, history.half)
        head, lines = view.table(self._listed, now, width)
        picker = self.query_one(Picker)
        ops = [one.operation.op for one in self._listed]
        picker.offer([Choice(op, line) for op, line in zip(ops, lines, strict=True)], [head])
        picker.styles.height = min(len(picker.rows) + 1, max(2, self.size.height // 2))
        if self._op in ops:
            picker.put_on(self._op)
            self._op = ""
        here = self.here
        self.query_one(LongText).show(
            self._nothing() if here is None else [BLANK, *view.about(here, now, width)]
        )

    def _nothing(self) -> list[Line]:
        history = self.live.history
        if self.live.place.journal is None:
            words = "nothing that is done here is written down"
        elif history.trouble:
            words = f"the journal cannot be read: {shown(history.trouble)}"
        else:
            nothing = self.missing("nothing was done here within a day")
            words = nothing if history.read else "looking ..."
        return [((f" {words}", "dim"),)]

    def word(self) -> Line:
        """What is wrong with the journal; else what there is to be done."""
        history = self.live.history
        left = len(history.interrupted)
        if history.trouble and history.operations:
            return ((f" ! {shown(history.trouble)}", "bad"),)
        if left:
            words = f" {present.count(left, 'operation')} interrupted: R goes on, D lets it be over"
            return ((words, "warning"),)
        return ((" kept for 24 h; T shows what would come back" * bool(self._listed), "dim"),)

    def show_hints(self, grey: object = ()) -> None:
        """Which keys mean something for the one under the cursor."""
        from tui.widgets.lines import Lines

        here = self.here
        refused: set[str] = set()
        if here is None or not here.operation.interrupted:
            refused |= {"go_on", "drop"}
        if here is None or undo_plans.why_no_undo(here.operation):
            refused.add("take_back")
        words = {"arm": keys.arm_words(self.around.arming.armed)}
        hints = keys.hints(self.KIND, refused, self.without(), words)
        hints = tuple(sorted(hints, key=lambda hint: hint.minor))  # what acts comes first
        self.query_one("#hints", Lines).show(present.hint_lines(hints, self.size.width))

    def without(self) -> set[str]:
        """What writes, where only looking is allowed."""
        read_only = self.around.arming.read_only
        return {"take_back", "go_on", "drop", "arm"} if read_only else set()

    def action_move(self, how: str) -> None:
        """Up and down among the rows; by pages through what is said of one."""
        if "page" in how or "half" in how:
            self.query_one(LongText).move(how)
        else:
            super().action_move(how)

    # What can be done

    def action_open(self) -> None:
        """Who did it, why, and each of its rows; one that runs here as it runs."""
        here = self.here
        if here is None:
            self.say(self.missing("there is nothing to open"))
            return
        from tui.operations.record_screen import RecordScreen
        from tui.operations.running_screen import ReplayScreen

        ours = self._ours(here.operation)
        if ours is not None:
            self.app.push_screen(ReplayScreen(ours, self.live, self.around))
        else:
            self.app.push_screen(RecordScreen(here, self.live, self.around))

    def _ours(self, operation: Operation) -> RunningOperation | None:
        """What runs here, or ran, where that is this operation."""
        return next((work for work in self.live.works if work.op == operation.op), None)

    def action_take_back(self) -> None:
        """A plan to take it back."""
        self._plan(undo_plans.show_undo, "")

    def action_go_on(self) -> None:
        """A plan to go on with what an interrupted one did not come to."""
        self._plan(undo_plans.show_rest, "go on with")

    def action_drop(self) -> None:
        """A plan to let an interrupted one be over."""
        self._plan(_show_drop, "drop")

    def _plan(self, show: Show, open_: str) -> None:
        """Show a plan for the one under the cursor; `open_` says what only an open one is for."""
        here = self.here
        if self.around.arming.read_only:
            self.say("read only: this console was started with --read-only")
        elif self.hasty:
            self.say(HASTY)
        elif here is None:
            self.say(self.missing("there is no operation here"))
        elif open_ and not here.operation.interrupted:
            self.say(f"nothing to {open_}: it was not interrupted")
        else:
            self._show(show, here.operation.op)

    @work(exclusive=True, group="plan")
    async def _show(self, show: Show, op: str) -> None:
        ours = next((one for one in self.live.works if one.op == op and one.ended is None), None)
        if ours is not None:
            self.say("it runs: Enter shows it, and T there takes back what waits")
            return
        try:
            operation = await self.live.history.operation(op)
        except Unavailable as error:
            self.say(f"no plan: {error}")
            return
        if operation is None:
            self.say("the journal does not know it any more")
        elif operation.running:
            self.say("somebody carries it out just now: it can be taken back once it is over")
        else:
            await show(self, self.live, self.around, operation)

    def dropped(self, _: None) -> None:
        """Back from a plan: read again what there is."""
        self._read_again("")

    def action_arm(self) -> None:
        """Allow writes for a while, or forbid them."""
        if self.hasty:
            self.say(HASTY)
        else:
            self.say(self.around.arming.toggle())
            self.paint()

    def action_reread(self) -> None:
        """Read the journal again."""
        self._read_again("the journal was read again")

    @work(exclusive=True, group="reread")
    async def _read_again(self, words: str) -> None:
        try:
            await self.live.history.look(always=True)
        except Unavailable:
            return  # closed: the console is being left
        if words:
            self.say(words, "")
        self.paint()

    def copies(self) -> tuple[Copy, ...]:
        """The one under the cursor: its name, and all that is said of it."""
        here = self.here
        if here is None:
            return ()
        lines = view.about(here, self.around.clock(), 100)
        text = "\n".join("".join(text for text, _ in line).rstrip() for line in lines)
        return Copy("o", "operation", here.operation.op), Copy("t", "text", text)


async def _show_drop(
    face: OperationsScreen, live: PlaceSession, around: ConsoleContext, operation: Operation
) -> None:
    if face.app.screen is face:
        one = Listed(operation, half=live.history.half.get(operation.op, 0))
        face.app.push_screen(DropScreen(one, live, around), face.dropped)


class DropScreen(ConfirmScreen):
    """The plan to let an interrupted operation be over; no task is touched by it."""

    KIND = keys.DROP
    BINDINGS = keys.bindings(keys.DROP)
    WANTS = "count"

    def __init__(self, one: Listed, live: PlaceSession, around: ConsoleContext) -> None:
        super().__init__(around.arming, around.clock)
        self._one, self._operation, self._live = one, one.operation, live
        self._doing = False

    @property
    def wanted(self) -> str:
        """Nothing is lost by it: `y` does."""
        return ""

    def settled(self) -> str:
        """It is done once."""
        return "it is being done" if self._doing else ""

    def lay_out(self, width: int) -> None:
        """What would become of the operation, and of its rows."""
        one = self._one
        rows = present.count(self._operation.open - one.half, "task")
        words = (
            f"{rows} that it did not move: stay as they are, where they are. The journal says "
            "that it is over, and nobody is asked again to go on with it."
        )
        if one.half:
            half = present.count(one.half, "task")
            words = f"{half} that it left half moved: finished, or put back, first. {words}"
        text: list[Line] = [present.heading("what would happen", width)]
        text += [((f"  {piece}", ""),) for piece in present.folded(words, max(8, width - 3))]
        text += [BLANK, *view.about(one, self._clock(), width)]
        self.show((), text, self.question("", "let it be over"))
        self.show_title(((f" drop {undo_plans.scope(self._operation)}", "strong"),))
        words_ = {"arm": keys.arm_words(self._arming.armed)}
        self.show_hints(self.grey(), self.without(), words_)

    def carry_out(self) -> None:
        """Write down that it is over."""
        self._doing = True
        self._drop()

    @work(group="drop")
    async def _drop(self) -> None:
        who = self._live.place.who.name
        try:
            await self._live.inspector.drop(self._operation, f"let be by {who}")
        except StoreError as error:
            self._doing = False
            self.say(f"not done: {error}")
            return
        self.dismiss()
