"""The store over a spool folder: each state a folder, each move a rename that only one can win."""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from heapq import heapify, heappop
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from engine import policy
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
from engine.store import (
    Control,
    Full,
    Gone,
    Outlook,
    Seen,
    Unavailable,
    Unsupported,
    Wants,
    anything,
    permit,
)
from engine.stores.nftban import staging, task_format
from engine.stores.nftban.claims import TaskClaims
from engine.stores.nftban.folder import TaskFolder
from engine.stores.nftban.hint import NextDue
from engine.stores.nftban.recovery import LITTER_AGE, StagingRecovery
from engine.system import files
from engine.system.files import Refused
from engine.text.safe import shown

if TYPE_CHECKING:
    from engine.stores.nftban.quarantine import Quarantine, QuarantinedFile
    from engine.system.sorted_names import SortedNames

MAX_PENDING = 10_000
"""Contract: NFTBAN_QUEUE_MAX_PENDING; more are refused with "Queue full"."""

GROUP = 100
"""Changes made durable together; each holds at most two descriptors open."""

TOGETHER = 1000
"""Payloads for which it is found out together whether other tasks name them: each time, all task
files are read.
"""

PEEK = 200
"""Tasks of each folder that a whole look shows at once, before it knows their order."""

STATES: Mapping[State, str] = {
    State.PENDING: "pending",
    State.ACTIVE: "work",
    State.HELD: "held",
    State.DEAD: "dlq",
    State.TRASH: "trash",
}

CONTRACT = (State.PENDING, State.ACTIVE, State.DEAD)
"""The states whose folders the contract names; those of the others are made on demand."""

_outcome = frozenset({"attempts", "due", "error"})


def _wrong(name: str, value: object, now: float) -> str:
    """Why a due time is none that would be believed."""
    if name == "due" and isinstance(value, float) and value - now > policy.FURTHEST:
        return f"due at most {policy.FURTHEST / policy.DAY:g} days from now: no task waits longer"
    return ""


_edited = Edge(frozenset({"due", "description"}), wrong=_wrong)

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
    """Where a spool lies and what it allows."""

    pending: str
    work: str
    dlq: str
    mail_spool: str = ""
    """Below this folder lie the payload files that a new task may name and that are removed with
    the last task that names them; "": it may name any, and none is removed.
    """
    max_pending: int = MAX_PENDING
    durable: bool = True
    """Whether an answer waits until the disk has it."""
    root: str = ""
    """The data folder: below it the mail spool is reached through no symbolic link."""

    @property
    def desk(self) -> str:
        """The folder for what is being moved, held or trashed; beside pending/."""
        return f"{os.path.dirname(self.pending.rstrip('/'))}/{staging.NAME}"


TRASHED = "trash_since"
"""In the `extra` of a task in the trash: when it came there, epoch seconds UTC."""

EXCLUSIVE = "exclusive"
"""A file in the staging directory: an operator said that no other program uses this spool.

Then the modification time of a pending file is its due time, so waiting files are not read. The
real program computes the age of tasks from these times.
"""


def make_spool(spool: SpoolFolders, *, exclusive: bool = False) -> list[str]:
    """Make the folders of a spool that are missing; return the paths that were made.

    `exclusive`: mark it as used by no other program, see `EXCLUSIVE`.

    Raises:
        OSError: one could not be made.
    """
    wanted = (spool.pending, spool.work, spool.dlq)
    made = [path for path in wanted if not os.path.isdir(path)]
    for path in made:
        files.make_folders(path)
    marker = f"{spool.desk}/{EXCLUSIVE}"
    if exclusive or len(made) == len(wanted):
        files.make_folders(spool.desk)
    if exclusive and not os.path.exists(marker):
        files.publish(marker, b"", files.FILE_MODE)
        made.append(marker)
    return made


class NftbanStore:
    """Tasks as files in pending/, work/ and dlq/, and in held/ and trash/ on the desk."""

    states = STATES
    words: Mapping[str, State] = {}
    controls: Mapping[str, Control] = {}

    def __init__(
        self,
        spool: SpoolFolders,
        clock: Callable[[], float] = time.time,
        patience: float = files.PATIENCE,
    ) -> None:
        """`patience` is for how many seconds a stopped process may keep us from placing a file."""
        self._spool = spool
        self._clock = clock
        own = spool.desk
        _refuse_nested(spool)
        pending = TaskFolder(spool.pending, "pending")
        self._folders = {
            State.PENDING: pending,
            State.ACTIVE: TaskFolder(spool.work, "work", pending),
            State.HELD: TaskFolder(f"{own}/held", "held", pending, make=True),
            State.DEAD: TaskFolder(spool.dlq, "dlq", pending),
            State.TRASH: TaskFolder(f"{own}/trash", "trash", pending, make=True),
        }
        self._by_word = {word: state for state, word in STATES.items()}
        self._open_folders()
        self.opened = pending.seen
        """The state of pending/ when it was opened: whose spool this is, and stays."""
        due_in_mtime = os.path.exists(f"{own}/{EXCLUSIVE}")
        self._desk = staging.StagingDir(
            own,
            self._folders,
            durable=spool.durable,
            due_in_mtime=due_in_mtime,
            patience=patience,
        )
        self._recovery = StagingRecovery(self._desk, self._folders)
        self._opened_corrupt: Quarantine | None = None
        self._recovered = float("-inf")
        hint = NextDue(f"{own}/next-due")
        self._claims = TaskClaims(self._folders, self._desk, hint, clock, due_in_mtime=due_in_mtime)
        self.edges = self._open_edges()
        watched = (spool.pending, spool.work, spool.dlq, f"{own}/held", f"{own}/trash")
        self.doorbell = ChangeSource(watched)
        self.expected = 0
        self._room = 0
        self._said: set[tuple[str, str]] = set()

    def _open_folders(self) -> None:
        own = self._spool.desk
        try:
            home = own if files.is_folder(own) else os.path.dirname(own) or "."
            device = os.stat(home).st_dev
            for state, folder in self._folders.items():
                if state in CONTRACT:
                    there = folder.seen.st_dev
                else:
                    there = os.stat(folder.path).st_dev if folder.exists() else device
                if there != device:
                    # A rename between file systems does not exist; copying is not one step.
                    raise Unavailable(
                        f"{folder.path} lies on another file system than {home}: "
                        "expected one file system for pending, work, dlq and .spooldeck beside them"
                    )
        except OSError as error:
            self._close_folders()
            raise Unavailable(f"{own}: {error.strerror}") from error
        except Unavailable:
            self._close_folders()
            raise

    def _open_edges(self) -> Edges:
        why = self._no_writing()
        return {way: edge._replace(refused=why) for way, edge in EDGES.items()} if why else EDGES

    def _no_writing(self) -> str:
        """Why nothing may be changed here by us; "" when it may."""
        needed = [folder.path for folder in self._folders.values() if folder.exists()]
        own = self._spool.desk
        needed.append(own if files.is_folder(own) else os.path.dirname(own))
        for path in needed:
            if not os.access(path, os.W_OK | os.X_OK):
                return f"{path} is not writable for us{_whose(path)}"
        for state in CONTRACT:
            folder = self._folders[state]
            if folder.seen.st_mode & stat.S_IWOTH:
                return f"{folder.path} may be written by everybody: use chmod o-w {folder.path}"
            if not folder.trusts_us():
                # What we put there would be refused by every reader.
                return f"{folder.path} belongs to somebody else{_whose(folder.path)}"
        return ""

    def close(self) -> None:
        """Let go of the folders."""
        self._desk.close()
        if self._opened_corrupt is not None:
            self._opened_corrupt.close()
        self._close_folders()

    def _close_folders(self) -> None:
        for folder in self._folders.values():
            folder.close()

    # ---- looking

    def look(self, touched: Collection[str] | None = None) -> Iterator[Task | Missing | Problem]:
        """Everything as a stream, or what is named: ids, file names, or a word for all in a state.

        Raises:
            Unavailable: a folder is missing or cannot be read.
        """
        for folder in self._folders.values():
            folder.check()
        if touched is None:
            yield from self._look_at_all()
            return
        for name in touched:
            if name in self._by_word:
                state = self._by_word[name]
                for entry in sorted(self._names(state)):
                    yield from self._look_at(entry, state)
            else:
                yield from self._look_for(name)

    def _look_at_all(self) -> Iterator[Task | Missing | Problem]:
        from engine.system.sorted_names import SortedNames, storable

        for state in STATES:
            for name in islice(self._names(state), PEEK):
                yield from self._look_at(storable(name), state)
        with SortedNames() as names:
            self.expected = sum(names.add(state, self._names(state)) for state in STATES)
            for state in STATES:
                for name in names.of(state):
                    yield from self._look_at(name, state)
            yield from _doubles(names)
        yield from self._on_the_desk()

    def _on_the_desk(self) -> Iterator[Problem]:
        yield from self.obstacles()
        if not task_format.is_plain_path(self._spool.mail_spool):
            yield Problem(
                "mail spool",
                f"{self._spool.mail_spool}: no task can name a mail there, so none is delivered: "
                "expected letters, digits, space, _ . - : /",
            )
        yield from self._recovery.problems()
        if self._has_corrupt():
            yield from self._corrupt.problems()

    def obstacles(self) -> Iterator[Problem]:
        """What lies where the desk, or one of the folders on it, should be."""
        own, twice = self._desk.folder, self._desk.twice
        corrupt = TaskFolder(f"{own.path}/corrupt", f"{staging.NAME}/corrupt", own, make=True)
        held, trash = self._folders[State.HELD], self._folders[State.TRASH]
        for folder in (own, held, trash, twice, corrupt):
            if problem := folder.problem():
                yield problem

    def _names(self, state: State) -> Iterator[str]:
        """Every name in a state's folder, as the folder lists them."""
        folder = self._folders[state]
        if not folder.exists() and state not in CONTRACT:
            return
        try:
            with os.scandir(folder.fd) as entries:
                for entry in entries:
                    yield entry.name
        except OSError as error:
            raise Unavailable(f"{folder.path}: {error.strerror}") from error

    def _look_at(self, name: str, state: State) -> Iterator[Task | Problem]:
        try:
            yield self._read(name, state)
        except FileNotFoundError:
            return  # moved on since its folder was listed; the next look finds it
        except Refused as refusal:
            yield Problem(f"{STATES[state]}/{name}", str(refusal), state)
        except OSError as error:
            yield Problem(f"{STATES[state]}/{name}", f"cannot be read now: {error.strerror}", state)

    def _look_for(self, name: str) -> Iterator[Task | Missing | Problem]:
        ident = name.removesuffix(task_format.SUFFIX)
        if task_format.id_of(ident + task_format.SUFFIX) is None:
            strangers = self._strangers(name)
            yield from strangers
            if not strangers:
                yield Missing(name)
            return
        found: list[Task | Problem] = []
        for state in STATES:
            if self._folders[state].exists():
                found += self._look_at(ident + task_format.SUFFIX, state)
        yield from found
        tasks = [task for task in found if isinstance(task, Task)]
        if len(tasks) > 1:
            words = " and ".join(STATES[task.state] for task in tasks)
            where = f"{STATES[tasks[-1].state]}/{ident}{task_format.SUFFIX}"
            yield Problem(where, f"stands in {words} at once")
        elif not found and not any(moving.id == ident for moving in self._recovery.moving()):
            # One on the desk will be in a folder again in a moment, and rings there.
            strangers = self._strangers(name) if name == ident else []
            yield from strangers
            if not strangers:
                yield Missing(ident)

    def _strangers(self, name: str) -> list[Problem]:
        """Wherever something has this name, which no task file can have."""
        if not name or set(name) & {"/", "\0"} or name in (".", ".."):
            return []
        return [
            Problem(f"{word}/{name}", task_format.NO_TASK_NAME, state)
            for state, word in STATES.items()
            if self._folders[state].holds(name)
        ]

    def _read(self, name: str, state: State) -> Task:
        """The task of one file.

        Raises:
            FileNotFoundError: it has moved on.
            Refused: it is no task file, with the reason.
            OSError: it cannot be read now.
        """
        record, seen = self._record(name, state)
        # Nothing but a claim renames a file into work/, and a rename sets ctime.
        lease = Lease("", seen.st_ctime) if state is State.ACTIVE else None
        task = task_format.as_task(record, state, seen, lease, self._clock())
        if state is State.TRASH:
            task = replace(task, extra={**task.extra, TRASHED: repr(seen.st_ctime)})
        return task

    def _record(self, name: str, state: State) -> tuple[task_format.Record, os.stat_result]:
        """Read and parse one file; raises as `_read` does."""
        ident = task_format.id_of(name)
        if ident is None:
            raise Refused(task_format.NO_TASK_NAME)
        data, seen = self._folders[state].read(name)
        return task_format.parse(data, ident), seen

    def still(self, seen: Iterable[Seen]) -> Iterator[Task | Problem]:
        """Those whose file is as it was, each open until it is swapped.

        None is locked: what its caller does meanwhile may take long, and nobody who claims one of
        them must find it in somebody's hand. The swap locks each, and looks whether it still is.
        Those that are not there may lie on the desk: what nobody moves any more is recovered.
        """
        self._desk.let_go()
        for folder in self._folders.values():
            folder.check()
        now = self._clock()
        gone: set[str] = set()
        for ident, state, rev in seen:
            try:
                record, there = self._desk.grasp(ident, state, rev)
            except Gone:
                gone.add(ident)
            except Refused:
                continue
            except OSError as error:
                yield Problem(ident, f"cannot be read now: {error.strerror}", state)
            else:
                lease = Lease("", there.st_ctime) if state is State.ACTIVE else None
                yield task_format.as_task(record, state, there, lease, now, rev)
        if gone and not self._no_writing():
            with suppress(OSError, Unavailable):  # it stays on the desk, where look() shows it
                self._recovery.recover(now, gone)

    def parts(self, task: Task) -> Iterator[Part]:
        """Its file, its payload, and what lies beside the payload of a spooled mail.

        Raises:
            Gone: it is not there as it was seen.
            Unavailable: it cannot be read now.
        """
        from engine.stores.nftban import parts

        _, seen = self._held(task)
        path = f"{self._folders[task.state].path}/{task.id}{task_format.SUFFIX}"
        yield from parts.of(path, seen, task.payload, self._spool.mail_spool, self._spool.root)

    def size(self, task: Task) -> int:
        """Bytes of its file, and of its payload where that would be removed with it.

        Raises:
            Gone: it is not there.
            Unavailable: that cannot be found out now.
        """
        try:
            own = self._folders[task.state].state_of(task.id + task_format.SUFFIX).st_size
        except (FileNotFoundError, KeyError):
            raise Gone(task.id) from None
        except OSError as error:
            raise Unavailable(f"{task.id}: {error.strerror}") from error
        payload, root = task.payload, self._spool.mail_spool
        if not payload or not root or not task_format.is_plain_path(payload):
            return own
        from engine.stores.nftban import parts

        try:
            return own + parts.weight(payload, root, self._spool.root)
        except (OSError, Refused):
            return own

    def read(self, task: Task, part: str = "") -> bytes:
        """The task file's bytes, or the first of another part.

        Raises:
            Gone: it is not there as it was seen.
            Unsupported: that part is not to be read, with the reason.
            Unavailable: it cannot be read now.
        """
        in_hand = None if part else self._desk.in_hand(task.id, task.state, task.rev)
        if in_hand is not None:
            return in_hand
        data, _ = self._held(task)
        from engine.stores.nftban import parts

        if part in ("", parts.TASK):
            return data
        return parts.read(part, task.payload, self._spool.mail_spool, self._spool.root)

    def recall(self, task: Task, image: bytes, state: State) -> Task:
        """What the file's bytes say.

        Raises:
            Unsupported: they are no file of that task.
        """
        try:
            return task_format.recalled(task_format.parse(image, task.id), task, state)
        except Refused as refusal:
            raise Unsupported(
                f"{task.id}: what was kept of it is no task file: {refusal}"
            ) from refusal

    def glimpse(self, problem: Problem) -> bytes:
        """The first bytes of a broken file, wherever in the spool it lies.

        Raises:
            Gone: it is not there any more.
            Unsupported: it is no plain file, with the reason.
            Unavailable: it cannot be read now.
        """
        from engine.stores.nftban import parts

        where, _, name = problem.where.rpartition("/")
        folders = {folder.word: folder.path for folder in self._folders.values()}
        own = self._spool.desk
        for word in (staging.NAME, f"{staging.NAME}/twice", f"{staging.NAME}/corrupt"):
            folders[word] = own + word.removeprefix(staging.NAME)
        if where not in folders:
            raise Unsupported(f"{shown(problem.where)} is no file of this spool")
        return parts.glimpse(folders[where], name)

    def _held(self, task: Task) -> tuple[bytes, os.stat_result]:
        folder = self._folders.get(task.state)
        if folder is None or not folder.exists():
            raise Gone(task.id)
        try:
            data, seen = folder.read(task.id + task_format.SUFFIX)
        except FileNotFoundError:
            raise Gone(task.id) from None
        except Refused as refusal:
            raise Gone(f"{task.id}: {refusal}") from refusal
        except OSError as error:
            raise Unavailable(f"{task.id}: {error.strerror}") from error
        if files.revision(seen) != task.rev:
            raise Gone(task.id)
        return data, seen

    # ---- taking

    def take(self, now: float, owner: str, limit: int, wants: Wants = anything) -> Iterator[Task]:
        """Due tasks in the order of their file names, each claimed by a rename as it is asked for.

        Afterwards `doorbell.due` says when the next of those that wait comes due.
        """
        yield from self._claims.take(now, owner, limit, wants)
        self.doorbell = self.doorbell._replace(due=self._claims.due)

    # ---- changing

    def swap(self, old: Task | None, new: Task | None) -> str:
        """One change, durable when it returns.

        Raises:
            Gone: the file is not there as `old` says; nothing changed.
            Full: pending/ holds the most that it may.
            Unsupported: no such edge here, or a value that a task file may not hold.
            Unavailable: the disk refused; nothing changed.
        """
        permit(self.edges, old, new)
        if old is None:
            assert new is not None
            self._make_room(0)
            try:
                (answer,) = self._desk.add([self._new_record(new)], self._clock())
            except Refused as refusal:
                raise Unsupported(str(refusal)) from refusal
        elif new is None and old.state is State.ACTIVE:
            answer = self._ack(old)
        else:
            (answer,) = self._desk.change([self._change(Move(old, new))], self._clock())
        if isinstance(answer, Exception):
            raise answer
        if new is None and old is not None and old.payload:
            self._remove_unnamed(self._remove_payloads([old]))
        return answer

    def swap_all(self, moves: Iterable[Move]) -> Iterator[Outcome]:
        """Many changes, made durable a hundred at a time."""
        waiting = iter(moves)
        unsent: list[str] = []
        try:
            while group := list(islice(waiting, GROUP)):
                outcomes = self._group(group)
                left = [o.move.old for o in outcomes if o.error is None and o.move.new is None]
                unsent += self._remove_payloads([old for old in left if old and old.payload])
                if len(unsent) >= TOGETHER:
                    self._remove_unnamed(unsent)
                    unsent = []
                yield from outcomes
        finally:
            self._remove_unnamed(unsent)
            self._desk.let_go()

    def _group(self, moves: list[Move]) -> list[Outcome]:
        answers: dict[int, str | Exception] = {}
        adds: list[tuple[int, task_format.Record]] = []
        changes: list[tuple[int, staging.StagedChange]] = []
        for at, move in enumerate(moves):
            old, new, image = move
            try:
                permit(self.edges, old, new, whole=bool(image))
                if old is None:
                    assert new is not None
                    self._make_room(len(adds))
                    adds.append((at, self._new_record(new)))
                elif old.state is State.ACTIVE and new is None:
                    answers[at] = self._ack(old)
                else:
                    changes.append((at, self._change(move)))
            except (Gone, Full, Unsupported, Unavailable) as error:
                answers[at] = error
            except Refused as refusal:
                answers[at] = Unsupported(str(refusal))
        if adds:
            added = self._desk.add([record for _, record in adds], self._clock())
            answers |= {at: answer for (at, _), answer in zip(adds, added, strict=True)}
        if changes:
            done = self._desk.change([change for _, change in changes], self._clock())
            answers |= {at: answer for (at, _), answer in zip(changes, done, strict=True)}
        return [_answered(move, answers[at]) for at, move in enumerate(moves)]

    def _change(self, move: Move) -> staging.StagedChange:
        old, new, image = move
        assert old is not None
        now = self._clock()
        was = task_format.parse(image, old.id) if image else None
        return staging.StagedChange(
            old.id,
            old.state,
            None if new is None else new.state,
            old.rev,
            lambda record: was or (task_format.changed(record, old, new, now) if new else record),
            image,
        )

    def _ack(self, task: Task) -> str | Exception:
        """Done: unlink the file, unless it is another one than was claimed."""
        work, name = self._folders[State.ACTIVE], task.id + task_format.SUFFIX
        try:
            if files.revision(work.state_of(name)) == task.rev:
                files.unlink(name, dir_fd=work.fd)
                return ""
        except FileNotFoundError:
            work.check()  # if it was replaced, then its task is gone with it, but not the next one
        except OSError as error:
            return Unavailable(f"{task.id}: {error.strerror}")
        return Gone(task.id)

    def _make_room(self, coming: int) -> None:
        """Count one more pending task, `coming` others being on their way already.

        The folder is counted again when half of the room that was seen last is used up: exact near
        the limit, and the cost of one add does not grow with the queue.

        Raises:
            Full: there is no room.
        """
        if self._room <= 0:
            free = self._spool.max_pending - self.counts()[State.PENDING] - coming
            if free <= 0:
                raise Full("Queue full")
            self._room = (free + 1) // 2
        self._room -= 1

    def _new_record(self, task: Task) -> task_format.Record:
        record = task_format.new_record(task)
        self.has_payload(task.payload)
        return record

    def _remove_payloads(self, left: list[Task]) -> list[str]:
        """Remove what the payloads name of tasks that have left, where it lies below the mail
        spool; of a spooled mail that is its whole folder.

        Answers with those that another task may need: nothing says that they are done with.
        """
        spool, root = self._spool.mail_spool, self._spool.root
        below = f"{spool.rstrip('/')}/" if spool else "\0"
        left = [
            t for t in left if t.payload.startswith(below) and task_format.is_plain_path(t.payload)
        ]
        if not left:
            return []
        from engine.stores.nftban import parts

        done = [task.payload for task in left if task.state is State.ACTIVE]
        unsure = [task.payload for task in left if task.state is not State.ACTIVE]
        if self._spool.durable and any(parts.is_mail(path, spool) for path in done):
            try:
                # A task that a power cut brings back has to find the mark that its mail was sent.
                self._folders[State.ACTIVE].sync()
            except (OSError, Unavailable):
                done = []
        sent = {path for path in unsure if parts.is_sent(path, spool, root)}
        self._discard([*done, *sent])
        return [path for path in unsure if path not in sent]

    def _remove_unnamed(self, payloads: list[str]) -> None:
        """Remove what these name, but for what some other task names as well."""
        if not payloads:
            return
        try:
            kept = self.named(payloads)
        except (OSError, Unavailable):
            return  # who cannot look must not take a mail from its task
        self._discard([path for path in payloads if path not in kept])

    def _discard(self, payloads: Iterable[str]) -> None:
        from engine.stores.nftban import parts

        for path in payloads:
            # Elsewhere, or gone already; and the task is done, whatever stays behind.
            with suppress(OSError, Refused):
                parts.discard(path, self._spool.mail_spool, self._spool.root)

    def named(self, payloads: Collection[str]) -> dict[str, str]:
        """Those of these payloads that a task names, and where its file lies.

        Also one that is being moved or was set aside; and one that names another file of the same
        mail. Every task file is read, so ask for many at once. No task escapes by moving.

        Raises:
            Unavailable: a folder cannot be read.
            OSError: a file cannot be, or another process keeps the desk's lock.
        """
        from engine.stores.nftban.names import named

        return named(payloads, self._spool.mail_spool, self._folders.values(), self._desk)

    def control(self, name: str, target: str = "", value: str = "") -> str:
        """This spool as a whole has nothing to control."""
        raise Unsupported(f"no control {name!r} here")

    def forecast(self, name: str, target: str = "", value: str = "") -> Outlook:
        """There are no controls."""
        raise Unsupported(f"no control {name!r} here")

    # ---- beside the seam: what the queue's commands need

    def has_payload(self, path: str) -> bool:
        """Whether the file is there that a new task would name; always, where none has to be.

        Raises:
            Unsupported: no new task may name it; the text says what was expected.
            Unavailable: it cannot be looked at now.
        """
        root = self._spool.mail_spool
        try:
            task_format.require_plain_path(path)
        except Refused as refusal:
            raise Unsupported(str(refusal)) from refusal
        if not path or not root:
            return True
        try:
            return files.is_below(root, path, self._spool.root)
        except Refused as refusal:
            why = str(refusal)
        except OSError as error:
            why = f"cannot be reached: {shown(str(error.filename))}: {error.strerror}"
            if error.errno not in (errno.ENOENT, errno.ENAMETOOLONG):
                raise Unavailable(f"payload path {path!r} {why}") from error
        where = "there" if why.endswith(root) else f"below {root}"
        raise Unsupported(
            f"payload path {path!r} {why}: expected the absolute path of a file {where}"
        )

    def counts(self) -> dict[State, int]:
        """How many task files stand in each state, without opening one."""
        return {state: len(self._listed(state)) for state in STATES}

    def figures(self, now: float) -> tuple[dict[State, int], float]:
        """Counts, and the seconds since the first pending task in the queue's order was created.

        0 seconds when nothing is pending.
        """
        pending = self._listed(State.PENDING)
        counts = {
            state: len(pending if state is State.PENDING else self._listed(state))
            for state in STATES
        }
        heapify(pending)
        while pending:
            try:
                first = self._read(heappop(pending), State.PENDING)
            except (OSError, Refused):
                continue  # moved on, or no task file
            return counts, max(0.0, now - first.created)
        return counts, 0.0

    def _listed(self, state: State) -> list[str]:
        """The names of a state that are task files', in any order."""
        folder = self._folders[state]
        if not folder.exists() and state not in CONTRACT:
            return []
        try:
            with os.scandir(folder.fd) as entries:
                return [
                    entry.name
                    for entry in entries
                    if entry.name.endswith(task_format.SUFFIX)
                    and entry.is_file(follow_symlinks=False)
                ]
        except OSError as error:
            raise Unavailable(f"{folder.path}: {error.strerror}") from error

    def expired(self, now: float, days: float) -> Iterator[Task]:
        """Yield the dead tasks whose TASK_DLQ_EPOCH is more than `days` days before `now`.

        A file without that field never expires. Every file is read: a copied or restored file has a
        new modification time, and its task died long before.
        """
        for name in sorted(self._names(State.DEAD)):
            try:
                record, seen = self._record(name, State.DEAD)
            except (OSError, Refused):
                continue  # moved on, or cannot be read: what does not say when it died, stays
            if record.dead_since is not None and policy.older_than(record.dead_since, now, days):
                yield task_format.as_task(record, State.DEAD, seen, None, self._clock())

    def misplaced(self) -> Iterator[Problem]:
        """Tasks that stand in two states at once, and what lies on the desk; no file is opened."""
        from engine.system.sorted_names import SortedNames

        with SortedNames() as names:
            for state in STATES:
                names.add(state, self._names(state))
            yield from _doubles(names)
        yield from self._on_the_desk()

    def recover(self) -> list[str]:
        """Finish or take back what dead processes left half done; says what was done, in words.

        Raises:
            Unavailable: the desk cannot be read, or a process that does not go on keeps its lock.
        """
        now = self._recovered = self._clock()
        said = self._recovery.recover(now)
        for name in self._names(State.ACTIVE):
            self._claims.broken[State.ACTIVE, name] = None  # or a task: set_aside knows
        with suppress(OSError, Unavailable):  # a reason without its file harms nobody
            if self._has_corrupt():
                self._corrupt.sweep(now)
        return said

    # ---- broken files

    @property
    def _corrupt(self) -> Quarantine:
        if self._opened_corrupt is None:
            from engine.stores.nftban.quarantine import (
                Quarantine,  # a start without any pays nothing
            )

            self._opened_corrupt = Quarantine(self._desk, self._folders)
        return self._opened_corrupt

    def _has_corrupt(self) -> bool:
        return files.is_folder(f"{self._spool.desk}/corrupt")

    def set_aside(self, count: Callable[[], None] = lambda: None) -> list[str]:
        """Move out of the way what the last takes met and was no task file; says what was done.

        Only for whoever holds the queue's lock, and only what nobody has touched for a minute.
        Calls `count` for each file. Finishes as well what a change of ours had to leave undone, and
        names, once, what the last takes had to pass by.
        """
        said: list[str] = []
        now = self._clock()
        if self._desk.owes and not 0 <= now - self._recovered < LITTER_AGE:
            with suppress(Unavailable):  # it stays on the desk, where look() shows it
                said = self.recover()
        passed_by, self._claims.passed_by = self._claims.passed_by, {}
        for name, words in passed_by.items():
            if (name, words) not in self._said:
                self._said.add((name, words))
                said.append(f"pending/{name}: passed by, it cannot be claimed: {words}")
        broken = self._claims.broken
        if broken:
            self._claims.broken = {}
            said += self._corrupt.set_aside(broken, now, count)
        return said

    def corrupt(self) -> Iterator[QuarantinedFile]:
        """Every file that was set aside, with its reason.

        Raises:
            Unavailable: they cannot be listed.
        """
        return self._corrupt.all()

    def put_back(self, name: str) -> str:
        """Put one that was mended back where it came from; says where that is.

        Raises:
            Refused: it is still no task file, with line and expectation; nothing was moved.
            Gone: a task of its id stands there by now; nothing was moved.
            Unsupported: there is no such file, it is not known where it came from, or we may not.
            Unavailable: the disk refused; it lies in one of the two places.
        """
        refused = self.edges[None, State.PENDING].refused
        if refused:
            raise Unsupported(refused)
        return self._corrupt.put_back(name)


def _answered(move: Move, answer: str | Exception) -> Outcome:
    if isinstance(answer, Exception):
        return Outcome(move, error=answer)
    return Outcome(move, answer)


def _doubles(names: SortedNames) -> Iterator[Problem]:
    for name, states in names.doubles():
        words = " and ".join(STATES[state] for state in states)
        yield Problem(f"{STATES[states[-1]]}/{name}", f"stands in {words} at once")


def _refuse_nested(spool: SpoolFolders) -> None:
    own = spool.desk
    for path in (spool.pending, spool.work, spool.dlq):
        if own == path or own.startswith(path.rstrip("/") + "/"):
            # The other program searches its folders to any depth and would run what it finds.
            raise Unavailable(f"{path} contains {own}: pending needs a folder of its own")


def _whose(path: str) -> str:
    try:
        import pwd

        owner = pwd.getpwuid(os.stat(path).st_uid).pw_name
    except (OSError, KeyError):
        return ""
    return f": use sudo -u {owner} spooldeck ..."
