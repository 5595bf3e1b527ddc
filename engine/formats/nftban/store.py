"""The store of an NFTBan spool: one folder for each state; a rename moves a task, and only one
process wins."""

from __future__ import annotations

import errno
import os
import shlex
import stat
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import chain, islice
from typing import TYPE_CHECKING

from engine import policy
from engine.formats.base.folder import outcome_of
from engine.formats.nftban import staging, task_format
from engine.formats.nftban.claims import TaskClaims
from engine.formats.nftban.folder import TaskFolder
from engine.formats.nftban.hint import NextDue, file_state
from engine.formats.nftban.recovery import DRAFT_MAX_AGE_SECONDS, StagingRecovery, broken_file
from engine.model import (
    ChangeSource,
    Edge,
    Edges,
    Lease,
    Missing,
    Move,
    Outcome,
    Part,
    Problem,
    State,
    Task,
)
from engine.override import override
from engine.store import (
    ClaimFilter,
    Full,
    Gone,
    SeenTask,
    Store,
    StoreSample,
    Unavailable,
    Unsupported,
    accept_all,
    refuse_all,
    require_edge,
)
from engine.system import files
from engine.system.files import Refused
from engine.text.decode import utf8_name
from engine.text.error_text import error_text
from engine.text.safe import safe_line
from engine.values import NamedTuple

if TYPE_CHECKING:
    from engine.formats.nftban.quarantine import Quarantine, QuarantinedFile
    from engine.system.sorted_names import SortedNames

MAX_PENDING = 10_000
"""Contract: NFTBAN_QUEUE_MAX_PENDING; above it an add is refused with "Queue full"."""

COMMIT_GROUP_SIZE = 100
"""Changes in one group commit; each keeps at most two descriptors open."""

PAYLOAD_CHECK_SIZE = 1000
"""Payloads checked at once for other tasks that name them; each check reads all task files."""

MAX_NAMES_IN_MEMORY = 10_000
"""File names of one state that are sorted in memory; more are sorted in a temporary file."""

SAMPLE_SIZE = 200
"""Tasks of each folder that a full scan yields first, before it knows the order."""

FILES_READ_TOGETHER = 50
"""Files that a full scan reads before it yields the first: half a second on a slow disk."""

STATES: Mapping[State, str] = {
    State.PENDING: "pending",
    State.ACTIVE: "work",
    State.HELD: "held",
    State.DEAD: "dlq",
    State.TRASH: "trash",
}

CONTRACT_STATES = (State.PENDING, State.ACTIVE, State.DEAD)
"""The states whose folders the contract names; the others are made on demand."""

_outcome = frozenset({"attempts", "due", "error"})


def describe_bad_value(name: str, value: object, now: float) -> str:
    """Return why a due time or a description is not allowed; "" if it is."""
    if name == "due" and isinstance(value, float) and value - now > policy.MAX_WAIT_SECONDS:
        days = policy.MAX_WAIT_SECONDS / policy.DAY_SECONDS
        return f"due at most {days:g} days from now: no task waits longer"
    if name == "description" and isinstance(value, str):
        return task_format.describe_excess(name, value)
    return ""


_edited = Edge(frozenset({"due", "description"}), value_problem=describe_bad_value)

EDGES: Edges = {
    (None, State.PENDING): Edge(),
    (State.ACTIVE, None): Edge(undoable=False),
    (State.ACTIVE, State.PENDING): Edge(_outcome),
    (State.ACTIVE, State.DEAD): Edge(_outcome),
    (State.ACTIVE, State.HELD): Edge(_outcome),
    (State.PENDING, State.PENDING): _edited,
    (State.PENDING, State.DEAD): Edge(),
    (State.DEAD, State.HELD): Edge(),
    (State.HELD, State.DEAD): Edge(),
    (State.HELD, State.HELD): _edited,
    (State.PENDING, State.HELD): Edge(),
    (State.HELD, State.PENDING): Edge(frozenset({"due"})),
    (State.DEAD, State.PENDING): Edge(_outcome),
    (State.DEAD, State.TRASH): Edge(),
    (State.PENDING, State.TRASH): Edge(),
    (State.HELD, State.TRASH): Edge(),
    (State.TRASH, State.DEAD): Edge(),
    (State.TRASH, State.PENDING): Edge(),
    (State.TRASH, State.HELD): Edge(),
    (State.DEAD, None): Edge(undoable=False),
    (State.TRASH, None): Edge(undoable=False),
}


class SpoolFolders(NamedTuple):
    """The folders of a spool, and its limits."""

    pending: str
    work: str
    dlq: str
    mail_spool: str = ""
    """The folder that must contain the payload of a new task, and from which payloads are removed
    with the last task that names them; "": any path is allowed, no file is removed."""
    max_pending: int = MAX_PENDING
    durable: bool = True
    """True if a change waits for the disk (fsync)."""
    root: str = ""
    """The data folder; below it no symbolic link leads to the mail spool."""
    delivered: Mapping[str, Callable[[bytes], str]] = {}
    """Kinds of tasks whose payload names a destination, and how a scan finds it in the beginning of
    the payload."""

    @property
    def staging_dir(self) -> str:
        """The staging directory, with held and trashed tasks; in the parent of pending/."""
        return f"{os.path.dirname(self.pending.rstrip('/'))}/{staging.STAGING_NAME}"

    @property
    def data_dir(self) -> str:
        """The folder of the data of tasks; in the parent of pending/."""
        return f"{os.path.dirname(self.pending.rstrip('/'))}/{DATA_NAME}"

    @property
    def output_dir(self) -> str:
        """The folder of what handlers printed; in the parent of pending/."""
        return f"{os.path.dirname(self.pending.rstrip('/'))}/{OUTPUT_NAME}"

    def payload_of(self, task: Task) -> tuple[str, str]:
        """The path of a task's payload, and the folder that must contain it: `data_dir` for its own
        data, also if the spool was moved since the add, or is named by another path; else the mail
        spool."""
        if task.payload.endswith(f"/{DATA_NAME}/{task.id}"):
            return f"{self.data_dir}/{task.id}", self.data_dir
        return task.payload, self.mail_spool


DATA_NAME, OUTPUT_NAME = "data", "output"
"""Names of the folders of the data of tasks (`task_data`) and of what handlers printed."""

EXCLUSIVE_MARKER = "exclusive"
"""Marker file in the staging directory: no other program uses this spool.

Then the modification time of a pending file is its due time, so waiting files are not read. The
NFTBan program computes the age of tasks from these times.
"""


def make_spool(
    spool: SpoolFolders, *, exclusive: bool = False, owner: tuple[int, int] | None = None
) -> list[str]:
    """Make the missing folders of a spool, for `owner` (uid, gid) or the owner of each parent;
    return the paths that were made.

    `exclusive`: mark it as used by no other program, see `EXCLUSIVE_MARKER`.

    Raises:
        OSError: one could not be made.
    """
    state_folders = (spool.pending, spool.work, spool.dlq)
    made = [path for path in state_folders if not os.path.isdir(path)]
    for path in made:
        files.make_folders(path, owner=owner)
    marker = f"{spool.staging_dir}/{EXCLUSIVE_MARKER}"
    if exclusive or len(made) == len(state_folders):
        files.make_folders(spool.staging_dir)
    if exclusive and not os.path.exists(marker):
        files.replace_file(marker, b"", files.FILE_MODE)
        made.append(marker)
    return made


class NftbanStore(Store):
    """Tasks as files in pending/, work/ and dlq/, and in held/ and trash/ of the staging
    directory."""

    states = STATES

    def __init__(
        self,
        spool: SpoolFolders,
        clock: Callable[[], float] = time.time,
        patience: float = files.FLOCK_TIMEOUT_SECONDS,
    ) -> None:
        """`patience` is the time in seconds to wait for a stopped process that is placing a
        file."""
        self._spool = spool
        self._clock = clock
        self._trash_sizes: dict[str, int] = {}
        staging_dir = spool.staging_dir
        _refuse_nested(spool)
        pending = TaskFolder(spool.pending, "pending")
        self._folders = {
            State.PENDING: pending,
            State.ACTIVE: TaskFolder(spool.work, "work", pending),
            State.HELD: TaskFolder(f"{staging_dir}/held", "held", pending, make=True),
            State.DEAD: TaskFolder(spool.dlq, "dlq", pending),
            State.TRASH: TaskFolder(f"{staging_dir}/trash", "trash", pending, make=True),
        }
        self._by_word = {word: state for state, word in STATES.items()}
        self._open_folders()
        self.opened_stat = pending.last_stat
        """The stat of pending/ when the store was opened; shows the owner of the spool."""
        due_in_mtime = os.path.exists(f"{staging_dir}/{EXCLUSIVE_MARKER}")
        self._staging = staging.StagingDir(
            staging_dir,
            self._folders,
            durable=spool.durable,
            due_in_mtime=due_in_mtime,
            patience=patience,
        )
        self._recovery = StagingRecovery(self._staging, self._folders)
        self._opened_corrupt: Quarantine | None = None
        self._recovered = float("-inf")
        hint = NextDue(f"{staging_dir}/next-due")
        folders = self._folders
        self._claims = TaskClaims(folders, self._staging, hint, clock, due_in_mtime=due_in_mtime)
        self.edges = refuse_all(EDGES, self._why_read_only())
        held, trash = self._folders[State.HELD].path, self._folders[State.TRASH].path
        self.changes = ChangeSource(
            (spool.pending, spool.work, spool.dlq, held, trash),
            revisions=lambda: _list_revisions(self._folders),
        )
        self._room = 0
        self._reported: set[tuple[str, str]] = set()

    def _open_folders(self) -> None:
        staging_dir = self._spool.staging_dir
        try:
            has_staging = files.is_folder(staging_dir)
            home = staging_dir if has_staging else os.path.dirname(staging_dir) or "."
            device = os.stat(home).st_dev
            for state, folder in self._folders.items():
                if state in CONTRACT_STATES:
                    folder_device = folder.last_stat.st_dev
                else:
                    folder_device = os.stat(folder.path).st_dev if folder.exists() else device
                if folder_device != device:
                    # There is no rename between file systems, and a copy is not atomic.
                    raise Unavailable(
                        f"{folder.path} is on another file system than {home}: "
                        "expected one file system for pending, work, dlq and .spooldeck"
                    )
        except OSError as error:
            self._close_folders()
            raise Unavailable(f"{staging_dir}: {error_text(error)}") from error
        except Unavailable:
            self._close_folders()
            raise

    def _why_read_only(self) -> str:
        """Return why we cannot change this spool; "" if we can."""
        needed = [folder.path for folder in self._folders.values() if folder.exists()]
        staging_dir = self._spool.staging_dir
        needed.append(staging_dir if files.is_folder(staging_dir) else os.path.dirname(staging_dir))
        for path in needed:
            if not os.access(path, os.W_OK | os.X_OK):
                return f"{path} is not writable for us{_sudo_hint(path)}"
        for state in CONTRACT_STATES:
            folder = self._folders[state]
            if folder.last_stat.st_mode & stat.S_IWOTH:
                fix = f"chmod o-w {shlex.quote(folder.path)}"
                return f"{folder.path} is writable by all users: use {fix}"
            if not folder.trusts_our_files():
                # All readers would refuse files that we create there.
                return f"{folder.path} belongs to another user{_sudo_hint(folder.path)}"
        return ""

    @override
    def close(self) -> None:
        self._staging.close()
        self._close_folders()

    def _close_folders(self) -> None:
        for folder in self._folders.values():
            folder.close()

    # ---- reading

    @override
    def scan(self, touched: Collection[str] | None = None) -> Iterator[Task | Missing | Problem]:
        for folder in self._folders.values():
            folder.reopen_if_replaced()
        each = (
            self._scan_files(_sorted_names(self._folders[state], state), state)
            if (state := self._by_word.get(name)) is not None
            else self._scan_name(name)
            for name in touched or ()
        )
        scanned = self._scan_all() if touched is None else chain.from_iterable(each)
        spool = self._spool
        if spool.delivered:
            from engine.formats.nftban import parts

            scanned = parts.with_destinations(
                scanned, spool.delivered, spool.payload_of, spool.root
            )
        yield from scanned

    def _scan_all(self) -> Iterator[Task | Missing | Problem]:
        from engine.system.sorted_names import SortedNames

        for state, folder in self._folders.items():
            names = islice(folder.iter_names(), SAMPLE_SIZE)
            yield from self._scan_files(map(utf8_name, names), state)
        with SortedNames() as listed:
            added = (listed.add(state, each.iter_names()) for state, each in self._folders.items())
            self.expected_tasks = sum(added)
            for state in STATES:
                yield from self._scan_files(listed.names_in(state), state)
            yield from _find_duplicates(listed)
        yield from self._scan_staging()

    @override
    def sample(self, number: int) -> StoreSample:
        """Count the task files, and read some; lists each folder once."""
        from engine.formats.nftban.full_scan import first_names

        for folder in self._folders.values():
            folder.reopen_if_replaced()
        tasks = {state: [entry.name for entry in self._task_files(state)] for state in STATES}
        picked: list[tuple[State, Iterable[str]]] = [
            (state, islice(folder.iter_names(), SAMPLE_SIZE))
            for state, folder in self._folders.items()
        ]
        remaining = number
        for state, names in tasks.items():
            picked.append((state, first_names(names, remaining)))
            remaining -= min(remaining, len(names))
        counts = {state: len(names) for state, names in tasks.items()}
        read = (self._scan_files(map(utf8_name, names), state) for state, names in picked)
        return StoreSample(counts, {}, chain.from_iterable(read))

    def _scan_files(self, names: Iterable[str], state: State) -> Iterator[Task | Problem]:
        """Read many files of one state, some at a time."""
        from engine.formats.nftban.full_scan import read_plain_tasks

        waiting, folder = iter(names), self._folders[state]
        while some := list(islice(waiting, FILES_READ_TOGETHER)):
            for task_or_name in read_plain_tasks(folder, some, state, self._clock()):
                if isinstance(task_or_name, str):
                    yield from self._scan_file(task_or_name, state)
                else:
                    yield task_or_name

    def _scan_staging(self) -> Iterator[Problem]:
        yield from self.find_obstacles()
        if not task_format.is_plain_path(self._spool.mail_spool):
            yield Problem(
                "mail spool",
                f"{self._spool.mail_spool}: no task can name files there, so no mail is sent: "
                "expected letters, digits, space, _ . - : /",
            )
        yield from self._recovery.problems()
        if self._has_quarantine():
            yield from self._quarantine.problems()

    def find_obstacles(self) -> Iterator[Problem]:
        """Yield a problem for each file or link in the place of a folder made on demand."""
        its, held, trash = self._staging, self._folders[State.HELD], self._folders[State.TRASH]
        its.corrupt.reopen_if_replaced()
        for folder in (its.folder, held, trash, its.duplicates, its.corrupt):
            if problem := folder.problem():
                yield problem

    def _scan_file(self, name: str, state: State) -> Iterator[Task | Problem]:
        try:
            yield self._read(name, state)
        except FileNotFoundError:
            return  # moved since its folder was listed; the next scan finds it
        except Refused as refusal:
            yield broken_file(self._folders[state], state, name, refusal)
        except OSError as error:
            what = f"cannot be read now: {error_text(error)}"
            yield Problem(f"{STATES[state]}/{name}", what, state)

    def _scan_name(self, name: str) -> Iterator[Task | Missing | Problem]:
        ident = name.removesuffix(task_format.SUFFIX)
        if task_format.id_in_name(ident + task_format.SUFFIX) is None:
            strangers = self._find_foreign(name)
            yield from strangers
            if not strangers:
                yield Missing(name)
            return
        scanned: list[Task | Problem] = []
        for state in STATES:
            if self._folders[state].exists():
                scanned += self._scan_file(ident + task_format.SUFFIX, state)
        yield from scanned
        tasks = [task for task in scanned if isinstance(task, Task)]
        if len(tasks) > 1:
            words = " and ".join(STATES[task.state] for task in tasks)
            where = f"{STATES[tasks[-1].state]}/{ident}{task_format.SUFFIX}"
            yield Problem(where, f"is in {words} at the same time")
        elif not scanned and not any(
            moving.id == ident for moving in self._recovery.withdrawn_files()
        ):
            # A staged file will be in a folder soon, and its change source reports it there.
            strangers = self._find_foreign(name) if name == ident else []
            yield from strangers
            if not strangers:
                yield Missing(ident)

    def _find_foreign(self, name: str) -> list[Problem]:
        """Return a problem for each state with a file of this name, which is no task file's
        name."""
        if not name or set(name) & {"/", "\0"} or name in (".", "..") or files.is_disks_own(name):
            return []
        return [
            broken_file(folder, state, name, Refused(task_format.NOT_A_TASK_NAME))
            for state, folder in self._folders.items()
            if folder.has_name(name)
        ]

    def _read(self, name: str, state: State) -> Task:
        """Read the task in one file.

        Raises:
            FileNotFoundError: it was moved.
            Refused: it is not a task file; with the reason.
            OSError: it cannot be read now.
        """
        ident = task_format.id_in_name(name)
        if ident is None:
            raise Refused(task_format.NOT_A_TASK_NAME)
        data, file_stat = self._folders[state].read(name)
        record = task_format.parse_task(data, ident)
        # Only a claim renames a file into work/, and a rename sets ctime.
        lease = Lease("", file_stat.st_ctime) if state is State.ACTIVE else None
        task = task_format.task_from_record(record, state, file_stat, lease, self._clock())
        if state is State.TRASH:
            since = {task_format.TRASHED_SINCE: repr(file_stat.st_ctime)}
            task = task._replace(extra={**task.extra, **since})
        return task

    @override
    def verify(self, known_tasks: Iterable[SeenTask]) -> Iterator[Task | Problem]:
        """Yield those tasks whose file is unchanged; each stays open until it is swapped.

        No file is locked: the caller may take long, and other processes must be able to claim them
        in between. The swap locks each one and checks it again. Missing ones may be in the staging
        directory; moves of dead processes are recovered.
        """
        self._staging.close_opened()
        for folder in self._folders.values():
            folder.reopen_if_replaced()
        now = self._clock()
        missing_ids: set[str] = set()
        for ident, state, rev in known_tasks:
            try:
                record, file_stat = self._staging.open_for_change(ident, state, rev)
            except Gone:
                missing_ids.add(ident)
            except Refused:
                continue
            except OSError as error:
                yield Problem(ident, f"cannot be read now: {error_text(error)}", state)
            else:
                lease = Lease("", file_stat.st_ctime) if state is State.ACTIVE else None
                yield task_format.task_from_record(
                    record, state, file_stat, lease=lease, now=now, rev=rev
                )
        if missing_ids and not self._why_read_only():
            with suppress(OSError, Unavailable):  # stays in the staging directory; a scan shows it
                self._recovery.recover(now, missing_ids)

    @override
    def parts(self, task: Task) -> Iterator[Part]:
        from engine.formats.nftban import parts

        _, file_stat = self._read_seen(task)
        path = f"{self._folders[task.state].path}/{task.id}{task_format.SUFFIX}"
        payload = self._spool.payload_of(task)
        yield from parts.list_parts(path, file_stat, *payload, self._spool.root)

    @override
    def size(self, task: Task) -> int:
        """Bytes of its file, and of its payload if that would be removed with it."""
        try:
            file_size = self._folders[task.state].stat_by_path(task.id + task_format.SUFFIX).st_size
        except (FileNotFoundError, KeyError):
            raise Gone(task.id) from None
        except OSError as error:
            raise Unavailable(f"{task.id}: {error_text(error)}") from error
        payload, root = self._spool.payload_of(task)
        if not payload or not root or not task_format.is_plain_path(payload):
            return file_size
        from engine.formats.nftban import parts

        try:
            return file_size + parts.payload_size(payload, root, self._spool.root)
        except (OSError, Refused):
            return file_size

    @override
    def read(self, task: Task, part: str = "") -> bytes:
        opened = None if part else self._staging.opened_bytes(task.id, task.state, task.rev)
        if opened is not None:
            return opened
        data, _ = self._read_seen(task)
        from engine.formats.nftban import parts

        if part in ("", parts.TASK):
            return data
        return parts.read_part(part, *self._spool.payload_of(task), self._spool.root)

    @override
    def restore_image(self, task: Task, image: bytes, state: State) -> Task:
        try:
            return task_format.task_from_image(task_format.parse_task(image, task.id), task, state)
        except Refused as refusal:
            what = f"its saved copy is not a task file: {refusal}"
            raise Unsupported(f"{task.id}: {what}") from refusal

    @override
    def preview_problem(self, problem: Problem) -> bytes:
        from engine.formats.nftban import parts

        where, _, name = problem.where.rpartition("/")
        its = self._staging
        known = (*self._folders.values(), its.folder, its.duplicates, its.corrupt)
        folders = {folder.word: folder.path for folder in known}
        if where not in folders:
            raise Unsupported(f"{safe_line(problem.where)} is not a file of this spool")
        return parts.preview_file(folders[where], name)

    def _read_seen(self, task: Task) -> tuple[bytes, os.stat_result]:
        folder = self._folders.get(task.state)
        if folder is None or not folder.exists():
            raise Gone(task.id)
        try:
            data, file_stat = folder.read(task.id + task_format.SUFFIX)
        except FileNotFoundError:
            raise Gone(task.id) from None
        except Refused as refusal:
            raise Gone(f"{task.id}: {refusal}") from refusal
        except OSError as error:
            raise Unavailable(f"{task.id}: {error_text(error)}") from error
        if files.file_revision(file_stat) != task.rev:
            raise Gone(task.id)
        return data, file_stat

    # ---- taking

    @override
    def take(
        self, now: float, owner: str, limit: int, wants: ClaimFilter = accept_all
    ) -> Iterator[Task]:
        """Claim by a rename each, in the order of file names.

        Afterwards `changes.next_due` is the time at which the next waiting task is due.
        """
        yield from self._claims.take(now, owner, limit, wants)
        self.changes = self.changes._replace(next_due=self._claims.due)

    # ---- changing

    @override
    def swap(self, old: Task | None, new: Task | None) -> str:
        # The two changes of every task, its add and the removal after its run, without the lists
        # of a group: these took a third of the time.
        if old is not None and (new is not None or old.state is not State.ACTIVE):
            return super().swap(old, new)
        require_edge(self.edges, old, new, self._clock())
        try:
            if old is not None:
                answer = self._ack(old)
            elif new is not None:
                self._make_room(0)
                (answer,) = self._staging.add([self._new_record(new)], self._clock())
        except Refused as refusal:
            raise Unsupported(str(refusal)) from refusal
        if isinstance(answer, Exception):
            raise answer
        if old is not None and old.payload:
            self.remove_unnamed(self._remove_payloads([old]))
        return answer

    @override
    def swap_all(self, moves: Iterable[Move]) -> Iterator[Outcome]:
        waiting = iter(moves)
        unsent: list[str] = []
        try:
            while group := list(islice(waiting, COMMIT_GROUP_SIZE)):
                outcomes = self._change_group(group)
                removed = [o.move.old for o in outcomes if o.error is None and o.move.new is None]
                unsent += self._remove_payloads([old for old in removed if old and old.payload])
                if len(unsent) >= PAYLOAD_CHECK_SIZE:
                    self.remove_unnamed(unsent)
                    unsent = []
                yield from outcomes
        finally:
            self.remove_unnamed(unsent)
            self._staging.close_opened()

    def _change_group(self, moves: list[Move]) -> list[Outcome]:
        answers: dict[int, str | Exception] = {}
        adds: list[tuple[int, task_format.Record]] = []
        changes: list[tuple[int, staging.StagedChange]] = []
        for at, move in enumerate(moves):
            old, new, image = move[:3]
            try:
                require_edge(self.edges, old, new, self._clock(), whole=bool(image))
                if old is None:
                    assert new is not None
                    self._make_room(len(adds))
                    adds.append((at, self._new_record(new)))
                elif old.state is State.ACTIVE and new is None:
                    answers[at] = self._ack(old)
                else:
                    changes.append((at, self._staged_change(move)))
            except (Gone, Full, Unsupported, Unavailable) as error:
                answers[at] = error
            except Refused as refusal:
                answers[at] = Unsupported(str(refusal))
        if adds:
            added = self._staging.add([record for _, record in adds], self._clock())
            answers |= {at: answer for (at, _), answer in zip(adds, added, strict=True)}
        if changes:
            done = self._staging.change([change for _, change in changes], self._clock())
            answers |= {at: answer for (at, _), answer in zip(changes, done, strict=True)}
        return [outcome_of(move, answers[at]) for at, move in enumerate(moves)]

    def _staged_change(self, move: Move) -> staging.StagedChange:
        old, new, image = move[:3]
        assert old is not None
        now = self._clock()
        was = task_format.parse_task(image, old.id) if image else None
        return staging.StagedChange(
            old.id,
            old.state,
            None if new is None else new.state,
            rev=old.rev,
            rewrite=lambda record: (
                was or (task_format.change_record(record, old, new, now) if new else record)
            ),
            image=image,
        )

    def _ack(self, task: Task) -> str | Exception:
        """Remove the file of a finished task, unless its revision differs from the claimed one."""
        work, name = self._folders[State.ACTIVE], task.id + task_format.SUFFIX
        try:
            if files.file_revision(work.stat_by_path(name)) == task.rev:
                files.unlink(name, dir_fd=work.fd)
                return ""
        except FileNotFoundError:
            work.reopen_if_replaced()  # a replaced folder took its task with it
        except OSError as error:
            return Unavailable(f"{task.id}: {error_text(error)}")
        return Gone(task.id)

    def _make_room(self, coming: int) -> None:
        """Reserve room for one more pending task; `coming` others are reserved already.

        The folder is counted again after half of the free room is used: exact near the limit, and
        the cost of an add does not grow with the queue.

        Raises:
            Full: there is no room.
        """
        if self._room <= 0:
            free = self._spool.max_pending - self.count_tasks()[State.PENDING] - coming
            if free <= 0:
                raise Full("Queue full")
            self._room = (free + 1) // 2
        self._room -= 1

    def _new_record(self, task: Task) -> task_format.Record:
        record = task_format.new_record(task)
        if task.payload and task.payload != f"{self._spool.data_dir}/{task.id}":
            self.has_payload(task.payload)
        return record

    def _remove_payloads(self, removed: list[Task]) -> list[str]:
        """Remove the payloads of removed tasks from the mail spool; for a spooled mail its whole
        folder.

        Return the payloads that another task may still need, as their tasks were not done.
        """
        if not removed:
            return []
        spool, root, data = self._spool.mail_spool, self._spool.root, f"{self._spool.data_dir}/"
        done: list[str] = []
        unsure: list[str] = []
        for task in removed:
            path, folder = self._spool.payload_of(task)
            is_below = bool(folder) and path.startswith(f"{folder.rstrip('/')}/")
            if is_below and task_format.is_plain_path(path):
                (done if task.state is State.ACTIVE else unsure).append(path)
        if not done and not unsure:
            return []
        from engine.formats.nftban import parts

        kept = any(parts.is_mail(path, spool) or path.startswith(data) for path in done)
        if self._spool.durable and kept:
            try:
                # If a power cut brings the task back, it must find its data, or the mark that its
                # mail was sent.
                self._folders[State.ACTIVE].sync()
            except (OSError, Unavailable):
                done = []
        sent = {path for path in unsure if parts.is_sent(path, spool, root)}
        self.discard([*done, *sent])
        return [path for path in unsure if path not in sent]

    def remove_unnamed(self, payloads: list[str]) -> None:
        """Remove these payloads, except those that another task names."""
        if not payloads:
            return
        try:
            named_payloads = self.find_named_payloads(payloads)
        except (OSError, Unavailable):
            return  # without this check, a mail might be taken from its task
        self.discard([path for path in payloads if path not in named_payloads])

    def discard(self, payloads: Iterable[str]) -> None:
        """Remove these payloads, also those that a task names."""
        from engine.formats.nftban import parts

        data = self._spool.data_dir
        for path in payloads:
            folder = data if path.startswith(f"{data}/") else self._spool.mail_spool
            # The task is done, even if its payload is elsewhere, missing or not removable.
            with suppress(OSError, Refused):
                parts.remove_payload(path, folder, self._spool.root)

    def find_named_payloads(self, payloads: Collection[str]) -> dict[str, str]:
        """Return those of the payloads that a task names, with the path of its file.

        Includes tasks that are being moved or quarantined, and tasks that name another file of the
        same mail. Every task file is read, so pass many at once. A task that moves in between is
        not missed.

        Raises:
            Unavailable: a folder cannot be read.
            OSError: a file cannot be read, or another process holds the staging lock.
        """
        from engine.formats.nftban.parts import find_named_payloads

        return find_named_payloads(
            payloads, self._spool.mail_spool, self._folders.values(), self._staging
        )

    # ---- outside the Store protocol: for the queue commands

    def write_data(self, task: Task, chunks: Iterable[bytes]) -> Task:
        """Write the data of a new task, durably; return the task with its path. If it is not added
        then, the caller removes the data.

        Raises:
            Unsupported: a task file cannot contain the path.
            Unavailable: it cannot be written; nothing is left of it.
        """
        from engine.formats.nftban.task_data import write_data

        path = write_data(self._spool.data_dir, self._spool.root, task.id, chunks)
        return task._replace(payload=path)

    def has_payload(self, path: str) -> bool:
        """True if the payload file of a new task exists; also if no file is required.

        Raises:
            Unsupported: a new task may not name it; the text says what was expected.
            Unavailable: it cannot be checked now.
        """
        root = self._spool.mail_spool
        try:
            task_format.require_plain_path(path)
        except Refused as refusal:
            raise Unsupported(str(refusal)) from refusal
        if not path or not root:
            return True
        try:
            return files.is_file_below(root, path, self._spool.root)
        except Refused as refusal:
            why = str(refusal)
        except OSError as error:
            why = f"cannot be reached: {safe_line(str(error.filename))}: {error_text(error)}"
            if error.errno not in (errno.ENOENT, errno.ENAMETOOLONG):
                raise Unavailable(f"payload path {path!r} {why}") from error
        where = "there" if why.endswith(root) else f"below {root}"
        expected = f"expected the absolute path of a file {where}"
        raise Unsupported(f"payload path {path!r} {why}: {expected}")

    @override
    def count_tasks(self) -> dict[State, int]:
        return {state: sum(1 for _ in self._task_files(state)) for state in STATES}

    def count_with_age(self, now: float) -> tuple[dict[State, int], float]:
        """Return the counts, and the seconds since the oldest pending task was created; 0 without
        pending tasks."""
        # Where nothing is due, a timer run does not list what waits.
        hint, folder = self._claims.hint, self._folders[State.PENDING]
        counts = dict.fromkeys(STATES, 0)
        oldest: float | None
        if hint is not None and hint.folder == file_state(os.fstat(folder.fd)):
            counts[State.PENDING], oldest = hint.total, hint.created
        else:
            pending = [(entry.name, entry.inode()) for entry in self._task_files(State.PENDING)]
            counts[State.PENDING], oldest = len(pending), self._claims.oldest_created(pending)
        for state in STATES:
            if state is not State.PENDING:
                counts[state] = sum(1 for _ in self._task_files(state))
        return counts, 0.0 if oldest is None else max(0.0, now - oldest)

    @override
    def read_trash(self, most: int) -> bool:
        for entry in self._task_files(State.TRASH):
            if entry.name not in self._trash_sizes:
                if not most:
                    return False
                most -= 1
                with suppress(FileNotFoundError):
                    self._trash_sizes[entry.name] = self._measure(entry)
        return True

    @override
    def trash_bytes(self) -> int:
        """Return the bytes of all tasks in the trash with their payloads. A file there does not
        change: this instance reads each once."""
        known, self._trash_sizes = self._trash_sizes, {}
        for entry in self._task_files(State.TRASH):
            with suppress(FileNotFoundError):
                size = known.get(entry.name)
                self._trash_sizes[entry.name] = self._measure(entry) if size is None else size
        return sum(self._trash_sizes.values())

    def _measure(self, entry: os.DirEntry[str]) -> int:
        try:
            data, _ = self._folders[State.TRASH].read(entry.name)
            if data.count(b"TASK_PAYLOAD_FILE=") == data.count(b'\nTASK_PAYLOAD_FILE=""\n'):
                return len(data)
            return self.size(self._read(entry.name, State.TRASH))
        except (Refused, Gone):
            return 0  # no task; a scan reports it as a problem

    def _task_files(self, state: State) -> Iterator[os.DirEntry[str]]:
        """Yield the folder's entries of task files in a state, unsorted."""
        for entry in self._folders[state].iter_entries():
            if entry.name.endswith(task_format.SUFFIX) and entry.is_file(follow_symlinks=False):
                yield entry

    def find_expired(self, age: Callable[[float], float], days: float) -> Iterator[Task]:
        """Yield the dead tasks whose TASK_DLQ_EPOCH has an age of more than `days` days.

        A file without that field never expires. Every file is read: a copied or restored file has a
        new modification time, and its task died long before.
        """
        names = sorted(self._folders[State.DEAD].iter_names())
        for scanned in self._scan_files(names, State.DEAD):
            if isinstance(scanned, Problem) or "dead_since" not in scanned.extra:
                continue
            if policy.is_older_than(age(float(scanned.extra["dead_since"])), days):
                yield scanned

    def find_misplaced(self) -> Iterator[Problem]:
        """Yield tasks that are in two states, and problems of the staging directory; opens no
        file."""
        from engine.system.sorted_names import SortedNames

        with SortedNames() as names:
            for state, folder in self._folders.items():
                names.add(state, folder.iter_names())
            yield from _find_duplicates(names)
        yield from self._scan_staging()

    def recover(self) -> list[str]:
        """Complete or roll back the moves of dead processes; return one line for each.

        Raises:
            Unavailable: the staging directory cannot be read, or a stopped process holds its lock.
        """
        now = self._recovered = self._clock()
        lines = self._recovery.recover(now)
        for name in self._folders[State.ACTIVE].iter_names():
            # It may be valid: it is checked before it is moved.
            self._claims.broken_files[State.ACTIVE, name] = None
        with suppress(OSError, Unavailable):  # a reason without its file is harmless
            if self._has_quarantine():
                self._quarantine.sweep(now)
        return lines

    # ---- quarantine

    @property
    def _quarantine(self) -> Quarantine:
        if self._opened_corrupt is None:
            # Without quarantined files this module is not needed.
            from engine.formats.nftban.quarantine import Quarantine

            self._opened_corrupt = Quarantine(self._staging, self._folders)
        return self._opened_corrupt

    def _has_quarantine(self) -> bool:
        return files.is_folder(f"{self._spool.staging_dir}/corrupt")

    def quarantine_broken(
        self, count: Callable[[], None] = lambda: None, is_over: Callable[[], bool] = lambda: False
    ) -> list[str]:
        """Quarantine some of the broken files that the last takes found; return one line for each.
        Then `has_broken` is True if more are left.

        At most `QUARANTINED_AT_ONCE` are moved, and none after `is_over` returns True: tasks that
        are due do not wait for thousands. The caller must hold the queue lock. Only files unchanged
        for a minute are moved; `count` is called for each. Also recovers our own unfinished
        changes, and reports once each task that the last takes could not claim.
        """
        lines: list[str] = []
        now = self._clock()
        if self._staging.has_unfinished and not 0 <= now - self._recovered < DRAFT_MAX_AGE_SECONDS:
            with suppress(Unavailable):  # stays in the staging directory; a scan shows it
                lines = self.recover()
        passed_by, self._claims.skipped_files = self._claims.skipped_files, {}
        for name, words in passed_by.items():
            if (name, words) not in self._reported:
                self._reported.add((name, words))
                lines.append(f"pending/{name}: skipped, cannot be claimed: {words}")
        if broken := self._claims.broken_files:
            lines += self._quarantine.quarantine_files(broken, now, count, is_over)
        return lines

    @property
    def unsettled(self) -> int:
        """Number of tasks that the last take passed over: they may still be being written."""
        return len(self._claims.settles)

    @property
    def has_broken(self) -> bool:
        """True if the last takes found broken files that were not checked again yet."""
        return bool(self._claims.broken_files)

    def list_quarantined(self) -> Iterator[QuarantinedFile]:
        """Yield every quarantined file with its reason.

        Raises:
            Unavailable: they cannot be listed.
        """
        return self._quarantine.list_files()

    def restore_quarantined(self, name: str) -> str:
        """Move a repaired file back to its former state; return its path.

        Raises:
            Refused: it is still not a valid task file; nothing was moved.
            Gone: a task with its id exists; nothing was moved.
            Unsupported: there is no such file, its former state is unknown, or we may not change
                the spool.
            Unavailable: a disk error; the file is in one of the two places.
        """
        refused = self.edges[None, State.PENDING].refusal
        if refused:
            raise Unsupported(refused)
        return self._quarantine.restore(name)


def _list_revisions(folders: Mapping[State, TaskFolder]) -> Iterator[SeenTask]:
    """Yield id, state and revision of every task file, and the names of other files."""
    for folder in folders.values():
        folder.reopen_if_replaced()
    for state, folder in folders.items():
        for name in folder.iter_names():
            with suppress(FileNotFoundError):  # it has just moved: its row is looked up as not seen
                file_stat = os.stat(name, dir_fd=folder.fd, follow_symlinks=False)
                ident = utf8_name(name).removesuffix(task_format.SUFFIX)
                yield ident, state, files.file_revision(file_stat)


def _sorted_names(folder: TaskFolder, state: State) -> Iterator[str]:
    """The names of a state in order; many are listed again, and sorted in a temporary file."""
    names = list(islice(folder.iter_names(), MAX_NAMES_IN_MEMORY + 1))
    if len(names) <= MAX_NAMES_IN_MEMORY:
        yield from sorted(names)
        return
    from engine.system.sorted_names import SortedNames

    del names
    with SortedNames() as listed:
        listed.add(state, folder.iter_names())
        yield from listed.names_in(state)


def _find_duplicates(names: SortedNames) -> Iterator[Problem]:
    for name, states in names.in_several_states():
        words = " and ".join(STATES[state] for state in states)
        yield Problem(f"{STATES[states[-1]]}/{name}", f"is in {words} at the same time")


def _refuse_nested(spool: SpoolFolders) -> None:
    staging_dir = spool.staging_dir
    for path in (spool.pending, spool.work, spool.dlq):
        if staging_dir == path or staging_dir.startswith(path.rstrip("/") + "/"):
            # The NFTBan program searches its folders recursively and would run what it finds.
            raise Unavailable(f"{path} contains {staging_dir}: pending needs a folder of its own")


def _sudo_hint(path: str) -> str:
    try:
        import pwd

        owner = pwd.getpwuid(os.stat(path).st_uid).pw_name
    except (OSError, KeyError):
        return ""
    return f": use sudo -u {owner} spooldeck ..."
