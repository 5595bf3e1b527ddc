"""The quit dialog if a worker or an operation of this console still runs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from textual.app import ComposeResult
from textual.containers import Vertical

from engine.model import State
from engine.text.figures import format_count
from engine.text.safe import safe_line
from tui.screens.base import TOO_EARLY, key_bindings
from tui.session.running_operations import RunningOperation
from tui.terminal.key_queue import ConfirmGuard
from tui.terminal.sized_screen import SizedModalScreen
from tui.text import keys
from tui.text.lines import Line, cut_line, fold_text
from tui.text.task_fields import states_name
from tui.widgets.line_widgets import Lines

BOX_CELLS = 58


def describe_ending(work: RunningOperation, states: Mapping[State, str]) -> str:
    """What happens to a running operation on quit; `states`: the words of its store."""
    far = f"{work.name} is at {int(100 * work.share)}%"
    now = work.progress
    if now is None:
        return f"{far}: stops after the current batch; the rest stays."
    if not now.unsent or now.stopped:
        return f"{far}: all sent; results are no longer followed."
    tasks = format_count(now.unsent, "task")
    words = states_name(work.plan.states, states)
    return f"{far}: stops. {tasks} stay in {safe_line(words)}; the next start offers to resume."


class QuitScreen(SizedModalScreen[str]):
    """Returns "stop", "keep", or "" to stay."""

    BINDINGS = key_bindings(keys.QUIT)

    def __init__(
        self,
        pids: tuple[int, ...],
        works: Sequence[tuple[RunningOperation, Mapping[State, str]]] = (),
    ) -> None:
        """`pids`: workers that this console started; `works`: its running operations, each with the
        words of its store.
        """
        super().__init__()
        self.guard = ConfirmGuard()
        self._pids, self._works = pids, tuple(works)

    def compose(self) -> ComposeResult:
        with Vertical(id="box"):
            yield Lines(id="question")

    def on_mount(self) -> None:
        rows: list[Line] = []
        if self._pids:
            pids = ", ".join(str(pid) for pid in self._pids)
            rows += [((f"Worker PID {pids}, started here, is running.", "strong"),), ()]
        for work, states in self._works:
            pieces = fold_text(describe_ending(work, states), BOX_CELLS)
            rows += [*(((piece, "strong"),) for piece in pieces), ()]
        what = "the operation and the worker (SIGTERM)" if self._pids else "the operation"
        words = {"stop": f"stop {what} and quit"} if self._works else {}
        # The key that opened this dialog does nothing here: it may be pressed several times in a
        # row.
        for key in keys.keys_on(keys.QUIT, set() if self._pids else {"keep"}):
            rows.append(((f"{key.shown:<5}", "key"), (words.get(key.action, key.description), "")))
        running = "worker" if self._pids else "operation"
        self.query_one("#box").border_title = f"Quit with a running {running}"
        self._rows = [cut_line(row, BOX_CELLS) for row in rows]
        self.query_one(Lines).show(self._rows)

    def on_screen_resume(self) -> None:
        """On screen again: a key counts only after the next paint."""
        self.guard.plan_hidden()

    def _answer(self, answer: str) -> None:
        """Close with that answer, unless the key was typed before the question was on screen."""
        is_early = self.guard.is_early(getattr(self.app, "arrived", -math.inf))
        if is_early or getattr(self.app, "is_pasted", False):
            self.query_one(Lines).show([*self._rows, (), ((TOO_EARLY, "warn"),)])
        else:
            self.dismiss(answer)

    def action_stop(self) -> None:
        """Stop the operations and the worker, and quit."""
        self._answer("stop")

    def action_keep(self) -> None:
        """Quit; the worker keeps running."""
        if self._pids:
            self._answer("keep")

    def action_back(self) -> None:
        self.dismiss("")
