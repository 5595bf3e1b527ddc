"""A plan: what would happen to which tasks; applied by a typed count, and accounted for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from engine.inspector import Inspector
from engine.model import Edge, State
from engine.operations import Allowed, Report, freely
from engine.plans import Plan
from engine.store import StoreError
from engine.text import shown
from engine.verbs import VERBS
from tui import keys, present
from tui.arming import Arming
from tui.present import BLANK, Line
from tui.screens.deed import Deed

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


class PlanScreen(Deed):
    """One plan, from looking at it to its result."""

    KIND = keys.PLAN
    BINDINGS = keys.bindings(keys.PLAN)
    WANTS = "count"

    def __init__(
        self,
        plan: Plan,
        scope: str,
        inspector: Inspector,
        arming: Arming,
        clock: Callable[[], float],
        done: Callable[[Report], None],
        allowed: Allowed = freely,
    ) -> None:
        """`allowed` is asked, on a thread, right before anything is changed."""
        super().__init__(arming, clock)
        self._plan, self._scope = plan, scope
        self._inspector, self._when_done, self._allowed = inspector, done, allowed
        self._applying = False
        self._report: Report | None = None

    @property
    def wanted(self) -> str:
        """The count of a plan for many, or for one that is lost."""
        amount = len(self._plan.rows)
        safe = amount <= 1 and all(edge.undoable for edge in self._edges())
        return "" if safe else str(amount)

    def _edges(self) -> list[Edge]:
        edges = self._inspector.edges
        states = {row.state for row in self._plan.rows}
        ways = [way for way in VERBS[self._plan.verb].edges if way[0] in states]
        return [edges[way] for way in ways if way in edges]

    def lay_out(self, width: int) -> None:
        """The plan or its result, for this width."""
        states = self._inspector.states
        if self._report is None:
            text = planned(self._plan, self._scope, states, self._edges(), width)
        else:
            text = accounted(self._report, width)
        what = "result" if self._report else "plan, nothing is written yet"
        amount = present.count(len(self._plan.rows), "task")
        self.show((), text, self._ask())
        self.show_title(((f" {self._plan.verb} {amount}", "strong"), (f"   {what}", "dim")))
        words = {"arm": keys.arm_words(self._arming.armed)}
        if self._report:
            words["back"] = "close"
        self.show_hints(self.grey(), self.without(), words)

    def _ask(self) -> Line:
        verb, amount = self._plan.verb, len(self._plan.rows)
        if self._report is not None:
            return ()
        if self._applying:
            return ((" applying ...", "strong"),)
        if not amount:
            return ((" nothing to do: none of these tasks is there any more", "warning"),)
        return self.question(f"type {amount} to {verb} {amount:,}", f"{verb} this task")

    def settled(self) -> str:
        """It has been applied, is being applied, or there is nothing left of it."""
        if self._report is not None:
            return "this plan has been applied: Esc closes it"
        if self._applying:
            return "it is being applied already"
        return "" if self._plan.rows else "there is nothing to apply"

    def action_back(self) -> None:
        """Close it; a plan that was not applied is dropped."""
        if self._applying:
            self.say("it is being applied: wait for its result")
        else:
            self.dismiss()

    def carry_out(self) -> None:
        """Apply it, and account for every task."""
        self._applying = True
        self.run_worker(self._apply(), name="apply")

    async def _apply(self) -> None:
        try:
            self._report = await self._inspector.apply(self._plan, allowed=self._allowed)
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
