"""Confirm starting a worker for a place, or stopping the one started by this console."""

from __future__ import annotations

import asyncio
import shlex

from engine.model import State, Verdict
from engine.text.safe import safe_line
from tui.plan.confirm_screen import ConfirmScreen
from tui.screens.base import PASTED, BaseScreen, key_bindings
from tui.screens.console_context import ConsoleContext
from tui.session.place_session import PlaceSession
from tui.text import keys
from tui.text.figures import format_count
from tui.text.lines import Line, folded_lines

CHECK_SECONDS = 1.0
"""Seconds between two checks whether a started worker has ended."""


def show_worker_plan(screen: BaseScreen, session: PlaceSession, context: ConsoleContext) -> None:
    """Open the plan to start a worker, or to stop the one started here; or show why there is
    none.
    """
    if context.arming.read_only:
        screen.say("read only: started with --read-only")
    elif not session.place.worker_command:
        why = f": {session.place.no_worker}" if session.place.no_worker else ""
        screen.say(f"no worker to start here{why}")
    elif screen.hasty:
        screen.say(PASTED)
    else:
        plan_screen = WorkerScreen(session, context)

        def back(_: None) -> None:
            if plan_screen.is_confirmed and plan_screen.pid == session.worker.pid:
                screen.app.run_worker(
                    _start_or_stop(screen, session), name="worker", group="worker"
                )

        screen.app.push_screen(plan_screen, back)


async def _start_or_stop(screen: BaseScreen, session: PlaceSession) -> None:
    """Run on a thread; after a start, report the end of the worker."""
    worker = session.worker
    if worker.pid is not None:
        screen.say(await asyncio.to_thread(worker.stop))
        return
    screen.say(await asyncio.to_thread(worker.start))
    while worker.pid is not None:
        await asyncio.sleep(CHECK_SECONDS)
        if worker.has_ended and (words := await asyncio.to_thread(worker.describe_end)):
            session.messages.append(words)


class WorkerScreen(ConfirmScreen):
    """The command to run, or the process to stop, as of opening."""

    KIND = keys.WORKER
    BINDINGS = key_bindings(keys.WORKER)
    DIGITS_NAME = "PID"

    def __init__(self, session: PlaceSession, context: ConsoleContext) -> None:
        super().__init__(session, context)
        self.pid = session.worker.pid
        """The worker to stop; None starts one."""
        self._ended_pid = self._pid_to_end()
        """The stuck holder that a started worker ends, as of opening."""
        self.is_confirmed = False
        """True if the operator confirmed."""

    @property
    def expected_digits(self) -> str:
        """The PID of the stuck holder that a started worker ends; else `y` is enough."""
        return "" if self._ended_pid is None else f"{self._ended_pid}"

    def _pid_to_end(self) -> int | None:
        """The stuck lock holder that a started worker signals; None if missing."""
        lock = self._session.readings.lock
        if self.pid is not None or lock is None or lock.verdict is not Verdict.STUCK:
            return None
        return None if lock.signal_refusal else lock.pid

    def why_not_applicable(self) -> str:
        """Refuse if worker or stuck holder changed, the plan was confirmed or a worker runs."""
        if self.is_confirmed:
            return "already running"
        if self._session.worker.pid != self.pid:
            return "the worker changed: Esc, then W again"
        lock = self._session.readings.lock
        if self.pid is None and lock is not None and lock.verdict is Verdict.HELD:
            holder = "" if lock.pid is None else f" by PID {lock.pid}"
            return f"nothing to start: the lock is held{holder}"
        if self._pid_to_end() != self._ended_pid:
            return "the lock changed: Esc, then W again"
        return ""

    def lay_out(self, width: int) -> None:
        """The effect; for a start also the command, pending tasks and the lock holder."""
        if not self.is_paintable or not width:
            return
        verb = "start a worker" if self.pid is None else f"stop worker PID {self.pid}"
        words = self._start_words() if self.pid is None else self._stop_words()
        text: list[Line] = []
        for sentence in words:
            text += folded_lines(sentence, self.text_width)
        settled = self.why_not_applicable()
        end_words = "" if self._ended_pid is None else f", end PID {self._ended_pid}"
        prompt = f"type the PID {self._ended_pid} to {verb}"
        ask: Line = ((f" {settled}", "warn"),) if settled else self.confirm_prompt(prompt, verb)
        self.show((), text, ask)
        name = safe_line(self._session.name)
        self.show_title(((verb + end_words, "title"), (f" {name}", "strong")), name)
        words_ = {"arm": keys.arm_hint(self._arming.is_armed), "yes": verb}
        self.show_hints(self.disabled_actions(), self.without(), words_)

    def _start_words(self) -> list[str]:
        session, lock = self._session, self._session.readings.lock
        waiting = session.inspector.latest.counts.get(State.PENDING, 0)
        words = [
            f"runs: {safe_line(shlex.join(session.place.worker_command))}",
            f"runs {format_count(waiting, 'pending task')} and sends due mail until "
            "W stops it; quit asks whether to stop it",
        ]
        if lock is not None and lock.verdict is Verdict.STUCK:
            effect = (
                f"not signalled: {lock.signal_refusal}"
                if lock.signal_refusal
                else f"the worker ends its holder, PID {lock.pid}"
            )
            words.append(f"the lock is stuck: {safe_line(effect)}")
        return words

    def _stop_words(self) -> list[str]:
        return [f"SIGTERM to PID {self.pid}: it finishes its claimed tasks and exits"]

    def apply_plan(self) -> None:
        """Confirm; the screen below starts or stops the worker."""
        self.is_confirmed = True
        self.dismiss()
