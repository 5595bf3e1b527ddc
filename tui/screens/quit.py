"""Leaving while a worker runs that was started here: the operator decides what becomes of it."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.screen import ModalScreen

from tui import keys, present
from tui.widgets.lines import Lines


class QuitScreen(ModalScreen[str]):
    """Answers "stop", "keep" or "" to stay."""

    BINDINGS = keys.bindings(keys.QUIT)

    def __init__(self, pids: tuple[int, ...]) -> None:
        super().__init__()
        self._pids = pids

    def compose(self) -> ComposeResult:
        """One box."""
        with Vertical(id="box"):
            yield Lines(id="question")

    def on_mount(self) -> None:
        """Say what is running and what each key does."""
        pids = ", ".join(str(pid) for pid in self._pids)
        rows = [((f"Worker PID {pids} was started here and is running.", "strong"),), ()]
        rows += [((f"{key.shown:<5}", "key"), (key.about, "")) for key in keys.on(keys.QUIT)]
        self.query_one(Lines).show([present.cut(row, 58) for row in rows])

    def action_quit(self) -> None:
        """Stop the worker and leave."""
        self.dismiss("stop")

    def action_keep(self) -> None:
        """Leave it running."""
        self.dismiss("keep")

    def action_back(self) -> None:
        """Stay."""
        self.dismiss("")
