"""The log screen: the logs of a place merged by time, with follow, filter, search, and open
task.
"""

from __future__ import annotations

from engine.logs.log_filter import ERROR, LineFilter, parse_line_filter, parse_typed_time
from engine.logs.merged_log import LogPosition
from engine.text.safe import safe_line
from tui.log import log_lines as view
from tui.log.filtering import FilteredLog, filter_error
from tui.log.reader import index_of
from tui.screens.base import Copy, key_bindings
from tui.screens.console_context import ConsoleContext
from tui.screens.text_prompt import AskScreen
from tui.session.place_session import PlaceSession
from tui.text import keys


class LogScreen(FilteredLog):
    """All logs of a place as one."""

    BINDINGS = key_bindings(keys.LOG)

    def __init__(
        self,
        session: PlaceSession,
        context: ConsoleContext,
        *,
        find: str = "",
        at: float | None = None,
        line: str = "",
    ) -> None:
        """`find` shows only lines that mention a task; `at` (epoch seconds UTC) starts at that
        time, on the first matching `line`.
        """
        super().__init__(session, context, find)
        self._at, self._line = at, line
        self.is_following = at is None

    def begin(self) -> None:
        """Focus the lines; start reading when the height is known."""
        self.lines.focus()
        self.call_after_refresh(self._start_reading)

    def _start_reading(self) -> None:
        at, tail = self._at, self.reader.read_tail
        first = tail if at is None else lambda: self._to_time(at, self._line)
        self.run_worker(self.follow_logs(first), name="follow", group="follow")
        self.run_worker(self.count_lines(), name="count", group="count")

    def without(self) -> tuple[str, ...]:
        """Hide the keys that have nothing to act on."""
        again = ("search_again(1)", "search_again(-1)")
        if self.lines.selected_entry is not None:
            return () if self.searched[0] else again
        moves = ("open", "log", "search", *again, "next_error", "goto_time", "wrap", "stamps")
        has_filter = self.words or self.level
        return moves if has_filter else (*moves, "only", "level(1)", "level(-1)", "follow")

    def copies(self) -> tuple[Copy, ...]:
        """The line under the cursor, and the task id in it."""
        selected = self.lines.selected_entry
        if selected is None:
            return ()
        text = safe_line(selected.line.text)
        when = view.format_stamp(selected.line.when, view.LogTimeFormat.DATE)
        ids = view.labelled_ids(text)[:1]
        return (
            Copy("l", "line", f"{when} {selected.line.level} {text}".strip()),
            *(Copy("i", "id", id) for id in ids),
        )

    # Moving

    def action_move(self, how: str) -> None:
        """Move the cursor; anywhere but at the end pauses following."""
        if how == "last":
            self.action_follow()
        elif how == "first":
            self.pause()
            self.start_job(self.reader.read_head)
        else:
            self._move(how, how.endswith("down"))

    def _move(self, how: str, forward: bool) -> None:
        lines, window = self.lines, self.reader.window
        if self.is_following and forward:
            return
        self.pause()
        lines.move(how)
        self.paint_status()
        remaining = len(lines.entries) - 1 - lines.cursor if forward else lines.cursor
        at_edge = window.at_end if forward else window.at_start
        is_new = remaining == 0 and forward and at_edge and self.counter.news is not None
        if not self.is_busy and (is_new or (remaining < lines.page and not at_edge)):
            self.start_job(lambda: self.reader.read_more(forward, lambda: lines.selected_entry))

    def action_follow(self) -> None:
        """Follow the end, or pause."""
        if self.is_following:
            self.pause()
            self.paint_status()
        else:
            self.is_following, self.counter.news = True, None
            self.start_job(self.reader.read_tail)

    # Searching

    def action_search(self) -> None:
        """Prompt for the search text."""

        def take(words: str | None) -> None:
            if words:
                what = parse_line_filter(words)
                self.searched = (words, what)
                self.show_hints()
                self.restyle(self.style._replace(hits=what.texts))
                self._seek(True, what, words, from_here=True)

        title = "search (words, a|b, !not, ~pattern); n next, N previous"
        self.app.push_screen(AskScreen(title, self.searched[0], filter_error), take)

    def action_search_again(self, step: int) -> None:
        """Go to the next or the previous match."""
        if self.searched[0]:
            self._seek(step > 0, self.searched[1], self.searched[0])
        else:
            self.say("no search yet: / searches")

    def action_next_error(self) -> None:
        """Go to the next error, or to the last one while following."""
        self._seek(not self.is_following, LineFilter(ERROR), "an error")

    def _seek(self, forward: bool, what: LineFilter, words: str, from_here: bool = False) -> None:
        selected = self.lines.selected_entry
        if selected is None:
            self.say("no line to search from")
            return
        self.pause()
        time_, file, at = selected.key
        beyond = forward and not from_here
        mark = LogPosition((time_, file, selected.end_offset if beyond else at))
        self.start_job(lambda: self._find_next(mark, forward, what, words))

    async def _find_next(
        self, mark: LogPosition, forward: bool, what: LineFilter, words: str
    ) -> None:
        reader = self.reader
        scan = reader.scan(mark, forward, reader.filter.combine_with(what))
        if not await reader.run(scan):
            return
        if not scan.found:
            back = "below: N searches up" if forward else "above: n searches down"
            self.say(f"{words}: not found {back}")
            return
        match = scan.found[0]
        at = index_of(match, reader.window.entries, -1)
        if at >= 0:
            self.show_lines(at)
        else:
            await reader.read_around(LogPosition(match.key), self.lines.page // 3)

    def action_goto_time(self) -> None:
        """Prompt for a time to go to."""
        now = self.context.clock()

        def wrong(text: str) -> str:
            try:
                parse_typed_time(text, now)
            except ValueError as error:
                return str(error)
            return ""

        def take(text: str | None) -> None:
            if text:
                self.start_job(lambda: self._to_time(parse_typed_time(text, now)))

        self.app.push_screen(AskScreen("go to time", "", wrong), take)

    async def _to_time(self, when: float, line: str = "") -> None:
        self.pause()
        search = await self.reader.find_time(when, line)
        if search is None:
            return
        mark, is_line = search
        await self.reader.read_around(mark, self.lines.page // 3)
        selected, text = self.lines.selected_entry, view.format_stamp(when, view.LogTimeFormat.DATE)
        if is_line:
            self.say("log line of this error", "")
        elif selected is None or selected.key[0] < when:
            self.say(f"no line since {text}; last line before it")
        else:
            self.say(f"first line since {text}", "")
