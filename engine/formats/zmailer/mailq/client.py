"""A client of MAILQ, versions 1 and 2: what a server shows as values; requests to change it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from engine.formats.zmailer.mailq import job_text, report_text
from engine.formats.zmailer.mailq.acl import Right
from engine.formats.zmailer.mailq.connection import (
    ANSWER_SECONDS,
    MailqConnection,
    ServerAddress,
    shown_answer,
)
from engine.formats.zmailer.mailq.job_text import ThreadJobs
from engine.formats.zmailer.mailq.queue_view import GroupView, SchedulerView, TotalsView
from engine.formats.zmailer.mailq.report_text import BadReport, decode
from engine.formats.zmailer.mailq.session import MULTI_LINE
from engine.store import Unavailable, Unsupported
from engine.text.safe import safe_line

T = TypeVar("T")

NO_HOST = "spooldeck.invalid"
"""A host that never has mail (RFC 2606): ETRN of it shows whether ETRN is permitted."""
_PROBES = (
    (Right.SNMP, "SHOW SNMP"),
    (Right.QQ, "SHOW QUEUE SHORT"),
    (Right.TT, "SHOW THREAD spooldeck spooldeck.invalid"),
    (Right.ETRN, f"ETRN {NO_HOST}"),
    (Right.KILL, "KILL ?"),
)
"""Commands that change nothing, each with the right that it needs."""


class MailqClient:
    """The connection to one server; it connects when it is used. One thread at a time uses it."""

    def __init__(
        self,
        address: ServerAddress,
        clock: Callable[[], float] = time.time,
        *,
        seconds: float = ANSWER_SECONDS,
    ) -> None:
        """`clock` is epoch seconds UTC; `seconds` bounds each answer."""
        self.address, self._clock = address, clock
        self._connection = MailqConnection(address, seconds)
        self.close = self._connection.close
        self.version = 0
        """1 or 2, as of the last connection; 0 before the first."""
        self._rights: frozenset[Right] | None = None

    def find_version(self) -> int:
        """The version of the server; connects if that was not done yet. Raises Unavailable: it
        cannot be reached, or refuses the login."""
        if not self.version:
            self.version = self._connection.log_in()
        return self.version

    def find_rights(self) -> frozenset[Right]:
        """What the server lets this user do: each right is tried once, by a command that changes
        nothing. Of version 1 there are none. Raises Unavailable: the server cannot be reached."""
        if self.find_version() == 1:
            return frozenset()
        if self._rights is None:
            self._rights = frozenset(right for right, command in _PROBES if self._may(command))
        return self._rights

    def _may(self, command: str) -> bool:
        answer = self._ask(command)
        if answer == MULTI_LINE:
            self._connection.read_lines()
        return not answer.startswith(("-MAILQ2", "-No ", "-BAD"))

    def dump(self) -> SchedulerView:
        """All that a server of version 1 shows, on a new connection. Raises Unavailable: the server
        cannot be reached, or its dump has another form."""
        self._connection.open()
        try:
            data = self._connection.read_to_end()
        finally:
            self.close()
        try:
            return job_text.parse_dump(decode(data).removesuffix("\n"), self._clock())
        except BadReport as error:
            raise self._connection.error(str(error)) from None

    def threads(self) -> tuple[tuple[GroupView, ...], TotalsView]:
        """The groups with their threads, and the totals."""
        parse = report_text.parse_report
        return self._parsed("SHOW QUEUE THREADS", lambda lines: parse(lines, self._clock()))

    def jobs(self, channel: str, host: str) -> ThreadJobs:
        """A thread and its jobs."""
        parse = job_text.parse_thread_jobs
        return self._parsed(
            f"SHOW THREAD {channel} {host}",
            lambda lines: parse(lines, channel, host, self._clock()),
        )

    def _parsed(self, command: str, parse: Callable[[list[str]], T]) -> T:
        lines = self.show(command)
        try:
            return parse(lines)
        except BadReport as error:
            raise self._connection.error(f"{command}: {error}") from None

    def show(self, command: str) -> list[str]:
        """The lines of an answer that ends with a dot.

        A connection that the server has ended meanwhile is replaced once. Raises Unsupported: the
        server refuses the command; Unavailable: the server cannot be reached."""
        answer = self._ask(command)
        if answer != MULTI_LINE:
            raise Unsupported(f"{self.address.text}: {command}: {shown_answer(answer)}")
        return self._connection.read_lines()

    def request(self, command: str) -> str:
        """Send an ETRN or KILL; return the answer, which proves nothing: read again. Raises
        Unsupported: the server refuses it; Unavailable: the server cannot be reached; it may have
        been done."""
        answer = self._ask(command, can_repeat=False)
        if not answer.startswith("+"):
            raise Unsupported(f"{self.address.text}: {command}: {shown_answer(answer)}")
        return answer

    def _ask(self, command: str, *, can_repeat: bool = True) -> str:
        if any(not c.isprintable() and not "\udc80" <= c <= "\udcff" for c in command):
            raise Unsupported(f"control characters in {safe_line(command)!r}")
        was_open = self._connection.is_usable
        if not was_open:
            self.version = self._connection.log_in()
        if self.version == 1:
            raise Unsupported(f"{self.address.text}: MAILQ version 1 has no commands")
        try:
            self._connection.send(command)
            return self._connection.read_line(skips_empty=True)
        except Unavailable:
            if not (was_open and can_repeat):
                raise
        self.version = self._connection.log_in()  # the server had ended the old one
        self._connection.send(command)
        return self._connection.read_line(skips_empty=True)
