"""A place that is being followed: its tasks, its lock, its figures, its logs, on screen or not."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping

from engine.events import Event
from engine.flow import Flow
from engine.inspector import Inspector
from engine.model import State
from tui.child import Worker
from tui.place import Place
from tui.recovery import Recovery
from tui.watch import Signs, Watch

COUNTED = 300
"""Counts that are remembered, one a second: metrics are compared with those of their own time."""


class Live:
    """What all screens on one place share; owned by the console, and closed by it."""

    def __init__(self, place: Place, clock: Callable[[], float], number: int = 1) -> None:
        """`number` is which of the console's places this one is, from 1."""
        self.place, self.clock, self.number = place, clock, number
        self.inspector = Inspector(place.open, clock=clock)
        self.worker = Worker(place.work)
        self.recovery = Recovery(place.recover)
        self.signs = Signs()
        self.counted: deque[tuple[float, Mapping[State, int]]] = deque(maxlen=COUNTED)
        self.flow = Flow()
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
        while not self._closed:
            self.signs = await asyncio.to_thread(self._watch.look)
            latest = self.inspector.latest
            if latest.complete:
                self.counted.append((self.clock(), latest.counts))
                self.flow.add(self.clock(), latest.came, latest.left, latest.counts)
            self.looked = True
            self._tell()
            await asyncio.sleep(period())

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
