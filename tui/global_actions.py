"""What every screen has besides its own keys: help, command line, plain text, copies, exports."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

from textual.app import App, SuspendNotSupported

from engine.store import StoreError
from tui.format import export, keys
from tui.format.export import Export, ExportRefused, ExportTable
from tui.format.progress_bar import ProgressBar
from tui.screens import palette_commands
from tui.screens.base import BaseScreen, Target
from tui.screens.help import HelpScreen
from tui.screens.menu import MenuScreen, Option
from tui.screens.palette import PaletteInput, PaletteScreen
from tui.screens.palette_commands import PaletteCommand
from tui.screens.progress import ProgressScreen
from tui.screens.text_prompt import AskScreen
from tui.terminal import clipboard, plain_text
from tui.widgets.theme import names as theme_names


class AppServices(NamedTuple):
    """What the console lets a wish do."""

    goto: Callable[[Target], None]
    use_theme: Callable[[str], Awaitable[str]]
    """Draw in other colours; answers with what happened."""
    leave: Callable[[BaseScreen, bool], Awaitable[None]]
    """Back to the screen below; without one, out of the console if told so."""
    send: Callable[[str], None]
    """Write a control sequence of ours to the terminal."""
    clock: Callable[[], float]
    places: tuple[str, ...]
    """The names of all places, in their order."""
    terminal: tuple[str, ...]
    """What the terminal was found to be, in words."""


Wish: TypeAlias = Callable[[App[Any], BaseScreen, AppServices], Awaitable[None] | None]
"""What is done for a screen that asked for it."""


def _help(app: App[Any], face: BaseScreen, ways: AppServices) -> None:
    app.push_screen(HelpScreen(face.KIND, face.without(), ways.terminal))


async def _palette(app: App[Any], face: BaseScreen, ways: AppServices) -> None:
    themes = await asyncio.to_thread(theme_names)
    offered = palette_commands.offered(face.KIND, face.without(), ways.places, themes)

    async def act(said: PaletteInput | None) -> None:
        if said is not None:
            await _obey(face, ways, said.command, said.argument)

    app.push_screen(PaletteScreen(offered), act)


async def _obey(
    face: BaseScreen, ways: AppServices, command: PaletteCommand, argument: str
) -> None:
    """Do what was said on the command line."""
    if command.action:
        await face.run_action(command.action)
    elif command.pane:
        ways.goto(Target(command.pane, place=command.place))
    elif command.theme:
        face.say(await ways.use_theme(command.theme))
    elif command.words == "filter":
        ways.goto(Target(keys.LIST, filter=argument))
    elif command.words == "log":
        ways.goto(Target(keys.LOG, id=argument))


async def _plain(app: App[Any], face: BaseScreen, ways: AppServices) -> None:
    try:
        await plain_text.show(app, plain_text.text_of(face))
    except SuspendNotSupported:
        face.say("this terminal cannot be left and come back to")


def _yank(app: App[Any], face: BaseScreen, ways: AppServices) -> None:
    copies = {copy.key: copy for copy in face.copies()}
    if not copies:
        face.say("there is nothing to copy here; = shows the screen as plain text")
        return

    def copy(key: str | None) -> None:
        if key:
            face.say(_copied(ways, copies[key].name, copies[key].text))

    options = [Option(copy.key, copy.name) for copy in copies.values()]
    app.push_screen(MenuScreen("copy", options), copy)


def _copied(ways: AppServices, name: str, text: str) -> str:
    try:
        ways.send(clipboard.sequence(text, os.environ))
    except clipboard.TooLong as error:
        return f"not copied: {error}"
    return f"{name}: {len(text):,} characters sent to the clipboard (OSC 52); if none came: ="


def _export(app: App[Any], face: BaseScreen, ways: AppServices) -> None:
    sheet = face.sheet()
    if sheet is None:
        face.say("there is nothing to export here")
        return

    def begin(path: str | None) -> None:
        if path:
            app.run_worker(_write(app, face, sheet, path), name="export", group="export")

    usual = export.usual_path(sheet, ways.clock())
    app.push_screen(AskScreen("export to", usual, export.bad_path), begin)


async def _write(app: App[Any], face: BaseScreen, sheet: ExportTable, path: str) -> None:
    file = Export(path, sheet.columns)

    def stop() -> None:
        file.stopped = True

    progress = ProgressScreen("export", "rows", lambda: ProgressBar(file.done, file.total), stop)
    app.push_screen(progress)
    try:
        amount = await sheet.rows(file.take)
        await asyncio.to_thread(file.drop if file.stopped else file.finish)
        said = "stopped; nothing was written" if file.stopped else f"{amount:,} rows in {path}"
    except (ExportRefused, StoreError) as error:
        await asyncio.to_thread(file.drop)
        said = f"not exported: {error}"
    except asyncio.CancelledError:
        stop()  # the console is being left: whoever writes clears away
        raise
    progress.dismiss()
    face.say(said)


async def _leave(app: App[Any], face: BaseScreen, ways: AppServices) -> None:
    await ways.leave(face, True)


async def _back(app: App[Any], face: BaseScreen, ways: AppServices) -> None:
    await ways.leave(face, False)


WISHES: Mapping[str, Wish] = {
    "help": _help,
    "palette": _palette,
    "plain": _plain,
    "yank": _yank,
    "export": _export,
    "leave": _leave,
    "back": _back,
}
"""By what a screen asks for."""
