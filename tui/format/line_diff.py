"""Find the cells of a line that changed, so that only these are sent to the terminal."""

from __future__ import annotations

from typing import TypeAlias

from rich.cells import cell_len

from tui.format.present import Line

MERGE_GAP_CELLS = 12
"""Up to so many unchanged cells between two changes are repainted: moving the cursor costs as many
bytes.
"""

Span: TypeAlias = tuple[int, int]
"""Start and length of a change, in cells."""


def changed_spans(old: Line, new: Line, width: int) -> list[Span]:
    """The spans of cells in which two lines of that width differ, from left to right."""
    if not (_is_single_width(old) and _is_single_width(new)):
        return [(0, width)]  # wide characters: where a cell begins hangs on all before it
    if (
        _fills_width(old, width)
        and _fills_width(new, width)
        and _style_names(old).isdisjoint(_style_names(new))
    ):
        return [(0, width)]  # a cursor row: the usual case of a key
    codes = {"": "\0"}
    (text, looks), (text_now, looks_now) = (
        _cell_codes(old, width, codes),
        _cell_codes(new, width, codes),
    )
    if set(looks).isdisjoint(looks_now):
        return [(0, width)]
    spans: list[Span] = []
    for at in range(width):
        if text[at] == text_now[at] and looks[at] == looks_now[at]:
            continue
        if spans and at - sum(spans[-1]) < MERGE_GAP_CELLS:
            spans[-1] = (spans[-1][0], at + 1 - spans[-1][0])
        else:
            spans.append((at, 1))
    return spans


def _is_single_width(line: Line) -> bool:
    """True if each character takes one cell."""
    return all(text.isascii() or cell_len(text) == len(text) for text, _ in line)


def _fills_width(line: Line, width: int) -> bool:
    return sum(len(text) for text, _ in line) >= width


def _style_names(line: Line) -> set[str]:
    return {look for _, look in line}


def _cell_codes(line: Line, width: int, codes: dict[str, str]) -> tuple[str, str]:
    """The character in each cell, and one code per cell for its style; strings compare fast."""
    text = "".join([text for text, _ in line])
    looks = "".join([codes.setdefault(look, chr(len(codes))) * len(text) for text, look in line])
    return text[:width].ljust(width), looks[:width].ljust(width, codes[""])
