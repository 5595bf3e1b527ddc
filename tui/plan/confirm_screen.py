"""Base class of pages that ask for confirmation before they write."""

from __future__ import annotations

import time
from collections.abc import Callable

from tui.format import present
from tui.format.present import Line
from tui.screens.base import TOO_EARLY
from tui.screens.page import Page
from tui.screens.write_mode import WriteMode
from tui.terminal.paste_detector import Confirming
from tui.widgets.lines import Lines


class ConfirmScreen(Page, Confirming[None]):
    """A plan applied by typing its count, or by `y` if nothing is lost; never by Enter.

    Applying needs write mode (armed); viewing does not.
    """

    DIGITS_NAME = ""
    """What the typed digits are called, such as "count"."""

    def __init__(self, arming: WriteMode, clock: Callable[[], float]) -> None:
        super().__init__()
        self._arming, self._clock = arming, clock
        self._typed = self._reason = ""
        self._title: Line = ()
        self._was_armed = False

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

    def ask_reason(self, title: str) -> None:
        """Prompt for a reason; an empty answer keeps the present reason."""
        from tui.screens.text_prompt import AskScreen

        def take(answer: str | None) -> None:
            self._reason = (answer or self._reason).strip()
            self.lay_out(self.size.width)

        self.app.push_screen(AskScreen(title, self._reason, lambda _: ""), take)

    def plan_changed(self) -> None:
        """Discard the typed digits: they were for the plan before the change."""
        self._typed = ""
        self.guard.plan_changed(time.monotonic())

    # Painting

    def show_title(self, title: Line) -> None:
        """Show the title, with the mode at the right end."""
        self._title = title
        self._was_armed = self._arming.is_armed
        arming, width = self._arming, self.size.width
        narrow = width < present.NARROW_COLUMNS
        mode = present.mode_line(arming.seconds_left, arming.read_only, self._clock(), narrow)
        self.query_one("#title", Lines).show(
            [present.join_ends(title, (*self.badge, *mode), width)]
        )

    def confirm_prompt(self, digits: str, yes: str) -> Line:
        """The prompt: the digits to type, or `y`."""
        if not self._arming.is_armed:
            whole = self.size.width >= present.NARROW_COLUMNS
            observe = "! allows writes (the plan stays open)"
            return ((f" OBSERVE: {observe if whole else '! allows writes'}", "warn"),)
        if not self.expected_digits:
            return ((f" y to {yes}", "strong"),)
        field = self._typed + "_" * (len(self.expected_digits) - len(self._typed))
        return ((f" {digits}: ", "strong"), (f"[ {field} ]", "chip-warn"))

    def disabled_actions(self) -> set[str]:
        """Keys that the mode disables."""
        return set() if self._arming.is_armed else {"yes", "digit"}

    def without(self) -> set[str]:
        """Keys that have no function now."""
        if self.why_not_applicable():
            return {"yes", "digit", "arm"}
        return {"yes"} if self.expected_digits else {"digit"}

    def on_mount(self) -> None:
        """Update the remaining write time every second."""
        self.set_interval(1.0, self._tick)

    def _tick(self) -> None:
        if self._arming.is_armed is self._was_armed:
            self.show_title(self._title)
        else:
            self.lay_out(self.size.width)

    # Keys

    def clear_message(self) -> None:
        """Clear the message line; called for every key."""

    def action_arm(self) -> None:
        """Switch write mode; the plan stays open."""
        self.clear_message()
        if self.hasty:
            self.say(TOO_EARLY)
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
        refusal, wanted = self._refusal(), self.expected_digits
        if not refusal and not wanted:
            refusal = f"no {self.DIGITS_NAME} needed: y applies"
        if refusal:
            self.say(refusal)
            return
        typed = self._typed + digit
        self._typed = typed if wanted.startswith(typed) else ""
        if typed == wanted:
            self._begin()
            return
        self.lay_out(self.size.width)
        if not self._typed:
            wrong = f"{typed} is not the {self.DIGITS_NAME}: nothing done"
            self.say(f"{wrong}; type {wanted}, Esc cancels")

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
            return TOO_EARLY
        if settled := self.why_not_applicable():
            return settled
        if self._arming.read_only:
            return "read only: started with --read-only"
        if not self._arming.is_armed:
            return "OBSERVE: press ! first (allows writes for 15 min)"
        return self.why_wait()

    def _begin(self) -> None:
        self._typed = ""
        self._arming.extend()
        self.apply_plan()
        self.lay_out(self.size.width)
