"""From a key to a plan on screen: the one way, whichever screen the key was pressed on."""

from __future__ import annotations

import shlex
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
from tui.views.plan import Tally
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


NAMED = 4
"""Tasks that a command names one by one; more are named by a filter, or the console does it."""

TWINS = {"retry": "replay", "undo": "undo", "edit": ""}
"""What a verb is called on the command line, where that is not its own name; "" where it has none
that takes these words."""


def twin(about: Tally, live: Live, reason: str, pace: Pace | None = None) -> str:
    """The command that does the same to as many tasks; "" where it would be a page long."""
    plan, states = about.plan, about.states
    word = TWINS.get(plan.verb, plan.verb)
    if plan.left_out or not word or (len(states) != 1 and not plan.undoes):
        return ""
    words = [*live.place.command, word]
    if plan.undoes:
        words.append(plan.undoes)
    else:
        words += ["--state", live.inspector.states.get(next(iter(states)), "")]
        if plan.filter:
            words += ["--filter", plan.filter]
        elif len(plan.rows) <= NAMED:
            words += [piece for row in plan.rows for piece in ("--id", row.id)]
        elif len(plan.rows) != live.inspector.latest.counts.get(next(iter(states))):
            return ""
    if len(about.taken_in) > NAMED:
        return ""
    words += ["--take-in", *about.taken_in] if about.taken_in else []
    words += ["--reason", reason] if reason else []
    words += pace_words(pace) if can_be_paced(plan) else []
    return shlex.join([*words, "--apply", str(about.amount)])


def pace_words(pace: Pace | None) -> list[str]:
    """A pace as the command line takes it, as far as it is not the usual one."""
    if pace is None:
        return ["--rate", "now"]
    usual, stops = Pace(), pace.stops
    words: list[str] = []
    if pace.rate != usual.rate:
        words += ["--rate", "now" if pace.rate is None else f"{pace.rate:g}"]
    if pace.canary != usual.canary:
        words += ["--canary", ",".join(map(str, pace.canary))]
    if stops.same != usual.stops.same and stops.same is not None:
        words += ["--stop-same", str(stops.same)]
    if stops[1:3] != usual.stops[1:3] and stops.share is not None:
        words += ["--stop-share", f"{100 * stops.share:g}/{stops.last}"]
    if stops.pending is not None:
        words += ["--stop-pending", str(stops.pending)]
    return words + (["--rest", str(stops.rest)] if stops.rest is not usual.stops.rest else [])


def pace_for(plan: Plan) -> Pace | None:
    """How a plan is carried out unless the operator changes it; None: at once.

    A few tasks that were picked one by one need no canary: there are no more than it would take.
    """
    usual = Pace()
    return usual if can_be_paced(plan) and len(plan.rows) > sum(usual.canary) else None


def can_be_paced(plan: Plan) -> bool:
    """Whether a plan may be carried out at a pace."""
    return plan.verb == "retry" and len(plan.rows) > 1


def why_not_now(live: Live, states: Collection[State]) -> str:
    """Why nothing may be done to tasks in these states at this moment, as far as is seen."""
    return not_abandoned(live.signs.lock) if State.ACTIVE in states else ""


def guard(live: Live, plan: Plan) -> Allowed:
    """The same, looked at anew each time it is asked; it blocks."""
    if all(row.state is not State.ACTIVE for row in plan.rows):
        return lambda: ""
    place = live.place
    return lambda: not_abandoned(lock_of(place), place.lingering)


def facts(live: Live, plan: Plan, pace: Pace | None, amount: int) -> list[Run]:
    """What else there is to know before a plan is applied."""
    if not can_be_paced(plan):
        return []
    if pace is None:
        return [("pace", "at once, and not looked after; p: a rate, canaries, rules to stop")]
    told = runs.forecast(amount, pace, working(live.signs.lock, live.events()))
    return [("pace", "; ".join(told.sentences))]
