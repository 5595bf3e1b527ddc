"""Replay: the pace of sending, its stops and orders, pull back, and one count for every task."""

import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from engine import verbs
from engine.formats.nftban.store import NftbanStore
from engine.logs.log_line import format_log_line
from engine.logs.task_events import EventKind
from engine.model import State, Task
from engine.operations import plans, undo
from engine.operations.execute import Report
from engine.operations.journal import Intent, Journal, Operation, Who
from engine.operations.plans import Plan, Row, RowResult
from engine.policy import contract_retries
from engine.replay.outcome_poller import LogEventReader, OutcomeSources, make_processed_reader
from engine.replay.outcomes import ReplayOutcome, fingerprint_of
from engine.replay.progress import Phase, ReplayProgress
from engine.replay.replay import Replay
from engine.replay.settings import RemainderPolicy, ReplayPace, StopRules, parse_pace
from engine.store import Unavailable
from engine.work.handlers import Context, Failed, Fatal
from engine.work.services import WorkerServices
from engine.work.worker import Worker
from tests.engine.conftest import Child
from tests.engine.task_builders import NOW, a_task, new_spool, tasks_in

OLD = "421 4.7.0 try again later"
NEVER = StopRules(None, None)
AT_ONCE = ReplayPace(None, (), 30, NEVER)


class Place:
    """A spool, a log, a journal; when the replay waits, time goes on and a worker runs tasks."""

    def __init__(self, root: Path) -> None:
        self.spool = new_spool(root)
        self.now, self.guard = NOW, threading.Lock()
        self.log = root / "queue.log"
        self.log.touch()
        self.journal = Journal(f"{self.spool.staging_dir}/journal", clock=self.clock)
        self.store = self.open()
        self.works, self.logs = 1, True  # tasks that the worker runs each time; its log
        self.then: Callable[[Replay], object] = lambda replay: None  # called when a replay waits

    def clock(self) -> float:
        """The time."""
        return self.now

    def open(self) -> NftbanStore:
        """One more instance."""
        return NftbanStore(self.spool, self.clock)

    def dead(self, *descriptions: str) -> list[Task]:
        """Dead tasks, as they are seen; the description says how a further run ends."""
        for number, description in enumerate(descriptions):
            self.store.swap(None, a_task(number, description=description))
        for task in list(self.store.take(NOW, "a worker", len(descriptions))):
            self.store.swap(task, verbs.give_up_task(task, OLD, 1))
        self.now += 10
        return tasks_in(self.store, State.DEAD)

    def counts(self) -> dict[State, int]:
        """How many tasks are in each state that has any."""
        return {state: n for state, n in self.store.count_tasks().items() if n}

    def files(self) -> dict[Path, bytes]:
        """Every task file there is."""
        folders = (Path(self.spool.dlq), Path(self.spool.pending))
        return {path: path.read_bytes() for folder in folders for path in folder.iterdir()}

    def replay(self, plan: Plan | list[Task], pace: ReplayPace, **fields: object) -> Replay:
        """A replay of some tasks."""
        if not isinstance(plan, Plan):
            plan = plans.freeze_plan("retry", plan, self.now)
        hearing = LogEventReader([str(self.log)], self.clock)

        def idle(seconds: float) -> None:
            with self.guard:
                self.work()
                self.now += seconds
            self.then(replay)

        usual = {
            "journal": self.journal,
            "intent": Intent("retry", Who("ana", pid=os.getpid())),
            "facts": OutcomeSources(hearing, close=hearing.close),
            "buckets": f"{self.spool.staging_dir}/replay.buckets",
            "clock": self.clock,
            "idle": idle,
        }
        replay = Replay(self.open, plan, pace, **{**usual, **fields})  # type: ignore[arg-type]
        return replay

    def work(self) -> None:
        """Run a few of the tasks that are due."""
        for _ in range(self.works):
            services = WorkerServices(log=self.write)
            worker = Worker(self.store, {"job": handle}, contract_retries(), services=services)
            worker._clock = self.clock
            worker.process_next()

    def write(self, level: str, text: str) -> None:
        """Write a line of the queue's log."""
        if self.logs:
            with self.log.open("ab") as log:
                log.write(format_log_line(level, text, self.now))

    def operation(self, verb: str = "retry") -> Operation:
        """The only one with this verb, as another process reads the journal."""
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


def accounts(progress: ReplayProgress) -> bool:
    """Whether every row that was planned is in exactly one count."""
    return progress.accounted == progress.planned and min(progress.tally) >= 0 <= progress.unsent


def counts_of(**counts: int) -> dict[RowResult, int]:
    """The counts of an operation, all that are not named with 0."""
    return dict.fromkeys(RowResult, 0) | {RowResult[word.upper()]: n for word, n in counts.items()}


def test_all_that_succeeds_is_delivered(place: Place) -> None:
    """One, then three, then the rate: each is sent once, and known to be delivered by the log."""
    place.works = 3
    reports = list[ReplayProgress]()
    place.then = lambda replay: reports.append(replay.progress)
    result = place.replay(place.dead(*["ok"] * 20), ReplayPace(2.0, (1, 3), 60)).run()
    assert result.progress.tally.delivered == 20
    assert (place.counts(), result.known_outcomes) == ({}, {})
    assert result.progress.phase is Phase.OVER
    assert {one.sent for one in reports if one.phase is Phase.WAITING} == {1, 4}
    assert all(map(accounts, reports))
    assert result.report is not None and len(result.report.done) == 20


def test_the_journal_records_a_replay(place: Place) -> None:
    """It has who, how fast, how each row ended, and the later outcome of each."""
    tasks = place.dead("ok", "otherwise", "ok")
    pace = ReplayPace(2.0, (1,), 10, NEVER)
    replay = place.replay(tasks, pace)
    replay.order("faster")
    replay.run()
    one = place.operation()
    assert (one.intent.who.user, parse_pace(one.intent.pace)) == ("ana", pace)
    assert (one.counts[RowResult.DONE], one.ended is None) == (3, False)
    assert [note["rate"] for note in one.notes if note["what"] == "faster"] == [4.0]
    became = [note for note in one.notes if note["what"] == "became"]
    assert {i for note in became for i in note.get("delivered", ())} == {tasks[0].id, tasks[2].id}
    assert became[-1].get("failed", {}).keys() | became[0].get("failed", {}).keys() == {tasks[1].id}


def test_the_same_error_again_stops_it(place: Place) -> None:
    """Two that fail as they did before stop it; the rest was never touched."""
    place.works = 3
    tasks = place.dead("ok", "again", "again", *["ok"] * 20)
    before = place.files()
    result = place.replay(tasks, ReplayPace(1.0, (1,), 60)).run()
    progress = result.progress
    assert progress.stopped == f"stop rule: {fingerprint_of(OLD)} came back 2 times"
    assert progress.failures == {fingerprint_of(OLD): 2}
    assert progress.unsent > 0 and accounts(progress)
    untouched = {name: text for name, text in before.items() if place.files().get(name) == text}
    assert len(untouched) == progress.unsent
    assert result.report is not None and len(result.report.unapplied) == progress.unsent
    assert {known.outcome for known in result.known_outcomes.values()} == {ReplayOutcome.FAILED}


def test_the_rest_is_held_where_that_is_wanted(place: Place) -> None:
    """After a stop, the tasks that were not sent are held, as an operation of its own."""
    place.works = 3
    pace = ReplayPace(2.0, (1,), 60, StopRules(rest=RemainderPolicy.HOLD))
    progress = place.replay(place.dead("again", *["ok"] * 9), pace).run().progress
    assert progress.held == 9 and accounts(progress)
    assert place.counts() == {State.DEAD: 1, State.HELD: 9}
    assert place.operation("hold").counts[RowResult.DONE] == 9
    assert place.operation("retry").counts == counts_of(done=1, unapplied=9)


BEN = Intent("undo", Who("ben", pid=1), "mx7 is down again")


def pull_back(
    place: Place, tasks: list[Task], *, excluded: int = 0, runs: int = 0
) -> tuple[ReplayProgress, Plan, Report]:
    """Replay tasks, and pull back: the plan as it is seen once four were sent, without so many of
    its rows; then so many tasks are run, and the plan is confirmed."""
    plans, reports, place.works = list[Plan](), list[Report](), 0

    def then(replay: Replay) -> None:
        if plans or replay.progress.sent < 4:
            return
        operation = place.journal.operation(replay.progress.op)
        assert operation is not None
        plan = undo.plan_undo(place.store, place.journal, operation, place.now, 7.0).plan
        left = frozenset(row.id for row in plan.rows[:excluded])
        plans.append(plan._replace(excluded_ids=left))
        place.works = runs
        place.work()
        place.works = 0
        replay.pull_back(plans[0], BEN, reports.append)

    place.then = then
    progress = place.replay(tasks, ReplayPace(None, (4,), 60, NEVER)).run().progress
    assert accounts(progress)
    (plan,), (report,) = plans, reports
    return progress, plan, report


def test_tasks_that_wait_untouched_are_pulled_back(place: Place) -> None:
    """Pulled back, a task that no worker has touched is where it was, byte for byte."""
    tasks, before = place.dead(*["ok"] * 6), place.files()
    progress, _, report = pull_back(place, tasks, runs=1)
    assert (progress.pulled_back, progress.tally.delivered) == (3, 1)
    assert (len(report.done), len(report.gone)) == (3, 1)
    after = place.files()
    assert before.items() >= after.items() and len(after) == 5


def test_only_the_rows_of_the_plan_are_pulled_back(place: Place) -> None:
    """Rows that were excluded from the plan stay; the journal names who undid it, and why."""
    progress, plan, report = pull_back(place, place.dead(*["ok"] * 6), excluded=3)
    assert report.done == tuple(row.id for row in plan.included)
    assert {ident for ident, _ in report.excluded} == plan.excluded_ids
    assert report.accounted == 4
    assert place.counts() == {State.PENDING: 3, State.DEAD: 3}
    assert (progress.pulled_back, progress.stopped) == (1, "stopped by ben")
    one = place.operation("undo")
    assert (one.intent.who, one.intent.reason) == (BEN.who, BEN.reason)
    assert one.intent.undoes == place.operation().op
    assert one.counts == counts_of(done=1, excluded=3)


def test_without_a_journal_nothing_is_pulled_back(place: Place) -> None:
    """Where nothing is recorded, no earlier state is known, and the report says so."""
    tasks, place.works = place.dead("ok", "ok"), 0
    reports: list[Report] = []

    def then(replay: Replay) -> None:
        if not replay.progress.stopped:
            pending = tasks_in(place.store, State.PENDING)
            rows = tuple(Row(t.id, t.state, t.rev, target=State.DEAD) for t in pending)
            replay.pull_back(Plan("undo", rows, NOW), BEN, reports.append)

    place.then = then
    result = place.replay(tasks, AT_ONCE, journal=None, intent=None).run()
    assert reports[0].trouble == "cannot undo without a journal"
    assert len(reports[0].failed) == 2
    assert place.counts() == {State.PENDING: 2}
    assert result.progress.tally.waiting == 2


def test_a_canary_of_which_nothing_is_known_asks(place: Place) -> None:
    """Where no log has the outcome of the canary, it waits until an operator says to go on."""
    place.logs = False
    asked: list[str] = []

    def then(replay: Replay) -> None:
        if replay.progress.phase is Phase.ASKING and not asked:
            asked.append(replay.progress.why)
            assert replay.progress.sent == 1
            replay.order("go_on")

    place.then = then
    result = place.replay(place.dead(*["ok"] * 5), ReplayPace(None, (1,), 20, NEVER)).run()
    assert asked == ["canary of 1: 1 outcome unknown, not counted as success"]
    assert result.progress.tally.unknown == 5
    noted = [note["what"] for note in place.operation().notes]
    assert [what for what in noted if what in ("asks", "go_on")] == ["asks", "go_on"]


def test_a_counter_speaks_where_no_log_does(place: Place, tmp_path: Path) -> None:
    """Without a log, the counter of finished tasks shows that they were delivered."""
    place.logs, metrics = False, tmp_path / "queue.prom"
    tasks = place.dead(*["ok"] * 4)
    facts = OutcomeSources(read_processed=make_processed_reader(str(metrics)))

    def count() -> None:
        done = 100 + 4 - sum(place.counts().values())
        metrics.write_text(f"nftban_queue_tasks_processed_total {done}\n")

    place.then = lambda replay: count()
    count()
    result = place.replay(tasks, ReplayPace(None, (1,), 60), facts=facts).run()
    assert result.progress.tally.delivered == 4


def test_where_nothing_can_be_written_down_nothing_is_sent(place: Place) -> None:
    """Without room for the intent no task moves."""
    tasks = place.dead("ok")
    Path(place.journal.folder).parent.mkdir(exist_ok=True)
    Path(place.journal.folder).write_text("in the way")
    replay = place.replay(tasks, AT_ONCE)
    with pytest.raises(Unavailable, match="journal"):
        replay.run()
    assert (place.counts(), replay.progress.phase) == ({State.DEAD: 1}, Phase.OVER)
    assert "journal" in replay.progress.trouble
    assert accounts(replay.progress)


@pytest.mark.parametrize("comes_back", [False, True])
def test_while_a_store_is_away_nothing_is_tried(comes_back: bool, place: Place) -> None:
    """For a moment it costs no task its replay; later the rest is left there."""
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
    result = place.replay(tasks, ReplayPace(2.0, (), 60 if comes_back else 5)).run()
    progress = result.progress
    assert place.spool.dlq in troubles[1]
    assert accounts(progress)
    if comes_back:
        assert (progress.trouble, progress.tally.delivered) == ("", 12)
    else:
        assert place.spool.dlq in progress.stopped
        assert (progress.refused, progress.sent) == (0, 12 - progress.unsent)
        assert result.report is not None and result.report.accounted == 12


def test_a_refusal_leaves_the_rest_where_it_is(place: Place) -> None:
    """When row after row is refused, the others are not sent."""
    for task in place.dead(*["ok"] * 30):
        place.store.swap(task, verbs.retry(task, place.now))
    place.works = 0
    pending = tasks_in(place.store, State.PENDING)
    progress = place.replay(pending, ReplayPace(1.0, (), 60)).run().progress
    assert progress.stopped == "not from pending"
    assert (progress.refused, progress.unsent) == (10, 20)


def test_a_replay_that_may_not_write_leaves_the_rest_where_it_is(place: Place) -> None:
    """Where no token can be written down, it waits and says why."""

    def allowed() -> str:
        return "observing only" if replay.progress.sent >= 3 else ""

    replay = place.replay(place.dead(*["ok"] * 9), ReplayPace(1.0, (), 30), allowed=allowed)
    progress = replay.run().progress
    left = place.counts()[State.DEAD]
    assert (progress.stopped, left) == ("observing only", 9 - progress.sent)
    buckets, troubles = Path(place.spool.staging_dir, "replay.buckets"), list[str]()
    buckets.unlink()
    buckets.mkdir()

    def then(replay: Replay) -> None:
        troubles.append(replay.progress.trouble)
        if len(troubles) == 9:
            replay.order("stop")

    place.then = then
    result = place.replay(tasks_in(place.store, State.DEAD), ReplayPace(2.0, ())).run()
    assert "replay.buckets" in troubles[-1]
    assert (result.progress.sent, place.counts()[State.DEAD]) == (0, left)


def test_two_replays_share_one_bucket(place: Place) -> None:
    """Of two on threads of their own, neither has tokens that the other spent."""
    tasks, place.works = place.dead(*["ok"] * 40), 4
    began, sent, pace = place.now, list[tuple[float, int]](), ReplayPace(4.0, (), 60, NEVER)
    replays = [place.replay(half, pace) for half in (tasks[::2], tasks[1::2])]

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


def test_on_its_own_thread_it_can_be_polled_and_closed(place: Place) -> None:
    """Started, it goes on by itself; what it shows is whole at each moment; closed, it ends."""
    tasks, place.works = place.dead(*["ok"] * 4), 0
    place.replay(tasks, AT_ONCE).close()  # one that was not started
    replay = place.replay(tasks, ReplayPace(2.0, (1,), 1e9), idle=None)
    paused = threading.Event()
    replay.start()
    replay.order("pause")
    while replay.progress.phase != "paused":
        paused.wait(0.01)
        assert accounts(replay.progress)
    replay.close(30)
    assert replay.progress.phase is Phase.LEFT
    assert place.operation().is_interrupted


def test_hearing_begins_when_it_is_asked(place: Place) -> None:
    """What a log said before is not told; what it says from then on is, once."""
    place.write("SUCCESS", "Task completed: a (job)")
    hearing = LogEventReader([str(place.log), str(place.log) + ".none"], place.clock)
    assert hearing() == []
    place.write("SUCCESS", "Task completed: b (job)")
    assert [(event.id, event.what) for event in hearing()] == [("b", EventKind.SUCCEEDED)]
    assert hearing() == []
    hearing.close()


KILLED = """
import sys
from engine.operations import plans
from engine.operations.journal import Intent, Journal, Who
from engine.model import State, Task
from engine.replay.settings import ReplayPace
from engine.replay.replay import Replay
from engine.formats.nftban.store import NftbanStore, SpoolFolders

queue = sys.argv[1]
spool = SpoolFolders(queue + "/pending", queue + "/work", queue + "/dlq")
dead = {t.id: t for t in NftbanStore(spool).scan() if isinstance(t, Task)}
plan = plans.freeze_plan("retry", dead.values(), 0)
journal, intent = Journal(spool.staging_dir + "/journal"), Intent("retry", Who("ana"))
buckets = spool.staging_dir + "/replay.buckets"
open_store = lambda: NftbanStore(spool)
Replay(open_store, plan, ReplayPace(8.0, ()), journal=journal, intent=intent, buckets=buckets).run()
"""


def test_killed_it_is_gone_on_with(place: Place, start: Callable[..., Child]) -> None:
    """The journal knows what it had not sent, and going on sends each task once."""
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
    half = undo.settle_operation(place.store, place.journal, place.operation()).operation
    assert half is not None and half.is_interrupted
    sent = {entry.row.id for entry in place.journal.entries(half.op) if entry.outcome}
    assert {task.id for task in tasks_in(place.store, State.PENDING)} == sent
    assert len(tasks_in(place.store, State.DEAD)) == half.open_rows == 30 - len(sent) > 0

    rest = undo.plan_rest(place.store, place.journal, half, place.now)
    place.then = lambda replay: None if replay.progress.unsent else replay.order("leave")
    result = place.replay(rest, AT_ONCE).run()
    assert result.report is not None and sent.isdisjoint(result.report.done)
    assert len(sent) + len(result.report.done) == 30
    assert place.counts() == {State.PENDING: 30}


def test_every_task_ends_in_one_count_among_rivals(place: Place) -> None:
    """A worker fails a third, and rivals move others: each planned task is in one count."""
    tasks = place.dead(*["ok", "ok", "otherwise"] * 4, "ok", "ok")
    place.store.swap(tasks[4], verbs.retry(tasks[4], place.now))
    (pending,) = tasks_in(place.store, State.PENDING)
    plan = plans.freeze_plan("retry", [*tasks[:4], pending, *tasks[5:]], place.now)
    plan = plan._replace(excluded_ids=frozenset({tasks[1].id}))
    place.store.swap(tasks[3], verbs.purge(tasks[3], NOW))
    place.works = 0

    def then(replay: Replay) -> None:
        if not place.works:
            place.works = 3
            held, removed = (t for t in tasks_in(place.store, State.PENDING) if t.id in lost)
            place.store.swap(held, verbs.hold(held, NOW))
            Path(place.spool.pending, f"{removed.id}.task").unlink()

    lost = {task.id for task in tasks[12:]}
    place.then = then
    result = place.replay(plan, AT_ONCE).run()
    progress, tally = result.progress, result.progress.tally
    assert (tally.delivered, tally.failed, tally.unknown, tally.taken) == (5, 4, 1, 1)
    assert (progress.skipped, progress.refused, progress.excluded, progress.unsent) == (1, 1, 1, 0)
    assert progress.accounted == progress.planned == 14
    assert result.report is not None and result.report.accounted == 14
    fates = Counter(known.outcome for known in result.known_outcomes.values())
    assert fates == {ReplayOutcome.FAILED: 4, ReplayOutcome.UNKNOWN: 1, ReplayOutcome.TAKEN: 1}
