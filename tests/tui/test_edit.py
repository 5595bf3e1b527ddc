"""The form for `E`: what is typed is understood while it is, and nothing is written from it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from textual.pilot import Pilot

from engine.model import State, Task
from tests.tui.spools import NOW, Clock, a_console, a_memory, a_place, a_task, loaded, until
from tui.app import Console
from tui.screens.edit import EditScreen
from tui.views.edit import understood
from tui.widgets.lines import Lines

TASK = a_task(2, description="Daily report", due=NOW + 600)


@pytest.mark.parametrize(
    ("task", "description", "due", "values"),
    [
        (TASK, "Daily report", "", {}),
        (TASK, "", "", {}),
        (None, "", "", {}),
        (TASK, "Weekly report", "", {"description": "Weekly report"}),
        (None, "Weekly report", "now", {"description": "Weekly report", "due": NOW}),
        (TASK, "Daily report", "+2h", {"due": NOW + 7200}),
        (TASK, "Daily report", "+10m", {}),
        (TASK, "", "tomorrow 06:00", {"due": NOW - 34928 + 86400 + 6 * 3600}),
        (replace(TASK, description="\x1b[2J"), "\ufffd[2J", "", {}),
    ],
    ids=str,
)
def test_only_what_changes_is_handed_on(
    task: Task | None, description: str, due: str, values: Mapping[str, object]
) -> None:
    """What is empty, or says what was said before, changes nothing."""
    wanted = understood(task, description, due, NOW)

    assert (wanted.values, wanted.wrong) == (values, "")


def test_it_says_how_it_would_be_stored() -> None:
    """What a spool folds is shown folded, a time as the moment it is."""
    wanted = understood(TASK, "Rück #2", "-1h", NOW)

    assert wanted.description == "a spool stores: R_ck _2"
    assert wanted.due == "08:42:08Z (1h00m ago), so at once"


@pytest.mark.parametrize(
    ("due", "wrong"),
    [("soon", "expected a time to come"), ("+8d", "at most 7 days from now")],
)
def test_what_is_no_due_time_is_said(due: str, wrong: str) -> None:
    """A time that is none, and one that no task is made to wait for."""
    assert wrong in understood(TASK, "other", due, NOW).wrong


class Form:
    """The form on a console, and what it answered."""

    def __init__(self, console: Console, pilot: Pilot[None]) -> None:
        self.console, self.pilot = console, pilot
        self.answers: list[Mapping[str, object] | None] = []

    @property
    def text(self) -> str:
        """All its lines."""
        panes = self.console.screen.query(Lines)
        return " ".join("".join(text for text, _ in line) for p in panes for line in p.lines)

    async def sees(self, *words: str) -> None:
        """Wait until all of this is shown."""
        await until(self.pilot, lambda: all(w in self.text for w in words), lambda: self.text)

    async def types(self, text: str) -> None:
        """Type it, key by key."""
        await self.pilot.press(*("space" if c == " " else c for c in text))


@asynccontextmanager
async def a_form(task: Task | None = TASK, size: tuple[int, int] = (80, 24)) -> AsyncIterator[Form]:
    """The form for a task on a console that has a list below it."""
    console = a_console(a_place(a_memory([TASK, a_task(3, State.DEAD)])))
    async with console.run_test(size=size) as pilot:
        await loaded(pilot)
        form = Form(console, pilot)
        console.push_screen(EditScreen(task, Clock()), form.answers.append)
        await until(pilot, lambda: isinstance(console.screen, EditScreen))
        yield form


async def test_both_fields_are_answered_by_enter() -> None:
    """Tab goes to the other field, Enter hands both on."""
    async with a_form() as form:
        await form.sees(f"edit {TASK.id}", "nothing is changed yet", "it stays 09:52:08Z (in 10m)")
        await form.types("!")
        await form.sees("a spool stores: Daily report_")
        await form.pilot.press("tab")
        await form.types("14:00")
        await form.sees("14:00:00Z (in 4h17m)", "Enter on to the plan")
        await form.pilot.press("enter")
        await until(form.pilot, lambda: form.answers)

        assert form.answers == [{"description": "Daily report!", "due": NOW - 34928 + 14 * 3600}]


async def test_enter_does_nothing_while_something_is_wrong() -> None:
    """Neither where nothing changes nor where a time is none; it says so and stays."""
    async with a_form() as form:
        await form.pilot.press("enter", "tab")
        await form.types("noon")
        await form.pilot.press("enter")
        await form.sees("expected a time to come")

        assert form.answers == []
        assert isinstance(form.console.screen, EditScreen)


@pytest.mark.parametrize("key", ["escape", "ctrl+c"])
async def test_it_is_closed_without_an_answer(key: str) -> None:
    """Esc and Ctrl-c leave the form, and not the console."""
    async with a_form(None) as form:
        await form.sees("edit several tasks", "each keeps its own")
        await form.types("x")
        await form.pilot.press(key)
        await until(form.pilot, lambda: form.answers)

        assert form.answers == [None]
        assert form.console.is_running


async def test_it_fits_a_small_screen() -> None:
    """On 60x15 both fields and what is said of them are there."""
    async with a_form(size=(60, 15)) as form:
        await form.sees("description", "due", "nothing is changed yet")
        lines = [pane for pane in form.console.screen.query(Lines) if pane.display]

        assert all(pane.region.bottom <= 15 and pane.region.right <= 60 for pane in lines)
