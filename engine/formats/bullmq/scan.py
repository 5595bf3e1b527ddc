"""Scan queues: ids by ranges, then rows by a read-only script; nothing is written.

BullMQ's own readers (getJobs, getCounts, getRanges) remove old markers, so they are not used.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import count, groupby, islice, pairwise
from typing import Any

from engine.formats.bullmq.connection import Connection, Denied, ScriptCall, pack, script
from engine.formats.bullmq.place import RedisPlace, job_of, job_text, split_id, task_id
from engine.formats.bullmq.row import (
    OLD_MARKER,
    ORPHAN,
    PLACES,
    STATES,
    WORDS,
    destination_pattern,
    is_usual,
    page_count,
    read_page,
)
from engine.model import Missing, Problem, State, Task, TaskCounts
from engine.store import StoreError, Unsupported
from engine.system.sorted_names import SortedNames

ROWS_PER_CALL = 200
"""Rows that one call of the script reads at most."""
EFFORT_PER_CALL = 256 * 1024
"""Effort (`common.lua`) after which a call ends early."""
QUEUES_PER_PIPELINE = 50
"""Queues whose named jobs are read together."""
IDS_PER_PAGE = 5000
PREVIEW_COUNT = 50
"""Jobs of each place of a queue that a full scan yields first, unsorted."""
MAX_PREVIEW = 200
FIND_SECONDS = 2.0
"""Seconds between two searches for new queues."""
FIND_COST_FACTOR = 20
"""Minimum time to the next search, in multiples of the last one's duration."""
MAX_OTHERS = 1000
"""Queues of all prefixes that one search notes."""
_META, _ID = ":meta", ":id"
_META_OR_ID = "*[:e][it][ad]"
"""A pattern of the keys with one of these ends, and of few others: one SCAN finds both."""
KEYS_PER_STEP = 5000
"""Keys that one step of a SCAN visits."""
MAX_SUSPECTS = 1000
"""Jobs that are examined one by one in a scan because they seem to be in no place or in two."""

ScanItem = Task | Problem


class KnownQueues:
    """The names of all queues of a prefix, which are found by a SCAN over all keys.

    Its methods raise `StoreError` if the server cannot be read.
    """

    def __init__(self, connection: Connection, place: RedisPlace) -> None:
        self._connection, self._place = connection, place
        self._names: list[str] = []
        self._due = 0.0
        self.others: Mapping[str, str] = {}
        """Other prefixes that may have queues in this database, each with the start of the keys of
        one; also those that begin with ours, as the names of queues here have no colon."""
        self.of_bull: Sequence[str] = ()
        """Queues of our prefix that have a counter of Bull, and not the settings of BullMQ."""

    def names(self, *, fresh: bool = False) -> list[str]:
        """The names, sorted; searched again after `FIND_SECONDS` or `FIND_COST_FACTOR` times as
        long as the last search took, or if they must be `fresh`."""
        if fresh or time.monotonic() >= self._due:
            for _ in self.find():
                pass
        return self._names

    def find(self) -> Iterator[list[str]]:
        """Search all keys, and yield the names while they are found."""
        spent, began, start = 0.0, time.monotonic(), f"{self._place.prefix}:"
        try:
            names = set(self._connection.call("SMEMBERS", self._place.queues_key))
        except Denied:  # the user may see BullMQ's keys only, or none, which this raises
            self._connection.call("EXISTS", self._place.base("x"))
            names = set()
        bases, counters = set[str](), set[str]()
        yield sorted(names)
        for keys in scan_keys(self._connection, _META_OR_ID):
            met = {key.removesuffix(_META) for key in keys if key.endswith(_META)}
            bases |= set(islice(met, max(0, MAX_OTHERS - len(bases))))
            counters |= {key.removesuffix(_ID) for key in keys if key.endswith(_ID)}
            queue_names = {base.removeprefix(start) for base in met if base.startswith(start)}
            fresh = {name for name in queue_names - names if is_queue_name(name)}
            if fresh:
                names |= fresh
                spent += time.monotonic() - began
                yield sorted(fresh)
                began = time.monotonic()
        self.others = {
            base.rpartition(":")[0]: base
            for base in bases
            if ":" in base and not (base.startswith(start) and is_queue_name(base[len(start) :]))
        }
        bull = (base.removeprefix(start) for base in counters - bases if base.startswith(start))
        self.of_bull = sorted(name for name in bull if is_queue_name(name) and name not in names)
        self._names, ended = sorted(names), time.monotonic()
        spent += ended - began
        self._due = ended + max(FIND_SECONDS, FIND_COST_FACTOR * spent)

    def add(self, names: Iterable[str]) -> None:
        """Add queues that were just made, if the others are known."""
        if self._names:
            self._names = sorted({*self._names, *names})


def is_queue_name(text: str) -> bool:
    """True if a queue of this name is shown: BullMQ from version 5 on refuses a colon."""
    return bool(text) and ":" not in text and text.isprintable()


def scan_keys(connection: Connection, pattern: str) -> Iterator[list[str]]:
    """The keys that match a pattern, in lots; some perhaps twice."""
    cursor = "0"
    while True:
        cursor, keys = connection.call("SCAN", cursor, "MATCH", pattern, "COUNT", KEYS_PER_STEP)
        if keys:
            yield keys
        if str(cursor) == "0":
            return


def escape_pattern(text: str) -> str:
    """Text for a pattern of Redis that matches only itself."""
    return "".join(f"\\{sign}" if sign in "*?[]\\^" else sign for sign in text)


class QueueCounts:
    """The number of jobs in each place of each queue."""

    def __init__(self, connection: Connection, place: RedisPlace, queues: Sequence[str]) -> None:
        words = [word for queue in queues for word in (place.base(queue), place.kept_prefix(queue))]
        call = ScriptCall(script("counts", reads_only=True), [], words)
        numbers = iter(connection.run(call) if queues else ())
        self.queues: dict[str, dict[str, int]] = {
            queue: dict(zip(PLACES, islice(numbers, len(PLACES)), strict=True)) for queue in queues
        }
        self.total = TaskCounts(self.by_state(), self.by_word())

    def by_state(self) -> dict[State, int]:
        """The number of jobs in each state."""
        counts = Counter(dict.fromkeys(STATES, 0))
        for numbers in self.queues.values():
            counts.update(count_states(numbers))
        return counts

    def by_word(self) -> dict[str, int]:
        """The number of jobs of each word that is finer than a state."""
        counts = dict.fromkeys(WORDS, 0)
        for numbers in self.queues.values():
            for name, number in numbers.items():
                if word := PLACES[name].word:
                    counts[word] += max(0, number)
        return counts

    def odd_keys(self) -> Iterator[tuple[str, str]]:
        """Queue and place of each key of a wrong type."""
        for queue, numbers in self.queues.items():
            yield from ((queue, name) for name, number in numbers.items() if number < 0)


def count_states(numbers: Mapping[str, int]) -> dict[State, int]:
    """The number of jobs in each state, from that in each place."""
    counts = dict.fromkeys(STATES, 0)
    for name, number in numbers.items():
        counts[PLACES[name].state] += max(0, number)
    return counts


class RedisScan:
    """One scan of the queues; with `failed_only`, a state yields the jobs with a reason of
    failure."""

    def __init__(
        self, connection: Connection, place: RedisPlace, now: float, *, failed_only: bool = False
    ) -> None:
        self._connection, self._place, self._now = connection, place, now
        self._failed_only = failed_only
        self._preview_left = MAX_PREVIEW
        self._different = self._without_hash = 0
        self._twice: list[str] = []
        """Names that were listed twice in one state."""
        self.expected_tasks = 0
        """Number of jobs, once a full scan has begun."""

    # ---- some jobs

    def find(
        self, names: Iterable[str], group: str = "search"
    ) -> Iterator[Task | Missing | Problem]:
        """The jobs of these ids, each searched first in a group of places, then in all places of
        its queue."""
        by_queue: dict[str, list[str]] = {}
        for name in names:
            parts = split_id(name)
            if parts is None:
                yield Missing(name)
            else:
                by_queue.setdefault(parts[0], []).append(parts[1])
        queues = iter(by_queue.items())
        while some := list(islice(queues, QUEUES_PER_PIPELINE)):
            calls = [
                rows_call(self._place, queue, group, ids[:ROWS_PER_CALL]) for queue, ids in some
            ]
            for (queue, ids), answer in zip(some, self._connection.run_all(calls), strict=True):
                if isinstance(answer, StoreError):
                    raise answer
                done, items = self._read_page(queue, ids[:ROWS_PER_CALL], answer)
                items += self._rows(queue, group, ids[done:])
                yield from items
                present_ids = {item.id for item in items if isinstance(item, Task)}
                named = (task_id(queue, ident) for ident in ids)
                yield from (Missing(name) for name in named if name not in present_ids)

    def in_state(self, queues: Sequence[str], state: State, word: str = "") -> Iterator[ScanItem]:
        """All jobs of a state, or of one word of it, sorted by id."""
        with _JobNames() as names:
            counts = QueueCounts(self._connection, self._place, queues)
            self._list(names, counts, state, word)
            yield from self._sorted_rows(names, state)

    def sample_ends(self, counts: QueueCounts, number: int) -> Iterator[ScanItem]:
        """About so many jobs at the start and at the end of each place, at least one at each."""
        yield from (_odd_key(self._place, queue, name) for queue, name in counts.odd_keys())
        counts_by_queue = counts.queues.items()
        places = [(queue, name) for queue, of in counts_by_queue for name, n in of.items() if n > 0]
        count = max(1, number // max(1, len(places)))
        for queue, name in places:
            ids = [*self._ids(queue, name, 0, count - 1), *self._ids(queue, name, -count, -1)]
            yield from self._rows(queue, STATES[PLACES[name].state], [*dict.fromkeys(ids)])

    # ---- everything

    def preview(self, counts: QueueCounts) -> Iterator[ScanItem]:
        """Some jobs of each place, in any order."""
        for queue, numbers in counts.queues.items():
            for name, number in numbers.items():
                if number > 0 and self._preview_left > 0:
                    count = min(PREVIEW_COUNT, self._preview_left)
                    ids = self._ids(queue, name, -count, -1)
                    self._preview_left -= len(ids)
                    group = STATES[PLACES[name].state]
                    yield from (i for i in self._rows(queue, group, ids) if isinstance(i, Task))

    def everything(self, counts: QueueCounts, others: Collection[str] = ()) -> Iterator[ScanItem]:
        """Each state sorted by id, then the problems of more than one row; `others` are prefixes
        of other queues."""
        with _JobNames() as names:
            problems = [_odd_key(self._place, queue, name) for queue, name in counts.odd_keys()]
            for state in STATES:
                self._list(names, counts, state)
            self.expected_tasks = sum(names.counts.values())
            for state in STATES:
                yield from self._sorted_rows(names, state)
            yield from problems
            yield from self._doubles(names)
            yield from self._orphans(names, counts, others)

    def _list(self, names: _JobNames, counts: QueueCounts, state: State, word: str = "") -> None:
        """Add the ids of a state to the names."""
        for queue, numbers in counts.queues.items():
            quoted = task_id(queue, "")
            for name, number in numbers.items():
                at = PLACES[name]
                if number <= 0 or at.state is not state or (word and at.word != word):
                    continue
                for start in count(0, IDS_PER_PAGE):
                    end = start + IDS_PER_PAGE - 1
                    if self._failed_only:
                        entries, *ids = self._failed_ids(queue, name, start, end)
                    else:
                        ids = self._ids(queue, name, start, end)
                        entries = len(ids)
                    names.add(state, [quoted + text for text in _job_texts(ids)])
                    if entries < IDS_PER_PAGE:
                        break

    def _ids(self, queue: str, name: str, start: int, end: int) -> list[str]:
        at = PLACES[name]
        base = self._place.kept_prefix(queue) if at.is_ours else self._place.base(queue)
        command = "LRANGE" if at.is_list else "ZRANGE"
        try:
            ids: list[str] = self._connection.call(command, base + name, start, end)
        except Unsupported:  # it became another type since it was counted: the next scan shows it
            return []
        return ids

    def _failed_ids(self, queue: str, name: str, start: int, end: int) -> list[Any]:
        """The number of entries in a part of a list or set, and the failed jobs among them."""
        words = [self._place.base(queue), self._place.kept_prefix(queue), name, start, end]
        call = ScriptCall(script("failed", reads_only=True), [], words)
        answer: list[Any] = self._connection.run(call)
        return answer

    def _sorted_rows(self, names: _JobNames, state: State) -> Iterator[ScanItem]:
        last = ""
        for page in names.pages_in(state):
            unique = dict.fromkeys(page)
            if len(unique) < len(page):
                self._twice += (name for name, after in pairwise(page) if name == after)
            if last in unique:
                self._twice.append(last)
                del unique[last]
            last = page[-1]
            self._different += len(unique)
            first = _queue_prefix(page[0])
            is_one = last.startswith(first)  # so do all between them
            groups = [(first, iter(unique))] if is_one else groupby(unique, _queue_prefix)
            for prefix, some in groups:
                queue, _ = split_id(f"{prefix}x") or ("", "")
                ids = [job_of(name[len(prefix) :]) for name in some]
                if ids[:1] == [""]:  # the first in order
                    yield Problem(prefix, "its id is empty", state)
                    del ids[0]
                yield from self._rows(queue, STATES[state], ids)

    def _rows(self, queue: str, group: str, ids: Sequence[str]) -> Iterator[ScanItem]:
        """The jobs of ids of one queue. A page is read while the server works on the next one."""
        done, some, answer, items = 0, ids[:0], "", list[Task | Problem]()

        def read() -> None:
            items[:] = self._read_page(queue, some, answer)[1] if answer else []

        while done < len(ids):
            asked = ids[done : done + ROWS_PER_CALL]
            answered = self._connection.run(rows_call(self._place, queue, group, asked), read)
            yield from items
            some, answer = asked, answered
            done += page_count(answer)
        read()
        yield from items

    def _read_page(
        self, queue: str, ids: Sequence[str], answer: str
    ) -> tuple[int, list[Task | Problem]]:
        count, without, items = read_page(self._place, queue, ids, answer, self._now)
        self._without_hash += without
        return count, items

    # ---- problems

    def _doubles(self, names: _JobNames) -> Iterator[Problem]:
        """The jobs in two places; an id that moved while it was listed is not one."""
        suspects = [*self._twice, *(name for name, _ in names.in_several_states())]
        for name in suspects[:MAX_SUSPECTS]:
            yield from self._problems_of(name)

    def _orphans(
        self, names: _JobNames, counts: QueueCounts, others: Collection[str]
    ) -> Iterator[Problem]:
        """The job hashes that are in no list or set; they are listed only if there are too many."""
        other_prefixes = tuple(f"{prefix}:" for prefix in others)
        count = count_hashes(self._connection, self._place).total()
        if count <= self._different - self._without_hash:
            return
        start = len(self._place.prefix) + 1
        for _, keys in _job_hashes(self._connection, self._place, "keys"):
            own = (key[start:] for key in keys if not key.startswith(other_prefixes))
            parts = (key.partition(":") for key in own)
            names.add_hashes(task_id(q, ident) for q, _, ident in parts if q in counts.queues)
        for name in islice(names.unlisted(), MAX_SUSPECTS):
            yield from self._problems_of(name)

    def _problems_of(self, name: str) -> Iterator[Problem]:
        parts = split_id(name)
        if parts is not None:
            rows = self._rows(parts[0], "search-whole", [parts[1]])
            yield from (item for item in rows if isinstance(item, Problem))


def _job_hashes(
    connection: Connection, place: RedisPlace, what: str, start: str = ""
) -> Iterator[tuple[int, list[str]]]:
    """The number of job hashes, and their "keys", or as "count" queues and the number of each in
    turn; in lots, those of a queue if the start of its keys is given."""
    cursor = "0"
    while True:
        pattern = f"{escape_pattern(start or f'{place.prefix}:')}*"
        words = [cursor, pattern, what, len(place.prefix) + 1]
        call = ScriptCall(script("hashes", reads_only=True), [], words)
        cursor, count, keys = connection.run(call)
        yield count, keys
        if str(cursor) == "0":
            return


def count_hashes(connection: Connection, place: RedisPlace) -> Counter[str]:
    """The number of job hashes by queue, some perhaps counted twice."""
    hash_counts = Counter[str]()
    for _, pairs in _job_hashes(connection, place, "count"):
        for queue, number in zip(pairs[::2], pairs[1::2], strict=True):
            hash_counts[queue] += int(number)
    return hash_counts


def find_orphans(connection: Connection, place: RedisPlace, queue: str) -> list[str]:
    """The jobs of a queue that are in none of its lists and sets; what changes meanwhile may be
    among them."""
    base, orphans = place.base(queue), set[str]()
    for _, keys in _job_hashes(connection, place, "keys", base):
        orphans.update(key.removeprefix(base) for key in keys)
    # A queue whose name begins with this one's and a colon has its keys here too.
    others = tuple(name.removesuffix("meta") for name in orphans if name.endswith(":meta"))
    orphans = {name for name in orphans if not name.startswith(others)}
    for name, at in PLACES.items():
        if not at.is_ours:
            words = ["LRANGE" if at.is_list else "ZRANGE", base + name, 0, -1]
            orphans.difference_update(connection.call(*words))
    return sorted(orphans)


def count_orphans(
    connection: Connection, place: RedisPlace, counts: Mapping[str, Mapping[str, int]]
) -> dict[str, int]:
    """By queue of these counts: the jobs that are in none of its lists and sets, at most
    `MAX_SUSPECTS`; queues without one are omitted.

    The lists of a queue are read only if it has more hashes than entries, so entries without data
    may hide as many jobs here; a scan names both as problems. Each suspect is searched again, as it
    may have moved.
    """
    listed = {
        queue: sum(max(0, n) for name, n in numbers.items() if not PLACES[name].is_ours)
        for queue, numbers in counts.items()
    }
    hash_counts = count_hashes(connection, place)
    scan, orphan_counts = RedisScan(connection, place, time.time()), dict[str, int]()
    for queue, number in listed.items():
        if hash_counts[queue] > number:
            suspects = find_orphans(connection, place, queue)[:MAX_SUSPECTS]
            names = (task_id(queue, job) for job in suspects)
            again = scan.find(names, "search-whole")
            if count := sum(isinstance(i, Problem) and i.what == ORPHAN for i in again):
                orphan_counts[queue] = count
    return orphan_counts


def rows_call(place: RedisPlace, queue: str, group: str, ids: Sequence[str]) -> ScriptCall:
    """The call that reads the jobs of ids of one queue (`rows.lua`)."""
    given = [place.base(queue), place.kept_prefix(queue), group, EFFORT_PER_CALL, pack(ids)]
    given.append(destination_pattern(place.field(queue)))
    return ScriptCall(script("rows", reads_only=True), [], given)


def _queue_prefix(name: str) -> str:
    return name[: name.find("/") + 1]


def _job_texts(ids: Sequence[str]) -> Sequence[str]:
    """The jobs among the entries of a list or set, as in the ids of tasks."""
    text = "/".join(ids)
    if is_usual(text) and OLD_MARKER not in text:
        return ids  # as usual
    return [job_text(ident) for ident in ids if not ident.startswith(OLD_MARKER)]


def _odd_key(place: RedisPlace, queue: str, name: str) -> Problem:
    at = PLACES[name]
    base = place.kept_prefix(queue) if at.is_ours else place.base(queue)
    kind = "list" if at.is_list else "sorted set"
    return Problem(base + name, f"is no {kind}: BullMQ cannot use it", at.state)


class _JobNames(SortedNames):
    """The names of listed jobs, and of job hashes, in a temporary database."""

    def __init__(self) -> None:
        super().__init__()
        self.db.execute("CREATE TABLE hash(name TEXT)")

    def add_hashes(self, names: Iterable[str]) -> None:
        """Add the names of job hashes."""
        rows = ((name,) for name in names if name.isprintable())
        self.db.executemany("INSERT INTO hash VALUES (?)", rows)

    def unlisted(self) -> list[str]:
        """The names of hashes that were not listed."""
        rows = self.db.execute("SELECT name FROM hash EXCEPT SELECT name FROM name")
        return [name for (name,) in rows]
