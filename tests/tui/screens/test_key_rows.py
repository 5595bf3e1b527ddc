"""The rows of a screen's keys: pressed, refused, hinted and omitted, without a screen."""

from __future__ import annotations

from tui.screens.key_rows import KeyRow, absent_actions, hints_of, press, refusals_of
from tui.text.keys import Hint, key_of_row

Lamp = dict[str, bool]
"""The parts of a screen with one lamp."""


def switch(lamp: Lamp, pressed: str) -> str:
    """Switch it on with 1."""
    lamp["on"] = pressed == "1"
    return "rows"


def why_dark(lamp: Lamp) -> str:
    """Why it cannot be lit."""
    return "" if lamp["whole"] else "broken"


SWITCH = key_of_row("switch | 0 1 | 0 1 | on or off | View | lamp +key | switch the lamp")
MEND = key_of_row("plan('mend') | M | M | mend | Act | lamp | mend the lamp")
SELL = key_of_row("sell | S | S | sell | Act | lamp +minor | sell the lamp")
ROWS: tuple[KeyRow[Lamp, str], ...] = (
    KeyRow(SWITCH, switch, why_dark, lambda lamp: "; next: M mend"),
    KeyRow(MEND, lambda lamp: "", label=lambda lamp: "" if lamp["whole"] else None),
    KeyRow(SELL, lambda lamp: "", is_absent=lambda lamp: lamp["on"]),
)


def test_a_refused_key_says_why_and_what_else() -> None:
    """Refused, it does nothing but say so, with the advice; else it does what it does, with the
    pressed key, and returns what that changed."""
    lines: list[str] = []

    def say(text: str) -> str:
        lines.append(text)
        return "message"

    lamp = {"on": False, "whole": False}
    assert press(ROWS, "1", lamp, say) == "message"
    assert (lines, lamp["on"]) == (["broken; next: M mend"], False)
    lamp["whole"] = True
    assert press(ROWS, "1", lamp, say) == "rows"
    assert (len(lines), lamp["on"]) == (1, True)


def test_a_hint_is_grey_where_its_key_is_refused() -> None:
    """A grey hint is dropped first on a narrow screen, unless it is to stay; a key without a label
    has no hint, and one that is absent none either."""
    broken, lit = {"on": False, "whole": False}, {"on": True, "whole": True}
    hints = (
        Hint("0 1", "on or off", True, True),
        Hint("M", "mend"),
        Hint("S", "sell", False, True),
    )
    assert tuple(hints_of(ROWS, broken)) == hints
    (first, *_) = hints_of(ROWS, broken, stays={"switch"})
    assert first == Hint("0 1", "on or off", is_refused=True, is_minor=False)
    assert tuple(hints_of(ROWS, lit)) == (Hint("0 1", "on or off"),)
    assert absent_actions(ROWS, lit) == {"sell"}


def test_the_help_lists_refusals_of_plans() -> None:
    """Only keys that open a plan, have a hint and are refused are listed with the reason."""
    refused = KeyRow[Lamp, str](MEND, lambda lamp: "", lambda lamp: "no spare part")
    assert refusals_of((*ROWS, refused), {"on": False, "whole": False}) == {"M": "no spare part"}
