"""What no hand typed, and what was meant for what stood there before, is no command."""

from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

import pytest
from textual.events import Key
from textual.screen import Screen

from engine.model import State
from tests.tui.conftest import READING
from tests.tui.ptys import console as terminal_with
from tests.tui.spools import (
    Clock,
    a_console,
    a_memory,
    a_place,
    a_task,
    loaded,
    make_spool,
    some_tasks,
    until,
)
from tui import haste, keys, screens
from tui.haste import MANY, WITHIN, ConfirmGuard, Confirming, Haste, is_burst
from tui.plain import text_of
from tui.screens.face import HASTY
from tui.screens.plan import PlanScreen
from tui.screens.queue import QueueScreen
from tui.screens.quit import QuitScreen
from tui.widgets import task_list


def some_keys(many: int) -> list[Key]:
    """So many keys."""
    return [Key("y", "y") for _ in range(many)]


def test_what_arrives_at_once_is_a_burst() -> None:
    """As many keys as no hand types in a moment are marked, each of them."""
    haste, few, many = Haste(), some_keys(MANY - 1), some_keys(MANY)

    haste.heard(few, 10.0)
    haste.heard(many, 20.0)

    assert not any(map(is_burst, few))
    assert all(map(is_burst, many))


def test_what_arrives_piece_by_piece_is_a_burst_too() -> None:
    """A paste that comes in several reads is none the less one; what a hand types is not."""
    pasted, typed = some_keys(MANY), some_keys(MANY)
    haste = Haste()

    for number, key in enumerate(typed):
        haste.heard([key], 10.0 + number * WITHIN * 2)
    for number, key in enumerate(pasted):
        haste.heard([key], 20.0 + number * WITHIN / MANY)

    assert not any(map(is_burst, typed))
    assert is_burst(pasted[-1])


@pytest.mark.parametrize(("typed", "burst"), [("3000", True), ("300", False), ("yyyy", False)])
def test_a_count_that_arrives_at_once_was_typed_by_nobody(typed: str, burst: bool) -> None:
    """Four digits of one moment are a burst already: they would be a plan's count by themselves."""
    haste, pressed = Haste(), [Key(key, key) for key in typed]

    haste.heard(pressed, 10.0)

    assert [is_burst(key) for key in pressed] == [burst] * len(typed)


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[str]:
    """A queue on an ordinary day."""
    make_spool(tmp_path, some_tasks())
    yield str(tmp_path)


@pytest.mark.parametrize("pasted", ["Xy", "XyXy", "aXyb"])
def test_a_short_paste_confirms_no_plan_that_it_opens(spool: str, pasted: str) -> None:
    """Two pasted keys purge nothing: `y` arrived before the plan was on screen."""
    trash = Path(spool, "queue/.spooldeck/trash")
    with terminal_with("--open", "queue", spool) as terminal:
        terminal.shows("scope if you act now: row")
        terminal.send("!")
        terminal.shows("ARMED")
        terminal.reads()
        terminal.send(pasted)
        terminal.shows("plan, nothing is written yet", HASTY)
        assert not trash.exists() or not list(trash.iterdir())
        terminal.process.terminate()
        terminal.end()


def test_a_key_confirms_what_was_on_screen_for_long_enough() -> None:
    """A key counts from 300 ms after the first paint, the last change, or the next paint."""
    guard = ConfirmGuard()
    early = [guard.is_early(10.0)]
    guard.painted(10.0)
    guard.painted(20.0)  # its clock was painted again
    early += [guard.is_early(9.0), guard.is_early(10.25), guard.is_early(10.5)]
    guard.changed(30.0)
    early += [guard.is_early(30.25), guard.is_early(30.5)]
    guard.hidden()
    guard.changed(40.0)
    early += [guard.is_early(50.0)]
    guard.painted(60.0)
    early += [guard.is_early(60.25), guard.is_early(60.5)]

    assert early == [True, True, True, False, True, False, True, True, False]


CONFIRMED = ("yes", "digit", "keep")
"""Actions that confirm something."""


def test_each_screen_that_confirms_is_guarded() -> None:
    """Each screen with a confirming key refuses one that comes too early."""
    modules = [import_module(f"tui.screens.{m.name}") for m in iter_modules(screens.__path__)]
    bound = {
        screen
        for module in modules
        for screen in vars(module).values()
        if isinstance(screen, type) and issubclass(screen, Screen)
        if any(b.action.partition("(")[0] in CONFIRMED for b in vars(screen).get("BINDINGS", ()))
    }

    assert len(bound) >= 7
    assert all(issubclass(screen, Confirming) for screen in bound)


@pytest.mark.parametrize("typed", [["y"], ["4", "2"]], ids=["yes", "count"])
async def test_a_key_before_the_plan_was_seen_does_nothing(
    monkeypatch: pytest.MonkeyPatch, typed: list[str]
) -> None:
    """An early key is ignored with a word that says so; the same key later confirms the plan."""
    memory = a_memory([a_task(number) for number in range(1 if typed == ["y"] else 42)])
    console = a_console(a_place(memory), clock=Clock(), start_armed=True, first=keys.LIST)
    async with console.run_test(size=(100, 30)) as pilot:
        await loaded(pilot)
        await pilot.press("*", "H")
        await until(pilot, lambda: isinstance(console.screen, PlanScreen))
        with monkeypatch.context() as before:
            before.setattr(haste, "CONFIRM_SECONDS", 2 * READING)
            await pilot.press(*typed)
            assert HASTY in text_of(console.screen)
        assert {task.state for task in memory.tasks.values()} == {State.PENDING}

        await pilot.press(*typed)

        await until(pilot, lambda: "in the result" in text_of(console.screen))
        assert {task.state for task in memory.tasks.values()} == {State.HELD}


async def test_a_question_before_leaving_is_seen_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key that was typed before the question to leave was painted stops no worker."""
    console = a_console(a_place(a_memory([])))
    async with console.run_test(size=(80, 24)) as pilot:
        answers: list[str | None] = []
        screen = QuitScreen((4711,))
        await console.push_screen(screen, answers.append)
        with monkeypatch.context() as before:
            before.setattr(haste, "CONFIRM_SECONDS", 2 * READING)
            await pilot.press("k")
        assert answers == []
        assert HASTY in text_of(screen)

        await pilot.press("k")

        assert answers == ["keep"]


def test_a_paste_applies_no_plan(spool: str) -> None:
    """Keys that a terminal pastes as if they were typed arm nothing and apply nothing."""
    trash = Path(spool, "queue/.spooldeck/trash")
    with terminal_with("--open", "queue", spool) as terminal:
        terminal.shows("scope if you act now: row")
        terminal.send("X")
        terminal.shows("OBSERVE: this plan cannot be applied")
        terminal.send("!")
        terminal.shows("y to purge this task")
        terminal.reads()
        terminal.send("!yyyyy")
        terminal.shows(HASTY)
        assert not trash.exists() or not list(trash.iterdir())
        terminal.shows("y to purge this task")  # armed still, and nothing is said any more
        terminal.send("y")
        terminal.shows("1 purged")
        assert len(list(trash.iterdir())) == 1
        terminal.process.terminate()
        terminal.end()


async def test_a_key_for_a_task_that_just_changed_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A key is not for a task that changed under the cursor a moment before it was pressed."""
    monkeypatch.setattr(task_list, "LAG", 60.0)
    memory = a_memory(some_tasks())
    console = a_console(a_place(memory), clock=Clock(), start_armed=True, first=keys.LIST)
    async with console.run_test(size=(80, 24)) as pilot:
        await loaded(pilot)
        screen = console.screen
        assert isinstance(screen, QueueScreen)
        task = screen.list.task_here
        assert task is not None and task.state is State.PENDING
        with memory.changed:
            memory.put(("", task.id), replace(task, description="another"))
        await until(pilot, lambda: screen.list.altered)

        await pilot.press("X")

        assert console.screen is screen
        assert "changed just now" in text_of(screen)
