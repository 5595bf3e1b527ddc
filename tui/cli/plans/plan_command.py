"""What all commands that act on many tasks have in common: shown first, then done by count."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import sys
import time
from argparse import Namespace
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from engine.locks import lock_holder
from engine.model import State
from engine.operations import run_plan, trash
from engine.operations.execute import Allowed, Report, freely
from engine.operations.journal import Intent
from engine.operations.plans import Plan
from engine.store import Store
from engine.text.safe import shown
from engine.verbs import VERBS
from tui.cli.setup.one_look import print_lines
from tui.cli.setup.place_formats import setup_for
from tui.cli.setup.setup import EX_USAGE, Setup, complain, fail
from tui.format import task_row
from tui.format.human import format_share
from tui.plan import lines as view
from tui.session.place_watcher import not_abandoned

DONE, OTHERWISE, LOCKED = 0, 1, 2
"""Exit codes: all of it was done, not all of it or nothing, somebody has what it is for in hand."""

LISTED = 50
"""Rows that are listed one by one for people; for programs all of them are."""

NAMES = {"retry": "replay"}
"""What a verb is called on the command line, where that is not its name."""


class SeenTasks(NamedTuple):
    """A plan as it is shown: what is known beside it."""

    plan: Plan
    scope: str
    sizes: Mapping[str, int] = {}
    """Bytes of each task, by its id."""
    refused: Mapping[str, str] = {}
    """Ids of rows for which there is no room in the trash, each with the reason."""
    facts: Sequence[tuple[str, str]] = ()
    warnings: Sequence[str] = ()
    closed: str = ""
    """Why nothing of it may be done now, by whatever count; "" when some of it may."""

    @property
    def amount(self) -> int:
        """How many tasks would be acted on."""
        return sum(row.id not in self.refused for row in self.plan.included)

    @property
    def size(self) -> int:
        """Bytes of those."""
        included = (row.id for row in self.plan.included if row.id not in self.refused)
        return sum(self.sizes.get(ident, 0) for ident in included)


def placed(setup: Setup, arguments: Namespace, places: Sequence[str]) -> Setup:
    """The queue at a place that was found among other words; without one, the one that is meant.

    Raises:
        Fail: there are several.
    """
    root = getattr(arguments, "root", "")
    named = [root] * bool(root) + [*places]
    if len({os.path.abspath(name) for name in named}) > 1:
        fail(EX_USAGE, f"{' and '.join(map(shown, named))}: expected only one of them")
    if not places:
        return setup
    return setup_for(setup.config, places[0], os.environ, setup.words)


def require_one(arguments: Namespace) -> None:
    """Make sure that it is said whether only to show, or to do.

    Raises:
        Fail: it is not.
    """
    if bool(arguments.dry_run) is bool(arguments.apply):
        fail(EX_USAGE, "expected either --dry-run, or --apply N with the number that it named")


def require_reason(setup: Setup, reason: str) -> None:
    """Make sure that a reason is said where the configuration asks for one.

    Raises:
        Fail: none is.
    """
    if setup.config.require_reason and not reason.strip():
        fail(EX_USAGE, "expected --reason TEXT: the configuration says `require_reason: true`")


def base(setup: Setup) -> list[str]:
    """How a command on this queue begins."""
    named = ["--config", os.path.abspath(setup.config.path)] if setup.config.path else []
    return ["spooldeck", "--root", setup.place, *named]


def typed(words: Iterable[str]) -> str:
    """A command as it is typed into a shell."""
    return shlex.join(words)


def guard(setup: Setup, plan: Plan) -> Allowed:
    """Why nothing of a plan may be done, looked at anew each time it is asked."""
    if not any(row.state is State.ACTIVE for row in plan.included):
        return freely
    if not setup.has_lock:
        return freely  # there is no lock: its edges say what may be done to what is claimed
    path = setup.lock_path
    return lambda: not_abandoned(setup.examine_lock(), partial(lock_holder.lingering, path))


def roomy(setup: Setup, store: Store, plan: Plan, sizes: Mapping[str, int]) -> SeenTasks:
    """A plan that puts tasks into the trash, with what fits there."""
    quota, taken = setup.config.trash.quota, trash.taken(store)
    left = quota - taken
    refused = {}
    for row in plan.included:
        size = sizes.get(row.id, 0)
        if size > left:
            refused[row.id] = trash.full(quota)
        else:
            left -= size
    after = format_share(quota - left, quota)
    return SeenTasks(plan, "", sizes, refused, (("trash after", after),))


def sight(seen: SeenTasks, store: Store, arguments: Namespace, twin: str) -> view.PlanView:
    """A plan as a page shows it."""
    verb = VERBS[seen.plan.verb]
    known = bool(seen.sizes)
    return view.PlanView(
        store.states,
        store.edges,
        time.time(),
        seen.scope,
        weight=view.Weight(seen.size, len(seen.plan.rows)) if known else None,
        facts=seen.facts,
        warnings=seen.warnings,
        reason=arguments.reason,
        twin=twin,
        undo=_UNDO.get(verb.name, "spooldeck undo, for 24 h, by whoever may write here"),
        refused=seen.refused,
    )


_UNDO = {
    "retry": "spooldeck undo, for those that have not run by then; what ran cannot be called back",
    "release": "spooldeck undo, for those that have not run by then",
    "expunge": "none: this cannot be taken back. `purge` puts into the trash instead, `hold` parks",
}


def show(seen: SeenTasks, about: view.PlanView, as_json: bool) -> None:
    """What a plan would do."""
    if as_json:
        print(task_row.json_line(_as_json(seen, about)), end="")
        return
    width = shutil.get_terminal_size((100, 24)).columns
    # The command stands on a line of its own, whole, so that it can be copied.
    counted = view.tally(seen.plan, about.edges, refused=about.refused)
    text = view.planned(counted, about._replace(twin=""), width)
    listed = counted.listed[:LISTED]
    ids = max((len(row.id) for row in listed), default=0)
    for row in listed:
        words, look = view.outcome(seen.plan, row, about)
        text.append(((f"  {shown(row.id):{ids}}  ", ""), (shown(words), look)))
    print_lines(text)
    more = len(seen.plan.rows) - len(listed)
    if more:
        print(f"  and {more:,} more (--json lists all)")
    past = VERBS[seen.plan.verb].past
    if seen.closed:
        print(f"nothing would be {past}: {shown(seen.closed)}")
        return
    print(f"{seen.amount:,} would be {past}; nothing was changed")
    if seen.amount:
        print(f"to do it: {shown(about.twin)}")


def _as_json(seen: SeenTasks, about: view.PlanView) -> dict[str, Any]:
    plan, states = seen.plan, about.states
    return {
        "verb": plan.verb,
        "filter": plan.filter,
        "scope": seen.scope,
        "undoes": plan.undoes or None,
        "planned": len(plan.rows),
        "acted_on": 0 if seen.closed else seen.amount,
        "refused": seen.closed or None,
        "bytes": seen.size if seen.sizes else None,
        "oldest": plan.oldest or None,
        "newest": plan.newest or None,
        "facts": dict(seen.facts),
        "warnings": list(seen.warnings),
        "undo": about.undo,
        "twin": about.twin,
        "rows": [
            {
                "id": row.id,
                "state": states.get(row.state, row.state),
                "rev": row.rev,
                "odd": row.odd,
                "bytes": seen.sizes.get(row.id),
                "outcome": view.outcome(plan, row, about)[0],
            }
            for row in plan.rows
        ],
    }


def is_count(seen: SeenTasks, wanted: int) -> bool:
    """Whether so many would be acted on as was said; complains where not."""
    amount, past = seen.amount, VERBS[seen.plan.verb].past
    if amount != wanted:
        complain(f"{amount:,} would be {past} now, not {wanted:,}: nothing was done")
    return amount == wanted


def intent_of(setup: Setup, seen: SeenTasks, arguments: Namespace) -> Intent:
    """What is about to be done, for the journal."""
    plan = seen.plan
    return Intent(
        plan.verb,
        setup.who(),
        arguments.reason,
        plan.filter,
        seen.scope,
        plan.undoes,
        values=plan.values,
    )


def carry_out(setup: Setup, store: Store, plan: Plan, intent: Intent) -> Report:
    """Do it, written down; a first Ctrl-C ends it after the tasks in hand.

    Raises:
        Unavailable: it cannot be written down; nothing was done.
    """
    with Interrupted() as interrupted:
        return run_plan.carry_out(
            store,
            setup.journal(),
            plan,
            intent,
            time.time,
            halted=lambda: interrupted.times > 0,
            allowed=guard(setup, plan),
            quota=setup.config.trash.quota,
        )


class Interrupted:
    """Counts how often somebody wanted this to end, instead of ending it in the middle."""

    def __init__(self) -> None:
        self.times = 0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interrupted:
        """From now on."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            self._before[number] = signal.signal(number, self._heard)
        return self

    def __exit__(self, *_: object) -> None:
        """As it was."""
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _heard(self, number: int, _: object) -> None:
        # Whoever ends us by anything but a key does not come back to do it again.
        self.times += 1 if number == signal.SIGINT else 2


def tell(setup: Setup, report: Report, as_json: bool, more: Mapping[str, Any] = {}) -> int:
    """What became of a plan, and the exit code that says it."""
    verb, done = VERBS[report.plan.verb], len(report.done)
    words = f"{NAMES.get(verb.name, verb.name)}: {done:,} {verb.past}"
    setup.log_if_allowed("INFO", f"Operator {words}" + (f" ({report.op})" if report.op else ""))
    if as_json:
        print(task_row.json_line({**_accounted(report), **more}), end="")
    else:
        width = shutil.get_terminal_size((100, 24)).columns
        print_lines(view.accounted(report, width, ""))
        if done and report.op and verb.safe:
            # Not with its count: what is worked on meanwhile is none of it.
            back = typed([*base(setup), "undo", report.op, "--dry-run"])
            print(f"to take it back: {back}")
    if report.trouble:
        complain(shown(report.trouble))
    sys.stdout.flush()
    return OTHERWISE if report.gone or report.failed else DONE


def _accounted(report: Report) -> dict[str, Any]:
    return {
        "verb": report.plan.verb,
        "op": report.op or None,
        "planned": len(report.plan.rows),
        "done": report.done,
        "gone": report.gone,
        "failed": dict(report.failed),
        "excluded": dict(report.excluded),
        "trouble": report.trouble,
    }
