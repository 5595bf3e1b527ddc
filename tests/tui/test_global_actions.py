"""What every screen has besides its own keys: command line, help, copies, exports, plain text."""

from __future__ import annotations

import asyncio
import base64
import csv
import itertools
import json
import re
import shlex
import signal
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.formats.base.memory import MemoryStore
from engine.model import Missing, Problem, State, Task
from tests.console_operator import ConsoleOperator, an_operator
from tests.console_places import (
    Clock,
    a_memory,
    a_place,
    a_task,
    disk_place,
    make_spool,
    some_tasks,
)
from tests.pseudo_terminals import Terminal
from tests.pseudo_terminals import console as on_a_terminal
from tests.tables import each
from tui.key_tables import KEYS, keys_on
from tui.locks.list_screen import LocksScreen
from tui.log.screen import LogScreen
from tui.overview.screen import OverviewScreen
from tui.plan.screen import PlanScreen
from tui.queue.screen import QueueScreen
from tui.screens.help import SCREEN_TITLES
from tui.screens.palette import PaletteScreen
from tui.screens.palette_commands import PaletteCommand, PaletteScope, list_commands, match_commands
from tui.text import keys
from tui.text.export import ExportTable, RowSink


async def say(operator: ConsoleOperator, words: str, key: str = ":") -> None:
    """Type something on the command line, and Enter."""
    await operator.opens(PaletteScreen, key)
    await operator.types(words)
    await operator.sees(f": {words}")
    await operator.press("enter")


# The command line


SAYS = (
    ("clusters", "STILL?"),
    ("transp", "> transports"),
    ("and their holders", "> locks"),
    ("overview", "Ages:"),
    ("queue", "order: id"),
    ("theme paper", "theme paper"),
    ("help", "Keys of the task list"),
)
"""Words typed one after the other, and the text that is on screen then."""


async def test_the_command_line_goes_everywhere(tmp_path: Path) -> None:
    """Some words of a key, a screen, a log line or a place are enough, on any screen."""
    make_spool(tmp_path, some_tasks())
    other = a_place(a_memory(some_tasks()), name="/srv/other")
    async with an_operator(disk_place(tmp_path), other) as operator:
        for words, then in SAYS:
            assert then not in operator.text
            await say(operator, words)
            await operator.until(lambda: not isinstance(operator.console.screen, PaletteScreen))
            await operator.sees(then)
        await operator.press("escape")
        await say(operator, "log moving to DLQ")
        await operator.opens(LogScreen)
        await operator.sees("moving to DLQ")
        await operator.until(lambda: "Task completed" not in operator.text)
        await say(operator, "place other")
        await operator.until(lambda: operator.console.navigator.session.place.name == "/srv/other")


async def test_the_command_line_takes_words_of_a_key() -> None:
    """Ctrl-p opens it too; unknown words do nothing; a key without its words asks for them. The
    palette never applies a plan; a verb opens one, an order sorts."""
    async with an_operator(a_place(a_memory(some_tasks()))) as operator:
        before = operator.console.theme_loader.name
        await say(operator, "theme nowhere")
        await operator.sees("no such command; Esc closes")
        await operator.press("escape")
        await operator.until(lambda: operator.console.screen is operator.queue)
        assert operator.console.theme_loader.name == before
        await say(operator, "filt")
        await operator.step("nowhere enter", "filter nowhere", "0 of 40")
        await operator.press("4")
        await say(operator, "filter unknown", key="ctrl+p")
        await operator.sees("filter unknown", "4 of 12")

        await say(operator, "pending")
        await operator.until(lambda: operator.queue.parts.state is State.PENDING)
        await say(operator, "dlq")
        await operator.until(lambda: operator.queue.parts.state is State.DEAD)
        await say(operator, "sort tries")
        await operator.until(lambda: operator.queue.parts.query.order == "attempts")
        await operator.opens(PlanScreen, "R")
        await operator.step(": apply", "no such command")
        await operator.press("escape")
        await say(operator, "locks")
        await operator.opens(LocksScreen)
        await say(operator, "purge")
        await operator.opens(PlanScreen)


def scope_of(screen: str, *sorts: str) -> PaletteScope:
    """The palette on a screen of a queue whose dead tasks are called failed."""
    states = {**{state: str(state) for state in State}, State.DEAD: "failed"} if sorts else {}
    orders = [PaletteCommand(f"sort {name}", "") for name in sorts]
    themes = ("night", "paper")
    return PaletteScope(screen, keys_on, (), orders, states=states, places=(), themes=themes)


ON_QUEUE = {"dlq": "failed", "dead": "failed", "failed": "failed", "held": "held", "q": "quit"}
ON_QUEUE |= {"undo": "operations", "lo": "log", "log x": "log", "retry": "retry", "purge": "purge"}
ON_QUEUE |= {"sort age": "sort age", "paper": "theme paper", "transp": "transports"}
ON_QUEUE |= {"dest": "transports", "destin": "transports"}
ON_QUEUE |= {"their holders": "locks", "start": "start or stop worker"}
ON_OVERVIEW = {"suspend": "suspend", "resume": "suspend", "test": "test mail", "sort": "order"}
ON_OVERVIEW |= {"unlock": "unlock", "exit": "quit", "stop": "start or stop worker"}
BOTH = {"worker": "workers", "pause": "pause queue"}
FOUND = {keys.LIST: ON_QUEUE | BOTH, keys.OVERVIEW: ON_OVERVIEW | BOTH}
FOUND[keys.CONTROLS] = {"by kind": "groups"}
"""What is typed into the palette of a screen, and the command that is found first; what needs a
row of another screen opens that screen."""
COMMANDS = [(screen, *found) for screen, names in FOUND.items() for found in names.items()]


@each(("screen", "typed", "name"), COMMANDS)
def test_the_palette_finds_names_first(screen: str, typed: str, name: str) -> None:
    """States, screens, verbs, orders and themes are found by the begin of their name, then by a
    part of it, then by words of their description; nothing is listed twice."""
    sorts = ("id", "age") if screen == keys.LIST else ()
    offered = list_commands(scope_of(screen, *sorts))
    found = match_commands(offered, typed)
    assert found[0].name == name
    assert len(found) == 1 or typed not in ("dlq", "undo")
    assert len({command.name for command in offered}) == len(offered)


def test_the_palette_has_the_short_names_of_places() -> None:
    """Places differ in the first cells of their names and are found by their paths too; where the
    place that is open has no dead tasks, `dlq` finds those of the others."""
    mail = {State.PENDING: "queue"}
    places = [("/srv/queues/flowing", {State.DEAD: "DLQ"}), ("/srv/queues/outbox", mail)]
    offered = list_commands(scope_of(keys.LIST)._replace(places=places, states=mail))
    for typed in ("place flow", "place /srv/queues/flow"):
        found = match_commands(offered, typed)[0]
        assert (found.name, found.description) == ("place flowing", "tasks of /srv/queues/flowing")
    for typed in ("dlq", "dead"):
        found = match_commands(offered, typed)[0]
        assert found.name == "DLQ flowing" and found.target is not None
        assert (found.target.place, found.target.state) == (1, State.DEAD)


@pytest.mark.parametrize(("height", "least"), [(24, 11), (60, 25)])
async def test_the_palette_has_half_of_a_high_screen(height: int, least: int) -> None:
    """At 60 lines more commands are seen; the title counts those, and all that match."""
    async with an_operator(a_place(a_memory(some_tasks())), size=(200, height)) as operator:
        await operator.opens(PaletteScreen, ":")
        await operator.until(lambda: operator.picker.rows and operator.picker.size.height >= least)
        shown = operator.picker.size.height
        await operator.sees(f"Command {shown} of {len(operator.picker.rows)} ")
        assert shown <= max(least, height // 2)


# Help


def test_each_screen_has_a_title_in_the_help() -> None:
    """The help knows every screen that has a key for it, by a name of its own."""
    helped = {screen for key in KEYS if key.action == "help" for screen in key.screens}
    assert helped == set(SCREEN_TITLES)
    assert len(set(SCREEN_TITLES.values())) == len(SCREEN_TITLES)


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    """A queue on an ordinary day, with one file that cannot be read."""
    make_spool(tmp_path, some_tasks())
    (tmp_path / "queue/dlq/20261120T094208Z-mail_send-0badf00d.task").write_bytes(b"")
    failed = '"transport":"postfix","recipient":"a@","result":"failed","reason":"450 later"'
    (tmp_path / "delivery.jsonl").write_text(f'{{"ts":"2026-11-20T09:40:00Z",{failed}}}\n')
    return tmp_path


# Copies

OSC52 = re.compile(rb"\x1b\]52;c;([A-Za-z0-9+/=]*)\x07")


def copied(terminal: Terminal) -> list[str]:
    """The texts that the terminal got for its clipboard, in order."""
    return [base64.b64decode(text).decode() for text in OSC52.findall(bytes(terminal.said))]


def test_copies_reach_the_terminal(spool: Path) -> None:
    """On each screen `y` and a letter send exactly that to the clipboard of a real terminal."""
    first = min(path.stem for path in (spool / "queue/pending").iterdir())
    root, row_shown = str(spool), "order: id"
    with on_a_terminal(root, size=(100, 30)) as terminal:

        def copy(letter: str) -> str:
            before = len(copied(terminal))
            go("y", " Copy ")
            terminal.send(letter)
            terminal.until(lambda: len(copied(terminal)) > before)
            terminal.shows("sent to the clipboard")
            return copied(terminal)[-1]

        def go(key: str, *texts: str) -> None:
            terminal.send(key)
            terminal.shows(*texts)

        terminal.shows("PEND", "Ages:", " 40 ")
        assert copy("i") == root
        assert shlex.split(copy("c"))[:3] == ["spooldeck", "overview", root]
        assert "40" in copy("r").split()
        go("5", "> locks", "FREE")
        assert copy("i") == root
        assert "no lock file" in copy("e")
        go("6", "> transports", "postfix")
        assert copy("n") in ("postfix", "sendmail", "curl")
        go("7", "> log", "Queue processor completed")
        assert "Queue processor completed in 1s" in copy("l")
        go("q", "Ages:")

        go("2", row_shown, first[-8:])
        assert copy("i") == first
        row = json.loads(copy("j"))
        assert (row["id"], row["state"]) == (first, "pending")
        assert copy("r").startswith(first[-8:])
        assert copy("c").endswith(" queue list --state pending")
        go("c", "STILL?", "F-")
        mark = copy("i")
        assert re.fullmatch(r"F-[0-9A-F]{4}", mark)
        assert json.loads(copy("j"))["mark"] == mark
        assert copy("r").startswith(mark)
        go("q", row_shown)
        go("\r", "summary", "Esc back")
        assert copy("i") == first
        assert first in copy("c")
        go("q", row_shown)
        go("h", "Problems ")
        go("\r", "problem 1 of")
        assert copy("i") == "dlq/20261120T094208Z-mail_send-0badf00d.task"
        terminal.process.terminate()
        assert terminal.end() == 143


# Plain text


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_the_screen_as_plain_text(spool: Path, number: signal.Signals) -> None:
    """`=` leaves the full screen, prints what it showed, and Enter comes back to it. It waits for
    Enter and for signals, not for Enter alone."""
    prompt = b"-- plain text; Enter returns --"
    with on_a_terminal("--open", "queue", str(spool)) as terminal:
        terminal.opens()
        terminal.shows("acts on")
        ids = sorted(path.stem[-8:] for path in (spool / "queue/pending").iterdir())[:5]
        terminal.until(lambda: [line[3:11] for line in terminal.screen.lines[5:10]] == ids)
        rows, before = terminal.screen.lines[5:10], len(terminal.said)
        terminal.send("=")
        terminal.until(lambda: prompt in terminal.said)
        printed = bytes(terminal.said[before:])
        outside = printed[printed.index(b"\x1b[?1049l") :]
        text = outside.decode().replace("\r", "")
        assert all(f"\n{line}\n" in text for line in rows)
        assert b"\x1b[3" not in outside.partition(b"tasks")[2]

        before = len(terminal.said)
        terminal.send("\r")
        terminal.until(lambda: b"\x1b[?1049h" in terminal.said[before:])
        terminal.shows("acts on", "pending 40")
        before = len(terminal.said)
        terminal.send("=")
        terminal.until(lambda: prompt in terminal.said[before:])
        terminal.process.send_signal(number)
        assert (terminal.end(), terminal.restored) == (128 + number, True)


# Exports


async def export(operator: ConsoleOperator, form: str = "csv") -> list[str]:
    """Export with the keys, to the usual path in that form; the lines of the file."""
    await operator.step("e", "export to", ".csv", "Enter OK")
    if form != "csv":
        wrong = "expected a name ending in .csv or .jsonl"
        await operator.step("backspace backspace backspace x", wrong)
        await operator.press("enter", "backspace", *form)
    await operator.press("enter")
    said = re.compile(rf"rows in spooldeck-\S*\.{form}")  # not the message of an export before
    await operator.until(lambda: said.search(operator.text))
    (path,) = await asyncio.to_thread(lambda: list(Path().glob(f"spooldeck-*.{form}")))
    return (await asyncio.to_thread(path.read_text)).splitlines()


async def test_a_queue_is_exported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`e` asks where to, and writes all that the tab and its filter show, in its order."""
    monkeypatch.chdir(tmp_path)
    memory = a_memory(some_tasks(dead=90))
    async with an_operator(a_place(memory)) as operator:
        await operator.press("4", "/", *"unknown", "enter", "o", "a")
        rows = operator.queue.widgets.list.rows
        await operator.until(lambda: rows.view.loaded and rows.view.total == 30)
        as_csv = list(csv.DictReader(await export(operator)))
        as_json = [json.loads(line) for line in await export(operator, "jsonl")]
    expected = [t for t in memory.tasks.values() if t.state is State.DEAD and "unknown" in t.error]
    expected.sort(key=lambda task: task.created)
    for read in (as_csv, as_json):
        assert [(row["id"], row["state"]) for row in read] == [(t.id, "dead") for t in expected]


async def test_the_overview_is_exported(
    spool: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`e` on the overview writes a row for each queue."""
    monkeypatch.chdir(tmp_path_factory.mktemp("here"))
    places = disk_place(spool), disk_place(spool, "other")
    async with an_operator(*places, first=keys.OVERVIEW) as operator:
        latest = [one.inspector for one in operator.console.sessions]
        await operator.until(lambda: all(one.latest.is_complete for one in latest))
        rows = [json.loads(line) for line in await export(operator, "jsonl")]
    pending = [(row["place"], row["tasks"]["pending"]) for row in rows]
    assert pending == [(str(spool), 40), ("other", 40)]


class Slow(OverviewScreen):
    """An overview whose export has 40,000 rows, 10,000 for each release of the gate."""

    gate: asyncio.Semaphore

    def export_table(self) -> ExportTable | None:
        """Its rows."""

        async def hand(take: RowSink) -> int:
            for rows in range(10_000, 50_000, 10_000):
                await self.gate.acquire()
                values = [{"n": n} for n in range(10_000)]
                if not await asyncio.to_thread(take, values, rows, 40_000):
                    return rows - 10_000
            return 40_000

        return ExportTable("slow", ("n",), hand)


async def test_a_long_export_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An export that takes long says how far it is; Esc stops it, and nothing is left of it."""
    monkeypatch.chdir(tmp_path)

    def files() -> list[Path]:
        return list(tmp_path.iterdir())

    async with an_operator(a_place(a_memory(some_tasks())), first=keys.OVERVIEW) as operator:
        slow = Slow(operator.console.sessions, operator.console.context)
        slow.gate = asyncio.Semaphore(0)
        operator.console.push_screen(slow)
        await operator.until(lambda: operator.console.screen is slow)
        await operator.step("e", "export to")
        await operator.press("enter")
        for progress in (("10,000 of 40,000 rows 25%", "[###", "Esc stop"), ("20,000 of", "50%")):
            slow.gate.release()
            await operator.sees(*progress)
        assert await asyncio.to_thread(files)
        await operator.press("escape")
        slow.gate.release()
        await operator.sees("stopped; nothing written")
        assert not await asyncio.to_thread(files)


# The first look


class Long(MemoryStore):
    """A store whose first scan would never end; the second has the tasks of its memory."""

    scans = 0

    def scan(self, touched: Collection[str] | None = None) -> Iterator[Task | Missing | Problem]:
        """One task after another."""
        type(self).scans += touched is None
        if touched is not None or self.scans > 1:
            yield from super().scan(touched)
            return
        self.expected_tasks = 10_000_000
        for number in itertools.count():
            yield a_task(number, rev="1")


async def test_a_long_first_scan_shows_its_progress_and_is_stopped() -> None:
    """The progress of the first scan is below the list; Esc stops it, and `r` scans again."""
    Long.scans = 0
    memory, clock = a_memory(some_tasks()), Clock()
    place = a_place(memory, open=lambda: Long(memory))
    async with an_operator(place, clock=clock, early=True) as operator:
        await operator.sees("of 10,000,000 tasks", "[....", "Esc stops")
        clock.now += 10
        await operator.until(lambda: re.search(r"\d left  Esc stops", operator.text))
        await operator.step("escape", "stopped at ", "; r continues")
        assert operator.queue.session.inspector.latest.is_stopped
        assert "Esc stops" not in operator.text
        await operator.step("r", "pending 40")
        await operator.until(lambda: "r continues" not in operator.text)


# Order and range


ORDERS: tuple[tuple[str, str, str, Callable[[Task], Any]], ...] = (
    ("k", "^KIND", "vKIND", lambda task: task.kind),
    ("a", "vAGE", "^AGE", lambda task: task.created),
    ("t", "^TRI", "vTRI", lambda task: task.attempts),
    ("w", "vDIED", "^DIED", lambda task: task.extra["dead_since"]),
    ("e", "^ERROR", "vERROR", lambda task: task.error),
)


async def test_each_order() -> None:
    """`o` and a letter order by a column, again the other way; the title of it says so."""
    memory = a_memory([a_task(n, State.DEAD, attempts=n * 7 % 5, rev="1") for n in range(12)])
    async with an_operator(a_place(memory)) as operator:
        await operator.press("4")
        for letter, up, down, value in ORDERS:
            for mark, falls in ((up, False), (down, True)):
                await operator.press("o")
                await operator.until(lambda: "Order by" in operator.text)
                assert bool(re.search(rf" {letter} [a-z ]+\(reverse\)", operator.text)) is falls
                await operator.step(letter, QueueScreen, mark)
                rows = operator.queue.widgets.list.rows
                await operator.until(lambda: rows.view.loaded)  # noqa: B023
                values = [value(memory.tasks["", task.id]) for task in rows.view.window.tasks]
                assert values == sorted(values, reverse=falls), letter
