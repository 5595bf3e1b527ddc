"""Letters to many: a text of the operator's in which each one's own values take their places.

A place is `{name}`, as in the page around other mail. Values are put in all at once and never
looked at again; in HTML they are escaped. Braces around anything but a name stay as they are, as
in a style sheet.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Mapping
from html import escape

from engine.mail.message.compose import is_page
from engine.mail.message.content import Content, of_body
from engine.mail.message.template import LIMIT
from engine.mail.model import BadMail
from engine.system import files
from engine.text.safe import shown, shown_lines

_PLACE = re.compile(r"\{([^\W\d]\w*)\}")

_PAGE = """\
<!DOCTYPE html>
<html>
<head>
<meta charset="utf-8">
<title>{title}</title>
</head>
<body>
{body}</body>
</html>
"""


def load(path: str) -> Content:
    """A letter as it lies in a file: HTML by its name or by how it begins, or text.

    Raises:
        BadMail: it cannot be read, or is no letter.
    """
    where = f"template {shown(path)}"
    try:
        dir_fd = files.reach(os.path.dirname(path))
        try:
            fd = files.open_plain(os.path.basename(path), dir_fd)
        finally:
            os.close(dir_fd)
        try:
            data = files.read_guarded(fd, LIMIT)[0]
        finally:
            os.close(fd)
        # A letter is one person's work, not a log: what is not UTF-8 in it is a mistake.
        data.decode("utf-8")
    except OSError as error:
        why = "a symbolic link, not followed" if error.errno == errno.ELOOP else error.strerror
        raise BadMail(f"{where}: {why}") from error
    except files.Refused as refusal:
        raise BadMail(f"{where}: {refusal}") from refusal
    except UnicodeDecodeError as error:
        raise BadMail(f"{where}: not UTF-8 at byte {error.start}") from error
    content = of_body(data, path.lower().endswith((".html", ".htm")))
    if not content.text.strip():
        raise BadMail(f"{where}: it is empty")
    return content._replace(path=path)


def places(text: str) -> frozenset[str]:
    """The names that a text has places for."""
    return frozenset(_PLACE.findall(text))


def merged(letter: Content, subject: str, values: Mapping[str, str]) -> tuple[Content, str]:
    """A letter and its subject, the values put in; HTML that is no whole page becomes one.

    Raises:
        BadMail: there is no value for one of the places.
    """
    where = f"template {shown(letter.path)}" if letter.path else "the letter"
    text = _put(letter.text, values, where, html=letter.html)
    title = " ".join(_put(subject, values, "the subject", html=False).split())
    if letter.html and not is_page(text):
        end = "" if text.endswith("\n") else "\n"
        text = _PAGE.format(title=escape(title), body=text + end)
    return letter._replace(text=text), title


def _put(text: str, values: Mapping[str, str], where: str, *, html: bool) -> str:
    if lacking := lacks(text, values):
        raise BadMail(f"{where}: {lacking}")
    ready = {name: "\n".join(shown_lines(value)) for name, value in values.items()}
    if html:
        ready = {name: escape(value) for name, value in ready.items()}
    return _PLACE.sub(lambda found: ready[found[1]], text)


def lacks(text: str, names: Mapping[str, object] | frozenset[str]) -> str:
    """Which places of a text nothing is there for, in words; "" when there is for all."""
    unknown = sorted(places(text) - set(names))
    if not unknown:
        return ""
    return f"nothing is there for {', '.join(f'{{{name}}}' for name in unknown)}"
