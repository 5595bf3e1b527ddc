"""One mail address and nothing besides: what programs behind us would take for more is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.mail.address import checked, domain_of
from engine.mail.model import BadMail
from tests.tables import each

GOOD = (
    "admin@example.com", "a.b_c%d+e-f@mail.example.org", "x@x.yz", f"{'l' * 64}@example.com",
    f"x@{'d' * 63}.example", "user@xn--bcher-kva.example",
)  # fmt: skip

LOCAL = ("root", "root@localhost", "ops+alerts", "root@host-1", "a@10.0.0.1")
"""Good enough where a recipient need not have a domain."""

HOSTILE = {
    "": "is no address",
    "b@example.com\r\nRCPT TO:<evil@example.com>": "control character",
    "b@example.com\nBcc: evil@example.com": "control character",
    "b@example.com\r": "control character",
    "b@example.com\n": "control character",
    "b@example.com\0": "control character",
    "b@example.com\x85": "control character",
    "b@example.com\u2028": "beyond ASCII",
    "b\x1b[31m@example.com": "control character",
    "b\u202e@example.com": "beyond ASCII",
    "b\ud800@example.com": "beyond ASCII",
    "bücher@example.com": "beyond ASCII",
    "b@b\u0441.com": "beyond ASCII",
    "<b@example.com> NOTIFY=NEVER": "space",
    "b@example.com NOTIFY=NEVER": "space",
    " b@example.com": "space",
    "b@example.com ": "space",
    "a@example.com,b@example.com": "more than one @",
    "a@example.com;b@example.com": "more than one @",
    "a@b@example.com": "more than one @",
    "<b@example.com>": "other characters",
    '"b"@example.com': "other characters",
    "b'@example.com": "other characters",
    "|/bin/sh@example.com": "other characters",
    "/etc/passwd@example.com": "other characters",
    "$(id)@example.com": "other characters",
    "`id`@example.com": "other characters",
    "a\\b@example.com": "other characters",
    "@example.com": "other characters",
    "-C/tmp/evil": "a dash",
    "-o/tmp/x": "a dash",
    "-oQ/tmp@example.com": "a dash",
    ".b@example.com": "a dot",
    "b.@example.com": "a dot",
    "b..c@example.com": "a dot",
    f"{'l' * 65}@example.com": "65 characters before the @",
    f"b@{'d.' * 130}com": "characters of at most 254",
    "b@": "no proper domain",
    "b@.example.com": "no proper domain",
    "b@example.com.": "no proper domain",
    "b@example..com": "no proper domain",
    "b@-example.com": "no proper domain",
    "b@example-.com": "no proper domain",
    "b@exa_mple.com": "no proper domain",
    "b@[127.0.0.1]": "no proper domain",
    f"b@{'d' * 64}.com": "no proper domain",
    "b@example.com>": "no proper domain",
    "b@example.com:25": "no proper domain",
}
"""Nobody's address, wherever it would go, with words of the reason that is told."""


@each("address", GOOD)
def test_an_address_is_taken_as_it_is(address: str) -> None:
    """What is one address comes back unchanged, strict or not."""
    assert checked(address) == address
    assert checked(address, strict=False) == address


@each("address", LOCAL)
def test_a_local_name_needs_leave(address: str) -> None:
    """Without a dot and letters behind it a name is an address only where that is allowed."""
    assert checked(address, strict=False) == address
    with pytest.raises(BadMail, match="expected one address such as"):
        checked(address)


@each("strict", [True, False])
@each("address", HOSTILE)
def test_what_somebody_would_take_for_more_is_refused(address: str, strict: bool) -> None:
    """Line breaks, parameters, options, lists and pipes: one clear line, and no mail."""
    with pytest.raises(BadMail) as refused:
        checked(address, strict)
    line = str(refused.value)
    assert HOSTILE[address] in line
    assert line.isprintable()
    assert len(line) < 220


def test_a_refusal_does_not_tell_the_domain() -> None:
    """It may come to stand in a log, where addresses are cut."""
    with pytest.raises(BadMail) as refused:
        checked("someone@secret.example oops")
    assert "someone@..." in str(refused.value)
    assert "secret" not in str(refused.value)


@given(st.text(st.characters() | st.sampled_from("ab.@-%+ \r\n<>,;\"'")), st.booleans())
def test_nothing_taken_can_be_read_as_more(text: str, strict: bool) -> None:
    """Whatever the text: refused, or printable ASCII with at most one @ and nothing to quote."""
    try:
        address = checked(text, strict)
    except BadMail:
        return
    assert address == text
    assert address.isascii() and address.isprintable()
    assert not set(address) & set(" <>\"',;:\\|`$()&/")
    assert not address.startswith("-")
    assert address.count("@") <= 1


def test_a_domain_is_known_by_its_lower_case() -> None:
    """However it was written; a bare name has none."""
    assert domain_of("Admin@Mail.EXAMPLE.org") == "mail.example.org"
    assert domain_of("root") == ""
