"""Job schedulers and repeatable jobs of BullMQ as schedules: rule, last and next run, problems.

A schedule is a member of the sorted set `repeat`; its score is the time of its next run. There are
two kinds. A job scheduler (version 5 and 6) has a hash `repeat:KEY`, in which `ic` is the number of
its runs. A repeatable job has no `ic`: in version 5 it has a hash, in 3 and 4 none, and its key is
NAME:ID:END:ZONE:PATTERN. The options of the next run's job contain the number of that run.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from typing import Any

from engine.formats.bullmq.connection import Connection, ScriptCall, pack, script
from engine.formats.bullmq.image import LONG_FIELD_BYTES, to_bytes
from engine.formats.bullmq.place import RedisPlace, task_id
from engine.formats.bullmq.repeats import (
    as_millis,
    is_repeatable_key,
    next_match,
    repeatable_id,
)
from engine.places.schedules import Schedule
from engine.schedules import format_seconds
from engine.text.safe import safe_line
from engine.text.times import format_time
from engine.values import NamedTuple

MAX_READS = 20
"""How often a schedule is read again because one of its runs has started."""
PAGE_SCHEDULES = 100
"""Schedules that one script reads."""
MAX_NUMBER = 10**16
"""Of milliseconds and of runs: the year 318,000."""
MAX_SCHEDULES = 100_000
"""Schedules that are read of a queue."""
DELAYED, BEGUN, ENDED, UNSURE = "delayed", "begun", "ended", "unsure"
"""Where the job of the next run is: not due yet; it waits or runs; it has finished; not found,
though it may exist. "" if it does not exist."""
_LONG = " sha1"
"""Suffix of the name of a field that has the SHA-1 of its text in place of the text."""


class StoredSchedule(NamedTuple):
    """What a server stores about a schedule; also the image for an undo."""

    queue: str
    key: str
    major: str
    """Major version of its queue, or what the queue has instead."""
    version: str
    """The version that the queue names; "" without one."""
    score: str
    """When its next run is due, epoch milliseconds; "" if the schedule is not there."""
    hash: Mapping[str, str]
    broken: str
    """Why a hash of it cannot be read; "" if all can that are there."""
    job: str
    """The id of the job of its next run."""
    place: str
    fields: Mapping[str, str]
    """The hash of that job."""
    delayed: str
    """The score of that job in `delayed`; "" if it is not in there."""
    seen: str
    """SHA-1 of all of this on the server."""
    asked: str
    """The time of the run whose job was read, as `score`."""

    @property
    def id(self) -> str:
        """QUEUE/KEY."""
        return task_id(self.queue, self.key)

    @property
    def exists(self) -> bool:
        """True if there is such a schedule."""
        return bool(self.score)

    @property
    def is_late(self) -> bool:
        """True if its job was looked up for another time than that of its next run."""
        return self.exists and _text_of(self.score) != self.asked

    @property
    def is_scheduler(self) -> bool:
        """True for a job scheduler, false for a repeatable job."""
        return "ic" in self.hash

    @property
    def goes_on(self) -> bool:
        """True if a worker adds the run after its next one."""
        return self.place in (DELAYED, BEGUN)

    @property
    def due(self) -> int:
        """When its next run is due, epoch milliseconds; 0 if that is no time."""
        score = float(self.score or 0)
        return round(score) if abs(score) < MAX_NUMBER else 0


class Rule(NamedTuple):
    """When a schedule runs; times in epoch milliseconds."""

    name: str
    pattern: str = ""
    every: int | None = None
    zone: str = ""
    limit: int | None = None
    start: int | None = None
    end: int | None = None
    number: int | None = None
    """The number of its next run, from 1; None: not known."""
    problem: str = ""
    """What of it cannot be read."""

    def text(self) -> str:
        """`0 9 * * *`, `every 10m`; `?` if it is not known."""
        every = f"every {format_seconds(self.every / 1000)}" if self.every else "?"
        return self.pattern or every


def read_options(fields: Mapping[str, str]) -> dict[str, Any]:
    """The field `opts` of a hash.

    Raises:
        ValueError, RecursionError: it is no JSON object, or very long.
    """
    if "opts" + _LONG in fields or len(fields.get("opts", "")) > LONG_FIELD_BYTES:
        raise ValueError(f"they are longer than {LONG_FIELD_BYTES:,} bytes")
    options = json.loads(fields.get("opts") or "{}")
    if not isinstance(options, dict):
        raise ValueError("they are no object")
    return options


def _whole(value: object) -> int | None:
    number = None if value is None or value == "" else float(str(value))
    if number is not None and (abs(number) > MAX_NUMBER or number != int(number)):
        raise ValueError(f"{value!r:.40} is no whole number")
    return None if number is None else int(number)


def read_rule(one: StoredSchedule) -> Rule:
    """The rule of a schedule: of its hash, else of the options of its next run, else of its key."""
    name = one.hash.get("name") or one.fields.get("name", "")
    problem, repeat = "", dict[str, Any]()
    try:
        found = read_options(one.fields).get("repeat") or {}
        repeat = dict(found) if isinstance(found, dict) else {}
    except (ValueError, RecursionError) as error:
        problem = f"the options of its next run cannot be read: {error}"
    if not repeat and not one.hash and is_repeatable_key(one.key):
        name, _, end, zone, pattern = one.key.split(":", 4)
        is_interval = pattern.isascii() and pattern.isdecimal()
        repeat = {"every" if is_interval else "pattern": pattern, "tz": zone, "endDate": end}
    known = {**repeat, **one.hash} if one.is_scheduler else {**one.hash, **repeat}
    try:
        rule = rule_of(name, known)
    except (ValueError, TypeError, OverflowError) as error:
        return Rule(name, problem=f"its rule cannot be read: {error}")
    if not rule.pattern and rule.every is None:
        problem = problem or "it has neither a pattern nor an interval"
    return rule._replace(problem=problem)


def rule_of(name: str, options: Mapping[str, Any]) -> Rule:
    """The rule of options, or of a hash; one with a pattern has no interval.

    Raises:
        ValueError, TypeError, OverflowError: a value is odd.
    """
    pattern = str(options.get("pattern") or options.get("cron") or "")
    every = _whole(options.get("every")) or 0
    return Rule(
        name,
        pattern,
        every=every if every > 0 and not pattern else None,
        zone="UTC" if options.get("utc") else str(options.get("tz") or ""),
        limit=_whole(options.get("limit")),
        start=_read_date(options.get("startDate")),
        end=_read_date(options.get("endDate")),
        number=_whole(options.get("count")),
    )


def _read_date(value: object) -> int | None:
    """A date of options or of a hash, epoch milliseconds.

    Raises:
        ValueError: it is none.
    """
    is_number = isinstance(value, int | float) or str(value).isdecimal()
    return _whole(value) if is_number else as_millis(value)


def revision(one: StoredSchedule) -> str:
    """SHA-1 of the rule, data and options, which runs do not change; "" without a schedule."""
    if not one.exists:
        return ""

    def sha(fields: Mapping[str, str], name: str, otherwise: str = "") -> str:
        text = fields.get(name, otherwise)
        return fields.get(name + _LONG) or hashlib.sha1(to_bytes(text)).hexdigest()

    # The worker of version 5 makes a job scheduler of a repeatable job when it starts a run.
    data = sha(one.fields or one.hash, "data", "{}")
    texts = [one.key, one.broken, data, sha(one.hash, "opts")]
    rule = read_rule(one)._replace(number=None)
    return hashlib.sha1(to_bytes(repr((texts, rule)))).hexdigest()


# ---- reading


def run_ids(key: str, score: str) -> list[str]:
    """The ids that the next run may have."""
    ids = [f"repeat:{key}:{score}"]
    if is_repeatable_key(key):
        name, ident = key.split(":")[:2]
        ids += [repeatable_id(name, key, own, score) for own in dict.fromkeys((ident, ""))]
    return ids


class ScheduleReader:
    """Reads the schedules of queues; its methods raise `StoreError`."""

    def __init__(self, connection: Connection, place: RedisPlace) -> None:
        self._connection, self._place = connection, place

    def count(self, queues: Sequence[str]) -> Mapping[str, int]:
        """How many each queue has, without queues that have none; a key of another type counts as
        one."""
        answers = self._connection.call_all(
            [("ZCARD", f"{self._place.base(queue)}repeat") for queue in queues]
        )
        counts = (answer if isinstance(answer, int) else 1 for answer in answers)
        return {queue: number for queue, number in zip(queues, counts, strict=True) if number}

    def read(self, queue: str, most: int = MAX_SCHEDULES) -> Iterator[StoredSchedule]:
        """The schedules of a queue, the next ones first; data is given as its SHA-1."""
        words = "ZRANGE", f"{self._place.base(queue)}repeat", 0, most - 1, "WITHSCORES"
        members = self._connection.call(*words)
        pairs = zip(members[::2], members[1::2], strict=True)
        while page := list(islice(pairs, PAGE_SCHEDULES)):
            asked = [(str(key), _text_of(score)) for key, score in page]
            yield from (one for one in self._describe(queue, asked, "") if one.exists)

    def find(self, queue: str, key: str, score: str = "") -> StoredSchedule:
        """One schedule with all its data. If it does not exist, the result has the job of its run
        at the time `score`."""
        now = self._connection.call("ZSCORE", f"{self._place.base(queue)}repeat", to_bytes(key))
        (one,) = self._describe(queue, [(key, score if now is None else _text_of(now))], "1")
        return one

    def _describe(
        self, queue: str, asked: Sequence[tuple[str, str]], whole: str
    ) -> list[StoredSchedule]:
        """Describe schedules whose next runs are at known times; again those that have another next
        run by now, so that each is described with the job of that run."""
        found = self._read_all(queue, asked, whole)
        for _ in range(MAX_READS):
            late = [at for at, one in enumerate(found) if one.is_late]
            if not late:
                return found
            again = [(found[at].key, _text_of(found[at].score)) for at in late]
            for at, one in zip(late, self._read_all(queue, again, whole), strict=True):
                found[at] = one
        return [one._replace(place=UNSURE) if one.is_late else one for one in found]

    def _read_all(
        self, queue: str, asked: Sequence[tuple[str, str]], whole: str
    ) -> list[StoredSchedule]:
        packed = pack([[key, *run_ids(key, score)] for key, score in asked])
        words = [self._place.base(queue), whole, packed]
        read = script("schedule_state", "schedule_read", reads_only=True)
        major, version, found = self._connection.run(ScriptCall(read, [], words))
        return [
            StoredSchedule(
                queue,
                key,
                str(major),
                str(version).removeprefix("bullmq:"),
                score or "",
                hash=_flat(own),
                broken=next((text for text in (own, fields) if isinstance(text, str)), ""),
                job=job,
                place=place,
                fields=_flat(fields),
                delayed=delayed,
                seen=seen,
                asked=asked_score,
            )
            for (key, asked_score), (score, own, job, place, delayed, fields, seen) in zip(
                asked, found, strict=True
            )
        ]


def _text_of(score: object) -> str:
    return f"{float(str(score)):.0f}"


def _flat(words: Any) -> dict[str, str]:
    if isinstance(words, str):
        return {}
    return dict(zip(words[::2], words[1::2], strict=True))


@lru_cache(maxsize=4096)
def _pattern_problem(pattern: str, zone: str) -> str:
    try:
        next_match(pattern, zone, 0)
    except ValueError as error:
        return str(error)
    return ""


def as_schedule(one: StoredSchedule, now: float) -> Schedule:
    """A schedule for the screen; what is not known has its reason."""
    rule, unknown = read_rule(one), dict[str, str]()
    problem = f"its hash cannot be read: {one.broken}" if one.broken else rule.problem
    following = one.due / 1000 if one.goes_on else None
    last, why = _last_run(one, rule)
    if last is None:
        unknown["last"] = why
    left = None if rule.limit is None else _runs_left(one, rule)
    is_limit_known = one.is_scheduler or bool(one.fields)
    if not is_limit_known or (rule.limit is not None and left is None):
        unknown["left"] = "the job of its next run, which has their number, is gone"
    if rule.text() == "?":
        unknown["rule"] = problem
    if not one.goes_on:
        unknown["next"] = why = _why_stopped(one, rule, left, now)
        problem = problem or ("" if why.startswith(ENDED) else why)
    elif not problem and not one.is_scheduler and one.major == "6" and is_repeatable_key(one.key):
        problem = "BullMQ 6 adds no run after the next one of a repeatable job"
    elif not problem and rule.pattern and (why := _pattern_problem(rule.pattern, rule.zone)):
        problem = f"pattern cannot be counted here, only by workers for Node: {why}"
    kind = "scheduler" if one.is_scheduler else "repeatable"
    return Schedule(
        one.id,
        safe_line(one.queue),
        safe_line(rule.name),
        safe_line(rule.text()),
        safe_line(rule.zone),
        next=following,
        last=last,
        left=left,
        has_limit=rule.limit is not None if is_limit_known else None,
        end=None if rule.end is None else rule.end / 1000,
        made_by=f"{kind} {safe_line(one.version or one.major)}",
        unknown=unknown,
        problem=safe_line(problem),
        rev=revision(one),
    )


def _last_run(one: StoredSchedule, rule: Rule) -> tuple[float | None, str]:
    """When the last run was started, epoch seconds; or None, and why that is not known.

    A worker adds the next run when it starts one: this is when the job of the next run was made."""
    times = one.fields
    try:
        if one.place == ENDED and times.get("processedOn"):
            return int(times["processedOn"]) / 1000, ""
        made = int(times["timestamp"]) / 1000
    except KeyError:
        return None, "the job of its next run, which has that time, is gone"
    except (ValueError, OverflowError):
        return None, "the job of its next run has no valid time"
    if rule.number is not None and rule.number > 1:
        return made, ""
    return None, f"no run since it was added or set at {format_time(made)}"


def _runs_left(one: StoredSchedule, rule: Rule) -> int | None:
    assert rule.limit is not None
    if one.goes_on:
        return None if rule.number is None else max(0, rule.limit - rule.number + 1)
    try:
        count = rule.number if one.place == ENDED else _whole(one.hash.get("ic"))
    except (ValueError, OverflowError):
        count = None
    return None if count is None else max(0, rule.limit - count)


def _why_stopped(one: StoredSchedule, rule: Rule, left: int | None, now: float) -> str:
    if left == 0:
        return f"{ENDED}: all {rule.limit:,} runs are done"
    if rule.end is not None and rule.end < now * 1000:
        return f"{ENDED} at {format_time(rule.end / 1000)}"
    if one.place == UNSURE:
        return "? its next run was not found: too many of its time, or it runs too often"
    run = "has finished, and no run follows" if one.place == ENDED else "is missing"
    return f"stopped: the job of its next run ({format_time(one.due / 1000)}) {run}"
