"""Screen of the schedules of one place: rule, last and next run; plans to run, edit, remove one."""

from __future__ import annotations

import asyncio
from functools import partial

from engine.places.schedules import EDIT, REMOVE, RUN, Schedule, ScheduleList
from engine.store import StoreError
from engine.text.safe import safe_line
from tui.confirm.action_screen import show_action
from tui.operations import schedule_lines as view
from tui.operations.schedule_actions import plan_action
from tui.screens.base import PASTED, Copy
from tui.screens.console_context import READ_ONLY, ConsoleContext
from tui.screens.key_rows import KeyRow, RowMaker, is_read_only
from tui.screens.keyed_screen import row_bindings
from tui.screens.rows_parts import Change, RowsActions, RowsParts
from tui.screens.rows_screen import ListPanes, RowsScreen
from tui.screens.target import Target
from tui.session.place_session import PlaceSession
from tui.text import keys
from tui.text.frames import Frame, more_below
from tui.text.hints import next_line
from tui.text.lines import BLANK_LINE, Line, folded_lines
from tui.text.table import Choice, ShownRows

READ_SECONDS, READ_COST_FACTOR = 2.0, 10
"""Least seconds between two reads, and how many times as long as the last one took."""
MAX_ROWS = 1000
"""Schedules on screen; the command lists all."""


class SchedulesParts(RowsParts):
    """The schedules of one place, as last read."""

    def __init__(self, session: PlaceSession, context: ConsoleContext, screen: RowsActions) -> None:
        super().__init__(session, context, screen)
        self._list: ScheduleList | None = None
        self._unknown = ""
        """Why they cannot be read now."""

    def start(self) -> None:
        self.screen.run("schedules", self._follow)

    async def _follow(self) -> Change:
        """Read them in a loop while the screen is on top."""
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            if self.screen.is_current:
                await self._read()
                self.screen.show_change(Change.ROWS)
            await asyncio.sleep(max(READ_SECONDS, READ_COST_FACTOR * (loop.time() - began)))

    async def _read(self) -> None:
        schedules = self.session.place.schedules
        if schedules is None:
            return
        try:
            self._list = await asyncio.to_thread(schedules.read, MAX_ROWS)
            self._unknown = ""
        except StoreError as error:
            self._unknown = str(error)

    def reread(self, words: str = "schedules read again") -> Change:
        async def read() -> Change:
            await self._read()
            return Change.ROWS | (self.say(words, "") if words else Change.NOTHING)

        self.screen.run("reread", read)
        return Change.NOTHING

    @property
    def selected(self) -> Schedule | None:
        """The schedule under the cursor."""
        key = self.screen.cursor.key
        rows = () if self._list is None else self._list.rows
        return next((one for one in rows if one.id == key), None)

    def plan_refusal(self) -> str:
        """Why there is no plan for the schedule under the cursor; "" if there is one."""
        if is_read_only(self):
            return READ_ONLY
        return "" if self.selected is not None else self.no_row_reason("no schedule here")

    def has_no_plans(self) -> bool:
        """True if there is nothing to plan: no schedule is known, or the console is read-only."""
        return is_read_only(self) or not (self._list and self._list.rows)

    # What is shown

    def trail(self) -> tuple[str, ...]:
        return (self.session.name, keys.SCHEDULES)

    def rows(self, width: int) -> ShownRows:
        known = () if self._list is None else self._list.rows
        head, lines = view.schedule_table(self.context.clock()).lines(known, width)
        rows = [Choice(one.id, line) for one, line in zip(known, lines, strict=True)]
        return ShownRows(head if known else (), rows)

    def details(self, width: int) -> list[Line]:
        if self._list is None and self._unknown:
            return folded_lines(self._unknown, width, "error")
        if self._list is None:
            has_none = self.session.place.schedules is None
            return folded_lines("this place has no schedules" if has_none else "reading ...", width)
        unread = [line for why in self._list.problems for line in folded_lines(why, width, "error")]
        if (selected := self.selected) is not None:
            lines = view.detail_lines(selected, self.context.clock(), width)
            return [*lines, *([BLANK_LINE, *unread] if unread else [])]
        return unread or folded_lines(self.no_row_reason(view.NO_SCHEDULES), width)

    def rows_frame(self) -> Frame:
        known = self._list or ScheduleList()
        wrong = sum(bool(one.problem) for one in known.rows) + len(known.problems)
        right: Line = ((f"{wrong:,} stopped or broken", "error"),) if wrong else ()
        if self._unknown and self._list is not None:
            right = ((f"not current: {safe_line(self._unknown)}", "error"),)
        return Frame("Schedules", "", view.describe_total(known.rows, known.total), right)

    def details_frame(self, below: int) -> Frame:
        return Frame("details", right=more_below(below))

    def next_step(self, width: int) -> Line:
        if (selected := self.selected) is None:
            return next_line("9", "opens the controls", "", width)
        name = safe_line(selected.id)
        if is_read_only(self):
            return next_line("", READ_ONLY, name, width)
        return next_line("O", "plans a run now; E edits, X removes", name, width)

    def copies(self) -> tuple[Copy, ...]:
        if (selected := self.selected) is None:
            return ()
        lines = view.detail_lines(selected, self.context.clock(), 100)
        text = "\n".join("".join(text for text, _ in line).rstrip() for line in lines)
        return Copy("i", "id", selected.id), Copy("t", "text", text)


def _plan(parts: SchedulesParts, verb: str) -> Change:
    selected, schedules = parts.selected, parts.session.place.schedules
    if selected is None or schedules is None:
        return Change.NOTHING
    if parts.screen.is_pasted:
        return parts.say(PASTED)
    action = plan_action(verb, selected, parts.session, schedules)
    session, context, applied = parts.session, parts.context, partial(parts.reread, "")
    parts.screen.open(lambda screen: show_action(screen, action, session, context, applied))
    return Change.NOTHING


make = RowMaker[SchedulesParts, Change](keys.SCHEDULES, Change.NOTHING)


def _act(words: str, verb: str) -> KeyRow[SchedulesParts, Change]:
    return make.own(
        words,
        partial(_plan, verb=verb),
        refusal=SchedulesParts.plan_refusal,
        is_absent=SchedulesParts.has_no_plans,
    )


ROWS: tuple[KeyRow[SchedulesParts, Change], ...] = (
    *make.moves(lambda parts, how: parts.move(how)),
    _act("run | O | O | run now | Act | plan one more job now; the next run stays", RUN),
    _act("edit | E | E | edit | Act | plan another pattern, interval, zone, limit or end", EDIT),
    _act("remove | X | X | remove | Act | plan to remove the schedule and its next run", REMOVE),
    make.goes(make.key("operations"), Target(keys.OPERATIONS)),
    make.arm(Change.EDGES),
    KeyRow(make.key("reread"), lambda parts: parts.reread()),
    *make.views(),
    *make.ends(),
)


class SchedulesScreen(RowsScreen):
    """The schedules of one place."""

    KIND = keys.SCHEDULES
    ROWS = ROWS
    BINDINGS = row_bindings(ROWS)

    def __init__(self, session: PlaceSession, context: ConsoleContext) -> None:
        super().__init__()
        self.panes = ListPanes(beside_percent=37, page_keys_scroll=True)
        self.parts = SchedulesParts(session, context, self)
