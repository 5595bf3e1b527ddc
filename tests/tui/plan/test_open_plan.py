"""Notes on the console: who may write one, where it is seen, and what it does to a plan."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from engine.model import State
from engine.operations.journal import Who
from engine.operations.notes import Notes
from tests.console_operator import ConsoleOperator, an_operator
from tests.console_places import NOW, a_task, disk_place, loaded, make_spool, task_list
from tui.plan.screen import PlanScreen
from tui.queue.screen import QueueScreen
from tui.screens.dialogs import AskScreen
from tui.screens.target import Target
from tui.task.screen import TaskScreen
from tui.text import keys

DEAD = [a_task(number, State.DEAD) for number in range(3)]
off = asyncio.to_thread


@pytest.fixture
def notes(tmp_path: Path) -> Notes:
    """The notes of a spool with three dead tasks."""
    make_spool(tmp_path, DEAD)
    return Notes(f"{tmp_path}/queue/.spooldeck/journal", str(tmp_path), lambda: NOW)


@asynccontextmanager
async def opened(notes: Notes, **fields: Any) -> AsyncIterator[ConsoleOperator]:
    """A console on the dead-letter queue."""
    place = disk_place(Path(notes.folder).parents[2], "here")._replace(notes=notes, who=Who("ana"))
    async with an_operator(place, **fields) as operator:
        operator.console.navigator.goto(Target(keys.LIST, state=State.DEAD))
        await loaded(operator.pilot)
        await operator.until(lambda: task_list(operator.console).rows.view.cursor.id == DEAD[0].id)
        yield operator


async def note(operator: ConsoleOperator, text: str) -> None:
    """Answer the question that `#` asks."""
    await operator.opens(AskScreen, "#")
    await operator.types(text)
    await operator.press("enter")


async def test_a_note_is_written_shown_and_removed(notes: Notes) -> None:
    """`#` on the list; it is in the row and on the task's screen, until `-` removes it."""
    async with opened(notes) as operator:
        await note(operator, "ask bob@x.net")
        await operator.sees("noted: ask ...@x.net")
        first = DEAD[0].id[-8:]
        await operator.until(
            lambda: any(row[2] == "#" for row in operator.text.splitlines() if first in row)
        )
        (written,) = (await off(notes.read_all))[DEAD[0].id]
        await operator.step("enter", TaskScreen, "note ask ...@x.net (ana, 09:42:08Z (0s ago))")
        await note(operator, "-")
        await operator.sees("notes deleted")
        await operator.until(lambda: "note ask" not in operator.page)
    assert (written.who, written.text) == ("ana", "ask ...@x.net")
    assert await off(notes.noted_ids) == frozenset()


@pytest.mark.parametrize(
    ("how", "words"),
    [({"start_armed": False}, "press ! first"), ({"read_only": True}, "read only")],
    ids=["observe", "read only"],
)
async def test_a_note_needs_armed(notes: Notes, how: dict[str, object], words: str) -> None:
    """In OBSERVE and read only it is refused with the reason, and nothing is made on the disk."""
    async with opened(notes, **how) as operator:
        await operator.step("#", QueueScreen, words)
    assert await off(notes.noted_ids) == frozenset()


async def test_notes_of_others_are_inert_and_exclude_from_a_purge(notes: Notes) -> None:
    """A note keeps its task out of a plan made afterwards, and is inert."""
    async with opened(notes) as operator:
        text, who = "\x1b]52;c;evil\x07[bold]\u202e", "b\x1b[2Job"
        await off(notes.add, DEAD[0].id, text, who)
        await operator.until(lambda: operator.console.navigator.session.noted_ids == {DEAD[0].id})
        await operator.step("* X", PlanScreen, "1 excluded: has a note", "type 2 to purge 2")
        await operator.step("escape enter", TaskScreen, "]52;c;evil", "[bold]")
        assert operator.page.isprintable()


async def test_unreadable_notes_are_reported(notes: Notes) -> None:
    """A file of notes that may not be read is named on the task's screen."""
    await off(os.makedirs, notes.folder)
    await off(os.symlink, "/etc/passwd", f"{notes.folder}/notes.jsonl")
    async with opened(notes) as operator:
        await operator.step("enter", TaskScreen, "note ? cannot read the notes")
