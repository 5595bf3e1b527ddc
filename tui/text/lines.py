"""Lines of the screen: cut, filled, folded and joined in cells of the terminal; pure functions.

A line is a tuple of runs. A run is a text and the name of its style (`tui.text.styles`); the theme
defines the style. Foreign text passes through `engine.text.safe` before it is put into a run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import inf
from typing import TypeAlias

from rich.cells import cell_len, set_cell_size

from engine.text.figure import UNKNOWN
from engine.text.safe import safe_line
from tui.text.glyphs import MORE

Run: TypeAlias = tuple[str, str]
"""A text without control characters, and the name of its style."""

Line: TypeAlias = tuple[Run, ...]
"""One line of the screen."""

BLANK_LINE: Line = ()

UNKNOWN_RUN: Run = (UNKNOWN, "unknown")


def cells_of(text: str) -> int:
    """Width of a text in terminal cells."""
    # `cell_len` looks up each text in a cache; nearly all texts are plain ASCII and need none.
    return len(text) if text.isascii() and text.isprintable() else cell_len(text)


def width_of(line: Line) -> int:
    """Width of a line in terminal cells."""
    return sum([cells_of(text) for text, _ in line])


def fit_text(text: str, width: int, right: bool = False) -> str:
    """The text in exactly `width` cells: padded, or cut with an ellipsis."""
    lacking = width - cells_of(text)
    if lacking >= 0:
        return " " * lacking + text if right else text + " " * lacking
    return set_cell_size(text, width - 1) + MORE if width > 0 else ""


def fit_text_end(text: str, width: int) -> str:
    """The text in exactly `width` cells, cut at the front: ids and paths differ at their ends."""
    if cells_of(text) <= width:
        return fit_text(text, width)
    ending = text[-(width - 1) :] if width > 1 else ""
    while ending and cells_of(ending) > width - 1:
        ending = ending[1:]
    return fit_text(MORE + ending, width) if width > 0 else ""


def fit_text_middle(text: str, width: int) -> str:
    """The text in exactly `width` cells, cut in its middle: hosts differ at their start or port."""
    if cells_of(text) <= width:
        return fit_text(text, width)
    end = (width - 1) // 2
    return (
        fit_text(text, width - end) + fit_text_end(text, end + 1)[1:]
        if end
        else fit_text(text, width)
    )


def parts_that_fit(parts: Iterable[Line], width: int) -> Line:
    """As many parts as fit without cutting one: half a number would read as another number."""
    runs: list[Run] = []
    for part in parts:
        width -= width_of(part)
        if width < 0:
            break
        runs += part
    return tuple(runs)


def join_ends(left: Line, right: Line, width: int) -> Line:
    """One line with text at both ends; the left part is cut first."""
    room = max(0, width - width_of(right) - 1)
    return (*cut_line(left, room), (" ", ""), *right)


def cut_line(line: Line, width: int) -> Line:
    """The line in exactly `width` cells."""
    runs: list[Run] = []
    for text, style in line:
        cells = cells_of(text)
        if cells > width:
            runs.append((fit_text(text, width), style))
            return tuple(runs)
        runs.append((text, style))
        width -= cells
    return (*runs, (" " * width, "")) if width else tuple(runs)


StyleName: TypeAlias = str

MARGIN_CELLS = 3
"""Cells before the first column: cursor, mark, note."""


def merge_runs(runs: Iterable[Run]) -> Line:
    """The same line in as few runs as possible: each run costs bytes to the terminal."""
    line: list[Run] = []
    for text, style in runs:
        if line and (line[-1][1] == style or not (text.strip(" ") or _is_seen(line[-1][1], style))):
            line[-1] = (line[-1][0] + text, line[-1][1])
        elif text:
            line.append((text, style))
    return tuple(line)


def _is_seen(*looks: str) -> bool:
    return any(style == "error" or style.startswith(_GROUNDS) for style in looks)


_GROUNDS = ("heat", "chip", "tab", "cursor")
"""The styles with a ground of their own begin with these words."""


def fact_line(parts: Sequence[Line], width: int) -> Line:
    """Facts on one line, two cells apart; omit the first that does not fit, and all after it."""
    first, *others = parts
    gap: Line = (("   ", ""),)
    line = parts_that_fit([cut_end(first, width), *((*gap, *part) for part in others)], width)
    return cut_line(line, width)


def cut_end(line: Line, width: int) -> Line:
    """The line, cut if it is wider than `width` cells, and not padded."""
    return line if width_of(line) <= width else cut_line(line, width)


MAX_FACT_NAME_CELLS = 24


def fact_lines(
    rows: Iterable[Run], width: int, names: int = 12, looks: Mapping[str, str] | None = None
) -> list[Line]:
    """Names and values in two columns below a margin, at least `names` cells for the first, and as
    many as the longest name has, up to `MAX_FACT_NAME_CELLS`; long values are folded. `looks` has
    the style of a value up to its first comma, by name."""
    rows, lines = [*rows], list[Line]()
    longest = max((cells_of(name) for name, _ in rows), default=0)
    names = max(names, min(longest, MAX_FACT_NAME_CELLS, width // 3))
    room = max(8, width - MARGIN_CELLS - names - 2)
    for name, value in rows:
        unknown = "unknown" if value.startswith(UNKNOWN) else ""
        style = (looks or {}).get(name, unknown)
        for number, part in enumerate(fold_text(value, room)):
            label = fit_text(name if number == 0 else "", names)
            head, comma, tail = part.partition(",") if style != unknown else (part, "", "")
            tail_runs = ((comma + tail, unknown),) if comma else ()
            lines.append(((f"{'':{MARGIN_CELLS}}{label}  ", "muted"), (head, style), *tail_runs))
    return lines


def folded_lines(
    text: str, width: int, style: str = "", lead: Line = (("  ", ""),), hang: int = 0
) -> list[Line]:
    """A text, made safe here and folded behind its lead: blanks, a sign, a label. The lines after
    the first begin with as many blanks, and `hang` more."""
    cells = width_of(lead)
    first, *others = fold_text(safe_line(text), max(8, width - cells - hang - 1))
    *before, (end, look) = lead
    head = ((f"{end}{first}", style),) if end.isspace() else ((end, look), (first, style))
    blanks = " " * (cells + hang)
    return [(*before, *head), *(((f"{blanks}{piece}", style),) for piece in others)]


def fold_long_lines(lines: Sequence[Line], width: int, rows: int) -> list[Line]:
    """Lines in at most `rows` rows: the last run of one that is wider than `width` is folded below
    its beginning while rows are free, and else cut. Blanks at its end take no cells."""
    folded: list[Line] = []
    free = max(0, rows - len(lines))
    for line in lines:
        if width_of(line) <= width or width_of(line := _without_end_blanks(line)) <= width:
            folded.append(line)
            continue
        text, style = line[-1] if line else ("", "")  # there may be no width at all
        lead = merge_runs([*line[:-1], (" " * (len(text) - len(text.lstrip())), "")])
        room = width - width_of(lead)
        if not free or room < MIN_FOLDED_CELLS:
            folded.append(cut_end(line, width))
            continue
        pieces = fold_text(text.lstrip(), room, most=free + 1)
        blanks = ((" " * width_of(lead), ""),)
        parts = [(*(blanks if at else lead), (one, style)) for at, one in enumerate(pieces)]
        folded += [cut_end(part, width) for part in parts]
        free -= len(pieces) - 1
    return folded


def _without_end_blanks(line: Line) -> Line:
    while line and not line[-1][0].strip():
        line = line[:-1]
    return (*line[:-1], (line[-1][0].rstrip(), line[-1][1])) if line else line


MIN_FOLDED_CELLS = 8
"""Least cells for a text that is folded."""


def section(title: str, lines: Sequence[Line]) -> list[Line]:
    """Lines with a title above, and a blank line between it and what is before."""
    return [BLANK_LINE, part_line(title), *lines]


def fold_text(text: str, width: int, most: float = inf) -> list[str]:
    """The text in pieces of at most `width` cells (at least 1), split at spaces if possible; the
    last of `most` pieces is all that remains."""
    pieces: list[str] = []
    at, width = 0, max(1, width)
    while len(pieces) + 1 < most and (at + width < len(text) or cells_of(text[at:]) > width):
        piece = set_cell_size(text[at : at + width], width).rstrip()
        if text[at + len(piece) : at + len(piece) + 1] != " " and " " in piece.lstrip():
            piece = piece.rpartition(" ")[0]
        pieces.append(piece)
        at += max(1, len(piece))
        while text[at : at + 1] == " ":
            at += 1
    return [*pieces, text[at:]] if at < len(text) or not pieces else pieces


def join_columns(
    left: Sequence[Line], right: Sequence[Line], left_width: int, width: int
) -> list[Line]:
    """Join two texts side by side."""
    room = width - left_width - 2
    lines: list[Line] = []
    for at in range(max(len(left), len(right))):
        start = cut_line(left[at] if at < len(left) else BLANK_LINE, left_width)
        lines.append((*start, ("  ", ""), *cut_line(right[at] if at < len(right) else (), room)))
    return lines


def part_line(text: str) -> Line:
    """The title of a part inside a frame."""
    return ((f" {text}", "title"),)


def heading_line(text: str, width: int) -> Line:
    """A title in a rule, as the frames of panes on small screens."""
    return (("─ ", "line"), (text, "title"), (" " + "─" * (width - cells_of(text) - 3), "line"))
