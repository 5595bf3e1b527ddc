"""Times as a column holds them: whole epoch seconds, or text in some zone."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta, tzinfo
from typing import NamedTuple, TypeAlias

from engine.stores.zgb.place import PARKED

Cell: TypeAlias = int | float | str | bytes | None
"""What a column of a row holds."""

LATEST = 1 << 53
"""No time lies further ahead than a float can tell seconds apart."""

EARLIEST, LAST = 946_684_800, 4_102_444_800
"""The years 2000 and 2100, between which a registration was made: a number of seconds that is none
of these counts something else, such as milliseconds."""

PARKED_TEXT = "9999-12-31 23:59:59"
"""A parked job's time as text, the same in every zone: east of UTC it would have five digits."""

_number = re.compile(r"\s*\d+(\.\d+)?\s*", re.ASCII).fullmatch
_stamp = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?Z?", re.ASCII).fullmatch


class TimeFormat(NamedTuple):
    """How one column writes its times."""

    text: bool
    zone: tzinfo

    def write(self, moment: float, now: float = math.inf) -> int | str:
        """A moment (epoch seconds UTC) for this column; never earlier than it was meant.

        With `now`, one that is yet to come is not reached before by a clock that is set back in
        between, at the end of summer time: as text it would be past already, and a lease over.
        """
        seconds = math.ceil(moment)
        if not self.text:
            return seconds
        if seconds >= PARKED:
            return PARKED_TEXT
        local = datetime.fromtimestamp(seconds, self.zone)
        if local.fold and now < seconds and not datetime.fromtimestamp(now, self.zone).fold:
            local = _shown_once(local)
        return local.strftime("%Y-%m-%d %H:%M:%S")


def _shown_once(local: datetime) -> datetime:
    """The first time from one on that a clock shows twice that it shows only once."""
    first, second = (local.replace(fold=fold).utcoffset() for fold in (0, 1))
    assert first is not None and second is not None
    low, high = 0, int((first - second).total_seconds())
    while low < high:
        middle = (low + high) // 2
        later = local + timedelta(seconds=middle)
        twice = later.replace(fold=0).utcoffset() != later.replace(fold=1).utcoffset()
        low, high = (middle + 1, high) if twice else (low, middle)
    return local + timedelta(seconds=low)


def read(value: Cell, zone: tzinfo) -> float:
    """A column's time in epoch seconds UTC, in whichever form it stands there.

    Raises:
        ValueError: it is no time, with words for the operator.
    """
    moment = _moment(value, zone)
    if not 0 <= moment <= LATEST:
        raise ValueError(f"no time that could be meant: {value!r:.40}")
    return moment


def made(value: Cell, zone: tzinfo) -> float | None:
    """When something was made that says so itself, epoch seconds UTC; None where nobody can tell:
    it says nothing, or not as such times are written here.
    """
    try:
        moment = read(value, zone)
    except (ValueError, OverflowError):
        return None
    return moment if EARLIEST <= moment <= LAST else None


def _moment(value: Cell, zone: tzinfo) -> float:
    if isinstance(value, int | float):
        return float(value)
    if isinstance(value, str) and _number(value):
        return float(value)
    if value == PARKED_TEXT:
        return float(PARKED)
    if isinstance(value, str) and _stamp(value):
        there = UTC if value.endswith("Z") else zone
        naive = datetime.fromisoformat(value[:19].replace("T", " "))
        return naive.replace(tzinfo=there).timestamp()
    raise ValueError(f"no time: {value!r:.40}, expected epoch seconds or YYYY-MM-DD HH:MM:SS")


def zone_of(name: str) -> tzinfo:
    """A time zone by its name.

    Raises:
        ValueError: there is none of that name here.
    """
    if name == "UTC":
        return UTC
    import zoneinfo  # most databases hold whole seconds, and never ask

    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, OSError, ValueError) as error:
        raise ValueError(f"no time zone {name!r} is known on this machine") from error
