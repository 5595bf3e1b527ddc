"""Claim jobs (moveToActive), extend claims, and return jobs whose worker has ended."""

from __future__ import annotations

import secrets
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count
from typing import Any

from engine import verbs
from engine.model import Move, Outcome, Task
from engine.store import ClaimFilter, Gone, StoreError
from engine.stores.bullmq.change_feed import MarkerWatch
from engine.stores.bullmq.connection import Connection, ScriptCall, pack, plain_script, script
from engine.stores.bullmq.moves import EDGES, JobMoves, read_answer
from engine.stores.bullmq.package_scripts import PACKAGE_SCRIPTS
from engine.stores.bullmq.place import RedisPlace
from engine.stores.bullmq.row import attempts_text, make_token, read_rows
from engine.text.safe import clean_error

MAX_LOT = 64
"""Jobs that are claimed at a time."""
MAX_STALLED = 1
"""Times that a job may lose its worker before it fails (BullMQ: maxStalledCount)."""

_ROW_FIELDS = ("name", "timestamp", "priority", "atm")


class JobClaims:
    """Claims on one connection."""

    def __init__(
        self,
        connection: Connection,
        place: RedisPlace,
        moves: JobMoves,
        clock: Callable[[], float],
    ) -> None:
        self._connection, self._place, self._moves = connection, place, moves
        self._clock = clock
        self._check_due: dict[str, float] = {}
        """When jobs without a worker are next looked for, by the monotonic clock."""
        self._unique, self._numbers = secrets.token_hex(8), count()
        self._lots: dict[str, int] = {}
        """Jobs to claim at a time from each queue: twice as many after a lot that was full."""
        self._dues: dict[str, float] = {}
        """By queue without a job that can be claimed: when there may be one, epoch seconds UTC."""
        self.markers: MarkerWatch | None = None
        """Waits for jobs of the queues that have none, if a worker needs that."""

    def take(
        self, queues: Sequence[str], now: float, owner: str, limit: int, wants: ClaimFilter
    ) -> Iterator[Task]:
        """Claim jobs in lots, one lot of each queue in turn.

        BullMQ itself chooses the next job of a queue, so `wants` is asked with an empty group.
        """
        left, open_queues = limit, list(queues)
        while open_queues:
            for queue in open_queues.copy():
                if left <= 0:
                    return
                most = max(1, min(left // len(open_queues), self._lots.get(queue, 1)))
                asked, tasks = self._next_of(queue, max(now, self._clock()), owner, most, wants)
                self._lots[queue] = min(2 * asked, MAX_LOT) if len(tasks) == asked else 1
                if not asked or len(tasks) < asked:
                    open_queues.remove(queue)
                left -= len(tasks)
                yield from self._hand_over(tasks)

    @property
    def next_due(self) -> float | None:
        """When there may be a job to claim, epoch seconds UTC, as far as the last claims know."""
        return min(self._dues.values(), default=None)

    def end_rest(self, queue: str) -> None:
        """Claim from a queue again: a job of ours has ended, so that another one may start."""
        self._dues.pop(queue, None)
        if self.markers is not None:
            self.markers.end_rest(queue)

    def _hand_over(self, tasks: list[Task]) -> Iterator[Task]:
        """Yield claimed jobs; return those that the worker does not accept any more."""
        waiting = deque(tasks)
        try:
            while waiting:
                yield waiting.popleft()
        finally:
            moves = [Move(task, verbs.unclaim(task)) for task in waiting]
            if moves:
                self._moves.apply(self._connection, EDGES, moves, self._clock())

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
        checked = self._return_stalled(queue, now)
        tasks = self._claim(queue, now, owner, asked)
        if len(tasks) < asked:
            self._dues[queue] = min(self._dues.get(queue, checked), checked)
            if markers is not None:
                markers.rest(queue)
        return asked, tasks

    def _claim(self, queue: str, now: float, owner: str, number: int) -> list[Task]:
        """Claim jobs in one pipeline. Those that must fail instead are replaced: they have lost
        their worker too often, or a child of theirs has failed."""
        base, until = self._place.base(queue), now + self._place.lease_seconds
        keys = PACKAGE_SCRIPTS["moveToActive"].key_names(base)
        options: dict[str, Any] = {"lockDuration": round(self._place.lease_seconds * 1000)}
        if owner:
            options["name"] = owner
        which, ours = script("claim", package="moveToActive"), pack({"base": base})
        found: list[Task] = []
        is_empty = False
        while len(found) < number and not is_empty:
            tokens = [
                make_token(owner, now, until, f"{self._unique}{next(self._numbers):x}")
                for _ in range(number - len(found))
            ]
            calls = [
                ScriptCall(
                    which, keys, [base, round(now * 1000), pack(options | {"token": token}), ours]
                )
                for token in tokens
            ]
            doomed: list[Move] = []
            error: StoreError | None = None
            for token, answer in zip(tokens, self._connection.run_all(calls), strict=True):
                if isinstance(answer, StoreError):
                    error, is_empty = answer, True
                elif len(answer) < 3:
                    self._note_due(queue, float(answer[0]), float(answer[1]), now)
                    is_empty = True
                else:
                    task, failure = self._parse(queue, token, answer, now)
                    if failure:
                        failed = verbs.give_up_task(task, clean_error(failure), 1)
                        doomed.append(Move(task, failed))
                    else:
                        found.append(task)
            if error is not None and not found:
                raise error
            if doomed:
                self._moves.apply(self._connection, EDGES, doomed, now)
        return found

    def _note_due(self, queue: str, limited_ms: float, delayed_ms: float, now: float) -> None:
        if limited_ms > 0:
            self._dues[queue] = now + limited_ms / 1000
        elif delayed_ms > 0:
            self._dues[queue] = delayed_ms / 1000

    def _parse(self, queue: str, token: str, answer: list[Any], now: float) -> tuple[Task, str]:
        """A claimed job, and the error with which it must fail, if it must."""
        _, _, ident, rev, flat = answer
        fields = dict(zip(flat[::2], flat[1::2], strict=True))
        values = [fields.get(name, "") for name in _ROW_FIELDS]
        more = {
            key: fields[key] for key in ("pb", "stc", "parentKey", "rjk", "deid") if key in fields
        }
        row = [ident, "active", False, rev, *values, attempts_text(fields.get("opts", ""))]
        row += [fields.get("failedReason", ""), token, 0, more]
        (found,) = read_rows(self._place, queue, [row], now)
        assert isinstance(found, Task), ident
        return found, fields.get("defa", "")

    def _return_stalled(self, queue: str, now: float) -> float:
        """Return jobs without a lock to their queue, as every BullMQ worker does; return when this
        is next due, epoch seconds UTC."""
        left = self._check_due.get(queue, 0.0) - time.monotonic()
        if left > 0:
            return now + left
        every = self._place.stalled_seconds
        self._check_due[queue] = time.monotonic() + every
        base = self._place.base(queue)
        if not self._connection.call("EXISTS", f"{base}meta"):
            return now + every  # the script would make the queue
        arguments = [MAX_STALLED, base, round(now * 1000), round(every * 1000)]
        keys = PACKAGE_SCRIPTS["moveStalledJobsToWait"].key_names(base)
        self._connection.run(ScriptCall(plain_script("moveStalledJobsToWait"), keys, arguments))
        return now + every

    def renew(self, tasks: Iterable[Task], until: float, now: float) -> Iterator[Outcome]:
        """Extend claims in one pipeline; each gets a new lock token with its new end."""
        outcomes: list[Outcome | None] = []
        asked: list[tuple[Task, str]] = []
        calls = []
        for task in tasks:
            try:
                call, token = self._moves.renewal(task, until, now)
            except Gone as error:
                outcomes.append(Outcome(Move(task, task), error=error))
                continue
            outcomes.append(None)
            calls.append(call)
            asked.append((task, token))
        answers = iter(self._connection.run_all(calls) if calls else ())
        renewed = iter(asked)
        for outcome in outcomes:
            if outcome is not None:
                yield outcome
                continue
            task, token = next(renewed)
            rev = read_answer(task.id, next(answers))
            if isinstance(rev, StoreError):
                yield Outcome(Move(task, task), error=rev)
                continue
            assert task.lease is not None
            lease = task.lease._replace(until=until, token=token)
            yield Outcome(Move(task, task._replace(rev=rev, lease=lease)), rev)
