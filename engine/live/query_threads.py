"""Query the index from the event loop: each reader on a thread of its own."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from typing import TypeVar

from engine.index.reader import Reader
from engine.live.call_thread import CallThread
from engine.live.index_sync import IndexSync
from engine.store import Unavailable

T = TypeVar("T")


class QueryThread:
    """A reader of the index on its own thread; a query is interrupted when its caller is
    cancelled."""

    def __init__(self, name: str, mirror: IndexSync) -> None:
        self._lane = CallThread(name, self._close_reader)
        self._sync = mirror
        self._reader: Reader | None = None
        self._path = ""

    async def ask(self, question: Callable[[Reader], T], otherwise: T) -> T:
        """Run a query; returns `otherwise` while there is no index.

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
        """Interrupt the running query and end the thread."""
        if self._reader is not None:
            self._reader.interrupt()
        await self._lane.close(patience)

    def _answer(self, question: Callable[[Reader], T], otherwise: T) -> T:
        while True:
            path = self._sync.path
            if not path:
                return otherwise
            try:
                return question(self._open(path))
            except sqlite3.Error as error:
                # Retry if the interrupt was for the query before, or the index was replaced.
                interrupted = "interrupt" in str(error) and self._lane.is_wanted()
                if not interrupted and path == self._sync.path:
                    raise Unavailable(f"the index in {path}: {error}") from error

    def _open(self, path: str) -> Reader:
        if self._reader is None or path != self._path:
            self._close_reader()
            self._reader, self._path = Reader(path), path
        return self._reader

    def _close_reader(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()
