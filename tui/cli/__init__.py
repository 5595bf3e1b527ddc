"""The command `spooldeck`: parses, wires, runs.

Whatever goes wrong is one line on standard error: what, where, and what was expected. Exit codes 0
to 3 are the contract's (done, nothing eligible or full, lock held, handler failed); others are 64
and above, after sysexits.h.
"""

from __future__ import annotations

import os
import sys
from argparse import SUPPRESS, Action, ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Callable, Sequence
from typing import NoReturn, TypeAlias

from engine import config
from engine.store import StoreError, Unavailable, Unsupported
from engine.text import shown
from tui.cli.wiring import (
    EX_CONFIG,
    EX_IOERR,
    EX_NOPERM,
    EX_UNAVAILABLE,
    EX_USAGE,
    Fail,
    Setup,
    complain,
    drop,
)

Command: TypeAlias = Callable[[Setup, Namespace], int]
"""What a command does, and the exit code that it answers with."""

COMMANDS = ("demo", "status", "init", "queue", "doctor", "shell-init", "install-units")
"""First words that are commands; a place of such a name is written `./queue`."""

_WITH_VALUE = ("--config", "--root", "--theme")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and answer with its exit code; never a traceback."""
    _stand_in()
    code = _answer(list(sys.argv[1:] if argv is None else argv))
    try:
        sys.stdout.flush()
    except OSError as error:
        if not isinstance(error, BrokenPipeError):  # whoever read our output has gone: no news
            complain(f"the answer could not be written: {error.strerror}")
        drop(sys.stdout)
        return EX_IOERR
    return code


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
    except config.ConfigError as error:
        complain(str(error))
        return EX_CONFIG
    except Unavailable as error:
        complain(str(error))
        return EX_UNAVAILABLE
    except (Unsupported, StoreError) as error:
        complain(str(error))
        return EX_NOPERM
    except BrokenPipeError:
        return EX_IOERR
    except OSError as error:
        where = f"{shown(os.fsdecode(error.filename))}: " if error.filename else ""
        complain(f"{where}{error.strerror or error}")
        return EX_NOPERM if isinstance(error, PermissionError) else EX_IOERR
    except KeyboardInterrupt:
        return 130


def _run(words: list[str]) -> int:
    first = _first_word(words)
    if first not in COMMANDS:
        words = ["console", *words]
    arguments = _parser().parse_args(words)
    loaded = config.load(getattr(arguments, "config", None), os.environ)
    command: Command = arguments.command
    place = getattr(arguments, "root", None) or getattr(arguments, "place", None) or ""
    queue = config.queue_for(loaded, place, os.environ)
    return command(Setup(loaded, queue, tuple(words)), arguments)


def _first_word(words: Sequence[str]) -> str:
    """The first word that is no option and no option's value; "" when there is none."""
    skip = False
    for word in words:
        if skip:
            skip = False
        elif word in _WITH_VALUE:
            skip = True
        elif word in ("-h", "--help", "--version"):
            return ""
        elif not word.startswith("-"):
            return word
    return ""


class _Parser(ArgumentParser):
    """Says in one line what it did not understand."""

    def _get_formatter(self) -> RawDescriptionHelpFormatter:
        # A width of its own: asking for the terminal's would load shutil at every start.
        return RawDescriptionHelpFormatter(self.prog, width=80)

    def _get_values(self, action: Action, arg_strings: list[str]) -> object:
        # Until Python 3.12.5 a `--` is dropped even where it is the description itself; the one
        # that ends options never stands alone here, since TYPE comes before and takes it.
        if arg_strings == ["--"] and action.dest in ("description", "payload"):
            return "--"
        return super()._get_values(action, arg_strings)

    def error(self, message: str) -> NoReturn:
        """Name the command, so that one knows whose help to ask for."""
        raise Fail(EX_USAGE, f"{message} (see `{self.prog} --help`)")


def _parser() -> ArgumentParser:
    common = _Parser(add_help=False, argument_default=SUPPRESS)
    common.add_argument("--config", metavar="FILE", help="this configuration, and no other")
    common.add_argument("--root", metavar="DIR", help="the data folder that holds queue/")
    top = _Parser(
        prog="spooldeck",
        usage="spooldeck [PLACE ...] | COMMAND ...",
        description=_TOP,
        parents=[common],
    )
    words = top.add_subparsers(metavar="COMMAND", required=True, prog="spooldeck")

    def add(to: object, name: str, where: str, summary: str, **options: object) -> ArgumentParser:
        parser: ArgumentParser = to.add_parser(  # type: ignore[attr-defined]
            name, parents=[common], help=summary, description=summary, **options
        )
        parser.set_defaults(command=_later(where))
        return parser

    console = add(
        words,
        "console",
        "console:open_console",
        "the console on these places",
        prog="spooldeck",
        usage="spooldeck [PLACE ...] | COMMAND ...",
        epilog=_TOP,
    )
    console.add_argument("places", nargs="*", metavar="PLACE", help="a folder with a queue")
    console.add_argument("--version", action="store_true", help="say the version and end")

    demo = add(words, "demo", "console:demo", "throw-away spools with traffic, and the console")
    demo.add_argument("--tasks", type=_count, default=400, metavar="N", help="tasks to begin with")
    demo.add_argument("--keep", metavar="DIR", default="", help="make them here and leave them")

    for parser in (console, demo):
        parser.add_argument("--read-only", action="store_true", help="offer no verb at all")
        parser.add_argument("--theme", metavar="NAME", default="", help="colours to draw in")

    status = add(words, "status", "status:status", "one plain look at a place")
    status.add_argument("place", nargs="?", metavar="PLACE")
    status.add_argument("--json", action="store_true", help="for programs")

    init = add(words, "init", "status:init", "make the folders of a new queue")
    init.add_argument("place", metavar="DIR")

    add(
        words, "doctor", "doctor:doctor", "what is wrong with a place, and how to mend it"
    ).add_argument("place", nargs="?", metavar="PLACE")
    add(words, "shell-init", "dropin:shell_init", "bash functions in the names of the contract")
    units = add(words, "install-units", "dropin:install_units", "write systemd units into DIR")
    units.add_argument("folder", metavar="DIR")

    queue = words.add_parser("queue", parents=[common], help="work with the queue at --root")
    queue_words = queue.add_subparsers(metavar="COMMAND", required=True, prog="spooldeck queue")
    task = add(queue_words, "add", "queue:add", "add a task and print its id")
    task.add_argument("kind", metavar="TYPE")
    task.add_argument("description", nargs="?", default="", metavar="DESCRIPTION")
    task.add_argument("payload", nargs="?", default="", metavar="PAYLOAD")
    once = add(queue_words, "process-next", "work:process_next", "handle the next due task, if any")
    once.add_argument("--quiet", action="store_true", help="no words where exit 1 or 2 says it")
    once.add_argument(
        "--timer", action="store_true", help="for a timer: codes 1 to 3 become 0, the log has why"
    )
    work = add(queue_words, "work", "work:work", "handle tasks until stopped")
    work.add_argument("--concurrency", type=_count, default=1, metavar="N")
    work.add_argument("--until-idle", action="store_true", help="end when nothing is due")
    listing = add(queue_words, "list", "queue:list_tasks", "list tasks")
    listing.add_argument("--state", metavar="WORD", default="", help="only those in this state")
    listing.add_argument("--json", action="store_true", help="one JSON object a line")
    recover = add(
        queue_words, "recover", "recover:recover", "free a queue whose worker is stuck or gone"
    )
    recover.add_argument("--dry-run", action="store_true", help="only say what would be done")
    recover.add_argument("--yes", action="store_true", help="do it without asking for the PID")
    recover.add_argument("--seen", metavar="LOCK", default="", help="only the lock that was seen")
    corrupt = queue_words.add_parser("corrupt", parents=[common], help="files that were set aside")
    corrupt_words = corrupt.add_subparsers(
        metavar="COMMAND", required=True, prog="spooldeck queue corrupt"
    )
    add(corrupt_words, "list", "corrupt:list_corrupt", "list them, and why they were set aside")
    back = add(corrupt_words, "put-back", "corrupt:put_back", "mended ones back where they stood")
    back.add_argument("names", nargs="+", metavar="NAME")
    add(queue_words, "count", "queue:count", "how many tasks are pending")
    add(queue_words, "count-dlq", "queue:count_dlq", "how many tasks are dead")
    add(queue_words, "metrics", "queue:show_metrics", "the metrics as of now")

    dlq = queue_words.add_parser("dlq", parents=[common], help="the dead-letter queue")
    dlq_words = dlq.add_subparsers(metavar="COMMAND", required=True, prog="spooldeck queue dlq")
    add(dlq_words, "list", "dlq:list_dead", "list dead tasks")
    show = add(dlq_words, "show", "dlq:show", "one dead task in full")
    show.add_argument("id", metavar="ID")
    retry = add(dlq_words, "retry", "dlq:retry", "dead tasks back to pending")
    retry.add_argument("ids", nargs="+", metavar="ID")
    every = add(dlq_words, "retry-all", "dlq:retry_all", "every dead task back to pending")
    purge = add(dlq_words, "purge", "dlq:purge", "delete tasks that died long ago, for good")
    purge.add_argument("days", nargs="?", type=_days, metavar="DAYS", help="default: retention")
    for parser in (every, purge):
        parser.add_argument("--dry-run", action="store_true", help="only say what would happen")
    return top


_TOP = """\
An operator console for mail and task queues, with the queue engine built in.

  spooldeck [PLACE ...]         the console on these places, or on the configured ones
  spooldeck demo                throw-away spools with traffic, and the console on them
  spooldeck status [PLACE]      one plain look; exit 0 well, 1 needs attention, 2 unreadable
  spooldeck init DIR            make the folders of a new queue
  spooldeck doctor [PLACE]      what is wrong, and how to mend it; exit 0 nothing, 1 something
  spooldeck queue ...           add, process-next, work, list, count, count-dlq, metrics, dlq,
                                recover, corrupt
  spooldeck shell-init          bash functions in the contract's names: eval "$(...)"
  spooldeck install-units DIR   systemd units, tmpfiles and logrotate snippets, written into DIR

Each command has its own --help. A place whose name is a command is written ./NAME.
"""


def _later(where: str) -> Command:
    """A command that is imported when it runs: every start pays for what it loads."""

    def command(setup: Setup, arguments: Namespace) -> int:
        from importlib import import_module

        module, name = where.split(":")
        run: Command = getattr(import_module(f"tui.cli.{module}"), name)
        return run(setup, arguments)

    return command


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise ValueError(text)
    return int(text)


def _days(text: str) -> float:
    days = float(text)
    if not 0 <= days < 1e6:
        raise ValueError(text)
    return days


_count.__name__, _days.__name__ = "whole number from 1", "number of days"  # for argparse's message
