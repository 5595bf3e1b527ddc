"""Claim jobs (moveToActive), extend claims, and return jobs whose worker has ended."""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count
from typing import Any

from engine import verbs
from engine.formats.bullmq.change_feed import MarkerWatch
from engine.formats.bullmq.connection import Connection, ScriptCall, pack, script
from engine.formats.bullmq.image import to_bytes
from engine.formats.bullmq.moves import EDGES, JobMoves
from engine.formats.bullmq.package_scripts import PACKAGE_SCRIPTS
from engine.formats.bullmq.place import RedisPlace
from engine.formats.bullmq.repeats import Repeats
from engine.formats.bullmq.row import SeenJob, make_token, read_jobs
from engine.formats.bullmq.scan import QueueCounts
from engine.model import Move, Outcome, Task
from engine.store import ClaimFilter, StoreError
from engine.text.safe import clean_error

MAX_LOT = 64
"""Jobs that are claimed at a time."""
MAX_STALLED = 1
"""Times that a job may lose its worker before it fails (BullMQ: maxStalledCount)."""

MAX_KEPT_DATA = 256 * 1024
"""Characters of a job's data that are kept from its claim until its handler starts; longer data is
read again."""


class JobClaims:
    """Claims on one connection."""

    def __init__(
        self,
        connection: Connection,
        place: RedisPlace,
        moves: JobMoves,
        repeats: Repeats,
        find_queues: Callable[[], Sequence[str]],
        clock: Callable[[], float],
    ) -> None:
        self._connection, self._place, self._moves = connection, place, moves
        self._repeats = repeats
        self._clock = clock
        self._queues: Callable[[], Sequence[str]] = lambda: place.queues or find_queues()
        """The queues that the worker works, else all that are known."""
        self._unique, self._numbers = secrets.token_hex(8), count()
        self._lots: dict[str, int] = {}
        """Jobs to claim at a time from each queue: twice as many after a lot that was full."""
        self._last = ""
        """The queue of the last claim by `take`."""
        self._dues: dict[str, float] = {}
        """By queue without a job that can be claimed: when there may be one, epoch seconds UTC."""
        self._limits: dict[str, float] = {}
        """By queue whose rate limit was reached: when it ends, epoch seconds UTC."""
        self._data: dict[str, str] = {}
        """Data of the jobs of the last claim, by the tokens of their locks."""
        self.markers: MarkerWatch | None = None
        """Waits for jobs of the queues that have none, if a worker needs that."""

    def take(self, now: float, owner: str, limit: int, wants: ClaimFilter) -> Iterator[Task]:
        """Claim jobs in lots, one lot of each queue in turn, the queue of the last claim last.

        BullMQ itself chooses the next job of a queue, so `wants` is asked with an empty group.
        """
        queues = self._queues()
        after = queues.index(self._last) + 1 if self._last in queues else 0
        remaining, open_queues = limit, [*queues[after:], *queues[:after]]
        while open_queues:
            for queue in open_queues.copy():
                if remaining <= 0:
                    return
                most = max(1, min(remaining // len(open_queues), self._lots.get(queue, 1)))
                asked, tasks = self._next_of(queue, max(now, self._clock()), owner, most, wants)
                self._lots[queue] = min(2 * asked, MAX_LOT) if len(tasks) == asked else 1
                if not asked or len(tasks) < asked:
                    open_queues.remove(queue)
                self._last = queue if tasks else self._last
                remaining -= len(tasks)
                yield from self._hand_over(tasks)

    @property
    def next_due(self) -> float | None:
        """When there may be a job to claim, epoch seconds UTC, as far as the last claims know."""
        return min(self._dues.values(), default=None)

    def limit_ends(self) -> float | None:
        """See `ClaimRules.limit_ends`."""
        limited = {q: end for q, end in self._limits.items() if not self._repeats.is_closed(q)}
        counts = QueueCounts(self._connection, self._place, [*limited]).queues
        waits = [end for q, end in limited.items() if counts[q]["wait"] + counts[q]["prioritized"]]
        return min(waits, default=None)

    def end_rest(self, queue: str) -> None:
        """Claim from a queue again: a job of ours has ended, so that another one may start."""
        self._dues.pop(queue, None)
        self._limits.pop(queue, None)
        if self.markers is not None:
            self.markers.end_rest(queue)

    def _hand_over(self, tasks: list[Task]) -> Iterator[Task]:
        """Yield claimed jobs; return those that the worker does not accept any more."""
        waiting = deque(tasks)
        try:
            while waiting:
                yield waiting.popleft()
        finally:
            self._apply([Move(task, verbs.unclaim(task)) for task in waiting], self._clock())

    def _next_of(
        self, queue: str, now: float, owner: str, most: int, wants: ClaimFilter
    ) -> tuple[int, list[Task]]:
        """How many jobs were asked for, at most `most`, and those that were claimed."""
        markers, asked = self.markers, 0
        while asked < most and wants(queue, ""):
            asked += 1
        if not asked:
            self._dues.pop(queue, None)
            return 0, []
        if markers is not None and markers.is_resting(queue):
            due = self._dues.get(queue)
            if due is None or now < due:
                return asked, []
        self.end_rest(queue)
        tasks = self._claim(queue, now, owner, asked)
        if len(tasks) < asked and markers is not None:
            markers.start_rest(queue)
        return asked, tasks

    def swap_and_take(
        self, moves: Sequence[Move], now: float, owner: str, limit: int, wants: ClaimFilter
    ) -> tuple[list[Outcome], list[Task]]:
        """Store the outcomes of claimed jobs in one pipeline; the script of each also claims the
        next job of its queue (fetch-next of BullMQ), if `wants` agrees. It stops at `limit`."""
        claims = list[dict[str, Any] | None]()
        self._data.clear()
        for move in moves:
            assert move.old is not None, "a claimed job"
            is_wanted = limit > 0 and wants(move.old.kind, "")
            claims.append(self._options(move.old.kind, owner, now) if is_wanted else None)
            limit -= is_wanted
        answers = self._moves.apply_and_claim(EDGES, moves, now, claims)
        outcomes, tasks, doomed = list[Outcome](), list[Task](), list[Move]()
        for (outcome, answer), claim in zip(answers, claims, strict=True):
            outcomes.append(outcome)
            queue = outcome.move.old.kind if outcome.move.old is not None else ""
            self.end_rest(queue)
            if answer is not None and claim is not None:
                tasks += self._accept(queue, claim["token"], answer, now, doomed)
        self._apply(doomed, now)
        return outcomes, tasks

    def _options(self, queue: str, owner: str, now: float) -> dict[str, Any]:
        """The options of BullMQ's scripts for one claim, with the token of its lock."""
        seconds = self._place.settings.lease
        unique = f"{self._unique}{next(self._numbers):x}"
        options: dict[str, Any] = {
            "token": make_token(owner, now, now + seconds, unique),
            "lockDuration": round(seconds * 1000),
        }
        if owner:
            options["name"] = owner
        if limit := self._place.settings.limiter.get(queue):
            options["limiter"] = {"max": limit.max, "duration": round(limit.duration * 1000)}
        return options

    def _claim(self, queue: str, now: float, owner: str, number: int) -> list[Task]:
        """Claim jobs in one pipeline. Those that must fail instead are replaced: they have lost
        their worker too often, or a child of theirs has failed."""
        base = self._place.base(queue)
        keys = PACKAGE_SCRIPTS["moveToActive"].key_names(base)
        take_next = script("open", package="moveToActive")
        tasks: list[Task] = []
        is_empty = False
        self._data.clear()
        while len(tasks) < number and not is_empty:
            claims = [self._options(queue, owner, now) for _ in range(number - len(tasks))]
            words = [base, base, round(now * 1000)]
            calls = [ScriptCall(take_next, keys, [*words, pack(claim)]) for claim in claims]
            doomed: list[Move] = []
            error: StoreError | None = None
            for claim, answer in zip(claims, self._connection.run_all(calls), strict=True):
                if isinstance(answer, StoreError):
                    error, is_empty = answer, True
                elif answer[0] is None:  # not worked by us, see `layouts.lua`
                    is_empty = True
                else:
                    is_empty |= not answer[0][0]
                    tasks += self._accept(queue, claim["token"], answer[0], now, doomed)
            is_empty |= self._repeats.is_closed(queue)
            if error is not None and not tasks:
                raise error
            self._apply(doomed, now)
        if tasks:
            self._connection.confirm_changes()
        return tasks

    def _accept(
        self, queue: str, token: str, answer: list[Any], now: float, doomed: list[Move]
    ) -> list[Task]:
        """The job that BullMQ's answer to a claim contains, if any; one that must fail is appended
        to `doomed`."""
        flat, ident, limited_ms, delayed_ms = answer
        if not flat:
            if limited_ms > 0:
                self._dues[queue] = self._limits[queue] = now + limited_ms / 1000
            elif delayed_ms > 0:
                self._dues[queue] = delayed_ms / 1000
            return []
        fields = dict(zip(flat[::2], flat[1::2], strict=True))
        job = SeenJob(ident, "active", False, token, fields, lock=token)
        (task,) = read_jobs(self._place, queue, [job], now)
        assert isinstance(task, Task), ident
        if failure := fields.get("defa", ""):
            doomed.append(Move(task, verbs.give_up_task(task, clean_error(failure), 1)))
            return []
        if "rjk" in fields and not self._repeats.advance(queue, ident, fields, now):
            self._apply([Move(task, verbs.unclaim(task))], now)
            return []
        data = fields.get("data")
        if data is not None and len(data) <= MAX_KEPT_DATA:
            self._data[token] = data
        return [task]

    def _apply(self, moves: list[Move], now: float) -> None:
        if moves:
            self._moves.apply(EDGES, moves, now)

    def take_data(self, task: Task) -> bytes | None:
        """The data of a job of the last claim, once; None if it is not here."""
        data = self._data.pop(task.rev, None)
        return None if data is None else to_bytes(data)

    def return_stalled(self, now: float) -> float:
        """Return jobs without a lock to their queues, as every BullMQ worker does; return when this
        is next due, epoch seconds UTC.

        Raises:
            Unavailable: the server cannot be reached.
        """
        every = self._place.settings.stalled_check
        bases = [self._place.base(each) for each in self._queues()]
        meta_exists = self._connection.call_all([("EXISTS", f"{base}meta") for base in bases])
        name, times = "moveStalledJobsToWait", (round(now * 1000), round(every * 1000))
        return_jobs, names = script("open", package=name), PACKAGE_SCRIPTS[name].key_names
        calls = [
            ScriptCall(return_jobs, names(base), [base, MAX_STALLED, base, *times])
            for base, exists in zip(bases, meta_exists, strict=True)
            if exists == 1  # else the script would make the queue
        ]
        for answer in self._connection.run_all(calls) if calls else ():
            if isinstance(answer, StoreError):
                raise answer
        return self._clock() + every

    def renew(self, tasks: Iterable[Task], until: float) -> Iterator[Outcome]:
        """Extend claims in one pipeline; each gets a new lock token with its new end. If the
        connection is cut, the locks are read; if that fails too, the outcome of each is
        Unavailable, and some may have been extended."""
        renewed = self._moves.renew((old := list(tasks)), until, self._clock())
        for task, (new, error) in zip(old, renewed, strict=True):
            yield Outcome(Move(task, task if error else new), "" if error else new.rev, error)
