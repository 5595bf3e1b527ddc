"""The figures beside the list: what does not fit is left out, and never cut."""

from __future__ import annotations

import pytest

from engine.gauges import GAUGES, Ours
from engine.metrics import Samples
from engine.model import State
from tests.tui.spools import NOW
from tui import figures

NAMES = ("tasks_processed_total", "tasks_failed_total", "task_retries_total", "dlq_total")


@pytest.mark.parametrize("width", range(20, 121, 5))
def test_no_number_is_cut(width: int) -> None:
    """At no width does a part of a number stand for the number."""
    values: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
    values |= {(f"nftban_queue_{name}", ()): 31_753.0 for name in NAMES}
    values |= {(gauge, ()): 31_753.0 for gauge in GAUGES.values()}
    states = {State.PENDING: "pending", State.ACTIVE: "work", State.DEAD: "dlq"}
    ours = Ours(states, dict.fromkeys(states, 31_753), True)

    shown = figures.compact(Samples(values, NOW), None, ours, NOW, width)

    text = "".join(text for text, _ in shown[1])
    assert len(text) == width
    assert text.count("31,753") == text.count("31")


@pytest.mark.parametrize("width", [30, 40, 80, 120])
def test_what_a_queue_says_of_itself_takes_few_lines(width: int) -> None:
    """Beside a list every fact has its line; below one those that fit stand in three."""
    facts = [(f"fact {n}", "x" * 12) for n in range(9)]
    brief = figures.whole_briefly(facts, width)
    full = figures.whole(facts, width)
    assert len(brief) <= 4
    assert all(sum(len(text) for text, _ in line) <= width for line in brief)
    said = "".join(text for line in full for text, _ in line)
    assert all(name in said for name, _ in facts)
