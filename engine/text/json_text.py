"""JSON that an operator edits: checked, laid out on lines, and stored with its numbers as typed."""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import NoReturn

_STRING_OR_SPACE = re.compile(r'"(?:[^"\\]|\\.)*"|\s+')


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def compact_json(text: str) -> str:
    """Remove the white space between the values of a JSON text; nothing else changes. Raises
    `ValueError`: it is no JSON; the message has line and column."""
    try:
        json.loads(text, parse_int=str, parse_float=str, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise ValueError(f"no JSON: {where}: {error.msg}") from None
    except RecursionError:
        raise ValueError("no JSON: nested too deep") from None
    return _STRING_OR_SPACE.sub(lambda m: m[0] if m[0].startswith('"') else "", text)


@lru_cache(maxsize=8)
def lay_out_json(text: str) -> str:
    """Give each value a line of its own, and write unprintable characters as escapes. If that would
    change a number or a string, such as 1e5, all stays on one line. Raises as `compact_json`."""
    flat = compact_json(text)
    try:
        lines = json.dumps(json.loads(flat), indent=2, ensure_ascii=False)
        laid_out = lines if compact_json(lines) == flat else flat
    except ValueError:  # a number that Python cannot write as JSON
        laid_out = flat
    return "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in laid_out)
