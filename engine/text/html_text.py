"""Convert HTML to text in one pass, in linear time for any input."""

from __future__ import annotations

import html
import re
from contextlib import suppress

_SKIPPED = {"script", "style", "head", "title", "template"}
_is_break = re.compile(
    "p|br|div|tr|li|ul|ol|table|blockquote|hr|pre|section|h[1-6]|header|footer|article|dt|dd"
).fullmatch
_CELLS = {"td", "th"}
_LINK = re.compile(r"""\shref\s*=\s*["']?\s*((?:https?|mailto):[^\s"'<>]+)""", re.IGNORECASE)
_TAG = re.compile(r"/?([a-zA-Z][a-zA-Z0-9]{0,20})")
_LOWER = str.maketrans({chr(c): chr(c + 32) for c in range(65, 91)})


def html_to_text(page: str, *, links: bool = False) -> str:
    """The text of a page without tags, scripts and styles; with `links`, URLs follow their text.
    The parser of the standard library takes quadratic time for some pages."""
    lower = page.translate(_LOWER)  # of the same length, unlike str.lower()
    text: list[str] = []
    at, is_preformatted, link = 0, False, ""
    while at < len(page):
        begin = page.find("<", at)
        begin = len(page) if begin < 0 else begin
        part = page[at:begin]
        text.append(part if is_preformatted else re.sub(r"[\r\n\t ]+", " ", part))
        if page.startswith("<!--", begin):
            at = _position_after(page, "-->", begin)
            continue
        tag = _TAG.match(lower, begin + 1)
        if tag is None and page[begin + 1 : begin + 2] not in ("!", "?", "/"):
            text.append(page[begin : begin + 1])
            at = begin + 1
            continue
        at = _position_after(page, ">", begin)
        name = tag[1] if tag else ""
        closes = page.startswith("/", begin + 1)
        if name in _SKIPPED and not closes:
            end = lower.find(f"</{name}", at)
            at = len(page) if end < 0 else end
        elif name == "pre":
            is_preformatted = not closes
        elif name == "a" and links:
            if link and link != text[-1].strip():
                text.append(f" ({link})")
            match = None if closes else _LINK.search(page, begin, at)
            link = match[1] if match else ""
        text.append("\n" if _is_break(name) else " " if name in _CELLS else "")
    return _tidy_lines("".join(text))


def _position_after(page: str, what: str, at: int) -> int:
    end = page.find(what, at)
    return len(page) if end < 0 else end + len(what)


def _tidy_lines(text: str) -> str:
    with suppress(ValueError):  # a character reference with thousands of digits: keep it as it is
        text = html.unescape(text)
    lines: list[str] = []
    for line in text.split("\n"):
        bare = line.strip(" ") if not line.startswith("  ") else line.rstrip()
        if bare or (lines and lines[-1]):
            lines.append(bare)
    return "\n".join(lines).rstrip("\n")
