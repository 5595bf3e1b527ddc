"""The keys of the log screen in the order of their hints; each returns what it changed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from engine.logs.log_file import FileEntry
from engine.logs.log_filter import (
    DEBUG,
    ERROR,
    BadWords,
    LineFilter,
    lines_naming_task,
    parse_line_filter,
    parse_typed_time,
)
from engine.logs.merged_log import LogPosition
from engine.model import State
from tui.log import actions
from tui.log import log_lines as view
from tui.log.parts import Change, LogParts
from tui.log.reader import index_of
from tui.screens.key_rows import KeyRow, RowMaker
from tui.screens.target import Target
from tui.text import keys

# The cursor


def move(parts: LogParts, how: str) -> Change:
    """Move the cursor; anywhere but at the end pauses following."""
    forward = how.endswith("down")
    if how == "last":
        return follow(parts)
    if how == "first":
        parts.pause()
        return parts.start_job(parts.reader.read_head)
    if parts.is_following and forward:
        return Change.NOTHING
    parts.pause()
    page, window = parts.page, parts.reader.window
    page.move(how)
    remaining = len(page.entries) - 1 - page.cursor if forward else page.cursor
    at_edge = window.at_end if forward else window.at_start
    is_new = remaining == 0 and forward and at_edge and parts.counter.news is not None
    if not parts.is_busy and (is_new or (remaining < page.height and not at_edge)):
        parts.read_more(forward=forward)
    return Change.LINES


def follow(parts: LogParts) -> Change:
    """Follow the end, or pause."""
    if not parts.is_following:
        return parts.follow_end()
    parts.pause()
    return Change.STATUS


def open_task(parts: LogParts) -> Change:
    """Open the task named in the line."""
    selected = parts.page.selected_entry
    if selected is None:
        return parts.say("no line here")
    return parts.start_job(partial(_open, parts, selected))


async def _open(parts: LogParts, entry: FileEntry) -> None:
    for name in view.possible_ids(entry.line.text):
        if await parts.session.inspector.queries.task(name) is not None:
            parts.screen.go(Target(keys.TASK, id=name))
            return
    named = view.labelled_ids(entry.line.text)
    parts.say(f"{named[0]} is no longer in the queue" if named else "no task id in this line")


def back(parts: LogParts) -> Change:
    """Stop a long read; otherwise clear the filter; otherwise close the log."""
    if parts.reader.job is not None and parts.is_busy and not parts.reader.is_stopping:
        parts.reader.is_stopping = True
    elif parts.words and parts.words != parts.named:
        return parts.set_filter("", LineFilter())
    else:
        parts.screen.open(lambda screen: screen.dismiss())
    return Change.NOTHING


# Which lines, and how


def level(parts: LogParts, step: int) -> Change:
    """Raise or lower the minimum level."""
    to = parts.level + step
    if not DEBUG <= to <= ERROR:
        return parts.say("all levels are shown" if to < DEBUG else "only errors are shown")
    parts.level = to
    return parts.apply_filter()


def only(parts: LogParts) -> Change:
    """Prompt for the filter."""

    def take(words: str) -> Change:
        is_naming = words == parts.named
        return parts.set_filter(words, parts.naming if is_naming else parse_line_filter(words))

    return _ask(parts, "filter (words, a|b, !not, ~pattern)", parts.words, filter_error, take)


def only_task(parts: LogParts) -> Change:
    """Show only the lines of the task under the cursor."""
    if not (id := parts.line_task.id):
        return parts.say("no task id in this line")
    return parts.set_filter(f'"{id}"', lines_naming_task(id))


def wrap(parts: LogParts) -> Change:
    """Wrap or cut long lines."""
    return parts.restyle(parts.style._replace(wrap=not parts.style.wrap))


def stamps(parts: LogParts) -> Change:
    """Switch the time format."""
    return parts.restyle(parts.style._replace(time_format=parts.style.time_format.next_format))


def filter_error(text: str) -> str:
    """What is wrong with the words of a filter; "" for nothing."""
    try:
        parse_line_filter(text)
    except BadWords as error:
        return f"{error} at {error.at + 1}"
    return ""


def _ask(
    parts: LogParts,
    title: str,
    words: str,
    error: Callable[[str], str],
    take: Callable[[str], Change],
) -> Change:
    from tui.screens.dialogs import AskScreen

    def done(text: str | None) -> None:
        if text:
            parts.screen.show_change(take(text))

    parts.screen.open(lambda screen: screen.app.push_screen(AskScreen(title, words, error), done))
    return Change.NOTHING


# Searching


def search(parts: LogParts) -> Change:
    """Prompt for the search text."""

    def take(words: str) -> Change:
        what = parse_line_filter(words)
        parts.searched = (words, what)
        parts.restyle(parts.style._replace(hits=what.texts))
        return _seek(parts, True, what, words, from_here=True)

    title = "search (words, a|b, !not, ~pattern); n next, N previous"
    return _ask(parts, title, parts.searched[0], filter_error, take)


def search_again(parts: LogParts, step: int) -> Change:
    """Go to the next or the previous match."""
    words, what = parts.searched
    return _seek(parts, step > 0, what, words) if words else parts.say("no search yet: / searches")


def next_error(parts: LogParts) -> Change:
    """Go to the next error, or to the last one while following."""
    return _seek(parts, not parts.is_following, LineFilter(ERROR), "an error")


def _seek(
    parts: LogParts, forward: bool, what: LineFilter, words: str, from_here: bool = False
) -> Change:
    selected = parts.page.selected_entry
    if selected is None:
        return parts.say("no line to search from")
    parts.pause()
    time_, file, at = selected.key
    beyond = forward and not from_here
    mark = LogPosition((time_, file, selected.end_offset if beyond else at))
    return parts.start_job(partial(_find_next, parts, mark, forward, what, words))


async def _find_next(
    parts: LogParts, mark: LogPosition, forward: bool, what: LineFilter, words: str
) -> None:
    reader = parts.reader
    scan = reader.scan(mark, forward, reader.filter.combine_with(what))
    if not await reader.run(scan):
        return
    if not scan.found:
        back = "below: N searches up" if forward else "above: n searches down"
        parts.say(f"{words}: not found {back}")
        return
    match = scan.found[0]
    at = index_of(match, reader.window.entries, -1)
    if at >= 0:
        parts.show_lines(at)
    else:
        await reader.read_around(LogPosition(match.key), parts.page.height // 3)


def go_to_time(parts: LogParts) -> Change:
    """Prompt for a time to go to."""
    now = parts.context.clock()

    def wrong(text: str) -> str:
        try:
            parse_typed_time(text, now)
        except ValueError as error:
            return str(error)
        return ""

    def take(text: str) -> Change:
        return parts.start_job(partial(show_time, parts, parse_typed_time(text, now)))

    return _ask(parts, "go to time", "", wrong, take)


async def show_time(parts: LogParts, when: float, line: str = "") -> None:
    """Show the lines from a time on (epoch seconds UTC), the cursor on the first such `line`."""
    parts.pause()
    search = await parts.reader.find_time(when, line)
    if search is None:
        return
    mark, is_line = search
    await parts.reader.read_around(mark, parts.page.height // 3)
    selected, text = parts.page.selected_entry, view.format_stamp(when, view.LogTimeFormat.DATE)
    if is_line:
        parts.say("log line of this error", "")
    elif selected is None or selected.key[0] < when:
        parts.say(f"no line since {text}; last line before it")
    else:
        parts.say(f"first line since {text}", "")


make = RowMaker[LogParts, Change](keys.LOG, Change.NOTHING)
own, key = make.own, make.key


def _no_line(parts: LogParts) -> bool:
    return parts.page.selected_entry is None


def _no_search(parts: LogParts) -> bool:
    return _no_line(parts) or not parts.searched[0]


def _no_lines(parts: LogParts) -> bool:
    """No line, and not because of the filter."""
    return _no_line(parts) and not (parts.words or parts.level)


on_line, on_lines = partial(own, is_absent=_no_line), partial(own, is_absent=_no_lines)

ROWS: tuple[KeyRow[LogParts, Change], ...] = (
    *make.moves(actions.move),
    on_line("open | enter | Enter | task | View | the task of this log line", actions.open_task),
    make.goes(
        make.own_key("clusters | c | c | - | View | error clusters of the DLQ of this place"),
        Target(keys.CLUSTERS, state=State.DEAD),
    ),
    on_line("log | t | t | - | View | only the log lines of this line's task", actions.only_task),
    on_lines(
        "follow | f | f | follow | View | follow new lines, or stop following", actions.follow
    ),
    on_line(
        "search | / | / | search | View | search for text; n next match, N previous match",
        actions.search,
    ),
    own(
        "search_again(1) | n | n | - | View | next match",
        partial(actions.search_again, step=1),
        is_absent=_no_search,
    ),
    own(
        "search_again(-1) | N | N | - | View | previous match",
        partial(actions.search_again, step=-1),
        is_absent=_no_search,
    ),
    on_lines(
        "only | & | & | filter | View | show only matching lines; Esc shows all", actions.only
    ),
    on_lines(
        "level(1) | + | + | level | View | raise the minimum level", partial(actions.level, step=1)
    ),
    on_lines(
        "level(-1) | - | - | - | View | lower the minimum level", partial(actions.level, step=-1)
    ),
    on_line("next_error | e | e | error | View | next error", actions.next_error),
    on_line(
        "goto_time | @ | @ | time | View | go to a time: 14:00, yesterday 18:00, -2h",
        actions.go_to_time,
    ),
    on_line("wrap | w | w | wrap | View +minor | wrap long lines, or cut them", actions.wrap),
    on_line(
        "stamps | i | i | stamps | View +minor | time stamps: with date, time only, none",
        actions.stamps,
    ),
    *make.views(),
    make.goes(key("operations", keys.PROBLEMS), Target(keys.OPERATIONS)),
    make.asks(key("palette")),
    make.asks(key("help")),
    KeyRow(key("back"), actions.back),
    make.app(key("app.freeze")),
    make.app(key("app.suspend_process")),
)
