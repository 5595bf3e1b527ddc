"""Signs beyond ASCII are painted only where the locale says UTF-8."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from tests.documents import ROOT
from tests.tables import each
from tui.text import glyphs, graphs


@each(("environ", "is_utf8"), [
    *(({"LANG": name}, True) for name in ("en_US.UTF-8", "de_DE.utf8@euro", "C.UTF-8")),
    ({"LC_CTYPE": "UTF-8"}, True),
    ({"LC_ALL": "C", "LANG": "en_US.UTF-8"}, False),
    ({"LC_CTYPE": "en_US.UTF-8", "LANG": "C"}, True),
    ({"LC_CTYPE": "C.UTF-8", "LANG": "C"}, False),
    ({"LANG": "de_DE"}, False),
    ({}, False),
])  # fmt: skip
def test_the_locale_chooses(environ: Mapping[str, str], is_utf8: bool) -> None:
    """LC_ALL goes before LC_CTYPE before LANG; a value that Python set itself does not count."""
    assert glyphs.glyphs_of_locale(environ) == (glyphs.UTF8 if is_utf8 else glyphs.ASCII)


@each("term", ["linux", "linux-16color", "screen.linux"])
def test_the_linux_console_has_signs_of_its_own(term: str) -> None:
    """They depend on the locale too: without UTF-8 the console shows ASCII."""
    environ = {"TERM": term, "LANG": "C.UTF-8"}
    assert glyphs.glyphs_of_locale(environ) == glyphs.LINUX_CONSOLE
    assert glyphs.glyphs_of_locale({"TERM": term}) == glyphs.ASCII
    assert glyphs.glyphs_of_locale({"TERM": "xterm", "LANG": "C.UTF-8"}) == glyphs.UTF8
    names = [glyphs.describe_glyphs(signs) for signs in (glyphs.UTF8, glyphs.LINUX_CONSOLE)]
    assert names == ["UTF-8", "of the Linux console"]


def drawn_signs() -> set[str]:
    """The signs beyond ASCII in the code of the screens and in their style sheets' borders."""
    texts = [path.read_text() for path in (ROOT / "tui").rglob("*.py")]
    braille = {chr(graphs.BRAILLE + bits) for bits in range(256)}
    return {sign for text in texts for sign in text if not sign.isascii()} | braille


def test_each_drawn_sign_is_in_the_fonts_of_the_linux_console() -> None:
    """Every sign that the code of a screen has is there, or its replacement, of the same width;
    only the mark of a sent mail is printed nowhere but in UTF-8."""
    for sign in drawn_signs() - {"✓"}:
        shown = sign.translate(glyphs.LINUX_CONSOLE)
        assert shown.isascii() or shown in glyphs.CONSOLE_FONT, sign
        assert len(shown) == 1
    sparks = glyphs.SPARKS.translate(glyphs.LINUX_CONSOLE)
    assert len(set(sparks)) == len(glyphs.SPARKS)
    assert "Größe 東京".translate(glyphs.LINUX_CONSOLE) == "Größe 東京"


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
