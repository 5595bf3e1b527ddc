"""The bounce that reports an undelivered mail, as mail programs read it."""

from __future__ import annotations

import email
import email.policy
import io
from email.message import EmailMessage, Message
from typing import cast

from hypothesis import given
from hypothesis import strategies as st

from engine.formats.kannader.mail_format import encode_wire as wired
from engine.mail import wire_format
from engine.mail.host import Host
from engine.mail.message import bounce
from engine.mail.message.bounce import MAX_HEADER_BYTES, Undelivered
from tests.examples import examples
from tests.tables import each

HOST = Host("host.example.org", "192.0.2.7")
NOW = 1_795_170_900.5
HEADERS = b"From: Foo <foo@example.org>\nSubject: hi\nMessage-ID: <1@example.org>\n"
FAILED = "rejected_550: 550 5.1.1 no such user - RCPT"
MAIL = Undelivered("cccc-1", "foo@example.org", "bar@example.net", created=1_795_170_000.0,
                   error=FAILED, headers=HEADERS)  # fmt: skip


def made(mail: Undelivered = MAIL, now: float = NOW) -> bytes:
    """The bytes of a bounce that there is."""
    data = bounce.compose_bounce(mail, HOST, now)
    assert data is not None
    return data


def parsed(mail: Undelivered = MAIL) -> tuple[EmailMessage[str, str], list[EmailMessage[str, str]]]:
    """A bounce as a mail program reads it, and its parts."""
    message = email.message_from_bytes(made(mail), policy=email.policy.default)
    assert isinstance(message, EmailMessage) and not message.defects
    return message, [part for part in message.iter_parts() if isinstance(part, EmailMessage)]


def fields(mail: Undelivered = MAIL) -> tuple[dict[str, str], dict[str, str]]:
    """What programs read: about the mail, and about the recipient."""
    _, (_, status, _) = parsed(mail)
    about_mail, about_recipient = (
        {name: str(value) for name, value in block.items()}
        for block in cast(list[Message], status.get_payload())
    )
    return about_mail, about_recipient


def test_a_bounce_is_a_report_in_three_parts() -> None:
    """A text, a status for programs and the headers of the mail (RFC 6522), from a program."""
    message, parts = parsed()
    assert message.get_content_type() == "multipart/report"
    assert message.get_param("report-type") == "delivery-status"
    kinds = ["text/plain", "message/delivery-status", "text/rfc822-headers"]
    assert [part.get_content_type() for part in parts] == kinds
    assert parts[2].get_content().encode() == HEADERS
    words = parts[0].get_content()
    assert "bar@example.net" in words and "550 5.1.1 no such user" in words
    assert message["From"] == "Mail Delivery System <MAILER-DAEMON@host.example.org>"
    assert (message["To"], message["Auto-Submitted"]) == ("foo@example.org", "auto-replied")
    assert message["Message-ID"] == f"<{MAIL.id}.bounce@host.example.org>"
    assert message["Date"] == "Fri, 20 Nov 2026 10:35:00 +0000"


def test_the_status_is_that_of_the_last_attempt() -> None:
    """By the names of RFC 3464: who, what became of it, why, and when."""
    arrived, tried = "Fri, 20 Nov 2026 10:20:00 +0000", "Fri, 20 Nov 2026 10:35:00 +0000"
    assert fields() == (
        {"Reporting-MTA": "dns; host.example.org", "Arrival-Date": arrived},
        {"Final-Recipient": "rfc822; bar@example.net", "Action": "failed", "Status": "5.1.1",
         "Diagnostic-Code": f"smtp; {FAILED}", "Last-Attempt-Date": tried},
    )  # fmt: skip


@each(("error", "status", "kind"), [
    ("unavailable_451: 451 4.7.1 later - RCPT", "4.7.1", "smtp"),
    ("rejected_550: 550 no - RCPT", "5.0.0", "smtp"),
    ("connect_refused: Connection refused", "5.0.0", "x-local"),
    ("not in wire form: it does not end with a line of one dot", "5.0.0", "x-local"),
    ("", "5.0.0", "x-local"),
])  # fmt: skip
def test_only_a_servers_answer_is_an_smtp_diagnostic(error: str, status: str, kind: str) -> None:
    """The code is the server's if it gave one; else it is 5.0.0."""
    _, about_recipient = fields(MAIL._replace(error=error))
    assert about_recipient["Status"] == status
    assert about_recipient["Diagnostic-Code"].startswith(f"{kind}; ")


def test_a_bounce_is_not_bounced() -> None:
    """A mail from the null sender is answered by nothing; of endless headers it has the first."""
    for sender in ("", "<>"):
        assert bounce.compose_bounce(MAIL._replace(sender=sender), HOST, NOW) is None
    mail = MAIL._replace(headers=b"X-Long: " + b"a" * (1 << 20) + b"\n")
    assert len(made(mail)) < MAX_HEADER_BYTES + 4096


def test_addresses_beyond_ascii_are_written_in_ascii() -> None:
    """The recipient in the form that reports have for it; the sender only in the envelope."""
    mail = MAIL._replace(sender="üser@example.org", recipient="bär@example.net")
    message, parts = parsed(mail)
    assert made(mail).isascii()
    assert fields(mail)[1]["Final-Recipient"] == "utf-8; b\\x{E4}r@example.net"
    assert "bär@example.net" in parts[0].get_content()
    assert "@" not in message["To"]


@each("created", [0.0, 1e13, -1e12, 1e19, float("nan"), float("inf")])
def test_a_time_beyond_the_calendar_is_omitted(created: float) -> None:
    """A bounce without a valid time of arrival has no Arrival-Date."""
    mail = MAIL._replace(created=created)
    about_mail, about_recipient = fields(mail)
    assert "Arrival-Date" not in about_mail and "Last-Attempt-Date" in about_recipient
    assert b"\nYour mail to\n" in made(mail)
    assert b"\nYour mail of " in made() and "Arrival-Date" in fields()[0]


@examples(40)
@given(st.text(), st.text(max_size=300), st.binary(max_size=300))
def test_no_foreign_text_makes_a_header_or_part(recipient: str, error: str, headers: bytes) -> None:
    """Any text gives the same three parts, in ASCII, with lines of at most 998 bytes."""
    mail = MAIL._replace(recipient=recipient, error=error, headers=headers)
    data = made(mail)
    message, parts = parsed(mail)
    assert data.isascii() and b"\r" not in data
    assert max(map(len, data.split(b"\n"))) <= 998
    assert len(parts) == 3
    assert set(message.keys()) == set(parsed()[0].keys())
    about_mail, about_recipient = fields(mail)
    assert (set(about_mail), set(about_recipient)) == tuple(map(set, fields()))


@each(("contents", "headers"), [
    (b"A: 1\r\nB: 2\r\n\r\nbody\r\n.\r\n", b"A: 1\nB: 2"),
    (b"A: 1\r\n..b: 2\r\n\r\n.\r\n", b"A: 1\n.b: 2"), (b"A: 1\r\n.\r\n", b"A: 1"),
    (b"\r\nbody\r\n.\r\n", b""), (b".\r\n", b""), (b"", b""), (b"A: 1\n\nbody\r\n.\r\n", b"A: 1"),
    (b"A: caf\xe9\r\n\r\n.\r\n", b"A: caf\xe9"), (b"A: 1\r\nB: torn", b"A: 1"),
])  # fmt: skip
def test_headers_are_taken_out_of_the_wire_form(contents: bytes, headers: bytes) -> None:
    """Up to the first empty line, without the dots that SMTP adds."""
    assert wire_format.read_headers(io.BytesIO(contents)) == headers


def test_a_limit_of_headers_keeps_whole_lines() -> None:
    """Nothing beyond the limit is read, and no line is cut."""
    contents = io.BytesIO(wired(b"A: 1\n" * 100 + b"\nbody\n"))
    assert wire_format.read_headers(contents, 20) == b"A: 1\nA: 1\nA: 1"
    assert contents.tell() == 20
