"""What all our agents do: read jobs; lock the recipients of each, deliver, record, answer.

A lock is the tag `~` and the agent's PID in the recipient line, written under fcntl(2); so no other
agent takes the recipient, also after a restart of the scheduler. The outcome is durable in the file
before the scheduler gets it: diagnostics (d lines) first, then the tags.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import groupby, islice
from typing import BinaryIO

from engine.formats.zmailer.diagnostics import dsn_parameter, format_diagnostic
from engine.formats.zmailer.scheduling.agent_lines import (
    HUNGRY,
    IDLE,
    AgentAnswer,
    JobLine,
    LineBuffer,
    Notary,
    format_answer,
    format_resync,
    parse_job,
)
from engine.formats.zmailer.spool import marks, names
from engine.formats.zmailer.spool.control_file import (
    PID_SLOT_BYTES,
    Diagnostic,
    RecipientLine,
    parse_control_file,
)
from engine.formats.zmailer.spool.folders import PostofficeFolders, read_whole
from engine.formats.zmailer.spool.marks import Commit, LineChange
from engine.formats.zmailer.spool.names import parse_quad
from engine.formats.zmailer.submit import Router
from engine.model import State
from engine.store import Unavailable
from engine.system import files
from engine.system.files import Refused
from engine.text.safe import safe_line
from engine.values import NamedTuple

POSTOFFICE = ".."
"""From transport/, where the scheduler starts agents."""

MAX_RECIPIENTS = 100
"""Recipients that are delivered at a time; a server must accept so many (RFC 5321, 4.5.3.1.8)."""

READ_BYTES = 64 << 10


class AgentOutcome(NamedTuple):
    """What became of a recipient."""

    recipient: RecipientLine
    status: bytes
    """A status word; ok2 and error2: the diagnostic is recorded in the file."""
    text: str
    notary: Notary = Notary()


def is_notified_of_success(recipient: RecipientLine) -> bool:
    """True if the sender wants to know that a mail was delivered."""
    return b"SUCCESS" in dsn_parameter(recipient.dsn, "NOTIFY").upper().split(b",")


class AgentMessage:
    """A message of which recipients are delivered: its open control file and its message file."""

    def __init__(
        self, folders: PostofficeFolders, name: str, fd: int, clock: Callable[[], float]
    ) -> None:
        """`name` is that of the control file, `fd` is it, open to read and write. Raises Refused:
        it is no control file; OSError: it cannot be read now."""
        self.name, self.clock = name, clock
        self._folders, self._fd = folders, fd
        self.data, _ = read_whole(fd)
        self.control = parse_control_file(self.data)
        self._headers = list(_header_blocks(self.data))
        self._locks: dict[int, bytes] = {}
        """The head of each recipient line that we have locked, by its offset."""
        self.remarks: list[str] = []
        """What is to be logged."""

    def waiting(self, channel: bytes, host: bytes) -> list[RecipientLine]:
        """The recipients of a channel and host that are to do."""
        return [
            one for one in marks.to_do(self.control.recipients) if one.quad[:2] == (channel, host)
        ]

    def sender(self, recipient: RecipientLine) -> bytes:
        """The sender of the envelope for a recipient; empty for a report."""
        at = self.data.rfind(b"\ns ", 0, recipient.offset) + 1
        try:
            quad = parse_quad(self.data[at + 2 : self.data.find(b"\n", at)]) if at else None
        except Refused:
            quad = None
        if quad is None:
            return self.control.sender
        return b"" if quad.channel == b"error" else quad.user

    def field(self, letter: bytes) -> bytes:
        """The value of a field of the whole message, such as `o`; empty if there is none."""
        at = 0 if self.data[:1] == letter else self.data.find(b"\n" + letter) + 1
        is_field = not self._headers or at < self._headers[0][0]
        is_there = is_field and self.data[at : at + 1] == letter
        return self.data[at + 2 : self.data.find(b"\n", at)].strip() if is_there else b""

    def group(self, recipient: RecipientLine) -> int:
        """The number of the block of headers that a recipient has. Raises Refused: none follows."""
        at = bisect_left(self._headers, (recipient.offset,))
        if at == len(self._headers):
            raise Refused(f"no headers for the recipient at offset {recipient.offset}")
        return at

    def headers(self, recipient: RecipientLine) -> bytes:
        """The headers for a recipient, each with its LF."""
        start, end = self._headers[self.group(recipient)]
        return self.data[start:end]

    def body(self, offset: int | None = None) -> BinaryIO:
        """The message file, open, from its body on, or from an offset. Raises Refused: there is
        none, or it is no plain file, or no offset is known; OSError: it cannot be read now."""
        file = self._folders.open_message(self.name)
        if offset is None:
            text = self.field(b"o")
            if not text.isdigit():
                file.close()
                raise Refused("no o line with the offset of the body")
            offset = int(text)
        file.seek(offset)
        return file

    def lock(self, recipients: Iterable[RecipientLine]) -> list[RecipientLine]:
        """Lock recipients; return those that still were to do. Raises TimeoutError: another process
        had the file locked for too long."""
        locked = []
        with marks.write_lock(self._fd):
            if os.fstat(self._fd).st_nlink == 0:
                return []  # the message was killed
            for one in recipients:
                end = self.data.find(b"\n", one.offset)
                line = self.data[one.offset : end]
                if os.pread(self._fd, len(line), one.offset) == line:
                    head = _locked_head(one.head)
                    marks.write_mark(self._fd, one.offset, head)
                    self._locks[one.offset] = head
                    locked.append(one)
        return locked

    def changes(self, outcomes: Iterable[AgentOutcome]) -> list[LineChange]:
        """The recipient lines that `record` changes."""
        line_changes = []
        for one in outcomes:
            old = self._locks[one.recipient.offset]
            new = _finished_head(old, one.status)
            line_changes.append(LineChange(one.recipient.offset, old, new))
        return line_changes

    def record(self, outcomes: Sequence[AgentOutcome], *, is_atomic: bool = False) -> bool:
        """Write diagnostics and tags, and unlock; durable on return. False, and nothing is written,
        if a lock is not ours any more. Raises OSError: it cannot be written. What was delivered
        stays locked, so that it is not sent again while this process runs. `is_atomic`: no tag is
        changed, nothing is delivered."""
        now = self.clock()
        changes = self.changes(outcomes)
        with marks.write_lock(self._fd):
            for offset, before, _ in changes:
                if os.pread(self._fd, len(before), offset + 1) != before:
                    self.remarks.append(f"the lock at offset {offset} is not ours any more")
                    return False
            diagnostics = b"".join(
                format_diagnostic(
                    self.data,
                    one.recipient.offset,
                    Diagnostic(now, tuple(one.notary), os.fsencode(one.text)),
                )
                for one in outcomes
                if one.status in _RECORDED
            )
            if diagnostics:
                self._append(diagnostics)
            try:
                for offset, _, after in changes:
                    marks.write_mark(self._fd, offset, after)
                files.fsync(self._fd)
            except OSError:
                for offset, before, _ in changes:
                    if is_atomic:
                        marks.write_mark(self._fd, offset, before)
                    else:
                        del self._locks[offset]
                raise
            for offset, _, _ in changes:
                del self._locks[offset]
        return True

    def give_to_router(
        self, router: Router, outcomes: Sequence[AgentOutcome], chunks: Iterable[bytes]
    ) -> Sequence[AgentOutcome]:
        """Record final outcomes together, and write a mail into router/ that belongs to them; no
        outcomes if that was not possible: neither is done then."""
        commit = Commit(self.name, tuple(self.changes(outcomes)))
        with router.stage(commit, chunks) as send:
            if self.record(outcomes, is_atomic=True):
                send()
                return outcomes
        return ()

    def _append(self, lines: bytes) -> None:
        size = os.lseek(self._fd, 0, os.SEEK_END)
        if size and os.pread(self._fd, 1, size - 1) != b"\n":
            lines = b"\n" + lines  # another process died while it wrote its line
        files.write_all(self._fd, lines)
        files.fsync(self._fd)

    def unlock(self) -> None:
        """Unlock what is still locked: it is tried again."""
        with marks.write_lock(self._fd):
            for offset, head in self._locks.items():
                if os.pread(self._fd, len(head), offset + 1) == head:
                    marks.write_mark(self._fd, offset, _finished_head(head, b"deferred"))
        self._locks.clear()


def _header_blocks(data: bytes) -> Iterator[tuple[int, int]]:
    """Start and end of the headers in each m block."""
    at = data.find(b"\nm\n")
    while at >= 0:
        start = at + 3
        end = start if data[start : start + 1] == b"\n" else data.find(b"\n\n", start) + 1
        yield start, end
        at = data.find(b"\nm\n", end)


_RECORDED = (b"ok2", b"error2")

_STATES = {b"ok": State.DONE, b"er": State.DEAD}


def _locked_head(head: bytes) -> bytes:
    """Tag and slots with our PID; only the tag of a line without slots."""
    if len(head) < 1 + PID_SLOT_BYTES:
        return marks.LOCKED + head[1:]
    lock = marks.LOCKED + b"%6d" % os.getpid()
    return lock + head[len(lock) :]


def _finished_head(head: bytes, status: bytes) -> bytes:
    return marks.marked(head, _STATES.get(status[:2], State.PENDING))[: len(head)]


Deliver = Callable[[AgentMessage, list[RecipientLine], bytes], Sequence[AgentOutcome]]
"""Delivers locked recipients with the same headers to their host, and returns the outcomes once
they are recorded."""


class AgentJobs:
    """Serves the jobs of one agent."""

    def __init__(
        self,
        folders: PostofficeFolders,
        channel: str,
        host: str,
        deliver: Deliver,
        clock: Callable[[], float],
    ) -> None:
        """`host` is that of jobs that name none."""
        self._folders, self._deliver, self._clock = folders, deliver, clock
        self._channel, self._host = channel.lower().encode(), os.fsencode(host.lower())

    def serve(self, job: JobLine) -> Iterator[bytes]:
        """Do a job, and yield the answers once they are true in the file."""
        host = self._host if job.host is None else job.host
        try:
            with self._open(job) as message:
                is_done = False
                for batch in self._batches(message, host):
                    locked = message.lock(batch)
                    for one in self._deliver(message, locked, host) if locked else ():
                        is_done = True
                        yield _answer(message.name, one)
                    while message.remarks:
                        yield _remark(job, message.remarks.pop())
                if not is_done:
                    yield format_resync(job.path)
        except (FileNotFoundError, Refused):
            yield format_resync(job.path)  # the scheduler finds out why
        except (OSError, Unavailable) as error:
            yield _remark(job, f"cannot be read or written now: {error}")

    def _batches(self, message: AgentMessage, host: bytes) -> Iterator[list[RecipientLine]]:
        """The recipients to do, in batches with the same headers."""
        for _, group in groupby(message.waiting(self._channel, host), message.group):
            while batch := list(islice(group, MAX_RECIPIENTS)):
                yield batch

    @contextmanager
    def _open(self, job: JobLine) -> Iterator[AgentMessage]:
        name = job.path.rpartition("/")[2]
        with self._folders.open_control(name, os.O_RDWR) as opened:
            if opened.is_kept:
                raise FileNotFoundError(name)  # for the scheduler it is finished
            message = AgentMessage(self._folders, name, opened.fd, self._clock)
            try:
                yield message
            finally:
                message.unlock()


def _answer(name: str, one: AgentOutcome) -> bytes:
    number = names.message_number(name) or 0
    has_notary = one.status not in _RECORDED and one.notary != Notary()
    notary = one.notary if has_notary else None
    text = os.fsencode(one.text)
    return format_answer(AgentAnswer(number, one.recipient.offset, notary, one.status, text))


def _remark(job: JobLine, text: str) -> bytes:
    return f"#{safe_line(f'{job.path}: {text}')}\n".encode()


def run_agent(serve: Callable[[JobLine], Iterable[bytes]], stdin: int = 0, stdout: int = 1) -> None:
    """Serve jobs until an empty line, or the end of the input; a last line without LF is no job.

    `serve` yields the answers to a job, each with its LF, and each once it is true on disk: the
    scheduler may be gone when it is written. Then the agent ends after this job."""
    with suppress(BrokenPipeError, ConnectionResetError):
        files.write_all(stdout, HUNGRY)
        buffer = LineBuffer()
        while data := os.read(stdin, READ_BYTES):
            for line in buffer.feed(data):
                if not line:
                    return
                for answer in _answers(line, serve):
                    files.write_all(stdout, answer)
                files.write_all(stdout, HUNGRY)


def _answers(line: bytes, serve: Callable[[JobLine], Iterable[bytes]]) -> Iterable[bytes]:
    if line + b"\n" == IDLE:
        return ()
    job = parse_job(line)
    return (b"#no job: %b\n" % line[:80],) if job is None else serve(job)
