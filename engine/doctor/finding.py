"""What a check finds, and how it is said; the same for every kind of place."""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import NamedTuple

from engine.doctor.place_facts import PlaceFacts, is_hidden
from engine.system import files
from engine.text.safe import shown

NAMED = 3
"""How many of many are named one by one."""


class Grade(StrEnum):
    """How bad it is."""

    OK = "ok"
    WARN = "warn"
    BAD = "bad"
    HIDDEN = "?"
    """The evidence is hidden from us, so nothing is said."""


class Finding(NamedTuple):
    """One line of the table."""

    grade: Grade
    what: str
    """What is the matter, and where."""
    mend: str = ""
    """The command that mends it, or what to do by hand."""


def needs_act(findings: Iterable[Finding]) -> bool:
    """Whether somebody has to do something."""
    return any(finding.grade in (Grade.WARN, Grade.BAD) for finding in findings)


def line(name: str, finding: Finding) -> list[str]:
    """A finding as lines of the table, safe to show."""
    said = [f"{finding.grade:<5} {name:<9} {shown(finding.what)}"]
    return [*said, f"{'':<15} mend: {shown(finding.mend)}"] if finding.mend else said


def hidden_from_us(what: str) -> Finding:
    """What is said of something whose evidence is hidden from us."""
    return Finding(Grade.HIDDEN, f"{what}: hidden from us")


def hidden_ones(paths: list[str]) -> Iterator[Finding]:
    """Some that are hidden from us, the first of them by name."""
    if paths:
        more = f" and {len(paths) - NAMED} more" if len(paths) > NAMED else ""
        yield hidden_from_us(", ".join(paths[:NAMED]) + more)


def unseen(patient: PlaceFacts, paths: Iterable[str]) -> Iterator[Finding]:
    """Says which of these folders may or may not be there."""
    yield from hidden_ones([p for p in paths if isinstance(patient.seen.get(p), PermissionError)])


def unread(paths: Iterable[str]) -> Iterator[Finding]:
    """Says which of these files cannot be read, and which of these folders not looked into."""
    yield from hidden_ones([path for path in dict.fromkeys(paths) if is_hidden(path)])


def without(path: str, seen: os.stat_result | OSError) -> Finding:
    """What is said where nothing can be, for want of a folder."""
    hidden = isinstance(seen, PermissionError)
    return hidden_from_us(path) if hidden else Finding(Grade.HIDDEN, f"{path} is not there")


def listed(folder: str) -> list[str]:
    """The names in a folder, in order; none where it cannot be listed."""
    try:
        return files.listed(folder)
    except OSError:
        return []  # missing, as was said already, or hidden: see `unread`


def and_more(patient: PlaceFacts, number: int, words: str) -> Iterator[Finding]:
    """How many more there are than are named one by one."""
    if number > NAMED:
        said = f"and {number - NAMED:,} more {words}"
        yield Finding(Grade.WARN, said, f"{patient.spooldeck} status")


def by_name(path: str) -> str:
    """A command that shows whose a file is, and what kind of file."""
    return f"ls -ld -- {shlex.quote(path)}"


def look_at(path: str) -> str:
    """A command that shows what lies there, and neither waits, nor follows a link, nor floods."""
    try:
        seen = os.lstat(path)
    except OSError:
        return by_name(path)
    plain = stat.S_ISREG(seen.st_mode) and seen.st_nlink == 1
    return f"head -c 2000 -- {shlex.quote(path)} | cat -v" if plain else by_name(path)
