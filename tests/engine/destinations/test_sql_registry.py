"""The registry of destinations in SQLite and in Postgres, with rivals and bad databases."""

import os
import signal
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from threading import Barrier, Thread

import psycopg
import pytest

from engine.config.place_address import Address, parse_address
from engine.destinations import destination
from engine.destinations.database import SqlDatabase
from engine.destinations.destination import Destination, block, mark_failure, start_probe, update
from engine.destinations.sql_registry import SqlRegistry
from engine.schedules import fixed
from engine.store import Gone, Unavailable
from tests.engine.destinations.conftest import OpenRegistry, Sql
from tests.unprivileged_user import as_other_user, other_users_folder

PEER = "https://peer.example"
NOW = 1_800_000_000.125
FULL = Destination(PEER, "spam \U0001f4a9", NOW, healthy=False, reason="REFUSED", since=NOW - 5)
FULL = FULL._replace(probes=3, next_probe=NOW + 300, last_seen=NOW - 7, last_success=NOW - 8)
FULL = FULL._replace(last_failure=NOW - 9)
FULL = FULL._replace(extra={"publicKey": "a+b=", "peers": [1, None, {"x": "'"}]})
OTHER = Destination("https://other.example")
USES: tuple[Callable[[SqlRegistry], object], ...] = (
    lambda registry: registry.all(),
    lambda registry: registry.get(PEER),
    lambda registry: registry.swap(None, FULL),
    lambda registry: registry.swap(FULL._replace(rev=1), FULL),
    lambda registry: registry.count_probe(PEER),
)
"""Each way to use a registry."""


def assert_unavailable(registry: SqlRegistry, why: str) -> None:
    """No use of it succeeds."""
    for use in USES:
        with pytest.raises(Unavailable, match=why):
            use(registry)


def test_a_destination_is_read_as_it_was_written(open_registry: OpenRegistry) -> None:
    """Each field survives; the answer of a swap has the revision of the next one."""
    registry = open_registry()
    assert registry.get(PEER) == Destination(PEER)
    assert registry.all() == []
    stored = registry.swap(None, FULL)
    assert stored == FULL._replace(rev=stored.rev)
    assert registry.get(PEER) == stored
    other = registry.swap(OTHER, OTHER)
    assert open_registry(creates=False).all() == [other, stored]
    changed = registry.swap(stored, stored._replace(healthy=True, next_probe=None, extra={}))
    assert registry.get(PEER) == changed
    assert registry.extra_with("publicKey", "a+b=") == []
    assert registry.swap(changed, None) == Destination(PEER)
    assert registry.all() == [other]


def test_a_swap_of_an_old_revision_changes_nothing(open_registry: OpenRegistry) -> None:
    """Neither a change, an addition nor a deletion succeeds, also after delete and add."""
    registry = open_registry()
    old = registry.swap(None, Destination(PEER))
    new = registry.swap(old, block(old, "spam", NOW))
    for before, after in ((old, old), (old, None), (None, old), (Destination(PEER), old)):
        with pytest.raises(Gone):
            registry.swap(before, after)
    assert registry.get(PEER) == new
    registry.swap(new, None)
    registry.swap(None, Destination(PEER))
    with pytest.raises(Gone):
        registry.swap(old, old)


def test_the_number_of_probes_is_raised_in_one_statement(open_registry: OpenRegistry) -> None:
    """It is counted for a registered destination, and a swap of the value before fails."""
    registry = open_registry()
    with pytest.raises(Gone):
        registry.count_probe(PEER)
    old = registry.swap(None, Destination(PEER, extra={"signing": "k"}))
    assert [registry.count_probe(PEER), registry.count_probe(PEER)] == [1, 2]
    assert registry.get(PEER).probes == 2
    with pytest.raises(Gone):
        registry.swap(old, old)
    assert registry.extra_with("signing", "k") == [registry.get(PEER)]


def test_of_rivals_none_loses_a_change(open_registry: OpenRegistry) -> None:
    """Each change of workers that start together counts once, and one gets the probe."""
    workers, claimed, barrier = [open_registry() for _ in range(4)], list[int](), Barrier(4)

    def add(old: Destination) -> Destination:
        return old._replace(extra={**old.extra, str(len(old.extra)): 1})

    def run(which: int) -> None:
        barrier.wait()
        for _ in range(5):
            update(workers[which], PEER, add)
        workers[which].count_probe(PEER)
        down = update(workers[which], PEER, lambda d: mark_failure(d, "DNS", NOW, fixed(0)))
        started = start_probe(down, NOW, 30)
        if started is not None:
            with suppress(Gone):
                workers[which].swap(down, started)
                claimed.append(which)

    with ThreadPoolExecutor(4) as threads:
        assert [*threads.map(run, range(4))] == [None] * 4  # none has raised
    assert len(workers[0].get(PEER).extra) == 20
    assert len(claimed) <= 1


def test_a_change_that_others_always_forestall_is_given_up(open_registry: OpenRegistry) -> None:
    """After some tries `update` reports that; a change that changes nothing writes nothing."""
    registry, rival = open_registry(), open_registry()
    same = update(registry, PEER, lambda d: d)
    assert (same.rev, registry.all()) == (0, [])
    registry.swap(None, Destination(PEER))

    def forestalled(old: Destination) -> Destination:
        rival.count_probe(PEER)
        return block(old, "mine", NOW)

    with pytest.raises(Unavailable, match=f"changed by others {destination.MAX_TRIES} times"):
        update(registry, PEER, forestalled)
    changed = rival.get(PEER)
    assert changed == Destination(PEER, probes=destination.MAX_TRIES, rev=changed.rev)


def test_a_console_creates_no_registry(
    open_registry: OpenRegistry, sql: Sql, address: Address, tmp_path: Path
) -> None:
    """A missing file or table is reported, with what creates it, and stays missing."""
    reader = open_registry(creates=False)
    assert_unavailable(reader, r"(no such file|does not exist).*: a worker creates")
    assert list(tmp_path.iterdir()) == []
    sql("CREATE TABLE others (x INTEGER)")
    assert_unavailable(reader, r"(no such table|does not exist).*: a worker creates")
    open_registry().swap(None, FULL)
    assert len(reader.all()) == 1


def test_a_foreign_table_of_that_name_is_reported(open_registry: OpenRegistry, sql: Sql) -> None:
    """It is neither read nor changed."""
    sql("CREATE TABLE destinations (origin TEXT PRIMARY KEY, city TEXT)")
    sql("INSERT INTO destinations VALUES ('https://peer.example', 'Oslo')")
    assert_unavailable(open_registry(), r"a table of another program: .*column")
    assert sql("SELECT * FROM destinations") == [(PEER, "Oslo")]


@pytest.mark.parametrize("extra", ["{", "[1]", "null"])
def test_a_row_of_others_is_reported(open_registry: OpenRegistry, sql: Sql, extra: str) -> None:
    """Its destination is blocked with the reason, and no default replaces it."""
    registry = open_registry()
    registry.swap(None, Destination(PEER))
    sql("UPDATE destinations SET extra = ?", extra)
    other = registry.swap(None, OTHER)
    assert registry.get(PEER).blocked.startswith("not a row of ours: ")
    assert registry.all() == [other, registry.get(PEER)]
    with pytest.raises(Gone):
        registry.swap(registry.get(PEER), registry.get(PEER)._replace(blocked=""))
    assert sql("SELECT extra FROM destinations WHERE origin = ?", PEER) == [(extra,)]


def test_a_locked_registry_is_reported(open_registry: OpenRegistry, address: Address) -> None:
    """After the patience the call ends with one line; when the lock is gone it succeeds."""
    registry = open_registry(patience=0.05)
    registry.swap(None, Destination(PEER))
    why = r"(locked by another|no answer within).* 0.05 s$"
    with holding_lock(address), pytest.raises(Unavailable, match=why):
        registry.count_probe(PEER)
    assert registry.count_probe(PEER) == 1


def test_a_server_that_hangs_is_reported(postgres_url: str) -> None:
    """A stopped process of the server keeps no time limit; when it goes on, all is usable."""
    with closing(SqlDatabase(parse_address(postgres_url), patience=0.05)) as database:
        ((pid,),) = database.run("SELECT pg_backend_pid()").rows
        os.kill(pid, signal.SIGSTOP)
        try:
            with pytest.raises(Unavailable, match="not reachable"):
                database.run("SELECT 1")
        finally:
            os.kill(pid, signal.SIGCONT)
        assert database.run("SELECT 1").rows == [(1,)]


def test_a_connection_in_use_is_closed_after_its_statement(address: Address) -> None:
    """A registry that is closed while a worker's thread waits for a statement keeps none open."""
    database = SqlDatabase(address)
    database.run("CREATE TABLE destinations (n INTEGER)", creates=True)
    (connection,) = database._idle
    with holding_lock(address):
        insert = ("INSERT INTO destinations VALUES (1)",)
        thread = Thread(target=database.run, args=insert, daemon=True)
        thread.start()
        while database._idle:
            pass
        database.close()
    thread.join()
    assert not database._idle
    with pytest.raises((sqlite3.ProgrammingError, psycopg.OperationalError)):
        connection.raw.execute("SELECT 1")


@contextmanager
def holding_lock(address: Address) -> Iterator[None]:
    """Another program holds the table."""
    if address.scheme == "sqlite":
        with closing(sqlite3.connect(address.text.removeprefix("sqlite://"))) as file:
            file.execute("BEGIN EXCLUSIVE")
            yield
    else:
        with psycopg.connect(address.text) as server:
            server.execute("LOCK TABLE destinations")
            yield


def test_a_file_that_may_only_be_read_is_reported() -> None:
    """It is read with the rights of its owner, also by root, and a change ends with one line."""
    with other_users_folder() as folder:
        address = parse_address(f"sqlite://{folder}/d.db")

        def create() -> None:
            with closing(SqlRegistry(address, creates=True)) as registry:
                registry.swap(None, FULL)

        as_other_user(create)
        (folder / "d.db").chmod(0o400)
        with closing(SqlRegistry(address, creates=True)) as registry:
            assert registry.get(PEER).rev
            with pytest.raises(Unavailable, match=r"d\.db: read-only for this user$"):
                registry.count_probe(PEER)


def test_a_server_that_may_only_be_read_is_reported(postgres_url: str) -> None:
    """A standby server, or a user who may only read: a change ends with one line."""
    with closing(SqlRegistry(parse_address(postgres_url), creates=True)) as registry:
        registry.swap(None, FULL)
    text = postgres_url.replace("options=", "options=-cdefault_transaction_read_only%3Don%20")
    with closing(SqlRegistry(parse_address(text))) as reader:
        assert reader.get(PEER).rev
        with pytest.raises(Unavailable, match="read-only: a standby"):
            reader.count_probe(PEER)


def test_a_registry_that_is_replaced_is_opened_again(tmp_path: Path) -> None:
    """A worker goes on with the file that has the name now, and creates it again if it is gone."""
    path = tmp_path / "d%20x?.db"
    address = parse_address(f"sqlite://{str(path).replace('%', '%25').replace('?', '%3F')}")
    with closing(SqlRegistry(address, creates=True)) as registry:
        registry.swap(None, FULL)
        assert path.exists()
        path.unlink()
        assert registry.get(PEER) == Destination(PEER)
        registry.swap(None, Destination(PEER))
        assert registry.get(PEER).healthy


@pytest.mark.parametrize(("text", "why"), [
    ("redis://host/0", "expected an address that begins with sqlite://, postgresql://$"),
    ("sqlite:///nowhere/at/all/d.db", "no such file or directory|cannot be opened"),
    ("postgresql://me:secret@/x?host=/nowhere", "not reachable: "),
])  # fmt: skip
def test_an_unusable_address_is_reported_without_its_password(text: str, why: str) -> None:
    """With one line that has the address and not the password."""
    with pytest.raises(Unavailable, match=why) as refused:
        SqlRegistry(parse_address(text), creates=True).swap(None, FULL)
    assert "secret" not in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_file_that_is_no_database_is_reported(tmp_path: Path) -> None:
    """It is neither read nor overwritten; a FIFO is not opened."""
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(Unavailable, match="fifo: not a plain file"):
        SqlRegistry(parse_address(f"sqlite://{tmp_path}/fifo"), creates=True).swap(None, FULL)
    path = tmp_path / "notes.txt"
    path.write_text("remember the milk\n" * 99)
    with closing(SqlRegistry(parse_address(f"sqlite://{path}"), creates=True)) as registry:
        assert_unavailable(registry, "not a SQLite database")
    assert path.read_text() == "remember the milk\n" * 99
