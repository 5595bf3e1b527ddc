"""From a key to a plan on screen: the one way, whichever screen the key was pressed on."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

from engine import runs
from engine.index import Query
from engine.model import State
from engine.operations import Allowed
from engine.pace import Pace
from engine.plans import LOCKED, NO_VALUES, Plan
from engine.verbs import VERBS
from tui.exam import not_abandoned
from tui.live import Live
from tui.present import Run
from tui.watch import lock_of
from tui.works import working

INSTEAD: Mapping[tuple[str, State | None], str] = {
    ("retry", State.TRASH): "restore",
    ("release", State.TRASH): "restore",
    ("purge", State.TRASH): "expunge",
}
"""What a key means in a state where its own verb means nothing."""


class Asked(NamedTuple):
    """What a verb is asked for."""

    verb: str
    """A key of `engine.verbs.VERBS`."""
    ids: Collection[str] | None
    """None: all that match."""
    query: Query
    words: Callable[[int], str]
    """What that is, in words, once it is known how many they are."""
    values: Mapping[str, Any] = NO_VALUES


def meant(verb: str, state: State | None) -> str:
    """The verb that a key stands for in a state."""
    return INSTEAD.get((verb, state), verb)


def picked(plan: Plan) -> Plan:
    """One task that was picked by hand is meant, odd or not; but for one that somebody works on."""
    odd = {row.odd for row in plan.rows}
    if len(plan.rows) != 1 or plan.verb in ("undo", "restore") or LOCKED in odd:
        return plan
    return plan._replace(taken_in=frozenset(row.id for row in plan.rows))


def warnings(live: Live, plan: Plan, asked: Asked) -> tuple[str, ...]:
    """What to think of before a plan takes everything away, and what could be done instead."""
    if not VERBS[plan.verb].careful or asked.ids is not None or plan.filter:
        return ()
    states = {row.state for row in plan.rows}
    words = " and ".join(live.inspector.states.get(state, state) for state in states)
    everything = sum(live.inspector.latest.counts.values())
    share = 100 * len(plan.rows) // max(1, everything)
    return (
        f"this is all of {words}, no filter is set: {share} % of all tasks here",
        "what comes from now on is not in it; nor is what is in work",
        "instead: H parks them until somebody releases them; / picks some; c shows them by error",
    )


def pace_for(plan: Plan) -> Pace | None:
    """How a plan is carried out unless the operator changes it; None: at once.

    A few tasks that were picked one by one need no canary: there are no more than it would take.
    """
    usual = Pace()
    return usual if can_be_paced(plan) and len(plan.rows) > sum(usual.canary) else None


def can_be_paced(plan: Plan) -> bool:
    """Whether a plan may be carried out at a pace."""
    return plan.verb == "retry" and len(plan.rows) > 1


def why_not_now(live: Live, plan: Plan) -> str:
    """Why nothing of a plan may be done at this moment, as far as is seen; "" when it may."""
    if not _of_work(plan):
        return ""
    return not_abandoned(live.signs.lock)


def guard(live: Live, plan: Plan) -> Allowed:
    """The same, looked at anew each time it is asked; it blocks."""
    if not _of_work(plan):
        return lambda: ""
    return lambda: not_abandoned(lock_of(live.place))


def _of_work(plan: Plan) -> bool:
    return any(row.state is State.ACTIVE for row in plan.rows)


def facts(live: Live, plan: Plan, pace: Pace | None, amount: int) -> list[Run]:
    """What else there is to know before a plan is applied."""
    if not can_be_paced(plan):
        return []
    if pace is None:
        return [("pace", "at once, and not looked after; p: a rate, canaries, rules to stop")]
    told = runs.forecast(amount, pace, working(live.signs.lock, live.events()))
    return [("pace", "; ".join(told.sentences))]
