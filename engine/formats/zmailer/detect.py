"""What a ZMailer spool has, and what names a scheduler that is asked by MAILQ."""

from __future__ import annotations

from engine.config.place_address import Address
from engine.formats.base.detect import begins_with, has_folders

ZMAILER_FOLDERS = ("transport", "queue", "router")
"""Folders of a ZMailer spool (POSTOFFICE)."""

MAILQ_SCHEMES = frozenset({"mailq", "mailq+unix"})
"""Schemes of the URL of a ZMailer scheduler that is reached by MAILQ."""

MAILQ_DUMP_HEADER = b"version zmailer 1."
"""The first bytes of a rendezvous file: a dump of MAILQ version 1."""


def is_spool(at: Address) -> bool:
    """True for the path of a ZMailer spool."""
    return not at.is_url and has_folders(at.text, ZMAILER_FOLDERS)


def is_mailq(at: Address) -> bool:
    """True for the URL of a scheduler, and for a rendezvous file."""
    return at.scheme in MAILQ_SCHEMES if at.is_url else is_dump(at.text)


def is_dump(path: str) -> bool:
    """True for a rendezvous file."""
    return begins_with(path, MAILQ_DUMP_HEADER)
