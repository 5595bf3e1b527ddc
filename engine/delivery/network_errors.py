"""Codes of failed requests, such as DNS, REFUSED and TLS, from the exceptions of sockets."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator

from engine.system.supervisor import own_limit
from engine.text.error_text import error_text
from engine.text.safe import safe_line

DNS, REFUSED, RESET = "DNS", "REFUSED", "RESET"
TIMEOUT, TLS, UNKNOWN = "TIMEOUT", "TLS", "UNKNOWN"
"""Codes of the network: no address; refused; ended early; too slow; no trust; anything else."""

BLOCKED_URL, TOO_LARGE, BAD_ANSWER = "BLOCKED_URL", "TOO_LARGE", "BAD_ANSWER"
"""Codes of our own checks: the URL or an address of it is not allowed; the answer is too large; the
answer is not HTTP, or redirects too often."""

CANCELLED, BAD_DATA, OWN_LIMIT = "CANCELLED", "BAD_DATA", "OWN_LIMIT"
"""Codes of tasks: the worker cancelled the request; the data of the task is no request; the worker
has no descriptor or memory left for it."""

UNHEALTHY = frozenset({DNS, REFUSED, RESET, TIMEOUT, TLS, UNKNOWN})
"""Codes after which a destination is unhealthy."""

ANSWERED = frozenset({TOO_LARGE, BAD_ANSWER})
"""Codes of destinations that have answered, although not as they should."""


class DeliveryError(Exception):
    """A request without a usable answer; its text starts with the code: `[REFUSED] ...`."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(f"[{code}] {safe_line(text)}")
        self.code = code


_CODES: tuple[tuple[type[BaseException], str], ...] = (
    (socket.gaierror, DNS),
    (ssl.SSLEOFError, RESET),
    (ssl.SSLZeroReturnError, RESET),
    (ssl.SSLError, TLS),
    (ssl.CertificateError, TLS),
    (ConnectionRefusedError, REFUSED),
    (ConnectionError, RESET),
    (TimeoutError, TIMEOUT),
)
"""The first row that fits decides."""


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error and what caused it, outermost first."""
    known_ids: set[int] = set()
    one: BaseException | None = error
    while one is not None and id(one) not in known_ids:
        known_ids.add(id(one))
        yield one
        one = one.__cause__ or (None if one.__suppress_context__ else one.__context__)


def error_code(error: BaseException) -> str:
    """The code of an exception, by it or by what caused it."""
    if any(map(own_limit, _chain(error))):
        return OWN_LIMIT
    codes = (code for one in _chain(error) for kind, code in _CODES if isinstance(one, kind))
    return next(codes, UNKNOWN)


def describe_error(error: BaseException) -> str:
    """The text of the innermost error: for a certificate why it is not trusted."""
    if lack := next(filter(None, map(own_limit, _chain(error))), ""):
        return lack
    *_, inner = _chain(error)
    text = getattr(inner, "verify_message", "") or error_text(inner)
    return str(text) or type(inner).__name__
