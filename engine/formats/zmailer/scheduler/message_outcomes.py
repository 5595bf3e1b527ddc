"""Record outcomes in control files: diagnostics, tags, expiry; complete and remove messages.

Agents write tags. The scheduler writes the tag of a recipient only if no agent has it: expired,
killed, or answered without one. After a kill at any step the next process finds either the tag or
the recipient to do, never neither, and each failure has a diagnostic that is reported once.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress

from engine.formats.zmailer import diagnostics
from engine.formats.zmailer.diagnostics import Unreported
from engine.formats.zmailer.scheduler.message_places import MessagePlaces
from engine.formats.zmailer.scheduler.message_reading import (
    QueuedMessageReader,
    append_lines,
    append_lost_failures,
    lost_failures,
    write_heads,
)
from engine.formats.zmailer.scheduling.agent_lines import AgentAnswer, Notary
from engine.formats.zmailer.scheduling.jobs import Job, QueuedMessage
from engine.formats.zmailer.scheduling.table import JobGroup
from engine.formats.zmailer.spool import marks, names
from engine.formats.zmailer.spool.control_file import (
    ControlFile,
    Diagnostic,
    RecipientLine,
    parse_control_file,
    parse_layout,
)
from engine.formats.zmailer.spool.folders import OpenControl, read_whole
from engine.model import State
from engine.system.files import Refused

MAX_LINE_BYTES = 1 << 16
"""Bytes of a recipient line and its DSN parameters."""

UNKNOWN_ADDRESS = b"\3"
"""In place of an address: a report has that of the recipient line (ZMailer 3.0.1)."""

_HEADER_BYTES = 4096
"""The format line (@) is among the first fields of a file: some routers write `v` before it."""
_MAX_CACHED = 100
_NO_ACCESS = (TimeoutError, Refused)


Reporter = Callable[[OpenControl, bytes, ControlFile, int, float], None]
"""As `SenderReports.report`; if it raises OSError or `Unavailable`, the message stays."""


class MessageOutcomes:
    """Records outcomes in the control files of one spool."""

    def __init__(
        self, places: MessagePlaces, reader: QueuedMessageReader, report: Reporter
    ) -> None:
        self._places, self._reader, self._report = places, reader, report
        self._header_offsets: dict[int, tuple[int, ...]] = {}

    def record(self, job: Job, answer: AgentAnswer, now: float) -> tuple[JobGroup, ...]:
        """Record that a recipient is finished, as its agent has answered. Return further jobs of
        the message: the next one of mutually exclusive recipients, if this one has failed. Raises
        OSError: it cannot be written now."""
        message, rule = job.message, answer.rule
        with suppress(FileNotFoundError), self._open(message) as opened:  # else it was removed
            line = os.pread(opened.fd, MAX_LINE_BYTES, answer.offset)
            if line[:1] == b"X":
                return self._record_alternative(opened.fd, message, answer, line, now)
            if line[1:2] in marks.UNFINISHED:  # the tag that the agent has not written
                end = State.DEAD if rule.is_failure else State.DONE
                head = parse_line(opened.fd, line).head
                write_heads(opened.fd, {answer.offset: marks.marked(head, end)})
            if rule.notify and _is_notified(line, rule.notify):
                self._append(opened.fd, message, answer, line, now)
        return ()

    def _open(
        self, message: QueuedMessage, errors: tuple[type[Exception], ...] = (TimeoutError,)
    ) -> AbstractContextManager[OpenControl]:
        return self._places.open_now(message.name, message.path, errors)

    def _record_alternative(
        self, fd: int, message: QueuedMessage, answer: AgentAnswer, line: bytes, now: float
    ) -> tuple[JobGroup, ...]:
        """After a success the other recipients of its class are finished too. After a failure the
        next one is tried; the failure of the last one is reported."""
        recipients = parse_control_file(read_whole(fd)[0]).recipients
        recipient = next((one for one in recipients if one.offset == answer.offset), None)
        if recipient is None:
            return ()
        is_failure = answer.rule.is_failure
        same_class = [one for one in recipients if one.alternative == recipient.alternative]
        end = State.DEAD if is_failure else State.DONE
        heads = {
            one.offset: marks.marked(one.head, end)
            for one in same_class
            if (one is recipient or not is_failure) and one.head[:1] in marks.UNFINISHED
        }
        write_heads(fd, heads)
        others = marks.to_do(
            one for one in same_class if one.offset not in heads and one is not recipient
        )
        if is_failure and others:
            return self._reader.find_groups(others)[0]
        if is_failure or _is_notified(line, answer.rule.notify):
            self._append(fd, message, answer, line, now)
        return ()

    def _append(
        self, fd: int, message: QueuedMessage, answer: AgentAnswer, line: bytes, now: float
    ) -> None:
        if message.number not in self._header_offsets:
            fields = diagnostics.fields_of(read_whole(fd)[0])
            blocks = (at for at, line in fields if line[:1] == b"m")
            if len(self._header_offsets) >= _MAX_CACHED:
                self._header_offsets.clear()
            self._header_offsets[message.number] = tuple(at + 2 for at in blocks)
        headers = (at for at in self._header_offsets[message.number] if at > answer.offset)
        dsn = diagnostics.dsn_offset(line, 0)
        append_lines(
            fd,
            diagnostics.format_line(
                answer.offset,
                next(headers, -1),
                -1 if dsn < 0 else answer.offset + dsn,
                _diagnostic_of(answer, now),
            ),
        )

    def record_lost(self, message: QueuedMessage) -> None:
        """Append a diagnostic for each failed recipient of a message without one. Raises OSError,
        Refused: that is not possible now."""
        with suppress(FileNotFoundError), self._open(message) as opened:
            data, file_stat = read_whole(opened.fd)
            append_lost_failures(opened.fd, data, parse_control_file(data), file_stat)

    def expire(self, job: Job, now: float) -> None:
        """Let all recipients to do of a job fail: they are too old. Durable on return: first the
        tags, then the diagnostics, with one fsync. If the process is killed between, the next one
        appends others, but another scheduler than ours does not: so nothing slow may come between.
        Raises OSError: it cannot be written now, or another process has a recipient."""
        with suppress(FileNotFoundError), self._open(job.message, _NO_ACCESS) as opened:
            data, _ = read_whole(opened.fd)
            ended = [
                one
                for one in parse_control_file(data).recipients
                if job.is_todo(one.offset) and marks.state_of(one.head) is State.PENDING
            ]
            age, last = _format_age(now - job.message.modified), _last_problem(job, now)
            lines = []
            for one in ended:
                text = diagnostics.timeout(one, last, age, now, is_final=True)
                lines.append(diagnostics.format_diagnostic(data, one.offset, text))
            for one in ended:
                marks.write_mark(opened.fd, one.offset, marks.marked(one.head, State.DEAD))
            if lines:
                append_lines(opened.fd, b"".join(lines))

    def delay(self, job: Job, now: float) -> None:
        """Inform the sender that recipients still wait, if it wants that and was not informed: by a
        diagnostic with the action delayed, and a report. Raises OSError, Unavailable, Refused: that
        is not possible now."""
        with suppress(FileNotFoundError), self._open(job.message) as opened:
            data, _ = read_whole(opened.fd)
            control = parse_control_file(data)
            age, last = _format_age(now - job.message.modified), _last_problem(job, now)
            lines = []
            for one in control.recipients:
                known = control.diagnostics.get(one.offset)
                if not job.is_todo(one.offset) or (known and b"delayed" in known.notary):
                    continue
                text = diagnostics.timeout(one, last, age, now, is_final=False)
                if diagnostics.is_wanted(Unreported(-1, one, text)):
                    lines.append(diagnostics.format_diagnostic(data, one.offset, text))
            if lines:
                append_lines(opened.fd, b"".join(lines))
                data, _ = read_whole(opened.fd)
                self._report_open(opened, data, job.message, now)

    def report(self, message: QueuedMessage, now: float) -> None:
        """Report the diagnostics of a message that is not finished yet. Raises OSError,
        Unavailable: that is not possible now."""
        # One that is refused is read again when its recipients are finished.
        with suppress(FileNotFoundError, Refused), self._open(message) as opened:
            data, _ = read_whole(opened.fd)
            self._report_open(opened, data, message, now)

    def complete(self, message: QueuedMessage, now: float) -> tuple[int, int] | None:
        """Report and remove a message whose recipients are all finished. Return how many there
        were, and how many of them have failed. None if its file has some to do, or a failure
        without a diagnostic: read it again. `MessagePlaces.flush` makes the removal durable. Raises
        OSError, Unavailable: that is not possible now; the message is still there."""
        try:
            with self._open(message) as opened:
                data, _ = read_whole(opened.fd)
                control = parse_control_file(data)
                recipients = control.recipients
                is_locked = any(one.head[:1] == marks.LOCKED for one in recipients)
                if is_locked or marks.to_do(recipients) or lost_failures(control):
                    return None
                self._report_open(opened, data, message, now)
                self._places.remove(opened)
        except FileNotFoundError:
            return 0, 0
        except Refused:
            return None  # reading it parks it
        self._header_offsets.pop(message.number, None)
        failed = sum(marks.state_of(one.head) is State.DEAD for one in recipients)
        return len(recipients), failed

    def _report_open(
        self, opened: OpenControl, data: bytes, message: QueuedMessage, now: float
    ) -> None:
        control = parse_control_file(data)
        if control.diagnostics:
            self._report(opened, data, control, message.modified_ns, now)

    def remove(self, message: QueuedMessage) -> None:
        """Remove a message without a report to its sender."""
        with suppress(FileNotFoundError), self._open(message, _NO_ACCESS) as opened:
            self._places.remove(opened)

    def drop(self, job: Job) -> None:
        """Mark the recipients of a job as expunged: no diagnostic, no report. Raises OSError: that
        is not possible now."""
        offsets = set(job.todo)
        with suppress(FileNotFoundError), self._open(job.message, _NO_ACCESS) as opened:
            heads = {
                one.offset: marks.marked(one.head, None)
                for one in parse_control_file(read_whole(opened.fd)[0]).recipients
                if one.offset in offsets and one.head[:1] in marks.UNFINISHED
            }
            write_heads(opened.fd, heads)

    def find_obsolete(
        self, texts: Sequence[bytes], by: QueuedMessage, known: Sequence[QueuedMessage]
    ) -> list[QueuedMessage]:
        """The messages that a new one replaces (x lines): named by spool id or message-id, and of
        the same owner and sender."""
        obsolete = []
        named = {text.strip() for text in texts}
        for one in known:
            if one is by or one.sender != by.sender or not one.sender:
                continue
            ids = {names.spool_id(one.number, one.modified_ns).encode()}
            try:
                if not named & ids:
                    with self._places.folders.open_control(one.name) as opened:
                        ids = {parse_layout(read_whole(opened.fd)[0]).log_id}
                if named & ids and self._owner(one) == self._owner(by):
                    obsolete.append(one)
            except (OSError, Refused):
                continue  # gone, or it cannot be compared: it stays
        return obsolete

    def _owner(self, message: QueuedMessage) -> int:
        status, _ = self._places.folders.find_message(message.name)
        return status.st_uid


def parse_line(fd: int, line: bytes) -> RecipientLine:
    """Parse a recipient line of an open control file, with the format line of the file. Raises
    Refused: it is none."""
    header = os.pread(fd, _HEADER_BYTES, 0).split(b"\n")
    format_line = next((one for one in header if one[:1] == b"@"), b"@ 0")
    recipient_line = line.partition(b"\n")[0]
    control = parse_control_file(b"%b\ni 0\n%b\n" % (format_line, recipient_line))
    for recipient in control.recipients:
        return recipient
    raise Refused("no recipient line")


def _is_notified(line: bytes, word: str) -> bool:
    """True if the N line after a recipient line asks for a report."""
    _, _, further_lines = line.partition(b"\n")
    notify_line = further_lines[2:].partition(b"\n")[0] if further_lines[:1] == b"N" else b""
    return bool(word) and diagnostics.notifies(notify_line, word)


def _diagnostic_of(answer: AgentAnswer, now: float) -> Diagnostic:
    """The diagnostic of an answer. Its action fits the status word."""
    action, status = (b"failed", b"5.0.0") if answer.rule.is_failure else (b"delivered", b"2.0.0")
    fits = {action} if answer.rule.is_failure else {b"delivered", b"relayed", b"expanded"}
    notary = answer.notary or Notary()
    return Diagnostic(
        now,
        notary._replace(
            recipient=notary.recipient or UNKNOWN_ADDRESS,
            action=notary.action if notary.action in fits else action,
            status=notary.status or status,
        ),
        answer.text,
    )


def _last_problem(job: Job, now: float) -> Diagnostic | None:
    return Diagnostic(now, (), job.text) if job.text else None


def _format_age(seconds: float) -> str:
    """An age as in the original text: 3 days, 5 hours, 20 secs."""
    for size, unit in ((86400, "days"), (3600, "hours"), (60, "mins")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(0, seconds):.0f} secs"
