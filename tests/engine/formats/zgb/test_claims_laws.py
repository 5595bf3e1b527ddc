"""Laws of the mail queue's pace, for any clock, rate and backlog."""

import tempfile
from contextlib import closing
from functools import partial

import hypothesis.strategies as st
import pytest
from hypothesis import given

from engine.formats.zgb.place import ZgbDatabase
from engine.formats.zgb.schema import create
from engine.formats.zgb.store import ZgbStore
from engine.store import Unavailable
from tests.examples import examples
from tests.zgb import NOW, Opener, Sql, config, settle, sql_in, taken

START, JOBS, BURST = int(NOW), 400, 5


STEPS = st.one_of(st.integers(-90, 90), st.integers(-(10**8), 10**8))


@examples(10)
@given(
    st.lists(st.tuples(STEPS, st.integers(1, 60)), min_size=2, max_size=25), st.integers(0, BURST)
)
def test_no_step_of_a_clock_brings_more_than_a_cap(steps: list[tuple[int, int]], had: int) -> None:
    """A clock that is set back and ahead, and a rate that changes meanwhile: each step ahead brings
    what its time brings at the new rate, and at most a cap; a step back brings nothing and stops
    nothing."""
    now, before = START, float(had)
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/zgb.db"
        create(path)
        sql = partial(sql_in, path)
        jobs = ", ".join(f"({number}, 'user')" for number in range(JOBS))
        sql(f"INSERT INTO mail_queue (registration_number, mail_type) VALUES {jobs}")
        settle(sql, mailQueueEnabled="1", mailTokens=repr(before), mailLastRefill=str(START))
        # No lease lapses, so that what was claimed stays so.
        place = ZgbDatabase(path, durable=False, registrations="", lease=1 << 40)
        with closing(ZgbStore(place)) as store:
            for step, rate in steps:
                now += step
                settle(sql, mailMaxPerHour=str(rate))
                sent = len(taken(store, float(now), JOBS))
                tokens = float(config(sql)["mailTokens"])
                due = min(rate, BURST, before + max(0, step) * rate / 3600)
                assert sent + tokens == pytest.approx(due)
                assert 0 <= tokens < 1
                before = tokens


def test_orphans_of_a_table_emptied_meanwhile_are_asked_about(open_queue: Opener, sql: Sql) -> None:
    """Registrations that vanish between two claims of one run, as while a copy is being restored,
    cost no job: those that are claimed no more are left for the next run, which asks."""
    store = open_queue()
    for number in range(1001, 1021):
        store.enqueue(number)
    taking = store.take(NOW, "me", 99)
    first = next(taking)
    sql("DELETE FROM registrations")
    assert list(taking) == []
    assert sql("SELECT count(*) FROM mail_queue") == [(40,)]
    with pytest.raises(Unavailable, match="39 of 40 jobs have no registration"):
        next(store.take(NOW, "me", 1))
    assert store.describe_claim(first, NOW).is_orphan
