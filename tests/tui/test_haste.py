"""Keys that were pasted or typed too early, or meant for another task, are no commands."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

import pytest
from textual.events import Key
from textual.screen import Screen

from engine.model import State
from tests.tui.conftest import READING
from tests.tui.desks import a_desk
from tests.tui.ptys import console as terminal_with
from tests.tui.spools import a_memory, a_place, make_spool, queue_of, some_tasks
from tui import haste, screens
from tui.haste import MANY, WITHIN, ConfirmGuard, Confirming, Haste, is_burst
from tui.screens.face import HASTY
from tui.screens.quit import QuitScreen
from tui.widgets import task_list


def bursts(pressed: str, seconds: float) -> list[bool]:
    """Which of some keys are a burst that come one after the other, in so many seconds each."""
    guard, keys = Haste(), [Key(key, key) for key in pressed]
    if seconds:
        for number, key in enumerate(keys):
            guard.heard([key], 10.0 + number * seconds)
    else:
        guard.heard(keys, 10.0)
    return [is_burst(key) for key in keys]


def test_what_arrives_faster_than_a_hand_types_is_a_burst() -> None:
    """As many keys as no hand types in a moment are marked, also when they come in several reads;
    four digits are a burst by themselves, as they would be a plan's count.
    """
    assert bursts("y" * MANY, 0.0) == [True] * MANY
    assert bursts("y" * (MANY - 1), 0.0) == [False] * (MANY - 1)
    assert bursts("y" * MANY, WITHIN / MANY)[-1]
    assert not any(bursts("y" * MANY, WITHIN * 2))
    assert bursts("3000", 0.0) == [True] * 4
    assert bursts("300", 0.0) == [False] * 3


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


async def test_a_question_before_leaving_is_seen_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key that was typed before the question to leave was painted stops no worker."""
    async with a_desk(a_place(a_memory([]))) as desk:
        answers: list[str | None] = []
        desk.console.push_screen(QuitScreen((4711,)), answers.append)
        await desk.opens(QuitScreen)
        with monkeypatch.context() as before:
            before.setattr(haste, "CONFIRM_SECONDS", 2 * READING)
            await desk.press("k")
        assert answers == []
        await desk.sees(HASTY)

        await desk.press("k")
        assert answers == ["keep"]


@pytest.mark.deep
@pytest.mark.parametrize("pasted", ["Xy", "aXyb"])
def test_a_paste_on_a_terminal_applies_no_plan(tmp_path: Path, pasted: str) -> None:
    """Keys that a terminal pastes as if they were typed confirm no plan, nor one that they open;
    they do not disarm either.
    """
    make_spool(tmp_path, some_tasks())
    trash = tmp_path / "queue/.spooldeck/trash"
    with terminal_with("--open", "queue", str(tmp_path)) as terminal:
        terminal.shows("scope if you act now: row")
        terminal.send("!")
        terminal.shows("ARMED")
        terminal.reads()
        terminal.send(pasted)
        terminal.shows("plan, nothing is written yet", HASTY)
        terminal.shows("y to purge this task")
        terminal.reads()
        terminal.send("!yyyyy")
        terminal.shows(HASTY)
        assert not trash.exists() or not list(trash.iterdir())
        terminal.shows("y to purge this task")
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
    async with a_desk(a_place(memory)) as desk:
        screen = queue_of(desk.console)
        task = screen.list.task_here
        assert task is not None and task.state is State.PENDING
        with memory.changed:
            memory.put(("", task.id), replace(task, description="another"))
        await desk.until(lambda: screen.list.altered)
        await desk.press("X")

        assert desk.console.screen is screen
        await desk.sees("changed just now")
