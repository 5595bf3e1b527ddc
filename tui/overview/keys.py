"""The keys of the overview in the order of their hints: what each does, when it is refused."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial

from engine.model import State
from tui.overview.parts import AGES, QUEUES, Change, OverviewParts
from tui.screens.key_rows import KeyRow, RowMaker, is_read_only
from tui.screens.target import SCREEN_TARGETS, Target
from tui.text import keys
from tui.text.times import format_clock


def move(parts: OverviewParts, how: str) -> Change:
    """Move the cursor in the focused pane, which reports it."""
    parts.choose()
    parts.focus.panes[parts.focus.pane].move(how)
    return Change.NOTHING


def _shift(parts: OverviewParts, by: int) -> Change:
    if parts.focus.pane == AGES:
        parts.ages.shift(by)
    return Change.NOTHING


def focus(parts: OverviewParts, pane: str) -> Change:
    """Go to a pane, if it has rows."""
    parts.choose()
    if parts.can_focus(pane):
        parts.focus.activate(pane)
    return Change.PANES


def _next_pane(parts: OverviewParts, by: int) -> Change:
    panes = [pane for pane in parts.focus.panes if parts.can_focus(pane)] or [QUEUES]
    at = panes.index(parts.focus.pane) if parts.focus.pane in panes else 0
    return focus(parts, panes[(at + by) % len(panes)])


def _next_rows(parts: OverviewParts) -> Change:

    async def read() -> Change:
        if await parts.reads.next_rows(parts.selected):
            return Change.PANES
        return parts.say("no other field has data")

    if parts.table is not None:
        parts.screen.run("rows by", read)
    return Change.NOTHING


def _next_range(parts: OverviewParts) -> Change:
    parts.graph.next_range()
    parts.reads.request(parts.selected.number)
    return Change.PANES


def _reread(parts: OverviewParts) -> Change:

    async def scan() -> Change:
        await asyncio.gather(*(session.inspector.scan_now() for session in parts.sessions))
        parts.reads.request(parts.selected.number)
        return parts.say("all places scanned again")

    parts.screen.run("reread", scan)
    return Change.NOTHING


# The time shown


def _freeze(parts: OverviewParts) -> Change:
    if parts.freeze.time is not None:
        parts.freeze.time = None
        parts.say("live", "")
        return Change.PANES

    async def load() -> Change:
        for words in (await parts.freeze.load())[:1]:
            parts.say(words)
        return Change.PANES

    parts.freeze.begin(parts.snapshots)
    parts.screen.run("recorded", load)
    return Change.PANES


def _step(parts: OverviewParts, direction: int) -> Change:
    if refusal := parts.freeze.step(direction, time.monotonic()):
        return parts.say(refusal)
    parts.message.clear()
    return Change.PANES


def _jump(parts: OverviewParts, direction: int) -> Change:
    parts.say(parts.freeze.jump(direction))
    return Change.PANES


def back(parts: OverviewParts) -> Change:
    """Return to live; otherwise stop the first scan of the place under the cursor."""
    if parts.freeze.time is not None:
        return _freeze(parts)
    if not is_scanning(parts):
        return parts.say("no scan to stop here; q quits")
    parts.selected.inspector.stop_first_scan()
    return Change.NOTHING


def is_scanning(parts: OverviewParts) -> bool:
    """True if the first scan of the place under the cursor runs."""
    latest = parts.selected.inspector.latest
    return not (latest.is_complete or latest.is_stopped)


# Other screens


def _go(parts: OverviewParts, target: Target, *, opens_row: bool = False) -> Change:
    if refusal := parts.why_unseen(opens_row=opens_row):
        return parts.say(refusal)
    parts.screen.go(target._replace(place=parts.selected.number))
    return Change.NOTHING


def _open_row(parts: OverviewParts) -> Change:
    """Open what the row under the cursor is about, or the tasks of the cell."""
    is_cell = parts.focus.pane == AGES
    target = parts.cell_target if is_cell else parts.focus.target
    if target is not None:
        return _go(parts, target, opens_row=True)
    refusal = parts.why_unseen(opens_row=True) or ("no cell to open" if is_cell else "")
    return parts.say(refusal) if refusal else Change.NOTHING


def _open_digit(parts: OverviewParts, digit: str) -> Change:
    parts.screen.go(SCREEN_TARGETS[digit]._replace(place=parts.selected.number))
    return Change.NOTHING


def _search(parts: OverviewParts) -> Change:
    """Ask what to search for, and search all places."""
    from tui.queue.search_screen import ask_text

    def take(text: str | None) -> None:
        if text:
            parts.screen.go(Target(keys.SEARCH, filter=text))

    parts.screen.open(lambda screen: ask_text(screen, parts.sessions, "", take))
    return Change.NOTHING


def _unlock(parts: OverviewParts) -> Change:
    """Open the lock screen of the place whose alert shows this key, or of the one here."""
    session = parts.place_to_unlock
    refusal = parts.why_unseen(needs_row=False)
    refusal = refusal or session.place.why_no_unlock(parts.context.arming.read_only)
    if refusal:
        return parts.say(refusal)
    parts.screen.go(Target(keys.LOCK, place=session.number))
    return Change.NOTHING


def _worker(parts: OverviewParts) -> Change:
    """Open the plan to start a worker of the place, or to stop the one started here."""
    from tui.operations.workers_screen import show_worker_plan

    if refusal := parts.why_unseen(needs_row=False):
        return parts.say(refusal)
    session = parts.selected
    parts.screen.open(lambda screen: show_worker_plan(screen, session, parts.context))
    return Change.NOTHING


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
    *make.moves(move),
    own("open | enter | Enter | open | View | the queue, the cell or the alert", _open_row),
    own("pane(1) | tab | Tab | pane | View | next pane of the screen", partial(_next_pane, by=1)),
    own("pane(-1) | shift+tab | S-Tab | - | View | previous pane", partial(_next_pane, by=-1)),
    own(
        "graph_range | z | z | range | View | graph: the last 10 minutes, hour or day", _next_range
    ),
    own(
        "rows_by | x | x | rows by | View +minor | age table: group by destination, kind or error",
        _next_rows,
        refusal=_while_live("x"),
    ),
    own("age_cell(-1) | left h | h | - | View | age table: younger cell", partial(_shift, by=-1)),
    own("age_cell(1) | right l | l | - | View | age table: older cell", partial(_shift, by=1)),
    own(
        "groups | b | b | - | View | groups of tasks of the place under the cursor",
        lambda parts: _go(parts, parts.groups_target),
    ),
    own(
        "search | slash | / | search | View +minor | find tasks in all places and states",
        _search,
        refusal=_while_live("/"),
    ),
    KeyRow(key("reread"), _reread, _while_live("r")),
    own(
        "freeze | p | p | freeze | View +minor | freeze the screen to go back in "
        "history; again: live",
        _freeze,
        label=lambda parts: "live" if parts.freeze.time else None,
    ),
    own(
        "clusters | c | c | clusters | View +minor | error clusters of the place under the cursor",
        partial(_go, target=Target(keys.CLUSTERS, state=State.DEAD)),
    ),
    own("earlier | comma | , | - | View | frozen: back in history", partial(_step, direction=-1)),
    own(
        "later | full_stop | . | - | View | frozen: forward in history", partial(_step, direction=1)
    ),
    KeyRow(key("screen"), _open_digit),
    own(
        "alert(-1) | less_than_sign | < | - | View | frozen: the alert before",
        partial(_jump, direction=-1),
    ),
    own(
        "alert(1) | greater_than_sign | > | - | View | frozen: the next alert",
        partial(_jump, direction=1),
    ),
    make.repaint(),
    make.asks(key("yank")),
    make.asks(key("export", keys.PLAN)),
    make.asks(key("plain")),
    make.goes(key("operations"), Target(keys.OPERATIONS)),
    KeyRow(
        key("unlock"),
        _unlock,
        _while_live("U"),
        is_absent=lambda parts: (
            is_read_only(parts) or all(one.place.has_leases for one in parts.sessions)
        ),
    ),
    KeyRow(
        key("controls", keys.SHARED),
        partial(_go, target=Target(keys.CONTROLS)),
        is_absent=lambda parts: not any(one.has_queue_figures for one in parts.sessions),
    ),
    make.arm(Change.EDGES),
    own(
        "worker | W | W | worker | Act +minor | plan to start or stop a worker of the place here",
        _worker,
        refusal=_while_live("W"),
        is_absent=is_read_only,
    ),
    make.asks(key("palette")),
    make.asks(key("help")),
    own("back | escape | Esc | - | Quit | stop the first scan of a queue", back),
    make.app(make.own_key("app.quit | q | q | quit | Quit | quit the console")),
    make.app(key("app.cancel", keys.SHARED)),
    make.app(key("app.suspend_process")),
)
