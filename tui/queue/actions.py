"""What the keys of the queue screen do to its parts; each returns what it changed."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from engine.config.saved_filters import SavedFilterError, save_filter
from engine.text.safe import safe_line
from tui.plan.refusals import pause_control
from tui.queue.parts import CURSOR_JUST_MOVED, Change, QueueParts
from tui.queue.tabs import order_choices
from tui.screens.target import Target
from tui.text import keys
from tui.widgets.list_view import CursorPosition

if TYPE_CHECKING:
    from tui.screens.base import BaseScreen

MAX_RANGE_ROWS = 20_000
"""Maximum number of rows in a range; use a filter for more."""

SHOWN_WORDS = {"ids": "full ids", "wide": "wide error column"}


# Tabs, order, filter


def tab(parts: QueueParts, pressed: str) -> Change:
    """Switch to the previous or the next tab."""
    if not parts.tabs.all:
        return Change.NOTHING
    return parts.to_tab(parts.tabs.neighbour(keys.step_of(pressed)))


def order(parts: QueueParts) -> Change:
    """Choose the column to order by; choosing it again reverses the order."""
    if parts.state is None:
        return parts.say("problems have no other order")
    now, choices = parts.tabs.order[0], order_choices(parts.state)

    def open_menu(screen: BaseScreen) -> None:
        from tui.screens.dialogs import MenuScreen, Option

        options = [
            Option(key, f"{name}{' (reverse)' if column == now else ''}")
            for key, (name, column) in choices.items()
        ]

        def pick(key: str | None) -> None:
            if key:
                parts.screen.show_change(sort(parts, choices[key][1]))

        screen.app.push_screen(MenuScreen("Order by", options), pick)

    parts.screen.open(open_menu)
    return Change.NOTHING


def sort(parts: QueueParts, column: str, *, reverses: bool = True) -> Change:
    """Order by a column of the index; reverse the present order, unless it cannot be seen."""
    if parts.state is None:
        return Change.NOTHING
    parts.tabs.sort(column, reverses=reverses)
    return parts.show_query(CursorPosition(id=parts.rows.view.saved_position.id))


def open_filter(parts: QueueParts) -> Change:
    """Open the filter line."""
    parts.saved.forget()
    parts.filter.is_open = parts.filter.takes_keys = True
    return Change.FILTER | Change.FOCUS


def close_filter(parts: QueueParts) -> Change:
    """Clear the filter, and hide its line."""
    parts.filter.is_open = parts.filter.takes_keys = False
    changed = parts.filter_changed() if parts.filter.replace("") else Change.NOTHING
    return changed | Change.FILTER | Change.FOCUS | Change.ALL


def keep_filter(parts: QueueParts) -> Change:
    """Leave the filter line; hide it if it is empty."""
    if not parts.filter.words.strip():
        return close_filter(parts)
    parts.filter.takes_keys = False
    return Change.FOCUS | Change.ALL


def save(parts: QueueParts, name: str) -> Change:
    """Save the filter under a name, for `@name`."""
    text, name = parts.filter.filter.text, name.removeprefix("@")
    if refusal := parts.filter.error or ("" if text else "no filter to save: / opens one"):
        return parts.say(refusal)

    async def write() -> Change:
        try:
            old = await asyncio.to_thread(save_filter, os.environ, name, text)
        except SavedFilterError as error:
            return parts.say(f"not saved: {safe_line(str(error))}")
        parts.saved.forget()
        return parts.say(f"@{name} {'replaced' if old else 'saved'}: {safe_line(text)}")

    parts.screen.run("save filter", write)
    return Change.NOTHING


def back(parts: QueueParts) -> Change:
    """End a range, stop the first scan or clear the filter; otherwise back to the overview."""
    if parts.rows.view.anchor is not None:
        parts.rows.set_range(False)
        return Change.ROWS | Change.SCOPE
    if not (parts.change.is_complete or parts.change.is_stopped):
        parts.inspector.stop_first_scan()
    elif parts.filter.is_open:
        return close_filter(parts)
    else:
        parts.screen.request("back")
    return Change.NOTHING


# Marks


def mark(parts: QueueParts) -> Change:
    """Toggle the mark of the task under the cursor and move down."""
    parts.message.clear()  # the scope must be seen
    parts.rows.pin_cursor()
    task, state = parts.rows.view.task_here, parts.state
    if task is None or state is None or parts.rows.is_unseen:
        return parts.say(CURSOR_JUST_MOVED if parts.rows.is_unseen else "no task to mark")
    parts.marks.toggle(state, task.id)
    parts.rows.move("down")
    return Change.ROWS | Change.CURSOR


def mark_range(parts: QueueParts) -> Change:
    """Begin a range; the second key marks its rows, read from the index if some are not loaded."""
    parts.message.clear()
    if parts.filter.error:
        return parts.say(parts.filter.error)
    begun, cursor = parts.rows.view.anchor, parts.rows.view.cursor
    if begun is None:
        parts.marks.has_all = False
        parts.rows.set_range(True)
        return Change.ROWS | Change.SCOPE
    low, high = sorted((begun.at, cursor.at))
    if high - low >= MAX_RANGE_ROWS:
        return parts.say(f"range over {MAX_RANGE_ROWS:,} rows: use a filter and *")
    ids, end_ids = parts.rows.view.held_ids(low, high), {begun.at: begun.id, cursor.at: cursor.id}
    if len(ids) > high - low:
        return _mark_rows(parts, ids, end_ids)
    parts.screen.run("range", partial(_mark_far, parts, low, high, ids | end_ids))
    return Change.NOTHING


async def _mark_far(parts: QueueParts, low: int, high: int, known_ids: Mapping[int, str]) -> Change:
    state = parts.state
    window = await parts.inspector.queries.window(parts.query, low, high - low + 1)
    if state is not parts.state:
        return Change.NOTHING
    return _mark_rows(
        parts, dict(enumerate((task.id for task in window.tasks), window.start)), known_ids
    )


def _mark_rows(parts: QueueParts, rows: Mapping[int, str], known_ids: Mapping[int, str]) -> Change:
    """Mark rows by position if the seen rows are unchanged; without departed ones."""
    if parts.state is not None and known_ids.items() <= rows.items():
        parts.marks.add(parts.state, set(rows.values()) - parts.rows.view.departed.keys())
    else:
        parts.say("rows moved, nothing marked: v starts again")
    parts.rows.set_range(False)
    return Change.ROWS | Change.SCOPE


def mark_all(parts: QueueParts) -> Change:
    """Make verbs act on all matching tasks; again: on the cursor row."""
    parts.message.clear()
    if parts.filter.error:
        return parts.say(parts.filter.error)
    parts.marks.has_all = parts.state is not None and not parts.marks.has_all
    return Change.ROWS | Change.SCOPE


def unmark(parts: QueueParts) -> Change:
    """Clear all marks."""
    parts.message.clear()
    parts.marks.clear(parts.state)
    return Change.ROWS | Change.SCOPE


def show(parts: QueueParts, what: str) -> Change:
    """Show full ids or a wide error column, or no longer."""
    parts.shown ^= {what}
    parts.say(SHOWN_WORDS[what] + ("" if what in parts.shown else " off"))
    return Change.ROWS | Change.SCOPE


# Plans


def plan(parts: QueueParts, verb: str) -> Change:
    """Open the plan for what the scope line shows."""
    parts.rows.pin_cursor()
    if refusal := parts.scope_refusal():
        return parts.say(refusal)
    parts.screen.plan(parts.request(verb), parts.selected_task)
    return Change.NOTHING


def note(parts: QueueParts) -> Change:
    """Prompt for a note on the task under the cursor."""
    from tui.plan.open_plan import prompt_for_note

    parts.rows.pin_cursor()
    task = parts.selected_task
    parts.screen.open(lambda screen: prompt_for_note(screen, parts.session, parts.context, task))
    return Change.NOTHING


def worker(parts: QueueParts) -> Change:
    """Confirm starting a worker, or stopping the one started here."""
    from tui.operations.workers_screen import show_worker_plan

    parts.screen.open(lambda screen: show_worker_plan(screen, parts.session, parts.context))
    return Change.NOTHING


def pause_queue(parts: QueueParts) -> Change:
    """Open a plan to pause or resume the whole queue."""
    from tui.operations.controls_screen import show_control_plan

    name = pause_control(parts.session)
    parts.screen.open(lambda screen: show_control_plan(screen, parts.session, parts.context, name))
    return Change.NOTHING


# Other screens


def go(parts: QueueParts, target: Target) -> Change:
    """Open another screen."""
    parts.screen.go(target)
    return Change.NOTHING


def open_task(parts: QueueParts) -> Change:
    """Open the task, or the problems on their tab."""
    if parts.tabs.on_problems:
        from tui.queue.problems_screen import ProblemsScreen

        known = parts.inspector
        page = ProblemsScreen(
            parts.problems, known.states, known.actions.preview_problem, parts.clock()
        )
        parts.screen.open(lambda screen: screen.app.push_screen(page))
        return Change.NOTHING
    if (task := parts.rows.view.task_here) is None:
        return parts.say("no task to open")
    parts.rows.pin_cursor()
    return go(parts, Target(keys.TASK, id=task.id))


def open_log(parts: QueueParts) -> Change:
    """Open the log, filtered for the task under the cursor."""
    parts.rows.pin_cursor()
    return go(parts, Target(keys.LOG, id=parts.rows.view.cursor.id))


def to_place(parts: QueueParts, step: int) -> Change:
    """Go to the place before or after this one, to the same tab."""
    if parts.context.places == 1:
        return parts.say("only one place open")
    number = (parts.session.number - 1 + step) % parts.context.places + 1
    on_problems = parts.tabs.on_problems
    return go(parts, Target(keys.LIST, number, state=parts.state, problems=on_problems))


def reread(parts: QueueParts) -> Change:
    """Scan the place again."""

    async def scan() -> Change:
        await parts.inspector.scan_now()
        return parts.say("scanned again")

    parts.screen.run("reread", scan)
    return Change.NOTHING
