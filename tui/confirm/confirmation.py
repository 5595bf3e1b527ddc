"""Whether the operator has confirmed what is on screen: by digits, or by `y` if nothing is lost.

No screen and no clock: a key press is a value, and what is confirmed is asked.
"""

from __future__ import annotations

from typing import Protocol

from engine.values import NamedTuple
from tui.screens.base import PASTED, TOO_EARLY
from tui.screens.console_context import READ_ONLY, ConsoleContext
from tui.text.frames import NARROW_COLUMNS
from tui.text.lines import Line

LEAST_COLUMNS, LEAST_LINES = 60, 15
"""A smaller screen does not show what is confirmed."""

REASON_REQUIRED = "reason required: Tab"
"""Why an action without a reason is not applied, if the console requires one."""


class Subject(Protocol):
    """What is confirmed. All is read from memory: each key press asks."""

    @property
    def digits_name(self) -> str:
        """What the digits are called, such as "count"."""

    @property
    def expected_digits(self) -> str:
        """Digits to type; "" if `y` confirms."""

    @property
    def takes_reason(self) -> bool:
        """True if a reason can be given now."""

    def why_not_applicable(self) -> str:
        """Why there is nothing to apply, in any mode; "" if there is something."""

    def why_wait(self) -> str:
        """Why a confirming key must wait, for example for data still loading; "" if it need not."""


class Press(NamedTuple):
    """A key press, and the screen that it met."""

    columns: int
    lines: int
    is_pasted: bool = False
    """It came in a burst that is too fast for typing."""
    is_early: bool = False
    """It arrived before what it confirms was on screen for `CONFIRM_SECONDS`, unchanged."""


class Confirmation:
    """The digits typed so far and the reason, for one subject."""

    def __init__(self, subject: Subject, context: ConsoleContext) -> None:
        self._subject, self._context = subject, context
        self.typed = ""
        self.reason = ""

    @property
    def settled(self) -> str:
        """Why it cannot be applied in any mode, a missing reason included; "" if it can."""
        subject = self._subject
        if why := subject.why_not_applicable():
            return why
        is_missing = self._context.require_reason and not self.reason.strip()
        return REASON_REQUIRED if subject.takes_reason and is_missing else ""

    @property
    def missing_reason_words(self) -> str:
        """What is painted in place of a reason: `none (Tab)`."""
        return "none, required (Tab)" if self._context.require_reason else "none (Tab)"

    def refusal(self, press: Press) -> str:
        """Why a key that confirms is refused; "" if it is not."""
        arming = self._context.arming
        if press.is_pasted or press.is_early:
            return PASTED if press.is_pasted else TOO_EARLY
        if settled := self.settled:
            return settled
        if arming.read_only:
            return READ_ONLY
        if not arming.is_armed:
            return "OBSERVE: press ! first (arms writes for 15 min)"
        if press.columns < LEAST_COLUMNS or press.lines < LEAST_LINES:
            return f"needs {LEAST_COLUMNS}x{LEAST_LINES}: scope off screen"
        return self._subject.why_wait()

    def yes(self, press: Press) -> str | None:
        """The message for `y`; None: apply it."""
        expected = self._subject.expected_digits
        if why := self.refusal(press):
            return why
        return f"type the {self._subject.digits_name} to confirm: {expected}" if expected else None

    def digit(self, digit: str, press: Press) -> str | None:
        """The message for a digit, "" if it is the next one; None after the last: apply it."""
        name, expected = self._subject.digits_name, self._subject.expected_digits
        if why := self.refusal(press):
            return why
        if not expected:
            return f"no {name} needed: y applies"
        typed = self.typed + digit
        self.typed = typed if expected.startswith(typed) else ""
        if typed == expected:
            self.typed = ""
            return None
        if self.typed:
            return ""
        return f"{typed} is not the {name}: nothing done; type {expected}, Esc cancels"

    def arm(self, press: Press) -> str:
        """Arm or disarm; the message if that was refused."""
        if press.is_pasted:
            return PASTED
        self._context.arming.toggle()
        self.typed = ""
        return ""

    # Painting

    def prompt(self, digits: str, yes: str, columns: int) -> Line:
        """The prompt: the digits to type after the words `digits`, or `y to YES`."""
        expected = self._subject.expected_digits
        if not self._context.arming.is_armed:
            stays = " (the plan stays open)" if columns >= NARROW_COLUMNS else ""
            return ((" OBSERVE: ", "warn"), ("!", "key"), (f" arms writes{stays}", "warn"))
        if not expected:
            return ((" y", "key"), (f" to {yes}", "warn"))
        field = self.typed + "_" * (len(expected) - len(self.typed))
        return ((f" {digits}: ", "warn"), (f"[{field}]", "chip-warn"))

    @property
    def disabled_actions(self) -> set[str]:
        """The keys that are grey: no key confirms in OBSERVE."""
        return set() if self._context.arming.is_armed else {"yes", "digit"}

    @property
    def absent_actions(self) -> set[str]:
        """The keys that have no function now; with a missing reason it can still be armed."""
        if settled := self.settled:
            return {"yes", "digit"} | ({"arm"} if settled != REASON_REQUIRED else set())
        return {"yes"} if self._subject.expected_digits else {"digit"}
