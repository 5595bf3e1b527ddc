"""What an operator's verbs give to the router of a spool, and ask of its scheduler.

A bounced or expired recipient gets a diagnostic and its sender a report; a rerouted one is the
recipient of a new message with the same content. Hosts are woken by a trigger file (ETRN).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain
from typing import BinaryIO

from engine.formats.zmailer import diagnostics, notify
from engine.formats.zmailer.diagnostics import FAILED, Unreported
from engine.formats.zmailer.environment import NOTIFY_SOCKET
from engine.formats.zmailer.reports import (
    MAX_ENVELOPE_BYTES,
    ReportedMessage,
    ReportForm,
    ReportSettings,
    compose_report,
    envelope_end,
    parse_form,
)
from engine.formats.zmailer.spool.changes import MailActions
from engine.formats.zmailer.spool.control_file import (
    Diagnostic,
    FileLayout,
    RecipientLine,
    line_in,
    parse_diagnostic,
    parse_recipient,
)
from engine.formats.zmailer.spool.folders import OpenControl, PostofficeFolders
from engine.formats.zmailer.spool.marks import Commit, LineChange, Settle
from engine.formats.zmailer.submit import Router, copy_file, resubmission
from engine.override import override
from engine.store import Unavailable
from engine.system import files
from engine.system.cleanup import closing_fd
from engine.system.files import Refused
from engine.text.error_text import error_text
from engine.text.times import format_rough_duration

FORM = "delivery"
"""The default form of reports."""

KILLED_STATUS = b"5.7.0"
"""Security or policy status (RFC 3463): an operator decided it."""

_MAX_FORM_BYTES = 1 << 16
_WAKE_SECONDS = 1.0
"""Seconds for which a host is not woken again: the rows of one plan come in batches."""

_TRIGGER_MODE = 0o600

NOTICE_SECONDS = 0.5
"""How long a notice waits for its place in the socket, which holds about ten; after one that the
scheduler did not take, the next does not wait."""


def read_form(folder: str, name: str = FORM) -> ReportForm:
    """Read a form of reports; the built-in one if it cannot be read."""
    try:
        fd = files.open_file(f"{folder}/{name}")
    except OSError:
        return ReportForm()
    with closing_fd(fd):
        return parse_form(os.read(fd, _MAX_FORM_BYTES))


class SpoolMail(MailActions):
    """The mail of one spool: reports and rerouted messages by staged files, trigger files."""

    def __init__(
        self,
        folders: PostofficeFolders,
        clock: Callable[[], float],
        settings: ReportSettings,
        form: Callable[[], ReportForm] = ReportForm,
        notify_socket: Callable[[], str] | None = None,
    ) -> None:
        """`form` reads the form when a report is made, `notify_socket` the path of the socket when
        the scheduler is woken."""
        self._folders, self._clock = folders, clock
        self._settings, self._form = settings, form
        self._notify_socket = notify_socket or (lambda: f"{folders.root}/{NOTIFY_SOCKET}")
        self._router = Router(folders.fd)
        self._woken: dict[str, float] = {}
        self._takes_notices = True

    @override
    @contextmanager
    def stage(
        self,
        opened: OpenControl,
        data: bytes,
        layout: FileLayout,
        verb: str,
        lines: Sequence[LineChange],
    ) -> Iterator[Callable[[], object]]:
        """Stage the mail for the recipients at these lines; append their diagnostics."""
        try:
            with self._folders.open_message(opened.name, opened.is_kept) as message:
                line_at = partial(line_in, data)
                recipients = [parse_recipient(layout, line.offset, line_at) for line in lines]
                arrived, now = os.fstat(message.fileno()).st_mtime_ns, self._clock()
                age = now - arrived / 1e9
                rows = [
                    Unreported(-1, one, _diagnose(one, verb, last, age, now))
                    for one, last in ((one, _last(data, layout, one)) for one in recipients)
                ]
                chunks: Iterator[bytes] | None
                start = message.read(MAX_ENVELOPE_BYTES)
                if verb == "reroute":
                    head = resubmission(self._settings.host, layout.sender, recipients)
                    message.seek(envelope_end(start))
                    chunks = chain([head], copy_file(message))
                else:
                    facts = ReportedMessage(opened.name, data, layout.sender, arrived, start)
                    chunks = self._compose(facts, rows, message, now)
                diagnosed = b"" if verb == "reroute" else _format_rows(data, rows)
                commit = Commit(opened.name, tuple(lines), len(data), diagnosed)
                if chunks is None:
                    _append(opened.fd, diagnosed)
                    yield lambda: ""
                    return
                with self._router.stage(commit, chunks) as send:
                    _append(opened.fd, diagnosed)
                    yield send
        except Refused as refusal:
            raise Unavailable(f"{opened.name}: {refusal}") from refusal

    def _compose(
        self, facts: ReportedMessage, rows: Sequence[Unreported], message: BinaryIO, now: float
    ) -> Iterator[bytes] | None:
        """The bytes of a report; None if the sender wants none, or cannot get one."""
        report = compose_report(facts, rows, self._form(), self._settings, now)
        if report is None or not report.recipients:
            return None
        return report.chunks(message)

    @override
    def recover(self, settle: Settle) -> list[str]:
        return self._router.recover(settle)

    @override
    def wake(self, hosts: Collection[str]) -> None:
        """Write a trigger file for each host into transport/, by rename, named INODE-etrn."""
        now = self._clock()
        for host in sorted(hosts):
            if 0 <= now - self._woken.get(host, float("-inf")) < _WAKE_SECONDS:
                continue
            self._write_trigger(host)
            self._woken[host] = now

    @override
    def notify(self, control_file: str) -> bool:
        """Let the scheduler read a file; False if it takes no notice."""
        seconds = NOTICE_SECONDS if self._takes_notices else 0.0
        try:
            self._takes_notices = notify.send(self._notify_socket(), control_file, seconds)
        except OSError:
            self._takes_notices = False
        return self._takes_notices

    def _write_trigger(self, host: str) -> None:
        transport_fd = self._folders.transport
        if not host.isprintable() or not host or " " in host:
            raise Unavailable(f"{host!r} cannot be woken: expected one host")
        draft = f".etrn.{os.urandom(6).hex()}"
        try:
            owner = files.new_file_owner(os.fstat(transport_fd))
            fd = files.create_file(draft, transport_fd, owner, _TRIGGER_MODE)
            try:
                files.write_all(fd, b"T %b\n" % host.encode())
                files.fsync(fd)
                name = f"{os.fstat(fd).st_ino}-etrn"
                files.rename(draft, name, src_dir_fd=transport_fd, dst_dir_fd=transport_fd)
                self.notify(name)
            finally:
                os.close(fd)
                files.unlink_quietly(draft, transport_fd)
        except OSError as error:
            raise Unavailable(f"transport/{draft}: {error_text(error)}") from error


def _last(data: bytes, layout: FileLayout, one: RecipientLine) -> Diagnostic | None:
    at = layout.diagnostics.get(one.offset)
    return None if at is None else parse_diagnostic(line_in(data, at))


def _diagnose(
    one: RecipientLine, verb: str, last: Diagnostic | None, age: float, now: float
) -> Diagnostic:
    """The diagnostic of a recipient that an operator ends, with what its last one said."""
    if verb == "expire":
        words = format_rough_duration(max(0.0, age))
        return diagnostics.timeout(one, last, words, now, is_final=True)
    text = b"\rkilled by an operator" + (b", problem was:\r" + last.message if last else b"")
    code = b"x-local; killed by an operator"
    notary = (one.quad.user, FAILED.encode(), KILLED_STATUS, code, b"", b"")
    return Diagnostic(now, notary, text)


def _format_rows(data: bytes, rows: Sequence[Unreported]) -> bytes:
    """The d lines of some recipients, as reported."""
    return b"".join(
        diagnostics.format_diagnostic(
            data, one.recipient.offset, one.diagnostic, diagnostics.REPORTED
        )
        for one in rows
    )


def _append(fd: int, text: bytes) -> None:
    """Append to a locked control file with one write; the caller fsyncs it with the tags."""
    if text:
        os.lseek(fd, 0, os.SEEK_END)
        files.write_all(fd, text)
