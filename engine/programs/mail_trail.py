"""The trail of an address, an id or a Message-Id through mail logs: arrival, attempts, requeue,
bounce, removal, also in rotated and compressed files. Only lines that match are parsed."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator, Sequence

from engine.logs.log_file import NO_TIME, LogFile
from engine.logs.log_line import LogLine, parse_log_line
from engine.logs.merged_log import find_offset, key_of
from engine.programs.mail_log import MAX_LINE_BYTES, MailEvent, MailLog, OpenMailLog
from engine.text import safe_regex
from engine.values import NamedTuple

MAX_MESSAGES = 1000
"""Messages that are followed; more are counted as cut off."""
MAX_LINES = 100_000
"""Lines that are kept."""
MIN_WORD = 3
"""Characters of a word to search for."""

_CHUNK_BYTES = 1 << 20
"""Bytes that are searched at a time, for several patterns: they fit into the cache of a CPU."""
_BACK_BYTES = 8 << 20
"""Bytes before the first match of a message that are searched for its arrival, before all are."""


class TrailEvent(NamedTuple):
    """A line of a trail."""

    event: MailEvent
    chain: int
    """Number of the messages that belong together: a message, its bounces, its former ids."""


class Trail(NamedTuple):
    """What a log has about a word."""

    events: Sequence[TrailEvent]
    """By chain, in the order of the log."""
    name: str
    """The path of the log, or the program that prints it."""
    files: int
    """Files that were searched."""
    since: float | None
    """Epoch seconds UTC of the first line that was searched; None: unknown."""
    problems: Sequence[str]
    """What could not be read, one line each; untrusted."""
    is_cut: bool
    """True if more messages, or lines of them, match than are followed."""


def find_trail(
    log: MailLog,
    word: str,
    since: float = NO_TIME,
    progress: Callable[[int], object] = lambda read: None,
    *,
    ids: Collection[str] = (),
) -> Trail:
    """Search a log from a time on (epoch seconds UTC) for a word, "" for none, and for ids; blocks.
    `progress` gets the bytes read."""
    opened = OpenMailLog(log, since, progress)
    try:
        search = _TrailSearch(log, opened.files, word, since)
        search.follow(ids)
        search.run(progress)
        first = search.first_time() if opened.files else None
        files, problems = len(opened.files), tuple(opened.problems)
        events = search.events()
        return Trail(events, opened.name, files, first, problems=problems, is_cut=search.is_cut)
    finally:
        opened.close()


def word_pattern(word: str) -> re.Pattern[str]:
    """Match an address, a Message-Id or another text, in any case, but not as a part of a longer
    address or name."""
    begin = r"(?<![\w.+-])" if word[:1].isalnum() else ""
    end = r"(?![\w+-]|\.\w)" if word[-1:].isalnum() else ""
    return re.compile(begin + re.escape(word) + end, re.IGNORECASE)


def _needle(word: str) -> bytes:
    """The longest part of a word in ASCII: bytes are searched in any case for no other letters."""
    parts: list[str] = re.findall(r"[\x20-\x7e]+", word)
    return max(parts, key=len, default="").encode()


def _line_begins(data: bytes, pattern: safe_regex.BytesPattern) -> set[int]:
    """The offsets of the lines with a match."""
    begins: set[int] = set()
    at = 0
    while (hit := pattern.search(data, at)) is not None:
        begins.add(data.rfind(b"\n", 0, hit.start()) + 1)
        at = data.find(b"\n", hit.end()) + 1  # behind it: an empty pattern matches everywhere
        if not at:
            break
    return begins


class _LogChunk(NamedTuple):
    """A part of a file."""

    base: int
    """Position of its first byte, which begins a line."""
    data: bytes
    end: int
    """Offset behind its last whole line: a line that begins there is in the next part too."""
    file: LogFile
    offset: int
    """Offset of its first byte in the file."""


class _MessageLines(NamedTuple):
    """The lines of one message: an id may be given to several, one after the other."""

    id: str
    positions: list[int]


class _TrailSearch:
    """One search: positions count the bytes of all files, the earliest file first."""

    def __init__(self, log: MailLog, files: Sequence[LogFile], word: str, since: float) -> None:
        self._log, self._word = log, word
        self._is_id = log.is_id(word)
        self._pattern = word_pattern(word) if word else None
        self._files = files
        self._bases = [0]
        for file in files:
            self._bases.append(self._bases[-1] + file.size)
        self._begin = self._start(since)
        self._ids: set[str] = set()
        self._named: frozenset[str] = frozenset()
        self._first: dict[str, int] = {}
        """Position of the first known line of each id."""
        self._lines: dict[int, MailEvent] = {}
        self._hits: set[int] = set()
        """Positions of lines that contain the word."""
        self.is_cut = False

    @property
    def _end(self) -> int:
        return self._bases[-1]

    def _start(self, since: float) -> int:
        """The position of the first line since a time."""
        for base, file in zip(self._bases, self._files, strict=False):
            if since > NO_TIME and (at := find_offset(file, key_of(since))) < file.size:
                return base + at
        return self._end if since > NO_TIME else 0

    def first_time(self) -> float | None:
        """The time of the first line that is searched."""
        at = min(self._begin, max(0, self._end - 1))
        number = bisect_right(self._bases, at) - 1
        file, offset = self._files[min(number, len(self._files) - 1)], at - self._bases[number]
        entries = file.lines_between(offset, min(offset + file.cell_size, file.size))
        return next((entry.line.when for entry in entries if entry.line.when is not None), None)

    def follow(self, ids: Collection[str]) -> None:
        """Search for these ids too, or for nothing else."""
        self._named = frozenset(ids)
        self._ids |= self._named

    def run(self, progress: Callable[[int], object]) -> None:
        """Search all files once; then once more for the beginnings that are further back."""
        for chunk in self._chunks(self._begin, self._end):
            is_search = bool(self._word) and not self.is_cut
            new = self._take(chunk, self._ids, is_search=is_search)
            end = chunk.base + chunk.end
            while new:  # their lines in this chunk, and shortly before
                new = self._collect(new, max(self._begin, chunk.base - _BACK_BYTES), end)
            progress(end - self._begin)
        searched: set[str] = set()
        while early := self._without_start() - searched:
            searched |= early
            new = self._collect(early, self._begin, max(self._first[id] for id in early))
            while new:
                searched |= new
                new = self._collect(new, self._begin, self._end)

    def _without_start(self) -> set[str]:
        """The ids whose first known line does not begin a message."""
        return {id for id, at in self._first.items() if not self._lines[at].is_start}

    def _collect(self, ids: Collection[str], begin: int, end: int) -> set[str]:
        """Keep all lines of these ids in a range; return the ids that they name besides."""
        new: set[str] = set()
        for chunk in self._chunks(begin, end):
            new |= self._take(chunk, ids)
        return new

    def _chunks(self, begin: int, end: int) -> Iterator[_LogChunk]:
        """The whole lines that begin in a range, in pieces."""
        for base, file in zip(self._bases, self._files, strict=False):
            at, stop = max(begin - base, 0), min(end - base, file.size)
            if 0 < at < stop:  # to the next begin of a line
                head = file.read(at - 1, _CHUNK_BYTES)
                at += head.find(b"\n") if b"\n" in head else len(head)
            while at < stop:
                data = file.read(at, _CHUNK_BYTES)
                if not data:
                    break
                is_last = at + len(data) >= file.size
                whole = len(data) if is_last else data.rfind(b"\n") + 1 or len(data)
                yield _LogChunk(base + at, data, whole, file, at)
                at += whole

    def _take(self, chunk: _LogChunk, ids: Collection[str], *, is_search: bool = False) -> set[str]:
        """Keep the lines of a trail that name one of these ids, or the word; return new ids."""
        begins: set[int] = set()
        data = chunk.data
        if is_search:
            begins |= _line_begins(data, safe_regex.any_of_literals([_needle(self._word)]))
        if ids:
            any_id = b"|".join(sorted(id.encode() for id in ids))
            for before in self._log.mentions:
                pattern = b"%s(?:%s)" % (re.escape(before), any_id)
                compiled = safe_regex.compile_bytes_pattern(pattern, case_sensitive=True)
                begins |= _line_begins(data, compiled)
        new: set[str] = set()
        for begin in sorted(begins):
            if begin < chunk.end:
                end = data.find(b"\n", begin)
                line = data[begin : end if end >= 0 else len(data)]
                latest = chunk.file.latest_time(chunk.offset + begin)
                parsed = parse_log_line(
                    line[:MAX_LINE_BYTES], "", None, latest, zone=chunk.file.zone
                )
                self._add(chunk.base + begin, parsed, new, is_search)
        self._ids |= new
        return new

    def _add(self, at: int, line: LogLine, new: set[str], is_search: bool) -> None:
        event = self._log.parse(line.text)
        if event is None or at in self._lines:
            return
        is_hit = event.id in self._named or (is_search and self._contains_word(event, line.text))
        known = self._ids | new if new else self._ids
        if not (is_hit or event.id in known or event.other in known):
            return
        others = {id for id in (event.id, event.other) if id} - known
        if len(self._lines) >= MAX_LINES or len(known) + len(others) > MAX_MESSAGES:
            self.is_cut = True
            if others:
                return
        new |= others
        self._lines[at] = event._replace(when=line.when)
        if event.id:
            self._first[event.id] = min(at, self._first.get(event.id, at))
        if is_hit:
            self._hits.add(at)

    def _contains_word(self, event: MailEvent, text: str) -> bool:
        if self._is_id:
            return self._word in (event.id, event.other)
        return self._pattern is not None and self._pattern.search(text) is not None

    # Which lines belong together

    def events(self) -> list[TrailEvent]:
        """The lines of the messages with a hit, and of those that they became or were."""
        messages = self._messages()
        chains = _Chains(messages, self._lines)
        wanted = sorted(at for at in self._hits if at in chains.message_of)
        chain_of = chains.follow(wanted)
        kept = [(chain, at) for at in self._lines if (chain := chain_of.get(at)) is not None]
        return [TrailEvent(self._lines[at], chain) for chain, at in sorted(kept)]

    def _messages(self) -> list[_MessageLines]:
        """The lines of each message: one with an id that was given again begins another."""
        latest: dict[str, _MessageLines] = {}
        ended: set[str] = set()
        messages: list[_MessageLines] = []
        for at in sorted(self._lines):
            event = self._lines[at]
            is_other = event.id in ended and event.is_start
            if not event.id or event.id not in latest or is_other:
                ended.discard(event.id)
                latest[event.id] = _MessageLines(event.id, [])
                messages.append(latest[event.id])
            latest[event.id].positions.append(at)
            if event.is_end:
                ended.add(event.id)
        return messages


class _Chains:
    """Messages that belong together: requeued, bounced, given back by a content filter."""

    def __init__(self, messages: Sequence[_MessageLines], lines: dict[int, MailEvent]) -> None:
        self._messages, self._lines = messages, lines
        self.message_of: dict[int, int] = {}
        """The number of the message that a line belongs to."""
        self._by_id: dict[str, list[int]] = {}
        for number, message in enumerate(messages):
            self._by_id.setdefault(message.id, []).append(number)
            self.message_of.update(dict.fromkeys(message.positions, number))
        self._links: dict[int, set[int]] = {}
        for at, number in self.message_of.items():
            other = lines[at].other
            if other in self._by_id:
                linked = self._at(other, at)
                self._links.setdefault(number, set()).add(linked)
                self._links.setdefault(linked, set()).add(number)

    def _at(self, id: str, at: int) -> int:
        """The message with an id at a position: the last one that had begun, else the first."""
        numbers = self._by_id[id]
        begun = [n for n in numbers if self._messages[n].positions[0] <= at]
        return begun[-1] if begun else numbers[0]

    def follow(self, hits: Sequence[int]) -> dict[int, int]:
        """The chain of each line that is linked with one of these, by the order of their lines."""
        groups: list[list[int]] = []
        seen: set[int] = set()
        for hit in hits:
            open_ones = [self.message_of[hit]]
            group: list[int] = []
            while open_ones:
                number = open_ones.pop()
                if number not in seen:
                    seen.add(number)
                    group += self._messages[number].positions
                    open_ones += self._links.get(number, ())
            if group:
                groups.append(group)
        groups.sort(key=min)
        return {at: chain for chain, group in enumerate(groups) for at in group}
