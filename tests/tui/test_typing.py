"""Keys that come in one burst: each acts on what the ones before it have led to."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from textual import events
from textual.pilot import Pilot

from tests.tui.ptys import console as terminal_with
from tests.tui.spools import (
    Clock,
    a_console,
    a_memory,
    a_place,
    disk_place,
    loaded,
    make_spool,
    some_tasks,
    until,
)
from tui import keys
from tui.app import Console
from tui.plain import text_of
from tui.screens.face import Face
from tui.screens.log import LogScreen
from tui.widgets.filter_line import FilterLine
from tui.widgets.task_list import TaskList

READY = "scope if you act now: row"

NAMED = {"\r": "enter", "\x1b": "escape", "\t": "tab", " ": "space", "\x03": "ctrl+c"}

SIGNS = {"/": "slash", ":": "colon", "?": "question_mark", ">": "greater_than_sign"}
SIGNS |= {"=": "equals_sign", "&": "ampersand", "@": "at", "*": "asterisk"}


def key_of(character: str) -> events.Key:
    """The key as the terminal's parser would make it."""
    name = NAMED.get(character) or SIGNS.get(character) or character
    return events.Key(name, None if character in NAMED and character != " " else character)


@asynccontextmanager
async def opened(*, armed: bool = False, first: str = keys.LIST) -> AsyncIterator[Pilot[None]]:
    """A console on a queue in memory."""
    place = a_place(a_memory(some_tasks()))
    console = a_console(place, clock=Clock(), start_armed=armed, first=first)
    async with console.run_test(size=(80, 24)) as pilot:
        if first == keys.LIST:
            await loaded(pilot)
        else:
            await until(pilot, lambda: isinstance(console.screen, Face))
            await pilot.pause()
        yield pilot


def seen(pilot: Pilot[None]) -> tuple[str, ...]:
    """What is on screen, what is typed into, and on which row the cursor is."""
    app = pilot.app
    assert isinstance(app, Console)
    screens = [type(screen).__name__ for screen in app.screen_stack]
    lists = [widget.cursor.id for screen in app.screen_stack for widget in screen.query(TaskList)]
    typed = [getattr(widget, "value", "") for widget in app.screen.query("Input")]
    faces = [s for s in app.screen_stack if isinstance(s, Face)]
    below = text_of(faces[-1]).partition("\n")[2]  # the first line has the traffic of the wire
    return (*screens, *lists, *typed, below, str(app.focused))


async def at_rest(pilot: Pilot[None]) -> tuple[str, ...]:
    """What is on screen once nothing changes there any more."""
    app = pilot.app
    assert isinstance(app, Console)
    await until(pilot, lambda: not app._typed.waiting)
    before, now = (), seen(pilot)
    while before != now:
        for _ in range(3):
            await pilot.pause()
        before, now = now, seen(pilot)
    return now


BURSTS = (
    *("/gmail\r", "/Xc\rj", "/tries>=4\r", "/xyz\x1bj", "/kind:mail_send\r4j", "/a\x1b/b\rjj"),
    *(":filter tries>=4\r", ":dlq\x1bj", ":locks\rj\x1bj", "4oaj", "oijj", "oa4oak", "ya", "yiX"),
    *("?cluster\x1bj", "?X\x1b j", "jjj\r\x1bj", "4cj\x1bj", "e/x\x1bj", "Xj\x1bj", "4Rjj\x1bj"),
    *("vjjv:unmark\x1b", "/\x03j", "j" * 40, "G/feeds\rk", "6j\x1b", "=j"),
)


@pytest.mark.parametrize("burst", BURSTS)
async def test_a_burst_is_what_its_keys_are(burst: str) -> None:
    """Keys that come at once lead to the same screen, row and words as keys typed one by one."""
    async with opened() as pilot:
        for character in burst:
            pilot.app.post_message(key_of(character))
            slowly = await at_rest(pilot)
    async with opened() as pilot:
        for character in burst:
            pilot.app.post_message(key_of(character))
        assert await at_rest(pilot) == slowly
