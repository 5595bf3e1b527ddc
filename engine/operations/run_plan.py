"""A plan carried out and written down: what the console and the command line have in common."""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping

from engine.operations import execute
from engine.operations.execute import Allowed, Report, RowResult, any_room, freely
from engine.operations.journal import Intent, Journal
from engine.operations.plans import Plan
from engine.operations.trash import Room
from engine.store import Store, Unavailable
from engine.verbs import VERBS


def carry_out(
    store: Store,
    journal: Journal | None,
    plan: Plan,
    intent: Intent | None,
    clock: Callable[[], float],
    *,
    told: Callable[[Mapping[RowResult, int]], None] = lambda counts: None,
    halted: Callable[[], bool] = lambda: False,
    allowed: Allowed = freely,
    quota: int | None = None,
) -> Report:
    """Write the intent down, carry the plan out, write down what became of each row.

    What cannot be taken back is done even where nothing can be written down, and the report says
    so: a full disk may be the reason why it is done. Without a journal or an intent nothing is
    written down. The trash takes no more than `quota` bytes; None: there is no limit.

    Raises:
        Unavailable: the intent cannot be written down, or what a task was cannot be read; nothing
            was done.
    """
    images = kept(journal, plan.undoes) if journal is not None and plan.undoes else None
    pen, trouble = None, ""
    if journal is not None and intent is not None:
        said = intent._replace(
            verb=plan.verb,
            filter=plan.filter or intent.filter,
            undoes=plan.undoes,
            values=plan.values,
        )
        try:
            pen = journal.begin(said, plan)
        except Unavailable as error:
            if VERBS[plan.verb].safe:
                raise Unavailable(f"nothing was done: {error}{_instead(error)}") from error
            trouble = str(error)
    try:
        report = execute.apply(
            store,
            plan,
            clock,
            pen,
            told=told,
            halted=halted,
            allowed=allowed,
            images=images,
            fits=any_room if quota is None else Room(store, quota),
        )
    finally:
        if pen is not None:
            pen.close()
    return report._replace(trouble=report.trouble or trouble)


def _instead(error: Unavailable) -> str:
    """What can be done all the same where there is no room to write an intent down."""
    cause = error.__cause__
    full = isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EDQUOT)
    return "; expunge, which is for good, makes room without it" if full else ""


def not_done(plan: Plan, why: str) -> Report:
    """Every row accounted for of a plan that was not carried out at all."""
    failed = tuple((row.id, why) for row in plan.included)
    return Report(plan, (), (), failed, tuple((row.id, out) for row, out in plan.excluded), why)


def kept(journal: Journal, op: str) -> Mapping[str, bytes] | None:
    """What the tasks of an operation were before it; None where its verb left them as they were.

    Raises:
        Unavailable: that cannot be read, or the journal knows no such operation.
    """
    operation = journal.operation(op)
    verb = operation and VERBS.get(operation.intent.verb)
    if verb is None:
        raise Unavailable(f"the journal does not know what {op} was")
    return None if verb.keeps else journal.images(op)
