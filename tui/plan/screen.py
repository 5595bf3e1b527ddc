"""A plan: what would happen to which tasks; applied by a typed count, and accounted for."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import islice

from textual import work
from textual.app import ComposeResult

from engine.index.schema import Query
from engine.model import Edges
from engine.operations import plans
from engine.operations.execute import Report
from engine.operations.journal import Intent
from engine.operations.plans import Plan
from engine.replay.progress import Phase
from engine.replay.settings import ReplayPace
from engine.store import StoreError, Unavailable
from engine.text.safe import shown
from engine.verbs import VERBS
from tui.format import keys, present
from tui.format.export import ExportTable, Take
from tui.format.human import format_share
from tui.format.present import Line
from tui.plan.confirm_screen import ConfirmScreen
from tui.plan.lines import (
    PlanCounts,
    PlanView,
    Weight,
    accounted,
    outcome,
    planned,
    tally,
)
from tui.plan.planning import (
    Asked,
    can_be_paced,
    facts,
    guard,
    pace_for,
    picked,
    twin,
    warnings,
    why_not_now,
)
from tui.screens.base import BaseScreen, Target
from tui.screens.console_context import ConsoleContext
from tui.screens.page import SAID
from tui.session.place_session import PlaceSession
from tui.session.recurrence_check import judged, still_failing
from tui.session.running_operations import RunningOperation, phase_of, told
from tui.widgets.lines import Lines, LongText
from tui.widgets.picker import Choice, Picker

ROWS = 4
"""Lines for the tasks, at least, below what there is to say of them."""

PERIOD = 0.5
"""Seconds between two looks whether the tasks are still as they were seen."""

SPARING = 10
"""The same, in times of what such a look took."""

GLANCE = 0.1
"""Seconds between two looks how far it is."""

CHUNK = 500
"""Rows that are exported between two looks whether it was stopped."""

FEW = 2_000
"""Rows that are counted at once: more would hold up the keys."""

NO_AMOUNT = -1
"""It was not counted yet."""

NOTHING = ("", "", float("-inf"))
"""Nothing was said."""


class PlanScreen(ConfirmScreen):
    """One plan, from looking at it to its result."""

    KIND = keys.PLAN
    BINDINGS = keys.bindings(keys.PLAN)
    WANTS = "count"

    def __init__(
        self,
        plan: Plan,
        scope: str,
        live: PlaceSession,
        around: ConsoleContext,
        done: Callable[[Report], None] = lambda report: None,
        follows: str = "",
        warnings: Sequence[str] = (),
        pace: ReplayPace | None = None,
        errors: Query | None = None,
    ) -> None:
        """`scope` says in words what it is for; `follows` is an operation that it goes on with.

        `pace` is how it is to go; None: as is usual for such a plan. `errors` finds the tasks of
        which it is said whether they would fail so again; None: nothing is said of that.
        """
        super().__init__(around.arming, around.clock)
        self._plan, self._scope = plan, scope
        self._live, self._around, self._when_done = live, around, done
        self._follows, self._warnings, self._errors = follows, tuple(warnings), errors
        self._drift: Mapping[str, str] = {}
        self._amount = NO_AMOUNT
        self._weight: Weight | None = None
        self._in_trash: int | None = None
        self._pace = pace
        self._facts: Sequence[tuple[str, str]] = ()
        self._tally: PlanCounts | None = None
        self._text: tuple[object, list[Line]] = (None, [])
        self._offered: object = None
        self._said = NOTHING
        self._applying = False
        self._so_far = 0
        self._report: Report | None = None
        self._result = ""
        """The report in one line, as other screens show it."""

    def compose(self) -> ComposeResult:
        """Title, what would happen, each task, a line that speaks, hints."""
        yield Lines(id="title")
        yield LongText(id="text")
        yield Picker(id="rows")
        yield Lines(id="word")
        yield Lines(id="hints")

    def begin(self) -> None:
        """Keys move through the tasks; meanwhile it is found out what has become of them."""
        self.query_one(Picker).focus()
        self._recount()
        self._watch_drift()
        self._weigh()
        if self._errors is not None:
            self._judge(self._errors)

    # What is found out meanwhile

    @work(group="drift")
    async def _watch_drift(self) -> None:
        generation, loop = -1, asyncio.get_running_loop()
        while self._report is None and not self._applying:
            latest, began = self._live.inspector.latest, loop.time()
            if latest.generation != generation:
                generation = latest.generation
                try:
                    self._show_drift(await self._live.inspector.drift(self._plan))
                except Unavailable:
                    return  # closed: the console is being left
            self._facts = facts(self._live, self._plan, self._pace, self.amount)
            self.lay_out(self.size.width)
            await asyncio.sleep(max(PERIOD, SPARING * (loop.time() - began)))

    def _show_drift(self, drift: Sequence[tuple[plans.Row, str]]) -> None:
        # What cannot be taken in was left out before the plan was made, and says why: that stays.
        out = {row.id for row, _ in drift if row.odd and self._plan.undoes}
        words: dict[str, str] = {
            state: f"{word} now" for state, word in self._live.inspector.states.items()
        }
        known = {row.id: words.get(how, how) for row, how in drift if row.id not in out}
        if known != self._drift and not self._applying and self._report is None:
            self._drift = known
            self._recount()

    def _recount(self) -> None:
        """Count the plan anew: at once, or on a thread where that would hold up the keys."""
        about = (self._plan, self._live.inspector.edges, self._drift)
        if len(self._plan.rows) <= FEW:
            self._counted(tally(*about))
        else:
            self._tally = None
            self._count(*about)

    @work(group="count", exclusive=True)
    async def _count(self, plan: Plan, edges: Edges, drift: Mapping[str, str]) -> None:
        self._counted(await asyncio.to_thread(tally, plan, edges, drift))
        self.lay_out(self.size.width)

    def _counted(self, about: PlanCounts) -> None:
        before, self._tally, self._amount = self._amount, about, about.amount
        if before != about.amount:
            self.plan_changed()

    @work(group="weigh")
    async def _weigh(self) -> None:
        loop = asyncio.get_running_loop()

        told = 0.0

        def tell(size: int, amount: int) -> bool:
            nonlocal told
            if amount == len(self._plan.rows) or time.monotonic() - told > PERIOD:
                told = time.monotonic()
                loop.call_soon_threadsafe(partial(self._weighed, Weight(size, amount)))
            return self._report is None and not self._applying

        try:
            if self._plan.verb == "purge" and self._live.place.trash is not None:
                self._in_trash = await self._live.inspector.trashed()
            await self._live.inspector.weigh(self._plan, tell)
        except StoreError as error:
            self.say(f"how much they take up is not known: {error}")

    @work(group="judge")
    async def _judge(self, query: Query) -> None:
        try:
            found = await judged(self._live, query)
        except Unavailable:
            return  # closed: the console is being left
        self._warnings = (*self._warnings, *still_failing(found))
        if self._report is None:
            self.lay_out(self.size.width)

    def _weighed(self, weight: Weight) -> None:
        self._weight = weight
        if self.stands:
            self.lay_out(self.size.width)

    # What it shows

    @property
    def amount(self) -> int:
        """How many tasks would be acted on."""
        return max(0, self._amount)

    @property
    def wanted(self) -> str:
        """The count of a plan for many, or for one that is lost."""
        safe = self.amount <= 1 and VERBS[self._plan.verb].safe
        return "" if safe else str(self.amount)

    def _sight(self, about: PlanCounts) -> PlanView:
        inspector = self._live.inspector
        return PlanView(
            inspector.states,
            inspector.edges,
            self._clock(),
            self._scope,
            self._drift,
            self._weight,
            [*self._facts, *self._trash()],
            self._warnings,
            self._reason,
            twin(about, self._live, self._reason, self._pace, self._follows),
        )

    def _trash(self) -> list[tuple[str, str]]:
        """How full the trash would be, and how long it keeps what comes there."""
        trash, now = self._live.place.trash, self._in_trash
        if trash is None or now is None or self._weight is None:
            return []
        more = self._weight.bytes
        words = f"after this {format_share(now + more, trash.quota)}; kept for {trash.hours:g} h"
        full = "; what does not fit is not purged" if now + more > trash.quota else ""
        return [("trash", words + full)]

    @property
    def _stands(self) -> bool:
        """Whether all its parts are there: before and after, there is nothing to be painted."""
        ids = {part.id for part in self.children}
        return self.stands and {"title", "text", "rows", "word", "hints"} <= ids

    def lay_out(self, width: int) -> None:
        """The plan or its result, for this width."""
        if not self._stands or not width:
            return
        verb = self._plan.verb
        picker, text = self.query_one(Picker), self.query_one(LongText)
        lines = self._lines(width)
        if self._report is None and self._tally is not None:
            self._offer(picker, self._tally, width)
        picker.display = self._report is None
        room = max(1, self.size.height - ROWS - 3)
        text.styles.height = "1fr" if self._report else min(len(lines), room)
        what = "result" if self._report else "plan, nothing is written yet"
        if self._applying:
            what = f"{self._so_far:,} of {self.amount:,} so far"
        self.show((), lines, self._word())
        amount = present.count(len(self._plan.rows), "task")
        self.show_title(((f" {verb} {amount}", "strong"), (f"   {what}", "dim")))
        words = {"arm": keys.arm_words(self._arming.armed)}
        if self._report or self._applying:
            words["back"] = "close"
        hints = keys.hints(self.KIND, self.grey(), self.without(), words)
        hints = tuple(sorted(hints, key=lambda hint: hint.minor))  # what acts comes first
        self.query_one("#hints", Lines).show(present.hint_lines(hints, width))

    def _lines(self, width: int) -> list[Line]:
        """The text above the tasks: made anew only when what it is made of is another."""
        if self._report is not None:
            if self._text[0] != (self._report.op, width):
                self._text = (self._report.op, width), accounted(self._report, width)
            return self._text[1]
        if self._tally is None:
            amount = present.count(len(self._plan.rows), "task")
            return [((f"   counting {amount} ...", "dim"),)]
        if self._applying:
            return self._text[1]
        lines = planned(self._tally, self._sight(self._tally), width)
        self._text = None, lines
        return lines

    def _offer(self, picker: Picker, about: PlanCounts, width: int) -> None:
        wanted = (id(about), width)
        if self._offered == wanted:
            return
        self._offered = wanted
        more = len(self._plan.rows) - len(about.listed)
        listed = f", the first {len(about.listed):,} listed" if more else ""
        heading = f"{present.count(len(self._plan.rows), 'task')}{listed}"
        sight = self._sight(about)
        idents = [shown(row.id) for row in about.listed]
        cells = max(20, min(max(map(len, idents), default=0), width - 32))
        choices = []
        for row, ident in zip(about.listed, idents, strict=True):
            words, look = outcome(self._plan, row, sight)
            line = ((f"   {present.fit_end(ident, cells)}  ", ""), (shown(words), look))
            choices.append(Choice(row.id, present.cut(line, width)))
        picker.offer(choices, [present.heading(heading, width)])

    def without(self) -> set[str]:
        """Keys that answer nothing here."""
        over = (
            {"in_or_out", "reason", "pace", "export"} if self._report or self._applying else set()
        )
        paced = set() if can_be_paced(self._plan) else {"pace"}
        return super().without() | over | paced | (set() if self._report else {"undo"})

    def say(self, text: str, look: str = "warning") -> None:
        """Say something that stays for a while, or until the next key."""
        self._said = (text, look, asyncio.get_running_loop().time())
        if self._stands:
            super().say(text, look)

    def _word(self) -> Line:
        text, look, when = self._said
        if text and asyncio.get_running_loop().time() - when < SAID:
            return ((f" {shown(text)}", look),)
        return self._ask()

    def pressed(self) -> None:
        """A key came: what was said was said of the one before."""
        self._said = NOTHING

    def _ask(self) -> Line:
        verb, amount = self._plan.verb, self.amount
        if self._report is not None:
            hint = self._live.worker_hint(verb) if self._report.done else ""
            return ((f" {hint}", "strong"),)
        if self._applying:
            return ((" applying ... Esc leaves, and it goes on", "strong"),)
        if self._tally is None:
            return ((" they are being counted ...", "dim"),)
        if not amount:
            return (
                (" nothing to do: all of these tasks are left out, or have changed", "warning"),
            )
        doing = "take back" if verb == "undo" else verb
        return self.question(f"type {amount} to {doing} {amount:,}", f"{doing} this task")

    def settled(self) -> str:
        """It has been applied, is being applied, or there is nothing left of it."""
        if self._report is not None:
            return "this plan has been applied: Esc closes it"
        if self._applying:
            return "it is being applied already"
        if self._tally is None:
            return "the tasks are being counted: wait a moment"
        if not self.amount:
            return "there is nothing to apply"
        if self._around.require_reason and not self._reason:
            return "a reason is asked for here: Tab types it"
        return why_not_now(self._live, self._tally.states)

    # Keys

    def action_move(self, how: str) -> None:
        """Move through the tasks; through the result, when it is there."""
        if self._report is None:
            self.query_one(Picker).move(how)
        else:
            self.query_one(LongText).move(how)

    def action_in_or_out(self) -> None:
        """Leave the task under the cursor out, or take it in."""
        ident = self.query_one(Picker).key
        if self._report is not None or self._applying or not ident or self._tally is None:
            return
        plan, one = self._plan, frozenset({ident})
        row = next(row for row in self._tally.listed if row.id == ident)
        if row.odd and self._plan.undoes:
            self.say(f"it cannot be taken in: {row.odd}")
            return
        if row.odd:
            plan = plan._replace(taken_in=plan.taken_in ^ one)
        else:
            plan = plan._replace(left_out=plan.left_out ^ one)
        self._plan, self._typed, self._amount = plan, "", NO_AMOUNT
        self._recount()
        self.lay_out(self.size.width)
        self.query_one(Picker).move("down")

    def action_reason(self) -> None:
        """Say why; it stands in the journal."""
        if self._report is not None or self._applying:
            self.say("too late: what is done stands in the journal as it was begun")
            return
        self.ask_reason("reason, for the journal")

    def action_undo(self) -> None:
        """What was done here; not before this is: it would be dropped for that, unseen."""
        if self._report is not None:
            super().action_undo()
        elif self._applying:
            self.say("it is being applied: u once it is over")
        else:
            self.say("this plan is not applied yet: Esc drops it, and u then shows what was done")

    def action_pace(self) -> None:
        """How fast, with which canary, and when it stops by itself."""
        from tui.plan.pace_form import PaceScreen

        if not can_be_paced(self._plan) or self._report is not None or self._applying:
            return

        def take(pace: ReplayPace | None) -> None:
            if pace is not None:
                self._pace = pace
                self._facts = facts(self._live, self._plan, pace, self.amount)
            self.lay_out(self.size.width)

        self.app.push_screen(PaceScreen(self._pace or ReplayPace(), self.amount, self._live), take)

    def action_back(self) -> None:
        """Close it; a plan that was not applied is dropped, one that is being applied goes on."""
        if self._result in self._live.news:
            self._live.news.remove(self._result)  # it was read here
        self.dismiss()

    def sheet(self) -> ExportTable | None:
        """Each task with what would become of it."""
        if self._tally is None:
            return None
        plan, sight = self._plan, self._sight(self._tally)

        def write(take: Take) -> int:
            rows, done = iter(plan.rows), 0
            while some := list(islice(rows, CHUNK)):
                done += len(some)
                values = [
                    {
                        "id": row.id,
                        "state": str(row.state),
                        "revision": row.rev,
                        "outcome": outcome(plan, row, sight)[0],
                    }
                    for row in some
                ]
                if not take(values, done, len(plan.rows)):
                    break
            return done

        async def hand(take: Take) -> int:
            return await asyncio.to_thread(write, take)

        return ExportTable(f"plan-{plan.verb}", ("id", "state", "revision", "outcome"), hand)

    def _intent(self) -> Intent:
        plan = self._plan
        return Intent(
            plan.verb,
            self._live.place.who,
            self._reason,
            plan.filter,
            self._scope,
            plan.undoes,
            self._follows,
            plan.values,
        )

    def carry_out(self) -> None:
        """Apply it, and account for every task."""
        self._applying = True
        # What has changed since is in it: it is looked at again, and found to be gone.
        plan = self._plan
        begun = self._live.begin(plan, self._intent(), self._pace, guard(self._live, plan))
        # Of the console, not of this screen: it goes on when this is left.
        self.app.run_worker(self._follow(begun), name="apply", group="apply")
        if self._pace is not None:
            self.go(Target(keys.OPERATION, id=begun.op))

    async def _follow(self, begun: RunningOperation) -> None:
        said = False
        while begun.ended is None:
            said = self._tell_that_it_asks(begun, said)
            self._so_far = sum(begun.counts.values())
            self.lay_out(self.size.width)
            await asyncio.sleep(GLANCE)
        report = begun.report
        assert report is not None
        self._report, self._applying, self._result = report, False, told(begun)
        self._arming.used()
        self._when_done(report)
        self.lay_out(self.size.width)

    def _tell_that_it_asks(self, begun: RunningOperation, said: bool) -> bool:
        """Whether it was said that it waits for the operator, who may look at something else."""
        if phase_of(begun) is not Phase.ASKING:
            return False
        if not said and getattr(self.app.screen, "work", None) is not begun:
            self._live.news.append(f"{begun.name} asks whether to go on; u, Enter shows it")
            return True
        return said


async def show_plan(
    face: BaseScreen,
    live: PlaceSession,
    around: ConsoleContext,
    asked: Asked,
    done: Callable[[Report], None] = lambda report: None,
) -> None:
    """Freeze a plan and show it; says why where there is none."""
    verb = asked.verb
    try:
        plan = await live.inspector.plan(verb, asked.ids, asked.query, live.noted)
        if verb == "restore":
            plan = await live.inspector.restore(plan, live.place.retention_days)
    except StoreError as error:
        face.say(f"no plan: {error}")
        return
    plan = picked(plan._replace(values=asked.values))
    if asked.ids and not plan.rows:
        face.say("no plan: these tasks have left, or the filter hides them")
        return
    if face.app.screen is not face:  # what shines through from below a menu is current, too
        face.say(f"no plan: another screen came before the one to {verb} was made")
        return
    words, warned = asked.words(len(plan.rows)), warnings(live, plan, asked)
    pace = pace_for(plan, picked=asked.ids is not None)
    errors = asked.query if verb == "retry" and asked.ids is None else None
    face.app.push_screen(
        PlanScreen(plan, words, live, around, done, warnings=warned, pace=pace, errors=errors)
    )
