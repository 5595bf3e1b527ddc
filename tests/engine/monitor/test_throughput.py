"""What a queue did lately: rates, drain, sparkline and growth, each from counts and a clock."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.model import State
from engine.monitor.throughput import HISTORY_SECONDS, Drain, FlowHistory, Rates, Sample, Trend

NOW = 1_795_167_600.0
"""A whole multiple of ten minutes."""


def a_flow(
    seconds: int, waiting: int = 0, arrived: float = 0, left: float = 0, dead: float = 0
) -> FlowHistory:
    """A history of so many seconds before NOW, with tasks a second, and `waiting` at its end."""
    flow = FlowHistory()
    for second in range(-seconds, 1):
        done = seconds + second
        backlog = max(0, round(waiting + second * (arrived - left)))
        counts = {State.PENDING: backlog, State.DEAD: round(dead * done)}
        flow.add(NOW + second, round(arrived * done), round(left * done), counts)
    return flow


def test_rates_are_those_of_the_last_minute() -> None:
    """Nothing is known before there is a history; a counter that begins again loses nothing."""
    assert a_flow(0, 1000).rates(NOW) is None
    assert a_flow(2, 1000, 5, 5).rates(NOW) is None
    assert a_flow(60, 1000, 9, 7).rates(NOW) == Rates(9, 7)
    flow = a_flow(300, 1000, 2, 0)
    assert flow.rates(NOW) == Rates(2, 0)
    assert flow.rates(NOW + 3600) is None
    assert flow.drain(NOW + 3600).text == "?"
    assert set(flow.sparkline(NOW + 3600, 10)) == {None}

    flow = FlowHistory()
    for second, arrived in enumerate((100, 110, 4, 14)):
        flow.add(NOW + 10 * second, arrived, 0, {})
    assert flow.rates(NOW + 30) == Rates(24 / 30, 0)
    flow, then = a_flow(300, 100, arrived=5), NOW - 3600
    flow.add(then, 9, 9, {State.PENDING: 1})
    assert flow.rates(then) is None
    assert flow.drain(then).trend is Trend.UNKNOWN
    assert [cell for cell in flow.sparkline(then, 10) if cell is not None] == [1.0]


@pytest.mark.parametrize("is_recorded_first", [True, False])
def test_a_recording_before_the_first_sample_fills_the_history(is_recorded_first: bool) -> None:
    """Right after the start ten minutes are those of the recording, in whichever order both are
    known; after a longer gap its counts stay, and rates are only of what was seen since."""
    recorded = []
    for second in range(-600, 0, 10):
        counts = {State.PENDING: 700 + second, State.DEAD: 58 + second // 10}
        recorded.append(Sample(NOW + second, 2 * second, second, counts))
    for gap, grown, rates, cells in ((0, 60, Rates(2, 1), 10), (140, 46, None, 8)):
        flow = FlowHistory()
        if is_recorded_first:
            flow.precede(recorded, FlowHistory())
        flow.add(NOW + gap, 9, 4, {State.PENDING: 700, State.DEAD: 58})
        flow.add(NOW + gap + 1, 11, 5, {State.PENDING: 701, State.DEAD: 58})
        if not is_recorded_first:
            flow.precede(recorded, FlowHistory())
        growth = flow.growth(State.DEAD, NOW + gap + 1)
        assert growth is not None
        assert growth.tasks == grown
        found = flow.rates(NOW + gap + 1)
        assert found == (None if rates is None else pytest.approx(tuple(rates), abs=0.2))
        known = [cell for cell in flow.sparkline(NOW + gap + 1, 10) if cell is not None]
        assert len(known) == cells
        last = flow.series(NOW + gap + 1, 600, 10)
        assert last.inward[-1] == pytest.approx(2, abs=0.2)
        assert flow.drain(NOW + gap + 1).trend is (Trend.GROWING if rates else Trend.UNKNOWN)
    flow = FlowHistory()
    flow.precede([Sample(NOW - 10, 5, 1, {State.PENDING: 3})], FlowHistory())
    flow.add(NOW, 7, 2, {State.PENDING: 5})
    growth = flow.growth(State.PENDING, NOW)
    assert growth is not None and growth.tasks == 2


def test_a_stop_in_the_recording_is_not_in_the_trend() -> None:
    """A console that is opened after a worker started has the trend since then."""
    recorded = [Sample(NOW + n, n, 0, {State.PENDING: 300 + n}) for n in range(-120, -50, 10)]
    recorded += [Sample(NOW + n, n, 4 * (n + 60), {State.PENDING: 60 - 3 * n}) for n in (-50, -40)]
    flow, before = FlowHistory(), FlowHistory()
    for second, is_stopped in ((-70, True), (-60, False)):
        before.note_worker_state(NOW + second, is_stopped=is_stopped)
    flow.precede(recorded, before)
    for second in range(-35, 1):
        flow.add(NOW + second, second + 35, 4 * (second + 35), {State.PENDING: 60 - 3 * second})
    assert flow.drain(NOW).seconds == pytest.approx(20, abs=1)
    rates = flow.rates(NOW)
    assert rates is not None and rates.outward == pytest.approx(4, abs=0.1)


@pytest.mark.parametrize("loaded_at", [5, 7])
def test_a_recording_that_ended_in_a_stop_is_not_in_the_trend(loaded_at: int) -> None:
    """A console that is opened just after a lock was freed has the trend since then, also if the
    recording is known only after its first counts."""
    recorded = [Sample(NOW + n, n, 0, {State.PENDING: 300 + n}) for n in range(-120, 1, 10)]
    flow, before = FlowHistory(), FlowHistory()
    before.note_worker_state(NOW, is_stopped=True)
    for second in range(5, 36):
        if second == loaded_at:
            flow.precede(recorded, before)
        flow.note_worker_state(NOW + second, is_stopped=False)
        left = 4 * (second - 5)
        flow.add(NOW + second, second - 5, left, {State.PENDING: 300 + second - left})
    assert flow.rates_begin == NOW + loaded_at
    assert flow.drain(NOW + 35).seconds == pytest.approx(215 / 3, rel=0.01)


def test_an_output_that_ended_makes_no_eta() -> None:
    """Once five tasks would have left at the last minute's rate and none did, there is none."""
    for silence, unknown in ((8, ""), (12, "none left for 12s")):
        flow = a_flow(120, 100, left=1)
        for second in range(1, silence + 1):
            flow.add(NOW + second, 0, 120, {State.PENDING: 100})
        drain = flow.drain(NOW + silence)
        assert (drain.unknown, drain.seconds is None) == (unknown, bool(unknown))


@pytest.mark.parametrize("worker", [0, 4711])
def test_the_trend_begins_when_the_worker_starts(worker: int) -> None:
    """What came while none ran is not in the rates of the one that runs now."""
    flow, came, left = FlowHistory(), 0, 0
    for second in range(141):
        came, left = came + 1, left + 4 * (second > 100)
        own_worker = worker if worker and second > 100 else None
        flow.note_worker_state(NOW + second, is_stopped=second < 101, own_worker=own_worker)
        flow.add(NOW + second, came, left, {State.PENDING: 100 + came - left, State.DEAD: second})
        if second == 105:
            assert flow.drain(NOW + second) == Drain(Trend.UNKNOWN, unknown="rates since 4s ago")
    now, waiting = NOW + 140, 100 + came - left
    assert flow.rates(now) == pytest.approx((1, 4), abs=0.1)
    drain, growth = flow.drain(now), flow.growth(State.PENDING, now)
    assert drain.seconds == pytest.approx(waiting / 3, rel=0.1)
    assert growth is not None and growth.tasks == pytest.approx(-120, abs=5)
    assert flow.growth(State.DEAD, now) == (140, 140)


def test_tasks_that_came_before_the_worker_started_are_in_the_rate_of_arrivals() -> None:
    """Only output begins with a worker, and a few seconds of it are no rate."""
    flow = FlowHistory()
    for second in range(116):
        came, left = 60 * (second >= 80), 4 * max(0, second - 100)
        flow.note_worker_state(NOW + second, is_stopped=second < 101)
        flow.add(NOW + second, came, left, {State.PENDING: 200 + came - left})
        if second == 105:
            assert flow.rates(NOW + second) is None
    assert flow.rates(NOW + 115) == (1, 4)
    assert flow.series(NOW + 115, 600, 600).inward[-1] == pytest.approx(1)
    assert flow.series(NOW + 115, 600, 600).outward[-1] == pytest.approx(4)


def test_a_history_of_other_folders_does_not_begin_with_a_running_worker() -> None:
    """After a mount the worker that was started here runs on: only another one is a start."""
    flow = FlowHistory(own_worker=4711)
    flow.note_worker_state(NOW, is_stopped=False, own_worker=4711)
    assert flow.rates_begin < NOW
    flow.note_worker_state(NOW, is_stopped=False, own_worker=4712)
    assert flow.rates_begin == NOW


def test_one_task_that_came_and_left_after_a_stop_makes_no_eta() -> None:
    """In the trend the arrivals are of the same time as the output."""
    flow = FlowHistory()
    for second in range(112):
        moved = int(second > 101)
        flow.note_worker_state(NOW + second, is_stopped=second < 101)
        flow.add(NOW + second, moved, moved, {State.PENDING: 20})
    drain = flow.drain(NOW + 111)
    assert (drain.trend, drain.unknown) == (Trend.UNKNOWN, "backlog neither grows nor shrinks")


def test_samples_from_before_an_outage_are_not_in_the_trend() -> None:
    """A server that was down had no counts: the first one after it is where the output begins."""
    flow = FlowHistory()
    flow.add(NOW, 0, 0, {State.PENDING: 40})
    flow.note_worker_state(NOW, is_stopped=True)
    flow.note_worker_state(NOW + 90, is_stopped=False)
    for second in range(91, 111):
        left = 2 * (second - 91)
        flow.add(NOW + second, 200, left, {State.PENDING: 240 - left})
    drain = flow.drain(NOW + 110)
    assert drain.seconds == pytest.approx(101, abs=1)


@pytest.mark.parametrize("every", [12, 15, 30])
def test_the_pause_between_two_scans_is_no_end_of_the_output(every: int) -> None:
    """Counts that are read seldom stay the same in between."""
    flow = FlowHistory()
    for second in range(0, 240):
        left = 10 * (second - second % every)
        flow.add(NOW + second, 0, left, {State.PENDING: 9000 - left})
        if second > 90:
            assert not flow.drain(NOW + second).unknown


def test_a_task_leaves_once() -> None:
    """When it is done, not again when it is removed or, run again, is done a second time."""
    flow, left = FlowHistory(), []
    for second, done, removed in ((0, 5, 0), (30, 8, 0), (60, 6, 2), (90, 4, 2), (120, 6, 2)):
        flow.add(NOW + second, 9, removed, {State.DONE: done})
        rates = flow.rates(NOW + second, 30)
        left.append(None if rates is None else round(30 * rates.outward))
    assert left == [None, 3, 0, 0, 0]


def test_a_task_that_begins_or_is_done_shows_that_something_runs() -> None:
    """A task that only arrives, ends or is removed does not: an operator can do that too."""
    flow, ran = FlowHistory(), []
    for n, (pending, active, done) in enumerate(
        [(3, 0, 0), (2, 1, 0), (2, 0, 0), (5, 0, 0), (4, 0, 1), (1, 0, 1)]
    ):
        counts = {State.PENDING: pending, State.ACTIVE: active, State.DONE: done}
        flow.add(NOW + n, n, n, counts)
        ran.append(flow.last_ran)

    assert ran == [None, NOW + 1, NOW + 1, NOW + 1, NOW + 4, NOW + 4]


def test_failed_tasks_that_leave_have_died() -> None:
    """Growth of the dead and removed failures count together; an unknown part is unknown."""
    flow = FlowHistory()
    for second in range(11):
        flow.add(NOW + second, 0, 0, {State.DEAD: second}, 500 + 2 * second)
    assert (flow.died(NOW + 10), flow.series(NOW + 10, 600, 10).dead[-1]) == (3.0, 3.0)
    flow.add(NOW + 11, 0, 0, {State.DEAD: 11}, None)
    assert flow.died(NOW + 11) is None
    flow.add(NOW + 12, 0, 0, {State.DEAD: 11}, 900)
    assert flow.died(NOW + 12) == pytest.approx(31 / 12)
    assert FlowHistory().died(NOW) is None


def test_deaths_count_by_themselves_while_others_are_replayed() -> None:
    """A dead-letter queue from which as many are replayed as die is not one in which none dies;
    where only its size is known, its growth counts."""
    for died, rate in (([7, 12, 2], 0.7), ([None, None, None], 0.0)):
        flow = FlowHistory()
        for number, total in enumerate(died):
            flow.add(NOW + 5 * number, 0, 0, {State.DEAD: 40}, died=total)
        assert (flow.died(NOW + 10), flow.series(NOW + 10, 600, 10).dead[-1]) == (rate, rate)


def test_a_queue_is_dry_and_a_state_grows() -> None:
    """No output is known only after two minutes in which no task left; growth is that of ten
    minutes, or since the first look; a backlog that jumps by bursts, and goes down, drains."""
    for seconds, left, dry in ((120, 0, True), (60, 0, False), (120, 1, False)):
        assert a_flow(seconds, 607, arrived=1, left=left).is_without_output(NOW) is dry
    assert FlowHistory().growth(State.DEAD, NOW) is None
    assert a_flow(60, dead=1).growth(State.DEAD, NOW) == (60, 60)
    assert a_flow(900, dead=1).growth(State.DEAD, NOW) == (600, 600)
    flow = FlowHistory()
    for second in range(121):
        backlog = 1000 - 2 * second + 30 * (second % 10)
        flow.add(NOW + second, 0, 2 * second, {State.PENDING: backlog})
    assert flow.drain(NOW + 120).trend is Trend.DRAINING


def test_a_backlog_drains_grows_or_stays() -> None:
    """Two minutes show when it will be gone; if as many come as leave or die, there is no time, and
    only a backlog with more tasks than a minute ago is growing."""
    for flow, course, seconds, words in (
        (FlowHistory(), Trend.UNKNOWN, None, "?"), (a_flow(5, 10), Trend.UNKNOWN, None, "?"),
        (a_flow(120, 0), Trend.EMPTY, None, "-"), (a_flow(120, 7), Trend.IDLE, None, "?"),
        (a_flow(120, 70, arrived=1, left=1), Trend.UNKNOWN, None, "?"),
        (a_flow(120, 70, arrived=2, left=1, dead=1), Trend.GROWING, None, "growing"),
        (a_flow(240, 61, left=0.5), Trend.DRAINING, pytest.approx(122.0, 0.01), "2m"),
        (a_flow(120, 1204, arrived=9, left=7), Trend.GROWING, None, "growing"),
        (a_flow(120, 102, arrived=4, left=5), Trend.DRAINING, pytest.approx(102.0, 0.01), "1m"),
    ):  # fmt: skip
        got = flow.drain(NOW)
        assert (got.trend, got.seconds, got.text) == (course, seconds, words)

    flow, dying, held = FlowHistory(), FlowHistory(), FlowHistory()
    for second in range(121):
        held.add(NOW + second, 2 * second, second, {State.PENDING: 200 - second})
        left = 5 * min(second, 50) + max(0, second - 50)
        arrived = 2 * max(0, second - 50)
        flow.add(NOW + second, arrived, left, {State.PENDING: 1000 + arrived - left})
        counts = {State.PENDING: 1000 - second, State.DEAD: 2 * second}
        dying.add(NOW + second, second, 0, counts)
    assert flow.drain(NOW + 120) == Drain(Trend.GROWING)
    assert dying.drain(NOW + 120).seconds == pytest.approx(880.0, 0.01)
    assert held.drain(NOW + 120).seconds == pytest.approx(80.0, 0.01)


@pytest.mark.parametrize("steps", [10, 60, 600])
def test_the_largest_backlog_is_the_same_for_any_number_of_steps(steps: int) -> None:
    """A peak of a second is not averaged away."""
    flow = FlowHistory()
    for second in range(301):
        flow.add(NOW + second, 0, 0, {State.PENDING: 198 if second == 150 else 40})
    assert flow.series(NOW + 300, 600, steps).most == 198


def test_the_sparkline_holds_still() -> None:
    """Ten cells of a minute; what was not seen is None, and only the last changes in a minute."""
    flow = a_flow(150, 100)
    cells = flow.sparkline(NOW + 59, 10)
    assert cells == (*[None] * 6, 100.0, 100.0, 100.0, 100.0)
    flow.add(NOW + 1, 0, 0, {State.PENDING: 300})
    assert flow.sparkline(NOW + 59, 10) == (*cells[:-1], 200.0)


@given(steps=st.lists(st.integers(1, 200), max_size=30), cells=st.integers(1, 12))
def test_a_sparkline_that_was_drawn_is_the_same(steps: list[int], cells: int) -> None:
    """Looking at it all along changes nothing in what it shows in the end."""
    watched, other, now = FlowHistory(), FlowHistory(), NOW
    for number, step in enumerate(steps):
        now += step
        for flow in (watched, other):
            flow.add(now, 0, 0, {State.PENDING: number * 7 % 5})
        watched.sparkline(now, cells)
    assert watched.sparkline(now, cells) == other.sparkline(now, cells)


@given(st.lists(st.tuples(st.floats(0.0, 30.0), st.integers(0, 10_000)), max_size=300))
def test_it_stays_small_and_answers_every_question(steps: list[tuple[float, int]]) -> None:
    """Of any counts at any times, ten minutes are held, and every question is answered."""
    flow, now = FlowHistory(), NOW
    for step, number in steps:
        now += step
        flow.add(now, number, number, {State.PENDING: number})
        rates = flow.rates(now)
        assert rates is None or rates >= (0, 0)
        assert (flow.drain(now).seconds or 0) >= 0
        assert len(flow.sparkline(now, 10)) == 10
    assert len(flow._samples) <= HISTORY_SECONDS / 0.5 + 62
