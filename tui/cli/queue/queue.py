"""`queue add`, `queue list`, `queue count` and `queue metrics`."""

from __future__ import annotations

import os
import shlex
import sys
import time
from argparse import Namespace
from collections.abc import Iterator, Mapping
from contextlib import closing

from engine import verbs
from engine.config.nftban_variables import RUN_DIR
from engine.model import Problem, State, Task, counted_attempts, own_word
from engine.policy import format_time
from engine.store import Full, ReadableStore, Unsupported
from engine.stores.nftban import make_spool
from engine.text.safe import safe_line
from tui.cli.queue.spool import (
    FORMAT,
    TITLE,
    folder_owner,
    make_queue,
    open_spool,
    spool_folders,
)
from tui.cli.queue.worker_parts import render_metrics
from tui.cli.setup.errors import (
    EX_NOPERM,
    EX_UNAVAILABLE,
    EX_USAGE,
    fail,
    has_queue_folders,
    print_error,
    print_result,
)
from tui.cli.setup.output import note_if_empty, print_json, show_progress
from tui.cli.setup.setup import Setup, parse_states

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
            from tui.cli.queue.add_batch import add_batch

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
    shown = task.id
    if arguments.json:
        from tui.format.task_row import added_line

        shown = added_line(task)
    code = print_result(shown)
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


def list_tasks(setup: Setup, arguments: Namespace) -> int:
    """List tasks, state by state."""
    if arguments.csv and arguments.json:
        fail(EX_USAGE, "expected only one of --csv and --json")
    store = setup.open_store()
    words = parse_states(store, arguments.state)
    describe = _line
    if arguments.csv or arguments.json:
        from tui.format.task_row import ROW_FIELDS, csv_lines

        describe = _csv_line if arguments.csv else _json_line
        if arguments.csv:
            print(csv_lines([{name: name for name in ROW_FIELDS}], ROW_FIELDS), end="")
    try:
        tasks = _filtered_tasks(store, words, arguments.filter)
        # On a terminal the tasks themselves are the progress.
        if not sys.stdout.isatty():
            tasks = show_progress(tasks, "tasks read")
        for found in note_if_empty(tasks, "tasks"):
            if isinstance(found, Problem):
                print_error(f"{safe_line(found.where)}: {safe_line(found.what)}")
                continue
            print(describe(found, own_word(found, store.states, store.words)))
    finally:
        store.close()
    return 0


def _filtered_tasks(
    store: ReadableStore, words: Mapping[str, State], text: str
) -> Iterator[Task | Problem]:
    """Yield the tasks that match a filter, as on the screen."""
    if not text:
        return _tasks(store, words)
    from engine.index.filter_tasks import select_matching
    from tui.cli.setup.filter_option import parse_filter_option

    now = time.time()
    filter = parse_filter_option(text, store.states, now, store.words)
    return select_matching(_tasks(store, words), filter, now)


def _tasks(store: ReadableStore, words: Mapping[str, State]) -> Iterator[Task | Problem]:
    for found in store.scan(list(dict.fromkeys(store.states[of] for of in words.values()))):
        if isinstance(found, Problem) or (
            isinstance(found, Task) and own_word(found, store.states, store.words) in words
        ):
            yield found


def _row(task: Task, word: str) -> dict[str, object]:
    """The row of an export, with the attempts as the store counts them."""
    from tui.format.task_row import task_row

    return {**task_row(task, word), "attempts": counted_attempts(task)}


def _json_line(task: Task, word: str) -> str:
    from tui.format.task_row import json_line, time_fields

    lease = task.lease and {
        "owner": task.lease.owner,
        **time_fields("since", task.lease.since),
        **time_fields("until", task.lease.until),
    }
    return json_line({**_row(task, word), "lease": lease}).rstrip("\n")


def _csv_line(task: Task, word: str) -> str:
    from tui.format.task_row import ROW_FIELDS, csv_lines

    return csv_lines([_row(task, word)], ROW_FIELDS).rstrip("\r\n")


def _line(task: Task, word: str) -> str:
    due = format_time(task.due) if task.due else "-"
    counted = "-" if (tries := counted_attempts(task)) is None else tries
    where = (task.queue, task.destination) if task.queue else ()  # not in the lines of the contract
    parts = (word, task.id, str(counted), due, *where, task.description, task.error)
    return " | ".join(safe_line(part) for part in parts if part)


def count(setup: Setup, arguments: Namespace) -> int:
    """Print the number of pending tasks."""
    return _count(setup, State.PENDING, arguments)


def count_dlq(setup: Setup, arguments: Namespace) -> int:
    """Print the number of dead tasks."""
    return _count(setup, State.DEAD, arguments)


def _count(setup: Setup, state: State, arguments: Namespace) -> int:
    make_queue(setup)
    with closing(setup.open_store()) as store:
        amount = store.count_tasks().get(state, 0)
        if arguments.json:
            word = store.states.get(state, str(state))
            print_json({"place": setup.place, "state": word, "count": amount})
        else:
            print(amount)
    return 0


def show_metrics(setup: Setup, arguments: Namespace) -> int:
    """Print the current text of queue.prom, or its values by name."""
    store = open_spool(setup)
    text = render_metrics(setup, store, time.time()).decode()
    store.close()
    if arguments.json:
        rows = (line.rsplit(" ", 1) for line in text.splitlines() if line[:1] not in ("#", ""))
        print_json({"place": setup.place, "metrics": {name: float(value) for name, value in rows}})
    else:
        sys.stdout.write(text)
    return 0
