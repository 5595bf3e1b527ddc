"""Screen of a running operation of this console: progress, orders, result."""

from __future__ import annotations

import asyncio

from textual import work

from engine.model import State
from engine.operations.execute import RowResult
from engine.replay.progress import Phase
from engine.replay.settings import RemainderPolicy
from engine.store import StoreError
from engine.text.safe import safe_line
from engine.verbs import VERBS
from tui.format import keys, present
from tui.format import progress_bar as progress_view
from tui.format.present import Line
from tui.operations import replay_lines as view
from tui.operations.undo_plans import show_undo
from tui.plan import lines as plan_view
from tui.screens.base import TOO_EARLY, Copy, key_bindings
from tui.screens.console_context import ConsoleContext
from tui.screens.page import ListScreen
from tui.session.place_session import PlaceSession
from tui.session.running_operations import RunningOperation
from tui.widgets.lines import LongText
from tui.widgets.picker import Picker

ARM_FIRST = "OBSERVE: press ! first: {what} changes more tasks"

REPAINT_SECONDS = 0.5
"""Minimum seconds between two repaints."""


class ReplayScreen(ListScreen):
    """Shows an operation; closing the screen does not stop it."""

    KIND = keys.RUNNING_OPERATION
    BINDINGS = key_bindings(keys.RUNNING_OPERATION)

    def __init__(self, work: RunningOperation, live: PlaceSession, around: ConsoleContext) -> None:
        super().__init__(live, around)
        self.work = work

    def begin(self) -> None:
        """Focus the text, and follow the operation."""
        self.query_one(Picker).display = False
        self.query_one(LongText).focus()
        self.run_worker(self._follow(), name="operation")

    async def _follow(self) -> None:
        loop, painted = asyncio.get_running_loop(), float("-inf")
        while self.work.ended is None:
            await self.work.wait_for_change()
            now = loop.time()
            if (
                self.is_current
                and not self.around.skips_repaint()
                and now - painted >= REPAINT_SECONDS
            ):
                painted = now
                self.paint()
        self.paint()

    def trail(self) -> tuple[str, ...]:
        """The place and the operation."""
        amount = present.format_count(self.work.planned, "task")
        return (self.live.name, f"{self.work.name} {amount}")

    def lay_out(self, width: int) -> None:
        """Paint progress or result."""
        text = self.query_one(LongText)
        text.show(self._lines(width, text.size.height))

    def _lines(self, width: int, height: int) -> list[Line]:
        work, states = self.work, self.live.inspector.states
        now = work.progress
        if work.result is not None:
            return view.result_lines(work.result, states, width)
        if now is not None:
            return view.progress_lines(now, states, self.around.clock(), width, height)
        if work.report is not None:
            return plan_view.result_lines(work.report, width)
        return self._direct_lines(width)

    def _direct_lines(self, width: int) -> list[Line]:
        work = self.work
        took = max(0.0, self.around.clock() - work.began)
        done = sum(work.counts.values())
        bar = progress_view.bar_line(
            progress_view.ProgressBar(done, work.planned), took, "tasks", width
        )
        names = {
            RowResult.DONE: VERBS[work.plan.verb].past,
            RowResult.EXCLUDED: "excluded",
            RowResult.GONE: "skipped",
        }
        rows = [(names.get(end, str(end)), f"{n:,}") for end, n in work.counts.items()]
        return [bar, *present.labelled_lines(rows, width)]

    def default_message(self) -> Line:
        """How to leave the screen, or how many lines are below."""
        below = self.query_one(LongText).below
        if self.work.ended is None:
            now = self.work.progress
            if now is not None and now.phase is Phase.ASKING:
                return ((" Space continues, s stops", "chip-warn"),)
            return ((" Esc leaves, it continues in the background", "muted"),)
        if hint := self.live.worker_hint(self.work.plan.verb):
            return ((f" {hint}", "strong"),)
        return ((f" {below} more below: PgDn" if below else "", "muted"),)

    def without(self) -> set[str]:
        """Keys that have no function now."""
        now = self.work.progress
        orders = {"pause", "faster", "slower", "stop", "leave_open"}
        if self.work.ended is not None:
            return orders
        if now is None:
            return orders - {"stop"} | {"plan_undo"}
        if now.phase is Phase.ENDING:
            return orders - {"leave_open"}
        return {"leave_open"} | ({"stop"} if now.stopped else set())

    def show_hints(self, grey: object = ()) -> None:
        """Show the available orders; those that need ARMED are grey in OBSERVE."""
        from tui.widgets.lines import Lines

        now, armed = self.work.progress, self.around.arming.is_armed
        stands = now is not None and now.phase in (Phase.PAUSED, Phase.ASKING)
        refused = set() if armed else {"faster", *(("pause",) if stands else ())}
        words = {"arm": keys.arm_hint(armed)}
        if stands:
            words["pause"] = "resume"
        hints = keys.hints_of(self.KIND, refused, self.without(), words)
        hints = tuple(sorted(hints, key=lambda hint: hint.is_minor))  # actions first
        self.query_one("#hints", Lines).show(present.hint_lines(hints, self.size.width))

    # Orders that slow down are always allowed; others need ARMED.

    def _order(self, name: str, words: str) -> None:
        if self.work.ended is not None:
            self.say("already ended")
            return
        self.work.order(name)
        self.say(words, "")
        self.paint()

    def _may_send_more(self, what: str) -> bool:
        arming = self.around.arming
        if self.hasty:
            self.say(TOO_EARLY)
        elif arming.read_only:
            self.say("read only: started with --read-only")
        elif not arming.is_armed:
            self.say(ARM_FIRST.format(what=what))
        else:
            arming.extend()
            return True
        return False

    def action_pause(self) -> None:
        """Pause sending, or resume."""
        now = self.work.progress
        if now is None:
            self.say("cannot be paused: s stops it")
        elif now.phase is Phase.ASKING:
            if self._may_send_more("resuming"):
                self._order("go_on", "continues")
        elif now.phase is Phase.PAUSED:
            if self._may_send_more("resuming"):
                self._order("resume", "resumed")
        else:
            self._order("pause", "paused: Space resumes")

    def action_faster(self) -> None:
        """Double the rate."""
        now = self.work.progress
        if now is None or now.pace.rate is None:
            self.say("no rate limit set")
        elif self._may_send_more("going faster"):
            self._order("faster", "twice as fast")

    def action_slower(self) -> None:
        """Halve the rate."""
        if self.work.progress is None:
            self.say("cannot be slowed down: s stops it")
        else:
            self._order("slower", "half as fast")

    def action_stop(self) -> None:
        """Stop sending; the rest is handled by the chosen rule."""
        now = self.work.progress
        holds = now is not None and now.pace.stops.rest is RemainderPolicy.HOLD and now.unsent
        if now is not None and now.stopped:
            self.say("already stopped")
        elif not holds or self._may_send_more("holding the rest"):
            dead = safe_line(self.live.inspector.states.get(State.DEAD, "its state"))
            what = "is held" if holds else f"stays in {dead}"
            rest = "the rest is unchanged" if now is None else f"the rest {what}"
            self._order("stop", f"stopped: {rest}")

    def action_leave_open(self) -> None:
        """End without waiting for the missing outcomes."""
        now = self.work.progress
        if now is None or now.phase is not Phase.ENDING:
            self.say("still sending: s stops it")
        else:
            self._order("leave", "ends now")

    def action_arm(self) -> None:
        """Arm or disarm."""
        if self.hasty:
            self.say(TOO_EARLY)
        else:
            self.say(self.around.arming.toggle())
            self.paint()

    def action_plan_undo(self) -> None:
        """Open a plan to undo what has not run; a running replay is paused for it."""
        self._plan_undo()

    @work(exclusive=True, group="undo")
    async def _plan_undo(self) -> None:
        if not self.work.op:
            running = self.work.ended is None
            self.say("not in the journal" + (" yet" if running else ""))
            return
        try:
            await self._pause_sending()
            operation = await self.live.history.operation(self.work.op)
        except StoreError as error:
            self.say(f"no plan: {error}")
            return
        if operation is None:
            self.say("no longer in the journal")
            return
        paused = "paused; applying this plan stops it" * (self.work.ended is None)
        await show_undo(self, self.live, self.around, operation, [paused] if paused else [])

    async def _pause_sending(self) -> None:
        """Pause sending, so that the plan matches what it is applied to."""
        now = self.work.progress
        if self.work.ended is None and now is not None and now.phase is not Phase.ENDING:
            self.work.order("pause")
            while (now := self.work.progress) is not None and now.phase in SENDING_PHASES:
                await self.work.wait_for_change()

    def copies(self) -> tuple[Copy, ...]:
        """Its name in the journal, and the whole text."""
        lines = self._lines(100, 100)
        text = "\n".join("".join(text for text, _ in line).rstrip() for line in lines)
        op = (Copy("o", "operation", self.work.op),) if self.work.op else ()
        return (*op, Copy("t", "text", text))

    def action_reread(self) -> None:
        """Nothing to do: the screen is always current."""


SENDING_PHASES = (Phase.STARTING, Phase.SENDING, Phase.WAITING)
"""Phases in which tasks may be sent without an order."""
