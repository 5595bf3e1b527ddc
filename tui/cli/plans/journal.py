"""`journal` and `undo`: what operators did to a queue, and how it is taken back."""

from __future__ import annotations

import os
import time
from argparse import Namespace
from collections.abc import Sequence
from contextlib import closing
from typing import Any

from engine.operations import controls, undo
from engine.operations.execute import RowResult
from engine.operations.journal import Entry, Intent, Journal, Operation
from engine.operations.plans import Plan
from engine.operations.retention import OPERATION
from engine.policy import at
from engine.replay import settings
from engine.store import Store, Unavailable
from engine.text.safe import shown
from engine.text.time_expressions import Clock, RelativeTime, moment
from engine.verbs import VERBS
from tui.cli.plans import plan_command, replay_options
from tui.cli.plans.plan_command import DONE, OTHERWISE, SeenTasks
from tui.cli.setup.setup import EX_USAGE, Setup, complain, fail
from tui.format import task_row
from tui.operations import lines as view
from tui.session.history import name_of


def journal(setup: Setup, arguments: Namespace) -> int:
    """The operations, the latest first; one of them in full; an interrupted one gone on with."""
    setup, op = _meant(setup, arguments)
    _require_sense(arguments, op)
    if arguments.drop or arguments.apply:
        setup.require_change()
    kept = setup.journal()
    operations = _settled(setup, kept, [_named(kept, op)] if op else _since(kept, arguments))
    if arguments.drop:
        return _drop(setup, kept, operations[0])
    if arguments.go_on:
        return _go_on(setup, kept, operations[0], arguments)
    for operation in operations:
        values = as_json(operation)
        if op:
            values["rows"] = [_entry(entry) for entry in kept.entries(op)]
        print(task_row.json_line(values) if arguments.json else line(operation) + "\n", end="")
    if op and not arguments.json:
        _in_full(setup, kept, operations[0])
    return DONE


def take_back(setup: Setup, arguments: Namespace) -> int:
    """An operation taken back by a plan of its own; without one, those that can be."""
    setup, op = _meant(setup, arguments)
    kept = setup.journal()
    if not op:
        if arguments.apply or arguments.dry_run:
            fail(EX_USAGE, "expected the operation to take back; without one they are listed")
        return _list_back(setup, kept, arguments)
    plan_command.require_one(arguments)
    if arguments.apply:
        setup.require_change()
        plan_command.require_reason(setup, arguments.reason)
    (operation,) = _settled(setup, kept, [_named(kept, op)])
    with closing(setup.store()) as store:
        seen = _back(setup, store, kept, operation)
        return _shown_or_done(setup, store, seen, arguments, ["undo", op])


# ---- which


def _meant(setup: Setup, arguments: Namespace) -> tuple[Setup, str]:
    """The queue and the operation that the words mean: they may stand in any order."""
    ops = [word for word in arguments.words if OPERATION.fullmatch(f"{word}.jsonl")]
    places = [word for word in arguments.words if word not in ops]
    if len(ops) > 1 or len(places) > 1:
        fail(EX_USAGE, "expected one operation (as `spooldeck journal` names it) and one place")
    setup = plan_command.placed(setup, arguments, places)
    if not os.path.isdir(os.path.dirname(setup.queue.pending)):
        setup.store().close()  # says what is missing
    return setup, ops[0] if ops else ""


def _require_sense(arguments: Namespace, op: str) -> None:
    ways = [name for name in ("go_on", "drop") if getattr(arguments, name)]
    if len(ways) > 1 or (ways and not op):
        fail(EX_USAGE, "expected an operation, and either --go-on or --drop")
    if arguments.go_on:
        plan_command.require_one(arguments)
    elif arguments.apply or arguments.dry_run:
        fail(EX_USAGE, "--dry-run and --apply N: expected --go-on beside them")


def _since(kept: Journal, arguments: Namespace) -> Sequence[Operation]:
    try:
        now = time.time()
        floor = _fixed(moment(arguments.since, now), now) if arguments.since else 0.0
    except ValueError as error:
        fail(EX_USAGE, f"--since {shown(arguments.since)}: {error}")
    return kept.operations(floor)


def _fixed(when: float | RelativeTime | Clock, now: float) -> float:
    if isinstance(when, Clock):
        return when.before(now)
    return now - when.seconds if isinstance(when, RelativeTime) else when


def _named(kept: Journal, op: str) -> Operation:
    operation = kept.operation(op)
    if operation is None:
        fail(OTHERWISE, f"{op}: no such operation in {shown(kept.folder)}")
    return operation


def _settled(setup: Setup, kept: Journal, found: Sequence[Operation]) -> list[Operation]:
    """With what became of those that were interrupted, where we may find that out."""
    if not any(operation.interrupted for operation in found):
        return list(found)
    try:
        store = setup.store()
    except Unavailable:
        return list(found)  # its journal can be read all the same
    with closing(store):
        return [_settled_one(store, kept, operation) for operation in found]


def _settled_one(store: Store, kept: Journal, operation: Operation) -> Operation:
    try:
        settled = undo.settle(store, kept, operation).operation if operation.interrupted else None
    except Unavailable:
        settled = None  # who may not write sees it as it stands
    return settled or operation


# ---- doing


def _back(setup: Setup, store: Store, kept: Journal, operation: Operation) -> SeenTasks:
    if operation.running:
        fail(OTHERWISE, f"{operation.op} still runs; it can be taken back once it is over")
    now = time.time()
    back = undo.undo(store, kept, operation, now, setup.queue.retention_days)
    late = "dead for longer than the retention: held, else the next run deletes them"
    warnings = [f"{len(back.held):,} {late}"] * bool(back.held)
    return SeenTasks(back.plan, f"{name_of(operation)} of {at(operation.when)}", warnings=warnings)


def _go_on(setup: Setup, kept: Journal, operation: Operation, arguments: Namespace) -> int:
    """What an interrupted operation did not come to, as a new one that says what it follows."""
    if not (operation.interrupted and operation.open):
        fail(OTHERWISE, f"{operation.op} is over: there is nothing to go on with")
    with closing(setup.store()) as store:
        plan = undo.rest(store, kept, operation, time.time())
        now = kept.operation(operation.op)
        half = max(0, (now.open if now is not None else 0) - len(plan.rows))
        seen = SeenTasks(plan, f"the rest of {operation.op}", warnings=_half_moved(half))
        if paced := _pace(plan, operation.intent):
            seen = seen._replace(facts=replay_options.forecast(setup, seen.amount, paced))
        words = ["journal", operation.op, "--go-on"]
        return _shown_or_done(setup, store, seen, arguments, words, operation)


def _half_moved(amount: int) -> list[str]:
    """What becomes of tasks that a crash left half moved."""
    if not amount:
        return []
    tasks = "1 task is" if amount == 1 else f"{amount:,} tasks are"
    return [f"{tasks} half moved: finished, or put back, by this, and by --drop"]


def _pace(plan: Plan, intent: Intent) -> settings.ReplayPace | None:
    """How an operation goes on that was paced: with nobody there to be asked.

    Raises:
        Fail: that cannot be understood.
    """
    if not intent.pace or plan.verb != "retry":
        return None
    try:
        return settings.unpacked(intent.pace)._replace(attended=False)
    except ValueError as error:
        fail(OTHERWISE, shown(f"how fast it went cannot be understood: {error}"))


def _drop(setup: Setup, kept: Journal, operation: Operation) -> int:
    if not operation.interrupted:
        fail(OTHERWISE, f"{operation.op} is over already, or still runs")
    with closing(setup.store()) as store:
        left = undo.drop(store, kept, operation, f"left as it is by {setup.who().name}")
    print(f"{operation.op} is over; {left:,} tasks were left as they are")
    return DONE


def _shown_or_done(
    setup: Setup,
    store: Store,
    seen: SeenTasks,
    arguments: Namespace,
    words: Sequence[str],
    follows: Operation | None = None,
) -> int:
    if not arguments.apply:
        twin = plan_command.typed([*plan_command.base(setup), *words, "--apply", str(seen.amount)])
        plan_command.show(seen, plan_command.sight(seen, store, arguments, twin), arguments.json)
        return DONE
    if not plan_command.is_count(seen, arguments.apply):
        return OTHERWISE
    if why := plan_command.guard(setup, seen.plan)():
        complain(f"{shown(why)}: nothing was done")
        return plan_command.LOCKED
    intent = plan_command.intent_of(setup, seen, arguments)
    if follows is None:
        return _done(setup, store, seen.plan, intent, arguments)
    reason = arguments.reason or follows.intent.reason
    intent = intent._replace(follows=follows.op, reason=reason, pace=follows.intent.pace)
    code = _done(setup, store, seen.plan, intent, arguments)
    try:
        undo.drop(store, setup.journal(), follows, undo.FOLLOWED)
    except Unavailable as error:
        complain(f"{follows.op} is still open: {shown(str(error))}")
        return code or OTHERWISE
    return code


def _done(setup: Setup, store: Store, plan: Plan, intent: Intent, arguments: Namespace) -> int:
    if paced := _pace(plan, intent):
        return replay_options.run(setup, plan, intent, paced, arguments.json)
    report = plan_command.carry_out(setup, store, plan, intent)
    return plan_command.tell(setup, report, arguments.json)


# ---- saying


def line(operation: Operation) -> str:
    """An operation on one line."""
    intent, counts = operation.intent, operation.counts
    parts = [f"{counts[end]:,} {end}" for end in RowResult if counts.get(end)]
    if operation.open:
        parts.append(f"{operation.open:,} open")
    cells = [
        at(operation.when),
        operation.op,
        intent.who.name,
        name_of(operation),
        ", ".join(parts) or ("nothing" if intent.verb != controls.VERB else view.what(operation)),
        standing(operation),
        *([f"undoes {intent.undoes}"] if intent.undoes else []),
        *([f"filter {intent.filter}"] if intent.filter else []),
        *([f"reason {intent.reason}"] if intent.reason else []),
    ]
    return " | ".join(shown(cell) for cell in cells)


def standing(operation: Operation) -> str:
    """Whether it is over."""
    if operation.running:
        return "running"
    return "interrupted" if operation.interrupted else "over"


def as_json(operation: Operation) -> dict[str, Any]:
    """An operation by the names of its fields; times in epoch seconds UTC."""
    intent = operation.intent
    return {
        "op": operation.op,
        "when": operation.when,
        "ended": operation.ended,
        "standing": standing(operation),
        "verb": intent.verb,
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
        "open": operation.open,
        "kept": operation.kept,
        "notes": [dict(note) for note in operation.notes],
        "damaged": operation.damaged,
    }


def _entry(entry: Entry) -> dict[str, Any]:
    row, ended = entry
    return {
        "id": row.id,
        "state": str(row.state),
        "rev": row.rev,
        "outcome": None if ended is None else str(ended.end),
        "words": "" if ended is None else ended.words,
    }


def _in_full(setup: Setup, kept: Journal, operation: Operation) -> None:
    who = operation.intent.who
    facts = {
        "scope": operation.intent.scope,
        "answer": controls.outcome(operation) or "",
        "by": f"{who.user} on {who.host}, PID {who.pid}",
        "sudo": who.sudo,
        "from": who.ssh,
        "follows": operation.intent.follows,
        "damaged": f"{operation.damaged} lines" if operation.damaged else "",
    }
    for name, words in facts.items():
        if words:
            print(f"  {name:8}{shown(words)}")
    for row, ended in kept.entries(operation.op):
        words = "open" if ended is None else f"{ended.end} {ended.words}".rstrip()
        print(f"  {shown(row.id)}  {row.state}  {shown(words)}")
    if operation.interrupted and operation.open:
        amount = str(operation.open)
        whole = [*plan_command.base(setup), "journal", operation.op]
        print(f"go on:   {plan_command.typed([*whole, '--go-on', '--apply', amount])}")
        print(f"or drop: {plan_command.typed([*whole, '--drop'])}")


def _list_back(setup: Setup, kept: Journal, arguments: Namespace) -> int:
    """What can be taken back: safe, not over for too long, with something done that was not taken
    back yet."""
    now = time.time()
    lately = kept.operations(now - setup.config.trash.hours * 3600)
    operations = _settled(setup, kept, lately)
    for operation, back, _ in view.listed(operations):
        verb, done = VERBS.get(operation.intent.verb), operation.counts.get(RowResult.DONE, 0)
        can_be = verb is not None and verb.safe and done > back
        if can_be and not operation.running:
            if arguments.json:
                print(task_row.json_line({**as_json(operation), "taken_back": back}), end="")
                continue
            print(line(operation) + (f" | {back:,} of {done:,} taken back" if back else ""))
            words = [*plan_command.base(setup), "undo", operation.op, "--dry-run"]
            print(f"    {plan_command.typed(words)}")
    return DONE
