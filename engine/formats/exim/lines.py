"""Parse what Exim's programs print: the listing (`exim -bpru`), the answers of acts (`-Mf`, `-MG`),
settings (`-bP`), the header file (`-Mvh`) and retry times (`exinext`)."""

from __future__ import annotations

import re
from calendar import timegm
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from string import ascii_lowercase, ascii_uppercase, digits
from time import strptime

from engine.model import Task
from engine.values import NamedTuple

_ID = rb"[0-9A-Za-z]{6}-(?:[0-9A-Za-z]{6}-[0-9A-Za-z]{2}|[0-9A-Za-z]{11}-[0-9A-Za-z]{4})"
"""The shorter form is that of versions up to 4.96."""

_is_id = re.compile(_ID.decode()).fullmatch

_MESSAGE = re.compile(
    rb" ?\d+[mhd] +(?:([\d.]+[KM]?) +)?(%s) <(.*)>(?: \(([^)]*)\))?( \*\*\* frozen \*\*\*)?" % _ID
).fullmatch
MAX_MESSAGE_BYTES = 8192
"""A longer first line of a message is not read: the time for its pattern grows with the square of
a sender of `> (`."""
_OTHER_MESSAGE = re.compile(rb" {6}(%s)" % _ID).fullmatch
_DAMAGE = re.compile(rb" {4}\*\*\* spool (format|read) error: (.*?) ?\*\*\*").fullmatch
_NO_FILE = b"No such file or directory"

_DIGITS = {c: n for n, c in enumerate(f"{digits}{ascii_uppercase}{ascii_lowercase}")}


def is_id(text: str) -> bool:
    """True if a text is written as the id of a message."""
    return _is_id(text) is not None


def arrival_time(ident: str) -> float:
    """The arrival of a message, epoch seconds UTC: the first six characters of its id, base 62."""
    seconds = 0
    for character in ident[:6]:
        seconds = seconds * 62 + _DIGITS[character]
    return float(seconds)


def parse_size(size: str) -> int | None:
    """The bytes of a size as `349`, `1.9K` or `12M` of a listing; None without one."""
    unit = {"K": 1024, "M": 1024 * 1024}.get(size[-1:], 1)
    try:
        return round(float(size.rstrip("KM")) * unit)
    except ValueError:
        return None


class QueuedMail(NamedTuple):
    """One message of a listing; all texts are as they were printed."""

    id: str
    size: bytes
    """Rounded if it ends with K or M; empty if its data file is missing."""
    sender: bytes
    login: bytes = b""
    """The user who set the sender and is not trusted; empty without one."""
    is_frozen: bool = False
    recipients: tuple[bytes, ...] = ()
    """Addresses that are not delivered yet."""


class DamagedMail(NamedTuple):
    """A message of a listing whose spool files cannot be read."""

    id: str
    why: str
    """As Exim prints it; "" if it has no header file, as every message that is not there."""


def parse_listing(lines: Iterable[bytes]) -> Iterator[QueuedMail | DamagedMail | bytes]:
    """The messages of `exim -bpru`; a line that cannot be read is yielded as it is."""
    mail: QueuedMail | None = None
    damaged = ""
    addresses: list[bytes] = []
    for line in lines:
        if line[:10] == b"          " and mail is not None:
            addresses.append(line[10:])
        elif not line:
            if mail is not None:
                yield mail._replace(recipients=tuple(addresses))
            mail = None
        elif len(line) <= MAX_MESSAGE_BYTES and (match := _MESSAGE(line)) is not None:
            if mail is not None:
                yield mail._replace(recipients=tuple(addresses))
            size, ident, sender, login, frozen = match.groups()
            addresses = []
            mail = QueuedMail(
                ident.decode(), size or b"", sender, login=login or b"", is_frozen=bool(frozen)
            )
        elif (other := _OTHER_MESSAGE(line)) is not None:
            damaged = other[1].decode()
        elif damaged and (damage := _DAMAGE(line)) is not None:
            is_missing = damage[1] == b"read" and damage[2] == _NO_FILE
            words = f"spool {damage[1].decode()} error: {damage[2].decode('utf-8', 'replace')}"
            yield DamagedMail(damaged, "" if is_missing else words)
            damaged = ""
        else:
            yield line
    if mail is not None:
        yield mail._replace(recipients=tuple(addresses))


_ANSWER = re.compile(
    rb"(?:Message |Spool data file for |Spool format error for )(?P<id>%s)(?:-H)?"
    rb"(?P<text>(?:(?!Message |Spool )[^\n])*)" % _ID
)


def parse_answers(lines: Iterable[bytes]) -> dict[str, str]:
    """What an act printed about each message, by id: `is now frozen`, `is locked`, `does not
    exist`; "" for a message that `-MG` has moved, as it prints no newline."""
    answers: dict[str, str] = {}
    for match in _ANSWER.finditer(b"\n".join(lines)):
        ident, text = match["id"].decode(), match["text"].decode("utf-8", "replace").strip()
        if match[0].startswith(b"Spool format"):
            text = "spool format error"
        answers.setdefault(ident, text)
    return answers


_SETTING = re.compile(r"([a-z_0-9]+) = ?(.*)").fullmatch


def parse_settings(lines: Iterable[bytes]) -> dict[str, str]:
    """The settings that `exim -bP NAME...` prints: by name, `true` or `false` for a switch; the
    bare path of the configuration as configure_file."""
    settings: dict[str, str] = {}
    for raw in lines:
        line = raw.decode("utf-8", "replace")
        if (match := _SETTING(line)) is not None:
            settings[match[1]] = match[2].strip()
        elif line.startswith("/"):
            settings["configure_file"] = line
        elif line:
            settings[line.removeprefix("no_")] = str(not line.startswith("no_")).lower()
    return settings


_UNITS = {"w": 604800, "d": 86400, "h": 3600, "m": 60, "s": 1}
_is_time = re.compile(r"(?:\d+[wdhms])+").fullmatch


def parse_time(text: str) -> float | None:
    """The seconds of a time such as `1w2d` or `0s`; None if it is none."""
    if _is_time(text) is None:
        return None
    return float(sum(int(n) * _UNITS[unit] for n, unit in re.findall(r"(\d+)([wdhms])", text)))


def parse_bytes(text: str) -> int:
    """The bytes of a setting such as `10M`; 0 if it is none."""
    match = re.fullmatch(r"(\d+)([KMG]?)", text)
    return int(match[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[match[2]] if match else 0


class HeaderFile(NamedTuple):
    """The header file of a message (`exim -Mvh`): its envelope, and the headers."""

    login: str
    """The user that submitted it."""
    sender: str
    arrived: float | None
    """Epoch seconds UTC."""
    options: Mapping[str, str]
    """By name, without dashes: host_address, auth_id, `frozen`; "" for one without a value."""
    delivered: tuple[str, ...]
    recipients: tuple[str, ...]
    """All of them, those that are delivered too."""
    headers: str
    """As the mail has them; deleted ones are omitted."""

    @property
    def account(self) -> str:
        """The account that submitted it: an SMTP login, or a local user."""
        return self.options.get("auth_id") or self.options.get("ident", "")


_HEADER = re.compile(rb"(\d{3,})(.) ")


def parse_header_file(data: bytes) -> HeaderFile | None:
    """Parse a header file; None if it has not its form."""
    lines = data.split(b"\n")
    with suppress(ValueError, IndexError):
        login = lines[1].rsplit(b" ", 2)[0].decode("utf-8", "replace")
        sender = lines[2].decode("utf-8", "replace")[1:-1]
        arrived, at = float(lines[3].split()[0]), 4
        options: dict[str, str] = {}
        while lines[at].startswith(b"-"):
            name, _, value = lines[at].decode("utf-8", "replace").lstrip("-").partition(" ")
            options[name] = value
            at += 1
        delivered = list[str]()
        while not lines[at].isdigit():
            if lines[at] != b"XX":
                delivered.append(lines[at].decode("utf-8", "replace").partition(" ")[2])
            at += 1
        end = at + 1 + int(lines[at])
        recipients = tuple(one.decode("utf-8", "replace") for one in lines[at + 1 : end])
        if lines[end]:
            return None
        return HeaderFile(
            login,
            sender,
            arrived,
            options,
            delivered=tuple(delivered),
            recipients=recipients,
            headers=_parse_headers(b"\n".join(lines[end + 1 :])),
        )
    return None


def _parse_headers(data: bytes) -> str:
    """Each header has its length before it, and a letter: `*` for a deleted one."""
    at, headers = 0, list[bytes]()
    while (match := _HEADER.match(data, at)) is not None:
        end = match.end() + int(match[1])
        if match[2] != b"*":
            headers.append(data[match.end() : end].rstrip(b"\n") + b"\n")
        at = end
    return b"".join(headers).decode("utf-8", "replace")


class RetryRecord(NamedTuple):
    """A record of the retry database, as `exinext` or exim_dumpdb(8) prints it. Times are as
    printed: local ones."""

    what: str
    """`Transport: HOST [IP]:PORT`, with the id of a message if it delays that alone; `Transport:`
    or `Route: ADDRESS`, with `:<SENDER>`; `Route: DOMAIN`; of exim_dumpdb(8) the host or domain."""
    error: str
    first_failed: str
    last_tried: str
    next_try: str

    def is_for(self, task: Task) -> bool:
        """True if it delays a message; `exinext` finds records by parts of an address or host."""
        known = {one.lower() for one in task.recipients}
        if match := _RETRY_OF_ADDRESS(self.what):
            sender = f"<{task.sender.strip('<>')}>".lower()
            return match[1].lower() in known and (match[2] or sender).lower() == sender
        kind, _, name = self.what.lower().partition(": ")
        if kind == "route":
            return name in {one.rpartition("@")[2] for one in known}
        match = _RETRY_OF_MESSAGE(self.what)
        return match is None or match[1] == task.id

    @property
    def next_try_at(self) -> float | None:
        """Its next try, if the printed time is UTC: epoch seconds; None if it is no time."""
        return parse_retry_time(self.next_try)


def parse_retry_time(text: str) -> float | None:
    """A printed time of a retry record as epoch seconds, as if it were UTC; None if it is none."""
    with suppress(ValueError):
        return float(timegm(strptime(text, "%d-%b-%Y %H:%M:%S")))
    return None


_RETRY_OF_ADDRESS = re.compile(r"(?:Transport|Route): (\S*@[^:<>\s]*)(?::(<.*>))?").fullmatch
_RETRY_OF_MESSAGE = re.compile(r"Transport: .*\]:\S+ (\S+)").fullmatch
_RETRY = re.compile(r"((?:Transport|Route): .*?) error (-?\d+): (.*)").fullmatch
_RETRY_TIME = re.compile(r"  (first failed|last tried|next try at): +(.*?)").fullmatch


def parse_retries(text: str) -> list[RetryRecord]:
    """The records that `exinext` printed."""
    records: list[RetryRecord] = []
    for line in text.splitlines():
        if (match := _RETRY(line)) is not None:
            records.append(RetryRecord(match[1], match[3], "", "", ""))
        elif records and (match := _RETRY_TIME(line)) is not None:
            names = {"first failed": "first_failed", "last tried": "last_tried"}
            field = names.get(match[1], "next_try")
            records[-1] = records[-1]._replace(**{field: match[2]})
    return records


_DUMPED = re.compile(r"  ([TR]):(.+) -?\d+ -?\d+ (.*)").fullmatch
_DUMPED_TIME = r"(\d\d-\w{3}-\d{4} \d\d:\d\d:\d\d)"
_DUMPED_TIMES = re.compile("  ".join([_DUMPED_TIME] * 3) + r"(?: \*)?\s*").fullmatch


def parse_retry_dump(lines: Iterable[bytes]) -> Iterator[RetryRecord]:
    """The records that `exim_dumpdb SPOOL retry` prints, each on two lines."""
    head = None
    for line in lines:
        text = line.decode("utf-8", "replace")
        times = _DUMPED_TIMES(text)
        if head is not None and times is not None:
            what = head[2].partition(":<")[0].rpartition("@")[2].partition(":")[0]
            yield RetryRecord(what, head[3], times[1], times[2], times[3])
        head = _DUMPED(text)


class SpoolLock(NamedTuple):
    """A lock of /proc/locks as Exim has it on the data file of a message that it delivers."""

    pid: int
    inode: int


_LOCK = re.compile(rb"\d+: POSIX +ADVISORY +WRITE +(\d+) [0-9a-f]+:[0-9a-f]+:(\d+) 0 (?:18|25)")
"""From the first byte to the end of the first line, which has the id."""


def parse_locks(lines: Iterable[bytes]) -> list[SpoolLock]:
    """The locks that may be on data files, of `/proc/locks`."""
    return [SpoolLock(int(m[1]), int(m[2])) for m in map(_LOCK.fullmatch, lines) if m]
