"""A crash: the terminal comes back, and what is kept of it holds nothing of what was worked on."""

from __future__ import annotations

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

from tests.examples import deep_but
from tests.tui.ptys import UTF8, Terminal
from tests.tui.spools import NOW, make_spool, some_tasks
from tui import crash

SECRET = "SECRET-4711"
"""What stands in messages and variables, and must stand nowhere else."""

PLANTED = f"""
import sys, threading
from engine import locks
from tui.cli import main, wiring
from tui.screens.queue import QueueScreen

def boom(*_, **__):
    local = "{SECRET}"
    try:
        {{}}[local]
    except KeyError as error:
        raise RuntimeError(local) from error

def beside(*_, **__):
    threading.Thread(target=boom).start()

def later(self):
    self.call_later(boom)

%s
sys.exit(main(["--open", "queue", sys.argv[1]]))
"""

PLANTS = {
    "a key": ("QueueScreen.action_reread = boom", "tui/"),
    "a callback": ("QueueScreen.action_reread = later", "<string>:"),
    "a worker": ("locks.examine = boom", "tui/cli/wiring.py:"),
    "a thread": ("locks.examine = beside", "<string>:"),
    "the mirror": ("wiring.Setup.open = boom", "tui/cli/console.py:"),
    "the terminal": (
        "import tui.terminal; tui.terminal.Terminal.start_application_mode = boom",
        "<string>:",
    ),
    "the first screen": ("QueueScreen.__init__ = boom", "tui/"),
    "the beginning": ("import tui.app; tui.app.Console.__init__ = boom", "tui/cli/console.py:"),
}
"""What is planted, and the last of our own lines that the error passes through."""


@pytest.fixture(scope="session")
def spool(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A queue on an ordinary day."""
    root = tmp_path_factory.mktemp("ordinary")
    make_spool(root, some_tasks())
    return str(root)


@pytest.mark.parametrize("place", deep_but(["the terminal"], PLANTS))
def test_a_crash_anywhere(spool: str, tmp_path: Path, place: str) -> None:
    """The terminal is as it was, one line says what and where the report is; no secret gets out."""
    plant, where = PLANTS[place]
    argv = [sys.executable, "-P", "-c", PLANTED % plant, spool]
    told = {"TERM": "xterm", "XDG_STATE_HOME": str(tmp_path), **UTF8}
    with Terminal(argv, told) as terminal:
        if "reread" in plant:
            terminal.shows("scope if you act now: row")
            terminal.send("r")
        assert terminal.end() == crash.EX_SOFTWARE
        assert terminal.restored
        said = terminal.said.decode()

    line = re.search(r"spooldeck: the console has failed: (.*); report, .*: (.*)\r\n", said)
    assert line, said
    text = Path(line[2]).read_text()
    assert line[1].startswith(f"RuntimeError at {where}")
    assert SECRET not in said
    assert "Traceback" not in said
    assert said.endswith(line[0])
    assert Path(line[2]).parent == tmp_path / "spooldeck"
    assert stat.S_IMODE(Path(line[2]).stat().st_mode) == 0o600
    assert SECRET not in text
    assert spool not in text
    assert "RuntimeError" in text
    assert "KeyError" in text
    assert text.count("in boom") == 2
    assert "size       80x24" in text


def raised(act: Callable[[], object]) -> BaseException:
    """The error that this ends with."""
    try:
        act()
    except BaseException as error:
        return error
    raise AssertionError("it did not fail")


def test_what_a_report_says() -> None:
    """A report holds time, versions, terminal, size, and each error with its lines of code."""
    error = raised(lambda: int(SECRET))

    made = crash.report(error, {"TERM": "xterm\x1b[5m", "SSH_TTY": SECRET, "HOME": SECRET}, NOW)

    assert made.headline.startswith("ValueError at tests/tui/test_crash_report.py:")
    assert "when       2026-11-20T09:42:08Z" in made.text
    assert "spooldeck  " in made.text
    assert "TERM       'xterm\\x1b[5m'" in made.text
    assert "SSH_TTY    is set" in made.text
    assert f"python     {platform.python_version()}" in made.text
    assert f"textual    {metadata.version('textual')}" in made.text
    assert "\nsize       " in made.text
    assert re.search(r"\nValueError\n  tests/tui/test_crash_report.py:\d+", made.text)
    assert "tests/tui/test_crash_report.py" in made.text
    assert SECRET not in made.text


@pytest.mark.parametrize(
    ("act", "name"),
    [
        (lambda: Path("/nowhere", SECRET).read_text(), "FileNotFoundError (ENOENT)"),
        (lambda: sqlite3.connect(f"/nowhere/{SECRET}"), "OperationalError (SQLITE_CANTOPEN)"),
    ],
)
def test_numbers_that_systems_give(act: Callable[[], object], name: str) -> None:
    """What kind of trouble a system had is told by its number, without the path."""
    made = crash.report(raised(act), {}, NOW)

    assert name in made.headline
    assert SECRET not in made.text


def test_each_error_of_a_group_and_a_recursion() -> None:
    """Errors that came together are reported once each, without their messages; of a thousand lines
    of code the first and the last are kept.
    """

    def fail() -> None:
        one, other = ValueError(SECRET), LookupError(SECRET)
        one.__cause__ = other
        raise ExceptionGroup(SECRET, [one, other, one])

    def deeper() -> None:
        deeper()

    text = crash.report(raised(fail), {}, NOW).text
    recursion = crash.report(raised(deeper), {}, NOW).text

    assert [text.count(name) for name in ("ExceptionGroup", "ValueError", "LookupError")] == [1] * 3
    assert SECRET not in text
    assert "more ..." in recursion
    assert len(recursion.splitlines()) < crash.FRAMES + 30


@pytest.mark.parametrize(
    ("environ", "folder"),
    [
        ({"XDG_STATE_HOME": "{}/state", "HOME": "/nowhere"}, "state/spooldeck"),
        ({"XDG_STATE_HOME": "relative", "HOME": "{}"}, ".local/state/spooldeck"),
        ({"HOME": "{}"}, ".local/state/spooldeck"),
        ({"HOME": "/dev/null"}, None),
        ({}, None),
    ],
)
def test_where_it_is_kept(tmp_path: Path, environ: Mapping[str, str], folder: str | None) -> None:
    """In the folder for what programs leave; where that cannot be, in the one for what passes."""
    told = {key: value.format(tmp_path) for key, value in environ.items()}

    path = Path(crash.keep("text", told, NOW, 4711))

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
    of the user who called sudo; the report is kept elsewhere.
    """
    (tmp_path / "spooldeck").mkdir()
    (tmp_path / "spooldeck/crash-20261120T094208Z-1.txt").symlink_to(tmp_path / "planted")

    kept = [Path(crash.keep("text", {"XDG_STATE_HOME": str(tmp_path)}, NOW, 1))]
    if os.geteuid() == 0:
        home = tmp_path / "home"
        home.mkdir()
        os.chown(home, 65534, 65534)
        kept.append(Path(crash.keep("text", {"HOME": str(home)}, NOW, 1)))
        assert not list(home.iterdir())

    assert not any(path.is_relative_to(tmp_path) for path in kept)
    assert not (tmp_path / "planted").exists()
    for path in kept:
        path.unlink()
