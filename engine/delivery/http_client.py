"""HTTP client whose connections go only to addresses that the URL guard has judged.

httpcore speaks HTTP/1.1; the sockets are ours, as each wait ends at the deadline of the whole
request, and each byte received counts."""

from __future__ import annotations

import select
import socket
import ssl
import threading
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any

import httpcore
import httpx

from engine.delivery import network_errors
from engine.delivery.network_errors import DeliveryError
from engine.delivery.url_guard import UrlGuard
from engine.destinations.destination import origin_of
from engine.override import override
from engine.values import NamedTuple
from engine.version import VERSION

MAX_ANSWER_BYTES = 1 << 20
"""Most bytes of the body of an answer, decoded."""

MAX_HEADER_BYTES = 96 << 10
"""Most bytes received before the body of an answer; above 64 KiB, the size of one read."""

MAX_WIRE_BYTES = 8 * MAX_ANSWER_BYTES
"""Most bytes received of a body: chunks of one byte have six bytes each."""

MAX_REDIRECTS = 5

CANCEL_INTERVAL_SECONDS = 0.5
"""Seconds between two questions whether a waiting request was cancelled."""

KEPT_CONNECTIONS, KEPT_SECONDS = 64, 30.0
"""Number of idle connections that are kept, and for how long."""

_UNBOUND = frozenset(
    {"accept", "accept-language", "idempotency-key", "user-agent", "x-request-id"}
    | {"content-type", "content-language", "content-encoding"}
)
"""Headers that are sent to another origin after a redirect. Any other one may be a credential
(Authorization, Cookie, X-Api-Key), or made for the first origin only."""

_KEEPS_METHOD = frozenset({301, 302, 307, 308})
"""Redirects after which method and body are sent again; after 303 the answer is read by GET."""


class Answer(NamedTuple):
    """The answer to a request."""

    status: int
    headers: Mapping[str, str]
    """By name in lower case; repeated ones are joined by a comma."""
    body: bytes
    url: str
    """The URL that answered, after redirects."""


class _RunningRequest:
    """The limits of a request that runs on one thread; to exceed one raises DeliveryError."""

    def __init__(self, timeout: float, is_cancelled: Callable[[], bool]) -> None:
        self._deadline, self._is_cancelled = time.monotonic() + timeout, is_cancelled
        self._timeout, self._bytes_left, self._part = timeout, MAX_HEADER_BYTES, "headers"
        self.peer, self.peer_closed = "", False

    def error(self, code: str, text: str) -> DeliveryError:
        """An error of the peer that is asked now."""
        return DeliveryError(code, f"{self.peer}: {text}")

    def seconds_left(self, most: float = CANCEL_INTERVAL_SECONDS) -> float:
        """Seconds for the next wait, at most `most`; raises TIMEOUT or CANCELLED."""
        seconds = self._deadline - time.monotonic()
        if seconds <= 0:
            raise self.error(network_errors.TIMEOUT, f"no whole answer after {self._timeout:g} s")
        if self._is_cancelled():
            raise self.error(network_errors.CANCELLED, "cancelled by the worker")
        return min(seconds, most)

    def expect(self, part: str, most: int) -> None:
        """Limit the bytes of the next part of the answer."""
        self._part, self._bytes_left = part, most

    def count(self, received: int) -> None:
        """Count received bytes; raises TOO_LARGE."""
        self.peer_closed = not received
        self._bytes_left -= received
        if self._bytes_left < 0:
            raise self.error(network_errors.TOO_LARGE, f"endless {self._part} in the answer")


class _Running(threading.local):
    """The request that runs on each thread."""

    request: _RunningRequest


class _Stream(httpcore.NetworkStream):
    """A connected socket; it waits only within the limits of the running request, not with the
    timeouts of httpcore, and tells it only whether it is readable."""

    def __init__(self, sock: socket.socket, running: _Running) -> None:
        self._socket, self._running = sock, running

    @override
    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        run = self._running.request
        while True:
            self._socket.settimeout(run.seconds_left())
            try:
                data = self._socket.recv(max_bytes)
            except TimeoutError:
                continue
            run.count(len(data))
            return data

    @override
    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        run, unsent = self._running.request, memoryview(buffer)
        while unsent:
            self._socket.settimeout(run.seconds_left())
            try:
                unsent = unsent[self._socket.send(unsent) :]
            except TimeoutError:
                continue
            except OSError as error:
                # httpcore then reads: a peer may answer and close before it has read all.
                raise httpcore.WriteError(str(error)) from error

    @override
    def close(self) -> None:
        self._socket.close()

    @override
    def get_extra_info(self, info: str) -> Any:
        if info != "is_readable":  # asked of an idle connection: then the peer has closed it
            return None
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return bool(poll.poll(0))


class _Connections:
    """Connections to judged addresses, some of them idle; threads may share it.

    The pool of httpcore looks at every connection for each request, so its cost grows with the
    number of peers."""

    def __init__(self, guard: UrlGuard, tls: ssl.SSLContext, running: _Running) -> None:
        self._guard, self._tls, self._running = guard, tls, running
        self._idle: list[tuple[httpcore.Origin, httpcore.HTTP11Connection]] = []
        """The one that was used last is at the end."""
        self._lock = threading.Lock()

    def take(self, origin: httpcore.Origin) -> httpcore.HTTP11Connection:
        """An idle connection, else a new one."""
        while (connection := self._take_idle(origin)) is not None:
            if not connection.has_expired():
                return connection
            connection.close()
        stream = _Stream(self._connect(origin), self._running)
        return httpcore.HTTP11Connection(origin, stream, keepalive_expiry=KEPT_SECONDS)

    def _take_idle(self, origin: httpcore.Origin) -> httpcore.HTTP11Connection | None:
        with self._lock:
            for number in range(len(self._idle) - 1, -1, -1):
                if self._idle[number][0] == origin:
                    return self._idle.pop(number)[1]
        return None

    def give_back(self, origin: httpcore.Origin, used: httpcore.HTTP11Connection) -> None:
        """Keep a connection whose answer was read, close any other one."""
        if not used.is_idle():
            used.close()
            return
        with self._lock:
            self._idle.append((origin, used))
            oldest = self._idle[0][1]
            if len(self._idle) <= KEPT_CONNECTIONS and not oldest.has_expired():
                return
            del self._idle[0]
        oldest.close()

    def close(self) -> None:
        """Close the idle connections."""
        with self._lock:
            for _, connection in self._idle:
                connection.close()
            self._idle.clear()

    def _connect(self, origin: httpcore.Origin) -> socket.socket:
        run, host = self._running.request, origin.host.decode("ascii")
        addresses = self._guard.addresses(host, origin.port, partial(_within, run))
        failure: OSError | None = None
        for number, address in enumerate(addresses):
            share = run.seconds_left(most=3600) / (len(addresses) - number)
            try:
                sock = socket.create_connection((address, origin.port), share)
            except OSError as error:
                failure = error
                continue
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if origin.scheme == b"http":
                return sock
            try:
                sock.settimeout(run.seconds_left(most=3600))
                return self._tls.wrap_socket(sock, server_hostname=host)
            except BaseException:
                sock.close()
                raise
        assert failure is not None, "the guard returns at least one address"
        raise failure


def _within(run: _RunningRequest, look_up: Callable[[], Sequence[str]]) -> Sequence[str]:
    """Run a look-up, which has no timeout, on a thread that is left behind if it takes too long."""
    answers: SimpleQueue[Sequence[str] | Exception] = SimpleQueue()

    def ask() -> None:
        try:
            answers.put(look_up())
        except Exception as error:  # raised again below
            answers.put(error)

    threading.Thread(target=ask, name="look-up", daemon=True).start()
    while True:
        try:
            answer = answers.get(timeout=run.seconds_left())
        except Empty:
            continue
        if isinstance(answer, Exception):
            raise answer
        return answer


def trusted_certificates(ca_file: str = "") -> ssl.SSLContext:
    """TLS settings that trust the certificates of the system and those in a file. Raises `OSError`:
    the file cannot be read, or has no certificates."""
    context = ssl.create_default_context()
    if ca_file:
        context.load_verify_locations(ca_file)
    return context


class HttpClient:
    """Sends requests; threads may share it. No proxy, cookie or .netrc is used."""

    def __init__(self, guard: UrlGuard, tls: ssl.SSLContext | None = None) -> None:
        self._guard, self._running = guard, _Running()
        self._connections = _Connections(guard, tls or trusted_certificates(), self._running)

    def close(self) -> None:
        """Close the connections that are kept."""
        self._connections.close()

    def send(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str] = {},
        body: bytes = b"",
        timeout: float = 15.0,
        is_cancelled: Callable[[], bool] = lambda: False,
        why_blocked: Callable[[str], str] = lambda origin: "",
    ) -> Answer:
        """Send a request and read its answer, with any status; `timeout` is for all of it, in
        seconds: look-up, redirects and body. `why_blocked` is asked about the origin of each
        redirect; it returns "" if that may get the request.

        Raises:
            DeliveryError: there is no complete answer; its code says why."""
        target = self._guard.check_url(url)
        run = self._running.request = _RunningRequest(timeout, is_cancelled)
        try:
            for _ in range(MAX_REDIRECTS + 1):
                answer = self._send_once(run, method, target, headers, body)
                place = answer.headers.get("location")
                if not 300 < answer.status < 400 or place is None:
                    return answer
                if answer.status == 303:
                    method, body = "GET" if method != "HEAD" else method, b""
                elif answer.status not in _KEEPS_METHOD:
                    return answer
                source, target = target, self._redirected(target, place)
                if _origin(source) != _origin(target):
                    if why := why_blocked(origin := origin_of(str(target))):
                        text = f"redirect: {origin} is blocked: {why}"
                        raise DeliveryError(network_errors.BLOCKED_URL, text)
                    headers = {k: v for k, v in headers.items() if k.lower() in _UNBOUND}
        except (OSError, httpcore.ProtocolError, httpcore.NetworkError, zlib.error) as error:
            raise run.error(_code_of(error, run), network_errors.describe_error(error)) from error
        raise run.error(network_errors.BAD_ANSWER, f"more than {MAX_REDIRECTS} redirects")

    def _redirected(self, source: httpx.URL, place: str) -> httpx.URL:
        try:
            target = source.join(place)
        except (httpx.InvalidURL, ValueError) as error:
            text = f"redirect to what is not a URL: {error}"
            raise DeliveryError(network_errors.BAD_ANSWER, text) from error
        try:
            target = self._guard.check_url(target)
        except DeliveryError as error:
            text = f"redirect: {str(error).partition('] ')[2]}"
            raise DeliveryError(error.code, text) from error
        if (source.scheme, target.scheme) == ("https", "http"):
            raise DeliveryError(network_errors.BLOCKED_URL, "redirect from https: to http:")
        return target

    def _send_once(
        self,
        run: _RunningRequest,
        method: str,
        url: httpx.URL,
        headers: Mapping[str, str],
        body: bytes,
    ) -> Answer:
        run.expect("headers", MAX_HEADER_BYTES)
        run.peer = url.netloc.decode("ascii")
        sent = {
            "host": run.peer,
            "user-agent": f"spooldeck/{VERSION}",
            "accept": "*/*",
            "accept-encoding": "identity",
            **{name.lower(): value for name, value in headers.items()},
        }
        if body or method in ("POST", "PUT", "PATCH"):
            sent["content-length"] = str(len(body))
        target = httpcore.URL(
            scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path
        )
        request = httpcore.Request(
            method,
            target,
            headers=[(name.encode("latin-1"), v.encode("utf-8")) for name, v in sent.items()],
            content=body,
        )
        connection = self._connections.take(target.origin)
        try:
            response = connection.handle_request(request)
            run.expect("body", MAX_WIRE_BYTES)
            merged: dict[str, str] = {}
            for raw_name, raw in response.headers:
                name, value = raw_name.decode("latin-1").lower(), raw.decode("latin-1")
                merged[name] = f"{merged[name]}, {value}" if name in merged else value
            whole = b""
            if "location" not in merged or not 300 < response.status < 400:
                whole = _read_body(run, response, merged.get("content-encoding", ""))
            response.close()
        finally:
            self._connections.give_back(target.origin, connection)
        return Answer(response.status, merged, whole, str(url))


def _read_body(run: _RunningRequest, response: httpcore.Response, encoding: str) -> bytes:
    """The body of an answer, decoded without ever making more than its limit of it."""
    if encoding.lower() not in _WINDOW_BITS:
        text = f"the answer has an unknown content-encoding: {encoding}"
        raise run.error(network_errors.BAD_ANSWER, text)
    bits = _WINDOW_BITS[encoding.lower()]
    decoder = zlib.decompressobj(bits) if bits else None
    body, has_body = bytearray(), False  # the answer to HEAD has an encoding, but no body
    for chunk in response.iter_stream():
        has_body = True
        room = MAX_ANSWER_BYTES + 1 - len(body)
        body += chunk if decoder is None else decoder.decompress(chunk, room)
        if len(body) > MAX_ANSWER_BYTES:
            text = f"the answer has more than {MAX_ANSWER_BYTES >> 20} MiB"
            raise run.error(network_errors.TOO_LARGE, text)
    if decoder is not None and has_body and not decoder.eof:
        raise run.error(network_errors.BAD_ANSWER, "the compressed answer is incomplete")
    return bytes(body)


_WINDOW_BITS = {"": 0, "identity": 0, "gzip": 31, "x-gzip": 31, "deflate": 15}
"""Content-encoding -> `wbits` of zlib; 0: not compressed."""


def _origin(url: httpx.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port


def _code_of(error: Exception, run: _RunningRequest) -> str:
    if isinstance(error, httpcore.LocalProtocolError):
        return network_errors.BAD_DATA
    if isinstance(error, httpcore.ProtocolError | zlib.error):
        return network_errors.RESET if run.peer_closed else network_errors.BAD_ANSWER
    return network_errors.error_code(error)
