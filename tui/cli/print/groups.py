"""`groups`: print the tasks of a place by queue, kind, group or destination."""

from __future__ import annotations

import asyncio
import shutil
import time
from argparse import Namespace
from collections.abc import Mapping, Sequence

from engine.index.group_counts import GroupTable
from engine.model import State
from engine.store import Unavailable
from tui.cli.print.clusters import state_query
from tui.cli.setup.one_look import chosen_places, print_lines, scan_once
from tui.cli.setup.setup import Setup
from tui.format import task_row
from tui.groups import group_lines as view
from tui.session.index_queries import read_group_table
from tui.session.place import GroupFacts
from tui.session.place_session import PlaceSession


def groups(setup: Setup, arguments: Namespace) -> int:
    """Print one line for each group, the largest first, and the number of the others."""
    places = chosen_places(setup, [arguments.place] if arguments.place else [])[:1]

    async def ask(
        lives: Sequence[PlaceSession],
    ) -> tuple[GroupTable, dict[State, str], str, Mapping[str, GroupFacts]]:
        (live,) = lives
        if live.inspector.latest.unavailable:
            raise Unavailable(live.inspector.latest.unavailable)
        table = await read_group_table(live, state_query(live, arguments), arguments.by)
        own, facts = live.place.groups, view.NO_FACTS
        if own is not None and table.by == "queue":
            facts = await asyncio.to_thread(own.read, [group.name for group in table.groups])
        title = own.titles.get(table.by, "") if own is not None else ""
        return table, dict(live.inspector.states), title, facts

    table, states, title, facts = scan_once(places, ask)
    if arguments.json:
        for values in view.group_values(table.by, table.groups, states):
            print(task_row.json_line(values), end="")
        if table.others:
            rest = {"by": table.by, "others": table.others, "total": table.other_tasks}
            print(task_row.json_line(rest), end="")
        return 0
    if table.by not in table.groupings:
        print(f"{view.no_values(table.by)}; expected --by {' or '.join(table.groupings)}")
        return 0
    width, now = shutil.get_terminal_size((100, 24)).columns, time.time()
    columns = view.GroupColumns(table, states, None, width, title, facts)
    rows = [columns.row(group, now) for group in table.groups]
    print_lines([columns.head(), *rows, *view.others_line(table, width)])
    print(view.summary(table))
    return 0
