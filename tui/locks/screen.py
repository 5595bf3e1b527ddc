"""The lock of a place: who has it, what is known of that process, and a plan to free it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from textual.app import ComposeResult

from engine.index.schema import Query
from engine.locks import lock_breaker
from engine.model import LockEvidence, State, Task, Verdict
from engine.monitor import lock_diagnosis
from engine.operations.execute import Report
from engine.operations.plans import offered
from engine.store import Unavailable
from engine.text.safe import shown
from engine.verbs import VERBS
from tui.format import keys, present
from tui.format.present import BLANK, Line
from tui.locks import lines as view
from tui.locks import recovery_steps
from tui.locks.examination import UNREAD, LockExaminer, LockReport
from tui.locks.recovery_steps import RecoveryReport, Step
from tui.plan import planning
from tui.plan.confirm_screen import ConfirmScreen
from tui.screens.base import HASTY
from tui.screens.console_context import ConsoleContext
from tui.session.place import NO_WORKER
from tui.session.place_session import PlaceSession
from tui.session.place_watcher import not_abandoned
from tui.widgets.lines import Lines, LongText
from tui.widgets.picker import Choice, Picker

PERIOD = 1.0
"""Seconds between two looks at the lock."""

SAID = 6.0
"""Seconds for which a word to the operator stays."""

AROUND = 4
"""Lines of the screen that are not the text: title, scope, question, hints."""

GLANCE = 0.2
"""Seconds between two looks at what a running recovery has said."""

LATE = 0.3
"""Seconds for which no verb counts after the cursor's task has left: it was meant for that one."""

READING = 5.0
"""Seconds for which the logs may take before the lock is freed without knowing what they say."""

ROWS = 3
"""Tasks in work that are on screen at once, at least; a sixth of a high screen."""


class LockScreen(ConfirmScreen):
    """The evidence as it is now, and a plan for the lock as it was when this was opened."""

    KIND = keys.LOCK
    BINDINGS = keys.bindings(keys.LOCK)
    WANTS = "PID"

    def __init__(
        self, live: PlaceSession, free: Callable[[str, Sequence[str]], None], around: ConsoleContext
    ) -> None:
        """`free` begins the recovery of the lock that was seen; some tasks are held then."""
        super().__init__(around.arming, around.clock)
        self._live, self._inspector, self._around = live, live.inspector, around
        self._recovery, self._free = live.recovery, free
        self._exam = LockExaminer(live)
        self._planned: LockEvidence | None = None
        self._plan: tuple[Step, ...] = ()
        self._withdrawn = ""
        self._begun = live.recovery.running
        self._were: tuple[Task, ...] = ()
        self._now_are: dict[str, Task | None] = {}
        self._said: tuple[str, float] = ("", 0.0)
        self._slipped = float("-inf")
        self._opened = float("-inf")

    def compose(self) -> ComposeResult:
        """Besides what every page has, what would be acted on: it does not scroll away."""
        yield from super().compose()
        yield Picker(id="works")
        yield Lines(id="scope")

    def on_mount(self) -> None:
        """Look at the lock again and again, and at the recovery while one runs."""
        self.move_child(self.query_one("#works"), before=self.query_one("#word"))
        self.move_child(self.query_one("#scope"), before=self.query_one("#word"))
        self._opened = asyncio.get_running_loop().time()
        self.run_worker(self._watch(), name="lock")
        self.run_worker(self._follow(), name="recovery")

    async def _watch(self) -> None:
        while True:
            await self._look()
            if await self._exam.read_logs():
                await self._look()
            await asyncio.sleep(PERIOD)

    async def _look(self) -> None:
        evidence = (await self._exam.look()).evidence
        if self._planned is None:
            self._planned = evidence
            self.plan_changed()
        await self._find_out_what_became()
        (said, when), now = self._said, self._clock()
        if not self._begun and not self._withdrawn:
            self._withdrawn = view.difference(self._planned, evidence)
            if self._withdrawn:
                self._typed = said = ""
        self.lay_out(self.size.width)
        if said and 0 <= now - when < SAID:
            self.say(said)
            self._said = (said, when)

    async def _find_out_what_became(self) -> None:
        if self._begun and not self._recovery.running:
            try:
                found = {task.id: await self._inspector.task(task.id) for task in self._were}
            except Unavailable:
                return  # what was found out last stays
            self._now_are = found

    def say(self, text: str, look: str = "warning") -> None:
        """Say something that outlasts the next looks at the lock; the next key ends it."""
        super().say(text, look)
        self._said = (text, self._clock())

    async def _follow(self) -> None:
        painted: object = None
        while True:
            said = (self._recovery.running, self._recovery.lines)
            if self._begun and said != painted:
                painted = said
                await self._look()
            await asyncio.sleep(GLANCE)

    # What it shows

    def lay_out(self, width: int) -> None:
        """Verdict, evidence, what waits, and the plan or what came of it, for this width."""
        if not self.stands:
            return  # it was closed while the lock was examined
        case = self._exam.case
        self._said = ("", 0.0)
        if case is None:
            self.show((), [BLANK, (("   looking at the lock ...", "dim"),)], ())
            return
        rows = self._offer_works(case, width)
        text = self._text(case, width)
        if len(text) > self.size.height - AROUND - rows:
            text = [line for line in text if line]  # the headings keep it apart
        self.show((), text, self._ask())
        self._show_scope()
        self.show_title(((" lock  ", "title"), present.lock_verdict(case.evidence)))
        arm = {"arm": keys.arm_words(self._arming.armed)}
        self.show_hints(self.grey(), self.without(), arm)

    def _offer_works(self, case: LockReport, width: int) -> int:
        """Offer the tasks in work; answers with the lines that this takes."""
        picker, now = self.query_one("#works", Picker), self._clock()
        rows = [Choice(w.task.id, view.work_line(w, case, now, width)) for w in case.works]
        shown_rows = min(len(rows), max(ROWS, self.size.height // 6))
        lines = shown_rows + 1 if rows and self.size.height >= 15 else 0
        picker.styles.height = lines
        picker.activate(case.abandoned)
        before = picker.key
        picker.offer(rows, [view.head_line(case, self._no_verbs(), width)])
        if before not in ("", picker.key):
            self._slipped = asyncio.get_running_loop().time()
        return lines

    def _text(self, case: LockReport, width: int) -> list[Line]:
        now = self._clock()
        amounts = {state: self._amount(state) for state in (State.PENDING, State.ACTIVE)}
        evidence = view.evidence_lines(case, width)
        works = view.works_lines(case, now, width)
        if self._begun:
            return [*self._done_lines(width), BLANK, *evidence]
        text = [
            *view.verdict_lines(case, width),
            *view.behind_lines(case, amounts, now, width),
        ]
        if self._offers:
            hold, states = view.accepted(case), self._inspector.states
            steps = recovery_steps.steps(case.evidence, recovery_steps.returns(states, len(hold)))
            twin = recovery_steps.twin(self._live.place.recover, hold)
            text += [BLANK, *recovery_steps.plan_lines(steps, twin, width)]
        elif case.evidence.verdict in present.ALARMING and not self._withdrawn:
            text += [BLANK, present.heading("no plan, and what can be done by hand", width)]
            text += [
                *view.folded(view.why_nothing(case.evidence), width, "warning"),
                *view.folded(lock_breaker.by_hand(case.evidence), width),
            ]
        return [BLANK, *text, BLANK, *evidence, *([BLANK, *works] if works else [])]

    def _done_lines(self, width: int) -> list[Line]:
        """How far each step is, what became of the tasks, and the child's own words."""
        recovery, states = self._recovery, self._inspector.states
        said = [RecoveryReport(*pair) for pair in zip(recovery.lines, recovery.after, strict=False)]
        took = f"{recovery.took:.1f} s"
        head = f"what is done, for {took}" if recovery.running else f"result, after {took}"
        at = recovery_steps.progress(self._plan, said, recovery.running)
        text = [present.heading(head, width), *recovery_steps.progress_lines(at, width)]
        became = (self._were, self._now_are, states, self._clock(), width)
        if not recovery.running:
            text += [BLANK, *view.became_lines(*became)] if self._were else []
        text += [BLANK, present.heading("what its command says", width)]
        for line in recovery.lines:
            text += view.folded(line, width)
        return text

    def _amount(self, state: State) -> str:
        change = self._inspector.latest
        amount = "?" if change.unavailable else f"{change.counts.get(state, 0):,}"
        so_far = "" if change.complete or change.unavailable else " so far"
        return f"{amount} in {shown(self._inspector.states.get(state, state))}{so_far}"

    def _show_scope(self) -> None:
        width, below = self.size.width, self.query_one(LongText).below
        words = f"{below} more below " if width >= present.NARROW else f"{below} more"
        more = ((words, "dim"),) if below else ()
        self.query_one("#scope", Lines).show([present.join(self._scope(width), more, width)])

    def _scope(self, width: int) -> Line:
        lead = " scope if you act now: " if width >= present.NARROW else " scope: "
        case = self._exam.case
        if case is None:
            return (lead, ""), ("nothing", "dim")
        row = "" if self._no_verbs() else shown(self.query_one("#works", Picker).key)
        if not self._offers:
            return (lead, ""), (f"task {row}", "strong") if row else ("nothing", "dim")
        pids = ", ".join(map(str, case.evidence.holders))
        who = f"PID {pids}" if self.wanted else "the lock"
        one = f"   H L K: {present.fit_end(row, 18)}" if row and width >= present.NARROW else ""
        return (lead, ""), (f"{who}; {self._amount(State.ACTIVE)}", "strong"), (one, "")

    def _ask(self) -> Line:
        now = self._exam.case and self._exam.case.evidence
        if self._recovery.running:
            return ((" freeing the lock ... Esc leaves, and it goes on", "strong"),)
        if self._begun:
            words, look = self._recovery.outcome
            said: Line = ((f" {shown(words)}", look),)
            return (*said, (f". {NO_WORKER}", "strong")) if self._live.lacks_worker else said
        if self._withdrawn:
            words = f"plan withdrawn: {self._withdrawn}; nothing was done. Esc, then U looks anew"
            return ((f" {words}", "warning"),)
        if not self._offers:
            alarms = now is not None and now.verdict in present.ALARMING
            return ((f" {shown(view.why_nothing(now))}", "warning" if alarms else "dim"),)
        room = self.size.width >= present.NARROW
        digits = f"type the PID, {self.wanted}, to free the lock" if room else "type the PID"
        return self.question(digits, "free the lock: there is nobody to signal")

    def action_move(self, how: str) -> None:
        """Move the cursor where several tasks are in work; else, and by pages, the text."""
        picker = self.query_one("#works", Picker)
        if how in ("down", "up") and len(picker.rows) > 1:
            picker.move(how)
        else:
            super().action_move(how)
        self._show_scope()

    # What can be done to the lock

    @property
    def _offers(self) -> bool:
        return not self.settled()

    @property
    def wanted(self) -> str:
        """The PID that would be signalled first; "" where there is nobody to signal."""
        planned = self._planned
        if planned is None or planned.verdict is not Verdict.STUCK or not planned.holders:
            return ""
        return str(planned.holders[0])

    def settled(self) -> str:
        """A recovery was begun, the lock is not what it was, or nothing is to be done about it."""
        if self._begun:
            return "it runs already" if self._recovery.running else "this has been done: Esc closes"
        if self._withdrawn:
            return f"the plan is withdrawn: {self._withdrawn}; Esc, then U looks anew"
        return view.why_nothing(self._planned)

    def late(self) -> str:
        """Before it is known what the logs say, a task that was done would be run again."""
        case = self._exam.case
        unread = case is not None and any(work.told.unknown == UNREAD for work in case.works)
        if unread and asyncio.get_running_loop().time() - self._opened < READING:
            return f"{UNREAD}, for what is in work: a moment, then type it again"
        return ""

    def carry_out(self) -> None:
        """Let the child free the lock that was planned for, and no other."""
        assert self._planned is not None
        case = self._exam.case
        assert case is not None
        self._were = tuple(work.task for work in case.works)
        hold = view.accepted(case)
        returns = recovery_steps.returns(self._inspector.states, len(hold))
        self._plan = recovery_steps.steps(case.evidence, returns)
        self._begun = True
        self.query_one(LongText).move("first")
        self._free(self._planned.seen, hold)

    # What can be done to the tasks in work

    def without(self) -> set[str]:
        """Keys that answer nothing here; a mode to change is there with tasks to act on."""
        without = super().without()
        verbs = {key.action for key in keys.on(keys.LOCK) if key.verb}
        if self._no_verbs():
            return without | verbs
        return without - {"arm"}

    def _no_verbs(self) -> str:
        """Why nothing can be done to a task in work, whatever the verb; "" when it can."""
        case = self._exam.case
        if self._arming.read_only:
            return "read only: this console was started with --read-only"
        if case is None:
            return "the lock has not been looked at yet"
        if self._recovery.running:
            return "the lock is being freed: wait for its result"
        return not_abandoned(case.evidence) or ("" if case.works else "no task is in work")

    def action_plan(self, verb: str) -> None:
        """Build a plan for the task in work that is under the cursor, and show it."""
        edges, word = self._inspector.edges, self._inspector.states.get(State.ACTIVE, "")
        reason = self._no_verbs() or offered(edges, verb, State.ACTIVE, word)
        if self.hasty:
            self.say(HASTY)
        elif reason:
            self.say(f"{verb}: {reason}")
        elif asyncio.get_running_loop().time() - self._slipped < LATE:
            self.say(f"{verb}: the task under the cursor has just left; look, and press it again")
        else:
            plan = self._show_plan(verb, self.query_one("#works", Picker).key)
            self.run_worker(plan, name="plan", exclusive=True, group="plan")

    async def _show_plan(self, verb: str, id: str) -> None:
        from tui.plan.screen import show_plan

        case = self._exam.case
        work = next((w for w in case.works if w.task.id == id), None) if case else None
        if work is None:
            self.say("no plan: the task is not in work any more")
            return
        advice = (
            lock_diagnosis.WHY[work.told.advice] if not work.told.unknown else work.told.unknown
        )
        scope = f"row {id}, in work and nobody's. Recommended: {advice}"
        asked = planning.Asked(verb, {id}, Query(State.ACTIVE), lambda _: scope)
        await show_plan(self, self._live, self._around, asked, self._applied)

    def _applied(self, report: Report) -> None:
        past = VERBS[report.plan.verb].past
        self.say(
            f"{len(report.done):,} {past}, {len(report.gone):,} gone, {len(report.failed):,} failed"
        )
