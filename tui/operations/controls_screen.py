"""Screen of a queue's facts and controls."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Sequence

from engine.locks.token_buckets import BucketState
from engine.operations.controls import ControlRow, control_rows
from engine.text.safe import safe_line
from tui.format import keys, present
from tui.format.present import BLANK_LINE, Line
from tui.format.table import Choice
from tui.operations import control_lines as view
from tui.operations.control_screen import CONTROL_KEYS, show_control_plan
from tui.plan.acting_screen import control_refusal, pause_control
from tui.screens.base import Copy, key_bindings
from tui.screens.page import ROW_HAS_LEFT, ListScreen
from tui.session.place import WholeQueueFigures
from tui.session.place_session import PlaceSession
from tui.widgets.lines import Frame, Lines, LongText
from tui.widgets.picker import Picker


def rate_limits(live: PlaceSession) -> Sequence[BucketState]:
    """The rate limits of a place, as last read."""
    tokens = live.readings.tokens
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
    def _here(self) -> ControlRow | None:
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
        about = self._about(width)
        gap = [BLANK_LINE] if facts or warnings else []
        self.query_one(LongText).show([*warnings, *facts, *gap, *about])

    def _about(self, width: int) -> list[Line]:
        here, limit = self._here, self._limit
        if here is not None:
            return view.detail_lines(here.label, here.control, width)
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
        found = self.session.inspector.controls
        amount = len(control_rows(found)) + len(rate_limits(self.session))
        return Frame("Controls", "9", f"{amount:,}", view.pause_line(found))

    def text_frame(self) -> Frame:
        """The queue and the control under the cursor."""
        here = self._here
        below = self.query_one(LongText).below
        more = f"PgDn {below:,} more" if below else ""
        name = "" if here is None else safe_line(here.label)
        return Frame("Queue", "", name, ((more, "key"),) if more else ())

    def default_message(self) -> Line:
        """The next step for the control under the cursor."""
        here, width = self._here, self.size.width
        if self._limit is not None:
            return present.next_line("2", "opens the tasks; rate limits are read-only", "", width)
        if here is None:
            return present.next_line("2", "opens the tasks; there is nothing to control", "", width)
        name, why = safe_line(here.label), here.control.refusal
        if why:
            return present.next_line("", f"refused: {safe_line(why)}", name, width)
        if self.context.arming.read_only:
            return present.next_line("", "read only: started with --read-only", name, width)
        return present.next_line("Enter", "plans the change", name, width)

    # Actions

    def without(self) -> set[str]:
        """Hide keys if the console is read only or there are no controls."""
        if self.context.arming.read_only or not self.session.inspector.controls:
            return {*CONTROL_KEYS, "open", "arm"}
        return set()

    def show_hints(self, grey: Collection[str] = ()) -> None:
        """Refused controls have grey hints."""
        here, live = self._here, self.session
        refused = set(grey)
        if here is None or control_refusal(live, self.context, here.name, here.target):
            refused.add("open")
        if control_refusal(live, self.context, pause_control(live)):
            refused.add("pause_queue")
        words = {"arm": keys.arm_hint(self.context.arming.is_armed)}
        hints = keys.hints_of(self.KIND, refused, self.without(), words)
        self.query_one("#hints", Lines).show(present.hint_lines(hints, self.size.width))

    def action_open(self) -> None:
        """Open a plan for the control under the cursor."""
        here = self._here
        if self.query_one(Picker).is_gone:
            self.say(ROW_HAS_LEFT)
        else:
            aim = (here.name, here.target) if here else ("",)
            show_control_plan(self, self.session, self.context, *aim)

    def action_pause_queue(self) -> None:
        """Open a plan to pause or resume the whole queue."""
        show_control_plan(self, self.session, self.context, pause_control(self.session))

    def copies(self) -> tuple[Copy, ...]:
        """Name, value, facts and command of the control under the cursor."""
        here, copies = self._here, []
        if here is not None:
            copies.append(Copy("n", "name", here.name))
            copies += [Copy("v", "value", here.control.now)] if here.control.now else []
            target = ("--target", here.target) if here.target else ()
            words = (*self.session.place.command, "control", here.name, *target, "--dry-run")
            copies.append(Copy("c", "command", shlex.join(words)))
        text = "\n".join(f"{name}: {words}" for name, words in self._facts.rows)
        return (*copies, *((Copy("f", "facts", safe_line(text)),) if text else ()))
