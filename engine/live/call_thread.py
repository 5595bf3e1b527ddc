"""A thread that makes calls one after another and hands the answers to the event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, NamedTuple, TypeVar

from engine.store import Unavailable

T = TypeVar("T")


class _Call(NamedTuple):
    make: Callable[[], Any]
    answer: asyncio.Future[Any]


class CallThread:
    """Calls that may block, off the event loop; its thread starts with the first of them.

    The thread is a daemon: one that hangs in a disk that does not answer keeps nobody from
    leaving. Used from one event loop.
    """

    def __init__(self, name: str, at_end: Callable[[], None] = lambda: None) -> None:
        """`at_end` is called on the thread when it ends, if it ever started."""
        self._name = name
        self._at_end = at_end
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._ended: asyncio.Future[None] | None = None
        self._closed = False
        self._now: _Call | None = None

    async def run(self, make: Callable[[], T]) -> T:
        """What a call answers; when this is cancelled before its turn, it is not made.

        Raises:
            Unavailable: the lane is closed.
        """
        if self._closed:
            raise Unavailable("closed")
        loop = asyncio.get_running_loop()
        if self._ended is None:
            self._ended = loop.create_future()
            threading.Thread(target=self._work, args=(loop,), name=self._name, daemon=True).start()
        answer: asyncio.Future[T] = loop.create_future()
        self._calls.put(_Call(make, answer))
        return await answer

    def wanted(self) -> bool:
        """Whether somebody still waits for the call being made; asked on the lane's own thread."""
        return not self._closed and self._now is not None and not self._now.answer.cancelled()

    async def close(self, patience: float) -> None:
        """Take no more calls, and wait up to so many seconds for the one being made."""
        self._closed = True
        if self._ended is not None:
            self._calls.put(None)
            await asyncio.wait([self._ended], timeout=patience)

    def _work(self, loop: asyncio.AbstractEventLoop) -> None:
        while (call := self._calls.get()) is not None:
            self._now = call
            if self._closed or call.answer.cancelled():
                _tell(loop, call.answer, None, Unavailable("closed"))
                continue
            try:
                result = call.make()
            except BaseException as error:
                # Whatever it is, it belongs to whoever asked.
                _tell(loop, call.answer, None, error)
            else:
                _tell(loop, call.answer, result, None)
        self._at_end()
        _tell(loop, self._ended, None, None)


def _tell(
    loop: asyncio.AbstractEventLoop,
    future: asyncio.Future[Any] | None,
    result: object,
    error: BaseException | None,
) -> None:
    def settle() -> None:
        if future is None or future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)

    post(loop, settle)


def post(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    """Have the event loop make a call soon, unless it has ended."""
    try:
        loop.call_soon_threadsafe(call)
    except RuntimeError:
        return  # nobody is there to be told
