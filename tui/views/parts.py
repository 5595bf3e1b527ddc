"""The pieces of a task, as lines: what they say, what they are, and their very bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from engine import letter
from engine.letter import Letter
from engine.model import Part
from engine.text import shown
from tui import present
from tui.present import BLANK, Line


class Opened(NamedTuple):
    """A part of a task that was read."""

    part: Part
    data: bytes = b""
    """Its beginning."""
    refused: str = ""
    """Why it was not to be had; "" when it was."""


def per_row(width: int) -> int:
    """How many bytes of a dump fit in a row."""
    return 16 if width >= 80 else 8


def payload(opened: Sequence[Opened], width: int) -> list[Line]:
    """What the parts beside the task itself say."""
    if len(opened) < 2:
        return [((" it has no payload", "dim"),)]
    lines: list[Line] = []
    for each in opened[1:]:
        text = letter.read(each.data, per_row(width))
        lines += _headed(each, _kind(each, text), width)
        lines += _text(text.lines, width)
    return lines


def raw(opened: Sequence[Opened], width: int) -> list[Line]:
    """Every part as it is; what is no text as its bytes."""
    lines: list[Line] = []
    for each in opened:
        text = letter.verbatim(each.data, per_row(width))
        lines += _headed(each, "bytes" if text.kind == "bytes" else "as it is stored", width)
        lines += _text(text.lines, width)
    return lines


def _kind(each: Opened, text: Letter) -> str:
    return "empty" if text.kind == "nothing" else text.kind


def _headed(each: Opened, kind: str, width: int) -> list[Line]:
    part, refused = each.part, each.refused or each.part.refused
    size = "" if part.size is None else f", {present.count(part.size, 'byte')}"
    words = shown(part.name) if refused else f"{shown(part.name)}: {kind}{size}"
    lines = [present.heading(present.fit_end(words, min(len(words), width - 4)), width)]
    lines += [((f"  {piece}", "dim"),) for piece in present.folded(shown(part.where), width - 3)]
    if refused:
        why = f"not read: it {shown(refused)}"
        return lines + [((f"  {piece}", "warning"),) for piece in present.folded(why, width - 3)]
    if part.size is not None and part.size > len(each.data):
        lines.append(((f"  only its first {len(each.data):,} bytes are shown", "warning"),))
    return lines


def _text(lines: Sequence[str], width: int) -> list[Line]:
    room = max(8, width - 3)
    folded = [((f"  {piece}", ""),) for line in lines for piece in present.folded(line, room)]
    return [*folded, BLANK]


_TIMES = ("modified", "changed")


def files(parts: Sequence[Part], now: float, width: int) -> list[Line]:
    """What each part is: where, how big, since when, and whose."""
    lines: list[Line] = []
    for part in parts:
        name = shown(part.name)
        lines.append(present.heading(present.fit_end(name, min(len(name), width - 4)), width))
        size = [] if part.size is None else [present.count(part.size, "byte")]
        facts = [*size, *(f"{key} {shown(t)}" for key, t in part.facts if key not in _TIMES)]
        times = [f"{key} {_time(text, now)}" for key, text in part.facts if key in _TIMES]
        said = [(shown(part.where), "strong"), (", ".join(facts), ""), (", ".join(times), "")]
        said.append((f"not read: it {shown(part.refused)}" if part.refused else "", "warning"))
        for text, look in said:
            pieces = present.folded(text, width - 3) if text else []
            lines += [((f"  {piece}", look),) for piece in pieces]
    return lines or [((" nothing of it is there any more", "dim"),)]


def _time(text: str, now: float) -> str:
    if text.isascii() and text.isdigit() and len(text) <= 12:
        return present.moment(float(text), now)
    return shown(text)
