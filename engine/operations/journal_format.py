"""Parse the lines of a journal file into values. The lines may come from any program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from engine.model import State
from engine.operations.execute import RowOutcome, RowResult
from engine.operations.journal_writer import Intent, Who
from engine.operations.plans import Row
from engine.text import decode

MAX_LINE_BYTES = 4 << 20
"""Maximum bytes of a line; ours have at most a tenth of that."""

PARSE_ERRORS = (ValueError, KeyError, TypeError, AttributeError)
"""What parsing an invalid line may raise."""


class Head(NamedTuple):
    """The intent of an operation."""

    when: float
    intent: Intent
    planned: int


class JournaledRows(NamedTuple):
    """Some rows of an operation."""

    rows: list[Row]


class Ends(NamedTuple):
    """The outcomes of some rows: id, result, and the new revision or the reason."""

    ends: list[tuple[str, RowResult, str]]


def parse_line(
    line: Mapping[str, Any],
) -> Head | JournaledRows | Ends | float | Mapping[str, Any] | None:
    """Parse a line: a float is the time of the `end` line, a mapping is a note; None: invalid."""
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
    except PARSE_ERRORS:
        return None
    return None


def make_row_outcome(row: Row, end: RowResult, words: str) -> RowOutcome:
    """Make the outcome of a row from a line's result and text."""
    return RowOutcome(row, end, rev=words) if end is RowResult.DONE else RowOutcome(row, end, words)


def _unpacked(packed: Sequence[str]) -> Row:
    ident, state, rev, *end = packed
    return Row(_text(ident), State(state), _text(rev), target=State(end[0]) if end else None)


def _intent(head: Mapping[str, Any]) -> Intent:
    texts = ("verb", "reason", "filter", "scope", "undoes", "follows")
    fields: dict[str, Any] = {name: _text(head[name]) for name in texts if name in head}
    fields |= {name: dict(head[name]) for name in ("values", "pace") if name in head}
    person = head["who"]
    said = {name: _text(person.get(name, "")) for name in ("user", "sudo", "ssh", "host")}
    return Intent(**fields, who=Who(**said, pid=_amount(person.get("pid", 0))))


_text = partial(decode.check_text, what="a text", most=MAX_LINE_BYTES)
_amount = partial(decode.check_count, what="a number of tasks")
_moment = partial(decode.check_epoch, what="a time")
