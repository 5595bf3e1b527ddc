"""Actions of every screen: help, command palette, plain text, copy, export, leave."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, TypeAlias

from textual.app import App, SuspendNotSupported

from engine.model import State
from engine.store import StoreError
from engine.text.figures import format_count
from engine.values import NamedTuple
from tui.key_tables import keys_on
from tui.plan import planning
from tui.screens import palette_commands
from tui.screens.base import BaseScreen
from tui.screens.console_context import ConsoleContext
from tui.screens.dialogs import AskScreen, MenuScreen, Option, ProgressScreen
from tui.screens.help import HelpScreen
from tui.screens.palette import PaletteInput, PaletteScreen
from tui.screens.palette_commands import PaletteCommand, PaletteScope
from tui.screens.target import Target
from tui.terminal import clipboard
from tui.text import export, keys
from tui.text.export import Export, ExportRefused, ExportTable
from tui.text.progress_bar import ProgressBar
from tui.widgets.background import run_in_background
from tui.widgets.theme import theme_names as theme_names

WHOLE_COMMAND = "whole command"
"""Name of a copy that the screen shows only in part: plain text has it below the screen."""


class AppServices(NamedTuple):
    """App functions that the global actions may use."""

    goto: Callable[[Target], None]
    use_theme: Callable[[str], Awaitable[str]]
    """Load another theme; returns a message."""
    leave: Callable[[BaseScreen, bool], Awaitable[None]]
    """Close a screen; the last one quits the console if the flag is set."""
    send: Callable[[str], None]
    context: ConsoleContext
    states: Mapping[State, str]
    places: tuple[tuple[str, Mapping[State, str]], ...]
    terminal: Callable[[], tuple[str, ...]]


GlobalAction: TypeAlias = Callable[[App[Any], BaseScreen, AppServices], Awaitable[None] | None]


def _help(app: App[Any], screen: BaseScreen, services: AppServices) -> None:
    refusals, edges = screen.verb_help()
    words, without = planning.help_words(edges), screen.without()
    terminal = services.terminal
    app.push_screen(
        HelpScreen(keys_on, screen.KIND, without, terminal, refusals=refusals, words=words)
    )


async def _palette(app: App[Any], screen: BaseScreen, services: AppServices) -> None:
    scope = PaletteScope(
        screen.KIND,
        keys_on,
        screen.without(),
        screen.commands(),
        states=services.states,
        places=services.places,
        themes=await asyncio.to_thread(theme_names),
        read_only=services.context.arming.read_only,
    )
    offered = palette_commands.list_commands(scope)

    async def act(palette_input: PaletteInput | None) -> None:
        if palette_input is not None:
            await _run_command(screen, services, palette_input.command, palette_input.argument)

    app.push_screen(PaletteScreen(offered), act)


async def _run_command(
    screen: BaseScreen, services: AppServices, command: PaletteCommand, argument: str
) -> None:
    if command.action:
        await screen.run_action(f"{command.action}({argument!r})" if argument else command.action)
    elif command.theme:
        screen.say(await services.use_theme(command.theme))
    elif command.target is not None:
        target = command.target
        if argument and target.pane == keys.LOG:
            target = target._replace(id=argument)
        elif argument and target.action:
            target = target._replace(action=f"{target.action}({argument!r})")
        elif argument:
            target = target._replace(filter=argument)
        services.goto(target)


async def _plain(app: App[Any], screen: BaseScreen, services: AppServices) -> None:
    try:
        cut = [copy.text for copy in screen.copies() if copy.name == WHOLE_COMMAND]
        text = "\n".join([clipboard.screen_text(screen), *cut])
        await clipboard.show_plain_text(app, text)
    except SuspendNotSupported:
        screen.say("this terminal cannot be suspended")


def _yank(app: App[Any], screen: BaseScreen, services: AppServices) -> None:
    copies = {copy.key: copy for copy in screen.copies()}
    if not copies:
        screen.say("nothing to copy here; = shows the screen as plain text")
        return

    def copy(key: str | None) -> None:
        if key:
            screen.say(_copy_text(services, copies[key].name, copies[key].text))

    options = [Option(copy.key, copy.name) for copy in copies.values()]
    app.push_screen(MenuScreen("Copy", options), copy)


def _copy_text(services: AppServices, name: str, text: str) -> str:
    try:
        services.send(clipboard.osc52_sequence(text, os.environ))
    except clipboard.NotCopied as error:
        return f"not copied: {error}"
    return f"{name}: {len(text):,} characters sent to the clipboard (OSC 52); if missing, press ="


def _export(app: App[Any], screen: BaseScreen, services: AppServices) -> None:
    sheet = screen.export_table()
    if sheet is None:
        screen.say("nothing to export here")
        return

    def begin(path: str | None) -> None:
        if path:
            writing = partial(_write_export, app, screen, sheet, path)
            run_in_background(app, writing, name="export", group="export")

    usual = export.default_path(sheet, services.context.clock())
    app.push_screen(AskScreen("export to", usual, export.path_error), begin)


async def _write_export(app: App[Any], screen: BaseScreen, sheet: ExportTable, path: str) -> None:
    file = Export(path, sheet.columns)

    def stop() -> None:
        file.is_stopped = True

    progress = ProgressScreen("Export", "rows", lambda: ProgressBar(file.done, file.total), stop)
    app.push_screen(progress)
    try:
        amount = await sheet.pass_rows(file.write_rows)
        await asyncio.to_thread(file.discard if file.is_stopped else file.finish)
        rows = format_count(amount, "row")
        message = "stopped; nothing written" if file.is_stopped else f"{rows} in {path}"
    except (ExportRefused, StoreError) as error:
        await asyncio.to_thread(file.discard)
        message = f"not exported: {error}"
    except asyncio.CancelledError:
        stop()  # the console is closing: the writer deletes its draft
        raise
    progress.dismiss()
    screen.say(message)


GLOBAL_ACTIONS: Mapping[str, GlobalAction] = {
    "help": _help,
    "palette": _palette,
    "plain": _plain,
    "yank": _yank,
    "export": _export,
    "leave": lambda app, screen, services: services.leave(screen, True),
    "back": lambda app, screen, services: services.leave(screen, False),
}
