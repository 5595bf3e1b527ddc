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
    """In OBSERVE resuming, going faster and holding the rest are grey, and refused with the key
    that arms.
    """
    paused = NotedOperation(ReplayProgress(Phase.PAUSED, pace=HOLDS_REST, unsent=3))
    operator = Operator(paused, armed=armed)
    assert operator.offered == {
        "Space": ("resume", not armed),
        "+": ("faster", not armed),
        "-": ("slower", False),
        "s": ("stop", not armed),
    }
    said = [operator.press(pressed) for pressed in ("space", "+", "-", "s")]
    if armed:
        assert said == ["resumed", "twice as fast", "half as fast", "stopped: the rest is held"]
        assert paused.orders == ["resume", "faster", "slower", "stop"]
    else:
        first = "OBSERVE: press ! first"
        assert said[0] == f"{first}: resuming changes more tasks"
        assert said[1:3] == [f"{first}: going faster changes more tasks", "half as fast"]
        assert said[3] == f"{first}: holding the rest changes more tasks"
        assert paused.orders == ["slower"]


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
    ("progress", "ended", "offered"),
    [
        (ReplayProgress(Phase.SENDING), None, {"Space", "+", "-", "s"}),
        (ReplayProgress(Phase.SENDING, stopped="by ana"), None, {"Space", "+", "-"}),
        (ReplayProgress(Phase.ENDING), None, {"w"}),
        (ReplayProgress(Phase.OVER), 1.0, set()),
        (None, None, {"s"}),
        (None, 1.0, set()),
    ],
)
def test_the_orders_are_those_of_the_phase(
    progress: ReplayProgress | None, ended: float | None, offered: set[str]
) -> None:
    """An order without a use now has no hint, and its key says why; clusters are those of a
    replay.
    """
    operator = Operator(NotedOperation(progress, ended), armed=True)
    assert set(operator.offered) == offered
    assert ("clusters" in absent_actions(ROWS, operator.parts)) == (progress is None)
    if ended is not None:
        assert operator.press("-") == operator.press("w") == "already ended"
    elif progress is None:
        assert operator.press("space") == "cannot be paused: s stops it"
        assert operator.press("-") == "cannot be slowed down: s stops it"
        assert operator.press("+") == "no rate limit set"
        assert operator.press("s") == "stopped: the rest is unchanged"
    elif progress.stopped:
        assert operator.press("s") == "already stopped"
        assert operator.press("w") == "still sending: s stops it"


def test_the_clusters_are_opened_on_the_one_that_stopped_it() -> None:
    """The name of a cluster in the reason of a stop is the row that gets the cursor."""
    stopped = NotedOperation(ReplayProgress(Phase.ENDING, stopped="2 x F-0A1B in a row"))
    operator = Operator(stopped, armed=False)
    operator.press("c")
    (target,) = operator.screen.targets
    number = operator.parts.session.number
    assert target == Target(keys.CLUSTERS, place=number, state=State.DEAD, id="F-0A1B")
