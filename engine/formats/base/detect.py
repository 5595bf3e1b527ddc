"""What a folder or file has, by which a format knows its places."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from engine.formats.base.format import InstalledPlace, Lookup
from engine.system import files


def has_folders(place: str, names: tuple[str, ...]) -> bool:
    """True if a place is a folder with all these folders."""
    return all(os.path.isdir(os.path.join(place, name)) for name in names)


def folder_lookups(paths: Sequence[str], is_place: Callable[[str], bool]) -> list[Lookup]:
    """The lookups of the usual folders of a format: each is a place, or closed to us, or nothing.
    Whether a closed one is a place is not known; it is found, as its name is the format's."""

    def find(path: str) -> Iterator[InstalledPlace]:
        is_closed = os.path.isdir(path) and not os.access(path, os.R_OK | os.X_OK)
        if is_closed or is_place(path):
            yield InstalledPlace(path)

    return [Lookup(path, partial(find, path)) for path in paths]


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
