"""Folder checks: existence, owners, modes, nesting, our own rights; and of their disks: one file
system for renames, a safe type, enough free space."""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Iterator

from engine.doctor.finding import Finding, Grade, bad, hidden, list_first, ok, warn
from engine.formats.nftban.doctor.evidence import (
    access_denied,
    list_names,
    report_missing,
    report_unread,
    report_unseen,
)
from engine.formats.nftban.doctor.place_facts import (
    PlaceFacts,
    data_folders,
    folders_of,
    is_hidden,
)
from engine.formats.nftban.staging import QUARANTINE_NAME as CORRUPT
from engine.formats.nftban.store import STATES
from engine.model import State
from engine.system import files, mounts, users
from engine.system.host import MIN_FREE_TASKS, free_units
from engine.text.error_text import error_text


def check_tasks(facts: PlaceFacts) -> Iterator[Finding]:
    """Count the tasks by state, or report why that is not possible."""
    view, queue, staging = facts.view, facts.queue, facts.staging
    folders = (queue.pending, queue.work, queue.dlq, staging, f"{staging}/held", f"{staging}/trash")
    if not view.problem:
        is_partial = bool(view.hidden) or any(is_hidden(path) for path in folders)
        counts = ", ".join(f"{number:,} {STATES[state]}" for state, number in view.counts.items())
        few = "readable ones only: " if is_partial else ""
        yield Finding(Grade.HIDDEN if is_partial else Grade.OK, few + counts)
        return
    # Still a fault: the queue's state is unknown until its owner runs the doctor.
    for finding in report_unread(folders):
        yield bad(finding.problem, owner_command(facts))
        return
    yield bad(view.problem, f"spooldeck init {shlex.quote(facts.queue.root)}")


def check_own_access(facts: PlaceFacts) -> Iterator[Finding]:
    """Check our own access; no fault of the place, but good to know."""
    pending = facts.folder_stats[facts.queue.pending]
    if can_change_queue(facts):
        return
    if isinstance(pending, OSError) and not isinstance(pending, PermissionError):
        yield report_missing(facts.queue.pending, pending)
        return
    text = f"user {user_name(os.geteuid())} may not change this queue"
    yield hidden(text, owner_command(facts))


def can_change_queue(facts: PlaceFacts) -> bool:
    """True if we may list and change `pending`."""
    return os.access(facts.queue.pending, os.R_OK | os.W_OK | os.X_OK)


def owner_command(facts: PlaceFacts) -> str:
    """Command to run the doctor as the queue's owner, or as the owner of the nearest visible folder
    above it."""
    path = facts.queue.pending
    while True:
        try:
            owner = os.stat(path).st_uid
        except PermissionError:
            path = os.path.dirname(path)
        else:
            return f"sudo -u {shlex.quote(users.sudo_user(owner))} {facts.spooldeck} doctor"


def check_folders(facts: PlaceFacts) -> Iterator[Finding]:
    """Check that each folder exists and is a directory."""
    queue = facts.queue
    init = f"spooldeck init {shlex.quote(queue.root)}"
    later = []
    for word, path in folders_of(queue).items():
        stat_or_error = facts.folder_stats[path]
        if isinstance(stat_or_error, PermissionError):
            yield access_denied(f"{word}: {path}")
        elif isinstance(stat_or_error, OSError) and word in STATES.values():
            yield bad(f"{word}: {path}: {error_text(stat_or_error)}", init)
        elif isinstance(stat_or_error, OSError):
            later.append(path)
        elif not stat.S_ISDIR(stat_or_error.st_mode):
            what = (
                "a symbolic link, which is not followed"
                if _is_link(stat_or_error)
                else "not a folder"
            )
            fix = f"put the folder itself there, or name it in the configuration (queue.{word})"
            yield bad(f"{word}: {path} is {what}", fix)
    if later:
        yield warn(f"missing: {', '.join(later)}", init)


def _is_link(folder_stat: os.stat_result) -> bool:
    return stat.S_ISLNK(folder_stat.st_mode)


def check_modes(facts: PlaceFacts) -> Iterator[Finding]:
    """Check the folders' permission bits."""
    queue, staging = facts.queue, facts.staging
    private = {queue.pending, queue.work, queue.dlq, queue.mail_spool}
    private |= {*data_folders(queue), staging}
    private |= {f"{staging}/{name}" for name in ("held", "trash", CORRUPT)}
    yield from report_unseen(facts, facts.folder_stats)
    for path, folder_stat in facts.existing(facts.folder_stats):
        if _is_link(folder_stat):
            continue  # its mode means nothing, and chmod would follow it; `folders` reports it
        mode = stat.S_IMODE(folder_stat.st_mode)
        fix = f"chmod u=rwx,g-w,o= {shlex.quote(path)}"
        if mode & stat.S_IWOTH:
            yield bad(f"{path}: mode {mode:o}: any user may add tasks", fix)
        elif path in private and mode & 0o027:
            who = "its group may write" if mode & stat.S_IWGRP else "other users may read it"
            yield warn(f"{path}: mode {mode:o}: {who}; expected {files.FOLDER_MODE:o}", fix)
        elif mode & 0o700 != 0o700:
            text = f"{path}: mode {mode:o}: its owner lacks access"
            yield bad(text, f"chmod u=rwx {shlex.quote(path)}")
    yield from _open_above(queue.pending)


def _open_above(path: str) -> Iterator[Finding]:
    """Check the parent folders: any user who may write there can replace the queue."""
    while path != "/":
        path = os.path.dirname(path)
        try:
            mode = os.stat(path).st_mode
        except OSError:
            continue  # not visible; the folders above it may be
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            text = f"{path}: mode {stat.S_IMODE(mode):o}: any user may rename the queue away"
            yield bad(text, f"chmod o-w {shlex.quote(path)}")


def check_owners(facts: PlaceFacts) -> Iterator[Finding]:
    """Check that one user owns everything: else a worker cannot change it all."""
    queue = facts.queue
    pending = facts.folder_stats[queue.pending]
    if not isinstance(pending, os.stat_result):
        yield report_missing(queue.pending, pending)
        return
    owner = pending.st_uid, pending.st_gid
    them = f"{user_name(pending.st_uid)}:{_group(pending.st_gid)}"
    core = {queue.work, queue.dlq, facts.staging, f"{facts.staging}/held", f"{facts.staging}/trash"}
    yield from report_unread(facts.folder_stats)
    for path, folder_stat in facts.existing(facts.folder_stats):
        theirs = folder_stat.st_uid, folder_stat.st_gid
        if folder_stat.st_uid != owner[0] or (path in core and theirs != owner):
            grade = Grade.BAD if path in core and folder_stat.st_uid != owner[0] else Grade.WARN
            text = (
                f"{path} belongs to {user_name(folder_stat.st_uid)}:"
                f"{_group(folder_stat.st_gid)}, pending to {them}"
            )
            yield Finding(grade, text, f"chown {them} {shlex.quote(path)}")
    strangers = [*facts.view.strangers, *_strange_files(facts, owner[0])]
    text = f"belongs to another user than {user_name(owner[0])}"
    yield from list_first(
        strangers,
        lambda path: warn(f"{path} {text}", f"chown -h {them} {shlex.quote(path)}"),
        "more files of other users",
        f"chown -hR {them} {shlex.quote(os.path.dirname(queue.pending))}",
    )


def _strange_files(facts: PlaceFacts, owner: int) -> Iterator[str]:
    """Files next to the queue that another user left and its owner cannot overwrite."""
    queue = facts.queue
    folders = (queue.run_dir, os.path.dirname(queue.queue_metrics), queue.counters)
    files_there = [f"{folder}/{name}" for folder in folders for name in list_names(folder)]
    for path in (*files_there, f"{queue.log_dir}/queue.log", f"{queue.log_dir}/mail.log"):
        try:
            file_stat = os.lstat(path)
        except OSError:
            continue  # missing, or in an unreadable folder: see `report_unread`
        if stat.S_ISREG(file_stat.st_mode) and file_stat.st_uid != owner:
            yield path


def user_name(uid: int) -> str:
    """User name, or the UID if there is no name."""
    return users.user_name(uid) or str(uid)


def _group(gid: int) -> str:
    import grp

    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)


def check_nesting(facts: PlaceFacts) -> Iterator[Finding]:
    """Check that no folder is inside one whose files are read as tasks."""
    queue = facts.queue
    outer = (queue.pending, queue.work, queue.dlq)
    real = {path: os.path.realpath(path) for path in (*outer, facts.staging, queue.mail_spool)}
    yield from report_unseen(facts, real)
    for above in outer:
        for below in real:
            inside = real[below] == real[above] or real[below].startswith(real[above] + "/")
            if below != above and inside:
                text = f"{below} is inside {above}: its files would be read as tasks"
                fix = f"give each a folder of its own in {facts.config or 'the configuration'}"
                yield bad(text, fix)


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
