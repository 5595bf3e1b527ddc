"""What operators did: a file of JSON lines for each operation, in a spool's `.spooldeck/journal/`.

`<op>.jsonl` begins with the intent and the rows, durable before the first task moves; outcomes
follow batch by batch; an `end` line says that it is over. Whoever carries it out holds the file's
flock: one without an end that nobody holds was interrupted. `<op>.before` holds what its tasks were
before they were changed, for as long as it can be taken back. Neither names a payload's content,
and no mail address is written in full.

A file is only ever added to. A last line without its end was cut off by a crash and counts for
nothing; what cannot be understood is passed by and counted.
"""

from __future__ import annotations

import calendar
import errno
import json
import math
import os
import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from io import BytesIO
from typing import IO, Any, NamedTuple

from engine import files
from engine.model import State
from engine.operations import End, Ended, Report
from engine.plans import NO_VALUES, Plan, Row
from engine.store import SHOWN, Unavailable
from engine.sweeping import OPERATION

SECRET = 0o600
"""Mode of what tasks were: they may have been edited because of what stood in them."""

CHUNK = 500
"""Rows a line."""

LONGEST = 4 << 20
"""Bytes of a line that are read: one of ours is a tenth of that, a longer one is none."""

MOMENT = 0.5
"""Seconds for which a file's lock is waited for: whoever asks whether it is held has it so long."""

_ADDRESS = re.compile(r"(?:\"[^\"@]*\"|(?<![^\s@<>\"'=:,;])[^\s@<>\"'=:,;]+)@(?=[^\s@])")
"""The part of a mail address that is not shown, with its @; it begins where a word begins."""

HIDDEN = "...@"
"""What stands for it."""

_NEW = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Who(NamedTuple):
    """Who carried an operation out."""

    user: str
    """The name of the user the process runs as."""
    sudo: str = ""
    """`SUDO_USER`."""
    ssh: str = ""
    """`SSH_CONNECTION`: from where they are logged in."""
    host: str = ""
    pid: int = 0

    @property
    def name(self) -> str:
        """The person behind it, as far as that is known."""
        return self.sudo or self.user


class Intent(NamedTuple):
    """What is about to be done, and why."""

    verb: str
    who: Who
    reason: str = ""
    filter: str = ""
    scope: str = ""
    """What was acted on, in words: `all 201 that matched`."""
    undoes: str = ""
    """The operation that it takes back."""
    follows: str = ""
    """The interrupted operation that it goes on with."""
    values: Mapping[str, Any] = NO_VALUES
    pace: Mapping[str, Any] = NO_VALUES
    """How fast, and when to stop, where it is paced."""


class Operation(NamedTuple):
    """One operation as the journal tells of it."""

    op: str
    when: float
    """When it began, epoch seconds UTC."""
    intent: Intent
    planned: int
    """Rows, with those that were left out."""
    counts: Mapping[End, int]
    ended: float | None
    """When it was over, epoch seconds UTC; None while it runs, and when it was interrupted."""
    running: bool
    kept: bool = False
    """Whether what its tasks were is still there."""
    notes: tuple[Mapping[str, Any], ...] = ()
    """What else was written down meanwhile: paused, faster, what really became of tasks."""
    damaged: int = 0
    """Lines that could not be understood."""

    @property
    def open(self) -> int:
        """Rows of which no outcome is known."""
        return self.planned - sum(self.counts.values())

    @property
    def interrupted(self) -> bool:
        """Whether whoever carried it out is gone, with rows left."""
        return self.ended is None and not self.running


class Entry(NamedTuple):
    """A row of an operation, and what became of it."""

    row: Row
    ended: Ended | None


class Pen:
    """Writes one operation down; nobody else does, its flock says so."""

    def __init__(self, op: str, path: str, fd: int, folder: int, clock: Any) -> None:
        """Of two open descriptors: the operation's file at `path`, the journal's folder; ours."""
        self.op = op
        self._path, self._fd, self._folder, self._clock = path, fd, folder, clock
        self._before = -1
        self._torn = False

    def say(self, what: str, **words: Any) -> None:
        """Write down that something happened meanwhile; not waited for.

        Raises:
            Unavailable: it cannot be written.
        """
        self._write([{"line": "note", "what": what, **_masked(words)}], sync=False)

    def keep(self, images: Sequence[tuple[str, bytes]]) -> None:
        """Keep what tasks are before they are changed; durable when it returns.

        Raises:
            Unavailable: it cannot be written; nothing may be changed.
        """
        if not images:
            return
        data = b"".join(
            json.dumps({"id": ident, "size": len(image)}).encode() + b"\n" + image + b"\n"
            for ident, image in images
        )
        try:
            if self._before < 0:
                owner = files.owner_for(os.fstat(self._folder))
                name = f"{self.op}.before"
                self._before = files.create(name, self._folder, owner, SECRET, _NEW)
                files.fsync(self._folder)
            self._require_there()
            files.write_all(self._before, data)
            files.fsync(self._before)
        except OSError as error:
            raise Unavailable(
                f"what the tasks are cannot be kept, so none is changed: {error.strerror}"
            ) from error

    def outcomes(self, ended: Sequence[Ended]) -> None:
        """Write down what became of some rows; durable when it returns.

        Raises:
            Unavailable: it cannot be written.
        """
        self._write(_packed_ends(ended))

    def end(self, report: Report) -> None:
        """Write down that it is over; durable when it returns.

        Raises:
            Unavailable: it cannot be written.
        """
        counts = {name: len(getattr(report, name)) for name in map(str, End)}
        self._write([{"line": "end", "planned": len(report.plan.rows), **counts}])

    def close(self) -> None:
        """Let go of it: from now on it counts as ended, or as interrupted."""
        for fd in (self._fd, self._before, self._folder):
            if fd >= 0:
                os.close(fd)
        self._fd = self._before = self._folder = -1

    def _write(self, lines: Iterable[Mapping[str, Any]], *, sync: bool = True) -> None:
        when = self._clock()
        data = "".join(json.dumps({"when": when, **line}) + "\n" for line in lines)
        try:
            if sync:
                self._require_there()
            start, self._torn = "\n" if self._torn else "", True
            files.write_all(self._fd, (start + data).encode())
            self._torn = False
            if sync:
                files.fsync(self._fd)
        except OSError as error:
            raise Unavailable(f"the journal cannot be written: {error.strerror}") from error

    def _require_there(self) -> None:
        """Make sure that what is written can be found again: its folder may have been replaced.

        Raises:
            OSError: it cannot.
        """
        try:
            there, ours = os.stat(self._path, follow_symlinks=False), os.fstat(self._fd)
        except FileNotFoundError:
            there = None
        if there is None or (there.st_dev, there.st_ino) != (ours.st_dev, ours.st_ino):
            raise OSError(errno.ESTALE, f"{self._path} was removed meanwhile", self._path)


class Journal:
    """The journal of one spool. Its folder is made when something is first written down."""

    def __init__(self, folder: str, root: str = "", clock: Any = time.time) -> None:
        """`root` is the folder below which no symbolic link is followed."""
        self.folder, self._root, self._clock = folder, root, clock
        self._over: dict[str, Operation] = {}

    def begin(self, intent: Intent, plan: Plan) -> Pen:
        """Write down what is about to be done; durable when it returns.

        Raises:
            Unavailable: it cannot be written, so nothing may be done.
        """
        now = self._clock()
        folder = fd = -1
        op = ""
        try:
            folder = self._open(make=True)
            op, fd = _created(folder, now)
            files.Flock(fd, MOMENT).__enter__()
            files.write_all(fd, _begun(op, now, intent, plan))
            files.fsync(fd)
            files.fsync(folder)
        except OSError as error:
            if fd >= 0:
                with suppress(OSError):  # empty or torn it counts for nothing, and is swept
                    files.forget(f"{op}.jsonl", folder)
                os.close(fd)
            if folder >= 0:
                os.close(folder)
            raise Unavailable(
                f"the journal in {self.folder} cannot be written: {error.strerror}"
            ) from error
        return Pen(op, f"{self.folder}/{op}.jsonl", fd, folder, self._clock)

    def resume(self, op: str) -> Pen | None:
        """Go on writing an interrupted operation down; None while somebody carries it out.

        Raises:
            Unavailable: it cannot be written.
        """
        folder = fd = -1
        try:
            folder = self._open()
            fd = files.open_plain(f"{_known(op)}.jsonl", folder, os.O_RDWR | os.O_APPEND)
            _require_ours(fd, folder)
            files.Flock(fd, MOMENT).__enter__()
            _end_torn_line(fd)
            return Pen(op, f"{self.folder}/{op}.jsonl", fd, folder, self._clock)
        except OSError as error:
            for one in (fd, folder):
                if one >= 0:
                    os.close(one)
            if isinstance(error, TimeoutError):
                return None
            raise Unavailable(f"the journal's {op} cannot be written: {error.strerror}") from error

    # ---- reading

    def operations(self, since: float = 0.0) -> tuple[Operation, ...]:
        """Those that began at or after a moment (epoch seconds UTC), the latest first.

        Raises:
            Unavailable: the journal cannot be read.
        """
        names = self._names()
        floor = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(max(0.0, since)))
        ops = sorted((n for n in names if n.endswith(".jsonl") and n >= floor), reverse=True)
        found = (self._operation(name.removesuffix(".jsonl"), names) for name in ops)
        there = (operation for operation in found if operation is not None)
        # Names tell seconds only; of what began in one of them, too, the latest comes first.
        return tuple(sorted(there, key=lambda operation: operation.when, reverse=True))

    def operation(self, op: str) -> Operation | None:
        """One of them; None when there is no such, or it never came as far as its intent.

        Raises:
            Unavailable: the journal cannot be read.
        """
        return self._operation(op, self._names())

    def entries(self, op: str) -> Iterator[Entry]:
        """Its rows in the order of its plan, each with what became of it.

        Raises:
            Unavailable: the journal cannot be read.
        """
        rows: dict[str, Row] = {}
        ends: dict[str, tuple[End, str]] = {}
        for line in map(_understood, self._lines(op)):
            if isinstance(line, _Rows):
                for row in line.rows:
                    rows.setdefault(row.id, row)
            elif isinstance(line, _Ends):
                for ident, end, words in line.ends:
                    ends.setdefault(ident, (end, words))
        for row in rows.values():
            its = ends.get(row.id)
            yield Entry(row, None if its is None else _ended(row, *its))

    def images(self, op: str) -> dict[str, bytes]:
        """What its tasks were before, by their ids; those that were kept whole.

        Raises:
            Unavailable: they cannot be read.
        """
        found: dict[str, bytes] = {}
        with self._reading(f"{op}.before") as file:
            while (head := file.readline(LONGEST)).endswith(b"\n"):
                try:
                    told = json.loads(head)
                    ident, size = str(told["id"]), int(told["size"])
                except _NOT_OURS:
                    break  # torn by a crash: nothing behind it was ever relied upon
                if not 0 <= size <= SHOWN:
                    break
                image = file.read(size + 1)
                if len(image) <= size or image[size:] != b"\n":
                    break
                found.setdefault(ident, image[:size])
        return found

    def lines(self, op: str) -> Iterator[Mapping[str, Any]]:
        """Everything that is written down of an operation, line by line.

        Raises:
            Unavailable: the journal cannot be read.
        """
        return self._lines(op)

    def _operation(self, op: str, names: frozenset[str]) -> Operation | None:
        known = self._over.get(op)
        if known is None:
            try:
                known = self._told(op)
            except Unavailable as error:
                when = _began(op)
                known = Operation(op, when, Intent("?", Who("?"), str(error)), 0, {}, when, False)
            if known is not None and known.ended is not None and not self._is_held(op):
                self._over[op] = known  # nothing more is written to it
        return None if known is None else known._replace(kept=f"{op}.before" in names)

    def _told(self, op: str) -> Operation | None:
        """What a file says; None when it never came as far as its intent, or is none of ours."""
        head: _Head | None = None
        rows: set[str] = set()
        ends: dict[str, End] = {}
        notes: list[Mapping[str, Any]] = []
        over: float | None = None
        damaged = 0
        for line in map(_understood, self._lines(op)):
            if isinstance(line, _Head) and head is None:
                head = line
            elif isinstance(line, _Rows):
                rows.update(row.id for row in line.rows)
            elif isinstance(line, _Ends):
                for ident, end, _ in line.ends:
                    ends.setdefault(ident, end)
            elif isinstance(line, float):
                over = line
            elif isinstance(line, dict):
                notes.append(line)
            else:
                damaged += 1
        counts = Counter(end for ident, end in ends.items() if ident in rows)
        untouched = not (damaged or set(counts) - {End.EXCLUDED} or over is not None)
        if head is None or (len(rows) < head.planned and untouched):
            # Cut off while it was written, and before that is durable no task moves.
            return None
        return Operation(
            op,
            head.when,
            head.intent,
            max(head.planned, len(rows)),
            {end: counts[end] for end in End},
            over,
            over is None and self._is_held(op),
            notes=tuple(notes),
            damaged=damaged,
        )

    def _lines(self, op: str) -> Iterator[Mapping[str, Any]]:
        with self._reading(f"{op}.jsonl") as file:
            while text := file.readline(LONGEST):
                while not text.endswith(b"\n"):
                    if len(text) < LONGEST:
                        return  # the end of it was cut off
                    text = b" " + file.readline(LONGEST - 1)
                try:
                    line = json.loads(text)
                except _NOT_OURS:
                    line = None
                yield line if isinstance(line, dict) else {"line": "damaged"}

    def _names(self) -> frozenset[str]:
        try:
            folder = self._open()
            try:
                return frozenset(n for n in os.listdir(folder) if OPERATION.fullmatch(n))
            finally:
                os.close(folder)
        except FileNotFoundError:
            return frozenset()
        except OSError as error:
            raise Unavailable(f"the journal in {self.folder}: {error.strerror}") from error

    @contextmanager
    def _reading(self, name: str) -> Iterator[IO[bytes]]:
        """A file of the journal; an empty one where there is none."""
        try:
            _known(name.partition(".")[0])
            folder = files.reach(self.folder, self._root)
            try:
                fd = files.open_plain(name, folder)
                with open(fd, "rb") as file:
                    _require_ours(fd, folder)
                    yield file
            finally:
                os.close(folder)
        except FileNotFoundError:
            yield BytesIO()
        except OSError as error:
            raise Unavailable(f"the journal's {name}: {error.strerror}") from error

    def _open(self, *, make: bool = False) -> int:
        """The folder, to write in: one that is passed through only cannot be made durable."""
        passed = files.reach(self.folder, self._root, make=make)
        try:
            return files.open_folder(".", passed)
        finally:
            os.close(passed)

    def _is_held(self, op: str) -> bool:
        try:
            folder = files.reach(self.folder, self._root)
            try:
                fd = files.open_plain(f"{op}.jsonl", folder)
            finally:
                os.close(folder)
        except OSError:
            return False
        try:
            return not files.is_unclaimed(fd)
        finally:
            os.close(fd)


def mask(text: str) -> str:
    """A text without whole mail addresses: `...@example.net`."""
    return _ADDRESS.sub(HIDDEN, text) if "@" in text else text


def who(environ: Mapping[str, str], user: str, host: str, pid: int) -> Who:
    """Who carries something out, by the environment of a process."""
    return Who(user, environ.get("SUDO_USER", ""), environ.get("SSH_CONNECTION", ""), host, pid)


def _masked(words: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _plain(value) for name, value in words.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return mask(value)
    if isinstance(value, Mapping):
        return _masked(value)
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return value


def _packed(row: Row) -> list[str]:
    packed = [row.id, str(row.state), row.rev]
    return packed if row.end is None else [*packed, str(row.end)]


def _packed_ends(ended: Sequence[Ended]) -> Iterator[Mapping[str, Any]]:
    for start in range(0, len(ended), CHUNK):
        line: dict[str, Any] = {"line": "ends"}
        for one in ended[start : start + CHUNK]:
            words = one.rev if one.end is End.DONE else mask(one.words)
            line.setdefault(str(one.end), {})[one.row.id] = words
        yield line


def _begun(op: str, now: float, intent: Intent, plan: Plan) -> bytes:
    """How an operation's file begins: what is about to be done, what is left out, and all rows.

    The rows come last: with them it is whole, and what was left out never looks as if it were still
    to be done.
    """
    excluded = [Ended(row, End.EXCLUDED, why) for row, why in plan.excluded]
    lines: list[Mapping[str, Any]] = [
        {
            "line": "intent",
            "when": now,
            "op": op,
            **_masked(intent._asdict()),
            "who": intent.who._asdict(),
            "planned": len(plan.rows),
        },
        *({"when": now, **line} for line in _packed_ends(excluded)),
        *(
            {"line": "rows", "rows": [_packed(row) for row in plan.rows[start : start + CHUNK]]}
            for start in range(0, len(plan.rows), CHUNK)
        ),
    ]
    return "".join(json.dumps(line) + "\n" for line in lines).encode()


def _created(folder: int, now: float) -> tuple[str, int]:
    """A new operation's name, and its file."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now))
    owner = files.owner_for(os.fstat(folder))
    number = int.from_bytes(os.urandom(4))
    while True:
        op = f"{stamp}-{number:08x}"
        try:
            return op, files.create(f"{op}.jsonl", folder, owner, files.FILE_MODE, _NEW)
        except FileExistsError:
            number = (number + 1) % (1 << 32)  # somebody else's


# ---- what a line says, as far as it can be understood

_NOT_OURS = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)
"""What is raised over a line that is none of ours."""


class _Head(NamedTuple):
    when: float
    intent: Intent
    planned: int


class _Rows(NamedTuple):
    rows: list[Row]


class _Ends(NamedTuple):
    ends: list[tuple[str, End, str]]


def _understood(
    line: Mapping[str, Any],
) -> _Head | _Rows | _Ends | float | Mapping[str, Any] | None:
    """A line's meaning: a float is when it was over, a mapping is a note; None: it has none."""
    try:
        match line["line"]:
            case "intent":
                return _Head(_moment(line["when"]), _intent(line), _amount(line["planned"]))
            case "rows":
                return _Rows([_unpacked(packed) for packed in line["rows"]])
            case "ends":
                ends = ((end, line.get(str(end), {}).items()) for end in End)
                return _Ends([(ident, end, str(w)) for end, items in ends for ident, w in items])
            case "end":
                return _moment(line["when"])
            case "note":
                return line
    except _NOT_OURS:
        return None
    return None


def _ended(row: Row, end: End, words: str) -> Ended:
    return Ended(row, end, rev=words) if end is End.DONE else Ended(row, end, words)


def _unpacked(packed: Sequence[str]) -> Row:
    ident, state, rev, *end = packed
    return Row(_text(ident), State(state), _text(rev), end=State(end[0]) if end else None)


def _intent(head: Mapping[str, Any]) -> Intent:
    texts = ("verb", "reason", "filter", "scope", "undoes", "follows")
    fields: dict[str, Any] = {name: _text(head[name]) for name in texts if name in head}
    fields |= {name: dict(head[name]) for name in ("values", "pace") if name in head}
    person = head["who"]
    said = {name: _text(person.get(name, "")) for name in ("user", "sudo", "ssh", "host")}
    return Intent(**fields, who=Who(**said, pid=_amount(person.get("pid", 0))))


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("expected a text")
    return value


def _amount(value: object) -> int:
    if not isinstance(value, int) or not 0 <= value < 1 << 53:
        raise TypeError("expected how many")
    return value


def _moment(value: float) -> float:
    if not math.isfinite(value) or not 0 <= value < LAST:
        raise ValueError("expected epoch seconds")
    return float(value)


LAST = 253402300800.0
"""The end of the year 9999, epoch seconds UTC: beyond, there are no dates."""


def _began(op: str) -> float:
    """When an operation began, by its name; 0 where that is no date."""
    try:
        return float(calendar.timegm(time.strptime(op[:16], "%Y%m%dT%H%M%SZ")))
    except ValueError:
        return 0.0


def _known(op: str) -> str:
    """An operation's name, which is a file's.

    Raises:
        FileNotFoundError: there is none of that name.
    """
    if not OPERATION.fullmatch(f"{op}.jsonl"):
        raise FileNotFoundError(errno.ENOENT, "no operation has such a name", op)
    return op


def _require_ours(fd: int, folder: int) -> None:
    """Make sure that a file was written by somebody who may put files into its folder.

    Raises:
        PermissionError: it was not.
    """
    seen = os.fstat(fd)
    if seen.st_uid != os.geteuid() and (why := files.stranger(seen, os.fstat(folder))):
        raise PermissionError(errno.EPERM, why)


def _end_torn_line(fd: int) -> None:
    """What a crash cut off becomes a damaged line, and not the beginning of the next one."""
    size = os.fstat(fd).st_size
    if size and os.pread(fd, 1, size - 1) != b"\n":
        files.write_all(fd, b"\n")
