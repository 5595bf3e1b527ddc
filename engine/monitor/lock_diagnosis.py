"""What to make of a lock at three in the morning: how it stands, how sure that is, what to do.

All from values: the evidence on the lock, what its holder does, and what the logs say of the tasks
that it had in hand.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import NamedTuple

from engine.locks import process_stats
from engine.locks.process_stats import ProcessDelta, Vitals
from engine.logs import task_events
from engine.logs.log_tail import LogLine
from engine.logs.task_events import Event, EventKind
from engine.model import LockEvidence, Verdict
from engine.policy import at, lasting
from engine.text.safe import shown

REACH = 600.0
"""Seconds before a lock's last sign of life over which it is counted how many tasks ran."""

ENOUGH = 30.0
"""Seconds of those that must be known, else nothing is said of a rate."""


class Certainty(StrEnum):
    """How far a verdict is to be believed."""

    SURE = "sure"
    LIKELY = "likely"
    DOUBTFUL = "doubtful"


class LockDiagnosis(NamedTuple):
    """A verdict with its certainty, and why, for somebody who was just woken."""

    verdict: Verdict
    certainty: Certainty
    why: str

    @property
    def words(self) -> str:
        """The whole sentence."""
        return f"{self.verdict.upper()} ({self.certainty}): {self.why}"


def finding(
    evidence: LockEvidence, holder: Vitals | None = None, done: ProcessDelta | None = None
) -> LockDiagnosis:
    """How a lock stands; `holder` is what its first holder does, `done` what it did lately."""
    certainty, why = _JUDGES[evidence.verdict](evidence, holder, done)
    return LockDiagnosis(evidence.verdict, certainty, why)


_Said = tuple[Certainty, str]


def _free(evidence: LockEvidence, holder: Vitals | None, done: ProcessDelta | None) -> _Said:
    return Certainty.SURE, f"nobody holds the lock ({evidence.reason}); whoever comes next takes it"


def _unknown(evidence: LockEvidence, holder: Vitals | None, done: ProcessDelta | None) -> _Said:
    return Certainty.DOUBTFUL, f"whether anybody holds it cannot be told: {evidence.reason}"


def _stale(evidence: LockEvidence, holder: Vitals | None, done: ProcessDelta | None) -> _Said:
    certainty = Certainty.SURE if evidence.proven else Certainty.LIKELY
    return certainty, f"{evidence.reason}, nobody works here; whoever comes next takes it over"


def _held(evidence: LockEvidence, holder: Vitals | None, done: ProcessDelta | None) -> _Said:
    seen = f"{evidence.reason}, its last sign of life is {lasting(evidence.age)} old"
    if holder is not None and process_stats.is_stopped(holder):
        wake = f"kill -CONT {holder.pid} lets it go on"
        return (
            Certainty.DOUBTFUL,
            f"PID {holder.pid} has it, but {process_stats.doing(holder)}: {wake}",
        )
    if holder is not None and process_stats.hears_nothing(holder):
        return Certainty.LIKELY, f"{seen}; just now it {process_stats.doing(holder)}"
    return Certainty.SURE if evidence.proven else Certainty.LIKELY, seen


def _stuck(evidence: LockEvidence, holder: Vitals | None, done: ProcessDelta | None) -> _Said:
    if evidence.doubt:
        return Certainty.DOUBTFUL, f"{evidence.reason}; nobody is signalled: {evidence.doubt}"
    sure = Certainty.SURE if evidence.proven else Certainty.LIKELY
    if holder is None or holder.unknown:
        return Certainty.LIKELY, evidence.reason
    left = f" (left behind by PID {evidence.pid})" if evidence.pid not in (None, holder.pid) else ""
    silent = f"no sign of life from PID {holder.pid}{left} for {lasting(evidence.age)}"
    if process_stats.is_stopped(holder):
        return sure, f"{silent}: it {process_stats.doing(holder)} and does nothing"
    if process_stats.hears_nothing(holder):
        return sure, f"{silent}: it {process_stats.doing(holder)}"
    if done is None:
        return Certainty.LIKELY, evidence.reason
    if done.works:
        busy = f"but it works: {process_stats.pace(done)}"
        return Certainty.DOUBTFUL, f"{silent}, {busy}; slow, perhaps, and not hung"
    if done.moved is None and not done.cpu:
        return Certainty.LIKELY, f"{silent}, and it uses no CPU"
    return sure, f"{silent}, and it does nothing: it hangs"


_JUDGES = {
    Verdict.FREE: _free,
    Verdict.HELD: _held,
    Verdict.STALE: _stale,
    Verdict.STUCK: _stuck,
    Verdict.UNKNOWN: _unknown,
}


# ---- what its tasks were at


class TaskLogSummary(NamedTuple):
    """What the logs say of a task that was in work."""

    last: LogLine | None = None
    """The last line that speaks of it; None where none does."""
    accepted: LogLine | None = None
    """The last one that says that what it was to do was done, or taken over by somebody else."""
    unknown: str = ""
    """Why the logs cannot say; "" where they can."""

    @property
    def advice(self) -> str:
        """The verb for it, once nobody works on it: what is lost least by."""
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


def accepts(line: LogLine) -> bool:
    """Whether a line says that what a task was to do was done: a repeat would do it twice.

    A line that is known says so by its kind; any other by a word for it, where none takes it back.
    """
    told = task_events.event(line)
    if told is not None:
        return told.what is EventKind.SUCCEEDED
    return _YES.search(line.text) is not None and _NO.search(line.text) is None


def told(lines: Iterable[LogLine], id: str) -> TaskLogSummary:
    """What lines, in the order of time, say of a task."""
    last = accepted = None
    for line in lines:
        if id in line.text:
            last = line
            accepted = line if accepts(line) else accepted
    return TaskLogSummary(last, accepted)


def on_record(said: TaskLogSummary, now: float) -> str:
    """What the logs say of a task, and what that means for a repeat, in one sentence."""
    line = said.accepted or said.last
    if said.unknown:
        return f"? {said.unknown}: whether a repeat would be a duplicate is not known"
    if line is None:
        return "no log speaks of it: nothing says that it was done"
    when = "" if line.when is None else f" at {at(line.when)[11:]} ({lasting(now - line.when)} ago)"
    quoted = f'"{shown(line.text)}"{when}'
    if said.accepted is not None:
        return f"{quoted}: it was accepted, a repeat would be a duplicate"
    return f"{quoted}, the last word: nothing says that it was done"


WHY = {
    "hold": "hold it: it was accepted, a repeat would be a duplicate",
    "release": "release it: nothing says that it was done",
}
"""What is recommended for a task that nobody works on any more, and why."""


# ---- at what rate it would flow again


def runs_before(told: Sequence[Event], moment: float) -> float | None:
    """Tasks a second that were run before a moment, as the logs have it; None where too little is
    known of that time.
    """
    dated = [each.when for each in told if each.when is not None]
    start = max(moment - REACH, min(dated, default=moment))
    if moment - start < ENOUGH:
        return None
    begun = [
        each
        for each in told
        if each.what is EventKind.STARTED
        and not each.transport
        and each.when is not None
        and start <= each.when <= moment
    ]
    return len(begun) / (moment - start) if begun else None


def flows_again(due: int, per_second: float | None) -> str:
    """At what rate what waits would go once the lock is free, and how long it would take."""
    if per_second is None:
        return "? the rate it would flow at again: no log tells of the time before"
    often = f"{per_second:.1f}/s" if per_second >= 0.1 else f"{60 * per_second:.1f} a minute"
    through = f", about {lasting(due / per_second)} until all is through" if due else ""
    return f"it would flow again at about {often}, as it did before{through}"
