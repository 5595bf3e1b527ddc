"""Table of the locks of all places, and the details of one: evidence, backlog, recovery steps."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter, itemgetter

from engine.index.age_table import Ages
from engine.index.backlog import BacklogSummary
from engine.locks import lock_breaker
from engine.model import LockEvidence, Verdict
from engine.monitor import lock_diagnosis
from engine.places.place import NO_WORKER
from engine.text.figure import UNKNOWN, Figure
from engine.text.figures import fit_count, format_count
from engine.text.safe import safe_line
from engine.values import NamedTuple
from tui.locks import lock_lines as view
from tui.locks.examination import LockReport
from tui.session.place_session import PlaceSession
from tui.session.worker_rows import lock_step, start_step
from tui.text.lines import UNKNOWN_RUN, Line, Run, cut_line, folded_lines, section
from tui.text.lock import ALARMING_VERDICTS
from tui.text.table import REST, Column, Table, alarm_sign, short_names
from tui.text.times import format_minutes

NO_LOCK_NOTE = "more workers may run: each task is claimed by one of them"

MAX_KINDS = 6

WORST_FIRST = (Verdict.STUCK, Verdict.UNKNOWN, Verdict.STALE, Verdict.HELD, Verdict.FREE)
"""Order of the rows; places without a lock come last."""


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
    refusal: str = ""
    """Why the lock cannot be freed from here; "" if it can."""
    step: tuple[str, str] = "", ""
    """The key of the next step, and what it does."""


def place_lock(session: PlaceSession, *, read_only: bool) -> PlaceLock:
    """The lock of a place as known now."""
    none = session.place.no_lock if session.place.has_leases else ""
    worker = session.worker.pid if none else None
    evidence, backlog = session.readings.lock, session.backlog
    lacks_worker = bool(backlog and backlog.due) and session.lacks_worker
    key, _, does = lock_step(session, read_only=read_only)
    if evidence is None or none or evidence.verdict not in ALARMING_VERDICTS:
        key, does = "", none or view.why_no_plan(evidence)
        if lacks_worker:
            key, does = start_step(session, read_only=read_only)
    return PlaceLock(
        session.number,
        session.place.name,
        evidence,
        backlog,
        why_no_lock=none,
        worker=worker,
        lacks_worker=lacks_worker,
        refusal=session.place.why_no_unlock(read_only),
        step=(key, does),
    )


def worst_first(locks: Sequence[PlaceLock]) -> list[PlaceLock]:
    """The locks sorted by verdict; equal ones by the number of the place."""

    def rank(lock: PlaceLock) -> tuple[int, int]:
        known = lock.evidence is not None and not lock.why_no_lock
        rank = WORST_FIRST.index(lock.evidence.verdict) if known and lock.evidence else 9
        return rank, lock.number

    return sorted(locks, key=rank)


def _cells(lock: PlaceLock, now: float) -> list[Run]:
    """Its cells from the state to the age of the oldest waiting task."""
    evidence, waiting = lock.evidence, lock.backlog
    if lock.why_no_lock:
        holder = "-" if lock.worker is None else f"PID {lock.worker}"
        return [(" no lock", "muted"), (holder, ""), *([("-", "muted")] * 3)]
    if evidence is None:
        return [(" ?", "unknown"), ("", ""), UNKNOWN_RUN, UNKNOWN_RUN, ("", "")]
    free = evidence.verdict is Verdict.FREE
    due = None if waiting is None else waiting.due
    blocks = Figure(due).text(form=lambda count: fit_count(int(count), 7))
    oldest = waiting.oldest_due if waiting is not None else None
    cells = [
        "-" if free else UNKNOWN if evidence.pid is None else f"PID {evidence.pid}",
        "-"
        if free
        else UNKNOWN
        if evidence.since is None
        else view.format_beat(now - evidence.since),
        blocks,
        "-" if oldest is None else format_minutes(now - oldest),
    ]
    styles = {"-": "muted", UNKNOWN: "unknown"}
    return [view.verdict_chip(evidence), *((text, styles.get(text, "")) for text in cells)]


LOCK_TABLE = Table[Sequence[Run]](
    (
        Column("PLACE", 5, itemgetter(1), most=24, keeps_end=True),
        Column("STATE", 8, itemgetter(2), most=9),
        Column("HOLDER", 9, itemgetter(3), most=11, least=52),
        Column("HEARTBEAT", 9, itemgetter(4), right=True),
        Column("WAITING", 7, itemgetter(5), right=True, least=40),
        Column("OLDEST", 6, itemgetter(6), right=True, least=56),
        # Narrower it would be cut in mid-word: the details below the rows have all of it.
        Column("WHY", 16, itemgetter(7), grows=REST, least=90, rank=1),
    ),
    gaps=(2, 1),
    margin=itemgetter(0),
)


def lock_table(locks: Sequence[PlaceLock], now: float, width: int) -> tuple[Line, list[Line]]:
    """Titles and one line per lock, in the given order."""
    rows = []
    for lock, name in zip(locks, short_names([lock.name for lock in locks]), strict=True):
        evidence, own = lock.evidence, "" if lock.worker is None else "; worker started here"
        why = f"{lock.why_no_lock}{own}" if evidence is None else evidence.reason
        cells = (name, "strong"), *_cells(lock, now), (safe_line(why), "muted")
        alarms = evidence is not None and evidence.verdict in ALARMING_VERDICTS
        rows.append([alarm_sign(alarms), *cells])
    return LOCK_TABLE.lines(rows, width)


def detail_lines(
    lock: PlaceLock, kinds: Ages | None, now: float, width: int, report: LockReport | None = None
) -> list[Line]:
    """Backlog by `kinds`, recovery and evidence of a lock, the longest last; `report` may be of
    another one."""
    if lock.why_no_lock:
        return _no_lock_lines(lock, width)
    if lock.evidence is None:
        return [cut_line(((" not examined yet", "muted"),), width)]
    report = _matching_report(lock.evidence, report)
    lines = _folded(report.finding.sentence, width)
    lines += _backlog_lines(lock, kinds, now, width)
    lines += section("recovery", _steps(lock, lock.evidence, width))
    facts = view.evidence_lines(report, width)
    lines += section("evidence", facts) if facts else []
    works = view.active_task_lines(report, now, width)
    return [*lines, *(section("tasks in work, by the logs", works) if works else [])]


def _no_lock_lines(lock: PlaceLock, width: int) -> list[Line]:
    lines = _folded(f"lock: {lock.why_no_lock}", width)
    if lock.worker is not None:
        words = f"worker: PID {lock.worker}, started by this console: W stops it"
        lines += [*_folded(words, width), *_folded(NO_LOCK_NOTE, width, "muted")]
    return lines


def _matching_report(evidence: LockEvidence, report: LockReport | None) -> LockReport:
    """The report of a lock if it is for this evidence; otherwise a new one."""
    facts = attrgetter("identity", "verdict", "holders")
    if report is not None and facts(report.evidence) == facts(evidence):
        return report
    return LockReport(evidence, lock_diagnosis.diagnose_lock(evidence))


def _backlog_lines(lock: PlaceLock, kinds: Ages | None, now: float, width: int) -> list[Line]:
    waiting = lock.backlog
    if waiting is None:
        return [((" waiting: ? not counted yet", "unknown"),)]
    if not waiting.due:
        return [((" waiting: no due tasks", ""),)]
    oldest = waiting.oldest_due
    old = "" if oldest is None else f", oldest {format_minutes(now - oldest)}"
    lines = _folded(f"waiting: {format_count(waiting.due, 'due task')}{old}", width)
    if kinds is None or kinds.by != "kind":
        return lines
    parts = [f"{safe_line(row.name) or '(none)'} {row.total:,}" for row in kinds.rows[:MAX_KINDS]]
    more_kinds = len(kinds.rows) - len(parts) + kinds.others
    parts += [f"({more_kinds:,} more kinds)"] if more_kinds else []
    other = "" if kinds.total.total == waiting.due else " (counted at another time)"
    return [*lines, *_folded(f"by kind{other}: " + "   ".join(parts), width)]


def _steps(lock: PlaceLock, evidence: LockEvidence, width: int) -> list[Line]:
    if evidence.verdict is Verdict.STALE:
        return _folded(lock.refusal or "can be freed without a worker", width)
    if lock.lacks_worker:
        return _folded(f"nothing to free; {NO_WORKER}", width, "warn")
    if evidence.verdict in (Verdict.FREE, Verdict.HELD):
        return _folded(view.why_no_plan(evidence), width)
    ladder = lock_breaker.planned_steps(evidence)
    if not ladder:
        return _folded(lock_breaker.manual_advice(evidence), width, "warn")
    lines: list[Line] = []
    for number, step in enumerate(ladder, 1):
        lines += folded_lines(step, width, lead=((f"  {number:<3}", "key"),))
    return lines


def _folded(text: str, width: int, style: str = "") -> list[Line]:
    return folded_lines(text, width, style, ((" ", ""),))
