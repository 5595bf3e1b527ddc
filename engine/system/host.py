"""Free space of file systems (statvfs) and load of the host (getloadavg)."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress

from engine.values import NamedTuple


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


def free_units(folder: str) -> dict[str, int]:
    """Free blocks and inodes of a folder's file system (statvfs); a task takes one of each. Raises
    `OSError`: the folder cannot be reached."""
    fs_stat = os.statvfs(folder)
    blocks = fs_stat.f_bavail * fs_stat.f_frsize // max(1, fs_stat.f_bsize)
    # File systems that make inodes as they go report 0 of 0.
    inodes = {"inodes": fs_stat.f_favail} if fs_stat.f_files else {}
    return {"blocks": blocks, **inodes} if fs_stat.f_blocks else inodes


def count_free_tasks(folders: Iterable[str]) -> dict[str, int]:
    """How many more tasks fit on each file system that has one of these folders, by the first
    folder there. One that is missing will be made: its nearest existing parent counts. One that
    cannot be reached is skipped: other checks report it."""
    free_tasks: dict[str, int] = {}
    devices: set[int] = set()
    for folder in map(_existing, folders):
        with suppress(OSError):
            device = os.stat(folder).st_dev
            if device not in devices and (units := free_units(folder)):
                free_tasks[folder] = min(units.values())
            devices.add(device)
    return free_tasks


def identify_folders(folders: Iterable[str]) -> tuple[tuple[int, int], ...]:
    """Device and inode of each folder: others where a disk was mounted over one, or a backup was
    put in its place. () while one cannot be reached."""
    try:
        stats = [os.stat(folder) for folder in folders]
    except OSError:
        return ()
    return tuple((each.st_dev, each.st_ino) for each in stats)


def _existing(folder: str) -> str:
    while not os.path.lexists(folder) and (parent := os.path.dirname(folder)) not in ("", folder):
        folder = parent
    return folder


def read_host_figures(path: str) -> HostFigures | None:
    """The figures of the file system that has `path`; None if that cannot be reached."""
    try:
        space, device = os.statvfs(path), os.stat(path).st_dev
        load = os.getloadavg()[0]
    except OSError:
        return None
    total, free = space.f_blocks * space.f_frsize, space.f_bavail * space.f_frsize
    return HostFigures(device, total - free, total, load, os.cpu_count() or 1)
