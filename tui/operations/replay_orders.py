"""The orders that an operator gives to a running operation: pause, rate, stop."""

from __future__ import annotations

from engine.model import State
from engine.replay.progress import Phase
from engine.replay.settings import RemainderPolicy
from engine.text.safe import safe_line
from tui.screens.base import TOO_EARLY
from tui.screens.page import ListScreen
from tui.session.running_operations import RunningOperation

ARM_FIRST = "OBSERVE: press ! first: {what} changes more tasks"


class OrderScreen(ListScreen):
    """Orders that slow an operation down are always allowed; others need write mode."""

    work: RunningOperation

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
        """Switch write mode."""
        if self.hasty:
            self.say(TOO_EARLY)
        else:
            self.say(self.around.arming.toggle())
            self.paint()
