"""Several logs merged by time: paging, filters, rotation, search, and the mentions of a task."""

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate, pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.logs import log_file, log_filter, log_line, merged_log
from engine.logs.byte_search import has_only_contract_lines, matching_entries, matching_lines
from engine.logs.line_counts import LineRates, LogCounts
from engine.logs.log_file import FileEntry
from engine.logs.log_filter import ALL_LINES, WARN, LineFilter, lines_containing, parse_line_filter
from engine.logs.log_line import LogLine, SharedLog, parse_log_line
from engine.logs.merged_log import BEGIN, END, LineScan, LogPosition, MergedLog, run_to_end
from engine.logs.rotated_log import NO_LOG_FILE
from tests.examples import examples
from tests.open_files import open_files
from tests.tables import each

NOON = 1_795_176_000.0
"""2026-11-20 12:00:00Z."""


def stamp(second: float) -> str:
    """So many seconds after noon, as a log of the contract has it."""
    return time.strftime("[%Y-%m-%d %H:%M:%S]", time.gmtime(NOON + second))


def line(second: float, text: str, level: str = "INFO") -> str:
    """A line of the contract."""
    return f"{stamp(second)} [{level}] {text}\n"


@contextmanager
def a_book(
    *texts: str | bytes, cell: int = log_file.CELL_BYTES
) -> Iterator[tuple[MergedLog, list[Path]]]:
    """A book of logs that hold these texts."""
    with TemporaryDirectory() as folder:
        paths = [Path(folder) / f"{number}.log" for number in range(len(texts))]
        for path, text in zip(paths, texts, strict=True):
            path.write_bytes(text.encode() if isinstance(text, str) else text)
        book = MergedLog([str(path) for path in paths], cell)
        book.refresh()
        try:
            yield book, paths
        finally:
            book.close()


def scanned(book: MergedLog, mark: LogPosition, **how: Any) -> LineScan:
    """A scan from a place, run to its end."""
    scan = LineScan(book, mark, **how)
    run_to_end(scan)
    return scan


def paged(
    book: MergedLog,
    mark: LogPosition,
    forward: bool,
    page: int = 3,
    through: LineFilter = ALL_LINES,
) -> list[FileEntry]:
    """All the lines in a direction, page by page, in the order of the book."""
    file_entries: list[FileEntry] = []
    how: dict[str, Any] = {"sieve": through, "want": page, "forward": forward, "step_cells": 2}
    while True:
        scan = scanned(book, mark, **how)
        assert scan.exhausted or len(scan.found) == page
        file_entries = [*file_entries, *scan.entries] if forward else [*scan.entries, *file_entries]
        mark = scan.reached
        if scan.exhausted:
            return file_entries


def both_ways(book: MergedLog, page: int = 3, through: LineFilter = ALL_LINES) -> list[FileEntry]:
    """All the lines, which are the same from either end."""
    down = paged(book, BEGIN, True, page, through)
    assert paged(book, END, False, page, through) == down
    return down


def found_at(book: MergedLog, second: float, **how: Any) -> merged_log.TimeSearch:
    """A search for a time, so many seconds after noon, run to its end."""
    search = merged_log.TimeSearch(book, NOON + second, **how)
    run_to_end(search)
    return search


def texts(entries: Sequence[FileEntry]) -> list[str]:
    """What they say."""
    return [entry.line.text for entry in entries]


def add(path: Path, text: str | bytes) -> None:
    """Append to a log, as another process does."""
    with path.open("ab") as file:
        file.write(text.encode() if isinstance(text, str) else text)


# The order

Said = tuple[int | None, str, int]
"""Seconds after noon, or None for a line without a time; a word; and how often it is said."""

says = st.tuples(st.none() | st.integers(0, 40), st.sampled_from("xyz"), st.integers(1, 60))
logs = st.lists(st.lists(says, max_size=12), min_size=1, max_size=3)


def written(log: Sequence[Said]) -> str:
    """The text of such a log, each line with its number in it."""
    stamps = ["" if at is None else f"{stamp(at)} [INFO] " for at, _, _ in log]
    return "".join(f"{stamps[n]}{n} {word * times}\n" for n, (_, word, times) in enumerate(log))


def plain_merge(all_of: Sequence[Sequence[Said]]) -> list[str]:
    """The texts of the lines in the order of time, each log in its own order."""
    keyed = []
    for file, log in enumerate(all_of):
        highest = accumulate([-1 if at is None else at for at, _, _ in log], max)
        keyed += [(t, file, n, f"{n} {log[n][1] * log[n][2]}") for n, t in enumerate(highest)]
    return [text for *_, text in sorted(keyed)]


def put_in_order(log: Sequence[Said]) -> list[Said]:
    """The same with its times in order; lines without one stay without."""
    times = iter(sorted(at for at, _, _ in log if at is not None))
    return [(None if at is None else next(times), word, n) for at, word, n in log]


def matching(entries: Iterable[FileEntry], through: LineFilter) -> list[FileEntry]:
    """Those that a filter leaves."""
    return [entry for entry in entries if through.is_match(entry.rank, entry.line.text)]


@given(
    logs, st.integers(1, 7), st.integers(-5, 45), st.booleans(), st.none() | st.integers(64, 200)
)
@examples(60)
def test_one_order_from_everywhere(
    all_of: list[list[Said]], page: int, second: int, torn: bool, cell: int | None
) -> None:
    """From either end and from a time, with any times, the order is that of a plain merge."""
    if cell is not None:
        all_of = [put_in_order(log) for log in all_of]
    contents = [written(log).removesuffix("\n" if torn else "") for log in all_of]
    with a_book(*contents, cell=cell or log_file.CELL_BYTES) as (book, _):
        at = found_at(book, second).position
        down, up = paged(book, BEGIN, True, page), paged(book, END, False, page)
        before, after = paged(book, at, False, page), paged(book, at, True, page)
    kept = cell and cell - len(stamp(0)) - 8
    expected = [text[:kept] for text in plain_merge(all_of)]
    for found in (down, up, before + after):
        assert [text[:kept] for text in texts(found)] == expected
    assert all(entry.key[0] < NOON + second for entry in before)
    assert all(entry.key[0] >= NOON + second for entry in after)


@given(logs, st.integers(64, 200), st.integers(-5, 45))
@examples(60)
def test_a_clock_set_back_loses_no_line(all_of: list[list[Said]], cell: int, second: int) -> None:
    """However far times go back, each log keeps its order, and each line comes once."""
    with a_book(*(written(log) for log in all_of), cell=cell) as (book, _):
        at = found_at(book, second).position
        down, up = paged(book, BEGIN, True), paged(book, END, False)
        around = paged(book, at, False) + paged(book, at, True)
        files = [file.number for file in book.files]
    for page in (down, up, around):
        for file, log in zip(files, all_of, strict=True):
            own = [entry for entry in page if entry.key[1] == file]
            assert [entry.key[2] for entry in own] == sorted(entry.key[2] for entry in own)
            assert [text.split()[0] for text in texts(own)] == [str(n) for n in range(len(log))]


@given(logs, st.sampled_from(["x", "!y", "xx|zz", "~^1", "x | yyy !z"]), st.integers(64, 400))
@examples(60)
def test_a_filter_only_leaves_lines_out(all_of: list[list[Said]], words: str, cell: int) -> None:
    """What it leaves is the same in both directions, and as many lines as the tally counts."""
    through = parse_line_filter(words)
    with a_book(*(written(put_in_order(log)) for log in all_of), cell=cell) as (book, _):
        for forward, mark in ((True, BEGIN), (False, END)):
            expected = matching(paged(book, mark, forward), through)
            assert paged(book, mark, forward, through=through) == expected
        tally = LogCounts(book, through, step_cells=2)
        run_to_end(tally)
        assert (tally.lines, tally.matching) == (sum(map(len, all_of)), len(expected))


phrases = st.sampled_from([
    "] [ERROR] ", "error", "550 unk", "ERROR] x", "Unk\u00fcown", "2026-11-20", "", "a",
    "Stra\u00dfe STRASSE",
])  # fmt: skip
levels = st.sampled_from(["DEBUG", "INFO", "SUCCESS", "WARN", "Error", "FATAL"])
searches = [
    "", "error", "unk", "550|a", "error 550 | x", "!error", "~err", "2026-11", "]", "strasse", "S",
    "asst",
]  # fmt: skip
searches += ["STRA\u00dfE", "sx|ras", "!asse"]
WHEN = "[2026-01-07 12:01:02]"
others = ["x\n", "\n", "[x] [INFO] y\n", f"{WHEN} INFO\n", f"{WHEN} [] a\n", f"{WHEN} [IN-FO] a\n"]
others += [f"[{time}] [INFO] a\n" for time in (
    "2026-13-07 12:01:02", "2026-00-07 12:01:02", "2026-01-32 12:01:02", "1026-01-07 12:01:02",
    "2026-01-07 24:01:02", "2026-01-07 12:60:02", "2026-01-07 12:01:61",
)]  # fmt: skip


LINES = st.lists(st.tuples(st.integers(0, 3000), levels, phrases), max_size=12)


@examples(200)
@given(LINES, st.sampled_from(searches), st.integers(0, 3))
def test_bytes_are_searched_alike(said: list[tuple[int, str, str]], words: str, level: int) -> None:
    """Lines in the contract's format are matched without parsing each, with the same result."""
    through = parse_line_filter(words, level)
    lines = [line(at, text, name).encode() for at, name, text in said]
    data, expected, begin = b"".join(lines), [], 0
    assert has_only_contract_lines(data)
    for raw in lines:
        parsed = parse_log_line(raw, "")
        expected += [begin] * through.is_match(log_filter.level_rank(parsed.level), parsed.text)
        begin += len(raw)
    assert list(matching_lines(data, through)) == expected


SAID = st.lists(st.tuples(st.integers(0, 40), levels, phrases) | st.just("x\n"), max_size=60)
NEEDLES = st.sampled_from(["needle", "!needle", "error", ""])


@examples(100)
@given(SAID, NEEDLES, st.sampled_from([64, 400, 2000]))
def test_few_matches_are_parsed_alone(said: list[Any], words: str, cell: int) -> None:
    """They have the keys, texts and ends that they have when all lines of a cell are parsed."""
    sieve = parse_line_filter(words)
    text = "".join(
        one if isinstance(one, str) else line(one[0], "needle" if n % 7 == 3 else one[2], one[1])
        for n, one in enumerate(said)
    )
    with a_book(text, cell=cell) as (book, _):
        for file in book.files:
            for number in range(file.cell_count):
                entries = matching(matching_entries(file, number, sieve), sieve)
                assert entries == matching(file.entries(number), sieve)


@each("other", others)
def test_a_line_in_another_format_is_parsed(other: str) -> None:
    """One line without a time and a level of its own, and all lines of its cell are parsed."""
    for text in (line(1, "a") + other + line(2, "b"), other + line(1, "a"), line(1, "a") + other):
        assert not has_only_contract_lines(text.encode())


def test_a_traceback_belongs_to_its_line() -> None:
    """Lines without a time stay behind their line, in any direction, and share its level."""
    fault = line(5, "failed", "ERROR") + "Traceback:\n" + "  boom\n" * 30
    with a_book(fault, line(5, "other"), cell=64) as (book, _):
        found = texts(both_ways(book))
        errors = texts(paged(book, END, False, through=LineFilter(WARN)))
    assert found == ["failed", "Traceback:", *["  boom"] * 30, "other"]
    assert errors == found[:-1]


def test_a_time_is_found_in_a_log_that_is_not_in_order() -> None:
    """Where times go back, a jump reads all of it for the first line that is not before."""
    seconds = [*range(0, 300, 10), *range(100, 700, 10), *range(90, 900, 10)]
    log = "".join(line(second, f"{n}") for n, second in enumerate(seconds))
    with a_book(log, cell=64) as (book, _):
        seek = found_at(book, 100, step_cells=4)
        assert texts(scanned(book, seek.position).found) == [str(seconds.index(100))]
        assert seek.total > 0
        assert paged(book, found_at(book, 1000).position, True) == []


# What happens to logs


def fresh(book: MergedLog, mark: LogPosition) -> tuple[list[FileEntry], LogPosition]:
    """What has come behind a place, and the place behind that."""
    book.refresh()
    scan = scanned(book, mark, want=1000)
    return scan.entries, scan.reached


def the_end(book: MergedLog) -> LogPosition:
    """The place behind all there is now, that stays where it is."""
    return scanned(book, END, want=1).reached


def test_a_torn_line_is_shown_torn_and_then_whole() -> None:
    """When its end comes it is the same line, once, and a filter judges it by the whole."""
    with a_book(line(1, "a") + "[2026-11-20 12:") as (book, (path,)):
        warnings = scanned(book, BEGIN, sieve=LineFilter(WARN), want=10)
        (a, torn), mark = fresh(book, LogPosition(BEGIN.key))
        add(path, "00:02] [WARN] b\n" + line(3, "c"))
        later, mark = fresh(book, mark)
        again, _ = fresh(book, mark)
        up = paged(book, END, False)
        more = scanned(book, warnings.reached, sieve=LineFilter(WARN), want=10)
    assert (a.is_torn, torn.is_torn) == (False, True)
    assert [(entry.line.text, entry.is_torn) for entry in later] == [("b", False), ("c", False)]
    assert (later[0].key[1:], later[0].rank, again) == (torn.key[1:], WARN, [])
    assert texts(up) == ["a", "b", "c"]
    assert (texts(warnings.found), texts(more.found)) == ([], ["b"])


def test_long_rotated_files_are_closed() -> None:
    """The last ones stay readable."""
    with a_book(line(0, "0")) as (book, (path,)):
        for number in range(1, 10):
            path.rename(path.with_suffix(f".{number}"))
            path.write_text(line(number, f"{number}"))
            book.refresh()
        assert texts(paged(book, BEGIN, True)) == ["7", "8", "9"]
        assert len(book.files) == 3


def test_a_closed_book_holds_no_file_open() -> None:
    """However often its files were rotated and emptied."""
    before = open_files()
    with a_book(line(1, "a")) as (book, (path,)):
        for number in range(5):
            path.rename(path.with_suffix(f".{number}"))
            path.write_text(line(number, "b"))
            book.refresh()
            os.truncate(path, 0)
            book.refresh()
    assert not open_files() - before


def test_a_scan_outlives_a_truncation() -> None:
    """A log that is emptied in the middle of a scan ends it, and does not hang it."""
    log = "".join(line(n, f"{n}") for n in range(400))
    with a_book(log, cell=64) as (book, (path,)):
        scan = LineScan(book, END, lines_containing("nothing"), forward=False, step_cells=2)
        scan.step()
        os.truncate(path, 0)
        book.refresh()
        run_to_end(scan)
    assert scan.exhausted
    assert scan.found == []


def test_logs_that_come_and_go_are_named(tmp_path: Path) -> None:
    """A path that is no file, not there or removed has its reason; a later log is read whole."""
    path, folder, later = (tmp_path / name for name in ("a.log", "folder", "later"))
    path.write_text(line(1, "a"))
    folder.mkdir()
    book = MergedLog([str(path), str(folder), str(later)])
    book.refresh()
    assert book.troubles == {str(folder): "expected a regular file", str(later): NO_LOG_FILE}
    path.unlink()
    later.write_text(line(2, "b"))
    assert book.refresh()
    assert str(later) not in book.troubles
    gone = "removed; its former lines are still shown"
    assert book.troubles[str(path)] == gone
    assert texts(paged(book, BEGIN, True)) == ["a", "b"]
    book.close()

    two = {"/x/queue.log": NO_LOG_FILE, "/x/mail.log": NO_LOG_FILE}
    three = {**two, "/x/mail.log": "Permission denied\x1b"}
    for troubles, words in (
        ({}, ""),
        ({"/x/mail.log": NO_LOG_FILE}, "mail.log does not exist"),
        (two, "queue.log and mail.log do not exist"),
        (dict.fromkeys(("/x/a", "/x/b", "/x/c\x1b"), NO_LOG_FILE), "a, b and c\ufffd do not exist"),
        (three, "mail.log: Permission denied\ufffd; queue.log does not exist"),
    ):
        assert merged_log.describe_troubles(troubles) == words


# Any content


def test_a_line_of_megabytes_is_cut_and_says_by_how_much() -> None:
    """Its beginning is kept, as what is behind NULs; hidden bytes are counted, no line is lost."""
    with a_book(line(1, "a") + line(2, "y" * 1_000_000) + line(3, "b")) as (book, _):
        found = both_ways(book)
        before = scanned(book, LogPosition(found[2].key), want=1, forward=False)
    assert before.found == [found[1]]
    assert [len(text) for text in texts(found)] == [1, log_file.CELL_BYTES - 29, 1]
    assert found[1].hidden_bytes == 1_000_000 + 29 - log_file.CELL_BYTES
    hole = b"\0" * 300_000
    with a_book(hole + line(1, "found me").encode() + line(2, "b").encode()) as (book, _):
        found = paged(book, BEGIN, True)
        assert texts(paged(book, END, False, through=lines_containing("FOUND"))) == ["found me"]
    assert texts(found) == ["found me", "b"]
    assert (found[0].hidden_bytes, found[0].line.when) == (300_000, NOON + 1)


@each("words", ["", "FOUND"])
def test_a_hole_of_a_truncated_log_is_not_read(monkeypatch: pytest.MonkeyPatch, words: str) -> None:
    """The lines before and behind gigabytes of NULs are shown and searched without reading them."""
    read: list[int] = []
    pread = os.pread

    def noted(fd: int, size: int, at: int) -> bytes:
        read.append(size)
        return pread(fd, size, at)

    with a_book(line(1, "found me")) as (book, (path,)):
        with path.open("r+b") as file:
            file.seek(256 << 20)
            file.write((line(2, "b") + line(3, "found you")).encode())
        book.refresh()
        monkeypatch.setattr(os, "pread", noted)
        found = texts(both_ways(book, through=lines_containing(words) if words else ALL_LINES))
    assert found == [text for text in ("found me", "b", "found you") if words.lower() in text]
    assert sum(read) < 16 << 20


@given(st.lists(st.binary(max_size=300), max_size=4), st.integers(64, 120))
@examples(60)
def test_binary_data_is_lines_like_any_other(logs: list[bytes], cell: int) -> None:
    """With any bytes, all of them belong to one line each, in both directions."""
    with a_book(*logs, cell=cell) as (book, _):
        down, up = paged(book, BEGIN, True), paged(book, END, False)
        files = [file.number for file in book.files]
    for file, data in zip(files, logs, strict=True):
        begins = [0, *(n + 1 for n, byte in enumerate(data) if byte == 10)]
        begins = [at for at in begins if at < len(data)]
        is_torn = bool(data) and not data.endswith(b"\n")
        for page in (down, up):
            own = [entry for entry in page if entry.key[1] == file]
            assert [entry.key[2] for entry in own] == begins
            assert [entry.end_offset for entry in own] == [*begins, len(data)][1:]
            assert [entry.is_torn for entry in own if entry.is_torn] == [True] * is_torn


# Long work


def a_long_log(lines: int = 3000) -> str:
    """A log whose first line says what no other does."""
    return line(0, "needle") + "".join(line(n, f"hay {n}") for n in range(1, lines))


def test_a_search_reads_a_bounded_step_at_a_time() -> None:
    """Steps grow only so far, and progress is known; to open at the end reads only the end."""
    with a_book(a_long_log(), cell=1024) as (book, _):
        (file,) = book.files
        end = scanned(book, END, want=10, forward=False)
        assert texts(end.entries) == [f"hay {n}" for n in range(2990, 3000)]
        assert end.read <= 2 * 1024
        assert min(cell for _, cell in file._cells) >= file.cell_count - 3

        scan = LineScan(book, END, lines_containing("needle"), forward=False, step_cells=4)
        seen = [scan.read]
        while not scan.done:
            scan.step()
            seen.append(scan.read)
        steps = [after - before for before, after in pairwise(seen)]
        assert texts(scan.found) == ["needle"]
        assert steps[1] > steps[0] and max(steps) <= merged_log.MAX_STRIDE * 4 * 1024
        assert len(steps) <= book.size // (merged_log.MAX_STRIDE * 4 * 1024) + 5
        assert scan.total == book.size


def test_a_tally_goes_on_where_logs_grow() -> None:
    """Nothing is counted twice, a torn line at its end; from a place on, only what came behind."""
    with a_book(a_long_log() + "[2026-11", line(1, "b"), cell=1024) as (book, (path, second)):
        tally = LogCounts(book, lines_containing("hay"), step_cells=4)
        run_to_end(tally)
        before = (tally.lines, tally.matching, tally.total)
        later = LogCounts(book, ALL_LINES, the_end(book))
        add(path, "-20 13:00:00] [INFO] more hay\n" + line(9999, "other"))
        second.rename(second.with_suffix(".1"))
        second.write_text(line(30_000, "d") + line(30_001, "e"))
        assert (book.refresh(), book.refresh()) == (True, False)
        run_to_end(tally)
        run_to_end(later)
        assert before[:2] == (3001, 2999)
        assert (tally.lines, tally.matching) == (3005, 3000)
        assert later.lines == 4


# Lines that mention a task


def test_the_lines_that_mention_a_task() -> None:
    """The last ones of all logs, by time, within a limit; what is missing or unread is said."""
    log = "".join(line(n, f"task T-{n % 5}") for n in range(100))
    with a_book(log, line(50, "T-3 sent"), a_long_log(), cell=1024) as (_, paths):
        *both, long = map(str, paths)
        mentions = merged_log.find_mentions([*both, "/nowhere"], "T-3", 100)
        last = merged_log.find_mentions(both, "T-3", 2)
        since = merged_log.find_mentions(both, "T-3", 100, since=NOON + 50)
        a_part = merged_log.find_mentions([long], "needle", 10, most=4096, cell=1024)
        all_of_it = merged_log.find_mentions([long], "needle", 10, cell=1024)
    assert [line.when for line in mentions.lines if line.when is not None] == sorted(
        NOON + n for n in [*range(3, 100, 5), 50]
    )
    assert (mentions.has_more, mentions.troubles) == (False, {"/nowhere": NO_LOG_FILE})
    assert ([line.when for line in last.lines], last.has_more) == ([NOON + 93, NOON + 98], True)
    assert (len(since.lines), since.has_more) == (11, False)
    assert (a_part.lines, a_part.has_more) == ((), True)
    assert [line.text for line in all_of_it.lines] == ["needle"]


# What is typed


WORDS: dict[str, tuple[str, str | None]] = {
    # typed: what fits, and what does not
    "421 gmail": ("421 at GMAIL", "421 at yahoo"), "421|lock": ("a lock", "a log"),
    "gmail 421|lock": ("gmail lock", "lock"), "a b | c": ("xc", "a"),
    "!healthz": ("other", "GET /healthz"), '"try again"': ("then try again", "again try"),
    "~^task-\\d+$": ("task-12", "a task-12"), "/t.sk \\d/": ("Task 7", "tusk"),
    "/var/log": ("in /var/log/x", "in var"), "/var/log/": ("at var/log", "at var"),
    "log/": ("a log/b", "log"), "!~^a": ("ba", "ab"), "": ("anything", None),
}  # fmt: skip


def test_words_are_a_filter() -> None:
    """AND by blanks, OR by `|`, NOT by `!`; what means nothing is refused, with its place."""
    for words, (fits, fails) in WORDS.items():
        through = parse_line_filter(words)
        assert through.is_match(1, fits), words
        assert fails is None or not through.is_match(1, fails), words
    for words, at, message in (
        ("~(", 1, "invalid pattern"), ('a "b', 2, 'expected a closing "'),
        ("a |", 2, "both sides"), ("| a", 0, "both sides"), ("!", 1, "expected a word"),
    ):  # fmt: skip
        with pytest.raises(log_filter.BadWords, match=message) as refused:
            parse_line_filter(words)
        assert refused.value.at == at


TIMES = {
    **{"11:00": -3600, "11:59:58": -2, "13:00": 3600 - 86400, "today 13:00": 3600},
    **{"yesterday 18:00": 6 * 3600 - 86400, "yesterday": -36 * 3600, "-10m": -600},
    **{"-2d": -2 * 86400, "2026-11-20": -12 * 3600, "2026-11-20 12:00:01": 1},
    **{"2026-11-20T12:00:00Z": 0, "2026-11-20t12:00:00z": 0},
}


def test_times_as_they_are_typed() -> None:
    """A time of day is the last one that has been; others mean themselves, or are refused."""
    assert {text: log_filter.parse_typed_time(text, NOON) - NOON for text in TIMES} == TIMES
    for text in ("", "25:00", "noon", "-m", "12", "12:60"):
        with pytest.raises(ValueError, match="expected"):
            log_filter.parse_typed_time(text, NOON)


def test_a_task_is_not_taken_for_one_whose_name_ends_alike(tmp_path: Path) -> None:
    """Ids hold one another, or differ by case alone; a line of JSON names a task by its parts."""
    path = tmp_path / "log"
    claimed = '{"ts":"2026-11-20T12:00:00Z","event":"claimed","reg":%d,"type":"%s"}\n'
    completed = [f"Task completed: {id} (user)" for id in ("7-user", "17-user", "7-User")]
    records = [claimed % task for task in ((17, "user"), (7, "user"), (7, "users"))]
    path.write_text("".join([*records, *(line(3, text) for text in completed)]))
    mentions = merged_log.find_mentions([str(path)], "7-user", 10)
    assert {line.text for line in mentions.lines} == {"claimed 7-user", completed[0]}
    may_match = log_filter.lines_naming_task("7-user").may_match
    queued = [line(3, f"Task queued: {id}-user").encode() for id in (8, 17)]
    assert [may_match(raw) for raw in queued] == [False, True]


@each("cell", [100, log_file.CELL_BYTES])
def test_a_shared_log_is_read_for_one_database(tmp_path: Path, cell: int) -> None:
    """What is said of another one's tasks is no line of the book: not shown, found nor counted."""
    log = tmp_path / "mail-queue.log"
    text = '{"ts": "2026-11-20T12:00:%02dZ", "event": "sent", "reg": 7, "type": "user", "db": "%s"}'
    log.write_text("".join(f"{text}\n" % (at, "/b.db" if at % 3 else "/a.db") for at in range(60)))
    book = MergedLog([SharedLog(str(log), "/a.db")], cell)
    book.refresh()
    for through in (ALL_LINES, parse_line_filter("sent"), log_filter.lines_naming_task("7-user")):
        tally = LogCounts(book, through)
        run_to_end(tally)
        assert (tally.lines, tally.matching) == (20, 20)
        assert len(both_ways(book, through=through)) == 20
    assert len(merged_log.find_mentions([SharedLog(str(log), "/b.db")], "7-user", 99).lines) == 40
    book.close()


@each(("garbage", "parsed_at_most"), [(b"[x\n", 40), (b"{\n", 40 * 50)])
def test_garbage_before_a_line_is_searched_only_so_far(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, garbage: bytes, parsed_at_most: int
) -> None:
    """In search of the time of a line without one, only so many cells of garbage are parsed."""
    path = tmp_path / "queue.log"
    path.write_bytes(b"[2026-01-07 12:01:02] [INFO] begins\n" + garbage * 20_000)
    parsed: list[bytes] = []
    real = log_line.parse_log_line

    def counting(raw: bytes, source: str, *_: float | None, zone: log_line.Zone | None) -> LogLine:
        parsed.append(raw)
        return real(raw, source)

    monkeypatch.setattr(log_file, "parse_log_line", counting)
    file = log_file.LogFile(str(path), 0, os.open(path, os.O_RDONLY), log_file.FileCache(100))
    file.check_growth()
    entries = file.entries(file.cell_count - 1)
    file.close()
    assert entries[-1].line.text == garbage.decode().strip()
    assert len(parsed) <= parsed_at_most


@pytest.mark.parametrize("cell", [100, log_file.CELL_BYTES])
def test_lines_are_counted_by_their_second(cell: int) -> None:
    """Lines and errors are in the part of their time as logs grow; a torn line once it is whole."""
    lines = [line(second, "x", "ERROR" if second % 10 == 0 else "INFO") for second in range(100)]
    with a_book("".join(lines[:80]), line(5, "other"), cell=cell) as (book, paths):
        rates = LineRates(book, NOON + 20)
        run_to_end(rates)
        assert rates.parts(4, NOON, NOON + 80) == [(0, 0), (20, 2), (20, 2), (20, 2)]

        for text in ("".join(lines[80:90]) + "[2026-", "11-20 12:01:35] [ERROR] torn\n"):
            add(paths[0], text)
            book.refresh()
            run_to_end(rates)
        assert rates.parts(2, NOON + 80, NOON + 100) == [(10, 1), (1, 1)]
