"""What the keys of the overview do to its parts; each returns what it changed."""

from __future__ import annotations

import asyncio
import time

from tui.overview.focus import AGES, QUEUES
from tui.overview.parts import Change, OverviewParts
from tui.screens.target import SCREEN_TARGETS, Target
from tui.text import keys


def move(parts: OverviewParts, how: str) -> Change:
    """Move the cursor in the focused pane, which reports it."""
    parts.choose()
    parts.focus.panes[parts.focus.pane].move(how)
    return Change.NOTHING


def shift(parts: OverviewParts, by: int) -> Change:
    """Move to a younger or older age class."""
    if parts.focus.pane == AGES:
        parts.ages.shift(by)
    return Change.NOTHING


def focus(parts: OverviewParts, pane: str) -> Change:
    """Go to a pane, if it has rows."""
    parts.choose()
    if parts.can_focus(pane):
        parts.focus.activate(pane)
    return Change.PANES


def next_pane(parts: OverviewParts, by: int) -> Change:
    """Go to the next pane, or with -1 to the previous one."""
    panes = [pane for pane in parts.focus.panes if parts.can_focus(pane)] or [QUEUES]
    at = panes.index(parts.focus.pane) if parts.focus.pane in panes else 0
    return focus(parts, panes[(at + by) % len(panes)])


def next_rows(parts: OverviewParts) -> Change:
    """Show the age table by the next field or state that has data."""

    async def read() -> Change:
        if await parts.reads.next_rows(parts.selected):
            return Change.PANES
        return parts.say("no other field has data")

    if parts.table is not None:
        parts.screen.run("rows by", read)
    return Change.NOTHING


def next_range(parts: OverviewParts) -> Change:
    """Show the next range of the graph."""
    parts.graph.next_range()
    parts.reads.request(parts.selected.number)
    return Change.PANES


def reread(parts: OverviewParts) -> Change:
    """Scan all places again."""

    async def scan() -> Change:
        await asyncio.gather(*(session.inspector.scan_now() for session in parts.sessions))
        parts.reads.request(parts.selected.number)
        return parts.say("all places scanned again")

    parts.screen.run("reread", scan)
    return Change.NOTHING


# The time shown


def freeze(parts: OverviewParts) -> Change:
    """Freeze the screen, or return to live."""
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


def step(parts: OverviewParts, direction: int) -> Change:
    """Step back (-1) or forward (1) in recorded time."""
    if refusal := parts.freeze.step(direction, time.monotonic()):
        return parts.say(refusal)
    parts.message.clear()
    return Change.PANES


def back(parts: OverviewParts) -> Change:
    """Return to live; otherwise stop the first scan of the place under the cursor."""
    if parts.freeze.time is not None:
        return freeze(parts)
    if not is_scanning(parts):
        return parts.say("nothing to stop; q quits")
    parts.selected.inspector.stop_first_scan()
    return Change.NOTHING


def is_scanning(parts: OverviewParts) -> bool:
    """True if the first scan of the place under the cursor runs."""
    latest = parts.selected.inspector.latest
    return not (latest.is_complete or latest.is_stopped)


# Other screens


def go(parts: OverviewParts, target: Target) -> Change:
    """Open a screen for the place under the cursor."""
    if refusal := parts.why_unseen():
        return parts.say(refusal)
    parts.screen.go(target._replace(place=parts.selected.number))
    return Change.NOTHING


def open_row(parts: OverviewParts) -> Change:
    """Open what the row under the cursor is about, or the tasks of the cell."""
    is_cell = parts.focus.pane == AGES
    target = parts.cell_target if is_cell else parts.focus.target
    if target is not None:
        return go(parts, target)
    refusal = parts.why_unseen() or ("no cell to open" if is_cell else "")
    return parts.say(refusal) if refusal else Change.NOTHING


def open_digit(parts: OverviewParts, digit: str) -> Change:
    """Open the screen with that digit for the place under the cursor."""
    parts.screen.go(SCREEN_TARGETS[digit]._replace(place=parts.selected.number))
    return Change.NOTHING


def unlock(parts: OverviewParts) -> Change:
    """Open the lock screen of the place whose alert shows this key, or of the one here."""
    session = parts.place_to_unlock
    refusal = parts.why_unseen(needs_row=False)
    refusal = refusal or session.place.why_no_unlock(parts.context.arming.read_only)
    if refusal:
        return parts.say(refusal)
    parts.screen.go(Target(keys.LOCK, place=session.number))
    return Change.NOTHING


def worker(parts: OverviewParts) -> Change:
    """Open the plan to start a worker of the place, or to stop the one started here."""
    from tui.operations.worker_action import show_worker_plan

    if refusal := parts.why_unseen(needs_row=False):
        return parts.say(refusal)
    session = parts.selected
    parts.screen.open(lambda screen: show_worker_plan(screen, session, parts.context))
    return Change.NOTHING
