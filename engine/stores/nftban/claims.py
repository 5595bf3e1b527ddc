"""How a worker finds its next task in a spool, and makes it its own by a rename."""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import NamedTuple

from engine import policy
from engine.model import Lease, State, Task
from engine.store import Unavailable, Wants
from engine.stores.nftban import task_format
from engine.stores.nftban.folder import TaskFolder
from engine.stores.nftban.hint import FileState, NextDue, state_of
from engine.stores.nftban.pending_line import PendingLine
from engine.stores.nftban.staging import StagingDir
from engine.system import files
from engine.system.files import Refused

REVALIDATE = 60.0
"""Seconds for which a waiting file is believed to wait while its name and inode stay."""

STAMP_SLACK_SECONDS = 300.0
"""By how much a file may be newer than the time in its id, if that is UTC: zones differ by more."""

HOPELESS = 10
"""Files that the system could not read, one after the other, before it is the system's fault."""


class WaitingTasks(NamedTuple):
    """A pending file that is not due yet."""

    state: FileState
    """What it was when its due time was read."""
    due: float


class TaskClaims:
    """Takes tasks from pending/ to work/, and remembers which of them wait, and until when."""

    def __init__(
        self,
        folders: Mapping[State, TaskFolder],
        desk: StagingDir,
        hint: NextDue,
        clock: Callable[[], float],
        *,
        due_in_mtime: bool,
    ) -> None:
        """`due_in_mtime`: modification times are due times, so a waiting file is not read."""
        self._folders, self._desk = folders, desk
        self._hint, self._clock = hint, clock
        self._due_in_mtime = due_in_mtime
        self._owner = folders[State.PENDING].seen.st_uid
        self._waiting: dict[str, WaitingTasks] = {}
        self._claimed: set[str] = set()
        self._created: dict[str, tuple[int, float]] = {}
        """Inode and creation time of pending files whose id does not tell it for certain."""
        self._astray: list[str] = []
        """Ids that stand in work/ by a claim that came to nothing."""
        self.broken: dict[tuple[State, str], None] = {}
        """What lay in a worker's way and was no task file: state and file name, in order."""
        self.passed_by: dict[str, str] = {}
        """File names of pending tasks that the system did not let us claim, and why."""
        self._validated = 0.0
        self.due: float | None = None
        """When the next of those that wait comes due, as far as the last take saw."""

    def take(self, now: float, owner: str, limit: int, wants: Wants) -> Iterator[Task]:
        """Due tasks, oldest first, each claimed by a rename as it is asked for.

        Afterwards `due` says when the next of those that wait comes due.

        Raises:
            Unavailable: the folders cannot be read; or of all that may be due, nothing could.
        """
        pending = self._folders[State.PENDING]
        pending.check()
        self._folders[State.ACTIVE].check()
        # The hint is for a fresh process; a worker that goes on remembers more.
        is_first = not self._validated
        self.due = self._hint.read(pending.fd, now) if is_first else None
        if self.due is not None:
            return
        try:
            self._give_back_astray()
            line = PendingLine(self._candidates(pending, now))
        except OSError as error:
            raise Unavailable(f"{pending.path}: {error.strerror}") from error
        claimed = passed_over = failures = 0
        failure: Unavailable | None = None
        while claimed < limit:
            candidate = line.next(wants)
            if candidate is None:
                break
            try:
                task = self._claim(*candidate, now, owner, wants)
            except OSError as error:
                # One unreadable block must not stop a queue; a system out of descriptors does.
                failures += 1
                failure = Unavailable(f"{pending.path}/{candidate[0]}: {error.strerror}")
                self.passed_by[candidate[0]] = error.strerror or str(error)
                if failures >= HOPELESS:
                    raise failure from error
                continue
            if task is not None:
                claimed += 1
                failures = 0
                yield task
            elif candidate[0] not in self._waiting:
                passed_over += 1
        if failure is not None and not claimed:
            raise failure
        self.due = min((waiting.due for waiting in self._waiting.values()), default=None)
        nothing_is_due = not claimed + passed_over + len(line)
        if is_first and self.due is not None and nothing_is_due:
            self._hint.write((waiting.state for waiting in self._waiting.values()), self.due, now)

    def _candidates(self, pending: TaskFolder, now: float) -> list[tuple[str, int]]:
        """Names and inodes of pending files that may be due, oldest first."""
        if now - self._validated >= REVALIDATE:
            self._waiting, self._validated = {}, now
        with os.scandir(pending.fd) as entries:
            listed = sorted(
                (entry.name, entry.inode())
                for entry in entries
                if entry.name.endswith(task_format.SUFFIX)
            )
        known, waiting = self._waiting, {}
        # One id in two places is left: moving it would destroy the other.
        in_hand = set(os.listdir(self._folders[State.ACTIVE].fd))
        self._claimed &= in_hand
        for name in in_hand - self._claimed:
            if name.endswith(task_format.SUFFIX):
                self.broken[State.ACTIVE, name] = None  # nobody's claim, and perhaps no task file
        candidates = []
        for candidate in listed:
            name, inode = candidate
            before = known.get(name)
            if before is not None and before.state[0] == inode and before.due > now:
                waiting[name] = before
            elif self._due_in_mtime and (found := _waiting_by_mtime(name, pending.fd, now)):
                waiting[name] = found
            elif name not in in_hand:
                candidates.append(candidate)
        self._waiting = waiting
        # In a spool of our own all names have UTC stamps, and so are in order of creation.
        return candidates if self._due_in_mtime else self._oldest_first(candidates, now)

    def _oldest_first(self, candidates: list[tuple[str, int]], now: float) -> list[tuple[str, int]]:
        """Order candidates by creation; those of one second by name.

        Names from the NFTBan program have local time, so that they do not sort with ours. A file
        whose modification time agrees with the time in its name was written then. Only the others
        are read for TASK_CREATED_EPOCH, once for each inode; those that wait are no candidates.
        """
        known, self._created = self._created, {}
        order: dict[str, float] = {}
        stamps: dict[str, int | None] = {}  # many are of the same second
        for name, inode in candidates:
            moment = name[:17]
            if moment not in stamps:
                stamps[moment] = task_format.stamp_of(moment)
            stamp = stamps[moment]
            if stamp is not None and self._is_written_at(name, stamp):
                order[name] = stamp
                continue
            before = known.get(name)
            if before is None or before[0] != inode:
                created = self._created_or_waiting(name, stamp, now)
                if created is None:
                    continue
                before = inode, created
            self._created[name] = before
            order[name] = before[1]
        if len(order) == len(candidates) and not self._created:
            return candidates
        left = (candidate for candidate in candidates if candidate[0] in order)
        return sorted(left, key=lambda candidate: order[candidate[0]])

    def _is_written_at(self, name: str, stamp: float) -> bool:
        pending = self._folders[State.PENDING]
        try:
            seen = os.stat(name, dir_fd=pending.fd, follow_symlinks=False)
        except OSError:
            return False  # gone, or not to be read: the claim reports why
        return abs(seen.st_mtime - stamp) < STAMP_SLACK_SECONDS

    def _created_or_waiting(self, name: str, stamp: int | None, now: float) -> float | None:
        """TASK_CREATED_EPOCH of a pending file; None, and it is remembered, if it is not due yet.

        A file in another form is ordered by its name; one without a time in its name is last.
        """
        record = None
        try:
            data, seen = self._folders[State.PENDING].read(name)
            record = task_format.parse_canonical(data)
        except (OSError, Refused):
            pass  # the claim reports why
        if record is None:
            return float("inf") if stamp is None else stamp
        if record.due > now and name == record.id + task_format.SUFFIX:
            due = task_format.trusted_due(record, seen, self._clock())
            if due > now:
                self._waiting[name] = WaitingTasks(state_of(seen), due)
                return None
        return record.created

    def _claim(self, name: str, inode: int, now: float, owner: str, wants: Wants) -> Task | None:
        pending, work = self._folders[State.PENDING], self._folders[State.ACTIVE]
        try:
            ident = task_format.id_of(name)
            if ident is None:
                raise Refused(task_format.NO_TASK_NAME)
            self._require_same_owner(pending)
            data, seen = pending.read(name)
            record = task_format.parse(data, ident)
            if task_format.is_being_written(data, seen, now):
                return None  # its last field may still come; without it, it is another task
            if record.due > now:
                due = task_format.trusted_due(record, seen, self._clock())
                if due > now:
                    self._waiting[name] = WaitingTasks(state_of(seen), due)
                    return None
            if not wants(record.kind, ""):
                return None
            files.rename(name, name, src_dir_fd=pending.fd, dst_dir_fd=work.fd)
        except FileNotFoundError:
            return None  # somebody else was faster
        except Refused:
            self.broken[State.PENDING, name] = None  # look() says what is wrong with it
            return None
        try:
            there = work.state_of(name)
        except FileNotFoundError:
            # Gone again, or work/ is no longer the folder that everybody sees.
            self._astray.append(ident)
            self._give_back_astray()
            return None
        except OSError:
            self._astray.append(ident)
            raise
        if not files.same_file(seen, there):
            # Rewritten between reading and claiming: it may not be due any more.
            self._astray.append(ident)
            self._give_back_astray()
            return None
        self._claimed.add(name)
        return task_format.as_task(record, State.ACTIVE, there, Lease(owner, now), self._clock())

    def _require_same_owner(self, pending: TaskFolder) -> None:
        """Make sure that this is still the spool of whom handlers are run as.

        Raises:
            Unavailable: another user's folder has taken its place, and was opened for it.
        """
        owner = pending.seen.st_uid
        if owner != self._owner:
            was = f"user {self._owner}'s when this worker started"
            raise Unavailable(f"{pending.path} is user {owner}'s, but was {was}: start it anew")

    def _give_back_astray(self) -> None:
        while self._astray:
            with suppress(FileNotFoundError):  # not in work/ any more
                self._desk.give_back(self._astray[0])
            del self._astray[0]


def _waiting_by_mtime(name: str, pending: int, now: float) -> WaitingTasks | None:
    """A file that is due after `now` by its modification time, which we set; None: not known.

    A wrong time costs at most a read, or REVALIDATE seconds more of waiting.
    """
    try:
        seen = os.stat(name, dir_fd=pending, follow_symlinks=False)
    except FileNotFoundError:
        return None
    due = seen.st_mtime
    # A time not ahead of ctime was not set by us, however the clock has jumped since.
    is_set = due > seen.st_ctime and now < due <= now + policy.FURTHEST
    return WaitingTasks(state_of(seen), due) if is_set else None
