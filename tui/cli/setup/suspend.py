"""Suspending a transport and resuming it: by command, or for the console.

The journal has it as a control of the queue; the mail log says so to whoever wonders there.
"""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Callable, Mapping

from engine.config.mail_config import MEMORY, METHODS
from engine.config.validators import ConfigError
from engine.logs.log_tail import contract_line
from engine.mail.send.suspensions import Suspension
from engine.operations import controls
from engine.operations.controls import Order
from engine.operations.journal import Intent
from engine.policy import at
from engine.store import Gone
from engine.system import files
from engine.text.safe import shown
from tui.cli.setup.mail_parts import held_by, why_none
from tui.cli.setup.setup import EX_CONFIG, EX_USAGE, Setup, complain, fail

DONE = 0

WHAT = "transport"
"""What the journal calls it; its target is the transport."""

SUSPENDED, RESUMED = "suspended", "resumed"
"""Its values."""


def suspend(setup: Setup, arguments: Namespace) -> int:
    """Let nothing be sent by a transport until it is resumed."""
    name = arguments.name
    require_name(name)
    suspended(setup)
    _require_reason(setup, arguments.reason)
    new, trouble = stop(setup, name, arguments.reason)
    words = "suspended" if new else f"was {standing(suspended(setup)[name])} already"
    if not new and arguments.reason:
        complain(f"{name}: the reason stays as it was; resume it first to give another one")
    return _said(setup, f"{name} {words}", trouble)


def resume(setup: Setup, arguments: Namespace) -> int:
    """Let mail be sent by a transport again."""
    name = arguments.name
    require_name(name)
    suspended(setup)
    new, trouble = start(setup, name)
    return _said(setup, f"{name} {'resumed' if new else 'was not suspended'}", trouble)


def _said(setup: Setup, words: str, trouble: str) -> int:
    if trouble:
        complain(trouble)
    print(f"{words}: {_meanwhile(setup)}")
    return DONE


def stop(setup: Setup, name: str, why: str) -> tuple[bool, str]:
    """Suspend a transport; whether it was not suspended already, and what was not written down.

    Raises:
        Fail: we may not.
        OSError: it could not be written down, and goes on.
        Unavailable: the same, of the journal.
        ValueError: what is written down there is none of ours.
    """
    who, why = shown(setup.who().name), shown(why)
    return _change(
        setup,
        Order(WHAT, name, SUSPENDED),
        why,
        f"Transport {name} suspended by {who}{f': {why}' if why else ''}",
        lambda: setup.suspensions().suspend(name, time.time(), who, why),
    )


def start(setup: Setup, name: str) -> tuple[bool, str]:
    """Resume a transport; whether it was suspended, and what was not written down.

    Raises:
        Fail, OSError, Unavailable, ValueError: as `stop`.
    """
    return _change(
        setup,
        Order(WHAT, name, RESUMED),
        "",
        f"Transport {name} resumed by {shown(setup.who().name)}",
        lambda: setup.suspensions().resume(name),
    )


def _change(
    setup: Setup, order: Order, why: str, said: str, change: Callable[[], bool]
) -> tuple[bool, str]:
    """Suspend or resume a transport, unless it is so already; `said` tells of it."""
    _require_desk(setup)
    own = setup.suspensions().read().get(order.target)
    if (own is not None) is (order.value == SUSPENDED):
        return False, ""
    before = "not suspended" if own is None else _was(own)

    def act() -> str:
        try:
            new = change()
        except OSError as error:
            where = f"{setup.desk}/suspended"
            raise OSError(error.errno, error.strerror or str(error), where) from error
        if not new:
            raise Gone(f"{order.target} was {order.value} meanwhile")
        return said

    intent = Intent(controls.VERB, setup.who(), why, scope="all mail from here")
    seen = order._replace(before=before)
    try:
        done = controls.written_down(setup.journal(), intent, seen, act, time.time)
    except Gone:
        return False, ""
    troubles = (done.trouble, _note(setup, said), _publish(setup))
    return True, "; ".join(filter(None, troubles))


def standing(own: Suspension) -> str:
    """That a transport is suspended: by whom, since when and why."""
    why = f": {shown(own.why)}" if own.why else ""
    return f"{held_by(own)} since {at(own.since)}{why}"


def _was(own: Suspension) -> str:
    """The same in the middle of a sentence."""
    why = f" ({shown(own.why)})" if own.why else ""
    return f"{held_by(own)} since {at(own.since)}{why}"


def suspended(setup: Setup) -> Mapping[str, Suspension]:
    """What is suspended.

    Raises:
        Fail: that is not known.
    """
    try:
        return setup.suspensions().read()
    except ValueError as error:
        fail(EX_CONFIG, shown(str(error)))


def _require_reason(setup: Setup, reason: str) -> None:
    """Make sure that a reason is said where the configuration asks for one.

    Raises:
        Fail: none is.
    """
    if setup.config.require_reason and not reason.strip():
        fail(EX_USAGE, "expected a REASON: the configuration says `require_reason: true`")


def require_name(name: str) -> None:
    """Make sure that this is a transport.

    Raises:
        Fail: it is none; the text has their names.
    """
    if name not in (*METHODS, MEMORY):
        fail(EX_USAGE, f"transport {shown(name)}: expected one of {', '.join(METHODS)}")


def _require_desk(setup: Setup) -> None:
    setup.require_change()
    setup.make_folder(setup.spool().desk)


def _meanwhile(setup: Setup) -> str:
    """What becomes of mail now."""
    settings, held = setup.mail_settings(), suspended(setup)
    choice = setup.ways(settings).choose(held)
    if choice.transport is not None:
        return f"mail goes by {choice.transport.name}"
    return (
        f"nothing is sent, and what is spooled waits ({why_none(settings, choice.why_not, held)})"
    )


def _note(setup: Setup, text: str) -> str:
    """Add a line to the mail log, for whoever wonders there why nothing is sent by it; answers
    with why it could not be added, "" when it was."""
    path = f"{setup.queue.log_dir}/mail.log"
    try:
        setup.make_folder(setup.queue.log_dir)
        files.append(path, contract_line("INFO", text, time.time()), root=setup.queue.root)
    except OSError as error:
        return f"{shown(path)} does not say so: {error.strerror}"
    return ""


def _publish(setup: Setup) -> str:
    """Let the metrics of mail say by what it goes now; answers as `_note` does."""
    told: list[str] = []
    if setup.has_mail():
        try:
            settings = setup.mail_settings()
            setup.post(settings, setup.ways(settings), tell=told.append).publish()
        except (ConfigError, OSError) as error:
            told.append(f"{shown(str(error))}; the metrics of mail do not say so")
    return "; ".join(told)
