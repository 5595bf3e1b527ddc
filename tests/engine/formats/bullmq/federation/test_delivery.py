"""Deliveries to peers on loopback: each row of the error table, in both profiles."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from engine.formats.bullmq.federation.envelope import encode
from engine.formats.bullmq.federation.jobs import FOLLOW
from engine.formats.bullmq.federation.keys import ENCRYPTION, SIGNING
from engine.store import Unavailable
from tests import federation_peers
from tests.federation_peers import Fault, Peer
from tests.federation_sender import LONG, SHORT, Ran, Sender, add_follow, decision, follow, post

Make = Callable[..., Sender]
BOTH = pytest.mark.parametrize("profile", ["default", "sipher"])


def test_an_unknown_server_is_discovered_then_delivered(sender: Sender, peer: Peer) -> None:
    """GET /discover, REGISTER, then one POST, which the peer decrypts and verifies."""
    assert sender.deliver(peer.url) == Ran("done", "acknowledged", "deleted")
    assert (peer.discoveries, len(peer.registered), peer.posts) == (1, 1, 1)
    (got,) = peer.received
    assert json.loads(got.text) == post()
    assert got.headers["Origin"] == got.headers["X-Federation-Origin"] == sender.home.url
    assert got.headers["X-Federation-Target"] == f"{peer.url}{federation_peers.POSTS}"
    assert set(got.body) == {"method", "payload", "signature"}
    assert sender.destination(peer.url).extra == {
        SIGNING: peer.public.signing,
        ENCRYPTION: peer.public.encryption,
    }
    assert sender.deliver(peer.url, post("2")).kind == "done"
    assert (peer.discoveries, len(peer.registered)) == (1, 1)
    ((attempts, last),) = sender.sql("SELECT attempts, last_attempted_at FROM delivery_jobs")
    assert (attempts, last) == (1, sender.now)


@pytest.mark.parametrize("text", ['{"method":"INSERT", "a":1.0e2}', '{ "method" : "INSERT"}\n'])
def test_the_payload_is_sent_byte_for_byte(sender: Sender, peer: Peer, text: str) -> None:
    """Spaces, numbers and order stay as they are: the signature is over these bytes."""
    sender.know(peer)
    sender.deliver(peer.url, text)
    assert peer.received[0].text == text
    assert peer.problems == []


@pytest.mark.parametrize("shape", ["inline", "wrapped"])
@BOTH
def test_an_acknowledgement_is_inline_or_wrapped(
    make_sender: Make, peer: Peer, profile: str, shape: str
) -> None:
    """Both shapes complete a post and a follow."""
    sender = make_sender(profile)
    sender.know(peer)
    peer.ack_shape = shape
    add_follow(sender, peer.url)
    assert sender.deliver(peer.url) == Ran("done", "acknowledged", "deleted")
    assert sender.deliver(peer.url, follow(), name=FOLLOW) == Ran("done", "accepted", "deleted")
    assert decision(sender) == (True, False)


def test_a_bare_status_acknowledges_but_decides_nothing(make_sender: Make, peer: Peer) -> None:
    """`{status, accepted}` has no signature: delivered, the follow stays as it is. `sipher`: row 12
    of the table."""
    peer.ack_shape = "bare"
    for profile, kind, row in (("default", "done", "deleted"), ("sipher", "fatal", "kept")):
        sender = make_sender(profile)
        sender.know(peer)
        peer.applied.clear()
        add_follow(sender, peer.url)
        ran = sender.deliver(peer.url, follow(), name=FOLLOW)
        assert (ran.kind, ran.row) == (kind, row)
        assert decision(sender) == (False, False)


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        ("{", "[BAD_PAYLOAD] payload is not JSON"),
        ("[" * 100_000, "[BAD_PAYLOAD] payload is not JSON: JSON that is nested too deep"),
        ("null", "[BAD_PAYLOAD] payload: expected an object"),
        ("42", "[BAD_PAYLOAD] payload: expected an object"),
        ('"text"', "[BAD_PAYLOAD] payload: expected an object"),
        ("[]", "[BAD_PAYLOAD] payload: expected an object"),
        ("{}", "[BAD_PAYLOAD] payload: expected an object with the text method"),
        ('{"method": 7}', "[BAD_PAYLOAD] payload: expected an object with the text method"),
        ('{"method": "DELETE"}', "[BAD_PAYLOAD] method 'DELETE', expected one of FEDERATE"),
    ],
    ids=lambda value: value[:12],
)
@BOTH
def test_rows_1_to_3_a_bad_payload_is_given_up(
    make_sender: Make, peer: Peer, profile: str, payload: str, expected: str
) -> None:
    """No request is made, and the row is deleted."""
    sender = make_sender(profile)
    ran = sender.deliver(peer.url, payload)
    assert (ran.kind, ran.row) == ("fatal", "deleted")
    assert ran.text.startswith(expected)
    assert (peer.posts, peer.discoveries) == (0, 0)


@pytest.mark.parametrize(
    "change",
    [
        {"payload": {}},
        {"serverUrl": None},
        {"deliveryJobId": 7},
        {"serverUrl": "http://a/\n"},
        {"payload": "\ud800"},
    ],
)
def test_data_of_another_form_is_given_up(sender: Sender, peer: Peer, change: Any) -> None:
    """The row is not known for sure, and stays."""
    ran = sender.deliver(peer.url, data=change)
    assert ran.kind == "fatal"
    assert ran.text.startswith("[BAD_PAYLOAD] ")
    assert peer.posts == 0


@BOTH
def test_row_4_a_blocked_server_gets_nothing(make_sender: Make, peer: Peer, profile: str) -> None:
    """The job is given up and its row deleted; after an unblock the same job is delivered."""
    sender = make_sender(profile)
    sender.know(peer, blocked="spam")
    ran = sender.deliver(peer.url)
    assert (ran.kind, ran.row, peer.posts) == ("fatal", "deleted", 0)
    assert ran.text == f"[BLOCKED] {peer.url} is blocked: spam"
    sender.change(peer.url, blocked="")
    assert sender.deliver(peer.url).kind == "done"


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (federation_peers.status(503), "HTTP_503"),
        (federation_peers.html, "BAD_KEYS"),
        (federation_peers.says({}), "BAD_KEYS"),
        (federation_peers.says([]), "BAD_KEYS"),
        (federation_peers.says({"publicKey": encode(bytes(32))}), "BAD_KEYS"),
        (federation_peers.says({"publicKey": "x", "encryptionPublicKey": "y"}), "BAD_KEYS"),
        (federation_peers.gzip_bomb, "TOO_LARGE"),
        (federation_peers.reset, "RESET"),
    ],
    ids=["503", "html", "{}", "[]", "one key", "no base64", "bomb", "reset"],
)
@BOTH
def test_row_5_a_failed_discovery_is_tried_again(
    make_sender: Make, peer: Peer, profile: str, answer: Fault, code: str
) -> None:
    """The row stays, no attempt is counted in it, and nothing is registered."""
    sender = make_sender(profile)
    peer.discover_script.append(answer)
    ran = sender.deliver(peer.url)
    assert (ran.kind, ran.row, peer.posts) == ("retry", "kept", 0)
    assert ran.text.startswith(f"[{code}] discovery: ")
    assert sender.sql("SELECT attempts FROM delivery_jobs") == [(0,)]
    assert not sender.destination(peer.url).rev
    assert sender.deliver(peer.url).kind == "done"


def test_an_answer_without_end_is_cut(make_sender: Make, peer: Peer) -> None:
    """A compressed answer that is too large: given up, as each attempt would be applied (`sipher`:
    tried again); the server stays healthy. A body that never ends: the timeout counts for it."""
    for profile, kind in (("default", "fatal"), ("sipher", "retry")):
        sender = make_sender(profile)
        sender.know(peer)
        peer.script.append(federation_peers.gzip_bomb)
        ran = sender.deliver(peer.url)
        assert (ran.kind, ran.row, ran.text[:12]) == (kind, "kept", "[TOO_LARGE] ")
        assert sender.destination(peer.url).healthy
        slow = make_sender(profile, timeouts=SHORT)
        slow.know(peer)
        peer.script.append(federation_peers.endless_body)
        ran = slow.deliver(peer.url)
        assert (ran.kind, ran.row, ran.text[:10]) == ("retry", "kept", "[TIMEOUT] ")
        assert not slow.destination(peer.url).healthy


@BOTH
def test_a_server_that_did_not_register_us_is_asked_again(
    make_sender: Make, peer: Peer, profile: str
) -> None:
    """It refuses the delivery with 403, which is tried again, after another REGISTER. A server that
    knows us accepts it in any case."""
    sender = make_sender(profile)
    peer.register_script.extend([federation_peers.status(502), federation_peers.reset])
    for _ in range(2):
        ran = sender.deliver(peer.url)
        assert (ran.kind, ran.row) == ("retry", "kept")
        assert ran.text.startswith("[HTTP_403] ")
    assert sender.deliver(peer.url).kind == "done"
    assert sender.deliver(peer.url, post("2")).kind == "done"
    assert len(peer.registered) == 1
    other = make_sender(profile)
    peer.register_script.append(federation_peers.status(502))
    other.deliver(peer.url)
    peer.close()
    assert other.deliver(peer.url).text.startswith("[REFUSED] ")
    assert not other.destination(peer.url).healthy
    peer.open()
    other = make_sender(profile)
    peer.known[other.home.url] = other.home.public
    peer.register_script.append(federation_peers.status(502))
    assert other.deliver(peer.url, post("3")).kind == "done"


def test_a_cancelled_delivery_sends_no_request(sender: Sender, peer: Peer) -> None:
    """A worker that is to end at once does not wait for discovery either; the job is run again, and
    no attempt is counted."""
    ran = sender.deliver(peer.url, is_cancelled=True)
    assert (ran.kind, ran.after) == ("postponed", 0.0)
    assert ran.text.startswith("[CANCELLED] ")
    assert peer.discoveries == peer.posts == 0


@BOTH
def test_a_changed_key_is_refused(make_sender: Make, peer: Peer, profile: str) -> None:
    """Discovery finds another signing key than the registered one: nothing is sent, the old key
    stays."""
    sender = make_sender(profile)
    old = Peer()
    old.close()
    sender.change(peer.url, extra={SIGNING: old.public.signing})
    ran = sender.deliver(peer.url)
    assert (ran.kind, ran.row, peer.posts) == ("retry", "kept", 0)
    assert ran.text.startswith("[KEY_CHANGED] discovery: ")
    assert sender.destination(peer.url).extra == {SIGNING: old.public.signing}


def test_a_key_of_another_server_is_refused(sender: Sender, peer: Peer, relay: Peer) -> None:
    """A server that describes itself with the signing key of another one is not registered."""
    relay.keys = peer.keys
    sender.know(peer)
    ran = sender.deliver(relay.url)
    assert ran.text.startswith("[KEY_IN_USE] discovery: ")
    assert not sender.destination(relay.url).rev


URLS = [
    "http://169.254.169.254",
    "http://10.0.0.1",
    "http://[::ffff:169.254.169.254]",
    "http://[64:ff9b::a9fe:a9fe]",
    "http://[fd00::1]",
]


@pytest.mark.parametrize("server", URLS)
def test_row_6_an_address_that_is_not_allowed_is_refused(make_sender: Make, server: str) -> None:
    """No connection is made; given up with its row kept. `sipher`: tried again."""
    for profile, kind in (("default", "fatal"), ("sipher", "retry")):
        ran = make_sender(profile).deliver(server)
        assert (ran.kind, ran.row) == (kind, "kept")
        assert ran.text.startswith("[BLOCKED_URL] discovery: ")


@pytest.mark.parametrize("server", ["ftp://a.test", "http://a.test:0", "http://a.test:99999", "x"])
def test_a_server_that_is_no_origin_is_given_up(sender: Sender, server: str) -> None:
    """Another scheme, or a port that is none."""
    ran = sender.deliver(server)
    assert (ran.kind, ran.row) == ("fatal", "deleted")


@pytest.mark.parametrize(
    "target", ["http://169.254.169.254/x", "http://user@{host}/x", "file:///etc/passwd"]
)
def test_a_target_elsewhere_gets_nothing(make_sender: Make, peer: Peer, target: str) -> None:
    """By default the target must be of the server's origin; in each profile the guard judges it."""
    host = peer.url.removeprefix("http://")
    for profile in ("default", "sipher"):
        sender = make_sender(profile)
        sender.know(peer)
        ran = sender.deliver(peer.url, data={"targetUrl": target.format(host=host)})
        assert (ran.kind, ran.row) == ("fatal" if profile == "default" else "retry", "kept")
        is_elsewhere = profile == "default" and host not in target.format(host=host)
        assert ran.text.startswith("[BAD_TARGET] " if is_elsewhere else "[BLOCKED_URL] ")
        assert sender.destination(peer.url).healthy
    assert peer.posts == 0


def test_a_name_that_becomes_loopback_is_refused(sender: Sender, peer: Peer) -> None:
    """The address that a connection is made to is judged, also if the name had another one when it
    was looked up before."""
    sender.names["peer.test"] = ["10.1.2.3"]
    server = f"http://peer.test:{peer.port}"
    sender.know(peer, server)
    ran = sender.deliver(server)
    assert (ran.kind, ran.row, peer.posts) == ("fatal", "kept", 0)
    assert ran.text.startswith("[BLOCKED_URL] ")
    assert sender.destination(server).healthy


@pytest.mark.parametrize("place", ["file:///etc/passwd", "http://169.254.169.254/", "http://[::]/"])
def test_a_redirect_is_judged_again(sender: Sender, peer: Peer, place: str) -> None:
    """A redirect to another scheme or to an address that is not allowed is not followed."""
    sender.know(peer)
    peer.script.append(federation_peers.status(307, b"", Location=place))
    ran = sender.deliver(peer.url)
    assert (ran.kind, ran.row) == ("fatal", "kept")
    assert ran.text.startswith("[BLOCKED_URL] ")


def test_a_redirect_to_a_blocked_server_is_not_followed(sender: Sender, peer: Peer) -> None:
    """Neither is a blocked server asked by discovery: nothing reaches it."""
    with Peer() as other:
        sender.know(peer)
        sender.change(other.url, blocked="spam")
        peer.script.append(
            federation_peers.status(307, b"", Location=f"{other.url}{federation_peers.POSTS}")
        )
        ran = sender.deliver(peer.url)
        assert (ran.kind, ran.row, other.posts) == ("fatal", "kept", 0)
        assert ran.text == f"[BLOCKED_URL] redirect: {other.url} is blocked: spam"


@BOTH
def test_row_7_without_own_origin_nothing_is_sent(
    make_sender: Make, peer: Peer, profile: str
) -> None:
    """Given up, the row stays; the attempt was counted before."""
    sender = make_sender(profile)
    sender.know(peer)
    sender.parts = sender.parts._replace(origin="")
    ran = sender.deliver(peer.url)
    assert (ran.kind, ran.row, peer.posts) == ("fatal", "kept", 0)
    assert ran.text.startswith("[NO_ORIGIN] ")
    assert sender.sql("SELECT attempts FROM delivery_jobs") == [(1,)]


@pytest.mark.parametrize(
    ("fault", "code"), [(federation_peers.reset, "RESET"), (federation_peers.sleep, "TIMEOUT")]
)
@BOTH
def test_row_8_a_network_error_is_tried_again(
    make_sender: Make, peer: Peer, profile: str, fault: Fault, code: str
) -> None:
    """The server is unhealthy for the reason, and its first probe is planned in 5 minutes."""
    sender = make_sender(profile, timeouts=SHORT if code == "TIMEOUT" else LONG)
    sender.know(peer)
    peer.script.append(fault)
    ran = sender.deliver(peer.url)
    assert (ran.kind, ran.row) == ("retry", "kept")
    assert ran.text.startswith(f"[{code}] ")
    destination = sender.destination(peer.url)
    assert (destination.healthy, destination.reason, destination.probes) == (False, code, 0)
    assert sender.probes == [(peer.url, 0, 300.0)]


@pytest.mark.parametrize(("profile", "code"), [("default", "DNS"), ("sipher", "NO_RELAY")])
def test_row_9_without_a_relay_it_is_tried_again(
    make_sender: Make, peer: Peer, profile: str, code: str
) -> None:
    """No other server is known: the error has the code of the direct attempt; not so `sipher`."""
    sender = make_sender(profile)
    server = f"http://{sender.hide()}"
    sender.know(peer, server)
    ran = sender.deliver(server)
    assert (ran.kind, ran.row) == ("retry", "kept")
    assert ran.text.startswith(f"[{code}] ")
    assert ("Name or service not known" in ran.text) == (profile == "default")
    assert sender.lines == [
        "ALERT No server of the federation can be reached: this one is stranded"
    ]


@pytest.mark.parametrize(
    ("number", "default"),
    [
        *((number, "fatal") for number in (304, 400, 403, 404, 409, 413, 501)),
        *((number, "retry") for number in (408, 425, 429, 500, 502, 503)),
    ],
)
def test_row_10_statuses(make_sender: Make, peer: Peer, number: int, default: str) -> None:
    """By default 4xx and 501 are given up, their rows stay; `sipher` tries each again. None makes
    the server unhealthy, or is relayed."""
    for profile, kind in (("default", default), ("sipher", "retry")):
        sender = make_sender(profile)
        sender.know(peer)
        peer.script.append(federation_peers.status(number))
        ran = sender.deliver(peer.url)
        assert (ran.kind, ran.row) == (kind, "kept")
        assert ran.text.startswith(f"[HTTP_{number}] ")
        assert sender.destination(peer.url).healthy
        assert sender.probes == []


def test_retry_after_is_honoured_but_not_by_sipher(make_sender: Make, peer: Peer) -> None:
    """429 with 90 seconds: the next attempt is due then."""
    for profile, after in (("default", 90.0), ("sipher", None)):
        sender = make_sender(profile)
        sender.know(peer)
        peer.script.append(federation_peers.status(429, Retry_After="90"))
        assert sender.deliver(peer.url).after == after


def test_a_busy_server_that_did_not_register_us_sets_the_time(sender: Sender, peer: Peer) -> None:
    """429 with 90 seconds from a server that may not know us: the next attempt is due then."""
    peer.register_script.append(federation_peers.status(502))
    peer.script.append(federation_peers.status(429, Retry_After="90"))
    ran = sender.deliver(peer.url)
    assert (ran.kind, ran.after) == ("retry", 90.0)


def test_a_conflict_on_a_repetition_means_applied(make_sender: Make, peer: Peer) -> None:
    """409 to a second attempt is done; `sipher` tries again, though it was applied."""
    for profile, kind, row in (("default", "done", "deleted"), ("sipher", "retry", "kept")):
        sender = make_sender(profile)
        sender.know(peer)
        peer.applied.clear()
        peer.script.append(federation_peers.applied_then(503))
        assert sender.deliver(peer.url).kind == "retry"
        ran = sender.deliver(peer.url, attempts=1)
        assert (ran.kind, ran.row) == (kind, row)
        assert len(peer.applied) == 1


@pytest.mark.parametrize(
    ("sign", "kind"),
    [
        ({"attempts": 1}, "done"),
        ({"error": "waits: [CANCELLED] peer: cancelled by the worker"}, "done"),
        ({"error": "waits: unhealthy"}, "fatal"),
    ],
)
def test_a_repetition_is_known_by_any_sign(
    sender: Sender, peer: Peer, sign: dict[str, Any], kind: str
) -> None:
    """Attempts of the task, or that a worker cancelled it; not that it waited for a probe."""
    sender.know(peer)
    assert sender.deliver(peer.url).kind == "done"
    assert sender.deliver(peer.url, **sign).kind == kind


@pytest.mark.parametrize(
    ("decided", "kind", "row"),
    [(None, "fatal", "kept"), ("accepted", "done", "deleted"), ("acknowledged", "done", "deleted")],
)
def test_a_conflict_does_not_hide_a_lost_decision(
    sender: Sender, peer: Peer, decided: str | None, kind: str, row: str
) -> None:
    """A follow that was applied is done only if its decision was stored: no attempt gets it again,
    and the row stays for an operator."""
    sender.know(peer)
    add_follow(sender, peer.url)
    if decided:
        sender.sql(f"UPDATE follows SET {decided} = TRUE")
    peer.script.append(federation_peers.applied_then(503))
    assert sender.deliver(peer.url, follow(), name=FOLLOW).kind == "retry"
    ran = sender.deliver(peer.url, follow(), name=FOLLOW, attempts=1)
    assert (ran.kind, ran.row) == (kind, row)
    assert ran.text.startswith("[NO_DECISION] " if decided is None else "applied ")


def test_a_method_without_handler_is_given_up(make_sender: Make, peer: Peer) -> None:
    """A peer answers 501 to UNFOLLOW; `sipher` tries it again."""
    for profile, kind in (("default", "fatal"), ("sipher", "retry")):
        sender = make_sender(profile)
        sender.know(peer)
        assert sender.deliver(peer.url, {"method": "UNFOLLOW"}).kind == kind


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (federation_peers.html, "BAD_ANSWER"),
        (federation_peers.status(200, b""), "BAD_ANSWER"),
        (federation_peers.status(204), "BAD_ANSWER"),
        (federation_peers.says({}), "NO_ACK"),
        (federation_peers.says(None), "NO_ACK"),
        (federation_peers.says([{"method": "PROXY_RESPONSE"}]), "NO_ACK"),
        (federation_peers.says({"method": "OTHER", "status": "ok"}), "NO_ACK"),
        (federation_peers.says({"method": "PROXY_RESPONSE", "payload": {}}), "NO_ACK"),
        (federation_peers.says({"method": "PROXY_RESPONSE", "payload": 7}), "NO_ACK"),
    ],
    ids=["html", "empty", "204", "{}", "null", "list", "other", "empty payload", "number"],
)
@BOTH
def test_rows_11_and_12_an_answer_without_acknowledgement(
    make_sender: Make, peer: Peer, profile: str, answer: Fault, code: str
) -> None:
    """Given up after one request; the row stays, as the peer may have applied it."""
    sender = make_sender(profile)
    sender.know(peer)
    peer.script.append(answer)
    ran = sender.deliver(peer.url)
    assert (ran.kind, ran.row, peer.posts) == ("fatal", "kept", 1)
    assert ran.text.startswith(f"[{code}] ")


def spoilt(**changes: object) -> Fault:
    """An acknowledgement with other fields."""

    def fault(request: Any) -> None:
        one = request.server.peer
        keys = one.known[request.headers["X-Federation-Origin"]]
        ack = one.acknowledge(follow(), keys)
        request.answer(200, {**ack, **changes})

    return fault


@pytest.mark.parametrize(
    ("code", "answer"),
    [
        ("BAD_ACK", federation_peers.ack_for_other_key),
        ("BAD_ACK", spoilt(data=None)),
        ("BAD_ACK", spoilt(data={})),
        ("BAD_ACK", spoilt(data="text")),
        ("BAD_SIGNATURE", federation_peers.ack_signed_by_other),
        ("BAD_SIGNATURE", spoilt(signature=None)),
        ("BAD_SIGNATURE", spoilt(signature=encode(bytes(64)))),
    ],
    ids=["other key", "no data", "{}", "text", "other signer", "no signature", "zeros"],
)
@BOTH
def test_rows_13_and_15_a_follow_is_not_acknowledged(
    make_sender: Make, peer: Peer, profile: str, code: str, answer: Fault
) -> None:
    """An envelope for another key or none, or no signature by the server: given up, the row
    deleted, the follow as it was."""
    sender = make_sender(profile)
    sender.know(peer)
    add_follow(sender, peer.url)
    peer.script.append(answer)
    ran = sender.deliver(peer.url, follow(), name=FOLLOW)
    assert (ran.kind, ran.row, peer.posts) == ("fatal", "deleted", 1)
    assert ran.text.startswith(f"[{code}] ")
    assert decision(sender) == (False, False)


@pytest.mark.parametrize("accepted", ["yes", 1, [], {}])
@BOTH
def test_row_13_a_decision_of_another_type(
    make_sender: Make, peer: Peer, profile: str, accepted: object
) -> None:
    """`accepted` must be true or false."""
    sender = make_sender(profile)
    sender.know(peer)
    peer.accepted = accepted
    ran = sender.deliver(peer.url, follow(), name=FOLLOW)
    assert (ran.kind, ran.row) == ("fatal", "deleted")


@BOTH
def test_row_14_without_a_signing_key_it_is_given_up(
    make_sender: Make, peer: Peer, profile: str
) -> None:
    """The registry has only the encryption key: the row stays."""
    sender = make_sender(profile)
    sender.know(peer)
    sender.change(peer.url, extra={ENCRYPTION: peer.public.encryption})
    ran = sender.deliver(peer.url, follow(), name=FOLLOW)
    assert (ran.kind, ran.row, peer.posts) == ("fatal", "kept", 1)
    assert ran.text.startswith("[NO_KEY] ")


def test_a_replayed_acknowledgement_decides_nothing(make_sender: Make, peer: Peer) -> None:
    """The peer answers with its earlier acknowledgement of another follow: by default it must be
    of the follow that was sent; `sipher` stores it for the other follow."""
    for profile, expected in (("default", (False, False)), ("sipher", (True, False))):
        sender = make_sender(profile)
        sender.know(peer)
        add_follow(sender, peer.url, "eve", "bob")
        add_follow(sender, peer.url)
        keys = peer.known[sender.home.url]
        peer.script.append(federation_peers.says(peer.acknowledge(follow("eve", "bob"), keys)))
        ran = sender.deliver(peer.url, follow(), name=FOLLOW)
        assert decision(sender) == (False, False)
        assert decision(sender, "eve", "bob") == expected
        assert (ran.kind, ran.row) == (
            ("fatal", "kept") if profile == "default" else ("done", "deleted")
        )


@pytest.mark.parametrize("broken", ["registry", "outbox", "key"])
@BOTH
def test_row_16_a_database_error_or_a_bad_key_is_tried_again(
    make_sender: Make, peer: Peer, profile: str, broken: str
) -> None:
    """The row stays, nothing was sent."""
    sender = make_sender(profile)
    sender.know(peer)
    expected = "[DATABASE] sqlite://"
    if broken == "registry":
        sender.sql("ALTER TABLE destinations RENAME COLUMN healthy TO sane")
    elif broken == "outbox":
        expected = "[DATABASE] locked"
        sender.outbox.count_attempt = _raise_locked  # type: ignore[method-assign]
    else:
        sender.change(peer.url, extra={ENCRYPTION: encode(b"short")})
        expected = "[BAD_KEYS] "
    ran = sender.deliver(peer.url)
    assert (ran.kind, ran.row, peer.posts) == ("retry", "kept", 0)
    assert ran.text.startswith(expected)


def _raise_locked(key: str, now: float) -> int:
    raise Unavailable("locked")


def test_a_delivery_does_not_depend_on_the_record_of_health(
    sender: Sender, peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The registry is read-only once the request was sent: an error keeps its code, a success is
    one."""
    sender.know(peer, healthy=False, reason="REFUSED")

    def refuse(*_: object) -> Any:
        raise Unavailable("read-only")

    monkeypatch.setattr(sender.registry, "swap", refuse)
    peer.script.append(federation_peers.reset)
    assert sender.deliver(peer.url).text.startswith("[RESET] ")
    assert sender.deliver(peer.url).kind == "done"
    assert sender.lines == ["WARN Health of a server not recorded: read-only"] * 2


@BOTH
def test_row_17_an_acknowledgement_of_an_unknown_follow_is_ignored(
    make_sender: Make, peer: Peer, profile: str
) -> None:
    """There is no such row here: done, the row of the outbox is deleted."""
    sender = make_sender(profile)
    sender.know(peer)
    ran = sender.deliver(peer.url, follow(), name=FOLLOW)
    assert ran == Ran("done", "acknowledged: no such follow here", "deleted")


@pytest.mark.parametrize(("accepted", "expected"), [(True, (True, False)), (False, (False, True))])
@BOTH
def test_a_decision_is_stored(
    make_sender: Make, peer: Peer, profile: str, accepted: bool, expected: tuple[bool, bool]
) -> None:
    """Accepted: `accepted`; rejected: `acknowledged`."""
    sender = make_sender(profile)
    sender.know(peer)
    peer.accepted = accepted
    add_follow(sender, peer.url)
    assert sender.deliver(peer.url, follow(), name=FOLLOW).kind == "done"
    assert decision(sender) == expected


def test_a_follow_may_be_acknowledged_without_a_decision(make_sender: Make, peer: Peer) -> None:
    """`accepted` is absent: acknowledged; `sipher` refuses it as row 13."""
    peer.accepted = None
    for profile, kind, expected in (
        ("default", "done", (False, True)),
        ("sipher", "fatal", (False, False)),
    ):
        sender = make_sender(profile)
        sender.know(peer)
        peer.applied.clear()
        add_follow(sender, peer.url)
        assert sender.deliver(peer.url, follow(), name=FOLLOW).kind == kind
        assert decision(sender) == expected


def test_the_tables_may_be_in_postgres(make_sender: Make, peer: Peer, postgres_url: str) -> None:
    """Registry, outbox and follows in one database of Postgres."""
    sender = make_sender(database=postgres_url)
    add_follow(sender, peer.url)
    ran = sender.deliver(peer.url, follow(), name=FOLLOW)
    assert ran == Ran("done", "accepted", "deleted")
    assert decision(sender) == (True, False)
    ((attempts, last),) = sender.sql("SELECT attempts, last_attempted_at FROM delivery_jobs")
    assert (attempts, last.timestamp()) == (1, pytest.approx(sender.now))
    assert sender.destination(peer.url).last_success == sender.now
    sender.sql("DROP TABLE follows")
    peer.applied.clear()
    again = sender.deliver(peer.url, follow(), name=FOLLOW)
    assert (again.kind, again.text.partition("]")[0]) == ("retry", "[DATABASE")


def test_a_large_payload_is_sent_whole(sender: Sender, peer: Peer) -> None:
    """5 MiB arrive; whether they are accepted is the peer's decision."""
    sender.know(peer)
    text = json.dumps({"method": "FEDERATE_POST", "post": {"content": "x" * (5 << 20)}})
    assert sender.deliver(peer.url, text).kind == "done"
    assert peer.received[0].text == text
