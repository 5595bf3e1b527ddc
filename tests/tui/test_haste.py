"""What no hand typed, and what was meant for what stood there before, is no command."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from textual.events import Key

from engine.model import State
from tests.tui.ptys import console as terminal_with
from tests.tui.spools import (
    Clock,
    a_console,
    a_memory,
    a_place,
    loaded,
    make_spool,
    some_tasks,
    until,
)
from tui import keys
from tui.haste import MANY, WITHIN, Haste, is_burst
from tui.plain import text_of
from tui.screens.queue import QueueScreen
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


def test_a_paste_applies_no_plan(spool: str) -> None:
    """Keys that a terminal pastes as if they were typed arm nothing and apply nothing."""
    trash = Path(spool, "queue/.spooldeck/trash")
    with terminal_with("--open", "queue", spool) as terminal:
        terminal.shows("scope if you act now: row")
        terminal.send("X")
        terminal.shows("OBSERVE: this plan cannot be applied")
        terminal.send("!")
        terminal.shows("y to purge this task")
        terminal.send("!yyyyy")
        terminal.shows("these keys came all at once")
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
