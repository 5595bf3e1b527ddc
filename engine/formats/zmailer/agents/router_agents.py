"""The agents `hold` and `errormail`, which give mail to the router.

`hold` keeps messages until a condition is met: the host of a job is KEYWORD:ARGUMENT. A message
that is due is written into router/ with the recipient that it was suspended for; the tag in the
control file decides, so it is written once. `errormail` returns messages that the router could not
route to their senders: the host of a job names the form of the report, below MAILSHARE/forms. A
message without a sender, such as a report, is dropped.
"""

from __future__ import annotations

import os
import pwd
import re
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence

from engine.formats.zmailer import reports
from engine.formats.zmailer.agents.jobs import AgentMessage, AgentOutcome
from engine.formats.zmailer.diagnostics import Unreported
from engine.formats.zmailer.reports import (
    DeliveryReport,
    ReportedMessage,
    ReportForm,
    ReportSettings,
)
from engine.formats.zmailer.scheduling.agent_lines import Notary
from engine.formats.zmailer.spool.control_file import Diagnostic, RecipientLine
from engine.formats.zmailer.spool.scheduler_conf import parse_interval
from engine.formats.zmailer.submit import Router, copy_file, resubmission
from engine.text.decode import parse_digits
from engine.text.safe import safe_line
from engine.values import NamedTuple

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

        def chunks() -> Iterator[bytes]:
            yield resubmission(self._host, message.sender(recipients[0]), recipients)
            yield message.headers(recipients[0]) + b"\n"
            yield from body

        return message.give_to_router(self._router, outcomes, chunks())

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


_is_form_name = re.compile(rb"[a-z0-9][a-z0-9._-]{0,60}").fullmatch


class ErrormailAgent:
    """Writes a report into router/ for each job."""

    def __init__(
        self,
        router: Router,
        settings: ReportSettings,
        read_form: Callable[[str], ReportForm],
        name: str,
    ) -> None:
        """`read_form` reads the form with a name, or the default; `name` is that of the agent."""
        self._router, self._settings = router, settings
        self._read_form, self._name = read_form, name

    def deliver(
        self, message: AgentMessage, recipients: list[RecipientLine], host: bytes
    ) -> Sequence[AgentOutcome]:
        """Report that the locked recipients have failed."""
        with message.body(0) as file:
            start = file.read(reports.MAX_ENVELOPE_BYTES)
            reported = ReportedMessage(
                message.name,
                message.data,
                message.control.sender,
                os.fstat(file.fileno()).st_mtime_ns,
                start,
            )
            report = self._compose(reported, recipients, host, message.clock())
            if report is None:
                outcomes = [AgentOutcome(one, b"ok3", "error bounce dropped") for one in recipients]
                message.record(outcomes)
                return outcomes
            outcomes = [AgentOutcome(one, b"ok3", "returned to its sender") for one in recipients]
            return message.give_to_router(self._router, outcomes, report.chunks(file))

    def _compose(
        self, message: ReportedMessage, recipients: list[RecipientLine], host: bytes, now: float
    ) -> DeliveryReport | None:
        what = host.decode("utf-8", "replace")
        rows = [
            Unreported(
                -1,
                one,
                Diagnostic(
                    now,
                    Notary(
                        one.quad.user,
                        b"failed",
                        b"5.1.0 (address cannot be routed)",
                        report=f"x-local; 550 ({what})".encode(),
                        remote=b"",
                        agent=self._name.encode(),
                    ),
                    f"the address cannot be routed: {what}".encode(),
                ),
            )
            for one in recipients
        ]
        form = self._read_form(what if _is_form_name(host) else "")
        return reports.compose_report(message, rows, form, self._settings, now)
