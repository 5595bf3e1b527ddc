"""The screen of an action: what happens while it is applied, and when its facts change."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from engine.store import Unavailable
from tests.console_operator import ConsoleOperator, an_operator
from tests.console_places import a_memory, a_place, a_task
from tui.confirm.action_screen import Action, ActionScreen, Fact, Reason, show_action
from tui.queue.screen import QueueScreen
from tui.screens.help import HelpScreen
from tui.text import keys
from tui.text.lines import Line, Run


class SlowAction(Action):
    """An action that ends when it may, and counts how often it was applied."""

    kind = keys.WORKER
    digits_name = "PID"
    title = (("act", "title"), (" slowly", "strong"))

    def __init__(self, digits: str = "") -> None:
        self.digits, self.value = digits, 1
        self.may_end = asyncio.Event()
        self.times_applied = 0
        self.error = ""
        self.basis = self.facts()

    @property
    def prompt(self) -> str:
        """What it does."""
        return "act"

    @property
    def expected_digits(self) -> str:
        """As given."""
        return self.digits

    def facts(self) -> tuple[Fact, ...]:
        """One value."""
        return (Fact(self.value, f"the value changed: {self.value}"),)

    def lines(self, now: float, width: int, reason: Reason) -> list[Line]:
        """Its value."""
        return [((f"value {self.value}", ""),)]

    async def apply(self, reason: str) -> Run:
        """Wait until it may end."""
        self.times_applied += 1
        await self.may_end.wait()
        if self.error:
            raise Unavailable(self.error)
        return "acted", "ok"


@asynccontextmanager
async def opened(action: Action) -> AsyncIterator[tuple[ConsoleOperator, ActionScreen]]:
    """The screen of an action above a queue."""
    async with an_operator(a_place(a_memory([a_task(1)]))) as operator:
        below = await operator.opens(QueueScreen)
        show_action(below, action, below.session, below.context)
        screen = await operator.opens(ActionScreen)
        await operator.sees("type" if action.expected_digits else "y to act")
        yield operator, screen


async def test_what_is_applied_under_another_screen_is_applied_once() -> None:
    """It closes only itself, when it is on top again; until then no key applies it again."""
    async with opened(action := SlowAction()) as (operator, screen):
        await operator.opens(HelpScreen, "y", "?")
        action.may_end.set()
        await operator.until(lambda: screen.outcome[0])
        assert isinstance(operator.console.screen, HelpScreen)
        assert screen.why_not_applicable() == "already running"
        await operator.step("escape", QueueScreen, "acted")
        assert action.times_applied == 1


@pytest.mark.parametrize(("error", "message"), [("", "acted"), ("no room", "not done: no room")])
async def test_the_result_of_a_screen_that_was_left_is_shown(error: str, message: str) -> None:
    """The screen below stays, and says how it ended."""
    async with opened(action := SlowAction()) as (operator, _):
        action.error = error
        await operator.press("y")
        await operator.opens(QueueScreen, "escape")
        action.may_end.set()
        await operator.sees(message)
        assert isinstance(operator.console.screen, QueueScreen)


async def test_what_failed_can_be_applied_again() -> None:
    """The reason is shown on its screen, which stays open."""
    async with opened(action := SlowAction()) as (operator, _):
        action.error = "no room"
        action.may_end.set()
        await operator.step("y", ActionScreen, "not done: no room")
        action.error = ""
        await operator.opens(QueueScreen, "y")
        assert action.times_applied == 2


async def test_digits_of_an_outdated_action_are_discarded() -> None:
    """A fact that changed refuses it; when it is as before, the digits are typed from the start."""
    async with opened(action := SlowAction("42")) as (operator, screen):
        await operator.press("4")
        action.value = 2
        await operator.sees("plan outdated: the value changed: 2; Esc, then open it again")
        action.value = 1
        await operator.sees("type the PID 42 to act: [__]")
        await operator.press("2")
        assert (screen.confirmation.typed, action.times_applied) == ("", 0)
