"""Diagnostics of recipients: write d lines, find unreported ones, decide who asked for them.

The notary of a diagnostic has the fields of a delivery status (RFC 3464): final recipient, action,
status, diagnostic code, remote MTA, and the agent.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from engine.formats.zmailer.spool.control_file import (
    Diagnostic,
    RecipientLine,
    parse_diagnostic,
    split_fields,
)
from engine.values import NamedTuple

UNREPORTED, REPORTED = b" ", b"+"
"""Tags of a d line."""

FAILED, DELAYED, RELAYED, DELIVERED, EXPANDED = (
    "failed",
    "delayed",
    "relayed",
    "delivered",
    "expanded",
)
ACTIONS = (FAILED, DELAYED, RELAYED, DELIVERED, EXPANDED)
"""Actions of RFC 3464, in the order of a report's subject."""

_WANTED_BY = {FAILED: "FAILURE", DELAYED: "DELAY"}
"""NOTIFY value that asks for an action; SUCCESS for the others."""

EXPIRED_STATUS = b"5.4.7"
DELAYED_STATUS = b"4.4.7"
"""Delivery time expired (RFC 3463): for good, and so far."""

_status = re.compile(rb"[245]\.[0-9]{1,3}\.[0-9]{1,3}")


class Unreported(NamedTuple):
    """A d line that no report has."""

    line: int
    """Its offset; -1 for one that is not written yet."""
    recipient: RecipientLine
    diagnostic: Diagnostic

    @property
    def action(self) -> str:
        """What happened to the recipient. Without one it failed: agents log only failures."""
        notary = self.diagnostic.notary
        word = notary[1].decode("ascii", "replace").strip() if len(notary) > 1 else ""
        return word if word in ACTIONS else FAILED

    @property
    def status(self) -> str:
        """The status code, without comments, in the class of the action."""
        notary = self.diagnostic.notary
        match = _status.search(notary[2]) if len(notary) > 2 else None
        code = match[0].decode() if match else "x.0.0"
        number = {FAILED: "5", DELAYED: "4"}.get(self.action, "2")
        # Agents mark temporary failures as failed: then the action counts.
        return number + code[1:]

    @property
    def address(self) -> bytes:
        """The final recipient: that of the notary, else of the recipient line. The original
        scheduler has byte 3 in place of an address that it did not know."""
        notary = self.diagnostic.notary
        address = notary[0].strip() if notary else b""
        return address if address and address != b"\3" else self.recipient.quad.user


def is_wanted(one: Unreported) -> bool:
    """True if the sender asked for this, see `notifies`."""
    return notifies(one.recipient.dsn, _WANTED_BY.get(one.action, "SUCCESS"))


def notifies(dsn: bytes, event: str) -> bool:
    """True if an N line asks for SUCCESS, FAILURE or DELAY (NOTIFY of RFC 3461). The default is
    FAILURE."""
    words = dsn_parameter(dsn, "NOTIFY").decode("ascii", "replace").upper()
    events = set(words.split(",")) - {""} or {"FAILURE"}
    return "NEVER" not in events and event in events


def dsn_parameter(line: bytes, name: str) -> bytes:
    """A parameter of an N line, such as NOTIFY=NEVER; empty if it is not there."""
    key = name.encode() + b"="
    words = (word for word in line.split() if word[: len(key)].upper() == key)
    return next((word[len(key) :] for word in words), b"")


def fields_of(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The fields of a control file, each with its offset. Raises Refused: the file is torn."""
    for start, lines in split_fields(data):
        for line in lines:
            yield start, line
            start += len(line)


def find_unreported(data: bytes, recipients: tuple[RecipientLine, ...]) -> Iterator[Unreported]:
    """The d lines of a control file that no report has, in their order."""
    by_offset: dict[int, RecipientLine] = {}
    for offset, line in fields_of(data):
        if line[:2] != b"d" + UNREPORTED:
            continue
        number = line[2:].partition(b"\t")[0].partition(b":")[0]
        by_offset = by_offset or {one.offset: one for one in recipients}
        if number.isdigit() and (recipient := by_offset.get(int(number[:12]))):
            yield Unreported(offset, recipient, parse_diagnostic(line[:-1]))


def format_diagnostic(
    data: bytes, recipient: int, diagnostic: Diagnostic, tag: bytes = UNREPORTED
) -> bytes:
    """The d line, with its LF, of the recipient at an offset in a control file with this data.

    It has the offsets of the first header byte and of the recipient's DSN parameters; -1: none."""
    at = data.find(b"\nm\n", recipient)
    headers = -1 if at < 0 else at + 3
    return format_line(recipient, headers, dsn_offset(data, recipient), diagnostic, tag)


def dsn_offset(data: bytes, recipient: int) -> int:
    """Where the DSN parameters of a recipient begin; -1: it has none."""
    end = data.index(b"\n", recipient) + 1
    return end + 2 if data[end : end + 1] == b"N" else -1


def format_line(
    recipient: int, headers: int, dsn: int, diagnostic: Diagnostic, tag: bytes = UNREPORTED
) -> bytes:
    """The d line, with its LF, with the offsets of recipient, headers and DSN parameters."""
    place = b"%d:%d:%d::%d" % (recipient, headers, dsn, int(diagnostic.time))
    notary = b"\1".join(_clean(field, b"\r\n\t\1") for field in diagnostic.notary)
    return b"d%b%b\t%b\t%b\n" % (tag, place, notary, _clean(diagnostic.message, b"\n"))


def _clean(text: bytes, unwanted: bytes) -> bytes:
    return text.translate(bytes(32 if byte in unwanted else byte for byte in range(256)))


def timeout(
    recipient: RecipientLine, last: Diagnostic | None, age: str, now: float, *, is_final: bool
) -> Diagnostic:
    """The diagnostic of a message that is too old, or that waits for long; `age` as text.

    It says failed, or delayed, also if the last diagnostic did not: the original scheduler repeats
    that one, and a sender of delayed mail is never informed that it has expired."""
    words = f"expired after {age}" if is_final else f"delayed; no successful delivery in {age}"
    status = EXPIRED_STATUS if is_final else DELAYED_STATUS
    code = "500 (Expired" if is_final else "400 (Not delivered"
    notary = last.notary if last else ()
    return Diagnostic(
        now,
        (
            notary[0] if notary and notary[0] not in (b"", b"\3") else recipient.quad.user,
            (FAILED if is_final else DELAYED).encode(),
            status,
            f"smtp; {code} after {age})".encode(),
            notary[4] if len(notary) > 4 else b"",
            b"",
        ),
        b"\r" + words.encode() + (b", problem was:\r" + last.message if last else b""),
    )
