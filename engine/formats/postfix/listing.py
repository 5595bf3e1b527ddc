"""One listing: the lines of `postqueue -j` joined with the times of the files, which find(1) prints
beside it. A line is joined while it is in the cache of the processor; no later step touches all."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

from engine.formats.postfix.facts import SUSPENDED_REASON
from engine.formats.postfix.instance import Instance
from engine.formats.postfix.lines import (
    LETTER,
    is_queue_id,
    make_mail,
    match_id,
    parse_line,
    parse_times,
)
from engine.model import Problem
from engine.programs.mail_server import ListedMail
from engine.store import Unavailable

DEFERRED, CORRUPT = b"dc"
MOVING = b"aim"
"""First letters of queues; of MOVING, the times of files show nothing."""

FoundFiles = Mapping[int, dict[bytes, bytes]]
"""First letter of a queue -> id -> `MTIME_CTIME_MODE` of its file."""


class FileSearch:
    """find(1) for the files that wait, are on hold or damaged, run by a thread."""

    def __init__(self, instance: Instance) -> None:
        """Start it, if it may be used."""
        self._instance = instance
        self._lines, self._is_known = list[bytes](), threading.Event()
        self.first = b""
        """The times of the file in `deferred` that is due first, after `files`."""
        self._thread = threading.Thread(target=self._find, name="spooldeck-find", daemon=True)
        if instance.can_find:
            self._thread.start()

    def _find(self) -> None:
        with suppress(Unavailable):
            lines, end = self._instance.prefix.run(self._instance.find_words)
            if not end.limit and (lines or end.status == 0):
                self._lines = lines
                self._is_known.set()

    @property
    def has_found(self) -> bool:
        """True if it has ended, and the times are known."""
        return self._is_known.is_set()

    def lines(self) -> list[bytes]:
        """Wait for its end; its lines, none if the times cannot be read."""
        if self._instance.can_find:
            self._thread.join()
        return self._lines

    def files(self) -> FoundFiles:
        """Wait for its end, and parse its lines, once: their memory is needed for the result."""
        files = {letter: dict[bytes, bytes]() for letter in b"acdhim"}
        separator, lines = b"_%b/" % os.fsencode(self._instance.queue_folder), self.lines()
        while lines:
            times, _, path = lines.pop().partition(separator)
            if path:
                files[path[0]][path.rpartition(b"/")[2]] = times
        self.first = min(files[DEFERRED].values(), default=b"")  # as bytes: of ten digits
        return files


class Listing:
    """The state of a listing while it is read."""

    def __init__(self, search: FileSearch) -> None:
        self._search = search
        self._files: FoundFiles = {}
        self._untimed = dict[str, None]()
        """Ids of lines that got no times while they were read."""
        self.others: Sequence[str] = []
        """Ids of the messages in other queues than `deferred`."""
        self.suspended = dict[str, None]()
        """Ids of the messages with a destination that the queue manager has stopped to ask."""
        self.first_due: float | None = None
        """The earliest time of a next attempt, epoch seconds UTC; None if none is known."""
        self.has_times = False
        """True if the times of the files are known."""

    def read(self, printed: Iterable[bytes]) -> Iterator[ListedMail | Problem]:
        """Yield the messages of these lines, as soon as they are printed."""
        files: FoundFiles = {letter: {} for letter in b"adhim"}
        others, few_left = list[str](), 0
        self.others = others
        for number, line in enumerate(printed, 1):
            if (match := match_id(line)) and line.endswith(b"]}"):
                key, letter, rest = match[1], line[LETTER], line[match.end() :]
            elif isinstance(mail := parse_line(number, line), Problem):
                yield mail
                continue
            else:
                key, letter, rest = mail.id.encode(), mail.record[0], mail.record[1:]
            if not self._files and self._search.has_found:
                files = self._take_files()
                few_left = number + sum(map(len, files.values())) * 3 // 4
            elif number == few_left:  # a dict keeps the memory of entries that were removed
                files = self._files = {each: dict(found) for each, found in files.items()}
            ident = key.decode()
            if letter != DEFERRED:
                others.append(ident)
            if rest.rfind(SUSPENDED_REASON) >= 0:  # takes a third of the time of `in`
                self.suspended[ident] = None
            if (times := files[letter].pop(key, None)) is None:
                self._untimed[ident] = None
                yield make_mail((ident, b"%c%b" % (letter, rest)))
            else:
                self._untimed.pop(ident, None)  # it was in another queue when it was listed before
                yield make_mail((ident, b"%c%b\n%b" % (letter, rest, times)))

    def _take_files(self) -> FoundFiles:
        found = self._search.files()
        files = self._files = {letter: found[letter] for letter in found if letter not in MOVING}
        files.update((letter, {}) for letter in MOVING)
        return files

    def complete(self, records: dict[str, bytes]) -> Sequence[Problem]:
        """Add the times that were not known yet, once it is whole; return the damaged files."""
        files = self._files or self._take_files()
        for ident in self._untimed:
            record = records[ident]
            line, times = record.partition(b"\n")[0], files[record[0]].pop(ident.encode(), None)
            if times is None:  # times of an earlier listing prove nothing
                records[ident] = line
            elif not record.endswith(times):
                records[ident] = b"%b\n%b" % (line, times)
        self.has_times = self._search.has_found
        first = parse_times(self._search.first)
        self.first_due = None if first is None else float(first.mtime)
        self.others = [i for i in dict.fromkeys(self.others) if records[i][0] != DEFERRED]
        self._files = {}
        damaged = ((name.decode("ascii", "replace"), its) for name, its in files[CORRUPT].items())
        return [_damaged(ident, its) for ident, its in damaged if is_queue_id(ident)]


def _damaged(ident: str, detail: bytes) -> Problem:
    what = "Postfix has moved it to the queue corrupt: postcat shows its file"
    times = parse_times(detail)
    return Problem(f"corrupt/{ident}", what, since=None if times is None else float(times.ctime))
