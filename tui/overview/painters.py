"""What the overview shows, as lines: functions of its parts and a width."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from engine.index.counted_rows import TASKS
from engine.index.filter_language import format_term
from engine.text.figures import format_count
from engine.text.safe import safe_line
from tui.overview import alert_lines, snapshot
from tui.overview import place_lines as view
from tui.overview.division import MAX_GRAPHS, OverviewFrame
from tui.overview.keys import ROWS
from tui.overview.parts import AGES, ALERTS, QUEUES, OverviewParts
from tui.overview.reads import PlaceReads
from tui.overview.side_panes import TARGET_STEPS, OverviewData, PaneRow, PaneRows
from tui.screens.console_context import ConsoleContext
from tui.screens.key_rows import hints_of
from tui.screens.rows_parts import ROW_HAS_LEFT
from tui.screens.target import Target
from tui.session.place_session import PlaceSession, lease_workers
from tui.text import keys
from tui.text.hints import next_line
from tui.text.keys import Hint
from tui.text.lines import Line, cells_of
from tui.text.progress_bar import first_scan_line
from tui.text.times import format_clock


def hints(parts: OverviewParts) -> Iterable[Hint]:
    """The keys; those that need live data stay while the screen is frozen, grey, behind the keys
    that go on in time."""
    known = hints_of(ROWS, parts, stays={row.key.action for row in ROWS})
    if parts.freeze.time is None:
        return known
    return [*FROZEN_HINTS, *(hint for hint in known if hint.shown != FROZEN_HINTS[0].shown)]


FROZEN_HINTS = Hint("p", "live"), Hint(", .", "step"), Hint("< >", "alerts")
"""The first keys of a frozen screen."""


def top_context(parts: OverviewParts) -> ConsoleContext:
    """What the top line shows: of a frozen screen its time and totals."""
    context = parts.context
    if (frozen := parts.freeze.time) is None:
        return context
    chip: Line = ((f" FROZEN {format_clock(frozen.at)} ", "chip-accent"),)
    totals = snapshot.totals(parts.snapshots)
    return context._replace(
        totals=lambda: totals, operations=lambda: chip, overview_time=lambda: None
    )


def steady_values(parts: OverviewParts, frame: OverviewFrame) -> object:
    """All that the panes are painted from, with those ages that may change each second as they
    are shown; None if other ages are shown, or a past time."""
    sessions, now, table = parts.sessions, parts.freeze.shown_at, parts.table
    if parts.freeze.time is not None or frame.is_wall or any(map(has_workers, sessions)):
        return None
    if table is not None and table.generation != parts.selected.inspector.latest.generation:
        return None  # the table of ages shows its own age
    moments = [parts.freeze.snapshot_of(one, 2 * view.SPARKLINE_CELLS) for one in sessions]
    return (
        parts.focus.pane,
        parts.selected,
        moments,
        [parts.reads.of(session) for session in sessions],
        [(n.inspector.latest, n.readings.log, n.history.operations) for n in sessions],
        [view.oldest_cell(moment.queue, now) for moment in moments],
        [alert_lines.alert_text(alert, now) for moment in moments for alert in moment.alerts],
    )


def alert_rows(
    parts: OverviewParts, width: int, steps: Sequence[tuple[str, str, str]]
) -> list[PaneRow]:
    """The alerts with their next steps."""
    alerts, numbers = parts.alerts, {one.place.name: one.number for one in parts.sessions}
    names = {session.place.name: session.name for session in parts.sessions}
    lines = alert_lines.alert_lines(alerts, names, width, steps)
    leads = [alert_lines.alert_target(one.target, numbers[one.target.place]) for one in alerts]
    return [*map(PaneRow, map(alert_lines.alert_key, alerts), lines, leads)]


def no_alerts(parts: OverviewParts) -> Line:
    """The line in place of alerts."""
    frozen = parts.freeze.time is not None
    if frozen and not all(moment.queue.complete for moment in parts.snapshots):
        return ((" not recorded", "muted"),)
    known = all(n.has_readings and n.inspector.latest.is_complete for n in parts.sessions)
    return alert_lines.no_alerts_line(known)


def queue_rows(parts: OverviewParts, width: int, drawn: dict[int, view.DrawnRow]) -> PaneRows:
    """The places with their parts, below their titles; `drawn` keeps unchanged lines."""
    queues, now = [moment.queue for moment in parts.snapshots], parts.freeze.shown_at
    head, lines = view.place_table(queues, now, width, drawn)
    rows = list[PaneRow]()
    for at, (queue, line) in enumerate(zip(queues, lines, strict=True)):
        target = Target(keys.LIST, place=queue.number)
        rows.append(PaneRow(str(queue.number), line, target))
        for name, part in view.part_lines(queues, at, now, width):
            only = target._replace(filter=format_term("kind", "=", name))
            rows.append(PaneRow(f"{queue.number}/{name}", part, only))
    return PaneRows(rows, [head])


def next_step(parts: OverviewParts, width: int) -> Line:
    """The next step for the item under the cursor, and what a key acts on."""
    pane, selected, is_live = parts.focus.pane, parts.selected, parts.freeze.time is None
    if parts.focus.has_left:
        return ((f" {ROW_HAS_LEFT}", "warn"),)
    if is_live and pane == ALERTS and (alert := parts.alert) is not None:
        key, _, does = parts.alert_step(alert)
        return next_line(key, does, selected.name, width)
    if pane not in (ALERTS, QUEUES) and (target := parts.focus.target) is not None:
        return next_line("Enter", TARGET_STEPS[target.pane], selected.name, width)
    if pane == AGES:
        table, count = parts.ages, parts.ages.count
        words = "" if count is None else f"{table.cell_text}: {_amount(parts, count)}"
        return ((f" {safe_line(words)}", ""),)
    return _place_message(parts, width)


def _amount(parts: OverviewParts, count: int) -> str:
    """A number of the age table, with what it counts."""
    unit = TASKS if parts.table is None else parts.table.ages.unit
    return format_count(count, "task") if unit == TASKS else f"{count:,} {unit}"


def has_workers(session: PlaceSession) -> bool:
    """True if a worker or a task of a place is shown with a running time."""
    lock = session.readings.lock
    return bool(session.active or lease_workers(session)) or (
        lock is not None and lock.pid is not None
    )


def age_rows(read: PlaceReads | None) -> int:
    """The rows of an age table; 0 if it has no task, or was not read."""
    if read is None or not read.ages.total.total:
        return 0
    return 1 + len(read.ages.rows) + bool(read.ages.others)


def other_place(parts: OverviewParts, data: OverviewData) -> PlaceSession | None:
    """The place of a wall's second age table: another one with a table, with alerts first."""
    others = [one for one, read in parts.all_reads if one is not data.selected and age_rows(read)]
    return min(
        others, key=lambda session: not data.moments[session.number - 1].alerts, default=None
    )


def graph_places(sessions: Sequence[PlaceSession], selected: PlaceSession) -> list[PlaceSession]:
    """The places with a graph on a wall: the readable ones; that under the cursor first if they are
    too many."""
    places = [session for session in sessions if not session.inspector.latest.unavailable]
    if len(places) > MAX_GRAPHS:
        places.sort(key=lambda session: session is not selected)
    return places or [selected]


def _place_message(parts: OverviewParts, width: int) -> Line:
    """The next step for the place under the cursor: the first scan, the key of its worst alert, or
    Enter."""
    session, is_live, now = parts.selected, parts.freeze.time is None, parts.clock()
    moment = parts.freeze.snapshot_of(session, 2 * view.SPARKLINE_CELLS)
    latest, states = session.inspector.latest, session.inspector.states
    far = first_scan_line(latest, states, now - session.opened_at, width)
    if far and is_live:
        return far
    if moment.alerts and is_live:
        worst = alert_lines.sort_alerts(moment.alerts)[0]
        key, _, does = parts.alert_step(worst)
        if key != "Enter":  # here, Enter opens the queue
            return next_line(key, does, session.name, width)
    queue, lock = moment.queue, moment.lock
    words = safe_line(view.describe_place(queue))
    notes = [words]
    if not queue.unavailable and moment.worker is not None:
        notes = [f"{words}; worker PID {moment.worker}, started here"]
    elif not queue.unavailable and lock is not None:
        words += f"; lock {'' if is_live else 'was '}{lock.verdict}"
        notes = [f"{words}: {safe_line(lock.reason)}", words]
    room = width - cells_of(f" next  Enter  acts on {session.name} ")
    texts = [*(f"opens the queue ({note})" for note in notes), "opens the queue"]
    does = next((text for text in texts if cells_of(text) <= room), texts[-1])
    return next_line("Enter", does, session.name, width)
