"""Gather the facts about a place once, for the doctor's checks to decide from.

Read-only; takes no lock and waits for no process.
"""

from __future__ import annotations

import errno
import os
import stat
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from engine import policy
from engine.config.queue_config import Queue
from engine.doctor.store_checks import CLOCK_SKEW_SECONDS
from engine.formats.nftban.staging import QUARANTINE_NAME as CORRUPT
from engine.formats.nftban.staging import STAGING_NAME
from engine.formats.nftban.store import NftbanStore
from engine.model import FOR_ALL, LockEvidence, Problem, State, Task
from engine.monitor.transport_health import TransportSuspension
from engine.policy import MAX_WAIT_SECONDS
from engine.store import Unavailable
from engine.system import files
from engine.system.users import Account
from engine.text.times import format_time


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
    for a token.
    """
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
    ]


def scan_tasks(open_store: Callable[[], NftbanStore], now: float) -> ScannedTasks:
    """Scan all tasks once; a store that cannot be opened or read is reported in `refused`."""
    try:
        store = open_store()
    except Unavailable as error:
        return ScannedTasks(problem=str(error))
    try:
        return _walked(store, now)
    except Unavailable as error:
        return ScannedTasks(problem=str(error))
    finally:
        store.close()


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
