"""Tables of workers and of kinds with their latency, for the workers screen, the overview and the
commands."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Sequence

from engine.model import STALLED_KEY, State, Verdict
from engine.monitor.alerts import Where, describe_disk
from engine.monitor.latency import KindFigures
from engine.monitor.throughput import Trend
from engine.places.place import NO_WORKER
from engine.text.figure import UNKNOWN
from engine.text.figures import format_count, format_rate
from engine.text.safe import safe_line
from engine.text.times import format_rough_duration
from engine.values import NamedTuple
from tui.session.place_session import PlaceSession
from tui.session.worker_rows import (
    IDLE,
    NOT_COUNTED,
    WorkerRow,
    is_unknown,
    kind_figures,
)
from tui.text.lines import (
    UNKNOWN_RUN,
    Line,
    Run,
    cells_of,
    cut_line,
    fact_lines,
    fit_text,
    heading_line,
    join_ends,
)
from tui.text.log_line import log_line, shorten_ids
from tui.text.table import REST, Column, Table, alarm_sign
from tui.text.task_list import short_id
from tui.text.task_row import time_fields
from tui.text.times import format_minutes, format_time_with_age

MANY_FAILURES = 0.1
"""Share of failed runs from which it is shown as a warning."""


def format_seconds(seconds: float | None) -> str:
    """A duration in at most six cells, with tenths below ten seconds: `0.4s`, `2s`, `41s`, `47m`;
    `?` if unknown."""
    if seconds is None:
        return UNKNOWN
    if seconds < 9.95:
        return f"{seconds:.1f}".removesuffix(".0") + "s"
    return format_rough_duration(seconds)


_NO_RUN: Run = ("-", "muted")


def _time_cell(seconds: float | None, kind: KindFigures | None = None) -> Run:
    """A duration; of a `kind` without any run, a dash."""
    if seconds is None:
        return _NO_RUN if kind is not None and kind.per_minute == 0 else UNKNOWN_RUN
    return format_seconds(seconds), ""


# Workers


def _task_cell(row: WorkerRow) -> Run:
    return safe_line(short_id(row.task)), "accent"


def _pid_cell(row: WorkerRow) -> Run:
    if row.is_abandoned:
        return ("stalled?" if row.is_suspected else "no worker"), "warn"
    if row.pid is None:
        is_none = row.note == NO_WORKER or row.owner or row.is_server
        return ("-", "muted") if is_none else UNKNOWN_RUN
    return f"{row.pid}", ""


def _running_cell(row: WorkerRow) -> Run:
    text, style = _time_cell(row.running_seconds)
    return text, "error" if row.is_stuck else style


def _limit_cell(row: WorkerRow) -> Run:
    return ("-", "muted") if row.limit_seconds is None else _time_cell(row.limit_seconds)


def _lease_cell(row: WorkerRow) -> Run:
    """Seconds until the claim expires."""
    seconds = row.lease_seconds
    if seconds is None:
        return "-", "muted"
    return ("expired", "warn") if seconds <= 0 else (format_seconds(seconds), "")


def _heartbeat_cell(row: WorkerRow) -> Run:
    if row.heartbeat_seconds is None:
        return "-", "muted"
    return f"{format_seconds(row.heartbeat_seconds)} ago", "error" if row.is_stuck else ""


WORKER_COLUMNS: tuple[Column[WorkerRow], ...] = (
    Column("PLACE", 5, lambda row: (row.name, "strong" if row.is_stuck else ""), most=16),
    Column("PID", 4, _pid_cell, right=True, most=9, rank=3),
    Column("OWNER", 5, lambda row: (row.owner, ""), most=20, rank=1),
    Column("TASK", 8, _task_cell, most=14),
    Column("KIND", 6, lambda row: (safe_line(row.kind), ""), most=16),
    Column("RUNNING", 7, _running_cell, right=True),
    Column("LIMIT", 5, _limit_cell, right=True, rank=4),
    Column("LEASE", 7, _lease_cell, right=True, rank=2),
    Column("DEST", 5, lambda row: (safe_line(row.destination), "muted"), grows=35, rank=6),
    Column("HEARTBEAT", 9, _heartbeat_cell, right=True, rank=5),
)

BRIEF_NAME_CELLS = 9


def worker_table(
    rows: Sequence[WorkerRow], width: int, *, has_destinations: bool = False
) -> tuple[Line, list[Line]]:
    """The titles, and a line for each row; one without a task has its note instead. Columns that no
    format here has are omitted. `has_destinations`: keep their column although no row has one."""
    used = {
        "DEST": has_destinations or any(row.destination for row in rows),
        "LIMIT": any(row.has_limits or row.limit_seconds for row in rows),
        "OWNER": any(row.owner for row in rows),
        "LEASE": any(row.lease_seconds is not None for row in rows),
    }
    columns = [column for column in WORKER_COLUMNS if used.get(column.title, True)]
    owners = sum(bool(row.owner) for row in rows)
    if sum(row.pid is not None for row in rows) >= owners:
        ranks = {"PID": 1, "OWNER": 3 if 2 * owners > len(rows) else 7}
        columns = [c._replace(rank=ranks.get(c.title, c.rank)) for c in columns]
    table = Table(columns, gaps=(2, 1), margin=lambda row: alarm_sign(row.is_stuck))
    fitted = table.fitted(rows, width)
    lines = [
        fitted.line(row, width) if row.task else _note_line(row, fitted, width) for row in rows
    ]
    return fitted.titles(width), lines


def keyed_rows(rows: Sequence[WorkerRow]) -> dict[str, WorkerRow]:
    """The rows by place, owner and rank among the rows of both: `1.vm-7.1`, or `1.1` in a place
    whose workers have no names. The tasks of a worker change all the time, so a cursor on a task
    would lose its row. A PID is no part of it: once a stuck worker has ended, W on its row starts
    the next one."""
    ranks: Counter[str] = Counter()
    keyed = {}
    for row in rows:
        worker = f"{row.number}.{row.owner}" if row.owner else f"{row.number}"
        ranks[worker] += 1
        keyed[f"{worker}.{ranks[worker]}"] = row
    return keyed


def _note_line(row: WorkerRow, table: Table[WorkerRow], width: int) -> Line:
    """A worker or place without a task, with a note."""
    known = row.is_server or row.note in (NO_WORKER, NOT_COUNTED, IDLE)
    style = "error" if row.is_stuck else "muted" if known else "unknown"
    note = safe_line(f"{row.note}: {row.connection}" if row.connection else row.note), style
    columns = [column for column in table.columns if column.title in ("PLACE", "PID", "OWNER")]
    columns.append(Column("", 0, lambda row: note, grows=REST))
    has_end = row.pid is not None and not row.is_server and table.columns[-1].title == "HEARTBEAT"
    columns += table.columns[-1:] if has_end else ()
    fitted = table._replace(columns=columns).fitted((row,), table.cells if has_end else width)
    return fitted.line(row, width)


def is_busy(row: WorkerRow) -> bool:
    """True for a process, a server, a task in work, or what needs a hand."""
    return bool(row.task or row.pid is not None or row.owner or row.is_stuck or row.is_server)


def _brief_name(row: WorkerRow) -> str:
    """The PID, else the start of the owner's name."""
    if row.pid is None and row.owner and not row.is_abandoned:
        return fit_text(row.owner, min(BRIEF_NAME_CELLS, cells_of(row.owner)))
    return _pid_cell(row)[0]


def brief_worker_lines(
    rows: Sequence[WorkerRow], width: int, height: int, *, can_start: bool
) -> list[Line]:
    """The rows for a narrow pane: PID, task, kind, place and how long it runs. `can_start`: a
    worker of some place can be started, and can write."""
    busy = [row for row in rows if is_busy(row)]
    if not busy:
        if why := next((row.note for row in rows if is_unknown(row)), ""):
            return [(("   ", ""), UNKNOWN_RUN, (f" {safe_line(why)}", "muted"))]
        is_read = rows and all(row.note != NOT_COUNTED for row in rows)
        notice = NO_WORKER + ": W starts one" * can_start if is_read else NOT_COUNTED
        return [cut_line(((f"   {notice}", "muted"),), width)]
    pids = max(0 if row.is_server else cells_of(_brief_name(row)) for row in busy)
    lines = []
    for row in busy[: max(0, height)]:
        urgent = "error" if row.is_stuck else ""
        pid = "" if row.is_server else f"{fit_text(_brief_name(row), pids, right=True)}  "
        lead: Line = (("! " if row.is_stuck else "  ", "error"), (pid, ""))
        if row.task:
            task = f"{_task_cell(row)[0]:<8}  "
            left: Line = (*lead, (task, "accent"), (safe_line(row.kind), ""))
            right: Line = ((f"{row.name} ", "muted"), (f"{_running_cell(row)[0]:>5}", urgent))
        else:
            left = (*lead, (safe_line(row.note), urgent or "muted"))
            right = ((row.name, "muted"),)
        lines.append(join_ends(left, right, width))
    return lines


def _short(value: float | None, digits: int = 3) -> float | None:
    return None if value is None else round(value, digits)


def worker_values(row: WorkerRow, now: float) -> dict[str, object]:
    """A row for JSON output: durations in seconds; None where unknown."""
    running = row.running_seconds
    started = None if running is None else now - running
    return {
        "place": row.place,
        "pid": row.pid,
        "owner": row.owner or None,
        "connection": row.connection or None,
        "task": row.task or None,
        "kind": row.kind or None,
        **time_fields("started", started),
        "running_seconds": _short(running, 1),
        "limit_seconds": row.limit_seconds,
        "lease_seconds": _short(row.lease_seconds, 1),
        "destination": row.destination or None,
        "heartbeat_seconds": _short(row.heartbeat_seconds, 1),
        "stuck": row.is_stuck,
        "note": row.note,
    }


def detail_rows(row: WorkerRow, session: PlaceSession, now: float) -> list[tuple[str, str]]:
    """Names and values about a worker, its task and its place; empty values are omitted."""
    task = next((task for task in session.active if task.id == row.task), None)
    lock, latest, backlog = session.readings.lock, session.inspector.latest, session.backlog
    due = UNKNOWN if backlog is None or backlog.due is None else f"{backlog.due:,}"
    oldest = None if backlog is None else backlog.oldest
    age = "" if oldest is None else f", oldest {format_minutes(now - oldest)}"
    pending = format_count(latest.counts.get(State.PENDING, 0), "task")
    waiting = pending if latest.is_counted else f"{UNKNOWN} tasks"
    rows = [
        ("place", row.place),
        ("server", row.note if row.is_server else ""),
        ("lock", "" if lock is None else f"{lock.verdict}: {lock.reason}"),
    ]
    if task is not None:
        until = None if task.lease is None else task.lease.until
        most, tries = session.place.max_attempts(task), task.attempts
        attempt = UNKNOWN if tries is None else f"{tries + 1}" + (f" of {most}" if most else "")
        rows += [
            ("task", f"{task.id}  {task.description}"),
            ("destination", task.destination),
            ("attempt", attempt),
            ("time limit", _limit_words(row)),
            ("lease", f"until {format_time_with_age(until, now)}" if until else ""),
            ("stalled?", task.extra.get(STALLED_KEY, "")),
            ("last error", task.error),
        ]
    rows += [
        ("waiting", f"{waiting}, {due} due{age}"),
        ("worker", "" if session.worker.pid is None else f"PID {session.worker.pid} started here"),
        ("disk", _disk_words(session)),
        ("last", session.worker.last_end),
        ("owner", row.owner),
        ("connection", row.connection),
    ]
    return [(name, safe_line(text)) for name, text in rows if text]


def _disk_words(session: PlaceSession) -> str:
    """The full disks of a place, and how to find what is large there, or has many files; "" without
    one."""
    full = [disk for disk in session.readings.disks if disk.is_full]
    return "; ".join(
        f"{describe_disk(disk, most=1000).removeprefix('disk ')}; what fills it: "
        + _DU[disk.lacks_inodes].format(shlex.quote(disk.mount))
        for disk in full
    )


_DU = ("du -xah {} | sort -h | tail", "du --inodes -xa {} | sort -n | tail")
"""Lists what has most bytes on a file system, or most inodes."""


def _limit_words(row: WorkerRow) -> str:
    if row.limit_seconds is None or row.running_seconds is None:
        return ""
    seconds_left = row.limit_seconds - row.running_seconds
    limit = format_seconds(row.limit_seconds)
    return f"{limit}, {format_seconds(abs(seconds_left))} {'left' if seconds_left >= 0 else 'over'}"


LOG_LINES = 8
"""Log lines about one task that are shown."""


def detail_lines(row: WorkerRow, session: PlaceSession, now: float, width: int) -> list[Line]:
    """Details of a worker, then the last log lines about its task."""
    lines = fact_lines(detail_rows(row, session, now), width)
    log = [event.line for event in session.events() if row.task and event.id == row.task]
    if not log:
        return lines
    lines.append(heading_line(safe_line(f"log of {short_id(row.task)}"), width))
    for line in log[-LOG_LINES:]:
        lines.append(log_line(line.when, line.level, shorten_ids(line.text), width))
    return lines


def next_step(row: WorkerRow, session: PlaceSession, *, read_only: bool) -> tuple[str, str]:
    """The key for a row, and what it does."""
    lock, can_start = session.readings.lock, bool(session.place.worker_command) and not read_only
    if lock is not None and lock.verdict is Verdict.STUCK:
        if session.place.why_no_unlock(read_only):
            return "5", "shows the locks"
        then = "; then W starts a worker" * (can_start and session.full_disk is None)
        return "U", f"frees the lock of {row.name}{then}"
    if row.pid is None and not row.is_server and (full := session.full_disk):
        can_start = can_start and not session.runs_worker
        if full.target.where is Where.STATE:
            return "2", "opens the tasks" + ": X in their trash frees space" * (not read_only)
        return "", f"make room on {full.target.name}" + ", then W starts a worker" * can_start
    if row.pid is None and row.note == NO_WORKER and can_start:
        return "W", f"starts a worker at {row.name}"
    if row.is_abandoned and session.place.has_leases:
        releases = (State.ACTIVE, State.PENDING) in session.inspector.edges and not read_only
        return "Enter", "opens the task" + ("; L there releases it" if releases else "")
    if row.is_abandoned and can_start:
        return "W", "starts a worker; it counts a failed attempt and requeues the task"
    if row.task:
        return "Enter", "opens the task" + (", which is over its limit" if row.is_stuck else "")
    if session.inspector.latest.unavailable:
        return "r", "reads the place again"
    return "7", f"shows the log of {row.name}"


def print_command(sessions: Sequence[PlaceSession]) -> str:
    """The command that prints these rows."""
    return shlex.join(["spooldeck", "workers", *(session.place.name for session in sessions)])


# Kinds


def _percent_cell(one: KindFigures) -> Run:
    if one.failures_share is None:
        return UNKNOWN_RUN if one.per_minute != 0 else _NO_RUN
    style = "warn" if one.failures_share >= MANY_FAILURES else "muted" * (not one.failures_share)
    return f"{one.failures_share:.0%}", style


def _rate_cell(one: KindFigures) -> Run:
    if one.per_minute is None:
        return UNKNOWN_RUN
    text = format_rate(one.per_minute / 60, "/min", is_titled=True)
    return text, "" if one.per_minute else "muted"


class PlaceKind(NamedTuple):
    """Figures of one kind at one place."""

    place: str
    """Short name of the place."""
    figures: KindFigures
    is_stalled: bool = False
    """True if the queue of the place is STALLED."""


def _source_cell(row: PlaceKind) -> Run:
    return (row.figures.source, "muted") if row.figures.source else UNKNOWN_RUN


_KIND_COLUMNS: tuple[Column[PlaceKind], ...] = (
    Column("PLACE", 5, lambda row: (row.place, "strong" * row.is_stalled), most=12),
    # The names take some of what is left, so that numbers end at the right.
    Column("KIND", 6, lambda row: (safe_line(row.figures.kind), ""), most=16, grows=12),
    Column("/min", 5, lambda row: _rate_cell(row.figures), right=True),
    Column("FAIL%", 5, lambda row: _percent_cell(row.figures), right=True),
    Column("WAIT p50", 8, lambda row: _time_cell(row.figures.wait_p50, row.figures), right=True),
    Column("p95", 6, lambda row: _time_cell(row.figures.wait_p95, row.figures), right=True),
    Column("RUN p50", 7, lambda row: _time_cell(row.figures.run_p50, row.figures), right=True),
    Column("p95", 6, lambda row: _time_cell(row.figures.run_p95, row.figures), right=True),
    Column("FROM", 4, _source_cell, most=40),
)


def place_kinds(sessions: Sequence[PlaceSession], now: float) -> list[PlaceKind]:
    """The kinds of some places, in the order of the places."""
    kinds = []
    for session in sessions:
        is_stalled = session.estimate_drain(now).trend is Trend.STALLED
        kinds += [PlaceKind(session.name, one, is_stalled) for one in kind_figures(session, now)]
    return kinds


def kind_table(
    rows: Sequence[PlaceKind], width: int, *, places: bool, sources: bool = False
) -> tuple[Line, list[Line]]:
    """The titles, and a line for each kind; `places` adds a column with the place, `sources` one
    with the source of the figures, and below the kinds a line for each reason of a `?`."""
    optional = {"PLACE": places, "FROM": sources}
    columns = [column for column in _KIND_COLUMNS if optional.get(column.title, True)]
    table = Table(columns, gaps=(2, 1), margin=lambda row: alarm_sign(row.is_stalled and places))
    head, lines = table.lines(rows, width)
    reasons: dict[str, list[str]] = {}
    for row in rows if sources else ():
        if row.figures.unknown and row.figures.per_minute != 0:
            reasons.setdefault(row.figures.unknown, []).append(safe_line(row.figures.kind))
    for why, kinds in reasons.items():
        text = f"{why} ({', '.join(dict.fromkeys(kinds))})"
        lines.append(cut_line((("   ? ", "unknown"), (text, "muted")), width))
    return head, lines


def kind_values(place: str, one: KindFigures) -> dict[str, object]:
    """Figures of a kind for JSON output: durations in seconds; None where unknown."""
    return {
        "place": place,
        "kind": one.kind,
        "per_minute": _short(one.per_minute),
        "failures_share": _short(one.failures_share),
        "wait_p50": _short(one.wait_p50),
        "wait_p95": _short(one.wait_p95),
        "run_p50": _short(one.run_p50),
        "run_p95": _short(one.run_p95),
        "source": one.source or None,
        "unknown": one.unknown,
    }
