"""Copies of the log's gravest lines for syslog, where whoever is on call is told of them.

The contract's own program runs `logger -t nftban-queue -p user.LEVEL` for the same lines. Imported
only when there is such a line to send.
"""

from __future__ import annotations

import os
import socket
import time

from engine.text.safe import shown

TAG = "nftban-queue"
"""By this name the contract's lines are found in syslog; alarms may go by it."""

SEVERITIES = {"ALERT": 1, "ERROR": 3}
"""Levels of the log that are copied, and their severity (RFC 3164, section 4.1.1)."""

_USER = 1
"""The facility of user-level messages."""

_LIMIT = 1024
"""Bytes of a datagram (RFC 3164, section 4.1)."""

# Not by strftime, whose names follow the locale.
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def datagram(level: str, text: str, now: float, pid: int) -> bytes:
    """A message as a local syslog takes it: `<PRI>Mmm dd hh:mm:ss nftban-queue[PID]: text`.

    The form is RFC 3164's without the host, which syslog itself adds; the time is local.
    """
    t = time.localtime(now)
    stamp = f"{_MONTHS[t.tm_mon - 1]} {t.tm_mday:2} {t.tm_hour:02}:{t.tm_min:02}:{t.tm_sec:02}"
    whole = f"<{8 * _USER + SEVERITIES[level]}>{stamp} {TAG}[{pid}]: {shown(text)}".encode()
    # Cut between two characters.
    return whole[:_LIMIT].decode("utf-8", "ignore").encode()


def send(path: str, level: str, text: str, now: float) -> bool:
    """Hand a message to the syslog that listens at `path`; whether it took it.

    It never waits and never fails: work goes on where nobody listens or too much is waiting, and
    the line stands in the queue's log all the same.
    """
    message = datagram(level, text, now, os.getpid())
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
        try:
            sender.sendto(message, socket.MSG_DONTWAIT, path)
        except OSError:
            return False
    return True
