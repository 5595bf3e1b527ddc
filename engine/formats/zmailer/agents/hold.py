"""The agent `hold`: keeps messages until a condition is met, and gives them to the router again.

The host of a job is KEYWORD:ARGUMENT. A message that is due is written into router/ with the
recipient that it was suspended for; the tag in the control file decides, so it is written once.
"""

from __future__ import annotations

import os
import pwd
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from engine.formats.zmailer.agents.jobs import AgentMessage, AgentOutcome
from engine.formats.zmailer.scheduling.agent_lines import Notary
from engine.formats.zmailer.spool.control_file import RecipientLine
from engine.formats.zmailer.spool.marks import Commit
from engine.formats.zmailer.spool.scheduler_conf import parse_interval
from engine.formats.zmailer.submit import Router, copy_file, resubmission
from engine.text.decode import parse_digits
from engine.text.safe import safe_line

IO_WAIT_SECONDS = 300.0
"""After a temporary error (`io:`) the router may try again."""


class HoldCase(NamedTuple):
    """What a condition depends on."""

    argument: str
    now: float
    """Epoch seconds UTC."""
    modified: float
    """Time of the message file."""


class WrongHold(Exception):
    """The host of a job is no condition: the message says why."""


Resolve = Callable[[str], bool]
"""True if the address of a name is known now, or if it is certain that it has none."""


def resolve(name: str) -> bool:
    """Look up a name (getaddrinfo)."""
    try:
        socket.getaddrinfo(name, None)
    except socket.gaierror as error:
        return error.errno not in (socket.EAI_AGAIN, socket.EAI_SYSTEM)
    return True


def is_due(host: str, now: float, modified: float, resolve: Resolve = resolve) -> bool:
    """True if the condition of a host, KEYWORD:ARGUMENT, is met. Raises WrongHold: it is none that
    we know."""
    keyword, _, argument = host.partition(":")
    condition = HoldCase(argument, now, modified)
    if keyword == "ns":
        return resolve(argument.partition("/")[0])
    if keyword not in _CONDITIONS:
        known = ", ".join(("ns", *_CONDITIONS))
        raise WrongHold(f"hold: unknown condition {safe_line(keyword)}, expected one of {known}")
    return _CONDITIONS[keyword](condition)


def _is_past(condition: HoldCase) -> bool:
    at = parse_digits(condition.argument, 10**12)
    if at is None:
        raise WrongHold(f"hold: timeout:{safe_line(condition.argument)}: expected epoch seconds")
    return condition.now >= at


def _is_old(condition: HoldCase) -> bool:
    try:
        return condition.now - condition.modified >= parse_interval(condition.argument)
    except ValueError as error:
        raise WrongHold(f"hold: age: {error}") from None


def _has_home(condition: HoldCase) -> bool:
    """True if the home directory of a user can be reached, or if there is no such user: then the
    router finds out."""
    try:
        return os.path.isdir(pwd.getpwnam(condition.argument).pw_dir)
    except KeyError:
        return True


def _refuse_script(condition: HoldCase) -> bool:
    raise WrongHold("hold: script: is not run: its name and arguments would come from a mail")


_CONDITIONS: Mapping[str, Callable[[HoldCase], bool]] = {
    "timeout": _is_past,
    "age": _is_old,
    "home": _has_home,
    "io": lambda condition: condition.now - condition.modified >= IO_WAIT_SECONDS,
    "script": _refuse_script,
}


class HoldAgent:
    """Gives messages that are due to the router."""

    def __init__(self, router: Router, host: str, resolve: Resolve = resolve) -> None:
        """`host` is our own name."""
        self._router, self._host, self._resolve = router, host, resolve

    def deliver(
        self, message: AgentMessage, recipients: list[RecipientLine], host: bytes
    ) -> Sequence[AgentOutcome]:
        """Resubmit the message for its locked recipients, or defer them."""
        try:
            with message.body() as body:
                modified = os.fstat(body.fileno()).st_mtime
                if is_due(
                    host.decode("utf-8", "replace"), message.clock(), modified, self._resolve
                ):
                    return self._resubmit(message, recipients, copy_file(body))
            return self._defer(message, recipients, "4.4.3 (condition not met)", "not due yet")
        except WrongHold as wrong:
            return self._defer(message, recipients, "5.3.5 (wrong condition)", str(wrong))

    def _resubmit(
        self, message: AgentMessage, recipients: list[RecipientLine], body: Iterator[bytes]
    ) -> Sequence[AgentOutcome]:
        outcomes = [AgentOutcome(one, b"ok3", "resubmitted") for one in recipients]
        commit = Commit(message.name, tuple(message.changes(outcomes)))

        def chunks() -> Iterator[bytes]:
            yield resubmission(self._host, message.sender(recipients[0]), recipients)
            yield message.headers(recipients[0]) + b"\n"
            yield from body

        with self._router.stage(commit, chunks()) as send:
            if message.record(outcomes, is_atomic=True):
                send()
                return outcomes
        return ()

    def _defer(
        self, message: AgentMessage, recipients: list[RecipientLine], status: str, text: str
    ) -> Sequence[AgentOutcome]:
        report = f"x-local; 466 ({text})"
        outcomes = [
            AgentOutcome(
                one,
                b"deferred",
                text,
                Notary(one.quad.user, b"delayed", status.encode(), report.encode()),
            )
            for one in recipients
        ]
        message.record(outcomes)
        return outcomes
