"""The space of file systems: how full they are, by how much they grow, what a place has there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from engine.system import host
from engine.system.host import DiskReader, DiskSpace
from engine.text.figure import Figure
from tests.console_places import Clock
from tests.tables import each


def a_disk(total: int, free: int, inodes: int = 500) -> os.statvfs_result:
    """A file system with so many blocks and inodes; 0 inodes: it makes them as it goes."""
    return os.statvfs_result((4096, 4096, total, free, free, inodes, inodes, inodes, 0, 255))


def read_one(reader: DiskReader) -> DiskSpace:
    """The only file system of a reader."""
    (disk,) = reader.read()
    return disk


@each(
    ("disk", "room", "lacks_inodes"),
    [
        (a_disk(9_000, 900), 500, True),
        (a_disk(9_000, 20), 20, False),
        (a_disk(9_000, 900, 3), 3, True),
        (a_disk(9_000, 0, 0), 0, False),
    ],
)
def test_a_task_takes_a_block_and_an_inode(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    disk: os.statvfs_result,
    room: int,
    lacks_inodes: bool,
) -> None:
    """As many tasks fit as there are free units of what is scarcer."""
    monkeypatch.setattr(os, "statvfs", lambda path: disk)
    space = read_one(DiskReader([str(tmp_path)], str(tmp_path)))
    assert (space.free_tasks, space.lacks_inodes) == (room, lacks_inodes)
    assert space.used_bytes == 4096 * (9_000 - disk.f_bavail)


def test_a_full_disk_has_its_mount_point_and_the_bytes_of_the_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each file of the place counts once, also if its folder is below another or the place is a
    link; one elsewhere does not. A disk with room is not measured."""
    place = tmp_path / "place"
    (place / "log").mkdir(parents=True)
    (place / "log" / "queue.log").write_bytes(bytes(70_000))
    (tmp_path / "other").write_bytes(bytes(900_000))
    clock = Clock()
    reader = DiskReader([f"{place}/log", f"{place}/run/missing"], str(place), clock)
    assert read_one(reader)[5:7] == ("", (None, True))
    monkeypatch.setattr(os, "statvfs", lambda path: a_disk(9_000, 0))
    full = read_one(reader)
    assert full.is_full and os.path.ismount(full.mount) and str(place).startswith(full.mount)
    assert 70_000 <= (full.own_bytes.value or 0) < 200_000 and full.own_bytes.is_exact
    (place / "log" / "old.log").write_bytes(bytes(300_000))
    clock.now += 9
    monkeypatch.setattr(os, "statvfs", lambda path: a_disk(9_001, 0))
    assert read_one(reader).own_bytes == full.own_bytes  # measured a short time ago
    clock.now += 1
    assert (read_one(reader).own_bytes.value or 0) >= 370_000
    (place / "elsewhere").symlink_to(tmp_path)  # not followed
    (tmp_path / "link").symlink_to(place)
    linked = read_one(DiskReader([f"{tmp_path}/link"], f"{tmp_path}/link")).own_bytes
    assert 370_000 <= (linked.value or 0) < 500_000
    assert read_one(DiskReader([str(place)], "")).own_bytes == Figure(None)  # a URL
    monkeypatch.setattr(host, "MAX_MEASURED_FILES", 2)
    assert not read_one(DiskReader([str(place)], str(place))).own_bytes.is_exact


@each(("error", "is_exact"), [(FileNotFoundError, True), (PermissionError, False)])
def test_bytes_of_a_folder_that_cannot_be_read_are_not_exact(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[OSError], is_exact: bool
) -> None:
    """The figure is exact if a folder was removed meanwhile, but not if one cannot be listed."""

    def fail(path: str, most: int) -> list[str]:
        raise error(path)

    monkeypatch.setattr(host, "_list_names", fail)
    monkeypatch.setattr(os, "statvfs", lambda path: a_disk(9_000, 0))
    own = read_one(DiskReader([str(tmp_path)], str(tmp_path))).own_bytes
    assert own.value is not None and own.is_exact == is_exact


def test_the_growth_of_a_disk_is_that_of_ten_minutes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The growth is counted since the first read, and of the last ten minutes at most."""
    clock = Clock()
    reader = DiskReader([str(tmp_path)], str(tmp_path), clock)
    grown = []
    for seconds, free in ((0, 900), (30, 800), (600, 700), (30, 700)):
        clock.now += seconds
        monkeypatch.setattr(os, "statvfs", lambda path, free=free: a_disk(9_000, free))
        space = read_one(reader)
        grown.append((space.grown_bytes // 4096, space.grown_seconds))
    assert grown == [(0, 0.0), (100, 30.0), (100, 600.0), (0, 30.0)]


def test_a_folder_that_will_be_made_is_on_the_disk_of_its_parent(tmp_path: Path) -> None:
    """A missing folder counts as its nearest existing parent; a URL has no disk."""
    assert [one.folder for one in DiskReader([f"{tmp_path}/a/run"], "").read()] == [str(tmp_path)]
    assert not DiskReader([], "redis://127.0.0.1/0").read()
