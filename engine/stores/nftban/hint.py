"""The next due time of a whole folder, remembered beside it: a timer's usual run finds nothing.

The hint says: when pending/ was last changed at M, no task in it was due before D. It holds while
the folder's modification time is still M. A file rewritten in place does not change that time, so a
hint is believed for a few minutes at most; it is only kept where no other program writes.
"""

import os

from engine import files

RACY = 20_000_000
"""Nanoseconds: a folder changed so lately may change again within one tick of its clock."""

BELIEVED = 300.0
"""Seconds for which a hint holds."""


class NextDue:
    """The hint of one spool, in the file `path`."""

    def __init__(self, path: str) -> None:
        self._path = path

    def read(self, pending: int, now: float) -> float | None:
        """When the next task in the folder `pending` (a descriptor) is due; None: not known.

        Only an answer after `now` is given: it means that nothing is due.
        """
        try:
            fd = os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            stamp, due, written = map(int, os.read(fd, 200).split())
        except (ValueError, OSError):
            return None  # torn or foreign: a hint that cannot be read is no hint
        finally:
            os.close(fd)
        fresh = written <= now < written + BELIEVED
        if not fresh or due <= now or os.fstat(pending).st_mtime_ns != stamp:
            return None
        return float(due)

    def write(self, seen: os.stat_result, due: float, now: float) -> None:
        """Remember what a whole look found; `seen` is the folder's state from before that look."""
        if now * 1e9 - seen.st_mtime_ns < RACY:
            return
        try:
            files.publish(
                self._path, b"%d %d %d\n" % (seen.st_mtime_ns, int(due), int(now)), files.FILE_MODE
            )
        except OSError:
            return  # only the next look takes longer
