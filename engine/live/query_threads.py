"""Questions to the index from the event loop: each reader on a thread of its own."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple, TypeVar

from engine.index.reader import Reader
from engine.live.call_thread import CallThread
from engine.live.index_sync import IndexSync
from engine.store import Unavailable

T = TypeVar("T")

TALLYING = 20
"""A tally is not made again before so many times its own duration."""
KEPT = 8
"""Answers that are kept to be given again meanwhile."""


class QueryThread:
    """A reader of the index on a lane of its own; a question nobody waits for any more ends."""

    def __init__(self, name: str, mirror: IndexSync) -> None:
        self._lane = CallThread(name, self._let_go)
        self._mirror = mirror
        self._reader: Reader | None = None
        self._path = ""

    async def ask(self, question: Callable[[Reader], T], otherwise: T) -> T:
        """The reader's answer; `otherwise` while there is no index.

        Raises:
            Unavailable: the index cannot be read.
        """
        try:
            return await self._lane.run(lambda: self._answer(question, otherwise))
        except asyncio.CancelledError:
            if self._reader is not None:
                self._reader.interrupt()
            raise

    async def close(self, patience: float) -> None:
        """End the thread, and the question it is at."""
        if self._reader is not None:
            self._reader.interrupt()
        await self._lane.close(patience)

    def _answer(self, question: Callable[[Reader], T], otherwise: T) -> T:
        while True:
            path = self._mirror.path
            if not path:
                return otherwise
            try:
                return question(self._open(path))
            except sqlite3.Error as error:
                # Interrupted because of the question before, or of an index that was replaced?
                interrupted = "interrupt" in str(error) and self._lane.wanted()
                if not interrupted and path == self._mirror.path:
                    raise Unavailable(f"the index in {path}: {error}") from error

    def _open(self, path: str) -> Reader:
        if self._reader is None or path != self._path:
            self._let_go()
            self._reader, self._path = Reader(path), path
        return self._reader

    def _let_go(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()


class _QueryAnswer(NamedTuple):
    value: Any
    until: float
    """On the clock of `time.monotonic`."""


class CachedQueries:
    """Questions about a whole queue, which cost time: an answer serves for a while."""

    def __init__(self, name: str, mirror: IndexSync) -> None:
        self._asking = QueryThread(name, mirror)
        self._kept: dict[Hashable, _QueryAnswer] = {}

    async def ask(self, key: Hashable, question: Callable[[Reader], T], otherwise: T) -> T:
        """The reader's answer, or the one it gave to the same question a moment ago.

        Raises:
            Unavailable: the index cannot be read.
        """
        kept = self._kept.get(key)
        if kept is not None and time.monotonic() < kept.until:
            value: T = kept.value
            return value

        def timed(reader: Reader) -> tuple[T, float]:
            began = time.monotonic()
            return question(reader), time.monotonic() - began

        value, cost = await self._asking.ask(timed, (otherwise, 0.0))
        self._kept.pop(key, None)
        self._kept[key] = _QueryAnswer(value, time.monotonic() + TALLYING * cost)
        while len(self._kept) > KEPT:
            del self._kept[next(iter(self._kept))]
        return value

    async def close(self, patience: float) -> None:
        """End the thread, and the question it is at."""
        await self._asking.close(patience)
