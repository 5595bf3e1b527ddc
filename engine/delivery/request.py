"""The data of a task that is an HTTP request: JSON with url, method, headers and body."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from typing import Any

from engine.delivery.network_errors import BAD_DATA, DeliveryError
from engine.destinations.destination import origin_of
from engine.store import MAX_PART_BYTES
from engine.values import NamedTuple

METHODS = ("POST", "PUT", "PATCH", "DELETE", "GET", "HEAD")

MAX_HEADERS, MAX_HEADER_CHARACTERS = 100, 8192
"""Most headers of a request, and characters of the value of one."""

_is_ours = re.compile(
    "host|connection|content-length|transfer-encoding|te|trailer|upgrade|expect|keep-alive"
    "|proxy-authorization|proxy-connection|accept-encoding"
).fullmatch
"""Headers that the client sets or that would change the meaning of the connection."""

_is_token = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,256}").fullmatch
"""A header's name (RFC 9110, 5.6.2)."""

_has_control = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]").search


class DeliveryRequest(NamedTuple):
    """What a task asks to send."""

    url: str
    method: str
    headers: Mapping[str, str]
    body: bytes
    timeout: float | None
    """Seconds; None: that of the handler."""
    destination: str
    """Origin of the destination that it counts for; "": that of the URL."""


def parse_request(data: bytes | None) -> DeliveryRequest:
    """Check the data of a task. Raises `DeliveryError`: BAD_DATA, with the first fault."""
    if data is None:
        raise _fault("the task has no data")
    if len(data) >= MAX_PART_BYTES:
        raise _fault(f"the data has {MAX_PART_BYTES >> 20} MiB or more")
    try:
        fields = json.loads(data)
    except RecursionError:
        raise _fault("the data is nested too deeply") from None
    except ValueError as error:
        raise _fault(f"the data is not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise _fault(f"expected a JSON object with url and method, not {_type_name(fields)}")
    return DeliveryRequest(
        _text(fields, "url"),
        _method(fields),
        _headers(fields.get("headers")),
        body=_body(fields),
        timeout=_timeout(fields.get("timeout")),
        destination=_destination(fields),
    )


def _fault(text: str) -> DeliveryError:
    return DeliveryError(BAD_DATA, text)


def _type_name(value: object) -> str:
    names = {dict: "an object", list: "a list", str: "text", bool: "true or false"}
    return "nothing" if value is None else names.get(type(value), "a number")


def _text(fields: Mapping[str, Any], key: str) -> str:
    value = fields.get(key)
    if key not in fields:
        raise _fault(f"{key} is missing")
    if not isinstance(value, str):
        raise _fault(f"{key}: expected text, not {_type_name(value)}")
    return value


def _method(fields: Mapping[str, Any]) -> str:
    method = _text(fields, "method")
    if method not in METHODS:
        raise _fault(f"method: expected one of {', '.join(METHODS)}, not {method[:20]!r}")
    return method


def _headers(value: object) -> dict[str, str]:
    if value is None:
        return {}
    if not isinstance(value, dict) or len(value) > MAX_HEADERS:
        raise _fault(f"headers: expected an object with at most {MAX_HEADERS} names")
    for name, text in value.items():
        if not _is_token(name):
            raise _fault(f"headers: not a name: {name[:40]!r}")
        if _is_ours(name.lower()):
            raise _fault(f"headers: {name} is set by the client")
        is_line = isinstance(text, str) and not _has_control(text) and text == text.strip(" \t")
        if not is_line or len(text) > MAX_HEADER_CHARACTERS:
            raise _fault(f"headers: {name}: expected one line of text without spaces around it")
        _encode(f"headers: {name}", text)
    return value


def _body(fields: Mapping[str, Any]) -> bytes:
    if "body_base64" in fields and "body" in fields:
        raise _fault("body and body_base64: expected one of them")
    if "body_base64" not in fields:
        return _encode("body", _text(fields, "body")) if "body" in fields else b""
    try:
        return base64.b64decode(_text(fields, "body_base64"), validate=True)
    except ValueError as error:
        raise _fault(f"body_base64: {error}") from error


def _encode(key: str, text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise _fault(f"{key}: half of a surrogate pair") from error


def _timeout(value: object) -> float | None:
    if value is None:
        return None
    number = value if isinstance(value, int | float) and not isinstance(value, bool) else 0
    if not 0 < number <= 10**9:
        raise _fault("timeout: expected a number of seconds above 0")
    return float(number)


def _destination(fields: Mapping[str, Any]) -> str:
    if fields.get("destination") is None:
        return ""
    try:
        return origin_of(_text(fields, "destination"))
    except ValueError as error:
        raise _fault(f"destination: {error}") from error
