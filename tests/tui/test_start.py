"""The start: what stands on the screen before the console is loaded, and what is loaded when."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from tests.tui.ptys import ENTERS, LEAVES, UTF8, Terminal, console, left
from tests.tui.spools import make_spool, some_tasks
from tui.cli.opening import lines

AT_OPENING = {
    *("textual", "rich", "asyncio", "yaml", "sqlite3", "ctypes", "json", "subprocess", "pathlib"),
    *("prometheus_client", "psutil", "humanize", "email", "shutil", "socket", "logging", "re2"),
    *("engine.inspector", "engine.index", "engine.mirror"),
}
"""Whoever waits for the first word does not wait for these."""

AT_FIRST_FRAME = {
    *("prometheus_client", "psutil", "humanize", "email", "http", "multiprocessing", "re2"),
    *("textual.widgets._data_table", "textual.widgets._footer", "textual.widgets._header"),
    *("textual.widgets._rich_log", "textual.widgets._log", "rich.traceback", "rich.syntax"),
    *("markdown_it", "pygments", "importlib.metadata", "unittest", "concurrent.futures.process"),
    *("tui.screens.help", "tui.screens.plan", "tui.screens.lock", "tui.screens.task"),
    *("tui.screens.quit", "tui.screens.problems", "engine.demo", "engine.doctor", "engine.worker"),
    *("tui.export", "csv"),
}
"""Nor does whoever waits for the first frame wait for these."""

ESCAPE = "\x1b"

LOADED_AT = """
import sys
report = sys.argv.pop(1)

def heard(event, args):
    if event == "import" and args[0] == "tui.app":
        with open(report, "w") as file:
            print(*sys.modules, sep="\\n", file=file)

sys.addaudithook(heard)
from tui.cli import main
sys.exit(main())
"""

LOADED_THEN = """
import os, sys
from engine.stores import open_store
from tui.app import Console
from tui.place import Place

class Told(Console):
    def on_ready(self):
        os.write(report, "\\n".join(sys.modules).encode())
        self.exit()

report = os.open(sys.argv[2], os.O_WRONLY | os.O_CREAT)
Told([Place(sys.argv[1], lambda: open_store(sys.argv[1]))]).run()
"""

PAUSED = """
import signal, sys
from tui.cli.opening import Opening
with Opening(1, "mx1", ["/var/lib/nftban"], {}):
    while True:
        signal.pause()
"""


@pytest.fixture
def spool(tmp_path: Path) -> str:
    """A queue on an ordinary day."""
    root = tmp_path / "spool"
    root.mkdir()
    make_spool(root, some_tasks())
    return str(root)


def loaded(program: str, *words: str, report: Path) -> set[str]:
    """Which modules were there when the program said so."""
    with Terminal([sys.executable, "-P", "-c", program, *words], {"TERM": "xterm", **UTF8}) as it:
        it.until(lambda: report.exists() and report.read_text().endswith("\n"))
        os.killpg(it.process.pid, signal.SIGTERM)
        it.end()
    return set(report.read_text().split())


def named(modules: set[str], unwanted: set[str]) -> set[str]:
    """Those of the unwanted that are there, by themselves or with a part of them."""
    return {name for name in unwanted for module in modules if f"{module}.".startswith(f"{name}.")}


def test_the_opening_waits_for_nothing(spool: str, tmp_path: Path) -> None:
    """Before the first word is on screen neither the terminal library nor the engine is loaded."""
    report = tmp_path / "report"

    modules = loaded(LOADED_AT, str(report), spool, report=report)

    assert "tui.cli.opening" in modules
    assert named(modules, AT_OPENING) == set()


def test_the_first_frame_waits_for_nothing_it_does_not_show(spool: str, tmp_path: Path) -> None:
    """Screens, widgets and libraries that the first frame does not show are loaded later."""
    report = tmp_path / "report"
    argv = [sys.executable, "-P", "-c", LOADED_THEN, spool, str(report)]

    with Terminal(argv, {"TERM": "xterm", **UTF8}) as terminal:
        assert terminal.end() == 0

    modules = set(report.read_text().split())
    assert "tui.app" in modules
    assert named(modules, AT_FIRST_FRAME) == set()


def test_the_screen_says_what_is_opened_before_it_can_be_shown(spool: str) -> None:
    """The first that is written is the alternate screen with the places' names."""
    with console(spool) as terminal:
        terminal.until(lambda: f"{spool}  opening ...".encode() in terminal.said)

        assert terminal.said.startswith(ENTERS)


def test_what_keeps_the_console_from_opening_is_said_on_the_old_screen(spool: str) -> None:
    """When there is nothing to open after all the screen is given back, and then it is said why."""
    with console("--theme", "nonesuch", spool) as terminal:
        code = terminal.end()

        before, _, after = terminal.said.partition(LEAVES)
        assert code == 64
        assert ENTERS in before
        assert b"nonesuch" in after
        assert LEAVES not in after
        assert terminal.restored


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 130)]
)
def test_whatever_ends_the_opening_gives_the_screen_back(number: signal.Signals, code: int) -> None:
    """Ended while it loads it leaves the terminal as it was."""
    with Terminal([sys.executable, "-P", "-c", PAUSED], {"TERM": "xterm", **UTF8}) as terminal:
        terminal.shows("opening ...")
        terminal.process.send_signal(number)

        assert terminal.end() == code
        assert terminal.restored


def test_stopped_it_gives_the_screen_back_and_continued_it_takes_it_again() -> None:
    """Ctrl-z works while it loads, too."""
    with Terminal([sys.executable, "-P", "-c", PAUSED], {"TERM": "xterm", **UTF8}) as terminal:
        terminal.shows("opening ...")
        terminal.process.send_signal(signal.SIGTSTP)
        terminal.until(lambda: LEAVES in terminal.said)
        os.waitid(os.P_PID, terminal.process.pid, os.WSTOPPED | os.WNOWAIT)
        assert left(bytes(terminal.said))

        terminal.process.send_signal(signal.SIGCONT)
        terminal.until(lambda: terminal.said.count(ENTERS) == 2)
        terminal.process.send_signal(signal.SIGTERM)

        assert terminal.end() == 143
        assert terminal.restored


def test_in_the_background_it_leaves_the_screen_alone() -> None:
    """A screen that is somebody else's is not painted on."""
    told = {"TERM": "xterm", **UTF8}
    with Terminal([sys.executable, "-P", "-c", BACKGROUND], told) as terminal:
        assert terminal.end() == 0

        assert terminal.said == b"done\r\n"


BACKGROUND = """
import os
from tui.cli.opening import Opening
if os.fork() == 0:
    os.setpgid(0, 0)
    with Opening(1, "mx1", ["/var/lib/nftban"], {}):
        os._exit(0)
os.wait()
print("done")
"""


def test_names_are_shown_inert() -> None:
    """A place's name reaches the terminal as text, whatever it is made of."""
    (said,) = lines("mx1", ["a\x1b]0;x\x07b\u202ec"], 24)[2:]

    assert said.isprintable()
    assert "opening ..." in said


def test_more_places_than_lines_are_counted() -> None:
    """No place is passed over: those that have no line are counted."""
    rows = lines("mx1", [f"/queue/{number}" for number in range(30)], 24)

    assert len(rows) < 24
    named = sum("opening" in row for row in rows)
    assert rows[-1] == f"   and {30 - named} more"


@pytest.mark.parametrize("key", [ESCAPE, "q"])
@pytest.mark.parametrize("board", ["locks", "transports", "log", "controls"])
def test_from_the_screen_that_it_opened_on_one_gets_away(spool: str, board: str, key: str) -> None:
    """Whatever screen it opens on, what closes it leads to the overview, and q leaves there."""
    with console("--open", board, spool) as terminal:
        terminal.until(lambda: f"> {board}" in terminal.screen.text)
        terminal.send(key)
        terminal.until(lambda: "q quit" in terminal.screen.text)
        terminal.send("q")

        assert terminal.end() == 0
