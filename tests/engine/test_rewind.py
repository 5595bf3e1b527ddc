"""Going back through recorded time: what was so then, and that a gap is a gap."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from engine.model import State
from engine.recorder import Moment
from engine.recording import Sample, pack
from engine.rewind import COARSE, FINE, GAP, HELD, Gap, Tape, step, stride
from engine.transports import Tally, Transport, Window
from tests.engine.moments import NOW, a_sample


def a_tape(*seconds: float) -> Tape:
    """Moments so many seconds from now, each with as many tasks waiting."""
    return Tape(
        [Moment(NOW + s, pack(a_sample(NOW + s, pending=int(abs(s))))) for s in seconds], "x"
    )


def test_what_was_so_at_a_moment() -> None:
    """The last that was written down until then, if that is recent; else a gap with its ends."""
    middle = Gap(NOW - 90, NOW - 20)
    for at, found in (
        *((-100, -100), (-99.9, -100), (-90.1, -100), (-90, -90), (-90 + GAP, -90), (-20, -20)),
        *((-90 + GAP + 0.1, middle), (-20.1, middle)),
        *((500, Gap(NOW - 20, None)), (-100.1, Gap(None, NOW - 100))),
    ):
        there = a_tape(-100, -90, -20).at(NOW + at)
        if isinstance(found, Gap):
            assert there == found
        else:
            assert isinstance(there, Sample)
            assert (there.when, there.counts[State.PENDING]) == (NOW + found, abs(found))


def test_what_cannot_be_read_is_a_gap() -> None:
    """A moment whose bytes are none is as if nobody had written it down; where nothing was written
    there is nothing to go to. A held key goes by minutes after its first steps."""
    tape = Tape([Moment(NOW, b"nonsense")], "x")
    assert tape.at(NOW) == Gap(NOW, None)
    assert tape.lately(NOW).spark(NOW, 9) == (None,) * 9
    assert Tape((), "x").at(NOW) == Gap(None, None)
    assert step([Tape((), "x")], NOW, -FINE) is None
    assert [stride(run) for run in (1, HELD - 1, HELD, 500)] == [FINE, FINE, COARSE, COARSE]


def test_a_gap_is_passed_in_two_steps() -> None:
    """Into it and out of it at its other end, back and on again."""
    tape = a_tape(-1000, -30, -20, -10)
    when, back = NOW - 20, []
    while (there := step([tape], when, -FINE)) is not None:
        when = there
        back.append(when - NOW)
    on = []
    while (there := step([tape], when, FINE)) is not None and there <= NOW:
        when = there
        on.append(when - NOW)
    assert back == [-30, -40, -1000]
    assert on == [-990, -980, -970, -30, -20, -10, 0]
    assert isinstance(tape.at(NOW - 40), Gap)
    assert isinstance(tape.at(NOW - 970), Gap)


@given(st.lists(st.integers(-8640, 0), unique=True, max_size=60))
def test_going_back_ends_and_passes_by_nothing(slots: list[int]) -> None:
    """However many gaps there are, every moment is seen on the way back, and the way ends."""
    tape = a_tape(*(slot * 10.0 for slot in slots))
    when: float | None = NOW
    seen = set()
    for _ in range(4 * len(slots) + 10):
        if when is None:
            break
        found = tape.at(when)
        if isinstance(found, Sample):
            seen.add(round((found.when - NOW) / 10))
        when = step([tape], when, -FINE)
    assert when is None
    assert seen == set(slots)


def test_of_several_places_one_is_enough() -> None:
    """A stretch of which any place knows something is no gap for the others to jump over."""
    quiet, busy = a_tape(-100), a_tape(-50, -40, -30)
    assert step([quiet, busy], NOW - 30, -FINE) == NOW - 40
    assert step([quiet], NOW - 30, -FINE) == NOW - 100


def test_how_it_went_is_told_from_what_was_written_down() -> None:
    """Backlog, sparkline and growth are those of the time before, blank where nothing was seen."""
    tape = a_tape(*range(-600, -290, 10))
    past = tape.lately(NOW - 300)
    assert past.drain(NOW - 300).words == "5m00s"
    spark = past.spark(NOW - 300, 20)
    assert spark[-1] is not None
    assert spark[0] is None


def test_what_a_transport_did_is_told_from_its_totals() -> None:
    """Where only totals were written down, a window is their difference; without one it is not
    known."""

    def a_moment(seconds: float, sent: int, failed: int) -> Moment:
        totals = Tally(sent + failed, sent, failed)
        windows = (Window("1m", 60.0), Window("10m", 600.0), Window("1h", 3600.0))
        way = Transport("postfix", totals, windows)
        return Moment(NOW + seconds, pack(a_sample(NOW + seconds, transports=(way,))))

    tape = Tape([a_moment(-600, 100, 3), a_moment(0, 140, 8)], "x")
    found = tape.at(NOW)
    assert isinstance(found, Sample)
    (way,) = tape.transports(found)
    assert [window.tally for window in way.windows] == [None, Tally(45, 40, 5), None]
