"""Write what a worker did: log lines and counters, many at a time, and how its run ended."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

from engine.formats.base.format import Setup
from engine.system.command_errors import EX_TIMEOUT, EX_UNAVAILABLE, print_error
from engine.text.error_text import error_text
from engine.text.safe import safe_line
from engine.work.services import REACHED_AGAIN, WorkerServices
from tui.cli.setup.output import print_json

if TYPE_CHECKING:
    from engine.work.worker import WorkerResult

_PRINTED = frozenset({"WARN", "ERROR", "ALERT"})
"""Levels of the lines that are printed."""


def record_start(setup: Setup) -> None:
    """Record in the journal that an operator started this worker on a terminal. One without a
    terminal belongs to a service, or to a console, which records it itself."""
    if not os.isatty(0):  # False also if it is closed, where `sys.stdin` is None
        return
    from engine.operations import controls  # loads the journal
    from engine.operations.journal import Intent

    intent = Intent(controls.CONTROL_VERB, setup.current_user())
    order, answer = (
        controls.Order(controls.START_WORKER_CONTROL),
        f"PID {os.getpid()}, on a terminal",
    )
    done = controls.run_recorded_action(setup.journal(), intent, order, lambda: answer, time.time)
    if done.trouble:
        print_error(f"not recorded: {safe_line(done.trouble)}")


class RunRecords:
    """Log lines and counts of a worker, kept back to be written many at a time."""

    def __init__(
        self, setup: Setup, mask: Callable[[str], str] = str, *, prints: bool = False
    ) -> None:
        """`mask`: removes from a text what the log must not contain. With `prints`, failures, and
        that the queue is reached again, are lines on standard error too."""
        self._setup, self._mask, self._prints = setup, mask, prints
        self._lines: list[tuple[str, str, float]] = []
        self._counts: Counter[str] = Counter()

    def services(self) -> WorkerServices:
        """The services of a worker that writes here; the caller sets its other ones."""
        return WorkerServices(
            log=self.log,
            alert=self.alert,
            add_count=self.add_count,
            write_log=self.write_log,
            write_counts=self.write_counts,
        )

    def log(self, level: str, text: str) -> None:
        """Keep a line with the present time."""
        self._lines.append((level, self._mask(text), time.time()))
        if self._prints and (level in _PRINTED or text == REACHED_AGAIN):
            print_error(safe_line(self._mask(text)))

    def alert(self, text: str) -> None:
        """Send an alert to syslog, after the lines before it."""
        self.write_log()
        self._setup.alert(self._mask(text))

    def add_count(self, name: str) -> None:
        """Add 1 to a counter."""
        self._counts[name] += 1

    def write_log(self) -> None:
        """Append the lines to the queue's log."""
        if self._lines:
            lines, self._lines = self._lines, []
            self._setup.log_lines(lines)

    def write_counts(self) -> None:
        """Add the counts to the counter files; an error is only reported."""
        counts, self._counts = self._counts, Counter()
        for name, number in counts.items():
            try:
                self._setup.counters().add(name, number)
            except OSError as error:
                path = f"{self._setup.queue.counters}/{name}"
                print_error(f"{path}: {error_text(error)}; {number} not counted")


def print_run_json(run: WorkerResult) -> None:
    """Print what a worker did in a run, as JSON."""
    print_json(
        {
            "done": run.done,
            "failed": run.failed,
            "gone": run.gone,
            "owed": run.owed,
            "refused": dict(run.refused),
            "last_failure": run.last_failure or None,
            "trouble": run.lost or run.unreachable or None,
        }
    )


DONE, OUTCOME_NOT_STORED = 0, 3
"""Exit codes: done; an outcome could not be stored and its task is still claimed."""


def print_run(run: WorkerResult, *, as_json: bool = False) -> int:
    """Print the result of a run and return its exit code."""
    if as_json:
        print_run_json(run)
    taken_text = f", {run.gone} taken by others while they ran" if run.gone else ""
    print_error(f"{run.done} done, {run.failed} failed{taken_text}")
    if run.unreachable:
        print_error(f"cannot reach the queue: {run.unreachable}")
    if run.owed:
        print_error(f"cannot store {run.owed} outcomes; their tasks are still claimed")
        return OUTCOME_NOT_STORED
    for kind, lack in sorted(run.lacks.items()):
        print_error(safe_line(f"{kind} not tried: {lack}"))
    if run.lacks:
        return EX_TIMEOUT
    return EX_UNAVAILABLE if run.unreachable else DONE
