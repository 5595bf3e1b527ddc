"""The file of MAILQ users: who may log in from where, with which rights; and the login's digest.

A line is `USER:PASSWORD:RIGHTS:ADDRESSES` (ZMailer 3.0.1, scheduler.auth). Rights are words of
`Right` or ALL or NONE. Addresses are `[1.2.3.4]/8`, `[ipv6:...]/64` or `[ipv6....]/64`, with blanks
or commas between them; `!` refuses; the first that fits decides; none at all means everyone.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import os
import re
import shlex
import stat
from collections.abc import Sequence
from enum import StrEnum
from typing import TypeAlias

from engine.store import Unavailable
from engine.system import files
from engine.system.cleanup import closing_fd
from engine.text.error_text import error_text
from engine.values import NamedTuple

MAX_FILE_BYTES = 1 << 20
"""Bytes: a larger file of users is refused."""

Peer: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address | None
"""Who connected; None: by a UNIX socket, which only fits an empty list of addresses."""


class Right(StrEnum):
    """What a user may do."""

    SNMP = "SNMP"
    """Totals."""
    QQ = "QQ"
    """Groups."""
    TT = "TT"
    """Threads and their jobs."""
    ETRN = "ETRN"
    KILL = "KILL"


class AddressRule(NamedTuple):
    """One item of a list of addresses."""

    network: ipaddress.IPv4Network | ipaddress.IPv6Network
    is_refused: bool = False


class MailqUser(NamedTuple):
    """One line of the file."""

    name: str
    password: str
    rights: frozenset[Right]
    rules: tuple[AddressRule, ...]

    def __repr__(self) -> str:
        """Without the password."""
        return f"MailqUser({self.name!r}, rights={sorted(self.rights)})"

    def fits(self, peer: Peer) -> bool:
        """True if it has rights, and its addresses admit the peer."""
        if not self.rights or not self.rules:
            return bool(self.rights)
        if peer is None:
            return False
        mapped = peer.ipv4_mapped if isinstance(peer, ipaddress.IPv6Address) else None
        for rule in self.rules:
            if (mapped or peer) in rule.network:
                return not rule.is_refused
        return False


def digest(challenge: str, password: str) -> str:
    """The answer to a challenge: MD5 of its whole line, `220 ` included, and the password.

    scheduler(8zm) shows it without the 220; ZMailer 3.0.1 and its client have it."""
    data = f"{challenge}{password}".encode("utf-8", "surrogateescape")
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


def is_right_digest(challenge: str, password: str, answer: str) -> bool:
    """Compare an answer in constant time."""
    return hmac.compare_digest(digest(challenge, password).encode(), answer.encode())


def find_user(users: Sequence[MailqUser], name: str, peer: Peer) -> MailqUser | None:
    """The first user of this name whose addresses admit the peer."""
    return next((user for user in users if user.name == name and user.fits(peer)), None)


def parse_users(text: str) -> tuple[tuple[MailqUser, ...], tuple[str, ...]]:
    """Parse the file; also return what is wrong with it, with the numbers of the lines.

    A bad line admits no user. An unknown right is ignored."""
    users, wrong = list[MailqUser](), list[str]()
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip() or line[0] in "#*":
            continue
        fields = line.split(":", 3)
        if len(fields) < 4 or not fields[0]:
            wrong.append(f"line {number}: expected USER:PASSWORD:RIGHTS:ADDRESSES")
            continue
        words = re.split(r"[\s,]+", fields[2].strip())
        unknown = [word for word in words if word and word not in {*Right, "ALL", "NONE"}]
        if unknown:
            wrong.append(f"line {number}: unknown right, expected {', '.join(Right)}, ALL or NONE")
        rights = frozenset(Right) if "ALL" in words else frozenset({*Right}.intersection(words))
        try:
            rules = tuple(_parse_rule(item) for item in re.split(r"[\s,]+", fields[3]) if item)
        except ValueError:
            wrong.append(f"line {number}: expected addresses as [1.2.3.4]/32 or [ipv6:::1]/128")
            continue
        users.append(MailqUser(fields[0], fields[1], rights, rules))
    return tuple(users), tuple(wrong)


def _parse_rule(item: str) -> AddressRule:
    match = re.fullmatch(r"(!?)\[(?:(?i:ipv6)[:.])?([0-9a-fA-F.:]+)\]/(\d+)", item)
    if not match:
        raise ValueError(item)
    network = ipaddress.ip_network(f"{match[2]}/{match[3]}", strict=False)
    return AddressRule(network, bool(match[1]))


def read_users(path: str) -> tuple[tuple[MailqUser, ...], tuple[str, ...]]:
    """Read the file of users; also return what is wrong with it. Raises Unavailable: it cannot be
    read, is no plain file of mode 0600, or of another user."""
    try:
        fd = files.open_file(path)
    except OSError as error:
        raise Unavailable(f"{path}: {error_text(error)}") from None
    with closing_fd(fd):
        file_stat = os.fstat(fd)
        if not stat.S_ISREG(file_stat.st_mode) or file_stat.st_size > MAX_FILE_BYTES:
            raise Unavailable(f"{path}: expected a plain file of at most 1 MiB")
        if file_stat.st_mode & 0o077:
            raise Unavailable(f"{path}: readable by others: run chmod 600 {shlex.quote(path)}")
        if file_stat.st_uid not in (0, os.geteuid()):
            raise Unavailable(
                f"{path}: owned by user {file_stat.st_uid}, expected root or this user"
            )
        data = os.read(fd, MAX_FILE_BYTES)
    return parse_users(data.decode("utf-8", "surrogateescape"))
