"""The handler that sends a task's data as an HTTP request: what becomes of the task."""

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from engine.config.deliver_config import parse_allowed
from engine.config.place_address import parse_address
from engine.delivery.breaker import Breaker
from engine.delivery.deliver import DeliverHandler
from engine.delivery.http_client import HttpClient
from engine.delivery.status_table import make_outcomes
from engine.delivery.url_guard import UrlGuard
from engine.destinations.destination import block, update
from engine.destinations.sql_registry import SqlRegistry
from engine.model import State, Task
from engine.schedules import parse_schedule
from engine.work.handlers import Context, Failed, Fatal, Lacking, Postponed, Retry
from tests.engine.descriptors import no_descriptors
from tests.http_peers import TLS, Peer, answer, peer, silent

NOW = 1_795_170_000.0
JSON = answer(400, b'{"error": "\x1b[31m"}\nmore', Content_Type="application/json")
HTML = answer(400, b"<html>", Content_Type="text/html")
TASK = Task("1", "push", State.ACTIVE, NOW)


def data_for(url: str, **more: Any) -> bytes:
    """The data of a task that posts to a URL."""
    return json.dumps({"url": url, "method": "POST", "body": "text", **more}).encode()


class Deliveries:
    """A handler with a registry, and what it raises or returns."""

    def __init__(self, folder: Path) -> None:
        self.now = NOW
        self.client = HttpClient(UrlGuard([parse_allowed("127.0.0.1")]), TLS)
        address = parse_address(f"sqlite://{folder}/destinations.db")
        self.registry = SqlRegistry(address, creates=True)

    def handler(self, profile: str = "default", *, gates: bool | None = None) -> DeliverHandler:
        """A handler; with `gates` other than None it has a registry."""
        clock, breaker = (lambda: self.now), None
        if gates is not None:
            schedule = parse_schedule("fixed 60s limit 2")
            breaker = Breaker(self.registry, schedule, is_gating=gates, patience=20, clock=clock)
        return DeliverHandler(self.client, make_outcomes(profile), 5.0, breaker, clock=clock)

    def close(self) -> None:
        """Close client and registry."""
        self.client.close()
        self.registry.close()


@pytest.fixture
def deliveries(memory_path: Path) -> Iterator[Deliveries]:
    """A client that may reach 127.0.0.1, and an empty registry."""
    with closing(Deliveries(memory_path)) as one:
        yield one


def failure_of(handler: DeliverHandler, data: bytes | None) -> Exception:
    """What the handler raises."""
    with pytest.raises((Failed, Postponed)) as raised:
        handler(TASK, Context(data=data))
    return raised.value


def kinds_of(handler: DeliverHandler, data: bytes, number: int) -> list[type[Exception]]:
    """What the handler raises at so many attempts."""
    return [type(failure_of(handler, data)) for _ in range(number)]


def test_an_answer_of_2xx_is_the_result(deliveries: Deliveries) -> None:
    """Status and beginning of the answer are kept by stores that keep results."""
    with peer(answer(202, b"taken")) as one:
        result = deliveries.handler()(TASK, Context(data=data_for(f"{one.url}/in")))
    assert result == {"status": 202, "body": "taken"}
    assert [(got.line, got.body) for got in one.received] == [("POST /in HTTP/1.1", b"text")]


def test_a_worker_without_descriptors_makes_no_attempt(deliveries: Deliveries) -> None:
    """The task is given back, and nothing is recorded about its destination."""
    with peer(answer(200)) as one, peer(answer(200)) as other:
        handler = deliveries.handler()
        handler(TASK, Context(data=data_for(f"{one.url}/in")))
        before = deliveries.registry.get(other.url)
        for url in (other.url, other.url.replace("127.0.0.1", "localhost")):
            with no_descriptors(), pytest.raises(Lacking, match="Too many open files"):
                handler(TASK, Context(data=data_for(f"{url}/in")))
        assert (deliveries.registry.get(other.url), other.received) == (before, [])


@pytest.mark.parametrize(("profile", "reply", "kind", "message"), [
    ("default", answer(503), Failed, "[HTTP_503] {peer}: Service Unavailable"),
    ("default", answer(404), Fatal, "[HTTP_404] {peer}: Not Found"),
    ("sipher", answer(404), Failed, "[HTTP_404] {peer}: Not Found"),
    ("default", answer(799), Fatal, "[HTTP_799] {peer}: unknown status"),
    ("default", answer(503, Retry_After="7"), Retry, "[HTTP_503] {peer}: Service Unavailable"),
    ("default", JSON, Fatal, '[HTTP_400] {peer}: Bad Request: {{"error": "\ufffd[31m"}}'),
    ("default", HTML, Fatal, "[HTTP_400] {peer}: Bad Request"),
])  # fmt: skip
def test_the_status_decides(
    deliveries: Deliveries, profile: str, reply: bytes, kind: type[Failed], message: str
) -> None:
    """The error text has the code in brackets, the peer, and a line of a readable answer."""
    with peer(reply) as one:
        failure = failure_of(deliveries.handler(profile), data_for(one.url))
    assert type(failure) is kind
    assert str(failure) == message.format(peer=one.url.removeprefix("http://"))
    assert getattr(failure, "after", 7.0) == 7.0


METADATA = data_for("http://169.254.169.254/latest")


@pytest.mark.parametrize(("profile", "data", "why"), [
    ("default", b"null", "[BAD_DATA] expected a JSON object"),
    ("sipher", b"null", "[BAD_DATA] expected a JSON object"),
    ("default", METADATA, "[BLOCKED_URL] 169.254.169.254: a metadata service"),
])  # fmt: skip
def test_bad_data_is_fatal(deliveries: Deliveries, profile: str, data: bytes, why: str) -> None:
    """Nothing is sent, and no registry gets a row for it."""
    failure = failure_of(deliveries.handler(profile, gates=True), data)
    assert type(failure) is Fatal
    assert str(failure).startswith(why)
    assert deliveries.registry.all() == []


def test_the_task_may_shorten_the_timeout(deliveries: Deliveries) -> None:
    """It cannot lengthen that of the handler."""
    with peer(silent) as one:
        failure = failure_of(deliveries.handler(), data_for(one.url, timeout=0.05))
    assert str(failure) == f"[TIMEOUT] {one.url[7:]}: no whole answer after 0.05 s"


def dead_url() -> str:
    """The URL of a peer that has ended."""
    one = Peer()
    one.close()
    return one.url


def test_tasks_of_a_dead_destination_wait_and_use_no_attempt(deliveries: Deliveries) -> None:
    """After the first failure they wait for the probes, until the schedule ends."""
    handler, url = deliveries.handler(gates=True), dead_url()
    assert kinds_of(handler, data_for(url), 3) == [Failed, Postponed, Postponed]
    assert str(failure_of(handler, data_for(url))) == f"{url} is unhealthy: REFUSED: no probe"
    deliveries.now += 60
    probe = failure_of(handler, data_for(url))
    assert isinstance(probe, Postponed)
    assert (probe.due, str(probe)[:9]) == (NOW + 120, "[REFUSED]")
    deliveries.now += 60
    assert type(failure_of(handler, data_for(url))) is Failed
    assert deliveries.registry.get(url).probes == 2


def test_a_destination_that_answers_again_gets_its_tasks(deliveries: Deliveries) -> None:
    """The probe is a delivery itself; one that is answered by 404 shows health too."""
    handler = deliveries.handler(gates=True)
    with peer(answer(500), answer(404), answer(200)) as one:
        assert kinds_of(handler, data_for(one.url), 2) == [Failed, Postponed]
        deliveries.now += 60
        assert type(failure_of(handler, data_for(one.url))) is Fatal
        assert deliveries.registry.get(one.url).healthy
        assert handler(TASK, Context(data=data_for(one.url))) == {"status": 200, "body": ""}


def test_a_task_may_name_its_destination(deliveries: Deliveries) -> None:
    """Several URLs then have one health."""
    handler = deliveries.handler(gates=True)
    named = data_for(dead_url(), destination="https://peer.example")
    failure_of(handler, named)
    with peer() as one:
        other = data_for(one.url, destination="https://peer.example")
        assert type(failure_of(handler, other)) is Postponed
    assert [each.origin for each in deliveries.registry.all()] == ["https://peer.example"]


def test_a_redirect_to_a_blocked_destination_is_not_followed(deliveries: Deliveries) -> None:
    """The block list is asked about each origin, not only the first."""
    with peer() as other, peer(answer(307, Location=f"{other.url}/x")) as one:
        update(deliveries.registry, other.url, lambda old: block(old, "spam", NOW))
        with pytest.raises(Fatal, match=r"^\[BLOCKED_URL\] redirect: .* is blocked: spam"):
            deliveries.handler(gates=False)(TASK, Context(data=data_for(one.url)))
    assert (len(one.received), other.received) == (1, [])


def test_a_cancelled_delivery_says_nothing_about_its_destination(deliveries: Deliveries) -> None:
    """The worker ended it: it counts as no attempt, and the destination stays as it was."""
    with peer() as one, pytest.raises(Postponed, match=r"^\[CANCELLED\]"):
        context = Context(data=data_for(one.url), is_cancelled=lambda: True)
        deliveries.handler(gates=True)(TASK, context)
    assert deliveries.registry.all() == []
