"""Times as a column holds them: whole epoch seconds, or text in some zone."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, tzinfo
from typing import NamedTuple, TypeAlias

from engine.stores.zgb.place import PARKED

Cell: TypeAlias = int | float | str | bytes | None
"""What a column of a row holds."""

LATEST = 1 << 53
"""No time lies further ahead than a float can tell seconds apart."""

PARKED_TEXT = "9999-12-31 23:59:59"
"""A parked job's time as text, the same in every zone: east of UTC it would have five digits."""

_number = re.compile(r"\s*\d+(\.\d+)?\s*", re.ASCII).fullmatch
_stamp = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?Z?", re.ASCII).fullmatch


class Form(NamedTuple):
    """How one column writes its times."""

    text: bool
    zone: tzinfo

    def write(self, moment: float) -> int | str:
        """A moment (epoch seconds UTC) for this column; never earlier than it was meant."""
        seconds = math.ceil(moment)
        if not self.text:
            return seconds
        if seconds >= PARKED:
            return PARKED_TEXT
        return datetime.fromtimestamp(seconds, self.zone).strftime("%Y-%m-%d %H:%M:%S")


def read(value: Cell, zone: tzinfo) -> float:
    """A column's time in epoch seconds UTC, in whichever form it stands there.

    Raises:
        ValueError: it is no time, with words for the operator.
    """
    moment = _moment(value, zone)
    if not 0 <= moment <= LATEST:
        raise ValueError(f"no time that could be meant: {value!r:.40}")
    return moment


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
