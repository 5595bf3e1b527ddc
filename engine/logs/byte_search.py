"""Search the bytes of log lines in the contract's format without parsing each line.

RE2 searches two gigabytes per second in any case; parsing takes 10 us for each line. So only lines
that contain a word of the filter are decoded, and for a level alone none."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from engine.logs.log_file import NO_TIME, FileEntry, LogFile
from engine.logs.log_filter import (
    DEBUG,
    ERROR,
    INFO,
    LineFilter,
    level_names,
    level_rank,
    needles_of,
)
from engine.logs.log_line import is_repeated, parse_local_time
from engine.text import safe_regex
from engine.values import NamedTuple

_HEAD: tuple[tuple[tuple[str, str], ...], ...] = (
    (("[", ""),),
    (("2", ""),),
    (("0", ""),),
    (("0-9", ""),),
    (("0-9", ""),),
    (("-", ""),),
    (("0", "1-9"), ("1", "0-2")),
    (("-", ""),),
    (("0", "1-9"), ("12", "0-9"), ("3", "01")),
    ((" ", ""),),
    (("01", "0-9"), ("2", "0-3")),
    ((":", ""),),
    (("0-5", "0-9"),),
    ((":", ""),),
    (("0-5", "0-9"), ("6", "0")),
    (("\\]", ""),),
    ((" ", ""),),
    (("[", ""),),
    (("A-Za-z", ""),),
)
"""The head of a line, `[2026-01-07 12:01:02] [I`: characters of each place, or pairs of them."""

_LEVEL_AT = len("[2026-01-07 12:01:02] [")


def _line_without_head() -> bytes:
    """A pattern for a line feed before a line that has no head.

    It begins with a literal, which RE2 finds with memchr(3), and reads only the heads: a third of
    the time of a pattern for all lines."""
    wrong = r"[A-Za-z]*[^A-Za-z\]]"
    for place in reversed(_HEAD):
        alternatives = [f"[^{''.join(first for first, _ in place)}]"]
        alternatives += [f"[{first}][^{second}]" for first, second in place if second]
        right = "|".join(f"[{one}][{two}]" if two else f"[{one}]" for one, two in place)
        wrong = "|".join((*alternatives, f"(?:{right})(?:{wrong})"))
    return f"\\n(?:{wrong})".encode()


_LINE_WITHOUT_HEAD = _line_without_head()

PARSED_SHARE = 4
"""If more than one of so many lines of a cell matches, the whole cell is parsed, and kept."""
_END_BYTES = 2048
"""Bytes read behind a cell for the end of its last line."""


class CellLines(NamedTuple):
    """The lines that begin in a cell; of the last one at least as much as is parsed."""

    offset: int = 0
    """Offset of the first line in the file."""
    data: bytes = b""


def _read_cells(file: LogFile, first: int, last: int) -> tuple[int, bytes, int]:
    """The bytes of some cells, with parts of the lines around: their offset, the bytes, and the
    position of the first line that begins in the cells; -1 if none does."""
    size = file.cell_size
    begin, stop = first * size, min((last + 1) * size, file.size)
    base = max(0, begin - 1)
    if begin and file.is_hole(base, stop):
        return base, b"", -1
    data = file.read(base, stop - base + _END_BYTES)
    at = data.find(b"\n") + 1 if begin else 0
    if begin and (not at or base + at >= stop):
        return base, b"", -1
    if data.find(b"\n", stop - 1 - base) < 0:
        data += file.read(base + len(data), size)
    return base, data, at


def line_bytes(file: LogFile, cell: int) -> CellLines:
    """The lines that begin in a cell."""
    base, data, at = _read_cells(file, cell, cell)
    if at < 0:
        return CellLines()
    end = data.find(b"\n", min((cell + 1) * file.cell_size, file.size) - 1 - base)
    return CellLines(base + at, data[at : end + 1 if end >= 0 else len(data)])


def may_match_cells(file: LogFile, first: int, last: int, sieve: LineFilter) -> bool:
    """False if certainly no line that begins in these cells matches. The bytes are searched as they
    were read, with parts of the lines around: no copy is made."""
    if sieve.matches_all:
        return True
    _, data, at = _read_cells(file, first, last)
    return at >= 0 and sieve.may_match(data, at)


def contract_lines(file: LogFile, cell: int) -> CellLines:
    """The lines that begin in a cell, if all are whole and in the contract's format, or none."""
    lines = line_bytes(file, cell)
    data = lines.data
    begin = data.rfind(b"\n", 0, -1) + 1  # of the last line
    is_whole = data.endswith(b"\n") and len(data) - 1 - begin <= file.cell_size
    return lines if is_whole and has_only_contract_lines(data) else CellLines()


def matching_entries(file: LogFile, cell: int, sieve: LineFilter) -> Sequence[FileEntry]:
    """The lines of a cell that may match, as `LogFile.entries` has them; if few, only those."""
    if sieve.matches_all:
        return file.entries(cell)
    if not may_match_cells(file, cell, cell, sieve):
        return ()
    offset, data = contract_lines(file, cell)
    places = [*matching_lines(data, sieve)]
    if not data or len(places) * PARSED_SHARE > data.count(b"\n"):
        return file.entries(cell)
    if not places:
        return ()
    # The time that lines of a cell have at least: the latest of the cell before.
    before = contract_lines(file, cell - 1).data if cell else b""
    high, at = _latest(before) if before else file.carried_into(cell).high, 0
    entries: list[FileEntry] = []
    for begin in places:
        entry = file.parse_line(data, offset, begin, data.index(b"\n", begin))
        if entry.line.when is None or is_repeated(entry.line.when):
            return file.entries(cell)
        high, at = max(high, _latest(data[at:begin]), entry.key[0]), begin
        entries.append(entry._replace(key=(high, *entry.key[1:])))
    return entries


def _latest(data: bytes) -> float:
    stamps = {line[1:20] for line in data.split(b"\n") if line}
    times = map(parse_local_time, (stamp.decode() for stamp in stamps))
    return max((time for time in times if time is not None), default=NO_TIME)


def has_only_contract_lines(data: bytes) -> bool:
    """True if each of these whole lines has a time and a level of its own."""
    other = safe_regex.compile_bytes_pattern(_LINE_WITHOUT_HEAD, case_sensitive=True)
    # An unfinished head at the end is one too.
    return not data or other.search(b"\n%s\n" % data.removesuffix(b"\n")) is None


def count_matches(data: bytes, sieve: LineFilter) -> int:
    """The number of lines that match a filter; `data` has only lines in the contract's format."""
    if sieve.level == INFO and not sieve.alternatives:  # levels with other names count as INFO
        below = sum(1 for _ in _lines_of_levels(data, DEBUG, DEBUG))
        return data.count(b"\n") + (not data.endswith(b"\n")) - below
    return sum(1 for _ in matching_lines(data, sieve))


def matching_lines(data: bytes, sieve: LineFilter) -> Iterator[int]:
    """The offsets of the lines that match a filter, in order; `data` as in `count_matches`."""
    if sieve.level > INFO and not sieve.alternatives:
        yield from _lines_of_levels(data, sieve.level, ERROR)
        return
    for begin, end in _candidates(data, _needles(sieve)):
        closed = data.index(b"]", _LEVEL_AT + begin)
        rank = level_rank(data[begin + _LEVEL_AT : closed].decode().upper())
        if rank < sieve.level:
            continue
        if sieve.alternatives:
            text = data[closed + 1 : end].decode("utf-8", "replace").rstrip("\r\n")
            if not sieve.is_match(rank, text.removeprefix(" ")):
                continue
        yield begin


def _lines_of_levels(data: bytes, lowest: int, highest: int) -> Iterator[int]:
    """The offsets of the lines with a level of these severities."""
    marks = safe_regex.compile_bytes_pattern(rb"\] \[(?:%s)\]" % level_names(lowest, highest))
    for match in marks.finditer(data):
        begin = match.start() + len("] [") - _LEVEL_AT
        if begin == 0 or (begin > 0 and data[begin - 1] == ord("\n")):  # not in the text of a line
            yield begin


def _needles(sieve: LineFilter) -> tuple[bytes, ...]:
    """Bytes of which each matching line contains at least one, in lower case; () if unknown."""
    needles: list[bytes] = []
    for clauses in sieve.alternatives:
        usable = [
            c for c in clauses if all(t.text.isascii() and t.text and not t.negated for t in c)
        ]
        if not usable:
            return ()
        # The longest words are the rarest.
        best = max(usable, key=lambda clause: min(len(term.text) for term in clause))
        needles += needles_of(best)
    return tuple(needles)


def _candidates(data: bytes, needles: tuple[bytes, ...]) -> Iterator[tuple[int, int]]:
    """Begin and end of each line that contains a needle; of each line without needles."""
    pattern = safe_regex.any_of_literals(needles) if needles else None
    at = 0
    while at < len(data):
        hit = pattern.search(data, at) if pattern is not None else None
        if pattern is not None and hit is None:
            return
        begin = at if hit is None else data.rfind(b"\n", at, hit.start()) + 1 or at
        end = data.find(b"\n", begin if hit is None else hit.start())
        end = len(data) if end < 0 else end
        yield begin, end
        at = end + 1
