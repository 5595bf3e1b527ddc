"""Change tasks by KILL MSG and ETRN. The answer of a server proves nothing: the threads are read
again, and that decides.

A request affects more than one task: a message in all its threads, a host with all its messages. So
it is sent once for all of them. A plan has all of them as rows, but passes them in batches; what an
earlier batch has changed is verified as it was planned, and its outcome is what is there now.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence

from engine.formats.zmailer.mailq.queue_view import JobView, JobWait
from engine.formats.zmailer.mailq_store.source import ThreadSource
from engine.formats.zmailer.mailq_store.tasks import TaskName, named_jobs, parse_id, tasks_of
from engine.model import Edges, Move, Outcome, State, Task, accept_only_now
from engine.store import Gone, SeenTask, StoreError, Unavailable, Unsupported, require_edge
from engine.values import NamedTuple

REQUEST_SECONDS = 60.0
"""Seconds for which the tasks of a request are verified as they were planned."""


class SentRequest(NamedTuple):
    """A request that was sent."""

    at: float
    """Monotonic seconds."""
    answered: set[str]
    """The ids of the tasks that have had their outcome."""


class TaskRequests:
    """Verifies and changes tasks at one server."""

    def __init__(self, source: ThreadSource, clock: Callable[[], float]) -> None:
        self._source, self._clock = source, clock
        self._sent: dict[str, SentRequest] = {}

    def read(self, names: Iterable[str]) -> dict[str, tuple[Task, JobView]]:
        """The tasks with these ids that are there, each with its job; one request a thread."""
        idents = {ident for ident in names if parse_id(ident)}
        threads = {parts[:2] for ident in idents if (parts := parse_id(ident))}
        tasks_by_id = dict[str, tuple[Task, JobView]]()
        for channel, host in sorted(threads):
            try:
                jobs = self._source.jobs(channel, host)
            except Unsupported:
                continue  # no server has threads with such names
            tasks = tasks_of(jobs, self._clock())
            for task, job in zip(tasks, named_jobs(jobs), strict=True):
                if task.id in idents:
                    tasks_by_id[task.id] = task, job
        return tasks_by_id

    def verify(self, known_tasks: Iterable[SeenTask]) -> Iterator[Task]:
        """See `ChangeableStore.verify`."""
        expected = list(dict.fromkeys(known_tasks))
        current_tasks = self.read(ident for ident, _, _ in expected)
        for ident, state, rev in expected:
            task = current_tasks[ident][0] if ident in current_tasks else None
            if task is not None and (task.state, task.rev) == (state, rev):
                yield task
            elif (name := parse_id(ident)) and self._was_sent(ident, name, state):
                yield _planned_task(ident, name, state, rev)

    def _was_sent(self, ident: str, name: TaskName, state: State) -> bool:
        """True if a request for another task of this plan has affected this one, which has had no
        outcome yet."""
        commands = [_kill(name.path), *([_start(name.host)] if state is State.PENDING else [])]
        sent = [self._sent[command] for command in commands if command in self._sent]
        now = time.monotonic()
        return any(now - one.at < REQUEST_SECONDS and ident not in one.answered for one in sent)

    def apply(self, edges: Edges, moves: Sequence[Move]) -> list[Outcome]:
        """Make some changes: each request once, then read what is there."""
        outcomes: dict[int, Outcome] = {}
        by_command: dict[str, list[int]] = {}
        olds = {move.old.id: move.old for move in moves if move.old is not None}
        current_tasks = self.read(olds)
        for number, move in enumerate(moves):
            try:
                command = self._command(edges, move, current_tasks)
            except StoreError as error:
                outcomes[number] = Outcome(move, error=error)
            else:
                by_command.setdefault(command, []).append(number)
        for command, numbers in by_command.items():
            some = [moves[number] for number in numbers]
            outcomes |= zip(numbers, self._request(command, some, current_tasks), strict=True)
        return [outcomes[number] for number in range(len(moves))]

    def _command(
        self, edges: Edges, move: Move, current_tasks: dict[str, tuple[Task, JobView]]
    ) -> str:
        """The request for a change. Raises Unsupported: there is none; Gone: the task has changed,
        and not by a request of this plan."""
        old, new = move.old, move.new
        require_edge(edges, old, new, self._clock(), whole=bool(move.image))
        name = parse_id(old.id) if old is not None else None
        if old is None or name is None:
            raise Gone("no id of a message in a thread")
        if new is not None and (why := accept_only_now("due", new.due, self._clock())):
            raise Unsupported(why)
        if not _is_as_seen(old, current_tasks) and not self._was_sent(old.id, name, old.state):
            raise Gone(f"{old.id}: changed")
        return _kill(name.path) if new is None else _start(name.host)

    def _request(
        self, command: str, moves: Sequence[Move], current_tasks: dict[str, tuple[Task, JobView]]
    ) -> Iterator[Outcome]:
        """Send a request, unless it has already done all, and read the tasks again."""
        ids = [move.old.id for move in moves if move.old is not None]
        error: StoreError | None = None
        answer = ""
        # A task that is due already is started again, but not by each batch of a plan.
        if not all(_is_done(move, current_tasks) for move in moves) or any(
            _is_as_seen(move.old, current_tasks) for move in moves
        ):
            self._sent[command] = SentRequest(time.monotonic(), set())
            try:
                answer = self._source.request(command)
            except StoreError as why:
                error = why
            current_tasks = self.read(ids)
        if command in self._sent:
            self._sent[command].answered.update(ids)
        for move in moves:
            if _is_done(move, current_tasks):
                yield Outcome(move, rev=_revision(move, current_tasks))
            else:
                what = f"{command}: answered {answer!r}, but the task is as before"
                yield Outcome(move, error=error or Unavailable(what))


def _is_as_seen(old: Task | None, current_tasks: dict[str, tuple[Task, JobView]]) -> bool:
    now = current_tasks.get(old.id) if old else None
    if old is None or now is None:
        return False
    return (now[0].state, now[0].rev) == (old.state, old.rev)


def _is_done(move: Move, current_tasks: dict[str, tuple[Task, JobView]]) -> bool:
    """True if a task is gone as wanted; or was started: due, running or delivered."""
    now = current_tasks.get(move.old.id) if move.old else None
    if now is None:
        return True
    return move.new is not None and now[1].wait is not JobWait.RETRY


def _revision(move: Move, current_tasks: dict[str, tuple[Task, JobView]]) -> str:
    now = current_tasks.get(move.old.id) if move.old and move.new else None
    return now[0].rev if now else ""


def _planned_task(ident: str, name: TaskName, state: State, rev: str) -> Task:
    """A task that a request has changed since, as far as its plan knows it."""
    queue = f"{name.channel}/{name.host}"
    return Task(
        ident,
        name.channel,
        state,
        created=0.0,
        queue=queue,
        group=name.host,
        due=None,
        payload=name.path,
        rev=rev,
    )


def _kill(path: str) -> str:
    return f"KILL MSG {path}"


def _start(host: str) -> str:
    return f"ETRN {host}"
