"""A plan carried out and written down: what the console and the command line have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from engine import operations
from engine.journal import Intent, Journal
from engine.operations import Allowed, End, Report, freely
from engine.plans import Plan
from engine.store import Store, Unavailable
from engine.verbs import VERBS


def carry_out(
    store: Store,
    journal: Journal | None,
    plan: Plan,
    intent: Intent | None,
    clock: Callable[[], float],
    *,
    told: Callable[[Mapping[End, int]], None] = lambda counts: None,
    halted: Callable[[], bool] = lambda: False,
    allowed: Allowed = freely,
) -> Report:
    """Write the intent down, carry the plan out, write down what became of each row.

    What cannot be taken back is done even where nothing can be written down, and the report says
    so: a full disk may be the reason why it is done. Without a journal or an intent nothing is
    written down.

    Raises:
        Unavailable: the intent cannot be written down, or what a task was cannot be read; nothing
            was done.
    """
    images = journal.images(plan.undoes) if journal is not None and plan.undoes else None
    pen, trouble = None, ""
    if journal is not None and intent is not None:
        try:
            pen = journal.begin(intent, plan)
        except Unavailable as error:
            if VERBS[plan.verb].safe:
                raise
            trouble = str(error)
    try:
        report = operations.apply(
            store, plan, clock, pen, told=told, halted=halted, allowed=allowed, images=images
        )
    finally:
        if pen is not None:
            pen.close()
    return report._replace(trouble=report.trouble or trouble)
