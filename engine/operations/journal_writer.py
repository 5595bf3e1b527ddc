"""Writing operations down: who, what and why, what tasks were, and what became of each row."""

from __future__ import annotations

import errno
import json
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from engine.operations.execute import Report, RowOutcome, RowResult
from engine.operations.plans import NO_VALUES, Plan, Row
from engine.store import Unavailable
from engine.system import files

SECRET = 0o600
"""Mode of what tasks were: they may have been edited because of what stood in them."""

CHUNK = 500
"""Rows a line."""

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


class JournalWriter:
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

    def outcomes(self, ended: Sequence[RowOutcome]) -> None:
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
        counts = {name: len(getattr(report, name)) for name in map(str, RowResult)}
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


def _packed_ends(ended: Sequence[RowOutcome]) -> Iterator[Mapping[str, Any]]:
    for start in range(0, len(ended), CHUNK):
        line: dict[str, Any] = {"line": "ends"}
        for one in ended[start : start + CHUNK]:
            words = one.rev if one.end is RowResult.DONE else mask(one.words)
            line.setdefault(str(one.end), {})[one.row.id] = words
        yield line


def begun(op: str, now: float, intent: Intent, plan: Plan) -> bytes:
    """How an operation's file begins: what is about to be done, what is left out, and all rows.

    The rows come last: with them it is whole, and what was left out never looks as if it were still
    to be done.
    """
    excluded = [RowOutcome(row, RowResult.EXCLUDED, why) for row, why in plan.excluded]
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


def created(folder: int, now: float) -> tuple[str, int]:
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


def end_torn_line(fd: int) -> None:
    """What a crash cut off becomes a damaged line, and not the beginning of the next one."""
    size = os.fstat(fd).st_size
    if size and os.pread(fd, 1, size - 1) != b"\n":
        files.write_all(fd, b"\n")
