"""Screen of a running operation of this console: progress, orders, result.

It shows its parts (`tui.operations.running_parts`). Orders that slow an operation down are always
allowed; others need ARMED."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from textual.geometry import Size
from textual.widget import Widget

from engine.model import State
from engine.replay.progress import Phase
from engine.replay.settings import RemainderPolicy
from engine.store import StoreError
from engine.text.safe import safe_line
from tui.operations.replay_lines import GRAPH_ROWS
from tui.operations.running_parts import RunningParts
from tui.operations.undo_plans import show_undo
from tui.plan.planning import preparing
from tui.screens.base import PASTED, BaseScreen
from tui.screens.console_context import READ_ONLY, ConsoleContext
from tui.screens.key_rows import KeyRow, RowMaker
from tui.screens.keyed_screen import row_bindings
from tui.screens.place_foot import PlaceBox
from tui.screens.rows_parts import Change
from tui.screens.rows_screen import FIXED_LINES, ListPanes, RowsScreen
from tui.screens.target import Target
from tui.session.place_session import PlaceSession
from tui.session.running_operations import RunningOperation
from tui.text import keys
from tui.text.frames import BOX, Frame, frame_border
from tui.widgets.line_widgets import Lines

_CLUSTER_MARK = re.compile(r"\bF-[0-9A-F]{4}\b")
"""The name of an error cluster in the reason of a stop."""

SENDING_PHASES = (Phase.STARTING, Phase.SENDING, Phase.WAITING)
"""Phases in which tasks may be sent without an order."""


def _phase(parts: RunningParts) -> Phase | None:
    """The phase of a replay that runs; None for another operation, and after the end."""
    now = parts.work.progress
    return None if now is None or parts.work.ended is not None else now.phase


def _is_paused(parts: RunningParts) -> bool:
    """True if it sends nothing until it gets an order."""
    return _phase(parts) in (Phase.PAUSED, Phase.ASKING)


def _is_sending(parts: RunningParts) -> bool:
    """True if a replay has tasks to send."""
    return _phase(parts) not in (None, Phase.ENDING)


def _is_waiting(parts: RunningParts) -> bool:
    """True if a replay has sent all and waits for outcomes."""
    return _phase(parts) is Phase.ENDING


def _can_stop(parts: RunningParts) -> bool:
    now = parts.work.progress
    is_stopped = now is not None and bool(now.stopped)
    return parts.work.ended is None and not is_stopped and not _is_waiting(parts)


# Why an operation that has not ended takes an order not now


def _why_not_more(parts: RunningParts, what: str) -> str:
    if parts.context.arming.read_only:
        return READ_ONLY
    is_armed = parts.context.arming.is_armed
    return "" if is_armed else f"OBSERVE: press ! first: {what} changes more tasks"


def _why_no_pause(parts: RunningParts) -> str:
    """Only a replay pauses; resuming needs ARMED."""
    if parts.work.progress is None:
        return "cannot be paused: s stops it"
    return _why_not_more(parts, "resuming") if _is_paused(parts) else ""


def _why_not_faster(parts: RunningParts) -> str:
    """Only with a rate, and ARMED."""
    now = parts.work.progress
    if now is None or now.pace.rate is None:
        return "no rate limit set"
    return _why_not_more(parts, "going faster")


def _why_not_slower(parts: RunningParts) -> str:
    """Only a replay has a rate."""
    return "" if parts.work.progress is not None else "cannot be slowed down: s stops it"


def _holds_rest(parts: RunningParts) -> bool:
    """True if a stop holds the tasks that are not sent."""
    now = parts.work.progress
    return now is not None and now.pace.stops.rest is RemainderPolicy.HOLD and bool(now.unsent)


def _why_no_stop(parts: RunningParts) -> str:
    """Once; holding the rest needs ARMED."""
    now = parts.work.progress
    if now is not None and now.stopped:
        return "already stopped"
    return _why_not_more(parts, "holding the rest") if _holds_rest(parts) else ""


def _why_no_end(parts: RunningParts) -> str:
    """Only after all was sent."""
    return "" if _is_waiting(parts) else "still sending: s stops it"


def _why_no_undo(parts: RunningParts) -> str:
    """Only what the journal has, also after the end."""
    yet = " yet" if parts.work.ended is None else ""
    return "" if parts.work.op else f"not in the journal{yet}"


# Orders


def _order(parts: RunningParts, name: str, words: str) -> Change:
    parts.work.order(name)
    parts.say(words, "")
    return Change.ROWS


def _order_more(parts: RunningParts, name: str, words: str) -> Change:
    """Give an order that changes more tasks; not by pasted input."""
    if parts.screen.is_pasted:
        return parts.say(PASTED)
    parts.context.arming.extend()
    return _order(parts, name, words)


def _pause(parts: RunningParts) -> Change:
    if not _is_paused(parts):
        return _order(parts, "pause", "paused: Space resumes")
    if _phase(parts) is Phase.ASKING:
        return _order_more(parts, "go_on", "continues")
    return _order_more(parts, "resume", "resumed")


def _stop(parts: RunningParts) -> Change:
    if _holds_rest(parts):
        return _order_more(parts, "stop", "stopped: the rest is held")
    dead = safe_line(parts.session.inspector.states.get(State.DEAD, "its state"))
    fate = "is unchanged" if parts.work.progress is None else f"stays in {dead}"
    return _order(parts, "stop", f"stopped: the rest {fate}")


def _plan_undo(parts: RunningParts) -> Change:
    """A running replay is paused for it."""
    run = parts.screen.run
    parts.screen.open(lambda screen: run("undo", partial(_show_undo_plan, parts, screen)))
    return Change.NOTHING


async def _show_undo_plan(parts: RunningParts, screen: BaseScreen) -> Change:
    session, work = parts.session, parts.work
    try:
        await _pause_sending(work)
        with preparing(screen, "the undo plan"):
            operation = await session.history.operation(work.op)
    except StoreError as error:
        return parts.say(f"no plan: {error}")
    if operation is None:
        return parts.say("no longer in the journal")
    paused = ["paused; applying this plan stops it"] * (work.ended is None)
    await show_undo(screen, session, parts.context, operation, paused)
    return Change.NOTHING


async def _pause_sending(work: RunningOperation) -> None:
    """Pause sending, so that a plan matches what it is applied to."""
    now = work.progress
    if work.ended is None and now is not None and now.phase is not Phase.ENDING:
        work.order("pause")
        while (now := work.progress) is not None and now.phase in SENDING_PHASES:
            await work.wait_for_change()


# Other screens


def _open_task(parts: RunningParts) -> Change:
    ident, number = parts.screen.cursor.key, parts.session.number
    parts.screen.go(Target(keys.TASK, place=number, id=ident))
    return Change.NOTHING


def _open_clusters(parts: RunningParts) -> Change:
    """Open the error clusters of the DLQ, with the cursor on the one that stopped it."""
    progress, number = parts.work.progress, parts.session.number
    match = None if progress is None else _CLUSTER_MARK.search(progress.stopped)
    mark = match.group() if match else ""
    parts.screen.go(Target(keys.CLUSTERS, place=number, state=State.DEAD, id=mark))
    return Change.NOTHING


MIN_TASK_ROWS = 5
"""Lines of the screen that the results have at least; the other panes are dropped for them."""

make = RowMaker[RunningParts, Change](keys.RUNNING_OPERATION, Change.NOTHING)
own, key = make.own, make.key


def _order_row(
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
        _open_task,
        refusal=lambda parts: (
            "" if parts.screen.cursor.key else parts.no_row_reason("no results yet")
        ),
    ),
    own(
        "clusters | c | c | clusters | View +minor | errors of the DLQ, grouped into clusters",
        _open_clusters,
        is_absent=lambda parts: parts.work.progress is None,  # only a replay is of the DLQ
    ),
    _order_row(
        "pause | space | Space | pause | Act | pause the replay; again: resume (needs ARMED)",
        _pause,
        _why_no_pause,
        only=_is_sending,
        label=lambda parts: "resume" if _is_paused(parts) else None,
    ),
    _order_row(
        "stop | s | s | stop | Act | stop the replay; sent tasks stay sent",
        _stop,
        _why_no_stop,
        only=_can_stop,
    ),
    _order_row(
        "slower | - | - | slower | Act | halve the rate",
        partial(_order, name="slower", words="half as fast"),
        _why_not_slower,
        only=_is_sending,
    ),
    _order_row(
        "faster | + | + | faster | Act | double the rate",
        partial(_order_more, name="faster", words="twice as fast"),
        _why_not_faster,
        only=_is_sending,
    ),
    _order_row(
        "leave_open | w | w | do not wait | Act | end the replay without waiting for the missing "
        "outcomes",
        partial(_order, name="leave", words="ends now"),
        _why_no_end,
        only=_is_waiting,
    ),
    KeyRow(
        key("plan_undo", keys.RECORDED_OPERATION),
        _plan_undo,
        _why_no_undo,
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
    make.app(key("app.freeze")),
    make.app(key("app.suspend_process")),
    make.digits(),
    make.repaint(),
    make.asks(key("yank")),
    make.asks(key("plain")),
)


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
        self.panes.rows.add_class("pane", update=False)  # styled when mounted
        self.state, self.steps, self.flow = (
            Lines(id=name, classes="pane") for name in ("state", "steps", "flow")
        )
        self.panes.body = PlaceBox(self.state, self.steps, self.panes.rows, self.flow)
        self.parts = RunningParts(work, session, context, self)

    def paint_panes(self) -> None:
        parts, size = self.parts, self.size
        border, width = frame_border(*size), self.panes.rows_width(size)
        self.state.show(parts.details(width))
        self.steps.show(parts.steps(width))
        self.paint_rows()
        self.flow.show(parts.flow(width, self._flow_lines(size) if border == BOX else 2))
        self.paint_frames()
        self.call_after_refresh(self.paint_frames)

    def paint_frames(self) -> None:
        if not self.is_paintable:
            return
        parts = self.parts
        self._divide(self.size)
        self.state.show_frame(parts.details_frame(0), focused=True)
        self.steps.show_frame(Frame("Steps"))
        self.panes.rows.show_frame(parts.rows_frame())
        self.flow.show_frame(parts.flow_frame())

    def _flow_lines(self, size: Size) -> int:
        """Lines of the graphs on a large screen: a third of it, less if the results need them; of a
        result in figures, if it has more tasks."""
        border = frame_border(*size)
        above = FIXED_LINES + 3 * border + len(self.state.lines) + len(self.steps.lines)
        free = size.height - above - self.panes.needed_rows(size)
        if free >= 2 * GRAPH_ROWS and self.parts.session.readings.log:
            free //= 2  # the log has the other half
        least = 2 if self.parts.work.ended is not None else GRAPH_ROWS
        return min(size.height // 3, max(least, free))

    def _divide(self, size: Size) -> None:
        """Steps and graphs are shown if they leave some rows; the log has what the rows leave."""
        border, rows = frame_border(*size), self.panes.rows
        needs: dict[Widget, int] = {self.state: border + len(self.state.lines)}
        free = size.height - FIXED_LINES - needs[self.state] - MIN_TASK_ROWS - border
        flow = dict[Widget, int]()
        for pane, shown in ((self.steps, needs), (self.flow, flow)):
            if pane.lines and len(pane.lines) + border <= free:
                shown[pane] = len(pane.lines) + border
                free -= shown[pane]
        most = max(0, free + MIN_TASK_ROWS + border)
        needs |= {rows: min(self.panes.needed_rows(size), most)} | flow
        session, body = self.parts.session, self.panes.body
        body.stack(needs, rows, session, fixed=FIXED_LINES, has_graph=False)

    def shows_operation(self, operation: object) -> bool:
        return operation is self.parts.work
