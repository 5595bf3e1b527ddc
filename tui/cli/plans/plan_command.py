"""Shared code of the commands that change many tasks: show a plan, apply it by its count."""

from __future__ import annotations

import json
import os
import shlex
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, islice, repeat
from typing import Any

from engine.formats.base.format import Setup
from engine.formats.known_formats import is_same_place, setup_for
from engine.locks import lock_holder
from engine.model import Edges, State
from engine.operations import run_plan, trash
from engine.operations.execute import RefusalCheck, Report, always_allowed
from engine.operations.journal import Intent
from engine.operations.plans import Plan
from engine.places.place_watcher import why_not_abandoned
from engine.store import ChangeableStore, ReadableStore
from engine.system.command_errors import EX_USAGE, fail, print_error
from engine.text.figures import format_share
from engine.text.safe import safe_line
from engine.values import NamedTuple
from engine.verbs import VERBS, VerbWords
from tui.cli.setup.output import Progress, columns, print_json, print_lines
from tui.plan import plan_lines as view
from tui.text import task_row

DONE, NOT_ALL_DONE, LOCKED = 0, 1, 2
"""Exit codes: all done; not all done, or nothing; a worker holds the tasks."""

MAX_LISTED_ROWS = 50
"""Maximum rows listed on screen; JSON lists all."""


class PlanOptions(NamedTuple):
    """The options of each command that shows and applies a plan."""

    reason: str
    apply: int
    """The count to apply; 0: only show the plan."""
    json: bool


class ShownPlan(NamedTuple):
    """A plan with what is shown next to it."""

    plan: Plan
    scope: str
    sizes: Mapping[str, int] = {}
    """Bytes of each of the first `sizes.MAX_MEASURED_TASKS` tasks, by id."""
    refused: Mapping[str, str] = {}
    """Ids of rows that do not fit in the trash, each with the reason."""
    facts: Sequence[tuple[str, str]] = ()
    warnings: Sequence[str] = ()
    is_paced: bool = False
    """True if the tasks are sent at a rate."""
    closed: str = ""
    """Why no row may be applied with any count; "" if some may."""

    @property
    def words(self) -> VerbWords:
        """What it is called."""
        return VERBS[self.plan.verb].words(is_paced=self.is_paced and self.amount > 1)

    @property
    def amount(self) -> int:
        """Number of tasks that would be changed."""
        return self.plan.amount - len(self.refused)

    @property
    def size(self) -> view.PlanSize | None:
        """Bytes of those of them that were measured, and the number of measured rows; None: no row
        was."""
        if not self.sizes:
            return None
        measured = [row for row in islice(self.plan.rows, len(self.sizes)) if row.id in self.sizes]
        included = (row.id for row in measured if not self.plan.exclusion_reason(row))
        size = sum(self.sizes[ident] for ident in included if ident not in self.refused)
        return view.PlanSize(size, len(measured))


def setup_at(setup: Setup, root: str, places: Sequence[str]) -> Setup:
    """The setup of the place among the words of a command, if it is not that of --root; without
    one, the given setup."""
    named = [root] * bool(root) + [*places]
    if any(not is_same_place(named[0], name) for name in named[1:]):
        fail(EX_USAGE, f"{' and '.join(map(safe_line, named))}: expected only one of them")
    if not places:
        return setup
    return setup_for(setup.config, places[0], os.environ, setup.words)


def require_place(setup: Setup) -> None:
    """Check that the place is there, for a command that reads only what spooldeck keeps of it.

    Raises:
        Unavailable: it is not; the text names what is missing.
    """
    if not os.path.isdir(os.path.dirname(setup.queue.pending)):
        setup.open_store().close()


def require_one(dry_run: bool, count: int) -> None:
    """Require exactly one of --dry-run and --apply."""
    if dry_run is bool(count):
        expected = "expected either --dry-run, or --apply N with the count that --dry-run printed"
        fail(EX_USAGE, expected)


def require_reason(setup: Setup, reason: str) -> None:
    """Require a reason if the configuration does."""
    if setup.config.require_reason and not reason.strip():
        fail(EX_USAGE, "expected --reason TEXT: the configuration has `require_reason: true`")


def guard(setup: Setup, plan: Plan) -> RefusalCheck:
    """A function that returns why a plan may not be applied now, checked again at each call."""
    if not any(row.state is State.ACTIVE for row, _ in plan.included_groups):
        return always_allowed
    if not setup.format.has_lock:
        return always_allowed  # no lock: the edges decide what may be done to claimed tasks
    find_holder = partial(lock_holder.deleted_lock_holder, setup.lock_path)
    return lambda: why_not_abandoned(setup.examine_lock(), find_holder)


def warn_of_held(amount: int) -> list[str]:
    """A warning of tasks that are held instead of returned to the DLQ, if there are any."""
    late = f"{amount:,} dead longer than the retention time"
    return [f"{late}: held, otherwise the next run deletes them"] * bool(amount)


def fit_into_trash(
    setup: Setup, store: ReadableStore, plan: Plan, sizes: Mapping[str, int]
) -> ShownPlan:
    """A plan that moves tasks to the trash, with the measured rows that do not fit. Each task is
    measured again when the plan is applied."""
    quota, taken = setup.config.trash.quota, store.trash_bytes()
    free_bytes = quota - taken
    refused = {}
    for row in islice(plan.rows, len(sizes)):
        if plan.exclusion_reason(row):
            continue
        size = sizes.get(row.id, 0)
        if size > free_bytes:
            refused[row.id] = trash.trash_full_message(quota)
        else:
            free_bytes -= size
    least = "at least " if len(sizes) < len(plan.rows) else ""
    after = f"{least}{format_share(quota - free_bytes, quota)}"
    return ShownPlan(plan, "", sizes, refused, (("trash", after),))


def _undo_words(verb: str, edges: Edges, whose: str) -> str:
    if verb != "expunge":
        return _UNDO.get(verb, f"spooldeck undo, for 24 h, by {whose}")
    other = {State.TRASH: "`purge` (trash)", State.HELD: "`hold`"}
    alternatives = [words for end, words in other.items() if any(edge[1] is end for edge in edges)]
    instead = f". Use {' or '.join(alternatives)} instead" if alternatives else ""
    return f"none: cannot be undone{instead}"


_UNDO = {
    "retry": "spooldeck undo, for tasks that have not run by then; runs cannot be undone",
    "rerun": "spooldeck undo, for tasks that have not run by then; runs cannot be undone",
    "release": "spooldeck undo, for tasks that have not run by then",
}


def show_plan(
    setup: Setup,
    store: ReadableStore,
    shown_plan: ShownPlan,
    options: PlanOptions,
    command: Sequence[str],
) -> None:
    """Print what a plan would do, and the command that applies it."""
    # The journal of a URL's operations is in our own folder, which each user has.
    whose = "you on this host" if setup.address.is_url else "any operator"
    counted = view.count_plan(shown_plan.plan, store.edges, refused=shown_plan.refused)
    plan_view = view.PlanView(
        store.states,
        store.edges,
        time.time(),
        shown_plan.scope,
        size=shown_plan.size,
        facts=shown_plan.facts,
        warnings=shown_plan.warnings,
        reason=options.reason,
        command=shlex.join(command),
        undo=_undo_words(shown_plan.plan.verb, store.edges, whose),
        is_paced=shown_plan.is_paced and shown_plan.amount > 1,
        refused=shown_plan.refused,
        transitions=counted.transitions,
    )
    if options.json:
        head = json.dumps(_as_json(shown_plan, plan_view))
        sizes, plan = shown_plan.sizes, shown_plan.plan
        values = (view.plan_row_values(plan, r, plan_view, sizes.get(r.id)) for r in plan.rows)
        rows = map(json.dumps, values)
        print(f'{head[:-1]}, "rows": [', end="")
        for row_text, comma in zip(rows, chain([""], repeat(", ")), strict=False):
            print(f"{comma}{row_text}", end="")
        print("]}")
        return
    # The command gets its own unwrapped line, so that it can be copied.
    text = view.plan_lines(counted, plan_view._replace(command=""), columns())
    listed = counted.listed[:MAX_LISTED_ROWS]
    ids = max((len(row.id) for row in listed), default=0)
    for row in listed:
        words, style = view.expected_outcome(shown_plan.plan, row, plan_view)
        text.append(((f"  {safe_line(row.id):{ids}}  ", ""), (safe_line(words), style)))
    print_lines(text)
    more = len(shown_plan.plan.rows) - len(listed)
    if more:
        print(f"  and {more:,} more (--json lists all)")
    past = shown_plan.words.past
    if shown_plan.closed:
        print(f"no task would be {past}: {safe_line(shown_plan.closed)}; nothing was changed")
        return
    print(f"{shown_plan.amount:,} would be {past}; nothing was changed")
    if any(row.default_exclusion == why for row, why in shown_plan.plan.excluded):
        print("for excluded tasks too: --include ID for one, --include-all for all")
    if shown_plan.amount:
        print(f"to apply: {safe_line(plan_view.command)}")


def _as_json(shown_plan: ShownPlan, plan_view: view.PlanView) -> dict[str, Any]:
    plan, size = shown_plan.plan, shown_plan.size
    allowed = (one for one in plan_view.transitions if not one.refused)
    warnings = (warning for one in allowed for warning in one.warnings)
    return {
        "verb": shown_plan.words.name,
        "filter": plan.filter,
        "scope": shown_plan.scope,
        "undoes": plan.undoes or None,
        "planned": len(plan.rows),
        "acted_on": 0 if shown_plan.closed else shown_plan.amount,
        "refused": shown_plan.closed or None,
        "bytes": None if size is None else size.bytes,
        "measured": 0 if size is None else size.tasks,
        **task_row.time_fields("oldest", plan.oldest or None),
        **task_row.time_fields("newest", plan.newest or None),
        "facts": dict(shown_plan.facts),
        "warnings": [*warnings, *shown_plan.warnings],
        "exact": all(one.edge.exact for one in plan_view.transitions),
        "undo": plan_view.undo,
        "twin": plan_view.command,
    }


def check_count(shown_plan: ShownPlan, expected_count: int) -> bool:
    """True if a plan has exactly the wanted count; otherwise print an error."""
    amount, past = shown_plan.amount, shown_plan.words.past
    if amount != expected_count:
        why = "".join(f": {reason}" for reason in _why_fewer(shown_plan))
        now = f"{amount:,} would be {past} now, not {expected_count:,}"
        print_error(f"{now}{why}: nothing was changed")
    return amount == expected_count


def _why_fewer(shown_plan: ShownPlan) -> Iterator[str]:
    """Yield why tasks of a plan would not be changed, with numbers, the most frequent first."""
    if shown_plan.closed:
        yield safe_line(shown_plan.closed)
        return
    whys = Counter(
        f"{why} (--include-all)" if row.default_exclusion == why else why
        for row, why in shown_plan.plan.excluded
    )
    whys.update(shown_plan.refused.values())
    for why, number in whys.most_common(MAX_LISTED_REASONS):
        yield f"{number:,} excluded: {safe_line(why)}"


MAX_LISTED_REASONS = 3
"""Maximum reasons listed for tasks that would not be changed."""


def intent_of(setup: Setup, shown_plan: ShownPlan, reason: str) -> Intent:
    """The intent of a plan, for the journal."""
    plan = shown_plan.plan
    return Intent(
        plan.verb,
        setup.current_user(),
        reason,
        filter=plan.filter,
        scope=shown_plan.scope,
        undoes=plan.undoes,
        values=plan.values,
    )


def is_locked(setup: Setup, plan: Plan) -> bool:
    """True if a plan may not be applied now; the reason is printed."""
    if why := guard(setup, plan)():
        print_error(f"{safe_line(why)}: nothing was changed")
    return bool(why)


def carry_out(
    setup: Setup, store: ChangeableStore, plan: Plan, intent: Intent, *, as_json: bool
) -> int:
    """Apply a plan with a journal, print the result and return the exit code; the first Ctrl-C
    stops it after the current batch.

    Raises:
        Unavailable: the journal cannot be written; nothing was changed.
    """
    with SignalCounter() as interrupted, Progress(f"of {plan.amount:,} tasks") as progress:
        report = run_plan.run_journaled_plan(
            store,
            setup.journal(),
            plan,
            intent,
            time.time,
            report_counts=lambda counts: progress.show(sum(counts.values())),
            halted=lambda: interrupted.times > 0,
            allowed=guard(setup, plan),
            quota=setup.config.trash.quota,
        )
    return print_report(setup, report, as_json)


class SignalCounter:
    """Counts the signals that ask to end, so that the command can stop between batches."""

    def __init__(self) -> None:
        self.times = 0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> SignalCounter:
        """Install the signal handlers."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            self._before[number] = signal.signal(number, self._count_signal)
        return self

    def __exit__(self, *_: object) -> None:
        """Restore the previous signal handlers."""
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _count_signal(self, number: int, _: object) -> None:
        # A signal other than SIGINT comes from a program, which does not send it twice.
        self.times += 1 if number == signal.SIGINT else 2


def print_report(
    setup: Setup, report: Report, as_json: bool, outcome: Mapping[str, Any] | None = None
) -> int:
    """Print the result of a plan and return the exit code; `outcome` of a paced one."""
    words = VERBS[report.plan.verb].words(is_paced=outcome is not None)
    result = f"{words.name}: {len(report.done):,} {words.past}"
    setup.log_if_allowed("INFO", f"Operator {result}" + (f" ({report.op})" if report.op else ""))
    if as_json:
        more = {} if outcome is None else {"outcome": outcome}
        print_json({"verb": words.name, **_accounted(report), **more})
    else:
        print_lines(view.result_lines(report, columns(), words.past))
        if report.is_undoable:
            # Without a count: tasks claimed in the meantime are excluded.
            back = shlex.join([*setup.command_words, "undo", report.op, "--dry-run"])
            print(f"to undo: {back}")
    if report.trouble:
        print_error(report.trouble)
    sys.stdout.flush()
    return NOT_ALL_DONE if report.gone or report.failed else DONE


def _accounted(report: Report) -> dict[str, Any]:
    return {
        "op": report.op or None,
        "planned": len(report.plan.rows),
        "done": list(report.done),
        "gone": list(report.gone),
        "failed": dict(report.failed),
        "excluded": dict(report.excluded),
        "unapplied": dict(report.unapplied),
        "new_ids": dict(report.new_ids),
        "notes": dict(report.notes),
        "exact": report.is_exact,
        "trouble": report.trouble,
    }
