"""The mail that tells a sender that a mail was not delivered (RFC 3464, RFC 6522).

Always the same bytes from the same words, time and host; from the null sender, so that none is ever
answered by another.
"""

import re
from datetime import UTC, datetime
from email.message import EmailMessage, Message
from email.utils import format_datetime
from typing import NamedTuple

from engine.mail import header
from engine.mail.host import Host
from engine.mail.message.compose import POLICY, mark_parts, message_id
from engine.text.safe import ERROR_LIMIT, shown

HEADERS_LIMIT = 1 << 14
"""Bytes of the returned headers: enough for any mail that people write."""

_LINE = 900
"""Characters of an address: what no server takes on one line is none (RFC 5321, 4.5.3.1.6)."""

_CODE = re.compile(r"\b([45]\.\d{1,3}\.\d{1,3})\b").search
_ANSWERED = re.compile(r"\b(?:rejected|unavailable|auth)_[45]\d\d\b").search


class Undelivered(NamedTuple):
    """A mail that is not tried again."""

    id: str
    """Of the task that it was."""
    sender: str
    """ "" or "<>" is the null sender, to whom nothing is returned."""
    recipient: str
    created: float
    """When it was taken over, epoch seconds UTC; 0, or a time that no calendar has, is unknown."""
    error: str
    """What the last attempt said, safe to show."""
    headers: bytes
    """As `engine.mail.wire_format.headers` has them."""


def compose(mail: Undelivered, host: Host, now: float) -> bytes | None:
    """The bounce for a mail that was given up at `now` (epoch seconds UTC), its lines ending in LF;
    None where nobody is to be told.
    """
    if mail.sender in ("", "<>"):
        return None
    error = shown(mail.error)[:ERROR_LIMIT] or "no reason is known"
    parts = [
        _text(_words(mail, host, error), "plain"),
        _status(mail, host, error, now),
        _text(mail.headers[:HEADERS_LIMIT].decode("utf-8", "replace"), "rfc822-headers"),
    ]
    message = EmailMessage(policy=POLICY)
    _set(message, "From", ["Mail", "Delivery", "System", f"<MAILER-DAEMON@{host.name}>"])
    # A name beyond ASCII has no form in a header that every reader reads.
    to = [mail.sender] if mail.sender.isascii() else ["undelivered-recipients:;"]
    _set(message, "To", to)
    _set(message, "Subject", header.pieces("Undelivered: your mail was not delivered"))
    _set(message, "Date", [_date(now)])
    _set(message, "Message-ID", [message_id(f"{mail.id}.bounce", host)])
    _set(message, "Auto-Submitted", ["auto-replied"])
    message["MIME-Version"] = "1.0"
    message["Content-Type"] = "multipart/report; report-type=delivery-status"
    for part in parts:
        message.attach(part)
    mark_parts(message, mail.id)
    return bytes(message)


def _set(message: Message, name: str, words: list[str]) -> None:
    message[name] = header.folded(name, words)


def _date(moment: float) -> str:
    return format_datetime(datetime.fromtimestamp(int(moment), UTC))


def _taken(mail: Undelivered) -> str:
    """The date of the day on which a mail was taken over; "" where that is not known."""
    try:
        return _date(mail.created) if mail.created else ""
    except (ValueError, OverflowError, OSError):
        return ""


def _words(mail: Undelivered, host: Host, error: str) -> str:
    taken = _taken(mail)
    return f"""\
This is the mail system at {host.name}.

Your mail{f" of {taken}" if taken else ""} to

    {shown(mail.recipient)}

was not delivered, and is not tried again. The last attempt said:

    {error}

A report for programs and the headers of your mail are attached.
"""


def _text(text: str, kind: str) -> EmailMessage:
    part = EmailMessage(policy=POLICY)
    lines = text.replace("\r", "\n")
    part.set_content(lines if lines.endswith("\n") else f"{lines}\n", subtype=kind)
    del part["MIME-Version"]  # it is the whole mail's
    return part


def _status(mail: Undelivered, host: Host, error: str, now: float) -> EmailMessage:
    """What programs read: a block about the mail, and one about the recipient."""
    code = _CODE(error)
    server = _ANSWERED(error) is not None
    said = header.clean(error).encode("ascii", "replace").decode("ascii")
    blocks = (
        {"Reporting-MTA": f"dns; {host.name}", "Arrival-Date": _taken(mail)},
        {
            "Final-Recipient": _typed(mail.recipient),
            "Action": "failed",
            "Status": code[1] if code else "5.0.0",
            "Diagnostic-Code": f"{'smtp' if server else 'x-local'}; {said}",
            "Last-Attempt-Date": _date(now),
        },
    )
    part = EmailMessage(policy=POLICY)
    part["Content-Type"] = "message/delivery-status"
    for block in blocks:
        fields = EmailMessage(policy=POLICY)
        for name, value in block.items():
            if value:
                _set(fields, name, value.split(" "))
        part.attach(fields)
    return part


def _typed(address: str) -> str:
    """An address as a report has it: in ASCII, whatever it holds (RFC 6533, section 3)."""
    if address.isascii() and address.isprintable():
        return f"rfc822; {address}"[:_LINE]
    plain = (c if "!" <= c <= "~" and c not in "\\+=" else f"\\x{{{ord(c):X}}}" for c in address)
    return f"utf-8; {''.join(plain)}"[:_LINE]
