"""The log on screen and printed: all files by time, after any change of them."""

from __future__ import annotations

import json
import re
import subprocess
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from engine import verbs
from engine.logs.log_file import FileEntry
from engine.logs.log_filter import DEBUG, WARN
from engine.logs.log_line import LogLine
from engine.logs.rotated_log import NO_LOG_FILE
from engine.model import Task
from engine.places.place import CopiedLog
from tests import command
from tests.console_operator import ConsoleOperator, an_operator, words
from tests.console_places import NOW, a_memory, a_place, a_task, make_spool, some_tasks
from tests.nftban_queues import Run, clean_environment
from tests.tables import each
from tui.log import log_lines as view
from tui.log import parts, reader
from tui.log.log_lines import LogStatus, LogStyle, LogTimeFormat
from tui.log.screen import LogScreen
from tui.log.widgets import LogHistogram, LogLines
from tui.queue.screen import QueueScreen
from tui.screens.dialogs import AskScreen
from tui.screens.help import HelpScreen
from tui.screens.target import Target
from tui.task.screen import TaskScreen
from tui.text import keys
from tui.text.glyphs import UTF8

TASK = a_task(13)


def line(second: float, text: str, level: str = "INFO") -> str:
    """A line of the contract, so many seconds after the console's time."""
    stamp = time.strftime("[%Y-%m-%d %H:%M:%S]", time.gmtime(NOW + second))
    return f"{stamp} [{level}] {text}\n"


def some_lines(amount: int = 300, begin: int = -1000) -> str:
    """An ordinary log: a line a second, some of them grave."""
    levels = ("INFO", "INFO", "SUCCESS", "DEBUG", "WARN", "ERROR")
    return "".join(line(begin + n, f"line {n}.", levels[n % 6]) for n in range(amount))


class LogOperator(ConsoleOperator):
    """An operator who looks at the logs of a place."""

    paths: list[Path]
    screen: LogScreen
    """The log, on top or below."""

    @property
    def pane(self) -> LogLines:
        """Its lines."""
        return self.screen.query_one(LogLines)

    @property
    def shown(self) -> list[str]:
        """The lines on screen that are not blank."""
        texts = [self.pane.render_line(y).text.rstrip() for y in range(self.pane.size.height)]
        return list(filter(None, texts))

    @property
    def selected_text(self) -> str:
        """The text of the line under the cursor."""
        selected_entry = self.pane.page.selected_entry
        return selected_entry.line.text if selected_entry else ""

    async def press(self, *pressed: str) -> None:
        """Press keys, and let each come to its end."""
        for key in pressed:
            await self.pilot.press(key)
            await self.rest()

    async def rest(self) -> None:
        """Wait until the lines are those that were asked for."""
        await self.pilot.pause()
        await self.until(lambda: self.screen.parts.is_loaded)
        await self.pilot.pause()

    async def ask(self, key: str, text: str) -> None:
        """Open a question and answer it."""
        await self.opens(AskScreen, key)
        await self.pilot.press(*text, "enter")
        await self.until(lambda: self.console.screen is self.screen)
        await self.rest()

    def add(self, text: str) -> None:
        """Append to a log, as another process does."""
        with self.paths[0].open("a") as file:
            file.write(text)


@asynccontextmanager
async def a_log(
    folder: Path,
    *texts: str | bytes | None,
    size: tuple[int, int] = (80, 24),
    find: str = "",
    copy: CopiedLog | None = None,
) -> AsyncIterator[LogOperator]:
    """A console on a queue whose logs hold these texts, the log on top; None is no log."""
    paths = [folder / name for name in ("queue.log", "mail.log")[: len(texts)]]
    for path, text in zip(paths, texts, strict=True):
        if text is not None:
            path.write_bytes(text.encode() if isinstance(text, str) else text)
    place = a_place(a_memory(some_tasks()), logs=tuple(map(str, paths)), log_copy=copy)
    async with an_operator(place, size=size, glyphs=UTF8, start_armed=False) as made:
        operator = LogOperator(made.console, made.pilot)
        operator.paths = paths
        operator.console.navigator.goto(Target(keys.LOG, place=1, id=find))
        operator.screen = await operator.opens(LogScreen)
        await operator.rest()
        await operator.until(lambda: "so far" not in operator.line("status"))
        yield operator


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look at the logs as often as can be."""
    monkeypatch.setattr(parts, "IDLE_READ_SECONDS", 0.03)
    monkeypatch.setattr(parts, "BUSY_READ_SECONDS", 0.01)


# Following


async def test_the_end_of_all_logs_by_time(tmp_path: Path) -> None:
    """The log opens at its end, all files merged by time, each line with its log's name."""
    async with a_log(tmp_path, line(1, "a") + line(3, "c"), line(2, "b", "WARN")) as operator:
        assert operator.shown == [
            "  09:42:09 I queue a",
            "  09:42:10 W mail  b",
            "▶ 09:42:11 I queue c",
        ]
        assert "7 Log 2 files ─" in operator.text
        assert "─ queue.log, mail.log ─" in operator.text
        assert operator.line("status").split() == ["FOLLOW", "level", "all", "3", "lines"]


async def test_a_log_elsewhere_is_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The status line has the time of the copy, or why there is none."""
    monkeypatch.setattr(parts, "FETCH_SECONDS", 0.01)
    copy, problems = tmp_path / "far.log", ["mx2: connection lost"]

    def fetch() -> str:
        if not problems and not copy.exists():
            copy.write_text(line(1, "from far"))
        return "".join(problems)

    async with a_log(tmp_path, None, copy=CopiedLog(str(copy), fetch)) as operator:
        await operator.until(lambda: "not copied: mx2: connection lost" in operator.shown[0])
        problems.clear()
        await operator.until(lambda: operator.shown == ["▶ 09:42:09 I far   from far"])
        await operator.until(lambda: "copied 09:42:08Z" in operator.line("status"))


async def test_a_covered_log_is_not_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A covered log is read on, and copied again once it is on top."""
    monkeypatch.setattr(parts, "FETCH_SECONDS", 0.01)
    fetches = list[str]()
    copy = CopiedLog(str(tmp_path / "far.log"), lambda: fetches.append("") or "")  # type: ignore[func-returns-value]
    async with a_log(tmp_path, some_lines(3), copy=copy) as operator:
        await operator.until(lambda: fetches)
        await operator.opens(HelpScreen, "?")
        numbers = []
        for text in ("one", "two", "three"):
            operator.add(line(1, text))
            await operator.until(lambda: operator.shown[-1].endswith(text))  # noqa: B023
            numbers.append(len(fetches))
        # One that had begun may end meanwhile.
        assert numbers[1] == numbers[2]
        number = numbers[2]
        await operator.opens(LogScreen, "escape")
        await operator.until(lambda: len(fetches) > number)


async def test_scrolling_up_pauses_and_counts(tmp_path: Path) -> None:
    """Up pauses: lines stay, new ones are counted, and reached by moving down; f follows. New lines
    appear below; one that is torn is shown so, and whole when its end comes."""
    async with a_log(tmp_path, some_lines(30)) as operator:
        await operator.press("k", "k")
        before = operator.shown
        operator.add("".join(line(n - 60, f"new {n}") for n in range(50)))
        await operator.until(lambda: "50 new" in operator.line("status"))
        assert operator.shown == before
        seen = []
        for _ in range(9):
            await operator.press("j")
            seen.append(operator.selected_text)
        assert list(dict.fromkeys(seen))[-5:] == [f"new {n}" for n in range(2, 7)]
        await operator.press("f")
        assert operator.selected_text == "new 49"
        assert "FOLLOW" in operator.line("status")

        operator.add(line(1, "new one") + "[2026-11-20 09:")
        await operator.until(lambda: "incomplete" in operator.shown[-1])
        assert operator.shown[-2].endswith("new one")
        operator.add("42:10] [WARN] torn no more\n")
        await operator.until(lambda: "torn no more" in operator.shown[-1])
        assert operator.shown[-2:] == ["  09:42:09 I new one", "▶ 09:42:10 W torn no more"]


async def test_a_log_that_comes_and_goes(tmp_path: Path) -> None:
    """A log that is missing is named, and is a fault only if it was there before."""
    async with a_log(tmp_path, line(1, "a"), None) as operator:
        await operator.sees("Log 1 of 2 files", "─ queue.log, no mail.log ─")
        operator.paths[1].write_text(line(2, "b"))
        await operator.sees("Log 2 files")
        await operator.until(lambda: "mail" not in operator.line("word"))
        await operator.until(lambda: len(operator.shown) == 2)
        operator.paths[1].unlink()
        await operator.until(lambda: "! mail.log: removed" in operator.line("word"))
        assert len(operator.shown) == 2
        operator.paths[1].write_text(line(3, "again"))
        await operator.until(lambda: "again" in operator.shown[-1])
        await operator.until(lambda: "mail" not in operator.line("word"))


@pytest.mark.parametrize(("logs", "text"), [
    ((), "this place has no log"),
    ((None,), "no log yet: queue.log does not exist; the first operation creates it"),
    (("",), "nothing logged yet"),
    ((b"loop",), "no readable log: queue.log: Too many levels"),
])  # fmt: skip
async def test_why_it_is_empty(tmp_path: Path, logs: tuple[str | bytes | None], text: str) -> None:
    """Only where a log can be read and is empty is it said that nothing was logged; where it cannot
    be read, what helps is said, and no key is offered that has no line to act on."""
    if logs == (b"loop",):
        (tmp_path / "queue.log").symlink_to("queue.log")
        logs = (None,)
    async with a_log(tmp_path, *logs) as operator:
        await operator.until(lambda: operator.shown and operator.shown[0].startswith(f"   {text}"))
        hints = operator.line("hints")
        assert len(operator.shown) == 1 or "repair the file" in " ".join(
            " ".join(operator.shown).split()
        )
        assert "Esc back" in hints and "search" not in hints
        assert not {"Enter task", "filter", "error", "time"} & {*hints.split("  ")}


async def test_a_log_of_the_server_that_is_not_known_is_named_alike(tmp_path: Path) -> None:
    """List, task, cluster and log give the same reason; no key leads to a log without a line, and
    there is no empty histogram."""
    why = "no log of the scheduler is known: set it"
    logs, tasks = (str(tmp_path / "queue.log"),), a_memory([a_task(1, due=0.0)])
    place = a_place(tasks, logs=logs, no_server_log=why, server="the scheduler")
    async with an_operator(place, size=(120, 40)) as operator:
        await operator.step("2", why)
        await operator.step("enter", f"next {why}", "?, no log of the scheduler")
        assert not re.search("t log|t shows", operator.text)
        await operator.step("7", LogScreen, why)
        assert not operator.console.screen.query_one(LogHistogram).display
        (tmp_path / "queue.log").write_text(line(1, "a line"))
        await operator.until(lambda: operator.console.screen.query_one(LogHistogram).display)
        await operator.sees("Lines, ")
        await operator.step("escape", "t log")


@pytest.mark.parametrize(("status", "why", "text"), [
    (LogStatus(), NO_LOG_FILE, "no log of the scheduler"),
    (LogStatus(), None, "no log of the scheduler"),
    (LogStatus(), "Permission denied", "no readable log: queue.log: Permission denied; give"),
    (LogStatus(level=WARN), None, "no matching lines (Esc clears, - lowers the level)"),
    (LogStatus(words="421"), None, "no matching lines (Esc clears, - lowers the level)"),
])  # fmt: skip
def test_an_unknown_log_hides_no_other_reason(
    status: LogStatus, why: str | None, text: str
) -> None:
    """That a log of the server is not known is the reason only where the other logs are missing or
    empty: not where one cannot be read, or a filter or a level hides its lines."""
    path, unknown = "/x/queue.log", "no log of the scheduler is known: set it"
    troubles = {path: why} if why else {}
    lines = view.empty_lines(
        [path], status, looking=False, width=80, troubles=troubles, no_log=unknown
    )
    assert text in words(lines)


async def test_the_next_step_is_the_task_of_the_line(tmp_path: Path) -> None:
    """The line above the hints has the task and its state now; t shows only its lines. Each
    occurrence of the search text is marked, in any case, and only that."""
    log = line(1, f"Task failed: {TASK.id} (x)") + line(2, "Try again, TRY again")
    async with a_log(tmp_path, log + line(3, f"sent {TASK.id}"), size=(120, 40)) as operator:
        step = f"Enter opens task {TASK.id[-8:]}: "
        await operator.until(lambda: f"{step}pending" in operator.line("word"))
        assert operator.line("word").endswith("at 09:42:11")
        with closing(operator.console.sessions[0].place.open()) as store:
            (found,) = (one for one in store.scan([TASK.id]) if isinstance(one, Task))
            store.swap(found, verbs.hold(found, NOW))
        await operator.until(lambda: f"{step}held" in operator.line("word"))
        await operator.press("g")
        await operator.ask("/", '"try again"')
        runs = [run for y in range(operator.pane.size.height) for run in operator.pane.page.line(y)]
        marked = [text for text, style in runs if style.startswith(view.HIT_STYLE)]
        assert marked == ["Try again", "TRY again"]
        await operator.press("G", "t")
        assert len(operator.shown) == 2
        await operator.ask("&", "nothing")
        assert "Esc shows all lines" in operator.line("word")


async def test_the_histogram_shows_when_errors_came(tmp_path: Path) -> None:
    """Errors are at the foot of the bars; below are the times and the place of the cursor."""
    log = line(-1800, "x", "ERROR") * 8 + line(-1800, "x") * 8 + line(0, "y")
    async with a_log(tmp_path, log, size=(120, 40)) as operator:
        bars = operator.screen.query_one(LogHistogram)
        await operator.until(lambda: "█" in words(bars.lines[-1:]))
        ends = (bars.lines[0], bars.lines[-1])
        assert [style for bar in ends for text, style in bar if "█" in text] == ["muted", "warn"]
        axis = operator.text.splitlines()[-3]
        assert axis.startswith("╰── 08:42 ──") and "── 09:12 ──" in axis
        assert axis.rstrip("╯─ ").endswith("▲")


async def test_a_log_too_long_to_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Logs that are too long to be gone through have no count that grows: nothing is counted."""
    monkeypatch.setattr(parts, "MAX_COUNTED_BYTES", 3 << 20)
    async with a_log(tmp_path, line(1, "x" * (3 << 20))) as operator:
        assert operator.line("status").endswith("3 MiB, lines not counted")
        await operator.ask("&", "x")
        assert operator.line("status").endswith("3 MiB, lines not counted")


# Moving

MOTIONS = {"k": 298, "k j": 299, "G": 299, "g": 0, "g j j k": 1, "g pagedown": 18, "pageup": 281}
MOTIONS |= {"g pagedown pageup": 0, "g end": 299}


async def test_motions(tmp_path: Path) -> None:
    """Each key moves by what it says, over the whole log; an edge moves the view by a third. `/`
    looks on from here, n further, N back; what is not found is said. `@` goes to the first line
    since then; later than all lines, to the last one."""
    async with a_log(tmp_path, some_lines()) as operator:
        for pressed, number in MOTIONS.items():
            await operator.press("f", *pressed.split())
            assert operator.selected_text == f"line {number}.", pressed
            assert sum(text.startswith("▶") for text in operator.shown) == 1
        await operator.press("g")
        tops = []
        for _ in range(28):
            await operator.press("j")
            tops.append(operator.shown[0].split()[-1])
        assert list(dict.fromkeys(tops)) == ["0.", "6.", "12."]

        await operator.press("g")
        await operator.ask("/", "7.")
        found = [operator.selected_text]
        for key in ("n", "N"):
            await operator.press(key)
            found.append(operator.selected_text)
        assert found == ["line 7.", "line 17.", "line 7."]
        await operator.press("N")
        assert "not found above" in operator.line("word")
        await operator.press("G", "n")
        assert "not found below" in operator.line("word")

        for when, text, message in (
            ("-15m", "line 100.", "first line since 2026-11-20 09:27:08"),
            ("2030-01-01", "line 299.", "last line before it"),
        ):
            await operator.ask("@", when)
            assert operator.selected_text == text and message in operator.line("word")
        assert "PAUSED" in operator.line("status")


# What is shown


async def test_only_lines_that_match(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a level is looked for, no other line is shown; back, none is counted again. `&` shows
    only lines that match, and says so; a pattern that is not whole is said where, and Enter does
    nothing. Where nothing is left, that is said; Esc shows all again, and then leaves."""
    async with a_log(tmp_path, some_lines()) as operator:
        screen, held = operator.screen, threading.Event()
        counted, searching = screen.parts.counter.counts, screen.parts.reader._thread.run

        async def stopped(make: Callable[[], object]) -> object:
            await searching(held.wait)
            return await searching(make)

        monkeypatch.setattr(screen.parts.reader._thread, "run", stopped)
        for _ in range(3):
            screen.action_key("+")
        assert "level error+" in operator.line("status")
        assert operator.shown and all(" E " in text for text in operator.shown)
        held.set()
        for _ in range(3):
            screen.action_key("-")
        await operator.rest()
        assert screen.parts.counter.counts is counted
        assert "300 lines" in operator.line("status")

        question = await operator.opens(AskScreen, "&")
        await operator.pilot.press("~", "(", "enter")
        assert operator.console.screen is question
        assert "invalid pattern" in operator.line("ask-word")
        await operator.opens(LogScreen, "escape")
        assert "level all" in operator.line("status")
        await operator.ask("&", "7. !~line.1")
        await operator.until(lambda: "19 of 300" in operator.line("status"))
        assert "& 7. !~line.1" in operator.line("status")
        assert [text.rpartition(" ")[2] for text in operator.shown][-2:] == ["287.", "297."]
        await operator.press("escape")
        assert "&" not in operator.line("status")
        await operator.ask("&", "nowhere")
        await operator.until(lambda: "0 of 300" in operator.line("status"))
        assert operator.shown == ["   no matching lines (Esc clears, - lowers the level)"]
        await operator.step("escape escape", QueueScreen)


async def test_stamps_and_wrapping(tmp_path: Path) -> None:
    """`i` changes what is shown of times, `w` shows long lines in full."""
    async with a_log(tmp_path, line(1, "word " * 40)) as operator:
        for begin in ("▶ 2026-11-20 09:42:09 I", "▶ I", "▶ 09:42:09 I"):
            await operator.press("i")
            assert operator.shown[0].startswith(begin)
        await operator.press("w")
        assert " ".join(operator.shown).count("word") == 40
        assert operator.line("status").split()[3:5] == ["w", "wrap"]


async def test_a_hostile_log_does_nothing(tmp_path: Path) -> None:
    """ESC, C1, bidi, markup, NULs and a line of a megabyte are shown as text, and nothing acts."""
    nasty = "\x1b]0;owned\x07 \x1b[31m \x9b2J ‮ txt [@click=app.quit]x[/] [/nope]"
    log = line(1, nasty).encode() + b"\0\0\0" + line(2, "y" * 1_000_000).encode() + b"\xff\xfe\n"
    async with a_log(tmp_path, log) as operator:
        await operator.press("w", "g", "j")
        text = "\n".join(operator.shown)
        assert "[@click=app.quit]x[/] [/nope]" in text
        assert "more bytes" in text
        operator.assert_inert()
        await operator.press("w")
        assert "995,907 more bytes" in "\n".join(operator.shown)


async def test_a_long_search_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While it searches there is a bar, and Esc stops it where it is."""
    monkeypatch.setattr(reader, "SHOW_PROGRESS_SECONDS", 0.0)
    async with a_log(tmp_path, line(-9999, "needle") + some_lines(20_000, -9998)) as operator:
        screen, held, steps = operator.screen, threading.Event(), list[int]()
        screen.parts.reader.step_cells = 1
        await operator.ask("/", "nowhere")  # down from the end: nothing to go through
        searching = screen.parts.reader._thread.run

        async def slow(make: Callable[[], object]) -> object:
            steps.append(1)
            if len(steps) == 4:
                await searching(held.wait)
            return await searching(make)

        monkeypatch.setattr(screen.parts.reader._thread, "run", slow)
        await operator.pilot.press("N")
        await operator.until(lambda: "KiB" in operator.line("word"))
        assert "[" in operator.line("word") and "Esc stops" in operator.line("word")
        await operator.pilot.press("escape")
        held.set()
        await operator.rest()
        assert "stopped" in operator.line("word")
        assert operator.console.screen is screen


# From a line to its task, and back


async def test_from_a_line_to_its_task_and_back(tmp_path: Path) -> None:
    """Enter opens the task that the line names, or says that it is gone; the log opened for a task
    shows the lines that hold its id."""
    gone = "20200101T000000Z-feeds_sync-00000000"
    log = line(2, f"Task gone: {gone}") + line(3, f"MAIL_SEND_RESULT task_id={TASK.id} x")
    async with a_log(tmp_path, log) as operator:
        await operator.press("k", "enter")
        assert f"{gone} is no longer in the queue" in operator.line("word")
        await operator.press("j")
        await operator.opens(TaskScreen, "enter")
    log = some_lines(50) + line(1, f"Processing task: {TASK.id} (x)") + line(2, "other")
    async with a_log(tmp_path, log, find=TASK.id) as operator:
        (shown,) = operator.shown
        assert f"I {TASK.id[-8:]} Processing task (x)" in shown
        assert f'& "{TASK.id[-8:]}"' in operator.line("status")
        await operator.opens(QueueScreen, "escape")


# How it looks


def an_entry(text: str, when: float | None = None, hidden: int = 0) -> FileEntry:
    """A line of a log."""
    log_line = LogLine(when, "", text, "/var/log/queue.log")
    return FileEntry((when or 0.0, 1, 0), log_line, 1, len(text), hidden)


def test_a_line_that_does_not_fit_is_counted_short_or_bounded() -> None:
    """What is not held of a line is counted, also where it does not fit; in full it takes no more
    than a part of the screen. Where it is cut its id is the last 8 characters, and the error of a
    delivery comes first."""
    for text, end in (("abc", "abc ... 1,234 more bytes"), ("x" * 5000, "2,138 more bytes")):
        (cut,) = view.entry_lines(an_entry(text, hidden=1234), LogStyle(), 60)
        assert words([cut]).endswith(end)
    assert len("".join(text for text, _ in cut)) == 60
    folded = view.entry_lines(an_entry("x" * 5000), LogStyle(LogTimeFormat.NONE, wrap=True), 60)
    assert len(folded) == view.MAX_WRAPPED_LINES + 1
    assert "more bytes" in words(folded[-1:])
    ident = "20261120T092929Z-mail_send-261c374b"
    text = f"MAIL_SEND_RESULT task_id={ident} status=failed transport=sendmail retries=3 "
    entry = an_entry(f"{text}last_error=550 5.1.1 user unknown", 1.0)
    shown = words(view.entry_lines(entry, LogStyle(sources=5, has_ids=True), 80))
    assert " 261c374b 550 5.1.1 user unknown  MAIL_SEND_RESULT status=" in shown
    assert ident in words(view.entry_lines(entry, LogStyle(wrap=True), 80)).replace("\n", "")


def test_quiet_gaps() -> None:
    """Where nothing was logged for minutes, a line says so; not after lines without a time."""
    first, later = an_entry("a", when=NOW), an_entry("b", when=NOW + 684)
    never = an_entry("c")._replace(key=(float("-inf"), 1, 0))
    gap = view.quiet_line(first, later, 60)
    assert gap is not None
    assert words([gap]).split() == ["─" * 8, "quiet", "11m", "─" * 39]
    assert view.quiet_line(first, an_entry("b", when=NOW + 59), 60) is None
    assert view.quiet_line(never, later, 60) is None


COUNTED = LogStatus(False, 12, WARN, words="421|lock", matching=118, lines=9204, counted=True)
WRAPPED = COUNTED._replace(following=True, new=0, level=DEBUG, counted=False, wrap=True)


@each(("log_status", "text"), [
    (LogStatus(), "FOLLOW level all 0 lines so far"),
    (LogStatus(uncounted_bytes=963 << 20, matching=7, lines=8),
     "FOLLOW level all 963 MiB, lines not counted"),
    (COUNTED, "PAUSED 12 new level warn+ & 421|lock 118 of 9,204 lines"),
    (WRAPPED._replace(search_text="y"),
     "FOLLOW level all & 421|lock / y w wrap 118 of 9,204 so far"),
])  # fmt: skip
def test_the_status_says_what_is_hidden(log_status: LogStatus, text: str) -> None:
    """The status names each level, pattern and count that keeps lines from the screen."""
    assert " ".join(words([view.status_line(log_status, 80)]).split()) == text


SERVER_IDS = ("4D9752DA018", "4jbqgC5jmFzRbcm", "1xX5UE-0003Hr-2I", "1xX5vI-000000008F7-2KwE")


@each(("text", "ids"), [
    (f"Task completed: {TASK.id}", [TASK.id]),
    ("MAIL_SEND_RESULT task_id=abc:17 status=failed", ["abc:17"]),
    (f"x {TASK.id}, and id=other", [TASK.id]),
    ("a b c", []),
    *((f"mx1 mta/smtp[26429]: {id}: to=<a@example.test>", [id]) for id in SERVER_IDS),
    *((f"{id} == a@example.test R=r T=t defer (111): refused", [id]) for id in SERVER_IDS),
])  # fmt: skip
def test_ids_in_a_line(text: str, ids: list[str]) -> None:
    """What looks like a task's id comes before what is only named like one."""
    assert list(view.possible_ids(text))[:1] == ids


# Printed


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


LAST = "2026-11-20 09:42:48 queue: INFO �[31m � x"
SENT = "2026-11-20 09:42:38 mail: WARN mail sent"
QUEUE = [f"2026-11-20 09:42:{at}" for at in ("08 queue: INFO old", "28 queue: ERROR failed")]
PRINTED: list[tuple[str, list[str]]] = [
    ("", [*QUEUE, "queue:   trace", SENT, LAST]),
    ("--lines 1", [LAST]),
    ("--level warn --since 2026-11-20T09:42:25Z --filter sent|trace", ["queue:   trace", SENT]),
    ("--filter nowhere", []),
]


def test_printed_once(spool: Path, spooldeck: Run) -> None:
    """`spooldeck log` prints the last lines of all logs by time, as text that nothing acts on; a
    filter, a level or a time that means nothing is refused in one line; a missing mail.log is
    reported only where no log is there at all."""
    for options, printed in PRINTED:
        run = spooldeck("log", spool, *options.split())
        assert (run.returncode, run.stderr) == (0, ""), options
        assert run.stdout.splitlines() == printed, options
    for option, value in (("--filter", "~("), ("--level", "loud"), ("--since", "noon")):
        run = spooldeck("log", spool, option, value)
        assert (run.returncode, run.stdout, run.stderr.count("\n")) == (64, "", 1)
        assert option in run.stderr
    for name, reported in (("mail.log", ""), ("queue.log", "no log yet: no ")):
        (spool / "log" / name).unlink()
        run = spooldeck("log", spool)
        assert (run.returncode, run.stderr.count("\n")) == (0, int(bool(reported)))
        assert reported in run.stderr
    assert "queue.log or " in run.stderr and not run.stdout


def test_printed_as_it_comes(spool: Path) -> None:
    """With --follow new lines are printed, a torn one when it is whole; --json has them in full."""
    argv = ["log", str(spool), "--follow", "--json", "--lines", "1"]
    env = clean_environment(spool)
    with command.Popen(argv, stdout=subprocess.PIPE, text=True, env=env) as child:
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
    fields = {"level": "INFO", "text": "next", "hidden_bytes": 0, "torn": False, "log": ""}
    fields |= {"output": None}
    fields |= {"when": NOW + 50, "when_at": "2026-11-20T09:42:58Z"}
    assert second | {"log": ""} == fields
    assert (third["text"], third["level"]) == ("whole", "WARN")
