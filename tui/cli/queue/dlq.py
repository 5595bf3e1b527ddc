"""`queue dlq`: what was given up on, seen, tried again or deleted."""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from collections.abc import Iterable

from engine.model import Problem, State, Task
from engine.operations import plans, run_plan
from engine.operations.execute import Report
from engine.operations.journal import Intent
from engine.operations.plans import Plan
from engine.store import Gone, Unavailable
from engine.stores.nftban import NftbanStore
from engine.text.safe import shown, shown_lines
from tui.cli.setup.setup import EX_USAGE, Setup, complain, fail

MOST_DAYS = 999_999
"""What may be asked for: more days than any clock has seen."""

SCOPE = "queue dlq, the contract's command"
"""How the journal calls what is done from here."""

SHOWN_ERROR = 50
"""Characters of an error in the list, as the contract's own command shows it."""


def list_dead(setup: Setup, arguments: Namespace) -> int:
    """One line for each dead task, in the form of the contract's own command."""
    store = setup.open()
    for task in _dead(store):
        print(_line(task))
    store.close()
    return 0


def _dead(store: NftbanStore) -> list[Task]:
    dead = []
    for found in store.look({store.states[State.DEAD]}):
        if isinstance(found, Task):
            dead.append(found)
        elif isinstance(found, Problem):
            complain(f"{shown(found.where)}: {shown(found.what)}")
    return dead


def _line(task: Task) -> str:
    created, died = _local(task.created or None), _local(task.extra.get("dead_since"))
    return (
        f"{task.id} | {task.kind} | {shown(task.description)} | Created: {created}"
        f" | DLQ: {died} | Error: {shown(task.error[:SHOWN_ERROR])}"
    )


def _local(moment: float | str | None) -> str:
    if moment is None:
        return "unknown"
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(float(moment)))


def show(setup: Setup, arguments: Namespace) -> int:
    """One dead task, its file line by line."""
    store = setup.open()
    try:
        for found in store.look({arguments.id}):
            if isinstance(found, Task) and found.state is State.DEAD:
                print("\n".join(shown_lines(store.read(found))))
                return 0
    except Gone:
        pass  # it left between the two looks: the same answer as for one that was never there
    finally:
        store.close()
    complain(f"Task not found in DLQ: {shown(arguments.id)}")
    return 1


def retry(setup: Setup, arguments: Namespace) -> int:
    """These dead tasks back to pending; exit 1 when one of them was not to be had."""
    setup.require_change()
    store = setup.open()
    wanted = list(dict.fromkeys(arguments.ids))
    found = {
        task.id: task
        for task in store.look(wanted)
        if isinstance(task, Task) and task.state is State.DEAD
    }
    missing = [ident for ident in wanted if ident not in found]
    for ident in missing:
        # The contract's own words, which callers look for.
        print(f"Task not found in DLQ: {shown(ident)}", file=sys.stderr)
    failed = _retry(setup, store, found.values())
    store.close()
    return 1 if missing or failed else 0


def _retry(setup: Setup, store: NftbanStore, tasks: Iterable[Task]) -> int:
    """Retry tasks as they were seen and say what became of each; how many were not moved."""
    report = written_down(setup, store, plans.freeze("retry", tasks, time.time()), SCOPE)
    for ident in report.done:
        print(f"Task {ident} moved from DLQ to pending queue")
        setup.log_if_allowed("INFO", f"DLQ task retried: {ident}")
    for ident in report.gone:
        complain(f"{ident}: changed since it was seen; left alone")
    for ident, reason in report.failed:
        complain(f"{ident}: {reason}")
    return len(report.gone) + len(report.failed)


def written_down(setup: Setup, store: NftbanStore, plan: Plan, scope: str) -> Report:
    """Carry a plan out, and write it down where that can be done: the contract knows no journal.

    `scope` is what was asked for, in words.
    """
    if not plan.rows:
        return Report(plan, (), (), ())
    intent = Intent(plan.verb, setup.who(), scope=scope)
    try:
        report = run_plan.carry_out(store, setup.journal(), plan, intent, time.time)
    except Unavailable as error:
        complain(f"{shown(str(error))}; done all the same")
        return run_plan.carry_out(store, None, plan, None, time.time)
    if not report.trouble:
        return report
    complain(f"{shown(report.trouble)}; done all the same")
    failed = dict(report.failed)
    left = plan._replace(rows=tuple(row for row in plan.included if row.id in failed))
    again = run_plan.carry_out(store, None, left, None, time.time)
    return again._replace(done=report.done + again.done, gone=report.gone + again.gone)


def retry_all(setup: Setup, arguments: Namespace) -> int:
    """Every dead task back to pending."""
    if not arguments.dry_run:
        setup.require_change()
    store = setup.open()
    dead = _dead(store)
    if arguments.dry_run:
        for task in dead:
            print(f"would retry {_line(task)}")
        print(f"{len(dead)} would move from DLQ to pending queue; nothing was changed")
        store.close()
        return 0
    failed = _retry(setup, store, dead)
    store.close()
    return 1 if failed else 0


def _days(text: str) -> float:
    try:
        days = float(text)
    except ValueError:
        days = -1
    if not 0 <= days <= MOST_DAYS:
        fail(EX_USAGE, f"expected a number of days from 0 to {MOST_DAYS}, not {shown(text[:40])!r}")
    return days


def purge(setup: Setup, arguments: Namespace) -> int:
    """Delete for good what died more than so many days ago (contract: `dlq purge`)."""
    days = setup.queue.retention_days if arguments.days is None else _days(arguments.days)
    if not arguments.dry_run:
        setup.require_change()
    now = time.time()
    store = setup.open()
    expired = list(store.expired(now, days))
    if arguments.dry_run:
        for task in expired:
            print(f"would delete for good {_line(task)}")
        print(f"{len(expired)} would be purged from DLQ; nothing was changed")
        store.close()
        return 0
    plan = plans.freeze("expunge", expired, now)
    plan = plan._replace(taken_in=frozenset(row.id for row in plan.rows))
    report = written_down(setup, store, plan, SCOPE)
    store.close()
    gone = len(report.done)
    print(f"Purged {gone} tasks from DLQ")
    for ident in report.gone:
        complain(f"{ident}: not purged: changed since it was seen")
    for ident, reason in report.failed:
        complain(f"{ident}: not purged: {shown(reason)}")
    setup.log_if_allowed("INFO", f"Purged {gone} DLQ tasks older than {days:g} days")
    return 0 if gone == len(expired) else 1
