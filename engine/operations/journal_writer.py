"""Write an operation to the journal: who, what and why, task images, and each row's outcome."""

from __future__ import annotations

import errno
import json
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from engine.operations.plans import NO_VALUES, Plan, Row, RowOutcome, RowResult
from engine.store import Unavailable
from engine.system import files
from engine.text.error_text import error_text
from engine.values import NamedTuple
from engine.verbs import VERBS

IMAGE_FILE_MODE = 0o600
"""Mode of the file with task images: a task may have been edited to remove a secret."""

ROWS_PER_LINE = 500

NEW_IDS_NOTE, MAX_NOTED_IDS = "new ids", 200
"""The note with the new ids of done tasks, by the former ones, "" for one that was not seen yet (a
later note has it); and the most that one has."""

_ADDRESS = re.compile(r"(?:\"[^\"@]*\"|(?<![^\s@<>\"'=:,;])[^\s@<>\"'=:,;]+)@(?=[^\s@])")
"""The local part of a mail address with its @, from the beginning of a word."""

MASKED_LOCAL_PART = "...@"
"""The text that replaces it."""

_NEW = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Who(NamedTuple):
    """The operator of an operation, as the environment shows it."""

    user: str
    """The name of the user that the process runs as."""
    sudo: str = ""
    """`SUDO_USER`."""
    ssh: str = ""
    """`SSH_CONNECTION`: the address of the client."""
    host: str = ""
    pid: int = 0

    @property
    def name(self) -> str:
        """The person, as far as known: the sudo user, else the user."""
        return self.sudo or self.user


class Intent(NamedTuple):
    """What an operation is about to do, and why."""

    verb: str
    who: Who
    reason: str = ""
    filter: str = ""
    scope: str = ""
    """What it acts on, in words: `all 201 that matched`."""
    undoes: str = ""
    """The id of the operation that it undoes."""
    follows: str = ""
    """The id of the interrupted operation that it continues."""
    values: Mapping[str, Any] = NO_VALUES
    pace: Mapping[str, Any] = NO_VALUES
    """Rate and stop rules of a replay."""

    @property
    def past(self) -> str:
        """What a task is called that it has changed: `purged`; `replayed` by a paced retry."""
        verb = VERBS.get(self.verb)
        return "done" if verb is None else verb.words(is_paced=bool(self.pace)).past


class JournalWriter:
    """Appends to one operation's file. Its flock excludes other writers.

    Raises, everywhere: Unavailable, if a file cannot be written; then no task may be changed."""

    def __init__(self, op: str, path: str, fd: int, folder: int, clock: Any) -> None:
        """`fd` is the operation's file at `path`, `folder` the journal's folder; `close` closes
        both."""
        self.op = op
        self._path, self._fd, self._folder, self._clock = path, fd, folder, clock
        self._before = -1
        self._torn = False

    def write_note(self, what: str, **words: Any) -> None:
        """Append a note, without fsync."""
        self._write([{"line": "note", "what": what, **_mask_values(words)}], sync=False)

    def write_new_ids(self, new_ids: Mapping[str, str]) -> None:
        """Append notes with the new ids of tasks by the former ones, "" for one not seen yet."""
        waiting = iter(new_ids.items())
        while some := dict(islice(waiting, MAX_NOTED_IDS)):
            self.write_note(NEW_IDS_NOTE, ids=some)

    def save_images(self, images: Sequence[tuple[str, bytes]]) -> None:
        """Save the images of tasks before they are changed; durable when it returns."""
        if not images:
            return
        data = b"".join(
            f'{{"id": {json.dumps(ident)}, "size": {len(image)}}}\n'.encode() + image + b"\n"
            for ident, image in images
        )
        try:
            if self._before < 0:
                owner = files.new_file_owner(os.fstat(self._folder))
                name = f"{self.op}.before"
                self._before = files.create_file(name, self._folder, owner, IMAGE_FILE_MODE, _NEW)
                files.fsync(self._folder)
            self._require_there()
            files.write_all(self._before, data)
            files.fsync(self._before)
        except OSError as error:
            what = "cannot save task images, nothing changed"
            raise Unavailable(f"{what}: {error_text(error)}") from error

    def write_outcomes(self, ended: Sequence[RowOutcome]) -> None:
        """Append the outcomes of some rows; durable when it returns."""
        self._write(_packed_ends(ended))

    def write_end(self, planned: int, counts: Mapping[RowResult, int]) -> None:
        """Append the `end` line; durable when it returns."""
        ended = {str(end): counts.get(end, 0) for end in RowResult}
        self._write([{"line": "end", "planned": planned, **ended}])

    def close(self) -> None:
        """Close the files and release the flock: the operation now counts as ended, or
        interrupted."""
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
            raise Unavailable(f"the journal cannot be written: {error_text(error)}") from error

    def _require_there(self) -> None:
        """Check that the open file still has its name: its folder may have been replaced.

        Raises:
            OSError: it has not."""
        if not files.is_named(self._path, os.fstat(self._fd)):
            raise OSError(errno.ESTALE, f"{self._path} was removed or replaced", self._path)


def mask_addresses(text: str) -> str:
    """Mask the local part of mail addresses in a text: `...@example.net`."""
    return _ADDRESS.sub(MASKED_LOCAL_PART, text) if "@" in text else text


def identify_operator(environ: Mapping[str, str], user: str, host: str, pid: int) -> Who:
    """Identify the operator from the environment of the process."""
    return Who(user, environ.get("SUDO_USER", ""), environ.get("SSH_CONNECTION", ""), host, pid)


def _mask_values(words: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _mask_value(value) for name, value in words.items()}


def _mask_value(value: Any) -> Any:
    if isinstance(value, str):
        return mask_addresses(value)
    if isinstance(value, Mapping):
        return _mask_values(value)
    if isinstance(value, list | tuple):
        return [_mask_value(one) for one in value]
    return value


def _packed(row: Row) -> list[str]:
    packed = [row.id, str(row.state), row.rev]
    return packed if row.target is None else [*packed, str(row.target)]


def _packed_ends(ended: Iterable[RowOutcome]) -> Iterator[Mapping[str, Any]]:
    waiting = iter(ended)
    while some := list(islice(waiting, ROWS_PER_LINE)):
        line: dict[str, Any] = {"line": "ends"}
        for one in some:
            words = one.rev if one.result is RowResult.DONE else mask_addresses(one.reason)
            line.setdefault(str(one.result), {})[one.row.id] = words
        yield line


def intent_lines(op: str, now: float, intent: Intent, plan: Plan) -> Iterator[Mapping[str, Any]]:
    """The first lines of an operation's file: intent, excluded rows, then all rows. The rows come
    last, because they complete the file: an excluded row must never look open."""
    head = {"line": "intent", "when": now, "op": op, **_mask_values(intent._asdict())}
    yield {**head, "who": intent.who._asdict(), "planned": len(plan.rows)}
    excluded = (RowOutcome(row, RowResult.EXCLUDED, why) for row, why in plan.excluded)
    for line in _packed_ends(excluded):
        yield {"when": now, **line}
    rows = iter(plan.rows)
    while some := [_packed(row) for row in islice(rows, ROWS_PER_LINE)]:
        yield {"line": "rows", "rows": some}


def create_operation_file(folder: int, now: float) -> tuple[str, int]:
    """Create the file of a new operation; return its id and the open file."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now))
    owner = files.new_file_owner(os.fstat(folder))
    number = int.from_bytes(os.urandom(4))
    while True:
        op = f"{stamp}-{number:08x}"
        try:
            return op, files.create_file(f"{op}.jsonl", folder, owner, files.FILE_MODE, _NEW)
        except FileExistsError:
            number = (number + 1) % (1 << 32)  # taken by another process


def end_torn_line(fd: int) -> None:
    """End a line that a crash cut off, so that it does not merge with the next one."""
    size = os.fstat(fd).st_size
    if size and os.pread(fd, 1, size - 1) != b"\n":
        files.write_all(fd, b"\n")
