"""Flight recorder: one day of samples in a small SQLite file used as a ring buffer.

A sample's slot follows from its time, so that the file stays bounded even if the clock jumps, and a
second recorder could only write the same slots. The process that holds the flock on the file
`owner` records. The folder belongs to the spool's owner: its content is not trusted, and root
accesses it with the owner's rights only."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from enum import StrEnum

from engine.monitor.sample_codec import MAX_SAMPLE_BYTES, RecordedSample, encode_sample
from engine.system import files, users
from engine.system.cleanup import closed_on_error, closing_fd
from engine.system.users import Account
from engine.text.error_text import error_text
from engine.values import NamedTuple

SAMPLE_INTERVAL_SECONDS = 10.0

DAY_SECONDS = 86400.0
SLOTS = int(DAY_SECONDS / SAMPLE_INTERVAL_SECONDS)
"""Maximum number of samples."""

RING_FILE, OWNER_FILE, QUARANTINED_RING = "ring.db", "owner", "ring.aside"
JOURNAL = f"{RING_FILE}-journal"

PAGE_BYTES, MAX_PAGES = 4096, 1280
"""Page size in bytes and maximum number of pages: 5 MiB. A day of the largest samples takes 4 MiB.
"""

BUSY_TIMEOUT_SECONDS = {"rw": 1.0, "ro": 5.0}
"""SQLite busy timeout in seconds for the writer and for readers. The writer's is short: a caller
may wait for it to end, and its next sample comes soon."""

APPLICATION_ID = 0x5D0F1165
"""SQLite application_id that marks the file as ours."""
SCHEMA_VERSION = 1

_TABLE = "CREATE TABLE moment(slot INTEGER PRIMARY KEY, at REAL NOT NULL, data BLOB NOT NULL)"
_MARKS = ("application_id", "user_version")
_INDEX = "CREATE INDEX by_time ON moment(at)"


class RecorderLocation(NamedTuple):
    """Location of the recording of one place."""

    folder: str
    """Its folder in the spool's staging directory."""
    like: str
    """A folder of the spool: new files get the same owner."""


class Role(StrEnum):
    """Role of this process in recording a place."""

    RECORDS = "records"
    WATCHES = "watches"
    """Another process records."""
    IDLE = "idle"
    """Recording is not possible from here; the status has the reason."""


class RecorderStatus(NamedTuple):
    """State of the recording."""

    role: Role
    message: str = ""
    """Message for the operator, one line; "" if all is well."""


class UnreadableRecording(Exception):
    """There is no readable recording; the message says why."""


class EncodedSample(NamedTuple):
    """An encoded sample, as stored in the file."""

    at: float
    """Epoch seconds UTC."""
    data: bytes


def slot_number(when: float) -> int:
    """Return the slot of a time (epoch seconds UTC)."""
    return int(when // SAMPLE_INTERVAL_SECONDS) % SLOTS


class Recorder:
    """Records samples unless another process does; used on one thread, never blocks long."""

    def __init__(self, location: RecorderLocation) -> None:
        self._location = location
        self._folder = self._flock = -1
        self._file: sqlite3.Connection | None = None
        self._account: Account | None = None

    def write(self, sample: RecordedSample) -> RecorderStatus:
        """Record a sample unless another process records this place; return the outcome."""
        try:
            staging = os.path.dirname(self._location.folder)
            if not os.path.lexists(staging):
                # The parent may belong to root: the spool's owner cannot write there.
                owner = files.new_file_owner(os.stat(self._location.like))
                with users.files_as(users.safe_account(os.path.dirname(staging))):
                    files.make_folder(staging, owner=owner)
            self._account = _owner(self._location)
            with users.files_as(self._account):
                if not self._is_ours():
                    return RecorderStatus(Role.WATCHES)
                return RecorderStatus(Role.RECORDS, self._put(sample))
        except (OSError, sqlite3.Error, users.Unsafe) as error:
            self.close()
            return RecorderStatus(
                Role.IDLE, f"recording not possible from here: {error_text(error)}"
            )

    def close(self) -> None:
        """Close the file and release the flock, so that another process can record."""
        if self._file is not None:
            with users.files_as(self._account):  # SQLite may remove a journal as it closes
                self._file.close()
            self._file = None
        for fd in (self._flock, self._folder):
            if fd >= 0:
                os.close(fd)
        self._folder = self._flock = -1

    def _is_ours(self) -> bool:
        """True if this process records; takes the flock if it is free."""
        if self._flock >= 0 and not self._is_there():
            self.close()  # the folder was removed or replaced, its flock is void
        if self._flock >= 0:
            return True
        self._folder = _reach(self._location, self._account, make=True)
        self._flock = files.open_shared(OWNER_FILE, self._folder, os.O_RDWR)
        if files.claim_flock(self._flock):
            return True
        self.close()
        return False

    def _is_there(self) -> bool:
        try:
            with closing_fd(_reach(self._location, self._account)) as folder:
                return files.is_named(OWNER_FILE, os.fstat(self._flock), folder)
        except FileNotFoundError:
            return False

    def _put(self, sample: RecordedSample) -> str:
        row = slot_number(sample.when), sample.when, encode_sample(sample)
        try:
            self._insert(row)
        except (sqlite3.DatabaseError, files.Refused) as error:
            if isinstance(error, sqlite3.OperationalError) and not _is_damage(error):
                raise  # full, locked, read-only: the file itself is not damaged
            message = self._renew(str(error))
            self._insert(row)
            return message
        return ""

    def _insert(self, row: tuple[int, float, bytes]) -> None:
        if self._file is None:
            self._file = self._open()
        with self._file:
            self._file.execute("INSERT OR REPLACE INTO moment VALUES(?, ?, ?)", row)

    def _open(self) -> sqlite3.Connection:
        new = not _exists(self._folder)
        if new:
            files.unlink_quietly(JOURNAL, self._folder)  # of another file
            os.close(files.open_shared(RING_FILE, self._folder, os.O_RDWR))
        file = _connect(self._folder, "rw")
        with closed_on_error(file):
            file.execute("PRAGMA journal_mode=TRUNCATE")
            file.execute("PRAGMA synchronous=NORMAL")
            file.execute(f"PRAGMA max_page_count={MAX_PAGES}")
            if new or not file.execute("PRAGMA page_count").fetchone()[0]:
                with file:
                    file.execute("BEGIN IMMEDIATE")
                    file.execute(_TABLE)
                    file.execute(_INDEX)
                    file.execute(f"PRAGMA application_id={APPLICATION_ID}")
                    file.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
            _require_ours(file)
        return file

    def _renew(self, why: str) -> str:
        """Quarantine the file and start a new one; return the message for the operator."""
        if self._file is not None:
            self._file.close()
            self._file = None
        files.rename(RING_FILE, QUARANTINED_RING, src_dir_fd=self._folder, dst_dir_fd=self._folder)
        files.unlink_quietly(JOURNAL, self._folder)
        where = f"{self._location.folder}/{RING_FILE}"
        return f"{where}: {why}; quarantined as {QUARANTINED_RING}, new recording started"


def read_samples(location: RecorderLocation, start: float, end: float) -> list[EncodedSample]:
    """Return the samples between two times (epoch seconds UTC), the earliest first.

    Raises:
        UnreadableRecording: there is none, it is not ours, or it may not be read."""
    try:
        account = _owner(location)
        with users.files_as(account), closing_fd(_reach(location, account)) as folder:
            if not _exists(folder):
                raise UnreadableRecording("no recording yet")
            with closing(_connect(folder, "ro")) as file:
                _require_ours(file)
                return list(_moments(file, start, end))
    except FileNotFoundError as error:
        raise UnreadableRecording("no recording yet") from error
    except files.Refused as refusal:
        raise UnreadableRecording(f"{location.folder}/{RING_FILE}: {refusal}") from refusal
    except (OSError, sqlite3.Error, users.Unsafe) as error:
        raise UnreadableRecording(f"{location.folder}/{RING_FILE}: {error_text(error)}") from error


def _moments(file: sqlite3.Connection, start: float, end: float) -> Iterator[EncodedSample]:
    rows = file.execute(
        "SELECT at, data FROM moment WHERE at BETWEEN ? AND ? AND length(data) <= ?"
        " ORDER BY at LIMIT ?",
        (start, end, MAX_SAMPLE_BYTES, SLOTS),
    )
    for at, data in rows:
        if isinstance(at, float) and isinstance(data, bytes):
            yield EncodedSample(at, data)


def _connect(folder: int, how: str) -> sqlite3.Connection:
    """Connect to the file through the folder's descriptor, so that it is the file that was
    checked."""
    # Never open and close this file directly: closing any descriptor of it drops the POSIX locks
    # that another SQLite connection of this process holds on it.
    path = f"file:/proc/self/fd/{folder}/{RING_FILE}?mode={how}"
    file = sqlite3.connect(path, uri=True, timeout=BUSY_TIMEOUT_SECONDS[how], cached_statements=8)
    with closed_on_error(file):
        file.execute("PRAGMA trusted_schema=OFF")
        file.execute("PRAGMA cell_size_check=ON")
    file.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 1 << 16)
    return file


def _require_ours(file: sqlite3.Connection) -> None:
    """Check the marks and the whole schema: no SQL that we did not write may run.

    Raises:
        Refused: it is another file."""
    marks = [file.execute(f"PRAGMA {name}").fetchone()[0] for name in _MARKS]
    schema = {sql for (sql,) in file.execute("SELECT sql FROM sqlite_master LIMIT 9")}
    if marks != [APPLICATION_ID, SCHEMA_VERSION] or schema != {_TABLE, _INDEX}:
        raise files.Refused("not a recording of spooldeck")


def _exists(folder: int) -> bool:
    """True if the file exists.

    Raises:
        Refused: it is not a plain file, or its owner is not trusted."""
    try:
        file_stat = os.stat(RING_FILE, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    folder_stat = os.fstat(folder)
    why = files.file_problem(file_stat, folder_stat) or files.trust_problem(file_stat, folder_stat)
    if not why and file_stat.st_size > PAGE_BYTES * MAX_PAGES:
        why = f"{file_stat.st_size:,} bytes, expected at most {PAGE_BYTES * MAX_PAGES:,}"
    if why:
        raise files.Refused(why)
    return True


def _reach(location: RecorderLocation, account: Account | None, *, make: bool = False) -> int:
    """Open the folder; no symbolic link below the staging directory's parent is followed."""
    above = os.path.dirname(os.path.dirname(location.folder))
    fd = files.open_dir_path(location.folder, above, make=make)
    now = users.safe_account(location.folder)
    if (now and now.uid) != (account and account.uid):
        os.close(fd)
        raise PermissionError(errno.EPERM, "another user has just created its folder")
    return fd


def _owner(location: RecorderLocation) -> Account | None:
    return users.safe_account(
        location.folder if os.path.lexists(location.folder) else location.like
    )


def _is_damage(error: sqlite3.OperationalError) -> bool:
    return error.sqlite_errorcode in (sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT)
