"""Controls of each queue: pause, concurrency, rate."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from engine.store import Control, StoreError, Unsupported
from engine.stores.bullmq.connection import Connection, ScriptCall, plain_script
from engine.stores.bullmq.package_scripts import PACKAGE_SCRIPTS
from engine.stores.bullmq.place import RedisPlace

MAX_CONCURRENCY = 1_000_000
MAX_RATE = 1_000_000_000
RESUME_BATCH = 7000
"""Jobs that one resume moves back at most from the list of a queue that BullMQ 5 paused."""

NO_LIMIT = "0"
PAUSE, CONCURRENCY, RATE = "pause", "concurrency", "rate"
_SETTINGS = ("paused", "concurrency", "max", "duration")


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
    """The controls of all queues, each named KIND:QUEUE.

    Raises:
        StoreError: the server cannot be read.
    """
    asked = [("HMGET", f"{place.base(queue)}meta", *_SETTINGS) for queue in queues]
    answers = connection.call_all(asked) if asked else []
    found: dict[str, Control] = {}
    for queue, answer in zip(queues, answers, strict=True):
        if isinstance(answer, StoreError):
            continue  # the key has another type: the scan reports it
        paused, concurrency, most, duration = answer
        per_minute = _per_minute(most, duration)
        found[f"{PAUSE}:{queue}"] = Control(
            f"let workers take jobs of {queue}",
            value="0 to resume, 1 to pause",
            now="1" if paused else "0",
            choices=(("0", "resume"), ("1", "pause: jobs wait")),
            refusal=refusal,
            is_pause=len(queues) == 1,
        )
        found[f"{CONCURRENCY}:{queue}"] = Control(
            f"jobs of {queue} that run at the same time, on all workers",
            value=f"jobs, {NO_LIMIT} for no limit",
            now=concurrency or NO_LIMIT,
            bounds=(0, MAX_CONCURRENCY),
            refusal=refusal,
        )
        found[f"{RATE}:{queue}"] = Control(
            f"jobs of {queue} that start in a minute, on all workers",
            value=f"jobs a minute, {NO_LIMIT} for no limit",
            now=per_minute,
            bounds=(0, MAX_RATE),
            refusal=refusal,
        )
    return found


def _per_minute(most: str | None, duration: str | None) -> str:
    """The rate of a queue in jobs a minute."""
    try:
        return str(round(int(most or 0) * 60_000 / int(duration or 0)))
    except (ValueError, ZeroDivisionError):
        return NO_LIMIT


def run_control(
    connection: Connection,
    place: RedisPlace,
    controls: Mapping[str, Control],
    name: str,
    value: str,
) -> str:
    """Run one control; return what was done.

    Raises:
        Unsupported: no such control, it is refused, or the value is invalid.
        StoreError: the server cannot be changed.
    """
    control = controls.get(name)
    if control is None:
        raise Unsupported(f"no control {name!r} here")
    if control.refusal:
        raise Unsupported(control.refusal)
    kind, _, queue = name.partition(":")
    if kind == PAUSE:
        if value not in dict(control.choices):
            raise Unsupported(f"{name} is {value!r:.40}, expected 0 or 1")
        return _pause(connection, place, queue, value == "1")
    if not value.isascii() or not value.isdecimal() or int(value[:20]) > MAX_RATE:
        raise Unsupported(f"{name} is {value!r:.40}, expected a number of at least 0")
    number = int(value)
    meta = f"{place.base(queue)}meta"
    fields: tuple[Any, ...] = ("concurrency", number)
    if kind == RATE:
        fields = ("max", number, "duration", 60_000)
    if number:
        connection.call("HSET", meta, *fields)
    else:
        connection.call("HDEL", meta, *fields[::2])
    limit = str(number) if number else "no limit"
    return (
        f"{queue}: {limit} at the same time"
        if kind == CONCURRENCY
        else f"{queue}: {limit} a minute"
    )


def _pause(connection: Connection, place: RedisPlace, queue: str, paused: bool) -> str:
    name = "pause" if paused else "resume"
    call = ScriptCall(
        plain_script(name),
        PACKAGE_SCRIPTS[name].key_names(place.base(queue)),
        list(PACKAGE_SCRIPTS[name].arguments),
    )
    while int(connection.run(call) or 0) > 0:
        pass  # more than RESUME_BATCH jobs are in the list of BullMQ 5
    return f"{queue} is paused: jobs wait" if paused else f"{queue} runs"
