"""Acts on schedules of BullMQ, and their undo: programs of the queue's version go on with them."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import pytest

from engine.config.queue_config import Config
from engine.formats.base.format import Setup
from engine.formats.bullmq.connection import Connection
from engine.formats.bullmq.repeats import next_match
from engine.formats.bullmq.schedule_acts import ScheduleActs
from engine.formats.bullmq.store import BullmqStore
from engine.formats.known_formats import setup_for
from engine.operations.controls import ControlResult, EffectUnknown
from engine.operations.journal import Operation
from engine.places.schedules import EDIT, REMOVE, RUN, Schedule
from engine.store import Gone, Unavailable, Unsupported
from tests.bullmq_jobs import HOUR, NOON, unchanged, unmarked, write_schedule
from tests.node_packages import NodeProgram
from tests.redis_server import TestServer
from tests.store_contents import naming
from tui.operations.operation_lines import list_operations

PATTERN, TWICE = "0 9 * * *", "30 6,18 * * *"


class Operator:
    """Acts on the schedules of the test's database, as a command or the console does."""

    def __init__(self, setup: Setup, clock: Callable[[], float]) -> None:
        self.setup, self.acts = setup, ScheduleActs(setup, clock)

    def only(self) -> Schedule:
        """The one schedule there is."""
        (one,) = self.acts.read(9).rows
        return one

    def change(
        self, verb: str, changes: Mapping[str, str] = {}, seen: Schedule | None = None
    ) -> ControlResult:
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
def operate(redis_url: str, own_state: None, tmp_path: Path) -> Operate:
    """Make an operator whose clock shows a time in epoch milliseconds, or the true time."""

    def operate(now: int | None = None, place: str = redis_url) -> Operator:
        clock = time.time if now is None else lambda: now / 1000
        return Operator(
            setup_for(Config(), place, {"XDG_STATE_HOME": str(tmp_path / "state")}), clock
        )

    return operate


@pytest.fixture
def operator(operate: Operate) -> Operator:
    """An operator with the true time."""
    return operate()


# ---- with programs of each version


class Made(NamedTuple):
    """A schedule that a program of BullMQ has made, in the queue `mails`."""

    program: NodeProgram
    client: Any

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
def made(
    request: pytest.FixtureRequest, programs: Callable[[str], NodeProgram], client: Any
) -> Iterator[Made]:
    """A schedule of the pattern `PATTERN` in Berlin, with nine runs."""
    version, how = request.param.split()
    program = programs(version)
    repeat = {"pattern": PATTERN, "tz": "Europe/Berlin", "limit": 9}
    if how == "schedule":
        program("schedule", "mails", "daily", repeat, {"data": {"n": 1}, "opts": {"attempts": 2}})
    else:
        program("repeat", "mails", repeat, {"n": 1})
    yield Made(program, client)
    program("forget")


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
    done = operator.change(EDIT, {"pattern": TWICE, "tz": "Asia/Tokyo", "limit": "20"})
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


def test_an_edited_interval_goes_on(made: Made, operator: Operator) -> None:
    """Until one of its runs has started, the undo of an edit puts back every byte; the undo of that
    is the edit again. The program's worker adds the run after the next one by the new interval."""
    before = unmarked(made.client)
    undone = operator.undo(operator.change(EDIT, {"every": "2h"}))
    assert unmarked(made.client) == before
    operator.undo(undone)
    assert operator.only().rule == "every 2h"
    first = round((operator.only().next or 0) * 1000)
    following, options = made.run_next()
    assert (following, options["repeat"]["count"]) == (first + 2 * HOUR, 2)


# ---- without programs

LIMIT: Mapping[str, Mapping[str, str]] = {RUN: {}, REMOVE: {}, EDIT: {"limit": "7"}}
"""The changes of an act."""


def test_a_schedule_has_its_times(client: Any, operate: Operate) -> None:
    """Rule, last run, next run, runs left, end, and by what it was made."""
    write_schedule(client, limit=5, endDate=NOON + 9 * HOUR)
    one = operate(NOON).only()
    assert (one.id, one.name, one.rule, one.zone) == ("mails/tick", "tick", "every 1h", "")
    assert (one.last, one.next) == ((NOON - 60_000) / 1000, (NOON + HOUR) / 1000)
    assert (one.left, one.has_limit, one.end) == (4, True, (NOON + 9 * HOUR) / 1000)
    assert (one.made_by, one.problem, one.unknown) == ("scheduler 6.7.0", "", {})


def _spoil(client: Any, how: str) -> None:
    job = f"bull:mails:repeat:tick:{NOON + HOUR}"
    match how:
        case "lost":
            client.delete(job)
            client.zrem("bull:mails:delayed", f"repeat:tick:{NOON + HOUR}")
        case "ended":
            client.zrem("bull:mails:delayed", f"repeat:tick:{NOON + HOUR}")
            client.hset(job, mapping={"finishedOn": NOON, "processedOn": NOON - 5000})
        case "done":
            _spoil(client, "ended")
            client.hset("bull:mails:repeat:tick", "limit", 2)
        case "type":
            client.delete("bull:mails:repeat:tick")
            client.set("bull:mails:repeat:tick", "x")
        case "rule":
            client.hdel("bull:mails:repeat:tick", "every")
            client.hset(job, "opts", "{")
        case "pattern":
            client.hset("bull:mails:repeat:tick", mapping={"pattern": "H H * * *"})
        case "first":
            client.hset(job, "opts", json.dumps({"repeat": {"every": HOUR, "count": 1}}))


def test_what_is_wrong_with_a_schedule_is_named(client: Any, operate: Operate) -> None:
    """One that does not go on, one that is broken, and why a time is not known."""
    for how, problem, unknown in (
        ("lost", "stopped: the job of its next run (2026-11-20 13:00:00Z) is missing", "last next"),
        ("ended", "has finished, and no run follows", "next"),
        ("done", "", "next"),
        ("type", "its hash cannot be read: WRONGTYPE", ""),
        ("rule", "options of its next run cannot be read", "last rule"),
        ("pattern", "pattern cannot be counted here, only by workers for Node: H H", ""),
        ("first", "", "last"),
    ):
        client.flushdb()
        write_schedule(client)
        _spoil(client, how)
        one = operate(NOON).only()
        with naming(how):
            assert problem in one.problem if problem else not one.problem
            assert sorted(one.unknown) == unknown.split()
            assert (one.next is None) == ("next" in one.unknown)


ODD_OPTIONS = [
    "[1]",
    '{"repeat": 7}',
    '{"repeat": {"every": 0.5, "count": "x"}}',
    '{"repeat": {"every": 1e999, "endDate": "soon"}}',
    '{"repeat": {"pattern": {"a": 1}, "tz": 5, "limit": [], "count": -1}}',
    '{"repeat": ' + "[" * 5000 + "]" * 5000 + "}",
    '{"repeat": {"endDate": 1' + "0" * 300 + "}}",
]


@pytest.mark.parametrize("opts", ODD_OPTIONS, ids=range(len(ODD_OPTIONS)))
@pytest.mark.parametrize("form", ["ic", "hash", "key"])
def test_odd_values_break_no_list(client: Any, operate: Operate, opts: str, form: str) -> None:
    """They are shown as a problem, or passed over; an act is done and undone, or refused."""
    key = "tick" if form != "key" else "tick::soon:Mars/Base:H"
    write_schedule(client, key)
    own = f"bull:mails:repeat:{key}"
    if form == "key":
        client.delete(own)
    else:
        odd = {"every": "1e5", "limit": "9" * 400, "endDate": "x"}
        client.hset(own, mapping=odd | {"ic": "y" if form == "ic" else ""})
        client.hdel(own, *(["ic"] if form == "hash" else ["offset"]))
    job = f"{own}:{NOON + HOUR}"
    client.hset(job, mapping={"opts": opts, "timestamp": "9" * 400, "delay": "z"})
    client.zadd("bull:mails:repeat", {"far": float("inf"), "low": float("-inf")})
    operator = operate(NOON)
    rows = {one.id: one for one in operator.acts.read(9).rows}
    assert len(rows) == 3 and all(one.problem for name, one in rows.items() if "tick" not in name)
    before, seen = unmarked(client), rows[f"mails/{key}"]
    for verb in (RUN, EDIT, REMOVE):
        try:
            operator.undo(operator.change(verb, LIMIT[verb], seen))
        except Unsupported:
            continue
    client.delete("bull:mails:id")
    assert unmarked(client) == before


def test_a_stopped_schedule_goes_on_after_an_edit(client: Any, operate: Operate) -> None:
    """An edit adds a next run, with the data of the schedule; its undo takes that away."""
    write_schedule(client)
    _spoil(client, "lost")
    operator = operate(NOON)
    done = operator.change(EDIT, {"pattern": PATTERN, "tz": "UTC"})
    (job,) = client.zrange("bull:mails:delayed", 0, -1)
    due = NOON + 21 * HOUR
    assert job == f"repeat:tick:{due}"
    fields = client.hgetall(f"bull:mails:{job}")
    assert (fields["data"], fields["delay"], fields["rjk"]) == ('{"n":1}', str(21 * HOUR), "tick")
    assert (operator.only().problem, operator.only().next) == ("", due / 1000)
    operator.undo(done)
    assert (operator.only().next, client.zcard("bull:mails:delayed")) == (None, 0)


def test_an_edit_replaces_the_next_run_as_bullmq_does(client: Any, operate: Operate) -> None:
    """A new interval begins now; without another time the next run stays; runs stay counted."""
    for changes, due in (
        ({"limit": "5"}, NOON + HOUR),
        ({"end": "2027-01-01Z"}, NOON + HOUR),
        ({"every": "2h"}, NOON),
        ({"pattern": "0 9 * * *", "tz": "Europe/Berlin"}, NOON + 20 * HOUR),
    ):
        client.flushdb()
        write_schedule(client)
        operate(NOON).change(EDIT, changes)
        (job,) = client.zrange("bull:mails:delayed", 0, -1)
        options = json.loads(client.hget(f"bull:mails:{job}", "opts") or "")
        with naming(changes):
            assert (job, options["prevMillis"]) == (f"repeat:tick:{due}", due)
            assert options["repeat"]["count"] == 2
            assert client.hget("bull:mails:repeat:tick", "ic") == "2"


def test_an_edit_that_is_wrong_changes_nothing(client: Any, operate: Operate) -> None:
    """It is refused with what was expected, and the journal has no record."""
    write_schedule(client)
    operator = operate(NOON)
    for changes, why in (
        ({}, "nothing to change: expected one of pattern, every"),
        ({"every": "1h"}, "nothing to change: it has this rule"),
        ({"pattern": "61 * * * *"}, "61"),
        ({"pattern": "0 9 * * *", "tz": "Mars/Base"}, "Mars/Base"),
        ({"tz": "UTC"}, "an interval has no time zone"),
        ({"every": "soon"}, "every is 'soon', expected a duration"),
        ({"every": "1h", "pattern": "0 9 * * *"}, "both a pattern and an interval"),
        ({"limit": "1"}, "its next run is number 2"),
        ({"limit": "-3"}, "limit is '-3', expected a number of runs"),
        ({"end": "+5m"}, "would end before its next run"),
    ):
        with naming(changes), unchanged(client), pytest.raises(Unsupported, match=re.escape(why)):
            operator.change(EDIT, changes)
    assert operator.setup.journal().operations() == ()


def test_an_act_that_could_be_wrong_is_refused(client: Any, operate: Operate) -> None:
    """On a schedule that changed since it was shown, in a queue of a version that is not known, or
    with a key of another type than BullMQ writes, which is no part of an image, and at which a
    script would fail in the middle: nothing changes."""
    odd = {"repeat:tick": "no undo could put it back"}
    odd[f"repeat:tick:{NOON + HOUR}"] = "no undo could put it back"
    odd |= {key: f"{key} is of the type string" for key in ("marker", "events", "wait")}
    for command, is_shown, error, why in (
        ("HSET bull:mails:repeat:tick every 7000", True, Gone, "changed since it was shown"),
        ("HSET bull:mails:meta version bullmq:9.1.0", True, Unsupported, "not supported"),
        ("ZREM bull:mails:repeat tick", True, Gone, "not there any more"),
        *((f"SET bull:mails:{key} x", False, Unsupported, why) for key, why in odd.items()),
    ):
        client.flushdb()
        write_schedule(client)
        operator = operate(NOON)
        seen = operator.only() if is_shown else None
        client.execute_command(*command.split())
        for verb in (RUN, REMOVE, EDIT):
            with naming(command, verb), unchanged(client), pytest.raises(error, match=why):
                operator.change(verb, LIMIT[verb], seen)


def test_an_act_without_permission_changes_nothing(
    client: Any, redis_server: TestServer, operate: Operate
) -> None:
    """A user who may not run one of the commands gets its name, and no half of an act is done."""
    write_schedule(client)
    place = f"redis+unix://some@localhost{redis_server.socket}"
    try:
        for command, verb in product(("del", "zrem", "xadd", "hset", "zadd"), (REMOVE, EDIT)):
            rights = ["+@all", f"-{command}"]
            client.acl_setuser("some", enabled=True, nopass=True, keys=["*"], commands=rights)
            match = pytest.raises(Unsupported, match=command.upper())
            with naming(command, verb), unchanged(client), match:
                operate(NOON, place).change(verb, LIMIT[verb])
    finally:
        client.acl_deluser("some")


def test_a_schedule_may_have_any_key(client: Any, operate: Operate) -> None:
    """It has a printable id, by which it is removed; the undo puts back the same key. The log of
    its next run ends with the time in which the schedule can be put back."""
    for key in ("a/b", "x:1:2:3:4", "\x1b[1m", "%:ü", " ", "k" * 300):
        client.flushdb()
        write_schedule(client, key)
        log = f"bull:mails:repeat:{key}:{NOON + HOUR}:logs"
        client.rpush(log, "a line")
        operator = operate(NOON)
        seen = operator.acts.find(operator.only().id)
        with naming(key):
            assert (seen.id.isprintable(), seen.problem) == (True, "")
            done = operator.change(REMOVE, {}, seen)
            assert operator.acts.read(9).rows == []
            assert 0 < client.ttl(log) <= 86400
            operator.undo(done)
            assert client.zrange("bull:mails:repeat", 0, -1) == [key]
            assert (operator.only(), client.ttl(log)) == (seen, -1)


def test_a_schedule_that_is_due_at_no_time_is_put_back(client: Any, operate: Operate) -> None:
    """Its score is infinite."""
    write_schedule(client)
    client.zadd("bull:mails:repeat", {"tick": float("inf")})
    operator = operate(NOON)
    operator.undo(operator.change(REMOVE))
    assert client.zscore("bull:mails:repeat", "tick") == float("inf")


@pytest.mark.parametrize("verb", [RUN, REMOVE, EDIT])
def test_a_run_that_starts_meanwhile_is_no_change(
    client: Any, operate: Operate, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The act is on the schedule with its new next run, which an undo puts back."""
    write_schedule(client)
    operator, write = operate(NOON), ScheduleActs._write
    seen, tries = operator.only(), list[bool]()

    def write_after_a_run(self: ScheduleActs, *words: Any) -> bool:
        if not tries:
            client.delete(f"bull:mails:repeat:tick:{NOON + HOUR}", "bull:mails:delayed")
            write_schedule(client, due=NOON + 2 * HOUR, count=3)
        tries.append(write(self, *words))
        return tries[-1]

    monkeypatch.setattr(ScheduleActs, "_write", write_after_a_run)
    done = operator.change(verb, LIMIT[verb], seen)
    assert tries == [False, True]
    operator.undo(done)
    assert client.zrange("bull:mails:delayed", 0, -1) == [f"repeat:tick:{NOON + 2 * HOUR}"]
    assert (operator.only().next, client.llen("bull:mails:wait")) == ((NOON + 2 * HOUR) / 1000, 0)


def test_a_run_that_starts_while_a_schedule_is_read_does_not_hide_its_next_run(
    client: Any, operate: Operate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the time of a schedule and the job of that time: the schedule is read again."""
    write_schedule(client)
    operator, call = operate(NOON), Connection.call
    runs = iter(range(2, 9))

    def call_before_a_run(self: Connection, *words: Any) -> Any:
        answer = call(self, *words)
        if words[0] in ("ZRANGE", "ZSCORE"):
            client.delete(*client.keys("bull:mails:repeat:tick:*"), "bull:mails:delayed")
            number = next(runs)
            write_schedule(client, due=NOON + number * HOUR, count=number + 1)
        return answer

    monkeypatch.setattr(Connection, "call", call_before_a_run)
    assert (operator.only().problem, operator.only().next) == ("", (NOON + 3 * HOUR) / 1000)
    operator.change(REMOVE)
    assert client.keys("bull:mails:repeat*") == client.keys("bull:mails:delayed") == []


def _give_options(client: Any, **options: object) -> None:
    write_schedule(client)
    client.hset(f"bull:mails:repeat:tick:{NOON + HOUR}", "opts", json.dumps(options))


def test_an_extra_run_has_sound_options(client: Any, operate: Operate) -> None:
    """By the deduplication key of the runs, BullMQ's script would add no job, or replace the next
    run; with an odd priority it would fail after it has written a part of the job."""
    _give_options(client, de={"id": "one", "replace": True}, attempts=3)
    client.set("bull:mails:de:one", f"repeat:tick:{NOON + HOUR}")
    operator = operate(NOON)
    job = f"run-{operator.change(RUN).op}"
    assert client.lrange("bull:mails:wait", 0, -1) == [job]
    assert json.loads(client.hget(f"bull:mails:{job}", "opts") or "")["attempts"] == 3
    assert operator.only().problem == ""
    for priority in ("high", -1, 2**21 + 1, 0.5, True):
        _give_options(client, priority=priority)
        refused = pytest.raises(Unsupported, match="its priority is ")
        with naming(priority), unchanged(client), refused:
            operator.change(RUN)


def test_a_removed_schedule_comes_back_with_a_run_to_come(client: Any, operate: Operate) -> None:
    """If its next run is past when it is put back, the following one of its rule is next."""
    write_schedule(client)
    done = operate(NOON).change(REMOVE)
    later = operate(NOON + 5 * HOUR + 1)
    later.undo(done)
    assert later.only().next == (NOON + 6 * HOUR) / 1000
    assert client.zrange("bull:mails:delayed", 0, -1) == [f"repeat:tick:{NOON + 6 * HOUR}"]
    with pytest.raises(Gone, match="as before"):
        later.undo(done)


def test_an_interrupted_act_can_be_undone(
    client: Any, operate: Operate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed or cut off from the server before or after the change, without a note of its end: the
    undo finds out which, and leaves the schedule as it was."""
    write = ScheduleActs._write
    ends = KeyboardInterrupt(), Unavailable("cut")
    for verb, is_done, end in product((RUN, REMOVE, EDIT), (True, False), ends):

        def killed(
            self: ScheduleActs, *words: Any, is_done: bool = is_done, end: BaseException = end
        ) -> bool:
            if is_done:
                write(self, *words)
            raise end

        client.flushdb()
        write_schedule(client)
        operator, before = operate(NOON), unmarked(client)
        journal = operator.setup.journal()
        known = {operation.op for operation in journal.operations()}
        with monkeypatch.context() as patch, pytest.raises((KeyboardInterrupt, EffectUnknown)):
            patch.setattr(ScheduleActs, "_write", killed)
            operator.change(verb, LIMIT[verb])
        (operation,) = (one for one in journal.operations() if one.op not in known)
        with naming(verb, is_done, end):
            assert operation.is_interrupted
            with nullcontext() if is_done else pytest.raises(Gone):
                operator.acts.undo(operation, "")
            after = unmarked(client)
            after.pop("bull:mails:id", None)
            assert after == before


@pytest.mark.parametrize("verb", [RUN, REMOVE])
def test_an_interrupted_undo_is_not_shown_as_done(
    client: Any, operate: Operate, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the connection is lost before the change, the undo can be run again."""
    write_schedule(client)
    operator = operate(NOON)
    done = operator.change(verb)

    def cut(*_: object) -> None:
        raise Unavailable("cut")

    def undone() -> int:
        listed = list_operations(operator.setup.journal().operations())
        return next(one.undone for one in listed if one.operation.op == done.op)

    with monkeypatch.context() as patch, pytest.raises(EffectUnknown):
        patch.setattr(ScheduleActs, "_write", cut)
        patch.setattr(BullmqStore, "swap", cut)
        operator.undo(done)
    assert undone() == 0
    operator.undo(done)
    assert undone() == 1


def test_many_schedules_are_cut_in_a_list(client: Any, operate: Operate) -> None:
    """It has the next ones and the number of all; a small queue is not cut, and a queue that cannot
    be read is named."""
    with client.pipeline() as many:
        for number in range(50):
            write_schedule(many, f"s{number:03}", NOON + number)
        many.set("bull:odd:repeat", "x")
        many.hset("bull:odd:meta", "version", "bullmq:6.7.0")
        many.execute()
    assert len(operate(NOON).acts.read(51).rows) == 50  # none is cut if all fit
    found = operate(NOON).acts.read(30)
    assert [one.id for one in found.rows] == [f"mails/s{number:03}" for number in range(29)]
    assert found.total == 50
    (why,) = operate(NOON).acts.read(100).problems
    assert why.startswith("odd: ") and "another type" in why
