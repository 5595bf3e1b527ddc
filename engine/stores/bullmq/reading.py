"""Read one job: its image, parts and log, and the start of a key that is no job."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from engine.model import Part, Problem, Relative, Relatives, State, Task
from engine.store import MAX_PART_BYTES, PREVIEW_BYTES, Gone, StoreError, Unsupported
from engine.stores.bullmq import image
from engine.stores.bullmq.connection import Connection, ScriptCall, script
from engine.stores.bullmq.place import OUR_PREFIX, RedisPlace, split_id, task_id
from engine.stores.bullmq.row import PLACES, STATES, place_of, read_rows
from engine.text.safe import safe_line

MAX_LOG_LINES = 10_000
"""Lines of a job's log that are read, the last ones."""
JOBS_PER_CALL = 100
BYTES_PER_CALL = 1024 * 1024
"""Jobs that one call of the script reads, and bytes after which it ends early."""

_PREVIEWS: Mapping[str, tuple[str, ...]] = {
    "hash": ("HGETALL", "{}"),
    "string": ("GET", "{}"),
    "list": ("LRANGE", "{}", "0", "99"),
    "set": ("SRANDMEMBER", "{}", "99"),
    "zset": ("ZRANGE", "{}", "0", "99", "WITHSCORES"),
}
"""The command that reads the start of a key of each type."""


class JobReader:
    """Reads single jobs on the connection of a store."""

    def __init__(
        self, connection: Connection, place: RedisPlace, clock: Callable[[], float]
    ) -> None:
        self._connection, self._place, self._clock = connection, place, clock

    def _read_job(self, task: Task) -> tuple[image.JobImage, dict[str, str]]:
        """The image of an unchanged task, and its hash."""
        parts = split_id(task.id)
        if parts is None:
            raise Gone(task.id)
        found = next(self._read_jobs(parts[0], [(task, parts[1])]))
        if found is None:
            raise Gone(task.id)
        return found

    def _read_jobs(
        self, queue: str, wanted: Sequence[tuple[Task, str]]
    ) -> Iterator[tuple[image.JobImage, dict[str, str]] | None]:
        """Image and hash of each task of a queue, in order; None if it has changed."""
        base = [self._place.base(queue), self._place.kept(queue), BYTES_PER_CALL]
        done = 0
        while done < len(wanted):
            some = wanted[done : done + JOBS_PER_CALL]
            words = [word for task, job in some for word in (job, place_of(task))]
            call = ScriptCall(script("job", reads_only=True), [], [*base, *words])
            answers = self._connection.run(call)
            done += len(answers)
            for (task, _), answer in zip(some, answers, strict=False):
                if not answer or answer[0] != task.rev:
                    yield None
                    continue
                _, was, flat = answer
                fields = dict(zip(flat[::2], flat[1::2], strict=True))
                yield image.make_image(task.id, was, fields), fields

    def read_all(self, tasks: Iterable[Task]) -> Iterator[bytes | StoreError]:
        """Read the images of tasks, many in one script call."""
        for queue, some in groupby(tasks, lambda task: (split_id(task.id) or ("", ""))[0]):
            wanted = [(task, (split_id(task.id) or ("", ""))[1]) for task in some]
            for (task, _), found in zip(wanted, self._read_jobs(queue, wanted), strict=True):
                yield Gone(task.id) if found is None else found[0].encode()[:MAX_PART_BYTES]

    def _key(self, task: Task) -> str:
        queue, job = split_id(task.id) or ("", "")
        if PLACES[place_of(task)].is_ours:
            return f"{self._place.kept(queue)}job:{job}"
        return f"{self._place.base(queue)}{job}"

    def relatives(self, task: Task, limit: int) -> Relatives:
        """Read the job that waits for a job, and the first of those that it waits for."""
        words = [self._place.prefix, f"{OUR_PREFIX}:", self._key(task), limit]
        answer = self._connection.run(ScriptCall(script("relatives", reads_only=True), [], words))
        parent, total, rows = json.loads(answer)
        children = tuple(self._relative(row) for row in rows or ())
        return Relatives(self._relative(parent) if parent else None, children, total)

    def _relative(self, row: Sequence[Any]) -> Relative:
        key, where, text, is_there = row
        queue, colon, job = key.removeprefix(f"{self._place.prefix}:").partition(":")
        place = PLACES.get(where)
        word = "" if place is None else place.word or STATES[place.state]
        is_ours = bool(colon) and key.startswith(f"{self._place.prefix}:")
        return Relative(task_id(queue, job) if is_ours else key, word, safe_line(text), is_there)

    def parts(self, task: Task) -> Iterator[Part]:
        """Yield the job, its data, options, return value, stack traces and log."""
        found, fields = self._read_job(task)
        key = self._key(task)
        yield from image.list_parts(task, key, found.encode(), fields)
        if self._connection.call("EXISTS", f"{key}:logs"):
            yield Part(image.LOGS_PART, f"{key}:logs", len(self._read_log(key)))

    def size(self, task: Task) -> int:
        """Return the bytes of all parts."""
        return sum(part.size or 0 for part in self.parts(task))

    def read(self, task: Task, part: str = "") -> bytes:
        """Return the job as JSON, or one of its fields, or its log."""
        found, fields = self._read_job(task)
        if part in ("", image.JOB_PART):
            return found.encode()[:MAX_PART_BYTES]
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
        place = (
            was.place
            if was.state is state
            else next(n for n, at in PLACES.items() if at.state is state)
        )
        get = was.fields.get
        values = [get(name) for name in ("timestamp", "priority", "atm")]
        more = {"was": f"{was.place} {was.position}"} if PLACES[place].is_ours else {}
        row: list[Any] = [parts[1], place, was.position, task.rev, get("name", ""), *values]
        row += [False, get("failedReason", ""), False, False, more]
        restored = read_rows(self._place, parts[0], [row], self._clock())
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
        items = (
            lines.items()
            if isinstance(lines, dict)
            else [lines]
            if isinstance(lines, str)
            else lines
        )
        texts = (": ".join(map(str, i)) if isinstance(i, tuple) else str(i) for i in items)
        return image.to_bytes("\n".join(texts))[:PREVIEW_BYTES]
