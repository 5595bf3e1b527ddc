"""What Kannader writes: names, links, schedules, envelopes and the wire form of a mail.

Source: Kannader spool, sections 1 and 2. What is not changed is never written anew, so that a file
stays byte for byte what it was; times are whole nanoseconds, as the format has them.
"""

from __future__ import annotations

import calendar
import json
import math
import os
import re
from typing import NamedTuple, TypeAlias

from engine.system.files import Refused
from engine.text.safe import ascii_name

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
"""Whatever a JSON text may say."""

SECOND = 1_000_000_000
"""Nanoseconds."""

CONTENTS, SCHEDULE, METADATA = "contents", "schedule", "metadata"

_UUID = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
is_uuid = re.compile(_UUID).fullmatch
_link = re.compile(rf"\.\./data/({_UUID})/({_UUID})").fullmatch
is_draft = re.compile(rf"(?:{SCHEDULE}|{METADATA})\.{_UUID}").fullmatch
"""Whether a file is what a reschedule writes before it is renamed over the old one."""

_TIME = re.compile(
    r"\s*(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d)(?:\.(\d+))?(Z| UTC|[+-]\d\d:?\d\d)\s*",
    re.ASCII,
).fullmatch

ID_LIMIT = 255
"""Bytes of a file name; an id is one."""


def new_uuid() -> str:
    """A random one as Kannader makes them: version 4, lower case, with hyphens."""
    return _uuid(os.urandom(16))


def uuid_of(seed: str) -> str:
    """One that looks the same, and is always the same for the same seed."""
    import hashlib

    return _uuid(hashlib.sha256(seed.encode()).digest()[:16])


def _uuid(chosen: bytes) -> str:
    digits = bytearray(chosen)
    digits[6] = digits[6] & 0x0F | 0x40
    digits[8] = digits[8] & 0x3F | 0x80
    text = digits.hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


def require_id(name: str) -> str:
    """The id that the name of a link is.

    Raises:
        Refused: it is no name for a link, or none that could be shown.
    """
    try:
        size = len(name.encode())
    except UnicodeEncodeError as error:
        raise Refused("its name is not UTF-8") from error
    if name in ("", ".", "..") or "/" in name or size > ID_LIMIT:
        raise Refused(f"{name[:40]!r} can be no link's name")
    if not name.isprintable():
        raise Refused("its name holds control characters")
    return name


class LinkTarget(NamedTuple):
    """Where a link leads: the mail, and one of its recipients."""

    mail: str
    dest: str

    @property
    def path(self) -> str:
        """The recipient's folder, below data/."""
        return f"{self.mail}/{self.dest}"

    @property
    def text(self) -> str:
        """What the link says."""
        return f"../data/{self.path}"


def target_of(text: str) -> LinkTarget:
    """Where a link leads, if it says so exactly as the format does.

    Raises:
        Refused: it leads elsewhere, or is written otherwise.
    """
    found = _link(text)
    if found is None:
        raise Refused(f"a link to {text[:120]!r}, expected ../data/<uuid>/<uuid>")
    return LinkTarget(found[1], found[2])


# ---- JSON


def parse_json(data: bytes) -> Json:
    """What a JSON file says; a key that comes twice in one object is refused.

    Raises:
        Refused: it is none, with the reason.
    """
    if not data:
        raise Refused("empty: a write was interrupted")
    try:
        text = data.decode("utf-8")
        found: Json = json.loads(text, object_pairs_hook=_object, parse_constant=_no_number)
        if "\\u" in text:
            json_bytes(found)  # half a character, which no text of Kannader's can hold
    except UnicodeDecodeError as error:
        raise Refused(f"not UTF-8 at byte {error.start}") from error
    except UnicodeEncodeError as error:
        raise Refused("no JSON: half a character is escaped in it") from error
    except RecursionError as error:
        raise Refused("no JSON that anybody writes: nested too deeply") from error
    except ValueError as error:
        raise Refused(f"no JSON: {error}") from error
    return found


def _object(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key comes twice")
    return found


def _no_number(word: str) -> Json:
    raise ValueError(f"{word} is no number")


def json_bytes(value: Json) -> bytes:
    """The JSON that Kannader would write of it: no spaces, nothing escaped that need not be."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


# ---- schedules


class Schedule(NamedTuple):
    """When a mail is to be sent, in nanoseconds since the epoch, UTC."""

    at: int
    """The next attempt."""
    last_attempt: int | None = None
    """The end of the last one that failed; None before the first."""

    @property
    def due(self) -> float:
        """The next attempt, in epoch seconds UTC."""
        return self.at / SECOND


def parse_time(text: str) -> int:
    """Nanoseconds since the epoch of a time as Kannader reads it.

    Raises:
        Refused: it is none.
    """
    found = _TIME(text)
    if found is None:
        raise Refused(f"{text[:40]!r} is no time, expected 2026-11-20T09:36:59Z")
    year, month, day, hour, minute, second = (int(part) for part in found.groups()[:6])
    fits = 1 <= month <= 12 and 1 <= day <= 31 and hour < 24 and minute < 60 and second <= 60
    if not year or not fits or day > calendar.monthrange(year, month)[1]:
        raise Refused(f"{text[:40]!r} is no time that exists")
    seconds = calendar.timegm((year, month, day, hour, minute, second))
    zone = found[8].replace(":", "")
    if zone[0] in "+-":
        away = int(zone[1:3]) * 3600 + int(zone[3:5]) * 60
        seconds -= away if zone[0] == "+" else -away
    return seconds * SECOND + int((found[7] or "0")[:9].ljust(9, "0"))


def format_time(instant: int) -> str:
    """A time as Kannader writes it: UTC, with the fewest of 0, 3, 6 or 9 digits that are exact."""
    seconds, rest = divmod(instant, SECOND)
    digits = f"{rest:09d}"
    while digits.endswith("000"):
        digits = digits[:-3]
    import time

    plain = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)).rjust(19, "0")
    return f"{plain}.{digits}Z" if digits else f"{plain}Z"


EARLIEST, LATEST = -62_135_596_800, 253_402_300_799
"""Epoch seconds of the first and the last second that four digits of a year can say."""


def instant(seconds: float) -> int:
    """A time of ours in nanoseconds: to a millionth of a second, since a float holds no more.

    Raises:
        Refused: no clock will ever show it.
    """
    if not math.isfinite(seconds) or not EARLIEST <= seconds <= LATEST:
        raise Refused(f"{seconds} is no time that a schedule could hold")
    return round(seconds * 1_000_000) * 1000


def parse_schedule(data: bytes) -> Schedule:
    """What a schedule says, in any form that Kannader reads.

    Raises:
        Refused: Kannader could not read it either.
    """
    said = parse_json(data)
    if isinstance(said, list):
        if len(said) != 2:
            raise Refused(f"{len(said)} values, expected two times")
        at, last = said
    elif isinstance(said, dict):
        at, last = said.get("at"), said.get("last_attempt")
    else:
        raise Refused("no object, expected at and last_attempt")
    if not isinstance(at, str) or not (last is None or isinstance(last, str)):
        raise Refused("at or last_attempt is no time")
    return Schedule(parse_time(at), None if last is None else parse_time(last))


def schedule_bytes(schedule: Schedule) -> bytes:
    """A schedule as Kannader writes it."""
    last = schedule.last_attempt
    return json_bytes(
        {
            "at": format_time(schedule.at),
            "last_attempt": None if last is None else format_time(last),
        }
    )


# ---- envelopes


class Envelope(NamedTuple):
    """From whom to whom, as people write addresses."""

    sender: str
    """ "<>" is the null sender, of bounces."""
    recipient: str
    host: str
    """Of the recipient, in lower case; "" for one of this host."""
    known: bool
    """Whether it is written in no way that we do not know; else it is never written anew."""


def parse_metadata(data: bytes) -> Envelope:
    """The envelope that a metadata file holds.

    Raises:
        Refused: it holds none.
    """
    said = parse_json(data)
    if not isinstance(said, dict) or not isinstance(said.get("to"), dict) or "from" not in said:
        raise Refused("no envelope, expected from and to")
    if said["from"] is not None and not isinstance(said["from"], dict):
        raise Refused("its sender is no address")
    recipient, known = _address(said["to"])
    sender, also_known = ("<>", True) if said["from"] is None else _address(said["from"])
    host = recipient.rpartition("@")[2].lower() if "@" in recipient and known else ""
    return Envelope(sender, recipient, host, known and also_known)


_LOCALPARTS = ("Ascii", "QuotedAscii", "Utf8", "QuotedUtf8")
_HOSTS = ("AsciiDomain", "Utf8Domain", "Ipv4", "Ipv6")


def _address(email: Json) -> tuple[str, bool]:
    """An address as people write it, and whether it is made of what we know; else its JSON."""
    if isinstance(email, dict) and set(email) == {"localpart", "hostname"}:
        local = _raw(email["localpart"], _LOCALPARTS)
        host = "" if email["hostname"] is None else _raw(email["hostname"], _HOSTS)
        if local is not None and host is not None:
            return (f"{local}@{host}" if host else local), True
    return json_bytes(email).decode(), False


def _raw(part: Json, tags: tuple[str, ...]) -> str | None:
    if isinstance(part, dict) and len(part) == 1:
        ((tag, value),) = part.items()
        if tag in tags and isinstance(value, dict) and isinstance(value.get("raw"), str):
            return str(value["raw"])
    return None


_plain_local = re.compile(r"[^\s\x00-\x20\x7f\"(),:;<>@\[\]\\]+").fullmatch
_quoted_local = re.compile(r'"(?:[^"\\\x00-\x1f\x7f]|\\[^\x00-\x1f\x7f])*"').fullmatch
_domain = re.compile(r"[^\s\x00-\x2c/:-@\[-`{-\x7f]+", re.IGNORECASE).fullmatch


def email_of(address: str) -> dict[str, Json]:
    """An address as the format holds it.

    Raises:
        Refused: it is none.
    """
    local, host = address, ""
    if not (address.startswith('"') and address.endswith('"') and _quoted_local(address)):
        local, at, host = address.rpartition("@")
        if not at:
            local, host = address, ""
        elif not host:
            raise Refused(f"{address[:80]!r} is no address: nothing behind its @")
    utf8 = "" if local.isascii() else "Utf8"
    if _quoted_local(local):
        tag = f"Quoted{utf8 or 'Ascii'}"
    elif _plain_local(local):
        tag = utf8 or "Ascii"
    else:
        raise Refused(f"{address[:80]!r} is no address, expected name@host")
    return {"localpart": {tag: {"raw": local}}, "hostname": _host(host) if host else None}


def _host(host: str) -> dict[str, Json]:
    if host.startswith("[") and host.endswith("]"):
        import ipaddress

        inner = host[1:-1]
        six = inner.lower().startswith("ipv6:")
        try:
            ip = ipaddress.IPv6Address(inner[5:]) if six else ipaddress.IPv4Address(inner)
        except ValueError as error:
            raise Refused(f"{host[:80]!r} holds no address of a host") from error
        return {"Ipv6" if six else "Ipv4": {"raw": host, "ip": str(ip)}}
    if not _domain(host):
        raise Refused(f"{host[:80]!r} is no name of a host")
    if host.isascii():
        return {"AsciiDomain": {"raw": host}}
    try:
        return {"Utf8Domain": {"raw": host, "punycode": ascii_name(host)}}
    except ValueError as error:
        raise Refused(f"{host[:80]!r} is no name of a host: {error}") from error


def metadata_bytes(sender: str, recipient: str) -> bytes:
    """An envelope as Kannader writes it; the sender "" or "<>" is the null one.

    Raises:
        Refused: one of them is no address.
    """
    said: dict[str, Json] = {
        "from": None if sender in ("", "<>") else email_of(sender),
        "to": email_of(recipient),
        "metadata": None,
    }
    return json_bytes(said)


def readdressed(data: bytes, recipient: str) -> bytes:
    """The same envelope to somebody else; what else it says stays.

    Raises:
        Refused: it holds what we do not know and must not write anew, or that is no address.
    """
    said = parse_json(data)
    if not parse_metadata(data).known or not isinstance(said, dict):
        raise Refused("its envelope is written in a way that is not known, and stays as it is")
    return json_bytes({**said, "to": email_of(recipient)})


# ---- the wire form of a mail


def wire(text: bytes) -> bytes:
    """A mail as it goes over the wire: lines end in CRLF, leading dots doubled, a dot at its end.

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
