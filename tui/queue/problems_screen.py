"""Screen of a place's problems (unreadable or damaged files): path, error, first bytes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import islice

from engine.model import Problem, State
from engine.store import StoreError
from engine.text.figure import UNKNOWN
from engine.text.figures import format_count
from engine.text.render_bytes import hex_dump
from engine.text.safe import safe_line, state_name
from tui.screens.base import Copy, key_bindings
from tui.screens.page import Page
from tui.task.parts_lines import bytes_per_row
from tui.text import keys
from tui.text.frames import Frame
from tui.text.glyphs import MORE
from tui.text.lines import (
    BLANK_LINE,
    MARGIN_CELLS,
    UNKNOWN_RUN,
    Line,
    Run,
    fact_lines,
    fit_text,
    fold_text,
)
from tui.text.log_line import shorten_ids
from tui.text.table import REST, Choice, Column, Table, alarm_sign
from tui.text.times import format_minutes, format_time_with_age
from tui.widgets.background import run_in_background

MAX_PREVIEWED_PROBLEMS = 50
"""Problems whose first bytes are shown."""
DUMP_ROWS = 16
"""Hex dump rows per problem."""

MAX_WHERE_CELLS = 28
"""Cells of the longest name of a file that the list shows in full."""


def problem_rows(
    problems: Sequence[Problem],
    states: Mapping[State, str],
    now: float,
    width: int,
    height: int = 0,
) -> tuple[list[Choice], Line]:
    """A row for each problem: the name of its file and its state or folder, what is wrong, for how
    long; and the titles above. What is wrong is folded while `height` has lines for it."""

    def where(problem: Problem) -> list[Run]:
        path, _, name = safe_line(problem.where).rpartition("/")
        *_, word = ["", *(each for each in path.split("/") if each == shorten_ids(each))]
        if problem.state is not None:
            word = states.get(problem.state, problem.state)
        return [(shorten_ids(name), "accent"), (f" {state_name(word)}" if word else "", "muted")]

    def since(problem: Problem) -> Run:
        if problem.since is None or problem.since > now:  # the clock was set back
            return UNKNOWN_RUN
        return format_minutes(now - problem.since), ""

    columns: tuple[Column[Problem], ...] = (
        Column("WHERE", 8, where, most=MAX_WHERE_CELLS),
        Column("PROBLEM", 8, lambda problem: (safe_line(problem.what), ""), grows=REST),
        Column("SINCE", 6, since, right=True),
    )
    table = Table(columns, margin=lambda problem: alarm_sign(True, "warn"))
    table = table.fitted(problems, width - 1)
    first_column, column, _ = table.columns
    blanks = " " * (MARGIN_CELLS + first_column.width + table.gaps[0])
    rows: list[Choice] = []
    spare = max(0, height - 1 - len(problems))
    for problem in problems:
        pieces = fold_text(safe_line(problem.what), column.width)
        if len(pieces) - 1 > spare:
            pieces[spare:] = [fit_text(pieces[spare] + MORE, column.width)]
        spare -= len(pieces) - 1
        rows.append(Choice(problem.where, table.line(problem._replace(what=pieces[0]), width - 1)))
        rows += [Choice("", ((blanks + text, ""),), True) for text in pieces[1:]]
    return rows, table.titles(width - 1)


NO_TIME = f"{UNKNOWN} no time recorded"
"""Why it is unknown since when there is a problem."""


def problem_details(
    problem: Problem, states: Mapping[State, str], now: float, width: int
) -> list[Line]:
    """A problem in full."""
    rows = [("where", problem.where), ("problem", problem.what)]
    if problem.state is not None:
        rows.append(("state", state_name(states.get(problem.state, problem.state))))
    since = NO_TIME if problem.since is None else format_time_with_age(problem.since, now)
    rows.append(("since", since))
    return fact_lines([(name, safe_line(text)) for name, text in rows], width, 9)


def problem_lines(
    problems: Sequence[Problem],
    states: Mapping[State, str],
    now: float,
    width: int,
    glimpses: Sequence[bytes | str] = (),
) -> list[Line]:
    """Every problem in full; `glimpses`: first bytes of the first ones, or why they are unread."""
    rows: list[Line] = []
    for number, problem in enumerate(problems, 1):
        rows += [BLANK_LINE] if rows else []
        rows.append(((f" problem {number} of {len(problems):,}", "title"),))
        rows += problem_details(problem, states, now, width)
        if number <= len(glimpses):
            rows += _dump_lines(glimpses[number - 1], width)
    return rows


def _dump_lines(glimpse: bytes | str, width: int) -> list[Line]:
    if isinstance(glimpse, str):
        return fact_lines([("bytes", f"not read: {safe_line(glimpse)}")], width)
    row = bytes_per_row(width)
    if not glimpse:
        return fact_lines([("bytes", "none (empty file)")], width)
    return [((f"  {line}", "muted"),) for line in islice(hex_dump(glimpse, row), DUMP_ROWS)]


class ProblemsScreen(Page):
    """The problems at the time of opening; read only."""

    KIND = keys.PROBLEMS
    BINDINGS = key_bindings(keys.PROBLEMS)

    def __init__(
        self,
        problems: Sequence[Problem],
        states: Mapping[State, str],
        glimpse: Callable[[Problem], Awaitable[bytes]],
        now: float,
    ) -> None:
        """`glimpse` returns the first bytes of a problem, or raises a StoreError."""
        super().__init__()
        self._problems, self._states, self._glimpse, self._now = problems, states, glimpse, now
        self._glimpses: list[bytes | str] = []

    def on_mount(self) -> None:
        run_in_background(self, self._read, name="glimpses")

    async def _read(self) -> None:
        for problem in self._problems[:MAX_PREVIEWED_PROBLEMS]:
            try:
                self._glimpses.append(await self._glimpse(problem))
            except StoreError as error:
                self._glimpses.append(str(error))
        if self.is_paintable:
            self.lay_out(self.size.width)

    def copies(self) -> tuple[Copy, ...]:
        lines = [f"{problem.where}: {problem.what}" for problem in self._problems]
        where = "\n".join(problem.where for problem in self._problems)
        return Copy("i", "paths", where), Copy("r", "rows", "\n".join(lines))

    def text_frame(self) -> Frame:
        return Frame("Problems", amount=f"{len(self._problems):,}")

    def lay_out(self, width: int) -> None:
        width = self.text_width
        title = ((f" {format_count(len(self._problems), 'problem')}", "strong"),)
        text = problem_lines(self._problems, self._states, self._now, width, self._glimpses)
        self.show(title, text, ())
        self.show_hints()
