"""The log on screen: what is in the files, whatever happens to them while they are looked at."""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from textual.pilot import Pilot

from engine.logfile import Entry
from engine.logtail import LogLine
from engine.logwords import DEBUG, WARN
from tests import command
from tests.tui.spools import (
    NOW,
    a_console,
    a_memory,
    a_place,
    a_task,
    make_spool,
    some_tasks,
    until,
)
from tui import keys
from tui.app import Console
from tui.present import Line
from tui.screens import log as log_module
from tui.screens.ask import AskScreen
from tui.screens.face import Target
from tui.screens.log import LogScreen
from tui.screens.task import TaskScreen
from tui.views import log as view
from tui.views.log import Stamps, Standing, Style
from tui.widgets.lines import Lines

TASK = a_task(13)


def line(second: float, text: str, level: str = "INFO") -> str:
    """A line of the contract, so many seconds after the console's time."""
    stamp = time.strftime("[%Y-%m-%d %H:%M:%S]", time.gmtime(NOW + second))
    return f"{stamp} [{level}] {text}\n"


def some_lines(amount: int = 300, begin: int = -1000) -> str:
    """An ordinary log: a line a second, some of them grave."""
    levels = ("INFO", "INFO", "SUCCESS", "DEBUG", "WARN", "ERROR")
    return "".join(line(begin + n, f"line {n}.", levels[n % 6]) for n in range(amount))


class Deck:
    """A console that shows the logs of a place."""

    def __init__(self, console: Console, pilot: Pilot[None], paths: list[Path]) -> None:
        self.console, self.pilot, self.paths = console, pilot, paths

    @property
    def screen(self) -> LogScreen:
        """The log, on top or below."""
        return next(s for s in self.console.screen_stack[::-1] if isinstance(s, LogScreen))

    async def press(self, *pressed: str) -> None:
        """Press keys, and let each come to rest."""
        for key in pressed:
            await self.pilot.press(key)
            await self.rest()

    async def rest(self) -> None:
        """Let what was begun come to its end."""
        await self.pilot.pause()
        await until(self.pilot, lambda: not self.screen._busy)
        await self.pilot.pause()

    async def until(self, true: Callable[[], object]) -> None:
        """Wait for something."""
        await until(self.pilot, true)

    async def ask(self, key: str, words: str) -> None:
        """Open a question and answer it."""
        await self.pilot.press(key)
        await self.until(lambda: isinstance(self.console.screen, AskScreen))
        await self.pilot.press(*words, "enter")
        await self.until(lambda: self.console.screen is self.screen)
        await self.rest()

    @property
    def shown(self) -> list[str]:
        """The lines on screen that are not blank."""
        pane = self.screen._lines
        texts = ["".join(text for text, _ in pane._line(y)) for y in range(pane.size.height)]
        return [text.rstrip() for text in texts if text.strip()]

    @property
    def here(self) -> str:
        """What the line under the cursor says."""
        here = self.screen._lines.here
        return here.line.text if here else ""

    def said(self, id: str) -> str:
        """What another part of the screen shows."""
        return "\n".join(plain(line) for line in self.screen.query_one(f"#{id}", Lines).lines)

    def add(self, text: str, log: int = 0) -> None:
        """Append to a log, as another process does."""
        with self.paths[log].open("a") as file:
            file.write(text)


def plain(line: Line) -> str:
    """The text of a line."""
    return "".join(text for text, _ in line).rstrip()


@asynccontextmanager
async def a_log(
    folder: Path, *texts: str | bytes | None, size: tuple[int, int] = (80, 24), find: str = ""
) -> AsyncIterator[Deck]:
    """A console on a queue whose logs hold these texts, the log on top; None is no log."""
    paths = [folder / name for name in ("queue.log", "mail.log", "more.log")[: len(texts)]]
    for path, text in zip(paths, texts, strict=True):
        if text is not None:
            path.write_bytes(text.encode() if isinstance(text, str) else text)
    place = a_place(a_memory(some_tasks()), logs=tuple(map(str, paths)))
    console = a_console(place)
    async with console.run_test(size=size) as pilot:
        await until(pilot, lambda: console.lives[0].inspector.latest.complete)
        console.goto(Target(keys.LOG, place=1, id=find))
        await until(pilot, lambda: isinstance(console.screen, LogScreen))
        deck = Deck(console, pilot, paths)
        screen = deck.screen

        def read() -> bool:
            counted = screen._count.done or screen._book.size > log_module.COUNTED
            return screen.looked and counted

        await until(pilot, read)
        await deck.rest()
        yield deck


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look at the logs as often as can be."""
    monkeypatch.setattr(log_module, "RESTING", 0.03)
    monkeypatch.setattr(log_module, "FLOWING", 0.01)


# Following


async def test_the_end_of_all_logs_by_time(tmp_path: Path) -> None:
    """The log opens at its end, all files merged by time, each line with its log's name."""
    async with a_log(tmp_path, line(1, "a") + line(3, "c"), line(2, "b", "WARN")) as deck:
        assert deck.shown == [
            " 09:42:09 INFO    queue  a",
            " 09:42:10 WARN    mail   b",
            "▶09:42:11 INFO    queue  c",
        ]
        assert "2 files merged by time" in deck.said("top-line")
        assert deck.said("status").startswith(" FOLLOW  show: all")
        assert "3 lines  wrap off" in deck.said("status")


async def test_what_comes_is_shown(tmp_path: Path) -> None:
    """New lines appear below; one that is torn is shown so, and whole when its end comes."""
    async with a_log(tmp_path, some_lines()) as deck:
        deck.add(line(1, "new one") + "[2026-11-20 09:")
        await deck.until(lambda: "its end has not come" in deck.shown[-1])
        torn = deck.shown

        deck.add("42:10] [WARN] torn no more\n")
        await deck.until(lambda: "torn no more" in deck.shown[-1])

        assert torn[-2].endswith("new one")
        assert [text for text in deck.shown if "new one" in text or "torn" in text] == [
            " 09:42:09 INFO    new one",
            "▶09:42:10 WARN    torn no more",
        ]


async def test_scrolling_up_pauses_and_counts(tmp_path: Path) -> None:
    """Up pauses: the lines stay where they are, new ones are counted, none is lost; End or f
    follows again.
    """
    async with a_log(tmp_path, some_lines()) as deck:
        await deck.press("k", "k")
        before = deck.shown

        deck.add("".join(line(n, f"new {n}") for n in range(50)))
        await deck.until(lambda: "PAUSED  50 new" in deck.said("status"))
        paused = deck.shown
        await deck.press("f")

        assert paused == before
        assert deck.here == "new 49"
        assert "FOLLOW" in deck.said("status")


async def test_down_reaches_what_has_come_meanwhile(tmp_path: Path) -> None:
    """Without following, one can move on into the new lines, each of them once."""
    async with a_log(tmp_path, some_lines(30)) as deck:
        await deck.press("k", "j")
        deck.add("".join(line(n, f"new {n}") for n in range(5)))
        await deck.until(lambda: "5 new" in deck.said("status"))

        seen = []
        for _ in range(7):
            await deck.press("j")
            seen.append(deck.here)

        assert list(dict.fromkeys(seen))[-5:] == [f"new {n}" for n in range(5)]


@pytest.mark.parametrize("emptied", [False, True])
async def test_rotation_while_it_is_followed(tmp_path: Path, emptied: bool) -> None:
    """After a rotation the new file is followed; after copytruncate what is gone is gone."""
    async with a_log(tmp_path, some_lines(20)) as deck:
        (path,) = deck.paths
        if emptied:
            os.truncate(path, 0)
        else:
            path.rename(path.with_suffix(".log.1"))
            path.write_text("")
        deck.add(line(5, "after it"))
        await deck.until(lambda: deck.here == "after it")
        await deck.until(lambda: deck.screen._count.done)
        await deck.press("g")

        assert deck.here == ("after it" if emptied else "line 0.")


async def test_a_log_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    """What is wrong with a log stands below, while the others are shown; when it is there, too, it
    is followed.
    """
    async with a_log(tmp_path, line(1, "a"), line(2, "b")) as deck:
        deck.paths[1].unlink()
        await deck.until(lambda: "! mail.log: it is not there any more" in deck.said("word"))
        before = deck.shown
        deck.paths[1].write_text(line(3, "anew"))

        await deck.until(lambda: "anew" in deck.shown[-1])
        await deck.until(lambda: not deck.said("word").strip())

        assert len(before) == 2


async def test_logs_that_are_not_there_are_not_called_empty(tmp_path: Path) -> None:
    """Where no log can be read, no line says that nothing was logged."""
    async with a_log(tmp_path, None, None) as deck:
        await deck.until(
            lambda: deck.shown == ["   no log can be read: neither queue.log nor mail.log is there"]
        )


async def test_a_log_that_was_never_there_is_no_fault(tmp_path: Path) -> None:
    """It is told by its name, and not counted among those that are merged, until it is there."""
    async with a_log(tmp_path, line(1, "a"), None) as deck:
        await deck.until(lambda: "1 of 2 files" in deck.said("top-line"))
        assert deck.said("word").strip() == "mail.log is not there"

        deck.paths[1].write_text(line(3, "new"))
        await deck.until(lambda: "2 files merged by time" in deck.said("top-line"))
        await deck.until(lambda: not deck.said("word").strip())


async def test_where_lines_are_not_counted_the_size_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of logs that are too long to be gone through nobody says "so far": nothing is counted."""
    monkeypatch.setattr(log_module, "COUNTED", 3 << 20)
    async with a_log(tmp_path, line(1, "x" * (3 << 20))) as deck:
        assert "3 MiB, lines not counted  wrap off" in deck.said("status")
        await deck.ask("&", "x")
        assert "3 MiB, lines not counted  wrap off" in deck.said("status")


async def test_a_place_without_logs(tmp_path: Path) -> None:
    """There is nothing to follow, and it says so."""
    async with a_log(tmp_path) as deck:
        assert deck.shown == ["   this place has no log"]


# Moving


@pytest.mark.parametrize(
    ("pressed", "here"),
    [
        (["k"], "line 298."),
        (["k", "j"], "line 299."),
        (["G"], "line 299."),
        (["g"], "line 0."),
        (["g", "j", "j", "k"], "line 1."),
        (["g", "pagedown"], "line 19."),
        (["pageup"], "line 280."),
        (["g", "pagedown", "pageup"], "line 0."),
        (["g", "end"], "line 299."),
    ],
)
async def test_motions(tmp_path: Path, pressed: list[str], here: str) -> None:
    """Each key moves by what it says, over the whole log, also beyond what was fetched."""
    async with a_log(tmp_path, some_lines()) as deck:
        await deck.press(*pressed)

        assert deck.here == here
        assert sum(text.startswith("▶") for text in deck.shown) == 1


@pytest.mark.deep
async def test_every_line_is_passed_in_both_directions(tmp_path: Path) -> None:
    """Page by page from the end to the beginning and back no line is missed, none comes twice."""
    logs = some_lines(1500, -9000), some_lines(700, -8000)
    async with a_log(tmp_path, *logs, size=(120, 60)) as deck:
        seen: list[tuple[int, int]] = []
        for key in ("pageup", "pagedown"):
            for _ in range(80):
                entries = deck.screen._lines.entries
                assert len({entry.key for entry in entries}) == len(entries)
                assert [entry.key for entry in entries] == sorted(entry.key for entry in entries)
                seen += [entry.key[1:] for entry in entries]
                before = deck.screen._lines.here
                await deck.press(key)
                if deck.screen._lines.here == before:
                    break

        assert len(set(seen)) == 2200
        assert deck.here == "line 699."


async def test_the_view_jumps_at_its_edge(tmp_path: Path) -> None:
    """At the edge the view moves by a third of a page: the steps between paint two lines each."""
    async with a_log(tmp_path, some_lines()) as deck:
        await deck.press("g")
        pane = deck.screen._lines
        tops = []
        for _ in range(28):
            await deck.press("j")
            tops.append(pane._top)

        assert sorted(set(tops)) == [0, 6, 12]


# What is shown


async def test_levels(tmp_path: Path) -> None:
    """`+` shows graver lines only and `-` less grave ones too, with how many that are; the line
    under the cursor stays if it is shown.
    """
    async with a_log(tmp_path, some_lines(300)) as deck:
        await deck.press("k", "k", "k", "k")
        await deck.press("+")
        info = deck.said("status")
        await deck.press("+", "+")
        await deck.until(lambda: "50 of 300 lines" in deck.said("status"))
        errors = deck.shown
        await deck.press("+")
        refused = deck.said("word")
        await deck.press("-", "-", "-")

        assert "show: info+" in info
        assert all("ERROR" in text for text in errors)
        assert refused.strip() == "only errors are shown already"
        assert "show: all" in deck.said("status")
        assert deck.here == "line 299.", "the nearest line that was let through"


async def test_no_line_is_shown_that_the_header_excludes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a new level is looked for, of the lines on screen only those are left that it lets
    through; going back, nothing is counted again.
    """
    async with a_log(tmp_path, some_lines(300)) as deck:
        screen, held = deck.screen, threading.Event()
        counted, searching = screen._count, screen._lane.run

        async def stopped(make: Callable[[], object]) -> object:
            await searching(held.wait)
            return await searching(make)

        monkeypatch.setattr(screen._lane, "run", stopped)
        for _ in range(3):
            screen.action_level_up()
        shown = deck.shown
        status = deck.said("status")
        held.set()
        for _ in range(3):
            screen.action_level_down()
        await deck.rest()

        assert "show: error+" in status
        assert shown and all("ERROR" in text for text in shown)
        assert screen._count is counted
        assert "300 lines" in deck.said("status")


async def test_only_lines_that_match(tmp_path: Path) -> None:
    """`&` shows only lines that match, and says so; Esc shows all again, and then leaves."""
    async with a_log(tmp_path, some_lines(300)) as deck:
        await deck.ask("&", "7. !~line.1")
        await deck.until(lambda: "of 300 lines" in deck.said("status"))
        only, status = deck.shown, deck.said("status")
        await deck.press("escape")
        all_of_them = deck.said("status")
        await deck.pilot.press("escape")

        await deck.until(lambda: not isinstance(deck.console.screen, LogScreen))

        assert "& 7. !~line.1" in status
        assert "19 of 300 lines" in status
        assert [text.rpartition(" ")[2] for text in only][-2:] == ["287.", "297."]
        assert "&" not in all_of_them


async def test_words_that_mean_nothing_are_not_taken(tmp_path: Path) -> None:
    """While a pattern is not whole it is said where, and Enter does nothing; what is pasted is
    made inert.
    """
    async with a_log(tmp_path, some_lines(30)) as deck:
        await deck.pilot.press("&")
        await deck.until(lambda: isinstance(deck.console.screen, AskScreen))
        await deck.pilot.press("~", "(", "enter")
        question = deck.console.screen
        wrong = plain(question.query_one("#ask-word", Lines).lines[0])
        await deck.pilot.press("escape")
        await deck.until(lambda: deck.console.screen is deck.screen)

        assert "invalid pattern" in wrong
        assert "show: all" in deck.said("status")


async def test_nothing_let_through(tmp_path: Path) -> None:
    """Where a filter leaves nothing, it says what shows lines again."""
    async with a_log(tmp_path, some_lines(30)) as deck:
        await deck.ask("&", "nowhere")
        await deck.until(lambda: "0 of 30 lines" in deck.said("status"))

        assert deck.shown == ["   no line is let through; Esc shows all words, - less grave lines"]


async def test_searching(tmp_path: Path) -> None:
    """`/` looks on from here, n further, N back; what is not found is said."""
    async with a_log(tmp_path, some_lines(300)) as deck:
        await deck.press("g")
        await deck.ask("/", "7.")
        first = deck.here
        await deck.press("n")
        second = deck.here
        await deck.press("N", "N")
        back = deck.here
        said = deck.said("word")
        await deck.press("G", "n")

        assert (first, second, back) == ("line 7.", "line 17.", "line 7.")
        assert "not found from here up to the beginning" in said
        assert "not found from here down to the end" in deck.said("word")


async def test_the_next_error(tmp_path: Path) -> None:
    """`e` goes from error to error, also far beyond what is loaded, and brings it on screen."""
    rare = some_lines(5) + "".join(line(n, f"fine {n}") for n in range(3000))
    async with a_log(tmp_path, rare + line(4000, "far", "ERROR") + some_lines(50, 4001)) as deck:
        await deck.press("g", "e")

        assert deck.here == "far"
        assert any(text.startswith("▶") and "far" in text for text in deck.shown)
        assert any("fine 2999" in text for text in deck.shown)


async def test_going_to_a_time(tmp_path: Path) -> None:
    """`@` goes to the first line since then; later than all lines, to the last one."""
    async with a_log(tmp_path, some_lines(1000, -1000)) as deck:
        await deck.ask("@", "-5m")
        there = deck.here
        said = deck.said("word")
        await deck.ask("@", "2030-01-01")

        assert there == "line 700."
        assert "the first line since 2026-11-20 09:37:08" in said
        assert "the last line before" in deck.said("word")
        assert deck.here == "line 999."
        assert "PAUSED" in deck.said("status")


async def test_stamps_and_wrapping(tmp_path: Path) -> None:
    """`i` changes what is shown of times, `w` shows long lines in full."""
    async with a_log(tmp_path, line(1, "word " * 40)) as deck:
        await deck.press("i")
        dated = deck.shown
        await deck.press("i")
        bare = deck.shown
        await deck.press("i", "w")

        assert dated[0].startswith("▶2026-11-20 09:42:09 INFO")
        assert bare[0].startswith("▶INFO")
        assert " ".join(deck.shown).count("word") == 40
        assert "wrap on" in deck.said("status")


@pytest.mark.parametrize("size", [(60, 15), (80, 24), (120, 40), (200, 60)])
async def test_every_size(tmp_path: Path, size: tuple[int, int]) -> None:
    """At each size the end is on screen, and the status and the hints."""
    async with a_log(tmp_path, some_lines(), size=size) as deck:
        assert "line 299." in deck.shown[-1]
        assert "FOLLOW" in deck.said("status")
        assert "Enter task" in deck.said("hints")


# What may stand in it


async def test_a_hostile_log_does_nothing(tmp_path: Path) -> None:
    """ESC, C1, bidi, markup, NULs and a line of a megabyte are shown as text, and nothing acts."""
    nasty = "\x1b]0;owned\x07 \x1b[31m \x9b2J ‮ txt [@click=app.quit]x[/] [/nope]"
    log = line(1, nasty).encode() + b"\0\0\0" + line(2, "y" * 1_000_000).encode() + b"\xff\xfe\n"
    async with a_log(tmp_path, log) as deck:
        await deck.press("w", "g", "j")
        text = "\n".join(deck.shown)
        await deck.press("w")

        assert "[@click=app.quit]x[/] [/nope]" in text
        assert "bytes more" in text
        assert all(char.isprintable() or char == "\n" for char in text)
        assert "995,907 bytes more" in "\n".join(deck.shown)


# Long work


async def test_a_long_search_shows_how_far_it_is_and_can_be_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it searches there is a bar, and Esc stops it where it is."""
    monkeypatch.setattr(log_module, "LONG", 0.0)
    log = line(-9999, "needle") + some_lines(40_000, -9998)
    async with a_log(tmp_path, log) as deck:
        screen, held = deck.screen, threading.Event()
        screen._step_cells = 1
        steps: list[int] = []
        await deck.ask("/", "nowhere")  # down from the end: nothing to go through
        searching = screen._lane.run

        async def slow(make: Callable[[], object]) -> object:
            steps.append(1)
            if len(steps) == 4:
                await searching(held.wait)
            return await searching(make)

        monkeypatch.setattr(screen._lane, "run", slow)
        await deck.pilot.press("N")
        await deck.until(lambda: "KiB" in deck.said("word"))
        bar = deck.said("word")
        await deck.pilot.press("escape")
        held.set()
        await deck.rest()

        assert "[" in bar
        assert "Esc stops" in bar
        assert "stopped" in deck.said("word")
        assert isinstance(deck.console.screen, LogScreen)


# From a line to its task, and back


async def test_from_a_line_to_its_task(tmp_path: Path) -> None:
    """Enter opens the task that the line speaks of; where there is none any more, it says so."""
    log = line(1, "nothing here") + line(2, "Task gone: 20200101T000000Z-feeds_sync-00000000")
    async with a_log(tmp_path, log + line(3, f"MAIL_SEND_RESULT task_id={TASK.id} x")) as deck:
        await deck.press("k", "enter")
        gone = deck.said("word")
        await deck.press("k", "enter")
        none = deck.said("word")
        await deck.press("j", "j", "enter")
        await deck.until(lambda: isinstance(deck.console.screen, TaskScreen))

        assert "20200101T000000Z-feeds_sync-00000000 is not in the queue any more" in gone
        assert "names no task" in none


async def test_from_a_task_to_its_lines(tmp_path: Path) -> None:
    """The log opened for a task shows the lines that hold its id, and Esc leads back."""
    log = some_lines(50) + line(1, f"Processing task: {TASK.id} (x)") + line(2, "other")
    async with a_log(tmp_path, log, find=TASK.id) as deck:
        shown, status = deck.shown, deck.said("status")
        await deck.pilot.press("escape")
        await deck.until(lambda: not isinstance(deck.console.screen, LogScreen))

        assert len(shown) == 1
        assert f"Processing task: …-{TASK.id[-8:]} (x)" in shown[0]
        assert f'& "{TASK.id[:8]}' in status


# How it looks


def an_entry(text: str, when: float | None = None, hidden: int = 0) -> Entry:
    """A line of a log."""
    said = LogLine(when, "", text, "/var/log/queue.log")
    return Entry((when or 0.0, 1, 0), said, 1, len(text), hidden)


def test_a_cut_line_says_how_much_of_it_is_hidden() -> None:
    """What is not held of a line is counted, also where the line does not fit."""
    (short,) = view.entry_lines(an_entry("abc", hidden=1234), Style(), 60)
    (long,) = view.entry_lines(an_entry("x" * 5000, hidden=1234), Style(), 60)

    assert plain(short).endswith("abc ... 1,234 bytes more")
    assert plain(long).endswith("2,138 bytes more")
    assert len("".join(text for text, _ in long)) == 60


def test_a_cut_line_shows_its_error_and_short_ids() -> None:
    """At 80 columns the id is its last 8 characters, and the error of a delivery is not cut off."""
    text = (
        "MAIL_SEND_RESULT task_id=20261120T092929Z-mail_send-261c374b status=failed "
        "transport=sendmail retries=3 last_error=550 5.1.1 user unknown"
    )
    (short,) = view.entry_lines(an_entry(text, 1.0), Style(sources=True), 80)
    whole = view.entry_lines(an_entry(text, 1.0), Style(wrap=True), 80)

    assert "\u2026-261c374b" in plain(short)
    assert plain(short).endswith("last_error=550 5.1.1 user unknown")
    assert "20261120T092929Z-mail_send-261c374b" in "".join(map(plain, whole))


def test_in_full_a_line_has_its_bounds() -> None:
    """A line that is shown in full takes no more than a part of the screen."""
    lines = view.entry_lines(an_entry("x" * 5000), Style(Stamps.NONE, wrap=True), 60)

    assert len(lines) == view.FOLDS + 1
    assert "bytes more" in plain(lines[-1])


def test_quiet_gaps() -> None:
    """Where nothing was logged for minutes, a line says so; not after lines without a time."""
    first, later = an_entry("a", when=NOW), an_entry("b", when=NOW + 684)
    never = an_entry("c")._replace(key=(float("-inf"), 1, 0))

    gap = view.quiet(first, later)
    assert gap is not None
    assert plain(gap) == "   -- 11m quiet --"
    assert view.quiet(first, an_entry("b", when=NOW + 60)) is None
    assert view.quiet(never, later) is None


@pytest.mark.parametrize(
    ("about", "text"),
    [
        (Standing(), " FOLLOW  show: all 0 lines so far  wrap off"),
        (
            Standing(beyond=963 << 20, kept=7, lines=8),
            " FOLLOW  show: all 963 MiB, lines not counted  wrap off",
        ),
        (
            Standing(False, 12, WARN, "421|lock", 118, 9204, True),
            " PAUSED  12 new  show: warn+  & 421|lock 118 of 9,204 lines  wrap off",
        ),
        (
            Standing(True, 0, DEBUG, "x", 118, 9204, False, True, "y"),
            " FOLLOW  show: all  & x  / y 118 of 9,204 so far  wrap on",
        ),
    ],
)
def test_the_status_says_what_is_hidden(about: Standing, text: str) -> None:
    """No line is left out without a word."""
    assert " ".join(plain(view.status(about, 80)).split()) == " ".join(text.split())


@pytest.mark.parametrize(
    ("text", "first"),
    [
        (f"Task completed: {TASK.id}", TASK.id),
        ("MAIL_SEND_RESULT task_id=abc:17 status=failed", "abc:17"),
        (f"x {TASK.id}, and id=other", TASK.id),
        ("a b c", None),
    ],
)
def test_ids_in_a_line(text: str, first: str | None) -> None:
    """What looks like a task's id comes before what is only named like one."""
    found = view.ids_in(text)

    assert (found[0] if found else None) == first


# The same without a screen


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    """A queue on disk with two logs, one of them hostile."""
    root = tmp_path / "data"
    make_spool(root, some_tasks(3, 0, 0))
    (root / "log" / "queue.log").write_text(
        line(0, "old") + line(20, "failed", "ERROR") + "  trace\n" + line(40, "\x1b[31m ‮ x")
    )
    (root / "log" / "mail.log").write_text(line(30, "mail sent", "WARN"))
    return root


def environment() -> dict[str, str]:
    """Nothing of ours but what a command needs."""
    return {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "TZ": "UTC", "HOME": "/nowhere"}


def test_a_queue_without_mail_has_no_complaint(spool: Path) -> None:
    """A missing mail.log is reported only where no log is there at all."""
    (spool / "log" / "mail.log").unlink()
    one = command.run(["log", str(spool)], capture_output=True, env=environment())
    (spool / "log" / "queue.log").unlink()
    none = command.run(["log", str(spool)], capture_output=True, env=environment())

    assert (one.stderr, one.returncode) == (b"", 0)
    assert none.stderr.count(b"No such file") == 2


@pytest.mark.parametrize(
    ("words", "printed"),
    [
        (
            (),
            [
                "2026-11-20 09:42:08 queue: INFO old",
                "2026-11-20 09:42:28 queue: ERROR failed",
                "queue:   trace",
                "2026-11-20 09:42:38 mail: WARN mail sent",
                "2026-11-20 09:42:48 queue: INFO �[31m � x",
            ],
        ),
        (("--lines", "1"), ["2026-11-20 09:42:48 queue: INFO �[31m � x"]),
        (
            ("--level", "warn", "--since", "2026-11-20 09:42:25", "--filter", "sent|trace"),
            ["queue:   trace", "2026-11-20 09:42:38 mail: WARN mail sent"],
        ),
        (("--filter", "nowhere"), []),
    ],
)
def test_printed_once(spool: Path, words: tuple[str, ...], printed: list[str]) -> None:
    """`spooldeck log` prints the last lines of all logs by time, as text that nothing acts on."""
    run = command.run(
        ["log", str(spool), *words], capture_output=True, text=True, env=environment()
    )

    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout.splitlines() == printed


@pytest.mark.parametrize("words", [("--filter", "~("), ("--level", "loud"), ("--since", "noon")])
def test_what_it_does_not_understand(spool: Path, words: tuple[str, ...]) -> None:
    """A filter, a level or a time that means nothing is refused in one line."""
    run = command.run(
        ["log", str(spool), *words], capture_output=True, text=True, env=environment()
    )

    assert (run.returncode, run.stdout) == (64, "")
    assert run.stderr.count("\n") == 1
    assert words[0] in run.stderr


def test_printed_as_it_comes(spool: Path) -> None:
    """With --follow new lines are printed, a torn one when it is whole; --json has them in full."""
    words = ["log", str(spool), "--follow", "--json", "--lines", "1"]
    with command.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
    ) as child:
        assert child.stdout is not None
        try:
            first = json.loads(child.stdout.readline())
            with (spool / "log" / "mail.log").open("a") as log:
                log.write("[2026-11-20 10:")
                log.flush()
                with (spool / "log" / "queue.log").open("a") as other:
                    other.write(line(50, "next"))
                second = json.loads(child.stdout.readline())
                log.write("00:00] [WARN] whole\n")
            third = json.loads(child.stdout.readline())
        finally:
            child.kill()

    assert first["text"] == "\x1b[31m ‮ x", "for programs, as it was found"
    assert second | {"log": ""} == {
        "when": NOW + 50,
        "level": "INFO",
        "text": "next",
        "log": "",
        "hidden_bytes": 0,
        "torn": False,
    }
    assert (third["text"], third["level"]) == ("whole", "WARN")
