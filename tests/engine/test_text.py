"""Foreign text: whatever comes in, what goes out is safe to show, to log and to store."""

import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import text

ANY = st.text(st.characters())  # surrogates too


def test_no_character_at_all_can_act_on_a_terminal() -> None:
    """Of all there are, no control, format, bidi, surrogate or separator comes through."""
    every = "".join(map(chr, range(sys.maxunicode + 1)))
    through = set(text.shown(every)) - {text.REPLACEMENT}

    assert {unicodedata.category(c)[0] for c in through} == set("LMNPSZ")
    assert [c for c in through if unicodedata.category(c)[0] == "Z"] == [" "]


@given(ANY)
def test_what_is_shown_is_one_line_of_as_many_characters(foreign: str) -> None:
    """Nothing is lost but the harm and U+FE0F: what is printable stays in its place."""
    shown = text.shown(foreign)

    foreign = foreign.replace("\ufe0f", "")
    assert shown.isprintable()
    assert all(a in (b, text.REPLACEMENT) for a, b in zip(shown, foreign, strict=True))
    assert text.shown(shown) == shown


@pytest.mark.parametrize(
    ("foreign", "shown"),
    [
        ("plain \u00e9 \u4e2d", "plain \u00e9 \u4e2d"),
        ("\x1b[31mred", "\ufffd[31mred"),
        ("\x9b31m", "\ufffd31m"),
        ("a\u202eb\u2066c", "a\ufffdb\ufffdc"),
        ("a\r\nb\tc", "a\ufffd\ufffdb\ufffdc"),
        ("\udcff", "\ufffd"),
        ("heart \u2764\ufe0f.", "heart \u2764."),
        ("zero\u200bwidth\u00ad", "zero\ufffdwidth\ufffd"),
        ("", ""),
    ],
)
def test_what_would_act_is_replaced(foreign: str, shown: str) -> None:
    """Each harmful character becomes one replacement character."""
    assert text.shown(foreign) == shown


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        ("", []),
        ("\n", [""]),
        ("a\nb", ["a", "b"]),
        (b"a\r\n\tb\n", ["a", "        b"]),
        (b"\xff\x1b\n", ["\ufffd\ufffd"]),
        ("a\x0bb\u2028c", ["a\ufffdb\ufffdc"]),
    ],
)
def test_foreign_data_is_shown_as_lines(data: str | bytes, lines: list[str]) -> None:
    """Only a newline ends a line."""
    assert text.shown_lines(data) == lines


def test_a_long_text_is_cut_and_says_so() -> None:
    """What is not shown is counted."""
    assert text.shown_lines("abcd\nef" * 1000, 4) == ["abcd", "... cut here: 6,996 more characters"]
    assert text.shown_lines("abcd", 4) == ["abcd"]


@given(ANY | st.binary(), st.integers(0, 99))
def test_every_line_shown_is_safe(data: str | bytes, limit: int) -> None:
    """Whatever the data and the limit, no line can act on a terminal."""
    assert all(line.isprintable() for line in text.shown_lines(data, limit))


@pytest.mark.parametrize(
    ("foreign", "plain"),
    [
        ("Feed enabled: spamhaus", "Feed enabled: spamhaus"),
        ("Spooled mail to admin@...", "Spooled mail to admin_..."),
        ("a/b_c-d.e:f", "a/b_c-d.e:f"),
        ('"$(id)`\\;&|<>=@\t\n', "___id" + "_" * 12),
        ("caf\u00e9", "caf_"),
        ("\U0001f600\udcff", "__"),
    ],
)
def test_plain_text_is_that_of_the_contract(foreign: str, plain: str) -> None:
    """Each character outside the contract's set becomes one underscore."""
    assert text.plain(foreign) == plain


@given(ANY)
def test_plain_text_holds_nothing_to_expand(foreign: str) -> None:
    """Plain text is ASCII of a small set, as long as before, and plain again."""
    plain = text.plain(foreign)

    assert len(plain) == len(foreign)
    assert plain.isascii()
    assert all(c.isalnum() or c in " _.-:/" for c in plain)
    assert text.plain(plain) == plain


def test_an_error_is_cut_before_it_is_made_plain() -> None:
    """200 characters stay, the newlines at its end are not among them."""
    assert text.plain_error("x" * 199 + "\u00e9y") == "x" * 199 + "_"
    assert text.plain_error("two\nlines\n\n") == "two_lines"


@pytest.mark.parametrize(
    ("address", "private"),
    [("admin@example.com", "admin@..."), ("a@b@c", "a@..."), ("root", "root@..."), ("", "@...")],
)
def test_an_address_in_a_log_names_no_domain(address: str, private: str) -> None:
    """Of an address only what stands before the first @ is logged."""
    assert text.private(address) == private


def test_an_error_where_any_text_may_be_is_one_line() -> None:
    """Its own signs are kept, but no second line and no control character, and not without end."""
    assert text.said(" 450 busy, try again <later>\n") == "450 busy, try again <later>"
    assert "\n" not in text.said("one\ntwo\x1b[2J")
    assert "\x1b" not in text.said("one\ntwo\x1b[2J")
    assert len(text.said("x" * 9_999)) == text.SAID_LIMIT
