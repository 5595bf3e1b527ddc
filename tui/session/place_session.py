"""A place that is being followed: its tasks, its lock, its figures, its logs, on screen or not."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from engine.index import filter_language
from engine.index.backlog import BacklogSummary
from engine.index.schema import Query
from engine.live.call_thread import CallThread
from engine.live.inspector import Inspector
from engine.locks.token_buckets import WHOLE
from engine.logs.task_events import Event
from engine.model import State, Verdict
from engine.monitor import recorder
from engine.monitor.alerts import Alert, AlertInputs, alerts, is_stalled, lacks_worker
from engine.monitor.forecast import Basis, Forecast, expected
from engine.monitor.recorded_history import RecordedHistory
from engine.monitor.recorder import Recorder, RecorderStatus, Role, UnreadableRecording
from engine.monitor.sample_codec import RecordedSample, sample
from engine.monitor.throughput import LATELY, SPAN, Drain, Flow, Trend
from engine.monitor.transport_health import MailBacklog, Routes, settled
from engine.operations.execute import Allowed, freely
from engine.operations.journal import Intent
from engine.operations.notes import Noted
from engine.operations.plans import Plan
from engine.policy import at
from engine.replay.settings import ReplayPace
from engine.store import Unavailable
from engine.text.safe import shown
from tui.session.history import History, name_of, unfinished
from tui.session.place import NO_WORKER, Place
from tui.session.place_watcher import PlaceWatcher, Signs, routes_of
from tui.session.recovery_process import RecoveryProcess
from tui.session.test_mail_process import Trial
from tui.session.worker_process import WorkerProcess

if TYPE_CHECKING:  # nothing is carried out yet when the console opens
    from tui.session.running_operations import RunningOperation

TO_PENDING = frozenset({"retry", "promote", "release"})
"""Verbs after which tasks wait for a worker."""

COUNTED = 300
"""Counts that are remembered, one a second: metrics are compared with those of their own time."""

MAIL = Query(filter=filter_language.parse("kind=mail_send"))
"""The tasks that send mail, of whatever state."""

ON_ITS_WAY = 30.0
"""Seconds for which there must have been more spooled mails than tasks that send them: whoever has
just spooled a mail queues the task for it, and whoever has just sent one removes both."""

AT_WORK = 5.0
"""Seconds for which a task must have been in work to count as such: a run that just began or ended
has its task there while its lock is free."""

SOON, OFTEN, SELDOM = 0.1, 1.0, 5.0
"""Seconds after which it is asked again what is due: before it is known what there is, when
something has changed, and when not."""

SPARING = 20
"""The same, in times of what asking took: how long that takes grows with what waits."""

FIRST = 1.0
"""Seconds for which the first tasks are waited for, where they come before all else."""

LOOKS = 2.0
"""Seconds between two looks at whether something new stands in the journal."""

PATIENCE = 2.0
"""Seconds for which the end of a recording is waited for when the place is closed."""


class PlaceSession:
    """What all screens on one place share; owned by the console, and closed by it."""

    def __init__(
        self,
        place: Place,
        clock: Callable[[], float],
        number: int = 1,
        *,
        records: bool = False,
    ) -> None:
        """`number` is which of the console's places this one is, from 1; with `records` it is
        written down how it goes there, unless somebody else does."""
        self.place, self.clock, self.number = place, clock, number
        self.begun = clock()
        """When it was opened, epoch seconds UTC."""
        quota = None if place.trash is None else place.trash.quota
        self.inspector = Inspector(place.open, clock=clock, journal=place.journal, quota=quota)
        self.worker = WorkerProcess(place.work)
        self.recovery = RecoveryProcess(place.recover)
        self.trial = Trial(() if place.mail is None else place.mail.test)
        self.works: list[RunningOperation] = []
        """What this console carries out there, or did, the latest last."""
        self.history = History(place, self.inspector, clock, settles=records)
        """What was done there, by whomever."""
        self.news: deque[str] = deque()
        """What the operator is to be told of, whatever screen is shown."""
        self.signs = Signs()
        self.counted: deque[tuple[float, Mapping[State, int]]] = deque(maxlen=COUNTED)
        self.flow = Flow()
        self.unsent: deque[tuple[float, int]] = deque([(clock(), 0)], maxlen=COUNTED)
        """By how many there were more spooled mails than tasks that send them, at which times."""
        self.standing: BacklogSummary | None = None
        """What waits, and for how long; None until that is known."""
        self.alerts: tuple[Alert, ...] = ()
        """What deserves a look, the most urgent first."""
        self.recording = RecorderStatus(
            Role.IDLE, "" if records else "read only: nothing is recorded here"
        )
        """How the recording goes on."""
        self.past = Flow()
        """What was recorded of the minutes before it was opened."""
        self.free_since: float | None = None
        """Since when its lock has been free, epoch seconds UTC; None while it is not."""
        self.looked = False
        """Whether lock, figures and logs were looked at once."""
        self._watch = PlaceWatcher(place, clock)
        self._looking = CallThread(f"watch {number}", self._watch.close)
        self._closed = False
        self._watching: set[asyncio.Task[None]] = set()
        self._waiters: list[asyncio.Future[None]] = []
        self._records = records and place.recording is not None
        self._sweeps = records and place.sweep is not None
        self._recorder = None if place.recording is None else Recorder(place.recording)
        self._disk = CallThread(f"recorder {number}", self._end_recording)
        self._slot = -1
        self._writing: asyncio.Task[None] | None = None

    @property
    def is_told_of(self) -> bool:
        """Whether there is anything to be seen or done about the queue as a whole."""
        return bool(self.inspector.controls) or self.place.facts is not None

    @property
    def is_operating(self) -> bool:
        """Whether an operation, a lock recovery or a test mail of this console runs there."""
        running = self.recovery.running or self.trial.running
        return running or any(work.ended is None for work in self.works)

    async def follow(
        self, period: Callable[[], float] = lambda: 1.0, headstart: float = 0.0
    ) -> None:
        """Look at everything beside the tasks each `period` seconds, until closed.

        The tasks are followed by the inspector, on its own threads; the first of them have so many
        seconds' headstart before anything else is looked at.
        """
        await self.inspector.start()
        if headstart:
            await self._let_tasks_come()
            await asyncio.sleep(headstart)
        await asyncio.gather(
            *(self._follow(period), self._ask_what_waits(), self._look_back()),
            *(self._follow_history(), self._sweep()),
        )

    async def _let_tasks_come(self) -> None:
        """Wait until there are some, or none can be had, or as long as is worth while."""
        with suppress(TimeoutError, Unavailable):  # or closed already: then the loops end at once
            async with asyncio.timeout(FIRST):
                latest = self.inspector.latest
                while not (latest.complete or latest.unavailable or any(latest.counts.values())):
                    latest = await self.inspector.changed(latest.generation)

    async def _follow(self, period: Callable[[], float]) -> None:
        while not self._closed:
            try:
                self.signs = await self._looking.run(self._watch.look)
            except Unavailable:
                if not self._closed:
                    raise
                return  # before its turn came
            self._note_lock()
            latest = self.inspector.latest
            if latest.complete:
                self.counted.append((self.clock(), latest.counts))
                self.flow.add(self.clock(), latest.came, latest.left, latest.counts)
            self.looked = True
            self.judge()
            self._record()
            self._tell()
            await asyncio.sleep(period())

    def _note_lock(self) -> None:
        lock = self.signs.lock
        if lock is None or lock.verdict is not Verdict.FREE:
            self.free_since = None
        elif self.free_since is None:
            self.free_since = self.clock()

    @property
    def lacks_worker(self) -> bool:
        """Whether nothing works this place now, as far as its lock and its runs show."""
        ours = self.worker.pid is not None
        return not ours and lacks_worker(self.sight(), self.clock(), self.place.alerts, grace=0.0)

    def worker_hint(self, verb: str) -> str:
        """The next step after that verb moved tasks to pending; "" where a worker takes them."""
        return NO_WORKER if verb in TO_PENDING and self.lacks_worker else ""

    def drain(self, now: float) -> Drain:
        """How long until nothing waits; `STALLED` where due tasks wait and none is done."""
        due = 0 if self.standing is None else self.standing.due
        if due and (is_stalled(self.alerts) or self.flow.is_dry(now)):
            return Drain(Trend.STALLED)
        return self.flow.drain(now)

    async def _ask_what_waits(self) -> None:
        loop = asyncio.get_running_loop()
        generation, asked = -1, float("-inf")
        while not self._closed:
            latest, began = self.inspector.latest, loop.time()
            if latest.complete and (latest.generation != generation or began - asked >= SELDOM):
                try:
                    await self.count_what_waits()
                except Unavailable:
                    self.standing = None  # its counts say why
                generation, asked = latest.generation, began
            rest = max(OFTEN, SPARING * (loop.time() - began)) if latest.complete else SOON
            await asyncio.sleep(rest)

    async def count_what_waits(self) -> None:
        """Find out what waits now, and for how long.

        Raises:
            Unavailable: it is not open any more.
        """
        tokens = () if isinstance(self.signs.tokens, str) else self.signs.tokens
        kinds = tuple(left.name for left in tokens if left.name != WHOLE)
        self.standing = await self.inspector.standing(self.clock(), kinds)
        heap = self.signs.sending.heap
        if isinstance(heap, MailBacklog):
            tasks = await self.inspector.count(MAIL) if heap.mails else 0
            self.unsent.append((self.clock(), max(0, heap.mails - tasks)))
        self.judge()

    def _lost(self, now: float) -> int:
        """Spooled mails that no task sends: so many there were all the time."""
        lately = [more for when, more in self.unsent if abs(now - when) <= ON_ITS_WAY]
        watched = now - self.unsent[0][0] >= ON_ITS_WAY
        return min(lately, default=0) if watched else 0

    # What is done there

    def begin(
        self, plan: Plan, intent: Intent, pace: ReplayPace | None = None, allowed: Allowed = freely
    ) -> RunningOperation:
        """Carry a plan out, on another thread; it goes on whatever screen is shown.

        What a replay sent is taken back by that replay itself, while it runs.
        """
        from tui.session import running_operations

        inspector, clock = self.inspector, self.clock
        work = running_operations.pull_back(
            running_operations.running(self.works), plan, intent, clock, allowed
        )
        if work is None:
            work = running_operations.begin(
                self.place, inspector, clock, plan, intent, pace, allowed
            )
        self.works.append(work)
        watching = asyncio.get_running_loop().create_task(self._watch_over(work))
        self._watching.add(watching)
        watching.add_done_callback(self._watching.discard)
        return work

    async def _watch_over(self, work: RunningOperation) -> None:
        """Say when it is over; what it goes on with is over as soon as it has begun."""
        from tui.session.running_operations import told

        follows = work.intent.follows
        while work.ended is None and not self._closed:
            if follows and work.op:
                await self._let_be_over(follows, work.op)
                follows = ""
            await work.news()
        if self._closed:
            return
        if follows and work.op:
            await self._let_be_over(follows, work.op)
        self.news.append(told(work))
        await self._look_at_history(always=True)

    async def _let_be_over(self, op: str, by: str) -> None:
        for operation in self.history.operations:
            if operation.op == op:
                try:
                    await self.inspector.drop(operation, f"{by} goes on with it")
                except Unavailable as error:
                    self.news.append(f"{op} is still open: {shown(str(error))}")

    async def _sweep(self) -> None:
        """Delete for good what has lain in the trash for too long; seldom there is anything."""
        if self._sweeps and self.place.sweep is not None:
            trouble = await asyncio.to_thread(self.place.sweep)
            if trouble:
                self.news.append(shown(trouble))

    async def _follow_history(self) -> None:
        while not self._closed:
            await self._look_at_history()
            await asyncio.sleep(LOOKS)

    async def _look_at_history(self, *, always: bool = False) -> None:
        try:
            new = await self.history.look(always=always)
        except Unavailable:
            return  # it is closed
        for operation in new:
            who = shown(operation.intent.who.name)
            left = f"{operation.open:,} of {operation.planned:,} not moved; u shows it"
            began = at(operation.when)[11:16]
            self.news.append(f"{name_of(operation)} of {began} by {who} was interrupted: {left}")
        if new or always:  # else each look at the rest judges soon enough
            self.judge()

    # What was, and what is to be expected

    def sample(self) -> RecordedSample:
        """What is to be written down of it now."""
        now, waiting = self.clock(), self.standing or BacklogSummary()
        known = self.standing is not None and self.inspector.latest.complete
        return sample(
            self.sight(),
            now,
            "a console",
            oldest=waiting.oldest if known else None,
            due=waiting.due if known else None,
            died=waiting.oldest_died if known else None,
            rates=self.flow.rates(now),
            alerts=self.alerts,
            tokens=self.signs.tokens,
        )

    def _record(self) -> None:
        """Have it written down how it goes, once in each period; waits for no disk."""
        latest, slot = self.inspector.latest, recorder.slot_of(self.clock())
        # The first moment after a start would else say less than is known a moment later.
        known = (latest.complete and self.standing is not None) or latest.unavailable
        busy = self._writing is not None and not self._writing.done()
        if self._records and known and not busy and slot != self._slot:
            self._slot = slot
            self._writing = asyncio.get_running_loop().create_task(self._write(self.sample()))

    async def _write(self, seen: RecordedSample) -> None:
        assert self._recorder is not None
        write = self._recorder.write
        try:
            told = await self._disk.run(lambda: write(seen))
        except Unavailable:
            return  # closed meanwhile
        # What was renewed stays said until something else is.
        if told.words or told.role is not self.recording.role:
            self.recording = told

    def _end_recording(self) -> None:
        if self._recorder is not None:
            self._recorder.close()

    async def tape(
        self, start: float, end: float, last: RecordedSample | None = None
    ) -> RecordedHistory:
        """What was written down between two moments (epoch seconds UTC), whoever did it; `last` is
        what is known besides.

        Raises:
            Unreadable: nothing was, or it cannot be read; the message says why.
            Unavailable: it is closed.
        """
        spot = self.place.recording
        if spot is None:
            raise UnreadableRecording("nothing is recorded of this place")
        found = await self._disk.run(lambda: recorder.recorded(spot, start, end))
        return RecordedHistory(found, self.place.name, last)

    async def _look_back(self) -> None:
        now = self.clock()
        try:
            self.past = (await self.tape(now - SPAN, now)).lately(now)
        except (UnreadableRecording, Unavailable):
            return  # it begins with what is seen from now on

    def forecasts(self) -> tuple[Forecast, ...]:
        """What is to be expected there; nothing until it was counted."""
        latest, waiting, now = self.inspector.latest, self.standing, self.clock()
        if not latest.complete or latest.unavailable or waiting is None:
            return ()
        pace, growth = self.drain(now), self.flow.growth(State.DEAD, now)
        if pace.course is Trend.UNKNOWN:
            pace = self.past.drain(now)
        if growth is None or growth.seconds < LATELY:
            growth = self.past.growth(State.DEAD, now) or growth
        states, tokens = self.inspector.states, self.signs.tokens
        died, kinds = waiting.oldest_died, waiting.kinds
        known = Basis(latest.counts, states, pace, growth, died, tokens, kinds)
        return expected(known, self.place.alerts, self.place.retention_days, now)

    def judge(self) -> None:
        """Decide anew what deserves a look."""
        # Before lock, figures and logs were looked at, what is missing from them is no alarm.
        if self.looked:
            self.alerts = alerts(self.sight(), self.clock(), self.place.alerts)

    def sight(self) -> AlertInputs:
        """What is known of it now."""
        latest, signs, now = self.inspector.latest, self.signs, self.clock()
        waiting = self.standing or BacklogSummary()
        lately = [counts for when, counts in self.counted if abs(now - when) <= AT_WORK]
        return AlertInputs(
            self.place.name,
            self.inspector.states,
            latest.counts,
            latest.complete,
            latest.unavailable,
            latest.problems,
            signs.lock,
            min((counts.get(State.ACTIVE, 0) for counts in lately), default=None),
            waiting.oldest,
            waiting.due,
            waiting.oldest_due,
            self.flow.grown(State.DEAD, now),
            signs.queue,
            tuple(self.counted),
            tuple(way for way in signs.sending.transports if way.spoken_of),
            signs.ran,
            signs.runs,
            self.free_since,
            tuple(map(unfinished, self.history.interrupted)),
            signs.routes,
            self._lost(now),
            signs.facts.warnings,
        )

    @property
    def noted(self) -> frozenset[str]:
        """Ids of the tasks that have a note, as of the last look."""
        return frozenset(self.signs.notes)

    async def note(self, ident: str, text: str) -> None:
        """Write a note on a task down, in our name; an empty one takes its notes away.

        Raises:
            Unavailable: it cannot be written.
        """
        notes, who = self.place.notes, self.place.who.name
        if notes is None:
            raise Unavailable("no notes are kept for this place")

        def add() -> Noted:
            notes.add(ident, text, who)
            return notes.all()

        self.signs = self.signs._replace(notes=await asyncio.to_thread(add))

    async def reroute(self, change: Callable[[], str]) -> str:
        """Change by which way mail goes there, and know at once how it goes then; answers with
        what `change` does.

        Raises:
            Unavailable: it cannot be changed.
        """

        def act() -> tuple[str, Routes | None]:
            return change(), routes_of(self.place)

        said, routes = await asyncio.to_thread(act)
        sending = settled(self.signs.sending, routes)
        self.signs = self.signs._replace(routes=routes, sending=sending)
        self.judge()
        return said

    def events(self) -> tuple[Event, ...]:
        """What the logs of the last hour say happened to tasks, as far as they were read."""
        return self._watch.doings.events

    async def next_look(self) -> None:
        """Return when lock, figures and logs were looked at again."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        await waiter

    def _tell(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def close(self, keep_worker: bool) -> None:
        """Let go of everything; a worker that was started here is told to stop unless kept."""
        if self._closed:
            return
        self._closed = True
        self.recovery.leave()
        self.trial.leave()
        await asyncio.gather(*(work.leave() for work in self.works if work.ended is None))
        await asyncio.to_thread(self.worker.leave if keep_worker else self.worker.finish)
        await self.inspector.close()
        await self._disk.close(PATIENCE)
        await self._looking.close(PATIENCE)
