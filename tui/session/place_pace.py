"""How fast a place starts tasks, as its session has measured it: what every forecast is made of."""

from __future__ import annotations

from engine.monitor import run_forecast
from engine.monitor.run_forecast import Pace
from engine.monitor.throughput import Trend
from engine.places.place import NO_WORKER
from engine.replay.estimate import TIMER_INTERVAL_SECONDS
from tui.session.place_session import PlaceSession
from tui.session.worker_rows import kind_figures
from tui.text.lock import ALARMING_VERDICTS


def measure_pace(session: PlaceSession, now: float, waited: float = 0.0) -> Pace:
    """The pace of a place, from what was read of it before; `waited` as in the engine."""
    tokens, figures = session.readings.tokens, kind_figures(session, now)
    pace = run_forecast.measure_pace(session.flow, figures, tokens, now, waited)
    pace = pace._replace(obstacle=_find_obstacle(session, now), own_slots=session.place.own_slots())
    return _with_timer(session, now, pace)


def _find_obstacle(session: PlaceSession, now: float) -> str:
    """Why no worker starts a task there, however long it waits; "" if one may."""
    lock = session.readings.lock
    if lock is not None and lock.verdict in ALARMING_VERDICTS:
        return f"lock is {lock.verdict.value.lower()}"
    if session.lacks_worker:
        return NO_WORKER
    return "queue is stalled" if session.estimate_drain(now).trend is Trend.STALLED else ""


def _with_timer(session: PlaceSession, now: float, pace: Pace) -> Pace:
    """With the timer that starts one task in each run, if no worker stays."""
    from tui.session.running_operations import find_worker

    own, readings = session.worker.pid is not None, session.readings
    events, figures = session.events(), readings.queue_figures
    found = find_worker(readings.lock, figures, events, now, is_of_console=own)
    interval = found.run_interval or 0.0
    if found.has_worker or interval < TIMER_INTERVAL_SECONDS or found.has_stopped:
        return pace
    begins = now - (found.seconds_since_run or 0.0) + interval
    return pace._replace(timer_seconds=interval, timer_at=begins)
