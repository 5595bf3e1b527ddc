"""The keys of the log screen and its parts, without an app: following, filter, refusals."""

from __future__ import annotations

import gzip
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from engine.logs.log_file import FileEntry
from engine.logs.log_filter import DEBUG
from engine.logs.log_line import LogLine
from tests.console_places import Clock, a_memory, a_place, some_tasks
from tests.tui.asked_screen import AskedScreen
from tui.log import screen
from tui.log.actions import ROWS
from tui.log.log_lines import LogStyle
from tui.log.page import LogPage
from tui.log.parts import Change, LogParts
from tui.screens.console_context import Arming, ConsoleContext
from tui.screens.key_rows import absent_actions, press
from tui.screens.target import Target
from tui.session.place_session import PlaceSession
from tui.text import keys
from tui.text.lines import BLANK_LINE


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


def entries(first: int, last: int) -> list[FileEntry]:
    """Lines with these numbers, one a second."""
    return [
        FileEntry((float(n), 0, 100 * n), LogLine(float(n), "INFO", f"line {n}", "q"), 1, n)
        for n in range(first, last + 1)
    ]


def a_page(height: int = 5, number: int = 20) -> LogPage:
    """A page at the end of so many lines."""
    page = LogPage()
    page.resize(40, height)
    page.show(entries(1, number), number - 1, LogStyle(), height - 1)
    return page


def shown(page: LogPage) -> list[str]:
    """The last words on the lines of the page, the cursor's with a sign."""
    texts = ["".join(text for text, _ in page.line(y)).rstrip() for y in range(page.height)]
    return [text[:1].strip() + text.rpartition(" ")[2] for text in texts]


def test_the_cursor_scrolls_beyond_an_edge() -> None:
    """At an edge the page moves by a third; pages and halves move it, up to the last line."""
    page = a_page()
    assert shown(page) == ["16", "17", "18", "19", "▶20"]
    for _ in range(4):
        page.move("up")
    assert shown(page) == ["▶16", "17", "18", "19", "20"]
    page.move("up")
    assert shown(page)[0] == "▶15"
    page.move("page_up")
    assert page.selected_entry is not None
    assert page.selected_entry.line.text == "line 10"
    page.move("half_down")
    assert page.selected_entry.line.text == "line 12"
    for _ in range(5):
        page.move("page_down")
    assert shown(page) == ["16", "17", "18", "19", "▶20"]


def test_lines_stay_in_place_while_others_come() -> None:
    """Lines before and behind those on the page move none of them; a higher page is filled."""
    page = a_page()
    for _ in range(3):
        page.move("up")
    before = shown(page)
    page.show(entries(-10, 40), 27, LogStyle())
    assert shown(page) == before
    assert page.line_of_cursor == 1
    page.resize(40, 8)
    assert len(shown(page)) == 8
    assert shown(page)[page.line_of_cursor] == "▶17"


def test_without_entries_there_is_the_notice() -> None:
    """And no line is under the cursor."""
    page = a_page()
    page.show([], 0, LogStyle(), notice=[(("no log", ""),)])
    assert page.selected_entry is None
    assert page.line(0) == (("no log", ""),)
    assert page.line(1) == BLANK_LINE
    page.move("down")
    assert page.cursor == 0
