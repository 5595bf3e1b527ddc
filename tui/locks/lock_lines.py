"""Text of the lock screen: verdict, backlog, evidence, active tasks and their outcome."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from math import inf

from engine.locks import lock_breaker, process_stats
from engine.model import LockEvidence, State, Task, Verdict
from engine.monitor import lock_diagnosis
from engine.text.figure import UNKNOWN, Figure
from engine.text.figures import format_count
from engine.text.safe import safe_line
from engine.text.times import describe_limit, format_deadline, format_rough_duration
from engine.values import NamedTuple
from tui.locks.examination import ActiveTask, LockReport
from tui.text.lines import (
    BLANK_LINE,
    Line,
    Run,
    cut_line,
    fit_text,
    fold_text,
    folded_lines,
    merge_runs,
    parts_that_fit,
    width_of,
)
from tui.text.lock import is_freeable, verdict_style
from tui.text.task_list import SHORT_ID_CELLS, short_id
from tui.text.times import format_age, format_clock, format_minutes

NAME_CELLS = 12

MAX_COMMAND_LINES, WHOLE_COMMAND_CELLS = 3, 100
"""Lines of the command line of a process on a pane that is narrower than so many cells."""

SECONDS_UP_TO = 120.0
"""Ages below this many seconds are shown in seconds: limits are often one or two minutes."""


def format_beat(seconds: float) -> str:
    """The age of a heartbeat: `2s ago`, `95s ago`, `47m ago`."""
    if 0 <= seconds < SECONDS_UP_TO:
        return f"{int(seconds)}s ago"
    return format_age(seconds)


def verdict_chip(evidence: LockEvidence) -> Run:
    """The verdict as a word; as a chip if it needs an operator."""
    style = verdict_style(evidence.verdict)
    chip = f"chip-{style}" if evidence.verdict in (Verdict.STUCK, Verdict.STALE) else style
    return f" {evidence.verdict.upper()} ", chip


def verdict_lines(report: LockReport, now: float, width: int) -> list[Line]:
    """The verdict and how sure it is, its process, the tasks behind it, and the reason."""
    finding, evidence, waiting = report.finding, report.evidence, report.backlog
    alarms = evidence.verdict in (Verdict.STUCK, Verdict.STALE)
    age = f"{format_minutes(evidence.age)}, " if alarms and evidence.since else ""
    parts: list[Line] = [
        (("   ", ""), verdict_chip(evidence), (f"  {age}{finding.certainty}", "strong"))
    ]
    if evidence.pid is not None:
        parts.append((("   PID ", "muted"), (f"{evidence.pid}", "strong")))
    if waiting is not None and waiting.due:
        due = format_count(waiting.due, "due task")
        waits = "waits" if waiting.due == 1 else "wait"
        parts.append(((f"   {due} {waits}", "error" if alarms else ""),))
        if waiting.oldest_due is not None:
            parts.append(((f", oldest {format_minutes(now - waiting.oldest_due)}", ""),))
    drain = report.drain if alarms else ""
    drain_part = f"   {drain}" if drain else ""
    fits = width_of(tuple(run for part in parts for run in part)) + len(drain_part) <= width
    head = parts_that_fit([*parts, *([((drain_part, "muted"),)] if fits else [])], width)
    lines = [head, *folded_lines(finding.why, width, lead=(("   ", ""),))]
    return [
        *lines,
        *(folded_lines(drain, width, "muted", (("   ", ""),)) if drain and not fits else []),
    ]


def timeline_lines(report: LockReport, now: float, width: int) -> list[Line]:
    """The life of a stuck holder as a bar: with heartbeats, silent, and over the limit."""
    evidence, life = report.evidence, report.processes[0].now if report.processes else None
    if evidence.verdict is not Verdict.STUCK or not evidence.limit or evidence.since is None:
        return []
    if not report.is_examined:
        return [(("   ?", "unknown"), (" process not examined yet", "muted")), BLANK_LINE]
    if life is None or life.unknown or not life.started:
        return []
    began = now - (life.when - life.started / os.sysconf("SC_CLK_TCK"))
    over = now - evidence.since - evidence.limit
    if began > evidence.since or over < 0:
        return []
    room = max(10, width - 4)
    scale = room / (now - began)
    late, silent = max(1, round(over * scale)), max(1, round(evidence.limit * scale))
    alive = max(1, room - late - silent)
    bar: Line = (("   ", ""), ("▄" * alive, "ok"), ("▄" * silent, "warn"), ("▄" * late, "error"))
    words: Line = (
        (f"   {format_clock(began)} process started   ", "muted"),
        (f"{format_clock(evidence.since)} last heartbeat   ", "ok"),
        (f"limit {describe_limit(evidence.limit)}   ", "warn"),
        (f"over by {format_minutes(over)}", "error"),
    )
    return [bar, cut_line(words, width)]


class Fact(NamedTuple):
    """A fact behind a verdict."""

    name: str
    words: str
    mark: str = ""
    """`ok`: it agrees with the verdict; `!`: contradicts it; `?`: unknown; "": proves nothing."""


MARK_LOOKS = {"ok": "ok", "!": "warn", UNKNOWN: "unknown", "": ""}


def list_facts(report: LockReport) -> list[Fact]:
    """The facts behind the verdict: those that prove something, then the others."""
    evidence, facts = report.evidence, dict(report.evidence.facts)
    proofs: list[Fact] = []
    others = [Fact("process", facts["holder"])] if "holder" in facts else []
    if "started" in facts:
        when, _, identity = facts["started"].partition(": ")
        known = identity.startswith(("matches", "before"))
        proofs.append(Fact("same process", identity, "ok" if known else "!"))
        others.append(Fact("started", when))
    if "boot" in facts:
        proofs.append(_origin(facts))
    if "last heartbeat" in facts:
        words = f"{format_beat(evidence.age)}, at {facts['last heartbeat'].partition(',')[0]}"
        limit = f"; limit {describe_limit(evidence.limit)}" if evidence.limit else ""
        proofs.append(Fact("heartbeat", words + limit, "!" if evidence.contradiction else "ok"))
    for number, life in enumerate(report.processes):
        process_facts = process_stats.list_facts(life.now, life.delta)
        if number:
            others.append(Fact(f"PID {life.now.pid}", life.now.command or UNKNOWN))
        contradicts = evidence.verdict is Verdict.STUCK and life.delta and life.delta.is_working
        for name, words in process_facts:
            proof = name in ("CPU", "IO", "state") and not number
            mark = UNKNOWN if words.startswith(UNKNOWN) else "!" if contradicts else "ok"
            (proofs if proof else others).append(Fact(name, words, mark if proof else ""))
    if "flock" in facts:
        words = facts["flock"]
        proofs.append(Fact("flock", words, UNKNOWN if words.startswith(UNKNOWN) else "ok"))
    names = ("user", "file system", "written by")
    return [*proofs, *others, *(Fact(name, facts[name]) for name in names if name in facts)]


def _origin(facts: Mapping[str, str]) -> Fact:
    """Where the lock was taken: boot, host and PID namespace."""
    boot, space, host = (facts.get(name, UNKNOWN) for name in ("boot", "PID namespace", "host"))
    same = boot == "same", host.endswith("this host"), space == "same"
    words = (
        "this boot" if same[0] else f"boot: {boot}",
        "this host" if same[1] else f"host {host}",
        "same PID namespace" if same[2] else f"PID namespace: {space}",
    )
    return Fact("same place", ", ".join(words), "ok" if all(same) else "!")


def count_proofs(report: LockReport) -> str:
    """How many facts agree with the verdict: `6 of 7 agree`."""
    marks = [fact.mark for fact in list_facts(report) if fact.mark]
    return f"{marks.count('ok')} of {len(marks)} agree" if marks else ""


def evidence_lines(report: LockReport, width: int) -> list[Line]:
    """The facts as lines; none without facts."""
    lines: list[Line] = []
    indent = NAME_CELLS + 6
    for name, words, mark in list_facts(report):
        text = words.removeprefix("? ") if mark == UNKNOWN else words
        room = max(8, width - indent - 1)
        is_cut = name.startswith(("process", "PID ")) and width < WHOLE_COMMAND_CELLS
        most = MAX_COMMAND_LINES if is_cut else inf
        pieces = fold_text(safe_line(text) or UNKNOWN, room, most)
        pieces[-1] = fit_text(pieces[-1], room).rstrip()
        style = "unknown" if words.startswith(UNKNOWN) else ""
        lines.append(
            (
                (f" {mark:<3}", MARK_LOOKS[mark]),
                (fit_text(name, NAME_CELLS) + "  ", "muted"),
                (pieces[0], style),
            )
        )
        lines += [((" " * indent + piece, style),) for piece in pieces[1:]]
    return lines


def active_task_lines(report: LockReport, now: float, width: int) -> list[Line]:
    """Log findings for each active task, and the advice."""
    if not report.active_tasks:
        return []
    lines: list[Line] = []
    for work in report.active_tasks:
        task, summary = work
        lines.append(cut_line((("  ", ""), (safe_line(task.id), "strong")), width))
        unknown = "unknown" if summary.unknown else "warn" if summary.accepted else ""
        words = lock_diagnosis.describe_task_log(summary, now)
        if not summary.unknown and report.is_abandoned:
            words += (
                f". {lock_diagnosis.ADVICE_TEXT[summary.advice].partition(':')[0].capitalize()}."
            )
        lines += folded_lines(words, width, unknown, (("    ", ""),))
    more = report.active_count - len(report.active_tasks)
    return [*lines, ((f"  +{more:,} more", "muted"),)] if more > 0 else lines


def active_task_line(work: ActiveTask, report: LockReport, now: float, width: int) -> Line:
    """Row of an active task."""
    task, summary = work
    began = task.lease.since if task.lease is not None else 0.0
    since = format_rough_duration(now - began) if began > 0 else UNKNOWN
    tries = Figure(None if task.attempts is None else task.attempts + 1).text()
    cells = (
        (short_id(task.id), SHORT_ID_CELLS, "accent", 0),
        (safe_line(task.kind), 12, "", 48),
        (f"for {since}", 12, "", 40),
        (f"try {tries}", 6, "muted", 70),
    )
    runs: list[Run] = [("   ", "")]
    for text, cell_width, style, least in cells:
        if width >= least:
            runs += [(fit_text(text, cell_width), style), ("  ", "")]
    if summary.unknown:
        is_absent = summary.unknown.endswith("do not exist")  # none of the logs
        advice: Run = (f"? {'not in the log' if is_absent else summary.unknown}", "unknown")
    elif summary.accepted is not None:
        advice = ("HOLD: accepted" if report.is_abandoned else "was accepted", "warn")
    else:
        advice = ("release: not finished" if report.is_abandoned else "not finished", "")
    runs.append((safe_line(advice[0]), advice[1]))
    return cut_line(merge_runs(runs), width)


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
    lines: list[Line] = []
    for task in were:
        words = _describe_task_result(task, now_are, states, now)
        lines += folded_lines(
            f"{task.id}: {words}", width, "unknown" if words[0] == UNKNOWN else ""
        )
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
    tries = f", {format_count(counted, 'attempt')} counted" if counted > 0 else ""
    due = ""
    if is_now.state is State.PENDING and is_now.due is not None:
        due = f", due {format_deadline(is_now.due, now)}" if is_now.due > now else ", due now"
    return f"to {where}{tries}{due}"


def accepted_ids(report: LockReport) -> list[str]:
    """Ids of active tasks that must not run again: the log says that the mail was accepted."""
    return [work.task.id for work in report.active_tasks if work.log_summary.accepted is not None]


def why_outdated(planned: LockEvidence, now: LockEvidence) -> str:
    """Why a plan for one lock does not apply to its present state; "" if it does."""
    if now.verdict is not planned.verdict:
        return f"lock changed from {planned.verdict} to {now.verdict}"
    if (now.identity, now.pid, now.holders) != (planned.identity, planned.pid, planned.holders):
        return "the lock has another holder"
    is_same = now.signal_refusal == planned.signal_refusal
    return "" if is_same else f"now unsafe to signal: {now.signal_refusal}"


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
    if not known or not is_freeable(evidence) or not lock_breaker.planned_steps(evidence):
        return "no plan: lock holder unknown"
    return ""
