"""Log lines as text, for the log screen and for `spooldeck log`."""

from __future__ import annotations

import errno
import os
import re
import time
from collections.abc import Mapping, Sequence
from enum import IntEnum
from pathlib import PurePath

from engine.logs.log_file import FileEntry
from engine.logs.log_filter import DEBUG, ERROR, LEVELS, WARN, level_rank
from engine.logs.merged_log import describe_troubles
from engine.logs.rotated_log import NO_LOG_FILE
from engine.text.figure import UNKNOWN
from engine.text.figures import format_count
from engine.text.folding import find_folded
from engine.text.safe import safe_line
from engine.values import NamedTuple
from tui.text.lines import (
    Line,
    Run,
    cells_of,
    cut_line,
    fit_text,
    fold_text,
    join_ends,
    merge_runs,
    width_of,
)
from tui.text.log_line import shorten_ids
from tui.text.task_list import SHORT_ID_CELLS, short_id
from tui.text.times import format_minutes

MAX_LINE_CHARS = 4_096

MAX_WRAPPED_LINES = 12

QUIET_SECONDS = 60.0
"""Seconds without a line from which on the gap is shown."""

WIDE_CELLS = 90
"""Width from which on the columns are two cells apart and the status has labels."""

MAX_SOURCE_CELLS = 8

HIT_STYLE = "heat5"


class LogTimeFormat(IntEnum):
    """Format of the time before each line."""

    TIME, DATE, NONE = range(3)

    @property
    def next_format(self) -> LogTimeFormat:
        """The format that the key switches to."""
        return LogTimeFormat((self + 1) % len(LogTimeFormat))


class LogStyle(NamedTuple):
    """Layout of the lines."""

    time_format: LogTimeFormat = LogTimeFormat.TIME
    wrap: bool = False
    sources: int = 0
    """Cells for the log's name; 0 for a single log."""
    has_milliseconds: bool = False
    has_ids: bool = False
    hits: tuple[str, ...] = ()
    """Texts to mark, folded."""

    def with_columns_for(self, entries: Sequence[FileEntry]) -> LogStyle:
        """The same, with the columns that some of the entries need; a column stays."""
        return self._replace(
            has_milliseconds=self.has_milliseconds or any((e.line.when or 0) % 1 for e in entries),
            has_ids=self.has_ids or any(labelled_ids(e.line.text) for e in entries),
        )


def entry_lines(entry: FileEntry, style: LogStyle, width: int) -> list[Line]:
    """One log line as one or several screen lines; the first cells are for the cursor. Lines
    without a time or level are indented below the line that they belong to."""
    text = entry.line.text[:MAX_LINE_CHARS].expandtabs(8)
    cut = entry.hidden_bytes + len(entry.line.text) - len(entry.line.text[:MAX_LINE_CHARS])
    head = _head(entry, style, width)
    text_style = "muted" if entry.rank <= DEBUG else ""
    room = width - width_of(head)
    if not style.wrap or room < 20:
        if style.has_ids:
            text = _without_id(text)
        text = _with_error(safe_line(shorten_ids(text)), room)
        note = _cut_note(cut, entry.is_torn)
        runs: Line = ((text, text_style), (note, "muted")) if note else ((text, text_style),)
        if note and width_of(runs) > room:
            runs = join_ends(runs[:1], runs[1:], room)
        return [_marked(cut_line((*head, *runs), width), style.hits)]
    text = safe_line(text)
    pieces = fold_text(text[: room * MAX_WRAPPED_LINES], room)
    more = len(text) - room * MAX_WRAPPED_LINES
    note = _cut_note(max(0, more) + cut, entry.is_torn)
    blank = (" " * width_of(head), "")
    lines: list[Line] = [
        (*(head if n == 0 else (blank,)), (p, text_style)) for n, p in enumerate(pieces)
    ]
    if note:
        lines.append((blank, (note.strip(), "muted")))
    return [_marked(cut_line(line, width), style.hits) for line in lines]


_ERROR_AT = " last_error="
"""Start of the error in a delivery line."""


def _without_id(text: str) -> str:
    for id in labelled_ids(text)[:1]:
        text = re.sub(
            rf"(?:\b(?:(?:task_?)?id[=:] ?|task=))?\"?{re.escape(id)}\b\"? ?", "", text, count=1
        )
        text = text.replace(": (", " (", 1).removesuffix(": ")  # `Task failed: ID (kind)`
    return text


def _with_error(text: str, room: int) -> str:
    """A delivery line that does not fit, with its error first."""
    head, marker, error = text.partition(_ERROR_AT)
    return text if not marker or cells_of(text) <= room else f"{error}  {head}"


def _marked(line: Line, hits: Sequence[str]) -> Line:
    if not hits:
        return line
    runs: list[Run] = []
    for text, style in line:
        at = 0
        for start, end in find_folded(text, hits):
            runs += [(text[at:start], style), (text[start:end], HIT_STYLE)]
            at = end
        runs.append((text[at:], style))
    return tuple(run for run in runs if run[0])


def _cut_note(cut: int, torn: bool) -> str:
    return (f" ... {cut:,} more bytes" if cut else "") + (" (incomplete)" if torn else "")


_LEVEL_LOOKS = {ERROR: "error", WARN: "warn", DEBUG: "muted"}


def _head(entry: FileEntry, style: LogStyle, width: int) -> Line:
    """Time, first letter of the level, log and task id."""
    line, gap = entry.line, "  " if width >= WIDE_CELLS else " "
    runs: list[Run] = [(" " * (len(gap) + 1), "")]
    if style.time_format is not LogTimeFormat.NONE:
        stamp = format_stamp(line.when, style.time_format, style.has_milliseconds)
        runs.append((stamp + gap, "muted"))
    level = safe_line(line.level)[:1].upper()
    level_style = _LEVEL_LOOKS.get(
        level_rank(line.level), "ok" if line.level == "SUCCESS" else "muted"
    )
    runs.append(((level or " ") + gap, level_style if level else ""))
    if style.sources:
        name = fit_text(log_name(line.source) if level else "", style.sources)
        runs.append((name + gap, "muted"))
    if style.has_ids:
        name = "".join(short_id(id) for id in labelled_ids(line.text)[:1])
        runs.append((fit_text(name, SHORT_ID_CELLS) + " ", "accent"))
    return tuple(runs)


def source_cells(logs: Sequence[str]) -> int:
    """Cells for the names of some logs; 0 for one log."""
    most = max((cells_of(log_name(path)) for path in logs), default=0)
    return min(MAX_SOURCE_CELLS, most) if len(logs) > 1 else 0


def format_stamp(when: float | None, stamps: LogTimeFormat, has_milliseconds: bool = False) -> str:
    """Time of a line in local time, as in the log files; blank without a time."""
    form, width = {
        LogTimeFormat.TIME: ("%H:%M:%S", 8),
        LogTimeFormat.DATE: ("%Y-%m-%d %H:%M:%S", 19),
        LogTimeFormat.NONE: ("", 0),
    }[stamps]
    width += 4 if has_milliseconds else 0
    if when is None or not form:
        return " " * width
    try:
        text = time.strftime(form, time.localtime(when))
    except (ValueError, OverflowError, OSError):  # outside the calendar's range
        return f"{UNKNOWN:<{width}}"
    return f"{text}.{int(when % 1 * 1000):03d}" if has_milliseconds else text


def log_name(path: str) -> str:
    """Short name of a log: `queue` for `.../queue.log`."""
    return safe_line(PurePath(path).stem)


def quiet_line(before: FileEntry, after: FileEntry, width: int) -> Line | None:
    """A rule between two lines if nothing was logged for long."""
    apart = after.key[0] - before.key[0]
    if not QUIET_SECONDS <= apart < float("inf"):
        return None
    amount = f"{apart:.0f}s" if apart < 2 * QUIET_SECONDS else format_minutes(apart)
    margin = 3 if width >= WIDE_CELLS else 2
    rule_cells = width - margin - len(amount) - 16
    rule: Line = (
        ("─" * 8, "line"),
        (f" quiet {amount} ", "muted"),
        ("─" * max(0, rule_cells), "line"),
    )
    return cut_line(((" " * margin, ""), *rule), width)


class LogStatus(NamedTuple):
    """State of the log screen."""

    following: bool = True
    new: int = 0
    """New lines since it was paused."""
    level: int = DEBUG
    words: str = ""
    matching: int = 0
    lines: int = 0
    counted: bool = False
    wrap: bool = False
    search_text: str = ""
    uncounted_bytes: int = 0
    """Size of the logs in bytes if they are too large to count the lines."""
    source: str = ""
    """How current the copy of a server's log is; "" if the log is here."""
    is_copied: bool = False
    """True if the last attempt to copy it succeeded."""


def status_line(status: LogStatus, width: int) -> Line:
    """Status line: follow or paused, level, filter, search, number of hidden lines."""
    wide = width >= WIDE_CELLS
    chip: Line = (((" FOLLOW ", "chip-accent") if status.following else (" PAUSED ", "chip-warn")),)
    parts: list[Line] = [((" ", ""), *chip)]
    if status.new:
        parts.append(((f"  {status.new:,} new", "strong"),))
    level = LEVELS[status.level] + ("" if status.level == DEBUG else "+")
    parts.append((("   level ", "muted"), (level, "strong"), (" + -" if wide else "", "key")))
    if status.words or wide:
        name = (" filter ", "muted") if wide else (" ", "")
        words = safe_line(shorten_ids(status.words)) or "none"
        parts.append((("   &", "key"), name, (words, "strong")))
    if status.search_text:
        name = (" search ", "muted") if wide else (" ", "")
        parts.append((("   /", "key"), name, (safe_line(status.search_text), "strong")))
    if status.wrap:
        parts.append((("   w", "key"), (" wrap", "muted")))
    if status.source:
        parts.append(((f"   {safe_line(status.source)}", "muted"),))
    line = merge_runs(run for part in parts for run in part)
    return join_ends(line, (*_counts(status), (" ", "")), width)


def _counts(status: LogStatus) -> Line:
    if status.uncounted_bytes:
        return ((f"{status.uncounted_bytes >> 20:,} MiB, lines not counted", "muted"),)
    if status.lines == status.matching:
        lines = format_count(status.lines, "line")
        return ((lines if status.counted else f"{status.lines:,} lines so far", "muted"),)
    of = f" of {status.lines:,}{' lines' if status.counted else ' so far'}"
    return ((f"{status.matching:,}", "strong"), (of, "muted"))


def trouble_line(troubles: Mapping[str, str], width: int) -> Line:
    """Logs that cannot be read, with the error and what helps; missing logs are no trouble."""
    unread = {path: why for path, why in troubles.items() if why != NO_LOG_FILE}
    if not unread:
        return ()
    text = f" ! {describe_troubles(unread)}; {_log_help(unread)}"
    return cut_line(((text, "warn"),), width)


def empty_lines(
    paths: Sequence[str],
    status: LogStatus,
    looking: bool,
    width: int,
    troubles: Mapping[str, str],
    no_log: str = "",
) -> list[Line]:
    """Text if no line is shown; `looking`: the search still runs; `troubles`: errors by path;
    `no_log`: why there is no other log."""
    is_unread = any(why != NO_LOG_FILE for why in troubles.values())
    if looking:
        text = "loading ..."
    elif not paths:
        text = "this place has no log"
    elif status.source and not (status.lines or status.words or status.level):
        text = f"{status.source}: nothing logged yet" if status.is_copied else status.source
    elif no_log and not (status.lines or status.words or status.level or is_unread):
        text = no_log
    elif all(path in troubles for path in paths):
        text = f"no {'readable log' if is_unread else 'log yet'}: {describe_troubles(troubles)}"
        text += f"; {_log_help(troubles)}"
    elif status.lines or status.words or status.level:
        text = "no matching lines (Esc clears, - lowers the level)"
    else:
        text = "nothing logged yet"
    pieces = fold_text(text, max(20, width - 6))
    return [(), *(cut_line(((f"   {piece}", "muted"),), width) for piece in pieces)]


def _log_help(troubles: Mapping[str, str]) -> str:
    if all(why == NO_LOG_FILE for why in troubles.values()):
        return f"the first operation creates {'it' if len(troubles) == 1 else 'them'}"
    if any(why.startswith(_DENIED) for why in troubles.values()):
        return "give this user read access, or start spooldeck as root"
    return "repair the file: it is then read again"


_DENIED = os.strerror(errno.EACCES)


_LIKE_OURS = re.compile(r"\b\d{8}T\d{6}Z\w*-\w+-[0-9a-f]{8}\b")
_NAMED = re.compile(r"\b(?:task_?id|task|id)[=:]\s*\"?([\w:.-]{1,160})", re.IGNORECASE)
_WORD = re.compile(r"[\w:-]{6,160}")

MAX_ID_CANDIDATES = 12
"""Maximum number of words of a line that are tried as a task id."""


def possible_ids(text: str) -> tuple[str, ...]:
    """Words of a line that may be task ids, most likely first."""
    words = (word.strip(":") for word in _WORD.findall(text[:MAX_LINE_CHARS]))  # `ID: text`
    candidates = [*labelled_ids(text), *words]
    return tuple(dict.fromkeys(candidates))[:MAX_ID_CANDIDATES]


def labelled_ids(text: str) -> tuple[str, ...]:
    """Task ids in a line, by their format or by a label such as `task=`."""
    text = text[:MAX_LINE_CHARS]
    return tuple(dict.fromkeys([*_LIKE_OURS.findall(text), *_NAMED.findall(text)]))
