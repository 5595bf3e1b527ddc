"""The console on real pseudo terminals: names, locales, colours, sizes, signals, tmux."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from engine.model import State
from tests.console_places import a_task, make_spool, put_file, some_tasks
from tests.examples import deep_but
from tests.pseudo_terminals import (
    ASCII,
    ENTERS,
    LEAVES,
    PATIENCE,
    PROGRAM,
    ROOT,
    UTF8,
    Terminal,
    console,
    left,
)
from tests.tables import each

TERMS = ("xterm", "xterm-256color", "screen", "screen-256color", "tmux-256color", "linux", "vt100")

COLOUR = re.compile(r"3[0-8]|4[0-8]|9[0-7]|10[0-7]")
"""Parameters of SGR that choose a colour; 39 and 49 choose the terminal's own."""

OURS = re.compile(
    r"\x1b\[[0-9;]*[mHG]|\x1b\[\?(?:1049|25|7|2004|1000|1003|1015|1006)[hl]|\x1b\[2J|\r+\n"
)
"""All that the console has to say to a terminal besides text."""

LOCALES = pytest.mark.parametrize(
    "lang", [pytest.param(ASCII, marks=pytest.mark.deep, id="C"), pytest.param(UTF8, id="UTF-8")]
)

QUIT = "\x03\x03"
"""Ctrl-c twice leaves from the list."""
READY = "order: id"
PLAIN = b"-- plain text; Enter returns --"
ENDS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
"""What ends a program."""

BETWEEN = (
    "app.Console.__init__",
    "app.Console.run",
    "terminal.driver.Terminal.__init__",
    "terminal.driver.Terminal.start_application_mode",
    "overview.screen.OverviewScreen.__init__",
    "overview.screen.OverviewScreen.compose",
)
"""Steps of the start, in their order."""

TOLD = """
import os, sys
import tui.app, tui.overview.screen
from tui.cli import main
step = tui.{where}
def told(*given, **named):
    if {where!r} == "app.Console.run":
        os.kill(os.getpid(), {number})
    made = step(*given, **named)
    os.kill(os.getpid(), {number})
    return made
tui.{where} = told
sys.exit(main([sys.argv[1]]))
"""
"""A console that is told to end at the end of a step."""


@pytest.fixture(scope="session")
def spool(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A queue on an ordinary day."""
    root = tmp_path_factory.mktemp("ordinary")
    make_spool(root, some_tasks())
    return str(root)


def sgr(output: bytes | bytearray) -> set[str]:
    """The parameters of all that was said about how text looks."""
    matches = re.findall(r"\x1b\[([0-9;]*)m", output.decode())
    return {part for parts in matches for part in parts.split(";")}


def others(output: bytes | bytearray) -> list[str]:
    """What went to the terminal that is neither text nor something of ours to say."""
    rest = OURS.sub("", output.decode())
    return re.findall(r"\x1b.{0,20}|[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", rest)


def ends_by(number: signal.Signals, terminal: Terminal) -> None:
    """A signal ends it with the code that says which, and the terminal as it was."""
    terminal.process.send_signal(number)
    assert (terminal.end(), terminal.restored) == (128 + number, True)
    assert LEAVES in terminal.said


# Table of terminals


@pytest.mark.parametrize("term", deep_but(["xterm", "vt100"], TERMS))
def test_every_terminal(spool: str, term: str) -> None:
    """With any name, locale and NO_COLOR it starts, moves, ends, and asks nothing."""
    number = TERMS.index(term)
    lang, no_color = (ASCII, UTF8)[number % 2], number // 2 % 2 == 1
    environ = {**lang, "NO_COLOR": "1"} if no_color else lang
    with console("--open", "queue", spool, TERM=term, **environ) as terminal:
        terminal.opens()
        first = terminal.screen.text
        terminal.send("j")
        terminal.until(lambda: terminal.screen.lines[-2] != first.split("\n")[-2])
        terminal.send(QUIT)
        assert (terminal.end(), terminal.restored) == (0, True)
        assert terminal.said.startswith(ENTERS)
        assert not others(terminal.said)
        assert b"\x1b[?1000h" not in terminal.said  # the mouse is used with --mouse only
        assert terminal.said.isascii() == (lang is ASCII)
        assert any(map(COLOUR.fullmatch, sgr(terminal.said))) != no_color
        assert not no_color or "7" in sgr(terminal.said)  # the cursor is still seen


@each("term", ["dumb", "", None])
def test_a_terminal_that_cannot_move_its_cursor(spool: str, term: str | None) -> None:
    """It is refused in one line with what to do instead, and nothing else is written."""
    environ = {} if term is None else {"TERM": term}
    with Terminal([*PROGRAM, spool], environ) as terminal:
        assert terminal.end() == 64
        assert b"spooldeck status" in terminal.said
        assert b"\x1b" not in terminal.said
        assert terminal.said.count(b"\n") == 1


# Data


@pytest.fixture(scope="session")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A queue with text in many scripts."""
    root = tmp_path_factory.mktemp("foreign")
    make_spool(root, [])
    for number, text in enumerate(("größe", "日本語の件名", "e\u0301te\u0301", "привет", "ascii")):
        put_file(root, a_task(number * 4, description=f"<{text}>", error=""))
    return str(root)


@LOCALES
def test_wide_and_foreign_text_keeps_its_columns(foreign: str, lang: dict[str, str]) -> None:
    """Every row ends where it would with plain text, in cells, and a cut is at its end. SIGINT ends
    it and restores the terminal."""
    with console("--open", "queue", "--theme", "mono", foreign, **lang) as terminal:
        terminal.opens(5)

        def told() -> list[str]:
            return [line for line in terminal.screen.lines if "<" in line and " ready " in line]

        terminal.until(lambda: len(told()) == 5)
        rows = told()
        terminal.send("/")
        terminal.shows("filter")
        terminal.send("größe")
        terminal.shows("gr??e" if lang is ASCII else "größe")
        ends_by(signal.SIGINT, terminal)
        if lang is ASCII:
            assert terminal.said.isascii()
            assert "<" + "?" * 12 + ">" in "".join(rows)
            assert len({row.index("<") for row in rows}) == 1
        else:
            assert "<日本語の件名>" in "".join(rows)


HOSTILE = (
    "\x1b]52;c;SE9TVElMRQ==\x07",
    "\x1b[5;8mHOSTILE\x1b[6n",
    "\x1b]0;HOSTILE\x07",
    "\x1bP+q544e\x1b\\",
    "\x9b31mHOSTILE\x9d52;c;QQ==\x9c",
    "\x00\x07\x08\x0b\x0c\x0e\x7f HOSTILE",
    "\u202eHOSTILE\u2066",
    "[bold]HOSTILE[/nope][@click=app.quit]x[/]",
    "日本HOSTILE\u0301",
)
"""What an attacker may write into a subject, an address or a log to have a terminal act on it."""


@pytest.fixture(scope="session")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A queue where everything foreign is hostile: tasks, their names, payloads, logs, figures."""
    root = tmp_path_factory.mktemp("hostile")
    make_spool(root, some_tasks(4, 1, 2))
    for number, text in enumerate(HOSTILE):
        state = State.DEAD if number % 2 else State.PENDING
        task = a_task(100 + number, state, description=text, error=text)
        path = put_file(root, task)
        path.write_bytes(path.read_bytes() + b'TASK_EXTRA="\xff\xfe\x1b[5m"\n')
    (root / "queue/pending/\x1b[5mHOSTILE.task").write_bytes(b"\x1b[5m\xff")
    (root / "queue/pending/20261120T094208Z-mail_send-0badf00d.task").write_bytes(b"\x9b5m=\x1b[5m")
    with (root / "log/queue.log").open("ab") as log:
        for text in HOSTILE:
            log.write(b"[2026-11-20 09:42:00] [ERROR] " + text.encode() + b" \xff\x9b5m\n")
            log.write(f"[2026-11-20 09:42:00] [{text}] HOSTILE\n".encode())
            log.write(f"[2026-11-20 09:42:00] [WARN] Task {a_task(0).id}: {text}\n".encode())
    with (root / "metrics/mail.prom").open("a") as figures:
        label = HOSTILE[1] + HOSTILE[5].replace("\0", "")
        figures.write(f'nftban_mail_send_attempts_total{{transport="{label}"}} 7\n')
    os.utime(root / "metrics/mail.prom")
    return str(root)


WALK = (
    ("5", "> locks"),
    ("q", "PEND"),
    ("6", "> transports"),
    ("q", "PEND"),
    ("7", "33 lines"),
    ("y", " Copy "),
    ("\x1b", "w wrap"),
    ("q", "PEND"),
    ("2", READY),
    (":", " Command "),
    ("\x1b", "q back"),
    ("y", " Copy "),
    ("\x1b", "q back"),
    ("c", "STILL?"),
    ("q", READY),
    ("4", "4 DLQ 2"),
    ("t", "> log"),
    ("q", "4 DLQ 2"),
    ("\r", "files 1"),
    ("l", "^no payload"),
    ("l", "^09:42:00 W Task"),
    ("l", "inode"),
    ("q", "4 DLQ 2"),
    ("l", "EXPIRES"),
    ("l", "Enter shows the first bytes"),
    ("\r", "problem 1 of"),
    ("q", "Enter shows the first bytes"),
    ("2", READY),
    ("?", "Keys of"),
    ("\x1b", READY),
    ("U", "4 due tasks wait"),
    ("q", READY),
)
"""Keys, and what is on the screen that they lead to, and was not before; after ^, at the left end
of a pane at the left.

Esc is a key of its own only when nothing else follows at once: so what it leads to is waited for.
"""


def is_reached(terminal: Terminal, text: str) -> bool:
    """True if a text of `WALK` is on the screen."""
    left_ends = "\n".join(f"^{line[1:].lstrip()}" for line in terminal.screen.lines)
    return text in terminal.screen.text or text in left_ends


@LOCALES
def test_nothing_in_the_data_reaches_the_terminal_raw(hostile: str, lang: dict[str, str]) -> None:
    """On every screen a hostile spool is text: each control byte sent is one of the console's.
    SIGHUP ends it and restores the terminal."""
    with console(hostile, size=(120, 40), **lang) as terminal:
        terminal.shows("PEND", "HOSTILE")
        for keys, text in WALK:
            terminal.send(keys)
            terminal.until(partial(is_reached, terminal, text))
        terminal.send("=")  # what is printed is longer than the screen
        terminal.until(lambda: PLAIN in terminal.said)
        terminal.send("\r")
        terminal.until(lambda: ENTERS in terminal.said.partition(PLAIN)[2])
        terminal.shows(READY)
        ends_by(signal.SIGHUP, terminal)
        assert not others(terminal.said)
        assert not sgr(terminal.said) & {"5", "6", "8"}
        assert "HOSTILE" in terminal.said.decode()


# Size


def right(terminal: Terminal, columns: int) -> bool:
    """Whether the screen is painted as it is at that size, and nothing of another is left."""
    lines = terminal.screen.lines
    return (
        "OBSERVE" in lines[0]
        and any("pending 40" in line for line in lines[:3])
        and any("acts on" in line for line in lines[-4:])
        and max(map(len, lines)) <= columns
    )


@pytest.mark.parametrize("size", [(1, 1), pytest.param((20, 5), marks=pytest.mark.deep)])
def test_every_size(spool: str, size: tuple[int, int]) -> None:
    """It opens on any size, with any COLUMNS and LINES; after a hundred sizes in a row the
    screen is that of the last one."""
    sizes = itertools.islice(itertools.cycle([(20, 5), (1, 1), (200, 60), (60, 15), (80, 24)]), 100)
    with console("--open", "queue", spool, size=size, COLUMNS="200", LINES="60") as terminal:
        terminal.until(lambda: b"\x1b[1;1H" in terminal.said)
        terminal.resize(80, 24)
        terminal.shows(READY)
        for columns, rows in sizes:
            terminal.resize(columns, rows)
        for columns, rows in ((60, 15), (200, 60)):
            terminal.resize(columns, rows)
            terminal.until(lambda: right(terminal, terminal.screen.columns))
        terminal.send(QUIT)
        assert terminal.end() == 0


# Away and back


def test_ctrl_z_leads_to_the_shell_and_back(spool: str) -> None:
    """The shell finds its terminal as it was, and `fg` the whole screen as it is now."""
    bash = ["bash", "--norc", "--noprofile", "-i"]
    environ = {"TERM": "xterm", "PS1": "SHELL> ", "HISTFILE": "", **UTF8}
    with Terminal(bash, environ) as terminal:
        terminal.shows("SHELL>")
        terminal.send(f"{' '.join(PROGRAM)} --open queue {spool}\n")
        terminal.shows(READY, "pending 40", "lock free   in 0.0/s")
        before = terminal.screen.lines[1:3]
        terminal.send("\x1a")
        terminal.shows("Stopped")
        assert left(terminal.said.partition(b"Stopped")[0])
        terminal.send("stty -a | grep -c ' echo '; echo BE''TWEEN\n")
        terminal.shows("BETWEEN")
        assert "\n1\nBETWEEN" in terminal.screen.text.replace("\r", "")
        terminal.send("fg; echo EN''DED $?\n")
        terminal.shows(READY)
        assert terminal.screen.lines[1:3] == before
        terminal.send("j" + QUIT)
        terminal.shows("ENDED 0")
        terminal.send("exit\n")
        assert (terminal.end(), terminal.restored) == (0, True)


# Ends


BYTES = ["1", "20", "40", "60", "80", "100", "120", "140", "200", "400", "800", "1600"]


@pytest.mark.parametrize("instant", deep_but(["1", "140", BETWEEN[3]], (*BYTES, *BETWEEN)))
def test_signals_at_any_instant_of_the_start(spool: str, instant: str) -> None:
    """However few bytes it has written when it is signalled, and at the end of each step: told to
    end while it takes the terminal, or builds its first screen, it gives it back."""
    number = ENDS[(*BYTES, *BETWEEN).index(instant) % 2]
    code = TOLD.format(where=instant, number=int(number))
    argv = [sys.executable, "-P", "-c", code] if instant in BETWEEN else PROGRAM
    with Terminal([*argv, spool], {"TERM": "xterm", **UTF8}) as terminal:
        if instant in BYTES:
            terminal.until(lambda: len(terminal.said) >= int(instant))
            terminal.process.send_signal(number)
        assert (terminal.end(), terminal.restored) == (128 + number, True)


@pytest.mark.parametrize("controlling", [True, pytest.param(False, marks=pytest.mark.deep)])
def test_a_line_that_breaks_ends_it(spool: str, controlling: bool) -> None:
    """When the terminal is gone the console ends, whether or not a signal says so."""
    argv = [*PROGRAM, "--open", "queue", spool]
    with Terminal(argv, {"TERM": "xterm", **UTF8}, controlling=controlling) as terminal:
        terminal.shows(READY)
        terminal.hang_up()
        assert terminal.process.wait(PATIENCE) == 129


HANGING = """
import sys, threading
from tests.open_store import open_store
from tui.text import keys
from tui.app import Console
from engine.places.place import Place
place = Place(sys.argv[1], lambda: open_store(sys.argv[1]), lock=threading.Event().wait)
console = Console([place], first=keys.LIST)
console.run()
sys.exit(console.return_code)
"""
"""A console that looks at a lock which answers never, as on a file system that hangs."""


def test_what_hangs_does_not_keep_it(spool: str) -> None:
    """It ends, with the terminal as it was, though a thread of it waits for a disk for ever."""
    argv = [sys.executable, "-c", HANGING, spool]
    with Terminal(argv, {"TERM": "xterm", **UTF8}) as terminal:
        terminal.shows(READY)
        terminal.send(QUIT)
        assert (terminal.end(), terminal.restored) == (0, True)


# Keys that are none


def test_input_that_is_no_key_does_nothing(spool: str, tmp_path: Path) -> None:
    """Pasted text, Latin-1 bytes and Ctrl-Z without a shell act on nothing; with --mouse the wheel
    moves; after SIGSTOP and SIGCONT all is painted again. The screen goes to the terminal, not to
    standard error."""
    errors = os.open(tmp_path / "errors", os.O_WRONLY | os.O_CREAT)
    with console("--open", "queue", "--mouse", spool, stderr=errors) as terminal:
        terminal.opens()

        def scope() -> str:
            return terminal.screen.lines[-2].partition("acts on ")[2]

        first = scope()
        for data, text in (
            (b"\x1b[200~Xyq\nq4\x1b[201~?", "Keys of"),
            (b"\x1b", READY),
            (b"\xe4\xff\xc34", "4 DLQ 12"),
            (b"2\x1a", "no shell with job control to return to"),
        ):
            terminal.send(data)
            terminal.shows(text)
        terminal.opens()
        assert scope() == first
        terminal.send("\x1b[<65;10;8M")
        terminal.until(lambda: scope() not in ("", first) and READY in terminal.screen.text)

        terminal.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, terminal.process.pid, os.WSTOPPED | os.WNOWAIT)
        sent_bytes = len(terminal.said)
        terminal.screen.feed("\x1b[2J")
        terminal.process.send_signal(signal.SIGCONT)
        terminal.shows(READY)
        assert ENTERS in terminal.said[sent_bytes:]

        terminal.send("\x1b[<0;10;8M\x1b[<0;10;8m" + QUIT)
        assert terminal.end() == 0
        assert b"\x1b[?1000h" in terminal.said
        assert b"\x1b[?1003h" not in terminal.said  # every motion would be sent over the line
        assert terminal.restored
    os.close(errors)
    assert (tmp_path / "errors").read_bytes() == b""


# tmux


@pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")
def test_in_tmux(spool: str, tmp_path: Path) -> None:
    """In a real tmux it paints, follows a change of size, and leaves the shell's screen."""
    socket = str(tmp_path / "tmux")
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}
    environ |= {"TERM": "xterm-256color", **UTF8}

    def tmux(*words: str) -> str:
        argv = ["tmux", "-S", socket, "-f", "/dev/null", *words]
        done = subprocess.run(argv, env=environ, check=True, capture_output=True, timeout=PATIENCE)
        return done.stdout.decode()

    command = f"cd {ROOT}; {' '.join(PROGRAM)} --open queue {spool}; echo ENDED $?; exec cat"
    tmux("new-session", "-d", "-x", "80", "-y", "24", f"sh -c '{command}'")
    try:
        with Terminal(["tmux", "-S", socket, "attach"], environ) as terminal:
            terminal.until(lambda: READY in tmux("capture-pane", "-p"))
            terminal.resize(120, 41)
            terminal.until(lambda: len(tmux("capture-pane", "-p").split("\n")[0]) > 100)
            terminal.resize(80, 24)
            terminal.until(lambda: READY in tmux("capture-pane", "-p"))
            tmux("send-keys", "C-c", "C-c")
            terminal.until(lambda: "ENDED" in tmux("capture-pane", "-p"))

        assert tmux("capture-pane", "-p").strip() == "ENDED 0"  # and nothing else is left there
    finally:
        tmux("kill-server")
