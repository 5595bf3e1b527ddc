"""The log of a mail server: where its files are, the events of its lines, and the last reason and
account of each waiting message. A format gives the patterns; `engine.logs` reads the files."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from enum import StrEnum
from itertools import islice, pairwise
from tempfile import TemporaryFile

from engine.doctor.finding import Finding, hidden, ok
from engine.logs.log_file import NO_TIME, FileCache, LogFile
from engine.logs.log_line import Zone, lacks_zone, parse_log_line
from engine.logs.rotated_log import NO_LOG_FILE, RotatedLog
from engine.logs.unpacked_file import SUFFIXES
from engine.programs.prefix import HERE, Prefix
from engine.store import Unavailable
from engine.system import files
from engine.system.run_program import CannotStart, ProgramEnd, RunningProgram, run_program
from engine.text.error_text import error_text
from engine.text.figures import format_bytes
from engine.text.safe import clean_error
from engine.values import NamedTuple

MAIL_LOGS = ("/var/log/mail.log", "/var/log/maillog", "/var/log/mail")
"""Where syslog writes mail logs, on Debian, Red Hat and SUSE."""

is_device = re.compile(r"/dev/(?!shm/)").match
"""True for the path of a log as a container may have it (`/dev/stdout`): to read it waits for ever.
Below /dev/shm are plain files."""
NO_LOG = "the settings name no log file"
FACT_BYTES = 64 << 20
"""Bytes at the end of a log that are read for the facts of waiting messages."""
COPIED_BYTES = 256 << 20
"""Bytes of a log of another host that are copied to be searched."""
JOURNAL_LINES = 1_000_000
"""Lines of the journal that are copied to be searched."""
_CHUNK_BYTES = 4 << 20
_HEAD_BYTES = 16 << 10
NO_ZONE = "its times name no zone and date(1) does not answer there: read as ours"
_POLLED_BYTES = 1 << 20
"""Bytes that are read again at the end of a log of another host."""


class MailEventKind(StrEnum):
    """What a line of a mail log says of a message."""

    ARRIVED = "arrived"
    REFUSED = "refused"
    """Not accepted, as a whole or for one recipient."""
    NAMED = "message-id"
    """Its Message-Id was read: the first line of a message that the server made itself."""
    QUEUED = "queued"
    """Taken up by the queue manager: an attempt begins."""
    DELIVERED = "delivered"
    DEFERRED = "deferred"
    SUSPENDED = "not tried"
    """Deferred without an attempt, because others to the same destination had failed."""
    FAILED = "failed"
    EXPIRED = "expired"
    """Returned to the sender because of its age, or as an operator wanted."""
    BOUNCED = "bounced"
    """A report to the sender was made: it is the other message."""
    REPORTED = "reported"
    """A report about a delay or a success was made: it is the other message."""
    HELD = "held"
    RELEASED = "released"
    REQUEUED = "requeued"
    """Given a new id: it is the other message."""
    REMOVED = "removed"
    """It left the queue: all is delivered or returned, or an operator deleted it."""
    NOTED = "noted"
    """Anything else about it."""


class MailEvent(NamedTuple):
    """What a line says. All texts are untrusted: make them safe before showing them."""

    when: float | None
    """Epoch seconds UTC; None if the line has no time."""
    id: str
    """"" for a mail that was refused before it had one."""
    what: MailEventKind
    address: str = ""
    """The recipient; of an arrival or a refusal the sender, if no recipient is named."""
    text: str = ""
    """The answer of the other server, the reason, or the rest of the line."""
    relay: str = ""
    account: str = ""
    """The account that submitted it: a login, a local user."""
    client: str = ""
    other: str = ""
    """The id of another message: the one before a requeue, the bounce, the one that this is a
    bounce of, or the next one behind a content filter on this host."""
    is_end: bool = False
    """True if the id may be given to another message from now on."""

    @property
    def is_start(self) -> bool:
        """True if a message begins with it, at the latest."""
        is_made = self.what is MailEventKind.REQUEUED and bool(self.other)
        return is_made or self.what in (MailEventKind.ARRIVED, MailEventKind.NAMED)


WAITS = (MailEventKind.DEFERRED, MailEventKind.SUSPENDED, MailEventKind.FAILED)
"""What is the reason of a message that waits."""


class MailLog(NamedTuple):
    """Where the log of one server is, and how its lines are read. Made by `Format.mail_log`."""

    paths: tuple[str, ...]
    """Where it may be: the first path with a file is read."""
    parse: Callable[[str], MailEvent | None]
    """Makes the event of a line, without its time, from the text behind the time; None: the line
    is about no message, or about one of another server in the same log."""
    is_id: Callable[[str], bool]
    """True if a word may be the id of a message."""
    facts: re.Pattern[bytes]
    """Finds a line feed and the line behind it, up to what makes it a fact of a waiting message:
    group `id`, and one of `reason`, `account`, `end` (it waits no longer)."""
    mentions: tuple[bytes, ...] = (b"",)
    """What is before an id wherever a line names one: RE2 finds a fixed text before alternatives
    eight times faster than the alternatives alone."""
    untried: bytes = b""
    """Part of the lines that have a reason without an attempt: they replace no other reason."""
    prefix: Prefix = HERE
    journal: tuple[str, ...] = ()
    """The command that prints the log if no path has a file; () if none does."""


def local_paths(log: MailLog | None) -> tuple[str, ...]:
    """The path of a log on this host, for `Place.server_logs`; () if it is elsewhere."""
    if log is None or log.prefix.words or not log.paths:
        return ()
    return (next((path for path in log.paths if os.path.exists(path)), log.paths[0]),)


JOURNAL = ("journalctl", "-a", "--no-pager", "-q", "-o", "short-unix", "SYSLOG_FACILITY=2")
"""Prints the journal's lines of mail servers, with the time in epoch seconds."""


_DAY, _QUARTER = 86400, 900
_ZONE_DAYS = 800
"""Days back from now for which the zone of another host is asked for."""


def ask_zone(prefix: Prefix, path: str) -> Zone | None:
    """The zone of another host, by GNU's date(1): of each day, then of each quarter of an hour of
    those in which the clocks were set. Another date shows the zone of the time when a file there
    was last written. None: unknown, or without a prefix."""
    if not prefix.words:
        return None
    try:
        variables, _ = prefix.plain.run(("env",))
    except Unavailable:
        return None
    # Ours, which chroot and nsenter pass on: no server there has it.
    unset = ("env", "-u", "TZ") if b"TZ=UTC" in variables else ()
    today = int(time.time()) // _DAY * _DAY
    days = range(today - _ZONE_DAYS * _DAY, today + 2 * _DAY, _DAY)
    ahead = _ask_dates(prefix, unset, days)
    set_on = [day for day, (one, after) in zip(days, pairwise(ahead), strict=False) if one != after]
    quarters = [at for day in set_on for at in range(day, day + _DAY + 1, _QUARTER)]
    finer = _ask_dates(prefix, unset, quarters) if quarters else ()
    if not ahead or len(finer) != len(quarters):
        by = run_date(prefix, *unset, "date", "-r", path, "+%z")
        return None if by is None else Zone(((float("-inf"), by),))
    pairs = pairwise(zip(quarters, finer, strict=True))
    later = ((at, by) for (_, former), (at, by) in pairs if by != former)
    return Zone(((float("-inf"), ahead[0]), *later))


def _ask_dates(prefix: Prefix, before: Sequence[str], times: Sequence[int]) -> Sequence[float]:
    """The seconds ahead of UTC there at these times; () if not all are known."""
    stdin = "".join(f"@{at}\n" for at in times).encode()
    try:
        lines, _ = prefix.plain.run((*before, "date", "-f", "-", "+%z"), stdin)
    except Unavailable:
        return ()
    found = [_parse_zone(line) for line in lines]
    known = [one for one in found if one is not None]
    return known if len(known) == len(times) else ()


def run_date(prefix: Prefix, *argv: str) -> float | None:
    """The zone that date(1) prints there, in seconds ahead of UTC; None: unknown."""
    try:
        lines, _ = prefix.plain.run(argv)
    except Unavailable:
        return None
    return _parse_zone(lines[-1]) if lines else None


def _parse_zone(line: bytes) -> float | None:
    match = re.fullmatch(rb"([+-])(\d\d)(\d\d)", line)
    if match is None:
        return None
    return int(match[1] + b"1") * (int(match[2]) * 3600.0 + int(match[3]) * 60.0)


def parse_event(
    log: MailLog, raw: bytes, latest: float | None = None, *, zone: Zone | None = None
) -> MailEvent | None:
    """The event of a line, with its time; `latest` and `zone` as for
    `engine.logs.log_line.parse_head`."""
    line = parse_log_line(raw[:MAX_LINE_BYTES], "", None, latest, zone=zone)
    event = log.parse(line.text)
    return None if event is None else event._replace(when=line.when)


MAX_LINE_BYTES = 16 << 10
"""Bytes of a line of a mail log that are parsed; servers write at most half as many."""


class OpenMailLog:
    """The open files of a mail log, the earliest first, of this host or copied from another one."""

    def __init__(
        self,
        log: MailLog,
        since: float = NO_TIME,
        progress: Callable[[int], object] = lambda read: None,
    ) -> None:
        """Open the files that may have lines since a time (epoch seconds UTC); `progress` gets the
        bytes that were unpacked."""
        self.files: list[LogFile] = []
        self.name = log.paths[0] if log.paths else " ".join(log.journal[:1])
        """The path of the log, or the program that prints it."""
        self.problems: list[str] = []
        """What could not be read, one line each."""
        self._log = log
        self._rotated: RotatedLog | None = None
        self._zone: Zone | None = None
        try:
            self._open(since, progress)
        except BaseException:
            self.close()
            raise

    def _open(self, since: float, progress: Callable[[int], object]) -> None:
        if self._log.prefix.words:
            self._copy_files(since)
            return
        for path in self._log.paths:
            rotated = self._rotated = RotatedLog(path)
            rotated.refresh()
            unpacked = 0
            while read := rotated.open_earlier(since):
                unpacked += read
                progress(unpacked)
            if rotated.files or not rotated.is_missing:
                self._use(rotated)
                return
            rotated.close()
        self._copy_journal(since)

    def _use(self, rotated: RotatedLog) -> None:
        self.name, self.files = rotated.path, rotated.files
        if rotated.trouble:
            self.problems.append(f"{rotated.path}: {rotated.trouble}")
        self.problems += [f"{path}: {why}" for path, why in rotated.damages.items()]
        with suppress(OSError):  # the folder: it is in `damages`
            self.problems += missing_numbers(
                rotated.path, files.list_names(os.path.dirname(rotated.path))
            )

    def _copy_files(self, since: float) -> None:
        """Copy the log of another host, and its rotated files back to a time."""
        for path in self._log.paths:
            folder, name = os.path.split(path)
            listed = self._run(("ls", "-1", folder))
            names = [name] if listed is None else [*_rotated_names(name, listed)]
            if names:
                self.name = path
                self._copy_back(folder, names, since)
                return
        self._copy_journal(since)

    def _copy_back(self, folder: str, names: Sequence[str], since: float) -> None:
        left = COPIED_BYTES
        for name in names:
            if left <= 0:
                limit = format_bytes(COPIED_BYTES)
                self.problems.append(f"{folder}/{name}: not read, of all only the last {limit} are")
                return
            packing = next((end for end in SUFFIXES if name.endswith(end)), "")
            program = ("cat",) if packing else ("tail", "-c", str(left))
            left -= self._copy((*program, f"{folder}/{name}"), packing)
            begin = self.files[0].first_time() if self.files else None
            if begin is not None and begin < since:
                return

    def _copy_journal(self, since: float) -> None:
        if not self._log.journal:
            self.problems += [f"{path}: {NO_LOG_FILE}" for path in self._log.paths]
            self.problems = self.problems or [NO_LOG]
            return
        words = (*self._log.journal, "-n", str(JOURNAL_LINES))
        words = (*words, f"--since=@{since:.0f}") if since > NO_TIME else words
        if not self._copy(words, "") and not self.problems:
            self.problems.append(f"{words[0]}: no line of a mail server that this user may read")

    def _run(self, argv: Sequence[str]) -> list[str] | None:
        """The lines that a program prints; None if it fails."""
        try:
            lines, end = run_program(self._log.prefix.command(argv))
        except CannotStart as error:
            self.problems.append(str(error))
            return None
        if end.status or end.limit:
            self.problems.append(f"{argv[0]} {argv[-1]}: {_describe_end(end)}")
            return None
        return [line.decode("utf-8", "replace") for line in lines]

    def _copy(self, argv: Sequence[str], packing: str) -> int:
        """Copy what a program prints to a file without a name, before those that are open; return
        the number of bytes."""
        try:
            return self._copy_output(argv, packing)
        except CannotStart as error:
            self.problems.append(str(error))
        except OSError as error:
            self.problems.append(f"{argv[-1]}: not copied: {error_text(error)}")
        return 0

    def _copy_output(self, argv: Sequence[str], packing: str) -> int:
        with TemporaryFile() as copy:
            program = RunningProgram(self._log.prefix.command(argv))
            try:
                for number, line in enumerate(program.lines()):
                    copy.write(b"\n" * (number > 0) + line)
            finally:
                program.close()
            end = program.end
            assert end is not None
            if copy.tell() and not end.is_cut:
                copy.write(b"\n")
            copy.flush()
            if end.status or end.limit:
                self.problems.append(f"{argv[0]} {argv[-1]}: {_describe_end(end)}")
            if not copy.tell():
                return 0
            number = -len(self.files)
            file = LogFile(self.name, number, os.dup(copy.fileno()), FileCache(), packing)
            try:
                while file.measure(_CHUNK_BYTES):
                    pass
                file.check_growth()
                if self._log.prefix.words:
                    self._find_zone(file, argv[-1])
            except BaseException:
                file.close()
                raise
            self.files.insert(0, file)
            return copy.tell()

    def _find_zone(self, file: LogFile, path: str) -> None:
        """Ask for the zone of a copied file, if its times do not name it."""
        if any(map(lacks_zone, file.read(0, _HEAD_BYTES).split(b"\n"))):
            if self._zone is None or len(self._zone.changes) == 1:  # or it is of the file alone
                self._zone = ask_zone(self._log.prefix, path)
            file.zone = self._zone
            if file.zone is None:
                self.problems.append(f"{path}: {NO_ZONE}")

    def close(self) -> None:
        """Close the files."""
        if self._rotated is not None:
            self._rotated.close()
        for file in self.files:
            file.close()


def _describe_end(end: ProgramEnd) -> str:
    return end.limit or end.last_error or f"exit code {end.status}"


_NUMBER = re.compile(r"\.([0-9]{1,7})(?:\.[a-z0-9]+)?")


def _rotated_names(name: str, names: Sequence[str]) -> Iterator[str]:
    """A log and its rotated files with numbers or dates in their names, the newest first."""
    if name in names:
        yield name
    numbered = {
        int(m[1]): each
        for each in names
        if (m := _NUMBER.fullmatch(each, len(name))) and each.startswith(name)
    }
    yield from (numbered[number] for number in sorted(numbered))
    dated = re.compile(re.escape(name) + r"[.-][0-9]{8}[0-9-]*(?:\.[a-z0-9]+)?")
    yield from sorted(filter(dated.fullmatch, names), reverse=True)


def missing_numbers(path: str, names: Sequence[str]) -> Iterator[str]:
    """The rotated files of a log that are missing between others: `mail.log.2: missing`."""
    name = os.path.basename(path)
    mine = (each for each in names if each.startswith(name))
    found = {int(match[1]) for each in mine if (match := _NUMBER.fullmatch(each, len(name)))}
    for number in range(1, max(found, default=0)):
        if number not in found:
            yield f"{path}.{number}: missing"


_ZONE_SECONDS = 3600.0
"""Seconds for which the zone of another host is not asked for again."""


class LastReason(NamedTuple):
    """The last reason in a log why a message waits."""

    text: str
    """Safe to show."""
    when: float | None
    """Epoch seconds UTC."""


class MailFacts:
    """The last reason and the account of each message that waits, from the end of a mail log: one
    search of the bytes; a line is parsed when its fact is asked for. Blocks; belongs to a thread.

    `retry time not reached` and its like never replace the reason of an attempt."""

    def __init__(self, log: MailLog, most: int = FACT_BYTES, deadline: float | None = None) -> None:
        """Read `most` bytes at first; a program that prints the log is ended at the deadline, of
        time.monotonic()."""
        self._log, self._most, self._deadline = log, most, deadline
        self._reasons: dict[str, tuple[bytes, float]] = {}
        self._accounts: dict[str, tuple[bytes, float]] = {}
        self._rotated: RotatedLog | None = None
        self._offsets: dict[int, int] = {}
        self.since: float | None = None
        """Epoch seconds UTC of the first line that was read; None: unknown."""
        self.problems: Sequence[str] = ()
        """Why there is nothing, or not all, to read."""
        self._has_read = False
        self._zone: Zone | None = None
        self._zone_due = float("-inf")

    def read_on(self) -> frozenset[str]:
        """Read the end of the log, later only its new lines; return the ids that they name."""
        if self._log.prefix.words or (self._rotated is None and not self._find()):
            return self._read_copy()
        assert self._rotated is not None
        named: set[str] = set()
        try:
            self._rotated.refresh()
            self.problems = [self._rotated.trouble] if self._rotated.trouble else []
            if not self._has_read:
                self._go_to_start(self._rotated)
            for file in self._rotated.files:
                # A log that was replaced is new as a whole, and may be large.
                begin = max(0, file.size - max(self._most, _CHUNK_BYTES))
                at = self._offsets.get(file.number, begin)
                self._offsets[file.number] = self._read_file(file, at, named)
            self._rotated.close_removed()
        except OSError as error:
            self.problems = [f"{self._rotated.path}: {error.strerror}"]
        return frozenset(named)

    def read_waiting(self, most: int) -> dict[str, str]:
        """Read the new lines; return the ids of messages that they name and that wait still, at
        most so many, each with the last reason why, "" without one.

        One without a reason may be on its way, and a look at one that has left takes Postfix a
        second: it is kept, and returned by the next call, unless its end was read until then."""
        before = self._accounts.copy()
        self.read_on()
        lines = {id: line for id, line in self._accounts.items() if id in before} | self._reasons
        named = ((id, self._event(line)) for id, line in islice(lines.items(), most))
        waiting = {
            id: clean_error(event.text) if event.what in WAITS else ""
            for id, event in named
            if event is not None
        }
        self._reasons.clear()
        handled = {*before, *lines}
        self._accounts = {id: line for id, line in self._accounts.items() if id not in handled}
        return waiting

    def reason(self, id: str) -> LastReason | None:
        """The last reason why a message waits; None if the log has none."""
        event = self._event(self._reasons.get(id))
        if event is None or event.what not in WAITS:
            return None
        return LastReason(clean_error(event.text), event.when)

    def account(self, id: str) -> str:
        """The account that submitted a message; "" if the log has none."""
        event = self.arrival(id)
        return "" if event is None else clean_error(event.account)

    def arrival(self, id: str) -> MailEvent | None:
        """The last line that is no reason; None if the log has none of a message."""
        return self._event(self._accounts.get(id))

    def _event(self, line: tuple[bytes, float] | None) -> MailEvent | None:
        if line is None:
            return None
        event = parse_event(self._log, *line, zone=self._zone)
        is_unknown = self._zone is None and self._log.prefix.words and lacks_zone(line[0])
        return event._replace(when=None) if event and is_unknown else event

    def _find(self) -> bool:
        for path in self._log.paths:
            if os.path.lexists(path):
                self._rotated = RotatedLog(path)
                return True
        return False

    def _go_to_start(self, rotated: RotatedLog) -> None:
        """Set the offsets to the last bytes, also in rotated files."""
        left, self._has_read, at = self._most, True, 0
        done: set[int] = set()
        while left > 0:
            new = [file for file in rotated.files[::-1] if file.number not in done]
            for file in new:
                at = max(0, file.size - left) if left > 0 else file.size
                self._offsets[file.number] = at
                done.add(file.number)
                left -= file.size - at
            if left > 0 and not rotated.open_earlier() and not new:
                break
        if rotated.files:
            self.since = _first_time_from(rotated.files[0], self._offsets[rotated.files[0].number])

    def _read_file(self, file: LogFile, at: int, named: set[str]) -> int:
        """Read the complete lines behind an offset; return the offset of the next line."""
        begin = max(0, at - 1)  # the line feed before the first line
        while begin < file.size:
            data = file.read(begin, _CHUNK_BYTES)
            if not data:
                return at  # emptied since its size was read: the next look begins it again
            end = data.rfind(b"\n")
            if end <= 0 and begin + len(data) < file.size:
                begin += len(data)  # one line of more than a chunk
                continue
            if end >= 0:
                self._search(data[:end] if begin else b"\n" + data[:end], file.modified, named)
            if begin + len(data) >= file.size:
                return begin + end + 1 if end >= 0 else at
            begin += end
        return at

    def _search(self, data: bytes, modified: float, named: set[str]) -> None:
        """Keep the last line with each fact of each message in some whole lines, without the line
        feed at their end."""
        reasons, accounts, untried = self._reasons, self._accounts, self._log.untried
        at = 0
        while (match := self._log.facts.search(data, at)) is not None:
            at = match.end() - data.endswith(b"\n", 0, match.end())  # with it the next line begins
            id, kind = match["id"].decode(), match.lastgroup
            named.add(id)
            if kind == "end":
                reasons.pop(id, None)
                accounts.pop(id, None)
                continue
            end = data.find(b"\n", match.end())
            line = data[match.start() + 1 : end if end >= 0 else len(data)]
            if kind != "reason":
                accounts[id] = line, modified
            elif not (untried and id in reasons and untried in line):
                reasons[id] = line, modified

    def _read_copy(self) -> frozenset[str]:
        """Read the end of a log that a program prints: on another host, or of the journal."""
        most = _POLLED_BYTES if self._has_read else self._most
        ends = self._deadline
        tails = [("tail", "-c", str(most), path) for path in self._log.paths]
        named: set[str] = set()
        self.problems = [f"{path}: {NO_LOG_FILE}" for path in self._log.paths] or [NO_LOG]
        for argv in [
            *tails,
            *([(*self._log.journal, "-n", str(most >> 8))] * bool(self._log.journal)),
        ]:
            if argv[0] == "tail" and not self._log.prefix.words:
                continue
            left = None if ends is None else max(0.1, ends - time.monotonic())
            try:
                lines, end = run_program(self._log.prefix.command(argv), total_seconds=left)
            except CannotStart as error:
                self.problems = [str(error)]
                continue
            if end.status or end.limit:
                self.problems = [f"{argv[0]} {argv[-1]}: {_describe_end(end)}"]
                continue
            self._has_read, self.problems = True, []
            if lacks_zone(lines[-1] if lines else b"") and time.monotonic() >= self._zone_due:
                self._zone_due = time.monotonic() + _ZONE_SECONDS
                self._zone = ask_zone(self._log.prefix, argv[-1])
            self._search(b"\n".join((b"", *lines)), time.time(), named)
            break
        return frozenset(named)

    def close(self) -> None:
        """Close the files."""
        if self._rotated is not None:
            self._rotated.close()


def check_log(log: MailLog) -> Finding:
    """Find out whether the log can be read: reasons, accounts and trails come from it."""
    facts = MailFacts(log, _POLLED_BYTES)
    try:
        facts.read_on()
        problems = [*facts.problems]
    finally:
        facts.close()
    name = log.paths[0] if log.paths else "the journal"
    if not problems:
        return ok(f"{name} can be read")
    return hidden(f"mail log: {problems[0]}", "run it as root, or as a member of its group (adm)")


def _first_time_from(file: LogFile, at: int) -> float | None:
    entries = file.lines_between(at, min(at + file.cell_size, file.size))
    return next((entry.line.when for entry in entries if entry.line.when is not None), None)
