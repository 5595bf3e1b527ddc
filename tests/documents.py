"""The documents of the project, and the commands that they print."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]

_FOLDERS = ROOT.glob("*.md"), (ROOT / "engine").rglob("*.md"), (ROOT / "tui").rglob("*.md")
DOCUMENTS = sorted(path.relative_to(ROOT).as_posix() for paths in _FOLDERS for path in paths)


class Printed(NamedTuple):
    """A command that a document prints."""

    document: str
    text: str
    """Without a comment; lines that continue a line of a table of commands are joined to it."""

    @property
    def is_usage(self) -> bool:
        """True for a line of a table of commands, with alternatives and optional words."""
        return bool(re.search(r"\[[^]]*\]|\w\|\w| \| |\.\.\.", self.text))


@cache
def read(document: str) -> str:
    """The text of a document."""
    return (ROOT / document).read_text(encoding="utf-8")


def without_code(text: str) -> str:
    """A document without its blocks of code."""
    return re.sub(r"(?ms)^```.*?^```$", "", text)


def printed_commands(document: str, program: str) -> Iterator[Printed]:
    """Each command line of a program in the blocks of code, and in the text in backquotes."""
    text = read(document)
    blocks = [*re.findall(r"(?ms)^```\w*$(.*?)^```$", text), *re.findall(r"(?m)^    .*$", text)]
    for block in blocks:
        for lines in re.findall(rf"(?m)^ *({program} .*(?:\n {{10,}}.*)*)", block):
            first, *others = lines.splitlines()
            parts = re.split(r"\s+#|\s{3,}", first)
            # What is behind a usage is its meaning, and so is a line that begins at that column.
            more = [one.strip() for one in others if one.strip()[:1] in "[("]
            yield Printed(document, " ".join((parts[0].strip(), *more)))
    for words in re.findall(rf"`({program} [^`]*)`", without_code(text)):
        yield Printed(document, " ".join(words.split()))


def anchors(document: str) -> set[str]:
    """The anchors of the headings of a document, as GitHub makes them."""
    found = set[str]()
    for heading in re.findall(r"(?m)^#+ (.*)$", without_code(read(document))):
        words = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower()
        anchor = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        numbered = (anchor, *(f"{anchor}-{number}" for number in range(1, 99)))
        found.add(next(one for one in numbered if one not in found))
    return found
