"""A note on a task: asked for on one line, written down off the loop, and said."""

from __future__ import annotations

from engine.model import Task
from engine.operations.notes import AWAY, meant, wrong
from engine.store import Unavailable
from engine.text.safe import shown
from tui.format import present
from tui.screens.base import HASTY, BaseScreen
from tui.screens.console_context import ConsoleContext
from tui.screens.text_prompt import AskScreen
from tui.session.place_session import PlaceSession


def ask(face: BaseScreen, live: PlaceSession, around: ConsoleContext, task: Task | None) -> None:
    """Ask for a note on a task, and write it down; says why there is none to be had."""
    why = refusal(live, around) or (HASTY if face.hasty else "")
    if task is None:
        why = why or "a note is for one task: put the cursor on it; \\ takes marks away"
    if why or task is None:
        face.say(why)
        return
    ident, amount = task.id, len(live.signs.notes.get(task.id, ()))
    away = f"; {AWAY} alone takes its {present.count(amount, 'note')} away" if amount else ""

    def take(text: str | None) -> None:
        if text and text.strip():
            around.arming.used()
            face.run_worker(_write(face, live, ident, text), name="note", group="note")

    face.app.push_screen(AskScreen(f"note on {shown(ident)}{away}", "", wrong), take)


def refusal(live: PlaceSession, around: ConsoleContext) -> str:
    """Why no note can be written now; "" when one can."""
    if live.place.notes is None:
        return "no notes are kept for this place"
    if around.arming.read_only:
        return "read only: no note is written from here"
    # A note changes no task, but what others do: a purge leaves a noted one out. And in OBSERVE
    # nothing that is pressed leaves anything behind.
    if not around.arming.armed:
        return "OBSERVE: press ! first; a note is written down for everybody"
    return ""


async def _write(face: BaseScreen, live: PlaceSession, ident: str, text: str) -> None:
    kept = meant(text)
    try:
        await live.note(ident, kept)
    except Unavailable as error:
        face.say(str(error))
    else:
        face.say(f"noted: {kept}" if kept else "its notes are taken away", "good")
