"""The MAILQ store: the messages in the threads of a ZMailer scheduler, read by polling."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import groupby, islice

from engine.formats.zmailer.mailq.connection import ServerAddress
from engine.formats.zmailer.mailq_store.controls import SchedulerControls
from engine.formats.zmailer.mailq_store.requests import TaskRequests
from engine.formats.zmailer.mailq_store.source import ThreadPoller, open_source
from engine.formats.zmailer.mailq_store.tasks import (
    STATES,
    WORDS,
    job_lines,
    tasks_of,
    unnamed_jobs,
)
from engine.model import ChangeSource, Missing, Move, Outcome, Part, Problem, State, Task
from engine.override import override
from engine.store import Gone, Outlook, SeenTask, Store, StoreSample, Unavailable, Unsupported

MOVES_PER_BATCH = 100
"""Changes that are made at a time: their threads are read before and after."""
SAMPLE_TASKS = 200
"""Tasks of the first threads that a full scan yields before all in order."""


class MailqStore(Store):
    """Messages in the threads of one scheduler, or in a dump of it."""

    states: Mapping[State, str] = STATES
    words: Mapping[str, State] = WORDS

    def __init__(self, address: ServerAddress, clock: Callable[[], float] = time.time) -> None:
        """Connect and log in. Raises Unavailable: the server cannot be reached, refuses the login,
        or shows no threads."""
        self._address, self._clock = address, clock
        self._source = open_source(address, clock)
        self._requests = TaskRequests(self._source, clock)
        self._controls = SchedulerControls(self._source, address.user)
        self.edges, self.controls = self._controls.edges, self._controls.controls
        self.changes = ChangeSource(wait=ThreadPoller(self._source).wait)

    @override
    def close(self) -> None:
        self._source.close()

    @override
    def scan(self, touched: Collection[str] | None = None) -> Iterator[Task | Missing | Problem]:
        if touched is None:
            yield from self._scan_all()
            return
        by_word = {word: state for state, word in STATES.items()}
        words = {name for name in touched if name in by_word or name in WORDS}
        if words:
            states = {by_word[name] for name in words if name in by_word}
            tasks = (task for some in self._threads() for task in some)
            yield from (task for task in tasks if task.state in states or task.word in words)
        names = sorted({*touched} - words)
        current_tasks = self._requests.read(names)
        for name in names:
            yield current_tasks[name][0] if name in current_tasks else Missing(name)

    def _scan_all(self) -> Iterator[Task | Problem]:
        began, all_tasks, sample_size = time.monotonic(), list[Task](), 0
        problems = list[Problem]()
        for tasks in self._threads(problems):
            if sample_size < SAMPLE_TASKS:
                yield from tasks
                sample_size += len(tasks)
            all_tasks += tasks
        self.changes = self.changes._replace(scan_cost=time.monotonic() - began)
        order = {state: number for number, state in enumerate(STATES)}
        all_tasks.sort(key=lambda task: (order[task.state], task.id))
        yield from all_tasks
        yield from [*problems, *self._source.problems(self._clock())]

    def _threads(self, problems: list[Problem] | None = None) -> Iterator[list[Task]]:
        """The tasks of each thread; a server is asked for one after the other. What cannot be a
        task is added to `problems`."""
        threads = self._source.threads()
        self.expected_tasks = sum(thread.jobs for thread in threads)
        for thread in threads:
            thread_jobs = self._source.jobs(thread.channel, thread.host)
            if problems is not None:
                problems += unnamed_jobs(thread_jobs)
            yield list(tasks_of(thread_jobs, self._clock()))

    @override
    def count_tasks(self) -> dict[State, int]:
        return dict(self.sample(0).counts)

    @override
    def sample(self, number: int) -> StoreSample:
        tasks = [task for some in self._threads() for task in some]
        counts = {state: sum(task.state is state for task in tasks) for state in STATES}
        words = {word: sum(task.word == word for task in tasks) for word in WORDS}
        order = {state: place for place, state in enumerate(STATES)}
        tasks.sort(key=lambda task: (order[task.state], task.id))
        by_state = groupby(tasks, lambda task: task.state)
        first = {id(task) for _, same in by_state for task in islice(same, 3)}
        some = [task for place, task in enumerate(tasks) if place < number or id(task) in first]
        return StoreSample(counts, words, iter(some))

    @override
    def parts(self, task: Task) -> Iterator[Part]:
        size = len(self.read(task))
        yield Part("job", f"{self._address.text} {task.payload}", size)

    @override
    def size(self, task: Task) -> int:
        """Refuse: no server shows the size of a message."""
        self.read(task)
        raise Unavailable("MAILQ does not show sizes")

    @override
    def read(self, task: Task, part: str = "") -> bytes:
        now = self._requests.read([task.id]).get(task.id)
        if now is None or (now[0].state, now[0].rev) != (task.state, task.rev):
            raise Gone(task.id)
        if part not in ("", "job"):
            raise Gone(f"{task.id}: no part {part!r}")
        return job_lines(now[1]).encode("utf-8", "surrogateescape")

    @override
    def verify(self, known_tasks: Iterable[SeenTask]) -> Iterator[Task | Problem]:
        return self._requests.verify(known_tasks)

    @override
    def swap_all(self, moves: Iterable[Move]) -> Iterator[Outcome]:
        waiting = iter(moves)
        while batch := list(islice(waiting, MOVES_PER_BATCH)):
            yield from self._requests.apply(self.edges, batch)

    @override
    def restore_image(self, task: Task, image: bytes, state: State) -> Task:
        raise Unsupported(f"{task.id}: MAILQ cannot restore a message")

    @override
    def control(self, name: str, target: str = "", value: str = "") -> str:
        return self._controls.run(name, target, value)

    @override
    def forecast(self, name: str, target: str = "", value: str = "") -> Outlook:
        return self._controls.forecast(name, target, value)
