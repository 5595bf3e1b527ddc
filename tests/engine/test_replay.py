"""A replay: what it sends, what it waits for, what stops it, and where every task is in the end."""

import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator
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
from engine.pace import Pace, Rest, Stops, unpacked
from engine.plans import Plan, Row
from engine.policy import contract
from engine.progress import Phase, Progress
from engine.replay import PullBack, Replay
from engine.store import Unavailable
from engine.stores.nftban import NftbanStore
from engine.worker import Services, Worker
from tests.engine.builders import NOW, new_spool
from tests.engine.conftest import Child

OLD = "421 4.7.0 try again later"
NEVER = Stops(None, None)
AT_ONCE = Pace(None, (), 30, NEVER)


class Place:
    """A spool, a log, a journal; a time that goes on when the replay waits, and a worker that then
    runs what is due."""

    def __init__(self, root: Path) -> None:
        self.spool = new_spool(root)
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

    def __init__(self, place: Place, sent: int, *, left_out: int = 0, runs: int = 0) -> None:
        """A plan once so many were sent, without the first so many of its rows.

        Then so many are run, and the yes comes."""
        self._place, self._sent, self._left_out = place, sent, left_out
        self._runs = runs
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
        if self.plan and not self._said and sent >= len(self.plan.rows):
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


@pytest.mark.parametrize("comes_back", [False, True])
def test_while_a_store_is_away_nothing_is_tried(comes_back: bool, place: Place) -> None:
    """A folder that is missing for a moment costs no task its replay; where it stays away, the rest
    is left there after a while."""
    tasks = place.dead(*["ok"] * 12)
    away = Path(f"{place.spool.dlq}.elsewhere")
    troubles: list[str] = []

    def then(replay: Replay) -> None:
        if away.exists() and comes_back and len(troubles) >= 3:
            away.rename(place.spool.dlq)
            place.works = 1
        elif away.exists():
            troubles.append(replay.progress.trouble)
        elif replay.progress.sent >= 4 and not troubles:
            Path(place.spool.dlq).rename(away)
            place.works = 0

    place.then = then
    result = place.replay(tasks, Pace(2.0, (), 60 if comes_back else 5)).run()

    progress = result.progress
    assert place.spool.dlq in troubles[1]
    assert accounts(progress)
    if comes_back:
        assert (progress.trouble, progress.tally.delivered) == ("", 12)
    else:
        assert place.spool.dlq in progress.stopped
        assert (progress.refused, progress.sent) == (0, 12 - progress.rest)
        assert result.report is not None
        assert result.report.accounted == 12


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


def test_every_task_ends_in_one_count_among_rivals(place: Place) -> None:
    """With a worker that fails a third, and rivals that move others meanwhile, each planned task is
    delivered, failed, unknown, taken, gone, refused or excluded, and in one count."""
    tasks = place.dead(*["ok", "ok", "otherwise"] * 4, "ok", "ok")
    place.store.swap(tasks[4], verbs.retry(tasks[4], place.now))
    (pending,) = place.seen(State.PENDING)
    plan = plans.freeze("retry", [*tasks[:4], pending, *tasks[5:]], place.now)
    plan = plan._replace(left_out=frozenset({tasks[1].id}))
    place.store.swap(tasks[3], verbs.purge(tasks[3], NOW))
    place.works = 0

    def then(replay: Replay) -> None:
        if not place.works:
            place.works = 3
            held, removed = (t for t in place.seen(State.PENDING) if t.id in lost)
            place.store.swap(held, verbs.hold(held, NOW))
            Path(place.spool.pending, f"{removed.id}.task").unlink()

    lost = {task.id for task in tasks[12:]}
    place.then = then
    result = place.replay(plan, AT_ONCE).run()

    progress, tally = result.progress, result.progress.tally
    assert (tally.delivered, tally.failed, tally.unknown, tally.taken) == (5, 4, 1, 1)
    assert (progress.gone, progress.refused, progress.excluded, progress.rest) == (1, 1, 1, 0)
    assert progress.accounted == progress.planned == 14
    assert result.report is not None
    assert result.report.accounted == progress.planned
    fates = Counter(known.fate for known in result.became.values())
    assert fates == {Fate.FAILED: 4, Fate.UNKNOWN: 1, Fate.TAKEN: 1}
