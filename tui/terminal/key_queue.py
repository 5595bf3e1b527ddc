"""Queue keys so that each acts only after the effects of the keys before it.

Textual passes a key to the focused widget and takes the next one before the first has had its
effect. Over a slow line many keys arrive together: of `/gmail`, the list would take the letters for
commands. So a key waits until no message of the keys before it is pending, and the screen that they
opened is laid out.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from textual.app import App
from textual.dom import DOMNode
from textual.events import Event, Key
from textual.keys import _character_to_key
from textual.message_pump import MessagePump
from textual.screen import Screen

POLL_SECONDS = 0.001
"""Seconds between two checks whether the next key can act."""

MAX_WAIT_SECONDS = 3.0
"""Seconds after which a key acts in any case, so that a bug cannot block keys forever."""

ROWS_TIMEOUT_SECONDS = 0.5
"""Seconds for which keys wait for requested rows; a disk may be slow or gone."""

AWAITED_WORKERS = {"plan": 3.0, "problems": ROWS_TIMEOUT_SECONDS}
"""Groups of workers that decide what a key does (one opens a screen, the other brings rows), with
the seconds for which keys wait for them.
"""


class PendingWait(NamedTuple):
    """What a key waits for, and for how many seconds."""

    by: object
    seconds: float


class KeyQueue:
    """Keys that were typed and have not acted yet."""

    def __init__(self, app: App[Any], act: Callable[[Event], Awaitable[None]]) -> None:
        """`act` performs a key; it is called on the app's message pump."""
        self._app, self._act = app, act
        self._waiting: deque[Event] = deque()
        self._since = 0.0
        self._known: tuple[Screen[Any] | None, DOMNode | None] = (None, None)
        self._given_up: object = None

    async def accept_key(self, event: Event) -> None:
        """Perform a key now, or queue it."""
        if not self._waiting and self._can_act(0.0):
            await self._perform(event)
            return
        self._waiting.append(event)
        if len(self._waiting) == 1:
            self._schedule_check()

    @property
    def queued_keys(self) -> int:
        """Number of queued keys."""
        return len(self._waiting)

    def _schedule_check(self) -> None:
        loop = asyncio.get_running_loop()
        self._since = loop.time()
        loop.call_later(POLL_SECONDS, self._app.call_later, self._check_next)

    async def _check_next(self) -> None:
        loop = asyncio.get_running_loop()
        if not self._can_act(loop.time() - self._since):
            loop.call_later(POLL_SECONDS, self._app.call_later, self._check_next)
            return
        try:
            await self._perform(self._waiting[0])
        finally:
            self._waiting.popleft()
            if self._waiting:
                self._schedule_check()

    async def _perform(self, event: Event) -> None:
        self._known = self._app.screen, self._app.focused
        await self._act(event)

    def _can_act(self, waited: float) -> bool:
        """True if all effects of former keys are done, or were waited for long enough."""
        if waited < MAX_WAIT_SECONDS and not (
            self._is_laid_out() and all(map(_is_idle, self._pumps()))
        ):
            return False
        held = self._pending_wait()
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

    def _is_laid_out(self) -> bool:
        """True if the screen is laid out and painted."""
        screen = self._app.screen
        if screen._compositor.size != self._app.size:
            return False  # a new size is under way
        if self._is_known:
            return True
        laid_out = bool(screen.size) and not screen._layout_required
        return screen.is_running and screen.is_mounted and laid_out and not screen._callbacks

    def _pumps(self) -> list[MessagePump]:
        """Message pumps that a key passes through; on a new screen, those of all its widgets."""
        screen, focused = self._app.screen, self._app.focused
        if self._is_known:
            return [*(focused or screen).ancestors_with_self]
        return [*screen.walk_children(with_self=True), self._app]

    def _pending_wait(self) -> PendingWait | None:
        """What was started and will change the effect of a key, besides Textual's messages."""
        for worker in self._app.workers:
            if worker.group in AWAITED_WORKERS and not worker.is_finished:
                return PendingWait(worker, AWAITED_WORKERS[worker.group])
        for part in (self._app.focused, self._app.screen):
            if not getattr(part, "loaded", True):
                return PendingWait(part, ROWS_TIMEOUT_SECONDS)
        return None


def _is_idle(pump: MessagePump) -> bool:
    return (
        pump._message_queue.empty() and not pump._next_callbacks and pump._pending_message is None
    )


def key_event(key: str) -> Key:
    """The event of a key as if it had been typed: of a character, or of a name such as `enter`."""
    return Key(_character_to_key(key), key) if len(key) == 1 else Key(key, None)
