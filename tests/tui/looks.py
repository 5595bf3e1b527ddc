"""How a screen looks, as text that can be read and compared: its cells, and how they are styled."""

from __future__ import annotations

from pathlib import Path

from rich.segment import Segment
from textual.color import Color

from tui.app import Console

GOLDEN = Path(__file__).parent / "golden"


def drawn(console: Console) -> tuple[list[str], list[str]]:
    """The screen line by line, and for each line its styled runs: `3 0-5 bold, 10-12 red`."""
    # The library has no public way to what it painted.
    strips = console.screen._compositor.render_strips()
    filters = console._filters
    default = Color.parse("ansi_default")
    rows, styles = [], []
    for number, strip in enumerate(strips):
        for line_filter in filters:
            strip = strip.apply_filter(line_filter, default)
        rows.append(strip.text.rstrip())
        runs = ", ".join(_runs(list(strip)))
        if runs:
            styles.append(f"{number} {runs}")
    return rows, styles


def _runs(segments: list[Segment]) -> list[str]:
    runs: list[tuple[int, int, str]] = []
    at = 0
    for segment in segments:
        style = _style(segment)
        end = at + segment.cell_length
        if style and segment.cell_length:
            if runs and runs[-1][1:] == (at, style):
                runs[-1] = (runs[-1][0], end, style)
            else:
                runs.append((at, end, style))
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


def compare(name: str, text: str, *, anew: bool) -> str:
    """How a drawing differs from the one that was agreed on; "" when it does not.

    With `anew` it is what was agreed on from now on.
    """
    path = GOLDEN / f"{name}.txt"
    if anew:
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return ""
    if not path.exists():
        return f"{path.name} is not there: draw it with --draw, and look at it"
    agreed = path.read_text()
    if agreed == text:
        return ""
    import difflib

    lines = difflib.unified_diff(agreed.splitlines(), text.splitlines(), "agreed", "drawn", n=1)
    return "\n".join(lines)
