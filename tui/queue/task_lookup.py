"""What is looked up about the task under the cursor, once that rests."""

from __future__ import annotations

from engine.index.schema import Query
from engine.logs.task_events import task_attempts, task_history
from engine.model import Part, State, Task
from engine.store import StoreError, Unavailable
from engine.text.error_pattern import fold_error, pattern_name
from engine.waiting_reasons import join_reasons
from tui.queue.task_details import TaskFindings
from tui.session.place_session import PlaceSession
from tui.session.recurrence_check import CheckedCluster, check_clusters
from tui.task.why_waiting import reasons

CLUSTERS_SECONDS = 10.0
"""Age in seconds from which the clusters of the details are read again."""


class TaskLookup:
    """The findings about one task; the clusters of its state are kept for some seconds."""

    def __init__(self, session: PlaceSession) -> None:
        self._session = session
        self._found = TaskFindings()
        self._clusters: tuple[State | None, float, tuple[CheckedCluster, ...]] = (None, 0.0, ())

    def of(self, task: Task) -> TaskFindings:
        """What was found out about a task; nothing if another one was looked up."""
        return self._found if self._found.id == task.id else TaskFindings()

    async def look_up(self, task: Task) -> None:
        """Find out why it waits, its parts, attempts and error cluster.

        Raises:
            Unavailable: the place was closed.
        """
        session, now = self._session, self._session.clock()
        why = await reasons(
            session.inspector,
            session.place,
            session.readings.lock,
            task=task,
            now=now,
            alerts=session.alerts,
        )
        attempts = task_attempts(task_history(session.events(), task.id))
        cluster = await self._find_cluster(task, now) if task.error else None
        parts = await self._read_parts(task)
        self._found = TaskFindings(task.id, join_reasons(why), parts, attempts, cluster)

    async def _find_cluster(self, task: Task, now: float) -> CheckedCluster | None:
        state, read, clusters = self._clusters
        if state is not task.state or not 0 <= now - read < CLUSTERS_SECONDS:
            clusters = await check_clusters(self._session, Query(task.state))
            self._clusters = task.state, now, clusters
        mark = pattern_name(fold_error(task.error))
        return next((each for each in clusters if each.cluster.mark == mark), None)

    async def _read_parts(self, task: Task) -> tuple[Part, ...]:
        try:
            return tuple(await self._session.inspector.actions.parts(task))
        except Unavailable:
            raise
        except StoreError:
            return ()  # it has just changed: the list is about to show that
