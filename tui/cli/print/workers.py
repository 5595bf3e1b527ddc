"""`workers` and `kinds`: print who works on what, and the latency of each kind of task."""

from __future__ import annotations

import time
from collections.abc import Sequence

from engine.formats.base.format import Setup
from engine.store import Unavailable
from engine.system.command_errors import print_error
from engine.text.safe import safe_line
from tui.cli.queue.status import ATTENTION, OK, UNREADABLE
from tui.cli.setup.one_look import contains_words, scan_once
from tui.cli.setup.output import Answer, columns
from tui.cli.setup.places import open_places
from tui.operations import worker_lines as view
from tui.operations.worker_lines import PlaceKind
from tui.session.place_session import PlaceSession
from tui.session.worker_rows import WorkerRow, all_worker_rows, kind_figures
from tui.text.lines import Line


def workers(setup: Setup, places: list[str], *, filter: str) -> Answer:
    """Print every worker with its task, the worst first; exit 0 OK, 1 one needs attention, 2 a
    place cannot be read.
    """

    async def ask(sessions: Sequence[PlaceSession]) -> tuple[list[WorkerRow], bool]:
        unread = [await why_unread(session) for session in sessions]
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
    """Print rate, failures, wait and run of each kind of task over the last ten minutes; exit 2 if
    a place cannot be read.
    """

    async def ask(
        sessions: Sequence[PlaceSession],
    ) -> tuple[list[tuple[str, PlaceKind]], list[str]]:
        reasons = [(session.name, await why_unread(session)) for session in sessions]
        place_kinds = [
            (session.place.name, PlaceKind(session.name, one))
            for session in sessions
            for one in kind_figures(session, session.clock())
        ]
        return place_kinds, [f"{name}: {why}" for name, why in reasons if why]

    all_kinds, unread = scan_once(open_places(setup, places), ask)
    for why in unread:
        print_error(safe_line(why))
    chosen = [each for each in all_kinds if contains_words(each[1].figures.kind, filter)]
    rows, several = [kind for _, kind in chosen], len({place for place, _ in all_kinds}) > 1
    return Answer(
        lambda: {"seconds": 600, "kinds": [view.kind_values(p, k.figures) for p, k in chosen]},
        lambda: _with_head(view.kind_table(rows, columns(120), places=several, sources=True)),
        UNREADABLE if unread else OK,
    )


async def why_unread(session: PlaceSession) -> str:
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
