"""A plan: what would happen to which tasks; applied by a typed count, and accounted for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from engine.inspector import Inspector
from engine.model import Edge, State
from engine.plans import Plan, Report
from engine.store import StoreError
from engine.text import shown
from engine.verbs import VERBS
from tui import keys, present
from tui.arming import Arming
from tui.present import BLANK, Line
from tui.screens.pages import Page
from tui.widgets.lines import Lines

HAPPENS: Mapping[str, str] = {
    "retry": "due at once, its attempts and its last error forgotten. It keeps its id and so its "
    "place in the order: it runs before younger work.",
    "purge": "no worker takes it from there.",
}
"""What a verb does to a task, after "goes from A to B: "."""

UNDO: Mapping[str, str] = {
    "retry": "it waits like any other task; once it runs it cannot be called back",
    "purge": "kept in {end} as it is; nothing deletes it from there",
}
"""What remains possible after a verb, where its edge says that nothing is lost."""

LISTED = 1000
"""Tasks that are listed one by one; all of them are counted."""


class PlanScreen(Page):
    """One plan, from looking at it to its result."""

    KIND = keys.PLAN
    BINDINGS = keys.bindings(keys.PLAN)

    def __init__(
        self,
        plan: Plan,
        scope: str,
        inspector: Inspector,
        arming: Arming,
        clock: Callable[[], float],
        done: Callable[[Report], None],
    ) -> None:
        super().__init__()
        self._plan, self._scope = plan, scope
        self._inspector, self._arming, self._clock = inspector, arming, clock
        self._when_done = done
        self._typed = ""
        self._applying = False
        self._report: Report | None = None
        self._title: Line = ()
        self._was_armed = False

    @property
    def _amount(self) -> int:
        return len(self._plan.rows)

    @property
    def _needs_count(self) -> bool:
        return self._amount > 1 or not all(edge.undoable for edge in self._edges())

    def _edges(self) -> list[Edge]:
        edges = self._inspector.edges
        states = {row.state for row in self._plan.rows}
        ways = [way for way in VERBS[self._plan.verb].edges if way[0] in states]
        return [edges[way] for way in ways if way in edges]

    # What it shows

    def lay_out(self, width: int) -> None:
        """The plan or its result, for this width."""
        states = self._inspector.states
        self._was_armed = self._arming.armed
        if self._report is None:
            text = planned(self._plan, self._scope, states, self._edges(), width)
        else:
            text = accounted(self._report, width)
        what = "result" if self._report else "plan, nothing is written yet"
        verb = self._plan.verb
        title = (
            (f" {verb} {present.count(self._amount, 'task')}", "strong"),
            (f"   {what}", "dim"),
        )
        self._title = title
        self.show((), text, self._ask())
        self._paint_mode()
        words = {"arm": keys.arm_words(self._was_armed)}
        if self._report:
            words["back"] = "close"
        self.show_hints(self._grey(), self._without(), words)

    def _paint_mode(self) -> None:
        arming, width = self._arming, self.size.width
        mode = present.mode(arming.left, arming.read_only, self._clock())
        self.query_one("#title", Lines).show([present.join(self._title, mode, width)])

    def _ask(self) -> Line:
        if self._report is not None:
            return ()
        if self._applying:
            return ((" applying ...", "strong"),)
        if not self._amount:
            return ((" nothing to do: none of these tasks is there any more", "warning"),)
        if not self._arming.armed:
            return (
                (" OBSERVE: this plan cannot be applied; ! arms, and the plan stays", "warning"),
            )
        if self._needs_count:
            digits = self._typed + "_" * (len(str(self._amount)) - len(self._typed))
            return (
                (f" type {self._amount} to {self._plan.verb} {self._amount:,}: ", "strong"),
                (f"[ {digits} ]", "armed"),
            )
        return ((f" y to {self._plan.verb} this task", "strong"),)

    def _grey(self) -> set[str]:
        return set() if self._arming.armed else {"yes", "digit"}

    def _without(self) -> set[str]:
        if self._report is not None or self._applying or not self._amount:
            return {"yes", "digit", "arm"}
        return {"yes"} if self._needs_count else {"digit"}

    def on_mount(self) -> None:
        """The time that is left for writing goes by."""
        super().on_mount()
        self.set_interval(1.0, self._tick)

    def _tick(self) -> None:
        if self._arming.armed is self._was_armed:
            self._paint_mode()
        else:
            self.lay_out(self.size.width)

    # Keys

    def action_arm(self) -> None:
        """Arm, or disarm; the plan stays."""
        self._arming.toggle()
        self._typed = ""
        self.lay_out(self.size.width)

    def action_yes(self) -> None:
        """Apply a plan for one task, where nothing of it is lost."""
        refusal = self._refusal()
        if not refusal and self._needs_count:
            refusal = f"this plan asks for its count: type {self._amount}"
        if refusal:
            self.say(refusal)
        else:
            self._apply()

    def action_digit(self, digit: str) -> None:
        """One more digit of the count; the last right one applies."""
        refusal = self._refusal()
        if not refusal and not self._needs_count:
            refusal = "this plan asks for no count: y applies"
        if refusal:
            self.say(refusal)
            return
        wanted, typed = str(self._amount), self._typed + digit
        self._typed = typed if wanted.startswith(typed) else ""
        self.lay_out(self.size.width)
        if typed == wanted:
            self._apply()
        elif not self._typed:
            self.say(f"{typed} is not the count: nothing was done; type {wanted}, or Esc discards")

    def action_rub_out(self) -> None:
        """Take the last digit back."""
        self._typed = self._typed[:-1]
        self.lay_out(self.size.width)

    def action_back(self) -> None:
        """Close it; a plan that was not applied is dropped."""
        if self._applying:
            self.say("it is being applied: wait for its result")
        else:
            self.dismiss()

    def _refusal(self) -> str:
        if self._report is not None:
            return "this plan has been applied: Esc closes it"
        if self._applying:
            return "it is being applied already"
        if self._arming.read_only:
            return "read only: nothing can be applied"
        if not self._amount:
            return "there is nothing to apply"
        if not self._arming.armed:
            return "OBSERVE: press ! first to allow writes for 15 minutes"
        return ""

    def _apply(self) -> None:
        self._applying = True
        self._typed = ""
        self._arming.used()
        self.lay_out(self.size.width)
        self.run_worker(self._carry_out(), name="apply")

    async def _carry_out(self) -> None:
        try:
            self._report = await self._inspector.apply(self._plan)
        except StoreError as error:
            # The engine accounts for every row itself; this is a store that could not be opened.
            failed = tuple((row.id, str(error)) for row in self._plan.rows)
            self._report = Report(self._plan, (), (), failed)
        self._applying = False
        self._arming.used()
        self._when_done(self._report)
        if self.is_attached:
            self.lay_out(self.size.width)


def planned(
    plan: Plan, scope: str, states: Mapping[State, str], edges: Sequence[Edge], width: int
) -> list[Line]:
    """What a plan would do."""
    verb = VERBS[plan.verb]
    text: list[Line] = [present.heading("what would happen", width)]
    for state, amount in Counter(row.state for row in plan.rows).items():
        ends = [end for start, end in verb.edges if start is state]
        start = states.get(state, state)
        end = states.get(ends[0], ends[0]) if ends and ends[0] else "nowhere"
        happens = f"{amount:,} of {start}: each goes to {end}; {HAPPENS.get(plan.verb, '')}"
        text += [((f"  {piece}", ""),) for piece in present.folded(shown(happens), width - 3)]
    for edge in edges:
        for words in (edge.warning, f"refused now: {edge.refused}" if edge.refused else ""):
            text += [((f"  ! {piece}", "warning"),) for piece in _pieces(words, width - 5)]
    rows = [
        ("scope", scope),
        ("seen at", present.clock(plan.made)),
        ("undo", _undo(plan, states, edges)),
        ("checked", "each task is looked at again; one that has changed is left alone, as gone"),
    ]
    text += [BLANK, *present.labelled([(name, shown(words)) for name, words in rows], width)]
    text += [BLANK, present.heading(present.count(len(plan.rows), "task"), width)]
    text += [((f"  {shown(row.id)}", ""),) for row in plan.rows[:LISTED]]
    if len(plan.rows) > LISTED:
        text.append(((f"  ... and {len(plan.rows) - LISTED:,} more", "dim"),))
    return text


def _pieces(words: str, width: int) -> list[str]:
    return present.folded(shown(words), width) if words else []


def _undo(plan: Plan, states: Mapping[State, str], edges: Sequence[Edge]) -> str:
    if not all(edge.undoable for edge in edges):
        return "cannot be undone"
    end = states.get(State.TRASH, "the trash")
    return UNDO.get(plan.verb, "no key here takes it back").format(end=end)


def accounted(report: Report, width: int) -> list[Line]:
    """What became of every task of a plan."""
    planned, done = len(report.plan.rows), len(report.done)
    gone, failed = len(report.gone), len(report.failed)
    accounted = done + gone + failed
    text: list[Line] = [present.heading("result", width)]
    past = VERBS[report.plan.verb].past
    rows = (
        (f"{done:,} {past}", "good" if done else "dim"),
        (f"{gone:,} gone: changed or left since the plan was made, left alone", "warning"),
        (f"{failed:,} failed", "bad"),
    )
    for (words, look), amount in zip(rows, (done, gone, failed), strict=True):
        text.append((("  ", ""), (words, look if amount else "dim")))
    equal = "all accounted for" if planned == accounted else "NOT all accounted for"
    look = "" if planned == accounted else "bad"
    text.append(((f"  {planned:,} planned, {accounted:,} in the result: {equal}", look),))
    if report.failed:
        text += [BLANK, present.heading("why some failed", width)]
        reasons = Counter(reason for _, reason in report.failed)
        for reason, amount in reasons.most_common():
            text += [((f"  {p}", ""),) for p in _pieces(f"{amount:,}: {reason}", width - 3)]
        text += [((f"    {shown(id)}", "dim"),) for id, _ in report.failed[:LISTED]]
    if report.gone:
        text += [BLANK, present.heading("gone", width)]
        text += [((f"    {shown(id)}", "dim"),) for id in report.gone[:LISTED]]
    return text
