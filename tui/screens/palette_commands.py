"""The commands of the palette: actions, screens, states, places, themes; how input finds them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence

from engine.model import State
from engine.text.safe import state_name
from engine.values import NamedTuple
from tui.screens.target import SCREEN_TARGETS, Target
from tui.text import keys
from tui.text.keys import KeysOn
from tui.text.table import short_names


class PaletteCommand(NamedTuple):
    """One command of the palette."""

    name: str
    """Name to type; with `argument`, the first word of the input."""
    description: str
    shown: str = ""
    """Keys with the same effect."""
    also: tuple[str, ...] = ()
    action: str = ""
    """Action of the screen; "" if the app runs the command itself. It gets the argument."""
    target: Target | None = None
    """Screen to open; the argument is its filter or what the log is searched for."""
    theme: str = ""
    argument: str = ""
    """What to type after the name, in brackets if it is optional; "" for no argument."""

    @property
    def needs_argument(self) -> bool:
        """True if the command cannot be run without its argument."""
        return bool(self.argument) and not self.argument.startswith("[")


class PaletteScope(NamedTuple):
    """What the commands depend on."""

    screen: str
    """The screen below the palette, by its name in the key table."""
    keys_on: KeysOn
    without: Collection[str] = ()
    """Actions that the screen does not offer now."""
    extra: Sequence[PaletteCommand] = ()
    """Commands of the screen that have no key of their own."""
    states: Mapping[State, str] = {}
    """The states of the place, in its own words."""
    places: Sequence[tuple[str, Mapping[State, str]]] = ()
    """The name and the states of each place."""
    themes: Sequence[str] = ()
    read_only: bool = False


_SCREENS = (
    PaletteCommand("overview", "all queues and their alerts", "1"),
    PaletteCommand("tasks", "tasks of this place", "2", ("queue",)),
    PaletteCommand("workers", "who works on what", "3"),
    PaletteCommand("locks", "locks and their holders", "5"),
    PaletteCommand("transports", "state of each transport, destination", "6", ("destinations",)),
    PaletteCommand("log", "all logs, or only lines with a text", "7", argument="[TEXT]"),
    PaletteCommand("operations", "who did what; undo", "8", ("undo",)),
    PaletteCommand("controls", "the whole queue: its status and its controls", "9"),
)
"""The screens with a digit."""

_CLUSTERS = PaletteCommand(
    "clusters", "errors grouped into clusters", "c", target=Target(keys.CLUSTERS)
)
_GROUPS = PaletteCommand(
    "groups",
    "tasks by queue, kind, sender ...",
    "b",
    ("by queue", "by kind", "by destination", "by sender"),
    target=Target(keys.GROUPS),
)
_IN_QUEUE = "show only matching tasks, in the queue"
_FILTER = PaletteCommand("filter", _IN_QUEUE, "/", target=Target(keys.LIST), argument="TEXT")
_EVERYWHERE = "find tasks in all places and states"
_SEARCH = PaletteCommand(
    "search", _EVERYWHERE, also=("find",), target=Target(keys.SEARCH), argument="TEXT"
)
_SAVE = PaletteCommand("save", "save the filter of the list as @NAME", argument="@NAME")
_QUIT = PaletteCommand("quit", "quit the console", also=("exit",), action="app.quit")

_UNLISTED = frozenset({"palette", "back", "yes", "operations", "controls", "app.cancel", "search"})
"""Actions without a command: they confirm or close, or the screen that they open is listed."""

_OTHER_NAMES = {
    **{"log": "task log", "filter": "filter line"},
    **{"worker": "start or stop worker", "pause_queue": "pause queue"},
}
"""Names of the actions whose hint is the name of another command, or the beginning of one."""

_ELSEWHERE: Mapping[str, tuple[str, Collection[str]]] = {
    keys.LIST: ("the tasks", {"order", "note", "pause_queue"}),
    keys.TRANSPORTS: ("the transports", {"suspend", "trial"}),
    keys.LOCKS: ("the locks", {"unlock", "worker"}),
    keys.CONTROLS: ("the controls", {"schedules"}),
}
"""Actions that the palette has on every screen: the screen where their key works, what it shows,
and the names of the actions; of the tasks also all verbs."""

_MORE_NAMES = {
    **{"order": ("sort",), "suspend": ("resume",), "unlock": ("free lock",)},
    **{"pause_queue": ("resume queue",)},
}


def list_commands(scope: PaletteScope) -> tuple[PaletteCommand, ...]:
    """All commands in that scope."""
    return (
        *_action_commands(scope),
        *scope.extra,
        *_screen_commands(scope),
        *_state_commands(scope.states),
        *_place_commands(scope),
        *(PaletteCommand(f"theme {name}", "use this theme", theme=name) for name in scope.themes),
        *_elsewhere_commands(scope),
        *(() if scope.screen == keys.OVERVIEW else (_QUIT,)),
    )


def _action_commands(scope: PaletteScope) -> Iterator[PaletteCommand]:
    for key in scope.keys_on(scope.screen, scope.without):
        name = _OTHER_NAMES.get(key.action) or key.hint
        name = name or key.action.rpartition(".")[2].replace("_", " ")
        listed = not key.passes_key and key.group != "Move" and key.action not in _UNLISTED
        if listed and "(" not in name:
            also = _QUIT.also if key.action == _QUIT.action else ()
            yield PaletteCommand(name, key.description, key.shown, also, key.call or key.action)


def _screen_commands(scope: PaletteScope) -> Iterator[PaletteCommand]:
    screen = scope.screen
    for command in _SCREENS:
        target = SCREEN_TARGETS[command.shown]
        if target.pane != screen or command.argument:
            yield command._replace(target=target)
    has = {key.action for key in scope.keys_on(screen, ())}
    for command in (_CLUSTERS, _GROUPS):
        if command.name not in (screen, *has):
            yield command
    yield _FILTER
    yield _SEARCH._replace(shown="/" if screen == keys.OVERVIEW else "")
    if screen == keys.LIST:
        yield _SAVE._replace(action="save_filter")
    else:
        yield _SAVE._replace(target=Target(keys.LIST, action="save_filter"))


def _state_commands(states: Mapping[State, str]) -> Iterator[PaletteCommand]:
    digits = {target.state: digit for digit, target in SCREEN_TARGETS.items() if target.state}
    for state, word in states.items():
        also = ("dlq", "dead") if state is State.DEAD else (str(state),)
        description = f"tasks in {state_name(word)}"
        target = Target(keys.LIST, state=state)
        yield PaletteCommand(word, description, digits.get(state, ""), also, target=target)


def _place_commands(scope: PaletteScope) -> Iterator[PaletteCommand]:
    """The places; where this one has no dead tasks, also those of the others."""
    shorts = short_names([name for name, _ in scope.places])
    for number, (name, states) in enumerate(scope.places, 1) if len(shorts) > 1 else ():
        short, target = shorts[number - 1], Target(keys.LIST, number)
        also = (f"place {name}",)
        yield PaletteCommand(f"place {short}", f"tasks of {name}", "", also, target=target)
        if State.DEAD in states and State.DEAD not in scope.states:
            word, target = states[State.DEAD], target._replace(state=State.DEAD)
            text = f"tasks in {state_name(word)} of {name}"
            yield PaletteCommand(f"{word} {short}", text, "", ("dlq", "dead"), target=target)


def _elsewhere_commands(scope: PaletteScope) -> Iterator[PaletteCommand]:
    """The actions without a key on this screen: they need a row of another, so they open that."""
    own_actions = {key.action for key in scope.keys_on(scope.screen, ())}
    for screen, (title, actions) in _ELSEWHERE.items():
        for key in scope.keys_on(screen, ()):
            refused = key.action in own_actions or (scope.read_only and key.group == "Act")
            listed = key.action in actions or (screen == keys.LIST and key.verb)
            if listed and not refused:
                description = f"opens {title}; {key.shown} there: {key.description}"
                also = _MORE_NAMES.get(key.action, ())
                action = key.call if screen == keys.LIST else ""
                target = Target(screen, action=action)
                name = _OTHER_NAMES.get(key.action) or key.verb or key.hint
                yield PaletteCommand(name, description, "", also, target=target)
    for name, order in () if scope.screen == keys.LIST else SORT_ORDERS.items():
        target = Target(keys.LIST, action=f"sort('{order}', False)")
        yield PaletteCommand(f"sort {name}", "opens the tasks, ordered by this", target=target)


SORT_ORDERS: Mapping[str, str] = {
    **{"age": "created", "id": "id", "kind": "kind", "tries": "attempts", "error": "error"},
    **{"description": "description", "destination": "destination"},
}
"""Orders that every tab of the tasks has: their names, and the columns of the index."""


def match_commands(commands: Sequence[PaletteCommand], typed: str) -> tuple[PaletteCommand, ...]:
    """The commands that the input finds, the best first. A name that begins with the input, the
    shortest first, beats one that contains it; that beats a command with words that begin with
    those of the input."""
    ranks = ((_rank(command, typed.casefold()), command) for command in commands)
    matches = [(rank, command) for rank, command in ranks if rank is not None]
    return tuple(command for _, command in sorted(matches, key=lambda pair: pair[0]))


def _rank(command: PaletteCommand, typed: str) -> tuple[int, int] | None:
    """Sort key of a command, smaller is better; None if the input does not find it."""
    names = [name.casefold() for name in (command.name, *command.also)]
    words = re.findall(r"\w+", f"{' '.join(names)} {command.description}".casefold())
    if not (start := typed.strip()) or argument_of(command, typed):
        return 0, 0
    if begun := [len(name) for name in names if name.startswith(start)]:
        return 1, min(begun)
    if any(start in name for name in names):
        return 2, 0
    begins = all(any(word.startswith(part) for word in words) for part in start.split())
    return (3, 0) if begins else None


def argument_of(command: PaletteCommand, typed: str) -> str:
    """What was typed after one of the command's names."""
    name, _, argument = typed.strip().partition(" ")
    is_named = name.casefold() in (command.name, *command.also)
    return argument.strip() if command.argument and is_named else ""
