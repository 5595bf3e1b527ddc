"""The columns of the task list, and a task as one line of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from engine import policy
from engine.model import (
    AttemptLimit,
    State,
    Task,
    attempts_allowed,
)
from engine.text.figure import UNKNOWN
from engine.text.safe import safe_line
from tui.text.frames import NARROW_COLUMNS
from tui.text.glyphs import CURSOR, FALLING, GONE, MARK, RISING
from tui.text.lines import (
    COLUMN_GAP,
    MARGIN_CELLS,
    UNKNOWN_RUN,
    Line,
    Run,
    cells_of,
    cut_line,
    fit_text,
    fit_text_end,
    merge_runs,
)
from tui.text.styles import cursor_line
from tui.text.task_fields import is_number
from tui.text.times import format_minutes

SHORT_ID_CELLS = 8
"""Characters of a long id in a list."""

MAX_NAME_CELLS = 16
"""Characters of an id that stays whole where it has room, such as `13-organizer`."""

_HEX = frozenset("0123456789abcdef")

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
    return (format_minutes(now - task.created) if task.created > 0 else UNKNOWN, "")


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
            return UNKNOWN_RUN
        return (f"{runs}" if most is None else f"{runs}/{most}"), "muted"

    return tries


def _word(task: Task, now: float) -> Run:
    return safe_line(task.word), "warn"


def _due(task: Task, now: float) -> Run:
    if task.due is None:
        return UNKNOWN_RUN
    return ("ready", "ok") if task.due <= now else (f"in {format_minutes(task.due - now)}", "muted")


def _active_time(task: Task, now: float) -> Run:
    return (format_minutes(now - task.lease.since), "") if task.lease else UNKNOWN_RUN


def _dead(task: Task, now: float) -> Run:
    since = policy.died_at(task)
    return UNKNOWN_RUN if since is None else (format_minutes(now - since), "")


def _error_or_description(task: Task, now: float) -> Run:
    return (safe_line(task.error), "") if task.error else (safe_line(task.description), "muted")


TIME_COLUMNS: Mapping[State, tuple[str, Cell, str]] = {
    State.PENDING: ("DUE", _due, "due"),
    State.ACTIVE: ("RUNNING", _active_time, "since"),
    State.DEAD: ("DIED", _dead, "died"),
}
"""The time column of a state: its title, its cell, and the order that sorts by it."""

NOTE_SIGN = "#"
"""Marks a task with a note; also the key that writes one."""

MAX_ID_CELLS = 14
"""Ids up to this length are shown in full in a list, longer ones by their last eight characters."""

MAX_KIND_CELLS = 12
"""Cells of the longest kind that a list shows in full."""


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

    purged_by: Callable[[Task], str] = lambda task: UNKNOWN
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
        return (f"{format_minutes(now - float(since))}", "") if is_number(since) else UNKNOWN_RUN

    def purged_by(task: Task, now: float) -> Run:
        name = facts.purged_by(task)
        return (name, "") if name != UNKNOWN else UNKNOWN_RUN

    def expires(task: Task, now: float) -> Run:
        end = facts.expires(task)
        return (f"in {format_minutes(end - now)}", "") if end is not None else UNKNOWN_RUN

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
