"""What a folder or file has, by which a format knows its places."""

from __future__ import annotations

import os

from engine.system import files


def has_folders(place: str, names: tuple[str, ...]) -> bool:
    """True if a place is a folder with all these folders."""
    return all(os.path.isdir(os.path.join(place, name)) for name in names)


def begins_with(place: str, header: bytes) -> bool:
    """True if a place is a plain file that begins with some bytes.

    Only a plain file is opened: reading from a FIFO could block forever.
    """
    if not os.path.isfile(place):
        return False
    try:
        fd = files.open_file(place)
    except OSError:
        return False  # opening the place later reports the error
    try:
        return os.read(fd, len(header)) == header
    finally:
        os.close(fd)
