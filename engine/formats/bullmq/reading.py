"""Read one job: its image, parts and log, and the start of a key that is no job."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

from engine.formats.bullmq import image
from engine.formats.bullmq.connection import Connection, ScriptCall, nothing, script
from engine.formats.bullmq.place import OUR_PREFIX, RedisPlace, split_id, task_id
from engine.formats.bullmq.row import PLACES, STATES, SeenJob, place_of, read_jobs
from engine.model import Part, Problem, Relative, Relatives, State, Task
from engine.store import MAX_PART_BYTES, PREVIEW_BYTES, Gone, StoreError, Unsupported
from engine.text.safe import safe_line

MAX_LOG_LINES = 10_000
"""Lines of a job's log that are read, the last ones."""
MAX_DEPTH, MAX_BRANCHES = 4, 10
"""Levels of children that are read, and how many of each level have theirs read."""
JOBS_PER_CALL = 100
EFFORT_PER_CALL = 1024 * 1024
"""Jobs that one call of the script reads, and effort (`common.lua`) after which it ends early."""

LONGEST_KEPT_VALUE = 16 * 1024
"""Bytes: jobs with a longer value are read again when their image is asked for."""

_PREVIEWS: Mapping[str, tuple[str, ...]] = {
    "hash": ("HGETALL", "{}"),
    "string": ("GET", "{}"),
    "list": ("LRANGE", "{}", "0", "99"),
    "set": ("SRANDMEMBER", "{}", "99"),
    "zset": ("ZRANGE", "{}", "0", "99", "WITHSCORES"),
}
"""The command that reads the start of a key of each type."""


def _relative_of(place: RedisPlace, row: Sequence[Any], depth: int = 1) -> Relative:
    """A row of `relatives.lua`."""
    key, where, text, is_there = row
    queue, colon, job = key.removeprefix(f"{place.prefix}:").partition(":")
    at = PLACES.get(where)
    word = "" if at is None else at.word or STATES[at.state]
    is_ours = bool(colon) and key.startswith(f"{place.prefix}:")
    return Relative(task_id(queue, job) if is_ours else key, word, safe_line(text), is_there, depth)


class JobReader:
    """Reads single jobs on the connection of a store."""

    def __init__(
        self, connection: Connection, place: RedisPlace, clock: Callable[[], float]
    ) -> None:
        self._connection, self._place, self._clock = connection, place, clock
        self._verified: dict[tuple[str, str], tuple[str, dict[str, str]]] = {}
        """Position and hash of the jobs that were verified last, by id and revision."""

    def _read_job(self, task: Task) -> tuple[image.JobImage, dict[str, str]]:
        """The image of an unchanged task, and its hash."""
        parts = split_id(task.id)
        if parts is None:
            raise Gone(task.id)
        job_and_hash = next(self._read_jobs(parts[0], [(task, parts[1])]))
        if job_and_hash is None:
            raise Gone(task.id)
        return job_and_hash

    def _read_jobs(
        self, queue: str, tasks: Sequence[tuple[Task, str]]
    ) -> Iterator[tuple[image.JobImage, dict[str, str]] | None]:
        """Image and hash of each task of a queue, in order; None if it has changed."""
        words = [(job, place_of(task)) for task, job in tasks]
        for (task, _), answer in zip(tasks, self._answers(queue, words), strict=True):
            if not answer or answer[0] != task.rev:
                yield None
                continue
            fields = _fields_of(answer[2])
            yield image.make_image(task.id, answer[1], fields), fields

    def _answers(
        self,
        queue: str,
        ids_and_places: Sequence[tuple[str, str]],
        longest: int = sys.maxsize,
        meanwhile: Callable[[], object] = nothing,
    ) -> Iterator[list[Any]]:
        """The answer of `job.lua` for each id and place, in order. `meanwhile` is called while the
        server works on the next of them, and must not use the connection."""
        base = [self._place.base(queue), self._place.kept_prefix(queue), EFFORT_PER_CALL, longest]
        done = 0
        while done < len(ids_and_places):
            some = ids_and_places[done : done + JOBS_PER_CALL]
            words = [word for pair in some for word in pair]
            call = ScriptCall(script("job", reads_only=True), [], [*base, *words])
            answers = self._connection.run(call, meanwhile)
            done += len(answers)
            yield from answers

    def verify(
        self, state: State, ids_and_revisions: Collection[tuple[str, str]]
    ) -> Iterator[Task]:
        """Yield the tasks of these ids and revisions; for a state of one sorted set. What was read
        is kept until the next call, for one `read_all`."""
        self._verified.clear()
        place, now = STATES[state], self._clock()
        named = ((split_id(ident), rev) for ident, rev in ids_and_revisions)
        known = sorted((*parts, rev) for parts, rev in named if parts is not None)
        for queue, group in groupby(known, itemgetter(0)):
            yield from self._verify_in(queue, place, [(job, rev) for _, job, rev in group], now)

    def _verify_in(
        self, queue: str, place: str, jobs_and_revisions: Sequence[tuple[str, str]], now: float
    ) -> list[Task]:
        """The tasks of one queue; those of a page are made while the server reads the next one."""
        tasks, answered = list[Task](), list[tuple[str, str, Any]]()

        def make_tasks() -> None:
            jobs = self._unchanged_jobs(queue, place, answered)
            items = read_jobs(self._place, queue, jobs, now)
            tasks.extend(item for item in items if isinstance(item, Task))
            answered.clear()

        words = [(job, place) for job, _ in jobs_and_revisions]
        answers = self._answers(queue, words, LONGEST_KEPT_VALUE, make_tasks)
        for (job, rev), answer in zip(jobs_and_revisions, answers, strict=True):
            answered.append((job, rev, answer))
        make_tasks()
        return tasks

    def _unchanged_jobs(
        self, queue: str, place: str, answered: Iterable[tuple[str, str, Any]]
    ) -> Iterator[SeenJob]:
        """Of ids, revisions and answers of `job.lua`: the jobs that still have their revision."""
        for job, rev, answer in answered:
            if not answer or answer[0] != rev:
                continue
            _, was, flat, need, is_cut, score = answer
            fields = _fields_of(flat)
            more = {"was": was} if PLACES[place].is_ours else {need: True} if need else {}
            yield SeenJob(job, place, score, rev, fields=fields, more=more)
            if not is_cut:
                self._verified[task_id(queue, job), rev] = was, fields

    def read_all(self, tasks: Iterable[Task]) -> Iterator[bytes | StoreError]:
        """Read the images of tasks, many in one script call."""
        for queue, group in groupby(tasks, lambda task: (split_id(task.id) or ("", ""))[0]):
            some = list(group)
            others = [t for t in some if (t.id, t.rev) not in self._verified]
            read = self._read_jobs(queue, [(t, (split_id(t.id) or ("", ""))[1]) for t in others])
            for task in some:
                if verified := self._verified.pop((task.id, task.rev), None):
                    job_image = image.make_image(task.id, *verified)
                elif (job := next(read)) is not None:
                    job_image = job[0]
                else:
                    yield Gone(task.id)
                    continue
                yield job_image.encode()[:MAX_PART_BYTES]

    def _key(self, task: Task) -> str:
        queue, job = split_id(task.id) or ("", "")
        if PLACES[place_of(task)].is_ours:
            return f"{self._place.kept_prefix(queue)}job:{job}"
        return f"{self._place.base(queue)}{job}"

    def relatives(self, task: Task, limit: int) -> Relatives:
        """Read the job that waits for a job, and the first of those that it waits for."""
        answer = self._connection.run(self._relatives_call(self._key(task), limit))
        parent, total, rows = json.loads(answer)
        children = tuple(self._below(rows or (), 1))
        return Relatives(_relative_of(self._place, parent) if parent else None, children, total)

    def _relatives_call(self, key: str, limit: int) -> ScriptCall:
        words = [self._place.prefix, f"{OUR_PREFIX}:", key, limit]
        return ScriptCall(script("relatives", reads_only=True), [], words)

    def _below(self, rows: Sequence[Sequence[Any]], depth: int) -> Iterator[Relative]:
        """Yield the jobs of rows, and below each of the first ones its own children."""
        some = [row[0] for row in rows[:MAX_BRANCHES] if row[3]] if depth < MAX_DEPTH else []
        calls = [self._relatives_call(key, MAX_BRANCHES) for key in some]
        answers = dict(zip(some, self._connection.run_all(calls) if calls else (), strict=True))
        for row in rows:
            yield _relative_of(self._place, row, depth)
            answer = answers.get(row[0])
            if isinstance(answer, str):
                yield from self._below(json.loads(answer)[2] or (), depth + 1)

    def parts(self, task: Task) -> Iterator[Part]:
        """Yield the job, its data, options, return value, stack traces and log."""
        job_image, fields = self._read_job(task)
        key = self._key(task)
        yield from image.list_parts(key, job_image.encode(), fields)
        if self._connection.call("EXISTS", f"{key}:logs"):
            yield Part(image.LOGS_PART, f"{key}:logs", len(self._read_log(key)))

    def read(self, task: Task, part: str = "") -> bytes:
        """Return the job as JSON, or one of its fields, or its log."""
        job_image, fields = self._read_job(task)
        if part in ("", image.JOB_PART):
            return job_image.encode()[:MAX_PART_BYTES]
        data = image.field_part(fields, part)
        if data is None and part == image.LOGS_PART:
            data = self._read_log(self._key(task)) or None
        if data is None:
            raise Gone(f"{task.id} has no part {part!r}")
        return data

    def read_data(self, task: Task) -> bytes:
        """Return all data of a claimed job, for its handler.

        Raises:
            Gone: it is not there.
        """
        data = self._connection.call("HGET", self._key(task), "data")
        if data is None:
            raise Gone(f"{task.id} has no data")
        return image.to_bytes(data)

    def _read_log(self, key: str) -> bytes:
        try:
            lines = self._connection.call("LRANGE", f"{key}:logs", -MAX_LOG_LINES, -1)
        except Unsupported:  # its key is no list
            return b""
        return image.to_bytes("\n".join(lines))[:MAX_PART_BYTES]

    def restore_image(self, task: Task, image_bytes: bytes, state: State) -> Task:
        """Return the job described by an image, without its lock."""
        was = image.parse_image(image_bytes)
        parts = split_id(task.id)
        if was.id != task.id or parts is None:
            raise Unsupported(f"the image is not of {task.id}")
        first = next(name for name, at in PLACES.items() if at.state is state)
        place = was.place if was.state is state else first
        more = {"was": f"{was.place} {was.position}"} if PLACES[place].is_ours else {}
        job = SeenJob(parts[1], place, was.position, task.rev, fields=was.fields, more=more)
        restored = read_jobs(self._place, parts[0], [job], self._clock())
        if not restored or not isinstance(restored[0], Task):
            raise Unsupported(f"{task.id}: its image has no job")
        return restored[0]

    def preview_problem(self, problem: Problem) -> bytes:
        """Return the first bytes of a key."""
        name, _, _ = problem.where.partition(" ")
        parts = split_id(name)
        key = f"{self._place.base(parts[0])}{parts[1]}" if parts else name
        kind = self._connection.call("TYPE", key)
        if kind not in _PREVIEWS:
            raise Gone(problem.where)
        lines = self._connection.call(*(word.format(key) for word in _PREVIEWS[kind]))
        lines = [lines] if isinstance(lines, str) else lines
        items = lines.items() if isinstance(lines, dict) else lines
        texts = (": ".join(map(str, i)) if isinstance(i, tuple) else str(i) for i in items)
        return image.to_bytes("\n".join(texts))[:PREVIEW_BYTES]


def _fields_of(flat: Sequence[str]) -> dict[str, str]:
    return dict(zip(flat[::2], flat[1::2], strict=True))
