"""What the folders lie on: one file system, one that keeps its promises, with room left."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator

from engine.doctor.finding import Finding, Grade, hidden_from_us, unseen, without
from engine.doctor.place_facts import PlaceFacts
from engine.model import State
from engine.monitor.alerts import SCARCE
from engine.system import mounts


def one_disk(patient: PlaceFacts) -> Iterator[Finding]:
    """Looks whether a task can be renamed from each folder into each other."""
    queue = patient.queue
    pending = patient.seen[queue.pending]
    if not isinstance(pending, os.stat_result):
        yield without(queue.pending, pending)
        return
    others = (queue.work, queue.dlq, patient.desk)
    yield from unseen(patient, others)
    for path, seen in patient.there(others):
        if seen.st_dev != pending.st_dev:
            said = f"{path} lies on another file system than {queue.pending}: no rename between"
            yield Finding(Grade.BAD, said, f"stop the worker, umount or move {shlex.quote(path)}")


def disk(patient: PlaceFacts) -> Iterator[Finding]:
    """Looks at what the file systems are."""
    queue = patient.queue
    told: set[str] = set()
    there = (queue.pending, queue.work, queue.dlq, queue.mail_spool)
    yield from unseen(patient, there)
    for path in there:
        if isinstance(patient.seen[path], PermissionError):
            continue  # on what it is mounted is told by names, which may be links
        try:
            mount = mounts.of(path)
        except OSError as error:
            yield hidden_from_us(f"{mounts.MOUNTS}: {error.strerror}")
            return
        if mount is None or mount.point in told:
            continue
        told.add(mount.point)
        yield _judged(path, mount)


def _judged(path: str, mount: mounts.Mount) -> Finding:
    journal = mounts.has_journal(mount) if mount.kind in mounts.EXT else None
    why = mounts.weakness(mount, journal)
    where = f"{path} is on {mount.kind} ({mount.source} at {mount.point})"
    if "ro" in mount.options:
        mend = f"mount -o remount,rw {shlex.quote(mount.point)}"
        return Finding(Grade.BAD, f"{where}, read-only", mend)
    if why:
        return Finding(Grade.WARN, f"{where}, which {why}", _better(mount, journal, why))
    if mount.kind in mounts.EXT and journal is None:
        return Finding(Grade.HIDDEN, f"{where}; whether it has a journal is hidden from us")
    if not mounts.is_known(mount.kind):
        said = f"{where}; whether its renames survive a power cut is not known"
        return Finding(Grade.HIDDEN, said)
    return Finding(Grade.OK, f"{where}{', with a journal' if journal else ''}")


def _better(mount: mounts.Mount, journal: bool | None, why: str) -> str:
    if why.startswith("mounted with"):
        option = why.split(" ")[2].rstrip(":")
        return f"remove {option} from the options of {mount.point} in /etc/fstab"
    if journal is False:
        return f"tune2fs -j {shlex.quote(mount.source)}  # used once it is mounted anew"
    return "move the queue to a local disk with ext4 (has_journal), xfs, btrfs or zfs"


def room(patient: PlaceFacts) -> Iterator[Finding]:
    """Looks at how much is free: each task takes a block and an inode."""
    queue, counts = patient.queue, patient.sight.counts
    wanted = max(SCARCE, queue.max_pending - counts.get(State.PENDING, 0))
    try:
        left_of = free(queue.pending)
    except OSError as error:
        yield without(queue.pending, error)
        return
    for word, left in left_of.items():
        if left < wanted:
            grade = Grade.BAD if left < SCARCE else Grade.WARN
            said = f"room for {left:,} tasks on the disk of {queue.pending} (free {word}), "
            flag = "-i " if word == "inodes" else ""
            yield Finding(
                grade,
                f"{said}and {wanted:,} more may be added",
                f"df -h {flag}{shlex.quote(queue.pending)}  # then make room there",
            )


def free(folder: str) -> dict[str, int]:
    """Free blocks and inodes of a folder's file system (statvfs); a task takes one of each.

    Raises:
        OSError: the folder cannot be reached.
    """
    seen = os.statvfs(folder)
    blocks = seen.f_bavail * seen.f_frsize // max(1, seen.f_bsize)
    # File systems that make inodes as they go report 0 of 0.
    inodes = {"inodes": seen.f_favail} if seen.f_files else {}
    return {"blocks": blocks, **inodes} if seen.f_blocks else inodes
