"""Abandon an interrupted operation: the journal closes it, and its remaining rows stay."""

from __future__ import annotations

from engine.text.figures import format_count
from tui.confirm.action import Action, Fact, Reason
from tui.operations import operation_lines as view
from tui.operations import undo_plans
from tui.operations.operation_lines import ListedOperation
from tui.session.place_session import PlaceSession
from tui.text import keys
from tui.text.lines import BLANK_LINE, Line, Run, folded_lines


class AbandonAction(Action):
    """Abandon an operation; it changes no task, except half-moved ones."""

    kind = keys.ABANDON

    def __init__(self, listed: ListedOperation, session: PlaceSession) -> None:
        self._listed, self._session = listed, session
        self.acts_on = undo_plans.operation_scope(listed.operation)
        self.title = (("abandon", "title"), (f" {self.acts_on}", "strong"))
        self.basis = self.facts()

    @property
    def prompt(self) -> str:
        """What `y` does."""
        return "abandon it"

    def lines(self, now: float, width: int, reason: Reason) -> list[Line]:
        """What would happen to the operation and its rows."""
        half_moved = self._listed.half_moved
        rows = format_count(self._listed.operation.open_rows - half_moved, "task")
        words = (
            f"{rows} not moved: unchanged. The journal closes the operation, "
            "and no console asks again to resume it."
        )
        if half_moved:
            half = format_count(half_moved, "task")
            words = f"{half} half moved: completed or rolled back first. {words}"
        text = folded_lines(words, width)
        return [*text, BLANK_LINE, *view.detail_lines(self._listed, now, width)]

    def facts(self) -> tuple[Fact, ...]:
        """Whether the operation has ended, by the journal as last read."""
        op, history = self._listed.operation.op, self._session.history
        ended = [one.ended for one in history.operations if one.op == op]
        return (Fact(ended, "the operation has ended, or is not in the list any more"),)

    async def apply(self, reason: str) -> Run:
        """Mark it as abandoned in the journal.

        Raises:
            Unavailable: the journal cannot be written.
        """
        history, who = self._session.inspector.history, self._session.place.who.name
        await history.abandon_operation(self._listed.operation, f"abandoned by {who}")
        return f"abandoned: {self.acts_on}", "ok"
