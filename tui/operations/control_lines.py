"""What concerns a queue as a whole, in words: its facts, its controls, and what one would do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from engine.model import Problem
from engine.operations import controls
from engine.operations.controls import Order
from engine.store import Control
from engine.text.safe import shown
from tui.format import present
from tui.format.present import BLANK, Line, Run
from tui.session.place import PlaceFigures

NAME, NOW, LESS = 22, 20, 12
"""Cells of a control's name and of its value; the latter on a narrow screen."""

WIDE = 80
"""Cells from which on a screen is not narrow for that."""

TARGETS = 9
"""Problems that are listed where a control may be for one of them."""

NO_FACTS = "nothing is said of this queue as a whole"
NO_CONTROLS = "nothing can be done here to the queue as a whole"


def warnings(told: PlaceFigures, width: int) -> list[Line]:
    """What somebody should see to, in full."""
    lines: list[Line] = []
    for warning in told.warnings:
        first, *rest = present.folded(shown(warning), max(8, width - 3))
        lines.append(((" ! ", "warning"), (first, "warning")))
        lines += [((f"   {piece}", "warning"),) for piece in rest]
    return lines


def facts(told: PlaceFigures, width: int) -> list[Line]:
    """What the queue says of itself, or why it cannot."""
    lines: list[Line] = []
    if told.unknown:
        lines.append(present.cut(((f" ? {shown(told.unknown)}", "unknown"),), width))
    named = [(shown(name), shown(words)) for name, words in told.rows]
    names = min(24, max((len(name) for name, _ in named), default=0) + 1)
    return [*lines, *present.labelled(named, width, names)]


def table(found: Mapping[str, Control], width: int) -> tuple[Line, list[tuple[str, Line]]]:
    """The titles, and a line for each control with its name; one that is refused says why."""
    values = (controls.meaning(each, each.now) for each in found.values())
    widest = max((len(value) for value in values), default=0)
    now = min(NOW if width >= WIDE else LESS, max(3, widest))
    names = min(NAME, max((len(name) for name in found), default=8) + 1)
    head = f"   {present.fit('CONTROL', names)} {present.fit('NOW', now)} WHAT IT DOES"
    return ((present.fit(head, width), "title"),), [
        (name, _row(name, control, names, now, width)) for name, control in found.items()
    ]


def _row(name: str, control: Control, names: int, now: int, width: int) -> Line:
    value = shown(controls.meaning(control, control.now)) if control.now else "-"
    refused = control.refused
    words: Run = (f"refused: {shown(refused)}", "dim") if refused else (control.summary, "")
    cells: tuple[Run, ...] = (
        (f"   {present.fit(shown(name), names)} ", "dim" if refused else "strong"),
        (f"{present.fit(value, now)} ", "dim" if refused else ""),
        words,
    )
    return present.cut(cells, width)


def about(name: str, control: Control, width: int) -> list[Line]:
    """All there is to say of one."""
    values = [controls.meaning(control, value) for value, _ in control.choices]
    rows = [
        ("what", control.summary),
        ("now", controls.meaning(control, control.now) if control.now else ""),
        ("for", control.target),
        ("values", ", ".join(values) or control.value),
        ("undo", undo(name, control)),
        ("refused", control.refused),
    ]
    return present.labelled([(label, shown(words)) for label, words in rows if words], width)


def undo(name: str, control: Control) -> str:
    """How it is taken back, or that it cannot be."""
    if controls.is_safe(control):
        return f"{name} can be set back to {control.now}"
    return "it cannot be taken back"


def plan(order: Order, control: Control, foretold: str | None, width: int) -> list[Line]:
    """What would happen; `foretold` is what the store says of that, None while it was not asked."""
    target = f", for {order.target}" if order.target else ""
    words: list[Run] = [(f"{order.name}{target}: {control.summary}.", "strong")]
    if control.now:
        before, after = (controls.meaning(control, v) for v in (control.now, order.value))
        same = " (as it is now)" if order.value == control.now else ""
        words.append((f"It is {before} now, and would be {after or '?'}{same}.", ""))
    elif meant := controls.meaning(control, order.value):
        words.append((f"So: {meant}.", ""))
    words.append((f"Afterwards {undo(order.name, control)}.", ""))
    lines: list[Line] = [present.heading("what would happen", width)]
    for text, look in words:
        lines += _folded(text, look, width)
    if control.foretells:
        lines += [BLANK, present.heading("what it would do now, as the store says", width)]
        lines += said_lines("asking ..." if foretold is None else foretold, width)
    return lines


def said_lines(text: str, width: int, look: str = "") -> list[Line]:
    """What a store said, which may be several lines, each folded."""
    return [line for each in text.splitlines() for line in _folded(each, look, width)]


def _folded(text: str, look: str, width: int) -> list[Line]:
    pieces = present.folded(shown(text), max(8, width - 3))
    return [((f"  {piece}", look),) for piece in pieces]


def targets(problems: Sequence[Problem], width: int) -> list[Line]:
    """What it may be for: what here cannot be read, each with the reason."""
    if not problems:
        return []
    lines: list[Line] = [BLANK, present.heading("what here is not as it should be", width)]
    for problem in problems[:TARGETS]:
        row = (("  ", ""), (shown(problem.where), "strong"), (f"  {shown(problem.what)}", "dim"))
        lines.append(present.cut(row, width))
    more = len(problems) - TARGETS
    return [*lines, ((f"  ... and {more:,} more", "dim"),)] if more > 0 else lines


def page(told: PlaceFigures, found: Mapping[str, Control], width: int) -> list[Line]:
    """Everything on one page, as it is printed."""
    head, rows = table(found, width)
    first = [*warnings(told, width), *facts(told, width)]
    none: list[Line] = [((f" {NO_CONTROLS}", "dim"),)]
    listed: list[Line] = [head, *(line for _, line in rows)] if found else none
    lines = [*first, *([BLANK] if first else []), *listed]
    for name, control in found.items():
        lines += [BLANK, present.heading(shown(name), width), *about(name, control, width)]
    return lines


def as_row(name: str, control: Control) -> dict[str, object]:
    """One for programs; what it does not have is null."""
    return {
        "name": name,
        "summary": control.summary,
        "now": control.now or None,
        "target": control.target or None,
        "value": control.value or None,
        "choices": dict(control.choices) or None,
        "bounds": None if control.bounds is None else list(control.bounds),
        "pauses": control.pauses,
        "undoable": controls.is_safe(control),
        "refused": control.refused or None,
    }
