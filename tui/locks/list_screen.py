"""Screen of the locks of all places, with details of the one under the cursor."""

from __future__ import annotations

from collections.abc import Collection

from textual.app import ComposeResult

from tui.locks import list_lines as view
from tui.locks.list_follower import LocksFollower
from tui.operations.worker_action import show_worker_plan
from tui.screens.base import Copy, key_bindings
from tui.screens.target import SCREEN_TARGETS, Target
from tui.session.place_session import PlaceSession
from tui.terminal.render_cache import Box
from tui.text import keys
from tui.text.frames import BOX, Frame
from tui.text.hints import next_line
from tui.text.lines import Line
from tui.text.table import Choice
from tui.widgets.line_widgets import Lines, LongText
from tui.widgets.picker import Picker


class LocksScreen(LocksFollower):
    """Kept up to date; U or Enter opens the lock screen."""

    KIND = keys.LOCKS
    BINDINGS = key_bindings(keys.LOCKS)
    PAGE_KEYS_SCROLL = True
    DETAIL_PERCENT = 50

    def compose(self) -> ComposeResult:
        """As other lists, with the graph of the place under the cursor below the rows."""
        yield self.edges.top
        with Box(id="body"):
            with Box(id="left"):
                yield Picker(id="rows")
                yield Lines(id="graph", classes="pane")
            yield LongText(id="text")
        yield self.edges.message
        yield self.edges.hints

    def show_frames(self) -> None:
        """Write the frames; the graph gets the lines that the rows leave."""
        super().show_frames()
        if not self.is_paintable:
            return  # the screen was removed before this call, which the layout had put off
        picker, part, session = (
            self.query_one(Picker),
            self.query_one("#graph", Lines),
            self._selected_session,
        )
        part.display = self.is_wide and session is not None
        self.query_one("#left").styles.height = "1fr" if self.is_wide else "auto"
        if self.is_wide and session is not None:
            picker.styles.height = BOX + 1 + len(picker.rows)
            self.graph_pane.show(part, session, self.context.clock(), self.rows_width)

    def trail(self) -> tuple[str, ...]:
        """All locks, independent of the place."""
        return ("locks",)

    def lay_out(self, width: int) -> None:
        """One line per place, and details of the one under the cursor."""
        now = self.context.clock()
        locks = view.worst_first([view.place_lock(session) for session in self._sessions])
        head, lines = view.lock_table(locks, now, self.rows_width)
        rows = [Choice(str(k.number), line) for k, line in zip(locks, lines, strict=True)]
        self.query_one(Picker).show_rows(rows, [head])
        session = self._selected_session
        text: list[Line] = [((" no place has a lock", "muted"),)]
        if session is not None:
            text = self._detail_lines(session, now, self.text_width)
        self.query_one(LongText).show(text)
        self.call_after_refresh(self.show_frames)  # the lines below are known then

    def _detail_lines(self, session: PlaceSession, now: float, width: int) -> list[Line]:
        exam = self._exams.get(session.number)
        report = None if exam is None else exam.report
        return view.detail_lines(
            view.place_lock(session), self._kinds.get(session.number), now, width, report
        )

    def rows_frame(self) -> Frame:
        """All locks."""
        return Frame("Locks", "5", f"{len(self._sessions)}")

    def text_frame(self) -> Frame:
        """The lock under the cursor, and how many lines are below."""
        session, below = self._selected_session, self.query_one(LongText).below
        more: Line = ((f"{below} more: Ctrl-d", "muted"),) if below else ()
        return Frame("details" if session is None else session.name, right=more)

    def default_message(self) -> Line:
        """The next step for the lock under the cursor, and what it acts on."""
        session = self._selected_session
        if session is None:
            return ()
        refusal = session.place.why_no_unlock(self.context.arming.read_only)
        key, does = view.next_step(view.place_lock(session), refusal)
        return next_line(key, does, f"lock of {session.name}", self.size.width)

    def without(self) -> Collection[str]:
        """Actions that are hidden now."""
        none = bool(self._sessions) and all(session.place.has_leases for session in self._sessions)
        without = ({"unlock"} if none else set()) | (set() if self.is_wide else {"graph_range"})
        return without | ({"worker"} if self.context.arming.read_only else set())

    def neighbor(self, by: int) -> Target | None:
        """Move to the next lock that can be examined."""
        read_only = self.context.arming.read_only
        while self.query_one(Picker).move("down" if by > 0 else "up"):
            if (session := self._selected_session) is not None and not session.place.why_no_unlock(
                read_only
            ):
                return Target(keys.LOCK, place=session.number)
        return None

    def row_words(self, target: Target) -> str:
        """The position of a lock under the cursor."""
        rows = [row.key for row in self.query_one(Picker).rows]
        key = f"{target.place}"
        return f"row {rows.index(key) + 1} of {len(rows)}" if key == self.selected_key else ""

    def action_unlock(self) -> None:
        """Open the lock screen of the place under the cursor."""
        session = self._selected_session
        if session is None:
            self.say("no place has a lock")
        elif refusal := session.place.why_no_unlock(self.context.arming.read_only):
            self.say(refusal)
        else:
            self.go(Target(keys.LOCK, place=session.number))

    action_open = action_unlock

    def action_worker(self) -> None:
        """Plan to start or stop a worker of the place under the cursor."""
        if (session := self._selected_session) is None:
            self.say("no place has a lock")
        else:
            show_worker_plan(self, session, self.context)

    def action_screen(self, digit: str) -> None:
        """Open the screen with that digit for the place under the cursor."""
        session = self._selected_session
        self.go(SCREEN_TARGETS[digit]._replace(place=0 if session is None else session.number))

    def copies(self) -> tuple[Copy, ...]:
        """The evidence on the lock under the cursor."""
        session = self._selected_session
        if session is None:
            return ()
        lock, now = view.place_lock(session), self.context.clock()
        lines = self._detail_lines(session, now, 100)
        text = "\n".join("".join(text for text, _ in line).rstrip() for line in lines)
        pid = lock.evidence.pid if lock.evidence is not None else None
        return (
            *((Copy("p", "PID", str(pid)),) if pid is not None else ()),
            Copy("i", "place", session.place.name),
            Copy("e", "evidence", text),
        )
