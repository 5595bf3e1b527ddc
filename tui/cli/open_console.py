"""Open the console on the named places, the configured ones, or the demo.

Loading takes most of the time to the first rows: meanwhile a screen shows the host and the places.
It shows only what is known, and the screen is restored however the loading ends.
"""

from __future__ import annotations

import gc
import os
import shlex
import signal
import sys
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from types import FrameType
from typing import TYPE_CHECKING, Any

from engine.config import queue_config
from engine.formats.base.format import Setup
from engine.formats.known_formats import demo_formats, demo_options
from engine.store import Unavailable
from engine.system import malloc
from engine.system.command_errors import EX_UNAVAILABLE, EX_USAGE, fail, print_error
from engine.text.error_text import error_text
from engine.text.safe import safe_line
from engine.values import NamedTuple
from engine.version import VERSION, program_command
from tui.cli.command_table import DEMO_AS_TEXT, load_function
from tui.cli.setup.places import make_places, place_names
from tui.text.glyphs import glyphs_of_locale

if TYPE_CHECKING:
    from tui.cli.setup.find_places import FoundPlaces

ENTER_SCREEN = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[H\x1b[2J"
"""Switch to the alternate screen, hide the cursor, cut long lines."""
LEAVE_SCREEN = "\x1b[2J\x1b[H\x1b[?7h\x1b[?1049l\x1b[?25h"
ENDED_BY = {signal.SIGTERM: 143, signal.SIGHUP: 129, signal.SIGINT: 130}
"""Signals that would end us without restoring the screen, with their exit codes."""

Handler = Callable[[int, FrameType | None], object] | int | None


class SplashScreen:
    """Shows the loading screen until the console takes over or the loading fails.

    In the background it shows nothing: the terminal belongs to another process then.
    """

    def __init__(
        self, fd: int, host: str, places: Sequence[str], glyphs: Mapping[int, str]
    ) -> None:
        """`fd` is the terminal; `places` are the names of the places to open."""
        self._fd, self._host, self._places, self._glyphs = fd, host, places, glyphs
        self._before: dict[int, Handler] = {}
        self._on = False
        self._attributes: list[Any] | None = None
        """Those of the terminal before; None while they are not changed."""
        self._taken: Callable[[], bool] = lambda: False
        self._code: int | None = None

    def hand_over_when(self, taken: Callable[[], bool]) -> None:
        """The console owns and restores the screen as soon as `taken` returns True.

        Raises SystemExit for a signal whose exception was lost: the interpreter ignores an
        exception raised in a weak reference's callback, which the import system uses.
        """
        self._taken = taken
        self._show_keys()
        if self._code is not None:
            raise SystemExit(self._code)

    def __enter__(self) -> SplashScreen:
        """Show it."""
        if self._is_foreground():
            for number in (*ENDED_BY, signal.SIGTSTP):
                self._before[number] = signal.signal(number, self._handle_signal)
            self._show()
        return self

    def __exit__(self, *_: object) -> None:
        """Restore the screen, unless the console took it over and has done so."""
        self._restore_screen()
        for number, handler in self._before.items():
            if signal.getsignal(number) == self._handle_signal:  # not replaced by the console
                signal.signal(number, handler)

    def _is_foreground(self) -> bool:
        try:
            return os.tcgetpgrp(self._fd) == os.getpgrp()
        except OSError:
            return True  # not a controlling terminal: no background

    def _show(self) -> None:
        self._on = True
        self._hide_keys()
        rows = splash_lines(self._host, self._places, os.get_terminal_size(self._fd).lines)
        self._write(ENTER_SCREEN + "\r\n".join(rows).translate(self._glyphs))

    def _restore_screen(self) -> None:
        on, self._on = self._on, False
        self._show_keys()
        if on and not self._taken():
            with suppress(OSError):  # the terminal is gone
                self._write(LEAVE_SCREEN)

    def _hide_keys(self) -> None:
        """Let the terminal not show typed keys; the console reads and obeys them later."""
        with suppress(termios.error):  # no terminal
            self._attributes = termios.tcgetattr(self._fd)
            attributes = termios.tcgetattr(self._fd)
            attributes[3] &= ~termios.ECHO
            termios.tcsetattr(self._fd, termios.TCSANOW, attributes)

    def _show_keys(self) -> None:
        attributes, self._attributes = self._attributes, None
        if attributes is not None:
            with suppress(termios.error):  # the terminal is gone
                termios.tcsetattr(self._fd, termios.TCSANOW, attributes)

    def _handle_signal(self, number: int, _: FrameType | None) -> None:
        self._restore_screen()  # also during __enter__ and __exit__
        if number in ENDED_BY:
            self._code = ENDED_BY[signal.Signals(number)]
            raise SystemExit(self._code)
        os.kill(os.getpid(), signal.SIGSTOP)
        self._show()

    def _write(self, text: str) -> None:
        data = text.encode("utf-8", "replace")
        while data:
            data = data[os.write(self._fd, data) :]


def splash_lines(host: str, places: Sequence[str], height: int) -> list[str]:
    """The lines to show, for a screen of this height."""
    room = max(1, height - 3)
    more = len(places) - room
    named = places[: room - 1] if more > 0 else places
    rows = [f"   {safe_line(place)}" for place in named]
    if more > 0:
        rows.append(f"   and {more + 1} more")
    count = "1 place" if len(places) == 1 else f"{len(places)} places"
    return [f" spooldeck on {safe_line(host)}: opening {count} ...", "", *rows]


class ConsoleOptions(NamedTuple):
    """The options of the console, as typed; a value that is not given is that of the
    configuration."""

    open: str
    theme: str
    wire: int
    refresh: float | None
    mouse: bool
    read_only: bool


def open_console(
    setup: Setup,
    places: list[str],
    *,
    root: str,
    version: bool,
    read_only: bool,
    theme: str,
    mouse: bool,
    wire: int,
    refresh: float | None,
    open: str,
) -> int:
    """Open the console on each place; without a place, say what to do."""
    if version:
        print(f"spooldeck {VERSION}")
        return 0
    names = [root] * bool(root) + places
    options = ConsoleOptions(open, theme, wire, refresh, mouse=mouse, read_only=read_only)
    shown: list[FoundPlaces] = []

    def show(found: FoundPlaces) -> None:
        """Print it before the console opens: the terminal shows it again at the end."""
        shown.append(found)
        if not _why_no_screen():
            print(*found.lines, sep="\n", flush=True)

    chosen = place_names(setup, names, show)
    if not shown:
        return run(setup, chosen, options)
    message = shown[0].message
    return run(setup, chosen, options, lambda: message, is_chosen=False)


def _why_no_screen() -> str:
    """Why the console cannot be shown here; "" if it can."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return "the console needs a terminal; without one: spooldeck status PLACE"
    if os.environ.get("TERM", "") in ("", "dumb"):
        return "this terminal cannot move its cursor (TERM); use: spooldeck status PLACE"
    return ""


def run(
    setup: Setup,
    names: Sequence[str],
    options: ConsoleOptions,
    trouble: Callable[[], str] = lambda: "",
    *,
    is_chosen: bool = True,
) -> int:
    """Run the console until the operator quits.

    `is_chosen`: False for places that no operator has named. `trouble` is asked each second for the
    latest failure outside the places; its text is shown.
    """
    if why := _why_no_screen():
        fail(EX_USAGE, why)
    if not os.environ.get("NO_COLOR"):
        os.environ.pop("NO_COLOR", None)  # set but empty means nothing; the library disagrees
    gc.disable()  # imported objects stay: collecting during the import finds nothing
    glyphs = glyphs_of_locale(os.environ)
    with SplashScreen(sys.stdout.fileno(), os.uname().nodename, names, glyphs) as opening:
        from tui.app import Console
        from tui.terminal.bandwidth import limit_for
        from tui.widgets.theme import BadTheme

        malloc.use_one_arena()
        first, places = _first_screen(options.open), make_places(setup, names)
        try:
            console = Console(
                places,
                theme=options.theme or setup.config.theme,
                read_only=options.read_only or setup.config.read_only,
                start_armed=setup.config.start_armed,
                is_chosen=is_chosen,
                environment=setup.config.environment,
                require_reason=setup.config.require_reason,
                first=first,
                limit=limit_for(os.environ, options.wire or setup.config.wire),
                refresh=setup.config.refresh if options.refresh is None else options.refresh,
                cursor=setup.config.cursor,
                trouble=trouble,
            )
            opening.hand_over_when(lambda: bool(console.output and console.output.bytes_written))
            gc.freeze()
            # Closed screens are cycles, and garbage that is collected late fragments the heap: with
            # (10_000, 5, 5) a console that stays open takes 6 MiB more.
            gc.set_threshold(2_000, 4, 2)
            gc.enable()
            console.run(mouse=options.mouse or setup.config.mouse)
            crash = console.crash
        except BadTheme as error:
            fail(EX_USAGE, str(error))
        except Exception as error:
            crash = error
    if crash is not None:
        from tui.terminal.crash_report import EX_SOFTWARE, report_crash

        fail(EX_SOFTWARE, report_crash(crash, os.environ, time.time()))
    return console.return_code or 0


def _first_screen(name: str) -> str:
    from tui.screens.target import SCREEN_TARGETS
    from tui.text import keys

    screens = {"": keys.OVERVIEW, "queue": keys.LIST}
    boards = {target.pane for target in SCREEN_TARGETS.values()} - {keys.LIST}
    screens |= {word: word for word in sorted(boards)}
    if name not in screens:
        fail(EX_USAGE, f"--open {safe_line(name)}: expected {', '.join(filter(None, screens))}")
    return screens[name]


def _require_safe_folder(folder: str) -> None:
    """Refuse a folder where another user can redirect what root makes and runs."""
    from engine.system import users

    there, option = folder, f"--keep {safe_line(folder)}"
    while not os.path.lexists(there):
        there = os.path.dirname(there)
    try:
        owner = users.safe_account(there)
    except (users.Unsafe, OSError) as error:
        fail(EX_USAGE, f"{option}: {error}")
    if owner is not None:
        whose = f"root's demo in a folder of {owner.name}"
        safer = "choose a folder that only root can write, or run it as that user"
        fail(EX_USAGE, f"{option}: {whose}: {safer}")


class DemoFormats(NamedTuple):
    """The options of the demo that choose its formats."""

    redis: bool
    federation: bool
    zmailer: bool


def _demo_option(chosen: DemoFormats, kept: str) -> str:
    """The option that chooses the formats of the demo; "" for none."""
    option = next((name for name in reversed(demo_options()) if getattr(chosen, name)), "")
    try:
        for form in demo_formats(option):
            form.check_demo(option, kept or "/")  # the temporary folder is short
    except Unavailable as error:
        fail(EX_UNAVAILABLE, f"demo --{option}: {error}")
    except OSError as error:
        fail(EX_USAGE, f"demo --{option} --keep {safe_line(kept)}: {error_text(error)}")
    return option


def demo(
    setup: Setup,
    *,
    tasks: int,
    keep: str,
    redis: bool,
    federation: bool,
    zmailer: bool,
    read_only: bool,
    theme: str,
    mouse: bool,
    wire: int,
    refresh: float | None,
    open: str,
) -> int:
    """Make temporary places with workers, a stuck lock and traffic; open the console on them."""
    from engine.demo.demo import CONFIG_FILE, Demo

    if keep:
        _require_safe_folder(os.path.abspath(keep))
    if keep and os.path.lexists(f"{keep}/{CONFIG_FILE}"):
        opens = shlex.join(["spooldeck", "--config", f"{keep}/{CONFIG_FILE}", f"{keep}/flowing"])
        there = f"{safe_line(keep)} already contains a demo"
        fail(EX_USAGE, f"{there}: remove it, or open it: {safe_line(opens)}")
    option = _demo_option(DemoFormats(redis, federation, zmailer), keep)
    has_screen = not _why_no_screen()
    options = ConsoleOptions(open, theme, wire, refresh, mouse=mouse, read_only=read_only)
    forms, program = demo_formats(option), program_command()
    demo_places = [form.demo_places[option] for form in forms]
    with Demo(tasks, keep, program, demo_places) as show:
        print(f"spooldeck demo in {safe_line(show.folder)}", flush=True)
        if has_screen:
            import_module("tui.app")  # in parallel with the making of the places
        places = show.wait_for_places(lambda step: print(f"  {safe_line(step)} ...", flush=True))
        print(f"places: {safe_line(' '.join(places))}", flush=True)
        code = 0
        try:
            if has_screen:
                loaded = queue_config.load_config(show.config_path, os.environ)
                code = run(setup._replace(config=loaded), places, options, show.trouble)
            else:
                run_as_text = load_function(DEMO_AS_TEXT)
                run_as_text(show.folder, show.config_path, program, places)
        finally:
            if trouble := show.trouble():
                print_error(safe_line(trouble))
                for line in show.last_log_lines():
                    print_error(safe_line(line))
    if trouble and not has_screen:
        from tui.terminal.crash_report import EX_SOFTWARE

        code = EX_SOFTWARE
    if keep:
        again = shlex.join(["spooldeck", "--config", show.config_path, *places])
        print(f"demo places kept in {safe_line(keep)}; to continue: {safe_line(again)}")
    else:
        keeps = "spooldeck demo --keep DIR"
        print(f"demo places removed: {safe_line(show.folder)}; to keep them: {keeps}")
    return code
