"""The address of a place: a path or a URL without its password; and our own folder for a URL."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from engine.values import NamedTuple

if TYPE_CHECKING:
    from urllib.parse import SplitResult

ROOT_STATE_FOLDER = "/var/lib/spooldeck"
"""Our folder for the state of root's programs (Filesystem Hierarchy Standard, /var/lib)."""

PASSWORD_PARAMETERS = frozenset({"password", "passwd", "pass", "auth", "token", "secret"})
"""Query parameters of a URL that are its password, in any case."""

PASSWORD_ENDING = "_password"
"""Ends the names of parameters that are passwords of other servers than the host."""

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
    passwords: tuple[tuple[str, str], ...] = ()
    """Parameters with further passwords, whose names end in `PASSWORD_ENDING`."""

    def __repr__(self) -> str:
        """Without the password."""
        return f"Address({self.text!r})"

    @property
    def has_password(self) -> bool:
        """True if the URL has a password of any server."""
        return bool(self.password or self.passwords)

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
    tail = scheme[1:].translate({ord(sign): None for sign in "+.-"})
    return bool(colon) and scheme.isascii() and scheme[:1].isalpha() and (tail + "x").isalnum()


def has_password(word: str) -> bool:
    """True if a word of a command line is a URL with a password, or might be meant as one."""
    value = word.partition("=")[2] if word.startswith("--") else word
    scheme, colon, after_scheme = value.strip().partition("://")
    if not colon or not scheme or set(scheme) & set("/ \t"):
        return False
    try:
        return parse_address(value).has_password or (not is_url(value) and "@" in after_scheme)
    except BadAddress:
        return "@" in after_scheme


def hide_passwords(text: str) -> str:
    """A text without what is or may be the password of a URL, also of one that is written wrong."""
    import re  # only for texts about a configuration

    text = re.sub(r":(?!//)\S*@", ":***@", text)
    names = "|".join(PASSWORD_PARAMETERS)
    names += rf"|[^=&\s]*{PASSWORD_ENDING}"
    return re.sub(rf"([?&](?:{names})=)[^&\s]*", r"\1***", text, flags=re.IGNORECASE)


def split_url(text: str) -> tuple[SplitResult, list[tuple[str, int | None]]]:
    """The parts of a URL, and its hosts, separated by commas, each with its port if it has one; in
    the parts is the first host.

    Raises:
        BadAddress: a host is missing or invalid, or a port is no number.
    """
    import re  # both only for URLs: slow to load
    from urllib.parse import urlsplit

    scheme, _, tail = text.partition("://")
    login, at, tail = tail.rpartition("@")
    netloc = re.split("[/?#]", tail, maxsplit=1)[0]
    first, *others = netloc.split(",")
    try:
        parts = urlsplit(f"{scheme}://{login}{at}{first}{tail[len(netloc) :]}")
        split_hosts = [parts, *(urlsplit(f"//{one}") for one in others)]
        names = [one.hostname or "" for one in split_hosts]
    except ValueError:
        raise BadAddress("expected SCHEME://HOST") from None
    try:
        hosts = [(name, one.port) for name, one in zip(names, split_hosts, strict=True)]
    except ValueError:
        raise BadAddress("expected a port from 0 to 65535") from None
    if others and not all(names):
        raise BadAddress("expected a host on each side of a comma")
    return parts, hosts


def join_host(host: str, port: int | None) -> str:
    """HOST:PORT, with an IPv6 address in brackets; without a port the host alone."""
    return (f"[{host}]" if ":" in host else host) + ("" if port is None else f":{port}")


def parse_address(text: str) -> Address:
    """Parse a path or a URL; the password of a URL is set apart.

    The password is the one before the host, or one of `PASSWORD_PARAMETERS` in the query. Two ways
    to write the same URL give the same text: parameters are sorted, a lone / is dropped.

    Raises:
        BadAddress: the port is no number, or a part has a character that must be written as %XX.
    """
    if not is_url(text):
        return Address(os.path.abspath(text))
    from urllib.parse import parse_qsl, quote, unquote, urlencode

    if not text.isprintable() or " " in text:
        raise BadAddress("spaces or control characters in a URL: write them as %XX")
    before, at, _ = text.partition("://")[2].rpartition("@")
    if at and {"/", "?", "#"}.intersection(before):
        escapes = "/ as %2F, ? as %3F, # as %23, @ as %40, % as %25"
        raise BadAddress(f"@ only before the host; in a password or parameter write {escapes}")
    parts, hosts = split_url(text)
    if parts.fragment:
        raise BadAddress("expected no # in a URL: write it as %23")
    fields = parse_qsl(parts.query, keep_blank_values=True)
    secrets = [value for name, value in fields if name.casefold() in PASSWORD_PARAMETERS]
    passwords = tuple(one for one in fields if one[0].casefold().endswith(PASSWORD_ENDING))
    hidden = {*passwords, *(one for one in fields if one[0].casefold() in PASSWORD_PARAMETERS)}
    open_fields = sorted(one for one in fields if one not in hidden)
    user = f"{parts.username}@" if parts.username else ""
    place = user + ",".join(join_host(*one) for one in hosts)
    path = "" if parts.path == "/" else parts.path
    # Not every reader of URLs knows + as a space.
    query = f"?{urlencode(open_fields, quote_via=quote)}" if open_fields else ""
    password = unquote(parts.password) if parts.password else "".join(secrets[-1:])
    return Address(f"{parts.scheme}://{place}{path}{query}", password, passwords)


def places_folder(address: Address, environ: Mapping[str, str], user: int) -> str:
    """Our own folder for a place that has no folder of its own: journal, notes, logs, metrics.

    It is below `$XDG_STATE_HOME/spooldeck/places` (XDG Base Directory Specification), for root
    (`user` 0) below `/var/lib/spooldeck/places`. A relative XDG_STATE_HOME is ignored, as the
    specification says; systemd gives a unit with StateDirectory= the variable STATE_DIRECTORY. A
    user without all of them and without a home, as of a container, has a folder that is never
    there: reading needs none.
    """
    import hashlib
    import re

    states = environ.get("XDG_STATE_HOME", ""), environ.get("STATE_DIRECTORY", "").split(":")[0]
    homes = environ.get("HOME", ""), os.path.expanduser("~"), "/nonexistent"
    base = next(filter(os.path.isabs, (*states, *(f"{home}/.local/state" for home in homes))))
    base = ROOT_STATE_FOLDER if user == 0 else f"{base}/spooldeck"
    readable = re.sub(r"[^A-Za-z0-9.]+", "-", address.text).strip("-.")[:_NAME_LENGTH]
    unique = hashlib.sha256(address.text.encode("utf-8", "surrogateescape")).hexdigest()[:12]
    return f"{base}/places/{readable}-{unique}"
