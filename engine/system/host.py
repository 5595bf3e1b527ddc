"""Free space of a file system (statvfs) and load of the host (getloadavg)."""

from __future__ import annotations

import os
from typing import NamedTuple


class HostFigures(NamedTuple):
    """The file system of one path, and the host that it is on."""

    device: int
    """`st_dev` of the file system."""
    used_bytes: int
    """Includes what only root may use."""
    total_bytes: int
    load: float
    """Processes that run or wait for CPU or disk, mean of the last minute."""
    cpus: int


def read_host_figures(path: str) -> HostFigures | None:
    """The figures of the file system that has `path`; None if that cannot be reached."""
    try:
        space, device = os.statvfs(path), os.stat(path).st_dev
        load = os.getloadavg()[0]
    except OSError:
        return None
    total, free = space.f_blocks * space.f_frsize, space.f_bavail * space.f_frsize
    return HostFigures(device, total - free, total, load, os.cpu_count() or 1)
