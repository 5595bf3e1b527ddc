"""Scan places once, as the console does, for commands that print a screen."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from typing import TypeVar

from engine.index.filter_language import ACCOUNT_FIELD, Filter
from engine.live.folder_watch import SharedParts
from engine.live.index_sync import Found, scan_all
from engine.places.place import Place
from engine.store import ReadableStore, Unavailable
from tui.cli.setup.filter_option import parse_filter_option
from tui.cli.setup.output import Progress
from tui.session.place_session import PlaceSession, follow_places
from tui.text.table import short_names

T = TypeVar("T")


def scan_once(
    places: Sequence[Place],
    ask: Callable[[Sequence[PlaceSession]], Awaitable[T]],
    read_store: Callable[[ReadableStore], Iterator[Found]] = scan_all,
) -> T:
    """Scan these places once, reading of each what `read_store` does, and return the answer of
    `ask`.

    A place that cannot be reached is passed to `ask` too; its inspector has the reason.
    """

    async def read_and_ask(sessions: Sequence[PlaceSession]) -> T:
        await asyncio.gather(*map(_wait_for_scan, sessions))
        return await ask(sessions)

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
        answer = asyncio.create_task(read_and_ask(sessions))
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


def scan_place(
    place: Place,
    ask: Callable[[PlaceSession], Awaitable[T]],
    read_store: Callable[[ReadableStore], Iterator[Found]] = scan_all,
) -> T:
    """Scan one place once, as `scan_once`."""

    async def ask_one(sessions: Sequence[PlaceSession]) -> T:
        return await ask(*sessions)

    return scan_once([place], ask_one, read_store)


async def _wait_for_scan(session: PlaceSession) -> None:
    change = session.inspector.latest
    with Progress("tasks read") as progress:
        while not (change.is_complete or change.unavailable):
            progress.show(sum(change.counts.values()))
            try:
                change = await session.inspector.wait_for_change(change.generation)
            except Unavailable:
                return
    while not session.has_readings or session.readings.listed_at != session.place.listed_at():
        await session.wait_for_readings()  # warnings may count what the listing has shown
    with suppress(Unavailable):  # the readings have the reason
        await session.count_lost_mails()


def scan_for(filter: str, by: str = "") -> Callable[[ReadableStore], Iterator[Found]]:
    """What to read for a typed filter and a grouping: accounts too, if they may need them."""

    def scan(store: ReadableStore) -> Iterator[Found]:
        if by == ACCOUNT_FIELD or ACCOUNT_FIELD in filter or "@" in filter:  # `@name` may have it
            store.read_accounts_first()
        return store.scan()

    return scan


def parse_place_filter(text: str, session: PlaceSession) -> Filter:
    """Parse `--filter` for a place, in the filter language of the console."""
    known = session.inspector
    return parse_filter_option(text, known.states, session.clock(), known.words)
