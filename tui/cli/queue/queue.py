"""`queue add`, `list`, `count` and `metrics`."""

from __future__ import annotations

import os
import sys
import time
from argparse import Namespace
from collections.abc import Iterator, Mapping
from contextlib import closing

from engine import verbs
from engine.model import Problem, State, Task, attempts_counted, own_word
from engine.policy import at
from engine.store import Full, Store, Unsupported
from engine.text.safe import shown
from tui.cli.setup.setup import EX_NOPERM, EX_USAGE, Setup, complain, fail, say, states_named

FULL = 1


def add(setup: Setup, arguments: Namespace) -> int:
    """Add a task; its id is printed once the disk has it, and exit 0 means just that."""
    setup.require_change()
    setup.make_queue()
    task = verbs.enqueue(
        arguments.kind,
        time.time(),
        os.urandom(4).hex(),
        arguments.description,
        arguments.payload,  # as it is: cleaned or made absolute it could name another file
    )
    store = setup.open()
    refused = store.edges[None, State.PENDING].refused
    if refused:
        fail(EX_NOPERM, refused)
    try:
        if not store.has_payload(task.payload):
            where = f"expected the absolute path of a file below {setup.queue.mail_spool}"
            fail(EX_USAGE, f"payload path {task.payload!r}: no such file, {where}")
        store.swap(None, task)
    except Unsupported as error:
        fail(EX_USAGE, str(error))
    except Full:
        # The contract's own words, which callers look for.
        print("ERROR: Queue full", file=sys.stderr)
        most = f"{setup.queue.max_pending} tasks"
        setup.log_if_allowed("ERROR", f"Queue at capacity ({most}). Rejecting task: {task.kind}")
        return FULL
    finally:
        store.close()
    say(task.id)
    setup.log_queued(task)
    return 0


def list_tasks(setup: Setup, arguments: Namespace) -> int:
    """Tasks by state, in the queue's order."""
    store = setup.store()
    words = states_named(store, arguments.state)
    try:
        for found in _sifted(store, words, arguments.filter):
            if isinstance(found, Problem):
                complain(f"{shown(found.where)}: {shown(found.what)}")
                continue
            word = own_word(found, store.states, store.words)
            print(as_json(found, word) if arguments.json else _line(found, word))
    finally:
        store.close()
    return 0


def _sifted(store: Store, words: Mapping[str, State], text: str) -> Iterator[Task | Problem]:
    """What a filter leaves, as on the screen."""
    if not text:
        return _tasks(store, words)
    from engine.index.filter_language import BadFilter, parse
    from engine.index.filter_tasks import sieve

    now = time.time()
    try:
        return sieve(_tasks(store, words), parse(text, store.states, now, store.words), now)
    except BadFilter as error:
        fail(EX_USAGE, f"--filter: {shown(error.message)}")


def _tasks(store: Store, words: Mapping[str, State]) -> Iterator[Task | Problem]:
    for found in store.look(list(dict.fromkeys(store.states[of] for of in words.values()))):
        if isinstance(found, Problem) or (
            isinstance(found, Task) and own_word(found, store.states, store.words) in words
        ):
            yield found


def as_json(task: Task, word: str) -> str:
    """A task as one line of JSON; times in epoch seconds UTC."""
    import json

    lease = task.lease and {"owner": task.lease.owner, "since": task.lease.since}
    return json.dumps(
        {
            "id": task.id,
            "state": word,
            "kind": task.kind,
            "created": task.created or None,
            "due": task.due,
            "attempts": attempts_counted(task),
            "description": task.description,
            "payload": task.payload,
            "error": task.error,
            "lease": lease,
            "rev": task.rev,
            **task.extra,
        }
    )


def _line(task: Task, word: str) -> str:
    due = at(task.due) if task.due else "-"
    counted = "-" if (tries := attempts_counted(task)) is None else tries
    parts = (word, task.id, str(counted), due, task.description, task.error)
    return " | ".join(shown(part) for part in parts if part)


def count(setup: Setup, arguments: Namespace) -> int:
    """Pending tasks."""
    return _count(setup, State.PENDING)


def count_dlq(setup: Setup, arguments: Namespace) -> int:
    """Dead tasks."""
    return _count(setup, State.DEAD)


def _count(setup: Setup, state: State) -> int:
    with closing(setup.store()) as store:
        print(setup.counts(store).get(state, 0))
    return 0


def show_metrics(setup: Setup, arguments: Namespace) -> int:
    """The text of queue.prom as it would be written now."""
    store = setup.open()
    sys.stdout.write(setup.metrics(store, time.time()).decode())
    store.close()
    return 0
