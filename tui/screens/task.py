"""A task in full: every field, why it waits, and its text as the store holds it."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from engine.model import Task
from engine.store import StoreError, Unavailable
from engine.text import shown, shown_lines
from tui import keys, present
from tui.live import Live
from tui.present import BLANK, Line
from tui.screens.pages import Page
from tui.surroundings import Surroundings
from tui.why import why_waiting


class Held(NamedTuple):
    """What a store holds of a task."""

    lines: tuple[str, ...] = ()
    size: int = 0
    """Bytes."""
    refused: str = ""
    """Why it cannot be shown."""


class TaskScreen(Page):
    """One task, kept up to date while it is looked at; nothing here acts on anything."""

    KIND = keys.TASK
    BINDINGS = keys.bindings(keys.TASK)

    def __init__(self, id: str, live: Live, around: Surroundings) -> None:
        super().__init__()
        self._task_id, self._live = id, live
        self._shown: Task | None = None
        self._inspector, self._clock = live.inspector, around.clock
        self._held = Held()
        self._why = ""
        self._gone = False

    def on_mount(self) -> None:
        """Read it, and again whenever something changes."""
        super().on_mount()
        self.run_worker(self._follow(), name="task")

    async def _follow(self) -> None:
        seen = self._inspector.latest.generation
        await self._read()
        while True:
            try:
                seen = (await self._inspector.changed(seen)).generation
            except Unavailable:
                return  # closed: the console is being left
            task = await self._inspector.task(self._task_id)
            if task != self._shown or self._gone:
                await self._read()

    async def _read(self) -> None:
        task = await self._inspector.task(self._task_id)
        self._gone = task is None
        if task is not None:
            self._shown = task
            self._held = await self._hold(task)
            self._why = await why_waiting(
                self._inspector, self._live.place, self._live.signs.lock, task, self._clock()
            )
        if self.is_attached:
            self.lay_out(self.size.width)

    async def _hold(self, task: Task) -> Held:
        try:
            data = await self._inspector.read(task)
        except StoreError as error:
            return Held(refused=f"{type(error).__name__.lower()}: {error}")
        lines = await asyncio.to_thread(_folded, data, max(20, self.size.width - 4))
        return Held(tuple(lines), len(data))

    def lay_out(self, width: int) -> None:
        """The task, for this width."""
        now = self._clock()
        if self._shown is None:
            gone = "there is no such task any more" if self._gone else "looking ..."
            self.show(((f" task {shown(self._task_id)}", "title"),), [], ((f" {gone}", ""),))
            return
        rows = present.fields(self._shown, self._inspector.states, now)
        text: list[Line] = [present.heading("fields", width), *present.labelled(rows, width)]
        if self._why and not self._gone:
            text += [BLANK, present.heading("why it waits", width)]
            text += [((f"  {piece}", ""),) for piece in present.folded(self._why, width - 3)]
        text += [BLANK, present.heading(f"as it is stored{_size(self._held)}", width)]
        text += [(("  ", ""), (line, "")) for line in self._held.lines]
        if self._held.refused:
            text.append(((f"  {self._held.refused}", "unknown"),))
        id = present.fit_end(shown(self._shown.id), width - 8).rstrip()
        gone = "it is not there any more; this is what was seen last" if self._gone else ""
        self.show(((" task ", "title"), (id, "strong")), text, ((f" {gone}", "warning"),))
        self.show_hints()

    def action_reread(self) -> None:
        """Read it again now."""
        self.run_worker(self._read(), name="reread", exclusive=True, group="reread")


def _folded(data: bytes, width: int) -> list[str]:
    return [piece for line in shown_lines(data) for piece in present.folded(line, width)]


def _size(held: Held) -> str:
    if not held.size:
        return ""
    import humanize

    return f", {humanize.naturalsize(held.size, binary=True)}"
