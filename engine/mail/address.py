"""Validate mail addresses: no program may read one as an option, a command or a second address.

An address may have each form of RFC 5321 without quotes before the @. curl passes on a line break
as a second recipient and a space as a parameter; sendmail reads a leading dash as an option.
Addresses go to programs as single words, never through a shell: its characters are no danger.
"""

import re
from unicodedata import normalize

from engine.mail.model import BadMail
from engine.text.safe import safe_line

MAX_ADDRESS_LENGTH, MAX_LOCAL_LENGTH, MAX_LABEL_LENGTH = 254, 64, 63
"""Maximum characters of an address (RFC 3696, erratum 1690: a path has 256 with its brackets), of
the part before the @ (RFC 5321, 4.5.3.1.1), and of each label of the domain (RFC 1035)."""

_LOCAL = re.compile(r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~.-]+").fullmatch
"""The characters of an atom, and dots (RFC 5322, 3.2.3)."""

_BARE_NAME = re.compile(r"[A-Za-z0-9._%+=-]+").fullmatch
"""A local name without a domain: others might be a file or a command to a mail system."""

_LABEL = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?").fullmatch
_HAS_LETTER = re.compile(r"[A-Za-z]").search
_QUOTED = re.compile(r'"[^"]*"').fullmatch

_MAX_SHOWN_LENGTH = 40
"""Maximum characters of a wrong address in an error message."""


def split_addresses(text: str) -> list[str]:
    """Return the addresses of a list with commas, each once; they are not validated."""
    return list(dict.fromkeys(filter(None, map(str.strip, text.split(",")))))


def require_addresses(text: str, strict: bool = True) -> list[str]:
    """Return the addresses of a list with commas. Raises BadMail: it names none, or one of them is
    not valid; as for `require_address`."""
    return [require_address(each, strict) for each in split_addresses(text) or [""]]


def require_address(text: str, strict: bool = True) -> str:
    """Return the text if it is exactly one mail address, with its domain in ASCII (IDNA: `xn--`).

    With `strict`, it has a domain with a dot, or an IP address in brackets. Without it, local
    addresses such as `root@localhost` and `root` are accepted too.

    Raises:
        BadMail: it is not one; the message is one line, without the domain.
    """
    named, text = text, _with_ascii_domain(text)
    why = _describe_fault(text, strict)
    if why:
        text = named
        local, at, _ = text.partition("@")
        excerpt = safe_line(local[:_MAX_SHOWN_LENGTH]) + ("@..." if at else "")
        raise BadMail(f"'{excerpt}' {why}, expected one address such as admin@example.com")
    return text


def _with_ascii_domain(text: str) -> str:
    """The address with the labels of its domain as `xn--`; unchanged if its domain is ASCII, or is
    no name that IDNA 2003 and IDNA 2008 read in one way."""
    local, at, domain = text.rpartition("@")
    domain = normalize("NFC", domain)  # macOS types an accent as a character of its own
    if domain.isascii() or not at:
        return text
    if any(label.startswith("-") or label.endswith("-") for label in domain.split(".")):
        return text  # as of an ASCII name
    try:
        encoded = domain.lower().encode("idna").decode()
        is_same = encoded.encode().decode("idna") == domain.lower()
    except UnicodeError:  # also one that is too long
        return text
    return f"{local}{at}{encoded}" if is_same else text


def domain_of(address: str) -> str:
    """Return the domain of an address in lower case; "" for a bare name."""
    return address.rpartition("@")[2].lower() if "@" in address else ""


def _describe_fault(text: str, strict: bool) -> str:
    """Return what is wrong with an address, as a phrase that follows it; "" if it is valid."""
    local, at, domain = text.rpartition("@") if text.startswith('"') else text.partition("@")
    if not text:
        return "is not an address"
    if len(text) > MAX_ADDRESS_LENGTH:
        return f"has {len(text):,} characters of at most {MAX_ADDRESS_LENGTH}"
    if any(not "!" <= c <= "~" for c in text if c.isascii()):
        return "contains a space or a control character"
    if not text.isascii():
        if local.isascii():
            return "has a non-ASCII domain that is invalid or read in two ways: write it as xn--"
        return "contains a non-ASCII character before the @, which only SMTPUTF8 could send"
    if text.startswith("-"):
        return "begins with a dash, as options do"
    if _QUOTED(local):
        return "has quotes before the @, which not all mail programs pass on"
    if "@" in domain:
        return "contains more than one @"
    if not _LOCAL(local):
        return "contains characters before the @ that are not allowed there without quotes"
    if local[0] in "|/":
        return f"begins with {local[0]}, as a command or a file of a mail system does"
    if len(local) > MAX_LOCAL_LENGTH:
        return f"has {len(local)} characters before the @, of at most {MAX_LOCAL_LENGTH}"
    if "" in local.split("."):
        return "has a dot at an end of its first part, or two in a row"
    if at:
        return _describe_domain_fault(domain, strict)
    if strict:
        return "has no domain"
    return (
        "" if _BARE_NAME(local) else "has no domain, and characters other than letters and ._%+=-"
    )


def _describe_domain_fault(domain: str, strict: bool) -> str:
    if domain.startswith("["):
        return "" if _is_literal(domain) else "has no valid address in brackets"
    labels = domain.split(".")
    if not all(_LABEL(label) and len(label) <= MAX_LABEL_LENGTH for label in labels):
        return "has an invalid domain"
    if strict and (len(labels) == 1 or not _HAS_LETTER(labels[-1])):
        return "has a domain that does not end with a dot and a name"
    return ""


def _is_literal(domain: str) -> bool:
    """True for an IP address in brackets: `[192.0.2.1]`, `[IPv6:2001:db8::1]` (RFC 5321, 4.1.3)."""
    import ipaddress  # few addresses have one, and most commands read none

    inner = domain[1:-1]
    kind, form = (
        (ipaddress.IPv6Address, inner[5:])
        if inner.lower().startswith("ipv6:")
        else (ipaddress.IPv4Address, inner)
    )
    try:
        return domain.endswith("]") and "%" not in form and bool(kind(form).packed)
    except ValueError:
        return False
