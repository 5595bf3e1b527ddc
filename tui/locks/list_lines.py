"""The locks: who has each, what is known of that, and what waits behind it, from values alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rich.cells import cell_len

from engine.index.age_table import Ages
from engine.index.backlog import BacklogSummary
from engine.locks import lock_breaker
from engine.model import LockEvidence, Verdict
from engine.monitor import lock_diagnosis
from engine.monitor.throughput import spell
from engine.text.safe import shown
from tui.format import present
from tui.format.human import format_count
from tui.format.present import BLANK, Line, Run
from tui.format.table import MARGIN, UNKNOWN, names
from tui.locks import lines as view
from tui.locks.examination import LockReport
from tui.session.place import LEASES, NO_WORKER
from tui.session.place_session import PlaceSession

BESIDE = "others may work beside it: what one of them has claimed, no other takes"
"""What is to be known of a worker where there is no lock."""

KINDS = 6
"""Kinds of waiting tasks that are told of by name."""


class Lock(NamedTuple):
    """One place's lock."""

    number: int
    """Which of the places it is, from 1."""
    name: str
    """As the operator gave it."""
    evidence: LockEvidence | None = None
    """What was seen last; None when it was not looked at yet."""
    standing: BacklogSummary | None = None
    """What waits behind it; None when that is not known."""
    none: str = ""
    """Why there is none at this place, and needs none; "" where there is one."""
    worker: int | None = None
    """PID of the worker that this console started there, while it runs; None without one. Where
    there is a lock, that tells of it."""
    lacks_worker: bool = False
    """Whether due tasks wait and no worker is running."""


def of(live: PlaceSession) -> Lock:
    """A place's lock as it is known now."""
    none = LEASES if live.place.leases else ""
    worker = live.worker.pid if none else None
    due = live.standing is not None and live.standing.due > 0
    seen = (live.signs.lock, live.standing, none, worker, due and live.lacks_worker)
    return Lock(live.number, live.place.name, *seen)


class LockColumn(NamedTuple):
    """A column of the table of locks."""

    title: str
    width: int
    right: bool = False
    least: int = 0
    """Cells that a screen must have for it."""


COLUMNS = (
    LockColumn("BEAT", 6, right=True),
    LockColumn("HOLDER", 12, least=60),
    LockColumn("VERDICT", 8),
    LockColumn("BLOCKS", 7, right=True),
    LockColumn("OLDEST", 6, right=True, least=60),
)
"""Behind the name; the reason takes what is left."""
HOLDER = 1
"""Which of them says who is at work."""


def _cells(lock: Lock, now: float) -> list[Run]:
    evidence, waiting = lock.evidence, lock.standing
    if lock.none:
        cells: list[Run] = [("-", "")] * len(COLUMNS)
        if lock.worker is not None:
            cells[HOLDER] = (f"PID {lock.worker}", "")
        return cells
    if evidence is None:
        return [UNKNOWN, ("", ""), ("?", "unknown"), UNKNOWN, ("", "")]
    free = evidence.verdict is Verdict.FREE
    beat = "-" if free else "?" if evidence.since is None else spell(now - evidence.since)
    who = "-" if free else "?" if evidence.pid is None else f"PID {evidence.pid}"
    blocks = "?" if waiting is None else format_count(waiting.due, 7)
    oldest = waiting.oldest_due if waiting is not None else None
    return [
        (beat, "unknown" if beat == "?" else ""),
        (who, "unknown" if who == "?" else ""),
        (evidence.verdict.upper(), present.verdict_look(evidence.verdict)),
        ("-" if free else blocks, ""),
        ("-" if free or oldest is None else present.span(now - oldest), ""),
    ]


def table(locks: Sequence[Lock], now: float, width: int) -> tuple[Line, list[Line]]:
    """The titles, and a line for each lock in the order given."""
    shape = [(at, column) for at, column in enumerate(COLUMNS) if width >= column.least]
    called = names([lock.name for lock in locks])
    fixed = MARGIN + sum(column.width + 1 for _, column in shape)
    longest = max((cell_len(name) for name in called), default=0)
    name_width = max(4, min(longest, 24, width - fixed - 1))
    titles = [present.fit("LOCK", name_width)]
    titles += [present.fit(c.title, c.width, c.right) for _, c in shape]
    rest = width - fixed - name_width - 1
    titles += ["WHY"] if rest >= 12 else []
    head: Line = ((present.fit(" " * MARGIN + " ".join(titles), width), "title"),)
    rows = []
    for lock, name in zip(locks, called, strict=True):
        cells = _cells(lock, now)
        runs: list[Run] = [
            (_sign(lock), "bad"),
            (present.fit_end(name, name_width) + " ", "strong"),
        ]
        for at, column in shape:
            text, look = cells[at]
            runs += [(present.fit(text, column.width, column.right), look), (" ", "")]
        reason = _alone(lock) if lock.evidence is None else lock.evidence.reason
        if rest >= 12 and reason:
            runs.append((shown(reason), "dim"))
        rows.append(present.cut(present.merged(runs), width))
    return head, rows


def _sign(lock: Lock) -> str:
    alarms = lock.evidence is not None and lock.evidence.verdict in present.ALARMING
    return " ! " if alarms else "   "


def about(
    lock: Lock,
    kinds: Ages | None,
    free: Line,
    now: float,
    width: int,
    case: LockReport | None = None,
) -> list[Line]:
    """What there is to say of one lock: evidence, who waits behind it, and what can be done.

    `kinds` are the tasks that are due, by kind; `free` is what would free it, empty for nothing;
    `case` is what an examination found, of this lock or, a moment ago, of another.
    """
    if lock.none:
        return _leased(lock, width)
    if lock.evidence is None:
        return [present.cut(((" not looked at yet", "dim"),), width)]
    case = examined(lock.evidence, case)
    lines = _folded(case.finding.words, width)
    lines += [*_waiting(lock, kinds, now, width), BLANK]
    none = "there is no lock file" if lock.evidence.verdict is Verdict.FREE else "as said above"
    lines += view.evidence_lines(case, width) or [
        present.heading("evidence", width),
        ((f" none: {none}", "dim"),),
    ]
    works = view.works_lines(case, now, width)
    lines += [BLANK, *works] if works else []
    steps = _steps(lock, lock.evidence, free, width)
    return [*lines, BLANK, present.heading("what can be done", width), *steps]


def _alone(lock: Lock) -> str:
    """Why there is no lock, and whose the worker is that is at work all the same."""
    return f"{lock.none}; its worker was started here" if lock.worker is not None else lock.none


def _leased(lock: Lock, width: int) -> list[Line]:
    """What there is to say where no lock keeps workers apart."""
    lines = _folded(f"lock: {lock.none}", width)
    if lock.worker is not None:
        words = f"worker: PID {lock.worker}, started by this console; W on its list stops it"
        lines += [*_folded(words, width), *_folded(BESIDE, width, "dim")]
    return lines


def examined(evidence: LockEvidence, case: LockReport | None) -> LockReport:
    """The case of a lock: what an examination found, where that was of the same lock."""
    if case is not None and _same(case.evidence, evidence):
        return case
    return LockReport(evidence, lock_diagnosis.finding(evidence))


def _same(one: LockEvidence, other: LockEvidence) -> bool:
    return (one.seen, one.verdict, one.holders) == (other.seen, other.verdict, other.holders)


def _waiting(lock: Lock, kinds: Ages | None, now: float, width: int) -> list[Line]:
    waiting = lock.standing
    if waiting is None:
        return [((" waiting behind it: ? not counted yet", "unknown"),)]
    if not waiting.due:
        return [((" waiting behind it: nothing is due", ""),)]
    oldest = "" if waiting.oldest_due is None else _since(now - waiting.oldest_due)
    due = present.count(waiting.due, "due task")
    lines = _folded(f"waiting behind it: {due}{oldest}", width)
    if kinds is None or kinds.by != "kind":
        return lines
    parts = [f"{shown(row.name) or '(none)'} {row.total:,}" for row in kinds.rows[:KINDS]]
    left = len(kinds.rows) - len(parts) + kinds.others
    parts += [f"({left:,} more kinds)"] if left else []
    return [*lines, *_folded("by kind: " + "   ".join(parts), width)]


def _since(seconds: float) -> str:
    return f", the oldest is {present.span(seconds)} old"


def _steps(lock: Lock, evidence: LockEvidence, free: Line, width: int) -> list[Line]:
    if lock.lacks_worker:
        return _folded(f"nothing to free. {NO_WORKER}", width, "warning")
    if evidence.verdict in (Verdict.FREE, Verdict.HELD):
        words = "the lock is free" if evidence.verdict is Verdict.FREE else "its holder is running"
        return _folded(f"nothing to free: {words}", width)
    ladder = lock_breaker.ladder(evidence)
    if not ladder or not free:
        return _folded(lock_breaker.by_hand(evidence), width, "warning")
    lines: list[Line] = []
    for number, step in enumerate(ladder, 1):
        first, *rest = present.folded(shown(step), max(8, width - 6))
        lines.append(((f"  {number:<3}", "key"), (first, "")))
        lines += [((f"     {piece}", ""),) for piece in rest]
    return [*lines, free]


def _folded(text: str, width: int, look: str = "") -> list[Line]:
    return [((f" {piece}", look),) for piece in present.folded(shown(text), max(8, width - 2))]
