"""What the data of a delivery says about its request: URL, method, size; nothing is decrypted."""

from __future__ import annotations

import json
from collections.abc import Mapping

URLS = ("targetUrl", "url")
"""Fields with the URL: of a delivery to a federation, and of a request of any other kind."""
BODIES: Mapping[str, float] = {"payload": 1.0, "body": 1.0, "body_base64": 0.75}
"""Fields with the body, and bytes per character."""


def request_facts(data: bytes) -> tuple[tuple[str, str], ...]:
    """URL, method and size of the body, each with its name; nothing if it is no request."""
    try:
        said = json.loads(data)
    except (ValueError, RecursionError):
        return ()
    if not isinstance(said, dict):
        return ()
    url = next((said[name] for name in URLS if isinstance(said.get(name), str)), "")
    if not url:
        return ()
    method = said.get("method", "POST")
    sizes = (
        int(len(text.encode(errors="replace")) * share)
        for name, share in BODIES.items()
        if isinstance(text := said.get(name), str)
    )
    facts = [("url", url), ("method", str(method)[:40]), ("body", f"{next(sizes, 0):,} bytes")]
    return tuple(facts)
