"""The page template of mails: our own or installed files, placeholders and the logo."""

import os
from collections.abc import Callable
from pathlib import Path

from engine.config.mail_config import MailSettings
from engine.mail.message import template
from engine.mail.message.template import PLACEHOLDER_NAMES
from tests.tables import each

PNG = b"\x89PNG\r\n\x1a\n and so on"
ALL = " ".join(f"{name}={{{name}}}" for name in PLACEHOLDER_NAMES)


def load(folder: Path, **more: str) -> template.Template:
    """The template of a folder."""
    settings = MailSettings(templates=str(folder))._replace(**more)  # type: ignore[arg-type]
    return template.load_page_template(settings)


def test_an_installed_template_replaces_ours(tmp_path: Path) -> None:
    """Header and footer are replaced each by its own file."""
    ours = template.Template()
    assert load(tmp_path / "missing") == ours
    (tmp_path / "header_default.html").write_text("<body>ä {HOSTNAME}:")
    found = load(tmp_path)
    assert (found.header, found.footer) == ("<body>ä {HOSTNAME}:", ours.footer)
    (tmp_path / "footer_default.html").write_text(":{DATE}</body>")
    page = load(tmp_path).wrap_body("x", {"HOSTNAME": "h", "DATE": "d"})
    assert page == "<body>ä h:x:d</body>"


def test_every_placeholder_is_replaced_by_its_escaped_value() -> None:
    """No value becomes markup or another placeholder; a missing one leaves no empty marks."""
    names = [name for name in PLACEHOLDER_NAMES if not name.endswith("_HTML")]
    values = {name: f'<{name}> & "x" {{DATE}}' for name in names}
    values["VERSION_HTML"] = "v<1>"
    only = template.Template(ALL, "", logo='https://x.example/"><script>')
    page = only.wrap_body("", values)
    for name in values:
        if name != "VERSION_HTML":
            assert f"{name}=&lt;{name}&gt; &amp; &quot;x&quot; {{DATE}}" in page
    assert "VERSION_HTML=<span>v&lt;1&gt;</span>" in page
    assert 'LOGO_HTML=<img src="https://x.example/&quot;&gt;&lt;script&gt;" alt="&lt;COMP' in page
    assert "<script>" not in page
    page = template.Template(f"{ALL} {{color: red}} {{OTHER}} {{date}}", "").wrap_body("", {})
    assert page.startswith("NFTBAN_VERSION= HOSTNAME= SERVER_IP=")
    assert page.endswith(" {color: red} {OTHER} {date}")

    values = dict.fromkeys(PLACEHOLDER_NAMES, "x") | {"COMPANY_NAME": "", "SERVER_IP": ""}
    page = template.Template().wrap_body("body", values)
    assert "<strong>" not in page
    assert "\nSent by x on x at x to x. " in page


def test_placeholders_in_the_content_are_replaced_once() -> None:
    """Markup gets escaped values, text plain ones; a value is not searched, SUBJECT stays."""
    filled = template.Template().fill_placeholders
    values = dict.fromkeys(PLACEHOLDER_NAMES, "")
    values |= {"HOSTNAME": "a <b> {DATE}", "VERSION_HTML": "v<1"}
    content = "{HOSTNAME} {SUBJECT} {x} {VERSION_HTML}"
    page = "a &lt;b&gt; {DATE} {SUBJECT} {x} <span>v&lt;1</span>"
    assert filled(content, values, html=True) == page
    assert filled(content, values, html=False) == "a <b> {DATE} {SUBJECT} {x} v<1"


@each(("name", "make", "why"), [
    ("header", os.mkfifo, "not a regular file"),
    ("footer", lambda path: path.write_bytes(b"abc\xff"), "not UTF-8 at byte 3"),
    ("header", lambda path: path.symlink_to("/etc/passwd"), "a symbolic link"),
    ("footer", lambda path: path.write_bytes(b"x" * (template.MAX_PART_BYTES + 1)),
     "262,145 bytes, expected at most 262,144"),
])  # fmt: skip
def test_an_unusable_template_is_reported_and_ours_is_used(
    tmp_path: Path, name: str, make: Callable[[Path], object], why: str
) -> None:
    """A FIFO, invalid UTF-8, a link and a file of too many bytes are reported."""
    make(path := tmp_path / f"{name}_default.html")
    found, ours = load(tmp_path), template.Template()
    assert (found.header, found.footer) == (ours.header, ours.footer)
    assert found.unused_files == (f"mail template {path}: {why}; the built-in one is used",)


@each(("logo", "taken"), [
    ("https://example.com/logo.png", True), ("http://example.com/a?b=1&c=%20", True),
    ("HTTPS://x.example/", True), ("javascript:alert(1)", False), ("logo.png", False),
    ("javascript://x.example/%0aalert(1)", False), ("data:text/html,x", False),
    ("ftp://x.example/logo.png", False), ("http://", False), ("https://[", False),
    ("//x.example/y", False),
])  # fmt: skip
def test_a_logo_of_the_web_has_an_http_address(logo: str, taken: bool, tmp_path: Path) -> None:
    """Other addresses are omitted and reported."""
    found = load(tmp_path, logo=logo)
    assert (found.logo, found.picture) == (logo if taken else "", None)
    assert len(found.unused_files) == (not taken)


@each(("data", "why"), [
    (PNG, ""), (b"\xff\xd8\xff\xe0", ""), (b"GIF89a", ""),
    (b"root:x:0:0", "not a PNG, JPEG or GIF picture"), (None, "No such file or directory"),
])  # fmt: skip
def test_a_picture_on_disk_goes_with_the_mail(tmp_path: Path, data: bytes | None, why: str) -> None:
    """A PNG, JPEG or GIF is attached; another or a missing file is omitted and reported."""
    path = tmp_path / "logo"
    if data is not None:
        path.write_bytes(data)
    found = load(tmp_path, logo=str(path))
    told = (f"mail logo {path}: {why}; mail is sent without it",) if why else ()
    assert found.unused_files == told
    assert found.logo == ("" if why else "cid:logo@spooldeck.invalid")
    assert why or (found.picture is not None and found.picture.data == data)
