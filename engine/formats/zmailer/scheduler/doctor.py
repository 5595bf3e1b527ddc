"""`doctor` for a ZMailer spool: what stops mail, and the command that repairs each problem."""

from __future__ import annotations

import os
import shlex
import stat
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress

from engine.doctor.finding import MAX_LISTED, Finding, Grade
from engine.doctor.store_checks import list_problems
from engine.formats.base.format import Setup
from engine.formats.zmailer.environment import SchedulerFiles, read_files
from engine.formats.zmailer.notify import SOCKET_MODE
from engine.formats.zmailer.scheduler import spool_controls
from engine.formats.zmailer.scheduler.clauses import why_undeliverable
from engine.formats.zmailer.scheduling.jobs import DAY_SECONDS
from engine.formats.zmailer.spool import lock_process, names
from engine.formats.zmailer.spool.folders import QUEUE, TRANSPORT, PostofficeFolders
from engine.formats.zmailer.spool.scheduler_conf import Match, find_settings
from engine.formats.zmailer.submit import ROUTER, STAGED
from engine.model import STALLED_KEY, Problem, State, Task
from engine.store import Unavailable
from engine.text.error_text import error_text
from engine.text.safe import safe_line
from engine.text.times import format_rough_duration

ORPHAN_SECONDS = 3600.0
"""A message file without its control file is reported once it is so old: the router writes the
message first."""

Threads = Mapping[tuple[str, str], Sequence[Task]]
"""The waiting recipients of each channel and host."""


def check_spool(setup: Setup) -> Iterator[tuple[str, Finding]]:
    """Check a spool; yields the name of each check and a finding. Changes nothing."""
    files = read_files(setup.settings, os.environ)
    yield from (("conf", finding) for finding in _conf(files))
    try:
        store = setup.open_store()
        folders = PostofficeFolders(setup.place)
    except Unavailable as error:
        yield "spool", Finding(Grade.BAD, str(error))
        return
    with closing(store), closing(folders):
        scheduler = lock_process.find_scheduler(folders.fd, folders.transport_status)
        yield "rights", _rights(setup, store.edges[State.PENDING, State.HELD].refusal)
        yield from (("scheduler", finding) for finding in _scheduler(setup, folders, scheduler))
        yield "notify", _notify(setup, files, scheduler)
        try:
            items = list(dict.fromkeys(store.scan()))
            listed, _ = folders.list_controls()
        except Unavailable as error:
            yield "mail", Finding(Grade.HIDDEN, f"cannot read the spool: {error}")
            return
        tasks = [item for item in items if isinstance(item, Task)]
        yield from (("locks", finding) for finding in _locks(setup, tasks))
        yield from (("mail", finding) for finding in _mail(setup, tasks, files))
        yield from (("files", finding) for finding in _files(setup, folders, listed))
        problems = [item for item in items if isinstance(item, Problem)]
        problem_findings = list(list_problems(problems, lambda problem: _command(setup, "status")))
        yield from (("problems", one) for one in problem_findings or [Finding(Grade.OK, "none")])


def _conf(files: SchedulerFiles) -> Iterator[Finding]:
    """Check scheduler.conf, and the file with its passwords."""
    if files.conf is None:
        fix = "set stores.zmailer.scheduler_conf in the configuration, or MAILSHARE"
        yield Finding(Grade.WARN, files.problem, fix)
        return
    check = shlex.join(["spooldeck", "zmailer", "check", files.conf_path])
    if errors := files.conf.errors:
        first = f"{files.conf_path}:{errors[0].line}:{errors[0].column}: {errors[0].text}"
        more = f"; {len(errors) - 1} more" if len(errors) > 1 else ""
        yield Finding(Grade.BAD, f"{first}{more}: the scheduler would not start", check)
    else:
        count = len(files.conf.clauses)
        yield Finding(Grade.OK, f"{files.conf_path}: {count} clauses, no errors")
    if warnings := files.conf.warnings:
        first = f"{files.conf_path}:{warnings[0].line}: {warnings[0].text}"
        more = f"; {len(warnings) - 1} more" if len(warnings) > 1 else ""
        yield Finding(Grade.WARN, f"{first}{more}", check)
    if setting := files.conf.params.get("authfile"):
        yield _authfile(str(setting.value))


def _authfile(path: str) -> Finding:
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        why = f"authfile {path}: {error_text(error)}: MAILQ has no users"
        return Finding(Grade.WARN, why, f"make it, with mode 0600: {shlex.quote(path)}")
    if mode & 0o077:
        what = f"authfile {path}: mode {stat.S_IMODE(mode):04o}, it has passwords"
        return Finding(Grade.WARN, what, shlex.join(["chmod", "600", path]))
    return Finding(Grade.OK, f"authfile {path}: only its owner can read it")


def _rights(setup: Setup, refusal: str) -> Finding:
    if refusal:
        return Finding(Grade.WARN, refusal, "use the account of the spool's owner")
    for name in (ROUTER, QUEUE):
        path = f"{setup.place}/{name}"
        try:
            mode = os.stat(path).st_mode
        except OSError as error:
            return Finding(Grade.WARN, f"{path}: {error_text(error)}", shlex.join(["mkdir", path]))
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            what = f"{path}: other users can rename files in it"
            return Finding(Grade.WARN, what, shlex.join(["chmod", "o-w,+t", path]))
    return Finding(Grade.OK, "read and write allowed")


def _scheduler(
    setup: Setup, folders: PostofficeFolders, scheduler: int | None
) -> Iterator[Finding]:
    path = f"{setup.place}/{lock_process.PID_FILE}"
    if scheduler is not None:
        whose = "spooldeck's" if lock_process.is_ours(folders.fd) else "the original one"
        yield Finding(Grade.OK, f"the scheduler is running: PID {scheduler}, {whose}")
    elif os.path.lexists(path):
        what = "no scheduler is running, and its pid file is there: a start may signal another one"
        yield Finding(Grade.WARN, f"{path}: {what}", shlex.join(["rm", path]))
    else:
        yield Finding(Grade.WARN, "no scheduler is running", "start the scheduler")
    if spool_controls.is_frozen(folders):
        fix = _command(setup, "control", "freeze", "--value", "off", "--apply", "1")
        yield Finding(Grade.WARN, "frozen by an operator: no agent is started", fix)


def _notify(setup: Setup, files: SchedulerFiles, scheduler: int | None) -> Finding:
    path = files.notify_socket(setup.place)
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        if scheduler is None:
            return Finding(Grade.OK, "no scheduler, no notify socket")
        what = f"{path}: missing; the scheduler finds new mail by its scans only, each 10 s"
        return Finding(Grade.WARN, what, "restart the scheduler")
    if not stat.S_ISSOCK(mode):
        return Finding(Grade.WARN, f"{path}: is not a socket", shlex.join(["rm", path]))
    if stat.S_IMODE(mode) != SOCKET_MODE:
        what = f"{path}: mode {stat.S_IMODE(mode):04o}, expected {SOCKET_MODE:04o}"
        return Finding(Grade.WARN, what, shlex.join(["chmod", f"{SOCKET_MODE:o}", path]))
    return Finding(Grade.OK, f"{path}: only its owner can send")


def _locks(setup: Setup, tasks: Sequence[Task]) -> Iterator[Finding]:
    locked = [task for task in tasks if task.state is State.ACTIVE]
    abandoned = [task for task in locked if STALLED_KEY in task.extra]
    if abandoned:
        what = f"{_count(len(abandoned), 'recipient')} locked by agents that have ended"
        yield Finding(Grade.WARN, what, _command(setup, "release", "--state", "locked"))
    else:
        yield Finding(Grade.OK, f"{_count(len(locked), 'recipient')} locked, by running agents")


def _mail(setup: Setup, tasks: Sequence[Task], files: SchedulerFiles) -> Iterator[Finding]:
    """Check that each waiting recipient can be delivered, and is not too old."""
    counts = Counter(task.state for task in tasks)
    waiting = f"{_count(counts[State.PENDING], 'recipient')} waiting"
    yield Finding(
        Grade.OK, f"{waiting}, {counts[State.DEAD]:,} failed, {counts[State.HELD]:,} held"
    )
    conf = files.conf
    if conf is None or conf.errors:
        return
    threads: dict[tuple[str, str], list[Task]] = {}
    for task in tasks:
        if task.state is State.PENDING:
            threads.setdefault((task.kind, task.group), []).append(task)
    matches = {name: find_settings(conf, *name) for name in threads}
    folder = f"{setup.place}/{TRANSPORT}"
    reasons = {
        name: why_undeliverable(match, *name, files.environ, folder)
        for name, match in matches.items()
    }
    lost = [(name, why) for name, why in reasons.items() if why]
    for (channel, host), why in lost[:MAX_LISTED]:
        target, number = f"{channel}/{host}", len(threads[channel, host])
        what = f"{safe_line(target)}: never delivered: {why}: {_count(number, 'recipient')}"
        yield Finding(Grade.WARN, what, shlex.join(["spooldeck", "zmailer", "why", target]))
    if len(lost) > MAX_LISTED:
        more = f"and {len(lost) - MAX_LISTED:,} more threads that are never delivered"
        yield Finding(Grade.WARN, more, "add a clause for them to scheduler.conf")
    yield _overdue(setup, threads, matches)


def _overdue(setup: Setup, threads: Threads, matches: Mapping[tuple[str, str], Match]) -> Finding:
    now = time.time()
    late = [
        now - task.created
        for name, tasks in threads.items()
        for task in tasks
        if task.created and now - task.created > _lifetime(matches[name])
    ]
    if not late:
        return Finding(Grade.OK, "none is older than its expiry")
    age = format_rough_duration(max(late))
    what = f"{_count(len(late), 'recipient')} overdue for expiry, the oldest waits for {age}"
    return Finding(Grade.WARN, what, _command(setup, "expire", "--filter", "age>3d"))


def _lifetime(match: Match) -> float:
    """Seconds after which a message has expired, also without an attempt."""
    expiry, more = (match.settings[name].value for name in ("expiry", "expiry2"))
    assert isinstance(expiry, int) and isinstance(more, int)
    return expiry + (more or DAY_SECONDS)


def _files(
    setup: Setup, folders: PostofficeFolders, listed: Mapping[str, str]
) -> Iterator[Finding]:
    """Check that each file has its other half, and is in its hash folder."""
    hashed = sum(1 for folder in listed.values() if folder)
    flat = len(listed) - hashed
    if hashed and flat:
        what = f"{_count(flat, 'control file')} not in hash folders, {hashed:,} are"
        yield Finding(Grade.WARN, what, "the scheduler moves them when it reads them (option -H)")
    wrong = [
        f"{TRANSPORT}/{folder}{name}"
        for name, folder in listed.items()
        if folder not in names.hash_folders(names.message_number(name) or 0)
    ]
    for path in wrong[:MAX_LISTED]:
        what = f"{path}: in a folder that its number does not lead to: never read"
        yield Finding(Grade.WARN, what, f"move it to {TRANSPORT}/")
    lone = sorted(_lone_messages(folders, listed))
    for path in lone[:MAX_LISTED]:
        what = f"{path}: a message without its control file: never delivered"
        yield Finding(Grade.WARN, what, f"move it to {ROUTER}/, or remove it")
    if len(lone) > MAX_LISTED:
        yield Finding(Grade.WARN, f"and {len(lone) - MAX_LISTED:,} more", "as the first ones")
    with suppress(OSError), folders.open_below(folders.fd, STAGED) as staged_fd:
        if staged_count := len(os.listdir(staged_fd)):
            what = f"{STAGED}: {_count(staged_count, 'file')} of a change that was interrupted"
            fix = "the next change, such as hold and its undo, completes it"
            yield Finding(Grade.WARN, what, fix)
    if not (lone or wrong):
        yield Finding(Grade.OK, "each message has its control file")


def _lone_messages(folders: PostofficeFolders, listed: Mapping[str, str]) -> Iterator[str]:
    """Paths of message files that no control file names. One that was moved to freezer/ still
    needs its message."""
    parked = folders.list_parked()
    known = {*listed, *parked, *(name.rpartition(".")[0] for name in parked)}
    limit = time.time() - ORPHAN_SECONDS
    for folder in ("", *names.all_hash_folders()):
        below = f"{QUEUE}/{folder}".rstrip("/")
        with suppress(OSError), folders.open_below(folders.fd, below) as queue_fd:
            for name in os.listdir(queue_fd):
                if names.message_number(name) is None or name in known:
                    continue
                if os.stat(name, dir_fd=queue_fd, follow_symlinks=False).st_mtime < limit:
                    yield f"{below}/{name}"


def _count(number: int, noun: str) -> str:
    return f"1 {noun}" if number == 1 else f"{number:,} {noun}s"


def _command(setup: Setup, *words: str) -> str:
    return shlex.join(["spooldeck", "--root", os.path.abspath(setup.place), *words])
