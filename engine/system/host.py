"""Space of file systems (statvfs), what a place has of it, and load of the host (getloadavg)."""

from __future__ import annotations

import os
import stat
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import islice

from engine.system import files, mounts
from engine.text.figure import Figure
from engine.values import NamedTuple

MIN_FREE_TASKS = 100
"""Minimum free space, in tasks: one bulk change touches up to this many."""

GROWTH_SECONDS, SAMPLE_SECONDS = 600.0, 10.0
"""Over how long the growth of a file system is known, and the pause between two samples."""

MAX_MEASURED_FILES = 10_000
"""The most files of one measure of what a place has on a full disk."""


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


class DiskSpace(NamedTuple):
    """A file system that a place writes to."""

    folder: str
    """The first of its folders there."""
    free_tasks: int
    """How many more tasks fit: each takes a block and an inode."""
    used_bytes: int
    total_bytes: int
    lacks_inodes: bool
    """True if it has fewer free inodes than blocks."""
    mount: str
    """Where it is mounted; "" unless it is full."""
    own_bytes: Figure
    """What the folders of the place have of it; measured only if it is full."""
    grown_bytes: int
    grown_seconds: float
    """By how much it grew in the last seconds that it was read, at most ten minutes."""

    @property
    def is_full(self) -> bool:
        """True if a bulk change may not fit."""
        return self.free_tasks < MIN_FREE_TASKS


class DiskReader:
    """Reads the file systems of the folders that a place writes to, and remembers how much was used
    there before."""

    def __init__(
        self, written: Sequence[str], place: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`place`: its folder or file, which is measured too; "" for a URL, whose bytes are on a
        server: no figure."""
        self._folders, self._place, self._clock = written, place, clock
        self._used: dict[int, deque[tuple[float, int]]] = {}
        self._own: dict[int, tuple[float, int, Figure]] = {}

    def read(self) -> tuple[DiskSpace, ...]:
        """Each file system that has one of the folders, that of the first folder first. A missing
        folder will be made: its nearest existing parent counts. One that cannot be reached is
        skipped: other checks report it."""
        disks: dict[int, DiskSpace] = {}
        for folder in map(_existing, self._folders):
            with suppress(OSError):
                device = os.stat(folder).st_dev
                if device not in disks and (units := free_units(folder)):
                    disks[device] = self._read(folder, device, units)
        return tuple(disks.values())

    def _read(self, folder: str, device: int, units: Mapping[str, int]) -> DiskSpace:
        used, total = _used_and_total(folder)
        grown, seconds = self._growth(device, used)
        disk = DiskSpace(
            folder=folder,
            free_tasks=min(units.values()),
            used_bytes=used,
            total_bytes=total,
            lacks_inodes=min(units, key=lambda name: units[name]) == "inodes",
            mount="",
            own_bytes=Figure(None),
            grown_bytes=grown,
            grown_seconds=seconds,
        )
        if not disk.is_full:
            return disk
        return disk._replace(mount=_mount_point(folder), own_bytes=self._own_bytes(device, used))

    def _growth(self, device: int, used: int) -> tuple[int, float]:
        now, samples = self._clock(), self._used.setdefault(device, deque())
        if not samples or now - samples[-1][0] >= SAMPLE_SECONDS:
            samples.append((now, used))
        while now - samples[0][0] > GROWTH_SECONDS:
            samples.popleft()
        began, before = samples[0]
        return used - before, now - began

    def _own_bytes(self, device: int, used: int) -> Figure:
        if not self._place:
            return Figure(None)
        now = self._clock()
        measured_at, used_then, own = self._own.get(device, (now, -1, Figure(None)))
        if used_then < 0 or (used_then != used and now - measured_at >= SAMPLE_SECONDS):
            own = _measure(map(os.path.realpath, (*self._folders, self._place)), device)
            self._own[device] = now, used, own
        return own


def _measure(paths: Iterable[str], device: int) -> Figure:
    """Bytes of files and folders on one file system; not exact if there are too many, or one cannot
    be read."""
    to_do, sizes, is_exact = [*paths], dict[int, int](), True
    while to_do:
        path = to_do.pop()
        try:
            entry = os.lstat(path)
            if entry.st_dev != device or entry.st_ino in sizes:
                continue
            sizes[entry.st_ino] = 512 * entry.st_blocks
            if stat.S_ISDIR(entry.st_mode):
                room = MAX_MEASURED_FILES - len(sizes) - len(to_do)
                names = _list_names(path, room + 1)
                is_exact &= len(names) <= room
                to_do += (f"{path}/{name}" for name in names[:room])
        except FileNotFoundError:
            continue  # removed since
        except OSError:
            is_exact = False
    return Figure(sum(sizes.values()), is_exact)


def _list_names(path: str, most: int) -> list[str]:
    folder_fd = files.open_folder(path)
    try:
        with os.scandir(folder_fd) as entries:
            return [entry.name for entry in islice(entries, most)]
    finally:
        os.close(folder_fd)


def _mount_point(folder: str) -> str:
    """Where the file system of a folder is mounted; the folder if that is not known."""
    try:
        mount = mounts.mount_of(folder)
    except OSError:
        return folder
    return folder if mount is None else mount.point


def _used_and_total(path: str) -> tuple[int, int]:
    """Bytes of the file system of a path; what only root may use counts as used."""
    space = os.statvfs(path)
    total, free = space.f_blocks * space.f_frsize, space.f_bavail * space.f_frsize
    return total - free, total


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
        (used, total), device = _used_and_total(path), os.stat(path).st_dev
        load = os.getloadavg()[0]
    except OSError:
        return None
    return HostFigures(device, used, total, load, os.cpu_count() or 1)
