"""`queue list`, `queue count` and `queue count-dlq`."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from functools import partial

from engine.formats.base.format import Setup
from engine.model import Problem, State, Task, counted_attempts, own_word
from engine.store import ReadableStore
from engine.system.command_errors import EX_USAGE, fail, print_error
from engine.text.safe import safe_line
from engine.text.times import format_time
from tui.cli.setup.filter_option import parse_states
from tui.cli.setup.output import Answer, note_if_empty, show_progress


def list_tasks(setup: Setup, *, state: str, filter: str, csv: bool, json: bool) -> Answer:
    """List tasks, state by state."""
    if csv and json:
        fail(EX_USAGE, "expected only one of --csv and --json")
    store = setup.open_store()
    words = parse_states(store, state)

    def rows() -> Iterator[tuple[Task, str]]:
        with closing(store):
            tasks = _filtered_tasks(setup, store, words, filter)
            # On a terminal the tasks themselves are the progress.
            if not sys.stdout.isatty():
                tasks = show_progress(tasks, "tasks read")
            for scanned in note_if_empty(tasks, "tasks"):
                if isinstance(scanned, Task):
                    yield scanned, own_word(scanned, store.states, store.words)
                else:
                    print_error(f"{safe_line(scanned.where)}: {safe_line(scanned.what)}")

    def lines() -> Iterator[str]:
        if csv:
            from tui.text.task_row import ROW_FIELDS

            yield _csv_line({name: name for name in ROW_FIELDS})
        for task, word in rows():
            yield _csv_line(_row(task, word)) if csv else _line(task, word)

    return Answer(lambda: (_values(*row) for row in rows()), lines)


def _filtered_tasks(
    setup: Setup, store: ReadableStore, words: Mapping[str, State], text: str
) -> Iterator[Task | Problem]:
    """Yield the tasks that match a filter, as on the screen."""
    if not text:
        return _tasks(store, words)
    from engine.index.filter_tasks import select_matching
    from tui.cli.setup.filter_option import note_searched, parse_filter_option, read_data

    now = time.time()
    filter = parse_filter_option(text, store.states, now, store.words, reads_data=True)
    tasks = note_searched(store, _tasks(store, words), filter)
    limit = setup.retry_policy().max_attempts
    return select_matching(tasks, filter, now, partial(read_data, store), limit)


def _tasks(store: ReadableStore, words: Mapping[str, State]) -> Iterator[Task | Problem]:
    for scanned in store.scan(list(dict.fromkeys(store.states[of] for of in words.values()))):
        if isinstance(scanned, Problem) or (
            isinstance(scanned, Task) and own_word(scanned, store.states, store.words) in words
        ):
            yield scanned


def _row(task: Task, word: str) -> dict[str, object]:
    """The row of an export, with the attempts as the store counts them."""
    from tui.text.task_row import task_row

    return {**task_row(task, word), "attempts": counted_attempts(task)}


def _values(task: Task, word: str) -> dict[str, object]:
    from tui.text.task_row import time_fields

    lease = task.lease and {
        "owner": task.lease.owner,
        **time_fields("since", task.lease.since or None),
        **time_fields("until", task.lease.until),
    }
    return {**_row(task, word), "lease": lease}


def _csv_line(row: Mapping[str, object]) -> str:
    from tui.text.task_row import ROW_FIELDS, csv_lines

    return csv_lines([row], ROW_FIELDS).rstrip("\r\n")


def _line(task: Task, word: str) -> str:
    due = format_time(task.due) if task.due else "-"
    counted = "-" if (tries := counted_attempts(task)) is None else tries
    where = (task.queue, task.destination) if task.queue else ()  # not in the lines of the contract
    mail: tuple[str, ...] = ()
    if task.sender and task.sender not in task.description:
        from tui.text.task_fields import recipients_text

        mail = (f"{task.sender} to {recipients_text(task)}",)
    parts = (word, task.id, str(counted), due, *where, *mail, task.description, task.error)
    return " | ".join(safe_line(part) for part in parts if part)


def _count(state: State, setup: Setup) -> Answer:
    """Print the number of tasks in a state."""
    setup.format.make_queue(setup)
    with closing(setup.open_store()) as store:
        amount, word = store.count_tasks().get(state, 0), store.states.get(state, str(state))
    values = {"place": setup.place, "state": word, "count": amount}
    return Answer(lambda: values, lambda: [str(amount)])


count = partial(_count, State.PENDING)
count_dlq = partial(_count, State.DEAD)
