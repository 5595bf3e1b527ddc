"""Screen of a queue's facts and controls."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Sequence

from engine.locks.token_buckets import BucketState
from engine.operations.controls import ControlRow, control_rows
from engine.text.safe import safe_line
from tui.operations import control_lines as view
from tui.operations.control_action import CONTROL_KEYS, show_control_plan
from tui.plan.refusals import control_refusal, pause_control
from tui.screens.base import Copy, key_bindings
from tui.screens.page import ListScreen
from tui.screens.rows_parts import ROW_HAS_LEFT
from tui.session.place import WholeQueueFigures
from tui.session.place_session import PlaceSession
from tui.text import keys
from tui.text.frames import Frame
from tui.text.hints import hint_lines, next_line
from tui.text.lines import BLANK_LINE, Line
from tui.text.table import Choice
from tui.widgets.line_widgets import Lines, LongText
from tui.widgets.picker import Picker


def rate_limits(session: PlaceSession) -> Sequence[BucketState]:
    """The rate limits of a place, as last read."""
    tokens = session.readings.tokens
    return () if isinstance(tokens, str) else tokens


class ControlsScreen(ListScreen):
    """The controls of one place; Enter opens a plan for the one under the cursor."""

    KIND = keys.CONTROLS
    BINDINGS = key_bindings(keys.CONTROLS)
    DETAIL_PERCENT = 40

    @property
    def _facts(self) -> WholeQueueFigures:
        return self.session.readings.queue_figures

    @property
    def _selected(self) -> ControlRow | None:
        """The control under the cursor, for its target."""
        key = self.query_one(Picker).key
        rows = control_rows(self.session.inspector.controls)
        return next((row for row in rows if row.label == key), None)

    @property
    def _limit(self) -> BucketState | None:
        """The rate limit under the cursor."""
        key = self.query_one(Picker).key
        return next(
            (one for one in rate_limits(self.session) if view.BUCKET + one.name == key), None
        )

    def lay_out(self, width: int) -> None:
        """Paint the facts, the table of controls and the details."""
        known = control_rows(self.session.inspector.controls)
        head, listed = view.control_table(known, self.rows_width)
        limits = view.limit_rows(rate_limits(self.session), self.context.clock(), self.rows_width)
        rows = [Choice(name, line) for name, line in (*listed, *limits)]
        self.query_one(Picker).show_rows(rows, [head] if listed else [])
        width = self.text_width
        warnings = view.warning_lines(self._facts, width)
        facts = view.fact_lines(self._facts, width)
        details = self._detail_lines(width)
        gap = [BLANK_LINE] if facts or warnings else []
        self.query_one(LongText).show([*warnings, *facts, *gap, *details])

    def _detail_lines(self, width: int) -> list[Line]:
        selected, limit = self._selected, self._limit
        if selected is not None:
            return view.detail_lines(selected.label, selected.control, width)
        if limit is not None:
            return view.limit_lines(limit, self.context.clock(), width)
        latest = self.session.inspector.latest
        if latest.unavailable:
            return [((f" {safe_line(latest.unavailable)}", "error"),)]
        known = bool(self.session.inspector.states)
        return [((f" {view.NO_CONTROLS if known else 'opening ...'}", "muted"),)]

    def action_move(self, how: str) -> None:
        """Move through the controls; page keys scroll the details."""
        if "page" in how or "half" in how:
            self.query_one(LongText).move(how)
            self.paint()
        else:
            super().action_move(how)

    def rows_frame(self) -> Frame:
        """The controls, and whether the queue is paused."""
        controls = self.session.inspector.controls
        amount = len(control_rows(controls)) + len(rate_limits(self.session))
        return Frame("Controls", "9", f"{amount:,}", view.pause_line(controls))

    def text_frame(self) -> Frame:
        """The queue and the control under the cursor."""
        selected = self._selected
        below = self.query_one(LongText).below
        more = f"PgDn {below:,} more" if below else ""
        name = "" if selected is None else safe_line(selected.label)
        return Frame("Queue", "", name, ((more, "key"),) if more else ())

    def default_message(self) -> Line:
        """The next step for the control under the cursor."""
        selected, width = self._selected, self.size.width
        if self._limit is not None:
            return next_line("2", "opens the tasks; rate limits are read-only", "", width)
        if selected is None:
            return next_line("2", "opens the tasks; there is nothing to control", "", width)
        name, why = safe_line(selected.label), selected.control.refusal
        if why:
            return next_line("", f"refused: {safe_line(why)}", name, width)
        if self.context.arming.read_only:
            return next_line("", "read only: started with --read-only", name, width)
        return next_line("Enter", "plans the change", name, width)

    # Actions

    def without(self) -> set[str]:
        """Hide keys if the console is read only or there are no controls."""
        if self.context.arming.read_only or not self.session.inspector.controls:
            return {*CONTROL_KEYS, "open", "arm"}
        return set()

    def show_hints(self, grey: Collection[str] = ()) -> None:
        """Refused controls have grey hints."""
        selected, session = self._selected, self.session
        refused = set(grey)
        if selected is None or control_refusal(
            session, self.context, selected.name, selected.target
        ):
            refused.add("open")
        if control_refusal(session, self.context, pause_control(session)):
            refused.add("pause_queue")
        words = {"arm": keys.arm_hint(self.context.arming.is_armed)}
        hints = keys.hints_of(self.KIND, refused, self.without(), words)
        self.query_one("#hints", Lines).show(hint_lines(hints, self.size.width))

    def action_open(self) -> None:
        """Open a plan for the control under the cursor."""
        selected = self._selected
        if self.query_one(Picker).is_gone:
            self.say(ROW_HAS_LEFT)
        else:
            aim = (selected.name, selected.target) if selected else ("",)
            show_control_plan(self, self.session, self.context, *aim)

    def action_pause_queue(self) -> None:
        """Open a plan to pause or resume the whole queue."""
        show_control_plan(self, self.session, self.context, pause_control(self.session))

    def copies(self) -> tuple[Copy, ...]:
        """Name, value, facts and command of the control under the cursor."""
        selected, copies = self._selected, []
        if selected is not None:
            copies.append(Copy("n", "name", selected.name))
            copies += [Copy("v", "value", selected.control.now)] if selected.control.now else []
            target = ("--target", selected.target) if selected.target else ()
            words = (*self.session.place.command, "control", selected.name, *target, "--dry-run")
            copies.append(Copy("c", "command", shlex.join(words)))
        text = "\n".join(f"{name}: {words}" for name, words in self._facts.rows)
        return (*copies, *((Copy("f", "facts", safe_line(text)),) if text else ()))
