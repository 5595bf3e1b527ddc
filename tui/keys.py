"""The one table of keys: bindings, hints and help are all made from it, so none can disagree."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from textual.binding import Binding, BindingType


class Key(NamedTuple):
    """Something the operator can press, and everything that is said about it."""

    action: str
    """What it does, as the screens name it."""
    keys: tuple[str, ...]
    """The keys, as the terminal library names them."""
    shown: str
    """The keys, as hints and help print them."""
    hint: str
    """A word or two for the hint lines; "" when it has no place there."""
    about: str
    """A sentence for the help."""
    group: str
    """Under which heading the help lists it."""
    screens: frozenset[str]
    """On which screens it works."""
    verb: str = ""
    """The verb that it plans; "" when it plans none."""
    each: bool = False
    """Whether the action is told which of the keys it was."""


class Hint(NamedTuple):
    """A key as the hint lines show it."""

    shown: str
    words: str
    grey: bool = False
    """Whether it is refused now; pressing it says why."""


LIST, TASK, PLAN, HELP, QUIT = "list", "task", "plan", "help", "quit"
PROBLEMS, LOCK = "problems", "lock"
_TEXTS = frozenset({TASK, PROBLEMS, HELP, PLAN, LOCK})
_LIST = frozenset({LIST})
_MOVING = _LIST | _TEXTS

PAGES = tuple("123456789")
DIGITS = tuple("0123456789")

KEYS: tuple[Key, ...] = (
    Key("move('down')", ("j", "down"), "j", "", "one line down", "Move", _MOVING),
    Key("move('up')", ("k", "up"), "k", "", "one line up", "Move", _MOVING),
    Key("move('page_down')", ("pagedown",), "PgDn", "", "one page down", "Move", _MOVING),
    Key("move('page_up')", ("pageup",), "PgUp", "", "one page up", "Move", _MOVING),
    Key("move('first')", ("g", "home"), "g Home", "", "to the first line", "Move", _MOVING),
    Key("move('last')", ("G", "end"), "G End", "", "to the last line", "Move", _MOVING),
    Key("open", ("enter",), "Enter", "open", "the task, or the problems, in full", "Look", _LIST),
    Key(
        "filter",
        ("/",),
        "/",
        "filter",
        "show only tasks with these words; Enter keeps them, Esc clears them",
        "Look",
        _LIST,
    ),
    Key("next_tab", ("tab", "right"), "Tab", "", "the next tab", "Look", _LIST),
    Key("previous_tab", ("shift+tab", "left"), "S-Tab", "", "the tab before", "Look", _LIST),
    Key("tab", PAGES, "1-9", "tabs", "the tab of that number", "Look", _LIST, each=True),
    Key("next_place", ("]",), "]", "", "the next place", "Look", _LIST),
    Key("previous_place", ("[",), "[", "", "the place before", "Look", _LIST),
    Key("reread", ("r",), "r", "re-read", "look at everything again, now", "Look", _LIST),
    Key("reread", ("r",), "r", "re-read", "read the task again", "Look", frozenset({TASK})),
    Key("mark", ("space",), "Space", "mark", "mark the task, or take its mark away", "Mark", _LIST),
    Key("mark_all", ("*",), "*", "all", "act on all that match, not on one row", "Mark", _LIST),
    Key("unmark", ("\\",), "\\", "no marks", "take all marks away", "Mark", _LIST),
    Key(
        "plan('retry')",
        ("R",),
        "R",
        "retry",
        "plan to try again: shows what would happen, writes nothing",
        "Act",
        _LIST,
        verb="retry",
    ),
    Key(
        "plan('purge')",
        ("X",),
        "X",
        "purge",
        "plan to put into the trash: shows what would happen, writes nothing",
        "Act",
        _LIST,
        verb="purge",
    ),
    Key("unlock", ("U",), "U", "unlock", "who has the lock, and a plan to free it", "Act", _LIST),
    Key(
        "arm",
        ("!",),
        "!",
        "arm",
        "allow writes for 15 minutes since the last one; again: forbid them",
        "Act",
        frozenset({LIST, PLAN, LOCK}),
    ),
    Key(
        "yes",
        ("y",),
        "y",
        "apply",
        "apply a plan for one task, where it asks for no count",
        "Act",
        frozenset({PLAN}),
    ),
    Key(
        "digit",
        DIGITS,
        "0-9",
        "type the count",
        "apply any other plan by its count: the last right digit applies",
        "Act",
        frozenset({PLAN}),
        each=True,
    ),
    Key(
        "yes",
        ("y",),
        "y",
        "free it",
        "free a lock whose holder is gone: there is nobody to signal",
        "Act",
        frozenset({LOCK}),
    ),
    Key(
        "digit",
        DIGITS,
        "0-9",
        "type the PID",
        "free a stuck lock by its holder's PID: the last right digit applies",
        "Act",
        frozenset({LOCK}),
        each=True,
    ),
    Key(
        "rub_out",
        ("backspace",),
        "Bksp",
        "",
        "take the last digit back",
        "Act",
        frozenset({PLAN, LOCK}),
    ),
    Key("worker", ("W",), "W", "worker", "start a worker here, or stop that one", "Act", _LIST),
    Key(
        "help",
        ("?", "f1"),
        "?",
        "help",
        "this page",
        "Leave",
        frozenset({LIST, TASK, PROBLEMS, PLAN, LOCK}),
    ),
    Key(
        "back",
        ("escape",),
        "Esc",
        "clear",
        "clear the filter",
        "Leave",
        _LIST,
    ),
    Key(
        "back",
        ("escape", "q"),
        "Esc",
        "back",
        "back to the list",
        "Leave",
        frozenset({TASK, PROBLEMS}),
    ),
    Key(
        "back",
        ("escape", "q"),
        "Esc",
        "back",
        "back to the list; what runs goes on",
        "Leave",
        frozenset({LOCK}),
    ),
    Key("back", ("escape", "q", "?"), "Esc", "back", "close the help", "Leave", frozenset({HELP})),
    Key(
        "back",
        ("escape", "q"),
        "Esc",
        "discard",
        "close the plan; what is not applied is dropped",
        "Leave",
        frozenset({PLAN}),
    ),
    Key("app.quit", ("q",), "q", "quit", "leave the console", "Leave", _LIST),
    Key(
        "app.cancel",
        ("ctrl+c",),
        "Ctrl-c",
        "",
        "cancel what is typed; twice: leave the console",
        "Leave",
        _LIST,
    ),
    Key(
        "quit",
        ("q",),
        "q",
        "quit",
        "stop the worker (SIGTERM) and leave",
        "Leave",
        frozenset({QUIT}),
    ),
    Key(
        "keep",
        ("k",),
        "k",
        "keep it",
        "leave, and let the worker run on",
        "Leave",
        frozenset({QUIT}),
    ),
    Key("back", ("escape",), "Esc", "stay", "stay in the console", "Leave", frozenset({QUIT})),
)
"""Every key, in the order in which help and hints list them."""

GROUPS = tuple(dict.fromkeys(key.group for key in KEYS))
"""The headings of the help, in their order."""


def on(screen: str, without: Collection[str] = ()) -> Iterator[Key]:
    """The keys of a screen, but for the actions in `without`."""
    return (key for key in KEYS if screen in key.screens and key.action not in without)


def hints(
    screen: str,
    grey: Collection[str] = (),
    without: Collection[str] = (),
    words: Mapping[str, str] | None = None,
) -> tuple[Hint, ...]:
    """What the hint lines of a screen show; `words` replaces the words of some actions."""
    changed = words or {}
    return tuple(
        Hint(key.shown, changed.get(key.action, key.hint), key.action in grey)
        for key in on(screen, without)
        if key.hint
    )


def bindings(screen: str) -> list[BindingType]:
    """The keys of a screen, as the terminal library wants them."""
    return [
        Binding(pressed, f"{key.action}('{pressed}')" if key.each else key.action, show=False)
        for key in on(screen)
        for pressed in key.keys
    ]


def arm_words(armed: bool) -> str:
    """What the arming key would do now, for the hints."""
    return "disarm" if armed else "arm"


def verbs() -> Iterable[Key]:
    """The keys that open a plan."""
    return (key for key in KEYS if key.verb)
