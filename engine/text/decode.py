"""Read JSON, numbers and texts of small state files within stated limits.

Any program, an editor or a failing disk may have written the file. Everything wrong with it is one
exception, `Malformed`, which is a ValueError: no caller has to know what `json` or `float` raise.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from itertools import chain
from math import isfinite
from typing import Any

YEAR_10000 = 253402300800.0
"""The end of the year 9999, epoch seconds UTC: no calendar goes further."""

MAX_COUNT = (1 << 53) - 1
"""The largest whole number that a float holds exactly."""

MAX_DIGITS = 19
"""Digits of a whole number; more do not fit 64 bits."""

MAX_DEPTH = 32
"""How deep arrays and objects may be nested."""

MAX_BYTES = 64 * 1024
"""Bytes of a document, where the caller does not say otherwise."""


class Malformed(ValueError):
    """Content that is not what the file should hold; the message says what was expected."""


@cache
def _decoder() -> Any:
    import json  # only where a file holds JSON: it costs start-up time

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
    """One JSON document: at most `most` bytes, `MAX_DEPTH` levels, and only finite numbers.

    Raises:
        Malformed: it is longer, deeper, not UTF-8, not JSON, or holds another number.
    """
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
    # A value of depth N needs N opening brackets; counting them is cheaper than descending.
    if text.count("[") + text.count("{") > MAX_DEPTH and is_nested_deeper(value):
        raise Malformed(f"nested more than {MAX_DEPTH} levels deep")
    return value


def is_nested_deeper(value: Any, levels: int = MAX_DEPTH) -> bool:
    """Whether arrays and objects are nested more than so many levels deep; no recursion."""
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(levels):
        inner = chain.from_iterable(map(_inside, level))
        level = [each for each in inner if isinstance(each, dict | list)]
    return bool(level)


def _inside(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value


def mapping(value: Any, what: str = "the document") -> dict[str, Any]:
    """A JSON object.

    Raises:
        Malformed: it is another value.
    """
    if not isinstance(value, dict):
        raise Malformed(f"{what}: expected an object")
    return value


def epoch(value: Any, what: str) -> float:
    """Epoch seconds UTC, from 1970 to the end of the year 9999.

    Raises:
        Malformed: it is another value.
    """
    try:
        seconds = number(value, what)
    except Malformed:
        seconds = -1
    if not 0 <= seconds < YEAR_10000:
        raise Malformed(f"{what}: expected epoch seconds of the years 1970 to 9999")
    return seconds


def number(value: Any, what: str, most: float = YEAR_10000) -> float:
    """A number from minus `most` to `most`: seconds, a rate, a moment that may be before 1970.

    Raises:
        Malformed: it is another value.
    """
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not -most <= value <= most:  # false for NaN
        raise Malformed(f"{what}: expected a number from -{most:g} to {most:g}")
    return float(value)


def count(value: Any, what: str, most: int = MAX_COUNT) -> int:
    """A whole number from 0 to `most`.

    Raises:
        Malformed: it is another value.
    """
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise Malformed(f"{what}: expected a whole number from 0 to {most:,}")
    return value


def text(value: Any, what: str, most: int = 4096) -> str:
    """A text of at most `most` characters.

    Raises:
        Malformed: it is another value, or longer.
    """
    if not isinstance(value, str):
        raise Malformed(f"{what}: expected a text")
    if len(value) > most:
        raise Malformed(f"{what}: {len(value):,} characters, expected at most {most:,}")
    return value


def digits(data: bytes | str, most: int = MAX_COUNT) -> int | None:
    """A whole number from 0 to `most` in ASCII digits; None if the text is anything else."""
    if not (data.isascii() and data.isdigit() and len(data) <= MAX_DIGITS):
        return None
    value = int(data)
    return value if value <= most else None
