"""`log`: the logs of a queue, merged by time, printed once or as they come."""

from __future__ import annotations

import os
import sys
import time
from argparse import Namespace
from collections.abc import Mapping, Sequence

from engine.logs.log_file import NEVER, FileEntry
from engine.logs.log_filter import LEVELS, BadWords, LineFilter, moment, sieve
from engine.logs.merged_log import END, NOT_THERE, LogPosition, MergedLog, Scan, finish
from engine.text.safe import shown
from tui.cli.setup.places import places_of
from tui.cli.setup.setup import EX_USAGE, Setup, complain, fail
from tui.log.lines import source

PERIOD = 0.5
"""Seconds between two looks for new lines."""


def log(setup: Setup, arguments: Namespace) -> int:
    """Print the last lines of the logs, in the order of time."""
    through = _through(arguments)
    floor = _floor(arguments)
    named = arguments.place or getattr(arguments, "root", "")
    place = places_of(setup, [named] if named else [])[0]
    book = MergedLog(place.logs)
    try:
        book.look()
        here = book.here()
        for path, why in _unread(book.troubles, len(place.logs)).items():
            complain(f"{shown(path)}: {shown(why)}")
        scan = Scan(book, END, through, arguments.lines, forward=False)
        while not scan.done and (floor == NEVER or scan.horizon() >= floor):
            scan.step()
        found = [entry for entry in scan.entries if entry.key[0] >= floor]
        if arguments.follow:  # a torn line is printed when it is whole
            found = [entry for entry in found if not entry.torn]
        _print(found, arguments.json, len(place.logs) > 1)
        if arguments.follow:
            _follow(book, here, through, arguments.json, len(place.logs) > 1)
    finally:
        book.close()
    return 0


def _unread(troubles: Mapping[str, str], logs: int) -> Mapping[str, str]:
    """Why logs cannot be read. A missing one is no trouble while another is there: a queue without
    mail has no mail.log.
    """
    missing = [path for path, why in troubles.items() if why == NOT_THERE]
    return {p: why for p, why in troubles.items() if p not in missing or len(missing) == logs}


def _through(arguments: Namespace) -> LineFilter:
    level = arguments.level.lower()
    if level and level not in LEVELS:
        fail(EX_USAGE, f"--level {shown(level)}: expected {', '.join(LEVELS)}")
    try:
        return sieve(arguments.filter, LEVELS.index(level) if level else 0)
    except BadWords as error:
        fail(EX_USAGE, f"--filter: {error} at character {error.at + 1}")


def _floor(arguments: Namespace) -> float:
    if not arguments.since:
        return NEVER
    try:
        return moment(arguments.since, time.time())
    except ValueError as error:
        fail(EX_USAGE, f"--since {shown(arguments.since)}: {error}")


def _follow(
    book: MergedLog, mark: LogPosition, through: LineFilter, as_json: bool, sources: bool
) -> None:
    while True:
        sys.stdout.flush()
        time.sleep(PERIOD)
        if book.look():
            scan = Scan(book, mark, through, sys.maxsize)
            finish(scan)
            mark = scan.reached
            _print([entry for entry in scan.entries if not entry.torn], as_json, sources)


def _print(entries: Sequence[FileEntry], as_json: bool, sources: bool) -> None:
    for entry in entries:
        print(_json(entry) if as_json else _text(entry, sources))


def _text(entry: FileEntry, sources: bool) -> str:
    line = entry.line
    when = "" if line.when is None else time.strftime("%F %T ", time.localtime(line.when))
    name = f"{source(line.source)}: " if sources else ""
    level = f"{shown(line.level)} " if line.level else ""
    more = f" ... {entry.hidden:,} bytes more" if entry.hidden else ""
    return f"{when}{name}{level}{shown(line.text.expandtabs(8))}{more}"


def _json(entry: FileEntry) -> str:
    import json

    line = entry.line
    return json.dumps(
        {
            "when": line.when,
            "level": line.level,
            "text": line.text,
            "log": os.fsdecode(line.source),
            "hidden_bytes": entry.hidden,
            "torn": entry.torn,
        }
    )
