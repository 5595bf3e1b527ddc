"""Findings of the doctor's checks, and their text; the same for every store format."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple

from engine.text.safe import safe_line

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


def needs_action(findings: Iterable[Finding]) -> bool:
    """True if an operator has to act."""
    return any(finding.grade in (Grade.WARN, Grade.BAD) for finding in findings)


def format_finding(name: str, finding: Finding) -> list[str]:
    """Format a finding as lines of the table, safe to show."""
    lines = [f"{finding.grade:<5} {name:<9} {safe_line(finding.problem)}"]
    return [*lines, f"{'':<15} fix: {safe_line(finding.fix)}"] if finding.fix else lines
