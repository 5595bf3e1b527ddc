"""What file system a folder lies on, and what may be relied on there after a power cut."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import NamedTuple

MOUNTS = "/proc/self/mountinfo"


class Mount(NamedTuple):
    """One line of `mountinfo` (proc(5))."""

    device: str
    """Major and minor number: `8:1`."""
    point: str
    """Where it is mounted."""
    kind: str
    """The file system's name: `ext4`, `fuse.sshfs`."""
    source: str
    options: frozenset[str]
    """Of this mount and of the file system as a whole."""


def parse(text: str) -> list[Mount]:
    """The mounts that `mountinfo` lists, in its order; a line of another form is passed over."""
    mounts = []
    for line in text.splitlines():
        front, dash, back = line.partition(" - ")
        fields, about = front.split(" "), back.split(" ")
        if dash and len(fields) >= 6 and len(about) >= 3:
            options = frozenset(f"{fields[5]},{about[2]}".split(","))
            mounts.append(
                Mount(fields[2], _unescaped(fields[4]), about[0], _unescaped(about[1]), options)
            )
    return mounts


def _unescaped(text: str) -> str:
    # The kernel writes white space and the backslash in octal; the backslash must come last.
    for code in ("040", "011", "012", "134"):
        text = text.replace(f"\\{code}", chr(int(code, 8)))
    return text


def holding(path: str, mounts: Iterable[Mount]) -> Mount | None:
    """The mount on which a path (absolute, without symbolic links) lies; None if none is listed.

    The longest mount point that leads to it; of two on one point, the later hides the earlier.
    """
    found = None
    for mount in mounts:
        inside = path == mount.point or path.startswith(mount.point.rstrip("/") + "/")
        if inside and (found is None or len(mount.point) >= len(found.point)):
            found = mount
    return found


def of(path: str) -> Mount | None:
    """The mount on which a path lies; None if the kernel does not say.

    Raises:
        OSError: the list of mounts cannot be read.
    """
    with open(MOUNTS, encoding="utf-8", errors="surrogateescape") as file:
        return holding(os.path.realpath(path), parse(file.read()))


def has_journal(mount: Mount, sys: str = "/sys", proc: str = "/proc") -> bool | None:
    """Whether a file system of the ext family has a journal; None if the kernel does not tell us.

    Source: the kernel's `Documentation/ABI/testing/sysfs-fs-ext4` (`journal_task`), and the folder
    that jbd2 keeps in /proc for each journal, `DEVICE-INODE` for one inside the file system.
    """
    name = os.path.basename(os.path.realpath(f"{sys}/dev/block/{mount.device}"))
    try:
        with open(f"{sys}/fs/ext4/{name}/journal_task", encoding="ascii") as file:
            return file.read().strip() != "<none>"
    except OSError:
        pass  # not told there; perhaps there
    try:
        return any(entry.startswith(f"{name}-") for entry in os.listdir(f"{proc}/fs/jbd2"))
    except OSError:
        return None


def weakness(mount: Mount, journal: bool | None) -> str:
    """Why a spool on this file system may lose or repeat tasks; "" when it keeps its promises.

    `journal` is what `has_journal` says; asked for only where it matters (`EXT`).
    """
    for option, why in _OPTIONS.items():
        if option in mount.options:
            return f"mounted with {option}: {why}"
    if mount.kind in EXT and journal is False:
        return (
            "has no journal: after a power cut a task that was just moved from one folder to "
            "another may be in neither, or the whole file system wants repair"
        )
    family = mount.kind.partition(".")[0]
    return _KINDS.get(mount.kind) or _KINDS.get(family, "")


def is_known(kind: str) -> bool:
    """Whether `weakness` knows anything about such file systems."""
    return kind in EXT | SOUND or kind.partition(".")[0] in _KINDS


EXT = frozenset({"ext2", "ext3", "ext4"})
SOUND = frozenset({"xfs", "btrfs", "zfs", "f2fs", "bcachefs", "jfs", "nilfs2"})
"""File systems whose renames are atomic and in order after a power cut, by a journal or a log."""

_OPTIONS = {
    "data=writeback": "after a power cut a file may hold what was on the disk before",
    "nobarrier": "what was synced may not survive a power cut",
    "barrier=0": "what was synced may not survive a power cut",
}

_REMOTE = (
    "is a file system over the network: a lock may not be seen by other hosts, "
    "and a rename may be done though it was said to have failed"
)
_PLAIN = "has neither owners nor a journal"

_KINDS = {
    **dict.fromkeys(("nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "9p", "ceph"), _REMOTE),
    **dict.fromkeys(("glusterfs", "lustre", "virtiofs"), _REMOTE),
    **dict.fromkeys(("vfat", "msdos", "exfat", "ntfs", "ntfs3"), _PLAIN),
    **dict.fromkeys(("tmpfs", "ramfs", "devtmpfs"), "is memory: all tasks are gone at a restart"),
    "overlay": "is a container's layer: all tasks go when the container is removed",
    "fuse": "is a program's file system (fuse): what it promises for locks, renames and syncs "
    "depends on that program",
}
