"""Draws screenshots/ anew: the real program on a real spool, at 80x24 and 120x40."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import resvg_py

from tests.tui.spools import (
    a_console,
    a_stuck_lock,
    disk_place,
    in_utc,
    loaded,
    make_spool,
    recover_command,
    some_tasks,
    until,
)
from tui.app import Console

SHOTS: dict[str, tuple[str, ...]] = {
    "queue": (),
    "dlq": ("4", "j", "j", "space", "space"),
    "filter": ("4", "/", *"unknown", "enter"),
    "task": ("4", "j", "enter"),
    "plan": ("4", "*", "R"),
    "problems": ("6",),
    "help": ("?",),
    "lock": ("U",),
}
"""What is drawn: a name, and the keys that lead there."""

STUCK = frozenset({"lock"})
"""What is drawn with a stuck lock, and armed."""

SIZES = ((80, 24), (120, 40))

FAMILIES = ("Fira Code", "DejaVu Sans Mono", "Liberation Mono", "Noto Sans Mono")
"""Fixed-width fonts with box and block glyphs, best first."""


def font() -> str:
    """A family that is on this machine; the first one of its fixed-width fonts if none of ours."""
    said = subprocess.run(
        ["fc-list", ":spacing=mono", "family"], capture_output=True, text=True, check=False
    ).stdout.splitlines()
    there = sorted({name.strip() for line in said for name in line.split(",")})
    return next((family for family in FAMILIES if family in there), there[0] if there else "")


async def draw(root: Path, name: str, size: tuple[int, int]) -> str:
    """The console after the keys that lead there, as SVG."""
    place, stuck = disk_place(root, "/var/lib/nftban"), name in STUCK
    place = place._replace(recover=recover_command())
    if stuck:
        # Values, not a process: its PID, its times and its file would differ each time.
        place = place._replace(lock=a_stuck_lock)
    console = a_console(place, start_armed=stuck)
    async with console.run_test(size=size) as pilot:
        await loaded(pilot)
        await pilot.press(*SHOTS[name])
        await settled(pilot.app, pilot)  # type: ignore[arg-type]
        return console.export_screenshot(title="spooldeck")


async def settled(console: Console, pilot: object) -> None:
    """Until nothing has changed on screen for a moment."""
    before, still = "", 0

    def same() -> bool:
        nonlocal before, still
        now = console.export_screenshot()
        still = still + 1 if now == before else 0
        before = now
        return still > 30

    await until(pilot, same)  # type: ignore[arg-type]


def png(svg: str, family: str) -> bytes:
    """The same as pixels, in a font that is there."""
    drawn = svg.replace("Fira Code", family)
    return bytes(resvg_py.svg_to_bytes(svg_string=drawn, font_family=family, zoom=1))


def main(target: Path) -> None:
    """Draw all of them."""
    family = font()
    target.mkdir(exist_ok=True)
    with TemporaryDirectory() as folder, in_utc():
        root = Path(folder) / "nftban"
        make_spool(root, some_tasks())
        (root / "queue" / "dlq" / "20261120T093000Z-mail_send-0badf00d.task").write_bytes(b"")
        for name in SHOTS:
            for size in SIZES:
                drawn = asyncio.run(draw(root, name, size))
                # Its names hold a number of chance; without it, what did not change stays the same.
                svg = re.sub(r"terminal-\d+", f"terminal-{name}", drawn)
                path = target / f"{name}-{size[0]}x{size[1]}.svg"
                path.write_text(svg)
                if family:
                    path.with_suffix(".png").write_bytes(png(svg, family))
                print(path)
    print(f"font of the PNGs: {family}" if family else "no fixed-width font here: no PNGs drawn")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[2] / "screenshots")
