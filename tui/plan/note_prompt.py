"""Prompt for a note on a task and write it on a thread."""

from __future__ import annotations

from engine.model import Task
from engine.operations.notes import DELETE_INPUT, note_problem, notes_of, parse_note
from engine.store import Unavailable
from engine.text.figures import format_count
from engine.text.safe import safe_line
from tui.screens.base import PASTED, BaseScreen
from tui.screens.console_context import READ_ONLY, ConsoleContext
from tui.screens.dialogs import AskScreen
from tui.session.place_session import PlaceSession


def prompt_for_note(
    screen: BaseScreen, session: PlaceSession, context: ConsoleContext, task: Task | None
) -> None:
    """Prompt for a note on a task and write it, or show why that is not possible."""
    why = note_refusal(session, context) or (PASTED if screen.is_pasted else "")
    if task is None:
        why = why or "a note is for one task: \\ clears the marks"
    if why or task is None:
        screen.say(why)
        return
    ident, amount = task.id, len(notes_of(session.readings.notes, task, session.clock()))
    away = f"; {DELETE_INPUT} alone deletes its {format_count(amount, 'note')}" if amount else ""

    def take(text: str | None) -> None:
        if text and text.strip():
            context.arming.extend()
            screen.run_worker(_write_note(screen, session, task, text), name="note", group="note")

    screen.app.push_screen(AskScreen(f"note on {safe_line(ident)}{away}", "", note_problem), take)


def note_refusal(session: PlaceSession, context: ConsoleContext) -> str:
    """Why a note cannot be written now; "" if it can."""
    if session.place.notes is None:
        return "this place has no notes"
    if context.arming.read_only:
        return READ_ONLY
    # A note changes no task, but it excludes the task from a purge. OBSERVE must leave no trace.
    if not context.arming.is_armed:
        return "OBSERVE: press ! first: a note is visible to all"
    return ""


async def _write_note(screen: BaseScreen, session: PlaceSession, task: Task, text: str) -> None:
    note = parse_note(text)
    try:
        await session.add_note(task.id, note, task.created)
    except Unavailable as error:
        screen.say(str(error))
    else:
        screen.say(f"noted: {note}" if note else "notes deleted", "ok")
