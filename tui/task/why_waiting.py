"""Why a task is not running: lock, pauses, due time, rate limit, suspended transports, order."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from engine import policy
from engine.index.backlog import BY_ID
from engine.live.inspector import Inspector
from engine.model import LockEvidence, State, Task
from engine.monitor import metrics_check, prometheus
from engine.monitor.alerts import Alert, AlertKind
from engine.monitor.forecast import ExpectedStart, expected_start
from engine.monitor.throughput import Trend
from engine.store import StoreError
from engine.text.safe import safe_line
from tui.session.place import Place
from tui.session.place_session import PlaceSession
from tui.session.place_watcher import read_routes
from tui.transports.suspend_lines import describe_suspension


async def why_waiting(
    inspector: Inspector,
    place: Place,
    lock: LockEvidence | None,
    task: Task,
    now: float,
    alerts: Iterable[Alert] = (),
) -> str:
    """Why a task is not running, in one line; `alerts` are those of its place, for a consistent
    answer.
    """
    return policy.join_reasons(await reasons(inspector, place, lock, task, now, alerts))


async def reasons(
    inspector: Inspector,
    place: Place,
    lock: LockEvidence | None,
    task: Task,
    now: float,
    alerts: Iterable[Alert] = (),
) -> tuple[str, ...]:
    """Why a task is not running, as sentences; the most important first."""
    idle = any(alert.kind is AlertKind.IDLE for alert in alerts)
    about = policy.Circumstances(lock=lock, is_handled=place.has_handler, is_idle=idle)
    if place.claim_obstacle is not None:
        about = about._replace(
            closed_reason=await asyncio.to_thread(_suspension_text, place, task.kind, now)
        )
    if task.state is not State.PENDING:
        return policy.why_waiting(task, now, about)
    paused = [name for name, control in inspector.controls.items() if control.has_paused]
    words = ", ".join(f"{name} is {inspector.controls[name].now}" for name in paused)
    last_run = await asyncio.to_thread(_last_run, place.queue_metrics)
    by, ahead = place.claim_order, 0
    if by and policy.is_due(task, now):
        ahead = await inspector.tallies.count_ahead(task, now, by)
    about = about._replace(
        pause_reason=words, last_run=last_run, tasks_ahead=ahead, is_id_order=by == BY_ID
    )
    if place.token_at is None:
        return policy.why_waiting(task, now, about)
    try:
        about = about._replace(token_at=await asyncio.to_thread(place.token_at, task.kind))
    except (OSError, StoreError) as error:
        unknown = f"rate limit unknown: {safe_line(str(error))}"
        return (unknown, *policy.why_waiting(task, now, about))
    return policy.why_waiting(task, now, about)


async def read_expected_start(live: PlaceSession, task: Task, now: float) -> ExpectedStart | None:
    """When a pending task is expected to run; None in any other state.

    Raises:
        Unavailable: the place was closed.
    """
    place, due = live.place, task.due or 0.0
    if task.state is not State.PENDING:
        return None
    obstacle, token_at = "", 0.0
    if any(control.has_paused for control in live.inspector.controls.values()):
        obstacle = "the queue is paused"
    elif place.has_handler is not None and not place.has_handler(task.kind):
        obstacle = f"no handler configured for {task.kind}"
    elif live.lacks_worker:
        obstacle = "no worker running"
    elif live.estimate_drain(now).trend is Trend.STALLED:
        obstacle = "queue is stalled"
    elif place.claim_obstacle is not None:
        obstacle = await asyncio.to_thread(place.claim_obstacle, task.kind)
    if not obstacle and place.token_at is not None:
        try:
            token_at = await asyncio.to_thread(place.token_at, task.kind)
        except (OSError, StoreError) as error:
            obstacle = f"rate limit unknown: {error}"
    if not place.claim_order:
        obstacle = obstacle or "order of the queue is unknown"
    ahead = 0
    if not obstacle:
        ahead = await live.inspector.tallies.count_ahead(task, max(now, due), place.claim_order)
    rates = live.flow.rates(now)
    outward = None if rates is None else rates.outward
    return expected_start(due, now, ahead, outward, obstacle=obstacle, token_at=token_at)


def _suspension_text(place: Place, kind: str, now: float) -> str:
    """Why tasks of a kind are not claimed now; names who suspended the transport and how to
    resume it.
    """
    why = "" if place.claim_obstacle is None else place.claim_obstacle(kind)
    routes = read_routes(place) if why else None
    if routes is None or not routes.is_waiting:
        return why
    stopped = routes.stopped.values()
    said = ", ".join(f"{stop.name} {describe_suspension(stop, now)}" for stop in stopped)
    resume = ", ".join(f"`mail resume {stop.name}`" for stop in stopped)
    return f"no mail transport: {said} ({resume}, or S on the transports screen)"


def _last_run(path: str) -> float | None:
    """Time of the last run from the metrics file; None if missing or unreadable."""
    try:
        return prometheus.read_metrics(path).get(metrics_check.LAST_RUN) if path else None
    except (OSError, prometheus.BadMetrics):
        return None
