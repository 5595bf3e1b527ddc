"""The orders that an operator gives to a running operation: pause, rate, stop, undo.

Orders that slow an operation down are always allowed; others need ARMED.
"""

from __future__ import annotations

import re
from functools import partial

from engine.model import State
from engine.replay.progress import Phase
from engine.replay.settings import RemainderPolicy
from engine.store import StoreError
from engine.text.safe import safe_line
from tui.operations.running_parts import RunningParts
from tui.operations.undo_plans import show_undo
from tui.plan.planning import preparing
from tui.screens.base import PASTED, BaseScreen
from tui.screens.console_context import READ_ONLY
from tui.screens.rows_parts import Change
from tui.screens.target import Target
from tui.session.running_operations import RunningOperation
from tui.text import keys

_CLUSTER_MARK = re.compile(r"\bF-[0-9A-F]{4}\b")
"""The name of an error cluster in the reason of a stop."""

SENDING_PHASES = (Phase.STARTING, Phase.SENDING, Phase.WAITING)
"""Phases in which tasks may be sent without an order."""


def _phase(parts: RunningParts) -> Phase | None:
    """The phase of a replay that runs; None for another operation, and after the end."""
    now = parts.work.progress
    return None if now is None or parts.work.ended is not None else now.phase


def is_paused(parts: RunningParts) -> bool:
    """True if it sends nothing until it gets an order."""
    return _phase(parts) in (Phase.PAUSED, Phase.ASKING)


def is_sending(parts: RunningParts) -> bool:
    """True if a replay has tasks to send."""
    return _phase(parts) not in (None, Phase.ENDING)


def is_waiting(parts: RunningParts) -> bool:
    """True if a replay has sent all and waits for outcomes."""
    return _phase(parts) is Phase.ENDING


def can_stop(parts: RunningParts) -> bool:
    """True if there is something to stop."""
    now = parts.work.progress
    is_stopped = now is not None and bool(now.stopped)
    return parts.work.ended is None and not is_stopped and not is_waiting(parts)


# Why an operation that has not ended takes an order not now


def _why_not_more(parts: RunningParts, what: str) -> str:
    if parts.context.arming.read_only:
        return READ_ONLY
    is_armed = parts.context.arming.is_armed
    return "" if is_armed else f"OBSERVE: press ! first: {what} changes more tasks"


def why_no_pause(parts: RunningParts) -> str:
    """Only a replay pauses; resuming needs ARMED."""
    if parts.work.progress is None:
        return "cannot be paused: s stops it"
    return _why_not_more(parts, "resuming") if is_paused(parts) else ""


def why_not_faster(parts: RunningParts) -> str:
    """Only with a rate, and ARMED."""
    now = parts.work.progress
    if now is None or now.pace.rate is None:
        return "no rate limit set"
    return _why_not_more(parts, "going faster")


def why_not_slower(parts: RunningParts) -> str:
    """Only a replay has a rate."""
    return "" if parts.work.progress is not None else "cannot be slowed down: s stops it"


def _holds_rest(parts: RunningParts) -> bool:
    """True if a stop holds the tasks that are not sent."""
    now = parts.work.progress
    return now is not None and now.pace.stops.rest is RemainderPolicy.HOLD and bool(now.unsent)


def why_no_stop(parts: RunningParts) -> str:
    """Once; holding the rest needs ARMED."""
    now = parts.work.progress
    if now is not None and now.stopped:
        return "already stopped"
    return _why_not_more(parts, "holding the rest") if _holds_rest(parts) else ""


def why_no_end(parts: RunningParts) -> str:
    """Only after all was sent."""
    return "" if is_waiting(parts) else "still sending: s stops it"


def why_no_undo(parts: RunningParts) -> str:
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


def pause(parts: RunningParts) -> Change:
    """Pause sending, or resume."""
    if not is_paused(parts):
        return _order(parts, "pause", "paused: Space resumes")
    if _phase(parts) is Phase.ASKING:
        return _order_more(parts, "go_on", "continues")
    return _order_more(parts, "resume", "resumed")


def faster(parts: RunningParts) -> Change:
    """Double the rate."""
    return _order_more(parts, "faster", "twice as fast")


def slower(parts: RunningParts) -> Change:
    """Halve the rate."""
    return _order(parts, "slower", "half as fast")


def stop(parts: RunningParts) -> Change:
    """Stop sending; the rest is handled by the chosen rule."""
    if _holds_rest(parts):
        return _order_more(parts, "stop", "stopped: the rest is held")
    dead = safe_line(parts.session.inspector.states.get(State.DEAD, "its state"))
    fate = "is unchanged" if parts.work.progress is None else f"stays in {dead}"
    return _order(parts, "stop", f"stopped: the rest {fate}")


def leave_open(parts: RunningParts) -> Change:
    """End without waiting for the missing outcomes."""
    return _order(parts, "leave", "ends now")


def plan_undo(parts: RunningParts) -> Change:
    """Open a plan to undo what has not run; a running replay is paused for it."""
    parts.screen.open(lambda screen: parts.screen.run("undo", partial(_plan_undo, parts, screen)))
    return Change.NOTHING


async def _plan_undo(parts: RunningParts, screen: BaseScreen) -> Change:
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


def open_task(parts: RunningParts) -> Change:
    """Open the task of the result under the cursor."""
    ident, number = parts.screen.cursor.key, parts.session.number
    parts.screen.go(Target(keys.TASK, place=number, id=ident))
    return Change.NOTHING


def open_clusters(parts: RunningParts) -> Change:
    """Open the error clusters of the DLQ, with the cursor on the one that stopped it."""
    progress, number = parts.work.progress, parts.session.number
    match = None if progress is None else _CLUSTER_MARK.search(progress.stopped)
    mark = match.group() if match else ""
    parts.screen.go(Target(keys.CLUSTERS, place=number, state=State.DEAD, id=mark))
    return Change.NOTHING
