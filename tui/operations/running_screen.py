"""Screen of a running operation of this console: progress, orders, result.

It shows its parts (`tui.operations.running_parts`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from textual.app import ComposeResult

from tui.operations import replay_orders as orders
from tui.operations.running_parts import RunningParts
from tui.screens.console_context import ConsoleContext
from tui.screens.key_rows import KeyRow, RowMaker
from tui.screens.keyed_screen import row_bindings
from tui.screens.rows_parts import Change
from tui.screens.rows_screen import FIXED_LINES, ListPanes, RowsScreen
from tui.session.place_session import PlaceSession
from tui.session.running_operations import RunningOperation
from tui.text import keys
from tui.text.frames import BOX, Frame, frame_border
from tui.text.lines import Line
from tui.widgets.line_widgets import Lines

MIN_TASK_ROWS = 5
"""Lines of the screen that the results have at least; the other panes are dropped for them."""

make = RowMaker[RunningParts, Change](keys.RUNNING_OPERATION, Change.NOTHING)
own, key = make.own, make.key


def _order(
    words: str,
    act: Callable[[RunningParts], Change],
    why_not: Callable[[RunningParts], str],
    *,
    only: Callable[[RunningParts], bool],
    label: Callable[[RunningParts], str | None] = lambda parts: None,
) -> KeyRow[RunningParts, Change]:
    """The key of an order; offered `only` while there is a use for it."""
    return own(
        words,
        act,
        refusal=lambda parts: why_not(parts) if parts.work.ended is None else "already ended",
        is_absent=lambda parts: not only(parts),
        label=label,
    )


ROWS: tuple[KeyRow[RunningParts, Change], ...] = (
    *make.moves(lambda parts, how: parts.move(how)),
    own(
        "open | enter | Enter | task | View | the task of this result",
        orders.open_task,
        refusal=lambda parts: (
            "" if parts.screen.cursor.key else parts.no_row_reason("no results yet")
        ),
    ),
    own(
        "clusters | c | c | clusters | View | errors of the DLQ, grouped into clusters",
        orders.open_clusters,
        is_absent=lambda parts: parts.work.progress is None,  # only a replay is of the DLQ
    ),
    _order(
        "pause | space | Space | pause | Act | pause the replay; again: resume (needs ARMED)",
        orders.pause,
        orders.why_no_pause,
        only=orders.is_sending,
        label=lambda parts: "resume" if orders.is_paused(parts) else None,
    ),
    _order(
        "faster | + | + | faster | Act | double the rate",
        orders.faster,
        orders.why_not_faster,
        only=orders.is_sending,
    ),
    _order(
        "slower | - | - | slower | Act | halve the rate",
        orders.slower,
        orders.why_not_slower,
        only=orders.is_sending,
    ),
    _order(
        "stop | s | s | stop | Act | stop the replay; sent tasks stay sent",
        orders.stop,
        orders.why_no_stop,
        only=orders.can_stop,
    ),
    _order(
        "leave_open | w | w | do not wait | Act | end the replay without waiting for the missing "
        "outcomes",
        orders.leave_open,
        orders.why_no_end,
        only=orders.is_waiting,
    ),
    KeyRow(
        key("plan_undo", keys.RECORDED_OPERATION),
        orders.plan_undo,
        orders.why_no_undo,
        is_absent=lambda parts: (
            parts.work.progress is None if parts.work.ended is None else not parts.is_undoable
        ),
    ),
    make.arm(Change.EDGES),
    make.asks(key("palette")),
    make.asks(key("help")),
    replace(
        make.closes(),
        key=make.own_key(
            "back | escape q | Esc | back | Quit | back; the operation continues in the background"
        ),
    ),
    make.app(key("app.suspend_process")),
    make.digits(),
    make.repaint(),
    make.asks(key("yank")),
    make.asks(key("plain")),
)
"""All keys in the order of their hints; pressing one is the Textual action `key` of the screen."""


def _show_lines(pane: Lines, lines: Sequence[Line], border: int, free: int) -> int:
    """Show a pane if it fits in `free` lines; return how many it takes."""
    pane.display = bool(lines) and len(lines) + border <= free
    pane.show(lines)
    return len(lines) + border if pane.display else 0


class ReplayScreen(RowsScreen):
    """Shows an operation; closing the screen does not stop it."""

    KIND = keys.RUNNING_OPERATION
    ROWS = ROWS
    BINDINGS = row_bindings(ROWS)
    parts: RunningParts

    def __init__(
        self, work: RunningOperation, session: PlaceSession, context: ConsoleContext
    ) -> None:
        super().__init__()
        self.panes = ListPanes()  # of which it has the rows
        self.state, self.steps, self.flow = (
            Lines(id=name, classes="pane") for name in ("state", "steps", "flow")
        )
        self.parts = RunningParts(work, session, context, self)

    def compose(self) -> ComposeResult:
        """Header, state, steps, results, the queue meanwhile, next step, hints."""
        rows, edges = self.panes.rows, self.panes.edges
        rows.add_class("pane")
        yield from (edges.top, self.state, self.steps, rows, self.flow, edges.message, edges.hints)

    def paint_panes(self) -> None:
        """Paint state, steps, results and the queue meanwhile."""
        parts, size = self.parts, self.size
        border, width = frame_border(*size), self.panes.rows_width(size)
        state, steps = parts.details(width), parts.steps(width)
        self.state.show(state)
        free = size.height - FIXED_LINES - MIN_TASK_ROWS - 2 * border - len(state)
        free -= _show_lines(self.steps, steps, border, free)
        # From a large screen on, graphs take a third of it.
        flow = parts.flow(width, size.height // 3 if border == BOX else 2)
        _show_lines(self.flow, flow, border, free)
        self.paint_rows()
        self.paint_frames()

    def paint_frames(self) -> None:
        """Write the frames: what it is, its steps, its results, the queue meanwhile."""
        parts = self.parts
        self.state.show_frame(parts.details_frame(0), focused=True)
        self.steps.show_frame(Frame("Steps"))
        self.panes.rows.show_frame(parts.rows_frame())
        self.flow.show_frame(parts.flow_frame())

    def shows_operation(self, operation: object) -> bool:
        """True for its own."""
        return operation is self.parts.work
