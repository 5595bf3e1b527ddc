"""Whether the work gets done: programs, handlers, mail, and when a worker last ran."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Iterator

from engine.config import queue_config
from engine.config.nftban_variables import RUN_DIR
from engine.doctor.finding import NAMED, Finding, Grade, by_name, hidden_from_us, unread
from engine.doctor.folders import user, works_here
from engine.doctor.place_facts import InstalledProgram, PlaceFacts, is_hidden
from engine.locks import lock_file
from engine.model import State, Verdict
from engine.monitor import prometheus
from engine.monitor.transport_health import stopped_words
from engine.policy import DLQ_LIMIT, HOUR, at
from engine.stores.nftban.store import EXCLUSIVE
from engine.system import files
from engine.system.users import Account


def handlers(patient: PlaceFacts) -> Iterator[Finding]:
    """Looks for each handler's program, with the eyes of whom it will be run as."""
    for kind, program in sorted(patient.handlers.items()):
        whose = f"handlers.{kind} in {patient.config}"
        if program.refused:
            yield Finding(Grade.BAD, program.refused, f"change run_as of {whose}")
            continue
        name, account = program.argv[0], program.account
        who = user(os.geteuid()) if account is None else account.name
        candidates = _candidates(program)
        if not candidates and "/" in name and is_hidden(name):
            yield hidden_from_us(f"{kind}: {name}")
        elif not candidates:
            yield Finding(Grade.BAD, f"{kind}: {name}: no such program", f"correct {whose}")
        elif account is None and not works_here(patient):
            yield hidden_from_us(f"{kind}: whether a worker may run {candidates[0]}")
        elif lacking := _lacking(candidates[0]):
            said = f"{kind}: {candidates[0]} wants {lacking}, which is not there"
            yield Finding(Grade.BAD, said, f"install it, or correct {whose}")
        elif not any(_may_run(path, account) for path in candidates):
            said = f"{kind}: {candidates[0]} cannot be run as {who}"
            yield Finding(Grade.BAD, said, f"chmod a+rx {shlex.quote(candidates[0])}")


def _candidates(program: InstalledProgram) -> list[str]:
    name = program.argv[0]
    if "/" in name:
        return [name] if os.path.isfile(name) else []
    paths = [f"{folder}/{name}" for folder in program.path.split(":")]
    return [path for path in paths if os.path.isfile(path)]


def _lacking(script: str) -> str:
    """The interpreter that a script names in its first line, if there is no such program."""
    try:
        with open(files.open_file(script), "rb") as file:
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


def kinds(patient: PlaceFacts) -> Iterator[Finding]:
    """Looks for tasks that nobody handles."""
    for kind, number in sorted(patient.sight.kinds.items()):
        if kind in patient.handlers or kind in queue_config.BUILT_IN:
            continue  # whether mail can be sent is looked at by itself
        what = "will fail at once" if patient.claimed(kind) else "are left alone"
        many = f"1 {kind} task waits" if number == 1 else f"{number:,} {kind} tasks wait"
        mend = f"handlers: {{{kind}: {{command: [PROGRAM]}}}} in "
        mend += patient.config or queue_config.SEARCH[-1]
        yield Finding(Grade.WARN, f"{many} without a handler: they {what}", mend)


def mail(patient: PlaceFacts) -> Iterator[Finding]:
    """Looks at what is found out beforehand: whether mail can be sent, and what waits for that."""
    mail = patient.mail
    if mail.hidden:
        yield hidden_from_us(mail.hidden)
    if mail.problem:
        yield Finding(Grade.BAD, mail.problem, "correct it there")
    if mail.shut:
        yield _shut(patient)
    for what, mend in mail.settings:
        yield Finding(Grade.WARN, what, mend)
    for path in mail.secrets:
        said = f"{path} holds a password, and everybody may read it"
        yield Finding(Grade.BAD, said, f"chmod o= {shlex.quote(path)}")


def _shut(patient: PlaceFacts) -> Finding:
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


def mail_spool(patient: PlaceFacts) -> Iterator[Finding]:
    """Looks for spooled mails that nobody will send: no task names them, or they are none."""
    unnamed = (path for path in patient.mail.kept if path not in patient.sight.payloads)
    lost = [path for path in unnamed if os.path.exists(path)]  # else sent while we looked
    for path in lost[:NAMED]:
        ident = os.path.basename(os.path.dirname(path))
        mend = f"{patient.spooldeck} mail spool retry -- {shlex.quote(ident)}"
        yield Finding(Grade.WARN, f"{os.path.dirname(path)}: no task sends this mail", mend)
    if len(lost) > NAMED:
        many = f"and {len(lost) - NAMED:,} more that no task sends"
        mend = f"{patient.spooldeck} mail spool retry --all  # and what is in the DLQ"
        yield Finding(Grade.WARN, many, mend)
    broken = patient.mail.broken
    for path, why in broken[:NAMED]:
        yield Finding(Grade.WARN, f"{path}: no mail: {why}", f"{by_name(path)}  # mend or remove")
    if len(broken) > NAMED:
        said = f"and {len(broken) - NAMED:,} more that are no mail"
        yield Finding(Grade.WARN, said, f"{patient.spooldeck} mail spool list")


def dead(patient: PlaceFacts) -> Iterator[Finding]:
    """Looks whether too many tasks were given up."""
    dead = patient.sight.counts[State.DEAD]
    if dead > DLQ_LIMIT:
        said = f"{dead:,} tasks in the dead-letter queue (over {DLQ_LIMIT})"
        yield Finding(Grade.WARN, said, f"{patient.spooldeck} queue dlq list")


IDLE = 900.0
"""Seconds for which due tasks may wait with no worker at hand: three rounds of the real program's
timer, which fires every 5 minutes and up to 2 minutes late."""

SILENT = 3600.0
"""Seconds after which somebody should look why no worker has run since, whatever waits."""


def worker(patient: PlaceFacts) -> Iterator[Finding]:
    """Looks at when a worker last ran, as the metrics have it."""
    sight, now = patient.sight, patient.now
    recover = f"{patient.spooldeck} queue recover --dry-run"
    if patient.lock.verdict is Verdict.HELD:
        yield Finding(Grade.OK, "somebody is at work")
        return
    if is_hidden(f"{patient.queue.run_dir}/queue.lock"):
        yield hidden_from_us("whether anybody is at work")
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
        ran = prometheus.read(path).get("nftban_queue_last_run_timestamp")
    except FileNotFoundError:
        ran = None
    except PermissionError:
        yield hidden_from_us(path)
        return
    except (OSError, prometheus.BadMetrics) as error:
        said = (
            str(error) if isinstance(error, prometheus.BadMetrics) else f"{path}: {error.strerror}"
        )
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


def beside(patient: PlaceFacts) -> Iterator[Finding]:
    """Look for signs of another program on a spool that `init --exclusive` marked as ours."""
    marker = f"{patient.desk}/{EXCLUSIVE}"
    queue = patient.queue
    near = (queue.run_dir, f"{queue.run_dir}/queue.lock", os.path.dirname(queue.queue_metrics))
    yield from unread((patient.desk, *near))
    if not os.path.exists(marker):
        return
    for why in _signs(patient):
        said = f"{why}, but {marker} says that no other program works here"
        mend = f"rm -- {shlex.quote(marker)}"
        yield Finding(Grade.WARN, said, mend)
        return


def _signs(patient: PlaceFacts) -> Iterator[str]:
    queue = patient.queue
    if queue.run_dir == RUN_DIR:
        yield f"{queue.root} is NFTBan's own data folder"
    path = f"{queue.run_dir}/queue.lock"
    try:
        fd = files.open_file(path, os.O_NOFOLLOW)
        try:
            claim = lock_file.parse(os.read(fd, lock_file.LIMIT + 1))
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
