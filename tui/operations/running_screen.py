"""An operation of this console while it is carried out, and what it came to."""

from __future__ import annotations

import asyncio

from textual import work

from engine.model import State
from engine.operations.execute import RowResult
from engine.replay.progress import Phase
from engine.replay.settings import RemainderPolicy
from engine.store import StoreError
from engine.text.safe import shown
from engine.verbs import VERBS
from tui.format import keys, present
from tui.format import progress_bar as progress_view
from tui.format.present import Line
from tui.operations import replay_lines as view
from tui.operations.undo_plans import show_undo
from tui.plan import lines as plan_view
from tui.screens.base import HASTY, Copy, Target
from tui.screens.console_context import ConsoleContext
from tui.screens.page import ListScreen
from tui.session.place_session import PlaceSession
from tui.session.running_operations import RunningOperation
from tui.widgets.lines import LongText
from tui.widgets.picker import Picker

ARM_FIRST = "OBSERVE: press ! first; {what} changes more tasks"

PERIOD = 0.5
"""Seconds between two looks at how far it is."""


class ReplayScreen(ListScreen):
    """It only shows: what is carried out goes on when this screen is left."""

    KIND = keys.OPERATION
    BINDINGS = keys.bindings(keys.OPERATION)

    def __init__(self, work: RunningOperation, live: PlaceSession, around: ConsoleContext) -> None:
        super().__init__(live, around)
        self.work = work

    def begin(self) -> None:
        """Keys move through the text; there is nothing to choose."""
        self.query_one(Picker).display = False
        self.query_one(LongText).focus()
        self.run_worker(self._follow(), name="operation")

    async def _follow(self) -> None:
        loop, painted = asyncio.get_running_loop(), float("-inf")
        while self.work.ended is None:
            await self.work.news()
            now = loop.time()
            if self.is_current and not self.around.still() and now - painted >= PERIOD:
                painted = now
                self.paint()
        self.paint()

    def trail(self) -> tuple[str, ...]:
        """The place, and what is done there."""
        amount = present.count(self.work.planned, "task")
        return (self.live.place.name, f"{self.work.name} {amount}")

    def lay_out(self, width: int) -> None:
        """How it stands, or what it came to."""
        text = self.query_one(LongText)
        text.show(self._lines(width, text.size.height))

    def _lines(self, width: int, height: int) -> list[Line]:
        work, states = self.work, self.live.inspector.states
        now = work.progress
        if work.result is not None:
            return view.result(work.result, states, width)
        if now is not None:
            return view.lines(now, states, self.around.clock(), width, height)
        if work.report is not None:
            return plan_view.accounted(work.report, width)
        return self._plain(width)

    def _plain(self, width: int) -> list[Line]:
        work = self.work
        took = max(0.0, self.around.clock() - work.began)
        done = sum(work.counts.values())
        bar = progress_view.bar(progress_view.ProgressBar(done, work.planned), took, "tasks", width)
        names = {RowResult.DONE: VERBS[work.plan.verb].past, RowResult.EXCLUDED: "left out"}
        rows = [(names.get(end, str(end)), f"{n:,}") for end, n in work.counts.items()]
        return [bar, *present.labelled(rows, width)]

    def word(self) -> Line:
        """That it can be left; or how much is further down."""
        below = self.query_one(LongText).below
        if self.work.ended is None:
            now = self.work.progress
            if now is not None and now.phase is Phase.ASKING:
                return ((" Space goes on all the same, s stops", "armed"),)
            return ((" Esc leaves, and it goes on; the header keeps its badge", "dim"),)
        if hint := self.live.worker_hint(self.work.plan.verb):
            return ((f" {hint}", "strong"),)
        return ((f" {below} more below: PgDn" if below else "", "dim"),)

    def without(self) -> set[str]:
        """Keys that answer nothing now."""
        now = self.work.progress
        orders = {"pause", "faster", "slower", "stop", "leave_open"}
        if self.work.ended is not None:
            return orders
        if now is None:
            return orders - {"stop"} | {"take_back"}
        if now.phase is Phase.ENDING:
            return orders - {"leave_open"}
        return {"leave_open"} | ({"stop"} if now.stopped else set())

    def show_hints(self, grey: object = ()) -> None:
        """What can be ordered now; what needs the console to be armed is grey until it is."""
        from tui.widgets.lines import Lines

        now, armed = self.work.progress, self.around.arming.armed
        stands = now is not None and now.phase in (Phase.PAUSED, Phase.ASKING)
        refused = set() if armed else {"faster", *(("pause",) if stands else ())}
        words = {"arm": keys.arm_words(armed)}
        if stands:
            words["pause"] = "go on"
        hints = keys.hints(self.KIND, refused, self.without(), words)
        hints = tuple(sorted(hints, key=lambda hint: hint.minor))  # what acts comes first
        self.query_one("#hints", Lines).show(present.hint_lines(hints, self.size.width))

    # Orders: what slows down may be ordered at any time, what does more only when it is armed

    def _order(self, name: str, words: str) -> None:
        if self.work.ended is not None:
            self.say("it is over")
            return
        self.work.order(name)
        self.say(words, "")
        self.paint()

    def _may(self, what: str) -> bool:
        arming = self.around.arming
        if self.hasty:
            self.say(HASTY)
        elif arming.read_only:
            self.say("read only: nothing is changed from here")
        elif not arming.armed:
            self.say(ARM_FIRST.format(what=what))
        else:
            arming.used()
            return True
        return False

    def action_pause(self) -> None:
        """Send nothing for now; or go on."""
        now = self.work.progress
        if now is None:
            self.say("this cannot be paused; s stops it")
        elif now.phase is Phase.ASKING:
            if self._may("going on"):
                self._order("go_on", "goes on")
        elif now.phase is Phase.PAUSED:
            if self._may("going on"):
                self._order("resume", "goes on")
        else:
            self._order("pause", "paused: nothing is sent until Space is pressed again")

    def action_faster(self) -> None:
        """Twice as many a second."""
        now = self.work.progress
        if now is None or now.pace.rate is None:
            self.say("it goes as fast as it can")
        elif self._may("going faster"):
            self._order("faster", "twice as fast")

    def action_slower(self) -> None:
        """Half as many a second."""
        if self.work.progress is None:
            self.say("this cannot be slowed down; s stops it")
        else:
            self._order("slower", "half as fast")

    def action_stop(self) -> None:
        """Send nothing any more; the rest by the rule that was chosen."""
        now = self.work.progress
        holds = now is not None and now.pace.stops.rest is RemainderPolicy.HOLD and now.rest
        if now is not None and now.stopped:
            self.say("it is stopped already")
        elif not holds or self._may("holding the rest"):
            dead = shown(self.live.inspector.states.get(State.DEAD, "where it stands"))
            what = "is held" if holds else f"stays in {dead}"
            rest = "the rest stays as it is" if now is None else f"the rest {what}"
            self._order("stop", f"stopped: {rest}")

    def action_leave_open(self) -> None:
        """End it without the outcomes that are not known yet."""
        now = self.work.progress
        if now is None or now.phase is not Phase.ENDING:
            self.say("something is still to be sent; s stops it")
        else:
            self._order("leave", "ends now")

    def action_arm(self) -> None:
        """Allow writes for a while, or forbid them."""
        if self.hasty:
            self.say(HASTY)
        else:
            self.say(self.around.arming.toggle())
            self.paint()

    def action_take_back(self) -> None:
        """A plan to take back what has not run; one that runs is paused for it."""
        self._take_back()

    @work(exclusive=True, group="take back")
    async def _take_back(self) -> None:
        if not self.work.op:
            running = self.work.ended is None
            self.say("nothing is written down of it" + (" yet" if running else ""))
            return
        try:
            await self._pause()
            operation = await self.live.history.operation(self.work.op)
        except StoreError as error:
            self.say(f"no plan: {error}")
            return
        if operation is None:
            self.say("the journal does not know it any more")
            return
        paused = "it is paused meanwhile; what is applied stops it" * (self.work.ended is None)
        await show_undo(self, self.live, self.around, operation, [paused] if paused else [])

    async def _pause(self) -> None:
        """A plan shall be of what it is applied to: nothing more is sent while it is looked at."""
        now = self.work.progress
        if self.work.ended is None and now is not None and now.phase is not Phase.ENDING:
            self.work.order("pause")
            while (now := self.work.progress) is not None and now.phase in SENDS:
                await self.work.news()

    def action_undo(self) -> None:
        """What was done here; the cursor is put on this one."""
        self.go(Target(keys.OPERATIONS, place=self.live.number, id=self.work.op))

    def copies(self) -> tuple[Copy, ...]:
        """Its name in the journal, and all that stands here."""
        lines = self._lines(100, 100)
        text = "\n".join("".join(text for text, _ in line).rstrip() for line in lines)
        op = (Copy("o", "operation", self.work.op),) if self.work.op else ()
        return (*op, Copy("t", "text", text))

    def action_reread(self) -> None:
        """It is looked at all the time."""


SENDS = (Phase.STARTING, Phase.SENDING, Phase.WAITING)
"""Phases in which something may still be sent without an order."""
