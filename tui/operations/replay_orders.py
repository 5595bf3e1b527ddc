"""The orders that an operator gives to a running operation: pause, rate, stop, undo."""

from __future__ import annotations

import re
from collections.abc import Collection

from textual import work as in_background

from engine.model import State
from engine.replay.progress import Phase
from engine.replay.settings import RemainderPolicy
from engine.store import StoreError
from engine.text.safe import safe_line
from engine.verbs import VERBS
from tui.operations.undo_plans import show_undo
from tui.plan.planning import preparing
from tui.screens.base import PASTED
from tui.screens.page import ListScreen
from tui.screens.target import Target
from tui.session.runners import RunningOperation
from tui.text import keys
from tui.text.hints import hint_lines
from tui.widgets.line_widgets import Lines

ARM_FIRST = "OBSERVE: press ! first: {what} changes more tasks"


_CLUSTER_MARK = re.compile(r"\bF-[0-9A-F]{4}\b")
"""The name of an error cluster in the reason of a stop."""


class OrderScreen(ListScreen):
    """Orders that slow an operation down are always allowed; others need ARMED."""

    work: RunningOperation

    def _order(self, name: str, words: str) -> None:
        if self.work.ended is not None:
            self.say("already ended")
            return
        self.work.order(name)
        self.say(words, "")
        self.paint()

    def _may_send_more(self, what: str) -> bool:
        arming = self.context.arming
        if self.is_pasted:
            self.say(PASTED)
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
            dead = safe_line(self.session.inspector.states.get(State.DEAD, "its state"))
            what = "is held" if holds else f"stays in {dead}"
            fate = "the rest is unchanged" if now is None else f"the rest {what}"
            self._order("stop", f"stopped: {fate}")

    def action_leave_open(self) -> None:
        """End without waiting for the missing outcomes."""
        now = self.work.progress
        if now is None or now.phase is not Phase.ENDING:
            self.say("still sending: s stops it")
        else:
            self._order("leave", "ends now")

    def action_plan_undo(self) -> None:
        """Open a plan to undo what has not run; a running replay is paused for it."""
        self._plan_undo()

    @in_background(exclusive=True, group="undo")
    async def _plan_undo(self) -> None:
        if not self.work.op:
            running = self.work.ended is None
            self.say("not in the journal" + (" yet" if running else ""))
            return
        try:
            await _pause_sending(self.work)
            with preparing(self, "the undo plan"):
                operation = await self.session.history.operation(self.work.op)
        except StoreError as error:
            self.say(f"no plan: {error}")
            return
        if operation is None:
            self.say("no longer in the journal")
            return
        paused = "paused; applying this plan stops it" * (self.work.ended is None)
        await show_undo(self, self.session, self.context, operation, [paused] if paused else [])

    def action_clusters(self) -> None:
        """Open the error clusters of the DLQ, with the cursor on the one that stopped it."""
        progress = self.work.progress
        match = None if progress is None else _CLUSTER_MARK.search(progress.stopped)
        mark = match.group() if match else ""
        self.go(Target(keys.CLUSTERS, place=self.session.number, state=State.DEAD, id=mark))

    # Hints

    def without(self) -> set[str]:
        """Keys that have no function now."""
        now = self.work.progress
        orders = {"pause", "faster", "slower", "stop", "leave_open"}
        other = {"clusters"} if now is None else set()  # only a replay is of the DLQ
        if self.work.ended is not None:
            return orders | other | (set() if self.is_undoable else {"plan_undo"})
        if now is None:
            return orders - {"stop"} | other | {"plan_undo"}
        if now.phase is Phase.ENDING:
            return orders - {"leave_open"}
        return {"leave_open"} | ({"stop"} if now.stopped else set())

    @property
    def is_undoable(self) -> bool:
        """True if a task that it changed has not run since."""
        work = self.work
        if not work.op or not VERBS[work.plan.verb].is_undoable:
            return False
        if work.progress is None:
            return work.report is not None and bool(work.report.done)
        return work.progress.tally.waiting > 0

    def show_hints(self, grey: Collection[str] = ()) -> None:
        """Show the available orders; those that need ARMED are grey in OBSERVE."""
        now, armed = self.work.progress, self.context.arming.is_armed
        is_paused = now is not None and now.phase in (Phase.PAUSED, Phase.ASKING)
        refused = {*grey, *(() if armed else ("faster", *(("pause",) if is_paused else ())))}
        words = {"arm": keys.arm_hint(armed)}
        if is_paused:
            words["pause"] = "resume"
        hints = keys.hints_of(self.KIND, refused, self.without(), words)
        hints = tuple(sorted(hints, key=lambda hint: hint.is_minor))  # actions first
        self.query_one("#hints", Lines).show(hint_lines(hints, self.size.width))


async def _pause_sending(work: RunningOperation) -> None:
    """Pause sending, so that a plan matches what it is applied to."""
    now = work.progress
    if work.ended is None and now is not None and now.phase is not Phase.ENDING:
        work.order("pause")
        while (now := work.progress) is not None and now.phase in SENDING_PHASES:
            await work.wait_for_change()


SENDING_PHASES = (Phase.STARTING, Phase.SENDING, Phase.WAITING)
"""Phases in which tasks may be sent without an order."""
