"""Where a scheduler serves MAILQ, by scheduler.conf and zmailer.conf; listen there."""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Mapping
from typing import NamedTuple

from engine.formats.zmailer.mailq.server import DEFAULT_PORT, LOOPBACK, listen_tcp, listen_unix
from engine.formats.zmailer.spool.scheduler_conf import SchedulerConf
from engine.store import Unavailable
from engine.text import decode

MAX_PORT = 65_535


class MailqSocket(NamedTuple):
    """Where a scheduler serves MAILQ: a UNIX socket, or a TCP port."""

    path: str = ""
    """"" for TCP."""
    host: str = ""
    """An IP address; "" for a UNIX socket."""
    port: int = 0


def find_mailq_socket(conf: SchedulerConf, environ: Mapping[str, str]) -> MailqSocket:
    """The socket by PARAMmailqsock, `UNIX:/PATH`, `/PATH`, or `TCP:` with a port or
    a service (/etc/services). A port is on the address
    BINDADDR of zmailer.conf, by default only on the loopback one.

    Raises:
        Unavailable: service or address are not known.
    """
    param = str(conf.params["mailqsock"].value) if "mailqsock" in conf.params else ""
    kind, colon, location = param.partition(":")
    if param.startswith("/") or kind.upper() == "UNIX":
        return MailqSocket(param if param.startswith("/") else location)
    word = location if colon else str(DEFAULT_PORT)
    try:
        port = decode.parse_digits(word, MAX_PORT) or socket.getservbyname(word, "tcp")
    except OSError:
        raise Unavailable(f"mailqsock {param}: expected a path, or TCP: and a port") from None
    address = environ.get("BINDADDR", "")
    host = re.sub(r"(?i)^\[(?:ipv6[:.])?(.*)\]$", r"\1", address)  # ZMailer writes [192.0.2.1]
    try:
        return MailqSocket("", str(ipaddress.ip_address(host or LOOPBACK)), port)
    except ValueError:
        raise Unavailable(f"BINDADDR {address}: expected an IP address") from None


def listen(place: MailqSocket) -> socket.socket:
    """Listen there.

    Raises:
        Unavailable: another process does, or the place cannot be used.
    """
    return listen_unix(place.path) if place.path else listen_tcp(place.host, place.port)
