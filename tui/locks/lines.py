"""One lock in full: verdict, what waits behind it, the evidence, what is in work; from values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from engine.locks import lock_breaker, process_stats
from engine.model import LockEvidence, State, Task, Verdict
from engine.monitor import lock_diagnosis
from engine.policy import lasting, until
from engine.text.safe import shown
from tui.format import present
from tui.format.present import Line, Run
from tui.locks.examination import ActiveTask, LockReport

NAMES = 18
"""Cells for the names of facts and a margin: "last sign of life" is the longest."""

ORIGIN = ("boot", "PID namespace", "host", "user")
"""Facts that are told in one line: where and by whom the lock was taken."""


def verdict_lines(case: LockReport, width: int) -> list[Line]:
    """The verdict with its certainty, in a sentence."""
    finding = case.finding
    head = f"{finding.verdict.upper()} ({finding.certainty})"
    first, *rest = present.folded(shown(f"{head}: {finding.why}"), max(8, width - 3))
    look = present.verdict_look(finding.verdict) or "strong"
    line: Line = (("  ", ""), (first[: len(head)], look), (first[len(head) :], ""))
    return [line, *(((f"  {piece}", ""),) for piece in rest)]


def behind_lines(
    case: LockReport, amounts: Mapping[State, str], now: float, width: int
) -> list[Line]:
    """What waits behind the lock, and at what rate it would go again; `amounts` in words."""
    words = f"behind it: {amounts[State.PENDING]}, {amounts[State.ACTIVE]}"
    waiting = case.standing
    if waiting is not None and waiting.oldest_due is not None:
        old = lasting(max(0.0, now - waiting.oldest_due))
        words += f"; {waiting.due:,} due, the oldest {old} old"
    lines = folded(words, width)
    if case.evidence.verdict in (Verdict.STUCK, Verdict.STALE):
        again = lock_diagnosis.flows_again(0 if waiting is None else waiting.due, case.before)
        lines += folded(again, width, "unknown" if again.startswith("?") else "")
    return lines


def evidence_rows(case: LockReport) -> list[tuple[str, str]]:
    """What the verdict rests on, as pairs of a name and words."""
    facts = dict(case.evidence.facts)
    origin = "; ".join(f"{name} {facts[name]}" for name in ORIGIN if name in facts)
    rows = []
    for name, words in case.evidence.facts:
        if name == "last sign of life" and "limit" in facts:
            rows.append((name, f"{words}; limit {facts['limit']}"))
        elif name == ORIGIN[0]:
            rows.append(("taken", origin))
        elif name not in ("limit", "follows", *ORIGIN[1:]):
            rows.append((name, words))
    for life in case.lives:
        told = process_stats.facts(life.now, life.done)
        if len(case.lives) > 1:
            rows.append((f"PID {life.now.pid}", life.now.command or "?"))
        rows += told
    return rows


def evidence_lines(case: LockReport, width: int) -> list[Line]:
    """The same as lines, below a heading; none where there is nothing to go by."""
    rows = [(name, shown(words) or "?") for name, words in evidence_rows(case)]
    return [present.heading("evidence", width), *present.labelled(rows, width, NAMES)] * bool(rows)


def works_lines(case: LockReport, now: float, width: int) -> list[Line]:
    """What the logs say of each task in work, and what follows from it."""
    if not case.works:
        return []
    lines = [present.heading("what the logs say of what is in work", width)]
    for work in case.works:
        task, told = work
        lines.append(present.cut((("  ", ""), (shown(task.id), "strong")), width))
        unknown = "unknown" if told.unknown else "warning" if told.accepted else ""
        words = lock_diagnosis.on_record(told, now)
        if not told.unknown and case.abandoned:
            words += f". {lock_diagnosis.WHY[told.advice].partition(':')[0].capitalize()}."
        lines += folded(words, width, unknown, "    ")
    more = case.amount - len(case.works)
    return [*lines, ((f"  and {more:,} more", "dim"),)] if more > 0 else lines


def head_line(case: LockReport, refused: str, width: int) -> Line:
    """What stands above the tasks in work: whose they are, and what can be done with them."""
    amount = present.count(case.amount, "task")
    keys: tuple[Run, ...] = (
        *(("H", "key"), (" hold  ", ""), ("L", "key"), (" release  ", "")),
        *(("K", "key"), (" to the dead ", "")),
    )
    whose = "in work, and nobody works on it" if case.abandoned else "in work; its worker lives"
    line: Line = ((f" {amount} {whose}  ", "title"),)
    return present.cut((*line, *(() if refused else keys)), width)


def work_line(work: ActiveTask, case: LockReport, now: float, width: int) -> Line:
    """A task in work as a row to choose from."""
    task, told = work
    since = lasting(now - task.lease.since) if task.lease is not None else "?"
    tries = "?" if task.attempts is None else f"{task.attempts + 1}"
    cells = (
        (present.fit_end(shown(task.id), 38 if width >= 100 else 18), "strong"),
        (present.fit(shown(task.kind), 12), ""),
        (present.fit(f"for {since}", 14), ""),
        (present.fit(f"try {tries}", 6), ""),
    )
    runs: list[Run] = [("   ", "")]
    for cell in cells if width >= 80 else (cells[0], cells[2])[: 1 + (width >= present.NARROW)]:
        runs += [cell, (" ", "")]
    if told.unknown:
        advice: Run = (f"? {told.unknown}", "unknown")
    elif told.accepted is not None:
        advice = ("HOLD: accepted" if case.abandoned else "was accepted", "warning")
    else:
        advice = ("release: not done" if case.abandoned else "not done yet", "")
    runs.append((shown(advice[0]), advice[1]))
    return present.cut(present.merged(runs), width)


def became_lines(
    were: Sequence[Task],
    now_are: Mapping[str, Task | None],
    states: Mapping[State, str],
    now: float,
    width: int,
) -> list[Line]:
    """What became of the tasks that were in work, by where each stands now."""
    if not were:
        return []
    lines = [present.heading("what became of the tasks that were in work", width)]
    for task in were:
        words = _became(task, now_are, states, now)
        lines += folded(f"{task.id}: {words}", width, "unknown" if words[0] == "?" else "")
    return lines


def _became(
    task: Task, now_are: Mapping[str, Task | None], states: Mapping[State, str], now: float
) -> str:
    if task.id not in now_are:
        return "? not looked for yet"
    is_now = now_are[task.id]
    if is_now is None:
        return "it is not there any more"
    where = states.get(is_now.state, is_now.state)
    if is_now.state is State.ACTIVE:
        return f"in {where} still"
    counted = (is_now.attempts or 0) - (task.attempts or 0)
    tries = f", {present.count(counted, 'attempt')} counted" if counted > 0 else ""
    due = ""
    if is_now.state is State.PENDING and is_now.due is not None:
        due = f", due {until(is_now.due, now)}" if is_now.due > now else ", due at once"
    return f"to {where}{tries}{due}"


def folded(text: str, width: int, look: str = "", indent: str = "  ") -> list[Line]:
    """A text in lines, safe to show."""
    room = max(8, width - len(indent) - 1)
    return [((f"{indent}{piece}", look),) for piece in present.folded(shown(text), room)]


def accepted(case: LockReport) -> list[str]:
    """Ids of the tasks in work that must not run again, by what the logs say of them."""
    return [work.task.id for work in case.works if work.told.accepted is not None]


def difference(planned: LockEvidence, now: LockEvidence) -> str:
    """Why a plan for one lock must not be used on what is there now; "" when it may."""
    if now.verdict is not planned.verdict:
        return f"the lock was {planned.verdict}, and is {now.verdict} now"
    if (now.seen, now.pid, now.holders) != (planned.seen, planned.pid, planned.holders):
        return "the lock has changed hands"
    return f"it has become doubtful: {now.doubt}" if now.doubt != planned.doubt else ""


def why_nothing(evidence: LockEvidence | None) -> str:
    """Why there is no plan for a lock; "" where there is one."""
    if evidence is None:
        return "the lock has not been looked at yet"
    if evidence.verdict is Verdict.FREE:
        return "nothing to free: nobody holds the lock"
    if evidence.verdict is Verdict.HELD:
        return "nothing to free: its holder is at work"
    if evidence.doubt:
        return f"nothing will be signalled: {evidence.doubt}"
    known = evidence.verdict is Verdict.STALE or evidence.holders
    if not known or not present.is_freeable(evidence) or not lock_breaker.ladder(evidence):
        return "nothing is offered: who holds the lock is not known"
    return ""
