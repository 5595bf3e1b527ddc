"""`status` of a place in another program's format."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import NamedTuple

from engine.model import Problem, State, count_by_words
from engine.monitor.alerts import Alert, AlertKind
from engine.store import Unavailable
from engine.text.safe import safe_line
from tui.cli.setup.one_look import scan_once
from tui.cli.setup.places import open_places
from tui.cli.setup.setup import Setup, print_error
from tui.format.present import format_duration
from tui.session.place_session import PlaceSession

OK, ATTENTION, UNREADABLE = 0, 1, 2
SHOWN_PROBLEMS = 10


class PlaceStatus(NamedTuple):
    """Result of one scan of a place."""

    counts: dict[str, int]
    """Tasks by the store's own words."""
    waiting: int
    """Pending tasks."""
    oldest: float | None
    """Age of the oldest pending task in seconds; None if there is none or it is unknown."""
    problems: Sequence[Problem]
    facts: Sequence[tuple[str, str]]
    attention: Sequence[str]
    """Texts of the alerts."""


def status(setup: Setup, as_json: bool) -> int:
    """Print a summary of a place; exit 0 OK, 1 needs attention, 2 unreadable."""
    found = scan_once(open_places(setup, [setup.place]), _look)
    if isinstance(found, str):
        print_error(safe_line(found))
        return UNREADABLE
    print(json.dumps(_as_row(setup, found)) if as_json else "\n".join(_as_text(setup, found)))
    return ATTENTION if found.attention else OK


async def _look(lives: Sequence[PlaceSession]) -> PlaceStatus | str:
    (live,) = lives
    latest = live.inspector.latest
    if latest.unavailable:
        return latest.unavailable
    try:
        await live.query_backlog()
        problems = await live.inspector.queries.problems()
    except Unavailable as error:
        return str(error)
    states, waiting = live.inspector.states, live.backlog
    oldest = None if waiting is None or waiting.oldest is None else time.time() - waiting.oldest
    return PlaceStatus(
        count_by_words(latest.counts, latest.words, states, live.inspector.words),
        latest.counts.get(State.PENDING, 0),
        oldest,
        problems,
        live.readings.queue_figures.rows,
        [_in_full(alert) for alert in live.alerts],
    )


def _in_full(alert: Alert) -> str:
    """The text of an alert; a warning of the queue in full, as there is room for it here."""
    return safe_line(alert.target.name) if alert.kind is AlertKind.WARNED else alert.text


def _as_text(setup: Setup, look: PlaceStatus) -> list[str]:
    counts = "  ".join(f"{word} {number:,}" for word, number in look.counts.items())
    lines = [f"queue     {safe_line(setup.place)}", f"tasks     {counts}"]
    if look.waiting:
        age = "?" if look.oldest is None else format_duration(look.oldest)
        lines.append(f"oldest    {age} waiting")
    lines += [f"{safe_line(name):<9} {safe_line(words)}" for name, words in look.facts]
    shown_of = look.problems[:SHOWN_PROBLEMS]
    lines += [f"problem   {safe_line(one.where)}: {safe_line(one.what)}" for one in shown_of]
    if len(look.problems) > SHOWN_PROBLEMS:
        lines.append(f"          and {len(look.problems) - SHOWN_PROBLEMS:,} more")
    lines += [f"attention {words}" for words in look.attention]
    return lines if look.attention else [*lines, "OK        nothing needs attention"]


def _as_row(setup: Setup, look: PlaceStatus) -> dict[str, object]:
    return {
        "queue": setup.place,
        "tasks": look.counts,
        "oldest_pending_age": look.oldest,
        "facts": dict(look.facts),
        "problems": [{"where": one.where, "what": one.what} for one in look.problems],
        "attention": list(look.attention),
    }
