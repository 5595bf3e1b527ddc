"""The orders to a running operation and their keys, without an app."""

from __future__ import annotations

import pytest

from engine.model import State
from engine.operations.execute import Report
from engine.operations.journal import Intent
from engine.operations.plans import freeze_plan
from engine.replay.progress import Phase, ReplayProgress
from engine.replay.settings import RemainderPolicy, ReplayPace, StopRules
from tests.console_places import Clock, a_memory, a_place, a_task
from tests.tui.asked_screen import AskedRowsScreen
from tui.operations.running_parts import RunningParts
from tui.operations.running_screen import ROWS
from tui.screens.base import PASTED
from tui.screens.console_context import Arming, ConsoleContext
from tui.screens.key_rows import absent_actions, hints_of, press
from tui.screens.target import Target
from tui.session.place_session import PlaceSession
from tui.session.running_operations import RunningOperation
from tui.text import keys

HOLDS_REST = ReplayPace(2.0, (1,), stops=StopRules(rest=RemainderPolicy.HOLD))
ORDER_KEYS = {"Space", "+", "-", "s", "w"}


class NotedOperation(RunningOperation):
    """An operation that notes its orders."""

    result = None

    def __init__(self, progress: ReplayProgress | None, ended: float | None = None) -> None:
        clock = Clock()
        plan = freeze_plan("retry", [a_task(1, State.DEAD)], clock())
        super().__init__(plan, Intent("retry", a_place(a_memory([])).who), clock)
        self.progress, self.ended, self.counts = progress, ended, {}
        self.report = None if ended is None else Report(plan, ("1",), (), ())
        self.orders: list[str] = []

    def _pass_order(self, name: str) -> None:
        self.orders.append(name)


class Operator:
    """Presses the keys of a running operation."""

    def __init__(self, work: NotedOperation, *, armed: bool) -> None:
        clock, self.work, self.screen = Clock(), work, AskedRowsScreen()
        context = ConsoleContext("mx1", Arming(clock, False), clock, places=1)
        if armed:
            context.arming.toggle()
        session = PlaceSession(a_place(a_memory([])), clock)
        self.parts = RunningParts(work, session, context, self.screen)

    def press(self, pressed: str) -> str:
        """Press a key; the message."""
        self.parts.message.clear()
        press(ROWS, pressed, self.parts, self.parts.say)
        return self.parts.message.text

    @property
    def offered(self) -> dict[str, tuple[str, bool]]:
        """The hints of the orders: their words, and whether they are refused."""
        hints = hints_of(ROWS, self.parts)
        return {h.shown: (h.text, h.is_refused) for h in hints if h.shown in ORDER_KEYS}


@pytest.mark.parametrize("armed", [False, True])
def test_only_an_order_that_changes_more_needs_armed(armed: bool) -> None:
    """In OBSERVE orders that change more tasks are grey, and refused."""
    paused = NotedOperation(ReplayProgress(Phase.PAUSED, pace=HOLDS_REST, unsent=3))
    operator = Operator(paused, armed=armed)
    rows = (
        ("space", "Space", "resume", "resumed", "resuming"),
        ("+", "+", "faster", "twice as fast", "going faster"),
        ("-", "-", "slower", "half as fast", ""),
        ("s", "s", "stop", "stopped: the rest is held", "holding the rest"),
    )
    assert operator.offered == {
        shown: (text, not armed and bool(refused)) for _, shown, text, _, refused in rows
    }
    for pressed, _, _, done, refused in rows:
        refusal = f"OBSERVE: press ! first: {refused} changes more tasks"
        assert operator.press(pressed) == (done if armed or not refused else refusal)
    assert paused.orders == (["resume", "faster", "slower", "stop"] if armed else ["slower"])


def test_pasted_text_resumes_nothing() -> None:
    """A pasted key does not change more tasks, also while the console is armed."""
    asking = NotedOperation(ReplayProgress(Phase.ASKING))
    operator = Operator(asking, armed=True)
    operator.screen.is_pasted = True
    assert operator.press("space") == PASTED
    operator.screen.is_pasted = False
    assert operator.press("space") == "continues"
    assert asking.orders == ["go_on"]


@pytest.mark.parametrize(
    ("progress", "ended", "offered", "refusals"),
    [
        (ReplayProgress(Phase.SENDING), None, "Space + - s", {}),
        (
            ReplayProgress(Phase.SENDING, stopped="by ana"),
            None,
            "Space + -",
            {"s": "already stopped", "w": "still sending: s stops it"},
        ),
        (ReplayProgress(Phase.ENDING), None, "w", {}),
        (ReplayProgress(Phase.OVER), 1.0, "", {"-": "already ended", "w": "already ended"}),
        (
            None,
            None,
            "s",
            {
                "space": "cannot be paused: s stops it",
                "-": "cannot be slowed down: s stops it",
                "+": "no rate limit set",
                "s": "stopped: the rest is unchanged",
            },
        ),
        (None, 1.0, "", {"-": "already ended", "w": "already ended"}),
    ],
)
def test_the_orders_are_those_of_the_phase(
    progress: ReplayProgress | None, ended: float | None, offered: str, refusals: dict[str, str]
) -> None:
    """An order without a use now has no hint, and its key says why."""
    operator = Operator(NotedOperation(progress, ended), armed=True)
    assert set(operator.offered) == {*offered.split()}
    assert ("clusters" in absent_actions(ROWS, operator.parts)) == (progress is None)
    assert {key: operator.press(key) for key in refusals} == refusals


def test_the_clusters_are_opened_on_the_one_that_stopped_it() -> None:
    """The name of a cluster in the reason of a stop is the row that gets the cursor."""
    stopped = NotedOperation(ReplayProgress(Phase.ENDING, stopped="2 x F-0A1B in a row"))
    operator = Operator(stopped, armed=False)
    operator.press("c")
    (target,) = operator.screen.targets
    number = operator.parts.session.number
    assert target == Target(keys.CLUSTERS, place=number, state=State.DEAD, id="F-0A1B")
