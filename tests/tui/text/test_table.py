"""One table for all lists: which columns a width has room for, and how their cells are drawn."""

from __future__ import annotations

from typing import TypeAlias

from tests.console_operator import words
from tests.tables import each
from tui.text.lines import Run, width_of
from tui.text.table import REST, Column, Table, alarm_sign

Row: TypeAlias = tuple[str, int, str]
"""Name, number, reason."""

ROWS: tuple[Row, ...] = (("mail", 7, "relay down"), ("geoban", 1204, ""))

NAME: Column[Row] = Column("NAME", 4, lambda row: (row[0], "strong"), most=9)
NUMBER: Column[Row] = Column("N", 5, lambda row: (f"{row[1]:,}", ""), right=True)
WHY: Column[Row] = Column("WHY", 6, lambda row: (row[2], "muted"), grows=REST)


def drawn(table: Table[Row], width: int) -> list[str]:
    """The titles and the rows, without the margin and the blanks at the ends."""
    head, lines = table.lines(ROWS, width)
    assert {width_of(line) for line in (head, *lines)} == {width}
    return [words([line])[3:] for line in (head, *lines)]


def test_a_column_is_as_wide_as_its_longest_cell_and_one_takes_the_rest() -> None:
    """Titles and cells are aligned, numbers to the right, up to the most of each column."""
    assert drawn(Table((NAME, NUMBER, WHY)), 40) == [
        "NAME        N  WHY",
        "mail        7  relay down",
        "geoban  1,204",
    ]
    assert drawn(Table((NAME._replace(most=5), NUMBER, WHY)), 40)[2] == "geob…  1,204"
    assert drawn(Table((NAME, WHY._replace(grows=2), NUMBER)), 40)[1] == "mail    relay d…      7"


@each(("width", "titles"), [(24, "NAME N WHY"), (23, "NAME N"), (15, "NAME")])
def test_a_narrow_table_drops_the_columns_of_the_highest_rank(width: int, titles: str) -> None:
    """Where the widths do not fit, columns go by their ranks; the others keep their widths."""
    table = Table((NAME, NUMBER._replace(rank=1), WHY._replace(rank=2)))
    head, _, row = drawn(table, width)
    assert head.split() == titles.split()
    assert row[:6] == "geoban"


def test_a_long_cell_gives_way_before_a_column_of_a_rank_below_0_is_dropped() -> None:
    """A column by its cells shrinks down to its own width before another one is lost."""
    table = Table((NAME, NUMBER, WHY._replace(rank=-1)))
    assert drawn(table, 22) == ["NAME      N  WHY", "mail      7  relay…", "geo…  1,204"]
    assert drawn(table, 21) == ["NAME      N", "mail      7", "geo…  1,204"]


def test_columns_move_together_before_one_is_lost() -> None:
    """The widest gap with which all columns fit is taken; a least width hides a column."""
    table = Table((NAME, NUMBER, WHY._replace(least=20)), gaps=(2, 1))
    assert drawn(table, 24)[1] == "mail        7  relay…"
    assert drawn(table, 22)[1] == "mail       7 relay…"
    assert drawn(table, 19)[1] == "mail        7"


def test_a_row_has_its_signs_and_styles() -> None:
    """The margin has the sign of an alarm, a chip ends with its word, a cell may have several runs,
    and a path keeps its end."""

    def state(row: Row) -> Run | list[Run]:
        return (" DOWN ", "chip-error") if row[2] else [(" OK", "ok"), (" now", "muted")]

    columns = (NAME._replace(width=4, most=0, keeps_end=True), Column("STATE", 9, state))
    table = Table(columns, margin=lambda row: alarm_sign(bool(row[2]))).fitted(ROWS, 30)
    mail, geoban = (table.line(row, 30) for row in ROWS)
    assert words([mail]).startswith(" ! mail   DOWN")
    assert (" DOWN ", "chip-error") in mail
    assert words([geoban]).startswith("   …ban   OK now")
    assert {(" OK", "ok"), (" now", "muted")} <= {(text.rstrip(), look) for text, look in geoban}


def test_a_table_without_rows_has_its_titles() -> None:
    """No row is needed to know the widths; the cells used by a line are counted without blanks."""
    table = Table((NAME, NUMBER)).fitted((), 40)
    assert words([table.titles(40)]) == "   NAME      N"
    assert table.cells == len("   NAME      N")
