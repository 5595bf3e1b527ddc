"""Job schedulers and repeatable jobs of BullMQ as schedules, and what they become by an edit or an
undo.

A schedule is a member of the sorted set `repeat`, scored with the time of its next run. A job
scheduler (version 5 and 6) has a hash `repeat:KEY` with `ic`, the number of its runs; a repeatable
job of version 5 a hash without it, one of 3 and 4 none: its key is NAME:ID:END:ZONE:PATTERN. The
options of the next run's job count the runs.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from typing import Any, NamedTuple

from engine.formats.bullmq.connection import Connection, ScriptCall, pack, script
from engine.formats.bullmq.image import LONG_FIELD_BYTES, to_bytes
from engine.formats.bullmq.place import RedisPlace, task_id
from engine.formats.bullmq.repeats import (
    as_millis,
    id_in_data,
    is_repeatable_key,
    next_match,
    repeatable_id,
    repeatable_keys,
)
from engine.places.schedules import NONE, RULE_FIELDS, Schedule
from engine.schedules import format_seconds
from engine.store import Gone, StoreError, Unsupported
from engine.text.durations import parse_duration
from engine.text.safe import safe_line
from engine.text.time_expressions import parse_future_time
from engine.text.times import format_time

PAGE_SCHEDULES = 100
"""Schedules that one script reads."""
MAX_SCHEDULES = 100_000
"""Schedules that are read of a queue."""
MAX_FIELDS = 1000
"""Fields of a hash that is written back."""
DELAYED, BEGUN, ENDED, UNSURE = "delayed", "begun", "ended", "unsure"
"""Where the job of a run is: it is not due, it waits or runs, it has finished, it is not found
among very many of its time; "" if it is gone."""
_LONG = " sha1"
"""Ends the name of a field whose text is given as its SHA-1."""


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
    """Why its hash cannot be read; "" if it can, or there is none."""
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
    """The time for which that job was looked up, as `score`."""

    @property
    def id(self) -> str:
        """QUEUE/KEY."""
        return task_id(self.queue, self.key)

    @property
    def exists(self) -> bool:
        """True if there is such a schedule."""
        return bool(self.score)

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
        """When its next run is due, epoch milliseconds."""
        return round(float(self.score or 0))


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


def _options(fields: Mapping[str, str]) -> dict[str, Any]:
    if "opts" + _LONG in fields or len(fields.get("opts", "")) > LONG_FIELD_BYTES:
        raise ValueError(f"they are longer than {LONG_FIELD_BYTES:,} bytes")
    options = json.loads(fields.get("opts") or "{}")
    if not isinstance(options, dict):
        raise ValueError("they are no object")
    return options


def _whole(value: object) -> int | None:
    return None if value is None or value == "" else int(str(value))


def read_rule(one: StoredSchedule) -> Rule:
    """The rule of a schedule: of its hash, else of the options of its next run, else of its key."""
    name = one.hash.get("name") or one.fields.get("name", "")
    problem, repeat = "", dict[str, Any]()
    try:
        found = _options(one.fields).get("repeat") or {}
        repeat = dict(found) if isinstance(found, dict) else {}
    except (ValueError, RecursionError) as error:
        problem = f"the options of its next run cannot be read: {error}"
    if not repeat and not one.hash and is_repeatable_key(one.key):
        name, _, end, zone, pattern = one.key.split(":", 4)
        is_interval = pattern.isascii() and pattern.isdecimal()
        repeat = {"every" if is_interval else "pattern": pattern, "tz": zone, "endDate": end}
    known = {**repeat, **one.hash} if one.is_scheduler else {**one.hash, **repeat}
    try:
        rule = Rule(
            name,
            pattern=str(known.get("pattern") or known.get("cron") or ""),
            every=_whole(known.get("every")),
            zone="UTC" if known.get("utc") else str(known.get("tz") or ""),
            limit=_whole(known.get("limit")),
            start=_date(known.get("startDate")),
            end=_date(known.get("endDate")),
            number=_whole(known.get("count")),
            problem=problem,
        )
    except (ValueError, TypeError, OverflowError) as error:
        why = f"its rule cannot be read: {error}"
        return Rule(name, problem=why)
    if rule.pattern:
        return rule._replace(every=None)
    if rule.every is None or rule.every <= 0:
        why = problem or "it has neither a pattern nor an interval"
        return rule._replace(every=None, problem=why)
    return rule


def _date(value: object) -> int | None:
    is_number = isinstance(value, str) and value.isascii() and value.isdecimal()
    return as_millis(int(str(value)) if is_number else value)


def revision(one: StoredSchedule) -> str:
    """SHA-1 of what a schedule is, without what its runs change; "" if it is not there."""
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

    def count(self, queues: Sequence[str]) -> int:
        """How many there are; a key of another type counts as none."""
        answers = self._connection.call_all(
            [("ZCARD", f"{self._place.base(queue)}repeat") for queue in queues]
        )
        return sum(answer for answer in answers if isinstance(answer, int))

    def read(self, queue: str, most: int = MAX_SCHEDULES) -> Iterator[StoredSchedule]:
        """The schedules of a queue, the next ones first; data is given as its SHA-1."""
        words = "ZRANGE", f"{self._place.base(queue)}repeat", 0, most - 1, "WITHSCORES"
        members = self._connection.call(*words)
        pairs = zip(members[::2], members[1::2], strict=True)
        while page := list(islice(pairs, PAGE_SCHEDULES)):
            asked = [(str(key), _text_of(score)) for key, score in page]
            yield from (one for one in self._describe(queue, asked, "") if one.exists)

    def find(self, queue: str, key: str, score: str = "") -> StoredSchedule:
        """One schedule with all its data; without one, the job that a run at `score` had."""
        now = self._connection.call("ZSCORE", f"{self._place.base(queue)}repeat", key)
        (one,) = self._describe(queue, [(key, score if now is None else _text_of(now))], "1")
        return one

    def _describe(
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
                broken=own if isinstance(own, str) else "",
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
        unknown["left"] = "the job of its next run is gone, which counts its runs"
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
    """When the last run was started, epoch seconds; or None and why that is not known: a worker
    adds the next run when it starts one, so that its job has this time."""
    times = one.fields
    try:
        if one.place == ENDED and times.get("processedOn"):
            return int(times["processedOn"]) / 1000, ""
        made = int(times["timestamp"]) / 1000
    except (KeyError, ValueError):
        return None, "the job of its next run is gone, which has that time"
    if rule.number is not None and rule.number > 1:
        return made, ""
    return None, f"no run since it was added or set at {format_time(made)}"


def _runs_left(one: StoredSchedule, rule: Rule) -> int | None:
    assert rule.limit is not None
    if one.goes_on:
        return None if rule.number is None else max(0, rule.limit - rule.number + 1)
    count = rule.number if one.place == ENDED else _whole(one.hash.get("ic"))
    return None if count is None else max(0, rule.limit - count)


def _why_stopped(one: StoredSchedule, rule: Rule, left: int | None, now: float) -> str:
    if left == 0:
        return f"{ENDED}: all {rule.limit:,} runs are done"
    if rule.end is not None and rule.end < now * 1000:
        return f"{ENDED} at {format_time(rule.end / 1000)}"
    if one.place == UNSURE:
        return "? its next run is not found: too many jobs are due at the same time"
    run = "has finished, and no run follows" if one.place == ENDED else "is missing"
    return f"stopped: the job of its next run ({format_time(one.due / 1000)}) {run}"


# ---- what it becomes


class NewSchedule(NamedTuple):
    """What replaces a schedule."""

    key: str
    score: str
    hash: Mapping[str, str]
    job: str
    """The id of the job of its next run; "": none is added."""
    fields: Mapping[str, str]
    due: int = 0
    """When that job is due, epoch milliseconds."""
    delayed: str = ""
    """The score that it had in `delayed`; "": the next one of that time."""

    def packed(self) -> dict[str, Any]:
        """As the script takes it.

        Raises:
            Unsupported: a hash has more fields than a script takes."""
        if max(len(self.hash), len(self.fields)) > MAX_FIELDS:
            raise Unsupported(f"{safe_line(self.key)}: more than {MAX_FIELDS:,} fields")
        packed: dict[str, Any] = {"key": self.key, "score": self.score, "hash": _pairs(self.hash)}
        if self.job:
            job = {"job": self.job, "fields": _pairs(self.fields), "due": self.due}
            job |= {"delayed": self.delayed or False}
            packed |= {**job, "name": self.fields.get("name", "")}
        return packed


def _pairs(fields: Mapping[str, str]) -> list[str]:
    return [text for pair in fields.items() for text in pair]


def parse_changes(changes: Mapping[str, str], now: float) -> dict[str, Any]:
    """The values of an edit, by the names of BullMQ's options; None removes one.

    Raises:
        Unsupported: a value is invalid, with what was expected.
    """
    readers: Mapping[str, tuple[str, Callable[[str], Any]]] = {
        "pattern": ("pattern", str),
        "every": ("every", lambda text: round(parse_duration(text) * 1000)),
        "tz": ("tz", str),
        "limit": ("limit", int),
        "end": ("endDate", lambda text: round(parse_future_time(text, now) * 1000)),
    }
    values = dict[str, Any]()
    for name, text in changes.items():
        option, read = readers[name]
        is_none = text == NONE and NONE in RULE_FIELDS[name]
        try:
            value = None if is_none else read(text.strip())
        except ValueError:
            value = 0
        if not is_none and (not value or (isinstance(value, int) and value < 1)):
            raise Unsupported(f"{name} is {safe_line(text)[:40]!r}, expected {RULE_FIELDS[name]}")
        values[option] = value
    if not values:
        raise Unsupported(f"nothing to change: expected one of {', '.join(RULE_FIELDS)}")
    if values.get("pattern") and values.get("every"):
        raise Unsupported("both a pattern and an interval: expected only one of them")
    return values


def edit(
    one: StoredSchedule, values: Mapping[str, Any], now: int, at: int | None = None
) -> NewSchedule:
    """What a schedule becomes by new values of its options; `now` in epoch milliseconds, as `at`,
    the time of its next run if that is known.

    Its next run is replaced, as by BullMQ's upsertJobScheduler; the number of its runs and the time
    of its last one stay.

    Raises:
        Unsupported: it cannot be edited, with the reason.
    """
    rule = _editable(one)
    pattern, every = values.get("pattern"), values.get("every")
    if values.get("tz") and (every or not (pattern or rule.pattern)):
        raise Unsupported("tz: an interval has no time zone")
    template = {"name": rule.name, "data": one.hash.get("data", "{}"), "timestamp": str(now)}
    fields = dict(one.fields) if one.goes_on else template
    options = _options(fields if one.goes_on else one.hash)
    repeat: dict[str, Any] = dict(options.get("repeat") or {})
    if one.is_scheduler:
        repeat |= {**rule_options(rule), **({"tz": None} if repeat.get("utc") else {})}
    repeat |= values
    if pattern:
        repeat |= {"every": None, "offset": None}
    if every:
        repeat |= {"pattern": None, "cron": None, "tz": None, "utc": None, "offset": None}
    if values.get("tz"):
        repeat["utc"] = None
    new = {name: value for name, value in repeat.items() if value is not None}
    wanted = rule._replace(
        pattern=str(new.get("pattern") or new.get("cron") or ""),
        every=new.get("every"),
        zone="UTC" if new.get("utc") else str(new.get("tz") or ""),
        limit=new.get("limit"),
        end=_date(new.get("endDate")),
    )
    if wanted == rule and one.goes_on:
        raise Unsupported("nothing to change: it has this rule")
    count = (rule.number or 1) if one.goes_on else int(one.hash.get("ic") or 0) + 1
    if wanted.limit is not None and count > wanted.limit:
        raise Unsupported(f"limit {wanted.limit:,}: its next run is number {count:,}")
    is_same_time = (wanted.pattern, wanted.every, wanted.zone) == (
        rule.pattern,
        rule.every,
        rule.zone,
    )
    if is_same_time and one.goes_on and one.due > now:
        millis = one.due
    else:
        millis = first_run(wanted, now, one.is_scheduler) if at is None else at
    if wanted.end is not None and millis > wanted.end:
        raise Unsupported(f"it would end before its next run at {format_time(millis / 1000)}")
    own_hash = dict(one.hash)
    for option in ("pattern", "every", "tz", "endDate", "limit"):
        if option in new and (one.is_scheduler or (own_hash and option != "limit")):
            own_hash[option] = str(new[option])
        else:
            own_hash.pop(option, None)
    if pattern or every:
        own_hash.pop("offset", None)
    if every and one.is_scheduler:
        own_hash["offset"] = str(millis % every)
    if not one.goes_on:
        own_hash["ic"] = str(count)
    key = _new_key(one, rule.name, dict(options.get("repeat") or {}), new)
    options["repeat"] = {**new, "count": count}
    return _with_run(one, NewSchedule(key, str(millis), own_hash, "", fields), options)


def rule_options(rule: Rule) -> dict[str, Any]:
    """A rule by the names of BullMQ's options; None: it has none."""
    return {
        "pattern": rule.pattern or None,
        "every": rule.every,
        "tz": rule.zone or None,
        "limit": rule.limit,
        "endDate": rule.end,
    }


def _editable(one: StoredSchedule) -> Rule:
    rule = read_rule(one)
    if one.broken or rule.problem:
        raise Unsupported(one.broken or rule.problem)
    if one.place == BEGUN:
        raise Unsupported("its next run is due, and waits or runs: try again when it has started")
    if not one.is_scheduler and one.major == "6":
        raise Unsupported("BullMQ 6 adds no next run of a repeatable job: add a job scheduler")
    if not one.goes_on and not one.is_scheduler:
        raise Unsupported("the job of its next run, with its data and options, is missing")
    return rule


def first_run(rule: Rule, now: int, is_scheduler: bool) -> int:
    """When a new rule runs first, epoch milliseconds.

    Raises:
        Unsupported: its pattern or zone is not known.
    """
    if rule.every:
        if not is_scheduler:  # aligned
            return now // rule.every * rule.every + rule.every
        return max(now, rule.start or 0)
    try:
        return next_match(rule.pattern, rule.zone, max(now, rule.start or 0))
    except ValueError as error:
        raise Unsupported(str(error)) from error


def _new_key(
    one: StoredSchedule, name: str, before: Mapping[str, Any], after: Mapping[str, Any]
) -> str:
    """The key after an edit: that of a repeatable job is made of its rule."""
    if one.is_scheduler or before.get("key"):
        return one.key
    former, new = repeatable_keys(name, before), repeatable_keys(name, after)
    if one.key not in former:
        raise Unsupported("its key is not the one of its pattern, zone and end")
    return new[former.index(one.key)]


def _with_run(one: StoredSchedule, new: NewSchedule, options: Mapping[str, Any]) -> NewSchedule:
    """The schedule with the job of its next run, whose id is formed as that of the run before."""
    repeat, millis = options["repeat"], int(new.score)
    job = f"repeat:{new.key}:{millis}"
    if not one.is_scheduler and new.key.count(":") >= 2:
        given, name = str(repeat.get("jobId") or ""), new.fields["name"]
        own = [given, id_in_data(new.fields.get("data", "{}")), ""]
        former = (w for w in own if repeatable_id(name, one.key, w, one.asked) == one.job)
        job = repeatable_id(name, new.key, next(former, given), str(millis))
    due = millis + int(repeat.get("offset") or 0)
    delay = max(0, due - int(new.fields["timestamp"]))
    times = {"jobId": job, "repeatJobKey": new.key, "prevMillis": millis, "delay": delay}
    text = json.dumps({**options, **times}, ensure_ascii=False, separators=(",", ":"))
    changed = {"opts": text, "delay": str(delay), "rjk": new.key}
    fields = {"priority": str(options.get("priority") or 0), **new.fields, **changed}
    return new._replace(job=job, fields=fields, due=due)


def run_after(was: StoredSchedule, now: int) -> int:
    """The first run of a schedule that is after its next one and to come, epoch milliseconds."""
    rule = read_rule(was)
    if rule.every:
        return was.due + max(1, -(-(now - was.due) // rule.every)) * rule.every
    return first_run(rule, max(now, was.due), was.is_scheduler)


def as_it_was(was: StoredSchedule) -> NewSchedule:
    """The schedule with the job of its next run, which was not due."""
    due = int(float(was.delayed)) // 0x1000
    new = NewSchedule(was.key, was.score, was.hash, was.job, was.fields)
    return new._replace(due=due, delayed=was.delayed)


_KEPT_OF_RUN = ("name", "data", "timestamp", "priority", "deid")


def put_back(was: StoredSchedule, run: StoredSchedule, now: int) -> NewSchedule:
    """A removed schedule as it was; a next run that is past becomes the first one to come. `run`
    has the job of that run as it is now; `now` is in epoch milliseconds.

    Raises:
        Unsupported: it has no run to come.
    """
    new = NewSchedule(was.key, was.score, was.hash, "", {})
    if not was.goes_on or run.place == BEGUN:
        return new
    if was.place == DELAYED and was.due > now:
        return as_it_was(was)
    rule, options, millis = read_rule(was), _options(was.fields), run_after(was, now)
    if rule.end is not None and millis > rule.end:
        raise Unsupported(f"it ended at {format_time(rule.end / 1000)}")
    fields = {name: text for name, text in was.fields.items() if name in _KEPT_OF_RUN}
    repeat = options["repeat"] = dict(options.get("repeat") or {})
    if was.place == BEGUN:  # that run was not removed, and has ended
        started = run.fields.get("processedOn")
        repeat["count"] = (rule.number or 1) + 1 if started or rule.limit is not None else 1
        fields["timestamp"] = started or str(now)
        if rule.limit is not None and repeat["count"] > rule.limit:
            raise Unsupported(f"all {rule.limit:,} runs are done")
    return _with_run(was, new._replace(score=str(millis), fields=fields), options)


_OF_RUNS = ("repeat", "jobId", "delay", "prevMillis", "repeatJobKey", "timestamp", "parent")
"""Options that the job of a run has, and an extra job has not."""


def extra_job(one: StoredSchedule) -> tuple[str, str, dict[str, Any]]:
    """Name, data and options of a job like the runs of a schedule.

    Raises:
        Unsupported: they are not known.
    """
    if one.fields and one.place != "":
        name, data, source = one.fields.get("name", ""), one.fields.get("data", "{}"), one.fields
    elif one.is_scheduler and not one.broken:
        name, data, source = one.hash.get("name", ""), one.hash.get("data", "{}"), one.hash
    else:
        raise Unsupported("the job of its next run, with its data and options, is missing")
    try:
        options = _options(source)
    except (ValueError, RecursionError) as error:
        raise Unsupported(f"its options cannot be read: {error}") from error
    return name, data, {word: value for word, value in options.items() if word not in _OF_RUNS}


def check_unchanged(one: StoredSchedule, rev: str) -> None:
    """Check that a schedule is as it was seen.

    Raises:
        Gone: it is not.
    """
    if not one.exists:
        raise Gone(f"{safe_line(one.id)}: it is not there any more")
    if one.place == UNSURE:
        raise Unsupported(f"{safe_line(one.id)}: its next run is not found")
    if revision(one) != rev:
        raise Gone(f"{safe_line(one.id)}: changed since it was shown")


def explain(error: Exception) -> StoreError:
    """The store error of options that are not as BullMQ writes them."""
    return Unsupported(f"its options are not as BullMQ writes them: {error}")
