"""Peers on loopback that answer HTTP requests as a script says, and certificates for them."""

from __future__ import annotations

import datetime
import socket
import ssl
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple, TypeAlias

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from engine.config.deliver_config import parse_allowed
from engine.delivery.http_client import HttpClient, trusted_certificates
from engine.delivery.url_guard import Resolver, UrlGuard, resolve_name


class Received(NamedTuple):
    """A request that a peer has received."""

    line: str
    headers: dict[str, str]
    body: bytes


TLS = trusted_certificates()
"""Of all clients without other settings: to load them takes as long as some tests."""

Reply: TypeAlias = "bytes | Callable[[socket.socket], None]"
"""What a peer sends, or does with the connection, which it then closes."""


def answer(status: int = 200, body: bytes = b"", **headers: str) -> bytes:
    """An answer as bytes; `_` in a header's name is a hyphen."""
    lines = [f"HTTP/1.1 {status} Said", f"Content-Length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


def endless(start: bytes, more: bytes) -> Callable[[socket.socket], None]:
    """A reply that never ends, until the client closes the connection."""

    def send(sock: socket.socket) -> None:
        with suppress(OSError):
            sock.sendall(start)
            while True:
                sock.sendall(more)

    return send


def silent(sock: socket.socket) -> None:
    """A reply that never comes: wait until the client closes the connection."""
    with suppress(OSError):
        sock.recv(1)


def reset(sock: socket.socket) -> None:
    """Close the connection with a TCP reset instead of a reply."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")


class Peer:
    """A server on a free port of a loopback address."""

    def __init__(self, *script: Reply, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1"):
        """It sends the replies of the script in turn, then only answers 200."""
        self.script, self.received, self._tls = deque(script), list[Received](), tls
        self.connections = 0
        self._listener = socket.create_server((host, 0))
        self.port = self._listener.getsockname()[1]
        scheme = "http" if tls is None else "https"
        self.url = f"{scheme}://{host}:{self.port}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Refuse further connections."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                sock, _ = self._listener.accept()
                self.connections += 1
                threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, sock: socket.socket) -> None:
        with suppress(OSError):
            if self._tls is not None:
                sock = self._tls.wrap_socket(sock, server_side=True)
            with sock, sock.makefile("rb") as stream:
                while line := stream.readline():
                    headers = {}
                    while (text := stream.readline().decode("latin-1").strip()) != "":
                        name, _, value = text.partition(": ")
                        headers[name.lower()] = value
                    body = stream.read(int(headers.get("content-length", 0)))
                    self.received.append(Received(line.decode("latin-1").strip(), headers, body))
                    reply = self.script.popleft() if self.script else answer()
                    if not isinstance(reply, bytes):
                        reply(sock)
                        break
                    sock.sendall(reply)


@contextmanager
def peer(
    *script: Reply, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1"
) -> Iterator[Peer]:
    """A peer that runs in the block."""
    one = Peer(*script, tls=tls, host=host)
    try:
        yield one
    finally:
        one.close()


@contextmanager
def client(
    *allow: str, resolve: Resolver = resolve_name, tls: ssl.SSLContext | None = None
) -> Iterator[HttpClient]:
    """A client with an allow-list: by default 127.0.0.1."""
    allowed = [parse_allowed(text) for text in allow or ("127.0.0.1",)]
    one = HttpClient(UrlGuard(allowed, resolve), tls or TLS)
    try:
        yield one
    finally:
        one.close()


def make_certificate(folder: Path, name: str = "localhost", *, days: int = 1) -> Path:
    """Write a self-signed certificate and its key for a name and 127.0.0.1 to one file; it has
    expired if `days` is negative."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=30))
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = folder / f"{name}.pem"
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        + made.public_bytes(serialization.Encoding.PEM)
    )
    return path


def tls_server(path: Path) -> ssl.SSLContext:
    """TLS settings of a peer with this certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    return context
