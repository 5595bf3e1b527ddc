"""Overview table: one line per place, columns by width."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import product
from typing import TypeAlias

from rich.cells import cell_len

from engine.locks.token_buckets import BucketState
from engine.logs.log_filter import INFO, LEVEL_RANKS, WARN
from engine.logs.log_line import LogLine
from engine.logs.task_events import EventKind, parse_event
from engine.model import State, count_by_words
from engine.monitor.alerts import Level, needs_attention
from engine.monitor.forecast import Forecast, drain_with_rate_limit
from engine.monitor.throughput import RATE_WINDOW_SECONDS, Drain, Growth, Rates, Trend
from engine.text.figure import UNKNOWN, Figure
from engine.text.figures import fit_count, format_rate
from engine.text.safe import safe_line, state_name
from engine.text.times import format_time
from engine.values import NamedTuple
from tui.session.place_session import PlaceSession
from tui.text.glyphs import MORE
from tui.text.graphs import braille_line, resample
from tui.text.lines import (
    MARGIN_CELLS,
    UNKNOWN_RUN,
    Line,
    Run,
    cut_line,
    fit_text,
    fit_text_end,
    merge_runs,
    parts_that_fit,
    width_of,
)
from tui.text.log_line import log_line, shorten_ids
from tui.text.table import short_names
from tui.text.task_row import time_fields
from tui.text.times import format_minutes

SPARKLINE_CELLS, MIN_SPARKLINE_CELLS, SHORT_SPARKLINE_CELLS = 9, 8, 4
"""Width of the sparkline at 80x24, the least for its title, and before IN/s is dropped."""


class QueuePart(NamedTuple):
    """One queue of a server."""

    name: str
    counts: Mapping[State, int]
    oldest: float | None
    """Creation time of its oldest pending task, epoch seconds UTC; None if there is none, or
    unknown."""
    outward: float | None
    """Tasks per second that ended; None if unknown."""
    unknown: str = ""
    """Why nothing is known of it; "" if it is."""


class PlaceLine(NamedTuple):
    """Values of one place for its line in the table."""

    number: int
    """Number of the place, from 1."""
    name: str
    """Path or URL as the operator gave it."""
    words: Mapping[State, str] = {}
    """The store's own words for its states; empty until it is open."""
    counts: Mapping[State, int] = {}
    complete: bool = False
    """True if all tasks were counted once."""
    unavailable: str = ""
    """Why the place cannot be read; "" if it can."""
    due: int | None = None
    """Number of pending tasks that are due; None if unknown."""
    oldest: float | None = None
    """Creation time of the oldest pending task in epoch seconds UTC; None if there is none, or
    unknown."""
    rates: Rates | None = None
    drain: Drain = Drain(Trend.UNKNOWN)
    growth: Growth | None = None
    """Growth of the pending tasks in the last minute."""
    spark: tuple[float | None, ...] = ()
    """Pending tasks in each part of the last ten minutes; None for a part without data."""
    alert_level: str = ""
    """Level of the most urgent alert; "" without alerts."""
    word_counts: Mapping[str, int] = {}
    """Counts by all of the store's own words, including those finer than a state."""
    fine_words: Sequence[str] = ()
    """The words that are finer than a state."""
    parts: tuple[QueuePart, ...] = ()
    """The queues of a server."""
    is_part: bool = False
    """True for one of those."""
    gone_failures: int = 0
    """Failures of the last tasks that left the store; they count as dead ones."""


def live_line(
    session: PlaceSession, now: float, cells: int, forecasts: Sequence[Forecast] | None = None
) -> PlaceLine:
    """A place as known now, with a sparkline of `cells` cells for the last ten minutes. `forecasts`
    are those of the place, if the caller has them."""
    latest, waiting, drain = session.inspector.latest, session.backlog, session.estimate_drain(now)
    forecasts = session.forecasts() if forecasts is None else forecasts
    known = latest.is_complete and not latest.unavailable
    return PlaceLine(
        session.number,
        session.place.name,
        session.inspector.states,
        counts=latest.counts,
        complete=latest.is_counted,
        unavailable=latest.unavailable,
        due=waiting.due if known and waiting is not None else None,
        oldest=waiting.oldest if known and waiting is not None else None,
        rates=session.flow.rates(now) if known else None,
        drain=drain_with_rate_limit(drain, forecasts) if known else Drain(Trend.UNKNOWN),
        growth=session.flow.growth(State.PENDING, now, RATE_WINDOW_SECONDS),
        spark=session.flow.sparkline(now, cells),
        alert_level=session.alerts[0].level if needs_attention(session.alerts) else "",
        word_counts=count_by_words(
            latest.counts, latest.words, session.inspector.states, session.inspector.words
        ),
        fine_words=tuple(session.inspector.words),
        parts=_parts_of(session) if known else (),
        gone_failures=sum(session.readings.queue_figures.gone_failures.values()),
    )


def _parts_of(session: PlaceSession) -> tuple[QueuePart, ...]:
    """The queues of a server, those with the most dead and pending tasks first, each with its
    oldest task from the index and its rate from the jobs that are kept."""
    figures = session.readings.queue_figures
    known = ((one.kind, one.per_minute) for one in figures.kinds or ())
    rates = {kind: per_minute / 60 for kind, per_minute in known if per_minute is not None}
    oldest = {safe_line(kind): when for kind, when in session.oldest_by_kind.items()}
    parts = (
        QueuePart(name, counts, oldest.get(name), rates.get(name))
        for name, counts in figures.queues
    )

    def rank(part: QueuePart) -> tuple[int, int, str]:
        counts = part.counts
        return -counts.get(State.DEAD, 0), -counts.get(State.PENDING, 0), part.name

    return tuple(sorted(parts, key=rank))


def count_rows(queues: Iterable[PlaceLine]) -> int:
    """The lines of places and of their queues."""
    return sum(1 + min(MAX_PARTS, len(queue.parts)) for queue in queues)


MAX_PARTS = 20
"""Queues of a server that have a line."""

SEPARATORS = "-_:./"
"""Ends of what names of queues have in common: a long name is shown without it."""


def part_lines(
    queues: Sequence[PlaceLine], number: int, now: float, width: int
) -> Iterator[tuple[str, Line]]:
    """Yield the name and the line of each queue of a place, in the columns of all places."""
    form, place = table_layout(queues, width), queues[number]
    shared = _shared_start([part.name for part in place.parts[:MAX_PARTS]])
    for part in place.parts[:MAX_PARTS]:
        line = PlaceLine(
            place.number,
            part.name,
            place.words,
            part.counts,
            complete=True,
            unavailable=part.unknown,
            due=0,  # its column is empty, and a queue without pending tasks has no oldest one
            oldest=part.oldest,
            rates=None if part.outward is None else Rates(0.0, part.outward),
            is_part=True,
        )
        is_whole = not shared or cell_len(part.name) < form.name
        name = part.name if is_whole else f"{MORE}{part.name.removeprefix(shared)}"
        yield part.name, place_row(line, f" {name}", form, now, width)


def _shared_start(names: Sequence[str]) -> str:
    """The longest beginning that all names have and that ends with a separator; "" if none."""
    starts = (names[0][:at] for at in range(len(names[0]), 0, -1)) if len(names) > 1 else ()
    known = (start for start in starts if start[-1] in SEPARATORS and start not in names)
    return next((start for start in known if all(name.startswith(start) for name in names)), "")


Cell: TypeAlias = Callable[[PlaceLine, float], Run]


class PlaceColumn(NamedTuple):
    """A column of the table."""

    title: str
    width: int
    cell: Cell
    state: State | None = None
    """The state that it counts; hidden if no store has it."""
    min_width: int = 0
    """Minimum screen width in cells."""
    finer: bool = False
    """Counts a word that is a store's own (`_column_word`); hidden if there is none."""


def _state_cell(state: State, width: int) -> Cell:
    def cell(queue: PlaceLine, now: float) -> Run:
        if state not in queue.words and queue.words:
            return "", ""
        number = queue.counts.get(state, 0)
        if len(queue.fine_words) == 1:  # which has a column of its own
            number = queue.word_counts.get(queue.words.get(state, ""), number)
        number += queue.gone_failures * (state is State.DEAD)
        return _count_run(queue, number, width, "")

    return cell


def _count_run(queue: PlaceLine, number: int, width: int, style: str) -> Run:
    """A count; with + while tasks are still read, but then no task is not known to be none."""
    figure = Figure(number, queue.complete)
    text = figure.text(form=lambda count: fit_count(int(count), width - (not queue.complete)))
    return text, "unknown" if text == UNKNOWN else style if number else "muted"


@cache  # equal columns have the same cell
def _word_cell(word: str) -> Cell:
    """The cell of the tasks with a word that is finer than a state; empty where it is a state's:
    those tasks are in the column of the state, and a column has one meaning."""

    def cell(queue: PlaceLine, now: float) -> Run:
        if word not in queue.fine_words or word not in queue.word_counts:
            return "", ""
        number = queue.word_counts[word]
        return _count_run(queue, number, 6, "warn")

    return cell


def _column_word(queues: Sequence[PlaceLine]) -> str:
    """The word with a column of its own: a store's only finer one; "" if none, or several."""
    words = {queue.fine_words[0] for queue in queues if len(queue.fine_words) == 1}
    return words.pop() if len(words) == 1 else ""


def _with_words(column: PlaceColumn, queues: Sequence[PlaceLine], word: str) -> PlaceColumn:
    """A column as it is for the words of the present stores."""
    if column.finer:
        return column._replace(cell=_word_cell(word))
    if column.state is not State.DEAD:
        return column
    words = {queue.words[State.DEAD] for queue in queues if State.DEAD in queue.words}
    width = cell_len(words.pop()) if len(words) == 1 else column.width
    return column._replace(width=max(column.width, min(width, MAX_TITLE_CELLS)))


def _retry_cell(queue: PlaceLine, now: float) -> Run:
    if queue.due is None or not queue.complete:
        return UNKNOWN_RUN
    return fit_count(max(0, queue.counts.get(State.PENDING, 0) - queue.due), 5), ""


def oldest_cell(queue: PlaceLine, now: float) -> Run:
    """The age of the oldest pending task."""
    if queue.oldest is not None:
        return format_minutes(now - queue.oldest), ""
    is_empty = queue.due is not None and not queue.counts.get(State.PENDING, 0)
    return ("-", "") if is_empty else UNKNOWN_RUN


def _rate_cell(rate_of: Callable[[Rates], float], width: int = 5) -> Cell:
    def cell(queue: PlaceLine, now: float) -> Run:
        if queue.rates is None:
            return UNKNOWN_RUN
        text = format_rate(rate_of(queue.rates), is_titled=True)
        if len(text) > width:
            text = "<.01" if text[0] == "<" else fit_count(round(rate_of(queue.rates)), width)
        return text, "muted" if text == "0.0" else ""

    return cell


_LOOKS = {
    Trend.GROWING: "warn",
    Trend.STALLED: "error",
    Trend.UNKNOWN: "unknown",
    Trend.IDLE: "unknown",
}


def _spark_run(queue: PlaceLine, cells: int) -> Run:
    """The course of the backlog from its lowest to its highest value: it shows a direction."""
    few = cells < MIN_SPARKLINE_CELLS
    values = resample(queue.spark, 2 * cells) if few and queue.spark else queue.spark
    known = [value for value in values if value is not None]
    (line,) = braille_line(values, min(known, default=0), max(known, default=0), 1)
    return line[-cells:], "error" if queue.drain.trend is Trend.STALLED else "warn"


def _eta_text(queue: PlaceLine) -> str:
    """The time to empty; of a backlog that grows by a task a minute or more, how fast it grows."""
    more = 0.0 if queue.growth is None else queue.growth.tasks / queue.growth.seconds
    if queue.drain.trend is not Trend.GROWING or more * 60 < 1:
        return queue.drain.text
    return f"+{more * 60:.0f}/min" if more * 60 < 99.5 else f"+{fit_count(round(more), 3)}/s"


COLUMNS = (
    PlaceColumn("PEND", 6, _state_cell(State.PENDING, 6), State.PENDING, 14),
    PlaceColumn("WORK", 4, _state_cell(State.ACTIVE, 4), State.ACTIVE, 60),
    PlaceColumn("RETRY", 5, _retry_cell, State.PENDING, 70),
    PlaceColumn("FAILED", 6, _word_cell(""), None, 70, finer=True),
    PlaceColumn("DLQ", 5, _state_cell(State.DEAD, 5), State.DEAD, 26),
    PlaceColumn("HELD", 4, _state_cell(State.HELD, 4), State.HELD, 66),
    PlaceColumn("OLDEST", 6, oldest_cell, State.PENDING, 60),
    PlaceColumn("IN/s", 5, _rate_cell(lambda rates: rates.inward), None, 66),
    PlaceColumn("OUT/s", 5, _rate_cell(lambda rates: rates.outward), None, 60),
    PlaceColumn(
        "ETA", 7, lambda queue, _: (_eta_text(queue), _LOOKS.get(queue.drain.trend, "")), None, 60
    ),
)
"""The columns between name and sparkline, in order."""

SPARKLINE_MIN_WIDTH = 70

DROPPED_FIRST = ("HELD", "RETRY", "IN/s", "FAILED")
"""Columns that make room for the names of the places, the first one first. HELD stays where a
place has held tasks: without it they would be in no number."""

TIGHT_CELLS = {
    "PEND": (5, _state_cell(State.PENDING, 5)),
    "DLQ": (4, _state_cell(State.DEAD, 4)),
    "IN/s": (4, _rate_cell(lambda rates: rates.inward, 4)),
}
"""Width and cell of narrower columns, by title, where they save one from being dropped."""

MAX_TITLE_CELLS = 7
"""Cells to which a column of dead tasks grows for the store's own word."""

MIN_NAME_CELLS, MAX_NAME_CELLS = 5, 30
"""Cells for the names of the places."""

REASON_CELLS = 20
"""Cells reserved for the reason why a place cannot be read."""


class OverviewLayout(NamedTuple):
    """Visible columns, and the widths of name and sparkline in cells."""

    name: int
    columns: tuple[PlaceColumn, ...]
    spark: int


def table_layout(queues: Sequence[PlaceLine], width: int) -> OverviewLayout:
    """The columns that fit the width and that at least one store has."""
    known = [queue.words for queue in queues if queue.words]
    word = _column_word(queues)
    columns = tuple(
        column
        for column in COLUMNS
        if width >= column.min_width
        and (not known or column.state is None or any(column.state in words for words in known))
        and (not column.finer or word)
    )
    names = short_names([queue.name for queue in queues])
    name_cells = min(MAX_NAME_CELLS, max((MIN_NAME_CELLS, *map(cell_len, names))))
    is_held = any(queue.counts.get(State.HELD) for queue in queues)
    droppable = [title for title in DROPPED_FIRST if title != "HELD" or not is_held]
    is_wide = width >= SPARKLINE_MIN_WIDTH
    cells = range(SPARKLINE_CELLS, SHORT_SPARKLINE_CELLS - 1, -1)
    with_sparkline = [(spark, spark < SPARKLINE_CELLS) for spark in cells]
    for shapes in (with_sparkline,) * is_wide + ([(0, False), (0, True)],):
        for dropped, (spark, is_tight) in product(range(len(droppable) + 1), shapes):
            drops_rates_next = droppable[dropped : dropped + 1] == ["IN/s"]
            if 0 < spark < MIN_SPARKLINE_CELLS and not drops_rates_next:
                continue
            less = tuple(c for c in columns if c.title not in droppable[:dropped])
            if is_tight:
                less = tuple(_tightened(c) for c in less)
            less = tuple(_with_words(c, queues, word) for c in less)
            room = width - MARGIN_CELLS - sum(c.width + 1 for c in less)
            room -= spark + 1 if spark else 0
            if room >= name_cells:
                return OverviewLayout(name_cells, less, spark)
    return OverviewLayout(max(4, room), less, 0)


def _tightened(column: PlaceColumn) -> PlaceColumn:
    width, cell = TIGHT_CELLS.get(column.title, (column.width, column.cell))
    return column._replace(width=width, cell=cell)


def head_line(queues: Sequence[PlaceLine], form: OverviewLayout, width: int) -> Line:
    """Column titles; a state's title is the stores' own word if all agree and it fits."""
    titles = [fit_text(_title(queues, c), c.width, right=True) for c in form.columns]
    last = ["LAST 10m" if form.spark >= MIN_SPARKLINE_CELLS else "10m"] * bool(form.spark)
    text = " " * MARGIN_CELLS + " ".join([fit_text("QUEUE", form.name), *titles, *last])
    return ((fit_text(text, width), "muted"),)


def _title(queues: Sequence[PlaceLine], column: PlaceColumn) -> str:
    state = column.state
    if column.finer:
        return safe_line(_column_word(queues)).upper()[: column.width]
    if column.title in ("RETRY", "OLDEST") or state is None:
        return column.title
    words = {queue.words[state] for queue in queues if state in queue.words}
    if len(words) != 1:
        return column.title
    (word,) = words
    return safe_line(word).upper() if cell_len(safe_line(word)) <= column.width else column.title


_PART_COLUMNS = ("PEND", "WORK", "DLQ", "HELD", "OLDEST", "OUT/s")
"""The columns of one queue of a server: what comes in is not counted for each."""
_ALERT_LOOKS = {Level.CRIT: "error", Level.WARN: "warn", "": ""}


def place_row(queue: PlaceLine, name: str, form: OverviewLayout, now: float, width: int) -> Line:
    """The line of a place; its error if it cannot be read."""
    sign = UNKNOWN if queue.unavailable else "!" if queue.alert_level else " "
    fit = fit_text if queue.is_part else fit_text_end  # queues differ at their start, paths not
    lead: Line = (
        (" ", ""),
        (f"{sign} ", "unknown" if queue.unavailable else _ALERT_LOOKS[queue.alert_level]),
        (fit(name, form.name) + " ", "strong" if queue.alert_level else ""),
    )
    if queue.unavailable:
        asked = [c for c in form.columns if c.state is not None][:4]
        cells = [(fit_text(UNKNOWN, c.width, right=True) + " ", "unknown") for c in asked]
        # On a narrow screen the reason matters more than a row of question marks.
        while cells and width - width_of((*lead, *cells)) < REASON_CELLS:
            cells.pop()
        why = queue.unavailable
        if why.startswith(queue.name):  # the line already begins with the path
            why = why.removeprefix(queue.name).lstrip("/: ")
        return cut_line((*lead, *cells, (safe_line(why), "unknown")), width)
    runs: list[Run] = []
    for column in form.columns:
        is_blank = queue.is_part and column.title not in _PART_COLUMNS
        text, style = ("", "") if is_blank else column.cell(queue, now)
        runs += [(fit_text(text, column.width, right=True), style), (" ", "")]
    tail = [_spark_run(queue, form.spark)] if form.spark else []
    return cut_line(merge_runs([*lead, *(runs if tail else runs[:-1]), *tail]), width)


DrawnRow: TypeAlias = tuple[object, Line]
"""All that the line of a place was made from, and the line."""


def place_table(
    queues: Sequence[PlaceLine], now: float, width: int, drawn: dict[int, DrawnRow] | None = None
) -> tuple[Line, list[Line]]:
    """The table head, and one line per place in the given order. `drawn` keeps the lines by number
    of the place: one whose values have not changed is not made again."""
    form = table_layout(queues, width)
    names = short_names([queue.name for queue in queues])
    drawn = {} if drawn is None else drawn
    lines: list[Line] = []
    for queue, name in zip(queues, names, strict=True):
        # The only cell that changes with the time alone.
        made_from = queue, name, form, oldest_cell(queue, now)[0], width
        before, line = drawn.get(queue.number, (None, ()))
        if before != made_from:
            line = place_row(queue, name, form, now, width)
            drawn[queue.number] = made_from, line
        lines.append(line)
    return head_line(queues, form, width), lines


# Other parts


def tokens_line(tokens: Sequence[BucketState] | str, width: int) -> Line:
    """Rate limits: tokens left and the clock time of the next one, which needs no repaint each
    second."""
    if isinstance(tokens, str):
        return cut_line(((" rate limit  ", "title"), (f"? {safe_line(tokens)}", "unknown")), width)
    if not tokens:
        return cut_line(((" rate limit  ", "title"), ("none", "muted")), width)
    parts: list[Line] = [((" rate limit  ", "title"),)]
    for bucket in tokens:
        name = safe_line(bucket.name) if bucket.name else "all kinds"
        more = "" if bucket.next is None else f", next {format_time(bucket.next)[11:]}"
        more = ", paused" if bucket.paused else more
        style = "" if bucket.tokens else "warn"
        parts.append(((f"{name} {bucket.tokens} of {bucket.burst} tokens{more}   ", style),))
    return cut_line(parts_that_fit(parts, width), width)


class ShownLine(NamedTuple):
    """A line of a log as a pane shows it."""

    place: str
    line: LogLine
    """The line as it is in the log."""
    text: str
    """Its text on screen."""


def recent_warnings(
    logs: Sequence[tuple[str, Sequence[LogLine]]], most: int, level: int = WARN
) -> list[ShownLine]:
    """The latest `most` warnings of all logs in order of time, each with the name of its place; or
    the lines from another level on."""
    warnings: list[tuple[float, str, LogLine]] = []
    rank_of = LEVEL_RANKS.get
    for name, log in logs:
        numbers = [at for at, line in enumerate(log) if rank_of(line.level, INFO) >= level]
        warnings += [(_time_at(log, at), name, log[at]) for at in numbers[-2 * most :]]
    warnings.sort(key=lambda item: item[0])
    return join_failures((name, line) for _, name, line in warnings)[-most:] if most else []


def _time_at(log: Sequence[LogLine], number: int) -> float:
    """The time of a line, or of the last one before it that has one; 0 if none has."""
    times = (log[at].when for at in range(number, -1, -1))
    return next((when for when in times if when is not None), 0.0)


_AFTER_FAILURE = {EventKind.WAITS: "retry", EventKind.BURIED: "given up"}
"""What follows a failed attempt, if the line does not name the state that the task goes to."""


def join_failures(lines: Iterable[tuple[str, LogLine]]) -> list[ShownLine]:
    """Join the two lines of a failed attempt, with the error first: `ID retry: 421 try later`, `ID
    DLQ: 550 user unknown`. Other lines stay as they are."""
    joined: list[ShownLine] = []
    open_failures: dict[tuple[str, str], tuple[int, str]] = {}
    for name, line in lines:
        event = parse_event(line)
        key = (name, "" if event is None else event.id)
        if event is not None and event.what is EventKind.FAILED and event.id and event.error:
            open_failures[key] = len(joined), event.error
            joined.append(ShownLine(name, line, f"{event.id} {event.error}"))
        elif event is not None and event.what in _AFTER_FAILURE and key in open_failures:
            at, error = open_failures.pop(key)
            word = state_name(event.end) if event.end else _AFTER_FAILURE[event.what]
            joined[at] = ShownLine(name, line, f"{event.id} {word}: {error}")
        else:
            joined.append(ShownLine(name, line, line.text))
    return joined


def warning_lines(
    logs: Sequence[tuple[str, Sequence[LogLine]]], width: int, height: int, level: int = WARN
) -> list[Line]:
    """The latest warnings in `height` lines, or the latest lines from another level on."""
    warnings, several = recent_warnings(logs, height, level), len(logs) > 1
    lines = [warning_line(one.place if several else "", one, width) for one in warnings]
    return lines or [NO_WARNINGS_LINE]


NO_WARNINGS_LINE: Line = (("   none since the console started", "muted"),)


def warning_line(name: str, warning: ShownLine, width: int) -> Line:
    """A line of a log; `name` of its place, "" if there is only one."""
    text = shorten_ids(f"{name}  {warning.text}" if name else warning.text)
    return log_line(warning.line.when, warning.line.level, text, width, margin=3)


def describe_place(queue: PlaceLine) -> str:
    """One sentence about a place for the message line."""
    if queue.unavailable:
        return queue.unavailable
    if why := queue.drain.unknown:
        return f"ETA unknown: {why}"
    return _TREND_TEXTS[queue.drain.trend] if queue.complete else "counting ..."


_TREND_TEXTS = {
    Trend.DRAINING: "draining",
    Trend.GROWING: "growing",
    Trend.EMPTY: "empty",
    Trend.IDLE: "ETA unknown: nothing moved in the last minute",
    Trend.STALLED: "stalled: tasks are due, none finish",
    Trend.UNKNOWN: "collecting data ...",
}


def place_values(queue: PlaceLine, now: float) -> dict[str, object]:
    """A place for JSON output: times in seconds, rates per second, None for unknown."""
    known, eta = bool(queue.words) and not queue.unavailable, queue.drain.seconds
    counts = queue.word_counts or {
        word: queue.counts.get(state, 0) for state, word in queue.words.items()
    }
    return {
        "place": queue.name,
        "unavailable": queue.unavailable,
        "tasks": counts if known else None,
        "complete": queue.complete,
        "due": queue.due,
        "oldest_pending_age": None if queue.oldest is None else round(now - queue.oldest, 1),
        "in_per_second": None if queue.rates is None else round(queue.rates.inward, 3),
        "out_per_second": None if queue.rates is None else round(queue.rates.outward, 3),
        "course": str(queue.drain.trend),
        "stalled": queue.drain.trend is Trend.STALLED,
        "drain_seconds": queue.drain.seconds,
        "drain_unknown": queue.drain.unknown or None,
        "drain_is_least": queue.drain.is_least,
        **time_fields("drained", None if eta is None else now + eta),
    }
