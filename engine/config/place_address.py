"""The address of a place: a path or a URL without its password; and our own folder for a URL."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple

ROOT_STATE_FOLDER = "/var/lib/spooldeck"
"""Our folder for the state of root's programs (Filesystem Hierarchy Standard, /var/lib)."""

_NAME_LENGTH = 60
"""Characters of an address in the name of its folder; a hash makes the name unique."""


class BadAddress(ValueError):
    """A URL cannot be used; the text says what was expected and has no password."""


class Address(NamedTuple):
    """Where a place is."""

    text: str
    """An absolute path, or a URL without its password: safe to show, log and pass on."""
    password: str = ""
    """The password of the URL; only the code that connects reads it."""

    def __repr__(self) -> str:
        return f"Address({self.text!r})"

    @property
    def is_url(self) -> bool:
        """True for a URL, False for a path."""
        return is_url(self.text)

    @property
    def scheme(self) -> str:
        """The scheme of a URL in lower case; "" for a path."""
        return self.text.partition("://")[0] if self.is_url else ""


def is_url(text: str) -> bool:
    """True if a text is written as a URL; a file of such a name is opened as ./NAME."""
    scheme, colon, _ = text.partition("://")
    letters = scheme.isascii() and scheme.translate({ord(sign): None for sign in "+.-"})
    return bool(colon and letters) and scheme[0].isalpha() and str(letters).isalnum()


def parse_address(text: str) -> Address:
    """Parse a path or a URL; the password of a URL is set apart.

    The password is the one before the host, or the query parameter `password`.

    Raises:
        BadAddress: the port is no number, or the URL has spaces, control characters or a fragment.
    """
    if not is_url(text):
        return Address(os.path.abspath(text))
    from urllib.parse import parse_qsl, unquote, urlencode, urlsplit  # only for URLs: slow to load

    if not text.isprintable() or " " in text:
        raise BadAddress("a URL with spaces or control characters: write them as %XX")
    try:
        parts = urlsplit(text)
        port = "" if parts.port is None else f":{parts.port}"
        host = parts.hostname or ""
    except ValueError as error:
        raise BadAddress(f"not a URL: {_reason(error)}") from None
    if parts.fragment:
        raise BadAddress("a URL with #: expected no fragment")
    fields = parse_qsl(parts.query, keep_blank_values=True)
    passwords = [value for name, value in fields if name == "password"]
    user = f"{parts.username}@" if parts.username else ""
    place = user + (f"[{host}]" if ":" in host else host) + port
    query = urlencode([(name, value) for name, value in fields if name != "password"])
    shown = f"{parts.scheme}://{place}{parts.path}{'?' if query else ''}{query}"
    return Address(shown, unquote(parts.password) if parts.password else "".join(passwords[-1:]))


def _reason(error: ValueError) -> str:
    """The reason without the URL's text, which may have a password."""
    return "expected a port from 0 to 65535" if "ort" in str(error) else "expected SCHEME://HOST"


def places_folder(address: Address, environ: Mapping[str, str], user: int) -> str:
    """Our own folder for a place that has no folder of its own: journal, notes, logs, metrics.

    It is below `$XDG_STATE_HOME/spooldeck/places` (XDG Base Directory Specification), for root
    (`user` 0) below `/var/lib/spooldeck/places`. A relative XDG_STATE_HOME is ignored, as the
    specification says.
    """
    import hashlib
    import re

    base = environ.get("XDG_STATE_HOME", "")
    if not os.path.isabs(base):
        base = f"{environ.get('HOME') or os.path.expanduser('~')}/.local/state"
    base = ROOT_STATE_FOLDER if user == 0 else f"{base}/spooldeck"
    readable = re.sub(r"[^A-Za-z0-9.]+", "-", address.text).strip("-.")[:_NAME_LENGTH]
    unique = hashlib.sha256(address.text.encode("utf-8", "surrogateescape")).hexdigest()[:12]
    return f"{base}/places/{readable}-{unique}"
