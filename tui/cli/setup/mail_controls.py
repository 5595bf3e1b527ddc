"""What the console is handed about the ways mail is sent by, from the settings of one place."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from engine.config.validators import ConfigError
from engine.monitor.transport_health import MailBacklog, Routes, Stopped
from engine.store import Unavailable
from tui.cli.setup import suspend
from tui.cli.setup.setup import Fail, Setup
from tui.session.place import MailDesk

if TYPE_CHECKING:
    from engine.config.mail_config import MailSettings
    from engine.mail.transports.registry import TransportRegistry

AGAIN = 60.0
"""Seconds after which it is looked for anew which transports are installed, and set up."""


class _MailControls:
    """The ways of one place; asked by one thread after the other."""

    def __init__(self, setup: Setup, clock: Callable[[], float]) -> None:
        self._setup, self._clock = setup, clock
        self._known: tuple[MailSettings, TransportRegistry] | None = None
        self._looked = float("-inf")
        self._heap: tuple[int, float, float, int] | None = None
        """The spool's own mtime, when it was looked at, when its oldest mail came, and how many
        there are; times in seconds of the clock, but for the first."""

    def stopped(self) -> Mapping[str, Stopped]:
        with _told():
            return {
                name: Stopped(name, found.since, found.who, found.why)
                for name, found in self._setup.suspensions().read().items()
            }

    def routes(self, stopped: Mapping[str, Stopped]) -> Routes:
        with _told():
            settings, ways = self._ways()
            chosen = ways.choose(tuple(stopped)).transport
            order = ways.names()
            # Also of those that the configuration bars: a test mail may go by each of them.
            why_not = {name: why for name in order if (why := ways.absence(name))}
        selected = "" if chosen is None else chosen.name
        return Routes(order, selected, why_not, stopped, settings.method, settings.recipient)

    def records(self) -> str:
        with _told():
            return self._ways()[0].delivery_log

    def heap(self) -> MailBacklog | None:
        with _told():
            try:
                changed = os.stat(self._setup.queue.mail_spool).st_mtime_ns
            except FileNotFoundError:
                return None
            now, known = self._clock(), self._heap
            # Mails come and go with their folders: where none does, a full spool costs little.
            if known is None or known[0] != changed or not 0 <= now - known[1] < AGAIN:
                mails, oldest = self._setup.mail_spool().depth_and_oldest(time.time())
                self._heap = known = changed, now, now - oldest, mails
        return MailBacklog(known[3], now - known[2] if known[3] else 0.0)

    def suspend(self, name: str, why: str) -> str:
        with _told():
            new, trouble = suspend.stop(self._setup, name, why)
        if not new:
            raise Unavailable(f"{name} was suspended meanwhile, and stays so")
        return trouble

    def resume(self, name: str) -> str:
        with _told():
            new, trouble = suspend.start(self._setup, name)
        if not new:
            raise Unavailable(f"{name} was resumed meanwhile")
        return trouble

    def _ways(self) -> tuple[MailSettings, TransportRegistry]:
        if self._known is None or self._clock() - self._looked >= AGAIN:
            settings = self._setup.mail_settings()
            self._known, self._looked = (settings, self._setup.ways(settings)), self._clock()
        return self._known


@contextmanager
def _told() -> Iterator[None]:
    """What cannot be read or written, as the console wants to be told of it.

    Raises:
        Unavailable: whatever went wrong that way.
    """
    try:
        yield
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        raise Unavailable(f"{where}{error.strerror or error}") from error
    except (ConfigError, Fail, ValueError) as error:
        raise Unavailable(str(error)) from error


def mail_desk(setup: Setup, argv: list[str]) -> MailDesk:
    """The ways of a place; `argv` is what starts the program on it. Nothing is looked at yet."""
    desk = _MailControls(setup, time.monotonic)
    return MailDesk(
        stopped=desk.stopped,
        routes=desk.routes,
        suspend=desk.suspend,
        resume=desk.resume,
        records=desk.records,
        heap=desk.heap,
        delivers=setup.sends_mail,
        test=(*argv, "mail", "test"),
    )
