"""What can be said on the command line of the console: every key of the screen, and every way."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

from tui.format import keys


class PaletteCommand(NamedTuple):
    """Something to be done, by its words."""

    words: str
    """What is typed to find it; with `argument`, the first word of what is typed."""
    about: str
    """A sentence."""
    shown: str = ""
    """The keys that do the same."""
    action: str = ""
    """The action of the screen; "" for what the console does itself."""
    pane: str = ""
    """The screen to go to."""
    place: int = 0
    """The place to go to, from 1."""
    theme: str = ""
    argument: str = ""
    """What is to be typed behind the words; "" when they are all."""


ARGUED = (
    PaletteCommand("filter", "show only tasks that match, in the queue", argument="TEXT"),
    PaletteCommand("log", "the log lines that hold these words", argument="TEXT"),
)

_NAMED = (
    PaletteCommand("operations", "what was done here, by whom", "u", pane=keys.OPERATIONS),
    PaletteCommand(
        "undo", "what was done here, and how to take it back", "u", pane=keys.OPERATIONS
    ),
)
"""Ways that are known by words of their own."""

"""Commands that take words of their own."""

_WAYS = (
    (keys.OVERVIEW, "every queue, and what is wrong"),
    (keys.LIST, "the tasks of this place"),
    (keys.CLUSTERS, "the errors here, alike with alike"),
    (keys.LOCKS, "who has the locks"),
    (keys.TRANSPORTS, "how each way of sending mail does"),
    (keys.LOG, "the logs, merged by time"),
    (keys.CONTROLS, "the queue as a whole: what it says of itself, and its controls"),
)


def offered(
    screen: str, without: Collection[str], places: Sequence[str], themes: Iterable[str]
) -> tuple[PaletteCommand, ...]:
    """All that can be said on a screen; `places` are their names, in order."""
    return tuple(_offered(screen, without, places, themes))


def _offered(
    screen: str, without: Collection[str], places: Sequence[str], themes: Iterable[str]
) -> Iterator[PaletteCommand]:
    for key in keys.on(screen, without):
        if not key.each and key.group != "Move" and key.action not in ("palette", "back"):
            words = key.hint or key.action.rpartition(".")[2].replace("_", " ")
            yield PaletteCommand(words, key.about, key.shown, action=key.action)
    for pane, about in _WAYS:
        yield PaletteCommand(f"go {'queue' if pane == keys.LIST else pane}", about, pane=pane)
    if len(places) > 1:
        for number, name in enumerate(places, 1):
            yield PaletteCommand(
                f"place {name}", "the tasks of that place", pane=keys.LIST, place=number
            )
    for theme in themes:
        yield PaletteCommand(f"theme {theme}", "draw in these colours", theme=theme)
    yield from _NAMED
    yield from ARGUED


def found(commands: Sequence[PaletteCommand], typed: str) -> tuple[PaletteCommand, ...]:
    """The commands that hold every word of what is typed, those that begin with it first."""
    wanted = typed.casefold().split()
    said = typed.casefold().strip()
    argued = tuple(c for c in commands if c.argument and wanted[:1] == [c.words] and wanted[1:])
    rest = [
        c for c in commands if all(word in f"{c.words} {c.about}".casefold() for word in wanted)
    ]
    ranked = sorted(rest, key=lambda c: (not c.words.casefold().startswith(said), bool(c.argument)))
    return (*argued, *(command for command in ranked if command not in argued))


def argument_of(command: PaletteCommand, typed: str) -> str:
    """What was typed behind a command's words."""
    return typed.strip()[len(command.words) :].strip() if command.argument else ""
