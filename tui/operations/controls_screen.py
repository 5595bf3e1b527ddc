"""What concerns one queue as a whole: what it says of itself, and its controls."""

from __future__ import annotations

import shlex
from collections.abc import Collection

from engine.store import Control
from engine.text.safe import shown
from tui.format import keys, present
from tui.format.present import BLANK, Line
from tui.operations import control_lines as view
from tui.operations.control_screen import CONTROL_KEYS, no_control, pausing, plan_control
from tui.screens.base import HASTY, Copy
from tui.screens.page import NO_LONGER_HERE, ListScreen
from tui.session.place import PlaceFigures
from tui.widgets.lines import Lines, LongText
from tui.widgets.picker import Choice, Picker

DETAIL = 4
"""Lines that are left for the control under the cursor, before the facts stand above it."""

AROUND = 4
"""Lines above and below: where one is, a word, hints."""


class ControlsScreen(ListScreen):
    """The controls of one place; Enter opens a plan for the one under the cursor."""

    KIND = keys.CONTROLS
    BINDINGS = keys.bindings(keys.CONTROLS)

    @property
    def _facts(self) -> PlaceFigures:
        return self.live.signs.facts

    @property
    def _here(self) -> tuple[str, Control] | None:
        """The one under the cursor, with its name."""
        name = self.query_one(Picker).key
        control = self.live.inspector.controls.get(name)
        return None if control is None else (name, control)

    def lay_out(self, width: int) -> None:
        """The facts, a line for each control, and all there is to say of one."""
        head, listed = view.table(self.live.inspector.controls, width)
        warnings, facts = view.warnings(self._facts, width), view.facts(self._facts, width)
        told = [*warnings, *facts]
        picker = self.query_one(Picker)
        room = self.size.height - AROUND - DETAIL - 1
        rows = min(len(listed), max(1, room))
        above = [*told, BLANK] if told and len(told) < room - rows else []
        heads = [*above, *([head] if listed else [])]
        picker.offer([Choice(name, line) for name, line in listed], heads)
        picker.styles.height = max(1, len(heads) + rows + picker.gone)
        about = self._about(width)
        text = about if above else [*warnings, *about, *([BLANK] if facts else []), *facts]
        self.query_one(LongText).show(text)

    def _about(self, width: int) -> list[Line]:
        here = self._here
        if here is not None:
            return [BLANK, *view.about(*here, width)]
        latest = self.live.inspector.latest
        if latest.unavailable:
            return [((f" {shown(latest.unavailable)}", "bad"),)]
        known = bool(self.live.inspector.states)
        return [((f" {view.NO_CONTROLS if known else 'opening ...'}", "dim"),)]

    def action_move(self, how: str) -> None:
        """Up and down among the controls; by pages through what is said of one."""
        if "page" in how or "half" in how:
            self.query_one(LongText).move(how)
            self.paint()
        else:
            super().action_move(how)

    def word(self) -> Line:
        """Whether there is more to be read."""
        below = self.query_one(LongText).below
        return ((f" PgDn {present.count(below, 'more line')}", "key"),) if below else ()

    # What can be done

    def without(self) -> set[str]:
        """Where nothing can be done, nothing is offered."""
        if self.around.arming.read_only or not self.live.inspector.controls:
            return {*CONTROL_KEYS, "open", "arm"}
        return set()

    def show_hints(self, grey: Collection[str] = ()) -> None:
        """What is refused is grey."""
        here, live = self._here, self.live
        refused = set(grey)
        if here is None or no_control(live, self.around, here[0]):
            refused.add("open")
        if no_control(live, self.around, pausing(live)):
            refused.add("pause_queue")
        words = {"arm": keys.arm_words(self.around.arming.armed)}
        hints = keys.hints(self.KIND, refused, self.without(), words)
        self.query_one("#hints", Lines).show(present.hint_lines(hints, self.size.width))

    def action_open(self) -> None:
        """A plan for the one under the cursor."""
        here = self._here
        if self.query_one(Picker).gone:
            self.say(NO_LONGER_HERE)
        else:
            plan_control(self, self.live, self.around, here[0] if here else "")

    def action_pause_queue(self) -> None:
        """A plan to pause the whole queue, or to let it go on."""
        plan_control(self, self.live, self.around, pausing(self.live))

    def action_arm(self) -> None:
        """Allow writes for a while, or forbid them."""
        self.say(HASTY if self.hasty else self.around.arming.toggle())
        self.paint()

    def copies(self) -> tuple[Copy, ...]:
        """The name of the one under the cursor, its value, the facts, and the command."""
        here, copies = self._here, []
        if here is not None:
            name, control = here
            copies.append(Copy("n", "name", name))
            copies += [Copy("v", "value", control.now)] if control.now else []
            words = (*self.live.place.command, "control", name, "--dry-run")
            copies.append(Copy("c", "command", shlex.join(words)))
        text = "\n".join(f"{name}: {words}" for name, words in self._facts.rows)
        return (*copies, *((Copy("f", "facts", shown(text)),) if text else ()))
