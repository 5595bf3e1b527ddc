"""What a schedule of BullMQ becomes by an edit or by an undo, and the job of an extra run."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from engine.formats.bullmq.repeats import (
    id_in_data,
    next_match,
    repeatable_id,
    repeatable_keys,
)
from engine.formats.bullmq.schedules import (
    BEGUN,
    DELAYED,
    UNSURE,
    Rule,
    StoredSchedule,
    read_options,
    read_rule,
    revision,
    rule_of,
)
from engine.places.schedules import NONE, RULE_FIELDS
from engine.store import Gone, Unsupported
from engine.text.durations import parse_duration
from engine.text.safe import safe_line
from engine.text.time_expressions import parse_future_time
from engine.text.times import format_time
from engine.values import NamedTuple

MAX_FIELDS = 1000
"""Fields of a hash that is written back."""


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
    """The schedule with new values of its options. `now` and `at` are epoch milliseconds; `at` is
    the time of its next run, None to count it from the rule.

    The next run is replaced, as by BullMQ's upsertJobScheduler. The number of runs and the time of
    the last one stay.

    Raises:
        Unsupported: it cannot be edited, with the reason.
    """
    rule = _editable(one)
    if values.get("tz") and (values.get("every") or not (values.get("pattern") or rule.pattern)):
        raise Unsupported("tz: an interval has no time zone")
    template = {"name": rule.name, "data": one.hash.get("data", "{}"), "timestamp": str(now)}
    fields = dict(one.fields) if one.goes_on else template
    options = read_options(fields if one.goes_on else one.hash)
    former: dict[str, Any] = dict(options.get("repeat") or {})
    of_hash: dict[str, Any] = rule_options(rule) if one.is_scheduler else {}
    if former.get("utc"):
        of_hash.pop("tz", None)
    repeat = _changed(former | of_hash, values)
    wanted = rule_of(rule.name, repeat)._replace(start=rule.start, number=rule.number)
    if wanted == rule and one.goes_on:
        raise Unsupported("nothing to change: it has this rule")
    number = (rule.number or 1) if one.goes_on else int(one.hash.get("ic") or 0) + 1
    if wanted.limit is not None and number > wanted.limit:
        raise Unsupported(f"limit {wanted.limit:,}: its next run is number {number:,}")
    if wanted._replace(limit=rule.limit, end=rule.end) == rule and one.goes_on and one.due > now:
        millis = one.due
    else:
        millis = first_run(wanted, now, one.is_scheduler) if at is None else at
    if wanted.end is not None and millis > wanted.end:
        raise Unsupported(f"it would end before its next run at {format_time(millis / 1000)}")
    new_hash = _changed_hash(one, repeat)
    if values.get("pattern") or values.get("every"):
        new_hash.pop("offset", None)
    if values.get("every") and one.is_scheduler:
        new_hash["offset"] = str(millis % values["every"])
    if not one.goes_on:
        new_hash["ic"] = str(number)
    key = _new_key(one, rule.name, former, repeat)
    options["repeat"] = {**repeat, "count": number}
    return _with_run(one, NewSchedule(key, str(millis), new_hash, "", fields), options)


_REPLACED: Mapping[str, tuple[str, ...]] = {
    "pattern": ("every", "offset"),
    "every": ("pattern", "cron", "tz", "utc", "offset"),
    "tz": ("utc",),
}
"""By each option that an edit sets: the options that go with it."""


def _changed(repeat: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Options of a rule with new values."""
    replaced = {name for option in _REPLACED if values.get(option) for name in _REPLACED[option]}
    kept = {name: value for name, value in repeat.items() if name not in replaced}
    return {name: value for name, value in {**kept, **values}.items() if value is not None}


def _changed_hash(one: StoredSchedule, repeat: Mapping[str, Any]) -> dict[str, str]:
    """The hash with the options of a rule; that of a repeatable job has no limit."""
    if not one.hash:
        return {}
    options = rule_options(Rule("")).keys() - (set() if one.is_scheduler else {"limit"})
    kept = {name: text for name, text in one.hash.items() if name not in {*options, "limit"}}
    return kept | {name: str(repeat[name]) for name in options if name in repeat}


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
    """The schedule with the job of its next run. The id has the form of the former job's id."""
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
    """The first run that is after both `now` and the stored next run; all epoch milliseconds."""
    rule = read_rule(was)
    if rule.every:
        return was.due + max(1, -(-(now - was.due) // rule.every)) * rule.every
    return first_run(rule, max(now, was.due), was.is_scheduler)


def as_it_was(was: StoredSchedule) -> NewSchedule:
    """The schedule as it was, with the job of its next run, which is not due yet."""
    due = int(float(was.delayed)) // 0x1000
    new = NewSchedule(was.key, was.score, was.hash, was.job, was.fields)
    return new._replace(due=due, delayed=was.delayed)


_KEPT_OF_RUN = ("name", "data", "timestamp", "priority", "deid")


def put_back(was: StoredSchedule, run: StoredSchedule, now: int) -> NewSchedule:
    """A removed schedule as it was; if its next run is past, with the first one after `now` (epoch
    milliseconds). `run` is the same schedule as it is read now, with the job of that next run.

    Raises:
        Unsupported: it has no run to come.
    """
    new = NewSchedule(was.key, was.score, was.hash, "", {})
    if not was.goes_on or run.place == BEGUN:
        return new
    if was.place == DELAYED and was.due > now:
        return as_it_was(was)
    rule, options, millis = read_rule(was), read_options(was.fields), run_after(was, now)
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


_OF_RUNS = ("repeat", "jobId", "delay", "prevMillis", "repeatJobKey", "timestamp", "parent", "de")
"""Options that the job of a run has, and an extra job has not: with the deduplication key of the
runs (`de`), it could replace the next one."""
MAX_PRIORITY = 2**21
"""BullMQ's."""


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
        options = read_options(source)
    except (ValueError, RecursionError) as error:
        raise Unsupported(f"its options cannot be read: {error}") from error
    priority = options.get("priority") or 0
    if type(priority) is not int or not 0 <= priority <= MAX_PRIORITY:
        expected = f"expected a whole number up to {MAX_PRIORITY:,}"
        raise Unsupported(f"its priority is {priority!r:.40}, {expected}")
    return name, data, {word: value for word, value in options.items() if word not in _OF_RUNS}


def check_unchanged(one: StoredSchedule, rev: str) -> None:
    """Check that a schedule is as it was seen.

    Raises:
        Gone: it is not.
    """
    if not one.exists:
        raise Gone(f"{safe_line(one.id)}: it is not there any more")
    if one.broken or max(len(one.hash), len(one.fields)) > MAX_FIELDS:
        why = one.broken or f"more than {MAX_FIELDS:,} fields"
        raise Unsupported(f"{safe_line(one.id)}: no undo could put it back: {why}")
    if one.place == UNSURE:
        raise Unsupported(f"{safe_line(one.id)}: its next run is not found")
    if revision(one) != rev:
        raise Gone(f"{safe_line(one.id)}: changed since it was shown")
