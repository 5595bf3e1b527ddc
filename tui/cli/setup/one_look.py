"""Scan places once, as the console does, for commands that print a screen."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TypeVar

from engine.formats.base.format import Setup
from engine.index.filter_language import Filter
from engine.live.folder_watch import SharedParts
from engine.live.index_sync import Found, scan_all
from engine.places.place import Place
from engine.store import ReadableStore, Unavailable
from engine.text.safe import safe_line
from tui.cli.setup.filter_option import parse_filter_option
from tui.cli.setup.output import Progress, print_controls, wants_color
from tui.cli.setup.places import open_places
from tui.session.place_session import PlaceSession, follow_places
from tui.text.glyphs import glyphs_of_locale
from tui.text.lines import Line, Run
from tui.text.table import short_names

T = TypeVar("T")


def chosen_places(setup: Setup, names: Sequence[str]) -> list[Place]:
    """The named places; without names, those that the console would open.

    Raises:
        CommandError: no such folder, or nothing to open.
    """
    return open_places(setup, names)


def scan_once(
    places: Sequence[Place],
    ask: Callable[[Sequence[PlaceSession]], Awaitable[T]],
    read_store: Callable[[ReadableStore], Iterator[Found]] = scan_all,
) -> T:
    """Scan these places once, reading of each what `read_store` does, and return the answer of
    `ask`.

    A place that cannot be reached is passed to `ask` too; its inspector has the reason.
    """

    async def scan_places() -> T:
        names = short_names([place.name for place in places])
        shared = SharedParts(len(places))
        sessions = [
            PlaceSession(place, time.time, number, name=name, shared=shared, read_store=read_store)
            for number, (place, name) in enumerate(zip(places, names, strict=True), 1)
        ]
        for session in sessions:
            session.free_grace = 0.0  # the command does not wait: the log shows how long none ran
        following = asyncio.create_task(follow_places(sessions))
        answer = asyncio.create_task(_answer(sessions, ask))
        try:
            # A follower ends early only by a bug; then its exception is raised.
            await asyncio.wait({answer, following}, return_when=asyncio.FIRST_COMPLETED)
            if following.done():
                following.result()
            return await answer
        finally:
            answer.cancel()
            following.cancel()
            await asyncio.gather(answer, following, return_exceptions=True)
            await asyncio.gather(*(session.close(keep_worker=False) for session in sessions))

    return asyncio.run(scan_places())


async def _answer(
    lives: Sequence[PlaceSession], ask: Callable[[Sequence[PlaceSession]], Awaitable[T]]
) -> T:
    await asyncio.gather(*map(_wait_for_scan, lives))
    return await ask(lives)


async def _wait_for_scan(session: PlaceSession) -> None:
    change = session.inspector.latest
    with Progress("tasks read") as progress:
        while not (change.is_complete or change.unavailable):
            progress.show(sum(change.counts.values()))
            try:
                change = await session.inspector.wait_for_change(change.generation)
            except Unavailable:
                return
    if not session.has_readings:
        await session.wait_for_readings()
    with suppress(Unavailable):  # the readings have the reason
        await session.count_lost_mails()


def parse_place_filter(text: str, session: PlaceSession) -> Filter:
    """Parse `--filter` for a place, in the filter language of the console.

    Raises:
        CommandError: it is no valid filter; the message has the position and what was expected.
    """
    known = session.inspector
    return parse_filter_option(text, known.states, session.clock(), known.words)


def contains_words(text: str, words: str) -> bool:
    """True if a row contains all these words, ignoring case."""
    return all(word in text.casefold() for word in words.casefold().split())


COLORS = {
    **{"muted": "2", "line": "2", "ghost": "2", "strong": "1", "title": "1", "key": "36"},
    **{"accent": "36", "ok": "32", "warn": "1;33", "error": "1;31", "unknown": "35"},
    **{"chip-ok": "7;32", "chip-warn": "7;33", "chip-error": "7;31", "chip-accent": "7;36"},
    **{"chip": "7", "tab": "7", "mark": "1;36"},
}
"""SGR parameters (ECMA-48) of styles: the 16 colours, as in the theme `terminal`."""


def print_lines(lines: Iterable[Line]) -> None:
    """Print lines of a screen with the glyphs that the locale has; in colour on a terminal."""
    glyphs, is_colored = glyphs_of_locale(os.environ), wants_color(os.environ)
    for line in lines:
        if not is_colored:
            print("".join(text for text, _ in line).rstrip().translate(glyphs))
            continue
        runs = [(text.translate(glyphs), COLORS.get(style)) for text, style in _without_end(line)]
        safe_runs = ((safe_line(text), sgr) for text, sgr in runs)
        parts = (f"\x1b[{sgr}m{text}\x1b[m" if sgr else text for text, sgr in safe_runs)
        print_controls(f"{''.join(parts)}\n")


def _without_end(line: Line) -> list[Run]:
    """The runs of a line without the blanks at its end."""
    runs = list(line)
    while runs and not runs[-1][0].rstrip():
        runs.pop()
    return [*runs[:-1], *((text.rstrip(), style) for text, style in runs[-1:])]
