"""`status`: print a summary of a place."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING

from engine.destinations.watch import CountedTasks, DestinationTasks, add_task, join
from engine.formats.base.format import Setup
from engine.largest_share import WAITING_STATES, LargestShare, find_largest
from engine.locks.token_buckets import ALL_KINDS
from engine.model import (
    MAIL_SEND_KIND,
    DueTasks,
    Problem,
    State,
    Task,
    count_by_words,
    fold_problems,
)
from engine.monitor.alerts import (
    Alert,
    AlertInputs,
    AlertKind,
    Level,
    Unfinished,
    count_refusals,
    find_alerts,
    is_stalled,
    lacks_worker,
    needs_attention,
    recent_refusals,
)
from engine.monitor.forecast import Forecast, ForecastInputs, as_row, make_forecasts
from engine.monitor.throughput import (
    HISTORY_SECONDS,
    MISSING_WORKER,
    Drain,
    FlowHistory,
    Trend,
)
from engine.monitor.transport_health import MailBacklog, TransportSuspension, describe_suspension
from engine.operations.journal import Operation
from engine.places.alert_facts import TaskFacts, make_alert_inputs
from engine.places.place import Place
from engine.places.place_watcher import PlaceReadings, PlaceWatcher
from engine.policy import died_at
from engine.store import ReadableStore, Unavailable
from engine.system.command_errors import print_error
from engine.text.figure import Figure
from engine.text.safe import safe_line
from engine.text.times import format_rough_duration
from engine.values import NamedTuple
from tui.cli.setup.output import Answer, show_progress
from tui.cli.setup.places import make_place
from tui.session.history import HISTORY_SECONDS as JOURNAL_SECONDS
from tui.session.history import alert_input
from tui.text.task_row import with_times

if TYPE_CHECKING:
    from engine.monitor.recorded_history import RecordedHistory

OK, ATTENTION, UNREADABLE = 0, 1, 2
SHOWN_PROBLEMS = 10


MAX_READ_TASKS = 5_000
"""Tasks up to which all are read; of more, only a sample and the first ones in id order."""

ORDERED_SAMPLE_TASKS = 200
"""Tasks in id order that are read after the sample of each state, with which a scan begins."""


class TaskSummary(NamedTuple):
    """What one scan found: of all tasks, or of a sample."""

    counts: Mapping[State, int]
    by_word: Mapping[str, int]
    """The same by the store's own words."""
    states: Mapping[State, str]
    oldest: float | None
    """Creation of the oldest pending task, epoch seconds UTC; None if missing."""
    due_kinds: Mapping[str, Sequence[float]]
    """Creation times of the due tasks by kind."""
    kinds: Mapping[str, int]
    """Pending tasks by kind."""
    first_died: float | None
    payloads: frozenset[str]
    """Payloads of the mail tasks."""
    problems: Sequence[Problem]
    read: int | None = None
    """Tasks that were read, if not all were: everything but the counts is about these."""
    trash_bytes: int = 0
    """Bytes of the tasks in the trash."""
    largest_share: LargestShare | None = None
    """The sender or account with the most waiting mails, of those that were read."""
    refusals: frozenset[str] = frozenset()
    """Why the store refuses changes; "" for a transition that it allows."""
    destinations: CountedTasks | None = None
    """The tasks of each destination; None if not all were read."""


class PlaceStatus(NamedTuple):
    """A place, as read once."""

    tasks: TaskSummary
    readings: PlaceReadings
    alerts: tuple[Alert, ...]
    forecasts: tuple[Forecast, ...]
    age: float | None
    """Seconds since the oldest pending task was created."""
    lost: int
    """Spooled mails without a task."""


def status(setup: Setup, *, exact: bool) -> Answer | int:
    """Print a summary of a place; exit 0 OK, 1 needs attention, 2 unreadable."""
    place = make_place(setup, setup.place, setup.words)
    try:
        place_status = read_status(place, time.time(), exact=exact)
    except Unavailable as error:
        print_error(str(error))
        return UNREADABLE
    return Answer(
        lambda: _as_row(place, place_status),
        lambda: _as_text(place, place_status),
        ATTENTION if needs_attention(place_status.alerts) else OK,
    )


def read_status(place: Place, now: float, *, exact: bool = False) -> PlaceStatus:
    """Scan a place once, with its lock, metrics, logs and mail, as the console does.

    Of more than `MAX_READ_TASKS` tasks only a sample is read, unless `exact`.

    Raises:
        Unavailable: it cannot be reached.
    """
    with closing(place.open()) as store:
        tasks = summarize_tasks(store, now, MAX_READ_TASKS, exact=exact)
    readings = _read(place)
    lost = count_lost_mails(place, tasks, readings, now)
    inputs = make_alert_inputs(
        place,
        readings,
        task_facts(tasks),
        active=None,
        dead_growth=None,
        dead_clusters=None,
        counted=((now, tasks.counts),),
        last_run=readings.last_run,
        free_since=now if readings.is_without_worker else None,
        free_grace=0.0,  # the command does not wait: the log shows how long none ran
        unfinished=find_interrupted(read_operations(place, now), now),
        orphaned_mails=lost,
        destinations=join(readings.destinations, tasks.destinations),
    )
    history = _read_history(place, now)
    flow = history.flow_until(now)
    whole = flow.growth(State.PENDING, now)
    known = ForecastInputs(
        tasks.counts,
        tasks.states,
        _present_drain(flow, inputs, place, now),
        growth=flow.growth(State.DEAD, now),
        died=tasks.first_died,
        has_arrivals=history.has_arrivals(now),
        tokens=readings.tokens,
        kinds=tasks.kinds,
        kind_growth={} if whole is None else {ALL_KINDS: whole},
        figures=readings.kinds or (),
    )
    return PlaceStatus(
        tasks,
        readings,
        find_alerts(inputs, now, place.alerts),
        forecasts=make_forecasts(known, place.alerts, place.retention_days, now),
        age=None if tasks.oldest is None else max(0.0, now - tasks.oldest),
        lost=lost,
    )


def _present_drain(flow: FlowHistory, inputs: AlertInputs, place: Place, now: float) -> Drain:
    """The drain as recorded; unknown without a worker."""
    drain = flow.drain(now)
    if drain.trend in (Trend.EMPTY, Trend.GROWING) or not lacks_worker(inputs, now, place.alerts):
        return drain
    return Drain(Trend.UNKNOWN, unknown=MISSING_WORKER)


def count_lost_mails(place: Place, tasks: TaskSummary, readings: PlaceReadings, now: float) -> int:
    """Spooled mails without a task; 0 if not all tasks were read.

    Raises:
        Unavailable: the mail spool cannot be read.
    """
    backlog, payloads = readings.sending.backlog, tasks.payloads
    has_more = isinstance(backlog, MailBacklog) and backlog.mails > len(payloads)
    if place.mail is None or tasks.read is not None or not has_more:
        return 0
    return place.mail.find_unqueued(payloads, now)


def task_facts(tasks: TaskSummary) -> TaskFacts:
    """The facts about tasks that were read once, for the alert rules."""
    due = [created for times in tasks.due_kinds.values() for created in times]
    kinds = {kind: DueTasks(len(times), min(times)) for kind, times in tasks.due_kinds.items()}
    return TaskFacts(
        states=tasks.states,
        counts=tasks.counts,
        complete=True,
        is_scanned=tasks.read is None,
        unavailable="",
        problems=len(tasks.problems),
        oldest=tasks.oldest,
        due=len(due),
        oldest_due=min(filter(None, due), default=None),
        largest_share=None if tasks.read is not None else tasks.largest_share,
        is_sample=tasks.read is not None,
        due_kinds=kinds,
        trash_bytes=tasks.trash_bytes,
        refusals=tasks.refusals,
    )


def summarize_tasks(
    store: ReadableStore, now: float, most: int, *, exact: bool = False
) -> TaskSummary:
    """Scan a store once; of more than `most` tasks only a sample is read, unless `exact`.

    Raises:
        Unavailable: it cannot be reached.
    """
    counts: dict[State, int] = dict.fromkeys(store.states, 0)
    words: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    senders: Counter[str] = Counter()
    accounts: Counter[str | None] = Counter()
    oldest: float | None = None
    due_kinds: dict[str, list[float]] = {}
    died: list[float] = []
    payloads: set[str] = set()
    problems: dict[str, Problem] = {}
    destinations: dict[str, DestinationTasks] = {}
    known_tasks: set[tuple[str, State]] = set()
    some = None if exact else store.sample(ORDERED_SAMPLE_TASKS)
    is_whole = some is not None and some.is_whole
    if some and not is_whole and (some.words is None or sum(some.counts.values()) <= most):
        some = None
    for scanned in show_progress(some.tasks if some else store.scan(), "tasks read"):
        if isinstance(scanned, Problem):
            problems[scanned.where] = scanned
        if not isinstance(scanned, Task) or (scanned.id, scanned.state) in known_tasks:
            continue  # a full scan starts with a sample
        known_tasks.add((scanned.id, scanned.state))
        counts[scanned.state] += 1
        words[scanned.word] += 1
        add_task(destinations, scanned)
        if scanned.sender and scanned.state in WAITING_STATES:
            senders[scanned.sender] += 1
            accounts[scanned.account] += 1
        if scanned.kind == MAIL_SEND_KIND:
            payloads.add(scanned.payload)
        if scanned.state is State.PENDING:
            kinds[scanned.kind] += 1
            if scanned.created:  # else unknown
                oldest = scanned.created if oldest is None else min(oldest, scanned.created)
            if scanned.due is not None and scanned.due <= now:
                due_kinds.setdefault(scanned.kind, []).append(scanned.created)
        elif scanned.state is State.DEAD and (when := died_at(scanned)) is not None:
            died.append(when)
    read = len(known_tasks) if some and not is_whole else None
    if some:
        counts |= some.counts
        words = Counter(some.words)
    return TaskSummary(
        counts,
        count_by_words(counts, words, store.states, store.words),
        store.states,
        oldest=oldest,
        due_kinds=due_kinds,
        kinds=kinds,
        first_died=min(died, default=None),
        payloads=frozenset(payloads),
        problems=list(problems.values()),
        read=read,
        trash_bytes=store.trash_bytes(),
        largest_share=find_largest(senders, accounts),
        refusals=frozenset(edge.refusal for edge in store.edges.values()),
        destinations=None if read is not None else CountedTasks(destinations),
    )


def _read(place: Place) -> PlaceReadings:
    """Read lock, metrics and logs, as the console does."""
    watch = PlaceWatcher(place)
    try:
        readings = watch.read_all()
        while readings.sending.is_reading:
            readings = watch.read_all()
    finally:
        watch.close()
    return readings


def read_operations(place: Place, now: float) -> tuple[Operation, ...]:
    """Operations of the last day; none if the journal cannot be read."""
    if place.journal is None:
        return ()
    try:
        return tuple(place.journal.operations(now - JOURNAL_SECONDS))
    except (Unavailable, OSError):
        return ()  # an operator may read the tasks and not the journal


def find_interrupted(operations: Iterable[Operation], now: float) -> tuple[Unfinished, ...]:
    """Operations of the last day whose process ended before all their tasks were moved."""
    return tuple(
        alert_input(one)
        for one in operations
        if one.is_interrupted and one.open_rows and one.started >= now - JOURNAL_SECONDS
    )


def _read_history(place: Place, now: float) -> RecordedHistory:
    """The recording of the last minutes; empty if there is none."""
    from engine.monitor.recorded_history import RecordedHistory
    from engine.monitor.recorder import UnreadableRecording, read_samples

    if place.recording is None:
        return RecordedHistory((), "")
    try:
        return RecordedHistory(read_samples(place.recording, now - HISTORY_SECONDS, now), "")
    except UnreadableRecording:
        return RecordedHistory((), "")  # the forecasts then show what is unknown


def _as_text(place: Place, place_status: PlaceStatus) -> list[str]:
    tasks, readings = place_status.tasks, place_status.readings
    counts = "  ".join(f"{word} {number:,}" for word, number in tasks.by_word.items())
    lines = [f"queue     {safe_line(place.location)}", f"tasks     {counts}"]
    if tasks.read is not None:
        text = "read: ages and due tasks are at least these; --exact reads all"
        lines.append(f"sampled   {tasks.read:,} of {sum(tasks.counts.values()):,} tasks {text}")
    if place_status.age is not None:
        lines.append(f"oldest    {format_rough_duration(place_status.age)} waiting")
    elif tasks.counts.get(State.PENDING):
        lines.append("oldest    ? no task that was read has a time of creation")
    rows = readings.queue_figures.rows
    lines += [f"{safe_line(name):<9} {safe_line(text)}" for name, text in rows]
    lines += _mail_lines(readings, time.time())
    if readings.lock is not None:
        lines.append(f"lock      {readings.lock.verdict}: {safe_line(readings.lock.reason)}")
    problems = fold_problems(tasks.problems)
    first_problems = problems[:SHOWN_PROBLEMS]
    lines += [f"problem   {safe_line(one.where)}: {safe_line(one.what)}" for one in first_problems]
    if len(problems) > SHOWN_PROBLEMS:
        more = Figure(len(problems) - SHOWN_PROBLEMS, tasks.read is None).text()
        lines.append(f"          and {more} more")
    leads = ("forecast", *[""] * len(place_status.forecasts))
    lines += [
        f"{lead:<9} {each.sentence}"
        for lead, each in zip(leads, place_status.forecasts, strict=False)
    ]
    urgent, accepted = _divide(place_status.alerts)
    lines += [f"attention {text}" for text in urgent]
    lines += [f"accepted  {text}" for text in accepted]
    return lines if urgent else [*lines, "OK        nothing needs attention"]


def _divide(alerts: Sequence[Alert]) -> tuple[list[str], list[str]]:
    """The texts of the alerts that need attention, and of those that the configuration accepts."""
    texts: tuple[list[str], list[str]] = [], []
    for alert in alerts:
        texts[alert.level is Level.INFO].append(_in_full(alert).removeprefix("accepted: "))
    return texts


def _in_full(alert: Alert) -> str:
    """The text of an alert; a warning of the queue in full, as there is room for it here."""
    return safe_line(alert.target.name) if alert.kind is AlertKind.WARNED else alert.text


def _mail_lines(readings: PlaceReadings, now: float) -> list[str]:
    """Lines about the mail spool, refused or lost mails and the suspended transports."""
    backlog, lines = readings.sending.backlog, []
    if isinstance(backlog, MailBacklog) and backlog.mails:
        age = format_rough_duration(backlog.oldest)
        lines.append(f"mail      {backlog.mails:,} spooled, the oldest for {age}")
    elif isinstance(backlog, str):
        lines.append(f"mail      ? {safe_line(backlog)}")
    if isinstance(readings.refusals, str):
        lines.append(f"mail      ? refused or lost: {safe_line(readings.refusals)}")
    whys = Counter(each.text or each.word for each in recent_refusals(readings.refusals, now))
    is_whole = count_refusals(readings.refusals, now).is_exact
    lines += [
        f"mail      {Figure(count, is_whole).text()} refused or lost in a day: {safe_line(why)}"
        for why, count in whys.most_common(SHOWN_PROBLEMS)
    ]
    lines += [
        f"mail      {describe_suspension(stop)} (spooldeck mail resume {safe_line(stop.name)})"
        for stop in _stopped(readings)
    ]
    return lines


def _stopped(readings: PlaceReadings) -> Sequence[TransportSuspension]:
    return [] if readings.routes is None else [*readings.routes.stopped.values()]


def _as_row(place: Place, place_status: PlaceStatus) -> dict[str, object]:
    tasks, readings = place_status.tasks, place_status.readings
    lock, backlog = readings.lock, readings.sending.backlog
    urgent, accepted = _divide(place_status.alerts)
    spooled = backlog if isinstance(backlog, MailBacklog) else None
    mail = {
        "spooled": None if spooled is None else spooled.mails,
        "oldest_age": spooled.oldest if spooled and spooled.mails else None,
        "without_task": None if tasks.read is not None else place_status.lost,
        "refused_or_lost": None
        if isinstance(readings.refusals, str)
        else len(recent_refusals(readings.refusals, time.time())),
        "suspended": [with_times(stop._asdict(), "since") for stop in _stopped(readings)],
    }
    return {
        "queue": place.location,
        "tasks": dict(tasks.by_word),
        "sampled": tasks.read,
        "oldest_pending_age": place_status.age,
        "stalled": is_stalled(sum(map(len, tasks.due_kinds.values())), place_status.alerts),
        "kinds": None if readings.kinds is None else [one._asdict() for one in readings.kinds],
        "lock": None
        if lock is None
        else with_times(lock._asdict(), "since") | {"verdict": str(lock.verdict)},
        "mail": None if place.mail is None else mail,
        "facts": dict(readings.queue_figures.rows),
        "problems": [{"where": one.where, "what": one.what} for one in tasks.problems],
        "attention": urgent,
        "accepted": accepted,
        "forecasts": as_row(place_status.forecasts),
    }
