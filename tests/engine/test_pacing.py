"""The pace of a replay: canaries first, then the rate, and when it stops."""

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import policy
from engine.fates import Change, Fate, Known, Sent
from engine.pace import (
    FASTEST,
    SLOWEST,
    Pace,
    Rest,
    Stops,
    bucket_rate,
    faster,
    packed,
    phases,
    slower,
    unpacked,
)
from engine.pacing import MOST, ORDERS, Course, Finished, Send, Step, Stop, Wait, rules
from engine.policy import HOUR, Bucket
from engine.runs import Seen, Working, forecast, runs_apart, seen

NOW = 1_795_170_000.0
NEVER = Stops(None, None)
PLENTY = 1000


def begun(planned: int = 100, **fields: object) -> Course:
    """A replay of so many tasks."""
    return Course.begin(Pace(**fields), planned, NOW)  # type: ignore[arg-type]


def became(
    course: Course, nth: int, fate: Fate, mark: str = "", was: Fate = Fate.WAITING
) -> Course:
    """What became of one of them, that had failed with F-1 before."""
    first = was not in (Fate.DELIVERED, Fate.FAILED) and fate in (Fate.DELIVERED, Fate.FAILED)
    sent = Sent(nth, str(nth), "", NOW, "F-1")
    return course.told(Change(sent, Known(was, ""), Known(fate, "", mark), first), NOW)


def all_became(course: Course, fate: Fate, *numbers: int, mark: str = "") -> Course:
    """The same became of all of these."""
    for nth in numbers:
        course = became(course, nth, fate, mark)
    return course


def past_canaries(planned: int = 100, **fields: object) -> Course:
    """A replay whose canaries were all delivered: eleven."""
    course = begun(planned, **fields).sent(11, 0, NOW)
    return all_became(course, Fate.DELIVERED, *range(11))


def test_it_goes_from_one_to_ten_to_the_rate() -> None:
    """One is sent and waited for, then ten are, and then as many as there are tokens."""
    course = begun()
    assert course.next(NOW, PLENTY) == Send(1)
    course = course.sent(1, 0, NOW)
    assert course.next(NOW, PLENTY) == Wait(NOW + 120, "canary of 1: waits for 1 outcome")
    course = became(course, 0, Fate.DELIVERED)
    assert course.next(NOW, PLENTY) == Send(10)
    course = course.sent(10, 0, NOW)
    assert course.next(NOW, PLENTY) == Wait(NOW + 120, "canary of 10: waits for 10 outcomes")
    course = all_became(course, Fate.DELIVERED, *range(1, 11))
    assert course.next(NOW, 7) == Send(7)
    assert course.next(NOW, 0, NOW + 3) == Wait(NOW + 3, "the rate")
    assert course.next(NOW, PLENTY) == Send(89)


def test_without_canaries_it_begins_at_the_rate() -> None:
    """An empty list of canaries means none; so does a canary of nothing."""
    assert begun(canary=()).next(NOW, PLENTY) == Send(100)
    assert begun(canary=(0,)).next(NOW, PLENTY) == Send(100)


def test_not_too_many_are_sent_together() -> None:
    """Without a rate they go in portions, so that an order is heard between two."""
    assert begun(10 * MOST, canary=(), rate=None).next(NOW, 10 * MOST) == Send(MOST)


def test_a_row_that_was_gone_is_no_canary() -> None:
    """A canary that could not be sent has the next row take its place."""
    assert begun().sent(0, 1, NOW).next(NOW, PLENTY) == Send(1)


DOUBTS: tuple[tuple[str, Fate | None, str], ...] = (
    ("unknown", Fate.UNKNOWN, "canary of 1: 1 outcome not known, which is no success"),
    ("taken", Fate.TAKEN, "canary of 1: 1 outcome not known, which is no success"),
    ("running", Fate.RUNNING, "canary of 1: still running after 2 min"),
    ("waiting", None, "canary of 1: no worker has run it for 2 min"),
)


@pytest.mark.parametrize(("fate", "why"), [d[1:] for d in DOUBTS], ids=[d[0] for d in DOUBTS])
def test_a_canary_in_doubt_is_no_success(fate: Fate | None, why: str) -> None:
    """A canary without a real outcome in time makes the replay ask, and go on once it is told to;
    where nobody is there to ask, it stops."""
    course, alone = begun().sent(1, 0, NOW), begun(attended=False).sent(1, 0, NOW)
    if fate is not None:
        course, alone = became(course, 0, fate), became(alone, 0, fate)

    later = NOW + 120

    assert course.next(later, PLENTY) == Wait(None, why, asks=True)
    assert course.ordered("go_on", later).next(later, PLENTY) == Send(10)
    assert alone.next(later, PLENTY) == Stop(why)


def test_a_doubt_ends_when_the_outcome_comes_after_all() -> None:
    """What was unknown and then turns out to be delivered needs nobody to say go on."""
    course = became(begun().sent(1, 0, NOW), 0, Fate.UNKNOWN)

    assert became(course, 0, Fate.DELIVERED, was=Fate.UNKNOWN).next(NOW, PLENTY) == Send(10)


def test_going_on_is_said_for_one_canary() -> None:
    """Who goes on after the first canary has not said so of the next."""
    course = became(begun().sent(1, 0, NOW), 0, Fate.UNKNOWN).ordered("go_on", NOW)
    course = all_became(course.sent(10, 0, NOW), Fate.UNKNOWN, *range(1, 11))

    step = course.next(NOW, PLENTY)

    assert isinstance(step, Wait)
    assert step.asks


def test_canaries_that_all_failed_stop_it() -> None:
    """Where none of a canary's tasks was delivered, no more are sent, rules or not."""
    course = became(begun(stops=NEVER).sent(1, 0, NOW), 0, Fate.FAILED)

    assert course.next(NOW, PLENTY) == Stop("canary of 1 failed: none of 1 was delivered")


def test_a_canary_that_is_through_stays_so() -> None:
    """One of ten that failed and is run again does not make the others wait for it."""
    course = begun(stops=NEVER).sent(11, 0, NOW)
    course = all_became(course, Fate.DELIVERED, *range(10))
    course = became(course, 10, Fate.FAILED)
    assert course.next(NOW, PLENTY) == Send(89)

    assert became(course, 10, Fate.RUNNING, was=Fate.FAILED).next(NOW, PLENTY) == Send(89)


def test_the_same_error_twice_stops_it() -> None:
    """When the error that tasks had before comes back to two of them, nothing more is sent."""
    course = past_canaries(stops=Stops(share=None)).sent(5, 0, NOW)

    course = all_became(course, Fate.FAILED, 11, 12, mark="F-2")
    once = became(course, 13, Fate.FAILED, "F-1")
    twice = became(once, 14, Fate.FAILED, "F-1")

    assert isinstance(once.next(NOW, PLENTY), Send)
    assert twice.next(NOW, PLENTY) == Stop("F-1 came back 2 times")
    assert [rule.words for rule in rules(twice)] == ["F-1 2 of 2"]


def test_a_task_that_fails_again_and_again_is_one_return() -> None:
    """The error of one task that is tried three times came back once."""
    course = past_canaries(stops=Stops(share=None)).sent(1, 0, NOW)
    course = became(course, 11, Fate.FAILED, "F-1")
    course = became(course, 11, Fate.FAILED, "F-1", was=Fate.FAILED)

    assert course.again == {"F-1": 1}


SHARES: tuple[tuple[str, int, str, bool], ...] = (
    # planned, outcomes in their order (x failed, . delivered), whether it stops
    ("two of twenty are just allowed", 100, "." * 18 + "xx", False),
    ("three of twenty are not", 100, "." * 17 + "xxx", True),
    ("three of three can be no fewer of twenty", 100, "xxx", True),
    ("two of two may still be two of twenty", 100, "xx", False),
    ("old failures are forgotten", 100, "xx" + "." * 18 + "xx", False),
    ("of five, one is a fifth", 5, "...x.", True),
    ("of ten, one is a tenth", 10, ".........x", False),
)


@pytest.mark.parametrize(
    ("planned", "outcomes", "stops"), [s[1:] for s in SHARES], ids=[s[0] for s in SHARES]
)
def test_too_large_a_share_of_failures_stops_it(planned: int, outcomes: str, stops: bool) -> None:
    """More than a tenth of the last twenty, once that is certain, or of all if those are fewer."""
    course = begun(planned, canary=(), stops=Stops(same=None)).sent(len(outcomes), 0, NOW)
    for nth, outcome in enumerate(outcomes):
        course = became(course, nth, Fate.FAILED if outcome == "x" else Fate.DELIVERED, "F-2")

    (rule,) = rules(course)

    assert bool(rule.why) is stops
    assert isinstance(course.next(NOW, PLENTY), Stop) is stops


def test_a_queue_that_grows_stops_it() -> None:
    """When more tasks wait than were allowed, nothing more is sent; not knowing stops nothing."""
    course = begun(canary=(), stops=Stops(None, None, pending=500))

    assert course.next(NOW, PLENTY, pending=501) == Stop("501 tasks wait, more than 500")
    assert course.next(NOW, PLENTY, pending=500) == Send(100)
    assert course.next(NOW, PLENTY) == Send(100)


def test_what_stopped_does_not_send() -> None:
    """Once stopped, only outcomes of what was sent are waited for; the first reason stays."""
    course = past_canaries().sent(2, 0, NOW).halted("why").halted("why not")

    assert course.stopped == "why"
    assert course.next(NOW, PLENTY) == Wait(NOW + 120, "all is sent; waits for 2 outcomes")
    assert course.next(NOW + 120, PLENTY) == Finished()
    assert course.ordered("leave", NOW).next(NOW, PLENTY) == Finished()


def test_all_sent_and_settled_is_finished() -> None:
    """When all is sent, or dropped, and nothing is waited for, it is over."""
    assert past_canaries(13).sent(0, 2, NOW).next(NOW, 0) == Finished()
    assert begun(0).next(NOW, 0) == Finished()


def test_a_pause_holds_until_it_is_taken_back() -> None:
    """While paused nothing is sent, however many tokens there are."""
    course = begun().ordered("pause", NOW, "ana")

    assert course.next(NOW, PLENTY) == Wait(None, "paused by ana")
    assert course.ordered("resume", NOW).next(NOW, PLENTY) == Send(1)


def test_an_order_stops_it() -> None:
    """Whoever stops it is named as the reason."""
    assert begun().ordered("stop", NOW, "ana").stopped == "stopped by ana"


def test_an_order_that_there_is_not_is_an_error() -> None:
    """Only what the table has may be ordered."""
    with pytest.raises(ValueError, match="no such order"):
        begun().ordered("dance", NOW)


def test_every_order_is_followed() -> None:
    """Whatever the table has can be ordered at any time, and each order changes something."""
    course = begun()._replace(paused="paused by ana")
    for order in ORDERS:
        before = begun() if order == "pause" else course
        assert before.ordered(order, NOW + 1) != before, order


SPEEDS: tuple[tuple[Callable[[float | None], float | None], float | None, float | None], ...] = (
    (faster, 2.0, 4.0),
    (faster, FASTEST, FASTEST),
    (faster, None, None),
    (slower, 2.0, 1.0),
    (slower, SLOWEST, SLOWEST),
    (slower, None, FASTEST),
)


@pytest.mark.parametrize(("change", "rate", "then"), SPEEDS)
def test_the_rate_doubles_and_halves_within_bounds(
    change: Callable[[float | None], float | None], rate: float | None, then: float | None
) -> None:
    """Faster is twice, slower is half; all at once is faster than any rate."""
    assert change(rate) == then


@given(st.floats(SLOWEST, FASTEST), st.integers(1, 200))
def test_a_bucket_lets_its_rate_through(rate: float, seconds: int) -> None:
    """In so many seconds a bucket gives the rate, give or take two tokens and the rounding."""
    of = bucket_rate(rate)
    bucket, spent = Bucket(HOUR, 0), 0
    for second in range(seconds + 1):
        bucket = policy.refill(bucket, of, second)
        while (left := policy.spend(bucket)) is not None:
            bucket, spent = left, spent + 1

    assert abs(spent - rate * seconds) <= 2 + seconds / HOUR


@given(
    st.builds(
        Pace,
        rate=st.none() | st.floats(0.1, 100),
        canary=st.lists(st.integers(0, 20), max_size=3).map(tuple),
        timeout=st.floats(1, 1000),
        stops=st.builds(
            Stops,
            same=st.none() | st.integers(1, 5),
            share=st.none() | st.floats(0, 1),
            last=st.integers(1, 50),
            pending=st.none() | st.integers(0, 1000),
            rest=st.sampled_from(Rest),
        ),
        attended=st.booleans(),
    ),
    st.integers(0, 100),
)
def test_phases_are_all_that_is_planned(pace: Pace, planned: int) -> None:
    """The phases of any pace have together as many tasks as are planned."""
    sizes = phases(pace, planned)

    assert sum(sizes) == planned
    assert all(0 <= size <= most for size, most in zip(sizes, pace.canary, strict=False))
    assert sizes[-1] >= 0
    assert unpacked(packed(pace)) == pace


@pytest.mark.parametrize("values", [{}, {"stops": {"rest": "x"}}, {"pace": 1}])
def test_what_is_no_pace_is_an_error(values: dict[str, object]) -> None:
    """Values of which no pace can be made are refused."""
    with pytest.raises(ValueError, match="expected the values of a pace"):
        unpacked(values)


# ---- laws


@dataclass
class World:
    """A replay in a world of chance: what it sent when, and what it was allowed."""

    pace: Pace
    planned: int
    now: float = NOW
    sent: int = 0
    dropped: int = 0
    fates: dict[int, Fate] = field(default_factory=dict)
    had: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.course = Course.begin(self.pace, self.planned, self.now)
        self.rate = bucket_rate(self.pace.rate or 1)
        self.bucket = Bucket(HOUR, int(self.now))

    def step(self, drop: int) -> Step:
        """Do the next thing; some rows of what is sent may be gone."""
        self.bucket = policy.refill(self.bucket, self.rate, self.now)
        at = policy.next_token(self.bucket, self.rate)
        step = self.course.next(self.now, self.bucket.tokens, at)
        if isinstance(step, Send):
            spent = policy.spend(self.bucket, step.amount)
            assert spent is not None, "never more than the bucket holds"
            self.bucket = spent
            gone = min(drop, step.amount)
            done = step.amount - gone
            for nth in range(self.sent, self.sent + done):
                assert nth not in self.fates, "never one twice"
                self.fates[nth] = Fate.WAITING
            self.sent, self.dropped = self.sent + done, self.dropped + gone
            self.course = self.course.sent(done, gone, self.now)
        elif isinstance(step, Stop):
            self.course = self.course.halted(step.why)
        return step

    def becomes(self, nth: int, fate: Fate) -> None:
        """Something becomes known of one that was sent."""
        before = self.fates.get(nth)
        if before is None or before is fate:
            return
        first = fate in (Fate.DELIVERED, Fate.FAILED) and nth not in self.had
        self.had |= {nth} if first else set()
        self.fates[nth] = fate
        sent = Sent(nth, str(nth), "", NOW, "F-1")
        change = Change(sent, Known(before, ""), Known(fate, "", "F-1"), first)
        self.course = self.course.told(change, self.now)


def edges(pace: Pace) -> list[int]:
    """After how many tasks each canary is whole."""
    return [sum(pace.canary[: at + 1]) for at in range(len(pace.canary))]


@given(
    st.lists(st.integers(0, 6), max_size=3).map(tuple),
    st.integers(0, 40),
    st.sampled_from([0.1, 0.5, 1, 2, 7]),
    st.booleans(),
    st.lists(
        st.tuples(
            st.sampled_from(["step", "step", *Fate, *sorted(ORDERS)]),
            st.integers(0, 40),
            st.floats(0, 30),
        ),
        max_size=80,
    ),
)
def test_no_more_is_sent_than_allowed(
    canary: tuple[int, ...],
    planned: int,
    rate: float,
    strict: bool,
    happened: list[tuple[str, int, float]],
) -> None:
    """Whatever happens in whatever order: never more than the canaries and the rate allow, never a
    row twice, nothing after a stop or in a pause, and every row is in one count."""
    stops = Stops() if strict else NEVER
    world = World(Pace(rate, canary, 60, stops), planned)
    speeds = [rate]
    for what, number, seconds in happened:
        world.now += seconds
        before, course = world.sent, world.course
        if what == "step":
            world.step(number % 3)
        elif what in ORDERS:
            world.course = course.ordered(what, world.now)
            speeds.append(world.course.pace.rate or 0)
            world.rate = bucket_rate(world.course.pace.rate or 1)
        else:
            world.becomes(number, Fate(what))
        after = world.course
        new = world.sent - before
        if new:
            assert not course.stopped
            assert not course.paused
        for at, edge in enumerate(edges(world.pace)):
            whole = before >= edge
            through = sum(nth in world.had for nth in range(edge)) >= edge
            if new and world.sent > edge and canary[at]:
                assert whole, "a canary is not overtaken in one step"
                assert through or after.passed > at, "each is waited for"
        assert world.sent + world.dropped + after.rest == planned
        assert after.tally.sent == world.sent
        assert after.rest >= 0
        for fate in Fate:
            known = sum(one is fate for one in world.fates.values())
            assert getattr(after.tally, fate) == known
    spent = world.now - NOW
    fastest = max(speeds)
    assert world.sent <= 1 + -(-fastest // 1) + fastest * (spent + 1) + spent / HOUR


@given(st.lists(st.integers(1, 6), max_size=3).map(tuple), st.integers(0, 60))
def test_when_all_goes_well_all_is_sent(canary: tuple[int, ...], planned: int) -> None:
    """Where each task that is sent is delivered, the replay sends all of them and ends."""
    world = World(Pace(2, canary, 60), planned)
    for _ in range(2000):
        step = world.step(0)
        if isinstance(step, Finished):
            break
        if isinstance(step, Wait):
            world.now += 1
        for nth in [n for n, fate in world.fates.items() if fate is Fate.WAITING]:
            world.becomes(nth, Fate.DELIVERED)

    assert world.sent == planned
    assert world.course.tally.delivered == planned


# ---- beforehand

WORKED: tuple[tuple[str, Pace, Working, tuple[str, ...], int | None, float | None], ...] = (
    (
        "a worker stays",
        Pace(2.0, ()),
        Working(True, None),
        ("at 2/s: 100 in 50 s",),
        None,
        None,
    ),
    (
        "a worker that is free often, but quick",
        Pace(2.0, ()),
        Working(False, 0.5),
        ("at 2/s: 100 in 50 s",),
        None,
        None,
    ),
    (
        "only a timer",
        Pace(2.0, (1, 10)),
        Working(False, 300.0),
        (
            "only a timer works this queue, one task each 5 min: the rate cannot be kept; "
            "it takes 100 runs, 8 h 20 min",
            "at 2/s: 100 in 50 s",
            "first 1, then 10; the outcomes of each are waited for",
        ),
        100,
        30000.0,
    ),
    (
        "a rate that a timer can keep",
        Pace(1 / 512, ()),
        Working(False, 300.0),
        (
            "only a timer works this queue, one task each 5 min; it takes 100 runs, 8 h 20 min",
            "at one each 8 min: 100 in 14 h 13 min",
        ),
        100,
        30000.0,
    ),
    (
        "nobody, as far as is known",
        Pace(None, ()),
        Working(False, None),
        (
            "nobody works this queue now: what is sent waits for the next worker",
            "all 100 at once",
        ),
        None,
        None,
    ),
    (
        "nobody that a log tells of, and no lock",
        Pace(None, ()),
        Working(None, None),
        (
            "whether anybody works this queue is not known here: what is sent may wait for a "
            "worker",
            "all 100 at once",
        ),
        None,
        None,
    ),
)


@pytest.mark.parametrize(
    ("pace", "working", "sentences", "runs", "seconds"),
    [row[1:] for row in WORKED],
    ids=[row[0] for row in WORKED],
)
def test_it_is_said_beforehand_whether_the_rate_can_be_kept(
    pace: Pace,
    working: Working,
    sentences: tuple[str, ...],
    runs: int | None,
    seconds: float | None,
) -> None:
    """How long a hundred tasks take, and, where only a timer works, in how many runs."""
    said = forecast(100, pace, working)

    assert (said.sentences, said.runs, said.working) == (sentences, runs, seconds)


APART: tuple[tuple[list[float], float | None], ...] = (
    ([], None),
    ([0, 300], None),
    ([0, 300, 600], 300),
    ([600, 0, 1500, 300, 900], 300),
    ([0, 0.2, 0.4, 0.6, 900], 0.2),
)


@pytest.mark.parametrize(("began", "apart"), APART)
def test_the_time_between_runs_is_seen_in_the_log(began: list[float], apart: float | None) -> None:
    """From when tasks were begun it is told how far apart runs are."""
    assert runs_apart(began) == pytest.approx(apart)


@pytest.mark.parametrize(
    ("times", "runs"),
    [
        ([], Seen()),
        ([100.0, 40.0], Seen(100.0, None)),
        ([160.0, 40.0, 100.0], Seen(160.0, 60.0)),
        # Each minute a run starts five tasks.
        ([60.0 * minute + task for minute in range(3) for task in range(5)], Seen(124.0, 56.0)),
        # An outage long before the last runs says nothing of these.
        ([0.0, 5000.0, 5010.0, 5025.0], Seen(5025.0, 15.0)),
    ],
)
def test_the_time_between_runs_is_the_longest_one_lately(times: list[float], runs: Seen) -> None:
    """Of the runs in ten minutes, the last and the longest time between two; None if too few."""
    assert seen(times) == runs
