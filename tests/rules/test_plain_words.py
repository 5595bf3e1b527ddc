"""Text in plain words: no string, docstring, comment or document has a word of a short list."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

BANNED = {
    r"nobody|no one": "no worker, no process, no user, none",
    r"somebody|someone": "another process, an operator",
    r"whoever|whomever": "the caller, any process that",
    r"anew": "again",
    r"in hand": "claimed, open, locked",
    r"let(?:s|ting)? go of": "release, close, detach",
    r"(?:had|have) back": "restored",
    r"tak(?:e|es|en|ing) back": "undo, undone",
    r"set(?:s|ting)? aside": "quarantined, moved to the trash",
    r"alike with alike": "grouped by error",
    r"as if new": "attempts reset",
    r"signs? of life": "heartbeat",
    r"cannot be meant": "is invalid",
    r"tells? (?:of|nothing)|told of|speaks? of": "reports, mentions, names",
    r"left out": "omitted, excluded, skipped",
    r"whatever": "any",
    r"(?:stands?|stood) (?:in|beside|for|at|on|there)": "is in, is beside, means",
    r"let(?:ting)? be": "abandoned",
    r"leads on": "is the next step",
    r"is at work": "is running",
    r"while it lasted": "in that time",
    r"never empty: (?:growing|grows|steady)": "growing, stalled",
    r"hitherto|whereupon|thereof": "until now, then, of it",
}
"""Each pattern of words with what to write instead; a space also matches the end of a line."""

WORDS = re.compile(rf"\b(?:{'|'.join(BANNED)})\b".replace(" ", r"[\s#]+"), re.IGNORECASE)

DOCUMENTS = ("README.md", "MANUAL.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")
MODULES = sorted(p for folder in ("engine", "tui") for p in (ROOT / folder).rglob("*.py"))
UNITS = sorted(p for p in (ROOT / "tui/cli/texts").iterdir() if p.is_file())


def texts(source: str) -> Iterator[tuple[int, str]]:
    """Yield each comment of a module, and each string with its line; adjacent literals as one."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


def hits(path: Path) -> Iterator[str]:
    """Yield "path:line: word" for each banned word in a file."""
    source = path.read_text(encoding="utf-8")
    pairs = texts(source) if path.suffix == ".py" else [(1, source)]
    for number, text in pairs:
        for match in WORDS.finditer(text):
            line = number + text.count("\n", 0, match.start())
            yield f"{path.relative_to(ROOT)}:{line}: {' '.join(match[0].split())}"


def test_no_module_has_a_banned_word() -> None:
    """Strings, docstrings and comments of the engine and the console have no banned word."""
    matches = [hit for path in MODULES for hit in hits(path)]

    assert not matches, "\n".join(matches)


def test_no_document_and_no_unit_has_a_banned_word() -> None:
    """The documents, and the units and functions that are written out, have no banned word."""
    matches = [hit for path in (*(ROOT / name for name in DOCUMENTS), *UNITS) for hit in hits(path)]

    assert not matches


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ('"""Nobody has it."""', ["Nobody"]),
        ("x = 1  # in hand", ["in hand"]),
        ('"""A task that was set\naside."""', ["set aside"]),
        ('f"{x} is {y}, told of"', ["told of"]),
        ('"the operator undoes it"', []),
    ],
)
def test_a_banned_word_is_found(
    source: str, words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A word is found in docstrings, comments and f-strings, also across the end of a line."""
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    path = tmp_path / "module.py"
    path.write_text(source)

    assert [hit.split(": ")[1] for hit in hits(path)] == words
