"""The line of the list that says what the lock is doing, and the key that opens it."""

from __future__ import annotations

from engine.model import LockEvidence
from tui.format import present
from tui.format.present import Line
from tui.session.place import LEASES, Place
from tui.widgets.lines import Lines

KEY = "U"
"""Opens the lock, as the table of keys has it."""


class LockLine(Lines):
    """What is said of a place's lock; its screen must not hide it while it alarms."""

    def __init__(self, place: Place, read_only: bool) -> None:
        super().__init__(id="lock")
        self._place, self._read_only = place, read_only
        self.alarms = False

    @property
    def refusal(self) -> str:
        """Why the lock cannot be opened on screen; "" when it can."""
        return self._place.no_unlock(self._read_only)

    def tell(
        self, evidence: LockEvidence | None, now: float, width: int, worker: int | None = None
    ) -> None:
        """Show what was seen last; `now` in epoch seconds UTC.

        `worker` is the PID of the worker that was started here, which no lock would tell of.
        """
        none = LEASES if self._place.leases else "this place has none"
        none += f"; worker PID {worker}, W stops it" if worker is not None else ""
        line: Line = ((f" lock  {none}", "dim"),)
        if self._place.lock is not None:
            line = present.lock(evidence, now, width, "" if self.refusal else KEY)
        self.alarms = evidence is not None and evidence.verdict in present.ALARMING
        self.show([line])
