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
    words: Sequence[str],
    plan: Callable[[], Sequence[tuple[str, str]]],
    act: Callable[[], ControlResult],
    *,
    reason: str,
    count: int,
) -> Answer:
    """Show the plan of an act on one schedule, or apply it if the count is 1; `words` are those of
    the command after the place."""
    command = [*setup.command_words, *words]
    try:
        rows = plan()
        if not count:
            command += ["--reason", reason] if reason else []
            to_apply = safe_line(shlex.join([*command, "--apply", "1"]))
            return Answer(
                lambda: {"facts": dict(rows), "count": 1, "command": to_apply},
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
        lambda: {"done": done.answer, "op": done.op or None},
        lambda: [safe_line(done.answer), f"undo: {undo}"],
    )


def undo(setup: Setup, operation: Operation, reason: str, count: int) -> Answer:
    """Show the undo of a change of a schedule, or apply it."""
    schedules = setup.format.schedules(setup)
    if schedules is None:
        raise Unsupported(f"{operation.op}: this place has no schedules")
    return plan_or_apply(
        setup,
        ["undo", operation.op],
        lambda: schedules.plan_undo(operation),
        lambda: schedules.undo(operation, reason),
        reason=reason,
        count=count,
    )
