"""A screen that notes what its parts ask of it, for tests of parts and keys without an app."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from tui.plan.planning import VerbRequest
from tui.screens.base import BaseScreen
from tui.screens.rows_parts import Change, RowCursor
from tui.screens.target import Target

C = TypeVar("C")


class AskedScreen(Generic[C]):
    """Opens nothing and paints nothing."""

    is_pasted, is_current = False, True

    def __init__(self) -> None:
        self.targets: list[Target] = []
        self.requests: list[str] = []
        self.questions: dict[str, Callable[[], Awaitable[C]]] = {}
        self.changes: list[C] = []

    def go(self, target: Target) -> None:
        """Note it."""
        self.targets.append(target)

    def request(self, what: str) -> None:
        """Note it."""
        self.requests.append(what)

    def show_change(self, change: C) -> None:
        """Note it."""
        self.changes.append(change)

    def open(self, opener: Callable[[BaseScreen], object]) -> None:
        """There is no screen to open it."""

    def run(self, what: str, ask: Callable[[], Awaitable[C]]) -> None:
        """Note it; `answer` asks it."""
        self.questions[what] = ask

    async def answer(self) -> None:
        """Answer all questions, also those that come up meanwhile."""
        while self.questions:
            _, ask = self.questions.popitem()
            self.show_change(await ask())


class AskedRowsScreen(AskedScreen[Change]):
    """Its cursor is where the test puts it."""

    is_large = False

    def __init__(self) -> None:
        super().__init__()
        self.cursor = RowCursor()
        self.plans: list[VerbRequest] = []

    def plan(self, asked: VerbRequest) -> None:
        """Note it."""
        self.plans.append(asked)

    def move(self, how: str) -> Change:
        """Nothing is scrolled."""
        return Change.NOTHING

    def switch_pane(self) -> Change:
        """There is none."""
        return Change.NOTHING
