"""Our record of the messages that we moved to the trash queue: lines `ID EPOCH`, and `ID -` for one
that has left it, in our folder for the place; fsynced before Exim moves them.

Only these may ever be deleted from there. Exim never gives an id out again."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence

from engine.store import Unavailable
from engine.system import files
from engine.system.cleanup import closing_fd
from engine.text.error_text import error_text

RECORD = "trash.moved"
ACT_MARGIN_SECONDS = 150.0
"""An act takes at most 120 s: a file that moved later than this was moved by another operator."""
MAX_BYTES = 4 << 20
"""Size above which the lines of messages that are no longer in the trash queue are dropped."""
YOUNG_SECONDS = 86400.0
"""A younger record is never dropped: its message may have come there after the last listing."""


class TrashRecord:
    """The record of one place."""

    def __init__(self, folder: str, root: str = "") -> None:
        """`folder` is ours, and is made when it is needed; `root` as for `files.open_dir`."""
        self._folder, self._root = folder, root
        self._dense_bytes = 0
        """Size after the last rewrite: it is not done again before the file is twice as large."""

    def read(self) -> Mapping[str, float]:
        """When each message was moved, epoch seconds UTC; the last time counts.

        Raises:
            Unavailable: it cannot be read.
        """
        try:
            with closing_fd(files.open_dir(self._folder, self._root)) as folder:
                fd = files.open_plain(RECORD, folder)
            with open(fd, "rb") as file:
                data = file.read()
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise Unavailable(f"{self._folder}/{RECORD}: {error_text(error)}") from error
        times: dict[str, float] = {}
        for line in data.splitlines():
            ident, _, moment = line.decode("utf-8", "replace").partition(" ")
            if moment.isdecimal():
                times[ident] = float(moment)
            else:
                times.pop(ident, None)
        return times

    def add(self, ids: Sequence[str], now: float, present: Collection[str] = ()) -> None:
        """Record that these messages are about to be moved; durable on return. `present` are those
        in the trash queue: only their records, and those of a day, are kept in a file that has
        become large.

        Raises:
            Unavailable: it cannot be written, and nothing may be moved.
        """
        self._append("".join(f"{ident} {int(now)}\n" for ident in ids), present, now)

    def remove(self, ids: Sequence[str]) -> None:
        """Record that these messages have left the trash queue.

        Raises:
            Unavailable: it cannot be written.
        """
        self._append("".join(f"{ident} -\n" for ident in ids))

    def _append(self, text: str, present: Collection[str] = (), now: float = 0.0) -> None:
        try:
            with closing_fd(files.open_dir(self._folder, self._root, make=True)) as folder:
                flags = os.O_WRONLY | os.O_APPEND
                with closing_fd(files.open_shared(RECORD, folder, flags, 0o600)) as fd:
                    size = os.fstat(fd).st_size
                    files.write_all(fd, text.encode())
                    files.fsync(fd)
                if size == 0:
                    files.fsync(folder)
                elif size > max(MAX_BYTES, 2 * self._dense_bytes) and present:
                    # A line that another process adds now may be lost: its message is then shown
                    # as moved by hand, and kept.
                    young = now - YOUNG_SECONDS
                    times = self.read()
                    kept = {i: at for i, at in times.items() if i in present or at > young}
                    lines = "".join(f"{each} {int(at)}\n" for each, at in kept.items())
                    data = f"{lines}{text}".encode()
                    files.replace_durably(RECORD, folder, data, mode=0o600)
                    self._dense_bytes = len(data)
        except OSError as error:
            raise Unavailable(f"{self._folder}/{RECORD}: {error_text(error)}") from error


def is_ours(moved: float | None, changed: float | None) -> bool:
    """True if a message in the trash queue is there because we moved it: its record fits the time
    at which its file was last changed."""
    if moved is None or changed is None:
        return False
    return moved - 2.0 <= changed <= moved + ACT_MARGIN_SECONDS
