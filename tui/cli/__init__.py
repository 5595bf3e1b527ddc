"""The command `spooldeck`: parses, wires, runs.

Whatever goes wrong is one line on standard error: what, where, and what was expected. Exit codes 0
to 3 are the contract's (done, nothing eligible or full, lock held, handler failed); others are 64
and above, after sysexits.h.
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
    Namespace,
    RawDescriptionHelpFormatter,
)
from collections.abc import Callable, Iterator, Mapping, Sequence
from signal import SIG_DFL, SIGCHLD, signal
from typing import Any, NamedTuple, NoReturn, TypeAlias

from engine.config import queue_config
from engine.store import StoreError, Unavailable, Unsupported
from engine.stores import detect
from engine.text.decode import digits
from engine.text.safe import shown
from tui.cli.setup.output import ReaderGone, end_with_reader, guard_pipe
from tui.cli.setup.setup import (
    EX_CONFIG,
    EX_IOERR,
    EX_NOPERM,
    EX_UNAVAILABLE,
    EX_USAGE,
    Fail,
    Hidden,
    Setup,
    complain,
    drop,
    fail,
    is_named_database,
)

Command: TypeAlias = Callable[[Setup, Namespace], int]
"""What a command does, and the exit code that it answers with."""

_WITH_VALUE = ("--config", "--root", "--theme", "--open")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and answer with its exit code; never a traceback."""
    _stand_in()
    guard_pipe()
    signal(SIGCHLD, SIG_DFL)  # ignored by our caller, no program that we run would have a status
    code = _answer(list(sys.argv[1:] if argv is None else argv))
    try:
        sys.stdout.flush()
    except ReaderGone:
        return code
    except OSError as error:
        complain(f"the answer could not be written: {error.strerror}")
        drop(sys.stdout)
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
"""Commands that change nothing, and end as soon as nothing reads their output."""


def _stand_in() -> None:
    """Open what our caller closed: the first file that we open would be taken for our output."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free: this one
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, "r+" if number == 0 else "w", closefd=False))


def _answer(words: list[str]) -> int:
    try:
        return _run(words)
    except Fail as failure:
        if str(failure):
            complain(str(failure))
        return failure.code
    except queue_config.ConfigError as error:
        complain(str(error))
        return EX_CONFIG
    except Unavailable as error:
        complain(str(error))
        return EX_NOPERM if isinstance(error, Hidden) else EX_UNAVAILABLE
    except (Unsupported, StoreError) as error:
        complain(str(error))
        return EX_NOPERM
    except ReaderGone:
        return 0
    except OSError as error:
        where = f"{shown(os.fsdecode(error.filename))}: " if error.filename else ""
        complain(f"{where}{error.strerror or error}")
        if error.filename and error.errno in _NO_ROOM:  # without a file it is our output
            return EX_UNAVAILABLE
        return EX_NOPERM if isinstance(error, PermissionError) else EX_IOERR
    except KeyboardInterrupt:
        return 130


_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
"""A full disk has one exit code, whichever part of a command needed room."""


def _run(words: list[str]) -> int:
    if _first_word(words) == "help":
        words = [*(word for word in words if word != "help"), "--help"]
    first = _first_word(words)
    if first not in COMMANDS:
        _refuse_typo(words)
        words = ["console", *words]
    arguments = _parser(words).parse_args(words)
    if first == "shell-init":
        # It stands in login files: the functions are there whatever is wrong with a configuration,
        # which each of them reads when it is called, and can complain of.
        from tui.cli.shell_and_units import shell_init

        return shell_init(arguments)
    root, named = getattr(arguments, "root", ""), getattr(arguments, "place", "")
    if root and named and os.path.abspath(root) != os.path.abspath(named):
        fail(EX_USAGE, f"--root {shown(root)} and {shown(named)}: expected only one of them")
    loaded = queue_config.load(getattr(arguments, "config", None), os.environ)
    command: Command = arguments.command
    return command(_setup(loaded, named or root or "", tuple(words)), arguments)


def _refuse_typo(words: list[str]) -> None:
    """Refuse a first word that is neither a command nor a path, without offering to make a folder.

    Where another of the words is a path, the console shows that one and why the first is missing.

    Raises:
        Fail: with the commands that are spelled like it.
    """
    first = _first_word(words)
    is_path = "/" in first or is_named_database(first) or any(map(os.path.lexists, _plain(words)))
    if not first or is_path:
        return
    said = f"no such command or place: '{shown(first)}'{_meant(first, list(COMMANDS))}"
    fail(EX_USAGE, f"{said} (see `spooldeck --help`)")


def _meant(word: str, known: Sequence[str]) -> str:
    """The words that are spelled like a mistyped one, as the end of a message; "" if none is."""
    from difflib import get_close_matches  # only for a typing error: it costs start-up time

    close = get_close_matches(word, known)
    return f"; did you mean {' or '.join(close)}?" if close else ""


def _setup(loaded: queue_config.Config, place: str, words: tuple[str, ...]) -> Setup:
    if not loaded.stores and not (place and detect.format_of(place)):
        # A queue of the contract, as nearly always: a timer's run pays for nothing else.
        return Setup(loaded, queue_config.queue_for(loaded, place, os.environ), words)
    from tui.cli.setup.place_formats import setup_for

    return setup_for(loaded, place, os.environ, words)


def _first_word(words: Sequence[str]) -> str:
    """The first word that is no option and no option's value; "" when there is none."""
    return next(_plain(words), "")


def _plain(words: Sequence[str]) -> Iterator[str]:
    """The words that are no option and no option's value, up to one that asks for help."""
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
"""Arguments that may be any text, behind a first one."""


class _CommandParser(ArgumentParser):
    """Says in one line what it did not understand."""

    mixes = False
    """Whether its arguments may stand among its options, in any order; no group of commands can."""

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Namespace | None = None
    ) -> tuple[Namespace, list[str]]:
        """What was understood, and what was not.

        An argument that may be left out is taken to be left out at the first option: a place that
        comes behind one was not understood, and the words are read once more in two passes.
        """
        found, left = super().parse_known_args(args, namespace)
        if not left or not self.mixes or args is None or "--" in args:
            return found, left
        self.mixes = False  # these passes come here as well
        try:
            return self.parse_known_intermixed_args(args)
        finally:
            self.mixes = True

    def _get_formatter(self) -> RawDescriptionHelpFormatter:
        # A width of its own: asking for the terminal's would load shutil at every start.
        return RawDescriptionHelpFormatter(self.prog, width=80)

    def _get_values(self, action: Action, arg_strings: list[str]) -> object:
        # Until Python 3.12.5 a `--` is dropped even where it is the description itself; the one
        # that ends options never stands alone here, since TYPE comes before and takes it.
        if arg_strings == ["--"] and action.dest in _ANY_TEXT:
            return "--"
        return super()._get_values(action, arg_strings)

    def _check_value(self, action: Action, value: object) -> None:
        try:
            super()._check_value(action, value)
        except ArgumentError as error:
            error.message += _meant(str(value), [str(choice) for choice in action.choices or ()])
            raise

    def error(self, message: str) -> NoReturn:
        """Name the command, so that one knows whose help to ask for."""
        raise Fail(EX_USAGE, f"{message} (see `{self.prog} --help`)")


class _Word(NamedTuple):
    """A word of the command line that stands for a command, or for a group of them."""

    path: tuple[str, ...]
    """The words up to this one."""
    where: str
    """Module and function that do it; "" where more words must follow."""
    summary: str
    arguments: tuple[tuple[tuple[str, ...], Mapping[str, Any]], ...] = ()
    """What else it takes, as argparse names it."""


def _takes(*names: str, **options: Any) -> tuple[tuple[str, ...], Mapping[str, Any]]:
    return names, options


_PLACE = _takes("place", nargs="?", metavar="PLACE")
_PLACES = _takes("places", nargs="*", metavar="PLACE")
_ROWS = _takes("--filter", metavar="WORDS", default="", help="only rows that hold these words")
_FILTER = _takes("--filter", metavar="TEXT", default="", help="only what matches")
_DRY_RUN = _takes("--dry-run", action="store_true", help="only say what would happen")
_JSON = "--json"


_MOST = 10**9
"""The largest count or number of seconds of an option: every wait of the system takes it."""


def _count(text: str) -> int:
    number = digits(text, _MOST)
    if not number:
        raise ValueError(text)
    return number


_count.__name__ = "whole number from 1"  # for argparse's message

_LOOKS = (
    _takes("--read-only", action="store_true", help="offer no verb at all"),
    _takes("--theme", metavar="NAME", default="", help="colours to draw in"),
    _takes("--mouse", action="store_true", help="take the mouse: the wheel moves"),
    _takes("--wire", type=_count, default=0, metavar="N", help="send at most N bytes a second"),
    _takes("--open", metavar="SCREEN", default="", help="the screen to begin with"),
)


def _limit(text: str) -> int:
    number = digits(text)
    if number is None:
        raise ValueError(text)
    return number


_limit.__name__ = "whole number"

_DOING = (
    _takes("--reason", metavar="TEXT", default="", help="why, for the journal"),
    _takes("--dry-run", action="store_true", help="only say what would happen, and to how many"),
    _takes("--apply", type=_count, default=0, metavar="N", help="do it, if it is N tasks"),
    _takes(_JSON, action="store_true", help="for programs"),
)
_STATE = _takes("--state", metavar="WORD", default="", help="those in this state")
_ID = _takes(
    "--id", metavar="ID", action="append", default=[], help="only this task; may be repeated"
)
_ACTING = (_PLACE, _FILTER, _STATE, _ID, *_DOING)
_CAREFUL = (
    _takes(
        "--take-in",
        metavar="ID",
        action="append",
        default=[],
        help="also this one, though it looks odd; may be repeated",
    ),
    _takes("--all-odd", action="store_true", help="also all that look odd"),
)
_PACE = (
    _takes("--rate", metavar="N|now", default="", help="tasks a second (2), or all at once"),
    _takes("--canary", metavar="N,M", default="", help="how many go first (1,10), or none"),
    _takes(
        "--stop-same", type=_limit, metavar="N", help="an error came back N times (2); 0: never"
    ),
    _takes("--stop-share", metavar="PCT/M", default="", help="PCT of the last M failed (10/20)"),
    _takes("--stop-pending", type=_count, metavar="K", help="more than K tasks wait"),
    _takes("--rest", choices=("stay", "hold"), default="stay", help="what becomes of the rest"),
    _takes("--timeout", type=_count, default=120, metavar="S", help="seconds for an outcome"),
)
_OPERATION = _takes("words", nargs="*", metavar="OP|PLACE")
_CONTENT = _takes(
    "content", metavar="CONTENT", help="a text, the path of a file that may be sent, or - for stdin"
)
_RECIPIENT = _takes(
    "recipient", nargs="?", default="", metavar="RECIPIENT", help="default: as configured"
)
_LITERAL = _takes("--literal", action="store_true", help="a CONTENT of - is a text as well")
_SUBJECT = "default: as configured, else PREFIX Report from HOST"

_WORDS = (
    _Word(
        ("console",),
        "open_console:open_console",
        "the console on these places",
        (
            _takes(
                "places",
                nargs="*",
                metavar="PLACE",
                help="a folder with a queue, a Kannader spool, or a ZGB database",
            ),
            _takes("--version", action="store_true", help="say the version and end"),
            *_LOOKS,
        ),
    ),
    _Word(
        ("demo",),
        "open_console:demo",
        "throw-away spools with traffic, and the console",
        (
            _takes("--tasks", type=_count, default=400, metavar="N", help="tasks to begin with"),
            _takes("--keep", metavar="DIR", default="", help="make them here and leave them"),
            *_LOOKS,
        ),
    ),
    _Word(
        ("status",),
        "queue.status:status",
        "one plain look at a place",
        (_PLACE, _takes(_JSON, action="store_true", help="for programs")),
    ),
    _Word(
        ("overview",),
        "print.overview:overview",
        "every place on a line, and what is wrong; exit 0 well, 1 needs attention, 2 unreadable",
        (
            _PLACES,
            _FILTER,
            _takes(_JSON, action="store_true", help="for programs"),
            _takes("--over", type=_count, default=0, metavar="SECONDS", help="look so long"),
            _takes("--at", metavar="TIME", default="", help="as recorded then: 14:00, =-2h"),
        ),
    ),
    _Word(
        ("clusters",),
        "print.clusters:clusters",
        "errors, alike with alike, and whether they still happen",
        (
            _PLACE,
            _FILTER,
            _takes("--state", metavar="WORD", default="", help="only those in this state"),
            _takes(_JSON, action="store_true", help="for programs"),
        ),
    ),
    _Word(
        ("locks",),
        "print.locks:locks",
        "who has the locks, and what waits; exit 0 well, 1 needs attention, 2 unreadable",
        (_PLACES, _ROWS, _takes(_JSON, action="store_true", help="for programs")),
    ),
    _Word(
        ("transports",),
        "print.transports:transports",
        "how each way of sending mail does",
        (_PLACE, _ROWS, _takes(_JSON, action="store_true", help="for programs")),
    ),
    _Word(
        ("log",),
        "print.log:log",
        "the logs, merged by time",
        (
            _PLACE,
            _FILTER,
            _takes("--level", metavar="LEVEL", default="", help="this grave, or graver"),
            _takes("--since", metavar="TIME", default="", help="14:00, yesterday 18:00, -2h"),
            _takes("--lines", type=_count, default=200, metavar="N", help="at most (200)"),
            _takes("--follow", action="store_true", help="and what comes then"),
            _takes(_JSON, action="store_true", help="one JSON object a line"),
        ),
    ),
    _Word(
        ("control",),
        "plans.control:control",
        "the whole queue: its controls; with NAME, what one would do, or do it",
        (
            _takes("words", nargs="*", metavar="NAME|PLACE"),
            _takes("--target", metavar="T", default="", help="what it is done to, where it asks"),
            _takes("--value", metavar="V", default="", help="what it is set to, where it asks"),
            _takes("--reason", metavar="TEXT", default="", help="why, for the journal"),
            _DRY_RUN,
            _takes(
                "--apply",
                type=_count,
                default=0,
                metavar="N",
                help="apply; N must be the planned count",
            ),
            _takes(_JSON, action="store_true", help="for programs"),
        ),
    ),
    _Word(
        ("edit",),
        "plans.edit_note:edit",
        "give a task another description, due time or recipient, whichever its store keeps; "
        "exit 1 when it was not to be had",
        (
            _takes("id", metavar="ID"),
            _PLACE,
            _takes("--description", metavar="TEXT", default="", help="what it says from now on"),
            _takes("--due", metavar="TIME", default="", help="14:00, +2h, tomorrow 06:00, now"),
            _takes("--to", dest="destination", metavar="ADDRESS", default="", help="to whom"),
            _DRY_RUN,
            _takes("--apply", type=_count, default=0, metavar="1", help="do it, to this one task"),
        ),
    ),
    _Word(
        ("note",),
        "plans.edit_note:note",
        "write a note on a task: a purge leaves it out; - takes its notes away",
        (_takes("id", metavar="ID"), _takes("text", metavar="TEXT"), _PLACE),
    ),
    _Word(
        ("notes",),
        "plans.edit_note:list_notes",
        "what operators wrote down about tasks",
        (_PLACE, _takes(_JSON, action="store_true", help="one JSON object a line")),
    ),
    _Word(
        ("replay",),
        "plans.verbs:replay",
        "dead tasks back to pending, a few at a time, as long as it goes well",
        (*_ACTING, *_PACE),
    ),
    _Word(
        ("purge",),
        "plans.verbs:purge",
        "tasks into the trash (dlq's, unless said)",
        (*_ACTING, *_CAREFUL),
    ),
    _Word(("hold",), "plans.verbs:hold", "park tasks until they are released", _ACTING),
    _Word(("release",), "plans.verbs:release", "parked tasks back to where they wait", _ACTING),
    _Word(("promote",), "plans.verbs:promote", "waiting tasks once more now", _ACTING),
    _Word(("kill",), "plans.verbs:kill", "abandoned work to the dead-letter queue", _ACTING),
    _Word(("restore",), "plans.verbs:restore", "purged tasks back where they came from", _ACTING),
    _Word(
        ("expunge",),
        "plans.verbs:expunge",
        "tasks of --state WORD away for good: cannot be taken back",
        (*_ACTING, *_CAREFUL),
    ),
    _Word(
        ("undo",),
        "plans.journal:take_back",
        "take back what was done; without OP what there is to take back",
        (_OPERATION, *_DOING),
    ),
    _Word(
        ("journal",),
        "plans.journal:journal",
        "what operators did here; one operation in full",
        (
            _OPERATION,
            _takes("--since", metavar="TIME", default="", help="14:00, yesterday 18:00, -2h"),
            _takes("--go-on", action="store_true", help="with OP, which was interrupted"),
            _takes("--drop", action="store_true", help="let OP be over as it stands"),
            *_DOING,
        ),
    ),
    _Word(("trash",), "", "what was purged, and can be had back"),
    _Word(
        ("trash", "list"),
        "plans.trash:list_trash",
        "what lies there, since when and from where",
        (_PLACE, _takes(_JSON, action="store_true", help="one JSON object a line")),
    ),
    _Word(
        ("trash", "restore"),
        "plans.trash:restore",
        "these tasks back where they came from; a PLACE is written with a /",
        (_takes("words", nargs="+", metavar="ID"), *_DOING[:2], _DOING[3]),
    ),
    _Word(
        ("trash", "sweep"),
        "plans.trash:sweep",
        "delete for good what lies there for too long",
        (_PLACE, _takes("--dry-run", action="store_true", help="only say what would happen")),
    ),
    _Word(
        ("init",),
        "queue.status:init",
        "make the folders of a new queue",
        (
            _takes("place", metavar="DIR"),
            _takes(
                "--exclusive",
                action="store_true",
                help="no other program uses this queue: store due times as file times (faster)",
            ),
        ),
    ),
    _Word(
        ("doctor",),
        "queue.doctor:doctor",
        "what is wrong with a place, and how to mend it",
        (_PLACE,),
    ),
    _Word(("mail",), "", "send mail, and see to what could not be sent"),
    _Word(
        ("mail", "send"),
        "mail.send:send",
        "send CONTENT in one attempt; exit 0 handed over, 1 not",
        (
            *(_CONTENT, _RECIPIENT, _LITERAL),
            _takes("--subject", metavar="TEXT", default="", help=_SUBJECT),
        ),
    ),
    _Word(
        ("mail", "send-with-retry"),
        "mail.send:send_with_retry",
        "send CONTENT, tried again, and at last kept and queued; exit 0 handed over, 1 kept",
        (
            *(_CONTENT, _RECIPIENT, _LITERAL),
            _takes("subject", nargs="?", default="", metavar="SUBJECT"),
        ),
    ),
    _Word(
        ("mail", "setup"),
        "mail.setup_mail:setup_mail",
        "let mail go to EMAIL: writes conf.d/mail.conf.local, whose other lines stay, as does a "
        "copy",
        (
            _takes("email", metavar="EMAIL"),
            _takes("--all", action="store_true", help="also each trigger: health, bans, logins"),
            _takes("--test", action="store_true", help="then send a mail there"),
            _takes("--dry-run", action="store_true", help="only say what would be written"),
        ),
    ),
    _Word(
        ("mail", "status"),
        "mail.send:status",
        "by what mail goes, and what waits; exit 0 well, 1 by nothing, 2 suspended or not running",
        (_takes(_JSON, action="store_true", help="for programs"),),
    ),
    _Word(
        ("mail", "test"),
        "mail.send:test",
        "send one mail and say each step; exit 0 handed over, 1 not",
        (
            _takes("email", nargs="?", default="", metavar="EMAIL", help="default: as configured"),
            _takes("--transport", metavar="NAME", default="", help="by this one, even suspended"),
            _takes("--dry-run", action="store_true", help="every step but the sending"),
        ),
    ),
    _Word(("mail", "spool"), "", "mail that is kept until it can be sent"),
    _Word(("mail", "spool", "list"), "mail.spool:list_spool", "what is kept there"),
    _Word(
        ("mail", "spool", "show"),
        "mail.spool:show_spooled",
        "one mail as text: whom it is for, and what it says",
        (_takes("id", metavar="ID"),),
    ),
    _Word(
        ("mail", "spool", "retry"),
        "mail.retry:retry_spooled",
        "let these be sent now, each by one task; exit 1 when one of them will not",
        (
            _takes("ids", nargs="*", metavar="ID"),
            _takes(
                "--all",
                action="store_true",
                help="mails without a task, in the DLQ or in backoff; not those refused for good",
            ),
            _takes(
                "--refused",
                action="store_true",
                help="with --all: mails too that a server refused for good (5xx)",
            ),
        ),
    ),
    _Word(
        ("mail", "suspend"),
        "setup.suspend:suspend",
        "send nothing by NAME until it is resumed",
        (
            _takes("name", metavar="NAME"),
            _takes("reason", nargs="?", default="", metavar="REASON"),
        ),
    ),
    _Word(
        ("mail", "resume"),
        "setup.suspend:resume",
        "send by NAME again",
        (_takes("name", metavar="NAME"),),
    ),
    _Word(("kannader",), "", "a Kannader spool: make one, put mail into it, send from it"),
    _Word(
        ("kannader", "init"),
        "formats.kannader:init",
        "make the folders of a spool",
        (_takes("place", metavar="DIR"),),
    ),
    _Word(
        ("kannader", "enqueue"),
        "formats.kannader:enqueue",
        "put a mail into the spool; prints the id of each recipient's",
        (
            _takes(
                "words",
                nargs="+",
                metavar="FILE",
                help="further recipients, then the mail's file (- for stdin), then the PLACE",
            ),
            _takes(
                "--from", dest="sender", metavar="A", required=True, help="<> is the null sender"
            ),
            _takes(
                "--to",
                dest="recipients",
                metavar="B",
                action="append",
                required=True,
                help="may be repeated",
            ),
            _takes("--wire", action="store_true", help="FILE is in wire form, as SMTP has it"),
        ),
    ),
    _Word(
        ("kannader", "work"),
        "formats.kannader:work",
        "send mails until stopped",
        (
            _PLACE,
            _takes("--until-idle", action="store_true", help="until nothing is due"),
            _takes("--concurrency", type=_count, default=0, metavar="N", help="at once (4)"),
        ),
    ),
    _Word(
        ("kannader", "recover"),
        "formats.kannader:recover",
        "end what was interrupted, and mend what can be mended",
        (
            _PLACE,
            _DRY_RUN,
            _takes("--anyway", action="store_true", help="even while a Kannader is running"),
        ),
    ),
    _Word(
        ("shell-init",), "shell_and_units:shell_init", "bash functions in the names of the contract"
    ),
    _Word(
        ("install-units",),
        "shell_and_units:install_units",
        "write systemd units into DIR",
        (_takes("folder", metavar="DIR"),),
    ),
    _Word(("zgb",), "", "a ZGB mail queue: make one, queue mails, send them, see what is wrong"),
    _Word(
        ("zgb", "init"),
        "formats.zgb:init",
        "make a new, empty database; it sends nothing yet",
        (_takes("place", metavar="DB"),),
    ),
    _Word(
        ("zgb", "enqueue"),
        "formats.zgb:enqueue",
        "queue the mails of a registration",
        (
            _takes("number", type=_limit, metavar="NUMBER", help="of the registration"),
            _PLACE,
            _takes("--type", choices=("user", "organizer"), default="", help="only this one"),
        ),
    ),
    _Word(
        ("zgb", "work"),
        "formats.zgb:work",
        "send what there are tokens for: one run, as cron starts it each minute; exit 2 while "
        "another run is at work",
        (
            _PLACE,
            _takes("--loop", action="store_true", help="run after run until stopped"),
            _takes(
                "--quiet",
                action="store_true",
                help="print nothing if OK or if another run is active",
            ),
        ),
    ),
    _Word(
        ("zgb", "doctor"),
        "formats.zgb_doctor:doctor",
        "why mails do not arrive, and what mends it; exit 0 well, 1 needs attention",
        (_PLACE,),
    ),
    _Word(("queue",), "", "work with the queue at --root"),
    _Word(
        ("queue", "add"),
        "queue.queue:add",
        "add a task and print its id",
        (
            _takes("kind", metavar="TYPE"),
            _takes("description", nargs="?", default="", metavar="DESCRIPTION"),
            _takes("payload", nargs="?", default="", metavar="PAYLOAD"),
        ),
    ),
    _Word(
        ("queue", "process-next"),
        "queue.work:process_next",
        "handle the next due task, if any",
        (
            _takes("--quiet", action="store_true", help="no words where exit 1 or 2 says it"),
            _takes(
                "--timer",
                action="store_true",
                help="for a timer: codes 1 to 3 become 0, the log has why",
            ),
        ),
    ),
    _Word(
        ("queue", "work"),
        "queue.work:work",
        "handle tasks until stopped",
        (
            _takes("--concurrency", type=_count, default=1, metavar="N"),
            _takes("--until-idle", action="store_true", help="end when nothing is due"),
        ),
    ),
    _Word(
        ("queue", "list"),
        "queue.queue:list_tasks",
        "list tasks",
        (
            _takes("--state", metavar="WORD", default="", help="only those in this state"),
            _FILTER,
            _takes(_JSON, action="store_true", help="one JSON object a line"),
        ),
    ),
    _Word(
        ("queue", "recover"),
        "queue.recover:recover",
        "free a queue whose worker is stuck or gone",
        (
            _takes("--dry-run", action="store_true", help="only say what would be done"),
            _takes("--yes", action="store_true", help="do it without asking for the PID"),
            _takes("--seen", metavar="LOCK", default="", help="only the lock that was seen"),
            _takes(
                "--hold",
                metavar="ID",
                action="append",
                default=[],
                help="hold this task in work, as its work was done; it is not run again",
            ),
        ),
    ),
    _Word(("queue", "corrupt"), "", "files that were set aside"),
    _Word(
        ("queue", "corrupt", "list"),
        "queue.corrupt:list_corrupt",
        "list them, and why they were set aside",
    ),
    _Word(
        ("queue", "corrupt", "put-back"),
        "queue.corrupt:put_back",
        "mended ones back where they stood",
        (_takes("names", nargs="+", metavar="NAME"),),
    ),
    _Word(("queue", "count"), "queue.queue:count", "how many tasks are pending"),
    _Word(("queue", "count-dlq"), "queue.queue:count_dlq", "how many tasks are dead"),
    _Word(("queue", "metrics"), "queue.queue:show_metrics", "the metrics as of now"),
    _Word(("queue", "dlq"), "", "the dead-letter queue"),
    _Word(("queue", "dlq", "list"), "queue.dlq:list_dead", "list dead tasks"),
    _Word(
        ("queue", "dlq", "show"),
        "queue.dlq:show",
        "one dead task in full",
        (_takes("id", metavar="ID"),),
    ),
    _Word(
        ("queue", "dlq", "retry"),
        "queue.dlq:retry",
        "dead tasks back to pending",
        (_takes("ids", nargs="+", metavar="ID"),),
    ),
    _Word(
        ("queue", "dlq", "retry-all"),
        "queue.dlq:retry_all",
        "every dead task back to pending",
        (_DRY_RUN,),
    ),
    _Word(
        ("queue", "dlq", "purge"),
        "queue.dlq:purge",
        "delete tasks that died long ago, for good",
        (_takes("days", nargs="?", metavar="DAYS", help="default: retention"), _DRY_RUN),
    ),
)

COMMANDS = tuple(
    word.path[0] for word in _WORDS if len(word.path) == 1 and word.path != ("console",)
)
"""First words that are commands; a place of such a name is written `./queue`."""


def _parser(words: Sequence[str]) -> ArgumentParser:
    """A parser for this command line: of words beside those that stand in it, it knows nothing.

    Making one for every command would take longer than all that a timer's run does otherwise.
    """
    common = _CommandParser(add_help=False, argument_default=SUPPRESS)
    common.add_argument("--config", metavar="FILE", help="this configuration, and no other")
    common.add_argument("--root", metavar="DIR", help="a data folder, a spool or a database")
    top = _CommandParser(prog="spooldeck", usage=_USAGE, description=_TOP, parents=[common])
    asked = _command_words(words)
    groups: dict[tuple[str, ...], Any] = {(): _group(top, "spooldeck")}
    for word in _WORDS:
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
        if word.where:
            parser.mixes = True
            parser.set_defaults(command=_later(word.where))
        else:
            groups[word.path] = _group(parser, f"spooldeck {' '.join(word.path)}")
    return top


def _group(parser: ArgumentParser, prog: str) -> Any:
    return parser.add_subparsers(metavar="COMMAND", required=True, prog=prog)


def _command_words(words: Sequence[str]) -> tuple[str, ...]:
    """The longest path to a command or a group that these words begin with."""
    paths = {word.path for word in _WORDS}
    found: tuple[str, ...] = ()
    for word in _plain(words):
        if (*found, word) not in paths:
            break
        found = (*found, word)
    return found


_USAGE = "spooldeck [PLACE ...] | COMMAND ..."

_TOP = """\
An operator console for mail and task queues, with the queue engine built in.

  spooldeck [PLACE ...]         the console on these places, or on the configured ones
  spooldeck demo                throw-away spools with traffic, and the console on them
  spooldeck status [PLACE]      one plain look; exit 0 well, 1 needs attention, 2 unreadable
  spooldeck overview [PLACE ...] | clusters | locks | transports | log [PLACE]
                                what the console's screens show, printed once (--json)
  spooldeck control [NAME] [PLACE]
                                the whole queue: paused, its rate; --dry-run, then --apply 1
  spooldeck edit ID [PLACE]     another description, due time or recipient, as its store has it
  spooldeck note ID TEXT [PLACE] | notes [PLACE]
                                what operators write down about tasks
  spooldeck init DIR            make the folders of a new queue
  spooldeck doctor [PLACE]      what is wrong, and how to mend it; exit 0 nothing, 1 something
  spooldeck replay | purge | hold | release | promote | kill | restore | expunge [PLACE]
                                what the console's plans do: --dry-run shows, --apply N does
  spooldeck undo [OP] [PLACE] | journal [OP] [PLACE] | trash list | restore ID... | sweep
                                taken back, written down, had back
  spooldeck queue ...           add, process-next, work, list, count, count-dlq, metrics, dlq,
                                recover, corrupt
  spooldeck mail ...            send, send-with-retry, setup, status, test, spool list | show |
                                retry, suspend, resume
  spooldeck kannader ...        init, enqueue, work, recover: on a Kannader spool
  spooldeck zgb ...             init, enqueue, work, doctor: on a ZGB mail queue
  spooldeck shell-init          bash functions in the contract's names: eval "$(...)"
  spooldeck install-units DIR   systemd units, tmpfiles and logrotate snippets, written into DIR

spooldeck help COMMAND (or COMMAND --help) describes one command. A place whose name is a command is
written ./NAME.
"""

_CONSOLE = {"prog": "spooldeck", "usage": _USAGE, "epilog": _TOP}
"""The console is what a command line without a command means: its help is that of the whole."""


def _later(where: str) -> Command:
    """A command that is imported when it runs: every start pays for what it loads."""

    def command(setup: Setup, arguments: Namespace) -> int:
        from importlib import import_module

        if where in _LISTINGS:
            end_with_reader()
        module, name = where.split(":")
        run: Command = getattr(import_module(f"tui.cli.{module}"), name)
        return run(setup, arguments)

    return command
