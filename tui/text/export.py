"""Write what a screen shows to a CSV or JSON lines file, atomically: complete or not at all."""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from engine.system import files
from engine.text.error_text import error_text
from engine.values import NamedTuple
from tui.text import task_row

ExportRow: TypeAlias = Mapping[str, object]

RowSink: TypeAlias = Callable[[Sequence[ExportRow], int, int], bool]
"""Takes some rows, the number of rows so far and the total; returns False to stop."""

EXPORT_SUFFIXES = (".csv", ".jsonl")
"""File name endings that select the format."""


class ExportTable(NamedTuple):
    """Rows that a screen offers for export."""

    name: str
    columns: tuple[str, ...]
    """The columns, and the keys of JSON lines."""
    pass_rows: Callable[[RowSink], Awaitable[int]]
    """Passes all rows to a `RowSink`, on some thread; returns the number of rows."""


class ExportRefused(Exception):
    """The file cannot be written; the message says which one and why."""


def default_path(sheet: ExportTable, now: float) -> str:
    """Default path of an export: in the current directory."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now))
    name = "".join(c if c.isalnum() or c in "-_" else "-" for c in sheet.name).strip("-")
    return f"spooldeck-{name}-{stamp}.csv"


def path_error(path: str) -> str:
    """What is wrong with a typed path, "" if nothing; does no disk access."""
    if not path.strip() or "\0" in path:
        return "expected the path of a new file"
    endings = " or ".join(EXPORT_SUFFIXES)
    return "" if path.endswith(EXPORT_SUFFIXES) else f"expected a name ending in {endings}"


class Export:
    """One export file, mode 0600: written as a draft, linked to its name when complete."""

    def __init__(self, path: str, columns: Sequence[str]) -> None:
        """Write to `path`, where `~` means a home directory; no disk access yet."""
        self._typed = path
        self.path = Path(path)
        self._draft = ""
        self._columns = tuple(columns)
        self._csv = path.endswith(".csv")
        self._fd = self._folder = -1
        self.done, self.total = 0, 0
        self.is_stopped = False

    def write_rows(self, some: Sequence[ExportRow], done: int, total: int) -> bool:
        """Write some rows; blocks. Raises ExportRefused: writing failed; the draft is deleted."""
        if self.is_stopped:
            self.discard()  # on this thread, after the last write
            return False
        try:
            if self._fd < 0:
                self._open()
            self._write(self._text(some))
        except OSError as error:
            self.discard()
            raise ExportRefused(f"{error.filename or self.path}: {error_text(error)}") from error
        self.done, self.total = done, total
        return not self.is_stopped

    def finish(self) -> None:
        """Fsync the draft and link it to its final name; blocks. Raises ExportRefused: a file of
        that name exists, or writing failed; the draft is deleted."""
        try:
            if self._fd < 0:
                self._open()
            os.fsync(self._fd)
            # link() fails if the name exists, so no other file is replaced.
            os.link(self._draft, self.path.name, src_dir_fd=self._folder, dst_dir_fd=self._folder)
        except OSError as error:
            self.discard()
            raise ExportRefused(f"{self.path}: {error_text(error)}") from error
        self.discard()

    def discard(self) -> None:
        """Delete the draft and close the folder; a finished file stays; blocks."""
        if self._fd >= 0:
            os.close(self._fd)
            files.unlink_quietly(self._draft, self._folder)
            self._fd = -1
        if self._folder >= 0:
            os.close(self._folder)
            self._folder = -1

    def _open(self) -> None:
        try:
            self.path = Path(self._typed).expanduser()
        except RuntimeError as error:  # `~USER` of an unknown user
            raise ExportRefused(f"{self._typed}: {error}") from error
        if self.path.exists():
            raise FileExistsError(17, "exists already; nothing written", str(self.path))
        self._draft = f".{self.path.name}.{os.getpid()}.part"
        self._folder = files.open_path(str(self.path.parent))
        self._fd = files.create_file(self._draft, self._folder, None, 0o600)
        if self._csv:
            self._write(
                task_row.csv_lines(
                    [dict(zip(self._columns, self._columns, strict=True))], self._columns
                )
            )

    def _text(self, some: Iterable[ExportRow]) -> str:
        if self._csv:
            return task_row.csv_lines(some, self._columns)
        return "".join(
            task_row.json_line({name: values.get(name) for name in self._columns})
            for values in some
        )

    def _write(self, text: str) -> None:
        unwritten = memoryview(text.encode("utf-8", "replace"))
        while unwritten:
            unwritten = unwritten[os.write(self._fd, unwritten) :]
