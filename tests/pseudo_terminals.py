"""The real program on a pseudo terminal: what it writes there, byte by byte, and what one sees."""

from __future__ import annotations

import codecs
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

from rich.ansi import AnsiDecoder
from rich.cells import cell_len
from rich.style import Style
from rich.text import Text

from tui.terminal.key_queue import CONFIRM_SECONDS

PATIENCE = 60.0
"""Seconds after which it counts as hanging."""

PROGRAM = (sys.executable, "-P", "-m", "tui.cli")

ROOT = Path(__file__).resolve().parents[1]

UTF8 = {"LANG": "C.UTF-8"}
ASCII = {"LANG": "C"}

ENTERS, LEAVES = b"\x1b[?1049h", b"\x1b[?1049l"
"""The alternate screen."""

_TOKEN = re.compile(
    r"\x1b\[(?P<args>[0-?]*)[ -/]*(?P<final>[@-~])|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b.|"
    r"(?P<text>[^\x00-\x1f\x7f]+)|(?P<control>[\x00-\x1f\x7f])"
)

_BLANK = " ", Style.null()

_TORN = re.compile(r"(?:\x1b(?:\[[0-?]*[ -/]*|\][^\x07\x1b]*)?)?\Z")
"""The beginning of a sequence whose end is to come; matches at the end, if only nothing."""

_UNDER_CURSOR = re.compile(r"acts on [0-9a-f]{8}$", re.MULTILINE)


@lru_cache(1024)
def _style_after(before: Style, args: str) -> Style:
    """The style after a sequence that selects one."""
    decoder = AnsiDecoder()
    decoder.style = before
    decoder.decode_line(f"\x1b[{args}m")
    return decoder.style


class Screen:
    """What a terminal shows of what it was sent: as much of one as the console makes use of."""

    def __init__(self, columns: int, rows: int) -> None:
        self._cells: dict[tuple[int, int], tuple[str, Style]] = {}
        self._style = Style.null()
        self._row = self._column = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._torn = ""
        self.resize(columns, rows)

    def resize(self, columns: int, rows: int) -> None:
        """Cut what is outside of the new size; all lines scroll again."""
        self.columns, self.rows, self._margins = columns, rows, (0, rows - 1)
        self._row, self._column = min(self._row, rows - 1), min(self._column, columns)
        self._cells = {(y, x): c for (y, x), c in self._cells.items() if y < rows and x < columns}

    def feed_bytes(self, data: bytes) -> None:
        """Take in what was read: what that has cut in two, a character or a sequence, is shown with
        the next read."""
        text = self._torn + self._decoder.decode(data)
        self._torn = _TORN.search(text)[0]  # type: ignore[index]
        self.feed(text.removesuffix(self._torn))

    def feed(self, text: str) -> None:
        """Take in what was sent."""
        for token in _TOKEN.finditer(text):
            if token["text"]:
                self._put(token["text"])
            elif token["final"] == "m":
                self._style = _style_after(self._style, token["args"])
            elif token["final"] in ("H", "J", "G"):
                self._move(token["final"], token["args"])
            elif token["final"] in ("h", "l") and token["args"] == "?1049":
                self._cells.clear()
            elif token["control"] == "\r":
                self._column = 0
            elif token["final"] == "r" and not token["args"].startswith("?"):
                top, _, bottom = token["args"].partition(";")
                self._margins = int(top or 1) - 1, int(bottom or self.rows) - 1
                self._row = self._column = 0
            elif token["control"] == "\n":
                self._feed_line()

    def _feed_line(self) -> None:
        """Go down; at the lower margin the lines between the margins scroll."""
        top, bottom = self._margins
        if self._row != bottom:
            self._row = min(self._row + 1, self.rows - 1)
            return
        cells = {at: cell for at, cell in self._cells.items() if not top <= at[0] <= bottom}
        moved = {(y - 1, x): c for (y, x), c in self._cells.items() if top < y <= bottom}
        self._cells = cells | moved

    def _move(self, final: str, args: str) -> None:
        if final == "J":
            self._cells.clear()
        elif final == "G":
            self._column = min(int(args or 1), self.columns) - 1
        else:
            row, _, column = args.partition(";")
            self._row = min(int(row or 1), self.rows) - 1
            self._column = min(int(column or 1), self.columns) - 1

    def _put(self, text: str) -> None:
        for character in text:
            width = cell_len(character)
            if not width and (self._row, self._column - 1) in self._cells:
                before, style = self._cells[self._row, self._column - 1]
                self._cells[self._row, self._column - 1] = before + character, style
                continue
            self._column = max(0, min(self._column, self.columns - width))  # lines do not wrap
            for at in range(width):
                self._cells[self._row, self._column + at] = "" if at else character, self._style
            self._column += width

    @property
    def cursor(self) -> tuple[int, int]:
        """Row and column of the terminal's cursor."""
        return self._row, self._column

    @property
    def lines(self) -> list[str]:
        """Its lines, without the blanks at their ends."""
        return [
            "".join(self._cells.get((y, x), _BLANK)[0] for x in range(self.columns)).rstrip()
            for y in range(self.rows)
        ]

    @property
    def styled_lines(self) -> list[Text]:
        """Its whole lines, in colour."""
        places = range(self.columns)
        return [
            Text.assemble(*(self._cells.get((y, x), _BLANK) for x in places))
            for y in range(self.rows)
        ]

    @property
    def text(self) -> str:
        """All of it."""
        return "\n".join(self.lines)


def left(output: bytes | bytearray) -> bool:
    """Whether screen, cursor, line wrap, mouse and paste are as they were, after these bytes."""
    modes = {b"?1049": b"l", b"?25": b"h", b"?7": b"h", b"?1004": b"l", b"?2004": b"l"}
    modes |= {b"?1000": b"l", b"?1003": b"l", b"?1006": b"l"}
    last = dict(re.findall(rb"\x1b\[(\?\d+)([hl])", output))
    return all(last.get(mode, expected) == expected for mode, expected in modes.items())


class Terminal:
    """A pseudo terminal with a program on it, in a session of its own."""

    def __init__(
        self,
        argv: Sequence[str],
        environ: Mapping[str, str],
        size: tuple[int, int] = (80, 24),
        stderr: int | None = None,
        controlling: bool = True,
    ) -> None:
        """A program that the terminal does not control is not told when it closes."""
        self.ours, self.theirs = pty.openpty()
        self.said = bytearray()
        """Every byte that the program wrote."""
        self.screen = Screen(*size)
        self._set_size(size)
        self.before = termios.tcgetattr(self.theirs)
        """How the terminal was set."""
        self.process = subprocess.Popen(
            argv,
            stdin=self.theirs,
            stdout=self.theirs,
            stderr=self.theirs if stderr is None else stderr,
            env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "TZ": "UTC", **environ},
            cwd=ROOT,
            start_new_session=True,
            preexec_fn=(lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0)) if controlling else None,
        )

    def _set_size(self, size: tuple[int, int]) -> None:
        columns, rows = size
        fcntl.ioctl(self.ours, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def resize(self, columns: int, rows: int) -> None:
        """Make it another size; the program is told by the kernel."""
        self.screen.resize(columns, rows)
        self._set_size((columns, rows))

    def send(self, keys: str | bytes) -> None:
        """Type that."""
        data = keys.encode() if isinstance(keys, str) else keys
        while data:
            data = data[os.write(self.ours, data) :]

    def until(self, true: Callable[[], object]) -> None:
        """Read on until something is so; fails when that never is, or when the program ends."""
        deadline = time.monotonic() + PATIENCE
        while not true():
            assert time.monotonic() < deadline, f"it never came to be:\n{self.screen.text}"
            ended = self.process.poll() is not None
            assert self._read(0.1) or true(), f"nothing more comes:\n{self.said[-2000:]!r}"
            assert not ended or true(), f"it ended:\n{self.screen.text}\n{self.said[-2000:]!r}"

    def shows(self, *texts: str) -> None:
        """Read on until the screen shows these."""
        self.until(lambda: all(text in self.screen.text for text in texts))

    def reads(self) -> None:
        """Look at a plan for as long as its confirming key needs to count."""
        deadline = time.monotonic() + CONFIRM_SECONDS + 0.1
        while (left := deadline - time.monotonic()) > 0:
            self._read(left)

    def opens(self, pending: int = 40) -> None:
        """Read on until a queue was looked at to its end, and all that waits there is listed.

        Before that a row may be any, and a line half read."""
        counted, listed = f"pending {pending}", re.compile(rf"row \d+ of {pending}\b")

        def is_open() -> object:
            text = self.screen.text
            return counted in text and listed.search(text) and _UNDER_CURSOR.search(text)

        self.until(is_open)

    def _read(self, seconds: float) -> bool:
        """Take in what there is; whether there may be more."""
        if not select.select([self.ours], [], [], seconds)[0]:
            return True
        try:
            data = os.read(self.ours, 1 << 16)
        except OSError:  # the other side was closed by all who had it
            return False
        self.said += data
        self.screen.feed_bytes(data)
        return bool(data)

    def end(self) -> int:
        """Read until the program has ended; its exit code."""
        deadline = time.monotonic() + PATIENCE
        while self.process.poll() is None:
            assert time.monotonic() < deadline, f"it does not end:\n{self.screen.text}"
            self._read(0.05)
        while select.select([self.ours], [], [], 0)[0] and self._read(0):
            pass
        return self.process.returncode

    @property
    def restored(self) -> bool:
        """Whether the terminal is as it was, its line settings too."""
        return left(self.said) and termios.tcgetattr(self.theirs) == self.before

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *error: object) -> None:
        for fd in (self.ours, self.theirs):
            if fd >= 0:
                os.close(fd)
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def hang_up(self) -> None:
        """Close our end, as a line that breaks does."""
        os.close(self.ours)
        os.close(self.theirs)
        self.ours = self.theirs = -1


@contextmanager
def console(*words: str, **options: Any) -> Iterator[Terminal]:
    """The command with these words on a terminal (xterm, UTF-8, if nothing else is said).

    Options in capitals are the environment's; the others are those of `Terminal`."""
    environ = {"TERM": "xterm", **UTF8, **{k: v for k, v in options.items() if k.isupper()}}
    others = {key: value for key, value in options.items() if not key.isupper()}
    with Terminal([*PROGRAM, *words], environ, **others) as terminal:
        yield terminal
