"""One control of a queue as a whole: what it would do, with which words, and `y` or the count."""

from __future__ import annotations

import shlex

from textual import work

from engine.model import Problem
from engine.operations import controls
from engine.operations.controls import Order
from engine.operations.journal import Intent
from engine.store import Control, Outlook, StoreError
from engine.text.safe import shown
from tui.format import keys, present
from tui.format.present import BLANK, Line
from tui.operations import control_lines as view
from tui.plan.acting_screen import READ_ONLY
from tui.plan.confirm_screen import ConfirmScreen
from tui.screens.base import HASTY, BaseScreen
from tui.screens.console_context import ConsoleContext
from tui.screens.text_prompt import AskScreen
from tui.session.place_session import PlaceSession

CONTROL_KEYS = frozenset({"pause_queue"})
"""Actions of other screens that open a plan for a control."""

NO_PAUSE = "nothing here pauses the whole queue"


def pausing(live: PlaceSession) -> str:
    """The control that stops and restarts the whole queue; "" where there is none."""
    return next((name for name, each in live.inspector.controls.items() if each.pauses), "")


def no_control(live: PlaceSession, around: ConsoleContext, name: str) -> str:
    """Why no plan can be made for a control; "" when one can. Without a name: for a pause."""
    if around.arming.read_only:
        return READ_ONLY
    if live.inspector.latest.unavailable:
        return "the place cannot be reached now"
    control = live.inspector.controls.get(name)
    if control is None:
        return "there is no control here" if name else NO_PAUSE
    return f"{name}: {control.refused}" if control.refused else ""


def plan_control(face: BaseScreen, live: PlaceSession, around: ConsoleContext, name: str) -> None:
    """Show the plan for a control; says why where there is none."""
    why = HASTY if face.hasty else no_control(live, around, name)
    if why:
        face.say(why)
        return
    screen = ControlScreen(name, live, around)

    def back(_: None) -> None:
        if screen.outcome:
            face.say(screen.outcome, "good")

    face.app.push_screen(screen, back)


class ControlScreen(ConfirmScreen):
    """The plan for one control, as that was when this was opened; then what came of it."""

    KIND = keys.CONTROL
    BINDINGS = keys.bindings(keys.CONTROL)
    WANTS = "count"

    def __init__(self, name: str, live: PlaceSession, around: ConsoleContext) -> None:
        super().__init__(around.arming, around.clock)
        self._live, self._around = live, around
        self._seen: Control = live.inspector.controls[name]
        self._order = Order(name, value=controls.proposed(self._seen), before=self._seen.now)
        self._foretold: Outlook | None = None
        self._unknown = self._trouble = ""
        self._problems: tuple[Problem, ...] = ()
        self._doing = False
        self._said: tuple[str, ...] = ()
        self.outcome = ""
        """What was done, in one line; "" while nothing was."""

    def on_mount(self) -> None:
        """Ask what it is for and what it would do, and notice when it changes meanwhile."""
        self._look_ahead()
        self.set_interval(1.0, self._compare)
        if self._seen.target or (self._asks and not self._order.value):
            self.action_fill()

    @property
    def _asks(self) -> bool:
        """Whether it takes a value that is typed."""
        return bool(self._seen.value) and not self._seen.choices

    @work(exclusive=True, group="plan")
    async def _look_ahead(self) -> None:
        inspector, order = self._live.inspector, self._order
        self._foretold, self._unknown = None, ""
        try:
            if self._seen.target:
                self._problems = await inspector.problems()
            if self._seen.foretells and not controls.wrong(self._seen, order):
                self._foretold = await inspector.would(order)
        except StoreError as error:
            self._unknown = str(error)
        self.plan_changed()
        self.lay_out(self.size.width)

    def _compare(self) -> None:
        if self._withdrawn() and not (self._doing or self._said):
            self.lay_out(self.size.width)

    def _withdrawn(self) -> str:
        """Why what is shown does not hold any more; "" while it does."""
        now = self._live.inspector.controls.get(self._order.name)
        if now is None:
            return "it is not there any more"
        if now.refused:
            return now.refused
        seen = self._seen
        return "" if now == seen else f"it has changed: {now.now or now.summary} now"

    # What it shows

    def lay_out(self, width: int) -> None:
        """What it would do, or what was done; a reason; and the same as a command."""
        if not self.stands or not width:
            return
        text = self._result_lines(width) if self._said else self._plan_lines(width)
        self.show((), text, self._ask())
        self.show_title(((" control ", "title"), (shown(self._order.name), "strong")))
        words = {"arm": keys.arm_words(self._arming.armed), "yes": "do it"}
        self.show_hints(self.grey(), self.without(), words)

    def _plan_lines(self, width: int) -> list[Line]:
        lines: list[Line] = []
        if self._trouble:
            lines += [present.heading("not done, as the store says", width)]
            lines += [*view.said_lines(self._trouble, width, "bad"), BLANK]
        foretold = None if self._foretold is None else self._foretold.words
        lines += view.plan(self._order, self._seen, foretold, width)
        if self._seen.target:
            lines += view.targets(self._problems, width)
        needed = ", which is asked for here" if self._around.require_reason else ""
        none = f"none yet; Tab types it{needed}"
        said = (shown(self._reason), "") if self._reason else (none, "dim")
        lines += [BLANK, present.heading("reason", width), present.cut((("  ", ""), said), width)]
        if controls.wrong(self._seen, self._order) or not self._count:
            return lines  # a command without what has yet to be typed would be none
        lines += [BLANK, present.heading("the same on the command line", width)]
        twin = shown(shlex.join(self._twin()))
        return [*lines, *[((f"  {p}", "dim"),) for p in present.folded(twin, max(8, width - 3))]]

    def _result_lines(self, width: int) -> list[Line]:
        said, trouble = self._said
        lines: list[Line] = [present.heading("what was done, as the store says", width)]
        lines += view.said_lines(said, width)
        if trouble:
            lines += [BLANK, *view.said_lines(f"not written down: {trouble}", width, "warning")]
        return lines

    def _twin(self) -> tuple[str, ...]:
        target, value = self._order.target, self._order.value
        words = [*self._live.place.command, "control", self._order.name]
        words += ["--target", target] if target else []
        words += ["--value", value] if value else []
        words += ["--reason", self._reason] if self._reason else []
        return (*words, "--apply", str(self._count))

    def _ask(self) -> Line:
        if self._doing:
            return ((" it is being done ...", "strong"),)
        if self._said:
            return ((" done; Esc goes back", "good"),)
        if settled := self.settled():
            return ((f" {shown(settled)}", "warning"),)
        name = shown(self._order.name)
        return self.question(f"type {self.wanted} to do it: {name}", f"do it: {name}")

    @property
    def _count(self) -> int:
        """How many things it would change, as far as that was asked."""
        return controls.asked_for(self._seen, self._foretold or Outlook(""))

    @property
    def wanted(self) -> str:
        """What cannot be set back asks for its count."""
        return "" if controls.is_safe(self._seen) else str(self._count)

    def settled(self) -> str:
        """It is done, or what is shown does not hold any more, or something is missing."""
        if self._doing:
            return "it is being done"
        if self._said:
            return "it was done: Esc goes back"
        if withdrawn := self._withdrawn():
            return f"withdrawn: {withdrawn}; Esc, and open it again"
        if wrong := controls.wrong(self._seen, self._order):
            return f"{wrong}: Enter types it"
        if self._unknown:
            return f"what it would do is not known: {self._unknown}"
        if self._seen.foretells and self._foretold is None:
            return "what it would do is being asked: a moment"
        if not self._count:
            return "nothing to do: it would change nothing"
        if self._around.require_reason and not self._reason.strip():
            return "a reason is asked for here: Tab types it"
        return ""

    # What it does

    def without(self) -> set[str]:
        """Only what this control takes can be given, and nothing once it was done."""
        over = {"reason", "fill", "switch"} if self._doing or self._said else set()
        missing = set() if self._seen.target or self._asks else {"fill"}
        fixed = set() if len(self._seen.choices) > 1 else {"switch"}
        kept = set() if self._doing or self._said else {"arm"}
        return (super().without() - kept) | over | missing | fixed

    def action_switch(self) -> None:
        """The next of its values."""
        values = [value for value, _ in self._seen.choices]
        if "switch" in self.without():
            return
        value = self._order.value
        at = values.index(value) + 1 if value in values else 0
        self._change(self._order._replace(value=values[at % len(values)]))

    def action_fill(self) -> None:
        """Type what it is for, and then its value."""
        if self._doing or self._said:
            return
        if self._seen.target:
            first = self._problems[0].where if self._problems else ""
            order = self._order
            self._type(self._seen.target, order.target or first, "target")
        elif self._asks:
            self._type(self._seen.value, self._order.value or self._seen.now, "value")

    def _type(self, title: str, text: str, field: str) -> None:
        def wrong(answer: str) -> str:
            if field == "target":
                return ""  # only the store knows
            order = self._order._replace(value=answer.strip())
            return controls.wrong(self._seen, order)

        def take(answer: str | None) -> None:
            if answer and answer.strip():
                said = {field: answer.strip()}
                self._change(Order(**{**self._order._asdict(), **said}))
            if answer and field == "target" and self._asks:
                self._type(self._seen.value, self._order.value or self._seen.now, "value")

        self.app.push_screen(AskScreen(title, text, wrong), take)

    def _change(self, order: Order) -> None:
        self._order = order
        self._trouble = ""
        self.plan_changed()
        self._look_ahead()
        self.lay_out(self.size.width)

    def action_reason(self) -> None:
        """Say why: it stands in the journal."""
        if not self._doing and not self._said:
            self.ask_reason("reason, for the journal")

    def carry_out(self) -> None:
        """Do it, on another thread."""
        self._doing = True
        self._do()

    @work(group="control")
    async def _do(self) -> None:
        who, order = self._live.place.who, self._order._replace(amount=self._count)
        intent = Intent(controls.VERB, who, self._reason, scope="the whole queue")
        try:
            done = await self._live.inspector.control(order, intent)
        except StoreError as error:
            self._doing, self._trouble = False, str(error)
            self.lay_out(self.size.width)
            self.say("it was not done: its store says why above")
            return
        self._doing, self._said = False, (done.said, done.trouble)
        first = done.said.splitlines()[0] if done.said else "done"
        self.outcome = f"{order.name}: {shown(first)}"
        self.lay_out(self.size.width)
