"""File system of a folder (from /proc/self/mountinfo), and how safe it is in a power cut."""

from __future__ import annotations

import os
from collections.abc import Iterable

from engine.values import NamedTuple

MOUNTS = "/proc/self/mountinfo"


class Mount(NamedTuple):
    """One line of `mountinfo` (proc(5))."""

    device: str
    """Major and minor number: `8:1`."""
    point: str
    type: str
    """File system type: `ext4`, `fuse.sshfs`."""
    source: str
    options: frozenset[str]
    """Options of the mount and of the file system."""


def parse_mounts(text: str) -> list[Mount]:
    """Parse `mountinfo`; lines of another form are ignored."""
    mounts = []
    for line in text.splitlines():
        front, dash, back = line.partition(" - ")
        fields, details = front.split(" "), back.split(" ")
        if dash and len(fields) >= 6 and len(details) >= 3:
            options = frozenset(f"{fields[5]},{details[2]}".split(","))
            point, source = _unescaped(fields[4]), _unescaped(details[1])
            mounts.append(Mount(fields[2], point, details[0], source, options))
    return mounts


def _unescaped(text: str) -> str:
    # The kernel writes white space and backslash in octal; the backslash must be replaced last.
    for code in ("040", "011", "012", "134"):
        text = text.replace(f"\\{code}", chr(int(code, 8)))
    return text


def mount_containing(path: str, mounts: Iterable[Mount]) -> Mount | None:
    """The mount that contains a path (absolute, without symbolic links); None if not listed. It is
    the longest matching mount point; of two on one point, the later hides the earlier."""
    best = None
    for mount in mounts:
        inside = path == mount.point or path.startswith(mount.point.rstrip("/") + "/")
        if inside and (best is None or len(mount.point) >= len(best.point)):
            best = mount
    return best


def mount_of(path: str) -> Mount | None:
    """The mount that contains a path; None if the kernel does not list it. Raises `OSError`: the
    list of mounts cannot be read."""
    with open(MOUNTS, encoding="utf-8", errors="surrogateescape") as file:
        return mount_containing(os.path.realpath(path), parse_mounts(file.read()))


def may_hang(path: str) -> bool:
    """True if a call on this path may wait for another host or program: network file systems, FUSE,
    and what the kernel does not list."""
    try:
        mount = mount_of(path)
    except OSError:
        return True
    if mount is None:
        return True
    family = mount.type.partition(".")[0]
    return family == "fuse" or _TYPE_PROBLEMS.get(family) == _REMOTE


def has_journal(mount: Mount, sys: str = "/sys", proc: str = "/proc") -> bool | None:
    """True if a file system of the ext family has a journal; None if unknown.

    Sources: the kernel's `Documentation/ABI/testing/sysfs-fs-ext4` ("journal_task"), and the folder
    of jbd2 in /proc, which has an entry `DEVICE-INODE` for a journal inside the file system."""
    name = os.path.basename(os.path.realpath(f"{sys}/dev/block/{mount.device}"))
    try:
        with open(f"{sys}/fs/ext4/{name}/journal_task", encoding="ascii") as file:
            return file.read().strip() != "<none>"
    except OSError:
        pass  # older kernel: try /proc
    try:
        return any(entry.startswith(f"{name}-") for entry in os.listdir(f"{proc}/fs/jbd2"))
    except OSError:
        return None


def durability_problem(mount: Mount, journal: bool | None) -> str:
    """Why a spool on this file system may lose or repeat tasks; "" if it is safe. `journal` is the
    result of `has_journal`, needed only for the types in `EXT_TYPES`."""
    for option, why in _OPTION_PROBLEMS.items():
        if option in mount.options:
            return f"mounted with {option}: {why}"
    if mount.type in EXT_TYPES and journal is False:
        return (
            "has no journal: after a power cut a task that was just moved may be in neither "
            "folder, or the file system may need fsck"
        )
    family = mount.type.partition(".")[0]
    return _TYPE_PROBLEMS.get(mount.type) or _TYPE_PROBLEMS.get(family, "")


def is_known_type(kind: str) -> bool:
    """True if `durability_problem` knows this file system type."""
    return kind in EXT_TYPES | SAFE_TYPES or kind.partition(".")[0] in _TYPE_PROBLEMS


EXT_TYPES = frozenset({"ext2", "ext3", "ext4"})
SAFE_TYPES = frozenset({"xfs", "btrfs", "zfs", "f2fs", "bcachefs", "jfs", "nilfs2"})
"""File systems that keep renames atomic and in order in a power cut, by a journal or log."""

_OPTION_PROBLEMS = {
    "data=writeback": "after a power cut a file may contain old disk data",
    "nobarrier": "fsynced data may not survive a power cut",
    "barrier=0": "fsynced data may not survive a power cut",
}

_REMOTE = (
    "is a network file system: other hosts may not see a lock, "
    "and a rename may succeed although it reported an error"
)
_PLAIN = "has neither owners nor a journal"

_TYPE_PROBLEMS = {
    **dict.fromkeys(("nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "9p", "ceph"), _REMOTE),
    **dict.fromkeys(("glusterfs", "lustre", "virtiofs"), _REMOTE),
    **dict.fromkeys(("vfat", "msdos", "exfat", "ntfs", "ntfs3"), _PLAIN),
    **dict.fromkeys(("tmpfs", "ramfs", "devtmpfs"), "is in memory: a reboot deletes all tasks"),
    "overlay": "is a container's layer: removing the container deletes all tasks",
    "fuse": "is a FUSE file system: its locks, renames and fsync depend on the program behind it",
}
