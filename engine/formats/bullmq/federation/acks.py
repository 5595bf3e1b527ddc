"""Acknowledgements: find one in the answer to a delivery, and act on it by the name of the job."""

from __future__ import annotations

from collections.abc import Mapping

from engine.formats.bullmq.federation.envelope import BadEnvelope, is_signed, parse_envelope, unseal
from engine.formats.bullmq.federation.jobs import FOLLOW
from engine.formats.bullmq.federation.parts import FederationParts, keys_of, parse_object
from engine.formats.bullmq.federation.profile import Profile
from engine.formats.bullmq.federation.shared_tables import Follow
from engine.values import NamedTuple

METHOD = "PROXY_RESPONSE"
"""The method of an acknowledgement, and of what a relay wraps it in."""


class Ack(NamedTuple):
    """An acknowledgement in an answer."""

    shape: str
    """inline, wrapped, or bare: without signature."""
    body: Mapping[str, object]


class AckRefused(Exception):
    """An acknowledgement cannot be accepted; no further attempt is made."""

    def __init__(self, code: str, text: str, *, keeps_row: bool = False) -> None:
        super().__init__(f"[{code}] {text}")
        self.keeps_row = keeps_row
        """True if the row in the outbox stays, for an operator to decide."""


def find_ack(answer: Mapping[str, object], profile: Profile) -> Ack | None:
    """The acknowledgement in an answer; None if there is none."""
    wrapped = answer.get("payload")
    if wrapped is not None:
        inner = wrapped if isinstance(wrapped, dict) else {}
        return Ack("wrapped", inner) if inner.get("method") == METHOD else None
    if answer.get("method") == METHOD:
        return Ack("inline", answer)
    is_bare = "method" not in answer and isinstance(answer.get("status"), str)
    return Ack("bare", answer) if is_bare and profile.accepts_bare_ack else None


def handle_ack(
    parts: FederationParts,
    name: str,
    ack: Ack,
    origin: str,
    server: str,
    payload: Mapping[str, object],
) -> str:
    """Act on the acknowledgement of a job of this name, from the origin and URL of its server, with
    the payload of the delivery; return what was done, in a few words.

    Jobs are acknowledged by the answer alone, but for a follow: the decision on it is stored if it
    is signed by the server that it was sent to.

    Raises:
        AckRefused: it is not acceptable.
        engine.store.Unavailable: a database cannot be used.
    """
    if ack.shape == "bare" or name != FOLLOW:
        return "acknowledged"
    try:
        plain = unseal(parse_envelope(ack.body.get("data")), parts.keys.encryption)
        follow = _parse_follow(plain, server, parts.profile)
    except (BadEnvelope, ValueError) as error:
        raise AckRefused("BAD_ACK", f"acknowledgement of a follow: {error}") from error
    signing = keys_of(parts.registry.get(origin))
    if not signing.signing:
        raise AckRefused("NO_KEY", f"no signing key of {origin}", keeps_row=True)
    if not is_signed(plain, ack.body.get("signature"), signing.signing_key()):
        raise AckRefused("BAD_SIGNATURE", f"the acknowledgement is not signed by {origin}")
    if parts.profile.checks_target and _pair(payload.get("following")) != follow[:2]:
        why = "an acknowledgement of another follow than the one that was sent"
        raise AckRefused("OTHER_ACK", why, keeps_row=True)
    if parts.follows is None or not parts.follows.decide(follow):
        return "acknowledged: no such follow here"
    return {True: "accepted", False: "rejected", None: "acknowledged"}[follow.accepted]


def lacks_decision(
    parts: FederationParts, name: str, server: str, payload: Mapping[str, object]
) -> bool:
    """True if the delivery of a job of this name is not done by its application alone: the decision
    in the acknowledgement is not stored.

    Raises:
        engine.store.Unavailable: the database of the follows cannot be used.
    """
    if name != FOLLOW or parts.follows is None:
        return False
    return parts.follows.is_undecided(*_pair(payload.get("following")), server)


def _parse_follow(plain: bytes, server: str, profile: Profile) -> Follow:
    """The follow in the plain text of an acknowledgement.

    Raises:
        ValueError: it has another form.
    """
    message = parse_object(plain) or {}
    follow_fields = message.get("following")
    if not isinstance(follow_fields, dict) or message.get("method") != "FEDERATE":
        raise ValueError("expected following and the method FEDERATE")
    follower, following = _pair(follow_fields)
    accepted, home = follow_fields.get("accepted"), follow_fields.get("followerServerUrl")
    if not follower or not following or not isinstance(home, str | None):
        raise ValueError("expected followerId, followingId and followerServerUrl")
    is_open = accepted is None and not profile.accepts_no_decision
    if is_open or not isinstance(accepted, bool | None):
        raise ValueError("expected accepted: true or false")
    return Follow(follower, following, server, accepted)


def _pair(fields: object) -> tuple[str, str]:
    """Follower and followed in a follow; "" for what is not there."""
    known = fields if isinstance(fields, dict) else {}
    ids = (known.get(key) for key in ("followerId", "followingId"))
    follower, following = (each if isinstance(each, str) else "" for each in ids)
    return follower, following
