"""What was purged or done long ago is deleted for good: seldom, by the times of files alone.

A timer's run pays one look at a marker for it, so nothing here loads what reads a journal.
"""

from __future__ import annotations

import os
import re
import stat

from engine.system import files

PERIOD = 3600.0
"""Seconds between two sweeps, at least."""

DAYS = 30.0
"""Days for which an operation stays in the journal."""

OPERATION = re.compile(r"([0-9]{8}T[0-9]{6}Z-[0-9a-f]{8})\.(jsonl|before)")
"""Names of the files of a journal: the operation, and which of its files."""

MARKER = "swept"
"""A file on the desk: it was swept when this was changed last."""

MAIL_MARKER = "swept-mail"
"""The same for the mail spool."""

QUEUED_MARKER = "queued-mail"
"""The same for the check for spooled mails without a task."""

QUEUING_PERIOD = 60.0
"""Seconds between two such checks, at least."""


def is_due(desk: str, now: float, marker: str = MARKER, period: float = PERIOD) -> bool:
    """Whether a spool's desk is to be swept, at this moment (epoch seconds UTC).

    With another marker: whether what that one stands for is.
    """
    try:
        seen = os.stat(f"{desk}/{marker}", follow_symlinks=False)
    except FileNotFoundError:
        kept = ("trash", "journal")
        return marker != MARKER or any(files.is_folder(f"{desk}/{name}") for name in kept)
    except OSError:
        return False  # whoever opens the desk says why
    # One from the future is from a clock that was wrong, and must not put it off for good.
    return not 0 <= now - seen.st_mtime < period


def mark(desk: str, root: str, marker: str = MARKER) -> None:
    """Remember that it is swept now; before it begins, so that others leave it to us.

    Raises:
        OSError: that could not be written.
    """
    folder = files.reach(desk, root)
    try:
        fd = files.open_shared(marker, folder, os.O_WRONLY)
    finally:
        os.close(folder)
    try:
        files.utime(fd)
    finally:
        os.close(fd)


def sweep_journal(folder: str, root: str, now: float, hours: float) -> int:
    """Remove what tasks were, once that can no more be taken back, and operations of long ago.

    Answers how many files. None is read, and none that somebody still writes is touched.

    Raises:
        OSError: the folder cannot be read, or a file of it not removed.
    """
    gone = 0
    try:
        passed = files.reach(folder, root)
    except FileNotFoundError:
        return 0
    try:
        dir_fd = files.open_folder(".", passed)
    finally:
        os.close(passed)
    try:
        for name in sorted(os.listdir(dir_fd)):
            is_ours = OPERATION.fullmatch(name)
            if not is_ours:
                continue
            limit = hours * 3600 if is_ours[2] == "before" else DAYS * 86400
            try:
                seen = os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
            except FileNotFoundError:
                continue  # somebody else sweeps here
            if not stat.S_ISREG(seen.st_mode):
                continue  # nothing of ours
            if now - seen.st_mtime > limit and _is_free(f"{is_ours[1]}.jsonl", dir_fd):
                files.forget(name, dir_fd)
                gone += 1
    finally:
        os.close(dir_fd)
    return gone


def _is_free(name: str, dir_fd: int) -> bool:
    try:
        fd = files.open_plain(name, dir_fd)
    except OSError:
        return True  # what is not there, or is no plain file, is nobody's operation
    try:
        return files.is_unclaimed(fd)
    finally:
        os.close(fd)
