"""`mail suspend` and `mail resume`: stop sending by a transport, and send by it again."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping

from engine.config.mail_config import MEMORY, METHODS
from engine.formats.base.format import Setup
from engine.formats.base.mail_controls import resume_transport, suspend_transport
from engine.mail.send.suspensions import Suspension
from engine.places.mail_setup import describe_no_transport, describe_suspender
from engine.system.command_errors import EX_CONFIG, EX_USAGE, fail, print_error
from engine.text.safe import safe_line
from engine.text.times import format_time
from tui.cli.setup.output import print_json

DONE = 0


def suspend(setup: Setup, arguments: Namespace) -> int:
    """Stop sending by a transport until it is resumed."""
    name = arguments.name
    require_name(name)
    read_suspended(setup)
    _require_reason(setup, arguments.reason)
    new, trouble = suspend_transport(setup, name, arguments.reason)
    words = (
        "suspended" if new else f"was already {describe_suspension(read_suspended(setup)[name])}"
    )
    if not new and arguments.reason:
        print_error(f"{name}: the reason is unchanged; resume it first to change the reason")
    return _print_change(setup, f"{name} {words}", trouble, arguments)


def resume(setup: Setup, arguments: Namespace) -> int:
    """Send by a transport again."""
    name = arguments.name
    require_name(name)
    read_suspended(setup)
    new, trouble = resume_transport(setup, name)
    words = "resumed" if new else "was not suspended"
    return _print_change(setup, f"{name} {words}", trouble, arguments)


def _print_change(setup: Setup, words: str, trouble: str, arguments: Namespace) -> int:
    if trouble:
        print_error(trouble)
    if arguments.json:
        is_suspended = arguments.name in read_suspended(setup)
        print_json({"transport": arguments.name, "suspended": is_suspended, "text": words})
        return DONE
    print(f"{words}: {_describe_transport(setup)}")
    return DONE


def describe_suspension(suspension: Suspension) -> str:
    """Describe a suspension: by whom, since when and why."""
    why = f": {safe_line(suspension.why)}" if suspension.why else ""
    return f"{describe_suspender(suspension)} since {format_time(suspension.since)}{why}"


def read_suspended(setup: Setup) -> Mapping[str, Suspension]:
    """The suspended transports.

    Raises:
        CommandError: the file of suspended transports is invalid.
    """
    try:
        return setup.mail.suspensions().read()
    except ValueError as error:
        fail(EX_CONFIG, str(error))


def _require_reason(setup: Setup, reason: str) -> None:
    """Require a reason if the configuration does.

    Raises:
        CommandError: the option is missing.
    """
    if setup.config.require_reason and not reason.strip():
        fail(EX_USAGE, "expected a REASON: the configuration has `require_reason: true`")


def require_name(name: str) -> None:
    """Check that this is the name of a transport.

    Raises:
        CommandError: it is not; the text lists the names.
    """
    if name not in (*METHODS, MEMORY):
        fail(EX_USAGE, f"transport {safe_line(name)}: expected one of {', '.join(METHODS)}")


def _describe_transport(setup: Setup) -> str:
    """Say by which transport mail is sent now."""
    settings, suspended = setup.mail.settings(), read_suspended(setup)
    choice = setup.mail.registry(settings).choose(suspended)
    if choice.transport is not None:
        return f"mail goes by {choice.transport.name}"
    why = describe_no_transport(settings, choice.why_not, suspended)
    return f"nothing is sent, spooled mail waits ({why})"
