"""A row of the reading script as a task or a problem: names and words of BullMQ's states."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from itertools import repeat
from math import isfinite
from typing import Any, TypeAlias, TypeVar

from engine.destinations.request_facts import parse_destination, url_in
from engine.formats.bullmq.place import ODD_ID, RedisPlace, job_text, task_id
from engine.model import (
    ATTEMPTS_ALLOWED_KEY,
    EMPTY,
    NO_MAIL_FIELDS,
    STALLED_BEFORE_KEY,
    STALLED_KEY,
    Lease,
    Problem,
    State,
    Task,
    attempts_allowed,
)
from engine.policy import DAY_SECONDS, RetryPolicy, retries_of
from engine.schedules import Schedule, parse_schedule
from engine.text.safe import clean_error, safe_line
from engine.values import NamedTuple

T = TypeVar("T")
Row: TypeAlias = list[Any]
"""See `rows.lua`."""

STATES: Mapping[State, str] = {
    State.PENDING: "waiting",
    State.ACTIVE: "active",
    State.HELD: "held",
    State.DEAD: "failed",
    State.DONE: "completed",
    State.TRASH: "trash",
}
"""The format's word for each state; the reading script has the same name for its places."""
WORDS: Mapping[str, State] = {
    "paused": State.PENDING,
    "prioritized": State.PENDING,
    "delayed": State.PENDING,
    "waiting-children": State.PENDING,
}


class JobPlace(NamedTuple):
    """One list or sorted set in which a job can be."""

    state: State
    word: str
    """The word of `WORDS`, "" for the state's own."""
    is_list: bool = False
    is_ours: bool = False


PLACES: Mapping[str, JobPlace] = {
    "wait": JobPlace(State.PENDING, "", is_list=True),
    "paused": JobPlace(State.PENDING, "paused", is_list=True),
    "prioritized": JobPlace(State.PENDING, "prioritized"),
    "delayed": JobPlace(State.PENDING, "delayed"),
    "waiting-children": JobPlace(State.PENDING, "waiting-children"),
    "active": JobPlace(State.ACTIVE, "", is_list=True),
    "failed": JobPlace(State.DEAD, ""),
    "completed": JobPlace(State.DONE, ""),
    "held": JobPlace(State.HELD, "", is_ours=True),
    "trash": JobPlace(State.TRASH, "", is_ours=True),
}
"""By the end of its key; in the order of the counting script."""

BACKOFF_KEY = "backoff"
"""Key in `Task.extra` of a job with a delay between its attempts."""
CUSTOM = "custom:"
"""Begins the delay whose strategy is of the job's program; its name follows."""
MAX_DELAY_SECONDS = 365 * DAY_SECONDS
"""Longest delay between two attempts: BullMQ's scores of due times end in 2039."""

GROUPED = "a job in a group of BullMQ Pro: groups are not supported, it is not shown"
ORPHAN = "a job that is in no list and no set of its queue: control recover puts it back"

MIN_TIME_MS, MAX_TIME_MS = 946_684_800_000, 4_102_444_800_000
"""2000-01-01 and 2100-01-01: other times are mistakes, such as seconds or microseconds."""

OLD_MARKER = "0:"
"""Begins an entry of old BullMQ versions that is no job."""

OUR_TOKEN = "spooldeck:"
"""Begins the lock tokens of our workers."""


def place_of(task: Task) -> str:
    """The place of a task as it was scanned."""
    if task.state is State.PENDING:
        return task.word if task.word in PLACES else "wait"
    return STATES[task.state]


def make_token(owner: str, since: float, until: float, unique: str) -> str:
    """A lock token that has the claim in it, so that a renewal changes it."""
    return f"{OUR_TOKEN}{owner}:{since!r}:{until!r}:{unique}"


def parse_lease(token: str, processed_by: str, since: float, until: float) -> Lease:
    """The claim of a lock; `since` and `until` are for a token of another program."""
    if token.startswith(OUR_TOKEN):
        words = token[len(OUR_TOKEN) :].rsplit(":", 3)
        try:
            return Lease(safe_line(words[0]), float(words[1]), float(words[2]), token)
        except (IndexError, ValueError):
            pass  # not written by us after all
    unnamed = token.rpartition(":")[0] or token  # WORKER-UUID:NUMBER
    return Lease(safe_line(processed_by or unnamed), since, until, token)


def _seconds(milliseconds: object) -> float:
    """Epoch seconds of a stored time; 0.0 if it is none, or before 2000 or after 2100."""
    try:
        number = float(milliseconds)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return 0.0
    return number / 1000 if MIN_TIME_MS <= number <= MAX_TIME_MS else 0.0


def _number(text: object) -> int:
    try:
        return int(text or 0)  # type: ignore[call-overload, no-any-return]
    except (TypeError, ValueError):
        return 0


def due_of_score(score: str) -> float | None:
    """When a delayed job is due, in epoch seconds UTC; None if its score is no time."""
    number = float(score)
    if not isfinite(number) or number > 4096 * MAX_TIME_MS:
        return None
    return max(0.0, int(number) // 4096 / 1000)


_make_task: Callable[[Iterable[object]], Task] = partial(tuple.__new__, Task)
"""A third of the time of a call of `Task`."""


def is_usual(ids: str) -> bool:
    """True if each of the joined ids of jobs is itself a part of the id of a task."""
    return ids.isprintable() and ODD_ID not in ids


def page_count(answer: str) -> int:
    """The number of ids that an answer of `rows.lua` is about, which is its first element."""
    return int(answer[1 : answer.index(",")])


def read_page(
    place: RedisPlace, queue: str, ids: Sequence[str], answer: str, now: float
) -> tuple[int, int, list[Task | Problem]]:
    """The number of ids that an answer of `rows.lua` is about, of those without a hash, and their
    tasks and problems in the order of the ids; an id of no job yields nothing."""
    count, plain_ids, columns, others = json.loads(answer)
    columns, others = columns or [], others or []
    plain_ids = plain_ids or ids[:count]
    if columns and not is_usual("".join(ids)):
        wide = (each if isinstance(each, list) else repeat(each) for each in columns[:9])
        named = columns[10] if isinstance(columns[10], list) else repeat(columns[10])
        rows = zip(plain_ids, *wide, named, strict=False)
        others += [[*row, False, False, False, to] for *row, to in rows]
        columns = []
    tasks = [*_read_columns(queue, plain_ids, columns)] if columns else []
    if not others:
        return count, 0, tasks
    tasks += read_rows(place, queue, others, now)
    if columns:
        quoted = task_id(queue, "")
        order = {quoted + job_text(ident): n for n, ident in enumerate(ids)}
        tasks.sort(key=lambda item: order.get(item.id if isinstance(item, Task) else "", -1))
    return count, sum(not row[3] for row in others), tasks


def _read_columns(
    queue: str, ids: Sequence[str], columns: Sequence[Any]
) -> Iterator[Task | Problem]:
    """The tasks of plain rows: each column is converted at once, one of equal values once."""
    quoted, kind = task_id(queue, ""), safe_line(queue)
    places, scores, revs, names, stamps, priorities, attempts, *others = columns
    most, reasons, failed_at, to = others
    return map(
        _make_task,
        zip(
            [quoted + ident for ident in ids],
            repeat(kind),
            _each(lambda where: PLACES[where].state, places),
            _each(_created, stamps),
            repeat(""),
            _each(safe_line, names),
            _each(lambda where: PLACES[where].word, places),
            map(_due, _each(_same, places), _each(_same, scores))
            if "delayed" in places
            else repeat(0.0),
            _each(_number, attempts),
            _each(_number, priorities),
            _each(safe_line, names),
            _each(parse_destination, to),
            repeat(""),
            *map(repeat, NO_MAIL_FIELDS),
            _each(clean_error, reasons),
            repeat(None),
            _each(_same, revs),
            map(_plain_extra, _each(_same, most), _each(_same, failed_at))
            if most or failed_at
            else repeat(EMPTY),
            repeat(None),
            strict=False,
        ),
    )


def _created(stamp: object) -> float:
    if isinstance(stamp, str) and len(stamp) == 13 and stamp.isdecimal() and stamp < "4":
        return int(stamp) / 1000
    return _seconds(stamp)


def _due(place: str, score: str) -> float | None:
    return due_of_score(score) if place == "delayed" else 0.0


@lru_cache(maxsize=1024)
def _plain_extra(most: str | bool, failed_at: str) -> Mapping[str, str]:
    facts = _attempts_allowed(most) if isinstance(most, str) else EMPTY
    since = _seconds(failed_at)
    return {**facts, "dead_since": f"{since:.3f}"} if since else facts


def _same(value: T) -> T:
    return value


def _each(convert: Callable[[Any], T], column: object) -> Iterator[T]:
    """The converted values of a column, one for each row."""
    if not isinstance(column, list):
        return repeat(convert(column))
    return iter(column) if convert is _same else map(convert, column)


def read_rows(place: RedisPlace, queue: str, rows: list[Row], now: float) -> list[Task | Problem]:
    """The tasks and problems of rows; a row of no job yields nothing."""
    quoted, kind = task_id(queue, ""), safe_line(queue)
    tasks: list[Task | Problem] = []
    for row in rows:
        if len(row) < 14 or not row[1]:
            tasks += _problem(place.base(queue), quoted, row)
            continue
        ident, where, score, rev, name, stamp, priority, attempts, most, reason, *others = row
        lock, lock_milliseconds, more, to = others
        ident = job_text(ident)
        state, word, _, _ = PLACES[where]
        due: float | None = 0.0
        error, lease = "", None
        extra = _attempts_allowed(most) if most else EMPTY
        if where == "delayed":
            due = due_of_score(score)
        name = safe_line(name)
        if reason and where != "completed":
            error = clean_error(reason)
        if more or where == "active":
            more = more or {}
            extra = _extra(where, score, lock, more, extra)
            was = more.get("was") or ""
            if was.startswith("delayed "):
                due = due_of_score(was.removeprefix("delayed "))
            elif was.startswith("completed "):
                error = ""
            if lock:
                since = _seconds(more.get("processedOn"))
                lease = parse_lease(lock, more.get("pb", ""), since, now + lock_milliseconds / 1000)
        tries = _number(attempts) if attempts else 0
        rank = _number(priority) if priority and priority != "0" else 0
        values = quoted + ident, kind, state, _created(stamp), "", name, word, due, tries, rank
        target = parse_destination(to)
        more_values = name, target, "", *NO_MAIL_FIELDS, error, lease, rev, extra, None
        tasks.append(_make_task(values + more_values))
        if due is None:
            what = f"its time is {score!r:.40}, expected a number"
            tasks.append(Problem(quoted + ident, what, state))
        if more and ("broken" in more or "also" in more):
            tasks += _odd_job(quoted, ident, where, state, more)
    return tasks


_MORE = ("pb", "stc", "processedOn", "finishedOn", "parentKey", "rjk", "deid")


class SeenJob(NamedTuple):
    """A job whose hash is known."""

    id: str
    place: str
    position: str | bool
    rev: str
    fields: Mapping[str, str]
    more: Mapping[str, Any] = {}
    """As in a row of `rows.lua`."""
    lock: str = ""


def read_jobs(
    place: RedisPlace, queue: str, jobs: Iterable[SeenJob], now: float
) -> list[Task | Problem]:
    """The tasks and problems of jobs of a queue, by the rows that `rows.lua` would make."""
    field, rows = place.field(queue), list[Row]()
    for job in jobs:
        get = job.fields.get
        known = {name: job.fields[name][:500] for name in _MORE if name in job.fields}
        row = [*job[:4], get("name", "")[:500], get("timestamp", "")]
        attempts = get("attemptsMade") or get("atm", "")
        row += [get("priority", ""), attempts, attempts_text(get("opts", ""))]
        to = url_in(get("data", ""), field) if field else ""
        rows.append([*row, get("failedReason", "")[:2000], job.lock, 0, {**known, **job.more}, to])
    return read_rows(place, queue, rows, now)


def destination_pattern(field: str) -> str:
    """The Lua pattern that finds the value of a field in JSON; a name in a text is not found, as
    its quotes are escaped there."""
    name = re.sub(r"([^A-Za-z0-9_])", r"%\1", field)
    return f'"{name}"%s*:%s*"([^"\\]*)"' if field else ""


@lru_cache(maxsize=1024)
def _attempts_allowed(most: str) -> Mapping[str, str]:
    """Of "5 exponential 1000 0.5" (see `rows.lua`)."""
    attempts, kind, delay, jitter = (*most.split(), "fixed", "0", "0")[:4]
    facts = {ATTEMPTS_ALLOWED_KEY: f"{float(attempts):.0f}"}
    if kind.startswith(CUSTOM):
        return facts | {BACKOFF_KEY: kind}
    if delay != "0" and isfinite(float(delay)) and isfinite(float(jitter)):
        seconds = min(max(0.0, float(delay) / 1000), MAX_DELAY_SECONDS)
        share = min(max(0.0, float(jitter)), 1.0)
        facts[BACKOFF_KEY] = str(Schedule(kind, (seconds,), jitter=share))
    return facts


@lru_cache(maxsize=64)
def attempts_text(options: str) -> str | bool:
    """The attempts that a job's options allow, as `rows.lua` gives them; False: one, or unknown."""
    try:
        parsed = json.loads(options)
        most, delay = parsed.get("attempts", 0), parsed.get("backoff")
    except (ValueError, AttributeError, RecursionError):
        return False
    if not _is_number(most) or most <= 1:
        return False
    if _is_number(delay):
        delay = {"type": "fixed", "delay": delay}
    if not isinstance(delay, dict):
        return f"{most}"
    kind = delay.get("type")
    if kind not in ("exponential", "fixed"):
        name = kind if isinstance(kind, str) and re.fullmatch("[A-Za-z0-9_-]+", kind) else "?"
        return f"{most} {CUSTOM}{name}"
    if not _is_number(delay.get("delay")):
        return f"{most}"
    jitter = delay.get("jitter")
    return f"{most} {kind} {delay['delay']} {jitter if _is_number(jitter) else 0}"


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def own_retry_policy(task: Task, random: Callable[[], float] = random.random) -> RetryPolicy | None:
    """The policy of a job's own options: attempts, and a fixed or exponential delay with jitter.

    None: its options allow no second attempt, or name a strategy that only its program has.
    """
    most, schedule_text = attempts_allowed(task, None), task.extra.get(BACKOFF_KEY) or "fixed 0s"
    if most is None or schedule_text.startswith(CUSTOM):
        return None
    waits = parse_schedule(schedule_text)
    bounded = waits._replace(ceiling=MAX_DELAY_SECONDS, limit=most - 1)
    return retries_of(bounded, is_exact=True)._replace(random=random)


def job_options(schedule: Schedule) -> dict[str, Any]:
    """The options of a job that is retried by a schedule, in BullMQ's form.

    Raises:
        ValueError: BullMQ has no such delays.
    """
    if schedule.kind not in ("fixed", "exponential") or isfinite(schedule.ceiling):
        raise ValueError("expected fixed or exponential delays without a maximum")
    backoff = {"type": schedule.kind, "delay": round(schedule.waits[0] * 1000)}
    backoff |= {"jitter": schedule.jitter} if schedule.jitter else {}
    attempts = {} if schedule.limit is None else {"attempts": schedule.limit + 1}
    return attempts | {"backoff": backoff}


def _extra(
    place: str, score: str, lock: str, more: Mapping[str, Any], known: Mapping[str, str]
) -> Mapping[str, str]:
    facts: dict[str, str] = dict(known)
    was = str(more.get("was") or "").partition(" ")[0]
    if "failed" in (place, was) and (since := _seconds(more.get("finishedOn"))):
        facts["dead_since"] = f"{since:.3f}"
    if place == "active" and not lock:
        facts[STALLED_KEY] = "no lock"
    if place in ("held", "trash"):
        facts[f"{place}_since"] = f"{_seconds(score):.3f}"
        facts["was"] = was
    for key, name in _EXTRA_NAMES.items():
        if key in more:
            facts[name] = safe_line(str(more[key]))
    if more.get("needed"):
        facts["parent waits"] = "yes"
    if more.get("next_run"):
        facts["next run"] = "yes"
    return facts or EMPTY


_EXTRA_NAMES = {
    "stc": STALLED_BEFORE_KEY,
    "parentKey": "parent",
    "rjk": "scheduler",
    "deid": "deduplication id",
}


def _problem(base: str, quoted: str, row: Row) -> Iterator[Problem]:
    ident, where, _, rev = row[:4]
    state = PLACES[where].state if where else None
    name = quoted + job_text(ident)
    if rev:
        # Named by its key: a look for the id alone cannot tell it from a job deep in a long list.
        is_grouped = isinstance(row[12], dict) and "grouped" in row[12]
        yield Problem(base + job_text(ident), GROUPED if is_grouped else ORPHAN)
    elif where:
        what = f"is in {where}, but has no data" if not row[4] else "its key is no hash"
        yield Problem(name, what, state)


def _odd_job(
    quoted: str, ident: str, place: str, state: State, more: Mapping[str, Any]
) -> Iterator[Problem]:
    if "also" in more:
        words = " and ".join([place, *str(more["also"]).split()])
        yield Problem(quoted + ident, f"is in {words} at the same time", state)
    if "broken" in more:
        yield Problem(quoted + ident, "its options are not JSON: workers cannot read it", state)
