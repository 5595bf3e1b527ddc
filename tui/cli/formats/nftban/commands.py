"""`init`, `queue add` and `queue metrics`. With --batch, tasks are added in group commits: one for
each line of a file or stdin."""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from itertools import islice
from typing import NamedTuple

from engine import verbs
from engine.config.nftban_variables import RUN_DIR
from engine.formats.base.format import Setup
from engine.formats.nftban.detect import has_queue_folders
from engine.formats.nftban.queue_folders import (
    FORMAT,
    TITLE,
    folder_owner,
    make_queue,
    open_spool,
    spool_folders,
)
from engine.formats.nftban.store import COMMIT_GROUP_SIZE, NftbanStore, make_spool
from engine.formats.nftban.task_format import new_record
from engine.model import State, Task
from engine.store import Full, StoreError, Unavailable, Unsupported, enqueue_all
from engine.system.command_errors import (
    EX_NOPERM,
    EX_UNAVAILABLE,
    EX_USAGE,
    fail,
    print_error,
    print_result,
)
from engine.system.files import Refused
from engine.text.safe import safe_line
from tui.cli.formats.nftban.worker_parts import render_metrics
from tui.cli.setup.output import Answer

QUEUE_FULL = 1


def init(setup: Setup, place: str, *, exclusive: bool) -> Answer:
    """Make the missing folders of an NFTBan queue and print the next steps."""
    if setup.format_name != FORMAT:
        title = setup.format.title
        fail(EX_UNAVAILABLE, f"{safe_line(setup.place)} is {title}: nothing was changed")
    queue = setup.queue
    if exclusive and queue.run_dir == RUN_DIR:
        text = f"{safe_line(queue.root)} is NFTBan's own data folder"
        fail(EX_USAGE, f"{text}: --exclusive is for a queue that no other program uses")
    try:
        owner = folder_owner(queue.root)
        made = make_spool(spool_folders(setup), exclusive=exclusive, owner=owner)
    except OSError as error:
        error.filename = queue.root  # the system names only the last folder of the path
        raise
    for path in (queue.run_dir, queue.log_dir, queue.counters, queue.mail_spool):
        if not os.path.isdir(path):
            setup.make_folder(path)
            made.append(path)
    none = f"{safe_line(queue.root)} is already a complete queue; nothing was changed"
    where = shlex.quote(place)
    return Answer(
        lambda: {"place": queue.root, "made": made},
        lambda: [
            *([f"made {safe_line(path)}" for path in made] or [none]),
            f"next: spooldeck --root {where} queue add TYPE   adds a task",
            f"      spooldeck --root {where} queue work       runs tasks until stopped",
            f"      spooldeck {where}                         opens the console",
        ],
    )


class NewTask(NamedTuple):
    """What the words of `queue add` say."""

    kind: str
    description: str
    payload: str
    batch: str


def add(
    setup: Setup,
    place: str | None,
    *,
    root: str,
    kind: str,
    description: str,
    payload: str,
    batch: str,
    strict: bool,
    json: bool,
) -> int:
    """Add a task, or with --batch those of standard input; print the id of each.

    Exit 0 means that they are on the disk (fsync).
    """
    new = NewTask(kind, description, payload, batch)
    if not place:
        setup, new = _find_place(setup, root, new)
    if bool(new.kind) is bool(new.batch) or strict > bool(new.batch):
        fail(EX_USAGE, "expected either TYPE, or --batch FILE with the tasks (-: stdin; --strict)")
    setup.require_format(FORMAT, TITLE)
    setup.require_writable()
    make_queue(setup)
    store = open_spool(setup)
    refused = store.edges[None, State.PENDING].refusal
    if refused:
        fail(EX_NOPERM, refused)
    try:
        if new.batch:
            return add_batch(setup, store, new.batch, strict=strict, as_json=json)
        now = time.time()
        task = verbs.enqueue(
            new.kind,
            now,
            os.urandom(4).hex(),
            new.description,
            new.payload,  # unchanged: a cleaned or absolute path could name another file
        )
        if not store.has_payload(task.payload):
            where = f"expected the absolute path of a file below {setup.queue.mail_spool}"
            fail(EX_USAGE, f"payload path {task.payload!r}: no such file, {where}")
        store.swap(None, task)
    except Unsupported as error:
        fail(EX_USAGE, str(error))
    except Full:
        # The contract's text, which callers search for.
        print("ERROR: Queue full", file=sys.stderr)
        most = f"{setup.queue.max_pending} tasks"
        what = new.kind or "the rest of a batch"
        setup.log_if_allowed("ERROR", f"Queue at capacity ({most}). Rejecting task: {what}")
        return QUEUE_FULL
    finally:
        store.close()
    output = task.id
    if json:
        from tui.text.task_row import added_line

        output = added_line(task)
    code = print_result(output)
    setup.log_queued(task)
    return code


def _find_place(setup: Setup, root: str, new: NewTask) -> tuple[Setup, NewTask]:
    """The setup of the place, also if words before it are missing: it is never another queue; and
    the task without the place.

    Behind `--`, which scripts use, a description and a payload may be any text.
    """
    place = ""
    if new.batch and not new.description:
        if new.kind:  # the only word beside --batch
            place, new = new.kind, new._replace(kind="")
        elif os.path.isdir(new.batch):  # no FILE
            place, new = new.batch, new._replace(batch="-")
    elif "--" in setup.words:
        return setup, new
    elif has_queue_folders(new.payload):
        # The path of a payload is absolute, so `q` is a place.
        place, new = new.payload, new._replace(payload="")
    elif "/" in new.description and has_queue_folders(new.description) and not new.payload:
        kind, place = safe_line(new.kind), safe_line(new.description)
        fail(EX_USAGE, f"{place} is a queue, not a description: queue add {kind} '' {place}")
    if not place:
        return setup, new
    from tui.cli.plans.plan_command import setup_at  # not for each task that a script adds

    return setup_at(setup, root, [place]), new


def show_metrics(setup: Setup) -> Answer:
    """Print the current text of queue.prom, or its values by name."""
    store = open_spool(setup, "status --json")
    text = render_metrics(setup, store, time.time()).decode()
    store.close()

    def values() -> dict[str, object]:
        rows = (line.rsplit(" ", 1) for line in text.splitlines() if line[:1] not in ("#", ""))
        metrics = {name.partition("{")[0]: float(value) for name, value in rows}
        return {"place": setup.place, "metrics": metrics}

    return Answer(values, lambda: [text.removesuffix("\n")])


FIELDS = ("kind", "description", "payload")
"""Keys of the JSON object of a line, in the order of the tab-separated form."""


def add_batch(setup: Setup, store: NftbanStore, path: str, *, strict: bool, as_json: bool) -> int:
    """Add the tasks and print their ids in order, each when it is on the disk.

    A line is a JSON object with kind, description and payload, or these three separated by tabs;
    the last two may be missing. Empty lines are skipped. A line that is refused is reported with
    its number, and the others are added; with --strict no line behind it is. A full queue or a disk
    error ends the batch.

    Raises:
        Full: the queue is full.
        Unavailable: a disk error.
        OSError: the file cannot be opened.
    """
    from tui.text.task_row import added_line

    unreported: deque[tuple[int, object]] = deque()
    """Line numbers in order, each with the reason if the line is refused, None if it is a task."""
    refused = False
    ending: StoreError | None = None
    code = 0

    def report_refused() -> None:
        while unreported and unreported[0][1] is not None:
            number, why = unreported.popleft()
            print_error(f"line {number}: {why}")

    def read_tasks(lines: Iterable[str]) -> Iterator[Task]:
        nonlocal refused
        step = 0
        for number, line in enumerate(lines, 1):
            if ending is not None or (refused and strict):
                return
            if not line.strip():
                continue
            try:
                # Each line gets a later moment, and so a later id: they run in their order.
                step = max(int(time.time() * verbs.MOMENTS_PER_SECOND), step + 1)
                task = _parse_line(line, store, step / verbs.MOMENTS_PER_SECOND)
                if strict:
                    new_record(task)  # else the store checks it when the next lines are read
            except (Unsupported, Refused) as error:
                refused = True
                unreported.append((number, error))
                continue
            unreported.append((number, None))
            yield task

    is_file = path != "-"
    with open(path, errors="replace") if is_file else nullcontext(sys.stdin) as lines:
        outcomes = enqueue_all(store, read_tasks(lines))
        while group := list(islice(outcomes, COMMIT_GROUP_SIZE)):
            added = []
            for (_, task, *_), _, error, _ in group:
                report_refused()
                number, _ = unreported.popleft()
                if isinstance(error, Full | Unavailable):
                    ending = ending or error
                elif error is not None:
                    refused = True
                    print_error(f"line {number}: {error}")
                elif task is not None:
                    added.append(task)
            if added:
                added_lines = (added_line(task) if as_json else task.id for task in added)
                code = print_result("\n".join(added_lines)) or code
                setup.log_queued(*added)
    report_refused()
    if ending is not None:
        raise ending
    return EX_USAGE if refused else code


def _parse_line(line: str, store: NftbanStore, now: float) -> Task:
    """Return the task of one line, added at `now` (epoch seconds UTC).

    Raises:
        Unsupported: no task can be made of it; with the reason.
        Unavailable: its payload cannot be checked now.
    """
    if line.lstrip().startswith("{"):
        fields = _parse_object(line)
    else:
        fields = line.removesuffix("\n").split("\t")
        if len(fields) > len(FIELDS):
            raise Unsupported(f"{len(fields)} fields: expected TYPE, DESCRIPTION and PAYLOAD")
    kind, description, payload = (*fields, "", "")[:3]
    if not store.has_payload(payload):
        raise Unsupported(f"payload path {payload!r}: no such file")
    return verbs.enqueue(kind, now, os.urandom(4).hex(), description, payload)


def _parse_object(line: str) -> list[str]:
    """The fields of a JSON object.

    Raises:
        Unsupported: it is not valid, or has another key or value.
    """
    import json  # not for each task that a script adds

    try:
        values = json.loads(line)
    except json.JSONDecodeError as error:
        raise Unsupported(f"invalid JSON: {error.msg} at character {error.pos + 1}") from error
    except RecursionError as error:
        raise Unsupported("invalid JSON: nested too deeply") from error
    for key, value in values.items():
        if key not in FIELDS:
            expected = ", ".join(FIELDS)
            raise Unsupported(f"key {safe_line(key)!r}: expected one of {expected}")
        if not isinstance(value, str):
            raise Unsupported(f"{key}: expected a text")
    return [values.get(name, "") for name in FIELDS]
