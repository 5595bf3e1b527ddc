"""Close a resource at the end of a block, or if making it ready fails."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

TYPE_CHECKING = False  # typing loads re and enum, at each start
if TYPE_CHECKING:
    from typing import Protocol

    class _Closable(Protocol):
        def close(self) -> None:
            """Free what it holds."""


@contextmanager
def closed_on_error(resource: _Closable) -> Iterator[None]:
    """Close a resource if the body, which makes it ready, raises; else leave it open.

    The object that would close it later is not made then, and a connection that waits for the
    garbage collector keeps its file and its locks."""
    try:
        yield
    except BaseException:
        resource.close()
        raise


@contextmanager
def closing_fd(fd: int) -> Iterator[int]:
    """Close a file descriptor at the end of the body."""
    try:
        yield fd
    finally:
        os.close(fd)
