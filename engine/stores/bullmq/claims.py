"""Claim jobs (moveToActive), extend claims, and return jobs whose worker has ended."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from engine.model import Move, Outcome, Task
from engine.store import ClaimFilter, Gone, StoreError
from engine.stores.bullmq.connection import Connection, ScriptCall, pack, plain_script, script
from engine.stores.bullmq.moves import JobMoves, read_answer
from engine.stores.bullmq.package_scripts import PACKAGE_SCRIPTS
from engine.stores.bullmq.place import RedisPlace
from engine.stores.bullmq.row import make_token, read_rows

STALLED_CHECK_SECONDS = 30.0
"""Seconds between two checks for jobs without a worker (BullMQ: stalledInterval)."""
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
    ) -> None:
        self._connection, self._place, self._moves = connection, place, moves
        self._check_due: dict[str, float] = {}
        self.next_due: float | None = None
        """Epoch seconds UTC of the next job that can be claimed, as far as the last claims know."""

    def take(
        self, queues: Sequence[str], now: float, owner: str, limit: int, wants: ClaimFilter
    ) -> Iterator[Task]:
        """Claim jobs, queue by queue in the order of their names.

        BullMQ itself chooses the next job of a queue, so `wants` is asked with an empty group.
        """
        self.next_due, left = None, limit
        for queue in queues:
            self._return_stalled(queue, now)
            while left > 0 and wants(queue, ""):
                task = self._claim(queue, now, owner)
                if task is None:
                    break
                left -= 1
                yield task

    def _claim(self, queue: str, now: float, owner: str) -> Task | None:
        base, until = self._place.base(queue), now + self._place.lease_seconds
        token = make_token(owner, now, until, secrets.token_hex(8))
        options = {"token": token, "lockDuration": round(self._place.lease_seconds * 1000)}
        call = ScriptCall(
            script("claim", package="moveToActive"),
            PACKAGE_SCRIPTS["moveToActive"].key_names(base),
            [base, round(now * 1000), pack(options), pack({"base": base})],
        )
        answer: list[Any] = self._connection.run(call)
        if len(answer) < 3:
            self._note_next(float(answer[0]), float(answer[1]), now)
            return None
        _, _, ident, rev, flat = answer
        fields = dict(zip(flat[::2], flat[1::2], strict=True))
        values = [fields.get(name, "") for name in _ROW_FIELDS]
        more = {
            key: fields[key] for key in ("pb", "stc", "parentKey", "rjk", "deid") if key in fields
        }
        row = [ident, "active", False, rev, *values, _attempts_of(fields.get("opts", ""))]
        row += [fields.get("failedReason", ""), token, 0, more]
        (found,) = read_rows(self._place, queue, [row], now)
        assert isinstance(found, Task), ident
        return found

    def _note_next(self, limited_ms: float, delayed_ms: float, now: float) -> None:
        times = [now + limited_ms / 1000] if limited_ms > 0 else []
        times += [delayed_ms / 1000] if delayed_ms > 0 else []
        if self.next_due is not None:
            times.append(self.next_due)
        self.next_due = min(times, default=None)

    def _return_stalled(self, queue: str, now: float) -> None:
        """Return jobs without a lock to their queue, as every BullMQ worker does."""
        if time.monotonic() < self._check_due.get(queue, 0.0):
            return
        self._check_due[queue] = time.monotonic() + STALLED_CHECK_SECONDS
        base = self._place.base(queue)
        arguments = [MAX_STALLED, base, round(now * 1000), round(STALLED_CHECK_SECONDS * 1000)]
        keys = PACKAGE_SCRIPTS["moveStalledJobsToWait"].key_names(base)
        self._connection.run(ScriptCall(plain_script("moveStalledJobsToWait"), keys, arguments))

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


def _attempts_of(options: str) -> float | bool:
    """The attempts that a job's options allow, if more than one: as the reading script gives it."""
    try:
        most = json.loads(options).get("attempts", 0)
    except (ValueError, AttributeError):
        return False
    return most if isinstance(most, (int, float)) and most > 1 else False
