"""The command `spooldeck`: parse the arguments, connect the parts, run the command.

Each error is one line on standard error: what, where and what was expected. What the words, the
configuration or the place do not allow is a `CommandError`, from any function of a command, which
`main` prints. Exit codes 0 to 3 are those of the queue contract (done, nothing due or queue
full, lock held, handler failed); the others are 64 and above, as in sysexits.h.
"""

from __future__ import annotations

import argparse
import errno
import gc
import os
import re
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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import takewhile
from signal import SIG_DFL, SIGCHLD, signal
from typing import TYPE_CHECKING, Any, NoReturn

from engine.config import queue_config
from engine.config.place_address import has_password, is_url
from engine.formats.base.format import Setup
from engine.formats.known_formats import (
    default_place,
    has_file_suffix,
    has_queue,
    is_format_url,
    is_same_place,
    setup_despite,
    setup_for,
)
from engine.store import StoreError, Unavailable, Unsupported
from engine.system.command_errors import (
    EX_CONFIG,
    EX_IOERR,
    EX_NOPERM,
    EX_OSERR,
    EX_UNAVAILABLE,
    EX_USAGE,
    CommandError,
    NotReadable,
    discard_stream,
    fail,
    print_error,
)
from engine.text.error_text import error_text
from engine.text.safe import safe_line
from tui.cli.command_table import (
    HELP_TEXT,
    REPORT_LOST_MAIL,
    USAGE,
    WITHOUT_CONFIGURATION,
    load_function,
)
from tui.cli.commands import COMMAND_WORDS, COMMANDS
from tui.cli.setup.output import (
    COLOR_WORDS,
    Answer,
    ReaderGone,
    choose_color,
    end_with_reader,
    guard_streams,
    print_answer,
    print_controls,
)

if TYPE_CHECKING:
    from _typeshed import SupportsWrite

PASSWORD_IN_ARGUMENTS = (
    "password on the command line: other users can read it there; put the URL into `places` of a "
    "configuration file, then name it here without the password"
)

# argparse searches a translation of each of its texts; none comes with Python. The search loads
# locale and takes 1.7 ms of each command. If argparse renames `_`, it only searches again.
argparse.__dict__["_"] = str

GC_THRESHOLD = 20_000
"""Allocated objects between two garbage collections of the youngest generation."""

KEEPS_MAIL = ("mail", "send-with-retry")
"""The command that keeps each mail that it cannot send."""

_WITH_VALUE = ("--config", "--root", "--color", "--theme", "--open")

COMMAND = "COMMAND"
"""How the help calls the word of a command."""

MAX_SUGGESTIONS = 3
"""More commands than this are no help after a typing error."""

MAX_HELP_COLUMNS = 120
"""Longer lines are hard to read."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; a user never sees a traceback."""
    signal(SIGCHLD, SIG_DFL)  # if the caller ignores it, we cannot read the exit status of a child
    if argv is None and os.getpid() == 1:
        from engine.system.first_process import exit_code_of_child

        if (ended := exit_code_of_child()) is not None:
            return ended
    # A command loads and parses for a tenth of a second: collecting in that time finds nothing.
    gc.set_threshold(GC_THRESHOLD)
    _open_closed_streams()
    for name in ("COLUMNS", "LINES"):  # a table of 200,000,000 columns takes all memory
        if len(os.environ.get(name, "").strip()) > len("999"):
            os.environ[name] = "999"
    guard_streams()
    code = _run_reporting_errors(list(sys.argv[1:] if argv is None else argv))
    gc.freeze()  # else the interpreter walks all modules at its end
    try:
        sys.stdout.flush()
    except ReaderGone:
        return code
    except OSError as error:
        print_error(f"cannot write the output: {error_text(error)}")
        discard_stream(sys.stdout)
        return EX_IOERR
    return code


def _open_closed_streams() -> None:
    """Open standard streams that the caller closed; otherwise the next opened file becomes one of
    them. Writing to a closed standard output remains an error."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            # It gets the lowest free number: this one.
            os.open(os.devnull, os.O_WRONLY if number == 2 else os.O_RDONLY)
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, "w" if number else "r", closefd=False))


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
    except MemoryError:
        print_error("out of memory")
        return EX_OSERR
    except RuntimeError as error:
        if str(error) != _NO_THREAD:
            raise
        print_error(f"{error}: the limit of processes is reached")
        return EX_OSERR
    except OSError as error:
        name = "" if isinstance(error.filename, int) else error.filename  # of an open file
        where = f"{safe_line(os.fsdecode(name))}: " if name else ""
        print_error(f"{where}{error_text(error)}")
        # Without a file name, the error is about our output.
        if error.filename and error.errno in _NO_ROOM:
            return EX_UNAVAILABLE
        if error.errno in _LACKS:
            return EX_OSERR
        return EX_NOPERM if isinstance(error, PermissionError) else EX_IOERR
    except KeyboardInterrupt:
        return 130


_NO_THREAD = "can't start new thread"
"""What `threading` raises if the system makes no thread."""

_LACKS = (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE)
"""What the system lacks has one exit code in all commands."""

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
"""A full disk or quota has one exit code in all commands."""


def _run(words: list[str]) -> int:
    path = _command_words(words)
    if any(map(has_password, _without_texts(words, path))):
        # Before anything repeats the words: other users could read it in the list of processes.
        fail(EX_USAGE, PASSWORD_IN_ARGUMENTS)
    _refuse_second_values(words)
    words = _help_as_option(words)
    first = _first_word(words)
    if first not in COMMANDS:
        _refuse_typo(words)
        words = ["console", *words]
    arguments, unparsed = make_parser(words).parse_known_args(words)
    if unparsed:
        _refuse_words(words, unparsed)
    if first in WITHOUT_CONFIGURATION:
        return _call(WITHOUT_CONFIGURATION[first], vars(arguments))
    choose_color(getattr(arguments, "color", "auto"), os.environ)
    _find_place(arguments)
    root, named = getattr(arguments, "root", ""), getattr(arguments, "place", "")
    if named and has_password(named):  # a recipient that is a URL is the place
        fail(EX_USAGE, PASSWORD_IN_ARGUMENTS)
    if root and named and not is_same_place(root, named):
        both = f"--root {safe_line(root)} and {safe_line(named)}"
        fail(EX_USAGE, f"{both}: expected only one of them")
    keeps_mail = path == KEEPS_MAIL
    try:
        setup = _make_setup(arguments, named or root or "", words, keeps_mail=keeps_mail)
    except CommandError as failure:
        if keeps_mail:
            report_lost = load_function(REPORT_LOST_MAIL)
            report_lost(queue_config.DEFAULT_SYSLOG, arguments.subject, str(failure))
        raise
    if arguments.command.is_listing:
        end_with_reader()
    return _call(arguments.command.function, {**vars(arguments), "setup": setup})


def _call(where: str, given: Mapping[str, Any]) -> int:
    """Import the function of a command, to keep the start fast; call it with what its signature
    names of the given values, print its answer, and return the exit code."""
    function = load_function(where)
    code = getattr(function, "func", function).__code__  # `inspect` would slow the start
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    values = {"config": "", "root": "", **given}
    answer: Answer | int = function(**{name: values[name] for name in names if name in values})
    return answer if isinstance(answer, int) else print_answer(answer, as_json=given["json"])


_MAIL_TEXTS = {("mail", "send"): 2, KEEPS_MAIL: 3}
"""Number of the first arguments of a command that may be any text, also a URL with a password."""


def _without_texts(words: Sequence[str], path: tuple[str, ...]) -> Iterator[str]:
    """Yield the words of a command without the texts of a mail: those before its PLACE, and the
    value of --subject."""
    if path not in _MAIL_TEXTS:
        yield from words
        return
    texts, option, has_options = len(path) + _MAIL_TEXTS[path], "", True
    for word in words:
        if option:
            if option != "--subject":
                yield word
            option = ""
        elif has_options and word == "--":
            has_options = False
        elif has_options and word.startswith("-") and word != "-":
            option = word if word in (*_WITH_VALUE, "--subject") else ""
            if not word.startswith("--subject="):
                yield word
        elif texts > 0:
            texts -= 1
        else:
            yield word


def _make_setup(
    arguments: Namespace, place: str, words: Sequence[str], *, keeps_mail: bool
) -> Setup:
    """Read the configuration. For a command that keeps a mail, an invalid one is none of its
    caller's faults: it gets what is valid.

    Raises:
        ConfigError: it is invalid, for any other command.
    """
    path = getattr(arguments, "config", None)
    is_ours = arguments.command.function.startswith("formats.")
    try:
        loaded = queue_config.load_config(path, os.environ)
        if not place and not hasattr(arguments, "places"):
            for_mail = _command_words(words)[:1] == ("mail",)
            place = default_place(loaded, os.environ, for_mail=for_mail)
            if not (place or for_mail or is_ours) and hasattr(arguments, "place"):
                from tui.cli.setup.find_places import unnamed_place  # only where none is named

                place = unnamed_place(loaded, os.environ)
        return setup_for(loaded, place, os.environ, tuple(words), is_ours=is_ours)
    except queue_config.ConfigError as error:
        if not keeps_mail:
            raise
        fault = safe_line(str(error))
    return setup_despite(fault, path, place, os.environ, tuple(words))


def _refuse_second_values(words: Sequence[str]) -> None:
    """Refuse two different values of an option that names where to work: one is an error."""
    words = [*takewhile(lambda word: word != "--", words)]
    for option in ("--root", "--config"):
        values = [
            word.partition("=")[2] if "=" in word else after
            for word, after in zip(words, [*words[1:], ""], strict=False)
            if word == option or word.startswith(f"{option}=")
        ]
        if len(set(values)) > 1:
            given = " and ".join(f"{option} {safe_line(value)}" for value in values)
            fail(EX_USAGE, f"{given}: expected only one of them")


_OR_PLACE = ("ids", "names", "recipient", "email", "reason", "days")
"""Arguments before a PLACE whose last word is the PLACE if it is a path with a / or a URL; not with
--literal, by which scripts pass words that they have from elsewhere."""

_AFTER_PLACE = ("queue", "server")
"""First arguments of commands that were once written with the PLACE before them."""


def _find_place(arguments: Namespace) -> None:
    """Find the place where the words are ambiguous, and take that of --root where none is named."""
    given = vars(arguments)
    if given.get("place", "") is None and not given.get("literal"):
        for name in _OR_PLACE:
            words = given.get(name) or ()
            if isinstance(words, str) and words and (_is_place(words) or given.get("show")):
                given["place"], given[name] = words, None if name == "days" else ""
            if isinstance(words, list) and len(words) > (not given.get("all")):
                is_place = _is_place(words[-1]) or has_queue(words[-1])
                given["place"] = words.pop() if is_place else None
    for name in _AFTER_PLACE:
        first = given.get(name)
        if given.get("place") and first and is_format_url(first):
            place, given[name], given["name"] = first, given["name"], given["place"]
            given["place"] = place
    if root := given.get("root"):
        if given.get("place", "") is None:
            given["place"] = root
        if given.get("places") == []:
            given["places"] = [root]


def _is_place(word: str) -> bool:
    return is_url(word) or ("/" in word and os.path.lexists(word))


def _help_as_option(words: list[str]) -> list[str]:
    """`help [COMMAND]`, and `help` behind the word of a group, as `--help`."""
    plain, group = [*_plain_words(words)], _command_words(words)
    is_group = any(word.path == group and not word.function for word in COMMAND_WORDS)
    if plain[:1] == ["help"]:
        return [*(word for word in words if word != "help"), "--help"]
    if is_group and plain[len(group) :] == ["help"]:
        return [*(word for word in words if word != "help"), "--help"]
    return words


def _refuse_words(words: list[str], unparsed: Sequence[str]) -> NoReturn:
    """Refuse words that the command does not take; suggest options of similar spelling."""
    path = _command_words(words)
    words_of_path = [word for word in COMMAND_WORDS if word.path == path]
    known = [name for word in words_of_path for (name, *_), _ in word.arguments]
    wrong = next((word for word in unparsed if word.startswith("-")), "")
    # After an unknown option, older versions of argparse do not parse further arguments.
    unparsed = [word for word in unparsed if word.startswith("-")] or unparsed
    options = ["--config", "--root", "--color", *(name for name in known if name[0] == "-")]
    hint = _suggest_words(wrong.partition("=")[0], options) if wrong else ""
    text = f"unrecognized arguments: {' '.join(map(safe_line, unparsed))}{hint}"
    command = " ".join(("spooldeck", *(path if path != ("console",) else ())))
    fail(EX_USAGE, f"{text} (see `{command} --help`)")


def _refuse_typo(words: list[str]) -> None:
    """Refuse a first word that is neither a command nor a path; do not offer to make a folder.

    If another word is a path and the first resembles no command, the console opens that one and
    shows why the first is missing.
    """
    first = _first_word(words)
    close = _suggest_words(first, list(COMMANDS), ()) if first else ""
    named = [first] if close else _plain_words(words)
    is_path = "/" in first or has_file_suffix(first) or any(map(os.path.lexists, named))
    if not first or is_path:
        return
    text = f"unknown command or place: '{safe_line(first)}'{close}"
    fail(EX_USAGE, f"{text} (see `spooldeck --help`)")


def _suggest_words(word: str, known: Sequence[str], group: tuple[str, ...] | None = None) -> str:
    """ "; did you mean ...?" with the words of similar spelling; "" if none.

    With the words of a group, commands that end with exactly this word come first: those below the
    group, else those elsewhere.
    """
    from difflib import get_close_matches  # only on a typing error: it slows the start

    same = [] if group is None else [each.path for each in COMMAND_WORDS if each.path[-1] == word]
    below = [path for path in same if path[: len(group or ())] == group]
    suggested = sorted(below or same, key=lambda path: (len(path), path[0] != "queue"))
    close = list(map(" ".join, suggested[:MAX_SUGGESTIONS])) or get_close_matches(
        word, known, cutoff=0.65
    )
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


class _NoColors:
    """A theme of argparse in Python 3.14: each style is an empty text."""

    def __getattr__(self, name: str) -> str:
        return ""


class _HelpFormatter(RawDescriptionHelpFormatter):
    """Writes each argument and its help on one line, if that has room."""

    def _set_color(self, color: bool) -> None:
        # Python 3.14 loads dataclasses and inspect for its colours, at every start.
        self._theme, self._decolor = _NoColors(), str

    def add_argument(self, action: Action) -> None:
        """Make room for an argument; argparse forgets that commands are indented."""
        super().add_argument(action)
        if action.metavar == COMMAND:
            self._action_max_length += self._indent_increment


class _CommandParser(ArgumentParser):
    """Reports a wrong command line in one line."""

    allows_any_order = False
    """Whether arguments and options may be mixed in any order; False for groups of commands."""
    _columns = 80

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        # A time such as -2h is a value, not an option.
        self._negative_number_matcher = re.compile(r"-\d")

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Namespace | None = None
    ) -> tuple[Namespace, list[str]]:
        """Parse also an optional argument that follows an option.

        argparse treats an optional argument as missing at the first option, so a PLACE after an
        option is left unparsed. In that case parse the words again in two passes.
        """
        first = next(iter(self._get_positional_actions()), None)
        rest = first if first is not None and first.nargs == REMAINDER else None
        if args and rest is not None and [*args] not in (["-h"], ["--help"]):
            # argparse takes an option in the first place for one of its own.
            parsed, _ = super().parse_known_args([], namespace)
            setattr(parsed, rest.dest, list(args))
            return parsed, []
        parsed, unparsed = super().parse_known_args(args, namespace)
        if not unparsed or not self.allows_any_order or args is None or "--" in args:
            return parsed, unparsed
        self.allows_any_order = False  # these passes call this method again
        try:
            return self.parse_known_intermixed_args(args)
        finally:
            self.allows_any_order = True

    def _get_formatter(self) -> _HelpFormatter:
        # Always with a width: argparse would load shutil to read that of the terminal, at every
        # start.
        return _HelpFormatter(self.prog, max_help_position=26, width=self._columns)

    def _print_message(self, message: str, file: SupportsWrite[str] | None = None) -> None:
        # From Python 3.14 on, argparse colours the help on a terminal; it has no text of others.
        print_controls(message, sys.stderr if file is None else sys.stdout)

    def _get_values(self, action: Action, arg_strings: list[str]) -> object:
        # Until Python 3.12.5 argparse drops a `--` even if it is the description itself. The `--`
        # that ends options never reaches this point alone, because TYPE comes before it.
        if arg_strings == ["--"] and action.dest in _ANY_TEXT:
            return "--"
        is_text = action.dest in (*_ANY_TEXT, "value", "sender", "recipients")
        is_named = bool(action.option_strings) or action.dest in ("place", "places")
        if is_named and not is_text and not all(map(str.strip, arg_strings)):
            # A script with an unset variable: without a value, an option that selects means all.
            raise ArgumentError(action, "expected a value, not an empty text")
        return super()._get_values(action, arg_strings)

    def _check_value(self, action: Action, value: object) -> None:
        known = [str(choice) for choice in action.choices or ()]
        if action.metavar == COMMAND and value not in known:
            where = f"{self.prog} {safe_line(str(value))}".partition(" ")[2]
            close = _suggest_words(str(value), known, tuple(self.prog.split()[1:]))
            text = f"unknown command: '{where}'{close}{self._place_of_that_name()}"
            raise CommandError(EX_USAGE, f"{text} (see `{self.prog} --help`)")
        try:
            super()._check_value(action, value)
        except ArgumentError as error:
            error.message += _suggest_words(str(value), known)
            raise

    def _place_of_that_name(self) -> str:
        """How to open the place here whose name this command has; "" if there is none."""
        name = self.prog.partition(" ")[2]
        return f"; for the place: spooldeck ./{name}" if os.path.lexists(name) else ""

    def error(self, message: str) -> NoReturn:
        """Raise `CommandError` with the message and the command to ask for help."""
        if message.endswith(f"required: {COMMAND}"):
            known = (action.choices or () for action in self._actions if action.metavar == COMMAND)
            message = f"expected a {COMMAND}: {', '.join(next(known))}{self._place_of_that_name()}"
        raise CommandError(EX_USAGE, f"{message} (see `{self.prog} --help`)")

    def format_help(self) -> str:
        """The help text, as wide as the terminal, with an example and the exit codes."""
        with suppress(OSError):  # no terminal: for a file or a pager
            self._columns = max(80, min(os.get_terminal_size().columns, MAX_HELP_COLUMNS))
        path = tuple(self.prog.split()[1:])
        if path and self.allows_any_order:
            from tui.cli.command_help import help_end

            self.epilog = help_end(path, self._columns)
        return super().format_help()


def common_options() -> ArgumentParser:
    """The options that every command has."""
    common = _CommandParser(add_help=False, argument_default=SUPPRESS)
    common.add_argument("--config", metavar="FILE", help="use this configuration file only")
    common.add_argument(
        "--root", metavar="PLACE", help="a data folder, a spool, a database or a URL"
    )
    common.add_argument(
        "--color",
        choices=COLOR_WORDS,
        metavar="WHEN",
        help="colours: auto (on a terminal, without NO_COLOR), always, never",
    )
    return common


def make_parser(words: Sequence[str] | None) -> ArgumentParser:
    """Make a parser with only the commands that this command line mentions; None: with all.

    Making the parsers of all commands would take longer than the rest of a timer's run.
    """
    common = common_options()
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
            parser.set_defaults(command=word)
        else:
            groups[word.path] = _group(parser, f"spooldeck {' '.join(word.path)}")
    return top


def _is_mentioned(path: tuple[str, ...], asked: tuple[str, ...]) -> bool:
    depth = len(path) - 1
    return asked[:depth] == path[:-1] and asked[depth : depth + 1] in ((), path[-1:])


def _group(parser: ArgumentParser, prog: str) -> Any:
    return parser.add_subparsers(metavar=COMMAND, required=True, prog=prog)


def _command_words(words: Sequence[str]) -> tuple[str, ...]:
    """The longest path of a command or group at the start of these words."""
    paths = {word.path for word in COMMAND_WORDS}
    path: tuple[str, ...] = ()
    for word in _plain_words(words):
        if (*path, word) not in paths:
            break
        path = (*path, word)
    return path


_CONSOLE = {"prog": "spooldeck", "usage": USAGE, "epilog": HELP_TEXT}
"""The default command is the console, so its help is the help of the whole program."""
