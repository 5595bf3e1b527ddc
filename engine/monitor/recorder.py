"""The flight recorder: a day of moments in one small SQLite file, each in a slot of its own.

A moment's slot follows from its time, so that the file is bounded whatever the clock does, and a
second recorder could only write what the first one wrote. Who records is said by the flock on a
file beside it. The folder belongs to whoever owns the spool: nothing in it is believed, and root
reaches it with their rights only.
"""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from enum import StrEnum
from typing import NamedTuple

from engine.monitor.sample_codec import LARGEST, RecordedSample, pack
from engine.system import files, users
from engine.system.users import Account

PERIOD = 10.0
"""Seconds from one moment to the next."""

DAY = 86400.0
SLOTS = int(DAY / PERIOD)
"""How many moments there are at most."""

RING, OWNER, ASIDE = "ring.db", "owner", "ring.aside"
JOURNAL = f"{RING}-journal"

PAGE, PAGES = 4096, 1280
"""Bytes of a page, and how many there are at most: 5 MiB. Filled with the largest moments a day
takes 4."""

PATIENCE = {"rw": 1.0, "ro": 5.0}
"""Seconds for which others are waited for by who writes, and by who reads: somebody may wait for
the writer's end, and its next moment comes soon."""

MARK = 0x5D0F1165
"""Says in the file's header that it is one of ours."""
FORM = 1

_TABLE = "CREATE TABLE moment(slot INTEGER PRIMARY KEY, at REAL NOT NULL, data BLOB NOT NULL)"
_INDEX = "CREATE INDEX by_time ON moment(at)"


class RecorderSlot(NamedTuple):
    """Where the moments of one place lie."""

    folder: str
    """A folder of its own on the spool's desk."""
    like: str
    """A folder of the spool: what is made belongs to its owner."""


class Role(StrEnum):
    """What a process does for the recording of a place."""

    RECORDS = "records"
    """It writes the moments down."""
    WATCHES = "watches"
    """Somebody else does."""
    IDLE = "idle"
    """Nobody can from here; there is a reason."""


class RecorderStatus(NamedTuple):
    """How the recording goes on."""

    role: Role
    words: str = ""
    """What the operator should know of it, in one line; "" when all is well."""


class UnreadableRecording(Exception):
    """There is nothing to be read there; the message says why."""


class RecordedMoment(NamedTuple):
    """Something that was written down, as it lies in the file."""

    at: float
    """Epoch seconds UTC."""
    data: bytes


def slot_of(when: float) -> int:
    """The slot of a moment (epoch seconds UTC)."""
    return int(when // PERIOD) % SLOTS


class Recorder:
    """Writes moments down while nobody else does; used on one thread, and never waits long."""

    def __init__(self, spot: RecorderSlot) -> None:
        self._spot = spot
        self._folder = self._flock = -1
        self._file: sqlite3.Connection | None = None
        self._account: Account | None = None

    def write(self, seen: RecordedSample) -> RecorderStatus:
        """Write a moment down, unless another process records here; answers how that went."""
        try:
            desk = os.path.dirname(self._spot.folder)
            if not os.path.lexists(desk):
                # What it lies in may be root's, where its owner could make nothing.
                owner = files.owner_for(os.stat(self._spot.like))
                with users.files_as(users.owner_at(os.path.dirname(desk))):
                    files.make_folder(desk, owner=owner)
            self._account = _owner(self._spot)
            with users.files_as(self._account):
                if not self._is_ours():
                    return RecorderStatus(Role.WATCHES)
                return RecorderStatus(Role.RECORDS, self._put(seen))
        except (OSError, sqlite3.Error, users.Unsafe) as error:
            self.close()
            return RecorderStatus(Role.IDLE, f"nothing is recorded from here: {_why(error)}")

    def close(self) -> None:
        """Let somebody else record."""
        if self._file is not None:
            with users.files_as(self._account):  # SQLite may remove a journal as it closes
                self._file.close()
            self._file = None
        for fd in (self._flock, self._folder):
            if fd >= 0:
                os.close(fd)
        self._folder = self._flock = -1

    def _is_ours(self) -> bool:
        """Whether it is us who records, from now on if nobody did."""
        if self._flock >= 0 and not self._is_there():
            self.close()  # the folder was removed or replaced: whoever comes now finds another
        if self._flock >= 0:
            return True
        self._folder = _reach(self._spot, self._account, make=True)
        self._flock = files.open_shared(OWNER, self._folder, os.O_RDWR)
        if files.claim_flock(self._flock):
            return True
        self.close()
        return False

    def _is_there(self) -> bool:
        try:
            here = _reach(self._spot, self._account)
        except FileNotFoundError:
            return False
        try:
            named = os.stat(OWNER, dir_fd=here, follow_symlinks=False)
            return os.path.samestat(named, os.fstat(self._flock))
        except FileNotFoundError:
            return False
        finally:
            os.close(here)

    def _put(self, seen: RecordedSample) -> str:
        row = slot_of(seen.when), seen.when, pack(seen)
        said = ""
        try:
            self._insert(row)
        except sqlite3.DatabaseError as error:
            if isinstance(error, sqlite3.OperationalError) and not _is_damage(error):
                raise  # full, locked, read-only: nothing is said of the file itself
            said = self._renew(str(error))
            self._insert(row)
        except files.Refused as refusal:
            said = self._renew(str(refusal))
            self._insert(row)
        return said

    def _insert(self, row: tuple[int, float, bytes]) -> None:
        if self._file is None:
            self._file = self._open()
        with self._file:
            self._file.execute("INSERT OR REPLACE INTO moment VALUES(?, ?, ?)", row)

    def _open(self) -> sqlite3.Connection:
        new = not _lies(self._folder)
        if new:
            files.forget(JOURNAL, self._folder)  # of another file
            os.close(files.open_shared(RING, self._folder, os.O_RDWR))
        file = _connect(self._folder, "rw")
        try:
            file.execute("PRAGMA journal_mode=TRUNCATE")
            file.execute("PRAGMA synchronous=NORMAL")
            file.execute(f"PRAGMA max_page_count={PAGES}")
            if new or not file.execute("PRAGMA page_count").fetchone()[0]:
                with file:
                    file.execute("BEGIN IMMEDIATE")
                    for order in (_TABLE, _INDEX):
                        file.execute(order)
                    file.execute(f"PRAGMA application_id={MARK}")
                    file.execute(f"PRAGMA user_version={FORM}")
            _require_ours(file)
        except BaseException:
            file.close()
            raise
        return file

    def _renew(self, why: str) -> str:
        """Set the file aside, so that a new one is begun; answers what is to be said of it."""
        if self._file is not None:
            self._file.close()
            self._file = None
        files.rename(RING, ASIDE, src_dir_fd=self._folder, dst_dir_fd=self._folder)
        files.forget(JOURNAL, self._folder)
        where = f"{self._spot.folder}/{RING}"
        return f"{where}: {why}; set aside as {ASIDE}, a new recording was begun"


def recorded(spot: RecorderSlot, start: float, end: float) -> list[RecordedMoment]:
    """What was written down between two moments (epoch seconds UTC), the earliest first.

    Raises:
        Unreadable: there is none, or it is nothing of ours, or may not be read.
    """
    try:
        account = _owner(spot)
        with users.files_as(account):
            folder = _reach(spot, account)
            try:
                if not _lies(folder):
                    raise UnreadableRecording("nothing was recorded yet")
                with closing(_connect(folder, "ro")) as file:
                    _require_ours(file)
                    return list(_moments(file, start, end))
            finally:
                os.close(folder)
    except FileNotFoundError as error:
        raise UnreadableRecording("nothing was recorded yet") from error
    except files.Refused as refusal:
        raise UnreadableRecording(f"{spot.folder}/{RING}: {refusal}") from refusal
    except (OSError, sqlite3.Error, users.Unsafe) as error:
        raise UnreadableRecording(f"{spot.folder}/{RING}: {_why(error)}") from error


def _moments(file: sqlite3.Connection, start: float, end: float) -> Iterator[RecordedMoment]:
    found = file.execute(
        "SELECT at, data FROM moment WHERE at BETWEEN ? AND ? AND length(data) <= ?"
        " ORDER BY at LIMIT ?",
        (start, end, LARGEST, SLOTS),
    )
    for at, data in found:
        if isinstance(at, float) and isinstance(data, bytes):
            yield RecordedMoment(at, data)


def _connect(folder: int, how: str) -> sqlite3.Connection:
    """The file in a folder; by its descriptor, so that it is the one that was looked at."""
    # Every open file of SQLite is also one of ours: to open and close it ourselves would take away
    # the locks that another connection of this process has on it.
    path = f"file:/proc/self/fd/{folder}/{RING}?mode={how}"
    file = sqlite3.connect(path, uri=True, timeout=PATIENCE[how], cached_statements=8)
    file.execute("PRAGMA trusted_schema=OFF")
    file.execute("PRAGMA cell_size_check=ON")
    file.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 1 << 16)
    return file


def _require_ours(file: sqlite3.Connection) -> None:
    """Make sure of every word of its schema: none of it shall run that we did not write.

    Raises:
        Refused: it is another file.
    """
    marks = [file.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", _VERSION)]
    schema = {sql for (sql,) in file.execute("SELECT sql FROM sqlite_master LIMIT 9")}
    if marks != [MARK, FORM] or schema != {_TABLE, _INDEX}:
        raise files.Refused("no recording of ours")


_VERSION = "user_version"


def _lies(folder: int) -> bool:
    """Whether there is a file to be opened.

    Raises:
        Refused: it is something else than a plain file of somebody who may put it there.
    """
    try:
        seen = os.stat(RING, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    why = files.oddity(seen) or files.distrust(seen, os.fstat(folder))
    if not why and seen.st_size > PAGE * PAGES:
        why = f"{seen.st_size:,} bytes, expected at most {PAGE * PAGES:,}"
    if why:
        raise files.Refused(why)
    return True


def _reach(spot: RecorderSlot, account: Account | None, *, make: bool = False) -> int:
    """The folder, through no link below the one that the desk lies in."""
    above = os.path.dirname(os.path.dirname(spot.folder))
    fd = files.reach(spot.folder, above, make=make)
    now = users.owner_at(spot.folder)
    if (now and now.uid) != (account and account.uid):
        os.close(fd)
        raise PermissionError(errno.EPERM, "another user has just made its folder")
    return fd


def _owner(spot: RecorderSlot) -> Account | None:
    """With whose rights its files are reached."""
    return users.owner_at(spot.folder if os.path.lexists(spot.folder) else spot.like)


def _is_damage(error: sqlite3.OperationalError) -> bool:
    """Whether an error that is not named so speaks of what the file holds."""
    return error.sqlite_errorcode in (sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT)


def _why(error: Exception) -> str:
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return str(error)
