"""Read JSON, numbers and texts of small state files with fixed limits.

The file may come from any program, an editor or a failing disk. Every problem raises the same
exception, `Malformed`, a ValueError; callers need not know what `json` or `float` raise."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from itertools import chain
from math import isfinite
from typing import Any

YEAR_10000 = 253402300800.0
"""End of the year 9999 in epoch seconds UTC, the last date that Python supports."""

MAX_COUNT = (1 << 53) - 1
"""The largest whole number up to which a float is exact."""

MAX_DIGITS = 19
"""Maximum digits of a whole number; more do not fit in 64 bits."""

MAX_DEPTH = 32
"""Maximum nesting of arrays and objects."""

MAX_BYTES = 64 * 1024
"""Maximum bytes of a document, by default."""


class Malformed(ValueError):
    """Invalid content; the message says what was expected."""


@cache
def _decoder() -> Any:
    import json  # only for files with JSON, because it slows down the start

    return json.JSONDecoder(parse_int=_parse_int, parse_float=_parse_float, parse_constant=_refuse)


def _parse_int(digits: str) -> int:
    if len(digits) > MAX_DIGITS + 1:
        raise Malformed(f"a number of {len(digits):,} characters, expected at most {MAX_DIGITS}")
    return int(digits)


def _parse_float(text: str) -> float:
    value = float(text)
    if not isfinite(value):
        raise Malformed(f"the number {text[:20]} is out of range")
    return value


def _refuse(word: str) -> float:
    raise Malformed(f"{word}, expected a number")


def load_json(data: bytes | str, most: int = MAX_BYTES) -> Any:
    """Parse JSON of at most `most` bytes and `MAX_DEPTH` levels, with finite numbers only."""
    if len(data) > most:
        raise Malformed(f"{len(data):,} bytes, expected at most {most:,}")
    try:
        text = data if isinstance(data, str) else data.decode()
        value = _decoder().decode(text)
    except Malformed:
        raise
    except RecursionError as error:
        raise Malformed("nested too deeply") from error
    except ValueError as error:
        raise Malformed(f"not JSON: {error}") from error
    # Depth N needs N opening brackets; counting them is cheaper than walking the value.
    if text.count("[") + text.count("{") > MAX_DEPTH and is_nested_deeper(value):
        raise Malformed(f"nested more than {MAX_DEPTH} levels deep")
    return value


def is_nested_deeper(value: Any) -> bool:
    """True if arrays and objects are nested more than `MAX_DEPTH` levels deep; not recursive."""
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(MAX_DEPTH):
        inner = chain.from_iterable(map(_inside, level))
        level = [each for each in inner if isinstance(each, dict | list)]
    return bool(level)


def _inside(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value


def check_object(value: Any, what: str = "the document") -> dict[str, Any]:
    """Check for a JSON object."""
    if not isinstance(value, dict):
        raise Malformed(f"{what}: expected an object")
    return value


def check_epoch(value: Any, what: str) -> float:
    """Check for epoch seconds UTC, from 1970 to the end of the year 9999."""
    try:
        seconds = check_number(value, what)
    except Malformed:
        seconds = -1
    if not 0 <= seconds < YEAR_10000:
        raise Malformed(f"{what}: expected epoch seconds of the years 1970 to 9999")
    return seconds


def check_number(value: Any, what: str, most: float = YEAR_10000) -> float:
    """Check for a number from -`most` to `most`: seconds, a rate, a time, maybe before 1970."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not -most <= value <= most:  # false for NaN
        raise Malformed(f"{what}: expected a number from -{most:g} to {most:g}")
    return float(value)


def check_count(value: Any, what: str, most: int = MAX_COUNT) -> int:
    """Check for a whole number from 0 to `most`."""
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise Malformed(f"{what}: expected a whole number from 0 to {most:,}")
    return value


def check_text(value: Any, what: str, most: int = 4096) -> str:
    """Check for a string of at most `most` characters."""
    if not isinstance(value, str):
        raise Malformed(f"{what}: expected a text")
    if len(value) > most:
        raise Malformed(f"{what}: {len(value):,} characters, expected at most {most:,}")
    return value


def parse_digits(data: bytes | str, most: int = MAX_COUNT) -> int | None:
    """Parse a whole number from 0 to `most` in ASCII digits; None if the text is anything else."""
    if not (data.isascii() and data.isdigit() and len(data) <= MAX_DIGITS):
        return None
    value = int(data)
    return value if value <= most else None


def utf8_name(name: str) -> str:
    """The name as valid UTF-8; invalid bytes are escaped, so that it is refused as a task id."""
    return name.encode("utf-8", "backslashreplace").decode("utf-8")
