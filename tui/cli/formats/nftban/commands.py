"""`init`, `queue add` and `queue metrics`."""

from __future__ import annotations

import os
import shlex
import sys
import time
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
from engine.formats.nftban.store import make_spool
from engine.model import State
from engine.store import Full, Unsupported
from engine.system.command_errors import (
    EX_NOPERM,
    EX_UNAVAILABLE,
    EX_USAGE,
    fail,
    print_result,
)
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
            from tui.cli.formats.nftban.add_batch import add_batch

            return add_batch(setup, store, new.batch, strict=strict, as_json=json)
        now = time.time()
        task = verbs.enqueue(
            new.kind,
            now,
            verbs.token_at(now, os.urandom(2)),
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

    Raises:
        CommandError: a queue stands where the description does; the text has the words to type.
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
