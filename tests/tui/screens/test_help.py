"""The help screen: the order of its keys, its columns and its facts."""

from __future__ import annotations

import pytest

from tests.console_operator import an_operator, words
from tests.console_places import a_memory, a_place, some_tasks
from tui.key_tables import keys_on
from tui.screens.help import HelpScreen, help_lines
from tui.text import keys


def test_common_keys_come_first() -> None:
    """Keys that show and act are the first groups, and those that move the last one; in each the
    rare ones are last."""
    text = words(help_lines(keys_on, keys.LIST, (), 80))
    order = [
        " View ",
        "  Enter ",
        "  w ",
        "  1-9 ",
        "  Tab ",
        " Act ",
        "  R ",
        "  X ",
        "  Q ",
        " Mark ",
    ]
    order.append(" Move ")
    places = [text.index(name) for name in order]
    assert places == sorted(places)


@pytest.mark.parametrize("key", ["1", "2"])
async def test_the_help_has_two_columns_at_80_columns(key: str) -> None:
    """The keys that act are beside those that show, also where not all keys have room; the keys of
    the first page have those of other screens."""
    async with an_operator(a_place(a_memory(some_tasks())), size=(80, 24)) as operator:
        await operator.press(key)
        await operator.opens(HelpScreen, "?")
        await operator.until(lambda: "  Enter  " in operator.text and "  1-9  " in operator.text)
        (line,) = (line for line in operator.text.splitlines() if "- View -" in line)
        assert "- Act -" in line


async def test_the_help_has_the_size_of_a_resized_terminal() -> None:
    """A resize while the help is open changes what it shows about the terminal."""
    async with an_operator(a_place(a_memory(some_tasks())), size=(80, 24)) as operator:
        await operator.opens(HelpScreen, "?")
        await operator.press("end")
        await operator.sees("80x24")
        await operator.pilot.resize_terminal(100, 60)
        await operator.sees("100x60")


async def test_the_help_fills_both_columns() -> None:
    """Where not all keys have room, no column is blank beside groups that are below the screen."""
    async with an_operator(a_place(a_memory(some_tasks())), size=(80, 24)) as operator:
        await operator.press("9")
        await operator.opens(HelpScreen, "?")
        await operator.sees("- View -", "- Act -", "- Move -")
        rows = operator.text.splitlines()
        (top,) = (at for at, row in enumerate(rows) if "- View -" in row)
        assert sum(not row[:40].strip() for row in rows[top : top + 18]) <= 3
