"""Mail merge: an operator's text with placeholders for each recipient's values.

A placeholder is `{name}`, as in the template. All values are inserted in one pass and never
searched again; in HTML they are escaped. Other braces stay, as in a style sheet.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Mapping
from html import escape

from engine.mail.message.compose import is_whole_page
from engine.mail.message.content import Content, content_of_file, read_plain_file
from engine.mail.message.template import MAX_PART_BYTES
from engine.mail.model import BadMail
from engine.system import files
from engine.text.error_text import error_text
from engine.text.safe import safe_line, safe_lines

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


def load_merge_template(path: str) -> Content:
    """Load a mail merge template from a file; it is HTML by its name or its beginning, else text.
    Raises BadMail: it cannot be read, is empty or is not UTF-8."""
    where = f"template {safe_line(path)}"
    try:
        data = read_plain_file(path, MAX_PART_BYTES)
        # A person wrote this file, not a program: invalid UTF-8 in it is a mistake.
        data.decode("utf-8")
    except OSError as error:
        why = "a symbolic link, not followed" if error.errno == errno.ELOOP else error_text(error)
        raise BadMail(f"{where}: {why}") from error
    except files.Refused as refusal:
        raise BadMail(f"{where}: {refusal}") from refusal
    except UnicodeDecodeError as error:
        raise BadMail(f"{where}: not UTF-8 at byte {error.start}") from error
    content = content_of_file(path, data)
    if not content.text.strip():
        raise BadMail(f"{where}: it is empty")
    return content


def placeholder_names(text: str) -> frozenset[str]:
    """Return the names of the placeholders in a text."""
    return frozenset(_PLACE.findall(text))


def merge_values(letter: Content, subject: str, values: Mapping[str, str]) -> tuple[Content, str]:
    """Return content and subject with the values inserted; HTML that is not a whole page becomes
    one. Raises BadMail: a placeholder has no value."""
    where = f"template {safe_line(letter.path)}" if letter.path else "the letter"
    text = _insert_values(letter.text, values, where, html=letter.html)
    title = " ".join(_insert_values(subject, values, "the subject", html=False).split())
    if letter.html and not is_whole_page(text):
        end = "" if text.endswith("\n") else "\n"
        text = _PAGE.format(title=escape(title), body=text + end)
    return letter._replace(text=text), title


def _insert_values(text: str, values: Mapping[str, str], where: str, *, html: bool) -> str:
    if lacking := describe_missing_values(text, values):
        raise BadMail(f"{where}: {lacking}")
    ready = {name: "\n".join(safe_lines(value)) for name, value in values.items()}
    if html:
        ready = {name: escape(value) for name, value in ready.items()}
    return _PLACE.sub(lambda match: ready[match[1]], text)


def describe_missing_values(text: str, names: Mapping[str, object] | frozenset[str]) -> str:
    """Return a message about placeholders without a value; "" if all have one."""
    unknown = sorted(placeholder_names(text) - set(names))
    if not unknown:
        return ""
    return f"no value for {', '.join(f'{{{name}}}' for name in unknown)}"
