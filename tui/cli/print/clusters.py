"""`clusters`: print the error clusters of a place."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from engine.formats.base.format import Setup
from engine.index.schema import Query
from engine.live.index_sync import Found
from engine.model import State, Task, state_words
from engine.store import ReadableStore, Unavailable
from engine.system.command_errors import EX_USAGE, fail
from engine.text.safe import safe_line
from tui.cli.setup.one_look import parse_place_filter, scan_place
from tui.cli.setup.output import Answer, columns
from tui.cli.setup.places import open_places
from tui.groups import cluster_lines as view
from tui.session.place_session import PlaceSession
from tui.session.recurrence_check import CheckedCluster, check_clusters
from tui.text.lines import Line


def clusters(setup: Setup, place: str | None, *, filter: str, state: str) -> Answer:
    """Print dead tasks grouped by error, and whether each error still happens."""
    opened = open_places(setup, [place] if place else [])[0]

    async def ask(session: PlaceSession) -> tuple[CheckedCluster, ...]:
        return await check_clusters(session, state_query(session, state, filter))

    checked_clusters = scan_place(opened, ask, partial(read_failed, word=state))
    return Answer(lambda: view.cluster_values(checked_clusters), lambda: _page(checked_clusters))


def _page(checked_clusters: Sequence[CheckedCluster]) -> Iterator[Line | str]:
    width, now = columns(), time.time()
    head, rows = view.cluster_table(checked_clusters, now, width)
    yield from [head, *(row.line for row in rows)]
    for judged in checked_clusters:
        title = f" {judged.cluster.mark}  still happening? {judged.now.text}"
        yield from [(), ((title, "title"),), *view.evidence_lines(judged, (), now, width)]
    yield view.summary(checked_clusters)


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


def state_query(session: PlaceSession, word: str, filter: str) -> Query:
    """The tasks that `--state` and `--filter` select.

    Raises:
        CommandError: the place has no such state, or the filter is not valid.
        Unavailable: the place cannot be read.
    """
    if session.inspector.latest.unavailable:
        raise Unavailable(session.inspector.latest.unavailable)
    words = session.inspector.words
    named_states = _states_by_word(session.inspector.states, words)
    if word and word not in named_states:
        fail(EX_USAGE, f"--state {safe_line(word)}: expected {', '.join(named_states)}")
    state = named_states.get(word)
    part = f" state={word}" if state in words.values() else ""
    return Query(state, parse_place_filter(f"{filter}{part}", session))


def _states_by_word(states: Mapping[State, str], words: Mapping[str, State]) -> dict[str, State]:
    return {word: state for state in states for word in state_words(state, states, words)}
