"""Opens the console: on the places named, on the configured ones, or on the demo's."""

from __future__ import annotations

import gc
import os
import shlex
import sys
import time
from argparse import Namespace
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING

from engine.config import queue_config
from engine.text.safe import shown
from tui.cli.setup.places import names_of, place_of
from tui.cli.setup.setup import EX_USAGE, Setup, fail, program
from tui.cli.splash import Opening
from tui.format.glyphs import chosen

if TYPE_CHECKING:
    pass

KEEPER = "tui.cli.demo_formats"
"""The module whose process makes the demo's places, and keeps them."""


def open_console(setup: Setup, arguments: Namespace) -> int:
    """The console on each place; says what to do when there is none."""
    if arguments.version:
        from importlib.metadata import version

        print(f"spooldeck {version('spooldeck')}")
        return 0
    root = getattr(arguments, "root", "")
    names = [*([root] if root else []), *arguments.places]
    return run(setup, names_of(setup, names), arguments)


def run(setup: Setup, names: Sequence[str], arguments: Namespace) -> int:
    """The console until it is left."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        fail(EX_USAGE, "the console needs a terminal; for one plain look: spooldeck status PLACE")
    if os.environ.get("TERM", "") in ("", "dumb"):
        fail(EX_USAGE, "this terminal cannot move its cursor (TERM); try: spooldeck status PLACE")
    if not os.environ.get("NO_COLOR"):
        os.environ.pop("NO_COLOR", None)  # set but empty it asks for nothing; the library thinks so
    gc.disable()  # what loading makes stays: looking through it again and again finds nothing
    opening = Opening(sys.stdout.fileno(), os.uname().nodename, names, chosen(os.environ))
    with opening:
        from tui.app import Console
        from tui.terminal.bandwidth import budget_for
        from tui.widgets.theme import BadTheme

        first, places = _first(arguments.open), [place_of(setup, name) for name in names]
        try:
            console = Console(
                places,
                theme=arguments.theme or setup.config.theme,
                read_only=arguments.read_only or setup.config.read_only,
                start_armed=setup.config.start_armed,
                environment=setup.config.environment,
                require_reason=setup.config.require_reason,
                first=first,
                budget=budget_for(os.environ, arguments.wire or setup.config.wire),
            )
            opening.until(lambda: console.written > 0)
            gc.freeze()
            gc.enable()
            console.run(mouse=arguments.mouse or setup.config.mouse)
            crash = console.crash
        except BadTheme as error:
            fail(EX_USAGE, str(error))
        except Exception as error:
            crash = error
    if crash is not None:
        from tui.terminal.crash_report import EX_SOFTWARE, told

        fail(EX_SOFTWARE, told(crash, os.environ, time.time()))
    return console.return_code or 0


def _first(name: str) -> str:
    from tui.format import keys

    screens = {"": keys.OVERVIEW, "queue": keys.LIST}
    boards = (keys.OVERVIEW, keys.LOCKS, keys.TRANSPORTS, keys.LOG, keys.CONTROLS)
    screens |= {word: word for word in boards}
    if name not in screens:
        fail(EX_USAGE, f"--open {shown(name)}: expected {', '.join(filter(None, screens))}")
    return screens[name]


def _require_own(folder: str) -> None:
    """Make sure that no other user can redirect what root makes, and runs, in a folder."""
    from engine.system import users

    there = folder
    while not os.path.lexists(there):
        there = os.path.dirname(there)
    try:
        owner = users.owner_at(there)
    except (users.Unsafe, OSError) as error:
        fail(EX_USAGE, f"--keep {shown(folder)}: {error}")
    if owner is not None:
        fail(EX_USAGE, f"--keep {shown(folder)}: root's demo in a folder of {owner.name}: {SAFER}")


SAFER = "choose a folder that only root can write, or run it as that user"


def demo(setup: Setup, arguments: Namespace) -> int:
    """Throw-away places with workers, a stuck lock and traffic, and the console on them."""
    from engine.demo.traffic import CONFIG, Demo

    kept = arguments.keep
    if kept:
        _require_own(os.path.abspath(kept))
    if kept and os.path.lexists(f"{kept}/{CONFIG}"):
        opens = shlex.join(["spooldeck", "--config", f"{kept}/{CONFIG}", f"{kept}/flowing"])
        fail(EX_USAGE, f"{shown(kept)} already holds a demo: remove it, or open it: {shown(opens)}")
    with Demo(arguments.tasks, kept, program(), KEEPER) as show:
        print(f"spooldeck demo in {shown(show.folder)}", flush=True)
        import_module("tui.app")  # takes about as long as they do to be made
        places = show.places(lambda step: print(f"  {shown(step)} ...", flush=True))
        loaded = queue_config.load(show.config_path, os.environ)
        settings = Setup(loaded, setup.queue)
        code = run(settings, places, arguments)
    if kept:
        again = shlex.join(["spooldeck", "--config", show.config_path, *places])
        print(f"the demo's places are kept; to open them again: {shown(again)}")
    else:
        print(f"the demo's places are removed: {shown(show.folder)}")
    return code
