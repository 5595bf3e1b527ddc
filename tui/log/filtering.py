"""The filter part of the log screen: level, words, the lines of a task, and the layout of lines."""

from __future__ import annotations

from engine.logs.log_file import FileEntry
from engine.logs.log_filter import (
    DEBUG,
    ERROR,
    BadWords,
    LineFilter,
    lines_naming_task,
    parse_line_filter,
)
from engine.logs.merged_log import LogPosition
from engine.model import State
from tui.log import log_lines as view
from tui.log.base import LogBase
from tui.log.reader import SHOW_PROGRESS_SECONDS, index_of
from tui.screens.target import Target
from tui.screens.text_prompt import AskScreen
from tui.text import keys
from tui.text.hints import next_line
from tui.text.lines import Line, join_ends, width_of
from tui.text.progress_bar import ProgressBar, bar_line
from tui.text.task_list import short_id


class FilteredLog(LogBase):
    """Decides which lines are shown, and how."""

    def pause(self) -> None:
        """Stop following; new lines are counted."""
        if self.is_following:
            self.is_following = False
            self.counter.pause(self.reader.window.end)

    def apply_filter(self) -> None:
        """Apply the filter and the level; the cursor stays on its line if that still matches."""
        reader, sieve = self.reader, self.filter._replace(level=self.level)
        before, reader.filter = reader.window, sieve
        self.counter.set_filter(sieve)
        selected, line = self.lines.selected_entry, max(0, self.lines.line_of_cursor)
        if self.is_following or selected is None:
            self.start_job(reader.read_tail)
        else:
            self.start_job(lambda: reader.read_around(LogPosition(selected.key), line))
        # Show the matching lines of the window until more are found.
        reader.window = before.with_filter(sieve)
        entries = reader.window.entries
        self.show_lines(index_of(selected, entries, len(entries) - 1), is_searching=True)

    def action_level(self, step: int) -> None:
        """Raise or lower the minimum level."""
        level = self.level + step
        if not DEBUG <= level <= ERROR:
            self.say("all levels are shown" if level < DEBUG else "only errors are shown")
            return
        self.level = level
        self.apply_filter()

    def action_only(self) -> None:
        """Prompt for the filter."""

        def take(words: str | None) -> None:
            if words:
                self.words = words
                is_naming = words == self.named
                self.filter = self.naming if is_naming else parse_line_filter(words)
                self.apply_filter()

        title = "filter (words, a|b, !not, ~pattern)"
        self.app.push_screen(AskScreen(title, self.words, filter_error), take)

    def action_log(self) -> None:
        """Show only the lines of the task under the cursor."""
        if not self.line_task.id:
            self.say("no task id in this line")
            return
        self.words, self.filter = f'"{self.line_task.id}"', lines_naming_task(self.line_task.id)
        self.apply_filter()

    def default_message(self) -> Line:
        """Progress of a long read; read errors; otherwise the next step."""
        reader, width = self.reader, self.size.width
        if reader.job is not None and reader.job_seconds > SHOW_PROGRESS_SECONDS:
            job = reader.job[0]
            progress = ProgressBar(job.read >> 10, max(job.read, job.total) >> 10)
            stop: Line = (("  Esc", "key"), (" stops", ""))
            if not progress.total:  # a binary search has no byte count
                return ((" searching ...", ""), *stop)
            return (*bar_line(progress, reader.job_seconds, "KiB", width - 12), *stop)
        if trouble := view.trouble_line(reader.book.troubles, width):
            return trouble
        return self._next_step()

    def _next_step(self) -> Line:
        selected, width = self.lines.selected_entry, self.size.width
        new = self.counter.news.matching if self.counter.news else 0
        key, does = "f", f"shows {new:,} new" if new else "follows new lines"
        if selected is None:
            key, does = (
                "Esc",
                "shows all lines" if self.words else "goes back; new lines appear here",
            )
            if self.level > DEBUG and not self.words:
                key, does = "-", "shows lines of lower levels"
        elif self.line_task.is_gone:
            key, does = (
                "t",
                f"shows all lines of {short_id(self.line_task.id)} (task is gone)",
            )
        elif self.line_task.id:
            state = self.line_task.describe()
            does = f"opens task {short_id(self.line_task.id)}{': ' if state else ''}{state}"
            key = "Enter"
        elif self.is_following:
            key, does = "e", "goes to the last error"
        if selected is None or selected.line.when is None:
            return next_line(key, does, "", width)
        time_format, milliseconds = view.LogTimeFormat.TIME, self.style.has_milliseconds
        at = view.format_stamp(selected.line.when, time_format, milliseconds)
        right: Line = (("at ", "muted"), (f"{at} ", "strong"))
        room = width - width_of(right) - 1
        return join_ends(next_line(key, does, "", room), right, width)

    def action_open(self) -> None:
        """Open the task named in the line."""
        selected = self.lines.selected_entry
        if selected is None:
            self.say("no line here")
        else:
            self.start_job(lambda: self._open(selected))

    async def _open(self, entry: FileEntry) -> None:
        for name in view.possible_ids(entry.line.text):
            if await self.session.inspector.queries.task(name) is not None:
                self.go(Target(keys.TASK, id=name))
                return
        named = view.labelled_ids(entry.line.text)
        self.say(f"{named[0]} is no longer in the queue" if named else "no task id in this line")

    def action_back(self) -> None:
        """Stop a long read; otherwise clear the filter; otherwise close the log."""
        if self.reader.job is not None and self.is_busy and not self.reader.is_stopping:
            self.reader.is_stopping = True
        elif self.words and self.words != self.named:
            self.words, self.filter = "", LineFilter()
            self.apply_filter()
        else:
            self.dismiss()

    def action_clusters(self) -> None:
        """Open the error clusters of the place."""
        self.go(Target(keys.CLUSTERS, place=self.session.number, state=State.DEAD))

    def action_wrap(self) -> None:
        """Wrap or cut long lines."""
        self.restyle(self.style._replace(wrap=not self.style.wrap))

    def action_stamps(self) -> None:
        """Switch the time format."""
        self.restyle(self.style._replace(time_format=self.style.time_format.next_format))

    def restyle(self, style: view.LogStyle) -> None:
        """Show the same lines with another layout."""
        self.style = style
        self.show_lines(self.lines.cursor)


def filter_error(text: str) -> str:
    """What is wrong with the words of a filter; "" for nothing."""
    try:
        parse_line_filter(text)
    except BadWords as error:
        return f"{error} at {error.at + 1}"
    return ""
