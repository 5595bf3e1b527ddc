"""Compose a mail: headers, parts, page, logo; any content is read back as it was given."""

import email
import email.policy
import os
import re
import subprocess
import sys
import unicodedata
from email.header import decode_header, make_header
from email.headerregistry import Address, AddressHeader
from email.message import EmailMessage
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from engine.config.mail_config import NFTBAN_NAMES, MailSettings
from engine.mail.header import display_name_words, fold_header, header_words
from engine.mail.host import Host
from engine.mail.message.compose import MAX_SUBJECT_LENGTH, compose_mail
from engine.mail.message.content import Content
from engine.mail.model import BadMail, Mail
from engine.text.html_text import html_to_text
from tests.engine.mail.message import test_bounce
from tests.engine.task_builders import ROOT
from tests.tables import each

GOLDEN = Path(__file__).parents[3] / "golden" / "mail"
HOST = Host("host.example.org", "192.0.2.7")
NOW = 1_767_787_262.75
ID = "mail-20260107T120102Z-a1b2c3d4"
TO = "admin@example.com"
PLAIN = MailSettings(html=False, templates="/nonexistent", **NFTBAN_NAMES)
HTML = PLAIN._replace(html=True, show_version=False)

TEXT = """\
Service failed: nginx

.
From the log:
\t<script>alert("x")</script> & {HOSTNAME} {SUBJECT}
  Grüße, 日本語, 🚨 caf\ufffd
trailing space \n"""

PAGE = """\
<h2>Daily report</h2>
<style>h2 { color: red }</style>
<p>3 addresses were banned, <a href="https://example.com/list?a=1&amp;b=2">see the list</a>
or <a href='https://example.com/'>https://example.com/</a>.</p>
<ul><li>192.0.2.1</li><li>192.0.2.2 &lt;unknown&gt;</li></ul>
<script>track()</script>
<p>{DATE} is today, {SUBJECT} stays.</p>
"""

Message: TypeAlias = "EmailMessage[str, str]"


def made(
    raw: Content | str = "Hello",
    subject: str = "Hello",
    settings: MailSettings = PLAIN,
    recipient: str = TO,
    **more: Any,
) -> Mail:
    """Compose a mail; the defaults are those of most tests."""
    content = Content(raw, html=False) if isinstance(raw, str) else raw
    facts = {"settings": settings, "host": HOST, "now": NOW, "id": ID, **more}
    return compose_mail(content, recipient, subject, **facts)


def read(mail: Mail) -> Message:
    """The mail as a mail program reads it."""
    message = email.message_from_bytes(mail.data, policy=email.policy.default)
    assert not message.defects
    return message


def part(message: Message, kind: str) -> str:
    """The text of the one part of a kind."""
    parts = [p for p in message.walk() if p.get_content_type() == kind]
    assert len(parts) == 1
    assert not parts[0].defects
    return str(parts[0].get_content())


def addresses(message: Message, name: str) -> tuple[Address, ...]:
    """The addresses in a header."""
    header = message[name]
    assert isinstance(header, AddressHeader)
    return tuple(header.addresses)


def cleaned(text: str) -> str:
    """A subject as it is to be read."""
    kinds = {"Cc": " ", "Zl": " ", "Zp": " ", "Cs": "\ufffd"}
    return "".join(kinds.get(unicodedata.category(c), c) for c in text)


def lines_of(text: str) -> str:
    """The text as it is read: LF after each line, no lone surrogate."""
    text = re.sub("[\ud800-\udfff]", "\ufffd", re.sub("\r\n?", "\n", text))
    return text if text.endswith("\n") else text + "\n"


def assert_well_formed(mail: Mail) -> None:
    """Check the rules that every transport relies on."""
    assert mail.data.isascii() and not set(b"\r\0") & set(mail.data)
    assert mail.data.endswith(b"\n")
    assert max(map(len, mail.data.split(b"\n"))) <= 998
    assert mail.subject.isascii() and mail.subject.isprintable()
    assert mail.text.endswith("\n") and "\r" not in mail.text


HEADERS = ("From", "To", "Subject", "Date", "Message-ID", "Auto-Submitted", "MIME-Version")

ANY_TEXT = st.text(
    st.characters() | st.sampled_from('\r\n\0\x1b\x85\u2028\u202e\ud800 .=?-~<>@"\\{}')
) | st.sampled_from([
    "=?utf-8?q?x?=", "a\r\nBcc: evil@example.com", "\r\n.\r\n", "\n\nbody", "x" * 3000, "é" * 700,
    " lead", "trail ", "a  b", "\t", "{SUBJECT}", "--=_0_", "From x", "🚨" * 40,
])  # fmt: skip


@given(ANY_TEXT, ANY_TEXT, ANY_TEXT, st.booleans(), st.booleans())
@example("Hi", "N", ("x" * 75 + "\n") * 20 + "\x0b\x0c\x1c\x1e\x7f\x80", True, False)
@example("Hi", "N", "\n.\n..\n", False, False)
@example("Hi", "N", "", False, True)
def test_mails_are_read_back(subject: str, name: str, body: str, html: bool, markup: bool) -> None:
    """A mail program reads one header of each name, the given subject, and the given text."""
    settings = (HTML if html else PLAIN)._replace(from_name=name, company=name)
    mail = made(Content(body, html=markup), subject, settings)
    assert_well_formed(mail)
    message = read(mail)
    assert [len(message.get_all(header, [])) for header in HEADERS] == [1] * len(HEADERS)
    further = {key.lower() for key in message} - {header.lower() for header in HEADERS}
    assert further <= {"content-type", "content-transfer-encoding"}
    shown = cleaned(subject)
    if len(shown) > MAX_SUBJECT_LENGTH:
        shown = f"{shown[: MAX_SUBJECT_LENGTH - 3]}..."
    default = "[NFTBan] Report from host.example.org"
    assert message["Subject"] == (shown if cleaned(subject).strip() else default)
    assert [a.addr_spec for a in addresses(message, "From")] == ["nftban@host.example.org"]
    assert [a.addr_spec for a in addresses(message, "To")] == [TO]
    assert part(message, "text/plain") == mail.text
    assert markup or mail.text == lines_of(body)
    assert (message.get_content_type() == "multipart/alternative") == html


@given(name=ANY_TEXT)
def test_a_from_name_is_read_back(name: str) -> None:
    """Any name is read back, in one line, with single spaces."""
    mail = made(settings=PLAIN._replace(from_name=name))
    # The newer reader puts a space between the encoded words of a name; this one does not.
    older = email.message_from_bytes(mail.data, policy=email.policy.compat32)
    text = older["From"].replace("\n", "").removesuffix("<nftban@host.example.org>").strip(" ")
    text = text[1:-1] if text.startswith('"') else str(make_header(decode_header(text)))
    assert text == (" ".join(cleaned(name).split()) or "nftban@host.example.org")
    assert len(addresses(read(mail), "From")) == 1


@given(recipient=st.emails() | ANY_TEXT)
@example("b@example.com\r\nBcc: evil@example.com")
@example("a@example.com, b@example.com")
@example(f"{'l' * 64}@{'d' * 63}.{'e' * 63}.{'f' * 57}.com")
def test_a_mail_is_for_one_address(recipient: str) -> None:
    """Any text is refused, or it is the one recipient, unfolded."""
    try:
        mail = made(recipient=recipient)
    except BadMail:
        return
    assert mail.recipient == recipient
    assert f"\nTo: {recipient}\n".encode() in mail.data
    assert_well_formed(mail)


def test_another_process_makes_the_same_bytes() -> None:
    """Hash seed and time zone of a process change no mail and no bounce."""
    program = """if True:
        import sys
        from tests.engine.mail.message.test_compose import *
        sys.stdout.buffer.write(made(TEXT, "x", HTML).data + test_bounce.made())"""
    other = {"TZ": "Asia/Tokyo", "PYTHONHASHSEED": "7", "PYTHONPATH": str(ROOT)}
    argv, env = [sys.executable, "-P", "-c", program], os.environ | other
    here = made(TEXT, "x", HTML).data + test_bounce.made()
    assert subprocess.run(argv, stdout=subprocess.PIPE, check=True, env=env).stdout == here


@each(("name", "mail"), [
    ("text", made(TEXT, "[ALERT] Service failed", PLAIN)),
    ("text-in-page", made(TEXT, "[ALERT] Dienst gestört: Größe\tüber 90 % 🚨",
                          HTML._replace(company="A & B"))),
    ("page", made(Content(PAGE, html=True), "Daily report", HTML)),
    ("page-as-text", made(Content(PAGE, html=True), "Daily report", PLAIN)),
])  # fmt: skip
def test_whole_mails_are_those_of_the_golden_files(name: str, mail: Mail) -> None:
    """Text, text in a page, a page, and a page for a recipient who wants text."""
    assert mail.data == (GOLDEN / f"{name}.eml").read_bytes()


def test_headers_have_the_given_values() -> None:
    """Sender, date in UTC, Message-ID by the spool's id; a long host name stays whole."""
    mail = made(settings=PLAIN._replace(sender="alerts@example.net", from_name='A "B" <c>, d'))
    message = read(mail)
    (sender,) = addresses(message, "From")
    assert (sender.display_name, sender.addr_spec) == ('A "B" <c>, d', "alerts@example.net")
    assert (mail.id, mail.sender, mail.recipient) == (ID, "alerts@example.net", TO)
    assert message["Date"] == "Wed, 07 Jan 2026 12:01:02 +0000"
    assert message["Message-ID"] == f"<{ID}@host.example.org>"
    assert message["Auto-Submitted"] == "auto-generated"
    message = read(made(id="mail-2026-11-20T09:46:04Z-a96ebf3e"))
    assert message["Message-ID"] == "<mail-2026-11-20T09-46-04Z-a96ebf3e@host.example.org>"
    host = Host(f"{'a' * 60}.{'b' * 60}.example.org")
    for address in (f"<{ID}@{host.name}>", f"<nftban@{host.name}>"):
        assert address.encode() in made(host=host).data


@each(("subject", "override", "prefix", "read_as"), [
    ("Given", "Override", "[P]", "Given"), ("", "Override", "[P]", "Override"),
    (" \r\n ", "", "[P]", "[P] Report from host.example.org"),
    ("", "", "", "Report from host.example.org"),
])  # fmt: skip
def test_the_given_subject_is_used(subject: str, override: str, prefix: str, read_as: str) -> None:
    """Only a mail without one has that of the settings; outside of the mail it is one line."""
    settings = PLAIN._replace(subject=override, subject_prefix=prefix)
    assert read(made(subject=subject, settings=settings))["Subject"] == read_as
    long = "word " * 60 + "end"
    assert [made(subject=one).subject for one in (long, "é")] == [long, "=?utf-8?b?w6k=?="]


@given(ANY_TEXT)
def test_a_header_is_of_short_lines(text: str) -> None:
    """At most 78 characters each, encoded words at most 75, and none is empty."""
    text = cleaned(text)
    for words in (header_words(text), display_name_words(text)):
        lines = f"Subject: {fold_header('Subject', words)}".split("\n")
        assert all(len(line) <= 78 for line in lines)
        assert all(line.startswith(" ") and line.strip() for line in lines[1:])
        assert all(len(word) <= 75 for word in words)


def test_bad_values_are_refused() -> None:
    """A time beyond the calendar, a wrong sender and, if strict, a recipient without a domain."""
    for now in (float("nan"), float("inf"), 1e18, -1e18):
        with pytest.raises(BadMail, match="expected seconds since 1970"):
            made(now=now)
    with pytest.raises(BadMail, match="expected one address"):
        made(settings=PLAIN._replace(sender="-Xlog@example.com"))
    with pytest.raises(BadMail):
        made(recipient="root")
    assert made(recipient="root", settings=PLAIN._replace(strict=False)).recipient == "root"


def test_a_boundary_within_the_content_is_not_used() -> None:
    """A content with the guessed boundary cannot end a part."""
    first = read(made("x", settings=HTML)).get_boundary()
    assert first
    text = f"--{first}\nContent-Type: text/html\n\n<h1>evil</h1>\n--{first}--\n"
    message = read(made(text, settings=HTML))
    assert message.get_boundary() != first
    assert part(message, "text/plain") == text
    assert len(list(message.iter_parts())) == 2


def test_text_in_a_page_is_escaped() -> None:
    """Markup in a text is escaped, placeholders are filled once, the version only if it is set."""
    settings = HTML._replace(company="<script>{DATE}</script>")
    page = part(read(made(TEXT, "<b>{DATE}</b>", settings)), "text/html")
    body = "&lt;script&gt;alert(&quot;x&quot;)&lt;/script&gt; &amp; host.example.org {SUBJECT}\n"
    assert body in page
    assert "&lt;script&gt;{DATE}&lt;/script&gt;" in page
    assert "<title>&lt;b&gt;{DATE}&lt;/b&gt;</title>" in page
    assert "<script" not in page
    assert "on 2026-01-07 at 12:01:02 UTC" in page
    assert "host.example.org 192.0.2.7" in page
    assert "spooldeck" not in page
    page = part(read(made(settings=HTML._replace(show_version=True))), "text/html")
    assert "<span>spooldeck" in page


def test_a_page_has_a_readable_plain_part() -> None:
    """Links are kept as text, scripts and styles are not; a whole document is sent unwrapped."""
    message = read(made(Content(PAGE, html=True), settings=HTML))
    banned = "see the list (https://example.com/list?a=1&b=2) or https://example.com/."
    assert part(message, "text/plain") == (
        f"Daily report\n\n3 addresses were banned, {banned}\n\n192.0.2.1\n\n192.0.2.2 <unknown>\n\n"
        "2026-01-07 is today, {SUBJECT} stays.\n"
    )
    assert PAGE.replace("{DATE}", "2026-01-07") in part(message, "text/html")
    page = "<!-- x --><!DOCTYPE html>\r\n<html><body>{DATE}</body></html>"
    sent = part(read(made(Content(page, html=True), settings=HTML)), "text/html")
    assert sent == "<!-- x --><!DOCTYPE html>\n<html><body>2026-01-07</body></html>\n"


def test_a_template_may_name_the_transport(tmp_path: Path) -> None:
    """The placeholders of transport, sender and version work in an installed template."""
    (tmp_path / "header_default.html").write_text("[{MAIL_SYSTEM}|{SENDER}|{MAIL_RECIPIENT}]")
    (tmp_path / "footer_default.html").write_text("{NFTBAN_VERSION}")
    mail = made("x", settings=HTML._replace(templates=str(tmp_path)), transport="msmtp")
    page = part(read(mail), "text/html")
    assert page.startswith("[msmtp|nftban@host.example.org|admin@example.com]<pre")
    assert "</pre>\nspooldeck" in page


def test_a_logo_goes_with_the_page(tmp_path: Path) -> None:
    """A picture on disk is a part that the page refers to; the mail is the same each time."""
    data = b"\x89PNG\r\n\x1a\n" + bytes(range(256))
    (tmp_path / "logo.png").write_bytes(data)
    settings = HTML._replace(logo=f"{tmp_path}/logo.png", company="A & B")
    mail = made(settings=settings)
    assert mail == made(settings=settings)
    assert_well_formed(mail)
    message = read(mail)
    kinds = "multipart/alternative text/plain multipart/related text/html image/png"
    *parts, picture = message.walk()
    assert " ".join(p.get_content_type() for p in (*parts, picture)) == kinds
    assert isinstance(picture, EmailMessage) and picture.get_content() == data
    assert picture["Content-ID"] == "<logo@spooldeck.invalid>"
    assert '<img src="cid:logo@spooldeck.invalid" alt="A &amp; B"' in part(message, "text/html")


def test_an_encoded_body_has_lines_of_76_characters() -> None:
    """RFC 2045 allows no more to quoted-printable and base64."""
    for text in ("é" + "x" * 1000, "é" * 1000, "x" * 10_000):
        body = made(text).data.partition(b"\n\n")[2]
        assert max(map(len, body.split(b"\n"))) <= 76


@each(("page", "text"), [
    ('<a href="https://x.example/">x</a>', "x (https://x.example/)"),
    ("<a class=y href=https://x.example/>x</a>", "x (https://x.example/)"),
    ("<A HREF='mailto:a@x.example'>mail</A>", "mail (mailto:a@x.example)"),
    ('<a href="https://x.example/"> https://x.example/ </a>', "https://x.example/"),
    ('<a href="javascript:evil()">x</a>', "x"),
    ('<a name="https://x.example/">x</a>', "x"),
    ('<a href="#top">x</a> <a>y</a>', "x y"),
    ('<a href="https://x.example/"><a href="https://y.example/">y</a>', None),
    ("</a></a>x", "x"),
])  # fmt: skip
def test_the_target_of_a_link_is_kept_if_asked_for(page: str, text: str | None) -> None:
    """`html_to_text` adds targets of links with `links=True` alone."""
    plain_text = html_to_text(page, links=True)
    assert text is None or plain_text.strip() == text
    assert "x.example" not in html_to_text(page.replace("> https://x.example/ <", "><"))


def test_a_page_of_many_odd_tags_is_read_in_linear_time() -> None:
    """The text behind or before 20,000 odd tags is found, without a quadratic search."""
    for piece in ("<a href='x'>", "</a>", '<a href="https:">', "<a" + " href" * 9 + ">"):
        assert "the end" in html_to_text(piece * 20_000 + "<p>the end</p>", links=True)
    for torn in ("<a href=", '<a href="https:', "<a " + " href" * 9):
        assert "the beginning" in html_to_text("<p>the beginning</p>" + torn * 20_000, links=True)
