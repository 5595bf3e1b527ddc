"""Why a verb or a control cannot be planned now, what can be planned in its place; the key row of a
verb."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from itertools import islice
from typing import Protocol, TypeVar

from engine.model import State, Task
from engine.operations.execute import Report
from engine.operations.plans import bar_reason
from engine.operations.plans import verb_refusal as edge_refusal
from engine.verbs import VERBS, edges_of
from tui.plan import planning
from tui.screens.console_context import READ_ONLY, ConsoleContext
from tui.screens.key_rows import KeyRow
from tui.session.place_session import PlaceSession
from tui.text.keys import Key

TASK_JUST_CHANGED = "task changed just now: check it, press the key again"
"""Refusal if the task changed just before the key was pressed."""

MAX_OTHER_VERBS = 3
"""Number of verbs that a refusal names as the next step."""

NO_PAUSE, NO_TASK = "this queue cannot be paused", "no task to act on"


def pause_control(session: PlaceSession) -> str:
    """Name of the control that pauses and resumes the queue; "" if none."""
    return next((name for name, each in session.inspector.controls.items() if each.is_pause), "")


def control_refusal(
    session: PlaceSession, context: ConsoleContext, name: str, target: str = ""
) -> str:
    """Why a control cannot be planned; "" if it can. An empty name means the pause control."""
    if context.arming.read_only:
        return READ_ONLY
    if session.inspector.latest.unavailable:
        return "place unavailable"
    control = session.inspector.controls.get(name)
    if control is None:
        return "no such control" if name else NO_PAUSE
    refusal = control.for_target(target).refusal
    return f"{name}: {refusal}" if refusal else ""


def verb_refusal(
    session: PlaceSession,
    context: ConsoleContext,
    verb: str,
    state: State | None,
    task: Task | None = None,
) -> str:
    """Why a verb is not available for tasks in a state, or for one `task`; "" if it is."""
    if context.arming.read_only:
        return READ_ONLY
    inspector = session.inspector
    if state is None or inspector.latest.unavailable:
        return "place unavailable"
    verb = planning.verb_in_state(verb, state, inspector.edges)
    reason = edge_refusal(inspector.edges, verb, state, inspector.states.get(state, ""))
    if reason is None:
        reason = planning.why_not_now(session, {state}) or None
    if reason is None and task is not None:
        reason = bar_reason(inspector.edges, verb, task, now=context.clock()) or None
    return "" if reason is None else f"{verb}: {reason}"


def other_verbs(
    session: PlaceSession,
    context: ConsoleContext,
    keys: Iterable[Key],
    state: State | None,
    task: Task | None = None,
) -> str:
    """The next step after a verb was refused: the first of `keys` that are not; "" without any."""
    offered = (
        f"{key.shown} {planning.verb_in_state(key.verb, state, session.inspector.edges)}"
        for key in keys
        if key.verb and not verb_refusal(session, context, key.verb, state, task)
    )
    words = ", ".join(islice(offered, MAX_OTHER_VERBS))
    return f"; next: {words}" if words else ""


def describe_report(report: Report) -> str:
    """The result of an applied plan, for the message line."""
    verb = VERBS[report.plan.verb]
    step = "; next: u undo" if report.is_undoable else ""
    return (
        f"{len(report.done):,} {verb.past}, {len(report.gone):,} skipped,"
        f" {len(report.failed):,} failed{step}"
    )


C = TypeVar("C")


class VerbParts(Protocol):
    """What the parts of a screen with verbs have."""

    session: PlaceSession
    context: ConsoleContext

    @property
    def verb_state(self) -> State | None:
        """State of the tasks that a verb would act on; None if there are none."""

    @property
    def verb_amount(self) -> tuple[int, bool]:
        """How many they are, and whether each was picked by hand."""

    def verb_refusal(self, verb: str) -> str:
        """Why a verb is not available for them; "" if it is."""


P = TypeVar("P", bound=VerbParts)


def verb_row(key: Key, act: Callable[..., C], advice: Callable[[P], str]) -> KeyRow[P, C]:
    """A key that plans a verb, or what that means in this state and store. `act` gets the parts,
    and the verb of the key as `verb`; `advice` is said behind a refusal."""

    def label(parts: P) -> str | None:
        edges, state = parts.session.inspector.edges, parts.verb_state
        meant = planning.verb_in_state(key.verb, state, edges)
        if state is None or not edges_of(edges, meant, state):
            return ""  # for tasks in other states: it would displace those that work here
        amount, picked = parts.verb_amount
        name = planning.usual_name(meant, amount, picked=picked)
        return None if name == key.hint else name

    def is_absent(parts: P) -> bool:
        has_verb = planning.has_verb(parts.session.inspector.edges, key.verb)
        return parts.context.arming.read_only or not has_verb

    return KeyRow(
        key,
        partial(act, verb=key.verb),
        refusal=lambda parts: parts.verb_refusal(key.verb),
        advice=advice,
        is_absent=is_absent,
        label=label,
    )
