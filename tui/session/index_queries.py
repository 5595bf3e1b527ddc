"""Which age table of a place says most, and what waits behind its lock: asked of its index."""

from __future__ import annotations

from engine.index import filter_language
from engine.index.age_table import BY, Ages
from engine.index.filter_language import NOTHING, Filter
from engine.index.schema import Query
from engine.model import State
from tui.session.place_session import PlaceSession

TOLD_OF = (State.PENDING, State.DEAD)
"""Whose ages are told: what waits, and what was given up on."""

DUE = "!due>now"
"""What waits behind a lock, in the filter language: also where no store says when it is due."""


async def ages(live: PlaceSession, state: State, by: str, wanted: Filter = NOTHING) -> Ages:
    """How old the tasks of a state are, by a key of `BY`; of those that a filter wants.

    Raises:
        Unavailable: the place is not open any more.
    """
    return await live.inspector.ages(Query(state, wanted), by, live.clock())


async def first_telling(live: PlaceSession, wanted: Filter = NOTHING) -> tuple[State, Ages]:
    """The first table that has more than one name; else the first that has any.

    Raises:
        Unavailable: the place is not open any more.
    """
    otherwise: tuple[State, Ages] | None = None
    for state in TOLD_OF:
        for by in BY:
            found = await ages(live, state, by, wanted)
            if len(found.rows) > 1:
                return state, found
            if any(row.name for row in found.rows):
                otherwise = otherwise or (state, found)
    return otherwise or (State.PENDING, await ages(live, State.PENDING, "kind", wanted))


async def due_kinds(live: PlaceSession) -> Ages:
    """What is due, by kind.

    Raises:
        Unavailable: the place is not open any more.
    """
    query = Query(State.PENDING, filter_language.parse(DUE))
    return await live.inspector.ages(query, "kind", live.clock())
