"""The header of a screen: path, mode, totals; and the line of tabs."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

from engine.monitor.throughput import Rates
from engine.text.figure import UNKNOWN, Figure
from engine.text.figures import format_rate
from engine.text.safe import safe_line, state_name
from engine.values import NamedTuple
from tui.text.frames import NARROW_COLUMNS, WALL_COLUMNS
from tui.text.lines import Line, cells_of, cut_line, fit_text_end, parts_that_fit, width_of
from tui.text.times import format_clock, format_countdown


def mode_line(armed_for: float, read_only: bool, now: float, narrow: bool = False) -> Line:
    """OBSERVE or ARMED, and the time, for the right end of the header; if narrow no time."""
    if read_only:
        word, style = "READ ONLY", "chip"
    elif armed_for > 0:
        word, style = f"ARMED {format_countdown(armed_for)}", "chip-warn"
    else:
        word, style = "OBSERVE", "chip"
    return ((f" {word} ", style),) + (() if narrow else ((f"  {format_clock(now)} ", "muted"),))


def trail_line(host: str, environment: str, steps: Sequence[str], width: int) -> Line:
    """Host, environment and path: `mx1 PROD > /var/lib/nftban > dlq`; if narrow its last step."""
    names = [safe_line(step) for step in steps if step]
    if width < NARROW_COLUMNS:
        name = names[-1] if names else safe_line(host)
        path, number = name, ""
        if match := re.fullmatch(r"(.*)( \(\d+/\d+\))", name):
            path, number = match.groups()
        return ((f" {path.rstrip('/').rpartition('/')[2] or path}{number}", "strong"),)
    word: Line = ((" ", ""), (f" {safe_line(environment)} ", "chip-error")) if environment else ()
    lead: Line = ((f" {safe_line(host)}", "strong"), *word)
    room = max(12, width - width_of(lead) - 34)
    path = " > ".join(names)
    shorter = fit_text_end(path, room) if cells_of(path) > room else path
    before, arrow, last = f" > {shorter}".rpartition(" > ")
    return (*lead, (before + arrow, "muted"), (last, "strong")) if names else lead


NO_ANSWER = "no answer"
SILENT = f"{NO_ANSWER} for "
"""How long a place has not answered, before the time."""


class Totals(NamedTuple):
    """Totals of all places."""

    dead: int
    """Tasks in the DLQ."""
    stuck: int
    workers: int
    """Running workers; 0 if unknown."""
    places: int
    pending: int
    rates: Rates | None
    """Tasks per second; None if unknown for a place."""
    dead_word: str = "dead"
    """What the stores call dead tasks, if all agree."""
    stopped: int = 0
    """Servers that deliver by themselves and do not run."""
    is_partial: bool = False
    """True while tasks of a place are not counted, or it cannot be read now."""
    unread: tuple[tuple[str, str], ...] = ()
    """Names of the places that cannot be read now, and why: `no answer for 29s`."""


def unread_parts(totals: Totals, room: int) -> list[Line]:
    """Which places cannot be read now, as many words as fit: what is shown of them is old."""
    if not totals.unread:
        return []
    (name, why), *others = totals.unread
    name, amount = safe_line(name), len(totals.unread)
    age = f" {why.rpartition(' ')[2]}" if why.startswith(SILENT) else ""
    texts = [f"? {name} {why}", f"? {name}{age}", f"? {why}", f"?{age}"]
    if others:
        texts = [f"? {name} {why}, {len(others)} more", f"? {amount} places: {why}", f"? {amount}"]
    text = next((text for text in texts if cells_of(text) + 2 <= room), UNKNOWN)
    return [((f"{text}  ", "unknown"),)]


def totals_parts(totals: Totals, width: int) -> list[Line]:
    """The totals, most important first, without zeros; only a wall has those without an alarm."""
    whole, is_read = not totals.is_partial, not totals.unread
    counts = [(totals.dead_word, Figure(totals.dead, whole), "")]
    counts += [("stuck", Figure(totals.stuck, is_read), "error")]
    counts += [("stopped servers", Figure(totals.stopped, is_read), "error")]
    counts += [("workers", Figure(totals.workers, is_read), "")]
    if is_wall := width >= WALL_COLUMNS:
        counts += [("places", Figure(totals.places), "")]
        counts += [("pending", Figure(totals.pending, whole), "")]
    parts: list[Line] = [
        ((f"{name} ", style or "muted"), (f"{figure.text()}  ", style or "strong"))
        for name, figure, style in counts
        if figure.value
    ]
    if is_wall and totals.rates is not None:
        for name, rate in (("in", totals.rates.inward), ("out", totals.rates.outward)):
            parts.append(((f"{name} ", "muted"), (f"{format_rate(rate)}  ", "strong")))
    return parts


def tab_line(
    names: Sequence[str],
    counts: Sequence[int | None],
    current: int,
    complete: bool,
    width: int,
    within: Mapping[int, str] = {},
    partial: Collection[int] = (),
    matches: Sequence[int | None] = (),
) -> Line:
    """The tabs, named by the store's own words; an unknown count is `?`. `within` maps a tab to the
    part of its count that has a more exact word. The counts of `partial` are of what was read.
    `matches`: how many of the first tabs' tasks match the filter; None is not shown. If they do not
    fit: drop the gaps first, then empty tabs, then tabs before the current one, so that
    the current tab stays visible."""
    texts: dict[int, str] = {}
    for at, (name, amount) in enumerate(zip(names, counts, strict=True)):
        figure = Figure(amount, complete and at not in partial).text()
        match = matches[at] if at < len(matches) and amount else None
        if match is not None:
            figure = f"{Figure(match, complete and at not in partial).text()}/{figure}"
        part = f" ({safe_line(within[at])})" if at in within and amount else ""
        texts[at] = f"{state_name(name)} {figure}{part}"
    wide = sum(map(cells_of, texts.values())) + 4 * len(texts) <= width
    gap = ("  ", "") if wide else ("", "")
    empty = [at for at in texts if not counts[at] and at != current]
    for at in [*reversed(empty), *(at for at in texts if at < current)]:
        if sum(map(cells_of, texts.values())) + 2 * len(texts) <= width:
            break
        texts.pop(at, None)
    parts: list[Line] = []
    for at, text in texts.items():
        name, _, figure = text.partition(" ")
        style = "strong" if counts[at] else "muted"
        tab: Line = ((f" {name} ", "muted"), (f"{figure} ", style))
        parts.append((((f" {text} ", "chip-accent"),) if at == current else tab) + (gap,))
    return cut_line(parts_that_fit(parts, width), width)
