"""Lines of groups of tasks."""

from __future__ import annotations

from engine.index.group_counts import TaskGroup
from engine.model import State
from tui.groups import group_lines
from tui.text.glyphs import ASCII
from tui.text.lines import Line


def text_of(line: Line) -> str:
    """The line without its looks."""
    return "".join(text for text, _ in line)


def test_the_parts_of_a_bar_differ_without_colours() -> None:
    """Each state of a group has another fill, also in ASCII."""
    group = TaskGroup("a", (3,) * len(State), None, None)
    text = text_of(group_lines.state_bar(group, group.total, 24))
    assert {"█", "▓", "▒", "░"} == {*text}
    assert len({*text.translate(ASCII)}) == 4
