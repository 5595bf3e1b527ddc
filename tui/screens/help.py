"""The help screen: all keys of a screen, from the key table; typed words search them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise, zip_longest

from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.widgets import Input

from engine.index.filter_language import FIELDS
from tui.screens.base import key_bindings
from tui.screens.page import Page
from tui.text import keys
from tui.text.frames import BOX, RULE, frame_border, more_below
from tui.text.keys import KeysOn
from tui.text.lines import (
    BLANK_LINE,
    Line,
    cut_line,
    fact_lines,
    fold_text,
    folded_lines,
    heading_line,
)
from tui.widgets.line_widgets import Lines, LongText
from tui.widgets.text_input import Words

SCREEN_TITLES = {
    keys.OVERVIEW: "the overview",
    keys.LIST: "the task list",
    keys.TASK: "a task",
    keys.PROBLEMS: "the problem list",
    keys.CLUSTERS: "the error clusters",
    keys.GROUPS: "groups of tasks",
    keys.WORKERS: "the workers",
    keys.LOCKS: "the locks",
    keys.TRANSPORTS: "the transports",
    keys.LOG: "the log",
    keys.PLAN: "a plan",
    keys.LOCK: "the lock",
    keys.OPERATIONS: "the operations",
    keys.RUNNING_OPERATION: "a running operation",
    keys.RECORDED_OPERATION: "a recorded operation",
    keys.ABANDON: "abandoning an operation",
    keys.FAILURES: "a transport's errors",
    keys.SUSPEND: "suspending a transport",
    keys.TEST_MAIL: "a test mail",
    keys.CONTROLS: "the queue as a whole",
    keys.SCHEDULES: "the schedules",
    keys.SEARCH: "the search",
    keys.CONTROL: "a control of the queue",
    keys.WORKER: "starting or stopping a worker",
}

KEY_CELLS = 9

COLUMN_CELLS = 38
"""Minimum width of a column of keys."""

FIXED_LINES = 5
"""Lines of the help around its keys: search, frame, message, hints."""

GROUPS = ("View", "Act", "Mark", "Copy", "Quit", "Move")

FILTER_ACTION = "filter"
"""Action whose screens also explain the filter language."""

FILTER_SUMMARY = (
    ("words", 'all of them match; a|b: either, !a: not, "a b": with the space'),
    ("or and not", '(a or b) and not c; not before and before or; "or" in quotes is a word'),
    ("fields", " ".join(FIELDS)),
    ("@name", "a saved filter; :save @name saves the one of the list"),
    ("comparisons", "= != equal; : contains; ~ !~ regex; > >= < <= numbers, times"),
)
"""Summary of the filter language, by topic."""


def help_lines(
    keys_on: KeysOn,
    screen: str,
    without: Collection[str],
    width: int,
    search: str = "",
    words: Mapping[str, str] = {},
) -> list[Line]:
    """The keys of a screen under their headings; a search keeps those that contain all its words.
    `words`: descriptions that replace those of the keys, by action. If none match, list the
    matching keys of other screens."""
    terms = search.casefold().split()
    described = [
        key._replace(description=words.get(key.action, key.description))
        for key in keys_on(screen, without)
    ]
    has_filter = any(key.action == FILTER_ACTION for key in described)
    matching = [key for key in described if _matches(key, terms)]
    matching.sort(key=lambda key: (not key.hint, key.is_minor))  # the rare ones are last
    groups = [(group, [key for key in matching if key.group == group]) for group in GROUPS]
    rows = _grouped_lines(groups, width)
    typed = _filter_lines(width, terms) if has_filter else []
    parts = [part for part in (rows, typed) if part]
    both = [line for part in parts for line in (BLANK_LINE, *part)][1:]
    return both or _grouped_lines(_other_screens(keys_on, screen, terms), width)


def _grouped_lines(groups: Iterable[tuple[str, Sequence[keys.Key]]], width: int) -> list[Line]:
    rows: list[Line] = []
    for heading, group_keys in groups:
        if group_keys:
            rows += [BLANK_LINE] if rows else []
            rows.append(heading_line(heading, width))
            for key in group_keys:
                folded = fold_text(key.description, width - KEY_CELLS - 3)
                shown = [key.shown, *[""] * (len(folded) - 1)]
                rows += [
                    ((f"  {name:<{KEY_CELLS}}", "key"), (text, ""))
                    for name, text in zip(shown, folded, strict=True)
                ]
    return rows


def _filter_lines(width: int, terms: list[str]) -> list[Line]:
    summary = " ".join(
        (FILTER_ACTION, *(f"{name} {words}" for name, words in FILTER_SUMMARY))
    ).casefold()
    if not all(word in summary for word in terms):
        return []
    return [
        heading_line("Filter language", width),
        *fact_lines(FILTER_SUMMARY, width),
    ]


def _other_screens(
    keys_on: KeysOn, screen: str, terms: list[str]
) -> Iterator[tuple[str, Sequence[keys.Key]]]:
    """Matching keys of other screens under the screen's name, each key once."""
    listed = set[tuple[str, str]]()
    for other, title in SCREEN_TITLES.items():
        matching = [
            key
            for key in keys_on(other, ())
            if _matches(key, terms) and (key.shown, key.description) not in listed
        ]
        listed.update((key.shown, key.description) for key in matching)
        if other != screen:
            yield f"not here, but in {title}", matching


def _matches(key: keys.Key, terms: list[str]) -> bool:
    text = f"{key.shown} {key.hint} {key.description} {' '.join(key.keys)}".casefold()
    return all(word in text for word in terms)


def _in_two_columns(lines: Sequence[Line], width: int, height: int) -> list[Line]:
    """The lines side by side, parted at the blank line nearest to their middle; if not all lines
    have room, each group is in the column that is shorter so far: keys that act are beside those
    that view."""
    blanks = [at for at, line in enumerate(lines) if line == BLANK_LINE] or [len(lines)]
    middle = min(blanks, key=lambda at: abs(at - len(lines) / 2))
    columns = [list(lines[:middle]), list(lines[middle + 1 :])]
    if max(map(len, columns)) > height:
        columns = [[], []]
        for start, end in pairwise((-1, *blanks, len(lines))):
            column = min(columns, key=len)
            column += [*[BLANK_LINE] * bool(column), *lines[start + 1 : end]]
    both = zip_longest(*columns, fillvalue=BLANK_LINE)
    return [(*cut_line(left_line, width), *right_line) for left_line, right_line in both]


def _border(width: int, height: int) -> int:
    return frame_border(width, height) or RULE  # always a frame: it has the title


class HelpScreen(Page):
    """All keys of the screen it was opened from, and facts about the terminal."""

    KIND = keys.HELP
    BINDINGS = key_bindings(keys.HELP)
    pane_border = staticmethod(_border)

    def __init__(
        self,
        keys_on: KeysOn,
        screen_kind: str,
        without: Collection[str] = (),
        terminal: Callable[[], tuple[str, ...]] = tuple,
        refusals: Mapping[str, str] = {},
        words: Mapping[str, str] = {},
    ) -> None:
        """`terminal` returns lines that describe the detected terminal. `refusals`: why keys are
        refused now, by the key. `words`: descriptions that replace those of the keys, by action."""
        super().__init__()
        self._keys_on = keys_on
        self._screen_kind, self._without, self._terminal = screen_kind, without, terminal
        self._refusals, self._words = refusals, words

    def compose(self) -> ComposeResult:
        with Horizontal(id="ask-line"):
            yield Lines(id="search-label")
            yield Words(compact=True, select_on_focus=False)
        yield LongText(id="text").add_class("pane", "-focused")
        yield Lines(id="word")
        yield Lines(id="hints", classes="-short")

    def begin(self) -> None:
        self.query_one("#search-label", Lines).show([((" search: ", "title"),)])
        self.query_one(Input).cursor_blink = False
        self.query_one(Input).focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        self.lay_out(self.size.width)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Enter does nothing."""
        event.stop()

    def action_move(self, how: str) -> None:
        super().action_move(how)
        self._paint_frame()

    def lay_out(self, width: int) -> None:
        inside = width - 3 if _border(width, self.size.height) == BOX else width
        search = self.query_one(Input).value
        columns = 2 if inside >= 2 * COLUMN_CELLS else 1
        lines = self._text(inside // columns, search)
        if columns > 1:
            lines = _in_two_columns(lines, inside // columns, self.size.height - FIXED_LINES)
        nothing: list[Line] = [BLANK_LINE, (("   no matching keys; Esc closes", "muted"),)]
        self.query_one(LongText).show(lines or nothing)
        self.show_hints()
        self.call_after_refresh(self._paint_frame)

    def _text(self, width: int, search: str) -> list[Line]:
        """All lines in one column."""
        kind, words = self._screen_kind, self._words
        lines = help_lines(
            self._keys_on, kind, self._without, width=width, search=search, words=words
        )
        if not search and self._refusals:
            refused = fact_lines([*self._refusals.items()], width, KEY_CELLS)
            lines = [heading_line("Refused now", width), *refused, BLANK_LINE, *lines]
        if not search and (facts := self._terminal()):
            lines += [BLANK_LINE, heading_line("This terminal", width)]
            lines += [line for text in facts for line in folded_lines(text, width)]
        return lines

    def _paint_frame(self) -> None:
        """Write the title, and how many lines are below, once the text has its size."""
        if self.is_paintable:
            text = self.query_one(LongText)
            title: Line = (("? ", "key"), (f"Keys of {SCREEN_TITLES[self._screen_kind]}", "title"))
            text.set_frame(title, more_below(text.below))
