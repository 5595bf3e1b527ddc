"""Mails for the tests of transports: simple ones, and one with all that goes wrong."""

from engine.mail.model import Mail

SENDER, RECIPIENT = "us@example.org", "admin@example.com"

HEADERS = (
    "From: Us <us@example.org>\n"
    "To: admin@example.com\n"
    "Subject: =?utf-8?q?a_caf=C3=A9?=\n"
    "Date: Sat, 21 Nov 2026 18:00:00 +0000\n"
    "Message-ID: <mail-20261121T180000Z-a1b2c3d4@here.example.org>\n"
    "MIME-Version: 1.0\n"
    'Content-Type: text/plain; charset="utf-8"\n'
    "Content-Transfer-Encoding: 8bit\n"
)
"""A complete set, so that no program adds one."""

NASTY = (
    ".\n"
    "..\n"
    ".begins with a dot\n"
    "...\n"
    "\n"
    "From the beginning of a line\n"
    ">From as well\n"
    "~! echo a tilde\n"
    "~.\n"
    " leading and trailing blanks \t \n"
    "$(id) `id` %n {a,b} [1-9]\n"
    f"{'long ' * 199}end\n"
    f"{'.' * 998}\n"
    "Subject: no header\n"
    ".\n"
    "\n"
)
"""A body with lines that mean something to SMTP, sendmail or mailx."""

MANY_DOTS = ".\n..\n.a\n" * 10_000
"""More than any buffer holds."""

BODIES = ("text\n", "", "Grüße, café €\n\n", NASTY, MANY_DOTS)
"""Bodies that arrive byte for byte."""


def a_mail(body: str = "text\n", recipient: str = RECIPIENT, sender: str = SENDER) -> Mail:
    """A mail with this body, unencoded."""
    id, subject = "mail-20261121T180000Z-a1b2c3d4", "=?utf-8?q?a_caf=C3=A9?="
    data = f"{HEADERS}\n{body}".encode()
    return Mail(id, sender, recipient, subject=subject, data=data, text=body)


def on_the_wire(mail: Mail) -> bytes:
    """A mail as a server gets it, without the dots that SMTP adds."""
    return mail.data.replace(b"\n", b"\r\n")


def never() -> bool:
    """The attempt is not cancelled."""
    return False


def unwired(data: bytes) -> bytes:
    """Undo the wire form: no dot at the end, single leading dots."""
    data = data[:-3] if data == b".\r\n" or data.endswith(b"\r\n.\r\n") else data
    lines = data.split(b"\r\n")
    return b"\r\n".join(line.removeprefix(b".") for line in lines)
