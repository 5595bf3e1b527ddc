"""`top`: print the busiest kinds of tasks, and repeat that on a terminal until Ctrl-C."""

from __future__ import annotations

import asyncio
import shutil
import sys
import time
from collections.abc import Sequence
from typing import NamedTuple

from engine.formats.base.format import Setup
from engine.system.command_errors import print_error
from engine.text.safe import safe_line
from engine.text.times import format_time
from tui.cli.print.workers import why_unread
from tui.cli.queue.status import OK, UNREADABLE
from tui.cli.setup.one_look import contains_words, scan_once
from tui.cli.setup.output import Answer, print_answer, print_controls
from tui.cli.setup.places import open_places
from tui.operations import worker_lines as view
from tui.operations.worker_lines import PlaceKind
from tui.session.place_session import PlaceSession
from tui.session.worker_rows import kind_figures
from tui.text.lines import Line
from tui.text.task_row import time_fields

CLEAR_SCREEN = "\x1b[H\x1b[2J"

HEAD_LINES = 2
"""Lines above the kinds: the time, and the titles."""


class BusyKind(NamedTuple):
    """A kind of task at a place."""

    place: str
    """Name of the place as the operator gave it."""
    kind: PlaceKind


def busiest_first(kinds: Sequence[BusyKind]) -> list[BusyKind]:
    """Order kinds by ended runs per minute; those with an unknown number come last."""

    def order(one: BusyKind) -> tuple[float, str, str]:
        rate = one.kind.figures.per_minute
        return (-1.0 if rate is None else rate) * -1, one.kind.figures.kind, one.place

    return sorted(kinds, key=order)


def top(
    setup: Setup,
    places: list[str],
    *,
    filter: str,
    json: bool,
    interval: float,
    times: int | None,
) -> int:
    """Print one screen, and without --times repeat it on a terminal only."""
    screens = times or (0 if sys.stdout.isatty() and not json else 1)
    opened = open_places(setup, places)

    async def ask(sessions: Sequence[PlaceSession]) -> bool:
        number = 0
        while True:
            reasons = [(session.name, await why_unread(session)) for session in sessions]
            _print(_busy_kinds(sessions, filter), as_json=json, several=len(sessions) > 1)
            number += 1
            if number == screens:
                unread = [f"{name}: {why}" for name, why in reasons if why]
                for why in unread:
                    print_error(safe_line(why))
                return not unread
            await asyncio.sleep(interval)

    try:
        return OK if scan_once(opened, ask) else UNREADABLE
    except KeyboardInterrupt:
        return OK  # the way to end it


def _busy_kinds(sessions: Sequence[PlaceSession], words: str) -> list[BusyKind]:
    kinds = [
        BusyKind(session.place.name, PlaceKind(session.name, one))
        for session in sessions
        for one in kind_figures(session, session.clock())
    ]
    return busiest_first([one for one in kinds if contains_words(one.kind.figures.kind, words)])


def _print(kinds: Sequence[BusyKind], *, as_json: bool, several: bool) -> None:
    now, is_screen = time.time(), sys.stdout.isatty()

    def values() -> dict[str, object]:
        rows = [view.kind_values(one.place, one.kind.figures) for one in kinds]
        return {**time_fields("time", now), "seconds": 600, "kinds": rows}

    def lines() -> list[Line]:
        size = shutil.get_terminal_size((120, 24))
        shown = kinds[: max(1, size.lines - HEAD_LINES - 1)] if is_screen else kinds
        table = [one.kind for one in shown]
        head, rows = view.kind_table(table, size.columns, places=several, sources=not is_screen)
        more = f", the busiest {len(shown)} of {len(kinds)}" if len(shown) < len(kinds) else ""
        return [((f" {format_time(now)}  last 10 minutes{more}", "title"),), head, *rows]

    if is_screen and not as_json:
        print_controls(CLEAR_SCREEN)
    print_answer(Answer(values, lines), as_json=as_json)
    sys.stdout.flush()
