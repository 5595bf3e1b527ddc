"""What was left behind: locks, halves of writes and moves, broken files, times to come."""

from __future__ import annotations

import os
import shlex
from collections.abc import Collection, Iterator

from engine.doctor.finding import (
    NAMED,
    Finding,
    Grade,
    and_more,
    by_name,
    hidden_from_us,
    listed,
    look_at,
    unread,
)
from engine.doctor.place_facts import SLACK, PlaceFacts, is_hidden
from engine.model import Problem, State, Verdict
from engine.policy import DAY, FURTHEST, at
from engine.stores.nftban.quarantine import NAME as CORRUPT
from engine.stores.nftban.quarantine import WHY
from engine.stores.nftban.recovery import UNCHANGED
from engine.stores.nftban.staging import NAME as DESK
from engine.stores.nftban.task_format import SUFFIX
from engine.system import files

OLDEST_CLOCK = 1_577_836_800.0
"""2020-01-01: a clock before it was never set, as on a board without a battery."""

LITTER = 60.0
"""Seconds after which a half-written file beside the lock or the metrics is nobody's any more."""


def lock(patient: PlaceFacts) -> Iterator[Finding]:
    """Looks at the lock: who holds it, and whether it is to be freed."""
    lock = patient.lock
    path = f"{patient.queue.run_dir}/queue.lock"
    recover = f"{patient.spooldeck} queue recover --dry-run"
    hidden = [f"{name} {words}" for name, words in lock.facts if _is_hidden(words)]
    if is_hidden(path):
        yield hidden_from_us(path)
    elif lock.verdict is Verdict.UNKNOWN:
        said, _, todo = f"the lock is {lock.verdict}: {lock.reason}".partition("; ")
        mend = f"{by_name(path)}  # {todo.partition(':')[0] or 'look at it'}"
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


def litter(patient: PlaceFacts) -> Iterator[Finding]:
    """Looks for half-written files beside the lock and the metrics."""
    queue = patient.queue
    folders = (queue.run_dir, os.path.dirname(queue.queue_metrics), patient.desk)
    yield from unread((*folders, os.path.dirname(queue.mail_metrics)))
    metric_folders = {os.path.dirname(queue.queue_metrics), os.path.dirname(queue.mail_metrics)}
    suspects = [f"{queue.run_dir}/{n}" for n in listed(queue.run_dir) if _is_draft(n)]
    suspects += [
        f"{folder}/{name}"
        for folder in sorted(metric_folders)
        for name in listed(folder)
        if name.endswith(".tmp")
    ]
    suspects += [f"{patient.desk}/{name}" for name in listed(patient.desk) if name[:2] == "T."]
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


def desk(patient: PlaceFacts) -> Iterator[Finding]:
    """Looks at what lies half moved on the desk, or twice."""
    # held/ and trash/ are looked into only where they can be seen to be there.
    yield from unread(f"{patient.desk}/{name}" for name in ("held", "trash", "twice"))
    # What was set aside as broken has a check of its own.
    found = [p for p in patient.sight.misplaced if f"{DESK}/{CORRUPT}/" not in p.where]
    for problem in found[:NAMED]:
        path = patient.path_of(problem)
        what = f"{path}: {problem.what}"
        if "interrupted" in problem.what:
            mend = f"{patient.spooldeck} queue recover --dry-run"
        else:
            mend = f"{look_at(path)}  # compare both, and remove the wrong one"
        yield Finding(Grade.WARN, what, mend)
    yield from and_more(patient, len(found), "misplaced files")


def corrupt(patient: PlaceFacts) -> Iterator[Finding]:
    """Looks at what was set aside because it was no task."""
    folder = f"{patient.desk}/{CORRUPT}"
    yield from unread([folder])
    names = [name for name in listed(folder) if not name.endswith(WHY)]
    if names:
        many = "1 broken file was" if len(names) == 1 else f"{len(names):,} broken files were"
        yield Finding(
            Grade.WARN, f"{many} set aside in {folder}", f"{patient.spooldeck} queue corrupt list"
        )


def broken(patient: PlaceFacts) -> Iterator[Finding]:
    """Looks at files in the folders that are no tasks."""
    broken = patient.sight.broken
    for problem in broken[:NAMED]:
        path = patient.path_of(problem)
        mend = f"{look_at(path)}  # mend or remove it; {_what_becomes_of(problem, path)}"
        yield Finding(Grade.WARN, f"{path}: {problem.what}", mend)
    yield from and_more(patient, len(broken), "broken files")


def _what_becomes_of(problem: Problem, path: str) -> str:
    """What a worker does with a broken file, as `Claims` and `Quarantine.set_aside` have it."""
    met = problem.state in (State.PENDING, State.ACTIVE) and path.endswith(SUFFIX)
    if not met or os.path.isdir(path) or problem.what.startswith("cannot be read now"):
        return "no worker touches it"
    return f"a worker that meets it sets it aside, {UNCHANGED:.0f} s after its last change"


def clock(patient: PlaceFacts) -> Iterator[Finding]:
    """Looks for a clock that is, or was, wrong."""
    if patient.now < OLDEST_CLOCK:
        yield Finding(Grade.BAD, f"the clock says {at(patient.now)}", "timedatectl set-ntp true")
    ahead = patient.sight.ahead
    for what in ahead[:NAMED]:
        said = f"ahead of the clock ({at(patient.now)}): {what}"
        yield Finding(Grade.WARN, said, "timedatectl  # is the clock right? was it set back?")
    yield from and_more(patient, len(ahead), "files ahead of the clock")
    late = patient.sight.late
    if late:
        many = "1 task says" if late == 1 else f"{late:,} tasks say"
        said = f"{many} to wait for more than {FURTHEST / DAY:.0f} days, which none does"
        yield Finding(Grade.WARN, said, "timedatectl  # is the clock right? was it set back?")
