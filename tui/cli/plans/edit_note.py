"""`edit`, `note` and `notes`: change one task, or write notes on tasks."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
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
from tui.cli.setup.output import Answer, note_if_empty
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


def edit(
    setup: Setup,
    id: str,
    *,
    description: str,
    due: str,
    destination: str,
    priority: str,
    data: str,
    dry_run: bool,
    apply: int,
) -> Answer:
    """Change what a store keeps of a task; exit 1 if the task is gone or changed."""
    typed = {"description": description, "due": due, "destination": destination}
    typed |= {"priority": priority, "data": data}
    if dry_run is bool(apply) or apply > 1:
        fail(EX_USAGE, "expected --dry-run, which changes nothing, or --apply 1")
    if apply:
        setup.require_writable()
    now = time.time()
    with closing(setup.open_store()) as store:
        task = _task(store, id)
        plan = plans.freeze_plan("edit", [task], now, edges=store.edges)
        edge = store.edges.get((task.state, task.state), Edge())
        if data:
            typed["data"] = _read_text(data)
        row = plan.rows[0]
        why = plans.row_refusal(store.edges, "edit", row) or row.barred
        if why := why or why_not_stored(edge, typed):
            fail(1, f"{task.id}: edit: {why}")
        if data:
            present_data = store.read(task, DATA_PART).decode(errors="surrogateescape")
            task = task._replace(data=present_data)
        parsed_fields = parse_fields(task, edge, typed, now)
        if parsed_fields.error:
            fail(EX_USAGE, parsed_fields.error)
        if not parsed_fields.values:
            others = " or ".join(OPTIONS[name] for name in editable_fields(edge))
            fail(EX_USAGE, f"nothing to change: expected a new {others}")
        if apply:
            return _apply(setup, store, plan._replace(values=parsed_fields.values))
        after, where = verbs.edit(task, now, **parsed_fields.values), store.states[task.state]
    return Answer(
        lambda: _values(task.id, parsed_fields.values, is_dry_run=True),
        lambda: _changes(task, after, where, parsed_fields.previews, edge),
    )


def _changes(
    before: Task, after: Task, where: str, previews: Mapping[str, str], edge: Edge
) -> Iterator[str]:
    """The changes of an edit. `where` is the state; `previews` describes how each field is
    stored."""
    now = time.time()
    kind = safe_line(before.kind)
    yield f"would edit {safe_line(before.id)} ({kind}, {where}); nothing was changed"
    if after.description != before.description:
        yield f"  description  {safe_line(before.description)}"
        yield f"            -> {safe_line(after.description)}"
        if previews["description"] != STORED_AS_TYPED:
            yield f"               {safe_line(previews['description'])}"
    if after.destination != before.destination:
        yield f"  to           {safe_line(before.destination)}"
        yield f"            -> {safe_line(after.destination)}"
    if after.due != before.due:
        yield f"  due          {_due(before, now)} -> {_due(after, now)}"
    if after.priority != before.priority:
        yield f"  priority     {before.priority} -> {after.priority}"
    if after.data is not None:
        yield f"  data         {previews['data']}"
    if edge.warning:
        yield f"  ! {safe_line(edge.warning)}"
    if not edge.exact:
        yield f"  {SENT_AS_REQUEST}"


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


def _values(ident: str, values: Mapping[str, object], *, is_dry_run: bool) -> dict[str, object]:
    return {"id": ident, "dry_run": is_dry_run, "values": with_times(values, "due")}


def _apply(setup: Setup, store: ChangeableStore, plan: Plan) -> Answer:
    (row,) = plan.rows
    intent = Intent("edit", setup.current_user(), scope=f"task {row.id}", values=plan.values)
    report = run_plan.run_journaled_plan(store, setup.journal(), plan, intent, time.time)
    if report.trouble:
        print_error(report.trouble)
    for ident in report.done:
        setup.log_if_allowed("INFO", f"Task edited: {ident}")
    for ident in report.gone:
        print_error(f"{ident}: skipped: changed since the scan")
    for ident, reason in report.failed:
        print_error(f"{ident}: {safe_line(reason)}")
    return Answer(
        lambda: (_values(ident, plan.values, is_dry_run=False) for ident in report.done),
        lambda: (f"Task {ident} edited ({', '.join(plan.values)})" for ident in report.done),
        0 if report.done else 1,
    )


def note(setup: Setup, id: str, text: str) -> Answer:
    """Write a note on a task, or delete its notes; exit 1 if there is no such task."""
    if why := notes.note_problem(text):
        fail(EX_USAGE, why)
    with closing(setup.open_store()) as store:
        task = _task(store, id)
    note_text = notes.parse_note(text)
    setup.notes().add(task.id, note_text, setup.current_user().name, task.created)
    return Answer(
        lambda: {"id": task.id, "text": note_text or None},
        lambda: [f"noted: {safe_line(note_text)}" if note_text else "notes deleted"],
    )


def list_notes(setup: Setup) -> Answer:
    """Print every note on one line, ordered by task id."""
    setup.require_readable()
    plan_command.require_place(setup)
    written = setup.notes().read_all()
    with closing(setup.open_store()) as store:
        tasks = {task.id: task for task in store.scan(frozenset(written)) if isinstance(task, Task)}

    def line(row: tuple[str, notes.Note]) -> str:
        ident, (when, who, text, _) = row
        at = time.strftime("%Y-%m-%d %H:%M", time.localtime(when))
        return f"{safe_line(ident)}  {at}  {safe_line(who)}  {safe_line(text)}"

    def values(row: tuple[str, notes.Note]) -> dict[str, object]:
        ident, (when, who, text, _) = row
        return {"id": ident, **time_fields("when", when), "who": who, "text": text}

    rows = [(id, note) for id in sorted(written) for note in _notes(tasks.get(id), written, id)]
    noted = note_if_empty(rows, "notes")
    return Answer(lambda: map(values, noted), lambda: map(line, noted))


def _notes(task: Task | None, written: notes.NotesById, ident: str) -> tuple[notes.Note, ...]:
    return written[ident] if task is None else notes.notes_of(written, task, time.time())


def _task(store: ReadableStore, ident: str) -> Task:
    scanned = list(store.scan({ident}))
    for task in scanned:
        if isinstance(task, Task) and task.id == ident:
            return task
    damage = [f": {safe_line(each.what)}" for each in scanned if isinstance(each, Problem)]
    raise CommandError(1, f"{safe_line(ident)}: no such task{''.join(damage[:1])}")
