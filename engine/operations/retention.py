"""Retention: delete old journal files, and decide by marker files when a sweep is due.

A worker started by a timer pays one `stat` of a marker, so this module imports nothing that reads a
journal.

Raises, everywhere: OSError, if a folder cannot be read, or a file not be written or removed."""

from __future__ import annotations

import os
import re
from collections.abc import Callable

from engine.system import files
from engine.system.cleanup import closing_fd

SWEEP_PERIOD_SECONDS = 3600.0
"""Minimum seconds between two sweeps."""

JOURNAL_DAYS = 30.0
"""Days for which an operation stays in the journal."""

OPERATION_FILE_NAME = re.compile(r"([0-9]{8}T[0-9]{6}Z-[0-9a-f]{8})\.(jsonl|before)")
"""Names of journal files: the operation's id, and the kind of file."""

SWEEP_MARKER = "swept"
"""A file in the staging directory; its modification time is the time of the last sweep."""

MAIL_SWEEP_MARKER = "swept-mail"

MAIL_CHECK_MARKER = "queued-mail"
"""The marker of the check for spooled mails without a task."""

MAIL_CHECK_PERIOD_SECONDS = 60.0
"""Minimum seconds between two such checks."""


def is_sweep_due(
    staging_dir: str, now: float, marker: str = SWEEP_MARKER, period: float = SWEEP_PERIOD_SECONDS
) -> bool:
    """True if a sweep of the staging directory is due at `now` (epoch seconds UTC). Another
    `marker` and `period` decide on another check."""
    try:
        marker_stat = os.stat(f"{staging_dir}/{marker}", follow_symlinks=False)
    except FileNotFoundError:
        subfolders = ("trash", "journal")
        return marker != SWEEP_MARKER or any(
            files.is_folder(f"{staging_dir}/{name}") for name in subfolders
        )
    except OSError:
        return False  # opening the staging directory reports the error
    # A time in the future comes from a wrong clock, and must not delay the sweep forever.
    return not 0 <= now - marker_stat.st_mtime < period


def touch_marker(staging_dir: str, root: str, marker: str = SWEEP_MARKER) -> None:
    """Set the marker to now. Call it before the sweep, so that other processes skip it."""
    with closing_fd(files.open_dir_path(staging_dir, root)) as folder:
        fd = files.open_shared(marker, folder, os.O_WRONLY)
    with closing_fd(fd):
        files.utime(fd)


def sweep_journal(folder: str, root: str, age: Callable[[float], float], hours: float) -> int:
    """Remove images older than `hours` (no more undo), and operations older than `JOURNAL_DAYS`.

    `age` gives the seconds since a moment. Returns the number of removed files. Reads none of them,
    and skips those with a held flock."""
    removed = 0
    try:
        dir_fd = files.open_dir(folder, root)
    except FileNotFoundError:
        return 0
    with closing_fd(dir_fd):
        for name, file_stat in files.regular_files(dir_fd, OPERATION_FILE_NAME.fullmatch):
            op, _, kind = name.partition(".")
            limit = hours * 3600 if kind == "before" else JOURNAL_DAYS * 86400
            if age(file_stat.st_mtime) > limit and is_free(f"{op}.jsonl", dir_fd):
                files.unlink_quietly(name, dir_fd)
                removed += 1
    return removed


def is_free(name: str, dir_fd: int) -> bool:
    """True if no process holds the flock of a file."""
    try:
        fd = files.open_plain(name, dir_fd)
    except OSError:
        return True  # missing or not a regular file: no process writes it
    with closing_fd(fd):
        return files.is_unclaimed(fd)
