"""The session of one open place: follows its tasks, lock, metrics, logs, journal and operations."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Any

from engine.destinations import watch
from engine.destinations.watch import CountedTasks, SeenDestination
from engine.index import filter_language
from engine.index.backlog import BacklogSummary
from engine.index.group_counts import count_destinations
from engine.index.schema import Query
from engine.live.call_thread import CallThread
from engine.live.folder_watch import SharedParts
from engine.live.index_sync import Found, IndexChanged, scan_all
from engine.live.inspector import Inspector
from engine.locks.token_buckets import ALL_KINDS, is_queue_stopped
from engine.logs.task_events import TaskEvent
from engine.model import DueTasks, LockEvidence, State, Task, Verdict
from engine.monitor import recorder
from engine.monitor.alerts import (
    GRACE_SECONDS,
    Alert,
    AlertInputs,
    AlertKind,
    find_alerts,
    is_stalled,
    lacks_worker,
)
from engine.monitor.forecast import Forecast, ForecastInputs, make_forecasts
from engine.monitor.metrics_check import CountSample
from engine.monitor.recorded_history import RecordedHistory
from engine.monitor.recorder import Recorder, RecorderStatus, Role, UnreadableRecording
from engine.monitor.sample_codec import RecordedSample, make_sample
from engine.monitor.throughput import (
    HISTORY_SECONDS,
    MIN_TREND_SECONDS,
    MISSING_WORKER,
    RATE_WINDOW_SECONDS,
    TREND_WINDOW_SECONDS,
    Drain,
    FlowHistory,
    Growth,
    Rates,
    Trend,
)
from engine.monitor.transport_health import MailBacklog, MailRoutes, mark_explained
from engine.operations.execute import RefusalCheck, always_allowed
from engine.operations.journal import Intent, Operation
from engine.operations.notes import NotesById
from engine.operations.plans import Plan
from engine.places.alert_facts import TaskFacts, make_alert_inputs, may_be_blocked
from engine.places.place import NO_WORKER, Place
from engine.places.place_watcher import (
    QUICK_READ_SECONDS,
    PlaceReadings,
    PlaceWatcher,
    read_routes,
)
from engine.replay.settings import ReplayPace
from engine.store import ReadableStore, Unavailable
from engine.text.safe import safe_line
from engine.text.times import format_duration
from tui.session.background_command import MailTestProcess, RecoveryProcess, WorkerProcess
from tui.session.history import History, alert_input, operation_name
from tui.text.header import NO_ANSWER, SILENT, Totals

if TYPE_CHECKING:  # imported late: not needed when the console opens
    from tui.session.running_operations import RunningOperation

TO_PENDING = frozenset({"retry", "rerun", "promote", "release"})
"""Verbs after which tasks wait for a worker."""

MAX_COUNT_SAMPLES = 300
"""Remembered counts, one per second: metrics are compared with the counts of their own time."""

MAIL_TASKS = Query(filter=filter_language.parse_filter("kind=mail_send"))
"""Selects the mail tasks in any state."""

MAIL_GRACE_SECONDS = 30.0
"""Seconds for which there must be more spooled mails than mail tasks: a mail is spooled before its
task is queued, and both are removed after sending."""

HANG_SECONDS, FIRST_HANG_SECONDS = 2.5, 10.0
"""Seconds by which a read of lock, metrics and logs takes longer than the one before if it hangs:
most take milliseconds, and with the pause before a read it is on screen within 5 s; that of a place
that no screen shows within 14 s. The first read of a long log takes some seconds."""

MAX_READ_SECONDS = 2.0
"""Maximum seconds by which a slow read delays the mark of the next one, if that hangs."""

MAX_CLUSTERS_AGE_SECONDS = 120.0
"""Age from which a number of error clusters counts as unknown."""

ACTIVE_SECONDS = 5.0
"""Seconds for which a task must be active to count: its run starts and ends while the lock is
free."""

FIRST_QUERY_SECONDS, UNCHANGED_QUERY_SECONDS = 0.1, 5.0
"""Seconds until the due tasks are queried: from one look whether the first scan has ended to the
next, and after a query without a change."""

QUERY_COST_FACTOR = 20
"""Minimum pause between two queries, as a multiple of the last one: it grows with the backlog."""

FIRST_TASKS_SECONDS = 1.0
"""Maximum seconds to wait for the first tasks before everything else starts."""

HIDDEN_READ_SECONDS, QUIET_READ_SECONDS = 5.0, 10.0
"""Seconds between two reads of the lock, metrics, logs and journal of a place that no screen shows;
the second while its folders are watched and no task changes."""

MAX_JOURNAL_AGE_SECONDS = 30.0
"""Seconds after which what the journal said of running operations is not shown any more."""

JOURNAL_INTERVAL_SECONDS = 2.0
"""Seconds between two reads of a journal with an operation that has not ended."""

RECORDER_OFF = "read only: recorder off"
"""Shown where nothing may be written."""

TURNS_PER_SECOND = 4
"""Moments of a second at which places wake up, several at the same one."""

CLOSE_TIMEOUT_SECONDS = 2.0
"""Seconds to wait for threads when the place is closed."""


class PlaceSession:
    """State that all screens of one place share; the console owns and closes it."""

    def __init__(
        self,
        place: Place,
        clock: Callable[[], float],
        number: int = 1,
        *,
        why_not_written: Callable[[], str] = lambda: RECORDER_OFF,
        name: str = "",
        shared: SharedParts | None = None,
        read_store: Callable[[ReadableStore], Iterator[Found]] = scan_all,
    ) -> None:
        """`number`: the place's number in the console, from 1. `why_not_written`: why nothing is
        written there that no operator asks for; with "" the flight recorder gets samples, unless
        another process writes them. `name`: its short name; "" for the whole one.
        `shared`: what it shares with the other places. `read_store` is what a full scan reads."""
        self.place, self.clock, self.number = place, clock, number
        self.name = name or safe_line(place.name)
        self.opened_at = clock()
        """Time of opening, epoch seconds UTC."""
        quota = None if place.trash is None else place.trash.quota
        self._is_shown = True
        self._reading_since: float | None = None
        """When the first read without an answer began (`time.monotonic`); None if none runs."""
        self._read_seconds = 0.0
        """Duration of the last read that did not hang, at most `MAX_READ_SECONDS`."""
        self.inspector = Inspector(
            place.open,
            clock=clock,
            journal=place.journal,
            quota=quota,
            is_shown=lambda: self._is_shown,
            find_silence=self.find_silence,
            shared=shared,
            read_store=read_store,
            limit=place.max_attempts,
        )
        self.worker = WorkerProcess(place.worker_command)
        self.recovery = RecoveryProcess(place.recovery_command)
        self.test_mail = MailTestProcess(() if place.mail is None else place.mail.test_command)
        self._kind_samples: deque[tuple[float, Mapping[str, int]]] = deque(maxlen=MAX_COUNT_SAMPLES)
        """Waiting tasks of each kind with a rate limit, whenever they were counted."""
        self.operations: list[RunningOperation] = []
        """Operations of this console at this place, latest last."""
        self.history = History(place, self.inspector, clock, settles=lambda: not why_not_written())
        """Operations of all operators, from the journal."""
        self.messages: deque[str] = deque()
        """Messages for the operator, shown on the open screen."""
        self._readings = PlaceReadings()
        self.count_samples: deque[tuple[float, Mapping[State, int]]] = deque(
            maxlen=MAX_COUNT_SAMPLES
        )
        self.counted_before_read: CountSample | None = None
        """The counts when the last read began; None if not all tasks were counted then."""
        self.dead_clusters: tuple[int | None, float] = (None, 0.0)
        """Number of different errors of dead tasks, and when it was counted (epoch seconds UTC)."""
        self.flow = FlowHistory()
        self.is_replaced = False
        """True from a change of its folders until what is there now was read."""
        self._identity: tuple[tuple[int, int], ...] = ()
        """Its folders as they were last found."""
        self.unsent_samples: deque[tuple[float, int]] = deque(
            [(clock(), 0)], maxlen=MAX_COUNT_SAMPLES
        )
        """Times, and by how many the spooled mails exceeded the mail tasks then."""
        self._lost_mail_count: int | None = None
        self._backlog: BacklogSummary | None = None
        self._active: Sequence[Task] = ()
        self.waiting_kinds: Mapping[str, int] = {}
        self.oldest_by_kind: Mapping[str, float | None] = {}
        """Creation time of the oldest pending task by kind, epoch seconds UTC; None if unknown."""
        self.due_kinds: Mapping[str, DueTasks] = {}
        """The due tasks of kinds that no worker would claim."""
        self.trash_bytes: int | None = None
        """Bytes of the tasks in the trash; None until measured."""
        self._trashed = -1
        self.measuring: asyncio.Task[None] | None = None
        """Measures the trash at present."""
        self.destination_tasks: CountedTasks | None = None
        """Tasks by destination; None until counted."""
        self.joined: tuple[object, object, tuple[SeenDestination, ...]] = (None, None, ())
        """What `seen_destinations` made last, after the two values that it was made of."""
        self.recorded_output: float | None = None
        """Recorded tasks per second that left in the minutes before the place was opened."""
        self.alerts: tuple[Alert, ...] = ()
        """Current alerts, most urgent first."""
        self.recording = RecorderStatus(Role.IDLE, why_not_written())
        self.recorded_flow = FlowHistory()
        """Recorded data of the minutes before the place was opened."""
        self.free_since: float | None = None
        """As in `AlertInputs`."""
        self.free_grace = GRACE_SECONDS
        """Seconds for which the lock must be free before an alert that no worker runs."""
        self.has_readings = False
        """True once lock, metrics and logs were read."""
        self._watch = PlaceWatcher(place, clock)
        self.recent_events = self._watch.recent_events
        """Task events of the last hour from the logs."""
        self.note_destinations = self._watch.note_destinations
        """Uses a registry of destinations that was read after a change."""
        self._watch_thread = CallThread(f"watch {number}", self._watch.close)
        self._closed = False
        self._watching: set[asyncio.Task[None]] = set()
        self._waiters: list[asyncio.Future[None]] = []
        self._turns = _Turns()
        self._evaluated = -1
        """Generation of the index for which the alert rules were evaluated last."""
        self._why_not_written = why_not_written
        self._recorder = None if place.recording is None else Recorder(place.recording)
        self._disk_thread = CallThread(f"recorder {number}", self._end_recording)
        self._slot = -1
        self._writing: asyncio.Task[None] | None = None

    @property
    def has_queue_figures(self) -> bool:
        """True if the place has controls, rate limits or a state of the queue as a whole."""
        reports = self.place.queue_figures is not None or self.place.tokens is not None
        return reports or bool(self.inspector.controls)

    def find_silence(self) -> str:
        """For how long a read has hung, as a remote file system or a disk may; "" if none does."""
        if self._reading_since is None:
            return ""
        seconds = monotonic() - self._reading_since
        limit = HANG_SECONDS + self._read_seconds if self.has_readings else FIRST_HANG_SECONDS
        return f"{SILENT}{format_duration(seconds)}" if seconds >= limit else ""

    @property
    def readings(self) -> PlaceReadings:
        """What was read last of lock, metrics and logs; unknown while a read hangs."""
        is_silent = bool(self.find_silence())
        return self._readings.without_answer(NO_ANSWER) if is_silent else self._readings

    @readings.setter
    def readings(self, readings: PlaceReadings) -> None:
        self._readings = readings

    @property
    def backlog(self) -> BacklogSummary | None:
        """Backlog: due tasks and their age; None until known, and while the place has no answer."""
        return None if self.inspector.latest.unavailable else self._backlog

    @backlog.setter
    def backlog(self, backlog: BacklogSummary | None) -> None:
        self._backlog = backlog

    @property
    def active(self) -> Sequence[Task]:
        """Active tasks, as many as any screen shows; none while the place has no answer."""
        return () if self.inspector.latest.unavailable else self._active

    @property
    def is_operating(self) -> bool:
        """True while an operation, a lock recovery or a test mail of this console runs here."""
        running = self.recovery.running or self.test_mail.running
        return running or any(work.ended is None for work in self.operations)

    async def follow(self, headstart: float) -> None:
        """Read the place until it is closed, at the turns that `follow_places` gives it."""
        await self.inspector.start()
        if headstart:
            await self._wait_for_tasks()
            await asyncio.sleep(headstart)
        await asyncio.gather(
            self._follow(),
            self._follow_backlog(),
            self._load_recorded_flow(),
            self._follow_history(),
            self._sweep(),
        )

    def take_turn(self, *, is_shown: bool) -> None:
        """Start what is due now. The counts of a hidden place are noted even if no read is due."""
        self._is_shown = is_shown
        if self.find_silence():
            self.evaluate_alerts()
        if self.has_readings and not is_shown:
            _add_counts(self)
            if self.inspector.latest.generation != self._evaluated:
                self.evaluate_alerts()
        self._turns.take()

    async def _wait_for_tasks(self) -> None:
        """Wait for the first tasks, at most `FIRST_TASKS_SECONDS`, or until the scan ends."""
        with suppress(TimeoutError, Unavailable):  # or closed already: then the loops end at once
            async with asyncio.timeout(FIRST_TASKS_SECONDS):
                latest = self.inspector.latest
                while not (latest.is_complete or latest.unavailable or any(latest.counts.values())):
                    latest = await self.inspector.wait_for_change(latest.generation)

    async def _follow(self) -> None:
        time, due, quiet_due, generation = asyncio.get_running_loop().time, 0.0, 0.0, -1

        def is_due() -> bool:
            is_wanted = self._is_shown or self.worker.has_ended or bool(self._waiters)
            is_quiet = self.readings.is_watched and self.inspector.latest.generation == generation
            return is_wanted or time() >= (quiet_due if is_quiet else due)

        while not self._closed:
            generation = self.inspector.latest.generation
            due = next_turn(time(), HIDDEN_READ_SECONDS, self.number)
            quiet_due = next_turn(time(), QUIET_READ_SECONDS, self.number)
            try:
                began = monotonic()
                self._reading_since = began if self._reading_since is None else self._reading_since
                latest = self.inspector.latest
                before = (self.clock(), latest.counts) if latest.is_complete else None
                readings = await self._watch_thread.run(self._watch.read_all)
                seconds, figures = monotonic() - began, readings.queue_figures
                was_silent, last = bool(self.find_silence()), self._readings.queue_figures
                # A server that times out is asked again: it has been silent since the first time.
                # An error that comes quickly is an answer, but not the last one, kept until due.
                is_quick = seconds < QUICK_READ_SECONDS and figures is not last
                if not was_silent:
                    self._read_seconds = min(seconds, MAX_READ_SECONDS)
                if not was_silent or is_quick or not figures.unknown:
                    self._reading_since = None
                self._readings = readings._replace(destinations=self._watch.destinations)
                self.counted_before_read = before
            except Unavailable:
                if not self._closed:
                    raise
                return  # closed before the call
            if found := readings.identity:
                if self._identity and found != self._identity:
                    self._keep_running(self._restart_flow())
                self._identity = found
            _note_free_lock(self)
            self.note_stop(self.clock())
            if self.worker.has_ended:
                self.messages.append(await asyncio.to_thread(self.worker.describe_end))
            _add_counts(self)
            self.has_readings = True
            self.evaluate_alerts()
            self._record()
            waiters, self._waiters = self._waiters, []
            _settle(waiters)
            await self._turns.wait(is_due)

    async def _restart_flow(self) -> None:
        """Other folders are where its tasks were, by a mount or a rename: what is there now has not
        come. Rates begin again once all of it was read."""
        self.is_replaced, self.flow = True, FlowHistory(own_worker=self.worker.pid)
        await self.inspector.scan_now()
        self.is_replaced = False
        self.count_samples.clear()

    @property
    def no_log(self) -> str:
        """Why its logs have no line: that of its server is not known; "" if they may have."""
        return "" if self.readings.log else self.place.no_server_log

    @property
    def lacks_worker(self) -> bool:
        """True if lock and logs show no worker at this place."""
        has_worker = self.worker.pid is not None
        inputs = self.alert_inputs()._replace(free_grace=0.0)
        return not has_worker and lacks_worker(inputs, self.clock(), self.place.alerts)

    @property
    def runs_worker(self) -> bool:
        """True if a worker is known to run at this place."""
        lock = self.readings.lock
        holds = lock is not None and lock.verdict in (Verdict.HELD, Verdict.STUCK)
        return holds or bool(count_lease_workers(self))

    @property
    def full_disk(self) -> Alert | None:
        """The alert about a full disk that it writes to; a worker may end at its first write."""
        return next((alert for alert in self.alerts if alert.kind is AlertKind.FULL), None)

    def worker_hint(self, verb: str) -> str:
        """Next step after that verb moved tasks to pending; "" if a worker takes them."""
        if verb not in TO_PENDING or not self.lacks_worker:
            return ""
        if full := self.full_disk:
            return f"{NO_WORKER}: make room on {safe_line(full.target.name)} first"
        return NO_WORKER + ": 3, then W starts one" * bool(self.place.worker_command)

    def estimate_drain(self, now: float) -> Drain:
        """Time to drain the backlog; `STALLED` if due tasks wait and no task is completed; unknown
        without a worker, although some left before."""
        latest, due = self.inspector.latest, 0 if self.backlog is None else self.backlog.due
        if latest.is_complete and not latest.counts.get(State.PENDING):
            return Drain(Trend.EMPTY)
        if is_stalled(due, self.alerts, self.flow.is_without_output(now)):
            return Drain(Trend.STALLED)
        drain = self.flow.drain(now)
        if drain.trend in (Trend.EMPTY, Trend.GROWING) or not (why := self._missing_worker(now)):
            return drain
        return Drain(Trend.UNKNOWN, unknown=why)

    def _missing_worker(self, now: float) -> str:
        """Why no task can leave now; "" if a worker is there, or may be."""
        lock, ran = self.readings.lock, self.flow.last_ran
        if lock is not None:
            why = "lock is stuck" if lock.verdict is Verdict.STUCK else ""
            return why or (MISSING_WORKER if self.lacks_worker else "")
        has_run = ran is not None and now - ran <= TREND_WINDOW_SECONDS
        leases = (one.lease for one in self.active)
        has_run |= any(one is None or not 0 < (one.until or 0) <= now for one in leases)
        is_known = self.has_readings and self.place.has_leases and not self.place.server
        is_known &= not self.readings.queue_figures.unknown
        figures = self.readings.queue_figures
        if not is_known or has_run or figures.has_worker or count_lease_workers(self):
            return ""
        return figures.workers_unknown or MISSING_WORKER

    def note_stop(self, now: float) -> None:
        """Note for the trend if it is known that no task can leave now. That no worker runs is no
        stop: a timer may start one for each task."""
        server = self.readings.queue_figures.server
        is_stopped = server is not None and server.is_running is False
        is_stopped |= is_queue_stopped(self.readings.lock, self.readings.tokens)
        self.flow.note_worker_state(now, is_stopped=is_stopped, own_worker=self.worker.pid)

    async def _follow_backlog(self) -> None:
        time, due, earliest = asyncio.get_running_loop().time, 0.0, 0.0
        latest = self.inspector.latest

        def is_due() -> bool:
            has_changed = self.inspector.latest.generation != latest.generation
            return time() >= (earliest if has_changed else due)

        while not self._closed:
            latest, began = self.inspector.latest, time()
            if not latest.is_complete:
                if latest.unavailable:
                    await self._turns.wait(lambda: True)
                else:
                    await asyncio.sleep(FIRST_QUERY_SECONDS)
                continue
            try:
                await self.query_backlog()
            except Unavailable:
                self._backlog = None  # the inspector reports the reason
            earliest = time() + QUERY_COST_FACTOR * (time() - began)
            due = next_turn(began, UNCHANGED_QUERY_SECONDS, self.number)
            await self._turns.wait(is_due)

    async def query_backlog(self) -> None:
        """Query the due tasks and their age. Raises Unavailable: the place was closed."""
        tokens = () if isinstance(self.readings.tokens, str) else self.readings.tokens
        kinds = tuple(bucket.name for bucket in tokens if bucket.name != ALL_KINDS)
        tallies, before = self.inspector.tallies, self._backlog
        self._backlog = await tallies.summarize_backlog(self.clock(), kinds)
        self._kind_samples.append((self.clock(), self._backlog.kinds))
        self._active = await tallies.active_tasks()
        pending = await tallies.count_kinds()
        self.waiting_kinds = {kind: number for kind, (number, _) in pending.items()}
        self.oldest_by_kind = {kind: oldest for kind, (_, oldest) in pending.items()}
        suspects = [k for k in self.waiting_kinds if may_be_blocked(self.place, self.readings, k)]
        self.due_kinds = await tallies.count_due(self.clock(), tuple(suspects))
        trashed = self.inspector.latest.counts.get(State.TRASH, 0)
        if self.place.trash is not None and trashed != self._trashed and self.measuring is None:
            self._trashed = trashed
            self.measuring = self._keep_running(self._measure_trash())
        if self.place.destinations is not None:
            self.destination_tasks = await tallies.ask(
                "destinations", count_destinations, self.destination_tasks, lambda _: True
            )
        mail_backlog = self.readings.sending.backlog
        if isinstance(mail_backlog, MailBacklog):
            tasks = await self.inspector.queries.count(MAIL_TASKS) if mail_backlog.mails else 0
            self.unsent_samples.append((self.clock(), max(0, mail_backlog.mails - tasks)))
        if self._backlog != before:  # else the next read evaluates the rules
            self.evaluate_alerts()

    def kind_growth(self, now: float) -> Mapping[str, Growth]:
        """How the waiting tasks of each kind with a rate limit have grown in the last minutes, and
        those of all kinds."""
        start = max(now - TREND_WINDOW_SECONDS, self.flow.rates_begin)
        samples = [one for one in self._kind_samples if one[0] >= start]
        whole = self.flow.growth(State.PENDING, now)
        growth = {} if whole is None else {ALL_KINDS: whole}
        for kind, number in samples[-1][1].items() if samples else ():
            since, first = next((when, kinds[kind]) for when, kinds in samples if kind in kinds)
            if (seconds := samples[-1][0] - since) >= MIN_TREND_SECONDS:
                growth[kind] = Growth(number - first, seconds)
        return growth

    async def _measure_trash(self) -> None:
        """Measure the trash after its count changed; the first time each of its tasks is read."""
        try:
            self.trash_bytes = await self.inspector.actions.trash_bytes()
            self.evaluate_alerts()
        except Unavailable:
            self._trashed = -1  # measure it again; the inspector reports the reason
        finally:
            self.measuring = None

    async def count_lost_mails(self) -> None:
        """Compare each spooled mail with the tasks, for a command that does not watch their numbers
        for `MAIL_GRACE_SECONDS` seconds. Raises Unavailable: the spool or the tasks cannot be
        read."""
        mail, backlog, payloads = self.place.mail, self.readings.sending.backlog, set[str]()

        def add(tasks: Sequence[Task], done: int, total: int) -> bool:
            payloads.update(task.payload for task in tasks)
            return True

        if mail is not None and isinstance(backlog, MailBacklog) and backlog.mails:
            await self.inspector.queries.export(MAIL_TASKS, add)
            self._lost_mail_count = await asyncio.to_thread(
                mail.find_unqueued, payloads, self.clock()
            )
            self.evaluate_alerts()

    def _lost_mails(self, now: float) -> int:
        """Spooled mails without a task, during the whole last `MAIL_GRACE_SECONDS` seconds."""
        if self._lost_mail_count is not None:
            return self._lost_mail_count
        unsent_counts = [
            more for when, more in self.unsent_samples if abs(now - when) <= MAIL_GRACE_SECONDS
        ]
        watched = now - self.unsent_samples[0][0] >= MAIL_GRACE_SECONDS
        return min(unsent_counts, default=0) if watched else 0

    # Operations

    def start_plan(
        self,
        plan: Plan,
        intent: Intent,
        pace: ReplayPace | None = None,
        allowed: RefusalCheck = always_allowed,
    ) -> RunningOperation:
        """Start a plan in the background; one that undoes a running replay is passed to it."""
        from tui.session import running_operations

        inspector, clock = self.inspector, self.clock
        work = running_operations.start_pull_back(
            running_operations.still_running(self.operations), plan, intent, clock, allowed
        )
        if work is None:
            work = running_operations.start_plan(
                self.place, inspector, clock, plan=plan, intent=intent, pace=pace, allowed=allowed
            )
        self.operations.append(work)
        self._keep_running(self._follow_operation(work))
        return work

    def _keep_running(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start a coroutine; the event loop itself keeps only a weak reference to it."""
        watching = asyncio.get_running_loop().create_task(work)
        self._watching.add(watching)
        watching.add_done_callback(self._watching.discard)
        return watching

    async def _follow_operation(self, work: RunningOperation) -> None:
        """Report its end; close the operation that it resumes as soon as it has begun."""
        from tui.session.running_operations import describe_result

        follows = work.intent.follows
        while work.ended is None and not self._closed:
            if follows and work.op:
                await self._close_resumed(follows, work.op)
                follows = ""
            await work.wait_for_change()
        if self._closed:
            return
        if follows and work.op:
            await self._close_resumed(follows, work.op)
        self.messages.append(describe_result(work))
        await self._refresh_history(always=True)

    async def _close_resumed(self, op: str, by: str) -> None:
        for operation in self.history.operations:
            if operation.op == op:
                try:
                    await self.inspector.history.abandon_operation(operation, f"resumed by {by}")
                except Unavailable as error:
                    self.messages.append(f"{op} is still open: {safe_line(str(error))}")

    @property
    def other_operations(self) -> Sequence[Operation]:
        """The operations that other processes run here; none if the journal was not read lately."""
        history, me = self.history, self.place.who
        if history.error or history.seconds_since_read > MAX_JOURNAL_AGE_SECONDS:
            return ()
        return [
            one
            for one in history.operations
            if one.is_running and (one.intent.who.host, one.intent.who.pid) != (me.host, me.pid)
        ]

    async def _sweep(self) -> None:
        if self.place.sweep is not None and not self._why_not_written():
            trouble = await asyncio.to_thread(self.place.sweep)
            if trouble:
                self.messages.append(safe_line(trouble))

    async def _follow_history(self) -> None:
        time, due = asyncio.get_running_loop().time, 0.0

        def is_due() -> bool:
            return time() >= due and self.history.may_have_changed(self.readings.journal_changed)

        while not self._closed:
            await self._refresh_history()
            is_wanted = self._is_shown or any(one.is_running for one in self.history.operations)
            seconds = JOURNAL_INTERVAL_SECONDS if is_wanted else HIDDEN_READ_SECONDS
            self.history.pause_seconds = seconds
            due = next_turn(time(), seconds, self.number)
            await self._turns.wait(is_due)

    async def _refresh_history(self, *, always: bool = False) -> None:
        try:
            new = await self.history.refresh(always=always)
        except Unavailable:
            return  # closed
        for operation in new:
            unmoved = f"{operation.open_rows:,} of {operation.planned:,} not moved"
            self.messages.append(
                f"{self.name}: {operation_name(operation)} interrupted, {unmoved}; u there shows it"
            )
        if new or always:  # else the next read evaluates the rules
            self.evaluate_alerts()

    # Recording and forecast

    def sample(self) -> RecordedSample:
        """The current sample for the flight recorder."""
        now, waiting = self.clock(), self.backlog or BacklogSummary()
        known = self.backlog is not None and self.inspector.latest.is_complete
        own = RecordedSample(
            now,
            "a console",
            oldest=waiting.oldest if known else None,
            due=waiting.due if known else None,
            died=waiting.oldest_died if known else None,
            rates=self.flow.rates(now),
            alerts=self.alerts,
            tokens=self.readings.tokens,
            finer={
                word: (state, self.inspector.latest.words.get(word, 0))
                for word, state in self.inspector.words.items()
            },
            lease_workers=count_lease_workers(self) if self.place.has_leases else 0,
            gone_failures=sum(self.readings.queue_figures.gone_failures.values()),
            drain=self.estimate_drain(now) if known else None,
            kinds=waiting.kinds if known else None,
        )
        return make_sample(self.alert_inputs(), own)

    def _record(self) -> None:
        """Write one sample per recorder slot, on the disk thread."""
        latest, slot = self.inspector.latest, recorder.slot_number(self.clock())
        # Right after the start less is known than a moment later.
        known = (latest.is_complete and self.backlog is not None) or latest.unavailable
        busy = self._writing is not None and not self._writing.done()
        is_wanted = self._recorder is not None and not self._why_not_written()
        if is_wanted and known and not busy and slot != self._slot:
            self._slot = slot
            self._writing = asyncio.get_running_loop().create_task(self._write(self.sample()))

    async def _write(self, sample: RecordedSample) -> None:
        assert self._recorder is not None
        write = self._recorder.write
        try:
            status = await self._disk_thread.run(lambda: write(sample))
        except Unavailable:
            return  # closed during the write
        # Keep the last message until there is another one.
        if status.message or status.role is not self.recording.role:
            self.recording = status

    def _end_recording(self) -> None:
        if self._recorder is not None:
            self._recorder.close()

    async def recorded_history(
        self, start: float, end: float, last: RecordedSample | None = None
    ) -> RecordedHistory:
        """The recorded history between two times (epoch seconds UTC), of any process; `last` is
        added at its end. Raises UnreadableRecording: nothing was recorded, or it cannot be read;
        Unavailable: the place was closed."""
        recording = self.place.recording
        if recording is None:
            raise UnreadableRecording("no recorded history of this place")
        samples = await self._disk_thread.run(lambda: recorder.read_samples(recording, start, end))
        return RecordedHistory(samples, self.place.name, last)

    async def _load_recorded_flow(self) -> None:
        now = self.clock()
        try:
            history = await self.recorded_history(now - HISTORY_SECONDS, now)
            self.recorded_flow = history.flow_until(now)
            self.flow.precede(history.samples_until(now), self.recorded_flow)
            (self.recorded_output,) = history.series(now, HISTORY_SECONDS, 1).outward
        except (UnreadableRecording, Unavailable):
            return  # start without recorded data

    def forecasts(self) -> tuple[Forecast, ...]:
        """Forecasts of what will need attention; none until the tasks are counted."""
        latest, waiting, now = self.inspector.latest, self.backlog, self.clock()
        if not latest.is_complete or latest.unavailable or waiting is None:
            return ()
        drain, growth = self.estimate_drain(now), self.flow.growth(State.DEAD, now)
        if drain.trend is Trend.UNKNOWN and not drain.unknown:
            drain = self.recorded_flow.drain(now)
        if growth is None or growth.seconds < RATE_WINDOW_SECONDS:
            growth = self.recorded_flow.growth(State.DEAD, now) or growth
        states, tokens = self.inspector.states, self.readings.tokens
        died, kinds = waiting.oldest_died, waiting.kinds
        rates = self.flow.rates(now, HISTORY_SECONDS)
        known = ForecastInputs(
            latest.counts,
            states,
            drain,
            growth=growth,
            died=died,
            tokens=tokens,
            kinds=kinds,
            kind_growth=self.kind_growth(now),
            has_arrivals=rates is not None and rates.inward > 0,
            figures=self.readings.kinds or (),
        )
        return make_forecasts(known, self.place.alerts, self.place.retention_days, now)

    def evaluate_alerts(self) -> None:
        """Evaluate the alert rules again."""
        self._evaluated = self.inspector.latest.generation
        # Until lock, metrics and logs were read, missing values are no alarm.
        if self.has_readings or self.find_silence():
            self.alerts = find_alerts(self.alert_inputs(), self.clock(), self.place.alerts)

    def alert_inputs(self) -> AlertInputs:
        """Inputs of the alert rules."""
        latest, readings, now = self.inspector.latest, self.readings, self.clock()
        clusters, counted = self.dead_clusters
        waiting = self.backlog or BacklogSummary()
        recent_counts = [
            counts for when, counts in self.count_samples if abs(now - when) <= ACTIVE_SECONDS
        ]
        tasks = TaskFacts(
            states=self.inspector.states,
            counts=latest.counts,
            complete=latest.is_counted,
            is_scanned=latest.is_complete,
            unavailable=latest.unavailable,
            problems=latest.problems,
            oldest=waiting.oldest,
            due=waiting.due,
            oldest_due=waiting.oldest_due,
            largest_share=waiting.largest,
            is_sample=False,
            due_kinds=self.due_kinds,
            trash_bytes=self.trash_bytes,
            refusals={edge.refusal for edge in self.inspector.edges.values()},
        )
        return make_alert_inputs(
            self.place,
            readings,
            tasks,
            active=min((counts.get(State.ACTIVE, 0) for counts in recent_counts), default=None),
            dead_growth=self.flow.growth(State.DEAD, now),
            dead_clusters=None if now - counted > MAX_CLUSTERS_AGE_SECONDS else clusters,
            counted=(*self.count_samples, *filter(None, [self.counted_before_read])),
            last_run=max(filter(None, (readings.last_run, self.flow.last_ran)), default=None),
            free_since=self.free_since,
            free_grace=self.free_grace,
            unfinished=tuple(map(alert_input, self.history.interrupted)),
            orphaned_mails=0 if latest.unavailable else self._lost_mails(now),
            destinations=seen_destinations(self),
        )

    @property
    def noted_ids(self) -> frozenset[str]:
        """Ids of the tasks with a note, as of the last read."""
        return frozenset(self.readings.notes)

    async def add_note(self, ident: str, text: str, made: float) -> None:
        """Write a note on a task created at `made` as the current operator; an empty text removes
        its notes. Raises Unavailable: it cannot be written."""
        notes, who = self.place.notes, self.place.who.name
        if notes is None:
            raise Unavailable("this place has no notes")

        def add() -> NotesById:
            notes.add(ident, text, who, made)
            return notes.read_all()

        written = await asyncio.to_thread(add)
        self._readings = self._readings._replace(notes=written)  # of what was read meanwhile

    async def change_routes(self, change: Callable[[], str]) -> str:
        """Run `change` on the mail routes and read them again; return what `change` returns. Raises
        Unavailable: it cannot be changed."""

        def act() -> tuple[str, MailRoutes | None]:
            return change(), read_routes(self.place)

        answer, routes = await asyncio.to_thread(act)
        sending = mark_explained(self._readings.sending, routes)
        self._readings = self._readings._replace(routes=routes, sending=sending)
        self.evaluate_alerts()
        return answer

    def events(self) -> tuple[TaskEvent, ...]:
        """Task events of the last hour from the logs, as far as read."""
        return self.recent_events.events

    async def wait_for_readings(self) -> None:
        """Wait until lock, metrics and logs were read again."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        await waiter

    async def close(self, keep_worker: bool) -> None:
        """Close everything; stop a worker that was started here unless `keep_worker`."""
        if self._closed:
            return
        self._closed = True
        self._turns.end()
        self.recovery.detach()
        self.test_mail.detach()
        await asyncio.gather(*(work.detach() for work in self.operations if work.ended is None))
        await asyncio.to_thread(self.worker.detach if keep_worker else self.worker.stop_and_wait)
        await self.inspector.close()
        await self._disk_thread.close(CLOSE_TIMEOUT_SECONDS)
        await self._watch_thread.close(CLOSE_TIMEOUT_SECONDS)


class _Turns:
    """What waits for a turn of a place."""

    def __init__(self) -> None:
        self._waiting: list[tuple[Callable[[], bool], asyncio.Future[None]]] = []
        self._has_ended = False

    async def wait(self, is_due: Callable[[], bool]) -> None:
        """Wait for a turn at which something is due, or for the end."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if not self._has_ended:
            self._waiting.append((is_due, turn))
            await turn

    def take(self) -> None:
        """Start all that is due."""
        due = [one for one in self._waiting if self._has_ended or one[0]()]
        self._waiting = [one for one in self._waiting if one not in due]
        _settle(turn for _, turn in due)

    def end(self) -> None:
        """Start all: it sees that the place is closed."""
        self._has_ended = True
        self.take()


def _settle(waiters: Iterable[asyncio.Future[None]]) -> None:
    for waiter in waiters:
        if not waiter.done():
            waiter.set_result(None)


async def follow_places(
    sessions: Sequence[PlaceSession],
    period: Callable[[], float] = lambda: 1.0,
    headstart: float = 0.0,
    is_shown: Callable[[PlaceSession], bool] = lambda session: True,
) -> None:
    """Read lock, metrics and logs of places every `period()` seconds until they are closed; those
    of a place that is not shown each `HIDDEN_READ_SECONDS`. The inspectors follow the tasks on
    their own threads. The first tasks of a place get `headstart` seconds before anything else of it
    is read."""
    turns = asyncio.create_task(_give_turns(sessions, period, is_shown))
    try:
        await asyncio.gather(*(session.follow(headstart) for session in sessions))
    finally:
        turns.cancel()


async def _give_turns(
    sessions: Sequence[PlaceSession],
    period: Callable[[], float],
    is_shown: Callable[[PlaceSession], bool],
) -> None:
    """Give each place a turn in `period()` seconds; one timer for all costs fewer wake-ups."""
    loop = asyncio.get_running_loop()
    for session in sessions:
        session.take_turn(is_shown=is_shown(session))
    while True:
        seconds = period()
        began = (loop.time() // seconds + 1) * seconds
        for turn in range(TURNS_PER_SECOND):
            await asyncio.sleep(began + turn / TURNS_PER_SECOND * seconds - loop.time())
            for session in sessions:
                if session.number % TURNS_PER_SECOND == turn:
                    session.take_turn(is_shown=is_shown(session))


def next_turn(now: float, period: float, number: int) -> float:
    """Return the next time for a place to do what it does once in `period` seconds, on the clock of
    the event loop: one of `TURNS_PER_SECOND` turns in the first second of a period. Reads one after
    the other find their code in the processor's cache, and the screen changes once; but the threads
    of places that read in the same turn wait for each other."""
    return now + period - (now - number % TURNS_PER_SECOND / TURNS_PER_SECOND) % period


def without_time(change: IndexChanged) -> IndexChanged:
    """The content of a store, with why it cannot be read, but not for how long: what is painted of
    it stays true, and the top line counts the seconds."""
    is_silent = change.unavailable.startswith(SILENT)
    return change._replace(unavailable=NO_ANSWER) if is_silent else change


def seen_destinations(session: PlaceSession) -> tuple[SeenDestination, ...]:
    """The destinations of a place with their tasks, what needs an operator first."""
    reading, tasks = session.readings.destinations, session.destination_tasks
    if session.joined[0] is not reading or session.joined[1] is not tasks:
        session.joined = reading, tasks, watch.join(reading, tasks)
    return session.joined[2]


def _note_free_lock(session: PlaceSession) -> None:
    ran = session.flow.last_ran
    has_run = ran is not None and 0 <= session.clock() - ran <= RATE_WINDOW_SECONDS
    is_free = session.readings.is_without_worker and session.worker.pid is None
    if not is_free or (has_run and session.readings.lock is None):  # it may be on another host
        session.free_since = None
    elif session.free_since is None:
        session.free_since = session.clock()


def _add_counts(session: PlaceSession) -> None:
    latest, now = session.inspector.latest, session.clock()
    if latest.is_complete and not latest.unavailable and not session.is_replaced:
        session.count_samples.append((now, latest.counts))
        figures = session.readings.queue_figures
        failed = None if figures.unknown else figures.failed
        session.flow.add(
            now, latest.appeared, latest.departed, latest.counts, failed, died=latest.died
        )


def lease_workers(session: PlaceSession) -> tuple[int, ...]:
    """PIDs of the workers of a place without a lock: those that its store knows, and our own."""
    console_pids = () if session.worker.pid is None else (session.worker.pid,)
    return tuple(sorted({*session.readings.queue_figures.workers, *console_pids}))


def count_lease_workers(session: PlaceSession) -> int:
    """The workers of a place without a lock: those that a server lists, else the known PIDs; a
    server that delivers by itself is none."""
    connected = len(session.readings.queue_figures.connected)
    return connected or (0 if session.place.server else len(lease_workers(session)))


def describe_server(session: PlaceSession, now: float) -> str:
    """What delivers at a place and whether it runs; "" if a worker can be started there."""
    latest = session.inspector.latest
    waiting = sum(latest.counts.get(state, 0) for state in (State.PENDING, State.ACTIVE))
    known = waiting if latest.is_counted else None
    return session.place.describe_server(session.readings.queue_figures, known, now)


def count_totals(sessions: Sequence[PlaceSession], now: float) -> Totals:
    """The totals of several places at `now` (epoch seconds UTC)."""
    known = [session for session in sessions if not session.inspector.latest.unavailable]
    workers = sum(count_lease_workers(session) for session in sessions if session.place.has_leases)
    locks = [session.readings.lock for session in sessions]
    unread = tuple(
        (session.name, session.find_silence() or "cannot be read")
        for session in sessions
        if session not in known
    )
    totals = sum_totals(
        [session.inspector.latest.counts for session in known],
        locks,
        [session.flow.rates(now) for session in known],
        workers,
        [session.inspector.states for session in known],
    )
    is_partial = not all(session.inspector.latest.is_counted for session in sessions)
    servers = (session.readings.queue_figures.server for session in sessions)
    stopped = sum(one is not None and one.is_running is False for one in servers)
    return totals._replace(
        places=len(sessions), stopped=stopped, is_partial=is_partial, unread=unread
    )


def sum_totals(
    counts: Sequence[Mapping[State, int]],
    locks: Sequence[LockEvidence | None],
    rates: Sequence[Rates | None],
    without_lock: int,
    states: Sequence[Mapping[State, str]],
) -> Totals:
    """The totals from one value of each place; `without_lock`: workers of places without a lock."""
    dead_words = {words[State.DEAD] for words in states if State.DEAD in words}
    verdicts = [lock.verdict for lock in locks if lock is not None]
    stuck = verdicts.count(Verdict.STUCK)
    workers = verdicts.count(Verdict.HELD) + stuck + without_lock
    known = [each for each in rates if each is not None]
    return Totals(
        sum(each.get(State.DEAD, 0) for each in counts),
        stuck,
        workers,
        places=len(counts),
        pending=sum(each.get(State.PENDING, 0) for each in counts),
        rates=Rates(*map(sum, zip(*known, strict=True))) if len(known) == len(rates) > 0 else None,
        dead_word=safe_line(dead_words.pop())
        if len(dead_words) == 1 and dead_words != {"dlq"}
        else "dead",
    )
