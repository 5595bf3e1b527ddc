"""`journal` and `undo`: list the operations at a place, and undo one."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

from engine.formats.base.format import Setup
from engine.operations import controls, undo
from engine.operations.journal import Entry, Intent, Journal, Operation
from engine.operations.plans import Plan
from engine.operations.retention import OPERATION_FILE_NAME
from engine.replay import settings
from engine.store import ChangeableStore, Unavailable
from engine.system.command_errors import EX_USAGE, fail, print_error
from engine.text.safe import safe_line
from engine.text.time_expressions import Clock, RelativeTime, parse_time
from engine.text.times import format_time
from engine.verbs import VERBS
from tui.cli.plans import plan_command, replay_options, schedules
from tui.cli.plans.plan_command import DONE, NOT_ALL_DONE, PlanOptions, ShownPlan
from tui.cli.setup.output import Answer, note_if_empty
from tui.operations import operation_lines as view
from tui.operations.operation_lines import ListedOperation
from tui.session.history import operation_name, operation_words
from tui.session.running_operations import RESULT_WORDS
from tui.text import task_row


def journal(
    setup: Setup,
    words: list[str],
    *,
    root: str,
    since: str,
    resume: bool,
    abandon: bool,
    reason: str,
    dry_run: bool,
    apply: int,
    json: bool,
) -> Answer | int:
    """List operations, the latest first; or print, continue or abandon one."""
    setup, op = _split_words(setup, root, words)
    if (resume and abandon) or ((resume or abandon) and not op):
        fail(EX_USAGE, "expected an operation, and either --resume or --abandon")
    if resume:
        plan_command.require_one(dry_run, apply)
    elif apply or dry_run:
        fail(EX_USAGE, "--dry-run and --apply N: expected with --resume")
    if abandon or apply:
        setup.require_writable()
    journal = setup.journal()
    found = [_find_operation(journal, op)] if op else _since(journal, since)
    operations = _settled(setup, journal, found)
    if abandon:
        return _abandon(setup, journal, operations[0])
    if resume:
        return _continue(setup, journal, operations[0], PlanOptions(reason, apply, json))
    if op:
        # With the later ones, which may have undone or continued it.
        later = [one for one in journal.operations(operations[0].started) if one.op != op]
        one, *_ = view.list_operations([*operations, *later])
        return Answer(
            lambda: as_json(one) | {"rows": [*map(_entry, _entries(setup, journal, op))]},
            lambda: _in_full(setup, journal, one),
        )
    noted = note_if_empty(view.list_operations(operations), "operations")
    return Answer(lambda: map(as_json, noted), lambda: map(operation_line, noted))


def undo_operation(
    setup: Setup, words: list[str], *, root: str, reason: str, dry_run: bool, apply: int, json: bool
) -> Answer | int:
    """Undo an operation by a plan of its own; without one, list those that can be undone."""
    setup, op = _split_words(setup, root, words)
    journal = setup.journal()
    if not op:
        if apply or dry_run:
            fail(EX_USAGE, "expected the operation to undo; without options they are listed")
        return _list_undoable(setup, journal)
    plan_command.require_one(dry_run, apply)
    if apply:
        setup.require_writable()
        plan_command.require_reason(setup, reason)
    (operation,) = _settled(setup, journal, [_find_operation(journal, op)])
    if controls.is_schedule_change(operation):
        return schedules.undo(setup, operation, reason, apply)
    with closing(setup.open_store()) as store:
        shown_plan = _undo_plan(setup, store, journal, operation)
        options = PlanOptions(reason, apply, json)
        return _shown_or_done(setup, store, shown_plan, options, ["undo", op])


# ---- which


def _split_words(setup: Setup, root: str, words: Sequence[str]) -> tuple[Setup, str]:
    """Find the place and the operation, or the end of its id, among the words, in any order."""
    ops = [word for word in words if _is_operation(word)]
    places = [word for word in words if word not in ops]
    for word in places:
        if "/" not in word and not os.path.lexists(word):
            known = "neither an operation (an OP of `spooldeck journal`) nor a place"
            fail(EX_USAGE, f"{safe_line(word)}: {known}")
    if len(ops) > 1 or len(places) > 1:
        fail(EX_USAGE, "expected one operation (an OP of `spooldeck journal`) and one place")
    setup = plan_command.setup_at(setup, root, places)
    plan_command.require_place(setup)
    op = ops[0] if ops else ""
    if op and len(op) == SHORT_OP_LENGTH:
        named = [one.op for one in setup.journal().operations() if one.op.endswith(f"-{op}")]
        op = named[0] if len(named) == 1 else op
    return setup, op


SHORT_OP_LENGTH = 8
"""Characters at the end of an operation's id that name it in the console."""


def _is_operation(word: str) -> bool:
    """True for the id of an operation, or its end unless that is a place too."""
    if OPERATION_FILE_NAME.fullmatch(f"{word}.jsonl"):
        return True
    is_short = len(word) == SHORT_OP_LENGTH and not set(word) - set("0123456789abcdef")
    return is_short and not os.path.lexists(word)


def _since(journal: Journal, text: str) -> Sequence[Operation]:
    try:
        now = time.time()
        floor = _fixed(parse_time(text, now), now) if text else 0.0
    except ValueError as error:
        fail(EX_USAGE, f"--since {safe_line(text)}: {error}")
    return journal.operations(floor)


def _fixed(when: float | RelativeTime | Clock, now: float) -> float:
    if isinstance(when, Clock):
        return when.before(now)
    return now - when.seconds if isinstance(when, RelativeTime) else when


def _find_operation(journal: Journal, op: str) -> Operation:
    operation = journal.operation(op)
    if operation is None:
        fail(NOT_ALL_DONE, f"{op}: no such operation in {safe_line(journal.folder)}")
    return operation


def _settled(setup: Setup, journal: Journal, operations: Sequence[Operation]) -> list[Operation]:
    """Find the results of interrupted operations, as far as we have the permission."""
    if not any(operation.is_interrupted for operation in operations):
        return list(operations)
    try:
        store = setup.open_store()
    except Unavailable:
        return list(operations)  # the journal is readable without the store
    with closing(store):
        return [_settled_one(store, journal, operation) for operation in operations]


def _entries(setup: Setup, journal: Journal, op: str) -> Sequence[Entry]:
    """The rows of an operation, with the new ids of tasks as far as they can be seen by now."""
    entries = journal.entries(op)
    if not undo.unseen_ids(entries):
        return entries
    try:
        with closing(setup.open_store()) as store:
            return undo.follow_new_ids(store, journal, op, entries)
    except Unavailable:
        return entries


def _settled_one(store: ChangeableStore, journal: Journal, operation: Operation) -> Operation:
    if not operation.is_interrupted:
        return operation
    try:
        return undo.settle_operation(store, journal, operation).operation or operation
    except Unavailable:
        return operation  # without write permission: shown as recorded


# ---- doing


def _undo_plan(
    setup: Setup, store: ChangeableStore, journal: Journal, operation: Operation
) -> ShownPlan:
    if operation.is_running:
        fail(NOT_ALL_DONE, f"{operation.op} is still running; undo it after it ends")
    now = time.time()
    back = undo.plan_undo(store, journal, operation, now, setup.queue.retention_days)
    scope = f"{operation_name(operation)} of {format_time(operation.started)}"
    return ShownPlan(back.plan, scope, warnings=plan_command.warn_of_held(len(back.held)))


def _continue(setup: Setup, journal: Journal, operation: Operation, options: PlanOptions) -> int:
    """Continue an interrupted operation as a new operation that refers to it."""
    if not (operation.is_interrupted and operation.open_rows):
        fail(NOT_ALL_DONE, f"{operation.op} is done: nothing to continue")
    with closing(setup.open_store()) as store:
        plan = undo.plan_rest(store, journal, operation, time.time())
        now = journal.operation(operation.op)
        half = max(0, (now.open_rows if now is not None else 0) - len(plan.rows))
        tasks = "1 task is" if half == 1 else f"{half:,} tasks are"
        crashed = f"{tasks} half moved: this (or --abandon) finishes or reverts the move"
        scope, warnings = f"the rest of {operation.op}", [crashed] * bool(half)
        shown_plan = ShownPlan(plan, scope, warnings=warnings)
        if paced := _read_pace(plan, operation.intent):
            facts = replay_options.describe_pace(setup, shown_plan.amount, paced)
            shown_plan = shown_plan._replace(facts=facts, is_paced=True)
        words = ["journal", operation.op, "--resume"]
        return _shown_or_done(setup, store, shown_plan, options, words, follows=operation)


def _read_pace(plan: Plan, intent: Intent) -> settings.ReplayPace | None:
    """The pace of a paced operation when it is continued, without an attending operator."""
    if not intent.pace or not VERBS[plan.verb].paced:
        return None
    try:
        return settings.parse_pace(intent.pace)._replace(attended=False)
    except ValueError as error:
        fail(NOT_ALL_DONE, f"invalid pace in the journal: {error}")


def _abandon(setup: Setup, journal: Journal, operation: Operation) -> int:
    if not operation.is_interrupted:
        fail(NOT_ALL_DONE, f"{operation.op} is already done, or still running")
    with closing(setup.open_store()) as store:
        reason = f"abandoned by {setup.current_user().name}"
        unchanged = undo.abandon_operation(store, journal, operation, reason)
    print(f"{operation.op} abandoned; {unchanged:,} tasks unchanged")
    return DONE


def _shown_or_done(
    setup: Setup,
    store: ChangeableStore,
    shown_plan: ShownPlan,
    options: PlanOptions,
    words: Sequence[str],
    *,
    follows: Operation | None = None,
) -> int:
    if not options.apply:
        command = [*setup.command_words, *words, "--apply", str(shown_plan.amount)]
        plan_command.show_plan(setup, store, shown_plan, options, command)
        return DONE
    plan = shown_plan.plan
    if not plan_command.check_count(shown_plan, options.apply):
        return NOT_ALL_DONE
    if plan_command.is_locked(setup, plan):
        return plan_command.LOCKED
    intent = plan_command.intent_of(setup, shown_plan, options.reason)
    if follows is not None:
        reason = options.reason or follows.intent.reason
        intent = intent._replace(follows=follows.op, reason=reason, pace=follows.intent.pace)
    pace = _read_pace(plan, intent)
    code = replay_options.apply_plan(setup, store, plan, intent, pace, as_json=options.json)
    if follows is None:
        return code
    try:
        undo.abandon_operation(store, setup.journal(), follows, undo.REASON_CONTINUED)
    except Unavailable as error:
        print_error(f"{follows.op} is still open: {safe_line(str(error))}")
        return code or NOT_ALL_DONE
    return code


# ---- saying


def operation_line(one: ListedOperation) -> str:
    """Describe an operation on one line."""
    operation = one.operation
    intent, counts = operation.intent, operation.counts
    parts = [f"{counts[end]:,} {word}" for end, word in RESULT_WORDS.items() if counts.get(end)]
    if operation.open_rows:
        parts.append(f"{operation.open_rows:,} open")
    is_control = intent.verb == controls.CONTROL_VERB
    nothing = view.describe_operation(operation) if is_control else "nothing"
    cells = [
        format_time(operation.started),
        operation.op,
        intent.who.name,
        operation_name(operation),
        ", ".join(parts) or nothing,
        view.operation_state(one).word,
        *([f"undoes {intent.undoes}"] if intent.undoes else []),
        *([f"filter {intent.filter}"] if intent.filter else []),
        *([f"reason {intent.reason}"] if intent.reason else []),
    ]
    return " | ".join(safe_line(cell) for cell in cells)


def as_json(one: ListedOperation) -> dict[str, Any]:
    """An operation by the names of its fields; times as `task_row.time_fields`."""
    operation = one.operation
    intent = operation.intent
    words = operation_words(intent)
    return {
        "op": operation.op,
        **task_row.time_fields("when", operation.started),
        **task_row.time_fields("ended", operation.ended or None),
        "standing": view.operation_state(one).word,
        "verb": intent.verb if words is None else words.name,
        "who": intent.who._asdict(),
        "reason": intent.reason,
        "filter": intent.filter,
        "scope": intent.scope,
        "undoes": intent.undoes or None,
        "follows": intent.follows or None,
        "values": dict(intent.values),
        "pace": dict(intent.pace) or None,
        "planned": operation.planned,
        **{str(end): amount for end, amount in operation.counts.items()},
        "open": operation.open_rows,
        "kept": operation.has_images,
        "notes": [task_row.with_times(note, "when") for note in operation.notes],
        "damaged": operation.damaged_lines,
    }


def _entry(entry: Entry) -> dict[str, Any]:
    row, ended = entry
    return {
        "id": row.id,
        "state": str(row.state),
        "rev": row.rev,
        "outcome": None if ended is None else str(ended.result),
        "words": "" if ended is None else ended.reason,
    }


def _in_full(setup: Setup, journal: Journal, one: ListedOperation) -> Iterator[str]:
    yield operation_line(one)
    operation = one.operation
    who = operation.intent.who
    facts = {
        "scope": operation.intent.scope,
        "answer": controls.control_outcome(operation) or "",
        "by": f"{who.user} on {who.host}, PID {who.pid}",
        "sudo": who.sudo,
        "from": who.ssh,
        "follows": operation.intent.follows,
        "damaged": f"{operation.damaged_lines} lines" if operation.damaged_lines else "",
    }
    for name, words in facts.items():
        if words:
            yield f"  {name:8}{safe_line(words)}"
    for row, ended in _entries(setup, journal, operation.op):
        words = "open" if ended is None else f"{ended.result} {ended.reason}".rstrip()
        yield f"  {safe_line(row.id)}  {row.state}  {safe_line(words)}"
    if operation.is_interrupted and operation.open_rows:
        amount = str(operation.open_rows)
        whole = [*setup.command_words, "journal", operation.op]
        yield f"continue: {shlex.join([*whole, '--resume', '--apply', amount])}"
        yield f"abandon:  {shlex.join([*whole, '--abandon'])}"


def _list_undoable(setup: Setup, journal: Journal) -> Answer:
    """List what can be undone: safe, recent, with changes that were not undone yet."""
    now = time.time()
    recent_operations = journal.operations(now - setup.config.trash.hours * 3600)
    operations = _settled(setup, journal, recent_operations)
    undoable = note_if_empty(_undoable(operations), "operations to undo")

    def lines() -> Iterator[str]:
        for one, done in undoable:
            back, op = one.undone, one.operation.op
            yield operation_line(one) + (f" | {back:,} of {done:,} undone" if back else "")
            yield f"    {shlex.join([*setup.command_words, 'undo', op, '--dry-run'])}"

    return Answer(lambda: ({**as_json(one), "undone": one.undone} for one, _ in undoable), lines)


def _undoable(operations: Sequence[Operation]) -> Iterator[tuple[ListedOperation, int]]:
    """Yield the operations that can be undone, with the number of changed tasks."""
    for one in view.list_operations(operations):
        operation = one.operation
        verb, done = VERBS.get(operation.intent.verb), controls.count_done(operation)
        is_schedule = controls.is_schedule_change(operation)
        is_undoable = (is_schedule and operation.has_images) or (
            verb is not None and verb.is_undoable
        )
        if is_undoable and done > one.undone and not operation.is_running:
            yield one, done
