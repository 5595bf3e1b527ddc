"""`edit`, `note` and `notes`: change one task, or write notes on tasks."""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Mapping
from contextlib import closing

from engine import verbs
from engine.formats.base.format import Setup
from engine.model import Edge, Problem, Task
from engine.operations import notes, plans, run_plan
from engine.operations.journal import Intent
from engine.operations.plans import Plan
from engine.store import DATA_PART, MAX_PART_BYTES, ChangeableStore, ReadableStore
from engine.system.command_errors import EX_USAGE, CommandError, fail, print_error
from engine.text.figure import UNKNOWN
from engine.text.safe import safe_line
from tui.cli.plans import plan_command
from tui.cli.setup.output import note_if_empty, print_json
from tui.plan.edit_lines import STORED_AS_TYPED, editable_fields, parse_fields, why_not_stored
from tui.plan.plan_lines import SENT_AS_REQUEST
from tui.text.task_row import time_fields, with_times
from tui.text.times import format_time_with_age

OPTIONS = {
    "description": "--description",
    "due": "--due",
    "destination": "--to",
    "priority": "--priority",
    "data": "--data",
}
"""The option for each editable field."""


def edit(setup: Setup, arguments: Namespace) -> int:
    """Change the description, due time, recipient, priority or data of a task, as far as its store
    keeps them; exit 1 if the task is gone or changed.
    """
    if arguments.dry_run is bool(arguments.apply) or arguments.apply > 1:
        fail(EX_USAGE, "expected --dry-run, which changes nothing, or --apply 1")
    if arguments.apply:
        setup.require_writable()
    now, store = time.time(), setup.open_store()
    try:
        task = _task(store, arguments.id)
        plan = plans.freeze_plan("edit", [task], now, edges=store.edges)
        edge = store.edges.get((task.state, task.state), Edge())
        typed = {name: getattr(arguments, name) for name in OPTIONS}
        if arguments.data:
            typed["data"] = _read_text(arguments.data)
        row = plan.rows[0]
        why = plans.row_refusal(store.edges, "edit", row) or row.barred
        if why := why or why_not_stored(edge, typed):
            fail(1, f"{task.id}: edit: {why}")
        if arguments.data:
            present_data = store.read(task, DATA_PART).decode(errors="surrogateescape")
            task = task._replace(data=present_data)
        parsed_fields = parse_fields(task, edge, typed, now)
        if parsed_fields.error:
            fail(EX_USAGE, parsed_fields.error)
        if not parsed_fields.values:
            others = " or ".join(OPTIONS[name] for name in editable_fields(edge))
            fail(EX_USAGE, f"nothing to change: expected a new {others}")
        plan = plan._replace(values=parsed_fields.values)
        if arguments.dry_run:
            after = verbs.edit(task, now, **parsed_fields.values)
            if arguments.json:
                print_json(_as_json(task.id, parsed_fields.values, is_dry_run=True))
                return 0
            _print_changes(task, after, store.states[task.state], parsed_fields.previews, edge)
            return 0
        return _apply(setup, store, plan, arguments)
    finally:
        store.close()


def _print_changes(
    before: Task, after: Task, where: str, previews: Mapping[str, str], edge: Edge
) -> None:
    """Print the changes of an edit. `where` is the state; `previews` describes how each field is
    stored.
    """
    now = time.time()
    kind = safe_line(before.kind)
    print(f"would edit {safe_line(before.id)} ({kind}, {where}); nothing was changed")
    if after.description != before.description:
        print(f"  description  {safe_line(before.description)}")
        print(f"            -> {safe_line(after.description)}")
        if previews["description"] != STORED_AS_TYPED:
            print(f"               {safe_line(previews['description'])}")
    if after.destination != before.destination:
        print(f"  to           {safe_line(before.destination)}")
        print(f"            -> {safe_line(after.destination)}")
    if after.due != before.due:
        print(f"  due          {_due(before, now)} -> {_due(after, now)}")
    if after.priority != before.priority:
        print(f"  priority     {before.priority} -> {after.priority}")
    if after.data is not None:
        print(f"  data         {previews['data']}")
    if edge.warning:
        print(f"  ! {safe_line(edge.warning)}")
    if not edge.exact:
        print(f"  {SENT_AS_REQUEST}")


def _read_text(path: str) -> str:
    """Read a file, or with - the standard input; more than `MAX_PART_BYTES` is cut."""
    try:
        with open(0 if path == "-" else path, "rb") as file:
            return file.read(MAX_PART_BYTES).decode()
    except (OSError, UnicodeDecodeError) as error:
        fail(EX_USAGE, f"--data {safe_line(path)}: {error}")


def _due(task: Task, now: float) -> str:
    if task.due is None:
        return UNKNOWN
    return format_time_with_age(task.due, now) if task.due > now else "now"


def _as_json(ident: str, values: Mapping[str, object], *, is_dry_run: bool) -> dict[str, object]:
    return {"id": ident, "dry_run": is_dry_run, "values": with_times(values, "due")}


def _apply(setup: Setup, store: ChangeableStore, plan: Plan, arguments: Namespace) -> int:
    (row,) = plan.rows
    intent = Intent("edit", setup.current_user(), scope=f"task {row.id}", values=plan.values)
    report = run_plan.run_journaled_plan(store, setup.journal(), plan, intent, time.time)
    if report.trouble:
        print_error(report.trouble)
    for ident in report.done:
        if arguments.json:
            print_json(_as_json(ident, plan.values, is_dry_run=False))
        else:
            print(f"Task {ident} edited ({', '.join(plan.values)})")
        setup.log_if_allowed("INFO", f"Task edited: {ident}")
    for ident in report.gone:
        print_error(f"{ident}: skipped: changed since the scan")
    for ident, reason in report.failed:
        print_error(f"{ident}: {safe_line(reason)}")
    return 0 if report.done else 1


def note(setup: Setup, arguments: Namespace) -> int:
    """Write a note on a task, or delete its notes; exit 1 if there is no such task."""
    if why := notes.note_problem(arguments.text):
        fail(EX_USAGE, why)
    store = setup.open_store()
    try:
        task = _task(store, arguments.id)
    finally:
        store.close()
    note_text = notes.parse_note(arguments.text)
    setup.notes().add(task.id, note_text, setup.current_user().name, task.created)
    if arguments.json:
        print_json({"id": task.id, "text": note_text or None})
    else:
        print(f"noted: {safe_line(note_text)}" if note_text else "notes deleted")
    return 0


def list_notes(setup: Setup, arguments: Namespace) -> int:
    """Print every note on one line, ordered by task id."""
    setup.require_readable()
    plan_command.require_place(setup)
    written = setup.notes().read_all()
    with closing(setup.open_store()) as store:
        tasks = {task.id: task for task in store.scan(frozenset(written)) if isinstance(task, Task)}
    notes_by_task = (
        (ident, _notes_of(tasks.get(ident), written, ident)) for ident in sorted(written)
    )
    for ident, task_notes in note_if_empty([one for one in notes_by_task if one[1]], "notes"):
        for when, who, text, _ in task_notes:
            if arguments.json:
                print_json({"id": ident, **time_fields("when", when), "who": who, "text": text})
            else:
                at = time.strftime("%Y-%m-%d %H:%M", time.localtime(when))
                print(f"{safe_line(ident)}  {at}  {safe_line(who)}  {safe_line(text)}")
    return 0


def _notes_of(task: Task | None, written: notes.NotesById, ident: str) -> tuple[notes.Note, ...]:
    return written[ident] if task is None else notes.notes_of(written, task, time.time())


def _task(store: ReadableStore, ident: str) -> Task:
    scanned = list(store.scan({ident}))
    for task in scanned:
        if isinstance(task, Task) and task.id == ident:
            return task
    damage = [f": {safe_line(each.what)}" for each in scanned if isinstance(each, Problem)]
    raise CommandError(1, f"{safe_line(ident)}: no such task{''.join(damage[:1])}")
