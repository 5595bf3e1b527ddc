"""From a key to a plan on screen: the one way, whichever screen the key was pressed on."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

from engine.index.schema import Query
from engine.model import State, words_of
from engine.operations.execute import Allowed
from engine.operations.plans import LOCKED, NO_VALUES, Plan
from engine.replay import estimate
from engine.replay.settings import ReplayPace
from engine.verbs import VERBS
from tui.format.present import Run
from tui.plan.lines import PlanCounts, everything
from tui.session.place_session import PlaceSession
from tui.session.place_watcher import lock_of, not_abandoned
from tui.session.running_operations import working

INSTEAD: Mapping[tuple[str, State | None], str] = {
    ("retry", State.TRASH): "restore",
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


def warnings(live: PlaceSession, plan: Plan, asked: Asked) -> tuple[str, ...]:
    """What to think of before a plan takes everything away, and what could be done instead."""
    if not VERBS[plan.verb].careful or asked.ids is not None or plan.filter:
        return ()
    states = {row.state for row in plan.rows}
    words = " and ".join(live.inspector.states.get(state, state) for state in states)
    return everything(words, len(plan.rows), sum(live.inspector.latest.counts.values()))


NAMED = 4
"""Tasks that a command names one by one; more are named by a filter, or the console does it."""

TWINS = {"retry": "replay", "undo": "undo", "edit": ""}
"""What a verb is called on the command line, where that is not its own name; "" where it has none
that takes these words."""


def twin(
    about: PlanCounts,
    live: PlaceSession,
    reason: str,
    pace: ReplayPace | None = None,
    follows: str = "",
) -> str:
    """The command that does the same to as many tasks; "" where it would be a page long.

    `follows` is an operation that is gone on with.
    """
    if follows:
        words = [*live.place.command, "journal", follows, "--go-on", "--apply", str(about.amount)]
        return shlex.join(words)
    plan, states = about.plan, about.states
    word = TWINS.get(plan.verb, plan.verb)
    if plan.left_out or not word or not about.amount:
        return ""
    if len(states) != 1 and not plan.undoes:
        return ""
    words = [*live.place.command, word]
    if plan.undoes:
        words.append(plan.undoes)
    else:
        known = live.inspector
        words += ["--state", ",".join(words_of(next(iter(states)), known.states, known.words))]
        if plan.filter:
            words += ["--filter", plan.filter]
        elif len(plan.rows) <= NAMED:
            words += [piece for row in plan.rows for piece in ("--id", row.id)]
        elif len(plan.rows) != live.inspector.latest.counts.get(next(iter(states))):
            return ""
    if len(about.taken_in) > NAMED:
        return ""
    words += [word for ident in about.taken_in for word in ("--take-in", ident)]
    words += ["--reason", reason] if reason else []
    if can_be_paced(plan):
        paced = pace_words(pace)
        if paced is None:
            return ""
        words += paced
    return shlex.join([*words, "--apply", str(about.amount)])


def pace_words(pace: ReplayPace | None) -> list[str] | None:
    """A pace as the command line takes it, as far as it is not the usual one; None where it cannot
    be said there."""
    if pace is None:
        return ["--rate", "now"]
    if pace.rate is None:
        return None  # there, all at once means without canaries
    usual, stops = ReplayPace(), pace.stops
    share = "none" if stops.share is None else f"{100 * stops.share:g}/{stops.last}"
    canary = ",".join(str(size) for size in pace.canary if size) or "none"
    said = (
        ("--rate", f"{pace.rate:g}", pace.rate == usual.rate),
        ("--canary", canary, pace.canary == usual.canary),
        ("--stop-same", str(stops.same or 0), stops.same == usual.stops.same),
        ("--stop-share", share, stops[1:3] == usual.stops[1:3]),
        ("--stop-pending", str(stops.pending), stops.pending is None),
        ("--rest", str(stops.rest), stops.rest is usual.stops.rest),
        ("--timeout", f"{pace.timeout:g}", pace.timeout == usual.timeout),
    )
    return [word for name, value, is_usual in said if not is_usual for word in (name, value)]


def pace_for(plan: Plan, *, picked: bool = False) -> ReplayPace | None:
    """How a plan is carried out unless the operator changes it; None: at once.

    A few tasks that were `picked` one by one need no canary: there are no more than it would take.
    """
    usual = ReplayPace()
    few = picked and len(plan.rows) <= sum(usual.canary)
    return usual if can_be_paced(plan) and not few else None


def can_be_paced(plan: Plan) -> bool:
    """Whether a plan may be carried out at a pace."""
    return plan.verb == "retry" and len(plan.rows) > 1


def why_not_now(live: PlaceSession, states: Collection[State]) -> str:
    """Why nothing may be done to tasks in these states at this moment, as far as is seen."""
    if live.place.leases or State.ACTIVE not in states:
        return ""
    return not_abandoned(live.signs.lock)


def guard(live: PlaceSession, plan: Plan) -> Allowed:
    """The same, looked at anew each time it is asked; it blocks."""
    place = live.place
    if place.leases or all(row.state is not State.ACTIVE for row in plan.rows):
        return lambda: ""
    return lambda: not_abandoned(lock_of(place), place.lingering)


def facts(live: PlaceSession, plan: Plan, pace: ReplayPace | None, amount: int) -> list[Run]:
    """What else there is to know before a plan is applied."""
    if not can_be_paced(plan):
        return []
    if pace is None:
        return [("pace", "at once, and not looked after; p: a rate, canaries, rules to stop")]
    ours = live.worker.pid is not None
    known = working(live.signs.lock, live.events(), live.clock(), ours=ours)
    told = estimate.forecast(amount, pace, known)
    return [("pace", "; ".join(told.sentences))]
