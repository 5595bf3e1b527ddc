"""What the pages have in common that can write: the mode, and a question before it is done."""

from __future__ import annotations

import time
from collections.abc import Callable

from tui.format import present
from tui.format.present import Line
from tui.screens.base import HASTY
from tui.screens.page import Page
from tui.screens.write_mode import Arming
from tui.terminal.paste_detector import Confirming
from tui.widgets.lines import Lines


class ConfirmScreen(Page, Confirming[None]):
    """A plan that is carried out by typed digits, or by `y` where nothing is lost; never by Enter.

    It needs the console to be armed, and can be looked at without.
    """

    WANTS = ""
    """What the digits are that it asks for."""

    def __init__(self, arming: Arming, clock: Callable[[], float]) -> None:
        super().__init__()
        self._arming, self._clock = arming, clock
        self._typed = self._reason = ""
        self._title: Line = ()
        self._was_armed = False

    # What each of them says

    @property
    def wanted(self) -> str:
        """The digits that carry it out; "" where `y` does."""
        raise NotImplementedError

    def settled(self) -> str:
        """Why there is nothing to be carried out, armed or not; "" where there is."""
        raise NotImplementedError

    def carry_out(self) -> None:
        """Do it."""
        raise NotImplementedError

    def ask_reason(self, title: str) -> None:
        """Let the operator say why; what is left empty stays as it was."""
        from tui.screens.text_prompt import AskScreen

        def take(answer: str | None) -> None:
            self._reason = (answer or self._reason).strip()
            self.lay_out(self.size.width)

        self.app.push_screen(AskScreen(title, self._reason, lambda _: ""), take)

    def plan_changed(self) -> None:
        """The plan on screen is another one: what is typed so far was for the one before."""
        self._typed = ""
        self.guard.changed(time.monotonic())

    # What it shows

    def show_title(self, title: Line) -> None:
        """The title, with the mode and the time at its right end."""
        self._title = title
        self._was_armed = self._arming.armed
        arming, width = self._arming, self.size.width
        narrow = width < present.NARROW
        mode = present.mode(arming.left, arming.read_only, self._clock(), narrow)
        self.query_one("#title", Lines).show([present.join(title, (*self.badge, *mode), width)])

    def question(self, digits: str, yes: str) -> Line:
        """What is to be answered: by the digits that are wanted, or by `y`."""
        if not self._arming.armed:
            whole = self.size.width >= present.NARROW
            observe = "this plan cannot be applied; ! arms, and the plan stays"
            return ((f" OBSERVE: {observe if whole else '! arms, and the plan stays'}", "warning"),)
        if not self.wanted:
            return ((f" y to {yes}", "strong"),)
        field = self._typed + "_" * (len(self.wanted) - len(self._typed))
        return ((f" {digits}: ", "strong"), (f"[ {field} ]", "armed"))

    def grey(self) -> set[str]:
        """Keys that are refused for the mode."""
        return set() if self._arming.armed else {"yes", "digit"}

    def without(self) -> set[str]:
        """Keys that answer nothing here."""
        if self.settled():
            return {"yes", "digit", "arm"}
        return {"yes"} if self.wanted else {"digit"}

    def on_mount(self) -> None:
        """The time that is left for writing goes by."""
        self.set_interval(1.0, self._tick)

    def _tick(self) -> None:
        if self._arming.armed is self._was_armed:
            self.show_title(self._title)
        else:
            self.lay_out(self.size.width)

    # Keys

    def pressed(self) -> None:
        """A key came: what was said was said of the one before."""

    def action_arm(self) -> None:
        """Arm, or disarm; the plan stays."""
        self.pressed()
        if self.hasty:
            self.say(HASTY)
            return
        self._arming.toggle()
        self._typed = ""
        self.lay_out(self.size.width)

    def action_yes(self) -> None:
        """Carry it out, where nothing of it is lost."""
        self.pressed()
        refusal = self._refusal()
        if not refusal and self.wanted:
            refusal = f"this plan asks for its {self.WANTS}: type {self.wanted}"
        if refusal:
            self.say(refusal)
        else:
            self._begin()

    def action_digit(self, digit: str) -> None:
        """One more digit; the last right one carries it out."""
        self.pressed()
        refusal, wanted = self._refusal(), self.wanted
        if not refusal and not wanted:
            refusal = f"this plan asks for no {self.WANTS}: y applies"
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
            wrong = f"{typed} is not the {self.WANTS}: nothing was done"
            self.say(f"{wrong}; type {wanted}, or Esc discards")

    def action_rub_out(self) -> None:
        """Take the last digit back."""
        self.pressed()
        self._typed = self._typed[:-1]
        self.lay_out(self.size.width)

    def late(self) -> str:
        """Why a confirming key must wait for what is still being read; "" when nothing is."""
        return ""

    def _refusal(self) -> str:
        if self.refuses():
            return HASTY
        if settled := self.settled():
            return settled
        if self._arming.read_only:
            return "read only: nothing can be applied"
        if not self._arming.armed:
            return "OBSERVE: press ! first to allow writes for 15 minutes"
        return self.late()

    def _begin(self) -> None:
        self._typed = ""
        self._arming.used()
        self.carry_out()
        self.lay_out(self.size.width)
