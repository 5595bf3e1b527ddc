"""`status` of a place in another program's format: what the console would say of it, once."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import NamedTuple

from engine.model import Problem, State, counted_by_words
from engine.monitor.alerts import Alert, AlertKind
from engine.store import Unavailable
from engine.text.safe import shown
from tui.cli.setup.one_look import glance
from tui.cli.setup.places import places_of
from tui.cli.setup.setup import Setup, complain
from tui.format.present import span
from tui.session.place_session import PlaceSession

WELL, ATTENTION, UNREADABLE = 0, 1, 2
SHOWN_PROBLEMS = 10


class PlaceStatus(NamedTuple):
    """What one look found."""

    counts: dict[str, int]
    """Tasks by the store's own words."""
    waiting: int
    """Pending tasks."""
    oldest: float | None
    """Seconds since the oldest pending task was created; None where none is, or nobody knows."""
    problems: Sequence[Problem]
    facts: Sequence[tuple[str, str]]
    attention: Sequence[str]
    """What somebody should see to."""


def status(setup: Setup, as_json: bool) -> int:
    """Say how a place is; exit 0 well, 1 needs attention, 2 cannot be read."""
    found = glance(places_of(setup, [setup.place]), _look)
    if isinstance(found, str):
        complain(shown(found))
        return UNREADABLE
    print(json.dumps(_as_row(setup, found)) if as_json else "\n".join(_as_text(setup, found)))
    return ATTENTION if found.attention else WELL


async def _look(lives: Sequence[PlaceSession]) -> PlaceStatus | str:
    (live,) = lives
    latest = live.inspector.latest
    if latest.unavailable:
        return latest.unavailable
    try:
        await live.count_what_waits()
        problems = await live.inspector.problems()
    except Unavailable as error:
        return str(error)
    states, waiting = live.inspector.states, live.standing
    oldest = None if waiting is None or waiting.oldest is None else time.time() - waiting.oldest
    return PlaceStatus(
        counted_by_words(latest.counts, latest.words, states, live.inspector.words),
        latest.counts.get(State.PENDING, 0),
        oldest,
        problems,
        live.signs.facts.rows,
        [_in_full(alert) for alert in live.alerts],
    )


def _in_full(alert: Alert) -> str:
    """What an alert says: a warning of the queue as it said it, for here is room for all of it."""
    return shown(alert.leads_to.name) if alert.what is AlertKind.WARNED else alert.words


def _as_text(setup: Setup, look: PlaceStatus) -> list[str]:
    counts = "  ".join(f"{word} {number:,}" for word, number in look.counts.items())
    lines = [f"queue     {shown(setup.place)}", f"tasks     {counts}"]
    if look.waiting:
        age = "?" if look.oldest is None else span(look.oldest)
        lines.append(f"oldest    {age} waiting")
    lines += [f"{shown(name):<9} {shown(words)}" for name, words in look.facts]
    shown_of = look.problems[:SHOWN_PROBLEMS]
    lines += [f"problem   {shown(one.where)}: {shown(one.what)}" for one in shown_of]
    if len(look.problems) > SHOWN_PROBLEMS:
        lines.append(f"          and {len(look.problems) - SHOWN_PROBLEMS:,} more")
    lines += [f"attention {words}" for words in look.attention]
    return lines if look.attention else [*lines, "well      nothing needs attention"]


def _as_row(setup: Setup, look: PlaceStatus) -> dict[str, object]:
    return {
        "queue": setup.place,
        "tasks": look.counts,
        "oldest_pending_age": look.oldest,
        "facts": dict(look.facts),
        "problems": [{"where": one.where, "what": one.what} for one in look.problems],
        "attention": list(look.attention),
    }
