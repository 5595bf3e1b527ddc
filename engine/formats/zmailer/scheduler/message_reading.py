"""Read control files into jobs: clear the locks of ended agents, find what is to do, park the rest.

The tags decide what is finished. A file that cannot be used is never deleted: it is moved to
freezer/ once it has not changed for a minute.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Container, Iterable
from os import stat_result

from engine.formats.zmailer import diagnostics
from engine.formats.zmailer.diagnostics import Unreported
from engine.formats.zmailer.scheduler.message_places import MessagePlaces
from engine.formats.zmailer.scheduling.jobs import ClauseSettings, QueuedMessage
from engine.formats.zmailer.scheduling.table import JobGroup
from engine.formats.zmailer.spool import lock_process, marks, names
from engine.formats.zmailer.spool.control_file import (
    TRIGGER,
    ControlFile,
    Diagnostic,
    RecipientLine,
    parse_control_file,
)
from engine.formats.zmailer.spool.folders import OpenControl, read_whole
from engine.model import State
from engine.system import files
from engine.system.files import Refused
from engine.values import NamedTuple

LIVE_LOCK_SECONDS = 32.0
"""A file with a lock of a running agent is read again after so long, as in ZMailer 3.0.1."""
BROKEN_SECONDS = 60.0
"""A broken file is parked when it has not changed for so long."""

FindSettings = Callable[[str, str], ClauseSettings | None]
"""The settings of a channel and host; None if no clause matches."""


class Loaded(NamedTuple):
    """A message to schedule."""

    message: QueuedMessage
    groups: tuple[JobGroup, ...] = ()
    """Empty: no recipient is to do, complete it."""
    obsoletes: tuple[bytes, ...] = ()
    """Messages that this one replaces: spool ids, or message-ids."""


class MessagePostponed(NamedTuple):
    """A file that is to be read again later."""

    seconds: float
    why: str


class DeliveryTrigger(NamedTuple):
    """A request to deliver to a host now (ETRN); its file is removed."""

    host: str


class Parked(NamedTuple):
    """A file that cannot be used was moved to the freezer."""

    where: str
    why: str


Reading = Loaded | MessagePostponed | DeliveryTrigger | Parked


class QueuedMessageReader:
    """Reads the control files of one spool."""

    def __init__(self, places: MessagePlaces, find_settings: FindSettings) -> None:
        self._places = places
        self.find_settings = find_settings
        """May be replaced, for a new configuration."""

    def read(self, name: str, now: float) -> Reading | None:
        """Read a control file; None if it is gone. Raises OSError: it cannot be read or changed
        now."""
        try:
            with self._places.open(name) as opened:
                try:
                    return self._read_open(opened)
                except Refused as refusal:
                    if now - os.fstat(opened.fd).st_ctime < BROKEN_SECONDS:
                        return MessagePostponed(BROKEN_SECONDS, str(refusal))
                    return Parked(self._places.park(opened), str(refusal))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (Refused, TimeoutError) as error:
            return MessagePostponed(LIVE_LOCK_SECONDS, str(error))

    def _read_open(self, opened: OpenControl) -> Reading:
        data, file_stat = read_whole(opened.fd)
        if data[:1] == TRIGGER:
            words = data[1:].partition(b"\n")[0].split()
            if not words:
                raise Refused("a T line without a host")
            self._places.remove(opened)
            return DeliveryTrigger(os.fsdecode(words[0].lower()))
        data = _end_last_line(opened.fd, data)
        control = parse_control_file(data)
        if control.name != os.fsencode(opened.name):
            raise Refused("its i line has another name")
        status, _ = self._places.folders.find_message(opened.name)
        for pid in self._live_locks(control, file_stat):
            return MessagePostponed(LIVE_LOCK_SECONDS, f"locked by PID {pid}")
        control = _clear_locks(opened.fd, control)
        append_lost_failures(opened.fd, data, control, file_stat)
        folder = self._places.settle(opened)
        number = names.message_number(opened.name) or 0
        message = QueuedMessage(
            number,
            status.st_mtime_ns,
            folder=folder,
            suffix=opened.name[len(str(number)) :],
            created=file_stat.st_ctime,
            sender=os.fsdecode(control.sender),
            verbose_log=os.fsdecode(control.verbose_log.strip()),
        )
        groups, unmatched = self.find_groups(marks.to_do(control.recipients))
        if groups:
            return Loaded(message, groups, control.obsoletes)
        if unmatched:
            where = self._places.park(opened, folder)
            return Parked(where, f"no clause matches {', '.join(sorted(unmatched)[:5])}")
        return Loaded(message)

    def find_groups(
        self, recipients: Iterable[RecipientLine]
    ) -> tuple[tuple[JobGroup, ...], frozenset[str]]:
        """Recipients by channel and host with their settings; and the CHANNEL/HOST of those that no
        clause matches. These are tried again each time that the file is read, and parked when all
        others are finished."""
        offsets_by_thread: dict[tuple[bytes, bytes], list[int]] = {}
        for one in recipients:
            offsets_by_thread.setdefault(one.quad[:2], []).append(one.offset)
        groups, unmatched = [], set()
        for (channel, host), offsets in offsets_by_thread.items():
            words = os.fsdecode(channel), os.fsdecode(host)
            settings = self.find_settings(*words)
            if settings is None:
                unmatched.add("/".join(words))
            else:
                groups.append(JobGroup(settings, *words, tuple(offsets)))
        return tuple(groups), frozenset(unmatched)

    def read_again(self, name: str) -> frozenset[int] | None:
        """The offsets of the recipients that are to do, or that a running agent has; the locks of
        ended agents are cleared. None if the file is gone. Raises Refused: it is no control file
        any more; OSError: it cannot be read or changed now."""
        try:
            with self._places.open_now(name, name) as opened:
                data, file_stat = read_whole(opened.fd)
                control = parse_control_file(_end_last_line(opened.fd, data))
                running_pids = self._live_locks(control, file_stat)
                control = _clear_locks(opened.fd, control, running_pids)
        except FileNotFoundError:
            return None
        locked = [one.offset for one in control.recipients if one.head[:1] == marks.LOCKED]
        return frozenset([*locked, *(one.offset for one in marks.to_do(control.recipients))])

    def find_released(self, name: str, known: Container[int]) -> tuple[JobGroup, ...]:
        """The recipients to do whose offsets are not known: an operator has released them. Raises
        Refused: it is no control file any more; OSError: it cannot be read now."""
        try:
            with self._places.open_now(name, name) as opened:
                recipients = parse_control_file(read_whole(opened.fd)[0]).recipients
        except FileNotFoundError:
            return ()
        new = (one for one in marks.to_do(recipients) if one.offset not in known)
        return self.find_groups(new)[0]

    def _live_locks(self, control: ControlFile, file_stat: stat_result) -> frozenset[int]:
        """The PIDs of running agents that have recipients."""
        transport = self._places.folders.transport_status
        pids = {
            marks.lock_pid(one.head) or 0
            for one in control.recipients
            if one.head[:1] == marks.LOCKED
        }
        return frozenset(
            pid
            for pid in pids
            if pid and not lock_process.has_ended(pid, file_stat.st_mtime, transport)
        )


def write_heads(fd: int, heads: dict[int, bytes]) -> None:
    """Write tags and slots of some recipients by their offsets, with one fsync."""
    for offset, head in heads.items():
        marks.write_mark(fd, offset, head)
    if heads:
        files.fsync(fd)


def append_lines(fd: int, lines: bytes) -> None:
    """Append whole lines to an open control file, and fsync. A write that is cut by a full disk is
    removed again. Raises OSError: they cannot be written."""
    size = os.lseek(fd, 0, os.SEEK_END)
    try:
        files.write_all(fd, lines)
    except OSError:
        os.ftruncate(fd, size)
        raise
    files.fsync(fd)


def _end_last_line(fd: int, data: bytes) -> bytes:
    """The data with the end of a diagnostic whose writer was killed in the middle of it."""
    tail = data[data.rfind(b"\n") + 1 :]
    if not tail.startswith(b"d"):
        return data
    append_lines(fd, b"\n")
    return data + b"\n"


def _clear_locks(
    fd: int, control: ControlFile, running_pids: Container[int | None] = ()
) -> ControlFile:
    """Blank the locks of agents that have ended: of all but the PIDs in `running_pids`."""
    heads = {
        one.offset: marks.marked(one.head, State.PENDING)
        for one in control.recipients
        if one.head[:1] == marks.LOCKED and marks.lock_pid(one.head) not in running_pids
    }
    write_heads(fd, heads)
    cleared = (one._replace(head=heads.get(one.offset, one.head)) for one in control.recipients)
    return control._replace(recipients=tuple(cleared)) if heads else control


def lost_failures(control: ControlFile) -> list[RecipientLine]:
    """The failed recipients without a diagnostic, of whose failure the sender wants to know: the
    scheduler was killed, or its disk was full, before it wrote what the agent had answered."""
    return [
        one
        for one in control.recipients
        if one.head == marks.marked(one.head, State.DEAD)
        and one.offset not in control.diagnostics
        and not one.alternative
        and diagnostics.is_wanted(Unreported(-1, one, _LOST))
    ]


def append_lost_failures(
    fd: int, data: bytes, control: ControlFile, file_stat: stat_result
) -> None:
    """Append a diagnostic for each of `lost_failures`, and fsync."""
    lines = []
    for one in lost_failures(control):
        diagnostic = _LOST._replace(time=file_stat.st_mtime)
        lines.append(diagnostics.format_diagnostic(data, one.offset, diagnostic))
    if lines:
        append_lines(fd, b"".join(lines))


_LOST = Diagnostic(
    0,
    (b"\3", b"failed", b"5.0.0", b"", b"", b""),
    b"\rfailed; the reason was lost with the scheduler that was informed of it",
)
