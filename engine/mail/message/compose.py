"""A mail made of what it is to say: always the same bytes from the same words, time and id.

So whatever attempts are made of one mail, each hands over the same; whoever gets it twice can tell
by its Message-ID.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from email.message import EmailMessage
from email.policy import EmailPolicy
from email.utils import format_datetime
from html import escape
from itertools import count
from typing import Any

from engine.config.mail_config import MailSettings
from engine.mail import header
from engine.mail.address import checked
from engine.mail.host import Host
from engine.mail.message import template
from engine.mail.message.content import Content
from engine.mail.model import BadMail, Mail
from engine.text.html_text import from_html
from engine.text.safe import REPLACEMENT

SUBJECT_LIMIT = 2000
"""Characters of a subject; a longer one is a mistake, such as a whole report, and is cut: a mail
is worth more than the end of its subject.
"""

_SURROGATE = re.compile("[\ud800-\udfff]")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_NOT_IN_ID = re.compile(r"[^A-Za-z0-9._-]")
_START = 4096
"""Characters in which a whole page says that it is one."""
_WHOLE_PAGE = re.compile(r"<(?:!doctype\s+html|html)\b", re.IGNORECASE)


class _Ready(EmailPolicy):
    """Headers go out as they were set: `engine.mail.header` has made them ready.

    The library's own folding encodes whatever is long and has no space, an address too; and how
    it folds differs from one Python to the next, while a mail must not.
    """

    def header_store_parse(self, name: str, value: Any) -> tuple[str, Any]:
        """Refuses a value that would be more than one header."""
        if not value.isascii() or not value.replace("\n ", " ").isprintable():
            raise ValueError(f"header {name} is not ready: {value!r}")
        return name, value

    def header_fetch_parse(self, name: str, value: str) -> Any:
        return value

    def fold(self, name: str, value: str) -> str:
        return f"{name}: {value}\n"

    def fold_binary(self, name: str, value: str) -> bytes:
        return self.fold(name, value).encode("ascii")


POLICY = _Ready(linesep="\n", cte_type="7bit", max_line_length=76)
"""How a mail becomes bytes. 76: the library takes it for the lines of encoded bodies as well (RFC
2045, 6.7 and 6.8)."""


def compose(
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
    """The mail that says `content`, made at `now` (epoch seconds, UTC).

    The subject is the one given, each control character in it a space; without one it is that of
    the settings. With HTML, the content stands in the template, and beside it as plain text.
    `transport` is only for templates that tell it. `also` are further headers by their names.
    With HTML and `fills`, placeholders in the content are replaced (`template.NAMES`).

    Raises:
        BadMail: a recipient or a sender that is no address, or a time that no calendar has.
    """
    recipient = checked(recipient, settings.strict)
    sender = checked(settings.sender or f"nftban@{host.name}", strict=False)
    subject = _subject(subject, settings, host)
    moment = _moment(now)
    values = {
        "NFTBAN_VERSION": template.version(),
        "VERSION_HTML": template.version() if settings.show_version else "",
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
    frame = template.found(settings) if settings.html else template.Template()
    if settings.html and fills:
        filled = frame.filled(content.text, values, html=content.html)
        content = content._replace(text=filled)
    plain = _lines(from_html(content.text, links=True) if content.html else content.text)

    message = EmailMessage(policy=POLICY)
    _set(message, "From", _from(settings.from_name, sender))
    _set(message, "To", [recipient])
    _set(message, "Subject", header.pieces(subject))
    _set(message, "Date", [format_datetime(moment)])
    _set(message, "Message-ID", [message_id(id, host)])
    # RFC 3834: no answer from people on holiday, and no mail loops.
    _set(message, "Auto-Submitted", ["auto-generated"])
    for name, value in also.items():
        _set(message, name, header.pieces(header.clean(value)))
    _put_text(message, plain, "plain")
    if settings.html:
        _put_html(message, content, frame, values)
    mark_parts(message, id)
    return Mail(id, sender, recipient, " ".join(header.pieces(subject)), bytes(message), plain)


def message_id(id: str, host: Host) -> str:
    """The Message-ID of the mail of this id, always the same."""
    return f"<{_NOT_IN_ID.sub('-', id)}@{host.name}>"


def is_page(text: str) -> bool:
    """Whether markup is a whole page, which nothing is to be put around."""
    return _WHOLE_PAGE.search(text, 0, _START) is not None


def _set(message: EmailMessage, name: str, words: Iterable[str]) -> None:
    message[name] = header.folded(name, words)


def _subject(given: str, settings: MailSettings, host: Host) -> str:
    subject = header.clean(given)
    if not subject.strip():
        default = settings.subject or f"{settings.subject_prefix} Report from {host.name}"
        subject = header.clean(default).strip()
    return subject if len(subject) <= SUBJECT_LIMIT else f"{subject[: SUBJECT_LIMIT - 3]}..."


def _from(name: str, sender: str) -> list[str]:
    name = " ".join(header.clean(name).split())
    return [*header.phrase(name), f"<{sender}>"] if name else [sender]


def _moment(now: float) -> datetime:
    try:
        return datetime.fromtimestamp(int(now), UTC)
    except (ValueError, OverflowError, OSError) as error:
        raise BadMail(f"the mail's time is {now!r}, expected seconds since 1970") from error


def _lines(text: str) -> str:
    """Lines that end with LF, the last one too."""
    text = _SURROGATE.sub(REPLACEMENT, text).replace("\r\n", "\n").replace("\r", "\n")
    return text if text.endswith("\n") else f"{text}\n"


def _put_text(part: EmailMessage, text: str, kind: str) -> None:
    # The library lets control characters go as they are: a NUL does not survive every server.
    encoding = "quoted-printable" if text.isascii() and _CONTROL.search(text) else None
    part.set_content(text, subtype=kind, cte=encoding)


def _put_html(
    message: EmailMessage, content: Content, frame: template.Template, values: dict[str, str]
) -> None:
    text = _lines(content.text)
    whole = content.html and is_page(text)
    if not content.html:
        text = f'<pre style="white-space: pre-wrap">{escape(text)}</pre>\n'
    message.make_alternative()
    page = EmailMessage(policy=POLICY)
    _put_text(page, text if whole else _lines(frame.around(text, values)), "html")
    if frame.picture and not whole:
        cid = f"<{template.LOGO_ID}>"
        page.add_related(frame.picture.data, "image", frame.picture.kind, cid=cid)
        page.set_param("type", "text/html")
    del page["MIME-Version"]  # it is the whole mail's
    message.attach(page)


def mark_parts(message: EmailMessage, id: str) -> None:
    """Give each multipart a boundary that is made of the id, and stands in none of its parts."""
    parts = list(message.walk())
    inner = [str(part.get_payload()) for part in parts if not part.is_multipart()]
    for number in count():
        mark = hashlib.sha256(f"{id} {number}".encode("utf-8", "replace")).hexdigest()[:24]
        if not any(mark in payload for payload in inner):
            break
    multiparts = (part for part in parts if part.get_content_maintype() == "multipart")
    for depth, part in enumerate(multiparts):
        part.set_boundary(f"=_{depth}_{mark}")
