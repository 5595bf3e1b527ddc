"""The facts of a place for the alert rules: the only maker of `AlertInputs` in the program.

Console, `overview`, `status` and the flight recorder read tasks in different ways; what else the
rules need is taken from the place and its readings here, so that none of them can forget it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from engine.destinations.watch import SeenDestination
from engine.largest_share import LargestShare
from engine.logs.task_events import MAIL_KIND
from engine.model import DueTasks, State
from engine.monitor.alerts import AlertInputs, Blocked, LimitUse, Unfinished
from engine.monitor.metrics_check import CountSample, counts_when_written
from engine.monitor.throughput import Growth
from engine.places.place import Place
from engine.places.place_watcher import PlaceReadings
from engine.values import NamedTuple


class TaskFacts(NamedTuple):
    """What the rules need of the tasks of a place, the first fields as in `AlertInputs`; no field
    has a default."""

    states: Mapping[State, str]
    counts: Mapping[State, int]
    complete: bool
    is_scanned: bool
    unavailable: str
    problems: int
    oldest: float | None
    due: int | None
    oldest_due: float | None
    largest_share: LargestShare | None
    is_sample: bool
    due_kinds: Mapping[str, DueTasks]
    """The due tasks by kind, at least of the kinds that `may_be_blocked`."""
    trash_bytes: int | None
    """None if not measured."""
    refusals: Collection[str]
    """Why the store refuses changes, by transition; "" for one that it allows."""


NO_TASKS = TaskFacts(
    states={},
    counts={},
    complete=False,
    is_scanned=False,
    unavailable="",
    problems=0,
    oldest=None,
    due=0,
    oldest_due=None,
    largest_share=None,
    is_sample=False,
    due_kinds={},
    trash_bytes=None,
    refusals=(),
)


def make_alert_inputs(
    place: Place,
    readings: PlaceReadings,
    tasks: TaskFacts,
    *,
    active: int | None,
    dead_growth: Growth | None,
    dead_clusters: int | None,
    counted: Sequence[CountSample],
    last_run: float | None,
    free_since: float | None,
    free_grace: float,
    unfinished: Sequence[Unfinished],
    orphaned_mails: int,
    destinations: Sequence[SeenDestination],
) -> AlertInputs:
    """Inputs of the alert rules for a place; the keywords are fields of `AlertInputs`, but for
    `counted`: the reader's own counts of the tasks, one of them before the readings."""
    return AlertInputs(
        name=place.name,
        states=tasks.states,
        counts=tasks.counts,
        complete=tasks.complete,
        is_scanned=tasks.is_scanned,
        unavailable=tasks.unavailable,
        problems=tasks.problems,
        lock=readings.lock,
        active=active,
        oldest=tasks.oldest,
        due=tasks.due,
        is_sample=tasks.is_sample,
        oldest_due=tasks.oldest_due,
        largest_share=tasks.largest_share,
        dead_growth=dead_growth,
        queue=readings.queue,
        counts_when_written=counts_when_written(readings.queue, readings.rest, counted),
        transports=tuple(
            transport for transport in readings.sending.transports if transport.is_mentioned
        ),
        last_run=last_run,
        runs=readings.runs,
        free_since=free_since,
        unfinished=unfinished,
        routes=readings.routes,
        orphaned_mails=orphaned_mails,
        stopped=_stopped_words(place, readings),
        warnings=(*readings.queue_figures.warnings, *_cannot_work(place, tasks.refusals)),
        warned_states=readings.queue_figures.warned_states,
        lacks=tuple((one.kind, one.error, one.when) for one in readings.lacks),
        clock_step=readings.clock_step,
        blocked=tuple(_blocked(place, readings, tasks.due_kinds)),
        dead_clusters=dead_clusters,
        disks=readings.disks,
        limits=(*limits_of_tasks(place, tasks.counts, tasks.trash_bytes), *readings.limits),
        destinations=destinations,
        refusals=readings.refusals,
        free_grace=free_grace,
    )


def may_be_blocked(place: Place, readings: PlaceReadings, kind: str) -> bool:
    """True if no worker with the place's configuration would claim a task of this kind now. A
    suspended transport has its own alert, and a kind without a token is only delayed."""
    return bool(_why_blocked(place, readings, kind))


def is_run(readings: PlaceReadings, kind: str) -> bool:
    """True if the log has a run of this kind in the last minutes, and no configuration file was
    read here: then the worker has one, with a handler for it."""
    if readings.routes is None or not readings.routes.is_assumed:
        return False
    return any(one.kind == kind and one.per_minute for one in readings.kinds or ())


def _why_blocked(place: Place, readings: PlaceReadings, kind: str) -> str:
    if place.has_handler is not None and not place.has_handler(kind):
        return "" if is_run(readings, kind) else "no handler"
    waits = readings.routes is not None and readings.routes.is_waiting
    return "no transport" if kind == MAIL_KIND and readings.mail_obstacle and not waits else ""


def _blocked(
    place: Place, readings: PlaceReadings, due: Mapping[str, DueTasks]
) -> Iterator[Blocked]:
    for kind, (number, oldest) in due.items():
        if why := _why_blocked(place, readings, kind):
            yield Blocked(kind, number, oldest, why)


def _stopped_words(place: Place, readings: PlaceReadings) -> str | None:
    server = readings.queue_figures.server
    if not place.server:
        return None
    return server.stopped if server is not None and server.is_running is False else ""


def _cannot_work(place: Place, refusals: Collection[str]) -> Iterator[str]:
    """Yield why this user can change nothing in the files of a place, although they can be read. A
    server that refuses changes has a reason for it."""
    if len(refusals) == 1 and place.location.startswith("/"):
        yield from (f"no task can be changed or run: {why}" for why in refusals if why)


def limits_of_tasks(
    place: Place, counts: Mapping[State, int], trash_bytes: int | None
) -> Iterator[LimitUse]:
    """Yield the limits of a place on its tasks, with how much of each is used."""
    if place.max_pending is not None:
        waiting = counts.get(State.PENDING, 0)
        yield LimitUse("queue", waiting, place.max_pending, "pending", State.PENDING)
    if place.trash is not None and trash_bytes is not None:
        size, unit = (1e6, "MB") if place.trash.quota >= 10e6 else (1e3, "kB")
        used, most = trash_bytes / size, place.trash.quota / size
        yield LimitUse("trash", used, most, unit, State.TRASH)
