"""Mail transports of one place for the console: state, routes, suspend, resume."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from engine.config.validators import ConfigError
from engine.formats.base.format import Setup
from engine.formats.base.suspend_transport import resume_transport, suspend_transport
from engine.mail.send.mail_spool import Spooled
from engine.mail.send.queuing import is_being_sent
from engine.monitor.transport_health import MailBacklog, MailRoutes, TransportSuspension
from engine.places.mail_setup import MAIL_SEND_KIND, QUEUING_GRACE_SECONDS
from engine.places.place import PlaceMail
from engine.store import Unavailable
from engine.system.command_errors import CommandError
from engine.text.error_text import error_text

if TYPE_CHECKING:
    from engine.config.mail_config import MailSettings
    from engine.mail.transports.registry import TransportRegistry

RECHECK_SECONDS = 60.0
"""Seconds after which the installed transports and the spool are read again."""


class _MailControls:
    """The transports of one place; used by one thread at a time."""

    def __init__(self, setup: Setup, clock: Callable[[], float]) -> None:
        self._setup, self._clock = setup, clock
        self._known: tuple[MailSettings, TransportRegistry] | None = None
        self._looked = float("-inf")
        self._last_backlog: tuple[int, float, float, int] | None = None
        """mtime of the spool in ns, time of the scan, arrival of the oldest mail (seconds of the
        clock), and number of mails.
        """

    def stopped(self) -> Mapping[str, TransportSuspension]:
        with _errors_as_unavailable():
            return {
                name: TransportSuspension(name, suspension.since, suspension.who, suspension.why)
                for name, suspension in self._setup.mail.suspensions().read().items()
            }

    def routes(self, stopped: Mapping[str, TransportSuspension]) -> MailRoutes:
        with _errors_as_unavailable():
            settings, registry = self._registry()
            chosen = registry.choose(tuple(stopped)).transport
            order = registry.names()
            # Also of disabled transports: a test mail may use each of them.
            why_not = {name: why for name in order if (why := registry.absence(name))}
        selected = "" if chosen is None else chosen.name
        # Only a mail spool has mail tasks that a handler could send.
        by_handler = not self._setup.mail.is_ours and "mail spool" in self._setup.format.mail_parts
        return MailRoutes(
            order,
            selected,
            why_not,
            stopped,
            settings.method,
            recipient=settings.recipient,
            by_handler=by_handler,
        )

    def records(self) -> tuple[str, int]:
        with _errors_as_unavailable():
            settings = self._registry()[0]
            return settings.delivery_log, settings.delivery_log_max

    def read_backlog(self) -> MailBacklog | None:
        with _errors_as_unavailable():
            try:
                changed = os.stat(self._setup.queue.mail_spool).st_mtime_ns
            except FileNotFoundError:
                return None
            now, known = self._clock(), self._last_backlog
            # Each mail is a folder in the spool: while the mtime is the same, a full spool is not
            # read again.
            if known is None or known[0] != changed or not 0 <= now - known[1] < RECHECK_SECONDS:
                mails, oldest = self._setup.mail.spool().depth_and_oldest(time.time())
                self._last_backlog = known = changed, now, now - oldest, mails
        return MailBacklog(known[3], now - known[2] if known[3] else 0.0)

    def obstacle(self) -> str:
        why, token_at = self._setup.mail.handler().claim_gate(MAIL_SEND_KIND)
        return why if token_at is None else ""

    def find_unqueued(self, payloads: Collection[str], now: float) -> int:
        with _errors_as_unavailable():
            spool = self._setup.mail.spool()
            unnamed = [
                mail.meta
                for mail in spool.read_all()
                if isinstance(mail, Spooled) and mail.sent is None and mail.meta not in payloads
                if not 0 <= now - mail.created < QUEUING_GRACE_SECONDS
                if not (mail.queuing and is_being_sent(spool, mail.id))
            ]
            return sum(os.path.exists(path) for path in unnamed)  # the others were sent before

    def suspend(self, name: str, why: str) -> str:
        with _errors_as_unavailable():
            new, trouble = suspend_transport(self._setup, name, why)
        if not new:
            raise Unavailable(f"another operator suspended {name} first")
        return trouble

    def resume(self, name: str) -> str:
        with _errors_as_unavailable():
            new, trouble = resume_transport(self._setup, name)
        if not new:
            raise Unavailable(f"another operator resumed {name} first")
        return trouble

    def _registry(self) -> tuple[MailSettings, TransportRegistry]:
        if self._known is None or self._clock() - self._looked >= RECHECK_SECONDS:
            settings = self._setup.mail.settings()
            self._known, self._looked = (
                (settings, self._setup.mail.registry(settings)),
                self._clock(),
            )
        return self._known


@contextmanager
def _errors_as_unavailable() -> Iterator[None]:
    """Turn errors of reading and writing into `Unavailable` for the console.

    Raises:
        Unavailable: with the text of the error.
    """
    try:
        yield
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        raise Unavailable(f"{where}{error_text(error)}") from error
    except (ConfigError, CommandError, ValueError) as error:
        raise Unavailable(str(error)) from error


def make_place_mail(setup: Setup, argv: list[str]) -> PlaceMail:
    """The `PlaceMail` of a place; `argv` starts the program on it. Reads nothing yet."""
    mail_controls = _MailControls(setup, time.monotonic)
    return PlaceMail(
        suspended=mail_controls.stopped,
        routes=mail_controls.routes,
        suspend=mail_controls.suspend,
        resume=mail_controls.resume,
        records=mail_controls.records,
        backlog=mail_controls.read_backlog,
        obstacle=mail_controls.obstacle,
        find_unqueued=mail_controls.find_unqueued,
        uses_transports=setup.mail.is_ours,
        test_command=(*argv, "mail", "test"),
    )
