"""A transport is suspended, or resumed: what becomes of mail, a reason, and `y`."""

from __future__ import annotations

import asyncio
import shlex

from textual import work

from engine.index import filter_language
from engine.index.schema import Query
from engine.model import State
from engine.monitor.transport_health import Routes, Stopped
from engine.store import Unavailable
from engine.text.safe import shown
from tui.format import keys, present
from tui.format.present import BLANK, Line
from tui.plan.confirm_screen import ConfirmScreen
from tui.screens.console_context import ConsoleContext
from tui.session.place import MailDesk
from tui.session.place_session import PlaceSession
from tui.transports import suspend_lines as view


class SuspendScreen(ConfirmScreen):
    """The plan for one transport, as it was when this was opened; closes once it is done."""

    KIND = keys.SUSPEND
    BINDINGS = keys.bindings(keys.SUSPEND)
    WANTS = "count"

    def __init__(
        self, name: str, live: PlaceSession, desk: MailDesk, around: ConsoleContext
    ) -> None:
        super().__init__(around.arming, around.clock)
        assert live.signs.routes is not None
        self._way, self._live, self._desk, self._around = name, live, desk, around
        self._seen: Routes = live.signs.routes
        self._after: Routes | None = None
        self._waiting: int | None = None
        self._unknown = ""
        self._doing = False
        self.outcome = ""
        """What was done, in words; "" while nothing was."""

    @property
    def _stops(self) -> bool:
        """Whether it is to be suspended; else it is resumed."""
        return self._way not in self._seen.stopped

    @property
    def _verb(self) -> str:
        return "suspend" if self._stops else "resume"

    def on_mount(self) -> None:
        """Find out what would become of mail, and notice when something changes meanwhile."""
        self._look_ahead()
        self.set_interval(1.0, self._compare)

    @work(exclusive=True, group="plan")
    async def _look_ahead(self) -> None:
        stop = Stopped(self._way, self._clock(), self._live.place.who.name)
        then = view.changed(self._seen, self._way, stop if self._stops else None)
        try:
            self._after = await asyncio.to_thread(self._desk.routes, then)
        except Unavailable as error:
            self._unknown = str(error)
        self.plan_changed()
        self.lay_out(self.size.width)
        if not self._desk.delivers:
            return
        query = Query(State.PENDING, filter_language.parse("kind=mail_send"))
        try:
            self._waiting = await self._live.inspector.count(query)
        except Unavailable:
            return  # how many wait is told elsewhere as well
        self.lay_out(self.size.width)

    def _compare(self) -> None:
        if self._withdrawn() and not self._doing:
            self.lay_out(self.size.width)

    def _withdrawn(self) -> str:
        """Why what is shown does not hold any more; "" while it does."""
        seen, now = self._seen, self._live.signs.routes
        if now is None or now.unknown:
            return (
                f"it is not known any more how mail goes: {now.unknown if now else 'nobody says'}"
            )
        if (seen.selected, seen.stopped, set(seen.why_not)) != (
            *(now.selected, now.stopped, set(now.why_not)),
        ):
            return "the transports are not what they were when this was opened"
        return ""

    # What it shows

    def lay_out(self, width: int) -> None:
        """What would become of mail, a reason, the other transports, and the same as a command."""
        if not self.stands or not width:
            return
        now = self._clock()
        seen = (self._seen, self._after, self._desk.delivers, self._waiting)
        text = view.plan(self._way, *seen, now, width)
        if self._stops:
            text += self._reason_lines(width)
        twin = shlex.join(self._twin())
        text += [BLANK, *view.others(self._way, self._seen, width), BLANK]
        text += [present.heading("the same on the command line", width)]
        text += [((f"  {piece}", "dim"),) for piece in present.folded(shown(twin), width - 3)]
        self.show((), text, self._ask())
        self.show_title(((f" {self._verb} ", "title"), (shown(self._way), "strong")))
        arm = {"arm": keys.arm_words(self._arming.armed), "yes": self._verb}
        self.show_hints(self.grey(), self.without(), arm)

    def _reason_lines(self, width: int) -> list[Line]:
        needed = ", which is asked for here" if self._around.require_reason else ""
        said = (
            (shown(self._reason), "")
            if self._reason
            else (f"none yet; Tab types it{needed}", "dim")
        )
        return [BLANK, present.heading("reason", width), present.cut((("  ", ""), said), width)]

    def _twin(self) -> tuple[str, ...]:
        reason = (self._reason,) if self._reason and self._stops else ()
        return (*self._live.place.command, "mail", self._verb, self._way, *reason)

    def _ask(self) -> Line:
        if self._doing:
            return ((" it is being done ...", "strong"),)
        if withdrawn := self._withdrawn():
            return ((f" withdrawn: {shown(withdrawn)}; Esc, then S looks anew", "warning"),)
        if settled := self.settled():
            return ((f" {shown(settled)}", "warning"),)
        return self.question("", f"{self._verb} {shown(self._way)}")

    @property
    def wanted(self) -> str:
        """It can be taken back at once: `y` does."""
        return ""

    def settled(self) -> str:
        """It is being done, what is shown does not hold any more, or a reason is missing."""
        if self._doing:
            return "it is being done"
        if withdrawn := self._withdrawn():
            return f"withdrawn: {withdrawn}; Esc, then S looks anew"
        if self._unknown:
            return f"what would become of mail is not known: {self._unknown}"
        if self._after is None:
            return "what would become of mail is being looked at: a moment"
        if self._stops and self._around.require_reason and not self._reason.strip():
            return "a reason is asked for here: Tab types it"
        return ""

    # What it does

    def without(self) -> set[str]:
        """A reason is given for what keeps mail back."""
        over = {"reason"} if not self._stops or self._doing else set()
        kept = {"arm"} if self._wants_reason else set()
        return (super().without() - kept) | over

    @property
    def _wants_reason(self) -> bool:
        return self.settled().startswith("a reason")

    def action_reason(self) -> None:
        """Say why; everybody sees it."""
        if self._stops and not self._doing:
            self.ask_reason("reason, for everybody")

    def carry_out(self) -> None:
        """Do it, on another thread: files are written."""
        self._doing = True
        self._do()

    @work(group="suspend")
    async def _do(self) -> None:
        name, reason, desk = self._way, self._reason, self._desk
        stops = self._stops
        try:
            trouble = await self._live.reroute(
                (lambda: desk.suspend(name, reason)) if stops else (lambda: desk.resume(name))
            )
        except Unavailable as error:
            self._doing = False
            self.lay_out(self.size.width)
            self.say(f"not done: {error}")
            return
        done = view.result(name, self._live.signs.routes, desk.delivers)
        self.outcome = done + (f"; {trouble}" if trouble else "")
        self.dismiss()
