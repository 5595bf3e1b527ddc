"""What a mail is to say: words, or a file, and only one that may be mailed."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given as whatever
from hypothesis import strategies as st

from engine.mail.content import Content, given, is_one_line_of_html, looks_like_html, of_body
from engine.mail.model import BadMail
from engine.mailconf import MailSettings
from tests.tables import each

NOBODY = 65534


class Allowed:
    """A folder that may be mailed from, and what lies beside it."""

    def __init__(self, above: Path) -> None:
        self.above = above
        self.folder = above / "data"
        self.folder.mkdir()

    def settings(self, limit: int = 1 << 20) -> MailSettings:
        """Settings that allow this folder."""
        return MailSettings(allowed_paths=(str(self.folder),), max_file_size=limit)

    def file(self, name: str, data: bytes = b"report\n") -> str:
        """The path of a file in it."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return str(path)

    def refusal(self, path: str | Path, limit: int = 1 << 20) -> str:
        """The one line that says why a path is not mailed."""
        with pytest.raises(BadMail) as refused:
            given(str(path), self.settings(limit))
        line = str(refused.value)
        assert line.startswith("content ")
        assert line.isprintable()
        return line


@pytest.fixture
def allowed(tmp_path: Path) -> Allowed:
    """A folder that may be mailed from."""
    return Allowed(tmp_path)


# ---- words


@each("said", [
    "Hello", "", "/ is full", "/no/such/file", "/etc/passwd/too", "/help\nand more", "/var/\0",
    "/\ud800", "/" + "x" * 5000, "relative/report.txt", "../data/report.txt", "~/report.txt",
    "file:///etc/passwd", " /etc/passwd",
], allowed=Allowed)  # fmt: skip
def test_what_is_no_path_is_text(said: str, allowed: Allowed) -> None:
    """Words that only look like a path say what they say."""
    content = given(said, allowed.settings())
    assert content == Content(said.replace("\ud800", "\ufffd"), html=False)


def test_more_words_than_a_mail_may_have_are_refused(allowed: Allowed) -> None:
    """What counts are bytes, for text as for files."""
    assert given("ä" * 5, allowed.settings(limit=10)).text == "ä" * 5
    with pytest.raises(BadMail, match="12 bytes of text, expected at most 10"):
        given("ä" * 6, allowed.settings(limit=10))


# ---- files


def test_a_file_below_an_allowed_folder_is_read(allowed: Allowed) -> None:
    """Its text is the content, and it is remembered where it was."""
    path = allowed.file("reports/daily.txt", "Grüße\n".encode())
    assert given(path, allowed.settings()) == Content("Grüße\n", html=False, path=path)


def test_an_allowed_folder_may_be_a_link_or_end_with_a_slash(allowed: Allowed) -> None:
    """How the folder itself is reached is the operator's word; below it nothing is followed."""
    allowed.file("a.txt")
    (allowed.above / "link").symlink_to(allowed.folder)
    settings = MailSettings(allowed_paths=(f"{allowed.above}/link/",))
    assert given(f"{allowed.above}/link/a.txt", settings).text == "report\n"


def test_nothing_may_be_mailed_where_no_folder_is_allowed(allowed: Allowed) -> None:
    """Without allowed folders each file that exists is outside."""
    path = allowed.file("a.txt")
    with pytest.raises(BadMail, match="none is allowed"):
        given(path, MailSettings())


def test_a_file_elsewhere_is_refused(allowed: Allowed) -> None:
    """Also next door, where the name only begins alike."""
    evil = allowed.above / "data-evil"
    evil.mkdir()
    (evil / "x").write_text("secret")
    for path in ("/etc/passwd", "/etc", "/", "//etc/passwd", evil / "x", allowed.folder):
        line = allowed.refusal(path)
        assert f"outside of the folders that may be mailed from ({allowed.folder})" in line


@each("detour", ["../secret", "a/../../secret", "./a.txt", "/a.txt", "a/"], allowed=Allowed)
def test_a_path_is_written_plainly(detour: str, allowed: Allowed) -> None:
    """With `..`, `.` or a double slash nobody can say at a glance where it leads."""
    (allowed.above / "secret").write_text("secret")
    allowed.file("a.txt")
    assert "expected a path without" in allowed.refusal(f"{allowed.folder}/{detour}")


def test_a_missing_file_of_an_allowed_folder_is_no_text(allowed: Allowed) -> None:
    """A report that was not written is told, and its path not mailed in place of it."""
    assert "No such file or directory" in allowed.refusal(allowed.folder / "missing.txt")
    assert "No such file or directory" in allowed.refusal(allowed.folder / "no" / "missing.txt")


def test_no_link_is_followed(allowed: Allowed) -> None:
    """Neither the last component nor one in the middle."""
    outside = allowed.above / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret")
    (allowed.folder / "last").symlink_to(outside / "secret")
    (allowed.folder / "middle").symlink_to(outside)
    (allowed.folder / "dangling").symlink_to(outside / "missing")
    assert "a symbolic link, not followed" in allowed.refusal(allowed.folder / "last")
    assert "a symbolic link, not followed" in allowed.refusal(allowed.folder / "dangling")
    assert "middle is a symbolic link" in allowed.refusal(allowed.folder / "middle" / "secret")


def test_a_second_name_of_a_file_is_refused(allowed: Allowed) -> None:
    """A hard link may have been made of any file, by somebody who may not read it."""
    (allowed.above / "secret").write_text("secret")
    os.link(allowed.above / "secret", allowed.folder / "harmless")
    assert "second hard link" in allowed.refusal(allowed.folder / "harmless")


def test_what_is_no_plain_file_is_refused_at_once(allowed: Allowed) -> None:
    """A FIFO without a writer, a socket, a folder, a device: the test does not wait for any."""
    os.mkfifo(allowed.folder / "fifo")
    (allowed.folder / "folder").mkdir()
    name = socket.socket(socket.AF_UNIX)
    name.bind(f"{allowed.folder}/socket")
    name.close()
    for path in ("fifo", "folder", "socket"):
        assert "no plain file" in allowed.refusal(allowed.folder / path)
    for path in ("/dev/zero", "/dev/full", "/dev/null"):
        with pytest.raises(BadMail, match=f"content {path}: no plain file"):
            given(path, MailSettings(allowed_paths=("/dev",)))


def bytes_read() -> int:
    """Bytes that this process has read so far, by whatever call (proc(5))."""
    counted = Path("/proc/self/io").read_text().split("\n")[0]
    return int(counted.removeprefix("rchar: "))


def test_a_huge_file_is_refused_before_it_is_read(allowed: Allowed) -> None:
    """A gigabyte costs no memory and no time."""
    path = allowed.file("huge.log", b"")
    os.truncate(path, 1 << 30)
    before = bytes_read()
    line = allowed.refusal(path, limit=10 << 20)
    assert "1,073,741,824 bytes, expected at most 10,485,760" in line
    assert bytes_read() - before < 1 << 16


def test_the_limit_itself_is_allowed(allowed: Allowed) -> None:
    """As many bytes as may be are read, and not one more."""
    path = allowed.file("a.txt", b"x" * 100)
    assert given(path, allowed.settings(limit=100)).text == "x" * 100
    assert "100 bytes, expected at most 99" in allowed.refusal(path, limit=99)


def test_a_file_that_grows_while_it_is_read_ends_all_the_same(
    allowed: Allowed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody who writes faster than we read gets his file refused, not an endless mail."""
    path = allowed.file("busy.log", b"line\n")
    read = os.read

    def read_while_it_grows(fd: int, size: int) -> bytes:
        with Path(path).open("ab") as log:
            log.write(b"line\n" * 100)
        return read(fd, min(size, 600))

    monkeypatch.setattr(os, "read", read_while_it_grows)

    assert "grew beyond 4,096 bytes while it was read" in allowed.refusal(path, limit=4096)


DROPPED = """
import os, sys
from engine.mail.content import given
from engine.mail.model import BadMail
from engine.mailconf import MailSettings
uid = int(sys.argv[1])
if uid:
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
for path in sys.argv[3:]:
    try:
        print("sent", given(path, MailSettings(allowed_paths=(sys.argv[2],))))
    except BadMail as refused:
        print(refused)
"""
"""Asks as somebody else; all is imported before, from where they may not be able to read."""


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that everybody can reach."""
    with tempfile.TemporaryDirectory(prefix="spooldeck-test-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder


def test_what_we_may_not_read_is_told(open_folder: Path) -> None:
    """A file without permission is refused; so is one that nobody may know of."""
    (open_folder / "data").mkdir()
    secret = open_folder / "data" / "secret"
    secret.write_text("secret")
    secret.chmod(0)
    closed = open_folder / "closed"
    closed.mkdir()
    (closed / "file").write_text("secret")
    closed.chmod(0)
    uid = NOBODY if os.geteuid() == 0 else 0

    asked = subprocess.run(
        [
            *(sys.executable, "-P", "-c", DROPPED, str(uid), str(open_folder / "data")),
            *(str(secret), str(closed / "file")),
        ],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    closed.chmod(0o755)

    first, second = asked.stdout.splitlines()
    assert first == f"content {secret}: Permission denied, expected a file that can be read"
    assert "outside of the folders" in second


# ---- bytes


def test_whatever_bytes_a_file_holds_become_text(allowed: Allowed) -> None:
    """What is no UTF-8 is U+FFFD, a NUL stays one, and a mark of byte order is none of it."""
    settings = allowed.settings()
    assert given(allowed.file("a", b"caf\xe9 \xff\n"), settings).text == "caf\ufffd \ufffd\n"
    assert given(allowed.file("b", b"a\0b\r\n"), settings).text == "a\0b\r\n"
    assert given(allowed.file("c", b"\xef\xbb\xbfabc"), settings).text == "abc"
    with pytest.raises(BadMail, match="an empty file, expected one that says something"):
        given(allowed.file("d", b" \n"), settings)


@whatever(st.binary(), st.booleans())
def test_the_bytes_of_a_body_are_always_content(data: bytes, html: bool) -> None:
    """Nothing raises, and the text can be encoded again."""
    of_body(data, html).text.encode("utf-8")


# ---- markup


@each("text", [
    "<html><body>x</body></html>", "<!DOCTYPE html>\n<title>x</title>", "\n  <p>x",
    "<h1 class='a'>x</h1>", "<div\nid=a>x</div>", "<br/>x",
    "<!-- made by a script --><table><tr><td>x</table>",
    '<?xml version="1.0"?><!DOCTYPE html><html/>', "<B>x</B>",
])  # fmt: skip
def test_what_begins_as_markup_is_markup(text: str) -> None:
    """Its first tag says so."""
    assert looks_like_html(text)


@each(
    "text", ["Hello <b>world</b>", "3 banned<br/>see <code>nft list</code> now\n"], allowed=Allowed
)
def test_one_line_with_formatting_tags_is_markup(text: str, allowed: Allowed) -> None:
    """Said itself it is a fragment of HTML; in a file of text it is what a log quotes."""
    settings = allowed.settings()
    assert given(text, settings).html
    assert not given(allowed.file("c.txt", text.encode()), settings).html


@each("text", [
    "", "a < b", "Failed login of user <b></b><!-- from 192.0.2.1", "Report\n<html>",
    "Report\n<b>x</b>\n", "<s>x</s> <b>y</b>", 'Login of <b style="display:none">x</b>',
    "1 > 0 <b>x</b>", "x <b>" * 20_000 + "\n\n", "x <b>" + " " * 100_000 + "<",
    "<admin@example.com> wrote:", "<b.smith@example.com> wrote:",
    "<34>Oct 11 22:14:15 su: failed", "<nil>", "< p >", "<p", "<!-- " + "x" * 100_000,
    "<!--" * 100_000, "<?xml " * 100_000, " " * 100_000, "&lt;p&gt;", "<script>alert(1)</script>",
    "<<p>",
])  # fmt: skip
def test_what_quotes_markup_is_text(text: str) -> None:
    """Somebody's name or a log line may hold tags; a report does not become a page by it."""
    assert not looks_like_html(text)
    assert not is_one_line_of_html(text)


def test_a_file_called_html_is_markup_if_it_holds_any(allowed: Allowed) -> None:
    """Its name is believed, but plain lines would run together on a page."""
    settings = allowed.settings()
    assert given(allowed.file("a.html", b"Hello <b>world</b>"), settings).html
    assert given(allowed.file("b.HTM", b"x<br>"), settings).html
    assert given(allowed.file("c.txt", b"<p>x</p>"), settings).html
    assert not given(allowed.file("d.txt", b"Hello <b>world</b>"), settings).html
    assert not given(allowed.file("e.html", b"one\ntwo\n"), settings).html


@whatever(st.text(st.sampled_from("<p>/ba x\n!-\ufeff")))
def test_content_is_the_same_out_of_the_spool(text: str) -> None:
    """What was spooled as a page or as text is one again when it is read back."""
    content = given(text.lstrip("/"), MailSettings())
    assert of_body(content.text.encode(), content.html) == content
