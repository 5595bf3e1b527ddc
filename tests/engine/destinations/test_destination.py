"""What a destination becomes after a delivery, a probe and an operator's block."""

import pytest

from engine.destinations import destination
from engine.destinations.destination import RECORD_SECONDS, mark_failure, start_probe, waits_until
from engine.schedules import parse_schedule

NOW = 1_800_000_000.0
PROBES = parse_schedule("linear 5m +10m limit 5")
PEER = destination.Destination("https://peer.example")


def test_five_probes_follow_a_failure_and_then_none() -> None:
    """Each that fails plans the next, 10 minutes longer; then deliveries are let through."""
    down, now, waits = mark_failure(PEER, "REFUSED", NOW, PROBES), NOW, []
    assert (down.healthy, down.reason, down.since) == (False, "REFUSED", NOW)
    while down.next_probe is not None:
        waits.append(down.next_probe - now)
        assert waits_until(down, now) == down.next_probe
        assert start_probe(down, down.next_probe - 1, 30) is None
        now = down.next_probe
        started = start_probe(down, now, 30)
        assert started is not None
        assert waits_until(started, now) == now + 30
        down = destination.mark_probe(started, "TIMEOUT", now, PROBES)
    assert waits == [300, 900, 1500, 2100, 2700]
    assert (down.probes, down.reason, down.since) == (5, "TIMEOUT", NOW)
    assert waits_until(down, now) is None
    again = mark_failure(down, "REFUSED", now + 5, PROBES)
    assert (again.probes, again.next_probe, again.since) == (0, now + 305, NOW)


def test_a_failure_while_a_probe_is_planned_starts_no_second_chain() -> None:
    """It changes code and time of the last failure; a repeated one is recorded seldom."""
    down = mark_failure(PEER, "REFUSED", NOW, PROBES)._replace(probes=2)
    later = mark_failure(down, "TIMEOUT", NOW + 60, PROBES)
    assert later == down._replace(reason="TIMEOUT", last_failure=NOW + 60)
    assert mark_failure(later, "TIMEOUT", NOW + 60 + RECORD_SECONDS / 2, PROBES) is later
    assert mark_failure(later, "TIMEOUT", NOW + 60 + RECORD_SECONDS, PROBES) is not later


def test_a_success_marks_healthy_and_plans_no_probe() -> None:
    """So does a probe that passes; a repeated success is recorded only from time to time."""
    down = mark_failure(PEER, "REFUSED", NOW, PROBES)
    up, at = destination.mark_success(down, NOW + 7), NOW + 7
    assert up == PEER._replace(since=at, last_seen=at, last_success=at, last_failure=NOW)
    assert destination.mark_probe(down, "", at, PROBES) == up
    assert destination.mark_success(up, at + RECORD_SECONDS / 2) is up
    late = NOW + 600
    assert destination.mark_success(up, late) == up._replace(last_seen=late, last_success=late)
    assert destination.mark_success(PEER, NOW).since is None


def test_a_blocked_destination_waits_until_it_is_unblocked() -> None:
    """Neither a delivery nor a probe goes to it; its health stays as it was."""
    down = mark_failure(PEER, "REFUSED", NOW, PROBES)
    shut = destination.block(down, "spam", NOW + 1)
    assert (shut.blocked, shut.blocked_since) == ("spam", NOW + 1)
    assert waits_until(shut, NOW + 1000) == NOW + 1000 + destination.BLOCKED_WAIT_SECONDS
    assert start_probe(shut, NOW + 1000, 30) is None
    assert destination.unblock(shut) == down
    assert waits_until(destination.unblock(shut), NOW + 1000) is None
    assert destination.block(down, "", NOW).blocked


def test_a_clock_that_was_ahead_delays_no_delivery() -> None:
    """A probe planned by it is due now, and a failure plans the next one by the right clock."""
    ahead = mark_failure(PEER, "REFUSED", NOW + 86_400, PROBES)
    assert waits_until(ahead, NOW) is None
    started = start_probe(ahead, NOW, 30)
    assert started is not None
    assert waits_until(started, NOW) == NOW + 30
    assert destination.mark_probe(started, "REFUSED", NOW, PROBES).next_probe == NOW + 900
    near = mark_failure(PEER, "REFUSED", NOW + 60, PROBES)
    assert waits_until(near, NOW) == NOW + 360
    # A delivery that was under way does not keep the time that the wrong clock has planned.
    down = mark_failure(ahead._replace(probes=2), "REFUSED", NOW, PROBES)
    assert (down.probes, down.next_probe, down.last_failure) == (0, NOW + 300, NOW)


@pytest.mark.parametrize(("url", "origin"), [
    ("HTTPS://Peer.Example/api?x=1", "https://peer.example"),
    ("https://peer.example:443", "https://peer.example"),
    ("http://peer.example.:80/", "http://peer.example"),
    ("http://peer.example:8080/", "http://peer.example:8080"),
    ("https://[2001:DB8::1]:8443/x", "https://[2001:db8::1]:8443"),
    ("https://b\u00fccher.example/", "https://xn--bcher-kva.example"),
    ("https://user:secret@peer.example/", "https://peer.example"),
    ("http://127.1/", "http://127.0.0.1"),
    ("http://0x7F000001:080/", "http://127.0.0.1"),
    ("http://[0:0::FFFF:1.2.3.4]/", "http://1.2.3.4"),
])  # fmt: skip
def test_an_origin_is_written_in_one_way(url: str, origin: str) -> None:
    """Scheme and host in lower case, usual addresses, the port only if it is no default."""
    assert destination.origin_of(url) == origin


HOSTS = ["[::1", "a b", f"{'ü' * 64}.example", "peer\u3002example", "pe%65r.example"]
HOSTS += ["pe\ter.example", "peer..example", "1.2.3.4.5", "[fe80::1%25eth0]"]
HOSTS += ["fa\u00df.example"]  # another name in IDNA 2003 than in IDNA 2008
HOSTS += [f"peer.example:{port}" for port in ("0", "65536", "x")]
NO_HOSTS = ["", "peer.example", "ftp://peer.example", "https://", "https:///x", "file:///etc"]


@pytest.mark.parametrize("url", [*NO_HOSTS, *(f"http://{host}" for host in HOSTS)])
def test_a_url_without_an_origin_is_refused(url: str) -> None:
    """Another scheme, no host, no such port."""
    with pytest.raises(ValueError, match=r".+"):
        destination.origin_of(url)
