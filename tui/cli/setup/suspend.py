"""`mail suspend` and `mail resume`: stop sending by a transport, and send by it again."""

from __future__ import annotations

from collections.abc import Mapping

from engine.config.mail_config import MEMORY, METHODS
from engine.formats.base.format import Setup
from engine.formats.base.mail_controls import resume_transport, suspend_transport
from engine.mail.send.suspensions import Suspension, describe_suspender
from engine.mail.send.transport_chooser import describe_no_transport
from engine.system.command_errors import EX_CONFIG, EX_USAGE, fail, print_error
from engine.text.safe import safe_line
from engine.text.times import format_time
from tui.cli.setup.output import Answer


def suspend(setup: Setup, name: str, reason: str) -> Answer:
    """Stop sending by a transport until it is resumed."""
    require_name(name)
    read_suspended(setup)
    if setup.config.require_reason and not reason.strip():
        fail(EX_USAGE, "expected a REASON: the configuration has `require_reason: true`")
    new, trouble = suspend_transport(setup, name, reason)
    words = (
        "suspended" if new else f"was already {describe_suspension(read_suspended(setup)[name])}"
    )
    if not new and reason:
        print_error(f"{name}: the reason is unchanged; resume it first to change the reason")
    return _answer(setup, name, words, trouble)


def resume(setup: Setup, name: str) -> Answer:
    """Send by a transport again."""
    require_name(name)
    read_suspended(setup)
    new, trouble = resume_transport(setup, name)
    return _answer(setup, name, "resumed" if new else "was not suspended", trouble)


def _answer(setup: Setup, name: str, change: str, trouble: str) -> Answer:
    if trouble:
        print_error(trouble)
    text = f"{name} {change}"
    return Answer(
        lambda: {"transport": name, "suspended": name in read_suspended(setup), "text": text},
        lambda: [f"{text}: {_describe_transport(setup)}"],
    )


def describe_suspension(suspension: Suspension) -> str:
    """Describe a suspension: by whom, since when and why."""
    why = f": {safe_line(suspension.why)}" if suspension.why else ""
    return f"{describe_suspender(suspension)} since {format_time(suspension.since)}{why}"


def read_suspended(setup: Setup) -> Mapping[str, Suspension]:
    """The suspended transports."""
    try:
        return setup.mail.suspensions().read()
    except ValueError as error:
        fail(EX_CONFIG, str(error))


def require_name(name: str) -> None:
    """Check that this is the name of a transport."""
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
