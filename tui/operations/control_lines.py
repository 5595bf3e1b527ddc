"""Controls that act on a whole queue (pause, resume, limits): facts, table, details and preview."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from engine.locks.token_buckets import BucketState
from engine.model import Problem
from engine.operations import controls
from engine.operations.controls import ControlRow, Order
from engine.places.place import WholeQueueFigures
from engine.store import Control
from engine.text.figure import UNKNOWN
from engine.text.figures import format_count
from engine.text.safe import safe_line
from engine.text.times import format_rough_duration
from tui.text import lines as lines_text
from tui.text.graphs import bar
from tui.text.lines import BLANK_LINE, Line, Run, cut_line, folded_lines, part_line
from tui.text.table import REST, Column, Table

NAME_CELLS, MIN_VALUE_CELLS = 22, 12
"""Width of a control's name in cells, and of its value on a narrow screen."""

EFFECT_CELLS = 30
"""Cells that the names leave for the effect, which the details have in full, and for gaps."""

MAX_TARGETS = 9

BUCKET = "rate limit "
"""Start of the key of a row with a rate limit."""

GAUGE_CELLS = 16
NO_CONTROLS = "this queue has no controls"


def warning_lines(figures: WholeQueueFigures, width: int) -> list[Line]:
    """The queue's warnings, in full."""
    mark = ((" ! ", "warn"),)
    return [line for each in figures.warnings for line in folded_lines(each, width, "warn", mark)]


FACT_CELLS = 13
"""Cells for the names of facts, of the queue and of a control: their values are in one column."""


def fact_lines(figures: WholeQueueFigures, width: int) -> list[Line]:
    """Facts that the queue reports about itself, or why it cannot."""
    lines: list[Line] = []
    if figures.unknown:
        lines.append(cut_line(((f" ? {safe_line(figures.unknown)}", "unknown"),), width))
    named = [(safe_line(name), safe_line(words)) for name, words in figures.rows]
    return [*lines, *lines_text.fact_lines(named, width, FACT_CELLS)]


def pause_line(known_controls: Mapping[str, Control]) -> Line:
    """Whether the queue is paused, by its control; () if it has none."""
    pause = next((control for control in known_controls.values() if control.is_pause), None)
    if pause is None or not (pause.now or pause.targets):
        return ()
    if not pause.has_paused:
        return (("not paused", "ok"),)
    stopped = sum(pause.for_target(one.name).has_paused for one in pause.targets)
    words = f" PAUSED {stopped:,} of {len(pause.targets):,} " if pause.targets else " PAUSED "
    return ((words, "chip-warn"),)


def control_table(rows: Sequence[ControlRow], width: int) -> tuple[Line, list[tuple[str, Line]]]:
    """Titles and one line for each control and target; a refused one shows the reason. Without a
    value there is no column for it; a value has its meaning if there is room, as in the details."""

    def name(row: ControlRow) -> Run:
        return safe_line(row.label), "muted" if row.control.refusal else "strong"

    def value(row: ControlRow) -> Run:
        now, style = row.control.now or "-", "muted" if row.control.refusal else ""
        words = controls.describe_value(row.control, row.control.now) or now
        return safe_line(words if len(words) <= most else now), style

    def effect(row: ControlRow) -> Run:
        if refused := row.control.refusal:
            return f"refused: {safe_line(refused)}", "muted"
        return row.control.summary, ""

    most = max(MIN_VALUE_CELLS, width // 5)
    now = Column("VALUE", 5, value, most=most).measured(rows)
    longest = max((len(each.label) for each in rows), default=8)
    names = min(max(width // 3, width - now.width - EFFECT_CELLS), longest + 1)
    columns = [Column("CONTROL", names, name), Column("EFFECT", 0, effect, grows=REST)]
    if any(row.control.now for row in rows):
        columns.insert(1, now._replace(shrinks=0))
    head, lines = Table(columns).lines(rows, width)
    return head, [(row.label, line) for row, line in zip(rows, lines, strict=True)]


def limit_table(
    tokens: Sequence[BucketState], now: float, width: int
) -> tuple[Line, list[tuple[str, Line]]]:
    """Titles and one line for each rate limit: its kind, its tokens and a bar, the rate and the
    next token."""

    def count(bucket: BucketState) -> Run:
        text = "PAUSED" if bucket.paused else f"{bucket.tokens:,} of {bucket.burst:,}"
        return text, "warn" if bucket.paused or not bucket.tokens else ""

    def gauge(bucket: BucketState) -> Run:
        return bar(bucket.tokens / max(1, bucket.burst), GAUGE_CELLS), "accent"

    def rate(bucket: BucketState) -> Run:
        return ("", "") if bucket.per_hour is None else (f"{bucket.per_hour:,}/h", "muted")

    def next_token(bucket: BucketState) -> Run:
        if bucket.next is None:
            return "-", "muted"
        return f"in {format_rough_duration(max(0.0, bucket.next - now))}", "muted"

    columns: tuple[Column[BucketState], ...] = (
        Column("KIND", 8, lambda bucket: (limit_name(bucket), "strong"), most=NAME_CELLS),
        Column("TOKENS", 6, count, most=16),
        Column("RATE", 6, rate, most=12),
        Column("NEXT", 6, next_token, most=9),
        Column("", GAUGE_CELLS, gauge, rank=1),
    )
    head, lines = Table(columns).lines(tokens, width)
    return head, [(BUCKET + one.name, line) for one, line in zip(tokens, lines, strict=True)]


def limit_name(bucket: BucketState) -> str:
    """The kind that a rate limit is about, safe to show."""
    return safe_line(bucket.name) or "all kinds"


def limit_lines(bucket: BucketState, pending: int | None, width: int) -> list[Line]:
    """Details of a rate limit: the pending tasks of its kind, where it is set, and how to change
    it."""
    setting = f"handlers.{safe_line(bucket.name)}.rate" if bucket.name else "queue.rate"
    waiting = UNKNOWN if pending is None else format_count(pending, "task")
    rows = [
        *([("pending", waiting)] if bucket.name else []),
        ("set in", f"{setting} of the configuration: per_hour, burst"),
        ("change", "edit it, then restart the worker"),
    ]
    return lines_text.fact_lines(rows, width, FACT_CELLS)


def detail_lines(name: str, control: Control, width: int, target: str = "") -> list[Line]:
    """Details of one control, or of one of its targets."""
    values = [controls.describe_value(control, value) for value, _ in control.choices]
    rows = [
        ("what", control.summary),
        ("now", controls.describe_value(control, control.now) if control.now else ""),
        ("for", f"{control.target} {target}".strip()),
        ("values", ", ".join(values) or control.value),
        ("undo", _describe_undo(name, control)),
        ("refused", control.refusal),
    ]
    facts = [(label, safe_line(words)) for label, words in rows if words]
    return lines_text.fact_lines(facts, width, FACT_CELLS)


def _describe_undo(name: str, control: Control) -> str:
    if any(one.now for one in control.targets):
        return f"{name} can be set back for each"
    if controls.is_reversible(control):
        return f"{name} can be set back to {control.now}"
    return "it cannot be undone"


def preview_lines(order: Order, control: Control, foretold: str | None, width: int) -> list[Line]:
    """Preview of a control; `foretold` is the store's own preview, None until it is read."""
    target = f", for {order.target}" if order.target else ""
    words: list[Run] = [(f"{order.name}{target}: {control.summary}.", "strong")]
    if control.now:
        before, after = (controls.describe_value(control, v) for v in (control.now, order.value))
        same = " (unchanged)" if order.value == control.now else ""
        words.append((f"Now {before}, then {after or UNKNOWN}{same}.", ""))
    elif meant := controls.describe_value(control, order.value):
        words.append((f"New value: {meant}.", ""))
    label = controls.control_label(order.name, order.target)
    words.append((f"Undo: {_describe_undo(label, control)}.", ""))
    lines: list[Line] = []
    for text, style in words:
        lines += folded_lines(text, width, style)
    if control.has_forecast:
        lines += [BLANK_LINE, part_line("effect now (from the queue)")]
        lines += store_text_lines("loading ..." if foretold is None else foretold, width)
    return lines


def store_text_lines(text: str, width: int, style: str = "") -> list[Line]:
    """Text from a store, each of its lines folded."""
    return [line for each in text.splitlines() for line in folded_lines(each, width, style)]


def target_lines(control: Control, problems: Sequence[Problem], width: int) -> list[Line]:
    """Targets to choose: those of the control with values, else problems with their errors."""
    known = [(one.name, one.refusal or one.now) for one in control.targets]
    listed = known or [(problem.where, problem.what) for problem in problems]
    if not listed:
        return []
    lines: list[Line] = [BLANK_LINE, part_line("targets" if known else "problems")]
    for name, words in listed[:MAX_TARGETS]:
        row = (("  ", ""), (safe_line(name), "strong"), (f"  {safe_line(words)}", "muted"))
        lines.append(cut_line(row, width))
    more = len(listed) - MAX_TARGETS
    return [*lines, ((f"  +{more:,} more", "muted"),)] if more > 0 else lines


def page_lines(
    figures: WholeQueueFigures, known_controls: Mapping[str, Control], width: int
) -> list[Line]:
    """The whole page, as the command line prints it."""
    head, rows = control_table(controls.control_rows(known_controls), width)
    first = [*warning_lines(figures, width), *fact_lines(figures, width)]
    none: list[Line] = [((f" {NO_CONTROLS}", "muted"),)]
    listed: list[Line] = [head, *(line for _, line in rows)] if known_controls else none
    lines = [*first, *([BLANK_LINE] if first else []), *listed]
    for name, control in known_controls.items():
        lines += [BLANK_LINE, part_line(safe_line(name)), *detail_lines(name, control, width)]
    return lines


def control_values(name: str, control: Control) -> dict[str, object]:
    """A control for JSON output; missing values are null."""
    return {
        "name": name,
        "summary": control.summary,
        "now": control.now or None,
        "target": control.target or None,
        "value": control.value or None,
        "choices": dict(control.choices) or None,
        "bounds": control.bounds,
        "targets": [one._asdict() for one in control.targets] or None,
        "pauses": control.is_pause,
        "undoable": controls.is_reversible(control),
        "refused": control.refusal or None,
    }
