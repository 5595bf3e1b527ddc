"""Parse and write Kannader's files: link targets, schedules, envelopes and the wire form of a mail.

Source: Kannader spool, sections 1 and 2. A file is only written if its value changed, so that the
others stay byte for byte as they were. Times are whole nanoseconds, as in the format. What has
another form, or cannot be stored, is Refused with the reason.
"""

from __future__ import annotations

import calendar
import json
import math
import os
import re
from functools import lru_cache
from typing import TypeAlias

from engine.system.files import Refused
from engine.text.safe import ascii_name
from engine.values import NamedTuple

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
"""Any JSON value."""

NANOSECONDS_PER_SECOND = 1_000_000_000
"""Nanoseconds in a second."""

CONTENTS, SCHEDULE, METADATA = "contents", "schedule", "metadata"

_UUID = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
is_uuid = re.compile(_UUID).fullmatch
_match_link = re.compile(rf"\.\./data/({_UUID})/({_UUID})").fullmatch
_match_nested = re.compile(rf"(?:\.\./)+data/({_UUID})/({_UUID})").fullmatch
is_draft = re.compile(rf"(?:{SCHEDULE}|{METADATA})\.{_UUID}").fullmatch
"""Matches a draft that is to be renamed over a schedule or metadata file."""

_match_time = re.compile(
    r"\s*(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d)(?:\.(\d+))?(Z| UTC|[+-]\d\d:?\d\d)\s*",
    re.ASCII,
).fullmatch

ID_LIMIT_BYTES = 255
"""Bytes of a file name; an id is one."""

_PARSED_FILES = 64
"""Parsed files that are kept: a mail is parsed when it is claimed and again when it is sent."""


def new_uuid() -> str:
    """Return a random UUID in Kannader's form: version 4, lower case, with hyphens."""
    return _uuid(os.urandom(16))


def seeded_uuid(seed: str) -> str:
    """Return a UUID of the same form that depends only on the seed."""
    import hashlib

    return _uuid(hashlib.sha256(seed.encode()).digest()[:16])


def _uuid(chosen: bytes) -> str:
    digits = bytearray(chosen)
    digits[6] = digits[6] & 0x0F | 0x40
    digits[8] = digits[8] & 0x3F | 0x80
    text = digits.hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


def require_id(name: str) -> str:
    """Return the name of a link as an id."""
    try:
        size = len(name.encode())
    except UnicodeEncodeError as error:
        raise Refused("its name is not UTF-8") from error
    if name in ("", ".", "..") or "/" in name or size > ID_LIMIT_BYTES:
        raise Refused(f"{name[:40]!r} cannot be the name of a link")
    if not name.isprintable():
        raise Refused("its name holds control characters")
    return name


class LinkTarget(NamedTuple):
    """The target of a link: a mail and one of its recipients."""

    mail: str
    dest: str

    @property
    def path(self) -> str:
        """The recipient's folder, relative to data/."""
        return f"{self.mail}/{self.dest}"

    @property
    def text(self) -> str:
        """The text of the symbolic link."""
        return f"../data/{self.path}"


def parse_link_target(text: str) -> LinkTarget:
    """Parse the text of a link, which must have exactly the documented form."""
    match = _match_link(text)
    if match is None:
        raise Refused(f"a link to {text[:120]!r}, expected ../data/<uuid>/<uuid>")
    return LinkTarget(match[1], match[2])


def parse_nested_target(text: str) -> LinkTarget | None:
    """The target of a link in a folder below a state folder, which has more `../`; None if it is
    another one."""
    match = _match_nested(text)
    return LinkTarget(match[1], match[2]) if match else None


# ---- JSON


def parse_json(data: bytes) -> Json:
    """Parse a JSON file; a duplicate key in an object is refused."""
    if not data:
        raise Refused("empty: a write was interrupted")
    try:
        text = data.decode("utf-8")
        document: Json = json.loads(
            text, object_pairs_hook=_reject_duplicate_keys, parse_constant=_reject_constant
        )
        if "\\u" in text:
            render_json(document)  # raises for a lone surrogate, which Kannader's text cannot hold
    except UnicodeDecodeError as error:
        raise Refused(f"not UTF-8 at byte {error.start}") from error
    except UnicodeEncodeError as error:
        raise Refused("no JSON: a lone surrogate is escaped in it") from error
    except RecursionError as error:
        raise Refused("no JSON: nested too deeply") from error
    except ValueError as error:
        raise Refused(f"no JSON: {error}") from error
    return document


def _reject_duplicate_keys(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("duplicate key")
    return members


def _reject_constant(word: str) -> Json:
    raise ValueError(f"{word} is no number")


def render_json(value: Json) -> bytes:
    """Return JSON in Kannader's form: no spaces, no escapes that are not required."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


# ---- schedules


class MailSchedule(NamedTuple):
    """When a mail is to be sent, in nanoseconds since the epoch, UTC."""

    at: int
    """Time of the next attempt."""
    last_attempt: int | None = None
    """End of the last failed attempt; None before the first."""

    @property
    def due(self) -> float:
        """Time of the next attempt, in epoch seconds UTC."""
        return self.at / NANOSECONDS_PER_SECOND


def parse_time(text: str) -> int:
    """Parse a time in a form that Kannader reads; return nanoseconds since the epoch."""
    match = _match_time(text)
    if match is None:
        raise Refused(f"{text[:40]!r} is no time, expected 2026-11-20T09:36:59Z")
    year, month, day, hour, minute, second = (int(part) for part in match.groups()[:6])
    fits = 1 <= month <= 12 and 1 <= day <= 31 and hour < 24 and minute < 60 and second <= 60
    if not year or not fits or day > calendar.monthrange(year, month)[1]:
        raise Refused(f"{text[:40]!r} is a time that does not exist")
    seconds = calendar.timegm((year, month, day, hour, minute, second))
    zone = match[8].replace(":", "")
    if zone[0] in "+-":
        away = int(zone[1:3]) * 3600 + int(zone[3:5]) * 60
        seconds -= away if zone[0] == "+" else -away
    return seconds * NANOSECONDS_PER_SECOND + int((match[7] or "0")[:9].ljust(9, "0"))


def format_time(instant: int) -> str:
    """Return a time in Kannader's form: UTC, with the fewest of 0, 3, 6 or 9 decimals that are
    exact."""
    seconds, nanoseconds = divmod(instant, NANOSECONDS_PER_SECOND)
    digits = f"{nanoseconds:09d}"
    while digits.endswith("000"):
        digits = digits[:-3]
    import time

    plain = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)).rjust(19, "0")
    return f"{plain}.{digits}Z" if digits else f"{plain}Z"


EARLIEST_SECONDS, LATEST_SECONDS = -62_135_596_800, 253_402_300_799
"""First and last epoch second of the years that have four digits."""


def to_nanoseconds(seconds: float) -> int:
    """Convert epoch seconds to nanoseconds, rounded to microseconds: a float is not more exact."""
    if not math.isfinite(seconds) or not EARLIEST_SECONDS <= seconds <= LATEST_SECONDS:
        raise Refused(f"{seconds} is outside the years that a schedule can hold")
    return round(seconds * 1_000_000) * 1000


@lru_cache(_PARSED_FILES)
def parse_schedule(data: bytes) -> MailSchedule:
    """Parse a schedule in any form that Kannader reads."""
    document = parse_json(data)
    if isinstance(document, list):
        if len(document) != 2:
            raise Refused(f"{len(document)} values, expected two times")
        at, last = document
    elif isinstance(document, dict):
        at, last = document.get("at"), document.get("last_attempt")
    else:
        raise Refused("no object, expected at and last_attempt")
    if not isinstance(at, str) or not (last is None or isinstance(last, str)):
        raise Refused("at or last_attempt is no time")
    return MailSchedule(parse_time(at), None if last is None else parse_time(last))


def render_schedule(schedule: MailSchedule) -> bytes:
    """Return a schedule as Kannader writes it."""
    last = None if schedule.last_attempt is None else format_time(schedule.last_attempt)
    return render_json({"at": format_time(schedule.at), "last_attempt": last})


# ---- envelopes


class Envelope(NamedTuple):
    """Sender and recipient of a mail, in the usual form of addresses."""

    sender: str
    """ "<>" is the null sender, of bounces."""
    recipient: str
    host: str
    """The recipient's host in lower case; "" for a local recipient."""
    is_known_format: bool
    """False if an address has an unknown form; such a file is never rewritten."""


@lru_cache(_PARSED_FILES)
def parse_metadata(data: bytes) -> Envelope:
    """Parse the envelope in a metadata file."""
    document = parse_json(data)
    fields = document if isinstance(document, dict) else {}
    if "from" not in fields or not isinstance(fields.get("to"), dict):
        raise Refused("no envelope, expected from and to")
    if fields["from"] is not None and not isinstance(fields["from"], dict):
        raise Refused("the sender is not an address")
    recipient, known = _address(fields["to"])
    sender, also_known = ("<>", True) if fields["from"] is None else _address(fields["from"])
    host = recipient.rpartition("@")[2].lower() if "@" in recipient and known else ""
    return Envelope(sender, recipient, host, known and also_known)


_LOCALPARTS = ("Ascii", "QuotedAscii", "Utf8", "QuotedUtf8")
_HOSTS = ("AsciiDomain", "Utf8Domain", "Ipv4", "Ipv6")


def _address(email: Json) -> tuple[str, bool]:
    """Return an address as text and True; for an unknown form, its JSON and False."""
    if isinstance(email, dict) and set(email) == {"localpart", "hostname"}:
        local = _raw_part(email["localpart"], _LOCALPARTS)
        host = "" if email["hostname"] is None else _raw_part(email["hostname"], _HOSTS)
        if local is not None and host is not None:
            return (f"{local}@{host}" if host else local), True
    return render_json(email).decode(), False


def _raw_part(part: Json, tags: tuple[str, ...]) -> str | None:
    if isinstance(part, dict) and len(part) == 1:
        ((tag, value),) = part.items()
        if tag in tags and isinstance(value, dict) and isinstance(value.get("raw"), str):
            return str(value["raw"])
    return None


_match_plain_local = re.compile(r"[^\s\x00-\x20\x7f\"(),:;<>@\[\]\\]+").fullmatch
_match_quoted_local = re.compile(r'"(?:[^"\\\x00-\x1f\x7f]|\\[^\x00-\x1f\x7f])*"').fullmatch
_match_domain = re.compile(r"[^\s\x00-\x2c/:-@\[-`{-\x7f]+", re.IGNORECASE).fullmatch


def encode_address(address: str) -> dict[str, Json]:
    """Convert an address to the format's JSON object."""
    local, host = address, ""
    if not (address.startswith('"') and address.endswith('"') and _match_quoted_local(address)):
        local, at, host = address.rpartition("@")
        if not at:
            local, host = address, ""
        elif not host:
            raise Refused(f"{address[:80]!r} is not a valid address: nothing after its @")
    utf8 = "" if local.isascii() else "Utf8"
    if _match_quoted_local(local):
        tag = f"Quoted{utf8 or 'Ascii'}"
    elif _match_plain_local(local):
        tag = utf8 or "Ascii"
    else:
        raise Refused(f"{address[:80]!r} is not a valid address, expected name@host")
    return {"localpart": {tag: {"raw": local}}, "hostname": _host(host) if host else None}


def _host(host: str) -> dict[str, Json]:
    if host.startswith("[") and host.endswith("]"):
        import ipaddress

        inner = host[1:-1]
        six = inner.lower().startswith("ipv6:")
        try:
            ip = ipaddress.IPv6Address(inner[5:]) if six else ipaddress.IPv4Address(inner)
        except ValueError as error:
            raise Refused(f"{host[:80]!r} is not a valid IP address") from error
        return {"Ipv6" if six else "Ipv4": {"raw": host, "ip": str(ip)}}
    if not _match_domain(host):
        raise Refused(f"{host[:80]!r} is not a valid host name")
    if host.isascii():
        return {"AsciiDomain": {"raw": host}}
    try:
        return {"Utf8Domain": {"raw": host, "punycode": ascii_name(host)}}
    except ValueError as error:
        raise Refused(f"{host[:80]!r} is not a valid host name: {error}") from error


def render_metadata(sender: str, recipient: str) -> bytes:
    """Return an envelope as Kannader writes it; the sender "" or "<>" is the null sender."""
    document: dict[str, Json] = {
        "from": None if sender in ("", "<>") else encode_address(sender),
        "to": encode_address(recipient),
        "metadata": None,
    }
    return render_json(document)


def replace_recipient(data: bytes, recipient: str) -> bytes:
    """Replace the recipient in an envelope; other keys stay.

    Raises:
        Refused: the envelope has an unknown form, or the recipient is not an address.
    """
    document = parse_json(data)
    if not parse_metadata(data).is_known_format or not isinstance(document, dict):
        raise Refused("its envelope is in an unknown format and is not rewritten")
    return render_json({**document, "to": encode_address(recipient)})


# ---- the wire form of a mail


def encode_wire(text: bytes) -> bytes:
    """Convert a mail to wire form: CRLF line ends, doubled leading dots, a final line with a dot.

    Bytes above 127 stay as they are.
    """
    lines = text.replace(b"\r\n", b"\n").split(b"\n")
    if lines[-1] == b"":
        lines.pop()
    stuffed = [b"." + line if line.startswith(b".") else line for line in lines]
    return b"".join(line + b"\r\n" for line in (*stuffed, b"."))


END_BYTES = 5
"""How many of the last bytes `ends_mail` needs."""


def ends_mail(tail: bytes) -> bool:
    """True if these last bytes of a mail in wire form end it: a line with only a dot."""
    return tail == b".\r\n" or tail.endswith(b"\r\n.\r\n")
