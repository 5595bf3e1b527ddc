"""Notes on the console: who may write one, where it is seen, and what it does to a plan."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from textual.pilot import Pilot

from engine.journal import Who
from engine.model import State
from engine.notes import Notes
from tests.tui.spools import (
    NOW,
    a_console,
    a_task,
    disk_place,
    loaded,
    make_spool,
    task_list,
    until,
)
from tui import keys
from tui.app import Console
from tui.screens.ask import AskScreen
from tui.screens.face import Target
from tui.screens.plan import PlanScreen
from tui.screens.task import TaskScreen
from tui.widgets.lines import Lines

DEAD = [a_task(number, State.DEAD) for number in range(3)]


class Desk:
    """A console on a spool with three dead tasks, and the notes there."""

    def __init__(self, console: Console, pilot: Pilot[None], notes: Notes) -> None:
        self.console, self.pilot, self.notes = console, pilot, notes

    @property
    def text(self) -> str:
        """All lines of the screen on top."""
        panes = self.console.screen.query(Lines)
        rows = ["".join(text for text, _ in line) for pane in panes for line in pane.lines]
        return " ".join(" ".join(rows).split())

    @property
    def rows(self) -> list[str]:
        """The rows of the list, without its titles."""
        painted = task_list(self.console)._painted
        lines = [painted[y] for y in sorted(painted) if y]
        return ["".join(text for text, _ in line) for line in lines]

    async def sees(self, *words: str) -> None:
        """Wait until all of this is shown."""
        told = lambda: f"{words} in {self.text}"  # noqa: E731 - shorter than a function
        await until(self.pilot, lambda: all(word in self.text for word in words), told)

    async def dead_ones(self) -> None:
        """Go to the dead-letter queue."""
        self.console.goto(Target(keys.LIST, state=State.DEAD))
        await loaded(self.pilot)
        await until(self.pilot, lambda: task_list(self.console).cursor.id == DEAD[0].id)

    async def types(self, text: str) -> None:
        """Answer the question that `#` asks."""
        await self.pilot.press("#")
        await until(self.pilot, lambda: isinstance(self.console.screen, AskScreen))
        await self.pilot.press(*("space" if c == " " else c for c in text), "enter")


@asynccontextmanager
async def a_desk(root: Path, **fields: object) -> AsyncIterator[Desk]:
    """A console where notes are kept."""
    make_spool(root, DEAD)
    folder = str(root / "queue" / ".spooldeck" / "journal")
    notes = Notes(folder, str(root), lambda: NOW)
    place = disk_place(root, "here")._replace(notes=notes, who=Who("ana"))
    console = a_console(place, **fields)  # type: ignore[arg-type]
    async with console.run_test(size=(80, 24)) as pilot:
        await loaded(pilot)
        yield Desk(console, pilot, Notes(folder))


async def test_a_note_is_written_shown_and_taken_away(tmp_path: Path) -> None:
    """`#` on the list; it stands in the row and on the task's screen, until `-` takes it away."""
    async with a_desk(tmp_path, start_armed=True) as desk:
        await desk.dead_ones()
        await desk.types("ask bob@example.net")
        await desk.sees("noted: ask ...@example.net")
        await until(desk.pilot, lambda: [row[2] for row in desk.rows[:3]] == ["#", " ", " "])
        (note,) = await asyncio.to_thread(desk.notes.of, DEAD[0].id)

        await desk.pilot.press("enter")
        await until(desk.pilot, lambda: isinstance(desk.console.screen, TaskScreen))
        await desk.sees("note ask ...@example.net (ana, 09:42:08Z (just now))")
        await desk.types("-")
        await desk.sees("its notes are taken away")

        await until(desk.pilot, lambda: "note ask" not in desk.text)
    assert (note.who, note.text) == ("ana", "ask ...@example.net")
    assert await asyncio.to_thread(desk.notes.noted) == frozenset()


@pytest.mark.parametrize(
    ("how", "words"),
    [({}, "press ! first"), ({"read_only": True}, "read only")],
    ids=["observe", "read only"],
)
async def test_who_only_looks_writes_none(
    tmp_path: Path, how: dict[str, object], words: str
) -> None:
    """In OBSERVE and read only it is refused with the reason, and nothing is made on the disk."""
    async with a_desk(tmp_path, **how) as desk:
        await desk.dead_ones()
        await desk.pilot.press("#")

        await desk.sees(words)
        assert not isinstance(desk.console.screen, AskScreen)
    assert await asyncio.to_thread(desk.notes.noted) == frozenset()


async def test_a_purge_leaves_out_what_somebody_else_noted(tmp_path: Path) -> None:
    """A note that another process writes keeps its task out of a plan made here afterwards."""
    async with a_desk(tmp_path, start_armed=True) as desk:
        await desk.dead_ones()
        await asyncio.to_thread(desk.notes.add, DEAD[1].id, "evidence, keep", "bob")
        await until(desk.pilot, lambda: desk.console.here.noted == {DEAD[1].id})
        await desk.pilot.press("*", "X")
        await until(desk.pilot, lambda: isinstance(desk.console.screen, PlanScreen))

        screen = desk.console.screen
        assert isinstance(screen, PlanScreen)
        assert [(row.id, why) for row, why in screen._plan.excluded] == [(DEAD[1].id, "noted")]


async def test_hostile_notes_are_shown_inert(tmp_path: Path) -> None:
    """What others put into the file reaches the screen without a control character."""
    async with a_desk(tmp_path) as desk:
        text, who = "\x1b]52;c;evil\x07[bold]\u202e", "b\x1b[2Job"
        await asyncio.to_thread(desk.notes.add, DEAD[0].id, text, who)
        desk.console.goto(Target(keys.TASK, id=DEAD[0].id))
        await until(desk.pilot, lambda: isinstance(desk.console.screen, TaskScreen))

        await desk.sees("]52;c;evil", "[bold]")
        assert all(char.isprintable() for char in desk.text)


async def test_what_cannot_be_read_is_said(tmp_path: Path) -> None:
    """A file of notes that may not be read is named on the task's screen."""
    journal = tmp_path / "queue" / ".spooldeck" / "journal"
    journal.mkdir(parents=True)
    (journal / "notes.jsonl").symlink_to("/etc/passwd")
    async with a_desk(tmp_path) as desk:
        desk.console.goto(Target(keys.TASK, id=DEAD[0].id))
        await until(desk.pilot, lambda: isinstance(desk.console.screen, TaskScreen))

        await desk.sees("note ? the notes are not read")
