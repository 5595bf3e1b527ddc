"""A daemon thread that runs blocking calls one by one and returns the results to the event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any, TypeAlias, TypeVar

from engine.store import Unavailable

T = TypeVar("T")

CLOSE_TIMEOUT_SECONDS = 1.0
"""Seconds to wait for a thread to end, before it is abandoned."""


class DaemonExecutor(ThreadPoolExecutor):
    """An executor for `asyncio.to_thread` with a daemon thread for each call: one that hangs in
    disk I/O delays neither another call nor the end of the process."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Run a call on a new thread."""
        future: Future[T] = Future()

        def run() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(fn(*args, **kwargs))
            except BaseException as error:
                future.set_exception(error)  # raised in the caller

        threading.Thread(target=run, name="call", daemon=True).start()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Wait for no call."""


_Call: TypeAlias = tuple[Callable[[], Any], asyncio.Future[Any]]


class CallThread:
    """Runs calls that may block outside the event loop; its thread starts with the first call. The
    thread is a daemon: one that hangs in disk I/O does not delay the exit of the process. Use it
    from one event loop only."""

    def __init__(self, name: str, at_end: Callable[[], None] = lambda: None) -> None:
        """`at_end` is called on the thread when it ends, if it ever started."""
        self._name = name
        self._at_end = at_end
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._ended: asyncio.Future[None] | None = None
        self._closed = False
        self._now: asyncio.Future[Any] | None = None

    async def run(self, make: Callable[[], T]) -> T:
        """Run a call on the thread and return its result; if cancelled before its turn, it is not
        run.

        Raises:
            Unavailable: the thread is closed."""
        if self._closed:
            raise Unavailable("closed")
        loop = asyncio.get_running_loop()
        if self._ended is None:
            self._ended = loop.create_future()
            threading.Thread(target=self._work, args=(loop,), name=self._name, daemon=True).start()
        answer: asyncio.Future[T] = loop.create_future()
        self._calls.put((make, answer))
        return await answer

    def is_wanted(self) -> bool:
        """True if the caller still waits for the running call; called on the thread."""
        return not self._closed and self._now is not None and not self._now.cancelled()

    async def close(self, patience: float) -> None:
        """Accept no more calls, and wait up to `patience` seconds for the running one."""
        self._closed = True
        if self._ended is not None:
            self._calls.put(None)
            await asyncio.wait([self._ended], timeout=patience)

    def _work(self, loop: asyncio.AbstractEventLoop) -> None:
        while (call := self._calls.get()) is not None:
            make, self._now = call
            answer = self._now
            if self._closed or answer.cancelled():
                _settle(loop, answer, answer.set_exception, Unavailable("closed"))
                continue
            try:
                _settle(loop, answer, answer.set_result, make())
            except BaseException as error:
                _settle(loop, answer, answer.set_exception, error)  # it is raised in the caller
        self._at_end()
        if self._ended is not None:
            _settle(loop, self._ended, self._ended.set_result, None)


def _settle(
    loop: asyncio.AbstractEventLoop,
    future: asyncio.Future[Any],
    settle: Callable[[Any], None],
    outcome: object,
) -> None:
    post_call(loop, lambda: None if future.done() else settle(outcome))


def post_call(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    """Schedule a call on the event loop, unless it is closed."""
    try:
        loop.call_soon_threadsafe(call)
    except RuntimeError:
        return  # the loop is closed
