"""What cannot be read, in full: where it lies, what is wrong with it, and how its bytes begin."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import islice

from engine.model import Problem, State
from engine.store import StoreError
from engine.text.render_bytes import dump
from engine.text.safe import shown
from tui.format import keys, present
from tui.format.present import BLANK, Line
from tui.screens.base import Copy
from tui.screens.page import Page
from tui.task.parts_lines import per_row

GLIMPSED = 50
"""Problems whose bytes are shown."""
ROWS = 16
"""Rows of bytes that are shown of each."""


def lines(
    problems: Sequence[Problem],
    states: Mapping[State, str],
    width: int,
    glimpses: Sequence[bytes | str] = (),
) -> list[Line]:
    """Every problem under a heading of its own, nothing of it cut.

    `glimpses` are how the first of them begin, or why that cannot be said.
    """
    rows: list[Line] = []
    for number, problem in enumerate(problems, 1):
        about = [("where", problem.where), ("what", problem.what)]
        if problem.state is not None:
            about.append(("state", states.get(problem.state, problem.state)))
        rows += [BLANK] if rows else []
        rows.append(present.heading(f"problem {number} of {len(problems)}", width))
        rows += present.labelled([(name, shown(text)) for name, text in about], width)
        if number <= len(glimpses):
            rows += _bytes(glimpses[number - 1], width)
    return rows


def _bytes(glimpse: bytes | str, width: int) -> list[Line]:
    if isinstance(glimpse, str):
        return present.labelled([("bytes", f"not read: {shown(glimpse)}")], width)
    row = per_row(width)
    if not glimpse:
        return present.labelled([("bytes", "none: it is empty")], width)
    return [((f"  {line}", "dim"),) for line in islice(dump(glimpse, row), ROWS)]


class ProblemsScreen(Page):
    """The problems as they were when this was opened; nothing here acts on anything."""

    KIND = keys.PROBLEMS
    BINDINGS = keys.bindings(keys.PROBLEMS)

    def __init__(
        self,
        problems: Sequence[Problem],
        states: Mapping[State, str],
        glimpse: Callable[[Problem], Awaitable[bytes]],
    ) -> None:
        """`glimpse` answers with the first bytes of one, or raises a StoreError."""
        super().__init__()
        self._problems, self._states, self._glimpse = problems, states, glimpse
        self._glimpses: list[bytes | str] = []

    def on_mount(self) -> None:
        """Read how the first of them begin."""
        self.run_worker(self._read(), name="glimpses")

    async def _read(self) -> None:
        for problem in self._problems[:GLIMPSED]:
            try:
                self._glimpses.append(await self._glimpse(problem))
            except StoreError as error:
                self._glimpses.append(str(error))
        if self.stands:
            self.lay_out(self.size.width)

    def copies(self) -> tuple[Copy, ...]:
        """Where they lie, one a line, and the same with what is wrong."""
        said = [f"{problem.where}: {problem.what}" for problem in self._problems]
        where = "\n".join(problem.where for problem in self._problems)
        return Copy("i", "where they lie", where), Copy("r", "rows", "\n".join(said))

    def lay_out(self, width: int) -> None:
        """All of them, for this width."""
        title = ((f" {present.count(len(self._problems), 'problem')}", "strong"),)
        self.show(title, lines(self._problems, self._states, width, self._glimpses), ())
        self.show_hints()
