"""Standard output and error: the answer of a command as JSON or text, and colours. No control
character of a text leaves by them; the reader of a pipe may close it (EPIPE), such as `| head`."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager, redirect_stdout
from io import BufferedWriter, BytesIO, FileIO, TextIOWrapper, UnsupportedOperation
from typing import TYPE_CHECKING, TextIO, TypeVar

from engine.system.command_errors import discard_stream
from engine.text.safe import safe_line, safe_text
from engine.values import NamedTuple

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

    from tui.text.lines import Line, Run


T = TypeVar("T")

PROGRESS_AFTER_SECONDS = 1.0
"""A command that takes longer shows its progress."""

PROGRESS_INTERVAL_SECONDS = 0.2

COLOR_WORDS = ("auto", "always", "never")
"""Values of `--color`."""


class ReaderGone(BaseException):
    """The reader closed the pipe of a listing. A BaseException, so that no error handler catches
    it."""


class SafeStream(TextIOWrapper):
    """A standard stream whose texts cannot control the terminal: each line is made safe here, at
    the only way out, because names, paths and texts of libraries may contain anything."""

    def write(self, text: str) -> int:
        """Write a text; control characters but line ends and tabs become U+FFFD."""
        return super().write(safe_text(text))

    def write_controls(self, text: str) -> int:
        """Write a text with control sequences of our own; all else in it was made safe."""
        return super().write(text)


def print_controls(text: str, stream: TextIO | None = None) -> None:
    """Print a text with control sequences of our own, without a line end."""
    stream = stream or sys.stdout
    (stream.write_controls if isinstance(stream, SafeStream) else stream.write)(text)


class PipeOutput(FileIO):
    """Standard output, maybe to a pipe; a closed pipe is not an error.

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


def guard_streams() -> None:
    """Replace sys.stdout and sys.stderr by `SafeStream`s; those in memory stay as they are."""
    for name, number, raw in (("stdout", 1, PipeOutput), ("stderr", 2, FileIO)):
        old = getattr(sys, name)
        try:
            is_ours = isinstance(old, TextIOWrapper) and old.fileno() == number
        except UnsupportedOperation:
            continue  # a buffer in memory
        if is_ours:
            buffer = BufferedWriter(raw(number, "w", closefd=False))
            # PYTHONUNBUFFERED (containers, units) sets write_through alone.
            is_by_line = old.line_buffering or old.write_through
            # U+FFFD, or a name, may not be in the encoding of the terminal.
            errors = "replace" if old.errors == "strict" else old.errors
            stream = SafeStream(
                buffer, old.encoding, errors, newline="\n", line_buffering=is_by_line
            )
            setattr(sys, name, stream)


def end_with_reader() -> None:
    """Mark the running command as a listing: it ends when its output is closed."""
    output = getattr(sys.stdout, "buffer", None)
    if isinstance(output, BufferedWriter) and isinstance(output.raw, PipeOutput):
        output.raw.is_listing = True


class Answer(NamedTuple):
    """What a command prints, as JSON or as text, and its exit code. Only one of both is made."""

    values: Callable[[], Mapping[str, object] | Iterable[Mapping[str, object]]]
    """One JSON object; or several, one a line."""
    lines: Callable[[], Iterable[Line | str]]
    code: int = 0


def print_answer(answer: Answer, *, as_json: bool) -> int:
    """Print the answer of a command, each row as soon as it is known; return the exit code."""
    if not as_json:
        print_lines(answer.lines())
        return answer.code
    values = answer.values()
    for row in [values] if isinstance(values, Mapping) else values:
        print_json(row)
    return answer.code


def columns(usual: int = 100) -> int:
    """Columns of the terminal; `usual` where there is none."""
    from shutil import get_terminal_size  # a timer's run does not need it

    return get_terminal_size((usual, 24)).columns


COLORS = {
    **{"muted": "2", "line": "2", "ghost": "2", "strong": "1", "title": "1", "key": "36"},
    **{"accent": "36", "ok": "32", "warn": "1;33", "error": "1;31", "unknown": "35"},
    **{"chip-ok": "7;32", "chip-warn": "7;33", "chip-error": "7;31", "chip-accent": "7;36"},
    **{"chip": "7", "tab": "7", "mark": "1;36"},
}
"""SGR parameters (ECMA-48) of styles: the 16 colours, as in the theme `terminal`."""


def print_lines(lines: Iterable[Line | str]) -> None:
    """Print texts, and lines of a screen with the glyphs that the locale has; in colour on a
    terminal."""
    for line in lines:
        if isinstance(line, str):
            print(line)
        else:
            _print_line(line)


def _print_line(line: Line) -> None:
    from tui.text.glyphs import glyphs_of_locale

    glyphs = glyphs_of_locale(os.environ)
    if not wants_color(os.environ):
        print("".join(text for text, _ in line).rstrip().translate(glyphs))
        return
    runs = [(text.translate(glyphs), COLORS.get(style)) for text, style in _without_end(line)]
    safe_runs = ((safe_line(text), sgr) for text, sgr in runs)
    parts = (f"\x1b[{sgr}m{text}\x1b[m" if sgr else text for text, sgr in safe_runs)
    print_controls(f"{''.join(parts)}\n")


def _without_end(line: Line) -> list[Run]:
    """The runs of a line without the blanks at its end."""
    runs = list(line)
    while runs and not runs[-1][0].rstrip():
        runs.pop()
    return [*runs[:-1], *((text.rstrip(), style) for text, style in runs[-1:])]


def print_json(values: Mapping[str, object]) -> None:
    """Print an object on one line; every control character in it is escaped."""
    import json  # a timer's run does not need it

    print(json.dumps(values))


@contextmanager
def captured_lines(is_captured: bool) -> Iterator[list[str]]:
    """Collect the lines that a command prints in the block, for its JSON; with False print them."""
    lines: list[str] = []
    if not is_captured:
        yield lines
        return
    with TextIOWrapper(BytesIO(), encoding="utf-8", errors="backslashreplace") as text:
        with redirect_stdout(text):
            yield lines
        text.seek(0)
        lines += text.read().splitlines()


def choose_color(color_option: str, environ: MutableMapping[str, str]) -> None:
    """Set what `--color` wants in the environment, where `wants_color` and the console read it."""
    if color_option == "never":
        environ["NO_COLOR"] = "1"
    elif color_option == "always":
        environ.pop("NO_COLOR", None)
        environ["FORCE_COLOR"] = "1"


def wants_color(environ: Mapping[str, str]) -> bool:
    """True if the output is to be coloured: not with NO_COLOR; else on a terminal, or with
    FORCE_COLOR."""
    if environ.get("NO_COLOR"):
        return False
    is_capable = environ.get("TERM", "dumb") != "dumb"
    return bool(environ.get("FORCE_COLOR")) or (is_capable and sys.stdout.isatty())


class Progress:
    """A count on standard error, if that is a terminal and the command takes longer than a second;
    it is removed at the end of the block."""

    def __init__(self, what: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._what, self._clock, self._width = what, clock, 0
        self._next = clock() + PROGRESS_AFTER_SECONDS

    def __enter__(self) -> Progress:
        """Nothing is shown yet."""
        return self

    def show(self, number: int) -> None:
        """Show the present number, at most five times a second."""
        now = self._clock()
        if now < self._next or not sys.stderr.isatty():
            return
        self._next, text = now + PROGRESS_INTERVAL_SECONDS, f"{number:,} {self._what}"
        self._width = max(self._width, len(text))
        print_controls(f"\r{text:{self._width}}", sys.stderr)
        sys.stderr.flush()

    def __exit__(self, *_: object) -> None:
        """Remove the count."""
        if self._width:
            print_controls(f"\r{'':{self._width}}\r", sys.stderr)
            sys.stderr.flush()


def note_if_empty(items: Iterable[T], what: str) -> Iterator[T]:
    """Pass the rows of a list on; if there are none, say so to a person, but not to a script."""
    is_empty = True
    for item in items:
        is_empty = False
        yield item
    if is_empty and sys.stdout.isatty():
        print(f"no {what}", file=sys.stderr)


def show_progress(items: Iterable[T], what: str) -> Iterator[T]:
    """Pass items on, and show how many; nothing is to be printed meanwhile."""
    with Progress(what) as progress:
        for number, item in enumerate(items, 1):
            yield item
            progress.show(number)
