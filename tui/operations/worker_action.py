"""Start a worker for a place, or stop the one started by this console."""

from __future__ import annotations

import asyncio
import shlex

from engine.model import State, Verdict
from engine.text.figures import format_count
from engine.text.safe import safe_line
from tui.confirm.action import Action, Fact, Reason
from tui.confirm.action_screen import show_action
from tui.screens.base import PASTED, BaseScreen
from tui.screens.console_context import READ_ONLY, ConsoleContext
from tui.session.place_session import PlaceSession
from tui.text import keys
from tui.text.lines import Line, Run, folded_lines

CHECK_SECONDS = 1.0


def show_worker_plan(screen: BaseScreen, session: PlaceSession, context: ConsoleContext) -> None:
    """Open the plan to start a worker, or to stop the one started here; or show why there is
    none.
    """
    if context.arming.read_only:
        screen.say(READ_ONLY)
    elif not session.place.worker_command:
        why = f": {session.place.no_worker}" if session.place.no_worker else ""
        screen.say(f"no worker to start here{why}")
    elif screen.is_pasted:
        screen.say(PASTED)
    else:
        action = WorkerAction(session)

        def follow() -> None:
            if action.starts:
                screen.app.run_worker(_report_end(session), name="worker", group="worker")

        show_action(screen, action, session, context, follow)


async def _report_end(session: PlaceSession) -> None:
    """Report the end of a worker that was started here."""
    worker = session.worker
    while worker.pid is not None:
        await asyncio.sleep(CHECK_SECONDS)
        if worker.has_ended and (words := await asyncio.to_thread(worker.describe_end)):
            session.messages.append(words)


class WorkerAction(Action):
    """The command to run, or the process to stop, as of opening."""

    kind = keys.WORKER
    digits_name = "PID"

    def __init__(self, session: PlaceSession) -> None:
        self._session = session
        self._stops = session.worker.pid
        """The worker to stop; None starts one."""
        self._ends = self._pid_to_end()
        """The stuck holder that a started worker ends."""
        stops = self._stops
        self.hint = "start a worker" if stops is None else f"stop worker PID {stops}"
        ends = "" if self._ends is None else f", end PID {self._ends}"
        self.acts_on = safe_line(session.name)
        self.title = ((self.hint + ends, "title"), (f" {self.acts_on}", "strong"))
        self.basis = self.facts()

    @property
    def starts(self) -> bool:
        """True to start a worker, False to stop one."""
        return self._stops is None

    @property
    def prompt(self) -> str:
        return self.hint

    @property
    def expected_digits(self) -> str:
        return "" if self._ends is None else f"{self._ends}"

    def _pid_to_end(self) -> int | None:
        """The stuck lock holder that a started worker signals; None if there is none."""
        lock = self._session.readings.lock
        if self._stops is not None or lock is None or lock.verdict is not Verdict.STUCK:
            return None
        return None if lock.signal_refusal else lock.pid

    def facts(self) -> tuple[Fact, ...]:
        worker = Fact(self._session.worker.pid, "the worker changed")
        return worker, Fact(self._pid_to_end(), "the lock changed")

    def refusal(self) -> str:
        lock = self._session.readings.lock
        if self._stops is None and lock is not None and lock.verdict is Verdict.HELD:
            holder = "" if lock.pid is None else f" by PID {lock.pid}"
            return f"nothing to start: the lock is held{holder}"
        return ""

    def lines(self, now: float, width: int, reason: Reason) -> list[Line]:
        stopped = f"SIGTERM to PID {self._stops}: it finishes its claimed tasks and exits"
        words = self._start_words() if self._stops is None else [stopped]
        return [line for sentence in words for line in folded_lines(sentence, width)]

    def _start_words(self) -> list[str]:
        session, lock = self._session, self._session.readings.lock
        waiting = session.inspector.latest.counts.get(State.PENDING, 0)
        words = [
            f"runs: {safe_line(shlex.join(session.place.worker_command))}",
            f"runs {format_count(waiting, 'pending task')} and sends due mail until "
            "W stops it; quit asks whether to stop it",
        ]
        if lock is not None and lock.verdict is Verdict.STUCK:
            effect = f"the worker ends its holder, PID {lock.pid}"
            effect = f"not signalled: {lock.signal_refusal}" if lock.signal_refusal else effect
            words.append(f"the lock is stuck: {safe_line(effect)}")
        return words

    async def apply(self, reason: str) -> Run:
        worker = self._session.worker
        act = worker.start if self._stops is None else worker.stop
        return await asyncio.to_thread(act), "ok"
