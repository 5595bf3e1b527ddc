"""Lines of the views without a screen: times, rows, tabs, figures, and what of them is painted."""

from __future__ import annotations

import errno
import os
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from engine.index.group_counts import TaskGroup
from engine.model import ATTEMPTS_ALLOWED_KEY, Lease, LockEvidence, Problem, State, Task, Verdict
from engine.monitor.metrics_check import GAUGES, OwnCounts
from engine.monitor.prometheus import Samples
from engine.text.safe import safe_line
from tui.format import present
from tui.format.glyphs import ASCII
from tui.format.keys import Hint
from tui.format.present import Line
from tui.groups import group_lines
from tui.queue import metrics_pane
from tui.queue.problems_screen import problem_rows

NOW = 1_795_167_728.0
"""2026-11-20 09:42:08Z."""


def a_task(**fields: object) -> Task:
    """A task of which only what is named matters."""
    task = Task("20261120T094115Z-mail_send-c2c41696", "mail_send", State.PENDING, NOW - 3600)
    return task._replace(**fields)  # type: ignore[arg-type]


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
        ((present.format_duration, -5), "<1m"),
        ((present.format_duration, 0), "<1m"),
        ((present.format_duration, 59.9), "<1m"),
        ((present.format_duration, 60), "1m"),
        ((present.format_duration, 3599), "59m"),
        ((present.format_duration, 7980), "2h13m"),
        ((present.format_duration, 86399), "23h59m"),
        ((present.format_duration, 86400 * 6 + 7200), "6d02h"),
        ((present.format_duration, 86400 * 412), "412d"),
        ((present.format_time, NOW - 600, NOW), "09:32:08Z (10m ago)"),
        ((present.format_time, NOW + 90, NOW), "09:43:38Z (in 1m)"),
        ((present.format_time, NOW - 86400, NOW), "2026-11-19 09:42:08Z (1d00h ago)"),
        ((present.format_countdown, 872), "14:32"),
        ((present.format_countdown, 0.2), "0:01"),
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
    ]
    shown_as = [show(number) for show in shows]
    shown_as += [present.format_time(number, NOW), present.format_time(NOW, number)]
    present.log_line(number, "INFO", "text", 40)
    assert all(shown_as)
    if not abs(number) < 1e12:
        assert shown_as == [present.UNKNOWN_TIME] * 6


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
        ((), "   "),
        (("has_cursor",), "▶  "),
        (("is_marked",), " ● "),
        (("has_cursor", "is_marked"), "▶● "),
        (("is_gone",), " ✗ "),
    ):
        named = present.TaskContext()._asdict() | dict.fromkeys(place, True)
        where = present.TaskContext(**named)
        row = text_of(present.task_line(a_task(), shape, NOW, where, 80))
        assert row.startswith(signs) and ("left: " in row) is ("is_gone" in place)


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
    shape = present.task_columns(task.state, 80)
    row = present.task_line(task, shape, NOW, present.TaskContext(), 80)
    assert shape[4].cell(task, NOW)[0] == words and f" {words}  " in text_of(row)


@pytest.mark.parametrize(("limit", "words"), [(None, "2"), (3, "2/3")])
def test_attempts_have_their_limit(limit: int | None, words: str) -> None:
    """The attempts of a task are shown with their maximum, if that is known."""
    shape = present.task_columns(State.DEAD, 80, limit=lambda task: limit)
    assert shape[3].cell(a_task(attempts=2), NOW)[0] == words


@pytest.mark.parametrize(
    ("state", "attempts", "reason", "runs"),
    [
        (State.DEAD, 3, "max_retries_exceeded", 4),
        (State.DEAD, 4, "max_retries_exceeded", 4),
        (State.TRASH, 3, "max_retries_exceeded", 4),
        (State.TRASH, 3, "", 3),
        (State.DEAD, 1, "max_retries_exceeded", 1),
        (State.DEAD, 3, "parked", 3),
        (State.PENDING, 3, "", 3),
    ],
)
def test_the_last_run_of_an_exhausted_task_counts(
    state: State, attempts: int, reason: str, runs: int
) -> None:
    """A task that used up its retries has had all its runs, though the last one is not stored."""
    task = a_task(state=state, attempts=attempts, extra={"dead_reason": reason})
    assert present.count_runs(task, 4) == runs


def test_a_row_that_has_left_says_why() -> None:
    """A ghost row names what was done with its task."""
    shape, where = present.task_columns(State.DEAD, 80), present.TaskContext(is_gone=True)
    row = present.task_line(a_task(), shape, NOW, where._replace(left="retried by ben"), 80)
    assert "c2c41696  left: retried by ben (row kept 10s)" in text_of(row)


def test_an_id_keeps_its_end() -> None:
    """Ids of one second differ at their end, so of a long one the end is shown."""
    row = present.task_line(
        a_task(), present.task_columns(State.PENDING, 80), NOW, present.TaskContext(), 80
    )
    assert text_of(row)[3:13] == "c2c41696  "


@pytest.mark.parametrize(
    ("tabs", "shown"),
    [
        ((["pending", "dlq"], [None, None], 1, True, 80), ["pending ?", "[DLQ ?]"]),
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
                60,
            ),
            ["[pending 123,456]", "DLQ 98,765", "problems 7"],
        ),
        (
            (["pending", "work", "problems"], [12, 0, 2], 0, True, 60, {}, (2,)),
            ["[pending 12]", "work 0", "problems 2+"],
        ),
        (
            (["pending", "work", "problems"], [12, 0, 0], 0, True, 60, {}, (2,)),
            ["[pending 12]", "work 0", "problems ?"],
        ),
    ],
    ids=["unknown", "unfinished", "finer word", "empty first", "rows read", "none read"],
)
def test_tabs_show_counts(tabs: Any, shown: list[str]) -> None:
    """An unknown count is `?`, an unfinished one `+`; empty tabs make room for those with tasks."""
    line = text_of(present.bracket_chips(present.tab_line(*tabs)))
    assert all(words in line for words in shown) and "trash" not in line


@pytest.mark.parametrize("current", range(5))
def test_tabs_are_never_cut(current: int) -> None:
    """Where tabs do not fit, whole ones are left out, and never the one that is shown."""
    names = ["pending", "work", "held", "dlq", "problems"]
    line = text_of(present.bracket_chips(present.tab_line(names, [12345] * 5, current, True, 40)))
    assert f"[{present.state_name(names[current])} 12,345]" in line
    assert line.count("12,345") == line.count("12")


@pytest.mark.parametrize(
    ("evidence", "words"),
    [
        ((Verdict.FREE,), "free"),
        ((Verdict.HELD, 42, NOW - 60), "PID 42, heartbeat 1m ago"),
        ((Verdict.HELD, 42, NOW - 2), "PID 42, heartbeat 2s ago"),
        (
            (Verdict.STUCK, 42, NOW - 7200, 7200, "older than 1200 s"),
            "[STUCK 2h00m] PID 42, older than 1200 s",
        ),
        ((Verdict.STALE, 42, None, 0, "its owner is gone"), "[STALE] PID 42, its owner is gone"),
        ((Verdict.STUCK, 42, None, 0, "PID 42 is alive"), "[STUCK] PID 42 is alive"),
        ((Verdict.UNKNOWN, None, None, None, "EACCES\x1b[2J"), "? EACCES\ufffd[2J"),
        ((), "? not examined yet"),
    ],
)
def test_the_lock_is_said_in_words(evidence: Any, words: str) -> None:
    """The lock line has the verdict, its holder and since when, and the reason of the verdict."""
    lock = LockEvidence(*evidence) if evidence else None
    line = present.bracket_chips(present.lock_line(lock, NOW, 100))
    assert text_of(line).rstrip() == f" lock {words}"


@pytest.mark.parametrize(
    ("about", "words"),
    [
        (present.Scope("X", matching="318"), "X"),
        (present.Scope("20261120T091815Z-mail_send-a1240c23"), "a1240c23"),
        (present.Scope("X", is_gone=True), "nothing: X is gone"),
        (present.Scope("X", marked=5), "5 marked"),
        (present.Scope("X", marked=5, hidden=3), "5 marked, 3 hidden marks not included"),
        (present.Scope("X", hidden=1), "0 marked, 1 hidden mark not included"),
        (present.Scope("X", acts_on_all=True, matching="1,318"), "all 1,318 matching"),
        (present.Scope("X", ranged=4), "nothing: 4 rows in the range"),
        (present.Scope(), "nothing"),
    ],
)
def test_the_scope_says_what_would_be_acted_on(about: present.Scope, words: str) -> None:
    """The line above the hints names exactly what a verb would act on now."""
    line = text_of(present.next_line("c", "groups these errors", present.scope_words(about), 80))
    assert line.endswith(f" acts on {words} ") and len(line) == 80


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
    task = a_task(attempts=1, extra={ATTEMPTS_ALLOWED_KEY: "5"})
    found = present.task_fields(task, {}, NOW)
    assert [row for row in found if row[0].startswith("attempts")] == [("attempts", "1 of 5")]


def test_foreign_text_does_no_harm() -> None:
    """A problem names its file and reason, a log line its level, without control characters."""
    (row,), _ = problem_rows([Problem("dlq/a\x1b.task", "empty")], 0.0, 80)
    assert text_of(row.line).split() == ["!", "dlq/a\ufffd.task", "empty", "?"]
    line = present.log_line(None, "ERROR", "Task failed\x1b]0;x\x07", 80)
    assert text_of(line).rstrip() == " E Task failed\ufffd]0;x\ufffd"
    assert line[1][1] == "error"


@pytest.mark.parametrize(
    ("idents", "cells"),
    [
        ((), 8),
        (("mails/esc",), 9),
        (("13-organizer",), 12),
        (("20261120T094115Z-mail_send-261c374b",), 8),
        (("mails/esc", "mails/repeat:daily:1795550041009"), 9),
        (("notifications/17",), 14),
    ],
)
def test_a_short_id_is_shown_in_full(idents: tuple[str, ...], cells: int) -> None:
    """Of one too long for a narrow screen its end tells it apart, and takes no room from others."""
    tasks = [Task(ident, "mails", State.PENDING, NOW) for ident in idents]
    longest = present.id_cells(tasks)
    assert present.task_columns(State.PENDING, 80, longest=longest)[0].width == cells


@pytest.mark.parametrize(
    ("ident", "shown"),
    [
        ("20261120T094115Z-mail_send-261c374b", "261c374b"),
        ("86ff9428-1d6e-4e0a-abcd-e182d06de09f", "d06de09f"),
        ("13-organizer", "13-organizer"),
    ],
)
def test_an_id_is_shortened_where_its_end_tells_it_apart(ident: str, shown: str) -> None:
    """Ids that end in hexadecimal digits are shortened in lists and in log lines; names are not."""
    assert present.short_id(ident) == shown
    assert present.shorten_ids(f"Task {ident} failed") == f"Task {shown} failed"


def test_a_short_id_has_no_part_of_the_name_of_its_queue() -> None:
    """Of a long queue's job the number is shown, not the last letters of the queue with it."""
    assert present.short_id("federation-delivery/1004") == "1004"


def test_what_has_no_age_is_unknown() -> None:
    """The age of a task of unknown creation is `?` wherever it is shown."""
    task, shape = a_task(created=0.0), present.task_columns(State.PENDING, 80)
    row = text_of(present.task_line(task, shape, NOW, present.TaskContext(), 80)).split()
    assert row[2] == present.task_columns(State.TRASH, 40)[1].cell(task, NOW)[0] == "?"
    assert dict(present.task_fields(task, {}, NOW))["created"] == "?"


STATES = {State.PENDING: "pending", State.ACTIVE: "work", State.DEAD: "dlq"}


@pytest.mark.parametrize("width", range(24, 121, 8))
def test_no_count_of_a_state_is_cut(width: int) -> None:
    """At no width is a part of a number shown for the number."""
    ours = OwnCounts(STATES, dict.fromkeys(STATES, 31_753), True)
    lines = [text_of(line) for line in metrics_pane.state_lines(None, ours, True, width)]
    assert all(len(line) == width and "31,753" in line for line in lines)


@pytest.mark.parametrize(
    ("pending", "words", "row"),
    [(7, "metrics agree, 2s", ""), (5, "metrics differ", "file 5")],
)
def test_states_show_where_the_metrics_file_differs(pending: int, words: str, row: str) -> None:
    """The frame says whether the metrics file agrees, and a bar gives way to its other value."""
    ours = OwnCounts(STATES, {State.PENDING: 7}, True)
    samples = Samples({(GAUGES[State.PENDING], ()): float(pending)}, NOW - 2)
    first, *_ = metrics_pane.state_lines(samples, ours, True, 40)
    assert metrics_pane.metrics_run(samples, ours, NOW)[0] == words
    assert row in text_of(first)


def test_a_queue_without_a_metrics_file_says_who_writes_it() -> None:
    """A file that is not there yet is one clear line; another error is named."""
    ours = OwnCounts(STATES, {}, True)
    missing, denied = os.strerror(errno.ENOENT), os.strerror(errno.EACCES)
    said = metrics_pane.metrics_warning(missing, ours, NOW)
    assert said == ("no queue.prom yet: the next worker run writes it", "muted")
    assert metrics_pane.metrics_run(missing, ours, NOW)[0] == "no metrics file"
    assert metrics_pane.metrics_warning(denied, ours, NOW)[0] == f"queue.prom: {denied}"


def test_the_parts_of_a_bar_are_told_apart_without_colours() -> None:
    """Each state of a group has another fill, also in ASCII."""
    group = TaskGroup("a", (3,) * len(State), None, None)
    text = text_of(group_lines.state_bar(group, group.total, 24))
    assert {"█", "▓", "▒", "░"} == {*text}
    assert len({*text.translate(ASCII)}) == 4


def test_the_facts_of_a_queue_take_few_lines() -> None:
    """Below the bars are the first facts of a queue, one on a line."""
    facts = [(f"fact {n}", "x" * 50) for n in range(9)]
    lines = [text_of(line) for line in metrics_pane.fact_rows(facts, 30)]
    assert len(lines) == metrics_pane.MAX_FACTS and all(len(line) == 30 for line in lines)
