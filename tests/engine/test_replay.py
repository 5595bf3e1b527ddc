"""A replay: what it sends, what it waits for, what stops it, and where every task is in the end."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from engine import plans, undo, verbs
from engine.events import What
from engine.fates import Fate, mark_of
from engine.following import Facts
from engine.handlers import Context, Failed, Fatal
from engine.hearing import Hearing, finished_in
from engine.journal import Intent, Journal, Operation, Who
from engine.logtail import contract_line
from engine.model import State, Task
from engine.operations import End, Report
from engine.pace import Pace, Rest, Stops, bucket_rate, unpacked
from engine.plans import Plan, Row
from engine.policy import contract
from engine.progress import Phase, Progress
from engine.replay import PullBack, Replay, Result
from engine.store import Unavailable
from engine.stores.nftban import NftbanStore, Spool, make_spool
from engine.worker import Services, Worker
from tests.engine.conftest import Child

NOW = 1_795_170_000.0
OLD = "421 4.7.0 try again later"
NEVER = Stops(None, None)
AT_ONCE = Pace(None, (), 30, NEVER)


def a_spool(queue: Path) -> Spool:
    """A spool with nothing in it."""
    pending, work, dlq = (str(queue / word) for word in ("pending", "work", "dlq"))
    spool = Spool(pending, work, dlq, durable=False)
    make_spool(spool)
    return spool


class Place:
    """A spool, a log, a journal; a time that goes on when the replay waits, and a worker that then
    runs what is due."""

    def __init__(self, root: Path) -> None:
        self.spool = a_spool(root / "queue")
        self.now, self.guard = NOW, threading.Lock()
        self.log = root / "queue.log"
        self.log.touch()
        self.journal = Journal(f"{self.spool.desk}/journal", clock=self.clock)
        self.store = self.open()
        self.works = 1
        """Tasks that the worker runs each time."""
        self.logs = True
        self.then: Callable[[Replay], None] = lambda replay: None
        """What else happens each time that a replay waits."""

    def clock(self) -> float:
        """The time."""
        return self.now

    def open(self) -> NftbanStore:
        """One more instance."""
        return NftbanStore(self.spool, self.clock)

    def dead(self, *descriptions: str, error: str = OLD) -> list[Task]:
        """Dead tasks, as they are seen: what is to become of them when they are run again."""
        for number, description in enumerate(descriptions):
            task = Task(f"20261120T094115Z-job-{number:08x}", "job", State.PENDING, NOW - 60)
            self.store.swap(None, replace(task, description=description))
        for task in list(self.store.take(NOW, "a worker", len(descriptions))):
            self.store.swap(task, verbs.bury(task, error, 1))
        self.now += 10
        return self.seen(State.DEAD)

    def seen(self, state: State) -> list[Task]:
        """What stands in a state."""
        tasks = {task.id: task for task in self.store.look() if isinstance(task, Task)}
        return sorted((t for t in tasks.values() if t.state is state), key=lambda t: t.id)

    def counts(self) -> dict[State, int]:
        """How many stand where, of those that anything stands in."""
        return {state: n for state, n in self.store.counts().items() if n}

    def files(self) -> dict[str, bytes]:
        """Every task file there is."""
        return {
            f"{state}/{path.name}": path.read_bytes()
            for state, folder in (("dlq", self.spool.dlq), ("pending", self.spool.pending))
            for path in Path(folder).iterdir()
        }

    def replay(self, plan: Plan | list[Task], pace: Pace, **fields: object) -> Replay:
        """A replay of some tasks."""
        if not isinstance(plan, Plan):
            plan = plans.freeze("retry", plan, self.now)
        hearing = Hearing([str(self.log)], self.clock)

        def idle(seconds: float) -> None:
            with self.guard:
                self.work()
                self.now += seconds
            self.then(replay)

        usual = {
            "journal": self.journal,
            "intent": Intent("retry", Who("ana", pid=os.getpid())),
            "facts": Facts(hearing, close=hearing.close),
            "buckets": f"{self.spool.desk}/replay.buckets",
            "clock": self.clock,
            "idle": idle,
        }
        replay = Replay(self.open, plan, pace, **{**usual, **fields})  # type: ignore[arg-type]
        return replay

    def work(self) -> None:
        """Run a few of the tasks that are due."""
        for _ in range(self.works):
            services = Services(log=self.write)
            worker = Worker(self.store, {"job": handle}, contract(), services=services)
            worker._clock = self.clock
            worker.process_next()

    def write(self, level: str, text: str) -> None:
        """A line of the queue's log."""
        if self.logs:
            with self.log.open("ab") as log:
                log.write(contract_line(level, text, self.now))

    def operation(self, verb: str = "retry") -> Operation:
        """The only one with this verb, as somebody else reads the journal."""
        (one,) = (o for o in Journal(self.journal.folder).operations() if o.intent.verb == verb)
        return one


def handle(task: Task, context: Context) -> None:
    """Do as the description says."""
    if task.description.startswith("again"):
        raise Fatal(OLD)
    if task.description.startswith("otherwise"):
        raise Failed("550 5.1.1 user unknown")


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """A place with nothing in it."""
    place = Place(tmp_path)
    yield place
    place.store.close()


def accounts(progress: Progress) -> bool:
    """Whether every row that was planned is in exactly one count."""
    return progress.accounted == progress.planned and min(progress.tally) >= 0 <= progress.rest


def test_all_that_succeeds_is_delivered(place: Place) -> None:
    """One, then three, then the rate: each is sent once, and known to be delivered by the log."""
    place.works = 3
    tasks = place.dead(*["ok"] * 20)
    seen: list[Progress] = []
    place.then = lambda replay: seen.append(replay.progress)

    result = place.replay(tasks, Pace(2.0, (1, 3), 60)).run()

    assert result.progress.tally.delivered == 20
    assert place.counts() == {}
    assert result.progress.phase is Phase.OVER
    assert {one.sent for one in seen if one.phase is Phase.WAITING} == {1, 4}
    assert all(map(accounts, seen))
    assert result.report is not None
    assert len(result.report.done) == 20
    assert result.became == {}


def test_the_rate_is_kept(place: Place) -> None:
    """In no stretch of time is more sent than the rate and its burst allow."""
    tasks = place.dead(*["ok"] * 30)
    sent: list[tuple[float, int]] = []
    place.then = lambda replay: sent.append((place.now, replay.progress.sent))

    place.replay(tasks, Pace(2.0, (), 60)).run()

    for at, (began, before) in enumerate(sent):
        for ended, after in sent[at:]:
            assert after - before <= bucket_rate(2.0).burst + 2 * (ended - began + 1)
    assert sent[-1][1] == 30
    assert sent[-1][0] - sent[0][0] >= 13


def test_the_journal_tells_of_it(place: Place) -> None:
    """Who, how fast, how each row ended, and what really became of it is written down."""
    tasks = place.dead("ok", "otherwise", "ok")
    pace = Pace(2.0, (1,), 10, NEVER)

    replay = place.replay(tasks, pace)
    replay.order("faster")
    replay.run()

    one = place.operation()
    assert (one.intent.who.user, unpacked(one.intent.pace)) == ("ana", pace)
    assert one.counts[End.DONE] == 3
    assert one.ended is not None
    assert [note["rate"] for note in one.notes if note["what"] == "faster"] == [4.0]
    became = [note for note in one.notes if note["what"] == "became"]
    assert {i for note in became for i in note.get("delivered", ())} == {tasks[0].id, tasks[2].id}
    assert became[-1].get("failed", {}).keys() | became[0].get("failed", {}).keys() == {tasks[1].id}


def test_the_same_error_again_stops_it(place: Place) -> None:
    """Two that fail as they did before stop it; the rest was never touched."""
    place.works = 3
    tasks = place.dead("ok", "again", "again", *["ok"] * 20)
    before = place.files()

    result = place.replay(tasks, Pace(1.0, (1,), 60)).run()

    progress = result.progress
    assert progress.stopped == f"{mark_of(OLD)} came back 2 times"
    assert progress.failures == {mark_of(OLD): 2}
    assert progress.rest > 0
    assert accounts(progress)
    untouched = {name: text for name, text in before.items() if place.files().get(name) == text}
    assert len(untouched) == progress.rest
    assert result.report is not None
    assert len(result.report.excluded) == progress.rest
    assert {known.fate for known in result.became.values()} == {Fate.FAILED}


def test_the_rest_is_held_where_that_is_wanted(place: Place) -> None:
    """After a stop, what was not sent is held, as an operation of its own."""
    place.works = 3
    tasks = place.dead("again", *["ok"] * 9)

    result = place.replay(tasks, Pace(2.0, (1,), 60, Stops(rest=Rest.HOLD))).run()

    assert result.progress.held == 9
    assert accounts(result.progress)
    assert place.counts() == {State.DEAD: 1, State.HELD: 9}
    assert place.operation("hold").counts[End.DONE] == 9
    assert place.operation("retry").counts == {
        End.DONE: 1,
        End.GONE: 0,
        End.FAILED: 0,
        End.EXCLUDED: 9,
    }


BEN = Intent("undo", Who("ben", pid=1), "mx7 is down again")


class Back:
    """A pull back, from the plan that somebody sees to what became of its rows."""

    def __init__(
        self, place: Place, sent: int, *, left_out: int = 0, runs: int = 0, more: int = 0
    ) -> None:
        """A plan once so many were sent, without the first so many of its rows.

        Then so many are run, and the yes comes once so many more were sent.
        """
        self._place, self._sent, self._left_out = place, sent, left_out
        self._runs, self._more = runs, more
        self.plan: Plan | None = None
        self.report: Report | None = None
        self._said = False

    def __call__(self, replay: Replay) -> None:
        """See what there is, or say yes to it."""
        place, sent = self._place, replay.progress.sent
        if self.plan is None and sent >= self._sent:
            operation = place.journal.operation(replay.progress.op)
            assert operation is not None
            plan = undo.undo(place.store, place.journal, operation, place.now, 7.0).plan
            left = frozenset(row.id for row in plan.rows[: self._left_out])
            self.plan = plan._replace(left_out=left)
            place.works = self._runs
            place.work()
            place.works = 0
        if self.plan and not self._said and sent >= len(self.plan.rows) + self._more:
            self._said = True
            replay.pull_back(PullBack(self.plan, BEN, self._tell))

    def _tell(self, report: Report) -> None:
        self.report = report


def test_what_waits_untouched_is_pulled_back(place: Place) -> None:
    """Pulled back, what no worker has touched stands where it stood, byte for byte."""
    tasks = place.dead(*["ok"] * 6)
    before = place.files()
    place.works = 0
    place.then = back = Back(place, 4, runs=1)

    result = place.replay(tasks, Pace(None, (4,), 60, NEVER)).run()

    assert (result.progress.pulled, result.progress.tally.delivered) == (3, 1)
    assert accounts(result.progress)
    assert back.report is not None
    assert (len(back.report.done), len(back.report.gone)) == (3, 1)
    after = place.files()
    assert before.items() >= after.items()
    assert len(after) == 5


def test_only_what_the_plan_has_is_pulled_back(place: Place) -> None:
    """Rows that were left out of the plan stay; the journal names who took back, and why."""
    tasks = place.dead(*["ok"] * 6)
    place.works = 0
    place.then = back = Back(place, 4, left_out=3)

    result = place.replay(tasks, Pace(None, (4,), 60, NEVER)).run()

    assert back.plan is not None and back.report is not None
    assert back.report.done == tuple(row.id for row in back.plan.included)
    assert {ident for ident, _ in back.report.excluded} == back.plan.left_out
    assert back.report.accounted == 4
    assert place.counts() == {State.PENDING: 3, State.DEAD: 3}
    assert (result.progress.pulled, result.progress.stopped) == (1, "stopped by ben")
    assert accounts(result.progress)
    one = place.operation("undo")
    assert (one.intent.who.user, one.intent.reason) == ("ben", "mx7 is down again")
    assert one.intent.undoes == place.operation().op
    assert one.counts == {End.DONE: 1, End.GONE: 0, End.FAILED: 0, End.EXCLUDED: 3}


def test_what_is_sent_after_the_plan_is_not_pulled_back(place: Place) -> None:
    """A plan takes back what it was made of: what was sent while somebody looked at it stays."""
    tasks = place.dead(*["ok"] * 9)
    place.works = 0
    place.then = back = Back(place, 2, more=2)

    result = place.replay(tasks, Pace(1.0, (), 60, NEVER)).run()

    assert back.plan is not None
    assert back.report is not None
    assert set(back.report.done) == {row.id for row in back.plan.rows}
    left = result.progress.tally.sent
    assert left >= 2
    assert place.counts() == {State.PENDING: left, State.DEAD: 9 - left}
    assert accounts(result.progress)


def test_without_a_journal_nothing_is_pulled_back(place: Place) -> None:
    """Where nothing is written down, nothing is known to be put back, and that is said."""
    place.works = 0
    tasks = place.dead("ok", "ok")
    reports: list[Report] = []

    def then(replay: Replay) -> None:
        if not replay.progress.stopped:
            rows = tuple(
                Row(t.id, t.state, t.rev, end=State.DEAD) for t in place.seen(State.PENDING)
            )
            replay.pull_back(PullBack(Plan("undo", rows, NOW), BEN, reports.append))

    place.then = then
    result = place.replay(tasks, AT_ONCE, journal=None, intent=None).run()

    assert reports[0].trouble == "nothing can be taken back without a journal"
    assert len(reports[0].failed) == 2
    assert place.counts() == {State.PENDING: 2}
    assert result.progress.tally.waiting == 2


def test_a_canary_of_which_nothing_is_known_asks(place: Place) -> None:
    """Where no log says what became of the canary, it waits until somebody says to go on."""
    place.logs = False
    tasks = place.dead(*["ok"] * 5)
    asked: list[str] = []

    def then(replay: Replay) -> None:
        if replay.progress.phase is Phase.ASKING and not asked:
            asked.append(replay.progress.why)
            assert replay.progress.sent == 1
            replay.order("go_on")

    place.then = then
    result = place.replay(tasks, Pace(None, (1,), 20, NEVER)).run()

    assert asked == ["canary of 1: 1 outcome not known, which is no success"]
    assert result.progress.tally.unknown == 5
    assert [n["what"] for n in place.operation().notes if n["what"] in ("asks", "go_on")] == [
        "asks",
        "go_on",
    ]


def test_with_nobody_to_ask_it_stops(place: Place) -> None:
    """Unattended, a canary that no worker runs ends the replay; the others are where they were."""
    place.works = 0
    tasks = place.dead(*["ok"] * 5)

    result = place.replay(tasks, Pace(2.0, (1,), 20, attended=False)).run()

    assert result.progress.stopped == "canary of 1: no worker has run it for 20 s"
    assert place.counts() == {State.PENDING: 1, State.DEAD: 4}
    assert accounts(result.progress)


def test_a_counter_speaks_where_no_log_does(place: Place, tmp_path: Path) -> None:
    """Without a log, the counter of finished tasks is what says that they were delivered."""
    place.logs = False
    tasks = place.dead(*["ok"] * 4)
    metrics = tmp_path / "queue.prom"
    finished = finished_in(str(metrics))

    def then(replay: Replay) -> None:
        done = 100 + 4 - sum(place.counts().values())
        metrics.write_text(f"nftban_queue_tasks_processed_total {done}\n")

    place.then = then
    metrics.write_text("nftban_queue_tasks_processed_total 100\n")
    result = place.replay(tasks, Pace(None, (1,), 60), facts=Facts(finished=finished)).run()

    assert result.progress.tally.delivered == 4


def test_paused_nothing_is_sent(place: Place) -> None:
    """Between pause and resume nothing is sent, and what became of the others is still told."""
    tasks = place.dead(*["ok"] * 10)
    while_paused: set[int] = set()
    turns = Counter[str]()

    def then(replay: Replay) -> None:
        progress = replay.progress
        if progress.sent >= 3 and not turns["pause"]:
            turns["pause"] += 1
            replay.order("pause")
        elif progress.phase is Phase.PAUSED:
            while_paused.add(progress.sent)
            turns["paused"] += 1
            if turns["paused"] == 20:
                assert progress.tally.delivered == progress.sent
                assert progress.why == "paused by ana"
                replay.order("resume")

    place.then = then
    result = place.replay(tasks, Pace(1.0, (), 60)).run()

    assert len(while_paused) == 1
    assert result.progress.tally.delivered == 10


def test_what_was_left_is_gone_on_with(place: Place) -> None:
    """Let go of half-way, the rest is in the dead-letter queue, and the journal goes on with it:
    each task is sent once, by the one or the other."""
    place.works = 3
    tasks = place.dead(*["ok"] * 12)
    place.then = lambda replay: replay.close() if replay.progress.sent >= 5 else None
    first = place.replay(tasks, Pace(4.0, (1,), 60)).run()
    half = place.operation()

    assert first.progress.phase is Phase.LEFT
    assert first.report is None
    assert half.interrupted
    assert len(place.seen(State.DEAD)) == first.progress.rest == half.open > 0

    place.then = lambda replay: None
    rest = undo.rest(place.store, place.journal, half, place.now)
    intent = half.intent._replace(follows=half.op)
    second = place.replay(rest, unpacked(half.intent.pace), intent=intent).run()

    assert first.progress.sent + second.progress.tally.delivered == 12
    assert place.counts() == {}
    assert place.log.read_text().count("Task completed") == 12


def test_where_nothing_can_be_written_down_nothing_is_sent(place: Place) -> None:
    """Without room for the intent no task moves."""
    tasks = place.dead("ok")
    Path(place.journal.folder).parent.mkdir(exist_ok=True)
    Path(place.journal.folder).write_text("in the way")
    replay = place.replay(tasks, AT_ONCE)

    with pytest.raises(Unavailable, match="journal"):
        replay.run()

    assert place.counts() == {State.DEAD: 1}
    assert replay.progress.phase is Phase.OVER
    assert "journal" in replay.progress.trouble
    assert accounts(replay.progress)


def test_a_store_that_stays_away_ends_it(place: Place) -> None:
    """While the store cannot be reached nothing is tried; after a while the rest is left there."""
    tasks = place.dead(*["ok"] * 12)

    def then(replay: Replay) -> None:
        if replay.progress.sent >= 4 and Path(place.spool.dlq).exists():
            Path(place.spool.dlq).rename(f"{place.spool.dlq}.elsewhere")
            place.works = 0

    place.then = then
    result = place.replay(tasks, Pace(2.0, (), 5)).run()

    assert place.spool.dlq in result.progress.stopped
    assert accounts(result.progress)
    assert (result.progress.refused, result.progress.sent) == (0, 12 - result.progress.rest)
    assert result.report is not None
    assert result.report.accounted == 12


def test_a_store_that_comes_back_is_gone_on_with(place: Place) -> None:
    """A folder that is missing for a moment costs no task its replay."""
    tasks = place.dead(*["ok"] * 12)
    away = Path(f"{place.spool.dlq}.elsewhere")
    troubles: list[str] = []

    def then(replay: Replay) -> None:
        if away.exists() and len(troubles) >= 3:
            away.rename(place.spool.dlq)
            place.works = 1
        elif away.exists():
            troubles.append(replay.progress.trouble)
        elif replay.progress.sent >= 4 and not troubles:
            Path(place.spool.dlq).rename(away)
            place.works = 0

    place.then = then
    result = place.replay(tasks, Pace(2.0, (), 60)).run()

    assert place.spool.dlq in troubles[-1]
    assert result.progress.trouble == ""
    assert result.progress.tally.delivered == 12


def test_rows_that_cannot_be_changed_end_it(place: Place) -> None:
    """When one after the other is refused, the others are not tried."""
    place.dead(*["ok"] * 30)
    for task in place.seen(State.DEAD):
        place.store.swap(task, verbs.retry(task, place.now))
    pending = plans.freeze("retry", place.seen(State.PENDING), place.now)
    place.works = 0

    result = place.replay(pending, Pace(1.0, (), 60)).run()

    assert result.progress.stopped == "not from pending"
    assert (result.progress.refused, result.progress.rest) == (10, 20)


def test_what_is_not_allowed_any_more_is_not_sent(place: Place) -> None:
    """Once writing is not allowed any more, the rest stays."""
    tasks = place.dead(*["ok"] * 9)
    why = [""]

    def then(replay: Replay) -> None:
        why[0] = "observing only" if replay.progress.sent >= 3 else ""

    place.then = then
    result = place.replay(tasks, Pace(1.0, (), 30), allowed=lambda: why[0]).run()

    assert result.progress.stopped == "observing only"
    assert place.counts() == {State.DEAD: 9 - result.progress.sent}


def test_a_bucket_that_cannot_be_kept_sends_nothing(place: Place) -> None:
    """Where no token can be spent in the file, the replay waits, and says why."""
    tasks = place.dead("ok")
    Path(place.spool.desk, "replay.buckets").mkdir(parents=True)
    seen: list[Progress] = []

    def then(replay: Replay) -> None:
        seen.append(replay.progress)
        if len(seen) == 9:
            replay.order("stop")

    place.then = then
    result = place.replay(tasks, Pace(2.0, ())).run()

    assert "replay.buckets" in seen[-1].trouble
    assert result.progress.sent == 0
    assert place.counts() == {State.DEAD: 1}


def test_two_replays_share_one_bucket(place: Place) -> None:
    """Of two at once, on threads of their own, neither has tokens that the other spent."""
    place.works = 4
    tasks = place.dead(*["ok"] * 40)
    began = place.now
    sent: list[tuple[float, int]] = []
    halves = (tasks[::2], tasks[1::2])
    replays = [place.replay(half, Pace(4.0, (), 60, NEVER)) for half in halves]

    def then(replay: Replay) -> None:
        with place.guard:
            sent.append((place.now, sum(one.progress.sent for one in replays)))

    place.then = then
    for replay in replays:
        replay.start()
    for replay in replays:
        replay.join(30)

    assert [replay.progress.tally.delivered for replay in replays] == [20, 20]
    for now, together in sent:
        assert together <= 1 + 4 + 4 * (now - began + 1)


def test_on_its_own_thread_it_can_be_polled_and_let_go_of(place: Place) -> None:
    """Started, it goes on by itself; what it shows is whole at each moment; closed, it ends."""
    place.works = 0
    tasks = place.dead(*["ok"] * 4)
    replay = place.replay(tasks, Pace(2.0, (1,), 1e9), idle=None)
    paused = threading.Event()
    replay.start()

    replay.order("pause")
    with pytest.raises(ValueError, match="no such order"):
        replay.order("dance")
    while replay.progress.phase != "paused":
        paused.wait(0.01)
        assert accounts(replay.progress)
    replay.close(30)

    assert replay.progress.phase is Phase.LEFT
    assert place.operation().interrupted


def test_hearing_begins_when_it_is_asked(place: Place) -> None:
    """What a log said before is not told; what it says from then on is, once."""
    place.write("SUCCESS", "Task completed: a (job)")
    hearing = Hearing([str(place.log), str(place.log) + ".none"], place.clock)

    assert hearing() == []
    place.write("SUCCESS", "Task completed: b (job)")
    assert [(event.id, event.what) for event in hearing()] == [("b", What.SUCCEEDED)]
    assert hearing() == []
    hearing.close()


KILLED = """
import sys
from engine import plans
from engine.journal import Intent, Journal, Who
from engine.model import State, Task
from engine.pace import Pace
from engine.replay import Replay
from engine.stores.nftban import NftbanStore, Spool

queue = sys.argv[1]
spool = Spool(queue + "/pending", queue + "/work", queue + "/dlq")
dead = {t.id: t for t in NftbanStore(spool).look() if isinstance(t, Task)}
plan = plans.freeze("retry", dead.values(), 0)
journal, intent = Journal(spool.desk + "/journal"), Intent("retry", Who("ana"))
buckets = spool.desk + "/replay.buckets"
open_store = lambda: NftbanStore(spool)
Replay(open_store, plan, Pace(8.0, ()), journal=journal, intent=intent, buckets=buckets).run()
"""


def test_killed_it_is_gone_on_with(place: Place, start: Callable[..., Child]) -> None:
    """Killed at any moment, what it had not sent is in the dead-letter queue, the journal knows
    which that is, and going on with it sends each task once."""
    place.dead(*["ok"] * 30)
    place.works = 0
    child = start(KILLED, str(Path(place.spool.pending).parent))
    pause = threading.Event()
    while not place.counts().get(State.PENDING):
        pause.wait(0.01)
        assert child.poll() is None
    child.kill()
    child.wait()
    place.store.recover()
    half = undo.settle(place.store, place.journal, place.operation()).operation

    assert half is not None
    assert half.interrupted
    sent = {entry.row.id for entry in place.journal.entries(half.op) if entry.ended}
    assert {task.id for task in place.seen(State.PENDING)} == sent
    assert len(place.seen(State.DEAD)) == half.open == 30 - len(sent) > 0

    rest = undo.rest(place.store, place.journal, half, place.now)
    place.then = lambda replay: None if replay.progress.rest else replay.order("leave")
    result = place.replay(rest, AT_ONCE).run()

    assert result.report is not None
    assert sent.isdisjoint(result.report.done)
    assert len(sent) + len(result.report.done) == 30
    assert place.counts() == {State.PENDING: 30}


# ---- with a real worker, and rivals

CONFIG = """\
handlers:
  job: {{command: [sh, {handler}], concurrency: 1, timeout: 60}}
queue: {{max_retries: 0, backoff_base: 1, backoff_max: 1}}
"""

HANDLER = """\
case $TASK_DESCRIPTION in
  third*) echo "421 4.7.0 try again later"; exit 1 ;;
  vanish*) rm -f "$(dirname "$0")/queue/work/$TASK_ID.task" ;;
esac
"""


@contextmanager
def a_worker(root: Path) -> Iterator[None]:
    """`queue work` on a data folder, in a process of its own."""
    (root / "handler.sh").write_text(HANDLER)
    (root / "config.yaml").write_text(CONFIG.format(handler=root / "handler.sh"))
    words = ("--config", str(root / "config.yaml"), "--root", str(root))
    argv = [sys.executable, "-m", "tui.cli", "queue", "work", *words]
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as worker:
        try:
            yield
        finally:
            worker.send_signal(signal.SIGTERM)


def test_every_task_ends_in_one_count_among_rivals(tmp_path: Path) -> None:
    """With a real worker that fails a third, and rivals that move and purge others meanwhile, each
    planned task is delivered, failed, unknown, taken, waiting, gone, refused or excluded."""
    spool = a_spool(tmp_path / "queue")
    store = NftbanStore(spool)
    kinds = {"ok": "job", "third": "job", "vanish": "job", "wait": "mail_send", "take": "mail_send"}
    what = ["ok", "ok", "third"] * 8 + ["vanish"] * 2 + ["take"] * 2 + ["wait"] * 2
    for number, word in enumerate(what):
        ident = f"20261120T094115Z-{kinds[word]}-{number:08x}"
        task = Task(ident, kinds[word], State.PENDING, NOW, description=f"{word} {number}")
        store.swap(None, replace(task, state=State.PENDING))
    for task in list(store.take(NOW + 1e6, "a worker", len(what))):
        store.swap(task, verbs.bury(task, OLD, 1))
    dead = sorted(
        {t.id: t for t in store.look() if isinstance(t, Task)}.values(),
        key=lambda t: t.id[-8:],
    )
    store.swap(None, Task("20261120T094115Z-mail_send-ffffffff", "mail_send", State.PENDING, NOW))
    (waiting,) = (t for t in store.look({"20261120T094115Z-mail_send-ffffffff"}))
    assert isinstance(waiting, Task)
    plan = plans.freeze("retry", [*dead, waiting], NOW)._replace(left_out=frozenset({dead[1].id}))
    store.swap(dead[3], verbs.purge(dead[3], NOW))
    (tmp_path / "log").mkdir()
    taken: list[str] = []

    def idle(seconds: float) -> None:
        """A rival holds those of a kind that this worker has no handler for."""
        for task in store.look({one.id for one in dead if one.kind == "mail_send"}):
            wanted = isinstance(task, Task) and task.description.startswith("take")
            if isinstance(task, Task) and wanted and task.state is State.PENDING:
                store.swap(task, verbs.hold(task, NOW))
                taken.append(task.id)
        pause.wait(seconds)
        lines = log.read_text().splitlines() if log.exists() else []
        ended = ("Task completed:", "Task failed:", "not where it was claimed")
        if sum(any(word in line for word in ended) for line in lines) == 24:
            ahead[0] += 200.0  # all were run: nothing more becomes known but by waiting

    pause, ahead = threading.Event(), [0.0]
    log = tmp_path / "log" / "queue.log"
    hearing = Hearing([str(log)])
    replay = Replay(
        lambda: NftbanStore(spool),
        plan,
        Pace(64.0, (1, 3), 300.0, NEVER),
        journal=Journal(f"{spool.desk}/journal"),
        intent=Intent("retry", Who("ana")),
        facts=Facts(hearing, close=hearing.close),
        buckets=f"{spool.desk}/replay.buckets",
        clock=lambda: time.time() + ahead[0],
        idle=idle,
    )
    with a_worker(tmp_path):
        result: Result = replay.run()

    progress, tally = result.progress, result.progress.tally
    assert tally._asdict() == {
        "waiting": 2,
        "running": 0,
        "delivered": 14,
        "failed": 8,
        "unknown": 2,
        "taken": 2,
    }
    assert (progress.gone, progress.refused, progress.excluded, progress.rest) == (1, 1, 1, 0)
    assert progress.accounted == progress.planned == len(what) + 1
    assert progress.failures == {mark_of(OLD): 8}
    assert result.report is not None
    assert result.report.accounted == progress.planned
    assert len(taken) == 2
    fates = Counter(known.fate for known in result.became.values())
    assert fates == {Fate.FAILED: 8, Fate.UNKNOWN: 2, Fate.TAKEN: 2, Fate.WAITING: 2}
    store.close()
