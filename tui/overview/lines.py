"""Every queue on one line, and how the overview divides its screen, from values alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from rich.cells import cell_len

from engine.locks.token_buckets import Left
from engine.logs.log_filter import WARN, rank_of
from engine.logs.log_tail import LogLine
from engine.model import State, counted_by_words
from engine.monitor.alerts import Level
from engine.monitor.forecast import agreed
from engine.monitor.throughput import Drain, Rates, Trend
from engine.policy import at
from engine.text.safe import shown
from tui.format import present
from tui.format.human import format_count
from tui.format.present import Line, Run
from tui.format.table import MARGIN, UNKNOWN, names, spark
from tui.session.place_session import PlaceSession

CELLS = 9
"""Cells of a sparkline on the reference screen."""


class PlaceLine(NamedTuple):
    """What there is to say of one place on one line."""

    number: int
    """Which of the places it is, from 1."""
    name: str
    """As the operator gave it."""
    words: Mapping[State, str] = {}
    """The store's own words for its states; empty until it is open."""
    counts: Mapping[State, int] = {}
    complete: bool = False
    """Whether everything was counted once."""
    unavailable: str = ""
    """Why it cannot be read; "" when it can."""
    due: int | None = None
    """How many of its pending tasks are due; None when that is not known."""
    oldest: float | None = None
    """When its oldest pending task was created, in epoch seconds UTC; None: nobody waits, or it is
    not known."""
    rates: Rates | None = None
    drain: Drain = Drain(Trend.UNKNOWN)
    spark: tuple[float | None, ...] = ()
    """What waited in each part of the last ten minutes; None where nothing was seen."""
    grave: str = ""
    """How urgent its most urgent alert is; "" where there is none."""
    own: Mapping[str, int] = {}
    """`counts` by all of the store's own words, also those finer than a state; empty for a moment
    in the past, of which only the states are recorded."""
    finer: Sequence[str] = ()
    """Those of the words that are finer than a state."""


def seen(live: PlaceSession, now: float, cells: int) -> PlaceLine:
    """A place as it is known now, with so many cells of its last ten minutes."""
    latest, waiting = live.inspector.latest, live.standing
    known = latest.complete and not latest.unavailable
    return PlaceLine(
        live.number,
        live.place.name,
        live.inspector.states,
        latest.counts,
        latest.complete,
        latest.unavailable,
        waiting.due if known and waiting is not None else None,
        waiting.oldest if known and waiting is not None else None,
        live.flow.rates(now) if known else None,
        agreed(live.drain(now), live.forecasts()) if known else Drain(Trend.UNKNOWN),
        live.flow.spark(now, cells),
        live.alerts[0].level if live.alerts else "",
        counted_by_words(latest.counts, latest.words, live.inspector.states, live.inspector.words),
        tuple(live.inspector.words),
    )


Cell: TypeAlias = Callable[[PlaceLine, float], Run]


class PlaceColumn(NamedTuple):
    """A column of the table of queues."""

    title: str
    width: int
    cell: Cell
    state: State | None = None
    """Whose tasks it counts: a store that has no such state has no such column."""
    least: int = 0
    """Cells that a screen must have for it."""
    finer: bool = False
    """Whether it is only for stores with words that are finer than a state."""


def _counted(state: State, width: int) -> Cell:
    def cell(queue: PlaceLine, now: float) -> Run:
        if state not in queue.words and queue.words:
            return "", ""
        word = queue.words.get(state, "")
        number = queue.own.get(word, queue.counts.get(state, 0))
        return _number(queue, number, width), "bad" if state is State.DEAD and number else ""

    return cell


def _number(queue: PlaceLine, number: int, width: int) -> str:
    more = "" if queue.complete else "+"
    return format_count(number, width - len(more)) + more


def _finer(queue: PlaceLine, now: float) -> Run:
    """Tasks with a word that is finer than their state: those that failed, and are tried again."""
    if not queue.finer:
        return "", ""
    number = sum(queue.own.get(word, 0) for word in queue.finer)
    return _number(queue, number, 6), "warning" if number else ""


def _retry(queue: PlaceLine, now: float) -> Run:
    if queue.due is None or not queue.complete:
        return UNKNOWN
    return format_count(max(0, queue.counts.get(State.PENDING, 0) - queue.due), 5), ""


def _oldest(queue: PlaceLine, now: float) -> Run:
    if queue.oldest is not None:
        return present.span(now - queue.oldest), ""
    nobody = queue.due is not None and not queue.counts.get(State.PENDING, 0)
    return ("-", "") if nobody else UNKNOWN


def _rate(way: Callable[[Rates], float]) -> Cell:
    return lambda queue, now: UNKNOWN if queue.rates is None else (rate(way(queue.rates)), "")


def rate(per_second: float) -> str:
    """So many a second in at most five cells: `0.0`, `9.4`, `412`, `12k`."""
    return f"{per_second:.1f}" if per_second < 100 else format_count(int(per_second), 5)


def _drain(queue: PlaceLine, now: float) -> Run:
    return queue.drain.words, _LOOKS.get(queue.drain.course, "")


_LOOKS = {Trend.GROWS: "warning", Trend.STALLED: "bad", Trend.UNKNOWN: "unknown"}


def _spark(queue: PlaceLine, now: float) -> Run:
    return spark(queue.spark), ""


COLUMNS = (
    PlaceColumn("PEND", 6, _counted(State.PENDING, 6), State.PENDING, 14),
    PlaceColumn("WORK", 4, _counted(State.ACTIVE, 4), State.ACTIVE, 60),
    PlaceColumn("RETRY", 5, _retry, State.PENDING, 70),
    PlaceColumn("FAILED", 6, _finer, None, 80, finer=True),
    PlaceColumn("DLQ", 5, _counted(State.DEAD, 5), State.DEAD, 26),
    PlaceColumn("HELD", 4, _counted(State.HELD, 4), State.HELD, 75),
    PlaceColumn("OLDEST", 6, _oldest, State.PENDING, 60),
    PlaceColumn("IN/s", 5, _rate(lambda rates: rates.inward), None, 80),
    PlaceColumn("OUT/s", 5, _rate(lambda rates: rates.outward), None, 70),
    PlaceColumn("DRAIN", 7, _drain, None, 60),
)
"""Between the name and the sparkline, in their order."""

SPARK_LEAST = 80


REASON = 20
"""Cells that are kept for why a queue cannot be read."""


class OverviewLayout(NamedTuple):
    """Which columns there are on a screen, and how wide the others are."""

    name: int
    columns: tuple[PlaceColumn, ...]
    spark: int


def shape(queues: Sequence[PlaceLine], width: int) -> OverviewLayout:
    """The columns that fit into so many cells, and that at least one store has."""
    known = [queue.words for queue in queues if queue.words]
    columns = tuple(
        column
        for column in COLUMNS
        if width >= column.least
        and (not known or column.state is None or any(column.state in words for words in known))
        and (not column.finer or any(queue.finer for queue in queues))
    )
    rest = width - MARGIN - sum(column.width + 1 for column in columns)
    line = 0 if width < SPARK_LEAST else CELLS if width < 95 else 2 * CELLS
    return OverviewLayout(max(4, min(40, rest - line - 1 if line else rest)), columns, line)


def head(queues: Sequence[PlaceLine], form: OverviewLayout, width: int) -> Line:
    """The titles of the columns; a state's by the stores' own word, where they have one, and it
    fits."""
    titles = [present.fit(_title(queues, c), c.width, right=True) for c in form.columns]
    last = [present.fit("LAST 10m", form.spark)] if form.spark else []
    text = " " * MARGIN + " ".join([present.fit("QUEUE", form.name), *titles, *last])
    return ((present.fit(text, width), "title"),)


def _title(queues: Sequence[PlaceLine], column: PlaceColumn) -> str:
    state = column.state
    if column.finer:
        names = {word for queue in queues for word in queue.finer}
        return shown(names.pop()).upper()[: column.width] if len(names) == 1 else column.title
    if column.title in ("RETRY", "OLDEST") or state is None:
        return column.title
    own = {queue.words[state] for queue in queues if state in queue.words}
    if len(own) != 1:
        return column.title
    (word,) = own
    return shown(word).upper() if cell_len(shown(word)) <= column.width else column.title


def _why(queue: PlaceLine) -> str:
    """Why a queue cannot be read, without the path that the line begins with anyway."""
    within = queue.unavailable.removeprefix(queue.name)
    return within.lstrip("/: ") if within != queue.unavailable else within


_GRAVE = {Level.CRIT: "bad", Level.WARN: "warning", "": ""}


def row(queue: PlaceLine, name: str, form: OverviewLayout, now: float, width: int) -> Line:
    """A queue on its line; one that cannot be read has the reason there."""
    sign = "?" if queue.unavailable else "!" if queue.grave else " "
    lead: Line = (
        (" ", ""),
        (f"{sign} ", _GRAVE.get(queue.grave, "unknown")),
        (present.fit_end(name, form.name) + " ", "" if queue.unavailable else "strong"),
    )
    if queue.unavailable:
        asked = [c for c in form.columns if c.state is not None][:4]
        cells = [(present.fit("?", c.width, right=True) + " ", "unknown") for c in asked]
        # On a narrow screen the reason says more than one unknown after the other.
        while cells and width - present.width_of((*lead, *cells)) < REASON:
            cells.pop()
        return present.cut((*lead, *cells, (shown(_why(queue)), "unknown")), width)
    runs: list[Run] = []
    for column in form.columns:
        text, look = column.cell(queue, now)
        runs += [(present.fit(text, column.width, right=True), look), (" ", "")]
    tail = [_spark(queue, now)] if form.spark else []
    return present.cut(present.merged([*lead, *(runs if tail else runs[:-1]), *tail]), width)


def table(queues: Sequence[PlaceLine], now: float, width: int) -> tuple[Line, list[Line]]:
    """The head of the table, and a line for each queue in the order given."""
    form = shape(queues, width)
    called = names([queue.name for queue in queues])
    rows = [row(q, name, form, now, width) for q, name in zip(queues, called, strict=True)]
    return head(queues, form, width), rows


# What else stands on it


def tokens_line(tokens: Sequence[Left] | str, width: int) -> Line:
    """What may still be done at once, and when there is more; by the clock, so that it stands
    still."""
    if isinstance(tokens, str):
        return present.cut(((" tokens  ", "title"), (f"? {shown(tokens)}", "unknown")), width)
    if not tokens:
        return present.cut(((" tokens  ", "title"), ("nothing is limited here", "dim")), width)
    parts: list[Line] = [((" tokens  ", "title"),)]
    for left in tokens:
        name = shown(left.name) if left.name else "all kinds"
        more = "" if left.next is None else f", next {at(left.next)[11:]}"
        more = ", paused" if left.paused else more
        look = "" if left.tokens else "warning"
        parts.append(((f"{name} {left.tokens} of {left.burst}{more}   ", look),))
    return present.cut(present.whole_ones(parts, width), width)


def warnings(logs: Sequence[tuple[str, Sequence[LogLine]]], most: int) -> list[tuple[str, LogLine]]:
    """The last lines of some places' logs that warn, each with its place's name, in their order."""
    found: list[tuple[float, str, LogLine]] = []
    for name, log in logs:
        when = 0.0
        some = []
        for line in log:
            when = when if line.when is None else line.when
            if rank_of(line.level) >= WARN:
                some.append((when, name, line))
        found += some[-most:]
    found.sort(key=lambda item: item[0])
    return [(name, line) for _, name, line in found[-most:]] if most else []


def warning_lines(
    logs: Sequence[tuple[str, Sequence[LogLine]]], width: int, height: int
) -> list[Line]:
    """The same below a heading, in so many lines."""
    if height < 2:
        return []
    found = warnings(logs, height - 1)
    lines = [present.heading("last warnings of the logs", width)]
    for name, line in found:
        text = f"{name}  {line.text}" if len(logs) > 1 else line.text
        lines.append(present.log_line(line.when, line.level, present.brief(text), width))
    return lines if found else [*lines, ((" none since the console looks", "dim"),)]


class Frame(NamedTuple):
    """How many lines each part of the overview gets; 0: it is not there."""

    alerts: int = 0
    rule: int = 0
    queues: int = 0
    """With the line of titles."""
    ages: int = 0
    """With heading and titles."""
    forecast: int = 0
    tokens: int = 0
    ways: int = 0
    """The transports."""
    log: int = 0
    """With its heading."""
    word: int = 0
    hints: int = 0
    wide: bool = False
    """Whether there is room for something beside the queues and the age table."""


LOW, HIGH, WALL = 15, 30, 50
"""Lines beyond which a screen shows more than queues; from which on transports, and everything."""
WIDE = 120
"""Cells from which on panes stand beside each other."""
AGES = 5
"""Lines below which an age table says nothing: heading, titles, the total, a name, how to read."""
NAMING = AGES + 2
"""Lines in which it names two, and counts the others; the log gives way for that."""
SENTENCES = 3
"""Lines that what is to be expected takes in full."""
MOST_AGES = 14
"""Beyond these, what is left over goes to the log."""


def frame(width: int, height: int, queues: int, limited: bool) -> Frame:
    """Who gets how many lines of a screen with so many queues; `limited`: there are tokens."""
    if width <= present.NARROW or height <= LOW:
        return _small(height)
    rest = height - 1
    alerts = 2 if height < 24 else 3 if height < HIGH else 6
    hints, word, rule = 2, 1, 1
    rest -= alerts + hints + word + rule
    tokens = int(limited and height >= 20)
    log = 0 if height < 20 else 3 if height < 24 else 4
    rest -= tokens + log
    ways = 0 if height < HIGH else 6 if height < WALL else 10
    rest -= ways
    listed = 1 + min(max(queues, 1), max(1, rest - AGES - 1))
    rest -= listed
    # In one line, or a line for each sentence; the age table goes before them.
    forecast = 0 if rest <= AGES else SENTENCES if height >= HIGH and rest > AGES + SENTENCES else 1
    rest -= forecast
    ages = min(rest, MOST_AGES)
    if AGES <= ages < NAMING:
        given = min(NAMING - ages, max(0, log - 2))
        ages, log, rest = ages + given, log - given, rest + given
    ages = ages if ages >= AGES else 0
    spare = rest - ages
    # What is left over goes to the log: there it is never empty for long.
    return Frame(
        alerts,
        rule,
        listed if log else listed + spare,
        ages,
        forecast,
        tokens,
        ways,
        log + spare if log else 0,
        word,
        hints,
        width >= WIDE and height >= HIGH,
    )


def _small(height: int) -> Frame:
    """Queues, and of the rest what fits: alerts in one line first."""
    rest = height - 1
    alerts = 3 if rest >= 14 else int(rest >= 2)
    word, hints = int(rest >= 5), int(rest >= 6)
    return Frame(alerts, 0, max(0, rest - alerts - word - hints), word=word, hints=hints)


def told(queue: PlaceLine) -> str:
    """A queue in one sentence, for the line that speaks."""
    if queue.unavailable:
        return queue.unavailable
    return _COURSES[queue.drain.course] if queue.complete else "being counted"


_COURSES = {
    Trend.DRAINS: "drains",
    Trend.GROWS: "grows",
    Trend.EMPTY: "nothing waits",
    Trend.STEADY: "neither grows nor drains",
    Trend.STALLED: "stalled: tasks are due, and none is done",
    Trend.UNKNOWN: "too early to say how it goes",
}


def left_width(width: int) -> int:
    """Cells of the left one of two panes."""
    return width * 2 // 3  # of 120 the 80 that a narrower screen has


def as_row(queue: PlaceLine, now: float) -> dict[str, object]:
    """The same for programs: times in seconds, rates a second; None is what is not known."""
    known = bool(queue.words) and not queue.unavailable
    counts = queue.own or {word: queue.counts.get(state, 0) for state, word in queue.words.items()}
    return {
        "place": queue.name,
        "unavailable": queue.unavailable,
        "tasks": counts if known else None,
        "complete": queue.complete,
        "due": queue.due,
        "oldest_pending_age": None if queue.oldest is None else round(now - queue.oldest, 1),
        "in_per_second": None if queue.rates is None else round(queue.rates.inward, 3),
        "out_per_second": None if queue.rates is None else round(queue.rates.outward, 3),
        "course": str(queue.drain.course),
        "drain_seconds": queue.drain.seconds,
    }
