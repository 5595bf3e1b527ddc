"""Suspend and resume a mail transport of a place.

The change is recorded in the journal as a control of the queue, and in the mail log.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from engine.config.validators import ConfigError
from engine.formats.base.format import Setup
from engine.logs.log_line import format_log_line
from engine.mail.send.suspensions import Suspension
from engine.operations import controls
from engine.operations.controls import RESUMED, SUSPENDED, TRANSPORT_CONTROL, Order
from engine.operations.journal import Intent
from engine.places.mail_setup import describe_suspender
from engine.store import Gone
from engine.system import files
from engine.text.error_text import error_text
from engine.text.safe import safe_line
from engine.text.times import format_time


def suspend_transport(setup: Setup, name: str, why: str) -> tuple[bool, str]:
    """Suspend a transport. Return whether it was not suspended before, and the errors of logging.

    Raises:
        engine.system.command_errors.CommandError: permission denied.
        OSError, Unavailable: it could not be recorded; the transport stays active.
        ValueError: the file of suspended transports has unknown content.
    """
    who, why = safe_line(setup.current_user().name), safe_line(why)
    return _change(
        setup,
        Order(TRANSPORT_CONTROL, name, SUSPENDED),
        why,
        f"Transport {name} suspended by {who}{f': {why}' if why else ''}",
        lambda: setup.mail.suspensions().suspend(name, time.time(), who, why),
    )


def resume_transport(setup: Setup, name: str) -> tuple[bool, str]:
    """Resume a transport. Return whether it was suspended before, and the errors of logging.

    Raises:
        OSError, Unavailable, ValueError: as `suspend_transport`.
    """
    return _change(
        setup,
        Order(TRANSPORT_CONTROL, name, RESUMED),
        "",
        f"Transport {name} resumed by {safe_line(setup.current_user().name)}",
        lambda: setup.mail.suspensions().resume(name),
    )


def _change(
    setup: Setup, order: Order, why: str, log_line: str, change: Callable[[], bool]
) -> tuple[bool, str]:
    """Suspend or resume a transport, unless it is already; `log_line` records it."""
    setup.require_mail("transports")
    _make_state_folder(setup)
    suspension = setup.mail.suspensions().read().get(order.target)
    if (suspension is not None) is (order.value == SUSPENDED):
        return False, ""
    before = "not suspended" if suspension is None else _suspension_phrase(suspension)

    def act() -> str:
        try:
            new = change()
        except OSError as error:
            where = f"{setup.state_folder}/suspended"
            raise OSError(error.errno, error_text(error), where) from error
        if not new:
            raise Gone(f"{order.target} was {order.value} by another process")
        return log_line

    intent = Intent(controls.CONTROL_VERB, setup.current_user(), why, scope="all mail from here")
    journaled_order = order._replace(before=before)
    try:
        done = controls.run_journaled_action(
            setup.journal(), intent, journaled_order, act, time.time
        )
    except Gone:
        return False, ""
    troubles = (done.trouble, _log_change(setup, log_line), _publish_metrics(setup))
    return True, "; ".join(filter(None, troubles))


def _suspension_phrase(suspension: Suspension) -> str:
    """The same for the middle of a sentence."""
    why = f" ({safe_line(suspension.why)})" if suspension.why else ""
    return f"{describe_suspender(suspension)} since {format_time(suspension.since)}{why}"


def _make_state_folder(setup: Setup) -> None:
    setup.require_writable()
    setup.make_folder(setup.state_folder)


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
            setup.mail.sender(
                settings, setup.mail.registry(settings), complain=troubles.append
            ).publish()
        except (ConfigError, OSError) as error:
            troubles.append(f"{safe_line(str(error))}; mail metrics not updated")
    return "; ".join(troubles)
