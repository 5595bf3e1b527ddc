"""The style sheet: when it is parsed, and what it says then."""

from __future__ import annotations

import pytest
from textual.color import Color
from textual.css.stylesheet import StylesheetParseError

from tui.sheet import Sheet

RED, BLUE = {"look": "#ff0000"}, {"look": "#0000ff"}


def a_sheet() -> Sheet:
    """A sheet with one rule that asks for a variable."""
    sheet = Sheet(variables=RED)
    sheet.add_source("Label { color: $look; }", ("here", ""))
    return sheet


def test_the_same_variables_leave_what_was_parsed() -> None:
    """As long as no variable has another value the rules are those that were made first."""
    sheet = a_sheet()
    (first,) = sheet.rules
    sheet.set_variables(dict(RED))
    sheet.reparse()
    (rule,) = sheet.rules
    assert rule is first


def test_a_new_value_makes_new_rules() -> None:
    """A variable with another value is heeded by the rules that ask for it."""
    sheet = a_sheet()
    (first,) = sheet.rules
    assert first.styles.color == Color.parse("#ff0000")
    sheet.set_variables(BLUE)
    sheet.reparse()
    (rule,) = sheet.rules
    assert rule.styles.color == Color.parse("#0000ff")


def test_a_new_source_is_added_to_what_is_there() -> None:
    """What comes later is parsed; what was there is not parsed once more for it."""
    sheet = a_sheet()
    (first,) = sheet.rules
    sheet.add_source("Input { color: $look; }", ("there", ""))
    before, added = sheet.rules
    assert before is first
    assert added.styles.color == Color.parse("#ff0000")


def test_an_error_leaves_the_rules_as_they_were() -> None:
    """A source that is no style sheet is refused, and nothing else is lost by it."""
    sheet = a_sheet()
    (first,) = sheet.rules
    sheet.add_source("Input { colour: red; }", ("there", ""))
    with pytest.raises(StylesheetParseError):
        sheet.reparse()
    (rule,) = sheet.rules
    assert rule is first
