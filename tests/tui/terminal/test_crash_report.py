"""A crash restores the terminal and leaves a report without data of the queue."""

from __future__ import annotations

import asyncio
import os
import platform
import re
import sqlite3
import stat
import sys
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path

import pytest
from textual.app import ComposeResult
from textual.css.query import NoMatches
from textual.screen import Screen
from textual.widgets import Static

from tests.console_places import NOW, make_spool, some_tasks
from tests.examples import deep_but
from tests.pseudo_terminals import UTF8, Terminal
from tests.tables import each
from tui.terminal import crash_report
from tui.terminal.safe_app import SafeApp

SECRET = "SECRET-4711"
"""In messages and variables of the crash; it must be in no report."""

PLANTED = f"""
import sys, threading
import tui.app, tui.terminal.driver
from engine.locks import queue_lock
from tui.cli import main
from engine.formats.base.format import Setup
from tui.queue.screen import QueueScreen

def boom(*_, **__):
    local = "{SECRET}"
    try:
        {{}}[local]
    except KeyError as error:
        raise RuntimeError(local) from error

def beside(*_, **__):
    threading.Thread(target=boom).start()

def later(self, pressed):
    self.call_later(boom)

%s
sys.exit(main(["--open", "queue", sys.argv[1]]))
"""

PLANTS = {
    "a key": ("QueueScreen.action_key = boom", "tui/"),
    "a callback": ("QueueScreen.action_key = later", "<string>:"),
    "a worker": ("queue_lock.examine_lock = boom", "engine/formats/nftban/queue_folders.py:"),
    "a thread": ("queue_lock.examine_lock = beside", "<string>:"),
    "the index sync": ("Setup.open_store = boom", "tui/cli/setup/places.py:"),
    "the terminal": ("tui.terminal.driver.Terminal.start_application_mode = boom", "<string>:"),
    "the first screen": ("QueueScreen.__init__ = boom", "tui/"),
    "the beginning": ("tui.app.Console.__init__ = boom", "tui/cli/open_console.py:"),
}
"""What is planted, and the last file of ours in the traceback."""


@pytest.fixture(scope="session")
def spool(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A queue on an ordinary day."""
    root = tmp_path_factory.mktemp("ordinary")
    make_spool(root, some_tasks())
    return str(root)


@pytest.mark.parametrize("place", deep_but(["the terminal"], PLANTS))
def test_a_crash_anywhere(spool: str, tmp_path: Path, place: str) -> None:
    """The terminal is restored, one line names the error and the report; no secret is in either."""
    plant, where = PLANTS[place]
    argv = [sys.executable, "-P", "-c", PLANTED % plant, spool]
    environ = {"TERM": "xterm", "XDG_STATE_HOME": str(tmp_path), **UTF8}
    with Terminal(argv, environ) as terminal:
        if "action_key" in plant:
            terminal.shows("acts on")
            terminal.send("r")
        assert terminal.end() == crash_report.EX_SOFTWARE
        assert terminal.restored
        output = terminal.said.decode()

    line = re.search(
        r"spooldeck: console crashed: (.*); report \(without task data\): (.*)\r\n\Z", output
    )
    assert line, output
    report = Path(line[2])
    text = report.read_text()
    assert line[1].startswith(f"RuntimeError at {where}")
    assert SECRET not in output + text
    assert "Traceback" not in output and spool not in text
    assert report.parent == tmp_path / "spooldeck"
    assert stat.S_IMODE(report.stat().st_mode) == 0o600
    assert all(word in text for word in ("RuntimeError", "KeyError", "size       80x24"))
    assert text.count("in boom") == 2


def report_of(
    act: Callable[[], object], environ: Mapping[str, str] | None = None
) -> crash_report.CrashReport:
    """The report of the error that this ends with; it never has the secret."""
    try:
        act()
    except BaseException as error:
        made = crash_report.make_report(error, environ or {}, NOW)
        assert SECRET not in made.text + made.headline
        return made
    raise AssertionError("it did not fail")


def test_a_report_has_versions_terminal_and_lines_of_code() -> None:
    """Also the kind of a system's error by its number; of each error of a group the name, once; of
    a thousand lines of code the first and the last."""
    environ = {"TERM": "xterm\x1b[5m", "SSH_TTY": SECRET, "HOME": SECRET}
    made = report_of(lambda: int(SECRET), environ)
    assert made.headline.startswith("ValueError at tests/tui/terminal/test_crash_report.py:")
    for line in (
        "when       2026-11-20T09:42:08Z",
        "spooldeck  ",
        "TERM       'xterm\\x1b[5m'",
        "SSH_TTY    is set",
        f"python     {platform.python_version()}",
        f"textual    {metadata.version('textual')}",
        "size       ",
    ):
        assert f"\n{line}" in made.text
    assert re.search(r"\nValueError\n  tests/tui/terminal/test_crash_report.py:\d+", made.text)

    for act, kind in (
        (lambda: Path("/nowhere", SECRET).read_text(), "FileNotFoundError (ENOENT)"),
        (lambda: sqlite3.connect(f"/nowhere/{SECRET}"), "OperationalError (SQLITE_CANTOPEN)"),
    ):
        assert kind in report_of(act).headline

    def fail() -> None:
        one, other = ValueError(SECRET), LookupError(SECRET)
        one.__cause__ = other
        raise ExceptionGroup(SECRET, [one, other, one])

    def deeper() -> None:
        deeper()

    text, recursion = report_of(fail).text, report_of(deeper).text
    assert [text.count(name) for name in ("ExceptionGroup", "ValueError", "LookupError")] == [1] * 3
    assert "more ..." in recursion
    assert len(recursion.splitlines()) < crash_report.MAX_FRAMES + 30


@each(("environ", "folder"), [
    ({"XDG_STATE_HOME": "{}/state", "HOME": "/nowhere"}, "state/spooldeck"),
    ({"XDG_STATE_HOME": "relative", "HOME": "{}"}, ".local/state/spooldeck"),
    ({"HOME": "{}"}, ".local/state/spooldeck"),
    ({"HOME": "/dev/null"}, None),
    ({}, None),
])  # fmt: skip
def test_where_it_is_kept(tmp_path: Path, environ: Mapping[str, str], folder: str | None) -> None:
    """In the state folder of the user; where that cannot be written, in the temporary folder."""
    variables = {key: value.format(tmp_path) for key, value in environ.items()}
    path = Path(crash_report.save_report("text", variables, NOW, 4711))
    try:
        assert path.read_text() == "text"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert "crash-20261120T094208Z-4711" in path.name
        if folder is not None:
            assert path == tmp_path / folder / "crash-20261120T094208Z-4711.txt"
            assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    finally:
        path.unlink()


def test_nothing_is_written_over(tmp_path: Path) -> None:
    """A file or a link that is there already stays as it is, and root writes nothing into the home
    of the user who called sudo; the report is kept elsewhere."""
    (tmp_path / "spooldeck").mkdir()
    (tmp_path / "spooldeck/crash-20261120T094208Z-1.txt").symlink_to(tmp_path / "planted")

    home = tmp_path / "home"
    home.mkdir()
    environs = [{"XDG_STATE_HOME": str(tmp_path)}]
    if os.geteuid() == 0:
        os.chown(home, 65534, 65534)
        environs.append({"HOME": str(home)})
    for environ in environs:
        path = Path(crash_report.save_report("text", environ, NOW, 1))
        path.unlink()
        assert not path.is_relative_to(tmp_path)
    assert not list(home.iterdir())
    assert not (tmp_path / "planted").exists()


@pytest.mark.parametrize("is_ending", [True, False])
@pytest.mark.parametrize("event", ["on_mount", "on_screen_resume"])
def test_a_screen_that_opens_while_the_console_ends_is_no_crash(
    is_ending: bool, event: str
) -> None:
    """The end removes its parts before its events are handled; else a missing part is a fault."""

    class Opening(Screen[None]):
        def compose(self) -> ComposeResult:
            yield Static(id="part")

    async def work(screen: Opening) -> None:
        if is_ending:
            screen.app.exit(return_code=143)
        await screen.query("*").remove()
        screen.query_one("#part")

    setattr(Opening, event, work)

    class Console(SafeApp):
        def on_ready(self) -> None:
            self.push_screen(Opening())

    console = Console()
    console.run(headless=True)
    assert console.return_code == (143 if is_ending else crash_report.EX_SOFTWARE)
    assert console.crash is None if is_ending else isinstance(console.crash, NoMatches)


async def test_a_worker_that_asks_for_the_screen_while_the_console_ends_is_no_crash() -> None:
    """It is cancelled before the screens are gone, also where a pilot ends the console."""
    console = SafeApp()
    reads = 0

    async def follow() -> None:
        nonlocal reads
        while console.screen is not None:
            reads += 1
            await asyncio.sleep(0)

    async with console.run_test():
        console.run_worker(follow())
    assert console.crash is None and reads
