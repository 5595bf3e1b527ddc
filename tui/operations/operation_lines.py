"""Operations of the journal as text: table, state, undo, details, rows."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from engine.model import State
from engine.operations import controls
from engine.operations.journal import Operation
from engine.operations.plans import RowResult
from engine.operations.undo import CLOSED_NOTE
from engine.policy import DAY_SECONDS
from engine.replay.outcomes import ReplayOutcome
from engine.replay.settings import parse_pace
from engine.text.figure import UNKNOWN
from engine.text.safe import safe_line
from engine.text.times import format_duration
from engine.values import NamedTuple
from engine.verbs import VERBS
from tui.operations.replay_lines import format_pace
from tui.plan.plan_lines import describe_value
from tui.session.history import operation_name
from tui.session.running_operations import RESULT_WORDS
from tui.text.lines import (
    BLANK_LINE,
    Line,
    Run,
    cells_of,
    cut_line,
    fact_lines,
    heading_line,
)
from tui.text.table import REST, Column, Table, alarm_sign
from tui.text.task_list import short_id
from tui.text.times import (
    format_clock,
    format_minutes,
    format_start,
    format_time_with_age,
)

UNDO_SECONDS = DAY_SECONDS
"""Seconds for which an operation can be undone."""

NO_COUNTS: Mapping[str, int] = {}


class ListedOperation(NamedTuple):
    """An operation, with what later operations undid."""

    operation: Operation
    undone: int = 0
    half_moved: int = 0
    """Number of tasks that an interruption left half moved."""
    switched: str = ""
    """The mail transport or destination that it stopped or set back, if no later operation did."""
    place: str = ""
    """Name of its place; "" where only one place is open."""
    age: float | None = None
    """Seconds since the journal was read, if that is long ago (`History.age`)."""
    undone_by: Operation | None = None
    """The last operation that undid tasks of it."""
    continued_by: Operation | None = None
    """The operation that resumed it after an interruption."""

    @property
    def suspended(self) -> str:
        """The mail transport or destination that it stopped, if no later operation set it back."""
        values = self.operation.intent.values
        stop = controls.SWITCHES.get(str(values.get("control")), ("", "", ""))[0]
        return self.switched if values.get("value") == stop else ""

    @property
    def way_back(self) -> str:
        """The verb that sets it back; "" if it switched nothing."""
        switch = controls.SWITCHES.get(str(self.operation.intent.values.get("control")))
        return "" if switch is None else switch[2] if self.suspended else switch[1]


def list_operations(
    operations: Sequence[Operation], half: Mapping[str, int] = NO_COUNTS, place: str = ""
) -> tuple[ListedOperation, ...]:
    """Add to each operation of one place how many tasks later ones undid; keeps the order. `half`
    has the number of half-moved tasks by operation name."""
    back: dict[str, int] = {}
    last, undone_by, continued_by = (dict[str, Operation]() for _ in range(3))
    for one in sorted(operations, key=lambda one: one.started):
        if one.intent.undoes and (done := controls.count_done(one, if_unknown=0)):
            back[one.intent.undoes] = back.get(one.intent.undoes, 0) + done
            undone_by[one.intent.undoes] = one
        if one.intent.follows:
            continued_by[one.intent.follows] = one
        if (name := _switched(one)) and not controls.has_control_failed(one):
            last[name] = one
    return tuple(
        ListedOperation(
            one,
            back.get(one.op, 0),
            half.get(one.op, 0),
            name if (name := _switched(one)) and last.get(name) is one else "",
            place,
            undone_by=undone_by.get(one.op),
            continued_by=continued_by.get(one.op),
        )
        for one in operations
    )


def _switched(operation: Operation) -> str:
    """The mail transport or destination that it stopped or set back; "" if it is no such
    operation, or one that cannot be undone."""
    values = operation.intent.values
    is_switch = values.get("control") in controls.SWITCHES and values.get("before")
    return str(values.get("target", "")) if is_switch else ""


class OperationState(NamedTuple):
    """State of an operation."""

    word: str
    style: str = ""
    more: str = ""
    """Details, shown if there is room."""


def operation_state(one: ListedOperation) -> OperationState:
    """Derive the state of an operation."""
    operation, back, half = one.operation, one.undone, one.half_moved
    is_control = operation.intent.verb == controls.CONTROL_VERB
    if is_control and not back and not operation.is_running:
        return _control_state(operation)
    done, failed = (operation.counts.get(end, 0) for end in (RowResult.DONE, RowResult.FAILED))
    if operation.is_running and one.age is not None:
        text = f"{UNKNOWN} {format_duration(one.age)} old"
        return OperationState(text, "unknown", "running when the journal was read")
    if operation.is_running:
        return OperationState("running", "ok")
    if operation.is_interrupted:
        half = min(half, operation.open_rows)
        more = f", {half:,} half moved" if half else ""
        return OperationState(
            "interrupted", "warn", f"{operation.open_rows - half:,} not moved{more}"
        )
    undone_by = "" if one.undone_by is None else _when_and_who(one.undone_by)
    if back and back >= done:
        return OperationState("undone", "muted", undone_by)
    if back:
        return OperationState("part undone", "", f"{back:,}, {undone_by}")
    if one.continued_by is not None:
        return OperationState("continued", "muted", _when_and_who(one.continued_by))
    if why := _noted_reason(operation, CLOSED_NOTE):
        return OperationState("abandoned", "muted", why.removeprefix("abandoned "))
    if (why := _noted_reason(operation, "stopped")) or count_unsent(one):
        more = not_sent_text(one)
        return OperationState("stopped", "warn", ": ".join(filter(None, (more, why))))
    if failed:
        return OperationState("failed", "warn", f"{failed:,} of them")
    return OperationState("done")


def _when_and_who(operation: Operation) -> str:
    return f"{format_clock(operation.started)} by {safe_line(operation.intent.who.name)}"


def _control_state(operation: Operation) -> OperationState:
    """State of a control, which has no rows."""
    words = controls.control_outcome(operation)
    if words is None:
        return OperationState("unknown", "warn", "interrupted: effect unknown")
    if controls.has_control_failed(operation):
        return OperationState("not done", "warn", " ".join(words.split("\n")))
    return OperationState("done")


def _noted_reason(operation: Operation, what: str) -> str:
    """Why a replay stopped, or an interrupted operation was closed; "" if it was not."""
    notes = (note for note in operation.notes if note.get("what") == what)
    return next((str(note.get("why", "")) for note in notes), "")


def count_unsent(one: ListedOperation) -> int:
    """Number of tasks that a stop left as they were; 0 if it was continued or abandoned."""
    operation = one.operation
    is_closed = one.continued_by is not None or _noted_reason(operation, CLOSED_NOTE)
    if operation.is_running or is_closed:
        return 0
    return operation.counts.get(RowResult.UNAPPLIED, 0)


def not_sent_text(one: ListedOperation) -> str:
    """`28 not sent` of a stopped replay, `28 not applied` of another operation; "" if none."""
    words = "not sent" if one.operation.intent.pace else RESULT_WORDS[RowResult.UNAPPLIED]
    return f"{amount:,} {words}" if (amount := count_unsent(one)) else ""


def may_have_run(one: ListedOperation) -> bool:
    """True if it made tasks due of which the journal has no outcome: a worker may have run them,
    and these cannot be undone."""
    operation = one.operation
    verb = VERBS.get(operation.intent.verb)
    if verb is None or {goal for _, goal in verb.edges} != {State.PENDING}:
        return False
    known = sum(replay_results(operation).values()) + one.undone
    return controls.count_done(operation) > known


def undo_time_left(one: ListedOperation, now: float) -> Run:
    """Time left for undo, or why it is not possible; `now` in epoch seconds UTC."""
    operation, back, *_ = one
    verb = VERBS.get(operation.intent.verb)
    is_schedule = controls.is_schedule_change(operation)
    if operation.intent.verb == controls.CONTROL_VERB and not is_schedule:
        values, of_workers = operation.intent.values, controls.WORKER_CONTROLS
        way = "use control" if values.get("before") else "permanent"
        return f"no: {'use W' if values.get('control') in of_workers else way}", "muted"
    done = controls.count_done(operation)
    seconds_left = UNDO_SECONDS - (now - operation.started)
    if verb is None and not is_schedule:
        return "no: unknown", "muted"
    if verb is not None and not verb.is_undoable:
        return "no: permanent", "muted"
    if not done:
        return "no: none done", "muted"
    if back >= done:
        return "-", "muted"
    if seconds_left <= 0:
        return "no: too old", "muted"
    keeps_bytes = verb is not None and verb.keeps_bytes
    if not keeps_bytes and not operation.has_images:
        return "no: no copy", "muted"
    ran = sum(replay_results(operation).values())
    if ran + back >= done:
        return "no: all ran", "muted"
    return ("part " if back or ran else "") + format_minutes(seconds_left), ""


def can_undo(one: ListedOperation, now: float) -> bool:
    """True if a plan may undo some of it; `now` in epoch seconds UTC."""
    text, _ = undo_time_left(one, now)
    return text != "-" and not text.startswith("no: ")


_FINAL = (ReplayOutcome.DELIVERED, ReplayOutcome.FAILED, ReplayOutcome.UNKNOWN, ReplayOutcome.TAKEN)


def replay_results(operation: Operation) -> Mapping[str, int]:
    """Outcomes of a replay's tasks as recorded in the journal, counted by word."""
    became: dict[str, str] = {}
    for note in operation.notes:
        if note.get("what") == "became":
            for fate in map(str, _FINAL):
                ids = note.get(fate, ())
                became |= dict.fromkeys(ids, fate) if isinstance(ids, list | dict) else {}
    return Counter(became.values())


def describe_operation(operation: Operation) -> str:
    """Verb and scope."""
    intent = operation.intent
    if name := _switched(operation):
        stop, verb, back = controls.SWITCHES[intent.values["control"]]
        is_stop = intent.values.get("value") == stop
        return f"{verb if is_stop else back} {safe_line(name)}"
    if intent.verb == controls.CONTROL_VERB:
        named = (str(intent.values.get(key, "")) for key in ("control", "target", "value"))
        return safe_line(" ".join(filter(None, named)))
    if intent.undoes:
        began = _BEGAN.match(intent.undoes)
        when = f"{':'.join(began.groups())}Z " if began else ""
        return f"{safe_line(intent.verb)} of {when}{short_name(intent.undoes)}"
    scope = intent.filter or intent.scope
    if scope.startswith("row "):
        scope = short_id(scope.removeprefix("row "))
    return safe_line(f"{operation_name(operation)} {scope.replace('cluster=', '')}".rstrip())


_BEGAN = re.compile(r"[0-9]{8}T([0-9]{2})([0-9]{2})([0-9]{2})Z-")
"""The time in the id of an operation."""


def short_name(op: str) -> str:
    """The part of an operation's name that differs within a day."""
    return safe_line(op.rpartition("-")[2])


def task_count(operation: Operation) -> str:
    """Number of processed tasks, and of planned ones if it differs; a control has no tasks."""
    if operation.intent.verb == controls.CONTROL_VERB:
        return "-"
    done = operation.counts.get(RowResult.DONE, 0)
    planned = operation.planned
    if operation.is_running and operation.intent.pace:  # sent: some have no outcome yet
        return f"{done:,}/{planned:,} sent"
    return f"{done:,}" if done == planned else f"{done:,}/{planned:,}"


WIDE_COLUMNS = 90

CLOCK_CELLS = 8
"""Cells of a time with seconds, `23:34:05`."""


def ssh_source(operation: Operation) -> str:
    """The address that its operator came from over SSH; "" if it is not known."""
    return safe_line(operation.intent.who.ssh.partition(" ")[0])


def _what(one: ListedOperation) -> Run:
    return describe_operation(one.operation), "strong"


def _state(one: ListedOperation) -> Run:
    word, style, _ = operation_state(one)
    return state_text(word), _STATE_LOOKS.get(word, style)


def state_text(word: str) -> str:
    """The word of a state in a table; an age keeps its unit."""
    return word if word.startswith(UNKNOWN) else word.upper()


def operation_table(
    ones: Sequence[ListedOperation], now: float, width: int, *, read_only: bool
) -> tuple[Line, list[Line]]:
    """Titles and one line per operation; a console that only reads has no NEXT. If WHAT does not
    fit, the gaps shrink; if that is not enough, WHEN has no seconds."""
    is_wide = width >= WIDE_COLUMNS

    def who(one: ListedOperation) -> Run:
        return safe_line(one.operation.intent.who.name), ""

    def next_step(one: ListedOperation) -> Run:
        return next_words(one, now, is_wide)

    def fitted(*, seconds: bool) -> Table[ListedOperation]:
        def when(one: ListedOperation) -> Run:
            start = format_start(one.operation.started, now).removesuffix("Z")
            return (start if seconds or len(start) != CLOCK_CELLS else start[:5]), "muted"

        columns: list[Column[ListedOperation]] = [
            Column("WHEN", 5, when, most=12),
            Column("PLACE", 5, lambda one: (safe_line(one.place), ""), most=12),
            Column("WHO", 3, who, most=8, least=60),
            Column("FROM", 4, lambda one: (ssh_source(one.operation), "muted"), most=15, least=90),
            Column("WHAT", 4, _what, most=REST, grows=REST),
            Column("TASKS", 5, lambda one: (task_count(one.operation), ""), right=True, most=24),
            Column("STATE", 5, _state, most=11),
            Column("NEXT", 4, next_step, most=20 if is_wide else 15, least=60),
        ]
        has = {
            "PLACE": any(one.place for one in ones),
            "FROM": any(ssh_source(one.operation) for one in ones),
            "NEXT": not read_only,
        }
        columns = [column for column in columns if has.get(column.title, True)]
        return Table(columns, (2, 1), lambda one: alarm_sign(needs_decision(one.operation))).fitted(
            ones, width
        )

    table, longest = fitted(seconds=True), max((cells_of(_what(one)[0]) for one in ones), default=4)
    if any(column.title == "WHAT" and column.width < longest for column in table.columns):
        table = fitted(seconds=False)
    return table.titles(width), [table.line(one, width) for one in ones]


_STATE_LOOKS: Mapping[str, str] = {"done": "ok", "running": "ok", "interrupted": "error"}


def needs_decision(operation: Operation) -> bool:
    """True if an interrupted operation has tasks left: an operator resumes or abandons it."""
    return operation.is_interrupted and operation.open_rows > 0


def next_words(one: ListedOperation, now: float, is_wide: bool) -> Run:
    """The next step and its key: `u undo, 23h58m`; otherwise why it cannot be undone."""
    if needs_decision(one.operation):
        return "R resume, D abandon" if is_wide else "R, D abandon", "warn"
    if one.operation.is_running:
        return "Enter shows it", ""
    if one.suspended:
        return f"S {one.way_back}", ""
    if one.switched:
        return "u undo", ""
    undo_text, style = undo_time_left(one, now)
    if undo_text == "-":
        return "undone", "muted"
    if undo_text.startswith("no: ") and (more := not_sent_text(one)):
        return more, "warn"
    if undo_text.startswith("no: "):
        return f"no undo: {undo_text[4:]}" if is_wide else undo_text, "muted"
    if may_have_run(one):
        return "u undo, may have run" if is_wide else "u, may have run", style
    is_part = undo_text.startswith("part ")
    word = "undo" if not is_part else "undo part" if is_wide else "part"
    return f"u {word}, {undo_text.removeprefix('part ')}", style


# Details of one operation


def detail_lines(one: ListedOperation, now: float, width: int) -> list[Line]:
    """Who, when, why, and the result."""
    operation = one.operation
    intent, counts = operation.intent, operation.counts
    who = intent.who
    person = who.name + (f" (sudo, as {who.user})" if who.sudo and who.user != who.sudo else "")
    where = f" on {who.host}, PID {who.pid}" if who.host else ""
    word, _, more = operation_state(one)
    undo_text, _ = undo_time_left(one, now)
    ended = "" if operation.ended is None else f", ended {format_clock(operation.ended)}"
    names = {**RESULT_WORDS, RowResult.DONE: intent.past}
    amounts = [f"{counts[end]:,} {name}" for end, name in names.items() if counts.get(end)]
    amounts += [f"{operation.open_rows:,} open"] if operation.open_rows else []
    if one.age is not None and operation.is_running:
        amounts.append(f"{format_duration(one.age)} old")
    planned, damaged = (
        f"{operation.planned:,} planned: {', '.join(amounts)}",
        operation.damaged_lines,
    )
    said = {str(ReplayOutcome.DELIVERED): "succeeded (log)"}
    outcomes = replay_results(operation).items()
    results = [f"{amount:,} {said.get(fate, fate)}" for fate, amount in outcomes]
    values = {n: v for n, v in intent.values.items() if v != "" and n != "control"}  # in `what`
    rows: list[Run] = [
        ("operation", operation.op),
        ("place", one.place),
        ("what", describe_operation(operation)),
        ("who", f"{person}{where}"),
        ("from", ssh_source(operation)),
        ("when", f"{format_time_with_age(operation.started, now)}{ended}"),
        ("reason", intent.reason),
        ("filter", intent.filter),
        ("scope", intent.scope),
        ("new", ", ".join(f"{name} {describe_value(name, v)}" for name, v in values.items())),
        ("answer", controls.control_outcome(operation) or ""),
        ("pace", _pace_text(operation)),
        ("undoes", intent.undoes),
        ("resumes", intent.follows),
        ("state", f"{word}: {more}" if more else word),
        ("rows", "" if intent.verb == controls.CONTROL_VERB else planned),
        ("results", ", ".join(results)),
        ("undo", _undo_words(one, undo_text)),
        ("damaged", f"{damaged:,} unreadable lines" if damaged else ""),
    ]
    facts = [(name, safe_line(" ".join(words.splitlines()))) for name, words in rows if words]
    return fact_lines(facts, width, 13)


def _undo_words(one: ListedOperation, undo_text: str) -> str:
    if one.switched:
        key = "S or u" if one.suspended else "u"
        return f"{key} plans to {one.way_back} {safe_line(one.switched)}"
    if undo_text.startswith("no"):
        return undo_text
    if undo_text == "-":
        return f"{one.undone:,} undone"
    which = " for tasks that did not run" if may_have_run(one) else ""
    return f"{undo_text} left{which}: u plans it"


def _pace_text(operation: Operation) -> str:
    try:
        pace = parse_pace(operation.intent.pace) if operation.intent.pace else None
    except ValueError:
        return UNKNOWN
    if pace is None:
        return ""
    canary = ", ".join(str(size) for size in pace.canary if size)
    return f"canary {canary}, then {format_pace(pace)}" if canary else format_pace(pace)


def note_lines(operation: Operation, width: int) -> list[Line]:
    """Other events recorded while it ran."""
    known = ("became", controls.ANSWERED_NOTE, controls.REFUSED_NOTE)
    events = [note for note in operation.notes if note.get("what") not in known]
    if not events:
        return []
    lines: list[Line] = [BLANK_LINE, heading_line("events", width)]
    return [*lines, *(cut_line(_note(note), width) for note in events)]


def _note(note: Mapping[str, Any]) -> Line:
    when = note.get("when")
    stamp = format_clock(when) if isinstance(when, float | int) else UNKNOWN
    fields = {k: v for k, v in note.items() if k not in ("line", "when", "what")}
    words = ", ".join(str(v) if k == "why" else f"{k} {v}" for k, v in fields.items())
    sentence = str(note.get("what", UNKNOWN)).replace("_", " ") + (f": {words}" if words else "")
    return ((f"   {stamp}  ", "muted"), (safe_line(sentence), ""))
