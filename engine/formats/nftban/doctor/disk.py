"""File system checks: one file system for renames, a safe file system type, enough free space."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator

from engine.doctor.finding import Finding, Grade, bad, hidden, ok, warn
from engine.formats.nftban.doctor.evidence import access_denied, report_missing, report_unseen
from engine.formats.nftban.doctor.place_facts import PlaceFacts
from engine.model import State
from engine.monitor.alerts import MIN_FREE_TASKS
from engine.system import mounts
from engine.system.host import free_units
from engine.text.error_text import error_text


def check_one_file_system(facts: PlaceFacts) -> Iterator[Finding]:
    """Check that all state folders are on one file system, so that rename works between them."""
    queue = facts.queue
    pending = facts.folder_stats[queue.pending]
    if not isinstance(pending, os.stat_result):
        yield report_missing(queue.pending, pending)
        return
    others = (queue.work, queue.dlq, facts.staging)
    yield from report_unseen(facts, others)
    for path, folder_stat in facts.existing(others):
        if folder_stat.st_dev != pending.st_dev:
            text = f"{path} is on another file system than {queue.pending}: rename is not possible"
            yield bad(text, f"stop the worker, umount or move {shlex.quote(path)}")


def check_file_systems(facts: PlaceFacts) -> Iterator[Finding]:
    """Check the type and mount options of the file systems."""
    queue = facts.queue
    reported: set[str] = set()
    folders = (queue.pending, queue.work, queue.dlq, queue.mail_spool)
    yield from report_unseen(facts, folders)
    for path in folders:
        if isinstance(facts.folder_stats[path], PermissionError):
            continue  # its path may contain links that we cannot resolve
        try:
            mount = mounts.mount_of(path)
        except OSError as error:
            yield access_denied(f"{mounts.MOUNTS}: {error_text(error)}")
            return
        point = mount.point if mount else ""
        if point in reported:
            continue
        reported.add(point)
        if mount is None:
            text = f"file system of {path} unknown: not in {mounts.MOUNTS}, as in a chroot"
            yield hidden(text)
        else:
            yield _judged(path, mount)


def _judged(path: str, mount: mounts.Mount) -> Finding:
    journal = mounts.has_journal(mount) if mount.type in mounts.EXT_TYPES else None
    why = mounts.durability_problem(mount, journal)
    where = f"{path} is on {mount.type} ({mount.source} at {mount.point})"
    if "ro" in mount.options:
        fix = f"mount -o remount,rw {shlex.quote(mount.point)}"
        return bad(f"{where}, read-only", fix)
    if why:
        return warn(f"{where}, which {why}", _better(mount, journal, why))
    if mount.type in mounts.EXT_TYPES and journal is None:
        return hidden(f"{where}; permission denied: journal unknown")
    if not mounts.is_known_type(mount.type):
        text = f"{where}; unknown whether renames survive a power cut"
        return hidden(text)
    return ok(f"{where}{', with a journal' if journal else ''}")


def _better(mount: mounts.Mount, journal: bool | None, why: str) -> str:
    if why.startswith("mounted with"):
        option = why.split(" ")[2].rstrip(":")
        return f"remove {option} from the options of {mount.point} in /etc/fstab"
    if journal is False:
        return f"tune2fs -j {shlex.quote(mount.source)}  # used after the next mount"
    return "move the queue to a local disk with ext4 (has_journal), xfs, btrfs or zfs"


def check_free_space(facts: PlaceFacts) -> Iterator[Finding]:
    """Check the free space: each task takes one block and one inode."""
    queue, counts = facts.queue, facts.view.counts
    needed = max(MIN_FREE_TASKS, queue.max_pending - counts.get(State.PENDING, 0))
    try:
        left_of = free_units(queue.pending)
    except OSError as error:
        yield report_missing(queue.pending, error)
        return
    for word, room in left_of.items():
        if room < needed:
            grade = Grade.BAD if room < MIN_FREE_TASKS else Grade.WARN
            text = f"room for {room:,} tasks on the disk of {queue.pending} (free {word}), "
            flag = "-i " if word == "inodes" else ""
            yield Finding(
                grade,
                f"{text}and {needed:,} more may be added",
                f"df -h {flag}{shlex.quote(queue.pending)}  # then make room there",
            )
