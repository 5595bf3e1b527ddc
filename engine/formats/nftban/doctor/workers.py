"""Worker checks: programs, handlers, mail, and when a worker last ran."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Iterator

from engine.config import queue_config
from engine.config.nftban_variables import RUN_DIR
from engine.doctor.finding import Finding, bad, count_are, list_first, ok, warn
from engine.formats.nftban.doctor.evidence import (
    access_denied,
    recover_command,
    report_unread,
    show_owner_command,
)
from engine.formats.nftban.doctor.folders import can_change_queue, user_name
from engine.formats.nftban.doctor.place_facts import InstalledProgram, PlaceFacts, is_hidden
from engine.formats.nftban.store import EXCLUSIVE_MARKER
from engine.locks import lock_file
from engine.model import State, Verdict
from engine.monitor import prometheus
from engine.monitor.transport_health import describe_suspension
from engine.policy import DLQ_ALERT_LIMIT, UNITS_PER_TOKEN
from engine.system import files
from engine.system.users import Account
from engine.text.error_text import error_text
from engine.text.figures import format_count
from engine.text.times import format_time


def check_handlers(facts: PlaceFacts) -> Iterator[Finding]:
    """Check each handler's program, as the user that runs it."""
    for kind, program in sorted(facts.handlers.items()):
        whose = f"handlers.{kind} in {facts.config}"
        if program.refused:
            yield bad(program.refused, f"change run_as of {whose}")
            continue
        name, account = program.argv[0], program.account
        who = user_name(os.geteuid()) if account is None else account.name
        candidates = _candidates(program)
        if not candidates and "/" in name and is_hidden(name):
            yield access_denied(f"{kind}: {name}")
        elif not candidates:
            yield bad(f"{kind}: {name}: program not found", f"correct {whose}")
        elif account is None and not can_change_queue(facts):
            yield access_denied(f"{kind}: worker's access to {candidates[0]}")
        elif lacking := _lacking(candidates[0]):
            text = f"{kind}: {candidates[0]} needs {lacking}, which does not exist"
            yield bad(text, f"install it, or correct {whose}")
        elif not any(_may_run(path, account) for path in candidates):
            text = f"{kind}: {candidates[0]} cannot be run as {who}"
            yield bad(text, f"chmod a+rx {shlex.quote(candidates[0])}")


def _candidates(program: InstalledProgram) -> list[str]:
    name = program.argv[0]
    if "/" in name:
        return [name] if os.path.isfile(name) else []
    paths = [f"{folder}/{name}" for folder in program.path.split(":")]
    return [path for path in paths if os.path.isfile(path)]


def _lacking(script: str) -> str:
    """Interpreter in the first line of a script, if it does not exist; "" otherwise."""
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
    # Test as that user: only the kernel knows all access rules.
    answer = subprocess.run(
        ["test", "-x", path],
        user=account.uid,
        group=account.gid,
        extra_groups=account.groups,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    return answer.returncode == 0


def check_kinds(facts: PlaceFacts) -> Iterator[Finding]:
    """Check for waiting tasks without a handler."""
    for kind, number in sorted(facts.view.kinds.items()):
        if kind in (*facts.handlers, *facts.delivered, *queue_config.BUILT_IN_KINDS):
            continue  # the check `mail` covers these
        what = "will fail immediately" if facts.is_claimed(kind) else "are not claimed"
        many = f"{format_count(number, 'task')} of kind {kind} wait{'s' if number == 1 else ''}"
        fix = f"handlers: {{{kind}: {{command: [PROGRAM]}}}} in "
        fix += facts.config or queue_config.SEARCH_PATHS[-1]
        yield warn(f"{many} without a handler: they {what}", fix)


def check_mail(facts: PlaceFacts) -> Iterator[Finding]:
    """Check whether mail can be sent, and its settings."""
    mail = facts.mail
    if mail.hidden:
        yield access_denied(mail.hidden)
    if mail.problem:
        fix = "correct it there" if files.LINKED_FOLDER not in mail.problem else ""
        yield bad(mail.problem, fix)
    if mail.unavailable:
        yield _shut(facts)
    for what, fix in mail.settings:
        yield warn(what, fix)
    for path in mail.secrets:
        text = f"{path} contains a password, any user may read it"
        yield bad(text, f"chmod o= {shlex.quote(path)}")


def _shut(facts: PlaceFacts) -> Finding:
    """Finding if no mail can be sent; its severity depends on whether mail waits or is
    configured."""
    mail, waiting = facts.mail, facts.view.kinds.get("mail_send", 0)
    many = f"{waiting:,} mails wait" if waiting > 1 else "1 mail waits" if waiting else ""
    if mail.token_at is not None:
        text = f"the next token comes {format_time(mail.token_at)}"
        return ok(": ".join(filter(None, (many, f"{mail.unavailable}, {text}"))))
    if mail.suspended:
        text = "; ".join(describe_suspension(each) for each in mail.suspended)
        names = [each.name for each in mail.suspended]
        fix = " ".join(f"{facts.spooldeck} mail resume {name};" for name in names).rstrip(";")
        return warn(f"{many or 'no mail can be sent'}: {text}", fix)
    text = f"{many}, none can be sent: {mail.unavailable}" if many else mail.unavailable
    if waiting or mail.is_wanted:
        return warn(text, f"{facts.spooldeck} mail status")
    return ok(text)


def check_mail_spool(facts: PlaceFacts) -> Iterator[Finding]:
    """Check the mail spool: mails without a task, and folders that are not mails."""
    unnamed = (path for path in facts.mail.unsent if path not in facts.view.payloads)
    lost = [path for path in unnamed if os.path.exists(path)]  # else sent during the check
    retry = f"{facts.spooldeck} mail spool retry"

    def describe(path: str) -> Finding:
        folder = os.path.dirname(path)
        fix = f"{retry} -- {shlex.quote(os.path.basename(folder))}"
        return warn(f"{folder}: no task sends this mail", fix)

    fix = f"{retry} --all  # and what is in the DLQ"
    yield from list_first(lost, describe, "more without a task", fix)
    yield from list_first(
        facts.mail.broken,
        lambda mail: warn(
            f"{mail[0]}: not a mail: {mail[1]}",
            f"{show_owner_command(mail[0])}  # repair or remove",
        ),
        "more that are not mails",
        f"{facts.spooldeck} mail spool list",
    )


def check_dead_letters(facts: PlaceFacts) -> Iterator[Finding]:
    """Check the size of the dead-letter queue."""
    dead = facts.view.counts[State.DEAD]
    if dead > DLQ_ALERT_LIMIT:
        text = f"{dead:,} tasks in the DLQ (over {DLQ_ALERT_LIMIT})"
        yield warn(text, f"{facts.spooldeck} queue dlq list")


MAX_WAIT_SECONDS = 900.0
"""Seconds that due tasks may wait without a worker: three rounds of the real program's timer, which
fires every 5 minutes and up to 2 minutes late."""

MAX_SILENCE_SECONDS = 3600.0
"""Seconds without a worker run after which an operator should find out why."""


def check_worker(facts: PlaceFacts) -> Iterator[Finding]:
    """Check when a worker last ran, from the metrics."""
    view, now = facts.view, facts.now
    if facts.lock.verdict is Verdict.HELD:
        yield ok("worker running")
        return
    if is_hidden(f"{facts.queue.run_dir}/queue.lock"):
        yield access_denied("whether a worker is running")
        return
    if facts.lock.verdict in (Verdict.STUCK, Verdict.UNKNOWN):
        text = f"no worker can start: the lock is {facts.lock.verdict}"
        yield warn(text, "free the lock first, see above")
        return
    active = view.counts[State.ACTIVE]
    if active:
        yield warn(
            f"{count_are(active, 'task')} in work, but no worker running", recover_command(facts)
        )
    path = facts.queue.queue_metrics
    try:
        ran = prometheus.read_metrics(path).get("nftban_queue_last_run_timestamp") or None
    except FileNotFoundError:
        ran = None
    except PermissionError:
        yield access_denied(path)
        return
    except (OSError, prometheus.BadMetrics) as error:
        is_bad = isinstance(error, prometheus.BadMetrics)
        text = str(error) if is_bad else f"{path}: {error_text(error)}"
        yield warn(text, f"rm -- {shlex.quote(path)}  # a worker writes it again")
        return
    last = "no worker has run yet" if ran is None else f"the last worker ran {format_time(ran)}"
    late = now - max(view.due_since, ran or 0.0)
    if view.due and late > MAX_WAIT_SECONDS:
        since = format_time(view.due_since)
        yield warn(
            f"{count_are(view.due, 'task')} due, the first since {since}, and {last}",
            f"{facts.spooldeck} queue work  # or a timer: spooldeck install-units DIR",
        )
    elif ran is not None and now - ran > MAX_SILENCE_SECONDS:
        yield warn(
            f"{last}, and none for {(now - ran) / UNITS_PER_TOKEN:,.0f} h since (limit "
            f"{MAX_SILENCE_SECONDS / UNITS_PER_TOKEN:.0f} h)",
            f"systemctl status 'spooldeck-*'  # or: {facts.spooldeck} queue work",
        )
    elif not active:
        yield ok(last if ran is None or view.due else f"{last}; nothing is due")


def check_exclusive(facts: PlaceFacts) -> Iterator[Finding]:
    """Look for signs of another program on a spool that `init --exclusive` marked as ours."""
    marker = f"{facts.staging}/{EXCLUSIVE_MARKER}"
    queue = facts.queue
    near = (queue.run_dir, f"{queue.run_dir}/queue.lock", os.path.dirname(queue.queue_metrics))
    yield from report_unread((facts.staging, *near))
    if not os.path.exists(marker):
        return
    for why in _find_other_programs(facts):
        text = f"{why}, but {marker} marks this spool as exclusive"
        yield warn(text, f"rm -- {shlex.quote(marker)}")
        return


def _find_other_programs(facts: PlaceFacts) -> Iterator[str]:
    queue = facts.queue
    if queue.run_dir == RUN_DIR:
        yield f"{queue.root} is NFTBan's own data folder"
    path = f"{queue.run_dir}/queue.lock"
    try:
        fd = files.open_file(path, os.O_NOFOLLOW)
        try:
            claim = lock_file.parse_claim(os.read(fd, lock_file.MAX_LOCK_BYTES + 1))
        finally:
            os.close(fd)
    except OSError:
        claim = None  # no lock, none that is a file, or one that is hidden
    is_unmarked = claim is not None and claim.mark is None
    if is_unmarked and facts.lock.verdict in (Verdict.HELD, Verdict.STUCK):
        yield f"{path} is another program's"
    shared = f"{queue.queue_metrics}.tmp"
    if os.path.exists(shared):
        yield f"{shared} is another program's"
