"""The circuit breaker: who is admitted, who waits, and which delivery is the probe."""

import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from engine.config.place_address import parse_address
from engine.delivery.breaker import KNOWN_SECONDS, REGISTRY_RETRY_SECONDS, Breaker
from engine.destinations import destination as destinations
from engine.destinations.destination import update
from engine.destinations.sql_registry import SqlRegistry
from engine.schedules import parse_schedule
from engine.work.handlers import Postponed
from tests.engine.task_builders import NOW, Clock

PEER = "https://peer.example"
PATIENCE = 20.0
Make = Callable[..., Breaker]


@pytest.fixture
def clock() -> Clock:
    """The clock of all breakers of a test."""
    return Clock()


@pytest.fixture
def registry(memory_path: Path) -> Iterator[SqlRegistry]:
    """A registry in a file that does not exist yet."""
    address = parse_address(f"sqlite://{memory_path}/destinations.db")
    with closing(SqlRegistry(address, creates=True, patience=0.1)) as one:
        yield one


@pytest.fixture
def make(registry: SqlRegistry, clock: Clock) -> Make:
    """Make the breaker of one more worker; it gates, and has three probes."""

    def make(**options: object) -> Breaker:
        settings = {"is_gating": True, "patience": PATIENCE, "clock": clock} | options
        return Breaker(registry, parse_schedule("linear 60s +60s limit 3"), **settings)  # type: ignore[arg-type]

    return make


def wait_of(breaker: Breaker, clock: Clock) -> float | None:
    """Seconds that a delivery has to wait; None if it is admitted as no probe."""
    try:
        assert breaker.admit(PEER) is False
    except Postponed as wait:
        return wait.due - clock.now
    return None


def test_tasks_wait_for_the_next_probe_after_a_failure(make: Make, clock: Clock) -> None:
    """Until then no worker admits a delivery; then one, the probe, whose success admits all."""
    one, other = make(), make()
    assert wait_of(one, clock) is None
    assert one.record(PEER, "REFUSED", is_probe=False) == NOW + 60
    assert [wait_of(each, clock) for each in (one, other)] == [60, 60]
    clock.now += 60
    assert one.admit(PEER) is True
    assert [wait_of(each, clock) for each in (one, other)] == [PATIENCE, PATIENCE]
    assert one.record(PEER, "", is_probe=True) is None
    clock.now += KNOWN_SECONDS
    assert [wait_of(each, clock) for each in (one, other)] == [None, None]


def test_failed_probes_follow_the_schedule(make: Make, registry: SqlRegistry, clock: Clock) -> None:
    """After the last probe one delivery of all workers is tried, and the probes start again."""
    one, waits = make(), list[float | None]()
    due = one.record(PEER, "DNS", is_probe=False)
    while due is not None:
        waits.append(due - clock.now)
        clock.now = due
        assert one.admit(PEER) is True
        due = one.record(PEER, "DNS", is_probe=True)
    assert waits == [60, 120, 180]

    other = make()
    assert [wait_of(each, clock) for each in (one, other, one)] == [None, 60, 60]
    assert one.record(PEER, "DNS", is_probe=False) == clock.now + 60
    assert registry.get(PEER).probes == 0
    clock.now += 60
    assert other.admit(PEER) is True


def test_of_two_workers_one_probes(make: Make, clock: Clock) -> None:
    """The claim is a compare-and-swap in the registry; a probe without a result is repeated."""
    make().record(PEER, "REFUSED", is_probe=False)
    clock.now += 60
    admitted = list[bool]()
    start = threading.Barrier(8)

    def probe() -> None:
        breaker = make()
        start.wait()
        try:
            admitted.append(breaker.admit(PEER))
        except Postponed:
            admitted.append(False)

    threads = [threading.Thread(target=probe) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(admitted) == [False] * 7 + [True]
    clock.now += PATIENCE
    assert make().admit(PEER) is True


def test_a_blocked_peer_gets_nothing(make: Make, registry: SqlRegistry, clock: Clock) -> None:
    """Its tasks wait until an operator unblocks it."""
    update(registry, PEER, lambda old: destinations.block(old, "spam", NOW))
    for gates in (True, False):
        with pytest.raises(Postponed, match=r"^https://peer\.example is blocked: spam$"):
            make(is_gating=gates).admit(PEER)
    update(registry, PEER, destinations.unblock)
    assert wait_of(make(), clock) is None


def test_ungated_health_is_recorded(make: Make, registry: SqlRegistry, clock: Clock) -> None:
    """Deliveries to an unhealthy destination go on, and a success makes it healthy."""
    one = make(is_gating=False)
    assert one.record(PEER, "REFUSED", is_probe=False) is None
    assert (registry.get(PEER).healthy, registry.get(PEER).reason) == (False, "REFUSED")
    assert wait_of(one, clock) is None
    assert one.record(PEER, "", is_probe=False) is None
    assert registry.get(PEER).healthy


def test_successes_are_seldom_written(make: Make, registry: SqlRegistry, clock: Clock) -> None:
    """A busy worker does not write to the registry for each delivery."""
    one = make()
    for _ in range(50):
        one.admit(PEER)
        one.record(PEER, "", is_probe=False)
    first = registry.get(PEER)
    assert first.last_success == NOW
    clock.now += 0.5
    one.record(PEER, "", is_probe=False)
    assert registry.get(PEER) == first


def test_a_registry_that_cannot_be_written_is_reported_once(
    make: Make, registry: SqlRegistry, clock: Clock, memory_path: Path
) -> None:
    """A delivery made counts without its record; none is made if the registry cannot be read."""
    messages = list[str]()
    one = make(warn=messages.append)
    one.record(PEER, "", is_probe=False)
    with sqlite3.connect(memory_path / "destinations.db", isolation_level=None) as other:
        other.execute("BEGIN IMMEDIATE")
        for _ in range(2):
            assert one.record(PEER, "REFUSED", is_probe=False) is None
        other.execute("ROLLBACK")
    other.close()
    assert len(messages) == 1
    assert messages[0].startswith(f"Health of {PEER} not recorded: ")
    (memory_path / "destinations.db").write_bytes(b"no database" * 100)
    assert wait_of(make(), clock) == REGISTRY_RETRY_SECONDS
