"""Queries of a place's index: age tables, due tasks by kind, groups."""

from __future__ import annotations

from engine.index import filter_language
from engine.index.age_table import Ages
from engine.index.filter_language import NO_FILTER, Filter
from engine.index.group_counts import MAX_GROUPS, GroupTable, query_groups
from engine.index.schema import Query
from engine.model import State
from tui.session.place_session import PlaceSession

AGE_TABLE_STATES = (State.PENDING, State.DEAD)
"""States with an age table, in order of preference."""

DUE_FILTER = "!due>now"
"""Filter for due tasks; a task without a due time counts as due."""


def age_groupings(session: PlaceSession) -> tuple[str, ...]:
    """The keys of `age_table.GROUPINGS` that a place has age tables by, in order of preference.

    A place with groups of its own, such as the hosts that mail goes to, has them by these and not
    by destination: the recipients of one host may have any domain.
    """
    return ("destination" if session.place.groups is None else "group", "kind", "error")


async def query_ages(
    session: PlaceSession, state: State, by: str, condition: Filter = NO_FILTER
) -> Ages:
    """Ages of the tasks in a state that match a filter, grouped by a key of `age_table.GROUPINGS`.

    Raises:
        Unavailable: the place was closed.
    """
    return await session.inspector.tallies.ages(Query(state, condition), by, session.clock())


async def first_useful_ages(
    session: PlaceSession, condition: Filter = NO_FILTER
) -> tuple[State, Ages]:
    """The first age table that is informative; else the first with a named row.

    Raises:
        Unavailable: the place was closed.
    """
    otherwise: tuple[State, Ages] | None = None
    for state in AGE_TABLE_STATES:
        for by in age_groupings(session):
            ages = await query_ages(session, state, by, condition)
            if ages.is_informative:
                return state, ages
            if any(row.name for row in ages.rows):
                otherwise = otherwise or (state, ages)
    return otherwise or (State.PENDING, await query_ages(session, State.PENDING, "kind", condition))


async def query_due_kinds(session: PlaceSession) -> Ages:
    """Ages of the due tasks, by kind.

    Raises:
        Unavailable: the place was closed.
    """
    query = Query(State.PENDING, filter_language.parse_filter(DUE_FILTER))
    return await session.inspector.tallies.ages(query, "kind", session.clock())


async def read_group_table(
    session: PlaceSession,
    query: Query,
    by: str,
    first: State | None = None,
    most: int = MAX_GROUPS,
) -> GroupTable:
    """The groups of a query's tasks, `most` of them, -1: all; those with the most tasks in the
    state `first` come first.

    Raises:
        Unavailable: the place was closed.
    """
    now, nothing = session.clock(), GroupTable()
    key = ("groups", query, by, first, most)
    shares = session.place.groups is not None and session.place.groups.share_payloads
    return await session.inspector.tallies.ask(
        key,
        lambda reader: query_groups(
            reader, query, by, now, first, counts_payloads=shares, most=most
        ),
        nothing,
    )
