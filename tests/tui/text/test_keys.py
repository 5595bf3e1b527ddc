"""The key table: bindings, hints and help say the same."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from textual.binding import Binding
from textual.screen import Screen

from engine.index.filter_language import FIELDS
from engine.verbs import VERBS
from tests.console_places import a_console, a_memory, a_place
from tests.tables import each
from tui.app import Console
from tui.confirm.action_screen import ActionScreen
from tui.key_tables import KEYS, keys_on
from tui.locks.screen import LockScreen
from tui.plan.pace_form import PaceScreen
from tui.plan.screen import PlanScreen
from tui.queue.problems_screen import ProblemsScreen
from tui.screens.base import BaseScreen
from tui.screens.dialogs import QuitScreen
from tui.screens.help import FILTER_ACTION, help_lines
from tui.text import keys


def screens_below(kind: type[BaseScreen]) -> Iterator[type[BaseScreen]]:
    """The classes of all screens of the console."""
    for screen in kind.__subclasses__():
        yield screen
        yield from screens_below(screen)


OURS = [screen for screen in screens_below(BaseScreen) if screen.__module__.startswith("tui.")]
ACTIONS = keys.ABANDON, keys.WORKER, keys.SUSPEND, keys.TEST_MAIL, keys.CONTROL
SCREENS: dict[str, type[Screen[Any]]] = {
    **{screen.KIND: screen for screen in OURS if screen.KIND},
    **{keys.PLAN: PlanScreen, keys.LOCK: LockScreen, keys.PROBLEMS: ProblemsScreen},
    **{keys.QUIT: QuitScreen, keys.PACE: PaceScreen, **dict.fromkeys(ACTIONS, ActionScreen)},
}


@each("screen", SCREENS)
def test_each_key_of_the_table_is_bound(screen: str) -> None:
    """On each screen a key of the table does one thing, and the screen does it."""
    pressed = [name for key in keys_on(screen) for name in key.keys]
    assert len(pressed) == len(set(pressed))
    bound = {b.key: b.action for b in SCREENS[screen].BINDINGS if isinstance(b, Binding)}
    if SCREENS[screen] is ActionScreen:  # which binds the keys of five, and looks up the action
        assert set(bound) >= set(pressed)
        bound |= {name: key.action for key in keys_on(screen) for name in key.keys}
    else:
        assert set(bound) == set(pressed)
    for action in bound.values():
        where, _, name = action.partition("(")[0].rpartition(".")
        owner = Console if where == "app" else SCREENS[screen]
        assert callable(getattr(owner, f"action_{name}"))


def helped(screen: str, search: str = "") -> list[str]:
    """The help of a screen for some words, as text."""
    return [
        "".join(text for text, _ in line) for line in help_lines(keys_on, screen, (), 80, search)
    ]


@pytest.mark.parametrize("screen", SCREENS)
def test_the_help_lists_every_key(screen: str) -> None:
    """The help of a screen has each of its keys, folded to 80 cells."""
    help_lines = helped(screen)
    text = " ".join(" ".join(help_lines).split())
    assert not [key for key in keys_on(screen) if f"{key.shown} {key.description}" not in text]
    assert max(map(len, help_lines)) <= 80


def test_a_search_says_where_else_there_is_such_a_key() -> None:
    """What no key here does is told with the screens where one does it, each key once; where one
    does it here, the others are not told."""
    elsewhere = helped(keys.OVERVIEW, "filter")
    assert elsewhere[0].startswith("─ not here, but in the task list ─")
    (key,) = (key for key in keys_on(keys.LIST) if key.action == FILTER_ACTION)
    assert elsewhere.count(f"  {key.shown:<9}{key.description}") == 1
    assert not any("not here" in line for line in helped(keys.LIST, "filter"))
    copied = [line for line in helped(keys.PLAN, "copy the id") if "not here" not in line]
    assert len([line for line in copied if line]) == 1
    assert helped(keys.LIST, "no such words") == []


@each("search", ["", "fields"])
def test_the_help_tells_every_field_of_a_filter(search: str) -> None:
    """Where a filter can be typed, all that it can ask for is told; elsewhere it is not."""
    text = " ".join(helped(keys.LIST, search))
    assert set(FIELDS) <= set(text.partition("fields ")[2].split())
    assert "fields" not in " ".join(helped(keys.LOCKS, search))


def test_only_capital_letters_write() -> None:
    """A key that opens a plan names a known verb; no lower-case key plans, starts or arms."""
    assert all(key.verb in VERBS and key.shown.isupper() for key in keys.verb_keys())
    writing = {"arm", "worker", "unlock", *(key.action for key in keys.verb_keys())}
    assert not [k for k in keys_on(keys.LIST) if k.action in writing and k.shown.islower()]


def test_flow_control_is_left_to_the_terminal() -> None:
    """Ctrl-q and Ctrl-s do nothing here, despite the bindings of the terminal library."""
    console = a_console(a_place(a_memory([])))
    bound = {*console._bindings.key_to_bindings, *(name for k in KEYS for name in k.keys)}
    assert not bound & {"ctrl+q", "ctrl+s"}
