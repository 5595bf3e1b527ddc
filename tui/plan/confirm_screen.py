"""Base class of pages that ask for confirmation before they write."""

from __future__ import annotations

import time

from tui.plan.plan_page import PlanPage, PlanWords
from tui.screens.base import PASTED, TOO_EARLY
from tui.terminal.paste_detector import Confirming
from tui.text.frames import NARROW_COLUMNS
from tui.text.lines import Line

LEAST_COLUMNS, LEAST_LINES = 60, 15
"""A smaller screen does not show what a plan acts on."""


class ConfirmScreen(PlanPage, Confirming[None]):
    """A plan applied by typing its count, or by `y` if nothing is lost; never by Enter.

    Applying it needs an armed console; viewing does not.
    """

    DIGITS_NAME = ""
    """What the typed digits are called, such as "count"."""

    _typed = ""
    """The digits typed so far."""

    # Defined by the subclasses

    @property
    def expected_digits(self) -> str:
        """Digits to type; "" if `y` confirms."""
        raise NotImplementedError

    def why_not_applicable(self) -> str:
        """Why there is nothing to apply, in any mode; "" if there is something."""
        raise NotImplementedError

    def apply_plan(self) -> None:
        """Apply the plan."""
        raise NotImplementedError

    def plan_changed(self) -> None:
        """Discard the typed digits: they were for the plan before the change."""
        self._typed = ""
        self.guard.plan_changed(time.monotonic())

    # Painting

    def describe(self) -> PlanWords:
        """The words around the plan; one that `y` confirms can be undone."""
        settled, digits = self.why_not_applicable(), self.expected_digits
        is_open = self._arming.is_armed and not settled
        note = "the last correct digit applies" if is_open and digits else ""
        if settled:
            return PlanWords("", not digits, note, "Esc", "goes back")
        words = PlanWords(is_undoable=not digits, note=note)
        if not self._arming.is_armed:
            return words._replace(key="!", does="arms writes; the plan stays open")
        return words._replace(key=f"type {digits}" if digits else "y", does="applies it")

    def confirm_prompt(self, digits: str, yes: str) -> Line:
        """The prompt: the digits to type, or `y`."""
        if not self._arming.is_armed:
            whole = self.size.width >= NARROW_COLUMNS
            stays = " (the plan stays open)" if whole else ""
            return ((" OBSERVE: ", "warn"), ("!", "key"), (f" arms writes{stays}", "warn"))
        if not self.expected_digits:
            return ((" y", "key"), (f" to {yes}", "warn"))
        field = self._typed + "_" * (len(self.expected_digits) - len(self._typed))
        return ((f" {digits}: ", "warn"), (f"[{field}]", "chip-warn"))

    def disabled_actions(self) -> set[str]:
        """Keys that the mode disables."""
        return set() if self._arming.is_armed else {"yes", "digit"}

    def without(self) -> set[str]:
        """Keys that have no function now."""
        if self.why_not_applicable():
            return {"yes", "digit", "arm"}
        return {"yes"} if self.expected_digits else {"digit"}

    # Keys

    def action_arm(self) -> None:
        """Arm or disarm; the plan stays open."""
        self.clear_message()
        if self.hasty:
            self.say(PASTED)
            return
        self._arming.toggle()
        self._typed = ""
        self.lay_out(self.size.width)

    def action_yes(self) -> None:
        """Apply the plan if `y` is enough for it."""
        self.clear_message()
        refusal = self._refusal()
        if not refusal and self.expected_digits:
            refusal = f"type the {self.DIGITS_NAME} to confirm: {self.expected_digits}"
        if refusal:
            self.say(refusal)
        else:
            self._begin()

    def action_digit(self, digit: str) -> None:
        """Append a digit; the complete number applies the plan."""
        self.clear_message()
        refusal, expected = self._refusal(), self.expected_digits
        if not refusal and not expected:
            refusal = f"no {self.DIGITS_NAME} needed: y applies"
        if refusal:
            self.say(refusal)
            return
        typed = self._typed + digit
        self._typed = typed if expected.startswith(typed) else ""
        if typed == expected:
            self._begin()
            return
        self.lay_out(self.size.width)
        if not self._typed:
            wrong = f"{typed} is not the {self.DIGITS_NAME}: nothing done"
            self.say(f"{wrong}; type {expected}, Esc cancels")

    def action_rub_out(self) -> None:
        """Delete the last digit."""
        self.clear_message()
        self._typed = self._typed[:-1]
        self.lay_out(self.size.width)

    def why_wait(self) -> str:
        """Why a confirming key must wait, for example for data still loading; "" if it need not."""
        return ""

    def _refusal(self) -> str:
        if self.refuses_key():
            return PASTED if self.hasty else TOO_EARLY
        if settled := self.why_not_applicable():
            return settled
        if self._arming.read_only:
            return "read only: started with --read-only"
        if not self._arming.is_armed:
            return "OBSERVE: press ! first (arms writes for 15 min)"
        if self.size.width < LEAST_COLUMNS or self.size.height < LEAST_LINES:
            return f"needs {LEAST_COLUMNS}x{LEAST_LINES}: scope off screen"
        return self.why_wait()

    def _begin(self) -> None:
        self._typed = ""
        self._arming.extend()
        self.apply_plan()
        self.lay_out(self.size.width)
