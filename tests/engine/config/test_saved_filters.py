"""Saved filters: `@name` in a filter, and the file that they are kept in."""

import json
import os
import stat
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from engine.config.saved_filters import SavedFilterError, lookup_in, read_filters, save_filter
from engine.index.filter_language import BadFilter, parse_filter
from engine.system.files import Flock
from tests.examples import examples

SAVED = {
    "old": "age>2h !healthz", "both": "550|421", "inner": "@old", "bad": "fo=1",
    "neither": "not healthz", "long": "a" * 500, "many": "a " * 51,
}  # fmt: skip
ODD_TEXTS = ["\U0001f600 \u2764\ufe0f", "\x7f", "\x85", "\u2028", "\ufeff", "\ud83d", "\x1b[31m"]
ODD_TEXTS += ['\\ "" : # \' / -', " ", ""]


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """An environment whose filters are in a folder of the test."""
    return {"XDG_STATE_HOME": str(tmp_path)}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The file of these filters, in its folder."""
    (tmp_path / "spooldeck").mkdir(mode=0o700)
    return tmp_path / "spooldeck" / "filters.yaml"


def lookup(name: str) -> str:
    """The texts above."""
    if name not in SAVED:
        raise ValueError("no such saved filter")
    return SAVED[name]


def test_a_name_is_replaced_by_its_clauses() -> None:
    """`@name` becomes the clauses of its filter, in parentheses if it is beside an operator."""
    found = parse_filter(" gmail @old  @both", saved=lookup)
    assert found.text == "gmail age>2h !healthz 550|421"
    assert [clause.at for clause in found.clauses] == [1, 7, 7, 13]
    assert found == parse_filter(" gmail @old  @both", saved=lookup)
    again = parse_filter(found.text)
    assert [clause.terms for clause in again.clauses] == [clause.terms for clause in found.clauses]
    texts = {
        "not @old": "not (age>2h !healthz)", "!@both|x": "!(550|421)|x",
        "x or @old": "(x or (age>2h !healthz))",
        "(@old or @both) x": "((age>2h !healthz) or (550|421)) x",
        "@neither|x": "(not healthz)|x", "!@neither": "!(not healthz)",
    }  # fmt: skip
    for text, expanded in texts.items():
        found = parse_filter(text, saved=lookup)
        assert found.text == expanded
        again = parse_filter(expanded)
        assert [one.node for one in again.clauses] == [one.node for one in found.clauses]


@pytest.mark.parametrize(("text", "at", "message"), [
    ("x @none", 2, "@none at 3: no such saved filter"),
    ("@bad", 0, '@bad at 1: no field "fo" at 1; known:'),
    ("@inner", 0, "@inner at 1: @old at 1: expected a filter without saved ones"),
    ("x|@none", 2, "@none at 3: no such saved filter"),
    ("x @long @long", 8, "expected at most 1,000 characters with saved filters, not 1,003"),
    ("x @many @many", 8, "expected at most 100 words and comparisons"),
])  # fmt: skip
def test_a_wrong_name_is_refused_at_its_column(text: str, at: int, message: str) -> None:
    """With its saved ones a filter has the limits of typed text; one of them alone is parsed."""
    with pytest.raises(BadFilter) as refused:
        parse_filter(text, saved=lookup)
    assert refused.value.message.startswith(message)
    assert refused.value.at == at
    assert all(parse_filter(f"@{name}", saved=lookup) for name in ("long", "many"))


def test_a_filter_is_saved_and_found(environ: dict[str, str], tmp_path: Path) -> None:
    """It is in a file of mode 0600, beside those saved before; a second text replaces the first."""
    assert read_filters(environ) == {}
    assert not save_filter(environ, "old", 'err:"user unknown" é\U0001f600')
    assert not save_filter(environ, "on", "age>1h")
    assert save_filter(environ, "on", "age>2h")
    (path,) = (tmp_path / "spooldeck").iterdir()
    assert (path.name, stat.S_IMODE(path.stat().st_mode)) == ("filters.yaml", 0o600)
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert read_filters(environ) == {"old": 'err:"user unknown" é\U0001f600', "on": "age>2h"}
    assert parse_filter("@on", saved=lookup_in(environ)).text == "age>2h"


TEXTS = st.text(max_size=20) | st.sampled_from([*ODD_TEXTS, "a or b", "(x"])


@given(st.lists(TEXTS, min_size=1, max_size=3))
@example(list(ODD_TEXTS))
@examples(50)
def test_any_text_is_found_as_it_was_saved_or_refused(texts: list[str]) -> None:
    """A text of printable characters is found again; any other is refused and leaves the file."""
    with TemporaryDirectory() as home:
        environ, saved = {"HOME": home}, {}
        for number, text in enumerate(texts):
            try:
                save_filter(environ, f"f{number}", text)
            except SavedFilterError as refused:
                assert not text.isprintable()
                assert f"f{number}: expected printable characters, not U+" in str(refused)
            else:
                assert text.isprintable()
                saved[f"f{number}"] = text
            find = lookup_in(environ)
            assert {name: find(name) for name in read_filters(environ)} == saved


def test_a_word_that_became_an_operator_is_refused(environ: dict[str, str], path: Path) -> None:
    """A text without brackets may be of a version in which `or` and parentheses were words: it is
    refused, and both meanings are shown. Saved again or edited, it is found."""
    old = {
        "gmail or 421": 'gmail "or" 421', "gmail NOT": 'gmail "NOT"',
        "(a b|(c) d(e": '"(a" b|"(c)" "d(e"', "kind=(a !and": 'kind="(a" !"and"',
    }  # fmt: skip
    for text, quoted in old.items():
        path.write_text(json.dumps({"mine": text, "other": "x"}))
        parse = lambda name: parse_filter(f"@{name}", saved=lookup_in(environ))  # noqa: E731
        for find in (lookup_in(environ), parse):
            with pytest.raises((SavedFilterError, BadFilter)) as refused:
                find("mine")
            expected = f"write {json.dumps(quoted)} to find the words, or {json.dumps([text])} for"
            assert expected in str(refused.value)
        save_filter(environ, "new", "y")
        assert lookup_in(environ)("other") == "x"
        with pytest.raises(SavedFilterError, match="for operators, in"):
            lookup_in(environ)("mine")
        path.write_text(f"mine: {json.dumps(quoted)}")  # as the message says
        assert parse_filter("@mine", saved=lookup_in(environ))
    save_filter(environ, "mine", "gmail or 421")
    assert path.read_text().splitlines()[1:] == ['"mine": ["gmail or 421"]']
    assert lookup_in(environ)("mine") == "gmail or 421"
    for text in ('err:"user (x) or y" dest~(a|b)', "f(x) order err:or"):
        path.write_text(json.dumps({"mine": text}))
        assert lookup_in(environ)("mine") == text


def test_a_file_that_would_be_too_large_is_not_written(environ: dict[str, str]) -> None:
    """A filter with which the file would be over the limit of the reader is refused."""
    save_filter(environ, "a", "x" * 600_000)
    with pytest.raises(SavedFilterError, match=r"filters.yaml: expected at most 1,048,576 bytes$"):
        save_filter(environ, "b", "x" * 600_000)
    assert list(read_filters(environ)) == ["a"]


def test_a_name_without_a_filter_says_what_is_saved(tmp_path: Path) -> None:
    """An unknown name lists the known ones; a bad one says what a name has."""
    environ = {"HOME": str(tmp_path)}
    find = lookup_in(environ)
    with pytest.raises(SavedFilterError, match=r"^no such saved filter; :save @name saves one$"):
        find("x")
    for name in "ba":
        save_filter(environ, name, "x")
    assert (tmp_path / ".local" / "state" / "spooldeck" / "filters.yaml").exists()
    with pytest.raises(SavedFilterError, match=r"^no such saved filter; @a @b$"):
        find("x")
    for name in ("", "a.b", "-a", "a b", "x" * 41):
        for act in (find, lambda name: save_filter(environ, name, "x")):
            with pytest.raises(SavedFilterError, match="a name of letters, digits, - and _"):
                act(name)


@pytest.mark.parametrize(("data", "why"), [
    (b"- a\n", 'expected lines such as name: "err~550"'),
    (b"a: [x, y]\n", 'a: expected a line such as name: "err~550"'),
    (b"a: 5\n", 'a: expected a line such as name: "err~550"'),
    (b"a: [\n", "line 2: expected YAML"),
    (b"a: &a [*a]\n", "line 1: the alias"),
    (b'"a\\e[31m": x\n', "a\ufffd[31m: expected a line such as name:"),
    (b'b: "x\\e[31m"\n', "b: expected printable characters, not U+001B"),
    (b'b: "x\\u202e"\n', "b: expected printable characters, not U+202E"),
    (b"x" * (1 << 21), "2,097,152 bytes, expected at most 1,048,576"),
    (None, "expected a regular file"),
])  # fmt: skip
def test_an_unusable_file_is_reported_and_kept(
    environ: dict[str, str], path: Path, data: bytes | None, why: str
) -> None:
    """The one line has the path, the reason and what was expected; the file stays as it is."""
    if data is None:
        os.mkfifo(path)
    else:
        path.write_bytes(data)
    before = path.stat()
    for act in (lambda: read_filters(environ), lambda: save_filter(environ, "x", "y")):
        with pytest.raises(SavedFilterError) as refused:
            act()
        assert str(refused.value).startswith(f"{path}: {why}")
        assert "\n" not in str(refused.value)
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_a_saved_file_says_that_comments_are_not_kept(environ: dict[str, str], path: Path) -> None:
    """Saving keeps the filters of an edited file, not its comments; the first line says so."""
    path.write_text("# mine\nold: code=550  # late\n")
    save_filter(environ, "new", "x")
    head, *rest = path.read_text().splitlines()
    assert head.startswith("# ") and head.endswith(":save rewrites the file without comments")
    assert rest == ['"new": "x"', '"old": "code=550"']


def test_two_savers_do_not_lose_each_others_filter(environ: dict[str, str], path: Path) -> None:
    """While another process saves, which holds the flock of the folder, nothing is written."""
    save_filter(environ, "a", "x")
    fd = os.open(path.parent, os.O_RDONLY)
    with Flock(fd), pytest.raises(SavedFilterError, match="saves a filter: try again"):
        save_filter(environ, "b", "y")
    os.close(fd)
    assert read_filters(environ) == {"a": "x"}
