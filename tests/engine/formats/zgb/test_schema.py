"""Databases of other programs: how they may be built, and what is reported as wrong."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from datetime import UTC
from pathlib import Path
from typing import Any

import pytest

from engine import verbs
from engine.formats.zgb.place import (
    PARKED_DUE_SECONDS,
    TimeFormat,
    ZgbDatabase,
    load_zone,
    parse_time,
)
from engine.formats.zgb.schema import create
from engine.formats.zgb.store import ZgbStore
from engine.model import Missing, Move, Problem, State, Task
from engine.store import Gone, Unavailable, Unsupported
from tests.open_store import open_store
from tests.rival_processes import running
from tests.store_contents import naming, problems_in, tasks_in
from tests.zgb import NOW, ORGANIZER, USER, Opener, Sql, change, fail, sql_in, taken, there

Builder = Opener

NAMES = (
    "registration_number, mail_type, status, attempts, next_attempt_at, locked_until, last_error"
)
QUEUE = f"CREATE TABLE mail_queue ({NAMES})"


@pytest.fixture
def build_foreign(tmp_path: Path) -> Iterator[Builder]:
    """Open a database that another program built, by the statements given."""
    path = tmp_path / "foreign.db"
    with ExitStack() as opened:

        def build(*statements: str, **settings: Any) -> ZgbStore:
            path.unlink(missing_ok=True)
            for statement in (
                "CREATE TABLE config (key TEXT, value TEXT)",
                "CREATE TABLE registrations (number INTEGER)",
                "INSERT INTO registrations VALUES (7), (8), (1001)",
                "INSERT INTO config VALUES ('mailQueueEnabled', '1')",
                *statements,
            ):
                sql_in(path, statement)
            place = ZgbDatabase(str(path), durable=False, **settings)
            return opened.enter_context(closing(ZgbStore(place, lambda: NOW)))

        yield build


def test_the_documented_columns_are_enough(build_foreign: Builder) -> None:
    """Without an id, times of making or change, or an index, jobs go through every state."""
    store = build_foreign(QUEUE)
    for is_new in (True, False):
        assert [one.is_new for one in store.enqueue(7)] == [is_new] * 2
    fail(store, due=NOW + 60)  # a bucket that is new has one token
    for state in (State.HELD, State.TRASH, State.PENDING):
        change(store, "7-user", state=state)
    (task,) = store.take(NOW + 90, "me", 9)
    assert task.id == "7-organizer"
    store.swap(task, None)
    assert {i: (t.attempts, t.error) for i, t in tasks_in(store).items()} == {"7-user": (1, "no")}


def test_a_table_without_rowids_goes_by_its_id(build_foreign: Builder) -> None:
    """Without rowids a job is held and released by its id; without an id the table is refused."""
    store = build_foreign(
        f"CREATE TABLE mail_queue (id INTEGER PRIMARY KEY, {NAMES}) WITHOUT ROWID",
        "INSERT INTO mail_queue VALUES (5, 7, 'user', 'pending', 0, 0, NULL, NULL)",
    )
    task = there(store, "7-user")
    change(store, "7-user", state=State.HELD)
    assert change(store, "7-user", state=State.PENDING).rev == task.rev
    key = ", PRIMARY KEY (registration_number, mail_type)) WITHOUT ROWID"
    with pytest.raises(Unavailable, match="neither a rowid nor an id"):
        build_foreign(f"CREATE TABLE mail_queue ({NAMES}{key}")


def test_foreign_columns_are_kept(build_foreign: Builder) -> None:
    """An undocumented column, also one that is added meanwhile, is shown and never changed."""
    store = build_foreign(f"CREATE TABLE mail_queue ({NAMES}, 'odd \"name' BLOB DEFAULT x'00ff')")
    store.enqueue(7, ["user"])
    sql_in(store.place.path, "ALTER TABLE mail_queue ADD COLUMN later TEXT DEFAULT 'x'")
    sql_in(store.place.path, "UPDATE mail_queue SET later = 'y'")
    fail(store)
    for state in (State.HELD, State.DEAD, State.TRASH, State.PENDING):
        task = change(store, "7-user", state=state)
    data = store.read(task)
    assert b'"hex": "00ff"' in data and b'odd \\"name' in data
    assert sql_in(store.place.path, "SELECT later FROM mail_queue") == [("y",)]


def test_a_large_foreign_value_stops_nothing(build_foreign: Builder) -> None:
    """A row with a value of another program of any size is listed, claimed, sent and retried, as
    are the rows after it; only a move that would have to copy the value is refused. A registration
    is read without such a value."""
    store = build_foreign(QUEUE)
    store.enqueue(7, ["user", "organizer"])
    path = store.place.path
    for table, column in (("mail_queue", "pdf"), ("registrations", "photo")):
        sql_in(path, f"ALTER TABLE {table} ADD COLUMN {column} BLOB")
        which = "WHERE mail_type = 'user'" if table == "mail_queue" else ""
        sql_in(path, f"UPDATE {table} SET {column} = zeroblob(20000000) {which}")
    first, second = *store.take(NOW, "me", 1), *store.take(NOW + 90, "me", 1)
    claim = store.describe_claim(first, NOW)
    assert (claim.registration["number"], "photo" in claim.registration) == (7, False)
    assert not problems_in(store)
    store.swap(first, verbs.give_up_task(first, "no", 1))
    store.swap(second, None)
    assert b"pdf" not in store.read(there(store, "7-user"))
    with pytest.raises(Unsupported, match="its pdf is too large to be kept"):
        change(store, "7-user", state=State.HELD)
    change(store, "7-user", state=State.PENDING, attempts=0, due=NOW)
    select = "SELECT length(pdf), status FROM mail_queue"
    assert sql_in(path, select) == [(20_000_000, "pending")]


def test_times_may_be_text(build_foreign: Builder) -> None:
    """The form of times is that of the rows, else of the declared type, also as written."""
    row = "INSERT INTO mail_queue (registration_number, mail_type, next_attempt_at, attempts,"
    row += " status) VALUES (8, 'user', '2026-01-01 00:00:00', 0, 'pending')"
    declared = NAMES.replace("pt_at", "pt_at DATETIME").replace("until", "until DATETIME")
    times = {"UTC": "2026-11-20 10:25:00", "Europe/Berlin": "2026-11-20 11:25:00"}
    for zone, filled in ((zone, filled) for zone in times for filled in (True, False)):
        store = build_foreign(
            f"CREATE TABLE mail_queue ({NAMES if filled else declared}, created_at TEXT)",
            *([row] if filled else []),
            "INSERT INTO config VALUES ('mailTokens', '5'), ('mailLastRefill', '1795170000')",
            zone=zone,
        )
        store.enqueue(7, ["user"])
        claimed = {task.id: task for task in store.take(NOW, "me", 9)}
        store.swap(claimed["7-user"], verbs.nack(claimed["7-user"], NOW + 300, "no"))
        assert set(claimed) == ({"7-user", "8-user"} if filled else {"7-user"})
        assert (there(store, "7-user").due, there(store, "7-user").created) == (NOW + 300, NOW)
        select = "SELECT next_attempt_at FROM mail_queue WHERE registration_number = 7"
        assert sql_in(store.place.path, select) == [(times[zone],)]
        assert (taken(store, NOW + 299), "7-user" in taken(store, NOW + 301)) == ([], True)


SET_BACK = 1_792_890_000.0  # 2026-10-25 01:00:00 UTC: in Berlin it is 3 o'clock, and then 2 again


def test_a_lease_outlives_the_end_of_summer_time(build_foreign: Builder) -> None:
    """Times as text in a zone whose clock is set back: what was claimed or failed just before is
    neither over nor due at once, though its time has been on the clock already."""
    rows = "({}, 'user', 'pending', 0, '2026-01-01 00:00:00', '2026-01-01 00:00:00', NULL)"
    place = build_foreign(
        QUEUE,
        f"INSERT INTO mail_queue VALUES {rows.format(7)}, {rows.format(8)}",
        "INSERT INTO config VALUES ('mailTokens', '5'), ('mailLastRefill', '0')",
        zone="Europe/Berlin",
        registrations="",
    ).place
    with closing(ZgbStore(place, lambda: SET_BACK - 60)) as store:
        sending, failing = store.take(SET_BACK - 60, "me", 9)
        store.swap(failing, verbs.nack(failing, SET_BACK + 240, "no"))
        for later in (-59, -1, 1, 200):
            assert (taken(store, SET_BACK + later), store.claim_report.recovered) == ([], ())
        store.swap(sending, None)
        assert taken(store, SET_BACK + 3600) == [failing.id]


def test_times_as_text_are_written_by_their_zone() -> None:
    """Before a clock is set back a time counts on; what is no time is refused."""
    berlin = TimeFormat(True, load_zone("Europe/Berlin"))
    for at, nows, text in (
        (240, [60], "02:04:00"),
        (240, [-60], "03:00:00"),
        (240, [], "02:04:00"),
        (-1, [-60], "02:59:59"),
        (3600, [-60], "03:00:00"),
    ):
        moments = (SET_BACK + now for now in nows)
        assert berlin.format(SET_BACK + at, *moments) == f"2026-10-25 {text}"
    for zone in ("UTC", "Europe/Berlin", "America/New_York"):
        form = TimeFormat(True, load_zone(zone))
        assert form.format(PARKED_DUE_SECONDS) == "9999-12-31 23:59:59"
        assert parse_time("9999-12-31 23:59:59", form.zone) == PARKED_DUE_SECONDS
    for value in ("soon", "", b"5", None, -1, "2026-13-01 00:00:00", 1e300, "12h"):
        with naming(value), pytest.raises(ValueError, match=r"not a (plausible )?time|month"):
            parse_time(value, UTC)


def test_two_rows_of_one_mail_are_a_problem(build_foreign: Builder) -> None:
    """Without a unique index both rows of a mail are shown, with the problem."""
    row = "INSERT INTO mail_queue VALUES (7, 'user', 'pending', {}, 0, NULL, NULL)"
    store = build_foreign(QUEUE, row.format(0), row.format("'1'"))
    assert problems_in(store)["7-user"] == "2 rows in mail_queue: the unique index is missing"
    tasks = [item for item in store.scan({"7-user"}) if isinstance(item, Task)]
    assert [task.attempts for task in tasks] == [0, 1]
    store.swap(tasks[1], verbs.purge(tasks[1], NOW))
    assert tasks_in(store)["7-user"].state is State.TRASH


def test_a_new_queue_is_whole_and_off(tmp_path: Path) -> None:
    """A new queue opens under any name, sends nothing until switched on, and is made only once."""
    path = str(tmp_path / "100% new?#.db")
    create(path)
    with closing(open_store(path, lambda: NOW)) as store:
        assert isinstance(store, ZgbStore) and (list(store.scan()), taken(store)) == ([], [])
    with pytest.raises(FileExistsError):
        create(path)


def test_an_empty_file_that_others_may_write_is_no_new_queue(tmp_path: Path) -> None:
    """Only an empty file of the folder's owner, as a killed process leaves it, is filled."""
    path = tmp_path / "zgb.db"
    path.touch()
    path.chmod(0o666)
    with pytest.raises(FileExistsError):
        create(str(path))
    path.chmod(0o600)
    create(str(path))
    assert path.stat().st_size


ENDLESS = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x FROM n"
ORDINARY = "expected an ordinary table"


@pytest.mark.parametrize(
    ("statements", "message"),
    [
        ("DROP TABLE mail_queue", "no mail queue, expected a table mail_queue"),
        ("DROP TABLE config", "no mail queue, expected a table config"),
        ("ALTER TABLE mail_queue RENAME locked_until TO until", "mail_queue lacks locked_until"),
        ("ALTER TABLE config RENAME value TO text", "the table config lacks value"),
        # What would run code to be read.
        *(
            (f"DROP TABLE {name}; CREATE VIEW {name} AS {ENDLESS}", f"{name} is a view, {ORDINARY}")
            for name in ("mail_queue", "Config", "registrations")
        ),
        (
            "DROP TABLE mail_queue; CREATE VIRTUAL TABLE mail_queue USING fts5(status)",
            f"mail_queue is a virtual table, {ORDINARY}",
        ),
    ],
)
def test_only_ordinary_tables_with_all_columns_are_opened(
    place: ZgbDatabase, open_queue: Opener, sql: Sql, statements: str, message: str
) -> None:
    """A database that is no mail queue is not opened; an open one that is none any more says so."""
    store = open_queue()
    for statement in statements.split("; "):
        sql(statement)
    with pytest.raises(Unavailable, match=f"(?i){message}"):
        ZgbStore(place)
    with pytest.raises(Unavailable):
        list(store.scan())
        list(store.take(NOW, "me", 1))


def test_only_a_queue_is_opened(tmp_path: Path, build_foreign: Builder, open_queue: Opener) -> None:
    """An empty, foreign, missing or damaged file is neither opened nor changed."""
    path = tmp_path / "file"
    with pytest.raises(Unavailable, match="no such file"):
        ZgbStore(ZgbDatabase(str(path)))
    assert not path.exists()
    for data in (b"", b"nothing at all\n" * 100):
        path.write_bytes(data)
        for opener in (open_store, lambda name: ZgbStore(ZgbDatabase(name))):
            with pytest.raises(Unavailable):
                opener(str(path))
        assert path.read_bytes() == data
    with pytest.raises(Unavailable, match="no time zone 'Middle/Earth'"):
        build_foreign(QUEUE, zone="Middle/Earth")
    with closing(open_queue()) as store:
        for number in range(1000, 1300):
            store.enqueue(number, ["user"])
    path = Path(store.place.path)
    pages = bytearray(path.read_bytes())
    for page in range(2, len(pages) // 4096):
        pages[page * 4096 : page * 4096 + 16] = b"\xff" * 16
    path.write_bytes(pages)
    with pytest.raises(Unavailable, match="damaged"):
        list(open_queue().scan())
    assert path.read_bytes() == pages


def test_a_row_that_is_no_job_is_a_problem(build_foreign: Builder) -> None:
    """It is shown with its row and what was expected, is never claimed, and hinders no other."""
    whole = "expected a whole number of at least 0"
    no_jobs: tuple[tuple[str, dict[object, str]], ...] = (
        ("status", {"sent": "status is 'sent', expected one of pending, sending, failed"}),
        ("mail_type", {"orga": "mail_type is 'orga', expected user or organizer"}),
        ("attempts", {one: f"attempts is {one!r}, {whole}" for one in (-1, "few", 1.5)}),
        ("attempts", {(1 << 63) - 1: "attempts is 9223372036854775807, expected less than"}),
        ("attempts", {1 << 31: "expected less than 2,147,483,648", "9" * 5000: whole}),
        ("next_attempt_at", {"soon": "next_attempt_at: not a time: 'soon'"}),
        ("next_attempt_at", {-5: "next_attempt_at: not a plausible time: -5"}),
        ("next_attempt_at", {"2026-01-01 00:00:00": "expected a number like the other rows"}),
        ("locked_until", {"later": "locked_until: not a time"}),
        ("locked_until", {1 << 60: "locked_until: not a plausible time"}),
        ("registration_number", {n: f"registration_number is {n!r}" for n in (-7, "007", None)}),
        ("created_at", {"dawn": "created_at: not a time"}),
    )
    row = "INSERT INTO mail_queue VALUES ({}, 'user', 'pending', 0, 5, NULL, NULL, 5)"
    table = f"CREATE TABLE mail_queue ({NAMES}, created_at)"
    for column, value, message in (
        (column, value, message) for column, values in no_jobs for value, message in values.items()
    ):
        store = build_foreign(table, row.format(7), row.format(8), registrations="")
        sql_in(store.place.path, f"UPDATE mail_queue SET {column} = ? WHERE rowid = 1", value)
        with naming(column, value):
            assert message in problems_in(store)["mail_queue/row 1"]
            where = [i.where for i in store.scan({"pending"}) if isinstance(i, Problem)]
            assert where == ["mail_queue/row 1"]
            (again,) = store.scan({"row 1"})
            assert isinstance(again, Problem) and column.encode() in store.preview_problem(again)
            assert list(tasks_in(store)) == taken(store) == ["8-user"]
        store.close()


def rows_of(build_foreign: Builder, declared: str, moments: list[Any]) -> ZgbStore:
    """A queue of pending jobs 1, 2, 3 ... that are due then, with tokens for five of them."""
    made = NAMES.replace("next_attempt_at", f"next_attempt_at {declared}")
    rows = [f"({n}, 'user', 'pending', 0, {at!r}, NULL, NULL)" for n, at in enumerate(moments, 1)]
    return build_foreign(
        f"CREATE TABLE mail_queue ({made})",
        f"INSERT INTO mail_queue ({NAMES}) VALUES {', '.join(rows)}",
        f"INSERT INTO config VALUES ('mailTokens', '5'), ('mailLastRefill', '{NOW:.0f}')",
        registrations="",
    )


TEXT_TIME, OTHER_TEXT = "2026-11-20 00:00:00", "2026-11-23 00:00:00"


def test_a_stray_time_is_the_problem_of_its_row(build_foreign: Builder) -> None:
    """The form of a column's times is that of most of its rows, else of its type: a row of another
    form, be it the first, is a problem, and every other job is claimed."""
    rows: tuple[tuple[str, object, list[Any]], ...] = (
        ("INTEGER", OTHER_TEXT, [1_795_000_000] * 9),
        ("INTEGER", OTHER_TEXT, [0] * 9),
        ("", OTHER_TEXT, [1_795_000_000] * 9),
        ("TEXT", "soon", [TEXT_TIME] * 9),
        ("DATETIME", 1_795_000_000, [TEXT_TIME] * 9),
        ("DATETIME", 1_795_000_000, [TEXT_TIME, 0, 0]),  # as many of either: the declared type
    )
    for declared, stray, others in rows:
        store = rows_of(build_foreign, declared, [stray, *others])
        with naming(declared, stray):
            assert list(problems_in(store)) == ["mail_queue/row 1"]
            rest = {f"{n}-user" for n in range(2, len(others) + 2)}
            claimed = taken(store) if set(tasks_in(store)) == rest else []
            assert len(claimed) == min(5, len(rest)) and set(claimed) <= rest


def test_zero_is_due_in_any_form_of_times(build_foreign: Builder) -> None:
    """New jobs have 0 by default where failed ones have their time as text: all are claimed. A row
    that is no job is not waited for: a worker would come again at once, for ever."""
    store = rows_of(build_foreign, "DATETIME DEFAULT 0", [TEXT_TIME, *[0] * 3])
    assert (problems_in(store), store.backlog(NOW).due) == ({}, 4)
    assert taken(store) == ["2-user", "3-user", "4-user", "1-user"]
    store = rows_of(build_foreign, "", ["2026-01-01 00:00:00", int(NOW) + 90, int(NOW) + 95])
    assert (taken(store), store.changes.next_due) == ([], NOW + 90)


def test_an_error_is_made_printable_and_cut(user_job: ZgbStore, sql: Sql) -> None:
    """Controls and broken UTF-8 are made printable; of our errors 500 characters are kept."""
    sql("UPDATE mail_queue SET last_error = CAST(? AS TEXT)", b"\x1b]0;x\x07 caf\xe9\n")
    user_job.read(there(user_job))
    assert change(user_job, state=State.HELD).error.isprintable()
    change(user_job, state=State.PENDING)
    (task,) = user_job.take(NOW, "me", 1)
    user_job.swap(task, verbs.nack(task, NOW + 60, "x" * 9000))
    assert sql("SELECT length(last_error) FROM mail_queue") == [(500,)]


def test_a_trigger_of_theirs_is_heeded(both_jobs: ZgbStore, sql: Sql) -> None:
    """What a trigger forbids is refused in its words, and the others of a lot are done; one that
    ends the transaction leaves nothing of a lot done, and each is refused."""
    store = both_jobs
    rule = "CREATE TRIGGER keep BEFORE {} ON mail_queue WHEN old.mail_type = 'user'"
    rule += " BEGIN SELECT RAISE({}, 'users stay'); END"
    sql(rule.format("UPDATE", "ROLLBACK"))
    before = tasks_in(store)
    outcomes = store.swap_all(Move(one, one._replace(due=NOW + 5)) for one in before.values())
    assert [type(outcome.error) for outcome in outcomes] == [Unavailable] * 2
    assert tasks_in(store) == before
    sql("DROP TRIGGER keep")
    sql(rule.format("DELETE", "ABORT"))
    outcomes = store.swap_all(Move(t, verbs.hold(t, NOW)) for t in tasks_in(store).values())
    errors = {one.move.old.id: str(one.error or "") for one in outcomes if one.move.old}
    rejected = f"{store.place.path}: rejected by the database: users stay"
    assert errors == {USER: rejected, ORGANIZER: ""}
    states = {i: t.state for i, t in tasks_in(store).items()}
    assert states == {USER: State.PENDING, ORGANIZER: State.HELD}


LOCKER = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("BEGIN EXCLUSIVE")
print("ready", flush=True)
sys.stdin.readline()
"""


def test_a_long_lock_is_refused(user_job: ZgbStore, place: ZgbDatabase, open_queue: Opener) -> None:
    """A lock that is not released within our patience is reported, and nothing has changed."""
    store = open_queue(patience=0.05)
    task = there(store)
    with running(LOCKER, place.path):
        for act in (
            lambda: store.swap(task, verbs.hold(task, NOW)),
            lambda: next(store.take(NOW, "me", 1)),
            lambda: list(store.scan()),
            lambda: store.control("mailQueueEnabled", value="0"),
            lambda: store.enqueue(1002),
        ):
            with pytest.raises(Unavailable, match=r"locked by another process for 0\.05 s"):
                act()
    assert tasks_in(store) == {USER: task}
    change(store, state=State.HELD)


def test_a_scan_hinders_no_writer(place: ZgbDatabase, open_queue: Opener) -> None:
    """Half-way through a scan another program may write: no transaction is left open."""
    store = open_queue()
    for number in range(1000, 1010):
        store.enqueue(number)
    looking = store.scan()
    next(looking)
    with closing(sqlite3.connect(place.path, timeout=0)) as db, db:
        db.execute("UPDATE mail_queue SET attempts = 1")
    assert [item for item in looking if isinstance(item, Task)][-1].attempts == 1


def test_another_file_is_the_queue(user_job: ZgbStore, place: ZgbDatabase, tmp_path: Path) -> None:
    """Another database under the path is scanned, changed and waited for; any other file is not."""
    store, old, wait = user_job, there(user_job), user_job.changes.wait
    assert wait is not None
    wait(0.0)
    moved, other = Path(place.path).rename(f"{place.path}.kept"), str(tmp_path / "other.db")
    sql_in(place.path, "CREATE TABLE other (x)")
    with pytest.raises(Unavailable, match="no mail queue"):
        list(store.scan())
    moved.replace(place.path)
    assert set(tasks_in(store)) == {USER}
    create(other)
    Path(other).replace(place.path)
    assert USER in (wait(0.0) or ())
    assert tasks_in(store) == {}
    with pytest.raises(Gone):
        store.swap(old, verbs.hold(old, NOW))
    Path(place.path).write_bytes(b"")
    Path(place.path).unlink()
    for act in (lambda: list(store.scan()), lambda: wait(0.0)):
        with pytest.raises(Unavailable, match="no such file"):
            act()


def test_only_a_plain_file_of_this_version_is_ours(user_job: ZgbStore, place: ZgbDatabase) -> None:
    """A link, a folder or a newer database is not followed or written; an empty file is used."""
    aside = Path(place.sidecar_path)
    cases: tuple[tuple[Callable[[], object], Callable[[], object], str], ...] = (
        (lambda: aside.symlink_to("/etc/passwd"), aside.unlink, "not a plain file"),
        (aside.mkdir, aside.rmdir, "not a plain file"),
        (lambda: sql_in(aside, "PRAGMA user_version = 99"), aside.unlink, "newer spooldeck"),
    )
    task = there(user_job)
    for make, undo, message in cases:
        make()
        for act in (
            lambda: user_job.swap(task, verbs.hold(task, NOW)),
            lambda: list(user_job.scan()),
        ):
            with naming(message), pytest.raises(Unavailable, match=message):
                act()
        undo()
    aside.write_bytes(b"")
    with closing(ZgbStore(place, lambda: NOW)) as store:
        assert change(store, state=State.HELD).state is State.HELD
        assert list(store.scan({ORGANIZER})) == [Missing(ORGANIZER)]


def test_held_jobs_belong_to_their_database(
    both_jobs: ZgbStore, place: ZgbDatabase, open_queue: Opener, sql: Sql
) -> None:
    """Held jobs stay held when another program restores its settings from before; a new database at
    the path gets none of them: they are counted, stay in our file, and stop no job of this id."""
    for ident in (USER, ORGANIZER):
        change(both_jobs, ident, state=State.HELD)
    sql("DELETE FROM config WHERE key = 'spooldeckMove'")
    assert {task.state for task in tasks_in(open_queue()).values()} == {State.HELD}
    for state in (State.PENDING, State.HELD):
        assert change(both_jobs, state=state).state is state
    both_jobs.close()
    Path(place.path).rename(f"{place.path}.old")
    create(place.path)
    sql("INSERT INTO registrations VALUES (1001, 0)")
    with closing(ZgbStore(place, lambda: NOW)) as store:
        assert (tasks_in(store), store.count_other()) == ({}, 2)
        store.enqueue(1001)
        assert {task.state for task in tasks_in(store).values()} == {State.PENDING}
        change(store, state=State.HELD)
        assert [each.state for each in tasks_in(store).values()].count(State.HELD) == 1
        assert store.count_other() == 2
