"""Which machine a mail comes from, found out without asking the network anything."""

import os
import re
import socket
from contextlib import suppress
from typing import NamedTuple

_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?").fullmatch
_READ = 1 << 20
"""Bytes of /etc/hosts that are looked at."""

_FAR = ((socket.AF_INET, "198.51.100.1"), (socket.AF_INET6, "2001:db8::1"))
"""Addresses that are nobody's (RFC 5737, RFC 3849): the way to them is the way to everybody."""


class Host(NamedTuple):
    """The machine that a mail says it is from."""

    name: str
    """Its full name where that is known; a name that may stand in an address."""
    ip: str = ""
    """Its address towards the network; "" when it has none."""


def this_host(nodename: str = "", etc: str = "/etc") -> Host:
    """This machine. Only files are read and the kernel is asked: no name server can delay a mail.

    `nodename` is what it calls itself, if not as uname(2) says.
    """
    return Host(full_name(nodename or os.uname().nodename, etc), outgoing_ip())


def full_name(nodename: str, etc: str = "/etc") -> str:
    """The full name of a machine that calls itself so: of /etc/hosts, as `hostname -f` has it, or
    of /etc/mailname; the short one where nothing says more."""
    if not _proper(nodename):
        return "localhost"
    if "." in nodename:
        return nodename
    for line in _lines(f"{etc}/hosts"):
        names = line.partition("#")[0].split()[1:]
        for name in names:
            if nodename in names and name.startswith(f"{nodename}.") and _proper(name):
                return name
    for line in _lines(f"{etc}/mailname"):
        if "." in line and _proper(line.strip()):
            return line.strip()
    return nodename


def outgoing_ip() -> str:
    """The address that packets to everybody leave from; "" without a network."""
    for family, far in _FAR:
        # To connect UDP chooses a way and an address, and sends nothing.
        with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as way:
            way.connect((far, 9))
            return str(way.getsockname()[0])
    return ""


def _proper(name: str) -> bool:
    return len(name) <= 253 and ".." not in name and _NAME(name) is not None


def _lines(path: str) -> list[str]:
    try:
        with open(path, "rb") as file:
            return file.read(_READ).decode("ascii", "replace").splitlines()
    except OSError:
        return []  # it need not be there
