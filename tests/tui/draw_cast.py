"""Draw screenshots/triage.gif, the moving picture of the README, from screenshots/triage.cast."""

from __future__ import annotations

import sys
from io import BytesIO, StringIO

import resvg_py
from PIL import Image
from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from tests.tui.record_cast import CAST, PICTURE, frames
from tests.tui.screenshots import GROUNDS, REMOTE, XTERM, font

MAX_BYTES = 2_000_000
COLOURS = 64
ZOOM = 0.8


def draw(lines: list[Text], family: str) -> Image.Image:
    """A screen as pixels."""
    console = Console(record=True, width=len(lines[0]), file=StringIO(), color_system="truecolor")
    console.print(*lines, sep="\n", end="", no_wrap=True)
    front, back = GROUNDS
    theme = TerminalTheme(back, front, list(XTERM[:8]), list(XTERM[8:]))
    svg = REMOTE.sub("", console.export_svg(title="spooldeck", theme=theme))
    named = svg.replace("Fira Code", family)
    data = bytes(resvg_py.svg_to_bytes(svg_string=named, font_family=family, zoom=ZOOM))
    return Image.open(BytesIO(data)).convert("RGB")


def main() -> int:
    """Draw it, and write the file."""
    family, pictures, times = font(), list[Image.Image](), list[int]()
    for seconds, lines in frames(CAST.read_text(encoding="utf-8")):
        pictures.append(draw(lines, family))
        times.append(round(1000 * seconds))
    # One palette for all, so that what has not changed has the same colour in each frame.
    palette = pictures[0].quantize(COLOURS)
    first, *others = (one.quantize(palette=palette, dither=Image.Dither.NONE) for one in pictures)
    target = BytesIO()
    first.save(target, "GIF", save_all=True, append_images=others, duration=times, loop=0)
    size = len(target.getvalue())
    if size > MAX_BYTES:
        print(f"{size:,} bytes: expected at most {MAX_BYTES:,}", file=sys.stderr)
        return 1
    PICTURE.write_bytes(target.getvalue())
    seconds = sum(times) / 1000
    print(f"{PICTURE}: {len(pictures)} frames, {seconds:.0f} s, {first.size}, {size:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
