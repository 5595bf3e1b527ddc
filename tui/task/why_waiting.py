"""Why a task waits, asked of everything that could keep it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from engine import policy
from engine.index.backlog import BY_ID
from engine.live.inspector import Inspector
from engine.model import LockEvidence, State, Task
from engine.monitor import metrics_check, prometheus
from engine.monitor.alerts import Alert, AlertKind
from engine.store import StoreError
from engine.text.safe import shown
from tui.session.place import Place
from tui.session.place_watcher import routes_of
from tui.transports.suspend_lines import stopped_words


async def why_waiting(
    inspector: Inspector,
    place: Place,
    lock: LockEvidence | None,
    task: Task,
    now: float,
    alerts: Iterable[Alert] = (),
) -> str:
    """What keeps a task from running, or what else there is to its state, in one line; `alerts` are
    those of its place, which it does not contradict.
    """
    return policy.in_a_line(await reasons(inspector, place, lock, task, now, alerts))


async def reasons(
    inspector: Inspector,
    place: Place,
    lock: LockEvidence | None,
    task: Task,
    now: float,
    alerts: Iterable[Alert] = (),
) -> tuple[str, ...]:
    """The same, sentence by sentence: first what keeps it now."""
    idle = any(alert.what is AlertKind.IDLE for alert in alerts)
    about = policy.Circumstances(lock=lock, handled=place.handled, idle=idle)
    if place.shut is not None:
        about = about._replace(shut=await asyncio.to_thread(_shut, place, task.kind, now))
    if task.state is not State.PENDING:
        return policy.why_waiting(task, now, about)
    paused = [name for name, control in inspector.controls.items() if control.has_paused]
    words = ", ".join(f"{name} is {inspector.controls[name].now}" for name in paused)
    last_run = await asyncio.to_thread(_last_run, place.queue_metrics)
    by, ahead = place.takes_by, 0
    if by and policy.is_due(task, now):
        ahead = await inspector.ahead(task, now, by)
    about = about._replace(paused=words, last_run=last_run, ahead=ahead, by_id=by == BY_ID)
    if place.token_at is None:
        return policy.why_waiting(task, now, about)
    try:
        about = about._replace(token_at=await asyncio.to_thread(place.token_at, task.kind))
    except (OSError, StoreError) as error:
        unknown = f"whether there is a token is not known: {shown(str(error))}"
        return (unknown, *policy.why_waiting(task, now, about))
    return policy.why_waiting(task, now, about)


def _shut(place: Place, kind: str, now: float) -> str:
    """Why no task of a kind would be claimed now; of what was suspended: by whom, and what then."""
    why = "" if place.shut is None else place.shut(kind)
    routes = routes_of(place) if why else None
    if routes is None or not routes.waits:
        return why
    stopped = routes.stopped.values()
    said = ", ".join(f"{stop.name} {stopped_words(stop, now)}" for stop in stopped)
    resume = ", ".join(f"`mail resume {stop.name}`" for stop in stopped)
    return f"no mail transport: {said} ({resume}, or S on the transports screen)"


def _last_run(path: str) -> float | None:
    """What the metrics say; None where they do not, or cannot be read: their own place says why."""
    try:
        return prometheus.read(path).get(metrics_check.LAST_RUN) if path else None
    except (OSError, prometheus.BadMetrics):
        return None
