"""The page around a mail's content: ours or the installation's, and its words filled in."""

from __future__ import annotations

import os
from pathlib import Path

from engine.mail import template
from engine.mail.template import NAMES
from engine.mailconf import MailSettings
from tests.tables import each

PNG = b"\x89PNG\r\n\x1a\n and so on"

ALL = " ".join(f"{name}={{{name}}}" for name in NAMES)


def settings(folder: Path, **more: str) -> MailSettings:
    """Settings with a folder of templates."""
    return MailSettings(templates=str(folder))._replace(**more)  # type: ignore[arg-type]


def test_without_files_the_template_is_ours(tmp_path: Path) -> None:
    """Nothing is missed where there is nothing."""
    assert template.found(settings(tmp_path / "missing")) == template.Template()


def test_a_file_goes_before_ours(tmp_path: Path) -> None:
    """Header and footer are found each by itself."""
    (tmp_path / "header_default.html").write_text("<body>ä {HOSTNAME}:")
    ours = template.Template()
    found = template.found(settings(tmp_path))
    assert (found.header, found.footer) == ("<body>ä {HOSTNAME}:", ours.footer)
    (tmp_path / "footer_default.html").write_text(":{DATE}</body>")
    page = template.found(settings(tmp_path)).around("x", {"HOSTNAME": "h", "DATE": "d"})
    assert page == "<body>ä h:x:d</body>"


def test_every_placeholder_is_replaced_by_its_escaped_value() -> None:
    """No value can become markup, or another value's placeholder."""
    values = {name: f'<{name}> & "x" {{DATE}}' for name in NAMES if not name.endswith("_HTML")}
    values["VERSION_HTML"] = "v<1>"
    only = template.Template(ALL, "", logo='https://x.example/"><script>')
    page = only.around("", values)
    for name in values:
        if name != "VERSION_HTML":
            said = f"{name}=&lt;{name}&gt; &amp; &quot;x&quot; {{DATE}}"
            assert said in page
    assert "VERSION_HTML=<span>v&lt;1&gt;</span>" in page
    assert 'LOGO_HTML=<img src="https://x.example/&quot;&gt;&lt;script&gt;" alt="&lt;COMP' in page
    assert "<script>" not in page


def test_what_is_not_told_is_empty_and_other_braces_stay() -> None:
    """A missing value leaves no placeholder behind; a style sheet's braces are none."""
    only = template.Template(f"{ALL} {{color: red}} {{OTHER}} {{date}}", "")
    page = only.around("", {})
    assert page.startswith("NFTBAN_VERSION= HOSTNAME= SERVER_IP=")
    assert page.endswith(" {color: red} {OTHER} {date}")


@each(
    ("html", "filled"),
    [
        (True, "a &lt;b&gt; {DATE} {SUBJECT} {x} <span>v&lt;1</span>"),
        (False, "a <b> {DATE} {SUBJECT} {x} v<1"),
    ],
)
def test_placeholders_in_the_content_are_replaced_once(html: bool, filled: str) -> None:
    """Markup gets escaped values, text plain ones; a value is not searched, SUBJECT stays."""
    values = dict.fromkeys(NAMES, "") | {"HOSTNAME": "a <b> {DATE}", "VERSION_HTML": "v<1"}
    found = template.Template().filled("{HOSTNAME} {SUBJECT} {x} {VERSION_HTML}", values, html=html)
    assert found == filled


def test_a_file_that_cannot_be_used_is_told_and_ours_stands_in(tmp_path: Path) -> None:
    """A FIFO, bytes, a link, too much: the mail goes out with our own, and somebody can know."""
    header, footer = tmp_path / "header_default.html", tmp_path / "footer_default.html"
    os.mkfifo(header)
    footer.write_bytes(b"abc\xff")
    first = template.found(settings(tmp_path))
    header.unlink()
    header.symlink_to("/etc/passwd")
    footer.write_bytes(b"x" * (template.LIMIT + 1))
    second = template.found(settings(tmp_path))

    ours = template.Template()
    for found in (first, second):
        assert (found.header, found.footer) == (ours.header, ours.footer)
    assert first.troubles == (
        f"mail template {header}: no plain file, expected one; ours is used instead",
        f"mail template {footer}: not UTF-8 at byte 3; ours is used instead",
    )
    assert second.troubles == (
        f"mail template {header}: a symbolic link; ours is used instead",
        f"mail template {footer}: 262,145 bytes, expected at most 262,144; ours is used instead",
    )


@each(
    "logo", ["https://example.com/logo.png", "http://example.com/a?b=1&c=%20", "HTTPS://x.example/"]
)
def test_a_logo_may_be_had_from_the_web(logo: str, tmp_path: Path) -> None:
    """Its address stands in the page, escaped."""
    found = template.found(settings(tmp_path, logo=logo))
    assert (found.logo, found.picture, found.troubles) == (logo, None, ())


@each(
    "logo",
    [
        *("javascript:alert(1)", "javascript://x.example/%0aalert(1)", "ftp://x.example/logo.png"),
        *("data:text/html,x", "logo.png", "http://", "https://[", "//x.example/y"),
    ],
)
def test_no_other_address_is_one(logo: str, tmp_path: Path) -> None:
    """Scripts, data and relative names are left out, and told."""
    found = template.found(settings(tmp_path, logo=logo))
    assert (found.logo, found.picture) == ("", None)
    assert len(found.troubles) == 1


@each("data", [PNG, b"\xff\xd8\xff\xe0", b"GIF89a"])
def test_a_logo_on_disk_goes_with_the_mail(data: bytes, tmp_path: Path) -> None:
    """Whoever reads it has no access to our files."""
    (tmp_path / "logo").write_bytes(data)
    found = template.found(settings(tmp_path, logo=f"{tmp_path}/logo"))
    assert found.logo == "cid:logo@spooldeck.invalid"
    assert found.picture is not None
    assert found.picture.data == data


def test_a_logo_that_is_no_picture_is_left_out(tmp_path: Path) -> None:
    """Nothing else is mailed by being called a logo; a missing one is told."""
    secret, missing = tmp_path / "secret", tmp_path / "missing"
    secret.write_text("root:x:0:0")
    first = template.found(settings(tmp_path, logo=str(secret)))
    second = template.found(settings(tmp_path, logo=str(missing)))
    assert first.troubles == (
        f"mail logo {secret}: no PNG, JPEG or GIF picture; mail goes without it",
    )
    assert second.troubles == (
        f"mail logo {missing}: No such file or directory; mail goes without it",
    )
    assert first.logo == second.logo == ""
