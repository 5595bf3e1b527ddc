"""Health of servers and relays: what makes a server unhealthy, the probes that follow, and how a
request reaches a server that cannot be reached directly.
"""

import json
import sqlite3
from collections.abc import Callable
from typing import Any

import pytest

from engine.delivery.http_client import Answer
from engine.delivery.network_errors import DeliveryError
from engine.destinations.watch import NO_TASKS, DestinationState, SeenDestination
from engine.formats.bullmq.federation.delivery import MAX_SWEEP, find_relay
from engine.formats.bullmq.federation.health import plan_missing_probes
from engine.formats.bullmq.federation.jobs import FOLLOW, probe_id, probe_job
from engine.formats.bullmq.federation.keys import SIGNING
from engine.formats.bullmq.federation.profile import POLICIES
from engine.schedules import linear
from tests import federation_peers
from tests.federation_peers import Peer
from tests.federation_sender import LONG, Ran, Sender, add_follow, decision, follow, post
from tui.transports.destination_lines import cells, detail_lines, json_row

Make = Callable[..., Sender]


ILL: dict[str, Any] = {"healthy": False, "reason": "REFUSED"}


def know_hidden(sender: Sender, peer: Peer, relay: Peer | None = None) -> str:
    """Register a server whose name cannot be found, and the relay that reaches it; its URL."""
    server = f"http://{sender.hide()}:{peer.port}"
    sender.know(peer, server)
    if relay is not None:
        sender.know(relay)
        relay.route = {server: peer.url}
        peer.names.add(server)
    return server


def test_a_probe_has_a_fixed_id_and_leaves_nothing() -> None:
    """The id is of the server's origin and the number; the job is removed in any case."""
    server = "https://peer.example"
    job = probe_job(server, 2, 1500.0)
    assert job.id == probe_id(server, 2) == "health-check_3a61b99132bfdfa2_2"
    for same in (f"{server}/", "HTTPS://Peer.Example.:443", f"{server}/x"):
        assert probe_id(same, 2) == job.id
    assert json.loads(job.data) == {"serverUrl": server}
    assert job.options == {"removeOnComplete": True, "removeOnFail": True}


def test_a_closed_server_is_unhealthy_and_probed_once(make: Make, peer: Peer, relay: Peer) -> None:
    """Refused: unhealthy, not relayed, probe 0 in 5 minutes. A second failure starts no second
    chain; `sipher` adds probe 0 again, which is refused only while it is planned."""
    for profile, probes in (("default", 1), ("sipher", 2)):
        sender = make(profile, peer, relay)
        peer.close()
        for _ in range(2):
            ran = sender.deliver(peer.url)
            assert (ran.kind, ran.text.split()[0], relay.posts) == ("retry", "[REFUSED]", 0)
        assert sender.probes == [(peer.url, 0, 300.0)] * probes
        assert not sender.destination(peer.url).healthy
        peer.open()


def test_a_lost_probe_is_planned_again(known: Sender, peer: Peer) -> None:
    """A probe that is overdue for more than a minute has lost its job: the next failure adds it."""
    peer.close()
    known.deliver(peer.url)
    known.now += 359.0
    known.deliver(peer.url)
    assert len(known.probes) == 1
    known.now += 2.0
    known.deliver(peer.url)
    assert known.probes[1:] == [(peer.url, 0, 0.0)]


def test_a_worker_that_starts_adds_lost_probes(make: Make, peer: Peer, relay: Peer) -> None:
    """Each probe that the registry has as planned is added, for its time; `sipher` adds none."""
    for profile in ("default", "sipher"):
        sender = make(profile, relay)
        sender.know(peer, **ILL, probes=2, next_probe=sender.now + 40)
        sender.know(peer, "http://late.test", **ILL, probes=4, next_probe=sender.now - 99)
        sender.know(peer, "http://ended.test", **ILL, probes=5)
        sender.change("http://no-keys.test", **ILL, next_probe=sender.now)
        plan_missing_probes(sender.parts)
        expected = {(peer.url, 2, 40.0), ("http://late.test", 4, 0.0)}
        assert set(sender.probes) == (expected if profile == "default" else set())


@pytest.mark.parametrize("shift", [86_400.0, -86_400.0])
def test_a_clock_that_was_a_day_off_delays_no_probe(make: Make, peer: Peer, shift: float) -> None:
    """A server failed while our clock was a day ahead or behind. Once it is right, a worker that
    starts adds the probe for now, a delivery goes although the breaker is on, and another failure
    plans the probe again; a success after it marks the server healthy."""
    sender = make(gates=True, timeouts=LONG._replace(probe=8.0))
    sender.know(peer)
    peer.close()
    sender.now += shift
    assert sender.deliver(peer.url).kind == "retry"
    sender.now -= shift
    sender.probes.clear()
    plan_missing_probes(sender.parts)
    assert sender.probes == [(peer.url, 0, 0.0)]
    assert sender.deliver(peer.url).kind == "retry"
    due = sender.destination(peer.url).next_probe
    assert due is not None and 0 < due - sender.now <= 300.0
    sender.now = due + 10.0
    peer.open()
    assert sender.deliver(peer.url).kind == "done"
    assert sender.destination(peer.url).healthy


def test_a_success_marks_healthy(make: Make, peer: Peer) -> None:
    """A delivery that arrives; with `sipher` only a probe does."""
    for profile, healthy in (("default", True), ("sipher", False)):
        sender = make(profile, peer)
        peer.script.append(federation_peers.reset)
        sender.deliver(peer.url)
        assert sender.deliver(peer.url, {"method": "INSERT"}).kind != "done"
        peer.applied.clear()
        assert sender.deliver(peer.url).kind == "done"
        destination = sender.destination(peer.url)
        assert (destination.healthy, destination.next_probe is None) == (healthy, healthy)


def test_a_passed_probe_marks_healthy(both: Sender, peer: Peer) -> None:
    """After it, further probes have nothing to do."""
    peer.close()
    both.deliver(peer.url)
    peer.open()
    assert both.probe(peer.url, 0) == Ran("done", "healthy", "kept")
    assert both.destination(peer.url).healthy
    assert both.probe(peer.url, 0).text == "skipped: healthy already"
    assert both.probe("http://127.0.0.2:9", 0).kind == "postponed"


@pytest.mark.parametrize(
    ("fault", "schedule", "delays"),
    [
        ("closed", None, [300.0, 900.0, 1500.0, 2100.0, 2700.0]),
        ("503", None, [300.0, 900.0, 1500.0, 2100.0, 2700.0]),
        ("closed", linear(6.0, 12.0, limit=2), [6.0, 18.0]),
    ],
    ids=["closed", "503", "another schedule"],
)
@pytest.mark.parametrize("profile", ["default", "sipher"])
def test_five_failed_probes_are_the_last(
    make: Make, peer: Peer, profile: str, fault: str, schedule: Any, delays: list[float]
) -> None:
    """Then a warning. Another schedule has other waits, and another number of probes."""
    sender = make(profile, peer, **({"probes": schedule} if schedule else {}))
    peer.close()
    sender.deliver(peer.url)
    if fault == "503":
        peer.open()
        peer.discover_script.extend([federation_peers.status(503)] * 5)
    for number in range(len(delays)):
        sender.now += sender.probes[-1][2]
        assert sender.probe(peer.url, number).text.startswith("failed: ")
    assert [probe[1:] for probe in sender.probes] == [*enumerate(delays)]
    known, count = sender.destination(peer.url), len(delays)
    assert (known.healthy, known.probes, known.next_probe) == (False, count, None)
    (line,) = sender.lines
    assert line.startswith(f"WARN {peer.url}: {count} probes have failed, no further one: ")


def test_a_probe_of_an_earlier_chain_does_nothing(make: Make, peer: Peer) -> None:
    """With `sipher` each probe runs, and starts a chain of its own."""
    for profile, planned in (("default", [0]), ("sipher", [0, 1])):
        sender = make(profile, peer)
        peer.close()
        sender.deliver(peer.url)
        sender.probe(peer.url, 3)
        assert [number for _, number, _ in sender.probes] == planned
        peer.open()


def test_deliveries_wait_until_the_probe_has_ended(make: Make, peer: Peer) -> None:
    """They do not come at the time of the probe itself: each would use an attempt. If the probe is
    late, it is added again, and one delivery a minute goes in its place."""
    sender = make(gates=True, timeouts=LONG._replace(probe=8.0))
    sender.know(peer, **ILL, probes=1, next_probe=sender.now + 30)
    peer.close()
    for passed, after in ((0.0, 38.0), (30.0, 8.0), (7.0, 8.0)):
        sender.now += passed
        assert sender.deliver(peer.url).after == pytest.approx(after)
    assert sender.probes == []
    sender.now += 2.0
    assert sender.deliver(peer.url).kind == "retry"
    assert sender.probes == [(peer.url, 1, 0.0)]
    ran = sender.deliver(peer.url)
    assert ran.kind == "postponed" and ran.after == pytest.approx(68.0)


def test_once_all_probes_have_failed_one_delivery_goes(make: Make, peer: Peer) -> None:
    """It fails and uses an attempt; the others wait for the first probe of a new chain."""
    sender = make(gates=True, timeouts=LONG._replace(probe=8.0))
    sender.know(peer, **ILL, probes=5)
    peer.close()
    assert [sender.deliver(peer.url).kind for _ in range(3)] == ["retry", "postponed", "postponed"]
    assert sender.probes == [(peer.url, 0, 300.0)]
    destination = sender.destination(peer.url)
    assert (destination.probes, destination.next_probe) == (0, sender.now + 300.0)


def test_a_probe_that_runs_again_is_counted_once(sender: Sender, peer: Peer) -> None:
    """As its worker was killed or Redis was away, it adds what is missing. If the worker ends, the
    probe runs again, and the server is not blamed."""
    sender.know(peer, **ILL, probes=3, next_probe=sender.now + 40)
    for number in (0, 2):
        assert sender.probe(peer.url, number).text == "skipped: 3 probes were made since"
    assert sender.probes == [(peer.url, 3, 40.0)]
    assert peer.discoveries == 0
    ran = sender.probe(peer.url, 3, is_cancelled=True)
    assert (ran.kind, ran.after, len(sender.probes)) == ("postponed", 0.0, 1)
    assert sender.destination(peer.url).probes == 3


def test_a_server_that_is_not_probed_has_no_breaker(make: Make, peer: Peer) -> None:
    """Once the time of its first probe has passed, its deliveries go, by a relay."""
    sender = make(gates=True)
    server = f"http://{sender.hide()}:{peer.port}"
    sender.know(peer, server, healthy=False, reason="DNS", next_probe=sender.now - 99)
    assert [sender.deliver(server).kind for _ in range(2)] == ["retry"] * 2


def test_a_server_without_address_is_not_probed(either: Sender, peer: Peer) -> None:
    """After DNS a probe is planned and then skipped, which its row says, unless set otherwise."""
    server = know_hidden(either, peer)
    either.deliver(server)
    assert either.probes == [(server, 0, 300.0)]
    either.now += 300.0
    assert either.probe(server, 0).text == "skipped: not probed after DNS"
    assert f"INFO {server}: probe skipped: not probed after DNS" in either.lines
    seen = SeenDestination(either.destination(server), NO_TASKS, DestinationState.UNHEALTHY)
    lines = detail_lines(seen, "", either.now, 80)
    texts = [" ".join(text for text, _ in line) for line in lines]
    assert any("none: not probed after DNS, after 0 probes" in line for line in texts)
    assert cells(seen, either.now)["WHY"] == ("DNS 5m ago, not probed", "")
    assert json_row(seen)["probe_skipped"] == "not probed after DNS"
    policies = {**POLICIES, "DNS": POLICIES["DNS"]._replace(probe=True)}
    either.parts = either.parts._replace(policies=policies)
    either.names["peer.test"] = ["127.0.0.1"]
    assert either.probe(server, 0).text == "healthy"


def test_a_probe_survives_a_locked_registry(make: Make, peer: Peer) -> None:
    """It is tried again a minute later; with `sipher` it fails, which ends the chain."""
    for profile, kind in (("default", "postponed"), ("sipher", "retry")):
        sender = make(profile)
        sender.know(peer, **ILL)
        path = sender.database.text.removeprefix("sqlite://")
        sender.registry._database._patience = 0.05
        sender.registry.close()
        lock = sqlite3.connect(path, isolation_level=None)
        lock.execute("BEGIN EXCLUSIVE")
        ran = sender.probe(peer.url, 0)
        lock.close()
        assert ran.kind == kind and ran.text.startswith("[REGISTRY] ")


def test_a_server_without_address_is_reached_by_a_relay(
    either: Sender, peer: Peer, relay: Peer
) -> None:
    """The relay gets an envelope for the target; the target decrypts it and acknowledges."""
    server = know_hidden(either, peer, relay)
    add_follow(either, server)
    assert either.deliver(server, follow(), name=FOLLOW) == Ran("done", "accepted", "deleted")
    assert decision(either) == (True, False)
    (got,) = peer.received
    assert (got.is_relayed, got.path) == (True, federation_peers.FOLLOWS)
    assert got.headers["X-Federation-Target"] == f"{server}{federation_peers.FOLLOWS}"
    assert relay.received == [] and "FEDERATE" not in json.dumps(relay.relayed)
    destination = either.destination(server)
    assert (destination.healthy, destination.reason) == (False, "DNS")


def test_a_conflict_by_a_relay_means_applied(make: Make, peer: Peer, relay: Peer) -> None:
    """Its 502 reports the 409: a repetition is done, others not; `sipher` tries again."""
    for profile, kinds in (("default", ["fatal", "done"]), ("sipher", ["retry", "retry"])):
        sender = make(profile)
        server = know_hidden(sender, peer, relay)
        assert sender.deliver(server, post("2")).kind == "done"
        again = [sender.deliver(server, post("2"), attempts=n) for n in (0, 1)]
        assert [ran.kind for ran in again] == kinds
        peer.applied.clear()


def test_the_relay_is_the_healthy_server_seen_last(sender: Sender, peer: Peer, relay: Peer) -> None:
    """Not an unhealthy, a blocked or an older one, not the target, and not ourselves."""
    server = f"http://{sender.hide()}:{peer.port}"
    with Peer() as older, Peer() as blocked, Peer() as ill:
        sender.know(peer, server)
        for one, fields in ((older, {}), (blocked, {"blocked": "spam"}), (ill, {"healthy": False})):
            sender.know(one, **fields)
        sender.know(sender.home)
        sender.now += 1
        sender.know(relay)
        for one in (blocked, ill, sender.home):
            sender.change(one.url, last_seen=sender.now + 9)
        relay.script.append(federation_peers.status(502))
        ran = sender.deliver(server)
        assert (ran.kind, ran.row) == ("retry", "kept") and ran.text.startswith("[DNS] ")
        assert ran.text.endswith(f"relay: [RELAY] {relay.url} answers 502") and relay.posts == 1
        assert older.posts == blocked.posts == ill.posts == ill.discoveries == 0


def test_a_status_of_a_relay_acknowledges_nothing(sender: Sender, peer: Peer, relay: Peer) -> None:
    """A bare status comes from the target only on the direct way: the row stays."""
    server = know_hidden(sender, peer)
    sender.know(relay)
    relay.script.append(federation_peers.says({"status": "ok"}))
    ran = sender.deliver(server)
    assert (ran.kind, ran.row) == ("fatal", "kept") and ran.text.startswith("[NO_ACK] ")


def test_a_sweep_finds_a_relay(sender: Sender, peer: Peer, relay: Peer) -> None:
    """Without a healthy server unhealthy ones are asked; those that answer are healthy."""
    server = know_hidden(sender, peer)
    with Peer() as gone, Peer() as other:
        for one, reason in ((relay, "REFUSED"), (gone, "REFUSED"), (other, "DNS")):
            sender.know(one, healthy=False, reason=reason)
        gone.close()
        relay.route = {server: peer.url}
        peer.names.add(server)
        assert sender.deliver(server).kind == "done"
        assert sender.destination(relay.url).healthy
        assert not sender.destination(gone.url).healthy
        assert other.discoveries == 0
        assert peer.received[0].is_relayed


def test_a_sweep_asks_only_so_many_servers(sender: Sender) -> None:
    """Those that were seen last: else the delivery would take longer than its lease."""
    asked = list[str]()

    def send(method: str, url: str, *_: object, **__: object) -> Answer:
        asked.append(url)
        raise DeliveryError("TIMEOUT", "no answer")

    for number in range(MAX_SWEEP + 2):
        ill = {**ILL, "reason": "TIMEOUT", "extra": {SIGNING: "key"}}
        sender.change(f"http://p{number}.test", last_seen=float(number), **ill)
    assert find_relay(sender.parts._replace(send=send), "http://target.test") is None
    assert len(asked) == MAX_SWEEP and "http://p1.test/discover" not in asked
