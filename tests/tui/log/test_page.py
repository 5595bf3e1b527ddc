"""The page of a log, without an app: cursor, scrolling, wrapped lines."""

from __future__ import annotations

from engine.logs.log_file import FileEntry
from engine.logs.log_line import LogLine
from tui.log.log_lines import LogStyle
from tui.log.page import LogPage
from tui.text.lines import BLANK_LINE


def entries(first: int, last: int) -> list[FileEntry]:
    """Lines with these numbers, one a second."""
    return [
        FileEntry((float(n), 0, 100 * n), LogLine(float(n), "INFO", f"line {n}", "q"), 1, n)
        for n in range(first, last + 1)
    ]


def a_page(height: int = 5, number: int = 20) -> LogPage:
    """A page at the end of so many lines."""
    page = LogPage()
    page.resize(40, height)
    page.show(entries(1, number), number - 1, LogStyle(), height - 1)
    return page


def shown(page: LogPage) -> list[str]:
    """The last words on the lines of the page, the cursor's with a sign."""
    texts = ["".join(text for text, _ in page.line(y)).rstrip() for y in range(page.height)]
    return [text[:1].strip() + text.rpartition(" ")[2] for text in texts]


def test_the_cursor_scrolls_beyond_an_edge() -> None:
    """At an edge the page moves by a third; pages and halves move it, up to the last line."""
    page = a_page()
    assert shown(page) == ["16", "17", "18", "19", "▶20"]
    for _ in range(4):
        page.move("up")
    assert shown(page) == ["▶16", "17", "18", "19", "20"]
    page.move("up")
    assert shown(page)[0] == "▶15"
    page.move("page_up")
    assert page.selected_entry is not None
    assert page.selected_entry.line.text == "line 10"
    page.move("half_down")
    assert page.selected_entry.line.text == "line 12"
    for _ in range(5):
        page.move("page_down")
    assert shown(page) == ["16", "17", "18", "19", "▶20"]


def test_lines_stay_in_place_while_others_come() -> None:
    """Lines before and behind those on the page move none of them; a higher page is filled."""
    page = a_page()
    for _ in range(3):
        page.move("up")
    before = shown(page)
    page.show(entries(-10, 40), 27, LogStyle())
    assert shown(page) == before
    assert page.line_of_cursor == 1
    page.resize(40, 8)
    assert len(shown(page)) == 8
    assert shown(page)[page.line_of_cursor] == "▶17"


def test_without_entries_there_is_the_notice() -> None:
    """And no line is under the cursor."""
    page = a_page()
    page.show([], 0, LogStyle(), notice=[(("no log", ""),)])
    assert page.selected_entry is None
    assert page.line(0) == (("no log", ""),)
    assert page.line(1) == BLANK_LINE
    page.move("down")
    assert page.cursor == 0
