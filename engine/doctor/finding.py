"""Findings of the doctor's checks, and their text; the same for every store format."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import StrEnum
from functools import partial
from typing import TypeVar

from engine.text.figures import format_count
from engine.text.safe import safe_line
from engine.values import NamedTuple

MAX_LISTED = 3
"""Number of findings listed one by one; the rest is only counted."""


class Grade(StrEnum):
    """Severity of a finding."""

    OK = "ok"
    WARN = "warn"
    BAD = "bad"
    HIDDEN = "?"
    """Not decidable: permission denied on the evidence."""


class Finding(NamedTuple):
    """One line of the table."""

    grade: Grade
    problem: str
    """The problem and its location."""
    fix: str = ""
    """Command that repairs it, or what to do by hand."""


ok, warn, bad, hidden = (partial(Finding, grade) for grade in Grade)
"""Make a finding of each grade, from the problem and its fix."""


def run_checks(checks: Iterable[tuple[str, Iterable[Finding]]]) -> Iterator[tuple[str, Finding]]:
    """Run a table of checks: yield each finding with the name of its check."""
    for name, findings in checks:
        for finding in findings:
            yield name, finding


T = TypeVar("T")


def list_first(
    items: Sequence[T],
    describe: Callable[[T], Finding],
    more: str,
    fix: str,
    limit: int = MAX_LISTED,
) -> Iterator[Finding]:
    """The findings on the first items, and a warning with the number of the others; `more` says
    what they are."""
    yield from map(describe, items[:limit])
    if len(items) > limit:
        yield warn(f"and {len(items) - limit:,} {more}", fix)


def join_first(names: Sequence[str]) -> str:
    """The first names, and the number of the others."""
    more = f" and {len(names) - MAX_LISTED:,} more" if len(names) > MAX_LISTED else ""
    return ", ".join(names[:MAX_LISTED]) + more


def count_are(number: int, noun: str) -> str:
    """`1 task is`, `1,204 tasks are`."""
    return f"{format_count(number, noun)} {'is' if number == 1 else 'are'}"


def needs_action(findings: Iterable[Finding]) -> bool:
    """True if an operator has to act."""
    return any(finding.grade in (Grade.WARN, Grade.BAD) for finding in findings)


def format_finding(name: str, finding: Finding) -> list[str]:
    """Format a finding as lines of the table, safe to show."""
    lines = [f"{finding.grade:<5} {name:<9} {safe_line(finding.problem)}"]
    return [*lines, f"{'':<15} fix: {safe_line(finding.fix)}"] if finding.fix else lines
