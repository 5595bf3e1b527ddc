"""The asynchronous interface to one store and its index: queries, changes, plans and undo.

The event loop never waits here for a disk, a socket or a lock: every call runs on a thread with its
own instance of the store, or its own reader of the index."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial

from engine.live.call_thread import CLOSE_TIMEOUT_SECONDS, post_call
from engine.live.folder_watch import SharedParts
from engine.live.index_sync import Found, IndexSync, scan_all
from engine.live.index_sync import IndexChanged as IndexChanged
from engine.live.queries import CachedQueries, IndexQueries
from engine.live.store_actions import OperationHistory, StoreActions, StoreThread
from engine.model import AttemptLimit, Edges, State
from engine.operations.journal import Journal
from engine.store import ChangeableStore, Control, ReadableStore, Unavailable

REPORT_PERIOD_SECONDS, FIRST_SCAN_PERIOD_SECONDS = 0.1, 0.25
"""Minimum seconds between two reports of changes; the second while the first scan runs, but its
first rows are reported immediately."""


class Inspector:
    """One store for the console: followed, searched and changed."""

    def __init__(
        self,
        open_store: Callable[[], ChangeableStore],
        *,
        clock: Callable[[], float] = time.time,
        folder: str | None = None,
        journal: Journal | None = None,
        quota: int | None = None,
        is_shown: Callable[[], bool] = lambda: True,
        find_silence: Callable[[], str] = str,
        shared: SharedParts | None = None,
        read_store: Callable[[ReadableStore], Iterator[Found]] = scan_all,
        limit: AttemptLimit,
    ) -> None:
        """`folder` is the parent of the index's temporary folder; None: chosen by free space.

        `journal` records operations; None: no journal. `quota` is the maximum bytes of the trash;
        None: no limit. `is_shown` returns False, on any thread, if no screen shows this place
        alone: then file events may come later. `find_silence` returns for how long a read of the
        place has hung; "" if none does. `shared`: what it shares with other places. `read_store`
        is what a full scan reads. `limit` is the maximum attempts of each task."""
        self._sync = IndexSync(
            open_store,
            folder,
            self._on_change,
            is_shown,
            shared,
            read_store=read_store,
            limit=limit,
        )
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiters: set[asyncio.Future[None]] = set()
        self._reported, self._has_reported_rows = -1, False
        self._reported_at = -math.inf  # the clock of the loop may have begun a moment ago
        self._closed = False
        self._find_silence = find_silence
        self._acting = StoreThread("spooldeck-acting", open_store)
        self.queries = IndexQueries(self._sync, clock)
        self.tallies = CachedQueries(self._sync, clock)
        self.actions = StoreActions(
            open_store, self._acting, self._sync, clock=clock, journal=journal, quota=quota
        )
        self.history = OperationHistory(self._acting, clock, journal)

    async def start(self) -> None:
        """Start to follow the store on its threads; does not wait."""
        self._loop = asyncio.get_running_loop()
        self._sync.start()

    async def close(self) -> None:
        """End all threads and remove the index; a thread that hangs is abandoned."""
        self._closed = True
        self._sync.stop()
        self._wake()
        parts = (self.queries, self.tallies, self.actions, self._acting)
        await asyncio.gather(
            self._wait_for_sync_end(), *(part.close(CLOSE_TIMEOUT_SECONDS) for part in parts)
        )
        if not self._sync.has_ended:
            await asyncio.to_thread(self._sync.remove_scratch)

    async def _wait_for_sync_end(self) -> None:
        if self._loop is None:
            return
        deadline = self._loop.time() + CLOSE_TIMEOUT_SECONDS
        while not self._sync.has_ended and self._loop.time() < deadline:
            await self._next_change(deadline - self._loop.time())

    @property
    def states(self) -> Mapping[State, str]:
        """The store's names of its states; empty until it is open."""
        return self._sync.states

    @property
    def words(self) -> Mapping[str, State]:
        """The store's words that are finer than a state; empty until it is open."""
        return self._sync.words

    @property
    def edges(self) -> Edges:
        """The transitions that the store allows now; empty until it is open."""
        return self._sync.edges

    @property
    def controls(self) -> Mapping[str, Control]:
        """The store's controls of the whole queue; empty until it is open."""
        return self._sync.controls

    @property
    def latest(self) -> IndexChanged:
        """The content of the store, as far as it is known now; unavailable while a read hangs.
        What is unavailable is not counted: its numbers are old."""
        latest, silence = self._sync.latest, self._find_silence()
        if silence or latest.unavailable:
            latest = latest._replace(unavailable=silence or latest.unavailable, is_counted=False)
        return latest

    async def wait_for_change(self, after: int) -> IndexChanged:
        """Wait until the content is newer than a generation, and return it; at most ten times a
        second, and once more for the first rows.

        Raises:
            Unavailable: the inspector was closed."""
        loop = asyncio.get_running_loop()
        while self.latest.generation <= after:
            if self._sync.crash is not None:
                raise self._sync.crash
            if self._closed:
                raise Unavailable("closed")
            await self._next_change(None)
        if self.latest.generation != self._reported:
            while (delay := self._reported_at + self._report_period - loop.time()) > 0:
                await self._next_change(delay)
            self._reported, self._reported_at = self.latest.generation, loop.time()
            self._has_reported_rows |= self.latest.indexed > 0
        return self.latest

    @property
    def _report_period(self) -> float:
        if self.latest.is_complete:
            return REPORT_PERIOD_SECONDS
        is_first = self.latest.indexed > 0 and not self._has_reported_rows
        return 0.0 if is_first else FIRST_SCAN_PERIOD_SECONDS

    def _on_change(self) -> None:
        """Called on the thread of `IndexSync`."""
        if self._loop is None or self._loop.is_closed():
            self._sync.stop()  # the event loop ended without `close`
        else:
            post_call(self._loop, self._wake)

    def _wake(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def _next_change(self, patience: float | None) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        try:
            await asyncio.wait([waiter], timeout=patience)
        finally:
            self._waiters.discard(waiter)

    async def scan_now(self) -> None:
        """Run a full scan now; returns when it has ended."""
        if self._sync.has_ended:
            return
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        self._sync.scan_now(partial(post_call, loop, ended.set))
        await ended.wait()

    def stop_first_scan(self) -> None:
        """Stop the first full scan; `scan_now` restarts it."""
        self._sync.stop_first_scan()
