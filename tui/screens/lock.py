"""The lock of a place: who has it, what is known of that process, and a plan to free it."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Callable, Sequence

from textual.app import ComposeResult

from engine import breaker
from engine.inspector import Inspector
from engine.model import LockEvidence, State, Verdict
from engine.text import shown
from tui import keys, present
from tui.arming import Arming
from tui.place import Place
from tui.present import BLANK, Line
from tui.recovery import Recovery
from tui.screens.deed import Deed
from tui.watch import lock_of
from tui.widgets.lines import Lines, LongText

PERIOD = 1.0
"""Seconds between two looks at the lock."""

NAMES = 18
"""Cells for the names of facts and a margin: "last sign of life" is the longest."""

SAID = 6.0
"""Seconds for which a word to the operator stays."""

AROUND = 4
"""Lines of the screen that are not the text: title, scope, question, hints."""

GLANCE = 0.2
"""Seconds between two looks at what a running recovery has said."""


class LockScreen(Deed):
    """The evidence as it is now, and a plan for the lock as it was when this was opened."""

    KIND = keys.LOCK
    BINDINGS = keys.bindings(keys.LOCK)
    WANTS = "PID"

    def __init__(
        self,
        place: Place,
        inspector: Inspector,
        recovery: Recovery,
        free: Callable[[str], None],
        arming: Arming,
        clock: Callable[[], float],
    ) -> None:
        super().__init__(arming, clock)
        self._place, self._inspector = place, inspector
        self._recovery, self._free = recovery, free
        self._planned: LockEvidence | None = None
        self._latest: LockEvidence | None = None
        self._withdrawn = ""
        self._begun = recovery.running
        self._said: tuple[str, float] = ("", 0.0)

    def compose(self) -> ComposeResult:
        """Besides what every page has, what would be acted on: it does not scroll away."""
        yield from super().compose()
        yield Lines(id="scope")

    def on_mount(self) -> None:
        """Look at the lock again and again, and at the recovery while one runs."""
        self.move_child(self.query_one("#scope"), before=self.query_one("#word"))
        self.run_worker(self._watch(), name="lock")
        self.run_worker(self._follow(), name="recovery")

    async def _watch(self) -> None:
        while True:
            await self._look()
            await asyncio.sleep(PERIOD)

    async def _look(self) -> None:
        evidence = await asyncio.to_thread(lock_of, self._place)
        self._latest = evidence or LockEvidence(Verdict.UNKNOWN, reason="this place has no lock")
        self._planned = self._planned or self._latest
        (said, when), now = self._said, self._clock()
        if not self._begun and not self._withdrawn:
            self._withdrawn = difference(self._planned, self._latest)
            if self._withdrawn:
                self._typed = said = ""
        self.lay_out(self.size.width)
        if said and 0 <= now - when < SAID:
            self.say(said)
            self._said = (said, when)

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
                pane = self.query_one(LongText)  # the newest word of the child is to be seen
                pane.move_to(len(done_lines(self._recovery, self.size.width)) - pane.size.height)
                self._show_scope()
            await asyncio.sleep(GLANCE)

    # What it shows

    def lay_out(self, width: int) -> None:
        """Verdict, evidence, what waits, and the plan or what came of it, for this width."""
        now = self._latest
        self._said = ("", 0.0)
        if now is None:
            self.show((), [BLANK, (("   looking at the lock ...", "dim"),)], ())
            return
        text = self._text(now, width)
        if len(text) > self.size.height - AROUND:
            text = [line for line in text if line]  # the headings keep it apart
        self.show((), text, self._ask())
        self._show_scope()
        self.show_title(((" lock  ", "title"), present.lock_verdict(now)))
        self.show_hints(self.grey(), self.without(), {"arm": keys.arm_words(self._arming.armed)})

    def _text(self, now: LockEvidence, width: int) -> list[Line]:
        behind = f"behind it: {self._amount(State.PENDING)}, {self._amount(State.ACTIVE)}"
        evidence = evidence_lines(now, width)
        if self._begun:
            return [*done_lines(self._recovery, width), BLANK, *evidence]
        text = [*(_folded(now.reason, width) if now.reason else []), *_folded(behind, width)]
        if self._offers:
            steps = (*breaker.ladder(now), self._give_back)
            text += [BLANK, *plan_lines(steps, self._place.recover, width)]
        elif now.verdict in present.ALARMING and not self._withdrawn:
            text += [BLANK, present.heading("no plan, and what can be done by hand", width)]
            text += [
                *_folded(why_nothing(now), width, "warning"),
                *_folded(breaker.by_hand(now), width),
            ]
        return [BLANK, *text, BLANK, *evidence]

    @property
    def _give_back(self) -> str:
        word = {state: shown(name) for state, name in self._inspector.states.items()}
        work, waits, dead = (word.get(s, s) for s in (State.ACTIVE, State.PENDING, State.DEAD))
        return f"tasks in {work} fail once: to {waits}, after their last attempt to {dead}"

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
        now = self._latest
        if now is None or not self._offers:
            return (lead, ""), ("nothing", "dim")
        pids = ", ".join(map(str, now.holders))
        who = f"PID {pids}" if self.wanted else "the lock"
        return (lead, ""), (f"{who}; {self._amount(State.ACTIVE)}", "strong")

    def _ask(self) -> Line:
        now = self._latest
        if self._recovery.running:
            return ((" freeing the lock ... Esc leaves, and it goes on", "strong"),)
        if self._begun:
            words, look = self._recovery.outcome
            return ((f" {shown(words)}", look),)
        if self._withdrawn:
            words = f"plan withdrawn: {self._withdrawn}; nothing was done. Esc, then U looks anew"
            return ((f" {words}", "warning"),)
        if not self._offers:
            alarms = now is not None and now.verdict in present.ALARMING
            return ((f" {shown(why_nothing(now))}", "warning" if alarms else "dim"),)
        room = self.size.width >= present.NARROW
        digits = f"type the PID, {self.wanted}, to free the lock" if room else "type the PID"
        return self.question(digits, "free the lock: there is nobody to signal")

    def action_move(self, how: str) -> None:
        """Move through the text; the scope line says how much of it is below."""
        super().action_move(how)
        self._show_scope()

    # What can be done

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
        return why_nothing(self._planned)

    def carry_out(self) -> None:
        """Let the child free the lock that was planned for, and no other."""
        assert self._planned is not None
        self._begun = True
        self._free(self._planned.seen)


def difference(planned: LockEvidence, now: LockEvidence) -> str:
    """Why a plan for one lock must not be used on what is there now; "" when it may."""
    if now.verdict is not planned.verdict:
        return f"the lock was {planned.verdict}, and is {now.verdict} now"
    if (now.seen, now.pid, now.holders) != (planned.seen, planned.pid, planned.holders):
        return "the lock has changed hands"
    return f"it has become doubtful: {now.doubt}" if now.doubt != planned.doubt else ""


def why_nothing(evidence: LockEvidence | None) -> str:
    """Why there is no plan for a lock; "" where there is one."""
    if evidence is None:
        return "the lock has not been looked at yet"
    if evidence.verdict is Verdict.FREE:
        return "nothing to free: nobody holds the lock"
    if evidence.verdict is Verdict.HELD:
        return "nothing to free: its holder is at work"
    if evidence.doubt:
        return f"nothing will be signalled: {evidence.doubt}"
    known = evidence.verdict is Verdict.STALE or evidence.holders
    if not known or not present.is_freeable(evidence) or not breaker.ladder(evidence):
        return "nothing is offered: who holds the lock is not known"
    return ""


def evidence_lines(evidence: LockEvidence, width: int) -> list[Line]:
    """What the verdict rests on."""
    rows = [(name, shown(words) or "?") for name, words in evidence.facts]
    return [present.heading("evidence", width), *present.labelled(rows, width, NAMES)] * bool(rows)


def plan_lines(steps: Sequence[str], command: Sequence[str], width: int) -> list[Line]:
    """What would be done, step by step, and the same for the command line."""
    text = [present.heading("plan, nothing is done yet", width)]
    for number, words in (*enumerate(steps, 1), ("or", twin(command))):
        first, *rest = present.folded(shown(words), max(8, width - 6))
        text.append(((f"  {number:<3}", "key"), (first, "")))
        text += [((f"     {piece}", ""),) for piece in rest]
    return text


def twin(command: Sequence[str]) -> str:
    """The command that does the same; there, too, it asks for the PID."""
    words = command[command.index("--root") :] if "--root" in command else command
    return shlex.join(["spooldeck", *(w for w in words if w not in ("--yes", "--seen"))])


def done_lines(recovery: Recovery, width: int) -> list[Line]:
    """What the recovery has said so far."""
    text = [present.heading("result" if not recovery.running else "what is done", width)]
    for said in recovery.lines:
        first, *rest = present.folded(said, max(8, width - 6))
        text += [((f"  {first}", ""),), *(((f"     {piece}", ""),) for piece in rest)]
    return text


def _folded(text: str, width: int, look: str = "") -> list[Line]:
    return [((f"  {piece}", look),) for piece in present.folded(shown(text), max(8, width - 3))]
