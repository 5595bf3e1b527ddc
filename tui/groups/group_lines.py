"""Groups of tasks as text: counts by state with a bar, oldest, next due and last error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from engine.index.counted_rows import TASKS
from engine.index.filter_language import ACCOUNT_FIELD
from engine.index.group_counts import GroupTable, TaskGroup
from engine.index.schema import STATES
from engine.model import AttemptLimit, State, Task, attempts_allowed
from engine.monitor.metrics_check import OwnCounts
from engine.places.place import GroupFacts, Place
from engine.text.figures import fit_count, format_count
from engine.text.safe import safe_error, safe_line, state_name
from tui.queue.painters import BAR_LOOKS, state_lines
from tui.text import task_list
from tui.text.frames import NARROW_COLUMNS
from tui.text.graphs import FULL_CELL, bar
from tui.text.lines import UNKNOWN_RUN, Line, Run, cells_of, cut_line, fact_lines, heading_line
from tui.text.table import REST, Column, Table
from tui.text.task_list import TaskContents, TaskContext, id_cells, task_columns, task_line
from tui.text.task_row import time_fields
from tui.text.times import format_minutes, format_time_with_age

NO_NAME = "(none)"

BAR_TITLE, BAR_CELLS = "SHARE", 6
"""Title and cells of the bar of a group; the largest group fills it. A narrow table drops it before
a count."""

STATE_FILLS, OTHER_FILL = {State.PENDING: FULL_CELL, State.ACTIVE: "▓", State.DEAD: "▒"}, "░"
"""Fill of each state's part of a bar: parts are told apart without colours, too."""

MAX_TABS = 5
"""Groupings whose titles a narrow frame has room for."""

LABEL_CELLS, COUNT_CELLS = 11, 5
NO_FACTS: Mapping[str, GroupFacts] = {}


def group_table(
    table: GroupTable,
    states: Mapping[State, str],
    first: State | None,
    now: float,
    width: int,
    title: str = "",
    facts: Mapping[str, GroupFacts] = NO_FACTS,
) -> tuple[Line, list[Line]]:
    """The titles, and a line for each group. `first` is the state that verbs act on; its column is
    dropped last, those of the fewest tasks before it, messages and agents before all. `title` is
    what the groups are called, `facts` more about some of them."""
    title, groups, is_wide = title or table.by, table.groups, width >= NARROW_COLUMNS
    longest = max((cells_of(name_of(group.name)) for group in groups), default=0)
    most = max((group.total for group in groups), default=0)
    room = width // 5 if any(group.error for group in groups) else 3 * width // 10
    used = [state for state in states if any(group.count(state) for group in groups) and is_wide]
    sums = {state: sum(group.count(state) for group in groups) for state in used}
    ranks = sorted(used, key=lambda state: (state is not first, -sums[state]))

    def known(group: TaskGroup) -> GroupFacts:
        return facts.get(group.name, GroupFacts())

    def name(group: TaskGroup) -> Run:
        return name_of(group.name), "accent" if group.name else "muted"

    def count_column(state: State) -> Column[TaskGroup]:
        def count(group: TaskGroup) -> Run:
            number = group.count(state)
            return (fit_count(number, COUNT_CELLS), "") if number else (".", "muted")

        word, rank = state_name(states[state]), 1 + ranks.index(state)
        title = word if len(word) <= COUNT_CELLS else word[: COUNT_CELLS - 1]  # `DLQ`, `PEND`
        return Column(title.upper(), COUNT_CELLS, count, right=True, rank=rank)

    columns: list[Column[TaskGroup]] = [
        Column(title.upper(), max(len(title), min(longest, room)), name),
        Column("ALL", 5, lambda group: (fit_count(group.total, 5), "strong"), right=True),
        Column(
            BAR_TITLE,
            BAR_CELLS,
            lambda group: [*state_bar(group, most, BAR_CELLS)],
            rank=4 + len(used),
        ),
        *map(count_column, used),
    ]
    if is_wide and any(group.payloads not in (None, group.total) for group in groups):
        columns.append(Column("N", 5, _payloads, right=True, rank=3 + len(used)))
    if is_wide and facts:
        agents = Column[TaskGroup]("A", 3, lambda group: _agents(known(group)), right=True)
        columns.append(agents._replace(rank=2 + len(used)))
    if is_wide:
        columns += [
            Column("OLDEST", 6, lambda group: _oldest(group, now), right=True),
            Column("NEXT", 6, lambda group: _next_run(group, known(group), now), right=True),
        ]
    error: Column[TaskGroup] = Column("ERROR", 20, lambda group: _error_cell(group, known(group)))
    columns.append(error._replace(shrinks=12, grows=REST))
    return Table(columns).lines(groups, width)


def _error_cell(group: TaskGroup, facts: GroupFacts) -> Run:
    error = safe_error(group.error)
    if facts.pending and facts.pending not in error:
        error = f"{safe_line(facts.pending)}{'; ' if error else ''}{error}"
    return error, "warn" if facts.pending else ""


def _next_run(group: TaskGroup, facts: GroupFacts, now: float) -> Run:
    wakeup = facts.wakeup if group.next_due is None else group.next_due
    if wakeup is None and facts.pending:
        return "-", "muted"  # no time starts it
    return _next_due(group._replace(next_due=wakeup), now)


def name_of(name: str) -> str:
    """The name of a group, safe to show."""
    return safe_line(name) or NO_NAME


def _payloads(group: TaskGroup) -> Run:
    return UNKNOWN_RUN if group.payloads is None else (fit_count(group.payloads, COUNT_CELLS), "")


def _agents(facts: GroupFacts) -> Run:
    if facts.agents is None:
        return UNKNOWN_RUN
    return (f"{facts.agents:,}", "") if facts.agents else (".", "muted")


def _oldest(group: TaskGroup, now: float) -> Run:
    return UNKNOWN_RUN if group.oldest is None else (format_minutes(now - group.oldest), "")


def _next_due(group: TaskGroup, now: float) -> Run:
    if not group.count(State.PENDING):
        return ".", "muted"
    if group.next_due is None:
        return UNKNOWN_RUN
    until_due = group.next_due - now
    return ("now", "") if until_due <= 0 else (format_minutes(until_due), "")


def state_bar(group: TaskGroup, most: int, width: int) -> Line:
    """A bar as long as the group's share of the largest one, divided between its states."""
    text = bar(group.total / most if most else 0.0, width)
    filled, counted = len(text.rstrip()), 0
    runs: list[Run] = []
    for at, state in enumerate(STATES):
        begin = round(filled * counted / group.total)
        counted += group.counts[at]
        end = round(filled * counted / group.total)
        if end > begin:
            fill = STATE_FILLS.get(state, OTHER_FILL)
            part = text[begin:end] if fill == FULL_CELL else fill * (end - begin)
            runs.append((part, BAR_LOOKS.get(state, "muted")))
    return (*runs, (text[filled:], ""))


def bar_legend(head: Line, states: Mapping[State, str]) -> str:
    """What the signs of the bars mean: `█ pending  ▓ work  ▒ DLQ`; "" if a table with these titles
    has no bars."""
    if not any(BAR_TITLE in text for text, _ in head):
        return ""
    own = [
        f"{STATE_FILLS[state]} {state_name(states[state])}"
        for state in states
        if state in STATE_FILLS
    ]
    others = [f"{OTHER_FILL} others"] if len(own) < len(states) else []
    return "  ".join([*own, *others])


def detail_lines(
    group: TaskGroup,
    states: Mapping[State, str],
    now: float,
    width: int,
    facts: GroupFacts | None = None,
) -> list[Line]:
    """Counts of a group by state as bars, its times, its last error in full, more facts."""
    counts = {state: group.count(state) for state in states}
    ages = [("oldest", "? no creation time")]
    if group.oldest is not None:
        ages = [("oldest", format_time_with_age(group.oldest, now))]
    wakeup = facts.wakeup if facts and group.next_due is None else group.next_due
    if group.count(State.PENDING):
        due = "? unknown"
        if wakeup is not None:
            due = "now" if wakeup <= now else format_time_with_age(wakeup, now)
        elif facts and facts.pending:
            due = f"- {safe_line(facts.pending)}"
        ages.append(("next due", due))
    if group.error:
        when = "" if group.error_at is None else f"{format_time_with_age(group.error_at, now)}: "
        name = "waits" if group.waits else "last error"
        ages.append((name, f"{when}{safe_error(group.waits or group.error)}"))
    ages += facts.rows if facts is not None else ()
    bars = state_lines(None, OwnCounts(states, counts, True), True, width - 2)
    return [
        *((("  ", ""), *line) for line in bars),  # in line with the names below
        *fact_lines(ages, width, LABEL_CELLS),
    ]


def task_lines(
    title: str,
    tasks: Sequence[Task],
    state: State | None,
    now: float,
    width: int,
    limit: AttemptLimit = attempts_allowed,
) -> list[Line]:
    """Some tasks of a group under a title. `state`: that of all, None if they differ; `limit`:
    maximum attempts of each."""
    longest, contents = id_cells(tasks), TaskContents().with_tasks(tasks, now)
    mailed = bool(contents.address)
    shape = task_columns(
        state, width, longest=longest, limit=limit, mailed=mailed, contents=contents
    )
    where = TaskContext()
    return [
        heading_line(f"{title}, newest first", width),
        task_list.title_line(shape, width),
        *(task_line(task, shape, now, where, width) for task in tasks),
    ]


def others_line(table: GroupTable, width: int) -> list[Line]:
    """The groups without a row, counted."""
    if not table.others:
        return []
    text = f"   ({table.others:,} others, {_amount(table, table.other_tasks)})"
    text += ": groups --all lists them"
    return [cut_line(((text, "muted"),), width)]


def unread_line(table: GroupTable, place: Place, width: int) -> list[Line]:
    """Of how many mails the accounts are read, if these are the groups and some are not."""
    text = place.unread_accounts() if table.by == ACCOUNT_FIELD else ""
    return [cut_line(((f"   ({safe_line(text)})", "warn"),), width)] if text else []


def tabs_line(table: GroupTable, titles: Mapping[str, str] = {}) -> Line:
    """The groupings by their titles, the open one marked; of many only those beside it."""
    styles, shown = {table.by: "chip-accent"}, table.groupings
    if len(shown) > MAX_TABS and table.by in shown:
        at = shown.index(table.by)
        shown = tuple(shown[(at + step) % len(shown)] for step in (-1, 0, 1))
    tabs = tuple((f" {titles.get(by, by)} ", styles.get(by, "muted")) for by in shown)
    return tabs if shown == table.groupings else (("< ", "muted"), *tabs, (" >", "muted"))


def merge_rings(table: GroupTable, facts: Mapping[str, GroupFacts], ring: str) -> GroupTable:
    """The groups of queues, from a table by queue; the largest first."""
    merged: dict[str, TaskGroup] = {}
    for group in table.groups:
        name = facts[group.name].ring if group.name in facts else ""
        merged[name] = _add_groups(merged.get(name), group._replace(name=name))
    largest = sorted(merged.values(), key=lambda group: -group.total)
    return table._replace(by=ring, groups=tuple(largest))


def _add_groups(one: TaskGroup | None, other: TaskGroup) -> TaskGroup:
    if one is None:
        return other
    both = one, other
    latest = max(both, key=lambda group: group.error_rank)
    payloads = [group.payloads for group in both if group.payloads is not None]
    return latest._replace(
        name=one.name,
        counts=tuple(map(sum, zip(one.counts, other.counts, strict=True))),
        oldest=min((group.oldest for group in both if group.oldest is not None), default=None),
        next_due=min((each.next_due for each in both if each.next_due is not None), default=None),
        payloads=sum(payloads) if payloads else None,
        tasks=(),
    )


def no_values(by: str) -> str:
    """Why tasks are not grouped by a key of `GROUP_COLUMNS`."""
    return f"no task here has {'an' if by[:1] in 'aeiou' else 'a'} {by}"


def summary(table: GroupTable, titles: Mapping[str, str]) -> str:
    """Number of tasks and of groups, by the place's own titles."""
    by = titles.get(table.by, table.by)
    amount = format_count(len(table.groups) + table.others, "group")
    return f"{_amount(table, table.total)} by {by}, {amount}"


def _amount(table: GroupTable, number: int) -> str:
    return format_count(number, "task") if table.unit == TASKS else f"{number:,} {table.unit}"


def group_values(
    table: GroupTable,
    groups: Sequence[TaskGroup],
    states: Mapping[State, str],
    facts: Mapping[str, GroupFacts] = NO_FACTS,
) -> list[Mapping[str, object]]:
    """Groups for JSON output; times as `task_row.time_fields`."""
    return [_values(table, group, states, facts.get(group.name)) for group in groups]


def _values(
    table: GroupTable, group: TaskGroup, states: Mapping[State, str], facts: GroupFacts | None
) -> Mapping[str, object]:
    due = facts.wakeup if facts is not None and group.next_due is None else group.next_due
    known: dict[str, object] = {}
    if facts is not None:
        known = {"ring": facts.ring, "agents": facts.agents, "pending": facts.pending}
    return {
        "by": table.by,
        "name": group.name,
        "unit": table.unit,
        "total": group.total,
        "tasks": group.count_tasks(None),
        "counts": {word: group.count(state) for state, word in states.items()},
        **time_fields("oldest", group.oldest),
        **time_fields("next_due", due),
        **({"next_due_at": None} if due == 0 else {}),  # due since ever, at no time
        "error": group.error,
        **time_fields("failed", group.error_at),
        **known,
    }
