"""Examine the lock of a place: evidence, holder process, active tasks and their log lines."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence

from engine.index.backlog import BacklogSummary
from engine.index.schema import Query
from engine.locks import process_stats
from engine.locks.process_stats import ProcessDelta, ProcessStats
from engine.logs.log_line import LogLine
from engine.logs.merged_log import describe_troubles
from engine.model import LockEvidence, State, Task, Verdict
from engine.monitor import lock_diagnosis
from engine.monitor.lock_diagnosis import LockDiagnosis, TaskLogSummary
from engine.monitor.run_forecast import Pace
from engine.places.place import Place
from engine.places.place_watcher import read_lock, why_not_abandoned
from engine.store import Unavailable
from engine.values import NamedTuple
from tui.session.place_session import PlaceSession
from tui.task import lookup

SAMPLE_SPAN_SECONDS = 5.0
"""Seconds over which CPU and I/O of a process are measured."""

MAX_HOLDERS = 3
"""Maximum number of holder processes examined; normally there is one."""

MAX_ACTIVE_TASKS = 20

READING_LOGS = "reading the logs"
"""Shown for a task until the logs were searched."""


class ProcessSample(NamedTuple):
    """A holder process: its present values and the difference to the previous sample."""

    now: ProcessStats
    delta: ProcessDelta | None = None


class ActiveTask(NamedTuple):
    """An active task, and what the logs contain about it."""

    task: Task
    log_summary: TaskLogSummary = TaskLogSummary(unknown=READING_LOGS)


class LockReport(NamedTuple):
    """All facts about a lock at one time."""

    evidence: LockEvidence
    finding: LockDiagnosis
    processes: tuple[ProcessSample, ...] = ()
    active_tasks: tuple[ActiveTask, ...] = ()
    active_count: int = 0
    """Number of active tasks; the first of them are `works`."""
    backlog: BacklogSummary | None = None
    """Pending tasks behind the lock; None if unknown."""
    rate_before: float | None = None
    """Tasks per second before the holder's last heartbeat; None if unknown."""
    drain: str = ""
    """How long the due tasks would take once it is free; "" if not examined yet."""
    is_examined: bool = True
    """False for what the session read before: processes and logs were not examined yet."""

    @property
    def is_abandoned(self) -> bool:
        """True if the lock is free or stale, so active tasks have no worker."""
        return not why_not_abandoned(self.evidence)


class LockExaminer:
    """Examines one place's lock; `report` is the last report."""

    def __init__(self, session: PlaceSession) -> None:
        self.session = session
        self.report: LockReport | None = None
        self._lives: dict[int, deque[ProcessStats]] = {}
        self._log_summaries: dict[tuple[str, str], TaskLogSummary] = {}
        self._log: tuple[LogLine, ...] = ()

    def first_report(self) -> LockReport | None:
        """What the session has read of the lock, without its processes; None if nothing."""
        evidence, active = self.session.readings.lock, self.session.active[:MAX_ACTIVE_TASKS]
        if evidence is None:
            return None
        count = self.session.inspector.latest.counts.get(State.ACTIVE, len(active))
        finding = lock_diagnosis.diagnose_lock(evidence)
        tasks = tuple(map(ActiveTask, active))
        return LockReport(
            evidence,
            finding,
            (),
            active_tasks=tasks,
            active_count=count,
            backlog=self.session.backlog,
            rate_before=None,
            is_examined=False,
        )

    async def examine(self) -> LockReport:
        """Examine the lock now, on a thread."""
        evidence, lives, before = await asyncio.to_thread(self._examine_lock)
        first = lives[0] if lives else None
        amount, works = await self._list_active_tasks()
        self.report = LockReport(
            evidence,
            lock_diagnosis.diagnose_lock(evidence, *(first or (None, None))),
            lives,
            active_tasks=works,
            active_count=amount,
            backlog=self.session.backlog,
            rate_before=before,
            drain=await self._forecast_drain(before),
        )
        return self.report

    async def _forecast_drain(self, rate: float | None) -> str:
        session, now = self.session, self.session.clock()
        try:
            due = await session.inspector.tallies.count_due(now, tuple(session.waiting_kinds))
        except Unavailable:  # the index says so on each screen of tasks
            return ""
        runs = {kind: tasks.number for kind, tasks in due.items()}
        waiting = 0 if session.backlog is None else session.backlog.due or 0
        runs[""] = max(0, waiting - sum(runs.values()))
        pace = Pace(session.readings.tokens, per_second=rate, is_busy=True)
        return lock_diagnosis.describe_drain(runs, pace, now)

    def _examine_lock(self) -> tuple[LockEvidence, tuple[ProcessSample, ...], float | None]:
        place = self.session.place
        evidence = read_lock(place) or LockEvidence(
            Verdict.UNKNOWN, reason="this place has no lock", is_proven=False
        )
        since = evidence.since
        events, before = self.session.events(), None
        if since is not None:
            before = lock_diagnosis.start_rate_before(events, since)
        return evidence, self._sample_holders(place, evidence.holders[:MAX_HOLDERS]), before

    def _sample_holders(self, place: Place, pids: Sequence[int]) -> tuple[ProcessSample, ...]:
        if place.vitals is None:
            return ()
        self._lives = {pid: self._lives.get(pid, deque()) for pid in pids}
        samples = []
        for pid, known in self._lives.items():
            now = place.vitals(pid)
            known.append(now)
            # Keep one sample older than the span, so that the whole span is measured.
            while len(known) > 2 and now.when - known[1].when >= SAMPLE_SPAN_SECONDS:
                known.popleft()
            samples.append(ProcessSample(now, process_stats.stats_delta(known[0], now)))
        return tuple(samples)

    async def _list_active_tasks(self) -> tuple[int, tuple[ActiveTask, ...]]:
        query = Query(State.ACTIVE)
        try:
            window = await self.session.inspector.queries.window(query, 0, MAX_ACTIVE_TASKS)
        except Unavailable:
            return 0, ()  # its counts show the error
        self._drop_outdated(window.tasks)
        known = (self._log_summaries.get((task.id, task.rev)) for task in window.tasks)
        works = [
            ActiveTask(task) if summary is None else ActiveTask(task, summary)
            for task, summary in zip(window.tasks, known, strict=True)
        ]
        return window.total, tuple(works)

    def _drop_outdated(self, tasks: Sequence[Task]) -> None:
        """Drop log results of tasks that left, or that new log lines mention."""
        log, previous_log = self.session.readings.log, self._log
        new = set(log).difference(previous_log) if log is not previous_log else set()
        self._log = log
        stay = {
            (task.id, task.rev) for task in tasks if not any(task.id in line.text for line in new)
        }
        self._log_summaries = {
            key: summary for key, summary in self._log_summaries.items() if key in stay
        }

    async def read_logs(self) -> bool:
        """Search the logs for the active tasks, maybe long; True if something new was read."""
        tasks = [work.task for work in self.report.active_tasks] if self.report is not None else []
        missing = [task for task in tasks if (task.id, task.rev) not in self._log_summaries]
        for task in missing:
            summary = await asyncio.to_thread(_search_task_logs, self.session.place.logs, task)
            self._log_summaries[task.id, task.rev] = summary
        return bool(missing)


def _search_task_logs(logs: Sequence[str], task: Task) -> TaskLogSummary:
    search = lookup.search_logs(logs, task)
    lines = search.log.lines if search.log is not None else ()
    summary = lock_diagnosis.summarize_task_log(lines, task.id)
    troubles = "" if search.log is None else describe_troubles(search.log.troubles)
    unknown = search.error or troubles
    return summary._replace(unknown=unknown) if unknown and summary.accepted is None else summary
