"""Whether a key press confirms: digits, arming, reason, size; without a screen and a clock."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from engine.store import Unavailable
from tests.console_operator import ConsoleOperator, an_operator, clock_of
from tests.console_places import a_memory, a_place, a_task
from tests.tables import each
from tui.confirm.action_screen import Action, ActionScreen, Fact, Reason, show_action, why_outdated
from tui.confirm.confirmation import REASON_REQUIRED, Confirmation, Press
from tui.queue.screen import QueueScreen
from tui.screens.base import PASTED, TOO_EARLY
from tui.screens.console_context import Arming, ConsoleContext
from tui.screens.help import HelpScreen
from tui.screens.message import MESSAGE_SECONDS
from tui.text import keys
from tui.text.lines import Line, Run

TYPED = Press(80, 24)


@dataclass
class Subject:
    """What is confirmed; all facts are given."""

    digits_name: str = "count"
    expected_digits: str = ""
    takes_reason: bool = False
    settled: str = ""
    wait: str = ""

    def why_not_applicable(self) -> str:
        """As given."""
        return self.settled

    def why_wait(self) -> str:
        """As given."""
        return self.wait


def make_confirmation(
    subject: Subject, *, is_armed: bool = True, requires_reason: bool = False
) -> Confirmation:
    """The confirmation of a subject, in a console that is armed or not."""
    arming = Arming(lambda: 100.0, armed=is_armed)
    context = ConsoleContext("mx1", arming, lambda: 100.0, require_reason=requires_reason)
    return Confirmation(subject, context)


def test_y_applies_what_asks_for_no_digits() -> None:
    """`y` applies it; a digit says that none is needed."""
    confirmation = make_confirmation(Subject())
    assert confirmation.yes(TYPED) is None
    assert confirmation.digit("4", TYPED) == "no count needed: y applies"


def test_only_the_whole_number_applies() -> None:
    """Each right digit is kept and shown, a wrong one discards all; `y` names the number. Arming
    discards the digits, which were typed for the other mode, and the prompt names its key; a pasted
    `!` changes nothing."""

    def prompt() -> str:
        return "".join(text for text, _ in confirmation.prompt("type 42", "purge", 80))

    confirmation = make_confirmation(Subject(expected_digits="42"))
    assert confirmation.yes(TYPED) == "type the count to confirm: 42"
    assert (confirmation.digit("4", TYPED), confirmation.typed) == ("", "4")
    wrong = "43 is not the count: nothing done; type 42, Esc cancels"
    assert (confirmation.digit("3", TYPED), confirmation.typed) == (wrong, "")
    assert confirmation.digit("4", TYPED) == ""
    assert confirmation.digit("2", TYPED) is None
    assert confirmation.typed == ""

    confirmation.digit("4", TYPED)
    assert confirmation.arm(TYPED._replace(is_pasted=True)) == PASTED
    assert (confirmation.typed, confirmation.disabled_actions) == ("4", set())
    assert prompt() == " type 42: [4_]"
    assert confirmation.arm(TYPED) == ""
    assert (confirmation.typed, confirmation.disabled_actions) == ("", {"yes", "digit"})
    assert prompt() == " OBSERVE: ! arms writes (the plan stays open)"


@each(("press", "subject", "is_armed", "why"), [
    (TYPED._replace(is_pasted=True), Subject(settled="empty"), False, PASTED),
    (TYPED._replace(is_early=True), Subject(settled="empty"), False, TOO_EARLY),
    (TYPED, Subject(settled="empty"), False, "empty"),
    (TYPED, Subject(takes_reason=True), False, REASON_REQUIRED),
    (TYPED, Subject(), False, "OBSERVE: press ! first (arms writes for 15 min)"),
    (Press(59, 24), Subject(wait="logs"), True, "needs 60x15: scope off screen"),
    (Press(80, 14), Subject(wait="logs"), True, "needs 60x15: scope off screen"),
    (Press(60, 15), Subject(wait="logs"), True, "logs"),
])  # fmt: skip
def test_the_first_reason_is_said(press: Press, subject: Subject, is_armed: bool, why: str) -> None:
    """How the key came, then what is settled, then the mode, the size, what is still loading."""
    confirmation = make_confirmation(subject, is_armed=is_armed, requires_reason=True)
    assert confirmation.yes(press) == confirmation.digit("1", press) == why


def test_a_reason_that_is_given_is_required_no_longer() -> None:
    """With `require_reason` what takes a reason needs one that is not blank."""
    confirmation = make_confirmation(Subject(takes_reason=True), requires_reason=True)
    confirmation.reason = "  "
    assert confirmation.yes(TYPED) == REASON_REQUIRED
    assert "arm" not in confirmation.absent_actions
    confirmation.reason = "drill"
    assert confirmation.yes(TYPED) is None


def test_a_plan_is_outdated_by_the_first_fact_with_another_value() -> None:
    """What has changed is named, with what it is now; words alone outdate nothing."""
    planned = (Fact(None, "the worker changed"), Fact(1, "the control changed: 1"))
    assert why_outdated(planned, planned) == ""
    assert why_outdated(planned, (planned[0], planned[1]._replace(change="other words"))) == ""
    now = (Fact(4711, "the worker changed"), Fact(0, "the control changed: 0"))
    assert why_outdated(planned, now) == "the worker changed"
    assert why_outdated(planned, (planned[0], now[1])) == "the control changed: 0"


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


async def show(operator: ConsoleOperator, action: Action) -> ActionScreen:
    """Open the screen of an action above the queue."""
    below = await operator.opens(QueueScreen)
    show_action(below, action, below.session, below.context)
    screen = await operator.opens(ActionScreen)
    await operator.sees("type" if action.expected_digits else "y to act")
    return screen


async def test_what_is_applied_under_another_screen_is_applied_once() -> None:
    """It closes only itself, when it is on top again; until then no key applies it again. The
    result of a screen that was left is said on the one below; a reason why it failed is shown on
    its screen, which stays open, and it can be applied again."""
    async with an_operator(a_place(a_memory([a_task(1)]))) as operator:
        screen = await show(operator, action := SlowAction())
        await operator.opens(HelpScreen, "y", "?")
        action.may_end.set()
        await operator.until(lambda: screen.outcome[0])
        assert isinstance(operator.console.screen, HelpScreen)
        assert screen.why_not_applicable() == "already running"
        await operator.step("escape", QueueScreen, "acted")
        assert action.times_applied == 1

        for error, message in (("no room", "not done: no room"), ("", "acted")):
            await show(operator, action := SlowAction())
            action.error = error
            await operator.press("y")
            await operator.opens(QueueScreen, "escape")
            action.may_end.set()
            await operator.sees(message)
            assert isinstance(operator.console.screen, QueueScreen)

        await show(operator, action := SlowAction())
        action.error = "no room"
        action.may_end.set()
        await operator.step("y", ActionScreen, "not done: no room")
        action.error = ""
        await operator.opens(QueueScreen, "y")
        assert action.times_applied == 2


async def test_digits_of_an_outdated_action_are_discarded() -> None:
    """A fact that changed refuses it; when it is as before, the digits are typed from the start.
    After the seconds of a message the next step is shown again in its place."""
    async with an_operator(a_place(a_memory([a_task(1)]))) as operator:
        screen = await show(operator, action := SlowAction("42"))
        await operator.press("4")
        action.value = 2
        await operator.sees("plan outdated: the value changed: 2; Esc, then open it again")
        action.value = 1
        await operator.sees("type the PID 42 to act: [__]")
        await operator.press("2")
        assert (screen.confirmation.typed, action.times_applied) == ("", 0)
        await operator.step("7", ActionScreen, "7 is not the PID")
        clock_of(operator).now += MESSAGE_SECONDS
        await operator.until(lambda: "7 is not the PID" not in operator.text)
