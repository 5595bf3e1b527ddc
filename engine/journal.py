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
import json
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from engine import files
from engine.model import State
from engine.operations import End, Ended, Report
from engine.plans import NO_VALUES, Plan, Row
from engine.store import Unavailable

SECRET = 0o600
"""Mode of what tasks were: they may have been edited because of what stood in them."""

CHUNK = 500
"""Rows a line."""

DAYS = 30.0
"""Days for which an operation stays in the journal."""

_NAME = re.compile(r"([0-9]{8}T[0-9]{6}Z-[0-9a-f]{8})\.(jsonl|before)")
_ADDRESS = re.compile(r"[^\s@<>\"'=:,;]+@(?=[^\s@])")


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

    def __init__(self, op: str, fd: int, folder: int, clock: Any) -> None:
        """Of two open descriptors: the operation's file, the journal's folder; both are ours."""
        self.op = op
        self._fd, self._folder, self._clock = fd, folder, clock
        self._before = -1

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
                flags = os.O_WRONLY | os.O_APPEND
                self._before = files.open_shared(f"{self.op}.before", self._folder, flags, SECRET)
                files.fsync(self._folder)
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
        lines = []
        for start in range(0, len(ended), CHUNK):
            line: dict[str, Any] = {"line": "ends"}
            for row, end, words, rev in ended[start : start + CHUNK]:
                line.setdefault(str(end), {})[row.id] = rev if end is End.DONE else mask(words)
            lines.append(line)
        self._write(lines)

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
            files.write_all(self._fd, data.encode())
            if sync:
                files.fsync(self._fd)
        except OSError as error:
            raise Unavailable(f"the journal cannot be written: {error.strerror}") from error


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
        op = f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime(now))}-{os.urandom(4).hex()}"
        head = {
            "line": "intent",
            "when": now,
            "op": op,
            **_masked(intent._asdict()),
            "who": intent.who._asdict(),
            "planned": len(plan.rows),
        }
        lines = [head]
        for start in range(0, len(plan.rows), CHUNK):
            rows = [_packed(row) for row in plan.rows[start : start + CHUNK]]
            lines.append({"line": "rows", "rows": rows})
        data = "".join(json.dumps(line) + "\n" for line in lines).encode()
        folder = fd = -1
        try:
            folder = self._open(make=True)
            fd = files.open_shared(f"{op}.jsonl", folder, os.O_RDWR | os.O_APPEND)
            if not files.claim_flock(fd):
                raise Unavailable(f"the journal's {op} is somebody else's")
            files.write_all(fd, data)
            files.fsync(fd)
            files.fsync(folder)
        except (OSError, Unavailable) as error:
            if fd >= 0:
                with suppress(OSError):  # empty or torn it counts for nothing, and is swept
                    files.forget(f"{op}.jsonl", folder)
                os.close(fd)
            if folder >= 0:
                os.close(folder)
            if isinstance(error, Unavailable):
                raise
            raise Unavailable(
                f"the journal in {self.folder} cannot be written: {error.strerror}"
            ) from error
        return Pen(op, fd, folder, self._clock)

    def resume(self, op: str) -> Pen | None:
        """Go on writing an interrupted operation down; None while somebody carries it out.

        Raises:
            Unavailable: it cannot be written.
        """
        folder = fd = -1
        try:
            folder = self._open()
            fd = files.open_plain(f"{op}.jsonl", folder)
            os.close(fd)
            fd = files.open_shared(f"{op}.jsonl", folder, os.O_RDWR | os.O_APPEND)
            if files.claim_flock(fd):
                _end_torn_line(fd)
                return Pen(op, fd, folder, self._clock)
        except OSError as error:
            for one in (fd, folder):
                if one >= 0:
                    os.close(one)
            raise Unavailable(f"the journal's {op} cannot be written: {error.strerror}") from error
        os.close(fd)
        os.close(folder)
        return None

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
        return tuple(operation for operation in found if operation is not None)

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
        rows: list[Row] = []
        ended: dict[str, Ended] = {}
        for line in self._lines(op):
            with suppress(KeyError, TypeError, ValueError, AttributeError):
                if line["line"] == "rows":
                    rows += map(_unpacked, line["rows"])
                elif line["line"] == "ends":
                    for end in End:
                        for ident, words in line.get(str(end), {}).items():
                            is_done = end is End.DONE
                            ended[ident] = Ended(
                                Row(ident, State.PENDING, ""),
                                end,
                                "" if is_done else str(words),
                                str(words) if is_done else "",
                            )
        for row in rows:
            one = ended.get(row.id)
            yield Entry(row, None if one is None else one._replace(row=row))

    def images(self, op: str) -> dict[str, bytes]:
        """What its tasks were before, by their ids; those that were kept whole.

        Raises:
            Unavailable: they cannot be read.
        """
        data = self._read(f"{op}.before")
        found: dict[str, bytes] = {}
        at = 0
        while (end := data.find(b"\n", at)) >= 0:
            try:
                head = json.loads(data[at:end])
                ident, size = str(head["id"]), int(head["size"])
            except (ValueError, KeyError, TypeError):
                break  # torn by a crash: nothing behind it was ever relied upon
            image = data[end + 1 : end + 1 + size]
            if len(image) < size or size < 0:
                break
            found[ident] = image
            at = end + 1 + size + 1
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
                when = float(calendar.timegm(time.strptime(op[:16], "%Y%m%dT%H%M%SZ")))
                known = Operation(op, when, Intent("?", Who("?"), str(error)), 0, {}, when, False)
            if known is not None and known.ended is not None:
                self._over[op] = known  # nothing more is written to it
        return None if known is None else known._replace(kept=f"{op}.before" in names)

    def _told(self, op: str) -> Operation | None:
        head: Mapping[str, Any] | None = None
        counts = dict.fromkeys(End, 0)
        known: set[str] = set()
        notes: list[Mapping[str, Any]] = []
        ended: float | None = None
        damaged = 0
        try:
            for line in self._lines(op):
                kind = line.get("line")
                if kind == "intent" and head is None:
                    head = line
                elif kind == "ends":
                    for end in End:
                        new = line.get(str(end), {}).keys() - known
                        counts[end] += len(new)
                        known |= new
                elif kind == "end":
                    ended = float(line["when"])
                elif kind == "note":
                    notes.append(line)
                elif kind != "rows":
                    damaged += 1
            if head is None:
                return None
            return Operation(
                op,
                float(head["when"]),
                _intent(head),
                int(head["planned"]),
                counts,
                ended,
                ended is None and self._is_held(op),
                notes=tuple(notes),
                damaged=damaged,
            )
        except (KeyError, TypeError, ValueError, AttributeError):
            return None  # `doctor` names what is no operation

    def _lines(self, op: str) -> Iterator[Mapping[str, Any]]:
        *whole, _ = self._read(f"{op}.jsonl").split(b"\n")
        for text in whole:
            try:
                line = json.loads(text)
            except ValueError:
                line = None
            yield line if isinstance(line, dict) else {"line": "damaged"}

    def _names(self) -> frozenset[str]:
        try:
            return frozenset(n for n in os.listdir(self.folder) if _NAME.fullmatch(n))
        except FileNotFoundError:
            return frozenset()
        except OSError as error:
            raise Unavailable(f"the journal in {self.folder}: {error.strerror}") from error

    def _read(self, name: str) -> bytes:
        try:
            folder = files.reach(self.folder, self._root)
            try:
                fd = files.open_plain(name, folder)
            finally:
                os.close(folder)
            with Path(f"/proc/self/fd/{fd}").open("rb") as file:
                os.close(fd)
                return file.read()
        except FileNotFoundError:
            return b""
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
            fd = os.open(f"{self.folder}/{op}.jsonl", os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            return not files.is_unclaimed(fd)
        finally:
            os.close(fd)


def sweep(folder: str, now: float, hours: float) -> int:
    """Remove what can no more be taken back, and operations of long ago; answers how many files.

    By the times of the files alone: nothing is read, and none that somebody still writes is
    touched.

    Raises:
        OSError: the folder cannot be read, or a file of it not removed.
    """
    gone = 0
    try:
        dir_fd = files.reach(folder)
    except FileNotFoundError:
        return 0
    try:
        for name in sorted(os.listdir(dir_fd)):
            is_ours = _NAME.fullmatch(name)
            if not is_ours:
                continue
            limit = hours * 3600 if is_ours[2] == "before" else DAYS * 86400
            seen = os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
            if now - seen.st_mtime > limit and _is_free(f"{is_ours[1]}.jsonl", dir_fd):
                files.forget(name, dir_fd)
                gone += 1
    finally:
        os.close(dir_fd)
    return gone


def mask(text: str) -> str:
    """A text without whole mail addresses: `...@example.net`."""
    return _ADDRESS.sub("...@", text) if "@" in text else text


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
    return value


def _packed(row: Row) -> list[str]:
    packed = [row.id, str(row.state), row.rev]
    return packed if row.end is None else [*packed, str(row.end)]


def _unpacked(packed: Sequence[str]) -> Row:
    ident, state, rev, *end = packed
    return Row(str(ident), State(state), str(rev), end=State(end[0]) if end else None)


def _intent(head: Mapping[str, Any]) -> Intent:
    fields = {name: head[name] for name in Intent._fields if name in head}
    known = {name: value for name, value in head["who"].items() if name in Who._fields}
    return Intent(**{**fields, "who": Who(**known)})


def _end_torn_line(fd: int) -> None:
    """What a crash cut off becomes a damaged line, and not the beginning of the next one."""
    size = os.fstat(fd).st_size
    if size and os.pread(fd, 1, size - 1) != b"\n":
        files.write_all(fd, b"\n")


def _is_free(name: str, dir_fd: int) -> bool:
    try:
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=dir_fd)
    except OSError:
        return True
    try:
        return files.is_unclaimed(fd)
    finally:
        os.close(fd)
