"""Facts about a server and its queues: settings, memory, workers (CLIENT LIST), schedulers."""

from __future__ import annotations

import base64
import binascii
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import islice
from typing import TYPE_CHECKING, Any

from engine.formats.bullmq.connection import Connection, ScriptCall, script
from engine.formats.bullmq.place import DEFAULT_PREFIX, RedisPlace
from engine.formats.bullmq.row import MAX_TIME_MS
from engine.formats.bullmq.scan import (
    MAX_SUSPECTS,
    KnownQueues,
    QueueCounts,
    count_orphans,
    count_states,
)
from engine.model import ConnectedWorker, State
from engine.store import StoreError
from engine.text.safe import safe_line
from engine.text.times import format_rough_duration
from engine.values import NamedTuple

if TYPE_CHECKING:
    from engine.formats.bullmq.sentinel import SentinelAnswer

SAFE_POLICY = "noeviction"
"""The only value of maxmemory-policy with which no job is deleted for lack of memory."""
FULL_SHARE = 0.9
"""Share of the memory limit from which it is reported."""
EXAMINED = 200
"""Active jobs, and parents, that are examined one by one of each queue."""
MAX_PREFIXES = 20
"""Other prefixes that are examined."""
MAX_SHOWN = 5
"""Queues that are named one by one."""

LOCAL_SOCKET = "local socket"
"""Address of a client on a UNIX socket."""
_QUEUE_EVENTS = ":qe"
"""Ends the name of a client that only listens."""
_WORKER = ":w:"
"""Before the name of a worker in the name of its client."""


class QueueFacts(NamedTuple):
    """One queue at one moment."""

    name: str
    waiting: int
    """Jobs that a worker could take now, paused or not."""
    active: int
    workers: int | None
    """Different workers that are connected; None if the server does not say."""
    is_paused: bool
    version: str
    """The BullMQ version of the last Node program; "" if none wrote it."""
    schedulers: int
    next_run: float | None
    """When a scheduler's next job is due, in epoch seconds UTC."""
    overdue: int = 0
    """Delayed jobs whose time has come."""
    without_lock: int = 0
    """Active jobs that no worker has locked, of the first `EXAMINED`."""
    hopeless_parents: int = 0
    """Jobs that wait for children of which all that are left have failed; of `EXAMINED`."""
    counts: Mapping[State, int] = {}


class OtherQueues(NamedTuple):
    """Queues of a database that the place does not show."""

    prefixes: tuple[str, ...] = ()
    """Other prefixes of BullMQ queues: those that begin with the place's own and a colon, and all
    if the place has no queue."""
    bull: tuple[tuple[str, int], ...] = ()
    """Queues of Bull, not BullMQ, each with the number of its jobs."""
    databases: tuple[str, ...] = ()
    """Other databases of the server with keys."""


class QueueServerState(NamedTuple):
    """A server and its queues at one moment."""

    settings: Mapping[str, str]
    """Of INFO: maxmemory_policy, aof_enabled, used_memory, maxmemory."""
    queues: Sequence[QueueFacts]
    workers: Sequence[ConnectedWorker] = ()
    """The workers of these queues, as far as the server says."""
    orphans: Mapping[str, int] = {}
    """By queue: jobs that are in none of its lists and sets."""
    prefix: str = DEFAULT_PREFIX
    database: int = 0
    others: OtherQueues = OtherQueues()
    master: str = ""
    """HOST:PORT of the master that Sentinels name; "" without Sentinels."""
    sentinels: Sequence[SentinelAnswer] = ()
    """What each Sentinel of the place answers."""

    @property
    def without_worker(self) -> list[str]:
        """The queues in which jobs wait and no worker is connected."""
        return [
            queue.name
            for queue in self.queues
            if (queue.waiting or queue.overdue) and queue.workers == 0 and not queue.is_paused
        ]

    @property
    def versions(self) -> list[str]:
        """The different BullMQ versions."""
        return sorted({queue.version for queue in self.queues} - {""})


def read_state(
    connection: Connection,
    place: RedisPlace,
    now: float,
    orphans: Mapping[str, int] | None = None,
    known: KnownQueues | None = None,
) -> QueueServerState:
    """Read the facts at `now` (epoch seconds UTC). Without known orphans all keys are searched for
    them; `known` queues are searched again only if they are old.

    Raises:
        StoreError: the server cannot be read.
    """
    settings = dict(connection.read_facts().facts)
    known = known or KnownQueues(connection, place)
    queues = known.names()
    counts = QueueCounts(connection, place, queues).queues
    bases, asked = [place.base(queue) for queue in queues], list[Sequence[Any]]()
    asked += [("HMGET", f"{base}meta", "paused", "version") for base in bases]
    asked += [("ZCARD", f"{base}repeat") for base in bases]
    asked += [("ZRANGE", f"{base}repeat", 0, 0, "WITHSCORES") for base in bases]
    answers = connection.call_all(asked) if asked else []
    metas, numbers, nexts = (answers[n * len(queues) : (n + 1) * len(queues)] for n in range(3))
    workers = _read_workers(connection, place, queues)
    words = [round(now * 1000), EXAMINED, place.prefix, *bases]
    waits = iter(connection.run(ScriptCall(script("waits", reads_only=True), [], words)))
    queue_facts = []
    for queue, meta, number, following in zip(queues, metas, numbers, nexts, strict=True):
        due, unlocked, parents = islice(waits, 3)
        paused, version = (None, None) if isinstance(meta, StoreError) else meta
        waiting = [max(0, counts[queue][name]) for name in ("wait", "paused", "prioritized")]
        queue_facts.append(
            QueueFacts(
                queue,
                sum(waiting),
                max(0, counts[queue]["active"]),
                workers=None if workers is None else sum(queue in one.queues for one in workers),
                is_paused=paused is not None,
                version=safe_line(version or "").removeprefix("bullmq:"),
                schedulers=number if isinstance(number, int) else 0,
                next_run=_first_score(following),
                overdue=due,
                without_lock=unlocked,
                hopeless_parents=parents,
                counts=count_states(counts[queue]),
            )
        )
    if orphans is None:
        orphans = count_orphans(connection, place, counts)
    database = place.options.get("db")
    return QueueServerState(
        settings,
        queue_facts,
        workers or (),
        orphans=orphans,
        prefix=place.prefix,
        database=database if isinstance(database, int) else 0,
        others=_read_others(connection, place, known, settings),
        sentinels=connection.ask_sentinels(),
        master=connection.master,
    )


def _read_others(
    connection: Connection, place: RedisPlace, known: KnownQueues, settings: Mapping[str, str]
) -> OtherQueues:
    """The queues that the place does not show; other prefixes only if it shows none, or if they are
    within its own."""
    own_prefix = f"{place.prefix}:"
    prefixes = sorted(p for p in known.others if p.startswith(own_prefix) or not known.names())
    prefixes = prefixes[:MAX_PREFIXES]
    asked = [("HMGET", f"{known.others[p]}:meta", "version", "opts.maxLenEvents") for p in prefixes]
    settled = connection.call_all(asked) if asked else []
    prefixes = [
        prefix
        for prefix, meta in zip(prefixes, settled, strict=True)
        if not isinstance(meta, StoreError) and any(meta)
    ]
    jobs = QueueCounts(connection, place, known.of_bull).queues
    databases = settings.get("databases", "").split()
    return OtherQueues(
        tuple(prefixes),
        tuple((queue, sum(max(0, n) for n in jobs[queue].values())) for queue in known.of_bull),
        tuple(name for name in databases if name != str(place.options.get("db"))),
    )


def _first_score(answer: Any) -> float | None:
    if isinstance(answer, StoreError) or not answer:
        return None
    first = answer[0]
    score = first[1] if isinstance(first, (list, tuple)) else answer[1]
    return float(score) / 1000


def _read_workers(
    connection: Connection, place: RedisPlace, queues: Collection[str]
) -> list[ConnectedWorker] | None:
    """The workers of these queues; None without the permission to ask.

    A Python worker has several connections, so rows of one name and host are one worker. Without a
    name, those of different queues are different workers.
    """
    try:
        clients: list[dict[str, str]] = connection.call("CLIENT LIST")
    except StoreError:
        return None
    workers: dict[tuple[str, str, str], tuple[set[str], float]] = {}
    for client in clients:
        name = client.get("name", "")
        if not name.startswith(f"{place.prefix}:") or name.endswith(_QUEUE_EVENTS):
            continue
        queue, _, worker = name.removeprefix(f"{place.prefix}:").partition(_WORKER)
        host = client.get("addr", "").rpartition(":")[0].strip("[]")
        host = LOCAL_SOCKET if host.startswith("/") else host
        served = {queue, _decode_base64(queue)}.intersection(queues)
        key = worker, host, "" if worker else min(served, default="")
        before, age = workers.get(key, (set(), 0.0))
        if served:
            workers[key] = before | served, max(age, float(client.get("age", 0)))
    return [
        ConnectedWorker(safe_line(name), safe_line(host), tuple(sorted(served)), age)
        for (name, host, _), (served, age) in sorted(workers.items())
    ]


def _decode_base64(text: str) -> str:
    """A queue's name as Node writes it in the name of a client; the same text if it is not so."""
    try:
        return base64.b64decode(text, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError, ValueError):
        return text


def describe_state(state: QueueServerState, now: float) -> list[tuple[str, str]]:
    """Names and values for the screen."""
    aof = state.settings.get("aof_enabled")
    known = [queue for queue in state.queues if queue.workers is not None]
    planned = sorted((q.next_run, q) for q in state.queues if q.next_run is not None)
    runs = (
        f"{q.name} {q.schedulers}, next in {format_rough_duration(max(0.0, at - now))}"
        for at, q in planned
    )
    rows = [
        *_describe_master(state.master, state.sentinels),
        ("memory", _describe_memory(state.settings)),
        ("aof", {"1": "on", "0": "off"}.get(aof or "", "?")),
        ("workers", list_names(f"{queue.name} {queue.workers}" for queue in known) or "?"),
        ("schedules", list_names(runs)),
        ("paused", list_names(queue.name for queue in state.queues if queue.is_paused)),
        ("versions", list_names(state.versions)),
    ]
    return [(name, value) for name, value in rows if value]


def describe_sentinels(place: RedisPlace) -> list[tuple[str, str]]:
    """The master in use and the Sentinels that name it; nothing without Sentinels.

    Raises:
        Unavailable: they name no master to use.
    """
    if not place.sentinels:
        return []
    with closing(Connection(place)) as connection:
        return _describe_master(connection.master, connection.ask_sentinels())


def _describe_master(master: str, answers: Sequence[SentinelAnswer]) -> list[tuple[str, str]]:
    agreeing = [one.sentinel for one in answers if one.named == master]
    named_by = f"{len(agreeing)} of {len(answers)} name it: {list_names(agreeing)}"
    return [("master", master), ("sentinels", named_by)] if answers else []


def _describe_memory(settings: Mapping[str, str]) -> str:
    """Memory in use, its limit, and what the server does when it is full (maxmemory-policy)."""
    used, limit = (int(settings.get(name, 0)) / 2**20 for name in ("used_memory", "maxmemory"))
    most = f" of {limit:,.0f}" if limit else ""
    return f"{used:,.1f}{most} MiB, {settings.get('maxmemory_policy', '?')}"


class ServerWarning(NamedTuple):
    """Something about a server that endangers or delays jobs."""

    what: str
    fix: str
    is_severe: bool = False


def find_warnings(state: QueueServerState) -> Iterator[ServerWarning]:
    """What an operator should change."""
    yield from _warn_of_others(state)
    policy = state.settings.get("maxmemory_policy", SAFE_POLICY)
    if policy != SAFE_POLICY:
        what = f"maxmemory-policy is {policy}: the server may delete jobs"
        fix = f"redis-cli config set maxmemory-policy {SAFE_POLICY}"
        yield ServerWarning(what, fix, is_severe=True)
    if state.settings.get("aof_enabled") == "0":
        what = "appendonly is off: a crash of the server loses the last changes"
        yield ServerWarning(what, "redis-cli config set appendonly yes")
    used, limit = (int(state.settings.get(name, 0)) for name in ("used_memory", "maxmemory"))
    if limit and used >= FULL_SHARE * limit:
        yield ServerWarning(
            f"{100 * used // limit} % of the memory limit is used",
            "redis-cli config set maxmemory BYTES, or spooldeck expunge --state completed "
            "(purge copies jobs first)",
        )
    for queue, number in state.orphans.items():
        more = "+" if number >= MAX_SUSPECTS else ""
        jobs = "1 job is" if number == 1 else f"{number:,}{more} jobs are"
        is_plain = queue == safe_line(queue)
        target = shlex.quote(queue) if is_plain else "QUEUE"
        yield ServerWarning(
            f"{safe_line(queue)}: {jobs} in no list and no set of the queue, so that no worker "
            "finds them",
            f"the control recover puts them back: spooldeck control recover --target {target}",
            is_severe=True,
        )
    if state.settings.get("master_link_status", "up") != "up":
        what = "this replica has no connection to its primary: what it shows is old, or missing"
        yield ServerWarning(what, "open the primary, or repair the connection", is_severe=True)
    yield from _warn_of_sentinels(state)
    if state.without_worker:
        what = f"jobs wait without a worker: {list_names(state.without_worker)}"
        yield ServerWarning(what, "start their workers")
    if lost := [f"{q.name} {q.without_lock:,}" for q in state.queues if q.without_lock]:
        fix = "a worker of the queue returns them within a minute, or spooldeck release"
        yield ServerWarning(f"active jobs that no worker has locked: {list_names(lost)}", fix)
    if parents := [f"{q.name} {q.hopeless_parents:,}" for q in state.queues if q.hopeless_parents]:
        what = f"parents wait for children that have all failed: {list_names(parents)}"
        yield ServerWarning(what, "spooldeck replay --state failed puts the children back")
    majors = {version.partition(".")[0] for version in state.versions}
    if len(majors) > 1:
        what = f"programs of BullMQ {list_names(state.versions)} use this server"
        yield ServerWarning(what, "update the older ones")


def _warn_of_sentinels(state: QueueServerState) -> Iterator[ServerWarning]:
    for one in state.sentinels:
        if one.named == state.master:
            continue
        if one.is_usable:
            what = f"Sentinel {one.sentinel} names another master, {one.named}"
            fix = "find out which one is right: what is changed on the other is lost"
            yield ServerWarning(f"{what}; in use is {state.master}", fix, is_severe=True)
        else:
            fix = "start it, or correct it (SENTINEL RESET) or the address of the place"
            yield ServerWarning(f"Sentinel {one}; in use is {state.master}", fix)


def _warn_of_others(state: QueueServerState) -> Iterator[ServerWarning]:
    prefixes, bull, databases = state.others
    if bull:
        named = list_names(f"{name} ({count:,} jobs)" for name, count in bull)
        yield ServerWarning(f"queues of Bull, not BullMQ, are not shown: {named}", "use BullMQ")
    within = [each for each in prefixes if each.startswith(f"{state.prefix}:")]
    if within:
        what = f"queues with a colon in their names are not shown: prefix {list_names(within)}"
        fix = f"open them as a place of their own: ?prefix={safe_line(within[0])}"
        yield ServerWarning(what, fix)
    if state.queues or within or bull:
        return
    place = f"no queue with prefix {safe_line(state.prefix)}"
    if prefixes:
        what = f"{place}; this database has queues with prefix {list_names(prefixes)}"
        fix = f"correct the address of the place: ?prefix={safe_line(prefixes[0])}"
    else:
        elsewhere = f"; keys are in database {list_names(databases)}" if databases else ""
        what = f"{place} in database {state.database}{elsewhere}"
        fix = "correct prefix or database in the address, or add a first job"
    yield ServerWarning(what, fix)


def list_names(names: Iterable[str]) -> str:
    """The first names, and how many more there are."""
    all_names = [*names]
    more = f" and {len(all_names) - MAX_SHOWN} more" if len(all_names) > MAX_SHOWN else ""
    return safe_line(", ".join(all_names[:MAX_SHOWN]) + more)


class QueueRuns(NamedTuple):
    """The jobs of a queue that finished in the last minutes, by workers of any program."""

    queue: str
    has_tasks: bool
    """True if jobs wait or run."""
    counts: tuple[int, int] | None
    """How many completed and how many failed in `window` seconds; None if that is unknown."""
    window: float
    source: str
    """Where the counts are from: `jobs` or `metrics`."""
    waits: Sequence[float]
    """Seconds from due to start of the last ones that had one attempt."""
    runs: Sequence[float]
    """Seconds of the last attempt of the last ones."""


def read_runs(
    connection: Connection, place: RedisPlace, queues: Sequence[str], now: float, seconds: float
) -> list[QueueRuns]:
    """Read the runs of the last `seconds` before `now` (epoch seconds UTC) of each queue: counts
    from BullMQ's metrics, else from the finished jobs that are kept; times from those.

    Raises:
        StoreError: the server cannot be read.
    """
    counts = QueueCounts(connection, place, queues).queues
    least, asked = round((now - seconds) * 1000), list[Sequence[Any]]()
    most = max(1, min(RUNS_READ, MAX_RUNS_READ // max(1, len(queues))))
    for queue in queues:
        base = place.base(queue)
        for end in _ENDS:
            asked += [
                ("ZCOUNT", base + end, least, "+inf"),
                ("ZRANGE", base + end, 0, 0, "WITHSCORES"),
                ("ZREVRANGEBYSCORE", base + end, "+inf", least, "LIMIT", 0, most),
                ("HMGET", f"{base}metrics:{end}", "count", "prevCount", "prevTS"),
                ("LRANGE", f"{base}metrics:{end}:data", 0, round(seconds) // 60),
            ]
    answers = iter(connection.call_all(asked) if asked else [])
    queue_runs = []
    for queue in queues:
        finished_jobs = [_FinishedJobs(*islice(answers, 5)) for _ in _ENDS]
        ids = [f"{place.base(queue)}{ident}" for end in finished_jobs for ident in end.known_ids]
        words = ("processedOn", "finishedOn", "timestamp", "delay", "attemptsMade", "atm")
        jobs = connection.call_all(("HMGET", key, *words) for key in ids) if ids else []
        runs, waits = list[float](), list[float]()
        for job in jobs:
            times = [None] * 6 if isinstance(job, StoreError) else job
            began, ended, made, delay = (_milliseconds(value) for value in times[:4])
            if began and ended and began <= ended:
                runs.append((ended - began) / 1000)
            if began and made and (times[4] or times[5] or "1") == "1":
                waits.append(max(0.0, (began - made - delay) / 1000))
        has_tasks = any(counts[queue][name] > 0 for name in _UNFINISHED)
        ends = _count_ends(finished_jobs, now, seconds)
        queue_runs.append(QueueRuns(queue, has_tasks, *ends, waits, runs))
    return queue_runs


RUNS_READ, MAX_RUNS_READ = 100, 2000
"""Completed jobs, and failed ones, of a queue whose times are read, the last ones; and of all."""
_ENDS = ("completed", "failed")
_UNFINISHED = ("wait", "paused", "prioritized", "delayed", "waiting-children", "active")


class _FinishedJobs(NamedTuple):
    """The answers of the server about the completed or the failed jobs of a queue."""

    count: Any
    first: Any
    ids: Any
    metrics: Any
    minutes: Any

    @property
    def known_ids(self) -> Sequence[str]:
        return [] if isinstance(self.ids, StoreError) else self.ids


def _count_ends(
    finished_jobs: Sequence[_FinishedJobs], now: float, seconds: float
) -> tuple[tuple[int, int] | None, float, str]:
    """Completed and failed jobs, the seconds in which they finished, and the source."""
    measured = [_count_by_metrics(end, now, seconds) for end in finished_jobs]
    if any(each is not None for each in measured):
        window = max(each[1] for each in measured if each is not None)
        completed, failed = (0 if each is None else each[0] for each in measured)
        return (completed, failed), window, "metrics"
    oldest = _first_score(finished_jobs[0].first)
    if any(isinstance(end.count, StoreError) for end in finished_jobs) or oldest is None:
        return None, seconds, ""  # completed jobs are removed, or none ever was
    # If all that are kept are newer, older ones of the window may have been removed.
    window = min(seconds, max(1.0, now - oldest))
    return (finished_jobs[0].count, finished_jobs[1].count), window, "jobs"


def _count_by_metrics(end: _FinishedJobs, now: float, seconds: float) -> tuple[int, float] | None:
    """Jobs and seconds by the points of BullMQ, one a minute, the newest first; the jobs of the
    newest minute are in no point yet."""
    if isinstance(end.metrics, StoreError) or isinstance(end.minutes, StoreError):
        return None
    total, before, newest = (_milliseconds(value) for value in end.metrics)
    if not newest:
        return None
    gap = int(now // 60 - newest // 60_000)
    whole = max(0, round(seconds) // 60 - 1 - gap)
    points = [_milliseconds(value) for value in end.minutes[:whole]]
    jobs = round(sum(points) + (total - before if gap * 60 < seconds else 0))
    return max(0, jobs), max(60.0, min(seconds, (gap + len(points)) * 60 + now % 60))


def _milliseconds(value: Any) -> float:
    """A stored number; 0.0 if it is none, or no time."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return 0.0
    return number if 0 <= number <= MAX_TIME_MS else 0.0
