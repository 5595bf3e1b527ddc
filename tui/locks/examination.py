"""The lock of a place, examined again and again: the evidence, its holder, what it had in hand."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from engine.index.backlog import BacklogSummary
from engine.index.schema import Query
from engine.locks import process_stats
from engine.locks.process_stats import ProcessDelta, Vitals
from engine.logs.log_tail import LogLine
from engine.logs.merged_log import named
from engine.model import LockEvidence, State, Task, Verdict
from engine.monitor import lock_diagnosis
from engine.monitor.lock_diagnosis import LockDiagnosis, TaskLogSummary
from engine.store import Unavailable
from tui.session.place import Place
from tui.session.place_session import PlaceSession
from tui.session.place_watcher import lock_of, not_abandoned
from tui.task import lookup

SPAN = 5.0
"""Seconds over which it is told what a process did lately."""

HOLDERS = 3
"""Processes in the way of a lock that are looked at; nearly always it is one."""

WORKS = 20
"""Tasks in work that are told of one by one."""

UNREAD = "the logs are being read"
"""What is said of a task while nobody knows yet what they say."""


class ProcessSample(NamedTuple):
    """A process that has a lock, as it is, and what it did lately."""

    now: Vitals
    done: ProcessDelta | None = None
    """None: it was looked at only once so far."""


class ActiveTask(NamedTuple):
    """A task in work, and what the logs say of it."""

    task: Task
    told: TaskLogSummary = TaskLogSummary(unknown=UNREAD)


class LockReport(NamedTuple):
    """All that is known of a lock at one moment."""

    evidence: LockEvidence
    finding: LockDiagnosis
    lives: tuple[ProcessSample, ...] = ()
    works: tuple[ActiveTask, ...] = ()
    amount: int = 0
    """How many tasks are in work; the first of them are `works`."""
    standing: BacklogSummary | None = None
    """What waits behind it; None when that is not known."""
    before: float | None = None
    """Tasks a second that were run before its holder's last sign of life; None: not known."""

    @property
    def abandoned(self) -> bool:
        """Whether nobody works here: what is in work is nobody's."""
        return not not_abandoned(self.evidence)


class LockExaminer:
    """Examines one place's lock; what it says last stands in `case`."""

    def __init__(self, live: PlaceSession) -> None:
        self.live = live
        self.case: LockReport | None = None
        self._lives: dict[int, deque[Vitals]] = {}
        self._told: dict[tuple[str, str], TaskLogSummary] = {}
        self._log: tuple[LogLine, ...] = ()

    async def look(self) -> LockReport:
        """How it stands now; blocks nobody."""
        evidence, lives, before = await asyncio.to_thread(self._look)
        first = lives[0] if lives else None
        amount, works = await self._works()
        self.case = LockReport(
            evidence,
            lock_diagnosis.finding(evidence, *(first or (None, None))),
            lives,
            works,
            amount,
            self.live.standing,
            before,
        )
        return self.case

    def _look(self) -> tuple[LockEvidence, tuple[ProcessSample, ...], float | None]:
        place = self.live.place
        evidence = lock_of(place) or LockEvidence(
            Verdict.UNKNOWN, reason="this place has no lock", proven=False
        )
        since = evidence.since
        before = None if since is None else lock_diagnosis.runs_before(self.live.events(), since)
        return evidence, self._living(place, evidence.holders[:HOLDERS]), before

    def _living(self, place: Place, pids: Sequence[int]) -> tuple[ProcessSample, ...]:
        if place.vitals is None:
            return ()
        self._lives = {pid: self._lives.get(pid, deque()) for pid in pids}
        found = []
        for pid, known in self._lives.items():
            now = place.vitals(pid)
            known.append(now)
            # One that is older stays: without it less than the whole span would be told of.
            while len(known) > 2 and now.when - known[1].when >= SPAN:
                known.popleft()
            found.append(ProcessSample(now, process_stats.between(known[0], now)))
        return tuple(found)

    async def _works(self) -> tuple[int, tuple[ActiveTask, ...]]:
        query = Query(State.ACTIVE)
        try:
            window = await self.live.inspector.window(query, 0, WORKS)
        except Unavailable:
            return 0, ()  # its counts say so
        self._forget(window.tasks)
        known = (self._told.get((task.id, task.rev)) for task in window.tasks)
        works = [
            ActiveTask(task) if told is None else ActiveTask(task, told)
            for task, told in zip(window.tasks, known, strict=True)
        ]
        return window.total, tuple(works)

    def _forget(self, tasks: Sequence[Task]) -> None:
        """Forget what was said of tasks that have left, or that the log has spoken of since."""
        log, seen = self.live.signs.log, self._log
        new = set(log).difference(seen) if log is not seen else set()
        self._log = log
        stay = {
            (task.id, task.rev) for task in tasks if not any(task.id in line.text for line in new)
        }
        self._told = {key: told for key, told in self._told.items() if key in stay}

    async def read_logs(self) -> bool:
        """Read what the logs say of the tasks in work; whether anything is known now that was not.

        How long that takes hangs on the logs: what was seen before is on screen meanwhile.
        """
        tasks = [work.task for work in self.case.works] if self.case is not None else []
        missing = [task for task in tasks if (task.id, task.rev) not in self._told]
        for task in missing:
            told = await asyncio.to_thread(_read, self.live.place.logs, task)
            self._told[task.id, task.rev] = told
        return bool(missing)


def _read(logs: Sequence[str], task: Task) -> TaskLogSummary:
    said = lookup.told(logs, task)
    lines = said.log.lines if said.log is not None else ()
    found = lock_diagnosis.told(lines, task.id)
    troubles = "" if said.log is None else named(said.log.troubles)
    unknown = said.trouble or troubles
    return found._replace(unknown=unknown) if unknown and found.accepted is None else found
