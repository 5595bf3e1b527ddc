"""Leftover checks: stale locks, interrupted writes and moves, broken files, times in the future."""

from __future__ import annotations

import os
import shlex
from collections.abc import Collection, Iterator

from engine.doctor.finding import Finding, Grade, bad, count_are, hidden, list_first, ok, warn
from engine.doctor.store_checks import CLOCK_FIX, CLOCK_SKEW_SECONDS, check_run_times
from engine.formats.nftban.doctor.evidence import (
    access_denied,
    list_names,
    recover_command,
    report_unread,
    show_content_command,
    show_owner_command,
)
from engine.formats.nftban.doctor.place_facts import PlaceFacts, data_folders, is_hidden
from engine.formats.nftban.quarantine import REASON_SUFFIX
from engine.formats.nftban.recovery import MIN_UNCHANGED_SECONDS
from engine.formats.nftban.staging import QUARANTINE_NAME as CORRUPT
from engine.formats.nftban.staging import STAGING_NAME
from engine.formats.nftban.task_data import find_orphans
from engine.formats.nftban.task_format import SUFFIX
from engine.locks.lock_holder import PROC_HIDES, PROC_LACKS
from engine.model import FOR_ALL, Problem, State, Verdict, fold_problems
from engine.policy import DAY_SECONDS, MAX_WAIT_SECONDS
from engine.system import files
from engine.text.error_text import error_text
from engine.text.figures import format_count
from engine.text.times import format_time

MIN_CLOCK = 1_577_836_800.0
"""2020-01-01: an earlier clock was never set, as on a board without a battery."""

DRAFT_AGE_SECONDS = 60.0
"""Age in seconds from which a half-written file next to the lock or the metrics counts as
abandoned."""


def check_lock(facts: PlaceFacts) -> Iterator[Finding]:
    """Check the lock: its holder, and whether it must be freed."""
    lock = facts.lock
    path = f"{facts.queue.run_dir}/queue.lock"
    recover = recover_command(facts)
    unread = [f"{name} {words}" for name, words in lock.facts if _is_hidden(words)]
    if is_hidden(path):
        yield access_denied(path)
    elif lock.verdict is Verdict.UNKNOWN:
        text, _, todo = f"the lock is {lock.verdict}: {lock.reason}".partition("; ")
        fix = f"{show_owner_command(path)}  # {todo.partition(':')[0] or 'check it'}"
        yield bad(text, fix)
    elif lock.verdict in _LOCK_GRADES:
        text = f"the lock is {lock.verdict}: {lock.reason}"
        yield Finding(_LOCK_GRADES[lock.verdict], text, recover)
    else:
        yield ok(f"{lock.verdict}: {lock.reason}")
    yield from (hidden(what) for what in unread)
    try:
        written = os.lstat(path).st_mtime
    except OSError:
        return  # missing or unreadable
    if written > facts.now + CLOCK_SKEW_SECONDS:
        yield warn(f"{path} is dated in the future ({format_time(written)})", recover)


def _is_hidden(words: str) -> bool:
    return words.startswith("? ") or words.endswith((PROC_HIDES, PROC_LACKS))


_LOCK_GRADES = {Verdict.STALE: Grade.WARN, Verdict.STUCK: Grade.BAD}


def check_drafts(facts: PlaceFacts) -> Iterator[Finding]:
    """Check for half-written files next to the lock and the metrics."""
    queue = facts.queue
    folders = (queue.run_dir, os.path.dirname(queue.queue_metrics), facts.staging)
    yield from report_unread((*folders, os.path.dirname(queue.mail_metrics)))
    metric_folders = {os.path.dirname(queue.queue_metrics), os.path.dirname(queue.mail_metrics)}
    suspects = [f"{queue.run_dir}/{n}" for n in list_names(queue.run_dir) if _is_draft(n)]
    suspects += [
        f"{folder}/{name}"
        for folder in sorted(metric_folders)
        for name in list_names(folder)
        if name.endswith(".tmp")
    ]
    suspects += [
        f"{facts.staging}/{name}" for name in list_names(facts.staging) if name[:2] == "T."
    ]
    flocked = files.flocked_inodes()
    old = [path for path in suspects if _is_abandoned(path, flocked, facts.now)]
    yield from list_first(
        old,
        lambda path: warn(f"{path}: a write was interrupted", f"rm -- {shlex.quote(path)}"),
        "more",
        "rm -- each of them",
    )


def _is_draft(name: str) -> bool:
    """True for the draft of a lock file: `queue.lock.` and a token, or another program's PID."""
    front, _, token = name.rpartition(".")
    return front == "queue.lock" and not set(token) - set("0123456789abcdef")


def _is_abandoned(path: str, flocked: Collection[int], now: float) -> bool:
    try:
        file_stat = os.lstat(path)
    except OSError:
        return False  # finished since it was listed
    return now - file_stat.st_ctime > DRAFT_AGE_SECONDS and file_stat.st_ino not in flocked


def check_staging(facts: PlaceFacts) -> Iterator[Finding]:
    """Check the staging directory: interrupted moves and duplicate tasks."""
    # held/ and trash/ are listed only if they exist and are visible.
    yield from report_unread(f"{facts.staging}/{name}" for name in ("held", "trash", "twice"))
    # Quarantined files have a check of their own.
    misplaced = [p for p in facts.view.misplaced if f"{STAGING_NAME}/{CORRUPT}/" not in p.where]

    def describe(problem: Problem) -> Finding:
        path = facts.path_of(problem)
        fix = f"{show_content_command(path)}  # compare both, then remove the wrong one"
        fix = recover_command(facts) if "interrupted" in problem.what else fix
        return warn(f"{path}: {problem.what}", fix)

    yield from list_first(misplaced, describe, "more misplaced files", f"{facts.spooldeck} status")


def check_quarantine(facts: PlaceFacts) -> Iterator[Finding]:
    """Check for quarantined files."""
    folder = f"{facts.staging}/{CORRUPT}"
    yield from report_unread([folder])
    names = [name for name in list_names(folder) if not name.endswith(REASON_SUFFIX)]
    if names:
        many = format_count(len(names), "broken file")
        yield warn(f"{many} quarantined in {folder}", f"{facts.spooldeck} queue corrupt list")


def check_data(facts: PlaceFacts) -> Iterator[Finding]:
    """Check for data without a task: an add was killed, or a removal did not succeed."""
    folder = data_folders(facts.queue)[0]
    yield from report_unread([folder])
    states = facts.queue.pending, facts.queue.work, facts.queue.dlq
    made = ("held", "trash", "twice", CORRUPT)
    staging = [facts.staging, *(f"{facts.staging}/{name}" for name in made)]
    try:
        orphans = list(find_orphans(folder, states, staging, facts.now))
    except OSError as error:
        yield hidden(f"{error.filename or folder}: {error_text(error)}")
        return

    def describe(path: str) -> Finding:
        return warn(f"{path}: data without a task", f"rm -- {shlex.quote(path)}")

    yield from list_first(orphans, describe, "more without a task", f"ls -l {shlex.quote(folder)}")


def check_broken_files(facts: PlaceFacts) -> Iterator[Finding]:
    """Check the state folders for files that are not tasks."""

    def describe(problem: Problem) -> Finding:
        path = facts.path_of(problem)
        what, _, command = problem.what.partition(FOR_ALL)
        if command:
            return bad(f"{path}: {what}", command)
        show, future = show_content_command(path), _what_becomes_of(problem, path)
        return warn(f"{path}: {problem.what}", f"{show}  # repair or remove it; {future}")

    broken = fold_problems(facts.view.broken)
    yield from list_first(broken, describe, "more broken files", f"{facts.spooldeck} status")


def _what_becomes_of(problem: Problem, path: str) -> str:
    """Describe what a worker does with a broken file, following `TaskClaims` and
    `Quarantine.quarantine_files`."""
    met = problem.state in (State.PENDING, State.ACTIVE) and path.endswith(SUFFIX)
    stays = problem.what.startswith("cannot be read now") or "left where it is" in problem.what
    if not met or os.path.isdir(path) or stays:
        return "workers ignore it"
    return f"a worker quarantines it {MIN_UNCHANGED_SECONDS:.0f} s after its last change"


def check_clock(facts: PlaceFacts) -> Iterator[Finding]:
    """Check for a clock that is, or was, wrong."""
    if facts.now < MIN_CLOCK:
        yield bad(f"the clock is at {format_time(facts.now)}", "timedatectl set-ntp true")
    yield from check_run_times(facts.staging, facts.queue.root, facts.now)
    clock = format_time(facts.now)
    yield from list_first(
        facts.view.ahead,
        lambda what: warn(f"ahead of the clock ({clock}): {what}", CLOCK_FIX),
        "more files ahead of the clock",
        f"{facts.spooldeck} status",
    )
    late = facts.view.too_late
    if late:
        days = f"{MAX_WAIT_SECONDS / DAY_SECONDS:.0f} days"
        text = f"{count_are(late, 'task')} due in more than {days}, the longest delay possible"
        yield warn(text, CLOCK_FIX)
