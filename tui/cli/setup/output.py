"""Standard output that is a pipe whose reader may close it (EPIPE), such as `| head`."""

from __future__ import annotations

import os
import stat
import sys
from io import BufferedWriter, FileIO, TextIOWrapper, UnsupportedOperation
from typing import TYPE_CHECKING

from tui.cli.setup.setup import drop

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class ReaderGone(BaseException):
    """The pipe behind a listing was closed; no handler for errors may catch this."""


class PipeOutput(FileIO):
    """Standard output to a pipe. That its reader closes it is no error.

    What is written then goes to /dev/null, and the command goes on to its own exit code, since one
    that changes something must not end halfway. Only a listing ends, by `ReaderGone`.
    """

    is_listing = False

    def write(self, data: ReadableBuffer) -> int:
        """Write, or drop the data if the pipe was closed.

        Raises:
            ReaderGone: it was closed, and the command is a listing.
        """
        try:
            return super().write(data)
        except BrokenPipeError:
            drop(sys.stdout)
            if self.is_listing:
                raise ReaderGone from None
            return memoryview(data).nbytes


def guard_pipe() -> None:
    """Replace sys.stdout by a `PipeOutput` where it is a pipe or a socket."""
    old = sys.stdout
    try:
        mode = os.fstat(1).st_mode if old.fileno() == 1 else 0
    except UnsupportedOperation:
        return  # a buffer in memory
    if isinstance(old, TextIOWrapper) and (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
        sys.stdout = TextIOWrapper(
            BufferedWriter(PipeOutput(1, "w", closefd=False)),
            old.encoding,
            old.errors,
            newline="\n",
            line_buffering=old.line_buffering,
            write_through=old.write_through,
        )


def end_with_reader() -> None:
    """Have the running command end as soon as its output is closed."""
    output = getattr(sys.stdout, "buffer", None)
    if isinstance(output, BufferedWriter) and isinstance(output.raw, PipeOutput):
        output.raw.is_listing = True
