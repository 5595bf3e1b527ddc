"""Workers of a place and their tasks, from lock, leases and active tasks; kinds with latency."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from engine.model import STALLED_KEY, ConnectedWorker, LockEvidence, State, Task, Verdict
from engine.monitor.alerts import Alert, AlertKind, Where
from engine.monitor.latency import KindFigures, with_unlogged_kinds
from engine.monitor.throughput import HISTORY_SECONDS, Trend
from engine.places.place import NO_WORKER
from engine.text.decode import parse_digits
from engine.text.figure import Figure
from engine.text.safe import safe_line
from engine.text.times import format_rough_duration
from engine.values import NamedTuple
from tui.session.place_session import PlaceSession, describe_server, lease_workers
from tui.text.lock import ALARMING_VERDICTS, is_freeable

IDLE, NOT_COUNTED = "no task claimed", "reading ..."
OTHER_WORKER = "another program works here"
"""Words for a row without a task, as `NO_WORKER`."""

MAX_NAMED_QUEUES, NO_NAME = 3, "(no name)"


def start_step(session: PlaceSession, *, read_only: bool) -> tuple[str, str]:
    """The key of the next step at a place without a worker, and what it does."""
    if read_only or not session.place.worker_command:
        return "", NO_WORKER
    if full := session.full_disk:
        return "", f"make room on {safe_line(full.target.name)}, then W starts a worker"
    return "W", f"starts a worker: {NO_WORKER}"


def lock_step(session: PlaceSession, *, read_only: bool) -> tuple[str, str, str]:
    """The key of the next step for an alarming lock, a word for it, and what it does. A worker
    takes over a stale lock, so one is started; on a full disk, without a key, once there is room.
    Without a word the third text says why the lock cannot be freed; "" for any other lock."""
    evidence, refusal = session.readings.lock, session.place.why_no_unlock(read_only)
    key, does = start_step(session, read_only=read_only)
    if evidence is not None and evidence.verdict is Verdict.STALE and does != NO_WORKER:
        return key, "start worker" if key else "make room", does
    if refusal or evidence is None or evidence.verdict not in ALARMING_VERDICTS:
        return "", "", refusal
    if is_freeable(evidence):
        return "U", "unlock", "shows the evidence and frees the lock"
    return "U", "why", "shows the evidence and why it stays"


def room_step(full: Alert, *, can_start: bool, read_only: bool) -> tuple[str, str, str]:
    """The key of the next step while a disk is full, a word for it, and what it does; `can_start`:
    a worker can be started from here once there is room."""
    goal = full.target
    if goal.where is not Where.STATE:
        return "3", "disk", f"shows what fills {goal.name}; make room" + ", then W" * can_start
    if goal.state is State.TRASH:
        return "Enter", "trash", "lists the trash" + ": X there frees space" * (not read_only)
    purges = ": X purges, X in trash frees space" * (not read_only)
    return "4", "dead tasks", f"lists the dead{purges}"


class WorkerRow(NamedTuple):
    """A worker with one of its tasks, or a place without a worker, which has no PID. None where a
    value is not known, or the format has none."""

    place: str
    """Name of the place as the operator gave it."""
    number: int
    """Number of the place, from 1."""
    name: str
    pid: int | None = None
    task: str = ""
    """Id of the task that runs; "" if none does."""
    kind: str = ""
    running_seconds: float | None = None
    limit_seconds: float | None = None
    """Time limit of its kind."""
    has_limits: bool = False
    """True if any kind of the place has a time limit."""
    destination: str = ""
    heartbeat_seconds: float | None = None
    is_stuck: bool = False
    """Needs a hand: without a heartbeat, over its limit, or a task without a worker."""
    is_abandoned: bool = False
    """True if the worker that claimed the task has ended."""
    owner: str = ""
    """The worker, if its store or server knows it by a name other than a PID."""
    lease_seconds: float | None = None
    is_suspected: bool = False
    """True if that the worker has ended is only likely (`STALLED_KEY`)."""
    connection: str = ""
    """Address and age of its connection to a server, and the queues that it serves."""
    note: str = ""
    """Instead of a task: why the worker has no task."""
    is_server: bool = False
    """True for the server that delivers by itself, or a place where no worker can be."""


def worker_rows(session: PlaceSession, now: float) -> list[WorkerRow]:
    """Return a row for each active task or idle worker of a place, or why there is none."""
    bare = WorkerRow(session.place.name, session.number, session.name)
    if unavailable := session.inspector.latest.unavailable:
        return [bare._replace(note=unavailable)]
    lock = session.readings.lock
    pids = lease_workers(session) if lock is None else _lock_pid(lock)
    pid = pids[0] if len(pids) == 1 else None
    since = None if lock is None or pid is None else lock.since
    is_stuck = lock is not None and lock.verdict is Verdict.STUCK
    bare = bare._replace(
        pid=pid,
        heartbeat_seconds=None if since is None else max(0.0, now - since),
        is_stuck=is_stuck,
        has_limits=bool(session.place.time_limits),
    )
    figures = session.readings.queue_figures
    if session.place.server:
        bare = bare._replace(pid=None)  # it has a process for each delivery
    server = _server_row(bare, session, now)
    connected = figures.connected
    idle = [
        bare._replace(
            owner=one.name or NO_NAME,
            note=safe_line(one.text) or IDLE,
            connection="" if one.text else describe(one),
        )
        for one in connected
        if not _is_busy(one, session.active)
    ]
    if session.active:
        alone = any(alert.kind is AlertKind.ABANDONED for alert in session.alerts)
        abandoned, limits = figures.abandoned, session.place.time_limits
        rows = [
            _task_row(
                bare,
                task,
                limits.get(task.kind),
                alone or task.id in abandoned or STALLED_KEY in task.extra,
                now,
            )
            for task in session.active
        ]
        rows = [row._replace(connection=_connection_of(row, connected)) for row in rows]
        return [*rows, *idle, *server]
    if idle or server:
        return [*idle, *server]
    if pids:
        return [bare._replace(pid=pid, note=IDLE) for pid in pids]
    if why := figures.workers_unknown or ("" if lock else figures.unknown):
        return [bare._replace(note=why)]
    if session.backlog is None or not session.has_readings:
        return [bare._replace(note=NOT_COUNTED)]
    if figures.has_worker and lock is None:
        return [bare._replace(note=OTHER_WORKER)]
    is_stalled = session.estimate_drain(now).trend is Trend.STALLED
    return [bare._replace(note=NO_WORKER, is_stuck=is_stalled)]


def _server_row(bare: WorkerRow, session: PlaceSession, now: float) -> list[WorkerRow]:
    """The row of the server that delivers, or of a place where no worker can be; [] if one can."""
    words, state = describe_server(session, now), session.readings.queue_figures.server
    if not words or session.worker.pid is not None:
        return []
    is_down = state is not None and state.is_running is False
    pid = None if state is None else state.pid
    return [bare._replace(pid=pid, note=words, is_stuck=is_down, is_server=True)]


def describe(worker: ConnectedWorker) -> str:
    """What a worker does; else its address, since when it is connected, and its queues."""
    if worker.text:
        return safe_line(worker.text)
    queues = ", ".join(worker.queues[:MAX_NAMED_QUEUES])
    more = len(worker.queues) - MAX_NAMED_QUEUES
    words = f"{worker.address}, connected {format_rough_duration(worker.age)}; serves {queues}"
    return words + (f" and {more} more" if more > 0 else "")


def _is_busy(worker: ConnectedWorker, active: Iterable[Task]) -> bool:
    """True if it has a claim, or may have one: an unnamed worker is known by its queues only."""
    owners = {task.lease.owner for task in active if task.lease is not None}
    if worker.name:
        return worker.name in owners
    return any(task.kind in worker.queues for task in active)


def _connection_of(row: WorkerRow, connected: Iterable[ConnectedWorker]) -> str:
    """The connection of the worker of a task; of one without a name only if it can be no other."""
    serves = [one for one in connected if row.kind in one.queues]
    named = [one for one in serves if one.name and one.name == row.owner]
    unnamed = [one for one in serves if not one.name]
    connections = named or (unnamed if row.owner and len(unnamed) == 1 else [])
    return describe(connections[0]) if connections else ""


def _lock_pid(lock: LockEvidence) -> tuple[int, ...]:
    holds = lock.verdict in (Verdict.HELD, Verdict.STUCK)
    return (lock.pid,) if holds and lock.pid is not None else ()


def _task_row(
    bare: WorkerRow, task: Task, limit: float | None, is_abandoned: bool, now: float
) -> WorkerRow:
    lease = task.lease
    running = now - lease.since if lease is not None and lease.since > 0 else None
    is_late = running is not None and limit is not None and running > limit
    has_expired = lease is not None and lease.until is not None and 0 < lease.until <= now
    pid = None if lease is None else parse_digits(lease.owner)
    until = None if lease is None else lease.until
    return bare._replace(
        pid=None if is_abandoned else pid if bare.pid is None else bare.pid,
        owner="" if lease is None or pid is not None else safe_line(lease.owner),
        lease_seconds=None if not until else until - now,
        is_suspected=STALLED_KEY in task.extra,
        task=task.id,
        kind=task.kind,
        running_seconds=None if running is None else max(0.0, running),
        limit_seconds=limit,
        destination=task.destination,
        is_stuck=bare.is_stuck or is_late or has_expired or is_abandoned,
        is_abandoned=is_abandoned,
    )


def all_worker_rows(sessions: Iterable[PlaceSession], now: float) -> list[WorkerRow]:
    """Return all rows: those that need a hand, workers by run time, places without one."""
    rows = [row for session in sessions for row in worker_rows(session, now)]
    return sorted(rows, key=_rank)


def _rank(row: WorkerRow) -> tuple[bool, bool, float, int, str]:
    running = row.running_seconds or 0.0
    return not row.is_stuck, not row.task, -running, row.number, row.task


def count_workers(rows: Collection[WorkerRow]) -> Figure:
    """Count the workers of some rows: several tasks may be of one, an idle connection is one."""
    workers = {
        (row.number, row.pid, row.owner, 0 if row.task or row.pid else at)
        for at, row in enumerate(rows, start=1)
        if not row.is_server and (row.pid or row.owner)
    }
    return Figure(len(workers), not any(map(is_unknown, rows)))


def is_unknown(row: WorkerRow) -> bool:
    """True if the note of a place is why its workers are unknown."""
    has_worker = row.task or row.pid or row.owner or row.is_server
    return not has_worker and row.note not in (NO_WORKER, NOT_COUNTED)


def kind_figures(session: PlaceSession, now: float) -> tuple[KindFigures, ...]:
    """Return the figures of the kinds that ran in the last ten minutes, or that wait or run now."""
    kinds = dict(session.waiting_kinds)
    if why := session.inspector.latest.unavailable:
        return tuple(KindFigures(kind, unknown=why) for kind in kinds)
    kinds.update((task.kind, 0) for task in session.active if task.kind not in kinds)
    if session.readings.queue_figures.kinds is not None:  # of workers of any program
        known = session.readings.queue_figures.kinds
        missing = sorted(kinds.keys() - {one.kind for one in known})
        return (*known, *(KindFigures(kind, unknown=NOT_COUNTED) for kind in missing))
    rates = session.flow.rates(now, HISTORY_SECONDS)
    output = session.recorded_output if rates is None else rates.outward
    logged: Sequence[KindFigures] | None = session.readings.kinds
    return with_unlogged_kinds(logged or (), kinds, output, logged is not None)
