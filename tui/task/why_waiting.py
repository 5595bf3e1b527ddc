"""Why a task is not running: lock, pauses, due time, rate limit, suspended transports, order."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Mapping, Sequence

from engine.index.backlog import BY_CREATED
from engine.live.inspector import Inspector
from engine.locks.token_buckets import (
    ALL_KINDS,
    BucketState,
    count_with_tokens,
    token_after,
)
from engine.model import WAITS_KEY, LockEvidence, State, Task
from engine.monitor import metrics_check, prometheus
from engine.monitor.alerts import Alert, AlertKind
from engine.monitor.forecast import ExpectedStart, expected_start
from engine.monitor.throughput import Trend
from engine.operations.controls import control_rows
from engine.operations.plans import bar_reason
from engine.places.place import NO_WORKER_HINT, Place, WholeQueueFigures
from engine.places.place_watcher import read_routes
from engine.store import StoreError
from engine.text.safe import safe_line
from engine.values import NamedTuple
from engine.waiting_reasons import Circumstances, why_waiting
from tui.session.place_session import PlaceSession
from tui.text.lock import ALARMING_VERDICTS
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

    def reasons(self, task: Task, now: float) -> tuple[str, ...]:
        """Why the task is not running, as sentences; the most important first."""
        known = self.circumstances
        return (*self.unknown, *(() if known is None else why_waiting(task, now, known)))


NO_OUTLOOK, NO_FIGURES = TaskOutlook(), WholeQueueFigures()


async def reasons(
    inspector: Inspector,
    place: Place,
    lock: LockEvidence | None,
    task: Task,
    now: float,
    alerts: Iterable[Alert] = (),
) -> tuple[str, ...]:
    """Why a task is not running, as sentences; the most important first, in line with `alerts`."""
    circumstances, _, unknown = await _circumstances(
        inspector, place, lock, task=task, now=now, alerts=alerts
    )
    return TaskOutlook(circumstances, unknown).reasons(task, now)


async def outlook(session: PlaceSession, task: Task, now: float) -> TaskOutlook:
    """Why a task of an open place is not running, and when it runs at the present rate."""
    circumstances, ahead, unknown = await _circumstances(
        session.inspector,
        session.place,
        session.readings.lock,
        task=task,
        now=now,
        alerts=session.alerts,
        figures=session.readings.queue_figures,
    )
    if task.state is not State.PENDING:
        return TaskOutlook(circumstances, unknown)
    if refusal := bar_reason(session.inspector.edges, "promote", task, now=now):
        return TaskOutlook(unknown=(*unknown, refusal))  # it waits for neither time nor worker
    obstacle = circumstances.pause_reason or circumstances.closed_reason
    if circumstances.is_handled is not None and not circumstances.is_handled(task.kind):
        obstacle = obstacle or "no handler configured"
    if circumstances.lock is not None and circumstances.lock.verdict in ALARMING_VERDICTS:
        obstacle = obstacle or f"lock is {circumstances.lock.verdict.value.lower()}"
    if session.lacks_worker:
        obstacle = obstacle or NO_WORKER_HINT
    if session.estimate_drain(now).trend is Trend.STALLED:
        obstacle = obstacle or "queue is stalled"
    waits = task.extra.get(WAITS_KEY, "")
    if task.due is None or (waits and task.due <= now):
        obstacle = obstacle or waits or "no due time is known"
    rates = session.flow.rates(now)
    tokens = () if isinstance(session.readings.tokens, str) else session.readings.tokens
    start = expected_start(
        task.due or 0.0,
        now,
        count_with_tokens(tokens, ahead),
        None if rates is None else rates.outward,
        obstacle=safe_line(obstacle),
        token_at=max(circumstances.token_at, token_after(tokens, task.kind, ahead, now)),
    )
    return TaskOutlook(circumstances, unknown, start, _bucket(session.readings.tokens, task.kind))


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
) -> tuple[Circumstances, Mapping[str, int], tuple[str, ...]]:
    """What decides when a task runs, the tasks ahead of it by kind, and what of it is unknown."""
    ahead: Mapping[str, int] = {}
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
        return circumstances, ahead, ()
    its = ("", task.queue, task.kind, task.group)
    paused = [row for row in control_rows(inspector.controls) if row.control.has_paused]
    words = ", ".join(f"{row.label} is {row.control.now}" for row in paused if row.target in its)
    last_run = await asyncio.to_thread(_last_run, place.queue_metrics)
    by = place.claim_order
    if by and math.isfinite(task.due or 0.0):
        claimed = max(now, task.due or 0.0)
        ahead = await inspector.tallies.count_ahead(task, claimed, by)
    circumstances = circumstances._replace(
        pause_reason=words,
        last_run=last_run,
        tasks_ahead=sum(ahead.values()),
        is_age_order=by == BY_CREATED,
    )
    if place.token_at is None:
        return circumstances, ahead, ()
    try:
        token_at = await asyncio.to_thread(place.token_at, task.kind)
    except (OSError, StoreError) as error:
        return circumstances, ahead, (f"rate limit unknown: {safe_line(str(error))}",)
    return circumstances._replace(token_at=token_at), ahead, ()


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
