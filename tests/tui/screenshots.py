"""Draw the screens: the real program on a fixed spool, in two sizes, dark and light.

All go to build/screenshots; those that README shows are in git and go to screenshots/ too.
`--themes mono,terminal dlq` draws one screen in other themes.
"""

from __future__ import annotations

import argparse
import asyncio
import html
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from unittest.mock import patch

import resvg_py
from rich.terminal_theme import TerminalTheme

from engine.config import queue_config
from engine.demo.demo import Demo
from engine.formats.known_formats import demo_formats, setup_for
from engine.version import program_command
from tests.console_places import is_known, until
from tests.tui.drawn_screens import DRAWN_SCREENS, FIRST, settled, taken
from tests.tui.screenshot_places import NAME, made_days
from tui.app import Console
from tui.cli.setup.places import make_places
from tui.text.glyphs import UTF8

ROOT = Path(__file__).parents[2]
IN_GIT, BUILD = ROOT / "screenshots", ROOT / "build" / "screenshots"

SIZES = ((120, 40), (80, 24))
"""The wider first: a screen that becomes wider asks for what it did not show before."""

WALL = (200, 60)
"""The size of the wall, for screens that are reached at once."""

THEMES = ("night", "paper")

_DIM = "000000 cd0000 00cd00 cdcd00 0000ee cd00cd 00cdcd e5e5e5"
_BRIGHT = "7f7f7f ff0000 00ff00 ffff00 5c5cff ff00ff 00ffff ffffff"
XTERM = tuple(
    (n >> 16, n >> 8 & 255, n & 255)
    for n in (int(word, 16) for word in f"{_DIM} {_BRIGHT}".split())
)
"""The 16 colours of xterm."""

GROUNDS = ((229, 229, 229), (0, 0, 0))
"""Text and background of a dark terminal; a light one has them the other way round."""

KEPT = {f"{name}-120x40-night" for name in ("trouble", "dlq", "task", "plan", "lock", "log")}
KEPT |= {f"{name}-120x40-night" for name in ("transports", "workers", "demo", "flood")}
KEPT |= {"trouble-200x60-night", "overview-80x24-night", "overview-120x40-paper"}
"""The pictures in git, at most 13."""

UNDRAWN = {"lock-doubt", "lock-at-work", "order", "copy", "export", "log-only", "task-attempts"}
"""Shots that differ little from another one."""

DEMO = "demo"
"""The picture of the real demo with Redis, in one size and theme."""
DEMO_TASKS, DEMO_SECONDS = 200, 20.0
"""Tasks of its first place, and seconds of traffic before it is drawn."""

FAMILIES = ("Fira Code", "DejaVu Sans Mono", "Liberation Mono", "Noto Sans Mono")
"""Fixed-width fonts with box and block glyphs, best first."""

ZOOM = 0.75
"""Pixels of the PNGs to those of the SVGs: still readable, and half as many bytes."""

REMOTE = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
"""Fonts that a viewer would have to fetch from somewhere; without them it takes its own."""


def font() -> str:
    """A family that is on this machine; the first one of its fixed-width fonts if none of ours."""
    lines = subprocess.run(
        ["fc-list", ":spacing=mono", "family"], capture_output=True, text=True, check=False
    ).stdout.splitlines()
    families = sorted({name.strip() for line in lines for name in line.split(",")})
    return next((name for name in (*FAMILIES, *families) if name in families), "")


def drawn(console: Console, root: Path, name: str) -> str:
    """What is on screen, as SVG."""
    front, back = GROUNDS if console.current_theme.dark else reversed(GROUNDS)
    palette = TerminalTheme(back, front, list(XTERM[:8]), list(XTERM[8:]))
    with patch("rich.console.SVG_EXPORT_THEME", palette):
        svg = console.export_screenshot(title="spooldeck").replace(str(root), NAME)
    # Its names hold a number of chance; without it, what did not change stays the same.
    svg = re.sub(r"terminal-\d+", f"terminal-{name}", REMOTE.sub("", svg))
    return TEXT.sub(_split_graphs, svg).replace("Fira Code", "Fira Code, DejaVu Sans Mono")


TEXT = re.compile(
    r'<text class="([^"]*)" x="([0-9.]+)" y="([0-9.]+)" textLength="([0-9.]+)"'
    r"([^>]*)>([^<]*)</text>"
)
GRAPH = re.compile("[\u2800-\u28ff]+|[^\u2800-\u28ff]+")


def _split_graphs(match: re.Match[str]) -> str:
    """The dots of a graph as a text of their own: their font would be taken for the words, too."""
    name, x, y, length, rest, content = match.groups()
    text = html.unescape(content)
    cells, at, parts = float(length) / max(1, len(text)), float(x), []
    for run in GRAPH.findall(text):
        shown, wide = html.escape(run).replace("\xa0", "&#160;"), cells * len(run)
        place = f'class="{name}" x="{at:g}" y="{y}" textLength="{wide:g}"'
        parts.append(f"<text {place}{rest}>{shown}</text>")
        at += wide
    return "".join(parts) if len(parts) > 1 else match[0]


def png(svg: str, family: str) -> bytes:
    """The same as pixels, in a font that is there."""
    named = svg.replace("Fira Code, DejaVu Sans Mono", family)
    return bytes(resvg_py.svg_to_bytes(svg_string=named, font_family=family, zoom=ZOOM))


async def draw(
    roots: dict[str, Path], name: str, family: str, themes: tuple[str, ...]
) -> list[Path]:
    """Draw one screen in each size and theme; returns the files that were written."""
    drawn_screen, made = DRAWN_SCREENS[name], []
    root = roots[drawn_screen.day]
    sizes = (
        (WALL, *SIZES)
        if drawn_screen.steps[: len(FIRST)] == FIRST and len(drawn_screen.steps) <= 4
        else SIZES
    )
    async with taken(root, drawn_screen, sizes[0], glyphs=UTF8, theme="night") as (console, pilot):
        for size in sizes:
            await pilot.resize_terminal(*size)
            for theme in themes:
                await console.theme_loader.use_theme(theme)
                await settled(console, pilot)
                stem = f"{name}-{size[0]}x{size[1]}-{theme}"
                picture = png(drawn(console, root, name), family)
                for folder in (BUILD, IN_GIT) if stem in KEPT else (BUILD,):
                    made.append(folder / f"{stem}.png")
                    made[-1].write_bytes(picture)
    return made


async def draw_demo(family: str) -> list[Path]:
    """Draw the overview of the real demo with its Redis queues, after some seconds of traffic."""
    demo_places = [form.demo_places["redis"] for form in demo_formats("redis")]
    with Demo(DEMO_TASKS, "", program_command(), demo_places) as show:
        names = show.wait_for_places()
        config = queue_config.load_config(show.config_path, os.environ)
        places = make_places(setup_for(config, names[0], os.environ), names)
        console = Console(places, theme="night", glyphs=UTF8, host="mx1")
        async with console.run_test(size=SIZES[0]) as pilot:
            await until(pilot, lambda: all(map(is_known, console.sessions)))
            await asyncio.sleep(DEMO_SECONDS)
            await pilot.pause()
            picture = png(drawn(console, Path(show.folder), DEMO), family)
    made = [folder / f"{DEMO}-120x40-night.png" for folder in (BUILD, IN_GIT)]
    for path in made:
        path.write_bytes(picture)
    return made


def main() -> int:
    """Draw all screens, or the named ones; pictures that are no longer drawn are removed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="SCREEN")
    parser.add_argument("--themes", default=",".join(THEMES), help="such as mono,terminal-light")
    asked = parser.parse_args()
    themes = tuple(asked.themes.split(","))
    family = font()
    if not family:
        print("no fixed-width font is installed here: install fonts-dejavu-core")
        return 1
    BUILD.mkdir(parents=True, exist_ok=True)
    made: set[Path] = set()
    os.environ["TZ"] = "UTC"  # logs are written in local time
    os.environ["COLORTERM"] = "truecolor"  # else a theme with few colours may be used
    time.tzset()
    with made_days() as days:
        if not asked.names or DEMO in asked.names:
            made.update(asyncio.run(draw_demo(family)))
        names = asked.names or [name for name in DRAWN_SCREENS if name not in UNDRAWN]
        for name in (name for name in names if name != DEMO):
            made.update(asyncio.run(draw(days, name, family, themes)))
            print(name, flush=True)
    if not asked.names and themes == THEMES:
        for path in {*BUILD.iterdir(), *IN_GIT.glob("*.png")} - made:
            path.unlink()
    print(f"{len(made)} files, {sum(path.stat().st_size for path in made) / 1e6:.1f} MB")
    print(f"font: {family}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
