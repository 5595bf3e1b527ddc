"""What the console is handed about the ways mail is sent by, from the settings of one place."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from engine import files
from engine.checks import ConfigError
from engine.logtail import contract_line
from engine.store import Unavailable
from engine.text import shown
from engine.transports import Routes, Stopped
from tui.cli.wiring import Fail, Setup
from tui.place import MailDesk

if TYPE_CHECKING:
    from engine.mail.transports import Ways
    from engine.mailconf import MailSettings

AGAIN = 60.0
"""Seconds after which it is looked for anew which transports are installed, and set up."""


class _Desk:
    """The ways of one place; asked by one thread after the other."""

    def __init__(self, setup: Setup, clock: Callable[[], float]) -> None:
        self._setup, self._clock = setup, clock
        self._known: tuple[MailSettings, Ways] | None = None
        self._looked = float("-inf")

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
            order, only = ways.names(), settings.method
            # Of those that are not allowed it does not matter whether they are there.
            asked = [name for name in order if only in ("", name)]
            why_not = {name: why for name in asked if (why := ways.absence(name))}
        selected = "" if chosen is None else chosen.name
        return Routes(order, selected, why_not, stopped, only, settings.recipient)

    def records(self) -> str:
        with _told():
            return self._ways()[0].delivery_log

    def suspend(self, name: str, why: str) -> str:
        setup = self._setup
        who = setup.who().name
        with _told():
            setup.require_change()
            setup.make_folder(setup.spool().desk)
            if not setup.suspensions().suspend(name, time.time(), who, why):
                raise Unavailable(f"{name} was suspended meanwhile, and stays so")
        reason = f": {shown(why)}" if why else ""
        return self._note(f"Transport {name} suspended by {shown(who)}{reason}")

    def resume(self, name: str) -> str:
        setup = self._setup
        with _told():
            setup.require_change()
            if not setup.suspensions().resume(name):
                raise Unavailable(f"{name} was resumed meanwhile")
        return self._note(f"Transport {name} resumed by {shown(setup.who().name)}")

    def _ways(self) -> tuple[MailSettings, Ways]:
        if self._known is None or self._clock() - self._looked >= AGAIN:
            settings = self._setup.mail_settings()
            self._known, self._looked = (settings, self._setup.ways(settings)), self._clock()
        return self._known

    def _note(self, text: str) -> str:
        """Add a line to the mail log, for whoever wonders there why nothing is sent by it; answers
        with why it could not be added, "" when it was."""
        path = f"{self._setup.queue.log_dir}/mail.log"
        try:
            self._setup.make_folder(self._setup.queue.log_dir)
            line = contract_line("INFO", text, time.time())
            files.append(path, line, root=self._setup.queue.root)
        except OSError as error:
            return f"{path} does not say so: {error.strerror}"
        return ""


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
    desk = _Desk(setup, time.monotonic)
    return MailDesk(
        stopped=desk.stopped,
        routes=desk.routes,
        suspend=desk.suspend,
        resume=desk.resume,
        records=desk.records,
        delivers=setup.sends_mail,
        test=(*argv, "mail", "test"),
    )
