"""The mail queue's change source: what has changed, and what it costs to know it."""

import sys
from array import array
from collections.abc import Callable, Collection
from contextlib import closing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.formats.zgb import change_detector
from engine.formats.zgb.change_detector import RowHashes
from engine.formats.zgb.place import ZgbDatabase
from engine.formats.zgb.scan import QUEUE_PROBLEMS
from engine.formats.zgb.store import ZgbStore
from engine.model import Missing, Problem, State
from tests.examples import examples
from tests.zgb import NOW, ORGANIZER, USER, Opener, Sql, change, settle

Wait = Callable[[float], Collection[str] | None]


def waiting(store: ZgbStore) -> Wait:
    """The wait of a store's change source."""
    assert store.changes.wait is not None
    return store.changes.wait


def listening(store: ZgbStore) -> Callable[[], Collection[str] | None]:
    """Ask a store's change source, which listens from now on, for the jobs that it names."""
    wait = waiting(store)
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
    for number in (1001, 1002):
        other.enqueue(number)
    assert jobs() == {USER, ORGANIZER, "1002-user", "1002-organizer"}
    assert jobs() == set()
    for fields in (
        {"state": State.TRASH},
        {"state": State.HELD},
        {"due": NOW + 9},
        {"state": State.PENDING},
    ):
        change(other, **fields)
        assert jobs() == {USER}
    assert jobs() == set()


def test_any_change_names_the_job(both_jobs: ZgbStore, open_queue: Opener, sql: Sql) -> None:
    """A row is named when any column of the job changed, none of another program's, and a row given
    to another number by both jobs; one that stopped being a job is a problem and missing; where a
    row cannot be named, all may have changed."""
    sql("ALTER TABLE mail_queue ADD COLUMN note TEXT DEFAULT ''")
    both_jobs.enqueue(1002)
    jobs = listening(open_queue())
    mine = "WHERE registration_number = 1001"
    for setting in ("last_error = 'x'", "locked_until = 5", "attempts = 'x'"):
        sql(f"UPDATE mail_queue SET {setting} {mine}")
        assert jobs() == {USER, ORGANIZER}, setting
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
    wait = waiting(open_queue())
    open_queue().enqueue(1001)
    assert wait(0.0) is None
    assert not wait(0.0)


def test_what_is_wrong_as_a_whole_is_named(open_queue: Opener, sql: Sql) -> None:
    """A change beside the queue names where it may show, so that what a look at these says is all
    that is wrong as a whole; and the look finds out what may be done now."""
    store = open_queue()
    store.enqueue(1001)
    wait = waiting(store)
    wait(0.0)
    sql("DELETE FROM registrations WHERE number = 1001")
    settle(sql, mailMaxPerHour="fast", mailQueueEnabled="0")
    names = wait(0.0)
    assert names is not None
    problems = {item for item in store.scan(names) if isinstance(item, Problem)}
    assert problems == {item for item in store.scan() if isinstance(item, Problem)}
    assert {problem.where for problem in problems} == {"orphans", "mailMaxPerHour"}
    assert store.controls["mailQueueEnabled"].now == "0"


def test_comparing_spares_the_machine(
    place: ZgbDatabase, open_queue: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows are compared no sooner than after some times what that took; nothing is lost by it. A
    wait spends its time in the pause that was passed to the store, and no longer."""
    pauses: list[float] = []
    monkeypatch.setattr(change_detector, "COMPARE_PAUSE_FACTOR", 1e12)
    with closing(ZgbStore(place, lambda: NOW, pause=pauses.append)) as store:
        jobs, other = listening(store), open_queue()
        other.enqueue(1001, ["user"])
        assert jobs() == {USER}
        other.enqueue(1002, ["user"])
        assert jobs() == set()
        assert not waiting(store)(0.01) and 0 < max(pauses) <= 0.01


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


def test_a_number_that_is_none_names_no_job() -> None:
    """A registration of any digits, in a column declared as text, is compared without an error."""
    encode, none = change_detector._encode_job, change_detector._NO_JOB
    for number in (b"9" * 5000, b"007", b"-1", b"", b"1e3"):
        assert encode(number, b"user") == none
    assert encode(b"7", b"user") == encode(7, b"user") != none
