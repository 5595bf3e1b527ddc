"""One look at places as the console sees them, for the commands that print a screen once."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeVar

from engine.index.filter_language import BadFilter, Filter, parse
from engine.store import Unavailable
from tui.cli.setup.places import places_of
from tui.cli.setup.setup import EX_USAGE, Setup, fail
from tui.format.glyphs import chosen
from tui.format.present import Line
from tui.session.place import Place
from tui.session.place_session import PlaceSession

T = TypeVar("T")


def named(setup: Setup, names: Sequence[str]) -> list[Place]:
    """The places of these names; without any, those that the console would open.

    Raises:
        Fail: there is no such folder, or nothing to open.
    """
    return places_of(setup, names)


def glance(places: Sequence[Place], ask: Callable[[Sequence[PlaceSession]], Awaitable[T]]) -> T:
    """What is to be said of these places once each was looked at as a whole.

    One that cannot be reached is handed to `ask` as it is; its inspector says why.
    """

    async def look() -> T:
        lives = [PlaceSession(place, time.time, number) for number, place in enumerate(places, 1)]
        following = [asyncio.create_task(live.follow()) for live in lives]
        answer = asyncio.create_task(_answer(lives, ask))
        try:
            # Nobody stops following while we look, but for a bug: then there is no answer.
            await asyncio.wait({answer, *following}, return_when=asyncio.FIRST_COMPLETED)
            for one in following:
                if one.done():
                    one.result()
            return await answer
        finally:
            answer.cancel()
            for one in following:
                one.cancel()
            await asyncio.gather(answer, *following, return_exceptions=True)
            await asyncio.gather(*(live.close(keep_worker=False) for live in lives))

    return asyncio.run(look())


async def _answer(
    lives: Sequence[PlaceSession], ask: Callable[[Sequence[PlaceSession]], Awaitable[T]]
) -> T:
    await asyncio.gather(*map(_seen, lives))
    return await ask(lives)


async def _seen(live: PlaceSession) -> None:
    change = live.inspector.latest
    while not (change.complete or change.unavailable):
        try:
            change = await live.inspector.changed(change.generation)
        except Unavailable:
            return
    if not live.looked:
        await live.next_look()


def wanted(text: str, live: PlaceSession) -> Filter:
    """What `--filter` means at a place, in the language of the console.

    Raises:
        Fail: it is no filter; the message says where, and what was expected.
    """
    try:
        return parse(text, live.inspector.states, live.clock(), live.inspector.words)
    except BadFilter as error:
        fail(EX_USAGE, f"--filter: {error}")


def holds(text: str, words: str) -> bool:
    """Whether a row of a twin that is no task holds all these words, in any case."""
    return all(word in text.casefold() for word in words.casefold().split())


def print_lines(lines: Iterable[Line]) -> None:
    """Lines of a screen as plain text, with the signs that the locale has."""
    signs = chosen(os.environ)
    for line in lines:
        print("".join(text for text, _ in line).rstrip().translate(signs))
