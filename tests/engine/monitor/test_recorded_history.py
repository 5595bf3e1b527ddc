"""Recorded samples: packed into a few hundred bytes, refused if spoilt, and gone back through."""

import json
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.locks.token_buckets import BucketState
from engine.model import LockEvidence, State, Verdict
from engine.monitor import recorded_history, sample_codec
from engine.monitor.alerts import AlertKind
from engine.monitor.recorded_history import MissingSpan, RecordedHistory, step_seconds, step_time
from engine.monitor.recorder import EncodedSample
from engine.monitor.sample_codec import BadSample, RecordedSample, decode_sample, encode_sample
from engine.monitor.throughput import Drain, Rates, Trend
from engine.monitor.transport_health import WINDOWS, CountWindow, DeliveryCounts, TransportHealth
from tests.recorder_samples import NOTHING_KNOWN, NOW, a_sample, a_way, an_alert

FINE_STEP, MAX_AGE = recorded_history.FINE_STEP_SECONDS, recorded_history.MAX_SAMPLE_AGE_SECONDS


def test_a_moment_comes_back_as_it_was() -> None:
    """All of it is what it was: counts, rates, ages, alerts, transports, tokens; an alert is of the
    place as it is called now. Of an unread place only the reason comes back."""
    sample = a_sample()
    again = decode_sample(encode_sample(sample), "mail.out")
    assert again._replace(transports=()) == sample._replace(transports=())
    (transport,), (before,) = again.transports, sample.transports
    assert (*transport[:2], transport.last_success) == (*before[:2], before.last_success)
    assert [w.tally for w in transport.windows] == [w.tally for w in before.windows]
    renamed = decode_sample(encode_sample(sample), "/srv/mail.out")
    assert renamed.alerts[0].target.place == "/srv/mail.out"
    totals = DeliveryCounts(17, 10, 7, 6)
    finer = {"retry": (State.PENDING, 4), "chunk": (State.ACTIVE, 0)}
    fine = sample._replace(finer=finer, lease_workers=2, gone_failures=3)
    fine = fine._replace(drain=Drain(Trend.UNKNOWN, unknown="no worker"), kinds={"mail_send": 7})
    fine = fine._replace(transports=(a_way("sendmail")._replace(totals=totals),))
    again = decode_sample(encode_sample(fine), "mail.out")
    assert again._replace(transports=()) == fine._replace(transports=())
    assert again.transports[0].totals == totals
    unread = NOTHING_KNOWN._replace(name="x", unavailable="No such file")
    taken = RecordedSample(NOW, "a console", tokens="no limits file")
    lost = sample_codec.make_sample(unread, taken)
    assert decode_sample(encode_sample(lost), "x") == lost


NAMES = st.lists(st.text(max_size=200), max_size=30)


@given(NAMES, NAMES, st.text(max_size=300), st.integers(0, 10**12))
def test_a_moment_is_bounded(ways: list[str], alerts: list[str], words: str, number: int) -> None:
    """With any names and words, it fits, its counts stay, and it can be read again."""
    sample = a_sample(pending=number, unavailable=words)._replace(
        transports=tuple(a_way(name) for name in ways),
        alerts=tuple(an_alert(text) for text in alerts),
        tokens=tuple(BucketState(name, 1, 5, None) for name in ways),
    )
    data = encode_sample(sample)
    again = decode_sample(data, "x")
    assert len(data) <= sample_codec.MAX_SAMPLE_BYTES
    assert again.counts[State.PENDING] == number
    assert (again.oldest, again.due, again.rates) == (sample.oldest, sample.due, sample.rates)


@given(st.binary(max_size=sample_codec.MAX_SAMPLE_BYTES))
def test_other_bytes_are_no_moment(data: bytes) -> None:
    """Random bytes are refused."""
    with pytest.raises(BadSample):
        decode_sample(data, "x")


def packed(row: Any) -> bytes:
    """Anything in the form of a moment."""
    deflate = zlib.compressobj(9, wbits=-15, zdict=sample_codec._USUAL)
    return deflate.compress(json.dumps(row).encode()) + deflate.flush()


SPOILT: list[tuple[int, Any]] = [
    (0, 2), (1, "soon"), (1, float("nan")), (1, 10**400), (7, [1e300, None, None]),
    (8, [0.0, 10**4299]), (2, 7), (3, [["pending", "pending", -1]]), (3, [["elsewhere", "x", 1]]),
    (3, [["pending", "pending", True]]), (6, 1 << 60), (7, [None, None]),
    (7, [None, None, None, 1, 0, [], 0]),
    (7, [None, None, None, 1, 0, [["retry", "elsewhere", 1]]]),
    (7, [None, None, None, 1, 0, [["retry", "pending", -1]]]), (8, [0.1]),
    (9, ["free", "x", None, 0, ""]), (10, [["LOUD", "an old task", "", None, "queue", None, ""]]),
    (11, [["postfix", [1, -2], None, None, []]]), (12, [["", 1]]), (12, 5),
]  # fmt: skip
"""A field of a moment, and what is written into it."""


def test_a_moment_with_a_field_that_cannot_be_is_refused() -> None:
    """One wrong field is enough; bytes that unpack to megabytes cost no more than a moment."""
    inflate = zlib.decompressobj(wbits=-15, zdict=sample_codec._USUAL)
    row = json.loads(inflate.decompress(encode_sample(a_sample())))
    assert decode_sample(packed(row), "x")
    for field, value in SPOILT:
        spoilt = [value if at == field else kept for at, kept in enumerate(row)]
        with pytest.raises(BadSample):
            decode_sample(packed(spoilt), "x")
    with pytest.raises(BadSample):
        decode_sample(packed([1, " " * (8 << 20)])[: sample_codec.MAX_SAMPLE_BYTES], "x")


def moment(seconds: float, **fields: Any) -> EncodedSample:
    """A moment so many seconds from now."""
    return EncodedSample(NOW + seconds, encode_sample(a_sample(NOW + seconds, **fields)))


def a_tape(*seconds: float) -> RecordedHistory:
    """Moments so many seconds from now, each with as many tasks waiting."""
    return RecordedHistory([moment(s, pending=int(abs(s))) for s in seconds], "x")


def test_the_state_at_a_moment() -> None:
    """The last sample until then if it is recent, else a gap with its ends; so is a sample whose
    bytes are none. A held key goes by minutes after its first steps."""
    middle, history = MissingSpan(NOW - 90, NOW - 20), a_tape(-100, -90, -20)
    for at, found in (
        (-100, -100), (-99.9, -100), (-90.1, -100), (-90, -90), (-90 + MAX_AGE, -90),
        (-20, -20), (-90 + MAX_AGE + 0.1, middle), (-20.1, middle),
        (500, MissingSpan(NOW - 20, None)), (-100.1, MissingSpan(None, NOW - 100)),
    ):  # fmt: skip
        sample = history.at(NOW + at)
        if isinstance(found, MissingSpan):
            assert sample == found
        else:
            assert isinstance(sample, RecordedSample)
            assert (sample.when, sample.counts[State.PENDING]) == (NOW + found, abs(found))

    history = RecordedHistory([EncodedSample(NOW, b"nonsense")], "x")
    assert history.at(NOW) == MissingSpan(NOW, None)
    assert history.flow_until(NOW).sparkline(NOW, 9) == (None,) * 9
    assert RecordedHistory((), "x").at(NOW) == MissingSpan(None, None)
    assert step_time([RecordedHistory((), "x")], NOW, -FINE_STEP) is None
    most = recorded_history.FINE_STEPS
    steps = [step_seconds(run) for run in (1, most - 1, most, 500)]
    assert steps == [FINE_STEP] * 2 + [recorded_history.COARSE_STEP_SECONDS] * 2


def test_a_gap_is_passed_in_two_steps() -> None:
    """Into it and out of its other end, unless another place has a sample there."""
    history, when = a_tape(-1000, -30, -20, -10), NOW - 20
    back, on = [], []
    while (sample := step_time([history], when, -FINE_STEP)) is not None:
        when = sample
        back.append(when - NOW)
    while (sample := step_time([history], when, FINE_STEP)) is not None and sample <= NOW:
        when = sample
        on.append(when - NOW)
    assert back == [-30, -40, -1000]
    assert on == [-990, -980, -970, -30, -20, -10, 0]
    assert all(isinstance(history.at(NOW - ago), MissingSpan) for ago in (40, 970))

    quiet, busy = a_tape(-100), a_tape(-50, -40, -30)
    assert step_time([quiet, busy], NOW - 30, -FINE_STEP) == NOW - 40
    assert step_time([quiet], NOW - 30, -FINE_STEP) == NOW - 100


@given(st.lists(st.integers(-8640, 0), unique=True, max_size=60))
def test_going_back_ends_and_passes_by_nothing(slots: list[int]) -> None:
    """However many gaps there are, every moment is seen on the way back, and the way ends."""
    history = a_tape(*(slot * 10.0 for slot in slots))
    when: float | None = NOW
    visited = set()
    for _ in range(4 * len(slots) + 10):
        if when is None:
            break
        sample = history.at(when)
        if isinstance(sample, RecordedSample):
            visited.add(round((sample.when - NOW) / 10))
        when = step_time([history], when, -FINE_STEP)
    assert when is None
    assert visited == set(slots)


@pytest.mark.parametrize(
    ("stop", "is_stop"),
    [
        ({"lock": LockEvidence(Verdict.STUCK)}, True),
        ({"lock": LockEvidence(Verdict.STALE)}, True),
        ({"tokens": (BucketState("", 3, 5, None, paused=True),)}, True),
        ({"tokens": "cannot be read"}, False),
        ({"alerts": (an_alert()._replace(kind=AlertKind.IDLE),)}, False),
    ],
)
def test_a_recorded_trend_begins_when_a_stop_ends(stop: dict[str, Any], is_stop: bool) -> None:
    """What came while the lock was stuck or stale, or in a pause, is not in it; that no worker
    runs is no stop."""
    moments = []
    for seconds in range(-110, 10, 10):
        stopped = seconds < -40
        counts = {State.PENDING: 20 + (130 + seconds if stopped else -2 * seconds)}
        moments.append(moment(seconds, counts=counts, **(stop if stopped else {})))
    flow = RecordedHistory(moments, "x").flow_until(NOW)
    assert (flow.rates_begin == NOW - 40) is is_stop
    assert (flow.drain(NOW).seconds == pytest.approx(10, abs=0.1)) is is_stop


def test_only_tasks_of_the_last_ten_minutes_are_arrivals() -> None:
    """The last sample before a gap may be hours older."""
    for second, has_arrivals in ((-7200, False), (-601, False), (-599, True)):
        moments = [moment(second, rates=Rates(1.0, 0.0)), moment(-5, rates=Rates(0.0, 0.0))]
        assert RecordedHistory(moments, "x").has_arrivals(NOW) is has_arrivals


def test_rates_come_from_the_samples_before() -> None:
    """Backlog, sparkline and growth are those of the time before, blank where nothing was recorded.
    Where only a transport's totals were recorded, a window is their difference, or not known."""
    past = a_tape(*range(-600, -290, 10)).flow_until(NOW - 300)
    assert past.drain(NOW - 300).text == "5m"
    spark = past.sparkline(NOW - 300, 20)
    assert spark[-1] is not None and spark[0] is None
    windows = tuple(CountWindow(*shape) for shape in WINDOWS)
    moments = []
    for seconds, totals in ((-600, DeliveryCounts(103, 100, 3)), (0, DeliveryCounts(148, 140, 8))):
        moments.append(moment(seconds, transports=(TransportHealth("postfix", totals, windows),)))
    history = RecordedHistory(moments, "x")
    sample = history.at(NOW)
    assert isinstance(sample, RecordedSample)
    (transport,) = history.transports(sample)
    assert [window.tally for window in transport.windows] == [None, DeliveryCounts(45, 40, 5), None]
