"""One task by its id: edited, or noted."""

from __future__ import annotations

import json
import time
from argparse import Namespace
from collections.abc import Mapping

from engine import verbs
from engine.model import Edge, Problem, Task
from engine.operations import notes, plans, run_plan
from engine.operations.journal import Intent
from engine.operations.plans import Plan
from engine.store import Store
from engine.text.safe import shown
from tui.cli.setup.setup import EX_USAGE, Fail, Setup, complain, fail
from tui.format import present
from tui.plan.edit_lines import AS_TYPED, not_kept, offered, understood

OPTIONS = {"description": "--description", "due": "--due", "destination": "--to"}
"""How each field is typed that can be edited."""


def edit(setup: Setup, arguments: Namespace) -> int:
    """Give a task another description, due time or recipient, whichever its store keeps; exit 1
    when it was not to be had.
    """
    if arguments.dry_run is bool(arguments.apply) or arguments.apply > 1:
        fail(EX_USAGE, "expected --dry-run, which changes nothing, or --apply 1")
    if arguments.apply:
        setup.require_change()
    now, store = time.time(), setup.store()
    try:
        task = _task(store, arguments.id)
        plan = plans.freeze("edit", [task], now)
        edge = store.edges.get((task.state, task.state), Edge())
        typed = {name: getattr(arguments, name) for name in OPTIONS}
        if why := plans.refusal(store.edges, "edit", plan.rows[0]) or not_kept(edge, typed):
            fail(1, f"{task.id}: edit: {why}")
        wanted = understood(task, edge, typed, now)
        if wanted.wrong:
            fail(EX_USAGE, wanted.wrong)
        if not wanted.values:
            others = " or ".join(OPTIONS[name] for name in offered(edge))
            fail(EX_USAGE, f"nothing would change: expected another {others}")
        plan = plan._replace(values=wanted.values)
        if arguments.dry_run:
            after = verbs.edit(task, now, **wanted.values)
            _foretell(task, after, store.states[task.state], wanted.said, edge.warning)
            return 0
        return _apply(setup, store, plan)
    finally:
        store.close()


def _foretell(before: Task, after: Task, where: str, said: Mapping[str, str], warning: str) -> None:
    """What would become of it, `where` it stands; what is `said` of each field, and of the way."""
    now = time.time()
    kind = shown(before.kind)
    print(f"would edit {shown(before.id)} ({kind}, {where}); nothing was changed")
    if after.description != before.description:
        print(f"  description  {shown(before.description)}")
        print(f"            -> {shown(after.description)}")
        if said["description"] != AS_TYPED:
            print(f"               {shown(said['description'])}")
    if after.destination != before.destination:
        print(f"  to           {shown(before.destination)}")
        print(f"            -> {shown(after.destination)}")
    if after.due != before.due:
        print(f"  due          {_due(before, now)} -> {_due(after, now)}")
    if warning:
        print(f"  ! {shown(warning)}")


def _due(task: Task, now: float) -> str:
    if task.due is None:
        return "?"
    return present.moment(task.due, now) if task.due > now else "at once"


def _apply(setup: Setup, store: Store, plan: Plan) -> int:
    (row,) = plan.rows
    intent = Intent("edit", setup.who(), scope=f"task {row.id}", values=plan.values)
    report = run_plan.carry_out(store, setup.journal(), plan, intent, time.time)
    if report.trouble:
        complain(report.trouble)
    for ident in report.done:
        print(f"Task {ident} edited ({', '.join(plan.values)})")
        setup.log_if_allowed("INFO", f"Task edited: {ident}")
    for ident in report.gone:
        complain(f"{ident}: changed since it was seen; left alone")
    for ident, reason in report.failed:
        complain(f"{ident}: {shown(reason)}")
    return 0 if report.done else 1


def note(setup: Setup, arguments: Namespace) -> int:
    """Write a note on a task down, or take its notes away; exit 1 when there is no such task."""
    if why := notes.wrong(arguments.text):
        fail(EX_USAGE, why)
    store = setup.store()
    try:
        task = _task(store, arguments.id)
    finally:
        store.close()
    kept = notes.meant(arguments.text)
    setup.notes().add(task.id, kept, setup.who().name)
    print(f"noted: {shown(kept)}" if kept else "its notes are taken away")
    return 0


def list_notes(setup: Setup, arguments: Namespace) -> int:
    """Every note, a line each, by the ids of their tasks."""
    setup.require_sight()
    for ident, found in sorted(setup.notes().all().items()):
        for when, who, text in found:
            if arguments.json:
                told = {"id": ident, "when": when, "who": who, "text": text}
                print(json.dumps(told))
            else:
                at = time.strftime("%Y-%m-%d %H:%M", time.localtime(when))
                print(f"{shown(ident)}  {at}  {shown(who)}  {shown(text)}")
    return 0


def _task(store: Store, ident: str) -> Task:
    found = list(store.look({ident}))
    for task in found:
        if isinstance(task, Task) and task.id == ident:
            return task
    damage = [f": {shown(each.what)}" for each in found if isinstance(each, Problem)]
    raise Fail(1, f"{shown(ident)}: no such task{''.join(damage[:1])}")
