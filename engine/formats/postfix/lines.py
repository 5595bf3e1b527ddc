"""What Postfix prints of a message: the lines of `postqueue -j`, and envelopes by `postcat -e`.

A record is a line of the listing; behind a line end it has what other programs print of the
message: `MTIME CTIME MODE` of its file, or the PID of the process that delivers it."""

from __future__ import annotations

import json
import re
import time
from calendar import timegm
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple
from zlib import crc32

from engine.model import EMPTY, Problem, State, Task
from engine.operations.trash import SINCE_KEY
from engine.programs.mail_server import UNSURE, ListedMail, MailSummary
from engine.text.safe import clean_error, safe_line

STATES: Mapping[State, str] = {
    State.PENDING: "deferred",
    State.ACTIVE: "active",
    State.HELD: "hold",
    State.DEAD: "expired",
    State.TRASH: "trash",
}
"""Own words. A requeued message (DONE) is never listed: it has another id then."""
WORDS: Mapping[str, State] = {
    "incoming": State.PENDING,
    "maildrop": State.PENDING,
    "delivering": State.ACTIVE,
    "delivered": State.HELD,
}

QUEUES: Mapping[str, State] = {
    "maildrop": State.PENDING,
    "active": State.ACTIVE,
    "incoming": State.PENDING,
    "deferred": State.PENDING,
    "hold": State.HELD,
}
"""Queues in the order of a listing."""

is_queue_id = re.compile(r"[0-9A-Za-z]{6,20}").fullmatch

SUSPENDED_PREFIX = "delivery temporarily suspended: "
"""Begins the reason of a destination that the queue manager has stopped to ask."""
SUSPENDED_KEY, QUEUE_KEY, HELD_KEY, EXPIRED_KEY, PID_KEY = (
    "suspended",
    "queue",
    "changed",
    "force-expired",
    "delivering process",
)
"""Keys of `Task.extra`; HELD_KEY has the ctime of the file of a message in the trash."""
NULL_SENDER = "MAILER-DAEMON"

PROBLEM_BYTES = 200
"""The most that is shown of a line that cannot be read."""

_match_head = re.compile(
    rb'\{"queue_name": "([a-z]+)", "queue_id": "([0-9A-Za-z]{6,20})", "arrival_time": (\d{1,12}),'
    rb' "message_size": (\d{1,18}), (?:"forced_expire": (true|false), )?'
    rb'"sender": "((?:[^"\\]|\\.)*)", "recipients": \['
).match
_RECIPIENT = b'{"address": '
"""Begins each recipient; inside of a JSON string the quotes would be escaped."""

_COMPARED = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz@._+=-"
_IGNORED = bytes({*range(256)} - {*_COMPARED})
"""Bytes of a sender that its programs print in different ways."""

ZONE_SECONDS = 900
"""Arrivals are compared modulo this: postcat prints the local time of an unknown zone."""

IsTrash = Callable[[str, str, float | None], bool]
"""(id, identity, ctime) -> True if our mark fits a message that is on hold."""


class FileTimes(NamedTuple):
    """What is known of the file of a message."""

    mtime: int
    """In `deferred`, the next attempt."""
    ctime: int
    mode: int

    @property
    def is_expired(self) -> bool:
        """True if `postsuper -e` has set the mark."""
        return bool(self.mode & 0o010)


def parse_times(detail: bytes) -> FileTimes | None:
    """Parse `MTIME CTIME MODE`; times may have fractions."""
    fields = detail.split()
    try:
        mtime, ctime = (int(field.partition(b".")[0]) for field in fields[:2])
        return FileTimes(mtime, ctime, int(fields[2], 8))
    except (ValueError, IndexError):
        return None


def parse_line(number: int, line: bytes) -> ListedMail | Problem:
    """Parse one line of a listing as far as its id."""
    if (match := _match_head(line)) and match[1].decode() in QUEUES and line.endswith(b"]}"):
        return ListedMail(match[2].decode(), line)
    try:
        return _other_line(json.loads(line))
    except (ValueError, KeyError, TypeError, RecursionError):
        text = safe_line(line[:PROBLEM_BYTES].decode("utf-8", "replace"))
        return Problem(f"postqueue line {number}", f"cannot be read: {text}")


def _other_line(fields: Any) -> ListedMail:
    """A line with other blanks or another order of fields, as the usual one."""
    names = ("queue_name", "queue_id", "arrival_time", "message_size", "forced_expire", "sender")
    known = {name: fields[name] for name in names if name in fields}
    recipients = [
        {name: str(one[name]) for name in ("address", "delay_reason") if name in one}
        for one in fields["recipients"]
    ]
    line = json.dumps({**known, "recipients": recipients}).encode()
    if not (match := _match_head(line)) or known["queue_name"] not in QUEUES:
        raise ValueError("not a message")
    return ListedMail(match[2].decode(), line)


def identity_of(arrival: int, size: int, recipients: int, sender: bytes) -> str:
    """The part of a revision that only another message, or a delivery, changes."""
    name = b"" if sender == NULL_SENDER.encode() else sender.translate(None, _IGNORED)
    return f"{arrival % ZONE_SECONDS}-{size}-{recipients}-{crc32(name):x}"


def state_of(queue: str, *, is_expired: bool, is_trash: bool) -> State:
    """The state of a message."""
    if is_trash:
        return State.TRASH
    return State.DEAD if is_expired else QUEUES[queue]


def word_of(state: State, queue: str, *, recipients: int, pid: str) -> str:
    """The finer word of a message; "" if it has none."""
    if state is State.HELD:
        return "" if recipients else "delivered"
    if state is State.ACTIVE:
        return "delivering" if pid else ""
    return queue if queue in WORDS and state is State.PENDING else ""


class Record(NamedTuple):
    """A record, parsed as far as its revision needs."""

    queue: str
    arrival: int
    identity: str
    state: State
    word: str
    rev: str
    times: FileTimes | None
    detail: bytes
    line: bytes


def parse_record(ident: str, record: bytes, is_trash: IsTrash, *, has_times: bool) -> Record:
    """Parse a record of a listing, not its recipients. Without the times of files, `has_times`,
    changes are noticed by the reasons."""
    line, _, detail = record.partition(b"\n")
    match = _match_head(line)
    assert match is not None, "parse_line has checked it"
    queue, arrival, recipients = match[1].decode(), int(match[3]), line.count(_RECIPIENT)
    sender = match[6]
    if b"\\" in sender:
        sender = json.loads(b'"' + sender + b'"').encode("utf-8", "replace")
    identity = identity_of(arrival, int(match[4]), recipients, sender)
    is_expired, times, tail = match[5] == b"true", None, detail.decode()
    if queue in ("deferred", "hold"):
        times = parse_times(detail)
        tail = str(times.mtime) if times else UNSURE
    if not has_times:
        tail = f"{crc32(line[match.end() :]):x}"
    trash = queue == "hold" and is_trash(ident, identity, times.ctime if times else None)
    state = state_of(queue, is_expired=is_expired, is_trash=trash)
    pid = detail.decode() if queue == "active" else ""
    return Record(
        queue,
        arrival,
        identity,
        state,
        word=word_of(state, queue, recipients=recipients, pid=pid),
        rev=f"{identity}.{queue}.{tail}",
        times=times,
        detail=detail,
        line=line,
    )


def summary_of(record: Record) -> MailSummary:
    """State, word and revision."""
    return MailSummary(record.state, record.word, record.rev)


def task_of(ident: str, record: Record, marked_at: float | None) -> Task | Problem:
    """The task of a record; `marked_at` is when it was purged."""
    try:
        fields = json.loads(record.line)
        recipients = fields["recipients"]
        addresses = tuple([str(one["address"]) for one in recipients])
    except (ValueError, KeyError, TypeError, RecursionError):
        text = safe_line(record.line[:PROBLEM_BYTES].decode("utf-8", "replace"))
        return Problem(ident, f"its line in the listing cannot be read: {text}", record.state)
    error = next((str(one["delay_reason"]) for one in recipients if "delay_reason" in one), "")
    extra: dict[str, str] = {}
    if error.startswith(SUSPENDED_PREFIX):
        error = error.removeprefix(SUSPENDED_PREFIX)
        extra[SUSPENDED_KEY] = "the queue manager has stopped to ask this destination"
    times, queue, state = record.times, record.queue, record.state
    extra |= extra_of(state, queue, times, marked_at)
    if queue == "active" and record.detail:
        extra[PID_KEY] = record.detail.decode()
    if state is State.TRASH and fields.get("forced_expire"):
        extra[EXPIRED_KEY] = "yes"
    due = 0.0 if times is None and queue not in ("deferred", "hold") else None
    sender = str(fields["sender"])
    return Task(
        ident,
        "mail",
        state,
        float(record.arrival),
        group=domain_of(addresses[0]) if addresses else "",
        word=record.word,
        due=float(times.mtime) if times is not None else due,
        attempts=None,
        description=count_recipients(len(addresses)),
        destination=addresses[0] if addresses else "",
        sender="<>" if sender == NULL_SENDER else sender,
        recipients=addresses,
        bytes=int(fields["message_size"]),
        error=clean_error(error) if error else "",
        rev=record.rev,
        extra=extra or EMPTY,
    )


def extra_of(
    state: State, queue: str, times: FileTimes | None, marked_at: float | None
) -> dict[str, str]:
    """Values of a task that its state and word do not show."""
    if state is State.DEAD:
        return {QUEUE_KEY: queue}
    if state is not State.TRASH:
        return {}
    known = {HELD_KEY: str(times.ctime), SINCE_KEY: f"{marked_at:.0f}"} if times else {}
    return {QUEUE_KEY: queue, **known}


def count_recipients(number: int) -> str:
    """The number of recipients in words."""
    return "1 recipient" if number == 1 else f"{number:,} recipients"


def domain_of(address: str) -> str:
    """The domain of an address in lower case; "" without one."""
    return address.rpartition("@")[2].lower() if "@" in address else ""


def format_recipients(line: bytes) -> bytes:
    """The open recipients of a line of the listing, each with its reason."""
    rows = (
        f"{one['address']}: {one.get('delay_reason', '')}" for one in json.loads(line)["recipients"]
    )
    return "".join(f"{row.removesuffix(': ')}\n" for row in rows).encode("utf-8", "replace")


# ---- envelopes


class Envelope(NamedTuple):
    """A message as `postcat -e` prints it."""

    id: str
    path: str
    """Below the folder of the queue."""
    lines: list[bytes]
    """Without those of postcat itself."""

    @property
    def queue(self) -> str:
        """The queue that it is in."""
        return self.path.partition("/")[0]

    def values(self, name: str) -> list[str]:
        """The values of all lines of a name, in order."""
        head = f"{name}:".encode()
        values = (line[len(head) :] for line in self.lines if line.startswith(head))
        return [value.strip().decode("utf-8", "replace") for value in values]

    def attribute(self, name: str) -> str:
        """A named attribute; "" without it."""
        head = f"{name}="
        values = (v for v in self.values("named_attribute") if v.startswith(head))
        return next(values, head)[len(head) :]

    def time(self, name: str) -> int | None:
        """A time as if its zone were UTC; None if it cannot be read."""
        for value in self.values(name)[:1]:
            try:
                return timegm(time.strptime(value, "%a %b %d %H:%M:%S %Y"))
            except ValueError:
                continue
        return None

    @property
    def size(self) -> int | None:
        """Bytes of the message."""
        fields = "".join(self.values("message_size")[:1]).split()
        return int(fields[0]) if fields and fields[0].isdecimal() else None

    @property
    def identity(self) -> str:
        """As that of a record; "" if it is not complete."""
        arrival, size = self.time("message_arrival_time"), self.size
        if arrival is None or size is None:
            return ""
        senders = [line[7:].strip() for line in self.lines if line.startswith(b"sender:")]
        return identity_of(arrival, size, len(self.values("recipient")), b"".join(senders[:1]))

    @property
    def image(self) -> bytes:
        """The same bytes in each state of the message: without its path."""
        return b"\n".join([f"id: {self.id}".encode(), *self.lines, b""])


_match_begin = re.compile(
    rb"\*\*\* ENVELOPE RECORDS ((?:maildrop|active|incoming|deferred|hold)/(?:[0-9A-Za-z]+/)*"
    rb"([0-9A-Za-z]+)) \*\*\*"
).fullmatch


def parse_envelopes(lines: Iterable[bytes], ids: Iterable[str]) -> list[Envelope]:
    """Parse the envelopes of these messages, which are printed in their order; an empty file has
    none."""
    envelopes: list[Envelope] = []
    places = {ident.encode(): place for place, ident in enumerate(ids)}
    last, is_inside = -1, False
    for line in lines:
        begin = _match_begin(line) if line.startswith(b"*** ") else None
        if begin and places.get(begin[2], -1) > last:
            envelopes.append(Envelope(begin[2].decode(), begin[1].decode(), []))
            last, is_inside = places[begin[2]], True
        elif line.startswith(b"*** MESSAGE FILE END "):
            is_inside = False
        elif is_inside and not line.startswith(b"*** "):  # recipients may be behind the headers
            envelopes[-1].lines.append(line)
    return envelopes
