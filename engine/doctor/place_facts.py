"""What can be found out about a place by looking, gathered once, so that others decide from it.

Nothing here changes anything, or waits for anybody.
"""

from __future__ import annotations

import errno
import os
import stat
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from engine import policy
from engine.config.queue_config import Queue
from engine.model import LockEvidence, Problem, State, Task
from engine.monitor.transport_health import Stopped
from engine.policy import FURTHEST, at
from engine.store import Unavailable
from engine.stores.nftban import NftbanStore
from engine.stores.nftban.quarantine import NAME as CORRUPT
from engine.stores.nftban.staging import NAME as DESK
from engine.system import files
from engine.system.users import Account

SLACK = 60.0
"""Seconds by which a time may lie ahead of our clock: hosts and programs round differently."""


class InstalledProgram(NamedTuple):
    """What is run for one kind of task."""

    argv: Sequence[str]
    account: Account | None
    """Whom it is run as; None: as we are."""
    refused: str = ""
    """Why it cannot be run as whom it should."""
    path: str = os.defpath
    """Where a program without a slash is looked for, as PATH has it."""


class QueueView(NamedTuple):
    """What one walk through the tasks found."""

    refused: str = ""
    """Why there was none; "" when everything was seen."""
    counts: Mapping[State, int] = {}
    kinds: Mapping[str, int] = {}
    """How many wait, of each kind."""
    due: int = 0
    """Tasks that are due."""
    due_since: float = 0.0
    """When the first of them came due, in epoch seconds; it may have been put there later."""
    late: int = 0
    """Tasks whose next attempt is said to be further away than any is."""
    broken: Sequence[Problem] = ()
    """Files that are no task."""
    hidden: int = 0
    """Files that we may not read, so that nothing is known of them."""
    misplaced: Sequence[Problem] = ()
    """Half-done moves, second files of one task, and what was set aside."""
    ahead: Sequence[str] = ()
    """Files that were made, changed or created after now."""
    strangers: Sequence[str] = ()
    """Files of another owner than their folder's."""
    payloads: frozenset[str] = frozenset()
    """What tasks of any state name as their payload."""


class MailFacts(NamedTuple):
    """What was found out about how mail is sent."""

    problem: str = ""
    """Why its settings mean nothing; "" when they do."""
    shut: str = ""
    """Why no mail can be sent now; "" when it can, or when a program is named for that."""
    wanted: bool = False
    """Whether anything of the configuration says that mail is to be sent from here."""
    stopped: Sequence[Stopped] = ()
    """The transports that an operator has suspended."""
    token_at: float | None = None
    """When the transport that would be used holds a token again, epoch seconds UTC; None where
    that is not what mail waits for."""
    settings: Sequence[tuple[str, str]] = ()
    """What is wrong with single settings, each with what to do about it."""
    secrets: Sequence[str] = ()
    """Files with a password in them that others than their owner and group may read."""
    kept: Sequence[str] = ()
    """By the payload that a task would name, the spooled mails that are not sent."""
    broken: Sequence[tuple[str, str]] = ()
    """Folders in the mail spool that are no mails, and why."""
    hidden: str = ""
    """What could not be looked at."""


class PlaceFacts(NamedTuple):
    """One place, and all that was found out about it."""

    queue: Queue
    handlers: Mapping[str, InstalledProgram]
    """By kind."""
    claimed: Callable[[str], bool]
    """Whether a worker would take a task of a kind, with or without a handler."""
    spooldeck: str
    """The command line that works on this place, up to the command's own words."""
    config: str
    """The configuration file; "" when there is none."""
    lock: LockEvidence
    now: float
    sight: QueueView
    seen: Mapping[str, os.stat_result | OSError]
    """The folders of the place, as they were found."""
    mail: MailFacts = MailFacts()

    @property
    def desk(self) -> str:
        """The folder beside pending/ on which files are moved."""
        return _desk_of(self.queue)

    def path_of(self, problem: Problem) -> str:
        """Where a file lies that the store tells of."""
        word, _, name = problem.where.partition("/")
        desk = self.desk
        on_desk = {DESK: desk, "held": f"{desk}/held", "trash": f"{desk}/trash"}
        return f"{(folders_of(self.queue) | on_desk)[word]}/{name}"

    def there(self, names: Iterable[str]) -> Iterator[tuple[str, os.stat_result]]:
        """Those of these folders that are there and can be seen."""
        for path in names:
            seen = self.seen.get(path)
            if isinstance(seen, os.stat_result):
                yield path, seen


def folders_of(queue: Queue) -> dict[str, str]:
    """The folders of a place by what they are for, in the order to be named."""
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


def _desk_of(queue: Queue) -> str:
    return f"{os.path.dirname(queue.pending)}/{DESK}"


def found_at(paths: Iterable[str]) -> dict[str, os.stat_result | OSError]:
    """What lies at each path, links not followed."""
    found: dict[str, os.stat_result | OSError] = {}
    for path in paths:
        try:
            found[path] = os.lstat(path)
        except OSError as error:
            found[path] = error
    return found


def is_hidden(path: str) -> bool:
    """Whether there may be something at a path that we cannot read, or a folder's files not."""
    try:
        mode = os.lstat(path).st_mode
    except PermissionError:
        return True
    except OSError:
        return False
    if stat.S_ISLNK(mode):
        return False
    return not os.access(path, os.R_OK | os.X_OK if stat.S_ISDIR(mode) else os.R_OK)


def paths_of(queue: Queue) -> list[str]:
    """Every folder that the checks want to know of."""
    own = _desk_of(queue)
    return [*folders_of(queue).values(), own, f"{own}/held", f"{own}/trash", f"{own}/{CORRUPT}"]


def walk(open_store: Callable[[], NftbanStore], now: float) -> QueueView:
    """One walk through the tasks; a store that cannot be opened or read is said, not raised."""
    try:
        store = open_store()
    except Unavailable as error:
        return QueueView(refused=str(error))
    try:
        return _walked(store, now)
    except Unavailable as error:
        return QueueView(refused=str(error))
    finally:
        store.close()


def _walked(store: NftbanStore, now: float) -> QueueView:
    counts: Counter[State] = Counter(dict.fromkeys(store.states, 0))
    kinds: Counter[str] = Counter()
    broken, ahead = [], []
    payloads = set()
    due, since, late, hidden = 0, now, 0, 0
    for found in store.look(store.states.values()):
        if isinstance(found, Problem):
            if found.what.endswith(_HIDDEN):
                hidden += 1
            else:
                broken.append(found)
        elif isinstance(found, Task):
            counts[found.state] += 1
            payloads.add(found.payload)
            if found.created > now + SLACK:
                ahead.append(f"{found.id}, created {at(found.created)}")
            if found.state is State.PENDING:
                kinds[found.kind] += 1
                # Files say whole seconds: one with a fraction was put in the place of another.
                late += bool((found.due or 0.0) % 1)
                if policy.is_due(found, now):
                    due += 1
                    since = min(since, found.due or found.created)
    misplaced = list(store.misplaced())
    times, strangers = _states(store.doorbell.paths, now)
    return QueueView(
        *("", counts, kinds, due, since, late, broken, hidden),
        *(misplaced, ahead + times, strangers, frozenset(payloads - {""})),
    )


_HIDDEN = f": {os.strerror(errno.EACCES)}"
"""How what the store says ends of a file that we may not read."""


def _states(folders: Iterable[str], now: float) -> tuple[list[str], list[str]]:
    """Files changed after now, and files of other owners; nothing is opened."""
    ahead, strangers = [], []
    for folder in folders:
        try:
            owner = os.stat(folder).st_uid
            for name in files.listed(folder):
                path = f"{folder}/{name}"
                seen = os.stat(path, follow_symlinks=False)
                # A file's mtime may be when it is due; nobody can set its ctime.
                if seen.st_ctime > now + SLACK or seen.st_mtime > now + FURTHEST + SLACK:
                    moment = max(seen.st_ctime, seen.st_mtime)
                    ahead.append(f"{path}, changed {at(moment)}")
                if seen.st_uid != owner:
                    strangers.append(path)
        except FileNotFoundError:
            continue  # held/ and trash/ are made when first needed; files move on
        except PermissionError:
            continue  # whoever needs to know asks `is_hidden`
    return ahead, strangers
