"""Read a theme file in the plain form that ours have, without the YAML parser.

To load that parser takes 10 ms of each start of the console.
"""

from __future__ import annotations

import re

_QUOTED = r'"[ !#-\[\]-~]*"'
_WORDS = rf"(?:{_QUOTED}|[A-Za-z](?:[\w ]*\w)?)"
_PART = rf"([A-Za-z]\w*): ({_WORDS})"
_PARTS = re.compile(_PART, re.ASCII).findall
_TEXT = rf"(?:{_QUOTED}|[A-Za-z](?:[\w.,;' ]*[\w.,;'])?)"
_TOP = re.compile(rf"([A-Za-z]\w*): ({_TEXT})", re.ASCII).fullmatch
_LOOK = re.compile(rf"  ([A-Za-z][\w-]*): \{{((?:{_PART}(?:, {_PART})*)?)\}}", re.ASCII).fullmatch
_BOOLEANS = {"true": True, "false": False}
_NO_TEXT = {"yes", "no", "on", "off", "null", "true", "false"}
"""Words that are no text in YAML, in any case."""


def parse_plain(data: bytes) -> dict[str, object] | None:
    """The content of a theme file; None if a line has another form, which YAML may allow."""
    found: dict[str, object] = {}
    looks: dict[str, object] = {}
    try:
        for line in data.decode("ascii").split("\n"):
            if not line or line.lstrip(" ").startswith("#"):
                continue
            if line == "looks:" and "looks" not in found:
                found["looks"] = looks
            elif (look := _LOOK(line)) and [*found][-1:] == ["looks"]:
                looks[_text(look[1])] = {_text(key): _value(said) for key, said in _PARTS(look[2])}
            elif (top := _TOP(line)) and top[1] not in (*found, "looks"):
                found[_text(top[1])] = _value(top[2])
            else:
                return None
    except ValueError:
        return None
    return None if "looks" in found and not looks else found


def _value(said: str) -> object:
    return _BOOLEANS[said] if said in _BOOLEANS else _text(said)


def _text(said: str) -> str:
    if said.lower() in _NO_TEXT:
        raise ValueError(said)
    return said[1:-1] if said.startswith('"') else said
