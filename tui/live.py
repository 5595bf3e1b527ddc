"""A place that is being followed: its tasks, its lock, its figures, its logs, on screen or not."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping

from engine.alerts import Alert, Sight, alerts
from engine.events import Event
from engine.flow import Flow
from engine.inspector import Inspector
from engine.model import State
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


class Live:
    """What all screens on one place share; owned by the console, and closed by it."""

    def __init__(self, place: Place, clock: Callable[[], float], number: int = 1) -> None:
        """`number` is which of the console's places this one is, from 1."""
        self.place, self.clock, self.number = place, clock, number
        self.begun = clock()
        """When it was opened, epoch seconds UTC."""
        self.inspector = Inspector(place.open, clock=clock)
        self.worker = Worker(place.work)
        self.recovery = Recovery(place.recover)
        self.signs = Signs()
        self.counted: deque[tuple[float, Mapping[State, int]]] = deque(maxlen=COUNTED)
        self.flow = Flow()
        self.standing: Standing | None = None
        """What waits, and for how long; None until that is known."""
        self.alerts: tuple[Alert, ...] = ()
        """What deserves a look, the most urgent first."""
        self.looked = False
        """Whether lock, figures and logs were looked at once."""
        self._watch = Watch(place, clock)
        self._closed = False
        self._waiters: list[asyncio.Future[None]] = []

    async def follow(self, period: Callable[[], float] = lambda: 1.0) -> None:
        """Look at everything beside the tasks each `period` seconds, until closed.

        The tasks are followed by the inspector, on its own threads.
        """
        await self.inspector.start()
        await asyncio.gather(self._follow(period), self._ask_what_waits())

    async def _follow(self, period: Callable[[], float]) -> None:
        while not self._closed:
            self.signs = await asyncio.to_thread(self._watch.look)
            latest = self.inspector.latest
            if latest.complete:
                self.counted.append((self.clock(), latest.counts))
                self.flow.add(self.clock(), latest.came, latest.left, latest.counts)
            self.looked = True
            self.judge()
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
        self.standing = await self.inspector.standing(self.clock())
        self.judge()

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
        await asyncio.to_thread(self._watch.close)
