"""Controls: pause, concurrency, rate, obliterate; each acts on one queue, its target."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from engine.formats.bullmq.connection import Connection, ScriptCall, script
from engine.formats.bullmq.moves import JobMoves
from engine.formats.bullmq.package_scripts import PACKAGE_SCRIPTS
from engine.formats.bullmq.place import RedisPlace
from engine.formats.bullmq.scan import QueueCounts, find_orphans
from engine.schedules import format_seconds
from engine.store import Control, ControlTarget, Gone, StoreError, Unsupported
from engine.text.durations import parse_duration

MAX_CONCURRENCY = 1_000_000
MAX_RATE = 1_000_000_000
MINUTE_MS = 60_000
RESUME_BATCH = 7000
"""Jobs that one resume moves back at most from the list of a queue that BullMQ 5 paused."""

NO_LIMIT = "0"
PAUSE, CONCURRENCY, RATE, OBLITERATE = "pause", "concurrency", "rate", "obliterate"
RECOVER = "recover"
_SETTINGS = ("paused", "concurrency", "max", "duration", "version")
_WITHOUT_LIMITS = ("bullmq:3.", "bullmq:4.")
"""Versions whose workers know no limit of a queue."""

CONTROLS: Mapping[str, Control] = {
    PAUSE: Control(
        "stop or restart the jobs of a queue",
        target="queue",
        value="0 to resume, 1 to pause",
        choices=(("0", "jobs run"), ("1", "pause: jobs wait")),
        is_pause=True,
    ),
    CONCURRENCY: Control(
        "jobs of a queue that run at the same time, on all workers",
        target="queue",
        value=f"jobs, {NO_LIMIT} for no limit",
        bounds=(0, MAX_CONCURRENCY),
        no_limit=NO_LIMIT,
    ),
    RATE: Control(
        "jobs of a queue that start in a minute or another time, on all workers",
        target="queue",
        value=f"jobs a minute, or in another time as 4/1s; {NO_LIMIT} for no limit",
        no_limit=NO_LIMIT,
    ),
    OBLITERATE: Control(
        "delete a queue without jobs: its settings, counter and events", target="queue"
    ),
    RECOVER: Control(
        "put jobs of a queue back that are in none of its lists and sets", target="queue"
    ),
}
"""Each control without its queues."""


class LazyControls(Mapping[str, Control]):
    """Controls that are read when one asks for them: to find all queues takes a SCAN."""

    def __init__(self, read: Callable[[], Mapping[str, Control]]) -> None:
        self._read = cache(read)

    def __getitem__(self, name: str) -> Control:
        return self._read()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._read())

    def __len__(self) -> int:
        return len(self._read())


def list_controls(
    connection: Connection, place: RedisPlace, queues: Sequence[str], refusal: str
) -> Mapping[str, Control]:
    """The controls, each with all queues as targets; none without a queue.

    Raises:
        StoreError: the server cannot be read.
    """
    asked = [("HMGET", f"{place.base(queue)}meta", *_SETTINGS) for queue in queues]
    answers = connection.call_all(asked) if asked else []
    counts = QueueCounts(connection, place, queues).queues
    values: dict[str, list[ControlTarget]] = {name: [] for name in CONTROLS}
    for queue, answer in zip(queues, answers, strict=True):
        if isinstance(answer, StoreError):
            continue  # the key has another type: the scan reports it
        paused, concurrency, most, duration, version = answer
        has_none = (version or "").startswith(_WITHOUT_LIMITS)
        none = f"workers of {version} know no limit of a queue" if has_none else ""
        now = ("1" if paused else "0", concurrency or NO_LIMIT, _rate(most, duration))
        for name, value in zip(CONTROLS, now, strict=False):
            values[name].append(ControlTarget(queue, value, none if name != PAUSE else ""))
        jobs = sum(map(abs, counts[queue].values()))
        why = f"jobs in it: {jobs:,}; purge and expunge them first" if jobs else ""
        values[OBLITERATE].append(ControlTarget(queue, refusal=why))
        values[RECOVER].append(ControlTarget(queue))
    return {
        name: control._replace(refusal=refusal, targets=tuple(values[name]))
        for name, control in CONTROLS.items()
        if values[name]
    }


def _rate(most: str | None, duration: str | None) -> str:
    """The rate of a queue as a value of the control: 240 (a minute), or 4/1s."""
    try:
        jobs, milliseconds = int(most or 0), int(duration or 0)
    except ValueError:
        return NO_LIMIT
    if jobs <= 0 or milliseconds <= 0:
        return NO_LIMIT
    span = "" if milliseconds == MINUTE_MS else f"/{format_seconds(milliseconds / 1000)}"
    return f"{jobs}{span}"


def _parse_rate(text: str) -> tuple[int, int]:
    """Jobs and milliseconds of a value of the control.

    Raises:
        Unsupported: it is none.
    """
    jobs, _, span = text.partition("/")
    try:
        milliseconds = round(parse_duration(span, "s") * 1000) if "/" in text else MINUTE_MS
    except ValueError:
        milliseconds = 0
    is_number = jobs.isascii() and jobs.isdecimal() and len(jobs) <= len(str(MAX_RATE))
    if not is_number or int(jobs) > MAX_RATE or milliseconds <= 0:
        expected = f"expected a number of jobs a minute up to {MAX_RATE:,}, or as 4/1s"
        raise Unsupported(f"rate is {text!r:.40}, {expected}")
    return int(jobs), milliseconds


def run_control(
    connection: Connection,
    place: RedisPlace,
    controls: Mapping[str, Control],
    name: str,
    queue: str,
    value: str,
) -> str:
    """Run one control on a queue; return what was done.

    Raises:
        Unsupported: no such control or queue, it is refused, or the value is invalid.
        StoreError: the server cannot be changed.
    """
    if name not in controls:
        raise Unsupported(f"no control {name!r} here")
    if queue not in {one.name for one in controls[name].targets}:
        raise Unsupported(f"{name}: no queue {queue!r:.40} here")
    control = controls[name].for_target(queue)
    if control.refusal:
        raise Unsupported(control.refusal)
    if name == PAUSE:
        if value not in dict(control.choices):
            raise Unsupported(f"{name} is {value!r:.40}, expected 0 or 1")
        return _pause(connection, place, queue, value == "1")
    if name == RECOVER:
        return _recover(connection, place, queue)
    if name == OBLITERATE:
        return _obliterate(connection, place, queue)
    meta = f"{place.base(queue)}meta"
    if name == RATE:
        jobs, milliseconds = _parse_rate(value)
        fields: tuple[Any, ...] = ("max", jobs, "duration", milliseconds)
        minute = milliseconds == MINUTE_MS
        span = "a minute" if minute else f"in {format_seconds(milliseconds / 1000)}"
    else:
        least, most = control.bounds or (0, 0)
        if not value.isascii() or not value.isdecimal() or not least <= int(value[:20]) <= most:
            raise Unsupported(f"{name} is {value!r:.40}, expected a number from {least} to {most}")
        jobs, span = int(value), "at the same time"
        fields = ("concurrency", jobs)
    if jobs:
        connection.call("HSET", meta, *fields)
    else:
        connection.call("HDEL", meta, *fields[::2])
    return f"{queue}: {f'{jobs} {span}' if jobs else f'no limit {span}'}"


def _pause(connection: Connection, place: RedisPlace, queue: str, paused: bool) -> str:
    name, base = "pause" if paused else "resume", place.base(queue)
    keys, words = PACKAGE_SCRIPTS[name].key_names(base), PACKAGE_SCRIPTS[name].arguments
    call = ScriptCall(script("pause", package=name), keys, [base, *words])
    is_unfinished = 1
    while is_unfinished:  # more than RESUME_BATCH jobs are in the list of BullMQ 5
        is_unfinished, *why = connection.run(call)
        if why:
            raise Unsupported(f"{queue}: {why[0]}")
    return f"{queue} is paused: jobs wait" if paused else f"{queue} runs"


def _obliterate(connection: Connection, place: RedisPlace, queue: str) -> str:
    keys = PACKAGE_SCRIPTS["obliterate"].key_names(place.base(queue))
    given = [place.base(queue), place.kept_prefix(queue), place.queues_key, queue]
    call = ScriptCall(script("obliterate", package="obliterate"), keys, given)
    where, *number = connection.run(call)
    if number:
        raise Unsupported(f"{queue} has jobs in {where}: {number[0]:,}")
    return f"{queue} is deleted"


def _recover(connection: Connection, place: RedisPlace, queue: str) -> str:
    jobs = find_orphans(connection, place, queue)
    errors = JobMoves(connection, place).put_back(queue, jobs, time.time())
    failed = [e for e in errors if e is not None and not isinstance(e, Gone)]
    if failed:
        raise Unsupported(f"{queue}: {len(failed):,} jobs are still in no list: {failed[0]}")
    return f"{queue}: {errors.count(None):,} jobs are in a list again"
