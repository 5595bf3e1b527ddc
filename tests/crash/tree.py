"""A folder with all that is in it as a value: taken down once, laid out again for each run."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple


class Entry(NamedTuple):
    """A file or folder as it stood."""

    path: str
    """Relative to the root."""
    data: bytes | None
    """None: a folder."""
    mode: int
    owner: tuple[int, int]
    times: tuple[int, int]
    """Access and modification, nanoseconds."""


def taken(root: Path) -> list[Entry]:
    """Everything below `root`, folders before what is in them."""
    return list(_walk(str(root), ""))


def _walk(root: str, under: str) -> Iterator[Entry]:
    for found in sorted(os.scandir(f"{root}/{under}"), key=lambda entry: entry.name):
        seen = found.stat(follow_symlinks=False)
        is_folder = found.is_dir(follow_symlinks=False)
        yield Entry(
            f"{under}{found.name}",
            None if is_folder else Path(found.path).read_bytes(),
            stat.S_IMODE(seen.st_mode),
            (seen.st_uid, seen.st_gid),
            (seen.st_atime_ns, seen.st_mtime_ns),
        )
        if is_folder:
            yield from _walk(root, f"{under}{found.name}/")


def lay(root: Path, entries: list[Entry]) -> None:
    """Make `root`, which must not be there, and everything in it."""
    root.mkdir()
    us = os.geteuid(), os.getegid()
    for entry in entries:
        path = root / entry.path
        if entry.data is None:
            path.mkdir(entry.mode)
        else:
            path.write_bytes(entry.data)
            path.chmod(entry.mode)
            os.utime(path, ns=entry.times)
        if entry.owner != us:
            os.chown(path, *entry.owner)


def remove(root: Path) -> None:
    """Remove `root` and everything in it."""
    for path in root.iterdir():
        if path.is_dir() and not path.is_symlink():
            remove(path)
        else:
            path.unlink()
    root.rmdir()
