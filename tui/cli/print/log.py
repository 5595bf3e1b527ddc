"""`log`: print the log lines of a queue merged by time, and follow them."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping, Sequence
from functools import partial

from engine.formats.base.format import Setup
from engine.logs.log_file import NO_TIME, FileEntry
from engine.logs.log_filter import (
    LEVELS,
    BadWords,
    LineFilter,
    lines_naming_task,
    parse_line_filter,
)
from engine.logs.merged_log import END, LineScan, MergedLog, run_to_end
from engine.logs.rotated_log import NO_LOG_FILE
from engine.places.place import Place
from engine.system.command_errors import EX_USAGE, fail, print_error
from engine.text.error_text import error_text
from engine.text.safe import safe_line, safe_lines
from engine.text.times import format_time
from tui.cli.setup.filter_option import parse_since_option
from tui.cli.setup.output import Answer, print_answer
from tui.cli.setup.places import open_places
from tui.log.log_lines import log_name
from tui.text.task_row import time_fields

POLL_INTERVAL_SECONDS = 0.5
"""Seconds between two reads for new lines."""


def log(
    setup: Setup,
    place: str | None,
    *,
    filter: str,
    id: str,
    level: str,
    since: str,
    lines: int,
    follow: bool,
    json: bool,
) -> int:
    """Print the last lines of the logs, ordered by time; of one task also what its handler
    printed."""
    if id and (filter or level or follow):
        fail(EX_USAGE, "--id: expected without --filter, --level and --follow")
    through = lines_naming_task(id) if id else _line_filter(filter, level.lower())
    floor = parse_since_option(since)
    found = open_places(setup, [place] if place else [])[0]
    logs = found.shown_logs
    problem = _fetch(found, "")
    book = MergedLog(logs)
    show = partial(_print, as_json=json, sources=len(logs) > 1)
    try:
        book.refresh()
        end_position = book.end_position()
        scan = LineScan(book, END, through, lines, forward=False, since=floor)
        while not scan.done and (floor == NO_TIME or scan.horizon() >= floor):
            scan.step()
        _report_unread(book.troubles, logs, found.no_server_log)
        entries = [entry for entry in scan.entries if entry.key[0] >= floor]
        show([entry for entry in entries if not (follow and entry.is_torn)])
        while follow:  # an incomplete line is printed when it is complete
            sys.stdout.flush()
            time.sleep(POLL_INTERVAL_SECONDS)
            problem = _fetch(found, problem)
            if book.refresh():
                scan = LineScan(book, end_position, through, sys.maxsize)
                run_to_end(scan)
                end_position = scan.reached
                show([entry for entry in scan.entries if not entry.is_torn])
    finally:
        book.close()
    if id:
        is_known_empty = _print_outputs(found, id, floor, as_json=json) == 0
        if is_known_empty and not entries:
            print_error(f"no log line about {safe_line(id)}, and no output")
    return 0


def _print_outputs(place: Place, ident: str, floor: float, *, as_json: bool) -> int | None:
    """Print what the runs of a task printed that ended at `floor` or later; return their number,
    None if it is not known."""
    try:
        outputs = [output for output in place.outputs(ident) if output.ended >= floor]
    except OSError as error:
        print_error(f"output of {safe_line(ident)} not read: {error_text(error)}")
        return None
    for output in outputs:
        values = {
            **time_fields("when", output.ended),
            "level": "",
            "text": output.how,
            "log": "",
            "hidden_bytes": 0,
            "torn": False,
            "output": output.data.decode("utf-8", "replace"),
        }
        head = output.describe(format_time(output.ended))
        text = [head, *(f"  {line}" for line in safe_lines(output.data))]
        print_answer(Answer(partial(dict, values), partial(list, text)), as_json=as_json)
    return len(outputs)


def _fetch(place: Place, before: str) -> str:
    """Copy a log that is elsewhere; report a problem unless it is that of `before`. Return it."""
    problem = place.fetch_log()
    if problem not in ("", before):
        print_error(f"the server's log is not copied: {safe_line(problem)}")
    return problem


def _report_unread(troubles: Mapping[str, str], logs: Sequence[str], no_log: str) -> None:
    """Report unreadable logs; `no_log`: why that of the server is not known. A missing log is no
    error if another exists: a queue without mail has no mail.log."""
    missing = [path for path, why in troubles.items() if why == NO_LOG_FILE]
    for path, why in troubles.items():
        if path not in missing:
            print_error(f"{safe_line(path)}: {safe_line(why)}")
    if not logs:
        print_error("no log: this format writes none")
    elif len(missing) == len(logs):
        names = " or ".join(map(safe_line, missing))
        reason = no_log or "the first operation creates it"
        print_error(f"no log yet: no {names}; {reason}")


def _line_filter(text: str, level: str) -> LineFilter:
    if level and level not in LEVELS:
        fail(EX_USAGE, f"--level {safe_line(level)}: expected {', '.join(LEVELS)}")
    try:
        return parse_line_filter(text, LEVELS.index(level) if level else 0)
    except BadWords as error:
        fail(EX_USAGE, f"--filter: {error} at character {error.at + 1}")


def _print(entries: Sequence[FileEntry], *, as_json: bool, sources: bool) -> None:
    answer = Answer(
        lambda: map(_values, entries), lambda: (_text(entry, sources) for entry in entries)
    )
    print_answer(answer, as_json=as_json)


def _text(entry: FileEntry, sources: bool) -> str:
    line = entry.line
    when = "" if line.when is None else time.strftime("%F %T ", time.localtime(line.when))
    name = f"{log_name(line.source)}: " if sources else ""
    level = f"{safe_line(line.level)} " if line.level else ""
    more = f" ... {entry.hidden_bytes:,} bytes more" if entry.hidden_bytes else ""
    return f"{when}{name}{level}{safe_line(line.text.expandtabs(8))}{more}"


def _values(entry: FileEntry) -> dict[str, object]:
    line = entry.line
    return {
        **time_fields("when", line.when),
        "level": line.level,
        "text": line.text,
        "log": os.fsdecode(line.source),
        "hidden_bytes": entry.hidden_bytes,
        "torn": entry.is_torn,
        "output": None,
    }
