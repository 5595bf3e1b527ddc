"""`clusters`: print the error clusters of a place."""

from __future__ import annotations

import shutil
import time
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from engine.formats.base.format import Setup
from engine.index.schema import Query
from engine.live.index_sync import Found
from engine.model import State, Task, state_words
from engine.store import ReadableStore, Unavailable
from engine.system.command_errors import EX_USAGE, fail
from engine.text.safe import safe_line
from tui.cli.setup.one_look import chosen_places, parse_place_filter, print_lines, scan_once
from tui.groups import cluster_lines as view
from tui.session.index_queries import CheckedCluster, check_clusters
from tui.session.place_session import PlaceSession
from tui.text import task_row


def clusters(setup: Setup, arguments: Namespace) -> int:
    """Print dead tasks grouped by error, and whether each error still happens."""
    places = chosen_places(setup, [arguments.place] if arguments.place else [])[:1]

    async def ask(sessions: Sequence[PlaceSession]) -> tuple[CheckedCluster, ...]:
        (session,) = sessions
        if session.inspector.latest.unavailable:
            raise Unavailable(session.inspector.latest.unavailable)
        return await check_clusters(session, state_query(session, arguments))

    checked_clusters = scan_once(places, ask, partial(read_failed, word=arguments.state))
    if arguments.json:
        for values in view.cluster_values(checked_clusters):
            print(task_row.json_line(values), end="")
        return 0
    width, now = shutil.get_terminal_size((100, 24)).columns, time.time()
    head, rows = view.cluster_table(checked_clusters, now, width)
    print_lines([head, *(row.line for row in rows)])
    for judged in checked_clusters:
        title = f" {judged.cluster.mark}  still happening? {judged.now.text}"
        print_lines([(), ((title, "title"),), *view.evidence_lines(judged, (), now, width)])
    print(view.summary(checked_clusters))
    return 0


def read_failed(store: ReadableStore, word: str | None) -> Iterator[Found]:
    """Read the failed tasks of a state, or of all in which a task has an error.

    The finished tasks are read only if others name a destination: that a task for it succeeded is
    then evidence that an error has ended.
    """
    named = _states_by_word(store.states, store.words)
    chosen_states = {named[word]} if word in named else {*store.states} - {State.DONE}
    has_destination = False
    # In the order of the store's states: of tasks with one error the last one read is the example.
    words = [store.states[state] for state in store.states if state in chosen_states]
    for scanned in store.scan_failed(words):
        has_destination |= isinstance(scanned, Task) and bool(scanned.destination)
        yield scanned
    if has_destination and State.DONE in {*store.states} - chosen_states:
        yield from store.scan({store.states[State.DONE]})


def state_query(session: PlaceSession, arguments: Namespace) -> Query:
    """The tasks that `--state` and `--filter` select.

    Raises:
        CommandError: the place has no such state, or the filter is not valid.
    """
    words = session.inspector.words
    named_states = _states_by_word(session.inspector.states, words)
    if arguments.state and arguments.state not in named_states:
        expected = ", ".join(named_states)
        fail(EX_USAGE, f"--state {safe_line(arguments.state)}: expected {expected}")
    state = named_states.get(arguments.state)
    part = f" state={arguments.state}" if state in words.values() else ""
    return Query(state, parse_place_filter(f"{arguments.filter}{part}", session))


def _states_by_word(states: Mapping[State, str], words: Mapping[str, State]) -> dict[str, State]:
    return {word: state for state in states for word in state_words(state, states, words)}
