"""Lines of the views without a screen: times, rows, tabs, figures, and what of them is painted."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from engine.model import Lease, LockEvidence, Problem, State, Task, Verdict
from engine.monitor.metrics_check import GAUGES, OwnCounts
from engine.monitor.prometheus import Samples
from engine.text.safe import safe_line
from tui.format import present
from tui.format.keys import Hint
from tui.format.line_diff import MERGE_GAP_CELLS, changed_spans
from tui.format.present import Line, cut_line
from tui.queue import metrics_pane

NOW = 1_795_167_728.0
"""2026-11-20 09:42:08Z."""


def a_task(**fields: object) -> Task:
    """A task of which only what is named matters."""
    task = Task("20261120T094115Z-mail_send-c2c41696", "mail_send", State.PENDING, NOW - 3600)
    return replace(task, **fields)  # type: ignore[arg-type]


def text_of(line: Line) -> str:
    """The line without its looks."""
    return "".join(text for text, _ in line)


@given(st.text())
def test_a_text_takes_the_cells_that_the_terminal_library_counts(text: str) -> None:
    """Whatever it holds, what is told without the library is what the library tells."""
    assert present.cells_of(text) == cell_len(text)


@pytest.mark.parametrize(
    ("show", "words"),
    [
        *(
            ((present.format_duration, -5), "<1m"),
            ((present.format_duration, 0), "<1m"),
            ((present.format_duration, 59.9), "<1m"),
        ),
        *(((present.format_duration, 60), "1m"), ((present.format_duration, 3599), "59m")),
        *(((present.format_duration, 7980), "2h13m"), ((present.format_duration, 86399), "23h59m")),
        *(
            ((present.format_duration, 86400 * 6 + 7200), "6d02h"),
            ((present.format_duration, 86400 * 412), "412d"),
        ),
        ((present.format_time, NOW - 600, NOW), "09:32:08Z (10m ago)"),
        ((present.format_time, NOW + 90, NOW), "09:43:38Z (in 1m)"),
        ((present.format_time, NOW - 86400, NOW), "2026-11-19 09:42:08Z (1d00h ago)"),
        *(((present.format_countdown, 872), "14:32"), ((present.format_countdown, 0.2), "0:01")),
    ],
)
def test_times_and_rates(show: tuple[Any, ...], words: str) -> None:
    """A span has two units in six cells, a time its date unless today, an unknown rate is `?`."""
    function, *values = show
    assert function(*values) == words


@pytest.mark.parametrize("width", [-3, 0, 1])
def test_text_is_folded_at_any_width(width: int) -> None:
    """A terminal narrower than a margin gets one character a line, and the folding ends."""
    assert present.fold_text("ab c", width) == ["a", "b", "c"]


@given(st.floats() | st.sampled_from([1e300, -1e300, float("nan"), float("inf")]))
def test_any_number_can_be_shown_as_a_time(number: float) -> None:
    """What no clock or calendar holds is shown as `?`, and raises nothing."""
    shows = [
        present.format_duration,
        present.format_age,
        present.format_countdown,
        present.format_clock,
        present.format_rate,
    ]
    shown_as = [show(number) for show in shows]
    shown_as += [present.format_time(number, NOW), present.format_time(NOW, number)]
    present.log_line(number, "INFO", "text", 40)
    assert all(shown_as)
    if not abs(number) < 1e12:
        assert shown_as == [present.UNKNOWN_TIME] * 7


FOREIGN = st.text(
    st.characters(exclude_categories=["Cs"]) | st.sampled_from("\x1b\x9b\u202e\x00\n\r\t[]漢😀")
)


@given(text=FOREIGN, width=st.integers(0, 60))
def test_a_text_is_fitted_to_the_cell(text: str, width: int) -> None:
    """Whatever a text holds, it is made exactly as wide as its column, from either end."""
    safe = safe_line(text)
    assert cell_len(present.fit_text(safe, width)) == width
    assert cell_len(present.fit_text_end(safe, width)) == width


@given(text=FOREIGN, width=st.integers(8, 60))
def test_folding_loses_no_word(text: str, width: int) -> None:
    """A text that is folded keeps all but its spaces, and no piece is too wide."""
    safe = safe_line(text)
    pieces = present.fold_text(safe, width)
    assert "".join(pieces).replace(" ", "") == safe.replace(" ", "")
    assert all(cell_len(piece) <= width for piece in pieces)


@given(
    error=FOREIGN,
    id=FOREIGN,
    state=st.sampled_from(State),
    width=st.integers(20, 200),
    cursor=st.booleans(),
    marked=st.booleans(),
    gone=st.booleans(),
)
def test_a_row_never_breaks_the_screen(
    error: str, id: str, state: State, width: int, cursor: bool, marked: bool, gone: bool
) -> None:
    """Whatever a task holds, its row is printable and no wider than the screen."""
    task = a_task(id=id, error=error, description=error, kind=id, state=state)
    shape = present.task_columns(state, width)
    row = present.task_line(task, shape, NOW, present.TaskContext(cursor, marked, gone), width)
    assert text_of(row).isprintable()
    assert present.width_of(row) == width


def test_cursor_mark_and_gone_need_no_colour() -> None:
    """Cursor, mark and a task that has left are told apart without any colour."""
    shape = present.task_columns(State.PENDING, 80)
    for place, signs in (
        *(((), "   "), (("has_cursor",), "▶  "), (("is_marked",), " ● ")),
        *((("has_cursor", "is_marked"), "▶● "), (("is_gone",), " ✗ ")),
    ):
        where = present.TaskContext(**dict.fromkeys(place, True))
        row = text_of(present.task_line(a_task(), shape, NOW, where, 80))
        assert row.startswith(signs) and ("gone" in row) is ("is_gone" in place)


@pytest.mark.parametrize(
    ("task", "words"),
    [
        (a_task(due=0.0), "ready"),
        (a_task(due=NOW + 200), "in 3m"),
        (a_task(due=None), "?"),
        (a_task(state=State.ACTIVE, lease=Lease("77", NOW - 300)), "5m"),
        (a_task(state=State.DEAD, extra={"dead_since": str(NOW - 7200)}), "2h00m"),
        (a_task(state=State.DEAD), "?"),
    ],
)
def test_each_state_has_its_own_time(task: Task, words: str) -> None:
    """A waiting task says when it is due, a working one for how long, a dead one since when."""
    row = present.task_line(
        task, present.task_columns(task.state, 80), NOW, present.TaskContext(), 80
    )
    assert text_of(row)[42:50].strip() == words


def test_an_id_keeps_its_end() -> None:
    """Ids of one second differ at their end, so of a long one the end is shown."""
    row = present.task_line(
        a_task(), present.task_columns(State.PENDING, 80), NOW, present.TaskContext(), 80
    )
    assert text_of(row)[3:13] == "c2c41696  "


@pytest.mark.parametrize(
    ("tabs", "shown"),
    [
        ((["pending", "dlq"], [None, None], 1, True, 80), ["pending ?", "[dlq ?]"]),
        ((["pending"], [1204], 0, False, 80), ["pending 1,204+"]),
        (
            (["pending", "held"], [5, 0], 0, True, 80, {0: "2 failed"}),
            ["[pending 5 (2 failed)]"],
        ),
        (
            (
                ["pending", "work", "held", "dlq", "trash", "problems"],
                [123456, 12, 0, 98765, 0, 7],
                0,
                True,
                64,
            ),
            ["[pending 123,456]", "dlq 98,765", "problems 7"],
        ),
    ],
    ids=["unknown", "unfinished", "finer word", "empty first"],
)
def test_tabs_show_counts(tabs: Any, shown: list[str]) -> None:
    """An unknown count is `?`, an unfinished one `+`; empty tabs make room for those with tasks."""
    line = text_of(present.tab_line(*tabs))
    assert all(words in line for words in shown) and "trash" not in line


@pytest.mark.parametrize("current", range(5))
def test_tabs_are_never_cut(current: int) -> None:
    """Where tabs do not fit, whole ones are left out, and never the one that is shown."""
    names = ["pending", "work", "held", "dlq", "problems"]
    line = text_of(present.tab_line(names, [12345] * 5, current, True, 40))
    assert f"[{names[current]} 12,345]" in line
    assert line.count("12,345") == line.count("12")


def test_a_narrow_scope_keeps_the_end_of_an_id() -> None:
    """Ids of one second differ at their end, so that is what a narrow scope line shows."""
    line = text_of(present.scope_line(present.Scope(a_task().id), 40))
    assert line.startswith(" acts on: row …")
    assert line.rstrip().endswith(a_task().id[-12:])


@pytest.mark.parametrize(
    ("evidence", "words"),
    [
        ((Verdict.FREE,), "free"),
        ((Verdict.HELD, 42, NOW - 60), "held by PID 42 since 09:41:08Z (1m ago)"),
        (
            (Verdict.STUCK, 42, NOW - 7200, 7200, "older than 1200 s"),
            "! CRIT stuck by PID 42 since 07:42:08Z (2h00m ago)  older than 1200 s",
        ),
        (
            (Verdict.STALE, 42, None, 0, "its owner is gone"),
            "! WARN stale by PID 42  its owner is gone",
        ),
        ((Verdict.UNKNOWN, None, None, None, "EACCES\x1b[2J"), "unknown  EACCES\ufffd[2J"),
        ((), "not examined yet"),
    ],
)
def test_the_lock_is_said_in_words(evidence: Any, words: str) -> None:
    """The lock line has the verdict, its holder and since when, and the reason of the verdict."""
    lock = LockEvidence(*evidence) if evidence else None
    assert text_of(present.lock_line(lock, NOW, 100)).rstrip() == f" lock  {words}"


@pytest.mark.parametrize(
    ("about", "words"),
    [
        (present.Scope("X", matching=318), "row X"),
        (present.Scope("X", is_gone=True), "nothing: X is gone"),
        (present.Scope("X", marked=5), "5 marked"),
        (present.Scope("X", marked=5, hidden=3), "5 marked   3 hidden marks not included"),
        (present.Scope("X", hidden=1), "0 marked   1 hidden mark not included"),
        (present.Scope("X", acts_on_all=True, matching=1318), "all 1,318 matching"),
        (present.Scope(), "nothing"),
    ],
)
def test_the_scope_says_what_would_be_acted_on(about: present.Scope, words: str) -> None:
    """The scope line names exactly what a verb would act on now."""
    assert text_of(present.scope_line(about, 80)).rstrip() == f" acts on: {words}"


def test_hints_that_do_not_fit_are_left_to_the_help() -> None:
    """Hints are never cut within a word; the last two, help and back, always stay."""
    (line,) = present.hint_lines([Hint(f"k{n}", "something") for n in range(20)], 46)
    assert text_of(line) == " k0 something  k18 something  k19 something   "


def test_the_fields_of_a_task() -> None:
    """A field unknown to the store is no line, an unknown value `?`, epoch seconds are a time."""
    rows = dict(present.task_fields(a_task(attempts=None), {State.PENDING: "queue"}, NOW))
    assert (rows["state"], rows["attempts"]) == ("queue", "?")
    assert not {"priority", "worker"} & set(rows)
    task = a_task(state=State.DEAD, extra={"dead_since": str(int(NOW - 60)), "dead_reason": "max"})
    rows = dict(present.task_fields(task, {}, NOW))
    assert (rows["dead since"], rows["dead reason"]) == ("09:41:08Z (1m ago)", "max")


def test_foreign_text_does_no_harm() -> None:
    """A problem names its file and reason, a log line its level, without control characters."""
    lines = present.problem_lines(Problem("dlq/a\x1b.task", "empty"), {}, 80)
    assert [text_of(line) for line in lines] == [" ! dlq/a\ufffd.task", "     empty"]
    line = present.log_line(None, "ERROR", "Task failed\x1b]0;x\x07", 80)
    assert text_of(line).rstrip() == " E Task failed\ufffd]0;x\ufffd"
    assert line[1][1] == "error"


@pytest.mark.parametrize(("longest", "cells"), [(0, 8), (9, 9), (12, 12), (14, 14), (36, 8)])
def test_a_short_id_is_shown_in_full(longest: int, cells: int) -> None:
    """Of one too long for a narrow screen its end tells it apart; one that fits has the room."""
    assert present.task_columns(State.PENDING, 80, longest=longest)[0].width == cells


def test_what_has_no_age_is_unknown() -> None:
    """The age of a task of unknown creation is `?` wherever it is shown."""
    task, shape = a_task(created=0.0), present.task_columns(State.PENDING, 80)
    row = text_of(present.task_line(task, shape, NOW, present.TaskContext(), 80)).split()
    assert row[2] == present.task_columns(State.TRASH, 40)[1].cell(task, NOW)[0] == "?"
    assert dict(present.task_fields(task, {}, NOW))["created"] == "?"


NAMES = ("tasks_processed_total", "tasks_failed_total", "task_retries_total", "dlq_total")


@pytest.mark.parametrize("width", range(20, 121, 5))
def test_no_number_is_cut(width: int) -> None:
    """At no width is a part of a number shown for the number."""
    names = [f"nftban_queue_{name}" for name in NAMES]
    values: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
    values |= {(name, ()): 31_753.0 for name in (*names, *GAUGES.values())}
    states = {State.PENDING: "pending", State.ACTIVE: "work", State.DEAD: "dlq"}
    ours = OwnCounts(states, dict.fromkeys(states, 31_753), True)
    shown = metrics_pane.brief_lines(Samples(values, NOW), None, ours, NOW, width)
    text = text_of(shown[1])
    assert len(text) == width and text.count("31,753") == text.count("31")


@pytest.mark.parametrize("width", [30, 40, 80, 120])
def test_the_facts_of_a_queue_take_few_lines(width: int) -> None:
    """Beside a list every fact has its line; below one those that fit take three."""
    facts = [(f"fact {n}", "x" * 12) for n in range(9)]
    brief, full = metrics_pane.brief_fact_lines(facts, width), metrics_pane.fact_lines(facts, width)
    assert len(brief) <= 4 and all(len(text_of(line)) <= width for line in brief)
    said = "".join(map(text_of, full))
    assert all(name in said for name, _ in facts)


WIDTH = 60
LINES = st.lists(
    st.tuples(st.text(alphabet="ab ▶▁…字", max_size=12), st.sampled_from(["", "error", "muted"])),
    max_size=8,
).map(tuple)


def cells(line: Line) -> list[tuple[str, str]]:
    """What each cell of a line shows; the second half of a wide character shows nothing."""
    shown = []
    for text, look in cut_line(line, WIDTH):
        for char in text:
            shown += [(char, look)] + [("", look)] * (cell_len(char) - 1)
    return shown


@given(old=LINES, new=LINES)
def test_what_differs_is_painted(old: Line, new: Line) -> None:
    """Painting the spans over the old line gives the new one, and they never overlap."""
    screen, wanted = cells(old), cells(new)
    spans = changed_spans(cut_line(old, WIDTH), cut_line(new, WIDTH), WIDTH)
    for at, length in spans:
        assert at >= 0 and length > 0 and at + length <= WIDTH
        screen[at : at + length] = wanted[at : at + length]
    assert screen == wanted
    for (at, length), (following, _) in pairwise(spans):
        assert following - (at + length) >= MERGE_GAP_CELLS - 1


def test_only_the_cells_that_changed() -> None:
    """Two numbers far apart are painted by themselves, near ones together, equal lines never."""
    assert changed_spans((("ab", ""), ("c", "")), (("abc", ""),), 10) == []
    old, new = f" 12    7{'':30}9", f" 13    8{'':30}8"
    assert changed_spans(((old, ""),), ((new, ""),), 60) == [(2, 6), (38, 1)]
