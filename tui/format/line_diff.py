"""Which cells of a line differ from those on screen: what is painted costs bytes on the wire."""

from __future__ import annotations

from typing import TypeAlias

from rich.cells import cell_len

from tui.format.present import Line

NEAR = 12
"""Unchanged cells between two changes that are painted with them: moving the cursor costs as much.
"""

Span: TypeAlias = tuple[int, int]
"""Where a change begins, in cells, and how many cells it has."""


def changes(old: Line, new: Line, width: int) -> list[Span]:
    """The spans of cells in which two lines of that width differ, from left to right."""
    if not (_is_even(old) and _is_even(new)):
        return [(0, width)]  # wide characters: where a cell begins hangs on all before it
    if _covers(old, width) and _covers(new, width) and _looks(old).isdisjoint(_looks(new)):
        return [(0, width)]  # as where the cursor comes or goes, which is at each key
    codes = {"": "\0"}
    (text, looks), (text_now, looks_now) = _cells(old, width, codes), _cells(new, width, codes)
    if set(looks).isdisjoint(looks_now):
        return [(0, width)]
    spans: list[Span] = []
    for at in range(width):
        if text[at] == text_now[at] and looks[at] == looks_now[at]:
            continue
        if spans and at - sum(spans[-1]) < NEAR:
            spans[-1] = (spans[-1][0], at + 1 - spans[-1][0])
        else:
            spans.append((at, 1))
    return spans


def _is_even(line: Line) -> bool:
    """Whether each character takes one cell."""
    return all(text.isascii() or cell_len(text) == len(text) for text, _ in line)


def _covers(line: Line, width: int) -> bool:
    return sum(len(text) for text, _ in line) >= width


def _looks(line: Line) -> set[str]:
    return {look for _, look in line}


def _cells(line: Line, width: int, codes: dict[str, str]) -> tuple[str, str]:
    """What stands in each cell, and a code for how it looks: strings are soon compared."""
    text = "".join([text for text, _ in line])
    looks = "".join([codes.setdefault(look, chr(len(codes))) * len(text) for text, look in line])
    return text[:width].ljust(width), looks[:width].ljust(width, codes[""])
