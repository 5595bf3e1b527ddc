"""The keys of the log screen and its parts, without an app: following, filter, refusals."""

from __future__ import annotations

import gzip
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from engine.logs.log_filter import DEBUG
from tests.console_places import Clock, a_memory, a_place, some_tasks
from tests.tui.asked_screen import AskedScreen
from tui.log import screen
from tui.log.actions import ROWS
from tui.log.parts import Change, LogParts
from tui.screens.console_context import Arming, ConsoleContext
from tui.screens.key_rows import absent_actions, press
from tui.screens.target import Target
from tui.session.place_session import PlaceSession
from tui.text import keys


class Log:
    """The parts of a log, and who presses its keys."""

    def __init__(self, parts: LogParts, screen: AskedScreen[Change]) -> None:
        self.parts, self.screen = parts, screen

    async def press(self, *pressed: str) -> str:
        """Press keys and let what they began end; returns what was said last."""
        for key in pressed:
            self.screen.show_change(press(ROWS, key, self.parts, self.parts.say))
            await self.screen.answer()
        return self.parts.message.text

    @property
    def selected(self) -> str:
        """The text of the line under the cursor."""
        entry = self.parts.page.selected_entry
        return "" if entry is None else entry.line.text

    @property
    def step(self) -> str:
        """The next step."""
        return "".join(text for text, _ in screen.next_step(self.parts, 80)).strip()


@asynccontextmanager
async def a_log(folder: Path, *levels: str) -> AsyncIterator[Log]:
    """The parts of a log with a line of each of these levels, read to its end."""
    path, clock, screen = folder / "queue.log", Clock(), AskedScreen[Change]()
    lines = [f"[2026-11-20 09:42:{n:02}] [{level}] line {n}\n" for n, level in enumerate(levels)]
    path.write_text("".join(lines))
    session = PlaceSession(a_place(a_memory(some_tasks()), logs=(str(path),)), clock)
    context = ConsoleContext("mx1", Arming(clock), clock)
    parts = LogParts(session, context, screen, "", is_following=True)
    parts.page.resize(80, 10)
    parts.reader.page, parts.was_read = 10, True
    try:
        await parts.reader.call(parts.reader.book.refresh)
        parts.start_job(parts.reader.read_tail)
        await screen.answer()
        yield Log(parts, screen)
    finally:
        await parts.reader.close()


async def test_up_pauses_and_f_follows(tmp_path: Path) -> None:
    """Following, down does nothing; up pauses; the end follows again."""
    async with a_log(tmp_path, "INFO", "INFO", "ERROR") as log:
        assert log.selected == "line 2"
        assert "goes to the last error" in log.step
        await log.press("j")
        assert log.parts.is_following
        await log.press("k")
        assert (log.parts.is_following, log.selected) == (False, "line 1")
        assert "follows new lines" in log.step
        await log.press("G")
        assert (log.parts.is_following, log.selected) == (True, "line 2")
        await log.press("f", "g")
        assert log.selected == "line 0"


async def test_up_goes_on_in_the_rotated_files(tmp_path: Path) -> None:
    """Before the first line of the log are those of its rotated files, to the earliest."""
    for number in (1, 2, 3):
        lines = "".join(f"[2026-11-{20 - number} 09:00:{n:02}] [INFO] old {n}\n" for n in range(60))
        (tmp_path / f"queue.log.{number}.gz").write_bytes(gzip.compress(lines.encode()))
    async with a_log(tmp_path, "INFO") as log:
        assert log.selected == "line 0"
        await log.press("k")
        assert log.selected == "old 59"
        await log.press(*["pageup"] * 9)
        assert len(log.parts.reader.book.files) == 3
        await log.press("g")
        assert log.parts.page.entries[0].line.when == log.parts.page.entries[0].key[0]
        assert (log.selected, len(log.parts.reader.book.files)) == ("old 0", 4)


async def test_the_level_has_two_ends(tmp_path: Path) -> None:
    """Each level excludes the lines below it; the cursor goes to the nearest other line."""
    async with a_log(tmp_path, "DEBUG", "INFO", "WARN", "ERROR", "INFO") as log:
        assert await log.press("-") == "all levels are shown"
        await log.press("k", "k")
        for number, selected in ((4, "line 2"), (2, "line 2"), (1, "line 3")):
            await log.press("+")
            assert (len(log.parts.page.entries), log.selected) == (number, selected)
        assert await log.press("+") == "only errors are shown"
        await log.press("-", "-", "-")
        assert (log.parts.level, len(log.parts.page.entries)) == (DEBUG, 5)
        assert log.selected == "line 3"


async def test_e_goes_from_error_to_error(tmp_path: Path) -> None:
    """First to the last one, then down; without one it says where else to look."""
    async with a_log(tmp_path, "ERROR", "INFO", "ERROR", "INFO") as log:
        await log.press("e")
        assert log.selected == "line 2"
        assert await log.press("e") == "an error: not found below: N searches up"
        await log.press("g", "e")
        assert log.selected == "line 2"
        assert await log.press("n") == "no search yet: / searches"


async def test_without_a_line_its_keys_are_not_offered(tmp_path: Path) -> None:
    """Filter and level stay where they are why there is none; pressed, a key says why not."""
    async with a_log(tmp_path, "INFO") as log:
        assert absent_actions(ROWS, log.parts) == {"search_again(1)", "search_again(-1)"}
        assert await log.press("t") == "no task id in this line"
        assert await log.press("enter") == "no task id in this line"
        await log.press("+", "+")
        absent = absent_actions(ROWS, log.parts)
        assert "open" in absent
        assert not absent & {"only", "level(1)", "level(-1)", "follow"}
        assert "shows lines of lower levels" in log.step
        assert await log.press("enter") == "no line here"
        await log.press("c", "7", "y")
        assert {target.pane for target in log.screen.targets} == {keys.CLUSTERS, keys.LOG}
        assert Target(keys.LOG) in log.screen.targets
        assert log.screen.requests == ["yank"]
