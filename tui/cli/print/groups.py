"""`groups`: print the tasks of a place by queue, kind, group or destination."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence

from engine.formats.base.format import Setup
from engine.index.group_counts import GROUP_COLUMNS, MAX_GROUPS
from engine.model import State
from engine.system.command_errors import EX_USAGE, fail
from engine.text.safe import safe_line
from tui.cli.print.clusters import state_query
from tui.cli.setup.one_look import scan_place
from tui.cli.setup.output import Answer, columns
from tui.cli.setup.places import open_places
from tui.groups import group_lines as view
from tui.groups.grouping_reads import GroupsRead, read_groups
from tui.session.place_session import PlaceSession
from tui.text.lines import Line


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

    (table, facts, _), states = scan_place(opened, ask)

    def values() -> Iterator[Mapping[str, object]]:
        yield from view.group_values(table.by, table.groups, states, facts)
        if table.others:
            yield {"by": table.by, "others": table.others, "total": table.other_tasks}

    def lines() -> Iterator[Line | str]:
        title, width = titles.get(table.by, ""), columns()
        if table.by not in table.groupings:
            others = " or ".join(titles.get(by, by) for by in table.groupings)
            yield f"{view.no_values(title or table.by)}; expected --by {others}"
            return
        head, rows = view.group_table(
            table, states, None, time.time(), width, title=title, facts=facts
        )
        yield from [head, *rows, *view.others_line(table, width)]
        yield view.summary(table, titles)

    return Answer(values, lines)


def _grouping(word: str, titles: Mapping[str, str], rings: Sequence[str]) -> str:
    """The grouping that a word names: a column of the index, or what this place calls one.

    Raises:
        CommandError: it names none.
    """
    named = {title: by for by, title in titles.items()}
    known = (*dict.fromkeys(titles.get(by, by) for by in GROUP_COLUMNS), *rings)
    if word and word not in (*GROUP_COLUMNS, *known):
        fail(EX_USAGE, f"--by {safe_line(word)}: expected one of {', '.join(known)}")
    return named.get(word, word)
