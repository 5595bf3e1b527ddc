"""`bullmq schedulers`: list the schedules of queues; run one now, remove or edit it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from itertools import islice

from engine.formats.base.format import Setup
from engine.formats.bullmq.schedule_acts import COMMAND, ScheduleActs
from engine.places.schedules import (
    EDIT,
    RULE_FIELDS,
    SCHEDULE_VERBS,
    Schedule,
    change_options,
)
from engine.store import Gone, Unsupported
from engine.system.command_errors import EX_USAGE, fail, print_error
from engine.text.safe import safe_line
from tui.cli.formats.bullmq.worker import FORMAT
from tui.cli.plans import plan_command, schedules
from tui.cli.setup.output import Answer, columns, print_answer
from tui.operations import schedule_lines as view
from tui.text.lines import Line

TABLE_ROWS = 500
"""Rows that are laid out together."""


def schedulers(
    setup: Setup,
    words: list[str],
    *,
    root: str,
    queues: list[str],
    pattern: str,
    every: str,
    tz: str,
    runs: str,
    end: str,
    reason: str,
    dry_run: bool,
    apply: int,
    json: bool,
) -> Answer | int:
    """List schedules, exit 1 if one is stopped or broken; or preview or apply an act."""
    typed = dict(zip(RULE_FIELDS, (pattern, every, tz, runs, end), strict=True))
    changes = {name: value for name, value in typed.items() if value}
    if words and words[0] in SCHEDULE_VERBS:
        verb, *rest = words
        if not 1 <= len(rest) <= 2 or queues:
            fail(EX_USAGE, f"expected {verb} QUEUE/KEY, then optionally a PLACE")
        if bool(changes) is not (verb == EDIT):
            options = ", ".join(f"--{name}" for name in RULE_FIELDS)
            fail(EX_USAGE, f"{options}: expected with edit, which needs one of them")
        plan_command.require_one(dry_run, apply)
        setup = _place(setup, root, rest[1:])
        return _act(setup, verb, rest[0], changes, reason=reason, count=apply)
    if len(words) > 1 or changes or apply or reason or dry_run:
        verbs = ", ".join(SCHEDULE_VERBS)
        fail(EX_USAGE, f"expected {verbs} and a QUEUE/KEY, or only a PLACE")
    return _list(_place(setup, root, words), queues, as_json=json)


def _place(setup: Setup, root: str, names: Sequence[str]) -> Setup:
    setup = plan_command.setup_at(setup, root, names)
    setup.require_format(FORMAT, "a server of BullMQ queues")
    return setup


def _list(setup: Setup, queues: Sequence[str], *, as_json: bool) -> int:
    """Print each schedule as soon as it is read; 100,000 of a queue at most."""
    problems, now = list[str](), time.time()

    def report(problem: str) -> None:
        problems.append(problem)
        print_error(problem)

    def rows() -> Iterator[Schedule]:
        for one in ScheduleActs(setup).read_all(queues, report):
            if one.problem:
                problems.append(one.id)
            yield one

    def lines() -> Iterator[Line | str]:
        found, width, has_titles = rows(), columns(120), False
        while page := list(islice(found, TABLE_ROWS)):
            titles, table = view.schedule_table(now).lines(page, width)
            yield from table if has_titles else [titles, *table]
            has_titles = True
            yield from (f"  {safe_line(one.id)}: {one.problem}" for one in page if one.problem)
        if not has_titles and not problems:
            yield view.NO_SCHEDULES

    try:
        print_answer(Answer(lambda: map(view.json_row, rows()), lines), as_json=as_json)
    except Unsupported as error:
        fail(EX_USAGE, str(error))
    return int(bool(problems))


def _act(
    setup: Setup, verb: str, ident: str, changes: dict[str, str], *, reason: str, count: int
) -> Answer:
    acts = ScheduleActs(setup)
    try:
        seen = acts.find(ident)
    except Gone as error:
        fail(plan_command.NOT_ALL_DONE, str(error))
    return schedules.plan_or_apply(
        setup,
        verb,
        [*COMMAND, verb, seen.id, *change_options(changes)],
        seen.id,
        plan=lambda: acts.plan(verb, seen, changes),
        act=lambda: acts.change(verb, seen, changes, reason),
        reason=reason,
        count=count,
    )
