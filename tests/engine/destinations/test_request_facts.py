"""What an operator sees of a delivery's request."""

import json

import pytest

from engine.destinations.request_facts import find_destination, request_facts


@pytest.mark.parametrize(("data", "facts"), [
    ({"url": "https://a.example/x", "method": "PUT", "body": "äb"}, ("PUT", "3 bytes")),
    ({"url": "https://a.example/x", "body_base64": "QUJD"}, ("POST", "3 bytes")),
    ({"target": "https://a.example/x", "payload": "{}"}, ("POST", "2 bytes")),
])  # fmt: skip
def test_a_request_has_url_method_and_size(data: object, facts: tuple[str, str]) -> None:
    """The size is that of the body as it is before it is encrypted."""
    found = dict(request_facts(json.dumps(data).encode(), ("target", "url")))
    assert found == {"url": "https://a.example/x", "method": facts[0], "body": facts[1]}


@pytest.mark.parametrize(
    "data",
    [b"", b"no JSON", b"42", b"null", b'{"url": 5}', pytest.param(b"[" * 100_000, id="brackets")],
)
def test_other_data_is_no_request(data: bytes) -> None:
    """Nothing is shown of it, and nothing fails."""
    assert request_facts(data) == ()


LATE = b" " * 20_000 + b'{"url": "http://b.example"}'


@pytest.mark.parametrize(("data", "expected"), [
    (b'{"url": "https://A.example:443/x"}', "https://a.example"),
    (b'{"body": "\\"url\\": \\"http://b.example\\"", "url" : "http://c/"}', "http://c"),
    (b'{"url": "http://b.example", "destination": "http://c.example"}', "http://c.example"),
    (b'{"url": "http://b.example", "body": "torn', "http://b.example"),
    (b'{"url": "peer"}', "peer"),
    *((data, "") for data in (b'{"url": 5}', b"\xff\x00", LATE)),
], ids=["origin", "in a text", "both", "torn", "no URL", "number", "no text", "late"])  # fmt: skip
def test_the_destination_is_found_in_the_beginning(data: bytes, expected: str) -> None:
    """That of the health comes before the URL; a name in a text is none, and nothing fails."""
    assert find_destination(data) == expected
