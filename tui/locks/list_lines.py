"""Table of the locks of all places, and the details of one: evidence, backlog, recovery steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rich.cells import cell_len

from engine.index.age_table import Ages
from engine.index.backlog import BacklogSummary
from engine.locks import lock_breaker
from engine.model import LockEvidence, Verdict
from engine.monitor import lock_diagnosis
from engine.monitor.throughput import format_duration
from engine.text.safe import safe_line
from tui.format import present
from tui.format.human import format_count
from tui.format.present import BLANK_LINE, Line, Run
from tui.format.table import TABLE_MARGIN_CELLS, UNKNOWN_RUN, short_names
from tui.locks import lines as view
from tui.locks.examination import LockReport
from tui.session.place import NO_LOCK_FILE, NO_WORKER_HINT
from tui.session.place_session import PlaceSession

NO_LOCK_NOTE = "more workers may run: each task is claimed by one of them"
"""Note on workers in a place without a lock."""

MAX_KINDS = 6
"""Maximum number of task kinds listed."""


class PlaceLock(NamedTuple):
    """The lock of one place."""

    number: int
    """Number of the place, from 1."""
    name: str
    """Path or URL as the operator gave it."""
    evidence: LockEvidence | None = None
    """Last evidence; None before the first examination."""
    backlog: BacklogSummary | None = None
    """Pending tasks behind it; None if unknown."""
    why_no_lock: str = ""
    """Why the place needs no lock; "" if it has one."""
    worker: int | None = None
    """PID of the worker that this console started, for places without a lock; None without one."""
    lacks_worker: bool = False
    """True if due tasks exist and no worker is running."""


def place_lock(live: PlaceSession) -> PlaceLock:
    """The lock of a place as known now."""
    none = NO_LOCK_FILE if live.place.has_leases else ""
    worker = live.worker.pid if none else None
    due = live.backlog is not None and live.backlog.due > 0
    seen = (live.readings.lock, live.backlog, none, worker, due and live.lacks_worker)
    return PlaceLock(live.number, live.place.name, *seen)


class LockColumn(NamedTuple):
    """A column of the table of locks."""

    title: str
    width: int
    right: bool = False
    least: int = 0
    """Minimum screen width in cells."""


COLUMNS = (
    LockColumn("LAST SEEN", 9, right=True),
    LockColumn("HOLDER", 12, least=60),
    LockColumn("VERDICT", 8),
    LockColumn("BLOCKS", 7, right=True),
    LockColumn("OLDEST", 6, right=True, least=60),
)
"""Columns between the name and the reason."""
HOLDER_COLUMN = 1
"""Index of the column with the worker's PID."""


def _cells(lock: PlaceLock, now: float) -> list[Run]:
    evidence, waiting = lock.evidence, lock.backlog
    if lock.why_no_lock:
        cells: list[Run] = [("-", "")] * len(COLUMNS)
        if lock.worker is not None:
            cells[HOLDER_COLUMN] = (f"PID {lock.worker}", "")
        return cells
    if evidence is None:
        return [UNKNOWN_RUN, ("", ""), ("?", "unknown"), UNKNOWN_RUN, ("", "")]
    free = evidence.verdict is Verdict.FREE
    beat = "-" if free else "?" if evidence.since is None else format_duration(now - evidence.since)
    who = "-" if free else "?" if evidence.pid is None else f"PID {evidence.pid}"
    blocks = "?" if waiting is None else format_count(waiting.due, 7)
    oldest = waiting.oldest_due if waiting is not None else None
    return [
        (beat, "unknown" if beat == "?" else ""),
        (who, "unknown" if who == "?" else ""),
        (evidence.verdict.upper(), present.verdict_style(evidence.verdict)),
        ("-" if free else blocks, ""),
        ("-" if free or oldest is None else present.format_duration(now - oldest), ""),
    ]


def lock_table(locks: Sequence[PlaceLock], now: float, width: int) -> tuple[Line, list[Line]]:
    """Titles and one line per lock, in the given order."""
    shape = [(at, column) for at, column in enumerate(COLUMNS) if width >= column.least]
    called = short_names([lock.name for lock in locks])
    fixed = TABLE_MARGIN_CELLS + sum(column.width + 1 for _, column in shape)
    longest = max((cell_len(name) for name in called), default=0)
    name_width = max(4, min(longest, 24, width - fixed - 1))
    titles = [present.fit_text("LOCK", name_width)]
    titles += [present.fit_text(c.title, c.width, c.right) for _, c in shape]
    rest = width - fixed - name_width - 1
    titles += ["WHY"] if rest >= 12 else []
    head: Line = ((present.fit_text(" " * TABLE_MARGIN_CELLS + " ".join(titles), width), "title"),)
    rows = []
    for lock, name in zip(locks, called, strict=True):
        cells = _cells(lock, now)
        runs: list[Run] = [
            (_sign(lock), "error"),
            (present.fit_text_end(name, name_width) + " ", "strong"),
        ]
        for at, column in shape:
            text, look = cells[at]
            runs += [(present.fit_text(text, column.width, column.right), look), (" ", "")]
        reason = _no_lock_reason(lock) if lock.evidence is None else lock.evidence.reason
        if rest >= 12 and reason:
            runs.append((safe_line(reason), "muted"))
        rows.append(present.cut_line(present.merge_runs(runs), width))
    return head, rows


def _sign(lock: PlaceLock) -> str:
    alarms = lock.evidence is not None and lock.evidence.verdict in present.ALARMING_VERDICTS
    return " ! " if alarms else "   "


def detail_lines(
    lock: PlaceLock,
    kinds: Ages | None,
    free: Line,
    now: float,
    width: int,
    case: LockReport | None = None,
) -> list[Line]:
    """Details of one lock: evidence, backlog, recovery.

    `kinds` are the due tasks by kind; `free` is the hint for freeing it, or empty; `case` is the
    last report, possibly of another lock.
    """
    if lock.why_no_lock:
        return _no_lock_lines(lock, width)
    if lock.evidence is None:
        return [present.cut_line(((" not examined yet", "muted"),), width)]
    case = matching_report(lock.evidence, case)
    lines = _fold_lines(case.finding.sentence, width)
    lines += [*_backlog_lines(lock, kinds, now, width), BLANK_LINE]
    none = "no lock file" if lock.evidence.verdict is Verdict.FREE else "see above"
    lines += view.evidence_lines(case, width) or [
        present.heading_line("evidence", width),
        ((f" none: {none}", "muted"),),
    ]
    works = view.active_task_lines(case, now, width)
    lines += [BLANK_LINE, *works] if works else []
    steps = _steps(lock, lock.evidence, free, width)
    return [*lines, BLANK_LINE, present.heading_line("recovery", width), *steps]


def _no_lock_reason(lock: PlaceLock) -> str:
    """Why there is no lock, and that a worker runs anyway."""
    return (
        f"{lock.why_no_lock}; worker started here" if lock.worker is not None else lock.why_no_lock
    )


def _no_lock_lines(lock: PlaceLock, width: int) -> list[Line]:
    """Details of a place without a lock."""
    lines = _fold_lines(f"lock: {lock.why_no_lock}", width)
    if lock.worker is not None:
        words = f"worker: PID {lock.worker}, started by this console: W stops it"
        lines += [*_fold_lines(words, width), *_fold_lines(NO_LOCK_NOTE, width, "muted")]
    return lines


def matching_report(evidence: LockEvidence, case: LockReport | None) -> LockReport:
    """The report of a lock if it is for this evidence; otherwise a new one."""
    if case is not None and _same(case.evidence, evidence):
        return case
    return LockReport(evidence, lock_diagnosis.diagnose_lock(evidence))


def _same(one: LockEvidence, other: LockEvidence) -> bool:
    return (one.identity, one.verdict, one.holders) == (
        other.identity,
        other.verdict,
        other.holders,
    )


def _backlog_lines(lock: PlaceLock, kinds: Ages | None, now: float, width: int) -> list[Line]:
    waiting = lock.backlog
    if waiting is None:
        return [((" backlog: ? not counted yet", "unknown"),)]
    if not waiting.due:
        return [((" backlog: no due tasks", ""),)]
    oldest = "" if waiting.oldest_due is None else _since(now - waiting.oldest_due)
    due = present.format_count(waiting.due, "due task")
    lines = _fold_lines(f"backlog: {due}{oldest}", width)
    if kinds is None or kinds.by != "kind":
        return lines
    parts = [f"{safe_line(row.name) or '(none)'} {row.total:,}" for row in kinds.rows[:MAX_KINDS]]
    left = len(kinds.rows) - len(parts) + kinds.others
    parts += [f"({left:,} more kinds)"] if left else []
    return [*lines, *_fold_lines("by kind: " + "   ".join(parts), width)]


def _since(seconds: float) -> str:
    return f", oldest {present.format_duration(seconds)}"


def _steps(lock: PlaceLock, evidence: LockEvidence, free: Line, width: int) -> list[Line]:
    if lock.lacks_worker:
        return _fold_lines(f"nothing to free. {NO_WORKER_HINT}", width, "warn")
    if evidence.verdict in (Verdict.FREE, Verdict.HELD):
        words = "the lock is free" if evidence.verdict is Verdict.FREE else "its holder is running"
        return _fold_lines(f"nothing to free: {words}", width)
    ladder = lock_breaker.planned_steps(evidence)
    if not ladder or not free:
        return _fold_lines(lock_breaker.manual_advice(evidence), width, "warn")
    lines: list[Line] = []
    for number, step in enumerate(ladder, 1):
        first, *rest = present.fold_text(safe_line(step), max(8, width - 6))
        lines.append(((f"  {number:<3}", "key"), (first, "")))
        lines += [((f"     {piece}", ""),) for piece in rest]
    return [*lines, free]


def _fold_lines(text: str, width: int, look: str = "") -> list[Line]:
    return [
        ((f" {piece}", look),) for piece in present.fold_text(safe_line(text), max(8, width - 2))
    ]
