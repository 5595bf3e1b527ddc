"""The keys of the log screen in the order of their hints: what each does, when it is offered."""

from __future__ import annotations

from functools import partial

from engine.model import State
from tui.log import actions
from tui.log.parts import Change, LogParts
from tui.screens.key_rows import KeyRow, RowMaker
from tui.screens.target import Target
from tui.text import keys

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
    make.app(key("app.suspend_process")),
)
