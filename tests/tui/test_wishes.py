"""What every screen has besides its own keys: command line, help, copies, exports, plain text."""

from __future__ import annotations

import asyncio
import base64
import csv
import json
import re
import shlex
import threading
from collections.abc import Collection, Iterator
from functools import partial
from pathlib import Path

import pytest
from textual.pilot import Pilot

from engine.journal import Intent
from engine.model import Missing, Problem, State, Task
from engine.pace import Pace
from engine.plans import Plan
from engine.store import Control, Store
from engine.stores.memory import MemoryStore
from tests.tui.journals import a_journaled_place, interrupt
from tests.tui.mailrooms import Mailroom
from tests.tui.ptys import Terminal
from tests.tui.ptys import console as on_a_terminal
from tests.tui.spools import (
    NOW,
    PATIENCE,
    Clock,
    a_console,
    a_memory,
    a_place,
    a_task,
    disk_place,
    is_done,
    loaded,
    make_spool,
    queue_of,
    some_tasks,
    task_list,
    until,
)
from tui import keys
from tui.app import Console
from tui.export import Sheet, Take
from tui.place import Place
from tui.plain import text_of
from tui.screens.controls import ControlsScreen
from tui.screens.face import Target
from tui.screens.help import TITLES, HelpScreen
from tui.screens.log import LogScreen
from tui.screens.operations import OperationsScreen
from tui.screens.overview import OverviewScreen
from tui.screens.palette import PaletteScreen
from tui.screens.transports import TransportsScreen
from tui.widgets.picker import Picker
from tui.widgets.task_list import TaskList


async def shows(pilot: Pilot[None], *texts: str) -> None:
    """Wait until the whole screen shows these."""
    app = pilot.app
    try:
        await until(pilot, lambda: all(text in text_of(app.screen) for text in texts))
    except AssertionError as error:
        raise AssertionError(f"{texts} are not all in\n{text_of(app.screen)}") from error


async def say(pilot: Pilot[None], words: str, key: str = ":") -> None:
    """Type something on the command line, and Enter."""
    await pilot.press(key)
    await until(pilot, lambda: isinstance(pilot.app.screen, PaletteScreen))
    await pilot.press(*words)
    await shows(pilot, f" : {words}")
    await pilot.press("enter")


# The command line


SAYS = (
    ("clusters", "SAME NOW?"),
    ("transp", "> transports"),
    ("has the locks", "> locks"),
    ("go over", "age x"),
    ("go queue", "scope if you act now: row"),
    ("theme paper", "theme paper"),
    ("help", "Keys of the task list"),
)
"""What is typed one after the other, and what is on screen then."""


async def test_the_command_line(tmp_path: Path) -> None:
    """Some words of a key or of a way are enough to do it, on whatever screen they are said."""
    make_spool(tmp_path, some_tasks())
    console = a_console(disk_place(tmp_path))
    async with console.run_test(size=(80, 24)) as pilot:
        await loaded(pilot)
        for words, then in SAYS:
            assert then not in text_of(console.screen)
            await say(pilot, words)
            await until(pilot, lambda: not isinstance(console.screen, PaletteScreen))
            await shows(pilot, then)


async def test_ctrl_p_is_the_same() -> None:
    """Ctrl-p opens the command line too; what takes words of its own gets them."""
    console = a_console(a_place(a_memory(some_tasks())))
    async with console.run_test(size=(80, 24)) as pilot:
        await loaded(pilot)
        await pilot.press("4")
        await say(pilot, "filter unknown", key="ctrl+p")
        await shows(pilot, "filter: unknown", "4 of 12 match")


async def test_what_the_command_line_cannot_do() -> None:
    """Words that find nothing do nothing; what lacks its words is begun as its key does it."""
    console = a_console(a_place(a_memory(some_tasks())))
    async with console.run_test(size=(80, 24)) as pilot:
        await loaded(pilot)
        before = console.dressing.name
        await say(pilot, "theme nowhere")
        await shows(pilot, "nothing of that name; Esc closes")
        await pilot.press("escape")
        await until(pilot, lambda: console.screen is queue_of(console))
        assert console.dressing.name == before

        await say(pilot, "filt")
        await pilot.press(*"nowhere", "enter")
        await shows(pilot, "filter: nowhere", "0 of 40")


async def test_the_log_of_some_words(tmp_path: Path) -> None:
    """`log TEXT` shows the log lines that hold it, and no others."""
    make_spool(tmp_path, some_tasks())
    console = a_console(disk_place(tmp_path))
    async with console.run_test(size=(80, 24)) as pilot:
        await loaded(pilot)
        await say(pilot, "log moving to DLQ")
        await until(pilot, lambda: isinstance(console.screen, LogScreen))
        await shows(pilot, "moving to DLQ")
        await until(pilot, lambda: "Task completed" not in text_of(console.screen))


async def test_a_place_by_its_name() -> None:
    """With several places each can be gone to by its name."""
    places = [a_place(a_memory(some_tasks()), name=f"/srv/{name}") for name in ("one", "other")]
    console = a_console(*places)
    async with console.run_test(size=(80, 24)) as pilot:
        await loaded(pilot)
        await say(pilot, "place other")
        await until(pilot, lambda: console.here.place.name == "/srv/other")


# Help

BEGIN = "begin"
"""No key: something is begun that takes a while."""

TO: dict[str, tuple[str, ...]] = {
    keys.OVERVIEW: ("q",),
    keys.LIST: (),
    keys.TASK: ("enter",),
    keys.PROBLEMS: ("6", "enter"),
    keys.CLUSTERS: ("c",),
    keys.LOCKS: ("q", "5"),
    keys.TRANSPORTS: ("q", "6"),
    keys.LOG: ("q", "7"),
    keys.PLAN: ("4", "R"),
    keys.LOCK: ("U",),
    keys.OPERATIONS: ("u",),
    keys.OPERATION: (BEGIN,),
    keys.RECORD: ("u", "enter"),
    keys.DROP: ("u", "D"),
    keys.FAILURES: ("q", "6", "enter"),
    keys.SUSPEND: ("q", "6", "S"),
    keys.TRIAL: ("q", "6", "M"),
    keys.CONTROLS: ("C",),
    keys.CONTROL: ("C", "enter"),
}
"""The keys that lead from the list to each screen."""


def test_each_screen_has_a_title_in_the_help() -> None:
    """The help knows every screen that has a key for it, by a name of its own."""
    with_help = {screen for key in keys.KEYS if key.action == "help" for screen in key.screens}
    assert set(TITLES) == with_help == {*TO, keys.WORKER}  # the last needs a place with a worker
    assert len(set(TITLES.values())) == len(TITLES)


def begin(console: Console) -> None:
    """Send nothing, and wait for its outcome, as a replay without a worker does."""
    live = console.here
    intent = Intent("retry", live.place.who)
    live.begin(Plan("retry", (), NOW), intent, Pace())
    console.goto(Target(keys.OPERATION))


async def press_on(pilot: Pilot[None], console: Console, key: str) -> None:
    """Press a key that leads elsewhere, and again where the list has something else to say: that
    the task under the cursor is another one since just now, as it is looked at anew at any time.
    """
    before = console.screen
    while console.screen is before:
        for tasks in before.query(TaskList):
            await until(pilot, partial(lambda each: not (each.unseen or each.altered), tasks))
        said = getattr(before, "_said", None)
        await pilot.press(key)

        def answered(said: object = said) -> bool:
            return console.screen is not before or getattr(before, "_said", None) != said

        await until(pilot, answered, lambda: text_of(console.screen))


async def lead(pilot: Pilot[None], console: Console, screen: str) -> None:
    """From the overview to a screen, as an operator goes."""
    await pilot.press("2")
    await loaded(pilot)
    for key in TO[screen]:
        before = console.screen
        if key == BEGIN:
            begin(console)
            continue
        on_tab = getattr(before, "KIND", "") == keys.LIST and key.isdigit()
        if on_tab:
            await pilot.press(key)
            await until(pilot, lambda: is_done(console))
        else:
            await press_on(pilot, console, key)
        there = console.screen
        if isinstance(there, OperationsScreen):  # what was done is read first
            await until(pilot, partial(lambda board: board.here is not None, there))
        if isinstance(there, TransportsScreen | ControlsScreen):  # these are looked for first
            await until(pilot, partial(lambda board: board.query_one(Picker).rows, there))
    await until(pilot, lambda: getattr(console.screen, "KIND", "") == screen)
    await pilot.pause()


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    """A queue on an ordinary day, with one file that cannot be read."""
    make_spool(tmp_path, some_tasks())
    (tmp_path / "queue/dlq/20261120T094208Z-mail_send-0badf00d.task").write_bytes(b"")
    failed = '"transport":"postfix","recipient":"a@","result":"failed","reason":"450 later"'
    (tmp_path / "delivery.jsonl").write_text(f'{{"ts":"2026-11-20T09:40:00Z",{failed}}}\n')
    return tmp_path


def flushed(place: Place) -> Place:
    """The same place, with something that can be done to it as a whole."""

    def opened() -> Store:
        store = place.open()
        store.controls = {"flush": Control("send what waits")}
        return store

    return place._replace(open=opened)


@pytest.mark.parametrize("screen", TO)
async def test_help_of_each_screen(spool: Path, screen: str) -> None:
    """`?` on each screen lists its keys under its name; a search finds some, or says so."""
    place = a_journaled_place(spool)._replace(recover=("spooldeck", "queue", "recover"))
    place = flushed(place._replace(mail=Mailroom(spool, Clock()).desk()))
    await asyncio.to_thread(interrupt, place)
    console = a_console(place, first=keys.OVERVIEW)
    async with console.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: isinstance(console.screen, OverviewScreen))
        await lead(pilot, console, screen)
        await pilot.press("?")
        await shows(pilot, f"Keys of {TITLES[screen]} ")
        about = [key.about for key in keys.on(screen) if key.action == "help"]
        await pilot.press(*"this page")
        await shows(pilot, *about)
        assert text_of(console.screen).count("  ?  ") == 1
        await pilot.press(*" z")
        await shows(pilot, "no key here has these words; Esc closes")
        await pilot.press("escape")
        await until(pilot, lambda: not isinstance(console.screen, HelpScreen))


# Copies

OSC52 = re.compile(rb"\x1b\]52;c;([A-Za-z0-9+/=]*)\x07")


def copied(terminal: Terminal) -> list[str]:
    """What the terminal was given for its clipboard, in order."""
    return [base64.b64decode(text).decode() for text in OSC52.findall(bytes(terminal.said))]


def copy(terminal: Terminal, letter: str) -> str:
    """What one of the copies sends."""
    before = len(copied(terminal))
    terminal.send("y")
    terminal.shows(" copy -")
    terminal.send(letter)
    terminal.until(lambda: len(copied(terminal)) > before)
    terminal.shows("sent to the clipboard")
    return copied(terminal)[-1]


def test_copies_reach_the_terminal(spool: Path) -> None:
    """On each screen `y` and a letter send exactly that to the clipboard of a real terminal."""
    first = min(path.stem for path in (spool / "queue/pending").iterdir())
    root = str(spool)
    with on_a_terminal(root, size=(100, 30)) as terminal:
        terminal.shows("PEND", "age x", " 40 ")
        assert copy(terminal, "i") == root
        assert shlex.split(copy(terminal, "c"))[:3] == ["spooldeck", "overview", root]
        assert "40" in copy(terminal, "r").split()

        terminal.send("5")
        terminal.shows("> locks", "FREE")
        assert copy(terminal, "i") == root
        assert "no lock file" in copy(terminal, "e")
        terminal.send("6")
        terminal.shows("> transports", "postfix")
        assert copy(terminal, "n") in ("postfix", "sendmail", "curl")
        terminal.send("7")
        terminal.shows("> log", "Queue processor completed")
        assert "Queue processor completed in 1s" in copy(terminal, "l")
        terminal.send("q")
        terminal.shows("age x")

        terminal.send("2")
        terminal.shows("scope if you act now: row", first)
        assert copy(terminal, "i") == first
        row = json.loads(copy(terminal, "j"))
        assert (row["id"], row["state"]) == (first, "pending")
        assert copy(terminal, "r").startswith(first)
        words = shlex.split(copy(terminal, "c"))
        assert words[words.index("queue") :] == ["queue", "list", "--state", "pending"]
        terminal.send("c")
        terminal.shows("SAME NOW?", "F-")
        mark = copy(terminal, "i")
        assert re.fullmatch(r"F-[0-9A-F]{4}", mark)
        assert json.loads(copy(terminal, "j"))["mark"] == mark
        assert copy(terminal, "r").startswith(mark)
        terminal.send("q")
        terminal.shows("scope if you act now: row")
        terminal.send("\r")
        terminal.shows("1 summary", "Esc back")
        assert copy(terminal, "i") == first
        assert first in copy(terminal, "c")
        terminal.send("q")
        terminal.shows("scope if you act now: row")
        terminal.send("6")
        terminal.shows("[6 problems")
        terminal.send("\r")
        terminal.shows("problem 1 of")
        assert copy(terminal, "i") == "dlq/20261120T094208Z-mail_send-0badf00d.task"
        terminal.process.terminate()
        assert terminal.end() == 143


# Plain text


def test_the_screen_as_plain_text(spool: Path) -> None:
    """`=` leaves the full screen, prints what it showed, and Enter comes back to it."""
    with on_a_terminal("--open", "queue", str(spool)) as terminal:
        terminal.opens()
        terminal.shows("mail.prom written")
        ids = sorted(path.stem for path in (spool / "queue/pending").iterdir())[:5]
        ends = [id[-9:] for id in ids]
        terminal.until(lambda: [line[4:13] for line in terminal.screen.lines[4:9]] == ends)
        shown = terminal.screen.lines[4:9]
        before = len(terminal.said)
        terminal.send("=")
        terminal.until(lambda: b"-- as plain text; Enter goes back --" in terminal.said)
        printed = bytes(terminal.said[before:])
        outside = printed[printed.index(b"\x1b[?1049l") :]
        text = outside.decode().replace("\r", "")
        assert all(f"\n{line}\n" in text for line in shown)
        assert b"\x1b[3" not in outside.partition(b"tasks")[2]

        there = len(terminal.said)
        terminal.send("\r")
        terminal.until(lambda: b"\x1b[?1049h" in terminal.said[there:])
        terminal.shows("scope if you act now: row", "[1 pending 40]")
        terminal.send("\x03\x03")
        assert terminal.end() == 0
        assert terminal.restored


# Exports


async def export(pilot: Pilot[None], form: str = "csv") -> Path:
    """Export with the keys, to the usual path in that form; where it is."""
    await pilot.press("e")
    await shows(pilot, "export to", ".csv", "Enter answers")
    if form != "csv":
        await pilot.press(*["backspace"] * 3, "x")
        await shows(pilot, "expected a name that ends in .csv or .jsonl")
        await pilot.press("enter", "backspace", *form)
    await pilot.press("enter")
    await shows(pilot, "rows in spooldeck-")
    (path,) = await asyncio.to_thread(lambda: list(Path().glob(f"spooldeck-*.{form}")))
    return path


@pytest.mark.parametrize("form", ["csv", "jsonl"])
async def test_a_queue_is_exported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    """`e` asks where to, and writes all that the tab and its filter show, in its order."""
    monkeypatch.chdir(tmp_path)
    memory = a_memory(some_tasks(dead=90))
    console = a_console(a_place(memory))
    async with console.run_test(size=(80, 24)) as pilot:
        await loaded(pilot)
        await pilot.press("4", "/", *"unknown", "enter", "o", "a")
        await until(pilot, lambda: task_list(console).loaded and task_list(console).total == 30)
        path = await export(pilot, form)
        text = await asyncio.to_thread(path.read_text)

    lines = text.splitlines()
    read = list(csv.DictReader(lines)) if form == "csv" else [json.loads(line) for line in lines]
    wanted = [t for t in memory.tasks.values() if t.state is State.DEAD and "unknown" in t.error]
    wanted.sort(key=lambda task: task.created)
    assert [row["id"] for row in read] == [task.id for task in wanted]
    assert {row["state"] for row in read} == {"dead"}


async def test_the_overview_is_exported(
    spool: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`e` on the overview writes a row for each queue."""
    monkeypatch.chdir(tmp_path_factory.mktemp("here"))
    console = a_console(disk_place(spool), disk_place(spool, "twin"), first=keys.OVERVIEW)
    async with console.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: all(live.inspector.latest.complete for live in console.lives))
        path = await export(pilot, "jsonl")
        text = await asyncio.to_thread(path.read_text)

    rows = [json.loads(line) for line in text.splitlines()]
    assert [row["place"] for row in rows] == [str(spool), "twin"]
    assert [row["tasks"]["pending"] for row in rows] == [40, 40]


class Slow(OverviewScreen):
    """An overview whose rows come when they are let through."""

    def prepare(self) -> None:
        """Hold the rows back from now on."""
        self.gate, self.handed = asyncio.Semaphore(0), 0

    def sheet(self) -> Sheet | None:
        """Ten thousand at a time, of forty thousand."""

        async def hand(take: Take) -> int:
            for part in range(1, 5):
                await self.gate.acquire()
                values = [{"n": n} for n in range(10_000)]
                if not await asyncio.to_thread(take, values, part * 10_000, 40_000):
                    break
                self.handed = part * 10_000
            return self.handed

        return Sheet("slow", ("n",), hand)


async def test_a_long_export_is_told_of_and_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An export that takes long says how far it is; Esc stops it, and nothing is left of it."""
    monkeypatch.chdir(tmp_path)
    console = a_console(a_place(a_memory(some_tasks())), first=keys.OVERVIEW)
    async with console.run_test(size=(80, 24)) as pilot:
        slow = Slow(console.lives, console.around)
        slow.prepare()
        console.push_screen(slow)
        await until(pilot, lambda: console.screen is slow)
        await pilot.press("e")
        await shows(pilot, "export to")
        await pilot.press("enter")
        slow.gate.release()
        await shows(pilot, "10,000 of 40,000 rows  25%", "[###", "Esc stop")
        slow.gate.release()
        await shows(pilot, "20,000 of 40,000 rows  50%")
        assert await asyncio.to_thread(lambda: list(tmp_path.iterdir()))

        await pilot.press("escape")
        slow.gate.release()
        await shows(pilot, "stopped; nothing was written")
        assert not await asyncio.to_thread(lambda: list(tmp_path.iterdir()))


# The first look


class Long(MemoryStore):
    """A store whose first look would never end."""

    looks = 0

    def look(self, touched: Collection[str] | None = None) -> Iterator[Task | Missing | Problem]:
        """One task after another at first; the second time those that there are."""
        if touched is None:
            type(self).looks += 1
        if touched is not None or self.looks > 1:
            yield from super().look(touched)
            return
        self.expected = 10_000_000
        number = 0
        while True:
            yield a_task(number, rev="1")
            number += 1


async def test_a_long_first_look_is_told_of_and_stopped() -> None:
    """How far the first look is stands below the list; Esc stops it, and `r` looks again."""
    Long.looks = 0
    memory = a_memory(some_tasks())
    clock = Clock()
    console = a_console(a_place(memory)._replace(open=lambda: Long(memory)), clock=clock)
    async with console.run_test(size=(80, 24)) as pilot:
        await shows(pilot, "of 10,000,000 tasks", "[....", "Esc stops")
        clock.now += 10
        await until(pilot, lambda: re.search(r"\d left  Esc stops", text_of(console.screen)))

        await pilot.press("escape")
        await shows(pilot, "stopped at ", "; r goes on")
        assert queue_of(console).inspector.latest.halted
        assert "Esc stops" not in text_of(console.screen)

        await pilot.press("r")
        await shows(pilot, "[1 pending 40]")
        await until(pilot, lambda: "r goes on" not in text_of(console.screen))


class Backwards(MemoryStore):
    """A store whose first look finds the latest first, and so many at a time as are let through."""

    gate = threading.Semaphore(0)

    def look(self, touched: Collection[str] | None = None) -> Iterator[Task | Missing | Problem]:
        """A hundred tasks, and then as many each time the gate opens."""
        found = list(super().look(touched))
        for number, item in enumerate(found if touched is not None else reversed(found)):
            if touched is None and number and not number % 100:
                self.gate.acquire(timeout=PATIENCE)
            yield item


@pytest.mark.parametrize(("key", "at"), [("", 0), ("enter", 200)])
async def test_a_list_is_opened_at_its_top(key: str, at: int) -> None:
    """Whatever is found first, the cursor is at the top in the end, unless a key meant its task."""
    Backwards.gate = threading.Semaphore(0)
    memory = a_memory([a_task(number, rev="1") for number in range(300)])
    console = a_console(a_place(memory)._replace(open=lambda: Backwards(memory)))
    async with console.run_test(size=(80, 24)) as pilot:
        try:
            await shows(pilot, "1/100", a_task(200).id[:16])
            if key:
                await pilot.press(key)
                await until(pilot, lambda: console.screen is not queue_of(console))
                await pilot.press("escape")
        finally:
            Backwards.gate.release(2)
        await loaded(pilot)

        await shows(pilot, f" {at + 1}/300")
        assert task_list(console).cursor.id == a_task(at).id


# Order and range


@pytest.mark.parametrize(
    ("letter", "marks", "attribute"),
    [
        ("k", ("^KIND", "vKIND"), "kind"),
        ("a", ("vAGE", "^AGE"), "created"),
        ("t", ("^TRI", "vTRI"), "attempts"),
        ("w", ("vDEAD", "^DEAD"), "dead_since"),
        ("e", ("^ERROR OR", "vERROR OR"), "error"),
    ],
)
async def test_each_order(letter: str, marks: tuple[str, str], attribute: str) -> None:
    """`o` and a letter order by a column, again the other way; the title of it says so."""
    memory = a_memory([a_task(n, State.DEAD, attempts=n * 7 % 5, rev="1") for n in range(12)])
    console = a_console(a_place(memory))

    def value(id: str) -> object:
        task = memory.tasks["", id]
        return task.extra[attribute] if attribute in task.extra else getattr(task, attribute)

    async with console.run_test(size=(80, 24)) as pilot:
        await loaded(pilot)
        await pilot.press("4")
        for mark, falls in zip(marks, (False, True), strict=True):
            await pilot.press("o")
            await shows(pilot, "order by")
            again = re.search(f" {letter} [a-z ]+, the other way", text_of(console.screen))
            assert bool(again) is falls
            await pilot.press(letter)
            await shows(pilot, mark)
            await until(pilot, lambda: task_list(console).loaded)
            values = [value(task.id) for task in task_list(console)._window.tasks]
            assert values == sorted(values, reverse=falls)  # type: ignore[type-var]


async def test_a_range_is_marked() -> None:
    """`v`, a motion and `v` mark all rows between; Esc drops a range, and a verb waits for it."""
    console = a_console(a_place(a_memory(some_tasks())))
    async with console.run_test(size=(100, 40)) as pilot:
        await loaded(pilot)
        await pilot.press("4")
        await until(pilot, lambda: is_done(console))
        await pilot.press("j", "v", "j", "j")
        await shows(pilot, "3 ")
        assert len(re.findall(r"^[> ]\* \d", text_of(console.screen), re.MULTILINE)) == 3
        await pilot.press("R")
        await shows(pilot, "a range is being marked: v marks it, Esc drops it")
        await pilot.press("v")
        await shows(pilot, "scope if you act now: 3 marked")

        await pilot.press("v", "k", "escape")
        await shows(pilot, "scope if you act now: 3 marked")
        assert len(re.findall(r"^[> ]\* \d", text_of(console.screen), re.MULTILINE)) == 3
        await pilot.press("\\")
        await shows(pilot, "scope if you act now: row")
