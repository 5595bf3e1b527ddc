"""Parse the files of an operation: the lines of its journal file into values and a temporary
table, its images into offsets. They may come from any program."""

from __future__ import annotations

import os
import weakref
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import IO, Any

from engine.model import State
from engine.operations.journal_writer import NEW_IDS_NOTE, Intent
from engine.operations.plans import Row, RowOutcome, RowResult, describe_new_id
from engine.operations.temp_table import TableSequence, TempTable, text_value, value_text
from engine.store import MAX_PART_BYTES, Unavailable
from engine.text import decode
from engine.text.error_text import error_text
from engine.text.typed_json import from_json
from engine.values import NamedTuple

MAX_LINE_BYTES = 4 << 20
"""Maximum bytes of a line; ours have at most a tenth of that."""

LARGE_FILE_BYTES = 64 << 10
"""A larger file of an ended operation is not read whole: its `end` line has the counts."""

MAX_NOTES, MAX_NOTE_CHARS = 1000, 16 << 10
"""The last notes of an operation are kept; a longer one counts as damaged."""

PARSE_ERRORS = (ValueError, KeyError, TypeError, AttributeError)
"""What parsing an invalid line may raise."""


class Head(NamedTuple):
    """The intent of an operation."""

    when: float
    intent: Intent
    planned: int


class JournaledRows(tuple[Row, ...]):
    """Some rows of an operation."""


class Entry(NamedTuple):
    """A row of an operation, and its outcome."""

    row: Row
    outcome: RowOutcome | None


class Ends(tuple[tuple[str, RowResult, str], ...]):
    """The outcomes of some rows: id, result, and the new revision or the reason."""


class NewIds(tuple[tuple[str, str], ...]):
    """The new ids of some done rows: former id and new one, "" if it was not seen yet. The last one
    of a row counts."""


def parse_line(
    line: Mapping[str, Any],
) -> Head | JournaledRows | Ends | NewIds | float | Mapping[str, Any] | None:
    """Parse a line: a float is the time of the `end` line, a mapping is a note; None: invalid."""
    try:
        match line["line"]:
            case "intent":
                return Head(_moment(line["when"]), _intent(line), _amount(line["planned"]))
            case "rows":
                return JournaledRows(map(_unpacked, line["rows"]))
            case "ends":
                outcomes = ((end, line.get(str(end), {}).items()) for end in RowResult)
                return Ends((ident, end, str(w)) for end, items in outcomes for ident, w in items)
            case "end":
                return _moment(line["when"])
            case "note" if line.get("what") == NEW_IDS_NOTE:
                return NewIds((ident, _text(new)) for ident, new in line["ids"].items())
            case "note":
                return line
    except PARSE_ERRORS:
        return None
    return None


def make_row_outcome(row: Row, end: RowResult, words: str) -> RowOutcome:
    """Make the outcome of a row from a line's result and text."""
    return RowOutcome(row, end, rev=words) if end is RowResult.DONE else RowOutcome(row, end, words)


def _unpacked(packed: Sequence[str]) -> Row:
    ident, state, rev, *end = packed
    return Row(_text(ident), State(state), _text(rev), target=State(end[0]) if end else None)


def _intent(head: Mapping[str, Any]) -> Intent:
    return from_json(Intent, {**head, "who": {"user": "", **head["who"]}}, "intent")


_text = partial(decode.check_text, what="a text", most=MAX_LINE_BYTES)
_amount = partial(decode.check_count, what="a number of tasks")
_moment = partial(decode.check_epoch, what="a time")


class OperationLines:
    """The lines of an operation's file: rows and outcomes in a temporary table, where the first
    line about an id counts; all else in memory.

    Raises, everywhere: Unavailable, if the disk is too full for the table."""

    def __init__(self, lines: Iterable[Mapping[str, Any]]) -> None:
        self.head: Head | None = None
        self.notes: deque[Mapping[str, Any]] = deque(maxlen=MAX_NOTES)
        self.ended: float | None = None
        """The time of the last `end` line, epoch seconds UTC."""
        self.damaged = 0
        """Lines that could not be parsed."""
        self._table = TempTable()
        for sql in _CREATE_OPERATION:
            self._table.read(sql)
        for line in map(parse_line, lines):
            if isinstance(line, JournaledRows):
                self._table.write(_INSERT_ROW, map(_row_values, line))
            elif isinstance(line, Ends):
                self._table.write(_INSERT_END, map(_end_values, line))
            elif isinstance(line, NewIds):
                self._table.write(_INSERT_NEW_ID, (tuple(map(text_value, its)) for its in line))
            elif isinstance(line, Head) and self.head is None:
                self.head = line
            elif isinstance(line, float):
                self.ended = line
            elif isinstance(line, dict) and len(str(line)) <= MAX_NOTE_CHARS:
                self.notes.append(line)
            else:
                self.damaged += 1

    @property
    def rows(self) -> int:
        """The number of rows."""
        return len(self.entries())

    def entries(self) -> Sequence[Entry]:
        """The rows in the order of the plan, each with its outcome; read in windows."""
        ((count,),) = self._table.read("SELECT count(*) FROM row")
        return TableSequence(self._table, count, _ENTRIES, _make_entry)

    def counts(self) -> dict[RowResult, int]:
        """The number of rows by result."""
        counted = "SELECT result, count(*) FROM ended JOIN row USING (id) GROUP BY result"
        known = dict(self._table.read(counted))
        return {end: known.get(str(end), 0) for end in RowResult}


class OperationTotals:
    """The head, the notes and the counts of a large file, without its rows. Of an ended operation
    only the first line and the last 64 KiB are read. Of another one all outcomes are counted in a
    temporary table, the first one of each id."""

    def __init__(self, file: IO[bytes], size: int) -> None:
        self.notes: deque[Mapping[str, Any]] = deque(maxlen=MAX_NOTES)
        self.head: Head | None = None
        self.ended: float | None = None
        self.damaged = self.rows = 0
        self._counts: Mapping[RowResult, int] = {}
        table: TempTable | None = None
        file.seek(size - LARGE_FILE_BYTES)
        file.readline(LARGE_FILE_BYTES)  # the rest of a line
        lines: Iterable[Mapping[str, Any]] = list(read_lines(file))
        file.seek(0)
        if any(isinstance(parse_line(line), float) for line in lines):
            lines = [*islice(read_lines(file), 1), *lines]
        else:
            lines, table = read_lines(file), TempTable()
            table.read(_CREATE_ENDED)
        for line in lines:
            self._add(line, table)
        if table is not None:
            known = dict(table.read("SELECT result, count(*) FROM ended GROUP BY result"))
            self._counts = {end: known.get(str(end), 0) for end in RowResult}

    def _add(self, line: Mapping[str, Any], table: TempTable | None) -> None:
        if line.get("line") == "rows" and isinstance(line.get("rows"), list):
            self.rows += len(line["rows"])
            return
        parsed = parse_line(line)
        if isinstance(parsed, Ends):
            if table is not None:
                table.write(_INSERT_END, map(_end_values, parsed))
        elif isinstance(parsed, Head) and self.head is None:
            self.head = parsed
        elif isinstance(parsed, float):
            self.ended = parsed
            counts = {end: line.get(str(end)) for end in RowResult}
            self._counts = {k: n for k, n in counts.items() if isinstance(n, int) and n > 0}
        elif isinstance(parsed, NewIds):
            return  # of the rows, which are not kept here
        elif isinstance(parsed, dict) and len(str(parsed)) <= MAX_NOTE_CHARS:
            self.notes.append(parsed)
        else:
            self.damaged += 1

    def counts(self) -> dict[RowResult, int]:
        """The number of rows by result."""
        return {end: self._counts.get(end, 0) for end in RowResult}


def read_lines(file: IO[bytes]) -> Iterator[Mapping[str, Any]]:
    """The lines of an operation's file as JSON objects; a damaged one has `line` "damaged"."""
    while text := file.readline(MAX_LINE_BYTES):
        while not text.endswith(b"\n"):
            if len(text) < MAX_LINE_BYTES:
                return  # the last line was cut off
            text = b" " + file.readline(MAX_LINE_BYTES - 1)
        try:
            line = decode.load_json(text, MAX_LINE_BYTES)
        except decode.Malformed:
            line = None
        yield line if isinstance(line, dict) else {"line": "damaged"}


_CREATE_ENDED = "CREATE TABLE ended(id TEXT PRIMARY KEY, result TEXT, words TEXT) WITHOUT ROWID"
_CREATE_OPERATION = (
    "CREATE TABLE row(place INTEGER PRIMARY KEY, id TEXT UNIQUE, state TEXT, rev TEXT, target)",
    _CREATE_ENDED,
    "CREATE TABLE new_id(id TEXT PRIMARY KEY, new TEXT) WITHOUT ROWID",
)
_INSERT_ROW = "INSERT OR IGNORE INTO row(id, state, rev, target) VALUES (?, ?, ?, ?)"
_INSERT_END = "INSERT OR IGNORE INTO ended VALUES (?, ?, ?)"
_INSERT_NEW_ID = "INSERT OR REPLACE INTO new_id VALUES (?, ?)"
_ENTRIES = (
    "SELECT place, row.id, state, rev, target, result, words, new FROM row "
    "LEFT JOIN ended ON ended.id = row.id LEFT JOIN new_id ON new_id.id = row.id WHERE 1"
)


def _row_values(row: Row) -> tuple[str | bytes | None, ...]:
    return text_value(row.id), row.state.value, text_value(row.rev), row.target and row.target.value


def _end_values(end: tuple[str, RowResult, str]) -> tuple[str | bytes, ...]:
    return text_value(end[0]), end[1].value, text_value(end[2])


def _make_entry(values: tuple[Any, ...]) -> Entry:
    ident, state, rev, target, result, words, new_id = values
    end = None if target is None else State(target)
    row = Row(value_text(ident), State(state), value_text(rev), target=end)
    if result is None:
        return Entry(row, None)
    outcome = make_row_outcome(row, RowResult(result), value_text(words))
    if new_id is not None and outcome.result is RowResult.DONE:
        outcome = outcome._replace(reason=describe_new_id(value_text(new_id)))
    return Entry(row, outcome)


class SavedImages(Mapping[str, bytes]):
    """The complete images in a file, by task id; each is read when it is needed, by its offset.

    Raises, everywhere: Unavailable, if an image cannot be read."""

    def __init__(self, file: IO[bytes]) -> None:
        """`file` may be closed afterwards."""
        self._table = TempTable()
        self._table.read("CREATE TABLE image(id TEXT PRIMARY KEY, start, size) WITHOUT ROWID")
        self._table.write("INSERT OR IGNORE INTO image VALUES (?, ?, ?)", _find_images(file))
        if len(self):
            self._fd = os.dup(file.fileno())
            weakref.finalize(self, os.close, self._fd)

    def __getitem__(self, ident: str) -> bytes:
        """The image of a task."""
        sql = "SELECT start, size FROM image WHERE id = ?"
        for start, size in self._table.read(sql, (text_value(ident),)):
            try:
                image = os.pread(self._fd, size, start)
            except OSError as error:
                raise Unavailable(f"a saved image: {error_text(error)}") from error
            if len(image) < size:
                raise Unavailable("a saved image was cut off")
            return image
        raise KeyError(ident)

    def __contains__(self, ident: object) -> bool:
        """True if a task has an image."""
        sql = "SELECT 1 FROM image WHERE id = ?"
        return isinstance(ident, str) and bool(self._table.read(sql, (text_value(ident),)))

    def __len__(self) -> int:
        """The number of images."""
        ((count,),) = self._table.read("SELECT count(*) FROM image")
        return int(count)

    def __iter__(self) -> Iterator[str]:
        """The ids of the tasks."""
        return (value_text(ident) for (ident,) in self._table.read("SELECT id FROM image"))


def _find_images(file: IO[bytes]) -> Iterator[tuple[str | bytes, int, int]]:
    """The id of each complete image, and the offset and number of its bytes."""
    start = 0
    while (head := file.readline(MAX_LINE_BYTES)).endswith(b"\n"):
        try:
            header = decode.load_json(head, MAX_LINE_BYTES)
            ident = str(header["id"])
            size = decode.check_count(header["size"], "size", MAX_PART_BYTES)
        except PARSE_ERRORS:
            return  # cut off by a crash: no task was changed after it
        image = file.read(size + 1)
        if len(image) <= size or image[size:] != b"\n":
            return
        yield text_value(ident), start + len(head), size
        start += len(head) + len(image)
