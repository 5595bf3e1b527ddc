"""`locks`: print the locks, the evidence about their holders, and the waiting tasks."""

from __future__ import annotations

import asyncio
import shlex
import time
from collections.abc import Sequence

from engine.formats.base.format import Setup
from engine.index.age_table import Ages
from engine.locks import process_stats
from engine.monitor import lock_diagnosis
from engine.store import Unavailable
from engine.text.folding import contains_words
from engine.text.safe import safe_line
from engine.values import NamedTuple
from tui.cli.queue.status import ATTENTION, OK, UNREADABLE
from tui.cli.setup.one_look import scan_once
from tui.cli.setup.output import Answer, columns
from tui.cli.setup.places import open_places
from tui.locks import list_lines as view
from tui.locks.examination import ActiveTask, LockExaminer, LockReport, ProcessSample
from tui.locks.list_lines import PlaceLock
from tui.locks.lock_lines import accepted_ids
from tui.session import index_queries
from tui.session.place_session import PlaceSession
from tui.text.lines import BLANK_LINE, Line, heading_line
from tui.text.lock import ALARMING_VERDICTS, is_freeable
from tui.text.table import short_names
from tui.text.task_row import time_fields

SAMPLE_INTERVAL_SECONDS = 0.5
"""Seconds between two samples of a process, to measure its CPU and I/O."""


class LockSummary(NamedTuple):
    """What was read about one lock."""

    lock: PlaceLock
    kinds: Ages | None
    """Due tasks by kind; None if the place cannot be read."""
    command: Sequence[str]
    """The command that names the place; empty if nothing frees its lock."""
    report: LockReport | None
    """The examination of the lock; None if the place has no lock."""


def locks(setup: Setup, places: list[str], *, filter: str) -> Answer:
    """Print every lock; exit 0 OK, 1 one needs attention, 2 a place cannot be read."""
    locked = [p for p in open_places(setup, places) if p.lock is not None or p.has_leases]

    async def ask(sessions: Sequence[PlaceSession]) -> list[LockSummary]:
        return [await _summarize_lock(session) for session in sessions]

    summaries = [one for one in scan_once(locked, ask) if contains_words(_words(one), filter)]
    now, code, found = time.time(), OK, [one.lock.evidence for one in summaries]
    if any(summary.kinds is None for summary in summaries):
        code = UNREADABLE
    elif any(one and one.verdict in ALARMING_VERDICTS for one in found):
        code = ATTENTION
    return Answer(
        lambda: {"locks": [_as_row(summary, now) for summary in summaries]},
        lambda: _page(summaries, now, columns()),
        code,
    )


def _words(summary: LockSummary) -> str:
    evidence = summary.lock.evidence
    texts: tuple[str, ...] = (summary.lock.why_no_lock,)
    if evidence is not None:
        texts = (evidence.verdict, str(evidence.pid or ""), evidence.reason)
    return " ".join((summary.lock.name, *texts))


async def _summarize_lock(session: PlaceSession) -> LockSummary:
    kinds = None
    try:
        if not session.inspector.latest.unavailable:
            await session.query_backlog()
            kinds = await index_queries.query_due_kinds(session)
    except Unavailable:
        kinds = None  # shown by the exit code and by question marks
    command = session.place.command if session.place.recovery_command else ()
    report = None if session.place.lock is None else await _examined(session)
    return LockSummary(view.place_lock(session, read_only=False), kinds, command, report)


async def _examined(session: PlaceSession) -> LockReport:
    exam = LockExaminer(session)
    if (await exam.examine()).processes:
        await asyncio.sleep(SAMPLE_INTERVAL_SECONDS)  # CPU and I/O are differences of two samples
        await exam.examine()
    await exam.read_logs()
    return await exam.examine()


def _page(summaries: Sequence[LockSummary], now: float, width: int) -> list[Line]:
    order = view.worst_first([summary.lock for summary in summaries])
    head, rows = view.lock_table(order, now, width)
    lines, names = [head, *rows], short_names([summary.lock.name for summary in summaries])
    for summary, name in zip(summaries, names, strict=True):
        lines += [BLANK_LINE, heading_line(name, width)]
        lines += view.detail_lines(summary.lock, summary.kinds, now, width, summary.report)
        lines += [free] if (free := _free(summary)) else []
    return lines


def _free(summary: LockSummary) -> Line:
    report = summary.report
    if not summary.command or report is None or not is_freeable(report.evidence):
        return ()
    hold = [word for id in accepted_ids(report) for word in ("--hold", id)]
    words = shlex.join([*summary.command, "queue", "recover", *hold])
    return ((f" {safe_line(words)}", "key"), (" asks, then frees the lock", ""))


def _as_row(summary: LockSummary, now: float) -> dict[str, object]:
    lock, evidence, waiting = summary.lock, summary.lock.evidence, summary.lock.backlog
    report = summary.report
    kinds = None if summary.kinds is None else {row.name: row.total for row in summary.kinds.rows}
    return {
        "place": lock.name,
        "verdict": None if evidence is None else str(evidence.verdict),
        "pid": None if evidence is None else evidence.pid,
        **time_fields("heartbeat", None if evidence is None else evidence.since),
        "reason": lock.why_no_lock if evidence is None else evidence.reason,
        "doubt": "" if evidence is None else evidence.signal_refusal,
        "evidence": {} if evidence is None else dict(evidence.facts),
        "certainty": None if report is None else str(report.finding.certainty),
        "finding": lock.why_no_lock if report is None else report.finding.sentence,
        "processes": [] if report is None else [_process(life) for life in report.processes],
        "in_work": []
        if report is None
        else [_in_work(work, report, now) for work in report.active_tasks],
        "ran_per_second_before": None if report is None else report.rate_before,
        "due": None if waiting is None else waiting.due,
        **time_fields("oldest_due", None if waiting is None else waiting.oldest_due),
        "due_by_kind": kinds,
    }


def _process(life: ProcessSample) -> dict[str, object]:
    now, done = life
    return {
        "pid": now.pid,
        "unknown": now.unknown,
        "state": now.state,
        "does": process_stats.describe_state(now),
        "waits_in": safe_line(now.waits),
        "seconds": None if done is None else done.seconds,
        "cpu_seconds": None if done is None else done.cpu,
        "bytes_moved": None if done is None else done.io_bytes,
        "files_below": None if isinstance(now.files, str) else list(now.files.below),
        "children": None
        if isinstance(now.descendants, str)
        else [child.pid for child in now.descendants],
    }


def _in_work(work: ActiveTask, report: LockReport, now: float) -> dict[str, object]:
    log_summary = work.log_summary
    return {
        "id": safe_line(work.task.id),
        "kind": safe_line(work.task.kind),
        "abandoned": report.is_abandoned,
        "accepted": None if log_summary.unknown else log_summary.accepted is not None,
        "log": lock_diagnosis.describe_task_log(log_summary, now),
        "recommended": None if log_summary.unknown else log_summary.advice,
    }
