"""The marks of each state, those that its filter hides, and whether all that match are meant."""

from __future__ import annotations

from collections.abc import Collection

from engine.model import State


class Marks:
    """What verbs act on instead of the task under the cursor."""

    def __init__(self) -> None:
        self._ids: dict[State, set[str]] = {}
        self.hidden: frozenset[str] = frozenset()
        """Marked tasks that the filter hides; verbs do not act on them."""
        self.has_all = False
        """Verbs act on all matching tasks."""

    def of(self, state: State | None) -> frozenset[str]:
        """Ids of the marked tasks of a state."""
        return frozenset(self._ids.get(state, ())) if state else frozenset()

    def visible(self, state: State | None) -> frozenset[str]:
        """Those that the filter does not hide."""
        return self.of(state) - self.hidden

    def toggle(self, state: State, id: str) -> None:
        """Mark a task, or take its mark away."""
        self.has_all = False
        self._ids.setdefault(state, set()).symmetric_difference_update({id})

    def add(self, state: State, ids: Collection[str]) -> None:
        """Mark tasks."""
        self._ids.setdefault(state, set()).update(ids)

    def remove(self, state: State | None, ids: Collection[str]) -> None:
        """Take the marks of these tasks away."""
        if state is not None:
            self._ids.setdefault(state, set()).difference_update(ids)
        self.hidden -= frozenset(ids)

    def clear(self, state: State | None) -> None:
        """Take all marks of a state away."""
        self.has_all = False
        self.remove(state, self.of(state))
        self.hidden = frozenset()
