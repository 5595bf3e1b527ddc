"""The screen on which an action is confirmed, and the base of actions: what it is for, its effect,
its result."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence

from textual.binding import Binding

from engine.store import StoreError
from engine.text.safe import safe_line
from engine.values import NamedTuple
from tui.confirm.confirm_screen import ConfirmScreen, PlanWords
from tui.screens.base import BaseScreen
from tui.screens.console_context import ConsoleContext
from tui.screens.dialogs import AskScreen
from tui.session.place_session import PlaceSession
from tui.text import keys
from tui.text.lines import Line, Run
from tui.widgets.background import run_in_background


class Fact(NamedTuple):
    """Something that an action is based on: another value of it outdates the plan."""

    value: object
    change: str
    """What to say if the value differs: `the worker changed`."""


class Reason(NamedTuple):
    """Why the operator applies it."""

    text: str
    """As typed; "" if none was given."""
    words: str
    """As it is painted: `none (Tab)` if none was given."""


class Question(NamedTuple):
    """A question that fills in a field of an action."""

    title: str
    text: str
    """The suggested answer."""
    problem: Callable[[str], str]
    """Returns what is wrong with an answer, "" if nothing."""
    take: Callable[[str], Question | None]
    """Takes the answer; returns the question after it."""


def why_outdated(planned: Sequence[Fact], now: Sequence[Fact]) -> str:
    """What has changed since a plan was made: the first fact with another value; "" if none."""
    for before, fact in zip(planned, now, strict=True):
        if before.value != fact.value:
            return fact.change
    return ""


class Action:
    """An action as of the opening of its screen. The properties read memory only: they are asked at
    each paint and key. A subclass overrides what differs from an action that `y` confirms and that
    closes its screen."""

    kind = ""
    """Name of its screen in the key table."""
    digits_name = "count"
    reason_title = "reason (journal)"
    """Title of the prompt for the reason; it says who reads it."""
    stays_open = False
    """Its result is shown on its screen."""
    shows_failure = False
    """Its text says why it was not applied."""
    basis: tuple[Fact, ...] = ()
    """The facts that it was made from: set at the end of the constructor, and when they are read
    again for it."""
    title: Line = ()
    """The verb, and what it acts on."""
    acts_on = ""
    """What it changes, at the right end of the next step."""
    hint = ""
    """The words of the key that confirms; "" for those of the key table."""

    @property
    def prompt(self) -> str:
        """What `y` or the digits do: `suspend postfix`."""
        raise NotImplementedError

    @property
    def expected_digits(self) -> str:
        """Digits to type; "" if `y` confirms."""
        return ""

    @property
    def takes_reason(self) -> bool:
        """True if a reason can be given."""
        return False

    @property
    def progress(self) -> object:
        """What is painted while it runs: another value repaints the screen."""
        return None

    def facts(self) -> tuple[Fact, ...]:
        """What it is based on, as it is now."""
        return ()

    def refusal(self) -> str:
        """Why there is nothing to apply; "" if there is something."""
        return ""

    def absent_keys(self) -> set[str]:
        """Actions of the key table that it has no use for now."""
        return set()

    def lines(self, now: float, width: int, reason: Reason) -> list[Line]:
        """The effect, or the result; `now` in epoch seconds UTC."""
        raise NotImplementedError

    def result(self) -> Line:
        """The result in place of the question; () before it ran."""
        return ()

    def stage(self) -> str | None:
        """How far it is; None: a plan."""
        return None

    def next_step(self) -> tuple[str, str] | None:
        """A key and what it does, where that is not to confirm; None otherwise."""
        return None

    def question(self) -> Question | None:
        """The question for what is missing or can be changed; None if there is none."""
        return None

    @property
    def is_incomplete(self) -> bool:
        """True if its question must be answered first."""
        return False

    def switch(self) -> bool:
        """Choose the next value; True if that changed something."""
        return False

    async def load(self) -> AsyncIterator[None]:
        """Find out the effect, in steps that each have more to show."""
        return
        yield

    async def apply(self, reason: str) -> Run:
        """Apply it; return the result in words, for the screen below.

        Raises:
            engine.store.StoreError: it was not applied.
        """
        raise NotImplementedError


READ_SECONDS = 0.2
"""Seconds between two looks at the progress and the facts of an action."""

KINDS = (keys.ABANDON, keys.CONTROL, keys.SUSPEND, keys.TEST_MAIL, keys.WORKER)
"""The screens of the key table that are this one."""

_PRESSED = {pressed for kind in KINDS for key in keys.keys_on(kind) for pressed in key.keys}


def show_action(
    below: BaseScreen,
    action: Action,
    session: PlaceSession,
    context: ConsoleContext,
    done: Callable[[], object] = lambda: None,
) -> None:
    """Open an action above a screen, which shows its result; `done` is called once it is applied,
    before the screen closes."""
    screen = ActionScreen(action, session, context, done)

    def back(_: None) -> None:
        if screen.outcome[0]:
            below.say(*screen.outcome)

    below.app.push_screen(screen, back)


class ActionScreen(ConfirmScreen):
    """An action as of opening, then its result; most close when they are done."""

    # One key has another action for another kind: which one is looked up when it is pressed.
    BINDINGS = [Binding(pressed, f"key({pressed!r})", show=False) for pressed in sorted(_PRESSED)]

    def __init__(
        self,
        action: Action,
        session: PlaceSession,
        context: ConsoleContext,
        done: Callable[[], object] = lambda: None,
    ) -> None:
        assert action.kind in KINDS, f"{action.kind} has no bindings"
        self.action, self._when_done = action, done
        self.KIND = action.kind
        super().__init__(session, context)
        self.digits_name, self.reason_title = action.digits_name, action.reason_title
        self._is_running = False
        self._painted: tuple[object, ...] = ()
        """The progress that is on screen, the refusal first; () before the first paint."""
        self.outcome: Run = ("", "")
        """The result and its style; "" before it was applied."""

    def on_mount(self) -> None:
        self.find_effect()
        self.set_interval(READ_SECONDS, self._follow)
        if self.action.is_incomplete:
            self.action_fill()

    def on_screen_resume(self) -> None:
        """Close if it was applied while another screen covered it."""
        if self.outcome[0] and not self.action.stays_open:
            self.call_later(self.action_back)

    def find_effect(self) -> None:
        """Find out the effect again; digits that were typed for another one are discarded."""
        self.plan_changed()
        run_in_background(self, self._load, exclusive=True, group="effect")

    async def _load(self) -> None:
        async for _ in self.action.load():
            self.plan_changed()
            self.lay_out()

    def _follow(self) -> None:
        if self._painted != self._progress:
            self.lay_out()

    @property
    def _progress(self) -> tuple[object, ...]:
        return self.confirmation.settled, self.action.stage(), self.action.progress

    # What is confirmed

    @property
    def expected_digits(self) -> str:
        return self.action.expected_digits

    @property
    def takes_reason(self) -> bool:
        return self.action.takes_reason and not (self._is_running or self.action.result())

    def why_not_applicable(self) -> str:
        if self._is_running or self.action.result():
            again = "already running" if self._is_running else "already done: Esc closes"
            return self.action.refusal() or again
        if why := why_outdated(self.action.basis, self.action.facts()):
            return f"plan outdated: {why}; Esc, then open it again"
        return self.action.refusal()

    def apply_plan(self) -> None:
        """Apply it; it continues when the screen is closed."""
        self._is_running = True
        run_in_background(self.app, self._apply, name=self.KIND, group=self.KIND)

    async def _apply(self) -> None:
        try:
            self.outcome = await self.action.apply(self.confirmation.reason)
            message = self.outcome
            self._when_done()
        except StoreError as error:
            message = (f"not done: {error}", "warn")
        # What is done stays refused until the screen is closed: no key applies it twice.
        self._is_running = bool(self.outcome[0]) and not self.action.stays_open
        if self not in self.app.screen_stack:
            self.session.messages.append(message[0])
        elif not self._is_running:
            self.lay_out()
            if not self.outcome[0]:
                is_above = self.action.shows_failure
                self.say("not done: reason above" if is_above else message[0], message[1])
        elif self.is_current:
            self.dismiss()

    # Painting

    def describe(self) -> PlanWords:
        words, stage = super().describe(), self.action.stage()
        if (step := self.action.next_step()) is not None:
            words = words._replace(key=step[0], does=step[1])
        return words if stage is None else words._replace(stage=stage)

    def lay_out(self) -> None:
        if not self.is_paintable or not self.size.width:
            return
        action, progress = self.action, self._progress
        if self._painted and self._painted[0] != progress[0]:
            self.plan_changed()  # digits typed before a refusal are not completed after it
        self._painted = progress
        reason = Reason(self.confirmation.reason, self.reason_text)
        text = action.lines(self.context.clock(), self.text_width, reason)
        self.show_text(action.title, text, self._bar_line(), action.acts_on)
        self.show_hints(**({"yes": action.hint} if action.hint else {}))

    def _bar_line(self) -> Line:
        """The question, or why there is none: it runs, its result, a refusal."""
        if self._is_running and not self.action.result():
            return ((" running ...", "strong"),)
        if result := self.action.result():
            return result
        if settled := self.confirmation.settled:
            return ((f" {safe_line(settled)}", "warn"),)
        does = self.action.prompt
        name = "" if self.digits_name == "count" else f"the {self.digits_name} "
        digits = f"type {name}{self.expected_digits} to {does}"
        return self.confirmation.prompt(digits, does, self.size.width)

    # Keys

    async def action_key(self, pressed: str) -> None:
        """Do what a key does on the screens of this kind."""
        for key in keys.keys_on(self.KIND):
            if pressed in key.keys:
                action = f"{key.action}({pressed!r})" if key.passes_key else key.action
                await self.run_action(action)

    def without(self) -> set[str]:
        is_open = not (self._is_running or self.action.result())
        needs = {"arm"} if is_open and self.action.is_incomplete else set()
        fixed = set() if self.takes_reason else {"reason"}
        return (super().without() - needs) | fixed | self.action.absent_keys()

    def action_fill(self) -> None:
        if not self._is_running and (question := self.action.question()) is not None:
            self._ask(question)

    action_to = action_fill

    def _ask(self, question: Question) -> None:
        def take(answer: str | None) -> None:
            if answer := (answer or "").strip():
                following = question.take(answer)
                self.find_effect()
                self.lay_out()
                if following is not None:
                    self._ask(following)

        self.app.push_screen(AskScreen(question.title, question.text, question.problem), take)

    def action_switch(self) -> None:
        if not self._is_running and self.action.switch():
            self.find_effect()
            self.lay_out()
