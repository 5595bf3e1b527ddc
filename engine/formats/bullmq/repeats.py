"""Job schedulers and repeatable jobs: the next run, which a worker adds before it starts one.

The rules are those of the workers of BullMQ 5 and 6. `every` is counted by BullMQ's own script;
patterns of cron by the package `croniter`, in the time zone of the schedule or of this machine.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

from engine.formats.bullmq.connection import Connection, ScriptCall, pack, script
from engine.formats.bullmq.package_scripts import PACKAGE_SCRIPTS
from engine.formats.bullmq.place import RedisPlace
from engine.store import StoreError, Unsupported
from engine.text.safe import safe_line
from engine.values import NamedTuple

GATE_SECONDS = 5.0
"""Seconds for which it is known whether our worker may take jobs of a queue."""
LOCAL_ZONE_FILE = "/etc/localtime"


class NextRun(NamedTuple):
    """The run of a schedule that follows another one."""

    millis: int | None
    """When it is due, epoch milliseconds UTC; None: BullMQ's script counts it."""
    options: dict[str, Any]
    """The options of its job, as they are stored."""


def local_zone() -> tzinfo:
    """The time zone of this machine: of the variable TZ, a name or a file (tzset(3)), else of its
    file.

    Raises:
        ValueError, zoneinfo.ZoneInfoNotFoundError: TZ is not known.
    """
    name = os.environ.get("TZ", "").lstrip(":")
    if name and not name.startswith("/"):
        return ZoneInfo(name)
    try:
        with open(name or LOCAL_ZONE_FILE, "rb") as file:
            return ZoneInfo.from_file(file)
    except OSError:
        return UTC


def next_match(pattern: str, zone: str, after: int) -> int:
    """When a pattern of cron matches next after a time, both epoch milliseconds UTC.

    Where clocks change it is as in BullMQ's library: a time that is skipped counts as that much
    later; one that comes twice runs once, but in a pattern of all hours twice.

    Raises:
        ValueError: the pattern, the zone or the time is not known, or croniter is not installed.
    """
    try:
        from croniter import croniter

        begin = datetime.fromtimestamp(after / 1000, UTC)
        tz = ZoneInfo(zone) if zone else local_zone()
        hours = croniter.expand(pattern, second_at_beginning=True)[0][1]
        has_all_hours = hours == ["*"]
        # Of times without a zone: with one, it is an hour off where clocks have changed.
        matches = croniter(pattern, _clock(begin, tz), second_at_beginning=True)
        match = begin
        while match <= begin:
            at: datetime = matches.get_next(datetime)
            match = at.replace(tzinfo=tz).astimezone(UTC)
            if has_all_hours and _clock(match, tz) != at:
                match = begin  # such a time is skipped
            elif match <= begin and (has_all_hours or begin.astimezone(tz).fold):
                match = at.replace(tzinfo=tz, fold=1).astimezone(UTC)
        if has_all_hours and (change := _clock_set_back(begin, match, tz)):
            just_before = _clock(change, tz) - timedelta(seconds=1)
            again = croniter(pattern, just_before, second_at_beginning=True)
            at = again.get_next(datetime)
            match = min(match, at.replace(tzinfo=tz, fold=1).astimezone(UTC))
    except (ValueError, KeyError, OSError, OverflowError, ImportError) as error:
        raise ValueError(f"{pattern} {zone}: {error}".strip()) from error
    return round(match.timestamp() * 1000)


def _clock(moment: datetime, zone: tzinfo) -> datetime:
    """What a clock of a zone shows."""
    return moment.astimezone(zone).replace(tzinfo=None)


def _clock_set_back(start: datetime, end: datetime, zone: tzinfo) -> datetime | None:
    """When the clocks of a zone are set back between two times, to the second."""

    def offset(moment: datetime) -> timedelta:
        return moment.astimezone(zone).utcoffset() or timedelta()

    if offset(start) <= offset(end):
        return None
    while end - start > timedelta(seconds=1):
        middle = start + (end - start) / 2
        if offset(middle) == offset(end):
            end = middle
        else:
            start = middle
    return end.replace(microsecond=0)


def as_millis(value: object) -> int | None:
    """A date of the options, which JavaScript writes as milliseconds or as ISO 8601."""
    if value is None or value == "":
        return None
    if isinstance(value, (int, float)):
        return int(value)
    date = datetime.fromisoformat(str(value))
    return round((date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp() * 1000)


def find_next_run(options: Mapping[str, Any], now: int, *, aligns: bool) -> NextRun | None:
    """The run after that of a job with these options; None: it was the last one.

    With `aligns`, `every` is counted here, as for repeatable jobs: from midnight 1970.

    Raises:
        ValueError: a value is not known.
    """
    repeat = dict(options.get("repeat") or {})
    count = int(repeat.get("count") or 0) + 1
    limit, end = repeat.get("limit"), as_millis(repeat.get("endDate"))
    if (limit is not None and count > limit) or (end is not None and now > end):
        return None
    start, every = as_millis(repeat.get("startDate")), repeat.get("every")
    pattern = str(repeat.get("pattern") or repeat.get("cron") or "")
    after = max(now, int(options.get("prevMillis") or 0))
    millis: int | None = None
    if pattern:
        zone = "UTC" if repeat.get("utc") else str(repeat.get("tz") or "")
        millis = max(after, next_match(pattern, zone, max(after, start or 0)))
        if end is not None and millis > end:
            return None
    elif every and aligns:
        millis = after // int(every) * int(every) + int(every)
    elif not every:
        raise ValueError("neither a pattern nor an interval")
    repeat |= {"count": count, "startDate": start, "endDate": end}
    if not aligns:
        repeat["offset"] = repeat.get("offset") if every and repeat.get("offset") else None
    repeat.pop("immediately", None)
    repeat_options = {name: value for name, value in repeat.items() if value is not None}
    wait = 0 if millis is None else max(0, millis + int(repeat_options.get("offset") or 0) - now)
    times = {"prevMillis": millis, "delay": wait, "timestamp": now}
    next_options = {**options, "repeat": repeat_options, **times}
    return NextRun(millis, {n: value for n, value in next_options.items() if value is not None})


def is_repeatable_key(key: str) -> bool:
    """True for the key of a repeatable job: NAME:ID:END:ZONE:PATTERN. A scheduler may have the
    same form, but its hash counts its runs."""
    return key.count(":") >= 4


def _md5(text: str) -> str:
    return hashlib.md5(text.encode("utf-8", "surrogateescape"), usedforsecurity=False).hexdigest()


def repeatable_keys(name: str, repeat: Mapping[str, Any]) -> list[str]:
    """The keys that a repeatable job may have in the set of schedules."""
    end = as_millis(repeat.get("endDate"))
    pattern = repeat.get("pattern") or repeat.get("cron") or repeat.get("every") or ""
    words = [name, repeat.get("jobId") or "", "" if end is None else end]
    text = ":".join(map(str, [*words, repeat.get("tz") or "", pattern]))
    return [str(repeat.get("key") or _md5(text)), text]


def repeatable_id(name: str, key: str, application_id: str, millis: int | str) -> str:
    """The id of a run of a repeatable job; `application_id` is of the application, or ""."""
    if key.count(":") < 2:
        return f"repeat:{key}:{millis}"
    return f"repeat:{_md5(f'{name}{application_id}{_md5(key)}')}:{millis}"


def id_in_data(data: str) -> str:
    """The member `id` of JSON data, "" without one."""
    try:
        return str(json.loads(data).get("id") or "")
    except (ValueError, AttributeError, RecursionError):
        return ""


class Repeats:
    """Advances the schedules of claimed jobs, and refuses queues with one that it cannot count."""

    def __init__(self, connection: Connection, place: RedisPlace) -> None:
        self._connection, self._place = connection, place
        self._answers: dict[str, tuple[str, float]] = {}
        """By queue: the last answer of `gate`, and until when it is current (monotonic clock)."""

    def gate(self, queue: str) -> tuple[str, float | None]:
        """Why our worker takes no job of a queue, "" if it may; and None: the end is not known."""
        why, due = self._answers.get(queue, ("", 0.0))
        if time.monotonic() >= due:
            call = ScriptCall(script("worked", reads_only=True), [], [self._place.base(queue)])
            try:
                why, *schedules = self._connection.run(call)
            except StoreError:
                why, schedules = "", []  # the claim fails for the same reason
            for key, pattern, zone in zip(*[iter(schedules)] * 3, strict=True):
                if not why and pattern:
                    why = _pattern_problem(key, pattern, zone)
            self._answers[queue] = why, time.monotonic() + GATE_SECONDS
        return why, None

    def is_closed(self, queue: str) -> bool:
        """True if the last answer of `gate` was a reason."""
        return bool(self._answers.get(queue, ("", 0.0))[0])

    def advance(self, queue: str, job: str, fields: Mapping[str, str], now: float) -> bool:
        """Add the run that follows a claimed job, unless it was added before. False: it cannot be
        added, so that the job must not run; `gate` then has the reason."""
        try:
            self._advance(queue, job, fields, round(now * 1000))
        except StoreError as error:
            why = f"{job}: schedule {safe_line(fields['rjk'])}: {error}"
            self._answers[queue] = why, time.monotonic() + GATE_SECONDS
            return False
        return True

    def _advance(self, queue: str, job: str, fields: Mapping[str, str], now: int) -> None:
        base, key = self._place.base(queue), fields["rjk"]
        counts_runs = ("HEXISTS", f"{base}repeat:{key}", "ic")
        is_repeatable = is_repeatable_key(key) and not self._connection.call(*counts_runs)
        try:
            options: dict[str, Any] = json.loads(fields.get("opts", "{}"))
            run = find_next_run(options, now, aligns=is_repeatable)
        except (ValueError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
            raise Unsupported(str(error)) from error
        if run is None:
            return
        name, data = fields.get("name", ""), fields.get("data", "{}")
        if is_repeatable:
            words: list[Any] = [base, run.millis, data]
            repeat = options.get("repeat") or {}
            # The first versions 5, which do not name themselves, take the id from the options.
            is_named = self._connection.call("HEXISTS", f"{base}meta", "version")
            application_id = id_in_data(data) if is_named else str(repeat.get("jobId") or "")
            for each in repeatable_keys(name, repeat):
                ident = repeatable_id(name, each, application_id, run.millis or 0)
                its = {"jobId": ident, "repeatJobKey": each, "delay": max(1, run.options["delay"])}
                packed = [base, ident, name, now, None, None, None, each, None]
                words += [each, pack(packed), pack(run.options | its)]
            self._run("repeatable", "addDelayedJob", base, words)
            return
        words = [base, job, run.millis or 0, key, data, pack(run.options), now, base, job]
        self._run("scheduler", "updateJobScheduler", base, words, job)

    def _run(self, part: str, package: str, base: str, words: list[Any], job: str = "") -> None:
        keys = PACKAGE_SCRIPTS[package].key_names(base, job)
        self._connection.run(ScriptCall(script(part, package=package), keys, words))


def _pattern_problem(key: str, pattern: str, zone: str) -> str:
    try:
        next_match(pattern, zone, round(time.time() * 1000))
    except ValueError as error:
        return f"schedule {safe_line(key)}: our worker cannot count its runs: {error}"
    return ""
