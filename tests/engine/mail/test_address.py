"""Check that a text is one mail address and nothing more."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.mail.address import domain_of, require_address, require_addresses
from engine.mail.model import BadMail
from tests.tables import each

HOSTILE = {
    "is not an address": [""],
    "control character": [
        "b@example.com\r\nRCPT TO:<evil@example.com>", "b@example.com\nBcc: evil@example.com",
        "b@example.com\r", "b@example.com\n", "b@example.com\0", "b\x1b[31m@example.com",
    ],
    "non-ASCII": [
        "b@example.com\x85", "b@example.com\u2028", "b\u202e@example.com",
        "b\ud800@example.com", "bücher@example.com", "bücher@bücher.example", "ü",
    ],
    "read in two ways": [
        "b@straße.example", "b@a\u200db.example", "b@a\u00adb.example", "b@a\u3002example",
        "b@\uff41.example", "b@ü..example", f"b@{'ü' * 64}.example", "b@\ud800.example",
        "b@-ü.example", "b@ü-.example",
    ],
    "space": [
        "<b@example.com> NOTIFY=NEVER", "b@example.com NOTIFY=NEVER", " b@example.com",
        "b@example.com ",
    ],
    "more than one @": [
        "a@example.com,b@example.com", "a@example.com;b@example.com", "a@b@example.com",
    ],
    "not allowed there without quotes": [
        "<b@example.com>", '"b@example.com', "$(id)@example.com", "a\\b@example.com",
        "@example.com",
        ":include:/etc/passwd@example.com",
    ],
    "quotes before the @": ['"b"@example.com', '"a@b"@example.com'],
    "as a command or a file": ["|/bin/sh@example.com", "/etc/passwd@example.com", "|id", "/etc/x"],
    "a dash": ["-C/tmp/evil", "-o/tmp/x", "-oQ/tmp@example.com"],
    "a dot": [".b@example.com", "b.@example.com", "b..c@example.com"],
    "65 characters before the @": [f"{'l' * 65}@example.com"],
    "characters of at most 254": [f"b@{'d.' * 130}com"],
    "an invalid domain": [
        "b@", "b@.example.com", "b@example.com.", "b@example..com", "b@-example.com",
        "b@example-.com", "b@exa_mple.com", f"b@{'d' * 64}.com", "b@example.com>",
        "b@example.com:25",
    ],
    "no valid address in brackets": [
        "b@[127.0.0.256]", "b@[127.0.0.1", "b@[]", "b@[IPv6:1.2.3.4]", "b@[IPv6:fe80::1%eth0]",
        "b@[::1]", "b@[example.com]",
    ],
}  # fmt: skip
"""Texts that are no address, by words of the refusal."""


@each(("address", "sent"), [
    ("A.b@bücher.example", "A.b@xn--bcher-kva.example"),
    ("a@bu\u0308cher.example", "a@xn--bcher-kva.example"),
    ("a@Mail.BÜCHER.example", "a@mail.xn--bcher-kva.example"),
    ("a@почта.рф", "a@xn--80a1acny.xn--p1ai"),
    ("a@bücher.example, b@x.yz", "a@xn--bcher-kva.example,b@x.yz"),
])  # fmt: skip
def test_a_domain_of_other_letters_is_sent_as_ascii(address: str, sent: str) -> None:
    """Each label is encoded by IDNA, in any case; the rest of the address stays as it is."""
    assert require_addresses(address) == sent.split(",")
    assert "," in address or require_address(address) == sent


@each("address", [
    "admin@example.com", "a.b_c%d+e-f@mail.example.org", "x@x.yz", f"{'l' * 64}@example.com",
    f"x@{'d' * 63}.example", "user@xn--bcher-kva.example", "user@example.xn--p1ai",
    "o'brien@example.com", "a@x.y2", "a/b|c@example.com", "!#$%&'*+-/=?^_`{|}~@example.com",
    "b@[192.0.2.1]", "b@[IPv6:2001:db8::1]",
])  # fmt: skip
def test_one_address_is_taken_as_it_is(address: str) -> None:
    """It is returned unchanged."""
    assert require_address(address) == require_address(address, strict=False) == address


@each("address", ["root", "root@localhost", "ops+alerts", "root@host-1", "a@10.0.0.1"])
def test_a_local_name_is_taken_only_if_allowed(address: str) -> None:
    """If `strict` is off."""
    assert require_address(address, strict=False) == address
    with pytest.raises(BadMail, match="expected one address such as"):
        require_address(address)


@each("strict", [True, False])
@each(("why", "address"), [(why, text) for why, texts in HOSTILE.items() for text in texts])
def test_a_text_that_is_no_address_is_refused(why: str, address: str, strict: bool) -> None:
    """Line breaks, parameters, options, lists and pipes are refused in one clear line."""
    with pytest.raises(BadMail) as refused:
        require_address(address, strict)
    line = str(refused.value)
    assert why in line
    assert line.isprintable()
    assert len(line) < 220


def test_the_domain_is_kept_out_of_a_refusal_and_compared_in_lower_case() -> None:
    """Logs have addresses without their domain; rates are by the domain in lower case."""
    with pytest.raises(BadMail) as refused:
        require_address("ops@secret.example oops")
    assert "ops@..." in str(refused.value)
    assert "secret" not in str(refused.value)
    assert domain_of("Admin@Mail.EXAMPLE.org") == "mail.example.org"
    assert domain_of("root") == ""


@given(st.text(st.characters() | st.sampled_from("ab.@-%+ \r\n<>,;\"'")), st.booleans())
def test_nothing_taken_can_be_read_as_more(text: str, strict: bool) -> None:
    """Any text is refused, or it is printable ASCII: no list, quote or option, at most one @."""
    try:
        address = require_address(text, strict)
    except BadMail:
        return
    assert address == text or not text.isascii()
    assert address.isascii() and address.isprintable()
    assert not set(address) & set(' <>",;\\()')
    assert not address.startswith(("-", "|", "/"))
    assert address.count("@") <= 1
    assert "@" in address or not set(address) & set("'`$&/|!")


def test_a_list_has_one_address_between_two_commas() -> None:
    """Spaces around a comma and repeated addresses are dropped; a wrong address is named."""
    listed = " a@example.com,b@example.org , a@example.com,"
    assert require_addresses(listed) == ["a@example.com", "b@example.org"]
    with pytest.raises(BadMail, match="'c' has no domain"):
        require_addresses("a@example.com,c")
    with pytest.raises(BadMail, match="is not an address"):
        require_addresses(" , ")
