"""The pace of a replay: canaries, the rate, what stops it, and how long it will take."""

from dataclasses import dataclass, field
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import policy
from engine.monitor.throughput import RunTimes, measure_runs
from engine.policy import UNITS_PER_TOKEN, Bucket
from engine.replay import scheduler, settings
from engine.replay.estimate import WorkerPresence, estimate_replay, measure_run_interval
from engine.replay.outcomes import KnownOutcome, ObservedChange, ReplayOutcome, SentTask
from engine.replay.scheduler import ORDERS, ReplayEnd, ReplayState, Send, Step, StopReason, Wait
from engine.replay.settings import RemainderPolicy, ReplayPace, StopRules
from engine.text.typed_json import to_json
from tests.engine.task_builders import NOW

NEVER = StopRules(None, None)
PLENTY = 1000
LEAST, MOST = settings.MIN_RATE, settings.MAX_RATE
WAITING, DELIVERED, FAILED = ReplayOutcome.WAITING, ReplayOutcome.DELIVERED, ReplayOutcome.FAILED
UNKNOWN, RUNNING = ReplayOutcome.UNKNOWN, ReplayOutcome.RUNNING


def begun(planned: int = 100, **fields: object) -> ReplayState:
    """A replay of so many tasks."""
    return ReplayState.begin(ReplayPace(**fields), planned, NOW)  # type: ignore[arg-type]


def became(
    course: ReplayState, nth: int, fate: ReplayOutcome, mark: str = "", was: ReplayOutcome = WAITING
) -> ReplayState:
    """What became of one of them, that had failed with F-1 before."""
    first = was not in (DELIVERED, FAILED) and fate in (DELIVERED, FAILED)
    sent = SentTask(nth, str(nth), "", NOW, "F-1")
    change = ObservedChange(sent, KnownOutcome(was, ""), KnownOutcome(fate, "", mark), first)
    return course.with_change(change, NOW)


def all_became(course: ReplayState, fate: ReplayOutcome, *nths: int, mark: str = "") -> ReplayState:
    """The same became of all of these."""
    for nth in nths:
        course = became(course, nth, fate, mark)
    return course


def past_canaries(planned: int = 100, **fields: object) -> ReplayState:
    """A replay whose canaries were all delivered: eleven."""
    course = begun(planned, **fields).with_sent(11, 0, NOW)
    return all_became(course, DELIVERED, *range(11))


def step(course: ReplayState, now: float = NOW) -> Step:
    """The next step, with plenty of tokens."""
    return course.next_step(now, PLENTY)


def test_it_goes_from_one_to_ten_to_the_rate() -> None:
    """One is sent and waited for, then ten, then the rate, in portions; or without canaries."""
    course = begun()
    for size, start, outcomes in ((1, 0, "1 outcome"), (10, 1, "10 outcomes")):
        assert step(course) == Send(size)
        course = course.with_sent(size, 0, NOW)
        assert step(course) == Wait(NOW + 120, f"canary of {size}: waiting for {outcomes}")
        course = all_became(course, DELIVERED, *range(start, start + size))
    assert course.next_step(NOW, 7) == Send(7)
    assert course.next_step(NOW, 0, NOW + 3) == Wait(NOW + 3, "the rate")
    assert step(course) == Send(89)

    assert step(begun(canary=())) == step(begun(canary=(0,))) == Send(100)
    many = 10 * scheduler.MAX_TASKS_PER_STEP
    portion = begun(many, canary=(), rate=None).next_step(NOW, many)
    assert portion == Send(scheduler.MAX_TASKS_PER_STEP)
    assert step(begun().with_sent(0, 1, NOW)) == Send(1)


def test_a_canary_in_doubt_is_no_success() -> None:
    """It asks, and goes on by an order or once the outcome comes; unattended it stops."""
    no_success = "canary of 1: 1 outcome unknown, not counted as success"
    doubts: dict[ReplayOutcome | None, str] = {
        UNKNOWN: no_success,
        ReplayOutcome.TAKEN: no_success,
        RUNNING: "canary of 1: still running after 2m",
        None: "canary of 1: no worker has run it for 2m",
    }
    later = NOW + 120
    for fate, why in doubts.items():
        course, alone = begun().with_sent(1, 0, NOW), begun(attended=False).with_sent(1, 0, NOW)
        if fate is not None:
            course, alone = became(course, 0, fate), became(alone, 0, fate)
        assert step(course, later) == Wait(None, why, asks_operator=True)
        assert step(course.with_order("go_on", later), later) == Send(10)
        assert step(alone, later) == StopReason(why)
        assert step(became(course, 0, DELIVERED, was=fate or WAITING)) == Send(10)

    course = became(begun().with_sent(1, 0, NOW), 0, UNKNOWN).with_order("go_on", NOW)
    doubt = step(all_became(course.with_sent(10, 0, NOW), UNKNOWN, *range(1, 11)))
    assert isinstance(doubt, Wait) and doubt.asks_operator


def test_a_canary_passes_once_unless_all_of_it_failed() -> None:
    """One of ten that failed and is run again does not make the others wait for it."""
    course = became(begun(stops=NEVER).with_sent(1, 0, NOW), 0, FAILED)
    assert step(course) == StopReason("canary of 1 failed: 0 of 1 delivered")
    course = all_became(begun(stops=NEVER).with_sent(11, 0, NOW), DELIVERED, *range(10))
    course = became(course, 10, FAILED)
    assert [(canary.delivered, canary.began) for canary in course.canaries] == [(1, NOW), (9, NOW)]
    assert step(course) == step(became(course, 10, RUNNING, was=FAILED)) == Send(89)


def test_the_same_error_twice_stops_it() -> None:
    """Of two tasks that had it before; one that is tried again and again failed again once."""
    course = past_canaries(stops=StopRules(share=None)).with_sent(5, 0, NOW)
    course = all_became(course, FAILED, 11, 12, mark="F-2")
    once = became(course, 13, FAILED, "F-1")
    twice = became(once, 14, FAILED, "F-1")
    assert isinstance(step(once), Send)
    assert became(once, 13, FAILED, "F-1", was=FAILED).repeated_errors == {"F-1": 1}
    assert step(twice) == StopReason("stop rule: F-1 came back 2 times")
    assert [rule.words for rule in scheduler.check_stop_rules(twice)] == ["F-1 2 of 2"]


@pytest.mark.parametrize(("planned", "outcomes", "stops"), [
    (100, "." * 18 + "xx", False),  # two of twenty are just allowed
    (100, "." * 17 + "xxx", True),
    (100, "xxx", True),  # can be no fewer of twenty
    (100, "xx", False),  # may still be two of twenty
    (100, "xx" + "." * 18 + "xx", False),  # old failures are forgotten
    (5, "...x.", True),
    (10, ".........x", False),
])  # fmt: skip
def test_too_large_a_share_of_failures_stops_it(planned: int, outcomes: str, stops: bool) -> None:
    """More than a tenth of the last twenty, once that is certain, or of all if those are fewer."""
    course = begun(planned, canary=(), stops=StopRules(same=None)).with_sent(len(outcomes), 0, NOW)
    for nth, outcome in enumerate(outcomes):
        course = became(course, nth, FAILED if outcome == "x" else DELIVERED, "F-2")
    (rule,) = scheduler.check_stop_rules(course)
    assert bool(rule.why) is isinstance(step(course), StopReason) is stops


def test_each_stop_rule_has_the_number_that_stops_the_replay() -> None:
    """Two stop it at two, three of twenty failures at more than a tenth, 501 at more than 500; all
    of twenty failures are never more than all, so that is no rule."""
    stops = StopRules(same=2, share=0.1, last=20, pending=500)
    short = [rule.short for rule in scheduler.check_stop_rules(begun(stops=stops), 500)]
    assert short == ["same 0/2", "fail 0/3", "pend 500/501"]
    assert not scheduler.check_stop_rules(begun(stops=StopRules(same=None, share=1.0)))


def test_a_stopped_replay_sends_nothing() -> None:
    """It waits for outcomes of sent tasks, and is over when none is open."""
    course = past_canaries().with_sent(2, 0, NOW).with_stop("why").with_stop("why not")
    assert course.stopped == "why"
    assert step(course) == Wait(NOW + 120, "all sent; waiting for 2 outcomes")
    assert step(course, NOW + 120) == step(course.with_order("leave", NOW)) == ReplayEnd()
    for over in (past_canaries(13).with_sent(0, 2, NOW), begun(0)):
        assert over.next_step(NOW, 0) == ReplayEnd()
    course = begun(canary=(), stops=StopRules(None, None, pending=500))
    stop = StopReason("stop rule: 501 tasks pending, limit 500")
    assert course.next_step(NOW, PLENTY, pending=501) == stop
    assert course.next_step(NOW, PLENTY, pending=500) == step(course) == Send(100)


def test_every_order_is_followed() -> None:
    """Each changes something, and no other is taken; faster is twice, slower is half."""
    course = begun().with_order("pause", NOW, "ana")
    assert step(course) == Wait(None, "paused by ana")
    assert step(course.with_order("resume", NOW)) == Send(1)
    assert begun().with_order("stop", NOW, "ana").stopped == "stopped by ana"
    for order in ORDERS:
        before = begun() if order == "pause" else course
        assert before.with_order(order, NOW + 1) != before, order
    with pytest.raises(ValueError, match="no such order"):
        begun().with_order("dance", NOW)
    assert [settings.double_rate(rate) for rate in (2.0, MOST, None)] == [4.0, MOST, None]
    assert [settings.halve_rate(rate) for rate in (2.0, LEAST, None)] == [1.0, LEAST, MOST]


@given(st.floats(LEAST, MOST), st.integers(1, 200))
def test_a_bucket_lets_its_rate_through(rate: float, seconds: int) -> None:
    """In so many seconds a bucket gives the rate, give or take two tokens and the rounding."""
    of = settings.bucket_rate(rate)
    bucket, spent = Bucket(UNITS_PER_TOKEN, 0), 0
    for second in range(seconds + 1):
        bucket = policy.refill_bucket(bucket, of, second)
        while (left := policy.spend_tokens(bucket)) is not None:
            bucket, spent = left, spent + 1
    assert abs(spent - rate * seconds) <= 2 + seconds / UNITS_PER_TOKEN


OR_NONE = st.none()
LIMITS = OR_NONE | st.integers(1, 5), OR_NONE | st.floats(0, 1), st.integers(1, 50)
MOST_PENDING, RESTS = OR_NONE | st.integers(0, 1000), st.sampled_from(RemainderPolicy)
STOPS = st.builds(StopRules, *LIMITS, MOST_PENDING, RESTS)
CANARIES = st.lists(st.integers(0, 20), max_size=3).map(tuple)
RATE_OR_NONE, TIMEOUTS = OR_NONE | st.floats(0.1, 100), st.floats(1, 1000)


@given(
    st.builds(ReplayPace, RATE_OR_NONE, CANARIES, TIMEOUTS, STOPS, st.booleans()),
    st.integers(0, 100),
)
def test_phases_are_all_that_is_planned(pace: ReplayPace, planned: int) -> None:
    """Of any pace, which is stored and read back; other values are refused."""
    sizes = settings.phase_sizes(pace, planned)
    assert sum(sizes) == planned
    assert all(0 <= size <= most for size, most in zip(sizes, pace.canary, strict=False))
    assert sizes[-1] >= 0
    assert settings.parse_pace(to_json(pace)) == pace
    for values in ({"stops": {"rest": "x"}}, {"pace": 1}, {"canary": [-1]}, {"rate": "2"}):
        with pytest.raises(ValueError, match=r"^pace[.:]"):
            settings.parse_pace(values)


@dataclass
class World:
    """A replay in a world of chance: what it sent when, and what it was allowed."""

    pace: ReplayPace
    planned: int
    now: float = NOW
    sent: int = 0
    dropped: int = 0
    fates: dict[int, ReplayOutcome] = field(default_factory=dict)
    had: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.course = ReplayState.begin(self.pace, self.planned, self.now)
        self.rate = settings.bucket_rate(self.pace.rate or 1)
        self.bucket = Bucket(UNITS_PER_TOKEN, int(self.now))

    def step(self, drop: int) -> Step:
        """Do the next thing; some rows of what is sent may be gone."""
        self.bucket = policy.refill_bucket(self.bucket, self.rate, self.now)
        at = policy.next_token_time(self.bucket, self.rate)
        step = self.course.next_step(self.now, self.bucket.tokens, at)
        if isinstance(step, Send):
            spent = policy.spend_tokens(self.bucket, step.amount)
            assert spent is not None, "never more than the bucket holds"
            self.bucket = spent
            gone = min(drop, step.amount)
            done = step.amount - gone
            for nth in range(self.sent, self.sent + done):
                assert nth not in self.fates, "never one twice"
                self.fates[nth] = WAITING
            self.sent, self.dropped = self.sent + done, self.dropped + gone
            self.course = self.course.with_sent(done, gone, self.now)
        elif isinstance(step, StopReason):
            self.course = self.course.with_stop(step.why)
        return step

    def becomes(self, nth: int, fate: ReplayOutcome) -> None:
        """Something becomes known of one that was sent."""
        before = self.fates.get(nth)
        if before is None or before is fate:
            return
        first = fate in (DELIVERED, FAILED) and nth not in self.had
        self.had |= {nth} if first else set()
        self.fates[nth] = fate
        sent, was = SentTask(nth, str(nth), "", NOW, "F-1"), KnownOutcome(before, "")
        change = ObservedChange(sent, was, KnownOutcome(fate, "", "F-1"), first)
        self.course = self.course.with_change(change, self.now)


HAPPENED = st.sampled_from(["step", "step", *ReplayOutcome, *sorted(ORDERS)])


@given(
    st.lists(st.integers(0, 6), max_size=3).map(tuple),
    st.integers(0, 40),
    st.sampled_from([0.1, 0.5, 1, 2, 7]),
    st.booleans(),
    st.lists(st.tuples(HAPPENED, st.integers(0, 40), st.floats(0, 30)), max_size=80),
)
def test_no_more_is_sent_than_allowed(
    canary: tuple[int, ...],
    planned: int,
    rate: float,
    strict: bool,
    happened: list[tuple[str, int, float]],
) -> None:
    """Nor a row twice, nor after a stop or in a pause, and every row is in one count."""
    world = World(ReplayPace(rate, canary, 60, StopRules() if strict else NEVER), planned)
    speeds = [rate]
    for what, number, seconds in happened:
        world.now += seconds
        before, course = world.sent, world.course
        if what == "step":
            world.step(number % 3)
        elif what in ORDERS:
            world.course = course.with_order(what, world.now)
            speeds.append(world.course.pace.rate or 0)
            world.rate = settings.bucket_rate(world.course.pace.rate or 1)
        else:
            world.becomes(number, ReplayOutcome(what))
        after = world.course
        new = world.sent - before
        assert not new or not (course.stopped or course.paused)
        for at, edge in enumerate(accumulate(canary)):  # after so many each canary is whole
            whole = before >= edge
            through = sum(nth in world.had for nth in range(edge)) >= edge
            if new and world.sent > edge and canary[at]:
                assert whole, "a canary is not overtaken in one step"
                assert through or after.passed > at, "each is waited for"
        assert world.sent + world.dropped + after.unsent == planned
        assert after.tally.sent == world.sent and after.unsent >= 0
        for fate in ReplayOutcome:
            assert getattr(after.tally, fate) == [*world.fates.values()].count(fate)
    spent = world.now - NOW
    fastest = max(speeds)
    assert world.sent <= 1 + -(-fastest // 1) + fastest * (spent + 1) + spent / UNITS_PER_TOKEN


@given(st.lists(st.integers(1, 6), max_size=3).map(tuple), st.integers(0, 60))
def test_when_all_goes_well_all_is_sent(canary: tuple[int, ...], planned: int) -> None:
    """Where each task that is sent is delivered, the replay sends all of them and ends."""
    world = World(ReplayPace(2, canary, 60), planned)
    for _ in range(2000):
        step = world.step(0)
        if isinstance(step, ReplayEnd):
            break
        if isinstance(step, Wait):
            world.now += 1
        for nth in [n for n, fate in world.fates.items() if fate is WAITING]:
            world.becomes(nth, DELIVERED)
    assert (world.sent, world.course.tally.delivered) == (planned, planned)


TIMER = "worked only by a timer, one task every 5m"
AT_2 = "at 2/s: 100 in 50s"
WORKED: tuple[tuple[ReplayPace, WorkerPresence, tuple[str, ...], float | None], ...] = (
    # a worker stays; or is free often, but quick
    (ReplayPace(2.0, ()), WorkerPresence(True, None), (AT_2,), None),
    (ReplayPace(2.0, ()), WorkerPresence(False, 0.5), (AT_2,), None),
    (ReplayPace(2.0, (1, 10)), WorkerPresence(False, 300.0),
     (f"{TIMER}: too slow for this rate; it takes 100 runs, 8h20m", AT_2,
     "first 1, then 10; waits for results after each step"), 30000.0),
    (ReplayPace(1 / 512, ()), WorkerPresence(False, 300.0), (f"{TIMER}; it takes 100 runs, 8h20m",
     "at one every 8m: 100 in 14h13m"), 30000.0),
    (ReplayPace(None, ()), WorkerPresence(False, None),
     ("no worker running: sent tasks wait for the next worker", "all 100 immediately"), None),
    # no log mentions a worker, and there is no lock
    (ReplayPace(None, ()), WorkerPresence(None, None),
     ("unknown whether a worker is running: sent tasks may wait for one",
      "all 100 immediately"), None),
)  # fmt: skip


def test_the_plan_shows_whether_the_rate_can_be_kept() -> None:
    """How long tasks take, and by a timer in how many runs, which begun tasks show."""
    for pace, working, sentences, seconds in WORKED:
        replay_estimate = estimate_replay(100, pace, working)
        assert (replay_estimate.sentences, replay_estimate.working) == (sentences, seconds)
        assert replay_estimate.runs == (100 if seconds else None)
    for began, apart in (
        ([], None), ([0, 300], None), ([0, 300, 600], 300), ([600, 0, 1500, 300, 900], 300),
        ([0, 0.2, 0.4, 0.6, 900], 0.2),
    ):  # fmt: skip
        assert measure_run_interval(began) == pytest.approx(apart)


def test_the_time_between_runs_is_the_longest_one_lately() -> None:
    """Of the runs in ten minutes, the last and the longest time between two; None if too few."""
    each_minute_five = [60.0 * minute + task for minute in range(3) for task in range(5)]
    an_outage_before = [0.0, 5000.0, 5010.0, 5025.0]
    for times, runs in (
        ([], RunTimes()), ([100.0, 40.0], RunTimes(100.0, None)),
        ([160.0, 40.0, 100.0], RunTimes(160.0, 60.0)), (each_minute_five, RunTimes(124.0, 56.0)),
        (an_outage_before, RunTimes(5025.0, 15.0)),
    ):  # fmt: skip
        assert measure_runs(times) == runs
