"""All fields of a task, as names and values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from engine.model import (
    ALL_RECIPIENTS_KEY,
    ATTEMPTS_ALLOWED_KEY,
    DUE_AS_STORED_KEY,
    State,
    Task,
    count_recipients,
    own_description,
)
from engine.text.figure import UNKNOWN
from engine.text.figures import format_bytes
from engine.text.safe import safe_line, state_name
from tui.text.lines import Run
from tui.text.times import format_time_with_age

SHOWN_RECIPIENTS = 5
"""Recipients that the fields of a mail name; the others are counted."""


def recipients_text(task: Task, most: int = 1) -> str:
    """The first `most` recipients of a mail, and the number of the others: `a@x +4`."""
    more = count_recipients(task) - min(most, len(task.recipients))
    return ", ".join(task.recipients[:most]) + (f" +{more:,}" if more else "")


def states_name(states: Iterable[State], words: Mapping[State, str]) -> str:
    """Some states in the words of their store: `DLQ and held`."""
    return " and ".join(state_name(words.get(state, state)) for state in sorted(states))


def others_text(others: int, state: State, words: Mapping[State, str]) -> str:
    """How many other tasks of a state have the same error, in the words of the store; dead ones are
    meant where no state is named."""
    where = "" if state is State.DEAD else f" in {state_name(words.get(state, state))}"
    return f"{others:,} {'other' if others == 1 else 'others'}{where}"


def is_number(text: str) -> bool:
    """True for a decimal number without a sign, as `extra` has epoch seconds."""
    return text.isascii() and text.replace(".", "", 1).isdigit()


def task_fields(task: Task, states: Mapping[State, str], now: float) -> list[Run]:
    """All fields of a task; empty fields are omitted."""
    allowed = f" of {most}" if (most := task.extra.get(ATTEMPTS_ALLOWED_KEY)) else ""
    rows = [
        ("id", task.id),
        ("kind", task.kind),
        ("state", states.get(task.state, task.state) + (f" ({task.word})" if task.word else "")),
        ("queue", task.queue),
        ("group", task.group),
        ("description", own_description(task)),
        ("sender", task.sender),
        ("recipients", recipients_text(task, SHOWN_RECIPIENTS)),
        ("destination", "" if task.destination in task.recipients else task.destination),
        ("account", UNKNOWN if task.account is None else task.account),
        ("size", "" if task.bytes is None else format_bytes(task.bytes)),
        ("created", format_time_with_age(task.created, now) if task.created > 0 else UNKNOWN),
        ("due", _due_words(task, now)),
        ("attempts", f"{UNKNOWN if task.attempts is None else task.attempts}{allowed}"),
        ("priority", str(task.priority) if task.priority else ""),
        ("last error", task.error),
        ("payload", task.payload),
        ("worker", _lease_words(task, now)),
        ("revision", task.rev),
        *(
            (name.replace("_", " "), _extra_text(name, text, now))
            for name, text in task.extra.items()
            if name not in (ATTEMPTS_ALLOWED_KEY, ALL_RECIPIENTS_KEY, DUE_AS_STORED_KEY)
        ),
    ]
    return [(name, safe_line(text)) for name, text in rows if text]


def _due_words(task: Task, now: float) -> str:
    if task.state not in (State.PENDING, State.HELD):
        return ""
    if task.due is None:
        return UNKNOWN
    return format_time_with_age(task.due, now) if task.due > now else "now"


def _lease_words(task: Task, now: float) -> str:
    """Owner, start and end of a claim; a store that does not know a time has 0."""
    if (lease := task.lease) is None:
        return ""
    since = f" since {format_time_with_age(lease.since, now)}" if lease.since > 0 else ""
    until = f", until {format_time_with_age(lease.until, now)}" if lease.until else ""
    return f"{lease.owner or '? (owner not stored)'}{since}{until}"


def _extra_text(name: str, text: str, now: float) -> str:
    is_time = name.endswith("_since") and is_number(text)
    return format_time_with_age(float(text), now) if is_time else text
