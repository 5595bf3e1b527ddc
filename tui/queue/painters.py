"""What the queue screen shows, as lines: functions of its parts and a width. The bars of the states
have the values of the metrics file where they differ."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping, Sequence

from engine.model import State
from engine.monitor.metrics_check import (
    GAUGES,
    MetricsReading,
    OwnCounts,
    counts_when_written,
    find_differences,
)
from engine.monitor.prometheus import Samples
from engine.text.figure import UNKNOWN, Figure
from engine.text.figures import fit_count, format_count
from engine.text.safe import safe_line, state_name
from tui.plan import planning
from tui.queue.keys import ROWS
from tui.queue.parts import QueueParts
from tui.queue.task_details import brief_lines, detail_lines
from tui.screens.key_rows import hints_of
from tui.session.index_queries import none_failed
from tui.session.worker_rows import lock_step, room_step
from tui.text.frames import RULE, Frame
from tui.text.graphs import bar
from tui.text.header import tab_line
from tui.text.hints import hint_lines, next_line, scope_words
from tui.text.keys import Hint
from tui.text.lines import BLANK_LINE, Line, Run, cells_of, cut_line, fit_text, fold_text
from tui.text.progress_bar import first_scan_line
from tui.text.task_list import short_id
from tui.text.times import format_age, format_minutes
from tui.widgets.list_view import RowSigns

STALE_SECONDS = 180.0
"""Age in seconds from which a metrics file is outdated: three missed runs, one a minute."""

NAME_CELLS, COUNT_CELLS = 11, 8
"""Cells for the name of a state and its count, before its bar."""

MAX_FACTS = 4
"""Facts of the queue as a whole below the bars; the controls screen has all of them."""

BAR_LOOKS = {State.PENDING: "accent", State.ACTIVE: "ok", State.DEAD: "warn"}


def state_lines(
    queue: MetricsReading, own_counts: OwnCounts, reachable: bool, width: int
) -> list[Line]:
    """One bar for each state; counts of an unreachable place are unknown."""
    most = max(own_counts.counts.values(), default=0)
    room = max(1, width - NAME_CELLS - COUNT_CELLS - 3)
    differs = isinstance(queue, Samples) and bool(find_differences(queue, own_counts))
    lines: list[Line] = []
    for state, word in own_counts.states.items():
        amount = own_counts.counts.get(state, 0)
        sign = "" if own_counts.complete else "+"
        count: Run = (f"{fit_count(amount, COUNT_CELLS - 2)}{sign}".rjust(COUNT_CELLS), "strong")
        if not reachable:
            count = (UNKNOWN.rjust(COUNT_CELLS), "unknown")
        elif not amount:
            count = ((UNKNOWN if sign else "0").rjust(COUNT_CELLS), "muted")
        share = amount / most if most and reachable else 0.0
        length: Run = (bar(share, room), BAR_LOOKS.get(state, "muted"))
        metric = (
            queue.get(GAUGES[state]) if isinstance(queue, Samples) and state in GAUGES else None
        )
        if differs and metric is not None and metric != amount:
            length = (f"file {metric:,.0f}", "warn")
        name = fit_text(f" {state_name(word)}", NAME_CELLS)
        lines.append(cut_line(((name, "muted"), count, ("  ", ""), length), width))
    return lines


def fact_rows(facts: Sequence[tuple[str, str]], width: int) -> list[Line]:
    """What a queue reports about itself as a whole; long texts are not cut."""
    named = [(f" {safe_line(name)} ", safe_line(text)) for name, text in facts[:MAX_FACTS]]
    cells = max([NAME_CELLS, *(min(cells_of(name), width // 3) for name, _ in named)])
    return [((fit_text(name, cells), "muted"), (text, "")) for name, text in named]


def _is_missing(queue: MetricsReading) -> bool:
    return queue == os.strerror(errno.ENOENT)


def metrics_run(queue: MetricsReading, own_counts: OwnCounts, now: float) -> Run:
    """Whether the metrics file agrees with our counts, as far as known, and its age."""
    if queue is None:
        return "", ""
    if not isinstance(queue, Samples):
        return ("no metrics file", "muted") if _is_missing(queue) else ("metrics ?", "unknown")
    age = now - queue.modified
    if find_differences(queue, own_counts):
        return "metrics differ", "warn"
    old = format_age(age).removesuffix(" ago")
    words = f"metrics {old} old" if own_counts.when_written is None else f"metrics agree, {old}"
    return words, "warn" if age > STALE_SECONDS else "muted"


def metrics_differences(queue: MetricsReading, own_counts: OwnCounts, now: float) -> Run:
    """Where the metrics file differs, is outdated or cannot be read; "" if it agrees."""
    if queue is None:
        return "", ""
    if not isinstance(queue, Samples):
        if _is_missing(queue):
            return "no queue.prom yet: the next worker run writes it", "muted"
        return f"queue.prom: {safe_line(str(queue))}", "unknown"
    words = [f"differs: {difference}" for difference in find_differences(queue, own_counts)]
    age = now - queue.modified
    if age > STALE_SECONDS:
        words.append(f"not written for {format_minutes(age)}")
    return (f"! WARN queue.prom {'; '.join(words)}", "warn") if words else ("", "")


TYPING_HINTS = (Hint("Enter", "apply"), Hint("Esc", "clear"))

ORDER_NAMES = {"created": "age", "died": "time of death", "since": "time in work"}
"""Orders of the index whose names on screen differ."""


def tabs(parts: QueueParts, width: int) -> Line:
    """The tabs with their counts."""
    states, change = parts.inspector.states, parts.change
    reached = not change.unavailable
    names = [*states.values(), "problems"] if states else []
    counts = [change.counts.get(state, 0) if reached else None for state in states]
    counts += [change.problems if reached else None] if states else []
    within = {
        [*states].index(parts.inspector.words[word]): f"{tasks:,} {word}"
        for word, tasks in change.words.items()
    }
    partial = () if change.is_complete else (len(states),)  # a server counts no problems
    asked, found = parts.matches
    is_known = bool(asked) and asked == parts.filter.filter
    matches = [found.get(state) if is_known else None for state in states]
    return tab_line(
        names,
        counts,
        parts.tabs.number,
        complete=change.is_counted,
        width=width,
        within=within,
        partial=partial,
        matches=matches,
    )


def count_of(parts: QueueParts, state: State | None) -> Figure:
    """How many tasks a state has."""
    change = parts.change
    amount = change.counts.get(state, 0) if state and not change.unavailable else None
    return Figure(amount, change.is_counted)


def filter_count(parts: QueueParts) -> Line:
    """That the filter is invalid, else why there is no match, else the number of matches, marks,
    new rows. The line below the list has the error."""
    view, of = parts.rows.view, count_of(parts, parts.state).text()
    explained, why = parts.explained
    if parts.filter.error:
        line: Line = (("invalid", "warn"),)
    elif why and not view.matching and view.loaded and explained == parts.query:
        line = ((f"{view.matching_words} of {of} ({safe_line(why)})", "warn"),)
    else:
        marked = len(parts.marks.of(parts.state))
        line = ((view.matching_words, "strong"), (f" of {of}", "muted"))
        line += ((f"  marked {marked:,}", "mark"),) if marked else ()
        line += ((f"  {view.fresh:,} new", "ok"),) if view.fresh else ()
        is_why = why and view.loaded and explained == parts.query
        line += ((f"  {safe_line(why)}", "warn"),) if is_why else ()
    return (*line, (" ", ""))


def signs(parts: QueueParts, width: int) -> RowSigns:
    """Marks and notes at the rows, or the text in their place."""
    return RowSigns(
        parts.marks.of(parts.state),
        parts.marks.has_all,
        parts.session.readings.notes,
        _notice(parts, width),
        parts.shown,
    )


def _notice(parts: QueueParts, width: int) -> tuple[Line, ...]:
    if parts.change.unavailable:
        why = parts.change.unavailable.removeprefix(f"{parts.place.name}: ")
        return (
            BLANK_LINE,
            ((f"   {safe_line(parts.place.name)} is unavailable:", "strong"),),
            *(((f"   {p}", "error"),) for p in fold_text(safe_line(why), max(20, width - 6))),
            BLANK_LINE,
            (("   Retried every second; the list returns automatically.", "muted"),),
        )
    if not parts.inspector.states:
        return (BLANK_LINE, (("   opening ...", "muted"),))
    if parts.state is not None and parts.rows.view.loaded and not parts.rows.view.total:
        return (BLANK_LINE, ((f"   {_empty_text(parts, parts.state)}", "muted"),))
    return ()


def _empty_text(parts: QueueParts, state: State) -> str:
    where = state_name(parts.inspector.states[state])
    amount = parts.change.counts.get(state, 0)
    if not parts.change.is_complete:
        known = f"{Figure(amount, is_exact=False).text()} {where}"
        known = known if amount else f"no {where} tasks yet"
        return f"{known}: first scan running"
    if parts.filter.filter and amount:
        return f"0 of {format_count(amount, 'task')} match in {where}: Esc clears the filter"
    totals = parts.context.totals() if state is State.DEAD else None
    return none_failed(f"no tasks in {where}", totals)


def list_frame(parts: QueueParts, row_words: str, border: int) -> Frame:
    """The title of the list: how many match of how many, and their order."""
    state, view, change = parts.state, parts.rows.view, parts.change
    if parts.tabs.on_problems:
        listed, known, why = len(parts.problems), change.problems, change.unavailable
        if why:
            amount = f"{listed:,} of {UNKNOWN}" if listed else UNKNOWN
            return Frame("Problems", amount=amount).marked(why)
        of = f" of {known:,}" if known > listed else ""
        return Frame("Problems", amount=f"{listed:,}{of}{'' if change.is_complete else '+'}")
    word = parts.inspector.states.get(state, "") if state else ""
    total = count_of(parts, state)
    is_part = parts.filter.filter and total.value is not None
    amount = f"{view.matching_words} of {total.text()}" if is_part else total.text()
    order, falling = parts.tabs.order
    name = ORDER_NAMES.get(order, order) + (" (reverse)" if falling else "")
    right: Line = (("order: ", "muted"), (name, ""), ("  o", "key"))
    if border == RULE and row_words:  # it has no lower line
        right = ((f"{row_words}   ", "muted"), *right)
    if view.fresh and not parts.filter.is_open:
        right = ((f"{view.fresh:,} new   ", "ok"), *right)
    key = STATE_DIGITS.get(state, "") if state else ""
    return Frame(state_name(word) or "Tasks", key, amount, right, row_words)


def no_problems(parts: QueueParts) -> Line:
    """The line in place of the problems when none is known."""
    if parts.change.unavailable:
        return ((f"   {UNKNOWN} problems: the place cannot be read", "unknown"),)
    so_far = "" if parts.change.is_complete else " in what was read"
    return ((f"   no problems{so_far}", "muted"),)


def details(parts: QueueParts, width: int, *, wide: bool) -> tuple[Sequence[Line], Frame]:
    """The task or the problem under the cursor."""
    states, now = parts.inspector.states, parts.clock()
    if parts.tabs.on_problems:
        from tui.queue.problems_screen import problem_details

        problem = parts.problem
        lines = problem_details(problem, states, now, width) if problem else ()
        return lines, Frame("Problem")
    task = parts.rows.view.task_here
    if task is None:
        return (), Frame("Task")
    show, why = detail_lines if wide else brief_lines, parts.change.unavailable
    lines = show(task, parts.lookup.of(task), parts.session, now, width)
    frame = Frame(short_id(task.id), right=((safe_line(task.kind), "muted"),))
    return lines, frame.marked(why) if why else frame


def own_counts(parts: QueueParts) -> OwnCounts:
    """The counts of the index, to compare those of the metrics file with."""
    change = parts.change
    complete = change.is_counted and not change.unavailable
    session = parts.session
    queue, rest = session.readings.queue, session.readings.rest
    when_written = counts_when_written(queue, rest, session.count_samples) if complete else None
    return OwnCounts(parts.inspector.states, change.counts, complete, when_written)


def metrics_warning(parts: QueueParts) -> Run:
    """Where the metrics file differs; nothing while the place cannot be read: none is written."""
    if parts.change.unavailable:
        return "", ""
    return metrics_differences(parts.session.readings.queue, own_counts(parts), parts.clock())


def states(parts: QueueParts, width: int) -> tuple[Sequence[Line], Frame]:
    """The states as bars, and what the queue reports about itself."""
    readings, counts = parts.session.readings, own_counts(parts)
    reachable = not parts.change.unavailable
    rows = state_lines(readings.queue, counts, reachable, width)
    rows += fact_rows(readings.queue_figures.rows, width)
    run = metrics_run(readings.queue, counts, parts.clock())
    return rows, Frame("States", right=(run,) if run[0] else ())


def scope_line(parts: QueueParts, width: int, *, lock_alarms: bool, is_typing: bool) -> Line:
    """A message or the next step, and what a key acts on."""
    scope = parts.scope
    if parts.tabs.on_problems or parts.rows.view.loaded or parts.change.unavailable:
        parts.next_step = parts.state, next_step(parts, lock_alarms=lock_alarms)
    state, (key, does) = parts.next_step
    if state is not parts.state:  # the rows of another tab are read now
        key = does = ""
    if is_typing:  # any other key is a letter
        key, does = "Enter", "applies the filter"
    message = safe_line(scope.filter_error) or parts.message.text
    return next_line(key, does, scope_words(scope), width, message)


def hints(parts: QueueParts, width: int, *, is_typing: bool) -> Line:
    """The keys, or the progress of the first scan. Verbs that the store refuses in a tab stay."""
    session = parts.session
    seconds = parts.clock() - session.opened_at
    if far := first_scan_line(parts.change, parts.inspector.states, seconds, width):
        return cut_line(far, width)
    closed = planning.closed_verbs(parts.inspector.edges, parts.state)
    rows = TYPING_HINTS if is_typing else tuple(hints_of(ROWS, parts, closed))
    return hint_lines(rows, width, step=((parts.next_step[1][0], "key"),))[0]


STATE_DIGITS = {State.PENDING: "2", State.ACTIVE: "3", State.DEAD: "4"}
"""Digit keys that show the tasks of a state."""


def next_step(parts: QueueParts, *, lock_alarms: bool) -> tuple[str, str]:
    """A key and what it does; two empty texts if nothing is to be done."""
    state, scope, read_only = parts.state, parts.scope, parts.context.arming.read_only
    on_problems, is_unfinished = parts.tabs.on_problems, state in (State.PENDING, State.ACTIVE)
    if parts.change.unavailable or not parts.inspector.states or scope.filter_error:
        return "", ""
    if scope.ranged:
        return "v", "marks the rows of the range, Esc drops it"
    if scope.is_gone:
        return "j", "goes on to the next row"
    if not (parts.problems if on_problems else parts.rows.view.matching):
        return _step_without_rows(parts)
    problem = parts.problem if on_problems else None
    if problem is not None and problem.quarantined_at is not None:
        seconds = problem.quarantined_at - parts.clock()
        if seconds <= 0:
            return "", "the next worker run moves it to quarantine"
        return "", f"worker moves it to quarantine in {seconds:.0f}s"
    if on_problems and not read_only and (names := parts.problem_controls):
        return "C", f"shows the controls for it: {', '.join(names)}"
    can_start = bool(parts.place.worker_command) and not read_only
    if lock_alarms and is_unfinished:
        key, word, does = lock_step(parts.session, read_only=read_only)
        if key or not word:  # else the disk is full
            return (key, does) if key else ("5", "shows the locks")
    full = parts.session.full_disk
    if full and is_unfinished:
        can_start &= not parts.session.runs_worker
        key, _, does = room_step(full, can_start=can_start, read_only=read_only)
        return (key, does) if key != "Enter" else ("l", does.replace("lists", "leads to", 1))
    if parts.lacks_worker and can_start and state is State.PENDING:
        return "W", "starts a worker"
    if state is State.DEAD and parts.filter.filter.is_only("cluster"):  # all of them
        if read_only:
            return "t", "shows the log of the task"
        if scope.acts_on_all or scope.marked:
            amount, picked = parts.verb_amount
            name = planning.usual_name("retry", amount, picked=picked)
            return "R", f"plans to {name} them, attempts reset"
        return "*", "selects all of this cluster; then R replays them"
    step = _READ_ONLY_STEPS.get(state, _ENTER) if read_only else _STEPS[state]
    return _ENTER if step[0] == "t" and parts.session.no_log else step


_ENTER = ("Enter", "shows why it waits, and when it runs")

_STEPS: Mapping[State | None, tuple[str, str]] = {
    State.PENDING: _ENTER,
    State.ACTIVE: ("t", "shows the log of the task"),
    State.HELD: ("L", "releases it"),
    State.DEAD: ("c", "groups these errors before you retry"),
    State.DONE: ("Enter", "shows the task"),
    State.TRASH: ("R", "restores; X deletes permanently"),
    None: ("Enter", "shows the first bytes of the file"),
}
_READ_ONLY_STEPS: Mapping[State | None, tuple[str, str]] = {
    State.ACTIVE: _STEPS[State.ACTIVE],
    State.DEAD: ("c", "groups these errors"),
    None: _STEPS[None],
}


def _step_without_rows(parts: QueueParts) -> tuple[str, str]:
    if parts.filter.filter:
        return "Esc", "clears the filter"
    counts, states = parts.change.counts, parts.inspector.states
    for state in (State.DEAD, State.PENDING, State.ACTIVE):
        if counts.get(state) and state is not parts.state:
            name = state_name(states.get(state, state))
            amount = format_count(counts[state], "task")
            if not parts.change.is_counted:
                amount = f"{count_of(parts, state).text()} tasks"
            return STATE_DIGITS[state], f"shows {amount} in {name}"
    return "1", "back to the overview"
