"""`completion`: print the completion script of bash, zsh or fish, and the values that it asks for.

shtab makes the scripts from the command table (https://docs.iterative.ai/shtab). A build of a
package runs it once and adds the scripts, so an installed command needs no shtab.

A script completes commands, options and file names on its own. For places, states, ids, operations
and transports it runs `spooldeck completion --values KIND SHELL -- WORDS`. That command only reads,
takes no lock, and prints what it found when its time is up. It prints only values that no shell
changes: bash expands the words of `compgen -W`, for example.
"""

from __future__ import annotations

import os
import re
import sys
from argparse import Action, ArgumentParser, _SubParsersAction
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from threading import Thread
from typing import Any

from engine.config import queue_config
from engine.config.mail_config import METHODS
from engine.config.place_address import is_url
from engine.config.queue_config import Config
from engine.formats.base.format import Setup
from engine.formats.known_formats import default_place, has_file_suffix, setup_for
from engine.model import State, Task, state_words
from engine.store import StoreError
from engine.system.command_errors import EX_UNAVAILABLE, CommandError, fail
from engine.values import NamedTuple
from tui.cli.commands import COMMAND_WORDS

READ_SECONDS = 0.1
"""Seconds to read a place for values. The start of the command takes about as long."""

MAX_VALUES = 200
"""Most values that are printed: a longer list helps no reader."""

TEXTS = f"{os.path.dirname(os.path.abspath(__file__))}/texts"


def completion(shell: str, words: list[str], *, values: str, root: str, config: str) -> int:
    """Print the completion script of a shell, or with --values what can complete the last word."""
    if values:
        for value in read_values(values, TypedLine(words, root, config)):
            if shell != "bash" or ":" not in value:  # bash splits its words at colons
                print(value)
        return 0
    try:
        with open(f"{TEXTS}/completion/spooldeck.{shell}", encoding="utf-8") as file:
            text = file.read()
    except FileNotFoundError:  # run from the source tree, which has no built files
        text = make_script(shell)
    sys.stdout.write(text)
    sys.stdout.flush()
    return 0


# ---- values, while a command line is typed


class TypedLine(NamedTuple):
    """The words of a command line so far, and the options of the command that completes it."""

    words: Sequence[str]
    root: str = ""
    config_path: str = ""

    def config(self) -> Config:
        """The configuration that the words name, else the usual one."""
        path = self._option("--config") or self.config_path
        return queue_config.load_config(path or None, os.environ)

    def setup(self) -> Setup:
        """The setup of the place that the words name, else of the default place."""
        place, config = self._option("--root") or self.root or self._first_place(), self.config()
        return setup_for(config, place or default_place(config, os.environ), os.environ)

    def _option(self, name: str) -> str:
        """The value of an option: `--root X`, or `--root=X`, which bash gives as three words."""
        for at, word in enumerate(self.words):
            if word.startswith(f"{name}="):
                return word.partition("=")[2]
            if word == name:
                return next((value for value in self.words[at + 1 :] if value != "="), "")
        return ""

    def _first_place(self) -> str:
        """The first word after the command that can be a place."""
        paths = {word.path for word in COMMAND_WORDS}
        command: tuple[str, ...] = ()
        for word in self.words:
            if (*command, word) in paths:
                command = (*command, word)
            elif is_url(word) or os.path.isdir(word) or has_file_suffix(word):
                return word
        return ""


def read_values(kind: str, line: TypedLine) -> list[str]:
    """Read what can complete the last word of a line, for at most `READ_SECONDS`.

    Errors give no values: the shell has no place to show them, and the command itself reports them.
    """
    start = line.words[-1] if line.words else ""
    before = line._replace(words=line.words[:-1])
    candidates: list[str] = []
    # A thread, because a lock of SQLite or a server that does not answer cannot be interrupted.
    reader = Thread(target=_collect, args=(kind, before, start, candidates), daemon=True)
    reader.start()
    reader.join(READ_SECONDS)
    return candidates[:MAX_VALUES]


def _collect(kind: str, line: TypedLine, start: str, candidates: list[str]) -> None:
    try:
        for value in _VALUES[kind](line):
            if value.startswith(start) and re.fullmatch(r"[A-Za-z0-9_./:@%+,=-]+", value):
                candidates.append(value)
            if len(candidates) == MAX_VALUES:
                return
    except (CommandError, queue_config.ConfigError, StoreError, OSError):
        return


def _states(line: TypedLine) -> Iterator[str]:
    with closing(line.setup().open_store()) as store:
        for state in store.states:
            yield from state_words(state, store.states, store.words)


def _dead_ids(line: TypedLine) -> Iterator[str]:
    with closing(line.setup().open_store()) as store:
        name = store.states.get(State.DEAD)
        for task in store.scan([name]) if name else ():
            if isinstance(task, Task) and task.state is State.DEAD:
                yield task.id


_VALUES: Mapping[str, Callable[[TypedLine], Iterable[str]]] = {
    "places": lambda line: (address.text for address in line.config().places),
    "states": _states,
    "ids": _dead_ids,
    "operations": lambda line: (one.op for one in line.setup().journal().operations()),
    "transports": lambda line: METHODS,
}


# ---- scripts, when a package is built


def make_script(shell: str) -> str:
    """Make the completion script of a shell from the command table."""
    try:
        import shtab
    except ImportError:
        missing = "the completion scripts are not built in a source tree"
        fail(EX_UNAVAILABLE, f"{missing}: pip install shtab")
    from tui.cli import make_parser

    parser = make_parser(None)
    _mark_values(parser, (), shtab)
    script: str = shtab.complete(parser, shell, preamble=_read(f"values.{shell}"))
    # zsh runs the end of the script when it loads it: what the first word can be comes before.
    start, end, script_end = script.partition("\ntypeset -A opt_args\n")
    first = "" if shell == "bash" else _read(f"first.{shell}")  # bash offers files for no match
    return f"{start}\n{first}{end}{script_end}"


def _read(name: str) -> str:
    with open(f"{TEXTS}/completion/{name}", encoding="utf-8") as file:
        return file.read()


def _mark_values(parser: ArgumentParser, path: tuple[str, ...], shtab: Any) -> None:
    """Set for each argument what completes it: the attribute `complete`, which shtab reads."""
    for action in parser._actions:
        if isinstance(action, _SubParsersAction):
            for word, inner in action.choices.items():
                _mark_values(inner, (*path, word), shtab)
            continue
        name = action.metavar if isinstance(action.metavar, str) else ""
        if name.removesuffix("|-") in ("FILE", "DB", "CONF"):
            action.complete = shtab.FILE  # type: ignore[attr-defined]
        elif name == "DIR":
            action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
        elif function := _value_function(action, name, path):
            action.complete = {  # type: ignore[attr-defined]
                **dict.fromkeys(("bash", "zsh"), function),
                "fish": f"({function})",
            }


def _value_function(action: Action, name: str, path: tuple[str, ...]) -> str:
    """The shell function that completes an argument, from the name of its value; "" if none."""
    if name.startswith("OP|"):
        return "_spooldeck_operations"
    if path[:1] == ("mail",) and (name == "NAME" or action.dest == "transport"):
        return "_spooldeck_transports"
    if name.endswith("PLACE"):
        return "_spooldeck_place_files"  # shtab's code for bash quotes names for `_file`
    if name == "ID" and (path[0] in _ACT_ON_DEAD or path[:2] == ("queue", "dlq")):
        return "_spooldeck_ids"
    return "_spooldeck_states" if action.dest == "state" else ""


_ACT_ON_DEAD = ("retry", "replay", "purge", "expunge", "edit", "note")
"""Other commands with ids of dead tasks."""
