"""What the lines of a journal say, as far as they can be understood, whoever wrote them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from engine.model import State
from engine.operations.execute import RowOutcome, RowResult
from engine.operations.journal_writer import Intent, Who
from engine.operations.plans import Row
from engine.text import decode

LONGEST = 4 << 20
"""Bytes of a line that are read: one of ours is a tenth of that, a longer one is none."""

NOT_OURS = (ValueError, KeyError, TypeError, AttributeError)
"""What is raised over a line that is none of ours."""


class Head(NamedTuple):
    """What is about to be done."""

    when: float
    intent: Intent
    planned: int


class JournaledRows(NamedTuple):
    """To which tasks."""

    rows: list[Row]


class Ends(NamedTuple):
    """What became of some: id, end, and the new revision or the reason."""

    ends: list[tuple[str, RowResult, str]]


def understood(
    line: Mapping[str, Any],
) -> Head | JournaledRows | Ends | float | Mapping[str, Any] | None:
    """A line's meaning: a float is when it was over, a mapping is a note; None: it has none."""
    try:
        match line["line"]:
            case "intent":
                return Head(_moment(line["when"]), _intent(line), _amount(line["planned"]))
            case "rows":
                return JournaledRows([_unpacked(packed) for packed in line["rows"]])
            case "ends":
                ends = ((end, line.get(str(end), {}).items()) for end in RowResult)
                return Ends([(ident, end, str(w)) for end, items in ends for ident, w in items])
            case "end":
                return _moment(line["when"])
            case "note":
                return line
    except NOT_OURS:
        return None
    return None


def ended_as(row: Row, end: RowResult, words: str) -> RowOutcome:
    """What became of a row, as a line has it."""
    return RowOutcome(row, end, rev=words) if end is RowResult.DONE else RowOutcome(row, end, words)


def _unpacked(packed: Sequence[str]) -> Row:
    ident, state, rev, *end = packed
    return Row(_text(ident), State(state), _text(rev), end=State(end[0]) if end else None)


def _intent(head: Mapping[str, Any]) -> Intent:
    texts = ("verb", "reason", "filter", "scope", "undoes", "follows")
    fields: dict[str, Any] = {name: _text(head[name]) for name in texts if name in head}
    fields |= {name: dict(head[name]) for name in ("values", "pace") if name in head}
    person = head["who"]
    said = {name: _text(person.get(name, "")) for name in ("user", "sudo", "ssh", "host")}
    return Intent(**fields, who=Who(**said, pid=_amount(person.get("pid", 0))))


_text = partial(decode.text, what="a text", most=LONGEST)
_amount = partial(decode.count, what="a number of tasks")
_moment = partial(decode.epoch, what="a time")
