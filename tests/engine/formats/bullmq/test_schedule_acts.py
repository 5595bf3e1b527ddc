"""Acts on schedules of BullMQ, and their undo: programs of the queue's version go on with them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeAlias

import pytest
from redis import Redis

from engine.config.queue_config import Config
from engine.formats.base.format import Setup
from engine.formats.bullmq.repeats import next_match
from engine.formats.bullmq.schedule_acts import ScheduleActs
from engine.formats.known_formats import setup_for
from engine.operations.controls import ControlResult
from engine.operations.journal import Operation
from engine.places.schedules import EDIT, REMOVE, RUN, Schedule
from engine.store import Gone
from tests.bullmq_jobs import unmarked
from tests.node_packages import NodeProgram
from tests.redis_server import TestServer

HOUR = 3_600_000
NOON = 1_795_176_000_000
"""2026-11-20 12:00:00 UTC, in epoch milliseconds."""
PATTERN, TWICE = "0 9 * * *", "30 6,18 * * *"


class Operator:
    """Acts on the schedules of the test's database, as a command or the console does."""

    def __init__(self, setup: Setup, clock: Callable[[], float]) -> None:
        self.setup, self.acts = setup, ScheduleActs(setup, clock)

    def only(self) -> Schedule:
        """The one schedule there is."""
        (one,) = self.acts.read(9).rows
        return one

    def change(self, verb: str, seen: Schedule | None = None, **changes: str) -> ControlResult:
        """Run a verb on a schedule, the only one if none is given."""
        return self.acts.change(verb, seen or self.only(), changes, "")

    def operation(self, op: str) -> Operation:
        """An operation of the journal."""
        operation = self.setup.journal().operation(op)
        assert operation is not None
        return operation

    def undo(self, done: ControlResult) -> ControlResult:
        """Undo an act; the plan can be shown before."""
        assert self.acts.plan_undo(self.operation(done.op))
        return self.acts.undo(self.operation(done.op), "")


Operate: TypeAlias = Callable[..., Operator]


@pytest.fixture
def operate(redis_url: str, own_state: None) -> Operate:
    """Make an operator whose clock shows a time in epoch milliseconds, or the true time."""

    def operate(now: int | None = None) -> Operator:
        clock = time.time if now is None else lambda: now / 1000
        return Operator(setup_for(Config(), redis_url, {}), clock)

    return operate


@pytest.fixture
def operator(operate: Operate) -> Operator:
    """An operator with the true time."""
    return operate()


# ---- with programs of each version


class Made(NamedTuple):
    """A schedule that a program of BullMQ has made, in the queue `mails`."""

    program: NodeProgram
    client: Redis

    def delayed(self) -> list[str]:
        """The ids of delayed jobs."""
        return [str(ident) for ident in self.client.zrange("bull:mails:delayed", 0, -1)]

    def run_next(self) -> tuple[int, dict[str, Any]]:
        """Let the program's worker run the next run now; when the run after it is due, epoch
        milliseconds, and its options."""
        (ident,) = self.delayed()
        self.program("promote", "mails", ident)
        assert self.program("work", "mails", "ok", 0, 20_000) == [ident]
        (following,) = self.delayed()
        (score,) = (
            score for _, score in self.client.zrange("bull:mails:repeat", 0, -1, withscores=True)
        )
        return round(score), json.loads(self.client.hget(f"bull:mails:{following}", "opts") or "")


@pytest.fixture(
    params=[
        "4.18.3 repeat",
        "5.81.5 schedule",
        "6.7.0 schedule",
        *(
            pytest.param(how, marks=pytest.mark.deep)
            for how in ("3.16.2 repeat", "5.0.0 repeat", "5.81.5 repeat")
        ),
    ]
)
def made(request: pytest.FixtureRequest, redis_server: TestServer, client: Redis) -> Iterator[Made]:
    """A schedule of the pattern `PATTERN` in Berlin, with nine runs."""
    version, how = request.param.split()
    program = NodeProgram(version, redis_server.socket)
    repeat = {"pattern": PATTERN, "tz": "Europe/Berlin", "limit": 9}
    if how == "schedule":
        program("schedule", "mails", "daily", repeat, {"data": {"n": 1}, "opts": {"attempts": 2}})
    else:
        program("repeat", "mails", repeat, {"n": 1})
    yield Made(program, client)
    program.close()


def test_a_run_now_is_one_more_job(made: Made, operator: Operator) -> None:
    """The program's worker runs it once, and the next run of the schedule stays as it was."""
    before = made.delayed()
    done = operator.change(RUN)
    (ident,) = made.program("work", "mails", "ok", 0, 20_000)
    assert ident == f"run-{done.op}"
    assert made.program("job", "mails", ident)["data"] == {"n": 1}
    assert (made.delayed(), operator.only().left) == (before, 9)
    with pytest.raises(Gone, match="it ran"):
        operator.undo(done)


def test_a_removed_schedule_is_put_back(made: Made, operator: Operator) -> None:
    """Nothing is left of it; the undo puts hash, time and next run back, and the program's worker
    goes on with it."""
    before, seen = unmarked(made.client), operator.only()
    done = operator.change(REMOVE)
    assert made.client.keys("bull:mails:repeat*") == made.delayed() == []
    operator.undo(done)
    after = unmarked(made.client)
    assert after == before
    assert operator.only() == seen
    (first,) = made.delayed()
    following, options = made.run_next()
    assert following == next_match(PATTERN, "Europe/Berlin", int(first.rpartition(":")[2]))
    assert (options["repeat"]["count"], operator.only().left) == (2, 8)


def test_an_edited_schedule_runs_by_its_new_rule(made: Made, operator: Operator) -> None:
    """The program's worker goes on by the new rule; after an undo, by the former one, with the runs
    that were counted meanwhile."""
    done = operator.change(EDIT, pattern=TWICE, tz="Asia/Tokyo", limit="20")
    edited = operator.only()
    assert (edited.rule, edited.zone, edited.left) == (TWICE, "Asia/Tokyo", 20)
    first = round((edited.next or 0) * 1000)
    assert first == next_match(TWICE, "Asia/Tokyo", round(time.time() * 1000))
    following, options = made.run_next()
    assert following == next_match(TWICE, "Asia/Tokyo", first)
    assert (options["repeat"]["count"], operator.only().left) == (2, 19)
    operator.undo(done)
    back = operator.only()
    assert (back.rule, back.zone, back.left) == (PATTERN, "Europe/Berlin", 8)
    first = round((back.next or 0) * 1000)
    following, options = made.run_next()
    assert following == next_match(PATTERN, "Europe/Berlin", first)
    assert operator.only().left == 7


def test_an_edit_is_undone_exactly_before_a_run(made: Made, operator: Operator) -> None:
    """Until one of its runs has started, the undo of an edit puts back every byte; the undo of that
    is the edit again."""
    before = unmarked(made.client)
    done = operator.change(EDIT, every="2h")
    assert operator.only().rule == "every 2h"
    undone = operator.undo(done)
    assert unmarked(made.client) == before
    operator.undo(undone)
    assert operator.only().rule == "every 2h"
