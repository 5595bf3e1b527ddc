"""Writing what a screen shows to a file, as CSV or as JSON lines, whole or not at all."""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

from engine.system import files
from tui.format import task_row

Values: TypeAlias = Mapping[str, object]
"""A row by the names of its columns."""

Take: TypeAlias = Callable[[Sequence[Values], int, int], bool]
"""Takes some rows, how many there were with them, and of how many; False ends it."""

FORMS = (".csv", ".jsonl")
"""What the end of a file's name says about its form."""


class ExportTable(NamedTuple):
    """What a screen has to be exported."""

    name: str
    """What it is, for the name of the file."""
    columns: tuple[str, ...]
    """For CSV; JSON lines hold whatever the rows do."""
    rows: Callable[[Take], Awaitable[int]]
    """Hands all rows to a take, on some thread; answers with how many there were."""


class ExportRefused(Exception):
    """The file cannot be written; the message says which, and why."""


def usual_path(sheet: ExportTable, now: float) -> str:
    """Where an export goes unless another path is typed: the folder that one stands in."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now))
    name = "".join(c if c.isalnum() or c in "-_" else "-" for c in sheet.name).strip("-")
    return f"spooldeck-{name}-{stamp}.csv"


def bad_path(path: str) -> str:
    """What is wrong with a path that was typed; "" when nothing is. Asks no disk."""
    if not path.strip() or "\0" in path:
        return "expected the path of a file that is to be made"
    return "" if path.endswith(FORMS) else f"expected a name that ends in {' or '.join(FORMS)}"


class Export:
    """One file being written; 0600, and under its own name only once it is whole."""

    def __init__(self, path: str, columns: Sequence[str]) -> None:
        """Write to that path; `~` is whose home it means. Asks no disk yet."""
        self._typed = path
        self.path = Path(path)
        self._draft = ""
        self._columns = tuple(columns)
        self._csv = path.endswith(".csv")
        self._fd = self._folder = -1
        self.done, self.total = 0, 0
        self.stopped = False

    def take(self, some: Sequence[Values], done: int, total: int) -> bool:
        """Write some rows; blocks.

        Raises:
            Refused: the disk says no; nothing is left of it.
        """
        if self.stopped:
            self.drop()  # on this thread: nobody else knows when the last write has ended
            return False
        try:
            if self._fd < 0:
                self._open()
            self._write(self._text(some))
        except OSError as error:
            self.drop()
            raise ExportRefused(f"{error.filename or self.path}: {error.strerror}") from error
        self.done, self.total = done, total
        return not self.stopped

    def finish(self) -> None:
        """Give the file its name; blocks.

        Raises:
            Refused: there is one of that name by now; nothing is left of ours.
        """
        try:
            if self._fd < 0:
                self._open()
            os.fsync(self._fd)
            # Never in place of another file.
            os.link(self._draft, self.path.name, src_dir_fd=self._folder, dst_dir_fd=self._folder)
        except OSError as error:
            self.drop()
            raise ExportRefused(f"{self.path}: {error.strerror}") from error
        self.drop()

    def drop(self) -> None:
        """Leave nothing behind but what is whole; blocks."""
        if self._fd >= 0:
            os.close(self._fd)
            files.forget(self._draft, self._folder)
            self._fd = -1
        if self._folder >= 0:
            os.close(self._folder)
            self._folder = -1

    def _open(self) -> None:
        try:
            self.path = Path(self._typed).expanduser()
        except RuntimeError as error:  # `~nobody`
            raise ExportRefused(f"{self._typed}: {error}") from error
        if self.path.exists():
            raise FileExistsError(17, "is there already; nothing was written", str(self.path))
        self._draft = f".{self.path.name}.{os.getpid()}.part"
        self._folder = files.walk(str(self.path.parent))
        self._fd = files.create(self._draft, self._folder, None, 0o600)
        if self._csv:
            self._write(
                task_row.csv_lines(
                    [dict(zip(self._columns, self._columns, strict=True))], self._columns
                )
            )

    def _text(self, some: Iterable[Values]) -> str:
        if self._csv:
            return task_row.csv_lines(some, self._columns)
        return "".join(map(task_row.json_line, some))

    def _write(self, text: str) -> None:
        left = memoryview(text.encode("utf-8", "replace"))
        while left:
            left = left[os.write(self._fd, left) :]
