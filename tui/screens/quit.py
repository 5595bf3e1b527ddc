"""Leaving while something runs that was started here: the operator decides what becomes of it."""

from __future__ import annotations

from collections.abc import Sequence

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.screen import ModalScreen

from engine.text.safe import shown
from tui.format import keys, present
from tui.format.present import Line
from tui.screens.base import HASTY
from tui.session.running_operations import RunningOperation
from tui.terminal.paste_detector import Confirming
from tui.widgets.lines import Lines

WIDTH = 58
"""Cells of a line."""


def ending(work: RunningOperation, dead: str) -> str:
    """What becomes of what is carried out when the console is left; `dead` is where tasks stay."""
    far = f"{work.name} is at {int(100 * work.share)}%"
    now = work.progress
    if now is None:
        return f"{far}: it stops after the current batch, the rest is unchanged."
    if not now.rest or now.stopped:
        return f"{far}: all is sent; results are no longer followed."
    tasks = present.count(now.rest, "task")
    return (
        f"{far}: it stops. {tasks} not moved stay in {shown(dead)}; the next start offers to go on."
    )


class QuitScreen(ModalScreen[str], Confirming[str]):
    """Answers "stop", "keep" or "" to stay."""

    BINDINGS = keys.bindings(keys.QUIT)

    def __init__(
        self, pids: tuple[int, ...], works: Sequence[RunningOperation] = (), dead: str = ""
    ) -> None:
        """Of workers that were started here, and of what is carried out here."""
        super().__init__()
        self._pids, self._works, self._dead = pids, tuple(works), dead

    def compose(self) -> ComposeResult:
        """One box."""
        with Vertical(id="box"):
            yield Lines(id="question")

    def on_mount(self) -> None:
        """Say what is running and what each key does."""
        rows: list[Line] = []
        if self._pids:
            pids = ", ".join(str(pid) for pid in self._pids)
            rows += [((f"Worker PID {pids} was started here and is running.", "strong"),), ()]
        for work in self._works:
            pieces = present.folded(ending(work, self._dead), WIDTH)
            rows += [*(((piece, "strong"),) for piece in pieces), ()]
        running = "the operation and the worker (SIGTERM)" if self._pids else "the operation"
        words = {"stop": f"stop {running}, and leave"} if self._works else {}
        # No key here is the one that led here: that one may be pressed several times in a row.
        for key in keys.on(keys.QUIT, set() if self._pids else {"keep"}):
            rows.append(((f"{key.shown:<5}", "key"), (words.get(key.action, key.about), "")))
        self._rows = [present.cut(row, WIDTH) for row in rows]
        self.query_one(Lines).show(self._rows)

    def _answer(self, answer: str) -> None:
        """Close with that answer, unless its key was typed before the question was seen."""
        if self.refuses():
            self.query_one(Lines).show([*self._rows, (), ((HASTY, "warning"),)])
        else:
            self.dismiss(answer)

    def action_stop(self) -> None:
        """Stop the running operations and the worker, and leave."""
        self._answer("stop")

    def action_keep(self) -> None:
        """Leave, and let the worker run on."""
        if self._pids:
            self._answer("keep")

    def action_back(self) -> None:
        """Stay."""
        self.dismiss("")
