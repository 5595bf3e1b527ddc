"""Read the groups of a place, with what its format knows of its queues and their rings."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from engine.index.group_counts import MAX_GROUPS, GroupTable
from engine.index.schema import Query
from engine.model import State
from engine.places.place import GroupFacts
from engine.values import NamedTuple
from tui.groups.group_lines import merge_rings
from tui.session.index_queries import read_group_table
from tui.session.place_session import PlaceSession


class GroupsRead(NamedTuple):
    """The groups of one grouping."""

    table: GroupTable = GroupTable()
    facts: Mapping[str, GroupFacts] = {}
    """What is known of the queues, if they are the groups."""
    ring_queues: Mapping[str, list[str]] = {}
    """The queues of each ring, if rings are the groups."""


async def read_groups(
    session: PlaceSession, query: Query, by: str, first: State | None = None, most: int = MAX_GROUPS
) -> GroupsRead:
    """The groups of a query's tasks, `most` of them, -1: all; those with the most tasks in the
    state `first` come first.

    `by` is a key of `GROUP_COLUMNS`, the place's word for a ring, or "" for the default.

    Raises:
        Unavailable: the place was closed.
    """
    place_groups = session.place.groups
    is_ring = place_groups is not None and by == place_groups.ring
    table = await read_group_table(session, query, "queue" if is_ring else by, first, most)
    if place_groups is None or "queue" not in table.groupings:
        return GroupsRead(table)
    facts: Mapping[str, GroupFacts] = {}
    if table.by == "queue":
        facts = await asyncio.to_thread(place_groups.read, [group.name for group in table.groups])
    table = table._replace(groupings=(*table.groupings, place_groups.ring))
    if not is_ring:
        return GroupsRead(table, facts)
    queues: dict[str, list[str]] = {}
    for name, each in facts.items():
        queues.setdefault(each.ring, []).append(name)
    return GroupsRead(merge_rings(table, facts, place_groups.ring), {}, queues)
