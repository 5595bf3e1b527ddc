"""The application's tables of blocked and of known servers, beside its own worker."""

import pytest

from engine.destinations.watch import ACTIONS
from engine.formats.bullmq.federation.health import PUT_BACK_LIMIT_SECONDS, ProbeHandler
from engine.formats.bullmq.federation.parts import keys_of
from engine.formats.bullmq.federation.shared_tables import SharedRegistry, SharedTables
from engine.model import State, Task
from engine.work.handlers import Context
from tests.federation_peers import Peer
from tests.federation_sender import Sender

SERVERS = (
    "CREATE TABLE server_registry (url TEXT UNIQUE, public_key TEXT, encryption_public_key TEXT,"
    " is_healthy BOOLEAN, health_check_attempts INTEGER DEFAULT 0, unhealthy_reason TEXT)"
)


@pytest.fixture
def shared(sender: Sender) -> Sender:
    """Our side with both tables of the application, which are empty."""
    sender.sql("CREATE TABLE blacklisted_servers (id TEXT, server_url TEXT, reason TEXT)")
    sender.sql(SERVERS)
    tables = SharedTables(sender.application, "blacklisted_servers", "server_registry")
    registry = SharedRegistry(sender.registry, tables)
    sender.parts = sender.parts._replace(registry=registry, shared=tables)
    return sender


def add_server(sender: Sender, url: str, peer: Peer, *, healthy: bool = True) -> None:
    """Add a row as Sipher does."""
    keys = peer.public
    sql = "INSERT INTO server_registry VALUES (?, ?, ?, ?, 0, ?)"
    reason = None if healthy else "CONN_REFUSED"
    sender.sql(sql, url, keys.signing, keys.encryption, healthy, reason)


def test_a_server_of_the_table_of_blocked_ones_gets_nothing(shared: Sender, peer: Peer) -> None:
    """In any spelling; the row of the outbox goes. Our registry does not keep the block, also if
    something else about the server is stored meanwhile."""
    shared.know(peer)
    host = peer.url.removeprefix("http://")
    for url in (peer.url, f"{peer.url}/", f"{peer.url}/api", host):
        peer.applied.clear()
        shared.sql("INSERT INTO blacklisted_servers VALUES ('1', ?, 'spam')", url)
        ran = shared.deliver(peer.url)
        assert (ran.kind, ran.row) == ("fatal", "deleted"), url
        assert ran.text.endswith("in blacklisted_servers: spam")
        assert shared.parts.registry.all()[0].blocked
        shared.sql("DELETE FROM blacklisted_servers")
        assert shared.deliver(peer.url).kind == "done"
        assert not shared.destination(peer.url).blocked
    shared.sql("INSERT INTO blacklisted_servers VALUES ('1', ?, NULL)", peer.url)
    registry = shared.parts.registry
    destination = registry.get(shared.destination(peer.url).origin)
    assert destination.blocked == "in blacklisted_servers: no reason"
    registry.swap(destination, destination._replace(probes=3))
    assert (shared.destination(peer.url).blocked, shared.destination(peer.url).probes) == ("", 3)


def test_keys_of_the_table_are_used_none_learned(shared: Sender, peer: Peer, relay: Peer) -> None:
    """A server with another key than its row there gets nothing that it can read."""
    add_server(shared, f"{peer.url}/", relay)
    peer.known[shared.home.url] = shared.home.public
    assert shared.deliver(peer.url).kind != "done"
    assert keys_of(shared.destination(peer.url)).signing != peer.public.signing
    shared.sql("UPDATE server_registry SET public_key = ?, encryption_public_key = ?", *peer.public)
    assert shared.deliver(peer.url).kind == "done"


def test_servers_of_the_table_alone_are_listed(shared: Sender, peer: Peer, relay: Peer) -> None:
    """Each once, with its keys, health and block; a probe of it is the other program's."""
    shared.know(peer)
    add_server(shared, f"{peer.url}/", peer, healthy=False)
    add_server(shared, f"{relay.url}/", relay, healthy=False)
    shared.sql("INSERT INTO blacklisted_servers VALUES ('1', ?, 'spam')", relay.url)
    known, listed = sorted(shared.parts.registry.all(), key=lambda one: one.origin != peer.url)
    assert (known.origin, known.healthy, bool(known.rev)) == (peer.url, True, True)
    assert (listed.origin, listed.healthy, listed.reason) == (relay.url, False, "CONN_REFUSED")
    assert (listed.blocked, listed.rev) == ("in blacklisted_servers: spam", 0)
    assert keys_of(listed) == relay.public
    unblocked = listed._replace(blocked="")
    assert "only in the application's table" in ACTIONS["probe"].refusal(unblocked)


def test_a_key_of_another_server_of_the_table_is_refused(shared: Sender, peer: Peer) -> None:
    """A new server must not come with the signing key of a known one."""
    add_server(shared, "https://known.example", peer)
    ran = shared.deliver(peer.url)
    assert "[KEY_IN_USE]" in ran.text and "https://known.example" in ran.text


def test_a_probe_of_the_application_is_run_on_its_row(shared: Sender, peer: Peer) -> None:
    """A failure counts there and plans the next one, the fifth is the last; an answer makes the row
    healthy. Our registry does not know the server. After DNS_BLOCKED none is asked."""
    add_server(shared, peer.url, peer, healthy=False)
    peer.close()
    for number in range(5):
        shared.probe(peer.url, number)
    delays = [900.0, 1500.0, 2100.0, 2700.0]
    assert shared.probes == [(peer.url, n, delay) for n, delay in enumerate(delays, start=1)]
    assert any("5 probes have failed, no further one" in line for line in shared.lines)
    peer.open()
    assert shared.probe(peer.url, 1).text == "healthy"
    row = "SELECT is_healthy, health_check_attempts, unhealthy_reason FROM server_registry"
    assert shared.sql(row) == [(1, 0, None)]
    assert shared.probe(peer.url, 2).text == "skipped: healthy already"

    shared.sql("UPDATE server_registry SET is_healthy = FALSE, unhealthy_reason = 'DNS_BLOCKED'")
    assert shared.probe(peer.url, 0).text == "skipped: not probed after DNS_BLOCKED"


def test_a_probe_of_an_unknown_server_is_left_to_another_program(sender: Sender) -> None:
    """Without the table it is due again soon, for two hours; then it is dropped."""
    ran = sender.probe("http://127.0.0.2:9", 0)
    assert ran.text == "not registered here: left to another program"
    old = Task("x/1", "x", State.ACTIVE, sender.now - PUT_BACK_LIMIT_SECONDS)
    data = b'{"serverUrl": "http://127.0.0.2:9"}'
    assert ProbeHandler(sender.parts)(old, Context(data=data)) == "skipped: not registered"
