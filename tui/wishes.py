"""What every screen has besides its own keys: help, command line, plain text, copies, exports."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, TypeAlias

from textual.app import SuspendNotSupported

from engine.store import StoreError
from tui import clipboard, commands, export, keys, plain
from tui.commands import Command
from tui.export import Export, Refused, Sheet
from tui.glyphs import ASCII
from tui.screens.ask import AskScreen
from tui.screens.face import Face, Target
from tui.screens.help import HelpScreen
from tui.screens.menu import MenuScreen, Option
from tui.screens.palette import PaletteScreen, Said
from tui.screens.progress import Progress, ProgressScreen
from tui.theme import names as theme_names

if TYPE_CHECKING:
    from tui.app import Console

Wish: TypeAlias = "Callable[[Console, Face], Awaitable[None] | None]"
"""What is done for a screen that asked for it."""


def _help(console: Console, face: Face) -> None:
    console.push_screen(HelpScreen(face.KIND, face.without(), _terminal(console)))


def _terminal(console: Console) -> tuple[str, ...]:
    """What the terminal was found to be: the answer to most questions about how things look."""
    size, environ = console.size, os.environ
    signs = "ASCII" if console.glyphs == ASCII else "UTF-8"
    theme = "none (NO_COLOR)" if environ.get("NO_COLOR") else console.dressing.name
    wire = console.around.wire()
    return (
        f"{size.width}x{size.height}  TERM={environ.get('TERM', '')}  signs {signs}",
        f"theme {theme}" + (f"  wire {wire}" if wire else ""),
    )


def _palette(console: Console, face: Face) -> None:
    places = [live.place.name for live in console.lives]
    offered = commands.offered(face.KIND, face.without(), places, theme_names())

    async def act(said: Said | None) -> None:
        if said is not None:
            await _obey(console, face, said.command, said.argument)

    console.push_screen(PaletteScreen(offered), act)


async def _obey(console: Console, face: Face, command: Command, argument: str) -> None:
    """Do what was said on the command line."""
    if command.action:
        await face.run_action(command.action)
    elif command.pane:
        console.goto(Target(command.pane, place=command.place))
    elif command.theme:
        face.say(await console.use_theme(command.theme))
    elif command.words == "filter":
        console.goto(Target(keys.LIST, filter=argument))
    elif command.words == "log":
        console.goto(Target(keys.LOG, id=argument))


async def _plain(console: Console, face: Face) -> None:
    try:
        await plain.show(console, plain.text_of(face))
    except SuspendNotSupported:
        face.say("this terminal cannot be left and come back to")


def _yank(console: Console, face: Face) -> None:
    copies = {copy.key: copy for copy in face.copies()}
    if not copies:
        face.say("there is nothing to copy here; = shows the screen as plain text")
        return

    def copy(key: str | None) -> None:
        if key:
            face.say(_copied(console, copies[key].name, copies[key].text))

    options = [Option(copy.key, copy.name) for copy in copies.values()]
    console.push_screen(MenuScreen("copy", options), copy)


def _copied(console: Console, name: str, text: str) -> str:
    try:
        console.send(clipboard.sequence(text, os.environ))
    except clipboard.TooLong as error:
        return f"not copied: {error}"
    return f"{name}: {len(text):,} characters sent to the clipboard (OSC 52); if none came: ="


def _export(console: Console, face: Face) -> None:
    sheet = face.sheet()
    if sheet is None:
        face.say("there is nothing to export here")
        return

    def begin(path: str | None) -> None:
        if path:
            console.run_worker(_write(console, face, sheet, path), name="export", group="export")

    usual = export.usual_path(sheet, console.around.clock())
    console.push_screen(AskScreen("export to", usual, export.bad_path), begin)


async def _write(console: Console, face: Face, sheet: Sheet, path: str) -> None:
    file = Export(path, sheet.columns)

    def stop() -> None:
        file.stopped = True

    progress = ProgressScreen("export", "rows", lambda: Progress(file.done, file.total), stop)
    console.push_screen(progress)
    try:
        amount = await sheet.rows(file.take)
        await asyncio.to_thread(file.drop if file.stopped else file.finish)
        said = "stopped; nothing was written" if file.stopped else f"{amount:,} rows in {path}"
    except (Refused, StoreError) as error:
        await asyncio.to_thread(file.drop)
        said = f"not exported: {error}"
    progress.dismiss()
    face.say(said)


async def _leave(console: Console, face: Face) -> None:
    await console.leave_face()


WISHES: Mapping[str, Wish] = {
    "help": _help,
    "palette": _palette,
    "plain": _plain,
    "yank": _yank,
    "export": _export,
    "leave": _leave,
}
"""By what a screen asks for."""
