"""The pane of the overview that has the cursor, and where Enter leads from there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from tui.screens.target import Target
from tui.text.table import Choice

ALERTS, QUEUES, AGES = "alerts", "queues", "ages"


class Pane(Protocol):
    """A pane that can have the cursor; the age table has cells in place of rows."""

    @property
    def display(self) -> bool:
        """True if it is on screen."""
        ...

    @property
    def rows(self) -> Sequence[Choice]:
        """Its rows, also one that has left while the cursor is there."""
        ...

    @property
    def key(self) -> str:
        """Key of the row under the cursor; "" if none or it has left."""
        ...

    is_gone: bool
    """The row under the cursor has left: there is nothing to act on."""

    def activate(self, active: bool) -> None:
        """Show the cursor as active or inactive."""

    def move(self, how: str) -> object:
        """Move the cursor by a motion of the key table."""


class PaneFocus:
    """One of the panes has the cursor."""

    def __init__(self, panes: Mapping[str, Pane]) -> None:
        """`panes`: in the order of Tab."""
        self.panes = panes
        self.pane = QUEUES
        self.is_chosen = False
        """True once the operator has chosen a pane, or moved in one."""
        self.targets: dict[str, Mapping[str, Target]] = {}
        """Where Enter leads from each row, by the pane."""
        self._departed: dict[str, Target] = {}
        """Where it led from the last row that left under the cursor, by the pane."""

    def activate(self, pane: str) -> None:
        """Give the cursor to a pane."""
        self.pane = pane
        for name, part in self.panes.items():
            part.activate(name == pane)

    @property
    def has_left(self) -> bool:
        """True if the row under the cursor has left: there is nothing to act on."""
        return self.panes[self.pane].is_gone

    @property
    def target(self) -> Target | None:
        """Where Enter leads from the row under the cursor; None in the age table, and from a row
        that has left.
        """
        return self.targets.get(self.pane, {}).get(self.panes[self.pane].key)

    @property
    def place(self) -> int:
        """Number of the place of the row under the cursor, also of one that has left; without one,
        that of the queue under the cursor; 0 if there is none.
        """
        target = self._departed.get(self.pane) if self.has_left else self.target
        key = self.panes[QUEUES].key.partition("/")[0]
        return int(key or 0) if target is None else target.place

    def set_targets(self, pane: str, targets: Mapping[str, Target]) -> None:
        """Store where the rows of a pane lead; the target of a row that has left is kept."""
        before, part = self.targets.get(pane, {}), self.panes[pane]
        for row in part.rows if part.is_gone else ():
            if row.key in before and row.key not in targets:
                self._departed[pane] = before[row.key]
        self.targets[pane] = targets
