"""The first bytes of a recipient line: tag and PID slot, and the state that they mean.

Agents know four tags. A held, purged or expunged recipient has the tag of a finished one, so that
no agent takes it, and our word in the PID slot, which is of no use there.
"""

from __future__ import annotations

import fcntl
import os
import re
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager

from engine.formats.zmailer.spool.control_file import PID_SLOT_BYTES, RecipientLine
from engine.model import State
from engine.system import files
from engine.values import NamedTuple

TODO, LOCKED, DONE, FAILED = b" ", b"~", b"+", b"-"

UNFINISHED = (TODO, LOCKED)

_NO_PID = b" " * PID_SLOT_BYTES
_HELD, _TRASH, _GONE = (word.ljust(PID_SLOT_BYTES) for word in (b"held", b"trash", b"gone"))
_WORDS = {_HELD: State.HELD, _TRASH: State.TRASH, _GONE: None}
_TAGS = {TODO: State.PENDING, LOCKED: State.ACTIVE, DONE: State.DONE, FAILED: State.DEAD}
_MARKS = {State.PENDING: TODO + _NO_PID, State.DONE: DONE + _NO_PID, State.DEAD: FAILED + _NO_PID}

ENDINGS: Mapping[str, bytes] = {
    "bounce": FAILED + b"killed",
    "expire": FAILED + b"expire",
    "reroute": DONE + b"moved ",
}
"""Tag and word of a recipient that a verb has ended, for which a mail goes to the router."""

MARK_BYTES = 3 + PID_SLOT_BYTES
"""Bytes of a LF, the letter of a recipient line, its tag and our word after it."""

_find_needing = {
    may_vanish: re.compile(rb"\n[rX](?:%b[+-](?:held  |trash ))" % waiting).search
    for may_vanish, waiting in ((False, b""), (True, b"[ ~]|"))
}

_POLL_SECONDS = 0.02


class LineChange(NamedTuple):
    """Tag and slots of a recipient line before and after a change."""

    offset: int
    """Of the line."""
    before: bytes
    after: bytes


def state_of(head: bytes) -> State | None:
    """The state that tag and slots mean; None if the recipient was expunged."""
    tag, slot = head[:1], head[1 : 1 + PID_SLOT_BYTES]
    return _WORDS[slot] if tag in (DONE, FAILED) and slot in _WORDS else _TAGS[tag]


def needs_links(head: bytes, may_vanish: bool) -> bool:
    """True if our links must stay because of a recipient: it is held or in the trash, or it waits
    and a scheduler could remove its file without knowing it (`may_vanish`)."""
    state = state_of(head)
    if may_vanish and state in (State.PENDING, State.ACTIVE):
        return True
    return state in (State.HELD, State.TRASH)


def has_needing(part: bytes, may_vanish: bool) -> bool:
    """True if a part of a control file has a line for which `needs_links` is true. A line of
    headers that looks like one counts too: links that stay too long do no harm."""
    return _find_needing[may_vanish](part) is not None


def marked(head: bytes, state: State | None) -> bytes:
    """Tag and slots with the mark of another state; None: expunged. The length stays."""
    mark = _MARKS.get(state) if state is not None else None
    if mark is None:
        # A dead recipient keeps its tag, so that its failure is still seen.
        word = {State.HELD: _HELD, State.TRASH: _TRASH, None: _GONE}[state]
        mark = (FAILED if head[:1] == FAILED else DONE) + word
    return with_mark(head, mark)


def with_mark(head: bytes, mark: bytes) -> bytes:
    """Tag and slots with another tag and PID slot. The length stays."""
    slots = head[len(mark) :]
    if head[:1] == LOCKED:
        slots = slots.lstrip(b"0123456789").rjust(len(slots))  # the end of a long PID
    return (mark + slots)[: len(head)]  # a line without slots has only the tag


def to_do(recipients: Iterable[RecipientLine]) -> list[RecipientLine]:
    """The recipients to do. Of those that are mutually exclusive (X) it is the first that has not
    failed; none if one of them is done or locked."""
    recipients = list(recipients)
    taken = {
        one.alternative
        for one in recipients
        if one.alternative and state_of(one.head) in (State.DONE, State.ACTIVE)
    }
    chosen = []
    for one in recipients:
        if state_of(one.head) is State.PENDING and one.alternative not in taken:
            chosen.append(one)
            if one.alternative:
                taken.add(one.alternative)
    return chosen


def lock_pid(head: bytes) -> int | None:
    """The PID in a lock; None if there is none. One of seven digits reaches into the next slot."""
    words = head[1:].split()
    return int(words[0]) if words and words[0].isdigit() else None


class Commit(NamedTuple):
    """A change of a control file that a mail belongs to."""

    name: str
    """Of the control file."""
    lines: tuple[LineChange, ...]
    size: int = 0
    """Bytes of the file before."""
    text: bytes = b""
    """What is appended to it before the lines are changed."""


Settle = Callable[[Commit], bool | None]
"""Completes a change of which one line was written, and returns True; reverts one of which none
was, and returns False; None if that cannot be done now."""


@contextmanager
def write_lock(
    fd: int,
    patience: float = files.FLOCK_TIMEOUT_SECONDS,
    pause: Callable[[float], None] = time.sleep,
) -> Iterator[None]:
    """Hold the fcntl(2) write lock of an open file, all of it. It belongs to this descriptor (OFD),
    so another thread that closes the same file does not release it. Raises TimeoutError: another
    process held it for `patience` seconds."""
    waited = 0.0
    while True:
        try:
            fcntl.fcntl(fd, fcntl.F_OFD_SETLK, _whole_file(fcntl.F_WRLCK))
            break
        except (BlockingIOError, PermissionError):  # fcntl(2) has EAGAIN and EACCES for this
            if waited >= patience:
                raise TimeoutError(f"locked for {patience:g} s by another process") from None
        pause(_POLL_SECONDS)
        waited += _POLL_SECONDS
    try:
        yield
    finally:
        fcntl.fcntl(fd, fcntl.F_OFD_SETLK, _whole_file(fcntl.F_UNLCK))


def _whole_file(kind: int) -> bytes:
    """A struct flock: kind, from the start, offset 0, to the end, no PID."""
    return struct.pack("hhqqi4x", kind, os.SEEK_SET, 0, 0, 0)


def write_mark(fd: int, offset: int, head: bytes) -> None:
    """Overwrite tag and slots of the recipient line at an offset, in a file with `write_lock`."""
    os.lseek(fd, offset + 1, os.SEEK_SET)
    files.write_all(fd, head)
