"""The outbox: rows removed after an outcome, and the rows and tasks that lost each other."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
import redis

from engine import verbs
from engine.config.place_address import Address, parse_address
from engine.config.queue_config import Config, OutboxConfig
from engine.delivery.delivery_parts import with_outbox
from engine.destinations.outbox import Orphans, Outbox, RowRemover, find_orphans
from engine.formats.bullmq.place import parse_place
from engine.formats.bullmq.store import BullmqStore
from engine.formats.nftban.store import NftbanStore
from engine.model import State, Task
from engine.policy import retries_of
from engine.schedules import NO_RETRY, fixed
from engine.store import Unavailable
from engine.work.handlers import HandlerResult
from engine.work.services import WorkerServices
from engine.work.worker import Worker
from tests.bullmq_jobs import write_failed, write_hash, write_waiting
from tests.engine.destinations.conftest import Sql
from tests.nftban_spool import a_task, new_spool
from tests.redis_server import TestServer

NOW = 1_800_000_000.0
TASK = Task("mails/1", "mails", State.ACTIVE, NOW)


@pytest.fixture
def settings(address: Address) -> OutboxConfig:
    """An outbox with all columns."""
    outbox = OutboxConfig("delivery_jobs", "id", "deliveryJobId", attempts="attempts")
    return outbox._replace(last_attempt="last_attempted_at", database=address)


@pytest.fixture
def outbox(settings: OutboxConfig, sql: Sql, address: Address) -> Iterator[Outbox]:
    """The outbox with the rows a, b and c."""
    time = "REAL" if address.scheme == "sqlite" else "TIMESTAMP"
    columns = f"id TEXT PRIMARY KEY, attempts INTEGER, last_attempted_at {time}"
    sql(f"CREATE TABLE delivery_jobs ({columns})")
    sql("INSERT INTO delivery_jobs (id, attempts) VALUES ('a', 0), ('b', NULL), ('c', 7)")
    with closing(Outbox(settings)) as opened:
        yield opened


def test_rows_are_listed_counted_and_removed(outbox: Outbox, sql: Sql, address: Address) -> None:
    """By their keys; a key without a row changes nothing."""
    assert outbox.keys() == {"a", "b", "c"}
    assert outbox.keys(["c", "d", "'", "a\0", "\ud800"]) == {"c"}
    assert outbox.keys([]) == set()
    for key in ("a", "b", "nothing"):
        outbox.count_attempt(key, NOW)
    seconds = "last_attempted_at"
    if address.scheme != "sqlite":
        seconds = f"CAST(EXTRACT(EPOCH FROM {seconds}) AS FLOAT)"
    rows = sql(f"SELECT id, attempts, {seconds} FROM delivery_jobs ORDER BY id")
    assert rows == [("a", 1, NOW), ("b", 1, NOW), ("c", 7, None)]
    assert outbox.remove("a", "c", "nothing", "\0", "\ud800") == 2
    assert outbox.remove() == 0
    assert outbox.keys() == {"b"}


def test_names_are_quoted_and_keys_may_be_numbers(sql: Sql, address: Address) -> None:
    """SQL words as names, more keys than fit in a statement, and a key that is no number."""
    sql('CREATE TABLE "Order" ("select" BIGINT PRIMARY KEY, "from" INTEGER)')
    sql(
        'INSERT INTO "Order" ("select") '
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1200) "
        "SELECT i FROM n"
    )
    settings = OutboxConfig("Order", "select", "id", attempts="from", database=address)
    with closing(Outbox(settings)) as outbox:
        outbox.count_attempt("1200", NOW)
        assert sql('SELECT "from" FROM "Order" WHERE "select" = 1200') == [(1,)]
        assert outbox.keys([*map(str, range(1199, 1300))]) == {"1199", "1200"}
        outbox.count_attempt("no number", NOW)
        assert outbox.remove("no number", *map(str, range(2, 1201)), "'") == 1199
        assert outbox.keys() == {"1"}


def test_a_missing_table_is_reported_and_not_created(settings: OutboxConfig) -> None:
    """The table belongs to another program."""
    with closing(Outbox(settings)) as outbox:
        for call in (outbox.keys, lambda: outbox.remove("a"), lambda: outbox.count_attempt("a", 1)):
            with pytest.raises(Unavailable, match=r"no such (file|table)|does not exist"):
                call()


def test_rows_are_removed_by_the_end_of_the_worker(settings: OutboxConfig, outbox: Outbox) -> None:
    """A worker names them after their outcomes; its end waits for the last one."""
    config = Config(outbox=settings)
    with ExitStack() as closing_worker:
        services = with_outbox(config, WorkerServices(), closing_worker)
        for row in ("a", "c"):
            services.after_outcome(TASK, row)
    assert outbox.keys() == {"b"}
    with ExitStack() as nothing:
        assert with_outbox(Config(), services, nothing) is services


def test_rows_wait_while_the_database_is_away(outbox: Outbox, sql: Sql) -> None:
    """One line reports it; rows are removed when it is back, and those left are reported."""
    lines, warned = list[str](), threading.Event()

    def log(level: str, text: str) -> None:
        lines.append(f"{level} {text}")
        warned.set()

    sql("ALTER TABLE delivery_jobs RENAME TO elsewhere")
    remover = RowRemover(outbox, log, fixed(0.0))
    remover.add("a")
    assert warned.wait(60)
    sql("ALTER TABLE elsewhere RENAME TO delivery_jobs")
    remover.close()
    assert outbox.keys() == {"b", "c"}
    (line,) = lines
    assert line.startswith("WARN ") and "1 rows wait to be removed" in line

    sql("ALTER TABLE delivery_jobs RENAME TO elsewhere")
    last = RowRemover(outbox, log, fixed(0.0))
    last.add("b")
    last.close()
    assert lines[-1].startswith("ERROR ")
    assert lines[-1].endswith("1 rows stay without a task, doctor lists them")


@pytest.fixture
def client(redis_server: TestServer, redis_url: str) -> Iterator[redis.Redis]:
    """Another program's connection to the test's database."""
    with redis_server.client() as other:
        yield other


def test_orphans_are_found(outbox: Outbox, sql: Sql, client: redis.Redis, redis_url: str) -> None:
    """A row whose job is finished or gone, and a waiting job without a row; not a failed one."""
    sql("INSERT INTO delivery_jobs (id) VALUES ('d'), ('17')")
    write_waiting(client, "1", data='{"deliveryJobId": "a"}')
    write_failed(client, "2", data='{"deliveryJobId": "b"}')
    write_failed(client, "3", data='{"deliveryJobId": "gone"}')
    write_hash(client, "bull:mails:4", data='{"deliveryJobId": "c"}', finishedOn=5)
    client.zadd("bull:mails:completed", {"4": 5})
    others = ('{"deliveryJobId": "lost"}', '{"deliveryJobId": 17}', '{"deliveryJobId": null}')
    for number, data in enumerate((*others, "{", "null", "[]"), 5):
        write_waiting(client, str(number), data=data)
    with closing(BullmqStore(parse_place(parse_address(redis_url)))) as store:
        orphans = find_orphans(outbox, store, "deliveryJobId")
    assert orphans == Orphans(("c", "d"), ("mails/5",))


def test_a_row_is_found_after_a_kill(outbox: Outbox, client: redis.Redis, redis_url: str) -> None:
    """Killed before the removal: the job is completed, its row is there, no job is lost."""
    for number, row in (("1", "a"), ("2", "b")):
        write_waiting(client, number, data=f'{{"deliveryJobId": "{row}"}}')
    outbox.remove("c")
    place = parse_place(parse_address(redis_url))._replace(queues=("mails",))

    def work() -> None:
        services = WorkerServices(after_outcome=lambda *_: os.kill(os.getpid(), signal.SIGKILL))
        handled = {"mails": lambda task, context: HandlerResult(None, "a")}
        worker = Worker(BullmqStore(place), handled, retries_of(NO_RETRY), services=services)
        worker.process_all(until_idle=True)

    child = os.fork()
    if child == 0:
        try:
            work()
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.WTERMSIG(status) == signal.SIGKILL
    with closing(BullmqStore(place)) as store:
        counts = store.count_tasks()
        assert find_orphans(outbox, store, "deliveryJobId") == Orphans(("a",), ())
    assert (counts[State.DONE], counts[State.DEAD]) == (1, 0)


def test_a_task_that_moves_meanwhile_is_no_orphan(
    outbox: Outbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task whose outcome is stored between scan and read is read again."""
    spool = new_spool(tmp_path / "data")
    payload = Path(spool.mail_spool, "a.json")
    payload.write_text('{"deliveryJobId": "a"}')
    with (
        closing(NftbanStore(spool, lambda: NOW)) as store,
        closing(NftbanStore(spool, lambda: NOW)) as other,
    ):
        store.swap(None, a_task(1, payload=str(payload)))
        store.swap(None, a_task(2, due=NOW + 9))
        claimed, usual = [*other.take(NOW, "other", 1)], store.read

        def read(task: Task, part: str = "") -> bytes:
            while claimed:
                other.swap(claimed[0], verbs.nack(claimed.pop(), NOW + 60, "no"))
            return usual(task, part)

        monkeypatch.setattr(store, "read", read)
        assert find_orphans(outbox, store, "deliveryJobId") == Orphans(("b", "c"), ())
