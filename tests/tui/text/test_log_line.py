"""A log line in a list."""

from __future__ import annotations

from engine.model import Problem
from tui.queue.problems_screen import problem_rows
from tui.text.lines import Line
from tui.text.log_line import log_line


def text_of(line: Line) -> str:
    """The line without its looks."""
    return "".join(text for text, _ in line)


def test_foreign_text_does_no_harm() -> None:
    """A problem names its file and reason, a log line its level, without control characters."""
    (row,), _ = problem_rows([Problem("dlq/a\x1b.task", "empty")], 0.0, 80)
    assert text_of(row.line).split() == ["!", "dlq/a\ufffd.task", "empty", "?"]
    line = log_line(None, "ERROR", "Task failed\x1b]0;x\x07", 80)
    assert text_of(line).rstrip() == " E Task failed\ufffd]0;x\ufffd"
    assert line[1][1] == "error"
