"""Databases of others: how they may be built, what is wrong with them, and what is said of that."""

import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from datetime import UTC
from pathlib import Path
from typing import Any

import pytest

from engine import verbs
from engine.model import Missing, Move, Problem, State, Task
from engine.store import Gone, Unavailable
from engine.stores import open_store
from engine.stores.zgb import Place, ZgbStore, create
from engine.stores.zgb.place import PARKED
from engine.stores.zgb.times import Form, read, zone_of
from tests.stores.seen import naming, problems_in, tasks_in

Opener = Callable[..., ZgbStore]
Sql = Callable[..., list[tuple[Any, ...]]]

NOW = 1_795_170_000.0  # 2026-11-20 10:20:00 UTC
USER = "1001-user"
NAMES = (
    "registration_number, mail_type, status, attempts, next_attempt_at, locked_until, last_error"
)


@pytest.fixture
def foreign(tmp_path: Path) -> Iterator[Callable[..., ZgbStore]]:
    """Open a database that somebody else built, by the statements given."""
    with ExitStack() as opened:

        def build(*statements: str, **settings: Any) -> ZgbStore:
            path = str(tmp_path / "foreign.db")
            with closing(sqlite3.connect(path)) as db, db:
                db.execute("CREATE TABLE config (key TEXT, value TEXT)")
                db.execute("CREATE TABLE registrations (number INTEGER)")
                db.execute("INSERT INTO registrations VALUES (7), (8), (1001)")
                db.execute("INSERT INTO config VALUES ('mailQueueEnabled', '1')")
                for statement in statements:
                    db.execute(statement)
            place = Place(path, durable=False, **settings)
            return opened.enter_context(closing(ZgbStore(place, lambda: NOW)))

        yield build


# ---- how it may be built


def test_the_documented_columns_are_enough(foreign: Callable[..., ZgbStore]) -> None:
    """Without an id, times of making or change, or an index, jobs live their whole life."""
    store = foreign(f"CREATE TABLE mail_queue ({NAMES})")

    assert [one.created for one in store.enqueue(7)] == [True, True]
    assert [one.created for one in store.enqueue(7)] == [False, False]
    (task,) = store.take(NOW, "me", 9)  # a bucket that is new has one token
    store.swap(task, verbs.nack(task, NOW + 60, "no"))
    for state in (State.HELD, State.TRASH, State.PENDING):
        task = tasks_in(store)["7-user"]
        store.swap(task, replace(task, state=state))

    (task,) = store.take(NOW + 90, "me", 9)
    assert task.id == "7-organizer"
    store.swap(task, None)
    assert {i: (t.attempts, t.error) for i, t in tasks_in(store).items()} == {"7-user": (1, "no")}


def test_rows_may_have_no_rowid(foreign: Callable[..., ZgbStore]) -> None:
    """A table without rowids goes by its id; without that either, it cannot be worked on."""
    store = foreign(
        f"CREATE TABLE mail_queue (id INTEGER PRIMARY KEY, {NAMES}) WITHOUT ROWID",
        "INSERT INTO mail_queue VALUES (5, 7, 'user', 'pending', 0, 0, NULL, NULL)",
    )

    task = tasks_in(store)["7-user"]
    store.swap(task, verbs.hold(task, NOW))
    held = tasks_in(store)["7-user"]
    store.swap(held, verbs.release(held, NOW))

    assert tasks_in(store)["7-user"].rev == task.rev


def test_neither_rowid_nor_id_is_no_mail_queue(foreign: Callable[..., ZgbStore]) -> None:
    """Rows that cannot be told apart are not touched."""
    with pytest.raises(Unavailable, match="neither a rowid nor an id"):
        foreign(
            f"CREATE TABLE mail_queue ({NAMES},"
            " PRIMARY KEY (registration_number, mail_type)) WITHOUT ROWID"
        )


def test_foreign_columns_are_kept(foreign: Callable[..., ZgbStore]) -> None:
    """What is not documented is never changed, whatever it is, and is shown with the row."""
    store = foreign(
        f"CREATE TABLE mail_queue ({NAMES}, 'odd \"name' BLOB DEFAULT x'00ff')",
    )
    store.enqueue(7, ["user"])
    (task,) = store.take(NOW, "me", 1)
    store.swap(task, verbs.bury(task, "no", 1))
    for state in (State.HELD, State.DEAD, State.TRASH, State.PENDING):
        task = tasks_in(store)["7-user"]
        store.swap(task, replace(task, state=state))

    data = store.read(tasks_in(store)["7-user"])

    assert b'"hex": "00ff"' in data
    assert b'odd \\"name' in data


@pytest.mark.parametrize(
    ("zone", "written"),
    [("UTC", "2026-11-20 10:25:00"), ("Europe/Berlin", "2026-11-20 11:25:00")],
)
@pytest.mark.parametrize("filled", [True, False])
def test_times_may_be_text(
    foreign: Callable[..., ZgbStore], zone: str, written: str, filled: bool
) -> None:
    """By what stands there, else by what the column was declared as; written back alike, in the
    zone that was set.
    """
    row = "INSERT INTO mail_queue (registration_number, mail_type, next_attempt_at, attempts,"
    row += " status) VALUES (8, 'user', '2026-01-01 00:00:00', 0, 'pending')"
    declared = NAMES.replace("pt_at", "pt_at DATETIME").replace("until", "until DATETIME")
    store = foreign(
        f"CREATE TABLE mail_queue ({NAMES if filled else declared}, created_at TEXT)",
        *([row] if filled else []),
        zone=zone,
    )
    store.enqueue(7, ["user"])
    tokens = "INSERT INTO config VALUES ('mailTokens', '5'), ('mailLastRefill', '1795170000')"
    with closing(sqlite3.connect(store.place.path)) as db, db:
        db.execute(tokens)

    taken = {task.id: task for task in store.take(NOW, "me", 9)}
    task = taken["7-user"]
    store.swap(task, verbs.nack(task, NOW + 300, "no"))

    assert set(taken) == ({"7-user", "8-user"} if filled else {"7-user"})
    assert tasks_in(store)["7-user"].due == NOW + 300
    assert tasks_in(store)["7-user"].created == NOW
    with closing(sqlite3.connect(store.place.path)) as db:
        select = "SELECT next_attempt_at FROM mail_queue WHERE registration_number = 7"
        assert db.execute(select).fetchone() == (written,)
    assert list(store.take(NOW + 299, "me", 9)) == []
    assert [t.id for t in store.take(NOW + 301, "me", 9) if t.id == "7-user"] == ["7-user"]


SET_BACK = 1_792_890_000.0  # 2026-10-25 01:00:00 UTC: in Berlin it is 3 o'clock, and then 2 again


def test_a_lease_outlives_the_end_of_summer_time(foreign: Callable[..., ZgbStore]) -> None:
    """Times as text in a zone whose clock is set back: what was claimed or failed just before is
    neither over nor due at once, though its time has been on the clock already.
    """
    store = foreign(f"CREATE TABLE mail_queue ({NAMES})", zone="Europe/Berlin", registrations="")
    with closing(sqlite3.connect(store.place.path)) as db, db:
        db.executescript(
            "INSERT INTO mail_queue VALUES"
            " (7, 'user', 'pending', 0, '2026-01-01 00:00:00', '', NULL),"
            " (8, 'user', 'pending', 0, '2026-01-01 00:00:00', '', NULL);"
            "UPDATE mail_queue SET locked_until = '2026-01-01 00:00:00';"
            "INSERT INTO config VALUES ('mailTokens', '5'), ('mailLastRefill', '0');"
        )
    with closing(ZgbStore(store.place, lambda: SET_BACK - 60)) as store:
        sending, failing = store.take(SET_BACK - 60, "me", 9)
        store.swap(failing, verbs.nack(failing, SET_BACK + 240, "no"))

        for later in (-59, -1, 1, 200):
            assert list(store.take(SET_BACK + later, "they", 9)) == []
            assert store.kept.recovered == ()
        store.swap(sending, None)
        taken = [t.id for t in store.take(SET_BACK + 3600, "me", 9)]
    assert taken == [failing.id]


def test_a_clock_that_was_set_back_counts_on() -> None:
    """Once it has been set back, times are as they are shown; so are those that are past."""
    berlin = Form(True, zone_of("Europe/Berlin"))

    assert berlin.write(SET_BACK + 240, SET_BACK + 60) == "2026-10-25 02:04:00"
    assert berlin.write(SET_BACK + 240, SET_BACK - 60) == "2026-10-25 03:00:00"
    assert berlin.write(SET_BACK + 240) == "2026-10-25 02:04:00"
    assert berlin.write(SET_BACK - 1, SET_BACK - 60) == "2026-10-25 02:59:59"
    assert berlin.write(SET_BACK + 3600, SET_BACK - 60) == "2026-10-25 03:00:00"


def test_a_parked_job_is_the_same_in_every_zone() -> None:
    """The last second of 9999 is written as itself, and read as parked."""
    for zone in ("UTC", "Europe/Berlin", "America/New_York"):
        form = Form(True, zone_of(zone))

        assert form.write(PARKED) == "9999-12-31 23:59:59"
        assert read("9999-12-31 23:59:59", form.zone) == PARKED


def test_what_is_no_time_says_so() -> None:
    """A value that no moment can be read from is refused, in words."""
    for value in ("soon", "", b"5", None, -1, "2026-13-01 00:00:00", 1e300, "12h"):
        with naming(value), pytest.raises(ValueError, match=r"no time|month"):
            read(value, UTC)


def test_an_unknown_zone_is_said(foreign: Callable[..., ZgbStore]) -> None:
    """A zone that this machine does not know opens nothing."""
    with pytest.raises(Unavailable, match="no time zone 'Middle/Earth'"):
        foreign(f"CREATE TABLE mail_queue ({NAMES})", zone="Middle/Earth")


def test_two_rows_of_one_mail_are_a_problem(foreign: Callable[..., ZgbStore]) -> None:
    """Without the unique index one mail may stand twice: both are shown, and that it is so."""
    row = "INSERT INTO mail_queue VALUES (7, 'user', 'pending', {}, 0, NULL, NULL)"
    store = foreign(f"CREATE TABLE mail_queue ({NAMES})", row.format(0), row.format(1))

    assert problems_in(store)["7-user"] == "stands 2 times among theirs: an index is missing"
    seen = [item for item in store.look({"7-user"}) if isinstance(item, Task)]
    assert [task.attempts for task in seen] == [0, 1]
    store.swap(seen[1], verbs.purge(seen[1], NOW))
    assert tasks_in(store)["7-user"].state is State.TRASH


# ---- opening and making


def test_a_new_one_is_whole_and_off(tmp_path: Path) -> None:
    """What was made can be opened, sends nothing until it is told to, and is never made over."""
    path = str(tmp_path / "100% new?#.db")
    create(path)

    with closing(open_store(path, lambda: NOW)) as store:
        assert isinstance(store, ZgbStore)
        assert list(store.look()) == []
        assert list(store.take(NOW, "me", 9)) == []
    with pytest.raises(FileExistsError):
        create(path)


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("DROP TABLE mail_queue", "no mail queue in it, expected a table mail_queue"),
        ("DROP TABLE config", "no mail queue in it, expected a table config"),
        (
            "ALTER TABLE mail_queue RENAME COLUMN locked_until TO until",
            "the table mail_queue lacks locked_until",
        ),
        ("ALTER TABLE config RENAME COLUMN value TO text", "the table config lacks value"),
    ],
)
def test_a_missing_table_or_column_is_said(
    place: Place, open_queue: Opener, sql: Sql, statement: str, said: str
) -> None:
    """A database that is no mail queue is not opened; an open one that is none any more says so."""
    store = open_queue()
    sql(statement)

    with pytest.raises(Unavailable, match=said):
        open_store(place.path)
    with pytest.raises(Unavailable):
        list(store.look())
        list(store.take(NOW, "me", 1))


def test_a_column_that_comes_later_harms_nobody(open_queue: Opener, sql: Sql) -> None:
    """Their own migration, while we have it open: its columns stay as they are."""
    store = open_queue()
    store.enqueue(1001, ["user"])
    sql("ALTER TABLE mail_queue ADD COLUMN later TEXT DEFAULT 'x'")

    task = tasks_in(store)[USER]
    store.swap(task, replace(task, due=NOW + 5))

    assert sql("SELECT later, next_attempt_at FROM mail_queue") == [("x", NOW + 5)]


@pytest.mark.parametrize("data", [b"", b"nothing at all\n" * 100])
def test_another_file_is_no_mail_queue(tmp_path: Path, data: bytes) -> None:
    """An empty or a foreign file is neither opened nor changed."""
    path = tmp_path / "file"
    path.write_bytes(data)

    with pytest.raises(Unavailable):
        open_store(str(path))
    with pytest.raises(Unavailable):
        ZgbStore(Place(str(path)))

    assert path.read_bytes() == data


def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    """No file is made by opening it."""
    with pytest.raises(Unavailable, match="no such file"):
        ZgbStore(Place(str(tmp_path / "none.db")))

    assert list(tmp_path.iterdir()) == []


def test_a_damaged_file_is_said_to_be(place: Place, open_queue: Opener) -> None:
    """A page that is overwritten is damage in words, and nothing is changed."""
    store = open_queue()
    for number in range(1000, 1300):
        store.enqueue(number, ["user"])
    store.close()
    data = bytearray(Path(place.path).read_bytes())
    for page in range(2, len(data) // 4096):
        data[page * 4096 : page * 4096 + 16] = b"\xff" * 16
    Path(place.path).write_bytes(data)

    with pytest.raises(Unavailable, match="damaged"):
        list(open_queue().look())

    assert Path(place.path).read_bytes() == data


# ---- rows that are none


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [
        ("status", "sent", "status is 'sent', expected one of pending, sending, failed"),
        ("mail_type", "orga", "mail_type is 'orga', expected user or organizer"),
        ("attempts", -1, "attempts is -1, expected a whole number from 0 on"),
        ("attempts", "few", "attempts is 'few', expected a whole number from 0 on"),
        ("attempts", 1.5, "attempts is 1.5, expected a whole number from 0 on"),
        ("next_attempt_at", "soon", "next_attempt_at: no time: 'soon'"),
        ("next_attempt_at", -5, "next_attempt_at: no time that could be meant: -5"),
        ("next_attempt_at", "2026-01-01 00:00:00", "expected a number like the other rows"),
        ("locked_until", "later", "locked_until: no time"),
        ("registration_number", -7, "registration_number is -7"),
        ("registration_number", "007", "registration_number is '007'"),
        ("registration_number", None, "registration_number is None"),
        ("created_at", "dawn", "created_at: no time"),
    ],
)
def test_a_row_that_is_no_job_is_a_problem(
    foreign: Callable[..., ZgbStore], column: str, value: object, said: str
) -> None:
    """It is shown with its row and what was expected, also in a scan of pending jobs; it is never
    claimed, and hinders no other."""
    row = "INSERT INTO mail_queue VALUES ({}, 'user', 'pending', 0, 5, NULL, NULL, 5)"
    store = foreign(
        f"CREATE TABLE mail_queue ({NAMES}, created_at)",
        row.format(7),
        row.format(8),
        registrations="",
    )
    with closing(sqlite3.connect(store.place.path)) as db, db:
        db.execute(f"UPDATE mail_queue SET {column} = ? WHERE rowid = 1", (value,))

    assert said in problems_in(store)["mail_queue/row 1"]
    assert [i.where for i in store.look({"pending"}) if isinstance(i, Problem)] == [
        "mail_queue/row 1"
    ]
    (again,) = store.look({"row 1"})
    assert isinstance(again, Problem)
    assert column.encode() in store.glimpse(again)
    assert list(tasks_in(store)) == ["8-user"]
    assert [task.id for task in store.take(NOW, "me", 9)] == ["8-user"]


@pytest.mark.parametrize(
    ("declared", "usual", "stray"),
    [
        ("INTEGER", 1_795_000_000, "2026-11-23 00:00:00"),
        ("INTEGER", 0, "2026-11-23 00:00:00"),
        ("", 1_795_000_000, "2026-11-23 00:00:00"),
        ("TEXT", "2026-11-20 00:00:00", "soon"),
        ("DATETIME", "2026-11-20 00:00:00", 1_795_000_000),
    ],
)
def test_a_stray_row_decides_for_itself_alone(
    foreign: Callable[..., ZgbStore], declared: str, usual: object, stray: object
) -> None:
    """How a column's times are written is told by most of its rows: one that is not like them, be
    it the first, is a problem, and every other job is claimed.
    """
    store = rows_of(foreign, declared, [stray, *[usual] * 9])

    assert list(problems_in(store)) == ["mail_queue/row 1"]
    assert len(tasks_in(store)) == 9
    assert [task.id for task in store.take(NOW, "me", 9)] == [f"{n}-user" for n in range(2, 7)]


def test_no_time_yet_is_due_at_once_however_times_are_written(
    foreign: Callable[..., ZgbStore],
) -> None:
    """New jobs stand at 0 by the column's default, where a failed one has its time as text: all of
    them are jobs, and are claimed.
    """
    store = rows_of(foreign, "DATETIME DEFAULT 0", ["2026-11-20 00:00:00", *[0] * 3])

    assert not problems_in(store)
    assert store.backlog(NOW).due == 4
    assert [task.id for task in store.take(NOW, "me", 9)] == [
        *("2-user", "3-user", "4-user", "1-user")
    ]


def test_as_many_of_either_go_by_the_declared_type(foreign: Callable[..., ZgbStore]) -> None:
    """Where rows do not say how times are written, the column does."""
    store = rows_of(foreign, "DATETIME", [1_795_000_000, "2026-11-20 00:00:00", 0, 0])

    assert list(problems_in(store)) == ["mail_queue/row 1"]


def test_a_stray_time_wakes_nobody(foreign: Callable[..., ZgbStore]) -> None:
    """A row that is no job is not waited for: a worker would come again at once, for ever."""
    later = [int(NOW) + 90, int(NOW) + 95]
    store = rows_of(foreign, "", ["2026-01-01 00:00:00", *later])

    assert list(store.take(NOW, "me", 9)) == []
    assert store.doorbell.due == NOW + 90


def rows_of(foreign: Callable[..., ZgbStore], declared: str, moments: list[Any]) -> ZgbStore:
    """A queue of pending jobs 1, 2, 3 ... that are due then, with tokens for five of them."""
    made = NAMES.replace("next_attempt_at", f"next_attempt_at {declared}")
    rows = [f"({n}, 'user', 'pending', 0, {at!r}, NULL, NULL)" for n, at in enumerate(moments, 1)]
    return foreign(
        f"CREATE TABLE mail_queue ({made})",
        f"INSERT INTO mail_queue ({NAMES}) VALUES {', '.join(rows)}",
        f"INSERT INTO config VALUES ('mailTokens', '5'), ('mailLastRefill', '{NOW:.0f}')",
        registrations="",
    )


def test_a_hostile_text_is_made_safe(open_queue: Opener, sql: Sql) -> None:
    """Control characters and broken UTF-8 in an error are shown as what nobody can act on."""
    store = open_queue()
    store.enqueue(1001, ["user"])
    sql("UPDATE mail_queue SET last_error = CAST(? AS TEXT)", b"\x1b]0;x\x07 caf\xe9\n")

    task = tasks_in(store)[USER]
    store.read(task)
    store.swap(task, verbs.hold(task, NOW))

    assert tasks_in(store)[USER].error.isprintable()


def test_an_error_is_cut(open_queue: Opener, sql: Sql) -> None:
    """Of an error 500 characters are kept."""
    store = open_queue()
    store.enqueue(1001, ["user"])
    (task,) = store.take(NOW, "me", 1)

    store.swap(task, verbs.nack(task, NOW + 60, "x" * 9000))

    assert sql("SELECT length(last_error) FROM mail_queue") == [(500,)]


def test_a_rule_of_theirs_is_heeded(open_queue: Opener, sql: Sql) -> None:
    """What a trigger of theirs forbids is refused in its words; the others of a lot are done."""
    store = open_queue()
    store.enqueue(1001)
    sql(
        "CREATE TRIGGER keep BEFORE DELETE ON mail_queue WHEN old.mail_type = 'user'"
        " BEGIN SELECT RAISE(ABORT, 'users stay'); END"
    )
    outcomes = [*store.swap_all(Move(t, verbs.hold(t, NOW)) for t in tasks_in(store).values())]

    assert {o.move.old.id: str(o.error or "") for o in outcomes if o.move.old} == {
        USER: f"{store.place.path}: the database refuses it: users stay",
        "1001-organizer": "",
    }
    assert {i: t.state for i, t in tasks_in(store).items()} == {
        USER: State.PENDING,
        "1001-organizer": State.HELD,
    }


def test_a_rule_that_undoes_everything_is_heeded(open_queue: Opener, sql: Sql) -> None:
    """A trigger that ends the transaction leaves nothing of a lot done, and each is told so."""
    store = open_queue()
    store.enqueue(1001)
    sql(
        "CREATE TRIGGER keep BEFORE UPDATE ON mail_queue WHEN old.mail_type = 'user'"
        " BEGIN SELECT RAISE(ROLLBACK, 'users stay'); END"
    )
    before = tasks_in(store)

    later = [Move(task, replace(task, due=NOW + 5)) for task in before.values()]
    outcomes = list(store.swap_all(later))

    assert [type(outcome.error) for outcome in outcomes] == [Unavailable] * 2
    assert tasks_in(store) == before


# ---- others at the same time


LOCKER = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute(sys.argv[2])
print("locked", flush=True)
sys.stdin.readline()
"""


@contextmanager
def locked(path: str, how: str) -> Iterator[None]:
    """The database while another process has it locked."""
    locker = subprocess.Popen(
        [sys.executable, "-c", LOCKER, path, how],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert locker.stdout is not None
    assert locker.stdout.readline() == "locked\n"
    try:
        yield
    finally:
        locker.communicate("go\n", timeout=60)


def test_who_waits_too_long_says_so(place: Place, open_queue: Opener) -> None:
    """A lock that is not given up within our patience is said, and nothing has happened."""
    store = open_queue(patience=0.05)
    store.enqueue(1001, ["user"])
    task = tasks_in(store)[USER]

    with locked(place.path, "BEGIN EXCLUSIVE"):
        for act in (
            lambda: store.swap(task, verbs.hold(task, NOW)),
            lambda: next(store.take(NOW, "me", 1)),
            lambda: list(store.look()),
            lambda: store.control("mailQueueEnabled", value="0"),
            lambda: store.enqueue(1002),
        ):
            with pytest.raises(Unavailable, match=r"locked by another process for 0\.05 s"):
                act()

    assert tasks_in(store) == {USER: task}
    store.swap(task, verbs.hold(task, NOW))


def test_a_reader_hinders_no_writer(place: Place, open_queue: Opener, sql: Sql) -> None:
    """Half-way through a look, everybody may write: no transaction is left open."""
    store = open_queue()
    for number in range(1000, 1010):
        store.enqueue(number)

    looking = store.look()
    next(looking)
    with closing(sqlite3.connect(place.path, timeout=0)) as db, db:
        db.execute("UPDATE mail_queue SET attempts = 1")
    rest = [item for item in looking if isinstance(item, Task)]

    assert rest[-1].attempts == 1


DEAD_WRITER = """
import os, sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("PRAGMA journal_mode = WAL")
db.execute("INSERT INTO mail_queue (registration_number, mail_type) VALUES (1002, 'user')")
db.execute("BEGIN IMMEDIATE")
db.execute("DELETE FROM mail_queue")
os._exit(1)
"""


@pytest.mark.parametrize("read_only", [False, True])
def test_the_log_of_a_dead_writer_is_read(
    place: Place, open_queue: Opener, read_only: bool
) -> None:
    """What it had committed is there, what it had not is not, and work goes on."""
    open_queue().enqueue(1001, ["user"])
    subprocess.run([sys.executable, "-c", DEAD_WRITER, place.path], check=False)
    assert Path(f"{place.path}-wal").exists()

    store = open_queue(read_only=read_only)

    assert set(tasks_in(store)) == {USER, "1002-user"}
    if not read_only:
        assert len(list(store.take(NOW, "me", 9))) == 2


def test_a_file_in_its_place_is_the_queue(place: Place, open_queue: Opener, tmp_path: Path) -> None:
    """Another database under the same path is looked at, worked on and heard; none is said."""
    store = open_queue()
    store.enqueue(1001, ["user"])
    old = tasks_in(store)[USER]
    wait = store.doorbell.wait
    assert wait is not None
    wait(0.0)
    other = str(tmp_path / "other.db")
    create(other)
    Path(other).replace(place.path)

    assert USER in (wait(0.0) or ())
    assert tasks_in(store) == {}
    with pytest.raises(Gone):
        store.swap(old, verbs.hold(old, NOW))
    Path(place.path).write_bytes(b"")
    Path(place.path).unlink()
    with pytest.raises(Unavailable, match="no such file"):
        list(store.look())
    with pytest.raises(Unavailable, match="no such file"):
        wait(0.0)


def test_a_file_that_is_no_queue_in_its_place(place: Place, open_queue: Opener) -> None:
    """A queue that was replaced by something else is unavailable, until it is back."""
    store = open_queue()
    store.enqueue(1001, ["user"])
    kept = Path(place.path).rename(f"{place.path}.kept")
    with closing(sqlite3.connect(place.path)) as db, db:
        db.execute("CREATE TABLE other (x)")

    with pytest.raises(Unavailable, match="no mail queue"):
        list(store.look())

    kept.replace(place.path)
    assert set(tasks_in(store)) == {USER}


# ---- our own file


@pytest.mark.parametrize("kind", ["link", "folder"])
def test_only_a_plain_file_is_ours(open_queue: Opener, place: Place, kind: str) -> None:
    """What lies where our database should be is neither followed nor written."""
    store = open_queue()
    store.enqueue(1001, ["user"])
    task = tasks_in(store)[USER]
    if kind == "link":
        Path(place.aside).symlink_to("/etc/passwd")
    else:
        Path(place.aside).mkdir()

    for act in (lambda: store.swap(task, verbs.hold(task, NOW)), lambda: list(store.look())):
        with pytest.raises(Unavailable, match="expected a plain file of ours"):
            act()


def test_a_newer_one_of_ours_is_left_alone(open_queue: Opener, place: Place) -> None:
    """Our database, made by a later version, is not read as what it is not."""
    with closing(sqlite3.connect(place.aside)) as db, db:
        db.execute("PRAGMA user_version = 99")

    with pytest.raises(Unavailable, match="newer spooldeck"):
        list(open_queue().look())


def test_one_that_was_only_begun_is_made(open_queue: Opener, place: Place) -> None:
    """An empty file of ours, left by a process that died, is no obstacle."""
    Path(place.aside).write_bytes(b"")
    store = open_queue()
    store.enqueue(1001, ["user"])
    task = tasks_in(store)[USER]

    store.swap(task, verbs.hold(task, NOW))

    assert tasks_in(store)[USER].state is State.HELD
    assert list(store.look({"1001-organizer"})) == [Missing("1001-organizer")]


def test_their_settings_may_be_put_back(open_queue: Opener, sql: Sql) -> None:
    """What was put aside stays there when somebody restores their settings from before."""
    store = open_queue()
    store.enqueue(1001)
    for task in tasks_in(store).values():
        store.swap(task, verbs.hold(task, NOW))
    sql("DELETE FROM config WHERE key = 'spooldeckMove'")

    assert {task.state for task in tasks_in(open_queue()).values()} == {State.HELD}
    task = tasks_in(store)[USER]
    store.swap(task, verbs.release(task, NOW))
    assert tasks_in(store)[USER].state is State.PENDING


def test_a_folder_of_ours_beside_it_harms_nothing(place: Place, open_queue: Opener) -> None:
    """What we keep in a folder beside the database, and what is held and in the trash in our own
    file, do not meet."""
    desk = Path(f"{place.path}.spooldeck.d")
    (desk / "journal").mkdir(parents=True)
    (desk / "log").mkdir()
    (desk / "log" / "queue.log").write_text("ours")
    store = open_queue()
    store.enqueue(1001, ["user"])

    (task,) = (item for item in store.look({"1001-user"}) if isinstance(item, Task))
    store.swap(task, verbs.purge(task, NOW))

    assert tasks_in(store)["1001-user"].state is State.TRASH
    assert problems_in(store) == {}
    assert (desk / "log" / "queue.log").read_text() == "ours"
    assert {p.name for p in desk.parent.glob("zgb.db*")} == {
        *("zgb.db", "zgb.db.spooldeck", "zgb.db.spooldeck.d")
    }
