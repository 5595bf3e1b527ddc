"""Laws of the mail queue's pace, for any clock, rate and backlog."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Callable
from contextlib import closing

import hypothesis.strategies as st
import pytest
from hypothesis import given

from engine.formats.zgb.place import RateLimit, ZgbDatabase
from engine.formats.zgb.schema import create
from engine.formats.zgb.store import ZgbStore
from tests.engine.formats.zgb.zgb_jobs import Sql, config, settle
from tests.examples import examples

Opener = Callable[..., ZgbStore]

NOW = 1_795_170_000
JOBS = 400
BURST = 5


class Backlog:
    """A queue with more to send than the rate allows, and so many tokens."""

    def __init__(self, path: str, tokens: float) -> None:
        create(path)
        self._db = sqlite3.connect(path, isolation_level=None)
        self._db.execute("PRAGMA synchronous = OFF")
        self._db.execute(
            "WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers LIMIT ?)"
            " INSERT INTO mail_queue (registration_number, mail_type) SELECT n, 'user'"
            " FROM numbers",
            (JOBS,),
        )
        self._db.execute(
            "INSERT INTO config VALUES ('mailQueueEnabled', '1'), ('mailMaxPerHour', '1'),"
            " ('mailTokens', ?), ('mailLastRefill', ?)",
            (repr(tokens), str(NOW)),
        )
        # No lease lapses, so that what was claimed stays so.
        self._store = ZgbStore(ZgbDatabase(path, durable=False, registrations="", lease=1 << 40))

    def close(self) -> None:
        """Close both connections."""
        self._store.close()
        self._db.close()

    def run(self, at: int, rate: int) -> tuple[int, float]:
        """One run at a time and a rate: the mails sent, and the tokens left."""
        self._db.execute("UPDATE config SET value = ? WHERE key = 'mailMaxPerHour'", (str(rate),))
        sent = len(list(self._store.take(float(at), "me", JOBS)))
        ((left,),) = self._db.execute("SELECT value FROM config WHERE key = 'mailTokens'")
        return sent, float(left)


@examples(10)
@given(
    st.lists(
        st.tuples(
            st.one_of(st.integers(-90, 90), st.integers(-(10**8), 10**8)), st.integers(1, 60)
        ),
        min_size=2,
        max_size=25,
    ),
    st.integers(0, BURST),
)
def test_no_step_of_a_clock_brings_more_than_a_cap(steps: list[tuple[int, int]], had: int) -> None:
    """A clock that is set back and ahead, and a rate that changes meanwhile: each step ahead brings
    what its time brings at the new rate, and at most a cap; a step back brings nothing and stops
    nothing."""
    now, before = NOW, float(had)
    with (
        tempfile.TemporaryDirectory() as folder,
        closing(Backlog(f"{folder}/zgb.db", before)) as queue,
    ):
        for step, rate in steps:
            now += step
            sent, tokens = queue.run(now, rate)
            cap = min(rate, BURST)
            due = min(cap, before + max(0, step) * rate / 3600)
            assert sent + tokens == pytest.approx(due)
            assert 0 <= tokens < 1
            before = tokens


@pytest.mark.parametrize(
    ("before", "jobs", "after"),
    [
        pytest.param((60, 3, 0), 1, (1, 2.0), id="fewer jobs than tokens"),
        pytest.param((40, 0.2, 86_400), 9, (5, 0.0), id="long idle"),
        pytest.param((2, 5, 0), 9, (2, 0.0), id="the cap follows the rate"),
        pytest.param((60, 0, 60), 9, (1, 0.0), id="at the rate that is set now"),
        pytest.param((60, 0, 59), 9, (0, 59 / 60), id="a second too early"),
    ],
)
def test_what_a_run_claims_and_leaves(
    open_queue: Opener,
    sql: Sql,
    before: tuple[int, float, int],
    jobs: int,
    after: tuple[int, float],
) -> None:
    """The table of the bucket's edge cases, by what a run sends and stores: from rate, tokens and
    seconds since the last refill come mails, and tokens that are left."""
    rate, tokens, elapsed = before
    settle(sql, mailMaxPerHour=rate, mailTokens=tokens, mailLastRefill=NOW - elapsed)
    store = open_queue(rate_limit=RateLimit())
    for number in range(1001, 1001 + jobs):
        store.enqueue(number, ["user"])
    sent = len(list(store.take(float(NOW), "me", 99)))
    stored = config(sql)
    assert sent == after[0]
    assert float(stored["mailTokens"]) == pytest.approx(after[1])
    assert stored["mailLastRefill"] == str(NOW)


def test_a_rest_while_it_was_off_is_worth_a_cap(open_queue: Opener, sql: Sql) -> None:
    """A queue that was off for a day sends at most a cap at once when it is on again."""
    settle(sql, mailMaxPerHour=60, mailTokens=0, mailLastRefill=NOW, mailQueueEnabled=0)
    store = open_queue(rate_limit=RateLimit())
    for number in range(1001, 1011):
        store.enqueue(number)
    for minute in range(0, 1440, 60):
        assert list(store.take(NOW + minute * 60.0, "me", 99)) == []
    settle(sql, mailQueueEnabled=1)
    assert len(list(store.take(NOW + 86_400.0, "me", 99))) == 5


def test_orphans_of_a_table_that_is_emptied_meanwhile_are_asked_about(
    open_queue: Opener, sql: Sql
) -> None:
    """Registrations that vanish between two claims of one run, as while a copy is being restored,
    cost no job: those that are claimed no more are left for the next run, which asks."""
    store = open_queue()
    for number in range(1001, 1021):
        store.enqueue(number)
    taking = store.take(float(NOW), "me", 99)
    first = next(taking)
    sql("DELETE FROM registrations")
    assert list(taking) == []
    assert sql("SELECT count(*) FROM mail_queue") == [(40,)]
    with pytest.raises(Exception, match="39 of 40 jobs have no registration"):
        next(store.take(float(NOW), "me", 1))
    assert store.describe_claim(first, float(NOW)).is_orphan
