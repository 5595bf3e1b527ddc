"""Plan and apply an act on one schedule: the common part of its command and of `undo`."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence

from engine.formats.base.format import Setup
from engine.operations.controls import ControlResult
from engine.operations.journal import Operation
from engine.store import StoreError, Unavailable, Unsupported
from engine.system.command_errors import fail, print_error
from engine.text.safe import safe_line
from tui.cli.plans import plan_command
from tui.cli.setup.output import Answer, columns
from tui.text.lines import fact_lines


def plan_or_apply(
    setup: Setup,
    verb: str,
    words: Sequence[str],
    ident: str,
    *,
    plan: Callable[[], Sequence[tuple[str, str]]],
    act: Callable[[], ControlResult],
    reason: str,
    count: int,
) -> Answer:
    """Show the plan of an act on the schedule `ident` (count 0), or apply it (count 1). `words` are
    the rest of the command after the place. The JSON has the fields of a plan of tasks."""
    command = [*setup.command_words, *words]
    try:
        rows = plan()
        if not count:
            command += ["--reason", reason] if reason else []
            to_apply = safe_line(shlex.join([*command, "--apply", "1"]))
            return Answer(
                lambda: _planned(verb, ident, rows, to_apply),
                lambda: [
                    *fact_lines(rows, columns()),
                    f"nothing was changed; to apply: {to_apply}",
                ],
            )
        if count != 1:
            fail(plan_command.NOT_ALL_DONE, f"1 schedule, not {count:,}; nothing was changed")
        plan_command.require_reason(setup, reason)
        done = act()
    except Unavailable:
        raise
    except StoreError as refusal:
        text = f"{safe_line(str(refusal))}; nothing was changed"
        fail(plan_command.NOT_ALL_DONE, text)
    if done.trouble:
        print_error(done.trouble)
    undo = safe_line(shlex.join([*setup.command_words, "undo", done.op, "--dry-run"]))
    return Answer(
        lambda: _applied(verb, ident, done),
        lambda: [safe_line(done.answer), f"undo: {undo}"],
    )


_NO_ROWS = ("excluded", "failed", "new_ids", "notes", "unapplied")


def _planned(
    verb: str, ident: str, rows: Sequence[tuple[str, str]], command: str
) -> dict[str, object]:
    unknown = dict.fromkeys(("refused", "bytes", "oldest", "oldest_at", "newest", "newest_at"))
    counts = {"planned": 1, "acted_on": 1, "measured": 0}
    texts = {
        "verb": verb,
        "filter": "",
        "scope": ident,
        "undoes": None,
        "undo": "",
        "twin": command,
    }
    more = {"warnings": (), "rows": (), "facts": dict(rows), "exact": True}
    return {**texts, **counts, **unknown, **more}


def _applied(verb: str, ident: str, done: ControlResult) -> dict[str, object]:
    nothing: dict[str, object] = {name: {} for name in _NO_ROWS}
    result = {"verb": verb, "op": done.op or None, "planned": 1, "done": [ident], "gone": []}
    return {**result, **nothing, "exact": True, "trouble": done.trouble, "answer": done.answer}


def undo(setup: Setup, operation: Operation, reason: str, count: int) -> Answer:
    """Show the undo of a change of a schedule, or apply it."""
    schedules = setup.format.schedules(setup)
    if schedules is None:
        raise Unsupported(f"{operation.op}: this place has no schedules")
    return plan_or_apply(
        setup,
        "undo",
        ["undo", operation.op],
        str(operation.intent.values.get("target", "")),
        plan=lambda: schedules.plan_undo(operation),
        act=lambda: schedules.undo(operation, reason),
        reason=reason,
        count=count,
    )
