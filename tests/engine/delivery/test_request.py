"""The data of tasks that are HTTP requests: what is sent, and which fault is reported."""

import json
from typing import Any

import pytest

from engine.delivery.network_errors import DeliveryError
from engine.delivery.request import DeliveryRequest, parse_request

URL = "https://peer.example/in"
GOOD: dict[str, Any] = {"url": URL, "method": "POST"}


def test_all_fields_are_read() -> None:
    """Text is sent as UTF-8, and base64 as its bytes; the destination becomes an origin."""
    headers = {"Content-Type": "text/plain", "X-A": "ü"}
    fields = {"headers": headers, "body": "größer", "timeout": 3, "unknown": 1}
    plain = DeliveryRequest(URL, "POST", {}, body=b"", timeout=None, destination="")
    fields["destination"] = "https://Peer.example:443/x"
    whole = plain._replace(headers=headers, body="größer".encode(), timeout=3.0)
    for more, expected in (
        ({}, plain),
        ({"body_base64": "AAH/"}, plain._replace(body=b"\0\1\xff")),
        (fields, whole._replace(destination="https://peer.example")),
    ):
        assert parse_request(json.dumps(GOOD | more).encode()) == expected


FAULTS: list[tuple[dict[str, Any] | bytes | None, str]] = [
    (None, "the task has no data"),
    *((data, "the data is not JSON") for data in (b"", b"{", b"\xff\xfe\xfd")),
    (b"[" * 100_000, "the data is"),
    (b'{"url": ' + b"9" * 5000 + b"}", "the data is not JSON"),
    (b"null", "expected a JSON object with url and method, not nothing"),
    (b"42", "not a number"), (b'"text"', "not text"), (b"[]", "not a list"),
    (b'{"method": "POST"}', "url is missing"),
    (b'{"url": "https://peer.example/"}', "method is missing"),  # none is assumed
    ({"body": "x" * (5 << 20)}, "1 MiB or more"),
    ({"url": None}, "url: expected text, not nothing"),
    ({"url": 7}, "url: expected text, not a number"),
    ({"method": None}, "method: expected text"),
    ({"method": "post"}, "method: expected one of POST, PUT, PATCH, DELETE, GET, HEAD"),
    ({"method": "CONNECT"}, "not 'CONNECT'"),
    ({"method": "GET / HTTP/1.1\r\nX: "}, "method: expected one of"),
    ({"headers": []}, "headers: expected an object"),
    ({"headers": {f"X-{n}": "" for n in range(101)}}, "at most 100 names"),
    ({"headers": {"X Y": "a"}}, "headers: not a name: 'X Y'"),
    ({"headers": {"": "a"}}, "headers: not a name: ''"),
    *(
        ({"headers": {"X": value}}, "headers: X: expected one line of text without spaces")
        for value in (7, "a\r\nY: b", " a", "a\0", "a" * 9000)
    ),
    ({"headers": {"X": "\ud800"}}, "headers: X: half of a surrogate pair"),
    ({"headers": {"Host": "other.example"}}, "headers: Host is set by the client"),
    ({"headers": {"transfer-encoding": "chunked"}}, "is set by the client"),
    ({"body": 7}, "body: expected text, not a number"),
    ({"body": {"a": 1}}, "body: expected text, not an object"),
    ({"body": "\ud800"}, "body: half of a surrogate pair"),
    ({"body_base64": "AB$="}, "body_base64: "),
    ({"body_base64": "ü"}, "body_base64: "),
    ({"body": "", "body_base64": ""}, "body and body_base64: expected one of them"),
    *(
        ({"timeout": value}, "timeout: expected a number of seconds above 0")
        for value in (0, -1, True, "5", float("inf"), float("nan"))
    ),
    ({"destination": "peer"}, "destination: expected a URL"),
    ({"destination": 7}, "destination: expected text"),
]  # fmt: skip


@pytest.mark.parametrize(("data", "message"), FAULTS, ids=lambda value: str(value)[:40])
def test_data_that_is_no_request_is_refused(data: Any, message: str) -> None:
    """The first fault is reported in one line; nothing of a request is guessed or omitted."""
    with pytest.raises(DeliveryError, match=r"^\[BAD_DATA\] ") as refused:
        parse_request(json.dumps(GOOD | data).encode() if isinstance(data, dict) else data)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)
