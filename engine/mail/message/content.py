"""The content of a mail: a text, or a file in one of the folders from which mail is allowed."""

import errno
import os
import re
from collections.abc import Callable

from engine.config.mail_config import MailSettings
from engine.mail.model import BadMail
from engine.system import files
from engine.text.error_text import error_text
from engine.text.safe import REPLACEMENT, safe_line
from engine.values import NamedTuple

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


class Content(NamedTuple):
    """The content of a mail."""

    text: str
    """Valid Unicode; any line ends."""
    html: bool
    """True if it is markup; otherwise it is shown literally."""
    path: str = ""
    """The file that it was read from; "" if it was passed as text."""


def load_content(argument: str, settings: MailSettings) -> Content:
    """Return the content for an argument: the file if it is an absolute path, else the text itself.

    It is a path if it is one line that begins with `/` and something exists there, the check is not
    permitted, or it is below one of `allowed_paths`.

    Raises:
        BadMail: the file is not allowed or not readable, or the content is larger than
            `max_file_size` bytes.
    """
    if _is_path_argument(argument, settings.allowed_paths):
        return content_of_file(argument, _read_allowed(argument, settings))
    text = _SURROGATE.sub(REPLACEMENT, argument).lstrip("\ufeff")
    # A character has at most four bytes, so a short text need not be measured.
    if 4 * len(text) > settings.max_file_size:
        size = len(text.encode("utf-8"))
        if size > settings.max_file_size:
            most = f"expected at most {settings.max_file_size:,}"
            raise BadMail(f"content: {size:,} bytes of text, {most}")
    return Content(text, looks_like_html(text) or is_one_line_of_html(text))


def cut_content(argument: str, settings: MailSettings) -> Content:
    """Return what can be kept of an argument that is no valid content: the text itself, also that
    of a path, cut to `max_file_size` bytes."""
    text = _SURROGATE.sub(REPLACEMENT, argument)
    if 4 * len(text) > settings.max_file_size:
        text = text.encode("utf-8")[: settings.max_file_size].decode("utf-8", "ignore")
    return Content(text, html=False)


def content_from_bytes(data: bytes, html: bool) -> Content:
    """Return the content of a file; `html` if its name says that it is markup. Invalid UTF-8
    becomes U+FFFD: a log with one wrong byte is worth reading. A file with an HTML name and no tag
    is treated as text, else its lines would run together."""
    text = data.decode("utf-8", "replace").lstrip("\ufeff")
    return Content(text, _HOLDS.search(text) is not None if html else looks_like_html(text))


def content_of_file(path: str, data: bytes) -> Content:
    """Return the content of a file; its name says whether it is markup."""
    html = path.lower().endswith((".html", ".htm"))
    return content_from_bytes(data, html)._replace(path=path)


def looks_like_html(text: str) -> bool:
    """True if a text begins as markup does. Only the beginning counts, as the author wrote it. Text
    quoted further on may come from others, and must not turn a report into a page that hides half
    of it."""
    return _BEGINS.match(text) is not None


def is_one_line_of_html(text: str) -> bool:
    """True if a text is one line with formatting tags and no other markup. Tags without attributes
    hide nothing, and a single line does not run together with others."""
    return _INLINE.fullmatch(text) is not None


def _is_path_argument(argument: str, allowed: tuple[str, ...]) -> bool:
    if not argument.startswith("/") or "\n" in argument or "\r" in argument:
        return False
    try:
        os.stat(argument, follow_symlinks=False)
    except (FileNotFoundError, NotADirectoryError):
        return any(argument.startswith(_folder_prefix(folder)) for folder in allowed)
    except OSError as error:
        return error.errno != errno.ENAMETOOLONG
    except ValueError:
        return False  # a NUL or a lone surrogate cannot be in a file name
    return True


def _folder_prefix(folder: str) -> str:
    return folder.rstrip("/") + "/"


def _read_allowed(path: str, settings: MailSettings) -> bytes:
    """Read a file, opening each component below an allowed folder without following links."""
    where = f"content {safe_line(path[:200])}"
    folders = [
        folder for folder in settings.allowed_paths if path.startswith(_folder_prefix(folder))
    ]
    if not folders:
        allowed = " or ".join(settings.allowed_paths) or "none"
        raise BadMail(f"{where}: outside the folders allowed for mail ({allowed})")
    # The longest match: symbolic links in the path of an allowed folder itself are the operator's
    # choice.
    folder = max(folders, key=len)
    below = path[len(_folder_prefix(folder)) :].split("/")
    if any(part in ("", ".", "..") for part in below):
        raise BadMail(f"{where}: expected a path without . and .. and double slashes")
    try:
        return read_plain_file(path, settings.max_file_size, folder, _open_outgoing)
    except files.Refused as refusal:
        raise BadMail(f"{where}: {refusal}") from refusal
    except OSError as error:
        why = "a symbolic link, not followed" if error.errno == errno.ELOOP else error_text(error)
        raise BadMail(f"{where}: {why}, expected a file that can be read") from error


def _open_outgoing(name: str, dir_fd: int) -> int:
    return files.open_outgoing(name, dir_fd, os.fstat(dir_fd), files.open_plain)


def read_plain_file(
    path: str, limit: int, root: str = "", open_fd: Callable[[str, int], int] = files.open_plain
) -> bytes:
    """Read a file of at most `limit` bytes; below `root` no symbolic link is followed. Raises
    OSError: it cannot be read; Refused: it is larger, or not a plain file."""
    dir_fd = files.open_dir_path(os.path.dirname(path), root)
    try:
        fd = open_fd(os.path.basename(path), dir_fd)
    finally:
        os.close(dir_fd)
    try:
        return files.read_guarded(fd, limit)[0]
    finally:
        os.close(fd)
