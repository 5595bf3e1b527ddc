"""The command `spooldeck`: parse the arguments, connect the parts, run the command.

Each error is one line on standard error: what, where and what was expected. Exit codes 0 to 3 are
those of the queue contract (done, nothing due or queue full, lock held, handler failed); the others
are 64 and above, as in sysexits.h.
"""

from __future__ import annotations

import errno
import gc
import os
import sys
from argparse import (
    REMAINDER,
    SUPPRESS,
    Action,
    ArgumentError,
    ArgumentParser,
    Namespace,
    RawDescriptionHelpFormatter,
)
from collections.abc import Callable, Iterator, Sequence
from signal import SIG_DFL, SIGCHLD, signal
from typing import Any, NoReturn, TypeAlias

from engine.config import queue_config
from engine.config.place_address import has_password
from engine.store import StoreError, Unavailable, Unsupported
from engine.text.safe import safe_line
from tui.cli.commands import COMMAND_WORDS, COMMANDS, HELP_TEXT, USAGE, CommandWord
from tui.cli.setup.errors import (
    EX_CONFIG,
    EX_IOERR,
    EX_NOPERM,
    EX_UNAVAILABLE,
    EX_USAGE,
    CommandError,
    NotReadable,
    discard_stream,
    fail,
    has_database_name,
    print_error,
)
from tui.cli.setup.output import ReaderGone, end_with_reader, guard_pipe
from tui.cli.setup.place_formats import is_same_place, setup_for
from tui.cli.setup.setup import Setup, load_function

PASSWORD_IN_ARGUMENTS = (
    "password on the command line: other users can read it there; put the URL into `places` of a "
    "configuration file, then name it here without the password"
)

GC_THRESHOLD = 20_000
"""Allocated objects between two garbage collections of the youngest generation."""

Command: TypeAlias = Callable[[Setup, Namespace], int]
"""Runs one command and returns its exit code."""

_WITH_VALUE = ("--config", "--root", "--theme", "--open")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; a user never sees a traceback."""
    # A command loads and parses for a tenth of a second: collecting in that time finds nothing.
    gc.set_threshold(GC_THRESHOLD)
    _open_closed_streams()
    guard_pipe()
    signal(SIGCHLD, SIG_DFL)  # if the caller ignores it, we cannot read the exit status of a child
    code = _run_reporting_errors(list(sys.argv[1:] if argv is None else argv))
    gc.freeze()  # else the interpreter walks all modules at its end
    try:
        sys.stdout.flush()
    except ReaderGone:
        return code
    except OSError as error:
        print_error(f"cannot write the output: {error.strerror}")
        discard_stream(sys.stdout)
        return EX_IOERR
    return code


def _open_closed_streams() -> None:
    """Open standard streams that the caller closed; otherwise the next opened file becomes one of
    them.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number: this one
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, "r+" if number == 0 else "w", closefd=False))


def _run_reporting_errors(words: list[str]) -> int:
    try:
        return _run(words)
    except CommandError as failure:
        if str(failure):
            print_error(str(failure))
        return failure.code
    except queue_config.ConfigError as error:
        print_error(str(error))
        return EX_CONFIG
    except Unavailable as error:
        print_error(str(error))
        return EX_NOPERM if isinstance(error, NotReadable) else EX_UNAVAILABLE
    except (Unsupported, StoreError) as error:
        print_error(str(error))
        return EX_NOPERM
    except ReaderGone:
        return 0
    except OSError as error:
        where = f"{safe_line(os.fsdecode(error.filename))}: " if error.filename else ""
        print_error(f"{where}{error.strerror or error}")
        if (
            error.filename and error.errno in _NO_ROOM
        ):  # without a file name, the error is about our output
            return EX_UNAVAILABLE
        return EX_NOPERM if isinstance(error, PermissionError) else EX_IOERR
    except KeyboardInterrupt:
        return 130


_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
"""A full disk or quota has one exit code in all commands."""


def _run(words: list[str]) -> int:
    if any(map(has_password, words)):
        # Before anything repeats the words: other users could read it in the list of processes.
        fail(EX_USAGE, PASSWORD_IN_ARGUMENTS)
    if _first_word(words) == "help":
        words = [*(word for word in words if word != "help"), "--help"]
    first = _first_word(words)
    if first not in COMMANDS:
        _refuse_typo(words)
        words = ["console", *words]
    arguments = make_parser(words).parse_args(words)
    if first in _WITHOUT_CONFIGURATION:
        return int(load_function(_WITHOUT_CONFIGURATION[first])(arguments))
    root, named = getattr(arguments, "root", ""), getattr(arguments, "place", "")
    if root and named and not is_same_place(root, named):
        fail(
            EX_USAGE, f"--root {safe_line(root)} and {safe_line(named)}: expected only one of them"
        )
    loaded = queue_config.load_config(getattr(arguments, "config", None), os.environ)
    command: Command = arguments.command
    return command(setup_for(loaded, named or root or "", os.environ, tuple(words)), arguments)


_WITHOUT_CONFIGURATION = {
    "shell-init": "shell_and_units:shell_init",
    "completion": "completion:completion",
}
"""Commands that login files run. Their functions must be defined even if the configuration is
broken; each of them reads it when it is called.
"""


def _refuse_typo(words: list[str]) -> None:
    """Refuse a first word that is neither a command nor a path; do not offer to make a folder.

    If another word is a path, the console opens that one and shows why the first is missing.

    Raises:
        CommandError: the text suggests commands with a similar spelling.
    """
    first = _first_word(words)
    is_path = (
        "/" in first or has_database_name(first) or any(map(os.path.lexists, _plain_words(words)))
    )
    if not first or is_path:
        return
    text = f"no such command or place: '{safe_line(first)}'{_suggest_words(first, list(COMMANDS))}"
    fail(EX_USAGE, f"{text} (see `spooldeck --help`)")


def _suggest_words(word: str, known: Sequence[str]) -> str:
    """ "; did you mean ...?" with the words of similar spelling; "" if none."""
    from difflib import get_close_matches  # only on a typing error: it slows the start

    close = get_close_matches(word, known)
    return f"; did you mean {' or '.join(close)}?" if close else ""


def _first_word(words: Sequence[str]) -> str:
    """The first word that is neither an option nor its value; "" if none."""
    return next(_plain_words(words), "")


def _plain_words(words: Sequence[str]) -> Iterator[str]:
    """Yield the words that are neither an option nor its value, up to a request for help."""
    skip = False
    for word in words:
        if skip:
            skip = False
        elif word in _WITH_VALUE:
            skip = True
        elif word in ("-h", "--help", "--version"):
            return
        elif not word.startswith("-"):
            yield word


_ANY_TEXT = ("description", "payload", "recipient", "subject", "reason")
"""Positional arguments that may be any text; they follow another argument."""


_HELP = (["-h"], ["--help"])


class _CommandParser(ArgumentParser):
    """Reports a wrong command line in one line."""

    allows_any_order = False
    """Whether arguments and options may be mixed in any order; False for groups of commands."""

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Namespace | None = None
    ) -> tuple[Namespace, list[str]]:
        """Parse also an optional argument that follows an option.

        argparse treats an optional argument as missing at the first option, so a PLACE after an
        option is left unparsed. In that case parse the words again in two passes.
        """
        first = next(iter(self._get_positional_actions()), None)
        if args and first is not None and first.nargs == REMAINDER and [*args] not in _HELP:
            # argparse takes an option in the first place for one of its own.
            found, _ = super().parse_known_args([], namespace)
            setattr(found, first.dest, list(args))
            return found, []
        found, left = super().parse_known_args(args, namespace)
        if not left or not self.allows_any_order or args is None or "--" in args:
            return found, left
        self.allows_any_order = False  # these passes call this method again
        try:
            return self.parse_known_intermixed_args(args)
        finally:
            self.allows_any_order = True

    def _get_formatter(self) -> RawDescriptionHelpFormatter:
        # A fixed width: reading the terminal's width would load shutil at every start.
        return RawDescriptionHelpFormatter(self.prog, width=80)

    def _get_values(self, action: Action, arg_strings: list[str]) -> object:
        # Until Python 3.12.5 argparse drops a `--` even if it is the description itself. The `--`
        # that ends options never reaches this point alone, because TYPE comes before it.
        if arg_strings == ["--"] and action.dest in _ANY_TEXT:
            return "--"
        return super()._get_values(action, arg_strings)

    def _check_value(self, action: Action, value: object) -> None:
        try:
            super()._check_value(action, value)
        except ArgumentError as error:
            error.message += _suggest_words(
                str(value), [str(choice) for choice in action.choices or ()]
            )
            raise

    def error(self, message: str) -> NoReturn:
        """Raise `CommandError` with the message and the command to ask for help."""
        raise CommandError(EX_USAGE, f"{message} (see `{self.prog} --help`)")


def make_parser(words: Sequence[str] | None) -> ArgumentParser:
    """Make a parser with only the commands that this command line mentions; None: with all.

    Making the parsers of all commands would take longer than the rest of a timer's run.
    """
    common = _CommandParser(add_help=False, argument_default=SUPPRESS)
    common.add_argument("--config", metavar="FILE", help="use this configuration file only")
    common.add_argument(
        "--root", metavar="PLACE", help="a data folder, a spool, a database or a URL"
    )
    top = _CommandParser(prog="spooldeck", usage=USAGE, description=HELP_TEXT, parents=[common])
    asked = None if words is None else _command_words(words)
    groups: dict[tuple[str, ...], Any] = {(): _group(top, "spooldeck")}
    for word in COMMAND_WORDS:
        *above, name = word.path
        if asked is None and word.path == ("console",):  # it has no word, only its options
            for names, options in word.arguments:
                if names[0].startswith("--"):
                    top.add_argument(*names, **options)
            continue
        if asked is not None and not _is_mentioned(word.path, asked):
            continue
        parser = groups[tuple(above)].add_parser(
            name,
            parents=[common],
            help=word.summary,
            description=word.summary,
            **(_CONSOLE if name == "console" else {}),
        )
        for names, options in word.arguments:
            parser.add_argument(*names, **options)
        if word.function:
            parser.allows_any_order = True
            parser.set_defaults(command=_import_later(word))
        else:
            groups[word.path] = _group(parser, f"spooldeck {' '.join(word.path)}")
    return top


def _is_mentioned(path: tuple[str, ...], asked: tuple[str, ...]) -> bool:
    depth = len(path) - 1
    return asked[:depth] == path[:-1] and asked[depth : depth + 1] in ((), path[-1:])


def _group(parser: ArgumentParser, prog: str) -> Any:
    return parser.add_subparsers(metavar="COMMAND", required=True, prog=prog)


def _command_words(words: Sequence[str]) -> tuple[str, ...]:
    """The longest path of a command or group at the start of these words."""
    paths = {word.path for word in COMMAND_WORDS}
    found: tuple[str, ...] = ()
    for word in _plain_words(words):
        if (*found, word) not in paths:
            break
        found = (*found, word)
    return found


_CONSOLE = {"prog": "spooldeck", "usage": USAGE, "epilog": HELP_TEXT}
"""The default command is the console, so its help is the help of the whole program."""


def _import_later(word: CommandWord) -> Command:
    """A command whose module is imported when it runs, to keep the start fast."""

    def command(setup: Setup, arguments: Namespace) -> int:
        from importlib import import_module

        if word.is_listing:
            end_with_reader()
        module, name = word.function.split(":")
        run: Command = getattr(import_module(f"tui.cli.{module}"), name)
        return run(setup, arguments)

    return command
