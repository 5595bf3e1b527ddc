"""The HTTP client against peers on loopback that misbehave."""

import gzip
import re
import socket
import ssl
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from engine.delivery.http_client import MAX_ANSWER_BYTES, HttpClient, trusted_certificates
from engine.delivery.network_errors import DeliveryError
from tests import http_peers
from tests.http_peers import Reply, answer, client, make_certificate, peer, silent, tls_server


def failure(http: HttpClient, url: str, **options: Any) -> str:
    """The text of the error of a request that fails."""
    with pytest.raises(DeliveryError) as failed:
        http.send("POST", url, **options)
    assert str(failed.value).startswith(f"[{failed.value.code}] ")
    return str(failed.value)


def test_a_request_is_sent_as_given_and_its_answer_is_returned() -> None:
    """Method, path, headers and body arrive; status, headers and body come back."""
    with peer(answer(201, b"made", X_Kind="a")) as one, client() as http:
        response = http.send("PUT", f"{one.url}/a?b=c", {"X-Token": "t"}, b"data")
    assert (response.status, response.body, response.headers["x-kind"]) == (201, b"made", "a")
    assert response.url == f"{one.url}/a?b=c"
    (sent,) = one.received
    assert (sent.line, sent.body) == ("PUT /a?b=c HTTP/1.1", b"data")
    assert sent.headers["x-token"] == "t"
    assert sent.headers["host"] == one.url.removeprefix("http://")


def test_requests_to_one_peer_share_a_connection_and_no_cookies() -> None:
    """A kept connection is used again; a cookie of one answer is not sent with the next request."""
    with peer(answer(Set_Cookie="a=b")) as one, client() as http:
        for _ in range(2):
            http.send("POST", one.url)
    assert one.connections == 1
    assert "cookie" not in one.received[1].headers


def test_a_proxy_of_the_environment_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy would make the connections that the guard has to judge."""
    with peer() as one, peer() as proxy, client() as http:
        monkeypatch.setenv("http_proxy", proxy.url)
        http.send("GET", one.url)
    assert (len(one.received), len(proxy.received)) == (1, 0)


def test_the_connection_is_made_to_the_address_that_was_judged() -> None:
    """A name with another address at its second look-up is refused when that one is needed."""
    addresses = [["127.0.0.2"], ["127.0.0.1"]]
    with (
        peer(answer(Connection="close"), host="127.0.0.2") as one,
        client("127.0.0.2", resolve=lambda host, port: addresses.pop(0)) as http,
    ):
        url = f"http://rebinding.example:{one.port}/"
        assert http.send("POST", url).status == 200
        assert re.match(r"\[BLOCKED_URL\].*127\.0\.0\.1: a loopback", failure(http, url))
    assert [sent.headers["host"] for sent in one.received] == [f"rebinding.example:{one.port}"]


@pytest.mark.parametrize(
    ("status", "sent"), [(301, "POST"), (302, "POST"), (307, "POST"), (308, "POST"), (303, "GET")]
)
def test_a_redirect_sends_the_request_again(status: int, sent: str) -> None:
    """Method and body stay, except after 303; no credentials go to another origin."""
    bound = ("Authorization", "Cookie", "X-Api-Key", "Proxy-Authorization", "X-Federation-Target")
    sent_headers = {**dict.fromkeys(bound, "secret"), "Content-Type": "text/x", "Accept": "a/b"}
    with peer() as other, client() as http, peer() as one:
        places = ("/own", f"{other.url}/new")
        one.script.extend(answer(status, Location=place) for place in places)
        response = http.send("POST", one.url, sent_headers, b"data")
    assert (response.status, response.url) == (200, f"{other.url}/new")
    (got,) = other.received
    body = b"data" if sent == "POST" else b""
    assert (got.line, got.body) == (f"{sent} /new HTTP/1.1", body)
    assert {one.received[1].headers[name.lower()] for name in bound} == {"secret"}
    assert not {name.lower() for name in bound} & set(got.headers)
    assert (got.headers["content-type"], got.headers["accept"]) == ("text/x", "a/b")


@pytest.mark.parametrize("status", [300, 304, 305])
def test_other_3xx_are_answers(status: int) -> None:
    """Only redirects that name a new place for the request are followed."""
    with peer(answer(status, Location="/x")) as one, client() as http:
        assert http.send("GET", one.url).status == status


BOMB = gzip.compress(bytes(MAX_ANSWER_BYTES * 64), mtime=0)
HEAD = b"HTTP/1.1 200 OK\r\n"
PART = HEAD + b"Content-Length: 9\r\n\r\nabc"
GZIPPED = HEAD + b"Content-Encoding: gzip\r\n\r\n"
EMPTY_GZIP = zlib.compress(b"", wbits=31)
LARGE = "[TOO_LARGE] {peer}: the answer has more than 1 MiB"
ENDLESS, ENDLESS_BODY = (f"[TOO_LARGE] {{peer}}: endless {what}" for what in ("headers", "body"))
BAD = "[BAD_ANSWER] {peer}:"
BLOCKED = "[BLOCKED_URL]"


def packed(body: bytes, encoding: str = "gzip") -> bytes:
    """An answer with an encoding."""
    return answer(200, body, Content_Encoding=encoding)


def stop(sent: bytes) -> Callable[[socket.socket], None]:
    """A reply that begins, and never ends."""

    def reply(sock: socket.socket) -> None:
        sock.sendall(sent)
        silent(sock)

    return reply


BAD_ANSWERS: dict[str, tuple[Reply, str]] = {
    "gzip bomb": (packed(BOMB), LARGE),
    "large": (answer(200, bytes(MAX_ANSWER_BYTES + 1)), LARGE),
    "endless body": (http_peers.endless(HEAD + b"\r\n", b"x" * 4096), LARGE),
    "endless headers": (http_peers.endless(HEAD, b"X-Header: " + b"x" * 4096 + b"\r\n"), ENDLESS),
    "endless header": (http_peers.endless(HEAD + b"X: ", b"x" * 4096), ENDLESS),
    "endless interim answers": (http_peers.endless(b"", b"HTTP/1.1 100 Continue\r\n\r\n"), ENDLESS),
    "body of nothing": (http_peers.endless(GZIPPED, EMPTY_GZIP * 1000), ENDLESS_BODY),
    "no gzip": (packed(b"text"), "[BAD_ANSWER]"),
    "unknown encoding": (
        packed(b"", "br"),
        f"{BAD} the answer has an unknown content-encoding: br",
    ),
    "half a gzip": (packed(BOMB[:999]), f"{BAD} the compressed answer is incomplete"),
    "no HTTP": (b"SSH-2.0-OpenSSH_9.6\r\n\r\n", "[BAD_ANSWER]"),
    "reset": (http_peers.reset, "[RESET]"),
    "closed": (lambda sock: None, "[RESET]"),
    "half a body": (lambda sock: sock.sendall(PART), "[RESET]"),
}
REDIRECTS = {
    "file:///etc/passwd": f"{BLOCKED} redirect: file:, expected http: or https:",
    "http://169.254.169.254/latest": f"{BLOCKED} 169.254.169.254: a metadata service",
    "http://[::ffff:10.0.0.1]/": f"{BLOCKED} 10.0.0.1: a private address",
    "http://user@example.com/": f"{BLOCKED} redirect: a user name or password",
    "http://example.com:0/": f"{BLOCKED} redirect: port 0",
    "http://x:y/": "[BAD_ANSWER] redirect to what is not a URL",
}
LATE = "[TIMEOUT] {peer}: no whole answer after 0.1 s"
BAD_ANSWERS |= {f"stops after {sent!r}": (stop(sent), LATE) for sent in (b"", HEAD, PART)}
BAD_ANSWERS |= {to: (answer(307, Location=to), why) for to, why in REDIRECTS.items()}


@pytest.mark.parametrize("name", BAD_ANSWERS)
def test_a_bad_answer_ends_the_request_with_a_code(name: str) -> None:
    """The client stops at its limits, says why, and judges a redirect like the first URL."""
    reply, message = BAD_ANSWERS[name]
    with peer(reply) as one, client() as http:
        text = failure(http, one.url, timeout=0.1 if message == LATE else 20, body=b"data")
    assert text.startswith(message.format(peer=one.url.removeprefix("http://")))


def test_endless_redirects_end() -> None:
    """After five redirects the request fails."""
    with peer(*[answer(307, Location="/again")] * 9) as one, client() as http:
        text = failure(http, one.url)
    assert re.match(r"\[BAD_ANSWER\] 127.0.0.1:\d+: more than 5 redirects", text)
    assert len(one.received) == 6


def test_a_compressed_answer_is_decoded() -> None:
    """Although none was asked for; the answer to HEAD has no body to decode."""
    head = HEAD + b"Content-Encoding: gzip\r\nContent-Length: 99\r\n\r\n"
    gzipped, deflated = gzip.compress(b"plain"), zlib.compress(b"plain")
    with peer(packed(gzipped), packed(deflated, "deflate"), head) as one, client() as http:
        bodies = [http.send(method, one.url).body for method in ("GET", "GET", "HEAD")]
    assert bodies == [b"plain", b"plain", b""]


def test_a_cancelled_request_ends() -> None:
    """A worker that stops waits for no peer; a look-up, itself without a limit, has that of all."""
    with peer(silent) as one, client() as http:
        text = failure(http, one.url, is_cancelled=lambda: bool(one.received))
    assert text.startswith("[CANCELLED]")

    def resolve(host: str, port: int) -> list[str]:
        with socket.create_connection(("127.0.0.1", one.port)) as sock:
            sock.recv(1)
        return []

    with peer() as one, client(resolve=resolve) as http:
        assert failure(http, "http://slow.example/", timeout=0.1).startswith("[TIMEOUT]")


def test_codes_of_the_network() -> None:
    """No address and a refusal have codes; after one that refuses the next address is tried."""
    with peer() as one:
        pass
    with client() as http:
        assert failure(http, one.url).startswith(f"[REFUSED] 127.0.0.1:{one.port}: ")
        assert failure(http, "http://nowhere.invalid/").startswith("[DNS] nowhere.invalid: ")
    with (
        peer(host="127.0.0.2") as one,
        client("127.0.0.0/8", resolve=lambda host, port: ["127.0.0.3", "127.0.0.2"]) as http,
    ):
        assert http.send("GET", f"http://name.example:{one.port}/").status == 200


@pytest.mark.parametrize(("host", "days", "is_known", "why"), [
    ("localhost", -1, True, "certificate has expired"),
    ("localhost", 1, False, "self-signed certificate"),
    ("other.example", 1, True, "other.example"),  # not the address that was judged
])  # fmt: skip
def test_a_certificate_that_is_not_trusted_is_refused(
    tmp_path: Path, host: str, days: int, is_known: bool, why: str
) -> None:
    """No request is sent if it has expired, is unknown, or is for another name."""
    path = make_certificate(tmp_path, days=days)
    trusted = trusted_certificates(str(path) if is_known else "")
    reach = client("127.0.0.1", tls=trusted, resolve=lambda *_: ["127.0.0.1"])
    with peer(tls=tls_server(path)) as one, reach as http:
        text = failure(http, f"https://{host}:{one.port}/")
    assert text.startswith("[TLS]") and why in text
    assert not one.received


def test_a_redirect_from_https_to_http_is_refused(tmp_path: Path) -> None:
    """What was sent encrypted is not sent in clear text; else a good certificate is accepted."""
    path = make_certificate(tmp_path)
    with (
        peer() as plain,
        peer(answer(307, Location=plain.url), tls=tls_server(path)) as one,
        client("127.0.0.1", "localhost", tls=trusted_certificates(str(path))) as http,
    ):
        url = f"https://localhost:{one.port}/"
        text = failure(http, url, body=b"data")
        assert text.startswith("[BLOCKED_URL] redirect from https: to http:")
        assert http.send("POST", url).status == 200
    assert not plain.received


@contextmanager
def hasty(status: int) -> Iterator[int]:
    """The port of a peer that answers the first bytes that it gets, and closes."""

    def serve() -> None:
        sock, _ = listener.accept()
        with sock:
            sock.recv(1000)
            sock.sendall(answer(status))

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1]
        thread.join()


def test_a_peer_that_answers_at_once_has_answered() -> None:
    """Without TLS it is no HTTPS peer; by 413 and a close it refuses a large body."""
    with hasty(400) as port, client("localhost") as http:
        assert failure(http, f"https://localhost:{port}/").startswith("[TLS] ")
    with hasty(413) as port, client() as http:
        assert http.send("POST", f"http://127.0.0.1:{port}/", body=bytes(5 << 20)).status == 413


def test_trusted_certificates_of_a_file_without_any_are_an_error(tmp_path: Path) -> None:
    """A file that has none is reported before the first request."""
    (tmp_path / "empty.pem").write_text("")
    with pytest.raises((OSError, ssl.SSLError)):
        trusted_certificates(str(tmp_path / "empty.pem"))
