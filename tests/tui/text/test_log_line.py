"""A log line in a list."""

from __future__ import annotations

from engine.model import Problem
from tests.console_operator import words
from tui.queue.problems_screen import problem_rows
from tui.text.log_line import log_line


def test_foreign_text_does_no_harm() -> None:
    """A problem names its file and reason, a log line its level, without control characters."""
    (row,), _ = problem_rows([Problem("dlq/a\x1b.task", "empty")], {}, 0.0, 80)
    assert words([row.line]).split() == ["!", "a\ufffd.task", "DLQ", "empty", "?"]
    line = log_line(None, "ERROR", "Task failed\x1b]0;x\x07", 80)
    assert words([line]) == " E Task failed\ufffd]0;x\ufffd"
    assert line[1][1] == "error"
