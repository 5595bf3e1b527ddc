"""Frames as changes: after any frame, the terminal shows the frame, in few bytes."""

from __future__ import annotations

import re
from typing import TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len, get_character_cell_size
from rich.color import ColorSystem
from rich.segment import Segment
from rich.style import Style
from textual._compositor import ChopsUpdate, LayoutUpdate
from textual.geometry import Region
from textual.strip import Strip

from tui.terminal.screen_cells import CellStyle, ScreenCells, parse_codes

WIDTH, ROWS = 24, 3
STYLES = [
    Style.parse(words)
    for words in (
        *("", "white on black", "#d5dbe5 on #10141b", "#d5dbe5 on #22324a", "color(200)"),
        *("bold red", "bold dim", "underline on blue", "reverse", "strike bright_cyan", "overline"),
    )
]
OFF = {"22": "12", "23": "3", "24": "4", "25": "5", "27": "7", "29": "9"}
"""The attributes that a code ends."""

TOKEN = re.compile(r"\x1b\[([\d;]*)([HGm])|\r\n|[^\x1b\r\n]")

Row: TypeAlias = list[tuple[str, Style]]
Shown: TypeAlias = tuple[str, CellStyle]

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


def visible(text: str, style: CellStyle) -> Shown:
    """What one sees: of a blank without lines through it only the ground."""
    plain = text == " " and style.attributes.isdisjoint({"4", "7", "9", "53"})
    return (text, CellStyle(ground=style.ground) if plain else style)


def wanted(rows: list[Row]) -> dict[tuple[int, int], Shown]:
    """What each cell is to show; the second half of a wide character shows nothing."""
    cells: dict[tuple[int, int], Shown] = {}
    for y, row in enumerate(rows):
        x = 0
        for text, style, _ in strip_of(row):
            cell_style = parse_codes(Strip.render_ansi(style or Style(), ColorSystem.TRUECOLOR))
            for character in text:
                cells[y, x] = visible(character, cell_style)
                x += get_character_cell_size(character)
    return cells


class Emulator:
    """A terminal that understands what is sent to it, and nothing else."""

    def __init__(self) -> None:
        self.cells: dict[tuple[int, int], Shown] = {}
        self.style = CellStyle(frozenset({"7"}), "35", "46")

    def feed(self, sent: str) -> None:
        """Show that."""
        y = x = at = 0
        while at < len(sent):
            token = TOKEN.match(sent, at)
            assert token, sent[at:]
            at = token.end()
            codes, final = token[1], token[2]
            if final == "m":
                self.turn(codes)
            elif final == "H":
                y, x = (int(each) - 1 for each in codes.split(";"))
            elif final == "G":
                x = int(codes) - 1
            elif token[0] == "\r\n":
                y, x = y + 1, 0
            else:
                for half in range(1, cell_len(token[0])):
                    self.cells.pop((y, x + half), None)
                self.cells[y, x] = visible(token[0], self.style)
                x += cell_len(token[0])
                assert x <= WIDTH and y < ROWS

    def turn(self, codes: str) -> None:
        """Change the style in force, as SGR does."""
        for attributes, front, ground in map(parse_codes, re.findall(_ONE_CODE, codes)):
            ended = {each for code in attributes for each in OFF.get(code, "")}
            kept = frozenset() if "0" in attributes else self.style.attributes - ended
            style = CellStyle() if "0" in attributes else self.style
            begun = attributes - OFF.keys() - {"0"}
            self.style = CellStyle(kept | begun, front or style.front, ground or style.ground)
        if "39" in codes.split(";"):
            self.style = self.style._replace(front="")
        if "49" in codes.split(";"):
            self.style = self.style._replace(ground="")


_ONE_CODE = r"[34]8;2;\d+;\d+;\d+|[34]8;5;\d+|\d+"


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


A, B, CURSOR = STYLES[2], STYLES[5], STYLES[3]


@pytest.mark.parametrize(
    ("before", "after", "sent"),
    [
        ([("14:31:04", A)], [("14:31:04", A)], ""),
        ([("14:31:04", A)], [("14:31:05", A)], "\x1b[1;8H\x1b[48;2;16;20;27m5"),
        ([("1 of 2", A)], [("2 of 1", A)], "\x1b[1;1H\x1b[48;2;16;20;27m2 of 1"),
        ([("1", B), ("  to", A), ("1", B)], [("2", B), ("  to", A), ("2", B)], "2\x1b[6G2"),
    ],
    ids=["nothing", "a second of the clock", "a small gap", "a gap in another style"],
)
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
