"""What is wrong with a place, where, and the command that mends it; changes nothing anywhere.

Each check is a function over one `Patient`, which is all that was found out beforehand: a check
decides, and only `examine` and the few that say so look at the disk.
"""

from __future__ import annotations

import os
import shlex
import stat
import subprocess
from collections.abc import Callable, Collection, Iterable, Iterator
from enum import StrEnum
from typing import NamedTuple

from engine import accounts, config, files, lockfile, metrics, mounts
from engine.accounts import Account
from engine.foreign import RUN_DIR
from engine.model import Problem, State, Verdict
from engine.patient import SLACK, Patient, folders_of, is_hidden
from engine.policy import DAY, DLQ_LIMIT, FURTHEST, HOUR, at
from engine.stores.nftban.corrupt import NAME as CORRUPT
from engine.stores.nftban.corrupt import WHY
from engine.stores.nftban.desk import NAME as DESK
from engine.stores.nftban.form import SUFFIX
from engine.stores.nftban.recovery import UNCHANGED
from engine.stores.nftban.spool import DUE_IN_MTIME, STATES
from engine.text import shown
from engine.transports import stopped_words

OLDEST_CLOCK = 1_577_836_800.0
"""2020-01-01: a clock before it was never set, as on a board without a battery."""

IDLE = 900.0
"""Seconds for which due tasks may wait with no worker at hand: three rounds of the real program's
timer, which fires every 5 minutes and up to 2 minutes late."""

SILENT = 3600.0
"""Seconds after which somebody should look why no worker has run since, whatever waits."""

LITTER = 60.0
"""Seconds after which a half-written file beside the lock or the metrics is nobody's any more."""

NAMED = 3
"""How many of many are named one by one."""

SCARCE = 100
"""Tasks for which there must be room: as many as are changed together."""


class Grade(StrEnum):
    """How bad it is."""

    OK = "ok"
    WARN = "warn"
    BAD = "bad"
    HIDDEN = "?"
    """The evidence is hidden from us, so nothing is said."""


class Finding(NamedTuple):
    """One line of the table."""

    grade: Grade
    what: str
    """What is the matter, and where."""
    mend: str = ""
    """The command that mends it, or what to do by hand."""


_Look = Callable[[Patient], Iterator[Finding]]


class Check(NamedTuple):
    """One line of the doctor's list."""

    name: str
    well: str
    """What is said when it finds nothing."""
    look: _Look
    tasks: bool = False
    """Whether it can say nothing where the tasks cannot be seen, and not all where some cannot."""


def examine(patient: Patient) -> Iterator[tuple[str, Finding]]:
    """Every check's findings, in the order of the table, each with the check's name."""
    for check in CHECKS:
        if check.tasks and patient.sight.refused:
            found = [Finding(Grade.HIDDEN, "the tasks cannot be seen")]
        else:
            found = list(check.look(patient))
        if check.tasks and patient.sight.hidden:
            number = patient.sight.hidden
            found = [finding for finding in found if finding.grade is not Grade.OK]
            found.append(_hidden("1 task file" if number == 1 else f"{number:,} task files"))
        for finding in found or [Finding(Grade.OK, check.well)]:
            yield check.name, finding


def needs_act(findings: Iterable[Finding]) -> bool:
    """Whether somebody has to do something."""
    return any(finding.grade in (Grade.WARN, Grade.BAD) for finding in findings)


# ---- the folders themselves


def _folders(patient: Patient) -> Iterator[Finding]:
    queue = patient.queue
    init = f"spooldeck init {shlex.quote(queue.root)}"
    later = []
    for word, path in folders_of(queue).items():
        seen = patient.seen[path]
        if isinstance(seen, PermissionError):
            yield _hidden(f"{word}: {path}")
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


def _hidden(what: str) -> Finding:
    return Finding(Grade.HIDDEN, f"{what}: hidden from us")


def _modes(patient: Patient) -> Iterator[Finding]:
    queue, own = patient.queue, patient.desk
    private = {queue.pending, queue.work, queue.dlq, queue.mail_spool}
    private |= {own, f"{own}/held", f"{own}/trash", f"{own}/{CORRUPT}"}
    yield from _unseen(patient, patient.seen)
    for path, seen in patient.there(patient.seen):
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


def _unseen(patient: Patient, paths: Iterable[str]) -> Iterator[Finding]:
    """Says which of these folders may or may not be there."""
    yield from _hidden_of([p for p in paths if isinstance(patient.seen.get(p), PermissionError)])


def _unread(paths: Iterable[str]) -> Iterator[Finding]:
    """Says which of these files cannot be read, and which of these folders not looked into."""
    yield from _hidden_of([path for path in dict.fromkeys(paths) if is_hidden(path)])


def _hidden_of(paths: list[str]) -> Iterator[Finding]:
    if paths:
        more = f" and {len(paths) - NAMED} more" if len(paths) > NAMED else ""
        yield _hidden(", ".join(paths[:NAMED]) + more)


def _without(path: str, seen: os.stat_result | OSError) -> Finding:
    """What is said where nothing can be, for want of a folder."""
    hidden = isinstance(seen, PermissionError)
    return _hidden(path) if hidden else Finding(Grade.HIDDEN, f"{path} is not there")


def _owners(patient: Patient) -> Iterator[Finding]:
    queue = patient.queue
    pending = patient.seen[queue.pending]
    if not isinstance(pending, os.stat_result):
        yield _without(queue.pending, pending)
        return
    owner = pending.st_uid, pending.st_gid
    them = f"{_user(pending.st_uid)}:{_group(pending.st_gid)}"
    core = {queue.work, queue.dlq, patient.desk, f"{patient.desk}/held", f"{patient.desk}/trash"}
    yield from _unread(patient.seen)
    for path, seen in patient.there(patient.seen):
        theirs = seen.st_uid, seen.st_gid
        if seen.st_uid != owner[0] or (path in core and theirs != owner):
            grade = Grade.BAD if path in core and seen.st_uid != owner[0] else Grade.WARN
            said = (
                f"{path} belongs to {_user(seen.st_uid)}:{_group(seen.st_gid)}, pending to {them}"
            )
            yield Finding(grade, said, f"chown {them} {shlex.quote(path)}")
    foreign = [*patient.sight.strangers, *_strange_files(patient, owner[0])]
    for path in foreign[:NAMED]:
        said = f"{path} belongs to another user than {_user(owner[0])}"
        yield Finding(Grade.WARN, said, f"chown -h {them} {shlex.quote(path)}")
    if len(foreign) > NAMED:
        said = f"and {len(foreign) - NAMED:,} more files of other users"
        root = shlex.quote(os.path.dirname(queue.pending))
        yield Finding(Grade.WARN, said, f"chown -hR {them} {root}")


def _strange_files(patient: Patient, owner: int) -> Iterator[str]:
    """Files beside the queue that another user left, so that its owner cannot write them again."""
    queue = patient.queue
    beside = (queue.run_dir, os.path.dirname(queue.queue_metrics), queue.counters)
    files_there = [f"{folder}/{name}" for folder in beside for name in _listed(folder)]
    for path in (*files_there, f"{queue.log_dir}/queue.log", f"{queue.log_dir}/mail.log"):
        try:
            seen = os.lstat(path)
        except OSError:
            continue  # there is none, or its folder is hidden: see `_unread`
        if stat.S_ISREG(seen.st_mode) and seen.st_uid != owner:
            yield path


def _listed(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []  # missing, as was said already, or hidden: see `_unread`


def _user(uid: int) -> str:
    return accounts.name_of(uid) or str(uid)


def _group(gid: int) -> str:
    import grp

    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)


def _rights(patient: Patient) -> Iterator[Finding]:
    """Looks at what we ourselves may do there: no fault of the place, but good to know."""
    pending = patient.seen[patient.queue.pending]
    if _works_here(patient):
        return
    if isinstance(pending, OSError) and not isinstance(pending, PermissionError):
        yield _without(patient.queue.pending, pending)
        return
    said = f"we are {_user(os.geteuid())} and may not change this queue"
    yield Finding(Grade.HIDDEN, said, _by_its_owner(patient))


def _works_here(patient: Patient) -> bool:
    return os.access(patient.queue.pending, os.R_OK | os.W_OK | os.X_OK)


def _by_its_owner(patient: Patient) -> str:
    """The command line of who owns the queue, or the nearest folder above it that we can see."""
    path = patient.queue.pending
    while True:
        try:
            owner = os.stat(path).st_uid
        except PermissionError:
            path = os.path.dirname(path)
        else:
            return f"sudo -u {shlex.quote(accounts.for_sudo(owner))} {patient.spooldeck} doctor"


def _nesting(patient: Patient) -> Iterator[Finding]:
    queue = patient.queue
    outer = (queue.pending, queue.work, queue.dlq)
    real = {path: os.path.realpath(path) for path in (*outer, patient.desk, queue.mail_spool)}
    yield from _unseen(patient, real)
    for above in outer:
        for below in real:
            inside = real[below] == real[above] or real[below].startswith(real[above] + "/")
            if below != above and inside:
                said = f"{below} lies in {above}: its files would be taken for tasks"
                mend = f"give each a folder of its own in {patient.config or 'the configuration'}"
                yield Finding(Grade.BAD, said, mend)


# ---- the disk


def _one_disk(patient: Patient) -> Iterator[Finding]:
    queue = patient.queue
    pending = patient.seen[queue.pending]
    if not isinstance(pending, os.stat_result):
        yield _without(queue.pending, pending)
        return
    others = (queue.work, queue.dlq, patient.desk)
    yield from _unseen(patient, others)
    for path, seen in patient.there(others):
        if seen.st_dev != pending.st_dev:
            said = f"{path} lies on another file system than {queue.pending}: no rename between"
            yield Finding(Grade.BAD, said, f"stop the worker, umount or move {shlex.quote(path)}")


def _disk(patient: Patient) -> Iterator[Finding]:
    """Looks at what the file systems are."""
    queue = patient.queue
    told: set[str] = set()
    there = (queue.pending, queue.work, queue.dlq, queue.mail_spool)
    yield from _unseen(patient, there)
    for path in there:
        if isinstance(patient.seen[path], PermissionError):
            continue  # on what it is mounted is told by names, which may be links
        try:
            mount = mounts.of(path)
        except OSError as error:
            yield _hidden(f"{mounts.MOUNTS}: {error.strerror}")
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


def _room(patient: Patient) -> Iterator[Finding]:
    """Looks at how much is free: each task takes a block and an inode."""
    queue, counts = patient.queue, patient.sight.counts
    wanted = max(SCARCE, queue.max_pending - counts.get(State.PENDING, 0))
    try:
        free = os.statvfs(queue.pending)
    except OSError as error:
        yield _without(queue.pending, error)
        return
    for word, left, all_of in (
        ("blocks", free.f_bavail * free.f_frsize // max(1, free.f_bsize), free.f_blocks),
        ("inodes", free.f_favail, free.f_files),
    ):
        # File systems that make inodes as they go say 0 of 0.
        if all_of and left < wanted:
            grade = Grade.BAD if left < SCARCE else Grade.WARN
            said = f"room for {left:,} tasks on the disk of {queue.pending} (free {word}), "
            flag = "-i " if word == "inodes" else ""
            yield Finding(
                grade,
                f"{said}and {wanted:,} more may be added",
                f"df -h {flag}{shlex.quote(queue.pending)}  # then make room there",
            )


# ---- the lock, and what was left behind


def _lock(patient: Patient) -> Iterator[Finding]:
    lock = patient.lock
    path = f"{patient.queue.run_dir}/queue.lock"
    recover = f"{patient.spooldeck} queue recover --dry-run"
    hidden = [f"{name} {words}" for name, words in lock.facts if _is_hidden(words)]
    if is_hidden(path):
        yield _hidden(path)
    elif lock.verdict is Verdict.UNKNOWN:
        said, _, todo = f"the lock is {lock.verdict}: {lock.reason}".partition("; ")
        mend = f"{_by_name(path)}  # {todo.partition(':')[0] or 'look at it'}"
        yield Finding(Grade.BAD, said, mend)
    elif lock.verdict in _LOCK_GRADES:
        said = f"the lock is {lock.verdict}: {lock.reason}"
        yield Finding(_LOCK_GRADES[lock.verdict], said, recover)
    else:
        yield Finding(Grade.OK, f"{lock.verdict}: {lock.reason}")
    for what in hidden:
        yield Finding(Grade.HIDDEN, what)
    try:
        written = os.lstat(path).st_mtime
    except OSError:
        return  # there is none, or it is hidden
    if written > patient.now + SLACK:
        yield Finding(Grade.WARN, f"{path} is from the future ({at(written)})", recover)


def _is_hidden(words: str) -> bool:
    return words.startswith("? ") or words.endswith(_HIDING)


_HIDING = ("hides it from us", "does not show it to us", "cannot be seen from here")
"""How facts about a lock's holder end that its owner keeps to himself."""

_LOCK_GRADES = {
    Verdict.STALE: Grade.WARN,
    Verdict.STUCK: Grade.BAD,
}


def _litter(patient: Patient) -> Iterator[Finding]:
    """Looks for half-written files beside the lock and the metrics."""
    queue = patient.queue
    folders = (queue.run_dir, os.path.dirname(queue.queue_metrics), patient.desk)
    yield from _unread((*folders, os.path.dirname(queue.mail_metrics)))
    metric_folders = {os.path.dirname(queue.queue_metrics), os.path.dirname(queue.mail_metrics)}
    suspects = [f"{queue.run_dir}/{n}" for n in _listed(queue.run_dir) if _is_draft(n)]
    suspects += [
        f"{folder}/{name}"
        for folder in sorted(metric_folders)
        for name in _listed(folder)
        if name.endswith(".tmp")
    ]
    suspects += [f"{patient.desk}/{name}" for name in _listed(patient.desk) if name[:2] == "T."]
    held = files.flocked()
    old = [path for path in suspects if _is_litter(path, held, patient.now)]
    for path in old[:NAMED]:
        yield Finding(Grade.WARN, f"{path}: a write was interrupted", f"rm -- {shlex.quote(path)}")
    if len(old) > NAMED:
        yield Finding(Grade.WARN, f"and {len(old) - NAMED:,} more", "rm -- each of them")


def _is_draft(name: str) -> bool:
    """Whether this is a lock file on its way: `queue.lock.` and its token, or another's PID."""
    front, _, token = name.rpartition(".")
    return front == "queue.lock" and not set(token) - set("0123456789abcdef")


def _is_litter(path: str, held: Collection[int], now: float) -> bool:
    try:
        seen = os.lstat(path)
    except OSError:
        return False  # finished since it was listed
    return now - seen.st_ctime > LITTER and seen.st_ino not in held


def _desk(patient: Patient) -> Iterator[Finding]:
    # held/ and trash/ are looked into only where they can be seen to be there.
    yield from _unread(f"{patient.desk}/{name}" for name in ("held", "trash", "twice"))
    # What was set aside as broken has a check of its own.
    found = [p for p in patient.sight.misplaced if f"{DESK}/{CORRUPT}/" not in p.where]
    for problem in found[:NAMED]:
        path = patient.path_of(problem)
        what = f"{path}: {problem.what}"
        if "interrupted" in problem.what:
            mend = f"{patient.spooldeck} queue recover --dry-run"
        else:
            mend = f"{_look_at(path)}  # compare both, and remove the wrong one"
        yield Finding(Grade.WARN, what, mend)
    yield from _more(patient, len(found), "misplaced files")


def _more(patient: Patient, number: int, words: str) -> Iterator[Finding]:
    if number > NAMED:
        said = f"and {number - NAMED:,} more {words}"
        yield Finding(Grade.WARN, said, f"{patient.spooldeck} status")


def _corrupt(patient: Patient) -> Iterator[Finding]:
    """Looks at what was set aside because it was no task."""
    folder = f"{patient.desk}/{CORRUPT}"
    yield from _unread([folder])
    names = [name for name in _listed(folder) if not name.endswith(WHY)]
    if names:
        many = "1 broken file was" if len(names) == 1 else f"{len(names):,} broken files were"
        yield Finding(
            Grade.WARN, f"{many} set aside in {folder}", f"{patient.spooldeck} queue corrupt list"
        )


def _broken(patient: Patient) -> Iterator[Finding]:
    broken = patient.sight.broken
    for problem in broken[:NAMED]:
        path = patient.path_of(problem)
        mend = f"{_look_at(path)}  # mend or remove it; {_what_becomes_of(problem, path)}"
        yield Finding(Grade.WARN, f"{path}: {problem.what}", mend)
    yield from _more(patient, len(broken), "broken files")


def _what_becomes_of(problem: Problem, path: str) -> str:
    """What a worker does with a broken file, as `Claims` and `Corrupt.set_aside` have it."""
    met = problem.state in (State.PENDING, State.ACTIVE) and path.endswith(SUFFIX)
    if not met or os.path.isdir(path) or problem.what.startswith("cannot be read now"):
        return "no worker touches it"
    return f"a worker that meets it sets it aside, {UNCHANGED:.0f} s after its last change"


def _look_at(path: str) -> str:
    """A command that shows what lies there, and neither waits, nor follows a link, nor floods."""
    try:
        seen = os.lstat(path)
    except OSError:
        return _by_name(path)
    plain = stat.S_ISREG(seen.st_mode) and seen.st_nlink == 1
    return f"head -c 2000 -- {shlex.quote(path)} | cat -v" if plain else _by_name(path)


def _by_name(path: str) -> str:
    return f"ls -ld -- {shlex.quote(path)}"


# ---- time


def _clock(patient: Patient) -> Iterator[Finding]:
    if patient.now < OLDEST_CLOCK:
        yield Finding(Grade.BAD, f"the clock says {at(patient.now)}", "timedatectl set-ntp true")
    ahead = patient.sight.ahead
    for what in ahead[:NAMED]:
        said = f"ahead of the clock ({at(patient.now)}): {what}"
        yield Finding(Grade.WARN, said, "timedatectl  # is the clock right? was it set back?")
    yield from _more(patient, len(ahead), "files ahead of the clock")
    late = patient.sight.late
    if late:
        many = "1 task says" if late == 1 else f"{late:,} tasks say"
        said = f"{many} to wait for more than {FURTHEST / DAY:.0f} days, which none does"
        yield Finding(Grade.WARN, said, "timedatectl  # is the clock right? was it set back?")


# ---- who does the work


def _handlers(patient: Patient) -> Iterator[Finding]:
    """Looks for each handler's program, with the eyes of whom it will be run as."""
    for kind, program in sorted(patient.handlers.items()):
        whose = f"handlers.{kind} in {patient.config}"
        if program.refused:
            yield Finding(Grade.BAD, program.refused, f"change run_as of {whose}")
            continue
        name, account = program.argv[0], program.account
        who = _user(os.geteuid()) if account is None else account.name
        candidates = _candidates(name)
        if not candidates and "/" in name and is_hidden(name):
            yield _hidden(f"{kind}: {name}")
        elif not candidates:
            yield Finding(Grade.BAD, f"{kind}: {name}: no such program", f"correct {whose}")
        elif account is None and not _works_here(patient):
            yield _hidden(f"{kind}: whether a worker may run {candidates[0]}")
        elif lacking := _lacking(candidates[0]):
            said = f"{kind}: {candidates[0]} wants {lacking}, which is not there"
            yield Finding(Grade.BAD, said, f"install it, or correct {whose}")
        elif not any(_may_run(path, account) for path in candidates):
            said = f"{kind}: {candidates[0]} cannot be run as {who}"
            yield Finding(Grade.BAD, said, f"chmod a+rx {shlex.quote(candidates[0])}")


def _candidates(name: str) -> list[str]:
    if "/" in name:
        return [name] if os.path.isfile(name) else []
    paths = [f"{folder}/{name}" for folder in os.get_exec_path()]
    return [path for path in paths if os.path.isfile(path)]


def _lacking(script: str) -> str:
    """The interpreter that a script names in its first line, if there is no such program."""
    try:
        with open(script, "rb") as file:
            line = file.readline(256)
    except OSError:
        return ""  # a program need not be readable
    words = line[2:].split() if line.startswith(b"#!") else []
    return "" if not words or os.path.isfile(words[0]) else os.fsdecode(words[0])


def _may_run(path: str, account: Account | None) -> bool:
    if account is None:
        return os.access(path, os.X_OK)
    # Asked as that user: only the kernel knows all of its rules.
    answer = subprocess.run(
        ["test", "-x", path],
        user=account.uid,
        group=account.gid,
        extra_groups=account.groups,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    return answer.returncode == 0


def _kinds(patient: Patient) -> Iterator[Finding]:
    for kind, number in sorted(patient.sight.kinds.items()):
        if kind in patient.handlers or kind in config.BUILT_IN:
            continue  # whether mail can be sent is looked at by itself
        what = "will fail at once" if patient.claimed(kind) else "are left alone"
        many = f"1 {kind} task waits" if number == 1 else f"{number:,} {kind} tasks wait"
        mend = f"handlers: {{{kind}: {{command: [PROGRAM]}}}} in "
        mend += patient.config or config.SEARCH[-1]
        yield Finding(Grade.WARN, f"{many} without a handler: they {what}", mend)


def _mail(patient: Patient) -> Iterator[Finding]:
    """Looks at what is found out beforehand: whether mail can be sent, and what waits for that."""
    mail = patient.mail
    if mail.hidden:
        yield _hidden(mail.hidden)
    if mail.problem:
        yield Finding(Grade.BAD, mail.problem, "correct it there")
    if mail.shut:
        yield _shut(patient)
    for what, mend in mail.settings:
        yield Finding(Grade.WARN, what, mend)
    for path in mail.secrets:
        said = f"{path} holds a password, and everybody may read it"
        yield Finding(Grade.BAD, said, f"chmod o= {shlex.quote(path)}")


def _shut(patient: Patient) -> Finding:
    """Why no mail can be sent, and what to do; whether that matters depends on who wants any."""
    mail, waiting = patient.mail, patient.sight.kinds.get("mail_send", 0)
    many = f"{waiting:,} mails wait" if waiting > 1 else "1 mail waits" if waiting else ""
    if mail.token_at is not None:
        said = f"the next token comes {at(mail.token_at)}"
        return Finding(Grade.OK, ": ".join(filter(None, (many, f"{mail.shut}, {said}"))))
    if mail.stopped:
        said = "; ".join(stopped_words(each) for each in mail.stopped)
        names = [each.name for each in mail.stopped]
        mend = " ".join(f"{patient.spooldeck} mail resume {name};" for name in names).rstrip(";")
        return Finding(Grade.WARN, f"{many or 'no mail can be sent'}: {said}", mend)
    said = f"{many}, and none can be sent: {mail.shut}" if many else mail.shut
    if waiting or mail.wanted:
        return Finding(Grade.WARN, said, f"{patient.spooldeck} mail status")
    return Finding(Grade.OK, said)


def _mail_spool(patient: Patient) -> Iterator[Finding]:
    """Looks for spooled mails that nobody will send: no task names them, or they are none."""
    unnamed = (path for path in patient.mail.kept if path not in patient.sight.payloads)
    lost = [path for path in unnamed if os.path.exists(path)]  # else sent while we looked
    for path in lost[:NAMED]:
        ident = os.path.basename(os.path.dirname(path))
        mend = f"{patient.spooldeck} mail spool retry -- {shlex.quote(ident)}"
        yield Finding(Grade.WARN, f"{os.path.dirname(path)}: no task sends this mail", mend)
    broken = patient.mail.broken
    for path, why in broken[:NAMED]:
        yield Finding(Grade.WARN, f"{path}: no mail: {why}", f"{_by_name(path)}  # mend or remove")
    more = max(0, len(lost) - NAMED) + max(0, len(broken) - NAMED)
    if more:
        said = f"and {more:,} more in the mail spool"
        yield Finding(Grade.WARN, said, f"{patient.spooldeck} mail spool list")


def _dead(patient: Patient) -> Iterator[Finding]:
    dead = patient.sight.counts[State.DEAD]
    if dead > DLQ_LIMIT:
        said = f"{dead:,} tasks in the dead-letter queue (over {DLQ_LIMIT})"
        yield Finding(Grade.WARN, said, f"{patient.spooldeck} queue dlq list")


def _worker(patient: Patient) -> Iterator[Finding]:
    """Looks at when a worker last ran, as the metrics have it."""
    sight, now = patient.sight, patient.now
    recover = f"{patient.spooldeck} queue recover --dry-run"
    if patient.lock.verdict is Verdict.HELD:
        yield Finding(Grade.OK, "somebody is at work")
        return
    if is_hidden(f"{patient.queue.run_dir}/queue.lock"):
        yield _hidden("whether anybody is at work")
        return
    if patient.lock.verdict in (Verdict.STUCK, Verdict.UNKNOWN):
        said = f"nobody else gets to work: the lock is {patient.lock.verdict}"
        yield Finding(Grade.WARN, said, "mend the lock first, as said above")
        return
    in_hand = sight.counts[State.ACTIVE]
    if in_hand:
        many = "1 task is" if in_hand == 1 else f"{in_hand:,} tasks are"
        yield Finding(Grade.WARN, f"{many} in work, but no worker is there", recover)
    path = patient.queue.queue_metrics
    try:
        ran = metrics.read(path).get("nftban_queue_last_run_timestamp")
    except FileNotFoundError:
        ran = None
    except PermissionError:
        yield _hidden(path)
        return
    except (OSError, metrics.BadMetrics) as error:
        said = str(error) if isinstance(error, metrics.BadMetrics) else f"{path}: {error.strerror}"
        yield Finding(Grade.WARN, said, f"rm -- {shlex.quote(path)}  # a worker writes it anew")
        return
    last = "no worker has run yet" if ran is None else f"the last worker ran {at(ran)}"
    late = now - max(sight.due_since, ran or 0.0)
    if sight.due and late > IDLE:
        many = "1 task is" if sight.due == 1 else f"{sight.due:,} tasks are"
        yield Finding(
            Grade.WARN,
            f"{many} due, the first since {at(sight.due_since)}, and {last}",
            f"{patient.spooldeck} queue work  # or a timer: spooldeck install-units DIR",
        )
    elif ran is not None and now - ran > SILENT:
        yield Finding(
            Grade.WARN,
            f"{last}, and none for {(now - ran) / HOUR:,.0f} h since (limit {SILENT / HOUR:.0f} h)",
            f"systemctl status 'spooldeck-*'  # or: {patient.spooldeck} queue work",
        )
    elif not in_hand:
        yield Finding(Grade.OK, last if ran is None or sight.due else f"{last}; nothing is due")


def _beside(patient: Patient) -> Iterator[Finding]:
    """Looks for signs of the real program where we keep due times in modification times."""
    marker = f"{patient.desk}/{DUE_IN_MTIME}"
    queue = patient.queue
    near = (queue.run_dir, f"{queue.run_dir}/queue.lock", os.path.dirname(queue.queue_metrics))
    yield from _unread((patient.desk, *near))
    if not os.path.exists(marker):
        return
    for why in _signs(patient):
        said = f"{why}, but {marker} says that no other program works here"
        mend = f"rm -- {shlex.quote(marker)} {shlex.quote(patient.desk + '/next-due')}"
        yield Finding(Grade.WARN, said, mend)
        return


def _signs(patient: Patient) -> Iterator[str]:
    queue = patient.queue
    if queue.run_dir == RUN_DIR:
        yield f"{queue.root} is NFTBan's own data folder"
    path = f"{queue.run_dir}/queue.lock"
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            claim = lockfile.parse(os.read(fd, lockfile.LIMIT + 1))
        finally:
            os.close(fd)
    except OSError:
        claim = None  # no lock, none that is a file, or one that is hidden
    foreign = claim is not None and claim.mark is None
    if foreign and patient.lock.verdict in (Verdict.HELD, Verdict.STUCK):
        yield f"{path} is another program's"
    shared = f"{queue.queue_metrics}.tmp"
    if os.path.exists(shared):
        yield f"{shared} is another program's"


def _tasks(patient: Patient) -> Iterator[Finding]:
    sight, queue, desk = patient.sight, patient.queue, patient.desk
    folders = (queue.pending, queue.work, queue.dlq, desk, f"{desk}/held", f"{desk}/trash")
    if not sight.refused:
        hidden = bool(sight.hidden) or any(is_hidden(path) for path in folders)
        counts = ", ".join(f"{number:,} {STATES[state]}" for state, number in sight.counts.items())
        few = "of those that are not hidden from us: " if hidden else ""
        yield Finding(Grade.HIDDEN if hidden else Grade.OK, few + counts)
        return
    # Bad all the same: nobody knows how the queue is until somebody looks who may.
    for finding in _unread(folders):
        yield Finding(Grade.BAD, finding.what, _by_its_owner(patient))
        return
    yield Finding(Grade.BAD, sight.refused, f"spooldeck init {shlex.quote(patient.queue.root)}")


CHECKS: tuple[Check, ...] = (
    Check("tasks", "", _tasks),
    Check("rights", "we may look and change", _rights),
    Check("folders", "all are there", _folders),
    Check("modes", "nobody may look or write who should not", _modes),
    Check("owners", "everything has one owner", _owners),
    Check("nesting", "each folder stands by itself", _nesting),
    Check("devices", "pending, work, dlq and the desk share a file system", _one_disk),
    Check("disk", "", _disk),
    Check("room", "there is room on the disk for a full queue", _room),
    Check("lock", "", _lock),
    Check("litter", "no half-written files", _litter),
    Check("desk", "no move is half done, no task stands twice", _desk, tasks=True),
    Check("corrupt", "nothing was set aside", _corrupt),
    Check("broken", "every file is a task", _broken, tasks=True),
    Check("clock", "nothing is from the future", _clock, tasks=True),
    Check("handlers", "every program can be run", _handlers),
    Check("kinds", "whatever waits has a handler", _kinds, tasks=True),
    Check("mail", "nothing that waits is kept from being sent", _mail),
    Check("spool", "every mail in the mail spool has its task", _mail_spool, tasks=True),
    Check("dead", f"no more than {DLQ_LIMIT} tasks in the dead-letter queue", _dead, tasks=True),
    Check("worker", "", _worker, tasks=True),
    Check("beside", "no other program is seen here", _beside),
)
"""What is looked at, in the order in which one would mend it."""


def line(name: str, finding: Finding) -> list[str]:
    """A finding as lines of the table, safe to show."""
    said = [f"{finding.grade:<5} {name:<9} {shown(finding.what)}"]
    return [*said, f"{'':<15} mend: {shown(finding.mend)}"] if finding.mend else said
