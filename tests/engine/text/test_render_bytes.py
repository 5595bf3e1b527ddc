"""Mails, HTML, JSON and other bytes as text: decoded, bounded in time and size, and inert."""

import base64
import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.text import render_bytes
from engine.text.safe import safe_lines
from tests.examples import examples

MAIL = """\
Received: from mx2.example.net by mx1
From: =?utf-8?q?J=C3=BCrgen_M=C3=BCller?= <jm@example.net>
To: admin@example.com
Subject: =?utf-8?b?RGlza8OkIHZvbGw=?= =?iso-8859-1?q?_auf_=E4nderung?=
MIME-Version: 1.0
Content-Type: multipart/mixed; boundary="b1"

ignored
--b1
Content-Type: text/plain; charset=iso-8859-1
Content-Transfer-Encoding: quoted-printable

Gr=FC=DFe=
 aus Wien
--b1
Content-Type: text/html; charset=utf-8
Content-Transfer-Encoding: base64

{page}
--b1
Content-Type: application/pdf; name="report.pdf"
Content-Disposition: attachment; filename="=?utf-8?q?r=C3=A9port.pdf?="
Content-Transfer-Encoding: base64

JVBERi0xLjQK
--b1--
"""
PAGE = """<html><head><title>no</title><style>p {color: red}</style></head><body>
<h1>Alert</h1><p>5 &lt; 6 &amp; more<br>second</p><script>alert("x")</script>
<pre>  a
    b</pre></body></html>"""


def mail() -> bytes:
    """A mail as programs send it, with everything encoded."""
    return MAIL.replace("{page}", base64.encodebytes(PAGE.encode()).decode()).encode()


def test_a_mail_is_shown_decoded() -> None:
    """Headers, texts and pages are text, however they were sent; what is attached is named."""
    rendered = render_bytes.render_data(mail())

    assert rendered.kind == "mail"
    assert rendered.lines == (
        "From: Jürgen Müller <jm@example.net>",
        "To: admin@example.com",
        "Subject: Diskä voll auf änderung",
        "",
        "--- text/plain",
        "Grüße aus Wien",
        "",
        "--- text/html, shown as text",
        "Alert",
        "",
        "5 < 6 & more",
        "second",
        "",
        "  a",
        "    b",
        "",
        "--- attachment réport.pdf: application/pdf, 9 bytes",
        "",
        "--- other headers",
        "Received: from mx2.example.net by mx1",
        "MIME-Version: 1.0",
        'Content-Type: multipart/mixed; boundary="b1"',
    )


KINDS: dict[bytes, tuple[str, str | None]] = {
    b"": ("nothing", None), b"just words\n": ("text", "just words"),
    b'{"b": [1, "\\u001b[2J"]}': ("JSON", '    "\\u001b[2J"'),
    b'{"b": ': ("text", '{"b": '), PAGE.encode(): ("HTML", "5 < 6 & more"),
    b"\x7fELF\x02\x01\x01\0\0\0": ("bytes", None), b"\xff\xfeh\0i\0": ("text", "hi"),
    b"\xef\xbb\xbfhi": ("text", "hi"),
    b'MAIL_TO="a@b.example"\nMAIL_SUBJECT="$(id)"\n': ("text", 'MAIL_SUBJECT="$(id)"'),
    b"Error: it broke\nDate: never\n": ("text", "Error: it broke"),
    "naïve ünïcode\n".encode(): ("text", "naïve ünïcode"),
}  # fmt: skip


def test_bytes_are_taken_for_what_they_are() -> None:
    """JSON is set out, a page is read as text, and what is no text is shown as numbers."""
    for data, (kind, line) in KINDS.items():
        rendered = render_bytes.render_data(data)
        assert rendered.kind == kind
        assert line is None or line in rendered.lines


def test_a_mail_is_taken_off_the_wire() -> None:
    """Doubled dots are one; the last dot is no line; what is no mail is shown as it is."""
    for wire, text in (
        ("Hi\r\n.\r\n", ["Hi"]),
        ("..\r\n...x\r\na.b..\r\n.\r\n", [".", "..x", "a.b.."]),
        ("Hi\r\nits end is miss", ["Hi", "its end is miss"]),
        ("Hi\r\n.\r\nRCPT TO:<b@c.example>\r\n.\r\n", ["Hi", ".", "RCPT TO:<b@c.example>"]),
        (".\r\n", []),
    ):
        rendered = render_bytes.render_data(f"Subject: .x\r\n\r\n{wire}".encode(), is_wire=True)
        assert rendered.kind == "mail"
        shown = ("Subject: .x", "", "--- text/plain", *text, "", "--- other headers")
        assert rendered.lines == shown
    assert render_bytes.render_data(b"just words\r\n.\r\n", is_wire=True).lines == ("just words",)
    assert render_bytes.render_data(b".\r\n", is_wire=True).kind == "nothing"
    assert render_bytes.render_data(b"\x7fELF\x02\x01\0\0\0", is_wire=True).kind == "bytes"
    assert render_bytes.render_data(b"Hi\n.\r\n").lines == ("Hi", ".")


def test_bytes_are_shown_with_their_offsets() -> None:
    """Verbatim, a mail is its own text, with encoded words; bytes are still numbers."""
    rows = render_bytes.render_data(bytes(range(24)), per_row=8).lines
    assert rows[1] == "00000008  08 09 0a 0b 0c 0d 0e 0f  ........"
    assert len(render_bytes.render_data(bytes(range(20))).lines) == 2
    lines = render_bytes.render_verbatim(mail()).lines
    assert "From: =?utf-8?q?J=C3=BCrgen_M=C3=BCller?= <jm@example.net>" in lines
    assert render_bytes.render_verbatim(b"\0\1\2").kind == "bytes"
    assert len(render_bytes.render_verbatim(b"x\n" * 100_000).lines) == render_bytes.MAX_LINES + 1


def test_what_cannot_be_decoded_stays() -> None:
    """As far as it goes; an end of line in a word begins no line. Damaged base64 is named."""
    for encoded, decoded in (
        ("=?utf-8?b?a?=", "=?utf-8?b?a?="), ("=?nonsense?q?abc?=", "abc"),
        ("=?zlib?b?eJwDAAAAAAE=?=", None), ("=?idna?q?xn--a?=", "xn--a"),
        ("=?undefined?q?abc?=", "abc"), ("=?utf-8?q?=1B]0;x=07?=", "\x1b]0;x\x07"),
        ("plain", "plain"), ("=?utf-8?q?x=0ATo:_boss?=", "x\nTo: boss"),
    ):  # fmt: skip
        assert decoded is None or render_bytes.decode_header_words(encoded) == decoded
        lines = render_bytes.render_data(f"From: a\nSubject: {encoded}\n\nx".encode()).lines
        assert all(line.isprintable() for line in lines)
    assert "Subject: x\ufffdTo: boss" in lines
    data = b"From: a\nTo: b\nContent-Transfer-Encoding: base64\n\naGVsbG8*gd29ybGQ\n"
    lines = render_bytes.render_data(data).lines
    assert "--- text/plain, damaged base64" in lines and "hello world" in lines


def nested(levels: int) -> bytes:
    """A mail in a part of a mail in a part, and so on."""
    head = b"From: a\nTo: b\n"
    for level in range(levels):
        head += b"Content-Type: multipart/mixed; boundary=b%d\n\n--b%d\n" % (level, level)
    return head + b"\ninnermost\n"


HOSTILE = {
    "10,000 mails in one another": nested(10_000),
    "mails within mails": b"From: a\nTo: b\nContent-Type: message/rfc822\n\n" * 10_000,
    "one boundary 100,000 times": b"From: a\nTo: b\nContent-Type: multipart/mixed; boundary=x\n\n"
    + b"--x\n" * 100_000,
    "almost boundaries": b"From: a\nTo: b\nContent-Type: multipart/mixed; boundary=x\n\n"
    + b"\n--xy" * 100_000,
    "a header of a megabyte": b"From: a\nTo: b\nSubject: " + b"=?utf-8?q?a" * 100_000 + b"\n\n",
    "parameters of a megabyte": b'From: a\nTo: b\nContent-Type: text/plain; x="' + b";" * 1_000_000,
    "100,000 headers": b"From: a\nTo: b\n" + b"X-A: b\n" * 100_000,
    "a header in 100,000 lines": b"From: a\nTo: b\nX: y\n" + b" z\n" * 100_000,
    "comments that do not end": b"<html>" + b"<!--" * 200_000,
    "tags that do not end": b"<html>" + b"<a" * 400_000,
    "scripts that do not end": b"<html>" + b"<script>" * 100_000,
    "styles within scripts": b"<html>" + b"<style></script>" * 60_000,
    "a number of 100,000 digits": b"<html>&#" + b"9" * 100_000 + b";",
    "lists in lists": b"[" * 500_000,
    "deep lists, again and again": b"[" + (b"[" * 900 + b"]" * 900 + b",") * 500 + b"1]",
    "JSON with a long number": b"[" + b"9" * 100_000 + b"]",
    "a million lines": b"x\n" * 500_000,
    "one long line": b"x" * (1 << 20),
    "nothing but NUL": b"\0" * (1 << 20),
    "an odd charset": b"From: a\nTo: b\nContent-Type: text/plain; charset=\0\xff\n\nx",
    "an odd continuation": b"From: a\nTo: b\nContent-Type: text/plain; charset*=undefined''x\n\nx",
    "punycode": b"From: a\nTo: b\nContent-Type: text/plain; charset=punycode\n\n" + b"a" * 500_000,
}

SOME = {"10,000 mails in one another", "a header of a megabyte"}


@pytest.mark.parametrize("some", [SOME, pytest.param({*HOSTILE} - SOME, marks=pytest.mark.deep)])
def test_no_bytes_keep_it_busy(some: set[str]) -> None:
    """To decode any bytes takes moments, and ends in a bounded text."""
    for kind in some:
        began = time.process_time()
        rendered = render_bytes.render_data(HOSTILE[kind])
        assert time.process_time() - began < 5, kind  # the careless way takes minutes
        assert sum(map(len, rendered.lines)) < 3 << 20
        assert len(rendered.lines) <= render_bytes.MAX_LINES + 1
        assert all(line.isprintable() for line in rendered.lines)


HEADS = st.sampled_from([
    b"From: a\nTo: b\n", b"Content-Type: multipart/mixed; boundary=x\n",
    b"Content-Type: message/rfc822\n", b"Content-Type: text/html; charset=",
    b"Content-Disposition: attachment; filename*0*=utf-8''",
    b"Content-Transfer-Encoding: base64\n", b"Content-Transfer-Encoding: quoted-printable\n",
    b"Subject: =?utf-8?b?", b"=?=\n", b"\n", b"\n--x\n", b"\n--x--\n", b"<html><script>", b"</",
    b"<!--", b"&#x1b;", b"\x1b]0;owned\x07", "\u202e\u2066\x9b31m".encode(), b"[", b'{"a": ', b"\0",
])  # fmt: skip


@examples(120)
@given(st.lists(st.one_of(HEADS, st.binary(max_size=40)), max_size=12).map(b"".join))
def test_nothing_it_shows_can_make_a_terminal_act(data: bytes) -> None:
    """It never raises, and no line it answers with has a control character."""
    for start in (b"", b"From: a\nTo: b\n", b"<html>"):
        rendered = render_bytes.render_data(start + data)
        assert all(line.isprintable() for line in rendered.lines)


@examples(100)
@given(st.text(max_size=200))
def test_a_text_is_shown_as_it_is(text: str) -> None:
    """A text in base64, as mails carry it, is the text that was written, made safe."""
    body = base64.encodebytes(text.encode("utf-8", "replace")).decode()
    head = "From: a\nTo: b\nContent-Type: text/plain; charset=utf-8\n"
    mail = f"{head}Content-Transfer-Encoding: base64\n\n{body}".encode()
    lines = render_bytes.render_data(mail).lines
    at = lines.index("--- text/plain")
    body_lines = list(lines[at + 1 : lines.index("--- other headers") - 1])
    assert body_lines == safe_lines(text.encode("utf-8", "replace").decode())


PLAIN = st.text(st.characters(max_codepoint=126, min_codepoint=32), max_size=5)


@given(st.recursive(st.none() | st.integers() | PLAIN, st.lists, max_leaves=10))
def test_json_means_the_same_set_out(value: object) -> None:
    """What is set out line by line is still the same JSON."""
    rendered = render_bytes.render_data(json.dumps([value]).encode())
    assert (rendered.kind, json.loads("\n".join(rendered.lines))) == ("JSON", [value])
