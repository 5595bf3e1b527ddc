"""A log as lines: what the screen paints and what `spooldeck log` prints."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from enum import IntEnum
from pathlib import PurePath
from typing import NamedTuple

from engine.logs.log_file import FileEntry
from engine.logs.log_filter import DEBUG, LEVELS
from engine.logs.merged_log import NOT_THERE, named
from engine.text.safe import shown
from tui.format import present
from tui.format.glyphs import MORE
from tui.format.present import Line, Run

LEGIBLE = 4_096
"""Characters of a line that are shown at most, in full or cut to the screen."""

FOLDS = 12
"""Lines that one line of a log takes at most when it is shown in full."""

QUIET = 300.0
"""Seconds without a line that are worth a word."""


class LogTimeFormat(IntEnum):
    """What is shown of a line's time."""

    TIME, DATE, NONE = range(3)

    @property
    def width(self) -> int:
        """Cells that it takes, with the blank behind it."""
        return (9, 20, 0)[self]

    @property
    def next(self) -> LogTimeFormat:
        """What the key changes to."""
        return LogTimeFormat((self + 1) % len(LogTimeFormat))


class Style(NamedTuple):
    """How lines are laid out."""

    stamps: LogTimeFormat = LogTimeFormat.TIME
    wrap: bool = False
    """Whether long lines are shown in full."""
    sources: bool = False
    """Whether each line names its log."""


def entry_lines(entry: FileEntry, style: Style, width: int) -> list[Line]:
    """A line of a log: one line of the screen, or several. Its first cell is left for the cursor.

    What does not say when it was, or how grave, is set in under the line that it belongs to.
    """
    head = _head(entry, style)
    said = entry.line.text[:LEGIBLE].expandtabs(8)
    cut = entry.hidden + len(entry.line.text) - len(entry.line.text[:LEGIBLE])
    text, note = shown(said if style.wrap else present.brief(said)), _note(cut, entry.torn)
    look = present.level_look(entry.line.level)
    look = look if look in ("bad", "dim") else ""
    room = width - present.width_of(head)
    if not style.wrap or room < 20:
        text = _with_error(text, room)
        body: Line = ((text, look), (note, "dim")) if note else ((text, look),)
        if note and present.width_of(body) > room:
            return [present.cut((*head, *present.join(((text, look),), body[1:], room)), width)]
        return [present.cut((*head, *body), width)]
    pieces = present.folded(text[: room * FOLDS], room)
    more = len(text) - room * FOLDS
    note = _note(max(0, more) + cut, entry.torn)
    blank = (" " * present.width_of(head), "")
    lines: list[Line] = [(*(head if n == 0 else (blank,)), (p, look)) for n, p in enumerate(pieces)]
    if note:
        lines.append((blank, (note.strip(), "dim")))
    return [present.cut(line, width) for line in lines]


_SHORT_ID = re.compile(rf"{MORE}-[0-9a-f]{{8}}\b")

_ERROR_AT, _HEAD = " last_error=", 16
"""Where the error begins in a line on a delivery, and cells that are kept before it."""


def _with_error(text: str, room: int) -> str:
    """A line on a delivery with its id and its error, cut elsewhere where all does not fit."""
    head, found, error = text.partition(_ERROR_AT)
    if not found or present.cells_of(text) <= room:
        return text
    kept = max(_HEAD, room - present.cells_of(found + error))
    named = _SHORT_ID.search(head)
    if named is not None and named.end() > kept:
        head = present.fit_end(head[: named.end()], kept)
    return f"{present.fit(head, min(kept, present.cells_of(head)))}{found}{error}"


def _note(cut: int, torn: bool) -> str:
    return (f" ... {cut:,} bytes more" if cut else "") + (" (its end has not come)" if torn else "")


def _head(entry: FileEntry, style: Style) -> Line:
    line = entry.line
    runs: list[Run] = [(f" {stamp(line.when, style.stamps)}", "dim")]
    level = present.fit(shown(line.level), 7) + " "
    runs.append((level, present.level_look(line.level)) if line.level else (level, ""))
    if style.sources:
        runs.append((f"{present.fit(source(line.source), 6)} ", "dim"))
    return tuple(runs)


def stamp(when: float | None, stamps: LogTimeFormat) -> str:
    """When a line was written, in local time as logs have it, with a blank behind."""
    if when is None or stamps is LogTimeFormat.NONE:
        return " " * stamps.width
    form = "%H:%M:%S " if stamps is LogTimeFormat.TIME else "%Y-%m-%d %H:%M:%S "
    try:
        return time.strftime(form, time.localtime(when))
    except (ValueError, OverflowError, OSError):  # no calendar holds it
        return f"{present.UNKNOWN:<{stamps.width}}"


def source(path: str) -> str:
    """A log as lines name it: `queue` for `.../queue.log`."""
    return shown(PurePath(path).stem)


def quiet(before: FileEntry, after: FileEntry) -> Line | None:
    """What is said between two lines where there was none for long."""
    apart = after.key[0] - before.key[0]
    if not QUIET <= apart < float("inf"):
        return None
    return ((f"   -- {present.span(apart)} quiet --", "dim"),)


class LogStatus(NamedTuple):
    """How a log is looked at."""

    following: bool = True
    new: int = 0
    """Lines that have come since it was paused."""
    level: int = DEBUG
    words: str = ""
    kept: int = 0
    lines: int = 0
    counted: bool = False
    """Whether all lines were counted."""
    wrap: bool = False
    found: str = ""
    """What is searched for."""
    beyond: int = 0
    """Bytes of the logs, where those are too many for their lines to be counted."""


def status(about: LogStatus, width: int) -> Line:
    """Whether the end is followed, and what is shown of how much: nothing is left out unsaid."""
    runs: list[Line] = []
    if about.following:
        runs.append(((" FOLLOW", "good"),))
    else:
        new = f"  {about.new:,} new" if about.new else ""
        runs.append(((" PAUSED", "warning"), (new, "strong")))
    level = LEVELS[about.level]
    runs.append(((f"  show: {level if about.level == DEBUG else level + '+'}", ""),))
    if about.words:
        runs.append(((f"  & {shown(about.words)}", "mark"),))
    if about.found:
        runs.append(((f"  / {shown(about.found)}", ""),))
    counts = _counts(about)
    right: Line = ((f"{counts}  wrap {'on' if about.wrap else 'off'} ", "dim"),)
    return present.join(tuple(run for part in runs for run in part), right, width)


def _counts(about: LogStatus) -> str:
    if about.beyond:
        return f"{about.beyond >> 20:,} MiB, lines not counted"
    if about.lines == about.kept:
        return present.count(about.lines, "line") + ("" if about.counted else " so far")
    if about.counted:
        return f"{about.kept:,} of {present.count(about.lines, 'line')}"
    return f"{about.kept:,} of {about.lines:,} so far"


def troubles(about: Mapping[str, str], width: int) -> Line:
    """Logs that cannot be read, and why; that some are not there is nothing to worry about."""
    if all(why == NOT_THERE for why in about.values()):
        return present.cut(((f" {named(about)}", "dim"),), width) if about else ()
    return present.cut(((f" ! {named(about)}", "warning"),), width)


def nothing(
    paths: Sequence[str],
    about: LogStatus,
    looking: bool,
    width: int,
    troubles: Mapping[str, str],
) -> list[Line]:
    """What is shown where there is no line: `looking` is whether some may still be found, and
    `troubles` is why logs cannot be read, by path.
    """
    if looking:
        said = "looking ..."
    elif not paths:
        said = "this place has no log"
    elif about.lines or about.words or about.level:
        said = "no line is let through; Esc shows all words, - less grave lines"
    elif all(path in troubles for path in paths):
        said = f"no log can be read: {named(troubles)}"
    else:
        said = "nothing was logged yet"
    return [(), present.cut(((f"   {said}", "dim"),), width)]


_LIKE_OURS = re.compile(r"\b\d{8}T\d{6}Z-\w+-[0-9a-f]{8}\b")
_NAMED = re.compile(r"\b(?:task_?id|task|id)[=:]\s*\"?([\w:.-]{1,160})", re.IGNORECASE)
_WORD = re.compile(r"[\w:-]{6,160}")

CANDIDATES = 12
"""Words of a line that are tried as the id of a task."""


def ids_in(text: str) -> tuple[str, ...]:
    """What may be a task's id in a line, the likeliest first."""
    found = [*ids_named_in(text), *_WORD.findall(text[:LEGIBLE])]
    return tuple(dict.fromkeys(found))[:CANDIDATES]


def ids_named_in(text: str) -> tuple[str, ...]:
    """What is a task's id in a line, by its form or by what stands before it."""
    text = text[:LEGIBLE]
    return tuple(dict.fromkeys([*_LIKE_OURS.findall(text), *_NAMED.findall(text)]))
