"""An action that is confirmed on a screen of its own: what it is for, its effect, its result."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import NamedTuple

from tui.text.lines import Line, Run


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
    """An action as of the opening of its screen.

    The properties read memory only: they are asked at each paint and key. A subclass overrides what
    differs from an action that `y` confirms and that closes its screen.
    """

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
