"""Send lines to syslog, where monitoring finds them: alerts, errors, and a mail scheduler's log.

The contract's own program runs `logger -t nftban-queue -p user.LEVEL` for the lines of its queues.
Imported only when there is such a line to send."""

from __future__ import annotations

import os
import socket
import time

from engine.text.safe import safe_line

TAG = "nftban-queue"
"""The syslog tag of the contract's lines; monitoring rules may match it."""

SEVERITIES = {"ALERT": 1, "ERROR": 3, "INFO": 6}
"""Log levels and their syslog severity (RFC 3164, section 4.1.1)."""

USER, MAIL = 1, 2
"""Syslog facility numbers: user-level messages, the mail system."""

_LIMIT = 1024
"""Maximum bytes of a datagram (RFC 3164, section 4.1)."""

# strftime is not used: its month names depend on the locale.
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def format_message(
    level: str, text: str, now: float, pid: int, tag: str = TAG, facility: int = USER
) -> bytes:
    """Format a syslog message: `<PRI>Mmm dd hh:mm:ss TAG[PID]: text`. As in RFC 3164 but without
    the host, which the local syslog adds; the time is local."""
    t = time.localtime(now)
    stamp = f"{_MONTHS[t.tm_mon - 1]} {t.tm_mday:2} {t.tm_hour:02}:{t.tm_min:02}:{t.tm_sec:02}"
    priority = 8 * facility + SEVERITIES[level]
    whole = f"<{priority}>{stamp} {tag}[{pid}]: {safe_line(text)}".encode()
    # Do not cut inside a UTF-8 character.
    return whole[:_LIMIT].decode("utf-8", "ignore").encode()


def send_message(
    path: str, level: str, text: str, now: float, tag: str = TAG, facility: int = USER
) -> bool:
    """Send a message to the syslog socket at `path`; True if it was accepted.

    Never waits or raises, also if syslog is missing or busy: the line is in the queue's log."""
    message = format_message(level, text, now, pid=os.getpid(), tag=tag, facility=facility)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
        try:
            sender.sendto(message, socket.MSG_DONTWAIT, path)
        except OSError:
            return False
    return True
