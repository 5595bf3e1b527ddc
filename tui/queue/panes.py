"""The panes around the task list: the task under the cursor, the figures, the logs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from textual.geometry import Size

from engine.logs.log_tail import LogLine
from engine.model import State, Task
from engine.monitor.metrics_check import Ours
from engine.text.safe import shown
from tui.format import present
from tui.format.present import Line
from tui.queue import metrics_pane
from tui.session.place_watcher import Signs
from tui.widgets.lines import Lines


class Details(Lines):
    """What there is to know of one task, beside a wide list."""

    def tell(self, task: Task | None, states: Mapping[State, str], why: str, now: float) -> None:
        """Show this one; `why` says what keeps it waiting, "" when nothing is known."""
        if task is None:
            self.show([])
            return
        width = self.size.width
        rows = [row for row in present.fields(task, states, now) if row[0] != "revision"]
        if why:
            rows.insert(3, ("waits", shown(why)))
        self.show([present.heading("task", width), *present.labelled(rows, width)])


class MetricsPane(Lines):
    """The metrics files next to our own counts, for the width and the height there is.

    Where there are none, what the queue says of itself as a whole.
    """

    def tell(self, signs: Signs, ours: Ours, now: float, beside: bool) -> None:
        """Show them in full `beside` a wide list, or in a few lines below it."""
        width = self.size.width or 40
        if signs.queue is None and signs.facts.rows:
            told = metrics_pane.whole if beside else metrics_pane.whole_briefly
            self.show(told(signs.facts.rows, width))
            return
        way = metrics_pane.lines if beside else metrics_pane.compact
        self.show(way(signs.queue, signs.mail, ours, now, width))


class LogPane(Lines):
    """The last lines of the logs, as many as there is room for."""

    _told: tuple[Sequence[LogLine], Size | None] = ((), None)

    def tell(self, log: Sequence[LogLine]) -> None:
        """Show the newest of these."""
        size = self.size
        width, height = size
        if not height or (log, size) == self._told:
            return  # nobody wrote anything: nearly always, and it is asked each second
        self._told = log, size
        rows = [
            present.log_line(line.when, line.level, present.brief(line.text), width)
            for line in log[-(height - 1) :]
        ]
        nothing: Line = ((" no log of this place is there to be read", "dim"),)
        self.show([present.heading("log", width), *(rows or [nothing])])
