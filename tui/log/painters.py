"""What the log screen shows around the lines, as lines: functions of its parts and a width."""

from __future__ import annotations

from pathlib import PurePath

from engine.logs.log_filter import DEBUG
from engine.logs.rotated_log import NO_LOG_FILE
from engine.text.figures import format_count
from engine.text.safe import safe_line
from tui.log import log_lines as view
from tui.log.parts import LogParts
from tui.log.reader import SHOW_PROGRESS_SECONDS
from tui.text.frames import Frame
from tui.text.hints import next_line
from tui.text.lines import Line, cells_of, fit_text_end, join_ends, width_of
from tui.text.progress_bar import ProgressBar, bar_line
from tui.text.task_list import short_id


def files_frame(parts: LogParts) -> Frame:
    """The frame of the lines: how many logs there are, and their names."""
    paths, troubles = parts.logs, parts.reader.book.troubles
    missing = [path for path in paths if troubles.get(path) == NO_LOG_FILE]
    amount = format_count(len(paths), "file")
    if missing:
        amount = f"{len(paths) - len(missing)} of {amount}"
    names = [f"{'no ' if path in missing else ''}{PurePath(path).name}" for path in paths]
    text = safe_line(", ".join(names))
    right: Line = ((fit_text_end(text, min(40, cells_of(text))), "muted"),)
    return Frame("Log", "7", amount, right)


def message_line(parts: LogParts, width: int) -> Line:
    """Progress of a long read; read errors; otherwise the next step."""
    reader = parts.reader
    if reader.job is not None and reader.job_seconds > SHOW_PROGRESS_SECONDS:
        job = reader.job[0]
        progress = ProgressBar(job.read >> 10, max(job.read, job.total) >> 10)
        stop: Line = (("  Esc", "key"), (" stops", ""))
        if not progress.total:  # a binary search has no byte count
            return ((" searching ...", ""), *stop)
        return (*bar_line(progress, reader.job_seconds, "KiB", width - 12), *stop)
    return view.trouble_line(reader.book.troubles, width) or next_step(parts, width)


def next_step(parts: LogParts, width: int) -> Line:
    """What a key does with the line under the cursor, and the time of that line."""
    selected, task, new = parts.page.selected_entry, parts.line_task, parts.new_lines
    key, does = "f", f"shows {new:,} new" if new else "follows new lines"
    if selected is None:
        key = "Esc"
        does = "shows all lines" if parts.words else "goes back; new lines appear here"
        if parts.level > DEBUG and not parts.words:
            key, does = "-", "shows lines of lower levels"
    elif task.is_gone:
        key, does = "t", f"shows all lines of {short_id(task.id)} (task is gone)"
    elif task.id:
        state = task.describe()
        key, does = "Enter", f"opens task {short_id(task.id)}{': ' if state else ''}{state}"
    elif parts.is_following:
        key, does = "e", "goes to the last error"
    if selected is None or selected.line.when is None:
        return next_line(key, does, "", width)
    milliseconds = parts.style.has_milliseconds
    at = view.format_stamp(selected.line.when, view.LogTimeFormat.TIME, milliseconds)
    right: Line = (("at ", "muted"), (f"{at} ", "strong"))
    return join_ends(next_line(key, does, "", width - width_of(right) - 1), right, width)
