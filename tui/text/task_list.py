"""The columns of the task list, and a task as one line of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TypeAlias

from engine import policy
from engine.model import (
    AttemptLimit,
    State,
    Task,
    attempts_allowed,
    count_recipients,
)
from engine.text.figure import UNKNOWN
from engine.text.safe import safe_error, safe_line
from engine.values import NamedTuple
from tui.text.frames import NARROW_COLUMNS
from tui.text.glyphs import CURSOR, FALLING, GONE, MARK, RISING
from tui.text.lines import (
    UNKNOWN_RUN,
    Line,
    Run,
    cells_of,
    cut_line,
    fit_text,
)
from tui.text.styles import cursor_line
from tui.text.table import COLUMN_GAP_CELLS, REST, Column, Table
from tui.text.task_fields import is_number
from tui.text.times import format_minutes

SHORT_ID_CELLS = 8

MAX_NAME_CELLS = 16
"""Characters of an id that stays whole where it has room, such as `13-organizer`."""

_HEX = frozenset("0123456789abcdef")


class ListedTask(NamedTuple):
    """A task at the time for which its row is drawn."""

    task: Task
    now: float


TaskCell: TypeAlias = Callable[[ListedTask], Run]


def short_id(ident: str, cells: int = SHORT_ID_CELLS) -> str:
    """An id of more than `cells` characters as its last eight, by which tasks differ, without what
    is left of its queue's name; made safe. Up to `MAX_NAME_CELLS` it stays whole unless it ends in
    eight hexadecimal digits: it may be a number and a name."""
    text = safe_line(ident)
    end = text[-SHORT_ID_CELLS:]
    is_name = len(text) <= MAX_NAME_CELLS and not _HEX.issuperset(end)
    return text if len(text) <= cells or is_name else end.rpartition("/")[2] or end


def id_cells(tasks: Iterable[Task]) -> int:
    """Cells of the longest id as a list of tasks shows it, at most `MAX_ID_CELLS`."""
    widths = (cells_of(short_id(task.id, MAX_ID_CELLS)) for task in tasks)
    return min(MAX_ID_CELLS, max(widths, default=0))


def _kind(row: ListedTask) -> Run:
    return safe_line(row.task.kind), "muted"


def _destination(row: ListedTask) -> Run:
    return safe_line(row.task.destination), ""


def _description(row: ListedTask) -> Run:
    return safe_line(row.task.description), ""


def _sender(row: ListedTask) -> Run:
    return safe_line(row.task.sender), ""


@lru_cache(maxsize=16)  # equal columns have the same cell
def _recipients_cell(cells: int) -> TaskCell:
    """The first recipient, if it fits, else its domain, and the number of the others; where a task
    is one recipient, its destination."""

    def recipients(row: ListedTask) -> Run:
        first, more = safe_line(row.task.destination), count_recipients(row.task) - 1
        first = safe_line(row.task.recipients[0]) if row.task.recipients else first
        others = f" +{more:,}" if more > 0 else ""
        if cells_of(first) + len(others) > cells:
            first = first[max(0, first.rfind("@")) :]
        return fit_text(first, min(cells_of(first), cells - len(others))) + others, ""

    return recipients


def _address(row: ListedTask) -> Run:
    to = row.task.destination
    return row.task.sender or to * ("@" in to and "/" not in to), ""  # no URL with a user


def _error(row: ListedTask) -> Run:
    return safe_error(row.task.error), ""


def _created(row: ListedTask) -> Run:
    return (format_minutes(row.now - row.task.created) if row.task.created > 0 else UNKNOWN, "")


@lru_cache(maxsize=16)  # equal columns have the same cell
def _tries_cell(limit: AttemptLimit) -> TaskCell:

    def tries(row: ListedTask) -> Run:
        most = limit(row.task)
        if (runs := policy.count_runs(row.task, most)) is None:
            return UNKNOWN_RUN
        return (f"{runs}" if most is None else f"{runs}/{most}"), "muted"

    return tries


def _word(row: ListedTask) -> Run:
    return safe_line(row.task.word), "warn"


def _due(row: ListedTask) -> Run:
    if row.task.due is None:
        return UNKNOWN_RUN
    until = row.task.due - row.now
    return (f"in {format_minutes(until)}", "muted") if until > 0 else ("ready", "ok")


def _active_time(row: ListedTask) -> Run:
    since = row.task.lease.since if row.task.lease else 0.0
    return (format_minutes(row.now - since), "") if since > 0 else UNKNOWN_RUN


def _dead(row: ListedTask) -> Run:
    since = policy.died_at(row.task)
    return UNKNOWN_RUN if since is None else (format_minutes(row.now - since), "")


def _error_or_description(row: ListedTask) -> Run:
    return _error(row) if row.task.error else (safe_line(row.task.description), "muted")


TIME_COLUMNS: Mapping[State | None, tuple[str, TaskCell, str]] = {
    State.PENDING: ("DUE", _due, "due"),
    State.ACTIVE: ("RUNNING", _active_time, "since"),
    State.DEAD: ("DIED", _dead, "died"),
}
"""The time column of a state: its title, its cell, and the order that sorts by it."""


def _state_time(row: ListedTask) -> Run:
    _, cell, _ = TIME_COLUMNS.get(row.task.state, ("", _created, ""))
    return cell(row)


NOTE_SIGN = "#"
"""Marks a task with a note; also the key that writes one."""

MAX_ID_CELLS = 14
"""Ids up to this length are shown in full in a list, longer ones by their last eight characters."""

MAX_KIND_CELLS = 12
"""Cells of the longest kind that a list shows in full."""

MAX_ADDRESS_CELLS, MAX_ERROR_CELLS = 28, 40
"""Cells of an address, and of an error or a description, for which other columns make room."""


class TaskContents(NamedTuple):
    """What the rows of a list have in its columns, so that none is wider than it needs."""

    kinds: frozenset[str] = frozenset()
    """Their kinds; "" for that of a task whose id ends in it."""
    error: int = 0
    """Cells of the longest error or description."""
    error_cells: int = 0
    """Cells of the longest error."""
    sender: int = 0
    recipient: int = 0
    age: int = 0
    time_cells: int = 0
    """Cells of the longest time in the column of `TIME_COLUMNS`."""
    address: int = 0
    """Cells of the longest address; 0: no row is a mail."""

    def with_tasks(self, tasks: Iterable[Task], now: float) -> TaskContents:
        """Also those of more tasks, at `now` (epoch seconds UTC)."""
        rows = [ListedTask(task, now) for task in tasks]
        kinds = ("" if row.task.id.endswith(f"-{row.task.kind}") else row.task.kind for row in rows)
        recipients = _recipients_cell(MAX_ADDRESS_CELLS)
        texts = _error_or_description, _error, _sender, recipients, _created, _state_time, _address
        longest = (max([0, *(cells_of(cell(row)[0]) for row in rows)]) for cell in texts)
        return TaskContents(self.kinds.union(kinds), *map(max, self[1:], longest))


ANY_CONTENTS = TaskContents(
    frozenset(("", UNKNOWN)), 9, 9, MAX_ADDRESS_CELLS, MAX_ADDRESS_CELLS, age=6, time_cells=9
)
"""Of rows that are not known."""


def task_columns(
    state: State | None,
    width: int,
    destined: bool = False,
    longest: int = 0,
    worded: bool = False,
    limit: AttemptLimit = attempts_allowed,
    kinds: int = MAX_KIND_CELLS,
    trash: TrashFacts | None = None,
    mailed: bool = False,
    contents: TaskContents = ANY_CONTENTS,
) -> tuple[Column[ListedTask], ...]:
    """The columns of the task list that fit; the error gets all the room that is left. `state`:
    that of all tasks, None if they differ: then no column is for a state's time. `destined`: tasks
    have destinations (not in every store). `longest`: cells of the longest id (`id_cells`).
    `worded`: tasks have a word that is more exact than their state. `limit`: maximum attempts of
    each task. `kinds`: cells of the longest kind. `mailed`: tasks are mails; where the width lacks
    for their addresses, kind and attempts make room. `contents`: where errors would be cut, a kind
    that all rows have makes room, then their words."""
    if width < NARROW_COLUMNS:
        return _narrow(state, width)
    if state is State.TRASH:
        facts = trash or NO_TRASH_FACTS
        return trash_columns(width, longest, kinds, facts, mailed=mailed, contents=contents)
    fixed: tuple[Column[ListedTask], ...] = (
        _id_column(_id_width(longest)),
        *_kind_column(kinds, contents),
        *[Column("STATE", 7, _word, rank=1)] * worded,
        Column("AGE", max(4, contents.age), _created, right=True, order="created", is_age=True),
        Column("TRIES", 5, _tries_cell(limit), right=True, order="attempts"),
    )
    if state in TIME_COLUMNS:
        title, when, order = TIME_COLUMNS[state]
        most = 6 if state is State.DEAD else 7 if state is State.ACTIVE else 9
        cells = min(most, max(len(title) + 1, contents.time_cells))  # a sign of the order before it
        is_age = order != "due"
        fixed += (Column(title, cells, when, right=True, order=order, is_age=is_age),)
    what = _what_column(state, contents.error)
    if mailed:
        return _with_rest(_mail_columns(fixed, width, contents), what, width)
    room = width - Table(fixed).cells - COLUMN_GAP_CELLS
    if destined and room >= 90:
        where = Column("DESTINATION", 20, _destination, keeps_end=True, order="destination")
        fixed = (*fixed, where)
        room -= 20 + COLUMN_GAP_CELLS
    if room < 110 or not contents.error_cells:
        return _with_rest(fixed, what, width)
    cells = room // 3 - COLUMN_GAP_CELLS
    more = Column("DESCRIPTION", cells, _description, order="description")
    return _with_rest(fixed, Column("ERROR", 9, _error, order="error", grows=REST), width, more)


_MAIL_WIDTHS = {
    "KIND": 130,
    "FROM": 110,
    "TRIES": 100,
    "BY": 90,
    "STATE": 74,
    "AGE": 66,
    "EXPIRES": 66,
}
"""Columns that a list of mails lacks if it is narrower: recipient and error say more."""

_REPLY_CELLS = 22
"""Cells of the error that the recipient leaves: `450 4.2.0 mailbox busy`."""

_CODE_CELLS = 16
"""Cells that a recipient leaves that would be cut otherwise: `450 4.2.0 mailbo...`."""


def _mail_columns(
    columns: Sequence[Column[ListedTask]], width: int, contents: TaskContents
) -> tuple[Column[ListedTask], ...]:
    """The columns of mails: their addresses after the others, none wider than the longest; the
    recipient is whole before the error has more room."""
    columns = [column for column in columns if width >= _MAIL_WIDTHS.get(column.title, 0)]
    addresses = 2 if contents.sender and width >= _MAIL_WIDTHS["FROM"] else 1
    room = width - Table(columns).cells - (addresses + 1) * COLUMN_GAP_CELLS
    cells = max(room // (addresses + 1), (room - _REPLY_CELLS) // addresses)
    cells = max(8, min(MAX_ADDRESS_CELLS, cells))
    sender = max(4, min(cells, contents.sender))
    free = cells - sender if addresses > 1 else max(0, room - cells - _CODE_CELLS)
    recipient = max(4, min(cells + free, contents.recipient))
    shown = (
        Column("FROM", sender, _sender, order="sender"),
        Column("TO", recipient, _recipients_cell(recipient), order="destination"),
    )
    return (*columns, *shown[-addresses:])


def _with_rest(
    fixed: Sequence[Column[ListedTask]],
    what: Column[ListedTask],
    width: int,
    *more: Column[ListedTask],
) -> tuple[Column[ListedTask], ...]:
    """The columns that fit, one of which gets all the room that is left, or has none."""
    return tuple(Table((*fixed, what, *more)).fitted((), width).columns)


def resize_columns(
    columns: Sequence[Column[ListedTask]], width: int, id_cells: int, *, is_wide: bool
) -> tuple[Column[ListedTask], ...]:
    """Give ids `id_cells`, if they need more; `is_wide`: the error has the room of all columns but
    id and time. The last column gets what is left, at least 8 cells; for that the columns after
    the id make room."""
    if not columns or not (id_cells or is_wide):
        return tuple(columns)
    first, *middle, last = columns
    middle = [column for column in middle if not is_wide or column.is_age or column.order == "due"]
    middle = middle[-1:] if is_wide else middle
    room = width - Table(middle).cells - 2 * COLUMN_GAP_CELLS
    while middle and room < id_cells + 8:
        room += middle.pop(0).width + COLUMN_GAP_CELLS
    ids = max(SHORT_ID_CELLS, min(max(first.width, id_cells), room - 8))
    return (_id_column(ids), *middle, last._replace(width=max(0, room - ids)))


class TrashFacts(NamedTuple):
    """What the list of the trash shows besides the tasks."""

    purged_by: Callable[[Task], str] = lambda task: UNKNOWN
    """Who purged a task; `?` if that is not certain."""
    expires: Callable[[Task], float | None] = lambda task: None
    """Until when a task can be restored, epoch seconds UTC; None if unknown."""


NO_TRASH_FACTS = TrashFacts()


def trash_columns(
    width: int,
    longest: int,
    kinds: int,
    facts: TrashFacts,
    *,
    mailed: bool = False,
    contents: TaskContents = ANY_CONTENTS,
) -> tuple[Column[ListedTask], ...]:
    """The columns of the trash: when a task was purged, by whom, until when it can be restored."""

    def purged(row: ListedTask) -> Run:
        since = row.task.extra.get("trash_since", "")
        if not is_number(since):
            return UNKNOWN_RUN
        return format_minutes(row.now - float(since)), ""

    def purged_by(row: ListedTask) -> Run:
        name = facts.purged_by(row.task)
        return (name, "") if name != UNKNOWN else UNKNOWN_RUN

    def expires(row: ListedTask) -> Run:
        end = facts.expires(row.task)
        return (f"in {format_minutes(end - row.now)}", "") if end is not None else UNKNOWN_RUN

    fixed = (
        _id_column(_id_width(longest)),
        *_kind_column(kinds, contents),
        Column("PURGED", 6, purged, right=True),
        Column("BY", 8, purged_by),
        Column("EXPIRES", 9, expires, right=True),
    )
    shown = _mail_columns(fixed, width, contents) if mailed else fixed
    return _with_rest(shown, _what_column(State.TRASH, contents.error), width)


def _id_column(width: int) -> Column[ListedTask]:
    return Column("ID", width, lambda row: (short_id(row.task.id, width), "accent"), order="id")


def _kind_column(longest: int, contents: TaskContents) -> Sequence[Column[ListedTask]]:
    """The kind; one that all rows have has no column where it would be cut."""
    is_repeated = len(contents.kinds) == 1
    cells = max(4, min(longest, MAX_KIND_CELLS))
    column = Column("KIND", cells, _kind, order="kind", rank=2 * is_repeated)
    return () if is_repeated and longest > MAX_KIND_CELLS else (column,)


def _id_width(longest: int) -> int:
    """Short ids get room in full; longer ones show their end."""
    return max(SHORT_ID_CELLS, longest)


def _narrow(state: State | None, width: int) -> tuple[Column[ListedTask], ...]:
    title, when, order = TIME_COLUMNS.get(state, ("AGE", _created, "created"))
    due = Column(title, 8, when, right=True, order=order, is_age=order != "due")
    return _with_rest((_id_column(SHORT_ID_CELLS), due), _what_column(state, 0, 0), width)


def _what_column(state: State | None, longest: int, least: int = 9) -> Column[ListedTask]:
    """Every task in the DLQ has an error; elsewhere its description is shown in muted."""
    title = "ERROR" if state is State.DEAD else "ERROR OR DESCRIPTION"
    more = max(0, min(longest, MAX_ERROR_CELLS) - least)
    cell = _error_or_description
    return Column(title, least + more, cell, order="error", shrinks=more, grows=REST, rank=-1)


def title_line(
    shape: Sequence[Column[ListedTask]], width: int, order: tuple[str, bool] = ("id", False)
) -> Line:
    """The titles; a sign at the column of the `order` (key, descending), if not the default."""

    def signed(column: Column[ListedTask]) -> Column[ListedTask]:
        if order == ("id", False) or column.order != order[0] or not column.title:
            return column
        sign = FALLING if order[1] != column.is_age else RISING
        # In front: the end of a title may be cut.
        return column._replace(title=sign + column.title)

    return Table([signed(column) for column in shape]).titles(width)


class TaskContext(NamedTuple):
    """How a row of the list is highlighted."""

    has_cursor: bool = False
    is_marked: bool = False
    is_gone: bool = False
    """The task has left the list; its row stays for a while and refuses actions."""
    has_note: bool = False
    left: str = ""
    """Why it has left: `retried by ben 2s ago`; "" if unknown."""


def task_line(
    task: Task, shape: Sequence[Column[ListedTask]], now: float, place: TaskContext, width: int
) -> Line:
    """A task as one line of the list."""
    cursor, note = CURSOR if place.has_cursor else " ", NOTE_SIGN if place.has_note else " "
    mark = GONE if place.is_gone else MARK if place.is_marked else " "
    margin = f"{cursor}{mark}{note}"
    if place.is_gone:
        name = fit_text(short_id(task.id, shape[0].width), shape[0].width)
        why = f"left: {place.left or 'no longer here'} (row kept 10s)"
        line: Line = ((margin, "muted"), (name, "ghost"), (f"  {why}", "muted"))
        line = cut_line(line, width)
    else:
        style = "mark" if place.is_marked else "warn" if place.has_note else ""
        line = Table(shape, margin=lambda row: (margin, style)).line(ListedTask(task, now), width)
    return cursor_line(line, width) if place.has_cursor else line
