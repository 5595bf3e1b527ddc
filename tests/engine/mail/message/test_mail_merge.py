"""Letters to many recipients: placeholders, values, and templates that are refused."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.mail.message import mail_merge
from engine.mail.message.content import Content
from engine.mail.message.mail_merge import load_merge_template, merge_values, placeholder_names
from engine.mail.model import BadMail
from tests.tables import each

VALUES = {"name": 'Hans <b>"&"', "number": "7", "note": "one\r\ntwo\x1b[2J", "größe": "XL"}


def test_values_are_filled_into_a_text() -> None:
    """Values keep lines, lose control characters and are not searched; a subject is one line."""
    letter = Content("Hallo {name} ({größe}),\n{note}\n", html=False)
    merged, subject = merge_values(letter, "Nr. {number}", VALUES)
    assert merged.text == 'Hallo Hans <b>"&" (XL),\none\ntwo\ufffd[2J\n'
    assert subject == "Nr. 7"
    merged, _ = merge_values(Content("{a}", html=False), "x", {"a": "{b}", "b": "secret"})
    assert merged.text == "{b}"
    _, subject = merge_values(Content("x", html=False), "{note}", {"note": "a\nBcc: b@c.org"})
    assert subject == "a Bcc: b@c.org"


def test_values_are_escaped_in_html_and_not_in_the_subject() -> None:
    """A fragment becomes a page, style sheets stay, and a whole page is not wrapped."""
    letter = Content("<style>p {color: red}</style><p>{name}</p>", html=True)
    merged, subject = merge_values(letter, "{name}", VALUES)
    assert "<p>Hans &lt;b&gt;&quot;&amp;&quot;</p>" in merged.text
    assert "p {color: red}" in merged.text
    assert merged.text.startswith("<!DOCTYPE html>")
    assert "<title>Hans &lt;b&gt;&quot;&amp;&quot;</title>" in merged.text
    assert subject == 'Hans <b>"&"'
    page = "<!doctype html><html><body>{number}</body></html>\n"
    merged, _ = merge_values(Content(page, html=True), "x", VALUES)
    assert merged.text == page.replace("{number}", "7")


def test_a_letter_without_a_value_is_refused() -> None:
    """A placeholder of letter or subject without a value is an error; only names are ones."""
    for text, subject, words in (
        ("{nosuch} {also}", "x", "template /t.txt: no value for {also}, {nosuch}"),
        ("x", "{nosuch}", "the subject: no value for {nosuch}"),
    ):
        with pytest.raises(BadMail, match=words):
            merge_values(Content(text, html=False, path="/t.txt"), subject, VALUES)
    assert placeholder_names("{a} {b_1} {1} {} {a b} { c } {d:x} {{e}}") == {"a", "b_1", "e"}
    assert mail_merge.describe_missing_values("{a}", frozenset("a")) == ""


@each(("name", "text", "html"), [
    ("a.html", "Hallo <b>{name}</b>", True), ("b.txt", "<p>Hallo</p>", True),
    ("c.txt", "Hallo <b>", False),
])  # fmt: skip
def test_a_letter_is_html_by_name_or_tag(tmp_path: Path, name: str, text: str, html: bool) -> None:
    """The name or the first tag makes a letter HTML."""
    path = tmp_path / name
    path.write_text(text)
    assert load_merge_template(str(path)) == Content(text, html, str(path))


@each(("make", "words"), [
    (lambda path: None, "No such file"),
    (lambda path: path.write_text(" \n"), "it is empty"),
    (lambda path: path.symlink_to("/etc/passwd"), "a symbolic link"),
    (Path.mkdir, ""), (os.mkfifo, ""),
    (lambda path: path.write_bytes("Grüße".encode("latin-1")), "not UTF-8 at byte 2"),
])  # fmt: skip
def test_a_bad_file_is_refused(tmp_path: Path, make: Callable[[Path], object], words: str) -> None:
    """A missing or empty file, a link, a folder, a FIFO and bytes that are not UTF-8."""
    make(path := tmp_path / "letter")
    with pytest.raises(BadMail) as caught:
        load_merge_template(str(path))
    assert str(caught.value).startswith(f"template {path}: ")
    assert words in str(caught.value)
