"""The rows of the task list: times, attempts, ids, signs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.model import Lease, State, Task
from tests.console_operator import words
from tests.console_places import NOW
from tests.tables import each
from tests.tui.text.test_lines import FOREIGN
from tui.text.lines import width_of
from tui.text.log_line import shorten_ids
from tui.text.task_fields import task_fields
from tui.text.task_list import (
    ListedTask,
    TaskContents,
    TaskContext,
    id_cells,
    short_id,
    task_columns,
    task_line,
)


def a_task(**fields: object) -> Task:
    """A task of which only what is named matters."""
    task = Task("20261120T094115Z-mail_send-c2c41696", "mail_send", State.PENDING, NOW - 3600)
    return task._replace(**fields)  # type: ignore[arg-type]


def row_of(task: Task, context: TaskContext | None = None) -> str:
    """The row of a task in a list of 80 cells."""
    line = task_line(task, task_columns(task.state, 80), NOW, context or TaskContext(), 80)
    return "".join(text for text, _ in line)


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
    """For any task, its row is printable and no wider than the screen."""
    task = a_task(id=id, error=error, description=error, kind=id, state=state)
    row = task_line(task, task_columns(state, width), NOW, TaskContext(cursor, marked, gone), width)
    assert all(text.isprintable() for text, _ in row)
    assert width_of(row) == width


def test_cursor_mark_and_gone_need_no_colour() -> None:
    """Cursor, mark and a task that has left are told apart without any colour; a row that is kept
    for a moment says what was done with its task. Of a long id the end is shown."""
    for context, signs in (
        (TaskContext(), "   "),
        (TaskContext(has_cursor=True), "▶  "),
        (TaskContext(is_marked=True), " ● "),
        (TaskContext(has_cursor=True, is_marked=True), "▶● "),
        (TaskContext(is_gone=True), " ✗ "),
    ):
        row = row_of(a_task(), context)
        assert row.startswith(f"{signs}c2c41696  ") and ("left: " in row) is context.is_gone
    row = row_of(a_task(state=State.DEAD), TaskContext(is_gone=True, left="retried by ben"))
    assert "c2c41696  left: retried by ben (row kept 10s)" in row


@each(("task", "text"), [
    (a_task(due=0.0), "ready"),
    (a_task(due=NOW + 200), "in 3m"),
    (a_task(due=None), "?"),
    (a_task(state=State.ACTIVE, lease=Lease("77", NOW - 300)), "5m"),
    (a_task(state=State.DEAD, extra={"dead_since": str(NOW - 7200)}), "2h00m"),
    (a_task(state=State.DEAD), "?"),
])  # fmt: skip
def test_each_state_has_its_own_time(task: Task, text: str) -> None:
    """A waiting task says when it is due, a working one for how long, a dead one since when."""
    due = task_columns(task.state, 80)[4]
    assert due.cell(ListedTask(task, NOW))[0] == text and f" {text}  " in row_of(task)


@each(("limit", "text"), [(None, "2"), (3, "2/3")])
def test_attempts_have_their_limit(limit: int | None, text: str) -> None:
    """The attempts of a task are shown with their maximum, if that is known."""
    shape = task_columns(State.DEAD, 80, limit=lambda task: limit)
    assert shape[3].cell(ListedTask(a_task(attempts=2), NOW))[0] == text


@each(("idents", "cells"), [
    ((), 8),
    (("mails/esc",), 9),
    (("13-organizer",), 12),
    (("20261120T094115Z-mail_send-261c374b",), 8),
    (("mails/esc", "mails/repeat:daily:1795550041009"), 9),
    (("notifications/17",), 14),
])  # fmt: skip
def test_a_short_id_is_shown_in_full(idents: tuple[str, ...], cells: int) -> None:
    """Of one too long for a narrow screen its end tells it apart, and takes no room from others."""
    tasks = [Task(ident, "mails", State.PENDING, NOW) for ident in idents]
    longest = id_cells(tasks)
    assert task_columns(State.PENDING, 80, longest=longest)[0].width == cells


@each(("ident", "text"), [
    ("20261120T094115Z-mail_send-261c374b", "261c374b"),
    ("86ff9428-1d6e-4e0a-abcd-e182d06de09f", "d06de09f"),
    ("13-organizer", "13-organizer"),
])  # fmt: skip
def test_an_id_is_shortened_where_its_end_tells_it_apart(ident: str, text: str) -> None:
    """Ids that end in hexadecimal digits are shortened in lists and in log lines; names are not. Of
    a long queue's job the number is shown, not the last letters of the queue with it."""
    assert short_id(ident) == text
    assert shorten_ids(f"Task {ident} failed") == f"Task {text} failed"
    assert short_id("federation-delivery/1004") == "1004"


def test_what_has_no_age_is_unknown() -> None:
    """The age of a task of unknown creation is `?` wherever it is shown."""
    task = a_task(created=0.0)
    cell = task_columns(State.TRASH, 40)[1].cell(ListedTask(task, NOW))[0]
    assert row_of(task).split()[2] == cell == "?"
    assert dict(task_fields(task, {}, NOW))["created"] == "?"


@pytest.mark.parametrize("state", [State.PENDING, State.DEAD, State.HELD, State.TRASH])
@pytest.mark.parametrize("width", [60, 78, 80, 100, 118, 160])
def test_a_list_of_mail_has_its_addresses(state: State, width: int) -> None:
    """They fill the line with the error; of several recipients the first is shown, by its domain if
    it does not fit, with the number of the others. The sender is excluded where they lack room."""
    task = a_task(
        state=state,
        kind="mail",
        error="450 try again",
        sender="ana@a.example",
        recipients=("bob.the.builder@far.example", "b@c", "c@d"),
    )
    shape = task_columns(state, width, longest=11, worded=True, mailed=True)
    line = task_line(task, shape, NOW, TaskContext(), width)
    row = words([line])
    titles = {column.title for column in shape}
    assert ("FROM" in titles) == ("ana@a" in row) == (width >= 110)
    assert width_of(line) == width
    assert "TO" in titles and all(text in row for text in (" +2 ", "450"))
    assert ("mail" in row) == (width >= 130)


@each(("error", "shown"), [
    ("unavailable_450: 450 4.2.0 mailbox busy", "450 4.2.0 mailbox busy"),
    ("connect_refused_450: 451 not now", "connect_refused_450: 451 n…"),
])  # fmt: skip
def test_a_list_of_mail_at_80_columns_has_recipient_and_reply(error: str, shown: str) -> None:
    """A recipient and a reply of usual length are whole; a reply code is not printed twice."""
    to = "busy16@south.example.net"
    task = a_task(kind="mail", error=error, sender="a@b", recipients=(to,))
    shape = task_columns(
        State.PENDING, 80, mailed=True, contents=TaskContents().with_tasks([task], NOW)
    )
    assert words([task_line(task, shape, NOW, TaskContext(), 80)]).endswith(f"{to}  {shown}")


KNOWN, WAITING = "[REFUSED] 127.0.0.1:40451: Connection refused", "user mail of registration 10"


@each(("tasks", "width", "worded", "titles"), [
    ([a_task(kind="federation-delivery", error=KNOWN)], 160, False, "ID AGE TRIES DIED"),
    ([a_task(kind="mail", error=KNOWN)], 76, False, "ID AGE TRIES DIED"),
    ([a_task(kind="mail", error="busy")], 80, False, "ID KIND AGE TRIES DIED"),
    ([a_task(kind=kind, error=KNOWN) for kind in ("a", "b")], 80, False, "ID KIND AGE TRIES DIED"),
    ([Task(f"1-{kind}", kind, State.DEAD, NOW, description=WAITING) for kind in ("a", "b")], 72,
     True, "ID STATE AGE TRIES DIED"),
    ([Task(f"1-{kind}", kind, State.DEAD, NOW, description=WAITING) for kind in ("a", "b")], 60,
     True, "ID AGE TRIES DIED"),
])  # fmt: skip
def test_a_column_that_repeats_one_value_makes_room_for_errors(
    tasks: list[Task], width: int, worded: bool, titles: str
) -> None:
    """A kind that all rows have, or that ends their ids, has a column only where no error is cut,
    and so has the state of single rows."""
    contents = TaskContents().with_tasks(tasks, NOW)
    kinds = max(len(task.kind) for task in tasks)
    shape = task_columns(State.DEAD, width, worded=worded, kinds=kinds, contents=contents)
    assert [column.title for column in shape[: len(titles.split())]] == titles.split()


def test_a_wide_list_without_an_error_has_one_column_of_text() -> None:
    """At 200 columns, descriptions are not behind a column without a value."""
    for error, titles in (("", {"ERROR OR DESCRIPTION"}), ("busy", {"ERROR", "DESCRIPTION"})):
        contents = TaskContents().with_tasks([a_task(error=error, description="a mail")], NOW)
        shape = task_columns(State.PENDING, 196, contents=contents)
        assert titles <= {column.title for column in shape}


def test_times_are_no_wider_than_the_longest_one() -> None:
    """What ages and due times leave is the error's; a time that grows gets its cells again."""
    task = a_task(created=NOW - 120, due=NOW + 30, error="450 4.2.0 mailbox busy")
    for now, ages in ((NOW, "  2m      0  in <1m  450"), (NOW + 9000, "2h32m      0  ready  450")):
        contents = TaskContents().with_tasks([task], now)
        shape = task_columns(State.PENDING, 80, contents=contents)
        line = task_line(task, shape, now, TaskContext(), 80)
        assert ages in "".join(text for text, _ in line)


def test_addresses_are_no_wider_than_the_longest_one() -> None:
    """A recipient is whole before its error is; a short sender leaves its cells to the error."""
    error = "450 4.2.0 mailbox busy - RCPT"
    addresses = {"sender": "office@example.net", "recipients": ("busy22@west.example.net",)}
    task = a_task(kind="mail", error=error, **addresses)
    contents = TaskContents().with_tasks([task], NOW)
    for width, shown in ((77, error[:16]), (130, error)):
        shape = task_columns(State.PENDING, width, mailed=True, contents=contents)
        row = words([task_line(task, shape, NOW, TaskContext(), width)])
        assert f"{task.recipients[0]}  {shown}" in row


def test_a_task_that_is_one_recipient_has_its_address_before_the_error() -> None:
    """Of a ZMailer recipient, which has no sender: at 80 columns too, and no column is empty."""
    one = a_task(kind="smtp", error="450 4.2.0 mailbox busy", destination="busy88@south.example")
    other = a_task(kind="hold", error="not due yet", destination="hugo")
    contents = TaskContents().with_tasks([one, other], NOW)
    for width in (78, 120, 196):
        shape = task_columns(State.PENDING, width, mailed=bool(contents.address), contents=contents)
        rows = words([task_line(task, shape, NOW, TaskContext(), width) for task in (one, other)])
        assert "busy88@south.example  450 4.2.0 mailbox busy" in rows and "hugo  " in rows
        assert "FROM" not in {column.title for column in shape}
