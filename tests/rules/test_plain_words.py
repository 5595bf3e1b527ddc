"""Plain words: no name, string, docstring, comment or document has a word of a short list."""

import ast
import io
import re
import tokenize
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from tests.documents import DOCUMENTS
from tests.tables import each

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

BETWEEN_WORDS = re.compile(r"\\n|\b[rbf]{1,2}(?=[\"'])|[\W_]+", re.IGNORECASE)
WORDS = re.compile(rf"\b(?:{'|'.join(BANNED)})\b".replace(" ", r"[\s#]+"), re.IGNORECASE)

MODULES = sorted(p for top in ("engine", "tui", "tests") for p in (ROOT / top).rglob("*.py"))
UNITS = sorted(p for p in (ROOT / "tui/cli/texts").iterdir() if p.is_file())


ACCOUNTS = {
    "tests/mailq_server.py",
    "tests/postgres_server.py",
    "tests/engine/formats/nftban/doctor/test_doctor.py",
    "tests/engine/formats/zgb/test_connection_rights.py",
    "tests/engine/formats/zmailer/mailq/test_client.py",
    "tests/engine/formats/zmailer/mailq/test_report_text.py",
    "tests/engine/formats/zmailer/mailq/test_server.py",
    "tests/engine/formats/zmailer/mailq_store/test_store.py",
    "tests/engine/mail/test_run_program.py",
    "tests/engine/mail/transports/test_transports_programs.py",
    "tests/engine/system/test_users.py",
    "tests/tui/cli/formats/nftban/test_shell_and_units.py",
    "tests/tui/cli/test_cli_owners.py",
}
"""Modules that mean the account `nobody` of a system, or the user `nobody` of a ZMailer."""


def texts(source: str) -> Iterator[tuple[int, str]]:
    """Yield each comment and name of a module, and each string; adjacent literals as one."""
    names = dict[str, int]()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
        elif token.type == tokenize.NAME:
            names.setdefault(token.string.replace("_", " "), token.start[0])
    yield from ((line, name) for name, line in names.items())
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


def hits(path: Path) -> Iterator[str]:
    """Yield "path:line: word" for each banned word in a file."""
    source, name = path.read_text(encoding="utf-8"), str(path.relative_to(ROOT))
    pairs: Iterable[tuple[int, str]] = [(1, source)]
    if path.suffix == ".py":
        # Most modules have none, also not across adjacent literals: these need no parsing.
        pairs = texts(source) if WORDS.search(BETWEEN_WORDS.sub(" ", source)) else ()
    for number, text in pairs:
        for match in WORDS.finditer(text):
            line, word = number + text.count("\n", 0, match.start()), " ".join(match[0].split())
            if word != "nobody" or name not in ACCOUNTS:
                yield f"{name}:{line}: {word}"


def test_no_module_has_a_banned_word() -> None:
    """Names, strings and comments of the engine, the console and the tests have no banned word."""
    wrong = [hit for path in MODULES if path != Path(__file__) for hit in hits(path)]
    assert not wrong, "\n".join(wrong)
    assert not [name for name in ACCOUNTS if "nobody" not in (ROOT / name).read_text()]


def test_no_document_and_no_unit_has_a_banned_word() -> None:
    """The documents, and the units and functions that are written out, have no banned word."""
    wrong = [hit for path in (*(ROOT / name for name in DOCUMENTS), *UNITS) for hit in hits(path)]
    assert not wrong


@each(
    ("source", "words"),
    [
        ('"""Nobody has it."""', ["Nobody"]),
        ("x = 1  # in hand", ["in hand"]),
        ("def test_in_hand(): ...", ["in hand"]),
        ('"""A task that was set\naside."""', ["set aside"]),
        ('f"{x} is {y}, told of"', ["told of"]),
        ('("it was set "\nf"aside")', ["set aside"]),
        ('"the operator undoes it"', []),
    ],
)
def test_a_banned_word_is_found(
    source: str, words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A word is found in names, docstrings, comments and f-strings, also across line ends."""
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    path = tmp_path / "module.py"
    path.write_text(source)
    assert [hit.split(": ")[1] for hit in hits(path)] == words
