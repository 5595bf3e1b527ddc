"""`replay`, `purge`, `hold`, `release`, `promote`, `kill`, `restore`, `expunge`: plans, printed.

The dry run says what would happen to each task, and how many; `--apply` with that number does it.
"""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Iterator, Mapping
from contextlib import closing
from functools import partial

from engine.index.filter_language import NOTHING, BadFilter, Filter, parse
from engine.index.filter_tasks import sieve
from engine.model import Problem, State, Task, own_word
from engine.operations import plans, trash
from engine.operations.execute import Report
from engine.operations.plans import Plan
from engine.replay.settings import ReplayPace
from engine.store import Store
from engine.text.safe import shown
from engine.verbs import VERBS
from tui.cli.plans import plan_command, replay_options
from tui.cli.plans.plan_command import LOCKED, NAMES, OTHERWISE, SeenTasks
from tui.cli.setup.setup import EX_NOPERM, EX_USAGE, Setup, complain, fail, states_named
from tui.plan.lines import everything

CHOSEN = {"expunge": None}
"""Verbs that have to be told where the tasks stand: what is lost is lost."""


def act(verb: str, setup: Setup, arguments: Namespace) -> int:
    """Show what a verb would do, or do it."""
    plan_command.require_one(arguments)
    if arguments.apply:
        setup.require_change()
        plan_command.require_reason(setup, arguments.reason)
    pace = replay_options.pace_of(arguments) if verb == "retry" else None
    with closing(setup.store()) as store:
        seen = _seen(verb, setup, store, arguments)
        if not arguments.apply:
            if verb == "retry":
                facts = replay_options.forecast(setup, seen.amount, pace)
                seen = seen._replace(facts=facts)
            return say(setup, store, seen, arguments, _twin(verb, setup, seen, arguments))
        if not plan_command.is_count(seen, arguments.apply):
            return OTHERWISE
        return apply(setup, store, seen, arguments, pace)


def restore_named(setup: Setup, arguments: Namespace) -> int:
    """The tasks in the trash with these ids back where they came from; none need be counted."""
    if not arguments.dry_run:
        setup.require_change()
        plan_command.require_reason(setup, arguments.reason)
    with closing(setup.store()) as store:
        seen = _seen("restore", setup, store, arguments)
        if arguments.dry_run:
            twin = plan_command.typed(
                [*plan_command.base(setup), "trash", "restore", *arguments.id]
            )
            return say(setup, store, seen, arguments, twin)
        code = apply(setup, store, seen, arguments) if seen.plan.rows else OTHERWISE
    return code if len(seen.plan.rows) == len(set(arguments.id)) else OTHERWISE


def say(setup: Setup, store: Store, seen: SeenTasks, arguments: Namespace, twin: str) -> int:
    """What would happen, and the command that does it."""
    if why := plan_command.guard(setup, seen.plan)():
        seen = seen._replace(warnings=[*seen.warnings, why])
    closed = {plans.refusal(store.edges, seen.plan.verb, row) for row in seen.plan.included}
    if closed and "" not in closed:
        seen = seen._replace(closed=", ".join(sorted(closed)))
    plan_command.show(seen, plan_command.sight(seen, store, arguments, twin), arguments.json)
    return EX_NOPERM if seen.closed else plan_command.DONE


def apply(
    setup: Setup,
    store: Store,
    seen: SeenTasks,
    arguments: Namespace,
    pace: ReplayPace | None = None,
) -> int:
    """Do it, unless nothing of it may be done; a replay of more than one task at a pace."""
    closed = {plans.refusal(store.edges, seen.plan.verb, row) for row in seen.plan.included}
    if why := next(filter(None, sorted(closed)), ""):
        fail(EX_NOPERM, shown(why))
    if why := plan_command.guard(setup, seen.plan)():
        complain(f"{shown(why)}: nothing was done")
        return LOCKED
    intent = plan_command.intent_of(setup, seen, arguments)
    if pace is not None and seen.amount > 1:
        return replay_options.run(setup, seen.plan, intent, pace, arguments.json)
    report: Report = plan_command.carry_out(setup, store, seen.plan, intent)
    return plan_command.tell(setup, report, arguments.json)


replay = partial(act, "retry")
purge = partial(act, "purge")
hold = partial(act, "hold")
release = partial(act, "release")
promote = partial(act, "promote")
kill = partial(act, "kill")
restore = partial(act, "restore")
expunge = partial(act, "expunge")


# Which tasks


def _seen(verb: str, setup: Setup, store: Store, arguments: Namespace) -> SeenTasks:
    now = time.time()
    filter = _filter(store, arguments, now)
    words = _words(verb, setup, store, arguments, filter)
    careful = VERBS[verb].careful
    sizes: dict[str, int] = {}
    seen = _weighed(store, _tasks(verb, store, words, arguments, filter, now), sizes)
    noted = setup.notes().noted() if careful else frozenset()
    plan = plans.freeze(verb, seen, now, filter=filter.text, noted=noted)
    if careful:
        plan = _taken_in(plan, arguments)
    known = SeenTasks(plan, "", sizes)
    if verb == "restore":
        back = trash.restore(store, setup.journal(), plan, now, setup.queue.retention_days)
        late = f"{len(back.held):,} dead for longer than the retention: held, else the next run"
        known = SeenTasks(
            back.plan, "", sizes, warnings=[f"{late} deletes them"] if back.held else []
        )
    if any(end is State.TRASH for _, end in VERBS[verb].edges):
        known = plan_command.roomy(setup, store, plan, sizes)
    if careful and plan.rows and not (arguments.filter or arguments.id):
        whole = everything(" and ".join(words), len(plan.rows), sum(setup.counts(store).values()))
        known = known._replace(warnings=[*known.warnings, *whole])
    return known._replace(scope=_scope(plan, words, arguments))


def _filter(store: Store, arguments: Namespace, now: float) -> Filter:
    try:
        return (
            parse(arguments.filter, store.states, now, store.words) if arguments.filter else NOTHING
        )
    except BadFilter as error:
        fail(EX_USAGE, f"--filter: {shown(error.message)}")


def _words(
    verb: str, setup: Setup, store: Store, arguments: Namespace, filter: Filter
) -> Mapping[str, State]:
    """The store's words for the tasks that are looked for: as `--state` names them, else those of
    the state that the verb is mostly used on."""
    usual = VERBS[verb].edges[0][0]
    ways = [way for way in VERBS[verb].edges if way in store.edges]
    starts = tuple(dict.fromkeys(start for start, _ in ways))
    if not starts:
        fail(EX_USAGE, f"{NAMES.get(verb, verb)}: no task goes that way at {shown(setup.place)}")
    if arguments.state or arguments.id or filter.names("state"):
        return states_named(store, arguments.state, starts)
    if verb in CHOSEN or usual not in starts:
        words = ", ".join(states_named(store, "", starts))
        fail(EX_USAGE, f"expected --state with one of {words}")
    return states_named(store, "", (usual,))


def _tasks(
    verb: str,
    store: Store,
    words: Mapping[str, State],
    arguments: Namespace,
    filter: Filter,
    now: float,
) -> Iterator[Task]:
    left = dict.fromkeys(arguments.id, "not there")
    wanted = list(left) or list(dict.fromkeys(store.states[state] for state in words.values()))
    looked = store.look(wanted)
    for found in sieve(looked, filter, now) if filter else looked:
        if isinstance(found, Problem):
            complain(f"{shown(found.where)}: {shown(found.what)}")
        elif isinstance(found, Task):
            word = own_word(found, store.states, store.words)
            if words.get(word) is found.state:
                left.pop(found.id, None)
                yield found
            elif found.id in left:
                left[found.id] = f"{word}, expected {' or '.join(words)}"
                if verb == "retry" and (found.state, State.PENDING) in store.edges:
                    left[found.id] += "; promote makes it due now"
    for ident, why in sorted(left.items()):
        filtered = ", or excluded by the filter" if filter and why == "not there" else ""
        complain(f"{shown(ident)}: {why}{filtered}")


def _weighed(store: Store, tasks: Iterator[Task], sizes: dict[str, int]) -> Iterator[Task]:
    from engine.operations.sizes import size_of

    for task in tasks:
        sizes[task.id] = size_of(store, task)
        yield task


def _taken_in(plan: Plan, arguments: Namespace) -> Plan:
    odd = frozenset(row.id for row in plan.rows if row.odd)
    for ident in arguments.take_in:
        if ident not in odd:
            fail(EX_USAGE, f"--take-in {shown(ident)}: expected an id of this plan that looks odd")
    return plan._replace(taken_in=odd if arguments.all_odd else frozenset(arguments.take_in))


def _scope(plan: Plan, words: Mapping[str, State], arguments: Namespace) -> str:
    where = " and ".join(words)
    amount = f"{len(plan.rows):,}"
    if arguments.id:
        return f"{amount} by their ids, in {where}"
    return f"all {amount} {'matching ' if plan.filter else ''}in {where}"


def _twin(verb: str, setup: Setup, seen: SeenTasks, arguments: Namespace) -> str:
    """The command that does what was shown."""
    words = [*plan_command.base(setup), NAMES.get(verb, verb)]
    for name in ("state", "filter", "reason"):
        if value := getattr(arguments, name):
            words += [f"--{name}", value]
    for ident in arguments.id:
        words += ["--id", ident]
    if getattr(arguments, "all_odd", False):
        words.append("--all-odd")
    else:
        for ident in sorted(seen.plan.taken_in):
            words += ["--take-in", ident]
    if verb == "retry":
        words += replay_options.words_of(arguments)
    return plan_command.typed([*words, "--apply", str(seen.amount)])
