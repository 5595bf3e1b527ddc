"""How things look, as pure functions: tasks to cells, seconds to words, states to lines.

A line is a tuple of runs; a run is a text and the name of a look (`LOOKS`), which a theme fills in.
All foreign text passes through `engine.text.safe.shown` here, so that no widget has to do it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from rich.cells import cell_len, set_cell_size

from engine.model import LockEvidence, Problem, State, Task, Verdict
from engine.monitor.throughput import Rates
from engine.text.decode import YEAR_10000
from engine.text.safe import shown
from tui.format.glyphs import CURSOR, FALLING, GONE, MARK, MORE, RISING
from tui.format.keys import Hint

Run: TypeAlias = tuple[str, str]
"""A text, free of control characters, and the look it has."""

Line: TypeAlias = tuple[Run, ...]
"""One line of the screen."""

LOOKS = (
    *("strong", "dim", "good", "warning", "bad", "unknown", "title", "rule"),
    *("cursor", "mark", "gone", "tab", "key", "grey", "armed", "stake"),
)
"""What a theme must say something about; "" is plain text."""

BLANK: Line = ()


def cells_of(text: str) -> int:
    """Cells that a text takes."""
    # The library looks each text up among those measured before; nearly all are plain.
    return len(text) if text.isascii() and text.isprintable() else cell_len(text)


def width_of(line: Line) -> int:
    """Cells that a line takes."""
    return sum([cells_of(text) for text, _ in line])


def fit(text: str, width: int, right: bool = False) -> str:
    """The text in exactly so many cells: padded, or cut with a sign that it was."""
    lacking = width - cells_of(text)
    if lacking >= 0:
        return " " * lacking + text if right else text + " " * lacking
    return set_cell_size(text, width - 1) + MORE if width > 0 else ""


def fit_end(text: str, width: int) -> str:
    """The text in exactly so many cells, keeping its end: where ids and paths differ."""
    if cells_of(text) <= width:
        return fit(text, width)
    kept = text[-(width - 1) :] if width > 1 else ""
    while kept and cells_of(kept) > width - 1:
        kept = kept[1:]
    return fit(MORE + kept, width) if width > 0 else ""


def whole_ones(parts: Iterable[Line], width: int) -> Line:
    """As many of the parts as fit whole: half a number would be another number."""
    kept: list[Run] = []
    for part in parts:
        width -= width_of(part)
        if width < 0:
            break
        kept += part
    return tuple(kept)


def join(left: Line, right: Line, width: int) -> Line:
    """One line with something at each end; what is on the left is cut first."""
    room = max(0, width - width_of(right) - 1)
    return (*cut(left, room), (" ", ""), *right)


def cut(line: Line, width: int) -> Line:
    """The line in exactly so many cells."""
    kept: list[Run] = []
    for text, look in line:
        cells = cells_of(text)
        if cells > width:
            kept.append((fit(text, width), look))
            return tuple(kept)
        kept.append((text, look))
        width -= cells
    return (*kept, (" " * width, "")) if width else tuple(kept)


# Seconds and moments


UNKNOWN = "?"
"""What is shown for a number that no calendar or clock can hold: NaN, infinity, 1e300."""


def _fits(*numbers: float) -> bool:
    """Whether these are numbers that can be shown as a time; false for NaN."""
    return all(-YEAR_10000 < number < YEAR_10000 for number in numbers)


def span(seconds: float) -> str:
    """A duration in at most six cells: `<1m`, `47m`, `2h13m`, `6d02h`, `412d`; else `?`."""
    if not _fits(seconds):
        return UNKNOWN
    minutes = int(max(0.0, seconds)) // 60
    if minutes < 60:
        return f"{minutes}m" if minutes else "<1m"
    if minutes < 24 * 60:
        return f"{minutes // 60}h{minutes % 60:02d}m"
    days, hours = divmod(minutes // 60, 24)
    return f"{days}d{hours:02d}h" if days < 100 else f"{days}d"


def ago(seconds: float) -> str:
    """How long something is past, for a sentence: "just now", "47m ago"; `?` as `span`."""
    if not _fits(seconds):
        return UNKNOWN
    return "just now" if seconds < 60 else f"{span(seconds)} ago"


def countdown(seconds: float) -> str:
    """What is left, by the second: `14:32`; `?` for what is no duration."""
    if not _fits(seconds):
        return UNKNOWN
    left = int(max(0.0, seconds) + 0.999)
    return f"{left // 60}:{left % 60:02d}"


def clock(moment: float) -> str:
    """A time of day in UTC: `03:12:07Z`; `?` for what is no time."""
    if not _fits(moment):
        return UNKNOWN
    return time.strftime("%H:%M:%SZ", time.gmtime(moment))


def moment(when: float, now: float) -> str:
    """A time in UTC, with its date unless that is today's, and how far it is from now; else `?`."""
    if not _fits(when, now):
        return UNKNOWN
    same = time.strftime("%Y%j", time.gmtime(when)) == time.strftime("%Y%j", time.gmtime(now))
    form = "%H:%M:%SZ" if same else "%Y-%m-%d %H:%M:%SZ"
    text = time.strftime(form, time.gmtime(when))
    apart = now - when
    return f"{text} ({ago(apart)})" if apart >= 0 else f"{text} (in {span(-apart)})"


def count(number: int, noun: str) -> str:
    """`1 task`, `1,204 tasks`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def rate(per_second: float) -> str:
    """So many a second: `0.0`, `9.4`, `412`; `?` for what is no rate."""
    if not _fits(per_second):
        return UNKNOWN
    return f"{per_second:.1f}" if per_second < 100 else f"{per_second:,.0f}"


def rates(known: Rates | None) -> str:
    """What comes in and goes out a second, for a title; `?` while that is not known."""
    ways = ("?", "?") if known is None else map(rate, known)
    return "  in {}/s  out {}/s".format(*ways)


# The task list

Look: TypeAlias = str
Cell: TypeAlias = Callable[[Task, float], Run]


class TaskColumn(NamedTuple):
    """One column of the task list."""

    title: str
    width: int
    cell: Cell
    right: bool = False
    end: bool = False
    """Whether the end of a text is kept when it is too long, not its beginning."""
    order: str = ""
    """What the list is ordered by when it is ordered by this column: a key of the index's orders.
    """
    ago: bool = False
    """Whether it shows how long ago what it is ordered by was: the greatest is the smallest then.
    """


def _id(task: Task, now: float) -> Run:
    return shown(task.id), "strong"


def _kind(task: Task, now: float) -> Run:
    return shown(task.kind), ""


def _destination(task: Task, now: float) -> Run:
    return shown(task.destination), ""


def _description(task: Task, now: float) -> Run:
    return shown(task.description), ""


def _error(task: Task, now: float) -> Run:
    return shown(task.error), "bad"


def _created(task: Task, now: float) -> Run:
    return (span(now - task.created) if task.created > 0 else "?", "")


def _tries(task: Task, now: float) -> Run:
    return ("?", "unknown") if task.attempts is None else (str(task.attempts), "")


def _word(task: Task, now: float) -> Run:
    return shown(task.word), "warning"


def _due(task: Task, now: float) -> Run:
    if task.due is None:
        return "?", "unknown"
    return ("ready", "good") if task.due <= now else (f"in {span(task.due - now)}", "dim")


def _working(task: Task, now: float) -> Run:
    return (span(now - task.lease.since), "") if task.lease else ("?", "unknown")


def _dead(task: Task, now: float) -> Run:
    since = task.extra.get("dead_since", "")
    return (span(now - float(since)), "") if _is_number(since) else ("?", "unknown")


def _is_number(text: str) -> bool:
    return text.isascii() and text.replace(".", "", 1).isdigit()


def _nothing(task: Task, now: float) -> Run:
    return "", ""


def _what(task: Task, now: float) -> Run:
    return (shown(task.error), "bad") if task.error else (shown(task.description), "")


WHEN: Mapping[State, tuple[str, Cell, str]] = {
    State.PENDING: ("DUE", _due, "due"),
    State.ACTIVE: ("FOR", _working, "since"),
    State.DEAD: ("DEAD", _dead, "died"),
}
"""What the column of times shows in a state: its title, its cell, and the order it stands for."""

NARROW = 60
"""Columns below which a screen is narrow: it shows less, so that nothing is cut to pieces."""

MARGIN = 3
"""Cells before the first column: cursor, mark, and whether it is noted."""

NOTED = "#"
"""The sign of a task with a note: the key that writes one."""


SHORT, SHORTEST = 14, 10
"""Cells of an id on a narrow screen, at most and at least: of one that is longer the end."""


def columns(
    state: State,
    width: int,
    destined: bool = False,
    longest: int = 0,
    worded: bool = False,
) -> tuple[TaskColumn, ...]:
    """The columns that fit: wider screens add some, and never move the others.

    `destined` is whether the tasks have destinations: not every store knows any. `longest` is how
    many cells the longest id takes; 0 where that is not known. `worded` is whether tasks have a
    word of their own that is finer than their state.
    """
    if width < NARROW:
        return _narrow(state, width)
    title, when, order = WHEN.get(state, ("", _nothing, ""))
    wide = width >= 100
    fixed: tuple[TaskColumn, ...] = (
        TaskColumn("ID", 38 if wide else _id_width(longest), _id, end=True, order="id"),
        TaskColumn("KIND", 12, _kind, order="kind"),
        TaskColumn("AGE", 6, _created, right=True, order="created", ago=True),
        TaskColumn("TRIES", 5, _tries, right=True, order="attempts"),
        TaskColumn(title, 9, when, right=True, order=order, ago=order != "due"),
    )
    if worded:
        fixed = (*fixed[:2], TaskColumn("STATE", 7, _word), *fixed[2:])
    rest = width - MARGIN - sum(column.width + 1 for column in fixed)
    if destined and rest >= 70:
        fixed = (*fixed, TaskColumn("DESTINATION", 20, _destination, end=True, order="destination"))
        rest -= 21
    if wide and rest >= 40:
        half = rest // 2
        return (
            *fixed,
            TaskColumn("DESCRIPTION", half - 1, _description, order="description"),
            TaskColumn("LAST ERROR", rest - half, _error, order="error"),
        )
    what = TaskColumn("ERROR OR DESCRIPTION", max(0, rest), _what, order="error")
    return (*fixed, what) if rest > 8 else fixed


def _id_width(longest: int) -> int:
    """Room for ids in full where they are short; of long ones the end tells them apart."""
    return SHORT if SHORTEST < longest <= SHORT else SHORTEST


def _narrow(state: State, width: int) -> tuple[TaskColumn, ...]:
    title, when, order = WHEN.get(state, ("AGE", _created, "created"))
    return (
        TaskColumn("ID", 10, _id, end=True, order="id"),
        TaskColumn(title, 9, when, right=True, order=order, ago=order != "due"),
        TaskColumn("ERROR OR DESCRIPTION", max(0, width - MARGIN - 21), _what, order="error"),
    )


def titles(
    shape: Sequence[TaskColumn], note: str, width: int, order: tuple[str, bool] = ("id", False)
) -> Line:
    """The line above the list; `note` stands at its right end.

    `order` is what the list is ordered by, and whether from the greatest down; only an order
    other than the queue's own is marked.
    """

    def title(column: TaskColumn) -> str:
        if order == ("id", False) or column.order != order[0] or not column.title:
            return column.title
        sign = FALLING if order[1] != column.ago else RISING
        return sign + column.title  # in front: the end of a title may be cut

    named = " ".join(fit(title(column), column.width, column.right) for column in shape)
    text = " " * MARGIN + named
    if note:
        text = fit(text.rstrip(), max(0, width - cells_of(note) - 1)) + " " + note
    return ((fit(text, width), "title"),)


class TaskContext(NamedTuple):
    """How a row of the list stands out."""

    cursor: bool = False
    marked: bool = False
    gone: bool = False
    """It has left since it was shown; it stays on screen for a moment and refuses actions."""
    noted: bool = False
    """Somebody wrote a note on it."""


def row(
    task: Task, shape: Sequence[TaskColumn], now: float, place: TaskContext, width: int
) -> Line:
    """A task as a line of the list."""
    margin = f"{CURSOR if place.cursor else ' '}{_sign(place)}{NOTED if place.noted else ' '}"
    cells = [_cell(task, column, now) for column in shape]
    if place.gone:
        name = fit_end(shown(task.id), shape[0].width)
        text = fit(f"{margin}{name} gone: it is not there any more", width)
        return ((text, "cursor" if place.cursor else "gone"),)
    if place.cursor:
        text = margin + " ".join(text for text, _ in cells)
        return ((fit(text, width), "cursor"),)
    runs: list[Run] = [(margin, "mark" if place.marked else "warning" if place.noted else "")]
    for text, look in cells:
        runs += [(text, "mark" if place.marked and not look else look), (" ", "")]
    return cut(merged(runs[:-1]), width)


def _sign(place: TaskContext) -> str:
    if place.gone:
        return GONE
    return MARK if place.marked else " "


def _cell(task: Task, column: TaskColumn, now: float) -> Run:
    text, look = column.cell(task, now)
    if column.end:
        return fit_end(text, column.width), look
    return fit(text, column.width, column.right), look


def merged(runs: Iterable[Run]) -> Line:
    """The same line in as few runs as can be: each one costs bytes on the wire."""
    line: list[Run] = []
    for text, look in runs:
        if line and (line[-1][1] == look or not text.strip(" ")) and look != "cursor":
            line[-1] = (line[-1][0] + text, line[-1][1])
        elif text:
            line.append((text, look))
    return tuple(line)


# Header, tabs, lock


class RowStanding(NamedTuple):
    """What the header says about a place."""

    host: str
    place: str
    tasks: int
    inward: float
    """Tasks a second that came, lately."""
    outward: float
    """Tasks a second that left, lately."""
    complete: bool
    """Whether everything was looked at once."""
    number: int = 1
    """Which of `places` it is."""
    places: int = 1


def header(about: RowStanding, width: int, narrow: bool = False) -> Line:
    """Host, place, and what comes in and goes out; on a narrow screen what the place is called."""
    if narrow:
        name = shown(about.place.rstrip("/").rpartition("/")[2] or about.place)
        return cut(((f" {name}", "strong"), (f"  {count(about.tasks, 'task')}", "")), width)
    amount = count(about.tasks, "task") + ("" if about.complete else " so far")
    which = f" ({about.number}/{about.places})" if about.places > 1 else ""
    right = f"{amount}  in {rate(about.inward)}/s  out {rate(about.outward)}/s"
    left = f" {shown(about.host)}  "
    room = max(0, width - cells_of(left) - cells_of(right) - cells_of(which) - 1)
    name = fit_end(shown(about.place), min(room, cells_of(shown(about.place))))
    return join(((left, "strong"), (name + which, "")), ((right, ""),), width)


def mode(armed_for: float, read_only: bool, now: float, narrow: bool = False) -> Line:
    """The mode and the time, for the header's right end; on a narrow screen only the mode."""
    if read_only:
        word, look = "READ ONLY", "dim"
    elif armed_for > 0:
        word, look = f"ARMED {countdown(armed_for)}", "armed"
    else:
        word, look = "OBSERVE", "dim"
    return ((f" {word} ", look),) + (() if narrow else ((" ", ""), (clock(now), "")))


def trail(host: str, environment: str, steps: Sequence[str], aside: str, width: int) -> Line:
    """Host, what is at stake there, and where one is: `mx1 PROD > /var/lib/nftban > dlq`.

    On a narrow screen only the last step; `aside` stands behind it where there is room.
    """
    names = [shown(step) for step in steps if step]
    if width < NARROW:
        name = names[-1] if names else shown(host)
        more = f"  {aside}" if aside else ""
        return ((f" {name.rstrip('/').rpartition('/')[2] or name}", "strong"), (more, ""))
    word: Line = ((" ", ""), (f" {shown(environment)} ", "stake")) if environment else ()
    lead: Line = ((f" {shown(host)}", "strong"), *word)
    room = max(12, width - width_of(lead) - 34)
    path = " > ".join(names)
    shorter = fit_end(path, room) if cells_of(path) > room else path
    more = f"  {aside}" if aside and cells_of(shorter) + cells_of(aside) + 2 <= room else ""
    return (*lead, (f" > {shorter}" if names else "", ""), (more, "dim"))


def signs(wire: str, alerts: int, width: int) -> Line:
    """What goes over the wire, where there is room for it, and how many alerts there are."""
    rate: Line = ((f" {wire}", "dim"),) if wire and width >= 80 else ()
    return (*rate, (f" {alerts}!", "bad")) if alerts else rate


def badge(works: str) -> Line:
    """That something is carried out just now, and how far it is; nothing when nothing is."""
    return ((f" {works} ", "armed"), (" ", "")) if works else ()


def tabs(
    names: Sequence[str],
    counts: Sequence[int | None],
    current: int,
    complete: bool,
    width: int,
    within: Mapping[int, str] = {},
) -> Line:
    """The tabs, by the store's own words; a count that is not known is `?`. `within` is what stands
    behind a count: the part of it that has a finer word.

    Where they do not all fit, the gaps go first, then the empty tabs, then those before the one
    that is shown: it has to be seen.
    """
    texts: dict[int, str] = {}
    for at, (name, amount) in enumerate(zip(names, counts, strict=True)):
        figure = "?" if amount is None else f"{amount:,}{'' if complete else '+'}"
        part = f" ({shown(within[at])})" if at in within and amount else ""
        texts[at] = f"{at + 1} {shown(name)} {figure}{part}"
    wide = sum(map(cells_of, texts.values())) + 3 * len(texts) + 1 <= width
    gap = (" ", "") if wide else ("", "")
    empty = [at for at in texts if not counts[at] and at != current]
    for at in [*reversed(empty), *(at for at in texts if at < current)]:
        if sum(map(cells_of, texts.values())) + 2 * len(texts) + 1 <= width:
            break
        texts.pop(at, None)
    parts: list[Line] = [((" ", ""),)]
    for at, text in texts.items():
        tab = (f"[{text}]", "tab") if at == current else (f" {text} ", "")
        parts.append((tab, gap))
    return cut(whole_ones(parts, width), width)


_LOCK_LOOKS = {
    Verdict.FREE: "",
    Verdict.HELD: "good",
    Verdict.STALE: "warning",
    Verdict.STUCK: "bad",
    Verdict.UNKNOWN: "unknown",
}


ALARMING = frozenset({Verdict.STALE, Verdict.STUCK, Verdict.UNKNOWN})
"""Verdicts on a lock that are shown however small the screen is."""


def lock(evidence: LockEvidence | None, now: float, width: int, key: str = "") -> Line:
    """What the queue's lock is doing, and the evidence; where that alarms, a key to press."""
    if evidence is None:
        return cut(((" lock  not looked at yet", "dim"),), width)
    words = [evidence.verdict.value]
    if evidence.pid is not None:
        words.append(f"by PID {evidence.pid}")
    if evidence.since is not None:
        words.append(f"since {moment(evidence.since, now)}")
    text = " ".join(words)
    sign = {Verdict.STUCK: "! CRIT ", Verdict.STALE: "! WARN "}.get(evidence.verdict, "")
    reason = f"  {shown(evidence.reason)}" if evidence.reason else ""
    look = _LOCK_LOOKS[evidence.verdict]
    line: Line = ((" lock  ", "title"), (sign + text, look), (reason, "dim"))
    if not key or evidence.verdict not in ALARMING:
        return cut(line, width)
    what = "" if width < NARROW else " unlock" if is_freeable(evidence) else " why"
    return join(line, ((f" {key}", "key"), (f"{what} ", "")), width)


def verdict_look(verdict: Verdict) -> Look:
    """How a verdict on a lock looks."""
    return _LOCK_LOOKS[verdict]


def is_freeable(evidence: LockEvidence) -> bool:
    """Whether a plan can be had that frees the lock: its holder is stuck or gone, for certain."""
    return evidence.verdict in (Verdict.STUCK, Verdict.STALE) and not evidence.doubt


def lock_verdict(evidence: LockEvidence) -> Run:
    """The verdict in a few words: `STUCK 47m  PID 4711`."""
    silent = evidence.verdict in (Verdict.STUCK, Verdict.STALE) and evidence.since is not None
    words = evidence.verdict.upper() + (f" {span(evidence.age)}" if silent else "")
    pid = f"  PID {evidence.pid}" if evidence.pid is not None else ""
    return words + pid, _LOCK_LOOKS[evidence.verdict] or "strong"


# Scope and hints


class Scope(NamedTuple):
    """What would be acted on if a verb were pressed now."""

    row: str = ""
    """The id under the cursor; "" when there is none."""
    gone: bool = False
    """Whether the row under the cursor has left."""
    marked: int = 0
    hidden: int = 0
    """Marks that the filter hides: they are not acted on."""
    everything: bool = False
    matching: int = 0
    """How many match the filter."""
    ranged: int = 0
    """How many rows are between the beginning of a range and the cursor; they are not marked yet.
    """
    wrong: str = ""
    """What is wrong with the filter: until that is mended nothing is acted on."""


def scope(about: Scope, width: int) -> Line:
    """The scope line: it is always on screen."""
    hidden = f"   {count(about.hidden, 'hidden mark')} not included" if about.hidden else ""
    lead = " scope if you act now: " if width >= NARROW else " scope: "
    if about.wrong:
        hidden, text, look = "", f"nothing: {shown(about.wrong)}", "warning"
    elif about.ranged:
        rows = count(about.ranged, "row")
        hidden, text, look = "", f"{rows} in the range; v marks them, Esc drops it", "mark"
    elif about.everything:
        text, look = f"all {about.matching:,} matching", "mark"
    elif about.marked or about.hidden:
        text, look = f"{about.marked:,} marked", "mark"
    elif about.gone:
        text, look = f"nothing: {shown(about.row)} is gone", "warning"
    elif about.row:
        name, room = shown(about.row), max(1, width - cells_of(lead) - 4)
        text, look = f"row {fit_end(name, room) if cells_of(name) > room else name}", "strong"
    else:
        text, look = "nothing", "dim"
    return cut(((lead, ""), (text, look), (hidden, "warning")), width)


def hint_lines(hints: Sequence[Hint], width: int, lines: int = 2) -> list[Line]:
    """The hints, on so many lines; where they do not all fit, minor ones go first.

    What does not fit then is left to the help.
    """
    return [*_hint_lines(tuple(hints), width, lines)]


@lru_cache(maxsize=16)  # a screen asks for the same each second, as long as nothing happens there
def _hint_lines(hints: tuple[Hint, ...], width: int, lines: int) -> tuple[Line, ...]:
    kept = list(hints)
    while len(rows := _hint_rows(kept, width)) > lines:
        last = next((at for at in reversed(range(len(kept))) if kept[at].minor), None)
        if last is None:
            break
        del kept[last]
    rows += [[] for _ in range(lines - len(rows))]
    return tuple([cut(tuple(runs), width) for runs in rows[:lines]])


def _hint_rows(hints: Iterable[Hint], width: int) -> list[list[Run]]:
    rows: list[list[Run]] = [[]]
    used = 0
    for hint in hints:
        cells = cells_of(hint.shown) + cells_of(hint.words) + 3
        if used + cells > width and rows[-1]:
            rows.append([])
            used = 0
        look = ("grey", "grey") if hint.grey else ("key", "")
        rows[-1] += [(f" {hint.shown}", look[0]), (f" {hint.words} ", look[1])]
        used += cells
    return rows


# A task in full


def fields(task: Task, states: Mapping[State, str], now: float) -> list[Run]:
    """What there is to know about a task; what its store does not have is left out."""
    rows = [
        ("id", task.id),
        ("kind", task.kind),
        ("state", states.get(task.state, task.state) + (f" ({task.word})" if task.word else "")),
        ("queue", task.queue),
        ("group", task.group),
        ("description", task.description),
        ("destination", task.destination),
        ("created", moment(task.created, now) if task.created > 0 else "?"),
        ("due", _due_words(task, now)),
        ("attempts", "?" if task.attempts is None else str(task.attempts)),
        ("priority", str(task.priority) if task.priority else ""),
        ("last error", task.error),
        ("payload", task.payload),
        ("worker", _lease_words(task, now)),
        ("revision", task.rev),
        *((name.replace("_", " "), _extra(name, text, now)) for name, text in task.extra.items()),
    ]
    return [(name, shown(text)) for name, text in rows if text]


def _due_words(task: Task, now: float) -> str:
    if task.state not in (State.PENDING, State.HELD):
        return ""
    if task.due is None:
        return "?"
    return moment(task.due, now) if task.due > now else "at once"


def _lease_words(task: Task, now: float) -> str:
    if task.lease is None:
        return ""
    until = f", until {moment(task.lease.until, now)}" if task.lease.until is not None else ""
    return f"{task.lease.owner} since {moment(task.lease.since, now)}{until}"


def _extra(name: str, text: str, now: float) -> str:
    return moment(float(text), now) if name.endswith("_since") and _is_number(text) else text


def labelled(rows: Iterable[Run], width: int, names: int = 12) -> list[Line]:
    """Names and values in two columns, the first so wide; long values go on in the next lines."""
    lines: list[Line] = []
    room = max(8, width - names - 2)
    for name, value in rows:
        unknown = "unknown" if value.startswith("?") else ""
        look = "bad" if name == "last error" else unknown
        for number, part in enumerate(folded(value, room)):
            label = fit(name, names, right=True) if number == 0 else " " * names
            lines.append(((label + "  ", "dim"), (part, look)))
    return lines


def folded(text: str, width: int) -> list[str]:
    """The text in pieces of at most so many cells, between words where there are any.

    A width below 1, of a terminal that is narrower than a margin, counts as 1.
    """
    pieces: list[str] = []
    at, width = 0, max(1, width)
    while at + width < len(text) or cells_of(text[at:]) > width:
        piece = set_cell_size(text[at : at + width], width).rstrip()
        if text[at + len(piece) : at + len(piece) + 1] != " " and " " in piece.lstrip():
            piece = piece.rpartition(" ")[0]
        pieces.append(piece)
        at += max(1, len(piece))
        while text[at : at + 1] == " ":
            at += 1
    return [*pieces, text[at:]] if at < len(text) or not pieces else pieces


def heading(text: str, width: int) -> Line:
    """A title with a rule behind it."""
    return ((f" {text} ", "title"), ("-" * max(0, width - cells_of(text) - 2), "rule"))


def problem(problem: Problem, states: Mapping[State, str], width: int) -> list[Line]:
    """Something that cannot be read: where it lies and why."""
    pieces = folded(shown(problem.what), max(8, width - 6))
    return [((" ! ", "warning"), (shown(problem.where), "strong"))] + [
        (("     " + piece, ""),) for piece in pieces
    ]


# The log

_LEVELS = {
    "CRITICAL": "bad",
    "ERROR": "bad",
    "WARN": "warning",
    "WARNING": "warning",
    "SUCCESS": "good",
    "DEBUG": "dim",
}


def level_look(level: str) -> str:
    """The look of a level of a log; the level stands in words besides."""
    return _LEVELS.get(level.upper(), "")


_IDS = re.compile(r"\b[0-9]{8}T[0-9]{6}Z-[\w.]+-([0-9a-f]{8})\b")


def brief(text: str) -> str:
    """A line of a log with the ids of tasks as short as the list has them: its errors fit then."""
    return _IDS.sub(rf"{MORE}-\1", text)


def log_line(when: float | None, level: str, text: str, width: int) -> Line:
    """A line of a log; its level stands in words, and has a colour besides."""
    is_dated = when is not None and _fits(when)
    stamp = time.strftime("%H:%M:%S", time.localtime(when)) if is_dated else ""
    look = level_look(level)
    runs: list[Run] = [(f" {stamp} " if stamp else " ", "dim")]
    if level:
        runs.append((f"{fit(shown(level), 7)} ", look))
    runs.append((shown(text), look if look in ("bad", "dim") else ""))
    return cut(tuple(runs), width)
