"""Why a task is not running: lock, pauses, due time, rate limit, suspended transports, order."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from engine.index import backlog
from engine.index.backlog import BY_CREATED
from engine.index.reader import Reader
from engine.live.inspector import Inspector
from engine.locks.token_buckets import ALL_KINDS, BucketState, keep_runnable
from engine.model import WAITS_KEY, LockEvidence, State, Task
from engine.monitor import metrics_check, prometheus
from engine.monitor.alerts import Alert, AlertKind
from engine.monitor.run_forecast import BUSY_SECONDS, ExpectedStart, Pace, expected_start
from engine.monitor.transport_health import OTHER_SETTINGS
from engine.operations.controls import control_rows
from engine.operations.plans import bar_reason
from engine.places.alert_facts import is_run
from engine.places.place import Place, WholeQueueFigures
from engine.places.place_watcher import read_routes
from engine.store import StoreError
from engine.text.safe import safe_line
from engine.text.times import format_rough_duration
from engine.values import NamedTuple
from engine.waiting_reasons import Circumstances, why_waiting
from tui.session.place_pace import measure_pace
from tui.session.place_session import PlaceSession
from tui.transports.transport_lines import describe_suspension


class TaskOutlook(NamedTuple):
    """Why a task is not running, and when it runs."""

    circumstances: Circumstances | None = None
    """What decides when it runs; None until read."""
    unknown: tuple[str, ...] = ()
    """What of it could not be read."""
    start: ExpectedStart | None = None
    """Only of a pending task."""
    bucket: BucketState | None = None
    """The rate limit of a pending task; None if it has none."""

    def reasons(self, task: Task, now: float, lock: LockEvidence | None = None) -> tuple[str, ...]:
        """Why the task is not running, the main reason first; `lock` as read since."""
        known = self.circumstances
        known = known and known._replace(lock=lock or known.lock)
        return (*self.unknown, *(() if known is None else why_waiting(task, now, known)))


NO_OUTLOOK, NO_FIGURES = TaskOutlook(), WholeQueueFigures()


async def list_outlook(
    inspector: Inspector,
    place: Place,
    lock: LockEvidence | None,
    task: Task,
    now: float,
    alerts: Iterable[Alert] = (),
) -> TaskOutlook:
    """Why a task is not running, in line with `alerts`; not when it runs."""
    circumstances, unknown = await _circumstances(
        inspector, place, lock, task=task, now=now, alerts=alerts
    )
    ahead = await _count_ahead(inspector, place, task, now)
    if place.tokens is not None and ahead:
        with suppress(OSError, StoreError):  # `_circumstances` has the reason
            ahead = keep_runnable(ahead, task.kind, await asyncio.to_thread(place.tokens))
    circumstances = _with_ahead(circumstances, ahead)
    return TaskOutlook(circumstances, unknown)


async def outlook(session: PlaceSession, task: Task, now: float) -> TaskOutlook:
    """Why a task of an open place is not running, and when it runs at the present rate."""
    place, readings = session.place, session.readings
    circumstances, unknown = await _circumstances(
        session.inspector,
        place,
        readings.lock,
        task=task,
        now=now,
        alerts=session.alerts,
        figures=readings.queue_figures,
    )
    if readings.routes is not None and readings.routes.unknown == OTHER_SETTINGS:
        circumstances = circumstances._replace(closed_reason="")
    if is_run(readings, task.kind):
        circumstances = circumstances._replace(is_handled=None)
    if task.state is not State.PENDING:
        return TaskOutlook(circumstances, unknown)
    if refusal := bar_reason(session.inspector.edges, "promote", task, now=now):
        return TaskOutlook(unknown=(*unknown, refusal))  # it waits for neither time nor worker
    obstacle = circumstances.pause_reason or circumstances.closed_reason
    if circumstances.is_handled is not None and not circumstances.is_handled(task.kind):
        obstacle = obstacle or "no handler configured"
    waits, since = task.extra.get(WAITS_KEY, ""), max(task.due or 0.0, task.created)
    pace = measure_pace(session, now, now - since)._replace(max_runs=place.max_attempts(task))
    obstacle = obstacle or pace.obstacle
    due = task.due
    if place.server:
        due, waits = await _server_due(place, task, now)
    if due is None or (waits and due <= now):
        obstacle = obstacle or waits or "no due time is known"
    pace = pace._replace(obstacle=obstacle)
    start = await _start(session.inspector, place, task._replace(due=due), now, pace)
    bucket = _bucket(readings.tokens, task.kind)
    if place.claim_order and not place.server:
        # Without a token, only those of its kind are before it: workers skip them.
        is_own = bucket is not None and bucket.name == task.kind and bucket.tokens <= 0
        ahead = {task.kind: start.ahead.get(task.kind, 0)} if is_own else start.ahead
        ahead = keep_runnable(ahead, task.kind, readings.tokens)
    else:
        ahead = await _count_ahead(session.inspector, place, task, now)
    circumstances = _with_ahead(circumstances, ahead)
    return TaskOutlook(circumstances, unknown, start, bucket)


async def _server_due(place: Place, task: Task, now: float) -> tuple[float | None, str]:
    """When its server tries a task, and why not before: as the server shows its queue now, because
    a listing of all tasks is up to a minute old."""
    due, waits = task.due, task.extra.get(WAITS_KEY, "")
    if place.groups is None or (due is not None and due > now):
        return due, waits
    name = f"{task.kind}/{task.group}"
    facts = (await asyncio.to_thread(place.groups.read, (name,))).get(name)
    if facts is not None and facts.wakeup is not None and facts.wakeup > now:
        return facts.wakeup, ""
    if facts is not None and facts.agents:
        return due, waits or "an agent works on its queue: not known when it is its turn"
    if due is not None and now - due > BUSY_SECONDS:
        late = f"due for {format_rough_duration(now - due)}, not started by its server yet"
        return due, waits or late
    return due, waits


async def _count_ahead(
    inspector: Inspector, place: Place, task: Task, now: float
) -> Mapping[str, int]:
    """The tasks that are claimed before a pending one once it is due, by kind."""
    due, by = task.due or 0.0, place.claim_order
    if task.state is not State.PENDING or not by or not math.isfinite(due):
        return {}
    return await inspector.tallies.count_ahead(task, max(now, due), by)


def _with_ahead(circumstances: Circumstances, ahead: Mapping[str, int]) -> Circumstances:
    kinds = [kind for kind, number in ahead.items() if number]
    kind = kinds[0] if len(kinds) == 1 else ""
    return circumstances._replace(tasks_ahead=sum(ahead.values()), kind_ahead=kind)


async def _start(
    inspector: Inspector, place: Place, task: Task, now: float, pace: Pace
) -> ExpectedStart:
    """When it runs, in the order in which the place claims tasks; a server starts each by time."""
    by = place.claim_order

    def forecast(reader: Reader) -> ExpectedStart:
        def count(moment: float) -> Mapping[str, int]:
            return {} if place.server else backlog.count_ahead(reader, task, moment, by)

        return expected_start(
            task.kind,
            task.due or 0.0,
            now,
            pace,
            count,
            with_retries=by == BY_CREATED,
            is_ordered=bool(by or place.server),
        )

    key = ("start", task.queue, task.id, task.due, pace.obstacle)
    return await inspector.tallies.ask(key, forecast, ExpectedStart(None, "still reading"))


def _bucket(tokens: Sequence[BucketState] | str, kind: str) -> BucketState | None:
    """The rate limit of a kind: its own, or that of all kinds."""
    named = {} if isinstance(tokens, str) else {bucket.name: bucket for bucket in tokens}
    return named.get(kind, named.get(ALL_KINDS))


async def _circumstances(
    inspector: Inspector,
    place: Place,
    lock: LockEvidence | None,
    task: Task,
    now: float,
    alerts: Iterable[Alert],
    figures: WholeQueueFigures = NO_FIGURES,
) -> tuple[Circumstances, tuple[str, ...]]:
    """What decides when a task runs, and what of it is unknown."""
    idle = any(alert.kind is AlertKind.IDLE for alert in alerts)
    circumstances = Circumstances(lock=lock, is_handled=place.has_handler, is_idle=idle)
    if place.server:
        is_stopped = figures.server is not None and figures.server.is_running is False
        words = place.describe_server(figures, None, now)
        circumstances = circumstances._replace(server=words, is_stopped=is_stopped)
    if place.claim_obstacle is not None:
        circumstances = circumstances._replace(
            closed_reason=await asyncio.to_thread(_suspension_text, place, task.kind, now)
        )
    if task.state is not State.PENDING:
        return circumstances, ()
    its = ("", task.queue, task.kind, task.group)
    paused = [row for row in control_rows(inspector.controls) if row.control.has_paused]
    words = ", ".join(f"{row.label} is {row.control.now}" for row in paused if row.target in its)
    last_run = await asyncio.to_thread(_last_run, place.queue_metrics)
    circumstances = circumstances._replace(
        pause_reason=words, last_run=last_run, is_age_order=place.claim_order == BY_CREATED
    )
    if place.token_at is None:
        return circumstances, ()
    try:
        token_at = await asyncio.to_thread(place.token_at, task.kind)
    except (OSError, StoreError) as error:
        return circumstances, (f"rate limit unknown: {safe_line(str(error))}",)
    return circumstances._replace(token_at=token_at), ()


def _suspension_text(place: Place, kind: str, now: float) -> str:
    """Why tasks of a kind are not claimed now: who suspended the transport, how to resume it."""
    why = "" if place.claim_obstacle is None else place.claim_obstacle(kind)
    routes = read_routes(place) if why else None
    if routes is None or not routes.is_waiting:
        return why
    stopped = routes.stopped.values()
    suspensions = ", ".join(f"{stop.name} {describe_suspension(stop, now)}" for stop in stopped)
    resume = ", ".join(f"`mail resume {stop.name}`" for stop in stopped)
    return f"no mail transport: {suspensions} ({resume}, or S on the transports screen)"


def _last_run(path: str) -> float | None:
    """Time of the last run from the metrics file; None if missing, unreadable or 0 (never)."""
    try:
        return (prometheus.read_metrics(path).get(metrics_check.LAST_RUN) or None) if path else None
    except (OSError, prometheus.BadMetrics):
        return None
