"""Screen of a search in all places: how many tasks of each place and state match, and the first of
them. Esc leads back to it from a list that was opened here."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from engine.index.filter_language import BadFilter, Filter, parse_filter
from engine.index.schema import Query
from engine.model import State, Task
from engine.store import Unavailable
from engine.text.figure import UNKNOWN, Figure
from engine.text.figures import format_count
from engine.text.safe import safe_line, state_name
from engine.values import NamedTuple
from tui.queue.filter_text import SavedFilters
from tui.screens.base import BaseScreen
from tui.screens.console_context import ConsoleContext
from tui.screens.dialogs import AskScreen
from tui.screens.key_rows import KeyRow, RowMaker
from tui.screens.keyed_screen import row_bindings
from tui.screens.rows_parts import Change, RowsActions, RowsParts
from tui.screens.rows_screen import ListPanes, RowsScreen
from tui.screens.target import Target
from tui.session.place_session import PlaceSession
from tui.text import keys
from tui.text.frames import Frame
from tui.text.hints import next_line
from tui.text.lines import Line, Run
from tui.text.table import REST, Choice, Column, ShownRows, Table
from tui.text.task_list import ListedTask, id_cells, task_columns
from tui.text.times import format_age

MAX_LISTED_TASKS = 100
"""Tasks that are listed of each place and state; the counts include all."""

MIN_PAUSE_SECONDS = 2.0
"""Least seconds between two searches of a place."""

COST_FACTOR = 10.0
"""The pause after a search, as a multiple of its duration."""

MAX_AGE_SECONDS = 5.0
"""Seconds that an answer of a place may be late before its age is shown."""


class PlaceMatches(NamedTuple):
    """What matches in one place."""

    counts: Mapping[State, int] = {}
    tasks: Mapping[State, Sequence[Task]] = {}
    """The first ones of each state."""
    error: str = ""
    """Why the place is not searched; "" if it is."""
    is_whole: bool = True
    """All its tasks are read."""
    expires: float = float("inf")
    """When the next answer is late, epoch seconds UTC."""
    as_of: float = 0.0
    """When it was searched, epoch seconds UTC."""

    @property
    def total(self) -> int:
        """The number of matching tasks."""
        return sum(self.counts.values())


class MatchRow(NamedTuple):
    """The matches of one state of a place; of a place that is not searched, why."""

    session: PlaceSession
    state: State | None
    matches: PlaceMatches
    text: str
    """What was searched for."""

    @property
    def key(self) -> str:
        """Key of the row."""
        return f"{self.session.number} {self.state or ''}"


class SearchParts(RowsParts):
    """A row for each place and state with matches."""

    is_of_one_place = False

    def __init__(
        self,
        session: PlaceSession,
        context: ConsoleContext,
        screen: RowsActions,
        sessions: Sequence[PlaceSession],
        text: str,
    ) -> None:
        """`text`: what is searched for, in the filter language."""
        super().__init__(session, context, screen)
        self.sessions, self.text = sessions, text
        self.matches: dict[int, PlaceMatches] = {}
        """By the number of the place; without those that were not searched yet."""
        self.saved = SavedFilters(lambda: screen.run("saved filters", self._read_saved))

    def start(self) -> None:
        for session in self.sessions:
            self.screen.run(f"search {session.number}", partial(self._follow, session))

    async def _read_saved(self) -> Change:
        await self.saved.read()
        self.start()
        return Change.NOTHING

    async def _follow(self, session: PlaceSession) -> Change:
        """Search one place again and again while the screen is on top."""
        time = asyncio.get_running_loop().time
        while True:
            began = time()
            pause = MIN_PAUSE_SECONDS
            if self.screen.is_current:
                answer, took = await self._search(session), time() - began
                pause, now = max(MIN_PAUSE_SECONDS, COST_FACTOR * took), self.context.clock()
                late = now + pause + took + MAX_AGE_SECONDS
                self.matches[session.number] = answer._replace(as_of=now, expires=late)
                self.screen.show_change(Change.ROWS)
            await asyncio.sleep(pause)

    async def _search(self, session: PlaceSession) -> PlaceMatches:
        inspector, latest = session.inspector, session.inspector.latest
        if latest.unavailable:
            return PlaceMatches(error=latest.unavailable)
        if not inspector.states:
            return PlaceMatches(error="not read yet")
        try:
            asked = self.parse(session)
        except BadFilter as error:
            return PlaceMatches(error=error.message)
        counts, tasks = {}, {}
        for state in inspector.states:
            try:
                window = await inspector.queries.window(Query(state, asked), 0, MAX_LISTED_TASKS)
            except Unavailable as error:
                return PlaceMatches(error=str(error))
            if window.total:
                counts[state], tasks[state] = window.total, window.tasks
        if not counts and not latest.is_complete:
            return PlaceMatches(error="no match so far: still reading")
        return PlaceMatches(counts, tasks, is_whole=latest.is_complete)

    def parse(self, session: PlaceSession) -> Filter:
        """The filter in the words of a place.

        Raises:
            BadFilter: the text is no filter there.
        """
        known = session.inspector
        return parse_filter(
            self.text, known.states, self.context.clock(), known.words, self.saved.find
        )

    def ask(self) -> Change:
        """Ask for another text, and search for it."""

        def take(text: str | None) -> None:
            if text:
                self.text = text
                self.matches.clear()
                self.saved.forget()
                self.start()
                self.screen.show_change(Change.ROWS)

        self.screen.open(lambda screen: ask_text(screen, self.sessions, self.text, take))
        return Change.NOTHING

    @property
    def _rows(self) -> Iterator[MatchRow]:
        for session in self.sessions:
            matches = self.matches.get(session.number, PlaceMatches())
            if matches.error:
                yield MatchRow(session, None, matches, self.text)
            for state in matches.counts:
                yield MatchRow(session, state, matches, self.text)

    @property
    def selected(self) -> MatchRow | None:
        """The row under the cursor."""
        return next((row for row in self._rows if row.key == self.screen.cursor.key), None)

    @property
    def selected_session(self) -> PlaceSession:
        return self.selected.session if self.selected else self.session

    def reread(self) -> Change:
        self.start()
        return self.say("searched again", "")

    # What is shown

    def trail(self) -> tuple[str, ...]:
        return ("search",)

    def rows(self, width: int) -> ShownRows:
        rows = list(self._rows)
        if rows:
            self.lead(rows[0].key)  # places answer in any order
        now = self.context.clock()

        def first(row: MatchRow) -> Run:
            if now > row.matches.expires:
                return f"counted {format_age(now - row.matches.as_of)}, no newer answer", "unknown"
            return _first_cell(row)

        columns: tuple[Column[MatchRow], ...] = (
            Column("PLACE", 5, lambda row: (safe_line(row.session.name), ""), most=20),
            Column("STATE", 5, _state_cell, most=12),
            Column("MATCHES", 7, _count_cell, right=True),
            Column("FIRST", 0, first, grows=REST),
        )
        head, lines = Table(columns).lines(rows, width)
        return ShownRows(
            head, [Choice(row.key, line) for row, line in zip(rows, lines, strict=True)]
        )

    def details(self, width: int) -> Sequence[Line]:
        if (row := self.selected) is None:
            missing = [one.name for one in self.sessions if one.number not in self.matches]
            words = f"searching {', '.join(missing)} ..." if missing else self._why_nothing()
            return [((f" {safe_line(words)}", "muted"),)]
        if row.state is None:
            return [((f" {safe_line(row.matches.error)}", "unknown"),)]
        tasks = row.matches.tasks[row.state]
        limit = row.session.place.max_attempts
        columns = task_columns(row.state, width, longest=id_cells(tasks), limit=limit)
        now = self.context.clock()
        head, lines = Table(columns).lines([ListedTask(task, now) for task in tasks], width)
        left = row.matches.counts[row.state] - len(tasks)
        more: list[Line] = [((f"   +{left:,} more: Enter lists them", "muted"),)] if left else []
        return [head, *lines, *more]

    def _why_nothing(self) -> str:
        count = format_count(len(self.sessions), "place")
        return self.no_row_reason(f"no task of {count} matches")

    def rows_frame(self) -> Frame:
        known = self.matches.values()
        total = Figure(sum(matches.total for matches in known), is_exact=self._is_whole).text()
        places = sum(bool(matches.total) for matches in known)
        amount = f"{total} in {format_count(places, 'place')}"
        return Frame(f"Search {safe_line(self.text)}", "/", amount)

    @property
    def _is_whole(self) -> bool:
        """All places are searched, and all their tasks."""
        known, now = self.matches.values(), self.context.clock()
        return len(known) == len(self.sessions) and all(
            matches.is_whole and not matches.error and now <= matches.expires for matches in known
        )

    def details_frame(self, below: int) -> Frame:
        row = self.selected
        if row is None or row.state is None:
            return Frame("tasks")
        return Frame(f"{safe_line(row.session.name)}: {_word_of(row)}")

    def next_step(self, width: int) -> Line:
        if self.selected is None or self.selected.state is None:
            return next_line("/", "searches for another text", "", width)
        return next_line("Enter", "lists these tasks, for plans", "", width)


def ask_text(
    screen: BaseScreen,
    sessions: Sequence[PlaceSession],
    text: str,
    take: Callable[[str | None], None],
) -> None:
    """Ask what to search for in all places; `take` gets "" or None if the operator cancels."""
    problem = partial(filter_problem, sessions)
    screen.app.push_screen(AskScreen("search all places: text or filter", text, problem), take)


def filter_problem(sessions: Sequence[PlaceSession], text: str) -> str:
    """What is wrong with a filter, if no place can use it; "" if one can. Saved filters are read
    when the search begins, so that here any name is taken for one."""
    problems = []
    for known in (session.inspector for session in sessions):
        try:
            parse_filter(text, known.states, 0.0, known.words, lambda name: "saved")
        except BadFilter as error:
            problems.append(error.message)
        else:
            return ""
    return problems[0]


def _word_of(row: MatchRow) -> str:
    assert row.state is not None
    return state_name(row.session.inspector.states.get(row.state, row.state))


def _state_cell(row: MatchRow) -> Run:
    return ("", "") if row.state is None else (_word_of(row), "strong")


def _count_cell(row: MatchRow) -> Run:
    if row.state is None:
        return UNKNOWN, "unknown"
    count, text = row.matches.counts[row.state], "" if row.matches.is_whole else "+"
    return f"{count:,}{text}", ""


def _first_cell(row: MatchRow) -> Run:
    if row.state is None:
        return safe_line(row.matches.error), "unknown"
    first, *_ = row.matches.tasks[row.state]
    return safe_line(matching_text(first, row.text)), "muted"


def matching_text(task: Task, text: str) -> str:
    """What a list shows of a task: a field with a word of the search, else its error."""
    fields = (task.error, task.description, *task.recipients, task.sender, task.destination)
    words = [word.casefold() for word in text.split()]
    matching = (field for field in fields if any(word in field.casefold() for word in words))
    return next(matching, task.error or task.description or task.id)


make = RowMaker[SearchParts, Change](keys.SEARCH, Change.NOTHING)
own, key = make.own, make.key


def _open(parts: SearchParts) -> Change:
    row = parts.selected
    assert row is not None  # else it is refused
    target = Target(keys.LIST, row.session.number, row.state, filter=parts.text)
    parts.screen.go(target)
    return Change.NOTHING


def _why_not_open(parts: SearchParts) -> str:
    row = parts.selected
    if row is None:
        return parts.no_row_reason("nothing to open")
    return "this place is not searched" if row.state is None else ""


ROWS: tuple[KeyRow[SearchParts, Change], ...] = (
    *make.moves(lambda parts, how: parts.move(how)),
    own("open | enter | Enter | tasks | View | list the tasks", _open, refusal=_why_not_open),
    own("search | slash | / | search | View | search for another text", SearchParts.ask),
    KeyRow(key("pane(1)"), lambda parts: parts.screen.switch_pane()),
    KeyRow(key("reread"), SearchParts.reread),
    *make.views(),
    make.goes(key("operations"), Target(keys.OPERATIONS)),
    *make.ends(),
)


class SearchScreen(RowsScreen):
    """The matches of all places."""

    KIND = keys.SEARCH
    ROWS = ROWS
    BINDINGS = row_bindings(ROWS)
    parts: SearchParts

    def __init__(
        self,
        session: PlaceSession,
        context: ConsoleContext,
        sessions: Sequence[PlaceSession],
        text: str,
    ) -> None:
        super().__init__()
        self.panes = ListPanes(page_keys_scroll=True)
        self.parts = SearchParts(session, context, self, sessions, text)
