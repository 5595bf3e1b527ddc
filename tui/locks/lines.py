"""Text of the lock screen: verdict, backlog, evidence, active tasks and their outcome."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from engine.locks import lock_breaker, process_stats
from engine.model import LockEvidence, State, Task, Verdict
from engine.monitor import lock_diagnosis
from engine.policy import describe_duration, format_deadline
from engine.text.safe import safe_line
from tui.format import present
from tui.format.present import Line, Run
from tui.locks.examination import ActiveTask, LockReport

NAME_CELLS = 18
"""Width of the fact names in cells."""

ORIGIN_FACTS = ("boot", "PID namespace", "host", "user")
"""Facts joined in one line: where and by whom the lock was taken."""


def verdict_lines(case: LockReport, width: int) -> list[Line]:
    """The verdict with its certainty and reason."""
    finding = case.finding
    head = f"{finding.verdict.upper()} ({finding.certainty})"
    first, *rest = present.fold_text(safe_line(f"{head}: {finding.why}"), max(8, width - 3))
    look = present.verdict_style(finding.verdict) or "strong"
    line: Line = (("  ", ""), (first[: len(head)], look), (first[len(head) :], ""))
    return [line, *(((f"  {piece}", ""),) for piece in rest)]


def backlog_lines(
    case: LockReport, amounts: Mapping[State, str], now: float, width: int
) -> list[Line]:
    """Backlog behind the lock, and the rate after it is freed; `amounts` are formatted counts."""
    words = f"backlog: {amounts[State.PENDING]}, {amounts[State.ACTIVE]}"
    waiting = case.backlog
    if waiting is not None and waiting.oldest_due is not None:
        old = describe_duration(max(0.0, now - waiting.oldest_due))
        words += f"; {waiting.due:,} due, oldest {old}"
    lines = fold_lines(words, width)
    if case.evidence.verdict in (Verdict.STUCK, Verdict.STALE):
        again = lock_diagnosis.describe_drain_rate(
            0 if waiting is None else waiting.due, case.rate_before
        )
        lines += fold_lines(again, width, "unknown" if again.startswith("?") else "")
    return lines


def evidence_rows(case: LockReport) -> list[tuple[str, str]]:
    """The facts behind the verdict, as pairs of name and text."""
    facts = dict(case.evidence.facts)
    origin = "; ".join(f"{name} {facts[name]}" for name in ORIGIN_FACTS if name in facts)
    rows = []
    for name, words in case.evidence.facts:
        if name == "last heartbeat" and "limit" in facts:
            rows.append((name, f"{words}; limit {facts['limit']}"))
        elif name == ORIGIN_FACTS[0]:
            rows.append(("taken", origin))
        elif name not in ("limit", "follows", *ORIGIN_FACTS[1:]):
            rows.append((name, words))
    for life in case.processes:
        told = process_stats.list_facts(life.now, life.delta)
        if len(case.processes) > 1:
            rows.append((f"PID {life.now.pid}", life.now.command or "?"))
        rows += told
    return rows


def evidence_lines(case: LockReport, width: int) -> list[Line]:
    """The facts as lines with a heading; none without facts."""
    rows = [(name, safe_line(words) or "?") for name, words in evidence_rows(case)]
    return [
        present.heading_line("evidence", width),
        *present.labelled_lines(rows, width, NAME_CELLS),
    ] * bool(rows)


def active_task_lines(case: LockReport, now: float, width: int) -> list[Line]:
    """Log findings for each active task, and the advice."""
    if not case.active_tasks:
        return []
    lines = [present.heading_line("active tasks in the logs", width)]
    for work in case.active_tasks:
        task, told = work
        lines.append(present.cut_line((("  ", ""), (safe_line(task.id), "strong")), width))
        unknown = "unknown" if told.unknown else "warn" if told.accepted else ""
        words = lock_diagnosis.describe_task_log(told, now)
        if not told.unknown and case.is_abandoned:
            words += f". {lock_diagnosis.ADVICE_TEXT[told.advice].partition(':')[0].capitalize()}."
        lines += fold_lines(words, width, unknown, "    ")
    more = case.active_count - len(case.active_tasks)
    return [*lines, ((f"  +{more:,} more", "muted"),)] if more > 0 else lines


def head_line(case: LockReport, refused: str, width: int) -> Line:
    """Heading of the active tasks: their number, owner and keys."""
    amount = present.format_count(case.active_count, "task")
    keys: tuple[Run, ...] = (
        *(("H", "key"), (" hold  ", ""), ("L", "key"), (" release  ", "")),
        *(("K", "key"), (" to the DLQ ", "")),
    )
    whose = "in work, no worker" if case.is_abandoned else "in work, worker alive"
    line: Line = ((f" {amount} {whose}  ", "title"),)
    return present.cut_line((*line, *(() if refused else keys)), width)


def active_task_line(work: ActiveTask, case: LockReport, now: float, width: int) -> Line:
    """Row of an active task."""
    task, told = work
    since = describe_duration(now - task.lease.since) if task.lease is not None else "?"
    tries = "?" if task.attempts is None else f"{task.attempts + 1}"
    cells = (
        (present.fit_text_end(safe_line(task.id), 38 if width >= 100 else 18), "strong"),
        (present.fit_text(safe_line(task.kind), 12), ""),
        (present.fit_text(f"for {since}", 14), ""),
        (present.fit_text(f"try {tries}", 6), ""),
    )
    runs: list[Run] = [("   ", "")]
    for cell in (
        cells if width >= 80 else (cells[0], cells[2])[: 1 + (width >= present.NARROW_COLUMNS)]
    ):
        runs += [cell, (" ", "")]
    if told.unknown:
        advice: Run = (f"? {told.unknown}", "unknown")
    elif told.accepted is not None:
        advice = ("HOLD: accepted" if case.is_abandoned else "was accepted", "warn")
    else:
        advice = ("release: not finished" if case.is_abandoned else "not finished", "")
    runs.append((safe_line(advice[0]), advice[1]))
    return present.cut_line(present.merge_runs(runs), width)


def task_result_lines(
    were: Sequence[Task],
    now_are: Mapping[str, Task | None],
    states: Mapping[State, str],
    now: float,
    width: int,
) -> list[Line]:
    """Present states of the tasks that were active before the recovery."""
    if not were:
        return []
    lines = [present.heading_line("tasks that were in work", width)]
    for task in were:
        words = _describe_task_result(task, now_are, states, now)
        lines += fold_lines(f"{task.id}: {words}", width, "unknown" if words[0] == "?" else "")
    return lines


def _describe_task_result(
    task: Task, now_are: Mapping[str, Task | None], states: Mapping[State, str], now: float
) -> str:
    if task.id not in now_are:
        return "? loading ..."
    is_now = now_are[task.id]
    if is_now is None:
        return "gone"
    where = states.get(is_now.state, is_now.state)
    if is_now.state is State.ACTIVE:
        return f"still in {where}"
    counted = (is_now.attempts or 0) - (task.attempts or 0)
    tries = f", {present.format_count(counted, 'attempt')} counted" if counted > 0 else ""
    due = ""
    if is_now.state is State.PENDING and is_now.due is not None:
        due = f", due {format_deadline(is_now.due, now)}" if is_now.due > now else ", due now"
    return f"to {where}{tries}{due}"


def fold_lines(text: str, width: int, look: str = "", indent: str = "  ") -> list[Line]:
    """Fold a text into lines, escaped for the terminal."""
    room = max(8, width - len(indent) - 1)
    return [((f"{indent}{piece}", look),) for piece in present.fold_text(safe_line(text), room)]


def accepted_ids(case: LockReport) -> list[str]:
    """Ids of active tasks that must not run again: the log says that the mail was accepted."""
    return [work.task.id for work in case.active_tasks if work.log_summary.accepted is not None]


def why_outdated(planned: LockEvidence, now: LockEvidence) -> str:
    """Why a plan for one lock does not apply to its present state; "" if it does."""
    if now.verdict is not planned.verdict:
        return f"lock changed from {planned.verdict} to {now.verdict}"
    if (now.identity, now.pid, now.holders) != (planned.identity, planned.pid, planned.holders):
        return "the lock has another holder"
    return (
        f"now unsafe to signal: {now.signal_refusal}"
        if now.signal_refusal != planned.signal_refusal
        else ""
    )


def why_no_plan(evidence: LockEvidence | None) -> str:
    """Why there is no plan for a lock; "" if there is one."""
    if evidence is None:
        return "lock not examined yet"
    if evidence.verdict is Verdict.FREE:
        return "nothing to free; next worker takes it"
    if evidence.verdict is Verdict.HELD:
        return "nothing to free: its holder is running"
    if evidence.signal_refusal:
        return f"no process is signalled: {evidence.signal_refusal}"
    known = evidence.verdict is Verdict.STALE or evidence.holders
    if not known or not present.is_freeable(evidence) or not lock_breaker.planned_steps(evidence):
        return "no plan: lock holder unknown"
    return ""
