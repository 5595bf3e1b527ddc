"""Keys: which screen gets each key of a burst, and which keys are pasted or come too early."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from typing import Any

import pytest
from pytest import MonkeyPatch
from textual import events
from textual._xterm_parser import XTermParser
from textual.app import ComposeResult
from textual.binding import Binding
from textual.events import Key
from textual.screen import ModalScreen, Screen
from textual.widgets import Input

import tui
from engine.index.schema import Window
from engine.model import State
from tests.console_operator import ConsoleOperator, an_operator
from tests.console_places import (
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
    show_all,
    some_tasks,
    until,
)
from tests.examples import deep_but, few_of
from tests.pseudo_terminals import console as terminal_with
from tests.tui.conftest import READING
from tui.app import Console
from tui.confirm.confirm_screen import ConfirmScreen
from tui.plan.screen import PlanScreen
from tui.queue.problems_screen import ProblemsScreen
from tui.queue.screen import QueueScreen
from tui.screens.base import PASTED, TOO_EARLY, BaseScreen
from tui.screens.dialogs import QuitScreen
from tui.screens.target import Target
from tui.terminal import key_queue
from tui.terminal.clipboard import screen_text
from tui.terminal.driver import parse_keys
from tui.terminal.key_queue import (
    BURST_KEYS,
    BURST_SECONDS,
    ConfirmGuard,
    KeyQueue,
    PasteDetector,
    is_burst,
)
from tui.terminal.safe_app import SafeApp
from tui.terminal.sized_screen import SizedScreen
from tui.text import keys
from tui.widgets import task_rows
from tui.widgets.line_widgets import LongText
from tui.widgets.task_list import TaskList

NAMED = {"\r": "enter", "\x1b": "escape", "\t": "tab", " ": "space", "\x03": "ctrl+c"}
SIGNS = {"/": "slash", ":": "colon", "?": "question_mark", ">": "greater_than_sign"}
SIGNS |= {"=": "equals_sign", "&": "ampersand", "@": "at", "*": "asterisk"}


def send(operator: ConsoleOperator, burst: str) -> None:
    """Let the keys arrive in one read, each as the terminal's parser would make it."""
    for character in burst:
        name = NAMED.get(character) or SIGNS.get(character) or character
        text = None if character in NAMED and character != " " else character
        operator.console.post_message(Key(name, text))


@pytest.fixture(autouse=True)
def keys_wait_long(monkeypatch: MonkeyPatch) -> None:
    """However busy the machine is, a key waits for what was begun before it."""
    for name in ("MAX_WAIT_SECONDS", "ROWS_TIMEOUT_SECONDS"):
        monkeypatch.setattr(key_queue, name, PATIENCE)
    patient = dict.fromkeys(key_queue.AWAITED_WORKERS, PATIENCE)
    monkeypatch.setattr(key_queue, "AWAITED_WORKERS", patient)


@asynccontextmanager
async def opened(
    root: Path | None = None, *, first: str = keys.LIST
) -> AsyncIterator[ConsoleOperator]:
    """A console on a queue in memory, or on disk."""
    place = a_place(a_memory(some_tasks())) if root is None else disk_place(root)
    console = a_console(place, clock=Clock(), first=first)
    async with console.run_test(size=(80, 24)) as pilot:
        if first == keys.LIST:
            await loaded(pilot)
        await until(pilot, lambda: all(map(is_known, console.sessions)))
        yield ConsoleOperator(console, pilot)


def seen(app: Console) -> tuple[str, ...]:
    """The screens, the row of the cursor, the typed words and the focus."""
    show_all(app)
    lists = [rows for screen in app.screen_stack for rows in screen.query(TaskList)]
    for rows in lists:
        rows.paint()  # the title says which row it is when it is next painted
    screens = [type(screen).__name__ for screen in app.screen_stack]
    ids = [rows.rows.view.cursor.id for rows in lists]
    words = [getattr(widget, "value", "") for widget in app.screen.query("Input")]
    faces = [s for s in app.screen_stack if isinstance(s, BaseScreen)]
    below = screen_text(faces[-1]).partition("\n")[2]  # the first line has the traffic of the wire
    return (*screens, *ids, *words, below, str(app.focused))


async def at_rest(operator: ConsoleOperator) -> tuple[str, ...]:
    """The same once nothing changes there any more."""
    app, pilot = operator.console, operator.pilot
    before, now = tuple[str, ...](), seen(app)

    def is_read() -> bool:
        plans = [screen.facts for screen in app.screen_stack if isinstance(screen, PlanScreen)]
        lists = [screen.parts for screen in app.screen_stack if isinstance(screen, QueueScreen)]
        counted = (
            parts.matches[0] == parts.filter.filter for parts in lists if parts.filter.filter
        )
        return all(facts.is_closed or (facts.tasks and facts.size) for facts in plans) and all(
            counted
        )

    while before != now:
        await pilot.pause()
        await until(pilot, lambda: is_done(app) and is_read(), lambda: screen_text(app.screen))
        await pilot.pause()
        before, now = now, seen(app)
    return now


BURSTS = (
    "/Xc\rj",
    ":locks\rj\x1bj",
    "4oaj",
    "yiX",
    "4Rj\x1bj",
    "G/feeds\rk",
    "/xyz\x1bj",
    "/kind:mail_send\r4j",
    ":filter tries>=4\r",
    ":dlq\x1bj",
    "oijj",
    "?X\x1b j",
    "jj\r\x1bj",
    "4cj\x1bj",
    "e/x\x1bj",
    "vjjv:unmark\r",
    "/\x03j",
    "=j",
)
"""Through filters, questions, menus and plans; each run has the first six."""


async def test_a_burst_is_what_its_keys_are() -> None:
    """Keys that come in one read lead to the same screen, row and words as keys one by one."""
    await compare_bursts(few_of(BURSTS[:6], BURSTS), None, keys.LIST)


async def compare_bursts(bursts: Sequence[str], root: Path | None, first: str) -> None:
    """Compare what is on screen after each burst with that after the same keys one by one."""
    slowly, at_once = [await after(bursts, root, first, is_slow=slow) for slow in (True, False)]
    for burst, one_by_one, in_one_read in zip(bursts, slowly, at_once, strict=True):
        assert one_by_one == in_one_read, burst


async def after(
    bursts: Sequence[str], root: Path | None, first: str, *, is_slow: bool
) -> list[tuple[str, ...]]:
    """The screen after each of these bursts, which all begin on the same screen."""
    screens = []
    async with opened(root, first=first) as operator:
        for burst in bursts:
            for character in burst:
                send(operator, character)
                if is_slow:
                    await at_rest(operator)
            screens.append(await at_rest(operator))
            while isinstance(operator.console.screen, ModalScreen):
                await operator.press("escape")
            operator.console.navigator.goto(Target(first))
            await at_rest(operator)
            if first == keys.LIST:
                await operator.press(*["escape"] * operator.queue.parts.filter.is_open, "2", "g")
                await at_rest(operator)
    return screens


async def test_keys_wait_for_the_row_that_the_cursor_went_to(monkeypatch: MonkeyPatch) -> None:
    """Where it was not fetched yet, a filter behind it begins at the task, not at a line."""
    async with opened() as operator:
        rows = operator.queue.parts.rows
        window, event = rows._source.window, asyncio.Event()

        async def late(*asked: Any, **how: Any) -> Window:
            await event.wait()
            return await window(*asked, **how)

        monkeypatch.setattr(rows._source, "window", late)
        send(operator, "G/feeds\rk")
        await until(operator.pilot, lambda: rows.view.cursor.at == rows.view.total - 1)
        held = rows.view.loaded
        event.set()
        await at_rest(operator)
        assert not held
        assert (rows.view.cursor.at, rows.view.matching) == (0, 13)


async def test_enter_right_behind_the_tab_opens_its_problems(tmp_path: Path) -> None:
    """Enter waits until the problems are there that the key before it has asked for."""
    make_spool(tmp_path, some_tasks())
    broken = tmp_path / "queue" / "dlq" / "broken.task"
    await asyncio.to_thread(broken.write_bytes, b"")
    async with opened(tmp_path) as operator:
        slow, queries = threading.Event(), operator.queue.session.inspector.queries
        asking = asyncio.ensure_future(queries._windows._lane.run(slow.wait))
        asyncio.get_running_loop().call_later(0.2, slow.set)
        send(operator, "h\r")
        assert await asking
        await at_rest(operator)
        assert isinstance(operator.console.screen, ProblemsScreen)


async def test_a_paste_comes_in_its_turn_and_is_no_key() -> None:
    """What is pasted right behind `/` is the filter; on the list a paste does nothing."""
    async with opened() as operator:
        before = await at_rest(operator)
        operator.console.post_message(events.Paste("Xq4"))
        assert await at_rest(operator) == before
        send(operator, "/")
        operator.console.post_message(events.Paste("Xq4"))
        send(operator, "5")
        await at_rest(operator)
        assert operator.console.screen.query_one(Input).value == "Xq45"


FROM_OVERVIEW = ("7/feeds\rnn", "4oaj", "7&feeds\r", "7@09:41\rj", "2jj4k")


async def test_a_burst_that_begins_on_the_overview(tmp_path: Path) -> None:
    """Through boards, questions and menus each key finds the screen that the last one opened."""
    make_spool(tmp_path, some_tasks())
    await compare_bursts(few_of(FROM_OVERVIEW[:2], FROM_OVERVIEW), tmp_path, keys.OVERVIEW)


PTY = {
    "/gmail\r": ("filter gmail", "0 of 40"),
    "4oajj": ("4 DLQ 12", "acts on "),
    "/\x1b[200~Xq4\x1b[201~5\r": ("filter Xq45",),
}
"""The keys, and the text on screen then."""


@pytest.mark.parametrize("burst", deep_but([*PTY][:1], PTY))
def test_a_burst_on_a_terminal(tmp_path: Path, burst: str) -> None:
    """Keys in one read of the terminal do what they do when they are typed slowly."""
    make_spool(tmp_path, some_tasks())
    first = min(path.stem for path in (tmp_path / "queue/pending").iterdir())
    with terminal_with("--open", "queue", str(tmp_path)) as terminal:
        terminal.opens()
        terminal.send("g")  # the cursor stays on the task that was the first to be seen
        terminal.shows(f"acts on {first[-8:]}")
        terminal.send(burst)
        terminal.shows(*PTY[burst])
        terminal.send("\x1b")
        terminal.process.terminate()
        assert (terminal.end(), terminal.restored) == (143, True)


def keys_of(*reads: str) -> list[str]:
    """The keys that these reads of the terminal are, one after the other within 100 ms."""
    parser, keys, is_after_escape = XTermParser(), list[str](), False
    for text in reads:
        events = parse_keys(parser, text, is_after_escape)
        keys += [event.key for event in events if isinstance(event, Key)]
        is_after_escape = text.endswith("\x1b")
    return keys


def test_a_key_right_after_escape_is_not_lost() -> None:
    """Esc and the next key in one packet, or soon after each other, are both; the sequences of the
    terminal stay whole, also in pieces."""
    for key in ("3", "X", "/", " ", "j"):
        assert keys_of("\x1b" + key) == keys_of("\x1b", key) == ["escape", *keys_of(key)]
    assert keys_of("\x1b3\x1bj") == ["escape", "3", "escape", "j"]
    for sequence, key in (("\x1b[A", "up"), ("\x1bOA", "up"), ("\x1b[5~", "pageup")):
        assert keys_of(sequence) == keys_of("\x1b", sequence[1:]) == [key]
        assert keys_of(sequence[:2], sequence[2:]) == [key]


async def test_a_key_is_accepted_once_it_has_acted() -> None:
    """The message pump, which accepts one key after the other, waits until each has acted."""
    began, go_on = asyncio.Event(), asyncio.Event()

    async def act(_: events.Event) -> None:
        began.set()
        await go_on.wait()

    async with opened() as operator:
        accepted = asyncio.create_task(KeyQueue(operator.console, act).accept_key(Key("j", "j")))
        await began.wait()
        await operator.pilot.pause()
        assert not accepted.done()
        go_on.set()
        await accepted


# ---- keys that were pasted, typed too early, or meant for another task


def bursts(pressed: str, seconds: float) -> list[bool]:
    """Which of some keys are a burst that come one after the other, in so many seconds each."""
    guard, burst = PasteDetector(), [Key(key, key) for key in pressed]
    for number, key in enumerate(burst):
        if seconds:
            guard.record_keys([key], 10.0 + number * seconds)
    if not seconds:
        guard.record_keys(burst, 10.0)
    return [is_burst(key) for key in burst]


def test_what_arrives_faster_than_a_hand_types_is_a_burst() -> None:
    """As many keys as no hand types in a moment are marked, also when they come in several reads;
    two digits are a burst by themselves, as they would be a plan's count."""
    assert bursts("y" * BURST_KEYS, 0.0) == [True] * BURST_KEYS
    assert bursts("y" * (BURST_KEYS - 1), 0.0) == [False] * (BURST_KEYS - 1)
    assert bursts("y" * BURST_KEYS, BURST_SECONDS / BURST_KEYS)[-1]
    assert not any(bursts("y" * BURST_KEYS, BURST_SECONDS * 2))
    assert bursts("16", 0.0) == bursts("16", BURST_SECONDS / 2) == [True] * 2
    assert bursts("16", BURST_SECONDS * 2) == bursts("1y", 0.0) == [False] * 2


def test_a_key_confirms_what_was_on_screen_for_long_enough() -> None:
    """A key counts from 300 ms after the first paint, the last change, or the next paint."""
    guard = ConfirmGuard()
    assert guard.is_early(10.0)
    guard.plan_painted(10.0)
    guard.plan_painted(20.0)  # its clock was painted again
    assert [guard.is_early(time) for time in (9.0, 10.25, 10.5)] == [True, True, False]
    guard.plan_changed(30.0)
    assert [guard.is_early(time) for time in (30.25, 30.5)] == [True, False]
    guard.plan_hidden()
    guard.plan_changed(40.0)
    assert guard.is_early(50.0)
    guard.plan_painted(60.0)
    assert [guard.is_early(time) for time in (60.25, 60.5)] == [True, False]


def test_each_screen_that_confirms_is_guarded() -> None:
    """Each screen with a confirming key refuses one that comes too early; all take their size from
    the terminal."""
    confirming = ("action_yes", "action_digit", "action_keep")
    names = [m.name for m in walk_packages(tui.__path__, "tui.") if not m.ispkg]
    modules = [import_module(name) for name in names if not name.startswith("tui.cli.")]
    screens = {
        screen
        for module in modules
        for screen in vars(module).values()
        if isinstance(screen, type) and issubclass(screen, Screen) and "BINDINGS" in vars(screen)
    }
    bound = {screen for screen in screens if any(hasattr(screen, name) for name in confirming)}
    assert len(bound) == 4
    assert all(issubclass(screen, ConfirmScreen | QuitScreen) for screen in bound)
    ours = {screen for screen in screens if screen.__module__.startswith("tui.")}
    assert len(ours) >= 20
    assert all(issubclass(screen, SizedScreen) for screen in ours)


async def test_a_question_before_leaving_is_seen_first(monkeypatch: MonkeyPatch) -> None:
    """A key that was typed before the question to leave was painted stops no worker."""
    async with an_operator(a_place(a_memory([]))) as operator:
        answers: list[str | None] = []
        operator.console.push_screen(QuitScreen({4711: "first"}), answers.append)
        await operator.opens(QuitScreen)
        await operator.sees("Worker PID 4711 of first, started here, is running.")
        with monkeypatch.context() as before:
            before.setattr(key_queue, "CONFIRM_SECONDS", 2 * READING)
            await operator.press("k")
        assert answers == []
        await operator.sees(TOO_EARLY)

        await operator.press("k")
        assert answers == ["keep"]


@pytest.mark.parametrize("pasted", deep_but(["Xy"], ["Xy", "aXyb"]))
def test_a_paste_on_a_terminal_applies_no_plan(tmp_path: Path, pasted: str) -> None:
    """Keys that a terminal pastes as if they were typed confirm no plan, nor one that they open;
    they do not disarm either."""
    make_spool(tmp_path, some_tasks())
    trash = tmp_path / "queue/.spooldeck/trash"
    with terminal_with("--open", "queue", str(tmp_path)) as terminal:
        terminal.shows("acts on")
        terminal.send("!")
        terminal.shows("ARMED")
        terminal.reads()
        terminal.send(pasted)
        terminal.shows("plan, nothing written yet", TOO_EARLY, "y to purge this task")
        terminal.until(lambda: TOO_EARLY not in terminal.screen.text)
        terminal.send("!yyyyy")
        terminal.shows(PASTED)
        terminal.until(lambda: PASTED not in terminal.screen.text)
        assert not trash.exists() or not list(trash.iterdir())
        terminal.shows("y to purge this task")
        terminal.send("y")
        terminal.shows("result", "purged")
        assert len(list(trash.iterdir())) == 1
        terminal.process.terminate()
        terminal.end()


async def test_a_key_for_a_task_that_just_changed_is_refused(monkeypatch: MonkeyPatch) -> None:
    """A key is not for a task that changed under the cursor a moment before it was pressed."""
    monkeypatch.setattr(task_rows, "SEEN_SECONDS", 60.0)
    memory = a_memory(some_tasks())
    async with an_operator(a_place(memory)) as operator:
        screen = operator.queue
        await operator.until(lambda: screen.parts.rows.view.task_here is not None)
        task = screen.parts.rows.view.task_here
        assert task is not None and task.state is State.PENDING
        with memory.condition:
            memory.put(("", task.id), task._replace(description="another"))
        await operator.until(lambda: screen.parts.rows.is_altered)
        await operator.press("X")
        assert operator.console.screen is screen
        await operator.sees("changed just now")


# ---- whose key it is where painted lines have the focus: the rules of the library hold


class Bound(LongText):
    """Lines with keys of their own."""

    BINDINGS = [Binding(key, f"app.note('lines {key}')") for key in ("a", "ctrl+c")]


class Pane(Screen[None]):
    """A screen with lines, which have the focus, and with an input."""

    AUTO_FOCUS = "Bound"
    BINDINGS = [Binding(key, f"app.note('screen {key}')") for key in "ab"]

    def compose(self) -> ComposeResult:
        """Both."""
        yield from (Bound(), Input())


class Question(ModalScreen[None]):
    """A question, made of nothing but lines, above the screen."""

    AUTO_FOCUS = "LongText"
    BINDINGS = [Binding("a", "app.note('question a')")]

    def compose(self) -> ComposeResult:
        """The lines."""
        yield LongText()


class Noting(SafeApp):
    """An app that writes down what was done."""

    BINDINGS = [
        *(Binding(key, f"note('app {key}')") for key in "bc"),
        Binding("ctrl+c", "note('app ctrl+c')", priority=True),
    ]

    def __init__(self) -> None:
        super().__init__()
        self.done: list[str] = []

    def action_note(self, what: str) -> None:
        """Write it down."""
        self.done.append(what)


async def test_the_nearest_binding_has_the_key() -> None:
    """A key is for the nearest that binds it, save for a priority binding; letters go into an
    input; above a question no key acts but its own."""
    app = Noting()
    async with app.run_test() as pilot:
        await app.push_screen(Pane())
        await pilot.press("a", "b", "c", "ctrl+c", "d")
        assert app.done == ["lines a", "screen b", "app c", "app ctrl+c"]

        app.done.clear()
        line = app.screen.query_one(Input)
        line.focus()
        await pilot.press("a", "b")
        assert (line.value, app.done) == ("ab", [])

        await app.push_screen(Question())
        await pilot.press("a", "b", "c", "ctrl+c")
        assert app.done == ["question a", "app ctrl+c"]
