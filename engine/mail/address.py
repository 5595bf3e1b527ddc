"""One mail address, judged before anything sees it: nobody behind us may take it for more.

curl hands on a line break as a second recipient and a space as a parameter, sendmail takes what
begins with a dash for an option: so a strict form is expected, much narrower than RFC 5322's.
"""

import re

from engine.mail.model import BadMail
from engine.text.safe import shown

LONGEST, LONGEST_LOCAL, LONGEST_LABEL = 254, 64, 63
"""Characters of an address (RFC 3696, erratum 1690: a path has 256 with its brackets), of the part
before the @ (RFC 5321, 4.5.3.1.1), and of each name between the dots behind it (RFC 1035)."""

_LOCAL = re.compile(r"[A-Za-z0-9._%+=-]+").fullmatch
_LABEL = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?").fullmatch
_TOP = re.compile(r"[A-Za-z]{2,}").fullmatch

_QUOTED = 40
"""Characters of a wrong address that are told."""


def checked(text: str, strict: bool = True) -> str:
    """The text, if it is one mail address and nothing besides.

    Strict, its domain has a dot in it, and letters behind the last one. Otherwise it may also be
    a local one, `root@localhost` or `root`.

    Raises:
        BadMail: it is none; one line says why, without the domain.
    """
    why = _fault(text, strict)
    if why:
        local, at, _ = text.partition("@")
        told = shown(local[:_QUOTED]) + ("@..." if at else "")
        raise BadMail(f"'{told}' {why}, expected one address such as admin@example.com")
    return text


def domain_of(address: str) -> str:
    """The domain of an address, in lower case; "" for a bare name."""
    return address.rpartition("@")[2].lower() if "@" in address else ""


def _fault(text: str, strict: bool) -> str:
    """What is wrong with an address, to be said behind it; "" when it is one."""
    local, at, domain = text.partition("@")
    if not text:
        return "is no address"
    if len(text) > LONGEST:
        return f"has {len(text):,} characters of at most {LONGEST}"
    if any(not "!" <= c <= "~" for c in text):
        return "holds a space, a control character or one beyond ASCII"
    if text.startswith("-"):
        return "begins with a dash, as options do"
    if "@" in domain:
        return "holds more than one @"
    if not _LOCAL(local):
        return "holds other characters than letters, digits and . _ % + = - before the @"
    if len(local) > LONGEST_LOCAL:
        return f"has {len(local)} characters before the @, of at most {LONGEST_LOCAL}"
    if "" in local.split("."):
        return "has a dot at an end of its first part, or two in a row"
    if not at:
        return "has no domain" if strict else ""
    return _fault_of_domain(domain.split("."), strict)


def _fault_of_domain(labels: list[str], strict: bool) -> str:
    if not all(_LABEL(label) and len(label) <= LONGEST_LABEL for label in labels):
        return "has no proper domain"
    if strict and (len(labels) == 1 or not _TOP(labels[-1])):
        return "has a domain that does not end with a dot and letters"
    return ""
