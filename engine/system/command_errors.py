"""Exit codes, errors and output of commands: each error is one line on standard error."""

from __future__ import annotations

import os
import sys
from typing import NoReturn, TextIO

from engine.store import Unavailable
from engine.text.error_text import error_text
from engine.text.safe import safe_line

EX_USAGE, EX_UNAVAILABLE, EX_IOERR, EX_TIMEOUT, EX_NOPERM, EX_CONFIG = 64, 69, 74, 75, 77, 78
"""Exit codes beyond the contract's 0 to 3 (sysexits.h)."""

EX_OSERR = 71
"""The system lacks a process, a thread, memory or descriptors (sysexits.h)."""

NOT_PRINTED = 4
"""Exit code of a command that added a task, but could not print its id."""

LOST_NULL = 79
"""Exit code of `mail send-with-retry --null` for a lost mail that is reported to syslog: no other
program ends with it, and none of sysexits.h."""


class CommandError(Exception):
    """Ends the command with one line on standard error and an exit code."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class NotReadable(Unavailable):
    """A queue may exist, but we may not look; the text names the command with sudo."""


def fail(code: int, text: str) -> NoReturn:
    """End the command with one line on standard error."""
    raise CommandError(code, text)


def print_error(text: str) -> None:
    """Print one line to standard error; the text may contain names and texts of any origin."""
    try:
        sys.stderr.write(f"spooldeck: {safe_line(text)}\n")
    except OSError:
        discard_stream(sys.stderr)  # no reader is left; the exit code still reports the error


def print_result(text: str, stream: TextIO | None = None) -> int:
    """Print a result of a command that must not be repeated, such as a queued task.

    Returns 0, or `NOT_PRINTED` if it could not be written, which is reported on standard error: a
    caller that took that for a failure and repeated the command would do it twice. A reader that
    closed the pipe is no error."""
    stream = stream or sys.stdout
    line = f"{text}\n".encode(stream.encoding, "backslashreplace").decode(stream.encoding)
    try:
        stream.write(line)
        stream.flush()
    except OSError as error:
        if stream is sys.stdout and not isinstance(error, BrokenPipeError):
            print_error(
                f"done, but cannot write the output: {error_text(error)}: {safe_line(text)}"
            )
            discard_stream(stream)
            return NOT_PRINTED
        discard_stream(stream)
    return 0


def discard_stream(stream: TextIO) -> None:
    """Redirect a stream to /dev/null: an error of its flush at exit would replace our exit code."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
