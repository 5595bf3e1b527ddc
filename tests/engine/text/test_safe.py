"""Foreign text made safe to show, to log and to store; host names in ASCII."""

import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.text import safe

ANY = st.text(st.characters())  # surrogates too


def test_no_character_at_all_can_act_on_a_terminal() -> None:
    """Of all there are, no control, format, bidi, surrogate or separator comes through."""
    through = {*safe.safe_line("".join(map(chr, range(sys.maxunicode + 1))))} - {safe.REPLACEMENT}
    kinds = set(map(unicodedata.category, through))
    assert {kind[0] for kind in kinds} == set("LMNPSZ")
    assert {kind for kind in kinds if kind[0] == "Z"} == {"Zs"}
    assert [c for c in through if c.isspace()] == [" "]


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        ("unavailable_450: 450 4.2.0 busy", "450 4.2.0 busy"),
        ("rejected_550: 450 busy", "rejected_550: 450 busy"),
        ("unavailable_450: 4500 busy", "unavailable_450: 4500 busy"),
        ("unavailable_no_space: disk\x1b full", "unavailable_no_space: disk\ufffd full"),
        ("", ""),
    ],
)
def test_an_error_is_shown_without_our_name_of_the_same_reply(error: str, shown: str) -> None:
    """The name only repeats the code; a name that says more stays."""
    assert safe.safe_error(error) == shown


FOREIGN_HOSTS = [f"b{c}c.org" for c in "\uff1e\uff20\uff0c\u00a8\u2024"]
FOREIGN_HOSTS += ["b\uff3cc", "b\u3002org"]
FOREIGN_HOSTS += ["\uff3b1.2.3.4\uff3d", "x\u2100.org", "b\u037ec.org", "\uff45xample.org", ""]
FOREIGN_HOSTS += ["\u2460.org", "\u0301a.org", "a\u200db.org", "\u2603.org"]
FOREIGN_HOSTS += ["é.", "é..org", "é é.org", "é" * 63, "é.a/b"]
"""Names of hosts that one program or another takes for something else than is seen."""
HOSTS = {
    "élégance.fr": "xn--lgance-9uab.fr", "E\u0301LÉGANCE.FR": "xn--lgance-9uab.fr",
    "straße.example.org": "xn--strae-oqa.example.org",
    "βόλος.com": "xn--nxasmm1c.com", "例え.テスト": "xn--r8jz45g.xn--zckzah",
    "my_host.ü-x.org": "my_host.xn---x-wka.org",
}  # fmt: skip


def test_a_host_name_is_written_in_ascii_or_refused() -> None:
    """What would be mapped to a sign, another letter or nothing is refused (RFC 5891)."""
    assert {host: safe.ascii_name(host) for host in HOSTS} == HOSTS
    for host, name in HOSTS.items():
        parts = [(part.removeprefix("xn--"), part) for part in name.split(".")]
        back = [bare if bare == part else bare.encode().decode("punycode") for bare, part in parts]
        assert ".".join(back) == unicodedata.normalize("NFC", host).lower()
    for host in FOREIGN_HOSTS:
        with pytest.raises(ValueError, match="host name"):
            safe.ascii_name(host)


@given(ANY)
def test_shown_text_is_one_line_of_as_many_characters(foreign: str) -> None:
    """Nothing is lost but the harm, U+FE0F and joiners: what is printable stays in its place."""
    foreign = foreign.replace("\u200d", "")
    shown = safe.safe_line(foreign)
    foreign = foreign.replace("\ufe0f", "")
    assert shown.replace("\u200c", "").isprintable()
    assert all(a in (b, safe.REPLACEMENT) for a, b in zip(shown, foreign, strict=True))
    assert safe.safe_line(shown) == shown


def test_a_harmful_character_is_replaced() -> None:
    """Only a newline ends a line; what is cut from a long text is counted."""
    cleaned = {
        "plain \u00e9 \u4e2d": "plain \u00e9 \u4e2d", "\x1b[31mred": "\ufffd[31mred",
        "\x9b31m": "\ufffd31m", "a\u202eb\u2066c": "a\ufffdb\ufffdc",
        "a\r\nb\tc": "a\ufffd\ufffdb\ufffdc", "\udcff": "\ufffd",
        "heart \u2764\ufe0f.": "heart \u2764.",
        "\u0645\u06cc\u200c\u062e\u0648": "\u0645\u06cc\u200c\u062e\u0648",
        "\u0915\u094d\u200d\u0937": "\u0915\u094d\u0937",
        "\U0001f468\u200d\U0001f469": "\U0001f468\U0001f469",
        "a\u200cb\u200dc\u0645\u200c": "a\ufffdb\ufffdc\u0645\ufffd",
        "zero\u200bwidth\u00ad": "zero\ufffdwidth\ufffd",
        "": "",
    }  # fmt: skip
    assert {foreign: safe.safe_line(foreign) for foreign in cleaned} == cleaned
    lines: dict[str | bytes, list[str]] = {
        **{"": [], "\n": [""], "a\nb": ["a", "b"], b"a\r\n\tb\n": ["a", "        b"]},
        **{b"\xff\x1b\n": ["\ufffd\ufffd"], "a\x0bb\u2028c": ["a\ufffdb\ufffdc"]},
    }
    assert {data: safe.safe_lines(data) for data in lines} == lines
    assert safe.safe_lines("abcd\nef" * 1000, 4) == ["abcd", "... cut here: 6,996 more characters"]
    assert safe.safe_lines("abcd", 4) == ["abcd"]


@given(ANY | st.binary(), st.integers(0, 99))
def test_every_line_shown_is_safe(data: str | bytes, limit: int) -> None:
    """With any data and any limit, no line can act on a terminal."""
    lines = safe.safe_lines(data, limit)
    assert all(line.replace("\u200c", "").isprintable() for line in lines)


@given(ANY)
def test_plain_text_is_that_of_the_contract(foreign: str) -> None:
    """Other characters are one underscore each, and nothing is left that a shell expands."""
    plain = safe.contract_text(foreign)
    assert len(plain) == len(foreign)
    assert plain.isascii()
    assert all(c.isalnum() or c in " _.-:/" for c in plain)
    assert safe.contract_text(plain) == plain


@given(ANY)
def test_text_for_a_shell_is_one_line_that_it_does_not_expand(foreign: str) -> None:
    """Nothing is left that a shell expands or a terminal acts on; a second time changes nothing."""
    text = safe.shell_text(foreign)
    assert not {*text} & {*'"$`\\\ufffd'}
    assert text.replace("\u200c", "").isprintable()
    assert safe.shell_text(text) == text


def test_an_error_is_cut_before_it_is_made_plain() -> None:
    """200 characters stay, without newlines at the end; of an address the part before @."""
    hostile = 'a/b_c-d.e:f @"$(id)`\\;&|<>=@\t\n\u00e9\U0001f600\udcff'
    assert safe.contract_text(hostile) == "a/b_c-d.e:f ____id" + "_" * 15
    assert safe.contract_error("x" * 199 + "\u00e9y") == "x" * 199 + "_"
    assert safe.contract_error("two\nlines\n\n") == "two_lines"
    assert safe.clean_error(" 450 busy, try again <later>\n") == "450 busy, try again <later>"
    assert not {"\n", "\x1b"} & {*safe.clean_error("one\ntwo\x1b[2J")}
    assert len(safe.clean_error("x" * 9_999)) == safe.TEXT_ERROR_LIMIT
    private = {"admin@example.com": "admin@...", "a@b@c": "a@...", "root": "root@...", "": "@..."}
    assert {address: safe.hide_domain(address) for address in private} == private
