"""What a mail is to say: a text, or a file below one of the folders that may be mailed from."""

import errno
import os
import re
from typing import NamedTuple

from engine.config.mail_config import MailSettings
from engine.mail.model import BadMail
from engine.system import files
from engine.text.safe import REPLACEMENT, shown

_TAG = (
    r"<(?:!doctype\s+html|(?:html|head|body|div|p|table|h[1-6]|ul|ol|dl|pre|section|article|header|"
    r"main|center|blockquote|style|span|font|b|i|u|em|strong|code|a|br|hr|img|small|big)"
    r"(?:\s[^<>]*)?)/?>"
)
_INLINE = re.compile(
    r"[^<>\n]*(?:</?(?:b|i|u|em|strong|code|br|small|big)\s?/?>[^<>\n]*)+\n?", re.I
)
_COMMENT = r"<!--(?:(?!-->)[\s\S]){0,1000}-->"
_BEGINS = re.compile(rf"\s*(?:(?:<\?xml[^<>]*>|{_COMMENT})\s*){{0,9}}{_TAG}", re.I)
_HOLDS = re.compile(_TAG, re.I)
_SURROGATE = re.compile("[\ud800-\udfff]")

_NAMED_HTML = (".html", ".htm")


class Content(NamedTuple):
    """What a mail says, in one piece."""

    text: str
    """Proper Unicode; its lines may still end as they like."""
    html: bool
    """Whether it is markup; a text is shown as it stands, whatever it holds."""
    path: str = ""
    """The file that it was read from; "" when it was handed over itself."""


def given(said: str, settings: MailSettings) -> Content:
    """The content that is meant: the file of an absolute path, or else the words themselves.

    A path is one line that begins with `/`, if something lies there, if nobody may know, or if it
    leads below one of the folders of `allowed_paths`. Whatever else is text.

    Raises:
        BadMail: a file that may not be mailed, that cannot be read as one, or that is empty; more
            than `max_file_size` bytes.
    """
    if _means_path(said, settings.allowed_paths):
        data = _read(said, settings)
        if not data.strip():
            where = shown(said[:200])
            raise BadMail(f"content {where}: an empty file, expected one that says something")
        return of_body(data, said.lower().endswith(_NAMED_HTML))._replace(path=said)
    text = _SURROGATE.sub(REPLACEMENT, said).lstrip("\ufeff")
    # A character has four bytes at most: what is short need not be measured.
    if 4 * len(text) > settings.max_file_size:
        size = len(text.encode("utf-8"))
        if size > settings.max_file_size:
            most = f"expected at most {settings.max_file_size:,}"
            raise BadMail(f"content: {size:,} bytes of text, {most}")
    return Content(text, looks_like_html(text) or is_one_line_of_html(text))


def of_body(data: bytes, html: bool) -> Content:
    """The content that a file holds; `html` when its name says that it is markup.

    Bytes that are no UTF-8 become U+FFFD: a log with one wrong byte is worth reading. What its
    name calls HTML, and holds not one tag, is text: whole lines would run together.
    """
    text = data.decode("utf-8", "replace").lstrip("\ufeff")
    return Content(text, _HOLDS.search(text) is not None if html else looks_like_html(text))


def looks_like_html(text: str) -> bool:
    """Whether a text begins as markup does.

    Only its beginning counts, which is the author's: what is quoted further on may be anybody's,
    and must not turn a report into a page that hides half of it.
    """
    return _BEGINS.match(text) is not None


def is_one_line_of_html(text: str) -> bool:
    """Whether a text is one line with formatting tags and no other markup.

    Tags without attributes hide nothing, and a single line does not run together with others.
    """
    return _INLINE.fullmatch(text) is not None


def _means_path(said: str, allowed: tuple[str, ...]) -> bool:
    if not said.startswith("/") or "\n" in said or "\r" in said:
        return False
    try:
        os.stat(said, follow_symlinks=False)
    except (FileNotFoundError, NotADirectoryError):
        return any(said.startswith(_prefix(folder)) for folder in allowed)
    except OSError as error:
        return error.errno != errno.ENAMETOOLONG
    except ValueError:
        return False  # with a NUL or half of a surrogate pair it is nobody's name
    return True


def _prefix(folder: str) -> str:
    return folder.rstrip("/") + "/"


def _read(path: str, settings: MailSettings) -> bytes:
    """What a file holds, found component by component from an allowed folder."""
    where = f"content {shown(path[:200])}"
    folders = [folder for folder in settings.allowed_paths if path.startswith(_prefix(folder))]
    if not folders:
        allowed = " or ".join(settings.allowed_paths) or "none is allowed"
        raise BadMail(f"{where}: outside of the folders that may be mailed from ({allowed})")
    # The longest one: how an allowed folder itself is reached is the operator's word.
    folder = max(folders, key=len)
    below = path[len(_prefix(folder)) :].split("/")
    if any(part in ("", ".", "..") for part in below):
        raise BadMail(f"{where}: expected a path without . and .. and double slashes")
    try:
        return _read_below(folder, path, settings.max_file_size)
    except files.Refused as refusal:
        raise BadMail(f"{where}: {refusal}") from refusal
    except OSError as error:
        why = "a symbolic link, not followed" if error.errno == errno.ELOOP else error.strerror
        raise BadMail(f"{where}: {why}, expected a file that can be read") from error


def _read_below(folder: str, path: str, limit: int) -> bytes:
    dir_fd = files.reach(os.path.dirname(path), folder)
    try:
        fd = files.open_plain(os.path.basename(path), dir_fd)
    finally:
        os.close(dir_fd)
    try:
        return files.read_guarded(fd, limit)[0]
    finally:
        os.close(fd)
