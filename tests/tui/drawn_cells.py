"""How a screen looks, as text that can be read and compared: its cells, and how they are styled."""

from __future__ import annotations

import difflib
import re
from pathlib import Path

from rich.segment import Segment
from textual.color import Color

from tui.app import Console

GOLDEN = Path(__file__).parent / "golden"

CHANCE = re.compile(r"(?<=revision  ) *[0-9a-f]+(\.[0-9a-f]+)+ *|(?<=  example  )\S+")
"""What differs from one folder to the next, and which of some alike is named. A revision has an
inode number, which may have any length."""


def drawn(console: Console) -> tuple[list[str], list[str]]:
    """The screen line by line, and for each line its styled runs: `3 0-5 bold, 10-12 red`."""
    # The library has no public way to what it painted.
    strips = console.screen._compositor.render_strips()
    filters = console._filters
    default = Color.parse("ansi_default")
    rows, styles = [], []
    for number, strip in enumerate(strips):
        for line_filter in filters:
            if not line_filter.enabled:
                continue
            strip = strip.apply_filter(line_filter, default)
        text, found = CHANCE.subn("#", strip.text.rstrip())
        rows.append(text)
        runs = "" if found else ", ".join(_runs(list(strip)))
        if runs:
            styles.append(f"{number} {runs}")
    return rows, styles


def _runs(segments: list[Segment]) -> list[str]:
    runs: list[tuple[int, int, str]] = []
    at = 0
    for segment in segments:
        style, end = _style(segment), at + segment.cell_length
        if style and end > at:
            start = runs.pop()[0] if runs and runs[-1][1:] == (at, style) else at
            runs.append((start, end, style))
        at = end
    return [f"{start}-{end} {style}" for start, end, style in runs]


def _style(segment: Segment) -> str:
    if segment.style is None:
        return ""
    words = str(segment.style.without_color)
    front, back = segment.style.color, segment.style.bgcolor
    parts = [words if words != "none" else ""]
    parts.append(front.name if front and not front.is_default else "")
    parts.append(f"on {back.name}" if back and not back.is_default else "")
    return " ".join(filter(None, parts))


def compare(name: str, text: str, *, redraws: bool) -> str:
    """How a drawing differs from the one that was agreed on; "" when it does not.

    With `redraws` it is what is agreed on from now on.
    """
    path = GOLDEN / f"{name}.txt"
    if redraws:
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return ""
    if not path.exists():
        return f"{path.name} is not there: draw it with --draw, and look at it"
    agreed = path.read_text(encoding="utf-8")
    lines = difflib.unified_diff(agreed.splitlines(), text.splitlines(), "agreed", "drawn", n=1)
    return "\n".join(lines)
