"""The content of a mail: words, or a file that may be mailed; text or HTML."""

import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given as for_any
from hypothesis import strategies as st

from engine.config.mail_config import MailSettings
from engine.mail.message.content import (
    Content,
    content_from_bytes,
    is_one_line_of_html,
    load_content,
    looks_like_html,
)
from engine.mail.model import BadMail
from tests.engine.task_builders import ROOT
from tests.tables import each


class Allowed:
    """A folder that may be mailed from, and the folder above it."""

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
            load_content(str(path), self.settings(limit))
        line = str(refused.value)
        assert line.startswith("content ")
        assert line.isprintable()
        return line


@pytest.fixture
def allowed(tmp_path: Path) -> Allowed:
    """A folder that may be mailed from."""
    return Allowed(tmp_path)


@each("words", [
    "Hello", "", "/ is full", "/no/such/file", "/etc/passwd/too", "/help\nand more", "/var/\0",
    "/\ud800", "/" + "x" * 5000, "relative/report.txt", "../data/report.txt", "~/report.txt",
    "file:///etc/passwd", " /etc/passwd",
], allowed=Allowed)  # fmt: skip
def test_words_that_are_no_path_are_text(words: str, allowed: Allowed) -> None:
    """Words that only look like a path are the content."""
    content = load_content(words, allowed.settings())
    assert content == Content(words.replace("\ud800", "\ufffd"), html=False)


def test_a_file_below_an_allowed_folder_is_read(allowed: Allowed) -> None:
    """Its text is the content, with its path; the allowed folder itself may be a link."""
    path = allowed.file("reports/daily.txt", "Grüße\n".encode())
    assert load_content(path, allowed.settings()) == Content("Grüße\n", html=False, path=path)
    (allowed.above / "link").symlink_to(allowed.folder)
    settings = MailSettings(allowed_paths=(f"{allowed.above}/link/",))
    assert load_content(f"{allowed.above}/link/reports/daily.txt", settings).text == "Grüße\n"


def test_text_and_files_have_a_limit_in_bytes(allowed: Allowed) -> None:
    """As many bytes as the limit are taken, and not one more."""
    assert load_content("ä" * 5, allowed.settings(limit=10)).text == "ä" * 5
    with pytest.raises(BadMail, match="12 bytes of text, expected at most 10"):
        load_content("ä" * 6, allowed.settings(limit=10))
    path = allowed.file("a.txt", b"x" * 100)
    assert load_content(path, allowed.settings(limit=100)).text == "x" * 100
    assert "100 bytes, expected at most 99" in allowed.refusal(path, limit=99)


LINK = "a symbolic link, not followed"


@each(("path", "why"), [
    *((f"FOLDER/{path}", "expected a path without") for path in (
        "../secret", "a/../../secret", "./a.txt", "/a.txt", "a/",
    )),
    *((path, "outside the folders allowed for mail (FOLDER)") for path in (
        "/etc/passwd", "/etc", "/", "//etc/passwd", "FOLDER-evil/x", "FOLDER",
    )),
    ("FOLDER/last", LINK), ("FOLDER/dangling", LINK),
    ("FOLDER/middle/secret", "middle/secret: a symbolic link"),
    ("FOLDER/harmless", "second hard link"),
    ("FOLDER/missing.txt", "No such file or directory"),
    ("FOLDER/no/missing.txt", "No such file or directory"),
    *((f"FOLDER/{path}", "not a regular file") for path in ("fifo", "folder", "socket")),
], allowed=Allowed)  # fmt: skip
def test_a_file_that_may_not_be_mailed_is_refused(allowed: Allowed, path: str, why: str) -> None:
    """A path is plain and inside of an allowed folder; no link or foreign hard link is followed, no
    special file is waited for, and a missing report is no text."""
    folder, evil = allowed.folder, allowed.above / "data-evil"
    evil.mkdir()
    for secret in (allowed.above / "secret", evil / "x"):
        secret.write_text("secret")
    allowed.file("a.txt")
    for name, target in (("last", evil / "x"), ("middle", evil), ("dangling", evil / "missing")):
        (folder / name).symlink_to(target)
    os.link(evil / "x", folder / "harmless")
    folder.chmod(0o777)
    os.mkfifo(folder / "fifo")
    (folder / "folder").mkdir()
    with socket.socket(socket.AF_UNIX) as special:
        special.bind(f"{folder}/socket")
    line = allowed.refusal(path.replace("FOLDER", str(folder)))
    assert why.replace("FOLDER", str(folder)) in line


def test_without_allowed_folders_each_file_is_outside(allowed: Allowed) -> None:
    """The refusal says that there are none; a device is refused in a folder that is allowed."""
    with pytest.raises(BadMail, match=r"\(none\)"):
        load_content(allowed.file("a.txt"), MailSettings())
    for path in ("/dev/zero", "/dev/full", "/dev/null"):
        with pytest.raises(BadMail, match=f"content {path}: not a regular file"):
            load_content(path, MailSettings(allowed_paths=("/dev",)))


def test_a_huge_file_is_refused_before_it_is_read(allowed: Allowed) -> None:
    """A file of a gigabyte is refused after reading less than 64 KiB (proc(5), rchar)."""

    def bytes_read() -> int:
        return int(Path("/proc/self/io").read_text().split("\n")[0].removeprefix("rchar: "))

    path = allowed.file("huge.log", b"")
    os.truncate(path, 1 << 30)
    before = bytes_read()
    line = allowed.refusal(path, limit=10 << 20)
    assert "1,073,741,824 bytes, expected at most 10,485,760" in line
    assert bytes_read() - before < 1 << 16


def test_a_growing_file_is_refused(allowed: Allowed, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that grows faster than it is read is refused at the limit."""
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
from engine.mail.message.content import load_content
from engine.mail.model import BadMail
from engine.config.mail_config import MailSettings
uid = int(sys.argv[1])
if uid:
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
for path in sys.argv[3:]:
    try:
        print("sent", load_content(path, MailSettings(allowed_paths=(sys.argv[2],))))
    except BadMail as refused:
        print(refused)
"""
"""Asks as another user; all is imported before, from where they may not be able to read."""


def test_an_unreadable_file_is_refused() -> None:
    """A file without permission is refused, and so is one in a folder closed to us."""
    with tempfile.TemporaryDirectory(prefix="spooldeck-test-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        secret, closed = folder / "data/secret", folder / "closed"
        for path in (secret, closed / "file"):
            path.parent.mkdir()
            path.write_text("secret")
        secret.chmod(0)
        closed.chmod(0)
        uid = 65534 if os.geteuid() == 0 else 0
        argv = [sys.executable, "-P", "-c", DROPPED, str(uid), str(folder / "data")]
        argv += [str(secret), str(closed / "file")]
        env = os.environ | {"PYTHONPATH": str(ROOT)}
        asked = subprocess.run(argv, capture_output=True, text=True, check=True, env=env)
        closed.chmod(0o755)
    first, second = asked.stdout.splitlines()
    assert first == f"content {secret}: Permission denied, expected a file that can be read"
    assert "outside the folders" in second


@each(("data", "text"), [
    (b"caf\xe9 \xff\n", "caf\ufffd \ufffd\n"), (b"a\0b\r\n", "a\0b\r\n"),
    (b"\xef\xbb\xbfabc", "abc"), (b"", ""),
], allowed=Allowed)  # fmt: skip
def test_any_bytes_of_a_file_become_text(allowed: Allowed, data: bytes, text: str) -> None:
    """Invalid UTF-8 becomes U+FFFD, a NUL stays, a byte order mark goes; an empty file is sent."""
    assert load_content(allowed.file("a", data), allowed.settings()).text == text


@for_any(st.binary(), st.booleans())
def test_the_bytes_of_a_body_are_always_content(data: bytes, html: bool) -> None:
    """Nothing raises, and the text can be encoded again."""
    content_from_bytes(data, html).text.encode("utf-8")


@each("text", [
    "<html><body>x</body></html>", "<!DOCTYPE html>\n<title>x</title>", "\n  <p>x",
    "<h1 class='a'>x</h1>", "<div\nid=a>x</div>", "<br/>x",
    "<!-- made by a script --><table><tr><td>x</table>",
    '<?xml version="1.0"?><!DOCTYPE html><html/>', "<B>x</B>",
])  # fmt: skip
def test_text_that_begins_with_a_tag_is_markup(text: str) -> None:
    """The first tag decides, behind blanks, comments and declarations."""
    assert looks_like_html(text)


@each("text", [
    "", "a < b", "Failed login of user <b></b><!-- from 192.0.2.1", "Report\n<html>",
    "Report\n<b>x</b>\n", "<s>x</s> <b>y</b>", 'Login of <b style="display:none">x</b>',
    "1 > 0 <b>x</b>", "x <b>" * 20_000 + "\n\n", "x <b>" + " " * 100_000 + "<",
    "<admin@example.com> wrote:", "<b.smith@example.com> wrote:",
    "<34>Oct 11 22:14:15 su: failed", "<nil>", "< p >", "<p", "<!-- " + "x" * 100_000,
    "<!--" * 100_000, "<?xml " * 100_000, " " * 100_000, "&lt;p&gt;", "<script>alert(1)</script>",
    "<<p>",
])  # fmt: skip
def test_text_that_quotes_markup_is_text(text: str) -> None:
    """Tags in a name or a log line do not make a page of a report."""
    assert not looks_like_html(text)
    assert not is_one_line_of_html(text)


@each(("name", "text", "html"), [
    *((name, text, not name) for name in ("", "c.txt") for text in (
        "Hello <b>world</b>", "3 banned<br/>see <code>nft list</code> now\n",
    )),
    ("a.html", "Hello <b>world</b>", True), ("b.HTM", "x<br>", True), ("c.txt", "<p>x</p>", True),
    ("e.html", "one\ntwo\n", False),
], allowed=Allowed)  # fmt: skip
def test_words_and_files_have_own_rules(allowed: Allowed, name: str, text: str, html: bool) -> None:
    """One line of words with tags is a fragment of HTML; a file needs a name or a first tag."""
    content = allowed.file(name, text.encode()) if name else text
    assert load_content(content, allowed.settings()).html is html


@for_any(st.text(st.sampled_from("<p>/ba x\n!-\ufeff")))
def test_content_survives_the_spool(text: str) -> None:
    """A spooled page or text is the same content when it is read back."""
    content = load_content(text.lstrip("/"), MailSettings())
    assert content_from_bytes(content.text.encode(), content.html) == content
