"""Send only the cells of the screen that changed: each frame is compared with the one before.

Textual writes the line of a widget again if one of its cells has changed, and all colours of each
word. Here a change costs a jump to its cell, its text, and only the colours that differ from those
in force."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import compress
from operator import ne, or_
from typing import TypeAlias

from rich.cells import get_character_cell_size
from rich.color import ColorSystem
from rich.console import Console
from rich.style import Style
from textual._compositor import ChopsUpdate, CompositorUpdate, LayoutUpdate
from textual.strip import Strip

from engine.values import NamedTuple

MERGE_GAP_BYTES = 4
"""Unchanged text up to this size is sent again: a jump over it takes as many bytes."""

RESET_SEQUENCE = "\x1b[0m"

UNKNOWN = "\0"
"""In the place of a character: the terminal may show anything in that cell."""

FIRST_NUMBER = "\x01"
"""Number of the terminal's own style."""

_RUN = re.compile(r"(.)\1*", re.DOTALL)
"""Cells of one style."""

_ENDS = {"1": "22", "2": "22", "3": "23", "4": "24", "5": "25", "7": "27", "9": "29"}
"""The code that ends each attribute."""

_SHOWN_ON_BLANKS = frozenset({"4", "7", "9", "21", "53"})
"""Attributes that are visible without a character: lines and reverse."""

Piece: TypeAlias = tuple[int, int, Strip]
"""Row and column where a strip begins, and the strip."""


class CellStyle(NamedTuple):
    """Attributes and colours of a cell as codes of SGR (ECMA-48)."""

    attributes: frozenset[str] = frozenset()
    front: str = ""
    """Codes of the colour of the text; "" for the terminal's own."""
    ground: str = ""


class Cells(NamedTuple):
    """A character and the number of its style for each cell; strings compare fast."""

    text: str
    styles: str


class ScreenCells:
    """What the terminal shows, as far as it is known, and the way from there to a new frame."""

    def __init__(self) -> None:
        self._rows: dict[int, Cells] = {}
        self._styles: dict[CellStyle, str] = {CellStyle(): FIRST_NUMBER}
        """The number of each style, as a character."""
        self._numbers: dict[Style | None, str] = {}
        self._changes: dict[tuple[str, str, bool], tuple[str, str]] = {}
        """The sequence from one style to another, and what is in force then."""
        self._state = ""
        """The number of the style in force at the terminal; "" if that is not known."""
        self._place = (-1, -1)
        """Row and column of the cursor; -1 for one that is not known."""
        self._scroll = ""
        """What the next frame begins with."""
        self._sent: list[str] = []

    def forget(self) -> None:
        """The terminal may show anything: the next frame is sent whole."""
        self._rows.clear()
        self._state = self._scroll = ""

    @property
    def is_forgotten(self) -> bool:
        """True if no frame has followed `forget`."""
        return not self._state

    def advance(self, update: ChopsUpdate | LayoutUpdate, system: ColorSystem) -> str:
        """The text that brings a frame on screen."""
        self._sent, self._scroll, self._place = [self._scroll], "", (-1, -1)
        if not self._state:
            self._state = FIRST_NUMBER
            self._sent.append(RESET_SEQUENCE)
        for y, x, strip in _pieces(update):
            self._show(y, x, self._cells(strip, system))
        return "".join(self._sent)

    def scroll_up(self, top: int, bottom: int, rows: int) -> None:
        """Scroll the rows from `top` to `bottom` up; the last ones get unknown. It is sent with the
        next frame, in one write: alone, the new rows would be seen without frame and ground."""
        if self.is_forgotten:
            return
        for y in range(top, bottom + 1):
            below = self._rows.pop(y + rows, None) if y + rows <= bottom else None
            self._rows.pop(y, None)
            if below is not None:
                self._rows[y] = below
        self._state = FIRST_NUMBER
        newlines = "\n" * rows
        region, cursor = f"\x1b[{top + 1};{bottom + 1}r", f"\x1b[{bottom + 1};1H"
        self._scroll += f"{RESET_SEQUENCE}{region}{cursor}{newlines}\x1b[r"

    def _cells(self, strip: Strip, system: ColorSystem) -> Cells:
        texts, styles = [], []
        for text, style, control in strip:
            if not control:
                number = self._numbers.get(style) or self._number(style, system)
                texts.append(text)
                styles.append(number * len(text))
        return Cells("".join(texts), "".join(styles))

    def _number(self, style: Style | None, system: ColorSystem) -> str:
        codes = "" if style is None else Strip.render_ansi(style, system)
        self._numbers[style] = self._number_of(parse_codes(codes))
        return self._numbers[style]

    def _number_of(self, style: CellStyle) -> str:
        return self._styles.setdefault(style, chr(ord(FIRST_NUMBER) + len(self._styles)))

    def _show(self, y: int, x: int, new: Cells) -> None:
        """Bring a part of a row on screen."""
        row, after = self._rows.get(y, Cells("", "")), x + len(new.text)
        row = Cells(row.text.ljust(after, UNKNOWN), row.styles.ljust(after, UNKNOWN))
        old = Cells(row.text[x:after], row.styles[x:after])
        if old == new:
            return
        if is_single_width(new.text):
            for start, end in changed_spans(old, new):
                self._send(y, x + start, new.text[start:end], new.styles[start:end])
        else:  # where a character is depends on all before it
            self._send(y, x, *new)
            width = sum(map(get_character_cell_size, new.text))
            new, after = Cells(UNKNOWN * width, UNKNOWN * width), x + width
        self._rows[y] = Cells(
            row.text[:x] + new.text + row.text[after:],
            row.styles[:x] + new.styles + row.styles[after:],
        )

    def _send(self, y: int, x: int, text: str, styles: str) -> None:
        """Write cells from a column on, in runs of one style."""
        send = self._sent.append
        row, column = self._place
        if (row, column) != (y, x):
            is_below = row >= 0 and (row + 1, 0) == (y, x)
            send("\r\n" if is_below else f"\x1b[{x + 1}G" if row == y else f"\x1b[{y + 1};{x + 1}H")
        for run in _RUN.finditer(styles):
            part = text[run.start() : run.end()]
            key = self._state, run[1], part.isspace()
            change = self._changes.get(key)
            if change is None:
                change = self._changes[key] = self._change(*key)
            send(change[0])
            send(part)
            self._state = change[1]
        # A terminal may give other characters another width: then jump before the next ones.
        self._place = (y, x + len(text) if text.isascii() else -1)

    def _change(self, state: str, number: str, is_blank: bool) -> tuple[str, str]:
        """The sequence for a text in that style, and the number of the style in force then."""
        known = list(self._styles)
        before, new_style = (known[ord(each) - ord(FIRST_NUMBER)] for each in (state, number))
        if is_blank and new_style.attributes.isdisjoint(_SHOWN_ON_BLANKS):
            attributes = before.attributes - _SHOWN_ON_BLANKS
            new_style = CellStyle(attributes, before.front, new_style.ground)
        return style_change(before, new_style), self._number_of(new_style)


class CellUpdate(CompositorUpdate):
    """A frame, written as the changes since the one before."""

    def __init__(self, update: ChopsUpdate | LayoutUpdate, screen: ScreenCells) -> None:
        self._update, self._screen = update, screen

    def render_segments(self, console: Console) -> str:
        return self._screen.advance(self._update, console._color_system or ColorSystem.TRUECOLOR)


def _pieces(update: ChopsUpdate | LayoutUpdate) -> Iterator[Piece]:
    """The strips of an update, by row and column."""
    if isinstance(update, LayoutUpdate):
        for y, line in enumerate(update.strips, update.region.y):
            x = update.region.x
            for strip in line:
                yield y, x, strip
                x += strip.cell_length
        return
    positions: set[tuple[int, int]] = set()
    for y, first, last in update.spans:
        for end, (x, part) in zip(update.chop_ends[y], update.chops[y].items(), strict=False):
            if part is not None and x < last and end > first and (y, x) not in positions:
                positions.add((y, x))
                yield y, x, part


def changed_spans(old: Cells, new: Cells) -> list[tuple[int, int]]:
    """The spans, start and end, in which cells differ; small gaps between them are included."""
    text, styles = new
    differ = map(or_, map(ne, old.text, text), map(ne, old.styles, styles))
    changed = [*compress(range(len(text)), differ)]
    spans, start, end = [], changed[0], changed[0]
    for at in changed:
        if at > end and (
            len(text[end:at].encode()) > MERGE_GAP_BYTES
            or styles[end - 1 : at + 1] != styles[at] * (at + 2 - end)
        ):
            spans.append((start, end))
            start = at
        end = at + 1
    return [*spans, (start, end)]


def parse_codes(codes: str) -> CellStyle:
    """The style that a list of SGR codes sets: `1;38;2;255;0;0;44`."""
    attributes, colours = set(), {"3": "", "4": ""}
    parts = iter(filter(None, codes.split(";")))
    for part in parts:
        if part in ("38", "48"):
            kind = next(parts)
            numbers = [next(parts) for _ in range(1 if kind == "5" else 3)]
            colours[part[0]] = ";".join((part, kind, *numbers))
        elif part in ("39", "49"):
            colours[part[0]] = ""
        elif part[:-1] in ("3", "9"):
            colours["3"] = part
        elif part[:-1] in ("4", "10"):
            colours["4"] = part
        else:
            attributes.add(part)
    return CellStyle(frozenset(attributes), colours["3"], colours["4"])


def style_change(before: CellStyle, after: CellStyle) -> str:
    """The sequence from one style to another; "" if they are the same."""
    if before == after:
        return ""
    ended = before.attributes - after.attributes
    codes: list[str] = []
    if not ended <= _ENDS.keys():
        before, codes = CellStyle(), ["0"]
    else:
        codes += sorted({_ENDS[each] for each in ended})
    begun = (e for e in after.attributes if e not in before.attributes or _ENDS.get(e) in codes)
    codes += sorted(begun)
    if before.front != after.front:
        codes.append(after.front or "39")
    if before.ground != after.ground:
        codes.append(after.ground or "49")
    return f"\x1b[{';'.join(codes)}m"


def is_single_width(text: str) -> bool:
    """True if each character takes one cell."""
    return text.isascii() or all(map(_is_single, {*text}))


@lru_cache(maxsize=4096)
def _is_single(character: str) -> bool:
    return get_character_cell_size(character) == 1
