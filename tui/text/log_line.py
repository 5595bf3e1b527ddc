"""A line of a log in a list."""

from __future__ import annotations

import re
import time

from engine.text.safe import safe_line
from tui.text.lines import Line, Run, cut_line
from tui.text.times import is_valid_time

_LEVELS = {
    "CRITICAL": "error",
    "ERROR": "error",
    "WARN": "warn",
    "WARNING": "warn",
    "SUCCESS": "ok",
    "DEBUG": "muted",
}


_IDS = re.compile(
    r"\b(?:[0-9]{8}T[0-9]{6}Z\w*-[\w.]+-|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{4})([0-9a-f]{8})\b"
)
"""Ids with the time of their creation, and UUIDs."""


def shorten_ids(text: str) -> str:
    """A log line with task ids as short as in the list, so that errors fit."""
    return _IDS.sub(r"\1", text)


def log_line(when: float | None, level: str, text: str, width: int, margin: int = 1) -> Line:
    """A log line: time, level, text; the level is one letter with a colour."""
    return cut_line(whole_log_line(when, level, text, margin), width)


def whole_log_line(when: float | None, level: str, text: str, margin: int = 1) -> Line:
    """The same, as wide as its text."""
    is_dated = when is not None and is_valid_time(when)
    stamp = time.strftime("%H:%M:%S", time.localtime(when)) if is_dated else ""
    style = _LEVELS.get(level.upper(), "")
    runs: list[Run] = [(" " * margin + (f"{stamp} " if stamp else ""), "muted")]
    if level:
        runs.append((f"{safe_line(level)[:1].upper()} ", style))
    runs.append((safe_line(text), style if style == "muted" else ""))
    return tuple(runs)
