"""The start of the console: its first words, and which modules are imported when."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from engine.config import queue_config
from engine.demo.demo import CONFIG_FILE
from engine.formats.bullmq.demo import find_server
from engine.formats.known_formats import FORMATS, demo_formats, setup_for
from engine.system.command_errors import CommandError
from tests import command
from tests.console_places import a_console, disk_place, make_spool, some_tasks, until
from tests.pseudo_terminals import ENTERS, LEAVES, UTF8, Terminal, left
from tests.pseudo_terminals import console as on_a_terminal
from tui.cli import main, open_console
from tui.cli.open_console import splash_lines
from tui.overview.screen import OverviewScreen
from tui.terminal.clipboard import screen_text

AT_OPENING = """
textual rich asyncio yaml sqlite3 ctypes json subprocess pathlib prometheus_client psutil humanize
email shutil socket logging re2 engine.live.inspector engine.index.schema engine.live.index_sync
"""
"""Modules that the first words need not wait for."""

AT_FIRST_FRAME = """
prometheus_client psutil humanize email http re2 textual.widgets._data_table textual.widgets._footer
textual.widgets._header textual.widgets._rich_log textual.widgets._log rich.traceback rich.syntax
markdown_it pygments importlib.metadata unittest concurrent.futures.process tui.screens.help
tui.plan.screen tui.locks.screen tui.task.screen tui.screens.dialogs tui.queue.problems_screen
engine.demo.demo engine.doctor engine.work.worker tui.text.export csv
"""
"""Modules that the first frame need not wait for."""

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
from tests.open_store import open_store
from tui.app import Console
from engine.places.place import Place

class Told(Console):
    def on_ready(self):
        os.write(report, "\\n".join([*sys.modules, ""]).encode())
        self.exit()

report = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
Told([Place(sys.argv[2], lambda: open_store(sys.argv[2]))]).run()
"""

PAUSED = """
import time
from tui.cli.open_console import SplashScreen
with SplashScreen(1, "mx1", ["/var/lib/nftban"], {}):
    while True:
        time.sleep(0.1)  # pause() would miss a signal that comes right before it
"""


@pytest.fixture
def spool(tmp_path: Path) -> str:
    """A queue on an ordinary day."""
    root = tmp_path / "spool"
    root.mkdir()
    make_spool(root, some_tasks())
    return str(root)


def opening(program: str, *words: str) -> Terminal:
    """A program in Python on a terminal."""
    return Terminal([sys.executable, "-P", "-c", program, *words], {"TERM": "xterm", **UTF8})


def named(modules: str, unwanted: str) -> set[str]:
    """Those of the unwanted that are there, by themselves or with a part of them."""
    loaded = [f"{module}." for module in modules.split()]
    return {name for name in unwanted.split() for one in loaded if one.startswith(f"{name}.")}


@pytest.mark.parametrize(
    ("program", "there", "unwanted"),
    [
        (LOADED_AT, "tui.cli.open_console", AT_OPENING),
        pytest.param(LOADED_THEN, "tui.app", AT_FIRST_FRAME, marks=pytest.mark.deep),
    ],
    ids=["opening", "first frame"],
)
def test_what_is_shown_waits_for_nothing_else(
    spool: str, tmp_path: Path, program: str, there: str, unwanted: str
) -> None:
    """Neither the first word nor the first frame waits for a module that it does not show."""
    report = tmp_path / "report"
    with opening(program, str(report), spool) as terminal:
        terminal.until(lambda: report.exists() and report.read_text().endswith("\n"))
        os.killpg(terminal.process.pid, signal.SIGTERM)
        terminal.end()
    assert there in report.read_text().split()
    assert named(report.read_text(), unwanted) == set()


def test_the_task_list_waits_for_no_dialog() -> None:
    """A list opens before the code of dialogs, forms and replays is loaded."""
    argv = [sys.executable, "-c", "import sys, tui.queue.screen; print(*sys.modules)"]
    said = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
    later = "tui.screens.dialogs tui.session.running_operations textual.widgets._text_area"
    assert named(said, later) == set()


def test_what_is_opened_is_on_screen_before_the_console(spool: str) -> None:
    """The names of places come first; if nothing opens, the old screen is restored."""
    with on_a_terminal("--theme", "nonesuch", spool) as terminal:
        code = terminal.end()
        before, _, after = terminal.said.partition(LEAVES)
        assert code == 64
        assert terminal.said.startswith(ENTERS)
        assert b"opening 1 place ..." in before and spool.encode() in before
        assert b"theme nonesuch" in after
        assert b"high-contrast, mono, night, paper, terminal" in after and LEAVES not in after
        assert terminal.restored


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 130)]
)
def test_a_signal_at_the_opening_restores_the_screen(number: signal.Signals, code: int) -> None:
    """Also after Ctrl-Z, from which it comes back and paints again."""
    with opening(PAUSED) as terminal:
        terminal.shows("opening 1 place ...")
        terminal.process.send_signal(signal.SIGTSTP)
        terminal.until(lambda: LEAVES in terminal.said)
        os.waitid(os.P_PID, terminal.process.pid, os.WSTOPPED | os.WNOWAIT)
        assert left(bytes(terminal.said))
        terminal.process.send_signal(signal.SIGCONT)
        terminal.until(lambda: terminal.said.count(ENTERS) == 2)
        terminal.process.send_signal(number)
        assert terminal.end() == code
        assert terminal.restored


def test_keys_that_are_typed_at_the_opening_are_not_shown() -> None:
    """They would be painted among the names of places."""
    with opening(PAUSED) as terminal:
        terminal.shows("opening 1 place ...")
        terminal.send("jjj")
        terminal.send("\x03")
        assert terminal.end() == 130
        assert b"jjj" not in terminal.said
        assert terminal.restored


IGNORED = """
import os, signal, weakref
from tui.cli.open_console import SplashScreen
class Thing: pass
with SplashScreen(1, "mx1", ["/var/lib/nftban"], {}) as opening:
    thing = Thing()
    ref = weakref.ref(thing, lambda _: os.kill(os.getpid(), signal.SIGTERM))
    del thing
    opening.hand_over_when(lambda: False)
"""


def test_a_signal_in_a_callback_still_ends_the_opening() -> None:
    """The interpreter ignores an exception in a weak reference's callback, as imports have them."""
    with opening(IGNORED) as terminal:
        assert terminal.end() == 143
        assert terminal.restored


BACKGROUND = """
import os
import re
from tui.cli.open_console import SplashScreen
if os.fork() == 0:
    os.setpgid(0, 0)
    with SplashScreen(1, "mx1", ["/var/lib/nftban"], {}):
        os._exit(0)
os.wait()
print("done")
"""


def test_in_the_background_the_screen_is_not_painted() -> None:
    """A process that does not own the terminal writes nothing but its result."""
    with opening(BACKGROUND) as terminal:
        assert terminal.end() == 0
        assert terminal.said == b"done\r\n"


def test_names_are_shown_inert_and_all_of_them_are_counted() -> None:
    """A place's name is text for the terminal; places that have no line are counted."""
    title, _, names_line = splash_lines("mx1", ["a\x1b]0;x\x07b\u202ec"], 24)
    rows = splash_lines("mx1", [f"/queue/{number}" for number in range(30)], 24)
    assert names_line.isprintable()
    assert title == " spooldeck on mx1: opening 1 place ..."
    assert rows[0] == " spooldeck on mx1: opening 30 places ..."
    assert len(rows) < 24
    named = sum("/queue/" in row for row in rows)
    assert rows[-1] == f"   and {30 - named} more"


@pytest.mark.parametrize(
    ("board", "key"),
    [("locks", "escape"), ("transports", "q"), ("log", "escape"), ("controls", "q")],
)
async def test_the_first_screen_is_closed_to_the_overview(spool: str, board: str, key: str) -> None:
    """On any first screen, the key that closes it leads to the overview, and q leaves."""
    console = a_console(disk_place(Path(spool)), first=board)
    async with console.run_test() as pilot:
        await until(pilot, lambda: f"> {board}" in screen_text(console.screen))
        await pilot.press(key)
        await until(pilot, lambda: isinstance(console.screen, OverviewScreen))
        await pilot.press("q")
        await until(pilot, lambda: not console.is_running)


def test_a_folder_with_a_demo_is_not_used_again(tmp_path: Path) -> None:
    """`demo --keep DIR` names the way to open the demo in it, and changes nothing."""
    (tmp_path / CONFIG_FILE).write_text("queue: {}\n")
    ran = command.run_text("demo", "--keep", tmp_path)
    assert ran.returncode == 64
    assert f"{tmp_path} already contains a demo: remove it, or open it: spooldeck" in ran.stderr
    assert [path.name for path in tmp_path.iterdir()] == [CONFIG_FILE]


def run_demo(**given: object) -> int:
    """Run `demo` with these options, without a configuration."""
    options: dict[str, Any] = dict.fromkeys(("redis", "federation", "zmailer"), False)
    options |= {"tasks": 10, "keep": "", "read_only": False, "mouse": False}
    options |= {"theme": "", "wire": 0, "refresh": 0.0, "open": ""}
    return open_console.demo(setup_for(queue_config.Config(), "", {}), **options | given)


def test_leaving_says_where_the_places_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each step is printed before the screen starts; after it, what became of the places."""
    monkeypatch.setattr(open_console, "run", lambda *_: capsys.readouterr().out.count("making") - 3)
    monkeypatch.setattr(open_console, "_why_no_screen", lambda: "")
    folder = tmp_path / "demo"
    assert run_demo(keep=str(folder)) == 0
    again = f"spooldeck --config {folder}/{CONFIG_FILE} {folder}/flowing {folder}/wedged"
    assert f"demo places kept in {folder}; to continue: {again}" in capsys.readouterr().out


@pytest.mark.parametrize("option", ["redis", "federation"])
def test_a_folder_whose_path_no_socket_can_have_is_refused(tmp_path: Path, option: str) -> None:
    """Before anything is made, in one line that says what to do."""
    if not find_server():
        pytest.skip("no server program")
    long = tmp_path / ("x" * 100)
    with pytest.raises(CommandError, match=r"socket too long by .* choose a shorter folder"):
        run_demo(keep=str(long), **{option: True})
    assert not long.exists()


@pytest.mark.parametrize(
    ("option", "formats"),
    [
        ("", ["nftban", "kannader", "zgb"]),
        ("redis", ["nftban", "kannader", "zgb", "bullmq"]),
        ("federation", ["nftban", "bullmq"]),
        ("zmailer", ["nftban", "kannader", "zgb", "zmailer"]),
    ],
)
def test_an_option_chooses_the_formats_of_the_demo(option: str, formats: list[str]) -> None:
    """Places of some formats are always there; the first one is the place that opens."""
    assert demo_formats(option) == [FORMATS[name] for name in formats]


def test_what_is_found_on_this_host_is_opened_in_observe(tmp_path: Path) -> None:
    """It is listed before the console, which is not armed in spite of `start_armed`."""
    root, units = tmp_path / "mail-queue", tmp_path / ".config/systemd/user"
    units.mkdir(parents=True)
    make_spool(root, [])
    assert main(["install-units", str(units), "--root", str(root)]) == 0
    config = tmp_path / ".config/spooldeck/config.yaml"
    config.parent.mkdir()
    config.write_text("start_armed: true\n")
    config.chmod(0o600)
    tmp_path.chmod(0o755)
    with on_a_terminal(HOME=str(tmp_path), size=(120, 40)) as terminal:
        terminal.shows("OBSERVE", "mail-queue")
        before = terminal.said.partition(ENTERS)[0].decode()
        assert "no place named: looking for queues on this host ..." in before
        assert re.search(rf"{root} +nftban  spooldeck-queue.service\r\n", before)
        terminal.send("q")
        assert terminal.end() == 0
