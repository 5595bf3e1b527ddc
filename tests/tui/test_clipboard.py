"""Copies on their way to the operator's own clipboard."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tui.clipboard import CAP, CAP_NAME, TooLong, sequence


@given(st.text(max_size=500))
def test_what_is_copied_is_what_the_terminal_gets(text: str) -> None:
    """The sequence holds the text, encoded, and not one control character besides its own frame."""
    told = sequence(text, {})
    assert told.startswith("\x1b]52;c;")
    assert told.endswith("\x07")
    inside = told.removeprefix("\x1b]52;c;").removesuffix("\x07")
    assert (
        inside.isascii() and inside.replace("=", "").replace("+", "").replace("/", "").isalnum()
    ) or not inside
    assert base64.b64decode(inside) == text.encode("utf-8", "replace")


def test_inside_tmux_both_ways_are_taken() -> None:
    """tmux gets it for its own clipboard, and to be handed on with each escape doubled."""
    plain = sequence("abc", {})
    told = sequence("abc", {"TMUX": "/tmp/tmux-0/default,1,0"})
    assert told == plain + "\x1bPtmux;" + plain.replace("\x1b", "\x1b\x1b") + "\x1b\\"


@pytest.mark.parametrize(
    ("said", "longest"), [("", CAP // 4 * 3), ("400", 300), ("a lot", CAP // 4 * 3)]
)
def test_more_than_a_terminal_takes_is_refused(said: str, longest: int) -> None:
    """What would be dropped half is not sent at all, and the cap can be said."""
    environ = {CAP_NAME: said}
    assert sequence("a" * (longest // 3 * 3), environ)
    with pytest.raises(TooLong, match=CAP_NAME):
        sequence("a" * (longest + 3), environ)
