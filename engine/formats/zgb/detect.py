"""What the file of a ZGB database begins with."""

from __future__ import annotations

from engine.config.place_address import Address
from engine.formats.base.detect import begins_with

SQLITE_HEADER = b"SQLite format 3\0"
"""The first bytes of every SQLite 3 database."""

SUFFIXES = (".db", ".sqlite", ".sqlite3")
"""Suffixes of SQLite database files."""


def is_database(at: Address) -> bool:
    """True for the path of a SQLite database."""
    return not at.is_url and begins_with(at.text, SQLITE_HEADER)
