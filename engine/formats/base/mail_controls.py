"""Mail transports of one place: state and routes for the console; suspend and resume, with a record
in the journal, as a control of the queue, and in the mail log."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from engine.config.validators import ConfigError
from engine.formats.base.format import Setup
from engine.logs.log_line import format_log_line
from engine.mail.send.mail_spool import Spooled
from engine.mail.send.queuing import is_being_sent
from engine.mail.send.suspensions import Suspension, describe_suspender
from engine.model import MAIL_SEND_KIND
from engine.monitor.transport_health import MailBacklog, MailRoutes, TransportSuspension
from engine.operations import controls
from engine.operations.controls import RESUMED, SUSPENDED, TRANSPORT_CONTROL, Order
from engine.operations.journal import Intent
from engine.places.mail_setup import QUEUING_GRACE_SECONDS
from engine.places.place import PlaceMail
from engine.store import Gone, Unavailable
from engine.system import files
from engine.system.command_errors import CommandError
from engine.text.error_text import error_text
from engine.text.safe import safe_line
from engine.text.times import format_time

if TYPE_CHECKING:
    from engine.config.mail_config import MailSettings
    from engine.mail.transports.registry import TransportRegistry


def suspend_transport(setup: Setup, name: str, why: str) -> tuple[bool, str]:
    """Suspend a transport. Return whether it was not suspended before, and the errors of logging.

    Raises:
        engine.system.command_errors.CommandError: permission denied.
        OSError, Unavailable: it could not be recorded; the transport stays active.
        ValueError: the file of suspended transports has unknown content.
    """
    who, why = safe_line(setup.current_user().name), safe_line(why)
    line = f"Transport {name} suspended by {who}{f': {why}' if why else ''}"
    suspend = partial(setup.mail.suspensions().suspend, name, time.time(), who, why)
    return _change(setup, Order(TRANSPORT_CONTROL, name, SUSPENDED), why, line, suspend)


def resume_transport(setup: Setup, name: str) -> tuple[bool, str]:
    """Resume a transport. Return whether it was suspended before, and the errors of logging.

    Raises:
        OSError, Unavailable, ValueError: as `suspend_transport`.
    """
    line = f"Transport {name} resumed by {safe_line(setup.current_user().name)}"
    resume = partial(setup.mail.suspensions().resume, name)
    return _change(setup, Order(TRANSPORT_CONTROL, name, RESUMED), "", line, resume)


def _change(
    setup: Setup, order: Order, why: str, log_line: str, change: Callable[[], bool]
) -> tuple[bool, str]:
    """Suspend or resume a transport, unless it is already; `log_line` records it."""
    setup.require_mail("transports")
    setup.require_writable()
    setup.make_folder(setup.state_folder)
    suspension = setup.mail.suspensions().read().get(order.target)
    if (suspension is not None) is (order.value == SUSPENDED):
        return False, ""
    before = "not suspended" if suspension is None else _suspension_phrase(suspension)

    def act(_: object) -> str:
        try:
            new = change()
        except OSError as error:
            where = f"{setup.state_folder}/suspended"
            raise OSError(error.errno, error_text(error), where) from error
        if not new:
            raise Gone(f"{order.target} was {order.value} by another process")
        return log_line

    intent = Intent(controls.CONTROL_VERB, setup.current_user(), why, scope="all mail from here")
    order, journal = order._replace(before=before), setup.journal()
    try:
        done = controls.run_journaled_action(journal, intent, order, act, time.time)
    except Gone:
        return False, ""
    troubles = (done.trouble, _log_change(setup, log_line), _publish_metrics(setup))
    return True, "; ".join(filter(None, troubles))


def _suspension_phrase(suspension: Suspension) -> str:
    why = f" ({safe_line(suspension.why)})" if suspension.why else ""
    return f"{describe_suspender(suspension)} since {format_time(suspension.since)}{why}"


def _log_change(setup: Setup, text: str) -> str:
    """Append a line to the mail log; returns the error text, or ""."""
    path = f"{setup.queue.log_dir}/mail.log"
    try:
        setup.make_folder(setup.queue.log_dir)
        files.append(path, format_log_line("INFO", text, time.time()), root=setup.queue.root)
    except OSError as error:
        return f"not logged in {safe_line(path)}: {error_text(error)}"
    return ""


def _publish_metrics(setup: Setup) -> str:
    """Write the mail metrics again; returns the error text, or ""."""
    troubles: list[str] = []
    if setup.mail.has_files():
        try:
            settings = setup.mail.settings()
            chooser = setup.mail.chooser(settings, setup.mail.registry(settings))
            setup.mail.sender(chooser, complain=troubles.append).publish()
        except (ConfigError, OSError) as error:
            troubles.append(f"{safe_line(str(error))}; mail metrics not updated")
    return "; ".join(troubles)


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
        clock), and number of mails."""

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
            is_assumed=not self._setup.config.path,
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
            self._known = settings, self._setup.mail.registry(settings)
            self._looked = self._clock()
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
