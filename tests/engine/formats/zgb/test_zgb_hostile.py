"""Any content of a mail queue's database, or in its place, and a full disk are survived."""

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import example, given

from engine import verbs
from engine.formats.zgb import connection
from engine.formats.zgb.place import Cell, ZgbDatabase
from engine.formats.zgb.store import ZgbStore
from engine.model import Move, Problem, State, Task
from engine.store import StoreError, Unavailable, Unsupported
from tests.examples import examples
from tests.rival_processes import running
from tests.store_contents import tasks_in
from tests.unprivileged_user import as_other_user, other_users_folder
from tests.zgb import NOW, ORGANIZER, USER, Opener, Sql, change, make_queue, taken, there

SOUND: dict[str, Cell] = {"registration_number": 7, "mail_type": "user", "status": "pending"}
SOUND |= {"attempts": 0, "next_attempt_at": 5, "locked_until": None, "last_error": None}
SOUND |= {"created_at": 5, "updated_at": 5}
KEYS = ["mailQueueEnabled", "mailMaxPerHour", "mailRedirectToSchumbi", "mailTokens"]
KEYS += ["mailLastRefill", "startDate", "endDate", "spooldeckMove"]
KEYS += ["startDate", "endDate", "spooldeckMove"]
NUMBERS = (0, 1, -1, 5, 10**12, 1 << 53, (1 << 53) + 1, (1 << 63) - 1, -1 << 63)
FRACTIONS = (1.5, 1e300, float("inf"), -0.0)
DIGITS = ("5", "005", "9" * 400, "9" * 5000, "1e5", "nan", "1_0", "٤٠")
TIMES = ("2026-01-01 00:00:00", "9999-12-31 23:59:59", "9999-99-99 00:00:00", "0001-01-01")
ENDS = ("0001-01-01 00:00:00", "2026-01-01T00:00:00Z", "253402300799")
SECONDS = (253_402_300_799, 253_402_300_800)
TEXTS = ("", " ", "x", "a\0b", "\x1b[2J", "pending", "sending", "failed", "user", "organizer")
BLOBS = (b"", b"\xff\x00", b"1")
CELLS: tuple[Cell, ...] = (None, *NUMBERS, *FRACTIONS, *DIGITS, *TIMES, *ENDS, *SECONDS)
CELLS += TEXTS + BLOBS
rows = st.fixed_dictionaries(
    {
        "status": st.sampled_from(("pending", "sending", "failed")),
        "mail_type": st.sampled_from(("user", "organizer")),
    }
).flatmap(
    lambda row: st.dictionaries(
        st.sampled_from(tuple(SOUND)), st.sampled_from(CELLS), max_size=3
    ).map(lambda odd: SOUND | row | odd)
)
"""Rows with some odd values in them."""


def all_that_can_be_done(store: ZgbStore) -> None:
    """Look at everything, show it, and change it in every way; what is refused is refused."""

    def tried(act: Callable[..., object], *args: object) -> None:
        with suppress(StoreError):
            act(*args)

    def takes(now: float) -> Iterator[Task]:
        with suppress(StoreError):
            yield from store.take(now, "me", 9)

    for item in dict.fromkeys(store.scan()):
        if isinstance(item, Problem):
            tried(store.preview_problem, item)
            continue
        assert isinstance(item, Task)
        image = store.read(item)
        assert list(store.verify([(item.id, item.state, item.rev)])) != []
        tried(store.restore_image, item, image, State.PENDING)
        for state in State:
            tried(store.swap, item, item._replace(state=state))
    for task in takes(NOW):
        tried(store.swap, task, verbs.nack(task, NOW + 60, "no"))
    store.figures(NOW)
    for name in store.controls:
        for value in ("0", "1"):
            tried(partial(store.control, name, value=value))
    list(takes(NOW + 4000))
    list(store.scan())


@examples(15)
@given(
    st.lists(rows, min_size=1, max_size=5),
    st.dictionaries(st.sampled_from(KEYS), st.sampled_from(CELLS)),
    st.booleans(),
)
@example([SOUND | {"attempts": (1 << 63) - 1}], {}, True)
@example([SOUND | {"status": "sending", "attempts": "9" * 5000}], {}, True)
def test_no_value_ends_it(jobs: list[dict[str, Cell]], config: dict[str, Cell], auto: bool) -> None:
    """With any value in any column or setting a row is a job or a problem, and is worked on."""
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/odd.db"
        with closing(sqlite3.connect(path)) as db, db:
            db.execute("CREATE TABLE config (key TEXT, value)")
            db.execute("CREATE TABLE registrations (number INTEGER)")
            db.execute("INSERT INTO registrations VALUES (7)")
            db.execute(f"CREATE TABLE mail_queue ({', '.join(SOUND)})")
            insert = f"INSERT INTO mail_queue VALUES ({', '.join('?' * len(SOUND))})"
            db.executemany(insert, [[*row.values()] for row in jobs])
            settings = {"mailQueueEnabled": "1", **config}
            db.executemany("INSERT INTO config VALUES (?, ?)", settings.items())
        place = ZgbDatabase(path, durable=False, auto_retry=auto)
        with closing(ZgbStore(place, lambda: NOW)) as store:
            all_that_can_be_done(store)


def test_what_is_too_large_is_refused(both_jobs: ZgbStore, sql: Sql) -> None:
    """A before-image with a number that no column holds, or nested too deeply, is not used; of an
    error only the beginning is read; a row with a larger value is a problem, and no other is."""
    job = there(both_jobs)
    for number in (b"1" + b"0" * 400, b"[" * 60_000, b"9" * 5000):
        image = b'{"id": "1001-user", "key": 1, "row": {"attempts": %s}}' % number
        with pytest.raises(Unsupported):
            both_jobs.restore_image(job, image, State.PENDING)
    sql("UPDATE mail_queue SET last_error = replace(hex(zeroblob(1 << 20)), '0', 'e')")
    assert {len(item.error) for item in both_jobs.scan() if isinstance(item, Task)} == {10_000}
    sql("UPDATE mail_queue SET last_error = zeroblob((1 << 24) + 1) WHERE mail_type = 'user'")
    (problem,) = {item for item in both_jobs.scan() if isinstance(item, Problem)}
    assert problem.where.startswith("mail_queue/row ")
    assert "a value has more than 16,777,216 bytes" in problem.what
    assert b"(too large)" in both_jobs.preview_problem(problem)
    assert list(tasks_in(both_jobs)) == taken(both_jobs) == [ORGANIZER]


def test_only_a_plain_file_is_used(place: ZgbDatabase, open_queue: Opener, tmp_path: Path) -> None:
    """Nothing else is waited for, read or written, also in place of an open database."""
    path = tmp_path / "other" / "zgb.db"
    path.parent.mkdir()
    with ExitStack() as pipes:

        def make_fifo(path: Path) -> None:
            """Both its ends are open, so that a fault that opens it fails and does not hang."""
            os.mkfifo(path)
            pipes.callback(os.close, os.open(path, os.O_RDWR))

        cases: tuple[tuple[Callable[[], object], Callable[[], object]], ...] = (
            (lambda: make_fifo(path), path.unlink),
            (path.mkdir, path.rmdir),
            (lambda: path.symlink_to("/dev/zero"), path.unlink),
        )
        for read_only in (False, True):
            for make, undo in cases:
                make()
                with pytest.raises(Unavailable, match="not a plain file, expected a SQLite"):
                    ZgbStore(ZgbDatabase(str(path), read_only=read_only))
                assert [entry.name for entry in path.parent.iterdir()] == ["zgb.db"]
                undo()

            store = open_queue(read_only=read_only)
            moved = Path(place.path).rename(f"{place.path}.kept")
            make_fifo(Path(place.path))
            with pytest.raises(Unavailable, match="not a plain file"):
                list(store.scan())
            moved.replace(place.path)
            assert list(store.scan()) == []


def test_a_link_to_it_is_the_same_queue(
    user_job: ZgbStore, place: ZgbDatabase, open_queue: Opener, tmp_path: Path
) -> None:
    """A held job is shown by any name of its database; a link that is turned counts."""
    link = tmp_path / "elsewhere" / "link.db"
    link.parent.mkdir()
    link.symlink_to(place.path)
    linked, other = open_queue(path=str(link)), "1002-user"
    assert change(user_job, state=State.HELD) == there(linked)
    assert change(linked, state=State.PENDING) == there(user_job)
    linked.enqueue(1002, ["user"])
    change(linked, state=State.HELD)
    second = str(tmp_path / "second.db")
    shutil.copy(place.path, second)
    shutil.copy(place.sidecar_path, f"{second}.spooldeck")
    change(open_queue(path=second), other, state=State.HELD)
    assert (there(linked).state, there(linked, other).state) == (State.HELD, State.PENDING)
    link.unlink()
    link.symlink_to(second)
    assert there(linked, other).state is State.HELD
    assert there(open_queue(), other).state is State.PENDING
    assert [entry.name for entry in link.parent.iterdir()] == ["link.db"]


LIMITED = """
import resource, sys
from contextlib import closing
from pathlib import Path
from engine.store import Unavailable
from engine.formats.zgb.place import ZgbDatabase
from engine.formats.zgb.store import ZgbStore
path = sys.argv[1]
with closing(ZgbStore(ZgbDatabase(path), lambda: 1_795_170_000.0)) as store:
    size = Path(path).stat().st_size
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        for number in range(1000, 1400):
            store.enqueue(number)
            print(number)
    except Unavailable as error:
        print("refused", error)
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    print(len(store.enqueue(1399)))
"""


def test_a_file_that_may_not_grow_loses_nothing(place: ZgbDatabase, sql: Sql) -> None:
    """A full disk is reported, what was done is there, and with room the same process goes on."""
    argv = [sys.executable, "-c", LIMITED, place.path]
    ended = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    *numbers, refused, last = ended.stdout.splitlines()
    assert refused.startswith(f"refused {place.path}: ") and last == "2"
    select = "SELECT registration_number FROM mail_queue WHERE mail_type = 'organizer' ORDER BY 1"
    assert [str(number) for (number,) in sql(select)] == [*numbers, "1399"]
    assert 0 < len(numbers) < 400
    assert sql("PRAGMA integrity_check") == [("ok",)]


@contextmanager
def full(monkeypatch: pytest.MonkeyPatch, path: str, pages: int) -> Iterator[None]:
    """While a database is opened that may have so many pages and no more."""
    plain = sqlite3.connect

    def connect(name: str, **options: Any) -> sqlite3.Connection:
        db: sqlite3.Connection = plain(name, **options)
        if name.startswith(f"file:{path}?"):
            db.execute(f"PRAGMA max_page_count = {pages}")
        return db

    with monkeypatch.context() as patched:
        patched.setattr(sqlite3, "connect", connect)
        yield


@pytest.fixture
def big_job(user_job: ZgbStore, sql: Sql) -> None:
    """The user's job has a large value in a column of another program."""
    sql("ALTER TABLE mail_queue ADD COLUMN big TEXT")
    sql("UPDATE mail_queue SET big = ?", "x" * 50_000)


@pytest.mark.usefixtures("big_job")
@pytest.mark.parametrize("together", [False, True])
def test_no_room_in_ours_leaves_it_in_theirs(
    place: ZgbDatabase,
    open_queue: Opener,
    sql: Sql,
    monkeypatch: pytest.MonkeyPatch,
    together: bool,
) -> None:
    """A job without room stays where it is, alone or in a lot, and says why."""
    if together:
        open_queue().enqueue(1001, ["organizer"])
    before = sql("SELECT * FROM mail_queue")
    with full(monkeypatch, place.sidecar_path, 5):
        store = open_queue()
        moves = [Move(task, verbs.hold(task, NOW)) for task in tasks_in(store).values()]
        errors = {str(outcome.error) for outcome in store.swap_all(moves)}
    assert errors == {f"{place.sidecar_path}: the disk is full"}
    assert sql("SELECT * FROM mail_queue") == before
    assert change(open_queue(), state=State.HELD).state is State.HELD


@pytest.mark.usefixtures("big_job")
def test_no_room_in_theirs_leaves_it_in_ours(
    place: ZgbDatabase, open_queue: Opener, sql: Sql, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that theirs has no room for stays held, and comes back once there is room."""
    store = open_queue()
    held = change(store, state=State.HELD)
    sql("VACUUM")
    ((pages,),) = sql("PRAGMA page_count")
    with full(monkeypatch, place.path, pages), pytest.raises(Unavailable, match="disk is full"):
        change(open_queue(), state=State.PENDING)
    assert there(store) == held
    change(store, state=State.PENDING)
    assert sql("SELECT length(big) FROM mail_queue") == [(50_000,)]


@pytest.mark.parametrize("closed", ["file", "folder"])
@pytest.mark.parametrize("by_link", [False, True])
def test_what_we_may_only_read_is_shown(closed: str, by_link: bool) -> None:
    """Every edge says which file or folder is closed to us, and everything is shown."""

    def look() -> None:
        with closing(ZgbStore(ZgbDatabase(str(path)), lambda: NOW)) as store:
            why = f"Permission denied: cannot write to {path if closed == 'file' else real.parent}"
            assert {edge.refusal for edge in store.edges.values()} == {why}
            assert there(store, "7-user").state is State.PENDING

    with other_users_folder() as place:
        path = real = place / "real" / "zgb.db"
        as_other_user(real.parent.mkdir)
        as_other_user(lambda: make_queue(real))
        if by_link:
            path = place / "link.db"
            path.symlink_to(real)
        if closed == "file":
            real.chmod(0o444)
        else:
            real.parent.chmod(0o555)
        as_other_user(look)
        real.parent.chmod(0o755)


KILLED = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("PRAGMA journal_mode = WAL")
db.execute("PRAGMA wal_autocheckpoint = 0")
db.execute("INSERT INTO mail_queue (registration_number, mail_type) VALUES (1002, 'user')")
db.execute("BEGIN IMMEDIATE")
db.execute("UPDATE mail_queue SET attempts = 9")
print("ready", flush=True)
sys.stdin.readline()
"""


def test_a_killed_writers_log(user_job: ZgbStore, place: ZgbDatabase, open_queue: Opener) -> None:
    """What it had committed is there, what it had not is not, as far as we may look."""
    user_job.close()
    with running(KILLED, place.path) as writer:
        writer.kill()

    def look(path: str, is_shared: bool) -> None:
        if not is_shared:
            with pytest.raises(Unavailable, match="unable to open database file"):
                ZgbStore(ZgbDatabase(path), lambda: NOW)
            return
        with closing(ZgbStore(ZgbDatabase(path), lambda: NOW)) as store:
            assert there(store, "1002-user").attempts == 0
            assert "cannot write to" in store.edges[None, State.PENDING].refusal

    for is_shared in (True, False):
        with other_users_folder() as folder:
            closed = folder / "closed"
            closed.mkdir()
            for suffix in ("", "-wal", "-shm")[: 3 if is_shared else 2]:
                shutil.copy(f"{place.path}{suffix}", closed / f"zgb.db{suffix}")
                (closed / f"zgb.db{suffix}").chmod(0o444)
            closed.chmod(0o555)
            as_other_user(partial(look, f"{closed}/zgb.db", is_shared))
            closed.chmod(0o755)
    for read_only in (True, False):
        store = open_queue(read_only=read_only)
        tasks = tasks_in(store)
        assert {ident: task.attempts for ident, task in tasks.items()} == {USER: 0, "1002-user": 0}
    assert len(taken(store)) == 2


ENDLESS = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x FROM n"


def test_a_statement_without_end_is_ended(
    open_queue: Opener, sql: Sql, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is ended after a time; for some time its connection carries out no other."""
    store = open_queue()
    store.enqueue(1001)
    job = there(store)
    monkeypatch.setattr(connection, "READ_SECONDS", 0.02)
    monkeypatch.setattr(connection, "CHANGE_SECONDS", 0.02)
    counting = f"SELECT count(*) FROM ({ENDLESS})"
    sql(f"CREATE TRIGGER slow BEFORE UPDATE ON mail_queue BEGIN {counting}; END")
    with pytest.raises(Unavailable, match=r"took more than 0\.02 s: an endless view or trigger"):
        store.swap(job, job._replace(due=NOW + 9))
    with pytest.raises(Unavailable, match=r"took more than 0\.02 s"):
        list(store.scan({job.id}))
    monkeypatch.setattr(connection, "PAUSE_SECONDS", 0.0)
    sql("DROP TRIGGER slow")
    store.swap(job, job._replace(due=NOW + 9))
    sql("ALTER TABLE registrations RENAME TO old")
    sql(f"CREATE VIEW registrations AS SELECT -x AS number, 0 AS created_at FROM ({ENDLESS})")
    with pytest.raises(Unavailable, match="took more than"):
        list(store.scan())


def test_ctrl_c_ends_a_statement_without_end(place: ZgbDatabase) -> None:
    """SIGINT while SQLite works ends the statement, and is raised as it is anywhere else."""
    with closing(sqlite3.connect(place.path)) as db:
        limit = connection.Deadline(db, place.path)
        timer = threading.Timer(0.02, os.kill, (os.getpid(), signal.SIGINT))
        with pytest.raises(KeyboardInterrupt), limit.statement():
            timer.start()
            db.execute(f"SELECT count(*) FROM ({ENDLESS})").fetchall()
        timer.join()
