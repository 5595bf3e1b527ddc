"""The keys of the overview in the order of their hints: what each does, when it is refused."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from engine.model import State
from tui.overview import actions
from tui.overview.parts import Change, OverviewParts
from tui.screens.key_rows import KeyRow, RowMaker, is_read_only
from tui.screens.target import Target
from tui.text import keys
from tui.text.times import format_clock

make = RowMaker[OverviewParts, Change](keys.OVERVIEW, Change.NOTHING)
own, key = make.own, make.key


def _while_live(pressed: str) -> Callable[[OverviewParts], str]:
    """Why a key that needs live data is refused."""

    def refusal(parts: OverviewParts) -> str:
        frozen = parts.freeze.time
        at = "" if frozen is None else format_clock(frozen.at)
        return f"frozen at {at}: p goes live, then {pressed}" if at else ""

    return refusal


ROWS: tuple[KeyRow[OverviewParts, Change], ...] = (
    *make.moves(actions.move),
    own("open | enter | Enter | open | View | the queue, the cell or the alert", actions.open_row),
    own(
        "pane(1) | tab | Tab | pane | View | next pane of the screen",
        partial(actions.next_pane, by=1),
    ),
    own(
        "pane(-1) | shift+tab | S-Tab | - | View | previous pane", partial(actions.next_pane, by=-1)
    ),
    own(
        "graph_range | z | z | range | View | graph: the last 10 minutes, hour or day",
        actions.next_range,
    ),
    own(
        "rows_by | x | x | rows by | View +minor | age table: group by destination, kind or error",
        actions.next_rows,
        refusal=_while_live("x"),
    ),
    own(
        "age_cell(-1) | left h | h | - | View | age table: younger cell",
        partial(actions.shift, by=-1),
    ),
    own(
        "age_cell(1) | right l | l | - | View | age table: older cell", partial(actions.shift, by=1)
    ),
    own(
        "clusters | c | c | - | View | error clusters of the place under the cursor",
        partial(actions.go, target=Target(keys.CLUSTERS, state=State.DEAD)),
    ),
    own(
        "groups | b | b | - | View | groups of tasks of the place under the cursor",
        lambda parts: actions.go(parts, parts.groups_target),
    ),
    KeyRow(key("reread"), actions.reread, _while_live("r")),
    own(
        "freeze | p | p | freeze | View +minor | freeze the screen to go back in "
        "history; again: live",
        actions.freeze,
        label=lambda parts: "live" if parts.freeze.time else None,
    ),
    own(
        "earlier | comma | , | - | View | frozen: back in history",
        partial(actions.step, direction=-1),
    ),
    own(
        "later | full_stop | . | - | View | frozen: forward in history",
        partial(actions.step, direction=1),
    ),
    KeyRow(key("screen"), actions.open_digit),
    make.repaint(),
    make.asks(key("yank")),
    make.asks(key("export", keys.PLAN)),
    make.asks(key("plain")),
    make.goes(key("operations"), Target(keys.OPERATIONS)),
    KeyRow(
        key("unlock"),
        actions.unlock,
        _while_live("U"),
        is_absent=lambda parts: (
            is_read_only(parts) or all(one.place.has_leases for one in parts.sessions)
        ),
    ),
    KeyRow(
        key("controls", keys.SHARED),
        partial(actions.go, target=Target(keys.CONTROLS)),
        is_absent=lambda parts: not any(one.has_queue_figures for one in parts.sessions),
    ),
    make.arm(Change.EDGES),
    own(
        "worker | W | W | - | Act | plan to start or stop a worker of the place under the cursor",
        actions.worker,
        refusal=_while_live("W"),
        is_absent=is_read_only,
    ),
    make.asks(key("palette")),
    make.asks(key("help")),
    own("back | escape | Esc | - | Quit | stop the first scan of a queue", actions.back),
    make.app(make.own_key("app.quit | q | q | quit | Quit | quit the console")),
    make.app(key("app.cancel", keys.SHARED)),
    make.app(key("app.suspend_process")),
)
"""All keys; pressing one is the Textual action `key` of the screen."""
