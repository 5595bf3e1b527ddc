"""The agent `errormail`: returns messages that the router could not route to their senders.

The host of a job names the form of the report, below MAILSHARE/forms. A message without a sender,
such as a report, is dropped.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence

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
from engine.formats.zmailer.spool.marks import Commit
from engine.formats.zmailer.submit import Router

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
            commit = Commit(message.name, tuple(message.changes(outcomes)))
            with self._router.stage(commit, report.chunks(file)) as send:
                if message.record(outcomes, is_atomic=True):
                    send()
                    return outcomes
        return ()

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
