"""The files that this process has open."""

from contextlib import suppress
from pathlib import Path


def open_files() -> set[tuple[str, str]]:
    """The number and the file of each descriptor.

    Compare two such sets by their difference: what an earlier test dropped may be closed meanwhile.
    """
    found = set()
    for link in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # the one by which they are listed
            found.add((link.name, str(link.readlink())))
    return found
