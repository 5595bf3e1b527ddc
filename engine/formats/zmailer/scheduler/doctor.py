"""`doctor` for a ZMailer spool: what stops mail, and the command that repairs each problem."""

from __future__ import annotations

import os
import shlex
import stat
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress

from engine.doctor.finding import MAX_LISTED, Finding, bad, hidden, list_first, ok, run_checks, warn
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
from engine.text.figures import format_count
from engine.text.safe import safe_line
from engine.text.times import format_rough_duration

ORPHAN_SECONDS = 3600.0
"""A message file without its control file is reported once it is so old: the router writes the
message first."""

Threads = Mapping[tuple[str, str], Sequence[Task]]
"""The waiting recipients of each channel and host."""


def check_spool(setup: Setup) -> Iterator[tuple[str, Finding]]:
    """Check a spool; yields the name of each check and a finding. Changes nothing."""
    return run_checks(_checks(setup))


def _checks(setup: Setup) -> Iterator[tuple[str, Iterable[Finding]]]:
    files = read_files(setup.settings, os.environ)
    yield "conf", _conf(files)
    try:
        store = setup.open_store()
        folders = PostofficeFolders(setup.place)
    except Unavailable as error:
        yield "spool", [bad(str(error))]
        return
    with closing(store), closing(folders):
        scheduler = lock_process.find_scheduler(folders.fd, folders.transport_status)
        yield "rights", [_rights(setup, store.edges[State.PENDING, State.HELD].refusal)]
        yield "scheduler", _scheduler(setup, folders, scheduler)
        yield "notify", [_notify(setup, files, scheduler)]
        try:
            items = list(dict.fromkeys(store.scan()))
            listed, _ = folders.list_controls()
        except Unavailable as error:
            yield "mail", [hidden(f"cannot read the spool: {error}")]
            return
        tasks = [item for item in items if isinstance(item, Task)]
        yield "locks", _locks(setup, tasks)
        yield "mail", _mail(setup, tasks, files)
        yield "files", _files(setup, folders, listed)
        problems = [item for item in items if isinstance(item, Problem)]
        findings = list_problems(problems, lambda problem: _command(setup, "status"))
        yield "problems", list(findings) or [ok("none")]


def _conf(files: SchedulerFiles) -> Iterator[Finding]:
    if files.conf is None:
        fix = "set stores.zmailer.scheduler_conf in the configuration, or MAILSHARE"
        yield warn(files.problem, fix)
        return
    check = shlex.join(["spooldeck", "zmailer", "check", files.conf_path])
    if errors := files.conf.errors:
        first = f"{files.conf_path}:{errors[0].line}:{errors[0].column}: {errors[0].text}"
        more = f"; {len(errors) - 1} more" if len(errors) > 1 else ""
        yield bad(f"{first}{more}: the scheduler would not start", check)
    else:
        count = len(files.conf.clauses)
        yield ok(f"{files.conf_path}: {count} clauses, no errors")
    if warnings := files.conf.warnings:
        first = f"{files.conf_path}:{warnings[0].line}: {warnings[0].text}"
        more = f"; {len(warnings) - 1} more" if len(warnings) > 1 else ""
        yield warn(f"{first}{more}", check)
    if setting := files.conf.params.get("authfile"):
        yield _authfile(str(setting.value))


def _authfile(path: str) -> Finding:
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        why = f"authfile {path}: {error_text(error)}: MAILQ has no users"
        return warn(why, f"make it, with mode 0600: {shlex.quote(path)}")
    if mode & 0o077:
        what = f"authfile {path}: mode {stat.S_IMODE(mode):04o}, it has passwords"
        return warn(what, shlex.join(["chmod", "600", path]))
    return ok(f"authfile {path}: only its owner can read it")


def _rights(setup: Setup, refusal: str) -> Finding:
    if refusal:
        return warn(refusal, "use the account of the spool's owner")
    for name in (ROUTER, QUEUE):
        path = f"{setup.place}/{name}"
        try:
            mode = os.stat(path).st_mode
        except OSError as error:
            return warn(f"{path}: {error_text(error)}", shlex.join(["mkdir", path]))
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            what = f"{path}: other users can rename files in it"
            return warn(what, shlex.join(["chmod", "o-w,+t", path]))
    return ok("read and write allowed")


def _scheduler(
    setup: Setup, folders: PostofficeFolders, scheduler: int | None
) -> Iterator[Finding]:
    path = f"{setup.place}/{lock_process.PID_FILE}"
    if scheduler is not None:
        whose = "spooldeck's" if lock_process.is_ours(folders.fd) else "the original one"
        yield ok(f"the scheduler is running: PID {scheduler}, {whose}")
    elif os.path.lexists(path):
        what = "no scheduler is running, and its pid file is there: a start may signal another one"
        yield warn(f"{path}: {what}", shlex.join(["rm", path]))
    else:
        yield warn("no scheduler is running", "start the scheduler")
    if spool_controls.is_frozen(folders):
        fix = _command(setup, "control", "freeze", "--value", "off", "--apply", "1")
        yield warn("frozen by an operator: no agent is started", fix)


def _notify(setup: Setup, files: SchedulerFiles, scheduler: int | None) -> Finding:
    path = files.notify_socket(setup.place)
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        if scheduler is None:
            return ok("no scheduler, no notify socket")
        what = f"{path}: missing; the scheduler finds new mail by its scans only, each 10 s"
        return warn(what, "restart the scheduler")
    if not stat.S_ISSOCK(mode):
        return warn(f"{path}: is not a socket", shlex.join(["rm", path]))
    if stat.S_IMODE(mode) != SOCKET_MODE:
        what = f"{path}: mode {stat.S_IMODE(mode):04o}, expected {SOCKET_MODE:04o}"
        return warn(what, shlex.join(["chmod", f"{SOCKET_MODE:o}", path]))
    return ok(f"{path}: only its owner can send")


def _locks(setup: Setup, tasks: Sequence[Task]) -> Iterator[Finding]:
    locked = [task for task in tasks if task.state is State.ACTIVE]
    abandoned = [task for task in locked if STALLED_KEY in task.extra]
    if abandoned:
        what = f"{format_count(len(abandoned), 'recipient')} locked by agents that have ended"
        yield warn(what, _command(setup, "release", "--state", "locked"))
    else:
        yield ok(f"{format_count(len(locked), 'recipient')} locked, by running agents")


def _mail(setup: Setup, tasks: Sequence[Task], files: SchedulerFiles) -> Iterator[Finding]:
    """Check that each waiting recipient can be delivered, and is not too old."""
    counts = Counter(task.state for task in tasks)
    waiting = f"{format_count(counts[State.PENDING], 'recipient')} waiting"
    yield ok(f"{waiting}, {counts[State.DEAD]:,} failed, {counts[State.HELD]:,} held")
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

    def describe(thread: tuple[tuple[str, str], str]) -> Finding:
        name, why = thread
        target, recipients = "/".join(name), format_count(len(threads[name]), "recipient")
        what = f"{safe_line(target)}: never delivered: {why}: {recipients}"
        return warn(what, shlex.join(["spooldeck", "zmailer", "why", target]))

    more = "more threads that are never delivered"
    yield from list_first(lost, describe, more, "add a clause for them to scheduler.conf")
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
        return ok("none is older than its expiry")
    age = format_rough_duration(max(late))
    what = f"{format_count(len(late), 'recipient')} overdue for expiry, the oldest waits for {age}"
    return warn(what, _command(setup, "expire", "--filter", "age>3d"))


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
        what = f"{format_count(flat, 'control file')} not in hash folders, {hashed:,} are"
        yield warn(what, "the scheduler moves them when it reads them (option -H)")
    wrong = [
        f"{TRANSPORT}/{folder}{name}"
        for name, folder in listed.items()
        if folder not in names.hash_folders(names.message_number(name) or 0)
    ]
    for path in wrong[:MAX_LISTED]:
        what = f"{path}: in a folder that its number does not lead to: never read"
        yield warn(what, f"move it to {TRANSPORT}/")
    lone = sorted(_lone_messages(folders, listed))
    why = "a message without its control file: never delivered"
    fix = f"move it to {ROUTER}/, or remove it"
    yield from list_first(
        lone, lambda path: warn(f"{path}: {why}", fix), "more", "as the first ones"
    )
    with suppress(OSError), folders.open_below(folders.fd, STAGED) as staged_fd:
        if staged_count := len(os.listdir(staged_fd)):
            what = (
                f"{STAGED}: {format_count(staged_count, 'file')} of a change that was interrupted"
            )
            fix = "the next change, such as hold and its undo, completes it"
            yield warn(what, fix)
    if not (lone or wrong):
        yield ok("each message has its control file")


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


def _command(setup: Setup, *words: str) -> str:
    return shlex.join(["spooldeck", "--root", os.path.abspath(setup.place), *words])
