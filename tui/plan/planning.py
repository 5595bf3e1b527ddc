"""Build a plan from a key press: scope, warnings, pace, equivalent command line."""

from __future__ import annotations

import asyncio
import shlex
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from engine.index import backlog
from engine.index.backlog import PlannedRuns
from engine.index.filter_language import MAX_FILTER_CHARS
from engine.index.reader import Reader
from engine.index.schema import Query
from engine.model import Edges, State, state_words
from engine.monitor.run_forecast import RunForecast, forecast_runs
from engine.operations.execute import RefusalCheck
from engine.operations.plans import NO_VALUES, Plan, describe_added
from engine.places.place_watcher import read_lock, why_not_abandoned
from engine.replay.settings import ReplayPace
from engine.store import StoreError
from engine.text.times import format_deadline, format_rough_duration
from engine.values import NamedTuple
from engine.verbs import VERBS, edges_of
from tui.plan.plan_lines import PlanCounts, warn_of_whole_state
from tui.session.place_pace import measure_pace
from tui.session.place_session import PlaceSession
from tui.text import keys
from tui.text.lines import Run

if TYPE_CHECKING:
    from tui.screens.base import BaseScreen

T = TypeVar("T")

NOTICE_SECONDS = 0.1
"""Seconds after which a message says that a plan is being prepared."""

VERB_IN_STATE: Mapping[tuple[str, State | None], str] = {
    ("retry", State.TRASH): "restore",
    ("purge", State.TRASH): "expunge",
    ("retry", State.DONE): "rerun",
}
"""Verbs that a key means instead in some states."""

VERB_WITHOUT_EDGE: Mapping[str, str] = {"purge": "expunge", "kill": "bounce"}
"""Verbs that a key means instead where the store has an edge for them, and none for its own: a
store without a trash only deletes, and what waits has a sender but no worker."""


def has_verb(edges: Edges, verb: str) -> bool:
    """True if the store has an edge for a verb from some state, or before its edges are known."""
    meant = ((verb_in_state(verb, state, edges), state) for state in State)
    return not edges or any(edges_of(edges, one, state) for one, state in meant)


def help_words(edges: Edges) -> dict[str, str]:
    """Descriptions, by action, of keys that mean another verb in this store."""
    has_bounce = any(edges_of(edges, "bounce", state) for state in State)
    words = {"plan('kill')": "plan to bounce waiting tasks: the sender gets a report"}
    return words if has_bounce else {}


def closed_verbs(edges: Edges, state: State | None) -> set[str]:
    """Actions of the verbs whose edges from a state the store refuses for all tasks now."""
    actions = set()
    for key in keys.verb_keys():
        state_edges = edges_of(edges, verb_in_state(key.verb, state, edges), state)
        refusals = [edge.refusal for edge in state_edges.values() if state is not None]
        if refusals and all(refusals):
            actions.add(key.action)
    return actions


class VerbRequest(NamedTuple):
    """A verb and the tasks that it is requested for."""

    verb: str
    """A key of `engine.verbs.VERBS`."""
    ids: Collection[str] | None
    """None: all tasks that match the query."""
    query: Query
    describe_scope: Callable[[int], str]
    """Description of the scope, given the number of tasks."""
    values: Mapping[str, Any] = NO_VALUES
    rev: str = ""
    """The revision of the one task whose values were edited; "": that of the index."""


@contextmanager
def preparing(screen: BaseScreen, what: str) -> Iterator[None]:
    """Say each second that `what` is being prepared, once that takes `NOTICE_SECONDS`."""
    notice = asyncio.create_task(_say_preparing(screen, what))
    try:
        yield
    finally:
        notice.cancel()


async def _say_preparing(screen: BaseScreen, what: str) -> None:
    await asyncio.sleep(NOTICE_SECONDS)
    seconds = 0
    while True:
        screen.say(f"preparing {what} ..." + (f" {seconds}s" if seconds else ""), "")
        await asyncio.sleep(1.0)
        seconds += 1


async def prepare(screen: BaseScreen, what: str, making: Awaitable[T]) -> T | None:
    """Await a plan; None, after a message, if there is none, or another screen is open by then."""
    try:
        with preparing(screen, what):
            made = await making
    except StoreError as error:
        screen.say(f"no plan: {error}")
        return None
    if screen.app.screen is not screen:  # a screen below a menu is current, too
        screen.say("no plan: another screen was opened meanwhile")
        return None
    screen.say("", "")
    return made


def verb_in_state(verb: str, state: State | None, edges: Edges) -> str:
    """The verb of a key in a state, in a store with these edges."""
    other = VERB_WITHOUT_EDGE.get(verb, "")
    if other and state and edges_of(edges, other, state) and not edges_of(edges, verb, state):
        return other
    return VERB_IN_STATE.get((verb, state), verb)


def include_single_task(plan: Plan) -> Plan:
    """Include a single selected task even if it is suspicious."""
    if len(plan.rows) != 1:
        return plan
    return plan._replace(included_ids=frozenset(row.id for row in plan.rows))


def plan_warnings(session: PlaceSession, plan: Plan, asked: VerbRequest) -> tuple[str, ...]:
    """Warnings for a plan whose journal may not fit, one with added tasks, or one that acts on all
    tasks of a state, with alternatives."""
    full = session.full_disk if VERBS[plan.verb].is_undoable else None
    no_room = (f"{full.text}: the journal may not fit",) if full else ()
    added = (*no_room, *describe_added(plan))
    if not VERBS[plan.verb].excludes_suspicious or asked.ids is not None or plan.filter:
        return added
    states = plan.states
    words = " and ".join(session.inspector.states.get(state, state) for state in states)
    amount = sum(session.inspector.latest.counts.values())
    return (*added, *warn_of_whole_state(words, len(plan.rows), amount))


MAX_IDS_IN_COMMAND = 4
"""Maximum number of task ids on a command line; larger plans need a filter or the console."""

WITHOUT_COMMAND = frozenset({"edit"})
"""Verbs for which no command takes these arguments."""


def equivalent_command(
    counts: PlanCounts,
    session: PlaceSession,
    reason: str,
    pace: ReplayPace | None = None,
    follows: str = "",
) -> str:
    """Equivalent command for exactly these tasks; "" if it would be too long. `follows` is the
    operation to resume."""
    if follows:
        words = [*session.place.command, "journal", follows, "--resume"]
        return shlex.join([*words, "--apply", str(counts.amount)])
    plan, known = counts.plan, session.inspector
    name = VERBS[plan.verb].words(is_paced=pace is not None).name
    if plan.excluded_ids or plan.verb in WITHOUT_COMMAND or not counts.amount:
        return ""
    if len(counts.states) != 1 and not plan.undoes:
        return ""
    words = [*session.place.command, name]
    if plan.undoes:
        words.append(plan.undoes)
    else:
        (state,) = counts.states
        words += ["--state", ",".join(state_words(state, known.states, known.words))]
        if plan.filter and len(plan.filter) <= MAX_FILTER_CHARS:
            words += ["--filter", plan.filter]
        elif len(plan.rows) <= MAX_IDS_IN_COMMAND:
            words += [piece for row in plan.rows for piece in ("--id", row.id)]
        elif plan.filter or len(plan.rows) != known.latest.counts.get(state):
            return ""
    if len(counts.included) > MAX_IDS_IN_COMMAND:
        return ""
    words += [word for ident in counts.included for word in ("--include", ident)]
    words += ["--include-all"] * plan.includes_suspicious
    words += ["--reason", reason] if reason else []
    if can_be_paced(plan) and has_pace_options(name):
        paced = pace_options(pace)
        if paced is None:
            return ""
        words += paced
    return shlex.join([*words, "--apply", str(counts.amount)])


def pace_options(pace: ReplayPace | None) -> list[str] | None:
    """Command-line options for a pace, without defaults; None if it cannot be expressed."""
    if pace is None:
        return ["--rate", "now"]
    if pace.rate is None:
        return None  # on the command line, no rate also means no canary
    usual, stops = ReplayPace(), pace.stops
    share = "none" if stops.share is None else f"{100 * stops.share:g}/{stops.last}"
    canary = ",".join(str(size) for size in pace.canary if size) or "none"
    options = (
        ("--rate", f"{pace.rate:g}", pace.rate == usual.rate),
        ("--canary", canary, pace.canary == usual.canary),
        ("--stop-same", str(stops.same or 0), stops.same == usual.stops.same),
        ("--stop-share", share, stops[1:3] == usual.stops[1:3]),
        ("--stop-pending", str(stops.pending), stops.pending is None),
        ("--rest", str(stops.rest), stops.rest is usual.stops.rest),
        ("--timeout", f"{pace.timeout:g}", pace.timeout == usual.timeout),
    )
    return [word for name, value, is_usual in options if not is_usual for word in (name, value)]


def has_pace_options(command: str) -> bool:
    """True if a command takes a pace: `retry` takes none."""
    return any(verb.paced is not None and verb.paced.name == command for verb in VERBS.values())


def is_usually_paced(verb: str, amount: int, *, picked: bool) -> bool:
    """True if so many tasks are sent at a rate unless the operator changes it. A few tasks that
    were `picked` by hand need no canary: they are at most as many as the canary."""
    few = amount <= (sum(ReplayPace().canary) if picked else 1)
    return VERBS[verb].paced is not None and not few


def usual_name(verb: str, amount: int, *, picked: bool) -> str:
    """What the plan of a verb for so many tasks is called, until the operator changes its pace."""
    return VERBS[verb].words(is_paced=is_usually_paced(verb, amount, picked=picked)).name


def default_pace(plan: Plan, *, picked: bool = False) -> ReplayPace | None:
    """Default pace of a plan; None: all tasks now."""
    is_paced = is_usually_paced(plan.verb, len(plan.rows), picked=picked)
    return ReplayPace() if is_paced else None


def can_be_paced(plan: Plan) -> bool:
    """True for more than one task to run again."""
    return VERBS[plan.verb].paced is not None and len(plan.rows) > 1


def why_not_now(session: PlaceSession, states: Collection[State]) -> str:
    """Why tasks in these states cannot be changed now, by the last lock check; "" if they can."""
    if session.place.has_leases or State.ACTIVE not in states:
        return ""
    return why_not_abandoned(session.readings.lock)


def lock_guard(session: PlaceSession, plan: Plan) -> RefusalCheck:
    """A callback that re-reads the lock and returns `why_not_now`; it blocks."""
    place = session.place
    if place.has_leases or State.ACTIVE not in plan.states:
        return lambda: ""
    return lambda: why_not_abandoned(read_lock(place), place.find_lingering_worker)


def pace_facts(
    session: PlaceSession, plan: Plan, pace: ReplayPace | None, amount: int, runs: RunForecast
) -> list[Run]:
    """The rate with its steps and duration, when the last task runs, and whether a worker runs what
    is sent."""
    if not can_be_paced(plan):
        return []
    if pace is None:
        words = "all now, results not tracked (p: rate, canary, stop rules)"
        return [("rate", words), *_last_run(runs, 0.0, session.clock())]
    from engine.replay import estimate
    from tui.session.running_operations import find_worker

    lock, figures = session.readings.lock, session.readings.queue_figures
    is_own, events = session.worker.pid is not None, session.events()
    known = find_worker(lock, figures, events, session.clock(), is_of_console=is_own)
    forecast = estimate.estimate_replay(amount, pace, known)
    steps = [f"canary {pace.canary[0]:,}"] if pace.canary and pace.canary[0] else []
    steps += [f"{size:,}" for size in pace.canary[1:] if size]
    steps.append("all others now" if pace.rate is None else f"{pace.rate:g} per second")
    takes = f": {format_rough_duration(forecast.sending)}" if forecast.sending else ""
    words = f"{', then '.join(steps)}{takes}"
    last = [] if forecast.worker else _last_run(runs, forecast.sending, session.clock())
    return [("rate", words), *last, *([("worker", forecast.worker)] if forecast.worker else [])]


async def forecast_plan(
    session: PlaceSession, plan: Plan, settled: Collection[str] = ()
) -> RunForecast:
    """When the last task of a plan runs, if all are sent now: after those that are claimed before
    it. `settled`: those that have run already. Raises Unavailable: the place was closed."""
    if not can_be_paced(plan):
        return RunForecast(None)
    now, by = session.clock(), session.place.claim_order

    def count(reader: Reader) -> PlannedRuns:
        ids = (row.id for row in plan.included if row.id not in settled)
        return backlog.count_planned(reader, ids, now, by)

    chosen = plan.included_ids, plan.excluded_ids, plan.includes_suspicious
    key = ("planned", plan.made_at, *chosen, len(settled))
    found = await session.inspector.tallies.ask(key, count, PlannedRuns())
    runs = Counter(found.planned) + Counter(found.first)
    pace = measure_pace(session, now)
    return forecast_runs(runs, pace, now, found.planned, with_retries=by == backlog.BY_CREATED)


def _last_run(runs: RunForecast, sending: float, now: float) -> list[Run]:
    """The row that says when the last task of a plan runs, if the workers take longer than the
    sending."""
    if runs.unknown:
        return [("runs", f"? {runs.unknown}")]
    if runs.seconds is None or runs.seconds <= sending:
        return []
    return [("runs", f"last at about {format_deadline(now + runs.seconds, now)}: {runs.terms}")]


def stop_words(pace: ReplayPace, marks: Sequence[str]) -> str:
    """The first stop rule of a pace: `stop at 2 x F-276D`; `marks` are errors that still happen."""
    stops = pace.stops
    if stops.same is not None:
        return f"stop at {stops.same:,} x {marks[0] if marks else 'one error'}"
    if stops.share is not None:
        return f"stop at {100 * stops.share:g} % of {stops.last:,} failed"
    return "no stop rule" if stops.pending is None else f"stop at {stops.pending:,} pending"
