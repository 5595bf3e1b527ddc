"""Keys in their order: each acts on what the ones before it have led to.

The library hands a key to the part of the screen that has the focus, and goes on with the next one
before anything came of it. Over a slow line many keys come at once: of `/gmail` the letters would
then be taken for commands by the list. So here a key waits until the ones before it are done with:
no message of theirs is under way, and the screen that they opened stands there.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from textual.app import App
from textual.dom import DOMNode
from textual.events import Event
from textual.message_pump import MessagePump
from textual.screen import Screen

MOMENT = 0.001
"""Seconds between two looks whether the next key can act."""

PATIENCE = 3.0
"""Seconds after which a key acts whatever is under way: it waits for no bug for ever."""

LOADING = 0.5
"""Seconds for which keys wait for rows that were asked for: a disk may be slow, or away."""

LEADS = {"plan": 3.0, "problems": LOADING}
"""Workers, by their group, whose end decides what a key does: the one opens a screen, the other
brings rows; seconds for which keys wait for them."""


class Held(NamedTuple):
    """What is waited for, and for how many seconds."""

    by: object
    seconds: float


class KeyQueue:
    """What was typed, and has not acted yet."""

    def __init__(self, app: App[Any], act: Callable[[Event], Awaitable[None]]) -> None:
        """`act` lets a key act at once; it is called on the app's own message pump."""
        self._app, self._act = app, act
        self._waiting: deque[Event] = deque()
        self._since = 0.0
        self._known: tuple[Screen[Any] | None, DOMNode | None] = (None, None)
        self._given_up: object = None

    async def take(self, event: Event) -> None:
        """Let it act, now or when its turn has come."""
        if not self._waiting and self._at_rest(0.0):
            await self._let(event)
            return
        self._waiting.append(event)
        if len(self._waiting) == 1:
            self._look_soon()

    @property
    def waiting(self) -> int:
        """How many keys have not acted yet."""
        return len(self._waiting)

    def _look_soon(self) -> None:
        loop = asyncio.get_running_loop()
        self._since = loop.time()
        loop.call_later(MOMENT, self._app.call_later, self._look)

    async def _look(self) -> None:
        loop = asyncio.get_running_loop()
        if not self._at_rest(loop.time() - self._since):
            loop.call_later(MOMENT, self._app.call_later, self._look)
            return
        try:
            await self._let(self._waiting[0])
        finally:
            self._waiting.popleft()
            if self._waiting:
                self._look_soon()

    async def _let(self, event: Event) -> None:
        self._known = self._app.screen, self._app.focused
        await self._act(event)

    def _at_rest(self, waited: float) -> bool:
        """Whether all is done that came before, or has been waited for long enough."""
        if waited < PATIENCE and not (self._stands() and all(map(_is_idle, self._pumps()))):
            return False
        held = self._held()
        if held is None:
            self._given_up = None
        elif held.by is not self._given_up:
            if waited < held.seconds:
                return False
            self._given_up = held.by
        return True

    @property
    def _is_known(self) -> bool:
        return self._known == (self._app.screen, self._app.focused)

    def _stands(self) -> bool:
        """Whether the screen is laid out and painted."""
        screen = self._app.screen
        if self._is_known:
            return True
        laid_out = bool(screen.size) and not screen._layout_required
        return screen.is_running and screen.is_mounted and laid_out and not screen._callbacks

    def _pumps(self) -> list[MessagePump]:
        """Whatever a key passes through; on a screen that is new, all that is on it."""
        screen, focused = self._app.screen, self._app.focused
        if self._is_known:
            return [*(focused or screen).ancestors_with_self]
        return [*screen.walk_children(with_self=True), self._app]

    def _held(self) -> Held | None:
        """What was begun and will change what a key does, beyond the library's messages."""
        for worker in self._app.workers:
            if worker.group in LEADS and not worker.is_finished:
                return Held(worker, LEADS[worker.group])
        for part in (self._app.focused, self._app.screen):
            if not getattr(part, "loaded", True):
                return Held(part, LOADING)
        return None


def _is_idle(pump: MessagePump) -> bool:
    return (
        pump._message_queue.empty() and not pump._next_callbacks and pump._pending_message is None
    )
