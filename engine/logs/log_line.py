"""Parse the lines of logs: in the contract's format, in JSON, with the head of syslog, journalctl
or a bare local time, or any other text."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, MutableMapping, Sequence
from functools import lru_cache
from typing import TypeAlias

from engine.text import decode
from engine.text.safe import safe_line
from engine.values import NamedTuple

_CHUNK = 64 * 1024


class SharedLog(str):
    """The path of a log that several databases write to, with the name of the database to read it
    for: lines of other databases are skipped everywhere.

    It is a `str` subclass, so that code that passes it on as a path cannot lose the name."""

    __slots__ = ("db",)

    def __new__(cls, path: str, db: str) -> SharedLog:
        """`db` is the database's name in the `db` field of lines."""
        made = super().__new__(cls, path)
        made.db = db
        return made

    db: str


class LogLine(NamedTuple):
    """A line of a log. Its text is untrusted: make it safe before showing it."""

    when: float | None
    """Epoch seconds; None if the line has no time."""
    level: str
    """In upper case; "" if the line has no level."""
    text: str
    source: str
    """The path of the log."""
    is_foreign: bool = False
    """True if it names another database than the one that its log is read for."""


def format_log_line(level: str, text: str, now: float) -> bytes:
    """Format a line as the contract defines: `[2026-01-07 12:01:02] [INFO] text`, in local time."""
    stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(now))
    return f"[{stamp}] [{level}] {safe_line(text)}\n".encode()


def parse_log_line(
    raw: bytes,
    source: str,
    before: float | None = None,
    latest: float | None = None,
    *,
    zone: Zone | None = None,
) -> LogLine:
    """Parse a line: in the contract's format, in JSON, after a time as YYYYMMDDhhmmss (the log of
    scheduler(8zm)), with a head that `parse_head` knows, or any other text.

    `before` is the time of the line before, see `parse_local_time`; `latest`, `zone` see
    `parse_head`."""
    text = raw.decode("utf-8", "replace").rstrip("\r\n")
    line = None
    if text.startswith("["):
        line = _contract(text, source, before)
    elif text.startswith("{"):
        line = _json(text, source, before)
    elif text[14:15] == " " and (digits := text[:14]).isascii() and digits.isdecimal():
        pairs = [digits[at : at + 2] for at in range(4, 14, 2)]
        when = parse_local_time("{}-{}-{} {}:{}:{}".format(digits[:4], *pairs), before)
        line = None if when is None else LogLine(when, "", text[15:], source)
    elif (head := parse_head(text, before, latest, zone=zone)) is not None:
        line = LogLine(head[0], "", head[1], source)
    return line or LogLine(None, "", text, source)


def _contract(text: str, source: str, before: float | None) -> LogLine | None:
    level, closed, message = text[23:].partition("]")
    if text[20:23] != "] [" or not closed or not level.isalpha():
        return None
    when = parse_local_time(text[1:20], before)
    if when is None:
        return None
    return LogLine(when, _upper(level), message.removeprefix(" "), source)


@lru_cache(maxsize=64)
def _upper(level: str) -> str:
    """A level in upper case; the same object for each line: many thousands are kept."""
    return level.upper()


def parse_local_time(stamp: str, before: float | None = None) -> float | None:
    """Parse `2026-01-07 12:01:02` to epoch seconds.

    When the clocks are set back, an hour of local time occurs twice, and a stamp without a zone
    does not tell which one is meant: it is the first that is not before `before`, the time of the
    line before in the same log, because a log goes back by seconds at most; else the first."""
    minutes, second = _minute_times(stamp[:16], time.tzname), stamp[17:19]
    if not minutes or stamp[16] != ":" or not (second.isascii() and second.isdigit()):
        return None
    if int(second) > 60:
        return None
    return _first_after(before, [minute + int(second) for minute in minutes])


def _first_after(before: float | None, times: Sequence[float]) -> float:
    """The first time that is not before that of the line before; the last one if all are."""
    after = (when for when in times if before is None or when >= before - _BACK_SECONDS)
    return next(after, times[-1])


class Zone(NamedTuple):
    """The clocks of another host."""

    changes: tuple[tuple[float, float], ...]
    """From when on (epoch seconds UTC) they are so many seconds ahead of UTC, in order."""

    def times(self, local: float) -> Sequence[float]:
        """The epoch seconds UTC at which they show a time, in order: two if they were set back
        over it. `local` is that time in epoch seconds, as if it was UTC."""
        ends = (*(since for since, _ in self.changes[1:]), float("inf"))
        spans = [
            (since, end, local - by) for (since, by), end in zip(self.changes, ends, strict=True)
        ]
        times = [when for since, end, when in spans if since <= when < end]
        return times or [when for _, end, when in spans if when < end][:1]  # they were set forward


_DATED_HEAD = re.compile(
    r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)([.,]\d{1,9})?(?: ?(Z|[+-]\d\d:?\d\d))? ", re.ASCII
)
"""rsyslog's `2026-11-27T23:40:30.063221+00:00 `; `2026-11-27 23:36:14 ` and
`... 23:36:14.123 +0100 ` of programs with a log of their own."""
_EPOCH_HEAD = re.compile(r"(\d{9,10}\.\d{6}) ", re.ASCII)
"""`1795822830.063221 `: journalctl(1), `-o short-unix`."""
_HEAD_WITHOUT_YEAR = re.compile(r"([A-Z][a-z]{2}) ([ \d]\d) (\d\d:\d\d:\d\d) ", re.ASCII)
"""`Nov  7 23:27:52 `: traditional syslog, in local time."""

_MONTHS = "JanFebMarAprMayJunJulAugSepOctNovDec"
_MAX_HEAD_BYTES = 64
_AHEAD_SECONDS = 86400.0
"""Seconds by which a line may be after the last write of its file: wrong clocks, zones."""
_LEAP_YEARS_APART = 8
"""Years between two of 29 February, at most."""


def parse_head(
    text: str,
    before: float | None = None,
    latest: float | None = None,
    *,
    zone: Zone | None = None,
) -> tuple[float, str] | None:
    """Split a line into the epoch seconds of its head and the rest; None without such a head.

    A head without a year is of the last year in which it is not after `latest`, when the file was
    last written (epoch seconds UTC; None: now). A head without a zone is of `zone`; None: of
    this host's. `before` see `parse_local_time`."""
    when: float | None = None
    if (match := _HEAD_WITHOUT_YEAR.match(text)) is not None:
        end = time.time() if latest is None else latest
        when = _latest_before(match, end + _AHEAD_SECONDS, before, zone)
    elif (match := _DATED_HEAD.match(text)) is not None:
        stamp, own = f"{match[1]} {match[2]}", match[4]
        when = _zoned_time(stamp, own) if own else _time_there(stamp, before, zone)
        when = None if when is None else when + float(f"0.{(match[3] or '.0')[1:]}")
    elif (match := _EPOCH_HEAD.match(text)) is not None:
        when = float(match[1])
    return None if match is None or when is None else (when, text[match.end() :])


def has_no_year(data: bytes) -> bool:
    """True if these bytes begin with a time without a year."""
    return _HEAD_WITHOUT_YEAR.match(data.decode("ascii", "replace")) is not None


def lacks_zone(raw: bytes) -> bool:
    """True if a line begins with a time without its zone."""
    text = raw[:_MAX_HEAD_BYTES].decode("ascii", "replace")
    dated = _DATED_HEAD.match(text)
    return dated[4] is None if dated is not None else has_no_year(raw[:_MAX_HEAD_BYTES])


def _time_there(stamp: str, before: float | None, zone: Zone | None) -> float | None:
    if zone is None:
        return parse_local_time(stamp, before)
    when = _zoned_time(stamp, "Z")
    return None if when is None else _first_after(before, zone.times(when))


def _latest_before(
    head: re.Match[str], end: float, before: float | None, zone: Zone | None
) -> float | None:
    from calendar import isleap

    month, day = (_MONTHS.find(head[1]) + 3) // 3, int(head[2])
    try:
        year = time.localtime(end).tm_year
    except (OverflowError, OSError, ValueError):
        return None
    for each in range(year, year - _LEAP_YEARS_APART - 1, -1):
        if (month, day) == (2, 29) and not isleap(each):
            continue
        when = _time_there(f"{each:04}-{month:02}-{day:02} {head[3]}", before, zone)
        if when is None or when <= end:
            return when
    return None


def _zoned_time(stamp: str, zone: str) -> float | None:
    minute, second = _utc_minute(stamp[:16]), int(stamp[17:19])
    if minute is None or second > 60:
        return None
    digits = zone[1:].replace(":", "")
    east = 0 if zone == "Z" else int(digits[:2]) * 3600 + int(digits[2:]) * 60
    return minute + second - (-east if zone[0] == "-" else east)


@lru_cache(256)
def _utc_minute(stamp: str) -> float | None:
    from calendar import timegm  # it loads datetime and locale

    year, month, day, hour, minute = map(int, re.split("[- :]", stamp))
    if not (1 <= month <= 12 and 1 <= day <= 31 and hour < 24 and minute < 60):
        return None
    return timegm((year, month, day, hour, minute, 0))


_BACK_SECONDS = 60.0
"""Seconds by which the time of a line may be before that of the line before."""

_ZONE_CHANGES = (-7200, -3600, -1800, 1800, 3600, 7200)
"""Seconds by which the clocks of a zone are set."""


@lru_cache(256)  # many lines have the same minute, and `mktime` takes most of the time of a line
def _minute_times(stamp: str, zone: tuple[str, str]) -> tuple[float, ...]:
    """The times of a minute, in order: two if the clocks were set back over it, () for no time."""
    fields = stamp[0:4], stamp[5:7], stamp[8:10], stamp[11:13], stamp[14:16]
    if not all(field.isascii() and field.isdigit() for field in fields):
        return ()
    year, month, day, hour, minute = map(int, fields)
    if (stamp[4], stamp[7], stamp[10], stamp[13]) != ("-", "-", " ", ":"):
        return ()
    if not (1 <= month <= 12 and 1 <= day <= 31 and hour < 24 and minute < 60):
        return ()
    try:
        return _same_local_times(time.mktime((year, month, day, hour, minute, 0, 0, 0, -1)))
    except (OverflowError, ValueError):
        return ()


def _same_local_times(when: float) -> tuple[float, ...]:
    fields = time.localtime(when)[:5]
    others = (when + change for change in _ZONE_CHANGES)
    return tuple(sorted((when, *(at for at in others if time.localtime(at)[:5] == fields))))


def is_repeated(when: float | None) -> bool:
    """True if this time has a local time that occurs twice: the clocks are set back over it."""
    try:
        return when is not None and len(_same_local_times(when // 60 * 60)) > 1
    except (OverflowError, OSError, ValueError):
        return False


_REPEATED_BYTES = 64 << 20
"""Maximum bytes to read for the time of the line before one in a repeated hour."""

_HEAD_BYTES = 4096
"""Bytes of the last line of a chunk that are read for its time."""

Read: TypeAlias = Callable[[int, int], bytes]
"""Reads at an offset, up to so many bytes."""


def time_before(
    read: Read, at: int, source: str, known: MutableMapping[int, float], latest: float | None = None
) -> float | None:
    """The time of the last line with a time before an offset; None if none is known. `latest` see
    `parse_head`.

    Read back to a line outside of a repeated hour, from which on all times are certain. `known`
    keeps the times at the chunks that were read, for the next call."""
    ends: list[int] = []
    begin = at
    while begin > 0 and begin not in known and at - begin < _REPEATED_BYTES:
        ends.append(begin)
        begin = (begin - 1) // _CHUNK * _CHUNK
        times = (
            parse_log_line(line, source, None, latest).when
            for line in _heads(read, begin, ends[-1])
        )
        if any(when is not None and not is_repeated(when) for when in times):
            break
    before = known.get(begin)
    for end in reversed(ends):
        for line in _heads(read, begin, end):
            when = parse_log_line(line, source, before, latest).when
            before = before if when is None else when
        if before is not None:
            known[end] = before
        begin = end
    return before


def _heads(read: Read, begin: int, end: int) -> list[bytes]:
    """The lines that begin in a range of a file; the last one may be cut."""
    base = max(0, begin - 1)
    data = read(base, end - base + _HEAD_BYTES)
    first = data.find(b"\n") + 1 if begin else 0
    if begin and not 0 < first < end - base:
        return []
    stop = data.find(b"\n", end - 1 - base)
    return data[first : len(data) if stop < 0 else stop].split(b"\n")


_TIMES = ("ts", "time", "timestamp", "@timestamp", "date", "t")
_LEVELS = ("level", "severity", "lvl", "loglevel")
_TEXTS = ("msg", "message", "event")
"""Keys for these values in JSON lines of various programs; the first one present is used."""

_TASK = ("reg", "type")
"""Keys whose values together are a task's id: `7-user`."""
_FIRST = ("job", *_TASK, "attempt", "to", "error", "next_attempt_at")
_LAST = ("run", "pid", "db")
"""Keys that are shown before and after the others: the task and its result first, the writer last,
because the end of a line is often cut off."""

_NUMBERED = {10: "TRACE", 20: "DEBUG", 30: "INFO", 40: "WARN", 50: "ERROR", 60: "FATAL"}
"""Levels of programs that write numbers."""


def _json(text: str, source: str, before: float | None) -> LogLine | None:
    import json  # loaded only for logs in JSON

    try:
        fields = json.loads(text)  # numbers of any size: the line is shown anyway
    except (ValueError, RecursionError):
        return None
    if not isinstance(fields, dict) or decode.is_nested_deeper(fields):
        return None
    named = fields.get("db")
    is_foreign = isinstance(source, SharedLog) and isinstance(named, str) and named != source.db
    when = _moment(_taken(fields, _TIMES), before)
    level = _level(_taken(fields, _LEVELS))
    words = [str(word) for word in [_taken(fields, _TEXTS)] if word is not None]
    if all(isinstance(fields.get(key), int | str) for key in _TASK):
        words.append("-".join(str(fields.pop(key)) for key in _TASK))
    last = {key: fields.pop(key) for key in _LAST if key in fields}
    first = {key: fields.pop(key) for key in _FIRST if key in fields}
    pairs = {**first, **fields, **last}.items()
    words += [f"{k}={v if isinstance(v, str) else json.dumps(v)}" for k, v in pairs]
    return LogLine(when, level, " ".join(words), source, is_foreign)


def _taken(fields: dict[str, object], keys: tuple[str, ...]) -> object:
    """Remove the first of these keys that is present, and return its value."""
    return next((fields.pop(key) for key in keys if key in fields), None)


def _level(value: object) -> str:
    if isinstance(value, int):
        return _NUMBERED.get(value, str(value))
    return value.upper() if isinstance(value, str) else ""


def _moment(value: object, before: float | None) -> float | None:
    """Convert a time to epoch seconds, from ISO 8601 or from a number of s, ms, us or ns."""
    if isinstance(value, str):
        from datetime import datetime

        try:
            moment = datetime.fromisoformat(value.strip())
            if moment.tzinfo is None:
                whole = parse_local_time(f"{moment:%Y-%m-%d %H:%M:%S}", before)
                return None if whole is None else whole + moment.microsecond / 1e6
            return moment.timestamp()
        except (ValueError, OverflowError, OSError):
            return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if not 0 <= value < 1e20:  # also excludes NaN
        return None
    seconds = float(value)
    while seconds >= 1e11:  # the year 5138
        seconds /= 1000
    return seconds
