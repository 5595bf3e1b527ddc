"""Standard output that is a pipe whose reader may close it (EPIPE), such as `| head`."""

from __future__ import annotations

import os
import stat
import sys
from io import BufferedWriter, FileIO, TextIOWrapper, UnsupportedOperation
from typing import TYPE_CHECKING

from tui.cli.setup.errors import discard_stream

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class ReaderGone(BaseException):
    """The reader closed the pipe of a listing. A BaseException, so that no error handler catches
    it.
    """


class PipeOutput(FileIO):
    """Standard output to a pipe; a closed pipe is not an error.

    Further output goes to /dev/null and the command runs on to its own exit code, because a command
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
            discard_stream(sys.stdout)
            if self.is_listing:
                raise ReaderGone from None
            return memoryview(data).nbytes


def guard_pipe() -> None:
    """Replace sys.stdout by a `PipeOutput` if it is a pipe or a socket."""
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
    """Mark the running command as a listing: it ends when its output is closed."""
    output = getattr(sys.stdout, "buffer", None)
    if isinstance(output, BufferedWriter) and isinstance(output.raw, PipeOutput):
        output.raw.is_listing = True
