"""What Postfix prints of a message: the lines of `postqueue -j`, and envelopes by `postcat -e`.

A record is the first letter of the queue, and the line of the listing from the arrival on, as its
start takes much memory. Behind a line end it has what other programs print of the message:
`MTIME_CTIME_MODE` of its file, or the PID of the process that delivers it."""

from __future__ import annotations

import json
import re
from calendar import month_abbr, timegm
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any
from zlib import crc32

from engine.model import EMPTY, Lease, Problem, State, Task
from engine.operations.trash import SINCE_KEY
from engine.programs.mail_accounts import MailAccounts
from engine.programs.mail_server import UNSURE, ListedMail, MailSummary
from engine.text.safe import clean_error, safe_line
from engine.values import NamedTuple

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
_BY_LETTER = {queue[0]: queue for queue in QUEUES}

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

match_id = re.compile(
    rb'\{"queue_name": "(?:maildrop|active|incoming|deferred|hold)", '
    rb'"queue_id": "([0-9A-Za-z]{6,20})", "arrival_time": '
).match
"""What of a usual line is before the arrival."""
LETTER = len(b'{"queue_name": "')
"""Place of the first letter of the queue in such a line."""
_match_head = re.compile(
    rb'([a-z])(\d{1,12}), "message_size": (\d{1,18}), (?:"forced_expire": (true|false), )?'
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


make_mail = partial(tuple.__new__, ListedMail)


def parse_line(number: int, line: bytes) -> ListedMail | Problem:
    """Parse one line of a listing as far as its id; the fixed head by a pattern."""
    if (match := match_id(line)) and line.endswith(b"]}"):
        return ListedMail(match[1].decode(), line[LETTER : LETTER + 1] + line[match.end() :])
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
    mail = parse_line(0, line) if match_id(line) else None
    if not isinstance(mail, ListedMail) or not _match_head(mail.record):
        raise ValueError("not a message")
    return mail


def line_of(ident: str, record: bytes) -> bytes:
    """The line of a listing of which a record was made."""
    start = f'{{"queue_name": "{_BY_LETTER[chr(record[0])]}", "queue_id": "{ident}", '
    return b'%b"arrival_time": %b' % (start.encode(), record[1:].partition(b"\n")[0])


def identity_of(arrival: int, size: int, recipients: int, sender: bytes) -> str:
    """The part of a revision that only another message, or a delivery, changes."""
    return f"{arrival % ZONE_SECONDS}-{size}-{recipients}-{_sum_of(sender)}"


@lru_cache(4096)
def _sum_of(sender: bytes) -> str:
    name = b"" if sender == NULL_SENDER.encode() else sender.translate(None, _IGNORED)
    return f"{crc32(name):x}"


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


ACCOUNT_READ = "a"
"""Begins the last part of a revision of a message whose account is known."""
NO_ACCOUNTS = MailAccounts()
"""Has none, for callers that need none."""


def arrival_in(record: bytes) -> int:
    """The arrival of a record in epoch seconds UTC; 0 if it cannot be read."""
    match = _match_head(record)
    return int(match[2]) if match else 0


def summarize(
    ident: str, record: bytes, is_trash: IsTrash, accounts: MailAccounts, *, has_times: bool
) -> MailSummary:
    """State, word and revision of a record, without parsing its recipients."""
    line, _, detail = record.partition(b"\n")
    match = _match_head(line)
    if match is None:  # `parse_task` makes a problem of it
        return MailSummary(PENDING, "", f"..{crc32(record):x}")
    queue, recipients, sender = _BY_LETTER[chr(line[0])], line.count(_RECIPIENT), match[5]
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
    is_read = ACCOUNT_READ if accounts.get(ident, identity) is not None else ""
    tail = is_read + _tail(queue, line, detail, has_times=has_times)
    return MailSummary(state, word, f"{identity}.{queue}.{tail}")


def _ctime(detail: bytes) -> float | None:
    times = parse_times(detail)
    return None if times is None else times.ctime


_match_usual = re.compile(
    r'[dh](0|[1-9][0-9]{0,11}), "message_size": (0|[1-9][0-9]{0,17}), '
    r'(?:"forced_expire": false, )?"sender": "([^"]*)", '
    r'"recipients": \[\{"address": "([^"]*)"(?:, "delay_reason": "([^"]*)")?\}\]\}'
    r"\n([0-9]+)\."
).match
"""Most records: a file that waits, with one recipient; the text has no backslash."""
_make_task = partial(tuple.__new__, Task)
"""All fields by position: with names it takes four times the time."""


@lru_cache(4096)
def _parse_sender(sender: str) -> tuple[str, str]:
    """A sender as it is shown, and its sum."""
    return "<>" if sender == NULL_SENDER else sender, _sum_of(sender.encode("utf-8", "replace"))


@lru_cache(1024)
def _parse_reason(reason: str) -> tuple[str, Mapping[str, str]]:
    """The error of a reason, and further values. Most messages share their reason with others."""
    error = clean_error(reason)
    if error.startswith(SUSPENDED_PREFIX):
        return error.removeprefix(SUSPENDED_PREFIX), {SUSPENDED_KEY: SUSPENDED}
    return error, EMPTY


def usual_task(ident: str, record: bytes, is_trash: IsTrash, accounts: MailAccounts) -> Task | None:
    """The task of a record as most are, by one pattern; None: it needs `parse_task`, which makes
    the same of it in twice the time."""
    try:
        text = record.decode()
    except UnicodeDecodeError:
        return None
    if "\\" in text or (match := _match_usual(text)) is None:
        return None
    queue = _BY_LETTER[text[0]]
    arrival, size, sender, address, reason, due = match.groups("")
    created, (sender, sender_sum) = int(arrival), _parse_sender(sender)
    error, extra = _parse_reason(reason)
    identity = f"{created % ZONE_SECONDS}-{size}-1-{sender_sum}"
    if queue == "hold":
        ctime = _ctime(record.partition(b"\n")[2])
        if is_trash(ident, identity, ctime):
            return None
    account = accounts.get(ident, identity)
    is_read = "" if account is None else ACCOUNT_READ
    return _make_task(
        (
            ident,
            "mail",
            QUEUES[queue],
            float(created),
            "",
            domain_of(address),
            "",
            float(due),
            None,
            0,
            "1 recipient",
            address,
            "",
            sender,
            (address,),
            account,
            int(size),
            error,
            None,
            f"{identity}.{queue}.{is_read}{due}",
            extra,
            None,
        )
    )


_scan: Callable[[str, int], tuple[Any, int]]
_scan = json.JSONDecoder(strict=False).scan_once  # type: ignore[attr-defined]
# Without the search for an encoding, which takes a third of the time of `json.loads`.


def parse_task(
    ident: str,
    record: bytes,
    is_trash: IsTrash,
    marked_at: float | None,
    accounts: MailAccounts,
    *,
    has_times: bool,
) -> Task | Problem:
    """The task of any record."""
    line, _, detail = record.partition(b"\n")
    try:
        text = line.decode("utf-8", "replace")
        fields = _scan(f'{{"arrival_time": {text[1:]}', 0)[0]
        recipients, queue = fields["recipients"], _BY_LETTER[text[0]]
        sender, sender_sum = _parse_sender(fields["sender"])
        addresses = tuple([one["address"] for one in recipients])
        "".join(addresses)  # TypeError: one is no text
        number = len(addresses)
        arrival, size, home = fields["arrival_time"], fields["message_size"], QUEUES[queue]
        identity = f"{arrival % ZONE_SECONDS}-{size}-{number}-{sender_sum}"
        first = addresses[0] if addresses else ""
        error, extra = _parse_reason(
            next((one["delay_reason"] for one in recipients if "delay_reason" in one), "")
        )
    except (LookupError, ValueError, TypeError, AttributeError, StopIteration, RecursionError):
        return Problem(ident, f"its line in the listing cannot be read: {_shown(line)}")
    due: float | None = 0.0
    state, is_expired = home, fields.get("forced_expire") is True
    tail = _tail(queue, line, detail, has_times=has_times)
    if (account := accounts.get(ident, identity)) is not None:
        tail = ACCOUNT_READ + tail
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
    return _make_task(
        (
            ident,
            "mail",
            state,
            float(arrival),
            "",
            domain_of(first),
            word_of(state, queue, recipients=number, is_busy=bool(detail)),
            due,
            None,
            0,
            "1 recipient" if number == 1 else count_recipients(number),
            first,
            "",
            sender,
            addresses,
            account,
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
    """The values of the lines of each name, in order, but for those of named attributes."""
    attributes: Mapping[bytes, bytes]
    """The named attributes, by the start of their lines; of several with a name, the first."""
    identity: str
    """As that of a record; "" if it is not complete."""

    @property
    def queue(self) -> str:
        """The queue that it is in."""
        return self.path.partition("/")[0]

    def values(self, name: bytes) -> list[str]:
        """The values of all lines of a name, in order."""
        return [value.decode("utf-8", "replace") for value in self.fields.get(name, ())]

    def attribute(self, name: str) -> str:
        """The value of a named attribute; "" without one."""
        return self.attributes.get(_ATTRIBUTE + name.encode(), b"").decode("utf-8", "replace")

    @property
    def account(self) -> str:
        """The SASL login that submitted it; "" without one: a local program has none."""
        return safe_line(self.attribute("sasl_username"))

    @property
    def image(self) -> bytes:
        """The same bytes in each state of the message: without its path."""
        return b"\n".join([f"id: {self.id}".encode(), *self.lines, b""])


_ATTRIBUTE = b"named_attribute: "
"""How the line of a named attribute begins; its name and value are separated by =."""


def make_envelope(ident: str, path: str, lines: Sequence[bytes]) -> Envelope:
    """Parse the lines of an envelope."""
    fields: dict[bytes, list[bytes]] = {}
    attributes: dict[bytes, bytes] = {}
    for line in lines:
        if line.startswith(_ATTRIBUTE):
            name, _, value = line.partition(b"=")
            if name not in attributes:
                attributes[name] = value
        else:
            name, _, value = line.partition(b":")
            fields.setdefault(name, []).append(value.strip())
    arrival = time_in(fields.get(b"message_arrival_time", ()))
    size, identity = size_in(fields), ""
    if arrival is not None and size is not None:
        sender = b"".join(fields.get(b"sender", [])[:1])
        identity = identity_of(arrival, size, len(fields.get(b"recipient", ())), sender)
    return Envelope(ident, path, lines, fields, attributes=attributes, identity=identity)


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
    none. Each is parsed when the next one begins, while the program prints on."""
    envelopes = list[Envelope]()
    places = {ident.encode(): place for place, ident in enumerate(ids)}
    last, is_inside, inside = -1, False, list[bytes]()
    ident = path = ""
    for line in lines:
        if line.startswith(b"*** "):
            begin = _match_begin(line)
            if begin and places.get(begin[2], -1) > last:
                if last >= 0:
                    envelopes.append(make_envelope(ident, path, inside))
                path, ident, inside = begin[1].decode(), begin[2].decode(), []
                last, is_inside = places[begin[2]], True
            elif line.startswith(b"*** MESSAGE FILE END "):
                is_inside = False
        elif is_inside:  # recipients may be behind the headers
            inside.append(line)
    if last >= 0:
        envelopes.append(make_envelope(ident, path, inside))
    return envelopes
