"""Frames as changes: after any frame, the terminal shows the frame, in few bytes."""

from __future__ import annotations

import re
from typing import TypeAlias

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import get_character_cell_size
from rich.color import ColorSystem
from rich.segment import Segment
from rich.style import Style
from textual._compositor import ChopsUpdate, LayoutUpdate
from textual.geometry import Region
from textual.strip import Strip

from tests.pseudo_terminals import Screen
from tests.tables import each
from tui.terminal.screen_cells import ScreenCells

WIDTH, ROWS = 24, 3
STYLES = [
    Style.parse(words)
    for words in (
        "",
        "white on black",
        "default on blue",
        "#d5dbe5 on #10141b",
        "#d5dbe5 on #22324a",
        "color(200)",
        "bold red",
        "bold dim",
        "underline on blue",
        "reverse",
        "strike bright_cyan",
        "overline",
    )
]
LINES = ("underline", "reverse", "strike", "overline")
"""What is seen of a blank, too."""

KNOWN = re.compile(r"(\x1b\[[\d;]*[HGm]|\r\n|[^\x1b\r\n])*")

Row: TypeAlias = list[tuple[str, Style]]
Cells: TypeAlias = dict[tuple[int, int], object]

ROW = st.lists(
    st.tuples(st.text(alphabet="ab  ▶⠒é字", max_size=9), st.sampled_from(STYLES)), max_size=5
)
FRAME = st.lists(ROW, min_size=ROWS, max_size=ROWS)


def strip_of(row: Row, width: int = WIDTH) -> Strip:
    """A row as wide as the screen."""
    return Strip([Segment(*part) for part in row]).adjust_cell_length(width)


def frame_of(rows: list[Row]) -> LayoutUpdate:
    """A whole frame."""
    return LayoutUpdate([[strip_of(row)] for row in rows], Region(0, 0, WIDTH, ROWS))


def visible(text: str, style: Style) -> tuple[object, ...]:
    """What one sees: of a blank without lines through it only the ground."""
    looks = {name for name in ("bold", "dim", *LINES) if getattr(style, name)}
    front, ground = (
        None if colour is None or colour.is_default else colour.get_ansi_codes()
        for colour in (style.color, style.bgcolor)
    )
    is_plain = text == " " and looks.isdisjoint(LINES)
    return (text, ground) if is_plain else (text, ground, front, looks)


def wanted(rows: list[Row]) -> Cells:
    """What each cell is to show; the second half of a wide character shows nothing."""
    cells: Cells = {}
    for y, row in enumerate(rows):
        x = 0
        for text, style, _ in strip_of(row):
            for character in text:
                cells[y, x] = visible(character, style or Style())
                x += get_character_cell_size(character)
    return cells


class Emulator(Screen):
    """A terminal that is sent nothing else than text, styles and jumps within its size."""

    def __init__(self) -> None:
        super().__init__(WIDTH, ROWS)
        super().feed("\x1b[7;35;46m")

    def feed(self, text: str) -> None:
        """Show that."""
        assert KNOWN.fullmatch(text), text
        super().feed(text)

    @property
    def cells(self) -> Cells:
        """What each cell shows."""
        return {at: visible(*cell) for at, cell in self._cells.items() if cell[0]}


@given(st.lists(FRAME, min_size=1, max_size=4))
def test_each_frame_is_shown(frames: list[list[Row]]) -> None:
    """After each frame the terminal shows it, wide characters and blanks with lines included."""
    screen, terminal = ScreenCells(), Emulator()
    for rows in frames:
        terminal.feed(screen.advance(frame_of(rows), ColorSystem.TRUECOLOR))
        assert terminal.cells == wanted(rows)


def sent_after(before: Row, after: Row) -> str:
    """What is sent for the second of two rows."""
    screen = ScreenCells()
    screen.advance(frame_of([before, [], []]), ColorSystem.TRUECOLOR)
    return screen.advance(frame_of([after, [], []]), ColorSystem.TRUECOLOR)


A, B, CURSOR = STYLES[3], STYLES[6], STYLES[4]


@each(("before", "after", "sent"), [
    ([("14:31:04", A)], [("14:31:04", A)], ""),
    ([("14:31:04", A)], [("14:31:05", A)], "\x1b[1;8H\x1b[48;2;16;20;27m5"),
    ([("1 of 2", A)], [("2 of 1", A)], "\x1b[1;1H\x1b[48;2;16;20;27m2 of 1"),
    ([("1", B), ("  to", A), ("1", B)], [("2", B), ("  to", A), ("2", B)], "2\x1b[6G2"),
])  # fmt: skip
def test_only_changed_cells_are_sent(before: Row, after: Row, sent: str) -> None:
    """A change costs a jump, its text, and a style only if another one is in force."""
    assert sent_after(before, after).endswith(sent)
    assert len(sent_after(before, after)) <= max(len(sent), 32)


def test_a_cursor_row_costs_its_text_and_one_ground() -> None:
    """A row under the cursor has another ground: each colour of its text is sent once."""
    output = sent_after([("a12", A), (" ", A), ("flowing", A)], [("a12 flowing", CURSOR)])
    assert output.count("\x1b[") == 2


def test_after_forgetting_all_is_sent() -> None:
    """When the terminal may show anything, the same frame is sent whole."""
    screen, frame = ScreenCells(), frame_of([[("one", A)], [("two", B)], []])
    first = screen.advance(frame, ColorSystem.TRUECOLOR)
    assert screen.advance(frame, ColorSystem.TRUECOLOR) == ""
    screen.forget()
    assert screen.advance(frame, ColorSystem.TRUECOLOR) == first


def test_a_scroll_is_sent_with_the_lines_that_it_brings() -> None:
    """Rows move up, and the new ones are painted, in one text; after forgetting all is sent."""
    screen, terminal = ScreenCells(), Screen(WIDTH, ROWS)
    first: list[Row] = [[("title", B)], [("one", A)], [("two", A)]]
    after: list[Row] = [[("title", B)], [("two", A)], [("three", A)]]
    terminal.feed(screen.advance(frame_of(first), ColorSystem.TRUECOLOR))
    screen.scroll_up(1, 2, 1)
    text = screen.advance(frame_of(after), ColorSystem.TRUECOLOR)
    assert ("\n" in text, "two" in text, "three" in text) == (True, False, True)
    terminal.feed(text)
    assert {at: visible(*cell) for at, cell in terminal._cells.items()} == wanted(after)
    screen.scroll_up(1, 2, 1)
    screen.forget()
    screen.scroll_up(1, 2, 1)
    assert "\n\x1b[r" not in screen.advance(frame_of(after), ColorSystem.TRUECOLOR)


def test_parts_of_a_row() -> None:
    """An update of a part changes nothing beside it."""
    screen, terminal = ScreenCells(), Emulator()
    rows: list[Row] = [[("left  right", A)], [("x", B)], []]
    terminal.feed(screen.advance(frame_of(rows), ColorSystem.TRUECOLOR))
    part = strip_of([("RIGHT", B)], 5)
    chops = [{0: None, 6: part, 11: None}, {}, {}]
    update = ChopsUpdate(chops, [(0, 6, 9), (0, 9, 11)], [[6, 11, WIDTH], [], []])
    terminal.feed(screen.advance(update, ColorSystem.TRUECOLOR))
    rows[0] = [("left  ", A), ("RIGHT", B)]
    assert terminal.cells == wanted(rows)
