"""Panes around the task list: task under the cursor, metrics, log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from textual.geometry import Size

from engine.logs.log_tail import LogLine
from engine.model import State, Task
from engine.monitor.metrics_check import OwnCounts
from engine.text.safe import safe_line
from tui.format import present
from tui.format.present import Line
from tui.queue import metrics_pane
from tui.session.place_watcher import PlaceReadings
from tui.widgets.lines import Lines


class TaskDetails(Lines):
    """Fields of one task, beside a wide list."""

    def show_task(
        self, task: Task | None, states: Mapping[State, str], why: str, now: float
    ) -> None:
        """Show a task; `why` is the reason why it waits, "" if unknown."""
        if task is None:
            self.show([])
            return
        width = self.size.width
        rows = [row for row in present.task_fields(task, states, now) if row[0] != "revision"]
        if why:
            rows.insert(3, ("waits", safe_line(why)))
        self.show([present.heading_line("task", width), *present.labelled_lines(rows, width)])


class MetricsPane(Lines):
    """Metrics files compared with the index's counts; without such files, the queue's own facts."""

    def show_metrics(self, signs: PlaceReadings, ours: OwnCounts, now: float, beside: bool) -> None:
        """Show all values `beside` a wide list, or a few lines below it."""
        width = self.size.width or 40
        if signs.queue is None and signs.queue_figures.rows:
            told = metrics_pane.fact_lines if beside else metrics_pane.brief_fact_lines
            self.show(told(signs.queue_figures.rows, width))
            return
        way = metrics_pane.side_lines if beside else metrics_pane.brief_lines
        self.show(way(signs.queue, signs.mail, ours, now, width))


class LogPane(Lines):
    """The last log lines that fit."""

    _told: tuple[Sequence[LogLine], Size | None] = ((), None)

    def show_log(self, log: Sequence[LogLine]) -> None:
        """Show the newest lines."""
        size = self.size
        width, height = size
        if not height or (log, size) == self._told:
            return  # unchanged, as in most calls: this runs every second
        self._told = log, size
        rows = [
            present.log_line(line.when, line.level, present.shorten_ids(line.text), width)
            for line in log[-(height - 1) :]
        ]
        nothing: Line = ((" no log lines yet", "muted"),)
        self.show([present.heading_line("log", width), *(rows or [nothing])])
