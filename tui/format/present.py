"""Format tasks, times, counts, locks and hints as cells and lines of the screen; pure functions.

A line is a tuple of runs. A run is a text and the name of its style (`LOOKS`); the theme defines
the style. All foreign text passes through `engine.text.safe.shown` here, so widgets need not escape
it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import groupby
from typing import NamedTuple, TypeAlias

from rich.cells import cell_len, set_cell_size

from engine import policy
from engine.locks.token_buckets import BucketState
from engine.model import (
    ATTEMPTS_ALLOWED_KEY,
    AttemptLimit,
    LockEvidence,
    State,
    Task,
    Verdict,
    attempts_allowed,
)
from engine.monitor.recurrence import StillHappens
from engine.monitor.throughput import Rates
from engine.text.decode import YEAR_10000
from engine.text.safe import safe_line
from engine.text.safe import state_name as state_name
from tui.format.glyphs import CURSOR, FALLING, GONE, MARK, MORE, RISING
from tui.format.human import format_rate
from tui.format.keys import Hint

Run: TypeAlias = tuple[str, str]
"""A text without control characters, and the name of its style."""

Line: TypeAlias = tuple[Run, ...]
"""One line of the screen."""

TOKENS = (
    "muted",
    "line",
    "accent",
    "chip",
    "ok",
    "warn",
    "error",
    "unknown",
    "heat1",
    "heat2",
    "heat3",
    "heat4",
    "heat5",
    "cursor",
    "ghost",
)
"""The colours of the console by their meaning, which a theme defines; "" is plain text.

`error` is only for what is wrong now. `line` is for frames and the empty part of a bar, and carries
no words. `heat1` to `heat5` are the grounds of the age table, from few to many.
"""

DERIVED_STYLES = (
    "strong",
    "title",
    "key",
    "mark",
    "tab",
    "chip-accent",
    "chip-ok",
    "chip-warn",
    "chip-error",
)
"""Styles made of the tokens; a theme may define them too."""

ON_CURSOR = "@cursor"
"""Appended to a style's name: the same text on the row under the cursor."""

ON_BAR = "@bar"
"""Appended to a style's name: the same text on the bar of a confirmation."""

BARE = "@bare"
"""Appended to a style's name: the same without underline, strike and reverse, for blanks."""

STILL_LOOKS = {StillHappens.YES: "warn", StillHappens.NO: "ok", StillHappens.UNKNOWN: "unknown"}
"""The styles of the answers whether an error still happens."""

BLANK_LINE: Line = ()

SHORT_ID_CELLS = 8
"""Characters of a long id in a list."""

MAX_NAME_CELLS = 16
"""Characters of an id that stays whole where it has room, such as `13-organizer`."""

_WORD = re.compile(r"[\w!?+-]")

_HEX = frozenset("0123456789abcdef")


def cells_of(text: str) -> int:
    """Width of a text in terminal cells."""
    # `cell_len` looks up each text in a cache; nearly all texts are plain ASCII and need none.
    return len(text) if text.isascii() and text.isprintable() else cell_len(text)


def width_of(line: Line) -> int:
    """Width of a line in terminal cells."""
    return sum([cells_of(text) for text, _ in line])


def fit_text(text: str, width: int, right: bool = False) -> str:
    """The text in exactly `width` cells: padded, or cut with an ellipsis."""
    lacking = width - cells_of(text)
    if lacking >= 0:
        return " " * lacking + text if right else text + " " * lacking
    return set_cell_size(text, width - 1) + MORE if width > 0 else ""


def fit_text_end(text: str, width: int) -> str:
    """The text in exactly `width` cells, cut at the front: ids and paths differ at their ends."""
    if cells_of(text) <= width:
        return fit_text(text, width)
    ending = text[-(width - 1) :] if width > 1 else ""
    while ending and cells_of(ending) > width - 1:
        ending = ending[1:]
    return fit_text(MORE + ending, width) if width > 0 else ""


def parts_that_fit(parts: Iterable[Line], width: int) -> Line:
    """As many parts as fit without cutting one: half a number would read as another number."""
    runs: list[Run] = []
    for part in parts:
        width -= width_of(part)
        if width < 0:
            break
        runs += part
    return tuple(runs)


def join_ends(left: Line, right: Line, width: int) -> Line:
    """One line with text at both ends; the left part is cut first."""
    room = max(0, width - width_of(right) - 1)
    return (*cut_line(left, room), (" ", ""), *right)


def cut_line(line: Line, width: int) -> Line:
    """The line in exactly `width` cells."""
    runs: list[Run] = []
    for text, style in line:
        cells = cells_of(text)
        if cells > width:
            runs.append((fit_text(text, width), style))
            return tuple(runs)
        runs.append((text, style))
        width -= cells
    return (*runs, (" " * width, "")) if width else tuple(runs)


# Durations and times


UNKNOWN_TIME = "?"
"""Shown for a number that is no valid time or duration: NaN, infinity, 1e300."""


def _is_valid_time(*numbers: float) -> bool:
    """True if all numbers can be shown as a time; False for NaN."""
    return all(-YEAR_10000 < number < YEAR_10000 for number in numbers)


def format_duration(seconds: float) -> str:
    """A duration in at most six cells: `<1m`, `47m`, `2h13m`, `6d02h`, `412d`; else `?`."""
    if not _is_valid_time(seconds):
        return UNKNOWN_TIME
    minutes = int(max(0.0, seconds)) // 60
    if minutes < 60:
        return f"{minutes}m" if minutes else "<1m"
    if minutes < 24 * 60:
        return f"{minutes // 60}h{minutes % 60:02d}m"
    days, hours = divmod(minutes // 60, 24)
    return f"{days}d{hours:02d}h" if days < 100 else f"{days}d"


def format_age(seconds: float) -> str:
    """How long ago something was, in seconds below a minute: `2s ago`, `47m ago`; else `?`."""
    if not _is_valid_time(seconds):
        return UNKNOWN_TIME
    return f"{int(max(0.0, seconds))}s ago" if seconds < 60 else f"{format_duration(seconds)} ago"


def format_countdown(seconds: float) -> str:
    """Remaining time in minutes and seconds: `14:32`; `?` if invalid."""
    if not _is_valid_time(seconds):
        return UNKNOWN_TIME
    whole_seconds = int(max(0.0, seconds) + 0.999)
    return f"{whole_seconds // 60}:{whole_seconds % 60:02d}"


def format_clock(moment: float) -> str:
    """A time of day in UTC: `03:12:07Z`; `?` if invalid."""
    if not _is_valid_time(moment):
        return UNKNOWN_TIME
    return time.strftime("%H:%M:%SZ", time.gmtime(moment))


def format_time(when: float, now: float) -> str:
    """A time in UTC and its distance from now; with the date unless it is today; `?` if invalid."""
    if not _is_valid_time(when, now):
        return UNKNOWN_TIME
    same = time.strftime("%Y%j", time.gmtime(when)) == time.strftime("%Y%j", time.gmtime(now))
    form = "%H:%M:%SZ" if same else "%Y-%m-%d %H:%M:%SZ"
    text = time.strftime(form, time.gmtime(when))
    apart = now - when
    return (
        f"{text} ({format_age(apart)})" if apart >= 0 else f"{text} (in {format_duration(-apart)})"
    )


def states_name(states: Iterable[State], words: Mapping[State, str]) -> str:
    """Some states in the words of their store: `DLQ and held`."""
    return " and ".join(state_name(words.get(state, state)) for state in sorted(states))


def format_count(number: int, noun: str) -> str:
    """`1 task`, `1,204 tasks`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def describe_bucket(bucket: BucketState) -> str:
    """The tokens of a rate limit and its rate: `0 of 5 tokens, 720/h`."""
    if bucket.paused:
        return "PAUSED"
    rate = "" if bucket.per_hour is None else f", {bucket.per_hour:,}/h"
    return f"{bucket.tokens:,} of {bucket.burst:,} tokens{rate}"


# The task list

StyleName: TypeAlias = str
Cell: TypeAlias = Callable[[Task, float], Run]


class TaskColumn(NamedTuple):
    """One column of the task list."""

    title: str
    width: int
    cell: Cell
    is_right_aligned: bool = False
    keeps_end: bool = False
    """Cut a long text at its front, not at its end."""
    order: str = ""
    """Order of the index (`engine.index`) that sorts by this column."""
    is_age: bool = False
    """The column shows an age, so ascending values are descending ages."""


def _id(task: Task, now: float) -> Run:
    return safe_line(task.id), "accent"


def short_id(ident: str, cells: int = SHORT_ID_CELLS) -> str:
    """An id of more than `cells` characters as its last eight, by which tasks differ, without what
    is left of its queue's name; made safe.

    Up to `MAX_NAME_CELLS` it stays whole unless it ends in eight hexadecimal digits: it may be a
    number and a name.
    """
    text = safe_line(ident)
    end = text[-SHORT_ID_CELLS:]
    is_name = len(text) <= MAX_NAME_CELLS and not _HEX.issuperset(end)
    return text if len(text) <= cells or is_name else end.rpartition("/")[2] or end


def id_cells(tasks: Iterable[Task]) -> int:
    """Cells of the longest id as a list of tasks shows it, at most `MAX_ID_CELLS`."""
    widths = (cells_of(short_id(task.id, MAX_ID_CELLS)) for task in tasks)
    return min(MAX_ID_CELLS, max(widths, default=0))


def _kind(task: Task, now: float) -> Run:
    return safe_line(task.kind), "muted"


def _destination(task: Task, now: float) -> Run:
    return safe_line(task.destination), ""


def _description(task: Task, now: float) -> Run:
    return safe_line(task.description), ""


def _error(task: Task, now: float) -> Run:
    return safe_line(task.error), ""


def _created(task: Task, now: float) -> Run:
    return (format_duration(now - task.created) if task.created > 0 else "?", "")


def count_runs(task: Task, limit: int | None) -> int | None:
    """Number of runs that have ended, as the log counts them; None if unknown.

    `limit` is their maximum. A queue that counts retries does not count the last run of a task
    that it gives up, and a purge keeps its count.
    """
    has_died = task.state in (State.DEAD, State.TRASH)
    is_exhausted = task.extra.get("dead_reason") == "max_retries_exceeded"
    if has_died and is_exhausted and limit and task.attempts == limit - 1:
        return limit
    return task.attempts


@lru_cache(maxsize=16)  # equal columns have the same cell
def _tries_cell(limit: AttemptLimit) -> Cell:
    """The cell of the attempts, with their limit if that is known."""

    def tries(task: Task, now: float) -> Run:
        most = limit(task)
        if (runs := count_runs(task, most)) is None:
            return "?", "unknown"
        return (f"{runs}" if most is None else f"{runs}/{most}"), "muted"

    return tries


def _word(task: Task, now: float) -> Run:
    return safe_line(task.word), "warn"


def _due(task: Task, now: float) -> Run:
    if task.due is None:
        return "?", "unknown"
    return (
        ("ready", "ok") if task.due <= now else (f"in {format_duration(task.due - now)}", "muted")
    )


def _active_time(task: Task, now: float) -> Run:
    return (format_duration(now - task.lease.since), "") if task.lease else ("?", "unknown")


def _dead(task: Task, now: float) -> Run:
    since = policy.died_at(task)
    return ("?", "unknown") if since is None else (format_duration(now - since), "")


def _is_number(text: str) -> bool:
    return text.isascii() and text.replace(".", "", 1).isdigit()


def _error_or_description(task: Task, now: float) -> Run:
    return (safe_line(task.error), "") if task.error else (safe_line(task.description), "muted")


TIME_COLUMNS: Mapping[State, tuple[str, Cell, str]] = {
    State.PENDING: ("DUE", _due, "due"),
    State.ACTIVE: ("RUNNING", _active_time, "since"),
    State.DEAD: ("DIED", _dead, "died"),
}
"""The time column of a state: its title, its cell, and the order that sorts by it."""

RULE, BOX = 1, 2
"""Lines that the frame of a pane takes: a titled rule above it, or a titled box around it."""

BOX_FRAME_CELLS = 3
"""Cells that a box takes of a pane's width: its sides, and a blank at its right end."""


def frame_border(width: int, height: int) -> int:
    """The frames of panes on a screen of that size: `BOX`, `RULE`, or 0 for none."""
    if width >= 100 and height >= 30:
        return BOX
    return RULE if width >= NARROW_COLUMNS and height > 15 else 0


WALL_COLUMNS = 200
"""Screens with so many columns show all places at once."""

NARROW_COLUMNS = 60
"""Screens with fewer columns than this are narrow and show fewer columns of data."""

MARGIN_CELLS = 3
"""Cells before the first column: cursor, mark, note."""

NOTE_SIGN = "#"
"""Marks a task with a note; also the key that writes one."""


MAX_ID_CELLS = 14
"""Ids up to this length are shown in full in a list, longer ones by their last eight characters."""

MAX_KIND_CELLS = 12
"""Cells of the longest kind that a list shows in full."""

COLUMN_GAP = "  "
"""Between two columns of a list."""


def task_columns(
    state: State,
    width: int,
    destined: bool = False,
    longest: int = 0,
    worded: bool = False,
    limit: AttemptLimit = attempts_allowed,
    kinds: int = MAX_KIND_CELLS,
    trash: TrashFacts | None = None,
) -> tuple[TaskColumn, ...]:
    """The columns of the task list that fit; the error gets all the room that is left.

    `destined`: tasks have destinations (not in every store). `longest`: cells of the longest id
    (`id_cells`). `worded`: tasks have a word that is more exact than their state. `limit`: maximum
    attempts of each task. `kinds`: cells of the longest kind.
    """
    if width < NARROW_COLUMNS:
        return _narrow(state, width)
    if state is State.TRASH:
        return trash_columns(width, longest, kinds, trash or NO_TRASH_FACTS)
    kind = max(4, min(kinds, MAX_KIND_CELLS))
    fixed: tuple[TaskColumn, ...] = (
        TaskColumn("ID", _id_width(longest), _id, order="id"),
        TaskColumn("KIND", kind, _kind, order="kind"),
        TaskColumn("AGE", 6, _created, is_right_aligned=True, order="created", is_age=True),
        TaskColumn("TRIES", 5, _tries_cell(limit), is_right_aligned=True, order="attempts"),
    )
    if state in TIME_COLUMNS:
        title, when, order = TIME_COLUMNS[state]
        cells = {State.DEAD: 6, State.ACTIVE: 7}.get(state, 9)
        is_age = order != "due"
        fixed += (
            TaskColumn(title, cells, when, is_right_aligned=True, order=order, is_age=is_age),
        )
    if worded:
        fixed = (*fixed[:2], TaskColumn("STATE", 7, _word), *fixed[2:])
    gap = len(COLUMN_GAP)
    room = width - MARGIN_CELLS - sum(column.width + gap for column in fixed)
    if destined and room >= 90:
        fixed = (
            *fixed,
            TaskColumn("DESTINATION", 20, _destination, keeps_end=True, order="destination"),
        )
        room -= 20 + gap
    if room >= 110:
        description_cells = room // 3
        return (
            *fixed,
            TaskColumn("ERROR", room - description_cells, _error, order="error"),
            TaskColumn("DESCRIPTION", description_cells - gap, _description, order="description"),
        )
    what = TaskColumn(_what_title(state), max(0, room), _error_or_description, order="error")
    return (*fixed, what) if room > 8 else fixed


def resize_columns(
    columns: Sequence[TaskColumn], width: int, id_cells: int, *, is_wide: bool
) -> tuple[TaskColumn, ...]:
    """Give ids `id_cells`, if they need more; `is_wide`: the error has the room of all columns but
    id and time. The last column gets what is left, at least 8 cells; for that the columns after
    the id make room.
    """
    if not columns or not (id_cells or is_wide):
        return tuple(columns)
    first, *middle, last = columns
    middle = [column for column in middle if not is_wide or column.is_age or column.order == "due"]
    middle = middle[-1:] if is_wide else middle
    gap = len(COLUMN_GAP)
    room = width - MARGIN_CELLS - sum(column.width + gap for column in middle) - gap
    while middle and room < id_cells + 8:
        room += middle.pop(0).width + gap
    ids = max(SHORT_ID_CELLS, min(max(first.width, id_cells), room - 8))
    return (first._replace(width=ids), *middle, last._replace(width=max(0, room - ids)))


class TrashFacts(NamedTuple):
    """What the list of the trash shows besides the tasks."""

    purged_by: Callable[[Task], str] = lambda task: "?"
    """Who purged a task; `?` if that is not certain."""
    expires: Callable[[Task], float | None] = lambda task: None
    """Until when a task can be restored, epoch seconds UTC; None if unknown."""


NO_TRASH_FACTS = TrashFacts()


def trash_columns(
    width: int, longest: int, kinds: int, facts: TrashFacts
) -> tuple[TaskColumn, ...]:
    """The columns of the trash: when a task was purged, by whom, until when it can be restored."""

    def purged(task: Task, now: float) -> Run:
        since = task.extra.get("trash_since", "")
        return (f"{format_duration(now - float(since))}", "") if _is_number(since) else _UNKNOWN

    def purged_by(task: Task, now: float) -> Run:
        name = facts.purged_by(task)
        return (name, "") if name != "?" else _UNKNOWN

    def expires(task: Task, now: float) -> Run:
        end = facts.expires(task)
        return (f"in {format_duration(end - now)}", "") if end is not None else _UNKNOWN

    fixed = (
        TaskColumn("ID", _id_width(longest), _id, order="id"),
        TaskColumn("KIND", max(4, min(kinds, MAX_KIND_CELLS)), _kind, order="kind"),
        TaskColumn("PURGED", 6, purged, is_right_aligned=True),
        TaskColumn("BY", 8, purged_by),
        TaskColumn("EXPIRES", 9, expires, is_right_aligned=True),
    )
    room = width - MARGIN_CELLS - sum(column.width + len(COLUMN_GAP) for column in fixed)
    what = TaskColumn(_what_title(State.TRASH), max(0, room), _error_or_description, order="error")
    return (*fixed, what) if room > 8 else fixed


_UNKNOWN: Run = ("?", "unknown")


def _what_title(state: State) -> str:
    """Every task in the DLQ has an error; elsewhere its description is shown in muted."""
    return "ERROR" if state is State.DEAD else "ERROR OR DESCRIPTION"


def _id_width(longest: int) -> int:
    """Short ids get room in full; longer ones show their end."""
    return max(SHORT_ID_CELLS, longest)


def _narrow(state: State, width: int) -> tuple[TaskColumn, ...]:
    title, when, order = TIME_COLUMNS.get(state, ("AGE", _created, "created"))
    return (
        TaskColumn("ID", SHORT_ID_CELLS, _id, order="id"),
        TaskColumn(title, 8, when, is_right_aligned=True, order=order, is_age=order != "due"),
        TaskColumn(
            _what_title(state),
            max(0, width - MARGIN_CELLS - 20),
            _error_or_description,
            order="error",
        ),
    )


def title_line(
    shape: Sequence[TaskColumn], width: int, order: tuple[str, bool] = ("id", False)
) -> Line:
    """The title line of the list.

    `order` is the sort key and whether it is descending; the default order gets no sign.
    """

    def title(column: TaskColumn) -> str:
        if order == ("id", False) or column.order != order[0] or not column.title:
            return column.title
        sign = FALLING if order[1] != column.is_age else RISING
        return sign + column.title  # in front: the end of a title may be cut

    named = COLUMN_GAP.join(
        fit_text(title(column), column.width, column.is_right_aligned) for column in shape
    )
    return ((fit_text(" " * MARGIN_CELLS + named, width), "muted"),)


class TaskContext(NamedTuple):
    """How a row of the list is highlighted."""

    has_cursor: bool = False
    is_marked: bool = False
    is_gone: bool = False
    """The task has left the list; its row stays for a while and refuses actions."""
    has_note: bool = False
    """The task has a note."""
    left: str = ""
    """Why it has left: `retried by ben 2s ago`; "" if unknown."""


def task_line(
    task: Task, shape: Sequence[TaskColumn], now: float, place: TaskContext, width: int
) -> Line:
    """A task as one line of the list."""
    cursor, note = CURSOR if place.has_cursor else " ", NOTE_SIGN if place.has_note else " "
    margin = f"{cursor}{_mark_sign(place)}{note}"
    cells = [_cell(task, column, now) for column in shape]
    if place.is_gone:
        name = fit_text(short_id(task.id, shape[0].width), shape[0].width)
        why = f"left: {place.left or 'no longer here'} (row kept 10s)"
        line: Line = ((margin, "muted"), (name, "ghost"), (f"{COLUMN_GAP}{why}", "muted"))
        line = cut_line(line, width)
        return cursor_line(line, width) if place.has_cursor else line
    runs: list[Run] = [(margin, "mark" if place.is_marked else "warn" if place.has_note else "")]
    for text, style in cells:
        runs += [(text, style), (COLUMN_GAP, "")]
    line = cut_line(merge_runs(runs[:-1]), width)
    return cursor_line(line, width) if place.has_cursor else line


def _mark_sign(place: TaskContext) -> str:
    if place.is_gone:
        return GONE
    return MARK if place.is_marked else " "


def _cell(task: Task, column: TaskColumn, now: float) -> Run:
    text, style = column.cell(task, now)
    if column.order == "id":
        return fit_text(short_id(text, column.width), column.width), style
    if column.keeps_end:
        return fit_text_end(text, column.width), style
    return fit_text(text, column.width, column.is_right_aligned), style


def merge_runs(runs: Iterable[Run]) -> Line:
    """The same line in as few runs as possible: each run costs bytes to the terminal."""
    line: list[Run] = []
    for text, style in runs:
        if line and (line[-1][1] == style or not (text.strip(" ") or _is_seen(line[-1][1], style))):
            line[-1] = (line[-1][0] + text, line[-1][1])
        elif text:
            line.append((text, style))
    return tuple(line)


def _is_seen(*looks: str) -> bool:
    """True if one of these styles can be seen on blanks."""
    return any(style == "error" or style.startswith(_GROUNDS) for style in looks)


_GROUNDS = ("heat", "chip", "tab", "cursor")
"""The styles with a ground of their own begin with these words."""


def cursor_line(line: Line, width: int) -> Line:
    """A line as the row under the cursor: its cells keep their colours."""
    return tuple((text, style + ON_CURSOR) for text, style in cut_line(line, width))


def bracket_chips(line: Line) -> Line:
    """The line with its chips in brackets, for screens that do not show their ground."""
    return tuple(
        (
            f"[{text[1:-1]}]" if style.startswith(("chip", "tab")) and text[:1] == " " else text,
            style,
        )
        for text, style in line
    )


_GAP = re.compile(r"(^ +| {2,}| +$)")


def mark_words(line: Line, looks: Mapping[str, object]) -> Line:
    """The line with underline, strike and reverse only at its words: without colours, a reversed
    blank or graph looks like a state.
    """
    if not any(f"{style}{BARE}" in looks for _, style in line):
        return line
    return tuple(
        (part, style if _WORD.search(part) or f"{style}{BARE}" not in looks else f"{style}{BARE}")
        for style, runs in groupby(line, key=lambda run: run[1])
        for part in _GAP.split("".join(text for text, _ in runs))
        if part
    )


# Header, tabs, lock


def mode_line(armed_for: float, read_only: bool, now: float, narrow: bool = False) -> Line:
    """OBSERVE or ARMED, and the time, for the right end of the header; if narrow no time."""
    if read_only:
        word, style = "READ ONLY", "chip"
    elif armed_for > 0:
        word, style = f"ARMED {format_countdown(armed_for)}", "chip-warn"
    else:
        word, style = "OBSERVE", "chip"
    return ((f" {word} ", style),) + (() if narrow else ((f"  {format_clock(now)} ", "muted"),))


def trail_line(host: str, environment: str, steps: Sequence[str], width: int) -> Line:
    """Host, environment and path of screens: `mx1 PROD > /var/lib/nftban > dlq`.

    On a narrow screen only the last step.
    """
    names = [safe_line(step) for step in steps if step]
    if width < NARROW_COLUMNS:
        name = names[-1] if names else safe_line(host)
        return ((f" {name.rstrip('/').rpartition('/')[2] or name}", "strong"),)
    word: Line = ((" ", ""), (f" {safe_line(environment)} ", "chip-error")) if environment else ()
    lead: Line = ((f" {safe_line(host)}", "strong"), *word)
    room = max(12, width - width_of(lead) - 34)
    path = " > ".join(names)
    shorter = fit_text_end(path, room) if cells_of(path) > room else path
    before, arrow, last = f" > {shorter}".rpartition(" > ")
    return (*lead, (before + arrow, "muted"), (last, "strong")) if names else lead


class Totals(NamedTuple):
    """Totals of all places."""

    dead: int
    """Tasks in the DLQ."""
    stuck: int
    """Stuck locks."""
    workers: int
    """Running workers; 0 if unknown."""
    places: int
    pending: int
    rates: Rates | None
    """Tasks per second; None if unknown for a place."""
    dead_word: str = "dead"
    """What the stores call dead tasks, if all agree."""
    is_partial: bool = False
    """True while tasks of a place are not counted, or it cannot be read now."""


def totals_parts(totals: Totals, width: int) -> list[Line]:
    """The totals for the header, the most important first; nothing for what there is none of.
    Only a wall also has the totals that make no alarm.
    """
    more = "+" if totals.is_partial else ""
    counts = [(totals.dead_word, totals.dead, "", more), ("stuck", totals.stuck, "error", "")]
    counts += [("workers", totals.workers, "", "")]
    if is_wall := width >= WALL_COLUMNS:
        counts += [("places", totals.places, "", ""), ("pending", totals.pending, "", more)]
    parts: list[Line] = [
        ((f"{name} ", style or "muted"), (f"{number:,}{plus}  ", style or "strong"))
        for name, number, style, plus in counts
        if number
    ]
    if is_wall and totals.rates is not None:
        for name, rate in (("in", totals.rates.inward), ("out", totals.rates.outward)):
            parts.append(((f"{name} ", "muted"), (f"{format_rate(rate)}  ", "strong")))
    return parts


def tab_line(
    names: Sequence[str],
    counts: Sequence[int | None],
    current: int,
    complete: bool,
    width: int,
    within: Mapping[int, str] = {},
    partial: Collection[int] = (),
) -> Line:
    """The tabs, named by the store's own words; an unknown count is `?`. `within` maps a tab to the
    part of its count that has a more exact word. The counts of `partial` are of what was read.

    If they do not fit: drop the gaps first, then empty tabs, then tabs before the current one, so
    that the current tab stays visible.
    """
    texts: dict[int, str] = {}
    for at, (name, amount) in enumerate(zip(names, counts, strict=True)):
        whole = complete and at not in partial
        known = amount if amount or whole else None
        figure = "?" if known is None else f"{known:,}{'' if whole else '+'}"
        part = f" ({safe_line(within[at])})" if at in within and amount else ""
        texts[at] = f"{state_name(name)} {figure}{part}"
    wide = sum(map(cells_of, texts.values())) + 4 * len(texts) <= width
    gap = ("  ", "") if wide else ("", "")
    empty = [at for at in texts if not counts[at] and at != current]
    for at in [*reversed(empty), *(at for at in texts if at < current)]:
        if sum(map(cells_of, texts.values())) + 2 * len(texts) <= width:
            break
        texts.pop(at, None)
    parts: list[Line] = []
    for at, text in texts.items():
        name, _, figure = text.partition(" ")
        style = "strong" if counts[at] else "muted"
        tab: Line = ((f" {name} ", "muted"), (f"{figure} ", style))
        parts.append((((f" {text} ", "chip-accent"),) if at == current else tab) + (gap,))
    return cut_line(parts_that_fit(parts, width), width)


_LOCK_LOOKS = {
    Verdict.FREE: "",
    Verdict.HELD: "ok",
    Verdict.STALE: "warn",
    Verdict.STUCK: "error",
    Verdict.UNKNOWN: "unknown",
}


ALARMING_VERDICTS = frozenset({Verdict.STALE, Verdict.STUCK, Verdict.UNKNOWN})
"""Lock verdicts that are shown on every screen size."""


def lock_part(evidence: LockEvidence | None, now: float) -> Line:
    """The lock in a few words: its holder and heartbeat, or what is wrong with it."""
    if evidence is None:
        return (("lock ", "muted"), ("?", "unknown"), (" not examined yet", "muted"))
    verdict, pid = evidence.verdict, evidence.pid
    holder = f"PID {pid}" if pid is not None else ""
    heartbeat = f"heartbeat {format_age(now - evidence.since)}" if evidence.since else ""
    if verdict is Verdict.HELD:
        return (("lock ", "muted"), (", ".join(filter(None, [holder, heartbeat])) or "held", ""))
    if verdict is Verdict.FREE:
        return (("lock ", "muted"), ("free", ""))
    silent = f" {format_duration(now - evidence.since)}" if evidence.since else ""
    style = "chip-error" if verdict is Verdict.STUCK else "chip-warn"
    chip = (f" {verdict.value.upper()}{silent} ", style)
    reason = safe_line(evidence.reason)
    if not holder or not reason.startswith(f"{holder} "):
        reason = ", ".join(filter(None, [holder, reason]))
    if verdict is Verdict.UNKNOWN:
        return (("lock ", "muted"), ("? ", "unknown"), (reason or "unknown", ""))
    return (("lock ", "muted"), chip, (f" {reason}", ""))


def lock_line(
    evidence: LockEvidence | None, now: float, width: int, key: str = "", more: Sequence[Line] = ()
) -> Line:
    """The lock, then the parts of `more` that fit; for an alarming verdict the key to press."""
    lead: Line = ((" ", ""), *lock_part(evidence, now))
    alarms = evidence is not None and evidence.verdict in ALARMING_VERDICTS
    if evidence is None or not alarms or not key:
        return fact_line([lead, *more], width)
    what = "" if width < NARROW_COLUMNS else " unlock" if is_freeable(evidence) else " why"
    right: Line = ((f" {key}", "key"), (f"{what} ", ""))
    room = width - width_of(right) - 1
    return join_ends(fact_line([lead, *more], room), right, width)


def fact_line(parts: Sequence[Line], width: int) -> Line:
    """Facts on one line, two cells apart; omit the first that does not fit, and all after it."""
    first, *others = parts
    gap: Line = (("   ", ""),)
    line = parts_that_fit([cut_end(first, width), *((*gap, *part) for part in others)], width)
    return cut_line(line, width)


def cut_end(line: Line, width: int) -> Line:
    """The line, cut if it is wider than `width` cells, and not padded."""
    return line if width_of(line) <= width else cut_line(line, width)


def verdict_style(verdict: Verdict) -> StyleName:
    """Style of a lock verdict."""
    return _LOCK_LOOKS[verdict]


def is_freeable(evidence: LockEvidence) -> bool:
    """True if a plan can free the lock: its holder is certainly stuck or gone."""
    return evidence.verdict in (Verdict.STUCK, Verdict.STALE) and not evidence.signal_refusal


# Scope and hints


class Scope(NamedTuple):
    """What a verb would act on if its key were pressed now."""

    row: str = ""
    """The id under the cursor; "" if none."""
    is_gone: bool = False
    """The task under the cursor has left the list."""
    marked: int = 0
    hidden: int = 0
    """Marked tasks that the filter hides; verbs do not act on them."""
    acts_on_all: bool = False
    matching: str = "?"
    """Number of tasks that match the filter."""
    ranged: int = 0
    """Rows between the start of a range and the cursor; they are not marked yet."""
    filter_error: str = ""
    """Error in the filter; until it is corrected, verbs act on nothing."""


def scope_words(scope: Scope) -> Line:
    """What a verb would act on: `a1240c23`, `5 marked`, `all 318 matching`."""
    hidden = f", {format_count(scope.hidden, 'hidden mark')} not included" if scope.hidden else ""
    if scope.filter_error:
        return ((f"nothing: {safe_line(scope.filter_error)}", "warn"),)
    if scope.ranged:
        return ((f"nothing: {format_count(scope.ranged, 'row')} in the range", "mark"),)
    if scope.acts_on_all:
        return ((f"all {scope.matching} matching", "mark"), (hidden, "warn"))
    if scope.marked or scope.hidden:
        return ((f"{scope.marked:,} marked", "mark"), (hidden, "warn"))
    if scope.is_gone:
        return ((f"nothing: {short_id(scope.row)} is gone", "warn"),)
    return (
        ((short_id(scope.row, MAX_ID_CELLS), "strong"),) if scope.row else (("nothing", "muted"),)
    )


def next_line(key: str, does: str, acts_on: str | Line, width: int, message: str = "") -> Line:
    """The line above the hints: the next step and its key, and what a key acts on.

    A message takes the place of the next step, and of all if it does not fit beside.
    """
    step: Line = ((" next  ", "ok"), (key, "key"), (f" {does}" if key else does, ""))
    scope: Line = ((acts_on, "strong"),) if isinstance(acts_on, str) else acts_on
    right: Line = (("acts on ", "muted"), *scope, (" ", "")) if acts_on else ()
    left: Line = step if does else ()
    if message:
        left = ((f" {message}", "warn"),)
        right = right if width_of((*left, *right)) < width else ()
    room = width - width_of(right) - 1
    if not right or room <= 0:
        return cut_line(((" ", ""), *right) if right else left, width)
    return join_ends(left, right, width)


def bar_line(left: Line, note: str, width: int) -> Line:
    """The bar of a confirmation, over the full width, with a note at its right end if it fits."""
    room = width - width_of(left) - cells_of(note) - 3
    line = join_ends(left, ((f"{note} ", ""),), width) if note and room > 0 else left
    return tuple((text, style + ON_BAR) for text, style in cut_line(line, width))


def hint_lines(hints: Sequence[Hint], width: int, lines: int = 1) -> list[Line]:
    """The hints on `lines` lines; if they do not fit, minor ones are dropped first.

    The last two stay, because they are help and back. The help lists what was dropped.
    """
    return [*_hint_lines(tuple(hints), width, lines)]


@lru_cache(maxsize=16)  # an idle screen asks for the same each second
def _hint_lines(hints: tuple[Hint, ...], width: int, lines: int) -> tuple[Line, ...]:
    fitting = list(hints)
    while len(rows := _hint_rows(fitting, width)) > lines:
        minor = (at for at in reversed(range(len(fitting))) if fitting[at].is_minor)
        if (last := next(minor, len(fitting) - 3)) < 0:
            break
        del fitting[last]
    rows += [[] for _ in range(lines - len(rows))]
    return tuple([cut_line(tuple(runs), width) for runs in rows[:lines]])


def _hint_rows(hints: Iterable[Hint], width: int) -> list[list[Run]]:
    rows: list[list[Run]] = [[]]
    used = 0
    for hint in hints:
        cells = cells_of(hint.shown) + cells_of(hint.text) + 3
        if used + cells > width and rows[-1]:
            rows.append([])
            used = 0
        styles = ("muted", "muted") if hint.is_refused else ("key", "")
        rows[-1] += [(f" {hint.shown}", styles[0]), (f" {hint.text} ", styles[1])]
        used += cells
    return rows


# A task in full


def task_fields(task: Task, states: Mapping[State, str], now: float) -> list[Run]:
    """All fields of a task; empty fields are omitted."""
    most = task.extra.get(ATTEMPTS_ALLOWED_KEY)
    allowed = f" of {most}" if most else ""
    rows = [
        ("id", task.id),
        ("kind", task.kind),
        ("state", states.get(task.state, task.state) + (f" ({task.word})" if task.word else "")),
        ("queue", task.queue),
        ("group", task.group),
        ("description", task.description),
        ("destination", task.destination),
        ("created", format_time(task.created, now) if task.created > 0 else "?"),
        ("due", _due_words(task, now)),
        ("attempts", f"{'?' if task.attempts is None else task.attempts}{allowed}"),
        ("priority", str(task.priority) if task.priority else ""),
        ("last error", task.error),
        ("payload", task.payload),
        ("worker", _lease_words(task, now)),
        ("revision", task.rev),
        *(
            (name.replace("_", " "), _extra_text(name, text, now))
            for name, text in task.extra.items()
            if name != ATTEMPTS_ALLOWED_KEY
        ),
    ]
    return [(name, safe_line(text)) for name, text in rows if text]


def _due_words(task: Task, now: float) -> str:
    if task.state not in (State.PENDING, State.HELD):
        return ""
    if task.due is None:
        return "?"
    return format_time(task.due, now) if task.due > now else "now"


def _lease_words(task: Task, now: float) -> str:
    """Owner, start and end of a claim; a store that does not know a time has 0."""
    if (lease := task.lease) is None:
        return ""
    since = f" since {format_time(lease.since, now)}" if lease.since > 0 else ""
    until = f", until {format_time(lease.until, now)}" if lease.until else ""
    return f"{lease.owner or '? (owner not stored)'}{since}{until}"


def _extra_text(name: str, text: str, now: float) -> str:
    return format_time(float(text), now) if name.endswith("_since") and _is_number(text) else text


def fact_lines(
    rows: Iterable[Run], width: int, names: int = 12, looks: Mapping[str, str] | None = None
) -> list[Line]:
    """Names and values in two columns below a margin, `names` cells for the first; long values are
    folded. `looks` has the style of a value up to its first comma, by name.
    """
    lines: list[Line] = []
    room = max(8, width - MARGIN_CELLS - names - 2)
    for name, value in rows:
        unknown = "unknown" if value.startswith("?") else ""
        style = (looks or {}).get(name, unknown)
        for number, part in enumerate(fold_text(value, room)):
            label = fit_text(name if number == 0 else "", names)
            head, comma, tail = part.partition(",") if style != unknown else (part, "", "")
            tail_runs = ((comma + tail, unknown),) if comma else ()
            lines.append(((f"{'':{MARGIN_CELLS}}{label}  ", "muted"), (head, style), *tail_runs))
    return lines


def fold_text(text: str, width: int) -> list[str]:
    """The text in pieces of at most `width` cells, split at spaces if possible.

    A width below 1 (a terminal narrower than its margin) counts as 1.
    """
    pieces: list[str] = []
    at, width = 0, max(1, width)
    while at + width < len(text) or cells_of(text[at:]) > width:
        piece = set_cell_size(text[at : at + width], width).rstrip()
        if text[at + len(piece) : at + len(piece) + 1] != " " and " " in piece.lstrip():
            piece = piece.rpartition(" ")[0]
        pieces.append(piece)
        at += max(1, len(piece))
        while text[at : at + 1] == " ":
            at += 1
    return [*pieces, text[at:]] if at < len(text) or not pieces else pieces


def join_columns(
    left: Sequence[Line], right: Sequence[Line], left_width: int, width: int
) -> list[Line]:
    """Join two texts side by side."""
    room = width - left_width - 2
    lines: list[Line] = []
    for at in range(max(len(left), len(right))):
        start = cut_line(left[at] if at < len(left) else BLANK_LINE, left_width)
        lines.append((*start, ("  ", ""), *cut_line(right[at] if at < len(right) else (), room)))
    return lines


def part_line(text: str) -> Line:
    """The title of a part inside a frame."""
    return ((f" {text}", "title"),)


def heading_line(text: str, width: int) -> Line:
    """A title in a rule, as the frames of panes on small screens."""
    return (("─ ", "line"), (text, "title"), (" " + "─" * (width - cells_of(text) - 3), "line"))


# The log

_LEVELS = {
    "CRITICAL": "error",
    "ERROR": "error",
    "WARN": "warn",
    "WARNING": "warn",
    "SUCCESS": "ok",
    "DEBUG": "muted",
}


def level_style(level: str) -> str:
    """Style of a log level; the level is also shown as a word."""
    return _LEVELS.get(level.upper(), "")


_IDS = re.compile(
    r"\b(?:[0-9]{8}T[0-9]{6}Z-[\w.]+-|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{4})([0-9a-f]{8})\b"
)
"""Ids with the time of their creation, and UUIDs."""


def shorten_ids(text: str) -> str:
    """A log line with task ids as short as in the list, so that errors fit."""
    return _IDS.sub(r"\1", text)


def log_line(when: float | None, level: str, text: str, width: int, margin: int = 1) -> Line:
    """A log line: time, level, text; the level is one letter with a colour."""
    is_dated = when is not None and _is_valid_time(when)
    stamp = time.strftime("%H:%M:%S", time.localtime(when)) if is_dated else ""
    style = level_style(level)
    runs: list[Run] = [(" " * margin + (f"{stamp} " if stamp else ""), "muted")]
    if level:
        runs.append((f"{safe_line(level)[:1].upper()} ", style))
    runs.append((safe_line(text), style if style == "muted" else ""))
    return cut_line(tuple(runs), width)
