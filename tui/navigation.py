"""Open the screen of a target: make it, and close the screens that it replaces."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from textual.app import App
from textual.screen import Screen

from engine.index.schema import Query
from engine.model import State
from tui.screens.base import BaseScreen
from tui.screens.console_context import ConsoleContext
from tui.screens.target import Target
from tui.session.index_queries import failed_state
from tui.session.place_session import PlaceSession
from tui.text import keys
from tui.widgets.background import run_in_background

if TYPE_CHECKING:
    from tui.confirm.action_screen import Action
    from tui.queue.screen import QueueScreen

S = TypeVar("S", bound=Screen[Any])

KEPT_KINDS = frozenset({keys.OVERVIEW, keys.LIST, keys.TASK, keys.SEARCH})
"""Screens that stay open below a main screen; Esc leads back to them, and to plans."""


class Navigator:
    """The open place, its queue screens, and the stack of screens."""

    def __init__(
        self, app: App[Any], context: ConsoleContext, sessions: Sequence[PlaceSession]
    ) -> None:
        self.app, self.context, self.sessions = app, context, sessions
        self.queues: dict[int, QueueScreen] = {}
        """The queue screens made so far, by the number of their place."""
        self._place_number = 1

    @property
    def session(self) -> PlaceSession:
        """The place that is open now."""
        return self.sessions[self._place_number - 1]

    def queue_screen(self) -> QueueScreen:
        """The queue screen of the place; it keeps its state."""
        from tui.queue.screen import QueueScreen

        number = self._place_number
        if number not in self.queues:
            screen = self.queues[number] = QueueScreen(self.sessions[number - 1], self.context)
            self.app.install_screen(screen, f"queue {number}")  # keeps the screen when it is closed
        return self.queues[number]

    def goto(self, target: Target) -> None:
        """Open a screen: close the screens above it, and open those it needs below it."""
        self._place_number = target.place or self._place_number
        OPENERS[target.pane](self, target)

    def push_or_switch(self, screen: BaseScreen) -> None:
        """Open a screen above the open one, or in place of another one of its kind."""
        if type(self.app.screen) is type(screen):
            self.app.switch_screen(screen)
        else:
            self.app.push_screen(screen)

    def show_board(self, screen: BaseScreen) -> None:
        """Open a main screen in place of the open one."""
        self.close_boards()
        self.app.push_screen(screen)

    def close_boards(self) -> None:
        """Close the screens above an overview, a queue, a task or a plan; Esc then leads there."""
        while (
            isinstance(screen := self.app.screen, BaseScreen)
            and screen.guard is None  # not a plan
            and screen.KIND not in KEPT_KINDS
        ):
            self.app.pop_screen()

    def find(self, kind: type[S]) -> S | None:
        """The lowest open screen of that kind."""
        return next((one for one in self.app.screen_stack if isinstance(one, kind)), None)

    def close_above(self, screen: Screen[Any]) -> None:
        """Close all screens above an open one."""
        while self.app.screen is not screen:
            self.app.pop_screen()


def _open_overview(to: Navigator, target: Target) -> None:
    from tui.overview.screen import OverviewScreen

    if (screen := to.find(OverviewScreen)) is not None:
        to.close_above(screen)
    else:
        to.app.push_screen(OverviewScreen(to.sessions, to.context))


def _open_list(to: Navigator, target: Target) -> None:
    screen = to.queue_screen()
    screen.aim(target)
    opened = [other for other in to.queues.values() if other in to.app.screen_stack]
    if not opened:
        to.show_board(screen)
        return
    to.close_above(opened[0])
    if opened[0] is not screen:
        to.app.switch_screen(screen)


def _open_workers(to: Navigator, target: Target) -> None:
    from tui.operations.workers_screen import WorkersScreen

    to.show_board(WorkersScreen(to.session, to.context, to.sessions))


def _open_locks(to: Navigator, target: Target) -> None:
    from tui.locks.list_screen import LocksScreen

    to.show_board(LocksScreen(to.session, to.context, to.sessions))


def _open_transports(to: Navigator, target: Target) -> None:
    from tui.transports.screen import TransportsScreen

    to.show_board(TransportsScreen(to.session, to.context, target.id))


def _open_controls(to: Navigator, target: Target) -> None:
    from tui.operations.controls_screen import ControlsScreen

    to.show_board(ControlsScreen(to.session, to.context))


def _open_schedules(to: Navigator, target: Target) -> None:
    from tui.operations.schedules_screen import SchedulesScreen

    to.show_board(SchedulesScreen(to.session, to.context))


def _open_log(to: Navigator, target: Target) -> None:
    from tui.log.screen import LogScreen

    screen = LogScreen(to.session, to.context, find=target.id, at=target.at, line=target.line)
    if target.id or target.at is not None:
        to.app.push_screen(screen)  # Esc leads back to the task or the error
    else:
        to.show_board(screen)


def _open_failures(to: Navigator, target: Target) -> None:
    from tui.transports.screen import FailuresScreen

    to.app.push_screen(FailuresScreen(to.session, to.context, target.id))


def _open_test_mail(to: Navigator, target: Target) -> None:
    from tui.transports.actions import MailTestAction

    _show_action(to, MailTestAction(target.id, to.session))


def _open_suspend(to: Navigator, target: Target) -> None:
    """Suspend or resume a transport, or block, unblock or probe a destination."""
    from tui.transports.actions import DestinationAction, SuspendAction

    session, place = to.session, to.session.place
    if place.destinations is not None and "://" in target.id:
        _show_action(to, DestinationAction(target.id, target.action, session, place.destinations))
    elif place.mail is not None and session.readings.routes is not None:
        _show_action(to, SuspendAction(target.id, session, place.mail))


def _show_action(to: Navigator, action: Action) -> None:
    from tui.confirm.action_screen import show_action

    if isinstance(below := to.app.screen, BaseScreen):
        show_action(below, action, to.session, to.context)


def _open_groups_or_clusters(to: Navigator, target: Target) -> None:
    from tui.groups.screen import ClustersScreen, GroupsScreen

    screen_type = ClustersScreen if target.pane == keys.CLUSTERS else GroupsScreen
    state = failed_state(to.session) if target.state is State.DEAD else target.state
    query = to.queue_screen().parts.query if state is None else Query(state)
    to.push_or_switch(screen_type(to.session, to.context, query, target.id))


def _open_search(to: Navigator, target: Target) -> None:
    """Search all places for the text of the target."""
    from tui.queue.search_screen import SearchScreen

    text = target.filter or ""
    to.push_or_switch(SearchScreen(to.session, to.context, to.sessions, text))


def _open_operations(to: Navigator, target: Target) -> None:
    from tui.operations.screen import OperationsScreen, row_key

    if (screen := to.find(OperationsScreen)) is not None:
        screen.parts.aim = row_key(to.session.number, target.id)
        to.close_above(screen)
    else:
        to.app.push_screen(OperationsScreen(to.session, to.context, to.sessions, target.id))


def _open_operation(to: Navigator, target: Target) -> None:
    """Open the running operation with that journal id; without an id, the latest one."""
    from tui.operations.running_screen import ReplayScreen
    from tui.plan.screen import PlanScreen

    operations = to.session.operations
    if works := [work for work in operations if work.op == target.id] or operations:
        screen = ReplayScreen(works[-1], to.session, to.context)
        is_plan = isinstance(to.app.screen, PlanScreen)
        (to.app.switch_screen if is_plan else to.app.push_screen)(screen)


def _open_task(to: Navigator, target: Target) -> None:
    from tui.task.screen import TaskScreen

    to.push_or_switch(TaskScreen(target.id, to.session, to.context))


def _open_lock(to: Navigator, target: Target) -> None:
    from tui.locks.screen import LockScreen

    session = to.session

    def begin(identity: str, hold: Sequence[str]) -> None:
        freeing = session.recovery.run(identity, hold)  # started first: the screen shows its output

        async def show_outcome() -> None:
            outcome = await freeing
            screens = [screen for screen in to.app.screen_stack if isinstance(screen, BaseScreen)]
            next(screen for screen in reversed(screens) if screen.KIND != keys.LOCK).say(outcome)

        run_in_background(to.app, show_outcome, name="recovery", group="recovery")

    to.push_or_switch(LockScreen(session, begin, to.context))


OPENERS: Mapping[str, Callable[[Navigator, Target], None]] = {
    keys.OVERVIEW: _open_overview,
    keys.LIST: _open_list,
    keys.WORKERS: _open_workers,
    keys.LOCKS: _open_locks,
    keys.TRANSPORTS: _open_transports,
    keys.CONTROLS: _open_controls,
    keys.SCHEDULES: _open_schedules,
    keys.LOG: _open_log,
    keys.FAILURES: _open_failures,
    keys.SUSPEND: _open_suspend,
    keys.TEST_MAIL: _open_test_mail,
    keys.CLUSTERS: _open_groups_or_clusters,
    keys.GROUPS: _open_groups_or_clusters,
    keys.OPERATIONS: _open_operations,
    keys.RUNNING_OPERATION: _open_operation,
    keys.TASK: _open_task,
    keys.SEARCH: _open_search,
    keys.LOCK: _open_lock,
}
