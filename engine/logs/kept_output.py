"""What handlers printed: the end of each run's output, in text files of a few megabytes.

A record is a line `= ID ENDED HOW` with the epoch seconds UTC of the run's end, then the bytes of
the output, each line after a space: so no output looks like a record, and a torn record ends where
the next one begins. The oldest file is removed when all together have `MAX_BYTES`, and each one
when its last record is `KEPT_DAYS` old. One process writes at a time: that with the queue's lock.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator

from engine.system import files
from engine.system.cleanup import closing_fd
from engine.text.figures import format_bytes
from engine.text.safe import safe_line
from engine.values import NamedTuple

MAX_BYTES = 64 << 20
"""Bytes of all output of a place."""

FILE_BYTES = 4 << 20
"""Maximum bytes of one file."""

KEPT_DAYS = 7.0
"""Days for which output is kept, and up to one more: a file has the output of one day."""

_NAME = re.compile(r"[0-9]{8}T[0-9]{9}Z\.txt").fullmatch


_END = re.compile(rb"\n(?! )")
"""The end of a record, also where the next one is torn."""

_is_time = re.compile(r"[0-9]{1,12}\.[0-9]{3}").fullmatch


class KeptOutput(NamedTuple):
    """The output of one run."""

    ended: float
    """Epoch seconds UTC."""
    how: str
    """How the run ended, such as `exit status 1`."""
    data: bytes

    def describe(self, ended: str) -> str:
        """The line above the output; `ended` is the time as text."""
        size = format_bytes(len(self.data))
        return f"output of the run until {ended}: {safe_line(self.how)}, {size}"


class OutputFiles:
    """The output of the handlers of one place."""

    def __init__(self, folder: str, root: str) -> None:
        """Below the data folder `root` no symbolic link is followed."""
        self._folder, self._root = folder, root
        self._writing = threading.Lock()

    def keep(self, ident: str, output: KeptOutput) -> None:
        """Append the output of a run of a task; without any, nothing. From any thread.

        Raises:
            OSError: it cannot be written.
        """
        if not output.data:
            return
        head = f"= {ident} {output.ended:.3f} {output.how}".encode("utf-8", "replace")
        record = b"\n%b\n %b" % (head, output.data.replace(b"\n", b"\n "))
        with self._writing:
            name = self._file_for(len(record), output.ended)
            files.append(f"{self._folder}/{name}", record, self._root)

    def _file_for(self, size: int, now: float) -> str:
        """The name of the file that takes a record: the last one of this day, or a new one if that
        has no room. It is looked up each time, as workers may take turns."""
        new = f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime(now))}{int(now % 1 * 1000):03}Z.txt"
        with closing_fd(files.open_dir_path(self._folder, self._root, make=True)):
            listed = self._list()
        # A later name is from before the clock was set back.
        last = max((each for each in listed if new[:8] <= each[0] <= new), default=None)
        if last is not None and last[1] + size <= FILE_BYTES:
            return last[0]
        self.sweep(room=FILE_BYTES)
        return new

    def sweep(self, age: Callable[[float], float] = lambda moment: 0.0, room: int = 0) -> None:
        """Remove files older than `KEPT_DAYS`, and the oldest until there is room for so many
        bytes. `age` gives the seconds since a moment, by a clock that is not ahead.

        Raises:
            OSError: the folder cannot be read, or a file not be removed.
        """
        listed = self._list()
        total = sum(size for _, size, _ in listed) + room
        for name, size, changed in listed:
            if age(changed) > KEPT_DAYS * 86400 or total > MAX_BYTES:
                with closing_fd(files.open_dir_path(self._folder, self._root)) as dir_fd:
                    files.unlink_quietly(name, dir_fd)
                total -= size

    def _list(self) -> list[tuple[str, int, float]]:
        """Name, bytes and time of the last change of each file, the oldest first."""
        try:
            dir_fd = files.open_dir(self._folder, self._root)
        except FileNotFoundError:
            return []
        with closing_fd(dir_fd):
            listed = files.regular_files(dir_fd, _NAME)
            return [(name, each.st_size, each.st_mtime) for name, each in listed]

    def read(self, ident: str) -> list[KeptOutput]:
        """The kept output of the runs of a task, the oldest first. Reads all files.

        Raises:
            OSError: a file cannot be read.
        """
        return [output for name, *_ in self._list() for output in self._read_file(name, ident)]

    def _read_file(self, name: str, ident: str) -> Iterator[KeptOutput]:
        with closing_fd(files.open_dir_path(self._folder, self._root)) as dir_fd:
            try:
                fd = files.open_plain(name, dir_fd)
            except FileNotFoundError:
                return  # removed since it was listed
        with open(fd, "rb") as file:
            data = file.read(FILE_BYTES + (1 << 20))
        head = f"\n= {ident} ".encode()
        at = data.find(head)
        while at >= 0:
            end = _END.search(data, at + 1)
            record = data[at + len(head) : end.start() if end else len(data)]
            words, is_whole, text = record.partition(b"\n ")
            ended, _, how = words.decode("utf-8", "replace").partition(" ")
            if is_whole and _is_time(ended):  # else it is torn
                yield KeptOutput(float(ended), how, text.replace(b"\n ", b"\n"))
            at = data.find(head, at + 1)
