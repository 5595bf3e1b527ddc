"""Find the host name and IP address for mails from this machine, without DNS queries."""

import os
import re
from contextlib import suppress

from engine.values import NamedTuple

_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?").fullmatch
_MAX_HOSTS_BYTES = 1 << 20
"""Bytes of /etc/hosts to read."""

_REMOTE_ADDRESSES = (("AF_INET", "198.51.100.1"), ("AF_INET6", "2001:db8::1"))
"""Addresses for documentation (RFC 5737, RFC 3849): the route to them is the default route."""


class Host(NamedTuple):
    """The machine from which a mail is sent."""

    name: str
    """Its full name if known; valid in a mail address."""
    ip: str = ""
    """Its address on the default route; "" if it has none."""


def default_sender(product: str, host_name: str) -> str:
    """Return the sender address without a configured one."""
    return f"{product.lower()}@{host_name}"


def this_host(nodename: str = "", etc: str = "/etc") -> Host:
    """Return the name and address of this machine, from files and the kernel: DNS cannot delay a
    mail. `nodename` is its host name; "" for that of uname(2)."""
    return Host(full_name(nodename or os.uname().nodename, etc), outgoing_ip())


def full_name(nodename: str, etc: str = "/etc") -> str:
    """Return the full name of a host: from /etc/hosts, like `hostname -f`, or from /etc/mailname;
    else the short name."""
    if not _is_valid_name(nodename):
        return "localhost"
    if "." in nodename:
        return nodename
    for line in _read_lines(f"{etc}/hosts"):
        names = line.partition("#")[0].split()[1:]
        for name in names:
            if nodename in names and name.startswith(f"{nodename}.") and _is_valid_name(name):
                return name
    for line in _read_lines(f"{etc}/mailname"):
        if "." in line and _is_valid_name(line.strip()):
            return line.strip()
    return nodename


def outgoing_ip() -> str:
    """Return the source address of the default route; "" without a network."""
    import socket  # most commands ask only for the name

    for name, far in _REMOTE_ADDRESSES:
        family = socket.AddressFamily[name]
        # connect() of a UDP socket chooses a route and an address, and sends nothing.
        with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((far, 9))
            return str(probe.getsockname()[0])
    return ""


def _is_valid_name(name: str) -> bool:
    return len(name) <= 253 and ".." not in name and _NAME(name) is not None


def _read_lines(path: str) -> list[str]:
    try:
        with open(path, "rb") as file:
            return file.read(_MAX_HOSTS_BYTES).decode("ascii", "replace").splitlines()
    except OSError:
        return []  # the file is optional
