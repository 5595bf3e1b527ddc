"""Apply a plan and write it to the journal: shared by the console and the command line."""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping

from engine.operations import execute
from engine.operations.execute import PlanRun, RefusalCheck, Report, always_allowed
from engine.operations.journal import Intent, Journal
from engine.operations.plans import Plan, RowResult
from engine.operations.trash import TrashQuota
from engine.store import ChangeableStore, Unavailable
from engine.verbs import VERBS


def run_journaled_plan(
    store: ChangeableStore,
    journal: Journal | None,
    plan: Plan,
    intent: Intent | None,
    clock: Callable[[], float],
    *,
    report_counts: Callable[[Mapping[RowResult, int]], None] = lambda counts: None,
    halted: Callable[[], bool] = lambda: False,
    allowed: RefusalCheck = always_allowed,
    quota: int | None = None,
) -> Report:
    """Write the intent to the journal, apply the plan, and write down the outcome of each row;
    blocks until all is durable.

    `report_counts` gets the counts after each batch; once `halted` returns True, the remaining rows
    stay unapplied. If the store becomes unavailable, they fail with that reason. A verb that cannot
    be undone is applied even if the journal cannot be written, and the report contains the error: a
    full disk may be the reason for the operation. Without a journal or an intent, nothing is
    written. The trash takes at most `quota` bytes; None: no limit.

    Raises:
        Unavailable: the intent cannot be written, or saved images cannot be read; nothing was done.
    """
    images = saved_images(journal, plan.undoes) if journal is not None and plan.undoes else None
    writer, trouble = None, ""
    if journal is not None and intent is not None:
        what, values = plan.filter or intent.filter, plan.values
        intent = intent._replace(verb=plan.verb, filter=what, undoes=plan.undoes, values=values)
        try:
            writer = journal.begin(intent, plan)
        except Unavailable as error:
            if VERBS[plan.verb].is_undoable:
                raise Unavailable(f"nothing was done: {error}{_disk_full_advice(error)}") from error
            trouble = str(error)
    try:
        fits = TrashQuota(store, quota)
        run = PlanRun(store, plan, clock, writer, allowed=allowed, images=images, fits=fits)
        why = ""
        while not run.trouble and (batch := run.next_rows(execute.JOURNAL_BATCH_ROWS)):
            if halted():
                why = "stopped by the operator"
                break
            run.step(batch)
            report_counts(run.counts)
        report = run.finish(run.trouble or why)
    finally:
        if writer is not None:
            writer.close()
    return report._replace(trouble=report.trouble or trouble)


def _disk_full_advice(error: Unavailable) -> str:
    cause = error.__cause__
    full = isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EDQUOT)
    return "; expunge (permanent) works without the journal and frees space" if full else ""


def failed_report(plan: Plan, why: str) -> Report:
    """A report for a plan that was not applied at all: every included row failed for one reason."""
    failed = tuple((row.id, why) for row in plan.included)
    excluded = tuple((row.id, out) for row, out in plan.excluded)
    return Report(plan, (), (), failed=failed, excluded=excluded, trouble=why)


def saved_images(journal: Journal, op: str) -> Mapping[str, bytes] | None:
    """The saved images of an operation, by task id; None if its verb does not change content.

    Raises:
        Unavailable: the images cannot be read, or the journal has no such operation."""
    operation = journal.operation(op)
    verb = operation and VERBS.get(operation.intent.verb)
    if verb is None:
        raise Unavailable(f"the journal has no operation {op}")
    return None if verb.keeps_bytes else journal.images(op)
