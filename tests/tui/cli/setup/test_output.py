"""What leaves by standard output and standard error cannot control the terminal."""

from __future__ import annotations

import errno
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from engine.config.queue_config import ConfigError
from engine.store import StoreError, Unavailable, Unsupported
from engine.system.command_errors import CommandError, NotReadable
from engine.text.safe import safe_text
from tests.examples import deep_but
from tests.nftban_queues import Run
from tui import cli
from tui.cli.commands import COMMAND_WORDS

HARM = "x\x1b]52;c;UFdORUQ=\x07\x1b[31m\x9b2J\u202e\x7f"

SERVERS = {"queue work", "zmailer scheduler", "zmailer agent", "console", "demo", "help"}
"""They run until a signal, or need a terminal."""

COMMANDS = {
    " ".join(word.path): word
    for word in COMMAND_WORDS
    if word.function and not any(" ".join(word.path).startswith(name) for name in SERVERS)
}

ERRORS = [
    CommandError(64, HARM),
    ConfigError(HARM),
    NotReadable(HARM),
    Unavailable(HARM),
    Unsupported(HARM),
    StoreError(HARM),
    FileNotFoundError(errno.ENOENT, "no such file", HARM),
    OSError(errno.EIO, HARM),
]


def test_a_printed_text_keeps_only_line_ends_and_tabs() -> None:
    """CSV, columns and lines come through; each other control character is replaced."""
    assert safe_text("a\tb\r\nc\nd") == "a\tb\r\nc\nd"
    assert safe_text(f"{HARM}\n") == "x\ufffd]52;c;UFdORUQ=\ufffd\ufffd[31m\ufffd2J\ufffd\ufffd\n"
    assert safe_text("a\rb\x0bc\u2028d") == "a\ufffdb\ufffdc\ufffdd"


@pytest.mark.parametrize("name", ["ESC \x1b", "caf\u00e9"])
def test_a_text_that_the_encoding_lacks_is_printed(tmp_path: Path, name: str) -> None:
    """In a locale without it, U+FFFD or a letter of a name is `?`, and nothing is raised."""
    argv = [sys.executable, "-m", "tui.cli", "status", str(tmp_path / name)]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUNBUFFERED": "1"}
    ended = subprocess.run(argv, env=environment, capture_output=True)
    assert (ended.returncode, ended.stderr.count(b"\n")) == (2, 1)
    assert b"Traceback" not in ended.stderr


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_each_kind_of_error_is_one_safe_line(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The text of an error, from any source, is printed as one line without control characters."""

    def fail(_: list[str]) -> int:
        raise error

    monkeypatch.setattr(cli, "_run", fail)
    assert cli.main(["status"]) != 0
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.endswith("\n") and captured.err[:-1].isprintable()


def damage(place: Path) -> None:
    """A database whose schema SQLite cannot parse; the name of the table is in its message."""
    with closing(sqlite3.connect(place)) as db:
        db.execute(f'CREATE TABLE "{HARM}"(a)')
        db.execute("PRAGMA writable_schema=ON")
        db.execute("UPDATE sqlite_master SET sql='CREATE TABLE no no(' WHERE name=?", (HARM,))
        db.commit()


QUICK = ("wait", "journal", "queue list", "queue dlq list", "zgb enqueue", "note")


@pytest.mark.parametrize("name", deep_but(QUICK, COMMANDS))
def test_no_command_prints_what_a_name_or_a_database_contains(
    name: str, tmp_path: Path, spooldeck: Run
) -> None:
    """No command prints the control characters of hostile names, on neither stream."""
    folder, queue, database = (tmp_path / f"{kind}{HARM}" for kind in ("a", "b", "c.db"))
    folder.mkdir()
    for state in ("pending", "work", "dlq"):
        (queue / "queue" / state).mkdir(parents=True)
    damage(database)
    needed = [
        "1"
        for (first, *_), given in COMMANDS[name].arguments
        if not first.startswith("-")
        and given.get("nargs") not in ("?", "*")
        and first not in ("place", "places")
    ]
    for place in (folder, queue, database):
        for words in ([*needed, f"{place}/" if place.is_dir() else place], [place]):
            # A command that takes them for the text of a mail keeps it in the configured folder.
            ended = spooldeck(*name.split(), *map(str, words), NFTBAN_DATA_DIR=f"{tmp_path}/data")
            text = f"{ended.stdout}{ended.stderr}".replace("\n", "").replace("\t", "")
            assert text.isprintable(), (words, text)


def test_what_is_to_be_copied_into_a_shell_is_quoted(tmp_path: Path, spooldeck: Run) -> None:
    """The commands that `init` suggests next have the path as one word."""
    place = f"{tmp_path}/a $(id); b"
    for words in (("init",), ("kannader", "init"), ("zgb", "init")):
        path = f"{place}-{words[0]}"
        said = spooldeck(*words, path).stdout.partition("next:")[2]
        assert f"'{path}'" in said and said.count(path) == said.count(f"'{path}'")
    assert f"init '{place}/none'" in spooldeck("queue", "list", f"{place}/none").stderr


def test_a_terminal_of_any_size_is_printed_for(tmp_path: Path, spooldeck: Run) -> None:
    """A width of 200,000,000 columns is taken for 999."""
    spooldeck("init", tmp_path / "place")
    ended = spooldeck("overview", tmp_path / "place", COLUMNS="200000000", LINES="99999")
    assert "Traceback" not in ended.stderr and ended.stdout
    assert max(map(len, ended.stdout.splitlines())) <= 999
