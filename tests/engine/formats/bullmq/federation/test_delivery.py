"""Deliveries to peers on loopback: each row of the error table, in both profiles."""

import json
from collections.abc import Callable, Mapping
from itertools import product
from typing import Any

import pytest
from pytest import MonkeyPatch

from engine.formats.bullmq.federation.envelope import encode
from engine.formats.bullmq.federation.jobs import FOLLOW
from engine.formats.bullmq.federation.keys import ENCRYPTION, SIGNING
from engine.store import Unavailable
from tests import federation_peers
from tests.federation_peers import Fault, Peer, says, status
from tests.federation_sender import LONG, SHORT, Ran, Sender, add_follow, decision, follow, post
from tests.store_contents import naming

Make = Callable[..., Sender]
PROFILES = ("default", "sipher")
BOTH = pytest.mark.parametrize("profile", PROFILES)


def outcome(ran: Ran) -> str:
    """What became of a job and its row, and the code of its error: `retry kept [RESET]`."""
    return f"{ran.kind} {ran.row} {ran.text.partition(' ')[0]}"


def deliver_follow(sender: Sender, peer: Peer, **options: Any) -> Ran:
    """Deliver a follow to a peer."""
    return sender.deliver(peer.url, follow(), name=FOLLOW, **options)


def test_an_unknown_server_is_discovered_then_delivered(sender: Sender, peer: Peer) -> None:
    """GET /discover, REGISTER, then one POST, which the peer decrypts and verifies."""
    assert sender.deliver(peer.url) == Ran("done", "acknowledged", "deleted")
    assert (peer.discoveries, len(peer.registered), peer.posts) == (1, 1, 1)
    (got,) = peer.received
    assert json.loads(got.text) == post()
    assert got.headers["Origin"] == got.headers["X-Federation-Origin"] == sender.home.url
    assert got.headers["X-Federation-Target"] == f"{peer.url}{federation_peers.POSTS}"
    assert set(got.body) == {"method", "payload", "signature"}
    keys = {SIGNING: peer.public.signing, ENCRYPTION: peer.public.encryption}
    assert sender.destination(peer.url).extra == keys
    assert sender.deliver(peer.url, post("2")).kind == "done"
    assert (peer.discoveries, len(peer.registered)) == (1, 1)
    ((attempts, last),) = sender.sql("SELECT attempts, last_attempted_at FROM delivery_jobs")
    assert (attempts, last) == (1, sender.now)


LARGE = json.dumps({"method": "FEDERATE_POST", "post": {"content": "x" * (5 << 20)}})


def test_the_payload_is_sent_byte_for_byte(known: Sender, peer: Peer) -> None:
    """The signature is over these bytes. Whether 5 MiB are accepted is the peer's decision."""
    for text in ('{"method":"INSERT", "a":1.0e2}', '{ "method" : "INSERT"}\n', LARGE):
        ran = known.deliver(peer.url, text)
        assert ran.kind == "done" or text != LARGE
        assert (peer.received[-1].text == text, peer.problems) == (True, []), text[:40]


@pytest.mark.parametrize("shape", ["inline", "wrapped"])
def test_an_acknowledgement_is_inline_or_wrapped(both: Sender, peer: Peer, shape: str) -> None:
    """Both shapes complete a post and a follow."""
    peer.ack_shape = shape
    add_follow(both, peer.url)
    assert both.deliver(peer.url) == Ran("done", "acknowledged", "deleted")
    assert deliver_follow(both, peer) == Ran("done", "accepted", "deleted")
    assert decision(both) == (True, False)


def test_rows_1_to_3_a_bad_payload_is_given_up(make: Make, peer: Peer) -> None:
    """No request is made. The row is deleted; with data of another form it stays."""
    payloads = {
        "{": "payload is not JSON",
        "[" * 100_000: "payload is not JSON: JSON that is nested too deep",
        **dict.fromkeys(("null", "42", '"text"', "[]"), "payload: expected an object"),
        "{}": "payload: expected an object with the text method",
        '{"method": 7}': "payload: expected an object with the text method",
        '{"method": "DELETE"}': "method 'DELETE', expected one of FEDERATE",
    }
    for profile, (payload, expected) in product(PROFILES, payloads.items()):
        ran = make(profile).deliver(peer.url, payload)
        with naming(profile, payload[:12]):
            assert (ran.kind, ran.row) == ("fatal", "deleted")
            assert ran.text.startswith(f"[BAD_PAYLOAD] {expected}")
    changes: tuple[dict[str, object], ...] = (
        {"payload": {}},
        {"serverUrl": None},
        {"deliveryJobId": 7},
        {"serverUrl": "http://a/\n"},
        {"payload": "\ud800"},
    )
    for change in changes:
        ran = make().deliver(peer.url, data=change)
        assert (ran.kind, ran.text[:14]) == ("fatal", "[BAD_PAYLOAD] "), change
    assert (peer.posts, peer.discoveries) == (0, 0)


def test_row_4_a_blocked_server_gets_nothing(both: Sender, peer: Peer) -> None:
    """The job is given up and its row deleted; after an unblock the same job is delivered."""
    both.change(peer.url, blocked="spam")
    blocked = Ran("fatal", f"[BLOCKED] {peer.url} is blocked: spam", "deleted")
    assert (both.deliver(peer.url), peer.posts) == (blocked, 0)
    both.change(peer.url, blocked="")
    assert both.deliver(peer.url).kind == "done"


def test_row_5_a_failed_discovery_is_tried_again(make: Make, peer: Peer) -> None:
    """The row stays, no attempt is counted in it, and nothing is registered."""
    answers = (
        (status(503), "HTTP_503"),
        (federation_peers.html, "BAD_KEYS"),
        (says({}), "BAD_KEYS"),
        (says([]), "BAD_KEYS"),
        (says({"publicKey": encode(bytes(32))}), "BAD_KEYS"),
        (says({"publicKey": "x", "encryptionPublicKey": "y"}), "BAD_KEYS"),
        (federation_peers.gzip_bomb, "TOO_LARGE"),
        (federation_peers.reset, "RESET"),
    )
    for profile, (number, (answer, code)) in product(PROFILES, enumerate(answers)):
        sender, posts = make(profile), peer.posts
        peer.applied.clear()
        peer.discover_script.append(answer)
        ran = sender.deliver(peer.url)
        with naming(profile, number):
            assert (outcome(ran), peer.posts) == (f"retry kept [{code}]", posts)
            assert ran.text.startswith(f"[{code}] discovery: ")
            assert sender.sql("SELECT attempts FROM delivery_jobs") == [(0,)]
            assert not sender.destination(peer.url).rev
            assert sender.deliver(peer.url).kind == "done"


def spoilt(**changes: object) -> Fault:
    """An acknowledgement with other fields."""

    def fault(request: Any) -> None:
        one = request.server.peer
        keys = one.known[request.headers["X-Federation-Origin"]]
        request.answer(200, {**one.acknowledge(follow(), keys), **changes})

    return fault


def redirect(place: str) -> Fault:
    """A redirect to another address."""
    return status(307, b"", Location=place)


ANSWERS: Mapping[str, tuple[Fault, str, str]] = {
    # Row 8: the server is unhealthy for the reason, and its first probe is planned.
    "reset": (federation_peers.reset, "retry kept [RESET]", ""),
    "no answer": (federation_peers.sleep, "retry kept [TIMEOUT]", ""),
    "a body without end": (federation_peers.endless_body, "retry kept [TIMEOUT]", ""),
    # Each attempt would be applied.
    "bomb": (federation_peers.gzip_bomb, "fatal kept [TOO_LARGE]", "retry kept [TOO_LARGE]"),
    # A redirect is judged again.
    **{
        place: (redirect(place), "fatal kept [BLOCKED_URL]", "retry kept [BLOCKED_URL]")
        for place in ("file:///etc/passwd", "http://169.254.169.254/", "http://[::]/")
    },
    # Row 10: by default 4xx and 501 are given up, `sipher` tries each again.
    **{
        f"{number}": (status(number), f"fatal kept [HTTP_{number}]", f"retry kept [HTTP_{number}]")
        for number in (304, 400, 403, 404, 409, 413, 501)
    },
    **{
        f"{number}": (status(number), f"retry kept [HTTP_{number}]", "")
        for number in (408, 425, 429, 500, 502, 503)
    },
    # Rows 11 and 12: given up after one request; the peer may have applied it.
    "html": (federation_peers.html, "fatal kept [BAD_ANSWER]", ""),
    "empty": (status(200, b""), "fatal kept [BAD_ANSWER]", ""),
    "204": (status(204), "fatal kept [BAD_ANSWER]", ""),
    **{
        f"says {body}": (says(body), "fatal kept [NO_ACK]", "")
        for body in (
            {},
            None,
            [{"method": "PROXY_RESPONSE"}],
            {"method": "OTHER", "status": "ok"},
            {"method": "PROXY_RESPONSE", "payload": {}},
            {"method": "PROXY_RESPONSE", "payload": 7},
        )
    },
}
"""Answers of a peer, what becomes of the job and its row, and the same for `sipher` if it differs.
"""


@pytest.mark.parametrize("name", ANSWERS)
@BOTH
def test_rows_8_to_12_an_answer_that_acknowledges_nothing(
    make: Make, peer: Peer, relay: Peer, profile: str, name: str
) -> None:
    """One request, none by a relay; the row stays. Only a network error makes the server unhealthy;
    then its first probe is planned in 5 minutes."""
    answer, default, literal = ANSWERS[name]
    sender = make(profile, peer, relay, timeouts=SHORT if "TIMEOUT" in default else LONG)
    peer.script.append(answer)
    ran = sender.deliver(peer.url)
    expected = literal if literal and profile == "sipher" else default
    assert (outcome(ran), peer.posts, relay.posts) == (expected, 1, 0)
    code = expected.partition("[")[2].rstrip("]")
    is_down = code in ("RESET", "TIMEOUT")
    known = sender.destination(peer.url)
    assert (known.healthy, known.reason, known.probes) == (not is_down, code * is_down, 0)
    assert sender.probes == [(peer.url, 0, 300.0)] * is_down


FOLLOWS: Mapping[str, tuple[Fault, str]] = {
    "other key": (federation_peers.ack_for_other_key, "BAD_ACK"),
    "no data": (spoilt(data=None), "BAD_ACK"),
    "empty data": (spoilt(data={}), "BAD_ACK"),
    "text": (spoilt(data="text"), "BAD_ACK"),
    "other signer": (federation_peers.ack_signed_by_other, "BAD_SIGNATURE"),
    "no signature": (spoilt(signature=None), "BAD_SIGNATURE"),
    "zeros": (spoilt(signature=encode(bytes(64))), "BAD_SIGNATURE"),
}


@pytest.mark.parametrize("name", FOLLOWS)
def test_rows_13_and_15_a_follow_is_not_acknowledged(both: Sender, peer: Peer, name: str) -> None:
    """By an envelope for no key or another one, or without the server's signature."""
    add_follow(both, peer.url)
    answer, code = FOLLOWS[name]
    peer.script.append(answer)
    assert outcome(deliver_follow(both, peer)) == f"fatal deleted [{code}]"
    assert (decision(both), peer.posts) == ((False, False), 1)


BAD_DECISIONS: tuple[object, ...] = ("yes", 1, [], {})
REFUSED = ("fatal deleted", (False, False))
DECISIONS: Mapping[str, tuple[dict[str, object], object, object]] = {
    "accepted": ({"accepted": True}, ("done deleted", (True, False)), None),
    "rejected": ({"accepted": False}, ("done deleted", (False, True)), None),
    # Row 13: `accepted` must be true or false.
    **{f"{value!r}": ({"accepted": value}, REFUSED, None) for value in BAD_DECISIONS},
    # Acknowledged; `sipher` refuses it as row 13.
    "absent": ({"accepted": None}, ("done deleted", (False, True)), REFUSED),
    # `{status, accepted}` has no signature: the follow stays as it is. `sipher`: row 12.
    "a bare status": (
        {"ack_shape": "bare"},
        ("done deleted", (False, False)),
        ("fatal kept", (False, False)),
    ),
}
"""What a peer answers to a follow, what becomes of the job and of the follow, and the same for
`sipher` if it differs."""


@pytest.mark.parametrize("name", DECISIONS)
@BOTH
def test_a_decision_is_stored(make: Make, peer: Peer, profile: str, name: str) -> None:
    """Accepted: `accepted`; rejected: `acknowledged`; what is no decision changes nothing."""
    sender = make(profile, peer)
    answer, default, literal = DECISIONS[name]
    for field, value in answer.items():
        setattr(peer, field, value)
    add_follow(sender, peer.url)
    ran = deliver_follow(sender, peer)
    expected = literal if literal and profile == "sipher" else default
    assert (f"{ran.kind} {ran.row}", decision(sender)) == expected


@BOTH
def test_a_server_without_our_keys_is_asked_again(make: Make, peer: Peer, profile: str) -> None:
    """It refuses the delivery with 403, which is tried again, after another REGISTER. A server that
    knows us accepts it in any case."""
    sender = make(profile)
    peer.register_script.extend([status(502), federation_peers.reset])
    for _ in range(2):
        assert outcome(sender.deliver(peer.url)) == "retry kept [HTTP_403]"
    assert sender.deliver(peer.url).kind == "done"
    assert sender.deliver(peer.url, post("2")).kind == "done"
    assert len(peer.registered) == 1
    other = make(profile)
    peer.register_script.append(status(502))
    other.deliver(peer.url)
    peer.close()
    assert other.deliver(peer.url).text.startswith("[REFUSED] ")
    assert not other.destination(peer.url).healthy
    peer.open()
    other = make(profile)
    peer.known[other.home.url] = other.home.public
    peer.register_script.append(status(502))
    assert other.deliver(peer.url, post("3")).kind == "done"


def test_a_cancelled_delivery_sends_no_request(sender: Sender, peer: Peer) -> None:
    """Nor does it wait for discovery; the job is run again, and no attempt is counted."""
    ran = sender.deliver(peer.url, is_cancelled=True)
    assert (outcome(ran), ran.after) == ("postponed kept [CANCELLED]", 0.0)
    assert peer.discoveries == peer.posts == 0


def test_a_changed_key_is_refused(either: Sender, peer: Peer) -> None:
    """Discovery finds another signing key: nothing is sent, the old key stays."""
    with Peer() as old:
        either.change(peer.url, extra={SIGNING: old.public.signing})
    ran = either.deliver(peer.url)
    assert (outcome(ran), peer.posts) == ("retry kept [KEY_CHANGED]", 0)
    assert ran.text.startswith("[KEY_CHANGED] discovery: ")
    assert either.destination(peer.url).extra == {SIGNING: old.public.signing}


def test_a_key_of_another_server_is_refused(known: Sender, peer: Peer, relay: Peer) -> None:
    """A server that describes itself with the signing key of another one is not registered."""
    relay.keys = peer.keys
    assert known.deliver(relay.url).text.startswith("[KEY_IN_USE] discovery: ")
    assert not known.destination(relay.url).rev


def test_row_6_an_address_that_is_not_allowed_is_refused(make: Make) -> None:
    """No connection is made; given up with its row kept. `sipher`: tried again. What is no origin,
    of another scheme, or with a port that is none, is given up."""
    for profile, kind in (("default", "fatal"), ("sipher", "retry")):
        sender = make(profile)
        for host in (
            "169.254.169.254",
            "10.0.0.1",
            "[::ffff:169.254.169.254]",
            "[64:ff9b::a9fe:a9fe]",
            "[fd00::1]",
        ):
            ran = sender.deliver(f"http://{host}")
            with naming(profile, host):
                assert outcome(ran) == f"{kind} kept [BLOCKED_URL]"
                assert ran.text.startswith("[BLOCKED_URL] discovery: ")
    for server in ("ftp://a.test", "http://a.test:0", "http://a.test:99999", "x"):
        assert make().deliver(server)[::2] == ("fatal", "deleted"), server


@pytest.mark.parametrize(
    "target", ["http://169.254.169.254/x", "http://user@{host}/x", "file:///etc/passwd"]
)
def test_a_target_elsewhere_gets_nothing(make: Make, peer: Peer, target: str) -> None:
    """By default the target must be of the server's origin; in each profile the guard judges it."""
    url = target.format(host=peer.url.removeprefix("http://"))
    by_default = "[BLOCKED_URL]" if "user@" in target else "[BAD_TARGET]"
    for profile, expected in (
        ("default", f"fatal kept {by_default}"),
        ("sipher", "retry kept [BLOCKED_URL]"),
    ):
        sender = make(profile, peer)
        assert outcome(sender.deliver(peer.url, data={"targetUrl": url})) == expected
        assert sender.destination(peer.url).healthy
    assert peer.posts == 0


def test_a_name_that_becomes_loopback_is_refused(sender: Sender, peer: Peer) -> None:
    """The address that a connection is made to is judged, not that of an earlier lookup."""
    sender.names["peer.test"] = ["10.1.2.3"]
    server = f"http://peer.test:{peer.port}"
    sender.know(peer, server)
    assert (outcome(sender.deliver(server)), peer.posts) == ("fatal kept [BLOCKED_URL]", 0)
    assert sender.destination(server).healthy


def test_a_redirect_to_a_blocked_server_is_not_followed(known: Sender, peer: Peer) -> None:
    """Neither is a blocked server asked by discovery: nothing reaches it."""
    with Peer() as other:
        known.change(other.url, blocked="spam")
        peer.script.append(redirect(f"{other.url}{federation_peers.POSTS}"))
        refused = f"[BLOCKED_URL] redirect: {other.url} is blocked: spam"
        assert known.deliver(peer.url) == Ran("fatal", refused, "kept")
        assert other.posts == 0


def test_row_7_without_own_origin_nothing_is_sent(both: Sender, peer: Peer) -> None:
    """Given up, the row stays; the attempt was counted before."""
    both.parts = both.parts._replace(origin="")
    assert (outcome(both.deliver(peer.url)), peer.posts) == ("fatal kept [NO_ORIGIN]", 0)
    assert both.sql("SELECT attempts FROM delivery_jobs") == [(1,)]


@pytest.mark.parametrize(("profile", "code"), [("default", "DNS"), ("sipher", "NO_RELAY")])
def test_row_9_without_a_relay_a_retry(make: Make, peer: Peer, profile: str, code: str) -> None:
    """No other server is known: the error has the code of the direct attempt; not so `sipher`."""
    sender = make(profile)
    server = f"http://{sender.hide()}"
    sender.know(peer, server)
    ran = sender.deliver(server)
    assert outcome(ran) == f"retry kept [{code}]"
    assert ("Name or service not known" in ran.text) == (profile == "default")
    stranded = "ALERT No server of the federation can be reached: this one is stranded"
    assert sender.lines == [stranded]


def test_retry_after_is_honoured_but_not_by_sipher(make: Make, peer: Peer) -> None:
    """429 with 90 seconds: the next attempt is due then, also by a server that may not know us."""
    busy = status(429, Retry_After="90")
    for profile, after in (("default", 90.0), ("sipher", None)):
        peer.script.append(busy)
        assert make(profile, peer).deliver(peer.url).after == after
    peer.register_script.append(status(502))
    peer.script.append(busy)
    ran = make().deliver(peer.url)
    assert (ran.kind, ran.after) == ("retry", 90.0)


def test_a_conflict_on_a_repetition_means_applied(make: Make, peer: Peer) -> None:
    """409 to a second attempt is done; `sipher` tries again, though it was applied."""
    for profile, expected in (("default", ("done", "deleted")), ("sipher", ("retry", "kept"))):
        sender = make(profile, peer)
        peer.script.append(federation_peers.applied_then(503))
        assert sender.deliver(peer.url).kind == "retry"
        assert sender.deliver(peer.url, attempts=1)[:3:2] == expected
        assert len(peer.applied) == 1


def test_any_sign_shows_a_repetition(known: Sender, peer: Peer) -> None:
    """Attempts of the task, or that a worker cancelled it; not that it waited for a probe."""
    assert known.deliver(peer.url).kind == "done"
    assert known.deliver(peer.url, attempts=1).kind == "done"
    cancelled = "waits: [CANCELLED] peer: cancelled by the worker"
    assert known.deliver(peer.url, error=cancelled).kind == "done"
    assert known.deliver(peer.url, error="waits: unhealthy").kind == "fatal"


def test_a_conflict_does_not_hide_a_lost_decision(make: Make, peer: Peer) -> None:
    """A follow that was applied is done only if its decision was stored; else the row stays."""
    for decided in ("", "accepted", "acknowledged"):
        sender = make("default", peer)
        add_follow(sender, peer.url)
        if decided:
            sender.sql(f"UPDATE follows SET {decided} = TRUE")
        peer.script.append(federation_peers.applied_then(503))
        assert deliver_follow(sender, peer).kind == "retry"
        expected = "done deleted applied" if decided else "fatal kept [NO_DECISION]"
        assert outcome(deliver_follow(sender, peer, attempts=1)) == expected, decided


def test_row_14_without_a_signing_key_it_is_given_up(both: Sender, peer: Peer) -> None:
    """The registry has only the encryption key: the row stays."""
    both.change(peer.url, extra={ENCRYPTION: peer.public.encryption})
    assert (outcome(deliver_follow(both, peer)), peer.posts) == ("fatal kept [NO_KEY]", 1)


def test_a_replayed_acknowledgement_decides_nothing(make: Make, peer: Peer) -> None:
    """It must be of the follow that was sent; `sipher` stores it for the other follow."""
    for profile, kind, row, is_stored in (
        ("default", "fatal", "kept", False),
        ("sipher", "done", "deleted", True),
    ):
        sender = make(profile, peer)
        add_follow(sender, peer.url, "eve", "bob")
        add_follow(sender, peer.url)
        keys = peer.known[sender.home.url]
        peer.script.append(says(peer.acknowledge(follow("eve", "bob"), keys)))
        assert deliver_follow(sender, peer)[:3:2] == (kind, row)
        assert decision(sender) == (False, False)
        assert decision(sender, "eve", "bob") == (is_stored, False)


@pytest.mark.parametrize("broken", ["registry", "outbox", "key"])
def test_row_16_a_database_error_or_a_bad_key_is_tried_again(
    both: Sender, peer: Peer, broken: str
) -> None:
    """The row stays, nothing was sent."""
    expected = "[DATABASE] sqlite://"
    if broken == "registry":
        both.sql("ALTER TABLE destinations RENAME COLUMN healthy TO sane")
    elif broken == "outbox":
        expected = "[DATABASE] locked"
        both.outbox.count_attempt = _raise_locked  # type: ignore[method-assign]
    else:
        both.change(peer.url, extra={ENCRYPTION: encode(b"short")})
        expected = "[BAD_KEYS] "
    ran = both.deliver(peer.url)
    assert (ran.kind, ran.row, peer.posts) == ("retry", "kept", 0) and ran.text.startswith(expected)


def _raise_locked(key: str, now: float) -> int:
    raise Unavailable("locked")


def test_a_delivery_does_not_depend_on_the_record_of_health(
    known: Sender, peer: Peer, monkeypatch: MonkeyPatch
) -> None:
    """With a read-only registry an error keeps its code, and a success is one."""
    known.change(peer.url, healthy=False, reason="REFUSED")

    def refuse(*_: object) -> Any:
        raise Unavailable("read-only")

    monkeypatch.setattr(known.registry, "swap", refuse)
    peer.script.append(federation_peers.reset)
    assert known.deliver(peer.url).text.startswith("[RESET] ")
    assert known.deliver(peer.url).kind == "done"
    assert known.lines == ["WARN Health of a server not recorded: read-only"] * 2


@BOTH
def test_row_17_an_acknowledgement_of_an_unknown_follow_is_ignored(
    make: Make, peer: Peer, profile: str
) -> None:
    """There is no such row here: done, the row of the outbox is deleted."""
    ran = deliver_follow(make(profile, peer), peer)
    assert ran == Ran("done", "acknowledged: no such follow here", "deleted")


def test_the_tables_may_be_in_postgres(make: Make, peer: Peer, postgres_url: str) -> None:
    """Registry, outbox and follows in one database of Postgres."""
    sender = make(database=postgres_url)
    add_follow(sender, peer.url)
    assert deliver_follow(sender, peer) == Ran("done", "accepted", "deleted")
    assert decision(sender) == (True, False)
    ((attempts, last),) = sender.sql("SELECT attempts, last_attempted_at FROM delivery_jobs")
    assert (attempts, last.timestamp()) == (1, pytest.approx(sender.now))
    assert sender.destination(peer.url).last_success == sender.now
    sender.sql("DROP TABLE follows")
    peer.applied.clear()
    assert outcome(deliver_follow(sender, peer)) == "retry kept [DATABASE]"
