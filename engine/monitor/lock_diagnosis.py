"""Lock diagnosis: verdict, certainty and next step, for an operator who was just paged.

Computed from values: the evidence on the lock, the holder's process statistics, and the log lines
about the active tasks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum

from engine.locks import process_stats
from engine.locks.process_stats import ProcessDelta, ProcessStats
from engine.logs import task_events
from engine.logs.log_line import LogLine
from engine.logs.task_events import EventKind, TaskEvent
from engine.model import LockEvidence, Verdict
from engine.monitor.run_forecast import Pace, forecast_runs, token_waits
from engine.text.figures import format_rate
from engine.text.safe import safe_line
from engine.text.times import describe_limit, format_rough_duration, format_time
from engine.values import NamedTuple

RUN_WINDOW_SECONDS = 600.0
"""Seconds before the lock's last heartbeat over which started tasks are counted."""

MIN_LOG_SECONDS = 30.0
"""Minimum seconds of log in that window; with less, no rate is given."""


class Certainty(StrEnum):
    """Certainty of a verdict."""

    SURE = "sure"
    LIKELY = "likely"
    DOUBTFUL = "doubtful"


class LockDiagnosis(NamedTuple):
    """A verdict, its certainty and the reason, in plain words."""

    verdict: Verdict
    certainty: Certainty
    why: str

    @property
    def sentence(self) -> str:
        """One full sentence."""
        return f"{self.verdict.upper()} ({self.certainty}): {self.why}"


def diagnose_lock(
    evidence: LockEvidence, holder: ProcessStats | None = None, done: ProcessDelta | None = None
) -> LockDiagnosis:
    """Diagnose a lock. `holder` is the state of its first holder process, `done` what that process
    did since the previous measurement. Evidence that contradicts itself makes no verdict sure."""
    contradiction = evidence.contradiction
    judged = evidence._replace(signal_refusal="") if contradiction else evidence
    certainty, why = _judge(judged, holder, done)
    if contradiction:
        certainty = Certainty.LIKELY if certainty is Certainty.SURE else certainty
        signals = "; no process is signalled" if evidence.signal_refusal else ""
        why = f"{why}; but {contradiction}{signals}"
    return LockDiagnosis(evidence.verdict, certainty, why)


_Said = tuple[Certainty, str]


def _judge(evidence: LockEvidence, holder: ProcessStats | None, done: ProcessDelta | None) -> _Said:
    likely = Certainty.SURE if evidence.is_proven else Certainty.LIKELY
    match evidence.verdict:
        case Verdict.FREE:
            return Certainty.SURE, f"lock not held ({evidence.reason}); the next worker takes it"
        case Verdict.STALE:
            words = "no worker running; the next worker takes it over"
            return likely, f"{evidence.reason}, {words}"
        case Verdict.HELD:
            return _held(evidence, holder, likely)
        case Verdict.STUCK:
            return _stuck(evidence, holder, done, likely)
        case Verdict.UNKNOWN:
            return Certainty.DOUBTFUL, f"cannot read lock: {evidence.reason}"


def _held(evidence: LockEvidence, holder: ProcessStats | None, likely: Certainty) -> _Said:
    evidence_text = f"{evidence.reason}, last heartbeat {format_rough_duration(evidence.age)} ago"
    if holder is None:
        return likely, evidence_text
    state = process_stats.describe_state(holder)
    if process_stats.is_stopped(holder):
        wake = f"kill -CONT {holder.pid} resumes it"
        return Certainty.DOUBTFUL, f"PID {holder.pid} has it, but {state}: {wake}"
    if process_stats.is_uninterruptible(holder):
        return Certainty.LIKELY, f"{evidence_text}; just now it {state}"
    return likely, evidence_text


def _stuck(
    evidence: LockEvidence,
    holder: ProcessStats | None,
    done: ProcessDelta | None,
    sure: Certainty,
) -> _Said:
    if evidence.signal_refusal:
        words = f"no process is signalled: {evidence.signal_refusal}"
        return Certainty.DOUBTFUL, f"{evidence.reason}; {words}"
    if holder is None or holder.unknown:
        return Certainty.LIKELY, evidence.reason
    holder_text = f"PID {holder.pid} (left behind by PID {evidence.pid}) is "
    who = "" if evidence.pid in (None, holder.pid) else holder_text
    silent = f"{who}alive, no heartbeat for {format_rough_duration(evidence.age)}"
    silent += f" (limit {describe_limit(evidence.limit)})" if evidence.limit else ""
    if process_stats.is_stopped(holder):
        return sure, f"{silent}: it {process_stats.describe_state(holder)} and is idle"
    if process_stats.is_uninterruptible(holder):
        return sure, f"{silent}: it {process_stats.describe_state(holder)}"
    if done is None:
        return Certainty.LIKELY, evidence.reason
    if done.is_working:
        busy = f"but it works: {process_stats.describe_activity(done)}"
        return Certainty.DOUBTFUL, f"{silent}, {busy}; perhaps slow, not hung"
    if done.io_bytes is None and not done.cpu:
        return Certainty.LIKELY, f"{silent}, no CPU used"
    hung = f"hung in {safe_line(holder.waits)}" if holder.waits else "hung"
    return sure, f"{silent}; idle: {hung}"


# ---- log lines of its active tasks


class TaskLogSummary(NamedTuple):
    """The log lines about a task that was active."""

    last: LogLine | None = None
    """The last line that mentions it; None if missing."""
    accepted: LogLine | None = None
    """The last line that reports success, or that another system has accepted the work."""
    unknown: str = ""
    """Why the logs cannot be used; "" if they can."""

    @property
    def advice(self) -> str:
        """The verb that risks least once no worker runs it: `hold` or `release`."""
        return "hold" if self.accepted is not None else "release"


_YES = re.compile(
    r"\b(?:accepted|delivered|completed|succeeded|sent|queued as|status=success|result=success"
    r"|250)\b",
    re.IGNORECASE,
)
_NO = re.compile(
    r"\b(?:not|never|cannot|can't|could not|refused|reject\w*|fail\w*|error|deferred|retry\w*"
    r"|to be sent|exhausted)\b",
    re.IGNORECASE,
)


def is_success_line(line: LogLine) -> bool:
    """True if a line reports success, so that a repeat would do the work twice. A known log event
    decides by its kind; any other line by a word for success without a word that negates it."""
    event = task_events.parse_event(line)
    if event is not None:
        return event.what is EventKind.SUCCEEDED
    return _YES.search(line.text) is not None and _NO.search(line.text) is None


def summarize_task_log(lines: Iterable[LogLine], id: str) -> TaskLogSummary:
    """Collect what log lines, in order of time, contain about a task."""
    last = accepted = None
    for line in lines:
        if id in line.text:
            last = line
            accepted = line if is_success_line(line) else accepted
    return TaskLogSummary(last, accepted)


def describe_task_log(summary: TaskLogSummary, now: float) -> str:
    """Describe in one sentence what the logs contain about a task and what a repeat would mean."""
    line = summary.accepted or summary.last
    if summary.unknown:
        return f"? {summary.unknown}: unknown whether a repeat would be a duplicate"
    if line is None:
        return "no log line mentions it: no record of success"
    quoted = f'"{safe_line(line.text)}"'
    if line.when is not None:
        ago = format_rough_duration(now - line.when)
        quoted += f" at {format_time(line.when)[11:]} ({ago} ago)"
    if summary.accepted is not None:
        return f"{quoted}: accepted, a repeat would be a duplicate"
    return f"{quoted}, the last log line: no record of success"


ADVICE_TEXT = {
    "hold": "hold it: accepted, a repeat would be a duplicate",
    "release": "release it: no record of success",
}
"""Recommended verb for a task that no worker runs any more, with the reason."""


# ---- drain rate once the lock is free


def start_rate_before(events: Sequence[TaskEvent], moment: float) -> float | None:
    """Return tasks per second started before a moment, from log events; None if the log covers too
    little of that time."""
    dated = [each.when for each in events if each.when is not None]
    start = max(moment - RUN_WINDOW_SECONDS, min(dated, default=moment))
    if moment - start < MIN_LOG_SECONDS:
        return None
    starts = (e.when for e in events if e.what is EventKind.STARTED and not e.transport)
    begun = sum(when is not None and start <= when <= moment for when in starts)
    return begun / (moment - start) if begun else None


def describe_drain(due: Mapping[str, int], pace: Pace, now: float) -> str:
    """Describe how long the due tasks (numbers by kind) would take once the lock is free, at the
    rate of the pace or at the rate limit that takes longer."""
    if pace.per_second is None:
        return "drain rate unknown (no earlier log)"
    if isinstance(pace.buckets, str):
        return f"drain time unknown: rate limits cannot be read: {safe_line(pace.buckets)}"
    turns = forecast_runs({"": sum(due.values()) + 1}, pace._replace(buckets=()), now)
    for slow in token_waits(due, pace, now, due, with_retries=False):
        of = f" of {safe_line(slow.bucket or '') or 'all kinds'}"
        if slow.unknown:
            return f"would not drain: {slow.unknown}{of}"
        if slow.seconds is not None and slow.seconds > (turns.seconds or 0.0):
            return f"would drain in {format_rough_duration(slow.seconds)}: {slow.terms}{of}"
    is_known = any(due.values()) and turns.seconds is not None
    duration = f", {format_rough_duration(turns.seconds or 0.0)}" if is_known else ""
    return f"would drain at {format_rate(pace.per_second)}{duration}"
