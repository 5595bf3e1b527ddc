"""`workers`, `kinds` and `top`: print who works on what, and the latency of each kind of task; on a
terminal `top` repeats the busiest kinds until Ctrl-C."""

from __future__ import annotations

import asyncio
import shutil
import sys
import time
from collections.abc import Sequence

from engine.formats.base.format import Setup
from engine.store import Unavailable
from engine.system.command_errors import print_error
from engine.text.folding import contains_words
from engine.text.safe import safe_line
from engine.text.times import format_time
from engine.values import NamedTuple
from tui.cli.queue.status import ATTENTION, OK, UNREADABLE
from tui.cli.setup.one_look import scan_once
from tui.cli.setup.output import Answer, columns, print_answer, print_controls
from tui.cli.setup.places import open_places
from tui.operations import worker_lines as view
from tui.operations.worker_lines import PlaceKind
from tui.session.place_session import PlaceSession
from tui.session.worker_rows import WorkerRow, all_worker_rows, kind_figures
from tui.text.lines import Line
from tui.text.task_row import time_fields


def workers(setup: Setup, places: list[str], *, filter: str) -> Answer:
    """Print every worker with its task, the worst first."""

    async def ask(sessions: Sequence[PlaceSession]) -> tuple[list[WorkerRow], bool]:
        unread = [await _why_unread(session) for session in sessions]
        return all_worker_rows(sessions, time.time()), not any(unread)

    rows, is_known = scan_once(open_places(setup, places), ask)
    rows = [row for row in rows if contains_words(_words(row), filter)]
    now = time.time()
    return Answer(
        lambda: {"workers": [view.worker_values(row, now) for row in rows]},
        lambda: _with_head(view.worker_table(rows, columns(120))),
        UNREADABLE if not is_known else ATTENTION if any(row.is_stuck for row in rows) else OK,
    )


def kinds(setup: Setup, places: list[str], *, filter: str) -> Answer:
    """Print rate, failures, wait and run of each kind of task over the last ten minutes."""
    all_kinds, unread = scan_once(open_places(setup, places), _read_kinds)
    for why in unread:
        print_error(safe_line(why))
    chosen = [one for one in all_kinds if contains_words(one.kind.figures.kind, filter)]
    rows, several = [one.kind for one in chosen], len({one.place for one in all_kinds}) > 1
    return Answer(
        lambda: {"seconds": 600, "kinds": _values(chosen)},
        lambda: _with_head(view.kind_table(rows, columns(120), places=several, sources=True)),
        UNREADABLE if unread else OK,
    )


class BusyKind(NamedTuple):
    """A kind of task at a place."""

    place: str
    """Name of the place as the operator gave it."""
    kind: PlaceKind


async def _read_kinds(sessions: Sequence[PlaceSession]) -> tuple[list[BusyKind], list[str]]:
    """The kinds of all places, and why places cannot be read."""
    reasons = [(session.name, await _why_unread(session)) for session in sessions]
    place_kinds = [
        BusyKind(session.place.name, PlaceKind(session.name, one))
        for session in sessions
        for one in kind_figures(session, session.clock())
    ]
    return place_kinds, [f"{name}: {why}" for name, why in reasons if why]


def _values(kinds: Sequence[BusyKind]) -> list[dict[str, object]]:
    return [view.kind_values(one.place, one.kind.figures) for one in kinds]


async def _why_unread(session: PlaceSession) -> str:
    """Wait for the logs and query the tasks; why the place cannot be read, "" if it was."""
    while session.readings.kinds is None:
        await session.wait_for_readings()  # reading the last hour of a long log takes several scans
    if why := session.inspector.latest.unavailable:
        return why
    try:
        await session.query_backlog()
    except Unavailable as error:
        return str(error)
    return ""


def _with_head(table: tuple[Line, Sequence[Line]]) -> list[Line]:
    head, lines = table
    return [head, *lines]


def _words(row: WorkerRow) -> str:
    words = (row.place, row.pid or "", row.owner, row.task, row.kind, row.destination, row.note)
    return " ".join(map(str, words))


CLEAR_SCREEN = "\x1b[H\x1b[2J"

HEAD_LINES = 2
"""Lines above the kinds: the time, and the titles."""


def busiest_first(kinds: Sequence[BusyKind]) -> list[BusyKind]:
    """Order kinds by ended runs per minute; those with an unknown number come last."""

    def order(one: BusyKind) -> tuple[float, str, str]:
        rate = one.kind.figures.per_minute
        return (-1.0 if rate is None else rate) * -1, one.kind.figures.kind, one.place

    return sorted(kinds, key=order)


def top(
    setup: Setup, places: list[str], *, filter: str, json: bool, interval: float, times: int | None
) -> int:
    """Print one screen, and without --times repeat it on a terminal only."""
    screens = times or (0 if sys.stdout.isatty() and not json else 1)
    opened = open_places(setup, places)

    async def ask(sessions: Sequence[PlaceSession]) -> bool:
        number = 0
        while True:
            kinds, unread = await _read_kinds(sessions)
            chosen = [one for one in kinds if contains_words(one.kind.figures.kind, filter)]
            _print(busiest_first(chosen), as_json=json, several=len(sessions) > 1)
            number += 1
            if number == screens:
                for why in unread:
                    print_error(safe_line(why))
                return not unread
            await asyncio.sleep(interval)

    try:
        return OK if scan_once(opened, ask) else UNREADABLE
    except KeyboardInterrupt:
        return OK  # the way to end it


def _print(kinds: Sequence[BusyKind], *, as_json: bool, several: bool) -> None:
    now, is_screen = time.time(), sys.stdout.isatty()

    def values() -> dict[str, object]:
        return {**time_fields("time", now), "seconds": 600, "kinds": _values(kinds)}

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
