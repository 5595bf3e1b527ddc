"""Compose a mail from its content; the same content, time and id always give the same bytes.

So all attempts of one mail send the same bytes, and a recipient can detect a duplicate by its
Message-ID.
"""

import re
from binascii import crc32
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from email.message import EmailMessage, Message
from email.policy import EmailPolicy
from email.utils import format_datetime
from html import escape
from itertools import count
from typing import Any

from engine.config.mail_config import MailSettings
from engine.mail import header
from engine.mail.address import require_address, require_addresses
from engine.mail.host import Host, default_sender
from engine.mail.message import template
from engine.mail.message.content import Content
from engine.mail.model import BadMail, Mail
from engine.text.safe import REPLACEMENT

MAX_SUBJECT_LENGTH = 2000
"""Maximum characters of a subject. A longer one is a mistake, such as a whole report, and is cut:
the mail is worth more than the end of its subject."""

_SURROGATE = re.compile("[\ud800-\udfff]")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_NOT_IN_ID = re.compile(r"[^A-Za-z0-9._-]")
_PAGE_SEARCH_LENGTH = 4096
"""Characters at the start of markup in which to look for a whole page."""
_WHOLE_PAGE = re.compile(r"<(?:!doctype\s+html|html)\b", re.IGNORECASE)


class _FoldedHeaderPolicy(EmailPolicy):
    """An email header policy that writes headers exactly as `engine.mail.header` has folded them.
    The library's own folding encodes long words without spaces, even addresses, and differs between
    Python versions; the bytes of a mail must not."""

    def header_store_parse(self, name: str, value: Any) -> tuple[str, Any]:
        """Refuse a value with a line break that starts another header."""
        if not value.isascii() or not value.replace("\n ", " ").isprintable():
            raise ValueError(f"header {name} is not ready: {value!r}")
        return name, value

    def header_fetch_parse(self, name: str, value: str) -> Any:
        return value

    def fold(self, name: str, value: str) -> str:
        return f"{name}: {value}\n"

    def fold_binary(self, name: str, value: str) -> bytes:
        return self.fold(name, value).encode("ascii")


POLICY = _FoldedHeaderPolicy(linesep="\n", cte_type="7bit", max_line_length=76)
"""How a mail becomes bytes. 76 is also the line length of encoded bodies (RFC 2045, 6.7 and
6.8)."""


def compose_mail(
    content: Content,
    recipient: str,
    subject: str,
    settings: MailSettings,
    host: Host,
    now: float,
    id: str,
    transport: str = "",
    also: Mapping[str, str] = {},
    *,
    fills: bool = True,
) -> Mail:
    """Return the mail with `content`, made at `now` (epoch seconds UTC).

    Control characters in the subject become spaces; the default is the subject of the settings.
    HTML content is put into the template, with plain text as the alternative. `transport` is a
    value for templates. `also` are additional headers by name. If `fills`, placeholders in HTML
    content are replaced (`template.NAMES`).

    Raises:
        BadMail: sender or recipient is not an address, or the time is out of range.
    """
    recipient = require_address(recipient, settings.strict)
    sender = require_address(
        settings.sender or default_sender(settings.product, host.name), strict=False
    )
    subject = _subject(subject, settings, host)
    moment = _mail_date(now)
    values = {
        "NFTBAN_VERSION": template.version_text(),
        "VERSION_HTML": template.version_text() if settings.show_version else "",
        "HOSTNAME": host.name,
        "SERVER_IP": host.ip,
        "DATE": moment.strftime("%Y-%m-%d"),
        "TIME": moment.strftime("%H:%M:%S UTC"),
        "COMPANY_NAME": settings.company,
        "SENDER": sender,
        "MAIL_RECIPIENT": recipient,
        "MAIL_SYSTEM": transport,
        "SUBJECT": subject,
    }
    frame = template.load_page_template(settings) if settings.html else template.Template()
    if settings.html and fills:
        filled = frame.fill_placeholders(content.text, values, html=content.html)
        content = content._replace(text=filled)
    plain = content.text
    if content.html:
        from engine.text.html_text import html_to_text

        plain = html_to_text(content.text, links=True)
    plain = _end_with_newline(plain)

    message = EmailMessage(policy=POLICY)
    set_header(message, "From", _from(settings.from_name, sender))
    set_header(message, "To", [recipient])
    set_header(message, "Subject", header.header_words(subject))
    set_header(message, "Date", [format_datetime(moment)])
    set_header(message, "Message-ID", [message_id(id, host)])
    # RFC 3834: prevents vacation replies and mail loops.
    set_header(message, "Auto-Submitted", ["auto-generated"])
    for name, value in also.items():
        set_header(message, name, header.header_words(header.clean_text(value)))
    _put_text(message, plain, "plain")
    if settings.html:
        _put_html(message, content, frame, values)
    set_boundaries(message, id)
    return Mail(
        id,
        sender,
        recipient,
        subject=" ".join(header.header_words(subject)),
        data=bytes(message),
        text=plain,
    )


def invalid_addresses(settings: MailSettings) -> dict[str, str]:
    """Why the configured `sender` or `recipient` is not valid, by field."""
    wrong = {}
    for name, text, check, strict in (
        ("sender", settings.sender, require_address, False),
        ("recipient", settings.recipient, require_addresses, settings.strict),
    ):
        try:
            if text:
                check(text, strict)
        except BadMail as error:
            wrong[name] = str(error)
    return wrong


def message_id(id: str, host: Host) -> str:
    """Return the Message-ID for a mail id; always the same."""
    return f"<{_NOT_IN_ID.sub('-', id)}@{host.name}>"


def is_whole_page(text: str) -> bool:
    """True if markup is a whole page, which gets no template around it."""
    return _WHOLE_PAGE.search(text, 0, _PAGE_SEARCH_LENGTH) is not None


def set_header(message: Message, name: str, words: Iterable[str]) -> None:
    """Set a header, folded."""
    message[name] = header.fold_header(name, words)


def _subject(given: str, settings: MailSettings, host: Host) -> str:
    subject = header.clean_text(given)
    if not subject.strip():
        default = settings.subject or f"{settings.subject_prefix} Report from {host.name}"
        subject = header.clean_text(default).strip()
    return (
        subject if len(subject) <= MAX_SUBJECT_LENGTH else f"{subject[: MAX_SUBJECT_LENGTH - 3]}..."
    )


def _from(name: str, sender: str) -> list[str]:
    name = " ".join(header.clean_text(name).split())
    return [*header.display_name_words(name), f"<{sender}>"] if name else [sender]


def _mail_date(now: float) -> datetime:
    try:
        return datetime.fromtimestamp(int(now), UTC)
    except (ValueError, OverflowError, OSError) as error:
        raise BadMail(f"the mail's time is {now!r}, expected seconds since 1970") from error


def _end_with_newline(text: str) -> str:
    """Return the text with LF at the end of each line, also the last."""
    text = _SURROGATE.sub(REPLACEMENT, text).replace("\r\n", "\n").replace("\r", "\n")
    return text if text.endswith("\n") else f"{text}\n"


def _put_text(part: EmailMessage, text: str, kind: str) -> None:
    # The email library keeps control characters, and some servers do not accept NUL.
    encoding = "quoted-printable" if text.isascii() and _CONTROL.search(text) else None
    part.set_content(text, subtype=kind, cte=encoding)


def _put_html(
    message: EmailMessage, content: Content, frame: template.Template, values: dict[str, str]
) -> None:
    text = _end_with_newline(content.text)
    whole = content.html and is_whole_page(text)
    if not content.html:
        text = f'<pre style="white-space: pre-wrap">{escape(text)}</pre>\n'
    message.make_alternative()
    page = EmailMessage(policy=POLICY)
    _put_text(page, text if whole else _end_with_newline(frame.wrap_body(text, values)), "html")
    if frame.picture and not whole:
        cid = f"<{template.LOGO_ID}>"
        page.add_related(frame.picture.data, "image", frame.picture.kind, cid=cid)
        page.set_param("type", "text/html")
    del page["MIME-Version"]  # only the whole mail has it
    message.attach(page)


def set_boundaries(message: EmailMessage, id: str) -> None:
    """Give each multipart a boundary made from the id that occurs in none of its parts."""
    parts = list(message.walk())
    inner = [str(part.get_payload()) for part in parts if not part.is_multipart()]
    for number in count():
        seed = f"{id} {number}".encode("utf-8", "replace")
        mark = "".join(f"{crc32(seed, start):08x}" for start in range(3))
        if not any(mark in payload for payload in inner):
            break
    multiparts = (part for part in parts if part.get_content_maintype() == "multipart")
    for depth, part in enumerate(multiparts):
        part.set_boundary(f"=_{depth}_{mark}")
