"""Plan to start a worker for a place, or to stop the one that this console started; `y` does it."""

from __future__ import annotations

import shlex

from engine.model import State, Verdict
from engine.text.safe import shown
from tui.format import keys, present
from tui.format.present import Line
from tui.plan.confirm_screen import ConfirmScreen
from tui.screens.console_context import ConsoleContext
from tui.session.place_session import PlaceSession


class WorkerScreen(ConfirmScreen):
    """What would be run, or which process would be stopped, as it was when this was opened."""

    KIND = keys.WORKER
    BINDINGS = keys.bindings(keys.WORKER)
    WANTS = "count"

    def __init__(self, live: PlaceSession, around: ConsoleContext) -> None:
        super().__init__(around.arming, around.clock)
        self._live = live
        self.pid = live.worker.pid
        """The worker that would be stopped; None: one would be started."""
        self.agreed = False
        """Whether the operator confirmed it."""

    @property
    def wanted(self) -> str:
        """Both can be undone by the other: `y` is enough."""
        return ""

    def settled(self) -> str:
        """The worker is not the one that was planned for, or it was confirmed."""
        if self.agreed:
            return "it is being done"
        if self._live.worker.pid != self.pid:
            return "the worker has changed: Esc, then W plans again"
        return ""

    def lay_out(self, width: int) -> None:
        """What would happen, and for a start the command, what waits, and who has the lock."""
        if not self.stands or not width:
            return
        verb = "start a worker" if self.pid is None else f"stop worker PID {self.pid}"
        words = self._start_words() if self.pid is None else self._stop_words()
        text: list[Line] = [present.heading("what would happen", width)]
        for sentence in words:
            text += [((f"  {piece}", ""),) for piece in present.folded(sentence, max(8, width - 3))]
        settled = self.settled()
        ask: Line = ((f" {settled}", "warning"),) if settled else self.question("", verb)
        self.show((), text, ask)
        self.show_title(((f" {verb}", "strong"), ("   plan, nothing is done yet", "dim")))
        words_ = {"arm": keys.arm_words(self._arming.armed), "yes": verb}
        self.show_hints(self.grey(), self.without(), words_)

    def _start_words(self) -> list[str]:
        live, lock = self._live, self._live.signs.lock
        waiting = live.inspector.latest.counts.get(State.PENDING, 0)
        words = [
            f"runs: {shown(shlex.join(live.place.work))}",
            f"works on {present.count(waiting, 'pending task')}, and sends mail that is due, until "
            "W stops it; quitting asks whether to stop it",
        ]
        if lock is not None and lock.verdict is Verdict.STUCK:
            ends = (
                f"not signalled: {lock.doubt}" if lock.doubt else f"ends its holder, PID {lock.pid}"
            )
            words.append(f"the lock is stuck: {shown(ends)}")
        elif lock is not None and lock.verdict is Verdict.HELD:
            words.append(f"the lock is held by PID {lock.pid}: a second worker ends without work")
        return words

    def _stop_words(self) -> list[str]:
        return [f"SIGTERM to PID {self.pid}: it finishes the tasks that it has claimed, and ends"]

    def carry_out(self) -> None:
        """Leave it to the screen below."""
        self.agreed = True
        self.dismiss()
