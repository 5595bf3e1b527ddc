"""Detect changes in the two databases by polling, and name the changed jobs."""

from __future__ import annotations

import os
import time
from array import array
from bisect import bisect_right
from collections.abc import Callable, Collection, Sequence
from typing import TypeAlias

from engine.formats.zgb.place import KINDS, Cell
from engine.formats.zgb.queue_config import load_config
from engine.formats.zgb.row import parse_id
from engine.formats.zgb.scan import QUEUE_PROBLEMS
from engine.formats.zgb.schema import Database, select_jobs
from engine.formats.zgb.sidecar_database import JOBS_PER_PAGE as SIDECAR_PAGE
from engine.formats.zgb.sidecar_database import SidecarDatabase
from engine.text.decode import parse_digits
from engine.values import NamedTuple

POLL_SECONDS = 0.2
"""Seconds between two checks of the data versions."""

ROWS_PER_PAGE = 200
"""Rows that are read and compared at a time."""

COMPARE_PAUSE_FACTOR = 4
"""The pause after a comparison, as a multiple of its CPU time."""

_LOWEST_KEY = -1 << 63
_KINDS = tuple(kind.encode() for kind in KINDS)
_NUMBER_LIMIT = 1 << 62
"""Numbers from here on have no code: with their kind they would not fit into 64 bits."""
_NO_JOB = -1

Rows: TypeAlias = Sequence[tuple[Cell, ...]]


class ChangeDetector:
    """A change source: compares data versions, then row hashes, on the connections of one store."""

    def __init__(
        self, database: Database, sidecar: SidecarDatabase, pause: Callable[[float], None]
    ) -> None:
        """`pause` is called to sleep between two checks."""
        self._database, self._sidecar, self._pause = database, sidecar, pause
        self._versions = self._read_versions()
        self._queue_hashes, self._sidecar_hashes = RowHashes(ROWS_PER_PAGE), RowHashes(SIDECAR_PAGE)
        self._token = ""
        self._has_hashes = False
        self._earliest = 0.0

    def wait(self, seconds: float) -> Collection[str] | None:
        """See `ChangeSource.wait`. The first call hashes all rows, so that later calls can compare.
        Raises Unavailable: a database cannot be read."""
        if not self._has_hashes:
            self._has_hashes = True
            self._find_changes(True, True)
            # A change during the first read may be missing from the hashes, so it needs a full
            # scan.
            if (now := self._read_versions()) != self._versions:
                self._versions = now
                return None
        until = time.monotonic() + seconds
        while (now := self._read_versions()) == self._versions or time.monotonic() < self._earliest:
            remaining = until - time.monotonic()
            if remaining <= 0:
                return ()
            self._pause(min(remaining, POLL_SECONDS))
        before, self._versions = self._versions, now
        began = time.thread_time()
        names = self._find_changes(before.queue != now.queue, before.sidecar != now.sidecar)
        self._earliest = time.monotonic() + COMPARE_PAUSE_FACTOR * (time.thread_time() - began)
        return names

    def _find_changes(
        self, is_queue_changed: bool, is_sidecar_changed: bool
    ) -> Collection[str] | None:
        """Return the names of changed jobs; None if a changed row has no job id."""
        differing: set[int] = set()
        names: set[str] = set()
        if is_queue_changed:
            db, shape = self._database.connection, self._database.shape
            token = load_config(db).move_token
            # The token decides which sidecar rows are in effect.
            is_sidecar_changed |= token != self._token
            self._token = token
            at = [1 + shape.names.index(n) for n in ("registration_number", "mail_type")]
            condition = f"WHERE {shape.key} > ? ORDER BY {shape.key} LIMIT {ROWS_PER_PAGE}"
            differing |= self._queue_hashes.compare(
                lambda after: select_jobs(db, shape, condition, (after,), db.run_bytes),
                lambda row: _encode_job(row[at[0]], row[at[1]]) if row[1:] else _NO_JOB,
            )
            # Other changes show in the problems and the controls of the queue.
            names.update(QUEUE_PROBLEMS)
        if is_sidecar_changed:
            differing |= self._sidecar_hashes.compare(
                lambda after: self._sidecar.read_page(after, self._token),
                lambda row: _encode_id(row[1]),
            )
        if _NO_JOB in differing:
            return None
        return names | {f"{code // len(KINDS)}-{KINDS[code % len(KINDS)]}" for code in differing}

    def _read_versions(self) -> DataVersions:
        path, sidecar = self._database.place.path, self._database.place.sidecar_path
        theirs = (
            self._database.connection.version,
            _file_version(path),
            _file_version(f"{path}-wal"),
        )
        return DataVersions(theirs, (self._sidecar.version, _file_version(sidecar)))


class DataVersions(NamedTuple):
    """What changes with either database: SQLite's data_version counters and the file status."""

    queue: tuple[object, ...]
    sidecar: tuple[object, ...]


class RowHashes:
    """Row hashes of a table as of the last comparison: 24 bytes per row."""

    def __init__(self, page: int) -> None:
        """`page`: rows that `read` returns at a time; a shorter page is the last."""
        self._page = page
        self._keys, self._marks, self._codes = array("q"), array("q"), array("q")

    def compare(
        self, read: Callable[[int], Rows], code: Callable[[tuple[Cell, ...]], int]
    ) -> set[int]:
        """Return the codes of rows that were added, removed or changed; remember the present rows.

        `read` takes a key and returns the next page of rows with greater keys, in the order of
        their first column, the key."""
        keys, marks, codes = array("q"), array("q"), array("q")
        differing: set[int] = set()
        after, start = _LOWEST_KEY, 0
        while True:
            rows = read(after)
            page_keys = array("q", map(_key, rows))
            now = array("q", map(hash, rows))
            more = len(rows) == self._page
            end = bisect_right(self._keys, page_keys[-1], start) if more else len(self._keys)
            was = self._keys[start:end], self._marks[start:end], self._codes[start:end]
            if (page_keys, now) == was[:2]:
                of = was[2]
            else:
                of = array("q", map(code, rows))
                changed = set(zip(*was, strict=True)) ^ set(zip(page_keys, now, of, strict=True))
                differing.update(one for _, _, one in changed)
            keys += page_keys
            marks += now
            codes += of
            if not more:
                break
            after, start = page_keys[-1], end
        self._keys, self._marks, self._codes = keys, marks, codes
        return differing


def _key(row: tuple[Cell, ...]) -> int:
    assert isinstance(row[0], int)
    return row[0]


def _encode_job(number: Cell, kind: Cell) -> int:
    """Encode a job's number and kind as one number; `_NO_JOB` if the row is not a job."""
    if isinstance(number, bytes) and (number == b"0" or not number.startswith(b"0")):
        number = parse_digits(number)  # a column that was declared as text
    if not isinstance(number, int) or not 0 <= number < _NUMBER_LIMIT or kind not in _KINDS:
        return _NO_JOB
    return number * len(KINDS) + _KINDS.index(kind)


def _encode_id(ident: Cell) -> int:
    its = parse_id(ident.decode("utf-8", "replace")) if isinstance(ident, bytes) else None
    return _NO_JOB if its is None else _encode_job(its[0], its[1].encode())


def _file_version(path: str) -> tuple[int, ...]:
    try:
        file_stat = os.stat(path)
    except OSError:
        return ()  # the file does not exist; its creation is a change
    return file_stat.st_ino, file_stat.st_size, file_stat.st_mtime_ns
