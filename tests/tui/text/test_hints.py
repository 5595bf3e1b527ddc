"""The scope, the next step, and the keys at the foot of a screen."""

from __future__ import annotations

from tests.console_operator import words
from tests.tables import each
from tui.text.hints import Scope, hint_lines, next_line, scope_words, with_message
from tui.text.keys import Hint
from tui.text.lines import width_of


@each(("scope", "text"), [
    (Scope("X", matching="318"), "X"),
    (Scope("20261120T091815Z-mail_send-a1240c23"), "a1240c23"),
    (Scope("X", is_gone=True), "nothing: X is gone"),
    (Scope("X", marked=5), "5 marked"),
    (Scope("X", marked=5, hidden=3), "5 marked, 3 hidden marks not included"),
    (Scope("X", hidden=1), "0 marked, 1 hidden mark not included"),
    (Scope("X", acts_on_all=True, matching="1,318"), "all 1,318 matching"),
    (Scope("X", ranged=4), "nothing: 4 rows in the range"),
    (Scope(), "nothing"),
])  # fmt: skip
def test_the_scope_says_what_would_be_acted_on(scope: Scope, text: str) -> None:
    """The line above the hints names exactly what a verb would act on now."""
    line = next_line("c", "groups these errors", scope_words(scope), 80)
    assert words([line]).endswith(f" acts on {text}") and width_of(line) == 80


def test_a_message_leaves_what_a_key_acts_on() -> None:
    """It takes the place of the next step, and of the whole line only if there is no room."""
    line, text = next_line("c", "groups these errors", "flowing", 60), "ARMED for 15 minutes"
    message = ((text, "warn"),)
    beside = words([with_message(message, line, 60)])
    assert (beside.split("  ")[0], beside[-16:]) == (text, " acts on flowing")
    assert words([with_message(message, line, 30)]) == text
    assert words([with_message(message, (), 60)]) == text


def test_hints_that_do_not_fit_are_left_to_the_help() -> None:
    """Hints are never cut within a word; the last two, help and back, always stay."""
    (line,) = hint_lines([Hint(f"k{n}", "something") for n in range(20)], 46)
    assert words([line]) == " k0 something  k18 something  k19 something"
    assert width_of(line) == 46


@each(("step", "kept"), [("", []), ("m", ["m"]), ("3", ["1-9"]), ("x", [])])
def test_the_key_of_the_next_step_is_a_hint_at_each_width(step: str, kept: list[str]) -> None:
    """Of the keys that are dropped first, only the one that the next step names stays."""
    minor = [Hint(shown, "something", is_minor=True) for shown in ("m", "1-9")]
    hints = [*minor, *(Hint(f"k{n}", "something") for n in range(4))]
    for width in (45, 50, 56):
        (line,) = hint_lines(hints, width, step=((step, "key"),))
        shown = words([line]).split()[::2]
        assert shown[-2:] == ["k2", "k3"] and [one for one in shown if one[0] != "k"] == kept
