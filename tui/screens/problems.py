"""What cannot be read, in full: where it lies, what is wrong with it, and among which tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from engine.model import Problem, State
from engine.text import shown
from tui import keys, present
from tui.present import BLANK, Line
from tui.screens.pages import Page


def lines(problems: Sequence[Problem], states: Mapping[State, str], width: int) -> list[Line]:
    """Every problem under a heading of its own, nothing of it cut."""
    rows: list[Line] = []
    for number, problem in enumerate(problems, 1):
        about = [("where", problem.where), ("what", problem.what)]
        if problem.state is not None:
            about.append(("state", states.get(problem.state, problem.state)))
        rows += [BLANK] if rows else []
        rows.append(present.heading(f"problem {number} of {len(problems)}", width))
        rows += present.labelled([(name, shown(text)) for name, text in about], width)
    return rows


class ProblemsScreen(Page):
    """The problems as they were when this was opened; nothing here acts on anything."""

    KIND = keys.PROBLEMS
    BINDINGS = keys.bindings(keys.PROBLEMS)

    def __init__(self, problems: Sequence[Problem], states: Mapping[State, str]) -> None:
        super().__init__()
        self._problems, self._states = problems, states

    def lay_out(self, width: int) -> None:
        """All of them, for this width."""
        title = ((f" {present.count(len(self._problems), 'problem')}", "strong"),)
        self.show(title, lines(self._problems, self._states, width), ())
        self.show_hints()
