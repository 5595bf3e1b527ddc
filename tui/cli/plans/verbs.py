"""Plan and apply a verb: `retry`, `replay`, `rerun`, `purge`, `hold`, `release`, `promote`, `kill`,
`bounce`, `expire`, `reroute`, `restore`, `expunge`.

--dry-run prints what would happen to each task, and the count; --apply with that count does it.
"""

from __future__ import annotations

import heapq
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from itertools import count
from math import inf

from engine.formats.base.format import Setup
from engine.index.filter_language import Filter
from engine.index.filter_tasks import select_matching
from engine.model import AttemptLimit, Problem, State, Task, own_word
from engine.operations import plans, trash
from engine.operations.plans import Plan
from engine.replay.settings import ReplayPace, rest_problem
from engine.store import ChangeableStore, ReadableStore, Unavailable
from engine.system.command_errors import EX_NOPERM, EX_USAGE, fail, print_error
from engine.text.safe import safe_line
from engine.values import NamedTuple
from engine.verbs import VERBS, edges_of
from tui.cli.plans import plan_command, replay_options
from tui.cli.plans.plan_command import LOCKED, NOT_ALL_DONE, PlanOptions, ShownPlan
from tui.cli.plans.replay_options import PaceOptions
from tui.cli.setup.filter_option import note_searched, parse_filter_option, parse_states, read_data
from tui.cli.setup.output import show_progress
from tui.plan.plan_lines import warn_of_whole_state
from tui.plan.planning import has_pace_options

NEEDS_STATE = {"expunge": None}
"""Verbs that need an explicit --state, because the tasks are lost."""

RETRY_INSTEAD = {State.PENDING: "promote makes it due now", State.DONE: "rerun runs it again"}
"""The command to use for a task that is not in the DLQ, if its store has an edge to PENDING."""


MAX_LIMIT = 1000
"""Most ids that a plan of the oldest tasks names in its command."""


class TaskChoice(NamedTuple):
    """The options that choose the tasks of a plan."""

    ids: Sequence[str]
    filter: str = ""
    state: str = ""
    limit: int = 0
    include: Sequence[str] = ()
    include_all: bool = False


def act(
    verb: str,
    setup: Setup,
    *,
    filter: str,
    state: str,
    id: list[str],
    limit: int,
    reason: str,
    dry_run: bool,
    apply: int,
    json: bool,
    include: Sequence[str] = (),
    include_all: bool = False,
    rate: str = "",
    canary: str = "",
    stop_same: int | None = None,
    stop_share: str = "",
    stop_pending: int | None = None,
    rest: str = "",
    timeout: float = 0.0,
) -> int:
    """Show the plan of a verb, or apply it. Not every verb has the options with a default."""
    choice = TaskChoice(id, filter, state, limit=limit, include=include, include_all=include_all)
    options = PlanOptions(reason, apply, json)
    typed = PaceOptions(
        rate, canary, stop_same, stop_share, stop_pending, rest=rest, timeout=timeout
    )
    plan_command.require_one(dry_run, apply)
    if limit:
        if apply:  # by now the oldest N can be others than those that were shown
            fail(EX_USAGE, "--limit: expected --dry-run; the command that it prints names the ids")
        if limit > MAX_LIMIT:
            fail(EX_USAGE, f"--limit: expected at most {MAX_LIMIT:,}")
    if apply:
        setup.require_writable()
        plan_command.require_reason(setup, reason)
    is_paced = VERBS[verb].paced is not None
    pace = replay_options.parse_pace(typed) if is_paced else None
    with closing(setup.open_store()) as store:
        shown_plan = _planned_tasks(verb, setup, store, choice)
        shown_plan = shown_plan._replace(is_paced=pace is not None)
        if wrong := rest_problem(pace, shown_plan.plan.states, store.edges):
            fail(EX_USAGE, f"--rest hold: {wrong}")
        if not apply and is_paced:
            facts = replay_options.describe_pace(setup, shown_plan.amount, pace)
            shown_plan = shown_plan._replace(facts=facts)
        if not apply:
            command = _verb_command(setup, shown_plan, choice, reason)
            has_options = is_paced and has_pace_options(shown_plan.words.name)
            command += replay_options.typed_options(typed) if has_options else []
            command += ["--apply", str(shown_plan.amount)]
            return _show(setup, store, shown_plan, options, command)
        if not plan_command.check_count(shown_plan, apply):
            return NOT_ALL_DONE
        return _apply(setup, store, shown_plan, options, pace if shown_plan.amount > 1 else None)


def restore_named(setup: Setup, *, ids: list[str], reason: str, dry_run: bool, json: bool) -> int:
    """Restore the tasks in the trash with these ids; needs no count."""
    options = PlanOptions(reason, 0, json)
    if not dry_run:
        setup.require_writable()
        plan_command.require_reason(setup, reason)
    with closing(setup.open_store()) as store:
        shown_plan = _planned_tasks("restore", setup, store, TaskChoice(ids))
        if dry_run:
            command = [*setup.command_words, "trash", "restore", *ids]
            return _show(setup, store, shown_plan, options, command)
        is_all = len(shown_plan.plan.rows) == len(set(ids))
        if not shown_plan.plan.rows:
            return NOT_ALL_DONE
        code = _apply(setup, store, shown_plan, options)
    return code if is_all else NOT_ALL_DONE


def _show(
    setup: Setup,
    store: ReadableStore,
    shown_plan: ShownPlan,
    options: PlanOptions,
    command: Sequence[str],
) -> int:
    """Print the plan and the command that applies it."""
    if why := plan_command.guard(setup, shown_plan.plan)():
        shown_plan = shown_plan._replace(warnings=[*shown_plan.warnings, why])
    closed = _row_refusals(store, shown_plan.plan)
    if closed and "" not in closed:
        shown_plan = shown_plan._replace(closed=", ".join(sorted(closed)), facts=())
    plan_command.show_plan(setup, store, shown_plan, options, command)
    return EX_NOPERM if shown_plan.closed else plan_command.DONE


def _apply(
    setup: Setup,
    store: ChangeableStore,
    shown_plan: ShownPlan,
    options: PlanOptions,
    pace: ReplayPace | None = None,
) -> int:
    """Apply a plan, unless a rule forbids it."""
    if why := next(filter(None, sorted(_row_refusals(store, shown_plan.plan))), ""):
        fail(EX_NOPERM, f"{safe_line(why)}: nothing was changed")
    if plan_command.is_locked(setup, shown_plan.plan):
        return LOCKED
    intent = plan_command.intent_of(setup, shown_plan, options.reason)
    plan = shown_plan.plan
    return replay_options.apply_plan(setup, store, plan, intent, pace, as_json=options.json)


def _row_refusals(store: ReadableStore, plan: Plan) -> set[str]:
    """Why the store refuses rows of a plan; "" for those that it allows. Barred rows count only if
    there are no others."""
    barred_reasons = {row.barred for row, _ in plan.group_rows(()) if row.barred}
    amounts = plans.count_by_transition(plan)
    return {
        plans.row_refusal(store.edges, plan.verb, plans.Row("", start, "", target=end), amount)
        for (start, end), amount in amounts.items()
    } or barred_reasons


retry = partial(act, "retry", rate="now")
replay = partial(act, "retry")
rerun = partial(act, "rerun")
purge = partial(act, "purge")
hold = partial(act, "hold")
release = partial(act, "release")
promote = partial(act, "promote")
kill = partial(act, "kill")
bounce = partial(act, "bounce")
expire = partial(act, "expire")
reroute = partial(act, "reroute")
restore = partial(act, "restore")
expunge = partial(act, "expunge")


# Which tasks


def _planned_tasks(verb: str, setup: Setup, store: ReadableStore, choice: TaskChoice) -> ShownPlan:
    now = time.time()
    filter = parse_filter_option(choice.filter, store.states, now, store.words, reads_data=True)
    words = _words(verb, setup, store, choice, filter)
    careful = VERBS[verb].excludes_suspicious
    sizes: dict[str, int] = {}
    limit = setup.retry_policy().max_attempts
    tasks = _tasks(verb, store, words, ids=choice.ids, filter=filter, now=now, limit=limit)
    noted_ids = setup.notes().noted_ids() if careful else frozenset()
    total, passed_over = 0, Counter[str]()
    if choice.limit:
        why_not = _why_not(verb, store, choice, noted_ids, now)
        tasks, total = _take_oldest(tasks, choice.limit, why_not, passed_over)
    tasks = _measured_tasks(store, tasks, sizes)
    plan = _freeze(verb, store, tasks, now=now, filter=filter.text, noted_ids=noted_ids)
    if careful:
        plan = _include_suspicious(plan, choice)
    known = ShownPlan(plan, "", sizes, warnings=[*plans.describe_added(plan)])
    if verb == "restore":
        back = trash.plan_restore(store, setup.journal(), plan, now, setup.queue.retention_days)
        warnings = plan_command.warn_of_held(len(back.held))
        known = ShownPlan(back.plan, "", sizes, warnings=warnings)
    if any(end is State.TRASH for _, end in VERBS[verb].edges):
        known = plan_command.fit_into_trash(setup, store, plan, sizes)
    if careful and plan.rows and not (choice.filter or choice.ids or len(plan.rows) < total):
        all_tasks = sum(store.count_tasks().values())
        whole = warn_of_whole_state(" and ".join(words), len(plan.rows), all_tasks)
        known = known._replace(warnings=[*known.warnings, *whole])
    passed = [f"{n:,} excluded: {safe_line(why)}" for why, n in passed_over.most_common()]
    warnings = [*known.warnings, *passed]
    return known._replace(scope=_scope(plan, words, choice, total), warnings=warnings)


def _why_not(
    verb: str, store: ReadableStore, choice: TaskChoice, noted_ids: frozenset[str], now: float
) -> Callable[[Task], str]:
    """Why a verb does not act on a task: it is barred, or excluded by the plan; "" if it does."""
    edges, careful = store.edges, VERBS[verb].excludes_suspicious and not choice.include_all

    def why_not(task: Task) -> str:
        if barred := plans.bar_reason(edges, verb, task, now=now):
            return barred
        if not careful or task.id in choice.include:
            return ""
        excluded = plans.default_exclusion(task.created, task.id in noted_ids, now)
        return f"{excluded} (--include-all)" if excluded else ""

    return why_not


def _take_oldest(
    tasks: Iterable[Task], limit: int, why_not: Callable[[Task], str], passed_over: Counter[str]
) -> tuple[Iterator[Task], int]:
    """The oldest tasks that a verb acts on, those without a time of creation last, and the number
    of all tasks; `passed_over` counts the others by their reason. Only `limit` tasks are kept in
    memory."""
    counted = count()

    def acted_on() -> Iterator[Task]:
        for task in tasks:
            next(counted)
            if why := why_not(task):
                passed_over[why] += 1
            else:
                yield task

    kept = heapq.nsmallest(
        limit, acted_on(), key=lambda task: (task.created or inf, len(task.id), task.id)
    )
    return iter(kept), next(counted)


def _freeze(
    verb: str,
    store: ReadableStore,
    tasks: Iterable[Task],
    now: float,
    filter: str,
    noted_ids: frozenset[str],
) -> Plan:
    """The plan for some tasks, and for those that change together with them."""
    edges = store.edges
    field = plans.shared_field(edges, verb)
    if not field:
        return plans.freeze_plan(verb, tasks, now, edges=edges, filter=filter, noted=noted_ids)
    chosen = {task.id: task for task in tasks}
    values = {getattr(task, field) for task in chosen.values()} - {""}
    all_tasks = (each for each in store.scan() if isinstance(each, Task)) if values else ()
    sharing = {task.id: task for task in all_tasks if getattr(task, field) in values}
    return plans.freeze_shared_plan(
        verb, chosen, (sharing | chosen).values(), now, edges=edges, filter=filter, noted=noted_ids
    )


def _words(
    verb: str, setup: Setup, store: ReadableStore, choice: TaskChoice, filter: Filter
) -> Mapping[str, State]:
    """The store's words for the wanted tasks: from `--state`, else those of the verb's
    usual state."""
    usual = VERBS[verb].edges[0][0]
    verb_edges = edges_of(store.edges, verb)
    starts = tuple(dict.fromkeys(start for start, _ in verb_edges if start is not None))
    if not starts:
        fail(EX_USAGE, f"{verb}: not supported at {safe_line(setup.place)}")
    if choice.state or choice.ids or filter.mentions_field("state"):
        return parse_states(store, choice.state, starts)
    if verb in NEEDS_STATE or usual not in starts:
        words = ", ".join(parse_states(store, "", starts))
        fail(EX_USAGE, f"expected --state with one of {words}")
    return parse_states(store, "", (usual,))


def _tasks(
    verb: str,
    store: ReadableStore,
    words: Mapping[str, State],
    ids: Sequence[str],
    filter: Filter,
    now: float,
    limit: AttemptLimit,
) -> Iterator[Task]:
    refusals = dict.fromkeys(ids, "not found")
    states = dict.fromkeys(store.states[state] for state in words.values())
    scan_names = list(refusals or states)
    scan = show_progress(store.scan(scan_names), "tasks read")
    read = partial(read_data, store)
    if filter:
        scan = select_matching(note_searched(store, scan, filter), filter, now, read, limit)
    for scanned in scan:
        if isinstance(scanned, Problem):
            print_error(f"{safe_line(scanned.where)}: {safe_line(scanned.what)}")
        elif isinstance(scanned, Task):
            word = own_word(scanned, store.states, store.words)
            if words.get(word) is scanned.state:
                refusals.pop(scanned.id, None)
                yield scanned
            elif scanned.id in refusals:
                refusals[scanned.id] = f"{word}, expected {' or '.join(words)}"
                other = RETRY_INSTEAD.get(scanned.state, "") if verb == "retry" else ""
                if other and (scanned.state, State.PENDING) in store.edges:
                    refusals[scanned.id] += f"; {other}"
    for ident, why in sorted(refusals.items()):
        filtered = ", or excluded by the filter" if filter and why == "not found" else ""
        print_error(f"{safe_line(ident)}: {why}{filtered}")


def _measured_tasks(
    store: ReadableStore, tasks: Iterator[Task], sizes: dict[str, int]
) -> Iterator[Task]:
    from engine.operations.plans import MAX_MEASURED_TASKS, task_bytes

    shows_sizes = True
    for task in tasks:
        if shows_sizes and len(sizes) < MAX_MEASURED_TASKS:
            try:
                sizes[task.id] = task_bytes(store, task)
            except Unavailable:
                shows_sizes = False  # then the plan has none
        yield task


def _include_suspicious(plan: Plan, choice: TaskChoice) -> Plan:
    named = frozenset(choice.include)
    excluded_ids = {row.id for row, _ in plan.group_rows(named) if row.id and row.default_exclusion}
    for ident in choice.include:
        if ident not in excluded_ids:
            expected = "the id of a task that this plan excludes"
            fail(EX_USAGE, f"--include {safe_line(ident)}: expected {expected}")
    named = named.union(*(plan.companions.get(ident, ()) for ident in named))
    return plan._replace(included_ids=named, includes_suspicious=choice.include_all)


def _scope(plan: Plan, words: Mapping[str, State], choice: TaskChoice, total: int) -> str:
    where = " and ".join(words)
    amount = f"{len(plan.rows) - plan.added:,}"
    if choice.limit:
        what = "named " if choice.ids else "matching " if plan.filter else ""
        return f"the oldest {amount} of {total:,} {what}in {where}"
    if choice.ids:
        return f"{amount} by their ids, in {where}"
    return f"all {amount} {'matching ' if plan.filter else ''}in {where}"


def _verb_command(
    setup: Setup, shown_plan: ShownPlan, choice: TaskChoice, reason: str
) -> list[str]:
    """The command for the shown plan, without its pace and its count."""
    plan = shown_plan.plan
    words = [*setup.command_words, shown_plan.words.name]
    given = {"state": choice.state, "filter": choice.filter, "reason": reason}
    for name, value in given.items():
        words += [f"--{name}", value] if value else []
    oldest = [row.id for row in plan.rows] if choice.limit else []
    for ident in oldest or choice.ids:
        words += ["--id", ident]
    if choice.include_all:
        return [*words, "--include-all"]
    for ident in sorted(plan.included_ids):
        words += ["--include", ident]
    return words
