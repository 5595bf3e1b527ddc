"""What an answer or an error means for its task: done, retry or fatal; and Retry-After."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import TypeAlias

from engine.delivery import network_errors

Outcomes: TypeAlias = Mapping[str, str]
"""Status (`404`), class (`4xx`) or error code -> done, retry or fatal; `*` for all others."""

DONE, RETRY, FATAL = "done", "retry", "fatal"

PROFILES: Mapping[str, Outcomes] = {
    "default": {
        "2xx": DONE,
        **dict.fromkeys(("408", "425", "429", "5xx"), RETRY),
        network_errors.BLOCKED_URL: FATAL,
        network_errors.TOO_LARGE: FATAL,  # each attempt would be delivered, and end in the same way
        **dict.fromkeys(("DNS", "REFUSED", "RESET", "TIMEOUT", "TLS", "UNKNOWN"), RETRY),
        network_errors.BAD_ANSWER: RETRY,
        "*": FATAL,
    },
    "sipher": {"2xx": DONE, "*": RETRY},
}

MAX_RETRY_AFTER_SECONDS = 86400.0
"""Longest wait that a peer can ask for, in seconds."""


def make_outcomes(profile: str, changes: Mapping[str, str] = {}) -> Outcomes:
    """The outcomes of a profile with the changes of the configuration."""
    return {**PROFILES[profile], **changes}


def outcome(outcomes: Outcomes, what: int | str) -> str:
    """The outcome of a status or an error code: by itself, by its class, or of all others."""
    keys = (str(what), f"{str(what)[:1]}xx", "*")
    return next(outcomes[key] for key in keys if key in outcomes)


def retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Seconds that the peer asks to wait (RFC 9110, 10.2.3), from 0 to `MAX_RETRY_AFTER_SECONDS`;
    None if it does not say. `now` is in epoch seconds UTC.

    A date counts from the peer's own `Date`, if it sends one: its clock may differ from ours."""
    text = headers.get("retry-after", "").strip()
    if text.isascii() and text.isdigit():
        seconds = float(text[:12])
    elif (then := _parse_date(text)) is None:
        return None
    else:
        sent = _parse_date(headers.get("date", ""))
        seconds = then - (now if sent is None else sent)
    return min(max(0.0, seconds), MAX_RETRY_AFTER_SECONDS)


def _parse_date(text: str) -> float | None:
    try:
        parsed: datetime = parsedate_to_datetime(text)
        return parsed.timestamp()
    except (ValueError, OverflowError):
        return None
