"""Plan and result as text: transitions, facts, warnings, and counts by outcome."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice

from engine.model import Edges, State
from engine.operations import plans
from engine.operations.execute import Report
from engine.operations.plan_rows import EXCLUSION_REASONS
from engine.operations.plans import Plan, Row, TransitionPreview
from engine.text.figures import format_bytes
from engine.text.safe import safe_line, state_name
from engine.values import NamedTuple
from engine.verbs import VERBS
from tui.session.index_queries import CheckedCluster
from tui.text.lines import (
    BLANK_LINE,
    MARGIN_CELLS,
    Line,
    Run,
    fact_lines,
    fit_text,
    folded_lines,
    part_line,
)
from tui.text.times import format_clock, format_minutes

MAX_LISTED_TASKS = 1000
"""Tasks that are listed one by one; the counts include all."""

MAX_VALUE_CHARS = 200

EFFECTS: Mapping[str, str] = {
    "retry": "run now, attempts reset, oldest first",
    "replay": "run in steps, attempts reset, oldest first",
    "rerun": "run again, attempts reset",
    "promote": "run now, retry wait skipped",
    "hold": "not taken until released",
    "release": "pending again",
    "kill": "no more retries, the attempt counts",
    "bounce": "given up, a report to each sender",
    "expire": "given up as too old, a report to each sender",
    "reroute": "routed again, as new messages",
    "edit": "changed in place, new values below",
    "purge": "not taken until restored",
    "restore": "back to their former state, unchanged",
    "expunge": "deleted permanently, with payloads",
    "undo": "former content restored, byte for byte",
}
"""Effect of an act, shown after "12 DLQ -> pending"."""

UNDO_TEXTS: Mapping[str, str] = {
    "retry": "24 h, until they run; tasks that already ran cannot be undone",
    "rerun": "24 h, until they run; tasks that already ran cannot be undone",
    "release": "24 h, until they run",
    "bounce": "24 h: waits again; the report was sent",
    "expire": "24 h: waits again; the report was sent",
    "reroute": "none: they are new messages",
    "expunge": "none: permanent. Instead: R restores tasks from the trash; the trash expires "
    "by age; purge or hold tasks that are not in it",
}
"""How to undo a verb, where that is not possible for all of it."""

DEFAULT_UNDO = "24 h, by any operator (u)"

UNDO_OF_REQUEST = "none: the server does it for good"
"""Shown if all edges are requests that cannot be undone."""

NO_UNDO = "none: it cannot be undone"
"""Shown if the format makes the change for good, although the verb has an undo elsewhere."""

SENT_AS_REQUEST = "sent as a request: the server decides"
"""Shown where `Edge.exact` is False."""

RECHECK_NOTE = "re-checked on apply; changed tasks are skipped"


class PlanSize(NamedTuple):
    """Size of a plan's tasks with their payloads."""

    bytes: int
    tasks: int


class StillFails(NamedTuple):
    """An error that still happens to new tasks."""

    mark: str
    amount: int
    """Tasks of the plan with it."""
    checked: CheckedCluster


class PlanView(NamedTuple):
    """Context needed to show a plan."""

    states: Mapping[State, str]
    edges: Edges
    now: float
    """Epoch seconds UTC."""
    scope: str = ""
    drift: Mapping[str, str] = {}
    """Ids of rows whose task changed since the plan was made, each with its present state."""
    size: PlanSize | None = None
    facts: Sequence[Run] = ()
    """More facts as pairs of name and text: pace, trash, lock."""
    warnings: Sequence[str] = ()
    reason: str = ""
    command: str = ""
    undo: str = ""
    """How to undo it, if not by the console's keys."""
    still: Sequence[StillFails] = ()
    """Errors that still happen, so that the tasks would fail again."""
    is_paced: bool = False
    """True if the tasks are sent at a rate: it has words of its own."""
    refused: Mapping[str, str] = {}
    """Ids of rows for which the target state has no room, each with the reason."""
    transitions: Sequence[TransitionPreview] = ()
    """Those of the plan, once it is counted."""


class PlanCounts(NamedTuple):
    """Counts of a plan, made in one pass: painting does not depend on the number of rows."""

    plan: Plan
    amount: int
    """Number of tasks that would be acted on now."""
    transitions: tuple[TransitionPreview, ...]
    excluded: tuple[tuple[str, int], ...]
    """Reasons for excluded rows, each with its count."""
    changed: tuple[tuple[str, int], ...]
    """Present states of changed tasks, each with its count."""
    refused: tuple[tuple[str, int], ...]
    listed: tuple[Row, ...]
    """Listed rows; suspicious ones first, because the operator has to decide about them."""
    states: frozenset[State]
    included: tuple[str, ...]
    """Ids of suspicious tasks that the operator included."""

    @property
    def has_suspicious(self) -> bool:
        """True if tasks are excluded that the operator may include."""
        return any(why in EXCLUSION_REASONS for why, _ in self.excluded)


def count_plan(
    plan: Plan, edges: Edges, drift: Mapping[str, str] = {}, refused: Mapping[str, str] = {}
) -> PlanCounts:
    """Count a plan; `drift` and `refused` as in `PlanView`."""
    moves: Counter[tuple[State, State | None, int]] = Counter()
    outs: Counter[str] = Counter()
    changed: Counter[str] = Counter()
    full: Counter[str] = Counter()
    taken_in: list[str] = []
    named = drift.keys() | refused.keys() | plan.included_ids | plan.excluded_ids
    for row, count in plan.group_rows(named):
        if how := drift.get(row.id):
            changed[how] += count
        elif why := plan.exclusion_reason(row):
            outs[why] += count
        else:
            if row.default_exclusion and not plan.includes_suspicious:
                taken_in.append(row.id)
            if row.id in refused:
                full[refused[row.id]] += count
            else:
                moves[row.state, row.target, row.warned] += count
    transitions = plans.preview_transitions(plan.verb, moves, edges)
    return PlanCounts(
        plan,
        sum(would.amount for would in transitions if not would.refused) + full.total(),
        transitions,
        excluded=tuple(outs.items()),
        changed=tuple(changed.items()),
        refused=tuple(full.items()),
        listed=plan.first_rows(MAX_LISTED_TASKS),
        states=plan.states,
        included=tuple(taken_in),
    )


EXCLUDES_NEW = "excludes new tasks and tasks in work"


def warn_of_whole_state(words: str, amount: int, total: int) -> tuple[str, ...]:
    """Warnings before a plan acts on all tasks of a state, whose name is `words`."""
    return (
        f"all of {words}, no filter: {100 * amount // max(1, total)} % of all tasks",
        EXCLUDES_NEW,
        "instead: hold stops them until released; a filter selects some",
    )


def plan_lines(counts: PlanCounts, view: PlanView, width: int) -> list[Line]:
    """What a plan would do: transitions, exclusions, warnings and facts; numbers first."""
    text: list[Line] = []
    for would in counts.transitions:
        text += _transition_lines(counts.plan, would, view, width)
    if view.still:
        text += _still_lines(view.still, width)
    for why, amount in counts.refused:
        text += _count_lines(amount, f"refused: {why}", width, "error")
    for why, amount in counts.excluded:
        is_option = why in EXCLUSION_REASONS and not view.undo  # a command prints its option
        how = ": I includes all, Space one" if is_option else ""
        text += _count_lines(amount, f"excluded: {why}{how}", width, "warn")
    for how, amount in counts.changed:
        text += _count_lines(amount, f"skipped, changed since: {how}", width, "warn")
    for warning in view.warnings:
        if warning == EXCLUDES_NEW and counts.plan.includes_suspicious:
            continue
        text += _hung(f"! {warning}", width, "warn")
    room = MAX_COMMAND_LINES * max(8, width - MARGIN_CELLS - FACT_NAME_CELLS - 2)
    rows = [
        (name, fit_text(words, room).rstrip() if name == "cli" else words)
        for name, words in _facts(counts, view)
    ]
    return [*text, *fact_lines(rows, width, FACT_NAME_CELLS)]


FACT_NAME_CELLS = 8

MAX_COMMAND_LINES = 4
"""About so many lines of the command that does the same: it may name each task."""

COUNT_CELLS = 6
"""Cells for a sign and a number at the start of a line."""


def _count_lines(amount: int, words: str, width: int, style: str, sign: str = " ") -> list[Line]:
    """A number, and its meaning in columns of their own."""
    number = f" {sign}{amount:>{COUNT_CELLS - 2},}"
    return folded_lines(words, width, style, ((number, style or "strong"), ("  ", style)))


MAX_NAMED_ERRORS = 3
"""Maximum errors that are named one by one, the most frequent first."""


def _still_lines(still: Sequence[StillFails], width: int) -> list[Line]:
    words = ", ".join(f"{one.mark} {one.amount:,}" for one in still[:MAX_NAMED_ERRORS])
    more = len(still) - MAX_NAMED_ERRORS
    words += f" and {more:,} more" if more > 0 else ""
    amount = sum(one.amount for one in still)
    return _count_lines(amount, f"errors that still happen: {words}", width, "warn", "!")


def _transition_lines(
    plan: Plan, would: TransitionPreview, view: PlanView, width: int
) -> list[Line]:
    states, act = view.states, VERBS[plan.verb].words(is_paced=view.is_paced).name
    start, end = (state_name(states.get(s, s)) if s else "nowhere" for s in would.transition)
    if would.refused:
        words = f"refused, stays in {start}: {would.refused}"
        return _count_lines(would.amount, words, width, "error")
    where = f"{start} -> {end}" if start != end else start
    words = ", ".join(filter(None, (where, EFFECTS.get(act))))
    lines = _count_lines(would.amount, words, width, "")
    for warning in would.warnings:
        lines += _hung(f"! {warning}", width, "warn")
    if not would.edge.exact:
        lines += _hung(SENT_AS_REQUEST, width, "warn")
    return lines


def is_final(counts: PlanCounts) -> bool:
    """True if the format cannot undo what the verb can be undone of elsewhere."""
    edges = [would.edge for would in counts.transitions]
    is_undoable = not edges or any(edge.undoable or not edge.exact for edge in edges)
    return VERBS[counts.plan.verb].is_undoable and not is_undoable


def _undo_text(counts: PlanCounts, view: PlanView) -> str:
    edges = [would.edge for would in counts.transitions]
    if edges and not any(edge.exact or edge.undoable for edge in edges):
        return UNDO_OF_REQUEST
    if is_final(counts):
        return NO_UNDO
    return view.undo or UNDO_TEXTS.get(counts.plan.verb, DEFAULT_UNDO)


def _facts(counts: PlanCounts, view: PlanView) -> list[Run]:
    plan, changed = counts.plan, sum(amount for _, amount in counts.changed)
    rows: list[Run] = []
    if view.scope:
        rows.append(("scope", view.scope))
    if plan.filter and plan.filter not in view.scope:
        rows.append(("filter", plan.filter))
    rows += [(f"new {name}", describe_value(name, value)) for name, value in plan.values.items()]
    rows.append(("undo", _undo_text(counts, view)))  # first: the smallest screens cut the others
    rows += view.facts
    rows.append(("check", f"{RECHECK_NOTE}; changed now: {changed:,}"))
    if view.reason:
        rows.append(("reason", view.reason))
    if view.command:
        rows.append(("cli", view.command))
    rows.append(("size", _size_text(counts, view)))
    return [(name, safe_line(words)) for name, words in rows]


def describe_value(name: str, value: object) -> str:
    """The new value of a field, the start of a long one with its size."""
    if name == "due" and isinstance(value, float):
        return format_clock(value)
    text = str(value)
    if len(text) <= MAX_VALUE_CHARS:
        return text
    return f"{format_bytes(len(text.encode(errors='replace')))}: {text[:MAX_VALUE_CHARS]} ..."


def _size_text(counts: PlanCounts, view: PlanView) -> str:
    plan, words = counts.plan, []
    if view.size is not None:
        some = view.size.tasks < len(plan.rows)
        so_far = f" so far, {view.size.tasks:,} measured" if some else ""
        words.append(f"{format_bytes(view.size.bytes)}{so_far}")
    if plan.oldest and counts.amount:
        words.append(f"oldest {format_minutes(view.now - plan.oldest)}")
        words.append(f"newest {format_minutes(view.now - plan.newest)}")
    return ", ".join([*words, f"read at {format_clock(plan.made_at)}"])


PLAN_ROW_FIELDS = ("id", "state", "rev", "odd", "bytes", "outcome")


def plan_row_values(
    plan: Plan, row: Row, view: PlanView, size: int | None = None
) -> dict[str, object]:
    """One row for JSON or CSV; `size` is the task's size in bytes, None if it was not measured."""
    return {
        "id": row.id,
        "state": view.states.get(row.state, row.state),
        "rev": row.rev,
        "odd": row.barred or row.default_exclusion,
        "bytes": size,
        "outcome": expected_outcome(plan, row, view)[0],
    }


def expected_outcome(plan: Plan, row: Row, view: PlanView) -> Run:
    """Expected outcome of one row, with its style."""
    if how := view.drift.get(row.id):
        return f"skipped: {how}", "warn"
    if why := plan.exclusion_reason(row):
        return f"excluded: {why}", "warn"
    if why := view.refused.get(row.id, ""):
        return f"refused: {why}", "error"
    its = plans.transition_of(plan.verb, row)
    whole = (would.refused for would in view.transitions if would.transition == its)
    if why := next(whole, "") or plans.row_refusal(view.edges, plan.verb, row):
        return f"refused: {why}", "error"
    end = its[1] if its else None
    past = VERBS[plan.verb].words(is_paced=view.is_paced).past
    doubt = f", though {row.default_exclusion}" if row.default_exclusion else ""
    where = f", to {view.states.get(end, end)}" if end and end is not row.state else ""
    return f"{past}{where}{doubt}", "strong" if doubt else ""


def result_lines(
    report: Report, width: int, past: str = "", *, with_ids: bool = True
) -> list[Line]:
    """The result of a plan with every task counted; `past` is what those are called that were
    done, "" for the verb's own word. `with_ids`: list the tasks that were not changed."""
    planned, past = len(report.plan.rows), past or VERBS[report.plan.verb].past
    counts = (
        (len(report.done), past, "", "ok"),
        (len(report.gone), "skipped", ": changed since the plan", "warn"),
        (len(report.failed), "failed", "", "error"),
        (len(report.excluded), "excluded", "", "muted"),
        (len(report.unapplied), "not applied", "", "warn"),
    )
    text: list[Line] = []
    for amount, word, why, style in counts:
        text += _count_lines(amount, word + why, width, style) if amount else []
    some = " + ".join(f"{amount:,} {word}" for amount, word, *_ in counts if amount)
    is_exact = planned == report.accounted
    if is_exact and sum(bool(amount) for amount, *_ in counts) != 1:
        text += _hung(f"{some or '0'} = {planned:,}", width, "")
    elif not is_exact:
        text += _hung(f"{some or '0'} of {planned:,}: NOT all accounted for", width, "error")
    if not report.is_exact:
        text += _hung(requests_text(report), width, "warn")
    else:
        for note, number in report.notes.items():
            text += _hung(f"{number:,} {note}", width, "warn")
    if report.trouble:
        text += _hung(f"! {report.trouble}", width, "error")
    if report.op:
        text += _hung(f"recorded as {report.op}", width, "muted")
    text += _reasons("failed", report.failed, width, with_ids=with_ids)
    text += _reasons("excluded", report.excluded, width, with_ids=with_ids)
    text += _reasons("not applied", report.unapplied, width, with_ids=with_ids)
    if report.gone and with_ids:
        text += [BLANK_LINE, part_line("skipped"), *_id_lines(report.gone)]
    if report.new_ids:
        text += [BLANK_LINE, part_line("new ids")]
        text += _id_lines(f"{old} -> {new}" for old, new in report.new_ids.items() if new)
        if unseen := [old for old, new in report.new_ids.items() if not new]:
            later = f"{len(unseen):,}: {plans.NEW_ID_UNSEEN}: the operation shows it later"
            text += [*_hung(later, width, ""), *_id_lines(unseen)]
    return text


def requests_text(report: Report) -> str:
    """How far the requests of a plan have come, if that is known."""
    notes = ", ".join(f"{number:,} {note}" for note, number in report.notes.items())
    return f"asked for {len(report.done):,}" + (f": {notes}" if notes else "; the server decides")


def _id_lines(ids: Iterable[str]) -> list[Line]:
    return [((f"    {safe_line(ident)}", "muted"),) for ident in islice(ids, MAX_LISTED_TASKS)]


def _reasons(
    title: str, some: Sequence[tuple[str, str]], width: int, *, with_ids: bool
) -> list[Line]:
    if not some:
        return []
    text: list[Line] = [BLANK_LINE, part_line(title)]
    for reason, amount in Counter(reason for _, reason in some).most_common():
        text += _hung(f"{amount:,}: {reason}", width, "")
        if with_ids:
            text += _id_lines(ident for ident, why in some if why == reason)
    return text


def _hung(text: str, width: int, style: str) -> list[Line]:
    return folded_lines(text, width, style, hang=2)
