"""What Postfix prints of a message: the lines of `postqueue -j`, and envelopes by `postcat -e`.

A record is a line of the listing; behind a line end it has what other programs print of the
message: `MTIME_CTIME_MODE` of its file, or the PID of the process that delivers it."""

from __future__ import annotations

import json
import re
from calendar import month_abbr, timegm
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple
from zlib import crc32

from engine.model import EMPTY, Lease, Problem, State, Task
from engine.operations.trash import SINCE_KEY
from engine.programs.mail_server import UNSURE, ListedMail, MailSummary
from engine.text.safe import clean_error, safe_line

PENDING, ACTIVE, HELD, DEAD, DONE, TRASH = State  # an attribute of an enum costs a call

STATES: Mapping[State, str] = {
    PENDING: "deferred",
    ACTIVE: "active",
    HELD: "hold",
    DEAD: "expired",
    TRASH: "trash",
}
"""Own words. A requeued message (DONE) is never listed: it has another id then."""
WORDS: Mapping[str, State] = {
    "incoming": PENDING,
    "maildrop": PENDING,
    "delivering": ACTIVE,
    "delivered": HELD,
}

QUEUES: Mapping[str, State] = {
    "maildrop": PENDING,
    "active": ACTIVE,
    "incoming": PENDING,
    "deferred": PENDING,
    "hold": HELD,
}
"""Queues in the order of a listing."""

FILED = frozenset({"deferred", "hold"})
"""Those whose messages wait as files: their times are read."""

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
SUSPENDED = "the queue manager has stopped to ask this destination"
NULL_SENDER = "MAILER-DAEMON"

PROBLEM_BYTES = 200
"""The most that is shown of a line that cannot be read."""

_match_id = re.compile(
    rb'\{"queue_name": "(?:maildrop|active|incoming|deferred|hold)", '
    rb'"queue_id": "([0-9A-Za-z]{6,20})", "arrival_time": '
).match
_match_head = re.compile(
    rb'\{"queue_name": "([a-z]+)", "queue_id": "[0-9A-Za-z]{6,20}", "arrival_time": (\d{1,12}),'
    rb' "message_size": (\d{1,18}), (?:"forced_expire": (true|false), )?'
    rb'"sender": "([^"\\]*(?:\\.[^"\\]*)*)", "recipients": \['
).match
_RECIPIENT = b'{"address": '
"""Begins each recipient; inside of a JSON string the quotes would be escaped."""

_COMPARED = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz@._+=-"
_IGNORED = bytes({*range(256)} - {*_COMPARED})
"""Bytes of a sender that its programs print in different ways."""

ZONE_SECONDS = 900
"""Arrivals are compared modulo this: postcat prints the local time of an unknown zone."""

_ID_DIGITS = "0123456789BCDFGHJKLMNPQRSTVWXYZbcdfghjklmnpqrstvwxyz"
"""Those of long ids: all 52 in their time, but the last one, which is before the inode, in that."""

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


def inode_of(ident: str) -> int | None:
    """The inode of a message's file, which its id has; None if it has not."""
    head, separator, tail = ident.rpartition("z")
    try:
        if separator and len(head) >= 10:  # 6 digits of seconds, 4 of microseconds
            return _number_in(tail, 51)
        return int(ident[5:], 16)
    except ValueError:
        return None


def made_at(ident: str) -> int | None:
    """When a long id was made, epoch seconds UTC; None for a short one, which has no seconds."""
    head, _, _ = ident.rpartition("z")
    try:
        return _number_in(head[:-4], 52) if len(head) >= 10 else None
    except ValueError:
        return None


def _number_in(digits: str, base: int) -> int:
    number = 0
    for digit in digits:
        number = number * base + _ID_DIGITS.index(digit)
    return number


def parse_times(detail: bytes) -> FileTimes | None:
    """Parse `MTIME_CTIME_MODE`; times have fractions."""
    try:
        mtime, ctime, mode = detail.split(b"_")
        seconds = [int(text.partition(b".")[0]) for text in (mtime, ctime)]
        return FileTimes(seconds[0], seconds[1], int(mode, 8))
    except ValueError:
        return None


def parse_line(number: int, line: bytes) -> ListedMail | Problem:
    """Parse one line of a listing as far as its id; the fixed head by a pattern."""
    if (match := _match_id(line)) and line.endswith(b"]}"):
        return ListedMail(match[1].decode(), line)
    try:
        return _other_line(json.loads(line))
    except (ValueError, KeyError, TypeError, RecursionError):
        return Problem(f"postqueue line {number}", f"cannot be read: {_shown(line)}")


def _shown(line: bytes) -> str:
    return safe_line(line[:PROBLEM_BYTES].decode("utf-8", "replace"))


def _other_line(fields: Any) -> ListedMail:
    """A line with other blanks or another order of fields, as the usual one."""
    names = ("queue_name", "queue_id", "arrival_time", "message_size", "forced_expire", "sender")
    known = {name: fields[name] for name in names if name in fields}
    recipients = [
        {name: str(one[name]) for name in ("address", "delay_reason") if name in one}
        for one in fields["recipients"]
    ]
    line = json.dumps({**known, "recipients": recipients}).encode()
    if not (match := _match_id(line)) or not _match_head(line):
        raise ValueError("not a message")
    return ListedMail(match[1].decode(), line)


def identity_of(arrival: int, size: int, recipients: int, sender: bytes) -> str:
    """The part of a revision that only another message, or a delivery, changes."""
    return f"{arrival % ZONE_SECONDS}-{size}-{recipients}-{_sum_of(sender)}"


@lru_cache(4096)
def _sum_of(sender: bytes) -> str:
    name = b"" if sender == NULL_SENDER.encode() else sender.translate(None, _IGNORED)
    return f"{crc32(name):x}"


@lru_cache(4096)
def _sum_of_name(sender: str) -> str:
    return _sum_of(sender.encode("utf-8", "replace"))


_clean_error = lru_cache(1024)(clean_error)
"""Most messages share their reason with others."""


def state_of(queue: str, *, is_expired: bool, is_trash: bool) -> State:
    """The state of a message."""
    if is_trash:
        return TRASH
    return DEAD if is_expired else QUEUES[queue]


def word_of(state: State, queue: str, *, recipients: int, is_busy: bool) -> str:
    """The finer word of a message; "" if it has none. `is_busy`: a process delivers it."""
    if state is PENDING:
        return queue if queue in WORDS else ""
    if state is HELD:
        return "" if recipients else "delivered"
    return "delivering" if state is ACTIVE and is_busy else ""


def _tail(queue: str, line: bytes, detail: bytes, *, has_times: bool) -> str:
    """The end of a revision: without the times of files, changes are noticed by the line."""
    if not has_times:
        return f"{crc32(line):x}"
    if queue == "active":
        return detail.decode()
    return (detail.partition(b".")[0].decode() or UNSURE) if queue in FILED else ""


_EXPIRED = b'"forced_expire": true'
_HEAD_BYTES = 200
"""A line has its fields before the sender in so many bytes."""


_STARTS = {queue[:4].encode(): state for queue, state in QUEUES.items()}


def state_in(ident: str, record: bytes, marked: Container[str], is_trash: IsTrash) -> State:
    """The state of a record; `marked` has the ids of all marks."""
    if ident in marked:
        return summarize(ident, record, is_trash, has_times=True).state
    return DEAD if _EXPIRED in record[:_HEAD_BYTES] else _STARTS[record[16:20]]


def summarize(ident: str, record: bytes, is_trash: IsTrash, *, has_times: bool) -> MailSummary:
    """State, word and revision of a record, without parsing its recipients."""
    line, _, detail = record.partition(b"\n")
    match = _match_head(line)
    if match is None:  # `task_of` makes a problem of it
        return MailSummary(PENDING, "", f"..{crc32(record):x}")
    queue, recipients, sender = match[1].decode(), line.count(_RECIPIENT), match[5]
    if b"\\" in sender:
        try:
            text = json.loads(f'"{sender.decode("utf-8", "replace")}"')
        except ValueError:
            return MailSummary(PENDING, "", f"..{crc32(record):x}")
        sender = text.encode("utf-8", "replace")
    identity = identity_of(int(match[2]), int(match[3]), recipients, sender)
    trash = queue == "hold" and is_trash(ident, identity, _ctime(detail))
    state = state_of(queue, is_expired=match[4] == b"true", is_trash=trash)
    word = word_of(state, queue, recipients=recipients, is_busy=bool(detail))
    tail = _tail(queue, line, detail, has_times=has_times)
    return MailSummary(state, word, f"{identity}.{queue}.{tail}")


def _ctime(detail: bytes) -> float | None:
    times = parse_times(detail)
    return None if times is None else times.ctime


_scan: Callable[[str, int], tuple[Any, int]]
_scan = json.JSONDecoder().scan_once  # type: ignore[attr-defined]
# Without the search for an encoding, which takes a third of the time of `json.loads`.


def task_of(
    ident: str, record: bytes, is_trash: IsTrash, marked_at: float | None, *, has_times: bool
) -> Task | Problem:
    """The task of a record; `marked_at` is when it was purged."""
    line, _, detail = record.partition(b"\n")
    try:
        fields = _scan(line.decode("utf-8", "replace"), 0)[0]
        recipients, queue, sender = fields["recipients"], fields["queue_name"], fields["sender"]
        addresses = tuple([one["address"] for one in recipients])
        "".join(addresses)  # TypeError: one is no text
        number = len(addresses)
        arrival, size, home = fields["arrival_time"], fields["message_size"], QUEUES[queue]
        identity = f"{arrival % ZONE_SECONDS}-{size}-{number}-{_sum_of_name(sender)}"
        error, first = "", addresses[0] if addresses else ""
        group = first.rpartition("@")[2].lower() if "@" in first else ""
        for one in recipients:
            if "delay_reason" in one:
                error = _clean_error(one["delay_reason"])
                break
    except (ValueError, KeyError, TypeError, AttributeError, StopIteration, RecursionError):
        return Problem(ident, f"its line in the listing cannot be read: {_shown(line)}")
    extra: Mapping[str, str] = EMPTY
    if error.startswith(SUSPENDED_PREFIX):
        error = error.removeprefix(SUSPENDED_PREFIX)
        extra = {SUSPENDED_KEY: SUSPENDED}
    due: float | None = 0.0
    state, is_expired = home, fields.get("forced_expire") is True
    tail = _tail(queue, line, detail, has_times=has_times)
    if queue in FILED:
        due = float(detail.partition(b".")[0]) if detail else None
        if queue == "hold" and is_trash(ident, identity, _ctime(detail)):
            state = TRASH
    if is_expired and state is not TRASH:
        state = DEAD
    if state is not home or (detail and queue == "active"):
        times = parse_times(detail)
        extra = {**extra, **extra_of(state, queue, times, marked_at, is_expired=is_expired)}
        if queue == "active" and detail:
            extra = {**extra, PID_KEY: detail.decode()}
    # All fields by position: with names it takes twice the time.
    return Task._make(
        (
            ident,
            "mail",
            state,
            float(arrival),
            "",
            group,
            word_of(state, queue, recipients=number, is_busy=bool(detail)),
            due,
            None,
            0,
            "1 recipient" if number == 1 else count_recipients(number),
            first,
            "",
            "<>" if sender == NULL_SENDER else sender,
            addresses,
            "",
            size,
            error,
            lease_of(detail) if queue == "active" else None,
            f"{identity}.{queue}.{tail}",
            extra,
            None,
        )
    )


def lease_of(pid: bytes) -> Lease | None:
    """The claim of the process that delivers a message; since when is not known."""
    return Lease(f"PID {pid.decode()}", 0.0) if pid else None


def extra_of(
    state: State,
    queue: str,
    times: FileTimes | None,
    marked_at: float | None,
    *,
    is_expired: bool,
) -> dict[str, str]:
    """Values of a task that its state and word do not show."""
    if state is DEAD:
        return {QUEUE_KEY: queue}
    if state is not TRASH:
        return {}
    known = {QUEUE_KEY: queue}
    if times is not None and marked_at is not None:
        known |= {HELD_KEY: str(times.ctime), SINCE_KEY: f"{marked_at:.0f}"}
    return known | ({EXPIRED_KEY: "yes"} if is_expired else {})


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
    """A message as `postcat -e` prints it; made by `make_envelope`."""

    id: str
    path: str
    """Below the folder of the queue."""
    lines: Sequence[bytes]
    """Without those of postcat itself."""
    fields: Mapping[bytes, Sequence[bytes]]
    """The values of the lines of each name, in order."""
    identity: str
    """As that of a record; "" if it is not complete."""

    @property
    def queue(self) -> str:
        """The queue that it is in."""
        return self.path.partition("/")[0]

    def values(self, name: bytes) -> list[str]:
        """The values of all lines of a name, in order."""
        return [value.decode("utf-8", "replace") for value in self.fields.get(name, ())]

    @property
    def attributes(self) -> dict[str, str]:
        """The named attributes; of several with a name, the first."""
        text = b"\n".join(self.fields.get(b"named_attribute", ())[::-1]).decode("utf-8", "replace")
        return {name: value for name, _, value in (row.partition("=") for row in text.split("\n"))}

    @property
    def image(self) -> bytes:
        """The same bytes in each state of the message: without its path."""
        return b"\n".join([f"id: {self.id}".encode(), *self.lines, b""])


def make_envelope(ident: str, path: str, lines: Sequence[bytes]) -> Envelope:
    """Parse the lines of an envelope."""
    fields: dict[bytes, list[bytes]] = {}
    for line in lines:
        name, _, value = line.partition(b":")
        fields.setdefault(name, []).append(value.strip())
    arrival = time_in(fields.get(b"message_arrival_time", ()))
    size, identity = size_in(fields), ""
    if arrival is not None and size is not None:
        sender = b"".join(fields.get(b"sender", [])[:1])
        identity = identity_of(arrival, size, len(fields.get(b"recipient", ())), sender)
    return Envelope(ident, path, lines, fields, identity)


def size_in(fields: Mapping[bytes, Sequence[bytes]]) -> int | None:
    """Bytes of the message."""
    numbers = b"".join(fields.get(b"message_size", ())[:1]).split()
    return int(numbers[0]) if numbers and numbers[0].isdigit() else None


_MONTHS = {name: number for number, name in enumerate(month_abbr) if name}
_match_time = re.compile(
    rb"[A-Z][a-z]{2} ([A-Z][a-z]{2}) +(\d{1,2}) (\d\d):(\d\d):(\d\d) (\d{4})"
).fullmatch


def time_in(values: Sequence[bytes]) -> int | None:
    """The time of the first value as if its zone were UTC; None if it cannot be read."""
    match = _match_time(values[0]) if values else None
    if match is None or (month := _MONTHS.get(match[1].decode())) is None:
        return None
    day, hour, minute, second, year = map(int, match.groups()[1:])
    return timegm((year, month, day, hour, minute, second)) if year else None


_match_begin = re.compile(
    rb"\*\*\* ENVELOPE RECORDS ((?:maildrop|active|incoming|deferred|hold)/(?:[0-9A-Za-z]+/)*"
    rb"([0-9A-Za-z]+)) \*\*\*"
).fullmatch


def parse_envelopes(lines: Iterable[bytes], ids: Iterable[str]) -> list[Envelope]:
    """Parse the envelopes of these messages, which are printed in their order; an empty file has
    none."""
    found: list[tuple[str, str, list[bytes]]] = []
    places = {ident.encode(): place for place, ident in enumerate(ids)}
    last, is_inside = -1, False
    for line in lines:
        if line.startswith(b"*** "):
            begin = _match_begin(line)
            if begin and places.get(begin[2], -1) > last:
                found.append((begin[2].decode(), begin[1].decode(), []))
                last, is_inside = places[begin[2]], True
            elif line.startswith(b"*** MESSAGE FILE END "):
                is_inside = False
        elif is_inside:  # recipients may be behind the headers
            found[-1][2].append(line)
    return [make_envelope(*one) for one in found]
