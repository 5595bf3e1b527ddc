"""Signs beyond ASCII are painted only where the locale says UTF-8."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from tui.text import glyphs


@pytest.mark.parametrize(
    ("environ", "is_utf8"),
    [
        *(({"LANG": name}, True) for name in ("en_US.UTF-8", "de_DE.utf8@euro", "C.UTF-8")),
        ({"LC_CTYPE": "UTF-8"}, True),
        ({"LC_ALL": "C", "LANG": "en_US.UTF-8"}, False),
        ({"LC_CTYPE": "en_US.UTF-8", "LANG": "C"}, True),
        ({"LC_CTYPE": "C.UTF-8", "LANG": "C"}, False),
        ({"LANG": "de_DE"}, False),
        ({}, False),
    ],
)
def test_the_locale_chooses(environ: Mapping[str, str], is_utf8: bool) -> None:
    """LC_ALL goes before LC_CTYPE before LANG; a value that Python set itself does not count."""
    assert glyphs.glyphs_of_locale(environ) == (glyphs.UTF8 if is_utf8 else glyphs.ASCII)


def test_each_sign_takes_one_cell() -> None:
    """In either form a sign is one cell, and the forms differ from one another."""
    glyph_text = glyphs.CURSOR + glyphs.MARK + glyphs.GONE + glyphs.MORE + glyphs.SPARKS
    plain = glyph_text.translate(glyphs.ASCII)
    assert [cell_len(sign) for sign in glyph_text] == [1] * len(glyph_text)
    assert plain.isascii() and len(plain) == len(glyph_text)
    assert (len(set(plain[:4])), len(set(plain[4:]))) == (4, len(glyphs.SPARKS))


@given(st.text(st.characters(exclude_categories=("Cc", "Cf", "Cs"))))
def test_ascii_keeps_every_column(text: str) -> None:
    """Foreign text becomes ASCII of the same width, and what was ASCII stays as it is."""
    plain = text.translate(glyphs.ASCII)
    assert plain.isascii()
    assert len(plain) == sum(cell_len(character) for character in text)
    assert all(c.translate(glyphs.ASCII) == c for c in text if c.isascii())
