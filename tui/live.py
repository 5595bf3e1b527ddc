"""A place that is being followed: its tasks, its lock, its figures, its logs, on screen or not."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping

from engine import forecast, recorder
from engine.alerts import Alert, Sight, alerts
from engine.events import Event
from engine.flow import LATELY, SPAN, Course, Flow
from engine.forecast import Forecast
from engine.inspector import Inspector
from engine.lane import Lane
from engine.limits import WHOLE
from engine.model import State
from engine.recorder import Recorder, Role, Told, Unreadable
from engine.recording import Sample, sample
from engine.rewind import Tape
from engine.store import Unavailable
from engine.waiting import Standing
from tui.child import Worker
from tui.place import Place
from tui.recovery import Recovery
from tui.watch import Signs, Watch

COUNTED = 300
"""Counts that are remembered, one a second: metrics are compared with those of their own time."""

AT_WORK = 5.0
"""Seconds for which a task must have been in work to count as such: a run that just began or ended
has its task there while its lock is free."""

SOON, OFTEN, SELDOM = 0.1, 1.0, 5.0
"""Seconds after which it is asked again what is due: before it is known what there is, when
something has changed, and when not."""

SPARING = 20
"""The same, in times of what asking took: how long that takes grows with what waits."""

PATIENCE = 2.0
"""Seconds for which the end of a recording is waited for when the place is closed."""


class Live:
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
        self.inspector = Inspector(place.open, clock=clock, journal=place.journal)
        self.worker = Worker(place.work)
        self.recovery = Recovery(place.recover)
        self.signs = Signs()
        self.counted: deque[tuple[float, Mapping[State, int]]] = deque(maxlen=COUNTED)
        self.flow = Flow()
        self.standing: Standing | None = None
        """What waits, and for how long; None until that is known."""
        self.alerts: tuple[Alert, ...] = ()
        """What deserves a look, the most urgent first."""
        self.recording = Told(Role.IDLE, "nothing is recorded from here")
        """How the recording goes on."""
        self.past = Flow()
        """What was recorded of the minutes before it was opened."""
        self.looked = False
        """Whether lock, figures and logs were looked at once."""
        self._watch = Watch(place, clock)
        self._closed = False
        self._waiters: list[asyncio.Future[None]] = []
        self._records = records and place.recording is not None
        self._recorder = None if place.recording is None else Recorder(place.recording)
        self._disk = Lane(f"recorder {number}", self._end_recording)
        self._slot = -1
        self._writing: asyncio.Task[None] | None = None

    async def follow(self, period: Callable[[], float] = lambda: 1.0) -> None:
        """Look at everything beside the tasks each `period` seconds, until closed.

        The tasks are followed by the inspector, on its own threads.
        """
        await self.inspector.start()
        await asyncio.gather(self._follow(period), self._ask_what_waits(), self._look_back())

    async def _follow(self, period: Callable[[], float]) -> None:
        while not self._closed:
            self.signs = await asyncio.to_thread(self._watch.look)
            latest = self.inspector.latest
            if latest.complete:
                self.counted.append((self.clock(), latest.counts))
                self.flow.add(self.clock(), latest.came, latest.left, latest.counts)
            self.looked = True
            self.judge()
            self._record()
            self._tell()
            await asyncio.sleep(period())

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
        self.judge()

    # What was, and what is to be expected

    def sample(self) -> Sample:
        """What is to be written down of it now."""
        now, waiting = self.clock(), self.standing or Standing()
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
        known = latest.complete or latest.unavailable
        busy = self._writing is not None and not self._writing.done()
        if self._records and known and not busy and slot != self._slot:
            self._slot = slot
            self._writing = asyncio.get_running_loop().create_task(self._write(self.sample()))

    async def _write(self, seen: Sample) -> None:
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

    async def tape(self, start: float, end: float) -> Tape:
        """What was written down between two moments (epoch seconds UTC), whoever did it.

        Raises:
            Unreadable: nothing was, or it cannot be read; the message says why.
            Unavailable: it is closed.
        """
        spot = self.place.recording
        if spot is None:
            raise Unreadable("nothing is recorded of this place")
        found = await self._disk.run(lambda: recorder.recorded(spot, start, end))
        return Tape(found, self.place.name)

    async def _look_back(self) -> None:
        now = self.clock()
        try:
            self.past = (await self.tape(now - SPAN, now)).lately(now)
        except (Unreadable, Unavailable):
            return  # it begins with what is seen from now on

    def forecasts(self) -> tuple[Forecast, ...]:
        """What is to be expected there; nothing until it was counted."""
        latest, waiting, now = self.inspector.latest, self.standing, self.clock()
        if not latest.complete or latest.unavailable or waiting is None:
            return ()
        dead, word = latest.counts.get(State.DEAD, 0), self.inspector.states.get(State.DEAD, "dead")
        pace, growth = self.flow.drain(now), self.flow.growth(State.DEAD, now)
        if pace.course is Course.UNKNOWN:
            pace = self.past.drain(now)
        if growth is None or growth.seconds < LATELY:
            growth = self.past.growth(State.DEAD, now)
        pending = latest.counts.get(State.PENDING, 0)
        return (
            forecast.drained(pending, pace, self.signs.tokens, waiting.kinds),
            forecast.filled(dead, self.place.alerts.dlq, growth, word),
            forecast.retired(dead, waiting.oldest_died, self.place.retention_days, now, word),
        )

    def judge(self) -> None:
        """Decide anew what deserves a look."""
        # Before lock, figures and logs were looked at, what is missing from them is no alarm.
        if self.looked:
            self.alerts = alerts(self.sight(), self.clock(), self.place.alerts)

    def sight(self) -> Sight:
        """What is known of it now."""
        latest, signs, now = self.inspector.latest, self.signs, self.clock()
        waiting = self.standing or Standing()
        lately = [counts for when, counts in self.counted if abs(now - when) <= AT_WORK]
        return Sight(
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
            signs.sending.transports,
            signs.ran,
        )

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
        await asyncio.to_thread(self.worker.leave if keep_worker else self.worker.finish)
        await self.inspector.close()
        await self._disk.close(PATIENCE)
        await asyncio.to_thread(self._watch.close)
