"""The way of each message: read, scheduled, answered, expired, completed or killed.

Its outcomes are also appended to the verbose log that it may name (v line).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from contextlib import suppress

from engine.formats.zmailer import statistics_log
from engine.formats.zmailer.log_file import format_line
from engine.formats.zmailer.scheduler.message_outcomes import MessageOutcomes, parse_line
from engine.formats.zmailer.scheduler.message_places import Arrivals, MessagePlaces
from engine.formats.zmailer.scheduler.message_reading import (
    DeliveryTrigger,
    Loaded,
    MessagePostponed,
    Parked,
    QueuedMessageReader,
)
from engine.formats.zmailer.scheduling import timers
from engine.formats.zmailer.scheduling.agent_lines import AgentAnswer
from engine.formats.zmailer.scheduling.jobs import Job, QueuedMessage
from engine.formats.zmailer.scheduling.table import ThreadTable
from engine.formats.zmailer.scheduling.work import WorkTable
from engine.formats.zmailer.spool import names
from engine.formats.zmailer.spool.folders import PostofficeFolders, read_line
from engine.formats.zmailer.statistics_log import StatisticsLine
from engine.store import StoreError
from engine.system import files, users
from engine.system.cleanup import closing_fd
from engine.system.files import Refused
from engine.values import NamedTuple

RETRY_SECONDS = 30.0
"""A message that could not be completed, or a file that could not be read, is tried again."""


PUBLIC = "public"
"""Folder of the spool in which all users may make files."""

_match_name = re.compile(rf"\.\./{PUBLIC}/(?!\.\.?$)([^/\0]+)", re.DOTALL).fullmatch


class QueueTotals(NamedTuple):
    """Messages and recipients since the start."""

    messages_in: int = 0
    messages_out: int = 0
    recipients_in: int = 0
    recipients_out: int = 0


class SchedulerParts(NamedTuple):
    """The parts of a scheduler that are made before it."""

    table: ThreadTable
    work: WorkTable
    places: MessagePlaces
    reader: QueuedMessageReader
    outcomes: MessageOutcomes
    arrivals: Arrivals
    statistics: Callable[[str], None]
    log: Callable[[str], None]
    trace: Callable[[str], None]
    """As `log`, for each step; it does nothing if the log is not verbose."""
    syslog: Callable[[str], None]
    clock: Callable[[], float]
    """Epoch seconds UTC."""
    monotonic: Callable[[], float]
    age: Callable[[float, float], float]
    """Seconds that runs of the scheduler have seen pass from one time up to another."""


class MessageFlow:
    """Moves messages between their files and the threads."""

    def __init__(self, parts: SchedulerParts) -> None:
        self.parts = parts
        self.totals = QueueTotals()
        self._incomplete: dict[int, float] = {}
        """Messages that could not be completed or recorded, and when that is tried again."""
        self._failed: set[int] = set()
        """Messages with failures that no report has yet."""
        self._delayed: dict[int, set[int]] = {}
        """The threads of each message whose delay was reported to its sender."""

    def step(self) -> None:
        """Let timers that are due expire jobs, and complete what could not be completed."""
        now, table = self.parts.clock(), self.parts.table
        for job in table.step(now):
            if _has_expired(self.parts, job, now):  # else it comes again later
                self._expired(job, now)
        for number, due in list(self._incomplete.items()):
            message = table.messages.get(number)
            if message is None:
                del self._incomplete[number]
            elif due <= now:
                self._complete(message)

    def take(self, name: str) -> None:
        """Read a control file, and schedule its recipients."""
        parts, now = self.parts, self.parts.clock()
        try:
            reading = parts.reader.read(name, now)
        except (OSError, StoreError) as error:
            reading = MessagePostponed(RETRY_SECONDS, str(error))
        if isinstance(reading, MessagePostponed):
            parts.log(f"{name}: later: {reading.why}")
            parts.arrivals.postpone(name, parts.monotonic() + reading.seconds)
        elif isinstance(reading, Parked):
            parts.log(f"{name}: moved to {reading.where}: {reading.why}")
        elif isinstance(reading, DeliveryTrigger):
            count = parts.table.etrn(reading.host)
            parts.log(f"{name}: ETRN {reading.host}: {count} threads started")
        elif reading is not None and reading.groups:
            self._add(reading, now)
        elif reading is not None:
            parts.table.messages[reading.message.number] = reading.message
            self._complete(reading.message)

    def _add(self, loaded: Loaded, now: float) -> None:
        table = self.parts.table
        recipients = sum(len(group.offsets) for group in loaded.groups)
        count = f"{recipients} recipients in {len(loaded.groups)} threads"
        self.parts.trace(f"{loaded.message.path}: {count}")
        self._count(messages_in=1, recipients_in=recipients)
        table.add(loaded.message, loaded.groups, now)
        if loaded.obsoletes:
            known = list(table.messages.values())
            for old in self.parts.outcomes.find_obsolete(loaded.obsoletes, loaded.message, known):
                self.kill(old)

    def notice(self, path: str) -> None:
        """Take a notice of the router or an operator: a control file is new, or recipients of it
        were released."""
        parts, name = self.parts, path.rpartition("/")[2]
        message = parts.table.messages.get(names.message_number(name) or 0)
        if message is None or message.name != name:
            parts.arrivals.notice(path)
            return
        known = {offset for job in message.jobs for offset in job.todo}
        try:
            groups = parts.reader.find_released(name, known)
        except (OSError, Refused) as error:
            parts.log(f"{path}: {error}")
            return
        self._count(recipients_in=sum(len(group.offsets) for group in groups))
        parts.table.add(message, groups, parts.clock())

    def resync(self, job: Job) -> None:
        """An agent has found nothing to do in a file: read it again, and finish the recipients that
        are finished there."""
        parts, message = self.parts, job.message
        if not parts.work.resync(job):
            parts.log(f"{message.path}: read again too often, waits for its next time")
        try:
            unfinished = parts.reader.read_again(message.name)
        except (OSError, StoreError, Refused) as error:
            parts.log(f"{message.path}: {error}")
            return
        if unfinished is None:
            parts.table.forget(message)
            return
        for offset in job.todo:  # other agents may not have answered yet for theirs
            if offset not in unfinished:
                parts.table.finish(job, offset)
        if not message.open_jobs:
            self._complete(message)

    def answered(self, job: Job, answer: AgentAnswer) -> None:
        """An agent has answered for a recipient."""
        parts, now, message = self.parts, self.parts.clock(), job.message
        if not parts.work.answer(job, answer, now):
            parts.log(f"{message.path}/{answer.offset}: answer ignored, the recipient is not to do")
            return
        self._log_outcome(message, [answer.offset], answer.status + b" " + answer.text)
        if not answer.rule.is_final:
            return
        try:
            groups = parts.outcomes.record(job, answer, now)
        except (OSError, Refused) as error:
            # The agent has written the tag: reading the file again finds it, and what is missing.
            parts.log(f"{message.path}/{answer.offset}: not recorded: {error}")
            groups = ()
        if answer.rule.is_failure:
            self._failed.add(message.number)
        self._count_end(job, answer.status.decode(), now)
        parts.table.finish(job, answer.offset)
        if groups:
            parts.table.add(message, groups, now)
        if not message.open_jobs:
            self._complete(message)

    def _log_outcome(self, message: QueuedMessage, offsets: Iterable[int], outcome: bytes) -> None:
        """Append to the verbose log of a message, if it names one. A log that cannot be used is not
        tried again; why is logged, except that it is missing: its reader may have removed it."""
        if not message.verbose_log:
            return
        try:
            _append_verbose(
                self.parts.places.folders, message, offsets, outcome, self.parts.clock()
            )
        except FileNotFoundError:
            message.verbose_log = ""
        except (OSError, Refused) as error:
            self.parts.log(f"{message.path}: verbose log {message.verbose_log}: {error}")
            message.verbose_log = ""

    def _count_end(self, job: Job, state: str, now: float, count: int = 1) -> None:
        message = job.message
        self._count(recipients_out=count)
        _, channel, host = self.parts.table.threads[job.thread].key
        line = StatisticsLine(
            names.spool_id(message.number, message.modified_ns),
            int(message.created - message.modified),
            int(now - message.created),
            state=state,
            channel=channel,
            host=host,
        )
        text = statistics_log.format_line(line)
        for _ in range(count):
            self.parts.statistics(text)

    def _expired(self, job: Job, now: float) -> None:
        try:
            self.parts.outcomes.expire(job, now)
        except (OSError, Refused) as error:
            self.parts.log(f"{job.message.path}: cannot expire now: {error}")
            return
        self._log_outcome(job.message, job.todo, b"expire")
        self._failed.add(job.message.number)
        self._count_end(job, "expire", now, job.count)
        self.parts.table.end(job)
        if not job.message.open_jobs:
            self._complete(job.message)

    def _complete(self, message: QueuedMessage) -> None:
        """Report and remove a message without jobs; read it again if its file has some to do."""
        parts, now = self.parts, self.parts.clock()
        self._incomplete.pop(message.number, None)
        try:
            counts = parts.outcomes.complete(message, now)
        except (OSError, StoreError, Refused) as error:
            parts.log(f"{message.path}: not completed yet: {error}")
            self._incomplete[message.number] = now + RETRY_SECONDS
            return
        parts.table.forget(message)
        self._delayed.pop(message.number, None)
        parts.trace(f"{message.path}: {'read again' if counts is None else 'complete'}")
        if counts is None:
            self.take(message.name)
            return
        self._count(messages_out=1)
        spool_id = names.spool_id(message.number, message.modified_ns)
        # All syslog lines have the words of ZMailer 3.0.1: programs that read mail logs match them.
        total, failed = counts
        parts.syslog(f"{spool_id}: complete (total {total} recipients, {failed} failed)")

    def kill(self, message: QueuedMessage) -> None:
        """Remove a message without a report, as an operator or a newer message wants it. Raises
        OSError: it cannot be removed now."""
        offsets = [offset for job in message.jobs for offset in job.todo]
        self._log_outcome(message, offsets, b"is removed, without a report")
        self.parts.outcomes.remove(message)
        self._count(messages_out=1, recipients_out=sum(job.count for job in message.jobs))
        self.parts.table.forget(message)
        self._incomplete.pop(message.number, None)
        self._delayed.pop(message.number, None)
        self.parts.log(f"{message.path}: removed without a report, {len(offsets)} recipients")
        spool_id = names.spool_id(message.number, message.modified_ns)
        self.parts.syslog(f"{spool_id}: {message.path} killed")

    def kill_job(self, job: Job) -> None:
        """Remove the recipients of a message in one thread without a report; if they are its last
        ones, the message too. Raises OSError: that is not possible now."""
        if job.message.open_jobs == 1:
            self.kill(job.message)
            return
        self.parts.outcomes.drop(job)
        self._log_outcome(job.message, job.todo, b"is removed, without a report")
        thread = self.parts.table.threads[job.thread].key
        what = f"{job.count} recipients of {thread.channel}/{thread.host}"
        self.parts.log(f"{job.message.path}: {what} removed without a report")
        self._count(recipients_out=job.count)
        self.parts.table.end(job)

    def report_failures(self) -> None:
        """Report what has failed in messages that are not finished."""
        for number in self._failed:
            if message := self.parts.table.messages.get(number):
                with suppress(OSError, StoreError):
                    self.parts.outcomes.report(message, self.parts.clock())
        self._failed.clear()

    def report_delays(self) -> None:
        """Report mail that waits for longer than the first of `reporttimes`, once, to those senders
        that want it (NOTIFY=DELAY)."""
        now = self.parts.clock()
        for thread in list(self.parts.table.threads.values()):
            after = thread.settings.reporttimes[:1]
            for job in thread.jobs() if after and after[0] else ():
                is_late = job.attempts and now - job.message.modified >= after[0]
                reported = self._delayed.setdefault(job.message.number, set()) if is_late else set()
                if is_late and job.thread not in reported:
                    with suppress(OSError, StoreError, Refused):
                        self.parts.outcomes.delay(job, now)
                        reported.add(job.thread)

    def _count(self, **more: int) -> None:
        old = self.totals._asdict()
        self.totals = QueueTotals(**{**old, **{name: old[name] + n for name, n in more.items()}})


def _has_expired(parts: SchedulerParts, job: Job, now: float) -> bool:
    """True if a job that is too old by the clock is so by the time that was seen to pass. One
    attempt counts as none: after days without a scheduler it is made when it is too late."""
    modified, settings = job.message.modified, parts.table.threads[job.thread].settings
    observed_time = min(now, modified + parts.age(modified, now))
    return timers.is_expired(settings, job.expires, job.attempts > 1, observed_time)


def _append_verbose(
    folders: PostofficeFolders,
    message: QueuedMessage,
    offsets: Iterable[int],
    outcome: bytes,
    now: float,
) -> None:
    """Append a line to the verbose log of a message for each recipient, by the offsets of their
    lines: `SPOOLID CHANNEL/HOST USER: outcome`, after its time.

    The `-v` of ZMailer's sendmail makes such a file in public/ and shows what is added. Any user
    may write a path into the message (v line), so only a file below public/ that is there already
    and belongs to the owner of the message is written, with the rights of that owner. Raises
    FileNotFoundError: there is no such log, or the message is gone; Refused: it is not in public/,
    not a file of the message's owner, or the control file cannot be used; OSError: it cannot be
    written."""
    name = _match_name(message.verbose_log)
    if name is None:
        raise Refused(f"expected ../{PUBLIC}/NAME")
    owner, _ = folders.find_message(message.name)
    account = users.owner_account(owner)
    with folders.open_below(folders.fd, PUBLIC) as folder, users.files_as(account):
        fd = files.open_plain(name[1], folder, os.O_WRONLY | os.O_APPEND)
    with closing_fd(fd):
        if os.fstat(fd).st_uid != owner.st_uid:
            raise Refused("its owner is not that of the message")
        ident = names.spool_id(message.number, message.modified_ns)
        with folders.open_control(message.name) as control:
            for offset in offsets:
                quad = parse_line(control.fd, read_line(control.fd, offset)).quad
                line = b"%b/%b %b: %b" % (quad.channel, quad.host, quad.user, outcome)
                files.write_all(fd, format_line(f"{ident} {line.decode(errors='replace')}", now))
