"""`groups`: print the tasks of a place by queue, kind, group or destination."""

from __future__ import annotations

import shutil
import time
from argparse import Namespace
from collections.abc import Mapping, Sequence

from engine.formats.base.format import Setup
from engine.index.group_counts import GROUP_COLUMNS, MAX_GROUPS
from engine.model import State
from engine.store import Unavailable
from engine.system.command_errors import EX_USAGE, fail
from engine.text.safe import safe_line
from tui.cli.print.clusters import state_query
from tui.cli.setup.one_look import chosen_places, print_lines, scan_once
from tui.groups import group_lines as view
from tui.groups.grouping_reads import GroupsRead, read_groups
from tui.session.place_session import PlaceSession
from tui.text import task_row


def groups(setup: Setup, arguments: Namespace) -> int:
    """Print one line for each group, the largest first; without --all the rest as one line."""
    places = chosen_places(setup, [arguments.place] if arguments.place else [])[:1]

    async def ask(
        sessions: Sequence[PlaceSession],
    ) -> tuple[GroupsRead, dict[State, str], Mapping[str, str]]:
        (session,) = sessions
        if session.inspector.latest.unavailable:
            raise Unavailable(session.inspector.latest.unavailable)
        place_groups, titles = session.place.groups, session.place.group_titles
        most = -1 if arguments.all else MAX_GROUPS
        by = _grouping(arguments.by, titles, [] if place_groups is None else [place_groups.ring])
        groups_read = await read_groups(session, state_query(session, arguments), by, None, most)
        return groups_read, dict(session.inspector.states), titles

    (table, facts, _), states, titles = scan_once(places, ask)
    if arguments.json:
        for values in view.group_values(table.by, table.groups, states, facts):
            print(task_row.json_line(values), end="")
        if table.others:
            others_row = {"by": table.by, "others": table.others, "total": table.other_tasks}
            print(task_row.json_line(others_row), end="")
        return 0
    if table.by not in table.groupings:
        others = " or ".join(titles.get(by, by) for by in table.groupings)
        print(f"{view.no_values(titles.get(table.by, table.by))}; expected --by {others}")
        return 0
    width, now = shutil.get_terminal_size((100, 24)).columns, time.time()
    head, rows = view.group_table(
        table, states, None, now, width, title=titles.get(table.by, ""), facts=facts
    )
    print_lines([head, *rows, *view.others_line(table, width)])
    print(view.summary(table, titles))
    return 0


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
