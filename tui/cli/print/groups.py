"""`clusters` and `groups`: print the failed tasks of a place by error; its tasks by queue, kind,
group, destination, sender or account."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from engine.formats.base.format import Setup
from engine.index.group_counts import GROUP_COLUMNS, MAX_GROUPS
from engine.index.schema import Query
from engine.live.index_sync import Found
from engine.model import State, Task, state_words
from engine.store import ReadableStore, Unavailable
from engine.system.command_errors import EX_USAGE, fail
from engine.text.safe import safe_line
from tui.cli.setup.one_look import parse_place_filter, scan_for, scan_place
from tui.cli.setup.output import Answer, columns
from tui.cli.setup.places import open_places
from tui.groups import cluster_lines, group_lines
from tui.groups.grouping_reads import GroupsRead, read_groups
from tui.session.index_queries import CheckedCluster, check_clusters
from tui.session.place_session import PlaceSession
from tui.text.lines import Line


def clusters(setup: Setup, place: str | None, *, filter: str, state: str) -> Answer:
    """Print dead tasks grouped by error, and whether each error still happens."""
    opened = open_places(setup, [place] if place else [])[0]

    async def ask(session: PlaceSession) -> tuple[CheckedCluster, ...]:
        return await check_clusters(session, state_query(session, state, filter))

    checked = scan_place(opened, ask, partial(read_failed, word=state))
    return Answer(lambda: cluster_lines.cluster_values(checked), lambda: _page(checked))


def _page(checked: Sequence[CheckedCluster]) -> Iterator[Line | str]:
    width, now = columns(), time.time()
    head, rows = cluster_lines.cluster_table(checked, now, width)
    yield from [head, *(row.line for row in rows)]
    for judged in checked:
        title = f" {judged.cluster.mark}  still happening? {judged.now.text}"
        lines = cluster_lines.evidence_lines(judged, (), now, width, state=None)
        yield from [(), ((title, "title"),), *lines]
    yield cluster_lines.summary(checked)


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


def groups(
    setup: Setup, place: str | None, *, filter: str, state: str, by: str, all: bool
) -> Answer:
    """Print one line for each group, the largest first; without --all the rest as one line."""
    opened = open_places(setup, [place] if place else [])[0]
    titles = opened.group_titles

    async def ask(session: PlaceSession) -> tuple[GroupsRead, dict[State, str]]:
        query = state_query(session, state, filter)
        rings = [] if opened.groups is None else [opened.groups.ring]
        most = -1 if all else MAX_GROUPS
        groups_read = await read_groups(session, query, _grouping(by, titles, rings), None, most)
        return groups_read, dict(session.inspector.states)

    (table, facts, _), states = scan_place(opened, ask, scan_for(filter, by))

    def values() -> Iterator[Mapping[str, object]]:
        yield from group_lines.group_values(table, table.groups, states, facts)
        if table.others:
            others = {"unit": table.unit, "others": table.others, "total": table.other_tasks}
            yield {"by": table.by, **others}

    def lines() -> Iterator[Line | str]:
        title, width = titles.get(table.by, ""), columns()
        if table.by not in table.groupings:
            others = " or ".join(titles.get(by, by) for by in table.groupings)
            yield from group_lines.unread_line(table, opened, width)
            yield f"{group_lines.no_values(title or table.by)}; expected --by {others}"
            return
        head, rows = group_lines.group_table(
            table, states, None, time.time(), width, title=title, facts=facts
        )
        yield from [head, *rows, *group_lines.others_line(table, width)]
        yield from group_lines.unread_line(table, opened, width)
        yield group_lines.summary(table, titles)

    return Answer(values, lines)


def _grouping(word: str, titles: Mapping[str, str], rings: Sequence[str]) -> str:
    """The grouping that a word names: a column of the index, or what this place calls one."""
    named = {title: by for by, title in titles.items()}
    known = (*dict.fromkeys(titles.get(by, by) for by in GROUP_COLUMNS), *rings)
    if word and word not in (*GROUP_COLUMNS, *known):
        fail(EX_USAGE, f"--by {safe_line(word)}: expected one of {', '.join(known)}")
    return named.get(word, word)
