"""All fields of a task as rows."""

from __future__ import annotations

import pytest

from engine.model import (
    ALL_RECIPIENTS_KEY,
    ATTEMPTS_ALLOWED_KEY,
    DUE_AS_STORED_KEY,
    NULL_SENDER,
    State,
)
from tests.console_places import NOW
from tests.tui.text.test_task_list import a_task
from tui.text.task_fields import others_text, task_fields


def test_the_fields_of_a_task() -> None:
    """A field unknown to the store is no line, an unknown value `?`, epoch seconds are a time."""
    rows = dict(task_fields(a_task(attempts=None), {State.PENDING: "queue"}, NOW))
    assert (rows["state"], rows["attempts"]) == ("queue", "?")
    assert not {"priority", "worker"} & set(rows)
    task = a_task(state=State.DEAD, extra={"dead_since": str(int(NOW - 60)), "dead_reason": "max"})
    rows = dict(task_fields(task, {}, NOW))
    assert (rows["dead since"], rows["dead reason"]) == ("09:41:08Z (1m ago)", "max")
    task = a_task(attempts=1, extra={ATTEMPTS_ALLOWED_KEY: "5"})
    fields = task_fields(task, {}, NOW)
    assert [row for row in fields if row[0].startswith("attempts")] == [("attempts", "1 of 5")]


def test_the_fields_of_a_mail() -> None:
    """Sender, account and size; the first recipients, and the number of all others, of which the
    index may have only the first."""
    many = tuple(f"u{n}@far.example" for n in range(7))
    task = a_task(sender=NULL_SENDER, recipients=many, destination=many[0], bytes=5_400)
    rows = dict(task_fields(task._replace(extra={ALL_RECIPIENTS_KEY: "5240"}), {}, NOW))
    assert rows["recipients"] == f"{', '.join(many[:5])} +5,235"
    assert (rows["sender"], rows["size"]) == ("<>", "5.4 kB")
    assert not {"destination", "account", ALL_RECIPIENTS_KEY} & set(rows)
    rows = dict(task_fields(task._replace(recipients=(), account="ann\x1b"), {}, NOW))
    assert (rows["destination"], rows["account"]) == ("u0@far.example", "ann�")
    assert "recipients" not in rows


def test_a_field_that_repeats_others_is_no_line() -> None:
    """A description of only sender and recipients, and the due time as the format has it."""
    extra = {DUE_AS_STORED_KEY: "2026-12-01T01:33:17Z"}
    task = a_task(sender="a@x", recipients=("b@y",), description="a@x to b@y", extra=extra)
    rows = dict(task_fields(task, {}, NOW))
    assert (rows["sender"], rows["recipients"]) == ("a@x", "b@y")
    assert not {"description", "at"} & set(rows)
    assert dict(task_fields(task._replace(description="hello"), {}, NOW))["description"] == "hello"


@pytest.mark.parametrize(
    ("others", "state", "text"),
    [
        (0, State.PENDING, "0 others in queue"),
        (1, State.DEAD, "1 other"),
        (3, State.DEAD, "3 others"),
    ],
)
def test_tasks_with_the_same_error_are_of_a_named_state(
    others: int, state: State, text: str
) -> None:
    """Of a waiting task only those that wait are counted, which is said; dead ones are usual."""
    assert others_text(others, state, {State.PENDING: "queue"}) == text
