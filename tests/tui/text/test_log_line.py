"""A log line in a list."""

from __future__ import annotations

from engine.model import Problem
from tests.console_operator import words
from tests.console_places import NOW
from tui.queue.problems_screen import problem_rows
from tui.text.lines import fold_long_lines
from tui.text.log_line import log_line, whole_log_line


def test_foreign_text_does_no_harm() -> None:
    """A problem names its file and reason, a log line its level, without control characters."""
    (row,), _ = problem_rows([Problem("dlq/a\x1b.task", "empty")], {}, 0.0, 80)
    assert words([row.line]).split() == ["!", "a\ufffd.task", "DLQ", "empty", "?"]
    line = log_line(None, "ERROR", "Task failed\x1b]0;x\x07", 80)
    assert words([line]) == " E Task failed\ufffd]0;x\ufffd"
    assert line[1][1] == "error"


def test_a_whole_line_can_be_folded() -> None:
    """Its text goes on below its beginning, which a line of the list's width does not have."""
    text = "Queue processor stuck for 864s (PID: 16030) - recovery"
    lines = fold_long_lines([whole_log_line(NOW, "ALERT", text)], 40, 3)
    assert " ".join(" ".join(words([line]).split()) for line in lines).endswith(text)
    assert words([lines[1]]).startswith(" " * 12) and len(lines) == 2
    assert "recovery" not in words([log_line(NOW, "ALERT", text, 40)])
