"""Log lines as text, for the log screen and for `spooldeck log`."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from enum import IntEnum
from pathlib import PurePath
from typing import NamedTuple

from engine.logs.log_file import FileEntry
from engine.logs.log_filter import DEBUG, LEVELS
from engine.logs.merged_log import NO_LOG_FILE, describe_troubles
from engine.text.safe import safe_line
from tui.format import present
from tui.format.present import Line, Run

MAX_LINE_CHARS = 4_096
"""Maximum number of characters shown of a line."""

MAX_WRAPPED_LINES = 12
"""Maximum number of screen lines of a wrapped log line."""

QUIET_SECONDS = 300.0
"""Seconds without a line from which on the gap is shown."""


class LogTimeFormat(IntEnum):
    """Format of the time before each line."""

    TIME, DATE, NONE = range(3)

    @property
    def width(self) -> int:
        """Width in cells, including the blank behind it."""
        return (9, 20, 0)[self]

    @property
    def next_format(self) -> LogTimeFormat:
        """The format that the key switches to."""
        return LogTimeFormat((self + 1) % len(LogTimeFormat))


class LogStyle(NamedTuple):
    """Layout of the lines."""

    time_format: LogTimeFormat = LogTimeFormat.TIME
    wrap: bool = False
    """Wrap long lines."""
    sources: bool = False
    """Show the log's name in each line."""


def entry_lines(entry: FileEntry, style: LogStyle, width: int) -> list[Line]:
    """One log line as one or several screen lines; the first cell is for the cursor.

    Lines without a time or level are indented below the line that they belong to.
    """
    head = _head(entry, style)
    said = entry.line.text[:MAX_LINE_CHARS].expandtabs(8)
    cut = entry.hidden_bytes + len(entry.line.text) - len(entry.line.text[:MAX_LINE_CHARS])
    text, note = (
        safe_line(said if style.wrap else present.shorten_ids(said)),
        _cut_note(cut, entry.is_torn),
    )
    look = present.level_style(entry.line.level)
    look = look if look == "muted" else ""
    room = width - present.width_of(head)
    if not style.wrap or room < 20:
        text = _with_error(text, room)
        body: Line = ((text, look), (note, "muted")) if note else ((text, look),)
        if note and present.width_of(body) > room:
            return [
                present.cut_line(
                    (*head, *present.join_ends(((text, look),), body[1:], room)), width
                )
            ]
        return [present.cut_line((*head, *body), width)]
    pieces = present.fold_text(text[: room * MAX_WRAPPED_LINES], room)
    more = len(text) - room * MAX_WRAPPED_LINES
    note = _cut_note(max(0, more) + cut, entry.is_torn)
    blank = (" " * present.width_of(head), "")
    lines: list[Line] = [(*(head if n == 0 else (blank,)), (p, look)) for n, p in enumerate(pieces)]
    if note:
        lines.append((blank, (note.strip(), "muted")))
    return [present.cut_line(line, width) for line in lines]


_SHORT_ID = re.compile(r"\b[0-9a-f]{8}\b")

_ERROR_AT, _HEAD = " last_error=", 16
"""Start of the error in a delivery line, and the minimum width of the text before it."""


def _with_error(text: str, room: int) -> str:
    """Shorten a delivery line, but keep its id and its error."""
    head, found, error = text.partition(_ERROR_AT)
    if not found or present.cells_of(text) <= room:
        return text
    kept = max(_HEAD, room - present.cells_of(found + error))
    named = _SHORT_ID.search(head)
    if named is not None and named.end() > kept:
        head = present.fit_text_end(head[: named.end()], kept)
    return f"{present.fit_text(head, min(kept, present.cells_of(head)))}{found}{error}"


def _cut_note(cut: int, torn: bool) -> str:
    return (f" ... {cut:,} more bytes" if cut else "") + (" (incomplete)" if torn else "")


def _head(entry: FileEntry, style: LogStyle) -> Line:
    line = entry.line
    runs: list[Run] = [(f" {format_time(line.when, style.time_format)}", "muted")]
    level = present.fit_text(safe_line(line.level), 7) + " "
    runs.append((level, present.level_style(line.level)) if line.level else (level, ""))
    if style.sources:
        runs.append((f"{present.fit_text(log_name(line.source), 6)} ", "muted"))
    return tuple(runs)


def format_time(when: float | None, stamps: LogTimeFormat) -> str:
    """Time of a line in local time, as in the log files, with a blank behind it."""
    if when is None or stamps is LogTimeFormat.NONE:
        return " " * stamps.width
    form = "%H:%M:%S " if stamps is LogTimeFormat.TIME else "%Y-%m-%d %H:%M:%S "
    try:
        return time.strftime(form, time.localtime(when))
    except (ValueError, OverflowError, OSError):  # outside the calendar's range
        return f"{present.UNKNOWN_TIME:<{stamps.width}}"


def log_name(path: str) -> str:
    """Short name of a log: `queue` for `.../queue.log`."""
    return safe_line(PurePath(path).stem)


def quiet_line(before: FileEntry, after: FileEntry) -> Line | None:
    """A separator between two lines if nothing was logged for long."""
    apart = after.key[0] - before.key[0]
    if not QUIET_SECONDS <= apart < float("inf"):
        return None
    return ((f"   -- {present.format_duration(apart)} quiet --", "muted"),)


class LogStatus(NamedTuple):
    """State of the log screen."""

    following: bool = True
    new: int = 0
    """New lines since it was paused."""
    level: int = DEBUG
    words: str = ""
    kept: int = 0
    lines: int = 0
    counted: bool = False
    """True if all lines are counted."""
    wrap: bool = False
    found: str = ""
    """The search text."""
    uncounted_bytes: int = 0
    """Size of the logs in bytes if they are too large to count the lines."""


def status_line(about: LogStatus, width: int) -> Line:
    """Status line: follow or paused, level, filter, search, number of hidden lines."""
    runs: list[Line] = []
    if about.following:
        runs.append(((" FOLLOW", "ok"),))
    else:
        new = f"  {about.new:,} new" if about.new else ""
        runs.append(((" PAUSED", "warn"), (new, "strong")))
    level = LEVELS[about.level]
    runs.append(((f"  show: {level if about.level == DEBUG else level + '+'}", ""),))
    if about.words:
        runs.append(((f"  & {safe_line(about.words)}", "mark"),))
    if about.found:
        runs.append(((f"  / {safe_line(about.found)}", ""),))
    counts = _counts(about)
    right: Line = ((f"{counts}  wrap {'on' if about.wrap else 'off'} ", "muted"),)
    return present.join_ends(tuple(run for part in runs for run in part), right, width)


def _counts(about: LogStatus) -> str:
    if about.uncounted_bytes:
        return f"{about.uncounted_bytes >> 20:,} MiB, lines not counted"
    if about.lines == about.kept:
        return present.format_count(about.lines, "line") + ("" if about.counted else " so far")
    if about.counted:
        return f"{about.kept:,} of {present.format_count(about.lines, 'line')}"
    return f"{about.kept:,} of {about.lines:,} so far"


def trouble_line(about: Mapping[str, str], width: int) -> Line:
    """Logs that cannot be read, with the error; missing logs are no warning."""
    if all(why == NO_LOG_FILE for why in about.values()):
        return (
            present.cut_line(((f" {describe_troubles(about)}", "muted"),), width) if about else ()
        )
    return present.cut_line(((f" ! {describe_troubles(about)}", "warn"),), width)


def empty_lines(
    paths: Sequence[str],
    about: LogStatus,
    looking: bool,
    width: int,
    troubles: Mapping[str, str],
) -> list[Line]:
    """Text if no line is shown.

    `looking`: the search still runs; `troubles`: read errors by path.
    """
    if looking:
        said = "loading ..."
    elif not paths:
        said = "this place has no log"
    elif about.lines or about.words or about.level:
        said = "no matching lines (Esc clears, - lowers the level)"
    elif all(path in troubles for path in paths):
        said = f"no readable log: {describe_troubles(troubles)}"
    else:
        said = "nothing logged yet"
    return [(), present.cut_line(((f"   {said}", "muted"),), width)]


_LIKE_OURS = re.compile(r"\b\d{8}T\d{6}Z-\w+-[0-9a-f]{8}\b")
_NAMED = re.compile(r"\b(?:task_?id|task|id)[=:]\s*\"?([\w:.-]{1,160})", re.IGNORECASE)
_WORD = re.compile(r"[\w:-]{6,160}")

MAX_ID_CANDIDATES = 12
"""Maximum number of words of a line that are tried as a task id."""


def possible_ids(text: str) -> tuple[str, ...]:
    """Words of a line that may be task ids, most likely first."""
    found = [*labelled_ids(text), *_WORD.findall(text[:MAX_LINE_CHARS])]
    return tuple(dict.fromkeys(found))[:MAX_ID_CANDIDATES]


def labelled_ids(text: str) -> tuple[str, ...]:
    """Task ids in a line, by their format or by a label such as `task=`."""
    text = text[:MAX_LINE_CHARS]
    return tuple(dict.fromkeys([*_LIKE_OURS.findall(text), *_NAMED.findall(text)]))
