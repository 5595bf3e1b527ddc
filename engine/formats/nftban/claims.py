"""Find the next due task in a spool folder and claim it with a rename to work/."""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import chain

from engine import policy, verbs
from engine.formats.nftban import task_format
from engine.formats.nftban.folder import TaskFolder
from engine.formats.nftban.hint import (
    ALWAYS_CHECKED,
    CHECK_SECONDS,
    FileState,
    NextDue,
    PendingHint,
    file_state,
    is_racy,
)
from engine.formats.nftban.staging import StagingDir
from engine.model import Lease, State, Task
from engine.store import ClaimFilter, Unavailable
from engine.system import files
from engine.system.files import Refused
from engine.text.error_text import error_text
from engine.values import NamedTuple

REVALIDATE_SECONDS = 60.0
"""Seconds for which a waiting file is not read again while its name and inode stay the same."""

STAMP_SLACK_SECONDS = 300.0
"""Maximum difference between a file's modification time and the UTC time in its id; the offset
between time zones is larger.

A larger one is no error: the file was copied, or its task was retried, and then it is read, because
only its text has the creation time for certain. In a spool that was restored without its times
each fresh process reads all due files, a third more time for 10,000 of them; the zone of this
machine would be a guess, as a container and its host may differ.
"""

MAX_CONSECUTIVE_ERRORS = 10
"""Read errors in a row after which `take` fails, as the system is at fault and not a file."""

SAMPLE_SIZE = 16
"""Files of which the modification time is read before that of all is."""


class WaitingTasks(NamedTuple):
    """A pending file that is not due yet."""

    state: FileState
    """The file when its due time was read."""
    due: float
    created: float


class PendingLine:
    """Candidates in one queue for each kind; len() is the number left.

    A kind may be unwanted for a moment (one of it is running, no token, no handler). Its candidates
    keep their places, and skipping many costs the same as skipping one.
    """

    def __init__(self, candidates: Iterable[tuple[str, int]]) -> None:
        """`candidates` are names and inodes, in order."""
        self._kinds: dict[str, deque[tuple[int, tuple[str, int]]]] = {}
        for numbered in enumerate(candidates):
            self._kinds.setdefault(kind_of(numbered[1][0]), deque()).append(numbered)

    def __len__(self) -> int:
        return sum(map(len, self._kinds.values()))

    def next(self, wants: ClaimFilter) -> tuple[str, int] | None:
        """Remove and return the first candidate of a wanted kind; None if missing."""
        first: deque[tuple[int, tuple[str, int]]] | None = None
        for kind, queue in self._kinds.items():
            if queue and (first is None or queue[0] < first[0]) and wants(kind, ""):
                first = queue
        return None if first is None else first.popleft()[1]


def kind_of(name: str) -> str:
    """Return the kind in a file name `<stamp>-<kind>-<token>.task`; the file's content decides."""
    return name.partition("-")[2].rpartition("-")[0]


class TaskClaims:
    """Moves due tasks from pending/ to work/; remembers which tasks wait and until when."""

    def __init__(
        self,
        folders: Mapping[State, TaskFolder],
        staging: StagingDir,
        hint: NextDue,
        clock: Callable[[], float],
        *,
        due_in_mtime: bool,
    ) -> None:
        """`due_in_mtime`: modification times are due times, so a waiting file is not read."""
        self._folders, self._staging = folders, staging
        self._hint, self._clock = hint, clock
        self._due_in_mtime = due_in_mtime
        self._owner = folders[State.PENDING].last_stat.st_uid
        self._waiting: dict[str, WaitingTasks] = {}
        self._claimed: set[str] = set()
        self._created: dict[str, tuple[int, float]] = {}
        """Inode and creation time of pending files whose id does not contain a certain time."""
        self._failed_claims: list[str] = []
        """Ids in work/ whose claim failed after the rename."""
        self.broken_files: dict[tuple[State, str], FileState | None] = {}
        """Files that a take found and that are not valid tasks, in order: by state and file name,
        the file when it was read; None: not read yet. Until the quarantine has checked one again it
        is not read again, as long as it stays the same."""
        self.skipped_files: dict[str, str] = {}
        """File names of pending tasks that could not be claimed, and the system's error."""
        self._validated = self._checked = 0.0
        self._listed = 0
        """Number of task files in pending/ when it was last listed."""
        self._idle: tuple[FileState, FileState] | None = None
        """The folders pending/ and work/ before they were listed, if then nothing was due."""
        self.settles: list[float] = []
        """When each task that the last take passed over as perhaps being written is complete."""
        self.due: float | None = None
        """When the next waiting task is due, as of the last take."""
        self.hint: PendingHint | None = None
        """The hint that the last take found valid; None: it listed the folder."""

    def take(self, now: float, owner: str, limit: int, wants: ClaimFilter) -> Iterator[Task]:
        """Yield due tasks, oldest first; each is claimed by a rename when the caller asks for it.

        Afterwards `due` is the time at which the next waiting task is due.

        Raises:
            Unavailable: the folders cannot be read, or none of the tasks that may be due could be.
        """
        pending = self._folders[State.PENDING]
        pending.reopen_if_replaced()
        self._folders[State.ACTIVE].reopen_if_replaced()
        # The hint helps a fresh process; a running worker remembers more.
        is_first = not self._validated
        self.hint = self._hint.read(pending.fd, now) if is_first else None
        if self.hint is not None:
            self.due = self.hint.due
            return
        self.settles = []
        work = self._folders[State.ACTIVE]
        states = file_state(os.fstat(pending.fd)), file_state(os.fstat(work.fd))
        is_idle = self._idle == states
        is_changed = self._forget_rewritten(pending.fd, now, is_idle)
        if not is_changed and is_idle and self._is_still_idle(now):
            return
        self._idle = None
        try:
            self._return_failed_claims()
            line = PendingLine(self._candidates(pending, now))
        except OSError as error:
            raise Unavailable(f"{pending.path}: {error_text(error)}") from error
        claimed = passed_over = failures = 0
        failure: Unavailable | None = None
        while claimed < limit:
            candidate = line.next(wants)
            if candidate is None:
                break
            try:
                task = self._claim(candidate[0], now, owner, wants)
            except OSError as error:
                # One unreadable block must not stop a queue; a lack of file descriptors must.
                failures += 1
                self.skipped_files[candidate[0]] = why = error_text(error)
                failure = Unavailable(f"{pending.path}/{candidate[0]}: {why}")
                if failures >= MAX_CONSECUTIVE_ERRORS:
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
        coming = chain(self.settles, (waiting.due for waiting in self._waiting.values()))
        self.due = min(coming, default=None)
        nothing_is_due = not claimed + passed_over + len(line)
        if nothing_is_due and not is_racy(states[0], now):
            self._idle = states
        # A name that is also in work/ was passed over unread: it may be due.
        is_all_read = len(self._waiting) == self._listed
        if is_first and self.due is not None and nothing_is_due and is_all_read:
            waiting_states = [waiting.state for waiting in self._waiting.values()]
            created = min(waiting.created for waiting in self._waiting.values())
            hint = PendingHint(self.due, len(waiting_states), created, states[0])
            self._hint.write(waiting_states, hint, now)

    def _forget_rewritten(self, pending: int, now: float, is_idle: bool) -> bool:
        """Forget the waiting files that were rewritten in place; True if there are some.

        One stat of each: always for few of an idle queue, else every `CHECK_SECONDS`, and of very
        many less often.
        """
        many = len(self._waiting)
        pause = 0.0 if is_idle and many <= ALWAYS_CHECKED else max(CHECK_SECONDS, many / 2000)
        if 0 <= now - self._checked < pause:
            return False
        self._checked = now
        unchanged = {n: w for n, w in self._waiting.items() if _state_of(n, pending) == w.state}
        is_changed, self._waiting = len(unchanged) < many, unchanged
        return is_changed

    def _is_still_idle(self, now: float) -> bool:
        """True if none of the tasks found waiting has come due, and they need no other look."""
        is_due = self.due is not None and self.due <= now
        return not is_due and 0 <= now - self._validated < REVALIDATE_SECONDS

    def _candidates(self, pending: TaskFolder, now: float) -> list[tuple[str, int]]:
        """Return names and inodes of pending files that may be due, oldest first."""
        if now - self._validated >= REVALIDATE_SECONDS:
            self._waiting, self._validated, self._checked = {}, now, now
        with os.scandir(pending.fd) as entries:
            tasks = (entry for entry in entries if entry.name.endswith(task_format.SUFFIX))
            listed = sorted(((one.name, one.inode()) for one in tasks), key=_claim_order)
        self._listed = len(listed)
        known, waiting = self._waiting, {}
        # Skip an id that is also in work/: moving it would overwrite the other file.
        active_names = set(os.listdir(self._folders[State.ACTIVE].fd))
        self._claimed &= active_names
        for name in active_names - self._claimed:
            if name.endswith(task_format.SUFFIX):
                # Not our claim, and perhaps not a task file.
                self.broken_files[State.ACTIVE, name] = None
        candidates = []
        for candidate in listed:
            name, inode = candidate
            before = known.get(name)
            if before is not None and before.state[0] == inode and before.due > now:
                waiting[name] = before
            elif name not in active_names and not self._is_known_broken(name, pending.fd):
                candidates.append(candidate)
        if self._due_in_mtime:
            candidates = _drop_waiting(candidates, waiting, pending.fd, now)
        self._waiting = waiting
        # In a spool without the NFTBan program all names have UTC times, so they sort by creation.
        return candidates if self._due_in_mtime else self._oldest_first(candidates, now)

    def _is_known_broken(self, name: str, pending: int) -> bool:
        """True if a file that waits for its quarantine has not changed since it was read."""
        state = self.broken_files.get((State.PENDING, name))
        return state is not None and state == _state_of(name, pending)

    def _oldest_first(self, candidates: list[tuple[str, int]], now: float) -> list[tuple[str, int]]:
        """Order candidates by creation, and as in `_claim_order` within one second.

        The NFTBan program writes local time into its names, so they do not sort with ours. A file
        whose modification time agrees with its name was written at that time. Only the others are
        read for TASK_CREATED_EPOCH, once for each inode; files that are not due yet are removed.
        """
        known, self._created = self._created, {}
        order: dict[str, float] = {}
        stamps: dict[str, int | None] = {}  # many names have the same second
        for name, inode in candidates:
            moment = name[:16]
            if moment not in stamps:
                stamps[moment] = task_format.time_in_id(moment)
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
        dated_candidates = (candidate for candidate in candidates if candidate[0] in order)
        return sorted(dated_candidates, key=lambda candidate: order[candidate[0]])

    def _is_written_at(self, name: str, stamp: float) -> bool:
        pending = self._folders[State.PENDING]
        try:
            file_stat = os.stat(name, dir_fd=pending.fd, follow_symlinks=False)
        except OSError:
            return False  # moved or unreadable: the claim reports why
        return abs(file_stat.st_mtime - stamp) < STAMP_SLACK_SECONDS

    def _created_or_waiting(self, name: str, stamp: int | None, now: float) -> float | None:
        """Return TASK_CREATED_EPOCH of a pending file; None, and remember it, if it is not due yet.

        A file in another form is ordered by its name; one without a time in its name is last.
        """
        record = None
        try:
            data, file_stat = self._folders[State.PENDING].read(name)
            record = task_format.parse_canonical(data)
        except (OSError, Refused):
            pass  # the claim reports why
        if record is None:
            return float("inf") if stamp is None else stamp
        is_its = name == record.id + task_format.SUFFIX
        return None if is_its and self._waits(name, record, file_stat, now) else record.created

    def _waits(
        self, name: str, record: task_format.Record, file_stat: os.stat_result, now: float
    ) -> bool:
        """True for a file that is not due yet, which is remembered."""
        if record.due <= now:
            return False
        due = task_format.trusted_due(record, file_stat, self._clock())
        if due > now:
            self._waiting[name] = WaitingTasks(file_state(file_stat), due, record.created)
        return due > now

    def oldest_created(self, listed: Iterable[tuple[str, int]]) -> float | None:
        """Return when the oldest of these pending files, by name and inode, was created; None
        without files.

        Only a file is read whose id does not contain a certain time, once for each inode.
        """
        known, self._created = self._created, {}
        created = (self._creation_time(name, inode, known) for name, inode in listed)
        return min((moment for moment in created if moment is not None), default=None)

    def _creation_time(
        self, name: str, inode: int, known: Mapping[str, tuple[int, float]]
    ) -> float | None:
        """Return when a pending file was created; None if it is gone or no task."""
        waiting = self._waiting.get(name)
        if waiting is not None and waiting.state[0] == inode:
            return waiting.created
        stamp = task_format.time_in_id(name)
        if stamp is not None and (self._due_in_mtime or self._is_written_at(name, stamp)):
            return stamp
        before = known.get(name)
        if before is None or before[0] != inode:
            try:
                data, _ = self._folders[State.PENDING].read(name)
                before = inode, float(task_format.parse_strict(data).created)
            except (OSError, Refused):
                return None
        self._created[name] = before
        return before[1]

    def _claim(self, name: str, now: float, owner: str, wants: ClaimFilter) -> Task | None:
        pending, work = self._folders[State.PENDING], self._folders[State.ACTIVE]
        try:
            ident = name.removesuffix(task_format.SUFFIX)  # parsing checks that it is an id
            self._require_same_owner(pending)
            data, file_stat = pending.read(name)
            record = task_format.parse_task(data, ident)
            if task_format.is_being_written(data, file_stat, now):
                # Its last field may still be written, and may change its due time.
                self.settles.append(file_stat.st_mtime + task_format.SETTLING_SECONDS)
                return None
            if self._waits(name, record, file_stat, now):
                return None
            if record.kind != kind_of(name) and not wants(record.kind, ""):
                return None
            files.rename(name, name, src_dir_fd=pending.fd, dst_dir_fd=work.fd)
        except FileNotFoundError:
            return None  # another process was faster
        except Refused:
            # A scan reports what is wrong with it.
            self.broken_files[State.PENDING, name] = _state_of(name, pending.fd)
            return None
        claimed_stat = None
        try:
            claimed_stat = work.stat_by_path(name)
        except FileNotFoundError:
            pass  # gone again, or work/ was replaced by another folder
        except OSError:
            self._failed_claims.append(ident)
            raise
        # One rewritten between reading and claiming may not be due any more.
        if claimed_stat is None or not files.is_same_file(file_stat, claimed_stat):
            self._failed_claims.append(ident)
            self._return_failed_claims()
            return None
        self._claimed.add(name)
        return task_format.task_from_record(
            record, State.ACTIVE, claimed_stat, Lease(owner, now), self._clock()
        )

    def _require_same_owner(self, pending: TaskFolder) -> None:
        """Require that the spool still belongs to the user that runs the handlers.

        Raises:
            Unavailable: a folder of another user has replaced pending/.
        """
        owner = pending.last_stat.st_uid
        if owner != self._owner:
            raise Unavailable(
                f"{pending.path} belongs to user {owner}, but belonged to user {self._owner} when "
                "this worker started: restart the worker"
            )

    def _return_failed_claims(self) -> None:
        while self._failed_claims:
            with suppress(FileNotFoundError):  # not in work/ any more
                self._staging.return_to_pending(self._failed_claims[0])
            del self._failed_claims[0]


_TOKEN_IN_NAME = slice(-verbs.TOKEN_LENGTH - len(task_format.SUFFIX), None)


def _claim_order(candidate: tuple[str, int]) -> tuple[str, str, str]:
    """Order by the stamp in the id, with one stamp by the token, of any kind."""
    name = candidate[0]
    return name.partition("-")[0], name[_TOKEN_IN_NAME], name


def _state_of(name: str, folder: int) -> FileState | None:
    try:
        return file_state(os.stat(name, dir_fd=folder, follow_symlinks=False))
    except OSError:
        return None


def _drop_waiting(
    candidates: list[tuple[str, int]], waiting: dict[str, WaitingTasks], pending: int, now: float
) -> list[tuple[str, int]]:
    """Return the candidates that may be due by their modification time; add the others to
    `waiting`.

    If none of a sample waits, most are due, and a claim finds out without this stat.
    """
    sample = candidates[:: len(candidates) // SAMPLE_SIZE + 1]
    if not any(_waiting_by_mtime(name, pending, now) for name, _ in sample):
        return candidates
    due = []
    for candidate in candidates:
        if not_due := _waiting_by_mtime(candidate[0], pending, now):
            waiting[candidate[0]] = not_due
        else:
            due.append(candidate)
    return due


def _waiting_by_mtime(name: str, pending: int, now: float) -> WaitingTasks | None:
    """Return a file that is not due by its modification time, set by us; None if that is unknown.

    A wrong time costs one read, or `REVALIDATE_SECONDS` more seconds of waiting.
    """
    try:
        file_stat = os.stat(name, dir_fd=pending, follow_symlinks=False)
    except FileNotFoundError:
        return None
    due = file_stat.st_mtime
    # We only set times after ctime, even if the clock has changed since.
    is_set = due > file_stat.st_ctime and now < due <= now + policy.MAX_WAIT_SECONDS
    created = task_format.time_in_id(name)
    if created is None or not is_set:
        return None
    return WaitingTasks(file_state(file_stat), due, created)
