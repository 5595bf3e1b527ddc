"""The mail queue's change source: what has changed, and what it costs to know it."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Collection

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import verbs
from engine.formats.zgb import change_detector
from engine.formats.zgb.change_detector import RowHashes
from engine.formats.zgb.place import ZgbDatabase
from engine.formats.zgb.scan import QUEUE_PROBLEMS
from engine.formats.zgb.store import ZgbStore
from engine.model import Missing, Problem, State
from tests.engine.formats.zgb.zgb_jobs import NOW, ORGANIZER, USER, Sql, there
from tests.examples import examples

Opener = Callable[..., ZgbStore]


def listening(store: ZgbStore) -> Callable[[], Collection[str] | None]:
    """Ask a store's bell, which listens from now on, for the jobs that it names."""
    wait = store.changes.wait
    assert wait is not None
    wait(0.0)

    def jobs() -> Collection[str] | None:
        names = wait(0.0)
        # Comparing may only come some time after the last one: another time, then.
        return names if names is None else set(names) - set(QUEUE_PROBLEMS)

    return jobs


@pytest.fixture(autouse=True)
def as_often_as_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is spared here: each query is answered immediately."""
    monkeypatch.setattr(change_detector, "COMPARE_PAUSE_FACTOR", 0)


def test_what_changed_in_either_database_is_named(open_queue: Opener) -> None:
    """Each job that another process enqueues, moves or removes is named once, and no other."""
    store, other = open_queue(), open_queue()
    jobs = listening(store)

    other.enqueue(1001)
    other.enqueue(1002)
    assert jobs() == {USER, ORGANIZER, "1002-user", "1002-organizer"}
    assert jobs() == set()

    other.swap(there(other), verbs.purge(there(other), NOW))
    assert jobs() == {USER}
    other.swap(there(other), there(other)._replace(state=State.HELD))
    assert jobs() == {USER}
    held = there(other)
    other.swap(held, held._replace(due=NOW + 9))
    assert jobs() == {USER}
    other.swap(there(other), verbs.release(there(other), NOW))
    assert jobs() == {USER}
    assert jobs() == set()


def test_a_change_in_any_column_names_the_job(
    both_jobs: ZgbStore, open_queue: Opener, sql: Sql
) -> None:
    """A row is named when any column of the job changed, none of another program's, and a row given
    to another number by both jobs; one that stopped being a job is a problem and missing; where a
    row cannot be named, all may have changed."""
    sql("ALTER TABLE mail_queue ADD COLUMN note TEXT DEFAULT ''")
    both_jobs.enqueue(1002)
    jobs = listening(open_queue())
    mine = "WHERE registration_number = 1001"
    for change in ("last_error = 'x'", "locked_until = 5", "attempts = 'x'"):
        sql(f"UPDATE mail_queue SET {change} {mine}")
        assert jobs() == {USER, ORGANIZER}, change
    sql("UPDATE mail_queue SET note = NULL")
    assert jobs() == set()
    problem, missing = both_jobs.scan({USER})
    assert isinstance(problem, Problem) and missing == Missing(USER)
    sql(f"UPDATE mail_queue SET registration_number = 1003 {mine}")
    assert jobs() == {USER, ORGANIZER, "1003-user", "1003-organizer"}
    sql("DELETE FROM mail_queue WHERE registration_number = 1002")
    assert jobs() == {"1002-user", "1002-organizer"}
    for number in (-1, "x", 1 << 62):
        sql("UPDATE mail_queue SET registration_number = ? WHERE mail_type = 'user'", number)
        assert jobs() is None
    sql("DELETE FROM mail_queue")
    assert jobs() is None


def test_a_change_before_the_first_question_is_not_named(open_queue: Opener) -> None:
    """What changed between a store's opening and the first question may be anything, once."""
    store, other = open_queue(), open_queue()
    wait = store.changes.wait
    assert wait is not None
    other.enqueue(1001)
    assert wait(0.0) is None
    assert not wait(0.0)


def test_what_is_wrong_as_a_whole_is_named(open_queue: Opener, sql: Sql) -> None:
    """A change beside the queue names where it may show, so that what a look at these says is all
    that is wrong as a whole; and the look finds out what may be done now."""
    store = open_queue()
    store.enqueue(1001)
    wait = store.changes.wait
    assert wait is not None
    wait(0.0)
    sql("DELETE FROM registrations WHERE number = 1001")
    sql("UPDATE config SET value = 'fast' WHERE key = 'mailMaxPerHour'")
    sql("UPDATE config SET value = '0' WHERE key = 'mailQueueEnabled'")

    names = wait(0.0)
    assert names is not None
    items = list(store.scan(names))

    wrong = {item for item in store.scan() if isinstance(item, Problem)}
    assert {item for item in items if isinstance(item, Problem)} == wrong
    assert {problem.where for problem in wrong} == {"orphans", "mailMaxPerHour"}
    assert store.controls["mailQueueEnabled"].now == "0"


def test_comparing_spares_the_machine(
    place: ZgbDatabase, open_queue: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows are compared no sooner than after some times what that took; nothing is lost by it."""
    monkeypatch.setattr(change_detector, "COMPARE_PAUSE_FACTOR", 1e12)
    pauses: list[float] = []
    store, other = ZgbStore(place, lambda: NOW, pause=pauses.append), open_queue()
    jobs = listening(store)
    other.enqueue(1001, ["user"])
    assert jobs() == {USER}
    other.enqueue(1002, ["user"])
    assert jobs() == set()
    store.close()


Table = dict[int, tuple[int, str]]
_tables = st.dictionaries(
    st.integers(-5, 30), st.tuples(st.integers(0, 5), st.sampled_from("ab")), max_size=20
)


@examples(40)
@given(st.lists(_tables, max_size=6))
def test_the_rows_that_differ_are_found(tables: list[Table]) -> None:
    """Of each table after another, exactly the rows that came, left or changed are told."""
    prints, before = RowHashes(3), Table()
    for now in tables:
        rows = [(key, *now[key]) for key in sorted(now)]
        found = prints.compare(
            lambda after, rows=rows: [row for row in rows if row[0] > after][:3],  # type: ignore[misc]
            lambda row: row[1],  # type: ignore[arg-type,return-value]
        )
        changed = set(before.items()) ^ set(now.items())
        assert found == {number for _, (number, _) in changed}
        before = now


def test_a_row_takes_few_bytes() -> None:
    """Twenty thousand rows are known in less than 600 kilobytes."""
    prints = RowHashes(1000)
    prints.compare(
        lambda after: [(key,) for key in range(max(after + 1, 0), 20_000)][:1000], lambda row: 1
    )
    kept = [value for value in vars(prints).values() if isinstance(value, array)]
    assert [len(one) for one in kept] == [20_000] * 3
    assert sum(map(sys.getsizeof, kept)) < 600_000


@pytest.mark.parametrize("number", [b"9" * 5000, b"007", b"-1", b"", b"1e3"])
def test_a_number_that_is_none_names_no_job(number: bytes) -> None:
    """A registration of any digits, in a column declared as text, is compared without an error."""
    assert change_detector._encode_job(number, b"user") == change_detector._NO_JOB
    assert (
        change_detector._encode_job(b"7", b"user")
        == change_detector._encode_job(7, b"user")
        != change_detector._NO_JOB
    )
