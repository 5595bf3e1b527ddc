"""Claim jobs (moveToActive), extend claims, and return jobs whose worker has ended."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
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
        self._dues: dict[str, float] = {}
        """By queue without a job that can be claimed: when there may be one, epoch seconds UTC."""
        self.markers: MarkerWatch | None = None
        """Waits for jobs of the queues that have none, if a worker needs that."""

    def take(
        self, queues: Sequence[str], now: float, owner: str, limit: int, wants: ClaimFilter
    ) -> Iterator[Task]:
        """Claim jobs, one of each queue in turn.

        BullMQ itself chooses the next job of a queue, so `wants` is asked with an empty group.
        """
        left, open_queues = limit, list(queues)
        while open_queues:
            for queue in open_queues.copy():
                if left <= 0:
                    return
                task = self._next_of(queue, max(now, self._clock()), owner, wants)
                if task is None:
                    open_queues.remove(queue)
                    continue
                left -= 1
                yield task

    @property
    def next_due(self) -> float | None:
        """When there may be a job to claim, epoch seconds UTC, as far as the last claims know."""
        return min(self._dues.values(), default=None)

    def end_rest(self, queue: str) -> None:
        """Claim from a queue again: a job of ours has ended, so that another one may start."""
        self._dues.pop(queue, None)
        if self.markers is not None:
            self.markers.end_rest(queue)

    def _next_of(self, queue: str, now: float, owner: str, wants: ClaimFilter) -> Task | None:
        markers = self.markers
        if not wants(queue, ""):
            self._dues.pop(queue, None)
            return None
        if markers is not None and markers.is_resting(queue):
            due = self._dues.get(queue)
            if due is None or now < due:
                return None
        self.end_rest(queue)
        checked = self._return_stalled(queue, now)
        task = self._claim(queue, now, owner)
        if task is None:
            self._dues[queue] = min(self._dues.get(queue, checked), checked)
            if markers is not None:
                markers.rest(queue)
        return task

    def _claim(self, queue: str, now: float, owner: str) -> Task | None:
        """Claim the next job; fail those that must fail instead: because they have lost their
        worker too often, or a child of theirs has failed."""
        while True:
            task, failure = self._move_to_active(queue, now, owner)
            if task is None or not failure:
                return task
            failed = verbs.give_up_task(task, clean_error(failure), 1)
            self._moves.apply(self._connection, EDGES, [Move(task, failed)], now)

    def _move_to_active(self, queue: str, now: float, owner: str) -> tuple[Task | None, str]:
        """The next job, if there is one, and the error with which it must fail."""
        base, until = self._place.base(queue), now + self._place.lease_seconds
        token = make_token(owner, now, until, secrets.token_hex(8))
        options: dict[str, Any] = {"token": token}
        options["lockDuration"] = round(self._place.lease_seconds * 1000)
        if owner:
            options["name"] = owner
        call = ScriptCall(
            script("claim", package="moveToActive"),
            PACKAGE_SCRIPTS["moveToActive"].key_names(base),
            [base, round(now * 1000), pack(options), pack({"base": base})],
        )
        answer: list[Any] = self._connection.run(call)
        if len(answer) < 3:
            limited_ms, delayed_ms = float(answer[0]), float(answer[1])
            if limited_ms > 0:
                self._dues[queue] = now + limited_ms / 1000
            elif delayed_ms > 0:
                self._dues[queue] = delayed_ms / 1000
            return None, ""
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
