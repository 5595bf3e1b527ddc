"""Names of the styles that a theme defines, and lines in another style."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import groupby

from engine.monitor.recurrence import StillHappens
from tui.text.lines import Line, cells_of, cut_line, join_ends, width_of

TOKENS = (
    "muted",
    "line",
    "accent",
    "chip",
    "ok",
    "warn",
    "error",
    "unknown",
    "heat1",
    "heat2",
    "heat3",
    "heat4",
    "heat5",
    "cursor",
    "ghost",
)
"""The colours of the console by their meaning, which a theme defines; "" is plain text. `error` is
only for what is wrong now. `line` is for frames and the empty part of a bar, and carries no words.
`heat1` to `heat5` are the grounds of the age table, from few to many."""

DERIVED_STYLES = (
    "strong",
    "title",
    "key",
    "mark",
    "tab",
    "chip-accent",
    "chip-ok",
    "chip-warn",
    "chip-error",
)
"""Styles made of the tokens; a theme may define them too."""

ON_CURSOR = "@cursor"
"""Appended to a style's name: the same text on the row under the cursor."""

ON_BAR = "@bar"
"""Appended to a style's name: the same text on the bar of a confirmation."""

BARE = "@bare"
"""Appended to a style's name: the same without underline, strike and reverse, for blanks."""

STILL_LOOKS = {StillHappens.YES: "warn", StillHappens.NO: "ok", StillHappens.UNKNOWN: "unknown"}

_WORD = re.compile(r"[\w!?+-]")


def cursor_line(line: Line, width: int) -> Line:
    """A line as the row under the cursor: its cells keep their colours."""
    return tuple((text, style + ON_CURSOR) for text, style in cut_line(line, width))


def bracket_chips(line: Line) -> Line:
    """The line with its chips in brackets, for screens that do not show their ground."""
    return tuple(
        (
            f"[{text[1:-1]}]" if style.startswith(("chip", "tab")) and text[:1] == " " else text,
            style,
        )
        for text, style in line
    )


_GAP = re.compile(r"(^ +| {2,}| +$)")


def mark_words(line: Line, looks: Mapping[str, object]) -> Line:
    """The line with underline, strike and reverse only at its words: without colours, a reversed
    blank or graph looks like a state."""
    if not any(f"{style}{BARE}" in looks for _, style in line):
        return line
    return tuple(
        (part, style if _WORD.search(part) or f"{style}{BARE}" not in looks else f"{style}{BARE}")
        for style, runs in groupby(line, key=lambda run: run[1])
        for part in _GAP.split("".join(text for text, _ in runs))
        if part
    )


def confirmation_bar(left: Line, note: str, width: int) -> Line:
    """The bar of a confirmation, over the full width, with a note at its right end if it fits."""
    room = width - width_of(left) - cells_of(note) - 3
    line = join_ends(left, ((f"{note} ", ""),), width) if note and room > 0 else left
    return tuple((text, style + ON_BAR) for text, style in cut_line(line, width))
