"""Compose the bounce (non-delivery report) for a mail that was given up (RFC 3464, RFC 6522).

The same input, time and host always give the same bytes. It has the null sender, so that no bounce
causes another one.
"""

import re
from datetime import UTC, datetime
from email.message import EmailMessage
from email.utils import format_datetime

from engine.mail import header
from engine.mail.host import Host
from engine.mail.message.compose import POLICY, message_id, set_boundaries, set_header
from engine.text.safe import ERROR_LIMIT, safe_line
from engine.values import NamedTuple

MAX_HEADER_BYTES = 1 << 14
"""Maximum bytes of the returned headers; enough for any normal mail."""

_MAX_ADDRESS_LENGTH = 900
"""Maximum characters of an address: SMTP accepts no longer line (RFC 5321, 4.5.3.1.6)."""

_CODE = re.compile(r"\b([45]\.\d{1,3}\.\d{1,3})\b").search
_ANSWERED = re.compile(r"\b(?:rejected|unavailable|auth)_[45]\d\d\b").search


class Undelivered(NamedTuple):
    """A mail that was given up."""

    id: str
    """The id of its task."""
    sender: str
    """"" or "<>" is the null sender, which gets no bounce."""
    recipient: str
    created: float
    """When it was accepted, epoch seconds UTC; 0 or a value out of range means unknown."""
    error: str
    """The result of the last attempt, safe to show."""
    headers: bytes
    """The headers of the mail, with LF line ends."""


def compose_bounce(mail: Undelivered, host: Host, now: float) -> bytes | None:
    """Return the bounce for a mail given up at `now` (epoch seconds UTC), with LF line ends. None
    if the sender may not be notified."""
    if mail.sender in ("", "<>"):
        return None
    error = safe_line(mail.error)[:ERROR_LIMIT] or "no reason is known"
    parts = [
        _text_part(_body_text(mail, host, error), "plain"),
        _delivery_status(mail, host, error, now),
        _text_part(mail.headers[:MAX_HEADER_BYTES].decode("utf-8", "replace"), "rfc822-headers"),
    ]
    message = EmailMessage(policy=POLICY)
    set_header(message, "From", ["Mail", "Delivery", "System", f"<MAILER-DAEMON@{host.name}>"])
    # Headers have no form for a non-ASCII host name that all mail readers support.
    to = [mail.sender] if mail.sender.isascii() else ["undelivered-recipients:;"]
    set_header(message, "To", to)
    set_header(message, "Subject", header.header_words("Undelivered: your mail was not delivered"))
    set_header(message, "Date", [_date(now)])
    set_header(message, "Message-ID", [message_id(f"{mail.id}.bounce", host)])
    set_header(message, "Auto-Submitted", ["auto-replied"])
    message["MIME-Version"] = "1.0"
    message["Content-Type"] = "multipart/report; report-type=delivery-status"
    for part in parts:
        message.attach(part)
    set_boundaries(message, mail.id)
    return bytes(message)


def _date(moment: float) -> str:
    return format_datetime(datetime.fromtimestamp(int(moment), UTC))


def _acceptance_date(mail: Undelivered) -> str:
    try:
        return _date(mail.created) if mail.created else ""
    except (ValueError, OverflowError, OSError):
        return ""


def _body_text(mail: Undelivered, host: Host, error: str) -> str:
    taken = _acceptance_date(mail)
    return f"""\
This is the mail system at {host.name}.

Your mail{f" of {taken}" if taken else ""} to

    {safe_line(mail.recipient)}

could not be delivered. No further attempt is made. The last error:

    {error}

A machine-readable report and the headers of your mail are attached.
"""


def _text_part(text: str, kind: str) -> EmailMessage:
    part = EmailMessage(policy=POLICY)
    lines = text.replace("\r", "\n")
    part.set_content(lines if lines.endswith("\n") else f"{lines}\n", subtype=kind)
    del part["MIME-Version"]  # only the whole mail has it
    return part


def _delivery_status(mail: Undelivered, host: Host, error: str, now: float) -> EmailMessage:
    """Return the delivery-status part: one block for the mail, one for the recipient."""
    code = _CODE(error)
    server = _ANSWERED(error) is not None
    diagnostic = header.clean_text(error).encode("ascii", "replace").decode("ascii")
    blocks = (
        {"Reporting-MTA": f"dns; {host.name}", "Arrival-Date": _acceptance_date(mail)},
        {
            "Final-Recipient": ascii_address(mail.recipient),
            "Action": "failed",
            "Status": code[1] if code else "5.0.0",
            "Diagnostic-Code": f"{'smtp' if server else 'x-local'}; {diagnostic}",
            "Last-Attempt-Date": _date(now),
        },
    )
    part = EmailMessage(policy=POLICY)
    part["Content-Type"] = "message/delivery-status"
    for block in blocks:
        fields = EmailMessage(policy=POLICY)
        for name, value in block.items():
            if value:
                set_header(fields, name, value.split(" "))
        part.attach(fields)
    return part


def ascii_address(address: str) -> str:
    """Return an address for a delivery report, in ASCII (RFC 6533, section 3)."""
    if address.isascii() and address.isprintable():
        return f"rfc822; {address}"[:_MAX_ADDRESS_LENGTH]
    plain = (c if "!" <= c <= "~" and c not in "\\+=" else f"\\x{{{ord(c):X}}}" for c in address)
    return f"utf-8; {''.join(plain)}"[:_MAX_ADDRESS_LENGTH]
