"""A format of another package: a queue of jobs in one JSON file, `NAME.jobs`.

The file has an object of jobs by id and the number of the last change, which is the revision of the
job that it changed. A program that reads or writes it holds a lock (flock) on `NAME.jobs.lock`. The
file is replaced as a whole, so that a program that is killed leaves the old one or the new one.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from spooldeck import (
    Address,
    ChangeSource,
    Edge,
    Finding,
    Format,
    Gone,
    Grade,
    Lease,
    Missing,
    Move,
    Outcome,
    Part,
    Problem,
    Setup,
    State,
    StoreBase,
    StoreError,
    Task,
    Unavailable,
    Unsupported,
    accept_all,
    require_edge,
)

KEPT = ("kind", "created", "due", "attempts", "description", "error", "destination", "group")
"""The fields of a task that are kept, besides id, state, lease and revision."""

OUTCOME = frozenset({"attempts", "due", "error"})


class JobStore(StoreBase):
    """The jobs of one file."""

    states = {
        State.PENDING: "todo",
        State.ACTIVE: "doing",
        State.DEAD: "failed",
        State.HELD: "parked",
        State.TRASH: "bin",
    }
    edges = {
        (None, State.PENDING): Edge(),
        (State.PENDING, State.PENDING): Edge(frozenset({"due", "description"})),
        (State.PENDING, State.HELD): Edge(),
        (State.PENDING, State.TRASH): Edge(),
        (State.HELD, State.PENDING): Edge(frozenset({"due"})),
        (State.HELD, State.TRASH): Edge(),
        (State.ACTIVE, None): Edge(undoable=False),
        (State.ACTIVE, State.PENDING): Edge(OUTCOME),
        (State.ACTIVE, State.DEAD): Edge(OUTCOME),
        (State.DEAD, State.PENDING): Edge(OUTCOME),
        (State.DEAD, State.TRASH): Edge(),
        (State.TRASH, State.PENDING): Edge(),
        (State.TRASH, State.HELD): Edge(),
        (State.TRASH, State.DEAD): Edge(),
        (State.TRASH, None): Edge(undoable=False),
    }

    def __init__(self, path: str, clock: Callable[[], float] = time.time) -> None:
        self._path, self._clock = path, clock
        self._seen = self._stamp()
        with self._locked() as jobs:
            self._revisions = {ident: str(job.get("rev")) for ident, job in jobs.items()}
        self.changes = ChangeSource(wait=self._wait)

    @contextmanager
    def _locked(self, *, writes: bool = False) -> Iterator[dict[str, dict[str, Any]]]:
        """The jobs, which no other program changes meanwhile; with `writes`, they are stored at the
        end.

        A reader makes no file: before the first writer there is no lock to wait for.
        """
        try:
            flags = os.O_RDWR | os.O_NOFOLLOW | (os.O_CREAT if writes else 0)
            lock = os.open(f"{self._path}.lock", flags, 0o666)
        except FileNotFoundError:
            lock = -1
        except OSError as error:
            raise Unavailable(f"{self._path}.lock: {error.strerror}") from error
        try:
            if lock >= 0:
                fcntl.flock(lock, fcntl.LOCK_EX)
            content = self._read()
            before = content["change"]
            self._content = content
            yield content["jobs"]
            if writes and content["change"] != before:
                self._write(content)
        finally:
            if lock >= 0:
                os.close(lock)

    def _read(self) -> dict[str, Any]:
        try:
            with open(self._path, encoding="utf-8") as file:
                content: dict[str, Any] = json.load(file)
            return content
        except OSError as error:
            raise Unavailable(f"{self._path}: {error.strerror}") from error
        except ValueError as error:
            raise Unavailable(f"{self._path}: not a file of jobs: {error}") from error

    def _write(self, content: dict[str, Any]) -> None:
        # The mode of the old file; a link that lies there is not followed.
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
        fd = os.open(f"{self._path}.new", flags, os.stat(self._path).st_mode & 0o777)
        with open(fd, "w", encoding="utf-8") as file:
            json.dump(content, file)
            file.flush()
            os.fsync(fd)
        os.replace(f"{self._path}.new", self._path)
        folder = os.open(os.path.dirname(self._path) or ".", os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)  # the new name survives a power cut
        finally:
            os.close(folder)

    def scan(self, touched: Collection[str] | None = None) -> Iterator[Task | Missing | Problem]:
        """The jobs in the order of state and id, or those of these ids and words of states."""
        with self._locked() as jobs:
            tasks, problems = _tasks(jobs)
        names = {*self.states.values(), *jobs}
        yield from (one for one in problems if touched is None or one.where in touched)
        for state, word in self.states.items():
            for task in tasks:
                if task.state is state and (touched is None or {task.id, word} & {*touched}):
                    yield task
        yield from (Missing(name) for name in touched or () if name not in names)

    def parts(self, task: Task) -> Iterator[Part]:
        """The one part of a job: its JSON."""
        yield Part("job", task.id, len(self.read(task)))

    def read(self, task: Task, part: str = "") -> bytes:
        """The JSON of a job, as it is in the file."""
        if part not in ("", "job"):
            raise Gone(f"{task.id} has no part {part!r}")
        with self._locked() as jobs:
            return json.dumps({"id": task.id, **_unchanged(jobs, task)}).encode()

    def restore_image(self, task: Task, image: bytes, state: State) -> Task:
        """The job that `read` has answered with."""
        try:
            job = json.loads(image)
            return _task(job.pop("id"), job)._replace(state=state, lease=None)
        except (ValueError, KeyError, TypeError) as error:
            raise Unsupported(f"not the JSON of a job: {error}") from error

    def preview_problem(self, problem: Problem) -> bytes:
        """There are none: a file that is no JSON makes the whole queue unavailable."""
        raise Gone(problem.where)

    def swap_all(self, moves: Iterable[Move]) -> Iterator[Outcome]:
        """Make the moves one by one, each stored when its outcome is."""
        for move in moves:
            try:
                require_edge(self.edges, move.old, move.new, self._clock())
                with self._locked(writes=True) as jobs:
                    rev = self._put(jobs, move)
                yield Outcome(move, rev)
            except StoreError as error:
                yield Outcome(move, error=error)

    def _put(self, jobs: dict[str, dict[str, Any]], move: Move) -> str:
        old, new = move.old, move.new
        if old is None and new is not None and new.id in jobs:
            raise Gone(f"{new.id} is there already")
        if old is not None:
            _unchanged(jobs, old)
        self._content["change"] += 1
        if new is None:
            assert old is not None
            del jobs[old.id]
            return ""
        jobs[new.id] = _job(new, rev := str(self._content["change"]))
        return rev

    def take(
        self, now: float, owner: str, limit: int, wants: Callable[[str, str], bool] = accept_all
    ) -> Iterator[Task]:
        """Claim due jobs in the order of their ids, each when the worker asks for it."""
        for _ in range(limit):
            with self._locked(writes=True) as jobs:
                tasks, _ = _tasks(jobs)
                due = (t for t in tasks if t.state is State.PENDING and (t.due or 0.0) <= now)
                task = next((t for t in due if wants(t.kind, t.group)), None)
                if task is None:
                    return
                claimed = task._replace(state=State.ACTIVE, lease=Lease(owner, now))
                claimed = claimed._replace(rev=self._put(jobs, Move(task, claimed)))
            yield claimed

    def _wait(self, seconds: float) -> Collection[str] | None:
        """The ids of the jobs that have changed since the last call, after so many seconds at
        most."""
        end = time.monotonic() + seconds
        while (stamp := self._stamp()) == self._seen and time.monotonic() < end:
            time.sleep(0.05)
        if stamp == self._seen:
            return ()
        self._seen = stamp  # before it is read: a later change has another one
        with self._locked() as jobs:
            revisions = {ident: str(job.get("rev")) for ident, job in jobs.items()}
        names = {ident for ident, _ in revisions.items() ^ self._revisions.items()}
        self._revisions = revisions
        return names

    def _stamp(self) -> tuple[int, int]:
        try:
            now = os.stat(self._path)
        except OSError as error:
            raise Unavailable(f"{self._path}: {error.strerror}") from error
        return now.st_ino, now.st_mtime_ns


def _job(task: Task, rev: str) -> dict[str, Any]:
    job = {name: getattr(task, name) for name in KEPT}
    lease = task.lease if task.state is State.ACTIVE else None
    return {**job, "state": str(task.state), "lease": lease and list(lease), "rev": rev}


def _task(ident: str, job: dict[str, Any]) -> Task:
    lease = Lease(*job["lease"]) if job.get("lease") else None
    fields = {name: job[name] for name in KEPT}
    return Task(id=ident, state=State(job["state"]), lease=lease, rev=job["rev"], **fields)


def _tasks(jobs: dict[str, dict[str, Any]]) -> tuple[list[Task], list[Problem]]:
    """The jobs in the order of their ids, and those that cannot be read."""
    tasks, problems = list[Task](), list[Problem]()
    for ident, job in sorted(jobs.items()):
        try:
            tasks.append(_task(ident, job))
        except (LookupError, TypeError, ValueError) as error:
            problems.append(Problem(ident, f"not a job: {error!r}"))
    return tasks, problems


def _unchanged(jobs: dict[str, dict[str, Any]], task: Task) -> dict[str, Any]:
    job = jobs.get(task.id)
    if job is None or job["rev"] != task.rev or State(job["state"]) is not task.state:
        raise Gone(f"{task.id} has changed")
    return job


class JobFormat(Format):
    """Files of jobs."""

    name, title = "jobdir", "a file of jobs"

    def detects(self, at: Address) -> bool:
        """By the suffix."""
        return not at.is_url and at.text.endswith(".jobs")

    def open(self, setup: Setup) -> JobStore:
        """Open the file."""
        return JobStore(setup.place)

    def findings(self, setup: Setup) -> Iterator[tuple[str, Finding]]:
        """The checks of every store, and whether the file is fast to read."""
        yield from super().findings(setup)
        size = os.stat(setup.place).st_size
        if size > 10_000_000:
            what = f"{setup.place}: {size:,} bytes are read for each change"
            yield "size", Finding(Grade.WARN, what, "use a queue with a database")


FORMAT = JobFormat()
