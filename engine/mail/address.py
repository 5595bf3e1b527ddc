"""Validate one mail address strictly, so that no program reads it as more than one address.

curl passes on a line break as a second recipient and a space as a parameter; sendmail reads a
leading dash as an option. So the accepted form is much narrower than RFC 5322's.
"""

import re

from engine.mail.model import BadMail
from engine.text.safe import safe_line

MAX_ADDRESS_LENGTH, MAX_LOCAL_LENGTH, MAX_LABEL_LENGTH = 254, 64, 63
"""Maximum characters of an address (RFC 3696, erratum 1690: a path has 256 with its brackets), of
the part before the @ (RFC 5321, 4.5.3.1.1), and of each label of the domain (RFC 1035)."""

_LOCAL = re.compile(r"[A-Za-z0-9._%+=-]+").fullmatch
_LABEL = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?").fullmatch
_TOP = re.compile(r"[A-Za-z]{2,}").fullmatch

_MAX_SHOWN_LENGTH = 40
"""Maximum characters of a wrong address in an error message."""


def require_address(text: str, strict: bool = True) -> str:
    """Return the text if it is exactly one mail address.

    With `strict`, its domain has a dot and letters after the last dot. Without it, local addresses
    such as `root@localhost` and `root` are accepted too.

    Raises:
        BadMail: it is not one; the message is one line, without the domain.
    """
    why = _describe_fault(text, strict)
    if why:
        local, at, _ = text.partition("@")
        told = safe_line(local[:_MAX_SHOWN_LENGTH]) + ("@..." if at else "")
        raise BadMail(f"'{told}' {why}, expected one address such as admin@example.com")
    return text


def domain_of(address: str) -> str:
    """Return the domain of an address in lower case; "" for a bare name."""
    return address.rpartition("@")[2].lower() if "@" in address else ""


def _describe_fault(text: str, strict: bool) -> str:
    """Return what is wrong with an address, as a phrase that follows it; "" if it is valid."""
    local, at, domain = text.partition("@")
    if not text:
        return "is not an address"
    if len(text) > MAX_ADDRESS_LENGTH:
        return f"has {len(text):,} characters of at most {MAX_ADDRESS_LENGTH}"
    if any(not "!" <= c <= "~" for c in text):
        return "contains a space, a control character or a non-ASCII character"
    if text.startswith("-"):
        return "begins with a dash, as options do"
    if "@" in domain:
        return "contains more than one @"
    if not _LOCAL(local):
        return "contains characters other than letters, digits and . _ % + = - before the @"
    if len(local) > MAX_LOCAL_LENGTH:
        return f"has {len(local)} characters before the @, of at most {MAX_LOCAL_LENGTH}"
    if "" in local.split("."):
        return "has a dot at an end of its first part, or two in a row"
    if not at:
        return "has no domain" if strict else ""
    return _describe_domain_fault(domain.split("."), strict)


def _describe_domain_fault(labels: list[str], strict: bool) -> str:
    if not all(_LABEL(label) and len(label) <= MAX_LABEL_LENGTH for label in labels):
        return "has an invalid domain"
    if strict and (len(labels) == 1 or not _TOP(labels[-1])):
        return "has a domain that does not end with a dot and letters"
    return ""
