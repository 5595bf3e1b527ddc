"""The scope of a verb, the next step, and the keys at the foot of a screen."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

from engine.text.figure import UNKNOWN
from engine.text.figures import format_count
from engine.values import NamedTuple
from tui.text.keys import Hint
from tui.text.lines import Line, Run, cells_of, cut_line, join_ends, width_of
from tui.text.task_list import MAX_ID_CELLS, short_id


class Scope(NamedTuple):
    """What a verb would act on if its key were pressed now."""

    row: str = ""
    """The id under the cursor; "" if none."""
    is_gone: bool = False
    marked: int = 0
    hidden: int = 0
    """Marked tasks that the filter hides; verbs do not act on them."""
    acts_on_all: bool = False
    matching: str = UNKNOWN
    ranged: int = 0
    """Rows between the start of a range and the cursor; they are not marked yet."""
    filter_error: str = ""
    """Error in the filter; until it is corrected, verbs act on nothing."""


def scope_words(scope: Scope) -> Line:
    """What a verb would act on: `a1240c23`, `5 marked`, `all 318 matching`."""
    hidden = f", {format_count(scope.hidden, 'hidden mark')} not included" if scope.hidden else ""
    if scope.filter_error:
        return (("nothing", "warn"),)
    if scope.ranged:
        return ((f"nothing: {format_count(scope.ranged, 'row')} in the range", "mark"),)
    if scope.acts_on_all:
        return ((f"all {scope.matching} matching", "mark"), (hidden, "warn"))
    if scope.marked or scope.hidden:
        return ((f"{scope.marked:,} marked", "mark"), (hidden, "warn"))
    if scope.is_gone:
        return ((f"nothing: {short_id(scope.row)} is gone", "warn"),)
    row: Run = (short_id(scope.row, MAX_ID_CELLS), "strong")
    return (row if scope.row else ("nothing", "muted"),)


_ACTS_ON: Run = ("acts on ", "muted")


def next_line(key: str, does: str, acts_on: str | Line, width: int, message: str = "") -> Line:
    """The line above the hints: the next step and its key, and what a key acts on. A message takes
    the place of the next step, and of all if it does not fit beside."""
    step: Line = ((" next  ", "ok"), (key, "key"), (f" {does}" if key else does, ""))
    scope: Line = ((acts_on, "strong"),) if isinstance(acts_on, str) else acts_on
    right: Line = (_ACTS_ON, *scope, (" ", "")) if acts_on else ()
    if message:
        return with_message(((f" {message}", "warn"),), right, width)
    left: Line = step if does else ()
    room = width - width_of(right) - 1
    if not right or room <= 0:
        return cut_line(((" ", ""), *right) if right else left, width)
    return join_ends(left, right, width)


def with_message(message: Line, line: Line, width: int) -> Line:
    """A message in place of the next step, and of all if it does not fit beside the scope."""
    right = line[line.index(_ACTS_ON) :] if _ACTS_ON in line else ()
    if not right or width_of((*message, *right)) >= width:
        return cut_line(message, width)
    return join_ends(message, right, width)


def hint_lines(
    hints: Sequence[Hint], width: int, lines: int = 1, step: Iterable[Run] = ()
) -> list[Line]:
    """The hints on `lines` lines; if they do not fit, minor ones are dropped first. The last two
    stay, because they are help and back, and so does the key that `step`, the next step, names. The
    help lists what was dropped."""
    named = next((text for text, style in step if style == "key"), "")
    return [*_hint_lines(tuple(hints), width, lines, named)]


def is_key_of(hint: Hint, key: str) -> bool:
    """True if the hint is that of the key: `h l` of h, `1-9` of each digit."""
    return key in hint.shown.split() or (key.isdigit() and hint.shown == "1-9")


@lru_cache(maxsize=16)  # an idle screen asks for the same each second
def _hint_lines(hints: tuple[Hint, ...], width: int, lines: int, named: str) -> tuple[Line, ...]:
    fitting, last_two = list(hints), [hint for hint in hints if not hint.is_minor][-2:]
    order = [hint for hint in reversed(hints) if hint not in last_two]
    order.sort(key=lambda hint: (is_key_of(hint, named), not hint.is_minor))
    while len(rows := _hint_rows(fitting, width)) > lines and order:
        fitting.remove(order.pop(0))
    rows += [[] for _ in range(lines - len(rows))]
    return tuple([cut_line(tuple(runs), width) for runs in rows[:lines]])


def _hint_rows(hints: Iterable[Hint], width: int) -> list[list[Run]]:
    rows: list[list[Run]] = [[]]
    used = 0
    for hint in hints:
        cells = cells_of(hint.shown) + cells_of(hint.text) + 3
        if used + cells > width and rows[-1]:
            rows.append([])
            used = 0
        styles = ("muted", "muted") if hint.is_refused else ("key", "")
        rows[-1] += [(f" {hint.shown}", styles[0]), (f" {hint.text} ", styles[1])]
        used += cells
    return rows
