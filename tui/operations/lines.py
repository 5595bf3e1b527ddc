"""What was done, by whom, how far it came, and whether it can be taken back; from values alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from engine import model
from engine.operations import controls
from engine.operations.execute import RowResult
from engine.operations.journal import Entry, Operation
from engine.operations.plans import way
from engine.policy import DAY, at
from engine.replay.outcomes import ReplayOutcome
from engine.replay.settings import unpacked
from engine.text.safe import shown
from engine.verbs import VERBS
from tui.format import present
from tui.format.present import BLANK, Line, Run
from tui.operations.replay_lines import rate
from tui.session.history import name_of

UNDO = DAY
"""Seconds for which an operation can be taken back."""


NONE: Mapping[str, int] = {}


class Listed(NamedTuple):
    """An operation, and what others have done to it since."""

    operation: Operation
    back: int = 0
    """How many of its tasks were taken back since."""
    half: int = 0
    """How many of its tasks are half moved, where it was interrupted."""


def listed(operations: Sequence[Operation], half: Mapping[str, int] = NONE) -> tuple[Listed, ...]:
    """Each of them, in the same order, with how many of its tasks the others took back.

    `half` is how many tasks it left half moved, by its name.
    """
    back: dict[str, int] = {}
    for one in operations:
        if one.intent.undoes:
            done = one.counts.get(RowResult.DONE, 0)
            back[one.intent.undoes] = back.get(one.intent.undoes, 0) + done
    return tuple(Listed(one, back.get(one.op, 0), half.get(one.op, 0)) for one in operations)


class OperationState(NamedTuple):
    """What became of an operation."""

    word: str
    look: str = ""
    more: str = ""
    """What there is to say besides, where there is room."""


def state(one: Listed) -> OperationState:
    """What became of it."""
    operation, back, half = one
    if operation.intent.verb == controls.VERB and not operation.running:
        return _of_control(operation)
    done, failed = (operation.counts.get(end, 0) for end in (RowResult.DONE, RowResult.FAILED))
    if operation.running:
        return OperationState("running", "good")
    if operation.interrupted:
        half = min(half, operation.open)
        more = f", {half:,} half moved" if half else ""
        return OperationState(
            "interrupted", "warning", f"{operation.open - half:,} not moved{more}"
        )
    if back:
        return (
            OperationState("undone", "dim")
            if back >= done
            else OperationState("part undone", "", f"{back:,}")
        )
    if why := stopped(operation):
        return OperationState(
            "stopped", "warning", f"{failed:,} not sent: {why}" if failed else why
        )
    return (
        OperationState("failed", "warning", f"{failed:,} of them")
        if failed
        else OperationState("done")
    )


def _of_control(operation: Operation) -> OperationState:
    """What became of a control: it has no rows."""
    words = controls.outcome(operation)
    if words is None:
        return OperationState("unknown", "warning", "cut off: what it did is not known")
    first = " ".join(words.split("\n"))
    return (
        OperationState("not done", "warning", first)
        if controls.failed(operation)
        else OperationState("done")
    )


def stopped(operation: Operation) -> str:
    """Why a replay sent no more; "" where it sent all."""
    notes = (note for note in operation.notes if note.get("what") == "stopped")
    return next((str(note.get("why", "")) for note in notes), "")


def undo(one: Listed, now: float) -> Run:
    """For how long it can be taken back, or why it cannot; `now` in epoch seconds UTC."""
    operation, back, _ = one
    verb = VERBS.get(operation.intent.verb)
    if operation.intent.verb == controls.VERB:
        before = str(operation.intent.values.get("before", ""))
        return ("no: set it back" if before else "no: for good"), "dim"
    done = operation.counts.get(RowResult.DONE, 0)
    left = UNDO - (now - operation.when)
    if verb is None:
        return "no: unknown", "dim"
    if not verb.safe:
        return "no: for good", "dim"
    if not done:
        return "no: none done", "dim"
    if back >= done:
        return "-", "dim"
    if left <= 0:
        return "no: too old", "dim"
    if not verb.keeps and not operation.kept:
        return "no: not kept", "dim"
    gone = sum(ran(operation).values())
    if gone + back >= done:
        return "no: all ran", "dim"
    return (f"part {present.span(left)}" if back or gone else present.span(left)), ""


def ran(operation: Operation) -> Mapping[str, int]:
    """What really became of the tasks that a replay sent, by a fate's word, as it wrote down."""
    became: dict[str, str] = {}
    for note in operation.notes:
        if note.get("what") == "became":
            for fate in map(
                str,
                (
                    ReplayOutcome.DELIVERED,
                    ReplayOutcome.FAILED,
                    ReplayOutcome.UNKNOWN,
                    ReplayOutcome.TAKEN,
                ),
            ):
                ids = note.get(fate, ())
                became |= dict.fromkeys(ids, fate) if isinstance(ids, list | dict) else {}
    found: dict[str, int] = {}
    for fate in became.values():
        found[fate] = found.get(fate, 0) + 1
    return found


def what(operation: Operation) -> str:
    """The verb, and what it was for."""
    intent = operation.intent
    if intent.verb == controls.VERB:
        named = (str(intent.values.get(key, "")) for key in ("control", "target", "value"))
        return shown(" ".join(filter(None, named)))
    if intent.undoes:
        return f"{shown(intent.verb)} of {short(intent.undoes)}"
    return shown(f"{name_of(operation)} {intent.filter or intent.scope}".rstrip())


def short(op: str) -> str:
    """What tells an operation from the others of a day."""
    return shown(op.rpartition("-")[2])


def items(operation: Operation) -> str:
    """How many tasks it was carried out on, of how many that were planned."""
    done = operation.counts.get(RowResult.DONE, 0)
    planned = operation.planned
    return f"{done:,}" if done == planned else f"{done:,}/{planned:,}"


class OperationColumn(NamedTuple):
    """A column of the table of operations."""

    title: str
    width: int
    right: bool = False
    least: int = 0
    """Cells that a screen must have for it."""


OP = OperationColumn("OP", 8, least=72)
WHEN = OperationColumn("WHEN", 5)
WHO = OperationColumn("WHO", 8, least=72)
ITEMS = OperationColumn("ITEMS", 9, right=True)
STATE = OperationColumn("STATE", 11)
LEFT = OperationColumn("UNDO", 13, least=60)
MUCH = 36
"""Cells of the state on a wide screen, where there is room for what there is to say besides."""
MARGIN = 3


def table(ones: Sequence[Listed], now: float, width: int) -> tuple[Line, list[Line]]:
    """The titles, and a line for each."""
    wide = width >= 100
    end = STATE._replace(width=MUCH) if wide else STATE
    before = [c for c in (OP, WHEN, WHO) if width >= c.least]
    behind = [c for c in (ITEMS, end, LEFT) if width >= c.least]
    fixed = MARGIN + sum(c.width + 1 for c in (*before, *behind))
    room = max(4, width - fixed)
    shape = [*before, OperationColumn("WHAT", room - 1), *behind]
    titles = " ".join(present.fit(c.title, c.width, c.right) for c in shape)
    head: Line = ((present.fit(" " * MARGIN + titles, width), "title"),)
    return head, [_row(one, shape, now, width) for one in ones]


def _row(one: Listed, shape: Sequence[OperationColumn], now: float, width: int) -> Line:
    operation = one.operation
    word, look, more = state(one)
    word = f"{word}: {shown(more)}" if more and width >= 100 else word
    left, left_look = undo(one, now)
    cells: dict[str, Run] = {
        "OP": (short(operation.op), "dim"),
        "WHEN": (present.clock(operation.when)[:5], ""),
        "WHO": (shown(operation.intent.who.name), ""),
        "WHAT": (what(operation), "strong"),
        "ITEMS": (items(operation), ""),
        "STATE": (word, look),
        "UNDO": (left, left_look),
    }
    sign = " ! " if operation.interrupted and operation.open else "   "
    runs: list[Run] = [(sign, "warning")]
    for column in shape:
        text, look = cells[column.title]
        runs += [(present.fit(text, column.width, column.right), look), (" ", "")]
    return present.cut(present.merged(runs), width)


# One of them in full


def about(one: Listed, now: float, width: int) -> list[Line]:
    """Who did it, why, and what came of it."""
    operation = one.operation
    intent, counts = operation.intent, operation.counts
    who = intent.who
    person = who.name + (f" (sudo, as {who.user})" if who.sudo and who.user != who.sudo else "")
    where = f" on {who.host}, PID {who.pid}" if who.host else ""
    word, _, more = state(one)
    left, _ = undo(one, now)
    ended = "" if operation.ended is None else f", ended {present.clock(operation.ended)}"
    ends = [f"{counts.get(end, 0):,} {_PAST.get(end, end)}" for end in RowResult]
    planned = f"{operation.planned:,} planned: {', '.join(ends)}, {operation.open:,} open"
    new = [(name, value) for name, value in intent.values.items() if value != ""]
    rows: list[Run] = [
        ("operation", operation.op),
        ("what", what(operation)),
        ("who", f"{person}{where}"),
        ("from", who.ssh.split(" ")[0] if who.ssh else ""),
        ("when", f"{present.moment(operation.when, now)}{ended}"),
        ("reason", intent.reason),
        ("filter", intent.filter),
        ("scope", intent.scope),
        ("new", ", ".join(f"{name} {value}" for name, value in new)),
        ("answer", controls.outcome(operation) or ""),
        ("pace", _pace(operation)),
        ("takes back", intent.undoes),
        ("goes on with", intent.follows),
        ("state", f"{word}: {more}" if more else word),
        ("rows", "" if intent.verb == controls.VERB else planned),
        ("became", ", ".join(f"{n:,} {fate}" for fate, n in ran(operation).items())),
        ("undo", _undo_words(one, left)),
        ("damaged", f"{operation.damaged:,} lines not understood" if operation.damaged else ""),
    ]
    told = [(name, shown(" ".join(words.splitlines()))) for name, words in rows if words]
    return present.labelled(told, width, 13)


_PAST: Mapping[RowResult, str] = {RowResult.EXCLUDED: "left out"}


def _undo_words(one: Listed, left: str) -> str:
    if left.startswith("no"):
        return left
    words = "T shows what would come back, and what not"
    return f"{one.back:,} were taken back" if left == "-" else f"{left} left; {words}"


def _pace(operation: Operation) -> str:
    try:
        pace = unpacked(operation.intent.pace) if operation.intent.pace else None
    except ValueError:
        return "?"
    if pace is None:
        return ""
    canary = ", ".join(str(size) for size in pace.canary if size)
    return f"canary {canary}, then {rate(pace)}" if canary else rate(pace)


def rows(
    entries: Sequence[Entry], operation: Operation, states: Mapping[model.State, str], width: int
) -> list[Line]:
    """The first of its rows, each with what became of it; `states` are the store's own words."""
    verb, more = operation.intent.verb, operation.planned - len(entries)
    found: list[Line] = [present.heading(present.count(operation.planned, "row"), width)]
    cells = 38 if width >= 100 else 24
    for row, ended in entries:
        its = way(verb, row) if verb in VERBS or row.end is not None else None
        start, goal = its or (row.state, row.state)
        ways = (states.get(s, s) if s else "nowhere" for s in (start, goal))
        where = " -> ".join(map(shown, ways)) if start is not goal else shown(next(ways))
        name = _PAST.get(ended.end, str(ended.end)) if ended else "open"
        end, look = (name, _LOOKS.get(ended.end, "")) if ended else (name, "warning")
        words = ended.words if ended else "not moved"
        name = present.fit_end(shown(row.id), cells)
        runs = (
            (f"   {name}  ", ""),
            (f"{present.fit(end, 9)} ", look),
            (f"{present.fit(where, 18)} ", "dim"),
            (shown(words), "dim"),
        )
        found.append(present.cut(runs, width))
    return [*found, ((f"   ... and {more:,} more", "dim"),)] if more > 0 else found


_LOOKS: Mapping[RowResult, str] = {
    RowResult.DONE: "good",
    RowResult.GONE: "warning",
    RowResult.FAILED: "bad",
}


def notes(operation: Operation, width: int) -> list[Line]:
    """What else was written down meanwhile."""
    known = ("became", controls.SAID, controls.REFUSED)
    told = [note for note in operation.notes if note.get("what") not in known]
    if not told:
        return []
    found: list[Line] = [BLANK, present.heading("meanwhile", width)]
    return [*found, *(present.cut(_note(note), width) for note in told)]


def _note(note: Mapping[str, Any]) -> Line:
    when = note.get("when")
    stamp = present.clock(when) if isinstance(when, float | int) else "?"
    rest = {k: v for k, v in note.items() if k not in ("line", "when", "what")}
    words = ", ".join(str(v) if k == "why" else f"{k} {v}" for k, v in rest.items())
    said = str(note.get("what", "?")).replace("_", " ") + (f": {words}" if words else "")
    return ((f"   {stamp}  ", "dim"), (shown(said), ""))


def as_row(one: Listed, now: float) -> dict[str, object]:
    """The same for programs; times in epoch seconds UTC."""
    operation = one.operation
    return {
        "op": operation.op,
        "when": operation.when,
        "at": at(operation.when),
        "ended": operation.ended,
        "verb": operation.intent.verb,
        "what": what(operation),
        "who": operation.intent.who._asdict(),
        "reason": operation.intent.reason,
        "planned": operation.planned,
        **{str(end): operation.counts.get(end, 0) for end in RowResult},
        "open": operation.open,
        "state": state(one).word,
        "undo": undo(one, now)[0],
    }
