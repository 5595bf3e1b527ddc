"""Servers of a federation on loopback, each with its own keys: they decrypt, verify and record what
they get, relay for others, and fail as a script says.

A peer is an independent reading of the protocol. Of the engine it uses only envelopes and keys,
which are checked against vectors.
"""

from __future__ import annotations

import gzip
import json
import socket
import struct
import threading
import urllib.error
import urllib.request
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from email.message import Message
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from engine.formats.bullmq.federation.envelope import is_signed, parse_envelope, seal, sign, unseal
from engine.formats.bullmq.federation.keys import OwnKeys, PeerKeys, make_keys

PATIENCE = 60.0
"""Seconds after which a peer that sleeps wakes up."""
FOLLOWS, POSTS = "/api/auth/social/follows", "/api/auth/social/posts"


Headers = Message | dict[str, Any]
"""Of a request, in any case; or of a relayed one, in its own case."""


class Received(NamedTuple):
    """A delivery that arrived, decrypted and with a good signature."""

    path: str
    headers: Headers
    body: Mapping[str, Any]
    text: str
    """The plain text of its envelope, byte for byte."""
    is_relayed: bool = False


Fault = Callable[["_Request"], None]
"""Answers a delivery in another way."""


class Peer:
    """One server; its listener can be closed and opened again on the same port."""

    def __init__(self, keys: OwnKeys | None = None) -> None:
        self.keys = keys or make_keys()
        self.known: dict[str, PeerKeys] = {}
        """The public keys of others, by their URL."""
        self.script: deque[Fault] = deque()
        """Faults of the next deliveries, one for each."""
        self.discover_script: deque[Fault] = deque()
        """The same for requests of /discover."""
        self.register_script: deque[Fault] = deque()
        """The same for REGISTER."""
        self.received: list[Received] = []
        self.applied: list[str] = []
        """Texts that were applied, each once; a repetition is answered by 409."""
        self.problems: list[str] = []
        """Reasons for which deliveries were refused."""
        self.registered: list[Mapping[str, Any]] = []
        self.discoveries = 0
        self.posts = 0
        """Deliveries that reached it, with all that are answered by faults."""
        self.ack_shape = "inline"
        self.accepted: object = True
        """What the acknowledgement of a follow contains."""
        self.acks: list[dict[str, Any]] = []
        self.relayed: list[Mapping[str, Any]] = []
        """Requests that it relayed, as it got them."""
        self.route: dict[str, str] = {}
        """Other addresses of targets that it relays to: a name that only it can resolve."""
        self.names: set[str] = set()
        """Further origins of its own."""
        self.woken = threading.Event()
        self.port = 0
        self._lock = threading.Lock()
        self._sockets: set[socket.socket] = set()
        self._server: _Server | None = None
        self.open()

    @property
    def url(self) -> str:
        """Its origin."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def public(self) -> PeerKeys:
        """Its public keys."""
        return self.keys.public

    def open(self) -> None:
        """Listen, on the same port as before."""
        self._server = _Server(self, self.port)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve, daemon=True).start()

    def close(self) -> None:
        """Close the listener and all connections: a new one is refused."""
        self.woken.set()
        server, self._server = self._server, None
        if server is None:
            return
        server.end()
        with self._lock:
            for one in self._sockets:
                with suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def note_socket(self, one: socket.socket) -> None:
        """Remember a connection, to close it with the listener."""
        with self._lock:
            self._sockets.add(one)

    # ---- the protocol

    def describe(self) -> dict[str, object]:
        """The answer to GET /discover."""
        signing, encryption = self.public
        others = [{"url": url, "isHealthy": True} for url in self.known]
        return {
            "url": self.url,
            "publicKey": signing,
            "encryptionPublicKey": encryption,
            "peers": others,
        }

    def register(self, body: Mapping[str, Any]) -> tuple[int, object]:
        """Register a server if its own /discover has the same keys."""
        self.registered.append(body)
        peer_keys = PeerKeys(body["publicKey"], body["encryptionPublicKey"])
        try:
            with urllib.request.urlopen(f"{body['url']}/discover", timeout=PATIENCE) as answer:
                there = json.load(answer)
        except OSError:
            return 502, {"message": "unreachable"}
        if peer_keys != PeerKeys(there["publicKey"], there["encryptionPublicKey"]):
            return 400, {"message": "other keys"}
        self.known[body["url"]] = peer_keys
        return 200, {"message": "registered", "echo": self.describe()}

    def deliver(
        self,
        path: str,
        headers: Headers,
        body: Mapping[str, Any],
        *,
        is_relayed: bool = False,
    ) -> tuple[int, object]:
        """Decrypt, verify and apply a delivery."""
        sender = headers.get("X-Federation-Origin", "")
        keys = self.known.get(sender)
        if keys is None or headers.get("Origin") != sender:
            return self._refuse(403, f"unknown server {sender}")
        target = headers.get("X-Federation-Target", "")
        if not any(target.startswith(f"{own}/") for own in (self.url, *self.names)):
            return self._refuse(400, f"for another server: {target}")
        try:
            plain = unseal(parse_envelope(body["payload"]), self.keys.encryption)
        except ValueError as error:
            return self._refuse(400, str(error))
        if not is_signed(plain, body["signature"], keys.signing_key()):
            return self._refuse(401, "signature")
        text = plain.decode()
        if json.loads(text)["method"] != body["method"]:
            return self._refuse(400, "another method")
        self.received.append(Received(path, headers, body, text, is_relayed))
        if body["method"] in ("INSERT", "UNFOLLOW"):
            return 501, {"message": "not implemented"}
        with self._lock:
            if text in self.applied:
                return 409, {"message": "exists"}
            self.applied.append(text)
        return 200, self.acknowledge(json.loads(text), keys)

    def _refuse(self, status: int, why: str) -> tuple[int, object]:
        self.problems.append(why)
        return status, {"message": why}

    def acknowledge(
        self, arguments: Mapping[str, Any], keys: PeerKeys, signer: OwnKeys | None = None
    ) -> object:
        """The acknowledgement in the shape that is set."""
        following = {**arguments.get("following", {}), "accepted": self.accepted}
        if self.accepted is None:
            del following["accepted"]
        fields = {"following": following} if "following" in arguments else {}
        data = {**fields, "federationUrl": self.url, "method": arguments["method"]}
        plain = json.dumps(data).encode()
        ack: dict[str, Any] = {
            "method": "PROXY_RESPONSE",
            "status": "acknowledged",
            "data": json.loads(seal(plain, keys.encryption_key()).to_json()),
            "signature": sign(plain, (signer or self.keys).signing),
        }
        self.acks.append(ack)
        if self.ack_shape == "bare":
            return {"status": "acknowledged", "accepted": self.accepted}
        return {"payload": ack} if self.ack_shape == "wrapped" else ack

    def relay(self, body: Mapping[str, Any]) -> tuple[int, object]:
        """Forward a relayed request to its target, for a registered server."""
        keys = PeerKeys(body["publicSigningKey"], body["publicEncryptionKey"])
        sender = next((url for url, known in self.known.items() if known == keys), "")
        if not sender:
            return self._refuse(403, "unknown sender")
        self.relayed.append(body)
        target = body["targetUrl"].removesuffix("/proxy")
        forwarded = {"method": "TARGETED", "payload": body["payload"]}
        forwarded["signature"] = body["signature"]
        request = urllib.request.Request(
            f"{self.route.get(target, target)}/proxy",
            json.dumps(forwarded).encode(),
            {"Content-Type": "application/json", "X-Federation-Sender": sender},
        )
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                return 200, {"method": "PROXY_RESPONSE", "payload": json.load(answer)}
        except urllib.error.HTTPError as error:
            with error:
                details = json.load(error)
            return 502, {"method": "PROXY_RESPONSE", "error": "failed", "details": details}
        except OSError as error:
            return self._refuse(502, f"target: {error}")

    def targeted(self, body: Mapping[str, Any], sender: str) -> tuple[int, object]:
        """Act on a request that came through a relay."""
        keys = self.known.get(sender)
        if keys is None:
            return self._refuse(403, f"unknown server {sender}")
        plain = unseal(parse_envelope(body["payload"]), self.keys.encryption)
        if not is_signed(plain, body["signature"], keys.signing_key()):
            return self._refuse(401, "signature of the relayed request")
        inner = json.loads(plain)
        own = urlsplit(inner["targetUrl"])
        answered, response = self.deliver(
            own.path, inner["headers"], json.loads(inner["body"]), is_relayed=True
        )
        return answered, response if answered == 200 else {"status": answered, "error": response}


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, peer: Peer, port: int) -> None:
        self.peer, self._is_ending, self._ended = peer, False, threading.Event()
        super().__init__(("127.0.0.1", port), _Request)

    def serve(self) -> None:
        """Accept connections until `end`; `serve_forever` would look for it at intervals."""
        while not self._is_ending:
            self.handle_request()
        self._ended.set()

    def end(self) -> None:
        """Refuse connections."""
        self._is_ending = True
        with suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        self._ended.wait(PATIENCE)
        self.server_close()

    def handle_error(self, *_: object) -> None:
        """A client that has gone is no news."""


class _Request(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, *_: object) -> None:
        """Print nothing."""

    def setup(self) -> None:
        super().setup()
        self.server.peer.note_socket(self.connection)

    def answer(self, status: int, body: object, headers: Mapping[str, str] = {}) -> None:
        """Send an answer: bytes as they are, anything else as JSON."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self) -> None:
        peer = self.server.peer
        peer.discoveries += 1
        if peer.discover_script:
            peer.discover_script.popleft()(self)
        else:
            self.answer(200, peer.describe())

    def do_POST(self) -> None:
        peer = self.server.peer
        self.body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/discover":
            if peer.register_script:
                peer.register_script.popleft()(self)
            else:
                self.answer(*peer.register(self.body))
            return
        peer.posts += 1
        if peer.script:
            peer.script.popleft()(self)
        else:
            self.act()

    def act(self) -> None:
        """Answer a delivery as without a fault."""
        peer, headers = self.server.peer, self.headers
        if self.path != "/proxy":
            self.answer(*peer.deliver(self.path, headers, self.body))
        elif self.body["method"] == "PROXY":
            self.answer(*peer.relay(self.body))
        else:
            self.answer(*peer.targeted(self.body, headers["X-Federation-Sender"]))


# ---- faults


def status(number: int, body: object = b"", **headers: str) -> Fault:
    """Answer with a status; `_` in the name of a header is `-`."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda request: request.answer(number, body, named)


def applied_then(number: int) -> Fault:
    """Apply the delivery, but answer with a status, as a server whose answer was lost."""

    def fault(request: _Request) -> None:
        request.server.peer.deliver(request.path, request.headers, request.body)
        request.answer(number, b"")

    return fault


def applied_then_sleep(request: _Request) -> None:
    """Apply the delivery, but do not answer until the peer is woken."""
    request.server.peer.deliver(request.path, request.headers, request.body)
    sleep(request)


def reset(request: _Request) -> None:
    """Cut the connection by RST."""
    request.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    request.connection.shutdown(socket.SHUT_RD)
    request.close_connection = True
    request.connection.close()


def sleep(request: _Request) -> None:
    """Answer nothing until the peer is woken."""
    request.server.peer.woken.wait(PATIENCE)
    request.close_connection = True


def html(request: _Request) -> None:
    """Answer 200 with a page, as a captive portal does."""
    request.answer(200, b"<html>Welcome</html>", {"Content-Type": "text/html"})


def gzip_bomb(request: _Request) -> None:
    """Answer with 16 MiB of zeros in some KiB."""
    request.answer(200, _bomb(), {"Content-Encoding": "gzip"})


def endless_body(request: _Request) -> None:
    """Begin an answer whose body never ends."""
    request.send_response(200)
    request.send_header("Content-Length", "1000")
    request.end_headers()
    request.wfile.write(b'{"method": "PROXY_RESPONSE"')
    sleep(request)


@cache
def _bomb() -> bytes:
    return gzip.compress(bytes(16 << 20), 1)


def says(body: object) -> Fault:
    """Answer 200 with JSON."""
    return status(200, body)


def ack_for_other_key(request: _Request) -> None:
    """Acknowledge in an envelope that is for another server."""
    peer = request.server.peer
    body = peer.acknowledge(_said(request), make_keys().public)
    request.answer(200, body)


def ack_signed_by_other(request: _Request) -> None:
    """Acknowledge with the signature of another server."""
    peer = request.server.peer
    keys = peer.known[request.headers["X-Federation-Origin"]]
    request.answer(200, peer.acknowledge(_said(request), keys, make_keys()))


def _said(request: _Request) -> Mapping[str, Any]:
    peer = request.server.peer
    plain = unseal(parse_envelope(request.body["payload"]), peer.keys.encryption)
    answer: Mapping[str, Any] = json.loads(plain)
    return answer
