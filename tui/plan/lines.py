"""A plan in words: what would happen to which tasks, and what became of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from engine.model import Edges, State
from engine.operations import plans
from engine.operations.execute import Report
from engine.operations.plans import Plan, Row, TransitionPreview
from engine.text.safe import shown
from engine.verbs import VERBS
from tui.format import present
from tui.format.human import format_bytes
from tui.format.present import BLANK, Line, Run

LISTED = 1000
"""Tasks that are listed one by one; all of them are counted."""

HAPPENS: Mapping[str, str] = {
    "retry": "due at once, as if new; older ids run first",
    "promote": "due at once, whatever they waited for",
    "hold": "nobody takes them until somebody releases them",
    "release": "waiting again",
    "kill": "given up on, the attempt counts",
    "edit": "changed as said below, where they stand",
    "purge": "no worker takes them from there",
    "restore": "back where they came from, as they were",
    "expunge": "gone for good, payloads too",
    "undo": "as they were before, byte for byte",
}
"""What a verb does to tasks, after "12 of dlq -> pending"."""

UNDO: Mapping[str, str] = {
    "retry": "u, for 24 h, until they run; what ran cannot be called back",
    "release": "u, for 24 h, until they run",
    "expunge": "none: this cannot be taken back. Instead: R restores what lies in the trash; left "
    "alone it goes by itself; what is not there yet is purged or held",
}
"""How a verb can be taken back, where that is not said by `TAKEN_BACK`."""

TAKEN_BACK = "u, for 24 h, by whoever may write here"

CHECKED = "again just before: what has changed is left alone, as gone"


class Weight(NamedTuple):
    """How much the tasks of a plan take up, with their payloads."""

    bytes: int
    tasks: int
    """How many were weighed so far."""


class PlanView(NamedTuple):
    """What is known beside the plan itself."""

    states: Mapping[State, str]
    edges: Edges
    now: float
    """Epoch seconds UTC."""
    scope: str = ""
    drift: Mapping[str, str] = {}
    """Ids of rows whose task is not as it was seen any more, each with how it is now."""
    weight: Weight | None = None
    facts: Sequence[Run] = ()
    """What else there is to say, as pairs of a name and words: the pace, the trash, the lock."""
    warnings: Sequence[str] = ()
    reason: str = ""
    twin: str = ""
    """The command that does the same."""
    undo: str = ""
    """How it can be taken back, where that is not by the console's keys."""
    refused: Mapping[str, str] = {}
    """Ids of rows for which there is no room where they would go, each with the reason."""


class PlanCounts(NamedTuple):
    """A plan counted once: of what is painted from it nothing grows with its rows."""

    plan: Plan
    amount: int
    """How many tasks would be acted on, as they are now."""
    woulds: tuple[TransitionPreview, ...]
    outs: tuple[tuple[str, int], ...]
    """Why rows are left out, and how many."""
    dropped: tuple[tuple[str, int], ...]
    """How tasks are now that are not as they were seen, and how many."""
    refused: tuple[tuple[str, int], ...]
    listed: tuple[Row, ...]
    """The rows that are listed: first those that somebody has to decide about."""
    states: frozenset[State]
    """Where its tasks stand."""
    taken_in: tuple[str, ...]
    """Ids of odd ones that are acted on all the same."""


def tally(
    plan: Plan,
    edges: Edges,
    drift: Mapping[str, str] = {},
    refused: Mapping[str, str] = {},
) -> PlanCounts:
    """Count a plan; `drift` and `refused` as in `Sight`. For 100,000 rows it takes a moment."""
    ways: Counter[tuple[State, State | None]] = Counter()
    outs: Counter[str] = Counter()
    gone: Counter[str] = Counter()
    full: Counter[str] = Counter()
    odd: list[Row] = []
    even: list[Row] = []
    taken_in: list[str] = []
    amount = 0
    for row in plan.rows:
        listed = odd if row.odd else even
        if len(listed) < LISTED:
            listed.append(row)
        if how := drift.get(row.id):
            gone[how] += 1
        elif why := plan.why_out(row):
            outs[why] += 1
        else:
            amount += 1
            if row.odd:
                taken_in.append(row.id)
            if row.id in refused:
                full[refused[row.id]] += 1
            else:
                ways[row.state, row.end] += 1
    return PlanCounts(
        plan,
        amount,
        plans.foreseen(plan.verb, ways, edges),
        tuple(outs.items()),
        tuple(gone.items()),
        tuple(full.items()),
        (*odd, *even)[:LISTED],
        frozenset(row.state for row in plan.rows),
        tuple(taken_in),
    )


def everything(words: str, amount: int, total: int) -> tuple[str, ...]:
    """What to think of before all of a state is taken away; `words` is what it is called."""
    return (
        f"this is all of {words}, no filter is set: {100 * amount // max(1, total)} % of all tasks",
        "what comes from now on is not in it; nor is what is in work",
        "instead: hold parks them until somebody releases them; a filter picks some",
    )


def planned(about: PlanCounts, sight: PlanView, width: int) -> list[Line]:
    """What a plan would do, and what there is to know before."""
    text: list[Line] = [present.heading("what would happen", width)]
    for would in about.woulds:
        text += _would(about.plan, would, sight.states, width)
    for why, amount in about.refused:
        text += _folded(f"{amount:,} refused: {why}", width, "bad")
    for why, amount in about.outs:
        text += _folded(f"{amount:,} left out: {why}", width, "warning")
    for how, amount in about.dropped:
        text += _folded(f"{amount:,} dropped since: {how}", width, "warning")
    for warning in sight.warnings:
        text += _folded(f"! {warning}", width, "warning")
    return [*text, *present.labelled(_facts(about.plan, sight), width)]


def _would(
    plan: Plan, would: TransitionPreview, states: Mapping[State, str], width: int
) -> list[Line]:
    start, end = (states.get(s, s) if s else "nowhere" for s in would.way)
    if would.refused:
        words = f"{would.amount:,} of {start}: refused: {would.refused}"
        return _folded(words, width, "bad")
    where = f"{start} -> {end}" if start != end else f"{start}"
    lines = _folded(f"{would.amount:,} of {where}: {HAPPENS.get(plan.verb, '')}", width, "")
    if would.edge.warning:
        lines += _folded(f"! {would.edge.warning}", width, "warning")
    return lines


def _facts(plan: Plan, sight: PlanView) -> list[Run]:
    rows: list[Run] = []
    if sight.scope:
        rows.append(("scope", sight.scope))
    if plan.filter and plan.filter not in sight.scope:
        rows.append(("filter", plan.filter))
    rows.append(("size", _size(plan, sight)))
    rows += [(f"new {name}", _value(name, value)) for name, value in plan.values.items()]
    rows += sight.facts
    rows += [
        ("undo", sight.undo or UNDO.get(plan.verb, TAKEN_BACK)),
        ("checked", CHECKED),
    ]
    if sight.reason:
        rows.append(("reason", sight.reason))
    if sight.twin:
        rows.append(("or", sight.twin))
    return [(name, shown(words)) for name, words in rows]


def _value(name: str, value: object) -> str:
    return present.clock(value) if name == "due" and isinstance(value, float) else str(value)


def _size(plan: Plan, sight: PlanView) -> str:
    words = []
    if sight.weight is not None:
        some = sight.weight.tasks < len(plan.rows)
        so_far = f" so far, {sight.weight.tasks:,} weighed" if some else ""
        words.append(f"{format_bytes(sight.weight.bytes)}{so_far}")
    if plan.oldest:
        words.append(f"oldest {present.span(sight.now - plan.oldest)}")
        words.append(f"newest {present.span(sight.now - plan.newest)}")
    return ", ".join([*words, f"seen at {present.clock(plan.made)}"])


def outcome(plan: Plan, row: Row, sight: PlanView) -> Run:
    """What would become of one row, in words."""
    if how := sight.drift.get(row.id):
        return f"dropped: {how}", "warning"
    if why := plan.why_out(row):
        return f"left out: {why}", "warning"
    if why := sight.refused.get(row.id, ""):
        return f"refused: {why}", "bad"
    if why := plans.refusal(sight.edges, plan.verb, row):
        return f"refused: {why}", "bad"
    its = plans.way(plan.verb, row)
    end = its[1] if its else None
    past = VERBS[plan.verb].past
    odd = f", though {row.odd}" if row.odd else ""
    where = f", to {sight.states.get(end, end)}" if end and end is not row.state else ""
    return f"{past}{where}{odd}", "strong" if odd else ""


def accounted(
    report: Report, width: int, back: str = "u lists it, T there takes it back"
) -> list[Line]:
    """What became of every task of a plan; `back` says how that is taken back."""
    planned, out = len(report.plan.rows), len(report.excluded)
    text: list[Line] = [present.heading("result", width)]
    past = VERBS[report.plan.verb].past
    rows = (
        (f"{len(report.done):,} {past}", "good" if report.done else "dim", report.done),
        (f"{len(report.gone):,} gone: changed or left since, left alone", "warning", report.gone),
        (f"{len(report.failed):,} failed", "bad", report.failed),
        (f"{out:,} left out", "dim", report.excluded),
    )
    for words, look, some in rows:
        text.append((("  ", ""), (words, look if some else "dim")))
    equal = "all accounted for" if planned == report.accounted else "NOT all accounted for"
    look = "" if planned == report.accounted else "bad"
    text.append(((f"  {planned:,} planned, {report.accounted:,} in the result: {equal}", look),))
    if report.trouble:
        text += _folded(f"! {report.trouble}", width, "bad")
    if report.op:
        way = f"; {back}" if back and VERBS[report.plan.verb].safe else ""
        text += _folded(f"written down as {report.op}{way}", width, "dim")
    text += _reasons("why some failed", report.failed, width)
    text += _reasons("why some were left out", report.excluded, width)
    if report.gone:
        text += [BLANK, present.heading("gone", width)]
        text += [((f"    {shown(ident)}", "dim"),) for ident in report.gone[:LISTED]]
    return text


def _reasons(title: str, some: Sequence[tuple[str, str]], width: int) -> list[Line]:
    if not some:
        return []
    text: list[Line] = [BLANK, present.heading(title, width)]
    for reason, amount in Counter(reason for _, reason in some).most_common():
        text += _folded(f"{amount:,}: {reason}", width, "")
        ids = [ident for ident, why in some if why == reason][:LISTED]
        text += [((f"    {shown(ident)}", "dim"),) for ident in ids]
    return text


def _folded(text: str, width: int, look: str) -> list[Line]:
    first, *rest = present.folded(shown(text), max(8, width - 5))
    return [((f"  {first}", look),), *(((f"    {piece}", look),) for piece in rest)]
