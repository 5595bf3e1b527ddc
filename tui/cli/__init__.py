"""The command `spooldeck`: parse the arguments, connect the parts, run the command.

Each error is one line on standard error: what, where and what was expected. Exit codes 0 to 3 are
those of the queue contract (done, nothing due or queue full, lock held, handler failed); the others
are 64 and above, as in sysexits.h.
"""

from __future__ import annotations

import errno
import os
import sys
from argparse import (
    SUPPRESS,
    Action,
    ArgumentError,
    ArgumentParser,
    ArgumentTypeError,
    Namespace,
    RawDescriptionHelpFormatter,
)
from collections.abc import Callable, Iterator, Mapping, Sequence
from signal import SIG_DFL, SIGCHLD, signal
from typing import Any, NamedTuple, NoReturn, TypeAlias

from engine.config import queue_config
from engine.store import StoreError, Unavailable, Unsupported
from engine.text.decode import parse_digits
from engine.text.safe import safe_line
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
from tui.cli.setup.setup import Setup

Command: TypeAlias = Callable[[Setup, Namespace], int]
"""Runs one command and returns its exit code."""

_WITH_VALUE = ("--config", "--root", "--theme", "--open")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; a user never sees a traceback."""
    _open_closed_streams()
    guard_pipe()
    signal(SIGCHLD, SIG_DFL)  # if the caller ignores it, we cannot read the exit status of a child
    code = _run_reporting_errors(list(sys.argv[1:] if argv is None else argv))
    try:
        sys.stdout.flush()
    except ReaderGone:
        return code
    except OSError as error:
        print_error(f"cannot write the output: {error.strerror}")
        discard_stream(sys.stdout)
        return EX_IOERR
    return code


_LISTINGS = {
    *(
        "print.clusters:clusters",
        "print.log:log",
        "plans.edit_note:list_notes",
        "plans.trash:list_trash",
        "queue.queue:list_tasks",
    ),
    *("queue.corrupt:list_corrupt", "queue.dlq:list_dead", "mail.spool:list_spool"),
}
"""Commands that only print. They end quietly when the reader of their output closes the pipe."""


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
    if _first_word(words) == "help":
        words = [*(word for word in words if word != "help"), "--help"]
    first = _first_word(words)
    if first not in COMMANDS:
        _refuse_typo(words)
        words = ["console", *words]
    arguments = _parser(words).parse_args(words)
    if first == "shell-init":
        # Login files run this. The functions must be defined even if the configuration is broken;
        # each function reads it when it is called and reports the error.
        from tui.cli.shell_and_units import shell_init

        return shell_init(arguments)
    root, named = getattr(arguments, "root", ""), getattr(arguments, "place", "")
    if root and named and not is_same_place(root, named):
        fail(
            EX_USAGE, f"--root {safe_line(root)} and {safe_line(named)}: expected only one of them"
        )
    loaded = queue_config.load_config(getattr(arguments, "config", None), os.environ)
    command: Command = arguments.command
    return command(setup_for(loaded, named or root or "", os.environ, tuple(words)), arguments)


def _refuse_typo(words: list[str]) -> None:
    """Refuse a first word that is neither a command nor a path; do not offer to make a folder.

    If another word is a path, the console opens that one and shows why the first is missing.

    Raises:
        Fail: the text suggests commands with a similar spelling.
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
    """ "; did you mean ...?" with the words of similar spelling; "" if there is none."""
    from difflib import get_close_matches  # only on a typing error: it slows the start

    close = get_close_matches(word, known)
    return f"; did you mean {' or '.join(close)}?" if close else ""


def _first_word(words: Sequence[str]) -> str:
    """The first word that is neither an option nor its value; "" if there is none."""
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


class _CommandWord(NamedTuple):
    """A word of the command line that names a command or a group of commands."""

    path: tuple[str, ...]
    """The words up to this one."""
    function: str
    """Module and function of the command; "" for a group, which needs another word."""
    summary: str
    arguments: tuple[tuple[tuple[str, ...], Mapping[str, Any]], ...] = ()
    """Its arguments and options, as for `add_argument`."""


def _argument(*names: str, **options: Any) -> tuple[tuple[str, ...], Mapping[str, Any]]:
    return names, options


_PLACE = _argument("place", nargs="?", metavar="PLACE")
_PLACES = _argument("places", nargs="*", metavar="PLACE")
_ROWS = _argument(
    "--filter", metavar="WORDS", default="", help="only rows that contain these words"
)
_FILTER = _argument("--filter", metavar="TEXT", default="", help="only what matches this filter")
_DRY_RUN = _argument("--dry-run", action="store_true", help="only print what would happen")
_JSON = "--json"


_MAX_COUNT = 10**9
"""Largest count or number of seconds of an option: every wait of the system accepts it."""


def _count(text: str) -> int:
    number = parse_digits(text, _MAX_COUNT)
    if not number:
        raise ArgumentTypeError(f"must be a whole number from 1 to {_MAX_COUNT}, not {text!r}")
    return number


_CONSOLE_OPTIONS = (
    _argument("--read-only", action="store_true", help="allow no changes"),
    _argument("--theme", metavar="NAME", default="", help="colour theme"),
    _argument("--mouse", action="store_true", help="use the mouse: the wheel scrolls"),
    _argument("--wire", type=_count, default=0, metavar="N", help="send at most N bytes a second"),
    _argument("--open", metavar="SCREEN", default="", help="the first screen"),
)


def _limit(text: str) -> int:
    number = parse_digits(text)
    if number is None:
        raise ArgumentTypeError(f"must be a whole number, not {text!r}")
    return number


_APPLY_OPTIONS = (
    _argument("--reason", metavar="TEXT", default="", help="reason, for the journal"),
    _argument("--dry-run", action="store_true", help="only print the plan and its count"),
    _argument(
        "--apply",
        type=_count,
        default=0,
        metavar="N",
        help="apply, if the plan has exactly N tasks",
    ),
    _argument(_JSON, action="store_true", help="print JSON"),
)
_STATE = _argument("--state", metavar="WORD", default="", help="only tasks in this state")
_ID = _argument(
    "--id", metavar="ID", action="append", default=[], help="only this task; may be repeated"
)
_VERB_OPTIONS = (_PLACE, _FILTER, _STATE, _ID, *_APPLY_OPTIONS)
_SUSPICIOUS_OPTIONS = (
    _argument(
        "--take-in",
        metavar="ID",
        action="append",
        default=[],
        help="also this suspicious task; may be repeated",
    ),
    _argument("--all-odd", action="store_true", help="also all suspicious tasks"),
)
_REPLAY_OPTIONS = (
    _argument("--rate", metavar="N|now", default="", help="tasks per second (2); now: no limit"),
    _argument(
        "--canary", metavar="N,M", default="", help="sizes of the first batches (1,10), or none"
    ),
    _argument(
        "--stop-same",
        type=_limit,
        metavar="N",
        help="stop if an error recurs N times (2); 0: never",
    ),
    _argument(
        "--stop-share", metavar="PCT/M", default="", help="stop if PCT of the last M failed (10/20)"
    ),
    _argument(
        "--stop-pending", type=_count, metavar="K", help="stop if more than K tasks are pending"
    ),
    _argument(
        "--rest",
        choices=("stay", "hold"),
        default="stay",
        help="after a stop, the rest stays dead or is held",
    ),
    _argument(
        "--timeout",
        type=_count,
        default=120,
        metavar="S",
        help="wait S seconds for each outcome (120)",
    ),
)
_OPERATION = _argument("words", nargs="*", metavar="OP|PLACE")
_CONTENT = _argument(
    "content",
    metavar="CONTENT",
    help="a text, the path of a file below the allowed folders, or - for stdin",
)
_RECIPIENT = _argument(
    "recipient", nargs="?", default="", metavar="RECIPIENT", help="default: as configured"
)
_LITERAL = _argument("--literal", action="store_true", help="a CONTENT of - is text, not stdin")
_SUBJECT = "default: as configured, else PREFIX Report from HOST"

_COMMAND_WORDS = (
    _CommandWord(
        ("console",),
        "open_console:open_console",
        "open the console on these places",
        (
            _argument(
                "places",
                nargs="*",
                metavar="PLACE",
                help="a folder with a queue, a Kannader spool, or a ZGB database",
            ),
            _argument("--version", action="store_true", help="print the version and exit"),
            *_CONSOLE_OPTIONS,
        ),
    ),
    _CommandWord(
        ("demo",),
        "open_console:demo",
        "make temporary places with traffic and open the console",
        (
            _argument(
                "--tasks", type=_count, default=400, metavar="N", help="tasks at the start (400)"
            ),
            _argument(
                "--keep", metavar="DIR", default="", help="make the places in DIR and keep them"
            ),
            *_CONSOLE_OPTIONS,
        ),
    ),
    _CommandWord(
        ("status",),
        "queue.status:status",
        "print a summary of a place; exit 0 OK, 1 needs attention, 2 unreadable",
        (_PLACE, _argument(_JSON, action="store_true", help="print JSON")),
    ),
    _CommandWord(
        ("overview",),
        "print.overview:overview",
        "one line per place, then the alerts; exit 0 OK, 1 needs attention, 2 unreadable",
        (
            _PLACES,
            _FILTER,
            _argument(_JSON, action="store_true", help="print JSON"),
            _argument(
                "--over",
                type=_count,
                default=0,
                metavar="SECONDS",
                help="watch for SECONDS before printing",
            ),
            _argument("--at", metavar="TIME", default="", help="as recorded at TIME: 14:00, =-2h"),
        ),
    ),
    _CommandWord(
        ("clusters",),
        "print.clusters:clusters",
        "failed tasks grouped by error, and whether each error still happens",
        (
            _PLACE,
            _FILTER,
            _argument("--state", metavar="WORD", default="", help="only tasks in this state"),
            _argument(_JSON, action="store_true", help="print JSON"),
        ),
    ),
    _CommandWord(
        ("locks",),
        "print.locks:locks",
        "locks, their holders and waiting tasks; exit 0 OK, 1 needs attention, 2 unreadable",
        (_PLACES, _ROWS, _argument(_JSON, action="store_true", help="print JSON")),
    ),
    _CommandWord(
        ("transports",),
        "print.transports:transports",
        "state and latest errors of each mail transport",
        (_PLACE, _ROWS, _argument(_JSON, action="store_true", help="print JSON")),
    ),
    _CommandWord(
        ("log",),
        "print.log:log",
        "the log lines of a place, merged by time",
        (
            _PLACE,
            _FILTER,
            _argument("--level", metavar="LEVEL", default="", help="minimum level"),
            _argument("--since", metavar="TIME", default="", help="14:00, yesterday 18:00, -2h"),
            _argument(
                "--lines", type=_count, default=200, metavar="N", help="at most N lines (200)"
            ),
            _argument("--follow", action="store_true", help="keep following"),
            _argument(_JSON, action="store_true", help="one JSON object a line"),
        ),
    ),
    _CommandWord(
        ("control",),
        "plans.control:control",
        "list the controls of a whole queue; with NAME: preview or apply one",
        (
            _argument("words", nargs="*", metavar="NAME|PLACE"),
            _argument(
                "--target", metavar="T", default="", help="object of the control, if it needs one"
            ),
            _argument("--value", metavar="V", default="", help="new value, if it needs one"),
            _argument("--reason", metavar="TEXT", default="", help="reason, for the journal"),
            _DRY_RUN,
            _argument(
                "--apply",
                type=_count,
                default=0,
                metavar="N",
                help="apply, if the plan has exactly N tasks",
            ),
            _argument(_JSON, action="store_true", help="print JSON"),
        ),
    ),
    _CommandWord(
        ("edit",),
        "plans.edit_note:edit",
        "change the description, due time or recipient of a task; exit 1 if the task is gone "
        "or has changed",
        (
            _argument("id", metavar="ID"),
            _PLACE,
            _argument("--description", metavar="TEXT", default="", help="the new description"),
            _argument("--due", metavar="TIME", default="", help="14:00, +2h, tomorrow 06:00, now"),
            _argument(
                "--to", dest="destination", metavar="ADDRESS", default="", help="the new recipient"
            ),
            _DRY_RUN,
            _argument(
                "--apply", type=_count, default=0, metavar="1", help="apply to this one task"
            ),
        ),
    ),
    _CommandWord(
        ("note",),
        "plans.edit_note:note",
        "write a note on a task (a purge then excludes the task); TEXT - deletes its notes",
        (_argument("id", metavar="ID"), _argument("text", metavar="TEXT"), _PLACE),
    ),
    _CommandWord(
        ("notes",),
        "plans.edit_note:list_notes",
        "list the notes that operators wrote on tasks",
        (_PLACE, _argument(_JSON, action="store_true", help="one JSON object a line")),
    ),
    _CommandWord(
        ("replay",),
        "plans.verbs:replay",
        "retry dead tasks: first a few, then at a steady rate; stop if they fail again",
        (*_VERB_OPTIONS, *_REPLAY_OPTIONS),
    ),
    _CommandWord(
        ("purge",),
        "plans.verbs:purge",
        "move tasks to the trash (dead ones, unless --state is given)",
        (*_VERB_OPTIONS, *_SUSPICIOUS_OPTIONS),
    ),
    _CommandWord(
        ("hold",), "plans.verbs:hold", "hold tasks until they are released", _VERB_OPTIONS
    ),
    _CommandWord(
        ("release",), "plans.verbs:release", "return held tasks to pending", _VERB_OPTIONS
    ),
    _CommandWord(("promote",), "plans.verbs:promote", "make waiting tasks due now", _VERB_OPTIONS),
    _CommandWord(
        ("kill",),
        "plans.verbs:kill",
        "move abandoned active tasks to the dead-letter queue",
        _VERB_OPTIONS,
    ),
    _CommandWord(
        ("restore",),
        "plans.verbs:restore",
        "move purged tasks out of the trash, to where they were",
        _VERB_OPTIONS,
    ),
    _CommandWord(
        ("expunge",),
        "plans.verbs:expunge",
        "delete tasks of --state WORD permanently: cannot be undone",
        (*_VERB_OPTIONS, *_SUSPICIOUS_OPTIONS),
    ),
    _CommandWord(
        ("undo",),
        "plans.journal:undo_operation",
        "undo operation OP; without OP: list what can be undone",
        (_OPERATION, *_APPLY_OPTIONS),
    ),
    _CommandWord(
        ("journal",),
        "plans.journal:journal",
        "list operations: who did what; with OP: one in full",
        (
            _OPERATION,
            _argument("--since", metavar="TIME", default="", help="14:00, yesterday 18:00, -2h"),
            _argument("--go-on", action="store_true", help="continue OP, which was interrupted"),
            _argument(
                "--drop",
                action="store_true",
                help="abandon OP, which was interrupted: change nothing more",
            ),
            *_APPLY_OPTIONS,
        ),
    ),
    _CommandWord(("trash",), "", "purged tasks: list, restore, delete"),
    _CommandWord(
        ("trash", "list"),
        "plans.trash:list_trash",
        "list the tasks in the trash: since when, and from which state",
        (_PLACE, _argument(_JSON, action="store_true", help="one JSON object a line")),
    ),
    _CommandWord(
        ("trash", "restore"),
        "plans.trash:restore",
        "restore these tasks to where they were; a PLACE must contain a /",
        (_argument("words", nargs="+", metavar="ID"), *_APPLY_OPTIONS[:2], _APPLY_OPTIONS[3]),
    ),
    _CommandWord(
        ("trash", "sweep"),
        "plans.trash:sweep",
        "delete tasks that were in the trash longer than the retention, permanently",
        (_PLACE, _argument("--dry-run", action="store_true", help="only print what would happen")),
    ),
    _CommandWord(
        ("init",),
        "queue.status:init",
        "make the folders of a new queue",
        (
            _argument("place", metavar="DIR"),
            _argument(
                "--exclusive",
                action="store_true",
                help="no other program uses this queue: store due times as file times (faster)",
            ),
        ),
    ),
    _CommandWord(
        ("doctor",),
        "queue.doctor:doctor",
        "check a place: problems, and the command that repairs each; exit 0 none, 1 some",
        (_PLACE,),
    ),
    _CommandWord(("mail",), "", "send mail; manage mail that could not be sent"),
    _CommandWord(
        ("mail", "send"),
        "mail.send:send",
        "send CONTENT in one attempt; exit 0 accepted by the transport, 1 not",
        (
            *(_CONTENT, _RECIPIENT, _LITERAL),
            _argument("--subject", metavar="TEXT", default="", help=_SUBJECT),
        ),
    ),
    _CommandWord(
        ("mail", "send-with-retry"),
        "mail.send:send_with_retry",
        "send CONTENT with retries; if all fail, spool and queue it; exit 0 accepted by the "
        "transport, 1 spooled",
        (
            *(_CONTENT, _RECIPIENT, _LITERAL),
            _argument("subject", nargs="?", default="", metavar="SUBJECT"),
        ),
    ),
    _CommandWord(
        ("mail", "setup"),
        "mail.setup_mail:setup_mail",
        "set the notification address in conf.d/mail.conf.local; other lines are kept, a backup is "
        "made",
        (
            _argument("email", metavar="EMAIL"),
            _argument(
                "--all", action="store_true", help="also enable each trigger: health, bans, logins"
            ),
            _argument("--test", action="store_true", help="then send a test mail to EMAIL"),
            _argument("--dry-run", action="store_true", help="only print what would be written"),
        ),
    ),
    _CommandWord(
        ("mail", "status"),
        "mail.send:status",
        "active transport and mail spool; exit 0 OK, 1 no transport, 2 suspended or not running",
        (_argument(_JSON, action="store_true", help="print JSON"),),
    ),
    _CommandWord(
        ("mail", "test"),
        "mail.send:test",
        "send one mail and print each step; exit 0 accepted by the transport, 1 not",
        (
            _argument(
                "email", nargs="?", default="", metavar="EMAIL", help="default: as configured"
            ),
            _argument(
                "--transport",
                metavar="NAME",
                default="",
                help="use this transport, even if it is suspended",
            ),
            _argument("--dry-run", action="store_true", help="every step except the sending"),
        ),
    ),
    _CommandWord(("mail", "spool"), "", "spooled mail that could not be sent yet"),
    _CommandWord(("mail", "spool", "list"), "mail.spool:list_spool", "list the spooled mails"),
    _CommandWord(
        ("mail", "spool", "show"),
        "mail.spool:show_spooled",
        "print one mail as text: recipient and content",
        (_argument("id", metavar="ID"),),
    ),
    _CommandWord(
        ("mail", "spool", "retry"),
        "mail.retry:retry_spooled",
        "queue one task for each of these mails, due now; exit 1 if one could not be queued",
        (
            _argument("ids", nargs="*", metavar="ID"),
            _argument(
                "--all",
                action="store_true",
                help="all mails without a task, in the DLQ or in backoff, not refused permanently",
            ),
            _argument(
                "--refused",
                action="store_true",
                help="with --all: also mails that a server refused permanently (5xx)",
            ),
        ),
    ),
    _CommandWord(
        ("mail", "suspend"),
        "setup.suspend:suspend",
        "stop sending by transport NAME until it is resumed",
        (
            _argument("name", metavar="NAME"),
            _argument("reason", nargs="?", default="", metavar="REASON"),
        ),
    ),
    _CommandWord(
        ("mail", "resume"),
        "setup.suspend:resume",
        "send by transport NAME again",
        (_argument("name", metavar="NAME"),),
    ),
    _CommandWord(("kannader",), "", "a Kannader spool: make one, add mail, send it"),
    _CommandWord(
        ("kannader", "init"),
        "formats.kannader:init",
        "make the folders of a Kannader spool",
        (_argument("place", metavar="DIR"),),
    ),
    _CommandWord(
        ("kannader", "enqueue"),
        "formats.kannader:enqueue",
        "add a mail to the spool; print one id per recipient",
        (
            _argument(
                "words",
                nargs="+",
                metavar="FILE",
                help="more recipients, then the file with the mail (- for stdin), then the PLACE",
            ),
            _argument(
                "--from",
                dest="sender",
                metavar="A",
                required=True,
                help="sender; <> is the null sender",
            ),
            _argument(
                "--to",
                dest="recipients",
                metavar="B",
                action="append",
                required=True,
                help="recipient; may be repeated",
            ),
            _argument(
                "--wire", action="store_true", help="FILE has SMTP line ends and dot stuffing"
            ),
        ),
    ),
    _CommandWord(
        ("kannader", "work"),
        "formats.kannader:work",
        "send mails until stopped",
        (
            _PLACE,
            _argument("--until-idle", action="store_true", help="end when nothing is due"),
            _argument(
                "--concurrency", type=_count, default=0, metavar="N", help="N mails at a time (4)"
            ),
        ),
    ),
    _CommandWord(
        ("kannader", "recover"),
        "formats.kannader:recover",
        "recover interrupted mail, repair what is safe",
        (
            _PLACE,
            _DRY_RUN,
            _argument("--anyway", action="store_true", help="even while a Kannader is running"),
        ),
    ),
    _CommandWord(
        ("shell-init",),
        "shell_and_units:shell_init",
        "print bash functions with the names of the contract",
    ),
    _CommandWord(
        ("install-units",),
        "shell_and_units:install_units",
        "write systemd units into DIR",
        (_argument("folder", metavar="DIR"),),
    ),
    _CommandWord(("zgb",), "", "a ZGB mail queue: make one, queue mails, send them, check it"),
    _CommandWord(
        ("zgb", "init"),
        "formats.zgb:init",
        "make a new, empty database; it sends nothing yet",
        (_argument("place", metavar="DB"),),
    ),
    _CommandWord(
        ("zgb", "enqueue"),
        "formats.zgb:enqueue",
        "queue the mails of a registration",
        (
            _argument("number", type=_limit, metavar="NUMBER", help="number of the registration"),
            _PLACE,
            _argument("--type", choices=("user", "organizer"), default="", help="only this one"),
        ),
    ),
    _CommandWord(
        ("zgb", "work"),
        "formats.zgb:work",
        "send the mails that the rate limit allows: one run, as from cron each minute; exit 2 if "
        "another run is active",
        (
            _PLACE,
            _argument("--loop", action="store_true", help="repeat until stopped"),
            _argument(
                "--quiet",
                action="store_true",
                help="print nothing if OK or if another run is active",
            ),
        ),
    ),
    _CommandWord(
        ("zgb", "doctor"),
        "formats.zgb_doctor:doctor",
        "why mails do not arrive, and the repair; exit 0 OK, 1 needs attention",
        (_PLACE,),
    ),
    _CommandWord(("queue",), "", "commands for the queue at --root"),
    _CommandWord(
        ("queue", "add"),
        "queue.queue:add",
        "add a task and print its id",
        (
            _argument("kind", metavar="TYPE"),
            _argument("description", nargs="?", default="", metavar="DESCRIPTION"),
            _argument("payload", nargs="?", default="", metavar="PAYLOAD"),
        ),
    ),
    _CommandWord(
        ("queue", "process-next"),
        "queue.work:process_next",
        "run the next due task, if any",
        (
            _argument(
                "--quiet", action="store_true", help="print nothing if the exit code is 1 or 2"
            ),
            _argument(
                "--timer",
                action="store_true",
                help="for a timer: exit codes 1 to 3 become 0; the log has the reason",
            ),
        ),
    ),
    _CommandWord(
        ("queue", "work"),
        "queue.work:work",
        "run tasks until stopped",
        (
            _argument(
                "--concurrency", type=_count, default=1, metavar="N", help="N tasks at a time (1)"
            ),
            _argument("--until-idle", action="store_true", help="end when nothing is due"),
        ),
    ),
    _CommandWord(
        ("queue", "list"),
        "queue.queue:list_tasks",
        "list tasks",
        (
            _argument("--state", metavar="WORD", default="", help="only tasks in this state"),
            _FILTER,
            _argument(_JSON, action="store_true", help="one JSON object a line"),
        ),
    ),
    _CommandWord(
        ("queue", "recover"),
        "queue.recover:recover",
        "free a queue whose worker is stuck or gone",
        (
            _argument("--dry-run", action="store_true", help="only print what would be done"),
            _argument("--yes", action="store_true", help="do not ask for the PID"),
            _argument("--seen", metavar="LOCK", default="", help="only if the lock is still LOCK"),
            _argument(
                "--hold",
                metavar="ID",
                action="append",
                default=[],
                help="hold this active task because its work is done; it is not run again",
            ),
        ),
    ),
    _CommandWord(("queue", "corrupt"), "", "quarantined files"),
    _CommandWord(
        ("queue", "corrupt", "list"),
        "queue.corrupt:list_corrupt",
        "list the quarantined files and the reason for each",
    ),
    _CommandWord(
        ("queue", "corrupt", "put-back"),
        "queue.corrupt:put_back",
        "put repaired files back",
        (_argument("names", nargs="+", metavar="NAME"),),
    ),
    _CommandWord(("queue", "count"), "queue.queue:count", "print the number of pending tasks"),
    _CommandWord(("queue", "count-dlq"), "queue.queue:count_dlq", "print the number of dead tasks"),
    _CommandWord(("queue", "metrics"), "queue.queue:show_metrics", "print the current metrics"),
    _CommandWord(("queue", "dlq"), "", "the dead-letter queue"),
    _CommandWord(("queue", "dlq", "list"), "queue.dlq:list_dead", "list dead tasks"),
    _CommandWord(
        ("queue", "dlq", "show"),
        "queue.dlq:show",
        "print one dead task in full",
        (_argument("id", metavar="ID"),),
    ),
    _CommandWord(
        ("queue", "dlq", "retry"),
        "queue.dlq:retry",
        "move dead tasks to pending",
        (_argument("ids", nargs="+", metavar="ID"),),
    ),
    _CommandWord(
        ("queue", "dlq", "retry-all"),
        "queue.dlq:retry_all",
        "move all dead tasks to pending",
        (_DRY_RUN,),
    ),
    _CommandWord(
        ("queue", "dlq", "purge"),
        "queue.dlq:purge",
        "delete dead tasks older than DAYS permanently",
        (
            _argument("days", nargs="?", metavar="DAYS", help="default: the retention time"),
            _DRY_RUN,
        ),
    ),
)

COMMANDS = tuple(
    word.path[0] for word in _COMMAND_WORDS if len(word.path) == 1 and word.path != ("console",)
)
"""First words that are commands; a place with such a name is written `./queue`."""


def _parser(words: Sequence[str]) -> ArgumentParser:
    """Make a parser with only the commands that this command line mentions.

    Making the parsers of all commands would take longer than the rest of a timer's run.
    """
    common = _CommandParser(add_help=False, argument_default=SUPPRESS)
    common.add_argument("--config", metavar="FILE", help="use this configuration file only")
    common.add_argument("--root", metavar="DIR", help="a data folder, a spool or a database")
    top = _CommandParser(prog="spooldeck", usage=_USAGE, description=_HELP_TEXT, parents=[common])
    asked = _command_words(words)
    groups: dict[tuple[str, ...], Any] = {(): _group(top, "spooldeck")}
    for word in _COMMAND_WORDS:
        *above, name = word.path
        depth = len(above)
        if asked[:depth] != tuple(above) or asked[depth : depth + 1] not in ((), (name,)):
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
            parser.set_defaults(command=_import_later(word.function))
        else:
            groups[word.path] = _group(parser, f"spooldeck {' '.join(word.path)}")
    return top


def _group(parser: ArgumentParser, prog: str) -> Any:
    return parser.add_subparsers(metavar="COMMAND", required=True, prog=prog)


def _command_words(words: Sequence[str]) -> tuple[str, ...]:
    """The longest path of a command or group at the start of these words."""
    paths = {word.path for word in _COMMAND_WORDS}
    found: tuple[str, ...] = ()
    for word in _plain_words(words):
        if (*found, word) not in paths:
            break
        found = (*found, word)
    return found


_USAGE = "spooldeck [PLACE ...] | COMMAND ..."

_HELP_TEXT = """\
An operator console for mail and task queues, with its own queue engine.

  spooldeck [PLACE ...]         open the console on these or the configured places
  spooldeck demo                make temporary places with traffic, open the console
  spooldeck status [PLACE]      print a summary; exit 0 OK, 1 needs attention,
                                2 unreadable
  spooldeck overview [PLACE ...] | clusters | locks | transports | log [PLACE]
                                print what the console's screens show (--json)
  spooldeck control [NAME] [PLACE]
                                controls of a whole queue: pause, rate;
                                --dry-run, then --apply 1
  spooldeck edit ID [PLACE]     change description, due time or recipient
  spooldeck note ID TEXT [PLACE] | notes [PLACE]
                                notes of operators on tasks
  spooldeck init DIR            make the folders of a new queue
  spooldeck doctor [PLACE]      problems and their repair; exit 0 none, 1 some
  spooldeck replay | purge | hold | release | promote | kill | restore | expunge
            [PLACE]             change tasks: --dry-run shows the plan, --apply N
                                applies it
  spooldeck undo [OP] [PLACE] | journal [OP] [PLACE]
                                undo an operation; operations: who did what
  spooldeck trash list | restore ID... | sweep
                                purged tasks
  spooldeck queue ...           add, process-next, work, list, count, count-dlq,
                                metrics, dlq, recover, corrupt
  spooldeck mail ...            send, send-with-retry, setup, status, test,
                                spool list | show | retry, suspend, resume
  spooldeck kannader ...        init, enqueue, work, recover (a Kannader spool)
  spooldeck zgb ...             init, enqueue, work, doctor (a ZGB mail queue)
  spooldeck shell-init          bash functions of the contract: eval "$(...)"
  spooldeck install-units DIR   write systemd units, tmpfiles and logrotate files

spooldeck help COMMAND (or COMMAND --help) describes one command. Write a place
with the name of a command as ./NAME.
"""

_CONSOLE = {"prog": "spooldeck", "usage": _USAGE, "epilog": _HELP_TEXT}
"""The default command is the console, so its help is the help of the whole program."""


def _import_later(where: str) -> Command:
    """A command whose module is imported when it runs, to keep the start fast."""

    def command(setup: Setup, arguments: Namespace) -> int:
        from importlib import import_module

        if where in _LISTINGS:
            end_with_reader()
        module, name = where.split(":")
        run: Command = getattr(import_module(f"tui.cli.{module}"), name)
        return run(setup, arguments)

    return command
