"""`queue dlq`: list, show, retry and delete dead tasks, with the contract's output."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import closing, suppress

from engine.formats.base.format import Setup
from engine.formats.nftban.queue_folders import make_queue, open_spool
from engine.formats.nftban.store import NftbanStore
from engine.model import Problem, State, Task
from engine.operations import plans, run_plan
from engine.operations.execute import Report
from engine.operations.journal import Intent
from engine.operations.plans import Plan
from engine.policy import DAY_SECONDS
from engine.store import Gone, Unavailable
from engine.system.command_errors import EX_USAGE, fail, print_error
from engine.text.durations import duration_hint, parse_duration
from engine.text.safe import safe_line, safe_lines
from tui.cli.setup.output import Answer, Progress, note_if_empty, show_progress
from tui.text.task_row import task_row

MAX_DAYS = 999_999
"""Upper limit of DAYS."""

JOURNAL_SCOPE = "queue dlq, the contract's command"
"""Scope of these commands in the journal."""

SHOWN_ERROR_CHARS = 50
"""Characters of an error in the list, as the contract's own command shows it."""


def list_dead(setup: Setup) -> Answer:
    """Print one line for each dead task, in the form of the contract's own command."""
    make_queue(setup)
    with closing(open_spool(setup, "queue list --state DEAD")) as store:
        dead, word = note_if_empty(_dead(store), "dead tasks"), store.states[State.DEAD]
    return Answer(lambda: (task_row(task, word) for task in dead), lambda: map(_line, dead))


def _dead(store: NftbanStore) -> list[Task]:
    dead = []
    for scanned in show_progress(store.scan({store.states[State.DEAD]}), "tasks read"):
        if isinstance(scanned, Task):
            dead.append(scanned)
        elif isinstance(scanned, Problem):
            print_error(f"{safe_line(scanned.where)}: {safe_line(scanned.what)}")
    return dead


def _line(task: Task) -> str:
    created, died = _local(task.created or None), _local(task.extra.get("dead_since"))
    return (
        f"{task.id} | {task.kind} | {safe_line(task.description)} | Created: {created}"
        f" | DLQ: {died} | Error: {safe_line(task.error[:SHOWN_ERROR_CHARS])}"
    )


def _local(moment: float | str | None) -> str:
    if moment is None:
        return "unknown"
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(float(moment)))


def show(setup: Setup, id: str) -> Answer | int:
    """Print the file of one dead task, line by line; as JSON with its row."""
    with (
        closing(open_spool(setup, "queue list --json --filter id=ID")) as store,
        suppress(Gone),  # moved between scan and read: reported as not found
    ):
        tasks = (task for task in store.scan({id}) if isinstance(task, Task))
        if task := next((task for task in tasks if task.state is State.DEAD), None):
            lines, row = (
                list(safe_lines(store.read(task))),
                task_row(task, store.states[task.state]),
            )
            return Answer(lambda: {**row, "lines": lines}, lambda: lines)
    print_error(f"Task not found in DLQ: {safe_line(id)}")
    return 1


def retry(setup: Setup, ids: list[str]) -> Answer:
    """Move dead tasks to pending; exit 1 if one was not found or not moved."""
    setup.require_writable()
    ids = list(dict.fromkeys(ids))
    with closing(open_spool(setup, "replay --filter id=ID --dry-run")) as store:
        tasks = [task for task in store.scan(ids) if isinstance(task, Task)]
        dead_tasks = {task.id: task for task in tasks if task.state is State.DEAD}
        missing = [ident for ident in ids if ident not in dead_tasks]
        for ident in missing:
            # The contract's text, which callers search for.
            print(f"Task not found in DLQ: {safe_line(ident)}", file=sys.stderr)
        return _retry(setup, store, dead_tasks.values(), missing)


def acted_row(
    verb: str,
    done: Iterable[str],
    gone: Iterable[str] = (),
    failed: Iterable[tuple[str, str]] = (),
    *,
    is_dry_run: bool = False,
) -> dict[str, object]:
    """What an action did, or with `is_dry_run` would do, to each task, for JSON: ids that are done,
    ids that were missing or had changed, and the reason for each failed one."""
    outcomes = {"done": list(done), "gone": list(gone), "failed": dict(failed)}
    return {"verb": verb, "dry_run": is_dry_run, **outcomes}


def _retry(
    setup: Setup, store: NftbanStore, tasks: Iterable[Task], missing: Sequence[str] = ()
) -> Answer:
    """Retry tasks; exit 1 if one was not moved, or is missing."""
    plan = plans.freeze_plan("retry", tasks, time.time())
    report = run_with_journal(setup, store, plan, JOURNAL_SCOPE)
    for ident in report.done:
        setup.log_if_allowed("INFO", f"DLQ task retried: {ident}")
    for ident in report.gone:
        print_error(f"{ident}: skipped: changed since the scan")
    for ident, reason in report.failed:
        print_error(f"{ident}: {reason}")
    return Answer(
        lambda: acted_row("retry", report.done, [*missing, *report.gone], report.failed),
        lambda: (f"Task {ident} moved from DLQ to pending queue" for ident in report.done),
        int(bool(missing or report.gone or report.failed)),
    )


def run_with_journal(setup: Setup, store: NftbanStore, plan: Plan, scope: str) -> Report:
    """Run a plan, with a journal if it can be written: the contract has no journal."""
    if not plan.rows:
        return Report(plan, (), (), ())
    intent = Intent(plan.verb, setup.current_user(), scope=scope)
    try:
        with Progress(f"of {plan.amount:,} tasks") as progress:
            report = run_plan.run_journaled_plan(
                store,
                setup.journal(),
                plan,
                intent,
                time.time,
                report_counts=lambda counts: progress.show(sum(counts.values())),
            )
    except Unavailable as error:
        print_error(f"{safe_line(str(error))}; continued without the journal")
        return run_plan.run_journaled_plan(store, None, plan, None, time.time)
    if not report.trouble:
        return report
    print_error(f"{safe_line(report.trouble)}; continued without the journal")
    failed = dict(report.failed)
    failed_plan = plan._replace(rows=tuple(row for row in plan.included if row.id in failed))
    again = run_plan.run_journaled_plan(store, None, failed_plan, None, time.time)
    return again._replace(done=(*report.done, *again.done), gone=(*report.gone, *again.gone))


def retry_all(setup: Setup, *, dry_run: bool) -> Answer:
    """Move all dead tasks to pending."""
    if not dry_run:
        setup.require_writable()
    with closing(open_spool(setup, "replay --state DEAD --dry-run")) as store:
        dead = _dead(store)
        if dry_run:
            return _planned("retry", "retry", dead, "would move from DLQ to pending queue")
        return _retry(setup, store, dead)


def _planned(verb: str, word: str, tasks: Sequence[Task], end: str) -> Answer:
    """What a dry run would do to each task."""
    return Answer(
        lambda: acted_row(verb, [task.id for task in tasks], is_dry_run=True),
        lambda: [
            *(f"would {word} {_line(task)}" for task in tasks),
            f"{len(tasks)} {end}; nothing was changed",
        ],
    )


def _days(text: str) -> float:
    try:
        days = parse_duration(text) / DAY_SECONDS if text[-1:].isalpha() else float(text)
    except ValueError:
        days = -1
    if not 0 <= days <= MAX_DAYS:
        expected = f"{duration_hint('d')} from 0 to {MAX_DAYS}"
        fail(EX_USAGE, f"expected {expected}, not {safe_line(text[:40])!r}")
    return days


def expunge(setup: Setup, days: str | None, *, dry_run: bool) -> Answer:
    """Delete tasks that died more than so many days ago (contract: `dlq purge`)."""
    limit = setup.queue.retention_days if days is None else _days(days)
    if not dry_run:
        setup.require_writable()
    now = time.time()
    with closing(open_spool(setup, "expunge --state DEAD --dry-run")) as store:
        expired = list(store.find_expired(lambda died: now - died, limit))
        if dry_run:
            end = "would be deleted permanently"
            return _planned("expunge", "delete permanently", expired, end)
        plan = plans.freeze_plan("expunge", expired, now)._replace(includes_suspicious=True)
        report = run_with_journal(setup, store, plan, JOURNAL_SCOPE)
    purged = len(report.done)
    for ident in report.gone:
        print_error(f"{ident}: not deleted: changed since the scan")
    for ident, reason in report.failed:
        print_error(f"{ident}: not deleted: {safe_line(reason)}")
    setup.log_if_allowed("INFO", f"Purged {purged} DLQ tasks older than {limit:g} days")
    return Answer(
        lambda: acted_row("expunge", report.done, report.gone, report.failed),
        lambda: [f"Purged {purged} tasks from DLQ"],
        0 if purged == len(expired) else 1,
    )
