"""Gather the facts about an NFTBan queue once, for the doctor's checks to decide from.

Read-only; takes no lock and waits for no process.
"""

from __future__ import annotations

import errno
import os
import shlex
import stat
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial

from engine import policy
from engine.config.mail_config import FILES, MEMORY, NOWHERE, MailSettings, field_source
from engine.config.nftban_variables import PASSWORD_VARIABLE, config_dir
from engine.config.queue_config import Queue
from engine.config.validators import ConfigError
from engine.doctor.store_checks import CLOCK_SKEW_SECONDS
from engine.formats.base.format import Setup
from engine.formats.base.mail_controls import make_place_mail
from engine.formats.nftban.queue_folders import examine_lock, handles_kind, open_spool
from engine.formats.nftban.staging import QUARANTINE_NAME as CORRUPT
from engine.formats.nftban.staging import STAGING_NAME
from engine.formats.nftban.store import DATA_NAME, OUTPUT_NAME, NftbanStore
from engine.mail.message.compose import invalid_addresses
from engine.mail.send.mail_spool import Broken
from engine.model import FOR_ALL, LockEvidence, Problem, State, Task
from engine.monitor.transport_health import TransportSuspension
from engine.places.mail_setup import QUEUING_GRACE_SECONDS
from engine.policy import MAX_WAIT_SECONDS
from engine.store import Unavailable
from engine.system import files
from engine.system.command_errors import CommandError
from engine.system.users import Account
from engine.text.error_text import error_text
from engine.text.times import format_time
from engine.values import NamedTuple


class InstalledProgram(NamedTuple):
    """Program that is run for one kind of task."""

    argv: Sequence[str]
    account: Account | None
    """User it is run as; None: the present user."""
    refused: str = ""
    """Why it cannot be run as the configured user."""
    path: str = os.defpath
    """Search path for a program name without a slash, like PATH."""


class ScannedTasks(NamedTuple):
    """Result of one scan of all tasks."""

    problem: str = ""
    """Why the scan failed; "" if it did not."""
    counts: Mapping[State, int] = {}
    kinds: Mapping[str, int] = {}
    """Pending tasks by kind."""
    due: int = 0
    """Number of due tasks."""
    due_since: float = 0.0
    """Due time of the earliest of them, epoch seconds; it may have been put there later."""
    too_late: int = 0
    """Tasks whose next attempt is later than any backoff allows."""
    broken: Sequence[Problem] = ()
    """Files that are not tasks."""
    hidden: int = 0
    """Number of files that we may not read."""
    misplaced: Sequence[Problem] = ()
    """Interrupted moves, duplicate tasks, and quarantined files."""
    ahead: Sequence[str] = ()
    """Files created or changed after now."""
    strangers: Sequence[str] = ()
    """Files whose owner differs from their folder's."""
    payloads: frozenset[str] = frozenset()
    """Payload paths of tasks in any state."""


class MailFacts(NamedTuple):
    """Facts about sending mail."""

    problem: str = ""
    """Why its settings are invalid; "" if they are valid."""
    unavailable: str = ""
    """Why no mail can be sent now; "" if it can, or if a program is configured for it."""
    is_wanted: bool = False
    """True if the configuration intends mail to be sent from here."""
    suspended: Sequence[TransportSuspension] = ()
    """Suspended transports."""
    token_at: float | None = None
    """Time of the next token of the transport in use, epoch seconds UTC; None if mail does not wait
    for a token."""
    settings: Sequence[tuple[str, str]] = ()
    """Problems of single settings, each with its fix."""
    secrets: Sequence[str] = ()
    """Files with a password that other users may read."""
    unsent: Sequence[str] = ()
    """Unsent spooled mails, by the payload path that a task would have."""
    broken: Sequence[tuple[str, str]] = ()
    """Folders in the mail spool that are not mails, each with the reason."""
    hidden: str = ""
    """What could not be read."""


class PlaceFacts(NamedTuple):
    """One place with all gathered facts."""

    queue: Queue
    handlers: Mapping[str, InstalledProgram]
    """Programs by kind of task."""
    is_claimed: Callable[[str], bool]
    """True if a worker would claim a task of that kind, with or without a handler."""
    spooldeck: str
    """Command line for this place, without the subcommand."""
    config: str
    """Configuration file; "" if none."""
    lock: LockEvidence
    now: float
    view: ScannedTasks
    folder_stats: Mapping[str, os.stat_result | OSError]
    """lstat results of the place's folders."""
    mail: MailFacts = MailFacts()
    delivered: Collection[str] = ()
    """Kinds of task that are sent by HTTP."""

    @property
    def staging(self) -> str:
        """The staging directory, next to pending/."""
        return _staging_of(self.queue)

    def path_of(self, problem: Problem) -> str:
        """Path of a file that the store reported as a problem."""
        word, _, name = problem.where.partition("/")
        staging = self.staging
        in_staging = {STAGING_NAME: staging, "held": f"{staging}/held", "trash": f"{staging}/trash"}
        return f"{(folders_of(self.queue) | in_staging)[word]}/{name}"

    def existing(self, names: Iterable[str]) -> Iterator[tuple[str, os.stat_result]]:
        """Yield those of these folders that exist and are visible."""
        for path in names:
            folder_stat = self.folder_stats.get(path)
            if isinstance(folder_stat, os.stat_result):
                yield path, folder_stat


def folders_of(queue: Queue) -> dict[str, str]:
    """Folders of a place by their purpose, in display order."""
    return {
        "pending": queue.pending,
        "work": queue.work,
        "dlq": queue.dlq,
        "run": queue.run_dir,
        "log": queue.log_dir,
        "metrics": os.path.dirname(queue.queue_metrics),
        "counters": queue.counters,
        "mail spool": queue.mail_spool,
    }


def data_folders(queue: Queue) -> tuple[str, str]:
    """The folders of the data of tasks, and of what handlers printed."""
    above = os.path.dirname(queue.pending)
    return f"{above}/{DATA_NAME}", f"{above}/{OUTPUT_NAME}"


def _staging_of(queue: Queue) -> str:
    return f"{os.path.dirname(queue.pending)}/{STAGING_NAME}"


def stat_paths(paths: Iterable[str]) -> dict[str, os.stat_result | OSError]:
    """Run lstat on each path."""
    stats: dict[str, os.stat_result | OSError] = {}
    for path in paths:
        try:
            stats[path] = os.lstat(path)
        except OSError as error:
            stats[path] = error
    return stats


def is_hidden(path: str) -> bool:
    """True if we may not read a path, or not list a folder."""
    try:
        mode = os.lstat(path).st_mode
    except PermissionError:
        return True
    except OSError:
        return False
    if stat.S_ISLNK(mode):
        return False
    return not os.access(path, os.R_OK | os.X_OK if stat.S_ISDIR(mode) else os.R_OK)


def folder_paths(queue: Queue) -> list[str]:
    """Return every folder that the checks need."""
    staging = _staging_of(queue)
    return [
        *folders_of(queue).values(),
        staging,
        f"{staging}/held",
        f"{staging}/trash",
        f"{staging}/{CORRUPT}",
        *data_folders(queue),
    ]


def scan_tasks(open_store: Callable[[], NftbanStore], now: float) -> ScannedTasks:
    """Scan all tasks once; why a store cannot be opened or read is the `problem`."""
    try:
        with closing(open_store()) as store:
            return _walked(store, now)
    except Unavailable as error:
        return ScannedTasks(problem=str(error))


def _walked(store: NftbanStore, now: float) -> ScannedTasks:
    counts: Counter[State] = Counter(dict.fromkeys(store.states, 0))
    kinds: Counter[str] = Counter()
    broken, ahead = [], []
    payloads = set()
    due, since, late, hidden = 0, now, 0, 0
    for scanned in store.scan(store.states.values()):
        if isinstance(scanned, Problem):
            if _HIDDEN in scanned.what and FOR_ALL not in scanned.what:
                hidden += 1
            else:
                broken.append(scanned)
        elif isinstance(scanned, Task):
            counts[scanned.state] += 1
            payloads.add(scanned.payload)
            if scanned.created > now + CLOCK_SKEW_SECONDS:
                ahead.append(f"{scanned.id}, created {format_time(scanned.created)}")
            if scanned.state is State.PENDING:
                kinds[scanned.kind] += 1
                # Files have whole seconds: a fraction marks an impossible time that was replaced.
                late += bool((scanned.due or 0.0) % 1)
                if policy.is_due(scanned, now):
                    due += 1
                    since = min(since, scanned.due or scanned.created)
    misplaced = list(store.find_misplaced())
    times, strangers = _states(store.changes.paths, now)
    return ScannedTasks(
        "",
        counts,
        kinds,
        due=due,
        due_since=since,
        too_late=late,
        broken=broken,
        hidden=hidden,
        misplaced=misplaced,
        ahead=ahead + times,
        strangers=strangers,
        payloads=frozenset(payloads - {""}),
    )


_HIDDEN = f": {os.strerror(errno.EACCES)}"
"""Part of the store's problem text for a file that we may not read."""


def _states(folders: Iterable[str], now: float) -> tuple[list[str], list[str]]:
    """Files changed after now, and files of other owners; no file is opened."""
    ahead, strangers = [], []
    for folder in folders:
        try:
            owner = os.stat(folder).st_uid
            for name in files.list_names(folder):
                path = f"{folder}/{name}"
                file_stat = os.stat(path, follow_symlinks=False)
                # A file's mtime may be its due time; its ctime cannot be set.
                if (
                    file_stat.st_ctime > now + CLOCK_SKEW_SECONDS
                    or file_stat.st_mtime > now + MAX_WAIT_SECONDS + CLOCK_SKEW_SECONDS
                ):
                    moment = max(file_stat.st_ctime, file_stat.st_mtime)
                    ahead.append(f"{path}, changed {format_time(moment)}")
                if file_stat.st_uid != owner:
                    strangers.append(path)
        except FileNotFoundError:
            continue  # held/ and trash/ are created on first use; files move
        except PermissionError:
            continue  # reported by the checks that call `is_hidden`
    return ahead, strangers


def gather_facts(setup: Setup) -> PlaceFacts:
    """All facts about a place."""
    now = time.time()
    queue = setup.queue
    mail = _mail(setup, now)  # before the tasks: a mail is spooled before its task is queued
    return PlaceFacts(
        queue=queue,
        handlers={kind: _program(setup, kind) for kind in setup.programs},
        delivered=setup.delivered,
        is_claimed=partial(handles_kind, setup),
        spooldeck=shlex.join(setup.command_words),
        config=setup.config.path,
        lock=examine_lock(setup),
        now=now,
        view=scan_tasks(partial(open_spool, setup), now),
        folder_stats=stat_paths(folder_paths(queue)),
        mail=mail,
    )


def _mail(setup: Setup, now: float) -> MailFacts:
    mail_facts = MailFacts(secrets=[path for path in _with_passwords() if _may_be_read(path)])
    try:
        settings = setup.mail.settings()
    except ConfigError as error:
        return mail_facts._replace(problem=str(error))
    unsent, broken = [], []
    try:
        for mail in setup.mail.spool().read_all():
            if isinstance(mail, Broken):
                broken.append((f"{setup.queue.mail_spool}/{mail.id}", mail.why))
            elif mail.sent is None and not 0 <= now - mail.created < QUEUING_GRACE_SECONDS:
                unsent.append(mail.meta)
    except OSError as error:
        mail_facts = mail_facts._replace(hidden=f"{setup.queue.mail_spool}: {error_text(error)}")
    mail_facts = mail_facts._replace(
        settings=list(_invalid_settings(setup, settings)), unsent=unsent, broken=broken
    )
    return _with_blocker(setup, settings, mail_facts)


def _with_passwords() -> Iterator[str]:
    """The files of mail settings that set the relay's password."""
    folder = config_dir(os.environ)
    for name in FILES:
        try:
            with open(files.open_file(f"{folder}/{name}"), "rb") as file:
                if PASSWORD_VARIABLE.encode() in file.read():
                    yield f"{folder}/{name}"
        except OSError:
            continue  # optional; the code that needs it reports that it is unreadable


def _may_be_read(path: str) -> bool:
    try:
        return bool(os.stat(path).st_mode & stat.S_IROTH)
    except OSError:
        return False


def _with_blocker(setup: Setup, settings: MailSettings, mail_facts: MailFacts) -> MailFacts:
    """The same, with why no mail can be sent now, where that is so."""
    mail_facts = mail_facts._replace(is_wanted=_is_wanted(settings))
    if not setup.mail.is_ours:
        return mail_facts
    place_mail = make_place_mail(setup, [])
    try:
        routes = place_mail.routes(place_mail.suspended())
        token_at = _token_at(setup, settings, routes.selected)
    except (Unavailable, OSError) as error:
        if isinstance(error.__cause__ or error, PermissionError):
            return mail_facts._replace(hidden=mail_facts.hidden or "which transports are suspended")
        if isinstance(error.__cause__, ValueError):
            path = f"{setup.state_folder}/suspended"
            again = "spooldeck mail suspend NAME for each transport that must stay off"
            fix = f"rm {shlex.quote(path)}  # then {again}"
            return mail_facts._replace(settings=[*mail_facts.settings, (str(error), fix)])
        return mail_facts._replace(problem=str(error))
    if token_at is not None:
        return mail_facts._replace(
            unavailable=f"no token for transport {routes.selected}", token_at=token_at
        )
    if routes.selected:
        return mail_facts
    # Resuming a transport that has another problem too would not help.
    usable = {name for name in routes.order if name not in routes.why_not}
    usable &= {routes.forced} if routes.forced else usable
    stopped = [each for name, each in routes.stopped.items() if name in usable]
    return mail_facts._replace(unavailable=setup.mail.handler().why_closed(), suspended=stopped)


def _is_wanted(settings: MailSettings) -> bool:
    named = (settings.recipient, settings.method, settings.host, settings.programs)
    return settings.method != NOWHERE and any(named)


def _token_at(setup: Setup, settings: MailSettings, name: str) -> float | None:
    """When a transport may send again, epoch seconds UTC; None if it may now."""
    from engine.locks.token_buckets import TokenBuckets

    rate, bucket = settings.rates.get(name), f"transport:{name}"
    if rate is None:
        return None
    path = f"{setup.queue.run_dir}/queue.buckets"
    buckets = TokenBuckets(path, {bucket: rate}, time.time, setup.queue.root)
    now = time.time()
    when = buckets.token_at(bucket)
    return when if when > now else None


def _invalid_settings(setup: Setup, settings: MailSettings) -> Iterator[tuple[str, str]]:
    """Yield each invalid mail setting with its fix, by the rules of the code that uses it."""
    wrong = invalid_addresses(settings)
    for name in filter(wrong.get, ("recipient", "sender")):
        at = field_source(name, setup.config.mail, setup.queue.root, os.environ)
        where = f"{at.file}: {at.key}" if at else f"mail.{name}"
        yield f"{where}: {wrong[name]}", "correct it there" if at else f"correct {where}"
    if settings.method == MEMORY:
        yield (
            "mail.method memory: each mail is lost when the sending process ends",
            "set another method",
        )
    for name, path in settings.programs.items():
        if not (os.path.isfile(path) and os.access(path, os.X_OK)):
            yield f"mail.programs.{name}: {path}: no such program", "correct it, or install it"
    relay = list(_wrong_secret(settings.password_file)) if settings.password_file else []
    yield from relay
    if settings.host and not relay and (why := setup.mail.registry(settings).absence("curl")):
        yield f"mail.relay.host is {settings.host}, and not used: {why}", "spooldeck mail status"


def _wrong_secret(path: str) -> Iterator[tuple[str, str]]:
    """Why the relay's password file is unusable, by the rules of the code that reads it."""
    from engine.mail.transports.curl import read_secret

    fix = f"write the password into {path}, on one line and nothing else"
    try:
        read_secret(path)
    except PermissionError:
        return  # the worker must be able to read it, not this user
    except OSError as error:
        yield f"mail.relay.password_file: {path}: {error_text(error)}", "correct the path"
    except ValueError as error:
        if os.stat(path).st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            fix = f"chmod 600 {shlex.quote(path)}"
        yield f"mail.relay.password_file: {path}: {error}", fix


def _program(setup: Setup, kind: str) -> InstalledProgram:
    from engine.system import run_program  # process code is loaded by few commands

    handler = setup.config.handlers[kind]
    environment = handler.environment
    path = (
        environment["PATH"] or os.environ.get("PATH") if "PATH" in environment else ""
    ) or run_program.PATH
    program = InstalledProgram(handler.command, None, path=path)
    try:
        return program._replace(account=setup.handler_account(kind))
    except CommandError as failure:
        return program._replace(refused=str(failure))
    except OSError:
        return program  # the owner of the queue is unknown; other checks report that
