"""The parts of the screen of a queue's facts and controls, and its keys; without Textual."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from engine.locks.token_buckets import BucketState
from engine.operations.controls import ControlRow, control_rows
from engine.places.place import WholeQueueFigures
from engine.text.safe import safe_line
from tui.operations import control_lines as view
from tui.operations.control_action import show_control_plan
from tui.plan.refusals import control_refusal, pause_control
from tui.screens.base import Copy
from tui.screens.console_context import READ_ONLY
from tui.screens.key_rows import KeyRow, RowMaker, is_read_only
from tui.screens.rows_parts import ROW_HAS_LEFT, Change, RowsParts
from tui.screens.target import Target
from tui.text import keys
from tui.text.frames import Frame
from tui.text.hints import next_line
from tui.text.lines import BLANK_LINE, Line
from tui.text.table import Choice, ShownRows


class ControlParts(RowsParts):
    """The controls of one place, its rate limits and the facts of its queue."""

    @property
    def facts(self) -> WholeQueueFigures:
        """The facts of the queue, as last read."""
        return self.session.readings.queue_figures

    @property
    def _limits(self) -> Sequence[BucketState]:
        """The rate limits, as last read."""
        tokens = self.session.readings.tokens
        return () if isinstance(tokens, str) else tokens

    @property
    def selected(self) -> ControlRow | None:
        """The control under the cursor, for its target."""
        key, rows = self.screen.cursor.key, control_rows(self.session.inspector.controls)
        return next((row for row in rows if row.label == key), None)

    @property
    def _selected_limit(self) -> BucketState | None:
        """The rate limit under the cursor."""
        key = self.screen.cursor.key
        return next((limit for limit in self._limits if view.BUCKET + limit.name == key), None)

    def plan_refusal(self) -> str:
        """Why the control under the cursor cannot be planned; "" if it can."""
        if self.screen.cursor.has_left:
            return ROW_HAS_LEFT
        selected = self.selected
        aim = (selected.name, selected.target) if selected else ("",)
        return control_refusal(self.session, self.context, *aim)

    def pause_refusal(self) -> str:
        """Why the queue cannot be paused or resumed; "" if it can."""
        return control_refusal(self.session, self.context, pause_control(self.session))

    def has_no_controls(self) -> bool:
        """True if nothing here can be changed."""
        return is_read_only(self) or not self.session.inspector.controls

    # What is shown

    def trail(self) -> tuple[str, ...]:
        """The place and its controls."""
        return (self.session.name, keys.CONTROLS)

    def rows(self, width: int) -> ShownRows:
        """One row for each control and rate limit."""
        known = control_rows(self.session.inspector.controls)
        head, listed = view.control_table(known, width)
        limits = view.limit_rows(self._limits, self.context.clock(), width)
        choices = [Choice(name, line) for name, line in (*listed, *limits)]
        return ShownRows(head if listed else (), choices)

    def details(self, width: int) -> list[Line]:
        """Warnings, facts of the queue, the control under the cursor."""
        warnings, facts = view.warning_lines(self.facts, width), view.fact_lines(self.facts, width)
        gap = [BLANK_LINE] if facts or warnings else []
        return [*warnings, *facts, *gap, *self._control_lines(width)]

    def _control_lines(self, width: int) -> list[Line]:
        selected, limit, latest = self.selected, self._selected_limit, self.session.inspector.latest
        if selected is not None:
            return view.detail_lines(selected.label, selected.control, width)
        if limit is not None:
            return view.limit_lines(limit, self.context.clock(), width)
        if latest.unavailable:
            return [((f" {safe_line(latest.unavailable)}", "error"),)]
        known = bool(self.session.inspector.states)
        return [((f" {view.NO_CONTROLS if known else 'opening ...'}", "muted"),)]

    def rows_frame(self) -> Frame:
        """The controls, and whether the queue is paused."""
        controls = self.session.inspector.controls
        amount = len(control_rows(controls)) + len(self._limits)
        return Frame("Controls", "9", f"{amount:,}", view.pause_line(controls))

    def details_frame(self, below: int) -> Frame:
        """The queue and the control under the cursor."""
        selected = self.selected
        name = "" if selected is None else safe_line(selected.label)
        return Frame("Queue", "", name, ((f"PgDn {below:,} more", "key"),) if below else ())

    def next_step(self, width: int) -> Line:
        """The next step for the control under the cursor."""
        selected = self.selected
        if self._selected_limit is not None:
            return next_line("2", "opens the tasks; rate limits are read-only", "", width)
        if selected is None:
            return next_line("2", "opens the tasks; there is nothing to control", "", width)
        name, why = safe_line(selected.label), selected.control.refusal
        if why:
            return next_line("", f"refused: {safe_line(why)}", name, width)
        if is_read_only(self):
            return next_line("", READ_ONLY, name, width)
        return next_line("Enter", "plans the change", name, width)

    def copies(self) -> tuple[Copy, ...]:
        """Name, value, facts and command of the control under the cursor."""
        selected, copies = self.selected, []
        if selected is not None:
            copies.append(Copy("n", "name", selected.name))
            copies += [Copy("v", "value", selected.control.now)] if selected.control.now else []
            target = ("--target", selected.target) if selected.target else ()
            words = (*self.session.place.command, "control", selected.name, *target, "--dry-run")
            copies.append(Copy("c", "command", shlex.join(words)))
        text = "\n".join(f"{name}: {words}" for name, words in self.facts.rows)
        return (*copies, *((Copy("f", "facts", safe_line(text)),) if text else ()))


def _open_plan(parts: ControlParts) -> Change:
    """Open the plan for the control under the cursor."""
    if (selected := parts.selected) is not None:
        _show_plan(parts, selected.name, selected.target)
    return Change.NOTHING


def _pause_queue(parts: ControlParts) -> Change:
    """Open the plan to pause or resume the whole queue."""
    _show_plan(parts, pause_control(parts.session))
    return Change.NOTHING


def _show_plan(parts: ControlParts, name: str, target: str = "") -> None:
    session, context = parts.session, parts.context
    parts.screen.open(lambda screen: show_control_plan(screen, session, context, name, target))


make = RowMaker[ControlParts, Change](keys.CONTROLS, Change.NOTHING)

ROWS: tuple[KeyRow[ControlParts, Change], ...] = (
    *make.moves(lambda parts, how: parts.move(how)),
    make.own(
        "open | enter | Enter | plan | View | plan this control: shows its effect, writes nothing",
        _open_plan,
        refusal=ControlParts.plan_refusal,
        is_absent=ControlParts.has_no_controls,
    ),
    KeyRow(make.key("reread", keys.SHARED), ControlParts.reread),
    *make.views(),
    make.goes(make.key("operations"), Target(keys.OPERATIONS)),
    KeyRow(
        make.key("pause_queue", keys.SHARED),
        _pause_queue,
        refusal=ControlParts.pause_refusal,
        is_absent=ControlParts.has_no_controls,
    ),
    make.arm(Change.EDGES, ControlParts.has_no_controls),
    *make.ends(),
)
"""All keys, in the order of their hints."""
