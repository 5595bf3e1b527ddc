"""Copies to the clipboard of the terminal, also through tmux and GNU screen."""

from __future__ import annotations

import base64
import re
import shlex
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.programs import needs
from tests.pseudo_terminals import Terminal
from tests.tables import each
from tui.terminal.clipboard import (
    DEFAULT_LIMIT_BYTES,
    LIMIT_VARIABLE,
    SCREEN_STRING_BYTES,
    NotCopied,
    osc52_sequence,
)


@given(st.text(max_size=500))
def test_a_copy_is_sent_to_the_terminal_encoded(text: str) -> None:
    """The sequence holds the text in base64, and no control character besides its own frame."""
    rendered = osc52_sequence(text, {})
    match = re.fullmatch(r"\x1b\]52;c;([A-Za-z0-9+/=]*)\x07", rendered)
    assert match is not None
    assert base64.b64decode(match[1]) == text.encode("utf-8", "replace")


def test_a_copy_inside_tmux_is_sent_twice() -> None:
    """tmux gets it for its own clipboard, and to be handed on with each escape doubled."""
    plain = osc52_sequence("abc", {})
    rendered = osc52_sequence("abc", {"TMUX": "/tmp/tmux-0/default,1,0"})
    assert rendered == plain + "\x1bPtmux;" + plain.replace("\x1b", "\x1b\x1b") + "\x1b\\"


@each(
    ("limit", "longest"),
    [("", DEFAULT_LIMIT_BYTES // 4 * 3), ("400", 300), ("a lot", DEFAULT_LIMIT_BYTES // 4 * 3)],
)
def test_a_copy_beyond_the_cap_is_refused(limit: str, longest: int) -> None:
    """A copy that a terminal would cut is not sent; the cap can be configured."""
    assert osc52_sequence("a" * (longest // 3 * 3), {LIMIT_VARIABLE: limit})
    with pytest.raises(NotCopied, match=LIMIT_VARIABLE):
        osc52_sequence("a" * (longest + 3), {LIMIT_VARIABLE: limit})


SHORT, LONG = "abc", "text" * 1_000
TMUX, STY = {"TMUX": "/tmp/tmux-0/default,1,0"}, {"STY": "1.pts-0.host"}


@each(("environ", "is_plain", "is_plain_if_long"), [
    (STY, False, False),
    (STY | {"TERM": "screen.xterm-256color"}, False, False),
    ({"TERM": "screen-256color"}, True, False),
    (TMUX | STY | {"TERM": "screen"}, True, False),
    (TMUX | {"TERM": "screen"}, True, True),
    ({"TERM": "tmux-256color"}, True, True),
])  # fmt: skip
def test_screen_gets_strings_that_it_passes_on(
    environ: Mapping[str, str], is_plain: bool, is_plain_if_long: bool
) -> None:
    """GNU screen gets the sequence in parts, whole when put together; a plain one only where tmux
    may be what reads it, and screen not a long one, which it would print."""
    for text, expected in ((SHORT, is_plain), (LONG, is_plain_if_long)):
        plain, sent = osc52_sequence(text, {}), osc52_sequence(text, environ)
        assert sent.startswith(plain) is expected
        parts = re.findall(r"\x1bP((?:(?!\x1b\\).)*)\x1b\\", sent.removeprefix(plain))
        assert all(len(part) <= SCREEN_STRING_BYTES for part in parts if "tmux" not in part)
        if "STY" in environ or "tmux" not in str(environ):
            assert "".join(parts) == plain


def test_a_real_screen_passes_it_to_its_terminal(tmp_path: Path) -> None:
    """Of a copy of any length the terminal around GNU screen gets the sequence once, and none of it
    is printed."""
    program, sockets, sent = needs("screen"), tmp_path / "sockets", tmp_path / "sent"
    sockets.mkdir(0o700)
    copies = [(text, environ) for text in (SHORT, LONG) for environ in (STY, {"TERM": "screen"})]
    sent.write_text("".join(osc52_sequence(text, environ) for text, environ in copies))
    command = f"cat {shlex.quote(str(sent))}; echo copied; read line"
    argv = [program, "-c", "/dev/null", "-U", "sh", "-c", command]
    outside = {"TERM": "xterm", "LANG": "C.UTF-8", "SCREENDIR": str(sockets)}
    with Terminal(argv, outside) as terminal:
        terminal.shows("copied")
        for text in (SHORT, LONG):
            assert terminal.said.count(osc52_sequence(text, {}).encode()) == 2
        assert terminal.screen.text.split() == ["copied"]
        terminal.send("\r")
        terminal.end()


@each("term", ["linux", "linux-16color", "screen.linux"])
def test_the_linux_console_has_no_clipboard(term: str) -> None:
    """Nothing is sent to it, and the next step is named."""
    with pytest.raises(NotCopied, match="no clipboard; next: = shows plain text"):
        osc52_sequence(SHORT, {"TERM": term, "STY": "1"})
