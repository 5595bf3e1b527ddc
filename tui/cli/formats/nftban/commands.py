"""`init`, `queue add` and `queue metrics`."""

from __future__ import annotations

import os
import shlex
import sys
import time
from argparse import Namespace

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
from tui.cli.setup.output import print_json

QUEUE_FULL = 1


def init(setup: Setup, arguments: Namespace) -> int:
    """Make the missing folders of an NFTBan queue and print the next steps."""
    if setup.format_name != FORMAT:
        title = setup.format.title
        fail(EX_UNAVAILABLE, f"{safe_line(setup.place)} is {title}: nothing was changed")
    queue = setup.queue
    if arguments.exclusive and queue.run_dir == RUN_DIR:
        text = f"{safe_line(queue.root)} is NFTBan's own data folder"
        fail(EX_USAGE, f"{text}: --exclusive is for a queue that no other program uses")
    try:
        owner = folder_owner(queue.root)
        made = make_spool(spool_folders(setup), exclusive=arguments.exclusive, owner=owner)
    except OSError as error:
        error.filename = queue.root  # the system names only the last folder of the path
        raise
    for path in (queue.run_dir, queue.log_dir, queue.counters, queue.mail_spool):
        if not os.path.isdir(path):
            setup.make_folder(path)
            made.append(path)
    if arguments.json:
        print_json({"place": queue.root, "made": made})
        return 0
    if not made:
        print(f"{safe_line(queue.root)} is already a complete queue; nothing was changed")
    for path in made:
        print(f"made {safe_line(path)}")
    where = shlex.quote(arguments.place)
    print(
        f"next: spooldeck --root {where} queue add TYPE   adds a task\n"
        f"      spooldeck --root {where} queue work       runs tasks until stopped\n"
        f"      spooldeck {where}                         opens the console"
    )
    sys.stdout.flush()
    return 0


def add(setup: Setup, arguments: Namespace) -> int:
    """Add a task, or with --batch those of standard input; print the id of each.

    Exit 0 means that they are on the disk (fsync).
    """
    setup = _find_place(setup, arguments)
    if bool(arguments.kind) is bool(arguments.batch) or arguments.strict > bool(arguments.batch):
        fail(EX_USAGE, "expected either TYPE, or --batch FILE with the tasks (-: stdin; --strict)")
    setup.require_format(FORMAT, TITLE)
    setup.require_writable()
    make_queue(setup)
    store = open_spool(setup)
    refused = store.edges[None, State.PENDING].refusal
    if refused:
        fail(EX_NOPERM, refused)
    try:
        if arguments.batch:
            from tui.cli.formats.nftban.add_batch import add_batch

            return add_batch(setup, store, arguments)
        now = time.time()
        task = verbs.enqueue(
            arguments.kind,
            now,
            verbs.token_at(now, os.urandom(2)),
            arguments.description,
            arguments.payload,  # unchanged: a cleaned or absolute path could name another file
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
        what = arguments.kind or "the rest of a batch"
        setup.log_if_allowed("ERROR", f"Queue at capacity ({most}). Rejecting task: {what}")
        return QUEUE_FULL
    finally:
        store.close()
    output = task.id
    if arguments.json:
        from tui.text.task_row import added_line

        output = added_line(task)
    code = print_result(output)
    setup.log_queued(task)
    return code


def _find_place(setup: Setup, arguments: Namespace) -> Setup:
    """The setup of the place, also if words before it are missing: it is never another queue.

    Behind `--`, which scripts use, a description and a payload may be any text.

    Raises:
        CommandError: a queue stands where the description does; the text has the words to type.
    """
    if arguments.place:
        return setup
    place = ""
    if arguments.batch and not arguments.description:
        if arguments.kind:  # the only word beside --batch
            place, arguments.kind = arguments.kind, ""
        elif os.path.isdir(arguments.batch):  # no FILE
            place, arguments.batch = arguments.batch, "-"
    elif "--" in setup.words:
        return setup
    elif has_queue_folders(arguments.payload):
        # The path of a payload is absolute, so `q` is a place.
        place, arguments.payload = arguments.payload, ""
    elif (
        "/" in arguments.description
        and has_queue_folders(arguments.description)
        and not arguments.payload
    ):
        kind, place = safe_line(arguments.kind), safe_line(arguments.description)
        fail(EX_USAGE, f"{place} is a queue, not a description: queue add {kind} '' {place}")
    if not place:
        return setup
    from tui.cli.plans.plan_command import setup_at  # not for each task that a script adds

    return setup_at(setup, arguments, [place])


def show_metrics(setup: Setup, arguments: Namespace) -> int:
    """Print the current text of queue.prom, or its values by name."""
    store = open_spool(setup, "status --json")
    text = render_metrics(setup, store, time.time()).decode()
    store.close()
    if arguments.json:
        rows = (line.rsplit(" ", 1) for line in text.splitlines() if line[:1] not in ("#", ""))
        metrics = {name.partition("{")[0]: float(value) for name, value in rows}
        print_json({"place": setup.place, "metrics": metrics})
    else:
        sys.stdout.write(text)
    return 0
