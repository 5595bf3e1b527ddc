"""`mta ages`: how old the waiting mail is, by destination or sender, as qshape prints it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

from engine.formats.base.format import Setup
from engine.index import age_table
from engine.index.age_table import BOUNDS_MINUTES, NO_AGES, AgeRow, Ages
from engine.index.filter_language import ACCOUNT_FIELD
from engine.model import State, state_words
from engine.system.command_errors import EX_USAGE, fail, print_error
from engine.text.safe import safe_line, state_name
from tui.cli.print.groups import state_query
from tui.cli.setup.one_look import scan_for, scan_place
from tui.cli.setup.output import Answer
from tui.cli.setup.places import open_places
from tui.session.place_session import PlaceSession
from tui.text.lines import cells_of

LINE_CELLS, MIN_NAME_CELLS = 80, 18
"""The width of a table, which only very large numbers exceed, and the least of its names."""


def ages(setup: Setup, place: str | None, *, by: str, state: str, filter: str) -> Answer:
    """Print the open recipients by the age of their mail and their domain, by another key the
    mails; pending ones, or those in another state."""
    if by not in age_table.GROUPINGS:
        known = ", ".join(age_table.GROUPINGS)
        fail(EX_USAGE, f"--by {safe_line(by)}: expected one of {known}")
    opened = open_places(setup, [place] if place else [])[0]

    async def ask(session: PlaceSession) -> tuple[str, Ages]:
        query = state_query(session, state, filter)
        known, now = session.inspector, session.clock()
        if not state:
            query = query._replace(state=State.PENDING)
        count = partial(age_table.query_ages, query=query, by=by, now=now, most=-1)
        counted = await session.inspector.tallies.ask(("all ages", query, by), count, NO_AGES)
        pending = state_words(State.PENDING, known.states, known.words)
        # One word for all, where the server has several.
        return state or (pending[0] if len(pending) == 1 else str(State.PENDING)), counted

    word, table = scan_place(opened, ask, scan_for(filter, by))
    if by == ACCOUNT_FIELD and (unread := opened.unread_accounts()):
        print_error(safe_line(unread))
    return Answer(lambda: _values(word, table), lambda: table_lines(word, table))


def _values(word: str, table: Ages) -> Mapping[str, object]:
    return {
        "state": word,
        "by": table.by,
        "unit": table.unit,
        "bounds": list(BOUNDS_MINUTES),
        "rows": {row.name: list(row.counts) for row in _sorted(table)},
        "total": list(table.total.counts),
        "unknown": table.total.unknown,
    }


def _sorted(table: Ages) -> list[AgeRow]:
    return sorted(table.rows, key=lambda row: (-row.total, len(row.name), row.name))


def table_lines(word: str, table: Ages) -> Iterator[str]:
    """The table as qshape prints it: the total, then the rows by count and length of name. Its
    first line begins with the state and what is counted."""
    heads = ["T", *map(str, BOUNDS_MINUTES), f"{BOUNDS_MINUTES[-1]}+"]
    totals = (table.total.total, *table.total.counts)
    longest = (max(len(head), len(str(total))) for head, total in zip(heads, totals, strict=True))
    widths = [length + 1 if length > 2 else 3 for length in longest]
    room = max(MIN_NAME_CELLS, LINE_CELLS - sum(widths))

    def line(name: str, values: Iterator[object]) -> str:
        while cells_of(name) > room:
            name = f"+{name[2:]}"
        cells = "".join(f"{value:>{width}}" for value, width in zip(values, widths, strict=True))
        return f"{' ' * (room - cells_of(name))}{name}{cells}"

    yield line(f"{state_name(word)}, {table.unit}", iter(heads))
    for row in (table.total, *_sorted(table)):
        yield line(safe_line(row.name) or "(none)", iter((row.total, *row.counts)))
