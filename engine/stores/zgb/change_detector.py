"""When to look again, and where: at the rows that are not as they were."""

from __future__ import annotations

import os
import time
from array import array
from bisect import bisect_right
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple, TypeAlias

from engine.stores.zgb import connections_config
from engine.stores.zgb.place import KINDS
from engine.stores.zgb.row import parsed_id
from engine.stores.zgb.scan import PLACES
from engine.stores.zgb.schema import Database
from engine.stores.zgb.sidecar_database import PAGE as ASIDE_PAGE
from engine.stores.zgb.sidecar_database import SidecarDatabase
from engine.stores.zgb.times import Cell
from engine.text.decode import digits

POLL = 0.2
"""Seconds between two glances at whether something has changed."""

PAGE = 200
"""Rows that are compared at once."""

SPARING = 4
"""Rows are compared no sooner than after so many times what that took the last time."""

_FIRST = -1 << 63
_KINDS = tuple(kind.encode() for kind in KINDS)
_NUMBERS = 1 << 62
"""Numbers from here on are not told: with their kind they would not fit."""
_NOBODY = -1

Rows: TypeAlias = Sequence[tuple[Cell, ...]]


class ChangeDetector:
    """Hears whatever changes in either database, on the connections of one store."""

    def __init__(
        self, book: Database, aside: SidecarDatabase, pause: Callable[[float], None]
    ) -> None:
        """`pause` is what it spends its time with between two glances."""
        self._book, self._aside, self._pause = book, aside, pause
        self._heard = self._stamps()
        self._theirs, self._ours = Prints(PAGE), Prints(ASIDE_PAGE)
        self._token = ""
        self._listens = False
        self._earliest = 0.0

    def wait(self, seconds: float) -> Collection[str] | None:
        """See `ChangeSource.wait`; the first call reads all rows, so that later ones can compare.

        Raises:
            Unavailable: a database cannot be read.
        """
        if not self._listens:
            self._listens = True
            self._compared(True, True)
            # Only now: what changes while the rows are read must not be taken for what they were.
            if (now := self._stamps()) != self._heard:
                self._heard = now
                return None
        until = time.monotonic() + seconds
        while (now := self._stamps()) == self._heard or time.monotonic() < self._earliest:
            left = until - time.monotonic()
            if left <= 0:
                return ()
            self._pause(min(left, POLL))
        before, self._heard = self._heard, now
        began = time.thread_time()
        names = self._compared(before.theirs != now.theirs, before.ours != now.ours)
        self._earliest = time.monotonic() + SPARING * (time.thread_time() - began)
        return names

    def _compared(self, theirs: bool, ours: bool) -> Collection[str] | None:
        """The names of what is not as it was; None where one cannot be told."""
        differing: set[int] = set()
        names: set[str] = set()
        if theirs:
            wire, shape = self._book.wire, self._book.shape
            token = connections_config.load(wire).moved
            ours |= token != self._token  # it decides what is in ours
            self._token = token
            at = [1 + shape.names.index(n) for n in ("registration_number", "mail_type")]
            query = (
                f"SELECT {shape.columns} FROM mail_queue WHERE {shape.key} > ?"
                f" ORDER BY {shape.key} LIMIT {PAGE}"
            )
            differing |= self._theirs.compare(
                lambda after: wire.raw(query, (after,)),
                lambda row: _packed(row[at[0]], row[at[1]]),
            )
            # Whatever else they have changed shows in what is wrong, and in what may be done.
            names.update(PLACES)
        if ours:
            differing |= self._ours.compare(
                lambda after: self._aside.rows(after, self._token), lambda row: _packed_id(row[1])
            )
        if _NOBODY in differing:
            return None
        return names | {f"{code // len(KINDS)}-{KINDS[code % len(KINDS)]}" for code in differing}

    def _stamps(self) -> DataVersions:
        path, aside = self._book.place.path, self._book.place.aside
        theirs = self._book.wire.version, _file(path), _file(f"{path}-wal")
        return DataVersions(theirs, (self._aside.version, _file(aside)))


class DataVersions(NamedTuple):
    """What changes with either database: SQLite's own counters, and the files themselves."""

    theirs: tuple[object, ...]
    ours: tuple[object, ...]


class Prints:
    """What the rows of a table were when they were last compared, in 24 bytes for each."""

    def __init__(self, page: int) -> None:
        """`page` is how many rows are read at once; fewer are the last."""
        self._page = page
        self._keys, self._marks, self._codes = array("q"), array("q"), array("q")

    def compare(
        self, read: Callable[[int], Rows], code: Callable[[tuple[Cell, ...]], int]
    ) -> set[int]:
        """The codes of the rows that came, left or are not as they were; they are from now on.

        `read` answers with a page of rows whose keys, their first column, are above a number, in
        the order of keys.
        """
        keys, marks, codes = array("q"), array("q"), array("q")
        differing: set[int] = set()
        after, start = _FIRST, 0
        while True:
            rows = read(after)
            there = array("q", map(_key, rows))
            now = array("q", map(hash, rows))
            more = len(rows) == self._page
            end = bisect_right(self._keys, there[-1], start) if more else len(self._keys)
            was = self._keys[start:end], self._marks[start:end], self._codes[start:end]
            if (there, now) == was[:2]:
                of = was[2]
            else:
                of = array("q", map(code, rows))
                changed = set(zip(*was, strict=True)) ^ set(zip(there, now, of, strict=True))
                differing.update(one for _, _, one in changed)
            keys += there
            marks += now
            codes += of
            if not more:
                break
            after, start = there[-1], end
        self._keys, self._marks, self._codes = keys, marks, codes
        return differing


def _key(row: tuple[Cell, ...]) -> int:
    assert isinstance(row[0], int)
    return row[0]


def _packed(number: Cell, kind: Cell) -> int:
    """A job's number and kind as one number; `_NOBODY` for a row that has none."""
    if isinstance(number, bytes) and (number == b"0" or not number.startswith(b"0")):
        number = digits(number)  # a column that was declared as text
    if not isinstance(number, int) or not 0 <= number < _NUMBERS or kind not in _KINDS:
        return _NOBODY
    return number * len(KINDS) + _KINDS.index(kind)


def _packed_id(ident: Cell) -> int:
    its = parsed_id(ident.decode("utf-8", "replace")) if isinstance(ident, bytes) else None
    return _NOBODY if its is None else _packed(its[0], its[1].encode())


def _file(path: str) -> tuple[int, ...]:
    try:
        seen = os.stat(path)
    except OSError:
        return ()  # not there, which is as telling as any time
    return seen.st_ino, seen.st_size, seen.st_mtime_ns
