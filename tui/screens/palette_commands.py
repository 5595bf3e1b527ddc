"""The commands of the palette: actions of the screen, other screens, places and themes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

from tui.format import keys


class PaletteCommand(NamedTuple):
    """One command of the palette."""

    name: str
    """Name to type; with `argument`, the first word of the input."""
    description: str
    """Description."""
    shown: str = ""
    """Keys with the same effect."""
    action: str = ""
    """Action of the screen; "" if the app runs the command itself."""
    pane: str = ""
    """Screen to open."""
    place: int = 0
    """Place to open, from 1."""
    theme: str = ""
    argument: str = ""
    """What to type after the name; "" for a command without an argument."""


ARGUMENT_COMMANDS = (
    PaletteCommand("filter", "show only matching tasks, in the queue", argument="TEXT"),
    PaletteCommand("log", "log lines with these words", argument="TEXT"),
)
"""Commands with an argument."""

_NAMED_COMMANDS = (
    PaletteCommand("operations", "operations: who did what", "u", pane=keys.OPERATIONS),
    PaletteCommand("undo", "operations: who did what; undo", "u", pane=keys.OPERATIONS),
)
"""Screens with extra names."""

_SCREEN_COMMANDS = (
    (keys.OVERVIEW, "all queues and their alerts"),
    (keys.LIST, "tasks of this place"),
    (keys.CLUSTERS, "errors grouped into clusters"),
    (keys.WORKERS, "workers and their tasks, of all places"),
    (keys.LOCKS, "locks and their holders"),
    (keys.TRANSPORTS, "state of each mail transport"),
    (keys.LOG, "all logs, merged by time"),
    (keys.CONTROLS, "the whole queue: its status and its controls"),
)


def list_commands(
    screen: str, without: Collection[str], places: Sequence[str], themes: Iterable[str]
) -> tuple[PaletteCommand, ...]:
    """All commands on a screen; `places` are the names of the places, in order."""
    return tuple(_iterate_commands(screen, without, places, themes))


def _iterate_commands(
    screen: str, without: Collection[str], places: Sequence[str], themes: Iterable[str]
) -> Iterator[PaletteCommand]:
    for key in keys.keys_on(screen, without):
        if not key.passes_key and key.group != "Move" and key.action not in ("palette", "back"):
            words = key.hint or key.action.rpartition(".")[2].replace("_", " ")
            yield PaletteCommand(words, key.description, key.shown, action=key.action)
    for pane, about in _SCREEN_COMMANDS:
        yield PaletteCommand(f"go {'queue' if pane == keys.LIST else pane}", about, pane=pane)
    if len(places) > 1:
        for number, name in enumerate(places, 1):
            yield PaletteCommand(
                f"place {name}", "tasks of that place", pane=keys.LIST, place=number
            )
    for theme in themes:
        yield PaletteCommand(f"theme {theme}", "use this colour theme", theme=theme)
    yield from _NAMED_COMMANDS
    yield from ARGUMENT_COMMANDS


def match_commands(commands: Sequence[PaletteCommand], typed: str) -> tuple[PaletteCommand, ...]:
    """Commands that contain every typed word; those that begin with the input come first."""
    wanted = typed.casefold().split()
    start = typed.casefold().strip()
    argued = tuple(c for c in commands if c.argument and wanted[:1] == [c.name] and wanted[1:])
    rest = [
        c
        for c in commands
        if all(word in f"{c.name} {c.description}".casefold() for word in wanted)
    ]
    ranked = sorted(rest, key=lambda c: (not c.name.casefold().startswith(start), bool(c.argument)))
    return (*argued, *(command for command in ranked if command not in argued))


def argument_of(command: PaletteCommand, typed: str) -> str:
    """What was typed after the command's name."""
    return typed.strip()[len(command.name) :].strip() if command.argument else ""
