"""What the folder of a Kannader spool has."""

from __future__ import annotations

from engine.config.place_address import Address
from engine.formats.base.detect import has_folders

KANNADER_FOLDERS = ("data", "queue", "inflight", "cleanup")
"""The folders of a Kannader spool; an nftban data folder has none of them."""


def is_spool(at: Address) -> bool:
    """True for the path of a Kannader spool."""
    return not at.is_url and has_folders(at.text, KANNADER_FOLDERS)
