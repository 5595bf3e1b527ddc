"""The folders of a queue: whether they are there, whose they are, who may do what in them."""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Iterator

from engine.doctor.finding import (
    NAMED,
    Finding,
    Grade,
    hidden_from_us,
    listed,
    unread,
    unseen,
    without,
)
from engine.doctor.place_facts import PlaceFacts, folders_of, is_hidden
from engine.stores.nftban.quarantine import NAME as CORRUPT
from engine.stores.nftban.store import STATES
from engine.system import files, users


def tasks(patient: PlaceFacts) -> Iterator[Finding]:
    """Counts the tasks, or says why they cannot be."""
    sight, queue, desk = patient.sight, patient.queue, patient.desk
    folders = (queue.pending, queue.work, queue.dlq, desk, f"{desk}/held", f"{desk}/trash")
    if not sight.refused:
        hidden = bool(sight.hidden) or any(is_hidden(path) for path in folders)
        counts = ", ".join(f"{number:,} {STATES[state]}" for state, number in sight.counts.items())
        few = "of those that are not hidden from us: " if hidden else ""
        yield Finding(Grade.HIDDEN if hidden else Grade.OK, few + counts)
        return
    # Bad all the same: nobody knows how the queue is until somebody looks who may.
    for finding in unread(folders):
        yield Finding(Grade.BAD, finding.what, by_its_owner(patient))
        return
    yield Finding(Grade.BAD, sight.refused, f"spooldeck init {shlex.quote(patient.queue.root)}")


def rights(patient: PlaceFacts) -> Iterator[Finding]:
    """Looks at what we ourselves may do there: no fault of the place, but good to know."""
    pending = patient.seen[patient.queue.pending]
    if works_here(patient):
        return
    if isinstance(pending, OSError) and not isinstance(pending, PermissionError):
        yield without(patient.queue.pending, pending)
        return
    said = f"we are {user(os.geteuid())} and may not change this queue"
    yield Finding(Grade.HIDDEN, said, by_its_owner(patient))


def works_here(patient: PlaceFacts) -> bool:
    """Whether we may look into `pending` and change it."""
    return os.access(patient.queue.pending, os.R_OK | os.W_OK | os.X_OK)


def by_its_owner(patient: PlaceFacts) -> str:
    """The command line of who owns the queue, or the nearest folder above it that we can see."""
    path = patient.queue.pending
    while True:
        try:
            owner = os.stat(path).st_uid
        except PermissionError:
            path = os.path.dirname(path)
        else:
            return f"sudo -u {shlex.quote(users.for_sudo(owner))} {patient.spooldeck} doctor"


def folders(patient: PlaceFacts) -> Iterator[Finding]:
    """Looks whether every folder is there, and is one."""
    queue = patient.queue
    init = f"spooldeck init {shlex.quote(queue.root)}"
    later = []
    for word, path in folders_of(queue).items():
        seen = patient.seen[path]
        if isinstance(seen, PermissionError):
            yield hidden_from_us(f"{word}: {path}")
        elif isinstance(seen, OSError) and word in STATES.values():
            yield Finding(Grade.BAD, f"{word}: {path}: {seen.strerror}", init)
        elif isinstance(seen, OSError):
            later.append(path)
        elif not stat.S_ISDIR(seen.st_mode):
            what = "a symbolic link, which is not followed" if _is_link(seen) else "no folder"
            mend = f"put the folder itself there, or name it in the configuration (queue.{word})"
            yield Finding(Grade.BAD, f"{word}: {path} is {what}", mend)
    if later:
        yield Finding(Grade.WARN, f"not there yet: {', '.join(later)}", init)


def _is_link(seen: os.stat_result) -> bool:
    return stat.S_ISLNK(seen.st_mode)


def modes(patient: PlaceFacts) -> Iterator[Finding]:
    """Looks at who may look and write."""
    queue, own = patient.queue, patient.desk
    private = {queue.pending, queue.work, queue.dlq, queue.mail_spool}
    private |= {own, f"{own}/held", f"{own}/trash", f"{own}/{CORRUPT}"}
    yield from unseen(patient, patient.seen)
    for path, seen in patient.there(patient.seen):
        if _is_link(seen):
            continue  # its mode means nothing, and chmod would follow it; `folders` tells of it
        mode = stat.S_IMODE(seen.st_mode)
        mend = f"chmod u=rwx,g-w,o= {shlex.quote(path)}"
        if mode & stat.S_IWOTH:
            yield Finding(Grade.BAD, f"{path}: mode {mode:o}: anybody may put tasks there", mend)
        elif path in private and mode & 0o027:
            who = "its group may write" if mode & stat.S_IWGRP else "everybody may look in"
            yield Finding(
                Grade.WARN, f"{path}: mode {mode:o}: {who}; expected {files.FOLDER_MODE:o}", mend
            )
        elif mode & 0o700 != 0o700:
            said = f"{path}: mode {mode:o}: its owner cannot work there"
            yield Finding(Grade.BAD, said, f"chmod u=rwx {shlex.quote(path)}")
    yield from _open_above(queue.pending)


def _open_above(path: str) -> Iterator[Finding]:
    """Who may write in a folder above may put another queue in this one's place."""
    while path != "/":
        path = os.path.dirname(path)
        try:
            mode = os.stat(path).st_mode
        except OSError:
            continue  # hidden; those above it may not be
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            said = f"{path}: mode {stat.S_IMODE(mode):o}: anybody may rename the queue away"
            yield Finding(Grade.BAD, said, f"chmod o-w {shlex.quote(path)}")


def owners(patient: PlaceFacts) -> Iterator[Finding]:
    """Looks whether everything belongs to one user, or a worker cannot change it all."""
    queue = patient.queue
    pending = patient.seen[queue.pending]
    if not isinstance(pending, os.stat_result):
        yield without(queue.pending, pending)
        return
    owner = pending.st_uid, pending.st_gid
    them = f"{user(pending.st_uid)}:{_group(pending.st_gid)}"
    core = {queue.work, queue.dlq, patient.desk, f"{patient.desk}/held", f"{patient.desk}/trash"}
    yield from unread(patient.seen)
    for path, seen in patient.there(patient.seen):
        theirs = seen.st_uid, seen.st_gid
        if seen.st_uid != owner[0] or (path in core and theirs != owner):
            grade = Grade.BAD if path in core and seen.st_uid != owner[0] else Grade.WARN
            said = f"{path} belongs to {user(seen.st_uid)}:{_group(seen.st_gid)}, pending to {them}"
            yield Finding(grade, said, f"chown {them} {shlex.quote(path)}")
    foreign = [*patient.sight.strangers, *_strange_files(patient, owner[0])]
    for path in foreign[:NAMED]:
        said = f"{path} belongs to another user than {user(owner[0])}"
        yield Finding(Grade.WARN, said, f"chown -h {them} {shlex.quote(path)}")
    if len(foreign) > NAMED:
        said = f"and {len(foreign) - NAMED:,} more files of other users"
        root = shlex.quote(os.path.dirname(queue.pending))
        yield Finding(Grade.WARN, said, f"chown -hR {them} {root}")


def _strange_files(patient: PlaceFacts, owner: int) -> Iterator[str]:
    """Files beside the queue that another user left, so that its owner cannot write them again."""
    queue = patient.queue
    beside = (queue.run_dir, os.path.dirname(queue.queue_metrics), queue.counters)
    files_there = [f"{folder}/{name}" for folder in beside for name in listed(folder)]
    for path in (*files_there, f"{queue.log_dir}/queue.log", f"{queue.log_dir}/mail.log"):
        try:
            seen = os.lstat(path)
        except OSError:
            continue  # there is none, or its folder is hidden: see `unread`
        if stat.S_ISREG(seen.st_mode) and seen.st_uid != owner:
            yield path


def user(uid: int) -> str:
    """A user by name, or by number where there is none."""
    return users.name_of(uid) or str(uid)


def _group(gid: int) -> str:
    import grp

    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)


def nesting(patient: PlaceFacts) -> Iterator[Finding]:
    """Looks whether a folder lies in one whose files are taken for tasks."""
    queue = patient.queue
    outer = (queue.pending, queue.work, queue.dlq)
    real = {path: os.path.realpath(path) for path in (*outer, patient.desk, queue.mail_spool)}
    yield from unseen(patient, real)
    for above in outer:
        for below in real:
            inside = real[below] == real[above] or real[below].startswith(real[above] + "/")
            if below != above and inside:
                said = f"{below} lies in {above}: its files would be taken for tasks"
                mend = f"give each a folder of its own in {patient.config or 'the configuration'}"
                yield Finding(Grade.BAD, said, mend)
