"""What the data of a delivery says about its request: URL, method, size; nothing is decrypted."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache

from engine.destinations.destination import origin_of
from engine.text.safe import safe_line

BODIES: Mapping[str, float] = {"payload": 1.0, "body": 1.0, "body_base64": 0.75}
"""Fields with the body, and bytes per character."""

DESTINATIONS = ("destination", "url")
"""Fields with the destination of a request, the first that is there."""

DESTINATION_CHARACTERS = 16384
"""Characters of the data in which its destination must be."""


def url_in(data: str, field: str) -> str:
    """The URL in a field of JSON; "" without one. In a text the quotes of a name are escaped."""
    match = re.search(rf'"{re.escape(field)}"\s*:\s*"([^"\\]*)"', data[:DESTINATION_CHARACTERS])
    return match[1][:300] if match else ""


def find_destination(data: bytes) -> str:
    """The destination of a request, from the beginning of its data; "" without one."""
    text = data[:DESTINATION_CHARACTERS].decode("utf-8", "replace")
    urls = (url_in(text, name) for name in DESTINATIONS)
    return parse_destination(next(filter(None, urls), ""))


@lru_cache(maxsize=4096)
def parse_destination(text: str) -> str:
    """The origin of a URL; a text that is none, made safe."""
    try:
        return origin_of(text) if text else ""
    except ValueError:
        return safe_line(text)


def request_facts(data: bytes, url_fields: Sequence[str] = ("url",)) -> tuple[tuple[str, str], ...]:
    """URL, method and size of the body, each with its name; nothing if it is no request.
    `url_fields` are those that may have the URL."""
    try:
        fields = json.loads(data)
    except (ValueError, RecursionError):
        return ()
    if not isinstance(fields, dict):
        return ()
    url = next((fields[name] for name in url_fields if isinstance(fields.get(name), str)), "")
    if not url:
        return ()
    method = fields.get("method", "POST")
    sizes = (
        int(len(text.encode(errors="replace")) * share)
        for name, share in BODIES.items()
        if isinstance(text := fields.get(name), str)
    )
    facts = [("url", url), ("method", str(method)[:40]), ("body", f"{next(sizes, 0):,} bytes")]
    return tuple(facts)
