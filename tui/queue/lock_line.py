"""The lock line of the task list, with the key that opens the lock screen."""

from __future__ import annotations

from engine.model import LockEvidence
from tui.format import present
from tui.format.present import Line
from tui.session.place import NO_LOCK_FILE, Place
from tui.widgets.lines import Lines

LOCK_SCREEN_KEY = "U"
"""Key of the lock screen, as in the key table."""


class LockLine(Lines):
    """Lock state of a place; the screen must keep the line visible while `alarms` is set."""

    def __init__(self, place: Place, read_only: bool) -> None:
        super().__init__(id="lock")
        self._place, self._read_only = place, read_only
        self.alarms = False

    @property
    def refusal(self) -> str:
        """Why the lock screen cannot be opened; "" if it can."""
        return self._place.why_no_unlock(self._read_only)

    def show_lock(
        self, evidence: LockEvidence | None, now: float, width: int, worker: int | None = None
    ) -> None:
        """Show the last evidence; `now` in epoch seconds UTC.

        `worker` is the PID of the worker started here, for places without a lock file.
        """
        none = NO_LOCK_FILE if self._place.has_leases else "none in this place"
        none += f"; worker PID {worker}, W stops it" if worker is not None else ""
        line: Line = ((f" lock  {none}", "muted"),)
        if self._place.lock is not None:
            line = present.lock_line(evidence, now, width, "" if self.refusal else LOCK_SCREEN_KEY)
        self.alarms = evidence is not None and evidence.verdict in present.ALARMING_VERDICTS
        self.show([line])
