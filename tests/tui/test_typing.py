"""Keys that come in one burst: each acts on what the ones before it have led to."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from textual import events
from textual.pilot import Pilot

from engine.index import Window
from tests.examples import deep_but
from tests.tui.ptys import console as terminal_with
from tests.tui.spools import (
    PATIENCE,
    Clock,
    a_console,
    a_memory,
    a_place,
    disk_place,
    is_done,
    is_known,
    loaded,
    make_spool,
    queue_of,
    show_all,
    some_tasks,
    until,
)
from tui import keys, typed
from tui.app import Console
from tui.plain import text_of
from tui.screens.face import Face
from tui.screens.problems import ProblemsScreen
from tui.widgets.filter_line import FilterLine
from tui.widgets.task_list import TaskList

NAMED = {"\r": "enter", "\x1b": "escape", "\t": "tab", " ": "space", "\x03": "ctrl+c"}

SIGNS = {"/": "slash", ":": "colon", "?": "question_mark", ">": "greater_than_sign"}
SIGNS |= {"=": "equals_sign", "&": "ampersand", "@": "at", "*": "asterisk"}


def key_of(character: str) -> events.Key:
    """The key as the terminal's parser would make it."""
    name = NAMED.get(character) or SIGNS.get(character) or character
    return events.Key(name, None if character in NAMED and character != " " else character)


@pytest.fixture(autouse=True)
def no_key_gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """However busy the machine is, a key waits for what was begun before it."""
    monkeypatch.setattr(typed, "PATIENCE", PATIENCE)
    monkeypatch.setattr(typed, "LOADING", PATIENCE)
    monkeypatch.setattr(typed, "LEADS", dict.fromkeys(typed.LEADS, PATIENCE))


@asynccontextmanager
async def opened(*, armed: bool = False) -> AsyncIterator[Pilot[None]]:
    """A console on a queue in memory."""
    place = a_place(a_memory(some_tasks()))
    console = a_console(place, clock=Clock(), start_armed=armed)
    async with console.run_test(size=(80, 24)) as pilot:
        await loaded(pilot)
        await until(pilot, lambda: all(map(is_known, console.lives)))
        yield pilot


def seen(pilot: Pilot[None]) -> tuple[str, ...]:
    """What is on screen, what is typed into, and on which row the cursor is."""
    app = pilot.app
    assert isinstance(app, Console)
    show_all(app)
    for screen in app.screen_stack:
        for rows in screen.query(TaskList):
            rows.paint()  # the title says which row it is when it is next painted
    screens = [type(screen).__name__ for screen in app.screen_stack]
    lists = [widget.cursor.id for screen in app.screen_stack for widget in screen.query(TaskList)]
    words = [getattr(widget, "value", "") for widget in app.screen.query("Input")]
    faces = [s for s in app.screen_stack if isinstance(s, Face)]
    below = text_of(faces[-1]).partition("\n")[2]  # the first line has the traffic of the wire
    return (*screens, *lists, *words, below, str(app.focused))


async def at_rest(pilot: Pilot[None]) -> tuple[str, ...]:
    """What is on screen once nothing changes there any more."""
    app = pilot.app
    assert isinstance(app, Console)
    before: tuple[str, ...] = ()
    now = seen(pilot)
    while before != now:
        await pilot.pause()
        await until(pilot, lambda: is_done(app), lambda: text_of(app.screen))
        await pilot.pause()
        before, now = now, seen(pilot)
    return now


BURSTS = (
    *("/Xc\rj", ":locks\rj\x1bj", "4oaj", "yiX", "4Rj\x1bj", "G/feeds\rk"),
    *("/xyz\x1bj", "/kind:mail_send\r4j", ":filter tries>=4\r", ":dlq\x1bj", "oijj"),
    *("?X\x1b j", "jj\r\x1bj", "4cj\x1bj", "e/x\x1bj", "vjjv:unmark\r", "/\x03j", "=j"),
)
"""Through filters, questions, menus and plans; each run has the first six."""


@pytest.mark.parametrize("burst", deep_but(BURSTS[:6], BURSTS))
async def test_a_burst_is_what_its_keys_are(burst: str) -> None:
    """Keys that come in one read lead to the same screen, row and words as keys one by one."""
    async with opened() as pilot:
        for character in burst:
            pilot.app.post_message(key_of(character))
            slowly = await at_rest(pilot)
    async with opened() as pilot:
        for character in burst:
            pilot.app.post_message(key_of(character))
        assert await at_rest(pilot) == slowly


async def test_keys_wait_for_the_row_that_the_cursor_went_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where it was not fetched yet, a filter behind it begins at the task, not at a line."""
    async with opened() as pilot:
        assert isinstance(pilot.app, Console)
        rows = queue_of(pilot.app).list
        window, come = rows._rows.window, asyncio.Event()

        async def late(*asked: object) -> Window:
            await come.wait()
            return await window(*asked)  # type: ignore[arg-type]

        monkeypatch.setattr(rows._rows, "window", late)
        for character in "G/feeds\rk":
            pilot.app.post_message(key_of(character))
        await until(pilot, lambda: rows.cursor.at == rows.total - 1)
        held = rows.loaded
        come.set()
        await at_rest(pilot)

        assert not held
        assert (rows.cursor.at, rows.matching) == (0, 13)


async def test_keys_behind_a_plan_are_the_plans() -> None:
    """Keys typed right behind a verb act on its plan: the list does not get them."""
    async with opened(armed=True) as pilot:
        for character in "4R?\x1b":
            pilot.app.post_message(key_of(character))
        assert (await at_rest(pilot))[:3] == ("Screen", "QueueScreen", "PlanScreen")


async def test_enter_right_behind_the_tab_opens_its_problems(tmp_path: Path) -> None:
    """Enter waits until the problems are there that the key before it has asked for."""
    make_spool(tmp_path, some_tasks())
    broken = tmp_path / "queue" / "dlq" / "broken.task"
    await asyncio.to_thread(broken.write_bytes, b"")
    console = a_console(disk_place(tmp_path), clock=Clock())
    async with console.run_test(size=(80, 24)) as pilot:
        await loaded(pilot)
        slow = threading.Event()
        asking = asyncio.ensure_future(queue_of(console).inspector._windows._lane.run(slow.wait))
        asyncio.get_running_loop().call_later(0.2, slow.set)
        for character in "6\r":
            console.post_message(key_of(character))
        assert await asking
        await at_rest(pilot)

        assert isinstance(console.screen, ProblemsScreen)


async def test_a_paste_comes_in_its_turn_and_is_no_key() -> None:
    """What is pasted right behind `/` is the filter; on the list a paste does nothing."""
    async with opened() as pilot:
        before = await at_rest(pilot)
        pilot.app.post_message(events.Paste("Xq4"))
        assert await at_rest(pilot) == before
        pilot.app.post_message(key_of("/"))
        pilot.app.post_message(events.Paste("Xq4"))
        pilot.app.post_message(key_of("5"))
        await at_rest(pilot)
        assert pilot.app.screen.query_one(FilterLine).words == "Xq45"


FROM_OVERVIEW = ("7/feeds\rnn", "4oaj", "7&feeds\r", "7@09:41\rj", "2jj4k")


@pytest.mark.parametrize("burst", deep_but(FROM_OVERVIEW[:2], FROM_OVERVIEW))
async def test_a_burst_that_begins_on_the_overview(burst: str, tmp_path: Path) -> None:
    """Through boards, questions and menus each key finds the screen that the last one opened."""
    make_spool(tmp_path, some_tasks())
    slowly, at_once = [await from_overview(tmp_path, burst, slow) for slow in (True, False)]
    assert slowly == at_once


async def from_overview(root: Path, burst: str, slow: bool) -> tuple[str, ...]:
    """What these keys lead to."""
    console = a_console(disk_place(root), clock=Clock(), first=keys.OVERVIEW)
    async with console.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: all(map(is_known, console.lives)))
        for character in burst:
            console.post_message(key_of(character))
            if slow:
                await at_rest(pilot)
        return await at_rest(pilot)


PTY = {
    "/gmail\r": ("filter: gmail", "0 of 40"),
    ":filter tries>=4\r": ("filter: tries>=4", "0 of 40"),
    "4oajj": ("[4 dlq 12]", "scope if you act now: row 20261119T094408Z"),
    "?cluster": ("search: cluster",),
    "yi": ("id: 38 characters sent",),
    "/\x1b[200~Xq4\x1b[201~5\r": ("filter: Xq45",),
}
"""What is typed, and what is on screen then."""


@pytest.fixture(scope="module")
def spool(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A queue on an ordinary day."""
    root = tmp_path_factory.mktemp("typed")
    make_spool(root, some_tasks())
    return str(root)


@pytest.mark.parametrize("burst", deep_but([*PTY][:1], PTY))
def test_a_burst_on_a_terminal(spool: str, burst: str) -> None:
    """What arrives in one read of the terminal does what it does when it is typed slowly."""
    with terminal_with("--open", "queue", spool) as terminal:
        terminal.opens()
        terminal.send("g")  # the cursor stays on the task that was the first to be seen
        terminal.shows(f"row {min(path.stem for path in Path(spool, 'queue/pending').iterdir())}")
        terminal.send(burst)
        terminal.shows(*PTY[burst])
        terminal.send("\x1b")
        terminal.process.terminate()

        assert terminal.end() == 143
        assert terminal.restored
