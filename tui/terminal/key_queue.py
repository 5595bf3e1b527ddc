"""Queue keys so that each acts only after the effects of the keys before it, and refuse keys that
were pasted or typed ahead.

Textual passes a key to the focused widget and takes the next one before the first has had its
effect. Over a slow line many keys arrive together: of `/gmail`, the list would take the letters for
commands. So a key waits until no message of the keys before it is pending, and the screen that they
opened is laid out.

A terminal without bracketed paste sends pasted text as keys, and a slow link delivers many keys in
one read. So keys in a burst write nothing, and a key that confirms a plan counts only if the plan
was on screen, unchanged, for `CONFIRM_SECONDS` when the key arrived."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import Any
from weakref import WeakSet

from textual.app import App
from textual.dom import DOMNode
from textual.events import Event, Key
from textual.keys import _character_to_key
from textual.message_pump import MessagePump
from textual.screen import Screen

from engine.values import NamedTuple

BURST_KEYS = 5
"""This many keys within `BURST_SECONDS` seconds are a burst."""

BURST_DIGITS = 2
"""This many digits are already a burst: as a count they could apply a plan. Over a link that
delivers several keys in one read, type a count slowly."""

BURST_SECONDS = 0.03

CONFIRM_SECONDS = 0.3
"""Seconds for which a plan must be on screen, unchanged, before a key confirms it."""

_bursts: WeakSet[Key] = WeakSet()


class PasteDetector:
    """Reads all keys as they arrive, and marks those that came in a burst."""

    def __init__(self) -> None:
        self._recent_keys: deque[tuple[float, Key]] = deque()

    def record_keys(self, keys: Iterable[Key], now: float) -> None:
        """Record keys that arrived together at `now` (monotonic seconds)."""
        self._recent_keys.extend((now, key) for key in keys)
        while self._recent_keys and now - self._recent_keys[0][0] > BURST_SECONDS:
            self._recent_keys.popleft()
        digits = sum(key.key.isdigit() for _, key in self._recent_keys)
        if len(self._recent_keys) >= BURST_KEYS or digits >= BURST_DIGITS:
            _bursts.update(key for _, key in self._recent_keys)


def is_burst(key: Key) -> bool:
    """True if a key came in a burst."""
    return key in _bursts


class ConfirmGuard:
    """Decide if a confirming key came late enough after its plan; monotonic times in seconds."""

    def __init__(self) -> None:
        self._since = math.inf

    def plan_hidden(self) -> None:
        """The plan is not on screen: it is new, or another screen covers it."""
        self._since = math.inf

    def plan_painted(self, now: float) -> None:
        """The plan was painted; only the first time counts."""
        self._since = min(self._since, now)

    def plan_changed(self, now: float) -> None:
        """The plan on screen has changed."""
        if self._since < math.inf:
            self._since = now

    def is_early(self, arrived: float) -> bool:
        """True if a key that arrived at that time must not confirm the plan."""
        return arrived - self._since < CONFIRM_SECONDS


def guard_of(screen: Screen[Any]) -> ConfirmGuard | None:
    """The guard of a screen on which keys confirm something; None for other screens."""
    guard: ConfirmGuard | None = getattr(screen, "guard", None)
    return guard


POLL_SECONDS = 0.001
"""Seconds between two checks whether the next key can act."""

MAX_WAIT_SECONDS = 3.0
"""Seconds after which a key acts in any case, so that a bug cannot block keys forever."""

ROWS_TIMEOUT_SECONDS = 0.5
"""Seconds for which keys wait for requested rows; a disk may be slow or gone."""

AWAITED_WORKERS = {"plan": 3.0, "problems": ROWS_TIMEOUT_SECONDS}
"""Groups of workers that decide what a key does (one opens a screen, the other brings rows), with
the seconds for which keys wait for them."""


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
