"""Signs beyond ASCII are painted only where the locale says UTF-8."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from tests.console_places import a_console, a_memory, a_place, loaded, some_tasks, task_list
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


@pytest.mark.parametrize(
    ("choice", "start"), [(glyphs.ASCII, ">* 0"), (glyphs.UTF8, "▶● 0")], ids=["ASCII", "UTF-8"]
)
async def test_rows_are_painted_with_the_signs_chosen(choice: glyphs.Glyphs, start: str) -> None:
    """Cursor, mark and cut are painted with what the console was given."""
    console = a_console(a_place(a_memory(some_tasks())), glyphs=choice)
    async with console.run_test(size=(80, 24)) as pilot:
        await loaded(pilot)
        await pilot.press("space", "k")
        await pilot.pause()
        assert task_list(console).render_line(1).text.startswith(start)
